//! The least bytes that any plan could move, by trying every layout, and how near plans come to it.

use super::{node, of};
use crate::model::{checked, copies_per_zone, is_open, nodes_of};
use base::random::SplitMix64;
use cluster::ids::ShardNumber;
use cluster::limits::Resources;
use cluster::placement::{DatabaseCopies, Layout, PlanError, Request, ShardCopies, plan};
use std::collections::{BTreeMap, BTreeSet};

/// The least bytes that lead from a layout to one in which each node is within its cap; without an order of moves, so that it may be less
/// than any plan can reach.
struct Least<'a> {
    layout: &'a Layout,
    /// In the layout's order of nodes. `None`: as it was, or nothing more.
    caps: &'a [Resources],
    placed: Vec<Resources>,
    /// Needs, bytes, nodes, limit of copies in a zone.
    shards: Vec<(Resources, u64, Vec<usize>, usize)>,
    least: Option<u64>,
}

impl<'a> Least<'a> {
    fn of(layout: &'a Layout, caps: &'a [Resources]) -> Option<u64> {
        let index = |id| layout.nodes.iter().position(|node| node.id == id).unwrap();
        let mut shards = Vec::new();
        for database in &layout.databases {
            let limit = copies_per_zone(layout, &database.zones, database.copies);
            for shard in &database.shards {
                let nodes: Vec<usize> = nodes_of(shard).into_iter().map(index).collect();
                shards.push((database.needs, shard.bytes, nodes, limit));
            }
        }
        // Large ones first: branches end earlier.
        shards.sort_by_key(|(needs, ..)| std::cmp::Reverse(needs.ram_bytes + needs.flash_bytes));
        let placed = vec![Resources::default(); layout.nodes.len()];
        let mut search = Least { layout, caps, placed, shards, least: None };
        search.descend(0, 0);
        search.least
    }

    fn descend(&mut self, shard: usize, bytes: u64) {
        if self.least.is_some_and(|least| bytes >= least) {
            return;
        }
        match self.shards.get(shard) {
            Some((.., nodes, _)) => self.choose(shard, bytes, 0, nodes.len(), &mut Vec::new()),
            None => self.least = Some(bytes),
        }
    }

    /// Chooses the nodes of a shard, in ascending order.
    fn choose(&mut self, shard: usize, bytes: u64, first: usize, more: usize, chosen: &mut Vec<usize>) {
        if more == 0 {
            return self.descend(shard + 1, bytes);
        }
        for node in first..self.layout.nodes.len() {
            let (needs, cost, ref old, limit) = self.shards[shard];
            let room = &self.layout.nodes[node];
            let in_zone = chosen.iter().filter(|&&other| self.layout.nodes[other].zone == room.zone).count();
            let before = self.placed[node];
            if !is_open(room) || in_zone >= limit || !(before + needs).fits_in(self.caps[node]) {
                continue;
            }
            let cost = if old.contains(&node) { 0 } else { cost };
            self.placed[node] += needs;
            chosen.push(node);
            self.choose(shard, bytes + cost, node + 1, more - 1, chosen);
            chosen.pop();
            self.placed[node] = before;
        }
    }
}

const LAYOUTS_MAX: usize = 200_000;

/// The least bytes of moves one after the other, each to a node that has room for the copy beside all that is there; by Dijkstra's
/// algorithm over all layouts. A copy may move twice. `below`, if there is no way with fewer bytes. `None`: there are too many layouts.
fn least_in_order(layout: &Layout, caps: &[Resources], below: u64) -> Option<u64> {
    let index = |id| layout.nodes.iter().position(|node| node.id == id).unwrap();
    let (mut shards, mut first) = (Vec::new(), Vec::new());
    for database in &layout.databases {
        let limit = copies_per_zone(layout, &database.zones, database.copies);
        for shard in &database.shards {
            shards.push((database.needs, shard.bytes, limit));
            let mut nodes: Vec<usize> = nodes_of(shard).into_iter().map(index).collect();
            nodes.sort_unstable();
            first.push(nodes);
        }
    }
    let zone = |node: usize| &layout.nodes[node].zone;
    let mut known = BTreeMap::from([(first.clone(), 0)]);
    let mut queue = BTreeSet::from([(0, first)]);
    while let Some((bytes, at)) = queue.pop_first() {
        let mut placed = vec![Resources::default(); layout.nodes.len()];
        for (nodes, (needs, ..)) in at.iter().zip(&shards) {
            nodes.iter().for_each(|&node| placed[node] += *needs);
        }
        let is_spread = |(nodes, (_, _, limit)): (&Vec<usize>, &(Resources, u64, usize))| {
            nodes.iter().all(|&node| nodes.iter().filter(|&&other| zone(other) == zone(node)).count() <= *limit)
        };
        if placed.iter().zip(caps).all(|(placed, cap)| placed.fits_in(*cap)) && at.iter().zip(&shards).all(is_spread) {
            return Some(bytes);
        }
        for (shard, &(needs, cost, limit)) in shards.iter().enumerate() {
            for copy in 0..at[shard].len() {
                let others: Vec<usize> = at[shard].iter().copied().filter(|&node| node != at[shard][copy]).collect();
                for (to, room) in layout.nodes.iter().enumerate() {
                    let in_zone = others.iter().filter(|&&other| zone(other) == &room.zone).count();
                    let fits = is_open(room) && (placed[to] + needs).fits_in(room.capacity);
                    if !fits || at[shard].contains(&to) || in_zone >= limit || bytes + cost >= below {
                        continue;
                    }
                    let mut next = at.clone();
                    next[shard][copy] = to;
                    next[shard].sort_unstable();
                    let before = known.get(&next).copied().unwrap_or(u64::MAX);
                    if bytes + cost < before {
                        queue.remove(&(before, next.clone()));
                        known.insert(next.clone(), bytes + cost);
                        queue.insert((bytes + cost, next));
                    }
                }
            }
        }
        if known.len() > LAYOUTS_MAX {
            return None;
        }
    }
    Some(below)
}

