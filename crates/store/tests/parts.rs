//! Large values over a simulated device: their parts are demoted, read one by one, relocated, renamed and dropped all the
//! time. Whatever the device does, a field has its own value, or there is an error.

mod node;

use flash::sim::Faults;
use node::{Answer, Node, Random};
use std::collections::BTreeMap;
use store::counters::Counter;
use store::{Codec, Lane, NOTHING, Policy, ReadError, Value};
use value::hash::Table;
use value::{Absent, Boxed};

const RAM: u64 = 512 << 10;

type Fields = BTreeMap<Vec<u8>, Vec<u8>>;
type Model = BTreeMap<(usize, Vec<u8>), Fields>;

fn table(value: &Boxed) -> &Table {
    let Boxed::Hash(table) = value else { panic!("only hashes were set") };
    table
}

fn table_mut(value: Option<&mut Boxed>) -> &mut Table {
    let Some(Boxed::Hash(table)) = value else { panic!("only hashes were set") };
    table
}

fn of_field(field: &[u8]) -> impl Fn(&Boxed, &mut Absent) {
    move |value, out| table(value).want(field, out)
}

fn get(node: &mut Node, db: usize, key: &[u8], field: &[u8]) -> Answer<Option<Vec<u8>>> {
    node.run(db, &[key], |ks, keys| {
        Ok(match ks.get_for(&keys[0], &of_field(field))? {
            Some(Value::Boxed(value)) => table(value).get(field).map(<[u8]>::to_vec),
            Some(Value::Inline(..)) => panic!("only large hashes were set"),
            None => None,
        })
    })
}

fn set(node: &mut Node, db: usize, key: &[u8], field: &[u8], value: &[u8]) -> Answer<()> {
    node.run(db, &[key], |ks, keys| {
        match ks.get_mut_for(&keys[0], &of_field(field))? {
            Some(mut found) => _ = table_mut(found.boxed()).set(field, value),
            None => {
                let mut table = Table::new();
                table.set(field, value);
                ks.set_boxed(&keys[0], Boxed::Hash(table), None);
            }
        }
        Ok(())
    })
}

fn text(random: &mut Random, most: u64) -> Vec<u8> {
    let noisy = random.below(2) == 0;
    (0..random.below(most)).map(|n| if noisy { random.draw() as u8 } else { (n / 7) as u8 }).collect()
}

fn run(seed: u64, codec: Codec, steps: usize, faults: Faults) -> store::StoreStats {
    run_on(24 << 20, seed, codec, steps, faults, false)
}

