//! Redis's files: what SAVE writes, what a node loads at its start, and what clients see meanwhile.

use crate::common::{Client, Node, Redis, eventually, free_port};
use flintkv_tests::generator::Commands;
use flintkv_tests::{Random, tool};
use std::fs::{self, File};
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
    // `always`: with another policy Redis holds writes back for up to two seconds while a sync takes long, and it is killed below.
    let Some(redis) = Redis::if_installed(&["--dir", dir, "--enable-debug-command", "yes", "--appendfsync", "always"])
    else {
        return;
    };
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
        [("enable-debug-command", "yes"), ("flash-path", "flash"), ("memory-limit", "400mb"), ("ram-limit", "56mb")];
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
    assert!(said.contains("dump.rdb: key 's': byte 9: a collection has a member twice"), "{said}");
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
    let whole = ["SELECT 0", "SET a 1", "MULTI", "SET b 2", "EXEC", "LPUSH a wrong-type", "MULTI", "SET a 3"];
    let text = [&aof(&whole)[..], b"*3\r\n$3\r\nSET\r\n$1\r\na"].concat();
    fs::write(&file, &text).unwrap();
    let node = Node::start(&[("dir", folder.path().to_str().unwrap()), ("appendonly", "yes")]);
    let mut client = node.connect();
    loaded(&mut client);
    eventually("clients are served", || client.run("PING") == "PONG");
    assert_eq!(client.run("MGET a b"), "1) \"1\"\n2) \"2\"");
    assert!(node.log().contains("is cut off and left out"), "{}", node.log());
    assert_eq!(fs::read(&file).unwrap(), text, "the file is not changed");
}

/// The commands as an append-only file has them.
fn aof(lines: &[&str]) -> Vec<u8> {
    let mut file = Vec::new();
    for line in lines {
        let words = flintkv_tests::words(line);
        resp::client::encode_command(&words.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut file);
    }
    file
}

/// A dump of the version, with these records.
fn dump(version: u32, records: &[u8]) -> Vec<u8> {
    let mut file = format!("REDIS{version:04}").into_bytes();
    file.extend_from_slice(records);
    // No checksum.
    file.extend_from_slice(b"\xff\0\0\0\0\0\0\0\0");
    file
}

/// A node that has loaded the files of this directory.
fn started(dir: &Path, appendonly: &str) -> (Node, Client) {
    let directives = [("dir", dir.to_str().unwrap()), ("appendonly", appendonly), ("enable-debug-command", "yes")];
    let node = Node::start(&directives);
    let mut client = node.connect();
    loaded(&mut client);
    eventually("clients are served", || client.run("PING") == "PONG");
    (node, client)
}

/// Why a node does not start with the files of this directory.
fn not_started(dir: &Path, appendonly: &str) -> String {
    let directives = [("dir", dir.to_str().unwrap()), ("appendonly", appendonly)];
    Node::try_start_alone(free_port(), &directives).expect_err("it must not start")
}

