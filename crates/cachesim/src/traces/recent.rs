//! Owns the trace of new keys that are read while they are recent. Never knows a policy.

use bench::Rng;
use bench::report::grouped;
use survey::Use;

use super::{NewPolicy, Trace};
use crate::replacement::{Key, Setup};
use crate::run::Run;

/// The mean age of a key when it is read: the number of keys that were written after it, in parts of RAM.
const MEAN_AGES: [f64; 4] = [0.02, 0.1, 0.3, 0.6];
const READS_PER_WRITE: usize = 3;

/// Keys are written once, one after the other. After each write come reads of keys whose ages are distributed exponentially.
pub struct Recent(pub Setup);

impl Recent {
    /// The hit ratio after half of the keys were written.
    fn hit_ratio(&self, mean_age: f64, new_policy: NewPolicy) -> f64 {
        let Setup { keys, ram, seed } = self.0;
        let (mut run, mut rng) = (Run::new(new_policy(self.0)), Rng::new(seed));
        for key in 0..keys {
            if key == keys / 2 {
                run.hit_ratio();
            }
            run.access(key as Key, Use::Overwrite);
            for _ in 0..READS_PER_WRITE {
                let age = -(1.0 - rng.unit()).ln() * mean_age * ram as f64;
                if let Some(read) = key.checked_sub(age as usize) {
                    run.access(read as Key, Use::Read);
                }
            }
        }
        run.hit_ratio()
    }
}

impl Trace for Recent {
    fn title(&self) -> String {
        format!("Hit ratio of reads of recent keys: {} keys, RAM for {}", grouped(self.0.keys as f64), self.0.part())
    }

    fn columns(&self) -> Vec<String> {
        MEAN_AGES.map(|age| format!("mean age {age} × RAM")).to_vec()
    }

    fn measure(&self, new_policy: NewPolicy) -> Vec<f64> {
        MEAN_AGES.map(|age| self.hit_ratio(age, new_policy)).to_vec()
    }
}
