//! Owns traces whose keys are drawn by Zipf's law. Never knows a policy.

use bench::report::grouped;
use bench::{KeyPattern, KeySpace, Keys, Rng};

use super::{NewPolicy, Trace};
use crate::hand::shuffled;
use crate::replacement::{Key, Setup};
use crate::run::{Mix, Run};

const EXPONENTS: [f64; 4] = [0.7, 0.9, 1.0, 1.1];
const MIXES: [Mix; 2] = [Mix::Reads, Mix::Half];
/// Accesses per key before hits are counted, for one more access per key.
const ROUNDS_BEFORE: usize = 4;

/// Every key is written, then the load begins.
pub struct Zipf(pub Setup);

impl Zipf {
    /// The keys by rank. Rank and number of a key have nothing to do with each other.
    fn by_rank(&self) -> Vec<Key> {
        shuffled(self.0.keys, &mut Rng::new(self.0.seed.wrapping_add(1)))
    }
}

impl Trace for Zipf {
    fn title(&self) -> String {
        format!("Hit ratio under Zipf's law: {} keys, RAM for {}", grouped(self.0.keys as f64), self.0.part())
    }

    fn columns(&self) -> Vec<String> {
        let name = |mix| if mix == Mix::Reads { "reads" } else { "1:1" };
        MIXES.iter().flat_map(|&mix| EXPONENTS.map(|exponent| format!("{exponent:.1}, {}", name(mix)))).collect()
    }

    fn ranking(&self) -> Option<Vec<Key>> {
        Some(self.by_rank())
    }

    fn measure(&self, new_policy: NewPolicy) -> Vec<f64> {
        let (setup, by_rank) = (self.0, self.by_rank());
        let hit_ratio = |exponent, mix| {
            let space = KeySpace { min: 1, max: setup.keys as u64, zipf_exponent: exponent, ..KeySpace::default() };
            let (mut keys, mut rng) = (Keys::new(KeyPattern::Zipf, &space, 0, 1), Rng::new(setup.seed));
            let of = |rank: u64| by_rank[rank as usize - 1];
            let mut run = Run::populated(new_policy(setup), setup);
            run.load(setup.keys * ROUNDS_BEFORE, &mut keys, mix, &mut rng, of);
            run.hit_ratio();
            run.load(setup.keys, &mut keys, mix, &mut rng, of);
            run.hit_ratio()
        };
        MIXES.iter().flat_map(|&mix| EXPONENTS.map(|exponent| hit_ratio(exponent, mix))).collect()
    }
}
