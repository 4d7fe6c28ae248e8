//! One shard on three nodes, with everything around the state machines that is not theirs: messages, disks, etcd, clients, a controller.

use base::random::SplitMix64;
use cluster::failover::{
    Acknowledgement, Began, Choice, Duty, Handover, Heartbeat, Primary, Replica, Report, Standing, choose, duty,
    duty::{handed_over, resumed},
    recover,
};
use cluster::ids::{CopyNumber, Epoch, Incarnation, NodeId};
use cluster::records::{Assignment, Member, ShardRecord, Unknown};
use std::collections::{BTreeMap, VecDeque};

const COPIES: usize = 3;
const STEPS: u64 = 600;
/// After the last fault, everything must work again within this time.
const RECOVERY_MS: u64 = 30_000;

/// What is built wrong, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// The serving lease is not asked for.
    NoLease,
    /// A copy is added before it is required.
    AddedBeforeRequired,
    /// A copy is not required any more before the transaction that removes it.
    RemovedBeforeRecorded,
    IncarnationIgnored,
    /// A transaction of unknown outcome is taken for a failed one.
    UnknownIsFailure,
    PromiseForgotten,
    GrantsForgotten,
    ReceivedIsNotApplied,
    /// A required copy is given a whole dataset, and takes it as the copy that it was.
    RefilledAsItWas,
    RestartsInItsEpoch,
    LeaseCountedFromTheAnswer,
    /// A primary hands over before the next one has everything.
    HandsOverTooEarly,
    /// A primary whose transaction has an unknown outcome serves again.
    ServesAfterUnknown,
    /// A named copy never waits for the leases that it has granted.
    NeverWaits,
    /// A primary that was named and ended is taken for one that has served.
    NamedIsServed,
    /// After a handover, the old primary is not required before it has followed.
    OldPrimaryNotRequired,
    /// An operator's word takes any copy.
    AnyIsTaken,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    pub mutant: Option<Mutant>,
    /// Copies are to go, and are not any more, as an operator's moves have it.
    pub leaves: bool,
    /// All copies lose their power at once, and if none has everything then, an operator decides.
    pub recovers: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub promotions: u64,
    pub resumptions: u64,
    pub joined: u64,
    pub left: u64,
    pub acknowledged: u64,
    pub reads: u64,
    pub refills: u64,
    pub unknown: u64,
    pub unavailable: u64,
    pub handovers: u64,
    pub handovers_given_up: u64,
    /// Promotions that waited for no lease, because the last primary's process had ended.
    pub ended: u64,
    /// Replies that left when their copy did not serve any more.
    pub late: u64,
    /// Decisions of operators, and the acknowledged writes that were lost with them.
    pub recoveries: u64,
    pub lost: u64,
}

impl Totals {
    pub fn add(&mut self, other: &Totals) {
        self.promotions += other.promotions;
        self.resumptions += other.resumptions;
        self.joined += other.joined;
        self.left += other.left;
        self.acknowledged += other.acknowledged;
        self.reads += other.reads;
        self.refills += other.refills;
        self.unknown += other.unknown;
        self.unavailable += other.unavailable;
        self.handovers += other.handovers;
        self.handovers_given_up += other.handovers_given_up;
        self.ended += other.ended;
        self.late += other.late;
        self.recoveries += other.recoveries;
        self.lost += other.lost;
    }
}

/// A write is a number that no other write has.
type Log = Vec<u64>;

/// What a node keeps when its process ends.
#[derive(Clone, Debug)]
struct Disk {
    incarnation: u64,
    promised: Epoch,
    served: Option<Epoch>,
    /// Applied, and in the journal's mapped file.
    log: Log,
    /// What a loss of power leaves.
    synced: usize,
    /// In the mapped file too: how much has been acknowledged, to a primary or to clients.
    acknowledged: usize,
    /// False while a whole dataset arrives.
    is_whole: bool,
    /// The epoch of the primary whose stream the log is, and the one before with the length up to which the log is of that one.
    stream: Option<Epoch>,
    earlier: Option<(Epoch, usize)>,
}

impl Disk {
    fn take_stream(&mut self, epoch: Epoch) {
        if self.stream != Some(epoch) {
            self.earlier = self.stream.map(|before| (before, self.log.len()));
            self.stream = Some(epoch);
        }
    }

    /// In whose stream the log's entry before this length is.
    fn stream_at(&self, length: usize) -> Option<Epoch> {
        self.earlier.filter(|(_, until)| length <= *until).map(|(epoch, _)| epoch).or(self.stream)
    }
}

struct Node {
    disk: Disk,
    process: Option<Process>,
    /// Its local clock is `now × rate / 1000`.
    rate: u64,
    is_paused: bool,
    hears_etcd: bool,
    /// Which of etcd's records the node has seen.
    seen: usize,
}

struct Process {
    replica: Replica,
    /// Behind the log: received, not applied.
    received: Log,
    /// A whole dataset that is on its way, to an empty copy, and the epoch of its primary.
    arriving: Option<(Epoch, Log)>,
    primary: Option<Primary>,
    /// Since when it is to be promoted.
    promoting: Option<Epoch>,
    /// The last epoch in which an earlier process has served.
    ended: Option<Epoch>,
    /// The connection to a primary.
    upstream: Option<Upstream>,
    transaction: Option<InFlight>,
    waiting: Vec<Waiting>,
    /// They may leave whenever they can, since the copy has handed over.
    settled: Vec<Settled>,
}

/// A reply, and the log that it shows.
struct Settled {
    waiting: Waiting,
    log: Log,
}

/// A command that has run, whose reply has not left.
struct Waiting {
    /// The reply depends on everything before it.
    position: usize,
    is_read: bool,
    /// What had been acknowledged to anyone when the command arrived.
    acknowledged: usize,
}

