//! Owns the choice of a node for new copies. Never moves a copy that is there.

use super::refusal::Refusal;
use super::state::PlacementState;
use crate::limits::Resources;

/// The node on which the largest free share is left, if any may take a copy within its cap.
pub fn roomiest(state: &PlacementState, shard: usize, leaving: Option<usize>, caps: &[Resources]) -> Option<usize> {
    let rules = state.rules(shard, leaving);
    let needs = state.needs_of(shard);
    let mut best: Option<(f64, usize)> = None;
    for (node, cap) in caps.iter().enumerate() {
        let place = &state.nodes[node];
        if !(place.placed + needs).fits_in(*cap) {
            continue;
        }
        let share = place.share_with(needs);
        // The rules last: they are the dearest question.
        if best.is_none_or(|(least, _)| share < least) && state.forbids(&rules, node).is_none() {
            best = Some((share, node));
        }
    }
    best.map(|(_, node)| node)
}

/// Gives shards of one database the copies that they lack, and returns these. If there is no way, nothing has changed but the state,
/// which is of no use then.
pub fn place_all(state: &mut PlacementState, shards: &[usize]) -> Result<Vec<(usize, usize)>, Refusal> {
    let before = state.clone();
    place_by(state, shards, |state, shard, caps, _| roomiest(state, shard, None, caps)).or_else(|refusal| {
        // The roomiest nodes have been filled, and the shards that come last do not find enough different ones.
        let balanced = std::mem::replace(state, before);
        place_by(state, shards, most_slots).inspect_err(|_| *state = balanced).map_err(|_| refusal)
    })
}

type Choose = fn(&PlacementState, usize, &[Resources], usize) -> Option<usize>;

fn place_by(state: &mut PlacementState, shards: &[usize], choose: Choose) -> Result<Vec<(usize, usize)>, Refusal> {
    let caps = state.capacities();
    let mut placed = Vec::new();
    for (index, &shard) in shards.iter().enumerate() {
        let copies = state.databases[state.shards[shard].database].copies as usize;
        while state.shards[shard].nodes.len() < copies {
            let Some(node) = choose(state, shard, &caps, shards.len() - index) else {
                return Err(Refusal::of_new(state, shard));
            };
            state.put(shard, node);
            placed.push((shard, node));
        }
    }
    Ok(placed)
}

/// The node with the most slots in the zone with the most slots. A slot is room for one copy; no node or zone uses more slots than there
/// are shards left, `remaining`. For equal copies in different zones, this finds a placement if there is one (the same argument as for
/// Gale and Ryser's theorem: the rows with the largest rest first).
fn most_slots(state: &PlacementState, shard: usize, caps: &[Resources], remaining: usize) -> Option<usize> {
    let rules = state.rules(shard, None);
    let needs = state.needs_of(shard);
    let slots = |node: usize| {
        let left = caps[node].saturating_sub(state.nodes[node].placed);
        let of = |left: u64, needs: u64| {
            left.checked_div(needs).map_or(remaining, |slots| slots.min(remaining as u64) as usize)
        };
        of(left.ram_bytes, needs.ram_bytes).min(of(left.flash_bytes, needs.flash_bytes))
    };
    let database = state.shards[shard].database;
    let zones = state.nodes.iter().map(|node| node.zone + 1).max()?;
    let mut of_zone = vec![0; zones];
    for (node, place) in state.nodes.iter().enumerate().filter(|(_, node)| node.is_open()) {
        if state.may_have(database, place.zone) {
            of_zone[place.zone] += slots(node);
        }
    }
    let limit = state.copies_per_zone(database);
    let may = |node: &usize| state.has_room(shard, *node, caps[*node]) && state.forbids(&rules, *node).is_none();
    let candidates = (0..caps.len()).filter(may);
    // Of equal ones the first.
    candidates.min_by_key(|&node| {
        let zone = state.nodes[node].zone;
        let in_zone = of_zone[zone].min(remaining * limit);
        (state.copies_in_zone(shard, zone), std::cmp::Reverse((in_zone, slots(node))))
    })
}

/// Gives shards of the database the copies that they lack: shards with the nodes of these, and shards for which there is no room.
pub fn add_missing(state: &mut PlacementState, database: usize) -> (Vec<(usize, usize)>, Vec<usize>) {
    let (before, lacking) = (state.clone(), state.lacking(database));
    if let Ok(placed) = place_all(state, &lacking) {
        return (placed, Vec::new());
    }
    *state = before;
    let caps = state.capacities();
    let copies = state.databases[database].copies as usize;
    let (mut placed, mut missing) = (Vec::new(), Vec::new());
    for shard in lacking {
        while state.shards[shard].nodes.len() < copies {
            let Some(node) = roomiest(state, shard, None, &caps) else {
                missing.push(shard);
                break;
            };
            state.put(shard, node);
            placed.push((shard, node));
        }
    }
    (placed, missing)
}

/// Gives the copies of a lost node new places, the largest first: shards with their new nodes, and shards for which there is no room.
/// A shard whose primary was lost gets no copy.
pub fn replace_copies(state: &mut PlacementState, lost: usize) -> (Vec<(usize, usize)>, Vec<usize>) {
    let caps = state.capacities();
    let mut shards = state.nodes[lost].shards.clone();
    shards.retain(|&shard| state.shards[shard].primary != lost);
    shards.sort_by_key(|&shard| {
        let Resources { ram_bytes, flash_bytes } = state.needs_of(shard);
        (std::cmp::Reverse((ram_bytes, flash_bytes)), shard)
    });
    let (mut placed, mut missing) = (Vec::new(), Vec::new());
    for shard in shards {
        match roomiest(state, shard, Some(lost), &caps) {
            Some(node) => {
                state.shift(shard, lost, node);
                placed.push((shard, node));
            }
            None => missing.push(shard),
        }
    }
    (placed, missing)
}
