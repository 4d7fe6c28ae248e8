//! Owns how the use of keys decides which share of the reads a RAM answers: by Zipf's law, or as it was measured. Pure functions.

/// Larger exponents make no difference: one key takes nearly all reads.
pub(crate) const SKEW_MAX: f64 = 5.0;
/// Ranks up to here are weighed one by one, later ones in groups that grow by a twentieth.
const SINGLE_RANKS: u64 = 100;
const GROUP_GROWTH: f64 = 1.05;
/// How finely, and up to where, a skew is sought that continues a curve.
const SKEW_STEP: f64 = 0.02;
const FITTED_SKEW_MAX: f64 = 2.0;

/// How evenly keys are used.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// The exponent of Zipf's law: key number k is read in proportion to 1 ÷ k^skew. 0: all keys alike.
    Skew(f64),
    Measured(Curve),
}

/// A measured hit ratio by the number of values in RAM.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// Numbers of values with their hit ratios, both ascending.
    points: Vec<(f64, f64)>,
}

impl Curve {
    /// `points`: numbers of values with their hit ratios, both ascending.
    pub fn new(points: Vec<(f64, f64)>) -> Curve {
        Curve { points }
    }

    pub fn points(&self) -> &[(f64, f64)] {
        &self.points
    }

    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// The largest number of values of which the curve tells something, and its hit ratio.
    pub fn end(&self) -> (f64, f64) {
        self.points.last().copied().unwrap_or_default()
    }

    /// `None`: more values than were seen.
    pub fn hit_ratio(&self, values: f64) -> Option<f64> {
        let at = self.points.partition_point(|&(size, _)| size < values);
        let &(size, ratio) = self.points.get(at)?;
        let (before, ratio_before) = if at == 0 { (0.0, 0.0) } else { self.points[at - 1] };
        Some(ratio_before + (ratio - ratio_before) * (values - before) / (size - before))
    }
}

/// Which share of the reads RAM answers.
pub(crate) enum Reads {
    Skewed(Ranks),
    /// Beyond the end of the curve it goes on as this law does.
    Measured {
        curve: Curve,
        beyond: Ranks,
        keys: f64,
    },
}

impl Reads {
    pub(crate) fn new(keys: u64, pattern: &Pattern) -> Reads {
        match pattern {
            Pattern::Skew(skew) => Reads::Skewed(Ranks::new(keys, *skew)),
            Pattern::Measured(curve) => Reads::Measured {
                curve: curve.clone(),
                beyond: Ranks::new(keys, fitted(curve, keys)),
                keys: keys as f64,
            },
        }
    }

    pub(crate) fn hit_ratio(&self, ram_share: f64) -> f64 {
        match self {
            Reads::Skewed(ranks) => ranks.hit_ratio(ram_share),
            Reads::Measured { .. } if ram_share >= 1.0 => 1.0,
            Reads::Measured { curve, beyond, keys } => curve.hit_ratio(ram_share * keys).unwrap_or_else(|| {
                let (end, ratio) = curve.end();
                let missed_at_end = 1.0 - beyond.hit_ratio(end / keys);
                let missed = 1.0 - beyond.hit_ratio(ram_share);
                1.0 - (1.0 - ratio) * if missed_at_end > 0.0 { missed / missed_at_end } else { 1.0 }
            }),
        }
    }

    /// The least share of the values.
    pub(crate) fn share_for(&self, hit_ratio: f64) -> f64 {
        match self {
            _ if hit_ratio >= 1.0 => 1.0,
            Reads::Skewed(ranks) => ranks.share_for(hit_ratio),
            Reads::Measured { .. } => {
                let (mut low, mut high) = (0.0f64, 1.0f64);
                for _ in 0..40 {
                    let middle = (low + high) / 2.0;
                    if self.hit_ratio(middle) < hit_ratio { low = middle } else { high = middle }
                }
                high
            }
        }
    }
}

/// The skew whose law is nearest to a curve.
pub fn fitted(curve: &Curve, keys: u64) -> f64 {
    // Some points tell as much as all.
    let some: Vec<(f64, f64)> = curve.points.iter().rev().step_by(8).take(6).copied().collect();
    let distance = |skew: f64| {
        let ranks = Ranks::new(keys, skew);
        some.iter().map(|&(values, ratio)| (ranks.hit_ratio(values / keys as f64) - ratio).powi(2)).sum::<f64>()
    };
    let skews = (0..=(FITTED_SKEW_MAX / SKEW_STEP).round() as u32).map(|step| f64::from(step) * SKEW_STEP);
    let best = skews.map(|skew| (skew, distance(skew))).min_by(|one, other| one.1.total_cmp(&other.1));
    best.map_or(0.0, |(skew, _)| skew)
}

/// How the reads spread over the keys: groups of keys that are read equally often.
///
/// Which values are in RAM follows the approximation of H. Che, Y. Tung, Z. Wang, "Hierarchical Web Caching Systems", IEEE JSAC 20 (2002): a
/// value is in RAM if it was used within a characteristic time, the same for all keys. Measured hit ratios lie within 1.5 points of it
/// (docs/operations.md).
pub(crate) struct Ranks {
    /// How many keys, and how often one of them is read, of all reads.
    groups: Vec<(f64, f64)>,
    keys: f64,
}

