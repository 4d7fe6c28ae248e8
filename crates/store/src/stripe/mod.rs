//! Owns a stripe: the tables of its keys, the watched keys and the queues of blocked clients. Never knows the store around it.

pub(crate) mod census;
pub(crate) mod wait;
pub(crate) mod watch;

use crate::mem::deadlines::Deadlines;
use crate::mem::hash::{Key, KeyHash, STRIPES};
use crate::mem::index::{Slot, Table, prefetch_line};
use crate::mem::object::Value;
use crate::mem::word::Word;
use crate::stripe::wait::Waiters;
use crate::stripe::watch::Watched;
use parking_lot::{Mutex, MutexGuard};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// Checkpoints and notes of keys contain a table id in 16 bits.
pub(crate) const DATABASES_MAX: usize = 1 << 16;

/// How long to wait for a stripe's lock before assuming that a long-running script holds it.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_millis(2);
/// The total time that a slice of maintenance waits for locked stripes. Longer than a usual command takes.
pub(crate) const UPKEEP_TIMEOUT: Duration = Duration::from_millis(1);

/// The part of a logical database that is in one stripe.
#[derive(Default)]
pub struct Database {
    pub(crate) table: Table,
    /// Number of entries with an expiry, and of entries whose value is in RAM.
    pub(crate) expires: usize,
    pub(crate) hot: usize,
    /// Deadlines of the hashes in RAM that have fields with an expiry. None if there is no such hash.
    pub(crate) deadlines: Option<Box<Deadlines>>,
}

pub struct Stripe {
    /// The table with id 0, which holds nearly all keys. It is stored beside the lock, which saves a cache miss.
    first: Database,
    /// The watched keys. None if there are none.
    pub(crate) watched: Option<Box<Watched>>,
    /// The queues of blocked clients. None if there are none.
    pub(crate) waiters: Option<Box<Waiters>>,
    /// The databases from table id 1 on. SWAPDB exchanges table ids, so that records on flash keep the number of their database.
    others: Vec<Database>,
    /// Whether clients' commands may lock it, and whether its keys may expire and be evicted: see [`Store::set_owned`](crate::Store::set_owned).
    pub(crate) owned: bool,
}

impl Default for Stripe {
    fn default() -> Stripe {
        Stripe { first: Database::default(), watched: None, waiters: None, others: Vec::new(), owned: true }
    }
}

/// Each stripe has its own cache line, because different workers lock neighbouring stripes.
#[repr(align(64))]
struct Line(Mutex<Stripe>);

/// All stripes with their locks, and the table id of each logical database's contents.
pub(crate) struct StripeSet {
    lines: Box<[Line]>,
    /// The table id of each logical database. Written with every stripe locked, read with any stripe locked.
    table_ids: Box<[AtomicU32]>,
    /// Held by the one script that is adding stripes to those it holds.
    pub adding: Mutex<()>,
    /// The function that a thread calls while it waits for a stripe.
    waiting: OnceLock<fn()>,
}

impl StripeSet {
    pub fn new(databases: usize) -> StripeSet {
        assert!(databases <= DATABASES_MAX);
        StripeSet {
            lines: (0..STRIPES).map(|_| Line(Mutex::default())).collect(),
            table_ids: (0..).take(databases).map(AtomicU32::new).collect(),
            adding: Mutex::default(),
            waiting: OnceLock::new(),
        }
    }

    /// Number of logical databases.
    pub fn databases(&self) -> usize {
        self.table_ids.len()
    }

    /// The caller must hold a stripe's lock.
    #[inline]
    pub fn table_id(&self, db: usize) -> u32 {
        self.table_ids[db].load(Relaxed)
    }

    /// Exchanges the contents of two logical databases. The caller must hold every stripe's lock.
    pub fn swap(&self, a: usize, b: usize) {
        let (first, second) = (self.table_id(a), self.table_id(b));
        self.table_ids[a].store(second, Relaxed);
        self.table_ids[b].store(first, Relaxed);
    }

