//! Owns the stripe map of a database: which shard owns which of the 1,024 stripes, and what differs between two maps. Never knows where a
//! shard's copies are.

use crate::ids::ShardNumber;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;

/// As in the store: a stripe is 16 of Redis Cluster's slots.
pub const STRIPES: u16 = 1024;
pub const SLOTS: u16 = 16_384;
pub const SLOTS_PER_STRIPE: u16 = SLOTS / STRIPES;
/// A shard owns a stripe at least.
pub const SHARDS_MAX: u16 = STRIPES;

/// Neighbouring stripes of one shard. In JSON: `[first, last, shard]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u16, u16, ShardNumber)", into = "(u16, u16, ShardNumber)")]
pub struct Run {
    pub first: u16,
    /// Inclusive.
    pub last: u16,
    pub shard: ShardNumber,
}

impl From<(u16, u16, ShardNumber)> for Run {
    fn from((first, last, shard): (u16, u16, ShardNumber)) -> Run {
        Run { first, last, shard }
    }
}

impl From<Run> for (u16, u16, ShardNumber) {
    fn from(run: Run) -> (u16, u16, ShardNumber) {
        (run.first, run.last, run.shard)
    }
}

/// Runs in ascending order that have each stripe once. Neighbouring runs belong to different shards, so that equal maps have equal runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripeMap {
    runs: Vec<Run>,
}

/// Why runs are no map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapError(String);

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for MapError {}

/// Stripes that change their owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reassignment {
    pub first: u16,
    /// Inclusive.
    pub last: u16,
    pub from: ShardNumber,
    pub to: ShardNumber,
}

impl StripeMap {
    /// Divides the stripes into one run for each shard, from shard 0 on. Their lengths differ by one stripe at most. `None`: no shard,
    /// or more than [`SHARDS_MAX`].
    pub fn even(shards: u16) -> Option<StripeMap> {
        if shards == 0 || shards > SHARDS_MAX {
            return None;
        }
        let (length, longer) = (STRIPES / shards, STRIPES % shards);
        // The longer runs come first.
        let first = |shard: u16| shard * length + shard.min(longer);
        let runs =
            (0..shards).map(|shard| Run { first: first(shard), last: first(shard + 1) - 1, shard: ShardNumber(shard) });
        Some(StripeMap { runs: runs.collect() })
    }

    pub fn from_runs(runs: Vec<Run>) -> Result<StripeMap, MapError> {
        let mut next = 0;
        for (index, run) in runs.iter().enumerate() {
            let Run { first, last, shard } = *run;
            if first != next {
                let problem =
                    if first < next { "overlaps the run before it" } else { "leaves stripes without a shard" };
                return Err(MapError(format!("run {index} begins at stripe {first} instead of {next}: it {problem}")));
            }
            if last < first || last >= STRIPES {
                return Err(MapError(format!(
                    "run {index} is from stripe {first} to {last}: the last stripe is {}",
                    STRIPES - 1
                )));
            }
            if index > 0 && runs[index - 1].shard == shard {
                return Err(MapError(format!(
                    "runs {} and {index} both belong to shard {shard}: they are one run",
                    index - 1
                )));
            }
            next = last + 1;
        }
        match next {
            STRIPES => Ok(StripeMap { runs }),
            _ => Err(MapError(format!("stripes {next} to {} have no shard", STRIPES - 1))),
        }
    }

    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// `stripe` is below [`STRIPES`].
    pub fn owner_of_stripe(&self, stripe: u16) -> ShardNumber {
        assert!(stripe < STRIPES, "stripe {stripe}");
        self.runs[self.runs.partition_point(|run| run.last < stripe)].shard
    }

    /// `slot` is below [`SLOTS`].
    pub fn owner_of_slot(&self, slot: u16) -> ShardNumber {
        assert!(slot < SLOTS, "slot {slot}");
        self.owner_of_stripe(slot / SLOTS_PER_STRIPE)
    }

    pub fn shards(&self) -> BTreeSet<ShardNumber> {
        self.runs.iter().map(|run| run.shard).collect()
    }

    /// The runs of one shard.
    pub fn stripes_of(&self, shard: ShardNumber) -> impl Iterator<Item = RangeInclusive<u16>> {
        self.runs.iter().filter(move |run| run.shard == shard).map(|run| run.first..=run.last)
    }

    /// The map in which these stripes belong to `shard`. The range lies below [`STRIPES`] and is not empty.
    #[must_use]
    pub fn reassigned(&self, stripes: RangeInclusive<u16>, shard: ShardNumber) -> StripeMap {
        assert!(!stripes.is_empty());
        assert!(*stripes.end() < STRIPES);
        let mut runs: Vec<Run> = Vec::with_capacity(self.runs.len() + 2);
        for stripe in 0..STRIPES {
            let owner = if stripes.contains(&stripe) { shard } else { self.owner_of_stripe(stripe) };
            match runs.last_mut() {
                Some(run) if run.shard == owner => run.last = stripe,
                _ => runs.push(Run { first: stripe, last: stripe, shard: owner }),
            }
        }
        StripeMap { runs }
    }

