//! Owns the model of access patterns: which share of the reads is served from RAM of a given size, by Zipf's law or by
//! measurement. Pure functions.

/// Larger exponents make no difference: one key takes nearly all reads.
pub(crate) const SKEW_MAX: f64 = 5.0;
/// Ranks up to here are computed individually, later ones in groups whose size grows by a twentieth.
const SINGLE_RANKS: u64 = 100;
const GROUP_GROWTH: f64 = 1.05;
/// The step, and the upper end, of the search for a skew that continues a curve.
const SKEW_STEP: f64 = 0.02;
const FITTED_SKEW_MAX: f64 = 2.0;

/// How the uses are distributed over the keys.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// The exponent of Zipf's law: key number k is read in proportion to 1 ÷ k^skew. 0: all keys alike.
    Skew(f64),
    Measured(Curve),
}

/// The measurement for one number of values in RAM.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    pub values: f64,
    pub hit_ratio: f64,
    /// The number of values in RAM that have no copy on flash, because they were written since they came to RAM.
    pub uncopied: f64,
}

/// Measured hit ratios by the number of values in RAM.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// All numbers ascending.
    points: Vec<Point>,
}

impl Curve {
    /// `points`: all numbers ascending.
    pub fn new(points: Vec<Point>) -> Curve {
        Curve { points }
    }

    pub fn points(&self) -> &[Point] {
        &self.points
    }

    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// The last point: the largest number of values that the curve covers.
    pub fn end(&self) -> Point {
        self.points.last().copied().unwrap_or_default()
    }

    /// `None`: more values than were seen.
    pub fn hit_ratio(&self, values: f64) -> Option<f64> {
        self.at(values).map(|point| point.hit_ratio)
    }

    /// `None`: more values than were seen.
    pub fn at(&self, values: f64) -> Option<Point> {
        let at = self.points.partition_point(|point| point.values < values);
        let high = self.points.get(at)?;
        let low = if at == 0 { Point::default() } else { self.points[at - 1] };
        let part = (values - low.values) / (high.values - low.values);
        let between = |low: f64, high: f64| low + (high - low) * part;
        Some(Point {
            values,
            hit_ratio: between(low.hit_ratio, high.hit_ratio),
            uncopied: between(low.uncopied, high.uncopied),
        })
    }
}

/// The model that gives the share of reads that are served from RAM.
pub(crate) enum Reads {
    Skewed(Ranks),
    /// Beyond its end, the curve is continued by this law.
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
                let end = curve.end();
                let missed_at_end = 1.0 - beyond.hit_ratio(end.values / keys);
                let missed = 1.0 - beyond.hit_ratio(ram_share);
                1.0 - (1.0 - end.hit_ratio) * if missed_at_end > 0.0 { missed / missed_at_end } else { 1.0 }
            }),
        }
    }

    /// The values in RAM that have no copy on flash, as a share of all values. `read_share`: the share of reads among
    /// all uses.
    pub(crate) fn uncopied(&self, ram_share: f64, read_share: f64) -> f64 {
        let share = match self {
            Reads::Skewed(ranks) => ranks.uncopied(ram_share, read_share),
            Reads::Measured { curve, beyond, keys } => match curve.at(ram_share * keys) {
                Some(point) => point.uncopied / keys,
                None => {
                    let end = curve.end();
                    let further =
                        beyond.uncopied(ram_share, read_share) - beyond.uncopied(end.values / keys, read_share);
                    end.uncopied / keys + further
                }
            },
        };
        share.clamp(0.0, ram_share)
    }

    /// The least share of the values that must be in RAM for this hit ratio.
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
    // A few points are enough.
    let some: Vec<Point> = curve.points.iter().rev().step_by(8).take(6).copied().collect();
    let distance = |skew: f64| {
        let ranks = Ranks::new(keys, skew);
        some.iter().map(|point| (ranks.hit_ratio(point.values / keys as f64) - point.hit_ratio).powi(2)).sum::<f64>()
    };
    let skews = (0..=(FITTED_SKEW_MAX / SKEW_STEP).round() as u32).map(|step| f64::from(step) * SKEW_STEP);
    let best = skews.map(|skew| (skew, distance(skew))).min_by(|one, other| one.1.total_cmp(&other.1));
    best.map_or(0.0, |(skew, _)| skew)
}

