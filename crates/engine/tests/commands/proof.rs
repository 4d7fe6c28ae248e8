//! Random runs of every write command, one command after the other, while time passes, keys and fields expire, keys are
//! evicted and values are on flash. The effects, applied to an empty store, must give the same digest. `FLINTKV_SEED`
//! replays a run, `FLINTKV_COMMANDS` makes it longer, `FLINTKV_TEST_SECONDS` runs more of them.
//!
//! The node's tests do the same with connections, transactions, scripts and blocked clients, by the journal and a replica
//! (`effects.rs` in `crates/node/tests/node`).

use crate::harness::Harness;
use crate::harness::replay::Replay;
use commands::{Effect, Flag, table};
use flintkv_tests::generator::{Commands, Template, Writes, fill};
use flintkv_tests::{Random, number};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Mutex;
use store::counters::Counter;
use store::{Effects, Policy, Why};

/// The commands of one run, and the number of commands between two comparisons.
const COMMANDS: u64 = 2_000;
const COMPARED_EVERY: u64 = 250;
/// Hostile commands use so many keys of each kind, partly those of the other commands.
const HOSTILE_KEYS: usize = 4;

/// Kinds of effects that must occur in all runs together.
#[derive(Default)]
struct Met {
    whys: BTreeMap<String, usize>,
    /// Commands that waited for flash, and parts that were read.
    colds: usize,
    part_reads: u64,
}

impl Met {
    fn times(&self, why: Why) -> usize {
        self.whys.get(&format!("{why:?}")).copied().unwrap_or(0)
    }
}

fn prove(new: fn(u64) -> Harness, between: fn(&mut Harness, &mut Writes)) -> Met {
    let mut met = Met::default();
    seeds::each(20_261_122, 2, |seed| run(&mut new(seed), seed, between, &mut met));
    assert!(met.times(Why::Expired) > 0, "keys expired");
    assert!(met.times(Why::FieldExpired) > 0, "fields expired");
    met
}

fn run(here: &mut Harness, seed: u64, between: fn(&mut Harness, &mut Writes), met: &mut Met) {
    here.settings.hash_max_listpack_entries = 6;
    here.settings.zset_max_listpack_entries = 6;
    here.settings.set_max_intset_entries = 8;
    here.settings.set_max_listpack_entries = 8;
    here.settings.stream_node_max_entries = 4;
    here.settings.hll_sparse_max_bytes = 200;
    let (mut writes, mut hostile) = (Writes::new(seed), Commands::on_data(seed, HOSTILE_KEYS));
    let (mut replay, kept) = (Replay::new(), here.keep_effects());
    let commands = number("FLINTKV_COMMANDS", COMMANDS);
    for step in 0..commands {
        here.now_ms += match writes.random.below(60) {
            0 => 120,
            n => n as u64 % 3,
        };
        let words = match writes.random.one_in(4) {
            true => hostile.command(),
            false => writes.command(here.now_ms),
        };
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let before = kept.lock().expect("no panic").len();
        let what = format!("FLINTKV_SEED={seed}, command {step}");
        let running = Running(format!("{what}: {}", words.join(&b' ').escape_ascii()));
        let reply = here.words(&words);
        drop(running);
        {
            let groups = kept.lock().expect("no panic");
            let is_error = reply.starts_with("(error)");
            for effect in groups[before..].iter().flat_map(|group| group.iter()) {
                let is_allowed = !is_error || matches!(effect.why, Why::Expired | Why::FieldExpired);
                assert!(is_allowed, "{what} states {effect:?} and ends in {reply}");
            }
        }
        between(here, &mut writes);
        if step % COMPARED_EVERY == COMPARED_EVERY - 1 || step == commands - 1 {
            replay.repeat_all(&std::mem::take(&mut *kept.lock().expect("no panic")), &what);
            replay.compare(here, &what);
        }
    }
    for done in replay.done() {
        *met.whys.entry(done.why.clone()).or_default() += 1;
    }
    met.colds += here.colds.values().sum::<usize>();
    met.part_reads += here.store.stats()[Counter::FlashPartReads];
    assert!(replay.len() as u64 > commands / 4, "{} effects", replay.len());
}

