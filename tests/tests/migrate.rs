//! A running Redis moves into a node with `flintkv migrate`, while clients write to it.

use flintkv_tests::{Client, Node, Redis, binary, eventually, one_line};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

fn migrate(redis: &Redis, node: &Node, args: &[&str]) -> Output {
    let (from, to) = (format!("redis://127.0.0.1:{}", redis.port), format!("redis://127.0.0.1:{}", node.port));
    let mut command = Command::new(binary());
    command.args(["migrate", "--from", &from, "--to", &to]).args(args);
    command.stdin(Stdio::null()).output().expect("the binary runs")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout))
}

/// Keys of every type, in two logical databases.
fn fill(client: &mut Client) {
    for number in 0..300 {
        for line in [
            format!("SET s:{number} value-{number}"),
            format!("SET e:{number} v EX 5000"),
            format!("RPUSH l:{number} a b c {number}"),
            format!("HSET h:{number} f 1 g {number}"),
            format!("SADD t:{number} a b {number}"),
            format!("ZADD z:{number} 1.5 a {number} b"),
            format!("XADD x:{number} 1-{} f {number}", number + 1),
        ] {
            assert!(!client.run(&line).starts_with("(error)"), "{line}");
        }
    }
    assert_eq!(client.run("SELECT 3"), "OK");
    assert_eq!(client.run("SET other db"), "OK");
    assert_eq!(client.run("SELECT 0"), "OK");
}

/// A client of the source that writes until it is told to end. Returns how often it has counted.
struct Writer {
    ends: Arc<AtomicBool>,
    counted: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Writer {
    fn start(redis: &Redis) -> Writer {
        let mut client = redis.connect();
        let (ends, counted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (told, count) = (Arc::clone(&ends), Arc::clone(&counted));
        let thread = thread::spawn(move || {
            while !told.load(Relaxed) {
                let number = count.load(Relaxed) + 1;
                // The target's keys must follow values that change, keys that come, and keys that go.
                let lines =
                    [format!("SET w:{number} {number}"), format!("DEL s:{}", number % 300), "INCR counter".into()];
                for line in lines {
                    if client.run(&line).starts_with("(error)") {
                        return;
                    }
                }
                count.store(number, Relaxed);
                thread::sleep(Duration::from_millis(1));
            }
        });
        Writer { ends, counted, thread }
    }

    fn end(self) -> u64 {
        self.ends.store(true, Relaxed);
        self.thread.join().unwrap();
        self.counted.load(Relaxed)
    }
}

/// What both have, once nobody writes any more.
fn compare(redis: &Redis, node: &Node) {
    let (mut theirs, mut ours) = (redis.connect(), node.connect());
    for db in ["0", "3"] {
        for client in [&mut theirs, &mut ours] {
            assert_eq!(client.words(&[b"SELECT", db.as_bytes()]), "OK");
        }
        let names = theirs.scan(&[b"SCAN"], &[b"COUNT", b"1000"]).unwrap();
        assert_eq!(ours.call(&[b"DBSIZE"]), theirs.call(&[b"DBSIZE"]), "database {db}");
        for name in &names {
            let read: Vec<&[u8]> = match &*theirs.words(&[b"TYPE", name]) {
                "string" => vec![b"GET", name],
                "list" => vec![b"LRANGE", name, b"0", b"-1"],
                "hash" => vec![b"HMGET", name, b"f", b"g"],
                "set" => vec![b"SORT", name, b"ALPHA"],
                "zset" => vec![b"ZRANGE", name, b"0", b"-1", b"WITHSCORES"],
                "stream" => vec![b"XRANGE", name, b"-", b"+"],
                other => panic!("{other}"),
            };
            let (our, their) = (ours.call(&read), theirs.call(&read));
            assert_eq!(our, their, "{}: {}", name.escape_ascii(), one_line(&their));
        }
    }
}

fn moves(method: &str) {
    let Some(redis) = Redis::if_installed(&[]) else { return };
    let node = Node::start(&[]);
    fill(&mut redis.connect());
    let writer = Writer::start(&redis);
    let output = migrate(&redis, &node, &["--method", method, "--switch"]);
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("all are the same") && said.contains("is on its own now"), "{said}");
    // After the switch the source takes writes again, which nobody copies any more.
    let counted: u64 = node.connect().words(&[b"GET", b"counter"]).trim_matches('"').parse().unwrap();
    eventually("the writer goes on", || writer.counted.load(Relaxed) > counted);
    writer.end();
    assert!(counted > 0);
    assert_eq!(node.connect().run(&format!("GET w:{counted}")), format!("\"{counted}\""));
    assert_eq!(node.connect().run("SET mine now"), "OK");
    let events = redis.connect().call(&[b"CONFIG", b"GET", b"notify-keyspace-events"]);
    assert!(one_line(&events).contains("\"\""), "{}", one_line(&events));
}

#[test]
fn a_redis_is_followed_until_the_switch_while_clients_write() {
    moves("follow");
}

#[test]
fn a_redis_moves_key_by_key_while_clients_write() {
    moves("copy");
}

#[test]
fn a_copy_has_every_key_and_every_value() {
    let Some(redis) = Redis::if_installed(&[]) else { return };
    let node = Node::start(&[]);
    fill(&mut redis.connect());
    let output = migrate(&redis, &node, &["--method", "copy", "--switch"]);
    assert!(output.status.success(), "{}", text(&output));
    compare(&redis, &node);
}

#[test]
fn a_rehearsal_measures_and_a_target_with_keys_is_refused() {
    let Some(redis) = Redis::if_installed(&[]) else { return };
    let node = Node::start(&[]);
    fill(&mut redis.connect());
    let rehearsed = text(&migrate(&redis, &node, &["--rehearse"]));
    for part in ["keys", "on flash", "--memory-limit", "time", "method"] {
        assert!(rehearsed.contains(part), "{part}: {rehearsed}");
    }
    assert_eq!(node.connect().run("SET mine 1"), "OK");
    let output = migrate(&redis, &node, &["--switch"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("has 1 keys already, which would be lost"), "{}", text(&output));
    assert_eq!(node.connect().run("GET mine"), "\"1\"");
}

#[test]
fn a_source_that_is_not_there_or_asks_for_a_password_is_told() {
    let node = Node::start(&[("requirepass", "secret")]);
    let command = |args: &[&str]| {
        let mut command = Command::new(binary());
        command.arg("migrate").args(args).stdin(Stdio::null());
        let output = command.output().expect("the binary runs");
        assert!(!output.status.success());
        text(&output)
    };
    let here = format!("redis://127.0.0.1:{}", node.port);
    assert!(command(&["--from", &here, "--rehearse"]).contains("NOAUTH"));
    assert!(
        command(&["--from", &format!("redis://wrong@127.0.0.1:{}", node.port), "--rehearse"]).contains("WRONGPASS")
    );
    assert!(command(&["--from", "redis://127.0.0.1:1", "--rehearse"]).contains("refused"));
    assert!(command(&["--from", "http://x", "--rehearse"]).contains("a server's address is redis://"));
}
