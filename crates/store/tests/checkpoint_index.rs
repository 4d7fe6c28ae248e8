//! Checkpoints against a model: seeded random commands over a simulated device that keeps any part of what was not synced. Commands go on
//! while a checkpoint is taken. After each crash the store holds exactly what it held at the cut of the last durable checkpoint.

mod large;
mod node;

use flash::Sim;
use flash::io::{Driver, Op, OpKind, PAGE_BYTES, PageBuf};
use large::Change;
use node::{Answer, Node, Random};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use store::counters::Counter;
use store::log::page::Corrupt;
use store::{
    Admission, CheckpointIndex, CheckpointPart, Codec, DumpError, Dumper, FlashConfig, Kind, Maintain, PartReader,
    Policy, Salvage, Store, Value, Visited,
};
use value::Boxed;

type Model = BTreeMap<(usize, Vec<u8>), (Content, Option<u64>)>;

#[derive(Clone, Debug)]
enum Content {
    Text(Vec<u8>),
    Large(Boxed),
}

impl PartialEq for Content {
    fn eq(&self, other: &Content) -> bool {
        match (self, other) {
            (Content::Text(one), Content::Text(other)) => one == other,
            (Content::Large(one), Content::Large(other)) => large::elements(one) == large::elements(other),
            _ => false,
        }
    }
}

const NOW_MS: u64 = 1_700_000_000_000;
const FIRST_START_MS: u64 = 1_800_000_000_000;
const RAM: u64 = 2 << 20;
const FLASH: u64 = 7 << 20;
const DBS: u64 = 3;
/// Small enough that most large collections are in parts, and some are not.
const SPLIT_BYTES: usize = 4 << 10;
const LARGE_KEYS: u64 = 10;

/// Gathers the values that are in RAM only.
#[derive(Default)]
struct InRam(Model);