struct Upstream {
    primary: usize,
    epoch: Epoch,
    /// The newest heartbeat.
    heartbeat: Option<u64>,
    to_primary: VecDeque<Up>,
    to_replica: VecDeque<Down>,
    /// How much of its log the primary has sent. `None`: it has not accepted the replica.
    sent: Option<usize>,
    /// The replica has heard that it is accepted.
    is_accepted: bool,
}

#[derive(Debug)]
enum Up {
    /// `acknowledged` is what an acknowledgement would say.
    Hello {
        incarnation: u64,
        log: Log,
        acknowledged: usize,
    },
    Acknowledged {
        incarnation: u64,
        message: Acknowledgement,
    },
}

#[derive(Debug)]
enum Down {
    Accepted,
    /// Not yet, or not at all: ask again.
    Refused,
    Whole(Log),
    Portion {
        from: usize,
        entries: Log,
    },
    Heartbeat(Heartbeat),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Pending,
    Committed,
    Conflict,
}

/// A transaction that changes the record.
struct InFlight {
    expected: usize,
    record: ShardRecord,
    fate: Fate,
}

pub struct Sim {
    random: SplitMix64,
    options: Options,
    now_ms: u64,
    nodes: Vec<Node>,
    /// Each version of the shard's record; the index is its revision.
    etcd: Vec<ShardRecord>,
    /// Transactions that nobody waits for.
    orphans: Vec<(usize, ShardRecord)>,
    controller: Poll,
    /// From, to: no message arrives.
    blocked: [[bool; COPIES]; COPIES],
    /// The writes that clients know of, in their order.
    acknowledged: Log,
    served: BTreeMap<Epoch, usize>,
    next_write: u64,
    next_incarnation: u64,
    is_calm: bool,
    /// How fast time passes beside what happens.
    pace_ms: u64,
    /// Faults begin when the record has been changed so often.
    peace: usize,
    /// Every acknowledged write is synced first.
    syncs_always: bool,
    /// A replay of one seed tells what happens.
    is_told: bool,
    pub totals: Totals,
}

/// What a controller has asked, and heard so far.
#[derive(Default)]
struct Poll {
    seen: usize,
    reports: Vec<Report>,
}

fn member(copy: usize, incarnation: u64) -> Member {
    Member { copy: CopyNumber(copy as u32), incarnation: incarnation_of(incarnation), unknown: Unknown::new() }
}

fn incarnation_of(number: u64) -> Incarnation {
    Incarnation(number.to_le_bytes())
}

fn node_of(copy: usize) -> NodeId {
    NodeId([copy as u8 + 1; 20])
}

impl Sim {
    pub fn new(seed: u64, options: Options) -> Sim {
        let mut random = SplitMix64(seed);
        let assignments = (0..COPIES).map(|copy| Assignment::new(CopyNumber(copy as u32), node_of(copy)));
        let record = ShardRecord::new(CopyNumber(0), assignments.collect());
        let nodes = (0..COPIES).map(|copy| Node {
            disk: Disk {
                incarnation: copy as u64,
                promised: Epoch::FIRST,
                served: None,
                log: Log::new(),
                synced: 0,
                acknowledged: 0,
                is_whole: true,
                stream: None,
                earlier: None,
            },
            process: None,
            rate: 950 + random.below(100),
            is_paused: false,
            hears_etcd: true,
            seen: 0,
        });
        let mut sim = Sim {
            nodes: nodes.collect(),
            syncs_always: random.below(2) == 0,
            pace_ms: [4, 12, 40][random.index(3)],
            peace: random.index(5),
            random,
            options,
            now_ms: 10_000,
            etcd: vec![record],
            orphans: Vec::new(),
            controller: Poll::default(),
            blocked: Default::default(),
            acknowledged: Log::new(),
            served: BTreeMap::new(),
            next_write: 0,
            next_incarnation: COPIES as u64,
            is_calm: false,
            is_told: seeds::is_replay(),
            totals: Totals::default(),
        };
        (0..COPIES).for_each(|copy| sim.start(copy));
        sim
    }

    pub fn run(&mut self) {
        for _ in 0..STEPS {
            self.step();
            self.check();
        }
        self.recover();
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        if self.is_told {
            println!("{} ms: {}", self.now_ms, what());
        }
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.options.mutant == Some(mutant)
    }

    fn local(&self, copy: usize) -> u64 {
        self.now_ms * self.nodes[copy].rate / 1000
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.random.below(one_in) == 0
    }

    fn step(&mut self) {
        self.now_ms += self.random.below(self.pace_ms);
        if self.options.recovers && self.etcd.len() > self.peace && self.chance(150) {
            (0..COPIES).for_each(|copy| self.lose_power(copy));
        }
        let copy = self.random.index(COPIES);
        match self.random.below(100) {
            0..36 => (0..=self.random.below(6)).for_each(|_| self.deliver(copy)),
            36..68 => self.tick(copy),
            68..76 => self.command(copy),
            76..78 => self.ask_to_hand_over(copy),
            78..88 => self.etcd_step(copy),
            88..93 => self.control(),
            93 => self.now_ms += self.random.below(1_500),
            // The shard begins in peace, so that there is something to lose.
            _ if self.etcd.len() > self.peace => self.fault(copy),
            _ => {}
        }
    }

