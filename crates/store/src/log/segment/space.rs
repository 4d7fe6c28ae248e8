//! Owns the decisions of how much room the log has, which collections may start, and which emptied segments a
//! checkpoint holds back.
//! Never moves a record and never writes: the lanes do.
//!
//! ```text
//!            free > low            free > reserve          free ≤ reserve
//!   [Plenty] ────────────► [Low] ────────────► [Waiting] ◄────────────────► [Full]
//!      ▲                     ▲                     │   live data leaves less     │
//!      └─────────────────────┴─────────────────────┴── than the collector needs ─┘
//! ```
//!
//! | room | writers | lanes |
//! | --- | --- | --- |
//! | Plenty | go on | free dead segments |
//! | Low | go on | also collect the segments with the largest gain; if checkpoints hold emptied segments back, they begin earlier, and during a dump later (`wants_collection`) |
//! | Waiting | wait | the same; a segment becomes free, because some segment is dead, is being collected, is held back by a checkpoint, or contains dead records |
//! | Full | are refused, or the policy evicts | free dead segments; with such a policy, evict the records of the oldest segment |
//!
//! Live data may have a limit of its own ([`Segments::limit_data`]), so that the log keeps room for the segments that a
//! checkpoint holds back. At this limit the room is Full too, however many segments are free; collecting would not help
//! then.
//!
//! A segment's own states:
//!
//! ```text
//!   Free ──► Open ──► Sealed ──► Collecting ──► Free           all of its records are dead or were moved
//!              │         │           ├────────► Quarantined ──► Free      a checkpoint may still name its records
//!              │         │           ├────────► Sealed                    given up: no room, or something more urgent
//!              └─────────┴───────────┴────────► Retired        a write failed, or records could not be read
//!                                               Retired ──► Collecting ──► Free    dead, and a test write could be read back
//! ```
//!
//! Why a collection that has started can always finish: its survivors never take more than the segment that it frees, and before
//! it starts there is a free segment for it. Several collections share one open segment, where large records may leave gaps, so
//! each but the first needs two. New data never takes the last segments, the reserve.

use super::{Heads, RESERVE, Segment, SegmentState, SegmentStream, Segments, SnapshotKind, Sums, number_of};
use std::sync::atomic::Ordering::Relaxed;

/// How much room the log has for new data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogSpace {
    Plenty,
    Low,
    Waiting,
    Full,
}

/// Whether the live records of another segment may be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relocation {
    May,
    /// Later, when other collections have made room.
    Later,
    /// There is no room to move them, and no other collection will make some.
    Wedged,
}

impl LogSpace {
    pub fn name(self) -> &'static str {
        match self {
            LogSpace::Plenty => "plenty",
            LogSpace::Low => "low",
            LogSpace::Waiting => "waiting",
            LogSpace::Full => "full",
        }
    }
}

/// A segment with a larger live share is not worth collecting: moving would write twelve times the bytes that it frees. The log is
/// full if its live data fills the usable segments to this share. So while it is not full, some segment is worth collecting.
pub(crate) const FULLEST: f64 = 0.92;

impl Segment {
    /// Number of pages that the segment's live records take, with their part of the pages that stayed unused.
    pub(super) fn charge(&self, segment_pages: u32) -> f64 {
        let used = f64::from(self.used_pages.load(Relaxed));
        if self.writers.load(Relaxed) > 0 {
            // The counts do not contain records that are being written.
            return used;
        }
        match self.state() {
            SegmentState::Open => self.live_pages_estimate(),
            _ if used == 0.0 => 0.0,
            _ => (self.live_pages_estimate() / used).min(1.0) * f64::from(segment_pages),
        }
    }
}

impl Segments {
    /// Free segments that new data leaves to the collector. Without them the collector could not make room.
    pub fn reserve(&self) -> u32 {
        RESERVE.min(self.end() / 4)
    }

    /// The number of free segments at which collecting begins, ahead of need.
    pub fn low(&self) -> u32 {
        self.reserve() + (self.end() / 32).clamp(2, AHEAD_MAX)
    }

    /// Whether live records should be moved, so that segments become free: now, or with the next checkpoint.
    pub fn wants_collection(&self) -> bool {
        if self.is_dumping.load(Relaxed) {
            // What is emptied is not free before the dump ends, and moving its records takes free segments.
            return matches!(self.room(), LogSpace::Waiting | LogSpace::Full);
        }
        match self.ahead.load(Relaxed) {
            0 => self.room() != LogSpace::Plenty,
            ahead => self.free_count() + self.quarantined_count() <= self.low().max(self.reserve() + ahead),
        }
    }

