//! What a change costs a node of a large cluster, in processor time: one real node follows the records of very many others, which are only
//! records. `FLINTKV=BINARY cargo test -p flintkv-tests --test large_cluster -- --ignored --nocapture` prints the figure for 1,000 nodes
//! and 10,000 shards.

use cluster::ids::{CopyNumber, DatabaseId, NodeId, ShardNumber};
use cluster::keys::Key;
use cluster::records::{Assignment, MapRecord, NodeRecord, ShardRecord, SpecRecord, UsersRecord, encode};
use cluster::stripes::StripeMap;
use flintkv_tests::cluster::{Cluster, Member};
use flintkv_tests::{Client, eventually};
use membership::records::{Change, Records};
use rustix::net::{AddressFamily, SocketAddrV4, SocketType};
use serde_json::Value;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// etcd takes 128 operations in a transaction.
const PUTS_MAX: usize = 100;
/// Between two changes, so that each comes alone.
const PAUSE: Duration = Duration::from_millis(200);

struct Etcd {
    runtime: tokio::runtime::Runtime,
    records: Records,
}

impl Etcd {
    /// As this member reaches it.
    fn of(member: &Member) -> Etcd {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let state = member.dir.path().join("state").display().to_string();
        let config = config::ConfigStore::from_directives(&[("state-dir", &state)]).unwrap();
        let folder = membership::Folder::of(&config.snapshot());
        let (found, credential) =
            (folder.member().unwrap().unwrap(), folder.credential(base::clock::wall_ms()).unwrap());
        let _inside = runtime.enter();
        let etcd = membership::etcd_client(&found, &credential, &found.etcd.endpoints).unwrap();
        let records = Records::new(Arc::new(etcd), found.cluster);
        drop(_inside);
        Etcd { runtime, records }
    }

    fn get<R: serde::de::DeserializeOwned>(&self, key: Key) -> R {
        self.runtime.block_on(self.records.get(&key.to_string())).unwrap().expect("the record is there").0
    }

    fn put(&self, records: &[(Key, Vec<u8>)]) {
        for part in records.chunks(PUTS_MAX) {
            let put = |change: Change, (key, bytes): &(Key, Vec<u8>)| change.put_bytes(&key.to_string(), bytes.clone());
            self.runtime.block_on(self.records.change(part.iter().fold(Change::default(), put))).unwrap();
        }
    }
}

/// A port where connections are never made and never refused: the queue for them is full.
fn hole(host: &str) -> (OwnedFd, TcpStream) {
    let address = SocketAddrV4::new(host.parse().unwrap(), 8380);
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &address).unwrap();
    rustix::net::listen(&socket, 0).unwrap();
    let first = TcpStream::connect(address).unwrap();
    (socket, first)
}

/// User and system time of a process.
fn processor_time(pid: u64) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn node(number: u16) -> NodeId {
    let mut id = [0xee; 20];
    id[..2].copy_from_slice(&number.to_be_bytes());
    NodeId(id)
}

/// A shard whose only copy is at this node.
fn shard(at: u16) -> ShardRecord {
    ShardRecord::new(CopyNumber(0), vec![Assignment::new(CopyNumber(0), node(at))])
}

