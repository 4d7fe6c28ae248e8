//! Owns the change of the log's size: which segments are added, which leave, and how much the leaving segments still contain.
//! Never moves a record: `collect` does.
//!
//! ```text
//! 0 ─────────────────── end ─────────────────── count
//!   data goes here          is being moved out,
//!                           then count becomes end
//! ```

use super::{FULLEST, Heads, RESERVE, Segment, SegmentState, Segments, Sums, number_of};
use crate::mem::word::PAGE_BITS;
use std::sync::atomic::Ordering::Relaxed;

/// Number of open segments, one for each stream.
const HEADS: u32 = 2;
/// Number of segments of the smallest log that can collect its own garbage.
pub const SEGMENTS_MIN: u32 = 16;
/// Maximum number of segments. With so many, choosing a victim takes some milliseconds.
const SEGMENTS_MAX: u32 = 1 << 18;
/// Number of readings of a leaving segment before its damaged records are given up.
const TRIES_MAX: u8 = 3;
/// The pause before the second reading. Each later one is twice as long, up to an hour: a device may fail for a while.
const TRY_AGAIN_MS: u64 = 10_000;
const TRY_AGAIN_MS_MAX: u64 = 3_600_000;

impl Segments {
    /// Segments with a number below this take data.
    pub fn end(&self) -> u32 {
        self.end.load(Relaxed)
    }

    /// Logs that shrinking cannot continue, because there is no room for the records that must move. Logged once for each size.
    pub fn report_stalled(&self) {
        if !self.said_stalled.swap(true, Relaxed) {
            tracing::warn!(
                "flash cannot be made smaller now: there is no room for the values that must move, and nothing can be evicted; delete values, or raise the limit again"
            );
        }
    }

    /// Called before another size is set: allows the message about stalled shrinking again.
    pub(crate) fn shrinks_again(&self) {
        self.said_stalled.store(false, Relaxed);
    }

    pub fn shrinks(&self) -> bool {
        self.end() < self.count()
    }

    /// Number of leaving segments that are already empty, and of all leaving segments.
    pub fn vacated(&self) -> Option<(u32, u32)> {
        let total = self.count().saturating_sub(self.end());
        (total > 0).then(|| (total.saturating_sub(self.leaving.load(Relaxed)), total))
    }

    /// Maximum number of segments that the log may have.
    pub fn count_max(&self) -> u32 {
        let addressable = (1u32 << PAGE_BITS) / self.segment_pages;
        SEGMENTS_MAX.max(self.count()).min(addressable)
    }