impl Dumper for InRam {
    fn key(&mut self, key: &Visited<'_>, value: Value<'_>, _parts: &mut PartReader<'_>) -> Result<(), DumpError> {
        let content = match value {
            Value::Inline(Kind::String, bytes) => Content::Text(bytes.to_vec()),
            Value::Inline(..) => panic!("no packed collections were set"),
            Value::Boxed(value) => {
                assert_eq!(value.shelf_id(), None, "parts stay where they are");
                Content::Large(value.clone())
            }
        };
        let before = self.0.insert((key.db, key.name.to_vec()), (content, key.expiry));
        assert_eq!(before, None, "each key is shown once");
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A stripe, a table id, and entries there.
type Places = (u16, u16, Vec<(u64, u64)>);

/// What is durable besides the flash.
struct Saved {
    table: Vec<u8>,
    places: Vec<Places>,
    in_parts: Vec<(u16, u16, Vec<u8>)>,
    in_ram: Model,
    model: Model,
}

struct Run {
    node: Node,
    random: Random,
    model: Model,
    keys: u64,
}

fn value(random: &mut Random) -> Vec<u8> {
    let length = match random.below(40) {
        0 => random.below(150_000),
        1..=4 => random.below(6_000),
        _ => random.below(800),
    };
    let noisy = random.below(2) == 0;
    (0..length).map(|n| if noisy { random.draw() as u8 } else { (n / 7) as u8 }).collect()
}

fn large_name(random: &mut Random) -> Vec<u8> {
    format!("large:{}", random.below(LARGE_KEYS)).into_bytes()
}

/// Changes an element of a large collection, and of the one in the model.
fn change_large(node: &mut Node, random: &mut Random, model: &mut Model, db: usize, name: &[u8]) {
    let change = Change::new(random);
    let new = || large::empty(usize::from(name[name.len() - 1]));
    let is_empty = node
        .run(db, &[name], |ks, keys| {
            let want = |value: &Boxed, out: &mut value::Absent| change.want(value, out);
            let is_empty = match ks.get_mut_for(&keys[0], &want)? {
                Some(mut found) => change.apply(found.boxed().expect("it is large")),
                None => {
                    let mut value = new();
                    let is_empty = change.apply(&mut value);
                    if !is_empty {
                        ks.set_boxed(&keys[0], value, None);
                    }
                    return Ok(is_empty);
                }
            };
            if is_empty {
                ks.remove(&keys[0])?;
            }
            Ok(is_empty)
        })
        .expect("the device is good");
    let entry = model.entry((db, name.to_vec())).or_insert_with(|| (Content::Large(new()), None));
    let Content::Large(value) = &mut entry.0 else { panic!("it is large") };
    assert_eq!(change.apply(value), is_empty);
    if is_empty {
        model.remove(&(db, name.to_vec()));
    }
}

fn read(node: &mut Node, db: usize, name: &[u8]) -> Answer<Option<Content>> {
    node.run(db, &[name], |ks, keys| {
        Ok(ks.get(&keys[0])?.map(|value| match value {
            Value::Inline(_, bytes) => Content::Text(bytes.to_vec()),
            Value::Boxed(value) => Content::Large(value.clone()),
        }))
    })
}

impl Run {
    fn step(&mut self) {
        let Run { node, random, model, keys } = self;
        node.now_ms += random.below(2);
        let db = if random.below(4) == 0 { random.below(DBS) } else { 0 } as usize;
        let name = format!("key:{}", random.below(*keys)).into_bytes();
        match random.below(1_000) {
            // A checkpoint may be what the writers wait for.
            0..=549 if node.try_room(20) == Some(true) => {
                let value = value(random);
                let expiry = (random.below(8) == 0).then(|| node.now_ms + 60_000_000);
                node.run(db, &[&name], |ks, keys| {
                    ks.set_string(&keys[0], &value, expiry);
                    Ok(())
                })
                .expect("a blind set reads nothing");
                model.insert((db, name), (Content::Text(value), expiry));
            }
            550..=799 => {
                let expected = model.get(&(db, name.clone())).map(|(value, _)| value);
                assert!(read(node, db, &name).expect("the device is good").as_ref() == expected);
            }
            800..=869 if node.try_room(20) == Some(true) => {
                let name = large_name(random);
                (0..random.below(25)).for_each(|_| change_large(node, random, model, db, &name));
            }
            870..=879 => {
                let name = large_name(random);
                let expected = model.get(&(db, name.clone())).map(|(value, _)| value);
                let found = read(node, db, &name).expect("the device is good");
                assert!(found.as_ref() == expected, "{}: {found:?}", name.escape_ascii());
            }
            880..=979 => {
                let name = if random.below(40) == 0 { large_name(random) } else { name };
                node.run(db, &[&name], |ks, keys| ks.remove(&keys[0])).expect("the device is good");
                model.remove(&(db, name));
            }
            980..=982 => {
                let with = random.below(DBS) as usize;
                self.swap(db, with);
            }
            983 => self.flush(db),
            // Refused if the values would not fit.
            984 => drop(node.resize((random.below(6) + 5) << 20)),
            _ => node.maintain(),
        }
        self.node.maintain();
    }

    fn swap(&mut self, a: usize, b: usize) {
        let mut resume = store::Resume::default();
        let mut ks = self
            .node
            .store
            .try_lock_all(0, self.node.now_ms, true, store::Reach::All, &mut resume)
            .expect("nobody else locks");
        ks.swap(a, b);
        ks.close();
        let moved = std::mem::take(&mut self.model).into_iter().map(|((db, name), value)| {
            let db = if db == a {
                b
            } else if db == b {
                a
            } else {
                db
            };
            ((db, name), value)
        });
        self.model = moved.collect();
    }

    fn flush(&mut self, db: usize) {
        let mut resume = store::Resume::default();
        let mut ks = self
            .node
            .store
            .try_lock_all(0, self.node.now_ms, true, store::Reach::All, &mut resume)
            .expect("nobody else locks");
        ks.flush(Some(db), false);
        ks.close();
        self.model.retain(|&(of, _), _| of != db);
    }

    /// Takes a checkpoint while commands go on. `None`: it was given up.
    fn checkpoint(&mut self) -> Option<Saved> {
        let store = self.node.store.clone();
        if self.random.below(2) == 0 {
            store.clean();
            (0..self.random.below(200)).take_while(|_| !store.is_cleaned()).for_each(|_| self.step());
            store.stop_cleaning();
        }
        let (model, sim) = (self.model.clone(), self.node.sim.clone());
        let (gives_up, is_void) = (self.random.below(8) == 0, self.random.below(8) == 0);
        let mut pause = || {
            (0..self.random.below(4)).for_each(|_| self.step());
            match gives_up && self.random.below(400) == 0 {
                true => Err(DumpError::GivenUp),
                false => Ok(()),
            }
        };
        taken(&sim, &store, model, is_void, &mut pause)
    }
}

/// Takes a checkpoint. `None`: it was given up, or it is void, that is never durable.
fn taken(
    sim: &Sim,
    store: &Arc<Store>,
    model: Model,
    is_void: bool,
    pause: &mut dyn FnMut() -> Result<(), DumpError>,
) -> Option<Saved> {
    let snapshot = store.cut_for_checkpoint(|| Ok(InRam::default())).expect("nobody locks").expect("it begins");
    let (mut places, mut in_parts) = (Vec::new(), Vec::new());
    let mut put = |stripe, table_id, kept: CheckpointPart<'_>| {
        match kept {
            CheckpointPart::Entries(pairs) => places.push((stripe, table_id, pairs.to_vec())),
            CheckpointPart::Parts(saved) => in_parts.push((stripe, table_id, saved.to_vec())),
        }
        Ok(())
    };
    let (in_ram, checkpoint, cut) = snapshot.run_places(&mut put, &mut || pause()).ok()?;
    if is_void {
        return None;
    }
    sync(sim);
    let table = checkpoint.encode();
    store.checkpoint_durable(cut);
    Some(Saved { table, places, in_parts, in_ram: in_ram.0, model })
}

fn sync(sim: &Sim) {
    let mut driver = sim.driver();
    for path in 0..2 {
        driver.push(Op { token: path.into(), path, offset: 0, kind: OpKind::Sync });
    }
    driver.submit();
    let mut done = Vec::new();
    while done.len() < 2 {
        driver.wait();
        driver.reap(&mut done);
    }
    assert!(done.iter().all(|done| done.result.is_ok()));
}

/// Finds the keys of damaged parts of the index again, as `flintkv repair` does, and those of an index that is gone as a whole: their values
/// are those of the cut.
fn salvaged(sim: &Sim, saved: &Saved, random: &mut Random, what: &str) {
    let checkpoint = CheckpointIndex::decode(&saved.table).expect("it was encoded");
    let all: Vec<&(u64, u64)> = saved.places.iter().flat_map(|(.., pairs)| pairs).collect();
    let mut reader = sim.driver();
    let mut read = |salvage: &mut Salvage, use_it: &mut dyn FnMut(&mut Salvage, u32, &[u8])| {
        for at in salvage.segments() {
            let buf = PageBuf::new(at.bytes as usize / PAGE_BYTES);
            reader.push(Op { token: 0, path: at.path, offset: at.offset, kind: OpKind::Read(buf) });
            reader.submit();
            let mut done = Vec::new();
            while done.is_empty() {
                reader.wait();
                reader.reap(&mut done);
            }
            let done = done.pop().expect("it was read");
            // A log that has become smaller has no such segment.
            if done.result.is_ok() {
                use_it(salvage, at.number, &done.buf.expect("a read brings its buffer back"));
            }
        }
    };
    let mut check = |mut salvage: Salvage, missing: usize, named: bool, what: &str| {
        for (db, name) in saved.in_ram.keys() {
            salvage.know_key(*db as u64, name);
        }
        for (_, table_id, row) in &saved.in_parts {
            salvage.know_large(*table_id, store::key_in_parts(row).expect("it names its key"));
        }
        read(&mut salvage, &mut |salvage, number, bytes| salvage.read(number, bytes));
        let told = salvage.finish(missing as u64, NOW_MS);
        // A crash may tear pages that were being written, and nobody can tell what they would have told.
        let is_whole = told.damaged_pages == 0;
        assert!(told.doubtful == 0 || !is_whole, "{what}");
        assert_eq!(told.named as usize, if named { missing } else { 0 }, "{what}");
        let (mut shown, mut found) = (0, 0);
        read(&mut salvage, &mut |salvage, number, bytes| {
            let shows = salvage.show::<Corrupt>(number, bytes, &mut |db, name, expiry, value| {
                let content = match value {
                    Value::Inline(_, bytes) => Content::Text(bytes.to_vec()),
                    Value::Boxed(value) => Content::Large(value.clone()),
                };
                shown += 1;
                if let Some(expected) = saved.model.get(&(db as usize, name.to_vec())) {
                    found += 1;
                    assert!(*expected == (content, expiry), "{what}: {}", name.escape_ascii());
                }
                Ok(())
            });
            shows.expect("what was read once is read again");
        });
        assert!(found == missing || !is_whole && !named, "{what}: {found} of {missing}");
        assert_eq!(shown as u64, told.named + told.unnamed, "{what}");
        assert!(!named || shown == missing, "{what}: nothing that was deleted has come back");
        told.large.len()
    };
    // Some parts of the index are damaged, and what is left of them names all keys, or none.
    for named in [true, false] {
        let mut salvage = Salvage::new(&checkpoint, None).expect("the table is sound");
        let mut missing = 0;
        for (stripe, table_id, pairs) in &saved.places {
            let is_damaged = random.below(3) == 0;
            missing += if is_damaged { pairs.len() } else { 0 };
            for &(high, word) in pairs {
                match is_damaged {
                    true if named => salvage.name(high, word, Some(*table_id)),
                    true => {}
                    false => salvage.know_entry(*stripe, *table_id, high),
                }
            }
        }
        for (stripe, table_id, row) in &saved.in_parts {
            salvage.know_parts(*stripe, *table_id, row);
        }
        let large = check(salvage, missing, named, &format!("{what}, named: {named}"));
        assert_eq!(large, 0, "{what}");
    }
    let (size, secret) = ((2, sim.data_bytes()), [random.draw(), 1]);
    let salvage = Salvage::without_table(&checkpoint.essentials(), size, secret).expect("it is sound");
    let large = check(salvage, all.len(), false, &format!("{what}, no index"));
    assert_eq!(large, saved.in_parts.len(), "{what}");
}

/// A new store from what is durable.
fn restored(sim: Sim, saved: &Saved, random: &mut Random, start_ms: u64) -> Node {
    let mut checkpoint = CheckpointIndex::decode(&saved.table).expect("it was encoded");
    checkpoint.fit(sim.data_bytes());
    let mut config = Node::config(RAM, Policy::NoEviction, 2, checkpoint.layout(Codec::Lz4));
    checkpoint.configure(&mut config).expect("it suits");
    let store = Store::new(&config);
    let restoring = store.restore(&checkpoint, random.draw() as u32, start_ms).expect("it suits");
    store.set_split_bytes(SPLIT_BYTES);
    let [mut some, mut others] = [restoring.adding(), restoring.adding()];
    for (nth, (stripe, table_id, pairs)) in saved.places.iter().enumerate() {
        let adding = if nth % 2 == 0 { &mut some } else { &mut others };
        adding.add(*stripe, *table_id, pairs).expect("all suit");
    }
    drop((some, others));
    for (stripe, table_id, saved) in &saved.in_parts {
        restoring.add_parts(*stripe, *table_id, saved, NOW_MS).expect("all suit");
    }
    restoring.finish();
    let mut node = Node::of(sim, store, config.workers);
    for ((db, name), (value, expiry)) in &saved.in_ram {
        let mut slices = 0;
        while node.store.admission() != Admission::Open {
            slices += 1;
            assert!(slices < 100_000, "a restart jams: {:#?}", node.store.stats());
            // Sparse slabs are looked for at intervals, so a clock that stands still would jam it.
            node.now_ms += 1;
            node.maintain();
        }
        node.run(*db, &[name], |ks, keys| {
            match value {
                Content::Text(value) => ks.set_string(&keys[0], value, *expiry),
                Content::Large(value) => ks.set_boxed(&keys[0], value.clone(), *expiry),
            }
            Ok(())
        })
        .expect("a blind set reads nothing");
    }
    node
}

/// Returns how many values in parts the checkpoints had.
fn crash_often(seed: u64, rounds: usize) -> usize {
    let mut random = Random(seed);
    let layout = FlashConfig::divide(FLASH, 16 << 20, 2, flash::DATA_OFFSET, Codec::Lz4);
    let sim = Sim::new(seed, 2, layout.bytes_per_path()).with_cache();
    let node = Node::on(sim.clone(), &Node::config(RAM, Policy::NoEviction, 2, layout));
    node.store.set_quarantine(true);
    node.store.set_split_bytes(SPLIT_BYTES);
    let keys = 1_000 + random.below(2_500);
    let mut run = Run { node, random: Random(random.draw()), model: Model::new(), keys };
    let (mut saved, mut in_parts) = (run.checkpoint(), 0);
    for round in 0..rounds {
        for _ in 0..run.random.below(12) {
            (0..run.random.below(600)).for_each(|_| run.step());
            saved = run.checkpoint().or(saved);
        }
        (0..run.random.below(3_000)).for_each(|_| run.step());
        // What a collection could not read would be held for damaged.
        assert_eq!(run.node.store.stats().flash_retired_segments, 0, "seed {seed}, round {round}");
        let Some(saved) = &saved else { continue };
        in_parts += saved.in_parts.len();
        let Run { node, mut random, .. } = run;
        let now_ms = node.now_ms;
        drop(node);
        sim.crash([]);
        if random.below(3) == 0 {
            salvaged(&sim, saved, &mut random, &format!("seed {seed}, round {round}"));
        }
        // The numbers of records follow from the time of the start.
        let start_ms = FIRST_START_MS + 3_600_000 * round as u64;
        let mut node = restored(sim.clone(), saved, &mut random, start_ms);
        node.now_ms = now_ms;
        // Not all keys are read, so that most stay cold.
        let sample = random.below(20) == 0;
        for (nth, ((db, name), (value, _))) in saved.model.iter().enumerate() {
            if sample || nth % 7 == round % 7 || matches!(value, Content::Large(_)) {
                let what = format!("seed {seed}, round {round}, {}", name.escape_ascii());
                let found = read(&mut node, *db, name).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert!(found.as_ref() == Some(value), "{what}: {found:?}");
            }
        }
        let count = |db: usize| saved.model.keys().filter(|key| key.0 == db).count() as u64;
        (0..DBS as usize).for_each(|db| assert_eq!(node.store.len(db), count(db), "seed {seed}, round {round}"));
        run = Run { node, random, model: saved.model.clone(), keys };
    }
    run.node.lanes.iter_mut().for_each(store::Lane::drain);
    in_parts
}

/// A store with so many values of 500 bytes in RAM.
fn filled(keys: u32, flash: u64) -> Node {
    let mut node = Node::new(7, 8 << 20, flash, Codec::Lz4, Policy::NoEviction);
    (0..keys).for_each(|key| set(&mut node, key, 1));
    assert_eq!(node.store.stats().values_in_ram, keys.into());
    node
}

fn set(node: &mut Node, key: u32, byte: u8) {
    let name = key.to_le_bytes();
    node.run(0, &[&name], |ks, keys| {
        ks.set_string(&keys[0], &[byte; 500], None);
        Ok(())
    })
    .expect("a blind set reads nothing");
}

/// Lets the lanes work until the cleaning has ended.
fn clean(node: &mut Node) {
    node.store.clean();
    let ended = (0..10_000).any(|_| {
        node.now_ms += 1;
        node.maintain();
        node.store.is_cleaned()
    });
    assert!(ended, "the cleaning does not end");
}

/// The keys that a checkpoint has the values of, and how many places it names.
fn checkpoint_of(node: &Node) -> (Vec<u32>, usize) {
    let begun = node.store.cut_for_checkpoint(|| Ok(InRam::default())).expect("nobody locks").expect("it begins");
    let mut places = 0;
    let mut put = |_, _, kept: CheckpointPart<'_>| {
        let CheckpointPart::Entries(pairs) = kept else { panic!("only strings were set") };
        places += pairs.len();
        Ok(())
    };
    let (in_ram, _, _) = begun.run_places(&mut put, &mut || Ok(())).expect("nobody gives up");
    (in_ram.0.keys().map(|(_, name)| u32::from_le_bytes(name[..].try_into().unwrap())).collect(), places)
}

