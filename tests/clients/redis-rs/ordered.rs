//! Owns the families of lists, sets, sorted sets, geo and streams.

use crate::harness::{Session, refused};
use redis::geo::{Coord, RadiusOptions, RadiusOrder, Unit};
use redis::streams::{
    StreamAddOptions, StreamAutoClaimOptions, StreamClaimOptions, StreamClaimReply, StreamId, StreamMaxlen,
    StreamPendingReply, StreamReadOptions, StreamTrimOptions, StreamTrimStrategy, StreamTrimmingMode,
};
use redis::{Direction, LposOptions, RedisResult, SortedSetAddOptions, TypedCommands as _, UpdateCheck, cmd};
use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::thread;

fn set<const N: usize>(members: [&str; N]) -> HashSet<String> {
    members.map(String::from).into()
}

fn scored<const N: usize>(members: [(&str, f64); N]) -> Vec<(String, f64)> {
    members.map(|(member, score)| (member.to_string(), score)).into()
}

pub fn lists(s: &mut Session) -> RedisResult<()> {
    let r = &mut s.r;
    assert_eq!(r.rpush("l", &["a", "b", "c"])?, 3);
    assert_eq!(r.lpush("l", "z")?, 4);
    assert_eq!(r.lpush_exists("none", "x")?, 0);
    assert_eq!(r.rpush_exists("none", "x")?, 0);
    assert_eq!(r.llen("l")?, 4);
    assert_eq!(r.lrange("l", 0, -1)?, ["z", "a", "b", "c"]);
    assert_eq!(r.lindex("l", -1)?.as_deref(), Some("c"));
    assert_eq!(r.lindex("l", 100)?, None);
    r.lset("l", 0, "y")?;
    refused(r.lset("l", 100, "x"), "ERR index out of range");
    assert_eq!(r.linsert_before("l", "a", "before")?, 5);
    assert_eq!(r.linsert_after("l", "a", "after")?, 6);
    assert_eq!(r.linsert_after("l", "none", "x")?, -1);
    r.rpush("l", "a")?;
    assert_eq!(r.lpos::<Option<usize>, _, _>("l", "a", LposOptions::default())?, Some(2));
    assert_eq!(r.lpos::<Option<usize>, _, _>("l", "a", LposOptions::default().rank(-1))?, Some(6));
    assert_eq!(r.lpos::<Vec<usize>, _, _>("l", "a", LposOptions::default().count(0).maxlen(100))?, [2, 6]);
    assert_eq!(r.lrem("l", -1, "a")?, 1);
    assert_eq!(r.lpop::<Option<String>, _>("l", None)?.as_deref(), Some("y"));
    assert_eq!(r.rpop::<Vec<String>, _>("l", NonZeroUsize::new(2))?, ["c", "b"]);
    assert_eq!(r.lpop::<Option<String>, _>("none", None)?, None);
    r.rpush("src", &[1, 2, 3])?;
    assert_eq!(r.rpoplpush("src", "dst")?.as_deref(), Some("3"));
    assert_eq!(r.lmove("src", "dst", Direction::Left, Direction::Right)?, "1");
    let popped = r.lmpop(2, &["none", "dst"], Direction::Right, 5)?;
    assert_eq!(popped, Some(("dst".into(), vec!["1".into(), "3".into()])));
    assert_eq!(r.lmpop(1, "none", Direction::Left, 1)?, None);
    r.ltrim("src", 1, 0)?;
    assert!(!r.exists("src")?);
    r.rpush("big", (0..5000).collect::<Vec<_>>())?;
    assert_eq!(r.lindex("big", 2500)?.as_deref(), Some("2500"));
    assert_eq!(r.object_encoding("big")?.as_deref(), Some("quicklist"));
    Ok(())
}