impl Ranks {
    fn new(keys: u64, skew: f64) -> Ranks {
        let mut groups = Vec::new();
        let mut rank = 1;
        while rank <= keys {
            let grown = if rank <= SINGLE_RANKS { rank } else { (rank as f64 * GROUP_GROWTH) as u64 };
            let last = grown.clamp(rank, keys);
            let count = (last - rank + 1) as f64;
            let weight = match last == rank {
                true => (rank as f64).powf(-skew),
                false => integral(rank as f64 - 0.5, last as f64 + 0.5, skew) / count,
            };
            groups.push((count, weight));
            rank = last + 1;
        }
        let all: f64 = groups.iter().map(|(count, weight)| count * weight).sum();
        groups.iter_mut().for_each(|(_, weight)| *weight /= all);
        Ranks { groups, keys: keys as f64 }
    }

    /// Share of the keys, and of the reads, that a characteristic time of so many reads keeps in RAM.
    fn kept(&self, time: f64) -> (f64, f64) {
        let (mut keys, mut reads) = (0.0, 0.0);
        for &(count, weight) in &self.groups {
            let is_in_ram = -(-weight * time).exp_m1();
            keys += count * is_in_ram;
            reads += count * weight * is_in_ram;
        }
        (keys / self.keys, reads)
    }

    fn hit_ratio(&self, ram_share: f64) -> f64 {
        if ram_share >= 1.0 { 1.0 } else { self.kept(self.time(|kept| kept.0 < ram_share)).1 }
    }

    fn share_for(&self, hit_ratio: f64) -> f64 {
        if hit_ratio >= 1.0 { 1.0 } else { self.kept(self.time(|kept| kept.1 < hit_ratio)).0 }
    }

    /// The time up to which what is kept is too little. Bisection of its logarithm: the rarest of 10^12 keys with skew 5 is read once
    /// in 10^60 reads.
    fn time(&self, is_too_little: impl Fn((f64, f64)) -> bool) -> f64 {
        let (mut low, mut high) = (-10.0f64, 150.0f64);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if is_too_little(self.kept(middle.exp())) { low = middle } else { high = middle }
        }
        high.exp()
    }
}

/// ∫ x⁻ˢ dx between two ranks.
fn integral(from: f64, to: f64, skew: f64) -> f64 {
    let power = 1.0 - skew;
    if power.abs() < 1e-9 { (to / from).ln() } else { (to.powf(power) - from.powf(power)) / power }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A curve as a law has it, up to a number of values.
    fn curve(keys: u64, skew: f64, upto: f64) -> Curve {
        let ranks = Ranks::new(keys, skew);
        let sizes = (0..).map(|step| f64::from(step / 4).exp2() * (1.0 + f64::from(step % 4) / 4.0));
        Curve::new(
            sizes.take_while(|&size| size <= upto).map(|size| (size, ranks.hit_ratio(size / keys as f64))).collect(),
        )
    }

    #[test]
    fn a_curve_is_straight_between_its_points() {
        let curve = Curve::new(vec![(2.0, 0.2), (4.0, 0.6)]);
        let near = |values: f64, expected: f64| {
            let found = curve.hit_ratio(values).expect("it is measured");
            assert!((found - expected).abs() < 1e-9, "{values}: {found}");
        };
        near(0.0, 0.0);
        near(1.0, 0.1);
        near(3.0, 0.4);
        near(4.0, 0.6);
        assert_eq!((curve.hit_ratio(4.1), curve.end(), curve.is_empty()), (None, (4.0, 0.6), false));
        assert_eq!(Curve::default().hit_ratio(0.0), None);
    }

    #[test]
    fn a_short_curve_goes_on_as_the_law_that_is_nearest() {
        for skew in [0.0, 0.5, 0.8, 1.0, 1.2] {
            let (keys, short) = (1_000_000, curve(1_000_000, skew, 20_000.0));
            assert!((fitted(&short, keys) - skew).abs() < 0.03, "skew {skew}: {}", fitted(&short, keys));
            let (law, measured) = (Reads::new(keys, &Pattern::Skew(skew)), Reads::new(keys, &Pattern::Measured(short)));
            for share in [0.0, 0.001, 0.01, 0.02, 0.1, 0.3, 0.9, 1.0] {
                let (expected, found) = (law.hit_ratio(share), measured.hit_ratio(share));
                assert!((found - expected).abs() < 0.01, "skew {skew}, share {share}: {found} instead of {expected}");
            }
            for hit_ratio in [0.1, 0.5, 0.9] {
                let share = measured.share_for(hit_ratio);
                assert!((measured.hit_ratio(share) - hit_ratio).abs() < 0.001, "skew {skew}, {hit_ratio}");
            }
            assert_eq!((measured.share_for(1.0), measured.hit_ratio(1.0)), (1.0, 1.0));
        }
    }

    #[test]
    fn all_reads_within_the_curve_leave_nothing_to_miss() {
        let full = Reads::new(1000, &Pattern::Measured(Curve::new(vec![(10.0, 1.0)])));
        assert_eq!((full.hit_ratio(0.01), full.hit_ratio(0.5), full.hit_ratio(1.0)), (1.0, 1.0, 1.0));
        // More values were used than there are now.
        let more = Reads::new(5, &Pattern::Measured(Curve::new(vec![(4.0, 0.5), (8.0, 0.75)])));
        assert!(more.hit_ratio(0.8) <= more.hit_ratio(0.99) && more.hit_ratio(1.0) == 1.0);
    }
}
