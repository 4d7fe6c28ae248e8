//! A node that follows a primary: Debian's redis-server, from which an operator moves in, or another node.

use crate::common::{Client, Node, Redis, eventually};
use base::clock::wall_ms;
use flintkv_tests::Random;
use flintkv_tests::compare::{assert_same, assert_same_dataset, dataset, has_other_digests};
use flintkv_tests::generator::Writes;
use std::collections::BTreeMap;
use std::io::Read;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// What a synchronisation of redis-server needs to begin at once, and to be compared.
const AT_ONCE: [&str; 6] =
    ["--enable-debug-command", "yes", "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"];

fn redis(more: &[&str]) -> Option<Redis> {
    Redis::if_installed(&[&AT_ONCE[..], more].concat())
}

pub fn node(more: &[(&str, &str)]) -> Node {
    Node::start(&[&[("enable-debug-command", "yes")], more].concat())
}

pub fn follow(node: &mut Client, port: u16) {
    assert_eq!(node.run(&format!("REPLICAOF 127.0.0.1 {port}")), "OK");
    is_up(node);
}

pub fn is_up(node: &mut Client) {
    eventually("the link is up", || node.info("replication", "master_link_status") == "up");
}

/// Waits until the replica has what the primary has now.
fn has_everything(primary: &mut Client, replica: &mut Client) {
    let offset = primary.info_number("replication", "master_repl_offset");
    eventually("the replica has everything", || replica.info_number("replication", "slave_repl_offset") >= offset);
    assert_eq!(replica.info("replication", "replica_last_failure"), "");
}

/// Whether both are the same, at the latest after some seconds in which what has expired is removed.
fn become_same(mut are_same: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !are_same() {
        if Instant::now() > deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
    true
}

/// Whether both have the same digest in the end.
fn have_same_digest(command: &str, primary: &mut Client, replica: &mut Client) -> bool {
    become_same(|| {
        let (ours, theirs) = (replica.run(command), primary.run(command));
        assert!(ours.bytes().all(|byte| byte.is_ascii_hexdigit()), "{ours}");
        ours == theirs
    })
}

/// A node has what its primary has, a redis-server.
fn agree(primary: &mut Client, replica: &mut Client) {
    has_everything(primary, replica);
    // Redis does not replicate how many entries a group has read, so groups are not compared.
    let keys = |client: &mut Client| {
        dataset(client).into_iter().map(|(key, parts)| (key, parts[..3].to_vec())).collect::<BTreeMap<_, _>>()
    };
    // A digest is of the scores' form, keys are compared with scores as numbers.
    let same = if [&mut *primary, &mut *replica].iter_mut().any(|client| has_other_digests(client)) {
        become_same(|| keys(replica) == keys(primary))
    } else {
        have_same_digest("DEBUG DIGEST", primary, replica)
    };
    if !same {
        assert_same(&keys(replica), &keys(primary), "a replica and its primary");
        panic!("the same keys, other digests");
    }
}

/// A node has what its primary has, a node: all that a dataset is.
pub fn are_same(primary: &mut Client, replica: &mut Client) {
    has_everything(primary, replica);
    if !have_same_digest("DEBUG FLINT-DIGEST", primary, replica) {
        assert_same_dataset(replica, primary);
        panic!("what differs is no key, no value, no expiry of a key, no group and no function");
    }
}

/// Random writes of all kinds, in several logical databases. `FLINTKV_SEED` repeats them.
pub fn write(primary: &mut Client, seed: u64, count: usize) {
    let (mut writes, mut random) = (Writes::new(seed), Random::new(seed));
    for n in 0..count {
        if n % 50 == 0 {
            primary.run(&format!("SELECT {}", random.below(4)));
        }
        let words = writes.command(wall_ms());
        // With LIMIT, Redis sorts equal weights in an order of its own, and stores what it has found on each server anew.
        if words[0] == b"SORT" && words.iter().any(|word| word == b"LIMIT") {
            continue;
        }
        primary.raw_call(&words.iter().map(Vec::as_slice).collect::<Vec<_>>());
    }
    for line in [
        "SELECT 3",
        "MULTI",
        "SET in:transaction 1",
        "SELECT 2",
        "SET in:transaction 2",
        "EXEC",
        "EVAL \"redis.call('SET', KEYS[1], ARGV[1]); return redis.call('INCR', KEYS[2])\" 2 script:a script:b 7",
        "SELECT 0",
        "SWAPDB 0 1",
    ] {
        let reply = primary.run(line);
        assert!(!reply.starts_with("(error)"), "{line}: {reply}");
    }
}

const LIBRARY: &str = "FUNCTION LOAD REPLACE \"#!lua name=lib\\nredis.register_function{function_name='seven', callback=function() return 7 end, \
     flags={'no-writes'}} redis.register_function('writer', function() return 8 end)\"";

#[test]
fn a_node_takes_redis_servers_dataset_and_follows_it() {
    for diskless in ["yes", "no"] {
        let Some(redis) = redis(&["--repl-diskless-sync", diskless]) else { return };
        let mut primary = redis.connect();
        write(&mut primary, 7, 800);
        assert_eq!(primary.run(LIBRARY), "\"lib\"");
        let node = node(&[]);
        let mut replica = node.connect();
        replica.run("SET own 1");
        follow(&mut replica, redis.port);
        assert_eq!(replica.run("EXISTS own"), "(integer) 0");
        agree(&mut primary, &mut replica);
        assert_eq!(replica.run("FCALL seven 0"), "(integer) 7");
        assert!(replica.run("FCALL writer 0").contains("READONLY You can't write against a read only replica"));

        write(&mut primary, 8, 800);
        agree(&mut primary, &mut replica);
        for line in ["FUNCTION FLUSH", "FLUSHALL", "SET k v", "SELECT 9", "SET k w"] {
            primary.run(line);
        }
        agree(&mut primary, &mut replica);
        assert_eq!(replica.run("GET k"), "\"v\"");
        assert!(replica.run("FCALL seven 0").starts_with("(error) ERR Function not found"));
        assert_eq!(replica.info("keyspace", "db9"), "keys=1,expires=0,avg_ttl=0,cached_keys=1");
        assert_eq!(replica.info("replication", "replica_failed_commands"), "0");
        assert_eq!(primary.info("stats", "sync_full"), "1");
    }
}

#[test]
fn a_link_that_was_cut_goes_on_where_it_was() {
    let Some(redis) = redis(&["--repl-backlog-size", "64mb"]) else { return };
    let node = node(&[]);
    let (mut primary, mut replica) = (redis.connect(), node.connect());
    primary.run("SET before 1");
    follow(&mut replica, redis.port);
    let port = redis.port;
    let writing = thread::spawn(move || {
        for seed in 0..10 {
            write(&mut Client::connect(port), 100 + seed, 500);
        }
    });
    for cut in 1..=10 {
        assert_eq!(primary.run("CLIENT KILL TYPE replica"), "(integer) 1");
        eventually("the link is up again", || primary.info("stats", "sync_partial_ok") == cut.to_string());
        eventually("it is", || replica.info("replication", "master_link_status") == "up");
    }
    writing.join().unwrap();
    agree(&mut primary, &mut replica);
    assert_eq!(primary.info("stats", "sync_full"), "1");
}

#[test]
fn a_value_larger_than_the_backlogs_window_needs_no_full_synchronisation() {
    // The window is 3 MB. A debug build itself takes half of the RAM.
    let limits = [("memory-limit", "96mb")];
    let nodes = [node(&limits), node(&limits)];
    let [mut primary, mut replica] = [nodes[0].connect(), nodes[1].connect()];
    primary.run("SET before 1");
    follow(&mut replica, nodes[0].port);
    for size in [4, 6, 5] {
        assert_eq!(primary.words(&[b"SET", format!("large:{size}").as_bytes(), &vec![b'v'; size << 20]]), "OK");
        assert_eq!(primary.run(&format!("APPEND large:{size} x")), format!("(integer) {}", (size << 20) + 1));
    }
    has_everything(&mut primary, &mut replica);
    are_same(&mut primary, &mut replica);
    assert_eq!(primary.info("stats", "sync_full"), "1");
}

/// Passes on what goes between the replica and its primary, and cuts each connection behind so many bytes of the primary.
fn cutter(primary: u16, limits: Vec<usize>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut limits = limits.into_iter();
        for replica in listener.incoming() {
            let (mut replica, Ok(mut primary)) = (replica.unwrap(), TcpStream::connect(("127.0.0.1", primary))) else {
                return;
            };
            let (mut from_replica, mut to_primary) = (replica.try_clone().unwrap(), primary.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut from_replica, &mut to_primary));
            let limit = limits.next().unwrap_or(usize::MAX);
            // Either side may end it first.
            let _ = std::io::copy(&mut primary.by_ref().take(limit as u64), &mut replica);
            let _ = (replica.shutdown(Shutdown::Both), primary.shutdown(Shutdown::Both));
        }
    });
    port
}

