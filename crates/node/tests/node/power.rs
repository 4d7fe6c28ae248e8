//! A node on a real file system whose disk loses its power: what was promised is there, with every type, and while segments are
//! reused.
//!
//! Without the right to mount file systems, or without FUSE, these tests say that they are skipped. `FLINTKV_TEST_SECONDS` makes more
//! rounds.

use crate::common::{Client, Node, eventually};
use crate::persist::{CLIENTS, COLD, Killed, SIGKILL, Worker, loaded, with};
use flintkv_tests::Random;
use flintkv_tests::power::Disk;
use resp::client::{Value, encode_command};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

const ROUNDS: usize = 3;
const ALWAYS: (&str, &str) = ("appendfsync", "always");

/// How a file system is made and mounted.
struct Format {
    program: &'static str,
    args: &'static [&'static str],
    options: &'static str,
}

/// The metadata gets to the disk only when somebody syncs.
const EXT4: Format =
    Format { program: "mkfs.ext4", args: &["-q", "-F", "-m", "0"], options: "noatime,commit=300,noauto_da_alloc" };
const XFS: Format = Format { program: "mkfs.xfs", args: &["-q", "-f"], options: "noatime" };

type IsCut<'c> = &'c (dyn Fn() -> bool + Sync);

/// A client whose steps are numbered, over all rounds.
trait Load: Send {
    /// Sends steps until the node is gone, or there is an error because the power is. Counts those that are acknowledged.
    fn load(&mut self, connection: Client, random: &mut Random, acknowledged: &AtomicU64, is_cut: IsCut<'_>);
    fn acknowledged(&self) -> u64;
    /// When so many steps were acknowledged, since the load began.
    fn times(&self) -> &[(Instant, u64)];
    /// The first `least` steps are there, and of what was sent behind them a beginning, with whose end the next round begins.
    fn check(&mut self, node: &Node, reference: &mut Client, least: u64);
}

impl Load for Worker {
    fn load(&mut self, connection: Client, random: &mut Random, acknowledged: &AtomicU64, is_cut: IsCut<'_>) {
        Worker::load(self, connection, random, acknowledged, is_cut);
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    fn times(&self) -> &[(Instant, u64)] {
        &self.times
    }

    fn check(&mut self, node: &Node, reference: &mut Client, least: u64) {
        Worker::check(self, node, reference, least);
    }
}

/// Sets one key after the other, again and again, to values that nothing packs.
struct Overwriter {
    id: u64,
    acknowledged: u64,
    sent: u64,
    times: Vec<(Instant, u64)>,
}

impl Overwriter {
    const KEYS: u64 = 6000;
    const VALUE_BYTES: usize = 2000;
    const BURST: u64 = 24;

    fn new(id: u64) -> Overwriter {
        Overwriter { id, acknowledged: 0, sent: 0, times: Vec::new() }
    }

    fn key(&self, step: u64) -> String {
        format!("client:{}:{}", self.id, step % Self::KEYS)
    }

