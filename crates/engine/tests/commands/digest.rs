//! DEBUG DIGEST and DEBUG FLINT-DIGEST: a dataset has the same digest wherever its values are, and computing it moves
//! nothing. `FLINTKV_SEED` replays a run.

use crate::harness::Harness;
use flintkv_tests::Random;
use flintkv_tests::Redis;
use std::collections::BTreeSet;
use store::counters::Counter;
use store::{Resume, Store, StoreConfig, StoreStats};

/// Milliseconds since 1970, in the next century.
const LATER_MS: u64 = 4_000_000_000_000;

/// Commands that Redis knows, on small and large keys of every type in three logical databases.
fn dataset(seed: u64) -> Vec<String> {
    let mut random = Random::new(seed);
    let mut lines = Vec::new();
    for db in [0, 3, 11] {
        lines.push(format!("SELECT {db}"));
        for n in 0..400 {
            let (key, word) = (random.below(40), random.below(1000));
            let value = format!("\"{}\"", "v".repeat(random.below(90)));
            lines.push(match random.below(9) {
                0 => format!("SET text:{key} {value}"),
                1 => format!("SET int:{key} {word}"),
                2 => format!("HSET hash:{key} f{word} {value} {word} -{word}"),
                3 => format!("RPUSH list:{key} {value} {word} -7"),
                4 => format!("SADD ints:{key} {word} -{word}"),
                5 => format!("SADD words:{key} m{word} {word} {value}"),
                // Scores that Redis 7.0 prints as 7.2 does.
                6 => format!("ZADD zset:{key} {word}.5 m{word} -{}.25 x 3 three", random.below(300)),
                7 => format!("XADD stream:{key} {}-1 f{} {value} same {word}", n + 1, random.below(3)),
                _ => format!("PEXPIREAT {}:{key} {}", ["text", "hash", "zset"][n % 3], LATER_MS + word as u64),
            });
        }
    }
    lines.push("SELECT 0".to_owned());
    for n in 0..1500 {
        lines.push(format!("HSET large:hash field:{n} {n:0>30}"));
        lines.push(format!("RPUSH large:list {n:0>30}"));
        lines.push(format!("SADD large:set {n:0>30}"));
        lines.push(format!("ZADD large:zset {} {n:0>30}", n * 7919 % 1500));
        lines.push(format!("XADD large:stream {}-0 f {n:0>30}", n + 1));
    }
    lines
}

/// More commands, which Redis 7.0 does not know.
fn beside() -> Vec<String> {
    let mut lines = vec![
        format!("HPEXPIREAT large:hash {LATER_MS} FIELDS 2 field:1 field:77"),
        "XGROUP CREATE large:stream group 0".to_owned(),
        "XREADGROUP GROUP group one COUNT 600 STREAMS large:stream >".to_owned(),
        "XREADGROUP GROUP group two COUNT 1 STREAMS large:stream >".to_owned(),
        "XGROUP CREATE large:stream other 5-0 ENTRIESREAD 5".to_owned(),
    ];
    lines.extend((0..40).map(|n| format!("XACK large:stream group {}-0", 3 * n + 1)));
    lines
}

fn fill(here: &mut Harness, lines: &[String]) {
    for line in lines {
        let reply = here.run(line);
        assert!(!reply.starts_with("(error)") || reply.starts_with("(error) WRONGTYPE"), "{line}: {reply}");
    }
}

/// A store with every value of database 0 on flash, large values as a whole.
fn frozen(seed: u64, lines: &[String]) -> Harness {
    let mut cold = Harness::with_flash(seed);
    cold.store.set_split_bytes(usize::MAX);
    fill(&mut cold, lines);
    cold.freeze();
    cold
}

fn redis_digest(here: &mut Harness) -> String {
    let digest = here.run("DEBUG DIGEST");
    assert_eq!(digest.len(), 40, "{digest}");
    digest
}