/// Redis writes moments, and says itself with DEL what has expired. Until the end of such a file nothing has: a counter that had
/// expired would begin again, without an expiry.
#[test]
fn nothing_expires_while_an_append_only_file_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let lines = [
        "SELECT 0",
        "INCR hits",
        "PEXPIREAT hits 1700000000000",
        "INCR hits",
        "RPUSH list a",
        "PEXPIREAT list 1700000000000",
        "RPUSH list b",
        "HSET hash f 1",
        "EXPIREAT hash 1700000000",
        "HINCRBY hash f 1",
        "SADD set a",
        "PEXPIREAT set 1700000000000",
        "MULTI",
        "SADD set b",
        "ZADD zset 1 a",
        "PEXPIREAT zset 1700000000000",
        "ZADD zset 2 b",
        "EXEC",
        "SET text a PXAT 1700000000000",
        "APPEND text b",
        "EVAL \"redis.call('pexpireat', KEYS[1], 1700000000000) redis.call('append', KEYS[1], 'c')\" 1 text",
        "XADD stream 1-1 f v",
        "PEXPIREAT stream 1700000000000",
        "XADD stream 2-1 f v",
        "GETEX base PXAT 1700000000000",
        "APPEND base b",
        "RENAME gone renamed",
        "APPEND renamed b",
        "SET kept a PXAT 1700000000000",
        "PERSIST kept",
        "APPEND kept b",
        "SET later a PXAT 4000000000000",
        "EXPIRE negative -1",
        "SET negative a",
        "EXPIRE negative -1",
        "APPEND negative b",
    ];
    // The same with a base: its keys have not expired either.
    let base = dump(10, b"\x00\x04base\x01a\xfc\x00\x68\xe5\xcf\x8b\x01\0\0\x00\x04gone\x01a");
    let write = |parts: bool, name: &str| {
        let dir = folder.path().join(format!("{name}-{parts}"));
        fs::create_dir(&dir).unwrap();
        if !parts {
            fs::write(dir.join("appendonly.aof"), [&base[..], &aof(&lines)].concat()).unwrap();
            return dir;
        }
        let parts = dir.join("appendonlydir");
        fs::create_dir(&parts).unwrap();
        let manifest = "file appendonly.aof.1.base.rdb seq 1 type b\nfile appendonly.aof.1.incr.aof seq 1 type i\n";
        fs::write(parts.join("appendonly.aof.manifest"), manifest).unwrap();
        fs::write(parts.join("appendonly.aof.1.base.rdb"), &base).unwrap();
        fs::write(parts.join("appendonly.aof.1.incr.aof"), aof(&lines)).unwrap();
        dir
    };
    for parts in [false, true] {
        // Redis changes its directory.
        let theirs = write(parts, "redis");
        let redis = Redis::if_installed(&["--dir", theirs.to_str().unwrap(), "--appendonly", "yes"]);
        let there = redis.map(|redis| {
            let mut theirs = redis.connect();
            loaded(&mut theirs);
            sorted_lines(&theirs.run("KEYS *"))
        });
        let dir = write(parts, "ours");
        let (node, mut client) = started(&dir, "yes");
        eventually("what has expired is gone", || client.run("DBSIZE") == "(integer) 2");
        assert_eq!(sorted_lines(&client.run("KEYS *")), ["\"kept\"", "\"later\""]);
        assert!(there.is_none_or(|there| there == ["\"kept\"", "\"later\""]));
        assert!(node.log().contains(": 12 keys and 0 expired"), "{}", node.log());
        assert_eq!(client.run("MGET kept later"), "1) \"ab\"\n2) \"a\"");
        assert_eq!(client.run("PTTL kept"), "(integer) -1");
        // The journal that goes on says so too.
        drop(client);
        drop(node);
        let (_node, mut client) = started(&dir, "yes");
        assert_eq!(client.run("MGET hits text base kept"), "1) (nil)\n2) (nil)\n3) (nil)\n4) \"ab\"");
    }
}

/// Of a reply with several elements, without their numbers.
fn sorted_lines(reply: &str) -> Vec<String> {
    let mut lines: Vec<String> =
        reply.lines().map(|line| line.split_once(") ").map_or(line, |(_, line)| line).to_owned()).collect();
    lines.sort();
    lines
}

