//! Redis's files: what SAVE writes, what a node loads at its start, and what clients see meanwhile.

use crate::common::{Client, Node, Redis, eventually, free_port};
use flintkv_tests::generator::Commands;
use flintkv_tests::{Random, tool};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const FLASH: &[(&str, &str)] =
    &[("enable-debug-command", "yes"), ("flash-path", "flash"), ("memory-limit", "400mb"), ("ram-limit", "64mb")];

fn with<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    FLASH.iter().chain(more).copied().collect()
}

/// Random data of every type, in several logical databases, and collections that are split.
pub fn fill(client: &mut Client, seed: u64) {
    random(client, seed);
    let text = |n: usize| format!("{n}-{}", "a somewhat long element ".repeat(4));
    for n in 0..4000 {
        let text = text(n);
        let text = text.as_bytes();
        client.call(&[b"RPUSH", b"big:list", text]);
        client.call(&[b"SADD", b"big:set", text]);
        client.call(&[b"HSET", b"big:hash", text, text]);
        client.call(&[b"ZADD", b"big:zset", format!("{n}.25").as_bytes(), text]);
        client.call(&[b"XADD", b"big:stream", format!("{}-1", n + 1).as_bytes(), b"field", text]);
    }
    for line in [
        "XDEL big:stream 5-1 4000-1",
        "XGROUP CREATE big:stream group 0",
        "XREADGROUP GROUP group one COUNT 10 STREAMS big:stream >",
        "XREADGROUP GROUP group two COUNT 10 STREAMS big:stream >",
        "XACK big:stream group 3-1",
        "SET binary \"\\x00\\xff\\r\\n\"",
        "FUNCTION LOAD \"#!lua name=lib\\nredis.register_function('f', function() return 1 end)\"",
    ] {
        let reply = client.run(line);
        assert!(!reply.starts_with("(error)"), "{line}: {reply}");
    }
    // No key may expire during the test.
    for db in 0..3 {
        client.run(&format!("SELECT {db}"));
        let keys = client.scan(&[b"SCAN"], &[b"COUNT", b"1000"]).unwrap();
        for (n, key) in (0..).zip(keys) {
            if !client.words(&[b"PTTL", &key]).starts_with("(integer) -") {
                let at_ms = 4_000_000_000_000u64 + n;
                client.call(&[b"PEXPIREAT", &key, at_ms.to_string().as_bytes()]);
            }
        }
    }
    client.run("SELECT 0");
}

/// Random commands in three logical databases.
pub fn random(client: &mut Client, seed: u64) {
    let mut commands = Commands::on_data(seed, 40);
    for n in 0..1500 {
        if n % 500 == 0 {
            client.run(&format!("SELECT {}", n / 500));
        }
        for words in commands.single() {
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            client.call(&words);
        }
    }
    client.run("SELECT 0");
}

pub fn digests(client: &mut Client) -> (String, String) {
    let digests = (client.run("DEBUG DIGEST"), client.run("DEBUG FLINT-DIGEST"));
    assert_eq!(digests.1.len(), 64, "{}", digests.1);
    digests
}

pub fn loaded(client: &mut Client) {
    eventually("the dataset is loaded", || client.info("persistence", "loading") == "0");
}

fn check(dump: &Path) {
    let checked = tool("redis-check-rdb").arg(dump).output().unwrap();
    let said = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success() && said.contains("RDB looks OK!"), "{said}");
}

#[test]
fn a_saved_dataset_comes_back_from_ram_and_from_flash() {
    let node = Node::start(&with(&[("rdb-version", "12")]));
    let mut client = node.connect();
    fill(&mut client, 1);
    client.run("HSET volatile a 1 b 2 c 3");
    client.run("HPEXPIREAT volatile 4000000000000 FIELDS 1 a");
    client.run("HPEXPIREAT volatile 4000000000777 FIELDS 1 b");
    let before = digests(&mut client);
    let begun = client.run("LASTSAVE");
    assert_eq!(client.run("SAVE"), "OK");
    assert!(client.run("LASTSAVE") >= begun);
    assert_eq!(client.info("persistence", "rdb_saves"), "1");
    assert_eq!(digests(&mut client), before);

    // Once more from flash.
    assert_eq!(client.run("CONFIG SET debug-tier-mode cold"), "OK");
    assert_eq!(client.run("DEBUG RELOAD NOSAVE"), "OK");
    assert_eq!(digests(&mut client), before, "the dump of values in RAM");
    let [on_flash, in_ram, parts] =
        ["values_in_flash", "values_in_ram", "flash_part_demotions"].map(|field| client.info_number("tiering", field));
    assert!(
        on_flash > 100 && in_ram < on_flash / 4 && parts > 100,
        "{on_flash} on flash, {in_ram} in RAM, {parts} parts"
    );
    let promotions = client.info("tiering", "promotions");
    assert_eq!(client.run("SAVE"), "OK");
    assert_eq!(client.info("tiering", "promotions"), promotions, "nothing has come into RAM");

    let dir = node.dir.clone();
    drop(node);
    let node = Node::start_in(&dir, None, FLASH);
    let mut client = node.connect();
    loaded(&mut client);
    assert_eq!(digests(&mut client), before, "the dump of values on flash");
    assert!(client.info_number("persistence", "rdb_last_load_keys_loaded") > 100);
}

