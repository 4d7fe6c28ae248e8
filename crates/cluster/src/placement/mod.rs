//! Owns where copies of shards are placed: from what is there and what is asked for to a plan. Never carries a plan out, and never decides
//! which copy is promoted after a failure.
//!
//! # Rules
//! Each plan keeps them, also after each of its changes:
//! - A node has at most one copy of a shard, and only data nodes have copies.
//! - The copies on a node take no more than its RAM and flash, a moving copy on both nodes.
//! - A new or moved copy goes to a zone with fewer copies of its shard than the limit: one, if there are enough zones with open nodes. If
//!   there are fewer, the limit is the smallest with which all copies find a node.
//! - Equal layouts and requests give equal plans.
//!
//! # Files
//! `state` (the layout in indices, the rules), `place` (new copies), `relieve` (the search for moves with few bytes), `primaries`,
//! `survival` (what happens if a node or a zone is lost), `refusal` (why there is no plan).

mod place;
mod primaries;
mod refusal;
mod relieve;
mod state;
mod survival;

use crate::ids::{DatabaseId, NodeId, ShardNumber, ShardUid, shard_uid};
use crate::limits::{REPLICAS_MAX, Resources};
use crate::names::{NodeName, ZoneName};
use crate::records::{Role, Step, StepKind, Unknown};
use crate::stripes::SHARDS_MAX;
use std::collections::BTreeMap;

pub use refusal::{NodeAnswer, PlanError, Refusal, WhyNot};
use state::PlacementState;
pub use survival::{Loss, Lost, Survival};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    Open,
    /// Keeps what it has until that has left, and takes nothing.
    Draining,
    /// Its copies are gone, or count as gone.
    Lost,
}

/// A node, and what it has for copies of shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRoom {
    pub id: NodeId,
    pub name: NodeName,
    pub zone: ZoneName,
    pub role: Role,
    pub condition: Condition,
    /// Of RAM, without what proxies shall have: see [`limits::ram_for_copies`](crate::limits::ram_for_copies).
    pub capacity: Resources,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardCopies {
    pub number: ShardNumber,
    /// What a full synchronisation sends.
    pub bytes: u64,
    pub primary: NodeId,
    /// Nodes of the other copies, in ascending order.
    pub replicas: Vec<NodeId>,
}

/// A database, and where its copies are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseCopies {
    pub id: DatabaseId,
    /// What each copy takes of a node.
    pub needs: Resources,
    /// How many copies a shard shall have.
    pub copies: u32,
    /// Only these zones have copies. Empty: any.
    pub zones: Vec<ZoneName>,
    pub shards: Vec<ShardCopies>,
}

/// All nodes and copies of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    pub nodes: Vec<NodeRoom>,
    pub databases: Vec<DatabaseCopies>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A database with so many empty shards.
    Create { database: DatabaseId, shards: u16, copies: u32, needs: Resources, zones: Vec<ZoneName> },
    /// Each copy of the database takes so much from now on.
    Resize { database: DatabaseId, needs: Resources },
    /// Shards get more copies, each of which takes so much: the database's limits are divided among more.
    AddReplicas { database: DatabaseId, copies: u32, needs: Resources },
    /// Shards of the database that lack copies, because the nodes of these were removed from the cluster, get new ones as far as there is room.
    AddMissing { database: DatabaseId },
    /// Each copy leaves the node.
    Drain { node: NodeId },
    /// The node is lost. Its copies come anew on other nodes, as far as these have room. Failovers come before: a shard whose primary
    /// is still on the node has no new copy.
    Replace { node: NodeId },
    /// The node is lost, and so are the shards that only it had: each comes anew on another node, and is empty.
    GiveUp { node: NodeId },
    /// Nodes that have more than their share give copies to others.
    Rebalance,
    /// Each node is the primary of as many shards as the others, as far as copies are there.
    EvenPrimaries,
}

/// A change of the layout. They are made one after the other: an earlier one may make the room for a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The first copy of a new shard is its primary.
    Add {
        shard: ShardUid,
        to: NodeId,
    },
    /// A copy that is its shard's primary stays it.
    Move {
        shard: ShardUid,
        from: NodeId,
        to: NodeId,
    },
    /// The copy of a lost node.
    Drop {
        shard: ShardUid,
        from: NodeId,
    },
    SwitchOver {
        shard: ShardUid,
        to: NodeId,
    },
    /// The copies of the database get their new limits.
    Resize {
        database: DatabaseId,
    },
}

