//! Lists of keys whose names are on flash: what they read, and that each key is listed once whatever moves meanwhile.

mod node;

use node::{Node, Random};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use store::counters::Counter;
use store::{Codec, Policy};

const PAGE: u64 = 4096;

fn name(number: u64) -> Vec<u8> {
    format!("memtier-{number}").into_bytes()
}

fn set(node: &mut Node, number: u64, value: &[u8], expiry: Option<u64>) {
    assert!(node.make_room(), "{:#?}", node.store.stats());
    node.run(0, &[&name(number)], |ks, keys| {
        ks.set_string(&keys[0], value, expiry);
        Ok(())
    })
    .unwrap();
}

fn noise(random: &mut Random, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|_| random.draw() as u8).collect()
}

/// A node whose RAM has room for some hundred of these keys.
fn filled(keys: u64, value_bytes: usize, codec: Codec) -> Node {
    let flash = (2 * keys * (value_bytes as u64 + 40)).max(8 << 20);
    let mut node = Node::new(3, 400 << 10, flash, codec, Policy::NoEviction);
    // The reads that are counted are those of lists.
    node.store.set_scrub_interval(0);
    let mut random = Random(3);
    for number in 0..keys {
        let value = noise(&mut random, value_bytes);
        set(&mut node, number, &value, None);
    }
    assert!(node.store.hot(0) < keys / 3, "{:#?}", node.store.stats());
    // Lists take of the memory that is free.
    node.store.set_ram_limit(64 << 20);
    node
}

/// The reads of `run`, and their pages.
fn reads<R>(node: &mut Node, run: impl FnOnce(&mut Node) -> R) -> (R, u64, u64) {
    let before = node.store.stats();
    let result = run(node);
    let after = node.store.stats();
    (
        result,
        after[Counter::FlashReads] - before[Counter::FlashReads],
        (after[Counter::FlashReadBytes] - before[Counter::FlashReadBytes]) / PAGE,
    )
}

fn all(node: &mut Node) -> Vec<Vec<u8>> {
    node.list(0, 0, None, &mut |_| {}).unwrap().1
}

fn assert_are(mut names: Vec<Vec<u8>>, keys: u64) {
    names.sort();
    let mut wanted: Vec<_> = (0..keys).map(name).collect();
    wanted.sort();
    assert_eq!(names, wanted);
}

/// Once, KEYS read a page for each key, so that each page was read as often as it had keys.
#[test]
fn a_list_of_all_keys_reads_each_page_once() {
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
        const KEYS: u64 = 12_000;
        let mut node = filled(KEYS, 500, codec);
        let pages = node.store.stats().flash_used_bytes / PAGE;
        let (names, reads, read) = reads(&mut node, all);
        assert_are(names, KEYS);
        assert!((KEYS / 9..KEYS / 6).contains(&pages), "{pages} pages");
        assert!(read < pages + pages / 8, "{read} pages of {pages}");
        assert!(reads < pages / 20, "{reads} reads of {pages} pages");
    }
}

/// The memory for notes bounds a round, so a list may need several.
#[test]
fn a_list_that_does_not_fit_into_memory_goes_in_rounds() {
    const KEYS: u64 = 40_000;
    // The notes of 7,281 keys have room in 128 KB.
    let mut node = Node::new(3, 400 << 10, 16 << 20, Codec::Lz4, Policy::NoEviction);
    node.store.set_scrub_interval(0);
    (0..KEYS).for_each(|number| set(&mut node, number, &[7; 60], None));
    let pages = node.store.stats().flash_used_bytes / PAGE;
    let (names, reads, read) = reads(&mut node, all);
    assert_are(names, KEYS);
    assert!((2 * pages..7 * pages).contains(&read), "{read} pages of {pages}");
    assert!(reads < KEYS / 20, "{reads} reads of {pages} pages");
}

