//! Shards with replicas: processes with a real etcd, killed under load. No write that was acknowledged is lost.

use flintkv_tests::cluster::{Cluster, Member, Role};
use flintkv_tests::cutter::Cutter;
use flintkv_tests::{Client, Redis, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const LIMITS: &[&str] = &["--memory-limit", "200mb", "--ram-limit", "200mb", "--replicas", "1"];
/// Far more than a failover takes, and less than a test waits for anything: the machine may be busy.
const PAUSE_MAX: Duration = Duration::from_secs(20);

fn start() -> Cluster {
    Cluster::start(&[Role::Data, Role::Data, Role::Quorum], &[])
}

fn with<'a>(options: &[&'a str]) -> Vec<&'a str> {
    [LIMITS, options].concat()
}

/// The shards of a database, as this node shows them.
fn shards(cluster: &Cluster, at: usize, name: &str) -> Vec<Value> {
    let shown = cluster.members[at].operator(&["database", "shards", name, "--json"]).unwrap_or_default();
    serde_json::from_str::<Value>(&shown).ok().and_then(|shown| shown.as_array().cloned()).unwrap_or_default()
}

/// Waits until each shard has so many copies in sync, whose nodes run.
fn are_in_sync(cluster: &Cluster, at: usize, name: &str, copies: usize) {
    let mut last = Vec::new();
    let is_in_sync = |copy: &&Value| copy["is_in_sync"] == true && !copy["offset"].is_null();
    let count = |shard: &Value| shard["copies"].as_array().map_or(0, |copies| copies.iter().filter(is_in_sync).count());
    let begun = Instant::now();
    eventually("every shard has its copies in sync", || {
        last = shards(cluster, at, name);
        if begun.elapsed() > Duration::from_secs(20) {
            eprintln!("{last:?}");
        }
        !last.is_empty() && last.iter().all(|shard| count(shard) == copies && shard["trouble"].is_null())
    });
}

/// What a client knows of a counter that it has incremented.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    acknowledged: u64,
    /// Increments that may have been made.
    uncertain: u64,
    longest: Duration,
}

/// Increments a counter and sets a key to the same number, one after the other, until `is_over`.
fn count(client: &mut Client, key: &str, is_over: &AtomicBool) -> Counted {
    let mut counted = Counted::default();
    while !is_over.load(Relaxed) {
        let begun = Instant::now();
        let said = client.run(&format!("INCR {key}"));
        counted.longest = counted.longest.max(begun.elapsed());
        match said.strip_prefix("(integer) ").and_then(|number| number.parse::<u64>().ok()) {
            Some(number) => {
                assert!(number > counted.acknowledged, "{key} went back to {number}: {counted:?}");
                assert!(number <= counted.acknowledged + counted.uncertain + 1, "{key} is {number}: {counted:?}");
                (counted.uncertain, counted.acknowledged) =
                    (counted.acknowledged + counted.uncertain + 1 - number, number);
            }
            None if said.starts_with("(error) UNCERTAIN") => counted.uncertain += 1,
            None => assert!(said.starts_with("(error) CLUSTERDOWN"), "{said}"),
        }
    }
    counted
}

/// Eight clients of the node increment counters, while `meanwhile` runs. Then each counter has what was acknowledged.
fn under_load(cluster: &mut Cluster, at: usize, port: u16, meanwhile: impl FnOnce(&mut Cluster)) -> Duration {
    let is_over = AtomicBool::new(false);
    let mut clients: Vec<Client> = (0..8).map(|_| cluster.members[at].connect(port)).collect();
    let keys: Vec<String> = (0..8).map(|number| format!("at{at}:{number}")).collect();
    let counted: Vec<Counted> = std::thread::scope(|scope| {
        let counting: Vec<_> =
            clients.iter_mut().zip(&keys).map(|(client, key)| scope.spawn(|| count(client, key, &is_over))).collect();
        std::thread::sleep(Duration::from_secs(1));
        meanwhile(cluster);
        is_over.store(true, Relaxed);
        counting.into_iter().map(|thread| thread.join().expect("it counts")).collect()
    });
    for ((client, key), counted) in clients.iter_mut().zip(&keys).zip(&counted) {
        assert!(counted.acknowledged > 0, "{key}: {counted:?}");
        let said = client.run(&format!("GET {key}"));
        let number: u64 = said.trim_matches('"').parse().unwrap_or_else(|_| panic!("{key} is {said}: {counted:?}"));
        let most = counted.acknowledged + counted.uncertain;
        assert!((counted.acknowledged..=most).contains(&number), "{key} is {number}: {counted:?}");
    }
    counted.iter().map(|counted| counted.longest).max().expect("there are clients")
}

