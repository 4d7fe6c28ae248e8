//! Owns traces whose keys are drawn by the normal distribution of the published scenario `rof-replicated` (docs/scenarios.md), at the scale
//! of the setup. Never knows a policy.

use std::ops::Range;

use bench::report::grouped;
use bench::{KeyPattern, KeySpace, Keys, Rng};

use super::{NewPolicy, Trace};
use crate::replacement::{Key, Setup};
use crate::run::{Mix, Run};

/// The scenario's figures, in keys.
const KEYS: f64 = 75e6;
const STDDEV: f64 = 5.125e6;
const CENTRALISED: Range<f64> = 27.25e6..47.75e6;

/// A round has as many accesses as there are keys.
const ROUNDS: usize = 6;
const SHOWN_ROUNDS: [usize; 3] = [1, 2, ROUNDS];

/// The scenario itself: every key is written, the middle keys are read once in order, and then reads and writes come 1:1.
pub struct Published(pub Setup);

impl Published {
    pub const CENTRALISED: usize = 0;
    /// The column of the last round's hit ratio.
    pub const STEADY: usize = SHOWN_ROUNDS.len();
}

impl Trace for Published {
    fn title(&self) -> String {
        format!("rof-replicated: {} keys, RAM for {}", grouped(self.0.keys as f64), self.0.part())
    }

    fn columns(&self) -> Vec<String> {
        let rounds = SHOWN_ROUNDS.map(|round| format!("hit ratio, round {round}"));
        std::iter::once(String::from("centralised in RAM")).chain(rounds).collect()
    }

    fn ranking(&self) -> Option<Vec<Key>> {
        Some(from_the_middle(self.0.keys))
    }

    fn measure(&self, new_policy: NewPolicy) -> Vec<f64> {
        let setup = self.0;
        let mut run = Run::populated(new_policy(setup), setup);
        let scaled = |key: f64| (key / KEYS * setup.keys as f64) as usize;
        let centralised = scaled(CENTRALISED.start)..scaled(CENTRALISED.end);
        run.read(centralised.start as Key..centralised.end as Key);
        let fitting = middle(setup.keys, centralised.len().min(setup.ram));
        let mut shares = vec![run.in_ram(fitting)];
        run.hit_ratio();
        let (mut keys, mut rng) = (gaussian(setup.keys), Rng::new(setup.seed));
        for round in 1..=ROUNDS {
            run.load(setup.keys, &mut keys, Mix::Half, &mut rng, |key| key as Key);
            let hit_ratio = run.hit_ratio();
            if SHOWN_ROUNDS.contains(&round) {
                shares.push(hit_ratio);
            }
        }
        shares
    }
}

/// The hot set is the middle of the keys, as large as this part of RAM, in percent.
const HOT_PERCENT: usize = 90;
/// Rounds of the load before the scan.
const ROUNDS_BEFORE: usize = 4;

/// Under the scenario's load, every key is read once in order.
pub struct Scan(pub Setup);

impl Scan {
    pub const HOT_BEFORE: usize = 0;
    pub const HOT_AFTER: usize = 1;
    pub const HITS_BEFORE: usize = 2;
    pub const HITS_AFTER: usize = 3;
}

impl Trace for Scan {
    fn title(&self) -> String {
        format!("A scan of all {} keys by GET, RAM for {}", grouped(self.0.keys as f64), self.0.part())
    }

    fn columns(&self) -> Vec<String> {
        ["hot set in RAM before", "after", "hit ratio before", "after"].map(String::from).to_vec()
    }

    fn ranking(&self) -> Option<Vec<Key>> {
        Some(from_the_middle(self.0.keys))
    }

    fn measure(&self, new_policy: NewPolicy) -> Vec<f64> {
        let setup = self.0;
        let mut run = Run::populated(new_policy(setup), setup);
        let (mut keys, mut rng) = (gaussian(setup.keys), Rng::new(setup.seed));
        let hot = middle(setup.keys, setup.ram * HOT_PERCENT / 100);
        let mut hit_ratio = |run: &mut Run, accesses| {
            run.hit_ratio();
            run.load(accesses, &mut keys, Mix::Half, &mut rng, |key| key as Key);
            run.hit_ratio()
        };
        hit_ratio(&mut run, setup.keys * ROUNDS_BEFORE);
        let hits_before = hit_ratio(&mut run, setup.keys / 4);
        let hot_before = run.in_ram(hot.clone());
        run.read(0..setup.keys as Key);
        let hot_after = run.in_ram(hot);
        vec![hot_before, hot_after, hits_before, hit_ratio(&mut run, setup.keys / 4)]
    }
}

fn gaussian(keys: usize) -> Keys {
    let space =
        KeySpace { min: 0, max: keys as u64 - 1, stddev: Some(STDDEV / KEYS * keys as f64), ..KeySpace::default() };
    Keys::new(KeyPattern::Gaussian, &space, 0, 1)
}

/// So many keys around the centre.
fn middle(keys: usize, count: usize) -> Range<Key> {
    let from = (keys - count) / 2;
    from as Key..(from + count) as Key
}

/// All keys by their distance to the centre.
fn from_the_middle(keys: usize) -> Vec<Key> {
    let mut ranking: Vec<Key> = (0..keys as Key).collect();
    ranking.sort_by_key(|&key| (2 * i64::from(key) - (keys as i64 - 1)).abs());
    ranking
}
