//! Random commands on lists, sorted sets and streams whose chunks go to flash and come back. The same commands on a
//! store that keeps everything in RAM must give the same replies. `FLINTKV_SEED` replays a run, `FLINTKV_COMMANDS`
//! makes it longer.

use crate::harness::Harness;
use flintkv_tests::generator::{Template, fill};
use flintkv_tests::{Random, number};
use std::collections::BTreeSet;
use store::counters::Counter;
use value::list::Limit;

/// A word of one or two small letters stands for what [`word`] makes of it.
const LISTS: &[&str] = &[
    "RPUSH l v *v *v *v",
    "RPUSH l v *v *v *v",
    "LPUSH l v *v *v *v",
    "RPUSHX l v *v",
    "LPUSHX l v",
    "LPOP l",
    "RPOP l",
    "LPOP l n",
    "RPOP l n",
    "LLEN l",
    "LINDEX l i",
    "LINDEX l i",
    "LSET l i v",
    "LSET l i v",
    "LRANGE l i i",
    "LRANGE l i i",
    "LTRIM l n -3",
    "LTRIM l 0 -2",
    "LINSERT l BEFORE v v",
    "LINSERT l AFTER v v",
    "LREM l i v",
    "LREM l 1 v",
    "LPOS l v",
    "LPOS l v COUNT n",
    "LPOS l v RANK -1 COUNT n MAXLEN n",
    "LPOS l v RANK n",
    "LMOVE l l e e",
    "RPOPLPUSH l l",
    "LMPOP 2 l l e COUNT n",
    "BLPOP l l 0.001",
    "BLMOVE l l e e 0.001",
    "SORT l ALPHA LIMIT 0 n",
    "COPY l l REPLACE",
    "RENAME l l",
    "EXISTS l",
    "TYPE l",
];

const SORTED_SETS: &[&str] = &[
    "ZADD z q m q m q m q m q m q m q m q m",
    "ZADD z q m q m q m q m q m q m q m q m",
    "ZADD z q m q m q m q m q m q m q m q m",
    "ZADD z GT CH q m q m q m",
    "ZADD z LT q m q m q m",
    "ZADD z NX q m q m q m",
    "ZADD z XX CH q m q m q m",
    "ZADD z XX INCR q m",
    "ZINCRBY z q m",
    "ZINCRBY z q m",
    "ZREM z m m",
    "ZCARD z",
    "ZSCORE z m",
    "ZMSCORE z m m",
    "ZRANK z m",
    "ZREVRANK z m",
    "ZCOUNT z q q",
    "ZRANGE z i i WITHSCORES",
    "ZRANGE z i i REV",
    "ZRANGE z q q BYSCORE LIMIT n n WITHSCORES",
    "ZRANGE z q q BYSCORE REV LIMIT n n",
    "ZRANGEBYSCORE z q (q",
    "ZREVRANGEBYSCORE z +inf (q LIMIT 0 n",
    "ZRANGESTORE z z i i",
    "ZREMRANGEBYRANK z n n",
    "ZREMRANGEBYRANK z -7 -n",
    "ZREMRANGEBYSCORE z q q",
    "ZPOPMIN z n",
    "ZPOPMAX z n",
    "ZMPOP 2 z z MIN COUNT n",
    "BZPOPMAX z z 0.001",
    "BZMPOP 0.001 2 z z MIN COUNT n",
    "ZRANDMEMBER z 10000",
    "ZSCAN z 0 COUNT 10000",
    "ZUNIONSTORE z 2 z y AGGREGATE MAX",
    "ZINTERCARD 2 z y",
    "COPY z z REPLACE",
    "RENAME z z",
    "ZADD y 0 m 0 m 0 m 0 m 0 m 0 m 0 m 0 m",
    "ZADD y 0 m 0 m 0 m 0 m 0 m 0 m 0 m 0 m",
    "ZREM y m m",
    "ZRANK y m",
    "ZLEXCOUNT y [m (m",
    "ZRANGEBYLEX y [m + LIMIT n n",
    "ZREVRANGEBYLEX y (m - LIMIT n n",
    "ZRANGE y (m [m BYLEX",
    "ZREMRANGEBYLEX y (m [m",
    "GEOADD g o a m o a m o a m o a m",
    "GEOADD g o a m o a m o a m o a m",
    "GEOADD g XX CH o a m o a m",
    "GEOPOS g m m",
    "GEODIST g m m",
    "GEOSEARCH g FROMLONLAT o a BYRADIUS 100 km ASC WITHDIST",
    "GEOSEARCH g FROMMEMBER m BYBOX 200 100 km COUNT n",
    "GEOSEARCHSTORE g g FROMMEMBER m BYRADIUS 1000 km",
    "GEORADIUSBYMEMBER g m 100 km DESC",
    "GEORADIUS g o a 100 km COUNT n ANY STORE z",
    "ZREM g m m",
];

