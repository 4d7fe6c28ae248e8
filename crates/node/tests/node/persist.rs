//! Databases with `appendonly yes`: what is there after a kill, after a stop, and after damage.
//!
//! `FLINTKV_SEED` gives the clients the same commands again, but the kill comes at another moment. `FLINTKV_TEST_SECONDS`
//! makes more rounds.

use crate::common::{Client, Node, eventually, words};
use flintkv_tests::generator::Commands;
use flintkv_tests::{Random, one_line};
use resp::client::encode_command;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

const PERSISTENT: &[(&str, &str)] = &[("enable-debug-command", "yes"), ("appendonly", "yes")];
const SIGKILL: i32 = 9;

fn with<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    PERSISTENT.iter().chain(more).copied().collect()
}

/// Waits until the dataset is there.
fn loaded(node: &Node) -> Client {
    let mut client = node.connect();
    eventually("the dataset is loaded", || client.info("persistence", "loading") == "0");
    client
}

fn again(node: Node, directives: &[(&str, &str)]) -> Node {
    let dir = node.dir.clone();
    drop(node);
    Node::start_in(&dir, None, directives)
}

fn kill(mut node: Node, directives: &[(&str, &str)]) -> Node {
    node.signal(SIGKILL);
    node.ended();
    again(node, directives)
}

fn digest(client: &mut Client) -> String {
    let digest = client.run("DEBUG FLINT-DIGEST");
    assert_eq!(digest.len(), 64, "{digest}");
    digest
}

fn folder(node: &Node) -> PathBuf {
    node.dir.path().join("flintkv.journal")
}

/// A client's step: commands that are sent together and whose last reply acknowledges them all. They depend only on their
/// number, so that another node can repeat them.
fn step(client: u64, n: u64) -> Vec<String> {
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

/// A client over all rounds.
struct Worker {
    id: u64,
    /// The steps that were acknowledged, and those that were sent.
    acknowledged: u64,
    sent: u64,
    /// A connection to a node that is not killed, which has run `repeated` steps.
    repeated: u64,
}

const BURST: u64 = 6;

impl Worker {
    /// Sends steps until the node is gone.
    fn load(&mut self, mut connection: Client, random: &mut Random, total: &AtomicU64) {
        let db = self.db();
        connection.run(&format!("SELECT {db}"));
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
                    assert!(reply[0] != b'-' || is_allowed, "client {}: {text}", self.id);
                }
                self.acknowledged += 1;
                total.fetch_add(1, Relaxed);
            }
        }
    }

    /// The logical database that the client's last steps have chosen.
    fn db(&self) -> u64 {
        (0..self.acknowledged).rev().find(|n| n % 24 == 17).map_or(0, |n| n / 24 % 3)
    }

    /// What was acknowledged is there, and of what was sent behind it a beginning.
    fn check(&mut self, node: &Node, reference: &mut Client) {
        let mut connection = node.connect();
        let found = stored(&mut connection, self.id);
        let mut wanted = Vec::new();
        while self.repeated <= self.sent {
            if self.repeated >= self.acknowledged {
                wanted = stored(reference, self.id);
                if found == wanted {
                    self.acknowledged = self.repeated;
                    return;
                }
            }
            if self.repeated == self.sent {
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
        let differ: Vec<_> = found.iter().zip(&wanted).filter(|(found, wanted)| found != wanted).collect();
        panic!(
            "client {}: {} steps were acknowledged and {} sent. Found beside wanted: {differ:#?}, {} and {} keys",
            self.id,
            self.acknowledged,
            self.sent,
            found.len(),
            wanted.len()
        );
    }
}

const CLIENTS: u64 = 4;
const ROUNDS: usize = 3;

fn kill_under_load(seed: u64, more: &[(&str, &str)]) {
    let directives = with(more);
    let mut random = Random::new(seed);
    let reference = Node::start(&[]);
    let mut workers: Vec<_> = (0..CLIENTS).map(|id| Worker { id, acknowledged: 0, sent: 0, repeated: 0 }).collect();
    let mut node = Node::start(&directives);
    for round in 0..ROUNDS {
        let total = AtomicU64::new(0);
        let wanted = 50 + random.below(2500) as u64;
        thread::scope(|scope| {
            for worker in &mut workers {
                let (connection, total) = (node.connect(), &total);
                let mut random = Random::new(random.draw());
                scope.spawn(move || worker.load(connection, &mut random, total));
            }
            eventually("commands are acknowledged", || {
                if round == 1 && total.load(Relaxed) > wanted / 2 {
                    node.connect().run("BGREWRITEAOF");
                }
                total.load(Relaxed) >= wanted
            });
            node.signal(SIGKILL);
        });
        node = kill(node, &directives);
        if random.one_in(2) {
            // A recovery that is killed changes nothing.
            node = kill(node, &directives);
        }
        loaded(&node);
        let mut connection = reference.connect();
        for worker in &mut workers {
            worker.check(&node, &mut connection);
        }
    }
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill() {
    seeds::each(20_261_123, 1, |seed| kill_under_load(seed, &[]));
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill_with_every_policy() {
    for policy in ["always", "no"] {
        seeds::each(20_261_124, 1, |seed| kill_under_load(seed, &[("appendfsync", policy)]));
    }
}