/// Names the running command when a panic unwinds.
struct Running(String);

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}

#[test]
fn effects_of_random_runs_give_the_same_digest() {
    prove(
        |_| Harness::new(),
        |here, writes| {
            if writes.random.one_in(50) {
                here.maintain();
            }
        },
    );
}

#[test]
fn effects_of_random_runs_give_the_same_digest_while_values_go_to_flash_and_back() {
    let met = prove(Harness::with_flash, |here, writes| match writes.random.below(100) {
        0..10 => here.crowd(1_500),
        10 => here.maintain(),
        _ => {}
    });
    assert!(met.colds > 100, "values were on flash: {} waits", met.colds);
}

#[test]
fn effects_of_random_runs_give_the_same_digest_while_every_value_leaves_for_flash() {
    let met = prove(Harness::with_flash, |here, writes| match writes.random.below(20) {
        0 => here.freeze(),
        1 => here.maintain(),
        _ => {}
    });
    assert!(met.colds > 200, "values were on flash: {} waits", met.colds);
}

#[test]
fn effects_of_random_runs_give_the_same_digest_while_collections_go_to_flash_in_parts() {
    let met = prove(Harness::in_parts, |here, writes| match writes.random.below(40) {
        0..8 => {
            here.squeeze();
            // Maintenance used a later time than the commands, and keys have expired by it.
            here.now_ms += 60;
        }
        8 => here.maintain(),
        _ => {}
    });
    assert!(met.part_reads > 200, "parts were on flash");
}

#[test]
fn effects_of_random_runs_give_the_same_digest_while_keys_are_evicted() {
    let met = prove(
        |_| Harness::evicting(Policy::AllKeysLru),
        |here, writes| {
            if writes.random.one_in(150) {
                here.crowd(2_000);
            }
        },
    );
    assert!(met.times(Why::Evicted) > 100, "{:?}", met.whys);
}

struct Letters(Random);

impl Template for Letters {
    fn random(&mut self) -> &mut Random {
        &mut self.0
    }

    fn word(&mut self, kind: &str, words: &mut Vec<Vec<u8>>) {
        words.push(kind.as_bytes().to_vec());
    }
}

#[test]
fn each_part_of_a_template_gives_all_that_it_stands_for() {
    let mut letters = Letters(Random::new(1));
    for (template, all) in [
        ("A * b", &["A * b"][..]),
        ("?a", &["", "a"]),
        ("*a", &["", "a", "a a", "a a a", "a a a a"]),
        ("*2:a,b", &["a b", "a b a b"]),
        ("{a|b_c|}", &["", "a", "b c"]),
    ] {
        let one = |_| String::from_utf8(fill(&mut letters, template).join(&b' ')).expect("text");
        let made: BTreeSet<String> = (0..200).map(one).collect();
        assert_eq!(made, all.iter().map(|&text| text.to_owned()).collect(), "{template}");
    }
}

