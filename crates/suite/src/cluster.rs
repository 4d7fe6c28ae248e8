//! Measures what a cluster costs: four shards over two nodes against one node, with and without the cipher of links, the latency that
//! another node adds, beside a round trip of the same bytes over loopback, and what a write waits for its replica. All processes
//! share this machine. Never knows the server's code.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use flintkv_tests::cluster::{Cluster, Role};
use flintkv_tests::eventually;

use super::figure::{Figure, Target, median};
use super::lab::{FIRST_KEY, Lab, Shot, Subject, VALUE_BYTES, fill, rof_load};
use bench::scenario::node::Node;
use bench::scenario::watch::Watch;
use bench::scenario::wire::{Client, Endpoint};

const PIPELINE: u32 = 11;
/// All in RAM.
const LIMITS: [&str; 6] = ["--memory-limit", "1500mb", "--ram-limit", "1500mb", "--persistence", "none"];
/// Questions of one sample of a latency.
const QUESTIONS: usize = 5000;
/// Samples of the latencies, in turns.
const SAMPLES: usize = 7;

/// Indices into the subjects.
const ALONE: usize = 0;
const ENCIPHERED: usize = 1;
const PLAIN: usize = 2;

/// A cluster that does not become complete panics, as in the tests that share it.
pub fn measure(lab: &mut Lab) -> Result<Vec<Figure>> {
    let enciphered = begin("yes");
    let mut figures = throughput(lab, &enciphered, &begin("no"))?;
    figures.push(latency(lab, &enciphered)?);
    figures.push(synchronous(lab, &enciphered)?);
    Ok(figures)
}

/// Two nodes with data.
fn begin(peer_tls: &str) -> Cluster {
    Cluster::start(&[Role::Data, Role::Data], &[("peer-tls", peer_tls)])
}

/// Where the cluster's database listens at one of its nodes.
fn endpoint(cluster: &Cluster, at: usize, port: u16) -> Endpoint {
    Endpoint { host: cluster.members[at].host.clone(), port, password: None }
}

// --- throughput ---

fn throughput(lab: &mut Lab, enciphered: &Cluster, plain: &Cluster) -> Result<Vec<Figure>> {
    let keys = lab.scaled(500_000, 50_000);
    let mut subjects = vec![lab.start("one node", &lab.flintkv().directive("io-threads", 2))?];
    for (name, cluster) in [("two, TLS", enciphered), ("two, no TLS", plain)] {
        let port = cluster.create("wide", 4, &LIMITS);
        cluster.serves(0, "wide", 4);
        let node = Node::connect(endpoint(cluster, 0, port))?;
        let watch = Watch::start(&node);
        subjects.push(Subject { name: name.to_owned(), node, watch });
    }
    for subject in &mut subjects {
        lab.populate(subject, &[fill(FIRST_KEY, keys)])?;
    }
    let load = rof_load(keys, PIPELINE, keys as f64 / 10.0);
    let rounds = lab.rounds(&mut subjects, &load, lab.shot)?;
    ensure!(rounds.0.iter().flatten().all(|shot| shot.errors == 0), "commands were refused: see above");
    let rate = |shot: &Shot| shot.ops_per_s;
    let of = |subject: usize, how: &str, goal: f64| {
        Figure::new(
            &format!("throughput of four shards on two nodes, pipeline {PIPELINE}, {how}"),
            "÷ one node's; clients at one of the nodes, all on the same cores, all in RAM, 1:1, 20 connections",
            rounds.ratio(subject, ALONE, rate),
            Target::AtLeast(goal),
            format!("{:.0} against {:.0} ops/s", rounds.of(subject, rate), rounds.of(ALONE, rate)),
        )
    };
    Ok(vec![of(ENCIPHERED, "peer-tls yes", 0.4), of(PLAIN, "peer-tls no", 0.6)])
}

// --- latency ---

