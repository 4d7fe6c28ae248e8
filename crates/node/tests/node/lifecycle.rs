//! A node's start and end, its listening sockets, its configuration at run time, and its flash.

use crate::common::{Client, Node, free_port};
use crate::persist::refusal;
use resp::client::{Value, encode_command};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

#[test]
fn shutdown_ends_the_node_and_answers_nothing() {
    let mut node = Node::start(&[]);
    let mut client = node.connect();
    assert_eq!(client.run("SHUTDOWN NOSAVE"), "(closed)");
    assert!(node.ended().success());
}

#[test]
fn sigterm_answers_what_was_sent_and_cleans_up() {
    let directory = tempfile::tempdir().unwrap();
    let (socket, pidfile) = (directory.path().join("node.sock"), directory.path().join("node.pid"));
    let mut node = Node::start(&[
        ("unixsocket", socket.to_str().unwrap()),
        ("unixsocketperm", "700"),
        ("pidfile", pidfile.to_str().unwrap()),
    ]);
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(std::fs::read_to_string(&pidfile).unwrap().trim(), node.pid().to_string());
    let mut unix = UnixStream::connect(&socket).unwrap();
    unix.write_all(b"SET k v\r\nGET k\r\n").unwrap();
    let mut reply = [0; 11];
    unix.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+OK\r\n$1\r\nv\r");
    let mut idle = node.connect();
    idle.run("PING");
    node.signal(libc::SIGTERM);
    assert_eq!(idle.read(), "(closed)");
    assert!(node.ended().success());
    assert!(!socket.exists());
    assert!(!pidfile.exists());
    assert!(TcpStream::connect(("127.0.0.1", node.port)).is_err());
}

#[test]
fn sigint_ends_it_too() {
    let mut node = Node::start(&[]);
    node.signal(libc::SIGINT);
    assert!(node.ended().success());
}

#[test]
fn a_port_in_use_is_reported() {
    let node = Node::start(&[]);
    let said = Node::try_start_alone(node.port, &[]).expect_err("it is refused");
    assert!(said.contains(&format!("cannot listen on 127.0.0.1 port {}", node.port)), "{said}");
}

#[test]
fn several_addresses_and_one_that_is_missing() {
    let node = Node::start(&[("bind", "127.0.0.1 -::1 -192.0.2.1")]);
    assert_eq!(node.connect().run("PING"), "PONG");
    if let Ok(stream) = TcpStream::connect(("::1", node.port)) {
        assert_eq!(Client::new(stream).run("PING"), "PONG");
    }
    let port = free_port();
    assert!(Node::try_start(port, &[("bind", "192.0.2.1")]).is_err(), "an address that is not optional");
}

/// An address of this machine that is not loopback, if it has one.
fn outer_address() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    // Sends nothing: `connect` only chooses the address.
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback())
}

#[test]
fn protected_mode_keeps_others_out_until_there_is_a_password() {
    let Some(outer) = outer_address() else {
        eprintln!("this machine has no address but loopback: protected mode was not tried");
        return;
    };
    let node = Node::start(&[("bind", "0.0.0.0")]);
    let connect = || Client::new(TcpStream::connect((outer, node.port)).unwrap());
    let refused = connect().read();
    assert!(refused.starts_with("(error) DENIED Redis is running in protected mode"), "{refused}");
    let mut inside = node.connect();
    assert_eq!(inside.run("CONFIG SET requirepass secret"), "OK");
    assert_eq!(connect().run("AUTH secret"), "OK");
    assert_eq!(inside.run("CONFIG SET requirepass '' protected-mode no"), "OK");
    assert_eq!(connect().run("PING"), "PONG");
}

#[test]
fn configuration_changes_take_effect() {
    let node = Node::start(&[]);
    let mut client = node.connect();
    client.run("HSET h f v");
    assert_eq!(client.run("OBJECT ENCODING h"), "\"listpack\"");
    assert_eq!(client.run("CONFIG SET hash-max-listpack-entries 1"), "OK");
    client.run("HSET g a 1 b 2");
    assert_eq!(client.run("OBJECT ENCODING g"), "\"hashtable\"");
    assert_eq!(client.run("CONFIG SET proto-max-bulk-len 1mb"), "OK");
    let value = vec![b'v'; 1024 * 1024 + 1];
    assert_eq!(
        client.value(&[b"SET", b"k", &value]),
        Some(Value::Error(b"ERR Protocol error: invalid bulk length".to_vec()))
    );
}

