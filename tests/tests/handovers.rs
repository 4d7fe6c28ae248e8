//! Shards with replicas whose primaries hand over under load: processes with a real etcd. No write that was acknowledged is lost, no client
//! gets an error, and nobody waits for leases.

use cluster::ids::{CopyNumber, DatabaseId, ShardNumber, shard_uid};
use cluster::keys::Key;
use cluster::records::ShardRecord;
use flintkv_tests::cluster::{Cluster, Member, Role};
use flintkv_tests::{Client, eventually};
use membership::call::Call;
use membership::join::Peer;
use membership::records::Records;
use membership::{Folder, etcd_client};
use pki::CurrentCredential;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// Commands that are sent at once.
const PIPELINE: u64 = 16;
/// Far more than a handover takes: the machine may be busy.
const STALL_MAX: Duration = Duration::from_secs(20);

/// What a controller has: the records, and a node's certificate.
struct Leader {
    runtime: Runtime,
    records: Records,
    folder: Folder,
}

impl Leader {
    fn of(member: &Member) -> Leader {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let config = config::ConfigStore::from_args(&[member.conf()]).unwrap();
        let folder = Folder::of(&config.snapshot());
        let found = folder.member().unwrap().unwrap();
        let credential = folder.credential(base::clock::wall_ms()).unwrap();
        let etcd = runtime.block_on(async { etcd_client(&found, &credential, &found.etcd.endpoints).unwrap() });
        Leader { records: Records::new(Arc::new(etcd), found.cluster), runtime, folder }
    }

    /// The database that there is.
    fn database(&self) -> DatabaseId {
        let found: Vec<(String, Value)> = self.runtime.block_on(self.records.list("db/")).unwrap();
        let ids: BTreeSet<&str> = found.iter().filter_map(|(key, _)| key.split('/').next()).collect();
        assert_eq!(ids.len(), 1, "{ids:?}");
        ids.first().unwrap().parse().unwrap()
    }

    fn shard(&self, database: DatabaseId) -> ShardRecord {
        let key = Key::Shard(database, ShardNumber(0)).to_string();
        eventually_some("etcd answers", || self.runtime.block_on(self.records.get(&key)).ok()?).0
    }

    /// Has the primary hand over to the other member of the set, and again until the record shows it. Returns its node.
    fn hand_over(&self, cluster: &Cluster, database: DatabaseId) -> usize {
        let first = self.shard(database);
        let (mut hindrances, begun) = (Vec::new(), Instant::now());
        eventually("the primary hands over", || {
            let now = self.shard(database);
            let other = now.in_sync.iter().find(|member| member.copy != first.primary);
            let (false, Some(to)) = (now.primary != first.primary, other) else {
                return now.primary != first.primary;
            };
            if let Err(why) = self.ask(cluster, database, &now, to.copy) {
                hindrances.push(why);
            }
            if begun.elapsed() > Duration::from_secs(30) {
                eprintln!("{now:?}: {hindrances:?}");
            }
            false
        });
        let now = self.shard(database);
        assert!(now.epoch > first.epoch && now.in_sync.len() == 2, "{first:?} became {now:?}: {hindrances:?}");
        node_of(cluster, &now)
    }

    fn ask(&self, cluster: &Cluster, database: DatabaseId, now: &ShardRecord, to: CopyNumber) -> Result<(), String> {
        let current = CurrentCredential::new(self.folder.credential(base::clock::wall_ms()).unwrap());
        let trust = self.folder.trust(&self.folder.member().unwrap().unwrap()).unwrap();
        let peer = Peer { at: format!("{}:8380", cluster.members[node_of(cluster, now)].host), current, trust };
        let call = Call::HandOver { shard: shard_uid(database, ShardNumber(0)), epoch: now.epoch, to };
        self.runtime.block_on(peer.ask(&call))
    }
}

fn eventually_some<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    eventually(what, || {
        found = find();
        found.is_some()
    });
    found.expect("it was found")
}

/// The first copy is on the first node that keeps data, or on the second one: each node has one.
fn node_of(cluster: &Cluster, record: &ShardRecord) -> usize {
    let id = record.primary_node().unwrap().to_string();
    let status = eventually_some("the node answers", || cluster.members[0].status());
    let nodes = status["nodes"].as_array().expect("nodes");
    let name = nodes.iter().find(|node| node["id"] == *id).expect("a node with this id")["name"].clone();
    cluster.members.iter().position(|member| member.name == name).expect("a member")
}

/// What one client's pipelines have shown.
#[derive(Debug, Default)]
struct Seen {
    longest: Duration,
    errors: Vec<String>,
}