/// Another connection serves the waiting client.
pub fn blocking(s: &mut Session) -> RedisResult<()> {
    s.r.rpush("l", &["a", "b"])?;
    assert_eq!(s.r.blpop(&["none", "l"], 1.0)?, Some(["l".into(), "a".into()]));
    assert_eq!(s.r.brpop("l", 1.0)?, Some(["l".into(), "b".into()]));
    assert_eq!(s.r.blpop("none", 0.05)?, None);
    assert_eq!(s.r.blmove("none", "l", Direction::Left, Direction::Left, 0.05)?, None);
    assert_eq!(s.r.bzpopmin("none", 0.05)?, None);
    let mut w = s.another()?;
    let waiter = thread::spawn(move || {
        let popped = w.brpop(&["q1", "q2"], 5.0).unwrap();
        let moved = w.brpoplpush("q1", "to", 5.0).unwrap();
        let again = w.blmove("q1", "to", Direction::Left, Direction::Right, 5.0).unwrap();
        let many: Option<(String, Vec<String>)> =
            cmd("BLMPOP").arg(&["5", "2", "q1", "q2", "LEFT", "COUNT", "2"]).query(&mut w).unwrap();
        let min = w.bzpopmin(&["z1", "z2"], 5.0).unwrap();
        let max = w.bzpopmax(&["z1", "z2"], 5.0).unwrap();
        let both = w.bzmpop_max(5.0, &["z1", "z2"], 2).unwrap();
        (popped, moved, again, many, min, max, both)
    });
    s.blocked(1);
    s.r.rpush("q2", "late")?;
    s.blocked(1);
    s.r.lpush("q1", "x")?;
    s.blocked(1);
    s.r.lpush("q1", "y")?;
    s.blocked(1);
    s.r.rpush("q1", &[1, 2, 3])?;
    s.blocked(1);
    s.r.zadd("z2", "m", 2)?;
    s.blocked(1);
    s.r.zadd("z1", "n", 3)?;
    s.blocked(1);
    s.r.zadd_multiple("z1", &[(1, "a"), (2, "b"), (3, "c")])?;
    let (popped, moved, again, many, min, max, both) = waiter.join().expect("the waiter");
    assert_eq!(popped, Some(["q2".into(), "late".into()]));
    assert_eq!(moved.as_deref(), Some("x"));
    assert_eq!(again.as_deref(), Some("y"));
    assert_eq!(many, Some(("q1".into(), vec!["1".into(), "2".into()])));
    assert_eq!(min, Some(("z2".into(), "m".into(), 2.0)));
    assert_eq!(max, Some(("z1".into(), "n".into(), 3.0)));
    assert_eq!(both, Some(("z1".into(), scored([("c", 3.0), ("b", 2.0)]))));
    assert_eq!(s.r.lrange("to", 0, -1)?, ["x", "y"]);

    // First come, first served.
    let (mut first, mut second) = (s.another()?, s.another()?);
    let first = thread::spawn(move || first.blpop("fifo", 5.0).unwrap());
    s.blocked(1);
    let second = thread::spawn(move || second.blpop("fifo", 5.0).unwrap());
    s.blocked(2);
    s.r.rpush("fifo", &[1, 2])?;
    assert_eq!(first.join().expect("a reply").unwrap()[1], "1");
    assert_eq!(second.join().expect("a reply").unwrap()[1], "2");
    Ok(())
}