#[test]
fn config_rewrite_keeps_what_was_set() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("node.conf");
    std::fs::write(&file, "# mine\ntimeout 5\n").unwrap();
    let mut node = Node::start_with_file(&file, &[]);
    let mut client = node.connect();
    assert_eq!(client.run("CONFIG SET maxclients 77"), "OK");
    assert_eq!(client.run("CONFIG REWRITE"), "OK");
    client.run("SHUTDOWN");
    assert!(node.ended().success());
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("# mine\ntimeout 5\n"), "{text}");
    assert!(text.contains("maxclients 77"), "{text}");
}

#[test]
fn a_panic_closes_only_its_connection() {
    let node = Node::start(&[("enable-debug-command", "local"), ("io-threads", "1")]);
    let mut other = node.connect();
    other.run("SET k v");
    let mut client = node.connect();
    assert_eq!(client.run("DEBUG PANIC"), "(closed)");
    assert_eq!(other.run("GET k"), "\"v\"");
    assert_eq!(node.connect().run("SET k w"), "OK");
    assert_eq!(other.info("clients", "connected_clients"), "1");
}

#[test]
fn slow_commands_are_remembered_without_their_secrets() {
    let node = Node::start(&[
        ("slowlog-log-slower-than", "0"),
        ("latency-monitor-threshold", "20"),
        ("enable-debug-command", "yes"),
    ]);
    let mut client = node.connect();
    client.run("CLIENT SETNAME me");
    client.run("AUTH default secret");
    client.run("CONFIG SET requirepass secret");
    client.run("DEBUG SLEEP 0.05");
    let log = client.run("SLOWLOG GET -1");
    assert!(!log.contains("secret"), "{log}");
    assert!(log.contains("\"DEBUG\"") && log.contains("\"(redacted)\"") && log.contains("\"me\""), "{log}");
    // On a busy machine there may be other events too.
    assert!(client.run("LATENCY LATEST").contains("1) \"command\""), "{}", client.run("LATENCY LATEST"));
    assert!(client.run("LATENCY GRAPH command").starts_with("\"command - high "));
    assert_eq!(client.run("LATENCY RESET nosuch command"), "(integer) 1");
}

#[test]
fn info_counts_what_was_done() {
    let node = Node::start(&[]);
    let mut client = node.connect();
    client.run("SET a 1");
    client.run("GET a");
    client.run("GET nosuch");
    client.run("GET");
    client.run("HGET a f");
    assert!(client.info("commandstats", "cmdstat_get").starts_with("calls=2,usec="));
    assert!(client.info("commandstats", "cmdstat_get").ends_with("rejected_calls=1,failed_calls=0"));
    assert!(client.info("commandstats", "cmdstat_hget").ends_with("failed_calls=1"));
    assert_eq!(client.info("errorstats", "errorstat_WRONGTYPE"), "count=1");
    assert_eq!(client.info("stats", "keyspace_misses"), "1");
    assert!(client.info("keyspace", "db0").starts_with("keys=1,expires=0,avg_ttl=0,cached_keys=1"));
    assert!(client.info("latencystats", "latency_percentiles_usec_get").starts_with("p50="));
    assert_eq!(client.run("CONFIG RESETSTAT"), "OK");
    assert_eq!(client.info("stats", "keyspace_hits"), "0");
    let everything = client.run("INFO everything");
    for section in [
        "Server",
        "Clients",
        "Memory",
        "Persistence",
        "Stats",
        "Tiering",
        "Replication",
        "CPU",
        "Modules",
        "Commandstats",
        "Errorstats",
        "Latencystats",
        "Cluster",
        "Keyspace",
    ] {
        assert!(everything.contains(&format!("# {section}\\r\\n")), "{section}");
    }
}

/// A node with so little RAM that most of the written data moves to flash.
fn tiered(directory: &tempfile::TempDir) -> Node {
    let path = directory.path().to_str().unwrap();
    Node::start(&[
        ("flash-path", path),
        ("memory-limit", "400mb"),
        ("ram-limit", "48mb"),
        ("maxmemory-policy", "noeviction"),
    ])
}

const KEYS: usize = 100_000;

fn value(i: usize) -> Vec<u8> {
    let mut value = format!("value {i} ").into_bytes();
    value.resize(1000, b'a' + (i % 26) as u8);
    value
}

