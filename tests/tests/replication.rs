//! Debian's redis-server as a replica of a node: dumps, the stream, broken links, and the replies about replicas that
//! clients get.

use flintkv_tests::compare::{assert_same_dataset, has_other_digests, keep_keys};
use flintkv_tests::generator::Writes;
use flintkv_tests::{Client, Node, Redis, eventually};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

fn primary(more: &[(&str, &str)]) -> Node {
    Node::start(&[&[("enable-debug-command", "yes")], more].concat())
}

/// A Redis that follows the node, or `None` where there is no redis-server.
fn replica(node: &Node) -> Option<Redis> {
    let port = node.port.to_string();
    let redis = Redis::if_installed(&["--replicaof", "127.0.0.1", &port, "--enable-debug-command", "yes"])?;
    let mut client = redis.connect();
    eventually("the replica is synchronised", || client.info("replication", "master_link_status") == "up");
    Some(redis)
}

/// Waits until the replica has applied all changes of the node, and asserts that their datasets are equal.
fn agree(node: &Node, redis: &Redis) {
    let (mut ours, mut theirs) = (node.connect(), redis.connect());
    keep_keys(&mut ours);
    eventually("the replica has everything", || {
        ours.info("replication", "master_repl_offset") == theirs.info("replication", "master_repl_offset")
            && theirs.info("replication", "master_link_status") == "up"
    });
    assert_same_dataset(&mut ours, &mut theirs);
    // Everything else was compared.
    let has_other_digests = has_other_digests(&mut theirs);
    // A key that has expired stays at the replica until the node has removed it.
    eventually("the digests are equal", || has_other_digests || ours.run("DEBUG DIGEST") == theirs.run("DEBUG DIGEST"));
    assert_eq!(theirs.info("stats", "unexpected_error_replies"), "0");
}

fn write(client: &mut Client, writes: &mut Writes, count: usize) {
    for _ in 0..count {
        let words = writes.command_of_redis_7_0(base::clock::wall_ms());
        client.call(&words.iter().map(Vec::as_slice).collect::<Vec<_>>());
    }
}

/// Writes one of each kind of value. No key that expires soon is left.
fn write_all(client: &mut Client, tag: &str) {
    for line in [
        "SELECT 3",
        "SET {t}:text value EX 1000",
        "SETRANGE {t}:text 20 more",
        "RPUSH {t}:list 1 2 three",
        "SADD {t}:set a b 1",
        "HSET {t}:hash f v g w",
        "ZADD {t}:zset 1.5 a inf b",
        "XADD {t}:stream * f v",
        "XGROUP CREATE {t}:stream g 0",
        "XREADGROUP GROUP g c COUNT 1 STREAMS {t}:stream >",
        "PFADD {t}:hll a b c",
        "SETBIT {t}:bits 100 1",
        "GEOADD {t}:geo 13.361389 38.115556 Palermo",
        "SELECT 7",
        "SET {t}:other 1",
        "MULTI",
        "INCRBYFLOAT {t}:other 1.5",
        "SELECT 8",
        "LPUSH {t}:both 1",
        "SPOP {t}:none",
        "EXEC",
        "EVAL \"redis.call('SET', KEYS[1], 'v'); redis.call('INCR', KEYS[2]); return 1\" 2 {t}:s1 {t}:s2",
        "FUNCTION LOAD REPLACE \"#!lua name=lib\\nredis.register_function('f{t}', function(k) return redis.call('SET', k[1], 'f') end)\"",
        "FCALL f{t} 1 {t}:fn",
        "SET {t}:gone v PX 1",
        "SET {t}:moved v",
        "MOVE {t}:moved 9",
        "SWAPDB 10 11",
        "COPY {t}:s1 {t}:s3",
        "SELECT 11",
        "SET a b",
        "FLUSHDB",
        "PUBLISH channel message",
        "SELECT 0",
    ] {
        let line = line.replace("{t}", tag);
        let reply = client.run(&line);
        assert!(!reply.contains("ERR"), "{line}: {reply}");
    }
}

#[test]
fn redis_gets_a_dump_and_then_every_change() {
    let node = primary(&[]);
    let mut client = node.connect();
    write_all(&mut client, "a");
    let mut writes = Writes::new(5);
    write(&mut client, &mut writes, 1500);
    let Some(redis) = replica(&node) else { return };
    agree(&node, &redis);
    write_all(&mut client, "b");
    write(&mut client, &mut writes, 1500);
    write_all(&mut client, "c");
    agree(&node, &redis);

    // The link of a second replica begins with the stream's current logical database.
    client.run("SELECT 5");
    client.run("SET five 5");
    let Some(second) = replica(&node) else { return };
    client.run("SET five 55");
    agree(&node, &second);
    assert_eq!(client.run("FLUSHALL"), "OK");
    client.run("SET after flushall");
    agree(&node, &redis);
    agree(&node, &second);
    assert_eq!(client.info("stats", "sync_full"), "2");
    assert_eq!(client.info("replication", "connected_slaves"), "2");
}

