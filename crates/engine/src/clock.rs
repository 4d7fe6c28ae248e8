//! Owns the wall clock. Never knows who asks for it.

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds since 1970. `SystemTime` would cost 60 instructions more, each batch.
pub fn wall_ms() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec.max(0) as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}
