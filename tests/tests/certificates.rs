//! The certificates of a cluster of several processes with a real etcd: a node that was removed, and another authority.

use coord::{Coord, Etcd};
use flintkv_tests::cluster::{Cluster, Member, Role};
use flintkv_tests::{Client, eventually};
use membership::call::{Call, Welcome};
use membership::join::Peer;
use membership::{Folder, etcd_client};
use pki::{Credential, CurrentCredential};
use serde_json::Value;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

const DATABASE: [&str; 4] = ["--memory-limit", "400mb", "--ram-limit", "60%"];

fn folder(member: &Member) -> Folder {
    let store = config::ConfigStore::from_args(&[member.conf()]).unwrap();
    Folder::of(&store.snapshot())
}

fn now_ms() -> u64 {
    base::clock::wall_ms()
}

fn call<T>(answer: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(answer)
}

/// A client of the etcd of `at` that shows this certificate.
fn etcd(at: &Member, credential: &Credential) -> Etcd {
    let member = folder(at).member().unwrap().unwrap();
    etcd_client(&member, credential, &[format!("https://{}:8381", at.host)]).unwrap()
}

fn opens_etcd(at: &Member, credential: &Credential) -> bool {
    call(async { etcd(at, credential).get("a").await }).is_ok()
}

/// Whether the port for nodes answers a call of whoever has this certificate.
fn opens_peer_port(at: &Member, credential: Credential) -> bool {
    let trust = folder(at).trust(&folder(at).member().unwrap().unwrap()).unwrap();
    let peer = Peer { at: format!("{}:8380", at.host), current: CurrentCredential::new(credential), trust };
    call(async { peer.ask::<Welcome>(&Call::Welcome).await }).is_ok()
}

fn authority(member: &Member) -> Value {
    let shown = member.operator(&["cluster", "authority", "--json"]).unwrap_or_default();
    serde_json::from_str(&shown).unwrap_or_default()
}

/// Waits for one step after the other: in each of them the members of etcd may be restarted in turns.
fn is_replaced(member: &Member) {
    let step = || authority(member)["replacement"]["step"].clone();
    eventually("every node trusts both authorities", || step() != "trust");
    eventually("every node has its certificates", || !["trust", "renew"].iter().any(|early| step() == *early));
    eventually("the replacement has ended", || authority(member)["replacement"]["ended_ms"].is_u64());
}

fn are_live(cluster: &Cluster) -> bool {
    let status = cluster.members[0].status().unwrap_or_default();
    status["nodes"].as_array().is_some_and(|nodes| nodes.iter().all(|node| node["is_live"] == true))
}

fn is_away(cluster: &Cluster, name: &str) -> bool {
    let status = cluster.members[0].status().unwrap_or_default();
    let is_it = |node: &Value| node["name"] == name && node["is_live"] == false;
    status["nodes"].as_array().is_some_and(|nodes| nodes.iter().any(is_it))
}