#[test]
fn a_link_that_is_cut_anywhere_ends_in_the_same_dataset() {
    for diskless in ["yes", "no"] {
        let Some(redis) = redis(&["--repl-diskless-sync", diskless, "--repl-backlog-size", "64mb"]) else { return };
        let node = node(&[]);
        let (mut primary, mut replica) = (redis.connect(), node.connect());
        write(&mut primary, 60, 400);
        // In the answers of the handshake, in that to PSYNC, in the dataset, in the stream.
        let limits = vec![1, 6, 9, 12, 20, 30, 80, 100, 120, 300, 2000, 12_000, 14_000, 16_000, 20_000];
        let cuts = limits.len();
        let port = cutter(redis.port, limits);
        assert_eq!(replica.run(&format!("REPLICAOF 127.0.0.1 {port}")), "OK");
        for seed in 0..3 {
            write(&mut primary, 70 + seed, 100);
        }
        eventually("all connections were cut", || {
            primary.run("SET more more");
            primary.info_number("stats", "total_connections_received") > cuts as u64
        });
        is_up(&mut replica);
        agree(&mut primary, &mut replica);
    }
}

#[test]
fn clients_read_and_do_not_write_until_the_promotion() {
    let Some(redis) = redis(&[]) else { return };
    let node = node(&[]);
    let (mut primary, mut replica) = (redis.connect(), node.connect());
    primary.run("SET k 1");
    let mut blocked = node.connect();
    blocked.send(b"BLPOP list 0\r\n");
    eventually("it waits", || replica.info("clients", "blocked_clients") == "1");
    follow(&mut replica, redis.port);
    let unblocked = "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";
    assert_eq!(blocked.read(), format!("(error) {unblocked}"));
    assert_eq!(blocked.rest(), b"");

    let read_only = "(error) READONLY You can't write against a read only replica.";
    for line in ["SET k 2", "FLUSHALL", "BLPOP list 0", "SWAPDB 0 1", LIBRARY] {
        assert_eq!(replica.run(line), read_only, "{line}");
    }
    assert!(replica.run("EVAL \"return redis.call('SET', 'k', 2)\" 0").contains("READONLY"));
    assert_eq!(replica.run("MULTI"), "OK");
    assert_eq!(replica.run("SET k 2"), read_only);
    assert!(replica.run("EXEC").starts_with("(error) EXECABORT"));
    assert_eq!(replica.run("GET k"), "\"1\"");
    assert_eq!(replica.info("replication", "role"), "slave");
    assert_eq!(replica.info("replication", "slave_read_only"), "1");
    let again = format!("REPLICAOF 127.0.0.1 {}", redis.port);
    assert_eq!(replica.run(&again), "OK Already connected to specified master");

    // A reader waits for what the primary writes.
    let mut reader = node.connect();
    reader.send(b"XREAD BLOCK 0 STREAMS stream 0\r\n");
    let mut listener = node.connect();
    listener.run("SUBSCRIBE news");
    eventually("it waits", || replica.info("clients", "blocked_clients") == "1");
    primary.run("XADD stream 1-1 a b");
    assert!(reader.read().contains("1-1"));
    primary.run("PUBLISH news hello");
    assert!(listener.read().contains("hello"));

    assert_eq!(replica.run("REPLICAOF NO ONE"), "OK");
    assert_eq!(replica.run("SET k 3"), "OK");
    assert_eq!(replica.info("replication", "role"), "master");
    primary.run("SET k 4");
    assert_eq!(replica.run("GET k"), "\"3\"");
}

