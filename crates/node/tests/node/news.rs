//! What connections are told about others: keyspace events, changes of keys that they have read, and all commands
//! (MONITOR). The same transcripts run on Debian's redis-server where it is installed.

use crate::common::{Client, Node, Redis, eventually, shown};
use resp::client::Value;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// All messages until now. A marker message, published on another connection, is the end.
fn heard(listener: &mut Client, other: &mut Client) -> Vec<String> {
    other.run("PUBLISH end end");
    let mut all = Vec::new();
    loop {
        let Some(Value::Array(items) | Value::Push(items)) = listener.reply() else { panic!("a message") };
        let words: Vec<String> = items.iter().map(shown).collect();
        if words.last().unwrap() == "\"end\"" {
            return all;
        }
        let (channel, message) = (&words[words.len() - 2], &words[words.len() - 1]);
        all.push(format!("{} {}", channel.trim_matches('"'), message.trim_matches('"')));
    }
}

/// Commands, and the events that must follow them on the channel of the event, with the classes `new` and `keymiss`
/// enabled.
const EVENTS: &[(&str, &[&str])] = &[
    ("SET s 1", &["new s", "set s"]),
    ("SET s 1 EX 100", &["set s", "expire s"]),
    ("GETEX s PERSIST", &["persist s"]),
    ("GETEX s EX 100", &["expire s"]),
    ("SETNX s x", &[]),
    ("SETNX s2 x", &["new s2", "set s2"]),
    ("SETEX s 100 v", &["set s", "expire s"]),
    ("GETSET s 1", &["set s"]),
    ("INCR s", &["incrby s"]),
    ("INCRBYFLOAT s 1.5", &["incrbyfloat s"]),
    ("APPEND s x", &["append s"]),
    ("APPEND fresh x", &["new fresh", "append fresh"]),
    ("SETRANGE s 1 x", &["setrange s"]),
    ("SETRANGE s 1 ''", &[]),
    ("MSET s 1 t 2", &["set s", "new t", "set t"]),
    ("MSETNX s 1 u 2", &[]),
    ("GET nosuch", &["keymiss nosuch"]),
    ("MGET s nosuch t", &["keymiss nosuch"]),
    ("EXISTS nosuch s", &["keymiss nosuch"]),
    ("TYPE nosuch", &["keymiss nosuch"]),
    ("TTL nosuch", &["keymiss nosuch"]),
    ("TOUCH nosuch s", &["keymiss nosuch"]),
    ("STRLEN nosuch", &["keymiss nosuch"]),
    ("GETDEL t", &["del t"]),
    ("EXPIRE s 100", &["expire s"]),
    ("PERSIST s", &["persist s"]),
    ("PERSIST s", &[]),
    ("EXPIRE fresh -1", &["del fresh"]),
    ("DEL s2 nosuch", &["del s2"]),
    ("HSET h a 1 b 2", &["new h", "hset h"]),
    ("HSETNX h a 1", &[]),
    ("HSETNX h c 1", &["hset h"]),
    ("HMSET h a 1", &["hset h"]),
    ("HINCRBY h a 1", &["hincrby h"]),
    ("HINCRBYFLOAT h a 1", &["hincrbyfloat h"]),
    ("HDEL h nosuch", &[]),
    ("HDEL h a b", &["hdel h"]),
    ("HDEL h c", &["hdel h", "del h"]),
    ("HGET h a", &["keymiss h"]),
    ("HDEL h a", &[]),
    ("SADD m 1 2 3", &["new m", "sadd m"]),
    ("SADD m 1", &[]),
    ("SREM m 1 9", &["srem m"]),
    ("SREM m 9", &[]),
    ("SMOVE m n 2", &["srem m", "new n", "sadd n"]),
    ("SMOVE m n 3", &["srem m", "del m", "sadd n"]),
    ("SUNIONSTORE m n", &["new m", "sunionstore m"]),
    ("SDIFFSTORE m n n", &["del m"]),
    ("SDIFFSTORE m n n", &[]),
    ("SINTERSTORE m n n", &["new m", "sinterstore m"]),
    ("SPOP m", &["spop m"]),
    ("SPOP m", &["spop m", "del m"]),
    ("SPOP n 1", &["spop n"]),
    ("SPOP n 5", &["spop n", "del n"]),
    ("ZADD z 1 a 2 b 3 c", &["new z", "zadd z"]),
    ("ZADD z 1 a", &[]),
    ("ZADD z XX CH 1.5 a", &["zadd z"]),
    ("ZADD z INCR 1 a", &["zincr z"]),
    ("ZINCRBY z 1 a", &["zincr z"]),
    ("ZREM z a", &["zrem z"]),
    ("ZREM z a", &[]),
    ("ZUNIONSTORE y 1 z", &["new y", "zunionstore y"]),
    ("ZRANGESTORE x y 0 -1", &["new x", "zrangestore x"]),
    ("ZREMRANGEBYRANK x 0 0", &["zremrangebyrank x"]),
    ("ZREMRANGEBYSCORE x -inf inf", &["zremrangebyscore x", "del x"]),
    ("ZREMRANGEBYLEX x - +", &[]),
    ("ZPOPMIN y", &["zpopmin y"]),
    ("BZPOPMAX y 0", &["zpopmax y", "del y"]),
    ("ZMPOP 1 z MAX", &["zpopmax z"]),
    ("ZDIFFSTORE z 2 z z", &["del z"]),
    ("GEOADD z 1 1 a", &["new z", "zadd z"]),
    ("GEOSEARCHSTORE y z FROMMEMBER a BYRADIUS 1 m", &["new y", "geosearchstore y"]),
    ("GEORADIUS z 1 1 1 km STORE y", &["georadiusstore y"]),
    ("GEORADIUS z 50 1 1 km STORE y", &["del y"]),
    ("RPUSH l a b c", &["new l", "rpush l"]),
    ("LPUSH l x", &["lpush l"]),
    ("LPUSHX nosuch x", &[]),
    ("RPUSHX l y", &["rpush l"]),
    ("LINSERT l BEFORE a z", &["linsert l"]),
    ("LINSERT l BEFORE nosuch z", &[]),
    ("LSET l 0 a", &["lset l"]),
    ("LREM l 0 nosuch", &[]),
    ("LREM l 0 z", &["lrem l"]),
    ("LTRIM l 0 -1", &["ltrim l"]),
    ("LPOP l", &["lpop l"]),
    ("LPOP l 0", &[]),
    ("RPOP l 2", &["rpop l"]),
    ("LMOVE l l LEFT RIGHT", &["rpush l", "lpop l"]),
    ("LMPOP 2 nosuch l LEFT", &["lpop l"]),
    ("LPOP l", &["lpop l", "del l"]),
    ("RPOP l", &[]),
    ("LLEN l", &["keymiss l"]),
    ("BLPOP l 0.001", &[]),
    ("RPUSH l a b 10", &["new l", "rpush l"]),
    ("RPOPLPUSH l m", &["new m", "lpush m", "rpop l"]),
    ("BLMOVE m l LEFT RIGHT 0", &["rpush l", "lpop m", "del m"]),
    ("SORT l ALPHA STORE m", &["new m", "sortstore m"]),
    ("BLMPOP 0 1 l LEFT COUNT 2", &["lpop l"]),
    ("LREM l 0 10", &["lrem l", "del l"]),
    ("RPUSH l a", &["new l", "rpush l"]),
    ("LTRIM l 5 10", &["ltrim l", "del l"]),
    ("LTRIM l 5 10", &[]),
    ("RENAME s r", &["new r", "rename_from s", "rename_to r"]),
    ("COPY r c", &["new c", "copy_to c"]),
    ("COPY r c", &[]),
    ("UNLINK c", &["del c"]),
];