    fn fault(&mut self, copy: usize) {
        let other = self.random.index(COPIES);
        match self.random.below(24) {
            0 => self.kill(copy),
            1 if self.chance(3) => self.lose_power(copy),
            1..3 => {
                self.kill(copy);
                self.start(copy);
                // The controller sees at once that it is another process.
                self.ask_all();
            }
            3..6 => {
                if self.nodes[copy].process.is_none() {
                    self.start(copy);
                }
            }
            6 => self.nodes[copy].is_paused = true,
            7..10 => self.nodes[copy].is_paused = false,
            10..12 => self.blocked[copy][other] = true,
            12..16 => self.blocked[copy][other] = false,
            16..18 => self.nodes[copy].hears_etcd = false,
            18..22 => self.nodes[copy].hears_etcd = true,
            _ => self.cut(copy),
        }
    }

    fn start(&mut self, copy: usize) {
        self.tell(|| format!("{copy} starts with {:?}", self.nodes[copy].disk));
        let local = self.local(copy);
        let forgets_grants = self.is(Mutant::GrantsForgotten);
        let disk = &mut self.nodes[copy].disk;
        // Who has not all that it has acknowledged is not what the record names any more.
        if disk.acknowledged > disk.log.len() || !disk.is_whole {
            disk.incarnation = self.next_incarnation;
            disk.acknowledged = 0;
            disk.is_whole = true;
            self.next_incarnation += 1;
        }
        let promised = if self.options.mutant == Some(Mutant::PromiseForgotten) { Epoch::FIRST } else { disk.promised };
        // What it reads of etcd first may be old.
        let (random, node) = (&mut self.random, &mut self.nodes[copy]);
        if random.below(3) == 0 {
            node.seen -= random.index(node.seen.min(3) + 1);
        }
        let replica = Replica::start(promised, if forgets_grants { 0 } else { local });
        self.nodes[copy].process = Some(Process {
            replica,
            received: Log::new(),
            arriving: None,
            primary: None,
            promoting: None,
            ended: node.disk.served,
            upstream: None,
            transaction: None,
            waiting: Vec::new(),
            settled: Vec::new(),
        });
    }

    fn kill(&mut self, copy: usize) {
        self.tell(|| format!("{copy} is killed"));
        let node = &mut self.nodes[copy];
        node.is_paused = false;
        let Some(process) = node.process.take() else { return };
        self.orphans.extend(
            process.transaction.filter(|sent| sent.fate == Fate::Pending).map(|sent| (sent.expected, sent.record)),
        );
        self.cut_from(copy);
    }

    fn lose_power(&mut self, copy: usize) {
        self.tell(|| format!("{copy} loses its power"));
        self.kill(copy);
        let disk = &mut self.nodes[copy].disk;
        disk.log.truncate(disk.synced);
        // A dataset that has arrived is durable as a whole, with the stream that it is of.
        if disk.log.is_empty() {
            (disk.stream, disk.earlier) = (None, None);
        }
        // What was acknowledged before a loss of power is known only if it was synced before.
        if !self.syncs_always {
            disk.acknowledged = usize::MAX;
        }
    }

    /// The replica's connection.
    fn cut(&mut self, copy: usize) {
        if let Some(process) = &mut self.nodes[copy].process {
            process.upstream = None;
        }
    }

    /// The connections to this primary.
    fn cut_from(&mut self, primary: usize) {
        for node in &mut self.nodes {
            let Some(process) = &mut node.process else { continue };
            if process.upstream.as_ref().is_some_and(|upstream| upstream.primary == primary) {
                process.upstream = None;
            }
        }
    }

    fn runs(&self, copy: usize) -> bool {
        self.nodes[copy].process.is_some() && !self.nodes[copy].is_paused
    }

    // Clients

    fn command(&mut self, copy: usize) {
        if !self.runs(copy) {
            return;
        }
        let local = self.local(copy);
        let no_lease = self.is(Mutant::NoLease);
        let is_read = self.random.below(2) == 0;
        let node = &mut self.nodes[copy];
        let process = node.process.as_mut().expect("it runs");
        let Some(primary) = &process.primary else { return };
        if primary.hands_over() || !no_lease && !primary.has_lease(local) {
            return;
        }
        if !is_read {
            node.disk.log.push(self.next_write);
            self.next_write += 1;
        }
        let position = node.disk.log.len();
        process.waiting.push(Waiting { position, is_read, acknowledged: self.acknowledged.len() });
    }

    /// The replies that may leave do.
    fn reply(&mut self, copy: usize) {
        let local = self.local(copy);
        let no_lease = self.is(Mutant::NoLease);
        let syncs_always = self.syncs_always;
        let node = &mut self.nodes[copy];
        let process = node.process.as_mut().expect("it runs");
        let Some(primary) = &process.primary else { return };
        if !no_lease && !primary.has_lease(local) {
            return;
        }
        let safe = primary.acknowledged().map_or(usize::MAX, |offset| offset as usize);
        let safe = if syncs_always { safe.min(node.disk.synced) } else { safe };
        let (leave, stay) =
            std::mem::take(&mut process.waiting).into_iter().partition(|waiting| waiting.position <= safe);
        process.waiting = stay;
        let leave: Vec<Waiting> = leave;
        for waiting in leave {
            let log = self.nodes[copy].disk.log[..waiting.position].to_vec();
            self.nodes[copy].disk.acknowledged = self.nodes[copy].disk.acknowledged.max(waiting.position);
            self.answer(copy, &waiting, &log);
        }
    }

    /// A client gets a reply, which shows this log.
    fn answer(&mut self, copy: usize, waiting: &Waiting, log: &[u64]) {
        let knows = |acknowledged: &[u64]| log.starts_with(acknowledged);
        if waiting.is_read {
            assert!(
                knows(&self.acknowledged[..waiting.acknowledged]),
                "copy {copy} answered a read with {log:?}, but {:?} was acknowledged before it was asked",
                &self.acknowledged[..waiting.acknowledged]
            );
            self.totals.reads += 1;
        } else {
            self.totals.acknowledged += 1;
        }
        assert!(
            knows(&self.acknowledged) || self.acknowledged.starts_with(log),
            "copy {copy} acknowledges {log:?}, beside {:?}",
            self.acknowledged
        );
        if log.len() > self.acknowledged.len() {
            self.tell(|| format!("{copy} acknowledges {log:?}"));
            self.acknowledged = log.to_vec();
        }
    }