pub fn sets(s: &mut Session) -> RedisResult<()> {
    let r = &mut s.r;
    assert_eq!(r.sadd("s", &["a", "b", "c"])?, 3);
    assert_eq!(r.scard("s")?, 3);
    assert_eq!(r.smembers("s")?, set(["a", "b", "c"]));
    assert!(r.sismember("s", "a")?);
    assert_eq!(r.smismember("s", &["a", "z"])?, [true, false]);
    assert_eq!(r.srem("s", &["a", "z"])?, 1);
    assert!(r.smove("s", "t", "b")?);
    assert!(!r.smove("s", "t", "none")?);
    assert_eq!(r.srandmember("s")?.as_deref(), Some("c"));
    assert_eq!(r.srandmember_multiple("s", -7)?.len(), 7);
    assert_eq!(r.spop::<Option<String>, _>("s")?.as_deref(), Some("c"));
    assert_eq!(r.spop::<Option<String>, _>("s")?, None);
    r.sadd("x", &[1, 2, 3])?;
    r.sadd("y", &[2, 3, 4])?;
    assert_eq!(r.sinter(&["x", "y"])?, set(["2", "3"]));
    assert_eq!(r.sunion(&["x", "y"])?.len(), 4);
    assert_eq!(r.sdiff(&["x", "y"])?, set(["1"]));
    assert_eq!(cmd("SINTERCARD").arg(&["2", "x", "y", "LIMIT", "1"]).query::<i64>(r)?, 1);
    assert_eq!(r.sinterstore("dst", &["x", "y"])?, 2);
    assert_eq!(r.sunionstore("dst", &["x", "y"])?, 4);
    assert_eq!(r.sdiffstore("dst", &["x", "y"])?, 1);
    Ok(())
}

pub fn sorted_sets(s: &mut Session) -> RedisResult<()> {
    let since72 = s.since72;
    let r = &mut s.r;
    assert_eq!(r.zadd("z", "a", 1)?, 1);
    assert_eq!(r.zadd_multiple("z", &[(2, "b"), (3, "c")])?, 2);
    assert_eq!(r.zadd_options("z", "a", 9, &SortedSetAddOptions::add_only())?, 0);
    let lower = SortedSetAddOptions::add_or_update(Some(UpdateCheck::LT)).include_changed_count();
    assert_eq!(r.zadd_options("z", "c", 2.5, &lower)?, 1);
    let raise = SortedSetAddOptions::update_only(Some(UpdateCheck::GT)).include_changed_count();
    assert_eq!(r.zadd_multiple_options("z", &[(3, "c"), (4, "new")], &raise)?, 1);
    assert_eq!(r.zincr("z", "c", 0.5)?, 3.5);
    assert_eq!(r.zcard("z")?, 3);
    assert_eq!(r.zscore("z", "a")?, Some(1.0));
    assert_eq!(r.zscore("z", "none")?, None);
    assert_eq!(r.zscore_multiple("z", &["a", "c"])?, Some(vec![1.0, 3.5]));
    assert_eq!(r.zrank("z", "a")?, Some(0));
    assert_eq!(r.zrevrank("z", "a")?, Some(2));
    assert_eq!(r.zrank("z", "none")?, None);
    if since72 {
        assert_eq!(cmd("ZRANK").arg("z").arg("b").arg("WITHSCORE").query::<(i64, f64)>(r)?, (1, 2.0));
    }
    assert_eq!(r.zcount("z", 1, "(3.5")?, 2);
    assert_eq!(r.zrandmember::<Vec<String>, _>("z", Some(-5))?.len(), 5);
    assert_eq!(r.zrandmember_withscores::<Vec<(String, f64)>, _>("z", 2)?.len(), 2);
    assert_eq!(cmd("ZPOPMIN").arg("z").query::<(String, f64)>(r)?, ("a".into(), 1.0));
    assert_eq!(r.zpopmax("none", 1)?.len(), 0);
    assert_eq!(r.zmpop_max(&["none", "z"], 1)?, Some(("z".into(), scored([("c", 3.5)]))));
    assert_eq!(r.zmpop_min("z", 5)?, Some(("z".into(), scored([("b", 2.0)]))));
    assert_eq!(r.zmpop_min("z", 5)?, None);
    r.zadd_multiple("z", &[(f64::INFINITY, "inf"), (f64::NEG_INFINITY, "-inf"), (1e-300, "small")])?;
    assert_eq!(r.zrange_withscores("z", 0, 1)?, scored([("-inf", f64::NEG_INFINITY), ("small", 1e-300)]));
    refused(r.zincr("z", "inf", "-inf"), "resulting score is not a number");
    assert_eq!(r.zrem("z", &["inf", "none"])?, 1);

    r.zadd_multiple("p", &[(1, "a"), (2, "b")])?;
    r.zadd_multiple("q", &[(3, "b"), (4, "c")])?;
    assert_eq!(r.zinterstore("d", &["p", "q"])?, 1);
    assert_eq!(r.zscore("d", "b")?, Some(5.0));
    assert_eq!(r.zinterstore_min("d", &["p", "q"])?, 1);
    assert_eq!(r.zinterstore_max("d", &["p", "q"])?, 1);
    assert_eq!(r.zscore("d", "b")?, Some(3.0));
    assert_eq!(r.zinterstore_weights("d", &[("p", 1), ("q", 3)])?, 1);
    assert_eq!(r.zscore("d", "b")?, Some(11.0));
    assert_eq!(r.zinterstore_min_weights("d", &[("p", 1), ("q", 3)])?, 1);
    assert_eq!(r.zinterstore_max_weights("d", &[("p", 1), ("q", 3)])?, 1);
    assert_eq!(r.zunionstore("d", &["p", "q"])?, 3);
    assert_eq!(r.zunionstore_min("d", &["p", "q"])?, 3);
    assert_eq!(r.zunionstore_max("d", &["p", "q"])?, 3);
    assert_eq!(r.zunionstore_weights("d", &[("p", 2), ("q", 1)])?, 3);
    assert_eq!(r.zrange_withscores("d", 0, -1)?, scored([("a", 2.0), ("c", 4.0), ("b", 7.0)]));
    assert_eq!(r.zunionstore_min_weights("d", &[("p", 2), ("q", 1)])?, 3);
    assert_eq!(r.zunionstore_max_weights("d", &[("p", 2), ("q", 1)])?, 3);
    assert_eq!(cmd("ZUNION").arg(&["2", "p", "q", "WITHSCORES"]).query::<Vec<(String, f64)>>(r)?.len(), 3);
    assert_eq!(cmd("ZINTER").arg(&["2", "p", "q"]).query::<Vec<String>>(r)?, ["b"]);
    assert_eq!(cmd("ZDIFF").arg(&["2", "p", "q"]).query::<Vec<String>>(r)?, ["a"]);
    assert_eq!(cmd("ZDIFFSTORE").arg(&["d", "2", "p", "q"]).query::<i64>(r)?, 1);
    assert_eq!(cmd("ZINTERCARD").arg(&["2", "p", "q"]).query::<i64>(r)?, 1);
    Ok(())
}