    /// The room for new data. [`Segments::weigh`] keeps up to date whether the log is full.
    pub fn room(&self) -> LogSpace {
        let free = self.free_count();
        match () {
            () if self.is_over() => LogSpace::Full,
            () if free > self.low() && !self.is_taken.load(Relaxed) => LogSpace::Plenty,
            () if free > self.reserve() && !self.is_taken.load(Relaxed) => LogSpace::Low,
            () if self.full.load(Relaxed) => LogSpace::Full,
            () => LogSpace::Waiting,
        }
    }

    /// Whether new data may open a segment, if one is free.
    pub(super) fn takes_new(&self) -> bool {
        !self.is_taken.load(Relaxed) && !self.is_over()
    }

    /// Sets how many bytes live data may take. Returns whether the limit has changed; then [`Segments::weigh`] must be
    /// called.
    pub fn limit_data(&self, bytes: u64) -> bool {
        self.data_max.swap(bytes, Relaxed) != bytes
    }

    /// How many bytes live data may take. `u64::MAX`: as many as the segments have room for.
    pub fn data_max(&self) -> u64 {
        self.data_max.load(Relaxed)
    }

    /// Whether live data took all it is allowed to take when it was last summed.
    pub fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    /// Whether live data can have reached its limit: only if the segments that contain data have at least so much room.
    pub fn may_be_over(&self) -> bool {
        let data_max = self.data_max();
        let filled = || self.end().saturating_sub(self.free_count() + self.quarantined_count());
        data_max != u64::MAX && u64::from(filled()) * self.segment_bytes() >= data_max
    }

    /// Number of segments that data can fill: all but the reserve, the open segment of the collector, and segments that take no
    /// data because of an error.
    pub fn usable(&self, sums: &Sums) -> u32 {
        self.end().saturating_sub(self.reserve() + 1 + sums.retired)
    }

    /// Sums the live data, and notes whether the log is full and, while it shrinks, whether there will be room for new
    /// data. `keeps`: the policy evicts nothing, so all live data must be kept.
    pub fn weigh(&self, keeps: bool) {
        let sums = self.sums();
        self.is_taken.store(keeps && self.shrinks() && self.count_needed(&sums) > self.end(), Relaxed);
        self.over.store(sums.live_bytes >= self.data_max(), Relaxed);
        let is_full = sums.charged >= FULLEST * f64::from(self.usable(&sums));
        self.full.store(is_full && self.quarantined_count() == 0, Relaxed);
        self.plan_ahead(&self.heads.lock(), &sums);
    }

    /// Called when no record can be moved although flash is not full of live records. The next [`Segments::weigh`]
    /// decides again.
    pub fn declare_full(&self) {
        self.full.store(self.quarantined_count() == 0, Relaxed);
    }

    /// Whether the live data left no room for more when it was last summed.
    pub fn is_full(&self) -> bool {
        self.full.load(Relaxed) || self.is_over()
    }

    /// Whether the running collections leave room for another one. `held_back`: its segment will not be free at once.
    pub fn may_relocate(&self, held_back: bool) -> Relocation {
        self.allows_another(&self.heads.lock(), held_back, None)
    }

    /// The number of other collections is read only once. Otherwise a collection that ends between two reads would look
    /// as if there were neither another collection nor room, although it has given back its segment.
    fn allows_another(&self, heads: &Heads, held_back: bool, segment: Option<u32>) -> Relocation {
        let others = self.relocating.load(Relaxed);
        let free = number_of(heads.free.len() + heads.lent.len());
        let has_room = match others {
            // Moved records stay on flash twice until the checkpoint.
            _ if held_back && free < 2 + others => false,
            0 if free > 0 => true,
            0 => heads.open[SegmentStream::Relocated as usize].is_some_and(|(_, next)| {
                let survivors = segment.map_or(0.0, |segment| self.get(segment).live_pages_estimate());
                survivors * HEAD_SLACK < f64::from(self.segment_pages - next)
            }),
            _ => free >= 2 * (others + 1),
        };
        match (has_room, others) {
            (true, _) => Relocation::May,
            (false, 0) => Relocation::Wedged,
            (false, _) => Relocation::Later,
        }
    }

