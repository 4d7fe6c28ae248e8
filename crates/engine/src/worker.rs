//! Owns a worker: what one database has on one thread, and what all its connections there share: its side of the store, pools, clocks, the
//! interpreter. Never knows the steps of a command, the tasks of the thread or a connection: each of them takes a worker.

use crate::config_snapshot::ConfigSnapshot;
use crate::exchange::Targets;
use crate::fair_queue::FairQueue;
use crate::hub::Hub;
use crate::interpreter::Interpreter;
use crate::journaling::{CommitWaiter, WriteAdmission};
use crate::reply_coalescer::ReplyCoalescer;
use crate::stats::WorkerStats;
use crate::task_slot::TaskSlots;
use crate::work::{Buffers, Work};
use base::clock::{wall_ms, wall_nanos};
use std::cell::{Cell, RefCell, RefMut};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};
use store::Lane;
use tokio::sync::Notify;

pub struct Worker {
    pub hub: Arc<Hub>,
    pub index: usize,
    lane: RefCell<Lane>,
    snapshot: RefCell<Rc<ConfigSnapshot>>,
    #[expect(clippy::vec_box, reason = "a connection takes the box as it is, without moving what is in it")]
    pool: RefCell<Vec<Box<Work>>>,
    /// Buffers that waiting connections have given back.
    spare: RefCell<Vec<Buffers>>,
    /// Connections to other servers, kept for the next exchange.
    pub targets: Targets,
    /// The Lua interpreter, made for the first script.
    pub interpreter: RefCell<Option<Interpreter>>,
    /// The tasks that may continue while a script blocks the thread.
    pub task_slots: TaskSlots,
    /// At a proxy: the workers of this thread that serve shards, by shard.
    pub owners: RefCell<Vec<Weak<Worker>>>,
    clock: quanta::Clock,
    /// Wakes the maintenance task at once: flash has completed what was awaited, or a command waits for room.
    pub pressed: Notify,
    /// The order of the connections that have much to do.
    pub fair_queue: FairQueue,
    /// The connections whose replies wait until other connections have been served.
    pub reply_coalescer: ReplyCoalescer,
    /// The connections that wait for the journal.
    pub commit_waiter: CommitWaiter,
    /// [`TURN_NANOS`] in clock ticks.
    pub turn_ticks: u64,
    now_ms: Cell<u64>,
    /// A moment in clock ticks, and in nanoseconds since 1970.
    moment: Cell<(u64, u64)>,
}

/// Buffers kept for reuse. Each connection that waits for flash needs one.
const POOL_MAX: usize = 64;

impl Worker {
    pub fn new(hub: Arc<Hub>, index: usize, lane: Lane) -> Worker {
        let snapshot = ConfigSnapshot::new(hub.config.snapshot(), hub.config.version());
        let clock = quanta::Clock::new();
        Worker {
            commit_waiter: CommitWaiter::new(Arc::clone(&hub.dataset.journaling), index),
            hub,
            index,
            lane: RefCell::new(lane),
            snapshot: RefCell::new(Rc::new(snapshot)),
            pool: RefCell::default(),
            spare: RefCell::default(),
            targets: Targets::default(),
            interpreter: RefCell::default(),
            task_slots: TaskSlots::default(),
            owners: RefCell::default(),
            pressed: Notify::new(),
            fair_queue: FairQueue::default(),
            reply_coalescer: ReplyCoalescer::default(),
            turn_ticks: turn_ticks(&clock),
            moment: Cell::new((clock.raw(), wall_nanos())),
            clock,
            now_ms: Cell::new(wall_ms()),
        }
    }

    #[inline]
    pub fn stats(&self) -> &WorkerStats {
        &self.hub.stats.workers[self.index]
    }

    /// Whether a script of this worker runs, or is being cleared away.
    pub fn runs_script(&self) -> bool {
        self.interpreter.try_borrow().is_err()
    }