#[test]
fn a_checkpoint_after_a_cleaning_has_only_the_values_that_changed_meanwhile() {
    let mut node = filled(3_000, 64 << 20);
    assert_eq!((checkpoint_of(&node).0.len(), checkpoint_of(&node).1), (3_000, 0));
    clean(&mut node);
    set(&mut node, 11, 2);
    assert_eq!(checkpoint_of(&node), (vec![11], 2_999));
    let stats = node.store.stats();
    assert_eq!(
        (stats.values_in_ram, stats[Counter::DemotionsWritten]),
        (3_000, 0),
        "a copy does not move a value out of RAM"
    );
    // Nothing is written twice.
    let before = stats[Counter::FlashWriteBytes];
    clean(&mut node);
    assert!((1..=64 << 10).contains(&(node.store.stats()[Counter::FlashWriteBytes] - before)));
    assert_eq!(checkpoint_of(&node), (vec![], 3_000));
}

#[test]
fn nobody_waits_for_a_cleaning() {
    let mut node = filled(3_000, 64 << 20);
    (0..10).for_each(|_| node.maintain());
    let next = |node: &mut Node| node.lanes[0].maintain(node.now_ms);
    assert!(matches!(next(&mut node), Maintain::After { .. }), "there is nothing to do");
    node.store.clean();
    assert_eq!(next(&mut node), Maintain::AtLeisure);
    clean(&mut node);
    assert!(matches!(next(&mut node), Maintain::After { .. }));
}

