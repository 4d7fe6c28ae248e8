//! What does not fit into the rows' examples: large hashes, long walks, limits, and both protocols.

use crate::harness::Harness;
use resp::Proto;
use std::collections::{BTreeMap, BTreeSet};

/// The items of a printed array.
fn items(reply: &str) -> Vec<&str> {
    reply.lines().map(|line| line.trim_start().split_once(") ").map_or(line, |(_, item)| item)).collect()
}

fn hash_of(redis: &mut Harness, fields: usize) {
    for n in 0..fields {
        redis.run(&format!("HSET h field:{n} {n}"));
    }
}

#[test]
fn a_hash_becomes_a_table_by_the_settings() {
    let mut redis = Harness::new();
    hash_of(&mut redis, 128);
    assert_eq!(redis.run("OBJECT ENCODING h"), "\"listpack\"");
    assert_eq!(redis.run("HSET h field:0 again"), "(integer) 0");
    assert_eq!(redis.run("OBJECT ENCODING h"), "\"listpack\"");
    assert_eq!(redis.run("HSET h one more"), "(integer) 1");
    assert_eq!(redis.run("OBJECT ENCODING h"), "\"hashtable\"");
    assert_eq!(redis.run("HLEN h"), "(integer) 129");
    // The hash stays a table, as in Redis.
    assert_eq!(redis.run("HDEL h one"), "(integer) 1");
    assert_eq!(redis.run("OBJECT ENCODING h"), "\"hashtable\"");
    assert_eq!(redis.run("HGET h field:77"), "\"77\"");

    let long = "x".repeat(65);
    assert_eq!(redis.run(&format!("HSET value f {long}")), "(integer) 1");
    assert_eq!(redis.run("OBJECT ENCODING value"), "\"hashtable\"");
    assert_eq!(redis.run(&format!("HSET field {long} v a b")), "(integer) 2");
    assert_eq!(redis.run("OBJECT ENCODING field"), "\"hashtable\"");
    redis.settings.hash_max_listpack_entries = 2;
    assert_eq!(redis.run("HSET many a 1 b 2 c 3 d 4 a 5"), "(integer) 4");
    assert_eq!(redis.run("OBJECT ENCODING many"), "\"hashtable\"");
    assert_eq!(redis.run("HGET many a"), "\"5\"");
}

#[test]
fn the_last_field_takes_the_key_with_it_in_either_form() {
    let mut redis = Harness::new();
    hash_of(&mut redis, 200);
    for n in 0..200 {
        assert_eq!(redis.run(&format!("HDEL h field:{n} nosuch")), "(integer) 1");
    }
    assert_eq!(redis.run("EXISTS h"), "(integer) 0");
    redis.run("HSET h a 1 b 2");
    assert_eq!(redis.run("HDEL h a b a"), "(integer) 2");
    assert_eq!(redis.run("TYPE h"), "none");
}

#[test]
fn counting_and_setting_fields_keep_the_expiry() {
    let mut redis = Harness::new();
    redis.run("HSET h n 1");
    redis.run("EXPIRE h 100");
    redis.run("HINCRBY h n 1");
    redis.run("HSETNX h m 1");
    hash_of(&mut redis, 200);
    redis.run("HDEL h n");
    assert_eq!(redis.run("TTL h"), "(integer) 100");
    redis.run("SET s 1 EX 100");
    redis.run("INCR s");
    redis.run("INCRBYFLOAT s 0.5");
    redis.run("APPEND s 0");
    redis.run("SETRANGE s 1 x");
    assert_eq!(redis.run("TTL s"), "(integer) 100");
    redis.run("GETSET s 1");
    assert_eq!(redis.run("TTL s"), "(integer) -1");
}