#[test]
fn a_dataset_larger_than_ram_reads_back_in_pipelines() {
    let directory = tempfile::tempdir().unwrap();
    let node = tiered(&directory);
    let mut client = node.connect();
    let mut bytes = Vec::new();
    for i in 0..KEYS {
        encode_command(&[b"SET", format!("key:{i}").as_bytes(), &value(i)], &mut bytes);
        if i % 500 == 499 {
            client.send(&bytes);
            bytes.clear();
            for _ in 0..500 {
                assert_eq!(client.read(), "OK");
            }
        }
    }
    let in_flash: u64 = client.info("tiering", "values_in_flash").parse().unwrap();
    assert!(in_flash > KEYS as u64 / 3, "{in_flash} values are on flash");
    // Pipelines of a hundred distant keys, on three connections at the same time.
    std::thread::scope(|scope| {
        for start in 0..3 {
            let node = &node;
            scope.spawn(move || {
                let mut client = node.connect();
                for round in 0..100 {
                    let keys: Vec<usize> = (0..100).map(|i| (start * 31 + round * 997 + i * 7919) % KEYS).collect();
                    let mut bytes = Vec::new();
                    for i in &keys {
                        encode_command(&[b"GET", format!("key:{i}").as_bytes()], &mut bytes);
                    }
                    client.send(&bytes);
                    for i in keys {
                        assert_eq!(client.reply(), Some(Value::Bulk(value(i))), "key:{i}");
                    }
                }
            });
        }
    });
    // Several cold keys in one command, and an overwrite of a cold key that does not read it.
    let many: Vec<String> = (0..200).map(|i| format!("key:{}", i * 499)).collect();
    let mut words: Vec<&[u8]> = vec![b"MGET"];
    words.extend(many.iter().map(|key| key.as_bytes()));
    let Some(Value::Array(values)) = client.value(&words) else { panic!("an array") };
    for (at, got) in values.into_iter().enumerate() {
        assert_eq!(got, Value::Bulk(value(at * 499)));
    }
    assert_eq!(client.run("SET key:0 new"), "OK");
    assert_eq!(client.run("GET key:0"), "\"new\"");
    assert_eq!(client.run("DBSIZE"), format!("(integer) {KEYS}"));
    assert!(client.info("tiering", "commands_waited_for_flash").parse::<u64>().unwrap() > 0);
    assert!(client.info("tiering", "command_flash_hit_count").parse::<u64>().unwrap() > 0);
    assert_eq!(client.info("tiering", "flash_checksum_errors"), "0");
}

#[test]
fn a_ram_limit_below_the_nodes_own_needs_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let start_and = |ram, kept| {
        let limits = [("flash-path", path), ("memory-limit", "400mb"), ("ram-limit", ram), ("io-threads", "4")];
        Node::try_start(free_port(), &[&limits[..], &[("appendonly", kept)]].concat())
    };
    let start = |ram| start_and(ram, "no");
    let said = start("23mb").map(|_| ()).unwrap_err();
    assert!(
        said.contains("ram-limit 23mb is less than the 24mb") && said.contains("16mb + 4 io-threads × 2mb"),
        "{said}"
    );
    let node = start("24mb").unwrap();
    let mut client = node.connect();
    assert_eq!(client.run("SET k v"), "OK");
    let kept = start_and("31mb", "yes").map(|_| ()).unwrap_err();
    assert!(kept.contains("less than the 32mb") && kept.contains("+ 8mb for the journal"), "{kept}");
    // The next start would be refused, so this is too.
    let switched = client.run("CONFIG SET appendonly yes");
    assert!(
        switched.contains("raise ram-limit to at least 32mb, or lower io-threads, or set appendonly no"),
        "{switched}"
    );
    assert_eq!(client.run("CONFIG SET ram-limit 32mb memory-limit 408mb"), "OK");
    assert_eq!(client.run("CONFIG SET appendonly yes"), "OK");
}

#[test]
fn a_refused_start_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let flash = |path| [("appendonly", "yes"), ("ram-limit", "100mb"), ("memory-limit", "200mb"), ("flash-path", path)];
    let names = || {
        let mut names: Vec<_> = fs::read_dir(directory.path())
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    // A device that is not mounted must not become a directory of the root disk.
    let said = refusal(&directory, &flash("mnt/flint"));
    let mount = directory.path().join("mnt").display().to_string();
    assert!(said.contains(&format!("the directory {mount} does not exist; mount the device there")), "{said}");
    assert_eq!(names(), [""; 0]);
    let more = [&flash("flint")[..], &[("memory-limit", "900gb")]].concat();
    let said = refusal(&directory, &more);
    assert!(said.contains("free some space, lower the memory limit or set another flash-path (all files: "), "{said}");
    assert!(said.contains("for values (memory-limit 900 GB, ram-limit 100 MB) + "), "{said}");
    assert_eq!(names(), [""; 0]);
    // The last step of a start.
    let last = [&flash("flint")[..], &[("pidfile", "/missing/pid")]].concat();
    let said = refusal(&directory, &last);
    assert!(said.contains("cannot write pidfile /missing/pid"), "{said}");
    assert_eq!(names(), [""; 0]);
    // A dataset that cannot be loaded.
    fs::write(directory.path().join("dump.rdb"), "REDIS0011 and nothing else").unwrap();
    let said = refusal(&directory, &flash("flint"));
    assert!(said.contains("could not be loaded"), "{said}");
    assert_eq!(names(), ["dump.rdb"]);
    // What was there before stays.
    fs::create_dir(directory.path().join("flint")).unwrap();
    refusal(&directory, &last);
    assert_eq!(names(), ["dump.rdb", "flint"]);
}

