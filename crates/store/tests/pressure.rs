//! Writes always make progress: seeded random load on a flash that is nearly full of live data, over simulated devices. While there
//! is room no write is refused; after a flush every segment is free. What has expired leaves flash in time.

mod node;

use flash::sim::{Faults, Sim};
use node::{Node, Random};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use store::counters::Counter;
use store::{Admission, Codec, DumpError, Dumper, FlashConfig, Lane, PartReader, Policy, Value, Visited};

const RAM: u64 = 600 << 10;
/// While the live data takes a smaller share of the usable flash, no write is refused.
const PROMISED: f64 = 0.85;

fn noise(random: &mut Random, length: u64) -> Vec<u8> {
    (0..length).map(|_| random.draw() as u8).collect()
}

fn set(node: &mut Node, key: u64, value: &[u8], expiry: Option<u64>) {
    node.run(0, &[&key.to_le_bytes()], |ks, keys| {
        ks.set_string(&keys[0], value, expiry);
        Ok(())
    })
    .expect("a blind set reads nothing");
}

fn remove(node: &mut Node, key: u64) {
    node.run(0, &[&key.to_le_bytes()], |ks, keys| ks.remove(&keys[0])).expect("a removal reads nothing");
}

fn flush(node: &mut Node) {
    let store = node.store.clone();
    let mut resume = store::Resume::default();
    let mut ks =
        store.try_lock_all(0, node.now_ms, true, store::Reach::All, &mut resume).expect("nobody else holds a stripe");
    ks.flush(None, false);
    ks.close();
}

/// Lets `ms` of idle time pass.
fn idle(node: &mut Node, ms: u64) {
    for _ in 0..ms {
        node.now_ms += 1;
        node.maintain();
    }
}

/// After a flush and a little time all segments are free, except for the two that are being filled.
fn assert_all_free_after_a_flush(node: &mut Node, what: &str) {
    flush(node);
    idle(node, 200);
    let stats = node.store.stats();
    let all = stats.flash_bytes / stats.segment_bytes;
    assert!(stats.flash_free_segments + 2 >= all, "{what}: {} of {all} free", stats.flash_free_segments);
    assert_eq!(stats.flash_live_bytes, 0, "{what}");
    assert!(!stats.flash_full, "{what}");
}

/// The load of a run: what a value may look like, and what else happens.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    lengths: (u64, u64),
    /// Per mille of the steps.
    removals: u64,
    expiries: u64,
    flushes: u64,
    codecs: u64,
    resizes: u64,
    /// Segments are held back until the next of the checkpoints.
    checkpoints: u64,
    faults: Faults,
}

/// The share of the usable flash that the live data takes.
fn share(node: &Node) -> f64 {
    let (charged, usable) = node.store.flash_charge();
    charged as f64 / usable.max(1) as f64
}

