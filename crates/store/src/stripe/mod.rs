//! Owns a stripe: the tables of its keys, and who watches them and waits for them. Never knows the store around it.

pub(crate) mod census;
pub(crate) mod wait;
pub(crate) mod watch;

use crate::mem::deadlines::Deadlines;
use crate::mem::hash::{Key, KeyHash, STRIPES};
use crate::mem::index::{Slot, Table, prefetch_line};
use crate::mem::object::{ObjectRef, Value};
use crate::mem::word::Word;
use crate::stripe::wait::Waiters;
use crate::stripe::watch::Watched;
use parking_lot::{Mutex, MutexGuard};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// How long a stripe may take to be had before its owner is taken for a script that runs long.
pub(crate) const LOCK_PATIENCE: Duration = Duration::from_millis(2);
/// How long a slice of upkeep waits for stripes that are locked, all together: longer than a command takes.
pub(crate) const UPKEEP_PATIENCE: Duration = Duration::from_millis(1);

/// One logical database's part of a stripe.
#[derive(Default)]
pub struct Database {
    pub(crate) table: Table,
    /// Entries with an expiry, and entries whose value is in RAM.
    pub(crate) expires: usize,
    pub(crate) hot: usize,
    /// Of hashes with fields that expire, if there are any in RAM.
    pub(crate) deadlines: Option<Box<Deadlines>>,
}

#[derive(Default)]
pub struct Stripe {
    /// Uid 0, where nearly everything is: beside the lock, a cache miss less.
    first: Database,
    /// Keys that somebody watches, if any.
    pub(crate) watched: Option<Box<Watched>>,
    /// Keys that somebody waits for, if any.
    pub(crate) waiters: Option<Box<Waiters>>,
    /// From uid 1 on. SWAPDB exchanges uids, so that what is on flash keeps its database's number.
    others: Vec<Database>,
}

/// Neighbouring stripes are locked by different workers: each on its own cache line.
#[repr(align(64))]
struct Line(Mutex<Stripe>);

/// All stripes and how one is locked, and which contents each logical database has.
pub(crate) struct StripeSet {
    lines: Box<[Line]>,
    /// By logical database. Written with every stripe locked, read with any.
    uids: Box<[AtomicU32]>,
    /// Held by the one script that adds stripes to those it has.
    pub adding: Mutex<()>,
    /// What a thread does while a stripe is not to be had.
    waiting: OnceLock<fn()>,
}

impl StripeSet {
    pub fn new(databases: usize) -> StripeSet {
        StripeSet {
            lines: (0..STRIPES).map(|_| Line(Mutex::default())).collect(),
            uids: (0..databases as u32).map(AtomicU32::new).collect(),
            adding: Mutex::default(),
            waiting: OnceLock::new(),
        }
    }

    /// Logical databases.
    pub fn databases(&self) -> usize {
        self.uids.len()
    }

    /// Call with a stripe locked.
    #[inline]
    pub fn uid(&self, db: usize) -> u32 {
        self.uids[db].load(Relaxed)
    }

    /// Exchanges the contents of two logical databases. Every stripe is locked.
    pub fn swap(&self, a: usize, b: usize) {
        let (first, second) = (self.uid(a), self.uid(b));
        self.uids[a].store(second, Relaxed);
        self.uids[b].store(first, Relaxed);
    }

    #[inline]
    pub fn lock(&self, stripe: usize) -> Guard<'_> {
        match self.lines[stripe].0.try_lock() {
            Some(guard) => guard,
            None => self.lock_in_time(stripe),
        }
    }

    #[cold]
    fn lock_in_time(&self, stripe: usize) -> Guard<'_> {
        loop {
            if let Some(guard) = self.lines[stripe].0.try_lock_for(LOCK_PATIENCE) {
                return guard;
            }
            self.wait();
        }
    }

    /// One that is locked is not waited for.
    #[inline]
    pub fn lock_at_once(&self, stripe: usize) -> Option<Guard<'_>> {
        self.lines[stripe].0.try_lock()
    }

    #[inline]
    pub fn try_lock(&self, stripe: usize, patience: Duration) -> Option<Guard<'_>> {
        let lock = &self.lines[stripe].0;
        lock.try_lock().or_else(|| lock.try_lock_for(patience))
    }

    /// For upkeep and statistics, which a script that keeps a stripe must not hold up. After the first stripe that was not to
    /// be had within `patience` none is waited for, so that a pass over all stripes waits once.
    pub fn lock_or_skip(&self, stripe: usize, patience: &mut Duration) -> Option<Guard<'_>> {
        let guard = self.try_lock(stripe, *patience);
        if guard.is_none() {
            *patience = Duration::ZERO;
        }
        guard
    }

    /// A stripe has not been to be had for a while: a script has it.
    pub fn wait(&self) {
        if let Some(waiting) = self.waiting.get() {
            waiting();
        }
    }

    pub fn set_waiting(&self, waiting: fn()) {
        // The first one stays: a store has one server.
        let _ = self.waiting.set(waiting);
    }

    /// Brings the stripe's lock and its first table into the processor's cache.
    #[inline]
    pub fn prefetch(&self, stripe: usize) {
        prefetch_line(&raw const self.lines[stripe]);
    }

    /// Bytes of the stripes themselves.
    pub fn bytes(&self) -> u64 {
        size_of_val(&*self.lines) as u64
    }

    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Stripe> {
        self.lines.iter_mut().map(|line| line.0.get_mut())
    }
}