#[test]
fn scan_reads_together_what_lies_together() {
    const KEYS: u64 = 12_000;
    let mut node = filled(KEYS, 500, Codec::None);
    for (count, reads_max) in [(10, KEYS), (1_000, KEYS * 6 / 10), (KEYS as usize, KEYS / 100)] {
        let (names, reads, _) = reads(&mut node, |node| node.scan(0, count).unwrap());
        assert_are(names, KEYS);
        assert!(reads <= reads_max, "COUNT {count}: {reads} reads");
    }
}

#[test]
fn of_a_long_value_only_its_first_pages_are_read() {
    const KEYS: u64 = 60;
    let mut node = filled(KEYS, 100_000, Codec::None);
    let (names, _, read) = reads(&mut node, all);
    assert_are(names, KEYS);
    assert!(read <= 2 * KEYS, "{read} pages for {KEYS} names");
    // A compressed record must be read as a whole.
    let mut node = Node::new(3, 400 << 10, 16 << 20, Codec::Lz4, Policy::NoEviction);
    let mut random = Random(4);
    for number in 0..KEYS {
        let mut value = noise(&mut random, 50_000);
        value.resize(100_000, 0);
        set(&mut node, number, &value, None);
    }
    assert!(node.store.hot(0) < KEYS / 4);
    assert_are(all(&mut node), KEYS);
}

/// Compressed values whose frames go over a page's end once made reads of whole segments. The memory for these was lent for ever, so
/// that a later list waited without end.
#[test]
fn a_read_has_few_pages_and_its_memory_is_given_back() {
    const KEYS: u64 = 20_000;
    // memtier's random data: each value is the same bytes from another position on. 18 have room in a page.
    let mut random = Random(3);
    let bytes = noise(&mut random, 4_000);
    // Gaps: reads begin and end in the middle of what was written together. The keys between two gaps fill 64 pages, or some more.
    let compressed = (1_130..1_210).step_by(5).map(|between| (false, between));
    for (is_noise, between) in compressed.chain((440..480).step_by(2).map(|between| (true, between))) {
        let mut node = Node::new(3, 2 << 20, 32 << 20, Codec::Lz4, Policy::NoEviction);
        node.store.set_scrub_interval(0);
        for number in 0..KEYS {
            let from = random.below(3_500) as usize;
            let value = if is_noise { noise(&mut random, 500) } else { bytes[from..from + 500].to_vec() };
            set(&mut node, number, &value, None);
        }
        node.store.set_ram_limit(64 << 20);
        let is_kept = |number: &u64| number % (between + 150) < between;
        for number in (0..KEYS).filter(|number| !is_kept(number)) {
            node.run(0, &[&name(number)], |ks, keys| ks.remove(&keys[0])).unwrap();
        }
        let lent = node.store.lent_bytes();
        let wanted: BTreeSet<_> = (0..KEYS).filter(is_kept).map(name).collect();
        for _ in 0..2 {
            let names = all(&mut node);
            assert_eq!((names.len(), names.into_iter().collect()), (wanted.len(), wanted.clone()));
            assert_eq!(node.store.lent_bytes(), lent);
        }
    }
}

#[test]
fn names_of_other_types_are_not_read() {
    let mut node = filled(3_000, 500, Codec::None);
    let store = node.store.clone();
    let mut resume = store::Resume::default();
    let (next, reads, _) = reads(&mut node, |node| {
        loop {
            let mut ks = store.lock(&[], 0, node.now_ms, true, &mut resume);
            ks.begin_list(0, Some(1_000_000));
            let kinds = |kind| kind == store::Kind::List;
            let next = ks.list(&mut store::Show { kinds: &kinds, name: &mut |_| panic!("there are no lists") });
            ks.close();
            if let Some(next) = next.expect("nothing is read") {
                return next;
            }
        }
    });
    assert_eq!((next, reads), (0, 0));
}

