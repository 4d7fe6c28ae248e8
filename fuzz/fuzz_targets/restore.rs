//! Any bytes with a right checksum are a value or an error for RESTORE, and an accepted value is valid. `cargo +nightly
//! fuzz run restore corpus/restore seeds/restore -- -max_total_time=60 -timeout=5`

#![no_main]

#[allow(dead_code, reason = "each target uses its part")]
mod play;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    play::restored(data);
});
