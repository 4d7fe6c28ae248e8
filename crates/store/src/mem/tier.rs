//! Owns the RAM limit: how much RAM objects may take, and how close they are to the limit.
//! Never chooses a victim (`lane/clock_hand`) and never writes (`lane/write`).
//!
//! The limit bounds the process's resident size. Memory that is not objects (index, buffers, code, allocator slack) is
//! measured and not summed: it is the resident size minus the bytes that the arena holds. The rest of the limit is the
//! objects' budget.
//!
//! ```text
//! 0 ── objects' bytes ─────────── soft ──────────────── hard ────────────── budget ── margin ── RAM limit
//!        nothing happens           slices of demotion    writers wait for flash writes
//! ```
//! The distances are room for what may come while something leaves. That depends on the machine and the load, not on the limit,
//! so of a large limit they are a small part.
//!
//! What clients ask for at once (replies, queries, transactions) is *lent*: see [`lend`](super::lend). Lent memory is
//! taken from the objects' budget at once, before it is measured.

use crate::mem::arena::Arena;
use crate::mem::lend::Lent;
use crate::narrow::to_usize;
use base::Policy;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The size that the RAM limit bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitOf {
    /// The measured resident size of the process.
    Process,
    /// Only the objects, for tests that must not depend on the rest of the process.
    Objects,
}

/// Whether a command that may need memory may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    Open,
    /// The command must wait until flash writes have made room.
    Slow,
    /// Neither RAM nor flash has room, and the policy can evict nothing.
    Full,
}

/// Why no room can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Full {
    No = 0,
    /// Live records take all of flash that the collector can spare, and the policy can evict nothing.
    Flash = 1,
    /// RAM contains only what cannot leave it: the index, the skeletons of large collections, values larger than a segment, or, without
    /// flash, values that the policy does not evict.
    Ram = 2,
}

pub(crate) struct Tier {
    ram_limit: AtomicU64,
    limit_of: LimitOf,
    /// The most that [`Tier::step`] is.
    step_max: usize,
    policy: AtomicU8,
    /// The force-demote mode: no value stays in RAM, see `force_demote`.
    pub force_demote: AtomicBool,
    /// Bytes that objects may take.
    budget: AtomicUsize,
    /// Bytes of objects from which on values leave RAM.
    soft: AtomicUsize,
    /// Bytes of objects from which on writers wait: values that reads bring in, and commands that were admitted before, may come above it.
    hard: AtomicUsize,
    /// Bytes of slabs that no object can have, as last measured.
    overhead: AtomicUsize,
    resident: AtomicU64,
    resident_max: AtomicU64,
    /// The resident bytes that are not objects, as last measured.
    other: AtomicU64,
    /// The memory that is lent to clients.
    pub lent: Lent,
    /// A lower bound of the memory that is not objects: see [`Tier::reserve`].
    other_min: AtomicU64,
    /// Bytes of objects being written to flash.
    pub writing: AtomicUsize,
    /// The same lately.
    writing_lately: Lately,
    /// A [`Full`].
    full: AtomicU8,
    /// Slabs must be emptied but none could be chosen, so only demotion can empty them.
    pub crowded: AtomicBool,
    /// The stripe where the next worker that needs victims starts. All workers share one round.
    pub next_stripe: AtomicU32,
    /// What the clock hand meets in its turn over all stripes.
    pub turn: Turn,
    /// The value of `next_stripe` when some worker last removed something from RAM.
    fruitful: AtomicU32,
    /// Bytes of boxed values.
    boxed: Lately,
    /// Bytes of the largest value that moved lately, if it is large.
    large: Lately,
    /// A worker is copying a large value for flash.
    pub copies_large: AtomicBool,
}

/// A value larger than this needs room of its own while it moves.
pub const LARGE_BYTES: usize = 1 << 20;
/// The number of copies in memory of a value that moves, besides the value itself: the record, the compressed record, the unit
/// that is written, and what another worker reads back.
const LARGE_COPIES: u64 = 5;