/// Whether a database can be created at all.
pub fn creation_exists(layout: &Layout, request: &Request, limit: usize) -> bool {
    let Request::Create { database, shards, copies, needs, ref zones } = *request else { panic!("{request:?}") };
    let mut with = layout.clone();
    // A first copy somewhere, which costs nothing to move.
    let shard = |number| ShardCopies {
        number: ShardNumber(number),
        bytes: 0,
        primary: layout.nodes[0].id,
        replicas: vec![layout.nodes[0].id; copies as usize - 1],
    };
    with.databases.push(DatabaseCopies {
        id: database,
        needs,
        copies,
        zones: zones.clone(),
        shards: (0..shards).map(shard).collect(),
    });
    assert_eq!(copies_per_zone(layout, zones, copies), limit);
    let caps: Vec<Resources> = layout.nodes.iter().map(|node| node.capacity).collect();
    Least::of(&with, &caps).is_some()
}

/// Some shards on random nodes that have room for them, by the rule of zones.
fn random_layout(random: &mut SplitMix64) -> Layout {
    let zones = 1 + random.below(3);
    let count = 3 + random.below(2) as u8;
    let mut layout = Layout::default();
    for index in 0..count {
        layout.nodes.push(node(
            index,
            &(u64::from(index) % zones).to_string(),
            of(60 + random.below(60), 60 + random.below(60)),
        ));
    }
    let mut placed = vec![Resources::default(); layout.nodes.len()];
    for index in 0..2 + random.below(4) as u8 {
        let needs = of(1 + random.below(30), random.below(30));
        let copies = 1 + random.below(2) as u32;
        let limit = copies_per_zone(&layout, &[], copies);
        let mut shards = Vec::new();
        for number in 0..1 + random.below(3) as u16 {
            let mut on: Vec<usize> = Vec::new();
            for _ in 0..50 {
                // The first nodes are fuller.
                let node = random.index(layout.nodes.len()).min(random.index(layout.nodes.len()));
                let in_zone = on.iter().filter(|&&other| layout.nodes[other].zone == layout.nodes[node].zone).count();
                let fits = (placed[node] + needs).fits_in(layout.nodes[node].capacity);
                if on.len() < copies as usize && fits && in_zone < limit && !on.contains(&node) {
                    placed[node] += needs;
                    on.push(node);
                }
            }
            if on.len() < copies as usize {
                on.iter().for_each(|&node| placed[node] -= needs);
                continue;
            }
            let ids: Vec<_> = on.iter().map(|&node| layout.nodes[node].id).collect();
            // Data in proportion to the limits, more or less.
            let bytes = (needs.ram_bytes + needs.flash_bytes) * (50 + random.below(100)) / 10;
            shards.push(ShardCopies {
                number: ShardNumber(number),
                bytes,
                primary: ids[0],
                replicas: ids[1..].to_vec(),
            });
        }
        if !shards.is_empty() {
            layout.databases.push(DatabaseCopies {
                id: super::database(index),
                needs,
                copies,
                zones: Vec::new(),
                shards,
            });
        }
    }
    layout
}

/// Bytes of plans and the least ones.
#[derive(Default)]
struct Ratios {
    cases: usize,
    above_least: usize,
    worst: f64,
    moved: u64,
    least: u64,
    /// The plan was refused, or had to aim lower, although a layout exists.
    missed: usize,
    /// The plan moves more than 1.2 times the least, or the least with an order was not found.
    far: usize,
}

impl Ratios {
    /// The least without an order of moves is known at once. If the plan moves far more, the least with an order counts.
    fn count(&mut self, layout: &Layout, caps: &[Resources], moved: u64) {
        let mut least = Least::of(layout, caps).expect("the plan reached it");
        assert!(moved >= least, "{moved} below {least}");
        if moved * 5 > least * 6 {
            let Some(found) = least_in_order(layout, caps, moved) else {
                self.far += 1;
                return;
            };
            least = found;
        }
        self.cases += 1;
        self.above_least += usize::from(moved > least);
        self.moved += moved;
        self.least += least;
        self.far += usize::from(moved * 5 > least * 6);
        if moved > least {
            self.worst = self.worst.max(moved as f64 / least as f64);
        }
    }

