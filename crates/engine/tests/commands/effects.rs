//! The effects that commands state: the exact effects of every write command, and that the effects give the same
//! dataset on an empty store.

use crate::examples::on_data;
use crate::harness::replay::Replay;
use crate::harness::{Harness, words};
use base::events::Class;
use commands::{Effect, Flag, Row, table};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use store::{Effects, Listener, Resume, Why};

/// Commands to run before, the command, and its effects. `?` stands for a word chosen at random. The time is
/// 1,700,000,000,000 ms. Another server accepts one of MIGRATE's keys.
type Case = (&'static [&'static str], &'static str, &'static [&'static str]);

const STRINGS: &[Case] = &[
    (&[], "APPEND k v", &["APPEND k v"]),
    (&[], "SET k v", &["SET k v"]),
    (&[], "SET k v EX 10", &["SET k v PXAT 1700000010000"]),
    (&[], "SET k v PX 10", &["SET k v PXAT 1700000000010"]),
    (&[], "SET k v EXAT 1700000001", &["SET k v PXAT 1700000001000"]),
    (&[], "SET k v PXAT 1700000000001 NX GET", &["SET k v PXAT 1700000000001"]),
    (&["SET k old EX 10"], "SET k v XX KEEPTTL", &["SET k v KEEPTTL"]),
    (&["SET k old EX 10"], "SET k v GET", &["SET k v"]),
    (&["SET k old"], "SET k v NX", &[]),
    (&[], "SET k v XX GET", &[]),
    (&["HSET k f v"], "SET k v GET", &[]),
    (&[], "SETEX k 10 v", &["SET k v PXAT 1700000010000"]),
    (&[], "PSETEX k 10 v", &["SET k v PXAT 1700000000010"]),
    (&[], "PSETEX k 0 v", &[]),
    (&[], "SETNX k v", &["SETNX k v"]),
    (&["SET k old"], "SETNX k v", &[]),
    (&[], "SETRANGE k 2 v", &["SETRANGE k 2 v"]),
    (&[], "SETRANGE k 2 ''", &[]),
    (&["SET k v EX 10"], "GETSET k w", &["GETSET k w"]),
    (&["SET k v"], "GETDEL k", &["DEL k"]),
    (&[], "GETDEL k", &[]),
    (&["SET k v"], "GETEX k EX 10", &["PEXPIREAT k 1700000010000"]),
    (&["SET k v"], "GETEX k PXAT 1", &["DEL k"]),
    (&["SET k v EX 10"], "GETEX k PERSIST", &["PERSIST k"]),
    (&["SET k v"], "GETEX k PERSIST", &[]),
    (&["SET k v EX 10"], "GETEX k", &[]),
    (&[], "MSET a 1 b 2", &["MSET a 1 b 2"]),
    (&[], "MSETNX a 1 b 2", &["MSETNX a 1 b 2"]),
    (&["SET b 1"], "MSETNX a 1 b 2", &[]),
    (&[], "INCR k", &["INCR k"]),
    (&["SET k v"], "INCR k", &[]),
    (&[], "DECR k", &["DECR k"]),
    (&[], "INCRBY k 2", &["INCRBY k 2"]),
    (&[], "DECRBY k 2", &["DECRBY k 2"]),
    (&["SET k 10.5 EX 10"], "INCRBYFLOAT k 0.1", &["SET k 10.6 KEEPTTL"]),
    (&["SET k 10.5"], "INCRBYFLOAT k inf", &[]),
    (&[], "SETBIT k 7 1", &["SETBIT k 7 1"]),
    (&["SET a a"], "BITOP NOT to a", &["BITOP NOT to a"]),
    (&[], "BITFIELD k SET u8 0 7 GET u8 0", &["BITFIELD k SET u8 0 7 GET u8 0"]),
    (&[], "BITFIELD k GET u8 0", &[]),
    (&[], "PFADD k a b", &["PFADD k a b"]),
    (&["PFADD k a"], "PFADD k a", &[]),
    (&["PFADD k a"], "PFCOUNT k", &["PFCOUNT k"]),
    (&["PFADD k a", "PFCOUNT k"], "PFCOUNT k", &[]),
    (&["PFADD k a"], "PFCOUNT k k", &[]),
    (&["PFADD k a"], "PFMERGE to k", &["PFMERGE to k"]),
    (&["PFADD k a", "PFMERGE to k"], "PFMERGE to k", &["PFMERGE to k"]),
    (&["PFADD k a"], "PFDEBUG TODENSE k", &["PFDEBUG TODENSE k"]),
    (&["PFADD k a", "PFDEBUG TODENSE k"], "PFDEBUG GETREG k", &[]),
];

const HASHES: &[Case] = &[
    (&[], "HSET h f v g w", &["HSET h f v g w"]),
    (&[], "HMSET h f v", &["HMSET h f v"]),
    (&[], "HSETNX h f v", &["HSETNX h f v"]),
    (&["HSET h f v"], "HSETNX h f w", &[]),
    (&["HSET h f v g w"], "HDEL h f", &["HDEL h f"]),
    (&["HSET h f v"], "HDEL h g", &[]),
    (&[], "HINCRBY h f 2", &["HINCRBY h f 2"]),
    (&["HSET h f 10.5"], "HINCRBYFLOAT h f 0.1", &["HSET h f 10.6"]),
    (
        &["HSET h f 10.5", "HEXPIRE h 10 FIELDS 1 f"],
        "HINCRBYFLOAT h f 0.1",
        &["HSET h f 10.6", "HPEXPIREAT h 1700000010000 FIELDS 1 f"],
    ),
    (&["HSET h f v"], "HINCRBYFLOAT h f 1", &[]),
    (&["HSET h f v g w"], "HEXPIRE h 10 FIELDS 3 f nosuch g", &["HPEXPIREAT h 1700000010000 FIELDS 2 f g"]),
    (&["HSET h f v"], "HPEXPIRE h 10 NX FIELDS 2 f f", &["HPEXPIREAT h 1700000000010 FIELDS 1 f"]),
    (&["HSET h f v"], "HEXPIREAT h 1700000001 FIELDS 1 f", &["HPEXPIREAT h 1700000001000 FIELDS 1 f"]),
    (&["HSET h f v g w"], "HPEXPIREAT h 1 FIELDS 2 f f", &["HDEL h f"]),
    (&["HSET h f v"], "HPEXPIREAT h 1 FIELDS 1 f", &["HDEL h f"]),
    (&["HSET h f v"], "HEXPIRE h 10 XX FIELDS 1 f", &[]),
    (&["HSET h f v", "HEXPIRE h 10 FIELDS 1 f"], "HPERSIST h FIELDS 1 f", &["HPERSIST h FIELDS 1 f"]),
    (&["HSET h f v"], "HPERSIST h FIELDS 1 f", &[]),
];

const LISTS: &[Case] = &[
    (&[], "LPUSH l a b", &["LPUSH l a b"]),
    (&[], "RPUSH l a b", &["RPUSH l a b"]),
    (&["RPUSH l a"], "LPUSHX l b", &["LPUSHX l b"]),
    (&["RPUSH l a"], "RPUSHX l b", &["RPUSHX l b"]),
    (&[], "RPUSHX l b", &[]),
    (&["RPUSH l a"], "LSET l 0 b", &["LSET l 0 b"]),
    (&["RPUSH l a"], "LINSERT l BEFORE a b", &["LINSERT l BEFORE a b"]),
    (&["RPUSH l a"], "LINSERT l BEFORE nosuch b", &[]),
    (&["RPUSH l a b a"], "LREM l 1 a", &["LREM l 1 a"]),
    (&["RPUSH l a"], "LREM l 1 b", &[]),
    (&["RPUSH l a b"], "LTRIM l 1 1", &["LTRIM l 1 1"]),
    (&["RPUSH l a b"], "LPOP l", &["LPOP l"]),
    (&["RPUSH l a b"], "RPOP l 5", &["RPOP l 5"]),
    (&["RPUSH l a b"], "LPOP l 0", &[]),
    (&["RPUSH l a b"], "LMPOP 2 k l RIGHT", &["RPOP l 1"]),
    (&["RPUSH l a b"], "LMPOP 2 k l LEFT COUNT 5", &["LPOP l 2"]),
    (&[], "LMPOP 1 l LEFT", &[]),
    (&["RPUSH l a b"], "LMOVE l k LEFT RIGHT", &["LMOVE l k LEFT RIGHT"]),
    (&["RPUSH l a b"], "RPOPLPUSH l k", &["RPOPLPUSH l k"]),
    (&[], "RPOPLPUSH l k", &[]),
    (&["RPUSH l a b"], "BLPOP k l 0", &["LPOP l"]),
    (&["RPUSH l a b"], "BRPOP k l 0", &["RPOP l"]),
    (&[], "BRPOP k l 0.1", &[]),
    (&["RPUSH l a b"], "BLMPOP 0 2 k l LEFT COUNT 9", &["LPOP l 2"]),
    (&["RPUSH l a b"], "BLMOVE l k left RIGHT 0", &["LMOVE l k left RIGHT"]),
    (&["RPUSH l a b", "SET k v"], "BLMOVE l k LEFT RIGHT 0", &[]),
    (&["RPUSH l a b"], "BRPOPLPUSH l k 0", &["RPOPLPUSH l k"]),
    (&["RPUSH l 3 1 2"], "SORT l STORE k", &["RPUSH k 1 2 3"]),
    (&["RPUSH l 3 1 2", "SET k v"], "SORT l GET nosuch_* STORE k", &["DEL k", "RPUSH k \"\" \"\" \"\""]),
    (&["SET k v"], "SORT nosuch STORE k", &["DEL k"]),
    (&[], "SORT nosuch STORE k", &[]),
    (&["RPUSH l 3 1 2"], "SORT l", &[]),
];

const SETS: &[Case] = &[
    (&[], "SADD s a b", &["SADD s a b"]),
    (&["SADD s a"], "SADD s a", &[]),
    (&["SADD s a b"], "SREM s a", &["SREM s a"]),
    (&["SADD s a"], "SREM s b", &[]),
    (&["SADD s a b"], "SMOVE s t a", &["SMOVE s t a"]),
    (&["SADD s a b"], "SMOVE s t nosuch", &[]),
    (&["SADD s a b"], "SPOP s", &["SREM s ?"]),
    (&["SADD s a"], "SPOP s", &["DEL s"]),
    (&["SADD s a b c"], "SPOP s 2", &["SREM s ? ?"]),
    (&["SADD s a b c d e f g h i j"], "SPOP s 9", &["SREM s ? ? ? ? ? ? ? ? ?"]),
    (&["SADD s a b c"], "SPOP s 3", &["DEL s"]),
    (&["SADD s a"], "SPOP s 0", &[]),
    (&[], "SPOP s", &[]),
    (&["SADD s a b", "SADD t b"], "SINTERSTORE to s t", &["SINTERSTORE to s t"]),
    (&["SADD s a b", "SADD t b"], "SUNIONSTORE to s t", &["SUNIONSTORE to s t"]),
    (&["SADD s a b", "SADD t b"], "SDIFFSTORE to s t", &["SDIFFSTORE to s t"]),
    (&[], "SUNIONSTORE to s t", &[]),
];

const SORTED_SETS: &[Case] = &[
    (&[], "ZADD z 1 a 2 b", &["ZADD z 1 a 2 b"]),
    (&["ZADD z 1 a"], "ZADD z NX 2 a", &[]),
    (&["ZADD z 1 a"], "ZINCRBY z 0.1 a", &["ZINCRBY z 0.1 a"]),
    (&["ZADD z 1 a 2 b"], "ZREM z a", &["ZREM z a"]),
    (&["ZADD z 1 a"], "ZREM z b", &[]),
    (&["ZADD z 1 a 2 b"], "ZREMRANGEBYRANK z 0 0", &["ZREMRANGEBYRANK z 0 0"]),
    (&["ZADD z 1 a 2 b"], "ZREMRANGEBYSCORE z 1 1", &["ZREMRANGEBYSCORE z 1 1"]),
    (&["ZADD z 0 a 0 b 0 c"], "ZREMRANGEBYLEX z (a +", &["ZREMRANGEBYRANK z 1 2"]),
    (&["ZADD z 0 a 0 b 0 c"], "ZREMRANGEBYLEX z [x +", &[]),
    (&["ZADD z 1 a 2 b 3 c"], "ZRANGESTORE to z 1 5", &["ZRANGESTORE to z 1 2"]),
    (&["ZADD z 0 a 0 b 0 c"], "ZRANGESTORE to z + [b BYLEX REV LIMIT 0 1", &["ZRANGESTORE to z 2 2"]),
    (&["ZADD z 1 a", "SET to v"], "ZRANGESTORE to z 5 6", &["DEL to"]),
    (&["ZADD z 1 a"], "ZRANGESTORE to z 5 6", &[]),
    (&["ZADD z 1 a", "SET to v PXAT 1"], "ZRANGESTORE to z 5 6", &["DEL to"]),
    (&["ZADD y 1 a", "ZADD z 1 a"], "ZUNIONSTORE to 2 y z", &["ZUNIONSTORE to 2 y z"]),
    (&["ZADD y 1 a", "ZADD z 1 a"], "ZINTERSTORE to 2 y z", &["ZINTERSTORE to 2 y z"]),
    (&["ZADD y 1 a", "ZADD z 1 b"], "ZDIFFSTORE to 2 y z", &["ZDIFFSTORE to 2 y z"]),
    (&["ZADD z 1 a 2 b"], "ZPOPMIN z", &["ZPOPMIN z"]),
    (&["ZADD z 1 a 2 b"], "ZPOPMAX z 5", &["ZPOPMAX z 5"]),
    (&[], "ZPOPMAX z", &[]),
    (&["ZADD z 1 a 2 b"], "ZMPOP 2 y z MIN", &["ZPOPMIN z"]),
    (&["ZADD z 1 a 2 b"], "ZMPOP 2 y z MAX COUNT 9", &["ZPOPMAX z 2"]),
    (&["ZADD z 1 a 2 b"], "BZPOPMIN y z 0", &["ZPOPMIN z"]),
    (&["ZADD z 1 a 2 b"], "BZPOPMAX y z 0", &["ZPOPMAX z"]),
    (&["ZADD z 1 a 2 b"], "BZMPOP 0 2 y z MIN COUNT 9", &["ZPOPMIN z 2"]),
    (&[], "BZMPOP 0.1 2 y z MIN COUNT 9", &[]),
    (&[], "GEOADD g 13 38 a", &["GEOADD g 13 38 a"]),
    (
        &["GEOADD g 13 38 a", "SET to v"],
        "GEOSEARCHSTORE to g FROMLONLAT 13 38 BYRADIUS 1 km COUNT 1 ANY",
        &["DEL to", "ZADD to 3479065152021743 a"],
    ),
    (&["GEOADD g 13 38 a"], "GEORADIUS g 13 38 1 km STORE to", &["ZADD to 3479065152021743 a"]),
    (&["GEOADD g 13 38 a"], "GEORADIUSBYMEMBER g a 1 km STOREDIST to", &["ZADD to 0 a"]),
    (&["GEOADD g 13 38 a"], "GEORADIUS g 0 0 1 km STORE to", &[]),
    (&["GEOADD g 13 38 a"], "GEORADIUS g 13 38 1 km", &[]),
];

/// A stream of three entries with a group; the consumer ann has read one entry.
const GROUP: &[&str] = &[
    "XADD s 1-1 a 1",
    "XADD s 2-1 a 2",
    "XADD s 3-1 a 3",
    "XGROUP CREATE s g 0",
    "XREADGROUP GROUP g ann COUNT 1 STREAMS s >",
];

const GROUP_TWICE: &[&str] = &[GROUP[0], GROUP[1], GROUP[2], GROUP[3], GROUP[4], "XCLAIM s g ann 0 1-1"];
const GROUP_EMPTIED: &[&str] = &[GROUP[0], GROUP[3], GROUP[4], "XDEL s 1-1"];
const GROUP_WITH_BOB: &[&str] =
    &[GROUP[0], GROUP[1], GROUP[2], GROUP[3], GROUP[4], "XREADGROUP GROUP g bob COUNT 1 STREAMS s >", "XDEL s 1-1"];

const STREAMS: &[Case] = &[
    (&[], "XADD s * a 1", &["XADD s 1700000000000-0 a 1"]),
    (&["XADD s 5-1 a 1"], "XADD s 5-* a 1 b ''", &["XADD s 5-2 a 1 b \"\""]),
    (&[], "XADD s NOMKSTREAM * a 1", &[]),
    (&["XADD s 5-1 a 1"], "XADD s 5-1 a 1", &[]),
    (&["XADD s 1-1 a 1", "XADD s 2-1 a 1"], "XADD s MAXLEN 2 3 a 1", &["XADD s MAXLEN = 2 3-0 a 1"]),
    (&["XADD s 1-1 a 1", "XADD s 2-1 a 1"], "XADD s MINID = 3 3 a 1", &["XADD s MAXLEN = 1 3-0 a 1"]),
    (&["XADD s 1-1 a 1"], "XADD s MAXLEN ~ 1 LIMIT 9 3 a 1", &["XADD s 3-0 a 1"]),
    (&["XADD s 1-1 a 1", "XADD s 2-1 a 1"], "XTRIM s MINID 2", &["XTRIM s MAXLEN = 1"]),
    (&["XADD s 1-1 a 1", "XADD s 2-1 a 1"], "XTRIM s MAXLEN ~ 1", &[]),
    (&["XADD s 1-1 a 1", "XADD s 2-1 a 1"], "XTRIM s MAXLEN ~ 0", &["XTRIM s MAXLEN = 0"]),
    (&["XADD s 1-1 a 1"], "XDEL s 1-1 2-1", &["XDEL s 1-1 2-1"]),
    (&["XADD s 1-1 a 1"], "XDEL s 2-1", &[]),
    (&["XADD s 1-1 a 1"], "XSETID s 5-0 ENTRIESADDED 9", &["XSETID s 5-0 ENTRIESADDED 9"]),
    (&["XADD s 1-1 a 1"], "XGROUP CREATE s g $ ENTRIESREAD 1", &["XGROUP CREATE s g 1-1 ENTRIESREAD 1"]),
    (&[], "XGROUP CREATE s g $ MKSTREAM", &["XGROUP CREATE s g 0-0 MKSTREAM"]),
    (GROUP, "XGROUP CREATE s g $", &[]),
    (GROUP, "XGROUP SETID s g $", &["XGROUP SETID s g 3-1"]),
    (GROUP, "XGROUP SETID s g 0 ENTRIESREAD 0", &["XGROUP SETID s g 0-0 ENTRIESREAD 0"]),
    (GROUP, "XGROUP DESTROY s g", &["XGROUP DESTROY s g"]),
    (GROUP, "XGROUP DESTROY s nosuch", &[]),
    (GROUP, "XGROUP CREATECONSUMER s g bob", &["XGROUP CREATECONSUMER s g bob"]),
    (GROUP, "XGROUP CREATECONSUMER s g ann", &[]),
    (GROUP, "XGROUP DELCONSUMER s g ann", &["XGROUP DELCONSUMER s g ann"]),
    (GROUP, "XGROUP DELCONSUMER s g bob", &[]),
    (GROUP, "XACK s g 1-1 9-9", &["XACK s g 1-1 9-9"]),
    (GROUP, "XACK s g 9-9", &[]),
    (
        GROUP,
        "XREADGROUP GROUP g ann STREAMS s >",
        &[
            "XCLAIM s g ann 0 2-1 3-1 TIME 1700000000000 RETRYCOUNT 1 FORCE JUSTID LASTID 3-1",
            "XGROUP SETID s g 3-1 ENTRIESREAD 3",
        ],
    ),
    (
        GROUP,
        "XREADGROUP GROUP g bob COUNT 1 BLOCK 0 STREAMS s >",
        &[
            "XGROUP CREATECONSUMER s g bob",
            "XCLAIM s g bob 0 2-1 TIME 1700000000000 RETRYCOUNT 1 FORCE JUSTID LASTID 2-1",
            "XGROUP SETID s g 2-1 ENTRIESREAD 2",
        ],
    ),
    (
        GROUP,
        "XREADGROUP GROUP g ann NOACK STREAMS s >",
        &["XCLAIM s g ann 0 0-0 JUSTID", "XGROUP SETID s g 3-1 ENTRIESREAD 3"],
    ),
    (
        &["XADD s 1-1 a 1", "XADD s 2-1 a 1", "XADD s 3-1 a 1", "XDEL s 2-1", "XGROUP CREATE s g 0"],
        "XREADGROUP GROUP g ann COUNT 1 NOACK STREAMS s >",
        &["XGROUP CREATECONSUMER s g ann", "XGROUP SETID s g 1-1 ENTRIESREAD -1"],
    ),
    (
        GROUP,
        "XREADGROUP GROUP g ann COUNT 5 STREAMS s 0",
        &["XCLAIM s g ann 0 1-1 TIME 1700000000000 RETRYCOUNT 2 FORCE JUSTID"],
    ),
    (
        GROUP,
        "XREADGROUP GROUP g ann BLOCK 0 NOACK STREAMS s 0",
        &["XCLAIM s g ann 0 1-1 TIME 1700000000000 RETRYCOUNT 2 FORCE JUSTID"],
    ),
    (GROUP, "XREADGROUP GROUP g bob STREAMS s 0", &["XGROUP CREATECONSUMER s g bob"]),
    (
        &["XADD s 1-1 a 1", "XGROUP CREATE s g $", "XGROUP CREATECONSUMER s g ann"],
        "XREADGROUP GROUP g ann STREAMS s >",
        &["XCLAIM s g ann 0 0-0 JUSTID"],
    ),
    // The command waits for a new entry.
    (
        &["XADD s 1-1 a 1", "XGROUP CREATE s g $", "XGROUP CREATECONSUMER s g ann"],
        "XREADGROUP GROUP g ann BLOCK 1 STREAMS s >",
        &["XCLAIM s g ann 0 0-0 JUSTID"],
    ),
    (GROUP, "XREADGROUP GROUP nosuch ann STREAMS s >", &[]),
    (
        GROUP,
        "XCLAIM s g bob 0 1-1 IDLE 5",
        &["XGROUP CREATECONSUMER s g bob", "XCLAIM s g bob 0 1-1 TIME 1699999999995 RETRYCOUNT 2 FORCE JUSTID"],
    ),
    (GROUP, "XCLAIM s g ann 0 1-1 JUSTID", &["XCLAIM s g ann 0 1-1 TIME 1700000000000 RETRYCOUNT 1 FORCE JUSTID"]),
    (
        GROUP_TWICE,
        "XCLAIM s g ann 0 1-1 2-1 FORCE",
        &[
            "XCLAIM s g ann 0 1-1 TIME 1700000000000 RETRYCOUNT 3 FORCE JUSTID",
            "XCLAIM s g ann 0 2-1 TIME 1700000000000 RETRYCOUNT 2 FORCE JUSTID",
        ],
    ),
    (GROUP, "XCLAIM s g ann 0 2-1 LASTID 2-1", &["XCLAIM s g ann 0 0-0 JUSTID LASTID 2-1"]),
    (GROUP, "XCLAIM s g ann 9999 1-1", &["XCLAIM s g ann 0 0-0 JUSTID"]),
    (GROUP_EMPTIED, "XCLAIM s g ann 9999 1-1", &["XCLAIM s g ann 0 0-0 JUSTID", "XACK s g 1-1"]),
    (
        GROUP_WITH_BOB,
        "XAUTOCLAIM s g cid 0 0",
        &[
            "XGROUP CREATECONSUMER s g cid",
            "XCLAIM s g cid 0 2-1 TIME 1700000000000 RETRYCOUNT 2 FORCE JUSTID",
            "XACK s g 1-1",
        ],
    ),
    (GROUP, "XAUTOCLAIM s g ann 0 5-0", &["XCLAIM s g ann 0 0-0 JUSTID"]),
];

/// RESTORE of a string.
macro_rules! concat_restore {
    ($before:literal, $behind:literal) => {
        concat!($before, r#" "\x00\x05value\x0a\x00\x81\xf6\xc18\xc1\xaa\x9bn""#, $behind)
    };
}
const KEYS: &[Case] = &[
    (&["SET k v"], "DEL k nosuch", &["DEL k nosuch"]),
    (&[], "DEL k", &[]),
    (&["SET k v"], "UNLINK k", &["UNLINK k"]),
    (&["SET k v"], "RENAME k l", &["RENAME k l"]),
    (&["SET k v"], "RENAME k k", &[]),
    (&["SET k v"], "RENAMENX k l", &["RENAMENX k l"]),
    (&["SET k v", "SET l v"], "RENAMENX k l", &[]),
    (&["SET k v"], "COPY k l DB 3", &["COPY k l DB 3"]),
    (&["SET k v", "SET l v"], "COPY k l", &[]),
    (&["SET k v"], "MOVE k 3", &["MOVE k 3"]),
    (&["SET k v"], "MOVE nosuch 3", &[]),
    (&["SET k v"], "EXPIRE k 10", &["PEXPIREAT k 1700000010000"]),
    (&["SET k v"], "PEXPIRE k 10 NX", &["PEXPIREAT k 1700000000010"]),
    (&["SET k v"], "EXPIREAT k 1700000001", &["PEXPIREAT k 1700000001000"]),
    (&["SET k v"], "PEXPIREAT k 1700000001000", &["PEXPIREAT k 1700000001000"]),
    (&["SET k v"], "EXPIRE k -1", &["DEL k"]),
    (&["SET k v"], "PEXPIREAT k 1700000000000", &["DEL k"]),
    (&["SET k v"], "EXPIRE k 10 XX", &[]),
    (&[], "EXPIRE k 10", &[]),
    (&["SET k v EX 10"], "PERSIST k", &["PERSIST k"]),
    (&["SET k v"], "PERSIST k", &[]),
    (&[], concat_restore!("RESTORE k 0", ""), &[concat_restore!("RESTORE k 0", "")]),
    (
        &[],
        concat_restore!("RESTORE k 10", " IDLETIME 7"),
        &[concat_restore!("RESTORE k 1700000000010", " ABSTTL IDLETIME 7")],
    ),
    (
        &["SET k v"],
        concat_restore!("RESTORE-ASKING k 1700000000010", " FREQ 9 ABSTTL REPLACE"),
        &[concat_restore!("RESTORE k 1700000000010", " ABSTTL REPLACE FREQ 9")],
    ),
    (&["SET k v"], concat_restore!("RESTORE k 1", " ABSTTL REPLACE"), &["DEL k"]),
    (&[], concat_restore!("RESTORE k 1", " ABSTTL"), &[]),
    (&["SET k v"], concat_restore!("RESTORE k 0", ""), &[]),
    (&["SET k v"], "MIGRATE 127.0.0.1 1 k 0 100", &["DEL k"]),
    // One of two keys was moved, and the reply is an error.
    (&["MSET k v l w"], "MIGRATE 127.0.0.1 1 '' 0 100 KEYS k l", &["DEL k"]),
    (&["SET k v"], "MIGRATE 127.0.0.1 1 k 0 100 COPY", &[]),
    (&["SET k v"], "FLUSHALL", &["FLUSHALL"]),
    (&["SET k v"], "FLUSHDB ASYNC", &["FLUSHDB ASYNC"]),
    (&["SET k v"], "SWAPDB 0 1", &["SWAPDB 0 1"]),
    (&["SET k v"], "SWAPDB 1 1", &[]),
    (&["SET a:1 v"], "DEBUG POPULATE 3 a", &["SET a:0 value:0", "SET a:2 value:2"]),
    (&["SET k v"], "DEBUG STRINGMATCH-LEN 3 a*", &[]),
    (&[], "FUNCTION LOAD REPLACE code", &["FUNCTION LOAD REPLACE code"]),
    (&[], "FUNCTION DELETE name", &["FUNCTION DELETE name"]),
    (&[], "FUNCTION DELETE nosuch", &[]),
    (&[], "FUNCTION FLUSH SYNC", &["FUNCTION FLUSH SYNC"]),
    (&[], "FUNCTION RESTORE bytes APPEND", &["FUNCTION RESTORE bytes APPEND"]),
    (&[], "FUNCTION RESTORE bytes NOSUCH", &[]),
];

fn cases() -> impl Iterator<Item = &'static Case> {
    [STRINGS, HASHES, LISTS, SETS, SORTED_SETS, STREAMS, KEYS].into_iter().flatten()
}

/// Bytes in redis-cli's syntax.
fn text(word: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !b"\"'\\".contains(byte);
    if !word.is_empty() && word.iter().all(is_plain) {
        return String::from_utf8_lossy(word).into_owned();
    }
    let byte = |&byte: &u8| match byte {
        b' '..=b'~' if !b"\"\\".contains(&byte) => char::from(byte).to_string(),
        byte => format!("\\x{byte:02x}"),
    };
    format!("\"{}\"", word.iter().map(byte).collect::<String>())
}

type EffectLog = Arc<Mutex<Vec<Effects>>>;

fn taken(kept: &EffectLog) -> Vec<Effects> {
    std::mem::take(&mut *kept.lock().expect("no panic"))
}

/// Everything stated since the last time, a command a line, with its name in upper case.
fn stated(kept: &EffectLog) -> Vec<String> {
    let groups = taken(kept);
    let line = |effect: store::Effect<'_>| {
        let mut words: Vec<String> = effect.words().map(text).collect();
        words[0].make_ascii_uppercase();
        words.join(" ")
    };
    groups.iter().flat_map(|group| group.iter().map(line).collect::<Vec<_>>()).collect()
}