    pub fn lane(&self) -> RefMut<'_, Lane> {
        self.lane.borrow_mut()
    }

    /// Reloads the configuration if it has changed. Costs one load if it has not.
    #[inline]
    pub fn refresh_snapshot(&self, snapshot: &mut Rc<ConfigSnapshot>) {
        if snapshot.version != self.hub.config.version() {
            *snapshot = self.config_snapshot();
        }
    }

    /// Returns `snapshot` if it is still current. Otherwise puts the newest configuration into `newer` and returns that.
    #[inline]
    pub fn newest<'l>(
        &self,
        snapshot: &'l ConfigSnapshot,
        newer: &'l mut Option<Rc<ConfigSnapshot>>,
    ) -> &'l ConfigSnapshot {
        match snapshot.version == self.hub.config.version() {
            true => snapshot,
            false => newer.insert(self.config_snapshot()),
        }
    }

    /// The current configuration. Call this once per batch.
    #[inline]
    pub fn config_snapshot(&self) -> Rc<ConfigSnapshot> {
        let version = self.hub.config.version();
        let snapshot = self.snapshot.borrow();
        if snapshot.version == version {
            return Rc::clone(&snapshot);
        }
        drop(snapshot);
        self.renew(version)
    }

    #[cold]
    fn renew(&self, version: u64) -> Rc<ConfigSnapshot> {
        let snapshot = Rc::new(ConfigSnapshot::new(self.hub.config.snapshot(), version));
        *self.snapshot.borrow_mut() = Rc::clone(&snapshot);
        snapshot
    }

    /// The wall clock, in milliseconds since 1970. Call this once per batch.
    pub fn refresh_now_ms(&self) -> u64 {
        self.now_ms_at(self.ticks())
    }

    /// Like [`Worker::refresh_now_ms`], if the ticks were read just now. For a turn's time the wall clock is computed from the ticks:
    /// to read it takes ten times as long.
    #[inline]
    pub fn now_ms_at(&self, ticks: u64) -> u64 {
        let (from, mut nanos) = self.moment.get();
        if ticks.wrapping_sub(from) < self.turn_ticks {
            nanos += self.nanos(from, ticks);
        } else {
            nanos = wall_nanos();
            self.moment.set((ticks, nanos));
        }
        self.now_ms.set(nanos / 1_000_000);
        self.now_ms.get()
    }

    /// Wall clock, microseconds since 1970.
    pub fn time_us(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
    }

    /// The wall clock at the start of the last batch, in milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        self.now_ms.get()
    }

    /// A monotonic counter of unknown unit. Reading it takes a few nanoseconds.
    #[inline]
    pub fn ticks(&self) -> u64 {
        self.clock.raw()
    }

    #[inline]
    pub fn nanos(&self, from: u64, to: u64) -> u64 {
        self.clock.delta_as_nanos(from, to)
    }

    pub fn take_work(&self) -> Box<Work> {
        if let Some(work) = self.pool.borrow_mut().pop() {
            return work;
        }
        let spare = self.spare.borrow_mut().pop();
        Box::new(Work::new(spare.unwrap_or_else(|| match self.hub.dataset.memory.is_scarce() {
            true => Buffers::small(),
            false => Buffers::default(),
        })))
    }

    pub fn give_work(&self, mut work: Box<Work>) {
        let mut pool = self.pool.borrow_mut();
        if pool.len() < POOL_MAX {
            work.clear();
            if work.has_grown() && self.hub.dataset.memory.is_scarce() {
                return;
            }
            if work.lacks_buffers() {
                let Some(buffers) = self.spare.borrow_mut().pop() else { return };
                work.equip(buffers);
            }
            pool.push(work);
        }
    }

    /// Whether it has so many connections that idle ones should hold no buffers.
    pub fn is_crowded(&self) -> bool {
        self.hub.worker_handles[self.index].connections.load(Relaxed) > POOL_MAX
    }

    /// If there are many connections, a waiting one gives up its large buffers. It then needs only one or two
    /// kilobytes.
    pub fn make_small(&self, work: &mut Work) {
        if !self.is_crowded() {
            return;
        }
        if let Some(buffers) = work.lend() {
            let mut spare = self.spare.borrow_mut();
            if spare.len() < POOL_MAX {
                spare.push(buffers);
            }
        }
    }

    /// One of its connections is there no more.
    pub fn connection_ended(&self) {
        self.hub.worker_handles[self.index].connections.fetch_sub(1, Relaxed);
    }

    /// Runs a slice of demotion if the last batch made one necessary.
    #[inline]
    pub fn maintain_if_wanted(&self) {
        let mut lane = self.lane.borrow_mut();
        if lane.wants_maintenance() {
            lane.hold_deletions(self.hub.dataset.journaling.write_admission() == WriteAdmission::Behind);
            lane.maintain(self.now_ms.get());
        }
    }

    pub fn has_connections(&self) -> bool {
        self.hub.worker_handles[self.index].connections.load(Relaxed) > 0
    }
}

/// A batch that has run this long yields to other connections.
const TURN_NANOS: u64 = 1_000_000;

fn turn_ticks(clock: &quanta::Clock) -> u64 {
    const TICKS: u64 = 1 << 30;
    TURN_NANOS * TICKS / clock.delta_as_nanos(0, TICKS).max(1)
}
