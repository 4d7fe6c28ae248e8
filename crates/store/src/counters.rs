//! Owns the store's event counters: a line per worker, summed when read. Never knows what they are shown as.

use crate::mem::arena::worker;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// Look-ups that found a key, and that did not, as Redis counts them. Those that found one are counted apart by where its
    /// value was: a difference of two counts could become smaller.
    RamHits,
    FlashHits,
    KeyspaceMisses,
    ExpiredKeys,
    EvictedKeys,
    /// Values read from flash into RAM; of them, those that stayed.
    FlashValueReads,
    Promotions,
    /// Parts of large values read from flash into RAM, and parts that left RAM.
    FlashPartReads,
    PartDemotions,
    /// Values that left RAM: dropped because their copy on flash was valid, or written.
    DemotionsClean,
    DemotionsWritten,
    FlashReads,
    FlashReadBytes,
    FlashWrites,
    FlashWriteBytes,
    /// Reads that found theirs already on its way.
    MergedReads,
    /// Made while a stripe was locked, by what runs inside a transaction or script.
    ReadsUnderLock,
    /// Raw and stored bytes of demoted records, for the compression ratio.
    RecordBytes,
    RecordStoredBytes,
    CollectedSegments,
    RelocatedRecords,
    ChecksumErrors,
    ReadErrors,
    WriteErrors,
    /// Bytes of keys and values that commands wrote.
    UserBytes,
    EvacuatedObjects,
}
const COUNTERS: usize = Counter::EvacuatedObjects as usize + 1;

#[repr(align(128))]
struct Line([AtomicU64; COUNTERS]);

/// A power of two of lines: to divide would take longer than to count.
pub struct Counters(Box<[Line]>);

impl Counters {
    pub fn new(workers: usize) -> Counters {
        let lines = workers.max(1).next_power_of_two();
        Counters((0..lines).map(|_| Line([const { AtomicU64::new(0) }; COUNTERS])).collect())
    }

    #[inline]
    pub fn add(&self, counter: Counter, n: u64) {
        self.0[worker() & (self.0.len() - 1)].0[counter as usize].fetch_add(n, Relaxed);
    }

    pub fn sum(&self, counter: Counter) -> u64 {
        self.0.iter().map(|line| line.0[counter as usize].load(Relaxed)).sum()
    }

    /// CONFIG RESETSTAT.
    pub fn reset(&self) {
        self.0.iter().flat_map(|line| &line.0).for_each(|counter| counter.store(0, Relaxed));
    }
}
