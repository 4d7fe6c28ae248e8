//! Owns a layout while a plan is made: nodes, databases and shards as indices, what is placed where, and the rules for one copy. Never
//! chooses among nodes that a rule allows.

use super::{Condition, DatabaseCopies, Layout, NodeRoom, PlanError, ShardCopies, WhyNot};
use crate::ids::{DatabaseId, NodeId, ShardUid, shard_uid};
use crate::limits::{REPLICAS_MAX, Resources};
use crate::records::Role;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone)]
pub struct PlacementState {
    /// By id.
    pub nodes: Vec<Node>,
    pub databases: Vec<Database>,
    pub shards: Vec<Shard>,
    /// For each zone: how many nodes of it take copies.
    open_nodes: Vec<usize>,
    shard_of_uid: BTreeMap<ShardUid, usize>,
}

#[derive(Clone)]
pub struct Node {
    pub room: NodeRoom,
    pub zone: usize,
    pub placed: Resources,
    pub shards: Vec<usize>,
}

#[derive(Clone)]
pub struct Database {
    pub id: DatabaseId,
    pub needs: Resources,
    pub copies: u32,
    zones: Vec<crate::names::ZoneName>,
    /// For each zone: whether it may have copies.
    allowed: Vec<bool>,
}

#[derive(Clone)]
pub struct Shard {
    pub uid: ShardUid,
    pub database: usize,
    pub bytes: u64,
    pub nodes: Vec<usize>,
    /// A node.
    pub primary: usize,
    /// The plan makes it.
    pub is_new: bool,
}

impl Node {
    pub fn is_open(&self) -> bool {
        self.room.role == Role::Data && self.room.condition == Condition::Open
    }

    /// The larger share of RAM or flash that would be taken.
    pub fn share_with(&self, more: Resources) -> f64 {
        let of = |placed: u64, capacity: u64| if placed == 0 { 0.0 } else { placed as f64 / capacity as f64 };
        let Resources { ram_bytes, flash_bytes } = self.placed + more;
        of(ram_bytes, self.room.capacity.ram_bytes).max(of(flash_bytes, self.room.capacity.flash_bytes))
    }
}

impl PlacementState {
    pub fn new(layout: &Layout) -> Result<PlacementState, PlanError> {
        let wrong = |why: String| Err(PlanError::Layout(why));
        let mut rooms = layout.nodes.clone();
        rooms.sort_by_key(|room| room.id);
        if let Some(pair) = rooms.windows(2).find(|pair| pair[0].id == pair[1].id) {
            return wrong(format!("node {} is there twice", pair[0].id));
        }
        let zones: BTreeSet<_> = layout.nodes.iter().map(|room| room.zone.clone()).collect();
        let zones: Vec<_> = zones.into_iter().collect();
        let node = |room: NodeRoom| {
            let zone = zones.binary_search(&room.zone).expect("each zone is there");
            Node { room, zone, placed: Resources::default(), shards: Vec::new() }
        };
        let mut state = PlacementState {
            nodes: rooms.into_iter().map(node).collect(),
            databases: Vec::new(),
            shards: Vec::new(),
            open_nodes: vec![0; zones.len()],
            shard_of_uid: BTreeMap::new(),
        };
        state.count_open_nodes();
        let mut databases: Vec<&DatabaseCopies> = layout.databases.iter().collect();
        databases.sort_by_key(|database| database.id);
        for database in databases {
            let index = state.add_database(database)?;
            let mut shards: Vec<&ShardCopies> = database.shards.iter().collect();
            shards.sort_by_key(|shard| shard.number);
            for shard in shards {
                let uid = shard_uid(database.id, shard.number);
                if state.shard_of_uid.contains_key(&uid) {
                    return wrong(format!("shard {uid} is there twice"));
                }
                let added = state.add_shard(index, uid);
                for &id in std::iter::once(&shard.primary).chain(&shard.replicas) {
                    let node = state.find_node(id)?;
                    if state.shards[added].nodes.contains(&node) {
                        return wrong(format!("shard {uid} has two copies on node {id}"));
                    }
                    state.put(added, node);
                }
                let primary = state.shards[added].nodes[0];
                state.shards[added].nodes.sort_unstable();
                state.shards[added] =
                    Shard { bytes: shard.bytes, primary, is_new: false, ..state.shards[added].clone() };
            }
        }
        Ok(state)
    }

    /// The layout again, in order.
    pub fn layout(&self) -> Layout {
        let id = |&node: &usize| self.nodes[node].room.id;
        let mut databases: Vec<DatabaseCopies> = self
            .databases
            .iter()
            .map(|database| DatabaseCopies {
                id: database.id,
                needs: database.needs,
                copies: database.copies,
                zones: database.zones.clone(),
                shards: Vec::new(),
            })
            .collect();
        for shard in &self.shards {
            let mut replicas: Vec<NodeId> = shard.nodes.iter().filter(|&&node| node != shard.primary).map(id).collect();
            replicas.sort_unstable();
            databases[shard.database].shards.push(ShardCopies {
                number: shard.uid.number(),
                bytes: shard.bytes,
                primary: id(&shard.primary),
                replicas,
            });
        }
        databases.sort_by_key(|database| database.id);
        Layout { nodes: self.nodes.iter().map(|node| node.room.clone()).collect(), databases }
    }

