//! Owns the wall clock, for whoever may read it: what a seed replays gets the time as an argument. Never knows who asks.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970.
pub fn wall_ms() -> u64 {
    since_1970().as_millis() as u64
}

/// Nanoseconds since 1970: enough until 2554.
pub fn wall_nanos() -> u64 {
    since_1970().as_nanos() as u64
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
