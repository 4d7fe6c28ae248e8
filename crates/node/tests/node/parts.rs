//! Pipelines and transactions on one large value whose parts are on flash: they wait for all parts together, not one
//! after the other.

use crate::common::{Client, Node};
use resp::client::{Value, encode_command};

const MEMBERS: usize = 20_000;
const BATCH: usize = 200;

/// A hash and a sorted set, in RAM. The node's flash exists as long as its directory.
fn filled() -> (tempfile::TempDir, Node, Client) {
    let flash = tempfile::tempdir().unwrap();
    let path = flash.path().to_str().unwrap();
    let node = Node::start(&[
        ("flash-path", path),
        ("flash-split-size", "1kb"),
        ("memory-limit", "200mb"),
        ("ram-limit", "64mb"),
        ("io-threads", "2"),
    ]);
    let mut client = node.connect();
    for start in (0..MEMBERS).step_by(BATCH) {
        let of = |line: fn(usize) -> String| (start..start + BATCH).map(line).collect::<Vec<_>>();
        pipeline(&mut client, &of(|i| format!("HSET h field:{i} {}", value(i))));
        pipeline(&mut client, &of(|i| format!("ZADD z {} member:{i}", score(i))));
    }
    (flash, node, client)
}

/// Moves every part of every value to flash. Parts that are read later stay in RAM.
fn force_demote(client: &mut Client) {
    assert_eq!(client.run("CONFIG SET debug-tier-mode cold"), "OK");
    assert_eq!(client.run("EXISTS h z"), "(integer) 2");
    assert_eq!(client.run("CONFIG SET debug-tier-mode off"), "OK");
}

fn waited(client: &mut Client) -> u64 {
    client.info("tiering", "commands_waited_for_flash").parse().unwrap()
}

fn pipeline(client: &mut Client, lines: &[String]) -> Vec<Value> {
    let mut bytes = Vec::new();
    for line in lines {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        encode_command(&words, &mut bytes);
    }
    client.send(&bytes);
    lines.iter().map(|_| client.reply().expect("the connection stays open")).collect()
}

fn value(i: usize) -> String {
    format!("{i:0>60}")
}

/// Neighbouring members have distant scores.
fn score(i: usize) -> usize {
    i * 7919 % MEMBERS
}

/// Members that are far apart.
fn some() -> impl Iterator<Item = usize> {
    (0..BATCH).map(|n| n * 6007 % MEMBERS)
}

#[test]
fn a_pipeline_waits_for_the_parts_of_a_value_together() {
    let (_flash, _node, mut client) = filled();

    let mut few = |what: &str, lines: Vec<String>, expected: Vec<Value>| {
        force_demote(&mut client);
        let before = waited(&mut client);
        assert_eq!(pipeline(&mut client, &lines), expected, "{what}");
        let waited = waited(&mut client) - before;
        println!("{what}: {waited} of {} commands waited", lines.len());
        assert!((1..BATCH as u64 / 8).contains(&waited), "{what}: {waited} commands waited");
    };
    let bulk = |text: String| Value::Bulk(text.into_bytes());
    few("HGET", some().map(|i| format!("HGET h field:{i}")).collect(), some().map(|i| bulk(value(i))).collect());
    few(
        "ZSCORE",
        some().map(|i| format!("ZSCORE z member:{i}")).collect(),
        some().map(|i| bulk(score(i).to_string())).collect(),
    );
    few(
        "ZRANK",
        some().map(|i| format!("ZRANK z member:{i}")).collect(),
        some().map(|i| Value::Int(score(i) as i64)).collect(),
    );
    few("HSET", some().map(|i| format!("HSET h field:{i} new")).collect(), some().map(|_| Value::Int(0)).collect());
    few("HDEL", some().map(|i| format!("HDEL h field:{i}")).collect(), some().map(|_| Value::Int(1)).collect());
    few("ZINCRBY", some().map(|i| format!("ZINCRBY z 0 member:{i}")).collect(), {
        some().map(|i| bulk(score(i).to_string())).collect()
    });
    assert_eq!(client.run("HLEN h"), format!("(integer) {}", MEMBERS - BATCH));
    assert_eq!(client.run("ZCARD z"), format!("(integer) {MEMBERS}"));
}

