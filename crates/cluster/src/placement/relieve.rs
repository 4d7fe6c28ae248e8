//! Owns the search for moves that bring nodes below their caps, and copies of a shard into different zones, with few bytes. Never changes
//! how many copies there are.
//!
//! The search is a depth-first branch and bound: it takes one trouble (a crowded zone, a node above its cap), tries its copies and their
//! targets, the most promising first, and leaves a branch when its bytes and a lower bound of what is still to move reach the best plan so
//! far. A target may be overfilled: then it is a trouble too, and gives away other copies. When no trouble is left, the moves are put into
//! an order in which each target has room at its time; if there is none, the branch is no plan.
//!
//! First each trouble is searched alone, with few tries: that is fast for any number of nodes. If there are few troubles, then all of
//! them together, from the beginning: that finds the least bytes where a good move for one node is a bad one for another.

use super::place::roomiest;
use super::refusal::Refusal;
use super::state::PlacementState;
use crate::limits::Resources;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    pub shard: usize,
    pub from: usize,
    pub to: usize,
}

/// A try is one copy on one target. It costs time in proportion to the nodes.
const TRIES_ALONE: usize = 100;
const TRIES_TOGETHER: usize = 5000;
/// With more troubles than this, a search of all together would end before it reaches the first alternative.
const TOGETHER_MAX: usize = 12;
/// Targets that are tried for one copy, and as many without room.
const TARGETS_MAX: usize = 6;
/// With more nodes, a trouble that is searched alone takes the roomiest target only.
const NODES_FEW: usize = 100;
/// How many targets may be overfilled in one branch.
const OVERFILLED: [usize; 4] = [0, 1, 2, 3];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// The node holds more than its cap.
    Over(usize),
    /// The shard has a zone with too many of its copies.
    Crowded(usize),
}

/// Moves copies off the nodes `over` until these are within `caps`. No target is above its cap after the last of the moves, and none
/// above the machine's capacity after any of them.
pub fn relieve(state: &mut PlacementState, caps: &[Resources], over: &[usize]) -> Result<Vec<Move>, Refusal> {
    search(state, caps, over.iter().map(|&node| Trouble::Over(node)).collect())
}

/// The same, and spreads the copies of each shard over zones.
pub fn relieve_and_spread(
    state: &mut PlacementState,
    caps: &[Resources],
    over: &[usize],
) -> Result<Vec<Move>, Refusal> {
    let mut troubles: Vec<Trouble> = state.crowded().map(Trouble::Crowded).collect();
    troubles.extend(over.iter().map(|&node| Trouble::Over(node)));
    search(state, caps, troubles)
}

/// If there is no way, the state is as it was.
fn search(state: &mut PlacementState, caps: &[Resources], troubles: Vec<Trouble>) -> Result<Vec<Move>, Refusal> {
    let mut moves = Vec::new();
    for &trouble in &troubles {
        let mut alone = |overfilled| Search::new(state, caps, &[trouble]).run(&[overfilled], TRIES_ALONE, u64::MAX);
        let found = alone(0).or_else(|| alone(1));
        make(state, &mut moves, found);
    }
    let left = left_of(state, caps, &troubles);
    if !left.is_empty() && left.len() <= TOGETHER_MAX {
        let found = Search::new(state, caps, &left).run(&OVERFILLED, TRIES_TOGETHER, u64::MAX);
        make(state, &mut moves, found);
    }
    let refusal = left_of(state, caps, &troubles).first().map(|&trouble| refusal(state, caps, trouble));
    if troubles.len() <= TOGETHER_MAX {
        // From the beginning, for fewer bytes.
        let below = match refusal {
            Some(_) => u64::MAX,
            None => moves.iter().map(|step| state.shards[step.shard].bytes).sum(),
        };
        let before = moves.clone();
        undo(state, &mut moves);
        let better = Search::new(state, caps, &troubles).run(&OVERFILLED, TRIES_TOGETHER, below);
        let is_better = better.is_some();
        make(state, &mut moves, better.or(Some(before)));
        if is_better {
            return Ok(moves);
        }
    }
    match refusal {
        None => Ok(moves),
        Some(refusal) => {
            undo(state, &mut moves);
            Err(refusal)
        }
    }
}

fn make(state: &mut PlacementState, moves: &mut Vec<Move>, found: Option<Vec<Move>>) {
    for step in found.into_iter().flatten() {
        state.shift(step.shard, step.from, step.to);
        moves.push(step);
    }
}