    /// The stripes that have another owner in `after`, in ascending order.
    pub fn diff(&self, after: &StripeMap) -> Vec<Reassignment> {
        let (mut found, mut old, mut new): (Vec<Reassignment>, _, _) =
            (Vec::new(), self.runs.iter(), after.runs.iter());
        let (mut before_run, mut after_run) = (old.next(), new.next());
        let mut first = 0;
        // One step for each border between runs of either map.
        while let (Some(&Run { last: old_last, shard: from, .. }), Some(&Run { last: new_last, shard: to, .. })) =
            (before_run, after_run)
        {
            let last = old_last.min(new_last);
            if from != to {
                found.push(Reassignment { first, last, from, to });
            }
            if old_last == last {
                before_run = old.next();
            }
            if new_last == last {
                after_run = new.next();
            }
            first = last + 1;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::random::SplitMix64;

    fn random_map(random: &mut SplitMix64) -> StripeMap {
        let mut map = StripeMap::even(1 + random.below(8) as u16).unwrap();
        for _ in 0..random.below(6) {
            let (a, b) = (random.below(STRIPES.into()) as u16, random.below(STRIPES.into()) as u16);
            map = map.reassigned(a.min(b)..=a.max(b), ShardNumber(random.below(12) as u16));
        }
        map
    }

    #[test]
    fn shards_get_equal_runs() {
        for shards in 1..=SHARDS_MAX {
            let map = StripeMap::even(shards).unwrap();
            assert_eq!(StripeMap::from_runs(map.runs().to_vec()), Ok(map.clone()));
            let lengths: Vec<u16> = map.runs().iter().map(|run| run.last - run.first + 1).collect();
            assert_eq!(lengths.len(), usize::from(shards));
            assert!(lengths.iter().max().unwrap() - lengths.iter().min().unwrap() <= 1, "{shards}: {lengths:?}");
        }
        assert_eq!((StripeMap::even(0), StripeMap::even(SHARDS_MAX + 1)), (None, None));
    }

    #[test]
    fn a_slot_belongs_to_the_owner_of_its_stripe() {
        let map = StripeMap::even(3).unwrap();
        assert_eq!(
            map.runs().iter().map(|run| (run.first, run.last)).collect::<Vec<_>>(),
            [(0, 341), (342, 682), (683, 1023)]
        );
        let owners: Vec<u16> = [0, 341 * 16 + 15, 342 * 16, 682 * 16 + 15, 683 * 16, SLOTS - 1]
            .map(|slot| map.owner_of_slot(slot).0)
            .to_vec();
        assert_eq!(owners, [0, 0, 1, 1, 2, 2]);
    }

    #[test]
    fn runs_that_are_no_map_are_refused() {
        let of = |runs: &[(u16, u16, u16)]| {
            let runs = runs.iter().map(|&(first, last, shard)| Run { first, last, shard: ShardNumber(shard) });
            StripeMap::from_runs(runs.collect()).map(drop).map_err(|error| error.to_string()).unwrap_err()
        };
        assert_eq!(of(&[]), "stripes 0 to 1023 have no shard");
        assert_eq!(of(&[(0, 1022, 0)]), "stripes 1023 to 1023 have no shard");
        assert_eq!(of(&[(0, 1024, 0)]), "run 0 is from stripe 0 to 1024: the last stripe is 1023");
        assert_eq!(of(&[(0, u16::MAX, 0)]), "run 0 is from stripe 0 to 65535: the last stripe is 1023");
        assert_eq!(of(&[(0, 9, 0), (10, 9, 1)]), "run 1 is from stripe 10 to 9: the last stripe is 1023");
        assert_eq!(
            of(&[(0, 9, 0), (9, 1023, 1)]),
            "run 1 begins at stripe 9 instead of 10: it overlaps the run before it"
        );
        assert_eq!(
            of(&[(0, 9, 0), (11, 1023, 1)]),
            "run 1 begins at stripe 11 instead of 10: it leaves stripes without a shard"
        );
        assert_eq!(of(&[(0, 9, 0), (10, 1023, 0)]), "runs 0 and 1 both belong to shard 0: they are one run");
    }

    #[test]
    fn a_diff_leads_from_one_map_to_the_other() {
        seeds::each(1, 200, |seed| {
            let mut random = SplitMix64(seed);
            let (before, after) = (random_map(&mut random), random_map(&mut random));
            assert_eq!(StripeMap::from_runs(after.runs().to_vec()).as_ref(), Ok(&after));
            let diff = before.diff(&after);
            let mut reached = before.clone();
            for &Reassignment { first, last, from, to } in &diff {
                assert!((first..=last).all(|stripe| before.owner_of_stripe(stripe) == from && from != to));
                reached = reached.reassigned(first..=last, to);
            }
            assert_eq!(reached, after);
            let stripes: usize = diff.iter().map(|part| usize::from(part.last - part.first + 1)).sum();
            let differ = |&stripe: &u16| before.owner_of_stripe(stripe) != after.owner_of_stripe(stripe);
            assert_eq!(stripes, (0..STRIPES).filter(differ).count());
        });
    }
}
