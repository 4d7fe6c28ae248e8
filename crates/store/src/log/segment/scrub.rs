//! Owns which segment the scrubber reads next, and when. Never reads a segment.
//!
//! A round takes the interval, and the segments' reads are spread evenly over it. A round begins at a segment that
//! depends on the clock, so that a store that is restarted often does not read the same segments again and again.

use super::{SegmentState, Segments, Unit};
use base::random::SplitMix64;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// One read of the scrubber: 256 KiB.
const SCRUB_PAGES: u32 = 64;

#[derive(Default)]
pub(super) struct Scrub {
    /// In this time every segment is read once. 0: the scrubber is off.
    interval_ms: AtomicU64,
    round: Mutex<Option<Round>>,
    rounds: AtomicU64,
}

struct Round {
    begun_ms: u64,
    first: u64,
    /// Number of segments that were read or skipped in this round.
    done: u32,
}

impl Segments {
    /// Sets the time in which every segment is read once. 0: no segment is read.
    pub fn set_scrub_interval(&self, ms: u64) {
        if self.scrub.interval_ms.swap(ms, Relaxed) != ms {
            // The running round was spread over another interval.
            *self.scrub.round.lock() = None;
        }
    }

    /// Number of times that all segments were read.
    pub fn scrub_rounds(&self) -> u64 {
        self.scrub.rounds.load(Relaxed)
    }

    /// Takes the next segment that is due. The caller owns it until [`Segments::scrubbed`]. A segment that is being
    /// written, is being collected, or is known to be bad is skipped in this round.
    pub fn next_to_scrub(&self, now_ms: u64) -> Option<u32> {
        let interval_ms = self.scrub.interval_ms.load(Relaxed);
        let count = self.count();
        if interval_ms == 0 || count == 0 {
            return None;
        }
        let mut running = self.scrub.round.lock();
        let new = |begun_ms| Round { begun_ms, first: SplitMix64(begun_ms).draw(), done: 0 };
        let round = running.get_or_insert_with(|| new(now_ms));
        if now_ms < round.begun_ms {
            // The clock was set back.
            *round = new(now_ms);
        }
        while round.done < count {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "of the count, fewer are done: this is below the interval"
            )]
            let passed_ms = (u128::from(interval_ms) * u128::from(round.done) / u128::from(count)) as u64;
            let due_ms = round.begun_ms + passed_ms;
            if now_ms < due_ms {
                return None;
            }
            #[expect(clippy::cast_possible_truncation, reason = "a remainder of the count is below it")]
            let number = ((round.first % u64::from(count) + u64::from(round.done)) % u64::from(count)) as u32;
            round.done += 1;
            let segment = self.get(number);
            if segment.writers.load(Relaxed) == 0 && segment.turn(SegmentState::Sealed, SegmentState::Collecting) {
                return Some(number);
            }
        }
        if now_ms >= round.begun_ms + interval_ms {
            self.scrub.rounds.fetch_add(1, Relaxed);
            *round = new(now_ms);
        }
        None
    }

    /// The written units of a segment, cut into pieces of one buffer's size.
    pub fn scrub_units(&self, segment: u32) -> Vec<Unit> {
        let pieces = |unit: Unit| {
            let step = SCRUB_PAGES as usize;
            (0..unit.pages).step_by(step).map(move |at| Unit {
                segment,
                first: unit.first + at,
                pages: SCRUB_PAGES.min(unit.pages - at),
            })
        };
        self.units(segment).into_iter().flat_map(pieces).collect()
    }

    /// Gives back a segment that was read. A rotten segment takes no more data, and its other records move when room is
    /// collected.
    pub fn scrubbed(&self, segment: u32, is_rotten: bool) {
        if is_rotten {
            self.get(segment).bad.store(true, Relaxed);
        }
        self.uncollected(segment);
    }
}