#[test]
fn a_link_that_is_cut_goes_on_where_it_was() {
    let node = primary(&[("appendonly", "yes")]);
    let mut client = node.connect();
    let Some(redis) = replica(&node) else { return };
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut client = node.connect();
            let mut writes = Writes::new(6);
            while !ends.load(Relaxed) {
                write(&mut client, &mut writes, 100);
            }
        });
        let mut theirs = redis.connect();
        for cut in 1..=5 {
            let id = client.run("CLIENT LIST TYPE replica");
            assert_eq!(client.run("CLIENT KILL TYPE replica"), "(integer) 1", "{id}");
            // Redis connects again within a second.
            eventually("it is back", || {
                client.info("stats", "sync_partial_ok") == cut.to_string()
                    && theirs.info("replication", "master_link_status") == "up"
            });
        }
        ends.store(true, Relaxed);
        load.join().unwrap();
    });
    agree(&node, &redis);
    assert_eq!(client.info("stats", "sync_full"), "1");
    assert_eq!(client.info("stats", "sync_partial_err"), "0");
}

#[test]
fn clients_are_told_what_replicas_have() {
    let node = primary(&[]);
    let mut client = node.connect();
    assert_eq!(client.run("SET k 0"), "OK");
    assert_eq!(client.run("WAIT 1 10"), "(integer) 0");
    let too_long = "(error) ERR REPLCONF ip-address provided by replica instance is too long: 46 bytes";
    assert_eq!(client.run(&format!("REPLCONF ip-address {}", "1".repeat(46))), too_long);
    let Some(redis) = replica(&node) else { return };
    let mut theirs = redis.connect();

    assert_eq!(client.run("SET k 1"), "OK");
    assert_eq!(client.run("WAIT 1 0"), "(integer) 1");
    assert_eq!(theirs.run("GET k"), "\"1\"");
    // WAIT must not have to wait for the acknowledgement that the replica sends once a second.
    let begun = Instant::now();
    for value in 0..20 {
        client.run(&format!("SET k {value}"));
        assert_eq!(client.run("WAIT 1 0"), "(integer) 1");
    }
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert_eq!(client.run("WAIT 2 20"), "(integer) 1");
    assert_eq!(client.run("WAIT 0 0"), "(integer) 1");
    assert_eq!(client.run("MULTI"), "OK");
    client.run("SET k 2");
    client.run("WAIT 2 0");
    assert!(client.run("EXEC").starts_with("1) OK\n2) (integer) "));
    // Redis 7.0 does not report which offset is durable.
    assert_eq!(client.run("WAITAOF 0 1 20"), "1) (integer) 0\n2) (integer) 0");

    // Make the replica not answer.
    redis.pause();
    eventually("it is stopped", || {
        client.run("SET k 3");
        client.run("WAIT 1 20") == "(integer) 0"
    });
    client.send(b"WAIT 1 0\r\n");
    let mut other = node.connect();
    eventually("it waits", || other.info("clients", "blocked_clients") == "1");
    redis.go_on();
    assert_eq!(client.read(), "(integer) 1");
    assert_eq!(theirs.run("GET k"), "\"3\"");
    drop(other);

    let offset = client.info("replication", "master_repl_offset");
    let port = redis.port.to_string();
    let role = client.run("ROLE");
    assert!(role.starts_with(&format!("1) \"master\"\n2) (integer) {offset}\n3) 1) 1) \"127.0.0.1\"\n")), "{role}");
    assert!(role.contains(&format!("2) \"{port}\"\n")), "{role}");
    let line = client.info("replication", "slave0");
    assert!(line.starts_with(&format!("ip=127.0.0.1,port={port},state=online,offset=")), "{line}");
    let list = client.run("CLIENT LIST TYPE replica");
    assert!(list.contains(" flags=S ") && list.contains("cmd=psync"), "{list}");
    eventually("this client is left", || client.run("CLIENT LIST TYPE normal").matches("id=").count() == 1);
    assert_eq!(client.run("CONFIG SET min-replicas-to-write 1 min-replicas-max-lag 2"), "OK");
    eventually("the replica counts", || client.info("replication", "min_slaves_good_slaves") == "1");
    assert_eq!(client.run("SET k 4"), "OK");
    drop(redis);
    eventually("it is gone", || client.info("replication", "connected_slaves") == "0");
    let refusal = "(error) NOREPLICAS Not enough good replicas to write.";
    eventually("writes are refused", || client.run("SET k 5") == refusal);
    assert_eq!(client.run("CONFIG SET min-replicas-to-write 0"), "OK");
    eventually("writes are taken", || client.run("SET k 5") == "OK");
    assert_eq!(client.run("WAIT 1 10"), "(integer) 0");
}

#[test]
fn a_redis_that_cannot_load_the_dataset_is_refused_with_the_reason() {
    let node = primary(&[]);
    let mut client = node.connect();
    client.run("HSET h f v");
    assert_eq!(client.run("HEXPIRE h 1000 FIELDS 1 f"), "1) (integer) 1");
    let port = node.port.to_string();
    let Some(redis) = Redis::if_installed(&["--replicaof", "127.0.0.1", &port]) else { return };
    // The refusals of PSYNC, of SYNC, and of the next attempt.
    let refusals = || node.log().matches(": 1 hashes have fields that expire").count();
    eventually("it is refused", || refusals() >= 2);
    assert_eq!(redis.connect().info("replication", "master_link_status"), "down");
    assert_eq!(redis.connect().run("DBSIZE"), "(integer) 0");
}

