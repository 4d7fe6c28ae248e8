//! The classes of past vulnerabilities of Redis, each tested on a separate node. The node must answer with a clear
//! error or a bounded reply, and keep serving all clients within its memory.

use flintkv_tests::{Client, Node, eventually, one_line, words};
use resp::client::encode_command;

/// The memory by which the node may grow while it refuses an attack: buffers, but never the size that an attacker
/// declares.
const GROWTH_BYTES_MAX: u64 = 96 << 20;

/// Runs an attack and checks the node afterwards.
fn survives(node: &Node, attack: impl FnOnce(&mut Client)) {
    let before = node.resident_bytes();
    attack(&mut node.connect());
    let mut witness = node.connect();
    // Only one of the nodes has a password.
    witness.run("AUTH secret");
    assert_eq!(witness.run("SET witness 1"), "OK");
    assert_eq!(witness.run("GET witness"), "\"1\"");
    let growth = node.resident_bytes().saturating_sub(before);
    assert!(growth < GROWTH_BYTES_MAX, "grew by {growth} bytes");
    assert!(!node.log().contains("panicked"), "{}", node.log());
}

/// Each line must get this reply, or a reply with this beginning if it ends in "…".
fn transcript(client: &mut Client, lines: &[(&str, &str)]) {
    for (command, expected) in lines {
        let words = words(command);
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let reply = one_line(&client.call(&words));
        let fits = match expected.strip_suffix('…') {
            Some(start) => reply.starts_with(start),
            None => reply == *expected,
        };
        assert!(fits, "{command}: {reply}");
    }
}

const OUT_OF_RANGE: &str = "(error) ERR value is out of range…";
const NO_BIT: &str = "(error) ERR bit offset is not an integer or out of range";
const TOO_LONG: &str = "(error) ERR string exceeds maximum allowed size (proto-max-bulk-len)";
const NO_INT: &str = "(error) ERR value is not an integer or out of range";

#[test]
fn counts_that_overflow_on_negation_doubling_or_addition() {
    let node = Node::start(&[]);
    survives(&node, |client| {
        client.run("SADD s a b c");
        client.run("ZADD z 1 a 2 b");
        client.run("HSET h f v");
        client.run("RPUSH l a b a");
        transcript(
            client,
            &[
                ("SRANDMEMBER s -1000000000", OUT_OF_RANGE),
                ("SRANDMEMBER s -9223372036854775808", OUT_OF_RANGE),
                ("ZRANDMEMBER z -1000000000 WITHSCORES", OUT_OF_RANGE),
                ("ZRANDMEMBER z -4611686018427387905 WITHSCORES", OUT_OF_RANGE),
                ("ZRANDMEMBER z -9223372036854775808", OUT_OF_RANGE),
                ("HRANDFIELD h -1000000000 WITHVALUES", OUT_OF_RANGE),
                ("HRANDFIELD h -9223372036854775808", OUT_OF_RANGE),
                ("LPOS l a RANK -9223372036854775808", OUT_OF_RANGE),
                ("LPOS l a COUNT 9223372036854775807", "[(integer) 0, (integer) 2]"),
                ("ZRANGE z x -1 BYSCORE LIMIT 0 -1", "(error) ERR min or max is not a float"),
                ("ZRANGE z -inf +inf BYSCORE LIMIT 9223372036854775807 9223372036854775807", "[]"),
                ("ZRANGEBYSCORE z -inf +inf LIMIT 1 9223372036854775807", "[\"b\"]"),
                ("ZRANGE z -9223372036854775808 9223372036854775807", "[\"a\", \"b\"]"),
                ("LRANGE l -9223372036854775808 9223372036854775807", "[\"a\", \"b\", \"a\"]"),
                ("LTRIM l -9223372036854775808 9223372036854775807", "OK"),
                ("SINTERCARD 9223372036854775807 s", "(error) ERR Number of keys can't be greater than number of args"),
                ("LMPOP 9223372036854775807 l LEFT", "(error) ERR syntax error"),
                ("LMPOP 1 l LEFT COUNT 9223372036854775807", "[\"l\", [\"a\", \"b\", \"a\"]]"),
                ("SPOP s 9223372036854775807", "[\"…"),
                ("SCAN 18446744073709551615 COUNT 9223372036854775807", "[\"…"),
                ("EXPIRE z 9223372036854775807", "(error) ERR invalid expire time in 'expire' command"),
                ("PEXPIRE z 9223372036854775807", "(error) ERR invalid expire time in 'pexpire' command"),
                ("SET n 9223372036854775807", "OK"),
                ("INCR n", "(error) ERR increment or decrement would overflow"),
                ("DECRBY n -9223372036854775808", "(error) ERR decrement would overflow"),
                ("CLIENT PAUSE 99999999999999999999", "(error) ERR timeout is not an integer or out of range"),
            ],
        );
    });
}