const STREAMS: &[&str] = &[
    "XADD s 5-* f v",
    "XADD s 5-* f v f v",
    "XADD s 5-* f v",
    "XADD s 5-* f v",
    "XADD s MAXLEN 20 5-* f v",
    "XADD s MAXLEN ~ 20 5-* f v",
    "XADD s MINID d 5-* f v",
    "XADD s d f v",
    "XLEN s",
    "XRANGE s - +",
    "XRANGE s d d",
    "XRANGE s d + COUNT n",
    "XRANGE s (d + COUNT n",
    "XREVRANGE s + - COUNT n",
    "XREVRANGE s d d COUNT n",
    "XREAD COUNT n STREAMS s s d d",
    "XREAD STREAMS s d",
    "XREAD STREAMS s $",
    "XDEL s d",
    "XDEL s d d d",
    "XTRIM s MAXLEN 30",
    "XTRIM s MAXLEN ~ 20",
    "XTRIM s MINID d",
    "XTRIM s MINID ~ d LIMIT n",
    "XGROUP CREATE s g 0",
    "XGROUP CREATE s g $",
    "XGROUP SETID s g d",
    "XGROUP CREATECONSUMER s g c",
    "XGROUP DELCONSUMER s g c",
    "XREADGROUP GROUP g c COUNT n STREAMS s >",
    "XREADGROUP GROUP g c STREAMS s >",
    "XREADGROUP GROUP g c COUNT n NOACK STREAMS s s > >",
    "XREADGROUP GROUP g c COUNT n STREAMS s d",
    "XREADGROUP GROUP g c STREAMS s 0",
    "XACK s g d d",
    "XPENDING s g",
    "XPENDING s g - + 10",
    "XCLAIM s g c 0 d d d",
    "XCLAIM s g c 5 d d JUSTID",
    "XCLAIM s g c 0 d FORCE",
    "XAUTOCLAIM s g c n - COUNT n",
    "XAUTOCLAIM s g c 100 d COUNT n JUSTID",
    "XINFO STREAM s",
    "XINFO STREAM s FULL COUNT n",
    "XINFO GROUPS s",
    "XINFO CONSUMERS s g",
    "XSETID s d",
    "COPY s s REPLACE",
    "RENAME s s",
    "TYPE s",
];

fn word(kind: &str, random: &mut Random) -> String {
    match kind {
        "l" => random.of(&["l1", "l2", "l3", "l4"]).into(),
        "v" => match random.below(20) {
            0 => "x".repeat(200),
            1 => "y".repeat(9000),
            n => format!("v{}", n % 7),
        },
        "i" => (random.below(50) as i64 - 25).to_string(),
        "n" => random.below(7).to_string(),
        "s" => random.of(&["s1", "s2", "s3"]).into(),
        "d" => format!("5-{}", random.below(200)),
        "(d" => format!("(5-{}", random.below(200)),
        "f" => random.of(&["a", "b", "temperature"]).into(),
        "c" => random.of(&["c1", "c2"]).into(),
        "e" => random.of(&["LEFT", "RIGHT"]).into(),
        "z" => random.of(&["z1", "z2", "z3"]).into(),
        "y" => random.of(&["y1", "y2"]).into(),
        "g" => random.of(&["g1", "g2"]).into(),
        "m" | "[m" | "(m" => {
            let (n, mark) = (random.below(400), &kind[..kind.len() - 1]);
            // Some members are so long that few of them fill a leaf.
            if n % 5 == 0 { format!("{mark}{}:{n}", "m".repeat(150)) } else { format!("{mark}member:{n}") }
        }
        "q" | "(q" => format!("{}{}", &kind[..kind.len() - 1], random.below(60) as f64 / 2.0),
        "-n" => format!("-{}", 1 + random.below(7)),
        "o" | "a" => format!("{}", random.below(4000) as f64 / 1000.0),
        literal => literal.into(),
    }
}

