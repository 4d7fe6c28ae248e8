//! Clusters of several processes under faults: connections between nodes that are cut anywhere, readers that do not read, clocks that are
//! an hour apart, and a disk that is full.

use flintkv_tests::cluster::{Cluster, Role};
use flintkv_tests::cutter::Cutter;
use flintkv_tests::{Client, Random, eventually, resident_bytes, seed};
use resp::client::{Value, encode_command};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

const LIMITS: &[&str] = &["--memory-limit", "400mb", "--ram-limit", "60%", "--persistence", "none"];

fn connect(host: &str, port: u16) -> Client {
    Client::new(TcpStream::connect((host, port)).expect("the node accepts connections"))
}

/// Ends the clients of a test that fails too.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

// --- connections between nodes ---

/// The keys of one client, which nobody else writes. They lie in many slots.
const KEYS: usize = 12;

/// What is known of a counter that was incremented, by `step` at a time.
#[derive(Default)]
struct Counter {
    acknowledged: i64,
    uncertain: i64,
    last: i64,
}

impl Counter {
    fn is(&mut self, value: i64, what: &str) {
        let most = self.acknowledged + self.uncertain + 1;
        assert!(value > self.last && value <= most, "{what} went from {} to {value}, at most {most}", self.last);
        self.last = value;
        self.acknowledged += 1;
    }