#[test]
fn keys_expire_when_the_primary_says_so_and_are_hidden_before() {
    let Some(redis) = redis(&[]) else { return };
    let node = node(&[]);
    let (mut primary, mut replica) = (redis.connect(), node.connect());
    primary.run("DEBUG SET-ACTIVE-EXPIRE 0");
    follow(&mut replica, redis.port);
    primary.run("SET soon 1 PX 50");
    primary.run("SET later 1 PX 100000000");
    eventually("it is there", || replica.run("EXISTS later") == "(integer) 1");
    eventually("it is hidden", || replica.run("EXISTS soon") == "(integer) 0");
    assert_eq!(replica.run("DBSIZE"), "(integer) 2");
    // At the very millisecond of its expiry the key is hidden here, and still there for redis-server.
    eventually("it is gone", || {
        primary.run("GET soon");
        replica.run("DBSIZE") == "(integer) 1"
    });
    agree(&mut primary, &mut replica);
}

#[test]
fn a_primary_that_wants_a_password_gets_it_and_one_that_is_away_is_told_of() {
    let Some(redis) = redis(&["--requirepass", "word"]) else { return };
    let node = node(&[("replica-serve-stale-data", "no"), ("masterauth", "wrong")]);
    let (mut primary, mut replica) = (redis.connect(), node.connect());
    primary.run("AUTH word");
    primary.run("SET k 1");
    assert_eq!(replica.run(&format!("REPLICAOF 127.0.0.1 {}", redis.port)), "OK");
    let refused = "it refuses masteruser and masterauth: -WRONGPASS";
    eventually("it is refused", || replica.info("replication", "master_link_error").starts_with(refused));
    let down = "(error) MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
    assert_eq!(replica.run("GET k"), down);
    assert_eq!(replica.run("CONFIG SET masterauth word"), "OK");
    is_up(&mut replica);
    assert_eq!(replica.run("GET k"), "\"1\"");
    let library = "#!lua name=lib\nredis.register_function{function_name='f', callback=function() return redis.call('GET', 'k') end, \
                   flags={'no-writes'}}\nredis.register_function{function_name='s', callback=function() return redis.pcall('GET', 'k') end, \
                   flags={'no-writes', 'allow-stale'}}";
    assert_eq!(primary.words(&[b"FUNCTION", b"LOAD", library.as_bytes()]), "\"lib\"");
    eventually("the functions are there", || replica.run("FCALL_RO f 0") == "\"1\"");
    let mut queued = node.connect();
    for line in ["MULTI", "GET k"] {
        queued.run(line);
    }
    drop(redis);
    eventually("the primary is away", || replica.run("GET k") == down);
    assert_eq!(replica.info("replication", "master_link_status"), "down");
    // Neither do scripts and transactions get what no command gets.
    let get = "return redis.pcall('GET', 'k')";
    for name in ["EVAL", "EVAL_RO"] {
        assert_eq!(replica.words(&[name.as_bytes(), get.as_bytes(), b"1", b"k"]), down, "{name}");
        assert_eq!(replica.words(&[name.as_bytes(), b"return 1", b"0"]), down, "{name}");
        let shebang = |flags: &str| format!("#!lua flags={flags}\n{get}");
        let (without, with) = (shebang("no-writes"), shebang("no-writes,allow-stale"));
        let flag = "(error) MASTERDOWN Link with MASTER is down, replica-serve-stale-data is set to 'no' and 'allow-stale' flag is not set \
                    on the script.";
        assert_eq!(replica.words(&[name.as_bytes(), without.as_bytes(), b"0"]), flag, "{name}");
        let stale = "(error) ERR Can not execute the command on a stale replica";
        let said = replica.words(&[name.as_bytes(), with.as_bytes(), b"0"]);
        assert!(said.starts_with(stale), "{name}: {said}");
        let name = name.replace("EVAL", "FCALL");
        assert_eq!(replica.run(&format!("{name} f 0")), flag, "{name}");
        assert!(replica.run(&format!("{name} s 0")).starts_with(stale), "{name}");
    }
    let aborted = format!("(error) EXECABORT Transaction discarded because of: {}", &down["(error) ".len()..]);
    assert_eq!(queued.run("EXEC"), aborted);
    // What needs no dataset is answered.
    for (line, reply) in [("MULTI", "OK"), ("ECHO a", "QUEUED"), ("EXEC", "1) \"a\"")] {
        assert_eq!(queued.run(line), reply, "{line}");
    }
    for (line, reply) in [("MULTI", "OK"), ("REPLICAOF NO ONE", "QUEUED"), ("EXEC", "1) OK")] {
        assert_eq!(queued.run(line), reply, "{line}");
    }
    eventually("it is its own primary", || queued.run("GET k") == "\"1\"");
}