/// Redis blocks no command of a file, as nobody could end the wait.
#[test]
fn no_command_of_an_append_only_file_waits_for_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let lines = [
        "RPUSH l one",
        "BLPOP l 0",
        "BLPOP l 0",
        "BRPOP l 0",
        "BLMOVE l m LEFT RIGHT 0",
        "BRPOPLPUSH l m 0",
        "BLMPOP 0 1 l LEFT",
        "BZPOPMIN z 0",
        "BZPOPMAX z 0",
        "BZMPOP 0 1 z MIN",
        "XADD x 1-1 f v",
        "XGROUP CREATE x g 0",
        "XREADGROUP GROUP g c BLOCK 0 STREAMS x >",
        "XREADGROUP GROUP g c BLOCK 0 STREAMS x >",
        "XREAD BLOCK 0 STREAMS x $",
        "WAIT 1 0",
        "MULTI",
        "BLPOP l 0",
        "XREADGROUP GROUP g c BLOCK 0 STREAMS x >",
        "EXEC",
        "EVAL \"redis.call('wait', 1, 0) return redis.call('blpop', 'l', 0)\" 0",
        // What is about a client, and would end or confuse what loads the file.
        "CLIENT REPLY OFF",
        "SUBSCRIBE a b",
        "MONITOR",
        "RESET",
        "QUIT",
        "SET end 1",
    ];
    fs::write(folder.path().join("appendonly.aof"), aof(&lines)).unwrap();
    let (node, mut client) = started(folder.path(), "yes");
    assert_eq!(client.run("MGET end"), "1) \"1\"");
    assert_eq!(client.run("EXISTS l m z"), "(integer) 0");
    assert_eq!(client.run("XPENDING x g"), "1) (integer) 1\n2) \"1-1\"\n3) \"1-1\"\n4) 1) 1) \"c\"\n      2) \"1\"");
    assert!(node.log().contains(": 2 keys and 0 expired"), "{}", node.log());
}

/// What stands behind a dump is no part of it, whatever it looks like.
#[test]
fn what_follows_a_dump_is_never_run() {
    let whole = dump(10, b"\x00\x01k\x01v");
    for (nth, behind) in [&b"\n"[..], &[0; 100], &whole, &aof(&["SET evil 1"])].into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("dump.rdb"), [&whole, behind].concat()).unwrap();
        let (node, mut client) = started(folder.path(), "no");
        assert_eq!(client.run("KEYS *"), "1) \"k\"", "{nth}");
        let said = format!("dump.rdb: the dump ends at byte {}; what follows is ignored", whole.len());
        assert!(node.log().contains(&said), "{}", node.log());
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("dump.rdb"), aof(&["SET evil 1"])).unwrap();
    let said = not_started(folder.path(), "no");
    assert!(said.contains("dump.rdb: byte 0: this is not an RDB file"), "{said}");
}

/// A file that was cut off ends with the beginning of a command; these do not.
#[test]
fn damaged_append_only_files_are_refused_as_in_redis() {
    let commands = aof(&["SET k v"]);
    for damaged in [vec![0; 100], [&commands[..], &[0; 100]].concat(), [&commands[..], b"*2\r\n\0\0\0"].concat()] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("appendonly.aof"), &damaged).unwrap();
        let said = not_started(folder.path(), "yes");
        let at = if damaged[0] == 0 { 0 } else { commands.len() };
        assert!(said.contains(&format!("appendonly.aof: byte {at}: ")), "{said}");
        assert!(said.contains("repair it with redis-check-aof"), "{said}");
    }
    let folder = tempfile::tempdir().unwrap();
    let parts = folder.path().join("appendonlydir");
    fs::create_dir(&parts).unwrap();
    fs::write(parts.join("appendonly.aof.1.incr.aof"), &commands).unwrap();
    let manifest = parts.join("appendonly.aof.manifest");
    fs::write(&manifest, "").unwrap();
    let said = not_started(folder.path(), "yes");
    assert!(said.contains("appendonly.aof.manifest: an empty AOF manifest"), "{said}");
    fs::write(&manifest, "\nfile appendonly.aof.1.incr.aof seq 1 type i\n").unwrap();
    let said = not_started(folder.path(), "yes");
    assert!(said.contains("appendonly.aof.manifest: line 1: it is blank"), "{said}");
    assert!(!folder.path().join("flintkv.journal").exists(), "nothing was begun");
    fs::write(&manifest, "file appendonly.aof.1.incr.aof seq 1 type i\n").unwrap();
    let (_node, mut client) = started(folder.path(), "yes");
    assert_eq!(client.run("GET k"), "\"v\"");
}