#[test]
fn redis_loads_what_is_saved_and_its_files_are_loaded() {
    let node = Node::start(FLASH);
    let mut client = node.connect();
    fill(&mut client, 2);
    assert_eq!(client.run("SAVE"), "OK");
    let dump = node.dir.path().join("dump.rdb");
    check(&dump);
    let dir = node.dir.path().to_str().unwrap();
    let Some(redis) = Redis::if_installed(&["--dir", dir, "--enable-debug-command", "yes"]) else { return };
    let mut theirs = redis.connect();
    loaded(&mut theirs);
    assert_eq!(theirs.run("DEBUG DIGEST"), client.run("DEBUG DIGEST"));
    assert_eq!(theirs.run("FCALL f 0"), "(integer) 1");
    assert_eq!(theirs.run("XPENDING big:stream group"), client.run("XPENDING big:stream group"));
    assert_eq!(theirs.run("XINFO GROUPS big:stream"), client.run("XINFO GROUPS big:stream"));

    // Back: a dump with Redis's own encodings, and an append-only file with a dump at its beginning.
    assert_eq!(theirs.run("CONFIG SET appendonly yes"), "OK");
    eventually("Redis has rewritten", || {
        theirs.info("persistence", "aof_rewrite_in_progress") == "0"
            && theirs.info("persistence", "aof_rewrite_scheduled") == "0"
            && node.dir.path().join("appendonlydir/appendonly.aof.manifest").exists()
    });
    assert_eq!(theirs.run("SAVE"), "OK");
    for line in ["SET after 1", "SELECT 5", "RPUSH l a b", "MULTI", "LPOP l", "INCR n", "EXEC", "SELECT 0"] {
        theirs.run(line);
    }
    let (saved, now) = (client.run("DEBUG DIGEST"), theirs.run("DEBUG DIGEST"));
    assert_ne!(saved, now);
    drop(redis);
    let reads = |appendonly| {
        let node = Node::start(&with(&[("dir", dir), ("appendonly", appendonly)]));
        let mut client = node.connect();
        loaded(&mut client);
        assert_eq!(client.run("FCALL f 0"), "(integer) 1");
        client.run("DEBUG DIGEST")
    };
    assert_eq!(reads("no"), saved);
    assert_eq!(reads("yes"), now);
}

/// What is asked of the stream `s` of [`long_stream`]. How long ago something was is no part of the dataset.
fn seen(client: &mut Client) -> Vec<String> {
    let lines =
        ["XLEN s", "XPENDING s g", "XINFO GROUPS s", "XRANGE s 6-0 8-0", "XREVRANGE s + - COUNT 1", "GET other"];
    lines.iter().map(|line| client.run(line)).collect()
}

/// A stream of 14 MB, a third of whose entries are pending, some of them deleted.
fn long_stream(client: &mut Client) {
    let text = [b'x'; 200];
    for from in (1..=60_000).step_by(500) {
        let mut bytes = Vec::new();
        for ms in from..from + 500 {
            let noise = format!("{ms}{}", std::str::from_utf8(&text).unwrap());
            resp::client::encode_command(
                &[b"XADD", b"s", format!("{ms}-0").as_bytes(), b"f", noise.as_bytes()],
                &mut bytes,
            );
        }
        client.send(&bytes);
        (0..500).for_each(|_| drop(client.read()));
    }
    assert_eq!(client.run("XGROUP CREATE s g 0"), "OK");
    for (name, count) in [("one", 15_000), ("two", 5000)] {
        client.words(&[
            b"XREADGROUP",
            b"GROUP",
            b"g",
            name.as_bytes(),
            b"COUNT",
            count.to_string().as_bytes(),
            b"STREAMS",
            b"s",
            b">",
        ]);
    }
    assert_eq!(client.run("XDEL s 7-0 9-0 16000-0"), "(integer) 3");
    assert_eq!(client.run("SET other 1"), "OK");
}