#[test]
fn every_change_publishes_the_events_of_redis() {
    let transcript = |connect: &dyn Fn() -> Client| {
        let (mut a, mut listener) = (connect(), connect());
        assert_eq!(a.run("CONFIG SET notify-keyspace-events EAmn"), "OK");
        listener.run("PSUBSCRIBE __keyevent@0__:*");
        listener.run("SUBSCRIBE end");
        for (command, events) in EVENTS {
            a.run(command);
            let expected: Vec<String> = events.iter().map(|event| format!("__keyevent@0__:{}", event)).collect();
            assert_eq!(heard(&mut listener, &mut a), expected, "{command}");
        }
        // On the channel of the key, in the database of the key.
        assert_eq!(a.run("CONFIG SET notify-keyspace-events KA"), "OK");
        listener.run("PUNSUBSCRIBE __keyevent@0__:*");
        listener.run("PSUBSCRIBE __key*");
        assert_eq!(a.run("MOVE r 3"), "(integer) 1");
        assert_eq!(heard(&mut listener, &mut a), ["__keyspace@0__:r move_from", "__keyspace@3__:r move_to"]);
        // Only the enabled classes.
        assert_eq!(a.run("CONFIG SET notify-keyspace-events Kg"), "OK");
        a.run("SET k v EX 10");
        assert_eq!(heard(&mut listener, &mut a), ["__keyspace@0__:k expire"]);
        assert_eq!(a.run("CONFIG SET notify-keyspace-events A"), "OK");
        a.run("SET k v EX 10");
        assert!(heard(&mut listener, &mut a).is_empty());
        // Keys that expire, whether a client accesses them or not.
        assert_eq!(a.run("CONFIG SET notify-keyspace-events KEx"), "OK");
        a.run("SET gone v PX 1");
        std::thread::sleep(Duration::from_millis(5));
        a.run("GET gone");
        assert_eq!(heard(&mut listener, &mut a), ["__keyspace@0__:gone expired", "__keyevent@0__:expired gone"]);
        a.run("SELECT 2");
        a.run("SET later v PX 1");
        assert_eq!(listener.read().split('"').nth(5), Some("__keyspace@2__:later"));
    };
    let node = Node::start(&[]);
    transcript(&|| node.connect());
    if let Some(redis) = Redis::if_installed(&[]) {
        transcript(&|| redis.connect());
    }
}

/// Commands that meet the expired key `k`, and the events that follow. Redis looks a key up before it overwrites it, but not
/// before it removes what a result without elements or RESTORE replaces.
const EVENTS_OF_EXPIRED: &[(&str, &[&str])] = &[
    ("SET k w", &["expired k", "new k", "set k"]),
    ("SET k w EX 100", &["expired k", "new k", "set k", "expire k"]),
    ("SET k w KEEPTTL", &["expired k", "new k", "set k"]),
    ("SET k w XX", &["expired k"]),
    ("SETEX k 100 w", &["expired k", "new k", "set k", "expire k"]),
    ("GETSET k w", &["expired k", "keymiss k", "new k", "set k"]),
    ("MSET j 1 k 2 s1 3", &["new j", "set j", "expired k", "new k", "set k", "set s1"]),
    ("MSETNX k 1 j 2", &["expired k", "new k", "set k", "new j", "set j"]),
    ("APPEND k x", &["expired k", "new k", "append k"]),
    ("SETBIT k 1 1", &["expired k", "new k", "setbit k"]),
    ("BITFIELD k SET u8 0 1", &["expired k", "new k", "setbit k"]),
    ("PFADD k a", &["expired k", "new k", "pfadd k"]),
    ("XADD k 1-1 a b", &["expired k", "new k", "xadd k"]),
    ("XGROUP CREATE k g $ MKSTREAM", &["expired k", "new k", "xgroup-create k"]),
    ("RENAME other k", &["expired k", "new k", "rename_from other", "rename_to k"]),
    ("RENAME k other", &["expired k"]),
    ("COPY other k", &["expired k", "new k", "copy_to k"]),
    ("COPY other k REPLACE", &["expired k", "new k", "copy_to k"]),
    ("COPY k other REPLACE", &["expired k", "keymiss k"]),
    ("MOVE k 1", &["expired k"]),
    ("SUNIONSTORE k s1 s2", &["expired k", "new k", "sunionstore k"]),
    ("SDIFFSTORE k s1 s1", &["del k"]),
    ("ZUNIONSTORE k 1 z", &["expired k", "new k", "zunionstore k"]),
    ("ZINTERSTORE k 2 z nosuch", &["keymiss nosuch", "del k"]),
    ("ZRANGESTORE k z 0 -1", &["expired k", "new k", "zrangestore k"]),
    ("BITOP OR k other", &["expired k", "new k", "set k"]),
    ("BITOP NOT k nosuch", &["keymiss nosuch", "del k"]),
    ("SORT l STORE k", &["expired k", "new k", "sortstore k"]),
    ("SORT nosuch STORE k", &["keymiss nosuch", "del k"]),
    ("EVAL \"return redis.call('set', KEYS[1], 'x')\" 1 k", &["expired k", "new k", "set k"]),
    (
        "RESTORE k 0 \"\\x00\\x01\\x76\\x0a\\x00\\x91\\x08\\xce\\xb2\\x19\\x38\\x8a\\xce\" REPLACE",
        &["new k", "restore k"],
    ),
    ("DEL k", &["expired k"]),
    ("GET k", &["expired k", "keymiss k"]),
];