#[test]
fn a_removed_node_is_refused_by_etcd_and_learns_it_from_another_node() {
    let mut cluster = Cluster::start(&[Role::Data, Role::Data, Role::Quorum], &[]);
    let port = cluster.create("orders", 4, &DATABASE);
    let of_second = folder(&cluster.members[1]).credential(now_ms()).unwrap();
    assert!(opens_etcd(&cluster.members[0], &of_second));
    cluster.members[1].kill_node();
    cluster.members[1].stop_coordinator();
    eventually("the node is seen to be away", || is_away(&cluster, "n2"));
    eventually("it is removed", || {
        let forgotten = cluster.members[0].operator(&["cluster", "forget", "n2", "--lose-data", "--yes", "n2"]);
        forgotten.is_ok()
            || cluster.members[0].status().is_some_and(|status| status["nodes"].as_array().unwrap().len() == 2)
    });
    for at in [0, 2] {
        eventually("etcd refuses its certificate", || !opens_etcd(&cluster.members[at], &of_second));
    }

    // It comes back, knows nothing of it, and etcd does not talk to it.
    let served = cluster.members[1].log().matches("is served here").count();
    cluster.members[1].start();
    eventually("the node says that it was removed", || {
        cluster.members[1].log().contains("does not work for its cluster: this node was removed from the cluster at 20")
    });
    let log = cluster.members[1].log();
    assert_eq!(log.matches("is served here").count(), served, "nothing is served again");
    assert!(TcpStream::connect((cluster.members[1].host.as_str(), port)).is_err());
    let shown = cluster.members[1].operator(&["cluster", "status"]).unwrap();
    assert!(shown.contains("this node was removed from the cluster at 20") && shown.contains("leave"), "{shown}");
    let refused = cluster.members[1].operator(&["database", "list"]).unwrap_or_else(|error| error);
    assert!(!refused.contains("orders"), "{refused}");
    eventually("so does its coordinator, which ends", || {
        cluster.members[1].log().contains("this node's member of etcd was removed from the cluster, and its data in")
    });

    // The others go on, and etcd's restarts have an end.
    cluster.serves(0, "orders", 4);
    let mut client = cluster.members[0].connect(port);
    assert_eq!(client.run("SET a 1"), "OK");
    eventually("both etcds were restarted", || {
        [0, 2].iter().all(|at| cluster.members[*at].log().contains("etcd is restarted"))
    });
    eventually("etcd answers", || cluster.members[0].operator(&["cluster", "token"]).is_ok());

    // It begins anew.
    let left = cluster.members[1].operator(&["cluster", "leave", "--yes", "n2"]).unwrap();
    assert!(left.contains("n2 has left the cluster"), "{left}");
    eventually("it is a member of nothing", || cluster.members[1].operator(&["cluster", "status"]).is_err());
    cluster.members[1].stop_coordinator();
    cluster.members[1].start();
    cluster.join_with(&cluster.members[1], &cluster.token()).unwrap();
    cluster.is_complete();
    assert!(!opens_etcd(&cluster.members[0], &of_second), "its old certificate stays revoked");
}

/// Clients that count, through both nodes, until they are told to end: (key, acknowledged, uncertain).
fn count(host: &str, port: u16, number: usize, is_over: &AtomicBool, made: &AtomicU64) -> (String, u64, u64) {
    let mut client = Client::new(TcpStream::connect((host, port)).unwrap());
    let key = format!("counter{number}");
    let (mut acknowledged, mut uncertain) = (0, 0);
    while !is_over.load(Relaxed) {
        let reply = client.run(&format!("INCR {key}"));
        match reply.starts_with("(integer) ") {
            true => acknowledged += 1,
            false => {
                assert!(reply.starts_with("(error) UNCERTAIN"), "a node was out: {reply}");
                uncertain += 1;
            }
        }
        made.fetch_add(1, Relaxed);
    }
    (key, acknowledged, uncertain)
}