    /// A late reply of a copy that has handed over.
    fn reply_late(&mut self, copy: usize) {
        if !self.chance(3) {
            return;
        }
        let process = self.nodes[copy].process.as_mut().expect("it runs");
        if let Some(Settled { waiting, log }) = process.settled.pop() {
            self.answer(copy, &waiting, &log);
            self.totals.late += 1;
        }
    }

    // Handovers

    fn ask_to_hand_over(&mut self, copy: usize) {
        let (local, to) = (self.local(copy), CopyNumber(((copy + 1 + self.random.index(2)) % COPIES) as u32));
        if !self.runs(copy) {
            return;
        }
        let process = self.nodes[copy].process.as_mut().expect("it runs");
        let Some(primary) = &mut process.primary else { return };
        if primary.hand_over(to, local).is_ok() {
            self.tell(|| format!("{copy} is to hand over to {to}"));
        }
    }

    /// The next step of a handover. Returns the copy that is to be recorded as the primary.
    fn go_on_handing_over(&mut self, copy: usize) -> Option<CopyNumber> {
        let local = self.local(copy);
        let is_early = self.is(Mutant::HandsOverTooEarly);
        let node = &mut self.nodes[copy];
        let process = node.process.as_mut().expect("it runs");
        let primary = process.primary.as_mut()?;
        let was_asked = primary.hands_over();
        let end = if is_early { 0 } else { node.disk.log.len() as u64 };
        // Replies wait for the journal too, which is not of this machine.
        let is_durable = !self.syncs_always || node.disk.synced == node.disk.log.len();
        match primary.handover(end, local) {
            Handover::Ready(to) => {
                if is_durable {
                    for waiting in process.waiting.drain(..) {
                        let log = node.disk.log[..waiting.position].to_vec();
                        node.disk.acknowledged = node.disk.acknowledged.max(waiting.position);
                        process.settled.push(Settled { waiting, log });
                    }
                }
                Some(to)
            }
            Handover::GivenUp(why) => {
                self.totals.handovers_given_up += 1;
                self.tell(|| format!("{copy} does not hand over: {why}"));
                None
            }
            Handover::None if was_asked => unreachable!("it says that it was given up"),
            Handover::None | Handover::Waits => None,
        }
    }

    // What a process does by itself

    fn tick(&mut self, copy: usize) {
        if !self.runs(copy) {
            return;
        }
        self.answer_of_etcd(copy);
        self.apply(copy);
        if self.chance(2) {
            let disk = &mut self.nodes[copy].disk;
            disk.synced = disk.log.len();
        }
        self.acknowledge(copy);
        self.obey(copy);
        self.feed(copy);
        self.change_record(copy);
        self.reply(copy);
        self.reply_late(copy);
    }

    fn apply(&mut self, copy: usize) {
        let (count, arrives) = (self.random.below(3) as usize, self.chance(3));
        if !self.chance(4) {
            return;
        }
        let node = &mut self.nodes[copy];
        let process = node.process.as_mut().expect("it runs");
        if let Some((epoch, log)) = process.arriving.take_if(|_| arrives) {
            node.disk.log = log;
            node.disk.is_whole = true;
            node.disk.stream = Some(epoch);
        }
        let count = count.min(process.received.len());
        node.disk.log.extend(process.received.drain(..count));
    }

    fn acknowledge(&mut self, copy: usize) {
        let syncs_always = self.syncs_always;
        let node = &mut self.nodes[copy];
        let process = node.process.as_mut().expect("it runs");
        let Some(upstream) = process.upstream.as_mut().filter(|upstream| upstream.is_accepted) else { return };
        if !process.replica.accepts(upstream.epoch) {
            return;
        }
        let received = if syncs_always { node.disk.synced } else { node.disk.log.len() + process.received.len() };
        node.disk.acknowledged = node.disk.acknowledged.max(received);
        let message =
            Acknowledgement { epoch: upstream.epoch, received: received as u64, heartbeat: upstream.heartbeat };
        upstream.to_primary.push_back(Up::Acknowledged { incarnation: node.disk.incarnation, message });
    }

    fn seen(&self, copy: usize) -> &ShardRecord {
        &self.etcd[self.nodes[copy].seen]
    }

    fn me(&self, copy: usize) -> Member {
        let record = self.seen(copy);
        let named = record.in_sync.iter().find(|member| member.copy.0 as usize == copy);
        match named {
            Some(named) if self.is(Mutant::IncarnationIgnored) => named.clone(),
            _ => member(copy, self.nodes[copy].disk.incarnation),
        }
    }