pub fn ranges(s: &mut Session) -> RedisResult<()> {
    let r = &mut s.r;
    let all: Vec<_> = (0..300).map(|i| (i, format!("m{i:03}"))).collect();
    r.zadd_multiple("z", &all)?;
    assert_eq!(r.object_encoding("z")?.as_deref(), Some("skiplist"));
    assert_eq!(r.zrange("z", 0, 1)?, ["m000", "m001"]);
    assert_eq!(r.zrevrange("z", 0, 1)?, ["m299", "m298"]);
    assert_eq!(r.zrange_withscores("z", -1, -1)?, scored([("m299", 299.0)]));
    let last = cmd("ZREVRANGE").arg(&["z", "0", "0", "WITHSCORES"]).query::<Vec<(String, f64)>>(r)?;
    assert_eq!(last, scored([("m299", 299.0)]));
    assert_eq!(r.zrangebyscore("z", 10, "(12")?, ["m010", "m011"]);
    assert_eq!(r.zrangebyscore_withscores("z", 10, 10)?, [("m010".into(), 10)]);
    assert_eq!(r.zrangebyscore_limit("z", 10, 20, 2, 1)?, ["m012"]);
    assert_eq!(r.zrevrangebyscore("z", "+inf", "(298")?, ["m299"]);
    assert_eq!(r.zrevrangebyscore_limit("z", 20, 10, 1, 1)?, ["m019"]);
    let stored = cmd("ZRANGESTORE").arg(&["d", "z", "20", "10", "BYSCORE", "REV", "LIMIT", "1", "2"]).take();
    assert_eq!(stored.query::<i64>(r)?, 2);
    assert_eq!(r.zrange("d", 0, -1)?, ["m018", "m019"]);
    assert_eq!(r.zremrangebyrank("z", 0, 1)?, 2);
    assert_eq!(r.zrembyscore("z", 2, 4)?, 3);

    r.zadd_multiple("lex", &["a", "b", "c", "d", "e", "f"].map(|member| (0, member)))?;
    assert_eq!(r.zlexcount("lex", "[b", "[e")?, 4);
    assert_eq!(r.zrangebylex("lex", "(a", "(d")?, ["b", "c"]);
    assert_eq!(r.zrangebylex_limit("lex", "-", "+", 1, 2)?, ["b", "c"]);
    assert_eq!(r.zrevrangebylex("lex", "[c", "-")?, ["c", "b", "a"]);
    assert_eq!(r.zrevrangebylex_limit("lex", "+", "-", 1, 1)?, ["e"]);
    assert_eq!(r.zrembylex("lex", "-", "(d")?, 3);
    refused(r.zrangebylex("lex", "a", "b"), "ERR min or max not valid string range item");
    Ok(())
}

