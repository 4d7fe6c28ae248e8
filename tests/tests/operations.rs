//! What operators ask of a cluster's copies and primaries: processes with a real etcd, under load. No client gets an error, and no write
//! that was acknowledged is lost.

use flintkv_tests::cluster::{Cluster, Role};
use flintkv_tests::{Client, eventually};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const SHARDS: u16 = 3;
/// Far more than an operation takes, and less than a test waits for anything: the machine may be busy.
const PAUSE_MAX: Duration = Duration::from_secs(20);

/// Three nodes with data, and the database `orders` on them.
fn start() -> (Cluster, u16) {
    let cluster = Cluster::start(&[Role::Data, Role::Data, Role::Data], &[]);
    let limits = ["--memory-limit", "300mb", "--ram-limit", "300mb", "--replicas", "1"];
    let port = cluster.create(
        "orders",
        SHARDS,
        &[&limits[..], &["--replication", "sync", "--persistence", "everysec"]].concat(),
    );
    are_in_sync(&cluster, 0);
    (cluster, port)
}

/// A copy, as a node shows it: its shard, its node, and whether it is the primary and in sync.
#[derive(Clone, Debug, PartialEq)]
struct Copy {
    shard: String,
    node: String,
    is_primary: bool,
    is_in_sync: bool,
}

fn copies(cluster: &Cluster, at: usize) -> Vec<Copy> {
    let shown = cluster.members[at].operator(&["database", "shards", "orders", "--json"]).unwrap_or_default();
    let shown: Value = serde_json::from_str(&shown).unwrap_or_default();
    let shards = shown.as_array().cloned().unwrap_or_default();
    let of = |shard: &Value| {
        let copy = |copy: &Value| Copy {
            shard: format!("orders.{}", shard["number"]),
            node: copy["node"].as_str().expect("a name").to_owned(),
            is_primary: copy["node"] == shard["node"],
            is_in_sync: copy["is_in_sync"] == true && !copy["offset"].is_null(),
        };
        shard["copies"].as_array().expect("copies").iter().map(copy).collect::<Vec<_>>()
    };
    shards.iter().flat_map(of).collect()
}

/// Waits until each shard has two copies in sync.
fn are_in_sync(cluster: &Cluster, at: usize) {
    eventually("every shard has two copies in sync", || {
        let copies = copies(cluster, at);
        copies.len() == 2 * usize::from(SHARDS) && copies.iter().all(|copy| copy.is_in_sync)
    });
}

/// Waits until the node shows the copies so. What another node has carried out is there a moment later.
fn shows(cluster: &Cluster, at: usize, what: &str, holds: impl Fn(&[Copy]) -> bool) {
    eventually(what, || {
        let copies = copies(cluster, at);
        copies.len() == 2 * usize::from(SHARDS) && holds(&copies)
    });
}

/// Whether this node has any.
fn has_primaries(copies: &[Copy], node: &str) -> bool {
    copies.iter().any(|copy| copy.is_primary && copy.node == node)
}

fn primaries_on(cluster: &Cluster, at: usize, node: &str) -> usize {
    copies(cluster, at).iter().filter(|copy| copy.is_primary && copy.node == node).count()
}

/// The operator's command, which must succeed.
fn operate(cluster: &Cluster, at: usize, words: &[&str]) -> String {
    let said = cluster.members[at].operator(words);
    said.unwrap_or_else(|why| {
        let shown = cluster.members[at].operator(&["cluster", "operations"]).unwrap_or_default();
        panic!("{words:?}: {why}\n{shown}\n{:?}", copies(cluster, at))
    })
}

/// What a client knows of a counter that it has incremented.
#[derive(Debug, Default)]
struct Counted {
    acknowledged: u64,
    /// Increments that may have been made.
    uncertain: u64,
    longest: Duration,
    /// The first one, and when.
    error: Option<(String, Duration)>,
}

/// Increments a counter until `is_over`. Each reply is the next number: nothing is lost.
fn count(client: &mut Client, key: &str, is_over: &AtomicBool) -> Counted {
    let mut counted = Counted::default();
    while !is_over.load(Relaxed) {
        let begun = Instant::now();
        let said = client.run(&format!("INCR {key}"));
        counted.longest = counted.longest.max(begun.elapsed());
        let next = counted.acknowledged + 1;
        match said.strip_prefix("(integer) ").and_then(|number| number.parse::<u64>().ok()) {
            Some(number) => {
                assert!((next..=next + counted.uncertain).contains(&number), "{key} is {number}: {counted:?}");
                (counted.uncertain, counted.acknowledged) = (next + counted.uncertain - number, number);
            }
            None => {
                assert_ne!(said, "(closed)", "{key}: {counted:?}");
                counted.uncertain += 1;
                counted.error.get_or_insert((said, begun.elapsed()));
            }
        }
    }
    counted
}

