//! A running Redis moves into a node with `flintkv migrate`, while clients write to it.

use flintkv_tests::{Client, Node, Redis, binary, eventually, one_line};
use resp::client::Value;
use std::io::{Read, Write};
use std::process::{Child, Command, Output, Stdio};
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

fn library(name: &str, function: &str) -> String {
    format!("#!lua name={name}\nredis.register_function('{function}', function() return '{function}' end)")
}

/// Keys of every type, in two logical databases, and functions.
fn fill(client: &mut Client) {
    assert_eq!(client.words(&[b"FUNCTION", b"LOAD", library("one", "f").as_bytes()]), "\"one\"");
    for number in 0..300 {
        for line in [
            format!("SET s:{number} value-{number}"),
            format!("SET e:{number} v EX 5000"),
            format!("RPUSH l:{number} a b c {number}"),
            format!("HSET h:{number} f 1 g {number}"),
            format!("SADD t:{number} a b {number}"),
            format!("ZADD z:{number} 0.1 a {number}.7 b"),
            format!("PFADD p:{number} a b {number}"),
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

/// A text that is a number as that number.
fn number(value: Value) -> Value {
    let parsed = match &value {
        Value::Bulk(text) => std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()),
        _ => None,
    };
    parsed.map_or(value, Value::Double)
}

/// Asserts that both have the same data after the writers have stopped.
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
            // Redis before 7.2 shows 0.1 with seventeen digits.
            let called = |client: &mut Client| match client.call(&read) {
                Value::Array(all) if read[0] == b"ZRANGE" => Value::Array(all.into_iter().map(number).collect()),
                other => other,
            };
            let (our, their) = (called(&mut ours), called(&mut theirs));
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
    assert!(said.contains("all are the same") && said.contains("is now independent"), "{said}");
    assert!(said.contains("libraries of functions: the same"), "{said}");
    assert_eq!(node.connect().run("FCALL f 0"), "\"f\"");
    // The change was intended, so no second primary is reported.
    assert_eq!(node.connect().info("replication", "role"), "master");
    assert!(!node.connect().run("INFO replication").contains("promoted_while_primary_up:1"));
    // After the switch the source accepts writes again, which are no longer copied.
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
fn what_no_notification_tells_of_is_copied_at_the_switch() {
    let Some(redis) = Redis::if_installed(&[]) else { return };
    let node = Node::start(&[]);
    let mut client = redis.connect();
    for line in
        ["XADD x 1-1 f 1", "XADD x 2-1 f 2", "XGROUP CREATE x g 0", "XREADGROUP GROUP g ann STREAMS x >", "PFADD p a"]
    {
        assert!(!client.run(line).starts_with("(error)"), "{line}");
    }
    assert_eq!(client.words(&[b"FUNCTION", b"LOAD", library("one", "f").as_bytes()]), "\"one\"");
    let mut migration = Migration::start(&redis, &node, &["--method", "copy", "--users"]);
    migration.is_ready();
    // Changes between the comparison and the switch.
    for line in [
        "XACK x g 1-1",
        "XCLAIM x g bob 0 2-1",
        "PFCOUNT p",
        "SET late 1",
        "SET brief 1 PX 1",
        "ACL SETUSER ann on >word ~a:* resetchannels &news -@all +get +set",
    ] {
        assert!(!client.run(line).starts_with("(error)"), "{line}");
    }
    assert_eq!(client.words(&[b"FUNCTION", b"LOAD", library("two", "g").as_bytes()]), "\"two\"");
    let said = migration.switch();
    assert!(said.contains("1 ACL users are moved (ann)"), "{said}");
    let mut ours = node.connect();
    for (line, reply) in [
        ("XPENDING x g", "1) (integer) 1\n2) \"2-1\"\n3) \"2-1\"\n4) 1) 1) \"bob\"\n      2) \"1\""),
        ("PFCOUNT p", "(integer) 1"),
        ("GET late", "\"1\""),
        ("GET brief", "(nil)"),
        ("FCALL f 0", "\"f\""),
        ("FCALL g 0", "\"g\""),
        ("AUTH ann word", "OK"),
        ("SET a:1 v", "OK"),
        ("DEL a:1", "(error) NOPERM User ann has no permissions to run the 'del' command"),
    ] {
        assert_eq!(ours.run(line), reply, "{line}");
    }
}

#[test]
fn what_is_not_moved_is_named() {
    let Some(redis) = Redis::if_installed(&[]) else { return };
    let node = Node::start(&[]);
    let mut client = redis.connect();
    for line in ["SET a:1 v", "SET b:1 v", "ACL SETUSER ann on >word ~a:* &* +@all", "EVAL 'return 1' 0"] {
        assert!(!client.run(line).starts_with("(error)"), "{line}");
    }
    let said = text(&migrate(&redis, &node, &["--rehearse"]));
    for part in
        ["not moved: the settings (CONFIG GET *)", "1 ACL users (ann), unless --users is given", "1 cached scripts"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    // A key that the user may not read must not be treated as absent.
    let from = format!("redis://ann:word@127.0.0.1:{}", redis.port);
    let to = format!("redis://127.0.0.1:{}", node.port);
    let mut command = Command::new(binary());
    command.args(["migrate", "--from", &from, "--to", &to, "--method", "copy", "--switch", "--force"]);
    let output = command.stdin(Stdio::null()).output().expect("the binary runs");
    assert!(!output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("NOPERM"), "{}", text(&output));
}

#[test]
fn a_source_that_is_emptied_meanwhile_is_not_switched_from() {
    let Some(redis) = Redis::if_installed(&["--notify-keyspace-events", "Ex"]) else { return };
    let node = Node::start(&[]);
    let mut client = redis.connect();
    client.run("SET k 1");
    let mut migration = Migration::start(&redis, &node, &["--method", "copy"]);
    migration.is_ready();
    // Listeners for expired keys still get their events.
    assert!(one_line(&client.call(&[b"CONFIG", b"GET", b"notify-keyspace-events"])).contains('E'));
    assert_eq!(client.run("FLUSHDB"), "OK");
    let said = migration.fails();
    assert!(said.contains("was emptied") && said.contains("start again"), "{said}");
    assert!(one_line(&client.call(&[b"CONFIG", b"GET", b"notify-keyspace-events"])).contains("\"xE\""));
}

/// A migration that waits for Enter.
struct Migration {
    child: Child,
    said: String,
}

impl Migration {
    fn start(redis: &Redis, node: &Node, args: &[&str]) -> Migration {
        let (from, to) = (format!("redis://127.0.0.1:{}", redis.port), format!("redis://127.0.0.1:{}", node.port));
        let mut command = Command::new(binary());
        command.args(["migrate", "--from", &from, "--to", &to]).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Migration { child: command.spawn().expect("the binary runs"), said: String::new() }
    }

    /// Waits until both are compared.
    fn is_ready(&mut self) {
        let stderr = self.child.stderr.as_mut().unwrap();
        while !self.said.contains("all are the same") {
            let mut byte = [0];
            assert_eq!(stderr.read(&mut byte).unwrap(), 1, "{}", self.said);
            self.said.push(byte[0].into());
        }
    }

    fn end(mut self) -> (bool, String) {
        let stdin = self.child.stdin.take();
        let output = self.child.wait_with_output().unwrap();
        drop(stdin);
        (output.status.success(), format!("{}{}", self.said, text(&output)))
    }

    fn switch(mut self) -> String {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        let (has_succeeded, said) = self.end();
        assert!(has_succeeded, "{said}");
        said
    }

    fn fails(self) -> String {
        let (has_succeeded, said) = self.end();
        assert!(!has_succeeded, "{said}");
        said
    }
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
