//! Owns the sequence numbers that order the versions of a value: a record gets the next number when its value is copied
//! for flash, while the stripe of its key is locked, so a later version has a higher number. A record that is moved
//! keeps its number. Never knows a record.
//!
//! A checkpoint may name records that were copied after its cut, if their values had not changed since. These records
//! get *early* numbers, which were reserved at the cut. So a record has a lower number than the checkpoint's if, and
//! only if, it was copied from a value of the time of the cut or before.
//!
//! The numbers continue over restarts. A checkpoint stores the number of its cut ([`Sequence::next`]), and a start
//! begins with a number that no record on flash has: [`Sequence::go_on`]. A start begins with a checkpoint; the records
//! that the node had written after the cut of this checkpoint are *lost*: replaying the journal writes their values
//! again under new numbers, or they are gone. Lost records lie beside those of the checkpoint, so their numbers are
//! remembered.

use parking_lot::Mutex;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The first number of a new log. Earlier releases numbered units instead of records, and began anew at each start;
/// their numbers are lower.
const FIRST: u64 = 1 << 40;
/// A start begins with a number computed from the current time. No node uses so many numbers in a millisecond,
/// including those reserved at cuts. So a later start begins behind all numbers that were used before, whichever
/// checkpoint it begins with.
const NUMBERS_A_MS: u64 = 1 << 16;
/// If the numbers are ahead of the time, because the clock was set back or records came from a node whose clock is
/// ahead, a start skips this many numbers. That is more than are used between a checkpoint and the next start: at two
/// million records a second it takes six days.
const GAP: u64 = 1 << 40;
/// 1 January 2026.
const EPOCH_MS: u64 = 1_767_225_600_000;

/// Numbers reserved at a cut for each value: it is copied once during a checkpoint, and again if the write fails.
const COPIES_MAX: u64 = 4;
const EARLY_MIN: u64 = 1 << 16;
/// The maximum number of lost ranges. Each start adds one. When there are more, the oldest is forgotten, and numbers up
/// to its end then do not tell which of two versions is newer.
const LOST_MAX: usize = 256;

/// What a checkpoint stores about the sequence numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// Records of values as they were at the cut or before have lower numbers. All other records have this number or
    /// higher ones.
    pub cut: u64,
    /// Below this number, numbers do not tell which of two versions is newer.
    pub from: u64,
    /// Records with these numbers were written by a run of the node whose changes the dataset does not contain: see
    /// *lost* above.
    pub lost: Vec<Range<u64>>,
}

impl Order {
    /// Whether a record with this number may have been a value at the cut.
    pub fn counts(&self, seq: u64) -> bool {
        seq < self.cut && !self.lost.iter().any(|lost| lost.contains(&seq))
    }
}

pub(crate) struct Sequence {
    next: AtomicU64,
    /// See [`Sequence::ordered_from`].
    ordered_from: AtomicU64,
    /// The next early number, and the end of those that were reserved. The end is 0 if no checkpoint is being made.
    early: AtomicU64,
    early_end: AtomicU64,
    /// Whether the checkpoint needed more early numbers than were reserved.
    was_short: AtomicBool,
    /// See [`Order::lost`].
    lost: Mutex<Vec<Range<u64>>>,
}

impl Default for Sequence {
    fn default() -> Sequence {
        Sequence {
            next: AtomicU64::new(FIRST),
            ordered_from: AtomicU64::new(FIRST),
            early: AtomicU64::new(0),
            early_end: AtomicU64::new(0),
            was_short: AtomicBool::new(false),
            lost: Mutex::default(),
        }
    }
}

impl Sequence {
    /// The number of a record that is copied now. The caller holds the lock of its stripe. `is_of_cut`: a snapshot
    /// still needs the value, so the value has not changed since the cut.
    pub fn take(&self, is_of_cut: bool) -> u64 {
        let end = if is_of_cut { self.early_end.load(Relaxed) } else { 0 };
        if end > 0 {
            let early = self.early.fetch_add(1, Relaxed);
            if early < end {
                return early;
            }
            self.was_short.store(true, Relaxed);
        }
        self.next.fetch_add(1, Relaxed)
    }

    /// Makes the cut of a checkpoint, while every stripe is locked, and reserves early numbers. `values`: how many
    /// values are in RAM. Returns the cut's number.
    pub fn cut(&self, values: u64) -> u64 {
        let room = values * COPIES_MAX + EARLY_MIN;
        let first = self.next.fetch_add(room, Relaxed);
        self.early.store(first, Relaxed);
        self.early_end.store(first + room, Relaxed);
        self.was_short.store(false, Relaxed);
        first + room
    }

    /// Ends a checkpoint that has all its values. Returns whether the reserved numbers were enough for all records that
    /// were copied for it.
    pub fn end_cut(&self) -> bool {
        self.early_end.store(0, Relaxed);
        !self.was_short.load(Relaxed)
    }

    /// The number that the next record gets.
    pub fn next(&self) -> u64 {
        self.next.load(Relaxed)
    }

    /// Below this number, numbers do not tell which of two records is newer.
    pub fn ordered_from(&self) -> u64 {
        self.ordered_from.load(Relaxed)
    }

    /// Skips the numbers of imported records, up to `last`. `oldest`: the lowest number that one of these records had
    /// in its own log.
    pub fn pass(&self, last: u64, oldest: u64) {
        let next = last.saturating_add(1);
        self.next.fetch_max(next, Relaxed);
        if oldest < FIRST {
            self.ordered_from.fetch_max(next, Relaxed);
        }
    }