/// Asserts that no write was refused while there was room, that no value was lost, and that a flush frees everything.
fn run(seed: u64, steps: usize, load: Load) -> store::StoreStats {
    let mut random = Random(seed);
    let workers = 1 + random.below(3) as usize;
    let paths = 1 + random.below(2) as u16;
    let codec = [Codec::None, Codec::Lz4, Codec::Zstd][random.below(3) as usize];
    let flash = (6 + random.below(8)) << 20;
    let mut node = Node::with(seed, RAM, flash, codec, Policy::NoEviction, workers, paths);
    let what = format!("seed {seed}, {workers} workers, {paths} paths, {codec:?}, {flash} bytes, {load:?}");
    let clean = load.faults == Faults::default();
    node.store.set_quarantine(load.checkpoints > 0);
    node.sim.set_faults(load.faults);
    let mut model: HashMap<u64, Vec<u8>> = HashMap::new();
    // New keys are added as long as their values have room.
    let (mut keys, mut refused) = (1, 0);
    let mut full_enough = false;
    for step in 0..steps {
        node.now_ms += random.below(2);
        if step % 16 == 0 {
            let share = share(&node);
            full_enough = share > PROMISED - 0.03;
            if share > PROMISED - 0.01 {
                let fewer = keys - keys / 64;
                for key in fewer..keys {
                    remove(&mut node, key);
                    model.remove(&key);
                }
                keys = fewer;
            }
        }
        keys += u64::from(!full_enough);
        let key = if full_enough { random.below(keys) } else { keys - 1 };
        let dice = random.below(1_000);
        let mut bound = 0;
        let mut is = |share: u64| {
            bound += share;
            dice < bound
        };
        if is(load.flushes) {
            flush(&mut node);
            model.clear();
        } else if is(load.codecs) {
            node.store.set_codec([Codec::None, Codec::Lz4, Codec::Zstd][random.below(3) as usize]);
        } else if is(load.resizes) {
            let _ = node.resize((6 + random.below(8)) << 20);
        } else if is(load.checkpoints) {
            let cut = node.store.checkpoint_cut();
            idle(&mut node, random.below(20));
            node.store.checkpoint_durable(cut);
        } else if is(load.removals) {
            // Half of the keys, or only one.
            let all = random.below(100) == 0;
            let gone: Vec<u64> = if all { (0..keys).step_by(2).collect() } else { vec![key] };
            for key in gone {
                remove(&mut node, key);
                model.remove(&key);
            }
        } else {
            if !room(&mut node, load.checkpoints > 0) {
                let share = share(&node);
                assert!(
                    share >= PROMISED || !clean,
                    "{what}, step {step}: refused at {share:.2}: {:#?}",
                    node.store.stats()
                );
                refused += 1;
                if refused % 100 == 0 {
                    // What operators do.
                    flush(&mut node);
                    model.clear();
                }
                continue;
            }
            let length = load.lengths.0 + random.below(load.lengths.1 - load.lengths.0 + 1);
            let value = noise(&mut random, length);
            let expiry = (random.below(1_000) < load.expiries).then(|| node.now_ms + 1 + random.below(2_000));
            set(&mut node, key, &value, expiry);
            match expiry {
                Some(_) => _ = model.remove(&key),
                None => _ = model.insert(key, value),
            }
        }
    }
    node.sim.heal();
    let mut errors = 0;
    for (key, value) in &model {
        match node.get(0, &key.to_le_bytes()) {
            Ok(found) => assert_eq!(found.as_ref(), Some(value), "{what}"),
            Err(_) => errors += 1,
        }
    }
    assert!(!clean || errors == 0, "{what}");
    let stats = node.store.stats();
    node.store.set_quarantine(false);
    if !clean {
        flush(&mut node);
        // A damaged segment without live records is tested, at the latest an hour after the test before.
        node.now_ms += 3_600_000;
        for _ in 0..100 {
            node.now_ms += 1_000;
            idle(&mut node, 10);
        }
    }
    assert_all_free_after_a_flush(&mut node, &what);
    node.lanes.iter_mut().for_each(Lane::drain);
    stats
}

/// Waits for room; a checkpoint every now and then lets held segments go.
fn room(node: &mut Node, checkpoints: bool) -> bool {
    for _ in 0..200 {
        if let Some(has_room) = node.try_room(1_000) {
            return has_room;
        }
        assert!(checkpoints, "maintenance makes no progress: {:#?}", node.store.stats());
        let cut = node.store.checkpoint_cut();
        node.store.checkpoint_durable(cut);
    }
    panic!("no progress although checkpoints are taken: {:#?}", node.store.stats());
}

/// Steps that write three times the flash.
fn steps(lengths: (u64, u64)) -> usize {
    (30_000_000 / ((lengths.0 + lengths.1) / 2 + 500)) as usize
}

#[test]
fn overwriting_never_jams() {
    seeds::each(1, 3, |seed| {
        let load = Load { lengths: (994, 994), ..Load::default() };
        let stats = run(seed, steps(load.lengths), load);
        assert!(stats[Counter::RelocatedRecords] > 100, "{stats:#?}");
    });
}

#[test]
fn values_of_all_sizes_never_jam() {
    let mixes = [(1, 400), (1, 5_000), (500, 3_000), (100, 120_000), (3_000, 250_000)];
    seeds::each(10, 5, |seed| {
        let lengths = mixes[seed as usize % mixes.len()];
        run(seed, steps(lengths), Load { lengths, removals: 10, expiries: 50, ..Load::default() });
    });
}

#[test]
fn flushes_codecs_and_sizes_never_jam() {
    seeds::each(20, 3, |seed| {
        let load = Load { lengths: (10, 1_500), removals: 5, expiries: 20, codecs: 2, ..Load::default() };
        let others = [Load { flushes: 1, ..load }, Load { resizes: 3, ..load }];
        run(seed, steps(load.lengths), others[seed as usize % 2]);
    });
}