/// Sets a key to 1, 2, 3 and so on, in pipelines in which each number is read back.
fn count_up(client: &mut Client, key: &str, acknowledged: &AtomicU64, is_over: &AtomicBool) -> Seen {
    let (mut seen, mut next) = (Seen::default(), 1);
    while !is_over.load(SeqCst) {
        let numbers = next..next + PIPELINE;
        next = numbers.end;
        let batch: String = numbers.clone().map(|number| format!("SET {key} {number}\r\nGET {key}\r\n")).collect();
        let begun = Instant::now();
        client.send(batch.as_bytes());
        for number in numbers {
            let (set, got) = (client.read(), client.read());
            match &*set {
                "OK" => _ = acknowledged.fetch_max(number, SeqCst),
                _ => seen.errors.push(set),
            }
            match got.trim_matches('"').parse::<u64>() {
                Ok(found) => {
                    let least = acknowledged.load(SeqCst);
                    assert!(
                        (least..=number).contains(&found),
                        "{key} is {found} behind {number}, of which {least} was acknowledged"
                    );
                }
                Err(_) => seen.errors.push(got),
            }
        }
        seen.longest = seen.longest.max(begun.elapsed());
    }
    seen
}

/// Reads another client's key: it never goes back, and has what was acknowledged before it was asked for.
fn watch(client: &mut Client, key: &str, acknowledged: &AtomicU64, is_over: &AtomicBool) -> Seen {
    let (mut seen, mut last) = (Seen::default(), 0);
    while !is_over.load(SeqCst) {
        let (least, begun) = (acknowledged.load(SeqCst).max(last), Instant::now());
        let got = client.run(&format!("GET {key}"));
        seen.longest = seen.longest.max(begun.elapsed());
        match got.trim_matches('"').parse::<u64>() {
            Ok(found) => {
                assert!(found >= least, "{key} went back from {least} to {found}");
                last = found;
            }
            Err(_) if got == "(nil)" && least == 0 => {}
            Err(_) => seen.errors.push(got),
        }
    }
    seen
}

/// So many handovers of a shard, while clients of both nodes write and read.
fn hand_over_under_load(count: usize, persistence: &str) {
    let cluster = Cluster::start(&[Role::Data, Role::Data, Role::Quorum], &[]);
    let limits = ["--memory-limit", "200mb", "--ram-limit", "200mb", "--replicas", "1", "--replication", "sync"];
    let port =
        cluster.create("orders", 1, &[&limits[..], &["--persistence", persistence, "--min-in-sync", "2"]].concat());
    let leader = Leader::of(&cluster.members[0]);
    let database = leader.database();
    eventually("both copies are in sync", || leader.shard(database).in_sync.len() == 2);

    let is_over = AtomicBool::new(false);
    let acknowledged: Vec<AtomicU64> = (0..2).map(|_| AtomicU64::new(0)).collect();
    let connect = |at: usize| cluster.members[at].connect(port);
    let (taken, seen): (Vec<Duration>, Vec<Seen>) = std::thread::scope(|scope| {
        let mut clients = Vec::new();
        for (at, acknowledged) in acknowledged.iter().enumerate() {
            let (mut writes, mut reads, is_over) = (connect(at), connect(1 - at), &is_over);
            clients.push(scope.spawn(move || count_up(&mut writes, &format!("k{at}"), acknowledged, is_over)));
            clients.push(scope.spawn(move || watch(&mut reads, &format!("k{at}"), acknowledged, is_over)));
        }
        let mut taken = Vec::new();
        for _ in 0..count {
            let begun = Instant::now();
            leader.hand_over(&cluster, database);
            taken.push(begun.elapsed());
            let before: Vec<u64> = acknowledged.iter().map(|number| number.load(SeqCst)).collect();
            eventually("both clients write through the new primary", || {
                let goes_on = |(before, now): (&u64, &AtomicU64)| now.load(SeqCst) > before + 2 * PIPELINE;
                clients.iter().any(|client| client.is_finished()) || before.iter().zip(&acknowledged).all(goes_on)
            });
        }
        is_over.store(true, SeqCst);
        (taken, clients.into_iter().map(|client| client.join().expect("it counts")).collect())
    });
    for (at, acknowledged) in acknowledged.iter().enumerate() {
        let (said, least) = (connect(at).run(&format!("GET k{at}")), acknowledged.load(SeqCst));
        assert_eq!(said, format!("\"{least}\""));
    }
    let stalls: Vec<Duration> = seen.iter().map(|seen| seen.longest).collect();
    let most = taken.iter().max().expect("there were some");
    println!("{count} handovers, each within {most:?}; longest waits of the clients: {stalls:?}");
    // Without the processor for longer than a lease, a primary has to end the commands that wait.
    let lost_lease = cluster.members.iter().any(|member| member.log().contains("has no serving lease any more"));
    let errors: Vec<&String> = seen.iter().flat_map(|seen| &seen.errors).collect();
    assert!(errors.is_empty() || lost_lease, "{errors:?}");
    assert!(stalls.iter().all(|stall| *stall < STALL_MAX), "{stalls:?}");
}

#[test]
fn dozens_of_handovers_lose_nothing_and_no_client_gets_an_error() {
    hand_over_under_load(30, "everysec");
}

#[test]
#[ignore = "long: make soak runs it"]
fn a_thousand_handovers_lose_nothing_and_no_client_gets_an_error() {
    hand_over_under_load(1_000, "none");
}