fn digest(here: &mut Harness) -> String {
    let digest = here.run("DEBUG FLINT-DIGEST");
    assert_eq!(digest.len(), 64, "{digest}");
    digest
}

#[test]
fn the_digest_is_redis_s_for_hot_and_cold_data_and_data_in_parts() {
    let lines = dataset(seeds::seed(7));
    let mut hot = Harness::new();
    assert_eq!(redis_digest(&mut hot), "0".repeat(40));
    fill(&mut hot, &lines);
    let digest = redis_digest(&mut hot);

    let mut cold = frozen(1, &lines);
    assert_eq!(redis_digest(&mut cold), digest, "cold");
    let mut parts = Harness::in_parts(2);
    fill(&mut parts, &lines);
    parts.squeeze();
    assert!(parts.store.has_parts());
    assert_eq!(redis_digest(&mut parts), digest, "in parts");

    if let Some((mut redis, _server)) = Redis::connected(&["--enable-debug-command", "yes"]) {
        let mut step = |line: &str| redis.run(line);
        assert_eq!(step("DEBUG DIGEST"), "0".repeat(40));
        for (at, line) in lines.iter().enumerate() {
            step(line);
            if at == lines.len() / 9 {
                let mut half = Harness::new();
                fill(&mut half, &lines[..=at]);
                assert_eq!(redis_digest(&mut half), step("DEBUG DIGEST"), "after {at} commands");
            }
        }
        assert_eq!(digest, step("DEBUG DIGEST"));
    }
}

#[test]
fn one_dataset_has_one_digest_whatever_the_order_encoding_place_and_secret() {
    let lines = [dataset(seeds::seed(7)), beside()].concat();
    let mut hot = Harness::new();
    fill(&mut hot, &lines);
    let (digest, stripes) = (digest(&mut hot), hot.run("DEBUG FLINT-DIGEST STRIPES"));
    assert!(stripes.contains(&digest), "{stripes}");

    let mut cold = frozen(3, &lines);
    assert_eq!(cold.run("DEBUG FLINT-DIGEST STRIPES"), stripes, "cold");
    let mut parts = Harness::in_parts(4);
    fill(&mut parts, &lines);
    parts.squeeze();
    assert_eq!(parts.run("DEBUG FLINT-DIGEST STRIPES"), stripes, "in parts");

    let mut other = Harness::new();
    other.store = Store::new(&StoreConfig { secret: [1, 2], ..StoreConfig::in_ram(1) });
    (other.settings.hash_max_listpack_entries, other.settings.set_max_intset_entries) = (0, 0);
    (other.settings.set_max_listpack_entries, other.settings.zset_max_listpack_entries) = (0, 0);
    (other.settings.stream_node_max_entries, other.settings.list_limit) = (3, value::list::Limit::of(1));
    // The keys come in another order. The commands of each key keep their order.
    let mut by_key = lines.clone();
    let db = |at: usize| lines[..=at].iter().rev().find(|line| line.starts_with("SELECT")).expect("first line").clone();
    by_key.clear();
    let key = |line: &str| line.split(' ').find(|word| word.contains(':')).unwrap_or_default().to_owned();
    let keys: BTreeSet<(String, String)> =
        lines.iter().enumerate().map(|(at, line)| (key(line), db(at))).filter(|(key, _)| !key.is_empty()).collect();
    for (name, select) in keys.iter().rev() {
        by_key.push(select.clone());
        let own = |(at, line): &(usize, &String)| key(line) == *name && db(*at) == *select;
        by_key.extend(lines.iter().enumerate().filter(own).map(|(_, line)| line.clone()));
    }
    fill(&mut other, &by_key);
    assert_eq!(other.run("DEBUG FLINT-DIGEST STRIPES"), stripes, "another order, other encodings, another secret");
}