    /// Asks for room to move the live records of a segment. After `May` the caller must call
    /// [`Segments::relocation_ends`] when they are moved.
    pub fn begin_relocation(&self, segment: u32, held_back: bool) -> Relocation {
        let heads = self.heads.lock();
        let answer = self.allows_another(&heads, held_back, Some(segment));
        if answer == Relocation::May {
            self.relocating.fetch_add(1, Relaxed);
        }
        answer
    }

    pub fn relocation_ends(&self) {
        self.relocating.fetch_sub(1, Relaxed);
    }

    /// Number of segments whose records are being moved.
    pub fn relocating(&self) -> u32 {
        self.relocating.load(Relaxed)
    }

    /// Called after the records of a segment were to be evicted.
    pub fn note_eviction(&self, evicted: u64) {
        match evicted {
            0 => _ = self.vain.fetch_add(1, Relaxed),
            _ => self.vain.store(0, Relaxed),
        }
    }

    /// Number of segments since one contained a record that could be evicted.
    pub fn evicted_in_vain(&self) -> u32 {
        self.vain.load(Relaxed)
    }

    // --- dead segments ---

    /// Takes a sealed segment without live records, readers or writers. The caller owns it until [`Segments::freed`]. Costs a load
    /// if no segment has died.
    pub fn next_dead(&self) -> Option<u32> {
        if !self.some_died.load(Relaxed) {
            return None;
        }
        let mut dead = self.dead.lock();
        for _ in 0..dead.len() {
            let number = dead.pop_front()?;
            let segment = self.get(number);
            // In another state, the segment was collected meanwhile, is still open, or had an error.
            if segment.state() != SegmentState::Sealed || !segment.is_dead() {
                continue;
            }
            let in_use = segment.writers.load(Relaxed) > 0 || segment.readers.load(Relaxed) > 0;
            if !in_use && segment.turn(SegmentState::Sealed, SegmentState::Collecting) {
                if self.emptied(number) {
                    return Some(number);
                }
                segment.turn(SegmentState::Collecting, SegmentState::Sealed);
            }
            dead.push_back(number);
        }
        self.some_died.store(!dead.is_empty(), Relaxed);
        None
    }

    /// Called when the last live record of a segment died, or when a segment without live records may have become free of
    /// writers.
    pub(super) fn note_death(&self, number: u32) {
        self.dead.lock().push_back(number);
        self.some_died.store(true, Relaxed);
    }

    // --- damaged segments ---

    /// Takes a segment that had an error and has no live records any more. The caller tests it, and owns it until
    /// [`Segments::proved_good`] or [`Segments::proved_bad`].
    pub fn next_to_test(&self, now_ms: u64) -> Option<u32> {
        (0..self.end()).find(|&number| {
            let segment = self.get(number);
            segment.state() == SegmentState::Retired
                && segment.is_dead()
                && segment.writers.load(Relaxed) == 0
                && segment.readers.load(Relaxed) == 0
                && segment.test_due_ms.load(Relaxed) <= now_ms
                && self.may_overwrite(segment)
                && segment.turn(SegmentState::Retired, SegmentState::Collecting)
        })
    }

    /// Whether no checkpoint names a record of a bad segment that is dead.
    fn may_overwrite(&self, segment: &Segment) -> bool {
        let heads = self.heads.lock();
        if !heads.quarantines() {
            return true;
        }
        let unnamed_at = segment.unnamed_at.load(Relaxed);
        if unnamed_at == 0 {
            segment.unnamed_at.store(heads.cut + 1, Relaxed);
        }
        unnamed_at != 0 && heads.durable >= unnamed_at
    }

    /// Ends a test that could read back what it had written: the segment takes data again.
    pub fn proved_good(&self, number: u32) {
        if self.emptied(number) {
            let segment = self.get(number);
            segment.bad.store(false, Relaxed);
            self.freed(number);
        } else {
            self.get(number).turn(SegmentState::Collecting, SegmentState::Retired);
        }
    }

    /// The next test of the segment is a minute later, then two minutes, up to an hour.
    pub fn proved_bad(&self, number: u32, now_ms: u64) {
        let segment = self.get(number);
        let tests = segment.tests.load(Relaxed);
        let pause = (TEST_AGAIN_MS << tests.min(8)).min(TEST_AGAIN_MS_MAX);
        segment.tests.store(tests.saturating_add(1), Relaxed);
        segment.test_due_ms.store(now_ms + pause, Relaxed);
        segment.turn(SegmentState::Collecting, SegmentState::Retired);
    }

    // --- quarantine ---