fn undo(state: &mut PlacementState, moves: &mut Vec<Move>) {
    while let Some(step) = moves.pop() {
        state.shift(step.shard, step.to, step.from);
    }
}

fn left_of(state: &PlacementState, caps: &[Resources], troubles: &[Trouble]) -> Vec<Trouble> {
    troubles.iter().copied().filter(|&trouble| is_there(state, caps, trouble)).collect()
}

fn is_there(state: &PlacementState, caps: &[Resources], trouble: Trouble) -> bool {
    match trouble {
        Trouble::Over(node) => !state.nodes[node].placed.fits_in(caps[node]),
        Trouble::Crowded(shard) => state.crowded_zones(shard).next().is_some(),
    }
}

fn refusal(state: &PlacementState, caps: &[Resources], trouble: Trouble) -> Refusal {
    let (shard, from) = match trouble {
        Trouble::Crowded(shard) => (shard, state.shards[shard].nodes[0]),
        // The copy that is the hardest to place.
        Trouble::Over(node) => {
            let largest = state.nodes[node].shards.iter().copied().max_by_key(|&shard| {
                let Resources { ram_bytes, flash_bytes } = state.needs_of(shard);
                (roomiest(state, shard, Some(node), caps).is_none(), ram_bytes, flash_bytes)
            });
            (largest.expect("a node above its cap has copies"), node)
        }
    };
    Refusal::of(state, shard, Some(from))
}

struct Search<'s> {
    state: &'s mut PlacementState,
    caps: &'s [Resources],
    troubles: &'s [Trouble],
    /// Nodes that moves have overfilled, and that are not among the troubles.
    overfilled: Vec<usize>,
    overfilled_max: usize,
    tries_left: usize,
    /// Copies that stay where they are in this branch: (shard, node). A copy moves once.
    stays: BTreeSet<(usize, usize)>,
    moves: Vec<Move>,
    bytes: u64,
    best: Option<Vec<Move>>,
    best_bytes: u64,
}