/// What carries a request out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub changes: Vec<Change>,
    /// What full synchronisations send.
    pub bytes: u64,
    /// Nodes by id, databases by id, shards by number.
    pub after: Layout,
    /// Copies for which there is no room: of a lost node, or that shards lack.
    pub missing: Vec<Refusal>,
    /// Shards of a lost node without another copy, or without a primary on another node yet.
    pub without_primary: Vec<ShardUid>,
    /// Of a rebalancing: no node has more than the average share of all nodes and so many percent of its capacity. A node whose only
    /// copy is larger stays as it is.
    pub tolerance_percent: Option<u64>,
    /// Shards with more copies in a zone than the rule allows: the zones have changed since they were placed. A rebalancing spreads them.
    pub crowded: Vec<ShardUid>,
    pub survival: Survival,
}

/// What is placed on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeLoad {
    pub node: NodeId,
    pub capacity: Resources,
    pub placed: Resources,
    pub copies: usize,
    pub primaries: usize,
}

/// A rebalancing tries these one after the other, until it finds moves. The first is the usual threshold of rebalancing stores (that
/// of CockroachDB is 5 % too): a smaller one would move copies for little.
const TOLERANCES_PERCENT: [u64; 5] = [5, 10, 20, 40, 100];

/// A plan for the request.
pub fn plan(layout: &Layout, request: &Request) -> Result<Plan, PlanError> {
    let mut state = PlacementState::new(layout)?;
    let mut draft = Draft::default();
    match request {
        Request::Create { database, shards, copies, needs, zones } => {
            let created = DatabaseCopies {
                id: *database,
                needs: *needs,
                copies: *copies,
                zones: zones.clone(),
                shards: Vec::new(),
            };
            let index = state.add_database(&created)?;
            if *shards == 0 || *shards > SHARDS_MAX {
                return Err(PlanError::Layout(format!("{shards} shards are not from 1 to {SHARDS_MAX}")));
            }
            create(&mut state, index, *shards, &mut draft)?;
        }
        Request::Resize { database, needs } => {
            let database = state.find_database(*database)?;
            let copies = state.databases[database].copies;
            resize(&mut state, database, copies, *needs, &mut draft)?;
        }
        Request::AddReplicas { database, copies, needs } => {
            let database = state.find_database(*database)?;
            let before = state.databases[database].copies;
            if *copies <= before || *copies > REPLICAS_MAX + 1 {
                let most = REPLICAS_MAX + 1;
                return Err(PlanError::Layout(format!("{copies} copies are not from {} to {most}", before + 1)));
            }
            resize(&mut state, database, *copies, *needs, &mut draft)?;
        }
        Request::AddMissing { database } => {
            let database = state.find_database(*database)?;
            add_missing(&mut state, database, &mut draft);
        }
        Request::Drain { node } => {
            let node = state.find_node(*node)?;
            state.close(node, Condition::Draining);
            let mut caps = state.capacities();
            caps[node] = Resources::default();
            draft.take_moves(&state.clone(), relieve::relieve(&mut state, &caps, &[node])?);
        }
        Request::Replace { node } => {
            let node = state.find_node(*node)?;
            state.close(node, Condition::Lost);
            replace(&mut state, node, &mut draft);
        }
        Request::GiveUp { node } => {
            let node = state.find_node(*node)?;
            state.close(node, Condition::Lost);
            give_up(&mut state, node, &mut draft)?;
        }
        Request::Rebalance => rebalance(&mut state, &mut draft)?,
        Request::EvenPrimaries => {}
    }
    draft.even_primaries(&mut state, matches!(request, Request::Rebalance | Request::EvenPrimaries));
    Ok(Plan {
        bytes: draft.bytes,
        changes: draft.changes,
        missing: draft.missing,
        without_primary: draft.without_primary,
        tolerance_percent: draft.tolerance_percent,
        crowded: state.crowded().map(|shard| state.shards[shard].uid).collect(),
        survival: survival::survival(&mut state),
        after: state.layout(),
    })
}