/// Commands that replace a living key, and their events: Redis removes what it was before.
const EVENTS_OF_REPLACED: &[(&str, &[&str])] = &[
    ("SET k w", &["set k"]),
    ("RENAME other k", &["new k", "rename_from other", "rename_to k"]),
    ("COPY other k REPLACE", &["new k", "copy_to k"]),
    ("SUNIONSTORE k s1", &["sunionstore k"]),
    (
        "RESTORE k 0 \"\\x00\\x01\\x76\\x0a\\x00\\x91\\x08\\xce\\xb2\\x19\\x38\\x8a\\xce\" REPLACE",
        &["new k", "restore k"],
    ),
];

/// An expired key that a command overwrote once went without a word: the event came before the time of its expiry, or never.
#[test]
fn keys_that_are_overwritten_publish_the_events_of_redis() {
    let transcript = |server: &str, connect: &dyn Fn() -> Client| {
        let (mut a, mut listener) = (connect(), connect());
        assert_eq!(a.run("CONFIG SET notify-keyspace-events EAmn"), "OK");
        assert_eq!(a.run("DEBUG SET-ACTIVE-EXPIRE 0"), "OK");
        listener.run("SUBSCRIBE end");
        let mut told = |commands: &[(&str, &[&str])], value: &[&str], expires: bool| {
            for (command, events) in commands {
                for line in ["FLUSHALL", "MSET other v s v", "SADD s1 a", "SADD s2 b", "ZADD z 1 a", "RPUSH l 2 1"] {
                    a.run(line);
                }
                value.iter().for_each(|line| _ = a.run(line));
                if expires {
                    // Not shorter: on a busy machine Redis may find that the time is over, and delete the key at once.
                    a.run("PEXPIRE k 20");
                    std::thread::sleep(Duration::from_millis(22));
                }
                listener.run("PSUBSCRIBE __keyevent@0__:*");
                a.run(command);
                let expected: Vec<String> = events.iter().map(|event| format!("__keyevent@0__:{event}")).collect();
                assert_eq!(heard(&mut listener, &mut a), expected, "{server}: {command}");
                listener.run("PUNSUBSCRIBE");
            }
        };
        for value in
            [&["SET k v"][..], &["HSET k f v"], &["EVAL 'for i = 1, 300 do redis.call(\"RPUSH\", \"k\", i) end' 0"]]
        {
            told(EVENTS_OF_EXPIRED, value, true);
            told(EVENTS_OF_REPLACED, value, false);
        }
        let expired = a.info("stats", "expired_keys").parse::<usize>().unwrap();
        // All but those that a command removed without a look: four with an empty result, and RESTORE.
        assert_eq!(expired, 3 * (EVENTS_OF_EXPIRED.len() - 5));
    };
    let node = Node::start(&[("enable-debug-command", "yes")]);
    transcript("FlintKV", &|| node.connect());
    if let Some(redis) = Redis::if_installed(&["--enable-debug-command", "yes"]) {
        transcript("Redis", &|| redis.connect());
    }
}

