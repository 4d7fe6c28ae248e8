//! Owns the wall clock. Never knows who asks for it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970.
pub fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
