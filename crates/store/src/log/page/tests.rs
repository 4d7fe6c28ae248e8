//! Tests of the whole format: pushed records are found, damage is noticed, and the sizes are as expected.

use std::collections::HashMap;
use std::sync::Arc;

use base::random::SplitMix64;
use proptest::prelude::*;

use super::*;
use flash::io::{PAGE_BYTES, PageBuf};

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
const STAMP: Stamp = Stamp { log: 0xfeed, generation: 3, number: 128 };

/// The page of a unit at this index.
fn open(unit: &[u8], at: usize) -> Result<Page<'_>, Corrupt> {
    Page::open(&unit[at * PAGE_BYTES..], STAMP.later(at))
}

/// Pushes all records through as many units as are needed.
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
        let mut unit = builder.finish(&mut placed);
        stamp(&mut unit.buf[..unit.pages * PAGE_BYTES], STAMP);
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

    /// Checks that every record is at its place, by key and by predicate, and that scans visit each record exactly
    /// once.
    fn check(&self, records: &[Owned]) {
        let dictionaries = |id| self.dictionary.clone().filter(|dictionary| dictionary.id() == id);
        let mut scratch = Scratch::new();
        let mut found = 0;
        for (unit, placed) in &self.units {
            for place in placed {
                let want = &records[place.tag as usize];
                let start = usize::from(place.page) * PAGE_BYTES;
                let end = (start + step_pages(place.step) as usize * PAGE_BYTES).min(unit.buf.len());
                let page = Page::open(&unit.buf[start..end], STAMP.later(place.page.into())).unwrap();
                assert_eq!(page.seq(), SEQ);
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
            let steps: HashMap<u64, (usize, u8)> =
                placed.iter().map(|p| (records[p.tag as usize].hash(), (p.page.into(), p.step))).collect();
            for (index, page) in scan(&unit.buf[..unit.pages * PAGE_BYTES], STAMP) {
                let page = page.unwrap();
                let mut count = 0;
                page.for_each(&dictionaries, &mut scratch, &mut |r, pages| {
                    let mut owned = Owned::new(r.key, r.value);
                    owned.db = r.db;
                    assert_eq!(steps[&owned.hash()], (index as usize, step_of(pages)));
                    seen.insert((r.db, r.key.to_vec()), r.value.to_vec());
                    count += 1;
                })
                .unwrap();
                assert_eq!(count, page.record_count());
            }
            assert_eq!(seen.len(), placed.len());
            let bytes: usize = placed.iter().map(|place| place.bytes as usize).sum();
            assert!(bytes <= unit.pages * PAGE_BYTES, "{bytes} bytes of {} pages", unit.pages);
            for place in placed {
                let want = &records[place.tag as usize];
                assert_eq!(seen[&(want.db, want.key.clone())], want.value);
            }
        }
        assert_eq!(found, records.len());
    }
}

/// 500-byte values under 16-byte keys; `random` of 1000 parts of a value cannot be compressed.
fn values_500(count: usize, random: usize) -> Vec<Owned> {
    let mut rng = SplitMix64(5);
    let record = |i| {
        let mut value = rng.bytes(random / 2);
        value.resize(500, b'x');
        Owned::new(format!("memtier-{i:08}"), value)
    };
    (0..count).map(record).collect()
}

/// Sizes from nothing to several pages, of every compressibility, with every header field.
fn mixed(count: usize) -> Vec<Owned> {
    let mut rng = SplitMix64(9);
    let record = |i| {
        let bytes = match rng.index(20) {
            0 => 3900 + rng.index(400),
            1 => rng.index(30_000),
            2 => rng.index(90_000),
            3 => 0,
            _ => rng.index(1000),
        };
        let quarters_random = rng.index(5);
        let mut value = rng.bytes(bytes * quarters_random / 4);
        value.resize(bytes, b'-');
        let mut owned = Owned::new(format!("key:{i}"), value);
        owned.kind = [0, 3, 255][rng.index(3)];
        owned.db = [0, 1, 900_000][rng.index(3)];
        owned.expiry_ms = [None, Some(NOW_MS + 5000), Some(u64::MAX)][rng.index(3)];
        owned.seq = [SEQ, SEQ - 5, u64::MAX][rng.index(3)];
        owned
    };
    (0..count).map(record).collect()
}