#[test]
fn pairs_of_counts_and_limits() {
    let node = Node::start(&[]);
    survives(&node, |client| {
        client.run("XADD x 1-1 a 1");
        client.run("XADD x 2-1 a 1");
        client.run("XGROUP CREATE x g 0");
        client.run("XREADGROUP GROUP g ann STREAMS x >");
        client.run("RPUSH l 3 1 2");
        client.run("GEOADD geo 0 0 a 1 1 b");
        client.run("ZADD z 1 a 2 b 3 c");
        client.run("MSET t1 ohmytext t2 mynewtext");
        const COUNT: &str = "(error) ERR COUNT must be > 0";
        const POSITIVE: &str = "(error) ERR value is out of range, must be positive";
        transcript(
            client,
            &[
                ("XAUTOCLAIM x g bob 0 0 COUNT 9223372036854775807", COUNT),
                ("XAUTOCLAIM x g bob 0 0 COUNT 1152921504606846976", COUNT),
                ("XAUTOCLAIM x g bob 0 0 COUNT -9223372036854775808", COUNT),
                ("XAUTOCLAIM x g bob 0 0 COUNT 0", COUNT),
                (
                    "XAUTOCLAIM x g bob 9223372036854775807 18446744073709551615-18446744073709551615 COUNT 1",
                    "[\"0-0\"…",
                ),
                (
                    "XCLAIM x g bob 9223372036854775807 1-1 IDLE 9223372036854775807 RETRYCOUNT 9223372036854775807",
                    "[]",
                ),
                ("XCLAIM x g bob 0 1-1 TIME -9223372036854775808 JUSTID", "[\"1-1\"]"),
                ("XPENDING x g IDLE 9223372036854775807 - + 9223372036854775807", "[]"),
                ("XPENDING x g - + -9223372036854775808", "[]"),
                ("XRANGE x - + COUNT 9223372036854775807", "[[\"1-1\"…"),
                ("XRANGE x - + COUNT -9223372036854775808", "(nil)"),
                (
                    "XREVRANGE x + (18446744073709551615-18446744073709551615",
                    "(error) ERR invalid start ID for the interval",
                ),
                ("XREAD COUNT -9223372036854775808 STREAMS x 0", "[[\"x\"…"),
                ("XREAD BLOCK 9223372036854775807 STREAMS x $", "(error) ERR timeout is out of range"),
                ("XTRIM x MAXLEN ~ 1 LIMIT 9223372036854775807", "(integer) 0"),
                ("XTRIM x MAXLEN ~ 1 LIMIT -1", "(error) ERR The LIMIT argument must be >= 0."),
                (
                    "XADD x 18446744073709551615-18446744073709551615 a 1",
                    "\"18446744073709551615-18446744073709551615\"",
                ),
                ("XADD x * a 1", "(error) ERR The stream has exhausted the last possible ID, unable to add more items"),
                ("XINFO STREAM x FULL COUNT 9223372036854775807", "[…"),
                ("SORT l LIMIT 9223372036854775807 9223372036854775807", "[]"),
                ("SORT l LIMIT -9223372036854775808 -1", "[\"1\", \"2\", \"3\"]"),
                ("SORT l LIMIT 1 9223372036854775807", "[\"2\", \"3\"]"),
                ("ZRANGE z -inf +inf BYSCORE LIMIT -9223372036854775808 9223372036854775807", "[]"),
                ("ZRANGE z - + BYLEX LIMIT 1 -9223372036854775808", "[\"b\", \"c\"]"),
                ("ZREVRANGE z 9223372036854775807 -9223372036854775808", "[]"),
                ("ZREMRANGEBYRANK z 9223372036854775807 -9223372036854775808", "(integer) 0"),
                ("ZPOPMIN z -9223372036854775808", POSITIVE),
                ("ZMPOP 1 z MIN COUNT 9223372036854775808", "(error) ERR count should be greater than 0"),
                ("SPOP nosuch -1", POSITIVE),
                ("LPOP l -9223372036854775808", POSITIVE),
                ("LREM l -9223372036854775808 nosuch", "(integer) 0"),
                ("LINDEX l -9223372036854775808", "(nil)"),
                ("GEOSEARCH geo FROMLONLAT 0 0 BYRADIUS 1e308 km COUNT 9223372036854775807 ANY", "[…"),
                ("GEOSEARCH geo FROMLONLAT 0 0 BYBOX 1e308 1e308 km COUNT -1", "(error) ERR COUNT must be > 0"),
                ("LCS t1 t2 IDX MINMATCHLEN 9223372036854775807", "[…"),
                (
                    "BITFIELD b OVERFLOW SAT INCRBY i64 0 9223372036854775807 INCRBY i64 0 9223372036854775807",
                    "[(integer) 9223372036854775807, (integer) 9223372036854775807]",
                ),
                ("BITFIELD b OVERFLOW FAIL INCRBY i64 0 1 SET u63 0 -1", "[(nil), (nil)]"),
                (
                    "BITFIELD b OVERFLOW WRAP INCRBY i64 0 -9223372036854775808 INCRBY i64 0 -9223372036854775808",
                    "[(integer) -1, (integer) 9223372036854775807]",
                ),
                ("SLOWLOG GET -9223372036854775808", "(error) ERR count should be greater than or equal to -1"),
                (
                    "ACL GENPASS 9223372036854775807",
                    "(error) ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096",
                ),
                ("OBJECT FREQ nosuch", "(nil)"),
                ("SSCAN nosuch 18446744073709551616", "(error) ERR invalid cursor"),
                (
                    "EVAL \"return 1\" 9223372036854775807",
                    "(error) ERR Number of keys can't be greater than number of args",
                ),
                ("EVAL \"return 1\" -9223372036854775808", "(error) ERR Number of keys can't be negative"),
            ],
        );
    });
}