    /// What a checkpoint with this cut stores. `is_ordered`: all records that its entries name have lower numbers.
    pub fn order(&self, cut: u64, is_ordered: bool) -> Order {
        let from = if is_ordered { self.ordered_from() } else { cut };
        Order { cut, from, lost: self.lost.lock().clone() }
    }

    /// Continues with numbers that no record has. `noted`: what the checkpoint stores; `None`: it was made by a release
    /// that stored nothing.
    pub fn go_on(&self, noted: Option<&Order>, now_ms: u64) {
        let time = now_ms.saturating_sub(EPOCH_MS).saturating_mul(NUMBERS_A_MS);
        let by_time = FIRST.saturating_add(time);
        let cut = noted.map_or(FIRST, |order| order.cut);
        // Several starts may begin with one checkpoint, so the number behind the gap also depends on the time.
        let next = if by_time > cut { by_time } else { cut.saturating_add(GAP + time % GAP) };
        self.next.fetch_max(next, Relaxed);
        let Some(Order { cut, from, lost }) = noted else { return };
        self.ordered_from.fetch_max(*from, Relaxed);
        let mut lost = lost.clone();
        match from == cut {
            // The checkpoint's entries name some records of this range too, so the range is not lost.
            true => _ = self.ordered_from.fetch_max(next, Relaxed),
            false => lost.push(*cut..next),
        }
        if lost.len() > LOST_MAX {
            let oldest = lost.remove(0);
            self.ordered_from.fetch_max(oldest.end, Relaxed);
        }
        *self.lost.lock() = lost;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_goes_on_behind_what_any_life_before_has_used() {
        let first = Sequence::default();
        (0..1000).for_each(|_| _ = first.take(false));
        let noted = first.order(first.next(), true);
        let used = first.take(false);
        assert!(!noted.counts(used) && noted.counts(used - 1));
        // Two starts from the same checkpoint, while the clock stands still.
        let (second, third) = (Sequence::default(), Sequence::default());
        second.go_on(Some(&noted), EPOCH_MS);
        assert!(second.take(false) > used + (1 << 30), "many more may have been used than the checkpoint knows");
        let used = second.take(false);
        third.go_on(Some(&noted), EPOCH_MS + (1 << 30));
        assert!(third.take(false) > used);
        assert_eq!(third.ordered_from(), first.ordered_from());
        let later = third.order(third.next(), true);
        assert!(!later.counts(used) && later.counts(noted.cut - 1), "what is behind the first cut is lost");
        assert!(later.counts(third.next() - 1));
    }

    /// Two starts from one checkpoint, soon after it and after each other, use no number twice, whether the clock is
    /// right or was set back.
    #[test]
    fn no_two_starts_use_the_same_numbers() {
        const HOUR_MS: u64 = 3_600_000;
        let first = Sequence::default();
        first.go_on(None, EPOCH_MS + 1_000 * HOUR_MS);
        let noted = first.order(first.cut(1 << 20), true);
        for start_ms in [EPOCH_MS + 1_000 * HOUR_MS + 100, EPOCH_MS + 10 * HOUR_MS] {
            let starts = [0, 1, 50, HOUR_MS, 3 * HOUR_MS].map(|after_ms| {
                let life = Sequence::default();
                life.go_on(Some(&noted), start_ms + after_ms);
                life.next()
            });
            assert!(starts[0] > noted.cut && starts.is_sorted_by(|one, next| next - one >= NUMBERS_A_MS), "{starts:?}");
        }
    }

    /// Entries name records behind the cut, so these records are not lost, and their numbers do not tell which is
    /// newer.
    #[test]
    fn a_checkpoint_without_an_order_loses_nothing() {
        let first = Sequence::default();
        let noted = first.order(first.cut(0), false);
        let second = Sequence::default();
        second.go_on(Some(&noted), EPOCH_MS);
        assert_eq!(second.ordered_from(), second.next());
        assert!(second.order(second.next(), true).counts(noted.cut));
    }

    #[test]
    fn the_oldest_lost_numbers_are_forgotten_and_tell_nothing_then() {
        let mut noted = Order { cut: FIRST + 1, from: FIRST, lost: Vec::new() };
        for start in 0..=LOST_MAX as u64 {
            let sequence = Sequence::default();
            sequence.go_on(Some(&noted), EPOCH_MS);
            noted = sequence.order(sequence.next() + 1, true);
            assert_eq!(noted.lost.len(), (start as usize + 1).min(LOST_MAX));
        }
        assert_eq!(noted.from, FIRST + 1 + GAP);
    }

    #[test]
    fn values_of_the_cut_are_copied_with_lower_numbers() {
        let sequence = Sequence::default();
        let before = sequence.take(true);
        let cut = sequence.cut(1);
        let (later, early) = (sequence.take(false), sequence.take(true));
        assert!(before < early && early < cut && cut <= later);
        assert!(sequence.end_cut());
        assert!(sequence.take(true) > later, "there is no checkpoint any more");
        let cut = sequence.cut(0);
        let last = (0..=EARLY_MIN).map(|_| sequence.take(true)).last();
        assert!(last >= Some(cut) && !sequence.end_cut(), "there were not enough");
    }

    #[test]
    fn numbers_of_earlier_releases_are_lower_and_tell_nothing() {
        let old = Sequence::default();
        old.go_on(None, 0);
        assert!(old.ordered_from() > 1 << 32 && old.next() > old.ordered_from());
        // Records of another log: first of a log whose numbers all tell the order, then of a log that an earlier
        // release began.
        let before = old.ordered_from();
        old.pass(old.next() + FIRST + 5, FIRST + 5);
        assert_eq!(old.ordered_from(), before);
        old.pass(old.next() + 7, 7);
        assert_eq!(old.ordered_from(), old.next());
    }
}
