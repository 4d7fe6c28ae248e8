//! The digest of a dataset larger than RAM, as a client asks for it.

use crate::common::{Client, Node};
use resp::client::{Value, encode_command};

const KEYS: usize = 36_000;
const VALUE_BYTES: usize = 600;

/// The RAM limit holds only a fraction of the dataset. The node's flash exists as long as its directory.
fn small(threads: &str) -> (tempfile::TempDir, Node, Client) {
    let flash = tempfile::tempdir().unwrap();
    let path = flash.path().to_str().unwrap();
    let node = Node::start(&[
        ("enable-debug-command", "yes"),
        ("flash-path", path),
        ("memory-limit", "400mb"),
        ("ram-limit", "40mb"),
        ("io-threads", threads),
    ]);
    let client = node.connect();
    (flash, node, client)
}

fn pipeline(client: &mut Client, commands: &[Vec<Vec<u8>>]) {
    let mut bytes = Vec::new();
    for words in commands {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        encode_command(&words, &mut bytes);
    }
    client.send(&bytes);
    for words in commands {
        let reply = client.reply().expect("the connection stays open");
        assert!(!matches!(reply, Value::Error(_)), "{reply:?} to {words:?}");
    }
}

fn command(line: String) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// The same data in any order: strings of which few compress, some with an expiry, and a hash in parts.
fn fill(client: &mut Client, order: impl Iterator<Item = usize>) {
    let numbers: Vec<usize> = order.collect();
    for numbers in numbers.chunks(500) {
        let commands: Vec<_> = numbers
            .iter()
            .flat_map(|&n| {
                let mut seed = n as u64 + 1;
                let mut byte = || {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (seed >> 56) as u8
                };
                let value: Vec<u8> = (0..VALUE_BYTES).map(|_| byte()).collect();
                let set = vec![b"SET".to_vec(), format!("key:{n}").into_bytes(), value];
                let expires = command(format!("PEXPIREAT key:{n} {}", 4_000_000_000_000 + n as u64));
                let field = command(format!("HSET large field:{n} {n:0>40}"));
                [set, field].into_iter().chain((n % 7 == 0).then_some(expires))
            })
            .collect();
        pipeline(client, &commands);
    }
}

fn digest(client: &mut Client) -> String {
    let digest = client.run("DEBUG FLINT-DIGEST");
    assert_eq!(digest.len(), 64, "{digest}");
    digest
}

fn number(client: &mut Client, field: &str) -> u64 {
    client.info("tiering", field).parse().unwrap()
}

#[test]
fn two_nodes_that_hold_more_than_their_ram_agree_and_keep_their_tiers() {
    let (_flash_a, _a, mut a) = small("1");
    let (_flash_b, _b, mut b) = small("2");
    fill(&mut a, 0..KEYS);
    fill(&mut b, (0..KEYS).rev());
    let on_flash = number(&mut a, "values_in_flash");
    assert!(on_flash > KEYS as u64 / 4, "{on_flash} values on flash");

    let stats =
        |client: &mut Client| ["flash_kv_reads", "flash_part_reads", "promotions"].map(|field| number(client, field));
    let hits = a.info("stats", "keyspace_hits");
    let before = stats(&mut a);
    let begun = std::time::Instant::now();
    let expected = digest(&mut a);
    println!("{on_flash} of {KEYS} values on flash: {:?}", begun.elapsed());
    assert_eq!(stats(&mut a), before, "nothing has come into RAM");
    assert_eq!(a.info("stats", "keyspace_hits"), hits);
    assert_eq!(digest(&mut b), expected, "another order, another secret, another number of threads");
    let redis = a.run("DEBUG DIGEST");
    assert_eq!(redis.len(), 40);
    assert_eq!(b.run("DEBUG DIGEST"), redis);

    // Change one field's expiry.
    assert_eq!(b.run("HPEXPIREAT large 4000000000000 FIELDS 1 field:77"), "1) (integer) 1");
    assert_eq!(b.run("DEBUG DIGEST"), redis);
    let stripes = |client: &mut Client| client.run("DEBUG FLINT-DIGEST STRIPES");
    let (of_a, of_b) = (stripes(&mut a), stripes(&mut b));
    let differ = of_a.lines().zip(of_b.lines()).filter(|(a, b)| a != b).count();
    assert_eq!(differ, 2, "the total and one stripe");
}

#[test]
fn a_transaction_reads_what_is_cold_under_its_locks() {
    let (_flash, _node, mut client) = small("2");
    fill(&mut client, 0..500);
    let (expected, redis) = (digest(&mut client), client.run("DEBUG DIGEST"));
    assert_eq!(client.run("CONFIG SET debug-tier-mode cold"), "OK");
    assert_eq!(client.run("EXISTS key:1"), "(integer) 1");
    let reads = number(&mut client, "flash_reads_under_lock");
    for line in ["MULTI", "SET more 1", "DEBUG FLINT-DIGEST", "DEL more", "DEBUG FLINT-DIGEST", "DEBUG DIGEST"] {
        assert_eq!(client.run(line), if line == "MULTI" { "OK" } else { "QUEUED" });
    }
    let replies = client.run("EXEC");
    let replies: Vec<&str> = replies.lines().map(|line| &line[3..]).collect();
    assert_ne!(replies[1], expected, "what the transaction has done is in it");
    assert_eq!(replies[3..], [expected, redis]);
    assert!(number(&mut client, "flash_reads_under_lock") >= reads + 1000);
}

#[test]
fn functions_are_in_the_digest() {
    let node = Node::start(&[("enable-debug-command", "yes")]);
    let mut client = node.connect();
    let load = |client: &mut Client, result: usize| {
        let code = format!("#!lua name=lib\nredis.register_function('f', function() return {result} end)");
        assert!(client.value(&[b"FUNCTION", b"LOAD", b"REPLACE", code.as_bytes()]).is_some());
    };
    let empty = digest(&mut client);
    load(&mut client, 1);
    let one = digest(&mut client);
    load(&mut client, 2);
    let two = digest(&mut client);
    load(&mut client, 1);
    assert!(empty != one);
    assert!(one != two);
    assert_eq!(digest(&mut client), one);
    assert_eq!(client.run("FUNCTION FLUSH"), "OK");
    assert_eq!(digest(&mut client), empty);
}
