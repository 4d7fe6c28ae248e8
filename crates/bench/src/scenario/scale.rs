//! Owns the scale of a scenario: an exact fraction, so that 1/150 of 75,000,000 keys are 500,000. Never knows what is
//! scaled.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};

/// A positive fraction. Parsed from `1/150`, `0.01` or `1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    numerator: u64,
    denominator: u64,
}

/// Larger numbers are typing mistakes, and this bound makes products with key counts fit into 128 bits.
const PART_MAX: u64 = 1_000_000_000_000;

impl Scale {
    pub const ONE: Scale = Scale { numerator: 1, denominator: 1 };

    pub const fn new(numerator: u64, denominator: u64) -> Scale {
        assert!(numerator > 0);
        assert!(denominator > 0);
        Scale { numerator, denominator }
    }

    /// Keys or bytes × F, rounded to the nearest.
    pub fn of(self, count: u64) -> u64 {
        let (numerator, denominator) = (u128::from(self.numerator), u128::from(self.denominator));
        let scaled = (u128::from(count) * numerator + denominator / 2) / denominator;
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    pub fn of_f64(self, value: f64) -> f64 {
        value * self.numerator as f64 / self.denominator as f64
    }
}

impl FromStr for Scale {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Scale> {
        let wanted = "expected a fraction such as 1/150 or a number such as 0.01";
        let (numerator, denominator) = match text.split_once('/') {
            Some((above, below)) => (above.trim().parse().context(wanted)?, below.trim().parse().context(wanted)?),
            None => decimal(text.trim()).context(wanted)?,
        };
        ensure!(numerator > 0 && denominator > 0, "the scale must be above 0");
        ensure!(numerator <= PART_MAX && denominator <= PART_MAX, "the scale has too many digits");
        Ok(Scale { numerator, denominator })
    }
}

/// `0.025` as 25 / 1000.
fn decimal(text: &str) -> Result<(u64, u64)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || whole.len() + fraction.len() == 0 || fraction.len() > 12 {
        bail!("not a number");
    }
    Ok((format!("{whole}{fraction}").parse()?, 10u64.pow(fraction.len() as u32)))
}

impl fmt::Display for Scale {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.denominator == 1 {
            write!(out, "{}", self.numerator)
        } else {
            write!(out, "{}/{}", self.numerator, self.denominator)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(text: &str) -> Scale {
        text.parse().expect(text)
    }

    #[test]
    fn fractions_are_exact() {
        assert_eq!(scale("1/150").of(75_000_000), 500_000);
        assert_eq!(scale("1/150").of(100_000_000_000), 666_666_667);
        assert_eq!(scale("1/3").of(2), 1);
        assert_eq!(scale("2").of(5), 10);
    }

    #[test]
    fn decimals_are_fractions_too() {
        assert_eq!(scale("0.01").of(150_000_000), 1_500_000);
        assert_eq!(scale(".5").of(9), 5);
        assert_eq!(scale("1").of(7), 7);
        assert_eq!(scale("0.01").to_string(), "1/100");
        assert_eq!(scale("1/150").to_string(), "1/150");
    }

    #[test]
    fn malformed_scales_are_refused() {
        for text in ["", "0", "1/0", "0/5", "-1", "1/x", "abc", ".", "1e3", "1/2/3", "0.0000000000001"] {
            assert!(text.parse::<Scale>().is_err(), "{text:?} was taken");
        }
    }
}