#[test]
fn pushed_records_are_found_with_every_codec() {
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
        for records in [values_500(3000, 1000), values_500(3000, 500), values_500(3000, 0), mixed(3000)] {
            let mut builder = PageBuilder::new(codec, 1);
            write(&mut builder, &records, None).check(&records);
        }
    }
}

#[test]
fn a_large_record_is_on_several_pages_and_is_not_found_in_fewer() {
    let mut rng = SplitMix64(11);
    let sizes = [4050, 4057, 5000, 65_000, 66_000, 150_000, 250_000];
    let records: Vec<Owned> = sizes
        .iter()
        .flat_map(|&bytes| {
            let noise = rng.bytes(bytes);
            let text = b"all work and no play ".iter().copied().cycle().take(bytes).collect::<Vec<_>>();
            let half = [&noise[..bytes / 2], &text[..bytes / 2]].concat();
            [(1, noise), (2, text), (3, half)].map(|(n, value)| Owned::new(format!("{bytes}/{n}"), value))
        })
        .collect();
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
        let written = write(&mut PageBuilder::new(codec, 1), &records, None);
        written.check(&records);
        let (unit, placed) = &written.units[0];
        let place = placed.iter().find(|place| place.step > 0).expect("a record on several pages");
        let (at, want) = (usize::from(place.page), &records[place.tag as usize]);
        let mut scratch = Scratch::new();
        let mut find = |bytes: &[u8]| {
            let page = Page::open(bytes, STAMP.later(at)).unwrap();
            let found = page.find(want.hash(), 0, &want.key, &no_dictionaries, &mut scratch);
            found.map(|record| record.is_some())
        };
        assert_eq!(find(&unit.buf[at * PAGE_BYTES..]), Ok(true));
        assert_eq!(find(&unit.buf[at * PAGE_BYTES..(at + 1) * PAGE_BYTES]), Ok(false));
        // The page on which the record continues was not written.
        let mut lost = unit.buf[at * PAGE_BYTES..].to_vec();
        let next = lost[PAGE_BYTES..2 * PAGE_BYTES].to_vec();
        lost[PAGE_BYTES..2 * PAGE_BYTES].fill(0);
        assert_eq!(find(&lost), Err(Corrupt::Empty));
        // This page belongs to another use of the segment.
        lost[PAGE_BYTES..2 * PAGE_BYTES].copy_from_slice(&next);
        stamp(&mut lost[PAGE_BYTES..2 * PAGE_BYTES], Stamp { generation: 2, ..STAMP.later(at + 1) });
        assert_eq!(find(&lost), Err(Corrupt::Stale));
        // The page continues with another record.
        lost[PAGE_BYTES + 32] ^= 1;
        stamp(&mut lost[PAGE_BYTES..2 * PAGE_BYTES], STAMP.later(at + 1));
        assert_eq!(find(&lost), Err(Corrupt::Lengths));
    }
}

#[test]
fn a_record_too_large_for_the_unit_is_refused_and_the_next_one_taken() {
    let mut rng = SplitMix64(12);
    let large = Owned::new("large", rng.bytes(20 * PAGE_BYTES));
    let never = Owned::new("never", vec![0; RECORD_BYTES_MAX]);
    let small = Owned::new("small", "v");
    let mut builder = PageBuilder::new(Codec::Lz4, 1);
    builder.begin(PageBuf::new(16), SEQ, NOW_MS);
    assert_eq!(builder.push(&large.record(), 1), Push::TooLarge { pages: 21 });
    assert_eq!(builder.push(&never.record(), 2), Push::Never);
    assert_eq!(builder.push(&small.record(), 3), Push::Taken);
    let mut placed = Vec::new();
    assert_eq!(builder.finish(&mut placed).pages, 1);
    assert_eq!(placed, [Placed { tag: 3, page: 0, step: 0, bytes: 19 }]);
    builder.begin(PageBuf::new(21), SEQ, NOW_MS);
    assert_eq!(builder.push(&large.record(), 1), Push::Taken);
    assert_eq!(builder.push(&small.record(), 3), Push::Taken, "the last page has room");
    assert_eq!(builder.finish(&mut placed).pages, 21);
}

