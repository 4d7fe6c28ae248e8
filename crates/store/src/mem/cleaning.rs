//! Owns the state of a cleaning: a pass over all values that gives each value that is in RAM only a copy on flash. The
//! values stay in RAM. A checkpoint that follows names the places of the copies and need not repeat their bytes. The
//! lanes do the work (`lane/clean`).
//!
//! A copy takes room on flash that later data may need, so a pass writes at most a given number of bytes.

use super::hash::STRIPES;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed};

pub struct Cleaning {
    /// The next stripe to clean. [`STRIPES`]: no pass, or its last stripes are being cleaned.
    next: AtomicUsize,
    /// Stripes that are cleaned.
    done: AtomicUsize,
    /// Bytes that may still be written.
    left: AtomicI64,
    /// Bytes of the values that are being written to flash.
    pub writing: AtomicUsize,
}

impl Default for Cleaning {
    fn default() -> Cleaning {
        Cleaning {
            next: AtomicUsize::new(STRIPES),
            done: AtomicUsize::new(STRIPES),
            left: AtomicI64::new(0),
            writing: AtomicUsize::new(0),
        }
    }
}

impl Cleaning {
    /// Begins a pass that may write this many bytes.
    pub fn begin(&self, bytes: i64) {
        self.left.store(bytes, Relaxed);
        if bytes > 0 {
            self.done.store(0, Relaxed);
            self.next.store(0, Relaxed);
        }
    }

    /// Ends the pass: the remaining stripes are not cleaned.
    pub fn stop(&self) {
        self.left.store(0, Relaxed);
    }

    pub fn is_done(&self) -> bool {
        self.done.load(Relaxed) >= STRIPES && self.writing.load(Relaxed) == 0
    }

    pub fn next_stripe(&self) -> Option<usize> {
        if self.next.load(Relaxed) >= STRIPES {
            return None;
        }
        Some(self.next.fetch_add(1, Relaxed)).filter(|&stripe| stripe < STRIPES)
    }

    pub fn stripe_done(&self) {
        self.done.fetch_add(1, Relaxed);
    }

    /// Counts a value that is being written.
    pub fn took(&self, bytes: usize) {
        self.writing.fetch_add(bytes, Relaxed);
        self.left.fetch_sub(bytes as i64, Relaxed);
    }

    pub fn has_room(&self) -> bool {
        self.left.load(Relaxed) > 0
    }
}
