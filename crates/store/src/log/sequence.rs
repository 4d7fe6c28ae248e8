//! Owns the numbers by which versions of a value are told apart: a record gets the next one when it is copied, while the stripe of its
//! key is locked, so a later version has a higher number. A record that is moved keeps its number. Never knows a record.
//!
//! A checkpoint may name records that were copied after its cut, if their values had not changed. These get *early* numbers, that were set
//! aside at the cut. So the records that were copied with lower numbers than the checkpoint's are those of the cut and of the time before.
//!
//! The numbers go on over restarts. A checkpoint notes the one of its cut ([`Sequence::next`]), and a start begins with a number that
//! no record on flash has: [`Sequence::go_on`]. What a node has written behind the cut of the checkpoint that its next start begins with is
//! *lost*: the journal brings it back under new numbers, or nothing does. Such records lie beside those of the checkpoint, so their
//! numbers are remembered.

use parking_lot::Mutex;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The first number of a new log. Releases that numbered units, and began anew at each start, used lower ones.
const FIRST: u64 = 1 << 40;
/// A start begins with the number of its time. No node uses so many records a millisecond, numbers set aside at cuts included, so a later start
/// begins behind all that were used before, whichever checkpoint it begins with.
const NUMBERS_A_MS: u64 = 1 << 16;
/// If the numbers are ahead of the time, because the clock was set back or records came from a node whose clock is ahead, a start leaves more
/// numbers out than are used between a checkpoint and the next start: at two million records a second this is six days.
const GAP: u64 = 1 << 40;
/// 1 January 2026.
const EPOCH_MS: u64 = 1_767_225_600_000;

/// A value is copied once during a checkpoint, and again if the write fails.
const COPIES_MAX: u64 = 4;
const EARLY_MIN: u64 = 1 << 16;
/// One for each start. Of more, the oldest are forgotten: then numbers of that time tell nothing.
const LOST_MAX: usize = 256;

/// What a checkpoint notes of the numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// Records of values as they were at the cut and before have lower numbers, and all others have not.
    pub cut: u64,
    /// Lower numbers do not tell which of two versions is the later one.
    pub from: u64,
    /// Records with these numbers were of no value at the cut nor at any time before that counts.
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
    /// The early numbers that are left. The end is 0 if there is no checkpoint.
    early: AtomicU64,
    early_end: AtomicU64,
    /// There were too few.
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
    /// The number of a record that is copied now. The caller has the lock of its stripe. `is_of_cut`: a snapshot wants the value, so it has not
    /// changed since the cut.
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

    /// The cut of a checkpoint, while every stripe is locked. `values`: how many are in RAM. Returns its number.
    pub fn cut(&self, values: u64) -> u64 {
        let room = values * COPIES_MAX + EARLY_MIN;
        let first = self.next.fetch_add(room, Relaxed);
        self.early.store(first, Relaxed);
        self.early_end.store(first + room, Relaxed);
        self.was_short.store(false, Relaxed);
        first + room
    }

    /// The checkpoint has all values. Returns whether all that were copied meanwhile have the right numbers.
    pub fn end_cut(&self) -> bool {
        self.early_end.store(0, Relaxed);
        !self.was_short.load(Relaxed)
    }

    /// The number that the next record gets.
    pub fn next(&self) -> u64 {
        self.next.load(Relaxed)
    }

    /// Lower numbers do not tell which of two records is the later one.
    pub fn ordered_from(&self) -> u64 {
        self.ordered_from.load(Relaxed)
    }

    /// Records of another log came here with numbers up to `last`. `oldest` is the lowest that one of them had there.
    pub fn pass(&self, last: u64, oldest: u64) {
        let next = last.saturating_add(1);
        self.next.fetch_max(next, Relaxed);
        if oldest < FIRST {
            self.ordered_from.fetch_max(next, Relaxed);
        }
    }

    /// What a checkpoint with this cut notes. `is_ordered`: all records that its entries name have lower numbers.
    pub fn order(&self, cut: u64, is_ordered: bool) -> Order {
        let from = if is_ordered { self.ordered_from() } else { cut };
        Order { cut, from, lost: self.lost.lock().clone() }
    }

    /// Goes on with numbers that were not used before. `noted`: by the checkpoint; `None`: its release noted nothing.
    pub fn go_on(&self, noted: Option<&Order>, now_ms: u64) {
        let time = now_ms.saturating_sub(EPOCH_MS).saturating_mul(NUMBERS_A_MS);
        let by_time = FIRST.saturating_add(time);
        let cut = noted.map_or(FIRST, |order| order.cut);
        // Several starts may begin with one checkpoint, so what comes behind the gap follows from the time too.
        let next = if by_time > cut { by_time } else { cut.saturating_add(GAP + time % GAP) };
        self.next.fetch_max(next, Relaxed);
        let Some(Order { cut, from, lost }) = noted else { return };
        self.ordered_from.fetch_max(*from, Relaxed);
        let mut lost = lost.clone();
        match from == cut {
            // Its entries name some of these too.
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
        // Two lives that begin with the same checkpoint, and a clock that stands still.
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

    /// Two lives that begin with one checkpoint, shortly after it and each other, use no number twice: with the clock right, and set back.
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

    /// Entries name records behind the cut, so these are not lost, and nothing of that time is known to be later.
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
        // Of another log: one whose records all have an order, and one that an earlier release began.
        let before = old.ordered_from();
        old.pass(old.next() + FIRST + 5, FIRST + 5);
        assert_eq!(old.ordered_from(), before);
        old.pass(old.next() + 7, 7);
        assert_eq!(old.ordered_from(), old.next());
    }
}
