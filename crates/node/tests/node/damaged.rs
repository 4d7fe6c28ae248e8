//! Values on flash that are damaged: a start goes on without them, and a replica too. What a record of the journal would have made of such a
//! value is lost, and says so, until the key is set again or deleted.

use crate::common::{Client, Node, eventually};
use crate::kept_flash::{TIERED, new_checkpoint};
use crate::persist::{SIGKILL, again, kill, loaded, with};
use crate::replica::{follow, is_up};
use flintkv_tests::Random;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Values lie on flash as they were sent.
const COLD: &[(&str, &str)] = &[
    ("debug-tier-mode", "cold"),
    ("flash-compression", "none"),
    ("scrub-interval", "0"),
    ("auto-aof-rewrite-percentage", "0"),
];
/// Of a value: it has some pages for itself.
const BYTES: usize = 20_000;
/// What the tests write lies before this.
const WRITTEN_BYTES: usize = 8 << 20;

/// The middles of the records that begin with these words: so far behind them nothing but their own values lies.
fn places(flash: &Path, words: &[&str]) -> Vec<Vec<u64>> {
    let mut bytes = vec![0; WRITTEN_BYTES];
    File::open(flash).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    let mut places = vec![Vec::new(); words.len()];
    for at in (0..bytes.len()).filter(|&at| bytes[at] == b'~') {
        for (word, places) in words.iter().zip(&mut places) {
            if bytes[at..].starts_with(word.as_bytes()) {
                places.push((at + BYTES / 2) as u64);
            }
        }
    }
    words.iter().zip(&places).for_each(|(word, places)| assert!(!places.is_empty(), "{word} is on flash"));
    places
}

fn flip(flash: &Path, places: &[u64]) {
    let file = File::options().read(true).write(true).open(flash).unwrap();
    for &at in places {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 4], at).unwrap();
    }
    file.sync_all().unwrap();
}

fn flash_of(node: &Node) -> PathBuf {
    let mut files = node.dir.path().join("flash").read_dir().unwrap().map(|file| file.unwrap().path());
    files.find(|path| path.extension().is_some_and(|end| end == "log")).expect("a flash file")
}

fn ok(client: &mut Client, line: &str) {
    let reply = client.run(line);
    assert!(!reply.contains("error"), "{line}: {reply}");
}

fn is_lost(client: &mut Client, line: &str) {
    let reply = client.run(line);
    assert!(reply.starts_with("(error) ERR this key's value is lost"), "{line}: {reply}");
}

fn is_damaged(client: &mut Client, line: &str) {
    let reply = client.run(line);
    assert!(reply.starts_with("(error) ERR this key's value on flash is damaged"), "{line}: {reply}");
}

fn lost_keys(client: &mut Client) -> u64 {
    client.info_number("persistence", "lost_keys")
}

