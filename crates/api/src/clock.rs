//! Owns the time of day, as a function that the parts are given. So a test can move it. Never waits.

use std::sync::Arc;

/// Milliseconds since 1970.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;
