//! Owns the Zipf distribution. Never knows keys: it draws whole numbers.
//!
//! Rejection-inversion after W. Hörmann, G. Derflinger, "Rejection-inversion to generate variates from monotone discrete
//! distributions", ACM TOMACS 6 (1996): constant time and memory for any range, for exponents from 0 (uniform) through 1.

use crate::rng::Rng;

/// Draws k in `min..=max` with probability proportional to k⁻ˢ.
#[derive(Clone, Debug)]
pub struct Zipf {
    min: f64,
    max: f64,
    exponent: f64,
    integral_low: f64,
    integral_high: f64,
    /// A candidate this close to its real number is accepted without further arithmetic.
    squeeze: f64,
}

impl Zipf {
    pub fn new(min: u64, max: u64, exponent: f64) -> Zipf {
        assert!(min >= 1);
        assert!(min <= max);
        let (min, max) = (min as f64, max as f64);
        let mut zipf = Zipf { min, max, exponent, integral_low: 0.0, integral_high: 0.0, squeeze: 0.0 };
        zipf.integral_low = zipf.integral(min + 0.5) - zipf.weight(min);
        zipf.integral_high = zipf.integral(max + 0.5);
        let second = zipf.integral(min + 1.5) - zipf.weight(min + 1.0);
        zipf.squeeze = min + 1.0 - zipf.inverse(second);
        zipf
    }

    pub fn draw(&self, rng: &mut Rng) -> u64 {
        loop {
            let u = self.integral_high + rng.unit() * (self.integral_low - self.integral_high);
            let x = self.inverse(u);
            let k = x.round().clamp(self.min, self.max);
            if k - x <= self.squeeze || u >= self.integral(k + 0.5) - self.weight(k) {
                return k as u64;
            }
        }
    }

    /// x⁻ˢ
    fn weight(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// ∫ x⁻ˢ dx = (x¹⁻ˢ − 1) / (1 − s), which tends to ln x at s = 1. Written so that it is exact near s = 1.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let t = (1.0 - self.exponent) * log;
        if t.abs() < 1e-8 { log * (1.0 + t / 2.0) } else { log * t.exp_m1() / t }
    }

    fn inverse(&self, y: f64) -> f64 {
        let t = (y * (1.0 - self.exponent)).max(-1.0);
        if t.abs() < 1e-8 { (y * (1.0 - t / 2.0)).exp() } else { (y * t.ln_1p() / t).exp() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Observed counts against exact probabilities: chi-square is far below the 99.9 % bound for its degrees of
    /// freedom.
    fn check(min: u64, max: u64, exponent: f64) {
        let zipf = Zipf::new(min, max, exponent);
        let mut rng = Rng::new(42);
        let draws = 200_000;
        let mut counts = vec![0u32; (max - min + 1) as usize];
        for _ in 0..draws {
            counts[(zipf.draw(&mut rng) - min) as usize] += 1;
        }
        let weights: Vec<f64> = (min..=max).map(|k| (k as f64).powf(-exponent)).collect();
        let sum: f64 = weights.iter().sum();
        let (mut chi, mut freedom) = (0.0, 0.0);
        let (mut tail_seen, mut tail_expected) = (0.0_f64, 0.0_f64);
        for (weight, &count) in weights.iter().zip(&counts) {
            let expected = weight / sum * f64::from(draws);
            if expected < 20.0 {
                tail_seen += f64::from(count);
                tail_expected += expected;
                continue;
            }
            chi += (f64::from(count) - expected).powi(2) / expected;
            freedom += 1.0;
        }
        if tail_expected > 20.0 {
            chi += (tail_seen - tail_expected).powi(2) / tail_expected;
            freedom += 1.0;
        }
        let bound = freedom + 3.3 * (2.0f64 * freedom).sqrt() + 6.0;
        assert!(chi < bound, "s={exponent} {min}..={max}: chi {chi:.1}, bound {bound:.1}");
    }

    #[test]
    fn follows_the_law_for_exponents_0_to_5() {
        for exponent in [0.0, 0.5, 0.99, 1.0, 1.01, 1.5, 2.0, 3.0, 5.0] {
            check(1, 100, exponent);
        }
    }

    #[test]
    fn the_law_counts_from_the_key_itself_when_the_range_starts_later() {
        check(7, 40, 1.0);
        check(1000, 1050, 2.0);
    }

    #[test]
    fn a_single_key_and_a_huge_range_work() {
        let mut rng = Rng::new(0);
        assert_eq!(Zipf::new(3, 3, 1.0).draw(&mut rng), 3);
        let zipf = Zipf::new(1, 4_000_000_000, 1.0);
        assert!((0..10_000).all(|_| (1..=4_000_000_000).contains(&zipf.draw(&mut rng))));
    }
}
