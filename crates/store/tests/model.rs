//! The store against a model: seeded random commands over a simulated device with tiny limits, so that values are
//! demoted, promoted, relocated and expire all the time. Whatever the device does, a key is its own value, an error,
//! or, if it was never set, nothing.

mod node;

use flash::sim::Faults;
use node::{Node, Random};
use std::collections::{BTreeMap, BTreeSet};
use store::counters::Counter;
use store::{Codec, Lane, Policy, ResizeError, Value};

type Model = BTreeMap<(usize, Vec<u8>), (Vec<u8>, Option<u64>)>;

fn value(random: &mut Random, large: bool) -> Vec<u8> {
    let length = match random.below(40) {
        0 if large => random.below(150_000),
        0..=4 => random.below(6_000),
        5..=10 => random.below(40),
        _ => random.below(800),
    };
    let noisy = random.below(2) == 0;
    (0..length).map(|n| if noisy { random.draw() as u8 } else { (n / 7) as u8 }).collect()
}

/// Small, but enough for a slab of every size.
const RAM: u64 = 2 << 20;

/// One seeded run; returns the store's figures at its end.
fn run(seed: u64, codec: Codec, steps: usize, faults: Faults) -> store::StoreStats {
    run_resizing(seed, codec, steps, faults, &mut None)
}

/// How often flash got a size, was refused one, and came to one that is smaller.
#[derive(Default, Debug)]
struct Resizes {
    set: usize,
    refused: usize,
    shrunk: usize,
    replaced: usize,
}

impl Resizes {
    /// Sometimes another size, whatever the last one has come to.
    fn step(&mut self, node: &mut Node, random: &mut Random, under_way: &mut bool) {
        if random.below(100) == 0 {
            let was_under_way = node.store.resizing().is_some();
            match node.resize((random.below(16) + 4) << 20) {
                Ok(()) => self.set += 1,
                Err(ResizeError::TooFull { .. }) => self.refused += 1,
                Err(error) => panic!("{error}"),
            }
            self.replaced += usize::from(was_under_way);
        }
        match node.store.resizing() {
            Some(progress) => assert!(progress.moved_bytes <= progress.total_bytes),
            None if *under_way => {
                self.shrunk += 1;
                let stats = node.store.stats();
                assert!(stats.flash_used_bytes <= stats.flash_bytes);
                assert_eq!(2 * node.sim.data_bytes(), stats.flash_bytes, "two paths, cut off at once");
            }
            None => {}
        }
        *under_way = node.store.resizing().is_some();
    }
}

