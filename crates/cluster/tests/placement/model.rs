//! Carries plans out, change by change, and checks what must be true after each. It knows nothing of the planner's own state.

use cluster::ids::{NodeId, ShardUid, shard_uid};
use cluster::limits::Resources;
use cluster::names::ZoneName;
use cluster::placement::{Change, Condition, Layout, NodeRoom, Plan, Request, ShardCopies, plan};
use cluster::records::Role;
use std::collections::BTreeMap;

pub fn nodes_of(shard: &ShardCopies) -> Vec<NodeId> {
    std::iter::once(shard.primary).chain(shard.replicas.iter().copied()).collect()
}

pub fn is_open(node: &NodeRoom) -> bool {
    node.role == Role::Data && node.condition == Condition::Open
}

/// The smallest number of copies in a zone with which all of them find a node.
pub fn copies_per_zone(layout: &Layout, zones: &[ZoneName], copies: u32) -> usize {
    let mut open: BTreeMap<&ZoneName, usize> = BTreeMap::new();
    for node in layout.nodes.iter().filter(|node| is_open(node) && (zones.is_empty() || zones.contains(&node.zone))) {
        *open.entry(&node.zone).or_default() += 1;
    }
    let copies = copies as usize;
    (1..copies).find(|&limit| open.values().map(|&nodes| nodes.min(limit)).sum::<usize>() >= copies).unwrap_or(copies)
}

/// What each copy takes, and all copies of each node.
#[derive(Default)]
struct Copies {
    needs: BTreeMap<(ShardUid, NodeId), Resources>,
    placed: BTreeMap<NodeId, Resources>,
}

impl Copies {
    fn put(&mut self, shard: ShardUid, node: NodeId, needs: Resources) {
        assert!(self.needs.insert((shard, node), needs).is_none(), "two copies of {shard} on {node}");
        *self.placed.entry(node).or_default() += needs;
    }

    fn take(&mut self, shard: ShardUid, node: NodeId) {
        let needs = self.needs.remove(&(shard, node)).expect("a copy");
        *self.placed.get_mut(&node).expect("it has copies") -= needs;
    }

    fn nodes_of(&self, shard: ShardUid) -> impl Iterator<Item = NodeId> {
        let all = (shard, NodeId([0; 20]))..=(shard, NodeId([u8::MAX; 20]));
        self.needs.range(all).map(|(&(_, node), _)| node)
    }

    fn placed_on(&self, node: NodeId) -> Resources {
        self.placed.get(&node).copied().unwrap_or_default()
    }
}