/// The part of the limit that is kept free for growth of other memory between two measurements (buffers of reads and connections,
/// leaves of the index), and for the kernel's counters of resident pages, which lag by some pages for each processor.
fn margin(limit: u64) -> u64 {
    (limit / 16).min(MARGIN_BYTES + limit / 512)
}

const MARGIN_BYTES: u64 = 6 << 20;

/// The most that the unit of the distances between levels has for each worker: a unit of writes. Workers fill RAM at the same time.
const STEP_BYTES: usize = 1 << 20;

/// The objects' bytes from which on values leave RAM, and those from which on writers wait. Slabs of `overhead` more bytes hold
/// the objects, and some cells are free.
///
/// `writing`: the most bytes that were lately being written to flash at once. They take RAM until they are written, so values begin
/// to leave that much earlier: otherwise writers would wait although the device keeps up.
fn soft_and_hard(budget: usize, step: usize, overhead: usize, writing: usize) -> (usize, usize) {
    let hard = (budget - 2 * step).saturating_sub(overhead);
    let gap = writing.min(budget / 16).max(2 * step);
    (hard.saturating_sub(gap), hard)
}

/// The period of `Lately`, which keeps the maximum of the last one to two periods.
const LATELY_MS: u64 = 1_200;

/// A turn of the clock hand over all stripes. Decides whether the hand forgets the references of cold entries.
///
/// A reference says that a value was used not long ago, and the hand's turns are the clock for that. But if nearly all values that
/// it met were idle, there was hardly any use: keys are only being loaded, and a turn says nothing about time. If nearly none were idle, then
/// the hand turns faster than values are used: it must pass the values of a hot set that has moved several times, and meanwhile
/// it must not forget the first accesses to the new set.
pub(crate) struct Turn {
    /// In this turn, the values that the hand has met in RAM, and those that were not used since it met them last.
    met: AtomicU64,
    idle: AtomicU64,
    /// As the last turn has decided.
    forgets: AtomicBool,
}

impl Turn {
    fn new() -> Turn {
        Turn { met: AtomicU64::new(0), idle: AtomicU64::new(0), forgets: AtomicBool::new(false) }
    }

    /// Whether the hand forgets the references of cold entries. If not, a reference does not say that the value was used lately.
    #[inline]
    pub fn forgets(&self) -> bool {
        self.forgets.load(Relaxed)
    }

    pub fn meets(&self, values: u64, idle: u64) {
        self.met.fetch_add(values, Relaxed);
        self.idle.fetch_add(idle, Relaxed);
    }

    /// The bounds are simulated: docs/internals/memory.md. A turn that met nothing says nothing, so nothing is forgotten.
    pub fn ends(&self) {
        let (met, idle) = (self.met.swap(0, Relaxed), self.idle.swap(0, Relaxed));
        self.forgets.store(met > 0 && 32 * idle >= met && 8 * idle <= 7 * met, Relaxed);
    }
}

#[derive(Default)]
struct Lately {
    since_ms: AtomicU64,
    /// The maximum in the current period and in the previous one.
    most: [AtomicUsize; 2],
}

impl Lately {
    fn saw(&self, now: usize, now_ms: u64) {
        if now_ms >= self.since_ms.load(Relaxed) + LATELY_MS {
            self.since_ms.store(now_ms, Relaxed);
            self.most[1].store(self.most[0].swap(now, Relaxed), Relaxed);
        } else {
            self.most[0].fetch_max(now, Relaxed);
        }
    }

    fn lately(&self) -> usize {
        self.most[0].load(Relaxed).max(self.most[1].load(Relaxed))
    }
}

