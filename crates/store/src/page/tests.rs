//! The format as a whole: what was pushed is found, what was damaged is noticed, and how small it is.

use std::collections::HashMap;
use std::sync::Arc;

use super::*;
use crate::io::{PAGE_BYTES, PageBuf};

/// Deterministic test data.
pub(super) struct Rng(pub u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

/// A record that owns its bytes.
#[derive(Debug, Clone)]
struct Owned {
    key: Vec<u8>,
    value: Vec<u8>,
    kind: u8,
    db: u32,
    expiry_ms: Option<u64>,
    seq: u64,
}

impl Owned {
    fn new(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Owned {
        Owned { key: key.into(), value: value.into(), kind: 0, db: 0, expiry_ms: None, seq: SEQ }
    }

    fn hash(&self) -> u64 {
        let mut h = u64::from(self.db).wrapping_add(0xcbf2_9ce4_8422_2325);
        for &b in &self.key {
            h = (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
        }
        h ^ h >> 32
    }

    fn record(&self) -> Record<'_> {
        let Owned { ref key, ref value, kind, db, expiry_ms, seq } = *self;
        Record { key, value, kind, db, expiry_ms, seq, hash: self.hash() }
    }
}

const SEQ: u64 = 77_000;
const NOW_MS: u64 = 1_700_000_000_000;
const UNIT_PAGES: usize = 64;

/// Pushes everything through as many units as it takes.
struct Written {
    units: Vec<(Unit, Vec<Placed>)>,
    dictionary: Option<Arc<Dictionary>>,
    stats: Stats,
}

fn write(builder: &mut PageBuilder, records: &[Owned], dictionary: Option<Arc<Dictionary>>) -> Written {
    builder.set_dictionary(dictionary.clone());
    let mut units = Vec::new();
    let begin = |builder: &mut PageBuilder| {
        // What the buffer held before must not matter.
        let mut buf = PageBuf::new(UNIT_PAGES);
        buf.fill(0xa5);
        builder.begin(buf, SEQ, NOW_MS);
    };
    let finish = |builder: &mut PageBuilder| {
        let mut placed = Vec::new();
        let unit = builder.finish(&mut placed);
        (unit, placed)
    };
    begin(builder);
    for (tag, record) in records.iter().enumerate() {
        match builder.push(&record.record(), tag as u64) {
            Push::Taken => continue,
            Push::Full => {}
            other => panic!("{other:?}"),
        }
        units.push(finish(builder));
        begin(builder);
        assert_eq!(builder.push(&record.record(), tag as u64), Push::Taken);
    }
    units.push(finish(builder));
    Written { units, dictionary, stats: builder.stats() }
}

impl Written {
    fn pages(&self) -> usize {
        self.units.iter().map(|(unit, _)| unit.pages).sum()
    }

    fn bytes_each(&self) -> f64 {
        (self.pages() * PAGE_BYTES) as f64 / self.stats.records as f64
    }

    /// Every record is where its place says, by key and by predicate, and scans see each exactly once.
    fn check(&self, records: &[Owned]) {
        let dictionaries = |id| self.dictionary.clone().filter(|dictionary| dictionary.id() == id);
        let mut scratch = Scratch::new();
        let mut found = 0;
        for (unit, placed) in &self.units {
            for place in placed {
                let want = &records[place.tag as usize];
                let start = usize::from(place.page) * PAGE_BYTES;
                let end = (start + step_pages(place.step) * PAGE_BYTES).min(unit.buf.len());
                let page = Page::open(&unit.buf[start..end]).unwrap();
                assert_eq!(page.seq(), SEQ);
                assert!(page.pages() <= step_pages(place.step));
                let hash = want.hash();
                let got = page.find(hash, want.db, &want.key, &dictionaries, &mut scratch).unwrap().unwrap();
                assert_eq!(got, Record { hash: hash & 0xffff, ..want.record() });
                let by = page.find_by(hash, &mut |r| r.key == want.key, &dictionaries, &mut scratch).unwrap();
                assert!(by.is_some());
                let other = page.find(hash, want.db, b"another key", &dictionaries, &mut scratch);
                assert_eq!(other, Ok(None));
                found += 1;
            }
            let mut seen: HashMap<(u32, Vec<u8>), Vec<u8>> = HashMap::new();
            let mut last = 0;
            for (index, page) in scan(&unit.buf) {
                let page = page.unwrap();
                assert!(index >= last);
                last = index + page.pages();
                let mut count = 0;
                page.for_each(&dictionaries, &mut scratch, &mut |r| {
                    seen.insert((r.db, r.key.to_vec()), r.value.to_vec());
                    count += 1;
                })
                .unwrap();
                assert_eq!(count, page.record_count());
            }
            assert_eq!(last, unit.pages);
            assert_eq!(seen.len(), placed.len());
            for place in placed {
                let want = &records[place.tag as usize];
                assert_eq!(seen[&(want.db, want.key.clone())], want.value);
            }
            assert!(unit.buf[unit.pages * PAGE_BYTES..].iter().all(|&b| b == 0));
        }
        assert_eq!(found, records.len());
    }
}

/// 500-byte values under 16-byte keys; `random` of 1000 parts of a value cannot be compressed.
fn values_500(count: usize, random: usize) -> Vec<Owned> {
    let mut rng = Rng(5);
    let record = |i| {
        let mut value = rng.bytes(random / 2);
        value.resize(500, b'x');
        Owned::new(format!("memtier-{i:08}"), value)
    };
    (0..count).map(record).collect()
}

/// Sizes from nothing to several pages, of every compressibility, with every header field.
fn mixed(count: usize) -> Vec<Owned> {
    let mut rng = Rng(9);
    let record = |i| {
        let bytes = match rng.below(20) {
            0 => 3900 + rng.below(400),
            1 => rng.below(30_000),
            2 => rng.below(90_000),
            3 => 0,
            _ => rng.below(1000),
        };
        let quarters_random = rng.below(5);
        let mut value = rng.bytes(bytes * quarters_random / 4);
        value.resize(bytes, b'-');
        let mut owned = Owned::new(format!("key:{i}"), value);
        owned.kind = [0, 3, 255][rng.below(3)];
        owned.db = [0, 1, 900_000][rng.below(3)];
        owned.expiry_ms = [None, Some(NOW_MS + 5000), Some(u64::MAX)][rng.below(3)];
        owned.seq = [SEQ, SEQ - 5, u64::MAX][rng.below(3)];
        owned
    };
    (0..count).map(record).collect()
}

#[test]
fn what_is_pushed_is_found_with_every_codec() {
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
        for records in [values_500(3000, 1000), values_500(3000, 500), values_500(3000, 0), mixed(3000)] {
            let mut builder = PageBuilder::new(codec, 1);
            write(&mut builder, &records, None).check(&records);
        }
    }
}