/// Commands, and the keys for which they publish a miss. `n` and `o` exist only where a command creates a key. Redis
/// 7 publishes no miss when a command looks up a key to change it.
const MISSES: &[(&str, &[&str])] = &[
    ("GET n", &["n"]),
    ("MGET n s o", &["n", "o"]),
    ("GETEX n", &["n"]),
    ("GETDEL n", &["n"]),
    ("GETSET n1 v", &["n1"]),
    ("SET n2 v GET", &["n2"]),
    ("SET n3 v NX", &[]),
    ("SETNX n4 v", &[]),
    ("GETRANGE n 0 1", &["n"]),
    ("SUBSTR n 0 1", &["n"]),
    ("STRLEN n", &["n"]),
    ("LCS n o", &["n", "o"]),
    ("LCS s n", &["n"]),
    ("APPEND n5 x", &[]),
    ("SETRANGE n6 0 x", &[]),
    ("INCR n7", &[]),
    ("SETBIT n8 0 1", &[]),
    ("BITFIELD n9 SET u8 0 1", &[]),
    ("PFADD n10 a", &[]),
    ("RENAME n o", &[]),
    ("MOVE n 1", &[]),
    ("COPY n o", &["n"]),
    ("GETBIT n 0", &["n"]),
    ("BITCOUNT n", &["n"]),
    ("BITPOS n 1", &["n"]),
    ("BITOP AND d n o", &["n", "o"]),
    ("BITOP NOT d n", &["n"]),
    ("BITFIELD n GET u8 0", &["n"]),
    ("BITFIELD_RO n GET u8 0", &["n"]),
    ("PFCOUNT n", &["n"]),
    ("PFCOUNT n o", &["n", "o"]),
    ("PFMERGE d n", &["d", "n"]),
    ("EXISTS n o", &["n", "o"]),
    ("TYPE n", &["n"]),
    ("TTL n", &["n"]),
    ("PTTL n", &["n"]),
    ("EXPIRETIME n", &["n"]),
    ("PEXPIRETIME n", &["n"]),
    ("TOUCH n o", &["n", "o"]),
    ("DUMP n", &["n"]),
    ("OBJECT ENCODING n", &[]),
    ("OBJECT FREQ n", &[]),
    ("OBJECT IDLETIME n", &[]),
    ("OBJECT REFCOUNT n", &[]),
    ("EXPIRE n 10", &[]),
    ("PERSIST n", &[]),
    ("DEL n", &[]),
    ("UNLINK n", &[]),
    ("SORT n", &["n"]),
    ("SORT n STORE d", &["n"]),
    ("SORT_RO n", &["n"]),
    ("SORT l BY w_* GET v_*", &["w_1", "w_2", "v_1", "v_2"]),
    ("SORT l GET #", &[]),
    ("LLEN n", &["n"]),
    ("LRANGE n 0 -1", &["n"]),
    ("LINDEX n 0", &["n"]),
    ("LPOS n a", &["n"]),
    ("LPOP n", &[]),
    ("RPOP n", &[]),
    ("LREM n 0 a", &[]),
    ("LTRIM n 0 1", &[]),
    ("LSET n 0 a", &[]),
    ("LINSERT n BEFORE a b", &[]),
    ("LPUSHX n a", &[]),
    ("LMOVE n o LEFT LEFT", &[]),
    ("RPOPLPUSH n o", &[]),
    ("LMPOP 2 n o LEFT", &[]),
    ("SCARD n", &["n"]),
    ("SISMEMBER n a", &["n"]),
    ("SMISMEMBER n a", &["n"]),
    ("SMEMBERS n", &["n"]),
    ("SRANDMEMBER n", &["n"]),
    ("SRANDMEMBER n 3", &["n"]),
    ("SPOP n", &[]),
    ("SREM n a", &[]),
    ("SMOVE n o a", &[]),
    ("SSCAN n 0", &["n"]),
    ("SINTER n o", &["n", "o"]),
    ("SINTER n m", &["n"]),
    ("SINTER m n", &["n"]),
    ("SINTER m n o", &["n", "o"]),
    ("SINTERCARD 2 n m", &["n"]),
    ("SINTERCARD 2 m n", &["n"]),
    ("SUNION n m o", &["n", "o"]),
    ("SDIFF n m", &["n"]),
    ("SDIFF m n o", &["n", "o"]),
    ("SINTERSTORE d n m", &["n"]),
    ("SINTERSTORE d m n", &["n"]),
    ("SUNIONSTORE d n o", &["n", "o"]),
    ("SDIFFSTORE d n o", &["n", "o"]),
    ("SDIFFSTORE d2 m n", &["n"]),
    ("HGET n a", &["n"]),
    ("HMGET n a", &["n"]),
    ("HGETALL n", &["n"]),
    ("HKEYS n", &["n"]),
    ("HVALS n", &["n"]),
    ("HLEN n", &["n"]),
    ("HSTRLEN n a", &["n"]),
    ("HEXISTS n a", &["n"]),
    ("HRANDFIELD n", &["n"]),
    ("HRANDFIELD n 2", &["n"]),
    ("HSCAN n 0", &["n"]),
    ("HDEL n a", &[]),
    ("ZCARD n", &["n"]),
    ("ZSCORE n a", &["n"]),
    ("ZMSCORE n a", &["n"]),
    ("ZRANK n a", &["n"]),
    ("ZREVRANK n a", &["n"]),
    ("ZRANGE n 0 -1", &["n"]),
    ("ZREVRANGE n 0 -1", &["n"]),
    ("ZRANGEBYSCORE n 0 1", &["n"]),
    ("ZREVRANGEBYSCORE n 1 0", &["n"]),
    ("ZRANGEBYLEX n - +", &["n"]),
    ("ZREVRANGEBYLEX n + -", &["n"]),
    ("ZCOUNT n 0 1", &["n"]),
    ("ZLEXCOUNT n - +", &["n"]),
    ("ZRANDMEMBER n", &["n"]),
    ("ZRANDMEMBER n 2", &["n"]),
    ("ZSCAN n 0", &["n"]),
    ("ZREM n a", &[]),
    ("ZPOPMIN n", &[]),
    ("ZPOPMAX n", &[]),
    ("ZMPOP 2 n o MIN", &[]),
    ("ZREMRANGEBYRANK n 0 1", &[]),
    ("ZRANGESTORE d n 0 1", &["n"]),
    ("ZUNION 2 n z", &["n"]),
    ("ZINTER 2 n z", &["n"]),
    ("ZINTER 2 z n", &["n"]),
    ("ZINTERCARD 2 z n", &["n"]),
    ("ZDIFF 2 n z", &["n"]),
    ("ZDIFF 2 z n", &["n"]),
    ("ZUNIONSTORE d 2 n o", &["n", "o"]),
    ("ZINTERSTORE d 2 z n", &["n"]),
    ("ZDIFFSTORE d 2 n z", &["n"]),
    ("GEOPOS n a", &["n"]),
    ("GEODIST n a b", &["n"]),
    ("GEOHASH n a", &["n"]),
    ("GEOSEARCH n FROMLONLAT 1 1 BYRADIUS 1 m", &["n"]),
    ("GEOSEARCHSTORE d n FROMLONLAT 1 1 BYRADIUS 1 m", &["n"]),
    ("GEORADIUS n 1 1 1 m", &["n"]),
    ("GEORADIUS_RO n 1 1 1 m", &["n"]),
    ("GEORADIUS n 1 1 1 m STORE d", &["n"]),
    ("GEORADIUSBYMEMBER n a 1 m", &["n"]),
    ("XADD n NOMKSTREAM * f v", &[]),
    ("XTRIM n MAXLEN 0", &[]),
    ("XDEL n 1-1", &[]),
    ("XSETID n 1-1", &[]),
    ("XGROUP CREATE n g 0", &[]),
    ("XGROUP SETID n g 0", &[]),
    ("XGROUP DESTROY n g", &[]),
    ("XGROUP CREATECONSUMER n g c", &[]),
    ("XLEN n", &["n"]),
    ("XRANGE n - +", &["n"]),
    ("XREVRANGE n + -", &["n"]),
    ("XREAD STREAMS n x o 0 0 0", &["n", "o"]),
    ("XREAD STREAMS n $", &["n"]),
    ("XREAD STREAMS x 5", &[]),
    ("XREADGROUP GROUP g c STREAMS x >", &[]),
    ("XREADGROUP GROUP g c STREAMS n >", &["n"]),
    ("XPENDING n g", &["n"]),
    ("XINFO STREAM n", &["n"]),
    ("XINFO GROUPS n", &["n"]),
    ("XINFO CONSUMERS n g", &["n"]),
    ("XACK n g 1-1", &["n"]),
    ("XCLAIM n g c 0 1-1", &["n"]),
    ("XAUTOCLAIM n g c 0 0", &["n"]),
];

