//! A command that makes a long reply asks for its memory first, and then replies the same.

use crate::harness::Harness;

/// What a command may make without asking.
const FREE_BYTES: usize = 4000;
/// The elements of each collection, and the bytes of each element.
const COUNT: usize = 200;
const BYTES: usize = 300;

/// A node with a large value of each type.
fn filled() -> Harness {
    let mut harness = Harness::new();
    let mut run = |words: &[&str]| _ = harness.reply(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>());
    run(&["SET", "string", &"s".repeat(COUNT * BYTES)]);
    run(&["HSET", "one", "field", &"f".repeat(COUNT * BYTES)]);
    run(&["RPUSH", "long", &"e".repeat(COUNT * BYTES)]);
    for number in 0..COUNT {
        let (name, id) = (format!("{number:0BYTES$}"), format!("{}-0", number + 1));
        run(&["SET", &name, "x"]);
        run(&["RPUSH", "list", &name]);
        run(&["SADD", "set", &name]);
        run(&["HSET", "hash", &name, &name]);
        run(&["ZADD", "zset", "1", &name]);
        run(&["XADD", "stream", &id, "field", &name]);
        run(&["GEOADD", "places", &format!("{}.5", number % 90), "1", &name]);
        run(&["RPUSH", "ids", &number.to_string()]);
        run(&["SET", &format!("of-{number}"), &name]);
    }
    run(&["SADD", "few", "1", "2"]);
    run(&["HSET", "packed", "field", "value"]);
    run(&["ZADD", "pair", "1", "one", "2", "two"]);
    run(&["XGROUP", "CREATE", "stream", "new", "0"]);
    run(&["XGROUP", "CREATE", "stream", "old", "0"]);
    run(&["XREADGROUP", "GROUP", "old", "ann", "STREAMS", "stream", ">"]);
    harness
}

#[test]
fn long_replies_are_claimed_before_they_are_made() {
    let both = || (filled(), filled());
    let (mut free, mut bounded) = both();
    for line in [
        "GET string",
        "GETSET string x",
        "GETDEL string",
        "GETEX string PERSIST",
        "GETRANGE string 0 -1",
        "MGET string string",
        "HGET one field",
        "HMGET one field",
        "LINDEX long 0",
        "LPOP long",
        "DUMP string",
        "DUMP list",
        "DUMP zset",
        "SORT list ALPHA",
        "SORT set ALPHA LIMIT 0 180",
        "LRANGE list 0 -1",
        "RPOP list 180",
        "SMEMBERS set",
        "SPOP set 180",
        "SPOP set 200",
        "SRANDMEMBER set 180",
        "HGETALL hash",
        "HMGET hash {0} {1}",
        "HRANDFIELD hash 180 WITHVALUES",
        "ZRANGE zset 0 -1",
        "ZPOPMAX zset 180",
        "XRANGE stream - +",
        "XREVRANGE stream + - COUNT 180",
        "XREAD STREAMS stream 0",
        "XREAD COUNT 180 STREAMS stream 0",
        "XREADGROUP GROUP new ann STREAMS stream >",
        "XREADGROUP GROUP old ann STREAMS stream 0",
        "SRANDMEMBER set -500",
        "SRANDMEMBER few -2000",
        "HRANDFIELD hash -500",
        "HRANDFIELD hash -500 WITHVALUES",
        "HRANDFIELD packed -1000 WITHVALUES",
        "ZRANDMEMBER zset 180",
        "ZRANDMEMBER zset -500 WITHSCORES",
        "ZRANDMEMBER pair -1000",
        "GEOSEARCH places FROMLONLAT 45 1 BYRADIUS 20000 km WITHDIST WITHCOORD",
        "SORT ids GET of-* GET #",
    ] {
        let names = [format!("{:0BYTES$}", 1), format!("{:0BYTES$}", 2)];
        let line = line.replace("{0}", &names[0]).replace("{1}", &names[1]);
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let expected = free.reply(&words);
        assert_eq!(free.claimed_bytes, 0, "without a limit nothing is claimed: {line}");
        bounded.settings.claim_free_bytes = FREE_BYTES;
        bounded.claimed_bytes = 0;
        let reply = bounded.reply(&words);
        let is_random =
            ["SPOP set 180", "SRANDMEMBER", "HRANDFIELD", "ZRANDMEMBER"].iter().any(|name| line.starts_with(name));
        assert!(is_random || reply == expected, "{line}");
        if line.starts_with("HMGET hash") {
            assert_eq!(bounded.claimed_bytes, 0, "what is small is not claimed");
            continue;
        }
        let (claimed, made) = (bounded.claimed_bytes, reply.len());
        assert!((made * 8 / 10..made * 4).contains(&claimed), "{line}: {claimed} bytes claimed, {made} made");
        if ["GETSET", "GETDEL", "POP", "XREADGROUP"].iter().any(|name| line.contains(name)) {
            (free, bounded) = both();
        }
    }
}

/// The range is small although the stream is large.
#[test]
fn a_small_part_of_a_large_stream_claims_nothing() {
    let mut harness = filled();
    harness.settings.claim_free_bytes = FREE_BYTES;
    for line in ["XRANGE stream 5-0 9-0", "XREAD STREAMS stream 195-0", "XREAD COUNT 5 STREAMS stream 0"] {
        harness.run(line);
        assert_eq!(harness.claimed_bytes, 0, "{line}");
    }
}