#[test]
fn the_newest_of_a_keys_records_is_found_and_databases_are_apart() {
    let version = |seq, db, value: &str| Owned { seq, db, ..Owned::new("key", value) };
    let mut records = vec![version(SEQ + 1, 0, "newer"), version(SEQ, 0, "older"), version(SEQ + 9, 7, "other db")];
    // Enough between them that versions are in several frames.
    records.splice(1..1, values_500(40, 100));
    records.push(version(SEQ - 1, 0, "oldest"));
    let mut builder = PageBuilder::new(Codec::Zstd, 1);
    let written = write(&mut builder, &records, None);
    let (unit, _) = &written.units[0];
    let page = open(&unit.buf, 0).unwrap();
    assert!(page.record_count() == records.len(), "one page: {} of {}", page.record_count(), records.len());
    let mut scratch = Scratch::new();
    let mut value_in = |db| {
        let hash = version(0, db, "").hash();
        let found = page.find(hash, db, b"key", &no_dictionaries, &mut scratch).unwrap();
        found.map(|record| String::from_utf8(record.value.to_vec()).unwrap())
    };
    assert_eq!(value_in(0).as_deref(), Some("newer"));
    assert_eq!(value_in(7).as_deref(), Some("other db"));
    assert_eq!(value_in(1), None);
    let hash = version(0, 7, "").hash();
    assert_eq!(
        page.find(hash, 0, b"key", &no_dictionaries, &mut scratch),
        Ok(None),
        "the fingerprint alone is not enough"
    );
}

#[test]
fn steps_cover_every_record_with_at_most_half_more() {
    assert_eq!((step_of(1), step_of(5), step_of(4096)), (0, 4, 23));
    for pages in 1..=UNIT_PAGES_MAX {
        let step = step_of(pages);
        assert!(step < 24);
        assert!(step_pages(step) as usize >= pages);
        assert!(step_pages(step) as usize <= pages + pages / 2 || pages == 1);
        assert!(step == 0 || (step_pages(step - 1) as usize) < pages, "the smallest");
    }
    assert_eq!(step_pages(31), 4096, "five bits of a damaged entry");
}