/// A checkpoint after a cleaning has the places of all parts, whatever is in RAM, and the next one writes nothing again.
#[test]
fn a_cleaning_gives_the_parts_of_large_collections_a_copy() {
    let mut node = Node::new(7, 8 << 20, 64 << 20, Codec::Lz4, Policy::NoEviction);
    let (mut random, mut model) = (Random(5), Model::new());
    for name in [&b"large:0"[..], b"large:1", b"large:2", b"large:3", b"large:4"] {
        (0..3_000).for_each(|_| change_large(&mut node, &mut random, &mut model, 0, name));
    }
    // Not yet in parts.
    node.store.set_split_bytes(SPLIT_BYTES);
    let taken = |node: &Node| {
        let begun = node.store.cut_for_checkpoint(|| Ok(InRam::default())).expect("nobody locks").expect("it begins");
        let mut sizes = Vec::new();
        let mut put = |_, _, kept: CheckpointPart<'_>| {
            let CheckpointPart::Parts(saved) = kept else { panic!("there are only large collections") };
            sizes.push(saved.len());
            Ok(())
        };
        let (in_ram, _, _) = begun.run_places(&mut put, &mut || Ok(())).expect("nobody gives up");
        (in_ram.0.len(), sizes.len(), sizes.iter().sum::<usize>())
    };
    assert_eq!(taken(&node), (5, 0, 0), "nothing is on flash");
    clean(&mut node);
    let in_ram = node.store.held_bytes();
    let (whole, in_parts, bytes) = taken(&node);
    assert_eq!((whole, in_parts), (0, 5));
    assert!(bytes < in_ram as usize / 5, "{bytes} of {in_ram}");
    assert_eq!(node.store.stats()[Counter::PartDemotions], 0, "a copy does not move a part out of RAM");
    let before = node.store.stats()[Counter::FlashWriteBytes];
    clean(&mut node);
    assert_eq!(node.store.stats()[Counter::FlashWriteBytes], before, "nothing is written twice");
    for name in [&b"large:0"[..], b"large:4"] {
        change_large(&mut node, &mut random, &mut model, 0, name);
    }
    clean(&mut node);
    let written = node.store.stats()[Counter::FlashWriteBytes] - before;
    assert!((1..=64 << 10).contains(&written), "only what was changed: {written}");
    assert_eq!((taken(&node).0, taken(&node).1), (0, 5));
    for ((db, name), (value, _)) in &model {
        assert!(read(&mut node, *db, name).expect("the device is good").as_ref() == Some(value));
    }
}

