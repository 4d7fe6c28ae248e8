//! One shard on three nodes, with everything around the state machines that is not theirs: messages, disks, etcd, clients, a controller.

mod copies;
mod faults;
mod messages;
mod record;

use base::random::SplitMix64;
use cluster::failover::{Acknowledgement, Choice, Heartbeat, Primary, Replica, Report, choose};
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