/// A stream of three entries that says that it has five, as Redis before 7.0 wrote some after XTRIM, in the format of 7.0. `node`: how
/// many entries its node says.
fn miscounted(node: u8) -> Vec<u8> {
    let mut list = vec![node, 1, 0, 1, 1, 1, 0x81, b'f', 2, 0, 1];
    for (nth, value) in (0..).zip([b"v0", b"v1", b"v2"]) {
        list.extend([2, 1, nth, 1, 1, 1, 0x82, value[0], value[1], 3, 4, 1]);
    }
    let bytes = list.len() as u8 + 7;
    let elements = 5 + 3 * 5;
    let list = [&[bytes, 0, 0, 0, elements, 0][..], &list, &[0xff]].concat();
    let mut stream = vec![1, 16];
    stream.extend([0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, bytes]);
    stream.extend(list);
    // 5 entries, the last id 3-1, the first 1-1, none deleted, 3 added, no groups.
    stream.extend([5, 3, 1, 1, 1, 0, 0, 3, 0]);
    stream
}

#[test]
fn a_stream_s_entries_count_and_not_what_is_said_of_them() {
    for (node, of_nodes) in [(3, ""), (4, "; the counts of 1 of its nodes were wrong")] {
        let folder = tempfile::tempdir().unwrap();
        let stream = miscounted(node);
        let records = [b"\x13\x06events", &stream[..], b"\x00\x01k\x01v"].concat();
        fs::write(folder.path().join("dump.rdb"), dump(10, &records)).unwrap();
        let (node, mut client) = started(folder.path(), "no");
        let log = node.log();
        let said = format!(
            "key 'events': the stream should have 5 entries by its own count, but it has 3{of_nodes}. The counts are corrected"
        );
        assert_eq!(log.matches("dump.rdb: key").count(), 1, "{log}");
        assert_eq!(log.matches(&said).count(), 1, "{log}");
        assert_eq!(client.run("XLEN events"), "(integer) 3");
        let entries = client.run("XRANGE events - +");
        assert_eq!(entries.matches("\"v").count(), 3, "{entries}");
        assert_eq!(client.run("XTRIM events MAXLEN 1"), "(integer) 2");
        assert_eq!(client.run("XLEN events"), "(integer) 1");

        let payload = value::rdb::dump_for(value::rdb::Type::Stream2, 10, |out| out.extend_from_slice(&stream));
        assert_eq!(client.words(&[b"RESTORE", b"restored", b"0", &payload]), "OK");
        assert_eq!(client.run("XLEN restored"), "(integer) 3");
        assert_eq!(node.log().matches("RESTORE of key restored: the stream should have").count(), 1);
        let Some(redis) = Redis::if_installed(&[]) else { continue };
        let mut theirs = redis.connect();
        assert_eq!(theirs.words(&[b"RESTORE", b"restored", b"0", &payload]), "OK");
        assert_eq!(theirs.run("XRANGE restored - +"), entries, "Redis reads it, although it says XLEN 5");
    }
}

/// Old versions of Redis wrote collections without a member; newer ones leave them out.
#[test]
fn empty_collections_of_a_dump_are_left_out() {
    let ziplist = b"\x0b\x0b\0\0\0\x0a\0\0\0\0\0\xff";
    let records = [
        &b"\x01\x01l\x00\x02\x01s\x00\x04\x01h\x00\x05\x01z\x00\x0e\x01q\x00\x0d\x01p"[..],
        ziplist,
        b"\xfc\x00\x00\xe7\xf3\xa3\x03\0\0\x02\x01e\x00\x00\x01k\x01v",
    ]
    .concat();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("dump.rdb"), dump(10, &records)).unwrap();
    let (node, mut client) = started(folder.path(), "no");
    assert_eq!(client.run("KEYS *"), "1) \"k\"");
    assert_eq!(client.run("PTTL k"), "(integer) -1");
    assert!(node.log().contains("dump.rdb: key 'p' has no members and is left out"), "{}", node.log());
    assert!(node.log().contains(": 1 keys and 0 expired"), "{}", node.log());
    let Some(redis) = Redis::if_installed(&["--dir", folder.path().to_str().unwrap()]) else { return };
    assert_eq!(redis.connect().run("KEYS *"), "1) \"k\"");
}

