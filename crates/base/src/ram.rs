//! Owns how much RAM a node with flash needs for itself. Never knows a configuration.

/// Measured under load with 1 to 8 workers: 14 MB of code, allocator and dictionary, and 2 MB of page buffers and rings for each worker.
pub const OWN_BYTES: u64 = 16 << 20;
pub const OWN_BYTES_PER_WORKER: u64 = 2 << 20;

/// The smallest RAM limit of a database with flash. A journal and the console need more.
pub fn least_limit(workers: u64) -> u64 {
    OWN_BYTES + workers * OWN_BYTES_PER_WORKER
}
