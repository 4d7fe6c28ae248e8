//! Databases with `appendonly yes`: what is there after a kill, after a stop, and after damage.
//!
//! `FLINTKV_SEED` gives the clients the same commands again, but the kill comes at another moment. `FLINTKV_TEST_SECONDS`
//! makes more rounds.

use crate::common::{Client, Node, eventually, free_port, words};
use flash::superblock::Superblock;
use flintkv_tests::generator::Commands;
use flintkv_tests::{Random, one_line};
use journal::manifest::{self, Found};
use resp::client::encode_command;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

pub const PERSISTENT: &[(&str, &str)] = &[("enable-debug-command", "yes"), ("appendonly", "yes")];
pub const SIGKILL: i32 = 9;

pub fn with<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    PERSISTENT.iter().chain(more).copied().collect()
}

/// Waits until the dataset is there.
pub fn loaded(node: &Node) -> Client {
    let mut client = node.connect();
    eventually("the dataset is loaded", || client.info("persistence", "loading") == "0");
    assert!(!node.log().contains("a bug: "), "{}", node.log());
    client
}

pub fn again(node: Node, directives: &[(&str, &str)]) -> Node {
    let dir = node.dir.clone();
    drop(node);
    Node::start_in(&dir, None, directives)
}

pub fn kill(mut node: Node, directives: &[(&str, &str)]) -> Node {
    node.signal(SIGKILL);
    node.ended();
    again(node, directives)
}

/// Kills the node at the end, also if the test fails: only then its clients end.
pub struct Killed<'n>(pub &'n Node);

impl Drop for Killed<'_> {
    fn drop(&mut self) {
        self.0.signal(SIGKILL);
    }
}

pub fn digest(client: &mut Client) -> String {
    let digest = client.run("DEBUG FLINT-DIGEST");
    assert_eq!(digest.len(), 64, "{digest}");
    digest
}

pub fn folder(node: &Node) -> PathBuf {
    node.dir.path().join("flintkv.journal")
}

/// A client's step: commands that are sent together and whose last reply acknowledges them all. They depend only on their
/// number, so that another node can repeat them. The last one stores the number.
fn step(client: u64, n: u64) -> Vec<String> {
    let mut step = effects_of_step(client, n);
    step.push(format!("SET c{client}:done {n}"));
    step
}

fn effects_of_step(client: u64, n: u64) -> Vec<String> {
    let c = format!("c{client}");
    let k = n % 7;
    let one = match n % 24 {
        0 => format!("SET {c}:s{k} value-{n}"),
        1 => format!("INCR {c}:n"),
        2 => format!("HSET {c}:h f{k} {n} g{k} \"some longer text {n}\""),
        3 => format!("HPEXPIREAT {c}:h {} FIELDS 1 f{k}", 4_000_000_000_000u64 + n),
        4 => format!("RPUSH {c}:l {n} \"element {n}\""),
        5 => format!("LTRIM {c}:l -40 -1"),
        6 => format!("SADD {c}:set {n} {} member{k}", n / 2),
        7 => format!("SREM {c}:set {}", n - 1),
        8 => format!("ZADD {c}:z {n}.5 m{k} {n} e{}", n % 90),
        9 => format!("ZINCRBY {c}:z 1.25 m{k}"),
        10 => format!("XADD {c}:x {}-1 field {n}", n + 1),
        11 => format!("XGROUP CREATE {c}:x g{} 0 MKSTREAM", n % 5),
        12 => format!("XREADGROUP GROUP g1 worker{k} COUNT 2 STREAMS {c}:x >"),
        13 => format!("XTRIM {c}:x MAXLEN 50"),
        14 => format!("SET {c}:e{k} {n} PXAT {}", 4_000_000_000_000u64 + n),
        15 => return vec!["MULTI".into(), format!("INCR {c}:m1"), format!("APPEND {c}:m2 {n},"), "EXEC".into()],
        16 => format!(
            "EVAL \"redis.call('INCR', KEYS[1]) return redis.call('RPUSH', KEYS[2], ARGV[1])\" 2 {c}:v1 {c}:v2 {n}"
        ),
        17 => return vec![format!("SELECT {}", n / 24 % 3), format!("SET {c}:db {n}")],
        18 => format!("DEL {c}:s{k}"),
        19 => format!("RENAME {c}:e{} {c}:r", (n - 5) % 7),
        20 => format!("SETRANGE {c}:big{k} {} {n}", 20_000 + n),
        21 => format!(
            "FUNCTION LOAD REPLACE \"#!lua name=lib{client}\\nredis.register_function('f{client}', function() return {n} end)\""
        ),
        22 => format!("HINCRBYFLOAT {c}:h float 0.5"),
        _ => format!("SPOP {c}:set2"),
    };
    vec![one]
}

fn encode(step: &[String], out: &mut Vec<u8>) {
    for line in step {
        let words = words(line);
        encode_command(&words.iter().map(Vec::as_slice).collect::<Vec<_>>(), out);
    }
}