    pub fn find_node(&self, id: NodeId) -> Result<usize, PlanError> {
        self.nodes.binary_search_by_key(&id, |node| node.room.id).map_err(|_| PlanError::UnknownNode(id))
    }

    pub fn find_database(&self, id: DatabaseId) -> Result<usize, PlanError> {
        self.databases.iter().position(|database| database.id == id).ok_or(PlanError::UnknownDatabase(id))
    }

    /// Of a shard that is there.
    pub fn find_shard(&self, uid: ShardUid) -> usize {
        self.shard_of_uid[&uid]
    }

    pub fn add_database(&mut self, database: &DatabaseCopies) -> Result<usize, PlanError> {
        let DatabaseCopies { id, needs, copies, ref zones, .. } = *database;
        if self.databases.iter().any(|other| other.id == id) {
            return Err(PlanError::Layout(format!("database {id} is there already")));
        }
        check_needs(needs)?;
        if copies == 0 || copies > REPLICAS_MAX + 1 {
            return Err(PlanError::Layout(format!("{copies} copies are not from 1 to {}", REPLICAS_MAX + 1)));
        }
        let mut allowed = vec![zones.is_empty(); self.open_nodes.len()];
        for node in self.nodes.iter().filter(|node| zones.contains(&node.room.zone)) {
            allowed[node.zone] = true;
        }
        self.databases.push(Database { id, needs, copies, zones: zones.clone(), allowed });
        Ok(self.databases.len() - 1)
    }

    /// A shard without a copy yet.
    pub fn add_shard(&mut self, database: usize, uid: ShardUid) -> usize {
        self.shards.push(Shard { uid, database, bytes: 0, nodes: Vec::new(), primary: 0, is_new: true });
        self.shard_of_uid.insert(uid, self.shards.len() - 1);
        self.shards.len() - 1
    }

    pub fn close(&mut self, node: usize, condition: Condition) {
        self.nodes[node].room.condition = condition;
        self.count_open_nodes();
    }

    fn count_open_nodes(&mut self) {
        self.open_nodes.fill(0);
        for node in self.nodes.iter().filter(|node| node.is_open()) {
            self.open_nodes[node.zone] += 1;
        }
    }

    pub fn needs_of(&self, shard: usize) -> Resources {
        self.databases[self.shards[shard].database].needs
    }

    pub fn put(&mut self, shard: usize, node: usize) {
        let needs = self.needs_of(shard);
        self.nodes[node].placed += needs;
        self.nodes[node].shards.push(shard);
        self.shards[shard].nodes.push(node);
    }

    pub fn take(&mut self, shard: usize, node: usize) {
        let needs = self.needs_of(shard);
        self.nodes[node].placed -= needs;
        self.nodes[node].shards.retain(|&other| other != shard);
        self.shards[shard].nodes.retain(|&other| other != node);
    }

    /// Moves a copy. A primary stays the primary.
    pub fn shift(&mut self, shard: usize, from: usize, to: usize) {
        self.take(shard, from);
        self.put(shard, to);
        if self.shards[shard].primary == from {
            self.shards[shard].primary = to;
        }
    }

    pub fn set_needs(&mut self, database: usize, needs: Resources) {
        let before = std::mem::replace(&mut self.databases[database].needs, needs);
        for shard in self.shards.iter().filter(|shard| shard.database == database) {
            for &node in &shard.nodes {
                self.nodes[node].placed -= before;
                self.nodes[node].placed += needs;
            }
        }
    }

    pub fn capacities(&self) -> Vec<Resources> {
        self.nodes.iter().map(|node| node.room.capacity).collect()
    }

    /// For each open node, the average share of all open nodes and `tolerance_percent` of its capacity. Other nodes: nothing.
    pub fn caps_of_share(&self, tolerance_percent: u64) -> Vec<Resources> {
        let share = |placed: fn(&Resources) -> u64| {
            let open = || self.nodes.iter().filter(|node| node.is_open());
            let all: u128 = open().map(|node| u128::from(placed(&node.placed))).sum();
            let whole: u128 = open().map(|node| u128::from(placed(&node.room.capacity))).sum();
            move |node: &Node| {
                let capacity = u128::from(placed(&node.room.capacity));
                // Rounded up: a node with exactly its share is not above it.
                let average = (capacity * all).checked_div(whole).map_or(0, |average| average + 1);
                (average + capacity * u128::from(tolerance_percent) / 100).min(capacity) as u64
            }
        };
        let (ram, flash) = (share(|of| of.ram_bytes), share(|of| of.flash_bytes));
        let cap = |node: &Node| match node.is_open() {
            true => Resources { ram_bytes: ram(node), flash_bytes: flash(node) },
            false => Resources::default(),
        };
        self.nodes.iter().map(cap).collect()
    }

