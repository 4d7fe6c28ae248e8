//! Owns the clock by which serving leases are counted. Never knows a lease.

use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A clock that counts while the machine sleeps, in milliseconds. Its beginning means nothing.
#[derive(Clone, Debug, Default)]
pub enum BootClock {
    #[default]
    Machine,
    /// A test's.
    Set(Arc<AtomicU64>),
}

impl BootClock {
    #[inline]
    pub fn now_ms(&self) -> u64 {
        match self {
            BootClock::Machine => {
                let now = clock_gettime(ClockId::Boottime);
                now.tv_sec as u64 * 1_000 + now.tv_nsec as u64 / 1_000_000
            }
            BootClock::Set(now_ms) => now_ms.load(Relaxed),
        }
    }
}