impl Layout {
    /// In the layout's order of nodes.
    pub fn loads(&self) -> Result<Vec<NodeLoad>, PlanError> {
        let state = PlacementState::new(self)?;
        let load = |node: &NodeRoom| {
            let index = state.find_node(node.id).expect("the state has each node");
            NodeLoad {
                node: node.id,
                capacity: node.capacity,
                placed: state.nodes[index].placed,
                copies: state.nodes[index].shards.len(),
                primaries: state.primaries_of(index).count(),
            }
        };
        Ok(self.nodes.iter().map(load).collect())
    }
}

/// The changes so far.
#[derive(Default)]
struct Draft {
    changes: Vec<Change>,
    bytes: u64,
    missing: Vec<Refusal>,
    without_primary: Vec<ShardUid>,
    tolerance_percent: Option<u64>,
}

impl Draft {
    fn add(&mut self, state: &PlacementState, shard: usize, to: usize) {
        self.changes.push(Change::Add { shard: state.shards[shard].uid, to: state.nodes[to].room.id });
        self.bytes += state.shards[shard].bytes;
    }

    fn take_moves(&mut self, state: &PlacementState, moves: Vec<relieve::Move>) {
        for relieve::Move { shard, from, to } in moves {
            let (from, to) = (state.nodes[from].room.id, state.nodes[to].room.id);
            self.bytes += state.shards[shard].bytes;
            self.changes.push(Change::Move { shard: state.shards[shard].uid, from, to });
        }
    }

    /// Evens the primaries of the databases that the plan touches. New shards have not served yet, so that they need no switchover.
    fn even_primaries(&mut self, state: &mut PlacementState, all: bool) {
        let mut touched = vec![all; state.databases.len()];
        let mut is_new = vec![false; state.shards.len()];
        for change in &self.changes {
            if let Change::Add { shard, .. } | Change::Move { shard, .. } | Change::Drop { shard, .. } = *change {
                let index = state.find_shard(shard);
                touched[state.shards[index].database] = true;
                is_new[index] = state.shards[index].is_new;
            }
        }
        let before: Vec<usize> = state.shards.iter().map(|shard| shard.primary).collect();
        primaries::even_out(state, &touched);
        let ids = |node: usize| state.nodes[node].room.id;
        for (shard, &before) in state.shards.iter().zip(&before) {
            if shard.primary != before && !shard.is_new {
                self.changes.push(Change::SwitchOver { shard: shard.uid, to: ids(shard.primary) });
            }
        }
        // Of new shards, the primary's copy comes first.
        if is_new.contains(&true) {
            let is_primary = |change: &Change| match *change {
                Change::Add { shard, to } => ids(state.shards[state.find_shard(shard)].primary) == to,
                _ => false,
            };
            self.changes.sort_by_key(|change| match change {
                Change::Add { shard, .. } => (Some(*shard), !is_primary(change)),
                _ => (None, false),
            });
        }
    }
}

fn create(state: &mut PlacementState, database: usize, shards: u16, draft: &mut Draft) -> Result<(), PlanError> {
    let first = state.shards.len();
    for number in 0..shards {
        state.add_shard(database, shard_uid(state.databases[database].id, ShardNumber(number)));
    }
    let created: Vec<usize> = (first..state.shards.len()).collect();
    place::place_all(state, &created)?;
    for &shard in &created {
        state.shards[shard].primary = state.shards[shard].nodes[0];
        for index in 0..state.shards[shard].nodes.len() {
            draft.add(state, shard, state.shards[shard].nodes[index]);
        }
    }
    Ok(())
}

