//! Snapshots: whatever changes after the cut, while the walk goes on, a snapshot has the dataset of the cut. It is compared with
//! another snapshot of the same moment, during which nothing changed. `FLINTKV_SEED` replays a run.

use crate::harness::Harness;
use crate::harness::text::Text;
use flintkv_tests::compare::assert_same;
use flintkv_tests::generator::Writes;
use std::io::Cursor as Bytes;
use store::{DumpError, Snapshot};

fn cut(here: &Harness) -> Snapshot<Text> {
    here.store.cut(here.now_ms, || Ok(Text::default())).expect("no other snapshot").expect("it begins")
}

fn run(seed: u64, mut here: Harness, between: &mut dyn FnMut(&mut Harness, &mut Writes)) -> usize {
    here.settings.hash_max_listpack_entries = 6;
    here.settings.zset_max_listpack_entries = 6;
    here.settings.set_max_listpack_entries = 8;
    here.settings.stream_node_max_entries = 4;
    let mut writes = Writes::new(seed);
    let mut step = |here: &mut Harness, between: &mut dyn FnMut(&mut Harness, &mut Writes)| {
        here.now_ms += writes.random.below(20) as u64;
        let words = writes.command(here.now_ms);
        here.words(&words.iter().map(Vec::as_slice).collect::<Vec<_>>());
        between(here, &mut writes);
    };
    (0..800).for_each(|_| step(&mut here, between));
    let mut changed = 0;
    for _ in 0..3 {
        let still = cut(&here).run(&mut Bytes::new(Vec::new()), &mut || Ok(())).expect("it is complete");
        let moving = cut(&here);
        let mut pause = || {
            (0..2).for_each(|_| step(&mut here, between));
            Ok(())
        };
        pause().expect("it goes on");
        let moving = moving.run(&mut Bytes::new(Vec::new()), &mut pause).expect("it is complete");
        assert!(!still.0.is_empty());
        assert_same(&moving.0, &still.0, &format!("FLINTKV_SEED={seed}"));
        let after = cut(&here).run(&mut Bytes::new(Vec::new()), &mut || Ok(())).expect("it is complete");
        changed += still.0.iter().filter(|&(name, value)| after.0.get(name) != Some(value)).count();
    }
    changed
}

/// Commands of whole databases, which the generator has not.
fn whole(here: &mut Harness, writes: &mut Writes) {
    match writes.random.below(400) {
        0 => _ = here.run("FLUSHALL"),
        1 => _ = here.run("FLUSHDB ASYNC"),
        2 | 3 => _ = here.run("SWAPDB 0 9"),
        4 => here.maintain(),
        _ => {}
    }
}

#[test]
fn a_snapshot_has_the_moment_of_its_cut() {
    seeds::each(20_261_123, 4, |seed| {
        assert!(run(seed, Harness::new(), &mut whole) > 0, "nothing changed during the snapshots");
    });
}

#[test]
fn a_snapshot_has_the_moment_of_its_cut_while_values_go_to_flash_and_back() {
    seeds::each(20_261_124, 4, |seed| {
        let mut between = |here: &mut Harness, writes: &mut Writes| match writes.random.below(100) {
            0 => here.crowd(400),
            1 => here.squeeze(),
            _ => whole(here, writes),
        };
        run(seed, Harness::with_flash(seed), &mut between);
        run(seed, Harness::in_parts(seed), &mut between);
    });
}

#[test]
fn what_expires_after_the_cut_is_in_the_snapshot() {
    let mut here = Harness::new();
    here.settings.hash_max_listpack_entries = 2;
    for line in ["HSET h a 1 b 2 c 3", "HPEXPIRE h 50 FIELDS 1 a", "SET k 1 PX 50", "SET gone 1 PX 10"] {
        here.run(line);
    }
    here.now_ms += 20;
    let snapshot = cut(&here);
    here.now_ms += 50;
    assert_eq!(here.run("HLEN h"), "(integer) 2");
    assert_eq!(here.run("GET k"), "(nil)");
    let Text(text) = snapshot.run(&mut Bytes::new(Vec::new()), &mut || Ok(())).expect("it is complete");
    assert_eq!(text.keys().collect::<Vec<_>>(), ["0 h", "0 k"]);
    assert_eq!(text["0 h"].matches("Field").count(), 3);
}

#[test]
fn notes_that_do_not_fit_into_ram_are_sorted_outside() {
    let mut here = Harness::with_flash(7);
    // Several times more notes than a store with so little RAM keeps: 256 KB of 24 bytes each.
    let keys = 50_000;
    let value = |n: usize| format!("{n}:{}", "x".repeat(200));
    for n in 0..keys {
        here.run(&format!("SET key:{n} {}", value(n)));
        if n % 100 == 0 {
            here.crowd(0);
        }
    }
    let mut spilled = Bytes::new(Vec::new());
    let Text(text) = cut(&here).run(&mut spilled, &mut || Ok(())).expect("it is complete");
    assert!(spilled.get_ref().len() > 2 * (256 << 10), "{} bytes", spilled.get_ref().len());
    assert_eq!(text.len(), keys);
    for n in 0..keys {
        assert_eq!(text[&format!("0 key:{n}")], format!("String None [\"Text([{}])\"]", bytes(&value(n))));
    }
}

fn bytes(text: &str) -> String {
    text.bytes().map(|byte| byte.to_string()).collect::<Vec<_>>().join(", ")
}

#[test]
fn a_snapshot_that_is_given_up_leaves_nothing_behind() {
    let mut here = Harness::with_flash(9);
    for n in 0..5_000 {
        here.run(&format!("SET key:{n} {n}"));
    }
    here.squeeze();
    let snapshot = cut(&here);
    assert!(here.store.cut(here.now_ms, || Ok(Text::default())).is_none(), "there is one already");
    here.run("FLUSHALL");
    here.run("SET other 1");
    let mut pauses = 0;
    let mut pause = || {
        pauses += 1;
        if pauses > 10 { Err(DumpError::GivenUp) } else { Ok(()) }
    };
    assert!(matches!(snapshot.run(&mut Bytes::new(Vec::new()), &mut pause), Err(DumpError::GivenUp)));
    let Text(text) = cut(&here).run(&mut Bytes::new(Vec::new()), &mut || Ok(())).expect("it is complete");
    assert_eq!(text.keys().collect::<Vec<_>>(), ["0 other"]);
    here.crowd(100);
}