/// How often a primary had no processor for longer than a lease. It has to end the commands that wait.
fn lost_leases(cluster: &Cluster) -> usize {
    let logs = cluster.members.iter().map(|member| member.log());
    logs.map(|log| log.matches("has no serving lease any more").count()).sum()
}

/// Clients of the node increment counters, while `meanwhile` runs. No command fails, unless the machine was too busy for a lease. Returns the
/// longest wait of a client.
fn under_load(cluster: &mut Cluster, at: usize, port: u16, meanwhile: impl FnOnce(&mut Cluster)) -> Duration {
    let is_over = AtomicBool::new(false);
    let mut clients: Vec<Client> = (0..8).map(|_| cluster.members[at].connect(port)).collect();
    let keys: Vec<String> = (0..8).map(|number| format!("{at}:{number}")).collect();
    clients.iter_mut().zip(&keys).for_each(|(client, key)| drop(client.run(&format!("DEL {key}"))));
    let lost_before = lost_leases(cluster);
    let counted: Vec<Counted> = std::thread::scope(|scope| {
        let counting: Vec<_> =
            clients.iter_mut().zip(&keys).map(|(client, key)| scope.spawn(|| count(client, key, &is_over))).collect();
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| meanwhile(cluster)));
        is_over.store(true, Relaxed);
        let counted = counting.into_iter().map(|thread| thread.join().expect("it counts")).collect();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        counted
    });
    let has_lost_lease = lost_leases(cluster) > lost_before;
    for ((client, key), counted) in clients.iter_mut().zip(&keys).zip(&counted) {
        assert!(counted.error.is_none() || has_lost_lease, "{key}: {counted:?}");
        let mut said = String::new();
        eventually("the shard is served", || {
            said = client.run(&format!("GET {key}"));
            !(has_lost_lease && said.starts_with("(error)"))
        });
        let number: u64 = said.trim_matches('"').parse().unwrap_or_else(|_| panic!("{key} is {said}: {counted:?}"));
        let most = counted.acknowledged + counted.uncertain;
        assert!((counted.acknowledged..=most).contains(&number), "{key} is {number}: {counted:?}");
    }
    counted.iter().map(|counted| counted.longest).max().expect("there are clients")
}

