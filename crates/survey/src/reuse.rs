//! Owns the hit ratio of a sequence of uses for each size of RAM: a miss-ratio curve from reuse distances. Never knows
//! commands.
//!
//! An LRU list of `n` values still has a value if fewer than `n` others were used since its last use. So one pass gives the
//! hit ratio for every size (R. Mattson and others, "Evaluation techniques for storage hierarchies", IBM Systems Journal 9,
//! 1970). Only a sample of the keys, those with the smallest hashes, is followed, and distances are scaled up; the sample
//! may contain too many or too few of the very often used keys, which is corrected by the difference to the number of all
//! reads (C. Waldspurger and others, "Efficient MRC construction with SHARDS", FAST 2015).
//!
//! The same pass gives the number of values in RAM that have no copy on flash. A copy is made when a value leaves RAM, and a
//! write frees it. So a value has no copy if RAM holds more values than were used between any two uses of this value since
//! its last write.
//!
//! At the beginning of the sequence, no value was used before, so the hit ratio would be too low. Therefore a size counts
//! only the reads that came after so many keys had been seen. So a short sequence gives no result for large sizes, rather
//! than a wrong one.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use base::pattern::{Curve, Point, copied};

/// The most keys that are followed: some 5 MB. The error of a hit ratio is about 1 ÷ √of them, 0.4 points.
const FOLLOWED_MAX: usize = 64 << 10;
/// The number of size steps per doubling.
const STEPS_PER_DOUBLING: f64 = 8.0;
/// The number of steps, enough for more keys than any dataset has.
const STEPS: usize = 48 * STEPS_PER_DOUBLING as usize;
/// A hit ratio is given only if it is the average of at least so many reads.
const READS_MIN: f64 = 1000.0;

/// How values are used.
#[derive(Debug)]
pub struct Usage {
    followed_max: usize,
    /// The followed keys, by hash.
    followed: BTreeMap<u64, Followed>,
    /// Keys with a larger hash are not followed.
    hash_max: u64,
    order: Order,
    reads: u64,
    changes: u64,
    /// The number of reads by the number of keys seen before them, in steps: all reads (`seen`), and those of followed
    /// keys, scaled up (`followed_seen`).
    seen: Vec<f64>,
    followed_seen: Vec<f64>,
    /// Hits by size: each entry is the difference to the previous one.
    hits: Vec<f64>,
}

#[derive(Debug, Clone, Copy)]
struct Followed {
    /// The place in `order` of its last use.
    place: usize,
    /// In a RAM of a smaller step the value has left RAM since it was last written, or since it was first seen, and so it
    /// has a copy on flash.
    kept_from: u16,
    was_written: bool,
    /// The number of reads since the last write.
    reads: u32,
}

impl Default for Usage {
    fn default() -> Usage {
        Usage::following(FOLLOWED_MAX)
    }
}

impl Usage {
    fn following(followed_max: usize) -> Usage {
        Usage {
            followed_max,
            followed: BTreeMap::new(),
            hash_max: u64::MAX,
            order: Order::new(2 * (followed_max + 1)),
            reads: 0,
            changes: 0,
            seen: vec![0.0; STEPS + 1],
            followed_seen: vec![0.0; STEPS + 1],
            hits: vec![0.0; STEPS + 2],
        }
    }

    /// Adds a use of a value. `is_read`: the client needs the value. `is_change`: the value was written.
    pub fn add(&mut self, db: u32, key: &[u8], is_read: bool, is_change: bool) {
        self.changes += u64::from(is_change);
        let seen = step_below(self.keys());
        if is_read {
            self.reads += 1;
            self.seen[seen] += 1.0;
        }
        let mut hasher = DefaultHasher::new();
        (db, key).hash(&mut hasher);
        let hash = hasher.finish();
        if hash > self.hash_max {
            return;
        }
        let scale = 1.0 / self.rate();
        let before = self.followed.get(&hash).copied();
        // The step of the smallest RAM that still had the value. A key that is seen for the first time was only in a RAM
        // that holds all keys seen so far.
        let least = before.map_or(seen + 1, |before| self.least_with(before.place));
        if is_read {
            self.followed_seen[seen] += scale;
            if before.is_some() && least <= seen {
                self.hits[least] += scale;
                self.hits[seen + 1] -= scale;
            }
        }
        if let Some(before) = before {
            self.order.remove(before.place);
        }
        if self.order.is_full() {
            self.order.compact(&mut self.followed, hash);
        }
        let place = self.order.push();
        let used = match before {
            _ if is_change => Followed { place, kept_from: 0, was_written: true, reads: 0 },
            Some(before) => Followed {
                place,
                kept_from: before.kept_from.max(least as u16),
                reads: before.reads.saturating_add(1),
                ..before
            },
            None => Followed { place, kept_from: least as u16, was_written: false, reads: 1 },
        };
        self.followed.insert(hash, used);
        if self.followed.len() > self.followed_max {
            let (hash, last) = self.followed.pop_last().expect("it is not empty");
            self.order.remove(last.place);
            self.hash_max = hash.saturating_sub(1);
        }
    }