    /// Moves the copy to what the record that the node has seen says.
    fn obey(&mut self, copy: usize) {
        let (local, me, record) = (self.local(copy), self.me(copy), self.seen(copy).clone());
        let seen = self.nodes[copy].seen;
        let restarts = self.is(Mutant::RestartsInItsEpoch);
        let ignores_received = self.is(Mutant::ReceivedIsNotApplied);
        let (never_waits, forgets_old) = (self.is(Mutant::NeverWaits), self.is(Mutant::OldPrimaryNotRequired));
        let syncs_always = self.syncs_always;
        let node = &mut self.nodes[copy];
        let process = node.process.as_mut().expect("it runs");
        let serves = process.primary.is_some();
        let standing =
            Standing { me: me.clone(), promised: process.replica.promised(), served: node.disk.served, serves };
        let mut duty = duty(&record, &standing);
        if let (true, Duty::Resume(_), false) = (restarts, duty, record.in_sync.is_empty()) {
            duty = Duty::Promote { epoch: record.epoch, is_vacant: false };
        }
        match duty {
            Duty::Serve => {
                process.primary.as_mut().expect("it serves").recorded(&record.in_sync);
            }
            Duty::Follow { primary, epoch } => {
                if process.primary.take().is_some() {
                    process.waiting.clear();
                    self.cut_from(copy);
                }
                let node = &mut self.nodes[copy];
                let process = node.process.as_mut().expect("it runs");
                process.promoting = None;
                let primary = primary.0 as usize;
                let is_right = process
                    .upstream
                    .as_ref()
                    .is_some_and(|upstream| upstream.primary == primary && upstream.epoch == epoch);
                if !is_right && process.arriving.is_none() && process.replica.accepts(epoch) {
                    // What was received is kept: it is applied before anything else arrives.
                    node.disk.log.append(&mut process.received);
                    let acknowledged = if syncs_always { node.disk.synced } else { node.disk.log.len() };
                    node.disk.acknowledged = node.disk.acknowledged.max(acknowledged);
                    let (incarnation, log) = (node.disk.incarnation, node.disk.log.clone());
                    let hello = Up::Hello { incarnation, log, acknowledged };
                    process.upstream = Some(Upstream {
                        primary,
                        epoch,
                        heartbeat: None,
                        to_primary: VecDeque::from([hello]),
                        to_replica: VecDeque::new(),
                        sent: None,
                        is_accepted: false,
                    });
                }
            }
            Duty::ReadAgain => {}
            Duty::NotTheRecorded => {
                process.primary = None;
                process.upstream = None;
            }
            Duty::Promote { epoch, is_vacant } => {
                if process.promoting != Some(epoch) {
                    process.replica.promise(epoch);
                    node.disk.promised = epoch;
                    process.upstream = None;
                    process.promoting = Some(epoch);
                }
                if ignores_received {
                    process.received.clear();
                }
                node.disk.log.append(&mut process.received);
                if is_vacant || never_waits || process.replica.grants_have_ended(local) {
                    let mut in_sync = record.in_sync.clone();
                    if let Some(old) = self.etcd[seen - 1..seen].iter().find(|_| record.is_handed_over() && forgets_old)
                    {
                        in_sync.retain(|member| member.copy != old.primary);
                    }
                    self.serve(copy, epoch, me, &in_sync);
                    self.totals.handovers += u64::from(record.is_handed_over());
                    self.totals.ended += u64::from(is_vacant && !record.is_handed_over());
                    self.totals.promotions += 1;
                }
            }
            Duty::Resume(epoch) => {
                if process.transaction.is_none() {
                    process.transaction =
                        Some(InFlight { expected: seen, record: resumed(&record, &me, epoch), fate: Fate::Pending });
                }
            }
        }
    }

    fn serve(&mut self, copy: usize, epoch: Epoch, me: Member, in_sync: &[Member]) {
        let local = self.local(copy);
        self.tell(|| format!("{copy} serves in epoch {epoch}"));
        let before = self.served.insert(epoch, copy);
        assert!(before.is_none(), "epoch {epoch} has been served by copy {before:?}, and now by {copy}");
        let node = &mut self.nodes[copy];
        let process = node.process.as_mut().expect("it runs");
        node.disk.served = Some(epoch);
        node.disk.take_stream(epoch);
        process.promoting = None;
        process.upstream = None;
        process.primary = Some(Primary::begin(epoch, me, in_sync, local));
        self.cut_from(copy);
    }

    /// Sends replicas what they do not have, and heartbeats.
    fn feed(&mut self, copy: usize) {
        let local = self.local(copy);
        let process = self.nodes[copy].process.as_mut().expect("it runs");
        let Some(primary) = &mut process.primary else { return };
        let (epoch, heartbeat) = (primary.epoch(), primary.heartbeat(local));
        let log = self.nodes[copy].disk.log.clone();
        for node in &mut self.nodes {
            let Some(upstream) = node.process.as_mut().and_then(|process| process.upstream.as_mut()) else { continue };
            if upstream.primary != copy || upstream.epoch != epoch {
                continue;
            }
            let Some(sent) = upstream.sent else { continue };
            if sent < log.len() {
                upstream.to_replica.push_back(Down::Portion { from: sent, entries: log[sent..].to_vec() });
                upstream.sent = Some(log.len());
            }
            upstream.to_replica.extend(heartbeat.map(Down::Heartbeat));
        }
    }

    fn change_record(&mut self, copy: usize) {
        let hands_over_to = self.go_on_handing_over(copy);
        let local = self.local(copy);
        let (removed_early, added_early) =
            (self.is(Mutant::RemovedBeforeRecorded), self.is(Mutant::AddedBeforeRequired));
        let node = &mut self.nodes[copy];
        let process = node.process.as_mut().expect("it runs");
        if process.transaction.is_some() {
            return;
        }
        let Some(primary) = &mut process.primary else { return };
        let mut record = self.etcd[node.seen].clone();
        if record.epoch != primary.epoch() {
            return;
        }
        if let Some(to) = hands_over_to {
            let record = handed_over(&record, to);
            process.transaction = Some(InFlight { expected: node.seen, record, fate: Fate::Pending });
            return;
        }
        let before = primary.clone();
        if self.options.leaves {
            primary.assigned(record.staying());
        }
        let Some(set) = primary.wanted(node.disk.log.len() as u64, local) else { return };
        if set == record.in_sync {
            return;
        }
        if removed_early && set.len() < record.in_sync.len() {
            primary.recorded(&set);
        }
        if added_early && set.len() > record.in_sync.len() {
            // The state before the copy was required; it is required when the record is seen.
            *primary = before;
        }
        record.in_sync = set;
        process.transaction = Some(InFlight { expected: node.seen, record, fate: Fate::Pending });
    }