    /// Sets whether emptied segments are held back until a checkpoint that was cut after their emptying is durable.
    pub fn set_quarantine(&self, on: bool) {
        let mut heads = self.heads.lock();
        heads.checkpoints = on;
        self.ahead.store(if on { self.ahead_wanted() } else { 0 }, Relaxed);
        self.release_if_unneeded(&mut heads);
    }

    /// Sets which snapshot is running. Segments that are emptied before its end are kept for it.
    pub fn set_snapshot(&self, running: Option<SnapshotKind>) {
        let mut heads = self.heads.lock();
        self.is_dumping.store(running == Some(SnapshotKind::Dump), Relaxed);
        heads.snapshot = running.is_some();
        self.release_if_unneeded(&mut heads);
    }

    fn release_if_unneeded(&self, heads: &mut Heads) {
        if !heads.quarantines() {
            let cut = heads.cut + 1;
            self.release(heads, cut);
        }
    }

    pub fn quarantines(&self) -> bool {
        self.heads.lock().quarantines()
    }

    /// Plans how many segments collection prepares for the next checkpoint. If these were few, however large the log is, checkpoints would be
    /// written too often, because their own size does not depend on it. At most half of what the live data spares, so that the segments that
    /// contain data are never too full to be collected. Returns how many more segments the live data should spare.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is not negative, nor more than there are segments"
    )]
    fn plan_ahead(&self, heads: &Heads, sums: &Sums) -> u32 {
        if !heads.checkpoints {
            return 0;
        }
        let spare = FULLEST * f64::from(self.usable(sums)) - sums.charged;
        let ahead = ((spare / 2.0).max(0.0) as u32).min(self.ahead_wanted());
        self.ahead.store(ahead.max(1), Relaxed);
        2 * (self.ahead_wanted() - ahead)
    }

    fn ahead_wanted(&self) -> u32 {
        (self.end() / AHEAD_SHARE).max(1)
    }

    /// How many bytes of copies of values in RAM should be dropped, so that live data leaves room for that. The answer counts once.
    pub fn take_copies_to_drop(&self) -> u64 {
        match self.copies_to_drop.load(Relaxed) {
            0 => 0,
            _ => self.copies_to_drop.swap(0, Relaxed),
        }
    }

    /// Called at the cut of a checkpoint. Segments that are emptied from now on need a later checkpoint. Returns the cut's number.
    pub fn cut(&self) -> u64 {
        let mut heads = self.heads.lock();
        heads.cut += 1;
        heads.cut
    }

    /// Called when the checkpoint with this cut is durable: the segments emptied before the cut are free.
    pub fn durable(&self, cut: u64) {
        let sums = self.sums();
        let mut heads = self.heads.lock();
        let lacking = self.plan_ahead(&heads, &sums);
        self.copies_to_drop.store(u64::from(lacking) * self.segment_bytes(), Relaxed);
        heads.durable = heads.durable.max(cut);
        self.release(&mut heads, cut);
    }

    fn release(&self, heads: &mut Heads, cut: u64) {
        let emptied = std::mem::take(&mut heads.quarantined);
        let (free, held): (Vec<_>, Vec<_>) = emptied.into_iter().partition(|&(_, at)| at < cut);
        self.quarantined.store(number_of(held.len()), Relaxed);
        heads.quarantined = held;
        for (number, _) in free {
            self.get(number).turn(SegmentState::Quarantined, SegmentState::Outside);
            self.place_freed(number, heads);
        }
    }

    /// Whether emptied segments wait for a checkpoint, and together with the reserve they are at least as many as the
    /// free ones.
    pub fn wants_checkpoint(&self) -> bool {
        let held = self.quarantined_count();
        held > 0 && self.heads.lock().checkpoints && held + self.reserve() >= self.free_count()
    }

    /// Number of segments that will be free after a checkpoint.
    pub fn quarantined_count(&self) -> u32 {
        self.quarantined.load(Relaxed)
    }
}

/// Maximum number of segments that collecting keeps free ahead of need. More would lie unused; and the fuller the other
/// segments are, the more records must be moved.
const AHEAD_MAX: u32 = 8;
/// The share of the log that is free or becomes free with the next checkpoint, if live data leaves so much. With a smaller share checkpoints are
/// written more often, with a larger one more records are moved: `scripts/checkpoint-cost.py` simulates it.
const AHEAD_SHARE: u32 = 8;
/// Several small units may leave gaps at the end of a segment.
const HEAD_SLACK: f64 = 1.25;
const TEST_AGAIN_MS: u64 = 60_000;
const TEST_AGAIN_MS_MAX: u64 = 3_600_000;
