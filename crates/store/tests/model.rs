//! The store against a model: seeded random commands over a simulated device with tiny limits, so that values are
//! demoted, promoted, relocated and expire all the time. Whatever the device does, a key is its own value, an error,
//! or, if it was never set, nothing.

mod node;

use flash::sim::Faults;
use node::{Node, Random};
use std::collections::{BTreeMap, BTreeSet};
use store::{Codec, Lane, Policy, Value};

type Model = BTreeMap<(usize, Vec<u8>), (Vec<u8>, Option<u64>)>;

fn value(random: &mut Random, large: bool) -> Vec<u8> {
    let length = match random.below(40) {
        0 if large => random.below(150_000),
        0..=4 => random.below(6_000),
        5..=10 => random.below(40),
        _ => random.below(800),
    };
    let noisy = random.below(2) == 0;
    (0..length).map(|n| if noisy { random.next() as u8 } else { (n / 7) as u8 }).collect()
}

/// Small, but enough for a slab of every size.
const RAM: u64 = 2 << 20;

/// One seeded run; returns the store's figures at its end.
fn run(seed: u64, codec: Codec, steps: usize, faults: Faults) -> store::StoreStats {
    let mut random = Random(seed);
    let mut node = Node::new(seed, RAM, 24 << 20, codec, Policy::NoEviction);
    let clean = faults == Faults::default();
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
        let live = |model: &Model, db: usize, name: &[u8]| {
            model.get(&(db, name.to_vec())).filter(|(_, expiry)| expiry.is_none_or(|at| at > now_ms)).cloned()
        };
        match random.below(100) {
            0..=44 => {
                if !node.make_room() {
                    assert!(!clean, "seed {seed}: there is room for all of it");
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
                    // A damaged record may have expired: nobody can tell.
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
            96..=97 => {
                for lane in &mut node.lanes {
                    lane.complete(now_ms);
                    lane.maintain(now_ms);
                }
            }
            98 => {
                node.now_ms += random.below(500);
            }
            _ if step % 7 == 0 => {
                let expected: BTreeSet<Vec<u8>> = model
                    .iter()
                    .filter(|((of, _), (_, expiry))| *of == db && expiry.is_none_or(|at| at > now_ms))
                    .map(|((_, name), _)| name.clone())
                    .collect();
                match node.scan(db, 1 + random.below(200) as usize) {
                    Ok(names) => {
                        let found: BTreeSet<_> = names.iter().cloned().collect();
                        assert_eq!(names.len(), found.len(), "seed {seed} step {step}: a name came twice");
                        assert_eq!(found, expected, "seed {seed} step {step}");
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
        assert!(
            stats.object_bytes <= RAM + RAM / 4,
            "seed {seed} step {step}: {} bytes of objects",
            stats.object_bytes
        );
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
    for (seed, codec) in [(1, Codec::None), (2, Codec::Lz4), (3, Codec::Zstd), (4, Codec::Lz4)] {
        let stats = run(seed, codec, 12_000, Faults::default());
        assert!(stats.demotions_written > 1_000, "{stats:#?}");
        assert!(stats.demotions_clean > 10, "{stats:#?}");
        assert!(stats.promotions > 50, "{stats:#?}");
        assert_eq!(stats.checksum_errors + stats.read_errors + stats.write_errors, 0);
    }
}

#[test]
fn segments_are_collected_under_load() {
    let stats = run(11, Codec::None, 40_000, Faults::default());
    assert!(stats.collected_segments > 20, "{stats:#?}");
    assert!(stats.relocated_records > 100, "{stats:#?}");
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
    for (n, faults) in faults.into_iter().enumerate() {
        let stats = run(100 + n as u64, if n % 2 == 0 { Codec::Lz4 } else { Codec::None }, 6_000, faults);
        let seen = stats.checksum_errors + stats.read_errors + stats.write_errors;
        assert!(seen > 0, "{faults:?} did nothing: {stats:#?}");
    }
}

#[test]
fn a_flash_that_is_full_says_so_and_recovers() {
    let mut node = Node::new(5, 400 << 10, 4 << 20, Codec::None, Policy::NoEviction);
    let mut random = Random(5);
    let mut keys = 0u64;
    while node.make_room() {
        let value: Vec<u8> = (0..700).map(|_| random.next() as u8).collect();
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
    assert!(node.make_room(), "{:#?}", node.store.stats());
}

#[test]
fn a_full_flash_evicts_when_the_policy_says_so() {
    let mut node = Node::new(6, 400 << 10, 4 << 20, Codec::None, Policy::AllKeysLru);
    let mut random = Random(6);
    for key in 0..20_000u64 {
        assert!(node.make_room(), "key {key}: {:#?}", node.store.stats());
        let value: Vec<u8> = (0..700).map(|_| random.next() as u8).collect();
        node.run(0, &[&key.to_le_bytes()], |ks, keys| {
            ks.set_string(&keys[0], &value, None);
            Ok(())
        })
        .unwrap();
    }
    let stats = node.store.stats();
    assert!(stats.evicted_keys > 10_000, "{stats:#?}");
    assert!(stats.keys > 2_500, "{stats:#?}");
    assert_eq!(stats.keys + stats.evicted_keys, 20_000);
}

#[test]
fn expired_cold_keys_give_their_space_back_unread() {
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
    assert!(after.flash_reads - before.flash_reads < 1_000, "{after:#?}");
}