    // Messages

    fn deliver(&mut self, copy: usize) {
        let Some(upstream) = self.nodes[copy].process.as_ref().and_then(|process| process.upstream.as_ref()) else {
            return;
        };
        let primary = upstream.primary;
        if self.random.below(2) == 0 {
            if self.blocked[copy][primary] || !self.runs(primary) {
                return;
            }
            let process = self.nodes[copy].process.as_mut().expect("it is connected");
            let upstream = process.upstream.as_mut().expect("it is connected");
            let Some(message) = upstream.to_primary.pop_front() else { return };
            self.hear_replica(primary, copy, message);
        } else {
            if self.blocked[primary][copy] || !self.runs(copy) {
                return;
            }
            let process = self.nodes[copy].process.as_mut().expect("it is connected");
            let upstream = process.upstream.as_mut().expect("it is connected");
            let Some(message) = upstream.to_replica.pop_front() else { return };
            self.hear_primary(copy, message);
        }
    }

    fn hear_replica(&mut self, primary: usize, replica: usize, message: Up) {
        self.tell(|| format!("{primary} hears {replica}: {message:?}"));
        let local = self.local(primary);
        let refills_early = self.is(Mutant::RefilledAsItWas);
        let late_lease = self.is(Mutant::LeaseCountedFromTheAnswer);
        let log = self.nodes[primary].disk.log.clone();
        let upstream_epoch = self.nodes[replica]
            .process
            .as_ref()
            .and_then(|process| process.upstream.as_ref())
            .expect("it is connected")
            .epoch;
        let machine = self.nodes[primary].process.as_mut().expect("it runs").primary.as_mut();
        let machine = machine.filter(|machine| machine.epoch() == upstream_epoch);
        let answer = match (machine, message) {
            (None, Up::Hello { .. }) => Some((Down::Refused, None)),
            (Some(machine), Up::Hello { incarnation, log: theirs, acknowledged }) => {
                let who = member(replica, incarnation);
                if log.starts_with(&theirs) {
                    machine.follows(&who, acknowledged as u64, local);
                    Some((Down::Accepted, Some(theirs.len())))
                } else if machine.may_be_refilled(who.copy) || refills_early {
                    self.totals.refills += 1;
                    let sent = Some(log.len());
                    Some((Down::Whole(log), sent))
                } else {
                    Some((Down::Refused, None))
                }
            }
            (None, Up::Acknowledged { .. }) => None,
            (Some(machine), Up::Acknowledged { incarnation, message }) => {
                if late_lease {
                    // As if the heartbeat had been sent when its answer arrived.
                    if let Some(heartbeat) = machine.heartbeat(local) {
                        let message = Acknowledgement { heartbeat: Some(heartbeat.number), ..message };
                        machine.hear(&member(replica, incarnation), &message, local);
                    }
                }
                machine.hear(&member(replica, incarnation), &message, local);
                None
            }
        };
        let Some((answer, sent)) = answer else { return };
        let process = self.nodes[replica].process.as_mut().expect("it is connected");
        let upstream = process.upstream.as_mut().expect("it is connected");
        upstream.sent = sent;
        upstream.to_replica.push_back(answer);
    }

    fn hear_primary(&mut self, copy: usize, message: Down) {
        self.tell(|| format!("{copy} hears its primary: {message:?}"));
        let local = self.local(copy);
        let fresh = self.next_incarnation;
        let keeps_incarnation = self.is(Mutant::RefilledAsItWas);
        let node = &mut self.nodes[copy];
        let process = node.process.as_mut().expect("it runs");
        let upstream = process.upstream.as_mut().expect("it is connected");
        if !process.replica.accepts(upstream.epoch) {
            process.upstream = None;
            return;
        }
        match message {
            Down::Refused => process.upstream = None,
            Down::Accepted => {
                upstream.is_accepted = true;
                node.disk.take_stream(upstream.epoch);
            }
            Down::Whole(log) => {
                // First it is another dataset, then it empties itself.
                if !keeps_incarnation {
                    node.disk.incarnation = fresh;
                    self.next_incarnation += 1;
                }
                node.disk.is_whole = false;
                node.disk.log.clear();
                node.disk.synced = 0;
                node.disk.acknowledged = 0;
                (node.disk.stream, node.disk.earlier) = (None, None);
                process.received.clear();
                process.arriving = Some((upstream.epoch, log));
                // It says hello with its new dataset.
                process.upstream = None;
            }
            Down::Portion { from, entries } => {
                let has = node.disk.log.len() + process.received.len();
                assert_eq!(from, has, "copy {copy} got a portion that does not follow what it has");
                process.received.extend(entries);
            }
            Down::Heartbeat(heartbeat) => {
                if process.replica.hear(&heartbeat, local) {
                    upstream.heartbeat = Some(heartbeat.number);
                }
            }
        }
    }

    // etcd, and the controller

    fn commit(&mut self, expected: usize, record: &ShardRecord) -> bool {
        if expected != self.etcd.len() - 1 {
            return false;
        }
        let (before, after) = (self.etcd.last().expect("a first one").in_sync.len(), record.in_sync.len());
        self.totals.joined += u64::from(after > before);
        self.totals.left += u64::from(after < before);
        let last = self.etcd.last().expect("a first one");
        let joins = record.in_sync.iter().find(|member| !last.is_in_sync(member.copy));
        assert!(
            joins.is_none_or(|member| last.staying().contains(&member.copy)),
            "a copy that is to go joins: {record:?}"
        );
        assert!(
            record.in_sync.iter().any(|member| member.copy == record.primary),
            "a set without its primary: {record:?}"
        );
        self.tell(|| {
            let set = Vec::from_iter(record.in_sync.iter().map(|member| (member.copy.0, member.incarnation)));
            format!("record {}: epoch {}, primary {}, in sync {set:?}", self.etcd.len(), record.epoch, record.primary)
        });
        self.etcd.push(record.clone());
        true
    }