    fn value(&self, step: u64) -> Vec<u8> {
        let mut value = step.to_le_bytes().to_vec();
        value.extend(Random::new(self.id << 48 | step).noise(Self::VALUE_BYTES));
        value
    }
}

impl Load for Overwriter {
    fn load(&mut self, mut connection: Client, _: &mut Random, acknowledged: &AtomicU64, is_cut: IsCut<'_>) {
        self.times.clear();
        loop {
            let mut bytes = Vec::new();
            self.sent = self.acknowledged + Self::BURST;
            for step in self.acknowledged..self.sent {
                encode_command(&[b"SET", self.key(step).as_bytes(), &self.value(step)], &mut bytes);
            }
            connection.send(&bytes);
            for _ in 0..Self::BURST {
                match connection.raw() {
                    Some(reply) if reply == b"+OK\r\n" => self.acknowledged += 1,
                    Some(reply) if !is_cut() => panic!("{}", reply.escape_ascii()),
                    _ => return,
                }
            }
            acknowledged.fetch_add(Self::BURST, Relaxed);
            self.times.push((Instant::now(), self.acknowledged));
        }
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    fn times(&self) -> &[(Instant, u64)] {
        &self.times
    }

    fn check(&mut self, node: &Node, _: &mut Client, least: u64) {
        let mut connection = node.connect();
        let mut read = |step| match connection.call(&[b"GET", self.key(step).as_bytes()]) {
            Value::Bulk(value) => Some(value),
            Value::Null => None,
            other => panic!("{other:?}"),
        };
        let found: Vec<_> = (0..Self::KEYS).map(&mut read).collect();
        let step = |value: &Vec<u8>| u64::from_le_bytes(value[..8].try_into().expect("eight bytes"));
        let steps = found.iter().flatten().map(step).max().map_or(0, |last| last + 1);
        assert!((least..=self.sent).contains(&steps), "client {}: {steps} of {least} to {}", self.id, self.sent);
        for (key, value) in (0..).zip(&found) {
            // The last of these steps that has set this key.
            let last = (steps > key).then(|| steps - 1 - (steps - 1 - key) % Self::KEYS);
            let wanted = last.map(|last| self.value(last));
            assert!(*value == wanted, "key {key} is of {:?}, not of {last:?}", value.as_ref().map(step));
        }
        self.acknowledged = steps;
    }
}

/// Writes, and waits until that is durable, again and again until the node is gone. `promised` is told how many steps of each client were
/// acknowledged before.
fn witness(mut connection: Client, acknowledged: &[AtomicU64], promised: &Mutex<Vec<u64>>) {
    let mut encoded = Vec::new();
    encode_command(&[b"INCR", b"witness"], &mut encoded);
    encode_command(&[b"WAITAOF", b"1", b"0", b"0"], &mut encoded);
    loop {
        let steps = acknowledged.iter().map(|steps| steps.load(Relaxed)).collect();
        connection.send(&encoded);
        let (Some(written), Some(durable)) = (connection.raw(), connection.raw()) else { return };
        if !written.starts_with(b":") || !durable.starts_with(b"*2\r\n:1\r\n") {
            return;
        }
        *promised.lock().expect("nobody panics") = steps;
    }
}

/// In a round so many steps are acknowledged at most, and some more.
fn lose_power<L: Load>(seed: u64, format: &Format, client: impl Fn(u64) -> L, most: usize, more: &[(&str, &str)]) {
    let disk = || Disk::format(format.program, format.args, format.options);
    // A flush of one device is none of the other.
    let (Some(mut disk), Some(mut flash)) = (disk(), disk()) else {
        eprintln!("skipped: this user may not mount a file system, or FUSE, loop devices or {} lack", format.program);
        return;
    };
    let path = flash.dir.path().display().to_string();
    let placed = |&(name, value)| (name, if name == "flash-path" { path.as_str() } else { value });
    let directives = with(&more.iter().map(placed).collect::<Vec<_>>());
    let is_always = more.contains(&ALWAYS);
    let mut random = Random::new(seed);
    let reference = Node::start(&[]);
    let mut clients: Vec<_> = (0..CLIENTS).map(client).collect();
    let mut node = Node::start_in(&disk.dir, None, &directives);
    let (mut unsynced, mut oldest) = (0, Duration::ZERO);
    for _ in 0..ROUNDS {
        let acknowledged: Vec<_> = clients.iter().map(|_| AtomicU64::new(0)).collect();
        let promised = Mutex::new(Vec::new());
        let wanted = 50 + random.below(most) as u64;
        let mut checkpoint_at = random.one_in(2).then(|| random.below(wanted as usize) as u64);
        let (writes, pause) = (1 + random.below(60) as u64, Duration::from_millis(500 + random.below(1000) as u64));
        let kept: Vec<_> = clients.iter().map(Load::acknowledged).collect();
        let is_cut = || disk.cut_at().is_some() || flash.cut_at().is_some();
        thread::scope(|scope| {
            let _killed = Killed(&node);
            for (client, acknowledged) in clients.iter_mut().zip(&acknowledged) {
                let connection = node.connect();
                let mut random = Random::new(random.draw());
                let is_cut = &is_cut;
                scope.spawn(move || client.load(connection, &mut random, acknowledged, is_cut));
            }
            scope.spawn(|| witness(node.connect(), &acknowledged, &promised));
            eventually("commands are acknowledged, and some are durable", || {
                let acknowledged = acknowledged.iter().map(|steps| steps.load(Relaxed)).sum();
                if checkpoint_at.take_if(|at| *at <= acknowledged).is_some() {
                    node.connect().run("BGREWRITEAOF");
                }
                acknowledged >= wanted && !promised.lock().unwrap().is_empty()
            });
            disk.cut_power_after(writes);
            flash.cut_power_after(writes);
            let since = Instant::now();
            eventually("the power is cut", || is_cut() || since.elapsed() > pause);
            if !is_cut() {
                // With the next write, so that there is something to forget.
                disk.cut_power_after(1);
                eventually("the power is cut", is_cut);
            }
            disk.cut_power();
            flash.cut_power();
        });
        let cut = disk.cut_at().expect("the power is cut");
        node.ended();
        drop(node);
        let forgettable = disk.lose(&mut random) + flash.lose(&mut random);
        assert!(forgettable > 0, "the disks had nothing to forget");
        unsynced += forgettable;
        assert!(disk.power_on() && flash.power_on(), "the file systems are mounted again");
        node = Node::start_in(&disk.dir, None, &directives);
        loaded(&node);
        let mut connection = reference.connect();
        let promised = promised.into_inner().unwrap();
        for (nth, client) in clients.iter_mut().enumerate() {
            let times = client.times().to_vec();
            let least = if is_always { client.acknowledged() } else { kept[nth] + promised[nth] };
            client.check(&node, &mut connection, least);
            let lost = times.iter().find(|&&(_, steps)| steps > client.acknowledged());
            oldest = lost.map_or(oldest, |&(at, _)| oldest.max(cut.saturating_duration_since(at)));
        }
    }
    println!("{unsynced} blocks were not synced; the oldest step that was lost had been acknowledged for {oldest:?}");
    node.signal(SIGKILL);
    node.ended();
}

#[test]
fn what_was_said_to_be_durable_is_there_after_a_loss_of_power() {
    seeds::each(20_261_126, 1, |seed| lose_power(seed, &EXT4, Worker::new, 2500, &[]));
}

#[test]
fn what_was_said_to_be_durable_is_there_after_a_loss_of_power_while_every_value_is_on_flash() {
    seeds::each(20_261_127, 1, |seed| lose_power(seed, &EXT4, Worker::new, 600, COLD));
}

#[test]
fn what_was_acknowledged_is_there_after_a_loss_of_power_with_always() {
    seeds::each(20_261_128, 1, |seed| lose_power(seed, &EXT4, Worker::new, 2500, &[ALWAYS]));
}

#[test]
fn what_was_acknowledged_is_there_after_a_loss_of_power_with_always_while_every_value_is_on_flash() {
    let directives = [&[ALWAYS], COLD].concat();
    seeds::each(20_261_129, 1, |seed| lose_power(seed, &XFS, Worker::new, 600, &directives));
}

/// Room for some times what the clients write, so that segments are reused all the time.
const SMALL: &[(&str, &str)] =
    &[("flash-path", "flash"), ("memory-limit", "100mb"), ("ram-limit", "64mb"), ("auto-aof-rewrite-min-size", "1mb")];

#[test]
#[ignore = "takes a minute, make soak runs it"]
fn what_was_said_to_be_durable_is_there_after_a_loss_of_power_while_segments_are_reused() {
    seeds::each(20_261_130, 1, |seed| lose_power(seed, &EXT4, Overwriter::new, 80_000, SMALL));
}

#[test]
#[ignore = "takes a minute, make soak runs it"]
fn what_was_acknowledged_is_there_after_a_loss_of_power_with_always_while_segments_are_reused() {
    let directives = [&[ALWAYS], SMALL].concat();
    seeds::each(20_261_131, 1, |seed| lose_power(seed, &XFS, Overwriter::new, 80_000, &directives));
}