/// What a removed collection had on flash counts as live until the collection is freed, which another thread does. Its segments are collected
/// meanwhile.
#[test]
fn segments_of_what_is_not_freed_yet_are_not_damaged() {
    let mut node = Node::new(7, 4 << 20, 6 << 20, Codec::None, Policy::NoEviction);
    let (mut random, mut model) = (Random(5), Model::new());
    node.store.set_split_bytes(SPLIT_BYTES);
    let names: Vec<Vec<u8>> = (0..5).map(|number| format!("large:{number}").into_bytes()).collect();
    // Each segment has strings and parts.
    for round in 0..50 {
        for name in &names {
            (0..100).for_each(|_| change_large(&mut node, &mut random, &mut model, 0, name));
        }
        (0..100).for_each(|key| set(&mut node, round * 100 + key, 0));
        clean(&mut node);
    }
    let held = node.store.hold_lazyfree();
    for name in &names {
        node.run(0, &[name], |ks, keys| ks.remove(&keys[0])).expect("the device is good");
    }
    // Until every segment has been collected once.
    for round in 1..60 {
        (0..3_000).for_each(|key| set(&mut node, key, round));
        clean(&mut node);
    }
    let stats = node.store.stats();
    assert!(stats[Counter::CollectedSegments] > 40, "{stats:#?}");
    assert_eq!(stats.flash_retired_segments, 0);
    drop(held);
}

