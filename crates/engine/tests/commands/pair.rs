//! A primary, a replica and the link between them in one thread, from one seed. Both nodes crash at any moment, the link is cut at any byte,
//! and roles change. In the end both have the same dataset, and it is what the stream says, with every write that WAIT has acknowledged.
//! `FLINTKV_SEED` replays a history.
//!
//! The product's own are: the handlers and the executor; the store, on the simulated device or in RAM; the effects and the stream with its
//! ids, offsets and backlog; the journal's writer and its recovery, on the simulated device with a volatile cache; the digests that replicas
//! compare. Not covered, because threads and sockets are in the way: the session of a link, the dump of a full synchronisation
//! (here the primary's stream from its first byte), the files of a base, the journal's ring and its thread. Tests of the node cover these.

use crate::harness::Harness;
use commands::session::Rerun;
use engine::Journaling;
use engine::replication::{Mark, new_id};
use flash::Sim;
use flash::io::{Done, Driver, Op};
use flash::sim::SimDriver;
use flintkv_tests::compare::assert_same;
use flintkv_tests::generator::Writes;
use journal::{Config, Record, Refused, Writer, recover};
use resp::{Args, Limits, Parsed, Progress, parse};
use std::collections::VecDeque;
use std::sync::Arc;

const FILES: u16 = 2;
const FILES_MAX: u16 = 400;
const CONFIG: Config = Config {
    log_id: *b"the journal's id",
    file_bytes: 256 << 10,
    frame_bytes: 64 << 10,
    buffer_bytes: 1 << 20,
    packed_from: 1 << 10,
};
/// Some histories are longer than the backlog's window, which is half a megabyte.
const LARGE_BYTES: usize = 200 << 10;
const STEPS: usize = 150;

/// Commands whose outcome has the time.
const TIMES: &[&str] = &[
    "XADD $x * f v",
    "XGROUP CREATE $x $gr 0 MKSTREAM",
    "XREADGROUP GROUP $gr $co COUNT 2 STREAMS $x >",
    "XREADGROUP GROUP $gr $co STREAMS $x 0",
    "XCLAIM $x $gr $co 0 $i $i FORCE",
    "XAUTOCLAIM $x $gr $co 0 0",
    "SET $k $v PX_60",
    "HPEXPIRE $h 60 FIELDS 2 $f $f",
];

/// A journal on a device.
struct Disk {
    sim: Sim,
    driver: SimDriver,
    writer: Writer,
    files: u16,
}

impl Disk {
    fn new(seed: u64) -> Disk {
        let sim = Sim::new(seed, FILES_MAX, CONFIG.file_bytes).with_cache();
        Disk { driver: sim.driver(), sim, writer: Writer::new(CONFIG, FILES), files: FILES }
    }

    fn append(&mut self, record: &Record<'_>) {
        while let Err(refused) = self.writer.append(record, 0) {
            assert_eq!(refused, Refused::Full);
            self.settle();
        }
    }

    /// Some of the I/O that there is to do.
    fn drive(&mut self) {
        let mut ops: Vec<Op> = Vec::new();
        self.writer.ops(&mut ops);
        ops.into_iter().for_each(|op| self.driver.push(op));
        self.driver.submit();
        let mut done: Vec<Done> = Vec::new();
        self.driver.reap(&mut done);
        for done in done {
            self.writer.done(done).expect("the device is sound");
        }
        if self.writer.needs_file() {
            assert!(self.files < FILES_MAX);
            self.files += 1;
            self.writer.add_file();
        }
    }

    /// Until everything is durable.
    fn settle(&mut self) {
        self.writer.sync();
        while !self.writer.is_idle() {
            self.drive();
        }
    }
}

/// Where the dataset of a base is in the stream and in the journal.
#[derive(Clone, Copy)]
struct Base {
    mark: Mark,
    position: u64,
}

struct Node {
    /// `None`: it is down.
    up: Option<Up>,
    disk: Disk,
    base: Base,
    /// What its stream says, from the first byte. Tests only have it.
    said: Vec<u8>,
    /// It has lost power since it last told its primary what it has.
    has_lost_power: bool,
    has_flash: bool,
}