#[test]
fn a_stream_that_is_larger_than_the_limit_leaves_is_loaded_and_synchronised_in_parts() {
    let Some(redis) = Redis::if_installed(&["--enable-debug-command", "yes", "--repl-diskless-sync-delay", "0"]) else {
        return;
    };
    let mut primary = redis.connect();
    long_stream(&mut primary);
    let little =
        [("enable-debug-command", "yes"), ("flash-path", "flash"), ("memory-limit", "400mb"), ("ram-limit", "48mb")];
    // From redis-server's dump, over the network and from a file, and from that of a node.
    let node = Node::start(&little);
    let mut client = node.connect();
    super::replica::follow(&mut client, redis.port);
    let wanted = seen(&mut primary);
    assert_eq!(seen(&mut client), wanted, "a replica of redis-server");
    assert_eq!(client.info("replication", "master_link_error"), "");
    let digest = digests(&mut client);
    let replica = Node::start(&little);
    let mut of_replica = replica.connect();
    super::replica::follow(&mut of_replica, node.port);
    assert_eq!(
        (seen(&mut of_replica), digests(&mut of_replica)),
        (wanted.clone(), digest.clone()),
        "a replica of a node"
    );
    assert_eq!(of_replica.run("REPLICAOF NO ONE"), "OK");
    assert_eq!(of_replica.run("SAVE"), "OK");
    let dir = replica.dir.clone();
    drop(replica);
    let replica = Node::start_in(&dir, None, &little);
    let mut of_replica = replica.connect();
    loaded(&mut of_replica);
    assert_eq!((seen(&mut of_replica), digests(&mut of_replica)), (wanted, digest), "a file");
    // It goes on as any stream.
    eventually("there is room", || of_replica.run("XADD s 70000-0 f last") == "\"70000-0\"");
    assert_eq!(of_replica.run("XACK s g 15001-0"), "(integer) 1");
    // Clients have no such word.
    let payload = match of_replica.call(&[b"DUMP", b"other"]) {
        resp::client::Value::Bulk(payload) => payload,
        other => panic!("{other:?}"),
    };
    assert_eq!(of_replica.words(&[b"RESTORE", b"new", b"0", &payload, b"PART"]), "(error) ERR syntax error");
}

#[test]
fn clients_are_told_while_the_dataset_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("dump.rdb");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let node = Node::start(&[("dir", folder.path().to_str().unwrap())]);
    let mut client = node.connect();
    let loading = "(error) LOADING Redis is loading the dataset in memory";
    for line in ["PING", "GET k", "SAVE", "SET k v", "EVAL \"return 1\" 0"] {
        assert_eq!(client.run(line), loading, "{line}");
    }
    assert_eq!(client.info("persistence", "loading"), "1");
    assert!(client.info_number("persistence", "loading_start_time") > 0);
    assert!(!client.info("persistence", "loading_eta_seconds").is_empty());
    let mut dump = rdb::Writer::new(
        File::options().write(true).open(&pipe).unwrap(),
        rdb::Options { version: 10, compresses: false, has_checksum: true },
    );
    dump.key(b"k", None, value::rdb::Type::String).unwrap();
    dump.string(b"v").unwrap();
    dump.key(b"gone", Some(1), value::rdb::Type::String).unwrap();
    dump.string(b"v").unwrap();
    drop(dump.finish().unwrap());
    loaded(&mut client);
    eventually("clients are served", || client.run("PING") == "PONG");
    assert_eq!(client.run("GET k"), "\"v\"");
    assert_eq!(client.run("DBSIZE"), "(integer) 1");
    assert_eq!(client.info("persistence", "rdb_last_load_keys_expired"), "1");
}