#[test]
fn every_miss_publishes_the_events_of_redis() {
    let transcript = |connect: &dyn Fn() -> Client| {
        let (mut a, mut listener) = (connect(), connect());
        for line in ["SET s 1", "SADD m a", "ZADD z 1 a", "XADD x 1-1 f v", "XGROUP CREATE x g 0", "RPUSH l 1 2"] {
            a.run(line);
        }
        assert_eq!(a.run("CONFIG SET notify-keyspace-events Em"), "OK");
        listener.run("SUBSCRIBE __keyevent@0__:keymiss");
        listener.run("SUBSCRIBE end");
        let mut differing = Vec::new();
        for (command, keys) in MISSES {
            a.run(command);
            let expected: Vec<String> = keys.iter().map(|key| format!("__keyevent@0__:keymiss {key}")).collect();
            let mut told = heard(&mut listener, &mut a);
            if command.starts_with("XREAD ") {
                // Redis looks up the key twice, and publishes both misses.
                let mut seen = std::collections::HashSet::new();
                told.retain(|event| seen.insert(event.clone()));
            }
            if told != expected {
                differing.push(format!("{command}: {told:?}"));
            }
        }
        assert!(differing.is_empty(), "{differing:#?}");
    };
    let node = Node::start(&[]);
    transcript(&|| node.connect());
    if let Some(redis) = Redis::if_installed(&[]) {
        transcript(&|| redis.connect());
    }
}

/// Expiry of hash fields, with the events of Redis 7.4. Debian's redis-server has no such commands. The next command
/// notices the expired fields.
const EVENTS_OF_FIELDS: &[(&[&str], &[&str])] = &[
    (&["HSET h a 1 b 2 c 3"], &["hset h"]),
    (&["HEXPIRE h 100 FIELDS 1 a"], &["hexpire h"]),
    (&["HPEXPIREAT h 33177117420000 FIELDS 3 a nosuch b"], &["hexpire h"]),
    (&["HEXPIRE h 100 NX FIELDS 2 a b"], &[]),
    (&["HEXPIRE h 100 FIELDS 1 nosuch", "HEXPIRE nosuch 100 FIELDS 1 a"], &[]),
    (&["HEXPIRE h -1 FIELDS 1 a"], &[]),
    (&["HPERSIST h FIELDS 2 a c"], &["hpersist h"]),
    (&["HPERSIST h FIELDS 2 a c"], &[]),
    (&["HEXPIREAT h 1 FIELDS 2 c nosuch"], &["hdel h"]),
    (&["HPEXPIRE h 1 FIELDS 1 a", "HGET h a"], &["hexpire h", "hexpired h"]),
    (&["HSET h a 1", "HPEXPIRE h 1 FIELDS 2 a b", "HLEN h"], &["hset h", "hexpire h", "hexpired h", "del h"]),
    (&["HSET h a 1", "HPEXPIRE h 0 FIELDS 1 a"], &["hset h", "hdel h", "del h"]),
];

#[test]
fn fields_expire_although_no_client_reads_them() {
    let node = Node::start(&[("notify-keyspace-events", "EA"), ("enable-debug-command", "yes")]);
    let (mut a, mut listener) = (node.connect(), node.connect());
    a.run("DEBUG SET-ACTIVE-EXPIRE 0");
    // All at once, because some of them come in time only before the fields expire.
    let commands = [
        "HSET h a 1 b 2 c 3",
        "HPEXPIRE h 100000 FIELDS 1 b",
        "HPEXPIRE h 1 FIELDS 1 a",
        "HSET early a 1",
        "HPEXPIRE early 100000 FIELDS 1 a",
        "HPEXPIRE early 1 FIELDS 1 a",
        "HSET late a 1",
        "HPEXPIRE late 400 FIELDS 1 a",
        "HPEXPIRE late 100000 FIELDS 1 a",
        "HSET moved a 1",
        "HPEXPIRE moved 700 FIELDS 1 a",
        "RENAME moved other",
    ];
    a.send(commands.map(|command| format!("{command}\r\n")).concat().as_bytes());
    commands.iter().for_each(|command| assert!(!a.read().starts_with("(error)"), "{command}"));
    listener.run("PSUBSCRIBE __keyevent@0__:*");
    listener.run("SUBSCRIBE end");
    a.run("DEBUG SET-ACTIVE-EXPIRE 1");
    let mut told = Vec::new();
    while told.len() < 5 {
        let message = listener.read();
        told.push(message.lines().skip(2).map(|line| line[4..].trim_matches('"')).collect::<Vec<_>>().join(" "));
    }
    told.sort();
    let expected = ["del early", "del other", "hexpired early", "hexpired h", "hexpired other"];
    assert_eq!(told, expected.map(|event| format!("__keyevent@0__:{event}")));
    assert_eq!(a.run("HMGET h a b c"), "1) (nil)\n2) \"2\"\n3) \"3\"");
    assert_eq!((a.run("DBSIZE"), a.run("EXISTS late")), ("(integer) 2".into(), "(integer) 1".into()));
}

