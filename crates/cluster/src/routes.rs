//! Owns what a proxy must know to find the owner of a slot: a route for each shard, and which routes a change makes new. Never knows a
//! connection.

use crate::ids::{Epoch, NodeId, ShardNumber};
use crate::records::ShardRecord;
use crate::stripes::{Run, StripeMap};
use std::collections::BTreeMap;

/// Where the commands for a shard go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub shard: ShardNumber,
    pub epoch: Epoch,
    /// The node of the primary.
    pub primary: NodeId,
    pub runs: Vec<Run>,
}

/// A route for each shard that owns stripes and has a record, by number. The record of a new shard may come after the map: until then
/// its stripes have no route.
pub fn routes(map: &StripeMap, shards: &BTreeMap<ShardNumber, ShardRecord>) -> Vec<Route> {
    let mut runs: BTreeMap<ShardNumber, Vec<Run>> = BTreeMap::new();
    for &run in map.runs() {
        runs.entry(run.shard).or_default().push(run);
    }
    let route = |(shard, runs)| {
        let record = shards.get(&shard)?;
        Some(Route { shard, epoch: record.epoch, primary: record.primary_node()?, runs })
    };
    runs.into_iter().filter_map(route).collect()
}

/// What a proxy that has the routes `before` must learn: the routes of changed shards, no others. Shards are never merged, so none goes.
pub fn changed<'r>(before: &[Route], after: &'r [Route]) -> Vec<&'r Route> {
    let is_known = |route: &Route| {
        let found = before.binary_search_by_key(&route.shard, |known| known.shard);
        found.is_ok_and(|index| before[index] == *route)
    };
    after.iter().filter(|route| !is_known(route)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::CopyNumber;
    use crate::records::Assignment;

    fn record(primary: u8) -> ShardRecord {
        let assigned = |copy: u8| Assignment::new(CopyNumber(copy.into()), NodeId([copy; 20]));
        ShardRecord::new(CopyNumber(primary.into()), vec![assigned(1), assigned(2)])
    }

    fn of(changed: &[&Route]) -> Vec<u16> {
        changed.iter().map(|route| route.shard.0).collect()
    }

    #[test]
    fn only_the_routes_of_changed_shards_are_learnt() {
        let map = StripeMap::even(4).unwrap();
        let mut records: BTreeMap<_, _> = (0..4).map(|shard| (ShardNumber(shard), record(1))).collect();
        let before = routes(&map, &records);
        assert_eq!(of(&changed(&[], &before)), [0, 1, 2, 3]);
        assert!(changed(&before, &before).is_empty());

        // A promotion.
        let promoted = records.get_mut(&ShardNumber(2)).unwrap();
        (promoted.epoch, promoted.primary) = (promoted.epoch.next(), CopyNumber(2));
        let after = routes(&map, &records);
        assert_eq!(of(&changed(&before, &after)), [2]);
        assert_eq!(after[2].primary, NodeId([2; 20]));

        // A replica that comes or goes changes no route.
        records.get_mut(&ShardNumber(1)).unwrap().assignments.pop();
        assert_eq!(routes(&map, &records), after);

        // A split: the map names shard 4 before it has a record.
        let split = map.reassigned(896..=1023, ShardNumber(4));
        let between = routes(&split, &records);
        assert_eq!(of(&changed(&after, &between)), [3]);
        records.insert(ShardNumber(4), record(1));
        assert_eq!(of(&changed(&between, &routes(&split, &records))), [4]);
        assert_eq!(of(&changed(&after, &routes(&split, &records))), [3, 4]);
    }
}