fn run_resizing(
    seed: u64,
    codec: Codec,
    steps: usize,
    faults: Faults,
    resizes: &mut Option<Resizes>,
) -> store::StoreStats {
    let mut random = Random(seed);
    let mut node = Node::new(seed, RAM, 24 << 20, codec, Policy::NoEviction);
    let clean = faults == Faults::default();
    let mut under_way = false;
    node.sim.set_faults(faults);
    let mut model = Model::new();
    let key = |random: &mut Random| -> Vec<u8> {
        let number = random.below(4_000);
        format!("key:{number}{}", "-".repeat((number % 37) as usize)).into_bytes()
    };
    for step in 0..steps {
        node.now_ms += random.below(3);
        let now_ms = node.now_ms;
        let db = usize::from(random.below(8) == 0);
        let name = key(&mut random);
        if let Some(resizes) = resizes {
            resizes.step(&mut node, &mut random, &mut under_way);
        }
        let live = |model: &Model, db: usize, name: &[u8]| {
            model.get(&(db, name.to_vec())).filter(|(_, expiry)| expiry.is_none_or(|at| at > now_ms)).cloned()
        };
        match random.below(100) {
            0..=44 => {
                if !node.make_room() {
                    assert!(!clean || resizes.is_some(), "seed {seed}: there is room for all of it");
                    continue;
                }
                let value = value(&mut random, true);
                let expiry = (random.below(5) == 0).then(|| node.now_ms + 1 + random.below(20_000));
                node.run(db, &[&name], |ks, keys| {
                    ks.set_string(&keys[0], &value, expiry);
                    Ok(())
                })
                .expect("a blind set reads nothing");
                model.insert((db, name), (value, expiry));
            }
            45..=79 => {
                let expected = live(&model, db, &name).map(|(value, _)| value);
                match node.get(db, &name) {
                    Ok(found) => assert_eq!(found, expected, "seed {seed} step {step}: {:?}", name.escape_ascii()),
                    // A damaged record may have expired. The store cannot know.
                    Err(error) => {
                        assert!(!clean && model.contains_key(&(db, name)), "seed {seed} step {step}: {error}")
                    }
                }
            }
            80..=84 => {
                let expected = live(&model, db, &name).is_some();
                match node.run(db, &[&name], |ks, keys| ks.remove(&keys[0])) {
                    Ok(removed) => {
                        assert_eq!(removed, expected, "seed {seed} step {step}");
                        model.remove(&(db, name));
                    }
                    Err(error) => {
                        assert!(!clean && model.contains_key(&(db, name)), "seed {seed} step {step}: {error}")
                    }
                }
            }
            85..=89 => {
                let added = value(&mut random, false);
                let appended = node.run(db, &[&name], |ks, keys| match ks.get_mut(&keys[0])? {
                    Some(mut value) => {
                        let end = value.inline().map_or(0, <[u8]>::len);
                        value.splice(end..end, &[&added]);
                        Ok(true)
                    }
                    None => Ok(false),
                });
                match appended {
                    Ok(there) => {
                        assert_eq!(there, live(&model, db, &name).is_some(), "seed {seed} step {step}");
                        if let Some((value, _)) = model.get_mut(&(db, name)).filter(|_| there) {
                            value.extend_from_slice(&added);
                        }
                    }
                    Err(error) => assert!(!clean, "seed {seed} step {step}: {error}"),
                }
            }
            90..=92 => {
                let expiry = (random.below(2) == 0).then(|| node.now_ms + 1 + random.below(5_000));
                match node.run(db, &[&name], |ks, keys| ks.set_expiry(&keys[0], expiry)) {
                    Ok(there) => {
                        assert_eq!(there, live(&model, db, &name).is_some(), "seed {seed} step {step}");
                        if let Some(entry) = model.get_mut(&(db, name)).filter(|_| there) {
                            entry.1 = expiry;
                        }
                    }
                    Err(error) => assert!(!clean, "seed {seed} step {step}: {error}"),
                }
            }
            93..=95 => {
                let other = key(&mut random);
                let moved = node.run(db, &[&name, &other], |ks, keys| {
                    let Some(Value::Inline(_, bytes)) = ks.get(&keys[0])? else { return Ok(false) };
                    let bytes = bytes.to_vec();
                    let expiry = ks.expiry(&keys[0])?.flatten();
                    ks.remove(&keys[0])?;
                    ks.set_string(&keys[1], &bytes, expiry);
                    Ok(true)
                });
                match moved {
                    Ok(there) => {
                        assert_eq!(there, live(&model, db, &name).is_some(), "seed {seed} step {step}");
                        if let Some(entry) = model.remove(&(db, name)).filter(|_| there) {
                            model.insert((db, other), entry);
                        }
                    }
                    Err(error) => assert!(!clean, "seed {seed} step {step}: {error}"),
                }
            }
            96..=97 => node.maintain(),
            98 => {
                node.now_ms += random.below(500);
            }
            _ if step % 7 == 0 => {
                let expected: BTreeSet<Vec<u8>> = model
                    .iter()
                    .filter(|((of, _), (_, expiry))| *of == db && expiry.is_none_or(|at| at > now_ms))
                    .map(|((_, name), _)| name.clone())
                    .collect();
                let failed = node.store.stats()[Counter::ReadErrors];
                let listed = match random.below(2) {
                    0 => node.scan(db, 1 + random.below(200) as usize),
                    _ => node.list(db, 0, None, &mut |_| {}).map(|(_, names)| names),
                };
                match listed {
                    Ok(names) => {
                        let found: BTreeSet<_> = names.iter().cloned().collect();
                        assert_eq!(names.len(), found.len(), "seed {seed} step {step}: a name came twice");
                        assert!(found.is_subset(&expected), "seed {seed} step {step}: {found:?}");
                        // A name is left out only if it cannot be read, so neither can its value, or if reads of the list have failed.
                        let reads_failed = node.store.stats()[Counter::ReadErrors] > failed;
                        for name in expected.difference(&found).filter(|_| !reads_failed) {
                            let value = node.get(db, name);
                            assert!(value.is_err(), "seed {seed} step {step}: without {:?}", name.escape_ascii());
                        }
                    }
                    Err(error) => assert!(!clean, "seed {seed} step {step}: {error}"),
                }
            }
            _ => {
                let random_key = node.run(db, &[], |ks, _| ks.random());
                match random_key {
                    Ok(Some(name)) => assert!(live(&model, db, &name).is_some(), "seed {seed} step {step}"),
                    Ok(None) => {}
                    Err(error) => assert!(!clean, "seed {seed} step {step}: {error}"),
                }
            }
        }
        if step % 64 != 0 {
            continue;
        }
        let stats = node.store.stats();
        // Failed writes free nothing and are repeated elsewhere.
        let most = if clean { RAM + RAM / 4 } else { RAM + RAM / 2 };
        assert!(stats.object_bytes <= most, "seed {seed} step {step}: {} bytes of objects", stats.object_bytes);
    }
    // At the end every key answers, each with its own value.
    node.sim.heal();
    let names: Vec<_> = model.keys().cloned().collect();
    let mut errors = 0;
    for (db, name) in names {
        let now_ms = node.now_ms;
        let expected = model[&(db, name.clone())].clone();
        let expected = expected.1.is_none_or(|at| at > now_ms).then_some(expected.0);
        match node.get(db, &name) {
            Ok(found) => assert_eq!(found, expected, "seed {seed} at the end: {:?}", name.escape_ascii()),
            Err(_) => errors += 1,
        }
    }
    assert!(!clean || errors == 0);
    node.lanes.iter_mut().for_each(Lane::drain);
    node.store.stats()
}