struct Up {
    here: Harness,
    journaling: Arc<Journaling>,
    /// The journal has the stream up to here, and goes on in this logical database.
    journalled: u64,
    db: u32,
}

/// The bytes of the units at the beginning of the input: a command, or MULTI up to its EXEC. What is not whole stays.
fn units(mut input: &[u8]) -> Vec<&[u8]> {
    let mut units = Vec::new();
    loop {
        let (mut bytes, mut in_transaction) = (0, false);
        loop {
            let mut spans = Vec::new();
            let parsed = parse(&input[bytes..], &mut Progress::default(), &Limits::DEFAULT, &mut spans);
            let Ok(Parsed::Complete { consumed, .. }) = parsed else { return units };
            match &Args::new(&input[bytes..], &spans)[0] {
                b"MULTI" => in_transaction = true,
                b"EXEC" => in_transaction = false,
                _ => {}
            }
            bytes += consumed;
            if !in_transaction {
                break;
            }
        }
        units.push(&input[..bytes]);
        input = &input[bytes..];
    }
}

fn commands(mut unit: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    while !unit.is_empty() {
        let mut spans = Vec::new();
        let parsed = parse(unit, &mut Progress::default(), &Limits::DEFAULT, &mut spans);
        let Ok(Parsed::Complete { consumed, .. }) = parsed else { panic!("it is whole") };
        let args = Args::new(unit, &spans);
        found.push((0..args.len()).map(|at| args[at].to_vec()).collect());
        unit = &unit[consumed..];
    }
    found
}

/// The logical database behind a unit that begins in this one.
fn db_after(unit: &[u8], db: u32) -> u32 {
    let mut selects = commands(unit).into_iter().filter(|words| words[0] == b"SELECT");
    selects.next_back().map_or(db, |words| std::str::from_utf8(&words[1]).unwrap().parse().unwrap())
}

impl Up {
    fn new(seed: u64, has_flash: bool, mark: Mark, follows: bool) -> Up {
        let mut here = if has_flash { Harness::with_flash(seed) } else { Harness::new() };
        here.settings.hash_max_listpack_entries = 6;
        let journaling = Arc::<Journaling>::default();
        journaling.stream.prepare(mark, 0, None);
        journaling.stream.turn_on();
        here.store.set_change_log(journaling.clone());
        let mut up = Up { here, journaling, journalled: mark.offset, db: mark.db.unwrap_or(0) };
        up.set_follows(follows);
        up
    }

    fn set_follows(&mut self, follows: bool) {
        self.journaling.stream.set_follows(follows);
        self.here.store.set_follows(follows);
    }

    fn offset(&self) -> u64 {
        self.journaling.stream.offset()
    }

    fn mark(&self) -> Mark {
        self.journaling.stream.mark().unwrap()
    }

    /// Runs what another server, or an earlier run, has run.
    fn repeat(&mut self, unit: &[u8], db: u32, rerun: Rerun) {
        let now_ms = self.here.now_ms;
        self.here.session.rerun = Some(rerun);
        self.here.session.repeats = true;
        if let Some(time_ms) = rerun.time_ms() {
            self.here.now_ms = time_ms;
        }
        self.here.session.db = db as usize;
        for words in commands(unit) {
            if matches!(words[0].as_slice(), b"MULTI" | b"EXEC" | b"PING") {
                continue;
            }
            let reply = self.here.words(&words.iter().map(Vec::as_slice).collect::<Vec<_>>());
            assert!(!reply.starts_with("(error)"), "{words:?}: {reply}");
        }
        self.here.session.rerun = None;
        self.here.session.repeats = false;
        self.here.session.db = 0;
        self.here.now_ms = now_ms;
    }

    /// The dataset of what a stream says up to here: a base, or a full synchronisation.
    fn fill(&mut self, said: &[u8]) {
        let follows = self.journaling.stream.follows();
        self.journaling.stream.set_follows(true);
        let mut db = 0;
        for unit in units(said) {
            self.repeat(unit, db, Rerun::Primary);
            db = db_after(unit, db);
        }
        self.journaling.stream.set_follows(follows);
    }
}

