//! Owns the families of strings, of types made of strings, of hashes, and of keys of any type. Never knows how a family
//! is run.

use crate::harness::{Session, refused, soon};
use redis::{
    CopyOptions, ExistenceCheck, ExpireOption, Expiry, IntegerReplyOrNoOp, RedisResult, ScanOptions, SetExpiry,
    SetOptions, TypedCommands as _, ValueType, cmd,
};
use std::collections::{HashMap, HashSet};

const FAR: u64 = 4_000_000_000;

pub fn strings(s: &mut Session) -> RedisResult<()> {
    let r = &mut s.r;
    r.set("s", "one")?;
    assert_eq!(r.get("s")?.as_deref(), Some("one"));
    assert_eq!(r.get("none")?, None);
    let new = SetOptions::default().conditional_set(ExistenceCheck::NX);
    assert_eq!(r.set_options("s", "two", new)?, None);
    let old = SetOptions::default().conditional_set(ExistenceCheck::XX).with_expiration(SetExpiry::EX(100));
    assert_eq!(r.set_options("s", "two", old.get(true))?.as_deref(), Some("one"));
    assert!(r.ttl("s")?.raw() > 90);
    r.set_options("s", "three", SetOptions::default().with_expiration(SetExpiry::KEEPTTL))?;
    assert!(r.pttl("s")?.raw() > 90_000);
    r.set_options("s", "three", SetOptions::default().with_expiration(SetExpiry::PXAT(FAR * 1000 + 5)))?;
    assert_eq!(r.pexpire_time("s")?.raw(), 4_000_000_000_005);
    assert_eq!(r.getset("s", "four")?.as_deref(), Some("three"));
    assert_eq!(r.get_ex("s", Expiry::EX(50))?.as_deref(), Some("four"));
    assert!(r.ttl("s")?.raw() > 40);
    assert_eq!(r.get_ex("s", Expiry::PERSIST)?.as_deref(), Some("four"));
    assert_eq!(r.ttl("s")?, IntegerReplyOrNoOp::ExistsButNotRelevant);
    assert_eq!(r.get_del("s")?.as_deref(), Some("four"));
    assert_eq!(r.get_del("s")?, None);
    assert!(r.set_nx("s", "a")?);
    assert!(!r.set_nx("s", "b")?);
    r.set_ex("s", "ex", 100)?;
    r.pset_ex("s", "pex", 100_000)?;

    assert_eq!(r.append("text", "Hello")?, 5);
    assert_eq!(r.append("text", " World")?, 11);
    assert_eq!(r.strlen("text")?, 11);
    assert_eq!(r.getrange("text", -5, -1)?, "World");
    assert_eq!(r.setrange("text", 6, "Redis")?, 11);
    assert_eq!(r.get("text")?.as_deref(), Some("Hello Redis"));
    assert_eq!(r.incr("n", 1)?, 1);
    assert_eq!(r.incr("n", 10)?, 11);
    assert_eq!(r.decr("n", 16)?, -5);
    assert_eq!(cmd("INCRBYFLOAT").arg("n").arg(0.5).query::<f64>(r)?, -4.5);
    r.set("n", i64::MAX)?;
    refused(r.incr("n", 1), "ERR increment or decrement would overflow");
    r.mset(&[("m1", "a"), ("m2", "b")])?;
    assert_eq!(r.mget(&["m1", "m2", "m3"])?, [Some("a".into()), Some("b".into()), None]);
    assert!(!r.mset_nx(&[("m2", "x"), ("m3", "y")])?);
    assert!(r.mset_nx(&[("m3", "x"), ("m4", "y")])?);
    r.mset(&[("l1", "ohmytext"), ("l2", "mynewtext")])?;
    assert_eq!(cmd("LCS").arg("l1").arg("l2").query::<String>(r)?, "mytext");

    let all: Vec<u8> = (0..=255).collect();
    r.set(&all[..], &all[..])?;
    assert_eq!(cmd("GET").arg(&all[..]).query::<Vec<u8>>(r)?, all);
    let big = vec![b'x'; 3_000_000];
    r.set("big", &big[..])?;
    assert_eq!(cmd("GET").arg("big").query::<Vec<u8>>(r)?, big);
    Ok(())
}