#[test]
fn every_value_is_its_keys_whatever_moves() {
    seeds::each(1, 3, |seed| {
        let codec = [Codec::Zstd, Codec::None, Codec::Lz4][seed as usize % 3];
        let stats = run(seed, codec, 12_000, Faults::default());
        assert!(stats[Counter::DemotionsWritten] > 1_000, "{stats:#?}");
        assert!(stats[Counter::DemotionsClean] > 10, "{stats:#?}");
        assert!(stats[Counter::Promotions] > 50, "{stats:#?}");
        assert_eq!(stats[Counter::ChecksumErrors] + stats[Counter::ReadErrors] + stats[Counter::WriteErrors], 0);
    });
}

#[test]
fn segments_are_collected_under_load() {
    seeds::each(11, 1, |seed| {
        let stats = run(seed, Codec::None, 40_000, Faults::default());
        assert!(stats[Counter::CollectedSegments] > 20, "{stats:#?}");
        assert!(stats[Counter::RelocatedRecords] > 100, "{stats:#?}");
    });
}

#[test]
fn faults_give_errors_and_never_anothers_value() {
    let faults = [
        Faults { read_error: 5_000, ..Faults::default() },
        Faults { write_error: 50_000, ..Faults::default() },
        Faults { torn_write: 200_000, ..Faults::default() },
        Faults { bit_flip: 5_000, ..Faults::default() },
        Faults { no_space: 50_000, ..Faults::default() },
        Faults { read_error: 1_000, write_error: 1_000, torn_write: 5_000, bit_flip: 1_000, no_space: 5_000 },
    ];
    seeds::each(102, 6, |seed| {
        let faults = faults[seed as usize % 6];
        let stats = run(seed, if seed % 2 == 0 { Codec::Lz4 } else { Codec::None }, 6_000, faults);
        let seen = stats[Counter::ChecksumErrors] + stats[Counter::ReadErrors] + stats[Counter::WriteErrors];
        assert!(seen > 0, "{faults:?} did nothing: {stats:#?}");
    });
}