#[test]
fn hscan_visits_each_field_of_a_table_once() {
    let mut redis = Harness::new();
    hash_of(&mut redis, 1000);
    let (mut cursor, mut seen, mut calls) = (String::from("0"), BTreeMap::<String, usize>::new(), 0);
    loop {
        let reply = redis.run(&format!("HSCAN h {cursor} COUNT 50 MATCH field:*"));
        let items = items(&reply);
        cursor = items[0].trim_matches('"').to_owned();
        calls += 1;
        for pair in items[1..].chunks(2) {
            // The first item follows the number of its array.
            let field = pair[0].rsplit(") ").next().expect("a part");
            *seen.entry(field.to_owned()).or_default() += 1;
        }
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(seen.len(), 1000);
    assert!(seen.values().all(|&count| count == 1));
    assert!((15..=21).contains(&calls), "{calls} calls of 50");
    assert_eq!(items(&redis.run("HSCAN h 0 COUNT 1 NOVALUES")).len(), 2);
    // A packed hash is returned whole.
    redis.run("HSET p a 1 b 2 c 3");
    assert_eq!(items(&redis.run("HSCAN p 0 COUNT 1")).len(), 7);
    assert_eq!(items(&redis.run("HSCAN p 99 COUNT 1")).len(), 7);
}

#[test]
fn hrandfield_gives_distinct_fields_for_a_positive_count() {
    let mut redis = Harness::new();
    for (key, fields) in [("small", 20), ("large", 1000)] {
        for n in 0..fields {
            redis.run(&format!("HSET {key} field:{n} {n}"));
        }
        for count in [1, 5, fields / 2, fields - 1, fields, fields + 7] {
            let reply = redis.run(&format!("HRANDFIELD {key} {count}"));
            let distinct: BTreeSet<&str> = items(&reply).into_iter().collect();
            assert_eq!(distinct.len(), count.min(fields), "{key} {count}");
            let reply = redis.run(&format!("HRANDFIELD {key} {count} WITHVALUES"));
            for pair in items(&reply).chunks(2) {
                assert_eq!(pair[0].strip_prefix("\"field:"), pair[1].strip_prefix('"'), "a field with its own value");
            }
        }
        assert_eq!(items(&redis.run(&format!("HRANDFIELD {key} -3000"))).len(), 3000);
        assert_eq!(redis.run(&format!("HRANDFIELD {key} 0")), "(empty array)");
    }
}

#[test]
fn every_field_is_drawn_about_as_often() {
    let mut redis = Harness::new();
    for (key, fields) in [("small", 10), ("large", 150)] {
        for n in 0..fields {
            redis.run(&format!("HSET {key} {n} v"));
        }
        // One at a time, with repetition, and distinct: 400 draws a field, with a standard deviation of 20.
        let single = (0..400 * fields).map(|_| redis.run(&format!("HRANDFIELD {key}"))).collect::<Vec<_>>();
        let repeated = redis.run(&format!("HRANDFIELD {key} -{}", 400 * fields));
        let repeated = items(&repeated).into_iter().map(str::to_owned).collect::<Vec<_>>();
        let few: Vec<String> = (0..200 * fields)
            .flat_map(|_| {
                let reply = redis.run(&format!("HRANDFIELD {key} 2"));
                items(&reply).into_iter().map(str::to_owned).collect::<Vec<_>>()
            })
            .collect();
        for drawn in [single, repeated, few] {
            let mut counts = BTreeMap::<&str, usize>::new();
            drawn.iter().for_each(|field| *counts.entry(field).or_default() += 1);
            assert_eq!(counts.len(), fields, "{key}");
            assert!(counts.values().all(|&count| (280..520).contains(&count)), "{key}: {counts:?}");
        }
    }
}

#[test]
fn hostile_counts_of_hrandfield_are_refused_before_they_take_memory() {
    let mut redis = Harness::new();
    redis.run("HSET h f v");
    for count in ["-9223372036854775807", "-4611686018427387904", "-500000000"] {
        assert_eq!(redis.run(&format!("HRANDFIELD h {count}")), "(error) ERR value is out of range");
    }
    redis.words(&[b"HSET", b"h", b"f", &vec![b'x'; 1 << 20]]);
    assert_eq!(redis.run("HRANDFIELD h -1000000 WITHVALUES"), "(error) ERR value is out of range");
}

#[test]
fn resp3_has_maps_nulls_and_nested_pairs() {
    let mut redis = Harness::new();
    redis.session.proto = Proto::Resp3;
    redis.run("HSET h a 1");
    let text = |reply: Vec<u8>| String::from_utf8(reply).expect("ASCII");
    assert_eq!(text(redis.reply(&[b"HGETALL", b"h"])), "%1\r\n$1\r\na\r\n$1\r\n1\r\n");
    assert_eq!(text(redis.reply(&[b"HGETALL", b"nosuch"])), "%0\r\n");
    assert_eq!(text(redis.reply(&[b"GET", b"nosuch"])), "_\r\n");
    assert_eq!(text(redis.reply(&[b"HRANDFIELD", b"h", b"1", b"WITHVALUES"])), "*1\r\n*2\r\n$1\r\na\r\n$1\r\n1\r\n");
    assert_eq!(text(redis.reply(&[b"HRANDFIELD", b"h", b"-1"])), "*1\r\n$1\r\na\r\n");
    assert_eq!(
        text(redis.reply(&[b"HINCRBYFLOAT", b"h", b"a", b"0.5"])),
        "$3\r\n1.5\r\n",
        "a bulk string, not a double"
    );
    redis.run("MSET x ab y ab");
    assert_eq!(
        text(redis.reply(&[b"LCS", b"x", b"y", b"IDX"])),
        "%2\r\n$7\r\nmatches\r\n*1\r\n*2\r\n*2\r\n:0\r\n:1\r\n*2\r\n:0\r\n:1\r\n$3\r\nlen\r\n:2\r\n"
    );
}

#[test]
fn keys_yields_to_others_and_scan_misses_nothing() {
    let mut redis = Harness::new();
    for n in 0..5000 {
        redis.run(&format!("SET key:{n} v"));
    }
    redis.run("HSET hash f v");
    let reply = redis.run("KEYS key:*");
    assert_eq!(items(&reply).into_iter().collect::<BTreeSet<_>>().len(), 5000);
    assert!((18..=21).contains(&redis.yields), "{} times", redis.yields);
    let (mut cursor, mut seen) = (String::from("0"), BTreeSet::new());
    loop {
        let reply = redis.run(&format!("SCAN {cursor} COUNT 100"));
        let items = items(&reply);
        cursor = items[0].trim_matches('"').to_owned();
        seen.extend(items[1..].iter().map(|item| item.rsplit(") ").next().expect("a part").to_owned()));
        if cursor == "0" {
            break;
        }
    }
    seen.remove("(empty array)");
    assert_eq!(seen.len(), 5001);
    assert_eq!(redis.run("SCAN 0 COUNT 10000 TYPE HASH"), "1) \"0\"\n2) 1) \"hash\"");
    assert_eq!(redis.run("SCAN 0 COUNT 10000 TYPE zset"), "1) \"0\"\n2) (empty array)");
}

#[test]
fn hostile_cursors_end_the_walk_or_are_refused() {
    let mut redis = Harness::new();
    redis.run("SET k v");
    for cursor in ["18446744073709551615", "-1", "9223372036854775808", "1"] {
        assert!(redis.run(&format!("SCAN {cursor}")).starts_with("1) \"0\""), "{cursor}");
    }
    for cursor in ["18446744073709551616", "0x", "1.0", "''x"] {
        assert!(redis.words(&[b"SCAN", cursor.as_bytes()]).starts_with("(error) ERR invalid cursor"), "{cursor}");
    }
}

#[test]
fn keys_expire_to_the_millisecond() {
    let mut redis = Harness::new();
    redis.run("SET k v PX 1000");
    redis.now_ms += 999;
    assert_eq!(redis.run("PTTL k"), "(integer) 1");
    assert_eq!(redis.run("GET k"), "\"v\"");
    redis.now_ms += 1;
    assert_eq!(redis.run("GET k"), "(nil)");
    for reader in ["TTL k", "EXPIRETIME k"] {
        assert_eq!(redis.run(reader), "(integer) -2");
    }
    // Writers also see an expired key as absent.
    redis.run("SET k v PX 1000");
    redis.now_ms += 1000;
    assert_eq!(redis.run("SETNX k w"), "(integer) 1");
    redis.run("SET k 41 PX 1000");
    redis.now_ms += 1000;
    assert_eq!(redis.run("INCR k"), "(integer) 1");
    assert_eq!(redis.run("TTL k"), "(integer) -1");
    // Seconds are rounded to nearest.
    redis.run("PEXPIRE k 1499");
    assert_eq!(redis.run("TTL k"), "(integer) 1");
    redis.run("PEXPIRE k 1500");
    assert_eq!(redis.run("TTL k"), "(integer) 2");
}

#[test]
fn copies_and_renames_keep_form_and_expiry() {
    let mut redis = Harness::new();
    hash_of(&mut redis, 300);
    redis.run("EXPIRE h 100");
    assert_eq!(redis.run("RENAME h g"), "OK");
    assert_eq!(redis.run("COPY g c"), "(integer) 1");
    assert_eq!(redis.run("COPY g c DB 3"), "(integer) 1");
    assert_eq!(redis.run("MOVE g 2"), "(integer) 1");
    assert_eq!(redis.run("EXISTS h g"), "(integer) 0");
    for (db, key) in [(0, "c"), (3, "c"), (2, "g")] {
        redis.run(&format!("SELECT {db}"));
        assert_eq!(redis.run(&format!("HLEN {key}")), "(integer) 300");
        assert_eq!(redis.run(&format!("HGET {key} field:299")), "\"299\"");
        assert_eq!(redis.run(&format!("TTL {key}")), "(integer) 100");
        assert_eq!(redis.run(&format!("OBJECT ENCODING {key}")), "\"hashtable\"");
    }
    // Changing the copy does not change the original.
    redis.run("SELECT 0");
    redis.run("HDEL c field:1");
    redis.run("SELECT 3");
    assert_eq!(redis.run("HLEN c"), "(integer) 300");
    redis.run("APPEND s a");
    redis.run("APPEND s b");
    redis.run("RENAME s t");
    assert_eq!(redis.run("OBJECT ENCODING t"), "\"raw\"");
}

#[test]
fn strings_stop_at_the_limit() {
    let mut redis = Harness::new();
    redis.settings.proto_max_bulk_len = 1 << 20;
    let too_long = "(error) ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    assert_eq!(redis.run("SETRANGE k 1048575 x"), "(integer) 1048576");
    assert_eq!(redis.run("SETRANGE k 1048575 xx"), too_long);
    assert_eq!(redis.run("APPEND k x"), too_long);
    assert_eq!(redis.run("APPEND k ''"), "(integer) 1048576");
    assert_eq!(redis.run("SETRANGE k 1048576 x"), too_long);
    assert_eq!(redis.run("SETRANGE other 1048576 x"), too_long);
    assert_eq!(redis.run("EXISTS other"), "(integer) 0");
    // 512 MB is the limit, whatever the setting.
    redis.settings.proto_max_bulk_len = usize::MAX;
    assert_eq!(redis.run("SETRANGE k 536870912 x"), too_long);
    assert_eq!(redis.run("SETRANGE k 9223372036854775807 x"), too_long);
}

#[test]
fn lcs_of_long_strings_is_bounded() {
    let mut redis = Harness::new();
    redis.words(&[b"SET", b"a", &vec![b'a'; 200_000]]);
    redis.words(&[b"SET", b"b", &vec![b'b'; 200_000]]);
    assert_eq!(redis.run("LCS a b LEN"), "(error) ERR String too long for LCS");
    redis.words(&[b"SET", b"b", &vec![b'a'; 20_000]]);
    assert_eq!(redis.run("LCS a b LEN"), "(integer) 20000");
    assert_eq!(redis.run("LCS a b"), "(error) ERR Insufficient memory, failed allocating transient memory for LCS");
}

#[test]
fn a_set_goes_from_integers_to_a_list_to_a_table_by_the_settings() {
    let mut redis = Harness::new();
    let encoding = |redis: &mut Harness, key: &str| redis.run(&format!("OBJECT ENCODING {key}"));
    for n in 0..512 {
        redis.run(&format!("SADD s {n}"));
    }
    assert_eq!(encoding(&mut redis, "s"), "\"intset\"");
    assert_eq!(redis.run("SADD s 512 512 512"), "(integer) 1");
    assert_eq!(encoding(&mut redis, "s"), "\"hashtable\"");
    assert_eq!(redis.run("SCARD s"), "(integer) 513");
    assert_eq!(redis.run("SISMEMBER s 512"), "(integer) 1");

    assert_eq!(redis.run("SADD few 3 1 2"), "(integer) 3");
    assert_eq!(redis.run("SADD few x 2"), "(integer) 1");
    assert_eq!(encoding(&mut redis, "few"), "\"listpack\"");
    assert_eq!(redis.run("SMEMBERS few"), "1) \"1\"\n2) \"2\"\n3) \"3\"\n4) \"x\"");
    assert_eq!(redis.run(&format!("SADD few {}", "y".repeat(65))), "(integer) 1");
    assert_eq!(encoding(&mut redis, "few"), "\"hashtable\"");

    for n in 0..200 {
        redis.run(&format!("SADD many {n}"));
    }
    redis.run("SADD many x");
    assert_eq!(encoding(&mut redis, "many"), "\"hashtable\"", "too many integers for a list");
    // This many arguments make a table at once, even if all are the same.
    redis.settings.set_max_listpack_entries = 2;
    redis.run("SADD few2 a a a");
    assert_eq!(encoding(&mut redis, "few2"), "\"hashtable\"");
    redis.run("SADD few3 a");
    redis.run("SADD few3 a a a");
    assert_eq!(encoding(&mut redis, "few3"), "\"hashtable\"");
    // A packed list whose members are all integers is stored as a set of integers.
    redis.settings.set_max_listpack_entries = 128;
    redis.run("SADD a 1 2 x");
    redis.run("SADD b 1 2 y z");
    redis.run("SINTERSTORE c a b");
    assert_eq!(encoding(&mut redis, "c"), "\"intset\"");
}

/// A set of `len` members under each encoding, with its members.
fn sets_of(redis: &mut Harness, len: usize) -> Vec<(&'static str, BTreeSet<String>)> {
    let long = "x".repeat(70);
    let forms = [("intset", ""), ("listpack", "m"), ("hashtable", long.as_str())];
    let mut sets = Vec::new();
    for (key, prefix) in forms {
        let members: BTreeSet<String> = (0..len).map(|n| format!("{prefix}{n}")).collect();
        redis.run(&format!("DEL {key}"));
        members.iter().for_each(|member| _ = redis.run(&format!("SADD {key} {member}")));
        assert_eq!(redis.run(&format!("OBJECT ENCODING {key}")), format!("\"{key}\""));
        sets.push((key, members.iter().map(|member| format!("\"{member}\"")).collect()));
    }
    sets
}

#[test]
fn random_members_are_distinct_members_for_a_positive_count() {
    let mut redis = Harness::new();
    for (key, members) in sets_of(&mut redis, 100) {
        for count in [1, 7, 50, 99, 100, 107] {
            let reply = redis.run(&format!("SRANDMEMBER {key} {count}"));
            let drawn: BTreeSet<String> = items(&reply).into_iter().map(str::to_owned).collect();
            assert_eq!(drawn.len(), count.min(100), "{key} {count}");
            assert!(drawn.is_subset(&members));
        }
        assert_eq!(items(&redis.run(&format!("SRANDMEMBER {key} -3000"))).len(), 3000);
        assert_eq!(redis.run(&format!("SRANDMEMBER {key} 0")), "(empty array)");
        let huge = redis.run(&format!("SRANDMEMBER {key} -1000000000"));
        assert_eq!(huge, "(error) ERR value is out of range");
        let least = redis.run(&format!("SRANDMEMBER {key} -9223372036854775808"));
        assert!(least.starts_with("(error) ERR value is out of range, value must between"));
    }
}

#[test]
fn every_member_is_drawn_and_popped_about_as_often() {
    let mut redis = Harness::new();
    for (key, members) in sets_of(&mut redis, 100) {
        let (mut drawn, mut popped) = (BTreeMap::<String, usize>::new(), BTreeMap::<String, usize>::new());
        for _ in 0..1200 {
            let reply = redis.run(&format!("SRANDMEMBER {key} 5"));
            items(&reply).into_iter().for_each(|item| *drawn.entry(item.to_owned()).or_default() += 1);
        }
        for _ in 0..60 {
            redis.run("DEL popped");
            redis.run(&format!("COPY {key} popped"));
            let reply = redis.run("SPOP popped 50");
            items(&reply).into_iter().for_each(|item| *popped.entry(item.to_owned()).or_default() += 1);
        }
        // 60 times each with a standard deviation of 8, and 30 times with one of 4.
        assert_eq!((drawn.len(), popped.len()), (members.len(), members.len()));
        assert!(drawn.values().all(|&times| (25..=100).contains(&times)), "{key}: {drawn:?}");
        assert!(popped.values().all(|&times| (12..=50).contains(&times)), "{key}: {popped:?}");
    }
}

#[test]
fn popped_members_are_gone_and_the_others_stay() {
    let mut redis = Harness::new();
    for count in [0, 1, 40, 79, 81, 99, 100, 1000] {
        for (key, members) in sets_of(&mut redis, 100) {
            redis.run(&format!("EXPIRE {key} 100"));
            let reply = redis.run(&format!("SPOP {key} {count}"));
            let popped: BTreeSet<String> =
                items(&reply).into_iter().filter(|item| item.starts_with('"')).map(str::to_owned).collect();
            assert_eq!(popped.len(), count.min(100));
            if count >= 100 {
                assert_eq!(redis.run(&format!("EXISTS {key}")), "(integer) 0");
                continue;
            }
            let reply = redis.run(&format!("SMEMBERS {key}"));
            let left: BTreeSet<String> = items(&reply).into_iter().map(str::to_owned).collect();
            assert_eq!(&left | &popped, members);
            assert_eq!(left.len() + popped.len(), 100);
            assert_eq!(redis.run(&format!("TTL {key}")), "(integer) 100");
        }
    }
}

#[test]
fn sscan_visits_each_member_of_a_table_once() {
    let mut redis = Harness::new();
    for n in 0..1000 {
        redis.run(&format!("SADD s member:{n}"));
    }
    let (mut cursor, mut seen) = (String::from("0"), BTreeMap::<String, usize>::new());
    loop {
        let reply = redis.run(&format!("SSCAN s {cursor} COUNT 50 MATCH member:*"));
        let items = items(&reply);
        cursor = items[0].trim_matches('"').to_owned();
        for member in &items[1..] {
            *seen.entry(member.rsplit(") ").next().expect("a part").to_owned()).or_default() += 1;
        }
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(seen.len(), 1000);
    assert!(seen.values().all(|&count| count == 1));
}

#[test]
fn sets_reply_as_sets_in_resp3() {
    let mut redis = Harness::new();
    redis.session.proto = Proto::Resp3;
    redis.run("SADD s 1");
    for command in ["SMEMBERS s", "SUNION s", "SINTER s s", "SDIFF s nosuch", "SPOP s 1"] {
        assert_eq!(redis.reply(&words(command)), b"~1\r\n$1\r\n1\r\n", "{command}");
    }
    for command in ["SMEMBERS s", "SINTER s", "SPOP s 1"] {
        assert_eq!(redis.reply(&words(command)), b"~0\r\n", "{command}");
    }
    assert_eq!(redis.reply(&words("SRANDMEMBER s 1")), b"*0\r\n");
    assert_eq!(redis.reply(&words("SPOP s")), b"_\r\n");
}

fn words(line: &str) -> Vec<&[u8]> {
    line.split(' ').map(str::as_bytes).collect()
}

#[test]
fn bits_that_change_nothing_leave_the_value_as_it_was() {
    let mut redis = Harness::with_flash(3);
    redis.run("SETBIT b 100 1");
    redis.run("PFADD p a b c");
    redis.run("PFCOUNT p");
    redis.freeze();
    assert_eq!(redis.run("SETBIT b 100 1"), "(integer) 1");
    assert_eq!(redis.run("PFADD p a b"), "(integer) 0");
    assert_eq!(redis.run("PFCOUNT p"), "(integer) 3");
    for key in [b"b", b"p"] {
        let key = redis.store.hasher().key(key);
        let mut resume = store::Resume::default();
        let mut ks = redis.store.lock(&[key], 0, redis.now_ms, true, &mut resume);
        assert!(!ks.inspect(&key).expect("hot").expect("there").dirty, "its copy on flash is still good");
    }
}

#[test]
fn a_hyperloglog_becomes_dense_when_its_runs_take_more_than_the_setting() {
    let mut redis = Harness::new();
    redis.settings.hll_sparse_max_bytes = 30;
    for n in 0..4 {
        redis.run(&format!("PFADD p {n}"));
    }
    assert_eq!(redis.run("PFDEBUG ENCODING p"), "sparse");
    assert_eq!(redis.run("PFADD p 4 5 6 7"), "(integer) 1");
    assert_eq!(redis.run("PFDEBUG ENCODING p"), "dense");
    assert_eq!(redis.run("STRLEN p"), "(integer) 12304");
    assert_eq!(redis.run("PFCOUNT p"), "(integer) 8");
    assert_eq!(redis.run("PFMERGE q p"), "OK");
    assert_eq!(redis.run("PFDEBUG ENCODING q"), "dense");
}

#[test]
fn hostile_hyperloglogs_give_errors() {
    let mut redis = Harness::new();
    const CORRUPT: &str = "(error) INVALIDOBJ Corrupted HLL object detected";
    // One run too many, one too few, one cut in the middle.
    for runs in [&b"\x7f\xff\x00"[..], b"\x7f\xfe", b"\x7f", b""] {
        let bytes = [&b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80"[..], runs].concat();
        redis.words(&[b"SET", b"p", &bytes]);
        assert_eq!(redis.run("PFCOUNT p"), CORRUPT);
        assert_eq!(redis.run("PFCOUNT p p"), CORRUPT);
        assert_eq!(redis.run("PFMERGE q p"), CORRUPT);
        assert_eq!(redis.run("PFDEBUG TODENSE p"), CORRUPT);
    }
    for bytes in [&b"HYLL\0\0\0\0\0\0\0\0\0\0\0\0short"[..], b"HYLL\x07\0\0\0\0\0\0\0\0\0\0\0", b"HYLL\x01"] {
        redis.words(&[b"SET", b"p", bytes]);
        assert_eq!(redis.run("PFADD p x"), "(error) WRONGTYPE Key is not a valid HyperLogLog string value.");
    }
}

#[test]
fn bits_far_out_are_refused_and_long_strings_are_not() {
    let mut redis = Harness::new();
    redis.settings.proto_max_bulk_len = 1 << 20;
    assert_eq!(redis.run("SETBIT b 8388607 1"), "(integer) 0");
    assert_eq!(redis.run("SETBIT b 8388608 1"), "(error) ERR bit offset is not an integer or out of range");
    assert_eq!(redis.run("STRLEN b"), "(integer) 1048576");
    assert_eq!(redis.run("BITPOS b 1"), "(integer) 8388607");
    assert_eq!(redis.run("BITCOUNT b"), "(integer) 1");
    assert_eq!(
        redis.run("BITFIELD b SET i64 #9223372036854775807 1"),
        "(error) ERR bit offset is not an integer or out of range"
    );
    assert_eq!(redis.run("OBJECT ENCODING b"), "\"raw\"");
}

#[test]
fn fields_expire_at_their_time_hot_or_cold() {
    let mut here = Harness::with_flash(3);
    // To send values to flash takes some milliseconds.
    let begun_ms = here.now_ms;
    here.run("HSET h a 1 b 2 c 3");
    assert_eq!(here.run("HPEXPIRE h 1000 FIELDS 1 a"), "1) (integer) 1");
    assert_eq!(here.run("HPEXPIRE h 2000 FIELDS 2 b c"), "1) (integer) 1\n2) (integer) 1");
    assert_eq!(here.run("HPEXPIRE h 3000 NX FIELDS 2 b b"), "1) (integer) 0\n2) (integer) 0");
    // Setting a value removes the deadline, adding to it keeps it, and a copy keeps all.
    here.run("HSET h c 3");
    here.run("HINCRBY h b 5");
    assert_eq!(here.run("HPTTL h FIELDS 3 a b c"), "1) (integer) 1000\n2) (integer) 2000\n3) (integer) -1");
    here.run("COPY h other");
    here.freeze();
    here.now_ms = begun_ms + 999;
    assert_eq!(here.run("HMGET h a b c"), "1) \"1\"\n2) \"7\"\n3) \"3\"");
    here.now_ms = begun_ms + 1_000;
    assert_eq!(here.run("HMGET h a b c"), "1) (nil)\n2) \"7\"\n3) \"3\"");
    assert_eq!(here.run("HLEN h"), "(integer) 2");
    here.freeze();
    here.now_ms = begun_ms + 2_000;
    assert_eq!(here.run("HGETALL h"), "1) \"c\"\n2) \"3\"");
    assert_eq!(here.run("HTTL h FIELDS 2 b c"), "1) (integer) -2\n2) (integer) -1");
    assert_eq!(here.run("HGETALL other"), "1) \"c\"\n2) \"3\"");
    // The key goes with its last field.
    assert_eq!(here.run("HPEXPIRE h 10 LT FIELDS 1 c"), "1) (integer) 1");
    assert_eq!(here.run("HPERSIST h FIELDS 2 c c"), "1) (integer) 1\n2) (integer) -1");
    here.run("HPEXPIRE h 10 FIELDS 1 c");
    here.now_ms += 10;
    assert_eq!(here.run("TYPE h"), "none");
    assert_eq!(here.run("HSET h new 1"), "(integer) 1");
}