impl<'s> Search<'s> {
    fn new(state: &'s mut PlacementState, caps: &'s [Resources], troubles: &'s [Trouble]) -> Search<'s> {
        Search {
            state,
            caps,
            troubles,
            overfilled: Vec::new(),
            overfilled_max: 0,
            tries_left: 0,
            stays: BTreeSet::new(),
            moves: Vec::new(),
            bytes: 0,
            best: None,
            best_bytes: u64::MAX,
        }
    }

    /// The moves with the fewest bytes below `below`, in an order in which they can be made. None has been made. Searches once for each
    /// of these numbers of overfilled targets, so that a plan that needs few of them is not missed in the depth.
    fn run(mut self, overfilled: &[usize], tries: usize, below: u64) -> Option<Vec<Move>> {
        self.best_bytes = below;
        for &most in overfilled {
            (self.overfilled_max, self.tries_left) = (most, tries);
            self.descend();
        }
        self.best
    }

    fn is_there(&self, trouble: Trouble) -> bool {
        is_there(self.state, self.caps, trouble)
    }

    fn all_troubles(&self) -> impl Iterator<Item = Trouble> {
        let overfilled = self.overfilled.iter().rev().map(|&node| Trouble::Over(node));
        overfilled.chain(self.troubles.iter().copied())
    }

    fn descend(&mut self) {
        if !self.is_promising() {
            return;
        }
        let Some(trouble) = self.all_troubles().find(|&trouble| self.is_there(trouble)) else {
            if let Some(ordered) = in_order(self.state, &self.moves) {
                self.best_bytes = self.bytes;
                self.best = Some(ordered);
            }
            return;
        };
        let mut stayed = Vec::new();
        for (shard, from) in self.candidates(trouble) {
            let targets = self.targets(shard, from);
            for to in targets {
                self.attempt(Move { shard, from, to });
            }
            if self.overfilled.len() < self.overfilled_max {
                for to in self.full_targets(shard, from) {
                    self.attempt(Move { shard, from, to });
                }
            }
            if self.tries_left == 0 {
                break;
            }
            // All plans that move this copy are known. From here on it stays.
            self.stays.insert((shard, from));
            stayed.push((shard, from));
            if !self.is_promising() {
                break;
            }
        }
        for copy in stayed {
            self.stays.remove(&copy);
        }
    }

    /// Whether this branch can still lead to fewer bytes.
    fn is_promising(&self) -> bool {
        self.least_bytes().is_some_and(|more| self.bytes.saturating_add(more) < self.best_bytes)
    }

    /// Goes on with this move, and takes it back.
    fn attempt(&mut self, step: Move) {
        if self.tries_left == 0 {
            return;
        }
        self.tries_left -= 1;
        let Move { shard, from, to } = step;
        self.bytes += self.state.shards[shard].bytes;
        self.moves.push(step);
        self.state.shift(shard, from, to);
        self.stays.insert((shard, to));
        let over = Trouble::Over(to);
        let is_overfilled = self.is_there(over) && self.all_troubles().all(|trouble| trouble != over);
        if is_overfilled {
            self.overfilled.push(to);
        }
        self.descend();
        if is_overfilled {
            self.overfilled.pop();
        }
        self.stays.remove(&(shard, to));
        self.state.shift(shard, to, from);
        self.moves.pop();
        self.bytes -= self.state.shards[shard].bytes;
    }

    fn movable(&self, node: usize) -> impl Iterator<Item = usize> {
        self.state.nodes[node].shards.iter().copied().filter(move |&shard| !self.stays.contains(&(shard, node)))
    }

    /// What a node has above its cap.
    fn excess(&self, node: usize) -> Resources {
        self.state.nodes[node].placed.saturating_sub(self.caps[node])
    }

    /// A lower bound of the bytes that must still move. `None`: what may move in this branch is not enough.
    fn least_bytes(&self) -> Option<u64> {
        let (mut over, mut crowded) = (0_u64, 0_u64);
        for trouble in self.all_troubles() {
            match trouble {
                Trouble::Over(node) => {
                    let Resources { ram_bytes, flash_bytes } = self.excess(node);
                    let ram = self.least_cover(node, ram_bytes, |needs| needs.ram_bytes)?;
                    let flash = self.least_cover(node, flash_bytes, |needs| needs.flash_bytes)?;
                    over = over.saturating_add(ram.max(flash));
                }
                Trouble::Crowded(shard) if self.is_there(trouble) => {
                    crowded = crowded.saturating_add(self.state.shards[shard].bytes);
                }
                Trouble::Crowded(_) => {}
            }
        }
        // One move may end troubles of both kinds.
        Some(over.max(crowded))
    }

    /// The least bytes of copies, of which the last may be taken in part, that take `excess` of a resource. It is the relaxation of the
    /// knapsack problem: in the order of bytes for what a copy takes.
    fn least_cover(&self, node: usize, excess: u64, of: fn(Resources) -> u64) -> Option<u64> {
        if excess == 0 {
            return Some(0);
        }
        let mut copies: Vec<(u64, u64)> =
            self.movable(node).map(|shard| (self.state.shards[shard].bytes, of(self.state.needs_of(shard)))).collect();
        copies.retain(|&(_, takes)| takes > 0);
        copies.sort_by(|&(a_bytes, a), &(b_bytes, b)| {
            (u128::from(a_bytes) * u128::from(b)).cmp(&(u128::from(b_bytes) * u128::from(a)))
        });
        let (mut left, mut least) = (excess, 0_u64);
        for (bytes, takes) in copies {
            if takes >= left {
                let part = (u128::from(bytes) * u128::from(left)).div_ceil(u128::from(takes)) as u64;
                return Some(least.saturating_add(part));
            }
            left -= takes;
            least = least.saturating_add(bytes);
        }
        None
    }

    /// Copies that may move for this trouble, those with the fewest bytes for what they help first.
    fn candidates(&self, trouble: Trouble) -> Vec<(usize, usize)> {
        match trouble {
            Trouble::Crowded(shard) => {
                let zones: Vec<usize> = self.state.crowded_zones(shard).collect();
                let mut nodes = self.state.shards[shard].nodes.clone();
                nodes.retain(|&node| {
                    zones.contains(&self.state.nodes[node].zone) && !self.stays.contains(&(shard, node))
                });
                // From the fullest node. A primary last: its move is a switchover too.
                nodes.sort_by(|&a, &b| {
                    let is_primary = |node| self.state.shards[shard].primary == node;
                    let share = |node: usize| self.state.nodes[node].share_with(Resources::default());
                    is_primary(a).cmp(&is_primary(b)).then(share(b).total_cmp(&share(a))).then(a.cmp(&b))
                });
                nodes.into_iter().map(|node| (shard, node)).collect()
            }
            Trouble::Over(node) => {
                let excess = self.excess(node);
                let of =
                    |excess: u64, takes: u64| if excess == 0 { 1.0 } else { (takes as f64 / excess as f64).min(1.0) };
                let cost = |shard: usize| {
                    let Resources { ram_bytes, flash_bytes } = self.state.needs_of(shard);
                    let helps = of(excess.ram_bytes, ram_bytes).min(of(excess.flash_bytes, flash_bytes));
                    self.state.shards[shard].bytes as f64 / helps.max(1e-9)
                };
                let mut shards: Vec<(f64, usize)> = self.movable(node).map(|shard| (cost(shard), shard)).collect();
                shards.sort_by(|&(a_cost, a), &(b_cost, b)| {
                    let bytes = |shard: usize| self.state.shards[shard].bytes;
                    let is_primary = |shard: usize| self.state.shards[shard].primary == node;
                    // Of equal ones, one large move instead of many small ones.
                    (a_cost.total_cmp(&b_cost))
                        .then(bytes(b).cmp(&bytes(a)))
                        .then(is_primary(a).cmp(&is_primary(b)))
                        .then(a.cmp(&b))
                });
                shards.into_iter().map(|(_, shard)| (shard, node)).collect()
            }
        }
    }

    /// Where a copy may go, the largest free share first.
    fn targets(&self, shard: usize, from: usize) -> Vec<usize> {
        if self.troubles.len() == 1 && self.caps.len() > NODES_FEW {
            return roomiest(self.state, shard, Some(from), self.caps).into_iter().collect();
        }
        self.nodes_by_share(shard, from, |node| self.state.has_room(shard, node, self.caps[node]))
    }

    /// Nodes that could have the copy, if they had others no more.
    fn full_targets(&self, shard: usize, from: usize) -> Vec<usize> {
        let needs = self.state.needs_of(shard);
        self.nodes_by_share(shard, from, |node| {
            needs.fits_in(self.caps[node]) && !self.state.has_room(shard, node, self.caps[node])
        })
    }

    fn nodes_by_share(&self, shard: usize, from: usize, may: impl Fn(usize) -> bool) -> Vec<usize> {
        let rules = self.state.rules(shard, Some(from));
        let needs = self.state.needs_of(shard);
        let nodes = (0..self.caps.len()).filter(|&node| may(node) && self.state.forbids(&rules, node).is_none());
        let mut nodes: Vec<(f64, usize)> = nodes.map(|node| (self.state.nodes[node].share_with(needs), node)).collect();
        nodes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        nodes.truncate(TARGETS_MAX);
        nodes.into_iter().map(|(_, node)| node).collect()
    }
}

/// The moves in an order in which each target has room at its time. All of them have been made.
fn in_order(state: &PlacementState, moves: &[Move]) -> Option<Vec<Move>> {
    let mut placed: BTreeMap<usize, Resources> = BTreeMap::new();
    for &Move { shard, from, to } in moves {
        // In two steps: a node may be the source of one move and the target of another.
        for node in [from, to] {
            placed.entry(node).or_insert(state.nodes[node].placed);
        }
        *placed.get_mut(&from).expect("just put") += state.needs_of(shard);
    }
    for step in moves {
        *placed.get_mut(&step.to).expect("just put") -= state.needs_of(step.shard);
    }
    let (mut left, mut ordered) = (moves.to_vec(), Vec::with_capacity(moves.len()));
    while !left.is_empty() {
        let is_possible = |index: usize| {
            let Move { shard, to, .. } = left[index];
            // Copies of one shard go one after the other, as the rules allowed it.
            let is_first = left[..index].iter().all(|other| other.shard != shard);
            is_first && (placed[&to] + state.needs_of(shard)).fits_in(state.nodes[to].room.capacity)
        };
        // What was found last made room for what was found before.
        let index = (0..left.len()).rev().find(|&index| is_possible(index))?;
        let step = left.remove(index);
        *placed.get_mut(&step.to).expect("just put") += state.needs_of(step.shard);
        *placed.get_mut(&step.from).expect("just put") -= state.needs_of(step.shard);
        ordered.push(step);
    }
    Some(ordered)
}
