//! Any string is a HyperLogLog or an error, and does not change its meaning. The first byte says which header is
//! corrected, and how much of the rest is a second HyperLogLog. `cargo +nightly fuzz run hyperloglog corpus/hyperloglog
//! seeds/hyperloglog -- -max_total_time=60 -timeout=5`

#![no_main]

#[allow(dead_code, reason = "each target uses its part")]
mod play;

use libfuzzer_sys::fuzz_target;

const HEAD_BYTES: usize = 16;
const DENSE_BYTES: usize = HEAD_BYTES + 16_384 * 6 / 8;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, rest)) = data.split_first() else { return };
    let (one, two) = rest.split_at(rest.len() * usize::from(choice >> 3) / 31);
    let (one, two) = (log(one, choice & 3), log(two, choice >> 1 & 3));
    let replies = play::commands(&[
        &[b"SET", b"one", &one],
        &[b"SET", b"two", &two],
        &[b"PFCOUNT", b"one"],
        &[b"PFCOUNT", b"one", b"two"],
        &[b"PFCOUNT", b"one"],
        &[b"PFMERGE", b"all", b"one", b"two"],
        &[b"PFCOUNT", b"all"],
        &[b"PFADD", b"one", b"a", b"b", b"c"],
        &[b"PFDEBUG", b"DECODE", b"one"],
        &[b"PFDEBUG", b"GETREG", b"two"],
        &[b"PFDEBUG", b"TODENSE", b"one"],
        &[b"PFADD", b"one", b"d"],
        &[b"PFMERGE", b"two", b"one"],
        &[b"PFCOUNT", b"one", b"two", b"all"],
    ]);
    // If they can be merged, both can be read.
    if replies[3][0] != b'-' {
        assert_eq!(replies[5], b"+OK\r\n");
        assert_eq!(replies[3], replies[6], "the union counts as its parts do together");
    }
});

/// 0: the bytes unchanged, 1: a sparse one, 2 and 3: a dense one of the right length.
fn log(bytes: &[u8], choice: u8) -> Vec<u8> {
    let mut log = bytes.to_vec();
    if choice > 0 {
        log.resize(log.len().max(HEAD_BYTES), 0);
        log[..5].copy_from_slice(b"HYLL\x01");
    }
    if choice > 1 {
        log[4] = 0;
        log.resize(DENSE_BYTES, 0);
    }
    log
}
