//! Owns the operations on a restored value: it moves to flash and back, is copied by its dump, and gets every command
//! of its type. Any reply is fine if it is one well-formed reply. Never knows where the value comes from.

#[path = "../../../crates/engine/tests/commands/harness/mod.rs"]
mod harness;

use harness::{Harness, words};
use std::cell::RefCell;
use value::rdb;

const STRING: &[&str] = &[
    "STRLEN k",
    "GETRANGE k -5 -1",
    "BITCOUNT k 0 -1",
    "BITPOS k 1",
    "BITFIELD k GET u7 3 INCRBY i5 #2 9",
    "PFCOUNT k",
    "LCS k copy LEN",
    "INCR k",
    "INCRBYFLOAT k 1.5",
    "APPEND k tail",
    "SETRANGE k 3 in",
    "GETDEL k",
];
const HASH: &[&str] = &[
    "HLEN k",
    "HKEYS k",
    "HVALS k",
    "HSCAN k 0 COUNT 1000",
    "HGET k first",
    "HSTRLEN k first",
    "HINCRBY k first 1",
    "HINCRBYFLOAT k first 0.5",
    "HSET k first 1 new 2",
    "HEXPIRE k 100 FIELDS 2 first new",
    "HTTL k FIELDS 2 first new",
    "HRANDFIELD k -5 WITHVALUES",
    "HRANDFIELD k 3",
    "HDEL k first",
    "HGETALL k",
];
const LIST: &[&str] = &[
    "LLEN k",
    "LINDEX k -1",
    "LPOS k first COUNT 0",
    "LINSERT k BEFORE first new",
    "LSET k -1 1000000",
    "LREM k -1 first",
    "RPUSH k a 1",
    "LPUSH k b -1",
    "LMOVE k k LEFT RIGHT",
    "SORT k ALPHA DESC",
    "LTRIM k 1 -2",
    "RPOP k 2",
    "LRANGE k 0 -1",
];
const SET: &[&str] = &[
    "SCARD k",
    "SISMEMBER k first",
    "SMISMEMBER k first 1 x",
    "SRANDMEMBER k -5",
    "SRANDMEMBER k 3",
    "SSCAN k 0 COUNT 1000",
    "SADD k 7 x",
    "SREM k first",
    "SUNIONSTORE other k copy",
    "SDIFF copy k",
    "SINTERCARD 2 k copy",
    "SMOVE k other x",
    "SORT k LIMIT 0 3 ALPHA",
    "SPOP k 2",
    "SMEMBERS k",
];
const ZSET: &[&str] = &[
    "ZCARD k",
    "ZSCORE k first",
    "ZRANK k first WITHSCORE",
    "ZREVRANK k first",
    "ZCOUNT k -inf (5",
    "ZRANGEBYSCORE k -inf +inf LIMIT 1 3",
    "ZREVRANGEBYLEX k + -",
    "ZLEXCOUNT k - [m",
    "ZRANDMEMBER k -5 WITHSCORES",
    "ZSCAN k 0 COUNT 1000",
    "GEOPOS k first",
    "GEOSEARCH k FROMLONLAT 1 1 BYRADIUS 9000 km ASC",
    "ZINCRBY k 1.5 first",
    "ZADD k GT 3 first -inf new",
    "ZUNIONSTORE other 2 k copy WEIGHTS 1 -2",
    "ZINTER 2 k copy WITHSCORES",
    "ZREM k first",
    "ZPOPMIN k 2",
    "ZREMRANGEBYRANK k 0 0",
    "ZRANGE k 0 -1 WITHSCORES",
];
const STREAM: &[&str] = &[
    "XLEN k",
    "XRANGE k - +",
    "XREVRANGE k + - COUNT 3",
    "XINFO STREAM k FULL COUNT 0",
    "XINFO GROUPS k",
    "XINFO CONSUMERS k g",
    "XPENDING k g",
    "XPENDING k g - + 10",
    "XADD k * f v",
    "XADD k NOMKSTREAM 1-1 f v",
    "XGROUP CREATE k g 0",
    "XREADGROUP GROUP g ann COUNT 3 STREAMS k >",
    "XREADGROUP GROUP g ann STREAMS k 0",
    "XAUTOCLAIM k g bob 0 0 COUNT 5",
    "XCLAIM k g eve 0 1-1 2-1 FORCE",
    "XACK k g 1-1",
    "XGROUP DELCONSUMER k g ann",
    "XDEL k 1-1 2-1",
    "XSETID k 99999999999999-1 ENTRIESADDED 99",
    "XTRIM k MAXLEN ~ 2",
    "XTRIM k MAXLEN 1",
    "XREAD STREAMS k 0",
];