#[test]
fn the_offset_that_a_replica_shows_is_what_its_clients_read() {
    let flash = tempfile::tempdir().unwrap();
    let path = flash.path().to_str().unwrap();
    let limits = [("flash-path", path), ("memory-limit", "256mb"), ("ram-limit", "128mb"), ("debug-tier-mode", "cold")];
    let (primary, replica) = (node(&[]), node(&limits));
    let (mut of_primary, mut of_replica) = (primary.connect(), replica.connect());
    of_primary.run("SET counter 0");
    follow(&mut of_replica, primary.port);
    let writer = thread::spawn(move || {
        // The offset behind each number.
        let mut offsets = vec![(0, 0)];
        for round in 0..200 {
            let mut bytes = Vec::new();
            for number in 0..10 {
                let field = format!("f{}", round * 10 + number);
                resp::client::encode_command(&[b"HSET", b"hash", field.as_bytes(), &[b'x'; 100]], &mut bytes);
                resp::client::encode_command(&[b"INCR", b"counter"], &mut bytes);
            }
            of_primary.send(&bytes);
            (0..20).for_each(|_| drop(of_primary.read()));
            offsets.push((of_primary.info_number("replication", "master_repl_offset"), 10 * (round + 1)));
        }
        offsets
    });
    let mut seen = Vec::new();
    let mut has = 0;
    while has < 2000 {
        let of_role = of_replica.run("ROLE").rsplit_once("(integer) ").map_or(0, |(_, offset)| offset.parse().unwrap());
        let of_info = of_replica.info_number("replication", "slave_repl_offset");
        has = of_replica.run("GET counter").trim_matches('"').parse().unwrap();
        seen.push((of_info.max(of_role), has));
    }
    let offsets = writer.join().unwrap();
    for (offset, has) in seen {
        let at_least = offsets[offsets.partition_point(|(at, _)| *at <= offset) - 1].1;
        assert!(has >= at_least, "at offset {offset} the counter is {has}, and was {at_least} at the primary");
    }
}

#[test]
fn a_restarted_primary_is_synchronised_with_anew() {
    let Some(first) = redis(&[]) else { return };
    let node = node(&[]);
    let mut replica = node.connect();
    first.connect().run("SET first 1");
    follow(&mut replica, first.port);
    let Some(second) = redis(&[]) else { return };
    second.connect().run("SET second 1");
    assert_eq!(replica.run(&format!("REPLICAOF 127.0.0.1 {}", second.port)), "OK");
    eventually("the other dataset is there", || replica.run("EXISTS second") == "(integer) 1");
    is_up(&mut replica);
    agree(&mut second.connect(), &mut replica);
    assert_eq!(replica.run("EXISTS first"), "(integer) 0");
}

#[test]
fn a_replica_with_a_journal_goes_on_behind_a_restart() {
    let Some(redis) = redis(&["--repl-backlog-size", "64mb"]) else { return };
    let port = redis.port.to_string();
    let primary_of = format!("127.0.0.1 {port}");
    let directives: &[(&str, &str)] =
        &[("enable-debug-command", "yes"), ("appendonly", "yes"), ("replicaof", &primary_of)];
    let mut primary = redis.connect();
    write(&mut primary, 1, 500);
    let mut node = Node::start(directives);
    for round in 0..3 {
        let mut replica = node.connect();
        is_up(&mut replica);
        agree(&mut primary, &mut replica);
        write(&mut primary, 20 + round, 500);
        agree(&mut primary, &mut replica);
        drop(replica);
        node = crate::persist::kill(node, directives);
        write(&mut primary, 30 + round, 500);
    }
    let mut replica = crate::persist::loaded(&node);
    assert_eq!(primary.run("WAIT 1 0"), "(integer) 1");
    is_up(&mut replica);
    agree(&mut primary, &mut replica);
    assert_eq!(primary.info("stats", "sync_full"), "1");
    assert_eq!(primary.info("stats", "sync_partial_ok"), "3");
}

// --- a node follows a node ---

const JOURNAL: (&str, &str) = ("appendonly", "yes");

