//! MIGRATE to another node, to Debian's redis-server where it is installed, and to a target that the test controls.

use crate::common::{Client, Node, Redis, eventually};
use resp::client::Value;
use std::net::TcpListener;

fn lines(client: &mut Client, transcript: &[(&str, &str)]) {
    for (command, reply) in transcript {
        assert_eq!(client.run(command), *reply, "{command}");
    }
}

/// A key of each type and encoding, with a command that reads it.
const KEYS: &[(&str, &str)] = &[
    ("int", "GET int"),
    ("text", "GET text"),
    ("hash", "HGETALL hash"),
    ("table", "HGET table f77"),
    ("parts", "HGET parts f4777"),
    ("list", "LRANGE list 0 -1"),
    ("chunks", "LRANGE chunks 0 -1"),
    ("ints", "SMEMBERS ints"),
    ("few", "SISMEMBER few b"),
    ("members", "SISMEMBER members m500"),
    ("zset", "ZRANGE zset 0 -1 WITHSCORES"),
    ("tree", "ZRANGE tree 0 -1 WITHSCORES"),
    ("stream", "XRANGE stream - +"),
    ("group", "XPENDING group g"),
];

fn fill(client: &mut Client) {
    for line in [
        "SET int -70000",
        "SET text 'a value' PX 100000000",
        "HSET hash a 1 b two",
        "RPUSH list 1 two 3 '' 70000",
        "SADD ints 1 -5 70000 4294967296",
        "SADD few a b 3",
        "ZADD zset 1.5 a -inf b 3 c",
        "XADD stream 1-1 a 1 b 2",
        "XADD stream 2-1 a 3 b 4",
        "XDEL stream 2-1",
        "XGROUP CREATE stream g 0",
        "XADD group 1-1 a 1",
        "XGROUP CREATE group g 0",
        "XREADGROUP GROUP g ann STREAMS group >",
    ] {
        let reply = client.run(line);
        assert!(!reply.starts_with("(error)"), "{line}: {reply}");
    }
    for n in 0..20 {
        let pairs: String = (n * 250..n * 250 + 250).map(|n| format!(" f{n} {}", "x".repeat(n % 60))).collect();
        client.run(&format!("HSET parts{pairs}"));
    }
    for n in 0..600 {
        client.run(&format!("HSET table f{n} value:{n}"));
        client.run(&format!("RPUSH chunks element:{n}:{}", "x".repeat(n % 40)));
        client.run(&format!("SADD members m{n}"));
        client.run(&format!("ZADD tree {}.25 m{n}", n * 3));
    }
}

fn read_all(client: &mut Client) -> Vec<String> {
    KEYS.iter()
        .map(|(key, read)| format!("{key}: {} {}", client.run(read), client.run(&format!("TYPE {key}"))))
        .collect()
}

/// Moves every value out of RAM.
fn force_demote(client: &mut Client) {
    assert_eq!(client.run("CONFIG SET ram-limit 1mb"), "OK");
    eventually("values leave RAM", || client.info("tiering", "ram_object_bytes").parse::<u64>().unwrap() < 16 << 10);
    assert_eq!(client.run("CONFIG SET ram-limit 128mb"), "OK");
}

