//! Owns the random numbers: xoshiro256++ (Blackman, Vigna 2019) seeded by SplitMix64. The code is our own, so that a
//! seed means the same run in every release. Never knows time or process.

use base::random::{GAMMA, mix};

#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
    /// The second one of a pair of normal samples.
    spare: Option<f64>,
}

impl Rng {
    pub fn new(seed: u64) -> Rng {
        let word = |index: u64| mix(seed.wrapping_add(index.wrapping_mul(GAMMA)));
        Rng { state: [word(0), word(1), word(2), word(3)], spare: None }
    }

    pub fn draw(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in `low..=high`, without bias (Lemire 2019).
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        debug_assert!(low <= high);
        let count = (high - low).wrapping_add(1);
        if count == 0 {
            return self.draw();
        }
        let mut product = u128::from(self.draw()) * u128::from(count);
        if (product as u64) < count {
            let threshold = count.wrapping_neg() % count;
            while (product as u64) < threshold {
                product = u128::from(self.draw()) * u128::from(count);
            }
        }
        low + (product >> 64) as u64
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.draw() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Standard normal, by Marsaglia's polar method.
    pub fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        loop {
            let (u, v) = (2.0 * self.unit() - 1.0, 2.0 * self.unit() - 1.0);
            let s = u * u + v * v;
            if s > 0.0 && s < 1.0 {
                let factor = (-2.0 * s.ln() / s).sqrt();
                self.spare = Some(v * factor);
                return u * factor;
            }
        }
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.draw().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference sequence of xoshiro256++ from the state 1, 2, 3, 4.
    #[test]
    fn matches_the_published_sequence() {
        let mut rng = Rng { state: [1, 2, 3, 4], spare: None };
        let first: Vec<u64> = (0..4).map(|_| rng.draw()).collect();
        assert_eq!(first, [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386]);
    }

    #[test]
    fn a_range_includes_both_ends_and_is_even() {
        let mut rng = Rng::new(1);
        let mut counts = [0u32; 7];
        for _ in 0..70_000 {
            counts[(rng.range(10, 16) - 10) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (9_600..10_400).contains(count)), "{counts:?}");
        assert_eq!(rng.range(5, 5), 5);
    }

    #[test]
    fn normal_samples_have_mean_0_and_variance_1() {
        let mut rng = Rng::new(2);
        let samples: Vec<f64> = (0..100_000).map(|_| rng.normal()).collect();
        let mean = samples.iter().sum::<f64>() / 1e5;
        let variance = samples.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.02, "{mean}");
        assert!((variance - 1.0).abs() < 0.02, "{variance}");
    }
}