#[test]
fn nothing_is_lost_while_flash_grows_and_shrinks() {
    seeds::each(21, 2, |seed| {
        let codec = if seed % 2 == 1 { Codec::None } else { Codec::Lz4 };
        let mut resizes = Some(Resizes::default());
        let stats = run_resizing(seed, codec, 20_000, Faults::default(), &mut resizes);
        let resizes = resizes.unwrap();
        assert!(resizes.set > 20, "{resizes:?}");
        assert!(resizes.shrunk > 2, "{resizes:?}");
        assert!(stats[Counter::RelocatedRecords] > 100, "{stats:#?}");
        assert_eq!(stats[Counter::ChecksumErrors] + stats[Counter::ReadErrors] + stats[Counter::WriteErrors], 0);
    });
}

#[test]
fn faults_while_flash_grows_and_shrinks_give_errors_and_never_anothers_value() {
    let faults = [
        Faults { write_error: 20_000, ..Faults::default() },
        Faults { read_error: 20_000, ..Faults::default() },
        Faults { read_error: 1_000, write_error: 1_000, torn_write: 20_000, bit_flip: 1_000, no_space: 5_000 },
    ];
    let mut resizes = Some(Resizes::default());
    let count = seeds::each(201, 3, |seed| {
        run_resizing(seed, Codec::None, 24_000, faults[seed as usize % 3], &mut resizes);
    });
    assert!(count < 3 || resizes.as_ref().is_some_and(|resizes| resizes.shrunk > 2), "{resizes:?}");
}

/// What a torn write left on the device is another page, in order: its keys have lost their values, and must not keep the
/// flash from shrinking.
#[test]
fn lost_values_do_not_block_the_shrinking() {
    let mut node = Node::new(71, 400 << 10, 16 << 20, Codec::None, Policy::NoEviction);
    fill(&mut node, &mut Random(71), 0..10_000);
    for key in (0..10_000u64).filter(|key| key % 4 != 0) {
        node.run(0, &[&key.to_le_bytes()], |ks, keys| ks.remove(&keys[0])).unwrap();
    }
    let end = flash::DATA_OFFSET + (3 << 20);
    let other = node.sim.page(0, flash::DATA_OFFSET);
    node.sim.set_page(0, end, &other);
    shrink(&mut node, 5 << 20);
    let mut lost = 0;
    for key in (0..10_000u64).step_by(4) {
        match node.get(0, &key.to_le_bytes()) {
            Ok(found) => assert_eq!(found.map(|value| value.len()), Some(700)),
            Err(_) => lost += 1,
        }
    }
    assert!((1..=5).contains(&lost), "{lost}");
}

/// What the device cannot read is not cut off: one sector fails a read of many pages, and may do so for a while only.
#[test]
fn a_flash_that_cannot_be_read_for_a_while_shrinks_later_and_loses_nothing() {
    let mut node = Node::new(72, 400 << 10, 16 << 20, Codec::None, Policy::NoEviction);
    fill(&mut node, &mut Random(72), 0..10_000);
    for key in (0..10_000u64).filter(|key| key % 4 != 0) {
        node.run(0, &[&key.to_le_bytes()], |ks, keys| ks.remove(&keys[0])).unwrap();
    }
    let behind = flash::DATA_OFFSET + (3 << 20);
    node.sim.fail_reads_in(0, behind..behind + 4096);
    node.resize(5 << 20).unwrap();
    for _ in 0..3_000 {
        node.now_ms += 100;
        node.maintain();
    }
    assert!(node.store.resizing().is_some(), "it waits for the device");
    let is_lost = |node: &mut Node, key: u64| node.get(0, &key.to_le_bytes()).is_err();
    let lost = (0..10_000).step_by(4).filter(|&key| is_lost(&mut node, key)).count();
    assert!((1..=5).contains(&lost), "only those of the page that cannot be read: {lost}");
    node.sim.heal();
    for _ in 0..40_000 {
        node.now_ms += 100;
        node.maintain();
    }
    assert_eq!(node.store.resizing(), None, "{:#?}", node.store.stats());
    assert_eq!((0..10_000).step_by(4).filter(|&key| is_lost(&mut node, key)).count(), 0);
}