pub fn geo(s: &mut Session) -> RedisResult<()> {
    let r = &mut s.r;
    assert_eq!(r.geo_add("sicily", (13.361389, 38.115556, "Palermo"))?, 1);
    assert_eq!(r.geo_add("sicily", (Coord::lon_lat(15.087269, 37.502669), "Catania"))?, 1);
    assert!((r.geo_dist("sicily", "Palermo", "Catania", Unit::Kilometers)?.unwrap() - 166.2742).abs() < 1e-3);
    assert_eq!(r.geo_dist("sicily", "Palermo", "none", Unit::Meters)?, None);
    assert_eq!(r.geo_hash("sicily", &["Palermo", "Catania"])?, ["sqc8b49rny0", "sqdtr74hyu0"]);
    let at = r.geo_pos("sicily", &["Palermo", "none"])?;
    assert!((at[0].as_ref().unwrap().longitude - 13.361389).abs() < 1e-5);
    assert!(at[1].is_none());
    let options = RadiusOptions::default().with_dist().with_coord().order(RadiusOrder::Asc).limit(2);
    let near = r.geo_radius("sicily", 15.0, 37.0, 200.0, Unit::Kilometers, options)?;
    assert_eq!(near.iter().map(|found| &found.name[..]).collect::<Vec<_>>(), ["Catania", "Palermo"]);
    assert!((near[0].dist.unwrap() - 56.4413).abs() < 1e-3);
    assert!((near[0].coord.as_ref().unwrap().latitude - 37.502669).abs() < 1e-5);
    let near = r.geo_radius_by_member("sicily", "Palermo", 10.0, Unit::Miles, RadiusOptions::default())?;
    assert_eq!(near.len(), 1);
    let stored = cmd("GEORADIUS").arg(&["sicily", "15", "37", "200", "km", "STORE", "d"]).query::<i64>(r)?;
    assert_eq!(stored, 2);
    let search = cmd("GEOSEARCH").arg(&["sicily", "FROMMEMBER", "Palermo", "BYBOX", "400", "400", "km", "DESC"]).take();
    assert_eq!(search.query::<Vec<String>>(r)?, ["Catania", "Palermo"]);
    let store = cmd("GEOSEARCHSTORE").arg(&["d", "sicily", "FROMLONLAT", "15", "37", "BYRADIUS", "60", "km"]).take();
    assert_eq!(store.query::<i64>(r)?, 1);
    refused(r.geo_add("sicily", (200, 100, "x")), "ERR invalid longitude,latitude pair");
    Ok(())
}

fn ids(entries: &[StreamId]) -> Vec<&str> {
    entries.iter().map(|entry| &entry.id[..]).collect()
}