fn run_on(flash: u64, seed: u64, codec: Codec, steps: usize, faults: Faults, resizes: bool) -> store::StoreStats {
    let mut random = Random(seed);
    let mut node = Node::new(seed, RAM, flash, codec, Policy::NoEviction);
    node.store.set_split_bytes(1024);
    let clean = faults == Faults::default();
    let mut model = Model::new();
    let key =
        |random: &mut Random| (usize::from(random.below(8) == 0), format!("key:{}", random.below(6)).into_bytes());
    for step in 0..steps {
        if step == steps / 4 {
            node.sim.set_faults(faults);
        }
        node.now_ms += random.below(3);
        if resizes && random.below(300) == 0 {
            // Refused where it would be too small for what is there.
            let _ = node.resize((random.below(20) + 4) << 20);
        }
        let (db, name) = key(&mut random);
        let field = format!("field:{}", random.below(20_000)).into_bytes();
        let entry = (db, name.clone());
        let fails = |error| assert!(!clean, "seed {seed} step {step}: {error}");
        match random.below(10_000) {
            0..=5499 => {
                if !node.make_room() {
                    assert!(!clean || resizes, "seed {seed}: there is room for all of it");
                    continue;
                }
                let value = text(&mut random, if step % 50 == 0 { 6_000 } else { 300 });
                match set(&mut node, db, &name, &field, &value) {
                    Ok(()) => _ = model.entry(entry).or_default().insert(field, value),
                    Err(error) => fails(error),
                }
            }
            5500..=8499 => match get(&mut node, db, &name, &field) {
                Ok(found) => {
                    let expected = model.get(&entry).and_then(|fields| fields.get(&field));
                    assert_eq!(found.as_ref(), expected, "seed {seed} step {step}");
                }
                Err(error) => fails(error),
            },
            8500..=8999 => {
                let removed = node.run(db, &[&name], |ks, keys| {
                    if ks.view_for(&keys[0], &of_field(&field))?.is_none() {
                        return Ok((false, false));
                    }
                    let mut value = ks.get_mut_for(&keys[0], NOTHING)?.expect("it was just there");
                    let table = table_mut(value.boxed());
                    let removed = table.remove(&field);
                    let is_empty = table.is_empty();
                    if is_empty {
                        ks.remove(&keys[0])?;
                    }
                    Ok((removed, is_empty))
                });
                match removed {
                    Ok((removed, is_empty)) => {
                        let fields = model.entry(entry.clone()).or_default();
                        assert_eq!(removed, fields.remove(&field).is_some(), "seed {seed} step {step}");
                        assert!(!is_empty || fields.is_empty());
                        if fields.is_empty() {
                            model.remove(&entry);
                        }
                    }
                    Err(error) => fails(error),
                }
            }
            // RENAME, also onto another: the skeleton goes, the parts stay where they are.
            9000..=9009 => {
                let (_, other) = key(&mut random);
                let moved = node.run(db, &[&name, &other], |ks, keys| {
                    if name == other || ks.get_for(&keys[0], NOTHING)?.is_none() {
                        return Ok(false);
                    }
                    let mut value = ks.get_mut_for(&keys[0], NOTHING)?.expect("it was just there");
                    let taken = value.boxed().expect("only large hashes were set").take();
                    ks.remove(&keys[0])?;
                    ks.set_boxed(&keys[1], taken, None);
                    Ok(true)
                });
                if moved.expect("nothing is read")
                    && let Some(fields) = model.remove(&entry)
                {
                    model.insert((db, other), fields);
                }
            }
            9010..=9011 => {
                let removed = node.run(db, &[&name], |ks, keys| ks.remove(&keys[0])).expect("nothing is read");
                assert_eq!(removed, model.remove(&entry).is_some(), "seed {seed} step {step}");
            }
            // All of it, as HGETALL does.
            9012..=9016 => {
                let all = node.run(db, &[&name], |ks, keys| {
                    Ok(ks.get(&keys[0])?.map(|value| {
                        let Value::Boxed(value) = value else { panic!("only large hashes were set") };
                        table(value).iter().map(|(field, value)| (field.to_vec(), value.to_vec())).collect::<Fields>()
                    }))
                });
                match all {
                    Ok(all) => assert_eq!(all.as_ref(), model.get(&entry), "seed {seed} step {step}"),
                    Err(ReadError::NotWhole { .. }) => {}
                    Err(error) => fails(error),
                }
            }
            _ => node.maintain(),
        }
    }
    node.sim.heal();
    let mut errors = 0;
    for ((db, name), fields) in &model {
        for (field, value) in fields {
            match get(&mut node, *db, name, field) {
                Ok(found) => assert_eq!(found.as_ref(), Some(value), "seed {seed} at the end"),
                Err(_) => errors += 1,
            }
        }
    }
    assert!(!clean || errors == 0);
    let stats = node.store.stats();
    // Nothing is counted as living on flash when nothing is there any more.
    for (db, name) in model.keys() {
        assert!(node.run(*db, &[name], |ks, keys| ks.remove(&keys[0])).expect("nothing is read"));
    }
    node.lanes.iter_mut().for_each(Lane::drain);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while node.store.stats().flash_live_bytes > 0 {
        assert!(std::time::Instant::now() < deadline, "{:#?}", node.store.stats());
        std::thread::yield_now();
    }
    stats
}

#[test]
fn every_field_has_its_own_value_whatever_moves() {
    seeds::each(1, 3, |seed| {
        let codec = [Codec::Zstd, Codec::None, Codec::Lz4][seed as usize % 3];
        let stats = run(seed, codec, 30_000, Faults::default());
        assert!(stats[Counter::PartDemotions] > 2_000, "{stats:#?}");
        assert!(stats[Counter::FlashPartReads] > 1_000, "{stats:#?}");
        assert_eq!(stats[Counter::ChecksumErrors] + stats[Counter::ReadErrors] + stats[Counter::WriteErrors], 0);
    });
}

#[test]
fn parts_move_out_of_a_flash_that_shrinks() {
    seeds::each(21, 1, |seed| {
        let stats = run_on(24 << 20, seed, Codec::Lz4, 30_000, Faults::default(), true);
        // With other seeds, less may be left alive of what is collected.
        assert!(seed != 21 || stats[Counter::RelocatedRecords] > 100, "{stats:#?}");
        assert_eq!(stats[Counter::ChecksumErrors] + stats[Counter::ReadErrors] + stats[Counter::WriteErrors], 0);
    });
}

#[test]
fn parts_are_collected_under_load() {
    seeds::each(11, 1, |seed| {
        let stats = run_on(12 << 20, seed, Codec::None, 60_000, Faults::default(), false);
        assert!(stats[Counter::CollectedSegments] > 5, "{stats:#?}");
        // With other seeds, nothing may be left alive of what is collected.
        assert!(seed != 11 || stats[Counter::RelocatedRecords] > 10, "{stats:#?}");
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
    ];
    seeds::each(100, 5, |seed| {
        let codec = if seed % 2 == 0 { Codec::Lz4 } else { Codec::None };
        let faults = faults[seed as usize % 5];
        let stats = run(seed, codec, 20_000, faults);
        let seen = stats[Counter::ChecksumErrors] + stats[Counter::ReadErrors] + stats[Counter::WriteErrors];
        assert!(seen > 0, "{faults:?} did nothing: {stats:#?}");
    });
}