#[test]
fn segments_held_back_by_checkpoints_never_jam() {
    seeds::each(30, 2, |seed| {
        let load = Load { lengths: (10, 2_000), removals: 5, checkpoints: 5, ..Load::default() };
        run(seed, steps(load.lengths), load);
    });
}

#[test]
fn faults_never_jam_for_good() {
    let faults = [
        Faults { write_error: 3_000, ..Faults::default() },
        Faults { bit_flip: 2_000, torn_write: 3_000, ..Faults::default() },
        Faults { read_error: 3_000, no_space: 3_000, ..Faults::default() },
    ];
    seeds::each(40, 3, |seed| {
        let load = Load { lengths: (10, 2_000), removals: 5, ..Load::default() };
        run(seed, steps(load.lengths), Load { faults: faults[seed as usize % 3], ..load });
    });
}

/// Writes keys until most of them are on flash.
fn fill(node: &mut Node, keys: std::ops::Range<u64>, length: u64, expiry: impl Fn(u64) -> Option<u64>) {
    let mut random = Random(keys.start);
    for key in keys {
        assert!(node.make_room(), "{:#?}", node.store.stats());
        let value = noise(&mut random, length);
        set(node, key, &value, expiry(key));
    }
}

/// 999 bytes and a key of eight fill a quarter of a page nearly to the byte, so a record with two bytes more would take a third.
#[test]
fn a_collected_record_takes_no_more_flash_than_a_fresh_one() {
    let mut node = Node::new(50, 8 << 20, 16 << 20, Codec::None, Policy::NoEviction);
    fill(&mut node, 0..17_000, 999, |_| None);
    let fresh = node.store.stats();
    assert_eq!(fresh[Counter::RelocatedRecords], 0);
    let mut random = Random(51);
    for _ in 0..40_000 {
        assert!(node.make_room(), "{:#?}", node.store.stats());
        let value = noise(&mut random, 999);
        set(&mut node, random.below(17_000), &value, None);
    }
    let after = node.store.stats();
    assert!(after[Counter::RelocatedRecords] > 5_000, "{after:#?}");
    let of_fresh = fresh[Counter::RecordStoredBytes] as f64 / fresh[Counter::RecordBytes] as f64;
    assert!(of_fresh < 1.1, "{of_fresh:.3}: four to a page");
    let of_all = (after[Counter::RecordStoredBytes] - fresh[Counter::RecordStoredBytes]) as f64
        / (after[Counter::RecordBytes] - fresh[Counter::RecordBytes]) as f64;
    assert!(of_all < 1.03 * of_fresh, "{of_all:.3} bytes a byte instead of {of_fresh:.3}");
}

#[test]
fn many_expired_keys_leave_flash_at_the_speed_of_reading() {
    let mut node = Node::with(60, RAM, 16 << 20, Codec::None, Policy::NoEviction, 2, 1);
    let expiry = node.now_ms + 100_000;
    fill(&mut node, 0..12_000, 1_000, |_| Some(expiry));
    let before = node.store.stats();
    assert!(before.values_in_flash > 10_000, "{before:#?}");
    node.now_ms = expiry + 2_000;
    // 12 MB are 48 units of 256 KB. Two lanes read one each every two milliseconds.
    idle(&mut node, 300);
    let after = node.store.stats();
    assert!(after.keys < 300, "{} keys are left", after.keys);
    assert_eq!(after[Counter::RelocatedRecords], before[Counter::RelocatedRecords]);
    assert!(after.flash_free_segments > 55, "{after:#?}");
    assert!(after[Counter::FlashReads] - before[Counter::FlashReads] < 100, "{after:#?}");
}

