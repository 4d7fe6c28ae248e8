//! Owns the change of the log's size: which segments come in, which leave, and what those that leave still hold.
//! Never moves a record: `collect` does.
//!
//! ```text
//! 0 ─────────────────── end ─────────────────── count
//!   data goes here          is being moved out,
//!                           then count becomes end
//! ```

use super::{Heads, RESERVE, Segment, Segments, State};
use crate::mem::word::PAGE_BITS;
use std::sync::atomic::Ordering::Relaxed;

/// Of the segments that are left when the collector has its own, so much may be live: see `collect::FULLEST`.
const FILL_MAX: f64 = 0.92;
/// The streams' open segments.
const HEADS: u32 = 2;
/// Segments of the smallest log that can collect its own garbage.
pub const SEGMENTS_MIN: u32 = 16;
/// Segments that a log may grow to: a choice among them takes some milliseconds.
const SEGMENTS_MAX: u32 = 1 << 18;
/// How often a segment that leaves is read before what cannot be read of it is given up.
const TRIES_MAX: u8 = 3;

impl Segment {
    /// Pages that its live records will take elsewhere, if they leave as much unused there as here.
    fn charge(&self, segment_pages: u32) -> f64 {
        let used = f64::from(self.used_pages.load(Relaxed));
        if self.writers.load(Relaxed) > 0 {
            // What is being written is not counted yet.
            return used;
        }
        match self.state() {
            State::Open => self.live_pages_estimate(),
            _ if used == 0.0 => 0.0,
            _ => (self.live_pages_estimate() / used).min(1.0) * f64::from(segment_pages),
        }
    }
}

impl Segments {
    /// Segments whose number is below take data.
    pub fn end(&self) -> u32 {
        self.end.load(Relaxed)
    }

    /// There is no room for what must be moved, and nothing to make it of: said once for each size.
    pub fn tell_stalled(&self) {
        if !self.said_stalled.swap(true, Relaxed) {
            tracing::warn!(
                "flash cannot become smaller for now: what must be moved finds no room, and nothing can be evicted; delete \
                 values, or make the limit larger again"
            );
        }
    }

    /// Another size is about to be set: whether that can be had is not known yet.
    pub(crate) fn shrinks_again(&self) {
        self.said_stalled.store(false, Relaxed);
    }

    pub fn shrinks(&self) -> bool {
        self.end() < self.count()
    }

    /// Segments vacated, of how many that leave.
    pub fn vacated(&self) -> Option<(u32, u32)> {
        let total = self.count().saturating_sub(self.end());
        (total > 0).then(|| (total.saturating_sub(self.leaving.load(Relaxed)), total))
    }

    /// The most segments the log may have.
    pub fn count_max(&self) -> u32 {
        let addressable = (1u32 << PAGE_BITS) / self.segment_pages;
        SEGMENTS_MAX.max(self.count()).min(addressable)
    }

    /// Segments that what is live needs, with the collector's.
    pub fn count_needed(&self) -> u32 {
        let pages: f64 = self.all().map(|segment| segment.charge(self.segment_pages)).sum();
        let segments = pages / (f64::from(self.segment_pages) * FILL_MAX);
        RESERVE + HEADS + segments.ceil() as u32
    }

    /// Looks whether what is live, and must all be kept, leaves room for more data when the log has shrunk.
    pub fn weigh(&self, keeps: bool) {
        self.is_taken.store(keeps && self.shrinks() && self.count_needed() > self.end(), Relaxed);
    }

    /// From now on data goes to the segments below `end` only. Those that are there and not below are emptied first; the
    /// log has `end` segments when they are.
    pub fn set_end(&self, end: u32) {
        let mut heads = self.heads.lock();
        self.segments.reach(end, Segment::new);
        let before = self.end.swap(end, Relaxed);
        self.count.fetch_max(end, Relaxed);
        for number in before..end {
            // Others are of a shrinking that is taken back: they stay what they are.
            if self.get(number).state() == State::Outside {
                self.admit(number, &mut heads);
            }
        }
        let lent = std::mem::take(&mut heads.lent);
        heads.free.extend(lent);
        let (inside, mut outside): (Vec<_>, Vec<_>) = heads.free.drain(..).partition(|&number| number < end);
        // The collector needs some to begin with, wherever they lie.
        outside.truncate((self.reserve() as usize + 1).saturating_sub(inside.len()));
        heads.free.extend(inside);
        heads.lent = outside;
        self.free.store(heads.free.len() as u32, Relaxed);
        self.close_heads(&mut heads);
        let mut leaving = 0;
        for number in end..self.count() {
            let segment = self.get(number);
            if !heads.lent.contains(&number) {
                segment.turn(State::Free, State::Outside);
            }
            leaving += u32::from(segment.state() != State::Outside);
        }
        self.leaving.store(leaving, Relaxed);
        self.finish_if_vacated();
    }

