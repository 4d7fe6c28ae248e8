//! Owns a histogram of durations. Its worker fills it without a lock, and every thread may read it. Never knows what
//! is measured.
//!
//! ```text
//! value < 16:   bucket = value
//! otherwise:    e = position of the highest bit (≥ 4), bucket = (e − 3) · 16 + the four bits below the highest
//! ```
//! A bucket is at most 1/16 of its value wide: 6 % precision in a fixed 4.9 KiB, as in HDR histograms
//! (<http://hdrhistogram.org>) with one and a half significant digits.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const SUB_BITS: u32 = 4;
const SUB: usize = 1 << SUB_BITS;
/// Durations up to 2^42 ns (73 minutes). Longer durations count as 2^42 ns.
const TOP_BIT: u32 = 42;
const BUCKETS: usize = (TOP_BIT - SUB_BITS + 1) as usize * SUB;

#[derive(Debug)]
pub struct Histogram {
    counts: [AtomicU64; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: [const { AtomicU64::new(0) }; BUCKETS] }
    }
}

/// The bucket of a value, for [`Histogram::record_in`].
#[inline]
pub fn bucket(value: u64) -> usize {
    if value < SUB as u64 {
        return value as usize;
    }
    let top = 63 - value.leading_zeros();
    if top >= TOP_BIT {
        return BUCKETS - 1;
    }
    let below = (value >> (top - SUB_BITS)) as usize & (SUB - 1);
    (top - SUB_BITS + 1) as usize * SUB + below
}

/// The largest value of the bucket.
fn highest(bucket: usize) -> u64 {
    if bucket < SUB {
        return bucket as u64;
    }
    let shift = (bucket / SUB - 1) as u32;
    (((SUB + bucket % SUB + 1) as u64) << shift) - 1
}

impl Histogram {
    /// Only the worker that owns the histogram may call this: the increment is a load and a store.
    #[inline]
    pub fn record(&self, nanos: u64) {
        self.record_in(bucket(nanos));
    }

    /// Like [`Histogram::record`], for a duration that goes into several histograms.
    #[inline]
    pub fn record_in(&self, bucket: usize) {
        let count = &self.counts[bucket];
        count.store(count.load(Relaxed) + 1, Relaxed);
    }

    pub fn reset(&self) {
        for count in &self.counts {
            count.store(0, Relaxed);
        }
    }
}

/// The sum of several workers' histograms.
#[derive(Debug, Clone)]
pub struct Summary {
    counts: Vec<u64>,
    pub count: u64,
}

impl Default for Summary {
    fn default() -> Summary {
        Summary { counts: vec![0; BUCKETS], count: 0 }
    }
}

impl Summary {
    pub fn add(&mut self, histogram: &Histogram) {
        for (sum, count) in self.counts.iter_mut().zip(&histogram.counts) {
            let count = count.load(Relaxed);
            *sum += count;
            self.count += count;
        }
    }

    /// The values that [`Summary::buckets`] of another histogram have.
    pub fn of_buckets(buckets: impl IntoIterator<Item = (u64, u64)>) -> Summary {
        let mut summary = Summary::default();
        for (nanos, count) in buckets {
            let sum = &mut summary.counts[bucket(nanos)];
            *sum = sum.saturating_add(count);
            summary.count = summary.count.saturating_add(count);
        }
        summary
    }

