//! Owns the search for the values whose records are damaged. What is in RAM too is written again later; of what is not, only
//! the key is left. Never reads flash: the scrubber and the collector do.

use crate::counters::Counter;
use crate::log::parts::place_of_number;
use crate::log::segment::rot::Lost;
use crate::mem::hash::STRIPES;
use crate::mem::index::OwnedWord;
use crate::mem::word::PageAddress;
use crate::store::{Store, clean_place};
use crate::stripe::UPKEEP_TIMEOUT;

/// A search visits at most this many leaves in a slice.
const LEAVES_MAX: usize = 128;

/// What becomes of the keys whose values are lost.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Losses {
    /// They keep their places, because the damage may be one of the transfer.
    Stay,
    /// Their places are given up. A collection stays, because its other parts are readable.
    GivenUp,
}

/// The position of a search in all keys, and what it has found.
#[derive(Default)]
pub(crate) struct Search {
    stripe: usize,
    table_id: u32,
    high: u64,
    /// Values that cannot be read, and values in RAM whose records are damaged.
    pub lost: u64,
    pub rescued: u64,
}

impl Search {
    /// Looks at some of the keys. True: all keys are done. Meanwhile no record of a damaged segment may move, and none may be added
    /// to it.
    pub fn step(&mut self, store: &Store, is_damaged: &dyn Fn(PageAddress) -> bool, losses: Losses) -> bool {
        let mut timeout = UPKEEP_TIMEOUT;
        for _ in 0..LEAVES_MAX {
            if self.stripe == STRIPES {
                return true;
            }
            // A script holds the stripe, so try it again in the next slice.
            let Some(mut stripe) = store.stripe_or_skip(self.stripe, &mut timeout) else { return false };
            if self.table_id >= stripe.table_ids() {
                *self = Search { stripe: self.stripe + 1, table_id: 0, high: 0, ..*self };
                continue;
            }
            let (mut lost, mut news, mut rescued) = (0, 0, 0);
            let database = stripe.database_mut(self.table_id);
            let (entries, _, next) = database.table.leaf_at_mut(self.high);
            for entry in entries.iter_mut().filter(|entry| entry.high() >= self.high) {
                let word = entry.word();
                if !word.is_hot() {
                    let place = word.place();
                    if !is_damaged(place) {
                        continue;
                    }
                    lost += 1;
                    news += u64::from(store.segments.rot.add_key(Lost::key(place.page, self.table_id, entry.high())));
                    if losses == Losses::GivenUp {
                        store.segments.died(place);
                        store.segments.born(PageAddress::LOST);
                        // As of any lost value, nobody knows whether it has an expiry.
                        database.expires += usize::from(!word.has_expiry());
                        let _old = entry.replace(OwnedWord::cold(word.with_place(PageAddress::LOST).with_expiry(true)));
                    }
                } else if !word.is_dirty() {
                    let place = clean_place(entry.hot());
                    if is_damaged(place) {
                        store.segments.died(place);
                        entry.set_dirty(true);
                        rescued += 1;
                    }
                } else if let Some(value) = entry.hot().boxed()
                    && let Some(id) = value.shelf_id()
                {
                    let kept = value.forget_copies(&mut |place| is_damaged(place_of_number(place)));
                    rescued += kept.in_memory;
                    if kept.absent > 0 {
                        lost += 1;
                        news += u64::from(store.segments.rot.add_key(Lost::collection(id)));
                        if losses == Losses::GivenUp {
                            let key = entry.hot().key().escape_ascii();
                            tracing::error!(%key, "flash cannot become smaller while this collection has parts that cannot be read: delete the key, or raise the limit again");
                        }
                    }
                }
            }
            self.lost += lost;
            self.rescued += rescued;
            store.counters.add(Counter::RottenKeys, news);
            store.counters.add(Counter::RescuedValues, rescued);
            match next {
                Some(high) => self.high = high,
                None => (self.table_id, self.high) = (self.table_id + 1, 0),
            }
        }
        false
    }
}