#[test]
fn a_few_expired_keys_leave_flash_within_the_lag_and_nothing_is_rewritten() {
    let mut node = Node::with(61, RAM, 16 << 20, Codec::None, Policy::NoEviction, 2, 1);
    node.store.set_expired_key_lag(600_000);
    // It would hold segments for some milliseconds, which this test counts.
    node.store.set_scrub_interval(0);
    let start_ms = node.now_ms;
    fill(&mut node, 0..8_000, 1_000, |key| (key % 20 == 0).then_some(start_ms + 100_000));
    let before = node.store.stats();
    node.now_ms = start_ms + 110_000;
    idle(&mut node, 1_000);
    let early = node.store.stats();
    // Most segments have too few of them to be read at once.
    assert!(early.keys > 7_700, "{} keys", early.keys);
    node.now_ms = start_ms + 700_001;
    idle(&mut node, 1_000);
    let after = node.store.stats();
    assert!((7_600..7_650).contains(&after.keys), "{} keys", after.keys);
    assert_eq!(after[Counter::FlashWriteBytes], before[Counter::FlashWriteBytes]);
    // What is left does not expire, so nothing is read again.
    node.now_ms += 3_600_000;
    idle(&mut node, 1_000);
    assert_eq!(node.store.stats()[Counter::FlashReads], after[Counter::FlashReads]);
    for key in (0..8_000u64).filter(|key| key % 20 != 0) {
        assert_eq!(node.get(0, &key.to_le_bytes()).unwrap().map(|value| value.len()), Some(1_000), "{key}");
    }
}

/// A value larger than a segment cannot move. Writers wait a second, because RAM may be short only for a moment, and then get an error
/// of its own.
#[test]
fn ram_full_of_what_cannot_move_is_not_called_a_full_flash() {
    let mut node = Node::new(70, 2 << 20, 8 << 20, Codec::None, Policy::NoEviction);
    let mut random = Random(70);
    let mut keys = 0;
    loop {
        let value = noise(&mut random, 300_000);
        set(&mut node, keys, &value, None);
        keys += 1;
        let began_ms = node.now_ms;
        if !node.make_room() {
            assert!(node.now_ms - began_ms >= 1_000, "after {} ms", node.now_ms - began_ms);
            break;
        }
        assert!(keys < 20);
    }
    let stats = node.store.stats();
    assert!(stats.ram_full && !stats.flash_full, "{stats:#?}");
    assert!(stats.flash_free_segments > 20);
    assert!(node.store.refusal().starts_with("OOM command not allowed when used memory > 'maxmemory'. RAM"));
    remove(&mut node, 0);
    remove(&mut node, 1);
    assert!(node.make_room());
    assert!(!node.store.stats().ram_full);
}

/// Once, each try to move a value that no unit holds reserved room for copies of it. That was up to half of the RAM limit, which other
/// values and clients lacked for as long as the value lived.
#[test]
fn a_value_that_never_moves_takes_no_room_for_copies() {
    const BYTES: u64 = 17 << 20;
    let mut node = Node::new(71, 32 << 20, 64 << 20, Codec::None, Policy::NoEviction);
    let mut random = Random(71);
    let large = noise(&mut random, BYTES);
    set(&mut node, 0, &large, None);
    for key in 1..40_000 {
        let value = noise(&mut random, 1_000);
        set(&mut node, key, &value, None);
        assert!(node.make_room(), "at {key}");
    }
    let stats = node.store.stats();
    assert!(stats[Counter::DemotionsWritten] > 20_000 && !stats.ram_full, "{stats:#?}");
    assert!(stats.object_budget > BYTES, "{stats:#?}");
    assert_eq!(node.get(0, &0u64.to_le_bytes()).unwrap().map(|value| value == large), Some(true));
}

/// A segment with an error leaves a log that becomes smaller, although nobody tests it any more.
#[test]
fn a_bad_segment_does_not_block_the_shrinking() {
    let mut node = Node::with(80, RAM, 16 << 20, Codec::None, Policy::NoEviction, 1, 1);
    fill(&mut node, 0..12_000, 1_000, |_| None);
    // Every write to the second half fails from now on, and what is there already is overwritten.
    node.sim.fail_writes_in(0, flash::DATA_OFFSET + (8 << 20)..flash::DATA_OFFSET + (16 << 20));
    let mut random = Random(80);
    for key in (0..12_000).chain(0..4_000) {
        if key >= 4_000 {
            remove(&mut node, key);
        } else if node.make_room() {
            let value = noise(&mut random, 1_000);
            set(&mut node, key, &value, None);
        }
    }
    assert!(node.store.stats().flash_retired_segments > 0, "{:#?}", node.store.stats());
    node.resize(8 << 20).unwrap();
    for _ in 0..20_000 {
        if node.store.resizing().is_none() {
            break;
        }
        idle(&mut node, 1);
    }
    assert_eq!(node.store.resizing(), None, "{:#?}", node.store.stats());
}

