//! Owns the scrubber: it reads all segments once in an interval and checks every page, so that damage is found before a
//! client reads it. If a value on a damaged page is in RAM too, it is written again later; otherwise its key is counted
//! as lost. Never decides which segment is due.

use super::{Flight, Lane};
use crate::counters::Counter;
use crate::log::page::scan;
use crate::log::segment::Unit;
use crate::log::segment::rot::Lost;
use crate::mem::hash::STRIPES;
use crate::mem::word::PageAddress;
use crate::store::{Store, clean_place};
use crate::stripe::UPKEEP_TIMEOUT;
use flash::io::{Done, Op, OpKind, PAGE_BYTES, PageBuf};

/// A lane reads at most one piece of 256 KiB in this time: 26 MB/s.
const SCRUB_EVERY_MS: u64 = 10;
/// How often a lane looks for a segment that is due.
const LOOK_EVERY_MS: u64 = 100;
/// The search for the keys of damaged pages visits at most this many leaves in a slice.
const SEARCH_LEAVES_MAX: usize = 128;
/// How often reading a piece is tried, because the transfer may have been at fault.
const TRIES: u32 = 3;

/// A segment that is being read. One operation is in flight at a time.
pub(crate) struct Scrub {
    segment: u32,
    /// The pieces that are left. The last one is being read.
    units: Vec<Unit>,
    reads: bool,
    tries: u32,
    /// The damaged pages, in ascending order.
    rotten: Vec<u32>,
    search: Search,
}

/// The position of the search for keys, and what it has found.
#[derive(Default)]
struct Search {
    stripe: usize,
    table_id: u32,
    high: u64,
    lost: u64,
    rescued: u64,
    /// How many of the lost keys were not known before.
    news: u64,
}

impl Store {
    /// Sets the time in which every page on flash is read and checked once. 0: no page is.
    pub fn set_scrub_interval(&self, ms: u64) {
        self.segments.set_scrub_interval(ms);
    }

    /// Number of values in RAM whose copies on flash were found damaged. An earlier checkpoint still names these
    /// copies.
    pub fn rescued_values(&self) -> u64 {
        self.counters.sum(Counter::RescuedValues)
    }
}

impl Lane {
    /// One step of the scrubber.
    pub(crate) fn scrub_slice(&mut self) {
        if self.now_ms < self.scrub_due_ms || self.scrub.as_ref().is_some_and(|scrub| scrub.reads) {
            return;
        }
        let Some(mut scrub) = self.scrub.take() else {
            self.scrub_due_ms = self.now_ms + LOOK_EVERY_MS;
            let Some(segment) = self.store.segments.next_to_scrub(self.now_ms) else { return };
            let units = self.store.segments.scrub_units(segment);
            self.scrub =
                Some(Scrub { segment, units, reads: false, tries: 0, rotten: Vec::new(), search: Search::default() });
            self.scrub_due_ms = self.now_ms;
            return;
        };
        self.scrub_due_ms = self.now_ms + SCRUB_EVERY_MS;
        if let Some(&unit) = scrub.units.last() {
            let (path, offset) = self.store.segments.location(self.store.segments.page(unit, 0));
            let buf = PageBuf::new(unit.pages as usize);
            self.store.counters.add(Counter::ScrubbedBytes, buf.len() as u64);
            let token = self.token(Flight::Scrub { unit });
            self.push(Op { token: token as u64, path, offset, kind: OpKind::Read(buf) });
            scrub.reads = true;
            self.scrub = Some(scrub);
            return;
        }
        if scrub.rotten.is_empty() {
            self.store.segments.scrubbed(scrub.segment, false);
        } else if scrub.search.step(&self.store, &scrub.rotten) {
            self.report_rot(&scrub);
            self.store.segments.scrubbed(scrub.segment, true);
        } else {
            self.scrub_due_ms = self.now_ms;
            self.scrub = Some(scrub);
        }
    }