    fn ends_with(&self, value: i64, what: &str) {
        let (least, most) = (self.acknowledged, self.acknowledged + self.uncertain);
        assert!((least..=most).contains(&value), "{what} is {value}: {least} acknowledged, {} uncertain", most - least);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sent {
    Increment(usize),
    /// By a script.
    Script(usize),
    Push(usize, u64),
    /// Two increments in a transaction: the four replies of MULTI to EXEC.
    Pair(usize),
    Big(usize),
    Several,
    /// Answered by the node itself, in its place among the replies.
    Ping(u64),
}

#[derive(Default)]
struct Totals {
    acknowledged: u64,
    uncertain: u64,
    refused: u64,
    closed: u64,
}

/// A client that knows what its keys can hold.
struct Checking {
    number: usize,
    random: Random,
    big: Vec<Vec<u8>>,
    counters: Vec<Counter>,
    pairs: Vec<Counter>,
    /// Acknowledged elements of the lists.
    pushed: Vec<Vec<u64>>,
    maybe_pushed: Vec<BTreeSet<u64>>,
    next: u64,
    totals: Totals,
}

impl Checking {
    fn new(number: usize) -> Checking {
        let mut random = Random::new(seed().wrapping_add(number as u64 * 7919));
        // From some bytes to more than what is on the way between two nodes at a time.
        let big = (0..KEYS).map(|key| random.noise([10, 3_000, 70_000, 1_500_000][key % 4])).collect();
        Checking {
            number,
            random,
            big,
            counters: (0..KEYS).map(|_| Counter::default()).collect(),
            pairs: (0..KEYS).map(|_| Counter::default()).collect(),
            pushed: vec![Vec::new(); KEYS],
            maybe_pushed: vec![BTreeSet::new(); KEYS],
            next: 0,
            totals: Totals::default(),
        }
    }

    fn key(&self, kind: &str, key: usize) -> Vec<u8> {
        format!("{kind}:{}:{key}", self.number).into_bytes()
    }

    fn prepare(&self, client: &mut Client) {
        client.set_all((0..KEYS).map(|key| (self.key("big", key), &self.big[key])));
    }

    fn draw(&mut self) -> Sent {
        let key = self.random.below(KEYS);
        self.next += 1;
        match self.random.below(16) {
            0..=4 => Sent::Increment(key),
            5 => Sent::Script(key),
            6..=9 => Sent::Push(key, self.next),
            10 => Sent::Pair(key),
            // Large values are asked for seldom.
            11 | 12 => Sent::Big(if self.random.one_in(10) { key } else { key / 4 * 4 + key % 3 }),
            13 => Sent::Several,
            _ => Sent::Ping(self.next),
        }
    }

    fn encode(&self, sent: Sent, to: &mut Vec<u8>) {
        match sent {
            Sent::Increment(key) => encode_command(&[b"INCR", &self.key("count", key)], to),
            Sent::Script(key) => {
                encode_command(&[b"EVAL", b"return redis.call('INCR', KEYS[1])", b"1", &self.key("count", key)], to);
            }
            Sent::Push(key, element) => {
                encode_command(&[b"RPUSH", &self.key("list", key), element.to_string().as_bytes()], to);
            }
            Sent::Pair(key) => {
                encode_command(&[b"MULTI"], to);
                encode_command(&[b"INCR", &self.key("pair", key)], to);
                encode_command(&[b"INCR", &self.key("pair", key)], to);
                encode_command(&[b"EXEC"], to);
            }
            Sent::Big(key) => encode_command(&[b"GET", &self.key("big", key)], to),
            Sent::Several => {
                let keys = [self.key("big", 0), self.key("big", 1), self.key("big", 4), self.key("big", 5)];
                encode_command(&[b"MGET", &keys[0], &keys[1], &keys[2], &keys[3]], to);
            }
            Sent::Ping(nonce) => encode_command(&[b"PING", nonce.to_string().as_bytes()], to),
        }
    }

    /// Nobody knows whether it has run, or will.
    fn is_uncertain(&mut self, sent: Sent) {
        self.totals.uncertain += 1;
        match sent {
            Sent::Increment(key) | Sent::Script(key) => self.counters[key].uncertain += 1,
            Sent::Pair(key) => self.pairs[key].uncertain += 2,
            Sent::Push(key, element) => {
                self.maybe_pushed[key].insert(element);
            }
            Sent::Big(_) | Sent::Several | Sent::Ping(_) => self.totals.uncertain -= 1,
        }
    }

    /// `None`: the connection was closed before.
    fn take(&mut self, sent: Sent, client: &mut Client) -> Option<()> {
        if let Sent::Pair(_) = sent {
            assert_eq!(client.reply()?, Value::Simple(b"OK".to_vec()));
            for _ in 0..2 {
                assert_eq!(client.reply()?, Value::Simple(b"QUEUED".to_vec()));
            }
        }
        let reply = client.reply()?;
        let what = format!("client {}, {sent:?}", self.number);
        if let Value::Error(text) = &reply {
            let text = String::from_utf8_lossy(text);
            match () {
                () if text.starts_with("UNCERTAIN ") => {
                    assert!(!matches!(sent, Sent::Big(_) | Sent::Several | Sent::Ping(_)), "{what}: {text}");
                    self.is_uncertain(sent);
                }
                () if text.starts_with("CLUSTERDOWN ") && !matches!(sent, Sent::Ping(_)) => self.totals.refused += 1,
                () => panic!("{what}: {text}"),
            }
            return Some(());
        }
        self.totals.acknowledged += 1;
        match (sent, reply) {
            (Sent::Increment(key) | Sent::Script(key), Value::Int(value)) => self.counters[key].is(value, &what),
            (Sent::Push(key, element), Value::Int(length)) => {
                self.pushed[key].push(element);
                let most = self.pushed[key].len() + self.maybe_pushed[key].len();
                assert!((self.pushed[key].len()..=most).contains(&(length as usize)), "{what}: {length} elements");
            }
            (Sent::Pair(key), Value::Array(both)) => {
                let [Value::Int(first), Value::Int(second)] = both[..] else { panic!("{what}: {both:?}") };
                assert!(first % 2 == 1 && second == first + 1, "{what}: {first}, {second}");
                let pair = &mut self.pairs[key];
                assert!(first > pair.last && second <= pair.acknowledged + pair.uncertain + 2, "{what}: {first}");
                (pair.last, pair.acknowledged) = (second, pair.acknowledged + 2);
            }
            (Sent::Big(key), Value::Bulk(value)) => assert!(value == self.big[key], "{what}: another value"),
            (Sent::Several, Value::Array(values)) => {
                let expected = [0, 1, 4, 5].map(|key| Value::Bulk(self.big[key].clone()));
                let is_right = |(value, expected): (&Value, &Value)| {
                    value == expected || matches!(value, Value::Error(text) if text.starts_with(b"CLUSTERDOWN "))
                };
                assert!(values.len() == 4 && values.iter().zip(&expected).all(is_right), "{what}: other values");
            }
            (Sent::Ping(nonce), Value::Bulk(echoed)) => assert_eq!(echoed, nonce.to_string().as_bytes(), "{what}"),
            (_, reply) => panic!("{what}: {reply:?}"),
        }
        Some(())
    }

    fn run(mut self, host: &str, port: u16, is_over: &AtomicBool) -> Checking {
        let mut client = connect(host, port);
        while !is_over.load(Relaxed) {
            let pipeline: Vec<Sent> = (0..1 + self.random.below(20)).map(|_| self.draw()).collect();
            let mut bytes = Vec::new();
            pipeline.iter().for_each(|&sent| self.encode(sent, &mut bytes));
            client.send(&bytes);
            let taken = pipeline.iter().take_while(|&&sent| self.take(sent, &mut client).is_some()).count();
            if taken < pipeline.len() {
                // A large reply was cut in its middle, when a part of it had been passed on.
                self.totals.closed += 1;
                pipeline[taken..].iter().for_each(|&sent| self.is_uncertain(sent));
                client = connect(host, port);
            }
        }
        self
    }

    /// What is there after all of it.
    fn check(&self, client: &mut Client) {
        let number = |value: Value| match value {
            Value::Bulk(text) => String::from_utf8(text).unwrap().parse::<i64>().unwrap(),
            Value::Null => 0,
            other => panic!("{other:?}"),
        };
        for key in 0..KEYS {
            let name = |kind: &str| String::from_utf8(self.key(kind, key)).unwrap();
            self.counters[key].ends_with(number(client.call(&[b"GET", &self.key("count", key)])), &name("count"));
            let pair = number(client.call(&[b"GET", &self.key("pair", key)]));
            self.pairs[key].ends_with(pair, &name("pair"));
            assert_eq!(pair % 2, 0, "{}: half of a transaction", name("pair"));
            let Value::Array(elements) = client.call(&[b"LRANGE", &self.key("list", key), b"0", b"-1"]) else {
                panic!("a list")
            };
            let elements: Vec<u64> = elements.into_iter().map(|element| number(element) as u64).collect();
            let unique: BTreeSet<u64> = elements.iter().copied().collect();
            assert_eq!(unique.len(), elements.len(), "{}: an element is there twice", name("list"));
            // What is uncertain may have come late. What was acknowledged is there, in its order, and what was refused is not.
            let maybe = &self.maybe_pushed[key];
            let certain: Vec<u64> = elements.into_iter().filter(|element| !maybe.contains(element)).collect();
            assert_eq!(certain, self.pushed[key], "{}", name("list"));
        }
    }
}

/// Every reply belongs to its command, and no write runs twice, wherever connections between nodes are cut: in handshakes and frames, in
/// either direction, after which bytes still arrive or none.
#[test]
fn links_that_are_cut_at_every_kind_of_byte() {
    let (cluster, cutters) = Cluster::start_cut(&[Role::Data, Role::Data], &[]);
    let port = cluster.create("counters", 4, LIMITS);
    let mut first = cluster.members[0].connect(port);
    let clients: Vec<Checking> = (0..6).map(Checking::new).collect();
    clients.iter().for_each(|client| client.prepare(&mut first));
    let broken = || cutters.iter().map(Cutter::broken).sum::<u64>();
    let (is_over, begun) = (AtomicBool::new(false), Instant::now());
    let clients: Vec<Checking> = std::thread::scope(|scope| {
        let _ends = Ends(&is_over);
        cutters.iter().enumerate().for_each(|(at, cutter)| cutter.begin(seed().wrapping_add(at as u64)));
        let (members, is_over) = (&cluster.members, &is_over);
        let run =
            |(at, client): (usize, Checking)| scope.spawn(move || client.run(&members[at % 2].host, port, is_over));
        let threads: Vec<_> = clients.into_iter().enumerate().map(run).collect();
        eventually("connections are broken", || broken() > 60 || threads.iter().any(|thread| thread.is_finished()));
        while begun.elapsed() < seeds::budget() && !threads.iter().any(|thread| thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(50));
        }
        is_over.store(true, Relaxed);
        threads.into_iter().map(|thread| thread.join().expect("every reply is right")).collect()
    });
    cutters.iter().for_each(Cutter::end);
    for at in [0, 1] {
        cluster.serves(at, "counters", 4);
        let mut client = cluster.members[at].connect(port);
        clients.iter().for_each(|checking| checking.check(&mut client));
    }
    let sum = |figure: fn(&Totals) -> u64| clients.iter().map(|client| figure(&client.totals)).sum::<u64>();
    let (acknowledged, uncertain) = (sum(|totals| totals.acknowledged), sum(|totals| totals.uncertain));
    println!(
        "{} connections broken in {:.1} s: {acknowledged} replies, {uncertain} writes uncertain, {} refused, {} clients closed",
        broken(),
        begun.elapsed().as_secs_f32(),
        sum(|totals| totals.refused),
        sum(|totals| totals.closed)
    );
    assert!(acknowledged > 200, "{acknowledged} replies: hardly anything ran between the cuts");
}

/// Who does not read holds up nobody else: neither a client, nor a node.
#[test]
fn slow_readers_hold_up_only_themselves() {
    const BIG: usize = 1 << 20;
    let (cluster, cutters) = Cluster::start_cut(&[Role::Data, Role::Data], &[("io-threads", "1")]);
    let port = cluster.create("orders", 4, LIMITS);
    let mut client = cluster.members[0].connect(port);
    let keys: Vec<String> = (0..40).map(|number| format!("k{number}")).collect();
    client.set_all(keys.iter().map(|key| (key, key.as_bytes())));
    client.set_all((0..8).map(|number| (format!("big{number}"), Random::new(number).noise(BIG))));

    // A client of the same worker asks for much and does not read. Another one gets everything meanwhile.
    let mut sleeper = connect(&cluster.members[0].host, port);
    let mut bytes = Vec::new();
    for round in 0..6 {
        (0..8).for_each(|number| encode_command(&[b"GET", format!("big{number}").as_bytes()], &mut bytes));
        encode_command(&[b"PING", round.to_string().as_bytes()], &mut bytes);
    }
    sleeper.send(&bytes);
    for _ in 0..20 {
        for key in &keys {
            assert_eq!(client.run(&format!("GET {key}")), format!("\"{key}\""));
        }
    }
    assert!(matches!(client.call(&[b"GET", b"big3"]), Value::Bulk(value) if value.len() == BIG));
    // In the end it gets all of it, in order.
    for round in 0..6 {
        for number in 0..8 {
            let expected = Value::Bulk(Random::new(number).noise(BIG));
            assert!(sleeper.reply() == Some(expected), "big{number} in round {round}");
        }
        assert_eq!(sleeper.read(), format!("\"{round}\""));
    }

    // The second node does not read what the first one sends. The first one's own keys are served, in both directions.
    let here = |key: &&String| cluster.owner("orders", key) == 0;
    let (near, far): (Vec<_>, Vec<_>) = keys.iter().partition(here);
    assert!(near.len() > 5 && far.len() > 5, "{near:?}, {far:?}");
    let held = cutters[1].hold();
    let mut waiting = connect(&cluster.members[0].host, port);
    let pipeline: String = keys.iter().map(|key| format!("GET {key}\r\n")).collect();
    waiting.send(pipeline.as_bytes());
    for _ in 0..20 {
        for key in &near {
            assert_eq!(client.run(&format!("GET {key}")), format!("\"{key}\""));
        }
    }
    held.deliver();
    for key in &keys {
        assert_eq!(waiting.read(), format!("\"{key}\""));
    }
}

// --- memory ---

const MIB: u64 = 1 << 20;

/// Runs a load. Meanwhile, well-behaved clients of both nodes are served, and the nodes' resident sizes stay within the sum of the limits.
fn within_the_limits(cluster: &Cluster, port: u16, case: &str, sum: u64, load: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    let (largest, served): ([AtomicU64; 2], [AtomicU64; 2]) = Default::default();
    let longest: Vec<Duration> = std::thread::scope(|scope| {
        let _ends = Ends(&is_over);
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                for (member, largest) in cluster.members.iter().zip(&largest) {
                    largest.fetch_max(resident_bytes(member.pid()), Relaxed);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let (is_over, counted) = (&is_over, &served);
        let serve = move |at: usize| {
            let mut client = connect(&cluster.members[at].host, port);
            let mut longest = Duration::ZERO;
            while !is_over.load(Relaxed) {
                let begun = Instant::now();
                let number = counted[at].fetch_add(1, Relaxed) % 100;
                assert_eq!(client.run(&format!("GET small{number}")), "\"v\"", "{case}");
                longest = longest.max(begun.elapsed());
                std::thread::sleep(Duration::from_millis(1));
            }
            longest
        };
        let others: Vec<_> = [0, 1].map(|at| scope.spawn(move || serve(at))).into();
        load();
        eventually("others are served", || {
            served.iter().all(|count| count.load(Relaxed) > 100) || others.iter().any(|other| other.is_finished())
        });
        is_over.store(true, Relaxed);
        others.into_iter().map(|other| other.join().expect("others are served")).collect()
    });
    for (at, largest) in largest.iter().enumerate() {
        let (percent, count, longest) = (largest.load(Relaxed) * 100 / sum, served[at].load(Relaxed), longest[at]);
        println!(
            "{case}, n{}: {percent} % of {} MiB, {count} commands served, the longest in {longest:?}",
            at + 1,
            sum / MIB
        );
        assert!(percent <= 110, "{case}: n{} has {} bytes", at + 1, largest.load(Relaxed));
    }
}

/// A proxy's clients are bounded by a RAM limit of their own, `proxy-ram`, however much they ask of shards at other nodes.
#[test]
fn the_ram_limits_hold_under_rude_clients() {
    // Several fit into what may be on the way to one client.
    const BIG: usize = 200_000;
    // The node's own database, the proxy, and two of four shards.
    let sum = (48 + 64 + 120) * MIB;
    let cluster = Cluster::start(&[Role::Data, Role::Data], &[("ram-limit", "48mb"), ("proxy-ram", "64mb")]);
    let limits = ["--memory-limit", "600mb", "--ram-limit", "240mb", "--persistence", "none"];
    let port = cluster.create("orders", 4, &limits);
    let mut client = cluster.members[0].connect(port);
    client.set_all((0..100).map(|number| (format!("small{number}"), "v")));
    client.set_all((0..16).map(|number| (format!("big{number}"), Random::new(number).noise(BIG))));
    let big: Vec<String> = (0..16).map(|number| format!("big{number}")).collect();
    let many = |count: usize| (0..count).map(|at| connect(&cluster.members[at % 2].host, port)).collect::<Vec<_>>();
    let unread = || {
        let resident = || cluster.members.iter().map(|member| resident_bytes(member.pid())).sum::<u64>();
        let (mut last, begun) = (resident(), Instant::now());
        // What will be sent to them has been sent.
        while begun.elapsed() < Duration::from_secs(15) {
            std::thread::sleep(Duration::from_millis(500));
            let now = resident();
            if now < last + MIB && begun.elapsed() > Duration::from_secs(2) {
                return;
            }
            last = now;
        }
    };

    within_the_limits(&cluster, port, "300 clients ask for 16 MB each and do not read", sum, || {
        let mut pipeline = Vec::new();
        for _ in 0..5 {
            big.iter().for_each(|key| encode_command(&[b"GET", key.as_bytes()], &mut pipeline));
        }
        let mut rude = many(300);
        rude.iter_mut().for_each(|client| {
            client.send(&pipeline);
        });
        unread();
    });
    within_the_limits(
        &cluster,
        port,
        "40 clients ask with MGET for 3 MB in one reply, 5 times, and do not read",
        sum,
        || {
            let mut words: Vec<&[u8]> = vec![b"MGET"];
            words.extend(big.iter().map(String::as_bytes));
            let mut pipeline = Vec::new();
            (0..5).for_each(|_| encode_command(&words, &mut pipeline));
            let mut rude = many(40);
            rude.iter_mut().for_each(|client| {
                client.send(&pipeline);
            });
            unread();
        },
    );
    within_the_limits(&cluster, port, "8 clients set 8 values of 300 KB each and do not read", sum, || {
        let host = |at: usize| cluster.members[at % 2].host.as_str();
        std::thread::scope(|scope| {
            for number in 0..8 {
                scope.spawn(move || {
                    let (mut client, mut pipeline) = (connect(host(number), port), Vec::new());
                    let value = Random::new(number as u64).noise(300_000);
                    for key in 0..8 {
                        pipeline.clear();
                        encode_command(&[b"SET", format!("set{number}:{}", key % 4).as_bytes(), &value], &mut pipeline);
                        client.send(&pipeline);
                    }
                });
            }
        });
    });
    within_the_limits(&cluster, port, "1,000 clients, each used for all shards once", sum, || {
        let mut idle = many(1000);
        for client in &mut idle {
            assert_eq!(client.run("MGET small1 small2 small3 small4 small5 small6").matches("\"v\"").count(), 6);
        }
        unread();
    });
    for number in 0..16 {
        let value = Random::new(number).noise(BIG);
        assert!(client.call(&[b"GET", big[number as usize].as_bytes()]) == Value::Bulk(value), "big{number}");
    }
}

// --- clocks ---

const HOUR_S: i64 = 3600;

fn ttl(client: &mut Client, key: &str) -> i64 {
    let reply = client.run(&format!("TTL {key}"));
    reply.trim_start_matches("(integer) ").parse().expect("a number")
}

/// The clock of the node that has a key decides when it expires. A node whose clock is behind the certificates says so, and serves again
/// with the right one.
#[test]
fn clocks_an_hour_apart() {
    let mut cluster = Cluster::start(&[Role::Data, Role::Data], &[]);
    for clock_s in [HOUR_S, -HOUR_S] {
        let mut candidate = cluster.candidate(Role::Data, &[]);
        candidate.clock_s = clock_s;
        let refused = cluster.join_with(&candidate, &cluster.token()).unwrap_err();
        assert!(refused.contains("clock says") && refused.contains("set the clocks"), "{clock_s}: {refused}");
    }
    let port = cluster.create("orders", 4, LIMITS);
    let keys: Vec<String> = (0..40).map(|number| format!("k{number}")).collect();
    let (near, far): (Vec<_>, Vec<_>) = keys.iter().partition(|key| cluster.owner("orders", key) == 0);

    let restart = |cluster: &mut Cluster, clock_s: i64| {
        cluster.members[1].stop_node();
        cluster.members[1].clock_s = clock_s;
        cluster.members[1].start_node();
    };
    restart(&mut cluster, HOUR_S);
    cluster.serves(0, "orders", 4);
    cluster.serves(1, "orders", 4);
    for (at, wanted_s) in [(0, HOUR_S), (1, -HOUR_S)] {
        let ahead_s = || {
            let shown = cluster.members[at].operator(&["cluster", "status", "--json"]).ok()?;
            let shown: serde_json::Value = serde_json::from_str(&shown).ok()?;
            let other = shown["nodes"].as_array()?.iter().find(|node| node["name"] != shown["node"])?;
            Some(other["clock_ahead_ms"].as_f64()? / 1000.0)
        };
        eventually("each node knows how far the clock of the other one is away", || {
            ahead_s().is_some_and(|ahead_s| (ahead_s - wanted_s as f64).abs() < 60.0)
        });
    }
    let mut clients = [0, 1].map(|at| cluster.members[at].connect(port));
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    for at in [0, 1] {
        // A time to live is the same everywhere.
        for key in &keys {
            assert_eq!(clients[at].run(&format!("SET {key} v EX 600")), "OK");
            assert!((540..=600).contains(&ttl(&mut clients[1 - at], key)), "{key}");
        }
        // A moment of the calendar comes when the owner's clock says so, whichever node the client asks.
        let moment = now_s + HOUR_S / 2;
        for key in &keys {
            assert_eq!(clients[at].run(&format!("EXPIREAT {key} {moment}")), "(integer) 1");
        }
        for (key, is_there) in near.iter().map(|key| (key, true)).chain(far.iter().map(|key| (key, false))) {
            for client in &mut clients {
                assert_eq!(client.run(&format!("EXISTS {key}")), format!("(integer) {}", u8::from(is_there)), "{key}");
            }
        }
        let later = moment + HOUR_S;
        assert_eq!(clients[at].run(&format!("SET {} v EXAT {later}", far[0])), "OK");
        let left = ttl(&mut clients[1 - at], far[0]);
        assert!((1700..=1800).contains(&left), "{left}");
    }
    for key in &keys {
        assert_eq!(clients[0].run(&format!("SET {key} v PX 20")), "OK");
    }
    eventually("all of them expire", || clients[1].run(&format!("EXISTS {}", keys.join(" "))) == "(integer) 0");

    // For a clock that is behind, the certificates of today are of the future.
    restart(&mut cluster, -HOUR_S);
    eventually("the node with the wrong clock says so", || {
        let log = cluster.members[1].log();
        log.contains("this node's clock says") && log.contains("set the clocks")
    });
    assert_eq!(clients[0].run(&format!("SET {} here", near[0])), "OK");
    assert!(clients[0].run(&format!("SET {} there", far[0])).starts_with("(error) CLUSTERDOWN shard 'orders."));
    restart(&mut cluster, 0);
    cluster.serves(0, "orders", 4);
    assert_eq!(cluster.members[1].connect(port).run(&format!("GET {}", near[0])), "\"here\"");
    assert_eq!(clients[0].run(&format!("SET {} there", far[0])), "OK");
}

// --- etcd's disk ---

/// A small file system, mounted until this is dropped.
struct Disk(TempDir);

impl Disk {
    /// `None`: this test may not mount.
    fn mount(size: &str) -> Option<Disk> {
        let folder = tempfile::Builder::new().prefix("flintkv-test-").tempdir().expect("a folder");
        let options = format!("size={size}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "none"]).arg(folder.path()).output();
        mounted.is_ok_and(|done| done.status.success()).then_some(Disk(folder))
    }

    /// Leaves no room.
    fn fill(&self) -> PathBuf {
        let path = self.0.path().join("filler");
        let (mut file, block) = (File::create(&path).unwrap(), vec![7; 64 << 10]);
        while file.write_all(&block).is_ok() {}
        path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

/// Serving goes on when etcd's disk is full; changes say what is wrong, and leave nothing. With room, all goes on by itself.
#[test]
fn a_full_disk_at_etcd() {
    let Some(disk) = Disk::mount("180m") else {
        println!("skipped: this needs the right to mount");
        return;
    };
    let path = disk.0.path().join("etcd").display().to_string();
    let cluster = Cluster::start(&[Role::Data], &[("etcd-path", &path)]);
    let port = cluster.create("orders", 2, LIMITS);
    let mut client = cluster.members[0].connect(port);
    client.set_all((0..100).map(|number| (format!("k{number}"), format!("v{number}"))));
    let filler = disk.fill();
    let trouble = || cluster.members[0].status().expect("the node answers")["etcd_trouble"].clone();
    let mut users = 0;
    let mut fill_etcd = |client: &mut Client| {
        // Each user is written to etcd. Its log has room from before; its database must grow.
        eventually("etcd has no room", || {
            for _ in 0..20 {
                let pattern = "x".repeat(20_000);
                assert_eq!(client.run(&format!("ACL SETUSER user{users} on >pw ~{pattern}{users}")), "OK");
                users += 1;
            }
            trouble().is_string()
        });
        format!("AUTH user{} pw", users - 1)
    };
    let last_user = fill_etcd(&mut client);
    for number in 0..100 {
        assert_eq!(client.run(&format!("GET k{number}")), format!("\"v{number}\""));
        assert_eq!(client.run(&format!("SET k{number} w{number}")), "OK");
    }
    // etcd is started again all the time. Its files may then have room for a small change: a database is created, and
    // its users fill them. Or it takes the change and ends before it says so: then the error says that it was made.
    let mut databases = vec!["orders".to_owned()];
    let (refused, was_made) = loop {
        let name = format!("more{}", databases.len());
        let create = [&["database", "create", &name, "--shards", "2", "--json"][..], LIMITS].concat();
        let refused = match cluster.members[0].operator(&create) {
            Err(refused) => refused,
            Ok(shown) => {
                assert!(databases.len() < 8, "etcd has room for all of {databases:?}");
                let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
                let port = shown["definition"]["port"].as_u64().expect("a port") as u16;
                cluster.serves(0, &name, 2);
                fill_etcd(&mut cluster.members[0].connect(port));
                databases.push(name);
                continue;
            }
        };
        let was_made = refused.contains(&format!("'{name}' was created"));
        if was_made {
            databases.push(name);
        }
        break (refused, was_made);
    };
    println!("{refused}\n{}", trouble());
    assert!(was_made || refused.contains("etcd"), "{refused}");
    let log = cluster.members[0].log();
    assert!(log.contains("no space left on device"), "{log}");

    std::fs::remove_file(filler).unwrap();
    eventually("etcd is followed again", || trouble().is_null());
    for name in &databases {
        cluster.serves(0, name, 2);
    }
    let status = cluster.members[0].status().expect("the node answers");
    let shown = status["databases"].as_array().expect("databases").iter();
    // In the order of their random numbers.
    let names: BTreeSet<&str> = shown.map(|database| database["name"].as_str().expect("a name")).collect();
    assert_eq!(names, databases.iter().map(String::as_str).collect(), "nothing of a refused one is left");
    cluster.create("last", 2, LIMITS);
    assert_eq!(client.run("DBSIZE"), "(integer) 100");
    assert_eq!(cluster.members[0].connect(port).run(&last_user), "OK", "what was changed meanwhile holds");
}

// --- names ---

/// A name that is too long is refused before anything is done: the same token serves for the right one.
#[test]
fn names_that_are_too_long() {
    let long = "n".repeat(64);
    let mut cluster = Cluster::begin(&[]);
    let mut candidate = cluster.candidate(Role::Quorum, &[]);
    let conf = candidate.conf();
    for words in [
        &["cluster", "init", &long, "--conf", &conf][..],
        &["cluster", "init", "other", "--conf", &conf, "--name", &long],
        &["cluster", "init", "other", "--conf", &conf, "--zone", &long],
    ] {
        let refused = candidate.operator(words).unwrap_err();
        assert!(refused.contains("63"), "{words:?}: {refused}");
    }
    let token = cluster.token();
    let name = std::mem::replace(&mut candidate.name, long.clone());
    let refused = cluster.join_with(&candidate, &token).unwrap_err();
    assert!(refused.contains("63"), "{refused}");
    let folder = candidate.dir.path().join("state/cluster");
    assert!(!folder.join("member.json").exists(), "it is a member of nothing");
    candidate.name = name;
    candidate.start();
    let joined = cluster.join_with(&candidate, &token);
    assert!(joined.is_ok(), "{joined:?}");
    cluster.members.push(candidate);
    cluster.is_complete();

    let words = ["database", "create", &"d".repeat(200), "--shards", "2"];
    let refused = cluster.members[0].operator(&[&words[..], LIMITS].concat()).unwrap_err();
    assert!(refused.contains("1 to 40"), "{refused}");
    let databases = cluster.members[0].status().unwrap()["databases"].clone();
    assert_eq!(databases.as_array().map(Vec::len), Some(0), "{databases}");
}