/// Ends the clients of a test that fails too.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn another_authority_takes_over_while_clients_write() {
    let mut cluster = Cluster::start(&[Role::Data, Role::Data, Role::Quorum], &[]);
    let port = cluster.create("counters", 4, &DATABASE);
    let old = folder(&cluster.members[0]).authority().unwrap().unwrap();
    let of_second = folder(&cluster.members[1]).credential(now_ms()).unwrap();
    let token = cluster.token();

    let (is_over, made) = (AtomicBool::new(false), AtomicU64::new(0));
    let counted: Vec<_> = std::thread::scope(|scope| {
        let _ends = Ends(&is_over);
        let (is_over, made) = (&is_over, &made);
        let hosts = [0, 1].map(|at| cluster.members[at].host.clone());
        let begin = |number: usize| {
            let host = hosts[number % 2].clone();
            scope.spawn(move || count(&host, port, number, is_over, made))
        };
        let clients: Vec<_> = (0..6).map(begin).collect();
        eventually("clients write", || made.load(Relaxed) > 500);
        cluster.members[1].operator(&["cluster", "authority", "replace", "--yes", "test"]).unwrap();
        let again = cluster.members[0].operator(&["cluster", "authority", "replace", "--yes", "test"]).unwrap_err();
        assert!(again.contains("is being replaced since 20"), "{again}");
        is_replaced(&cluster.members[0]);
        let written = made.load(Relaxed);
        eventually("clients go on", || made.load(Relaxed) > written + 500);
        is_over.store(true, Relaxed);
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let mut client = cluster.members[1].connect(port);
    for (key, acknowledged, uncertain) in counted {
        let value: u64 = client.run(&format!("GET {key}")).trim_matches('"').parse().unwrap();
        println!("{key}: {value}, {acknowledged} acknowledged, {uncertain} uncertain");
        assert!((acknowledged..=acknowledged + uncertain).contains(&value), "{key} is {value}");
    }
    eventually("every node runs", || are_live(&cluster));

    // The key of the old one is nowhere, and what it has signed opens nothing.
    let new = folder(&cluster.members[0]).authority().unwrap().unwrap();
    assert_ne!(new.certificate(), old.certificate());
    for member in &cluster.members {
        let folder = folder(member);
        assert_eq!(folder.authority().unwrap().unwrap().certificate(), new.certificate());
        assert!(!folder.next_authority_pem().exists());
        assert_eq!(folder.member().unwrap().unwrap().authorities, [new.certificate().pem()]);
    }
    for at in [0, 2] {
        assert!(!opens_etcd(&cluster.members[at], &of_second));
    }
    assert!(!opens_peer_port(&cluster.members[0], of_second));
    assert!(opens_peer_port(&cluster.members[0], folder(&cluster.members[1]).credential(now_ms()).unwrap()));
    let candidate = cluster.candidate(Role::Data, &[]);
    let void = cluster.join_with(&candidate, &token).unwrap_err();
    assert!(void.contains("is not of the cluster that the token names"), "{void}");
    let shown = cluster.members[0].operator(&["cluster", "authority"]).unwrap();
    assert!(shown.contains("has ended") && shown.contains(&new.certificate().fingerprint().to_string()), "{shown}");
    drop(candidate);
    // Nodes join, and restart.
    cluster.join(Role::Data, &[]).unwrap();
    cluster.members[1].kill_node();
    cluster.members[1].stop_coordinator();
    cluster.members[1].start();
    cluster.serves(0, "counters", 4);
    eventually("every node runs", || are_live(&cluster));
}

#[test]
#[ignore = "takes half a minute: part of make soak"]
fn a_replacement_waits_for_every_node_and_can_be_abandoned() {
    let mut cluster = Cluster::start(&[Role::Data, Role::Data, Role::Quorum], &[]);
    let old = folder(&cluster.members[0]).authority().unwrap().unwrap();
    let replace = ["cluster", "authority", "replace", "--yes", "test"];
    cluster.members[1].kill_node();
    eventually("the node is seen to be away", || is_away(&cluster, "n2"));
    let refused = cluster.members[0].operator(&replace).unwrap_err();
    assert!(refused.contains("node 'n2' does not run") && refused.contains("flintkv cluster forget n2"), "{refused}");
    cluster.members[1].start();
    eventually("every node runs", || are_live(&cluster));

    // Before the first step is done.
    cluster.members[1].stop_coordinator();
    cluster.members[0].operator(&replace).unwrap();
    eventually("it waits for the node's etcd", || {
        authority(&cluster.members[0])["replacement"]["waits_for"]
            .to_string()
            .contains("node 'n2' has not restarted its etcd")
    });
    cluster.members[1].kill_node();
    eventually("it waits for the node", || {
        let shown = cluster.members[0].operator(&["cluster", "authority"]).unwrap_or_default();
        shown.contains("step 1 of 3") && shown.contains("node 'n2' does not run")
    });
    cluster.members[0].operator(&["cluster", "authority", "abandon", "--yes", "test"]).unwrap();
    cluster.members[1].start();
    is_replaced(&cluster.members[0]);
    for member in &cluster.members {
        let folder = folder(member);
        assert_eq!(folder.authority().unwrap().unwrap().certificate(), old.certificate());
        assert!(!folder.next_authority_pem().exists());
    }
    let none = cluster.members[0].operator(&["cluster", "authority", "abandon", "--yes", "test"]).unwrap_err();
    assert!(none.contains("no replacement of its authority under way"), "{none}");

    // Every process is killed while it is under way, and it goes on.
    cluster.members[0].operator(&replace).unwrap();
    for at in [1, 0] {
        cluster.members[at].kill_node();
        cluster.members[at].stop_coordinator();
        cluster.members[at].start();
    }
    is_replaced(&cluster.members[0]);
    let new = folder(&cluster.members[2]).authority().unwrap().unwrap();
    assert_ne!(new.certificate(), old.certificate());
    eventually("every node runs", || are_live(&cluster));
}