/// A value in RAM whose copy is damaged is written again, whoever finds the damage: it must not leave RAM as one that has a copy.
#[test]
fn a_collection_that_finds_damage_keeps_what_is_in_ram() {
    let mut node = Node::new(73, 16 << 20, 16 << 20, Codec::None, Policy::NoEviction);
    fill(&mut node, &mut Random(73), 0..8_000);
    node.store.clean();
    for _ in 0..10_000 {
        node.now_ms += 1;
        node.maintain();
    }
    assert!(node.store.is_cleaned() && node.store.stats().values_in_ram == 8_000, "all are in RAM and have a copy");
    for key in (0..8_000u64).filter(|key| key % 4 != 0) {
        node.run(0, &[&key.to_le_bytes()], |ks, keys| ks.remove(&keys[0])).unwrap();
    }
    for page in 0..4 {
        node.sim.set_page(0, flash::DATA_OFFSET + (2 << 20) + page * 4096, &[0; 4096]);
    }
    shrink(&mut node, 4 << 20);
    assert!(node.store.rescued_values() > 0);
    node.store.set_ram_limit(400 << 10);
    for _ in 0..10_000 {
        node.now_ms += 1;
        node.maintain();
    }
    assert!(node.store.stats().values_in_ram < 1_000);
    let read = |node: &mut Node, key: u64| node.get(0, &key.to_le_bytes()).map(|value| value.map(|value| value.len()));
    assert!((0..8_000).step_by(4).all(|key| read(&mut node, key).is_ok_and(|length| length == Some(700))));
}

fn fill(node: &mut Node, random: &mut Random, keys: std::ops::Range<u64>) {
    for key in keys {
        assert!(node.make_room(), "key {key}: {:#?}", node.store.stats());
        let value: Vec<u8> = (0..700).map(|_| random.draw() as u8).collect();
        node.run(0, &[&key.to_le_bytes()], |ks, keys| {
            ks.set_string(&keys[0], &value, None);
            Ok(())
        })
        .unwrap();
    }
}

fn shrink(node: &mut Node, bytes: u64) {
    node.resize(bytes).unwrap();
    let mut slices = 0;
    while node.store.resizing().is_some() {
        node.now_ms += 1;
        node.maintain();
        slices += 1;
        assert!(slices < 100_000, "{:#?}", node.store.stats());
    }
}

#[test]
fn a_flash_too_small_for_the_data_is_refused_and_changes_nothing() {
    let mut node = Node::new(31, 400 << 10, 16 << 20, Codec::None, Policy::NoEviction);
    fill(&mut node, &mut Random(31), 0..12_000);
    let error = node.resize(8 << 20).unwrap_err();
    let ResizeError::TooFull { wanted, live, needed } = error else { panic!("{error}") };
    assert_eq!(wanted, 8 << 20);
    assert!(live > 7 << 20 && needed > live, "{error}");
    assert_eq!(node.store.resizing(), None);
    assert!(matches!(node.resize(1 << 20), Err(ResizeError::TooSmall { .. })));
    assert!(matches!(node.resize(1 << 40), Err(ResizeError::TooLarge { .. })));
    // What the message names is enough, and half of the values deleted make the first wish possible.
    shrink(&mut node, needed + (512 << 10));
    for key in (0..12_000u64).step_by(2) {
        node.run(0, &[&key.to_le_bytes()], |ks, keys| ks.remove(&keys[0])).unwrap();
    }
    shrink(&mut node, 8 << 20);
    for key in 0..12_000u64 {
        let found = node.get(0, &key.to_le_bytes()).unwrap().map(|value| value.len());
        assert_eq!(found, (key % 2 == 1).then_some(700));
    }
    // Full at its new size, and not before.
    fill(&mut node, &mut Random(32), 20_000..22_000);
    assert!(node.store.stats().flash_used_bytes <= 8 << 20);
    node.resize(32 << 20).unwrap();
    fill(&mut node, &mut Random(33), 30_000..50_000);
}

