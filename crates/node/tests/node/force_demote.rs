//! `debug-tier-mode cold`: every value that a command has touched is on flash when the command's reply arrives.

use crate::common::{Client, Node, eventually};

fn values_in_ram(client: &mut Client) -> u64 {
    client.info("tiering", "values_in_ram").parse().unwrap()
}

fn flash_reads(client: &mut Client) -> u64 {
    client.info("tiering", "flash_kv_reads").parse().unwrap()
}

/// Runs lines. Checks each reply, and that no value is in RAM afterwards.
fn story(client: &mut Client, lines: &[(&str, &str)]) {
    for (line, reply) in lines {
        assert_eq!(client.run(line), *reply, "{line}");
        if reply != &"QUEUED" && !line.starts_with("MULTI") {
            assert_eq!(values_in_ram(client), 0, "after {line}");
        }
    }
}

#[test]
fn every_path_of_a_command_leaves_its_values_on_flash() {
    let flash = tempfile::tempdir().unwrap();
    let path = flash.path().to_str().unwrap();
    let node =
        Node::start(&[("flash-path", path), ("memory-limit", "80mb"), ("ram-limit", "64mb"), ("io-threads", "2")]);
    let mut client = node.connect();
    assert_eq!(client.run("SET before 1"), "OK");
    assert_eq!(values_in_ram(&mut client), 1);
    story(
        &mut client,
        &[
            ("CONFIG SET debug-tier-mode cold", "OK"),
            ("SET s 1", "OK"),
            ("INCR s", "(integer) 2"),
            ("GET before", "\"1\""),
            ("HSET h a 1 b 2", "(integer) 2"),
            ("HINCRBY h a 5", "(integer) 6"),
            ("RPUSH l a b c", "(integer) 3"),
            ("LPOP l", "\"a\""),
            ("SADD m 1 2 x", "(integer) 3"),
            ("ZADD z 1 a 2 b", "(integer) 2"),
            ("XADD x 1-1 f v", "\"1-1\""),
            ("SET wb 7", "OK"),
            ("SORT l ALPHA GET w*", "1) \"7\"\n2) (nil)"),
            ("RENAME h g", "OK"),
            ("MOVE g 3", "(integer) 1"),
            ("LPUSH s x", "(error) WRONGTYPE Operation against a key holding the wrong kind of value"),
            ("MULTI", "OK"),
            ("INCR s", "QUEUED"),
            ("SELECT 3", "QUEUED"),
            ("HGET g b", "QUEUED"),
            ("SELECT 0", "QUEUED"),
            ("EXEC", "1) (integer) 3\n2) OK\n3) \"2\"\n4) OK"),
            ("EVAL \"return redis.call('incr', 's') + redis.call('llen', 'l')\" 0", "(integer) 6"),
            ("BLPOP none l 0", "1) \"l\"\n2) \"b\""),
            ("SWAPDB 0 3", "OK"),
            ("HGETALL g", "1) \"a\"\n2) \"6\"\n3) \"b\"\n4) \"2\""),
        ],
    );
    // Expiry is noticed and published too.
    let mut listener = node.connect();
    assert_eq!(client.run("CONFIG SET notify-keyspace-events Exh"), "OK");
    listener.run("PSUBSCRIBE __keyevent@0__:*");
    client.run("SET brief 1 PX 30");
    assert!(listener.read().ends_with("\"__keyevent@0__:expired\"\n4) \"brief\""));
    client.run("HSET parts f v");
    client.run("HPEXPIRE parts 30 FIELDS 1 f");
    let names: Vec<String> = (0..3).map(|_| listener.read()).collect();
    assert!(names[2].ends_with("\"__keyevent@0__:hexpired\"\n4) \"parts\""), "{names:?}");
    assert_eq!(client.run("EXISTS brief parts"), "(integer) 0");
    // Another connection, most likely of the other worker, reads what this one wrote.
    let mut other = node.connect();
    for number in 0..200 {
        let before = flash_reads(&mut client);
        assert_eq!(client.run(&format!("SET shared {number}")), "OK");
        assert_eq!(other.run("GET shared"), format!("\"{number}\""));
        assert_eq!(flash_reads(&mut client), before + 1);
    }
    assert_eq!(client.run("CONFIG SET debug-tier-mode off"), "OK");
    assert_eq!((client.run("SET s 1").as_str(), values_in_ram(&mut client)), ("OK", 1));
}

#[test]
fn a_blocked_client_is_served_and_the_key_moves_to_flash() {
    let flash = tempfile::tempdir().unwrap();
    let path = flash.path().to_str().unwrap();
    let node = Node::start(&[
        ("flash-path", path),
        ("memory-limit", "80mb"),
        ("ram-limit", "64mb"),
        ("io-threads", "2"),
        ("debug-tier-mode", "cold"),
    ]);
    let mut client = node.connect();
    let mut waiting: Vec<Client> = (0..3).map(|_| node.connect()).collect();
    assert_eq!(client.run("RPUSH to 0"), "(integer) 1");
    for (number, waiting) in waiting.iter_mut().enumerate() {
        waiting.send(b"BLMOVE from to LEFT RIGHT 0\r\n");
        eventually("it waits", || client.info("clients", "blocked_clients") == (number + 1).to_string());
    }
    assert_eq!(client.run("RPUSH from a b c d"), "(integer) 4");
    let served: Vec<String> = waiting.iter_mut().map(Client::read).collect();
    assert_eq!(served, ["\"a\"", "\"b\"", "\"c\""]);
    assert_eq!(client.run("LRANGE to 0 -1"), "1) \"0\"\n2) \"a\"\n3) \"b\"\n4) \"c\"");
    assert_eq!(client.run("LRANGE from 0 -1"), "1) \"d\"");
    eventually("all is on flash", || values_in_ram(&mut client) == 0);
}