struct Words(Random);

impl Template for Words {
    fn random(&mut self) -> &mut Random {
        &mut self.0
    }

    fn word(&mut self, kind: &str, words: &mut Vec<Vec<u8>>) {
        words.push(word(kind, &mut self.0).into_bytes());
    }
}

/// Runs random commands in both stores. Returns the names of the commands that waited for flash.
fn compare(templates: &[&str], commands: u64) -> BTreeSet<String> {
    let seed = seeds::seed(20_261_121);
    let mut from = Words(Random::new(seed));
    let (mut whole, mut parts) = (Harness::new(), Harness::in_parts(seed));
    for harness in [&mut whole, &mut parts] {
        harness.settings.list_limit = Limit::of(4);
        harness.settings.stream_node_max_entries = 3;
    }
    for step in 0..number("FLINTKV_COMMANDS", commands) {
        let template = from.0.of(templates);
        let words = fill(&mut from, template);
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let (expected, given) = (whole.words(&words), parts.words(&words));
        let line = words.join(&b' ').escape_ascii().to_string();
        assert_eq!(given, expected, "seed {seed}, command {step}: {line}");
        for harness in [&mut whole, &mut parts] {
            harness.now_ms += 1;
        }
        if step % 3 == 0 {
            parts.squeeze();
        }
    }
    let reads = parts.store.stats()[Counter::FlashPartReads];
    assert!(reads > commands / 20, "{reads} parts were read");
    parts.colds.into_keys().collect()
}

#[test]
fn lists_in_parts_answer_as_those_in_ram() {
    let waited = compare(LISTS, 10_000);
    assert!(waited.len() >= 18, "{waited:?}");
}

#[test]
fn sorted_sets_in_parts_answer_as_those_in_ram() {
    let waited = compare(SORTED_SETS, 10_000);
    assert!(waited.len() >= 30, "{waited:?}");
}

#[test]
fn streams_in_parts_answer_as_those_in_ram() {
    let waited = compare(STREAMS, 10_000);
    assert!(waited.len() >= 10, "{waited:?}");
    for needs_none in ["xlen", "xack", "xpending", "xgroup|setid", "xinfo|groups", "type", "rename"] {
        assert!(!waited.contains(needs_none), "{needs_none} has read a part");
    }
}

/// How many parts a command reads of a value whose parts are all on flash.
fn reads(here: &mut Harness, line: &str) -> u64 {
    (0..5).for_each(|_| here.squeeze());
    let before = here.store.stats()[Counter::FlashPartReads];
    here.run(line);
    here.store.stats()[Counter::FlashPartReads] - before
}

#[test]
fn a_long_list_is_read_by_its_chunks() {
    let mut here = Harness::in_parts(1);
    for n in 0..2000 {
        here.run(&format!("RPUSH l {n:0100}"));
    }
    for (line, at_most) in [
        ("LLEN l", 0),
        ("TYPE l", 0),
        ("RENAME l m", 0),
        ("RENAME m l", 0),
        ("LINDEX l 1000", 1),
        ("LRANGE l -10 -1", 1),
        ("LSET l 500 x", 1),
        ("RPUSH l x", 1),
        ("LPOP l", 1),
        ("LMOVE l l LEFT RIGHT", 2),
        ("LTRIM l 300 1500", 2),
        ("LPOS l x", 10),
        ("DEL l", 0),
    ] {
        let read = reads(&mut here, line);
        assert!(read <= at_most && (read > 0) == (at_most > 0), "{line} has read {read} parts");
    }
}