#[test]
fn a_policy_that_evicts_makes_the_smaller_flash_fit() {
    let mut node = Node::new(41, 400 << 10, 16 << 20, Codec::None, Policy::AllKeysLru);
    fill(&mut node, &mut Random(41), 0..15_000);
    shrink(&mut node, 6 << 20);
    let stats = node.store.stats();
    assert!(stats[Counter::EvictedKeys] > 5_000, "{stats:#?}");
    assert!(stats.keys > 4_000, "{stats:#?}");
    assert_eq!(stats.keys + stats[Counter::EvictedKeys], 15_000);
    assert!(stats.flash_used_bytes <= 6 << 20, "{stats:#?}");
    let mut found = 0;
    for key in 0..15_000u64 {
        found += u64::from(node.get(0, &key.to_le_bytes()).unwrap().is_some());
    }
    assert_eq!(found, stats.keys);
}

#[test]
fn one_size_replaces_another_midway() {
    let mut node = Node::new(61, 400 << 10, 16 << 20, Codec::None, Policy::NoEviction);
    let mut random = Random(61);
    fill(&mut node, &mut random, 0..12_000);
    for key in (0..12_000u64).filter(|key| key % 4 != 0) {
        node.run(0, &[&key.to_le_bytes()], |ks, keys| ks.remove(&keys[0])).unwrap();
    }
    let mut replaced = 0;
    for round in 0..200 {
        let key = 20_000 + round * 3;
        fill(&mut node, &mut random, key..key + 3);
        replaced += u64::from(node.store.resizing().is_some());
        node.resize((5 + random.below(11)) << 20).unwrap();
        (0..random.below(3)).for_each(|_| {
            node.now_ms += 1;
            node.maintain();
        });
    }
    assert!(replaced > 3, "{replaced}");
    shrink(&mut node, 5 << 20);
    assert_eq!(2 * node.sim.data_bytes(), 5 << 20);
    for key in (0..12_000u64).step_by(4).chain(20_000..20_600) {
        assert_eq!(node.get(0, &key.to_le_bytes()).unwrap().map(|value| value.len()), Some(700), "{key}");
    }
    assert_eq!(node.store.stats().flash_retired_segments, 0);
}

/// The files are cut only after the reads that started earlier are complete.
#[test]
fn a_reader_keeps_what_it_reads_from_being_cut_off() {
    let mut node = Node::new(51, 400 << 10, 16 << 20, Codec::None, Policy::NoEviction);
    fill(&mut node, &mut Random(51), 0..12_000);
    for key in (0..12_000u64).filter(|key| key % 4 != 0) {
        node.run(0, &[&key.to_le_bytes()], |ks, keys| ks.remove(&keys[0])).unwrap();
    }
    let store = node.store.clone();
    let names: Vec<_> = (0..12_000u64).step_by(4).map(u64::to_le_bytes).collect();
    let reads: Vec<_> = names.iter().filter_map(|name| store.probe(&store.hasher().key(name), 0)).collect();
    assert!(reads.len() > 1_000);
    node.resize(5 << 20).unwrap();
    for _ in 0..2_000 {
        node.now_ms += 1;
        node.maintain();
    }
    let progress = node.store.resizing().expect("somebody reads behind the end");
    assert!(progress.moved_bytes < progress.total_bytes, "{progress:?}");
    assert_eq!(2 * node.sim.data_bytes(), 16 << 20);
    drop(reads);
    shrink(&mut node, 5 << 20);
    assert_eq!(2 * node.sim.data_bytes(), 5 << 20);
    for name in names {
        assert_eq!(node.get(0, &name).unwrap().map(|value| value.len()), Some(700));
    }
}

