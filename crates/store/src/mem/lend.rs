//! Owns how much memory beside the objects may be lent: to replies, queries and transactions of clients, and to reads in
//! flight. Never knows who borrows, and never waits.
//!
//! At most half of what the RAM limit leaves beside the process itself may be lent, so that objects keep the other half.
//! While somebody waits, what the allocator has and nobody uses is not the process itself: objects that left RAM have left it (pages
//! that are not quite empty). Otherwise, the more objects make room, the less could be lent.
//! ```text
//! 0 ── process (code, index) ──┬── lent ──► at most half ◄── objects ──┬── margin ── RAM limit
//! ```

use crate::narrow::to_usize;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// This much may always be lent. With less, no client could work while the process itself needs more than the RAM limit.
pub(crate) const LENT_BYTES_MIN: usize = 4 << 20;

/// Objects that were not made from borrowed memory keep one part in this many of what objects and borrowers may have,
/// whatever is requested.
const OBJECTS_PART: usize = 12;

/// The maximum of lent memory and reserved room together, if at most `lent_max` may be lent: `lent_max` is half of what
/// objects and borrowers may have.
pub fn lent_and_room_max(lent_max: usize) -> usize {
    (lent_max - lent_max / OBJECTS_PART).saturating_mul(2)
}

pub(crate) struct Lent {
    /// Bytes lent now.
    bytes: AtomicUsize,
    /// Of these, the bytes that the last measurement of the process's memory contains.
    measured: AtomicUsize,
    /// Bytes that the next borrower waits for.
    wanted: AtomicUsize,
    /// Room reserved for the objects that borrowers are about to make from what they have borrowed.
    room: AtomicUsize,
    /// The most that may be lent now. `usize::MAX`: there is no RAM limit.
    max: AtomicUsize,
    /// The maximum of lent memory and reserved room together now.
    both_max: AtomicUsize,
    /// The most that may ever be lent: more than this is refused at once.
    ever_max: AtomicUsize,
    /// The limit that the operator has set; `usize::MAX`: none.
    cap: AtomicUsize,
    /// The least memory that the process itself was seen to need.
    process_min: AtomicU64,
    /// Bytes that the allocator has and nobody uses.
    unused: AtomicU64,
}

impl Lent {
    pub fn new(ram_limit: u64) -> Lent {
        // Until the first measurement, a quarter of the RAM limit.
        let max = if ram_limit == 0 { usize::MAX } else { (to_usize(ram_limit) / 4).max(LENT_BYTES_MIN) };
        Lent {
            bytes: AtomicUsize::new(0),
            measured: AtomicUsize::new(0),
            wanted: AtomicUsize::new(0),
            room: AtomicUsize::new(0),
            max: AtomicUsize::new(max),
            both_max: AtomicUsize::new(lent_and_room_max(max)),
            ever_max: AtomicUsize::new(max),
            cap: AtomicUsize::new(usize::MAX),
            process_min: AtomicU64::new(u64::MAX),
            unused: AtomicU64::new(0),
        }
    }

    /// `usable`: the RAM limit without the margin, 0 without a limit. `other`: the measured memory that is not objects.
    pub fn measured(&self, usable: u64, other: u64) {
        let lent = self.bytes.load(Relaxed);
        self.measured.store(lent, Relaxed);
        let cap = self.cap.load(Relaxed);
        if usable == 0 {
            self.max.store(cap, Relaxed);
            self.both_max.store(lent_and_room_max(cap), Relaxed);
            self.ever_max.store(cap, Relaxed);
            return;
        }
        let process = other.saturating_sub(lent as u64);
        let least = self.process_min.fetch_min(process, Relaxed).min(process);
        let half = |process: u64| to_usize(usable.saturating_sub(process) / 2).max(LENT_BYTES_MIN);
        // What is there for objects and borrowers, without the objects' part.
        let there = to_usize(usable.saturating_sub(process));
        let there = (there - there / OBJECTS_PART).max(LENT_BYTES_MIN);
        let max = half(process.saturating_sub(self.unused.load(Relaxed))).min(there).min(half(least)).min(cap);
        self.max.store(max, Relaxed);
        self.both_max.store(lent_and_room_max(max).min(there), Relaxed);
        self.ever_max.store(half(least).min(cap), Relaxed);
    }

    /// Sets what the allocator has and nobody uses. The next measurement takes it into account. 0 while nobody waits: there is
    /// no hurry then, and the memory may be given back or used by then.
    pub fn set_unused(&self, bytes: u64) {
        self.unused.store(bytes, Relaxed);
    }

    pub fn set_cap(&self, bytes: usize) {
        self.cap.store(bytes, Relaxed);
    }

