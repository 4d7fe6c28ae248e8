//! Owns the rounds that move the leaves of the index together. Never decides which leaves move: the allocator knows how full its
//! pages are.

use crate::mem::compaction::Place;
use crate::mem::hash::STRIPES;
use crate::store::Store;
use crate::stripe::UPKEEP_TIMEOUT;

/// The leaves that one slice visits: some 2 ms. And those that it visits while it has a stripe's lock.
const SLICE_LEAVES: usize = 4_096;
const LOCKED_LEAVES: usize = 64;

impl Store {
    /// Tells how many bytes of the allocator's pages in use are free. If they have grown much, [`Store::compact_index`] has work.
    pub fn tell_gaps(&self, bytes: u64) {
        self.compaction.lock().tell(bytes);
    }

    /// Moves some leaves of the index together, if a round is running. Call this some times a second, from one thread.
    pub fn compact_index(&self) {
        let mut compaction = self.compaction.lock();
        let mut left = SLICE_LEAVES;
        let mut timeout = UPKEEP_TIMEOUT;
        while left > 0
            && let Some(mut at) = compaction.at
        {
            let stripe = self.stripe_or_skip(at.stripe, &mut timeout);
            let stripe = stripe.filter(|stripe| at.table_id < stripe.table_ids());
            let Some(mut stripe) = stripe else {
                compaction.at = Some(Place { stripe: at.stripe + 1, ..Place::default() });
                if at.stripe + 1 == STRIPES {
                    compaction.round_ends();
                }
                left -= 1;
                continue;
            };
            let table = &mut stripe.database_mut(at.table_id).table;
            for _ in 0..LOCKED_LEAVES.min(left) {
                let (has_moved, next) = table.compact_leaf(at.high);
                left -= 1;
                compaction.visited += 1;
                compaction.moved += u64::from(has_moved);
                let Some(next) = next else {
                    at = Place { table_id: at.table_id + 1, high: 0, ..at };
                    break;
                };
                at.high = next;
            }
            compaction.at = Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::StoreConfig;
    use crate::store::Store;

    #[test]
    fn an_empty_store_has_a_round_too() {
        let store = Store::new(&StoreConfig::in_ram(1));
        store.tell_gaps(100 << 20);
        (0..100).for_each(|_| store.compact_index());
        assert!(store.compaction.lock().at.is_none());
    }
}
