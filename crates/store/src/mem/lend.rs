//! Owns how much memory beside the objects may be lent: to replies, queries and transactions of clients, and to reads in
//! flight. Never knows who borrows, and never waits.
//!
//! At most half of what the RAM limit leaves beside the process itself may be lent, so that objects keep the other half.
//! ```text
//! 0 ── process (code, index) ──┬── lent ──► at most half ◄── objects ──┬── margin ── RAM limit
//! ```

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

pub(crate) struct Lent {
    /// Bytes lent now.
    bytes: AtomicUsize,
    /// Of these, the bytes that the last measurement of the process's memory contains.
    measured: AtomicUsize,
    /// Bytes that the next borrower waits for.
    wanted: AtomicUsize,
    /// The most that may be lent now. `usize::MAX`: there is no RAM limit.
    max: AtomicUsize,
    /// The most that may ever be lent: more than this is refused at once.
    ever_max: AtomicUsize,
    /// The limit that the operator has set; `usize::MAX`: none.
    cap: AtomicUsize,
    /// The least memory that the process itself was seen to need.
    process_min: AtomicU64,
}

impl Lent {
    pub fn new(ram_limit: u64) -> Lent {
        // A quarter until the first measurement.
        let max = if ram_limit == 0 { usize::MAX } else { ram_limit as usize / 4 };
        Lent {
            bytes: AtomicUsize::new(0),
            measured: AtomicUsize::new(0),
            wanted: AtomicUsize::new(0),
            max: AtomicUsize::new(max),
            ever_max: AtomicUsize::new(max),
            cap: AtomicUsize::new(usize::MAX),
            process_min: AtomicU64::new(u64::MAX),
        }
    }

    /// `usable`: the RAM limit without the margin, 0 without a limit. `other`: the measured memory that is not objects.
    pub fn measured(&self, usable: u64, other: u64) {
        let lent = self.bytes.load(Relaxed);
        self.measured.store(lent, Relaxed);
        let cap = self.cap.load(Relaxed);
        if usable == 0 {
            self.max.store(cap, Relaxed);
            self.ever_max.store(cap, Relaxed);
            return;
        }
        let process = other.saturating_sub(lent as u64);
        let least = self.process_min.fetch_min(process, Relaxed).min(process);
        let half = |process: u64| (usable.saturating_sub(process) / 2) as usize;
        self.max.store(half(process).min(cap), Relaxed);
        self.ever_max.store(half(least).min(cap), Relaxed);
    }

    pub fn set_cap(&self, bytes: usize) {
        self.cap.store(bytes, Relaxed);
        self.max.fetch_min(bytes, Relaxed);
        self.ever_max.fetch_min(bytes, Relaxed);
    }

    /// Lends whether there is room or not: the memory is in use already, or too little to wait for.
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

    /// Lent or wanted bytes that the last measurement does not contain.
    pub fn not_measured(&self) -> u64 {
        let new = self.bytes().saturating_sub(self.measured.load(Relaxed));
        (new + self.wanted()) as u64
    }
}