#[test]
fn damaged_files_keep_the_node_from_starting() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let refused = |file: &str, bytes: &[u8], more: &[(&str, &str)]| {
        let path = folder.path().join(file);
        fs::write(&path, bytes).unwrap();
        let directives: Vec<(&str, &str)> = [("dir", dir)].iter().chain(more).copied().collect();
        let said = Node::try_start_alone(free_port(), &directives).expect_err("it must not start");
        fs::remove_file(path).unwrap();
        said
    };
    let said = refused("dump.rdb", b"REDIS0010\x00\x01k\x01v\x1f", &[]);
    assert!(said.contains("dump.rdb: byte 15: a record of the unknown type 31"), "{said}");
    let said = refused("dump.rdb", b"REDIS0010\x02\x01s\x02\x01a\x01a\xff\0\0\0\0\0\0\0\0", &[]);
    assert!(said.contains("a collection has a member twice"), "{said}");
    let said = refused("dump.rdb", b"REDIS0010\xfe\x32\x00\x01k\x01v\xff\0\0\0\0\0\0\0\0", &[]);
    assert!(said.contains("the database answers: ERR DB index is out of range"), "{said}");
    let aof = [("appendonly", "yes"), ("aof-load-truncated", "no")];
    let said = refused("appendonly.aof", b"*1\r\n$4\r\nPI", &aof);
    assert!(said.contains("appendonly.aof: it ends in the middle of a command"), "{said}");
    let said = refused("appendonly.aof", b"*2\r\n$6\r\nNOSUCH\r\n$1\r\nk\r\n", &aof);
    assert!(said.contains("the database answers: ERR unknown command"), "{said}");
}

#[test]
fn a_cut_append_only_file_is_loaded_up_to_the_last_whole_command() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("appendonly.aof");
    let words = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let args: Vec<String> = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
        format!("*{}\r\n{}", args.len(), args.concat())
    };
    let whole = ["SELECT 0", "SET a 1", "MULTI", "SET b 2", "EXEC", "LPUSH a wrong-type", "MULTI", "SET a 3"];
    let mut text: String = whole.iter().map(|line| words(line)).collect();
    text.push_str("*3\r\n$3\r\nSET\r\n$1\r\na");
    File::create(&file).unwrap().write_all(text.as_bytes()).unwrap();
    let node = Node::start(&[("dir", folder.path().to_str().unwrap()), ("appendonly", "yes")]);
    let mut client = node.connect();
    loaded(&mut client);
    eventually("clients are served", || client.run("PING") == "PONG");
    assert_eq!(client.run("MGET a b"), "1) \"1\"\n2) \"2\"");
    assert!(node.log().contains("is cut off and left out"), "{}", node.log());
    assert_eq!(fs::read(&file).unwrap(), text.as_bytes(), "the file is not changed");
}

#[test]
fn expiring_fields_are_not_lost_by_a_version_without_them() {
    let node = Node::start(&[("enable-debug-command", "yes")]);
    let mut client = node.connect();
    client.run("HSET h a 1 b 2");
    assert_eq!(client.run("SAVE"), "OK");
    let path = node.dir.path().join("dump.rdb");
    let before = fs::read(&path).unwrap();
    client.run("HPEXPIREAT h 4000000000000 FIELDS 1 a");
    assert_eq!(
        client.run("SAVE"),
        "(error) ERR 1 hashes have fields that expire, which version 10 of the format cannot hold: set rdb-version 12"
    );
    assert_eq!(client.info("persistence", "rdb_last_bgsave_status"), "err");
    assert_eq!(fs::read(&path).unwrap(), before, "the old dump stays");
    assert_eq!(fs::read_dir(node.dir.path()).unwrap().count(), 2, "the log and the dump: no draft is left");
    assert_eq!(client.run("CONFIG SET rdb-version 12"), "OK");
    for line in ["MULTI", "DEBUG RELOAD"] {
        client.run(line);
    }
    let refused = "1) (error) ERR DEBUG RELOAD cannot be a part of a transaction or script";
    assert_eq!(client.run("EXEC"), refused);
    assert_eq!(client.run("DEBUG RELOAD"), "OK");
    assert_eq!(client.run("HPEXPIRETIME h FIELDS 2 a b"), "1) (integer) 4000000000000\n2) (integer) -1");
    assert_eq!(client.info("persistence", "rdb_last_bgsave_status"), "ok");
}

#[test]
fn a_shutdown_saves_if_it_is_told_to() {
    let mut node = Node::start(&[]);
    node.connect().run("SET k v");
    node.connect().send(b"SHUTDOWN SAVE\r\n").rest();
    assert!(node.ended().success());
    let dir = node.dir.clone();
    let node = Node::start_in(&dir, None, &[]);
    let mut client = node.connect();
    eventually("clients are served", || client.run("PING") == "PONG");
    assert_eq!(client.run("GET k"), "\"v\"");
}

fn saved(client: &mut Client) {
    eventually("the dump is written", || client.info("persistence", "rdb_bgsave_in_progress") == "0");
    assert_eq!(client.info("persistence", "rdb_last_bgsave_status"), "ok");
}

