//! Owns the store's event counters: one cache line per worker, summed when read. Never knows how they are shown.

use crate::mem::arena::worker;
use std::ops::{Index, IndexMut};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// Look-ups that found a key and look-ups that did not, as Redis counts them. Those that found a key are counted separately
    /// for RAM and flash, because a difference of two counters read at different moments could decrease.
    RamHits,
    FlashHits,
    KeyspaceMisses,
    ExpiredKeys,
    EvictedKeys,
    /// Values read from flash into RAM, and how many of them stayed there.
    FlashValueReads,
    Promotions,
    /// Parts of large values read from flash into RAM, and parts that left RAM.
    FlashPartReads,
    PartDemotions,
    /// Values that left RAM: dropped because their copy on flash was valid (clean), or written to flash (dirty).
    DemotionsClean,
    DemotionsWritten,
    FlashReads,
    FlashReadBytes,
    FlashWrites,
    FlashWriteBytes,
    /// Reads that joined a read of the same page already in flight.
    MergedReads,
    /// Reads by commands inside a transaction or script, while the stripe was locked.
    ReadsUnderLock,
    /// Uncompressed and stored bytes of demoted records, for the compression ratio.
    RecordBytes,
    RecordStoredBytes,
    CollectedSegments,
    RelocatedRecords,
    /// Values that were imported with pages of another store.
    TakenRecords,
    ChecksumErrors,
    /// Bytes that the scrubber has read; damaged pages, and keys that have lost their values there, each counted once,
    /// whether a client's read, the scrubber or a collection found it; and values on damaged pages that the scrubber
    /// found in RAM too.
    ScrubbedBytes,
    RottenPages,
    RottenKeys,
    RescuedValues,
    ReadErrors,
    WriteErrors,
    /// Commands that changed something.
    Changes,
    /// Values and parts that were changed while their copy on flash was valid. A replay of such a change reads flash.
    ChangedOnFlash,
    /// Bytes of the keys and values that commands wrote.
    UserBytes,
    EvacuatedObjects,
    /// Entries and cells that background sweeps looked at.
    SweptEntries,
    /// Large values that UNLINK removed, and keys of databases that were emptied in the background.
    LazyFreed,
}
const COUNTERS: usize = Counter::LazyFreed as usize + 1;

/// What was counted, at a moment.
#[derive(Clone, Debug)]
pub struct Counts([u64; COUNTERS]);

impl Default for Counts {
    fn default() -> Counts {
        Counts([0; COUNTERS])
    }
}

impl Index<Counter> for Counts {
    type Output = u64;

    fn index(&self, counter: Counter) -> &u64 {
        &self.0[counter as usize]
    }
}

impl IndexMut<Counter> for Counts {
    fn index_mut(&mut self, counter: Counter) -> &mut u64 {
        &mut self.0[counter as usize]
    }
}

/// One worker's counters.
#[repr(align(128))]
pub struct Line([AtomicU64; COUNTERS]);

impl Line {
    #[inline]
    pub fn add(&self, counter: Counter, n: u64) {
        self.0[counter as usize].fetch_add(n, Relaxed);
    }
}

/// The number of lines is a power of two, because a division would take longer than the counting.
pub struct Counters(Box<[Line]>);

impl Counters {
    pub fn new(workers: usize) -> Counters {
        let lines = workers.max(1).next_power_of_two();
        Counters((0..lines).map(|_| Line([const { AtomicU64::new(0) }; COUNTERS])).collect())
    }

    #[inline]
    pub fn add(&self, counter: Counter, n: u64) {
        self.line().add(counter, n);
    }

    /// The counters of this thread's worker, for several additions.
    #[inline]
    pub fn line(&self) -> &Line {
        &self.0[worker() & (self.0.len() - 1)]
    }

    pub fn sum(&self, counter: Counter) -> u64 {
        self.0.iter().map(|line| line.0[counter as usize].load(Relaxed)).sum()
    }

    pub fn sums(&self) -> Counts {
        Counts(std::array::from_fn(|nth| self.0.iter().map(|line| line.0[nth].load(Relaxed)).sum()))
    }

    /// Sets all counters to zero, for CONFIG RESETSTAT, except the counter from which the duration of a restart is
    /// estimated.
    pub fn reset(&self) {
        let counts = (0..COUNTERS).filter(|&nth| nth != Counter::ChangedOnFlash as usize);
        counts.for_each(|nth| self.0.iter().for_each(|line| line.0[nth].store(0, Relaxed)));
    }
}
