//! Owns what a replacement policy is. Never knows a policy or a trace.

use bench::report::percent;
use survey::Use;

/// The number of a key.
pub type Key = u32;

/// What a policy knows before the first access.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The number of keys. They are numbered from 0.
    pub keys: usize,
    /// The number of values that RAM has room for, at least 2 and at most `keys`.
    pub ram: usize,
    pub seed: u64,
}

impl Setup {
    /// `part`: the part of the values that RAM has room for, 0 to 1.
    pub fn of(keys: usize, part: f64, seed: u64) -> Setup {
        assert!(keys >= 2);
        Setup { keys, ram: ((keys as f64 * part) as usize).clamp(2, keys), seed }
    }

    /// The part of the values that RAM has room for, as tables show it.
    pub fn part(&self) -> String {
        percent(self.ram as f64 / self.keys as f64)
    }
}

/// Decides which values are in RAM. A new policy has none there.
pub trait Replacement {
    /// A command uses a value. Returns whether the value was in RAM. A value that the command writes is in RAM afterwards, because it
    /// must be written to flash before it may leave. A value that the command only reads may stay on flash.
    fn access(&mut self, key: Key, kind: Use) -> bool;

    /// Whether the value is in RAM.
    fn contains(&self, key: Key) -> bool;
}