pub fn bitmaps(s: &mut Session) -> RedisResult<()> {
    let r = &mut s.r;
    assert!(!r.setbit("b", 7, true)?);
    assert!(r.setbit("b", 7, true)?);
    assert!(r.getbit("b", 7)?);
    r.set("b", "foobar")?;
    assert_eq!(r.bitcount("b")?, 26);
    assert_eq!(r.bitcount_range("b", 1, 1)?, 6);
    r.mset(&[("x", "abc"), ("y", "abd")])?;
    assert_eq!(r.bit_and("and", &["x", "y"])?, 3);
    assert_eq!(r.get("and")?.as_deref(), Some("ab`"));
    assert_eq!(r.bit_or("or", &["x", "y"])?, 3);
    assert_eq!(r.bit_xor("xor", &["x", "y"])?, 3);
    assert_eq!(r.get("xor")?.as_deref(), Some("\0\0\x07"));
    assert_eq!(r.bit_not("not", "x")?, 3);
    assert_eq!(cmd("BITPOS").arg("x").arg(1).query::<i64>(r)?, 1);
    let field = cmd("BITFIELD").arg("f").arg(&["OVERFLOW", "SAT", "INCRBY", "u8", "0", "300"]).query::<Vec<i64>>(r)?;
    assert_eq!(field, [255]);
    let fails = cmd("BITFIELD").arg("f").arg(&["OVERFLOW", "FAIL", "INCRBY", "u8", "0", "1"]).take();
    assert_eq!(fails.query::<Vec<Option<i64>>>(r)?, [None]);
    assert_eq!(cmd("BITFIELD_RO").arg("f").arg(&["GET", "i8", "0"]).query::<Vec<i64>>(r)?, [-1]);
    Ok(())
}

pub fn hyperloglog(s: &mut Session) -> RedisResult<()> {
    let r = &mut s.r;
    assert!(r.pfadd("h", &["a", "b", "c"])?);
    assert!(!r.pfadd("h", "a")?);
    assert_eq!(r.pfcount("h")?, 3);
    let many: Vec<String> = (0..5000).map(|i| format!("m{i}")).collect();
    r.pfadd("big", many)?;
    assert!(r.pfcount("big")?.abs_diff(5000) < 150);
    r.pfmerge("sum", &["h", "big"])?;
    assert_eq!(r.pfcount("sum")?, r.pfcount(&["h", "big"])?);
    r.set("text", "no")?;
    refused(r.pfcount("text"), "WRONGTYPE Key is not a valid HyperLogLog");
    Ok(())
}

pub fn keys(s: &mut Session) -> RedisResult<()> {
    let r = &mut s.r;
    r.mset(&[("k1", "a"), ("k2", "b"), ("k3", "c")])?;
    assert!(r.exists("k1")?);
    assert_eq!(cmd("TOUCH").arg(&["k1", "k2", "none"]).query::<i64>(r)?, 2);
    assert_eq!(r.key_type("k1")?, ValueType::String);
    assert_eq!(r.key_type("none")?, ValueType::None);
    assert!(r.expire("k1", 100)?);
    assert!(!cmd("EXPIRE").arg("k1").arg(200).arg("NX").query::<bool>(r)?);
    assert!(r.pexpire("k1", 100_000)?);
    assert!(r.ttl("k1")?.raw() > 90);
    assert!(r.expire_at("k1", FAR as i64)?);
    assert_eq!(r.expire_time("k1")?.raw(), FAR as isize);
    assert!(r.pexpire_at("k1", FAR as i64 * 1000)?);
    assert!(r.persist("k1")?);
    assert!(!r.persist("k1")?);
    assert_eq!(r.pttl("none")?, IntegerReplyOrNoOp::NotExists);
    r.pexpire("k3", 20)?;
    soon(|| !r.exists("k3").unwrap());
    r.rename("k1", "k4")?;
    refused(r.rename("k1", "k5"), "ERR no such key");
    assert!(!r.rename_nx("k4", "k2")?);
    assert!(r.rename_nx("k4", "k6")?);
    assert!(r.copy("k6", "k7", CopyOptions::default())?);
    assert!(!r.copy("k6", "k7", CopyOptions::default())?);
    assert!(r.copy("k2", "k7", CopyOptions::default().replace(true))?);
    assert_eq!(r.keys("k*")?.into_iter().collect::<HashSet<_>>(), HashSet::from(["k2", "k6", "k7"].map(String::from)));
    assert_eq!(r.del(&["k2", "k6", "none"])?, 2);
    assert_eq!(r.unlink("k7")?, 1);
    r.set("int", 123)?;
    r.sadd("ints", &[1, 2])?;
    assert_eq!(r.object_encoding("int")?.as_deref(), Some("int"));
    assert_eq!(r.object_encoding("ints")?.as_deref(), Some("intset"));
    assert_eq!(r.object_encoding("none")?, None);
    assert!(r.object_refcount("ints")?.is_some());
    assert!(r.object_idletime("int")?.is_some());
    refused(r.object_freq("int"), "ERR An LFU maxmemory policy is not selected");
    assert!(cmd("MEMORY").arg("USAGE").arg("ints").query::<Option<usize>>(r)?.is_some());
    Ok(())
}