pub fn streams(s: &mut Session) -> RedisResult<()> {
    let r = &mut s.r;
    assert_eq!(r.xadd("s", "1-1", &[("f", "a")])?.as_deref(), Some("1-1"));
    assert_eq!(
        r.xadd_map("s", "1-*", std::collections::BTreeMap::from([("f", "b"), ("g", "c")]))?.as_deref(),
        Some("1-2")
    );
    assert_eq!(r.xadd("s", "2", &[("f", "d")])?.as_deref(), Some("2-0"));
    refused(r.xadd("s", "1-5", &[("f", "x")]), "ERR The ID specified in XADD is equal or smaller");
    assert_eq!(r.xadd_options("none", "*", &[("f", "x")], &StreamAddOptions::default().nomkstream())?, None);
    assert_eq!(r.xlen("s")?, 3);
    let all = r.xrange_all("s")?;
    assert_eq!(ids(&all.ids), ["1-1", "1-2", "2-0"]);
    assert_eq!(all.ids[1].get::<String>("g").as_deref(), Some("c"));
    assert_eq!(ids(&r.xrange("s", "(1-1", "+")?.ids), ["1-2", "2-0"]);
    assert_eq!(ids(&r.xrange_count("s", "-", "+", 1)?.ids), ["1-1"]);
    assert_eq!(ids(&r.xrevrange_all("s")?.ids), ["2-0", "1-2", "1-1"]);
    assert_eq!(ids(&r.xrevrange("s", "1", "-")?.ids), ["1-2", "1-1"]);
    assert_eq!(ids(&r.xrevrange_count("s", "+", "-", 1)?.ids), ["2-0"]);
    assert_eq!(r.xdel("s", &["1-2", "9-9"])?, 1);
    for i in 1..=500 {
        r.xadd_maxlen("t", StreamMaxlen::Equals(300), format!("{i}-1"), &[("i", i)])?;
    }
    assert_eq!(r.xlen("t")?, 300);
    assert_eq!(r.xtrim_options("t", &StreamTrimOptions::minid(StreamTrimmingMode::Exact, "301"))?, 100);
    let trim = StreamTrimStrategy::maxlen(StreamTrimmingMode::Exact, 50);
    r.xadd_options("t", "*", &[("f", "x")], &StreamAddOptions::default().trim(trim))?;
    assert_eq!(r.xlen("t")?, 50);
    r.xtrim("t", StreamMaxlen::Approx(10))?;
    let read = r.xread(&["s", "t"], &["0", "$"])?.unwrap();
    assert_eq!((read.keys.len(), &read.keys[0].key[..]), (1, "s"));
    assert_eq!(ids(&read.keys[0].ids), ["1-1", "2-0"]);
    assert!(r.xread_options(&["s"], &["2-0"], &StreamReadOptions::default().count(5).block(30))?.is_none());
    let info = r.xinfo_stream("s")?;
    assert_eq!((info.length, &info.last_generated_id[..], &info.first_entry.id[..]), (2, "2-0", "1-1"));
    let mut w = s.another()?;
    let late =
        thread::spawn(move || w.xread_options(&["b"], &["$"], &StreamReadOptions::default().block(5000)).unwrap());
    s.blocked(1);
    s.r.xadd("b", "7-7", &[("k", "v")])?;
    assert_eq!(ids(&late.join().expect("a reply").unwrap().keys[0].ids), ["7-7"]);
    Ok(())
}