#[test]
fn a_chain_of_nodes_agrees_and_goes_on_where_it_was_cut() {
    for persistence in ["no", "yes"] {
        let nodes = [0; 3].map(|_| node(&[("appendonly", persistence)]));
        let [mut first, mut second, mut third] = [0, 1, 2].map(|at: usize| nodes[at].connect());
        write(&mut first, 1, 300);
        first.run("HSET h f v g w");
        first.run("HPEXPIREAT h 4000000000000 FIELDS 1 f");
        follow(&mut second, nodes[0].port);
        follow(&mut third, nodes[1].port);
        write(&mut first, 2, 300);
        are_same(&mut first, &mut second);
        are_same(&mut first, &mut third);
        for round in 0..3 {
            assert_eq!(first.run("CLIENT KILL TYPE replica"), "(integer) 1");
            assert_eq!(second.run("CLIENT KILL TYPE replica"), "(integer) 1");
            write(&mut first, 10 + round, 200);
            are_same(&mut first, &mut second);
            are_same(&mut first, &mut third);
        }
        let ids = [&mut first, &mut second, &mut third].map(|client| client.info("replication", "master_replid"));
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
        let id = ids[0].clone();
        for client in [&mut first, &mut second] {
            assert_eq!(client.info("stats", "sync_full"), "1");
        }

        // The middle one becomes a primary, and its replica stays one. Nothing expires at the old primary meanwhile.
        first.run("FLUSHALL");
        are_same(&mut first, &mut third);
        assert_eq!(second.run("REPLICAOF NO ONE"), "OK");
        write(&mut second, 20, 200);
        are_same(&mut second, &mut third);
        assert_eq!(second.info("stats", "sync_full"), "1");
        let ids = [&mut second, &mut third].map(|client| client.info("replication", "master_replid"));
        assert!(ids[0] == ids[1] && ids[0] != id, "the replica has learnt the new id: {ids:?}");
        // The old primary comes back as its replica, and has lost nothing that the new one does not know.
        follow(&mut first, nodes[1].port);
        write(&mut second, 30, 200);
        are_same(&mut second, &mut first);
        assert_eq!(second.info("stats", "sync_full"), "1", "the old primary goes on with the second id");
    }
}

#[test]
fn a_restart_on_either_side_is_no_full_synchronisation() {
    let directives: &[(&str, &str)] = &[("enable-debug-command", "yes"), JOURNAL];
    let mut primary = Node::start(directives);
    let mut replica = Node::start(directives);
    follow(&mut replica.connect(), primary.port);
    let mut id = String::new();
    for round in 0..4 {
        let (mut of_primary, mut of_replica) = (crate::persist::loaded(&primary), crate::persist::loaded(&replica));
        is_up(&mut of_replica);
        write(&mut of_primary, 40 + round, 200);
        are_same(&mut of_primary, &mut of_replica);
        let now = of_primary.info("replication", "master_replid");
        assert!(id.is_empty() || id == now, "the stream goes on with its id");
        id = now;
        let synchronised = of_primary.info_number("stats", "sync_full");
        assert_eq!(synchronised, u64::from(round < 2), "round {round}");
        drop((of_primary, of_replica));
        if round % 2 == 0 {
            let followed = format!("127.0.0.1 {}", primary.port);
            replica = crate::persist::kill(replica, &[directives, &[("replicaof", &followed)]].concat());
        } else {
            // It comes back on another port.
            primary = crate::persist::kill(primary, directives);
            follow(&mut replica.connect(), primary.port);
        }
    }
}

#[test]
fn no_write_that_a_replica_has_acknowledged_is_lost_with_the_primary() {
    for seed in 0..3_u64 {
        let (mut primary, replica) = (node(&[]), node(&[]));
        let mut of_replica = replica.connect();
        follow(&mut of_replica, primary.port);
        let port = primary.port;
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                thread::spawn(move || {
                    let mut client = Client::connect(port);
                    let mut acknowledged = 0;
                    for n in 1.. {
                        client.send(format!("SET writer:{writer} {n}\r\nWAIT 1 0\r\n").as_bytes());
                        let set = client.raw();
                        if set.is_none() || client.raw().as_deref() != Some(b":1\r\n") {
                            break;
                        }
                        acknowledged = n;
                    }
                    acknowledged
                })
            })
            .collect();
        eventually("something is written", || {
            of_replica.run("GET writer:0").trim_matches('"').parse::<u64>().is_ok_and(|n| n > 50 + 30 * seed)
        });
        primary.signal(9);
        primary.ended();
        let acknowledged: Vec<u64> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        assert_eq!(of_replica.run("REPLICAOF NO ONE"), "OK");
        for (writer, acknowledged) in acknowledged.into_iter().enumerate() {
            assert!(acknowledged > 0);
            let found: u64 = of_replica.run(&format!("GET writer:{writer}")).trim_matches('"').parse().unwrap();
            assert!(found >= acknowledged, "writer {writer}: {found} of {acknowledged}");
        }
    }
}