    pub(crate) fn scrub_read_done(&mut self, unit: Unit, done: Done) {
        let segments = &self.store.segments;
        let scrub = self.scrub.as_mut().expect("a segment is being read");
        scrub.reads = false;
        scrub.tries += 1;
        let first = segments.page(unit, 0);
        let buf = done.buf.expect("a read brings its buffer back");
        let rotten: Vec<u32> = match &done.result {
            Ok(()) => {
                scan(&buf, segments.stamp(first)).filter_map(|(at, page)| page.is_err().then_some(first + at)).collect()
            }
            Err(_) => (first..first + unit.pages).collect(),
        };
        if !rotten.is_empty() && scrub.tries < TRIES {
            return;
        }
        if let (Err(error), [page, ..]) = (&done.result, rotten.as_slice()) {
            let (path, offset) = segments.location(*page);
            self.store.counters.add(Counter::ReadErrors, 1);
            tracing::error!(
                path,
                offset,
                bytes = unit.pages as usize * PAGE_BYTES,
                "the scrubber cannot read: {error}"
            );
        }
        scrub.tries = 0;
        scrub.units.pop();
        scrub.rotten.extend(rotten);
        // The pieces are read from the last to the first.
        scrub.rotten.sort_unstable();
    }

    fn report_rot(&self, scrub: &Scrub) {
        let (counters, segments) = (&self.store.counters, &self.store.segments);
        let Search { lost, rescued, news, .. } = scrub.search;
        self.store.found_rot(scrub.rotten.iter().copied());
        counters.add(Counter::RottenKeys, news);
        counters.add(Counter::RescuedValues, rescued);
        // One line for each stretch of pages.
        for stretch in scrub.rotten.chunk_by(|a, b| a + 1 == *b) {
            let (path, offset) = segments.location(stretch[0]);
            tracing::error!(path, offset, bytes = stretch.len() * PAGE_BYTES, "the scrubber has found damage on flash");
        }
        tracing::error!(
            segment = scrub.segment,
            "the damage affects at most {lost} keys, which answer with an error until they are set again; {rescued} other values are in RAM \
             and will be written again"
        );
    }
}

impl Search {
    /// Looks at some of the keys. True: all keys are done. Meanwhile no record of the segment moves, and no record is
    /// added to it.
    fn step(&mut self, store: &Store, rotten: &[u32]) -> bool {
        let is_rotten = |place: PageAddress| {
            let end = place.page + store.segments.read_pages(place);
            rotten[rotten.partition_point(|&page| page < place.page)..].first().is_some_and(|&page| page < end)
        };
        let mut timeout = UPKEEP_TIMEOUT;
        for _ in 0..SEARCH_LEAVES_MAX {
            if self.stripe == STRIPES {
                return true;
            }
            // A script holds the stripe, so try it again in the next slice.
            let Some(mut stripe) = store.stripe_or_skip(self.stripe, &mut timeout) else { return false };
            if self.table_id >= stripe.table_ids() {
                *self = Search { stripe: self.stripe + 1, table_id: 0, high: 0, ..*self };
                continue;
            }
            let (entries, _, next) = stripe.database_mut(self.table_id).table.leaf_at_mut(self.high);
            for entry in entries.iter_mut().filter(|entry| entry.high() >= self.high) {
                let word = entry.word();
                if !word.is_hot() {
                    if is_rotten(word.place()) {
                        self.lost += 1;
                        let key = Lost::key(word.place().page, self.table_id, entry.high());
                        self.news += u64::from(store.segments.rot.add_key(key));
                    }
                } else if !word.is_dirty() {
                    let place = clean_place(entry.hot());
                    if is_rotten(place) {
                        store.segments.died(place);
                        entry.set_dirty(true);
                        self.rescued += 1;
                    }
                } else if let Some(value) = entry.hot().boxed()
                    && let Some(id) = value.shelf_id()
                {
                    let kept = value.forget_copies(&mut |place| is_rotten(crate::log::parts::place_of_number(place)));
                    self.rescued += kept.in_memory;
                    if kept.absent > 0 {
                        self.lost += 1;
                        self.news += u64::from(store.segments.rot.add_key(Lost::collection(id)));
                    }
                }
            }
            match next {
                Some(high) => self.high = high,
                None => (self.table_id, self.high) = (self.table_id + 1, 0),
            }
        }
        false
    }
}