impl Node {
    fn up(&mut self) -> &mut Up {
        self.up.as_mut().expect("it is up")
    }

    /// Puts what is new in the stream into the journal.
    fn journal(&mut self, time_ms: u64) {
        let up = self.up.as_mut().expect("it is up");
        let mut new = Vec::new();
        up.journaling.stream.copy(up.journalled, usize::MAX >> 1, &mut new).expect("the window has it");
        let whole = units(&new);
        assert_eq!(whole.iter().map(|unit| unit.len()).sum::<usize>(), new.len(), "the stream has whole commands");
        for unit in whole {
            self.disk.append(&Record { db: up.db, time_ms, resp: unit });
            up.db = db_after(unit, up.db);
        }
        up.journalled += new.len() as u64;
        self.said.extend_from_slice(&new);
    }

    /// A base of this moment.
    fn write_base(&mut self) {
        self.disk.settle();
        let up = self.up.as_ref().expect("it is up");
        self.base = Base { mark: up.mark(), position: self.disk.writer.position() };
        self.disk.writer.needed_from(self.base.position);
    }

    /// The process ends, and what it has appended is in the ring; or the power fails, and what was not synced may be gone.
    fn crash(&mut self, loses_power: bool) {
        self.up = None;
        if !loses_power {
            return self.disk.settle();
        }
        let driver = std::mem::replace(&mut self.disk.driver, self.disk.sim.driver());
        self.disk.sim.crash([driver]);
        self.has_lost_power = true;
    }

    /// The base and the records behind it.
    fn restart(&mut self, seed: u64, follows: bool, now_ms: u64) {
        let recovered =
            recover(&self.disk.sim, CONFIG, self.disk.files, self.base.position).expect("a crash damages nothing");
        let mut up = Up::new(seed, self.has_flash, self.base.mark, follows);
        up.here.now_ms = now_ms;
        up.fill(&self.said[..self.base.mark.offset as usize]);
        up.here.store.set_replaying(true);
        // As the node does it: what is replayed is no effect.
        up.journaling.stream.set_follows(true);
        let mut records = Vec::new();
        let each = |_, record: &Record<'_>| records.push((record.db, record.time_ms, record.resp.to_vec()));
        recovered.records(&self.disk.sim, each).expect("they are whole");
        for (db, time_ms, resp) in records {
            up.journaling.stream.replay(db_after(&resp, db), &resp);
            up.repeat(&resp, db, Rerun::Journal(time_ms));
            up.db = db_after(&resp, db);
        }
        up.here.store.set_replaying(false);
        up.set_follows(follows);
        up.journalled = up.offset();
        self.said.truncate(up.journalled as usize);
        self.disk.writer = recovered.writer(&self.disk.sim).expect("its copy");
        self.up = Some(up);
    }
}

/// What is between two nodes.
#[derive(Default)]
struct Link {
    /// Up to where the primary has sent.
    sent: u64,
    to_replica: VecDeque<u8>,
    /// What has arrived at the replica and is not whole.
    input: Vec<u8>,
    /// Offsets that the replica has told.
    to_primary: VecDeque<u64>,
}

struct World {
    seed: u64,
    writes: Writes,
    nodes: [Node; 2],
    primary: usize,
    link: Option<Link>,
    /// Their clocks are not the same.
    clocks_ms: [u64; 2],
    /// WAIT has told clients that the replica has the stream up to here.
    acknowledged: u64,
    counts: Counts,
}