#[test]
fn a_large_sorted_set_is_read_by_its_parts() {
    let mut here = Harness::in_parts(1);
    for n in 0..5000 {
        // Many members have the same score.
        here.run(&format!("ZADD z {} member:{n:05}", n % 10));
        here.run(&format!("GEOADD g {} {} place:{n:05}", (n % 71) as f64 / 10.0, (n / 71) as f64 / 10.0));
    }
    for (line, at_most) in [
        ("ZCARD z", 0),
        ("TYPE z", 0),
        ("RENAME z y", 0),
        ("RENAME y z", 0),
        ("ZSCORE z member:00077", 2),
        ("ZMSCORE z member:00077 member:00088", 4),
        ("ZSCORE z nosuch", 1),
        ("ZRANK z member:00077", 2),
        ("ZREVRANK z member:00077", 2),
        ("ZADD z 3 member:00077", 3),
        ("ZADD z NX 3 member:00077", 2),
        ("ZINCRBY z 1.5 member:00078", 3),
        ("ZREM z member:00079", 2),
        ("ZCOUNT z 2 3", 2),
        ("ZLEXCOUNT z - +", 2),
        ("ZRANGE z 2500 2510", 2),
        ("ZRANGE z 3 +inf BYSCORE LIMIT 10 10", 4),
        ("ZRANGE z +inf 3 BYSCORE REV LIMIT 0 10", 4),
        ("ZPOPMIN z", 70),
        ("ZMPOP 1 z MAX", 70),
        ("BZPOPMAX z 0", 70),
        ("ZREMRANGEBYRANK z 100 102", 140),
        ("ZRANDMEMBER z", 1),
        ("ZRANDMEMBER z 5", 5),
        ("ZRANDMEMBER z -5", 5),
        ("ZSCAN z 0 COUNT 5", 130),
        ("GEOPOS g place:00001", 2),
        ("GEODIST g place:00001 place:00002", 4),
        ("GEOSEARCH g FROMMEMBER place:00100 BYRADIUS 1 km", 12),
        ("GEORADIUS_RO g 1 1 1 km", 10),
        ("DEL z g", 0),
    ] {
        let read = reads(&mut here, line);
        assert!(read <= at_most && (read > 0) == (at_most > 0), "{line} has read {read} parts");
    }
}

#[test]
fn a_long_stream_is_read_by_its_chunks() {
    let mut here = Harness::in_parts(1);
    for n in 1..=2000 {
        here.run(&format!("XADD s {n}-1 field {n}"));
    }
    here.run("XGROUP CREATE s g 1000-1");
    for (line, at_most) in [
        ("XLEN s", 0),
        ("RENAME s t", 0),
        ("RENAME t s", 0),
        ("XRANGE s 555 + COUNT 10", 2),
        ("XREVRANGE s + - COUNT 10", 1),
        ("XREAD COUNT 10 STREAMS s 1234", 1),
        ("XREADGROUP GROUP g c COUNT 10 STREAMS s >", 1),
        ("XPENDING s g", 0),
        ("XACK s g 1001-1", 0),
        ("XREADGROUP GROUP g c STREAMS s 0", 1),
        ("XAUTOCLAIM s g d 0 -", 1),
        ("XADD s * field x", 0),
        ("XADD s * field y", 1),
        ("XINFO STREAM s", 2),
        ("XDEL s 77-1", 1),
        ("XTRIM s MAXLEN ~ 1500", 0),
        ("XTRIM s MAXLEN 1350", 1),
        ("XINFO GROUPS s", 0),
        ("DEL s", 0),
    ] {
        let read = reads(&mut here, line);
        assert!(read <= at_most && (read > 0) == (at_most > 0), "{line} has read {read} parts");
    }
}