/// The processor time of a node for one change of a shard.
fn cost_of_a_change(nodes: u16, databases: u16, shards: u16, changes: u16) -> Duration {
    let cluster = Cluster::begin(&[("io-threads", "2"), ("proxy-ram", "16mb")]);
    let member = &cluster.members[0];
    let port = cluster.create("model", 1, &["--memory-limit", "64mb", "--ram-limit", "64mb", "--persistence", "none"]);
    let etcd = Etcd::of(member);
    let shown = |words: &[&str]| -> Value { serde_json::from_str(&member.operator(words).unwrap()).unwrap() };
    let id = shown(&["cluster", "status", "--json"])["databases"][0]["id"].as_str().unwrap().parse().unwrap();
    let me = shown(&["cluster", "status", "--json"])["nodes"][0]["id"].as_str().unwrap().parse().unwrap();
    let (spec, users): (SpecRecord, UsersRecord) = (etcd.get(Key::Spec(id)), etcd.get(Key::Users(id)));
    let real: NodeRecord = etcd.get(Key::Node(me));

    let (network, _) = member.host.rsplit_once('.').unwrap();
    let (elsewhere, mut records) = (format!("{network}.250"), Vec::new());
    let _hole = hole(&elsewhere);
    for number in 1..nodes {
        let mut record = real.clone();
        record.name = format!("node-{number}").parse().unwrap();
        record.zone = format!("zone-{}", number % 3).parse().unwrap();
        record.addresses.peer = format!("{elsewhere}:8380").parse().unwrap();
        let key = Key::Node(node(number));
        records.push((key, encode(key, &record).unwrap()));
    }
    let database = |number: u16| DatabaseId([0xdb, 0, 0, 0, 0, 0, 0, 0, 0, number as u8]);
    for number in 0..databases {
        let id = database(number);
        let map = MapRecord { runs: StripeMap::even(shards).unwrap().runs().to_vec(), unknown: Default::default() };
        let mut spec = spec.clone();
        spec.name = format!("wide-{number}").parse().unwrap();
        (spec.definition.known.port, spec.definition.known.shards) = (port + 1 + number, shards.into());
        // Complete before its spec is there.
        for number in 0..shards {
            let key = Key::Shard(id, ShardNumber(number));
            records.push((key, encode(key, &shard(1 + number % (nodes - 2))).unwrap()));
        }
        records.push((Key::Map(id), encode(Key::Map(id), &map).unwrap()));
        records.push((Key::Users(id), encode(Key::Users(id), &users).unwrap()));
        records.push((Key::Spec(id), encode(Key::Spec(id), &spec).unwrap()));
    }
    etcd.put(&records);
    for number in 0..databases {
        eventually("the node has a proxy of each database", || {
            TcpStream::connect((member.host.as_str(), port + 1 + number)).is_ok()
        });
    }
    let info = Client::new(TcpStream::connect((member.host.as_str(), port)).unwrap()).run("INFO server");
    let pid = info.split("process_id:").nth(1).unwrap().split(|byte: char| !byte.is_ascii_digit()).next().unwrap();
    let pid = pid.parse().unwrap();

    // What the node does by the clock, with so many nodes that it tries to reach.
    let time = PAUSE * u32::from(changes);
    let (from, begun) = (processor_time(pid), Instant::now());
    sleep(time);
    let idle = (processor_time(pid) - from).div_f64(begun.elapsed().as_secs_f64());
    let (from, begun) = (processor_time(pid), Instant::now());
    for number in 0..changes {
        let mut moved = shard(nodes - 1);
        moved.epoch = moved.epoch.next();
        let key = Key::Shard(database(number % databases), ShardNumber(number % shards));
        etcd.put(&[(key, encode(key, &moved).unwrap())]);
        sleep(PAUSE);
    }
    let all = processor_time(pid) - from;
    let one = all.saturating_sub(idle.mul_f64(begun.elapsed().as_secs_f64())) / u32::from(changes);
    let name = format!("wide-{}", (changes - 1) % databases);
    eventually("the last change has come", || {
        let shards = shown(&["database", "shards", &name, "--json"]);
        shards[usize::from((changes - 1) % shards.as_array().unwrap().len() as u16)]["node"]
            == format!("node-{}", nodes - 1)
    });
    println!(
        "{nodes} nodes, {} shards: a change of a shard takes {:.1} ms of processor time at a node; without changes a second takes {:.1} ms",
        databases * shards,
        one.as_secs_f64() * 1e3,
        idle.as_secs_f64() * 1e3
    );
    one
}

#[test]
fn a_change_of_a_shard_reaches_a_node_that_follows_many() {
    cost_of_a_change(30, 2, 50, 5);
}

#[test]
#[ignore = "it prints a figure of the shipped build: 1,000 nodes, 10,000 shards"]
fn a_large_cluster() {
    assert!(cost_of_a_change(1000, 10, 1000, 50) <= Duration::from_millis(100));
}