    /// A segment outside comes in: free, if nothing says otherwise.
    pub(super) fn admit(&self, number: u32, heads: &mut Heads) {
        let segment = self.get(number);
        if segment.bad.load(Relaxed) || !segment.is_dead() || segment.readers.load(Relaxed) > 0 {
            segment.turn(State::Outside, State::Retired);
            return;
        }
        segment.turn(State::Outside, State::Free);
        heads.free.push_back(number);
        self.free.store(heads.free.len() as u32, Relaxed);
    }

    /// The collector has made room before the end: it needs none behind it.
    pub(super) fn return_lent(&self, heads: &mut Heads) {
        self.close_heads(heads);
        for number in std::mem::take(&mut heads.lent) {
            self.get(number).turn(State::Free, State::Outside);
            self.left();
        }
    }

    /// Nothing is added to segments that leave.
    fn close_heads(&self, heads: &mut Heads) {
        for open in &mut heads.open {
            if let Some((segment, _)) = open.take_if(|(segment, _)| *segment >= self.end()) {
                self.seal(segment);
            }
        }
    }

    /// There is nothing to collect: the collector needs no room behind the end.
    pub fn nothing_to_collect(&self) {
        if self.shrinks() {
            self.return_lent(&mut self.heads.lock());
        }
    }

    /// A segment that leaves is outside. Call with the heads locked.
    pub(super) fn left(&self) {
        self.leaving.fetch_sub(1, Relaxed);
        self.finish_if_vacated();
    }

    fn finish_if_vacated(&self) {
        if self.leaving.load(Relaxed) == 0 {
            let end = self.end();
            // A place that comes back will be another one.
            (end..self.count()).for_each(|number| self.get(number).bad.store(false, Relaxed));
            self.count.store(end, Relaxed);
            self.is_taken.store(false, Relaxed);
        }
    }

    /// A segment that leaves and that nobody empties yet.
    pub fn next_leaving(&self) -> Option<u32> {
        (self.end()..self.count()).find(|&number| {
            let segment = self.get(number);
            matches!(segment.state(), State::Sealed | State::Retired) && segment.writers.load(Relaxed) == 0
        })
    }

    /// Whether what a segment that leaves holds can be moved without taking what the collector needs to make room.
    pub fn has_room_for(&self, leaving: u32) -> bool {
        self.get(leaving).is_dead() || self.free_count() > self.reserve() + self.vacating.load(Relaxed)
    }

    /// Takes a segment that leaves into the caller's hands, until [`Segments::vacating_ends`].
    pub fn begin_vacating(&self, number: u32) -> bool {
        let segment = self.get(number);
        let taken = [State::Sealed, State::Retired].into_iter().any(|state| segment.turn(state, State::Collecting));
        self.vacating.fetch_add(u32::from(taken), Relaxed);
        taken
    }

    pub fn vacating_ends(&self) {
        self.vacating.fetch_sub(1, Relaxed);
    }

    /// A segment in the caller's hands could not be read, or not all of it. It stays as it is, for its records' keys to
    /// answer with an error. One that leaves is tried again, and given up at last.
    pub fn damaged(&self, number: u32) {
        let segment = self.get(number);
        let tries = segment.tries.fetch_add(1, Relaxed) + 1;
        segment.bad.store(true, Relaxed);
        let _heads = self.heads.lock();
        if number >= self.end() && tries >= TRIES_MAX {
            tracing::error!(segment = number, "records that cannot be read are cut off with the end of the log");
            segment.turn(State::Collecting, State::Outside);
            self.left();
        } else {
            segment.turn(State::Collecting, State::Retired);
        }
    }
}