/// A log with more room than live data may take: the rest is for what a checkpoint will make free.
#[test]
fn live_data_stays_below_a_limit_of_its_own() {
    const LIMIT: u64 = 6 << 20;
    let mut node = Node::with(90, RAM, 16 << 20, Codec::None, Policy::NoEviction, 2, 1);
    node.store.limit_flash_data(LIMIT);
    let mut random = Random(90);
    let mut keys = 0;
    while node.make_room() {
        let value = noise(&mut random, 990);
        set(&mut node, keys, &value, None);
        keys += 1;
        assert!(keys < 16_000, "{:#?}", node.store.stats());
    }
    let full = node.store.stats();
    assert!((LIMIT..LIMIT + (1 << 20)).contains(&full.flash_live_bytes), "{full:#?}");
    assert!(full.flash_full && full.flash_room == "full" && full.flash_full_at_bytes == LIMIT, "{full:#?}");
    assert!(full.flash_free_segments > 20, "{full:#?}");
    // Nothing is collected: it would make no room.
    idle(&mut node, 500);
    assert_eq!(node.store.stats()[Counter::RelocatedRecords], full[Counter::RelocatedRecords]);
    // What RAM has may still be changed, and deletions make room.
    (0..keys / 4).for_each(|key| remove(&mut node, key));
    for key in keys..keys + 1_000 {
        assert!(node.make_room(), "{:#?}", node.store.stats());
        let value = noise(&mut random, 990);
        set(&mut node, key, &value, None);
    }
    // A higher limit makes room at once.
    while node.make_room() {
        let value = noise(&mut random, 990);
        set(&mut node, keys + 1_000, &value, None);
        keys += 1;
    }
    node.store.limit_flash_data(2 * LIMIT);
    assert!(node.make_room(), "{:#?}", node.store.stats());
    assert!(node.store.stats().flash_live_bytes < 2 * LIMIT);
    assert_all_free_after_a_flush(&mut node, "a limit of live data");
}

/// Values in RAM have copies on flash, which a cleaning has written when there was room. A write was once refused although these copies took the
/// room that it needed.
#[test]
fn copies_of_values_in_ram_make_room_before_a_write_is_refused() {
    // Three to a page.
    const RECORD: u64 = 1_366;
    for quarantines in [false, true] {
        let mut node = Node::with(93, RAM, 4 << 20, Codec::None, Policy::NoEviction, 2, 1);
        node.store.set_quarantine(quarantines);
        fill(&mut node, 0..1_500, 990, |_| None);
        node.store.clean();
        idle(&mut node, 500);
        let copied = node.store.stats();
        assert!(node.store.is_cleaned(), "{copied:#?}");
        assert!(copied.flash_live_bytes > (copied.values_in_flash + 300) * RECORD, "{copied:#?}");
        let (mut random, mut keys) = (Random(93), 1_500);
        while room(&mut node, true) {
            let value = noise(&mut random, 990);
            set(&mut node, keys, &value, None);
            keys += 1;
        }
        let full = node.store.stats();
        assert!(full.flash_full, "{full:#?}");
        let cold = full.values_in_flash * RECORD;
        assert!(full.flash_live_bytes < cold + cold / 50, "the copies are gone: {full:#?}");
        assert!(full.flash_live_bytes as f64 > PROMISED * full.flash_usable_bytes as f64, "{full:#?}");
        // All values are there, and what makes room makes it at once.
        for key in 0..keys {
            idle(&mut node, 1);
            let has = node.run(0, &[&key.to_le_bytes()], |ks, keys| Ok(ks.get(&keys[0])?.is_some()));
            assert!(has.expect("it can be read"), "{key}");
        }
        (0..keys / 4).for_each(|key| remove(&mut node, key));
        idle(&mut node, 10);
        assert!(room(&mut node, true), "{:#?}", node.store.stats());
        node.store.set_quarantine(false);
        assert_all_free_after_a_flush(&mut node, "dropped copies");
    }
}