#[test]
fn a_failover_loses_nothing_and_copies_nothing() {
    let node = primary(&[]);
    let mut client = node.connect();
    let Some(redis) = replica(&node) else { return };
    let mut theirs = redis.connect();
    assert_eq!(client.run("FAILOVER TO 127.0.0.1 1"), "(error) ERR FAILOVER target HOST and PORT is not a replica.");
    let force = format!("FAILOVER TO 127.0.0.1 {} FORCE", redis.port);
    let incomplete = "(error) ERR FAILOVER with force option requires both a timeout and target HOST and IP to be set.";
    assert_eq!(client.run(&force), incomplete);
    assert_eq!(client.run("PSYNC x 1 FAILOVER"), "(error) ERR PSYNC FAILOVER can't be sent to a master.");

    // Aborted by a client, and at its timeout: writers continue.
    let state = |client: &mut Client| client.info("replication", "master_failover_state");
    for how in ["FAILOVER", "FAILOVER TIMEOUT 20"] {
        redis.pause();
        eventually("it is stopped", || {
            client.run("SET k 1");
            client.run("WAIT 1 20") == "(integer) 0"
        });
        assert_eq!(client.run(how), "OK");
        if how == "FAILOVER" {
            assert_eq!(client.run("FAILOVER"), "(error) ERR FAILOVER already in progress.");
            assert_eq!(state(&mut client), "waiting-for-sync");
            assert_eq!(client.run("FAILOVER ABORT"), "OK");
        }
        assert_eq!(client.run("SET k 2"), "OK");
        assert_eq!(state(&mut client), "no-failover");
        redis.go_on();
        assert_eq!(theirs.run("PING"), "PONG");
    }

    // Failover while clients write.
    let counted = std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut client = node.connect();
            let mut counted = 0;
            loop {
                let reply = client.run("INCR counter");
                match reply.strip_prefix("(integer) ") {
                    Some(number) => counted = number.parse().unwrap(),
                    None => return (counted, reply),
                }
            }
        });
        eventually("clients write", || client.run("EXISTS counter") == "(integer) 1");
        assert_eq!(client.run("FAILOVER TIMEOUT 60000"), "OK");
        load.join().unwrap()
    });
    let (counted, refusal): (u64, String) = counted;
    assert_eq!(refusal, "(error) READONLY You can't write against a read only replica.");
    eventually("the roles have changed", || {
        theirs.info("replication", "role") == "master" && client.info("replication", "master_link_status") == "up"
    });
    assert_eq!(theirs.run("GET counter"), format!("\"{counted}\""));
    assert_eq!(theirs.run("SET k 3"), "OK");
    eventually("the node follows", || client.run("GET k") == "\"3\"");
    assert_eq!(theirs.info("stats", "sync_full"), "0");
    assert_eq!(state(&mut client), "no-failover");
}

#[test]
fn a_node_takes_over_from_a_node() {
    let (first, second, third) = (primary(&[]), primary(&[("appendonly", "yes")]), primary(&[]));
    let mut clients = [&first, &second, &third].map(Node::connect);
    let [one, two, three] = &mut clients;
    assert_eq!(one.run("SET k 1"), "OK");
    assert_eq!(two.run(&format!("REPLICAOF 127.0.0.1 {}", first.port)), "OK");
    eventually("the second follows", || two.info("replication", "master_link_status") == "up");
    // A replica of the replica.
    assert_eq!(three.run(&format!("REPLICAOF 127.0.0.1 {}", second.port)), "OK");
    eventually("the third follows", || three.info("replication", "master_link_status") == "up");
    assert_eq!(one.run("SELECT 4"), "OK");
    assert_eq!(one.run("SET k 2"), "OK");
    assert_eq!(one.run("WAIT 1 0"), "(integer) 1");
    three.run("SELECT 4");
    eventually("the third has it", || three.run("GET k") == "\"2\"");
    assert_eq!(two.run("WAIT 0 0").split(" instances").next(), Some("(error) ERR WAIT cannot be used with replica"));
    assert!(two.run("HELLO").contains("\"replica\""));

    assert_eq!(one.run("FAILOVER"), "OK");
    eventually("the roles have changed", || {
        two.info("replication", "role") == "master" && one.info("replication", "master_link_status") == "up"
    });
    two.run("SELECT 4");
    assert_eq!(two.run("SET k 3"), "OK");
    eventually("all have it", || one.run("GET k") == "\"3\"" && three.run("GET k") == "\"3\"");
    assert_eq!(two.run("WAIT 2 0"), "(integer) 2");
    let digest = two.run("DEBUG FLINT-DIGEST");
    assert_eq!([one.run("DEBUG FLINT-DIGEST"), three.run("DEBUG FLINT-DIGEST")], [digest.clone(), digest]);
    assert_eq!(two.info("stats", "sync_full"), "1", "for the third, at the beginning");
}