#[test]
fn a_second_node_on_the_same_flash_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let node = tiered(&directory);
    // The log's name contains the port, so the same port on another address means the same log.
    let path = directory.path().to_str().unwrap();
    let second = [("bind", "127.0.0.2"), ("flash-path", path), ("memory-limit", "400mb")];
    let said = Node::try_start_alone(node.port, &second).expect_err("it is refused");
    assert!(said.contains("flintkv") && !said.contains("listening on"), "{said}");
    assert_eq!(node.connect().run("PING"), "PONG");
}

#[test]
fn debug_does_what_test_suites_want_or_says_why_not() {
    let node = Node::start(&[("enable-debug-command", "yes")]);
    let mut a = node.connect();
    let mut redis =
        crate::common::Redis::if_installed(&["--enable-debug-command", "yes"]).map(|redis| (redis.connect(), redis));
    let mut both = |line: &str| {
        let reply = a.run(line);
        if let Some((b, _)) = &mut redis {
            assert_eq!(reply, b.run(line), "{line}");
        }
        reply
    };
    for line in [
        "SET text value",
        "SET int 12345",
        "HSET h a 1 b 2 c 3",
        "RPUSH l 1 two 3 two",
        "SADD ints 3 1 2",
        "SADD words x y 1",
        "ZADD z 1.5 a -inf b 3 c",
        "XADD x 1-1 a 1 b 2",
        "XADD x 2-1 c 3",
        "PEXPIRE h 10000000",
        "CONFIG SET hash-max-listpack-entries 2 zset-max-listpack-entries 2 list-max-listpack-size 2",
        "HSET table a 1 b 2 c 3",
        "ZADD tree 1 a 2 b 3.5 c",
        "RPUSH chunks a b c d",
    ] {
        both(line);
    }
    let digests = both("DEBUG DIGEST-VALUE text int h l ints words z x table tree chunks nosuch");
    assert_eq!(digests.lines().count(), 12);
    assert_eq!(digests.lines().last(), Some("12) 0000000000000000000000000000000000000000"));
    both("DEBUG DIGEST");
    for line in [
        "DEBUG POPULATE 3000",
        "DEBUG POPULATE 3 p 10",
        "DEBUG POPULATE 2 text",
        "DBSIZE",
        "MGET key:0 key:2999 p:2",
        "DEBUG POPULATE x",
        "DEBUG LISTPACK text",
        "DEBUG LISTPACK nosuch",
        "DEBUG SDSLEN int",
        "DEBUG SDSLEN l",
        "DEBUG HTSTATS-KEY text",
        "DEBUG HTSTATS-KEY nosuch",
    ] {
        both(line);
    }
    assert_eq!(
        a.run("DEBUG SDSLEN text").split(", val_zmalloc").next(),
        Some("key_sds_len:4, key_sds_avail:0, key_zmalloc: 4, val_sds_len:5, val_sds_avail:0")
    );
    assert_eq!(a.run("DEBUG LISTPACK l"), "Packed bytes written to the log");
    for (line, why) in [
        ("DEBUG LOADAOF", "FlintKV has no append-only file and no forked process"),
        ("DEBUG CHANGE-REPL-ID", "the stream to replicas and its id follow from the dataset alone"),
        ("DEBUG QUICKLIST-PACKED-THRESHOLD 100b", "FlintKV does not have this structure of Redis"),
        ("DEBUG JMAP", "it is about internals of Redis that FlintKV does not have"),
    ] {
        let name = line.split(' ').nth(1).unwrap();
        assert_eq!(a.run(line), format!("(error) ERR DEBUG {name} is not supported: {why}"));
    }
    assert!(a.run("DEBUG NOSUCH").starts_with("(error) ERR unknown subcommand"));
}