#[test]
fn a_replica_tells_of_keys_as_a_primary_does() {
    let (primary, replica) = (node(&[]), node(&[("notify-keyspace-events", "KEA")]));
    let (mut of_primary, mut of_replica) = (primary.connect(), replica.connect());
    follow(&mut of_replica, primary.port);
    of_primary.run("SET k 1");
    are_same(&mut of_primary, &mut of_replica);
    let mut listener = replica.connect();
    listener.run("PSUBSCRIBE __key*");
    let mut tracker = replica.connect();
    for line in ["HELLO 3", "CLIENT TRACKING ON", "GET k"] {
        tracker.run(line);
    }
    of_primary.run("SET k 2");
    assert!(listener.read().contains("__keyspace@0__:k"));
    assert!(listener.read().contains("__keyevent@0__:set"));
    let told = tracker.read();
    assert!(told.contains("invalidate"), "{told}");
    of_primary.run("SPUBLISH c m");
    of_primary.run("SET soon 1 PX 30");
    eventually("the primary says that it has expired", || of_replica.run("DBSIZE") == "(integer) 1");
    assert_eq!(of_replica.run("ROLE").lines().next(), Some("1) \"slave\""));
}

#[test]
fn a_dataset_larger_than_the_replicas_ram_goes_to_its_flash() {
    let primary = node(&[]);
    let limits = [("memory-limit", "400mb"), ("ram-limit", "64mb"), ("flash-path", "flash")];
    let replica = node(&[&limits[..], &[JOURNAL, ("flash-segment-size", "256kb")]].concat());
    let (mut of_primary, mut of_replica) = (primary.connect(), replica.connect());
    of_replica.run("DEBUG POPULATE 3000 own 1000");
    replica.limit_objects(2 << 20);
    for seed in 0..2 {
        of_primary.run(&format!("DEBUG POPULATE 10000 key{seed} 1000"));
        write(&mut of_primary, 50 + seed, 300);
        assert_eq!(of_replica.run("REPLICAOF NO ONE"), "OK");
        of_replica.run("SET own 1");
        follow(&mut of_replica, primary.port);
        of_primary.run(&format!("DEBUG POPULATE 2000 more{seed} 1000"));
        for n in 0..200 {
            of_primary.run(&format!("APPEND key{seed}:{n} more"));
        }
        are_same(&mut of_primary, &mut of_replica);
        assert!(of_replica.info_number("tiering", "values_in_flash") > 5000);
    }
    drop(of_replica);
    let replica = crate::persist::kill(replica, &[&limits[..], &[JOURNAL, ("enable-debug-command", "yes")]].concat());
    let mut again = crate::persist::loaded(&replica);
    // A key may expire between two digests.
    eventually("it has the same", || again.run("DEBUG FLINT-DIGEST") == of_primary.run("DEBUG FLINT-DIGEST"));
}

const ON_FLASH: [(&str, &str); 4] =
    [("memory-limit", "400mb"), ("ram-limit", "64mb"), ("flash-path", "flash"), ("flash-segment-size", "256kb")];

/// A primary most of whose values are on flash, in logical databases that are not swapped.
fn primary_on_flash(more: &[(&str, &str)]) -> (Node, Client) {
    let primary = node(&[&ON_FLASH[..], &[("debug-tier-mode", "cold")], more].concat());
    let mut client = primary.connect();
    client.run("DEBUG POPULATE 9000 key 1000");
    change_some(&mut client, 0..3000);
    eventually("values are on flash", || client.info_number("tiering", "values_in_flash") > 8_000);
    // Some are in RAM, and some there have a copy.
    assert_eq!(client.run("CONFIG SET debug-tier-mode off"), "OK");
    change_some(&mut client, 3000..3500);
    for n in 0..500 {
        client.run(&format!("GET key:{n}"));
    }
    (primary, client)
}

/// Writes of all types, in several logical databases: incompressible values, some over pages, some that expire soon.
fn change_some(client: &mut Client, numbers: std::ops::Range<u64>) {
    for n in numbers {
        let mut random = Random::new(n);
        if n % 50 == 0 {
            client.run(&format!("SELECT {}", n / 50 % 4));
        }
        let value: String = (0..20 + n * 37 % 1500).map(|_| format!("{:02x}", random.below(256))).collect();
        let expiry = if n % 3 == 0 { 800 + n } else { 90_000_000 };
        let key = random.below(400);
        let lines = [
            format!("SET noise:{n} {value} PX {expiry}"),
            format!("HSET hash:{key} {n} {value} same {n}"),
            format!("RPUSH list:{key} {value} {n}"),
            format!("SADD set:{key} {n} {value}"),
            format!("ZADD zset:{key} {n} {value}"),
            format!("XADD stream:{key} {}-1 f {value}", n + 1),
            format!("DEL noise:{} hash:{}", n / 2, key / 2),
            format!("APPEND key:{} {n}", n * 3),
        ];
        let reply = client.run(&lines[(n % 8) as usize]);
        assert!(!reply.starts_with("(error)"), "{reply}");
    }
    client.run("SELECT 0");
}

