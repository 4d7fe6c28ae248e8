//! Owns the state of passes that drop copies on flash of values that are in RAM, because flash is full: values that are only there need the
//! room more. The lanes do the work (`lane/copies`).
//!
//! A pass drops no more than is needed for a while: a value without a copy must be written again before it can leave RAM.

use super::hash::STRIPES;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A pass over all stripes that finds little is not repeated sooner.
const VAIN_EVERY_MS: u64 = 1_000;

#[derive(Default)]
pub struct Copies {
    is_running: AtomicBool,
    pass: Mutex<Pass>,
}

#[derive(Default)]
struct Pass {
    /// The next stripe to visit. A pass begins where the last one has ended.
    next: usize,
    /// Stripes that lanes have begun to visit, and those of them that they have visited.
    begun: usize,
    done: usize,
    /// Bytes of values whose copies were dropped, and how many are enough.
    bytes: u64,
    wanted: u64,
    /// The next pass begins then at the earliest.
    due_ms: u64,
}

impl Copies {
    /// Begins a pass for so many bytes of values, if one may begin. Returns whether one is running.
    pub fn begin(&self, wanted: u64, now_ms: u64) -> bool {
        let mut pass = self.pass.lock();
        if !self.is_running.load(Relaxed) && now_ms >= pass.due_ms {
            *pass = Pass { next: pass.next, wanted, ..Pass::default() };
            self.is_running.store(true, Relaxed);
        }
        self.is_running.load(Relaxed)
    }

    /// The next stripe to visit, if a pass is running.
    pub fn next_stripe(&self) -> Option<usize> {
        if !self.is_running.load(Relaxed) {
            return None;
        }
        let mut pass = self.pass.lock();
        if pass.begun == STRIPES || pass.bytes >= pass.wanted {
            return None;
        }
        pass.begun += 1;
        pass.next = (pass.next + 1) % STRIPES;
        Some(pass.next)
    }

    /// A stripe was visited, and copies of so many bytes of values were dropped. Returns whether that was the pass's last one: then the caller
    /// sums the live data, and ends the pass.
    pub fn stripe_done(&self, bytes: u64) -> bool {
        let mut pass = self.pass.lock();
        pass.done += 1;
        pass.bytes += bytes;
        pass.done == pass.begun && (pass.begun == STRIPES || pass.bytes >= pass.wanted)
    }

    pub fn end(&self, now_ms: u64) {
        let mut pass = self.pass.lock();
        if pass.bytes < pass.wanted {
            pass.due_ms = now_ms + VAIN_EVERY_MS;
        }
        self.is_running.store(false, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_ends_when_enough_was_dropped_or_nothing_is_left_and_the_next_one_goes_on() {
        let copies = Copies::default();
        assert_eq!(copies.next_stripe(), None);
        assert!(copies.begin(10, 0));
        let (one, two) = (copies.next_stripe().unwrap(), copies.next_stripe().unwrap());
        assert!(!copies.stripe_done(11), "another lane is at work");
        assert_eq!(copies.next_stripe(), None, "it was enough");
        assert!(copies.stripe_done(0));
        copies.end(0);
        // One that was of use may be followed by another at once.
        assert!(copies.begin(10, 0));
        let mut seen = vec![one, two];
        while let Some(stripe) = copies.next_stripe() {
            seen.push(stripe);
            assert_eq!(copies.stripe_done(0), seen.len() == STRIPES + 2);
        }
        assert_eq!(seen[..2], seen[STRIPES..], "it has gone on behind the first two, and around");
        copies.end(5);
        assert!(!copies.begin(10, 1_004));
        assert!(copies.begin(10, 1_005));
    }
}