#[test]
fn expiring_fields_publish_the_events_of_redis_7_4() {
    let node = Node::start(&[("notify-keyspace-events", "EA")]);
    let (mut a, mut listener) = (node.connect(), node.connect());
    listener.run("PSUBSCRIBE __keyevent@0__:*");
    listener.run("SUBSCRIBE end");
    for (commands, events) in EVENTS_OF_FIELDS {
        for command in *commands {
            a.run(command);
            if command.starts_with("HPEXPIRE h 1 ") {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let expected: Vec<String> = events.iter().map(|event| format!("__keyevent@0__:{event}")).collect();
        assert_eq!(heard(&mut listener, &mut a), expected, "{commands:?}");
    }
}

#[test]
fn an_eviction_publishes_an_event() {
    let node =
        Node::start(&[("maxmemory", "48mb"), ("maxmemory-policy", "allkeys-lru"), ("notify-keyspace-events", "Ee")]);
    let (mut a, mut listener) = (node.connect(), node.connect());
    listener.run("SUBSCRIBE __keyevent@0__:evicted");
    let value = vec![b'v'; 100_000];
    for at in 0..2000 {
        a.value(&[b"SET", format!("k{at}").as_bytes(), &value]);
    }
    let message = listener.read();
    assert!(message.starts_with("1) \"message\"\n2) \"__keyevent@0__:evicted\"\n3) \"k"), "{message}");
}

fn push(client: &mut Client) -> Vec<String> {
    match client.reply() {
        Some(Value::Push(items)) => items.iter().map(shown).collect(),
        other => panic!("a push, not {other:?}"),
    }
}

/// Checks that nothing has arrived but the answer.
#[track_caller]
fn silent(client: &mut Client) {
    assert_eq!(client.run("PING"), "PONG");
}

#[test]
fn readers_of_a_key_are_told_once_of_its_change() {
    on_both(|connect| {
        let (mut a, mut b) = (connect(), connect());
        a.run("HELLO 3");
        assert_eq!(a.run("CLIENT TRACKING ON"), "OK");
        a.run("MSET k 1 other 1");
        a.run("GET k");
        b.run("SET other 2");
        silent(&mut a);
        b.run("SET k 2");
        assert_eq!(push(&mut a), ["\"invalidate\"", "1) \"k\""]);
        b.run("SET k 3");
        silent(&mut a);
        // A client is told of its own changes too, after the reply.
        a.run("MGET k other nosuch");
        assert_eq!(a.run("SET k 4"), "OK");
        assert_eq!(push(&mut a), ["\"invalidate\"", "1) \"k\""]);
        // A key that did not exist, a key that expires, a key that is deleted.
        b.run("SET nosuch 1 PX 1");
        assert_eq!(push(&mut a), ["\"invalidate\"", "1) \"nosuch\""]);
        b.run("SET short 1 PX 2000");
        a.run("GET short");
        assert_eq!(push(&mut a), ["\"invalidate\"", "1) \"short\""]);
        b.run("DEL other");
        assert_eq!(push(&mut a), ["\"invalidate\"", "1) \"other\""]);
        a.run("GET k");
        b.run("FLUSHDB");
        assert_eq!(push(&mut a), ["\"invalidate\"", "(nil)"]);
        assert_eq!(a.run("CLIENT TRACKING OFF"), "OK");
        a.run("GET k");
        b.run("SET k 5");
        silent(&mut a);
    });
}

/// As in Redis 7.2, which runs the blocked command again. Redis 7.0 does not track keys of commands that were served
/// after blocking.
#[test]
fn keys_of_a_served_blocked_read_are_tracked() {
    let node = Node::start(&[]);
    let (mut a, mut b) = (node.connect(), node.connect());
    a.run("HELLO 3");
    a.run("CLIENT TRACKING ON");
    a.send(b"XREAD BLOCK 0 STREAMS s $\r\n");
    eventually("it waits", || b.info("clients", "blocked_clients") == "1");
    b.run("XADD s 1-1 a 1");
    // The key is tracked from the moment when the command blocked.
    assert_eq!(push(&mut a), ["\"invalidate\"", "1) \"s\""]);
    assert_eq!(a.read(), "1# \"s\" => 1) 1) \"1-1\"\n      2) 1) \"a\"\n         2) \"1\"");
    b.run("XADD s 2-1 a 1");
    assert_eq!(push(&mut a), ["\"invalidate\"", "1) \"s\""]);
    // Taking an element does not count as reading the key.
    a.send(b"BLPOP l 0\r\n");
    eventually("it waits", || b.info("clients", "blocked_clients") == "1");
    b.run("RPUSH l x y");
    assert_eq!(a.read(), "1) \"l\"\n2) \"x\"");
    b.run("RPUSH l z");
    silent(&mut a);
}

#[test]
fn tracking_with_optin_optout_and_noloop() {
    on_both(|connect| {
        let (mut a, mut b) = (connect(), connect());
        a.run("HELLO 3");
        assert_eq!(a.run("CLIENT TRACKING ON OPTIN NOLOOP"), "OK");
        a.run("GET k");
        b.run("SET k 1");
        silent(&mut a);
        assert_eq!(a.run("CLIENT CACHING YES"), "OK");
        a.run("GET k");
        a.run("GET l");
        a.run("SET k 2");
        silent(&mut a);
        assert_eq!(a.run("CLIENT CACHING YES"), "OK");
        a.run("GET k");
        b.run("MSET k 3 l 1");
        assert_eq!(push(&mut a), ["\"invalidate\"", "1) \"k\""]);
        silent(&mut a);
        assert_eq!(a.run("CLIENT TRACKING ON OPTOUT").split(' ').nth(4), Some("switch"));
        a.run("CLIENT TRACKING OFF");
        assert_eq!(a.run("CLIENT TRACKING ON OPTOUT"), "OK");
        assert_eq!(a.run("CLIENT CACHING NO"), "OK");
        a.run("GET k");
        a.run("GET l");
        b.run("MSET k 4 l 2");
        assert_eq!(push(&mut a), ["\"invalidate\"", "1) \"l\""]);
        silent(&mut a);
        assert_eq!(
            a.run("CLIENT TRACKINGINFO"),
            "1# \"flags\" => 1~ \"on\"\n   2~ \"optout\"\n2# \"redirect\" => (integer) 0\n3# \"prefixes\" => (empty array)"
        );
    });
}

#[test]
fn clients_tracking_prefixes_are_told_of_all_their_keys() {
    on_both(|connect| {
        let (mut a, mut b, mut all) = (connect(), connect(), connect());
        a.run("HELLO 3");
        all.run("HELLO 3");
        assert_eq!(a.run("CLIENT TRACKING ON BCAST PREFIX user: PREFIX item: NOLOOP"), "OK");
        assert_eq!(all.run("CLIENT TRACKING ON BCAST"), "OK");
        b.run("MSET user:2 x item:1 y other z user:1 w");
        assert_eq!(push(&mut a), ["\"invalidate\"", "1) \"item:1\""]);
        assert_eq!(push(&mut a), ["\"invalidate\"", "1) \"user:1\"\n2) \"user:2\""]);
        assert_eq!(push(&mut all), ["\"invalidate\"", "1) \"item:1\"\n2) \"other\"\n3) \"user:1\"\n4) \"user:2\""]);
        a.run("SET user:1 mine");
        silent(&mut a);
        assert_eq!(push(&mut all), ["\"invalidate\"", "1) \"user:1\""]);
        assert_eq!(
            a.run("CLIENT TRACKING ON BCAST PREFIX use"),
            "(error) ERR Prefix 'use' overlaps with an existing prefix 'user:'. Prefixes for a single client must not \
             overlap."
        );
        b.run("SET gone v PX 1");
        assert_eq!(push(&mut all), ["\"invalidate\"", "1) \"gone\""]);
        assert_eq!(push(&mut all), ["\"invalidate\"", "1) \"gone\""], "it has expired");
        a.run("CLIENT TRACKING OFF");
        b.run("SET user:1 x");
        silent(&mut a);
    });
}

#[test]
fn redirected_invalidations_reach_the_other_connection() {
    on_both(|connect| {
        let (mut a, mut b, mut listener) = (connect(), connect(), connect());
        let id = listener.run("CLIENT ID").replace("(integer) ", "");
        listener.run("SUBSCRIBE __redis__:invalidate");
        assert_eq!(a.run(&format!("CLIENT TRACKING ON REDIRECT {id}")), "OK");
        assert_eq!(a.run("CLIENT GETREDIR"), format!("(integer) {id}"));
        a.run("GET k");
        b.run("SET k 1");
        assert_eq!(listener.read(), "1) \"message\"\n2) \"__redis__:invalidate\"\n3) 1) \"k\"");
        a.run("GET k");
        b.run("FLUSHALL");
        assert_eq!(listener.read(), "1) \"message\"\n2) \"__redis__:invalidate\"\n3) (nil)");
        let line = b.run("CLIENT LIST");
        assert!(line.contains("flags=t ") && line.contains(&format!(" redir={id} ")), "{line}");
        a.run("HELLO 3");
        a.run("GET k");
        drop(listener);
        eventually("the listener is gone", || !b.run("CLIENT LIST").contains("flags=P"));
        b.run("SET k 2");
        assert_eq!(push(&mut a), ["\"tracking-redir-broken\"".to_owned(), format!("(integer) {id}")]);
        assert!(a.run("CLIENT TRACKINGINFO").contains("broken_redirect"));
        assert_eq!(a.run("CLIENT TRACKING ON REDIRECT 999999"), {
            "(error) ERR The client ID you want redirect to does not exist"
        });
    });
}

#[test]
fn the_table_of_readers_is_bounded() {
    let node = Node::start(&[("tracking-table-max-keys", "100")]);
    let (mut a, mut b) = (node.connect(), node.connect());
    a.run("HELLO 3");
    a.run("CLIENT TRACKING ON");
    let mut told = 0;
    for at in 0..1000 {
        a.send(format!("GET k{at}\r\n").as_bytes());
        while let Some(reply) = a.reply() {
            match reply {
                Value::Push(_) => told += 1,
                _ => break,
            }
        }
    }
    assert!(told >= 800, "{told}");
    let keys: usize = b.info("stats", "tracking_total_keys").parse().unwrap();
    assert!(keys <= 100, "{keys}");
    assert_eq!(b.info("clients", "tracking_clients"), "1");
    drop(a);
    eventually("all is forgotten", || b.info("stats", "tracking_total_keys") == "0");
}

/// A cache that follows all invalidations is never older than the last one. Tested with many readers and writers.
#[test]
fn a_cache_that_follows_invalidations_is_never_stale() {
    let node = Node::start(&[]);
    let writing = AtomicUsize::new(2);
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let mut client = node.connect();
            let writing = &writing;
            scope.spawn(move || {
                for at in 0..3000 {
                    client.run(&format!("SET k{} {writer}:{at}", at % 7));
                }
                writing.fetch_sub(1, SeqCst);
            });
        }
        for _ in 0..2 {
            let (mut client, mut check) = (node.connect(), node.connect());
            let writing = &writing;
            scope.spawn(move || {
                client.run("HELLO 3");
                client.run("CLIENT TRACKING ON");
                let mut cache = HashMap::new();
                let mut at = 0;
                while writing.load(SeqCst) > 0 {
                    at += 1;
                    let key = format!("\"k{}\"", at % 7);
                    if !cache.contains_key(&key) {
                        client.send(format!("GET {key}\r\n").as_bytes());
                        let value = obey(&mut client, &mut cache);
                        cache.insert(key, value);
                    }
                }
                client.send(b"PING\r\n");
                obey(&mut client, &mut cache);
                for (key, value) in cache {
                    assert_eq!(check.run(&format!("GET {key}")), value, "{key}");
                }
            });
        }
    });
}