#[test]
fn pages_of_a_primarys_flash_come_as_they_are() {
    for (codec, persistence) in [("zstd", "yes"), ("lz4", "no")] {
        let (primary, mut of_primary) = primary_on_flash(&[("flash-compression", codec), ("appendonly", persistence)]);
        let settings = [&ON_FLASH[..], &[("appendonly", persistence)]].concat();
        let (second, third, in_ram) = (node(&settings), node(&settings), node(&[]));
        let (mut of_second, mut of_third, mut of_ram) = (second.connect(), third.connect(), in_ram.connect());
        // What was here gives way.
        of_second.run("DEBUG POPULATE 3000 own 1000");
        assert_eq!(of_second.run(&format!("REPLICAOF 127.0.0.1 {}", primary.port)), "OK");
        change_some(&mut of_primary, 3500..4500);
        is_up(&mut of_second);
        are_same(&mut of_primary, &mut of_second);
        let taken = of_second.info_number("tiering", "taken_records");
        assert!(taken > 5_000, "{taken}");
        // From there to the next one, and to one without flash.
        follow(&mut of_third, second.port);
        follow(&mut of_ram, second.port);
        change_some(&mut of_primary, 4500..5500);
        for n in 0..2000 {
            of_primary.run(&format!("APPEND key:{n} more"));
        }
        for replica in [&mut of_second, &mut of_third, &mut of_ram] {
            are_same(&mut of_primary, replica);
        }
        assert!(of_third.info_number("tiering", "taken_records") > 5_000);
        assert_eq!(of_ram.info("tiering", "taken_records"), "0");
        assert_eq!(of_second.info("stats", "sync_full"), "2");
        if persistence == "yes" {
            drop(of_third);
            let third = crate::persist::kill(third, &[&settings[..], &[("enable-debug-command", "yes")]].concat());
            let mut again = crate::persist::loaded(&third);
            // What expires does so on its own now.
            eventually("it has the same", || again.run("DEBUG FLINT-DIGEST") == of_primary.run("DEBUG FLINT-DIGEST"));
        }
    }
}

/// Pages go to flash, also those of values that the RAM would have had room for.
#[test]
fn a_replica_whose_flash_is_too_small_for_pages_takes_the_values() {
    let (primary, mut of_primary) = primary_on_flash(&[]);
    assert_eq!(of_primary.run("CONFIG SET debug-tier-mode cold"), "OK");
    let mut random = Random::new(1);
    for n in 0..9000 {
        let value: String = (0..500).map(|_| format!("{:02x}", random.below(256))).collect();
        of_primary.run(&format!("SET large:{n} {value}"));
    }
    let limits = [("memory-limit", "134mb"), ("ram-limit", "128mb")];
    let replica = node(&[&limits[..], &ON_FLASH[2..]].concat());
    let mut of_replica = replica.connect();
    follow(&mut of_replica, primary.port);
    are_same(&mut of_primary, &mut of_replica);
    assert_eq!(of_primary.info("stats", "sync_full"), "2");
    let log = replica.log();
    assert!(log.contains("cannot be imported: there is no room for them"), "{log}");
}