impl Tier {
    pub fn new(ram_limit: u64, limit_of: LimitOf, policy: Policy, workers: usize) -> Tier {
        let tier = Tier {
            ram_limit: AtomicU64::new(ram_limit),
            limit_of,
            step_max: workers.max(2) * STEP_BYTES,
            policy: AtomicU8::new(policy as u8),
            force_demote: AtomicBool::new(false),
            budget: AtomicUsize::new(usize::MAX),
            soft: AtomicUsize::new(usize::MAX),
            hard: AtomicUsize::new(usize::MAX),
            overhead: AtomicUsize::new(0),
            resident: AtomicU64::new(0),
            resident_max: AtomicU64::new(0),
            other: AtomicU64::new(0),
            lent: Lent::new(ram_limit),
            other_min: AtomicU64::new(0),
            writing: AtomicUsize::new(0),
            writing_lately: Lately::default(),
            full: AtomicU8::new(Full::No as u8),
            crowded: AtomicBool::new(false),
            // Each worker's hand begins at stripe 0, so that one has been given out.
            next_stripe: AtomicU32::new(1),
            turn: Turn::new(),
            fruitful: AtomicU32::new(1),
            boxed: Lately::default(),
            large: Lately::default(),
            copies_large: AtomicBool::new(false),
        };
        if ram_limit > 0 {
            // Until the first measurement.
            tier.set_budget(to_usize(ram_limit) / 10 * 8);
        }
        tier
    }

    /// The unit of the distances between levels.
    #[inline]
    fn step(&self, budget: usize) -> usize {
        (budget / 64).min(self.step_max)
    }

    fn set_budget(&self, budget: usize) {
        let (soft, hard) = match budget {
            usize::MAX => (usize::MAX, usize::MAX),
            _ => soft_and_hard(budget, self.step(budget), self.overhead.load(Relaxed), self.writing_lately.lately()),
        };
        self.budget.store(budget, Relaxed);
        self.soft.store(soft, Relaxed);
        self.hard.store(hard, Relaxed);
    }

    /// Must be called when something has left RAM, or when nothing needs to leave.
    pub fn progress(&self) {
        self.fruitful.store(self.next_stripe.load(Relaxed), Relaxed);
    }

    /// Called when a stripe was skipped. Skipped stripes do not count as fruitless.
    pub fn skip(&self) {
        self.fruitful.fetch_add(1, Relaxed);
    }

    /// Number of stripes visited since something last left RAM.
    pub fn fruitless(&self) -> usize {
        // The difference is negative if one worker made progress while another skipped a stripe.
        let since = self.next_stripe.load(Relaxed).wrapping_sub(self.fruitful.load(Relaxed)) as i32;
        since.max(0) as usize
    }

    pub fn ram_limit(&self) -> u64 {
        self.ram_limit.load(Relaxed)
    }

    /// Sets the limit. It takes effect at once, so no command is refused because of the old limit.
    pub fn set_ram_limit(&self, bytes: u64, arena: &Arena) {
        self.ram_limit.store(bytes, Relaxed);
        match bytes {
            0 => self.set_budget(usize::MAX),
            _ => {
                self.other.store(self.measured_other(self.resident(), arena), Relaxed);
                self.renew_budget();
            }
        }
        self.renew_lent();
        self.set_full(Full::No);
    }

    pub fn full(&self) -> Full {
        match self.full.load(Relaxed) {
            0 => Full::No,
            1 => Full::Flash,
            _ => Full::Ram,
        }
    }

    pub fn set_full(&self, full: Full) {
        self.full.store(full as u8, Relaxed);
    }

    /// Ends the refusal of writes for this reason.
    pub fn clear_full(&self, reason: Full) {
        if self.full.load(Relaxed) == reason as u8 {
            self.set_full(Full::No);
        }
    }

    pub fn policy(&self) -> Policy {
        Policy::from_number(self.policy.load(Relaxed)).expect("the number of a policy")
    }

    pub fn set_policy(&self, policy: Policy) {
        self.policy.store(policy as u8, Relaxed);
        self.set_full(Full::No);
    }

    pub fn resident(&self) -> u64 {
        self.resident.load(Relaxed)
    }

    pub fn resident_max(&self) -> u64 {
        self.resident_max.load(Relaxed)
    }

    pub fn reset_resident_max(&self) {
        self.resident_max.store(0, Relaxed);
    }

    /// Updates the budget from a measurement of the process's resident bytes.
    pub fn measured(&self, resident: u64, arena: &Arena, now_ms: u64) {
        self.resident.store(resident, Relaxed);
        self.resident_max.fetch_max(resident, Relaxed);
        self.boxed.saw(arena.boxed_bytes(), now_ms);
        self.large.saw(0, now_ms);
        self.overhead.store(arena.overhead_bytes(), Relaxed);
        self.writing_lately.saw(self.writing.load(Relaxed), now_ms);
        self.other.store(self.measured_other(resident, arena), Relaxed);
        self.renew_lent();
        self.renew_budget();
    }

