//! Owns the queues of blocked clients by key, in the stripe beside the keys, and the list of keys that a command has made
//! ready. Never knows more of a waiter than its number, nor how a waiter is woken.
//!
//! A blocking command that finds nothing enters the queues while its stripes are still locked (`Keyspace::wait`), so no change
//! of the key can come in between. Every change of a key with waiters is recorded in `Resume::ready`. The worker that made
//! the change then fetches the waiters one after the other (`Store::waiter`), in the order of their tickets, and runs their
//! commands.

use crate::mem::hash::{Hasher, Key, KeyHash};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use value::Kind;

/// The condition of a waiter: what the key must hold before the waiter's command is run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wants {
    /// The key holds a value of this kind.
    pub kind: Kind,
    /// Any change of the key satisfies the waiter, even its removal. For XREADGROUP, whose group may be gone.
    pub any_change: bool,
}

/// A key that was changed and has waiters.
#[derive(Clone, Debug)]
pub struct Ready {
    pub(crate) db: usize,
    pub(crate) hash: KeyHash,
    name: SmallVec<[u8; 40]>,
    /// Only waiters with a higher ticket are considered.
    after: u64,
}

impl Ready {
    pub(crate) fn new(db: usize, key: &Key<'_>, after: u64) -> Ready {
        Ready { db, hash: key.hash, name: SmallVec::from_slice(key.name), after }
    }

    pub(crate) fn key(&self) -> Key<'_> {
        Key { name: &self.name, hash: self.hash }
    }

    /// From now on consider only waiters with a higher ticket.
    pub fn behind(&mut self, ticket: u64) {
        self.after = ticket;
    }
}

struct QueuedClient {
    client: u64,
    wants: Wants,
}

/// The waiters for one key of one logical database.
#[derive(Default)]
struct Queue {
    db: usize,
    /// Sorted by ticket: first come, first served.
    clients: BTreeMap<u64, QueuedClient>,
    /// Number of clients that want any change.
    any_change: usize,
}

/// A stripe's queues, by key. Exists only while there are waiters. Each queue has the number of its logical database, not the table id
/// of the database's contents: a client that waits in database 0 is also woken by keys that SWAPDB brings there.
///
/// FLUSHALL makes all keys ready in the order of this map. The map is sorted by name and is no hash table with a random key, so
/// that a run can be repeated.
#[derive(Default)]
pub(crate) struct Waiters(BTreeMap<Box<[u8]>, SmallVec<[Queue; 1]>>);

impl Waiters {
    fn queue(&self, db: usize, name: &[u8]) -> Option<&Queue> {
        self.0.get(name)?.iter().find(|queue| queue.db == db)
    }

    /// Records a changed key as ready if it has a queue.
    #[cold]
    pub fn note(&self, db: usize, key: &Key<'_>, ready: &mut Vec<Ready>) {
        let is_noted = ready.last().is_some_and(|last| last.db == db && *last.name == *key.name);
        if !is_noted && self.queue(db, key.name).is_some() {
            ready.push(Ready::new(db, key, 0));
        }
    }

    /// Records all keys with a queue as ready, because their databases were emptied or exchanged.
    pub fn note_all(&self, hasher: &Hasher, is_meant: impl Fn(usize) -> bool, ready: &mut Vec<Ready>) {
        for (name, queues) in &self.0 {
            for queue in queues.iter().filter(|queue| is_meant(queue.db)) {
                ready.push(Ready::new(queue.db, &hasher.key(name), 0));
            }
        }
    }

    /// Whether the key has waiters.
    pub fn wait_for(&self, db: usize, key: &Key<'_>) -> bool {
        self.queue(db, key.name).is_some()
    }

    /// Adds a client to the key's queue, behind all other waiters.
    pub fn add(&mut self, db: usize, key: &Key<'_>, ticket: u64, (client, wants): (u64, Wants), counts: &WaitCounts) {
        let queues = self.0.entry(key.name.into()).or_default();
        let at = queues.iter().position(|queue| queue.db == db).unwrap_or_else(|| {
            queues.push(Queue { db, ..Queue::default() });
            counts.keys.fetch_add(1, Relaxed);
            queues.len() - 1
        });
        let queue = &mut queues[at];
        // A key may be named twice.
        if queue.clients.insert(ticket, QueuedClient { client, wants }).is_none() && wants.any_change {
            queue.any_change += 1;
            counts.keys_any_change.fetch_add(u64::from(queue.any_change == 1), Relaxed);
        }
    }

    /// Removes a waiter from the key's queue.
    pub fn remove(&mut self, db: usize, key: &Key<'_>, ticket: u64, counts: &WaitCounts) {
        let Some(queues) = self.0.get_mut(key.name) else { return };
        let Some(at) = queues.iter().position(|queue| queue.db == db) else { return };
        let queue = &mut queues[at];
        if queue.clients.remove(&ticket).is_some_and(|queued| queued.wants.any_change) {
            queue.any_change -= 1;
            counts.keys_any_change.fetch_sub(u64::from(queue.any_change == 0), Relaxed);
        }
        if queue.clients.is_empty() {
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

    /// The first considered waiter whose condition the key satisfies: its ticket and its client's number.
    pub fn next(&self, ready: &Ready, kind: impl FnOnce() -> Option<Kind>) -> Option<(u64, u64)> {
        let queue = self.queue(ready.db, &ready.name)?;
        let found = kind();
        if found.is_none() && queue.any_change == 0 {
            return None;
        }
        let fits = |wants: Wants| wants.any_change || found == Some(wants.kind);
        let behind = ready.after.checked_add(1)?;
        let (ticket, queued) = queue.clients.range(behind..).find(|(_, queued)| fits(queued.wants))?;
        Some((*ticket, queued.client))
    }
}

/// Counts of waiters, for INFO.
#[derive(Default)]
pub(crate) struct WaitCounts {
    tickets: AtomicU64,
    keys: AtomicU64,
    keys_any_change: AtomicU64,
}

impl WaitCounts {
    /// Draws the next ticket.
    pub fn ticket(&self) -> u64 {
        self.tickets.fetch_add(1, Relaxed) + 1
    }

    /// Number of keys with waiters, and of those where a waiter wants any change.
    pub fn keys(&self) -> (u64, u64) {
        (self.keys.load(Relaxed), self.keys_any_change.load(Relaxed))
    }
}