/// Gives the copies of a database new limits, and perhaps its shards more copies. Limits that shrink do so first, because that makes the
/// room; others only when moves have made the room.
fn resize(
    state: &mut PlacementState,
    database: usize,
    copies: u32,
    needs: Resources,
    draft: &mut Draft,
) -> Result<(), PlanError> {
    state::check_needs(needs)?;
    let before = state.databases[database].needs;
    let resized = Change::Resize { database: state.databases[database].id };
    let shrinks = needs.fits_in(before);
    if shrinks && needs != before {
        draft.changes.push(resized);
    }
    // If one limit grows and another shrinks, a moved copy might have the old one for a while.
    let during = Resources {
        ram_bytes: needs.ram_bytes.max(before.ram_bytes),
        flash_bytes: needs.flash_bytes.max(before.flash_bytes),
    };
    state.set_needs(database, if shrinks { needs } else { during });
    let caps = state.capacities();
    let mut over = state.above(&caps);
    over.retain(|&node| state.has_copy_of(node, database));
    draft.take_moves(&state.clone(), relieve::relieve(state, &caps, &over)?);
    state.databases[database].copies = copies;
    let lacking = state.lacking(database);
    place::place_all(state, &lacking)?.into_iter().for_each(|(shard, to)| draft.add(state, shard, to));
    state.set_needs(database, needs);
    if !shrinks {
        draft.changes.push(resized);
    }
    Ok(())
}

fn add_missing(state: &mut PlacementState, database: usize, draft: &mut Draft) {
    let (placed, missing) = place::add_missing(state, database);
    placed.into_iter().for_each(|(shard, to)| draft.add(state, shard, to));
    draft.missing = missing.into_iter().map(|shard| Refusal::of_new(state, shard)).collect();
}

fn replace(state: &mut PlacementState, node: usize, draft: &mut Draft) {
    for shard in state.nodes[node].shards.clone() {
        if state.shards[shard].primary == node {
            draft.without_primary.push(state.shards[shard].uid);
        }
    }
    let from = state.nodes[node].room.id;
    let (placed, missing) = place::replace_copies(state, node);
    for &(shard, to) in &placed {
        draft.add(state, shard, to);
        draft.changes.push(Change::Drop { shard: state.shards[shard].uid, from });
    }
    draft.missing = missing.into_iter().map(|shard| Refusal::of_new(state, shard)).collect();
}

fn give_up(state: &mut PlacementState, node: usize, draft: &mut Draft) -> Result<(), PlanError> {
    let from = state.nodes[node].room.id;
    let mut by_database: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for shard in state.nodes[node].shards.clone() {
        if state.shards[shard].nodes.len() == 1 {
            state.take(shard, node);
            state.shards[shard].bytes = 0;
            draft.changes.push(Change::Drop { shard: state.shards[shard].uid, from });
            by_database.entry(state.shards[shard].database).or_default().push(shard);
        }
    }
    for shards in by_database.values() {
        for (shard, to) in place::place_all(state, shards)? {
            if state.shards[shard].primary == node {
                state.shards[shard].primary = to;
            }
            draft.add(state, shard, to);
        }
    }
    Ok(())
}

fn rebalance(state: &mut PlacementState, draft: &mut Draft) -> Result<(), PlanError> {
    let before = state.clone();
    let mut refusal = None;
    // If the zones have no room for an even spread, at least the nodes are balanced.
    for spreads in [true, false] {
        for tolerance in TOLERANCES_PERCENT {
            let caps = before.caps_of_share(tolerance);
            let mut over = before.above(&caps);
            over.retain(|&node| before.nodes[node].is_open() && before.nodes[node].shards.len() > 1);
            let found = match spreads {
                true => relieve::relieve_and_spread(state, &caps, &over),
                false => relieve::relieve(state, &caps, &over),
            };
            match found {
                Ok(moves) => {
                    draft.tolerance_percent = Some(tolerance);
                    draft.take_moves(&before, moves);
                    return Ok(());
                }
                Err(why) => refusal = Some(why),
            }
        }
    }
    Err(refusal.expect("a tolerance was tried").into())
}

impl From<Change> for Step {
    fn from(change: Change) -> Step {
        let (kind, shard, from, to) = match change {
            Change::Add { shard, to } => (StepKind::Add, Some(shard), None, Some(to)),
            Change::Move { shard, from, to } => (StepKind::Move, Some(shard), Some(from), Some(to)),
            Change::Drop { shard, from } => (StepKind::Drop, Some(shard), Some(from), None),
            Change::SwitchOver { shard, to } => (StepKind::SwitchOver, Some(shard), None, Some(to)),
            Change::Resize { .. } => (StepKind::Resize, None, None, None),
        };
        Step { kind, shard, from, to, restarted: None, unknown: Unknown::new() }
    }
}