/// What has happened, so that a history that does nothing is noticed.
#[derive(Default, Debug)]
struct Counts {
    crashes: u64,
    power_losses: u64,
    promotions: u64,
    full: u64,
    partial: u64,
    checks: u64,
    lost_tails: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mark = Mark { id: new_id(), second: None, offset: 0, db: None };
        let node = |nth: u64| {
            let has_flash = seed % 4 == nth;
            let up = Up::new(seed, has_flash, mark, nth == 1);
            let (disk, base) = (Disk::new(2 * seed + nth), Base { mark, position: 0 });
            Node { up: Some(up), disk, base, said: Vec::new(), has_lost_power: false, has_flash }
        };
        let nodes = [node(0), node(1)];
        let now_ms = nodes[0].up.as_ref().unwrap().here.now_ms;
        let (mut writes, counts) = (Writes::new(seed), Counts::default());
        let clocks_ms = [0; 2].map(|_| now_ms + writes.random.below(500) as u64);
        World { seed, writes, nodes, primary: 0, link: None, clocks_ms, acknowledged: 0, counts }
    }

    fn below(&mut self, n: usize) -> usize {
        self.writes.random.below(n)
    }

    fn replica(&self) -> usize {
        1 - self.primary
    }

    fn are_up(&self) -> bool {
        self.nodes.iter().all(|node| node.up.is_some())
    }

    fn write(&mut self) {
        let (now_ms, primary) = (self.clocks_ms[self.primary], self.primary);
        let words = match self.below(60) {
            0 => vec![b"SET".to_vec(), b"large".to_vec(), vec![b'x'; LARGE_BYTES]],
            1..10 => self.writes.of(TIMES, now_ms),
            _ => self.writes.command(now_ms),
        };
        let db = [0, 0, 0, 3][self.below(4)];
        let Some(up) = &mut self.nodes[primary].up else { return };
        (up.here.now_ms, up.here.session.db) = (now_ms, db);
        up.here.words(&words.iter().map(Vec::as_slice).collect::<Vec<_>>());
        up.here.session.db = 0;
        self.nodes[primary].journal(now_ms);
    }

    /// A connection, and the replica's question.
    fn connect(&mut self) {
        if !self.are_up() {
            return;
        }
        let (primary, replica) = (self.primary, self.replica());
        let (seed, clock_ms) = (self.seed + self.counts.full, self.clocks_ms[self.replica()]);
        let Mark { id, offset, .. } = self.nodes[replica].up().mark();
        let theirs = self.nodes[primary].up();
        let mark = theirs.mark();
        let goes_on = theirs.journaling.stream.can_continue(&id, offset);
        let [first, second] = &mut self.nodes;
        let (from, to) = if primary == 0 { (first, second) } else { (second, first) };
        if goes_on {
            self.counts.partial += 1;
            assert!(from.said.starts_with(&to.said), "the replica goes on, and has another stream");
            to.up().journaling.stream.change_id(mark.id);
            let now = to.up().mark();
            to.base.mark = Mark { id: now.id, second: now.second, ..to.base.mark };
        } else {
            self.counts.full += 1;
            let mark = Mark { second: None, db: Some(mark.db.unwrap_or(0)), ..mark };
            let mut up = Up::new(seed, to.has_flash, mark, true);
            up.here.now_ms = clock_ms;
            up.fill(&from.said);
            (to.up, to.said) = (Some(up), from.said.clone());
            to.write_base();
        }
        self.link = Some(Link { sent: to.up().offset(), ..Link::default() });
    }

    /// Some bytes leave the primary.
    fn send(&mut self) {
        let max = 1 + self.below(400) * self.below(400);
        let primary = self.primary;
        let (Some(link), Some(up)) = (&mut self.link, &self.nodes[primary].up) else { return };
        let mut bytes = Vec::new();
        if up.journaling.stream.copy(link.sent, max, &mut bytes).is_err() {
            // Too slow.
            self.link = None;
            return;
        }
        link.sent += bytes.len() as u64;
        link.to_replica.extend(bytes);
    }

    /// Some bytes arrive at the replica, which applies what is whole.
    fn apply(&mut self) {
        let (count, replica, now_ms) =
            (1 + self.below(400) * self.below(400), self.replica(), self.clocks_ms[self.replica()]);
        let Some(link) = &mut self.link else { return };
        let count = count.min(link.to_replica.len());
        link.input.extend(link.to_replica.drain(..count));
        let input = std::mem::take(&mut link.input);
        let whole = units(&input);
        let used: usize = whole.iter().map(|unit| unit.len()).sum();
        let node = &mut self.nodes[replica];
        for unit in whole {
            let up = node.up();
            up.here.now_ms = now_ms;
            let db = up.mark().db.unwrap_or(0);
            up.journaling.keep_verbatim(db, db_after(unit, db), unit);
            up.repeat(unit, db, Rerun::Primary);
            node.journal(0);
        }
        self.link.as_mut().expect("it is there").input = input[used..].to_vec();
    }

    /// The replica tells what it has, or the primary hears it.
    fn acknowledge(&mut self) {
        let replica = self.replica();
        let tells = self.below(2) == 0;
        let Some(link) = &mut self.link else { return };
        if tells {
            self.nodes[replica].has_lost_power = false;
            link.to_primary.push_back(self.nodes[replica].up().offset());
        } else if let Some(offset) = link.to_primary.pop_front() {
            self.acknowledged = self.acknowledged.max(offset);
        }
    }

    fn crash(&mut self) {
        let (which, loses_power) = (self.below(2), self.below(3) == 0);
        if self.nodes[which].up.is_none() {
            return;
        }
        self.counts.crashes += 1;
        self.counts.power_losses += u64::from(loses_power);
        self.link = None;
        self.nodes[which].crash(loses_power);
        if which == self.primary && self.below(2) == 0 {
            self.promote();
        }
    }

    fn restart(&mut self) {
        let which = self.below(2);
        if self.nodes[which].up.is_some() {
            return;
        }
        let (seed, follows, now_ms) = (self.seed + self.counts.crashes, which != self.primary, self.clocks_ms[which]);
        let (before, node) = (self.nodes[which].said.len(), &mut self.nodes[which]);
        node.restart(seed, follows, now_ms);
        let has_lost = node.has_lost_power;
        if !has_lost {
            assert_eq!(node.said.len(), before, "a process that is killed loses nothing");
        }
        if !follows && has_lost {
            // Replicas may have more.
            node.up().journaling.stream.change_id(new_id());
            node.base.mark = Mark { offset: node.base.mark.offset, db: node.base.mark.db, ..node.up().mark() };
            node.has_lost_power = false;
            self.counts.lost_tails += u64::from(node.said.len() < before);
            // Without a promotion, what only the other node has is given up.
            self.acknowledged = self.acknowledged.min(node.said.len() as u64);
        }
    }

    /// The replica becomes the primary, if it is what an operator would take.
    fn promote(&mut self) {
        let (replica, now_ms) = (self.replica(), self.clocks_ms[self.replica()]);
        let [first, second] = &self.nodes;
        let (old, new) = if self.primary == 0 { (first, second) } else { (second, first) };
        if new.up.is_none() || new.has_lost_power || !old.said.starts_with(&new.said) {
            return;
        }
        self.counts.promotions += 1;
        self.link = None;
        let node = &mut self.nodes[replica];
        assert!(node.said.len() as u64 >= self.acknowledged, "a write is lost that WAIT has acknowledged");
        node.up().journaling.stream.change_id(new_id());
        node.base.mark = Mark { offset: node.base.mark.offset, db: node.base.mark.db, ..node.up().mark() };
        node.up().set_follows(false);
        node.up().here.now_ms = now_ms;
        self.primary = replica;
        let old = self.replica();
        if let Some(up) = &mut self.nodes[old].up {
            up.set_follows(true);
        }
    }

    /// Both compare their datasets, if they are at the same byte.
    fn check(&mut self) {
        if !self.are_up() || self.link.is_none() {
            return;
        }
        let now_ms = self.clocks_ms[self.primary];
        let [one, other] = &mut self.nodes;
        if one.up().offset() == other.up().offset() {
            self.counts.checks += 1;
            if one.up().here.digest(now_ms) != other.up().here.digest(now_ms) {
                let (ours, theirs) = (one.up().here.text(), other.up().here.text());
                assert_same(&ours.0, &theirs.0, &format!("at {now_ms}"));
                panic!("the same keys and values have other digests");
            }
        }
    }

    /// What nodes do by themselves: the primary removes what has expired, and values go to flash.
    fn idle(&mut self) {
        let which = self.below(2);
        let now_ms = self.clocks_ms[which];
        let squeezes = self.below(2) == 0;
        let Some(up) = &mut self.nodes[which].up else { return };
        up.here.now_ms = now_ms;
        up.here.maintain();
        if squeezes && self.nodes[which].has_flash {
            self.nodes[which].up().here.squeeze();
            // Maintenance has a clock of its own meanwhile.
            self.clocks_ms[which] += 60;
        }
        let now_ms = self.clocks_ms[which];
        self.nodes[which].journal(now_ms);
    }

    fn read_from_replica(&mut self) {
        let (replica, now_ms) = (self.replica(), self.clocks_ms[self.replica()]);
        let kind = ["k", "l", "s", "z", "h"][self.below(5)];
        let name = format!("{kind}{}", self.below(4));
        let Some(up) = &mut self.nodes[replica].up else { return };
        up.here.now_ms = now_ms;
        for line in [format!("EXISTS {name}"), format!("GET {name}"), format!("HGETALL {name}")] {
            up.here.run(&line);
        }
    }

    fn step(&mut self) {
        let passed_ms = self.below(40) as u64;
        self.clocks_ms.iter_mut().for_each(|clock_ms| *clock_ms += passed_ms);
        match self.below(100) {
            0..40 => self.write(),
            40..52 => self.send(),
            52..66 => self.apply(),
            66..72 => self.acknowledge(),
            72..78 => {
                let which = self.below(2);
                let Node { up: Some(_), disk, .. } = &mut self.nodes[which] else { return };
                match self.writes.random.below(3) {
                    0 => disk.writer.sync(),
                    _ => disk.writer.write(),
                }
                disk.drive();
            }
            78..80 => self.link = None,
            80..85 => {
                if self.link.is_none() {
                    self.connect();
                }
            }
            85..88 => self.crash(),
            88..92 => self.restart(),
            92 => {
                if self.below(3) == 0 {
                    self.promote();
                }
            }
            93 => {
                let which = self.below(2);
                if self.nodes[which].up.is_some() {
                    self.nodes[which].write_base();
                }
            }
            94 => self.check(),
            95 | 96 => self.read_from_replica(),
            _ => self.idle(),
        }
    }

    /// Everything is up again, and the replica gets all there is.
    fn heal(&mut self) {
        while !self.are_up() {
            self.restart();
        }
        if self.link.is_none() {
            self.connect();
        }
        let (primary, replica) = (self.primary, self.replica());
        while self.nodes[primary].up().offset() != self.nodes[replica].up().offset() {
            if self.link.is_none() {
                self.connect();
            }
            self.send();
            self.apply();
        }
    }
}

