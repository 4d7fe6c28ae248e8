//! Owns the all-cold mode, for testing: what a command has touched is sent to flash as soon as the command has run, and the
//! worker waits until it is there. Never waits under a lock.
//!
//! What was touched is noted by stripes: nothing else in a stripe is in RAM, so a sweep over it finds what the command has
//! read and written, also what it did not name. The sweep for keys that have expired looks at values in RAM: keys that will
//! soon are remembered, and looked at in time.

use super::Lane;
use super::hand::{Victim, Writer, sweep_parts};
use crate::counters::Counter;
use crate::keyspace::Resume;
use crate::log::fill::Verdict;
use crate::log::segment::Stream;
use crate::mem::hash::STRIPES;
use crate::mem::index::OwnedWord;
use crate::mem::object::ObjectRef;
use crate::mem::word::Word;
use crate::store::Store;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// How long, in steps, a worker waits for another one's collection to free a segment.
const ROOM_STEP: Duration = Duration::from_micros(100);
const ROOM_STEPS_MAX: u32 = 5_000;
/// Keys that expire later are not remembered: they are noticed when they are asked for.
const SOON_MS: u64 = 60_000;

/// A key of which something expires.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Due {
    at_ms: u64,
    uid: u32,
    name: Box<[u8]>,
}

impl Store {
    /// From the end of the command under way on, nothing stays in RAM; or all is as usual again. Only where there is
    /// flash.
    pub fn set_all_cold(&self, on: bool) {
        assert!(!on || self.has_flash());
        self.chill_all.store(on, Relaxed);
        self.tier.all_cold.store(on, Relaxed);
    }

    #[inline]
    pub(crate) fn is_all_cold(&self) -> bool {
        self.tier.all_cold.load(Relaxed)
    }

    /// Every stripe, once after the mode was switched on.
    pub(crate) fn all_to_chill(&self) -> std::ops::Range<usize> {
        if self.chill_all.swap(false, Relaxed) { 0..STRIPES } else { 0..0 }
    }
}

impl Lane {
    /// Sends all values of these stripes to flash, and returns when they are there. Values that flash cannot take, because
    /// they are too large or it is full, stay.
    #[cold]
    pub fn chill(&mut self, now_ms: u64, stripes: &mut Vec<usize>) {
        self.now_ms = now_ms;
        stripes.sort_unstable();
        stripes.dedup();
        let mut patience = ROOM_STEPS_MAX;
        for stripe in stripes.drain(..) {
            let mut is_again = false;
            while !self.chill_stripe(stripe, is_again) {
                if !self.make_way(&mut patience) {
                    return;
                }
                is_again = true;
            }
        }
        self.finish_unit(Stream::Fresh);
        while !self.fill[0].is_empty() && self.make_way(&mut patience) {}
        // A segment fills with dead records soon: collection keeps pace.
        self.collect_slice();
        self.submit();
    }

    /// False: there was no room for all. `is_again`: what is being written is so because of this.
    fn chill_stripe(&mut self, number: usize, is_again: bool) -> bool {
        let store = self.store.clone();
        let mut stripe = store.stripe(number);
        for uid in 0..stripe.uids() {
            let database = stripe.database_mut(uid);
            let mut leaf = Some(0).filter(|_| database.hot > 0);
            while let Some(high) = leaf {
                let (entries, next) = database.table.leaf_at_mut(high);
                let mut dropped = 0;
                let mut has_room = true;
                for entry in entries.iter_mut() {
                    let word = entry.word();
                    let Some(object) = entry.object() else { continue };
                    self.remember(uid, object);
                    if word.is_dirty() && object.boxed().is_some_and(|value| store.moves_in_parts(value)) {
                        let hash = store.hasher.hash(object.key());
                        let mut object = entry.hot_mut();
                        let value = object.boxed_mut().expect("it was just seen");
                        let id = store.split(value, hash, uid);
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
                    // A write that another worker has begun may wait for its unit to fill: this one takes its place.
                    let hash = store.hasher.hash(object.key());
                    entry.set_frequency(0);
                    match self.value(Victim { hash, uid, object: entry.hot_mut(), has_expiry: word.has_expiry() }) {
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

    fn remember(&mut self, uid: u32, object: ObjectRef<'_>) {
        if let Some(at_ms) = object.expiry().into_iter().chain(object.next_deadline()).min()
            && at_ms < self.now_ms + SOON_MS
        {
            self.due.insert(Due { at_ms, uid, name: object.key().into() });
        }
    }

    /// Looks at the keys whose time has come: what has expired goes, and is told of.
    pub(crate) fn expire_due(&mut self) {
        if !self.store.expire_cycle.load(Relaxed) {
            return;
        }
        let (store, now_ms) = (self.store.clone(), self.now_ms);
        let mut resume = Resume::default();
        while let Some(due) = self.due.pop_first() {
            if due.at_ms > now_ms {
                self.due.insert(due);
                break;
            }
            // Its database may have become another one's meanwhile: then another key is looked at, which does no harm.
            if let Some(db) = (0..store.databases()).find(|&db| store.uid(db) == due.uid) {
                let key = store.hasher.key(&due.name);
                store.lock(&[key], db, now_ms, false, &mut resume).notice(&key);
                resume.clear();
            }
        }
        self.chill(now_ms, &mut resume.touched);
    }

    /// Waits for an operation to complete, which may make room for another. False: flash is full.
    fn make_way(&mut self, patience: &mut u32) -> bool {
        self.retry_unit(Stream::Fresh);
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
        // Another worker may be about to free a segment.
        if self.store.tier.collecting.load(Relaxed) == 0 || *patience == 0 {
            return false;
        }
        *patience -= 1;
        std::thread::sleep(ROOM_STEP);
        true
    }
}