    fn etcd_step(&mut self, copy: usize) {
        if !self.orphans.is_empty() && self.chance(3) {
            let at = self.random.index(self.orphans.len());
            let (expected, record) = self.orphans.swap_remove(at);
            self.commit(expected, &record);
        }
        if !self.nodes[copy].hears_etcd {
            return;
        }
        // The watch.
        let last = self.etcd.len() - 1;
        if self.runs(copy) && self.nodes[copy].seen < last {
            self.nodes[copy].seen += 1;
        }
        let Some(sent) = self.nodes[copy].process.as_ref().and_then(|process| process.transaction.as_ref()) else {
            return;
        };
        if sent.fate != Fate::Pending {
            return;
        }
        let (expected, record) = (sent.expected, sent.record.clone());
        let fate = if self.commit(expected, &record) { Fate::Committed } else { Fate::Conflict };
        let process = self.nodes[copy].process.as_mut().expect("it has a transaction");
        process.transaction.as_mut().expect("it has a transaction").fate = fate;
    }

    fn answer_of_etcd(&mut self, copy: usize) {
        let gives_up = !self.is_calm && self.chance(4);
        let unknown_is_failure = self.is(Mutant::UnknownIsFailure);
        let reopens = self.is(Mutant::ServesAfterUnknown);
        let last = self.etcd.len() - 1;
        let node = &mut self.nodes[copy];
        let process = node.process.as_mut().expect("it runs");
        let Some(sent) = process.transaction.take() else { return };
        if gives_up {
            // The answer does not arrive in time. What was sent may be committed later.
            self.totals.unknown += 1;
            let is_handover = sent.record.is_handed_over();
            if let (true, Some(primary)) = (unknown_is_failure || reopens && is_handover, &mut process.primary) {
                let recorded = self.etcd[node.seen].in_sync.clone();
                let (epoch, me) = (primary.epoch(), member(copy, node.disk.incarnation));
                let now = self.now_ms * node.rate / 1000;
                *primary = Primary::begin(epoch, me, &recorded, now);
            }
            if sent.fate == Fate::Pending {
                self.orphans.push((sent.expected, sent.record));
            }
            return;
        }
        match sent.fate {
            Fate::Pending => process.transaction = Some(sent),
            // A linearizable read.
            Fate::Conflict => node.seen = last,
            Fate::Committed => {
                node.seen = node.seen.max(sent.expected + 1);
                let me = member(copy, node.disk.incarnation);
                let is_mine = process.primary.as_ref().is_some_and(|primary| primary.epoch() == sent.record.epoch);
                if is_mine {
                    process.primary.as_mut().expect("it is").recorded(&sent.record.in_sync);
                } else if process.primary.is_none()
                    && sent.record.primary == me.copy
                    && sent.record.epoch > process.replica.promised()
                {
                    let epoch = sent.record.epoch;
                    process.replica.promise(epoch);
                    node.disk.promised = epoch;
                    self.serve(copy, epoch, me, &sent.record.in_sync);
                    self.totals.resumptions += 1;
                }
            }
        }
    }

    /// The controller says that a copy is to go, or that it is not.
    fn control_leaving(&mut self) {
        let copy = CopyNumber(self.random.index(COPIES) as u32);
        let mut next = self.etcd.last().expect("a first one").clone();
        // A shard that has not served yet has no set.
        if copy != next.primary && !next.in_sync.is_empty() {
            next.assignments.iter_mut().filter(|one| one.copy == copy).for_each(|one| one.is_leaving = !one.is_leaving);
            self.commit(self.etcd.len() - 1, &next);
        }
    }

    fn control(&mut self) {
        if self.options.leaves && self.chance(10) {
            return self.control_leaving();
        }
        let copy = self.random.index(COPIES);
        match self.random.below(6) {
            0 => {
                self.controller = Poll { seen: self.etcd.len() - 1, reports: Vec::new() };
            }
            1..4 => {
                if self.runs(copy) {
                    let mut report = self.report(copy);
                    // A promotion at the wrong time must cost no more than a pause.
                    report.hears_a_lease &= self.random.below(2) == 0;
                    self.controller.reports.retain(|known| known.copy != report.copy);
                    self.controller.reports.push(report);
                }
            }
            _ => {
                let record = self.etcd[self.controller.seen].clone();
                // A promotion is asked for at any time, not only when the primary is missed.
                match choose(&record, &self.controller.reports, |_| false) {
                    Choice::Name(next) => drop(self.commit(self.controller.seen, &next)),
                    Choice::NobodyKnown if self.options.recovers => self.decide(&record),
                    _ => {}
                }
                self.controller = Poll { seen: self.etcd.len() - 1, reports: Vec::new() };
            }
        }
    }

    /// The controller asks all copies that run.
    fn ask_all(&mut self) {
        self.controller = Poll { seen: self.etcd.len() - 1, reports: Vec::new() };
        let running = (0..COPIES).filter(|copy| self.runs(*copy));
        self.controller.reports = running.map(|copy| self.report(copy)).collect();
    }