    fn check(&self, what: &str) {
        let Ratios { cases, above_least, worst, moved, least, missed, far } = self;
        let all = *moved as f64 / *least as f64;
        println!(
            "{what}: {cases} plans, {above_least} above the least, all together {all:.4}, the worst {worst:.3}; {missed} not found, {far} far"
        );
        assert!(*cases > 50, "{what}");
        assert!(*missed * 10 <= *cases, "{what}: {missed} of {cases}");
        // The search ends after a number of tries, so that a few tight layouts are far from the least. Of the rebalancings of 2,000 seeds
        // these are 3, up to 1.75 times, and 11 for which the least with an order is not known.
        assert!(*far * 100 <= *cases, "{what}: {far} of {cases}");
        assert!(all <= 1.02, "{what}: {all}");
    }
}

#[test]
fn a_rebalancing_moves_little_more_than_the_least() {
    let mut ratios = Ratios::default();
    seeds::each(1, 200, |seed| {
        let mut random = SplitMix64(seed);
        let mut layout = random_layout(&mut random);
        if random.below(2) == 0 {
            layout.nodes.push(node(9, "0", of(100, 100)));
        }
        let plan = checked(&layout, &Request::Rebalance);
        let tolerance = plan.tolerance_percent.unwrap();
        let caps = caps_of_share(&layout, tolerance);
        // The goal does not bind a node with one copy. Then the least is unknown.
        let mut loads = layout.loads().unwrap().into_iter().zip(&caps);
        if loads.any(|(load, cap)| load.copies == 1 && !load.placed.fits_in(*cap)) {
            return;
        }
        ratios.count(&layout, &caps, plan.bytes);
        let mut smaller = [5, 10, 20, 40].into_iter().filter(|&smaller| smaller < tolerance);
        ratios.missed +=
            usize::from(smaller.any(|smaller| Least::of(&layout, &caps_of_share(&layout, smaller)).is_some()));
    });
    ratios.check("rebalance");
}

/// As the planner defines its goal.
fn caps_of_share(layout: &Layout, tolerance: u64) -> Vec<Resources> {
    let loads = layout.loads().unwrap();
    let cap = |of: fn(&Resources) -> u64, node: usize| {
        let whole: u64 = layout.nodes.iter().map(|node| of(&node.capacity)).sum();
        let placed: u64 = loads.iter().map(|load| of(&load.placed)).sum();
        let capacity = of(&layout.nodes[node].capacity);
        (capacity * placed / whole + 1 + capacity * tolerance / 100).min(capacity)
    };
    (0..layout.nodes.len()).map(|node| self::of(cap(|of| of.ram_bytes, node), cap(|of| of.flash_bytes, node))).collect()
}

#[test]
fn a_drain_moves_little_more_than_the_least() {
    let mut ratios = Ratios::default();
    seeds::each(1, 200, |seed| {
        let layout = random_layout(&mut SplitMix64(seed));
        let request = Request::Drain { node: layout.nodes[0].id };
        let mut drained = layout.clone();
        drained.nodes[0].condition = cluster::placement::Condition::Draining;
        let mut caps: Vec<Resources> = layout.nodes.iter().map(|node| node.capacity).collect();
        caps[0] = Resources::default();
        // Other copies may stay crowded: the limit was larger before. Those layouts are left out.
        let is_crowded = |database: &DatabaseCopies| {
            copies_per_zone(&layout, &[], database.copies) != copies_per_zone(&drained, &[], database.copies)
        };
        if layout.databases.iter().any(is_crowded) {
            return;
        }
        match (plan(&layout, &request), Least::of(&drained, &caps)) {
            (Ok(_), _) => ratios.count(&drained, &caps, checked(&layout, &request).bytes),
            (Err(PlanError::Refused(_)), least) => ratios.missed += usize::from(least.is_some()),
            (Err(other), _) => panic!("{other}"),
        }
    });
    ratios.check("drain");
}

#[test]
fn a_resize_moves_little_more_than_the_least() {
    let mut ratios = Ratios::default();
    seeds::each(1, 300, |seed| {
        let mut random = SplitMix64(seed);
        let layout = random_layout(&mut random);
        let mut resized = layout.clone();
        let database = &mut resized.databases[random.index(layout.databases.len())];
        database.needs += of(random.below(20), random.below(20));
        let request = Request::Resize { database: database.id, needs: database.needs };
        let caps: Vec<Resources> = layout.nodes.iter().map(|node| node.capacity).collect();
        match (plan(&layout, &request), Least::of(&resized, &caps)) {
            (Ok(_), _) => ratios.count(&resized, &caps, checked(&layout, &request).bytes),
            (Err(PlanError::Refused(_)), least) => ratios.missed += usize::from(least.is_some()),
            (Err(other), _) => panic!("{other}"),
        }
    });
    ratios.check("resize");
}