    /// The step of the smallest RAM that still has the value that was used at this place.
    fn least_with(&self, place: usize) -> usize {
        step_above(self.order.after(place) as f64 / self.rate() + 1.0)
    }

    /// The number of values without a copy on flash, for a RAM of each step: each entry is the difference to the
    /// previous one.
    fn uncopied(&self) -> Vec<f64> {
        let mut counts = vec![0.0; STEPS + 2];
        let uses = self.reads + self.changes;
        let read_share = if uses > 0 { self.reads as f64 / uses as f64 } else { 1.0 };
        for followed in self.followed.values() {
            // The sequence does not show whether a value had a copy before its first read. For a value that was in RAM at
            // each use, the probability is estimated by Laplace's rule of succession.
            let reads = f64::from(followed.reads);
            let share = match followed.was_written {
                true => 1.0,
                false => 1.0 - copied(reads / (reads + 1.0), read_share),
            };
            let from = self.least_with(followed.place).max(followed.kept_from.into());
            counts[from] += share / self.rate();
        }
        counts
    }

    fn rate(&self) -> f64 {
        (self.hash_max as f64 + 1.0) / (u64::MAX as f64 + 1.0)
    }

    /// An estimate of the number of keys that were used.
    pub fn keys(&self) -> f64 {
        self.followed.len() as f64 / self.rate()
    }

    pub fn reads(&self) -> u64 {
        self.reads
    }

    /// The number of uses that have changed a value.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The hit ratio by the number of values in RAM, for the sizes that the sequence covers.
    pub fn curve(&self) -> Curve {
        let mut points = Vec::new();
        let (mut all, mut followed) = (self.seen.iter().sum::<f64>(), self.followed_seen.iter().sum::<f64>());
        let (mut hits, mut highest, mut uncopied) = (0.0, 0.0f64, 0.0);
        for (step, more_uncopied) in self.uncopied().into_iter().enumerate().take(STEPS) {
            hits += self.hits[step];
            uncopied += more_uncopied;
            if all < READS_MIN {
                break;
            }
            highest = highest.max(((hits + all - followed) / all).clamp(0.0, 1.0));
            // The first steps round to the same number of values.
            let values = (step as f64 / STEPS_PER_DOUBLING).exp2();
            if values.fract() == 0.0 || values > 8.0 {
                points.push(Point { values, hit_ratio: highest, uncopied });
            }
            all -= self.seen[step];
            followed -= self.followed_seen[step];
        }
        Curve::new(points)
    }
}

/// The largest step whose size is at most this.
fn step_below(values: f64) -> usize {
    (values.max(1.0).log2() * STEPS_PER_DOUBLING).floor().min(STEPS as f64) as usize
}

/// The smallest step whose size is at least this.
fn step_above(values: f64) -> usize {
    (values.max(1.0).log2() * STEPS_PER_DOUBLING).ceil().min(STEPS as f64) as usize
}

/// Places in the order of use; a Fenwick tree counts the occupied places after a given one.
#[derive(Debug)]
struct Order {
    sums: Vec<u32>,
    next: usize,
    taken: usize,
}

impl Order {
    fn new(places: usize) -> Order {
        Order { sums: vec![0; places + 1], next: 0, taken: 0 }
    }

    fn is_full(&self) -> bool {
        self.next + 1 == self.sums.len()
    }

