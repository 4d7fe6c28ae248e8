//! Owns the warming: after a restart, values come back to RAM while RAM has room for them: those that were in RAM
//! before, and those that were read since the clock hand last passed their entry. Never takes room that something else
//! needs, and never waits.
//!
//! A restart leaves values where they are on flash. Their entries record which of them were used. These are read before
//! a client needs them, one stripe after the other; the workers share the stripes.

use super::Lane;
use crate::keyspace::ColdRead;
use crate::log::page::{Page, Record};
use crate::log::read::ReadError;
use crate::mem::hash::{KeyHash, STRIPES, first_slot};
use crate::mem::tier::LARGE_BYTES;
use crate::store::Store;
use crate::stripe::UPKEEP_TIMEOUT;
use std::sync::atomic::Ordering::Relaxed;

/// A lane begins no further reads while this many operations are in flight.
const READS_MAX: usize = 32;
/// Maximum number of leaves that a slice visits, and the minimum time between two slices.
const LEAVES_MAX: usize = 64;
pub(super) const WARM_EVERY_MS: u64 = 2;
/// A warming leaves one part in this many of the room free that objects have before values leave RAM.
const ROOM_LEFT_PART: usize = 32;

/// Where a lane continues. Leaves are visited in the order of their hashes.
#[derive(Clone, Copy)]
pub(crate) struct Warm {
    stripe: usize,
    table_id: u32,
    high: u64,
}

impl Store {
    /// Begins the warming: see `lane/warm`.
    pub fn warm(&self) {
        if self.has_flash() {
            self.warm_next.store(0, Relaxed);
        }
    }

    /// Whether RAM has room for values that no command needs yet.
    fn has_room_to_warm(&self) -> bool {
        let (tier, arena) = (&self.tier, &self.arena);
        let soft = tier.soft();
        !self.is_force_demote() && tier.excess(arena) == 0 && arena.used_bytes() < soft - soft / ROOM_LEFT_PART
    }
}

impl Lane {
    /// One step. True: there is more to do.
    pub(crate) fn warm_slice(&mut self) -> bool {
        if self.warm.is_none() && self.store.warm_next.load(Relaxed) >= STRIPES {
            return false;
        }
        if self.now_ms < self.warm_due_ms {
            return true;
        }
        self.warm_due_ms = self.now_ms + WARM_EVERY_MS;
        if !self.store.has_room_to_warm() {
            // RAM is full enough. From now on only the values that commands use come to RAM.
            self.store.warm_next.store(STRIPES, Relaxed);
            self.warm = None;
            return false;
        }
        let (store, mut timeout) = (self.store.clone(), UPKEEP_TIMEOUT);
        for _ in 0..LEAVES_MAX {
            if self.in_flight() >= READS_MAX {
                break;
            }
            let next = || Some(store.warm_next.fetch_add(1, Relaxed)).filter(|&stripe| stripe < STRIPES);
            let Some(at) = self.warm.or_else(|| next().map(|stripe| Warm { stripe, table_id: 0, high: 0 })) else {
                return false;
            };
            // A script may hold the stripe.
            let Some(mut stripe) = store.stripe_or_skip(at.stripe, &mut timeout) else {
                self.warm = Some(at);
                break;
            };
            if at.table_id >= stripe.table_ids() {
                self.warm = None;
                continue;
            }
            let (entries, _, next) = stripe.database_mut(at.table_id).table.leaf_at_mut(at.high);
            let slot = first_slot(at.stripe);
            let used = entries.iter().filter(|entry| {
                let word = entry.word();
                entry.high() >= at.high && !word.is_hot() && word.is_referenced()
            });
            let reads: Vec<ColdRead> = used
                .map(|entry| {
                    let hash = KeyHash { high: entry.high(), low: entry.word().0, slot };
                    ColdRead::new(&store, hash, at.table_id, entry.word(), None).warming()
                })
                .collect();
            drop(stripe);
            self.warm = Some(match next {
                Some(high) => Warm { high, ..at },
                None => Warm { table_id: at.table_id + 1, high: 0, ..at },
            });
            // No command waits for these reads.
            reads.into_iter().for_each(|read| drop(self.read(read)));
        }
        true
    }

    /// Finds the record of a read for warming. `None`: RAM has no room for it any more.
    pub(super) fn find_to_warm<'s, 'b: 's>(
        store: &Store,
        page: &Page<'b>,
        cold: &ColdRead,
        scratch: &'s mut crate::log::page::Scratch,
    ) -> Result<Option<Record<'s>>, ReadError> {
        let (record, _) = crate::keyspace::direct::find(store, page, cold, scratch)?;
        Ok(Some(record).filter(|record| record.value.len() <= LARGE_BYTES && store.has_room_to_warm()))
    }
}
