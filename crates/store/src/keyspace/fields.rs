//! Owns the sweep over hashes in RAM whose fields have expired. Never removes a field itself: the look-up of the hash does.

use super::{Keyspace, Resume};
use crate::keyspace::guards::Reach;
use crate::mem::hash::STRIPES;
use crate::store::Store;
use crate::stripe::UPKEEP_TIMEOUT;
use std::sync::atomic::Ordering::Relaxed;

impl Store {
    /// Removes expired fields of hashes in RAM, beginning with stripe `from`, until `hashes_max` hashes are done. Returns the
    /// stripe to continue with, 0 after the last.
    pub(crate) fn expire_fields(&self, from: usize, now_ms: u64, hashes_max: usize) -> usize {
        if from == 0 && !self.has_deadlines.swap(false, Relaxed) {
            return 0;
        }
        let mut done = 0;
        let mut timeout = UPKEEP_TIMEOUT;
        for number in from..STRIPES {
            if done >= hashes_max {
                self.has_deadlines.store(true, Relaxed);
                return number;
            }
            let Some(mut stripe) = self.stripe_or_skip(number, &mut timeout) else {
                // A script holds the stripe: try again in the next round.
                self.has_deadlines.store(true, Relaxed);
                continue;
            };
            if !stripe.owned {
                if stripe.all().any(|database| database.deadlines.is_some()) {
                    // When it is owned, its fields expire.
                    self.has_deadlines.store(true, Relaxed);
                }
                continue;
            }
            for table_id in 0..stripe.table_ids() {
                let database = stripe.database_mut(table_id);
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
                due.iter().for_each(|name| self.look_at(table_id, name, now_ms));
                stripe = self.stripe(number);
            }
        }
        0
    }

    fn look_at(&self, table_id: u32, name: &[u8], now_ms: u64) {
        let Some(db) = (0..self.databases()).find(|&db| self.table_id(db) == table_id) else { return };
        let key = self.hasher().key(name);
        let mut resume = Resume::default();
        // No command blocks on a hash, so there are no ready keys to serve.
        if let Some(held) = self.hold(&[key], Reach::Owned) {
            Keyspace::new(held, db, now_ms, false, &mut resume).notice_parts(&key);
        }
    }
}
