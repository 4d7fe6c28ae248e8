//! KEYS, SCAN and RANDOMKEY on keys whose names are on flash, and the end of a long command when its client is gone.

use crate::common::{Client, Node, eventually};
use flintkv_tests::Random;

const SIGSTOP: i32 = 19;
const SIGCONT: i32 = 18;

/// A node with so many cold keys of 500 bytes in logical database 0, and some keys in database 1.
fn filled(keys: usize) -> (tempfile::TempDir, Node) {
    let flash = tempfile::tempdir().unwrap();
    let path = flash.path().to_str().unwrap();
    let node =
        Node::start(&[("flash-path", path), ("memory-limit", "300mb"), ("ram-limit", "200mb"), ("io-threads", "1")]);
    let (mut client, mut random) = (node.connect(), Random::new(5));
    node.limit_objects(1 << 20);
    client.set_all((0..keys).map(|number| (format!("memtier-{number}"), random.noise(500))));
    client.run("SELECT 1");
    client.set_all((0..100).map(|number| (format!("other-{number}"), "v")));
    eventually("most values are on flash", || client.info_number("tiering", "values_in_ram") < keys as u64 / 4);
    (flash, node)
}

fn sorted(reply: &str) -> Vec<String> {
    let mut names: Vec<String> = reply.lines().map(|line| line.split('"').nth(1).unwrap().to_owned()).collect();
    names.sort();
    names
}

fn flash_reads(client: &mut Client) -> u64 {
    client.info_number("tiering", "flash_reads")
}

/// Once, KEYS over 750,000 cold keys read 750,000 pages one after the other.
#[test]
fn keys_and_scan_name_cold_keys_with_few_reads() {
    const KEYS: usize = 20_000;
    let (_flash, node) = filled(KEYS);
    let mut client = node.connect();
    let few: Vec<String> = (0..10).map(|number| format!("memtier-1999{number}")).collect();
    let before = flash_reads(&mut client);
    assert_eq!(sorted(&client.run("KEYS memtier-1999?")), few);
    let found = client.scan(&[b"SCAN"], &[b"MATCH", b"memtier-1999?", b"COUNT", b"100000"]).unwrap();
    let mut found: Vec<String> = found.into_iter().map(|name| String::from_utf8(name).unwrap()).collect();
    found.sort();
    assert_eq!(found, few);
    assert_eq!(client.scan(&[b"SCAN"], &[b"TYPE", b"list", b"COUNT", b"1000"]).unwrap().len(), 0);
    let reads = flash_reads(&mut client) - before;
    assert!((10..KEYS as u64 / 8).contains(&reads), "{reads} reads");
    // A transaction and a script do not wait, and have the same names.
    assert_eq!(client.run("MULTI"), "OK");
    assert_eq!(client.run("KEYS memtier-1999?"), "QUEUED");
    let reply = client.run("EXEC").replacen("1) ", "", 1);
    assert_eq!(sorted(&reply), few);
    assert_eq!(client.run("EVAL \"return #redis.call('KEYS', '*')\" 0"), format!("(integer) {KEYS}"));
    assert_eq!(client.run("EVAL \"return #redis.call('SCAN', 0, 'COUNT', 5000)[2]\" 0"), "(integer) 5000");
    let reads = flash_reads(&mut client) - before;
    assert!(reads < KEYS as u64 / 2, "{reads} reads");
    assert!(client.run("RANDOMKEY").starts_with("\"memtier-"));
    // Each logical database has its own.
    client.run("SELECT 1");
    assert_eq!(sorted(&client.run("KEYS *")).len(), 100);
    assert_eq!(client.run("KEYS memtier-1999?"), "(empty array)");
    assert_eq!(client.run("SWAPDB 0 1"), "OK");
    assert_eq!(sorted(&client.run("KEYS memtier-1999?")), few);
}

/// Once, KEYS went on for minutes after its client had hung up.
#[test]
fn a_long_command_ends_when_its_client_is_gone() {
    const KEYS: usize = 60_000;
    let (_flash, node) = filled(KEYS);
    let mut client = node.connect();
    let pages = KEYS as u64 / 8;
    let has_run =
        |client: &mut Client, name: &str| client.run("INFO commandstats").contains(&format!("cmdstat_{name}:"));
    for command in ["KEYS *", "SCAN 0 MATCH x* COUNT 100000", "DEBUG FLINT-DIGEST"] {
        let before = client.info_number("tiering", "flash_read_bytes") / 4096;
        let mut gone = node.connect();
        assert_eq!(gone.run("PING"), "PONG");
        // The node sees the command and the end of the connection at the same time.
        node.signal(SIGSTOP);
        gone.send(format!("{command}\r\n").as_bytes());
        drop(gone);
        node.signal(SIGCONT);
        eventually("the connection is closed", || client.info_number("clients", "connected_clients") == 1);
        let read = client.info_number("tiering", "flash_read_bytes") / 4096 - before;
        assert!(read < pages / 4, "{command}: {read} pages of {pages}");
    }
    let mut long = node.connect();
    let id = long.run("CLIENT ID").replace("(integer) ", "");
    node.signal(SIGSTOP);
    long.send(b"KEYS *\r\n");
    client.send(format!("CLIENT KILL ID {id}\r\n").as_bytes());
    node.signal(SIGCONT);
    assert_eq!(client.read(), "(integer) 1");
    assert_eq!(long.read(), "(closed)");
    assert!(["keys", "scan", "debug|flint-digest"].iter().all(|name| !has_run(&mut client, name)));
    // Who stays gets all.
    assert_eq!(sorted(&client.run("KEYS memtier-5*")).len(), 11_111);
    assert!(has_run(&mut client, "keys"));
}