/// One client asks for one value after the other, at the owner's node and at the other one. Nothing else runs.
fn latency(lab: &Lab, cluster: &Cluster) -> Result<Figure> {
    let port = cluster.create("single", 1, &LIMITS);
    cluster.serves(0, "single", 1);
    let shown = cluster.members[0].operator(&["database", "shards", "single", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown.map_err(anyhow::Error::msg)?)?;
    let owner = usize::from(shown[0]["node"] != "n1");
    let mut here = Client::connect(&endpoint(cluster, owner, port))?;
    let mut there = Client::connect(&endpoint(cluster, 1 - owner, port))?;
    here.call(&["SET", "key", &"x".repeat(VALUE_BYTES as usize)])?;
    let ask = |client: &mut Client| -> Result<f64> { p50_us(|| client.call(&["GET", "key"]).map(drop)) };
    let mut echo = Echo::start()?;
    // Of each round, whose parts the machine's speed affects equally.
    let (mut added, mut trips, mut over) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..if lab.quick { 3 } else { SAMPLES } {
        let (direct, trip, forwarded) = (ask(&mut here)?, p50_us(|| echo.trip())?, ask(&mut there)?);
        eprintln!("   GET {direct:.0} µs at its owner, {forwarded:.0} µs by the other node; a round trip {trip:.0} µs");
        added.push(forwarded - direct);
        trips.push(trip);
        over.push(forwarded - direct - trip);
    }
    let detail = format!("p50 grows by {:.0} µs; the round trip takes {:.0} µs", median(&added), median(&trips));
    let how = "p50 of GETs one after the other, beyond a round trip of as many bytes over loopback between two threads; peer-tls yes";
    Ok(Figure::new("latency added by another node", how, median(&over), Target::AtMost(60.0), detail).unit(" µs"))
}

/// One client writes one value after the other, at the node of the primary, whose replica is on the other node. Nothing else runs.
fn synchronous(lab: &Lab, cluster: &Cluster) -> Result<Figure> {
    const SMALL: [&str; 6] = ["--memory-limit", "200mb", "--ram-limit", "200mb", "--persistence", "none"];
    let begin = |name: &str| -> Result<Client> {
        let port = cluster.create(name, 1, &[&SMALL[..], &["--replicas", "1", "--replication", name]].concat());
        let mut primary = None;
        eventually("both copies are in sync", || {
            let Ok(shown) = cluster.members[0].operator(&["database", "shards", name, "--json"]) else { return false };
            let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
            primary = shown[0]["node"].as_str().map(str::to_owned);
            shown[0]["copies"]
                .as_array()
                .is_some_and(|copies| copies.len() == 2 && copies.iter().all(|copy| copy["is_in_sync"] == true))
        });
        Client::connect(&endpoint(cluster, usize::from(primary.as_deref() != Some("n1")), port))
    };
    let (mut async_client, mut sync_client) = (begin("async")?, begin("sync")?);
    let value = "x".repeat(VALUE_BYTES as usize);
    let set = |client: &mut Client| -> Result<f64> { p50_us(|| client.call(&["SET", "key", &value]).map(drop)) };
    let (mut asynchronous, mut synchronous, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..if lab.quick { 3 } else { SAMPLES } {
        let (of_async, of_sync) = (set(&mut async_client)?, set(&mut sync_client)?);
        eprintln!("   SET {of_async:.0} µs in async, {of_sync:.0} µs in sync");
        asynchronous.push(of_async);
        synchronous.push(of_sync);
        ratios.push(of_sync / of_async);
    }
    let how = "p50 of SETs one after the other at the primary's node, replica on the other node, peer-tls yes; ÷ that of async";
    let detail = format!("{:.0} against {:.0} µs", median(&synchronous), median(&asynchronous));
    Ok(Figure::new("a SET in sync", how, median(&ratios), Target::AtMost(1.6), detail))
}

/// The median of what one call takes.
fn p50_us(mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut times = Vec::with_capacity(QUESTIONS);
    for _ in 0..QUESTIONS {
        let begun = Instant::now();
        call()?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(&times))
}

/// A connection over loopback to a thread that answers some bytes with as many as a value has.
struct Echo(TcpStream);

impl Echo {
    const QUESTION_BYTES: usize = 32;

    /// The thread ends with the connection.
    fn start() -> Result<Echo> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("no free port")?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        let (mut other, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        other.set_nodelay(true)?;
        std::thread::spawn(move || {
            let mut question = [0; Echo::QUESTION_BYTES];
            while other.read_exact(&mut question).is_ok() && other.write_all(&[0; VALUE_BYTES as usize]).is_ok() {}
        });
        Ok(Echo(stream))
    }

    fn trip(&mut self) -> Result<()> {
        self.0.write_all(&[0; Echo::QUESTION_BYTES])?;
        Ok(self.0.read_exact(&mut [0; VALUE_BYTES as usize])?)
    }
}
