//! Owns the choice of key numbers: the patterns R, S, P, G and Z. Never knows prefixes or commands.

use crate::config::{KeyPattern, KeySpace};
use crate::rng::Rng;
use crate::zipf::Zipf;

/// One cursor over the key range. Each connection has one for its SETs, one for its GETs, and one for every
/// `--command`.
#[derive(Clone, Debug)]
pub enum Keys {
    Uniform { min: u64, max: u64 },
    Cursor { next: u64, first: u64, last: u64 },
    Gaussian { min: f64, max: f64, median: f64, stddev: f64 },
    Zipf(Zipf),
}

impl Keys {
    /// The cursor of the `index`-th of `count` connections.
    pub fn new(pattern: KeyPattern, space: &KeySpace, index: u64, count: u64) -> Keys {
        let (min, max) = (space.min, space.max);
        match pattern {
            KeyPattern::Random => Keys::Uniform { min, max },
            KeyPattern::Sequential => Keys::Cursor { next: min, first: min, last: max },
            KeyPattern::Parallel => {
                let (first, last) = space.part(index, count);
                Keys::Cursor { next: first, first, last }
            }
            KeyPattern::Gaussian => {
                let range = (max - min) as f64;
                let stddev = space.stddev.unwrap_or(range / 6.0);
                let median = space.median.unwrap_or(min as f64 + range / 2.0);
                Keys::Gaussian { min: min as f64, max: max as f64, median, stddev }
            }
            KeyPattern::Zipf => Keys::Zipf(Zipf::new(min.max(1), max, space.zipf_exponent)),
        }
    }

    pub fn next(&mut self, rng: &mut Rng) -> u64 {
        match self {
            Keys::Uniform { min, max } => rng.range(*min, *max),
            Keys::Cursor { next, first, last } => {
                let key = *next;
                *next = if key == *last { *first } else { key + 1 };
                key
            }
            // The median lies within the range, so at least a quarter of the draws are accepted if the deviation is
            // below the range's size. A much larger deviation approaches the uniform pattern, and becomes slow.
            Keys::Gaussian { min, max, median, stddev } => loop {
                let key = (*median + *stddev * rng.normal()).round();
                if key >= *min && key <= *max {
                    return key as u64;
                }
            },
            Keys::Zipf(zipf) => zipf.draw(rng),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(min: u64, max: u64) -> KeySpace {
        KeySpace { min, max, ..KeySpace::default() }
    }

    fn draw(keys: &mut Keys, seed: u64, count: usize) -> Vec<u64> {
        let mut rng = Rng::new(seed);
        (0..count).map(|_| keys.next(&mut rng)).collect()
    }

    #[test]
    fn sequential_walks_the_whole_range_and_starts_again() {
        let mut keys = Keys::new(KeyPattern::Sequential, &space(3, 6), 1, 2);
        assert_eq!(draw(&mut keys, 0, 6), [3, 4, 5, 6, 3, 4]);
    }

    #[test]
    fn parallel_parts_are_even_disjoint_and_the_last_takes_the_remainder() {
        let parts: Vec<(u64, u64)> = (0..3).map(|index| space(1, 11).part(index, 3)).collect();
        assert_eq!(parts, [(1, 3), (4, 6), (7, 11)]);
        let mut last = Keys::new(KeyPattern::Parallel, &space(1, 11), 2, 3);
        assert_eq!(draw(&mut last, 0, 7), [7, 8, 9, 10, 11, 7, 8]);
    }

    #[test]
    fn random_takes_every_key_of_the_range_and_no_other() {
        let drawn = draw(&mut Keys::new(KeyPattern::Random, &space(10, 19), 0, 1), 7, 10_000);
        for key in 10..=19 {
            let count = drawn.iter().filter(|&&k| k == key).count();
            assert!((850..1150).contains(&count), "{key}: {count}");
        }
        assert!(drawn.iter().all(|key| (10..=19).contains(key)));
    }

    #[test]
    fn gaussian_defaults_to_the_centre_and_a_sixth_of_the_range() {
        let drawn = draw(&mut Keys::new(KeyPattern::Gaussian, &space(1000, 7000), 0, 1), 7, 100_000);
        assert!(drawn.iter().all(|key| (1000..=7000).contains(key)));
        let mean = drawn.iter().sum::<u64>() as f64 / 1e5;
        assert!((mean - 4000.0).abs() < 15.0, "{mean}");
        let within = drawn.iter().filter(|&&key| (3000..=5000).contains(&key)).count() as f64 / 1e5;
        // 68.27 % lie within one deviation; 99.73 % are not drawn again.
        assert!((within - 0.6845).abs() < 0.006, "{within}");
    }

    #[test]
    fn gaussian_redraws_keys_outside_the_range() {
        let edge = KeySpace { median: Some(1000.0), stddev: Some(500.0), ..space(1000, 2000) };
        let drawn = draw(&mut Keys::new(KeyPattern::Gaussian, &edge, 0, 1), 7, 50_000);
        assert!(drawn.iter().all(|key| (1000..=2000).contains(key)));
        let near = drawn.iter().filter(|&&key| key <= 1500).count() as f64 / 5e4;
        // Of a half normal distribution cut at two deviations, 0.3413 / 0.4772 lie within the first.
        assert!((near - 0.7153).abs() < 0.01, "{near}");
    }

    #[test]
    fn zipf_leaves_out_key_0() {
        let drawn = draw(&mut Keys::new(KeyPattern::Zipf, &space(0, 3), 0, 1), 7, 1000);
        assert!(drawn.iter().all(|key| (1..=3).contains(key)));
        assert!(drawn.iter().filter(|&&key| key == 1).count() > 480);
    }
}