/// The distribution of the reads over the keys: groups of keys that are read equally often.
///
/// Which values are in RAM is computed by the approximation of H. Che, Y. Tung, Z. Wang, "Hierarchical Web Caching Systems",
/// IEEE JSAC 20 (2002): a value is in RAM if it was used within a characteristic time, the same for all keys. Measured hit
/// ratios lie within 1.5 points of it (docs/operations.md).
pub(crate) struct Ranks {
    /// The number of keys, and the share of all reads that one of them gets.
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

    /// The share of the keys that are in RAM, and of the reads that find them there, for a characteristic time of so
    /// many reads.
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

    fn uncopied(&self, ram_share: f64, read_share: f64) -> f64 {
        let time = self.time(|kept| kept.0 < ram_share);
        let of_group = |&(count, weight): &(f64, f64)| {
            let is_in_ram = -(-weight * time).exp_m1();
            count * is_in_ram * (1.0 - copied(is_in_ram, read_share))
        };
        self.groups.iter().map(of_group).sum::<f64>() / self.keys
    }

    fn share_for(&self, hit_ratio: f64) -> f64 {
        if hit_ratio >= 1.0 { 1.0 } else { self.kept(self.time(|kept| kept.1 < hit_ratio)).0 }
    }

    /// The characteristic time at which the kept share is just enough. Bisection of its logarithm: the rarest of 10^12 keys
    /// with skew 5 is read once in 10^60 reads.
    fn time(&self, is_too_little: impl Fn((f64, f64)) -> bool) -> f64 {
        let (mut low, mut high) = (-10.0f64, 150.0f64);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if is_too_little(self.kept(middle.exp())) { low = middle } else { high = middle }
        }
        high.exp()
    }
}

/// The probability that a value in RAM has a copy on flash.
///
/// It has one if a read has brought it back, and all uses since were reads. Going backwards from its last use, each use was
/// a read with the probability `read_share`, and found the value in RAM with the probability `is_in_ram`; the first use that
/// did not find it in RAM ends the sum. So the probability is Σ (1 − p) pᵏ⁻¹ rᵏ over k ≥ 1.
pub fn copied(is_in_ram: f64, read_share: f64) -> f64 {
    // With reads only, every value has left RAM once, and no write has freed its copy.
    if read_share >= 1.0 { 1.0 } else { read_share * (1.0 - is_in_ram) / (1.0 - is_in_ram * read_share) }
}