fn ask(connection: &mut Client, words: &[&[u8]]) -> String {
    one_line(&connection.call(words))
}

/// What a client has stored, as text.
fn stored(connection: &mut Client, client: u64) -> Vec<String> {
    let mut found = Vec::new();
    found.push(ask(connection, &[b"FCALL", format!("f{client}").as_bytes(), b"0"]));
    for db in ["0", "1", "2"] {
        ask(connection, &[b"SELECT", db.as_bytes()]);
        for key in ["n", "h", "l", "set", "z", "x", "m1", "m2", "v1", "v2", "db", "r"]
            .iter()
            .map(|name| (*name).to_owned())
            .chain((0..7).flat_map(|k| [format!("s{k}"), format!("e{k}"), format!("big{k}")]))
        {
            let key = format!("c{client}:{key}");
            let key = key.as_bytes();
            let read: &[&[&[u8]]] = match ask(connection, &[b"TYPE", key]).as_str() {
                "none" => continue,
                "string" => &[&[b"GET", key]],
                "list" => &[&[b"LRANGE", key, b"0", b"-1"]],
                "set" => &[&[b"SORT", key, b"ALPHA"]],
                "zset" => &[&[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"]],
                "hash" => &[
                    &[b"HGET", key, b"float"],
                    &[b"HMGET", key, b"f0", b"f1", b"f2", b"f3", b"f4", b"f5", b"f6", b"g0", b"g3", b"g6"],
                    &[b"HPEXPIRETIME", key, b"FIELDS", b"7", b"f0", b"f1", b"f2", b"f3", b"f4", b"f5", b"f6"],
                    &[b"HLEN", key],
                ],
                "stream" => &[&[b"XRANGE", key, b"-", b"+"], &[b"XINFO", b"GROUPS", key], &[b"XPENDING", key, b"g1"]],
                other => panic!("{other}"),
            };
            let mut text = format!("db{db} {}:", key.escape_ascii());
            for words in read {
                text.push_str(&ask(connection, words));
            }
            text.push_str(&ask(connection, &[b"PEXPIRETIME", key]));
            found.push(text);
        }
    }
    found
}

/// How many steps of a client are wholly there.
fn done(connection: &mut Client, client: u64) -> u64 {
    let of_database = |db: &str| {
        ask(connection, &[b"SELECT", db.as_bytes()]);
        let last = connection.call(&[b"GET", format!("c{client}:done").as_bytes()]);
        one_line(&last).trim_matches('"').parse().map_or(0, |last: u64| last + 1)
    };
    ["0", "1", "2"].map(of_database).into_iter().max().unwrap_or(0)
}

/// A client over all rounds.
pub struct Worker {
    id: u64,
    /// The steps that were acknowledged, and those that were sent.
    pub acknowledged: u64,
    sent: u64,
    /// A connection to a node that is not killed, which has run `repeated` steps.
    repeated: u64,
    /// When so many steps were acknowledged, in this round.
    pub times: Vec<(Instant, u64)>,
}

const BURST: u64 = 6;

impl Worker {
    pub fn new(id: u64) -> Worker {
        Worker { id, acknowledged: 0, sent: 0, repeated: 0, times: Vec::new() }
    }

    /// Sends steps until the node is gone, or there is an error when that is over which the node needs.
    pub fn load(
        &mut self,
        mut connection: Client,
        random: &mut Random,
        total: &AtomicU64,
        is_over: &(dyn Fn() -> bool + Sync),
    ) {
        let db = self.db();
        connection.run(&format!("SELECT {db}"));
        self.times.clear();
        loop {
            let count = 1 + random.below(BURST as usize) as u64;
            let (mut bytes, mut replies) = (Vec::new(), Vec::new());
            for n in self.acknowledged..self.acknowledged + count {
                let step = step(self.id, n);
                encode(&step, &mut bytes);
                replies.push(step.len());
            }
            self.sent = self.acknowledged + count;
            connection.send(&bytes);
            for replies in replies {
                for _ in 0..replies {
                    let Some(reply) = connection.raw() else { return };
                    let text = String::from_utf8_lossy(&reply[..reply.len().min(100)]).into_owned();
                    let is_allowed =
                        ["-BUSYGROUP", "-NOGROUP", "-ERR no such key"].iter().any(|no| text.starts_with(no));
                    if reply[0] == b'-' && !is_allowed {
                        assert!(is_over(), "client {}: {text}", self.id);
                        return;
                    }
                }
                self.acknowledged += 1;
                total.fetch_add(1, Relaxed);
            }
            self.times.push((Instant::now(), self.acknowledged));
        }
    }

    /// The logical database that the client's last steps have chosen.
    fn db(&self) -> u64 {
        (0..self.acknowledged).rev().find(|n| n % 24 == 17).map_or(0, |n| n / 24 % 3)
    }

    /// The first `least` steps are there, and of what was sent behind them a beginning.
    pub fn check(&mut self, node: &Node, reference: &mut Client, least: u64) {
        let mut connection = node.connect();
        let done = done(&mut connection, self.id);
        // Of the step after these, what it does may be there, but not its number.
        assert!(done + 1 >= least, "client {}: {done} steps are there, of {least} at least", self.id);
        let found = stored(&mut connection, self.id);
        let mut wanted = Vec::new();
        while self.repeated <= self.sent.min(done + 1) {
            if self.repeated >= done.max(least) {
                wanted = stored(reference, self.id);
                if found == wanted {
                    self.acknowledged = self.repeated;
                    return;
                }
            }
            if self.repeated == self.sent.min(done + 1) {
                break;
            }
            let n = self.repeated;
            self.repeated += 1;
            let (step, mut bytes) = (step(self.id, n), Vec::new());
            let db = (0..n).rev().find(|n| n % 24 == 17).map_or(0, |n| n / 24 % 3);
            reference.run(&format!("SELECT {db}"));
            encode(&step, &mut bytes);
            reference.send(&bytes);
            for _ in step {
                reference.raw().expect("the reference lives");
            }
        }
        let cut = |text: &String| text.chars().filter(|c| !"\\x0".contains(*c)).take(300).collect::<String>();
        let pairs = found.iter().zip(&wanted).filter(|(found, wanted)| found != wanted);
        let differ: Vec<_> = pairs.map(|(found, wanted)| (cut(found), cut(wanted))).collect();
        panic!(
            "client {}: {} steps were acknowledged and {} sent, {done} are there. Found beside wanted: {differ:#?}, {} and {} keys",
            self.id,
            self.acknowledged,
            self.sent,
            found.len(),
            wanted.len()
        );
    }
}

pub const CLIENTS: u64 = 4;
const ROUNDS: usize = 3;

/// In each round `most` steps are acknowledged at most, and some more.
fn kill_under_load(seed: u64, most: usize, more: &[(&str, &str)]) {
    let directives = with(more);
    let mut random = Random::new(seed);
    let reference = Node::start(&[]);
    let mut workers: Vec<_> = (0..CLIENTS).map(Worker::new).collect();
    let mut node = Node::start(&directives);
    for round in 0..ROUNDS {
        let total = AtomicU64::new(0);
        let wanted = 50 + random.below(most) as u64;
        thread::scope(|scope| {
            let _killed = Killed(&node);
            for worker in &mut workers {
                let (connection, total) = (node.connect(), &total);
                let mut random = Random::new(random.draw());
                scope.spawn(move || worker.load(connection, &mut random, total, &|| false));
            }
            eventually("commands are acknowledged", || {
                if round == 1 && total.load(Relaxed) > wanted / 2 {
                    node.connect().run("BGREWRITEAOF");
                }
                total.load(Relaxed) >= wanted
            });
        });
        node = kill(node, &directives);
        if random.one_in(2) {
            // A recovery that is killed changes nothing.
            node = kill(node, &directives);
        }
        loaded(&node);
        let mut connection = reference.connect();
        for worker in &mut workers {
            worker.check(&node, &mut connection, worker.acknowledged);
        }
    }
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill() {
    seeds::each(20_261_123, 1, |seed| kill_under_load(seed, 2500, &[]));
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill_with_always() {
    seeds::each(20_261_124, 1, |seed| kill_under_load(seed, 2500, &[("appendfsync", "always")]));
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill_with_no_sync() {
    seeds::each(20_261_125, 1, |seed| kill_under_load(seed, 2500, &[("appendfsync", "no")]));
}

pub const COLD: &[(&str, &str)] =
    &[("flash-path", "flash"), ("memory-limit", "400mb"), ("ram-limit", "64mb"), ("debug-tier-mode", "cold")];

#[test]
fn what_was_acknowledged_is_there_after_a_kill_while_every_value_is_on_flash() {
    seeds::each(20_261_126, 1, |seed| kill_under_load(seed, 200, COLD));
}

/// Random data of every type, in several logical databases. Nothing expires.
pub fn fill(client: &mut Client, seed: u64) {
    let mut commands = Commands::on_data(seed, 20);
    for db in 0..3 {
        client.run(&format!("SELECT {db}"));
        for _ in 0..300 {
            for words in commands.single() {
                client.call(&words.iter().map(Vec::as_slice).collect::<Vec<_>>());
            }
        }
        for key in client.scan(&[b"SCAN"], &[b"COUNT", b"1000"]).unwrap() {
            client.call(&[b"PERSIST", &key]);
        }
    }
    client.run("SELECT 0");
    client.run("FUNCTION LOAD \"#!lua name=lib\\nredis.register_function('f', function() return 1 end)\"");
    client.run("SWAPDB 1 2");
}

#[test]
fn a_dataset_is_the_same_after_a_stop_and_after_a_kill() {
    let mut node = Node::start(PERSISTENT);
    let mut client = node.connect();
    assert_eq!(client.info("persistence", "aof_enabled"), "1");
    fill(&mut client, 7);
    let before = digest(&mut client);
    assert!(client.info_number("persistence", "journal_records") > 100);
    client.send(b"SHUTDOWN\r\n").rest();
    assert!(node.ended().success());
    let node = again(node, PERSISTENT);
    let mut client = loaded(&node);
    assert_eq!(digest(&mut client), before, "from the journal");
    assert_eq!(client.run("FCALL f 0"), "(integer) 1");
    assert!(node.log().contains("is recovered: "), "{}", node.log());

    assert_eq!(client.run("BGREWRITEAOF"), "Background append only file rewriting started");
    eventually("there is a new checkpoint", || client.info("persistence", "aof_rewrites") == "1");
    assert_eq!(client.info("persistence", "aof_rewrite_in_progress"), "0");
    assert_eq!(client.info("persistence", "aof_last_bgrewrite_status"), "ok");
    assert!(client.info_number("persistence", "journal_checkpoint_position") > 0);
    let checkpoints = || {
        let files = fs::read_dir(folder(&node)).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        files.filter(|name| name.starts_with("base")).count()
    };
    assert_eq!(checkpoints(), 1, "the old checkpoint is removed");
    let node = kill(node, PERSISTENT);
    let mut client = loaded(&node);
    assert_eq!(digest(&mut client), before, "from the checkpoint");

    fill(&mut client, 8);
    assert_eq!(client.run("FLUSHALL"), "OK");
    fill(&mut client, 9);
    let before = digest(&mut client);
    let node = kill(node, PERSISTENT);
    assert_eq!(digest(&mut loaded(&node)), before, "from both");
}

/// Records that touch several stripes, with so many others between them that replay runs those on several workers. Most commands
/// give another result in another order.
fn several_between_single_ones(seed: u64, more: &[(&str, &str)]) {
    const COMMANDS: usize = 8000;
    let directives = with(&[("io-threads", "3")].iter().chain(more).copied().collect::<Vec<_>>());
    let node = Node::start(&directives);
    let mut client = node.connect();
    let mut random = Random::new(seed);
    let (mut step, mut bytes, mut replies, mut singles) = (Vec::new(), Vec::new(), 0, 0);
    for n in 0..COMMANDS {
        step.clear();
        let mut key = || format!("k{}", random.below(40));
        let (a, b) = (key(), key());
        if singles > 0 {
            singles -= 1;
            step.push(match random.below(4) {
                0 => format!("SET {a} {n}"),
                1 => format!("SETRANGE {a} {} {n}", random.below(90)),
                2 => format!("DEL {a}"),
                _ => format!("APPEND {a} {n},"),
            });
        } else {
            match random.below(8) {
                0 => step.push(format!("COPY {a} {b} REPLACE")),
                1 => step.push(format!("RENAME {a} {b}")),
                2 => step.push(format!("BITOP XOR {a} {a} {b}")),
                3 => step.push(format!("MSET {a} {n} {b} {n}")),
                4 => step.push("SWAPDB 0 1".to_owned()),
                5 => step.push(format!("MOVE {a} 1")),
                _ => step.extend([
                    "MULTI".to_owned(),
                    format!("APPEND {a} x"),
                    format!("APPEND {b} y"),
                    "EXEC".to_owned(),
                ]),
            }
            singles = [0, 0, 1, 3, 300, 600][random.below(6)];
        }
        encode(&step, &mut bytes);
        replies += step.len();
    }
    client.send(&bytes);
    (0..replies).for_each(|_| drop(client.raw().unwrap()));
    let before = digest(&mut client);
    let node = kill(node, &directives);
    assert_eq!(digest(&mut loaded(&node)), before);
}

#[test]
fn what_touches_several_stripes_is_replayed_between_what_came_before_and_after() {
    seeds::each(20_261_129, 2, |seed| several_between_single_ones(seed, &[]));
}

#[test]
fn what_touches_several_stripes_is_replayed_in_order_while_every_value_is_on_flash() {
    seeds::each(20_261_130, 1, |seed| several_between_single_ones(seed, COLD));
}

/// Long before the journal is as large as `auto-aof-rewrite-min-size`.
#[test]
fn a_checkpoint_is_written_when_a_restart_would_take_longer_than_its_target() {
    const COUNT: usize = 260_000;
    let directives = with(&[("recovery-time-target", "0")]);
    let node = Node::start(&directives);
    let mut client = node.connect();
    assert_eq!(client.info("persistence", "recovery_estimated_ms"), "0");
    let mut bytes = Vec::new();
    for n in 0..COUNT {
        encode_command(&[b"SET", format!("k{}", n % 1000).as_bytes(), b"v"], &mut bytes);
    }
    client.send(&bytes);
    (0..COUNT).for_each(|_| drop(client.raw().unwrap()));
    assert!(client.info_number("persistence", "recovery_estimated_ms") > 1000);
    assert_eq!(client.info("persistence", "aof_rewrites"), "0", "there is no target");
    assert_eq!(client.run("CONFIG SET recovery-time-target 1"), "OK");
    eventually("there is a new checkpoint", || client.info("persistence", "aof_rewrites") == "1");
    assert!(client.info_number("persistence", "recovery_estimated_ms") < 1000);
    let node = kill(node, &directives);
    assert!(loaded(&node).info_number("persistence", "recovery_last_ms") > 0);
}

/// A start reads the journal from the checkpoint's position on. Here nothing but the checkpoint brings the journal to the device.
#[test]
fn a_checkpoint_counts_only_when_the_journal_is_durable_up_to_it() {
    for flash in [&[][..], COLD] {
        let directives = with(&[flash, &[("appendfsync", "no")]].concat());
        let node = Node::start(&directives);
        let mut client = node.connect();
        assert_eq!(client.run("SET key value"), "OK");
        let position = client.info_number("persistence", "journal_position");
        assert!(client.info_number("persistence", "journal_durable_position") < position);
        client.run("BGREWRITEAOF");
        eventually("there is a new checkpoint", || client.info("persistence", "aof_rewrites") == "1");
        assert_eq!(client.info_number("persistence", "journal_checkpoint_position"), position);
        assert!(client.info_number("persistence", "journal_durable_position") >= position);
    }
}

/// Once, a change that came during the recovery never reached the journal.
#[test]
fn a_change_of_appendfsync_while_the_dataset_is_loaded_holds() {
    let directives = with(&[("appendfsync", "no")]);
    let node = Node::start(&directives);
    let (dir, journal) = (node.dir.clone(), folder(&node));
    assert!(node.connect().send(b"SHUTDOWN\r\n").rest().is_empty());
    drop(node);
    // The load waits until somebody writes into this pipe.
    let Ok(Found::Dataset(mut manifest)) = manifest::read(&journal) else { panic!("there is a dataset") };
    let checkpoint = manifest.checkpoint.as_mut().unwrap();
    let pipe = journal.join(&checkpoint.name);
    let dump = fs::read(&pipe).unwrap();
    fs::remove_file(&pipe).unwrap();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    checkpoint.bytes = 0;
    manifest::write(&journal, Some(&manifest)).unwrap();

    let node = Node::start_in(&dir, None, &directives);
    let mut client = node.connect();
    assert_eq!(client.run("CONFIG SET appendfsync always"), "OK");
    assert_eq!(client.info("persistence", "loading"), "1");
    fs::write(&pipe, dump).unwrap();
    let mut client = loaded(&node);
    assert_eq!(client.run("SET key value"), "OK");
    let position = client.info_number("persistence", "journal_position");
    assert!(client.info_number("persistence", "journal_durable_position") >= position);
}

/// They once stayed after each kill.
#[test]
fn a_start_removes_the_temporary_files_of_a_killed_process() {
    let node = Node::start(PERSISTENT);
    // No process has a number beyond 2^22.
    let left = ["temp-4194305.rdb", "temp-sync-4194305-17-0.rdb", "replica-4194305-17.tmp"];
    let left = left.map(|name| node.dir.path().join(name));
    left.iter().for_each(|file| fs::write(file, "").unwrap());
    let node = kill(node, PERSISTENT);
    loaded(&node);
    assert!(!left.iter().any(|file| file.exists()));
}

/// Nothing can be written to the manifest while this is there.
fn obstruct(journal: &Path) -> PathBuf {
    let obstacle = journal.join("manifest.new");
    fs::create_dir(&obstacle).unwrap();
    obstacle
}

/// Each attempt once left a whole checkpoint there, until the disk was full.
#[test]
fn a_checkpoint_that_cannot_be_named_is_removed() {
    for flash in [&[][..], COLD] {
        let node = Node::start(&with(flash));
        let mut client = node.connect();
        assert_eq!(client.run("SET key value"), "OK");
        let checkpoints = || {
            let names = fs::read_dir(folder(&node)).unwrap().map(|file| file.unwrap().file_name());
            let mut names: Vec<_> = names.filter(|name| name.to_str().unwrap().starts_with("base")).collect();
            names.sort();
            names
        };
        let (before, obstacle) = (checkpoints(), obstruct(&folder(&node)));
        for _ in 0..2 {
            client.run("BGREWRITEAOF");
            eventually("it has ended", || client.info("persistence", "aof_rewrite_in_progress") == "0");
            assert_eq!(client.info("persistence", "aof_last_bgrewrite_status"), "err");
            assert_eq!(checkpoints(), before);
        }
        fs::remove_dir(obstacle).unwrap();
        client.run("BGREWRITEAOF");
        eventually("there is a new checkpoint", || client.info("persistence", "aof_rewrites") == "1");
        assert_eq!(checkpoints().len(), before.len());
        let node = kill(node, &with(flash));
        assert_eq!(loaded(&node).run("GET key"), "\"value\"");
    }
}

/// The flash files once counted no more as a part of the dataset, which was there still.
#[test]
fn an_end_of_persistence_that_cannot_be_written_changes_nothing() {
    let flash = tempfile::tempdir().unwrap();
    let flash_path = ("flash-path", flash.path().to_str().unwrap());
    let directives = with(&[flash_path, ("memory-limit", "100mb"), ("ram-limit", "40mb")]);
    let node = Node::start(&directives);
    let mut client = node.connect();
    assert_eq!(client.run("SET key value"), "OK");
    let log = fs::read_dir(flash.path()).unwrap().next().unwrap().unwrap().path();
    let is_kept = || Superblock::newest(&fs::read(&log).unwrap()).unwrap().is_kept;
    assert!(is_kept());
    let obstacle = obstruct(&folder(&node));
    let refused = client.run("CONFIG SET appendonly no");
    assert!(refused.contains("manifest"), "{refused}");
    assert!(is_kept());
    assert_eq!(client.run("SET later 1"), "OK");
    fs::remove_dir(obstacle).unwrap();
    let node = kill(node, &directives);
    assert_eq!(loaded(&node).run("MGET key later"), "1) \"value\"\n2) \"1\"");
}

/// What a replay reads from flash takes longer than its records, and counts until a checkpoint has it.
#[test]
fn changes_of_values_on_flash_make_a_restart_longer() {
    const COUNT: u64 = 2000;
    let directives = with(&[COLD, &[("recovery-time-target", "0"), ("auto-aof-rewrite-percentage", "0")]].concat());
    let node = Node::start(&directives);
    let mut client = node.connect();
    let mut all = |command: &str| {
        let lines: Vec<_> = (0..COUNT).map(|n| format!("{command}\r\n").replace("KEY", &format!("k{n}"))).collect();
        client.send(lines.concat().as_bytes());
        (0..COUNT).for_each(|_| drop(client.raw().unwrap()));
    };
    all("SET KEY value");
    all("SET KEY other");
    let estimate = |client: &mut Client| client.info_number("persistence", "recovery_estimated_ms");
    let blind = estimate(&mut node.connect());
    assert_eq!(blind, 2 * COUNT / 250, "records alone");
    all("SETRANGE KEY 1 x");
    all("GET KEY");
    all("APPEND KEY x");
    let cold = estimate(&mut client);
    assert_eq!(client.run("CONFIG RESETSTAT"), "OK");
    // A device that is busy now is told of too.
    assert!(cold >= 2 * COUNT / 50, "{cold} ms: values that are read");
    assert_eq!(estimate(&mut client), cold);
    client.run("BGREWRITEAOF");
    eventually("there is a new checkpoint", || client.info("persistence", "aof_rewrites") == "1");
    assert!(estimate(&mut client) < cold / 2);
}

#[test]
fn a_key_that_was_persisted_in_time_outlives_its_old_deadline() {
    let node = Node::start(PERSISTENT);
    let mut client = node.connect();
    // A busy machine may need longer than the keys live. Then they live longer.
    let mut checkpoints = 0;
    let is_in_time = [2000, 4000, 8000, 16_000].into_iter().any(|ttl_ms| {
        for key in ["one", "two"] {
            client.run(&format!("DEL h{key}"));
            client.run(&format!("SET {key} v PX {ttl_ms}"));
            client.run(&format!("HSET h{key} f v g v"));
            client.run(&format!("HPEXPIRE h{key} {ttl_ms} FIELDS 2 f g"));
            if key == "one" {
                client.run("BGREWRITEAOF");
                checkpoints += 1;
                let is_there = |client: &mut Client| client.info_number("persistence", "aof_rewrites") >= checkpoints;
                eventually("there is a new checkpoint", || is_there(&mut client));
            }
        }
        ["one", "two"].iter().all(|key| {
            client.run(&format!("PERSIST {key}")) == "(integer) 1"
                && client.run(&format!("HPERSIST h{key} FIELDS 1 f")) == "1) (integer) 1"
        })
    });
    assert!(is_in_time, "the keys were persisted in time");
    eventually("the deadline is over", || {
        client.run("HLEN hone") == "(integer) 1" && client.run("HLEN htwo") == "(integer) 1"
    });
    let node = kill(node, PERSISTENT);
    let mut client = loaded(&node);
    for key in ["one", "two"] {
        assert_eq!(client.run(&format!("GET {key}")), "\"v\"");
        assert_eq!(client.run(&format!("HMGET h{key} f g")), "1) \"v\"\n2) (nil)");
    }
}

/// A key that expires while no node runs, or a moment before a kill, is gone; and stays gone.
#[test]
fn keys_expire_over_restarts() {
    let mut node = Node::start(PERSISTENT);
    node.connect().run("SET k v PX 300");
    for _ in 0..3 {
        node = kill(node, PERSISTENT);
        loaded(&node);
    }
    let mut client = node.connect();
    eventually("the key has expired", || client.run("EXISTS k") == "(integer) 0");
    assert_eq!(client.run("SET k new NX"), "OK");
    node = kill(node, PERSISTENT);
    assert_eq!(loaded(&node).run("GET k"), "\"new\"");
}

#[test]
fn a_dump_and_an_append_only_file_are_taken_over() {
    let node = Node::start(&[("enable-debug-command", "yes"), ("rdb-version", "12")]);
    let mut client = node.connect();
    fill(&mut client, 3);
    let before = digest(&mut client);
    assert_eq!(client.run("SAVE"), "OK");
    let node = again(node, PERSISTENT);
    assert_eq!(digest(&mut loaded(&node)), before);
    let mut client = node.connect();
    assert_eq!(client.run("SET more 1"), "OK");
    let before = digest(&mut client);
    let node = kill(node, PERSISTENT);
    assert_eq!(digest(&mut loaded(&node)), before, "the dump is not loaded again");

    let dir = node.dir.clone();
    drop(node);
    fs::remove_dir_all(dir.path().join("flintkv.journal")).unwrap();
    fs::write(dir.path().join("appendonly.aof"), "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n").unwrap();
    fs::remove_file(dir.path().join("dump.rdb")).unwrap();
    let node = Node::start_in(&dir, None, PERSISTENT);
    loaded(&node);
    let node = kill(node, PERSISTENT);
    assert_eq!(loaded(&node).run("GET a"), "\"b\"");
}

#[test]
fn persistence_is_switched_while_clients_write() {
    let off = &[("enable-debug-command", "yes")][..];
    let node = Node::start(off);
    let mut client = node.connect();
    assert!(client.run("BGREWRITEAOF").starts_with("(error) ERR BGREWRITEAOF needs a journal"));
    fill(&mut client, 4);
    let acknowledged = AtomicU64::new(0);
    let writer = node.connect();
    thread::scope(|scope| {
        let _killed = Killed(&node);
        let acknowledged = &acknowledged;
        scope.spawn(move || {
            let mut writer = writer;
            while let Some(reply) = { writer.send(b"INCR n\r\n").raw() } {
                assert_eq!(reply[0], b':', "{}", reply.escape_ascii());
                acknowledged.fetch_add(1, Relaxed);
            }
        });
        let writes = || {
            let from = acknowledged.load(Relaxed);
            eventually("the writer goes on", || acknowledged.load(Relaxed) > from + 100);
        };
        writes();
        let refused = client.run("CONFIG SET appendonly yes maxmemory-policy allkeys-lru");
        assert!(refused.contains("appendonly must be set alone"), "{refused}");
        // In a transaction it takes effect behind EXEC.
        for (value, is_on) in [("yes", "1"), ("no", "0")] {
            for line in ["MULTI", "SET k v", &format!("CONFIG SET appendonly {value}"), "GET k"] {
                client.run(line);
            }
            assert_eq!(client.run("EXEC"), "1) OK\n2) OK\n3) \"v\"");
            eventually("it is switched", || client.info("persistence", "aof_enabled") == is_on);
            writes();
        }
        for line in ["MULTI", "CONFIG SET appendonly maybe", "CONFIG SET appendonly yes maxmemory-policy allkeys-lru"] {
            client.run(line);
        }
        let refused = client.run("EXEC");
        assert!(
            refused.contains("must be 'yes' or 'no'") && refused.contains("appendonly must be set alone"),
            "{refused}"
        );
        for _ in 0..2 {
            assert_eq!(client.run("CONFIG SET appendonly yes"), "OK");
            assert_eq!(client.info("persistence", "aof_enabled"), "1");
            assert_eq!(client.run("SET here 1"), "OK");
            assert_eq!(client.run("WAITAOF 1 0 0"), "1) (integer) 1\n2) (integer) 0");
            assert_eq!(client.run("CONFIG SET appendonly yes"), "OK", "it is on already");
            writes();
            assert_eq!(client.run("CONFIG SET appendonly no"), "OK");
            assert_eq!(client.info("persistence", "aof_enabled"), "0");
            assert!(!folder(&node).exists());
            writes();
        }
        assert_eq!(client.run("CONFIG SET appendonly yes"), "OK");
        for policy in ["always", "no", "everysec"] {
            assert_eq!(client.run(&format!("CONFIG SET appendfsync {policy}")), "OK");
            writes();
        }
    });
    let dir = node.dir.clone();
    drop(node);
    let said = refusal(&dir, off);
    assert!(said.contains("appendonly is no: set appendonly yes"), "{said}");
    let node = Node::start_in(&dir, None, PERSISTENT);
    let n: u64 = loaded(&node).run("GET n").trim_matches('"').parse().unwrap();
    let acknowledged = acknowledged.into_inner();
    assert!(n == acknowledged || n == acknowledged + 1, "{n} of {acknowledged}");
    assert_eq!(node.connect().run("CONFIG SET appendonly no"), "OK");
    let node = again(node, off);
    assert_eq!(node.connect().run("DBSIZE"), "(integer) 0");
}

#[test]
fn commands_that_have_lost_their_names_are_replayed() {
    let node = Node::start(PERSISTENT);
    let mut client = node.connect();
    client.run("SET checkpoint 1");
    client.run("BGREWRITEAOF");
    eventually("there is a new checkpoint", || client.info("persistence", "aof_rewrites") == "1");
    client.send(b"MULTI\r\nSET a 1\r\nRPUSH l 1\r\nEXEC\r\nRPUSH l 2\r\nSET b 1\r\n");
    for _ in 0..6 {
        client.read();
    }
    let before = digest(&mut client);
    // Of the two pairs of words, the first one removes a name.
    let file = node.dir.path().join("node.conf");
    fs::write(&file, "rename-command SET \"\"\nrename-command RPUSH push\n").unwrap();
    let dir = node.dir.clone();
    drop(node);
    let node = Node::start_in(&dir, Some(&file), PERSISTENT);
    let mut client = loaded(&node);
    assert_eq!(digest(&mut client), before);
    assert!(client.run("SET a 2").starts_with("(error) ERR unknown command"));
    assert!(client.run("REPLAY-AT 1").starts_with("(error) ERR unknown command"));
}

/// What was accepted comes back, although there is no room for it.
#[test]
fn a_full_dataset_comes_back() {
    let node = Node::start(PERSISTENT);
    let mut client = node.connect();
    client.run("SET counter 0");
    for n in 0..400 {
        client.call(&[b"SET", format!("k{n}").as_bytes(), &[b'x'; 50_000]]);
    }
    client.run("BGREWRITEAOF");
    eventually("there is a new checkpoint", || client.info("persistence", "aof_rewrites") == "1");
    client.send(b"MULTI\r\nAPPEND k1 y\r\nINCR counter\r\nEXEC\r\nAPPEND k2 y\r\n");
    for _ in 0..5 {
        client.read();
    }
    let before = digest(&mut client);
    let limit = (node.resident_bytes() - (27 << 20)).to_string();
    let tight = with(&[("ram-limit", &limit)]);
    let node = kill(node, &tight);
    let mut client = loaded(&node);
    assert_eq!(digest(&mut client), before);
    eventually("it is full", || client.run("APPEND k3 y").starts_with("(error) OOM"));
}

/// What a node prints that does not start in this directory.
pub fn refusal(dir: &tempfile::TempDir, directives: &[(&str, &str)]) -> String {
    let path = dir.path().display().to_string();
    let directives: Vec<_> = directives.iter().copied().chain([("dir", path.as_str())]).collect();
    Node::try_start_alone(free_port(), &directives).expect_err("it must not start")
}

#[test]
fn damage_is_refused_with_advice() {
    let node = Node::start(PERSISTENT);
    let mut client = node.connect();
    fill(&mut client, 5);
    client.run("BGREWRITEAOF");
    eventually("there is a new checkpoint", || client.info("persistence", "aof_rewrites") == "1");
    fill(&mut client, 6);
    let before = digest(&mut client);
    let (dir, journal) = (node.dir.clone(), folder(&node));
    let second = refusal(&dir, PERSISTENT);
    assert!(second.contains("in use by another"), "{second}");
    client.send(b"SHUTDOWN\r\n").rest();
    drop(node);

    let names = fs::read_dir(&journal).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let checkpoint = names.into_iter().find(|name| name.starts_with("base-")).unwrap();
    let advice = "move it away to start without it";
    for (name, at, why) in [
        (&*checkpoint, 1000, advice),
        ("manifest", 30, "the manifest is damaged"),
        // Behind the checkpoint, and before the closing frame.
        ("journal-0000", usize::MAX, advice),
    ] {
        let path = journal.join(name);
        let whole = fs::read(&path).unwrap();
        let mut bytes = whole.clone();
        let at = if at == usize::MAX { last_used(&bytes[..last_used(&bytes) & !4095]) } else { at };
        bytes[at] ^= 4;
        fs::write(&path, &bytes).unwrap();
        let said = refusal(&dir, PERSISTENT);
        assert!(said.contains(why), "{name}: {said}");
        fs::remove_file(&path).unwrap();
        let said = refusal(&dir, PERSISTENT);
        assert!(said.contains("move"), "without {name}: {said}");
        fs::write(&path, &whole).unwrap();
    }
    let node = Node::start_in(&dir, None, PERSISTENT);
    assert_eq!(digest(&mut loaded(&node)), before, "with all files");
}

/// A replay's commands get no replies but errors, and none of these may be lost: before a barrier, and at the end.
#[test]
fn a_record_that_cannot_run_is_refused() {
    for behind in ["SET later 1", "MSET a 1 b 2"] {
        let mut node = Node::start(PERSISTENT);
        let mut client = node.connect();
        for command in ["SET before 1", "SELECT 9", "SET key 1", "SELECT 0", behind] {
            assert_eq!(client.run(command), "OK");
        }
        node.signal(SIGKILL);
        node.ended();
        let dir = node.dir.clone();
        drop(node);
        let said = refusal(&dir, &with(&[("databases", "4")]));
        assert!(said.contains("the database answers: ERR DB index is out of range"), "{said}");
        let node = Node::start_in(&dir, None, PERSISTENT);
        assert_eq!(loaded(&node).run("DBSIZE"), if behind.starts_with('M') { "(integer) 3" } else { "(integer) 2" });
    }
}

/// The last byte that is not zero.
fn last_used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|&byte| byte != 0).unwrap()
}
