//! Owns the force-demote mode, for testing: after each command, the values that the command touched are written to flash, and the
//! worker waits until the writes are complete. Never waits under a lock.
//!
//! Only the touched stripes are recorded. No other value of such a stripe is in RAM, so a sweep over the stripe finds all values
//! that the command has read or written, even those it did not name. The normal expiry sweep sees only values in RAM, so this
//! mode remembers the keys that expire soon and looks them up in time.

use super::Lane;
use super::clock_hand::{Victim, Writer, sweep_parts};
use crate::counters::Counter;
use crate::keyspace::guards::Reach;
use crate::keyspace::{Keyspace, Resume};
use crate::log::fill::Verdict;
use crate::log::segment::SegmentStream;
use crate::mem::hash::STRIPES;
use crate::mem::index::OwnedWord;
use crate::mem::object::ObjectRef;
use crate::mem::tier::Full;
use crate::mem::word::Word;
use crate::store::Store;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The step of a worker's wait for another worker's collection to free a segment.
const ROOM_STEP: Duration = Duration::from_micros(100);
const ROOM_STEPS_MAX: u32 = 5_000;
/// Keys that expire later than this are not remembered. Their expiry is noticed at their next use.
const SOON_MS: u64 = 60_000;

/// A key that expires, or has parts that expire.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Due {
    at_ms: u64,
    table_id: u32,
    name: Box<[u8]>,
}

impl Store {
    /// Switches the mode on or off. It takes effect after the running command. Requires flash.
    pub fn set_force_demote(&self, on: bool) {
        assert!(!on || self.has_flash());
        self.force_demote_all.store(on, Relaxed);
        self.tier.force_demote.store(on, Relaxed);
    }

    #[inline]
    pub(crate) fn is_force_demote(&self) -> bool {
        self.tier.force_demote.load(Relaxed)
    }

    /// Returns every stripe once after the mode was switched on, otherwise none.
    pub(crate) fn all_to_chill(&self) -> std::ops::Range<usize> {
        if self.force_demote_all.swap(false, Relaxed) { 0..STRIPES } else { 0..0 }
    }
}

impl Lane {
    /// Writes all values of these stripes to flash and waits for the writes. Values stay in RAM if they are too large or flash is
    /// full.
    #[cold]
    pub fn force_demote(&mut self, now_ms: u64, stripes: &mut Vec<usize>) {
        self.now_ms = now_ms;
        stripes.sort_unstable();
        stripes.dedup();
        let mut steps_left = ROOM_STEPS_MAX;
        for stripe in stripes.drain(..) {
            let mut is_again = false;
            while !self.force_demote_stripe(stripe, is_again) {
                if !self.make_way(&mut steps_left) {
                    return;
                }
                is_again = true;
            }
        }
        self.finish_unit(SegmentStream::Fresh);
        while !self.fill[0].is_empty() && self.make_way(&mut steps_left) {}
        // Segments fill with dead records quickly, so collect between the writes.
        self.collect_slice();
        self.submit();
    }

    /// False: there was no room for all values. `is_again`: this is a repeated pass, so the writes in flight were started by it.
    fn force_demote_stripe(&mut self, number: usize, is_again: bool) -> bool {
        let store = self.store.clone();
        let mut stripe = store.stripe(number);
        for table_id in 0..stripe.table_ids() {
            let database = stripe.database_mut(table_id);
            let mut leaf = Some(0).filter(|_| database.hot > 0);
            while let Some(high) = leaf {
                let (entries, wanted, next) = database.table.leaf_at_mut(high);
                let mut dropped = 0;
                let mut has_room = true;
                for (at, entry) in entries.iter_mut().enumerate() {
                    let word = entry.word();
                    let Some(object) = entry.object() else { continue };
                    self.remember(table_id, object);
                    if word.is_dirty() && object.boxed().is_some_and(|value| store.moves_in_parts(value)) {
                        let hash = store.hasher.hash(object.key());
                        let mut object = entry.hot_mut();
                        let value = object.boxed_mut().expect("it was just seen");
                        let id = store.split(value, hash, table_id);
                        let mut from = Some(0);
                        while let (Some(part), true) = (from, has_room) {
                            let swept = sweep_parts(&store, id, value, part, true, self);
                            (from, has_room) = (swept.next, !swept.stopped);
                        }
                        object.account(&store.arena);
                        if !has_room {
                            break;
                        }
                        continue;
                    }
                    if !word.is_dirty() {
                        let cold = Word(object.place().expect("a clean object knows its place"));
                        let hot = entry.replace(OwnedWord::cold(cold));
                        dropped += 1;
                        store.free(hot.into_object().expect("the entry was hot"));
                        continue;
                    }
                    if is_again && object.is_writing() {
                        continue;
                    }
                    // Another worker's write may wait until its unit is full, so start an own write in its place.
                    let hash = store.hasher.hash(object.key());
                    entry.set_frequency(0);
                    match self.value(Victim {
                        hash,
                        table_id,
                        object: entry.hot_mut(),
                        has_expiry: word.has_expiry(),
                        leaves: true,
                        is_wanted: wanted >> at & 1 == 1,
                    }) {
                        Verdict::Taken | Verdict::Keep => {}
                        Verdict::Stop => {
                            has_room = false;
                            break;
                        }
                    }
                }
                database.hot -= dropped;
                store.cold.fetch_add(dropped as u64, Relaxed);
                store.counters.add(Counter::DemotionsClean, dropped as u64);
                if !has_room {
                    return false;
                }
                leaf = next.filter(|_| database.hot > 0);
            }
        }
        true
    }

    fn remember(&mut self, table_id: u32, object: ObjectRef<'_>) {
        if let Some(at_ms) = object.expiry().into_iter().chain(object.next_deadline()).min()
            && at_ms < self.now_ms + SOON_MS
        {
            self.due.insert(Due { at_ms, table_id, name: object.key().into() });
        }
    }

    /// Looks up the keys whose time is due, which removes them and notifies the listeners.
    pub(crate) fn expire_due(&mut self) {
        if !self.store.expires_actively(self.now_ms) {
            return;
        }
        let (store, now_ms) = (self.store.clone(), self.now_ms);
        let mut resume = Resume::default();
        while let Some(due) = self.due.pop_first() {
            if due.at_ms > now_ms {
                self.due.insert(due);
                break;
            }
            // The table id may belong to another logical database by now. Then the look-up is for another key, which
            // does no harm.
            if let Some(db) = (0..store.databases()).find(|&db| store.table_id(db) == due.table_id) {
                let key = store.hasher.key(&due.name);
                if let Some(held) = store.hold(&[key], Reach::Owned) {
                    Keyspace::new(held, db, now_ms, false, &mut resume).notice(&key);
                }
                resume.clear();
            }
        }
        self.force_demote(now_ms, &mut resume.touched);
    }

    /// Waits for an operation to complete, which may free a segment. False: flash is full.
    fn make_way(&mut self, steps_left: &mut u32) -> bool {
        self.retry_unit(SegmentStream::Fresh);
        let goes_on = self.collect_slice();
        self.submit();
        if self.in_flight() > 0 {
            if let Some(driver) = &mut self.driver {
                driver.wait();
            }
            self.complete(self.now_ms);
            return true;
        }
        if goes_on || !self.fill[0].blocked() {
            return true;
        }
        // Another worker or a checkpoint may free a segment soon.
        if self.store.tier.full() == Full::Flash || *steps_left == 0 {
            return false;
        }
        *steps_left -= 1;
        std::thread::sleep(ROOM_STEP);
        true
    }
}
