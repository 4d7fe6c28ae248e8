//! Many clients at once while RAM holds almost nothing, so that keys become cold at any moment. Every thread checks an
//! invariant that only atomic commands keep.

use flintkv_tests::{Client, Node, Random, eventually, one_line, seed};
use resp::client::{Value, encode_command};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// The minimum duration, even if the budget is smaller.
const RUN_MIN: Duration = Duration::from_secs(4);
/// At least this many reads must have found their value on flash before the run ends, however slow the machine is.
const COLD_MIN: u64 = 200;
const COUNTERS: usize = 40;
const PAIRS: usize = 30;
const STABLE_KEYS: usize = 5000;

#[test]
fn invariants_hold_while_keys_go_cold() {
    everyone(&Node::start(&[("memory-limit", "448mb"), ("ram-limit", "128mb"), ("flash-segment-size", "1mb")]));
}

#[test]
fn invariants_hold_while_threads_read_flash() {
    everyone(&Node::start(&[
        ("memory-limit", "448mb"),
        ("ram-limit", "128mb"),
        ("flash-segment-size", "1mb"),
        ("flash-io", "threads"),
        ("flash-compression", "zstd"),
    ]));
}

fn everyone(node: &Node) {
    node.limit_objects(32 << 20);
    let (stop, increments, locked) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let rounds = AtomicU64::new(0);
    let deadline = Instant::now() + RUN_MIN.max(seeds::budget());
    let goes_on = || !stop.load(Relaxed);
    thread::scope(|scope| {
        let actors: Vec<Box<dyn Fn() + Send + Sync>> = vec![
            Box::new(|| count(node, 1, &goes_on, &increments)),
            Box::new(|| count(node, 2, &goes_on, &increments)),
            Box::new(|| write_pairs(node, 1, &goes_on)),
            Box::new(|| write_pairs(node, 2, &goes_on)),
            Box::new(|| read_pairs(node, &goes_on)),
            Box::new(|| rename(node, &goes_on)),
            Box::new(|| watch_names(node, &goes_on)),
            Box::new(|| lock(node, "one", &goes_on, &locked)),
            Box::new(|| lock(node, "two", &goes_on, &locked)),
            Box::new(|| churn(node, &goes_on)),
            Box::new(|| scan(node, &goes_on, &rounds)),
            Box::new(|| force_demote(node, &goes_on)),
        ];
        let stop = &stop;
        for actor in actors {
            scope.spawn(move || {
                let _stop_if_it_fails = StopIfPanicking(stop);
                actor();
            });
        }
        let _stop_at_end = Stop(stop);
        let mut client = node.connect();
        eventually("reads have met flash", || {
            let mut is_enough = || client.info_number("tiering", "flash_kv_reads") > COLD_MIN;
            stop.load(Relaxed) || Instant::now() >= deadline && is_enough()
        });
    });
    let mut client = node.connect();
    let sum: i64 = (0..COUNTERS).map(|i| integer(&client.run(&format!("GET counter:{i}")))).sum();
    assert_eq!(sum as u64, increments.load(Relaxed), "every INCR counted once");
    assert_eq!(integer(&client.run("GET locked")) as u64, locked.load(Relaxed), "the lock let one in at a time");
    let cold = client.info_number("tiering", "flash_kv_reads");
    println!(
        "{sum} increments, {} turns under the lock, {} scans, {cold} values read from flash",
        locked.load(Relaxed),
        rounds.load(Relaxed)
    );
    assert!(cold > COLD_MIN, "only {cold} reads met flash");
    assert_eq!(client.info("tiering", "flash_checksum_errors"), "0");
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

struct StopIfPanicking<'a>(&'a AtomicBool);

impl Drop for StopIfPanicking<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Relaxed);
        }
    }
}

/// The number in a reply; an absent key counts as 0.
fn integer(reply: &str) -> i64 {
    match reply {
        "(nil)" => 0,
        text => text.trim_start_matches("(integer) ").trim_matches('"').parse().unwrap_or_else(|_| panic!("{text}")),
    }
}

/// Pipelines of INCR and other commands that add one.
fn count(node: &Node, id: u64, goes_on: &dyn Fn() -> bool, increments: &AtomicU64) {
    let (mut client, mut random) = (node.connect(), Random::new(seed() + id));
    while goes_on() {
        let mut bytes = Vec::new();
        let count = 1 + random.below(20);
        for _ in 0..count {
            let key = format!("counter:{}", random.below(COUNTERS));
            let command: &[&[u8]] =
                if random.one_in(3) { &[b"INCRBY", key.as_bytes(), b"1"] } else { &[b"INCR", key.as_bytes()] };
            encode_command(command, &mut bytes);
        }
        client.send(&bytes);
        for _ in 0..count {
            let reply = client.reply();
            assert!(matches!(reply, Some(Value::Int(1..))), "{reply:?}");
        }
        increments.fetch_add(count as u64, Relaxed);
    }
}

/// The two keys of a pair are always set together.
fn write_pairs(node: &Node, id: u64, goes_on: &dyn Fn() -> bool) {
    let (mut client, mut random) = (node.connect(), Random::new(seed() + 10 + id));
    while goes_on() {
        let pair = random.below(PAIRS);
        let size = 8 + random.below(900);
        let value = random.text(size);
        let (left, right) = (format!("left:{pair}"), format!("right:{pair}"));
        let reply = client.call(&[b"MSET", left.as_bytes(), &value, right.as_bytes(), &value]);
        assert_eq!(one_line(&reply), "OK");
    }
}