#[test]
fn a_flash_that_is_full_says_so_and_recovers() {
    let mut node = Node::new(5, 400 << 10, 4 << 20, Codec::None, Policy::NoEviction);
    let mut random = Random(5);
    let mut keys = 0u64;
    while node.make_room() {
        let value: Vec<u8> = (0..700).map(|_| random.draw() as u8).collect();
        let name = keys.to_le_bytes();
        node.run(0, &[&name], |ks, key| {
            ks.set_string(&key[0], &value, None);
            Ok(())
        })
        .unwrap();
        keys += 1;
        assert!(keys < 10_000, "{:#?}", node.store.stats());
    }
    assert!(keys > 3_500, "only {keys} values fit: {:#?}", node.store.stats());
    // All of it is there, and half of it deleted makes room again.
    for key in 0..keys {
        assert_eq!(node.get(0, &key.to_le_bytes()).unwrap().map(|value| value.len()), Some(700));
    }
    for key in (0..keys).step_by(2) {
        assert!(node.run(0, &[&key.to_le_bytes()], |ks, keys| ks.remove(&keys[0])).unwrap());
    }
    // The live data is summed every ten milliseconds.
    for _ in 0..10 {
        node.now_ms += 1;
        node.maintain();
    }
    assert!(node.make_room(), "{:#?}", node.store.stats());
}

#[test]
fn a_full_flash_evicts_when_the_policy_says_so() {
    let mut node = Node::new(6, 400 << 10, 4 << 20, Codec::None, Policy::AllKeysLru);
    let mut random = Random(6);
    for key in 0..20_000u64 {
        assert!(node.make_room(), "key {key}: {:#?}", node.store.stats());
        let value: Vec<u8> = (0..700).map(|_| random.draw() as u8).collect();
        node.run(0, &[&key.to_le_bytes()], |ks, keys| {
            ks.set_string(&keys[0], &value, None);
            Ok(())
        })
        .unwrap();
    }
    let stats = node.store.stats();
    assert!(stats[Counter::EvictedKeys] > 10_000, "{stats:#?}");
    assert!(stats.keys > 2_500, "{stats:#?}");
    assert_eq!(stats.keys + stats[Counter::EvictedKeys], 20_000);
}

#[test]
fn the_space_of_expired_cold_keys_is_freed_without_reading_each_key() {
    let mut node = Node::new(7, 400 << 10, 8 << 20, Codec::None, Policy::NoEviction);
    for key in 0..8_000u64 {
        assert!(node.make_room());
        let expiry = Some(node.now_ms + 60_000);
        node.run(0, &[&key.to_le_bytes()], |ks, keys| {
            ks.set_string(&keys[0], &[7; 500], expiry);
            Ok(())
        })
        .unwrap();
    }
    let before = node.store.stats();
    assert!(before.values_in_flash > 6_000, "{before:#?}");
    // Long after: nobody asks for any key. Sealed segments are read once each, not once a key.
    for _ in 0..4_000 {
        node.now_ms += 100;
        for lane in &mut node.lanes {
            lane.complete(node.now_ms);
            lane.maintain(node.now_ms);
        }
    }
    let after = node.store.stats();
    assert!(after.keys < before.keys / 20, "{after:#?}");
    assert!(after.flash_used_bytes < before.flash_used_bytes / 4, "{after:#?}");
    assert!(after[Counter::FlashReads] - before[Counter::FlashReads] < 1_000, "{after:#?}");
}