#[test]
fn a_start_goes_on_where_values_are_damaged() {
    let directives = with(&[TIERED, COLD].concat());
    let mut node = Node::start(&directives);
    let mut client = node.connect();
    let mut random = Random::new(1);
    let strings = [
        "~append~",
        "~healed~",
        "~expire~",
        "~from~",
        "~exec~",
        "~script~",
        "~gone~",
        "~copied~",
        "~untouched~",
        "~over~",
        "~move~",
        "~nx~",
    ];
    for key in strings {
        client.call(&[b"SET", key.as_bytes(), &random.noise(BYTES)]);
    }
    client.call(&[b"HSET", b"~hash~", b"f", &random.noise(BYTES)]);
    client.call(&[b"SADD", b"~set~", &random.noise(BYTES)]);
    client.call(&[b"RPUSH", b"~list~", &random.noise(BYTES)]);
    client.call(&[b"RPUSH", b"~taken~", &random.noise(BYTES)]);
    for line in [
        "SET sound value",
        "SADD members a b",
        "SADD union old",
        "RPUSH queue 1 2 3",
        // They may have expired at the restart, so whoever removes one reads it.
        "PEXPIREAT ~gone~ 4000000000000",
        "PEXPIREAT ~nx~ 4000000000000",
    ] {
        ok(&mut client, line);
    }
    eventually("all values are on flash", || client.info_number("tiering", "values_in_flash") == 20);
    new_checkpoint(&mut client);
    let names = [&strings[..], &["~hash~", "~set~", "~list~", "~taken~"]].concat();
    let damage = places(&flash_of(&node), &names).concat();
    for line in [
        "APPEND ~append~ more",
        "APPEND ~healed~ more",
        "SET ~healed~ new",
        "HSET ~hash~ g more",
        "PEXPIREAT ~expire~ 4000000000000",
        "SUNIONSTORE union members ~set~",
        "RENAME ~from~ to",
        "DEL ~gone~",
        "COPY ~copied~ copy DB 3",
        "SET ~over~ new",
        "MOVE ~move~ 3",
        "LMOVE queue ~list~ LEFT RIGHT",
        "LMOVE ~taken~ other LEFT RIGHT",
        "EVAL \"redis.call('APPEND', KEYS[1], 'x') redis.call('SET', KEYS[2], 'beside')\" 2 ~script~ scripted",
        "MULTI",
        "SET beside value",
        "APPEND ~exec~ more",
        "APPEND ~exec~ more",
        "EXEC",
        // The key was not there.
        "DEL ~nx~",
        "SETNX ~nx~ new",
        "SET last value",
    ] {
        ok(&mut client, line);
    }
    node.signal(SIGKILL);
    node.ended();
    flip(&flash_of(&node), &damage);

    let node = again(node, &directives);
    let mut client = loaded(&node);
    let lost = [
        "STRLEN ~append~",
        "HGETALL ~hash~",
        "HLEN ~hash~",
        "TTL ~expire~",
        "GET ~expire~",
        "SMEMBERS union",
        "GET to",
        "TYPE to",
        "LRANGE ~list~ 0 -1",
        "LRANGE ~taken~ 0 -1",
        "LRANGE other 0 -1",
        "APPEND ~script~ x",
        "GET ~exec~",
    ];
    lost.iter().for_each(|line| is_lost(&mut client, line));
    ["GET ~copied~", "GET ~untouched~", "SMEMBERS ~set~"].iter().for_each(|line| is_damaged(&mut client, line));
    for (line, reply) in [
        ("GET ~healed~", "\"new\""),
        ("GET ~over~", "\"new\""),
        ("GET ~nx~", "\"new\""),
        ("EXISTS ~from~ ~gone~ ~move~", "(integer) 0"),
        ("GET sound", "\"value\""),
        ("GET beside", "\"value\""),
        ("GET scripted", "\"beside\""),
        ("GET last", "\"value\""),
        ("LLEN queue", "(integer) 2"),
        ("SCARD members", "(integer) 2"),
        ("SELECT 3", "OK"),
    ] {
        assert_eq!(client.run(line), reply, "{line}");
    }
    is_lost(&mut client, "GET copy");
    is_lost(&mut client, "GET ~move~");
    ok(&mut client, "SELECT 0");
    let keys = lost_keys(&mut client);
    assert_eq!(keys, 12, "append hash expire union to list taken other script exec; copy move");
    assert!(client.info_number("persistence", "lost_records") >= 12);
    let log = node.log();
    assert!(log.contains("12 keys are lost, because "), "{log}");
    assert!(log.contains("0:~append~ (append at ") && log.contains("3:copy (copy at "), "{log}");
    assert!(log.contains("; flash path 0, offset ") && !log.contains("0:~healed~ ("), "{log}");

    // All names that can be read are shown.
    let shown = client.scan(&[b"SCAN"], &[b"COUNT", b"3"]).unwrap();
    for name in ["sound", "beside", "~healed~", "queue"] {
        assert!(shown.contains(&name.as_bytes().to_vec()), "{name}");
    }
    assert!(client.run("KEYS *").contains("last"));
    ok(&mut client, "RANDOMKEY");

    // A checkpoint has them too.
    new_checkpoint(&mut client);
    let node = kill(node, &directives);
    let mut client = loaded(&node);
    lost.iter().for_each(|line| is_lost(&mut client, line));
    assert_eq!(lost_keys(&mut client), 12);
    assert_eq!(client.info("persistence", "lost_records"), "0");
    assert!(node.log().contains("12 keys are lost"), "{}", node.log());

    // Until they are set again or deleted.
    for line in
        ["SET ~append~ new", "UNLINK ~hash~ nosuch", "DEL ~expire~", "RENAME sound to", "SUNIONSTORE union members"]
    {
        ok(&mut client, line);
    }
    assert_eq!(client.run("MULTI"), "OK");
    ok(&mut client, "DEL ~exec~ ~script~");
    assert!(client.run("EXEC").contains("(integer) 2"));
    assert_eq!(lost_keys(&mut client), 12 - 7);
    // A damaged value with an expiry can be removed too.
    assert_eq!(client.run("HSET ~hash~ f v"), "(integer) 1");
    let node = kill(node, &directives);
    let mut client = loaded(&node);
    assert_eq!(client.run("GET ~append~"), "\"new\"");
    assert_eq!(client.run("GET to"), "\"value\"");
    assert_eq!(client.run("HLEN ~hash~"), "(integer) 1");
    assert_eq!(lost_keys(&mut client), 12 - 7);
    ok(&mut client, "FLUSHALL");
    assert_eq!(lost_keys(&mut client), 0);
}

