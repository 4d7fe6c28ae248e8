//! Owns how much RAM a node with flash needs for itself. Never knows a configuration.

/// Measured under load with 1 to 8 workers: 14 MB of code, allocator and dictionary, and 2 MB of page buffers and rings for each worker.
pub const OWN_BYTES: u64 = 16 << 20;
pub const OWN_BYTES_PER_WORKER: u64 = 2 << 20;

/// What the process takes, besides the workers, after it has served a load: measured 31 MB in total with 2 workers, at
/// limits of 80 and of 130 MB. At a limit into which this does not fit, other memory becomes smaller, so it is not the
/// minimum.
pub const LOADED_BYTES: u64 = 26 << 20;

/// Additional RAM of a database that survives restarts: the journal's ring, the records that its writer holds, and the
/// buffers of a checkpoint. Measured with 2 and 8 workers under writes and checkpoints: 4 MB with values of 1 KB, and 8 MB
/// with values of 20 KB. A restart takes less.
pub const JOURNAL_BYTES: u64 = 8 << 20;

/// Additional RAM that the console needs. Measured: 4 MB at rest, 8 MB during a login.
pub const CONSOLE_BYTES: u64 = 12 << 20;

/// The smallest RAM limit of a database with flash. A journal and the console need more.
pub fn least_limit(workers: u64) -> u64 {
    OWN_BYTES + workers * OWN_BYTES_PER_WORKER
}
