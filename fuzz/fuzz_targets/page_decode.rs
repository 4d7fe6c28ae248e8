//! Any bytes are a page, an extent or an error: no panic, no read out of bounds, no memory beyond the format's limits.
//! The checksum is corrected first; otherwise no input would get past it. `cargo +nightly fuzz run page_decode
//! corpus/page_decode ../crates/store/tests/fixtures -- -max_len=16384 -max_total_time=60`

#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use flash::io::PAGE_BYTES;
use store::log::page::{Corrupt, Dictionary, EXTENT_RAW_BYTES_MAX, Page, Scratch, scan};

static DICTIONARY: LazyLock<Arc<Dictionary>> = LazyLock::new(|| {
    let bytes = include_bytes!("../../crates/store/tests/fixtures/dictionary_v1.bin");
    Arc::new(Dictionary::deserialize(bytes, 1).expect("the fixture is sound"))
});

fuzz_target!(|data: &[u8]| {
    let _ = Dictionary::deserialize(data, 1);
    let mut buf = data.to_vec();
    buf.resize(data.len().next_multiple_of(PAGE_BYTES).max(PAGE_BYTES), 0);
    buf[..3].copy_from_slice(b"FK\x01");
    // Half of the inputs become pages, half extents.
    buf[3] = 1 + (buf[3] & 1);
    reseal(&mut buf);
    let dictionaries = |_| Some(DICTIONARY.clone());
    let mut scratch = Scratch::new();
    for (index, page) in scan(&buf) {
        let Ok(page) = page else { continue };
        assert!(page.pages() <= (buf.len() / PAGE_BYTES) - index);
        let mut keys = Vec::new();
        let walked = page.for_each(&dictionaries, &mut scratch, &mut |record| {
            assert!(record.key.len() + record.value.len() <= EXTENT_RAW_BYTES_MAX);
            keys.push((record.hash, record.db, record.key.to_vec()));
        });
        if walked.is_ok() {
            assert_eq!(keys.len(), page.record_count());
        }
        for (hash, db, key) in keys.into_iter().take(8) {
            let found = page.find(hash, db, &key, &dictionaries, &mut scratch);
            assert!(walked.is_err() || found.is_ok_and(|record| record.is_some()));
        }
    }
    assert!(!matches!(Page::open(&buf), Err(Corrupt::Checksum | Corrupt::Magic | Corrupt::Version(_))));
});

fn reseal(buf: &mut [u8]) {
    let mut end = PAGE_BYTES;
    if buf[3] == 2 {
        let stored = u32::from_le_bytes(buf[28..32].try_into().expect("four bytes")) as usize;
        end = (40 + stored).min(buf.len());
    }
    let crc = crc32c::crc32c_append(crc32c::crc32c(&buf[..4]), &buf[8..end]);
    buf[4..8].copy_from_slice(&crc.to_le_bytes());
}