    /// An operator has the shard go on with what is left, if every copy has said what it has.
    fn decide(&mut self, record: &ShardRecord) {
        let mut reports = self.controller.reports.clone();
        if self.is(Mutant::AnyIsTaken) {
            reports.iter_mut().for_each(|report| (report.stream, report.received) = (None, 0));
        }
        let Ok(next) = recover(record, &reports, |_| false, |_| false) else { return };
        // The leases of before have ended until an operator has looked.
        self.now_ms += 2_000;
        if !self.commit(self.controller.seen, &next) {
            return;
        }
        self.totals.recoveries += 1;
        // A reply of before that leaves now tells of what may be lost.
        for process in self.nodes.iter_mut().filter_map(|node| node.process.as_mut()) {
            process.waiting.clear();
            process.settled.clear();
        }
        let taken = next.primary.0 as usize;
        if !next.names(next.primary, incarnation_of(self.nodes[taken].disk.incarnation)) {
            return;
        }
        let known = |copy: usize| {
            let node = &self.nodes[copy];
            let mut has = node.disk.log.clone();
            has.extend(node.process.iter().flat_map(|process| &process.received));
            has.iter().zip(&self.acknowledged).take_while(|(has, acknowledged)| has == acknowledged).count()
        };
        let kept = known(taken);
        for other in (0..COPIES).filter(|other| *other != taken) {
            assert!(
                known(other) <= kept,
                "copy {other} has more of what was acknowledged than {taken}, which is taken"
            );
        }
        self.totals.lost += (self.acknowledged.len() - kept) as u64;
        self.acknowledged.truncate(kept);
    }

    fn report(&self, copy: usize) -> Report {
        let node = &self.nodes[copy];
        let process = node.process.as_ref().expect("it runs");
        let record = &self.etcd[self.controller.seen];
        let named = record.in_sync.iter().find(|member| member.copy.0 as usize == copy);
        let incarnation = match named {
            Some(named) if self.is(Mutant::IncarnationIgnored) => named.incarnation,
            _ => incarnation_of(node.disk.incarnation),
        };
        let received = node.disk.log.len() + process.received.len();
        Report {
            copy: CopyNumber(copy as u32),
            incarnation,
            promised: process.replica.promised(),
            received: received as u64,
            stream: node.disk.stream_at(received),
            began: node.disk.stream.zip(node.disk.earlier).map(|(epoch, (before, at))| Began {
                epoch,
                at: at as u64,
                before,
            }),
            ended: match self.is(Mutant::NamedIsServed) {
                true => Some(process.replica.promised()),
                false => process.ended,
            },
            hears_a_lease: process.replica.hears_a_lease(self.local(copy)),
        }
    }

    // What must always hold

    fn check(&self) {
        let record = self.etcd.last().expect("a first one");
        for member in &record.in_sync {
            let node = &self.nodes[member.copy.0 as usize];
            if incarnation_of(node.disk.incarnation) != member.incarnation && !self.is(Mutant::IncarnationIgnored) {
                continue;
            }
            let mut has = node.disk.log.clone();
            has.extend(node.process.iter().flat_map(|process| &process.received));
            // A dead process comes back as another incarnation if it has not all that it has acknowledged.
            if node.process.is_none() && node.disk.acknowledged > node.disk.log.len() {
                continue;
            }
            assert!(
                has.starts_with(&self.acknowledged),
                "copy {} may be named and has {has:?}, acknowledged was {:?}",
                member.copy,
                self.acknowledged
            );
        }
    }

    /// All faults end. Unless no copy has everything, a write is acknowledged soon.
    fn recover(&mut self) {
        self.is_calm = true;
        self.blocked = Default::default();
        for copy in 0..COPIES {
            self.nodes[copy].is_paused = false;
            self.nodes[copy].hears_etcd = true;
            if self.nodes[copy].process.is_none() {
                self.start(copy);
            }
        }
        self.orphans.clear();
        if self.options.leaves && !self.etcd.last().expect("a first one").in_sync.is_empty() {
            let mut next = self.etcd.last().expect("a first one").clone();
            next.assignments.iter_mut().for_each(|one| one.is_leaving = false);
            self.commit(self.etcd.len() - 1, &next);
        }
        let (until, before) = (self.now_ms + RECOVERY_MS, self.totals.acknowledged);
        while self.now_ms < until && self.totals.acknowledged == before {
            self.now_ms += 5;
            for copy in 0..COPIES {
                for _ in 0..4 {
                    self.deliver(copy);
                }
                self.tick(copy);
                self.command(copy);
                self.etcd_step(copy);
            }
            // The controller acts when the primary is missed.
            if !self.has_primary() {
                self.ask_all();
                let record = self.etcd[self.controller.seen].clone();
                match choose(&record, &self.controller.reports, |_| false) {
                    Choice::Name(next) => drop(self.commit(self.controller.seen, &next)),
                    Choice::NobodyKnown if self.options.recovers => self.decide(&record),
                    _ => {}
                }
            }
            self.check();
        }
        if self.totals.acknowledged == before {
            assert!(!self.options.recovers, "an operator could not decide: {:?}", self.etcd.last());
            assert!(!self.somebody_has_all(), "nothing is acknowledged any more: {:?}", self.etcd.last());
            self.totals.unavailable += 1;
        }
    }

    fn has_primary(&self) -> bool {
        let record = self.etcd.last().expect("a first one");
        let primary = &self.nodes[record.primary.0 as usize];
        record.in_sync.is_empty()
            || record.in_sync.iter().any(|member| {
                member.copy == record.primary && member.incarnation == incarnation_of(primary.disk.incarnation)
            })
    }

    fn somebody_has_all(&self) -> bool {
        let record = self.etcd.last().expect("a first one");
        record
            .in_sync
            .iter()
            .any(|member| incarnation_of(self.nodes[member.copy.0 as usize].disk.incarnation) == member.incarnation)
    }
}