    /// Number of segments that the live data needs, including the collector's.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a cast of a float never wraps, and segments have numbers of 32 bits"
    )]
    pub fn count_needed(&self, sums: &Sums) -> u32 {
        RESERVE + HEADS + (sums.charged / FULLEST).ceil() as u32
    }

    /// From now on data goes only to segments below `end`. Existing segments from `end` on are emptied; when all are empty, the
    /// log has `end` segments.
    pub fn set_end(&self, end: u32) {
        let mut heads = self.heads.lock();
        self.segments.reach(end, Segment::new);
        let before = self.end.swap(end, Relaxed);
        self.count.fetch_max(end, Relaxed);
        for number in before..end {
            // Other segments belong to a shrinking that is cancelled here. They keep their state.
            if self.get(number).state() == SegmentState::Outside {
                self.admit(number, &mut heads);
            }
        }
        let lent = std::mem::take(&mut heads.lent);
        heads.free.extend(lent);
        let (inside, mut outside): (Vec<_>, Vec<_>) = heads.free.drain(..).partition(|&number| number < end);
        // The collector needs some free segments to start with, even behind the end.
        outside.truncate((self.reserve() as usize + 1).saturating_sub(inside.len()));
        heads.free.extend(inside);
        heads.lent = outside;
        self.free.store(number_of(heads.free.len()), Relaxed);
        self.close_heads(&mut heads);
        let mut leaving = 0;
        for number in end..self.count() {
            let segment = self.get(number);
            if !heads.lent.contains(&number) {
                segment.turn(SegmentState::Free, SegmentState::Outside);
            }
            leaving += u32::from(segment.state() != SegmentState::Outside);
        }
        self.leaving.store(leaving, Relaxed);
        self.finish_if_vacated();
    }

    /// Adds a segment to the log. It is free unless it is bad or still has live records or readers.
    pub(super) fn admit(&self, number: u32, heads: &mut Heads) {
        let segment = self.get(number);
        if segment.bad.load(Relaxed) || !segment.is_dead() || segment.readers.load(Relaxed) > 0 {
            segment.turn(SegmentState::Outside, SegmentState::Retired);
            return;
        }
        // A failed write has ended its last use, and the stream may not have noticed: two streams would write the same pages.
        for open in &mut heads.open {
            open.take_if(|(segment, _)| *segment == number);
        }
        segment.turn(SegmentState::Outside, SegmentState::Free);
        heads.free.push_back(number);
        self.free.store(number_of(heads.free.len()), Relaxed);
    }

    /// Takes back the segments lent to the collector, which has made room before the end.
    pub(super) fn return_lent(&self, heads: &mut Heads) {
        self.close_heads(heads);
        for number in std::mem::take(&mut heads.lent) {
            self.get(number).turn(SegmentState::Free, SegmentState::Outside);
            self.left();
        }
    }

    /// Seals the open segments that leave, so that nothing is added to them.
    fn close_heads(&self, heads: &mut Heads) {
        for open in &mut heads.open {
            if let Some((segment, _)) = open.take_if(|(segment, _)| *segment >= self.end()) {
                self.seal(segment);
            }
        }
    }

    /// Called when there is nothing to collect: the collector needs no room behind the end.
    pub fn nothing_to_collect(&self) {
        if self.shrinks() {
            self.return_lent(&mut self.heads.lock());
        }
    }

    /// Called when a leaving segment is outside, with the heads locked.
    pub(super) fn left(&self) {
        self.leaving.fetch_sub(1, Relaxed);
        self.finish_if_vacated();
    }

    fn finish_if_vacated(&self) {
        if self.leaving.load(Relaxed) == 0 {
            let end = self.end();
            // If the log grows again, these places on flash are new, so forget that they were bad.
            (end..self.count()).for_each(|number| self.get(number).bad.store(false, Relaxed));
            self.count.store(end, Relaxed);
            self.is_taken.store(false, Relaxed);
        }
    }

    /// A leaving segment that no lane empties yet.
    pub fn next_leaving(&self, now_ms: u64) -> Option<u32> {
        (self.end()..self.count()).find(|&number| {
            let segment = self.get(number);
            let rests = segment.tries.load(Relaxed) > 0 && segment.test_due_ms.load(Relaxed) > now_ms;
            matches!(segment.state(), SegmentState::Sealed | SegmentState::Retired)
                && segment.writers.load(Relaxed) == 0
                && (segment.is_dead() || !rests)
        })
    }

    /// Whether a leaving segment's records can be moved without using the segments that the collector needs.
    pub fn has_room_for(&self, leaving: u32) -> bool {
        self.get(leaving).is_dead() || self.free_count() > self.reserve() + self.vacating.load(Relaxed)
    }

    /// Takes a leaving segment. The caller owns it until [`Segments::vacating_ends`].
    pub fn begin_vacating(&self, number: u32) -> bool {
        let segment = self.get(number);
        let taken = [SegmentState::Sealed, SegmentState::Retired]
            .into_iter()
            .any(|state| segment.turn(state, SegmentState::Collecting));
        self.vacating.fetch_add(u32::from(taken), Relaxed);
        self.relocating.fetch_add(u32::from(taken), Relaxed);
        taken
    }

    pub fn vacating_ends(&self) {
        self.vacating.fetch_sub(1, Relaxed);
        self.relocation_ends();
    }

    /// Whether the records of the leaving segment that cannot be read this time are given up.
    pub fn is_last_try(&self, number: u32) -> bool {
        number >= self.end() && self.get(number).tries.load(Relaxed) + 1 >= TRIES_MAX
    }

    /// Called when a segment that the caller owns could not be read completely. The segment stays, so that the keys of its
    /// records answer with an error. If it is leaving the log, it is tried again.
    pub fn damaged(&self, number: u32, now_ms: u64) {
        let segment = self.get(number);
        let tries = segment.tries.load(Relaxed);
        segment.tries.store(tries.saturating_add(1), Relaxed);
        let pause = (TRY_AGAIN_MS << tries.min(16)).min(TRY_AGAIN_MS_MAX);
        segment.test_due_ms.store(now_ms + pause, Relaxed);
        segment.bad.store(true, Relaxed);
        segment.turn(SegmentState::Collecting, SegmentState::Retired);
    }
}
