//! Owns why there is no plan: what each node answered, as data and as a text. Never decides it.

use super::state::PlacementState;
use crate::ids::{DatabaseId, NodeId, ShardUid};
use crate::limits::Resources;
use crate::names::{NodeName, ZoneName};
use base::size;
use std::fmt;

/// A text shows this many nodes. The data has all.
const NODES_SHOWN_MAX: usize = 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    UnknownNode(NodeId),
    UnknownDatabase(DatabaseId),
    /// The layout or the request contradicts itself.
    Layout(String),
    /// A copy finds no node.
    Refused(Refusal),
}

impl From<Refusal> for PlanError {
    fn from(refusal: Refusal) -> PlanError {
        PlanError::Refused(refusal)
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::UnknownNode(id) => write!(f, "there is no node {id}"),
            PlanError::UnknownDatabase(id) => write!(f, "there is no database {id}"),
            PlanError::Layout(why) => f.write_str(why),
            PlanError::Refused(refusal) => refusal.fmt(f),
        }
    }
}

impl std::error::Error for PlanError {}

/// A copy that finds no node, with what each node answers. What the plan had placed until then counts as placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub shard: ShardUid,
    /// The node that the copy was to leave.
    pub from: Option<NodeName>,
    pub needs: Resources,
    /// Those with the largest free share first.
    pub nodes: Vec<NodeAnswer>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAnswer {
    pub node: NodeId,
    pub name: NodeName,
    pub zone: ZoneName,
    pub why: WhyNot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyNot {
    Quorum,
    Draining,
    Lost,
    /// The database has no copies in this zone.
    Zone,
    HasCopy,
    /// So many, and another zone has fewer.
    ZoneHasCopies {
        copies: usize,
    },
    NoRoom {
        capacity: Resources,
        placed: Resources,
        needs: Resources,
    },
    /// There is room, but not in this order of moves, or not for all copies that look for it.
    NotReached,
}

impl Refusal {
    pub fn of_new(state: &PlacementState, shard: usize) -> Refusal {
        Refusal::of(state, shard, None)
    }

    /// `leaving`: the node that the copy is on.
    pub fn of(state: &PlacementState, shard: usize, leaving: Option<usize>) -> Refusal {
        let rules = state.rules(shard, leaving);
        let needs = state.needs_of(shard);
        let mut order: Vec<usize> = (0..state.nodes.len()).filter(|&node| Some(node) != leaving).collect();
        order.sort_by(|&a, &b| {
            state.nodes[a].share_with(Resources::default()).total_cmp(&state.nodes[b].share_with(Resources::default()))
        });
        let answer = |node: usize| {
            let room = &state.nodes[node].room;
            let no_room = || match state.has_room(shard, node, room.capacity) {
                true => WhyNot::NotReached,
                false => WhyNot::NoRoom { capacity: room.capacity, placed: state.nodes[node].placed, needs },
            };
            let why = state.forbids(&rules, node).unwrap_or_else(no_room);
            NodeAnswer { node: room.id, name: room.name.clone(), zone: room.zone.clone(), why }
        };
        Refusal {
            shard: state.shards[shard].uid,
            from: leaving.map(|node| state.nodes[node].room.name.clone()),
            needs,
            nodes: order.into_iter().map(answer).collect(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { shard, from, needs, nodes } = self;
        let (database, number) = (shard.database(), shard.number());
        match from {
            None => write!(f, "no node takes a copy of shard {number} of database {database}, which needs {needs}")?,
            Some(from) => write!(
                f,
                "the copy of shard {number} of database {database} on node {from}, which needs {needs}, can go nowhere"
            )?,
        }
        for answer in nodes.iter().take(NODES_SHOWN_MAX) {
            write!(f, "\n{answer}")?;
        }
        match nodes.len().saturating_sub(NODES_SHOWN_MAX) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more nodes"),
        }
    }
}

impl fmt::Display for NodeAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}: ", self.name)?;
        match self.why {
            WhyNot::Quorum => f.write_str("only votes"),
            WhyNot::Draining => f.write_str("is being drained"),
            WhyNot::Lost => f.write_str("is lost"),
            WhyNot::Zone => write!(f, "the database has no copies in zone {}", self.zone),
            WhyNot::HasCopy => f.write_str("has a copy of the shard"),
            WhyNot::ZoneHasCopies { copies: 1 } => write!(f, "zone {} has a copy of the shard", self.zone),
            WhyNot::ZoneHasCopies { copies } => write!(f, "zone {} has {copies} copies of the shard", self.zone),
            WhyNot::NoRoom { capacity, placed, needs } => {
                let of = |what: &str, capacity: u64, placed: u64, needs: u64| {
                    let left = capacity.saturating_sub(placed);
                    let human = size::human;
                    (needs > left).then(|| {
                        format!(
                            "{what} {}, {} placed, {} free, {} needed",
                            human(capacity),
                            human(placed),
                            human(left),
                            human(needs)
                        )
                    })
                };
                let ram = of("RAM", capacity.ram_bytes, placed.ram_bytes, needs.ram_bytes);
                let flash = of("flash", capacity.flash_bytes, placed.flash_bytes, needs.flash_bytes);
                f.write_str(&ram.into_iter().chain(flash).collect::<Vec<_>>().join("; "))
            }
            WhyNot::NotReached => f.write_str("has room for this copy, but not for all that look for it"),
        }
    }
}