#[test]
fn a_damaged_value_with_an_expiry_can_be_deleted() {
    let directives = with(&[TIERED, COLD].concat());
    let node = Node::start(&directives);
    let mut client = node.connect();
    let mut random = Random::new(2);
    let keys = ["~one~", "~two~", "~three~", "~four~"];
    for key in keys {
        client.call(&[b"SET", key.as_bytes(), &random.noise(BYTES), b"PXAT", b"4000000000000"]);
    }
    eventually("all values are on flash", || client.info_number("tiering", "values_in_flash") == 4);
    flip(&flash_of(&node), &places(&flash_of(&node), &keys).concat());
    keys.iter().for_each(|key| is_damaged(&mut client, &format!("GET {key}")));
    assert_eq!(client.run("DEL ~one~"), "(integer) 1");
    assert_eq!(client.run("UNLINK nosuch ~two~"), "(integer) 1");
    assert_eq!(client.run("MULTI"), "OK");
    ok(&mut client, "DEL ~three~");
    assert_eq!(client.run("EXEC").trim(), "1) (integer) 1");
    assert_eq!(client.run("EVAL \"return redis.call('UNLINK', KEYS[1])\" 1 ~four~"), "(integer) 1");
    assert_eq!(client.run("DBSIZE"), "(integer) 0");
}

/// A large collection of which one part is damaged.
#[test]
fn a_collection_is_lost_with_a_part_that_a_record_needs() {
    let directives = with(&[TIERED, COLD].concat());
    let mut node = Node::start(&directives);
    let mut client = node.connect();
    let mut random = Random::new(3);
    for name in ["large", "untouched"] {
        let mut words = vec![b"HSET".to_vec(), name.as_bytes().to_vec()];
        words.extend((0..300).flat_map(|field| [format!("~{name}-{field}~").into_bytes(), random.noise(1_000)]));
        client.call(&words.iter().map(Vec::as_slice).collect::<Vec<_>>());
    }
    eventually("the parts are on flash", || client.info_number("tiering", "flash_part_demotions") > 100);
    new_checkpoint(&mut client);
    let damage: Vec<u64> = places(&flash_of(&node), &["~large-150~", "~untouched-150~"])
        .concat()
        .iter()
        .map(|at| at - BYTES as u64 / 2)
        .collect();
    (0..300).for_each(|field| ok(&mut client, &format!("HSET large ~large-{field}~ new")));
    node.signal(SIGKILL);
    node.ended();
    flip(&flash_of(&node), &damage);
    let node = again(node, &directives);
    let mut client = loaded(&node);
    is_lost(&mut client, "HLEN large");
    assert_eq!(client.run("HLEN untouched"), "(integer) 300");
    is_damaged(&mut client, "HGET untouched ~untouched-150~");
    // Which fields share the damaged part is chosen by a hash whose secret differs from run to run.
    let is_whole = |field: &u32| client.run(&format!("HSTRLEN untouched ~untouched-{field}~")).contains("1000");
    let whole = (0..300).filter(is_whole).count();
    assert!((200..300).contains(&whole), "{whole} fields");
    assert_eq!(lost_keys(&mut client), 1);
}

#[test]
fn a_replica_loses_what_it_cannot_repeat_until_it_is_set_again() {
    let primary = Node::start(&with(&[TIERED, COLD].concat()));
    let replica = Node::start(&with(&[TIERED, COLD].concat()));
    let (mut to, mut from) = (primary.connect(), replica.connect());
    follow(&mut from, primary.port);
    is_up(&mut from);
    let mut random = Random::new(4);
    let keys = ["~append~", "~from~", "~gone~"];
    for key in keys {
        to.call(&[b"SET", key.as_bytes(), &random.noise(BYTES)]);
    }
    to.call(&[b"SADD", b"~set~", &random.noise(BYTES)]);
    ok(&mut to, "SADD union old");
    ok(&mut to, "PEXPIREAT ~gone~ 4000000000000");
    eventually("all values are on the replica's flash", || from.info_number("tiering", "values_in_flash") == 5);
    let names = [&keys[..], &["~set~"]].concat();
    flip(&flash_of(&replica), &places(&flash_of(&replica), &names).concat());
    for line in [
        "APPEND ~append~ more",
        "SUNIONSTORE union ~set~",
        "RENAME ~from~ to",
        "DEL ~gone~",
        "MULTI",
        "APPEND ~append~ x",
        "SET done 1",
        "EXEC",
    ] {
        ok(&mut to, line);
    }
    eventually("the replica has it", || from.run("GET done") == "\"1\"");
    ["GET ~append~", "SMEMBERS union", "GET to"].iter().for_each(|line| is_lost(&mut from, line));
    assert_eq!(from.run("EXISTS ~from~ ~gone~"), "(integer) 0");
    assert!(from.info_number("replication", "replica_failed_commands") >= 3);
    for line in ["SET ~append~ new", "SET done 2"] {
        ok(&mut to, line);
    }
    eventually("the replica has it", || from.run("GET done") == "\"2\"");
    assert_eq!(from.run("GET ~append~"), "\"new\"");
}
