//! Owns a lane's share of a cleaning: it visits stripes, and writes the values that are in RAM only, together with
//! their neighbours in memory. Of values that move in parts it writes the parts. Never removes a value from RAM.

use super::Lane;
use super::clock_hand::{Victim, Writer, copy_parts, visit_near};
use crate::counters::Counter;
use crate::log::fill::Verdict;
use crate::log::segment::{LogSpace, SegmentStream};
use crate::mem::arena::Cells;
use crate::mem::hash::KeyHash;
use crate::mem::index::Entry;
use crate::mem::object::ObjectRef;
use crate::mem::tier::LARGE_BYTES;
use crate::store::Store;
use crate::stripe::UPKEEP_TIMEOUT;

/// Maximum bytes of values that a slice writes, and maximum number of leaves that it visits.
const SLICE_BYTES: usize = 64 << 10;
const SLICE_LEAVES_MAX: usize = 64;

/// Where the lane continues.
#[derive(Clone, Copy, Debug)]
pub(super) struct CleanHand {
    stripe: usize,
    table_id: u32,
    high: u64,
    /// The position inside the value at `high`, if that value moves in parts.
    part: u64,
    /// The leaf's values are written without their neighbours, because the neighbours could not be written.
    alone: bool,
}

enum Copied {
    Taken,
    /// The value is too large for flash.
    Not,
    /// No write can begin now.
    Stopped,
}

/// The share of the log, and of the limit for live data, up to which a cleaning may fill them.
const FILL: f64 = 0.8;
const DATA_FILL: f64 = 0.95;

impl Store {
    /// Begins a cleaning. The lanes continue it until [`Store::is_cleaned`]. It leaves so much room on flash that all
    /// values in RAM could be changed and written once more; if there is no such room, nothing is written.
    #[expect(clippy::cast_possible_truncation, reason = "a cast of a float cuts off the fraction only: it never wraps")]
    pub fn clean(&self) {
        if !self.has_flash() || self.is_force_demote() {
            return;
        }
        let sums = self.segments.sums();
        let usable = f64::from(self.segments.usable(&sums)) * self.segments.segment_bytes() as f64 * FILL;
        let unchanged = usable as i64 - sums.live_bytes as i64 - self.arena.used_bytes() as i64;
        let data = (self.segments.data_max() as f64 * DATA_FILL) as i64 - sums.live_bytes as i64;
        self.cleaning.begin(unchanged.min(data));
    }

    /// Whether no cleaning is running, and all values that one has taken are on flash.
    pub fn is_cleaned(&self) -> bool {
        self.cleaning.is_done()
    }

    /// Ends a cleaning early. Values that have a copy already keep it.
    pub fn stop_cleaning(&self) {
        self.cleaning.stop();
    }
}

impl Lane {
    /// Whether a cleaning is running in this lane.
    pub(super) fn cleans(&self) -> bool {
        self.clean.is_some()
    }

    /// Runs one slice of a cleaning. Returns whether there is more to do at once.
    pub(super) fn clean_slice(&mut self) -> bool {
        let store = self.store.clone();
        let mut left = SLICE_BYTES;
        for _ in 0..SLICE_LEAVES_MAX {
            let Some(hand) = self.clean.or_else(|| self.begin_stripe()) else { return false };
            // Copies must not take room that new data waits for. The remaining values of the stripe get no copy.
            let goes_on =
                store.cleaning.has_room() && store.segments.room() == LogSpace::Plenty && !store.is_force_demote();
            let stopped = match goes_on {
                true => self.clean_leaf(&store, hand, &mut left),
                false => {
                    self.end_stripe();
                    false
                }
            };
            if stopped {
                // The cleaning continues when a write completes.
                return false;
            }
            if left == 0 {
                return true;
            }
        }
        true
    }

    fn begin_stripe(&mut self) -> Option<CleanHand> {
        let stripe = self.store.cleaning.next_stripe();
        self.clean = stripe.map(|stripe| CleanHand { stripe, table_id: 0, high: 0, part: 0, alone: false });
        self.clean
    }

    fn end_stripe(&mut self) {
        if self.begin_stripe().is_none() {
            // No other value may come to fill the unit, so write it now.
            self.finish_unit(SegmentStream::Fresh);
        }
        self.store.cleaning.stripe_done();
    }