    /// Updates how much may be lent.
    pub fn renew_lent(&self) {
        let limit = self.ram_limit();
        self.lent.measured(limit.saturating_sub(margin(limit)), self.other.load(Relaxed));
    }

    /// Call this when memory was lent or wanted: objects make room for it.
    pub fn renew_budget(&self) {
        let limit = self.ram_limit();
        if limit == 0 {
            return;
        }
        let other = self.other.load(Relaxed) + self.lent.not_measured();
        let other = other.max(self.other_min.load(Relaxed));
        let budget = (limit - margin(limit)).saturating_sub(other);
        let copies = (LARGE_COPIES * self.large.lately() as u64).min(budget / 2);
        let budget = (budget - copies).max(limit / 64);
        self.set_budget(to_usize(budget));
    }

    /// The resident bytes that are not objects.
    fn measured_other(&self, resident: u64, arena: &Arena) -> u64 {
        match self.limit_of {
            LimitOf::Process => {
                // Memory that boxed values have freed stays resident until the allocator gives it back, and boxed values can reuse it. It
                // must not cause more demotion.
                let given_back = self.boxed.lately().saturating_sub(arena.boxed_bytes());
                resident.saturating_sub((arena.held_bytes() + given_back) as u64)
            }
            LimitOf::Objects => 0,
        }
    }

    /// Notes that a large value moves between RAM and flash. Returns whether room for its copies was made already.
    pub fn moves_large(&self, bytes: usize, now_ms: u64) -> bool {
        let is_expected = bytes <= self.large.lately();
        self.large.saw(bytes, now_ms);
        if !is_expected {
            self.renew_budget();
        }
        is_expected
    }

    /// Reserves `bytes` for memory that is not objects and that will be taken all at once. Objects leave RAM to make
    /// room for it until `reserve(0)`. They keep at least half of their budget, because with much less nothing could be
    /// written meanwhile.
    pub fn reserve(&self, bytes: u64, arena: &Arena) {
        let is_wanted = bytes > 0 && self.limit_of == LimitOf::Process;
        let wanted = || self.measured_other(self.resident(), arena) + bytes.min(self.budget() as u64 / 2);
        self.other_min.store(if is_wanted { wanted() } else { 0 }, Relaxed);
        self.renew_budget();
    }

    pub fn budget(&self) -> usize {
        self.budget.load(Relaxed)
    }

    /// Bytes of objects from which on values leave RAM.
    #[inline]
    pub fn soft(&self) -> usize {
        self.soft.load(Relaxed)
    }

    /// The part of the RAM limit that neither objects nor other memory should take.
    pub fn margin(&self) -> u64 {
        margin(self.ram_limit())
    }

    /// Bytes that should leave RAM, in addition to those already being written.
    #[inline]
    pub fn excess(&self, arena: &Arena) -> usize {
        let soft = self.soft();
        if soft == usize::MAX {
            return 0;
        }
        let used = arena.used_bytes();
        let over = used.saturating_sub(soft);
        // Emptying slabs needs room in other slabs. If that room is missing, more bytes must leave.
        let room = || if self.crowded.load(Relaxed) { 0 } else { arena.free_bytes() };
        let crowd = match self.slabs_to_empty(arena) {
            0 => 0,
            bytes => (bytes * 5 / 4).saturating_sub(room()),
        };
        over.max(crowd).saturating_sub(self.writing.load(Relaxed))
    }

    /// Whether RAM has room for a value whatever its use. Objects that leave RAM leave it in slices and units, so for a moment there are
    /// fewer bytes than the soft level. That is no room: it is for values that were used twice and for those that are written.
    pub fn has_room(&self, arena: &Arena) -> bool {
        let (soft, budget) = (self.soft(), self.budget());
        soft == usize::MAX || self.excess(arena) == 0 && arena.used_bytes() + 2 * self.step(budget) < soft
    }

