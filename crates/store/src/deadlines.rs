//! Owns which hashes in RAM have fields that expire, and when: found there in time, the fields go although nobody looks at
//! them. Never removes a field itself: that is what looking at the hash does.
//!
//! What is kept are hints. A hash that has left RAM, or whose deadlines have changed, is found out when the hint is due,
//! or when there are twice as many hints as at the last look.

use crate::hand::UPKEEP_PATIENCE;
use crate::hash::STRIPES;
use crate::index::Table;
use crate::keyspace::Resume;
use crate::store::Store;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

/// Hints up to which nobody looks whether they are still true.
const UNSIFTED: usize = 64;

/// The hashes of one logical database in one stripe: the upper hash of each key, and its earliest deadline.
pub(crate) struct Deadlines {
    by_key: BTreeMap<u64, u64>,
    earliest_ms: u64,
    sift_at: usize,
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines { by_key: BTreeMap::new(), earliest_ms: u64::MAX, sift_at: UNSIFTED }
    }
}

impl Deadlines {
    /// Notes a hash's next deadline. `table`: of the same logical database.
    pub fn keep(&mut self, table: &Table, high: u64, at_ms: u64) {
        self.by_key.insert(high, at_ms);
        self.earliest_ms = self.earliest_ms.min(at_ms);
        if self.by_key.len() > self.sift_at {
            self.sift(table, 0, &mut Vec::new());
        }
    }

    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Whether any hint is due.
    pub fn are_due(&self, now_ms: u64) -> bool {
        self.earliest_ms <= now_ms
    }

    /// Brings the hints up to date, and gives the keys that are due.
    pub fn sift(&mut self, table: &Table, now_ms: u64, due: &mut Vec<Box<[u8]>>) {
        let mut earliest_ms = u64::MAX;
        self.by_key.retain(|&high, at_ms| {
            let slot = table.find(high, |entry| entry.object().is_some_and(|object| object.next_deadline().is_some()));
            let object = slot.and_then(|slot| table.entry(slot).object());
            let found = object.and_then(|object| Some((object, object.next_deadline()?)));
            let Some((object, next_ms)) = found else { return false };
            if next_ms <= now_ms {
                due.push(object.key().into());
                return false;
            }
            *at_ms = next_ms;
            earliest_ms = earliest_ms.min(next_ms);
            true
        });
        self.earliest_ms = earliest_ms;
        self.sift_at = UNSIFTED.max(2 * self.by_key.len());
    }
}

impl Store {
    /// Lets the fields of hashes in RAM go that have expired, from a stripe on and until so many hashes are done. Returns
    /// the stripe to go on from, 0 after the last.
    pub(crate) fn expire_fields(&self, from: usize, now_ms: u64, hashes_max: usize) -> usize {
        if from == 0 && !self.has_deadlines.swap(false, Relaxed) {
            return 0;
        }
        let mut done = 0;
        let mut patience = UPKEEP_PATIENCE;
        for number in from..STRIPES {
            if done >= hashes_max {
                self.has_deadlines.store(true, Relaxed);
                return number;
            }
            let Some(mut stripe) = self.stripe_or_skip(number, &mut patience) else {
                // A script keeps it: in the next round.
                self.has_deadlines.store(true, Relaxed);
                continue;
            };
            for uid in 0..stripe.uids() {
                let database = stripe.database_mut(uid);
                let Some(deadlines) = &database.deadlines else { continue };
                self.has_deadlines.store(true, Relaxed);
                if !deadlines.are_due(now_ms) {
                    continue;
                }
                let due = database.due_deadlines(now_ms);
                if due.is_empty() {
                    continue;
                }
                drop(stripe);
                done += due.len();
                due.iter().for_each(|name| self.look_at(uid, name, now_ms));
                stripe = self.stripe(number);
            }
        }
        0
    }

    fn look_at(&self, uid: u32, name: &[u8], now_ms: u64) {
        let Some(db) = (0..self.databases()).find(|&db| self.uid(db) == uid) else { return };
        let key = self.hasher().key(name);
        let mut resume = Resume::default();
        // Nobody waits for a hash: none is ready.
        self.lock(&[key], db, now_ms, false, &mut resume).notice_parts(&key);
    }
}
