//! Any bytes are pages or an error: no panic, no read out of bounds, no memory beyond the format's limits.
//! Magic number, version, stamp and checksum are corrected first; otherwise no input would get past them. `cargo +nightly fuzz run page_decode
//! corpus/page_decode ../crates/store/tests/fixtures -- -max_len=16384 -max_total_time=60`

#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use flash::io::PAGE_BYTES;
use store::log::page::{Corrupt, Dictionary, Page, RECORD_BYTES_MAX, Scratch, Stamp, scan, stamp};

static DICTIONARY: LazyLock<Arc<Dictionary>> = LazyLock::new(|| {
    let bytes = include_bytes!("../../crates/store/tests/fixtures/dictionary_v1.bin");
    Arc::new(Dictionary::deserialize(bytes, 1).expect("the fixture is sound"))
});

fuzz_target!(|data: &[u8]| {
    let _ = Dictionary::deserialize(data, 1);
    let mut buf = data.to_vec();
    buf.resize(data.len().next_multiple_of(PAGE_BYTES).max(PAGE_BYTES), 0);
    buf.chunks_exact_mut(PAGE_BYTES).for_each(|page| page[..3].copy_from_slice(b"FK\x02"));
    let first = Stamp { log: 1, generation: 1, number: 0 };
    stamp(&mut buf, first);
    let dictionaries = |_| Some(DICTIONARY.clone());
    let mut scratch = Scratch::new();
    for (_, page) in scan(&buf, first) {
        let Ok(page) = page else { continue };
        let mut keys = Vec::new();
        let walked = page.for_each(&dictionaries, &mut scratch, &mut |record, _| {
            assert!(record.key.len() + record.value.len() <= RECORD_BYTES_MAX);
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
    assert!(!matches!(Page::open(&buf, first), Err(Corrupt::Checksum | Corrupt::Magic | Corrupt::Version(_) | Corrupt::Stale)));
});