pub fn scan(s: &mut Session) -> RedisResult<()> {
    let r = &mut s.r;
    for i in 0..600 {
        r.set(format!("key:{i}"), i)?;
        r.hset("h", format!("f{i}"), i)?;
        r.sadd("s", i)?;
        r.zadd("z", format!("m{i}"), i)?;
    }
    assert_eq!(r.scan::<String>()?.map(Result::unwrap).collect::<HashSet<_>>().len(), 603);
    let some = r.scan_match::<_, String>("key:1*")?.map(Result::unwrap).collect::<HashSet<_>>();
    assert_eq!(some.len(), 111);
    let options = ScanOptions::default().with_count(50).with_pattern("*").with_type("hash");
    assert_eq!(r.scan_options::<String>(options)?.map(Result::unwrap).collect::<HashSet<_>>().len(), 1);
    let fields = r.hscan::<_, (String, String)>("h")?.map(Result::unwrap).collect::<HashMap<_, _>>();
    assert_eq!(fields.len(), 600);
    assert!(fields.iter().all(|(field, value)| field[1..] == **value));
    assert_eq!(r.hscan_match::<_, _, (String, String)>("h", "f10*")?.count(), 11);
    assert_eq!(r.sscan::<_, i64>("s")?.map(Result::unwrap).collect::<HashSet<_>>().len(), 600);
    assert_eq!(r.sscan_match::<_, _, i64>("s", "59?")?.count(), 10);
    let scored = r.zscan::<_, (String, f64)>("z")?.map(Result::unwrap).collect::<HashMap<_, _>>();
    assert_eq!(scored["m17"], 17.0);
    assert_eq!(r.zscan_match::<_, _, (String, f64)>("z", "m59?")?.count(), 10);
    refused(cmd("SCAN").arg("x").exec(r), "ERR invalid cursor");
    Ok(())
}

pub fn sort(s: &mut Session) -> RedisResult<()> {
    let r = &mut s.r;
    r.rpush("l", &[3, 1, 2])?;
    assert_eq!(cmd("SORT").arg("l").query::<Vec<i64>>(r)?, [1, 2, 3]);
    r.mset(&[("w1", 30), ("w2", 20), ("w3", 10)])?;
    assert_eq!(cmd("SORT_RO").arg("l").arg(&["BY", "w*", "GET", "w*", "DESC"]).query::<Vec<i64>>(r)?, [30, 20, 10]);
    assert_eq!(cmd("SORT").arg("l").arg(&["STORE", "to"]).query::<i64>(r)?, 3);
    assert_eq!(r.lrange("to", 0, -1)?, ["1", "2", "3"]);
    Ok(())
}

pub fn dump(s: &mut Session) -> RedisResult<()> {
    let r = &mut s.r;
    r.set("str", "value")?;
    r.hset_multiple("hash", &[("f", "v"), ("g", "w")])?;
    r.rpush("list", (0..1000).collect::<Vec<_>>())?;
    r.sadd("set", &["a", "b"])?;
    r.zadd_multiple("zset", &(0..1000).map(|i| (i, format!("m{i}"))).collect::<Vec<_>>())?;
    for key in r.keys("*")? {
        let mut payload: Vec<u8> = cmd("DUMP").arg(&key).query(r)?;
        let copy = format!("{key}!");
        cmd("RESTORE").arg(&copy).arg(0).arg(&payload[..]).exec(r)?;
        assert_eq!(r.key_type(&copy)?, r.key_type(&key)?);
        assert_eq!(r.object_encoding(&copy)?, r.object_encoding(&key)?);
        *payload.last_mut().unwrap() ^= 1;
        let bad = cmd("RESTORE").arg("bad").arg(0).arg(&payload[..]).exec(r);
        refused(bad, "ERR DUMP payload version or checksum are wrong");
    }
    assert_eq!(r.get("str!")?.as_deref(), Some("value"));
    assert_eq!(r.hgetall("hash!")?, r.hgetall("hash")?);
    assert_eq!(r.lrange("list!", 0, -1)?, r.lrange("list", 0, -1)?);
    assert_eq!(r.zrange_withscores("zset!", 0, -1)?, r.zrange_withscores("zset", 0, -1)?);
    Ok(())
}

