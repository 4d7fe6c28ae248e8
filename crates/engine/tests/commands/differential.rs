//! Random commands, valid and hostile, here and on a real Redis: every reply must be the same.
//!
//! `FLINTKV_SEED` replays a run, `FLINTKV_TEST_SECONDS` makes it longer, `FLINTKV_COMMANDS` sets its length. The node's
//! tests compare the same commands, and those that need a server, over connections.

use crate::harness::Harness;
use flintkv_tests::Redis;
use flintkv_tests::compare::{difference, differs_by_design};
use flintkv_tests::generator::{Commands, SETTINGS};
use flintkv_tests::number;
use std::time::Instant;
use store::counters::Counter;
use value::list::Limit;

/// Runs random commands in both places: at least `least`, and more until the budget is spent. `between` runs after
/// each.
fn compare(here: &mut Harness, keys: usize, least: u64, between: fn(&mut Harness, u64)) {
    let Some((mut redis, _server)) = Redis::connected(&[]) else { return };
    let seed = seeds::seed(20_261_121);
    let mut commands = Commands::on_data(seed, keys);
    assert_eq!(redis.run(SETTINGS), "OK");
    set(here);
    let mut errors = 0;
    let (started, budget, wanted) = (Instant::now(), seeds::budget(), number("FLINTKV_COMMANDS", 0));
    let goes_on = |step: u64| match wanted {
        0 => step < least || started.elapsed() < budget,
        wanted => step < wanted,
    };
    for step in (0..).take_while(|&step| goes_on(step)) {
        for words in commands.single() {
            here.now_ms = base::clock::wall_ms();
            let slices: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let (ours, theirs) = (here.reply(&slices), redis.raw_call(&slices));
            errors += u64::from(theirs[0] == b'-');
            if differs_by_design(&words, &ours, &theirs) {
                here.run("FLUSHALL");
                redis.run("FLUSHALL");
            } else if is_nil(&ours) && is_nil(&theirs) {
                // Here a blocking command is answered at once, as in a transaction. In Redis the two have different nils.
            } else if let Some(difference) = difference(&words, &ours, &theirs) {
                panic!("seed {seed}, command {step}: {}\n{difference}", words.join(&b' ').escape_ascii());
            }
        }
        between(here, step);
    }
    assert!(errors > least / 100, "hostile arguments were among them");
}

fn is_nil(reply: &[u8]) -> bool {
    reply == b"$-1\r\n" || reply == b"*-1\r\n"
}

/// What [`SETTINGS`] sets.
fn set(here: &mut Harness) {
    here.settings.hash_max_listpack_entries = 6;
    here.settings.set_max_intset_entries = 12;
    here.settings.list_limit = Limit::of(6);
    here.settings.stream_node_max_entries = 5;
    here.settings.zset_max_listpack_entries = 6;
}

#[test]
fn random_commands_reply_as_redis_does() {
    compare(&mut Harness::new(), 12, 6_000, |_, _| {});
}

#[test]
fn random_commands_reply_as_redis_does_while_collections_go_to_flash_in_parts() {
    let mut here = Harness::in_parts(11);
    compare(&mut here, 8, 6_000, |here, step| {
        if step % 4 == 0 {
            here.squeeze();
        }
    });
    let reads = here.store.stats()[Counter::FlashPartReads];
    assert!(here.colds.is_empty() || reads > 200, "{reads} parts were read");
}

#[test]
fn random_commands_reply_as_redis_does_while_values_go_to_flash_and_back() {
    let mut here = Harness::with_flash(7);
    compare(&mut here, 12, 4_000, |here, step| {
        if step % 16 == 0 {
            here.crowd(2_400);
        }
    });
    // Fewer on a busy machine, because keys expire by the clock.
    let waits: usize = here.colds.values().sum();
    assert!(here.colds.is_empty() || waits > 100, "values were on flash: {waits} waits");
}