/// The node that has primaries now.
fn primaries(cluster: &Cluster, at: usize, name: &str) -> Vec<String> {
    shards(cluster, at, name).iter().map(|shard| shard["node"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Waits until all primaries are at this node, under the load of the clients.
fn all_primaries_are_at(cluster: &Cluster, at: usize, name: &str) {
    let node = cluster.members[at].name.clone();
    eventually("the other node has all primaries", || {
        let found = primaries(cluster, at, name);
        !found.is_empty() && found.iter().all(|name| *name == node)
    });
}

#[test]
fn a_lost_node_takes_no_acknowledged_write_with_it() {
    let mut cluster = start();
    let port = cluster.create("orders", 2, &with(&["--replication", "sync", "--persistence", "none"]));
    are_in_sync(&cluster, 0, "orders", 2);
    let mut before = primaries(&cluster, 0, "orders");
    before.sort();
    assert_eq!(before, ["n1", "n2"], "the primaries are spread");

    // One node, and then the other one: each time the killed one comes back as a replica by itself.
    for (killed, stays) in [(1, 0), (0, 1)] {
        let longest = under_load(&mut cluster, stays, port, |cluster| {
            cluster.members[killed].kill_node();
            all_primaries_are_at(cluster, stays, "orders");
            std::thread::sleep(Duration::from_secs(2));
        });
        eprintln!("n{} was killed: the longest wait of a client was {longest:?}", killed + 1);
        assert!(longest < PAUSE_MAX, "{longest:?}");
        cluster.members[killed].start_node();
        are_in_sync(&cluster, stays, "orders", 2);
    }
    // The node that only votes has led all the time, so it has heard each new primary.
    let was_served = |one: &Value| one["failover"]["served_ms"].as_u64() >= one["failover"]["named_ms"].as_u64();
    eventually("each failover says when the shard was served again", || {
        let shown = cluster.members[1].operator(&["cluster", "operations", "--json"]).expect("it answers");
        let mut failovers = serde_json::from_str::<Vec<Value>>(&shown).expect("a list");
        failovers.retain(|one| one["kind"] == "failover");
        failovers.len() >= 3 && failovers.iter().all(was_served)
    });
}

/// All keys of this client's database.
fn keys(client: &mut Client) -> String {
    let mut said = String::new();
    eventually("all shards are served", || {
        said = client.run("DBSIZE");
        !said.starts_with("(error)")
    });
    said
}

/// The primary takes writes while nothing goes from node to node, and then its process ends or stands still. Returns how many of the writes
/// were accepted, and the old and the new primary. `None`: the other copy has left the in-sync set meanwhile, because the machine is slow.
fn part(cluster: &mut Cluster, cutters: &[Cutter], port: u16, is_killed: bool) -> Option<(u64, usize, usize)> {
    let old = usize::from(primaries(cluster, 0, "orders") != ["n1"]);
    let new = 1 - old;
    let signal = |cluster: &Cluster, signal| {
        let pid = Pid::from_raw(cluster.members[old].pid() as i32).expect("a process");
        kill_process(pid, signal).expect("it runs");
    };
    let mut client = cluster.members[old].connect(port);
    assert_eq!(client.run("GET k1"), "\"1\"");
    cutters.iter().for_each(Cutter::hold_both);
    let accepted =
        (0..TAIL).take_while(|number| client.run(&format!("SET tail{number} {number}")) == "OK").count() as u64;
    match is_killed {
        true => cluster.members[old].kill_node(),
        false => signal(cluster, Signal::STOP),
    }
    cutters.iter().for_each(Cutter::cut_all);
    let mut is_out = false;
    eventually("the other copy is promoted, or not in the set", || {
        let Some(shard) = shards(cluster, new, "orders").into_iter().next() else { return false };
        let new_name = &*cluster.members[new].name;
        let is_member = |copy: &Value| copy["node"] == new_name && copy["is_in_sync"] == true;
        is_out = !shard["copies"].as_array().is_some_and(|copies| copies.iter().any(is_member));
        is_out || shard["node"] == new_name && shard["trouble"].is_null()
    });
    match is_killed {
        true => cluster.members[old].start_node(),
        false => signal(cluster, Signal::CONT),
    }
    (accepted > 0 && !is_out).then_some((accepted, old, new))
}

/// So many writes take far less time than the serving lease lasts.
const TAIL: u64 = 40;

/// How many writes the copy of the node has given up.
fn given_up_writes(cluster: &Cluster, at: usize) -> u64 {
    let log = cluster.members[at].log();
    let line = log.lines().rfind(|line| line.contains("has gone back to byte")).unwrap_or_else(|| panic!("{log}"));
    let (_, rest) = line.split_once(", with ").expect("the writes");
    rest.split(' ').next().and_then(|writes| writes.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

#[test]
fn an_old_primary_that_is_ahead_gives_up_its_tail_and_needs_no_whole_dataset() {
    for is_killed in [false, true] {
        let roles = [Role::Data, Role::Data, Role::Quorum];
        let (mut cluster, cutters) = Cluster::start_cut(&roles, &[]);
        let port = cluster.create("orders", 1, &with(&["--replication", "async", "--persistence", "everysec"]));
        are_in_sync(&cluster, 0, "orders", 2);
        let mut client = cluster.members[0].connect(port);
        (0..500).for_each(|number| assert_eq!(client.run(&format!("SET k{number} {number}")), "OK"));
        let full_syncs =
            |cluster: &Cluster, at: usize| cluster.members[at].log().matches("needs a full synchronisation").count();
        let before = [0, 1].map(|at| full_syncs(&cluster, at));
        let parted = (0..10).find_map(|_| {
            let parted = part(&mut cluster, &cutters, port, is_killed);
            are_in_sync(&cluster, 0, "orders", 2);
            parted
        });
        let (accepted, old, new) = parted.expect("the copy stays in the set once");
        assert_eq!([0, 1].map(|at| full_syncs(&cluster, at)), before);
        assert_eq!(given_up_writes(&cluster, old), accepted, "of the last time, and nothing else was written");
        // Every key that the new primary has, and no other one.
        let mut client = cluster.members[new].connect(port);
        assert_eq!(client.run("SET after 1"), "OK");
        let kept = keys(&mut client);
        are_in_sync(&cluster, new, "orders", 2);
        cluster.members[new].kill_node();
        all_primaries_are_at(&cluster, old, "orders");
        let mut client = cluster.members[old].connect(port);
        assert_eq!(keys(&mut client), kept);
        assert_eq!([client.run("GET k499"), client.run("GET after")], ["\"499\"", "\"1\""]);
    }
}

#[test]
fn restarts_flushes_and_deletions_are_those_of_all_copies() {
    let mut cluster = start();
    let kept = cluster.create("kept", 2, &with(&["--replication", "sync", "--persistence", "everysec"]));
    let cache = cluster.create("cache", 1, &with(&["--persistence", "none"]));
    for name in ["kept", "cache"] {
        are_in_sync(&cluster, 0, name, 2);
    }
    for port in [kept, cache] {
        let mut client = cluster.members[1].connect(port);
        (0..100).for_each(|number| assert_eq!(client.run(&format!("SET k{number} {number}")), "OK"));
    }

    // Both nodes at once: what is kept comes back, a cache begins empty.
    for at in [0, 1] {
        cluster.members[at].kill_node();
    }
    for at in [0, 1] {
        cluster.members[at].start_node();
    }
    for name in ["kept", "cache"] {
        are_in_sync(&cluster, 0, name, 2);
    }
    assert_eq!(keys(&mut cluster.members[0].connect(kept)), "(integer) 100");
    assert_eq!(keys(&mut cluster.members[1].connect(cache)), "(integer) 0");

    // A flush is one of all copies, whoever is the primary afterwards.
    let said = cluster.members[0].operator(&["database", "flush", "kept", "--yes", "kept"]);
    assert!(said.is_ok(), "{said:?}");
    let mut client = cluster.members[0].connect(kept);
    assert_eq!(keys(&mut client), "(integer) 0");
    assert_eq!(client.run("SET after flush"), "OK");
    are_in_sync(&cluster, 0, "kept", 2);
    cluster.members[1].kill_node();
    all_primaries_are_at(&cluster, 0, "kept");
    assert_eq!(keys(&mut client), "(integer) 1");
    assert_eq!(client.run("GET after"), "\"flush\"");
    cluster.members[1].start_node();
    are_in_sync(&cluster, 0, "kept", 2);

    let said = cluster.members[0].operator(&["database", "delete", "kept", "--yes", "kept"]);
    assert!(said.is_ok(), "{said:?}");
    eventually("its copies are gone from both nodes", || {
        cluster.members[..2].iter().all(|member| {
            let folder = std::fs::read_dir(member.dir.path().join("state/copies")).expect("a folder");
            folder.flatten().all(|file| !file.file_name().to_string_lossy().starts_with("kept."))
        })
    });
}

/// Commands, with what a primary answers that has one replica.
const WITH_REPLICA: &[(&str, &str)] = &[
    ("SET a 1", "OK"),
    ("SET b 1", "OK"),
    ("WAIT 1 0", "(integer) 1"),
    ("WAIT 2 50", "(integer) 1"),
    ("WAIT 0 0", "(integer) 1"),
    ("INCR a", "(integer) 2"),
    ("WAIT 1 0", "(integer) 1"),
    ("WAIT 1 -1", "(error) ERR timeout is negative"),
    ("WAIT x 0", "(error) ERR value is not an integer or out of range"),
];
/// What it answers when the replica is gone.
const WITHOUT_REPLICA: &[(&str, &str)] = &[
    ("SET a 3", "OK"),
    ("SET b 3", "OK"),
    ("WAIT 1 50", "(integer) 0"),
    ("WAIT 0 0", "(integer) 0"),
    ("INCR b", "(integer) 4"),
    ("WAIT 1 50", "(integer) 0"),
];
/// The same of WAITAOF, which the Redis of the comparison may not have: the numbers of the nodes whose journals have the writes.
const DURABLE_AT_BOTH: &[(&str, &str)] = &[
    ("WAITAOF 1 1 0", "1) (integer) 1\n2) (integer) 1"),
    ("WAITAOF 1 2 50", "1) (integer) 1\n2) (integer) 1"),
    ("SET a 5", "OK"),
    ("SET b 5", "OK"),
];
const DURABLE_HERE: &[(&str, &str)] =
    &[("WAITAOF 1 0 0", "1) (integer) 1\n2) (integer) 0"), ("WAITAOF 0 1 50", "1) (integer) 1\n2) (integer) 0")];

fn answers(client: &mut Client, whose: &str, commands: &[(&str, &str)]) {
    for (command, answer) in commands {
        assert_eq!(client.run(command), *answer, "{whose}: {command}");
    }
}

fn is_durable_at_both(client: &mut Client, whose: &str) {
    answers(client, whose, DURABLE_AT_BOTH);
    // It waits for the replica's journal alone.
    let said = client.run("WAITAOF 0 1 0");
    assert!(said.ends_with("\n2) (integer) 1"), "{whose}: {said}");
}

/// WAIT answers as a Redis with one replica does, through a proxy of two shards whose primaries are at two nodes, with the replica, when its
/// node is lost under the connection, and when it is back.
#[test]
fn wait_counts_the_replicas_that_have_the_writes_of_the_connection() {
    if let Some((mut client, redis)) = Redis::connected(&[]) {
        let replica = Redis::start(&["--replicaof", "127.0.0.1", &redis.port.to_string()]);
        eventually("the replica follows", || replica.connect().info("replication", "master_link_status") == "up");
        answers(&mut client, "Redis", WITH_REPLICA);
        drop(replica);
        eventually("the replica is gone", || client.info("replication", "connected_slaves") == "0");
        answers(&mut client, "Redis", WITHOUT_REPLICA);
    }

    let mut cluster = start();
    let ports = ["async", "sync"].map(|name| {
        let port = cluster.create(name, 2, &with(&["--replication", name, "--persistence", "everysec"]));
        are_in_sync(&cluster, 0, name, 2);
        (name, port)
    });
    let mut clients = ports.map(|(name, port)| (name, cluster.members[0].connect(port)));
    for (name, client) in &mut clients {
        let mut owners = ["a", "b"].map(|key| cluster.owner(name, key));
        owners.sort_unstable();
        assert_eq!(owners, [0, 1], "each node has the primary of one of the keys");
        answers(client, name, WITH_REPLICA);
        is_durable_at_both(client, name);
        assert_eq!(client.run("MULTI"), "OK");
        let refused = "(error) ERR WAIT is not supported in a transaction on a database that is divided into shards";
        assert_eq!(client.run("WAIT 1 0"), refused);
        assert_eq!(client.run("DISCARD"), "OK");
    }

    cluster.members[1].kill_node();
    for (name, client) in &mut clients {
        all_primaries_are_at(&cluster, 0, name);
        // With asynchronous replication, what was written before may be lost with the primary. It is said once.
        let said = client.run("WAIT 1 50");
        match *name {
            "async" => assert!(said.starts_with("(error) UNCERTAIN a shard's primary was lost or replaced"), "{said}"),
            _ => assert_eq!(said, "(integer) 0"),
        }
        answers(client, name, WITHOUT_REPLICA);
        answers(client, name, DURABLE_HERE);
    }

    // A wait without an end goes on when the replica is back.
    let [mut of_async, mut of_sync] = clients.map(|(name, client)| {
        let waiting = move |mut client: Client| {
            assert_eq!(client.run("SET a 6"), "OK");
            (client.run("WAIT 1 0"), client)
        };
        (name, Some(std::thread::spawn(move || waiting(client))))
    });
    cluster.members[1].start_node();
    for (name, waiting) in [&mut of_async, &mut of_sync] {
        are_in_sync(&cluster, 0, name, 2);
        let (said, mut client) = waiting.take().expect("a thread").join().expect("it has waited");
        assert_eq!(said, "(integer) 1", "{name}");
        is_durable_at_both(&mut client, name);

        // The connection has written to a primary at its own node, which another copy replaces before it waits.
        let (_, port) = ports.iter().find(|(of, _)| of == name).expect("both have a port");
        let mut client = cluster.members[0].connect(*port);
        assert_eq!((cluster.owner(name, "a"), client.run("SET a 7").as_str()), (0, "OK"));
        cluster.members[0].operator(&["database", "switchover", name]).unwrap();
        assert_eq!(cluster.owner(name, "a"), 1, "{name}");
        let said = client.run("WAIT 1 0");
        match *name {
            "async" => assert!(said.starts_with("(error) UNCERTAIN a shard's primary was lost or replaced"), "{said}"),
            _ => assert_eq!(said, "(integer) 1"),
        }
        assert_eq!(client.run("GET a"), "\"7\"");
        assert_eq!(client.run("WAIT 1 0"), "(integer) 1");
    }
}

/// Whether the node does not run, as another one sees it.
fn is_away(cluster: &Cluster, at: usize, name: &str) -> bool {
    let status = cluster.members[at].status().unwrap_or_default();
    let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
    nodes.iter().any(|node| node["name"] == name && node["is_live"] == false)
}

/// The database `orders` of one shard and two copies, its port, and the member with the primary, which is to be lost.
fn a_shard_and_who_has_its_primary() -> (Cluster, u16, usize) {
    let cluster = start();
    let port = cluster.create("orders", 1, &with(&["--persistence", "everysec"]));
    are_in_sync(&cluster, 0, "orders", 2);
    let primary = usize::from(primaries(&cluster, 0, "orders") != ["n1"]);
    (cluster, port, primary)
}

/// An operator removes a node that is gone for good, and with it what only it had.
fn is_forgotten(cluster: &Cluster, at: usize, gone: &str) {
    let operator = |words: &[&str]| cluster.members[at].operator(&[&["cluster", "forget", gone], words].concat());
    let plan = operator(&["--lose-data", "--dry-run"]).unwrap();
    assert!(plan.contains("an older copy") && plan.contains("nothing was changed"), "{plan}");
    eventually("it is removed", || {
        let members = || cluster.members[at].status().and_then(|status| Some(status["nodes"].as_array()?.len()));
        operator(&["--lose-data", "--yes", gone]).is_ok() || members() == Some(2)
    });
}

#[test]
fn an_operator_goes_on_with_an_older_copy_when_the_newest_is_gone_for_good() {
    let (mut cluster, port, lost) = a_shard_and_who_has_its_primary();
    let (left, gone) = (1 - lost, cluster.members[lost].name.clone());
    let mut client = cluster.members[lost].connect(port);
    assert_eq!(client.run("SET before 1"), "OK");
    // What it has only received goes with its process.
    assert_eq!(client.run("WAITAOF 1 1 0"), "1) (integer) 1\n2) (integer) 1");
    cluster.members[left].kill_node();
    eventually("its copy leaves the in-sync set", || {
        let shown = shards(&cluster, lost, "orders");
        let copies = shown.first().and_then(|shard| shard["copies"].as_array().cloned()).unwrap_or_default();
        copies.iter().filter(|copy| copy["is_in_sync"] == true).count() == 1
    });
    assert_eq!(client.run("SET after 1"), "OK");
    cluster.members[lost].kill_node();
    cluster.members[lost].stop_coordinator();
    cluster.members[left].start_node();
    eventually("the node is seen to be away", || is_away(&cluster, left, &gone));

    // The cluster itself names nobody who may lack something.
    let refused = cluster.members[left].operator(&["cluster", "forget", &gone, "--yes", &gone]).unwrap_err();
    assert!(refused.contains("has the shards orders.0") && refused.contains("--lose-data"), "{refused}");
    is_forgotten(&cluster, left, &gone);
    all_primaries_are_at(&cluster, left, "orders");
    let mut client = cluster.members[left].connect(port);
    eventually("it serves", || client.run("GET before") == "\"1\"");
    assert_eq!(client.run("GET after"), "(nil)");
    assert_eq!(client.run("SET after 2"), "OK");
}

/// What the nodes say of the shards of a database for which an operator must decide. `None`: not all of its shards are.
fn advice(cluster: &Cluster, at: usize, name: &str) -> Option<String> {
    let status = cluster.members[at].status()?;
    let database = status["databases"].as_array()?.iter().find(|database| database["name"] == name)?.clone();
    let shards = database["shards"].as_array()?;
    let of_all: Vec<String> = shards.iter().filter_map(|shard| Some(shard["advice"].as_str()?.to_owned())).collect();
    let is_all = of_all.len() == shards.len() && shards.iter().all(|shard| shard["is_served"] == false);
    of_all.into_iter().next().filter(|_| is_all)
}

/// Increments a counter until the node's connection ends. Returns the last number that was acknowledged.
fn count_until_the_end(client: &mut Client, key: &str) -> u64 {
    let mut acknowledged = 0;
    loop {
        let said = client.run(&format!("INCR {key}"));
        match said.strip_prefix("(integer) ").and_then(|number| number.parse().ok()) {
            Some(number) => acknowledged = number,
            None if said == "(closed)" => return acknowledged,
            None => {}
        }
    }
}

#[test]
fn after_all_machines_have_lost_power_an_operator_goes_on_with_what_is_left() {
    let mut cluster = start();
    let port = cluster.create("orders", 2, &with(&["--replication", "sync", "--persistence", "everysec"]));
    are_in_sync(&cluster, 0, "orders", 2);
    let operator = |cluster: &Cluster, at: usize, words: &[&str]| {
        cluster.members[at].operator(&[&["database", "recover", "orders"], words].concat())
    };
    let refused = operator(&cluster, 0, &["--yes", "orders"]).unwrap_err();
    assert!(refused.contains("nothing is to be decided"), "{refused}");

    // Under load, all of it. With kept files nothing of it is lost, but the copies cannot know that.
    let clients: Vec<Client> = (0..4).map(|number| cluster.members[number % 2].connect(port)).collect();
    let counted: Vec<(String, u64)> = std::thread::scope(|scope| {
        let counting: Vec<_> = clients
            .into_iter()
            .enumerate()
            .map(|(number, mut client)| {
                let key = format!("counter{number}");
                scope.spawn(move || (key.clone(), count_until_the_end(&mut client, &key)))
            })
            .collect();
        let mut client = cluster.members[0].connect(port);
        let has_counted = |client: &mut Client, key: &str| {
            client.run(&format!("GET {key}")).trim_matches('"').parse::<u64>().is_ok_and(|number| number > 100)
        };
        eventually("each client has written", || {
            (0..4).all(|number| has_counted(&mut client, &format!("counter{number}")))
        });
        cluster.members[..2].iter_mut().for_each(Member::lose_power);
        counting.into_iter().map(|thread| thread.join().expect("it counts")).collect()
    });
    cluster.members[..2].iter_mut().for_each(Member::start_node);

    // The cluster names nobody, and says on each node who decides, and how.
    for at in [0, 1] {
        let mut last = None;
        eventually("every shard waits for an operator", || {
            last = advice(&cluster, at, "orders");
            last.as_ref().is_some_and(|said| said.contains("flintkv database recover orders shows"))
        });
        let status = cluster.members[at].operator(&["cluster", "status"]).unwrap();
        assert!(status.contains("shard orders.0 waits for an operator"), "{status}");
    }
    let mut client = cluster.members[0].connect(port);
    assert!(client.run("GET counter0").starts_with("(error) CLUSTERDOWN"));

    let plan = operator(&cluster, 0, &["--dry-run"]).unwrap();
    assert_eq!(plan.matches("the primary").count(), 2, "{plan}");
    assert!(plan.contains("about the last second") && plan.contains("nothing was changed"), "{plan}");
    let refused = operator(&cluster, 0, &[]).unwrap_err();
    assert!(refused.contains("orders.1") && refused.contains("to go on: --yes orders"), "{refused}");
    assert!(advice(&cluster, 0, "orders").is_some(), "nothing was changed");
    let done = operator(&cluster, 0, &["--yes", "orders"]).unwrap();
    assert!(done.contains("orders.0 goes on with the copy on") && done.contains("orders.1 goes on"), "{done}");

    are_in_sync(&cluster, 1, "orders", 2);
    assert_eq!(advice(&cluster, 1, "orders"), None);
    for (key, acknowledged) in &counted {
        let said = client.run(&format!("GET {key}"));
        let number: u64 = said.trim_matches('"').parse().unwrap_or_else(|_| panic!("{key} is {said}"));
        assert!(*acknowledged > 100 && number >= *acknowledged, "{key} is {number}, {acknowledged} was acknowledged");
    }
    let refused = operator(&cluster, 0, &["--yes", "orders"]).unwrap_err();
    assert!(refused.contains("nothing is to be decided"), "{refused}");
    // The other copies have the same.
    let all_of = |client: &mut Client| {
        let mut all: Vec<String> = counted.iter().map(|(key, _)| client.run(&format!("GET {key}"))).collect();
        all.push(keys(client));
        all
    };
    let before = all_of(&mut client);
    let switched = cluster.members[0].operator(&["database", "switchover", "orders"]);
    assert!(switched.is_ok(), "{switched:?}");
    are_in_sync(&cluster, 1, "orders", 2);
    assert_eq!(all_of(&mut client), before);
    let shown = cluster.members[0].operator(&["cluster", "operations", "--json"]).unwrap();
    let all: Vec<Value> = serde_json::from_str(&shown).expect("a list");
    let recovery = all.iter().find(|one| one["kind"] == "recover").unwrap_or_else(|| panic!("{shown}"));
    assert_eq!((&recovery["target"], &recovery["state"]), (&Value::from("orders"), &Value::from("done")));
}

/// The only copy that is left is recorded, but not as the dataset that it has since its machine has lost power too.
#[test]
fn a_lost_node_is_forgotten_though_the_other_machine_has_lost_power_too() {
    let (mut cluster, port, lost) = a_shard_and_who_has_its_primary();
    let (left, gone) = (1 - lost, cluster.members[lost].name.clone());
    let mut client = cluster.members[lost].connect(port);
    assert_eq!(client.run("SET kept 1"), "OK");
    assert_eq!(client.run("WAITAOF 1 1 0"), "1) (integer) 1\n2) (integer) 1");
    cluster.members[lost].kill_node();
    cluster.members[left].lose_power();
    cluster.members[lost].stop_coordinator();
    cluster.members[left].start_node();
    let start = format!("start {gone}");
    eventually("the shard waits for an operator", || {
        advice(&cluster, left, "orders").is_some_and(|said| said.contains(&start) && said.contains("--lose-data"))
    });
    let refused = cluster.members[left].operator(&["database", "recover", "orders", "--yes", "orders"]).unwrap_err();
    assert!(refused.contains(&format!("{gone} does not run")) && refused.contains("--lose-data"), "{refused}");

    is_forgotten(&cluster, left, &gone);
    let mut client = cluster.members[left].connect(port);
    eventually("it serves", || client.run("GET kept") == "\"1\"");
    assert_eq!(client.run("SET after 2"), "OK");
}

/// Why each node that runs does not do all that the cluster's records want of it.
fn troubles(cluster: &Cluster, at: usize) -> String {
    cluster.members[at].status().map_or_else(String::new, |status| status["troubles"].to_string())
}

const REFUSED: &str = "flash of 4096kb is too small";

#[test]
fn limits_that_its_copies_refuse_keep_a_shard_from_no_failover() {
    let mut cluster = start();
    // 32 MB of flash for each copy are 64 segments of 512 KB, and a log that runs has 16 segments at least: 4 MB are too few.
    let options = ["--memory-limit", "264mb", "--ram-limit", "200mb", "--replicas", "1", "--replication", "sync"];
    let port = cluster.create("orders", 1, &[&options[..], &["--persistence", "none"]].concat());
    are_in_sync(&cluster, 0, "orders", 2);
    let killed = usize::from(primaries(&cluster, 0, "orders") != ["n1"]);
    let stays = 1 - killed;
    assert_eq!(cluster.members[killed].connect(port).run("SET before 1"), "OK");
    let resize = ["database", "resize", "orders", "--memory-limit", "208mb"];
    std::thread::scope(|scope| {
        // The node that is asked waits for the copies, and ends before they follow.
        let resizing = scope.spawn(|| cluster.members[killed].operator(&resize));
        for at in [0, 1] {
            eventually("the copy refuses its limit", || troubles(&cluster, at).contains(REFUSED));
        }
        let pid = Pid::from_raw(cluster.members[killed].pid() as i32).expect("a process");
        kill_process(pid, Signal::KILL).expect("it runs");
        resizing.join().expect("it has ended").expect_err("nobody has answered");
    });
    cluster.members[killed].kill_node();
    all_primaries_are_at(&cluster, stays, "orders");
    let mut client = cluster.members[stays].connect(port);
    eventually("the other copy serves", || client.run("GET before") == "\"1\"");
    assert!(troubles(&cluster, stays).contains(REFUSED), "{}", troubles(&cluster, stays));
    // It brings the in-sync set into the record too: without that, no write is acknowledged.
    cluster.members[killed].start_node();
    are_in_sync(&cluster, stays, "orders", 2);
    assert_eq!(client.run("SET after 1"), "OK");
}
