//! The one executor: what a command leaves behind if it succeeds, fails, runs again, or panics.

use crate::common::{Client, Node, eventually};
use std::collections::BTreeSet;

/// Commands that fail on their key, which holds a string that is not a number.
const FAILING: [&str; 9] = [
    "INCR k",
    "INCRBYFLOAT k 1",
    "HSET k f v",
    "LPUSH k a",
    "SADD k a",
    "ZADD k 1 a",
    "XADD k * f v",
    "PFADD k a",
    "GETRANGE k x y",
];

#[test]
fn a_command_that_fails_breaks_no_watch() {
    let node = Node::start(&[]);
    let (mut watcher, mut other) = (node.connect(), node.connect());
    assert_eq!(other.run("SET k text"), "OK");
    for failing in FAILING {
        assert_eq!(watcher.run("WATCH k"), "OK");
        assert!(other.run(failing).starts_with("(error)"), "{failing}");
        assert_eq!(watcher.run("MULTI"), "OK");
        assert_eq!(watcher.run("GET k"), "QUEUED");
        assert_eq!(watcher.run("EXEC"), "1) \"text\"", "{failing}");
    }
    assert_eq!(watcher.run("WATCH k"), "OK");
    assert_eq!(other.run("APPEND k s"), "(integer) 5");
    watcher.run("MULTI");
    watcher.run("GET k");
    assert_eq!(watcher.run("EXEC"), "(nil)", "a command that succeeds does break it");
}

#[test]
fn a_command_that_fails_invalidates_no_cache_and_tells_no_event() {
    let node = Node::start(&[("notify-keyspace-events", "KEA")]);
    let (mut caching, mut listener, mut other) = (node.connect(), node.connect(), node.connect());
    other.run("SET k text");
    caching.run("HELLO 3");
    caching.run("CLIENT TRACKING ON");
    listener.run("PSUBSCRIBE __key*__:*");
    assert_eq!(caching.run("GET k"), "\"text\"");
    for failing in FAILING {
        assert!(other.run(failing).starts_with("(error)"), "{failing}");
        assert_eq!(caching.run("PING"), "PONG", "{failing}: no push comes before it");
    }
    other.run("SET done 1");
    assert!(listener.read().contains("__keyspace@0__:done"), "the first event is of what succeeded");
    other.run("SET k again");
    let told = caching.run("PING");
    assert!(told.contains("invalidate"), "{told}");
}

/// Of this many draws from a hundred members, at least a few differ.
fn draws(client: &mut Client, command: &str) -> BTreeSet<String> {
    (0..30).map(|_| client.run(command)).collect()
}

#[test]
fn random_members_differ_from_command_to_command() {
    let node = Node::start(&[]);
    let mut client = node.connect();
    for n in 0..100 {
        client.run(&format!("SADD s m{n}"));
        client.run(&format!("HSET h m{n} v"));
        client.run(&format!("ZADD z {n} m{n}"));
    }
    for command in ["SRANDMEMBER s", "HRANDFIELD h", "ZRANDMEMBER z", "RANDOMKEY"] {
        let drawn = draws(&mut client, command).len();
        assert!(drawn >= if command == "RANDOMKEY" { 2 } else { 10 }, "{command}: {drawn} of 30 differ");
    }
    // The position of the member that is taken from a set, which is filled again each time.
    let taken: BTreeSet<String> = (0..30)
        .map(|_| {
            let taken = client.run("SPOP s");
            client.run(&format!("SADD s {taken}"));
            taken
        })
        .collect();
    assert!(taken.len() >= 10, "SPOP: {} of 30 differ", taken.len());
    // In one pipeline, and on another connection.
    let mut pipeline = String::new();
    (0..30).for_each(|_| pipeline += "SRANDMEMBER s\r\n");
    client.send(pipeline.as_bytes());
    let drawn: BTreeSet<String> = (0..30).map(|_| client.read()).collect();
    assert!(drawn.len() >= 10, "in a pipeline {} of 30 differ", drawn.len());
}

#[test]
fn a_script_with_undeclared_keys_always_runs_inside_a_transaction() {
    let node = Node::start(&[]);
    let script = "redis.call('INCR', 'u' .. ARGV[1]); redis.call('INCR', 'u' .. ARGV[2]); return 1";
    std::thread::scope(|scope| {
        for thread in 0..8usize {
            let mut client = node.connect();
            scope.spawn(move || {
                for round in 0..100usize {
                    let (first, second) = ((thread * 7 + round) % 5, (thread + round * 3) % 5);
                    client.run("MULTI");
                    assert_eq!(client.run(&format!("SET d{thread} {round}")), "QUEUED");
                    assert_eq!(client.run(&format!("EVAL \"{script}\" 0 {first} {second}")), "QUEUED");
                    assert_eq!(client.run("EXEC"), "1) OK\n2) (integer) 1");
                }
            });
        }
    });
    let mut client = node.connect();
    let sum: i64 = (0..5).map(|n| client.run(&format!("GET u{n}")).trim_matches('"').parse::<i64>().unwrap()).sum();
    assert_eq!(sum, 2 * 8 * 100, "every INCR was carried out once");
}