/// A flash that becomes smaller has damaged pages behind its new end. The checkpoint of before names records that have moved since, at their old
/// places; the one of after names nothing behind the end. Both can be restored, after a crash while it shrinks and after one when it is done.
#[test]
fn a_flash_that_shrinks_over_damaged_pages_can_be_restored() {
    for ends in [false, true] {
        shrink_over_damage(ends);
    }
}

fn shrink_over_damage(ends: bool) {
    const KEYS: u32 = 6_500;
    let layout = FlashConfig::divide(FLASH, 16 << 20, 2, flash::DATA_OFFSET, Codec::None);
    let sim = Sim::new(9, 2, layout.bytes_per_path()).with_cache();
    let segment_bytes = layout.segment_bytes;
    let mut node = Node::on(sim.clone(), &Node::config(400 << 10, Policy::NoEviction, 2, layout));
    node.store.set_quarantine(true);
    let (mut random, mut model) = (Random(9), Model::new());
    for key in 0..KEYS {
        assert!(node.make_room(), "key {key}: {:#?}", node.store.stats());
        let (name, value) = (key.to_le_bytes(), (0..700).map(|_| random.draw() as u8).collect::<Vec<_>>());
        node.run(0, &[&name], |ks, keys| {
            ks.set_string(&keys[0], &value, None);
            Ok(())
        })
        .expect("a blind set reads nothing");
        model.insert((0, name.to_vec()), (Content::Text(value), None));
    }
    let take = |node: &Node, model: &Model| {
        taken(&sim, &node.store, model.clone(), false, &mut || Ok(())).expect("nobody gives up")
    };
    let mut saved = take(&node, &model);
    for page in 0..8 {
        let first = flash::DATA_OFFSET + 8 * segment_bytes;
        sim.set_page(0, first + page * PAGE_BYTES as u64, &[0; PAGE_BYTES]);
    }
    for key in (0..KEYS).filter(|key| key % 4 != 0) {
        node.run(0, &[&key.to_le_bytes()], |ks, keys| ks.remove(&keys[0])).expect("a key is removed without its value");
        model.remove(&(0, key.to_le_bytes().to_vec()));
    }
    node.resize(16 * segment_bytes).expect("16 segments are enough");
    for _ in 0..60_000 {
        node.now_ms += 1;
        node.maintain();
    }
    assert!(node.store.resizing().is_some(), "the old checkpoint names what has left");
    for _ in 0..10 {
        if ends && node.store.resizing().is_some() {
            saved = take(&node, &model);
            (0..5_000).for_each(|_| {
                node.now_ms += 1;
                node.maintain();
            });
        }
    }
    assert_eq!(node.store.resizing().is_none(), ends, "{:#?}", node.store.stats());
    let now_ms = node.now_ms;
    drop(node);
    sim.crash([]);
    let mut node = restored(sim, &saved, &mut random, FIRST_START_MS);
    node.now_ms = now_ms;
    let mut lost = 0;
    for ((db, name), (value, _)) in &saved.model {
        match read(&mut node, *db, name) {
            Ok(found) => assert!(found.as_ref() == Some(value), "{}", name.escape_ascii()),
            Err(_) => lost += 1,
        }
    }
    assert!((1..=60).contains(&lost), "{lost} lost, {ends}");
    node.lanes.iter_mut().for_each(store::Lane::drain);
}

/// The values would have room, but not if they are changed later and written once more.
#[test]
fn a_cleaning_leaves_room_on_flash() {
    let mut node = filled(3_400, 3 << 20);
    clean(&mut node);
    assert_eq!(node.store.stats()[Counter::FlashWriteBytes], 0);
}

#[test]
fn after_a_crash_the_store_is_as_at_the_last_checkpoint() {
    let mut in_parts = 0;
    let crashes = seeds::each_crash(0xc4ec, 4, |seed| {
        in_parts += crash_often(seed, 4);
        4
    });
    // A single history may have none.
    assert!(in_parts > 0 || crashes < 16, "no value was in parts");
}