fn read_pairs(node: &Node, goes_on: &dyn Fn() -> bool) {
    let (mut client, mut random) = (node.connect(), Random::new(seed() + 20));
    while goes_on() {
        let pair = random.below(PAIRS);
        let Value::Array(values) =
            client.call(&[b"MGET", format!("left:{pair}").as_bytes(), format!("right:{pair}").as_bytes()])
        else {
            panic!("MGET gives an array")
        };
        assert_eq!(values[0], values[1], "pair {pair} is seen half written");
    }
}

/// One value moves between two names. Each move carries the whole value and replaces the other name's value.
fn rename(node: &Node, goes_on: &dyn Fn() -> bool) {
    let (mut client, mut random) = (node.connect(), Random::new(seed() + 30));
    let mut turn = 0u64;
    while goes_on() {
        let value = random.text(300);
        if turn == 0 {
            assert_eq!(one_line(&client.call(&[b"SET", b"ping", &value])), "OK");
        } else {
            assert_eq!(client.run("RENAME pong ping"), "OK");
            assert_eq!(one_line(&client.call(&[b"GETSET", b"ping", &value]))[1..5], *"0123");
        }
        let value = [b"0123", &value[..]].concat();
        assert_eq!(one_line(&client.call(&[b"SET", b"ping", &value])), "OK");
        assert_eq!(client.run("RENAME ping pong"), "OK");
        assert_eq!(client.call(&[b"GET", b"pong"]), Value::Bulk(value));
        turn += 1;
    }
}

fn watch_names(node: &Node, goes_on: &dyn Fn() -> bool) {
    let mut client = node.connect();
    while goes_on() && client.run("EXISTS ping pong") == "(integer) 0" {}
    while goes_on() {
        assert_eq!(client.run("EXISTS ping pong"), "(integer) 1", "the value has exactly one name");
    }
}

/// A lock made of SETNX and DEL protects an increment in two steps.
fn lock(node: &Node, name: &str, goes_on: &dyn Fn() -> bool, locked: &AtomicU64) {
    let mut client = node.connect();
    while goes_on() {
        if client.run(&format!("SETNX lock {name}")) == "(integer) 0" {
            continue;
        }
        let value = integer(&client.run("GET locked"));
        assert_eq!(client.run(&format!("SET locked {}", value + 1)), "OK");
        assert_eq!(client.run("GETDEL lock"), format!("\"{name}\""));
        locked.fetch_add(1, Relaxed);
    }
}

/// The RAM limit falls and rises, so that half of the time nearly all keys are cold.
fn force_demote(node: &Node, goes_on: &dyn Fn() -> bool) {
    let mut client = node.connect();
    let usual = client.info("tiering", "ram_limit");
    while goes_on() {
        thread::sleep(Duration::from_millis(200));
        let tight = usual.parse::<u64>().unwrap() / 4 * 3;
        assert_eq!(client.run(&format!("CONFIG SET ram-limit {tight}")), "OK");
        thread::sleep(Duration::from_millis(50));
        assert_eq!(client.run(&format!("CONFIG SET ram-limit {usual}")), "OK");
    }
}

/// Tens of thousands of keys come and go: tables split, values are demoted, segments are collected.
fn churn(node: &Node, goes_on: &dyn Fn() -> bool) {
    let (mut client, mut random) = (node.connect(), Random::new(seed() + 40));
    while goes_on() {
        let mut bytes = Vec::new();
        for _ in 0..50 {
            let key = format!("churn:{}", random.below(60_000));
            match random.below(8) {
                0 => encode_command(&[b"DEL", key.as_bytes()], &mut bytes),
                1 => encode_command(&[b"GET", key.as_bytes()], &mut bytes),
                _ => {
                    let size = [32, 500, 500, 2000][random.below(4)];
                    encode_command(&[b"SET", key.as_bytes(), &random.text(size)], &mut bytes);
                }
            }
        }
        client.send(&bytes);
        for _ in 0..50 {
            let reply = client.reply().expect("the connection stays open");
            assert!(!matches!(reply, Value::Error(_)), "{}", one_line(&reply));
        }
    }
}

/// A scan must find every key that exists from its start to its end.
fn scan(node: &Node, goes_on: &dyn Fn() -> bool, rounds: &AtomicU64) {
    let mut client: Client = node.connect();
    let mut bytes = Vec::new();
    for i in 0..STABLE_KEYS {
        encode_command(&[b"SET", format!("stable:{i}").as_bytes(), b"here"], &mut bytes);
    }
    client.send(&bytes);
    for _ in 0..STABLE_KEYS {
        assert_eq!(client.read(), "OK");
    }
    while goes_on() {
        let options: &[&[u8]] =
            if rounds.load(Relaxed).is_multiple_of(2) { &[b"COUNT", b"500"] } else { &[b"COUNT", b"100"] };
        let found = client.scan(&[b"SCAN"], options).expect("SCAN works");
        let stable: HashSet<_> = found.iter().filter(|key| key.starts_with(b"stable:")).collect();
        assert_eq!(stable.len(), STABLE_KEYS, "a scan misses keys that were there all along");
        rounds.fetch_add(1, Relaxed);
    }
}