/// Copies of values in RAM give way to the segments that are to be collected for the next checkpoint.
#[test]
fn a_checkpoint_drops_copies_of_values_in_ram_that_take_the_room_of_collections() {
    let mut node = Node::with(96, 4 * RAM, 16 << 20, Codec::None, Policy::NoEviction, 2, 1);
    node.store.set_quarantine(true);
    fill(&mut node, 0..12_500, 990, |_| None);
    // What is read back keeps its record.
    for key in (0..1_500_u64).chain(0..1_500) {
        idle(&mut node, 1);
        node.run(0, &[&key.to_le_bytes()], |ks, keys| Ok(ks.get(&keys[0])?.is_some())).expect("it can be read");
    }
    idle(&mut node, 200);
    let before = node.store.stats();
    let cut = node.store.checkpoint_cut();
    node.store.checkpoint_durable(cut);
    idle(&mut node, 200);
    let after = node.store.stats();
    assert!(after.flash_live_bytes + after.segment_bytes < before.flash_live_bytes, "{before:#?} {after:#?}");
    assert_eq!(after.values_in_ram, before.values_in_ram);
}

/// Overwrites below the limit are never refused, however much garbage there is and although it waits for checkpoints.
#[test]
fn overwrites_below_the_limit_of_live_data_never_jam() {
    const LIMIT: u64 = 8 << 20;
    let mut node = Node::with(91, RAM, 12 << 20, Codec::None, Policy::NoEviction, 2, 1);
    node.store.limit_flash_data(LIMIT);
    node.store.set_quarantine(true);
    // Three to a page.
    let keys = LIMIT / 10 * 9 / 1_366;
    fill(&mut node, 0..keys, 990, |_| None);
    let mut random = Random(91);
    for step in 0..60_000 {
        assert!(room(&mut node, true), "step {step}: {:#?}", node.store.stats());
        let value = noise(&mut random, 990);
        set(&mut node, random.below(keys), &value, None);
    }
    let stats = node.store.stats();
    assert!(stats[Counter::FlashWriteBytes] > 40 << 20 && stats.flash_live_bytes < LIMIT, "{stats:#?}");
    node.store.set_quarantine(false);
    assert_all_free_after_a_flush(&mut node, "overwrites");
}

/// A replica's checkpoint waits for the commands of the primary that run, so they do not wait for the checkpoint. The next ones do.
#[test]
fn what_a_replica_applies_does_not_wait_for_a_checkpoint() {
    let mut node = Node::with(97, RAM, 12 << 20, Codec::None, Policy::NoEviction, 2, 1);
    node.store.set_quarantine(true);
    let mut random = Random(97);
    let mut step = 0;
    while !node.store.waits_for_checkpoint() {
        let value = noise(&mut random, 990);
        set(&mut node, random.below(3_000), &value, None);
        idle(&mut node, 1);
        step += 1;
        assert!(step < 60_000, "{:#?}", node.store.stats());
    }
    assert_eq!(node.store.admission(), Admission::Slow);
    node.store.set_follows(true);
    assert_eq!(node.store.admission(), Admission::Open);
    assert!(node.store.waits_for_checkpoint());
    let cut = node.store.checkpoint_cut();
    node.store.checkpoint_durable(cut);
    idle(&mut node, 200);
    assert!(!node.store.waits_for_checkpoint(), "{:#?}", node.store.stats());
}

/// A checkpoint costs the same however few segments it frees. Once these were eight at most, so that a large log needed one for each few
/// overwrites.
#[test]
fn each_checkpoint_frees_a_share_of_the_log() {
    // 256 segments, and values for 60 % of them. Three to a page.
    let flash = FlashConfig::divide(64 << 20, 256 << 10, 1, flash::DATA_OFFSET, Codec::None);
    let sim = Sim::new(94, 1, flash.bytes_per_path());
    let mut node = Node::on(sim, &Node::config(RAM, Policy::NoEviction, 2, flash));
    node.store.set_quarantine(true);
    let keys = (38 << 20) / 1_366;
    let mut random = Random(94);
    let mut checkpoints = 0;
    for step in 0..4 * keys {
        if node.store.wants_checkpoint() {
            let cut = node.store.checkpoint_cut();
            node.store.checkpoint_durable(cut);
            checkpoints += u64::from(step > 3 * keys);
        }
        assert!(node.make_room(), "step {step}: {:#?}", node.store.stats());
        let value = noise(&mut random, 990);
        set(&mut node, if step < keys { step } else { random.below(keys) }, &value, None);
    }
    // 38 MB were overwritten, which made 152 segments of garbage.
    assert!((1..=18).contains(&checkpoints), "{checkpoints}: {:#?}", node.store.stats());
}