    /// Counts memory as lent, whether there is room or not: it is in use already, or too little to wait for.
    pub fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    pub fn sub(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Relaxed);
    }

    /// Lends, unless the sum would exceed `max`.
    pub fn try_add(&self, bytes: usize, max: usize) -> bool {
        let sum = |lent: usize| lent.checked_add(bytes).filter(|&sum| sum <= max);
        self.bytes.fetch_update(Relaxed, Relaxed, sum).is_ok()
    }

    /// Whether so much may be lent, and room for objects be reserved, beside what is lent and reserved already. The
    /// budget cannot tell, because it has a minimum.
    pub fn may_keep(&self, bytes: usize, room: usize) -> bool {
        self.missing(bytes, room) == 0
    }

    /// How much other borrowers must give back before so much may be lent and reserved.
    pub fn missing(&self, bytes: usize, room: usize) -> usize {
        let lent = self.bytes() + bytes;
        let both = if room > 0 { lent + self.room.load(Relaxed) + room } else { 0 };
        lent.saturating_sub(self.max()).max(both.saturating_sub(self.both_max.load(Relaxed)))
    }

    pub fn add_room(&self, bytes: usize) {
        self.room.fetch_add(bytes, Relaxed);
    }

    pub fn sub_room(&self, bytes: usize) {
        self.room.fetch_sub(bytes, Relaxed);
    }

    pub fn want(&self, bytes: usize) {
        self.wanted.store(bytes, Relaxed);
    }

    pub fn wanted(&self) -> usize {
        self.wanted.load(Relaxed)
    }

    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    pub fn max(&self) -> usize {
        self.max.load(Relaxed)
    }

    pub fn ever_max(&self) -> usize {
        self.ever_max.load(Relaxed)
    }

    /// Lent or wanted bytes that the last measurement does not contain, and the room that is reserved.
    pub fn not_measured(&self) -> u64 {
        let new = self.bytes().saturating_sub(self.measured.load(Relaxed));
        (new + self.wanted() + self.room.load(Relaxed)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: usize = 1 << 20;

    fn measured(lent: &Lent, usable_mb: u64, other_mb: u64) {
        lent.measured(usable_mb << 20, other_mb << 20);
    }

    #[test]
    fn half_of_what_the_process_leaves_may_be_lent() {
        let lent = Lent::new(100 << 20);
        assert_eq!(lent.max(), 25 * MB, "nothing is measured yet");
        measured(&lent, 94, 14);
        assert_eq!((lent.max(), lent.ever_max()), (40 * MB, 40 * MB));
        assert!(lent.try_add(10 * MB, lent.max()));
        measured(&lent, 94, 24);
        assert_eq!(lent.max(), 40 * MB, "what is lent is not the process's own");
        assert!(!lent.try_add(31 * MB, lent.max()));
        assert!(lent.try_add(30 * MB, lent.max()));
        lent.sub(40 * MB);
        // The index has grown.
        measured(&lent, 94, 34);
        assert_eq!((lent.max(), lent.ever_max()), (30 * MB, 40 * MB));
        measured(&lent, 94, 99);
        assert_eq!(lent.max(), LENT_BYTES_MIN, "clients can work however little is left");
    }

    /// Once, objects made room for a client until nearly none were left, and the client was refused: of what they had taken, a quarter
    /// stayed in the allocator, and the client could have half of the rest.
    #[test]
    fn what_objects_leave_in_the_allocator_is_not_the_process_s_own() {
        let lent = Lent::new(100 << 20);
        measured(&lent, 94, 14);
        measured(&lent, 94, 44);
        assert_eq!(lent.max(), 25 * MB);
        lent.set_unused(20 << 20);
        measured(&lent, 94, 44);
        assert_eq!((lent.max(), lent.ever_max()), (35 * MB, 40 * MB));
        // Lent memory and room together take nothing of what is unused.
        let both = 50 * MB - 50 * MB / OBJECTS_PART;
        assert!(lent.may_keep(20 * MB, both - 20 * MB) && !lent.may_keep(20 * MB, both - 20 * MB + 1));
        lent.set_unused(44 << 20);
        measured(&lent, 94, 44);
        assert_eq!(lent.max(), 40 * MB, "not more than ever");
        measured(&lent, 94, 70);
        assert_eq!(lent.max(), 22 * MB, "objects keep their part of what is there");
    }

    #[test]
    fn what_is_not_measured_yet_is_counted_once() {
        let lent = Lent::new(100 << 20);
        lent.add(3 * MB);
        lent.want(2 * MB);
        assert_eq!(lent.not_measured(), 5 << 20);
        measured(&lent, 94, 20);
        assert_eq!(lent.not_measured(), 2 << 20);
        lent.want(0);
        lent.sub(MB);
        assert_eq!(lent.not_measured(), 0);
        // No measurement contains an object that is not there yet.
        lent.add_room(4 * MB);
        measured(&lent, 94, 20);
        assert_eq!(lent.not_measured(), 4 << 20);
        lent.sub_room(4 * MB);
        assert_eq!(lent.not_measured(), 0);
    }

    #[test]
    fn the_operator_s_limit_holds_with_and_without_a_ram_limit() {
        let lent = Lent::new(0);
        assert_eq!(lent.max(), usize::MAX);
        lent.set_cap(5 * MB);
        lent.measured(0, 50 << 20);
        assert_eq!((lent.max(), lent.ever_max()), (5 * MB, 5 * MB));
        lent.set_cap(usize::MAX);
        measured(&lent, 94, 14);
        assert_eq!(lent.max(), 40 * MB);
    }
}
