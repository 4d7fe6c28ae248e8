//! Owns a policy while a trace runs on it: counts its hits. Never knows which policy and which trace.

use bench::{Keys, Rng};
use survey::Use;

use crate::replacement::{Key, Replacement, Setup};

/// Which accesses a load makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    Reads,
    /// Reads and writes alike.
    Half,
}

pub struct Run {
    policy: Box<dyn Replacement>,
    reads: u64,
    hits: u64,
}

impl Run {
    pub fn new(policy: Box<dyn Replacement>) -> Run {
        Run { policy, reads: 0, hits: 0 }
    }

    /// Every key is written once, in order.
    pub fn populated(policy: Box<dyn Replacement>, setup: Setup) -> Run {
        let mut run = Run::new(policy);
        (0..setup.keys as Key).for_each(|key| run.access(key, Use::Overwrite));
        run
    }

    pub fn access(&mut self, key: Key, kind: Use) {
        let was_in_ram = self.policy.access(key, kind);
        if kind != Use::Overwrite {
            self.reads += 1;
            self.hits += u64::from(was_in_ram);
        }
    }

    pub fn read(&mut self, keys: std::ops::Range<Key>) {
        keys.for_each(|key| self.access(key, Use::Read));
    }

    /// Random accesses. `of` makes a key of a drawn number.
    pub fn load(&mut self, accesses: usize, keys: &mut Keys, mix: Mix, rng: &mut Rng, of: impl Fn(u64) -> Key) {
        for _ in 0..accesses {
            let key = of(keys.next(rng));
            let writes = mix == Mix::Half && rng.range(0, 1) == 0;
            self.access(key, if writes { Use::Overwrite } else { Use::Read });
        }
    }

    /// The share of the reads since the last call whose value was in RAM.
    pub fn hit_ratio(&mut self) -> f64 {
        let ratio = self.hits as f64 / self.reads.max(1) as f64;
        (self.reads, self.hits) = (0, 0);
        ratio
    }

    /// The share of these values that is in RAM.
    pub fn in_ram(&self, keys: std::ops::Range<Key>) -> f64 {
        let count = keys.len();
        keys.filter(|&key| self.policy.contains(key)).count() as f64 / count as f64
    }
}