/// A rehearsed command changes nothing, and invalid commands are not rehearsed.
#[test]
fn rehearsals_change_nothing() {
    let (_flash, _node, mut client) = filled();
    force_demote(&mut client);
    // Put these fields into RAM. A rehearsal that did not stop in time would then change them at once.
    assert_eq!(client.run("HGET h field:5"), format!("{:?}", value(5)));
    assert_eq!(client.run("HGET h field:6"), format!("{:?}", value(6)));
    let lines: Vec<String> = [
        "HGET h field:1",
        "HGET h",
        "HSET h field:2",
        "HSET h field:3 new more",
        "HINCRBY h field:4 nonsense",
        "ZADD h 1 a",
        "HRANDFIELD h 3",
        "HGET h field:5",
        "HGET h field:6",
        "HDEL h field:6",
        "HSET h field:5 five",
        "HGET h field:5",
        "HDEL h field:5",
        "HGET h field:5",
        "DEL h",
        "HSET h a 1",
        "HGETALL h",
        "SET z 1",
        "GET z",
    ]
    .map(str::to_owned)
    .to_vec();
    let replies = pipeline(&mut client, &lines);
    let shown: Vec<String> = replies.iter().map(|reply| format!("{reply:?}")).collect();
    let bulk = |text: &str| Value::Bulk(text.as_bytes().to_vec());
    assert_eq!(replies[0], bulk(&value(1)), "{shown:?}");
    for at in [1, 2, 3, 4, 5] {
        assert!(matches!(replies[at], Value::Error(_)), "{}: {}", lines[at], shown[at]);
    }
    assert!(matches!(&replies[6], Value::Array(fields) if fields.len() == 3), "{}", shown[6]);
    let (zero, one) = (Value::Int(0), Value::Int(1));
    let before = [bulk(&value(5)), bulk(&value(6)), one.clone()];
    assert_eq!(replies[7..10], before, "{shown:?}");
    let after = [zero, bulk("five"), one.clone(), Value::Null, one.clone(), one];
    assert_eq!(replies[10..16], after, "{shown:?}");
    assert_eq!(replies[16], Value::Array(vec![bulk("a"), bulk("1")]));
    assert_eq!(replies[18], bulk("1"));
}

#[test]
fn a_transaction_waits_for_the_parts_of_a_value_together() {
    let (_flash, _node, mut client) = filled();
    force_demote(&mut client);
    let reads = |client: &mut Client| client.info("tiering", "flash_part_reads").parse::<u64>().unwrap();
    let before = reads(&mut client);
    let mut lines = vec!["MULTI".to_owned()];
    lines.extend(some().map(|i| format!("HGET h field:{i}")));
    lines.push("HSET h field:0 new".into());
    lines.push("ZINCRBY z 1000000 member:0".into());
    lines.push("ZREVRANK z member:0".into());
    lines.push("EXEC".into());
    let Some(Value::Array(replies)) = pipeline(&mut client, &lines).pop() else { panic!("EXEC's array") };
    for (i, reply) in some().zip(&replies) {
        assert_eq!(*reply, Value::Bulk(value(i).into_bytes()));
    }
    assert_eq!(replies[BATCH], Value::Int(0));
    assert_eq!(replies[BATCH + 2], Value::Int(0));
    assert!(reads(&mut client) > before + BATCH as u64 / 2);
    // All parts were read before the transaction started, except the few that its own changes made necessary.
    let at_once: u64 = client.info("tiering", "flash_reads_under_lock").parse().unwrap();
    assert!(at_once < BATCH as u64 / 8, "{at_once} parts were read under the lock");
}