/// Before 7.2 Redis wrote a score of minus zero as a text into packed sorted sets. Redis 7.2 reads it as it is; it makes no new one there.
#[test]
fn minus_zero_of_an_old_packed_sorted_set_stays() {
    let ziplist = b"\x12\0\0\0\x0d\0\0\0\x02\0\0\x01a\x03\x02-0\xff";
    let listpack = b"\x0e\0\0\0\x02\0\x81a\x02\x82-0\x03\xff";
    let records = [b"\x0c\x03old\x12", &ziplist[..], b"\x11\x05newer\x0e", &listpack[..]].concat();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("dump.rdb"), dump(10, &records)).unwrap();
    let (_node, mut client) = started(folder.path(), "no");
    let redis = Redis::if_installed(&["--dir", folder.path().to_str().unwrap()]);
    let mut theirs = redis.as_ref().map(Redis::connect);
    for key in ["old", "newer"] {
        for line in [format!("ZSCORE {key} a"), format!("ZRANGE {key} 0 -1 WITHSCORES")] {
            let reply = client.run(&line);
            assert!(reply.contains("\"-0\""), "{line}: {reply}");
            assert!(theirs.as_mut().is_none_or(|theirs| theirs.run(&line) == reply), "{line}: {reply}");
        }
    }
    assert_eq!(client.run("DEBUG RELOAD"), "OK");
    assert_eq!(client.run("ZSCORE old a"), "\"-0\"");
    let payload = client.value(&[b"DUMP", b"newer"]);
    let Some(resp::client::Value::Bulk(payload)) = payload else { panic!("{payload:?}") };
    assert_eq!(client.words(&[b"RESTORE", b"copy", b"0", &payload]), "OK");
    assert_eq!(client.run("ZSCORE copy a"), "\"-0\"");
    client.run("ZADD new -0 a");
    assert_eq!(client.run("ZSCORE new a"), "\"0\"");
}

/// The size of the value in a dump, as Redis tells it. Long strings count as compressed; how well differs a little.
#[test]
fn debug_object_tells_the_size_in_a_dump() {
    let node = Node::start(&[("enable-debug-command", "yes")]);
    let mut client = node.connect();
    let redis = Redis::if_installed(&["--enable-debug-command", "yes"]);
    let mut theirs = redis.as_ref().map(Redis::connect);
    let serialized = |client: &mut Client, key: &str| {
        let told = client.run(&format!("DEBUG OBJECT {key}"));
        let at = told.find("serializedlength:").expect("it is told") + "serializedlength:".len();
        told[at..].split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let noise = "qwertyuiopasdfghjklzxcvbnm1234567890QWERTYUIOPASDFGHJKLZXCVBNM";
    let lines = [
        "SET word hello".to_owned(),
        "SET number 12345".to_owned(),
        "SET large 123456789012345".to_owned(),
        format!("SET noise {noise}"),
        format!("SET same {}", "a".repeat(1000)),
        "HSET hash a 1 b 2".to_owned(),
        format!("HSET table field {noise}{noise}"),
        "RPUSH list a b 3".to_owned(),
        "SADD ints 1 2 3".to_owned(),
        "ZADD zset 1 a 2.5 b".to_owned(),
        format!("ZADD tree 1 {noise}{noise}"),
        "XADD stream 1-1 f v".to_owned(),
    ];
    for line in lines {
        let key = line.split(' ').nth(1).unwrap();
        client.run(&line);
        let told = serialized(&mut client, key);
        let Some(theirs) = &mut theirs else { continue };
        theirs.run(&line);
        let expected = serialized(theirs, key);
        let slack = if matches!(key, "same" | "table" | "tree" | "stream") { 4 } else { 0 };
        assert!(told.abs_diff(expected) <= slack, "{line}: {told} and not {expected}");
    }
    assert_eq!(serialized(&mut client, "word"), 6);
    assert!(serialized(&mut client, "same") < 50);
}

/// Whoever has to mend a dump must know where.
#[test]
fn an_error_in_a_dump_names_the_key_and_the_byte() {
    for (records, why) in [
        (&b"\x00\x01k\x01v\x15\x01x\x01\x03abc"[..], "dump.rdb: key 'x': byte 18: a part of a stream is damaged"),
        (
            b"\x00\x01k\x01v\x01\x04list\x02\x01a\x05",
            "dump.rdb: key 'list': the file ends too early: more data was expected after byte 23",
        ),
        (b"\x00\x01k\x01v\x02\x01s\x02\x01a\x01a", "dump.rdb: key 's': byte 14: a collection has a member twice"),
        (
            b"\x00\x01k\x01v\x00\x01l\x01v\x01\x01k\x01\x01a",
            "dump.rdb: key 'k': byte 19: the database answers: WRONGTYPE",
        ),
        (b"\xf5\x03abc", "dump.rdb: byte 9: the database answers: ERR"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let file = match why.contains("too early") {
            true => [b"REDIS0011", records].concat(),
            false => dump(11, records),
        };
        fs::write(folder.path().join("dump.rdb"), file).unwrap();
        let said = not_started(folder.path(), "no");
        assert!(said.contains(why), "{said}");
    }
    for (line, why) in [("NOSUCH c", "ERR unknown command"), ("SELECT 99", "ERR DB index is out of range")] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("appendonly.aof"), aof(&["SET a 1", "SET b 2", line, "SET c 3"])).unwrap();
        let said = not_started(folder.path(), "yes");
        let at = aof(&["SET a 1", "SET b 2"]).len();
        assert!(said.contains(&format!("appendonly.aof: byte {at}: the database answers: {why}")), "{said}");
    }
}