/// Makes the plan, carries it out and checks it.
pub fn checked(before: &Layout, request: &Request) -> Plan {
    let plan = plan(before, request).unwrap_or_else(|error| panic!("{error}\n{before:?}\n{request:?}"));
    let after = &plan.after;
    let rooms: BTreeMap<NodeId, &NodeRoom> = after.nodes.iter().map(|node| (node.id, node)).collect();
    let mut copies = Copies::default();
    let mut primaries: BTreeMap<ShardUid, NodeId> = BTreeMap::new();
    let mut bytes_of: BTreeMap<ShardUid, u64> = BTreeMap::new();
    for database in &before.databases {
        for shard in &database.shards {
            let uid = shard_uid(database.id, shard.number);
            primaries.insert(uid, shard.primary);
            bytes_of.insert(uid, shard.bytes);
            for node in nodes_of(shard) {
                copies.put(uid, node, database.needs);
            }
        }
    }
    let needs_after =
        |uid: ShardUid| after.databases.iter().find(|database| database.id == uid.database()).unwrap().needs;
    let mut resized = match *request {
        Request::Resize { database, needs } | Request::AddReplicas { database, needs, .. } => {
            let old = before.databases.iter().find(|other| other.id == database).unwrap().needs;
            Some((database, old, needs)).filter(|_| old != needs)
        }
        _ => None,
    };
    // What was above its capacity before is not the plan's fault, as long as it gets no more.
    let at_first = copies.placed.clone();
    let check = |copies: &Copies, node: NodeId, change: &Change| {
        let (now, room) = (copies.placed_on(node), rooms[&node]);
        let is_as_before = at_first.get(&node).is_some_and(|&first| now.fits_in(first));
        let is_in_order = now.fits_in(room.capacity) || is_as_before || room.condition == Condition::Lost;
        assert!(is_in_order, "{change:?}: node {node} has {now:?} of {:?}\n{request:?}\n{before:?}", room.capacity);
    };
    let mut bytes = 0;
    let mut arrive =
        |uid: ShardUid, to: NodeId, leaving: Option<NodeId>, needs: Resources, copies: &mut Copies, change: &Change| {
            assert!(is_open(rooms[&to]), "{change:?}");
            copies.put(uid, to, needs);
            check(copies, to, change);
            let database = after.databases.iter().find(|database| database.id == uid.database()).unwrap();
            assert!(database.zones.is_empty() || database.zones.contains(&rooms[&to].zone), "{change:?}");
            let in_zone = copies.nodes_of(uid).filter(|node| {
                let room = rooms[node];
                room.zone == rooms[&to].zone && Some(*node) != leaving && room.condition != Condition::Lost
            });
            let limit = copies_per_zone(after, &database.zones, database.copies);
            assert!(in_zone.count() <= limit, "{change:?}: more than {limit} in zone {}\n{after:?}", rooms[&to].zone);
            bytes += bytes_of.get(&uid).copied().unwrap_or(0);
        };
    for change in &plan.changes {
        // Until the limits change, a new copy may have the old or the new ones.
        let needs = |uid: ShardUid| match resized {
            Some((database, old, new)) if database == uid.database() => Resources {
                ram_bytes: old.ram_bytes.max(new.ram_bytes),
                flash_bytes: old.flash_bytes.max(new.flash_bytes),
            },
            _ => needs_after(uid),
        };
        match *change {
            Change::Add { shard, to } => {
                arrive(shard, to, None, needs(shard), &mut copies, change);
                primaries.entry(shard).or_insert(to);
            }
            Change::Move { shard, from, to } => {
                arrive(shard, to, Some(from), needs(shard), &mut copies, change);
                copies.take(shard, from);
                if primaries[&shard] == from {
                    primaries.insert(shard, to);
                }
            }
            Change::Drop { shard, from } => {
                copies.take(shard, from);
                assert_ne!(primaries[&shard], from, "{change:?}");
            }
            Change::SwitchOver { shard, to } => {
                assert!(copies.nodes_of(shard).any(|node| node == to) && is_open(rooms[&to]), "{change:?}");
                assert_ne!(primaries.insert(shard, to), Some(to));
            }
            Change::Resize { database } => {
                let (of, _, new) = resized.take().expect("one change of limits");
                assert_eq!(of, database);
                let resized: Vec<_> =
                    copies.needs.keys().copied().filter(|(uid, _)| uid.database() == database).collect();
                for &(uid, node) in &resized {
                    copies.take(uid, node);
                    copies.put(uid, node, new);
                }
                resized.iter().for_each(|&(_, node)| check(&copies, node, change));
            }
        }
    }
    assert!(resized.is_none(), "the limits have changed: {:?}", plan.changes);
    assert_eq!(plan.bytes, bytes);

    // What was carried out is what the plan says.
    let mut expected: Vec<(ShardUid, NodeId, bool)> = Vec::new();
    for database in &after.databases {
        let wanted = if plan.missing.is_empty() && plan.without_primary.is_empty() { database.copies } else { 1 };
        for shard in &database.shards {
            let uid = shard_uid(database.id, shard.number);
            let on = nodes_of(shard);
            assert!(
                before.databases.iter().any(|other| other.id == database.id
                    && other
                        .shards
                        .iter()
                        .any(|other| other.number == shard.number && on.len() >= nodes_of(other).len()))
                    || on.len() >= wanted as usize
            );
            expected.extend(on.into_iter().map(|node| (uid, node, node == shard.primary)));
        }
    }
    expected.sort_unstable();
    let reached: Vec<_> = copies.needs.keys().map(|&(uid, node)| (uid, node, primaries[&uid] == node)).collect();
    assert_eq!(reached, expected);
    for load in after.loads().unwrap() {
        assert_eq!(load.placed, copies.placed_on(load.node));
        assert_eq!(load.copies, reached.iter().filter(|(_, node, _)| *node == load.node).count());
        assert_eq!(load.primaries, reached.iter().filter(|(_, node, primary)| *node == load.node && *primary).count());
    }
    match *request {
        Request::Drain { node } => assert_eq!(copies.placed_on(node), Resources::default()),
        Request::Create { shards, copies: wanted, .. } => {
            assert_eq!(plan.changes.len(), usize::from(shards) * wanted as usize)
        }
        Request::Replace { node } => {
            let left = copies.needs.keys().filter(|&&(_, other)| other == node).count();
            assert_eq!(left, plan.missing.len() + plan.without_primary.len());
        }
        Request::AddMissing { database } => {
            let database = after.databases.iter().find(|other| other.id == database).unwrap();
            let lacking = database.shards.iter().filter(|shard| shard.replicas.len() + 1 < database.copies as usize);
            assert_eq!(lacking.count(), plan.missing.len());
        }
        Request::Rebalance => assert!(plan.tolerance_percent.is_some()),
        _ => {}
    }
    plan
}
