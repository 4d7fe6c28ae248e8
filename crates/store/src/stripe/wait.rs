//! Owns who waits for which key: the queues of blocked commands, in the stripe beside the keys, and which of those keys
//! a command has made ready. Never knows what a waiter is beyond its number, nor how it is woken.
//!
//! A command that finds nothing takes its place with the stripes still locked (`Keyspace::wait`), so no change of the
//! key can slip between its look and its place. Every change of a key that somebody waits for is noted in
//! `Resume::ready`; who made it then asks for the waiters one after the other (`Store::waiter`), in the order of
//! their tickets, and runs their commands.

use crate::mem::hash::{Hasher, Key, KeyHash};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use value::Kind;

/// What a waiter needs of a key before its command is worth running again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wants {
    /// The key holds a value of this kind.
    pub kind: Kind,
    /// Or it has changed in any way, even to nothing: XREADGROUP, whose group may be gone.
    pub any_change: bool,
}

/// A key that was changed while somebody waits for it.
#[derive(Clone, Debug)]
pub struct Ready {
    pub(crate) db: usize,
    pub(crate) hash: KeyHash,
    name: SmallVec<[u8; 40]>,
    /// The waiters behind this ticket are meant.
    after: u64,
}

impl Ready {
    pub(crate) fn new(db: usize, key: &Key<'_>, after: u64) -> Ready {
        Ready { db, hash: key.hash, name: SmallVec::from_slice(key.name), after }
    }

    pub(crate) fn key(&self) -> Key<'_> {
        Key { name: &self.name, hash: self.hash }
    }

    /// The waiters behind that one.
    pub fn behind(&mut self, ticket: u64) {
        self.after = ticket;
    }
}

struct Seat {
    client: u64,
    wants: Wants,
}

/// Who waits for one key of one logical database.
#[derive(Default)]
struct Queue {
    db: usize,
    /// By ticket: the first that came is the first that is served.
    seats: BTreeMap<u64, Seat>,
    /// Seats that want any change.
    any_change: usize,
}

/// A stripe's queues, by key. There only while somebody waits. Each queue has the number of its logical database, not of the
/// database's contents: who waits in database 0 waits for what SWAPDB brings there.
///
/// A FLUSHALL makes all keys ready in the order of this map. The order is that of the names, not that of a hash table with a
/// random key, so that a run can be repeated.
#[derive(Default)]
pub(crate) struct Waiters(BTreeMap<Box<[u8]>, SmallVec<[Queue; 1]>>);

impl Waiters {
    fn queue(&self, db: usize, name: &[u8]) -> Option<&Queue> {
        self.0.get(name)?.iter().find(|queue| queue.db == db)
    }

    /// The key was changed: a queue of it is to be looked at.
    #[cold]
    pub fn note(&self, db: usize, key: &Key<'_>, ready: &mut Vec<Ready>) {
        let is_noted = ready.last().is_some_and(|last| last.db == db && *last.name == *key.name);
        if !is_noted && self.queue(db, key.name).is_some() {
            ready.push(Ready::new(db, key, 0));
        }
    }

    /// The databases were emptied or exchanged: everything in them may have changed.
    pub fn note_all(&self, hasher: &Hasher, is_meant: impl Fn(usize) -> bool, ready: &mut Vec<Ready>) {
        for (name, queues) in &self.0 {
            for queue in queues.iter().filter(|queue| is_meant(queue.db)) {
                ready.push(Ready::new(queue.db, &hasher.key(name), 0));
            }
        }
    }

    /// Whether anybody waits for this key.
    pub fn wait_for(&self, db: usize, key: &Key<'_>) -> bool {
        self.queue(db, key.name).is_some()
    }

    /// A client takes its place behind all that wait for this key.
    pub fn add(&mut self, db: usize, key: &Key<'_>, ticket: u64, (client, wants): (u64, Wants), counts: &WaitCounts) {
        let queues = self.0.entry(key.name.into()).or_default();
        let at = queues.iter().position(|queue| queue.db == db).unwrap_or_else(|| {
            queues.push(Queue { db, ..Queue::default() });
            counts.keys.fetch_add(1, Relaxed);
            queues.len() - 1
        });
        let queue = &mut queues[at];
        // A key may be named twice.
        if queue.seats.insert(ticket, Seat { client, wants }).is_none() && wants.any_change {
            queue.any_change += 1;
            counts.keys_any_change.fetch_add(u64::from(queue.any_change == 1), Relaxed);
        }
    }

    /// A waiter gives up its place.
    pub fn remove(&mut self, db: usize, key: &Key<'_>, ticket: u64, counts: &WaitCounts) {
        let Some(queues) = self.0.get_mut(key.name) else { return };
        let Some(at) = queues.iter().position(|queue| queue.db == db) else { return };
        let queue = &mut queues[at];
        if queue.seats.remove(&ticket).is_some_and(|seat| seat.wants.any_change) {
            queue.any_change -= 1;
            counts.keys_any_change.fetch_sub(u64::from(queue.any_change == 0), Relaxed);
        }
        if queue.seats.is_empty() {
            queues.remove(at);
            counts.keys.fetch_sub(1, Relaxed);
        }
        if queues.is_empty() {
            self.0.remove(key.name);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first waiter that is meant and fits what the key holds: its ticket and its number.
    pub fn next(&self, ready: &Ready, kind: impl FnOnce() -> Option<Kind>) -> Option<(u64, u64)> {
        let queue = self.queue(ready.db, &ready.name)?;
        let found = kind();
        if found.is_none() && queue.any_change == 0 {
            return None;
        }
        let fits = |wants: Wants| wants.any_change || found == Some(wants.kind);
        let behind = ready.after.checked_add(1)?;
        let (ticket, seat) = queue.seats.range(behind..).find(|(_, seat)| fits(seat.wants))?;
        Some((*ticket, seat.client))
    }
}

/// For INFO.
#[derive(Default)]
pub(crate) struct WaitCounts {
    tickets: AtomicU64,
    keys: AtomicU64,
    keys_any_change: AtomicU64,
}

impl WaitCounts {
    /// The next waiter's number.
    pub fn ticket(&self) -> u64 {
        self.tickets.fetch_add(1, Relaxed) + 1
    }

    /// Keys that somebody waits for, and those of them where any change counts.
    pub fn keys(&self) -> (u64, u64) {
        (self.keys.load(Relaxed), self.keys_any_change.load(Relaxed))
    }
}