pub(crate) type Guard<'s> = MutexGuard<'s, Stripe>;

impl Stripe {
    #[inline]
    pub(crate) fn database(&self, uid: u32) -> Option<&Database> {
        match uid {
            0 => Some(&self.first),
            uid => self.others.get(uid as usize - 1),
        }
    }

    #[inline(always)]
    pub(crate) fn database_mut(&mut self, uid: u32) -> &mut Database {
        if uid == 0 { &mut self.first } else { self.other_mut(uid) }
    }

    #[inline(never)]
    fn other_mut(&mut self, uid: u32) -> &mut Database {
        let other = uid as usize - 1;
        if other >= self.others.len() {
            self.others.resize_with(other + 1, Database::default);
        }
        &mut self.others[other]
    }

    pub(crate) fn keys(&self, uid: u32) -> usize {
        self.database(uid).map_or(0, |database| database.table.len())
    }

    /// Whether the key is there and has not expired, as far as that is known without reading flash.
    pub(crate) fn has_live(&self, uid: u32, key: &Key<'_>, now_ms: u64) -> bool {
        let Some((database, slot)) = self.database(uid).and_then(|database| Some((database, database.find(key)?)))
        else {
            return false;
        };
        let object = database.table.entry(slot).object();
        object.and_then(|object| object.expiry()).is_none_or(|expiry| expiry > now_ms)
    }

    /// Values in RAM.
    pub(crate) fn hot(&self) -> usize {
        self.all().map(|database| database.hot).sum()
    }

    pub(crate) fn uids(&self) -> u32 {
        1 + self.others.len() as u32
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Database> {
        std::iter::once(&self.first).chain(&self.others)
    }

    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut Database> {
        std::iter::once(&mut self.first).chain(&mut self.others)
    }
}

impl Database {
    /// The key's entry. A hot one is compared whole, a cold one by its hash bits.
    #[inline]
    pub(crate) fn find(&self, key: &Key<'_>) -> Option<Slot> {
        self.table.find(key.hash.high, |entry| {
            entry.word().agrees(key.hash) && entry.object().is_none_or(|object| object.key() == key.name)
        })
    }

    /// The key's value, if it is in RAM.
    pub(crate) fn value(&self, key: &Key<'_>) -> Option<Value<'_>> {
        self.table.entry(self.find(key)?).object().map(ObjectRef::value)
    }

    /// The cold entry of exactly this hash and place.
    pub(crate) fn find_cold(&self, hash: KeyHash, word: Word) -> Option<Slot> {
        let is_it = |found: Word| !found.is_hot() && found.agrees(hash) && found.place() == word.place();
        self.table.find(hash.high, |entry| is_it(entry.word()))
    }

    /// A hash's next deadline is noted, from which its key is found in time.
    pub(crate) fn keep_deadline(&mut self, high: u64, at_ms: u64) {
        let deadlines = self.deadlines.get_or_insert_default();
        deadlines.keep(&self.table, high, at_ms);
        if deadlines.is_empty() {
            self.deadlines = None;
        }
    }

    /// The hashes with fields whose deadline has come.
    pub(crate) fn due_deadlines(&mut self, now_ms: u64) -> Vec<Box<[u8]>> {
        let mut due = Vec::new();
        if let Some(deadlines) = &mut self.deadlines {
            deadlines.sift(&self.table, now_ms, &mut due);
            if deadlines.is_empty() {
                self.deadlines = None;
            }
        }
        due
    }

    pub(crate) fn find_address(&self, high: u64, address: usize) -> Option<Slot> {
        self.table.find(high, |entry| entry.word().is_hot() && entry.word().address() == address)
    }
}