thread_local! {
    static SERVER: RefCell<Harness> = RefCell::new(Harness::with_flash(1));
}

/// `body` is a payload without its version and checksum. False: the payload was refused.
pub fn restored(body: &[u8]) -> bool {
    SERVER.with_borrow_mut(|server| play(server, body))
}

/// Runs commands on the keys below, and returns their replies.
pub fn commands(lines: &[&[&[u8]]]) -> Vec<Vec<u8>> {
    SERVER.with_borrow_mut(|server| {
        server.run("DEL one two all");
        lines.iter().map(|words| whole(server.reply(words))).collect()
    })
}

fn whole(reply: Vec<u8>) -> Vec<u8> {
    let (_, consumed) = resp::client::parse_value(&reply).expect("well formed").expect("whole");
    assert_eq!(consumed, reply.len(), "one reply");
    reply
}

fn play(server: &mut Harness, body: &[u8]) -> bool {
    let mut payload = body.to_vec();
    payload.extend_from_slice(&[0; 10]);
    rdb::reseal(&mut payload, rdb::VERSION);
    server.run("DEL k copy other");
    let reply = server.words(&[b"RESTORE", b"k", b"0", &payload]);
    if reply != "OK" {
        assert_eq!(reply, "(error) ERR Bad data format");
        return false;
    }
    // An accepted value is like any other: its dump restores it, and it survives flash.
    let dumped = dump(server, b"k");
    assert_eq!(server.words(&[b"RESTORE", b"copy", b"0", &dumped]), "OK");
    assert!(dump(server, b"copy") == dumped, "a copy is another value");
    if body.len() % 16 == 0 {
        server.freeze();
        assert!(dump(server, b"k") == dumped, "it came back from flash as another value");
    }
    let (lines, first): (_, &[&[u8]]) = match server.run("TYPE k").as_str() {
        "string" => (STRING, &[b"GET", b"k"]),
        "hash" => (HASH, &[b"HRANDFIELD", b"k"]),
        "list" => (LIST, &[b"LINDEX", b"k", b"0"]),
        "set" => (SET, &[b"SRANDMEMBER", b"k"]),
        "zset" => (ZSET, &[b"ZRANDMEMBER", b"k"]),
        "stream" => (STREAM, &[b"XLEN", b"k"]),
        other => panic!("a key of type {other}"),
    };
    let first = bulk(&server.reply(first)).unwrap_or_default();
    server.run("OBJECT ENCODING k");
    server.run("MEMORY USAGE k");
    for line in lines {
        let words = words(line);
        let words: Vec<&[u8]> = words.iter().map(|word| if word == b"first" { &first[..] } else { word }).collect();
        whole(server.reply(&words));
    }
    dump(server, b"k");
    true
}

fn dump(server: &mut Harness, key: &[u8]) -> Vec<u8> {
    bulk(&server.reply(&[b"DUMP", key])).unwrap_or_default()
}

fn bulk(reply: &[u8]) -> Option<Vec<u8>> {
    match resp::client::parse_value(reply) {
        Ok(Some((resp::client::Value::Bulk(bytes), _))) => Some(bytes),
        _ => None,
    }
}