/// ∫ x⁻ˢ dx between two ranks.
fn integral(from: f64, to: f64, skew: f64) -> f64 {
    let power = 1.0 - skew;
    if power.abs() < 1e-9 { (to / from).ln() } else { (to.powf(power) - from.powf(power)) / power }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;

    const READ_SHARE: f64 = 0.75;

    fn point(values: f64, hit_ratio: f64, uncopied: f64) -> Point {
        Point { values, hit_ratio, uncopied }
    }

    /// The curve of a law, up to a number of values.
    fn curve(keys: u64, skew: f64, upto: f64) -> Curve {
        let ranks = Ranks::new(keys, skew);
        let sizes = (0..).map(|step| f64::from(step / 4).exp2() * (1.0 + f64::from(step % 4) / 4.0));
        Curve::new(
            sizes
                .take_while(|&size| size <= upto)
                .map(|size| Point {
                    values: size,
                    hit_ratio: ranks.hit_ratio(size / keys as f64),
                    uncopied: ranks.uncopied(size / keys as f64, READ_SHARE) * keys as f64,
                })
                .collect(),
        )
    }

    #[test]
    fn a_curve_is_straight_between_its_points() {
        let curve = Curve::new(vec![point(2.0, 0.2, 1.0), point(4.0, 0.6, 3.0)]);
        let near = |values: f64, expected: f64, uncopied: f64| {
            let found = curve.at(values).expect("it is measured");
            assert!((found.hit_ratio - expected).abs() < 1e-9, "{values}: {found:?}");
            assert!((found.uncopied - uncopied).abs() < 1e-9, "{values}: {found:?}");
        };
        near(0.0, 0.0, 0.0);
        near(1.0, 0.1, 0.5);
        near(3.0, 0.4, 2.0);
        near(4.0, 0.6, 3.0);
        assert_eq!((curve.at(4.1), curve.end(), curve.is_empty()), (None, point(4.0, 0.6, 3.0), false));
        assert_eq!(Curve::default().at(0.0), None);
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
                let (expected, found) = (law.uncopied(share, READ_SHARE), measured.uncopied(share, READ_SHARE));
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
        let full = Reads::new(1000, &Pattern::Measured(Curve::new(vec![point(10.0, 1.0, 0.0)])));
        assert_eq!((full.hit_ratio(0.01), full.hit_ratio(0.5), full.hit_ratio(1.0)), (1.0, 1.0, 1.0));
        // The measurement saw more values than there are now.
        let more = Reads::new(5, &Pattern::Measured(Curve::new(vec![point(4.0, 0.5, 0.0), point(8.0, 0.75, 0.0)])));
        assert!(more.hit_ratio(0.8) <= more.hit_ratio(0.99) && more.hit_ratio(1.0) == 1.0);
    }

    /// Simulates an LRU list of so many values, used at random by a law, and counts which of them have a copy on flash.
    fn simulated(keys: u64, skew: f64, ram_values: usize, read_share: f64) -> f64 {
        let sums: Vec<f64> = (1..=keys)
            .scan(0.0, |sum, rank| {
                *sum += (rank as f64).powf(-skew);
                Some(*sum)
            })
            .collect();
        let mut random = SplitMix64(5);
        let mut part = || random.draw() as f64 / u64::MAX as f64;
        // Ordered by their last use. At the beginning, all values were read from flash.
        let mut in_ram = std::collections::BTreeMap::new();
        let mut values = vec![(0u64, true); keys as usize];
        let (uses, mut uncopied, mut counted) = (40 * keys, 0usize, 0usize);
        for at in 1..=uses {
            let drawn = part() * sums[sums.len() - 1];
            let key = sums.partition_point(|&sum| sum < drawn).min(keys as usize - 1);
            let is_read = part() < read_share;
            let (used, has_copy) = values[key];
            let was_in_ram = in_ram.remove(&used).is_some();
            values[key] = (at, is_read && (!was_in_ram || has_copy));
            in_ram.insert(at, key);
            if in_ram.len() > ram_values {
                in_ram.pop_first();
            }
            if at > uses / 2 && at % 1000 == 0 {
                uncopied += in_ram.values().filter(|&&key| !values[key].1).count();
                counted += 1;
            }
        }
        uncopied as f64 / counted as f64 / keys as f64
    }

    #[test]
    fn values_that_are_written_have_no_copy_until_they_have_left_ram() {
        for (skew, ram_share, read_share) in
            [(0.0, 0.3, 0.5), (0.0, 0.3, 0.9), (0.8, 0.3, 0.75), (1.2, 0.1, 0.5), (1.2, 0.3, 0.9), (1.0, 0.5, 0.0)]
        {
            let expected = simulated(2000, skew, (2000.0 * ram_share) as usize, read_share);
            let found = Reads::new(2000, &Pattern::Skew(skew)).uncopied(ram_share, read_share);
            assert!((found - expected).abs() < 0.01, "{skew} {ram_share} {read_share}: {found} instead of {expected}");
        }
        let law = Reads::new(2000, &Pattern::Skew(0.8));
        assert_eq!((law.uncopied(0.3, 1.0), law.uncopied(0.0, 0.5)), (0.0, 0.0));
        // Only writes: no value in RAM has a copy.
        assert!((law.uncopied(0.3, 0.0) - 0.3).abs() < 1e-6);
    }
}
