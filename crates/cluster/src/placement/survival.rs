//! Owns what happens to a layout if one node or one zone is lost: whether its copies find room on the others. Never predicts a failover.

use super::Condition;
use super::place::roomiest;
use super::state::PlacementState;
use crate::ids::NodeId;
use crate::names::ZoneName;
use std::fmt;

/// What is lost together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    Node(NodeId),
    Zone(ZoneName),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    pub lost: Lost,
    /// The node's or the zone's name.
    pub name: String,
    pub copies: usize,
    /// Copies for which the others have no room.
    pub homeless: usize,
    /// Shards that have no other copy: their data are lost.
    pub without_copy: usize,
}

impl Loss {
    /// Whether each shard has as many copies again afterwards.
    pub fn is_survived(&self) -> bool {
        self.homeless == 0 && self.without_copy == 0
    }
}

/// For each open node, and each zone if there are several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survival {
    pub losses: Vec<Loss>,
}

impl Survival {
    /// N+1: any one node may be lost.
    pub fn survives_any_node(&self) -> bool {
        self.losses.iter().filter(|loss| matches!(loss.lost, Lost::Node(_))).all(Loss::is_survived)
    }

    /// False if there is one zone only.
    pub fn survives_any_zone(&self) -> bool {
        let mut zones = self.losses.iter().filter(|loss| matches!(loss.lost, Lost::Zone(_))).peekable();
        zones.peek().is_some() && zones.all(Loss::is_survived)
    }
}

impl fmt::Display for Survival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bad: Vec<&Loss> = self.losses.iter().filter(|loss| !loss.is_survived()).collect();
        if bad.is_empty() {
            let what = if self.survives_any_zone() { "node or zone" } else { "node" };
            return write!(f, "any one {what} may be lost: the others have room for its copies");
        }
        bad.sort_by_key(|loss| std::cmp::Reverse((loss.without_copy, loss.homeless)));
        let lines = bad.iter().take(10).map(|loss| {
            let what = if matches!(loss.lost, Lost::Node(_)) { "node" } else { "zone" };
            let Loss { name, copies, homeless, without_copy, .. } = loss;
            let data =
                if *without_copy > 0 { format!(", {without_copy} shards have no other copy") } else { String::new() };
            format!("without {what} {name}: {homeless} of its {copies} copies find no room{data}")
        });
        f.write_str(&lines.collect::<Vec<_>>().join("\n"))?;
        if bad.len() > 10 { write!(f, "\nand {} more", bad.len() - 10) } else { Ok(()) }
    }
}

pub fn survival(state: &mut PlacementState) -> Survival {
    let open: Vec<usize> = (0..state.nodes.len()).filter(|&node| state.nodes[node].is_open()).collect();
    let mut losses = Vec::new();
    for &node in &open {
        let room = &state.nodes[node].room;
        let (lost, name) = (Lost::Node(room.id), room.name.to_string());
        losses.push(lose(state, &[node], lost, name));
    }
    let mut zones: Vec<ZoneName> = open.iter().map(|&node| state.nodes[node].room.zone.clone()).collect();
    zones.sort();
    zones.dedup();
    if zones.len() > 1 {
        for zone in zones {
            let nodes: Vec<usize> = open.iter().copied().filter(|&node| state.nodes[node].room.zone == zone).collect();
            losses.push(lose(state, &nodes, Lost::Zone(zone.clone()), zone.to_string()));
        }
    }
    Survival { losses }
}

/// Places the copies of lost nodes elsewhere, and leaves the state as it was.
fn lose(state: &mut PlacementState, nodes: &[usize], lost: Lost, name: String) -> Loss {
    nodes.iter().for_each(|&node| state.close(node, Condition::Lost));
    let mut copies: Vec<(usize, usize)> =
        nodes.iter().flat_map(|&node| state.nodes[node].shards.iter().map(move |&shard| (shard, node))).collect();
    copies.sort_by_key(|&(shard, node)| {
        let needs = state.needs_of(shard);
        (std::cmp::Reverse((needs.ram_bytes, needs.flash_bytes)), shard, node)
    });
    let mut loss = Loss { lost, name, copies: copies.len(), homeless: 0, without_copy: 0 };
    let (caps, mut moved) = (state.capacities(), Vec::new());
    let mut counted = std::collections::BTreeSet::new();
    for &(shard, node) in &copies {
        if state.shards[shard].nodes.iter().all(|&other| state.nodes[other].room.condition == Condition::Lost) {
            loss.without_copy += usize::from(counted.insert(shard));
            continue;
        }
        match roomiest(state, shard, Some(node), &caps) {
            Some(to) => {
                let primary = state.shards[shard].primary;
                state.shift(shard, node, to);
                moved.push((shard, node, to, primary));
            }
            None => loss.homeless += 1,
        }
    }
    for (shard, from, to, primary) in moved.into_iter().rev() {
        state.shift(shard, to, from);
        state.shards[shard].primary = primary;
    }
    nodes.iter().for_each(|&node| state.close(node, Condition::Open));
    loss
}