    fn push(&mut self) -> usize {
        let place = self.next;
        self.next += 1;
        self.taken += 1;
        self.change(place, 1);
        place
    }

    fn remove(&mut self, place: usize) {
        self.taken -= 1;
        self.change(place, -1);
    }

    fn change(&mut self, place: usize, by: i32) {
        let mut at = place + 1;
        while at < self.sums.len() {
            self.sums[at] = self.sums[at].wrapping_add_signed(by);
            at += at & at.wrapping_neg();
        }
    }

    /// The number of occupied places after this one.
    fn after(&self, place: usize) -> usize {
        let (mut at, mut upto) = (place + 1, 0);
        while at > 0 {
            upto += self.sums[at] as usize;
            at -= at & at.wrapping_neg();
        }
        self.taken - upto
    }

    /// Moves the occupied places to the front. The place of `removed` is no longer occupied.
    fn compact(&mut self, followed: &mut BTreeMap<u64, Followed>, removed: u64) {
        let kept = followed.iter_mut().filter(|(hash, _)| **hash != removed);
        let mut places: Vec<&mut usize> = kept.map(|(_, followed)| &mut followed.place).collect();
        places.sort_unstable();
        self.sums.fill(0);
        (self.next, self.taken) = (0, 0);
        for place in places {
            *place = self.push();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::random::SplitMix64;
    use std::collections::VecDeque;

    /// The hit ratio of an LRU list, over the reads after it was full.
    fn simulated(keys: &[u64], size: usize) -> f64 {
        let (mut recent, mut hits, mut reads) = (VecDeque::new(), 0u32, 0u32);
        for key in keys {
            let is_full = recent.len() == size;
            let found = recent.iter().position(|other| other == key);
            reads += u32::from(is_full);
            hits += u32::from(is_full && found.is_some());
            found.map(|at| recent.remove(at));
            recent.push_front(*key);
            recent.truncate(size);
        }
        f64::from(hits) / f64::from(reads)
    }

    /// Random numbers of which small ones are frequent: each is drawn below another random number.
    fn draws(count: usize, keys: u64) -> Vec<u64> {
        let mut random = SplitMix64(7);
        (0..count)
            .map(|_| {
                let below = 1 + random.below(keys);
                random.below(below)
            })
            .collect()
    }

    fn measured(keys: &[u64], followed_max: usize) -> Usage {
        let mut usage = Usage::following(followed_max);
        keys.iter().for_each(|key| usage.add(0, &key.to_le_bytes(), true, false));
        usage
    }

    #[test]
    fn a_curve_is_what_a_list_by_use_would_answer() {
        let keys = draws(40_000, 2000);
        let exact = measured(&keys, 1 << 20).curve();
        // With a small sample, the order is compacted many times.
        let compacted = measured(&keys, 2000).curve();
        for size in [1, 4, 16, 64, 256, 1024] {
            let expected = simulated(&keys, size);
            for curve in [&exact, &compacted] {
                let found = curve.hit_ratio(size as f64).expect("it was seen");
                assert!((found - expected).abs() < 0.001, "{size} values: {found} instead of {expected}");
            }
        }
        assert_eq!(exact.hit_ratio(4096.0), None, "so many keys were never seen");
    }

    #[test]
    fn a_sample_of_the_keys_gives_nearly_the_same() {
        let keys = draws(300_000, 50_000);
        let (exact, sampled) = (measured(&keys, 1 << 20), measured(&keys, 8000));
        assert!((sampled.keys() / exact.keys() - 1.0).abs() < 0.05, "{} of {}", sampled.keys(), exact.keys());
        let (exact, sampled) = (exact.curve(), sampled.curve());
        for size in [1000.0, 4000.0, 16_000.0, 32_000.0] {
            let (expected, found) = (exact.hit_ratio(size).unwrap(), sampled.hit_ratio(size).unwrap());
            assert!((found - expected).abs() < 0.03, "{size} values: {found} instead of {expected}");
        }
    }

    #[test]
    fn a_size_counts_as_soon_as_so_many_keys_were_seen() {
        // Each of eight keys is used again after seven others, so a RAM of eight values serves all reads, and one of
        // four none.
        let keys: Vec<u64> = (0..8000).map(|number| number % 8).collect();
        let curve = measured(&keys, 100).curve();
        assert_eq!((curve.hit_ratio(4.0), curve.hit_ratio(8.0)), (Some(0.0), Some(1.0)), "{curve:?}");
    }

    #[test]
    fn a_key_that_gets_half_of_the_reads_counts_the_same_whether_it_is_followed_or_not() {
        let (mut random, mut was_followed) = (SplitMix64(3), [false; 2]);
        for hot in 1_000_000..1_000_012u64 {
            let keys: Vec<u64> =
                (0..40_000).map(|number| if number % 2 == 0 { hot } else { random.below(5000) }).collect();
            let usage = measured(&keys, 1000);
            let mut hasher = DefaultHasher::new();
            (0u32, &hot.to_le_bytes()[..]).hash(&mut hasher);
            was_followed[usize::from(usage.followed.contains_key(&hasher.finish()))] = true;
            let (found, expected) = (usage.curve().hit_ratio(256.0).expect("it was seen"), simulated(&keys, 256));
            // Without the correction the ratio would be near 0 or 1. The tolerance is large because a thousand keys are
            // a small sample.
            assert!((found - expected).abs() < 0.06, "{hot}: {found} instead of {expected}");
        }
        assert_eq!(was_followed, [true; 2]);
    }

    #[test]
    fn writes_bring_values_into_ram_but_are_no_hits() {
        let mut usage = Usage::default();
        for number in 0..3000u64 {
            usage.add(0, &number.to_le_bytes(), false, true);
            // A key of the same name in another logical database is another key.
            usage.add(1, &number.to_le_bytes(), true, false);
            usage.add(0, &number.to_le_bytes(), true, false);
        }
        assert_eq!((usage.keys(), usage.reads(), usage.changes()), (6000.0, 6000, 3000));
        let curve = usage.curve();
        assert_eq!(curve.hit_ratio(1.0), Some(0.0));
        assert!(curve.hit_ratio(2.0).is_some_and(|ratio| (ratio - 0.5).abs() < 0.001), "{curve:?}");
    }

    /// The number of values of an LRU list without a copy on flash: those that were written since they entered the
    /// list.
    fn simulated_uncopied(uses: &[(u64, bool)], size: usize) -> usize {
        let (mut recent, mut copies) = (VecDeque::new(), std::collections::HashSet::new());
        for &(key, is_read) in uses {
            match recent.iter().position(|&other| other == key) {
                Some(at) => drop(recent.remove(at)),
                None => drop(is_read && copies.insert(key)),
            }
            if !is_read {
                copies.remove(&key);
            }
            recent.push_front(key);
            recent.truncate(size);
        }
        recent.iter().filter(|key| !copies.contains(key)).count()
    }

    #[test]
    fn values_without_a_copy_are_those_of_a_list_by_use() {
        for (read_percent, followed_max) in [(50, 1 << 20), (90, 1 << 20), (90, 2000), (0, 1 << 20)] {
            let mut random = SplitMix64(9);
            let uses: Vec<(u64, bool)> =
                draws(40_000, 2000).into_iter().map(|key| (key, random.below(100) < read_percent)).collect();
            // The uses before the measurement are known only by their effects.
            let mut usage = Usage::following(followed_max);
            uses[20_000..].iter().for_each(|(key, is_read)| usage.add(0, &key.to_le_bytes(), *is_read, !*is_read));
            // The length of a curve depends on reads, and here there may be none.
            let counts = usage.uncopied();
            for size in [64, 256, 512, 1024] {
                let expected = simulated_uncopied(&uses, size) as f64;
                let found: f64 = counts[..=step_below(size as f64)].iter().sum();
                assert!(
                    (found - expected).abs() < 0.04 * size as f64,
                    "{size} values, {read_percent} % reads: {found} instead of {expected}"
                );
            }
        }
        let mut usage = Usage::default();
        draws(20_000, 500).iter().for_each(|key| usage.add(0, &key.to_le_bytes(), true, false));
        assert_eq!(usage.curve().end().uncopied, 0.0, "nothing was written");
    }

    #[test]
    fn too_few_reads_say_nothing() {
        assert_eq!(measured(&draws(999, 100), 1000).curve().hit_ratio(10.0), None);
        assert_eq!(Usage::default().curve().hit_ratio(1.0), None);
    }
}