#[test]
fn every_type_migrates_hot_and_cold_and_back() {
    let flash = tempfile::tempdir().unwrap();
    let path = flash.path().to_str().unwrap();
    let limits =
        [("flash-path", path), ("memory-limit", "256mb"), ("ram-limit", "128mb"), ("flash-segment-size", "1mb")];
    let (here, there) = (Node::start(&limits), Node::start(&[]));
    let (mut a, mut b) = (here.connect(), there.connect());
    fill(&mut a);
    let wanted = read_all(&mut a);
    let names: Vec<&str> = KEYS.iter().map(|(key, _)| *key).collect();
    let names = names.join(" ");
    for is_cold in [false, true] {
        if is_cold {
            force_demote(&mut a);
        }
        let sent = a.run(&format!("MIGRATE 127.0.0.1 {} '' 0 5000 KEYS {names} nosuch", there.port));
        assert_eq!(sent, "OK", "cold: {is_cold}");
        assert_eq!((a.run("DBSIZE"), read_all(&mut b)), ("(integer) 0".to_owned(), wanted.clone()));
        let ttl: u64 = b.run("PTTL text").trim_start_matches("(integer) ").parse().unwrap();
        assert!((1..=100_000_000).contains(&ttl), "{ttl}");
        for (key, _) in KEYS {
            assert_eq!(b.run(&format!("MIGRATE 127.0.0.1 {} {key} 0 5000", here.port)), "OK", "{key}");
        }
        assert_eq!((b.run("DBSIZE"), read_all(&mut a)), ("(integer) 0".to_owned(), wanted.clone()));
    }
    // Redis 7.0 does not know all that 7.2 says of consumers; the rest it takes.
    let Some(redis) = Redis::if_installed(&[]) else { return };
    let mut redis_client = redis.connect();
    force_demote(&mut a);
    if flintkv_tests::compare::is_valkey(&mut redis_client) {
        assert_eq!(a.run(&format!("MIGRATE 127.0.0.1 {} '' 0 5000 KEYS {names}", redis.port)), "OK");
        assert_eq!(redis_client.run("DBSIZE"), format!("(integer) {}", KEYS.len()));
        return;
    }
    let refused = "(error) ERR Target instance replied with error: ERR DUMP payload version or checksum are wrong";
    assert_eq!(a.run(&format!("MIGRATE 127.0.0.1 {} '' 0 5000 KEYS {names}", redis.port)), refused);
    assert_eq!((a.run("DBSIZE").as_str(), a.run("EXISTS group").as_str()), ("(integer) 1", "(integer) 1"));
    assert_eq!(redis_client.run("DBSIZE"), format!("(integer) {}", KEYS.len() - 1));
    let encoding = |key: &str, redis: &mut Client| redis.run(&format!("OBJECT ENCODING {key}"));
    for (key, wanted) in [("hash", "listpack"), ("table", "hashtable"), ("ints", "intset"), ("tree", "skiplist")] {
        assert_eq!(encoding(key, &mut redis_client), format!("\"{wanted}\""), "{key}");
    }
    for (key, _) in &KEYS[..KEYS.len() - 1] {
        assert_eq!(redis_client.run(&format!("MIGRATE 127.0.0.1 {} {key} 0 5000", here.port)), "OK", "{key}");
    }
    let mut back = read_all(&mut a);
    // An unordered collection may have any order.
    for all in [&mut back, &mut wanted.clone()] {
        all.retain(|line| !line.starts_with("hash"));
    }
    assert_eq!(back, wanted.into_iter().filter(|line| !line.starts_with("hash")).collect::<Vec<_>>());
}

#[test]
fn options_do_what_they_say() {
    let (here, there) = (Node::start(&[]), Node::start(&[("requirepass", "word"), ("databases", "4")]));
    let (mut a, mut b) = (here.connect(), there.connect());
    lines(&mut b, &[("AUTH word", "OK"), ("ACL SETUSER ann on >secret ~* +@all", "OK"), ("SELECT 3", "OK")]);
    let mut migrate = |rest: &str, reply: &str| {
        let line = rest.replacen("HERE", &format!("127.0.0.1 {}", there.port), 1);
        assert_eq!(a.run(&format!("MIGRATE {line}")), reply, "{rest}");
    };
    let error = |text: &str| format!("(error) ERR Target instance replied with error: {text}");
    migrate("HERE x 3 1000 AUTH word", "NOKEY");
    let mut c = here.connect();
    lines(&mut c, &[("MSET x 1 y 2 z 3 w 4", "OK"), ("PEXPIRE z 1000000", "(integer) 1")]);
    migrate("HERE x 3 1000", &error("NOAUTH Authentication required."));
    let wrong = error("WRONGPASS invalid username-password pair or user is disabled.");
    migrate("HERE x 3 1000 AUTH other", &wrong);
    migrate("HERE x 3 1000 AUTH2 ann word", &wrong);
    migrate("HERE x 4 1000 AUTH word", &error("ERR DB index is out of range"));
    migrate("HERE x 3 1000 COPY AUTH2 ann secret", "OK");
    assert_eq!((b.run("GET x"), c.run("GET x")), ("\"1\"".into(), "\"1\"".into()));
    // One key already exists at the target; the others are moved.
    let busy = error("BUSYKEY Target key name already exists.");
    migrate("HERE '' 3 1000 AUTH word KEYS y x z", &busy);
    lines(&mut c, &[("EXISTS y z", "(integer) 0"), ("EXISTS x", "(integer) 1")]);
    assert_eq!((b.run("MGET x y z"), b.run("TTL x")), ("1) \"1\"\n2) \"2\"\n3) \"3\"".into(), "(integer) -1".into()));
    assert!(b.run("PTTL z").as_str() > "(integer) 0");
    migrate("HERE x 3 1000 REPLACE AUTH word", "OK");
    lines(&mut c, &[("EXISTS x", "(integer) 0")]);
    migrate("HERE w 0 1000 auth word", "OK");
    lines(&mut b, &[("SELECT 0", "OK"), ("GET w", "\"4\"")]);
    // Contexts in which a command cannot wait.
    let refused = "(error) ERR Command not allowed inside a transaction";
    lines(&mut c, &[("MULTI", "OK"), ("MIGRATE 127.0.0.1 1 q 0 100", refused), ("DISCARD", "OK")]);
    let text = c.run(&format!("EVAL \"return redis.call('migrate', '127.0.0.1', '{}', 'q', 0, 100)\" 0", there.port));
    assert!(text.contains("This Redis command is not allowed from script"), "{text}");
    lines(
        &mut c,
        &[
            ("HSET h a 1", "(integer) 1"),
            ("HEXPIRE h 100 FIELDS 1 a", "1) (integer) 1"),
            (
                "MIGRATE 127.0.0.1 1 h 0 100",
                "(error) ERR A hash with fields that expire cannot be moved: their times would be lost",
            ),
        ],
    );
}