#[test]
fn offsets_that_ask_for_memory() {
    let node = Node::start(&[]);
    survives(&node, |client| {
        client.run("SET k v");
        transcript(
            client,
            &[
                ("SETRANGE k 536870911 xx", TOO_LONG),
                ("SETRANGE k 9223372036854775807 x", TOO_LONG),
                ("SETRANGE k -1 x", "(error) ERR offset is out of range"),
                ("SETBIT k 4294967296 1", NO_BIT),
                ("SETBIT k -1 1", NO_BIT),
                ("BITFIELD k SET u8 9223372036854775807 1", NO_BIT),
                ("BITFIELD k INCRBY i64 #9223372036854775807 1", NO_BIT),
                ("BITFIELD k GET u63 #144115188075855872", NO_BIT),
                ("BITCOUNT k 9223372036854775807 -9223372036854775808", "(integer) 0"),
                ("BITPOS k 1 -9223372036854775808 9223372036854775807", "(integer) 1"),
                ("GETRANGE k -9223372036854775808 9223372036854775807", "\"v\""),
                ("LSET k 9223372036854775807 x", "(error) WRONGTYPE…"),
                ("LCS k k MINMATCHLEN 99999999999999999999", NO_INT),
                ("STRLEN k", "(integer) 1"),
            ],
        );
    });
}

/// A naive matcher, which tries every way to split the text, would never end.
#[test]
fn patterns_of_many_stars() {
    let node = Node::start(&[]);
    survives(&node, |client| {
        let name = vec![b'a'; 10_000];
        assert_eq!(one_line(&client.call(&[b"SET", &name, b"1"])), "OK");
        let bomb = b"*a".repeat(200_000);
        let miss = [&b"*a".repeat(2_000)[..], b"b"].concat();
        assert_eq!(one_line(&client.call(&[b"KEYS", &bomb])), "[]");
        assert_eq!(one_line(&client.call(&[b"KEYS", &miss])), "[]");
        assert_eq!(one_line(&client.call(&[b"SCAN", b"0", b"COUNT", b"100", b"MATCH", &miss])), "[\"0\", []]");
        assert_eq!(one_line(&client.call(&[b"CONFIG", b"GET", &miss])), "[]");
        assert_eq!(one_line(&client.call(&[b"PUBSUB", b"CHANNELS", &miss])), "[]");
        let mut subscriber = node.connect();
        subscriber.call(&[b"PSUBSCRIBE", &miss]);
        assert_eq!(one_line(&client.call(&[b"PUBLISH", &name, b"m"])), "(integer) 0");
        assert_eq!(client.run("KEYS [[[[[[[^]\\\\"), "(empty array)");
    });
}

#[test]
fn a_subscriber_that_does_not_read_is_disconnected() {
    let node = Node::start(&[("client-output-buffer-limit", "pubsub 4mb 2mb 1")]);
    survives(&node, |client| {
        let mut sleeper = node.connect();
        sleeper.run("SUBSCRIBE news");
        let message = vec![b'm'; 100_000];
        let mut bytes = Vec::new();
        for _ in 0..1000 {
            encode_command(&[b"PUBLISH", b"news", &message], &mut bytes);
        }
        client.send(&bytes);
        (0..1000).for_each(|_| drop(client.reply()));
        eventually("the sleeper is gone", || client.run("PUBSUB NUMSUB news") == "1) \"news\"\n2) (integer) 0");
    });
}

/// Each of these inputs declares a large size and sends few bytes.
#[test]
fn claims_before_authentication_cost_nothing() {
    let node = Node::start(&[("requirepass", "secret")]);
    survives(&node, |_| {
        let sleepers: Vec<Client> = (0..500)
            .map(|i| {
                let mut client = node.connect();
                let claim = ["*10\r\n$16384\r\n", "*1048576\r\n", "*1\r\n$536870912\r\n", "$"][i % 4];
                client.send(claim.as_bytes());
                client
            })
            .collect();
        let mut client = node.connect();
        assert_eq!(client.run("PING"), "(error) NOAUTH Authentication required.");
        drop(sleepers);
    });
}

/// The queue of a transaction counts towards the limit of the query buffer.
#[test]
fn a_transaction_that_is_never_executed_is_bounded() {
    let node = Node::start(&[("client-query-buffer-limit", "8mb")]);
    survives(&node, |client| {
        client.run("MULTI");
        let value = vec![b'v'; 1 << 20];
        let mut bytes = Vec::new();
        for _ in 0..128 {
            encode_command(&[b"SET", b"k", &value], &mut bytes);
        }
        client.send(&bytes);
        let ends = std::iter::from_fn(|| client.reply()).take(128).count();
        assert!(ends < 128, "128 MB of commands were queued");
    });
}