pub fn groups(s: &mut Session) -> RedisResult<()> {
    let r = &mut s.r;
    refused(r.xgroup_create("s", "g", "0"), "ERR The XGROUP subcommand requires the key to exist");
    r.xgroup_create_mkstream("s", "g", "0")?;
    refused(r.xgroup_create("s", "g", "0"), "BUSYGROUP");
    assert!(r.xgroup_createconsumer("s", "g", "ann")?);
    for i in 1..=6 {
        r.xadd("s", format!("{i}-0"), &[("i", i)])?;
    }
    let ann = StreamReadOptions::default().group("g", "ann").count(2);
    let bob = StreamReadOptions::default().group("g", "bob").count(2);
    assert_eq!(ids(&r.xread_options(&["s"], &[">"], &ann)?.unwrap().keys[0].ids), ["1-0", "2-0"]);
    assert_eq!(ids(&r.xread_options(&["s"], &[">"], &bob)?.unwrap().keys[0].ids), ["3-0", "4-0"]);
    let unsaid = StreamReadOptions::default().group("g", "bob").count(1).noack();
    assert_eq!(ids(&r.xread_options(&["s"], &[">"], &unsaid)?.unwrap().keys[0].ids), ["5-0"]);
    let StreamPendingReply::Data(pending) = r.xpending("s", "g")? else { panic!("nothing pends") };
    assert_eq!((pending.count, &pending.start_id[..], &pending.end_id[..]), (4, "1-0", "4-0"));
    assert_eq!(pending.consumers.len(), 2);
    assert_eq!(r.xpending_count("s", "g", "-", "+", 10)?.ids.len(), 4);
    assert_eq!(r.xpending_consumer_count("s", "g", "-", "+", 10, "ann")?.ids[0].times_delivered, 1);
    assert_eq!(r.xack("s", "g", &["1-0", "9-9"])?, 1);
    assert_eq!(ids(&r.xclaim("s", "g", "bob", 0, &["2-0"])?.ids), ["2-0"]);
    let options = StreamClaimOptions::default().retry(7).idle(5000).with_force();
    let claimed: StreamClaimReply = r.xclaim_options("s", "g", "ann", 0, &["3-0"], options)?;
    assert_eq!(ids(&claimed.ids), ["3-0"]);
    let just: Vec<String> =
        r.xclaim_options("s", "g", "ann", 0, &["3-0"], StreamClaimOptions::default().with_justid())?;
    assert_eq!(just, ["3-0"]);
    assert_eq!(r.xpending_count("s", "g", "3", "3", 1)?.ids[0].times_delivered, 7);
    let auto = r.xautoclaim_options("s", "g", "cyd", 0, "0", StreamAutoClaimOptions::default().count(2))?;
    assert_eq!((&auto.next_stream_id[..], ids(&auto.claimed)), ("4-0", vec!["2-0", "3-0"]));
    let auto = r.xautoclaim_options("s", "g", "cyd", 0, "4-0", StreamAutoClaimOptions::default().with_justid())?;
    assert_eq!((&auto.next_stream_id[..], ids(&auto.claimed)), ("0-0", vec!["4-0"]));
    let group = &r.xinfo_groups("s")?.groups[0];
    assert_eq!((&group.name[..], group.consumers, group.pending), ("g", 3, 3));
    assert_eq!((group.entries_read, group.lag), (Some(5), Some(1)));
    let consumers = r.xinfo_consumers("s", "g")?.consumers;
    assert_eq!(
        consumers.iter().map(|c| (&c.name[..], c.pending)).collect::<Vec<_>>(),
        [("ann", 0), ("bob", 0), ("cyd", 3)]
    );
    assert_eq!(r.xgroup_delconsumer("s", "g", "cyd")?, 3);
    r.xgroup_setid("s", "g", "$")?;
    let mut w = s.another()?;
    let waits = StreamReadOptions::default().group("g", "ann").block(5000);
    let late = thread::spawn(move || w.xread_options(&["s"], &[">"], &waits).unwrap());
    s.blocked(1);
    s.r.xadd("s", "100-0", &[("late", "yes")])?;
    assert_eq!(ids(&late.join().expect("a reply").unwrap().keys[0].ids), ["100-0"]);
    assert!(s.r.xgroup_destroy("s", "g")?);
    assert!(!s.r.xgroup_destroy("s", "g")?);
    refused(s.r.xpending("s", "g"), "NOGROUP");
    Ok(())
}