#[test]
fn the_configuration_file_keeps_the_role() {
    let primary = node(&[]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("flintkv.conf");
    std::fs::write(&file, "replicaof 127.0.0.1 1\n").unwrap();
    let replica = Node::start_with_file(&file, &[("enable-debug-command", "yes")]);
    let mut client = replica.connect();
    let told = "it cannot be reached: Connection refused";
    eventually("it tells why", || client.info("replication", "master_link_error").starts_with(told));
    assert_eq!(client.run("CONFIG GET slaveof"), "1) \"slaveof\"\n2) \"127.0.0.1 1\"");
    assert_eq!(client.run("SET k v"), "(error) READONLY You can't write against a read only replica.");
    let not_reloaded = "(error) ERR a replica's dataset comes from its primary: it is not reloaded";
    assert_eq!(client.run("DEBUG RELOAD"), not_reloaded);
    // As Sentinel does it: a transaction does not wait for the change.
    for line in ["MULTI", &format!("SLAVEOF 127.0.0.1 {}", primary.port), "CONFIG REWRITE", "CLIENT KILL TYPE normal"] {
        assert!(!client.run(line).starts_with("(error)"), "{line}");
    }
    client.run("EXEC");
    let mut client = replica.connect();
    is_up(&mut client);
    assert_eq!(client.run("CONFIG REWRITE"), "OK");
    let kept = std::fs::read_to_string(&file).unwrap();
    assert!(kept.contains(&format!("replicaof 127.0.0.1 {}\n", primary.port)), "{kept}");
    for line in ["MULTI", "REPLICAOF NO ONE", "SET before 1"] {
        assert!(!client.run(line).starts_with("(error)") || line.starts_with("SET"), "{line}");
    }
    client.run("DISCARD");
    for line in ["MULTI", "REPLICAOF NO ONE", "EXEC"] {
        client.run(line);
    }
    eventually("it is a primary", || client.info("replication", "role") == "master");
    eventually("clients write", || client.run("SET k v") == "OK");
    assert_eq!(client.run("CONFIG REWRITE"), "OK");
    assert!(!std::fs::read_to_string(&file).unwrap().contains("replicaof 127"));
}

/// A restart must know that the stream is not the primary's any more. While that cannot be written, the node stays a replica, and tries
/// again by itself.
#[test]
fn a_promotion_that_a_restart_would_not_know_is_not_done() {
    let primary = node(&[]);
    let primary_of = format!("127.0.0.1 {}", primary.port);
    let replica = node(&[JOURNAL, ("replicaof", &primary_of)]);
    let mut client = replica.connect();
    is_up(&mut client);
    assert_eq!(primary.connect().run("SET k v"), "OK");
    eventually("it has the key", || client.run("GET k") == "\"v\"");
    let id = client.info("replication", "master_replid");
    // Where the manifest is drafted, there is something else.
    let draft = replica.dir.path().join("flintkv.journal/manifest.new");
    eventually("it is durable", || draft.parent().unwrap().join("manifest").exists());
    std::fs::create_dir(&draft).unwrap();
    let refused = client.run("REPLICAOF NO ONE");
    assert!(refused.starts_with("(error) ERR the database is not promoted"), "{refused}");
    assert_eq!(client.run("SET k w"), "(error) READONLY You can't write against a read only replica.");
    assert_eq!(client.info("replication", "role"), "slave");
    assert_eq!(client.info("replication", "master_replid"), id);
    std::fs::remove_dir(&draft).unwrap();
    eventually("it is promoted", || client.run("SET k w") == "OK");
    assert_eq!(client.info("replication", "role"), "master");
    assert_ne!(client.info("replication", "master_replid"), id);
    assert_eq!(client.info("replication", "master_replid2"), id);
}

/// Of several changes of the role at once, the last one holds.
#[test]
fn the_last_of_several_roles_holds() {
    let (primary, replica) = (node(&[]), node(&[]));
    let mut client = replica.connect();
    for _ in 0..20 {
        let away = "REPLICAOF 127.0.0.1 1\r\nREPLICAOF NO ONE\r\n".repeat(3);
        client.send(format!("{away}REPLICAOF 127.0.0.1 {}\r\n", primary.port).as_bytes());
        for _ in 0..7 {
            assert_eq!(client.raw().as_deref(), Some(&b"+OK\r\n"[..]));
        }
        is_up(&mut client);
        assert_eq!(client.run("REPLICAOF NO ONE"), "OK");
        assert_eq!(client.run("SET k v"), "OK");
    }
}

/// A set of 30 MB, all of it in RAM. Half of the RAM for objects is less.
fn add_large_set(client: &mut Client) {
    for batch in 0..60 {
        let members: Vec<String> = (0..500).map(|n| format!("{:01000}", batch * 500 + n)).collect();
        let words: Vec<&[u8]> =
            [&b"SADD"[..], b"set"].into_iter().chain(members.iter().map(String::as_bytes)).collect();
        assert_eq!(client.words(&words), "(integer) 500");
    }
}

const LITTLE_RAM: [(&str, &str); 4] =
    [("memory-limit", "400mb"), ("ram-limit", "64mb"), ("flash-path", "flash"), ("flash-segment-size", "1mb")];

/// The replica had the set on flash, and refused what needs all of it: the copy was missing there.
#[test]
fn a_replica_copies_a_set_that_its_ram_does_not_leave_room_for() {
    let primary = node(&[("memory-limit", "400mb")]);
    let replica = node(&[&LITTLE_RAM[..], &[("debug-tier-mode", "cold")]].concat());
    let (mut of_primary, mut of_replica) = (primary.connect(), replica.connect());
    follow(&mut of_replica, primary.port);
    add_large_set(&mut of_primary);
    has_everything(&mut of_primary, &mut of_replica);
    for (lines, copies) in [(&["COPY set alone"][..], 2), (&["MULTI", "COPY set in:transaction", "EXEC"], 3)] {
        for line in lines {
            assert!(!of_primary.run(line).starts_with("(error)"));
        }
        has_everything(&mut of_primary, &mut of_replica);
        assert_eq!(of_replica.run("DBSIZE"), format!("(integer) {copies}"));
        are_same(&mut of_primary, &mut of_replica);
    }
}

/// Recovery refused to start for such a command, and left it out without a word if it was in a transaction.
#[test]
fn a_recovery_copies_a_set_that_the_ram_does_not_leave_room_for() {
    let directives = [&LITTLE_RAM[..], &[JOURNAL, ("enable-debug-command", "yes")]].concat();
    for lines in [&["COPY set copy"][..], &["MULTI", "COPY set copy", "SET k 1", "EXEC"]] {
        let node = Node::start(&directives);
        let mut client = node.connect();
        add_large_set(&mut client);
        assert_eq!(client.run("CONFIG SET debug-tier-mode cold"), "OK");
        crate::points_in_time::rewrite(&mut client);
        // As if the primary had it in RAM: the limit is higher when the command runs.
        assert_eq!(client.run("CONFIG SET ram-limit 300mb debug-tier-mode off"), "OK");
        for line in lines {
            let reply = client.run(line);
            assert!(!reply.contains("(error)"), "{reply}");
        }
        assert_eq!(client.run("WAITAOF 1 0 10000"), "1) (integer) 1\n2) (integer) 0");
        drop(client);
        let node = crate::persist::kill(node, &directives);
        let mut client = crate::persist::loaded(&node);
        assert_eq!(client.run("SCARD copy"), "(integer) 30000", "{lines:?}");
    }
}

/// The replies of what a replica applies count for no client. A script's writes ended the replica's own connection, and it took the whole
/// dataset anew, again and again.
#[test]
fn the_limits_of_clients_output_do_not_end_what_a_replica_applies() {
    let nodes = [node(&[]), node(&[("client-output-buffer-limit", "normal 1mb 0 0")])];
    let [mut primary, mut replica] = [nodes[0].connect(), nodes[1].connect()];
    follow(&mut replica, nodes[0].port);
    assert_eq!(primary.words(&[b"SET", b"large", &vec![b'v'; 3 << 20]]), "OK");
    let script = "for n = 1, 300000 do redis.call('SET', KEYS[1], n) end return 1";
    assert_eq!(primary.words(&[b"EVAL", script.as_bytes(), b"1", b"k"]), "(integer) 1");
    has_everything(&mut primary, &mut replica);
    are_same(&mut primary, &mut replica);
    assert_eq!(primary.info("stats", "sync_full"), "1");
}