pub fn hashes(s: &mut Session) -> RedisResult<()> {
    let r = &mut s.r;
    assert_eq!(r.hset("h", "f", "v")?, 1);
    assert_eq!(r.hset("h", "f", "w")?, 0);
    r.hset_multiple("h", &[("g", "x"), ("n", "1")])?;
    assert_eq!(r.hget("h", "f")?.as_deref(), Some("w"));
    assert_eq!(r.hget("h", "none")?, None);
    assert!(!r.hset_nx("h", "f", "y")?);
    assert!(r.hset_nx("h", "i", "z")?);
    assert_eq!(r.hmget("h", &["f", "i"])?, ["w", "z"]);
    let whole = [("f", "w"), ("g", "x"), ("n", "1"), ("i", "z")].map(|(f, v)| (f.to_string(), v.to_string()));
    assert_eq!(r.hgetall("h")?, HashMap::from(whole));
    assert_eq!(r.hgetall("none")?, HashMap::new());
    assert_eq!(r.hkeys("h")?.len(), 4);
    assert_eq!(r.hvals("h")?.len(), 4);
    assert_eq!(r.hlen("h")?, 4);
    assert!(r.hexists("h", "f")?);
    assert_eq!(r.hincr("h", "n", 10)?, 11.0);
    assert_eq!(r.hincr("h", "n", 0.5)?, 11.5);
    assert_eq!(cmd("HSTRLEN").arg("h").arg("n").query::<i64>(r)?, 4);
    assert_eq!(cmd("HRANDFIELD").arg("h").arg(-7).query::<Vec<String>>(r)?.len(), 7);
    let pairs = cmd("HRANDFIELD").arg("h").arg(2).arg("WITHVALUES").query::<Vec<(String, String)>>(r)?;
    assert_eq!(pairs.len(), 2);
    assert_eq!(r.hdel("h", &["f", "g", "n", "i", "none"])?, 4);
    assert!(!r.exists("h")?);
    Ok(())
}

/// Fields that expire came with Redis 7.4, which Debian's server is not; FlintKV has them.
pub fn hash_expiry(s: &mut Session) -> RedisResult<()> {
    use IntegerReplyOrNoOp::{ExistsButNotRelevant, IntegerReply, NotExists};
    if !s.since72 {
        return Ok(());
    }
    let r = &mut s.r;
    r.hset_multiple("h", &[("a", "1"), ("b", "2"), ("c", "3")])?;
    assert_eq!(r.hexpire("h", 100, ExpireOption::NONE, &["a", "none"])?, [IntegerReply(1), NotExists]);
    assert_eq!(r.hexpire("h", 200, ExpireOption::NX, "a")?, [IntegerReply(0)]);
    assert_eq!(r.hpexpire("h", 200_000, ExpireOption::GT, "a")?, [IntegerReply(1)]);
    assert!(r.httl("h", "a")?[0].raw() > 190);
    assert!(r.hpttl("h", "a")?[0].raw() > 190_000);
    assert_eq!(r.httl("h", &["b", "none"])?, [ExistsButNotRelevant, NotExists]);
    assert_eq!(r.hexpire_at("h", FAR as i64, ExpireOption::NONE, "b")?, [IntegerReply(1)]);
    assert_eq!(r.hexpire_time("h", "b")?, [IntegerReply(FAR as usize)]);
    assert_eq!(r.hpexpire_at("h", FAR as i64 * 1000, ExpireOption::XX, "b")?, [IntegerReply(1)]);
    assert_eq!(r.hpexpire_time("h", "b")?, [IntegerReply(FAR as usize * 1000)]);
    assert_eq!(r.hpersist("h", &["b", "c"])?, [IntegerReply(1), ExistsButNotRelevant]);
    r.hpexpire("h", 20, ExpireOption::NONE, "a")?;
    soon(|| !r.hexists("h", "a").unwrap());
    assert_eq!(r.hlen("h")?, 2);
    Ok(())
}
