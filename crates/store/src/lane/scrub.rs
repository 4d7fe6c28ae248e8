//! Owns the scrubber: it reads all segments once in an interval and checks every page, so that damage is found before a
//! client reads it. If a value on a damaged page is in RAM too, it is written again later; otherwise its key is counted
//! as lost. Never decides which segment is due.

use super::damage::{Losses, Search};
use super::{Flight, Lane};
use crate::counters::Counter;
use crate::log::page::scan;
use crate::log::segment::Unit;
use crate::mem::word::PageAddress;
use crate::store::Store;
use flash::io::{Done, Op, OpKind, PAGE_BYTES, PageBuf};

/// A lane reads at most one piece of 256 KiB in this time: 26 MB/s.
const SCRUB_EVERY_MS: u64 = 10;
/// How often a lane looks for a segment that is due.
const LOOK_EVERY_MS: u64 = 100;
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
        } else if scrub.searches(&self.store) {
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
        let segments = &self.store.segments;
        let (lost, rescued) = (scrub.search.lost, scrub.search.rescued);
        self.store.found_rot(scrub.rotten.iter().copied());
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

impl Scrub {
    /// Looks at some of the keys for the damaged pages. True: all keys are done.
    fn searches(&mut self, store: &Store) -> bool {
        let rotten = &self.rotten;
        let is_rotten = |place: PageAddress| {
            let end = place.page + store.segments.read_pages(place);
            rotten[rotten.partition_point(|&page| page < place.page)..].first().is_some_and(|&page| page < end)
        };
        self.search.step(store, &is_rotten, Losses::Stay)
    }
}
