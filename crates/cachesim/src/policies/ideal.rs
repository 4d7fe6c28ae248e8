//! Owns the bound of all policies while the probabilities of keys do not change: the most likely keys are in RAM, and no others.

use survey::Use;

use crate::replacement::{Key, Replacement, Setup};

pub struct Ideal {
    is_in_ram: Vec<bool>,
}

impl Ideal {
    /// `ranking`: all keys, the most likely one first.
    pub fn new(setup: Setup, ranking: &[Key]) -> Ideal {
        let mut is_in_ram = vec![false; setup.keys];
        ranking[..setup.ram].iter().for_each(|key| is_in_ram[*key as usize] = true);
        Ideal { is_in_ram }
    }
}

/// A written value that is unlikely does not come into RAM: this is a bound, and no policy of a store.
impl Replacement for Ideal {
    fn access(&mut self, key: Key, _kind: Use) -> bool {
        self.contains(key)
    }

    fn contains(&self, key: Key) -> bool {
        self.is_in_ram[key as usize]
    }
}
