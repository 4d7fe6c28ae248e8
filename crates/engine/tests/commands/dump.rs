//! DUMP and RESTORE: values go to Debian's redis-server and come back, and hostile payloads give errors.

use crate::harness::Harness;
use flintkv_tests::Redis;
use resp::client::{Value, parse_value};
use value::rdb;

/// A key of each type and form, with a command that reads it.
const KEYS: &[(&str, &str)] = &[
    ("int", "GET int"),
    ("text", "GET text"),
    ("long", "GET long"),
    ("hash", "HGETALL hash"),
    ("table", "HGET table f77"),
    ("list", "LRANGE list 0 -1"),
    ("chunks", "LRANGE chunks 0 -1"),
    ("ints", "SMEMBERS ints"),
    ("members", "SISMEMBER members m500"),
    ("zset", "ZRANGE zset 0 -1 WITHSCORES"),
    ("tree", "ZRANGE tree 0 -1 WITHSCORES"),
    ("stream", "XRANGE stream - +"),
    ("stream", "XPENDING stream g"),
];

fn lines() -> Vec<String> {
    let mut lines: Vec<String> = [
        "SET int -70000",
        "SET text 'a value'",
        "HSET hash a 1 b two",
        "RPUSH list 1 two 3 '' 70000",
        "SADD ints 1 -5 70000 4294967296",
        "ZADD zset 1.5 a -inf b 3 c",
        "XADD stream 1-1 a 1 b 2",
        "XADD stream 2-1 a 3 b 4",
        "XADD stream 3-1 c 5",
        "XDEL stream 2-1",
        "XGROUP CREATE stream g 0",
        "XREADGROUP GROUP g ann COUNT 1 STREAMS stream >",
    ]
    .map(str::to_owned)
    .into();
    lines.push(format!("SET long {}", "abcabcabc".repeat(3000)));
    for n in 0..600i32 {
        lines.push(format!("HSET table f{n} value:{n}"));
        lines.push(format!("RPUSH chunks element:{n}:{}", "x".repeat(n as usize % 40)));
        lines.push(format!("SADD members m{n}"));
        lines.push(format!("ZADD tree {}.25 m{n}", n * 3 - 900));
    }
    lines
}

fn bulk(value: Value) -> Vec<u8> {
    match value {
        Value::Bulk(bytes) => bytes,
        other => panic!("no bulk string: {other:?}"),
    }
}

fn dump(redis: &mut Harness, key: &str) -> Vec<u8> {
    let reply = redis.reply(&[b"DUMP", key.as_bytes()]);
    bulk(parse_value(&reply).expect("RESP").expect("whole").0)
}

#[test]
fn values_go_to_a_real_redis_and_come_back() {
    let mut ours = Harness::new();
    lines().iter().for_each(|line| _ = ours.run(line));
    let Some((mut theirs, _server)) = Redis::connected(&[]) else { return };
    lines().iter().for_each(|line| _ = theirs.run(line));
    for (key, read) in KEYS {
        let wanted = ours.run(read);
        assert!(!wanted.starts_with("(error)") && wanted != "(nil)", "{read}: {wanted}");
        assert_eq!(theirs.run(read).len(), wanted.len(), "{read}");
        // From Redis.
        let payload = bulk(theirs.call(&[b"DUMP", key.as_bytes()]));
        let encoding = ours.run(&format!("OBJECT ENCODING {key}"));
        assert_eq!(ours.words(&[b"RESTORE", key.as_bytes(), b"0", &payload, b"REPLACE"]), "OK", "{key}");
        assert_eq!(ours.run(read), wanted, "{read} of Redis's dump");
        assert_eq!(ours.run(&format!("OBJECT ENCODING {key}")), encoding);
        // To Redis, which is 7.0 here. It accepts no newer version, and the streams of 7.2 are a type of their own.
        let mut payload = dump(&mut ours, key);
        assert_eq!(ours.words(&[b"RESTORE", key.as_bytes(), b"0", &payload, b"REPLACE"]), "OK", "{key}");
        assert_eq!(ours.run(read), wanted, "{read} of our dump");
        if *key != "stream" {
            rdb::reseal(&mut payload, 10);
            assert_eq!(theirs.words(&[b"RESTORE", key.as_bytes(), b"0", &payload, b"REPLACE"]), "OK", "{key}");
            let read = theirs.run(read);
            assert_eq!(read.len(), wanted.len(), "{key}");
        }
    }
}

#[test]
fn a_payload_with_a_byte_changed_gives_a_value_or_an_error() {
    let mut redis = Harness::new();
    lines().iter().for_each(|line| _ = redis.run(line));
    for (key, _) in KEYS {
        let sound = dump(&mut redis, key);
        let step = (sound.len() / 300).max(1);
        for at in (0..sound.len() - 10).step_by(step) {
            for to in [0, 0x7f, 0x80, 0xc3, 0xff, sound[at] ^ 1] {
                let mut payload = sound.clone();
                payload[at] = to;
                assert_eq!(
                    redis.words(&[b"RESTORE", b"copy", b"0", &payload, b"REPLACE"]) == "OK",
                    payload == sound,
                    "the checksum tells"
                );
                rdb::reseal(&mut payload, 11);
                let reply = redis.words(&[b"RESTORE", b"copy", b"0", &payload, b"REPLACE"]);
                assert!(["OK", "(error) ERR Bad data format"].contains(&reply.as_str()), "{reply}");
                redis.run("OBJECT ENCODING copy");
                redis.run("DUMP copy");
                redis.run("XINFO STREAM copy FULL");
            }
        }
    }
}

#[test]
fn restore_says_what_is_wrong_in_redis_s_order() {
    let mut redis = Harness::new();
    redis.run("SET k v");
    let payload = dump(&mut redis, "k");
    let mut restore = |words: &[&[u8]]| redis.words(&[&[&b"RESTORE"[..]][..], words].concat());
    assert_eq!(restore(&[b"k", b"-1", b"junk"]), "(error) BUSYKEY Target key name already exists.");
    assert_eq!(restore(&[b"k", b"-1", b"junk", b"FOO"]), "(error) ERR syntax error");
    assert_eq!(restore(&[b"n", b"x", b"junk"]), "(error) ERR value is not an integer or out of range");
    assert_eq!(
        restore(&[b"n", b"0", &payload, b"IDLETIME", b"-1"]),
        "(error) ERR Invalid IDLETIME value, must be >= 0"
    );
    assert_eq!(
        restore(&[b"n", b"0", &payload, b"FREQ", b"256"]),
        "(error) ERR Invalid FREQ value, must be >= 0 and <= 255"
    );
    assert_eq!(restore(&[b"n", b"0", &payload, b"FREQ", b"1", b"IDLETIME", b"1"]), "(error) ERR syntax error");
    assert_eq!(restore(&[b"n", b"1", &payload, b"ABSTTL"]), "OK");
    assert_eq!(restore(&[b"k", b"1", &payload, b"ABSTTL", b"REPLACE"]), "OK");
    assert_eq!(redis.run("EXISTS n k"), "(integer) 0", "the time is over");
    let mut restore = |words: &[&[u8]]| redis.words(&[&[&b"RESTORE"[..]][..], words].concat());
    assert_eq!(restore(&[b"n", b"0", &payload, b"IDLETIME", b"1000"]), "OK");
    assert_eq!(redis.run("OBJECT IDLETIME n"), "(integer) 1000");
    assert_eq!(redis.run("TTL n"), "(integer) -1");
}