/// Counts the keys of a dump.
#[derive(Default)]
struct Count(u64);

impl Dumper for Count {
    fn key(&mut self, _key: &Visited<'_>, _value: Value<'_>, _parts: &mut PartReader<'_>) -> Result<(), DumpError> {
        self.0 += 1;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A dump ends early if writers need the segments that it keeps, and not because records are moved ahead of need: that only takes free
/// segments, because what it empties is kept for the dump too.
#[test]
fn a_dump_leaves_its_room_to_writers() {
    // 256 segments, and values for 75 % of them. Three to a page.
    let flash = FlashConfig::divide(64 << 20, 256 << 10, 1, flash::DATA_OFFSET, Codec::None);
    let sim = Sim::new(95, 1, flash.bytes_per_path());
    let mut node = Node::on(sim, &Node::config(RAM, Policy::NoEviction, 2, flash));
    node.store.set_blocking(Arc::new(node.sim.clone()));
    node.store.set_quarantine(true);
    let keys = (48 << 20) / 1_366;
    let mut random = Random(95);
    let write = |node: &mut Node, random: &mut Random, key| {
        let value = noise(random, 990);
        assert!(node.make_room(), "{:#?}", node.store.stats());
        set(node, key, &value, None);
    };
    for step in 0..2 * keys {
        if node.store.wants_checkpoint() {
            let cut = node.store.checkpoint_cut();
            node.store.checkpoint_durable(cut);
        }
        let key = if step < keys { step } else { random.below(keys) };
        write(&mut node, &mut random, key);
    }
    let cut = node.store.checkpoint_cut();
    node.store.checkpoint_durable(cut);
    let before = node.store.stats();
    // Half of the free segments are written meanwhile.
    let mut writes = before.flash_free_segments * before.segment_bytes / 1_366 / 2;
    let store = node.store.clone();
    let snapshot = store.cut(0, || Ok(Count::default())).expect("nobody locks").expect("it begins");
    let mut pause = || {
        let now = writes.min(20);
        writes -= now;
        (0..now).for_each(|_| {
            let key = random.below(keys);
            write(&mut node, &mut random, key);
        });
        node.now_ms += 1;
        node.maintain();
        Ok(())
    };
    let dumped = snapshot.run(&mut io::Cursor::new(Vec::new()), &mut pause);
    assert_eq!(dumped.map(|count| count.0).map_err(|why| format!("{why:?}: {:#?}", store.stats())), Ok(keys));
    assert_eq!(writes, 0);
    let after = store.stats();
    assert_eq!(after[Counter::CollectedSegments], before[Counter::CollectedSegments], "{after:#?}");
    // Without the dump, segments are collected for the next checkpoint again.
    idle(&mut node, 200);
    assert!(store.stats()[Counter::CollectedSegments] > after[Counter::CollectedSegments]);
}

/// With a policy that evicts, old keys leave when live data comes to its limit, and no write is refused.
#[test]
fn eviction_keeps_live_data_below_its_limit() {
    const LIMIT: u64 = 6 << 20;
    let mut node = Node::with(92, RAM, 16 << 20, Codec::None, Policy::AllKeysLru, 2, 1);
    node.store.limit_flash_data(LIMIT);
    fill(&mut node, 0..20_000, 990, |_| None);
    // Overwrites of keys that are still there leave garbage beside what is live.
    let mut random = Random(92);
    for key in 20_000..30_000 {
        for key in [key, key - 1 - random.below(3_000)] {
            assert!(node.make_room(), "{:#?}", node.store.stats());
            let value = noise(&mut random, 990);
            set(&mut node, key, &value, None);
        }
    }
    let stats = node.store.stats();
    assert!(stats[Counter::EvictedKeys] > 20_000, "{stats:#?}");
    assert!(stats.keys > 4_000, "{stats:#?}");
    assert!(stats.flash_live_bytes < LIMIT + (1 << 20), "{stats:#?}");
    // What is hot has its copy moved. Collecting garbage would make no room for live data.
    assert!(stats[Counter::RelocatedRecords] < 10_000, "{stats:#?}");
}
