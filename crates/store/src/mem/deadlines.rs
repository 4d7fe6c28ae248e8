//! Owns the deadlines of hashes in RAM whose fields expire, so that a sweep can remove expired fields that no command
//! accesses.
//! Never removes a field itself: the look-up of the hash does.
//!
//! The deadlines are hints. A hint is outdated if the hash has left RAM or its deadlines have changed. Outdated hints are dropped
//! when they are due, or when there are twice as many hints as after the last check.

use crate::mem::index::Table;
use std::collections::BTreeMap;

/// Outdated hints are not searched for until there are more hints than this.
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
    /// Records a hash's next deadline. `table` is the table of the same logical database.
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

    /// Updates the hints and returns the keys that are due.
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