/// The next reply. Keys of invalidations that arrive before it are dropped from the cache.
fn obey(client: &mut Client, cache: &mut HashMap<String, String>) -> String {
    loop {
        match client.reply().unwrap() {
            Value::Push(items) => {
                let Value::Array(keys) = &items[1] else { panic!("keys") };
                keys.iter().for_each(|key| _ = cache.remove(&shown(key)));
            }
            value => return shown(&value),
        }
    }
}

#[test]
fn monitor_shows_commands_but_no_secrets() {
    on_both(|connect| {
        let (mut watcher, mut a) = (connect(), connect());
        assert_eq!(watcher.run("MONITOR"), "OK");
        let address = a.stream.local_addr().unwrap();
        a.run("SET k \"a \\\"b\\\" \\x01\"");
        a.run("SELECT 3");
        a.run("CONFIG GET port");
        a.run("AUTH default secret");
        a.run("HELLO 2 AUTH default secret SETNAME me");
        a.run("NOSUCH");
        a.run("GET");
        a.run("ECHO end");
        let mut seen = |expected: &str| {
            let line = watcher.read();
            let (time, rest) = line.split_once(' ').unwrap();
            let (seconds, micros) = time.split_once('.').unwrap();
            assert!(seconds.len() == 10 && micros.len() == 6, "{line}");
            assert_eq!(rest, expected);
        };
        seen(&format!("[0 {address}] \"SET\" \"k\" \"a \\\"b\\\" \\x01\""));
        seen(&format!("[3 {address}] \"SELECT\" \"3\""));
        seen(&format!("[3 {address}] \"AUTH\" \"(redacted)\" \"(redacted)\""));
        seen(&format!("[3 {address}] \"HELLO\" \"2\" \"AUTH\" \"(redacted)\" \"(redacted)\" \"SETNAME\" \"me\""));
        seen(&format!("[3 {address}] \"ECHO\" \"end\""));
        assert!(a.run("CLIENT LIST").contains("flags=O "), "which is not shown");
        assert_eq!(watcher.run("GET k"), "(error) ERR Replica can't interact with the keyspace");
        assert_eq!(watcher.run("RESET"), "RESET");
        assert_eq!(watcher.run("GET k").split(' ').count(), 3);
        a.run("SET k v");
        silent(&mut watcher);
    });
}