/// A target that the test controls: it answers when the test wants, and returns what it was sent.
struct Puppet {
    listener: TcpListener,
    port: u16,
}

impl Puppet {
    fn new() -> Puppet {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        Puppet { listener, port }
    }

    /// Accepts the node's next connection.
    fn met(&self) -> Client {
        Client::new(self.listener.accept().unwrap().0)
    }
}

/// The next `count` commands that the node sends.
fn received(target: &mut Client, count: usize) -> Vec<Vec<String>> {
    let word = |value| match value {
        Value::Bulk(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        other => panic!("a word: {other:?}"),
    };
    let command = |value| match value {
        Some(Value::Array(words)) => words.into_iter().map(word).collect(),
        other => panic!("a command: {other:?}"),
    };
    (0..count).map(|_| command(target.reply())).collect()
}

fn say(client: &mut Client, line: &str) {
    let mut bytes = Vec::new();
    let words = crate::common::words(line);
    resp::client::encode_command(&words.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut bytes);
    client.send(&bytes);
}

#[test]
fn keys_changed_during_migrate_stay_and_no_other_client_waits() {
    let node = Node::start(&[("io-threads", "1")]);
    let (mut a, mut b) = (node.connect(), node.connect());
    let puppet = Puppet::new();
    lines(
        &mut b,
        &[
            ("MSET same 1 set 1 gone 1 back 1 denied 1", "OK"),
            ("XADD group 1-1 a 1", "\"1-1\""),
            ("XGROUP CREATE group g 0", "OK"),
        ],
    );
    a.send(b"PING\r\n");
    say(&mut a, &format!("MIGRATE 127.0.0.1 {} '' 5 60000 AUTH pw KEYS same set gone back denied group", puppet.port));
    assert_eq!(a.read(), "PONG", "what came before does not wait");
    let mut target = puppet.met();
    assert_eq!(received(&mut target, 2), [["AUTH", "pw"], ["SELECT", "5"]]);
    target.send(b"+OK\r\n+OK\r\n");
    let restores = received(&mut target, 6);
    assert_eq!(restores[2][..3], ["RESTORE", "gone", "0"]);
    // The node's only worker continues, and the keys are not locked.
    lines(
        &mut b,
        &[
            ("GET same", "\"1\""),
            ("SET set 2", "OK"),
            ("DEL gone", "(integer) 1"),
            ("DEL back", "(integer) 1"),
            ("SET back 1", "OK"),
        ],
    );
    assert!(b.run("XREADGROUP GROUP g ann STREAMS group >").contains("1-1"));
    target.send(b"+OK\r\n+OK\r\n+OK\r\n+OK\r\n-NOPERM no\r\n+OK\r\n");
    assert_eq!(a.read(), "(error) ERR Target instance replied with error: NOPERM no");
    lines(
        &mut b,
        &[
            ("EXISTS same gone", "(integer) 0"),
            ("MGET set back denied", "1) \"2\"\n2) \"1\"\n3) \"1\""),
            ("XLEN group", "(integer) 1"),
        ],
    );
    // The connection is kept, with its user and database. Whether the password still holds is for the target to say.
    assert_eq!(b.info("stats", "migrate_cached_sockets"), "1");
    say(&mut a, &format!("MIGRATE 127.0.0.1 {} set 5 60000 AUTH pw", puppet.port));
    assert_eq!(received(&mut target, 1), [["AUTH", "pw"]]);
    target.send(b"+OK\r\n");
    assert_eq!(received(&mut target, 1)[0][..3], ["RESTORE", "set", "0"]);
    assert_eq!(b.run("SET set 3"), "OK");
    target.send(b"+OK\r\n");
    let changed =
        "1 of 1 keys were changed while they were sent: they stay here, and the target has them as they were before";
    assert_eq!(a.read(), format!("(error) ERR {changed}"));
    // Another password does not get the kept connection.
    say(&mut a, &format!("MIGRATE 127.0.0.1 {} set 5 60000", puppet.port));
    let mut other = puppet.met();
    assert_eq!(received(&mut other, 1), [["SELECT", "5"]]);
    other.send(b"-ERR no\r\n");
    assert_eq!(a.read(), "(error) ERR Target instance replied with error: ERR no");
    // A connection that the other end closed is replaced by a new one.
    drop(target);
    say(&mut a, &format!("MIGRATE 127.0.0.1 {} set 0 60000 AUTH pw", puppet.port));
    let mut target = puppet.met();
    assert_eq!(received(&mut target, 1), [["AUTH", "pw"]]);
    target.send(b"+OK\r\n");
    assert_eq!(received(&mut target, 1)[0][1], "set");
    target.send(b"+OK\r\n");
    assert_eq!((a.read().as_str(), b.run("GET set").as_str()), ("OK", "(nil)"));
}

#[test]
fn a_password_that_was_changed_is_refused_on_a_kept_connection_too() {
    let (here, there) = (Node::start(&[("io-threads", "1")]), Node::start(&[("requirepass", "old")]));
    let (mut a, mut b) = (here.connect(), there.connect());
    lines(&mut b, &[("AUTH old", "OK"), ("ACL SETUSER ann on >secret ~* +@all", "OK")]);
    lines(&mut a, &[("MSET x 1 y 2 z 3", "OK")]);
    let mut migrate = |key: &str, login: &str| a.run(&format!("MIGRATE 127.0.0.1 {} {key} 0 5000 {login}", there.port));
    let wrong =
        "(error) ERR Target instance replied with error: WRONGPASS invalid username-password pair or user is disabled.";
    assert_eq!((migrate("x", "COPY AUTH old"), migrate("y", "COPY AUTH2 ann secret")), ("OK".into(), "OK".into()));
    lines(&mut b, &[("CONFIG SET requirepass new", "OK"), ("ACL SETUSER ann off", "OK")]);
    assert_eq!((migrate("z", "AUTH old"), migrate("z", "AUTH2 ann secret")), (wrong.into(), wrong.into()));
    assert_eq!((migrate("z", "AUTH new").as_str(), b.run("GET z").as_str()), ("OK", "\"3\""));
}

#[test]
fn a_failing_target_loses_no_key() {
    let node = Node::start(&[]);
    let mut a = node.connect();
    lines(&mut a, &[("MSET x 1 y 2", "OK")]);
    let puppet = Puppet::new();
    let reading = "(error) IOERR error or timeout reading to target instance";
    // The target does not answer.
    assert_eq!(a.run(&format!("MIGRATE 127.0.0.1 {} x 0 50", puppet.port)), reading);
    // The target closes the connection after the first of two commands.
    say(&mut a, &format!("MIGRATE 127.0.0.1 {} '' 0 60000 KEYS x y", puppet.port));
    drop(puppet.met());
    let mut target = puppet.met();
    received(&mut target, 2);
    target.send(b"+OK\r\n");
    drop(target);
    assert_eq!((a.read().as_str(), a.run("MGET x y").as_str()), (reading, "1) (nil)\n2) \"2\""));
    // The target answers with a line that is not RESP and never ends.
    say(&mut a, &format!("MIGRATE 127.0.0.1 {} y 0 60000", puppet.port));
    let mut target = puppet.met();
    received(&mut target, 1);
    target.send(&[b'x'; 20_000]);
    assert_eq!((a.read().as_str(), a.run("GET y").as_str()), (reading, "\"2\""));
    assert_eq!(
        a.run("MIGRATE no.such.host.invalid 6379 y 0 5000"),
        "(error) IOERR error or timeout connecting to the client"
    );
    assert_eq!(a.info("stats", "migrate_cached_sockets"), "0");
}

#[test]
fn a_node_that_is_its_own_target_loses_nothing() {
    let node = Node::start(&[("io-threads", "1")]);
    let mut a = node.connect();
    assert_eq!(a.run("SET x 1"), "OK");
    let here = format!("MIGRATE 127.0.0.1 {} x", node.port);
    assert_eq!(
        a.run(&format!("{here} 0 5000")),
        "(error) ERR Target instance replied with error: BUSYKEY Target key name already exists."
    );
    assert!(a.run(&format!("{here} 0 5000 REPLACE")).starts_with("(error) ERR 1 of 1 keys were changed"));
    assert_eq!((a.run("GET x"), a.run(&format!("{here} 1 5000"))), ("\"1\"".into(), "OK".into()));
    lines(&mut a, &[("EXISTS x", "(integer) 0"), ("SELECT 1", "OK"), ("GET x", "\"1\"")]);
}