    /// Adds the values of another one.
    pub fn merge(&mut self, other: &Summary) {
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            *sum = sum.saturating_add(*count);
        }
        self.count = self.count.saturating_add(other.count);
    }

    /// The values recorded after `earlier`. `None`: the histogram was reset in between.
    pub fn checked_since(&self, earlier: &Summary) -> Option<Summary> {
        let has_shrunk = self.counts.iter().zip(&earlier.counts).any(|(now, then)| now < then);
        (!has_shrunk).then(|| self.since(earlier))
    }

    /// The values recorded after `earlier`. If the histogram was reset in between, all values.
    pub fn since(&self, earlier: &Summary) -> Summary {
        if self.counts.iter().zip(&earlier.counts).any(|(now, then)| now < then) {
            return self.clone();
        }
        let counts: Vec<u64> = self.counts.iter().zip(&earlier.counts).map(|(now, then)| now - then).collect();
        Summary { count: counts.iter().sum(), counts }
    }

    /// The buckets that are not empty, as (largest value in nanoseconds, number of values).
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(bucket, count)| (highest(bucket), *count))
    }

    /// The sum of all values in nanoseconds, computed from the middles of the buckets: within 3 %.
    pub fn sum_nanos(&self) -> u64 {
        let middle = |bucket: usize| if bucket == 0 { 0 } else { (highest(bucket - 1) + 1 + highest(bucket)) / 2 };
        self.counts.iter().enumerate().map(|(bucket, count)| middle(bucket).saturating_mul(*count)).sum()
    }

    /// The average in nanoseconds; 0 without values.
    pub fn average_nanos(&self) -> u64 {
        self.sum_nanos() / self.count.max(1)
    }

    /// The nanoseconds that `percent` of the values do not exceed, and for 0 % those that none falls below, within a bucket's width;
    /// 0 without values.
    pub fn percentile(&self, percent: f64) -> u64 {
        let wanted = ((percent / 100.0 * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && *count > 0 {
                // The least value lies between its bucket's bounds, and at least at the lower one.
                return if percent == 0.0 && bucket > 0 { highest(bucket - 1) + 1 } else { highest(bucket) };
            }
        }
        0
    }

    /// Pairs of (power of two in microseconds, number of values up to it). They start at the first power that is not
    /// empty and end when all values are counted.
    pub fn cumulative_us(&self) -> Vec<(u64, u64)> {
        let mut steps = Vec::new();
        let (mut seen, mut bound_us, mut bucket) = (0, 1u64, 0);
        while seen < self.count && bucket < BUCKETS {
            let before = seen;
            while bucket < BUCKETS && highest(bucket) <= bound_us * 1000 {
                seen += self.counts[bucket];
                bucket += 1;
            }
            if seen > before || !steps.is_empty() {
                steps.push((bound_us, seen));
            }
            bound_us *= 2;
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_rise_and_are_narrow() {
        let mut last = 0;
        for value in (0..10_000u64).chain((1..4000).map(|i| i * 1_000_003)) {
            let at = bucket(value);
            assert!(at >= last || value < 10_000 * 2, "{value}");
            last = at;
            assert!(highest(at) >= value, "{value} above its bucket's {}", highest(at));
            assert!(highest(at) <= value + value / 16 + 1, "{value} in a bucket up to {}", highest(at));
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_of_a_hundred_values() {
        let histogram = Histogram::default();
        (1..=100).for_each(|i| histogram.record(i * 1000));
        let mut summary = Summary::default();
        summary.add(&histogram);
        assert_eq!(summary.count, 100);
        for (percent, expected) in [(50.0, 50_000.0), (99.0, 99_000.0), (100.0, 100_000.0)] {
            let value = summary.percentile(percent) as f64;
            assert!((value / expected - 1.0).abs() < 0.07, "p{percent} is {value}");
        }
        assert!((930..=1_000).contains(&summary.percentile(0.0)), "{}", summary.percentile(0.0));
        let steps = summary.cumulative_us();
        assert_eq!(steps.last(), Some(&(128, 100)));
        assert!(steps.is_sorted());
        assert_eq!(Summary::default().percentile(99.0), 0);
        let average = summary.average_nanos() as f64;
        assert!((average / 50_500.0 - 1.0).abs() < 0.03, "{average}");
        let before = summary.clone();
        histogram.record(7_000);
        let mut summary = Summary::default();
        summary.add(&histogram);
        let new = summary.since(&before);
        assert_eq!(new.count, 1);
        assert!((6_600..7_500).contains(&new.percentile(50.0)));
        assert_eq!(before.since(&summary).count, 100);
        assert!(before.checked_since(&summary).is_none() && summary.checked_since(&before).is_some());
    }

    #[test]
    fn a_histogram_reads_back_from_its_buckets_and_is_merged() {
        let histogram = Histogram::default();
        [0, 7, 900, 900, 40_000, 5_000_000_000, u64::MAX].into_iter().for_each(|nanos| histogram.record(nanos));
        let mut summary = Summary::default();
        summary.add(&histogram);
        let mut read = Summary::of_buckets(summary.buckets());
        assert_eq!((read.count, read.counts.clone()), (7, summary.counts.clone()));
        read.merge(&summary);
        assert_eq!(read.count, 14);
        // Percentiles of the whole, not the averages of the parts' percentiles.
        let slow = Summary::of_buckets([(1_000_000, 1)]);
        let mut whole = Summary::of_buckets([(1000, 999)]);
        whole.merge(&slow);
        assert!(whole.percentile(99.0) < 1100 && whole.percentile(99.95) > 900_000);
    }
}
