//! Owns estimates of how often keys were used: a count-min sketch (Cormode and Muthukrishnan, 2005) that forgets. Never knows who asks.

use base::random::mix;

use crate::replacement::Key;

const ROWS: usize = 4;
/// What four bits hold.
const COUNT_MAX: u8 = 15;
/// Counters in a row, for each value in RAM.
const COUNTERS_PER_VALUE: usize = 4;
/// After so many additions for each value in RAM, all counts are halved.
const ADDITIONS_PER_VALUE: usize = 10;

pub struct Sketch {
    rows: [Vec<u8>; ROWS],
    additions: usize,
    additions_max: usize,
}

impl Sketch {
    pub fn new(ram: usize) -> Sketch {
        let row = vec![0; (ram * COUNTERS_PER_VALUE).next_power_of_two()];
        Sketch { rows: std::array::from_fn(|_| row.clone()), additions: 0, additions_max: ram * ADDITIONS_PER_VALUE }
    }

    /// The smallest of the key's counters. Other keys that share them can only make it larger.
    pub fn estimate(&self, key: Key) -> u8 {
        let counts = self.rows.iter().enumerate().map(|(row, counts)| counts[place(row, key, counts.len())]);
        counts.min().expect("there are rows")
    }

    /// Counts a use in the smallest counters only, which makes the estimates of other keys more exact.
    pub fn add(&mut self, key: Key) {
        let estimate = self.estimate(key);
        if estimate == COUNT_MAX {
            return;
        }
        for (row, counts) in self.rows.iter_mut().enumerate() {
            let at = place(row, key, counts.len());
            let count = &mut counts[at];
            *count = (*count).max(estimate + 1);
        }
        self.additions += 1;
        if self.additions == self.additions_max {
            self.rows.iter_mut().flatten().for_each(|count| *count /= 2);
            self.additions /= 2;
        }
    }
}

/// `len` is a power of two.
fn place(row: usize, key: Key, len: usize) -> usize {
    mix((row as u64) << 32 | u64::from(key)) as usize & (len - 1)
}