/// A new write command belongs into the generator.
#[test]
fn random_runs_have_every_command_that_writes() {
    let mut writes = Writes::new(1);
    let mut made = HashSet::new();
    for _ in 0..60_000 {
        let words = writes.command(1_700_000_000_000);
        let row = table::find(&words[0]).unwrap_or_else(|| panic!("{:?}", words[0].escape_ascii().to_string()));
        let sub = words.get(1).and_then(|word| table::find_subcommand(row, word));
        made.insert(sub.map_or(row.name.to_owned(), |sub| format!("{}|{}", row.name, sub.name)));
    }
    let mut missing = Vec::new();
    for row in table::all() {
        let subcommands = row.subcommands.iter().map(|sub| (format!("{}|{}", row.name, sub.name), sub));
        for (name, row) in std::iter::once((row.name.to_owned(), row)).chain(subcommands) {
            let writes = row.flags.contains(&Flag::Write) || row.effect == Effect::Stated;
            if writes && !made.contains(&name) {
                missing.push(name);
            }
        }
    }
    // These commands need another server or a library, or exist only for tests.
    let elsewhere = ["debug", "function|delete", "function|flush", "function|load", "function|restore", "migrate"];
    missing.retain(|name| !elsewhere.contains(&name.as_str()));
    assert!(missing.is_empty(), "never made: {missing:?}");
}
/// Runs a command and returns the effects that it stated.
fn states(here: &mut Harness, kept: &Mutex<Vec<Effects>>, line: &str) -> String {
    here.run(line);
    let groups = std::mem::take(&mut *kept.lock().expect("no panic"));
    let stated = groups.iter().flat_map(Effects::iter).map(|effect| format!("{:?} {}", effect.why, words_of(effect)));
    stated.collect::<Vec<_>>().join(", ")
}

fn words_of(effect: store::Effect<'_>) -> String {
    effect.words().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
}

/// The process stopped here: a handler that neither succeeds nor yields had nothing to commit.
#[test]
fn a_consumer_that_is_made_before_its_client_waits_stays() {
    let mut here = Harness::new();
    here.run("XGROUP CREATE s g 0 MKSTREAM");
    let kept = here.keep_effects();
    let read = "XREADGROUP GROUP g ann BLOCK 5 STREAMS s >";
    assert_eq!(states(&mut here, &kept, read), "Command XGROUP CREATECONSUMER s g ann");
    assert_eq!(states(&mut here, &kept, read), "Command XCLAIM s g ann 0 0-0 JUSTID");
    assert_eq!(here.run("XGROUP CREATECONSUMER s g ann"), "(integer) 0");
}

/// As in Redis, the command removes the key without a look at its expiry, and says so once.
#[test]
fn storing_nothing_where_a_key_has_expired_states_one_removal() {
    for store in ["ZRANGESTORE to from 5 6", "GEOSEARCHSTORE to from FROMLONLAT 1 1 BYRADIUS 1 km"] {
        let mut here = Harness::new();
        here.run("GEOADD from 50 50 m");
        here.run("ZADD to 1 m");
        here.run("PEXPIRE to 5");
        let kept = here.keep_effects();
        here.now_ms += 5;
        assert_eq!(states(&mut here, &kept, store), "Command DEL to", "{store}");
    }
}

/// The change stated no effect.
#[test]
fn trimming_that_spares_the_only_chunk_changes_nothing() {
    let mut here = Harness::new();
    (1..=3).for_each(|at| _ = here.run(&format!("XADD s {at} f v")));
    let kept = here.keep_effects();
    for trim in ["MAXLEN ~ 1", "MINID ~ 3", "MAXLEN ~ 1 LIMIT 1"] {
        assert_eq!(states(&mut here, &kept, &format!("XTRIM s {trim}")), "", "{trim}");
    }
    assert_eq!(states(&mut here, &kept, "XTRIM s MAXLEN 1"), "Command XTRIM s MAXLEN = 1");
}
/// As in Redis, packed sorted sets have no minus zero. Which sets are packed depends on a setting, and settings are not
/// part of the data.
#[test]
fn the_digest_does_not_tell_zero_from_minus_zero() {
    let digest_with = |entries: usize| {
        let mut here = Harness::new();
        here.settings.zset_max_listpack_entries = entries;
        here.run("ZADD z -0 m");
        (here.run("ZSCORE z m"), here.digest(0))
    };
    let ((packed, packed_digest), (boxed, boxed_digest)) = (digest_with(128), digest_with(0));
    assert_eq!((packed, boxed), ("\"0\"".to_owned(), "\"-0\"".to_owned()));
    assert_eq!(packed_digest, boxed_digest);
}