    /// Bytes of slabs that must be emptied and given back, because the budget has shrunk (the index grows), or other cells are
    /// needed than have become free. Some are emptied at once, so that it happens seldom.
    pub fn slabs_to_empty(&self, arena: &Arena) -> usize {
        let (budget, slabs) = (self.budget(), arena.slab_bytes());
        if slabs <= budget { 0 } else { slabs - (budget - 2 * self.step(budget)) }
    }

    #[inline]
    pub fn admission(&self, arena: &Arena) -> Admission {
        self.admission_of(0, arena)
    }

    /// The bytes that may come before writers must wait.
    pub fn room(&self, arena: &Arena) -> usize {
        self.hard.load(Relaxed).saturating_sub(arena.used_bytes())
    }

    /// Whether objects leave room for `bytes` more of any kind.
    #[inline]
    pub fn admission_of(&self, bytes: usize, arena: &Arena) -> Admission {
        let budget = self.budget();
        if budget == usize::MAX {
            return Admission::Open;
        }
        if budget == 0 {
            // The process itself takes more than the limit, so nothing can be moved out to make room.
            return Admission::Full;
        }
        let is_over = arena.used_bytes() + bytes > self.hard.load(Relaxed)
            || arena.slab_bytes() + bytes > budget + self.step(budget);
        match (is_over, self.full()) {
            (false, _) => Admission::Open,
            (true, Full::No) => Admission::Slow,
            (true, Full::Flash | Full::Ram) => Admission::Full,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The allocator gives freed memory back within a second. Until then that memory counts neither as objects nor as other memory.
    #[test]
    fn recently_freed_memory_does_not_shrink_the_budget() {
        const MB: usize = 1 << 20;
        let arena = Arena::new(1);
        let tier = Tier::new(100 << 20, LimitOf::Process, Policy::NoEviction, 2);
        arena.count_boxed(60 * MB as isize);
        tier.measured(80 << 20, &arena, 5_000);
        let budget = tier.budget();
        arena.count_boxed(-40 * MB as isize);
        tier.measured(80 << 20, &arena, 5_010);
        assert_eq!(tier.budget(), budget);
        // The allocator has given the memory back, then other memory has grown.
        tier.measured(40 << 20, &arena, 8_000);
        tier.measured(40 << 20, &arena, 11_000);
        assert_eq!(tier.budget(), budget);
        tier.measured(80 << 20, &arena, 11_010);
        assert_eq!(tier.budget(), budget - 40 * MB);
    }

    #[test]
    fn references_are_forgotten_only_after_a_turn_that_tells_used_values_from_idle_ones() {
        let turn = Turn::new();
        assert!(!turn.forgets());
        for (met, idle, forgets) in [
            (0, 0, false),
            (1_000, 0, false),
            (1_000, 31, false),
            (1_000, 32, true),
            (1_000, 875, true),
            (1_000, 876, false),
        ] {
            turn.meets(met / 2, idle);
            turn.meets(met - met / 2, 0);
            turn.ends();
            assert_eq!(turn.forgets(), forgets, "{idle} of {met}");
        }
    }

    /// Objects make room for a reservation, and not a second time when the reserved memory is taken.
    #[test]
    fn a_reservation_shrinks_the_budget_until_it_ends() {
        const MB: usize = 1 << 20;
        let arena = Arena::new(1);
        let tier = Tier::new(100 << 20, LimitOf::Process, Policy::NoEviction, 2);
        tier.measured(30 << 20, &arena, 1_000);
        let budget = tier.budget();
        tier.reserve(14 << 20, &arena);
        assert_eq!(tier.budget(), budget - 14 * MB);
        tier.measured(40 << 20, &arena, 1_010);
        assert_eq!(tier.budget(), budget - 14 * MB);
        tier.measured(50 << 20, &arena, 1_020);
        assert_eq!(tier.budget(), budget - 20 * MB);
        tier.reserve(0, &arena);
        tier.measured(30 << 20, &arena, 1_030);
        assert_eq!(tier.budget(), budget);
        tier.reserve(90 << 20, &arena);
        assert_eq!(tier.budget(), budget - budget / 2);
    }
}