/// How many effects the commands themselves have, without the expiries that they met.
fn by_command(kept: &EffectLog) -> usize {
    let groups = kept.lock().expect("no panic");
    groups.iter().map(|group| group.iter().filter(|effect| effect.why == Why::Command).count()).sum()
}

/// `?` fits any word.
fn fits(stated: &[String], expected: &[&str]) -> bool {
    let line = |stated: &str, expected: &str| {
        let (stated, expected): (Vec<_>, Vec<_>) = (stated.split(' ').collect(), expected.split(' ').collect());
        stated.len() == expected.len()
            && stated.iter().zip(expected).all(|(word, other)| other == "?" || *word == other)
    };
    stated.len() == expected.len() && stated.iter().zip(expected).all(|(stated, expected)| line(stated, expected))
}

#[test]
fn every_command_states_what_it_has_changed() {
    let mut failures = Vec::new();
    for (setup, command, expected) in cases() {
        let mut here = Harness::new();
        here.taken_elsewhere = 1;
        for line in *setup {
            let reply = here.run(line);
            assert!(!reply.starts_with("(error)"), "{line}: {reply}");
        }
        let kept = here.keep_effects();
        let reply = here.run(command);
        let stated = stated(&kept);
        if !fits(&stated, expected) {
            failures.push(format!("{setup:?} {command}: {reply}\n    stated {stated:?}\n    not    {expected:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The row of a typed command, with its full name.
fn row_of(command: &str) -> (String, &'static Row) {
    let words = words(command);
    let row = table::find(&words[0]).expect("a command");
    match words.get(1).and_then(|word| table::find_subcommand(row, word)) {
        Some(sub) => (format!("{}|{}", row.name, sub.name), sub),
        None => (row.name.to_owned(), row),
    }
}

#[test]
fn every_row_that_writes_has_a_case_with_an_effect() {
    let shown: HashSet<String> =
        cases().filter(|(_, _, effects)| !effects.is_empty()).map(|(_, command, _)| row_of(command).0).collect();
    let mut missing = Vec::new();
    for row in table::all() {
        let subcommands = row.subcommands.iter().map(|sub| (format!("{}|{}", row.name, sub.name), sub));
        for (name, row) in std::iter::once((row.name.to_owned(), row)).chain(subcommands) {
            let writes = row.flags.contains(&Flag::Write) || row.effect == Effect::Stated;
            if writes && !shown.contains(&name) {
                missing.push(name);
            }
        }
    }
    assert!(missing.is_empty(), "no case with an effect: {missing:?}");
}

/// `Args::is_called` compares all but the bit of the case, which distinguishes other bytes than letters too.
#[test]
fn the_names_that_effects_repeat_have_letters_only() {
    let repeats = |row: &&Row| row.effect == Effect::Arguments && row.flags.contains(&Flag::Write);
    for row in table::all().filter(repeats) {
        assert!(row.name.bytes().all(|byte| byte.is_ascii_lowercase()), "{}", row.name);
    }
}

/// Runs commands with effects kept; `before` comes before each. An error has no effect.
fn run_and_repeat<'c>(
    here: &mut Harness,
    before: fn(&mut Harness),
    commands: impl Iterator<Item = &'c str>,
    what: &str,
) {
    let kept = here.keep_effects();
    let mut there = Replay::new();
    for command in commands {
        before(here);
        let reply = here.run(command);
        let is_partly_done = command.starts_with("MIGRATE") && here.taken_elsewhere > 0;
        if reply.starts_with("(error)") && !is_partly_done {
            assert!(by_command(&kept) == 0, "{what}: {command} states {:?}, and ends in {reply}", stated(&kept));
        }
        there.repeat_all(&taken(&kept), what);
    }
    there.compare(here, what);
}

fn examples_repeated(new: fn() -> Harness, before: fn(&mut Harness)) {
    for (name, row) in on_data() {
        run_and_repeat(&mut new(), before, row.examples.iter().map(|example| example.command), &name);
    }
}

#[test]
fn effects_of_all_examples_give_the_same_dataset() {
    examples_repeated(Harness::new, |_| {});
}

#[test]
fn effects_of_all_examples_give_the_same_dataset_when_every_value_was_on_flash() {
    examples_repeated(|| Harness::with_flash(13), Harness::freeze);
}

#[test]
fn effects_of_all_cases_give_the_same_dataset() {
    for (setup, command, _) in cases() {
        for taken in [0, 1, 9] {
            let mut here = Harness::new();
            here.taken_elsewhere = taken;
            // What another server accepted need not fit this command's error.
            run_and_repeat(&mut here, |_| {}, setup.iter().chain([command]).copied(), command);
        }
    }
}

#[test]
fn an_effect_names_the_database_that_the_command_was_given_for() {
    for command in ["MOVE k 5", "COPY k l DB 5", "SET k v EX 10"] {
        let mut here = Harness::new();
        here.session.db = 3;
        here.run("SET k v");
        let kept = here.keep_effects();
        here.run(command);
        let groups = kept.lock().expect("no panic");
        let dbs: Vec<usize> = groups.iter().flat_map(|group| group.iter().map(|effect| effect.db)).collect();
        assert_eq!(dbs, [3], "{command}");
    }
    // Also while the handler works on another database.
    let here = Harness::new();
    let kept = here.keep_effects();
    let key = here.store.hasher().key(b"k");
    let mut resume = Resume::default();
    let mut ks = here.store.lock(&[key], 3, here.now_ms, true, &mut resume);
    ks.select(5);
    ks.set_string(&key, b"v", None);
    ks.effect([&b"COPY"[..], b"l", b"k", b"DB", b"5"]);
    ks.close();
    let groups = kept.lock().expect("no panic");
    assert_eq!(groups[0].iter().map(|effect| effect.db).collect::<Vec<_>>(), [3]);
}

/// A rehearsal of a handler finds out what the handler will read. It writes nothing and must state nothing.
#[test]
fn a_rehearsal_states_nothing() {
    let mut here = Harness::in_parts(19);
    for field in 0..300 {
        here.run(&format!("HSET h f{field} a-value-of-some-length-{field}"));
    }
    here.squeeze();
    let kept = here.keep_effects();
    let key = here.store.hasher().key(b"h");
    let mut resume = Resume::default();
    let mut ks = here.store.lock(&[key], 0, here.now_ms, true, &mut resume);
    let mut rehearsal = ks.rehearsal(&key, 0).expect("a hash in parts");
    rehearsal.set_string(&key, b"v", None);
    rehearsal.effect([&b"SET"[..], b"h", b"v"]);
    rehearsal.give_up();
    rehearsal.finish();
    ks.finish();
    assert!(kept.lock().expect("no panic").is_empty());
    assert_eq!(here.run("HLEN h"), "(integer) 300");
}

#[test]
fn trimming_by_chunks_is_stated_as_a_length() {
    let mut here = Harness::new();
    here.settings.stream_node_max_entries = 10;
    for entry in 1..=35 {
        here.run(&format!("XADD s {entry}-0 a 1"));
    }
    let kept = here.keep_effects();
    assert_eq!(here.run("XTRIM s MAXLEN ~ 18"), "(integer) 10");
    assert_eq!(stated(&kept), ["XTRIM s MAXLEN = 25"]);
    assert_eq!(here.run("XADD s MINID ~ 25 LIMIT 100 36 a 1"), "\"36-0\"");
    assert_eq!(stated(&kept), ["XADD s MAXLEN = 16 36-0 a 1"]);
    assert_eq!(here.run("XADD s MAXLEN ~ 10 37 a 1"), "\"37-0\"");
    assert_eq!(stated(&kept), ["XADD s 37-0 a 1"]);
}

/// A setting decides when that happens, and clients can see the bytes.
#[test]
fn a_hyperloglog_that_becomes_dense_is_stated_to() {
    let mut here = Harness::new();
    here.settings.hll_sparse_max_bytes = 30;
    let kept = here.keep_effects();
    here.run("PFADD p 0 1 2");
    assert_eq!(stated(&kept), ["PFADD p 0 1 2"]);
    here.run("PFADD p 3 4 5 6 7");
    assert_eq!(stated(&kept), ["PFADD p 3 4 5 6 7", "PFDEBUG TODENSE p"]);
    here.run("PFADD p 8");
    assert_eq!(stated(&kept), ["PFADD p 8"]);
    here.run("PFMERGE q p");
    assert_eq!(stated(&kept), ["PFMERGE q p"], "one of a dense one is dense by itself");
    here.run("PFADD q2 0 1");
    here.run("PFADD q3 2 3 4 5 6");
    stated(&kept);
    here.run("PFMERGE q2 q2 q3");
    let merged = stated(&kept);
    assert!(merged == ["PFMERGE q2 q2 q3"] || merged == ["PFMERGE q2 q2 q3", "PFDEBUG TODENSE q2"], "{merged:?}");
}

/// What the store has told, in order: effects to their keeper, and news to the listener.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    fn of(here: &Harness) -> Told {
        let told = Told::default();
        here.store.set_listener(Box::new(told.clone()));
        let classes = "g$lshzxetd".chars().filter_map(Class::from_letter);
        here.store.set_event_classes(classes.fold(Class::NEW, Class::and));
        here.store.set_change_events(true);
        let keeper = told.clone();
        here.store.set_change_log(Arc::new(move |_: &Effects| keeper.note("effects")));
        told
    }

    fn note(&self, what: &str) {
        self.0.lock().expect("no panic").push(what.to_owned());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("no panic"))
    }
}

impl Listener for Told {
    fn event(&self, name: &'static str, _db: usize, _key: &[u8]) {
        self.note(name);
    }

    fn changed(&self, _key: &[u8], _client: u64) {
        self.note("a changed key");
    }

    fn flushed(&self) {
        self.note("a flush");
    }

    fn published(&self, _is_sharded: bool, channel: &[u8], _text: &[u8]) {
        self.note(&format!("a message for {}", channel.escape_ascii()));
    }
}

/// Who learns of a change may act on it at once, on another thread. So the change must be in the journal by then.
#[test]
fn effects_are_kept_before_anybody_learns_of_the_change() {
    let mut failures = Vec::new();
    for (setup, command, _) in cases() {
        let mut here = Harness::new();
        here.taken_elsewhere = 1;
        setup.iter().for_each(|line| _ = here.run(line));
        let told = Told::of(&here);
        here.run(command);
        let told = told.take();
        if told.contains(&"effects".to_owned()) && told[0] != "effects" {
            failures.push(format!("{setup:?} {command}: {told:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn of_a_transaction_nothing_is_told_before_all_its_effects_are_kept() {
    let mut here = Harness::new();
    let told = Told::of(&here);
    let keys = [here.store.hasher().key(b"k"), here.store.hasher().key(b"expired")];
    here.run("SET expired v PXAT 1000");
    here.run("SET k 0");
    told.take();
    let mut resume = Resume::default();
    let mut ks = here.store.lock(&keys, 0, 2000, true, &mut resume);
    for value in ["1", "2"] {
        let mut inner = ks.inner(0, true);
        assert!(inner.get(&keys[1]).expect("in RAM").is_none());
        inner.set_string(&keys[0], value.as_bytes(), None);
        inner.event(Class::STRING, "set", &keys[0]);
        inner.effect([&b"SET"[..], b"k", value.as_bytes()]);
        inner.commit();
        assert!(inner.must_publish_later());
        inner.publish(false, b"c", b"text");
        inner.finish();
    }
    assert_eq!(told.take(), [""; 0]);
    ks.finish();
    let (changed, message) = ("a changed key", "a message for c");
    assert_eq!(told.take(), ["effects", changed, "expired", changed, "set", message, changed, "set", message]);
}
