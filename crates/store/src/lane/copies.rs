//! Owns a lane's share of a pass that drops copies: values in RAM lose their copies on flash, so that the segments with these have garbage to
//! collect. Never removes a value from RAM, nor writes one.

use super::Lane;
use crate::store::{Store, clean_place};
use crate::stripe::UPKEEP_TIMEOUT;

impl Lane {
    /// Drops the copies of one stripe's values, if a pass is running. Returns whether there is more to do at once.
    pub(super) fn drop_copies_slice(&mut self) -> bool {
        let store = &*self.store;
        let wanted = store.segments.take_copies_to_drop();
        if wanted > 0 {
            store.copies.begin(wanted, self.now_ms);
        }
        let Some(stripe) = store.copies.next_stripe() else { return false };
        if store.copies.stripe_done(drop_copies(store, stripe)) {
            // Before somebody finds that flash is still full.
            store.segments.weigh(!store.evicts());
            store.copies.end(self.now_ms);
        }
        true
    }
}

/// Returns the bytes of the values. If a script holds the stripe, its values keep their copies.
fn drop_copies(store: &Store, stripe: usize) -> u64 {
    let mut timeout = UPKEEP_TIMEOUT;
    let Some(mut stripe) = store.stripe_or_skip(stripe, &mut timeout) else { return 0 };
    let mut dropped = 0;
    for table_id in 0..stripe.table_ids() {
        let table = &mut stripe.database_mut(table_id).table;
        let mut at = Some(0);
        while let Some(high) = at {
            let (entries, _, next) = table.leaf_at_mut(high);
            for entry in entries.iter_mut().filter(|entry| entry.word().is_hot() && !entry.word().is_dirty()) {
                store.segments.died(clean_place(entry.hot()));
                entry.set_dirty(true);
                dropped += entry.hot().ram_bytes() as u64;
            }
            at = next;
        }
    }
    dropped
}