    /// Writes values of one leaf, or the neighbours of one of them. Returns whether no write can begin now.
    fn clean_leaf(&mut self, store: &Store, mut hand: CleanHand, left: &mut usize) -> bool {
        let mut timeout = UPKEEP_TIMEOUT;
        // If a script holds the stripe, its values get no copy.
        let stripe =
            store.stripe_or_skip(hand.stripe, &mut timeout).filter(|stripe| hand.table_id < stripe.table_ids());
        let Some(mut stripe) = stripe else {
            self.end_stripe();
            return false;
        };
        let (entries, wanted, next) = stripe.database_mut(hand.table_id).table.leaf_at_mut(hand.high);
        store.counters.add(Counter::SweptEntries, entries.len() as u64);
        let mut near = std::mem::take(&mut self.near);
        near.clear();
        let from = hand.high;
        let unwritten = |(_, entry): &(usize, &mut Entry)| entry.high() >= from && is_unwritten(store, entry);
        for (at, entry) in entries.iter_mut().enumerate().filter(unwritten) {
            if moves_in_parts(store, entry) {
                let high = entry.high();
                let part = if high == from { hand.part } else { 0 };
                let (next, stopped) = self.copy_parts(store, entry, hand.table_id, part, left);
                if let Some(part) = next {
                    // Continue later, so that other threads can lock the stripe and the slice can end.
                    self.clean = Some(CleanHand { high, part, alone: false, ..hand });
                    self.near = near;
                    return stopped;
                }
                // The leaf's entries are sorted, so all up to this one are done.
                (hand.high, hand.part) = (high.saturating_add(1), 0);
                continue;
            }
            if !hand.alone {
                entry.hot().neighbours(&store.arena, &mut near);
            }
            if !near.is_empty() {
                break;
            }
            let hash = store.hasher.hash(entry.hot().key());
            if matches!(self.copy(entry, hash, hand.table_id, wanted >> at & 1 == 1, left), Copied::Stopped) {
                self.near = near;
                return true;
            }
        }
        drop(stripe);
        let mut stopped = false;
        self.clean = Some(match (near.is_empty(), next) {
            (true, Some(high)) => CleanHand { high, part: 0, alone: false, ..hand },
            (true, None) => CleanHand { table_id: hand.table_id + 1, high: 0, part: 0, alone: false, ..hand },
            (false, _) => {
                let (taken, is_stopped) = self.clean_near(store, &near, left);
                stopped = is_stopped;
                CleanHand { alone: taken == 0 && !stopped, ..hand }
            }
        });
        self.near = near;
        stopped
    }

    /// Writes objects that lie together in memory, and often belong together. Returns how many, and whether no more writes can begin now.
    fn clean_near(&mut self, store: &Store, near: &Cells, left: &mut usize) -> (usize, bool) {
        let (mut taken, mut stopped) = (0, false);
        // Most neighbours have a copy. Looking up their entries would take longer than everything else, so skip them
        // before.
        let may_be_unwritten = |object: ObjectRef<'_>| !object.knows_place();
        visit_near(store, near, may_be_unwritten, |database, slot, hash, table_id| {
            let is_wanted = database.table.wants(slot);
            let entry = database.table.entry_mut(slot);
            if !is_unwritten(store, entry) || moves_in_parts(store, entry) {
                return true;
            }
            match self.copy(entry, hash, table_id, is_wanted, left) {
                Copied::Taken => taken += 1,
                Copied::Not => {}
                Copied::Stopped => stopped = true,
            }
            !stopped && *left > 0
        });
        (taken, stopped)
    }

    /// Writes parts of a value, from number `part` on. Returns where to continue, and whether no write can begin now.
    fn copy_parts(
        &mut self,
        store: &Store,
        entry: &mut Entry,
        table_id: u32,
        part: u64,
        left: &mut usize,
    ) -> (Option<u64>, bool) {
        let mut object = entry.hot_mut();
        let hash = store.hasher.hash(object.view().key());
        let value = object.boxed_mut().expect("it moves in parts");
        let id = store.split(value, hash, table_id);
        let (swept, taken) = copy_parts(id, value, part, self);
        object.account(&store.arena);
        *left = left.saturating_sub(taken);
        (swept.next, swept.stopped)
    }

    fn copy(&mut self, entry: &mut Entry, hash: KeyHash, table_id: u32, is_wanted: bool, left: &mut usize) -> Copied {
        let (has_expiry, object) = (entry.word().has_expiry(), entry.hot_mut());
        let bytes = object.view().ram_bytes();
        match self.value(Victim { hash, table_id, object, has_expiry, leaves: false, is_wanted }) {
            Verdict::Taken => {
                *left = left.saturating_sub(bytes);
                Copied::Taken
            }
            Verdict::Keep => Copied::Not,
            Verdict::Stop => Copied::Stopped,
        }
    }
}

/// Whether a value is in RAM only, so that a cleaning writes it. For a value in parts: whether some of its parts may
/// be.
fn is_unwritten(store: &Store, entry: &Entry) -> bool {
    let Some(object) = entry.object() else { return false };
    let is_small = || object.ram_bytes() <= LARGE_BYTES;
    entry.word().is_dirty() && !object.is_writing() && (moves_in_parts(store, entry) || is_small())
}

fn moves_in_parts(store: &Store, entry: &Entry) -> bool {
    entry.object().and_then(|object| object.boxed()).is_some_and(|value| store.moves_in_parts(value))
}