fn run(seed: u64) -> Counts {
    let mut world = World::new(seed);
    for _ in 0..STEPS {
        world.step();
    }
    world.heal();
    world.check();
    let (primary, replica) = (world.primary, world.replica());
    let [one, other] = [primary, replica].map(|which| world.nodes[which].up().mark());
    assert_eq!((one.id, one.offset), (other.id, other.offset));
    assert!(world.nodes[0].said == world.nodes[1].said);
    assert!(world.nodes[0].said.len() as u64 >= world.acknowledged, "a write is lost that WAIT has acknowledged");
    // The dataset is what the stream says.
    let mut fresh = Up::new(seed, false, Mark { id: new_id(), second: None, offset: 0, db: None }, true);
    let now_ms = world.clocks_ms[primary];
    fresh.here.now_ms = now_ms;
    fresh.fill(&world.nodes[0].said);
    assert!(fresh.here.digest(now_ms) == world.nodes[0].up().here.digest(now_ms), "the stream says something else");
    world.counts
}

#[test]
fn whatever_fails_a_replica_has_its_primarys_dataset_in_the_end() {
    let (mut all, mut histories) = (Counts::default(), 0);
    let crashes = seeds::each_crash(20_261_200, 400, |seed| {
        let counts = run(seed);
        histories += 1;
        all.crashes += counts.crashes;
        all.power_losses += counts.power_losses;
        all.promotions += counts.promotions;
        all.full += counts.full;
        all.partial += counts.partial;
        all.checks += counts.checks;
        all.lost_tails += counts.lost_tails;
        counts.crashes
    });
    println!("{histories} histories: {all:?}");
    if histories >= 400 {
        let counts = [all.power_losses, all.promotions, all.full, all.partial, all.checks, all.lost_tails];
        assert!(crashes > 400 && counts.iter().all(|&count| count > 40), "{all:?}");
    }
}