#[test]
fn a_transaction_is_tracked_and_monitored_command_by_command() {
    on_both(|connect| {
        let (mut watcher, mut a, mut b) = (connect(), connect(), connect());
        assert_eq!(watcher.run("MONITOR"), "OK");
        a.run("HELLO 3");
        a.run("CLIENT TRACKING ON OPTIN");
        a.run("CLIENT CACHING YES");
        for command in ["MULTI", "GET k", "CLIENT TRACKINGINFO", "GET l", "EXEC", "GET m"] {
            a.run(command);
        }
        b.run("MSET k 1 m 1 l 1");
        assert_eq!(push(&mut a), ["\"invalidate\"", "1) \"k\""]);
        assert_eq!(push(&mut a), ["\"invalidate\"", "1) \"l\""]);
        silent(&mut a);
        let mut seen = Vec::new();
        while seen.last().is_none_or(|last| last != "\"PING\"") {
            seen.push(watcher.read().split_once("] ").unwrap().1.to_owned());
        }
        let expected = [
            "\"HELLO\" \"3\"",
            "\"CLIENT\" \"TRACKING\" \"ON\" \"OPTIN\"",
            "\"CLIENT\" \"CACHING\" \"YES\"",
            "\"MULTI\"",
            "\"GET\" \"k\"",
            "\"CLIENT\" \"TRACKINGINFO\"",
            "\"GET\" \"l\"",
            "\"EXEC\"",
            "\"GET\" \"m\"",
            "\"MSET\" \"k\" \"1\" \"m\" \"1\" \"l\" \"1\"",
            "\"PING\"",
        ];
        assert_eq!(seen, expected);
    });
}

/// A command that waits for flash is shown once, after it has run.
#[test]
fn a_cold_read_is_shown_once() {
    let node = Node::start(&[("maxmemory", "48mb")]);
    let (mut watcher, mut a) = (node.connect(), node.connect());
    let value = vec![b'v'; 100_000];
    for at in 0..1000 {
        a.value(&[b"SET", format!("k{at}").as_bytes(), &value]);
    }
    assert_eq!(watcher.run("MONITOR"), "OK");
    for at in 0..300 {
        a.run(&format!("STRLEN k{at}"));
    }
    for at in 0..300 {
        assert!(watcher.read().ends_with(&format!("\"STRLEN\" \"k{at}\"")));
    }
    assert_ne!(a.info("stats", "keyspace_misses"), "");
}

/// However busy the workers are, a line in the outbox is sent: the last command of each client is shown even if no
/// command follows it.
#[test]
fn monitor_shows_every_command_of_many_clients() {
    const CLIENTS: usize = 4;
    const COMMANDS: usize = 2000;
    on_both(|connect| {
        // One watcher on each worker.
        let watchers: Vec<_> = (0..2).map(|_| connect()).collect();
        let clients: Vec<_> = (0..CLIENTS).map(|_| connect()).collect();
        let ready = &std::sync::Barrier::new(watchers.len() + CLIENTS);
        std::thread::scope(|scope| {
            for mut watcher in watchers {
                scope.spawn(move || {
                    assert_eq!(watcher.run("MONITOR"), "OK");
                    ready.wait();
                    let mut next = [0; CLIENTS];
                    while next.iter().any(|&count| count < COMMANDS) {
                        let line = watcher.read();
                        let (_, message) = line.split_once("\"ECHO\" ").unwrap();
                        let (client, number) = message.trim_matches('"').split_once(':').unwrap();
                        let (client, number): (usize, usize) = (client.parse().unwrap(), number.parse().unwrap());
                        assert_eq!(number, next[client], "{line}");
                        next[client] += 1;
                    }
                });
            }
            for (number, mut client) in clients.into_iter().enumerate() {
                scope.spawn(move || {
                    ready.wait();
                    for command in 0..COMMANDS {
                        client.run(&format!("ECHO {number}:{command}"));
                    }
                });
            }
        });
    });
}

fn on_both(transcript: fn(&dyn Fn() -> Client)) {
    let node = Node::start(&[]);
    transcript(&|| node.connect());
    if let Some(redis) = Redis::if_installed(&[]) {
        transcript(&|| redis.connect());
    }
}