    /// Sets the table id of each logical database. Called before the first use.
    pub fn set_uids(&self, table_ids: &[u32]) {
        self.table_ids.iter().zip(table_ids).for_each(|(table_id, &saved)| table_id.store(saved, Relaxed));
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
            if let Some(guard) = self.lines[stripe].0.try_lock_for(LOCK_TIMEOUT) {
                return guard;
            }
            self.wait();
        }
    }

    /// Locks a stripe. None if it is locked: this function does not wait.
    #[inline]
    pub fn lock_at_once(&self, stripe: usize) -> Option<Guard<'_>> {
        self.lines[stripe].0.try_lock()
    }

    #[inline(always)]
    pub fn try_lock(&self, stripe: usize, timeout: Duration) -> Option<Guard<'_>> {
        let lock = &self.lines[stripe].0;
        lock.try_lock().or_else(|| lock.try_lock_for(timeout))
    }

    /// Locks a stripe for maintenance or statistics, which a script that holds a stripe must not block. After the first stripe
    /// that could not be locked within `timeout`, later calls do not wait. So a pass over all stripes waits once.
    pub fn lock_or_skip(&self, stripe: usize, timeout: &mut Duration) -> Option<Guard<'_>> {
        let guard = self.try_lock(stripe, *timeout);
        if guard.is_none() {
            *timeout = Duration::ZERO;
        }
        guard
    }

    /// Called when a stripe could not be locked for a while, because a script holds it.
    pub fn wait(&self) {
        if let Some(waiting) = self.waiting.get() {
            waiting();
        }
    }

    pub fn set_waiting(&self, waiting: fn()) {
        // The first function stays: a store belongs to one server.
        let _ = self.waiting.set(waiting);
    }

    /// Prefetches the stripe's lock and its first table into the processor's cache.
    #[inline]
    pub fn prefetch(&self, stripe: usize) {
        prefetch_line(&raw const self.lines[stripe]);
    }

    /// Bytes of the stripe structures without their tables.
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
    pub(crate) fn database(&self, table_id: u32) -> Option<&Database> {
        match table_id {
            0 => Some(&self.first),
            table_id => self.others.get(table_id as usize - 1),
        }
    }

    #[inline(always)]
    pub(crate) fn database_mut(&mut self, table_id: u32) -> &mut Database {
        if table_id == 0 { &mut self.first } else { self.other_mut(table_id) }
    }

    #[inline(never)]
    fn other_mut(&mut self, table_id: u32) -> &mut Database {
        let other = table_id as usize - 1;
        if other >= self.others.len() {
            self.others.resize_with(other + 1, Database::default);
        }
        &mut self.others[other]
    }

    pub(crate) fn keys(&self, table_id: u32) -> usize {
        self.database(table_id).map_or(0, |database| database.table.len())
    }

    /// Whether the key exists and has not expired, as far as this is known without reading flash.
    pub(crate) fn has_live(&self, table_id: u32, key: &Key<'_>, now_ms: u64) -> bool {
        let Some((database, slot)) = self.database(table_id).and_then(|database| Some((database, database.find(key)?)))
        else {
            return false;
        };
        let object = database.table.entry(slot).object();
        object.and_then(|object| object.expiry()).is_none_or(|expiry| expiry > now_ms)
    }

    /// Number of values in RAM.
    pub(crate) fn hot(&self) -> usize {
        self.all().map(|database| database.hot).sum()
    }

    #[expect(clippy::cast_possible_truncation, reason = "there are at most DATABASES_MAX, which is 2^16")]
    pub(crate) fn table_ids(&self) -> u32 {
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
    /// The key's entry. For a hot entry the whole key is compared, for a cold entry only the hash bits.
    #[inline]
    pub(crate) fn find(&self, key: &Key<'_>) -> Option<Slot> {
        self.table.find(key.hash.high, |entry| {
            entry.word().agrees(key.hash) && entry.object().is_none_or(|object| object.key() == key.name)
        })
    }

    /// The key's value, if it is in RAM and has not expired at `now_ms`.
    pub(crate) fn value(&self, key: &Key<'_>, now_ms: u64) -> Option<Value<'_>> {
        let object = self.table.entry(self.find(key)?).object()?;
        object.expiry().is_none_or(|expiry| expiry > now_ms).then(|| object.value())
    }

    /// Number of entries whose value is on flash only.
    pub(crate) fn cold(&self) -> usize {
        self.table.len() - self.hot
    }

    /// The cold entry with exactly this hash and place.
    pub(crate) fn find_cold(&self, hash: KeyHash, word: Word) -> Option<Slot> {
        let is_it = |found: Word| !found.is_hot() && found.agrees(hash) && found.place() == word.place();
        self.table.find(hash.high, |entry| is_it(entry.word()))
    }

    /// Records the next deadline of a hash, so that the sweep finds the hash when the deadline is due.
    pub(crate) fn keep_deadline(&mut self, high: u64, at_ms: u64) {
        let deadlines = self.deadlines.get_or_insert_default();
        deadlines.keep(&self.table, high, at_ms);
        if deadlines.is_empty() {
            self.deadlines = None;
        }
    }

    /// The keys of the hashes that have fields whose deadline is due.
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