    /// The nodes that hold more than their cap, but for lost ones.
    pub fn above(&self, caps: &[Resources]) -> Vec<usize> {
        let is_above = |&node: &usize| {
            let Node { room, placed, .. } = &self.nodes[node];
            room.condition != Condition::Lost && !placed.fits_in(caps[node])
        };
        (0..self.nodes.len()).filter(is_above).collect()
    }

    pub fn has_copy_of(&self, node: usize, database: usize) -> bool {
        self.nodes[node].shards.iter().any(|&shard| self.shards[shard].database == database)
    }

    /// The shards of a database that have too few copies.
    pub fn lacking(&self, database: usize) -> Vec<usize> {
        let copies = self.databases[database].copies as usize;
        let lacks = |&shard: &usize| self.shards[shard].database == database && self.shards[shard].nodes.len() < copies;
        (0..self.shards.len()).filter(lacks).collect()
    }

    pub fn primaries_of(&self, node: usize) -> impl Iterator<Item = usize> {
        self.nodes[node].shards.iter().copied().filter(move |&shard| self.shards[shard].primary == node)
    }

    pub fn may_have(&self, database: usize, zone: usize) -> bool {
        self.databases[database].allowed[zone]
    }

    /// How many copies of a shard a zone may have: the smallest number with which all copies find an open node.
    pub fn copies_per_zone(&self, database: usize) -> usize {
        let Database { copies, allowed, .. } = &self.databases[database];
        let nodes = || self.open_nodes.iter().zip(allowed).filter(|(_, allowed)| **allowed).map(|(nodes, _)| *nodes);
        let finds_all = |limit: usize| nodes().map(|nodes| nodes.min(limit)).sum::<usize>() >= *copies as usize;
        (1..*copies as usize).find(|&limit| finds_all(limit)).unwrap_or(*copies as usize)
    }

    /// Lost copies do not count.
    pub fn copies_in_zone(&self, shard: usize, zone: usize) -> usize {
        let nodes = self.shards[shard].nodes.iter().map(|&node| &self.nodes[node]);
        nodes.filter(|node| node.zone == zone && node.room.condition != Condition::Lost).count()
    }

    /// Shards that have a zone with too many copies.
    pub fn crowded(&self) -> impl Iterator<Item = usize> {
        (0..self.shards.len()).filter(|&shard| self.crowded_zones(shard).next().is_some())
    }

    /// Zones that have more copies of the shard than the limit.
    pub fn crowded_zones(&self, shard: usize) -> impl Iterator<Item = usize> {
        let limit = self.copies_per_zone(self.shards[shard].database);
        let zones: BTreeSet<usize> = self.shards[shard].nodes.iter().map(|&node| self.nodes[node].zone).collect();
        zones.into_iter().filter(move |&zone| self.copies_in_zone(shard, zone) > limit)
    }

    /// For copies of this shard, perhaps of one that leaves a node.
    pub fn rules(&self, shard: usize, leaving: Option<usize>) -> Rules {
        let limit = self.copies_per_zone(self.shards[shard].database);
        let is_other = |node: &usize| Some(*node) != leaving && self.nodes[*node].room.condition != Condition::Lost;
        let others = self.shards[shard].nodes.iter().copied().filter(is_other);
        Rules { shard, limit, other_zones: others.map(|node| self.nodes[node].zone).collect() }
    }

    /// Why a node must not have the copy, whatever room it has.
    pub fn forbids(&self, rules: &Rules, node: usize) -> Option<WhyNot> {
        let Node { room, zone, .. } = &self.nodes[node];
        if room.role == Role::Quorum {
            return Some(WhyNot::Quorum);
        }
        match room.condition {
            Condition::Open => {}
            Condition::Draining => return Some(WhyNot::Draining),
            Condition::Lost => return Some(WhyNot::Lost),
        }
        if !self.may_have(self.shards[rules.shard].database, *zone) {
            return Some(WhyNot::Zone);
        }
        if self.shards[rules.shard].nodes.contains(&node) {
            return Some(WhyNot::HasCopy);
        }
        let in_zone = rules.other_zones.iter().filter(|other| *other == zone).count();
        (in_zone >= rules.limit).then_some(WhyNot::ZoneHasCopies { copies: in_zone })
    }

    pub fn has_room(&self, shard: usize, node: usize, cap: Resources) -> bool {
        (self.nodes[node].placed + self.needs_of(shard)).fits_in(cap)
    }
}

/// With larger copies, sums could overflow; no machine has so much. A copy without RAM could not be told from none.
pub fn check_needs(needs: Resources) -> Result<(), PlanError> {
    const MAX: u64 = 1 << 44;
    if needs.ram_bytes == 0 {
        return Err(PlanError::Layout("a copy needs RAM".to_owned()));
    }
    match needs.ram_bytes.max(needs.flash_bytes) <= MAX {
        true => Ok(()),
        false => Err(PlanError::Layout(format!("a copy that needs {needs} is larger than any node"))),
    }
}

/// What one copy must keep to.
pub struct Rules {
    shard: usize,
    limit: usize,
    /// Of the shard's other copies.
    other_zones: Vec<usize>,
}