/// The names of the files of copies that a node has.
fn files(cluster: &Cluster, at: usize) -> Vec<String> {
    let folder = std::fs::read_dir(cluster.members[at].dir.path().join("state/copies")).expect("a folder");
    folder.flatten().map(|file| file.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn primaries_leave_a_node_and_come_back_without_an_error() {
    let (mut cluster, port) = start();
    let dry = operate(&cluster, 0, &["cluster", "drain", "n1", "--dry-run"]);
    assert!(dry.contains("switchover") && dry.contains("nothing was changed"), "{dry}");
    assert!(primaries_on(&cluster, 0, "n1") > 0);
    let longest = under_load(&mut cluster, 2, port, |cluster| {
        operate(cluster, 1, &["cluster", "drain", "n1"]);
        shows(cluster, 2, "n1 has no primaries", |copies| !has_primaries(copies, "n1"));
        eventually("n1 is drained", || operate(cluster, 1, &["cluster", "nodes"]).contains("runs, drained"));
        are_in_sync(cluster, 2);
        operate(cluster, 1, &["cluster", "undrain", "n1"]);
        shows(cluster, 2, "n1 has primaries again", |copies| has_primaries(copies, "n1"));
        are_in_sync(cluster, 2);
        operate(cluster, 0, &["database", "switchover", "orders"]);
        let copy = copies(cluster, 0).into_iter().find(|copy| !copy.is_primary).expect("a replica");
        let (_, number) = copy.shard.split_once('.').expect("a number");
        operate(cluster, 0, &["database", "switchover", "orders", "--shard", number, "--to", &copy.node]);
        shows(cluster, 2, "the primary is at its new node", |now| {
            now.iter().any(|now| now.is_primary && now.node == copy.node && now.shard == copy.shard)
        });
    });
    eprintln!("the longest wait of a client was {longest:?}");
    assert!(longest < PAUSE_MAX, "{longest:?}");

    let refused = |words: &[&str]| cluster.members[0].operator(words).expect_err("it is refused");
    assert!(refused(&["cluster", "undrain", "n1"]).contains("node 'n1' is not drained"));
    assert!(refused(&["cluster", "drain", "n9"]).contains("the cluster has no node 'n9'"));
    assert!(refused(&["database", "switchover", "orders", "--shard", "9"]).contains("no shard 'orders.9'"));
    assert!(refused(&["cluster", "abort", "00"]).contains("the cluster has no operation 00"));
    let shown = operate(&cluster, 0, &["cluster", "operations"]);
    assert!(shown.contains("drain") && shown.contains("undrain") && shown.contains("switchover"), "{shown}");
}

#[test]
fn copies_move_between_nodes_without_an_error() {
    let (mut cluster, port) = start();
    let longest = under_load(&mut cluster, 2, port, |cluster| {
        // The primary of a shard, and then its replica.
        for is_primary in [true, false] {
            let before = copies(cluster, 0);
            let moved = before
                .iter()
                .find(|copy| copy.shard == "orders.1" && copy.is_primary == is_primary)
                .expect("it is there");
            let has = |node: &str| before.iter().any(|copy| copy.shard == "orders.1" && copy.node == node);
            let to = ["n1", "n2", "n3"].into_iter().find(|node| !has(node)).expect("a node without a copy");
            operate(cluster, 1, &["cluster", "move", "orders.1", "--from", &moved.node, "--to", to]);
            are_in_sync(cluster, 0);
            shows(cluster, 0, &format!("{moved:?} has moved to {to}"), |now| {
                let on = |node: &str| now.iter().find(|copy| copy.shard == "orders.1" && copy.node == node);
                on(to).is_some_and(|copy| copy.is_primary == is_primary) && on(&moved.node).is_none()
            });
            let left = cluster.members.iter().position(|member| member.name == moved.node).expect("a member");
            eventually("the files of the copy that has left are gone", || {
                files(cluster, left).iter().all(|file| !file.starts_with("orders.1."))
            });
        }
    });
    eprintln!("the longest wait of a client was {longest:?}");
    assert!(longest < PAUSE_MAX, "{longest:?}");
}

#[test]
fn the_copies_of_a_lost_node_come_anew_on_others() {
    let (mut cluster, port) = start();
    operate(&cluster, 0, &["cluster", "settings", "--replace-after", "off"]);
    let mut client = cluster.members[0].connect(port);
    (0..100).for_each(|number| assert_eq!(client.run(&format!("SET k{number} {number}")), "OK"));
    // One node because an operator asks for it, another one because it has been away for long.
    cluster.members[1].kill_node();
    eventually("its primaries are named elsewhere", || {
        primaries_on(&cluster, 0, "n2") == 0 && copies(&cluster, 0).len() == 6
    });
    under_load(&mut cluster, 2, port, |cluster| {
        operate(cluster, 0, &["cluster", "replace", "n2"]);
        are_in_sync(cluster, 0);
        shows(cluster, 0, "n2 has no copies", |copies| copies.iter().all(|copy| copy.node != "n2"));
    });
    cluster.members[1].start_node();
    eventually("the files of its copies are gone", || {
        files(&cluster, 1).iter().all(|file| !file.starts_with("orders."))
    });

    assert!(operate(&cluster, 0, &["cluster", "settings", "--replace-after", "2s"]).contains("2 s"));
    cluster.members[2].kill_node();
    eventually("the copies of the other node are on those that run", || {
        let copies = copies(&cluster, 0);
        copies.len() == 6 && copies.iter().all(|copy| copy.node != "n3" && copy.is_in_sync)
    });
    let read = |client: &mut Client, number: usize| {
        let mut said = String::new();
        eventually("the shard is served", || {
            said = client.run(&format!("GET k{number}"));
            !said.starts_with("(error)")
        });
        said
    };
    (0..100).for_each(|number| assert_eq!(read(&mut client, number), format!("\"{number}\"")));
    let shown = operate(&cluster, 0, &["cluster", "operations"]);
    assert!(shown.contains("the cluster"), "{shown}");

    // A node that is forgotten takes its copies along. The shards get them back from a node with room, unless that is switched off.
    operate(&cluster, 0, &["cluster", "settings", "--replace-after", "off"]);
    cluster.members[2].start_node();
    cluster.members[1].kill_node();
    eventually("its primaries are named elsewhere", || {
        primaries_on(&cluster, 0, "n2") == 0 && copies(&cluster, 0).len() == 6
    });
    let forget = ["cluster", "forget", "n2", "--yes", "n2"];
    eventually("it is forgotten", || cluster.members[0].operator(&forget).is_ok());
    eventually("its copies are gone", || copies(&cluster, 0).len() == 3);
    operate(&cluster, 0, &["cluster", "settings", "--replace-after", "10m"]);
    are_in_sync(&cluster, 0);
    assert!(copies(&cluster, 0).iter().all(|copy| copy.node != "n2"));
    let shown = operate(&cluster, 0, &["cluster", "operations"]);
    assert!(shown.contains("add replicas"), "{shown}");
    (0..100).for_each(|number| assert_eq!(read(&mut client, number), format!("\"{number}\"")));
}

/// Increments a counter through a node that starts anew meanwhile, so that the connection may end; returns what was acknowledged, and how many
/// increments may have been made besides.
fn count_over_restarts(cluster: &Cluster, at: usize, port: u16, key: &str, is_over: &AtomicBool) -> (u64, u64) {
    let (mut acknowledged, mut uncertain) = (0, 0);
    let mut client = cluster.members[at].connect(port);
    while !is_over.load(Relaxed) {
        let said = client.run(&format!("INCR {key}"));
        match said.strip_prefix("(integer) ").and_then(|number| number.parse::<u64>().ok()) {
            Some(number) => {
                assert!((acknowledged + 1..=acknowledged + uncertain + 1).contains(&number), "{key} is {number}");
                (uncertain, acknowledged) = (acknowledged + uncertain + 1 - number, number);
            }
            // The node has ended, and perhaps with it a command that it had passed on.
            None if said == "(closed)" => {
                uncertain += 1;
                client = cluster.members[at].connect(port);
            }
            None => {
                let is_start = ["(error) LOADING", "(error) CLUSTERDOWN", "(error) UNCERTAIN"];
                assert!(is_start.iter().any(|start| said.starts_with(start)), "{said}");
                uncertain += u64::from(said.starts_with("(error) UNCERTAIN"));
            }
        }
    }
    (acknowledged, uncertain)
}

#[test]
fn nodes_start_anew_one_after_the_other_and_lose_nothing() {
    let (cluster, port) = start();
    let pids: Vec<u32> = cluster.members.iter().map(|member| member.pid()).collect();
    let starts = |at: usize| cluster.members[at].log().matches("starts: process").count();
    assert_eq!([starts(0), starts(1), starts(2)], [1, 1, 1]);
    let refused = cluster.members[0].operator(&["cluster", "restart", "--node", "n9", "--yes", "test"]).unwrap_err();
    assert!(refused.contains("no node 'n9'"), "{refused}");

    let is_over = AtomicBool::new(false);
    let counted: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let (cluster, is_over) = (&cluster, &is_over);
        let counts =
            |at: usize| scope.spawn(move || count_over_restarts(cluster, at, port, &format!("restart:{at}"), is_over));
        let counting: Vec<_> = (0..3).map(counts).collect();
        let done = std::panic::catch_unwind(|| {
            // The node that is asked starts anew too: the operator asks another one for the rest.
            operate(cluster, 0, &["cluster", "restart", "--yes", "test", "--no-wait"]);
            eventually("every node has started anew", || (0..3).all(|at| starts(at) == 2));
            eventually("the operation has ended", || {
                let shown = cluster.members[0].operator(&["cluster", "operations", "--json"]).unwrap_or_default();
                let shown: Value = serde_json::from_str(&shown).unwrap_or_default();
                let all = shown.as_array().cloned().unwrap_or_default();
                all.iter().any(|operation| operation["kind"] == "restart" && operation["state"] == "done")
            });
            are_in_sync(cluster, 1);
        });
        is_over.store(true, Relaxed);
        let counted = counting.into_iter().map(|thread| thread.join().expect("it counts")).collect();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        counted
    });
    for (at, (acknowledged, uncertain)) in counted.into_iter().enumerate() {
        assert!(acknowledged > 0);
        let said = cluster.members[at].connect(port).run(&format!("GET restart:{at}"));
        let number: u64 = said.trim_matches('"').parse().expect("a number");
        assert!((acknowledged..=acknowledged + uncertain).contains(&number), "{number}: {acknowledged}, {uncertain}");
    }
    assert_eq!(
        cluster.members.iter().map(|member| member.pid()).collect::<Vec<_>>(),
        pids,
        "the processes are the same"
    );
    let nodes = operate(&cluster, 0, &["cluster", "nodes"]);
    assert!(!nodes.contains("drained"), "{nodes}");
}