#[test]
fn each_type_alone_has_redis_s_digest() {
    let Some((mut redis, _server)) = Redis::connected(&["--enable-debug-command", "yes"]) else { return };
    for line in [
        "SET a 1",
        "SET a 1 PXAT 4000000000000",
        "HSET h a 1 b 2 -3 4",
        "RPUSH l a -7 -7 x",
        "SADD ints 1 2 -3",
        "SADD words 1 a \"\"",
        // Redis 7.0 prints other scores in another way: see below.
        "ZADD z 3 a -inf b 1.5 c -0.0 d",
        "ZADD z 1e17 a -1.6069380442589903e60 b 123456789.5 c 0.125 d",
        "XADD x 1-1 a b 7 -8",
    ] {
        let mut here = Harness::new();
        redis.run("FLUSHALL");
        redis.run(line);
        here.run(line);
        assert_eq!(redis_digest(&mut here), redis.run("DEBUG DIGEST"), "{line}");
    }
    redis.run("FLUSHALL");
    let mut here = Harness::new();
    // Deleted entries, and a stream without entries.
    for line in ["XADD x 1-1 a b", "XADD x 2-1 c d", "XDEL x 1-1", "XADD y 1-1 a b", "XDEL y 1-1"] {
        assert_eq!(here.run(line), redis.run(line), "{line}");
    }
    assert_eq!(redis_digest(&mut here), redis.run("DEBUG DIGEST"));
}

/// What Redis 7.2 hashes of a score: the shortest text that reads back as the same number, also of an integer. The digest is that of
/// the texts 3.1, 1e+8, 1e-7 and -0.1, computed beside.
#[test]
fn a_score_enters_redis_s_digest_as_redis_7_2_prints_it() {
    let mut here = Harness::new();
    here.run("ZADD z 3.1 a 100000000 b 0.0000001 c -0.1 d");
    let digest = "1) ad2c2bee113a1211e4923a1236b14e9e4452b9b1";
    assert_eq!(here.run("DEBUG DIGEST-VALUE z"), digest);
    here.settings.zset_max_listpack_entries = 0;
    here.run("ZADD z 3 e");
    here.run("ZREM z e");
    assert_eq!(here.run("OBJECT ENCODING z"), "\"skiplist\"");
    assert_eq!(here.run("DEBUG DIGEST-VALUE z"), digest);
}

/// The figures of the store that computing a digest may not change. Reads from flash are left out.
fn figures(here: &Harness) -> String {
    let mut stats = StoreStats { flash_latency_nanos: [0; 4], ..here.store.stats() };
    for reads in [Counter::FlashReads, Counter::FlashReadBytes, Counter::MergedReads, Counter::ReadsUnderLock] {
        stats.counts[reads] = 0;
    }
    format!("{stats:#?}")
}

#[test]
fn looking_leaves_the_tiers_as_they_are() {
    let lines = [dataset(seeds::seed(7)), beside()].concat();
    let mut here = Harness::in_parts(5);
    fill(&mut here, &lines);
    (0..10).for_each(|_| here.squeeze());
    // Some values are in RAM, with different frequencies, and some are cold.
    here.run("SELECT 3");
    for n in 0..40 {
        (0..n % 4).for_each(|_| _ = here.run(&format!("GET int:{n}")));
    }
    let keys: Vec<Vec<u8>> = (0..40).map(|n| format!("int:{n}").into_bytes()).collect();
    let uses = |here: &Harness| {
        let of = |name: &Vec<u8>| {
            let key = here.store.hasher().key(name);
            let mut resume = Resume::default();
            let mut ks = here.store.lock(&[key], 3, here.now_ms + 5000, false, &mut resume);
            match ks.is_hot(&key) {
                Some(true) => format!("{:?}", ks.inspect(&key)),
                place => format!("{place:?}"),
            }
        };
        keys.iter().map(of).collect::<Vec<_>>()
    };
    let uses_before = uses(&here);
    let before = figures(&here);
    assert!(uses_before.iter().any(|shown| shown.contains("frequency: 2")), "{uses_before:#?}");
    let reads = |here: &Harness| here.store.stats()[Counter::FlashReads] + here.store.stats()[Counter::MergedReads];
    let reads_before = reads(&here);
    here.now_ms += 4000;
    digest(&mut here);
    redis_digest(&mut here);
    here.now_ms -= 4000;
    let reads = reads(&here) - reads_before;
    assert!(reads > 1000, "much of it is on flash: {reads} reads");
    assert_eq!(figures(&here), before);
    assert_eq!(uses(&here), uses_before);
}