#[test]
fn unwritten_torn_and_stale_pages_are_distinguished() {
    let records = values_500(30, 1000);
    let written = write(&mut PageBuilder::new(Codec::None, 0), &records, None);
    let (unit, _) = &written.units[0];
    let first = &unit.buf[..PAGE_BYTES];
    let open = |bytes: &[u8]| Page::open(bytes, STAMP).map(|page| page.seq());
    assert_eq!(open(first), Ok(SEQ));
    assert_eq!(open(&[0; PAGE_BYTES]), Err(Corrupt::Empty));
    assert_eq!(open(&first[..512]), Err(Corrupt::Short));
    let changed = |at: usize, byte: u8| {
        let mut page = first.to_vec();
        page[at] = byte;
        open(&page)
    };
    assert_eq!(changed(0, 0), Err(Corrupt::Magic));
    assert_eq!(changed(2, 9), Err(Corrupt::Version(9)));
    assert_eq!(changed(8, 1), Err(Corrupt::Checksum));
    for other in [Stamp { log: 1, ..STAMP }, Stamp { generation: 2, ..STAMP }, STAMP.later(1)] {
        assert_eq!(Page::open(first, other).unwrap_err(), Corrupt::Stale);
    }
    // The second half still holds what was there before.
    let torn = [&first[..2048], &unit.buf[PAGE_BYTES + 2048..2 * PAGE_BYTES]].concat();
    assert_eq!(open(&torn), Err(Corrupt::Checksum));
    let zero_head = [&[0; 512], &first[512..]].concat();
    assert_eq!(open(&zero_head), Err(Corrupt::Magic));
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Keys and values of a page, or what is wrong with it.
fn all(bytes: &[u8], dictionaries: &Dictionaries<'_>) -> Result<Pairs, Corrupt> {
    let mut out = Vec::new();
    let mut scratch = Scratch::new();
    let page = Page::open(bytes, STAMP)?;
    page.for_each(dictionaries, &mut scratch, &mut |r, _| out.push((r.key.to_vec(), r.value.to_vec())))?;
    // A search must survive whatever the walk survived.
    for hash in [0, 1, 0xffff] {
        page.find(hash, 0, b"key", dictionaries, &mut scratch)?;
    }
    Ok(out)
}

/// First pages of units with those on which their last records end: of compressed frames, of a raw frame, of a large record.
fn sound_pages() -> Vec<Vec<u8>> {
    let mut rng = SplitMix64(21);
    let large = [rng.bytes(9000), vec![b'x'; 9000]].concat();
    let mut out = Vec::new();
    for (codec, records) in [
        (Codec::Lz4, values_500(40, 300)),
        (Codec::Zstd, values_500(40, 300)),
        (Codec::None, values_500(7, 1000)),
        (Codec::Lz4, vec![Owned::new("large", large.clone())]),
        (Codec::Zstd, vec![Owned::new("large", large.clone())]),
    ] {
        let written = write(&mut PageBuilder::new(codec, 1), &records, None);
        let (unit, placed) = &written.units[0];
        let here = placed.iter().filter(|place| place.page == 0);
        let pages = here.map(|place| step_pages(place.step) as usize).max().expect("some records");
        out.push(unit.buf[..pages.min(unit.pages) * PAGE_BYTES].to_vec());
    }
    out
}

#[test]
fn no_flipped_bit_gives_wrong_data() {
    for page in sound_pages() {
        let want = all(&page, &no_dictionaries).unwrap();
        let mut page = page;
        for bit in 0..page.len() * 8 {
            page[bit / 8] ^= 1 << (bit % 8);
            if let Ok(got) = all(&page, &no_dictionaries) {
                assert!(got == want, "bit {bit}");
                panic!("bit {bit} is not checked");
            }
            page[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

/// Corrects the checksum, as an attacker would.
fn reseal(pages: &mut [u8]) {
    for page in pages.chunks_exact_mut(PAGE_BYTES) {
        let crc = base::crc::crc32c_append(base::crc::crc32c(&page[..4]), &page[8..]);
        page[4..8].copy_from_slice(&crc.to_le_bytes());
    }
}

#[test]
fn resealing_is_what_the_format_does() {
    for page in sound_pages() {
        let mut resealed = page.clone();
        resealed[4..8].fill(0);
        reseal(&mut resealed);
        assert!(resealed == page);
    }
}

/// A sender marks a record as live, but leaves out one of its pages.
#[test]
fn a_live_record_that_is_not_all_there_is_refused() {
    let mut random = SplitMix64(3);
    let long = Owned::new("long", (0..9_000).map(|_| random.draw() as u8).collect::<Vec<u8>>());
    let written = write(&mut PageBuilder::new(Codec::None, 1), &[Owned::new("short", "value"), long], None);
    let unit = &written.units[0].0;
    let first = open(&unit.buf, 0).unwrap();
    let records = first.record_count();
    let taken = |pages: usize| {
        let mut packing = Packing::new(unit.pages);
        packing.add(0, records, (records - 1, pages));
        let (_, shipment) = packing.pack(&unit.buf, STAMP).unwrap();
        let (mut out, mut live) = (PageBuf::new(UNIT_PAGES), 0);
        let mut take = |record: &Record<'_>, shipped: Shipped| {
            live += usize::from(shipped.is_live && record.key == b"long");
            7
        };
        let shipment = Shipment::new(&shipment).unwrap();
        let unpacked = shipment.unpack(&mut out, &no_dictionaries, &|_| None, 0, &mut Scratch::new(), &mut take);
        unpacked.map(|()| live)
    };
    assert_eq!((taken(unit.pages), taken(unit.pages - 1)), (Ok(1), Err(Corrupt::Short)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// With a valid checksum, only bounds checks prevent a panic on hostile bytes.
    #[test]
    fn hostile_bytes_are_an_error_or_records_but_never_a_panic(
        which in 0usize..5,
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..4), 1..12),
    ) {
        let pages = sound_pages();
        let mut page = pages[which].clone();
        for (at, byte, where_) in edits {
            // Headers and directories are small: damage them deliberately, not only frames.
            let of = at.index(page.len() / PAGE_BYTES) * PAGE_BYTES;
            let at = match where_ {
                0 => of + at.index(48),
                1 => of + PAGE_BYTES - 1 - at.index(64),
                _ => at.index(page.len()),
            };
            page[at] = byte;
        }
        reseal(&mut page);
        let _ = all(&page, &no_dictionaries);
    }

    /// For any order of records and any size of units: each accepted record has a place and is found there.
    #[test]
    fn what_is_taken_has_a_place(
        codec in prop::sample::select(vec![Codec::None, Codec::Lz4, Codec::Zstd]),
        pages in 1usize..12,
        records in prop::collection::vec((0usize..6000, 0usize..5, any::<bool>()), 1..300),
    ) {
        let mut rng = SplitMix64(31);
        let records: Vec<Owned> = records.into_iter().enumerate().map(|(i, (bytes, quarters, small))| {
            let bytes = if small { bytes % 300 } else { bytes };
            let mut value = rng.bytes(bytes * quarters / 4);
            value.resize(bytes, b'=');
            Owned::new(format!("{i}"), value)
        }).collect();
        let mut builder = PageBuilder::new(codec, 1);
        let mut waiting = records.iter().enumerate().peekable();
        let mut scratch = Scratch::new();
        let mut found = 0;
        while waiting.peek().is_some() {
            builder.begin(PageBuf::new(pages), SEQ, NOW_MS);
            let mut taken = 0;
            let mut refused = 0;
            while let Some((tag, record)) = waiting.peek() {
                match builder.push(&record.record(), *tag as u64) {
                    Push::Taken => taken += 1,
                    Push::Full => break,
                    Push::TooLarge { .. } => refused += 1,
                    Push::Never => unreachable!(),
                }
                waiting.next();
            }
            prop_assert!(taken + refused > 0, "an empty unit takes or refuses");
            found += refused;
            let mut placed = Vec::new();
            let mut unit = builder.finish(&mut placed);
            stamp(&mut unit.buf[..unit.pages * PAGE_BYTES], STAMP);
            prop_assert_eq!(placed.len(), taken);
            for place in placed {
                let want = &records[place.tag as usize];
                let page = open(&unit.buf, place.page.into()).unwrap();
                let got = page.find(want.hash(), 0, &want.key, &no_dictionaries, &mut scratch).unwrap().unwrap();
                prop_assert_eq!(got.value, &want.value[..]);
                found += 1;
            }
        }
        prop_assert_eq!(found, records.len());
    }
}

/// 69-byte keys and 32-byte values of one of memtier's clients with random data: one byte differs from value to value.
fn near_duplicates(count: usize, value_bytes: usize) -> Vec<Owned> {
    let mut rng = SplitMix64(41);
    let mut value = rng.bytes(value_bytes);
    let record = |i: usize| {
        value[i % value_bytes] = value[i % value_bytes].wrapping_add(1);
        let key = format!("cefkljrithuir123894873h4523bhj4b2jkjh2iu13bnfdhsbnkfhsdjkh{}", 1_000_000_000 + i * 997);
        Owned::new(key, value.clone())
    };
    (0..count).map(record).collect()
}

fn train(records: &[Owned]) -> Dictionary {
    let mut trainer = Trainer::new(1 << 20);
    for record in records {
        trainer.offer(&record.record());
    }
    trainer.train(7, DICTIONARY_BYTES, 1).expect("enough samples")
}

#[test]
fn incompressible_records_take_few_bytes_more_than_their_keys_and_values() {
    for bytes in [500, 670, 1_003, 1_340, 2_024, 3_000, 4_000, 4_096, 5_000, 8_192] {
        let mut rng = SplitMix64(6);
        let records: Vec<_> = (0..3_000).map(|i| Owned::new(format!("memtier-{i:08}"), rng.bytes(bytes))).collect();
        for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
            let written = write(&mut PageBuilder::new(codec, 1), &records, None);
            let ratio = written.bytes_each() / (bytes + 16) as f64;
            println!("{codec:?}: {:7.1} bytes on flash for {bytes:4} + 16, {ratio:.3}", written.bytes_each());
            assert!(ratio <= 1.06, "{codec:?}: {} bytes for {bytes} + 16", written.bytes_each());
        }
    }
}

#[test]
fn small_near_duplicates_take_14_bytes_each() {
    let records = near_duplicates(40_000, 32);
    let dictionary = Arc::new(train(&records));
    let written = write(&mut PageBuilder::new(Codec::Zstd, 1), &records, Some(dictionary));
    assert!(written.bytes_each() <= 14.0, "{}", written.bytes_each());
    written.check(&records);
}

#[test]
fn compressible_records_leave_little_of_a_page_unused() {
    for (codec, records, bytes_max, slack_max) in [
        (Codec::Lz4, values_500(10_000, 500), 300.0, 0.05),
        (Codec::Zstd, values_500(10_000, 500), 285.0, 0.05),
        (Codec::Zstd, values_500(10_000, 100), 75.0, 0.05),
        // The common parts of values of a kilobyte are found only in frames with many of these values.
        (Codec::Lz4, near_duplicates(10_000, 1250), 160.0, 0.25),
        (Codec::Zstd, near_duplicates(10_000, 1250), 160.0, 0.25),
    ] {
        let written = write(&mut PageBuilder::new(codec, 1), &records, None);
        let slack = written.stats.slack_bytes as f64 / (written.pages() * PAGE_BYTES) as f64;
        assert!(slack < slack_max, "{codec:?}: {slack} unused");
        assert!(written.bytes_each() < bytes_max, "{codec:?}: {} bytes each", written.bytes_each());
    }
}

#[test]
fn a_page_names_its_dictionary_and_is_unreadable_without() {
    let records = near_duplicates(5000, 32);
    let dictionary = Arc::new(train(&records));
    let written = write(&mut PageBuilder::new(Codec::Zstd, 1), &records, Some(dictionary.clone()));
    written.check(&records);
    let page = open(&written.units[0].0.buf, 0).unwrap();
    assert_eq!(page.dictionary(), Some(7));
    let (hash, key) = (records[0].hash(), &records[0].key);
    let mut scratch = Scratch::new();
    let missing = page.find(hash, 0, key, &no_dictionaries, &mut scratch);
    assert_eq!(missing, Err(Corrupt::UnknownDictionary(7)));

    let bytes = dictionary.serialize();
    let padded = [&bytes[..], &[0; 100]].concat();
    let restored = Arc::new(Dictionary::deserialize(&padded, 1).unwrap());
    let found = page.find(hash, 0, key, &|_| Some(restored.clone()), &mut Scratch::new()).unwrap().map(|r| r.key.len());
    assert_eq!(found, Some(key.len()));
    for at in [0, 5, 9, 14, bytes.len() - 1] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert!(Dictionary::deserialize(&damaged, 1).is_none(), "byte {at}");
    }
    assert!(Dictionary::deserialize(&bytes[..bytes.len() - 1], 1).is_none());
}

#[test]
fn a_trainer_keeps_an_even_sample_within_its_bytes() {
    let sample = |count| {
        let mut trainer = Trainer::new(64 << 10);
        for record in &values_500(count, 500) {
            trainer.offer(&record.record());
            assert!(trainer.sampled_bytes() <= 64 << 10);
        }
        trainer
    };
    assert_eq!(sample(50).sampled_bytes(), 50 * 520, "few are kept whole");
    let many = sample(20_000);
    assert_eq!(many.offered(), 20_000);
    assert!(many.sampled_bytes() > 16 << 10, "{}", many.sampled_bytes());
    assert!(sample(10).train(1, DICTIONARY_BYTES, 1).is_none(), "too few");
    let same = [sample(9000), sample(9000)].map(|trainer| trainer.train(1, 8 << 10, 1).unwrap().serialize());
    assert!(same[0] == same[1], "the same records, the same dictionary");
}

/// Records of the frozen pages. Never change them: pages written by older versions must stay readable.
fn frozen_records() -> Vec<Owned> {
    let mut records = vec![
        Owned::new("", ""),
        Owned::new("a", "plain"),
        Owned { kind: 0x25, db: 300, expiry_ms: Some(NOW_MS + 60_000), ..Owned::new("all", "fields") },
        Owned { seq: SEQ - 3, expiry_ms: Some(1), ..Owned::new("old", "seq") },
        Owned::new(vec![0xff; 200], vec![b'v'; 700]),
    ];
    records.extend((0..20).map(|i| Owned::new(format!("user:{i:04}"), format!("{{\"name\":\"n{i}\",\"age\":{i}}}"))));
    records
}

const FROZEN: [(&str, Codec, &[u8]); 4] = [
    ("page_v2_raw.bin", Codec::None, include_bytes!("../../../tests/fixtures/page_v2_raw.bin")),
    ("page_v2_lz4.bin", Codec::Lz4, include_bytes!("../../../tests/fixtures/page_v2_lz4.bin")),
    ("page_v2_zstd.bin", Codec::Zstd, include_bytes!("../../../tests/fixtures/page_v2_zstd.bin")),
    ("large_v2_lz4.bin", Codec::Lz4, include_bytes!("../../../tests/fixtures/large_v2_lz4.bin")),
];
const FROZEN_DICTIONARY: &[u8] = include_bytes!("../../../tests/fixtures/dictionary_v1.bin");

fn frozen_large() -> Owned {
    let row = |i: u32| format!("row {i} is {:08x}\n", i.wrapping_mul(2_654_435_761));
    let value = (0..600).map(row).collect::<String>();
    Owned { kind: 2, ..Owned::new("large", value) }
}

/// The format cannot change unnoticed: these bytes must stay readable for ever, and uncompressed pages must be written
/// the same way again.
#[test]
fn frozen_pages_are_still_read() {
    let dictionary = Arc::new(Dictionary::deserialize(FROZEN_DICTIONARY, 1).unwrap());
    let dictionaries = |id| (id == dictionary.id()).then(|| dictionary.clone());
    for (name, codec, bytes) in FROZEN {
        let page = Page::open(bytes, STAMP).expect(name);
        let records = if name.starts_with("large") { vec![frozen_large()] } else { frozen_records() };
        assert_eq!((page.seq(), page.record_count()), (SEQ, records.len()), "{name}");
        assert_eq!(page.dictionary(), (codec == Codec::Zstd).then_some(7), "{name}");
        for want in &records {
            let mut scratch = Scratch::new();
            let got = page.find(want.hash(), want.db, &want.key, &dictionaries, &mut scratch).unwrap();
            assert_eq!(got, Some(Record { hash: want.hash() & 0xffff, ..want.record() }), "{name}");
        }
    }
    let again = write(&mut PageBuilder::new(Codec::None, 0), &frozen_records(), None);
    assert!(again.units[0].0.buf[..PAGE_BYTES] == *FROZEN[0].2);
}

/// Wrote the fixtures; run by hand with a new format version, under new names.
#[test]
#[ignore = "writes the fixtures of a new format version"]
fn freeze() {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/");
    let dictionary = Arc::new(Dictionary::deserialize(FROZEN_DICTIONARY, 1).unwrap());
    for (name, codec, _) in FROZEN {
        let records = if name.starts_with("large") { vec![frozen_large()] } else { frozen_records() };
        let dictionary = (codec == Codec::Zstd).then(|| dictionary.clone());
        let written = write(&mut PageBuilder::new(codec, 1), &records, dictionary);
        std::fs::write(format!("{fixtures}{name}"), &written.units[0].0.buf[..written.pages() * PAGE_BYTES]).unwrap();
    }
}
