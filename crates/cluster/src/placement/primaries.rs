//! Owns which copy of a shard is its primary, so that primaries are spread evenly over nodes. Never moves a copy.

use super::Condition;
use super::state::PlacementState;
use std::collections::{BTreeMap, VecDeque};

/// Evens the primaries of the databases that are `touched`: each database for itself, then all together as far as that leaves each
/// database as even. Few primaries change: an even layout stays as it is.
pub fn even_out(state: &mut PlacementState, touched: &[bool]) {
    let mut of_database: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (index, shard) in state.shards.iter().enumerate() {
        if touched[shard.database] && state.nodes[shard.primary].room.condition != Condition::Lost {
            of_database.entry(shard.database).or_default().push(index);
        }
    }
    let mut all = vec![0_usize; state.nodes.len()];
    for shard in state.shards.iter().filter(|shard| !shard.nodes.is_empty()) {
        all[shard.primary] += 1;
    }
    // A copy on a node that is drained or lost is no candidate.
    let may_lead: Vec<bool> = state.nodes.iter().map(|node| node.is_open()).collect();
    let mut counts: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (&database, shards) in &of_database {
        let mut count = vec![0; state.nodes.len()];
        shards.iter().for_each(|&shard| count[state.shards[shard].primary] += 1);
        while let Some(path) = shorter(state, shards, &count, &may_lead) {
            for (shard, to) in path {
                let from = std::mem::replace(&mut state.shards[shard].primary, to);
                for counted in [&mut count, &mut all] {
                    counted[from] -= 1;
                    counted[to] += 1;
                }
            }
        }
        counts.insert(database, count);
    }
    // Each change brings two nodes nearer to each other, so this ends.
    let mut has_changed = true;
    while std::mem::take(&mut has_changed) {
        for (database, shards) in &of_database {
            let count = counts.get_mut(database).expect("counted above");
            for &shard in shards {
                let from = state.shards[shard].primary;
                let nodes = state.shards[shard].nodes.iter().copied().filter(|&node| node != from && may_lead[node]);
                let Some(to) = nodes.min_by_key(|&node| (all[node], node)) else { continue };
                if all[to] + 2 <= all[from] && count[to] < count[from] {
                    state.shards[shard].primary = to;
                    for counted in [&mut *count, &mut all] {
                        counted[from] -= 1;
                        counted[to] += 1;
                    }
                    has_changed = true;
                }
            }
        }
    }
}

/// Changes of primaries that take one from a node and give one to a node that has at least two fewer; nodes between keep their number. If
/// there are none, no choice of primaries has a smaller maximum. (It is an augmenting path: shards are edges between nodes.)
fn shorter(
    state: &PlacementState,
    shards: &[usize],
    count: &[usize],
    may_lead: &[bool],
) -> Option<Vec<(usize, usize)>> {
    let mut led_by: Vec<Vec<usize>> = vec![Vec::new(); count.len()];
    shards.iter().for_each(|&shard| led_by[state.shards[shard].primary].push(shard));
    let mut starts: Vec<usize> = (0..count.len()).filter(|&node| count[node] >= 2).collect();
    starts.sort_by_key(|&node| (std::cmp::Reverse(count[node]), node));
    // What was reached from a fuller node does not lead from an emptier one to a node that is emptier still by two.
    let mut came_by: Vec<Option<(usize, usize)>> = vec![None; count.len()];
    let mut is_seen = vec![false; count.len()];
    for start in starts {
        if std::mem::replace(&mut is_seen[start], true) {
            continue;
        }
        let mut queue = VecDeque::from([start]);
        while let Some(node) = queue.pop_front() {
            if count[node] + 2 <= count[start] {
                let mut path = Vec::new();
                let mut at = node;
                while let Some((shard, before)) = came_by[at].filter(|_| at != start) {
                    path.push((shard, at));
                    at = before;
                }
                return Some(path);
            }
            for &shard in &led_by[node] {
                for &next in state.shards[shard].nodes.iter().filter(|&&next| may_lead[next]) {
                    if !std::mem::replace(&mut is_seen[next], true) {
                        came_by[next] = Some((shard, node));
                        queue.push_back(next);
                    }
                }
            }
        }
    }
    None
}