#[test]
fn a_digest_comes_in_slices_and_asks_for_many_records_at_once() {
    let lines = [dataset(seeds::seed(7)), beside()].concat();
    let mut cold = frozen(6, &lines);
    let before = cold.store.stats();
    digest(&mut cold);
    let reads = cold.store.stats()[Counter::FlashReads] + cold.store.stats()[Counter::MergedReads]
        - before[Counter::FlashReads];
    let stops = cold.colds["debug"] as u64;
    assert!(cold.yields > 3, "{} slices", cold.yields);
    assert!(stops > 1, "{stops} stops for {reads} reads");
    assert!(stops * 50 < reads, "{stops} stops for {reads} reads");

    let mut parts = Harness::in_parts(7);
    fill(&mut parts, &lines);
    parts.squeeze();
    let before = parts.store.stats();
    digest(&mut parts);
    let reads = parts.store.stats()[Counter::FlashReads] + parts.store.stats()[Counter::MergedReads]
        - before[Counter::FlashReads];
    let stops = parts.colds["debug"] as u64;
    assert!(stops * 50 < reads, "{stops} stops for {reads} reads of parts");
}

/// Redis's digest ignores all of these.
const BESIDE: &[&str] = &[
    "PEXPIREAT s 4000000000001",
    "HPEXPIREAT h 4000000000001 FIELDS 1 a",
    "HPEXPIREAT h 4000000000000 FIELDS 1 b",
    "HPERSIST h FIELDS 1 a",
    "XACK x g 1-1",
    "XGROUP SETID x g 2-1",
    "XGROUP SETID x g 1-1 ENTRIESREAD 7",
    "XGROUP CREATE x more 0",
    "XGROUP DESTROY x g",
    "XGROUP CREATECONSUMER x g d",
    "XGROUP DELCONSUMER x g idle",
    "XCLAIM x g idle 0 1-1 TIME 1700000000000 RETRYCOUNT 1 JUSTID",
    "XCLAIM x g c 0 1-1 TIME 1700000000000 RETRYCOUNT 2 JUSTID",
    "XCLAIM x g c 0 1-1 TIME 1699999999999 RETRYCOUNT 1 JUSTID",
    "XSETID x 9-9",
    "XSETID x 2-1 ENTRIESADDED 9",
    "XSETID x 2-1 ENTRIESADDED 2 MAXDELETEDID 1-5",
];

const CONTENT: &[&str] = &[
    "PERSIST s",
    "SET s 2 KEEPTTL",
    "SET more 1",
    "MOVE s 1",
    "RENAME s t",
    "DEL m",
    "SWAPDB 0 2",
    "HSET h b 3",
    "HDEL h b",
    "LSET l 0 c",
    "LMOVE l l LEFT RIGHT",
    "RPUSH l a",
    "SADD m b",
    "ZADD z 1.5 a",
    "ZADD z 1 b",
    "XDEL x 2-1",
    "XADD x 3-1 f v",
    "XTRIM x MAXLEN 1",
];

fn base() -> Harness {
    let mut here = Harness::new();
    for line in [
        "SET s 1 PXAT 4000000000000",
        "HSET h a 1 b 2",
        "HPEXPIREAT h 4000000000000 FIELDS 1 a",
        "RPUSH l a b",
        "SADD m a",
        "ZADD z 1 a",
        "XADD x 1-1 f v",
        "XADD x 2-1 f v",
        "XGROUP CREATE x g 0",
        "XGROUP CREATECONSUMER x g idle",
        "XREADGROUP GROUP g c COUNT 1 STREAMS x >",
    ] {
        assert!(!here.run(line).starts_with("(error)"), "{line}");
    }
    here
}