#[test]
fn flushall_writes_the_dump_if_there_are_points_of_save() {
    let empty =
        |dir: &Path| fs::read(dir.join("dump.rdb")).is_ok_and(|dump| !dump.windows(3).any(|bytes| bytes == b"key"));
    let mut node = Node::start(&[("save", "3600 1")]);
    let dir = node.dir.clone();
    let mut client = node.connect();
    for flush in ["FLUSHALL", "FLUSHALL ASYNC"] {
        client.run("SET key value");
        client.run("XGROUP CREATE stream g $ MKSTREAM");
        let mut waits = node.connect();
        waits.send(b"XREADGROUP GROUP g c BLOCK 0 STREAMS stream >\r\n");
        eventually("it waits", || client.info("clients", "blocked_clients") == "1");
        assert_eq!(client.run("SAVE"), "OK");
        assert!(!empty(dir.path()));
        assert_eq!(client.run(flush), "OK");
        assert!(empty(dir.path()), "the reply comes when the dump is written");
        assert!(waits.read().starts_with("(error) NOGROUP"), "others are told");
        assert_eq!(client.run("DBSIZE"), "(integer) 0");
    }
    // A transaction or a script cannot wait for it.
    let save = |client: &mut Client| eventually("nothing else is being saved", || client.run("SAVE") == "OK");
    for lines in [&["MULTI", "FLUSHALL", "EXEC"][..], &["EVAL \"return redis.call('flushall')\" 0"]] {
        client.run("SET key value");
        save(&mut client);
        for line in lines {
            let reply = client.run(line);
            assert!(!reply.contains("error"), "{reply}");
        }
        eventually("the dump is written", || empty(dir.path()));
    }
    client.run("SET key value");
    save(&mut client);
    assert_eq!(client.run("FLUSHDB"), "OK");
    assert!(!empty(dir.path()), "as in Redis");
    client.run("FLUSHALL");
    // kill -9
    node.signal(9);
    node.ended();
    let node = Node::start_in(&dir, None, &[]);
    let mut client = node.connect();
    eventually("clients are served", || client.run("PING") == "PONG");
    assert_eq!(client.run("DBSIZE"), "(integer) 0");

    // Without points of save the dump stays as it is.
    client.run("SET key value");
    assert_eq!(client.run("SAVE"), "OK");
    assert_eq!(client.run("FLUSHALL"), "OK");
    assert!(!empty(dir.path()));
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
    eventually("the node says why it goes on", || node.log().contains("kill -9 stops it without saving"));
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