#[test]
fn a_panic_before_any_change_closes_only_its_connection() {
    let node = Node::start(&[("enable-debug-command", "yes")]);
    let (mut client, mut other) = (node.connect(), node.connect());
    client.run("SET k 1");
    assert_eq!(client.run("DEBUG PANIC"), "(closed)");
    assert_eq!(other.run("INCR k"), "(integer) 2");
}

#[test]
fn a_panic_in_the_middle_of_a_change_stops_the_process() {
    let mut node = Node::start(&[("enable-debug-command", "yes")]);
    let mut client = node.connect();
    assert_eq!(client.run("DEBUG PANIC k"), "(closed)");
    let ended = node.ended();
    assert!(!ended.success(), "{ended:?}");
}

#[test]
fn blocked_clients_run_after_the_whole_transaction() {
    let node = Node::start(&[]);
    let (mut waiter, mut pusher) = (node.connect(), node.connect());
    waiter.send(b"BLPOP q 0\r\n");
    let mut info = node.connect();
    eventually("it waits", || info.info("clients", "blocked_clients") == "1");
    pusher.run("MULTI");
    pusher.run("RPUSH q a");
    pusher.run("LPUSH q b");
    pusher.run("LLEN q");
    assert_eq!(pusher.run("EXEC"), "1) (integer) 1\n2) (integer) 2\n3) (integer) 2");
    assert_eq!(waiter.read(), "1) \"q\"\n2) \"b\"");
    assert_eq!(pusher.run("LRANGE q 0 -1"), "1) \"a\"");
}

/// The usual command takes a shortcut while nothing is special. What is special begins and ends between two of them.
#[test]
fn a_pipeline_of_usual_commands_sees_what_begins_between_them() {
    let node = Node::start(&[]);
    let (mut client, mut watcher) = (node.connect(), node.connect());
    let mut say = |lines: &[(&str, &str)]| {
        let sent: String = lines.iter().map(|(line, _)| format!("{line}\r\n")).collect();
        client.send(sent.as_bytes());
        for (line, answer) in lines.iter().filter(|(_, answer)| !answer.is_empty()) {
            let read = client.read();
            assert!(read.contains(answer), "{line}: {read}, expected {answer}");
        }
    };
    say(&[
        ("SET k 1", "OK"),
        ("GET k", "\"1\""),
        ("MULTI", "OK"),
        ("SET k 2", "QUEUED"),
        ("GET k", "QUEUED"),
        ("EXEC", "1) OK\n2) \"2\""),
        ("GET k", "\"2\""),
        ("CLIENT REPLY SKIP", ""),
        ("SET k 3", ""),
        ("GET k", "\"3\""),
        ("CONFIG RESETSTAT", "OK"),
        ("GET k", "\"3\""),
        ("LPUSH k x", "WRONGTYPE"),
        ("GET", "wrong number of arguments for 'get'"),
        ("GET k", "\"3\""),
        ("INFO commandstats", "cmdstat_get:calls=2,"),
        ("INFO commandstats", "cmdstat_lpush:calls=1,"),
        ("INFO commandstats", "rejected_calls=0,failed_calls=1"),
        ("INFO errorstats", "errorstat_WRONGTYPE:count=1"),
        ("CONFIG SET slowlog-log-slower-than 0", "OK"),
        ("SLOWLOG RESET", "OK"),
        ("GET k", "\"3\""),
        ("CONFIG SET slowlog-log-slower-than -1", "OK"),
        ("SLOWLOG GET", "\"GET\""),
        ("SELECT 1", "OK"),
        ("GET k", "(nil)"),
        ("SELECT 0", "OK"),
        ("GET k", "\"3\""),
    ]);
    say(&[
        ("ACL SETUSER reader on nopass ~* +get +select +auth", "OK"),
        ("GET k", "\"3\""),
        ("AUTH reader any", "OK"),
        ("GET k", "\"3\""),
        ("SET k 5", "NOPERM"),
        ("GET k", "\"3\""),
    ]);
    assert_eq!(node.connect().run("CLIENT PAUSE 60000 WRITE"), "OK");
    let mut writer = node.connect();
    writer.send(b"GET k\r\nSET k 6\r\nGET k\r\n");
    assert_eq!(writer.read(), "\"3\"");
    let mut other = node.connect();
    assert_eq!(other.run("GET k"), "\"3\"");
    assert_eq!(other.run("CLIENT UNPAUSE"), "OK");
    assert_eq!((writer.read(), writer.read()), ("OK".to_owned(), "\"6\"".to_owned()));
    assert_eq!(watcher.run("MONITOR"), "OK");
    writer.send(b"GET k\r\nSET k 7\r\nGET k\r\n");
    assert_eq!([writer.read(), writer.read(), writer.read()], ["\"6\"", "OK", "\"7\""]);
    for shown in ["\"GET\" \"k\"", "\"SET\" \"k\" \"7\"", "\"GET\" \"k\""] {
        let line = watcher.read();
        assert!(line.ends_with(shown), "{line}");
    }
}