#[test]
fn every_single_difference_is_seen() {
    let mut first = base();
    let redis = redis_digest(&mut first);
    let mut seen = BTreeSet::from([digest(&mut first)]);
    let mut total = 1;
    for (lines, is_content) in [(BESIDE, false), (CONTENT, true)] {
        for line in lines {
            let mut here = base();
            let reply = here.run(line);
            assert!(!reply.starts_with("(error)"), "{line}: {reply}");
            assert!(seen.insert(digest(&mut here)), "{line}");
            assert_eq!(redis_digest(&mut here) != redis, is_content, "{line}");
            total += 1;
        }
    }
    assert_eq!(seen.len(), total);
}

#[test]
fn what_replaying_does_not_reproduce_is_left_out() {
    let mut here = base();
    let expected = digest(&mut here);
    here.now_ms += 9000;
    for line in [
        // Updates when the consumer was seen.
        "XREADGROUP GROUP g c STREAMS x 1-1",
        "OBJECT FREQ s",
        "GET s",
        // The encoding changes.
        "APPEND s \"\"",
        "HSET h b 2",
    ] {
        here.run(line);
        assert_eq!(digest(&mut here), expected, "{line}");
    }
}

#[test]
fn what_has_expired_does_not_count_and_stays_where_it_is() {
    for cold in [false, true] {
        let mut here = Harness::with_flash(8);
        here.run("SET stays 1");
        here.run("HSET h stays 1");
        let (expected, redis) = (digest(&mut here), redis_digest(&mut here));
        here.run("SET goes 1 PX 1000");
        here.run("HSET h goes 1");
        here.run("HPEXPIRE h 1000 FIELDS 1 goes");
        here.run("HSET gone a 1 b 2");
        here.run("HPEXPIRE gone 1000 FIELDS 2 a b");
        here.run("SELECT 5");
        here.run("SET alone 1 PX 1000");
        here.run("SELECT 0");
        assert_ne!(digest(&mut here), expected);
        if cold {
            here.freeze();
        }
        here.now_ms += 1001;
        let before = figures(&here);
        assert_eq!(digest(&mut here), expected, "cold: {cold}");
        assert_eq!(redis_digest(&mut here), redis, "cold: {cold}");
        assert_eq!(figures(&here), before, "nothing is removed");
    }
}

#[test]
fn a_value_that_goes_or_changes_between_two_slices_counts_as_what_it_is_then() {
    let slices = |change: &str| {
        let mut here = Harness::new();
        (0..5000).for_each(|n| _ = here.run(&format!("RPUSH l {n}")));
        // Another large value. The walk visits it after the list.
        (0..200).for_each(|n| _ = here.run(&format!("SADD a {n} {}", "x".repeat(80))));
        let stripe = |name: &[u8]| here.store.hasher().key(name).hash.stripe();
        assert!(stripe(b"l") < stripe(b"a"));
        let (store, now_ms) = (here.store.clone(), here.now_ms);
        let mut resume = Resume::default();
        let mut slice = || store.lock(&[], 0, now_ms, false, &mut resume).digest().expect("all is in RAM");
        assert!(slice().is_none(), "5,000 elements are more than a slice");
        here.run(change);
        let total = std::iter::from_fn(|| Some(slice())).flatten().next().expect("it ends").total().to_string();
        (total, digest(&mut here))
    };
    for change in ["DEL l", "SET l text", "COPY a l REPLACE", "RPUSH l more"] {
        let (total, afterwards) = slices(change);
        assert_eq!(total, afterwards, "{change}");
    }
}

#[test]
fn an_unknown_word_is_no_digest() {
    let mut here = Harness::new();
    assert_eq!(here.run("DEBUG FLINT-DIGEST NOSUCH"), "(error) ERR syntax error");
    assert!(here.run("DEBUG DIGEST 1").starts_with("(error) ERR unknown subcommand or wrong number of arguments"));
}