/// A key whose page is damaged cannot be named: a list leaves it out, and goes on. If the key is in RAM or was set again, the damage does
/// not matter.
#[test]
fn a_list_leaves_out_what_a_damaged_page_names() {
    const KEYS: u64 = 3_000;
    let mut node = filled(KEYS, 500, Codec::None);
    let offset = flash::DATA_OFFSET + 40 * PAGE;
    node.sim.flip_bit_at(0, offset, 3);
    let listed = all(&mut node).len() as u64;
    let lost: Vec<u64> = (0..KEYS).filter(|&number| node.get(0, &name(number)).is_err()).collect();
    assert!((1..=10).contains(&lost.len()), "{lost:?}");
    assert_eq!(listed, KEYS - lost.len() as u64);
    for &number in &lost {
        set(&mut node, number, b"again", None);
    }
    assert_are(all(&mut node), KEYS);
    // A read that failed once is repeated.
    node.sim.fail_next_read();
    assert_are(all(&mut node), KEYS);
}

/// Others set, remove, read and let expire keys between the slices, and the collector moves records, while all keys are listed. Each
/// key that is there all the time is listed, and none is listed twice.
#[test]
fn each_key_is_listed_once_whatever_moves_meanwhile() {
    seeds::each(1, 3, |seed| {
        let codec = [Codec::None, Codec::Lz4, Codec::Zstd][seed as usize % 3];
        let mut node = Node::new(seed, 400 << 10, 16 << 20, codec, Policy::NoEviction);
        let mut random = Random(seed);
        // Number → expiry.
        let model = RefCell::new(BTreeMap::<u64, Option<u64>>::new());
        // Keys that were set while a list was made, and those that were removed or could expire.
        let (added, unsure) = (RefCell::new(BTreeSet::<u64>::new()), RefCell::new(BTreeSet::<u64>::new()));
        let mut change = |node: &mut Node| {
            let number = random.below(14_000);
            match random.below(10) {
                0..=5 => {
                    let expiry = (random.below(4) == 0).then(|| node.now_ms + 1 + random.below(3_000));
                    let bytes = random.below(1_500) as usize;
                    let value = noise(&mut random, bytes);
                    set(node, number, &value, expiry);
                    added.borrow_mut().insert(number);
                    if expiry.is_some() {
                        unsure.borrow_mut().insert(number);
                    }
                    model.borrow_mut().insert(number, expiry);
                }
                6 => {
                    node.run(0, &[&name(number)], |ks, keys| ks.remove(&keys[0])).unwrap();
                    model.borrow_mut().remove(&number);
                    unsure.borrow_mut().insert(number);
                }
                // Both keep the key.
                7 => {
                    if node.run(0, &[&name(number)], |ks, keys| ks.set_expiry(&keys[0], None)).unwrap() {
                        model.borrow_mut().insert(number, None);
                    }
                }
                _ => _ = node.get(0, &name(number)).unwrap(),
            }
        };
        (0..24_000).for_each(|_| change(&mut node));
        for round in 0..6 {
            added.borrow_mut().clear();
            unsure.borrow_mut().clear();
            let before = model.borrow().clone();
            let count = if round % 3 == 2 { Some(1 + 800 * round) } else { None };
            let mut listed = Vec::new();
            let mut cursor = 0;
            loop {
                let (next, names) =
                    node.list(0, cursor, count, &mut |node| (0..60).for_each(|_| change(node))).unwrap();
                listed.extend(names);
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
            let found: BTreeSet<_> = listed.iter().cloned().collect();
            assert_eq!(found.len(), listed.len(), "seed {seed}: a key was listed twice");
            let now_ms = node.now_ms;
            for (&number, &expiry) in &before {
                let stays = expiry.is_none_or(|expiry| expiry > now_ms) && !unsure.borrow().contains(&number);
                assert!(!stays || found.contains(&name(number)), "seed {seed} round {round}: {number} is missing");
            }
            for listed in &found {
                let number = std::str::from_utf8(&listed["memtier-".len()..]).unwrap().parse().unwrap();
                assert!(before.contains_key(&number) || added.borrow().contains(&number), "seed {seed}: {number}");
            }
        }
        let stats = node.store.stats();
        assert!(stats[Counter::RelocatedRecords] > 100, "{stats:#?}");
        assert!(stats.values_in_flash > 7_281, "several rounds: {stats:#?}");
        assert_eq!(stats[Counter::ChecksumErrors] + stats[Counter::ReadErrors], 0);
    });
}
