//! Owns the trace of a hot set that moves. Never knows a policy.

use bench::report::{grouped, percent};

use super::{NewPolicy, Trace};
use crate::replacement::{Key, Setup};
use crate::run::Run;

/// The size of a hot set, in percent of RAM.
const SET_PERCENT: usize = 80;
const MOVES: usize = 8;
/// The new set is looked at after so many passes. After the last one, the set moves again.
const PASSES: [usize; 3] = [2, 4, 8];

/// Every key is written. Then all keys of a hot set are read in sequence, several times, and then only those of another set.
pub struct Moving(pub Setup);

impl Moving {
    pub const AFTER_4_READS: usize = 1;

    /// The number of keys in a set.
    fn set(&self) -> usize {
        let Setup { keys, ram, .. } = self.0;
        (ram * SET_PERCENT / 100).clamp(1, keys / 2)
    }
}

impl Trace for Moving {
    fn title(&self) -> String {
        let Setup { keys, ram, .. } = self.0;
        let (keys, set) = (keys as f64, percent(self.set() as f64 / ram as f64));
        format!("A hot set of {set} of RAM moves: {} keys, RAM for {}", grouped(keys), self.0.part())
    }

    fn columns(&self) -> Vec<String> {
        PASSES.map(|passes| format!("in RAM after {passes} reads of each")).to_vec()
    }

    /// The means of all moves.
    fn measure(&self, new_policy: NewPolicy) -> Vec<f64> {
        let set = self.set();
        let mut run = Run::populated(new_policy(self.0), self.0);
        let mut sums = [0.0; PASSES.len()];
        for number in 0..=MOVES {
            let from = number % (self.0.keys / set) * set;
            let keys = from as Key..(from + set) as Key;
            let mut done = 0;
            for (sum, passes) in sums.iter_mut().zip(PASSES) {
                (done..passes).for_each(|_| run.read(keys.clone()));
                done = passes;
                // The first set does not come from another one.
                *sum += if number > 0 { run.in_ram(keys.clone()) } else { 0.0 };
            }
        }
        sums.map(|sum| sum / MOVES as f64).to_vec()
    }
}