/// Transactions move amounts between accounts all the time, so their sum tells whether a dump is of one moment.
#[test]
fn a_dump_that_is_saved_in_the_background_is_of_one_moment() {
    const ACCOUNTS: usize = 4000;
    let node = Node::start(&with(&[("io-threads", "2")]));
    let mut client = node.connect();
    for n in 0..ACCOUNTS {
        client.call(&[b"SET", format!("account:{n}").as_bytes(), b"1000"]);
        // Large enough that some of it is cold.
        client.call(&[b"SET", format!("ballast:{n}").as_bytes(), &[n as u8; 20_000]]);
    }
    client.call(&[b"FUNCTION", b"LOAD", b"#!lua name=lib\nredis.register_function('f', function() return 1 end)"]);
    assert_eq!(client.run("BGSAVE NOW"), "(error) ERR syntax error");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stops = Stops(&stop);
        for seed in 0..2 {
            let (mut client, stop) = (node.connect(), &stop);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                while !stop.load(Relaxed) {
                    let [from, to] = [0; 2].map(|_: i32| random.below(ACCOUNTS));
                    client.run("MULTI");
                    client.run(&format!("DECRBY account:{from} 7"));
                    client.run(&format!("INCRBY account:{to} 7"));
                    assert!(client.run("EXEC").starts_with("1) (integer)"));
                }
            });
        }
        for _ in 0..3 {
            assert_eq!(client.run("BGSAVE"), "Background saving started");
            saved(&mut client);
            let dump = fs::read(node.dir.path().join("dump.rdb")).unwrap();
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("dump.rdb"), dump).unwrap();
            let copy = Node::start(&[("dir", folder.path().to_str().unwrap())]);
            let mut there = copy.connect();
            eventually("the dump is loaded", || there.run("PING") == "PONG");
            let names: Vec<String> = (0..ACCOUNTS).map(|n| format!("account:{n}")).collect();
            let mut words: Vec<&[u8]> = vec![b"MGET"];
            words.extend(names.iter().map(String::as_bytes));
            let amounts = there.words(&words);
            let sum: i64 = amounts.split('"').skip(1).step_by(2).map(|amount| amount.parse::<i64>().unwrap()).sum();
            assert_eq!(sum, 1000 * ACCOUNTS as i64);
            assert_eq!(there.run("DBSIZE"), format!("(integer) {}", 2 * ACCOUNTS));
            assert_eq!(there.run("FCALL f 0"), "(integer) 1");
        }
    });
}

/// Ends the threads that look at it, also if the test fails.
struct Stops<'s>(&'s AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn points_of_save_write_dumps_and_a_failed_dump_stops_writes() {
    let mut node = Node::start(&[("save", "1 3"), ("enable-debug-command", "yes")]);
    let mut client = node.connect();
    let dump = node.dir.path().join("dump.rdb");
    client.run("MSET a 1 b 2");
    client.run("INCR a");
    assert_eq!(client.info("persistence", "rdb_changes_since_last_save"), "2");
    client.run("INCR a");
    eventually("a dump is written", || dump.exists());
    saved(&mut client);
    eventually("it counts", || client.info("persistence", "rdb_changes_since_last_save") == "0");

    // A directory of this name cannot be replaced by a file.
    fs::remove_file(&dump).unwrap();
    fs::create_dir(&dump).unwrap();
    assert!(client.run("SAVE").starts_with("(error) ERR"));
    eventually("writes are refused", || client.run("SET c 1").starts_with("(error) MISCONF"));
    assert_eq!(client.run("GET a"), "\"3\"");
    assert_eq!(client.run("CONFIG SET stop-writes-on-bgsave-error no"), "OK");
    eventually("writes go on", || client.run("SET c 1") == "OK");
    client.run("CONFIG SET stop-writes-on-bgsave-error yes");
    eventually("writes are refused", || client.run("SET c 1").starts_with("(error) MISCONF"));

    // SIGTERM does not lose what could be saved later.
    node.terminate();
    eventually("the node says why it goes on", || node.log().contains("kill -9 ends it anyhow"));
    fs::remove_dir(&dump).unwrap();
    assert_eq!(client.run("SAVE"), "OK");
    assert_eq!(client.run("SET d 1"), "OK");
    node.terminate();
    assert!(node.ended().success());
    let dir = node.dir.clone();
    let node = Node::start_in(&dir, None, &[]);
    let mut client = node.connect();
    eventually("clients are served", || client.run("PING") == "PONG");
    assert_eq!(client.run("MGET a c d"), "1) \"3\"\n2) \"1\"\n3) \"1\"");
}
