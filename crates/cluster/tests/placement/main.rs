//! Plans: what they keep true, how near to the least they are, and what they say when there is none.

mod least;
mod model;
mod scale;

use base::random::SplitMix64;
use cluster::ids::{DatabaseId, NodeId};
use cluster::limits::Resources;
use cluster::placement::{
    Change, Condition, DatabaseCopies, Layout, NodeRoom, Plan, PlanError, Request, ShardCopies, WhyNot, plan,
};
use cluster::records::{Role, Step};
use model::{checked, copies_per_zone, nodes_of};
use std::collections::BTreeMap;

const GB: u64 = 1 << 30;

pub fn of(ram_bytes: u64, flash_bytes: u64) -> Resources {
    Resources { ram_bytes, flash_bytes }
}

/// Nodes a, b, c … with ids in this order.
pub fn node(index: u8, zone: &str, capacity: Resources) -> NodeRoom {
    NodeRoom {
        id: node_id(index),
        name: char::from(b'a' + index % 26).to_string().parse().unwrap(),
        zone: zone.parse().unwrap(),
        role: Role::Data,
        condition: Condition::Open,
        capacity,
    }
}

pub fn node_id(index: u8) -> NodeId {
    NodeId([index; 20])
}

pub fn database(index: u8) -> DatabaseId {
    DatabaseId([index; 10])
}

pub fn create(index: u8, shards: u16, copies: u32, needs: Resources) -> Request {
    Request::Create { database: database(index), shards, copies, needs, zones: Vec::new() }
}

fn nodes(zones: &[&str], capacity: Resources) -> Layout {
    let nodes = zones.iter().enumerate().map(|(index, zone)| node(index as u8, zone, capacity));
    Layout { nodes: nodes.collect(), databases: Vec::new() }
}

fn refused(layout: &Layout, request: &Request) -> String {
    match plan(layout, request) {
        Err(PlanError::Refused(refusal)) => refusal.to_string(),
        other => panic!("{other:?}"),
    }
}

fn counts(plan: &Plan) -> Vec<(usize, usize)> {
    plan.after.loads().unwrap().iter().map(|load| (load.copies, load.primaries)).collect()
}

#[test]
fn copies_go_to_different_nodes_and_zones() {
    let layout = nodes(&["1", "1", "2", "2", "3", "3"], of(10 * GB, 100 * GB));
    let plan = checked(&layout, &create(1, 12, 2, of(GB, 10 * GB)));
    assert_eq!(counts(&plan), [(4, 2); 6]);
    assert!(plan.survival.survives_any_node() && plan.survival.survives_any_zone());
    assert_eq!(plan.survival.to_string(), "any one node or zone may be lost: the others have room for its copies");
    assert_eq!(plan.changes.len(), 24);
    assert_eq!(plan.bytes, 0);
    // The first copy of each shard is its primary.
    for pair in plan.changes.chunks_exact(2) {
        let [Change::Add { shard, to }, Change::Add { shard: second, .. }] = pair else { panic!("{pair:?}") };
        let shards = &plan.after.databases[0].shards;
        assert!(shard == second && shards[usize::from(shard.number().0)].primary == *to);
    }
}

#[test]
fn a_node_with_more_room_gets_more() {
    let mut layout = nodes(&["1", "2", "3"], of(10 * GB, 0));
    layout.nodes[1].capacity = of(20 * GB, 0);
    let plan = checked(&layout, &create(1, 8, 1, of(GB, 0)));
    assert_eq!(plan.after.loads().unwrap().iter().map(|load| load.copies).collect::<Vec<_>>(), [2, 4, 2]);
}

#[test]
fn two_data_nodes_and_a_quorum_node_are_the_smallest_cluster() {
    let mut layout = nodes(&["1", "2", "3"], of(10 * GB, 0));
    layout.nodes[2].role = Role::Quorum;
    let plan = checked(&layout, &create(1, 1, 2, of(GB, 0)));
    assert_eq!(counts(&plan), [(1, 1), (1, 0), (0, 0)]);
    // The other node has a copy of each shard already.
    assert!(!plan.survival.survives_any_node());
    assert_eq!(plan.survival.to_string().lines().next(), Some("without node a: 1 of its 1 copies find no room"));
    assert_eq!(
        refused(&layout, &create(1, 1, 3, of(GB, 0))),
        "no node takes a copy of shard 0 of database 010101010101010101010000, which needs RAM 1 GB\n\
         node c: only votes\nnode a: has a copy of the shard\nnode b: has a copy of the shard"
    );
}

#[test]
fn what_does_not_fit_is_refused_with_the_arithmetic() {
    let layout = nodes(&["1", "2", "2"], of(12 * GB, 40 * GB));
    let plan = checked(&layout, &create(1, 1, 2, of(9 * GB + GB / 2, 4 * GB)));
    let text = refused(&plan.after, &create(2, 1, 2, of(3 * GB, 37 * GB)));
    assert_eq!(
        text,
        "no node takes a copy of shard 0 of database 020202020202020202020000, which needs RAM 3 GB, flash 37 GB\n\
         node a: RAM 12 GB, 9.5 GB placed, 2.5 GB free, 3 GB needed; flash 40 GB, 4 GB placed, 36 GB free, 37 GB needed\n\
         node b: zone 2 has a copy of the shard\n\
         node c: has a copy of the shard"
    );
    let Err(PlanError::Refused(refusal)) = cluster::placement::plan(&plan.after, &create(2, 1, 2, of(3 * GB, 37 * GB)))
    else {
        panic!("it is refused");
    };
    let room = |why: &WhyNot| matches!(why, WhyNot::NoRoom { placed, .. } if *placed == of(9 * GB + GB / 2, 4 * GB));
    assert!(refusal.nodes.iter().any(|answer| answer.node == node_id(0) && room(&answer.why)));
}

#[test]
fn a_database_stays_in_its_zones() {
    let layout = nodes(&["1", "2", "3", "3"], of(10 * GB, 0));
    let zones = vec!["2".parse().unwrap(), "3".parse().unwrap()];
    let request = Request::Create { database: database(1), shards: 2, copies: 2, needs: of(GB, 0), zones };
    let plan = checked(&layout, &request);
    assert_eq!(plan.after.loads().unwrap().iter().map(|load| load.copies).collect::<Vec<_>>(), [0, 2, 1, 1]);
    // Of three copies, two share a zone. The fourth has no node: zone 1 is not the database's.
    let more = |copies| Request::AddReplicas { database: database(1), copies, needs: of(GB, 0) };
    assert_eq!(checked(&plan.after, &more(3)).changes.len(), 2);
    assert!(refused(&plan.after, &more(4)).contains("node a: the database has no copies in zone 1"));
}

#[test]
fn limits_change_in_place_where_they_fit() {
    let layout = nodes(&["1", "2", "3"], of(10 * GB, 0));
    let plan = checked(&layout, &create(1, 3, 2, of(GB, 0)));
    let resize = |needs| Request::Resize { database: database(1), needs };
    assert_eq!(checked(&plan.after, &resize(of(5 * GB, 0))).changes, [Change::Resize { database: database(1) }]);
    assert!(refused(&plan.after, &resize(of(6 * GB, 0))).contains("can go nowhere\n"));
    // Another database fills a node: the copy there moves, before the limits change.
    let mut crowded = plan.after.clone();
    crowded.databases.push(DatabaseCopies {
        id: database(2),
        needs: of(4 * GB, 0),
        copies: 1,
        zones: Vec::new(),
        shards: vec![shard(0, 1, &[0])],
    });
    crowded.databases[0].shards.truncate(2);
    let moved = checked(&crowded, &resize(of(4 * GB, 0)));
    // The moved copy is on a node without a primary.
    let changes = &moved.changes[..];
    assert!(matches!(changes, [Change::Move { .. }, Change::Resize { .. }, Change::SwitchOver { .. }]), "{changes:?}");
}

fn shard(number: u16, bytes: u64, nodes: &[u8]) -> ShardCopies {
    ShardCopies {
        number: cluster::ids::ShardNumber(number),
        bytes,
        primary: node_id(nodes[0]),
        replicas: nodes[1..].iter().map(|&node| node_id(node)).collect(),
    }
}

#[test]
fn a_drained_node_is_empty_and_takes_nothing() {
    let layout = nodes(&["1", "2", "3", "3"], of(10 * GB, 0));
    let plan = checked(&layout, &create(1, 6, 2, of(GB, 0)));
    let drained = checked(&plan.after, &Request::Drain { node: node_id(0) });
    let loads = drained.after.loads().unwrap();
    assert_eq!((loads[0].copies, loads.iter().map(|load| load.copies).sum::<usize>()), (0, 12));
    let primaries: Vec<usize> = loads[1..].iter().map(|load| load.primaries).collect();
    assert_eq!(primaries, [2, 2, 2]);
    let more = checked(&drained.after, &create(2, 6, 1, of(GB, 0)));
    assert_eq!(more.after.loads().unwrap()[0].copies, 0);
    // Two nodes are left, in one zone: copies share it rather than have one node.
    let again = checked(&drained.after, &Request::Drain { node: node_id(1) });
    assert_eq!(counts(&again), [(0, 0), (0, 0), (6, 3), (6, 3)]);
    assert!(refused(&again.after, &Request::Drain { node: node_id(2) }).contains("node d: has a copy of the shard"));
}

#[test]
fn copies_of_a_lost_node_come_anew_where_there_is_room() {
    let mut layout = nodes(&["1", "2", "3"], of(4 * GB, 0));
    layout.databases = vec![DatabaseCopies {
        id: database(1),
        needs: of(GB, 0),
        copies: 2,
        zones: Vec::new(),
        shards: vec![shard(0, 5, &[1, 0]), shard(1, 6, &[0, 1]), shard(2, 7, &[1, 0])],
    }];
    layout.nodes[2].capacity = of(GB, 0);
    let plan = checked(&layout, &Request::Replace { node: node_id(0) });
    let changes = &plan.changes[..];
    assert!(matches!(changes, [Change::Add { .. }, Change::Drop { .. }, Change::SwitchOver { .. }]), "{changes:?}");
    assert_eq!(plan.bytes, 5);
    // Its failover comes first.
    assert_eq!(plan.without_primary.iter().map(|uid| uid.number().0).collect::<Vec<_>>(), [1]);
    assert_eq!(plan.missing.len(), 1);
    assert!(plan.missing[0].to_string().contains("\nnode c: RAM 1 GB, 1 GB placed, 0 B free, 1 GB needed"));
    // With a new node in its place, the rest follows.
    let mut renewed = plan.after.clone();
    renewed.nodes.push(node(7, "1", of(10 * GB, 0)));
    renewed.databases[0].shards[1] = shard(1, 6, &[1, 0]);
    let plan = checked(&renewed, &Request::Replace { node: node_id(0) });
    assert_eq!((plan.bytes, plan.missing.len()), (13, 0));
}

#[test]
fn copies_that_shards_lack_come_where_there_is_room() {
    let mut layout = nodes(&["1", "2", "3"], of(4 * GB, 0));
    let shards = vec![shard(0, 5, &[0]), shard(1, 6, &[1, 0]), shard(2, 7, &[1])];
    layout.databases = vec![DatabaseCopies { id: database(1), needs: of(GB, 0), copies: 2, zones: Vec::new(), shards }];
    layout.nodes[2].capacity = of(GB, 0);
    layout.nodes[0].condition = Condition::Draining;
    let request = Request::AddMissing { database: database(1) };
    let plan = checked(&layout, &request);
    let added: Vec<_> = plan.changes.iter().filter(|change| matches!(change, Change::Add { .. })).collect();
    assert_eq!((added.len(), plan.missing.len()), (2, 0), "{:?}", plan.changes);
    assert_eq!(plan.bytes, 12);
    assert_eq!(checked(&plan.after, &request).changes, []);
    // Shard 0 gets one on node b, and none is left for shard 2, which has b.
    layout.nodes[2].condition = Condition::Lost;
    let plan = checked(&layout, &request);
    assert_eq!(plan.missing.len(), 1);
    assert!(plan.missing[0].to_string().contains("node a"), "{}", plan.missing[0]);
}

#[test]
fn shards_that_only_a_lost_node_had_come_anew_or_nothing_is_given_up() {
    let mut layout = nodes(&["1", "2", "3"], of(4 * GB, 0));
    layout.databases = vec![DatabaseCopies {
        id: database(1),
        needs: of(GB, 0),
        copies: 1,
        zones: Vec::new(),
        shards: vec![shard(0, 5, &[0]), shard(1, 6, &[1]), shard(2, 7, &[0])],
    }];
    let given_up = plan(&layout, &Request::GiveUp { node: node_id(0) }).unwrap();
    let added = |change: &Change| match *change {
        Change::Add { shard, to } => Some((shard.number().0, to)),
        _ => None,
    };
    let added: BTreeMap<_, _> = given_up.changes.iter().filter_map(added).collect();
    assert_eq!(added.keys().collect::<Vec<_>>(), [&0, &2]);
    assert!(added.values().all(|to| *to != node_id(0)), "{added:?}");
    assert_eq!((given_up.bytes, counts(&given_up)[0]), (0, (0, 0)), "they are empty");

    layout.nodes[1].capacity = of(GB, 0);
    layout.nodes[2].capacity = of(GB, 0);
    let refusal = refused(&layout, &Request::GiveUp { node: node_id(0) });
    assert!(refusal.contains("node b: RAM 1 GB, 1 GB placed"), "{refusal}");
}

#[test]
fn a_balanced_cluster_stays_as_it_is() {
    let layout = nodes(&["1", "1", "2", "2", "3", "3"], of(10 * GB, 100 * GB));
    let plan = checked(&layout, &create(1, 12, 2, of(GB, 10 * GB)));
    let again = checked(&plan.after, &Request::Rebalance);
    assert_eq!((again.changes.len(), again.tolerance_percent, again.after == plan.after), (0, Some(5), true));
}

#[test]
fn a_new_node_gets_its_part() {
    let mut layout = nodes(&["1", "2", "3"], of(10 * GB, 0));
    layout = checked(&layout, &create(1, 27, 1, of(GB, 0))).after;
    layout.databases[0].shards.iter_mut().for_each(|shard| shard.bytes = GB);
    layout.nodes.push(node(3, "1", of(10 * GB, 0)));
    let plan = checked(&layout, &Request::Rebalance);
    // 27 copies on 4 nodes are 6.75 each; 7 is above 67.5 % by less than 5 points.
    assert_eq!((plan.bytes, plan.tolerance_percent), (6 * GB, Some(5)));
    assert_eq!(plan.after.loads().unwrap().iter().map(|load| load.copies).collect::<Vec<_>>(), [7, 7, 7, 6]);
}

#[test]
fn copies_spread_over_zones_that_come_later() {
    let mut layout = nodes(&["1", "1"], of(10 * GB, 0));
    layout = checked(&layout, &create(1, 2, 2, of(GB, 0))).after;
    layout.nodes.push(node(2, "2", of(10 * GB, 0)));
    // Other plans leave what is there.
    let other = checked(&layout, &create(2, 1, 1, of(GB, 0)));
    assert_eq!(other.crowded.len(), 2);
    let plan = checked(&layout, &Request::Rebalance);
    assert_eq!(counts(&plan), [(1, 1), (1, 1), (2, 0)]);
    assert!(plan.crowded.is_empty());
}

#[test]
fn what_contradicts_itself_is_an_error() {
    let good = checked(&nodes(&["1", "2"], of(GB, 0)), &create(1, 1, 2, of(1, 0))).after;
    let error = |change: fn(&mut Layout), request: &Request| {
        let mut layout = good.clone();
        change(&mut layout);
        plan(&layout, request).unwrap_err().to_string()
    };
    let rebalance = &Request::Rebalance;
    assert!(error(|layout| layout.nodes.push(layout.nodes[0].clone()), rebalance).contains("is there twice"));
    assert!(error(|layout| layout.databases.push(layout.databases[0].clone()), rebalance).contains("is there already"));
    assert!(error(|layout| layout.nodes.truncate(1), rebalance).starts_with("there is no node 0101"));
    assert!(error(|layout| layout.databases[0].copies = 0, rebalance).contains("0 copies are not from 1 to 8"));
    let twice = |layout: &mut Layout| layout.databases[0].shards[0].replicas[0] = node_id(0);
    assert!(error(twice, rebalance).contains("has two copies on node"));
    let again = |layout: &mut Layout| {
        let shard = layout.databases[0].shards[0].clone();
        layout.databases[0].shards.push(shard);
    };
    assert!(error(again, rebalance).contains("is there twice"));
    let same = |_: &mut Layout| {};
    assert!(error(same, &create(1, 1, 1, of(1, 0))).contains("is there already"));
    assert!(error(same, &create(2, 1025, 1, of(1, 0))).contains("not from 1 to 1024"));
    assert!(error(same, &create(2, 1, 1, of(1 << 50, 0))).contains("larger than any node"));
    assert!(error(same, &Request::Drain { node: node_id(9) }).starts_with("there is no node"));
    assert!(
        error(same, &Request::Resize { database: database(9), needs: of(1, 0) }).starts_with("there is no database")
    );
    assert!(
        error(same, &Request::AddReplicas { database: database(1), copies: 2, needs: of(1, 0) })
            .contains("from 3 to 8")
    );
}

#[test]
fn changes_become_steps_of_an_operation() {
    let layout = checked(&nodes(&["1", "2", "3"], of(GB, 0)), &create(1, 3, 2, of(1, 0))).after;
    let plan = checked(&layout, &Request::Drain { node: node_id(0) });
    let steps: Vec<Step> = plan.changes.iter().map(|&change| change.into()).collect();
    let record = cluster::records::OperationRecord {
        target: String::new(),
        by: String::new(),
        nodes: Vec::new(),
        kind: cluster::records::OperationKind::Drain,
        database: None,
        node: Some(node_id(0)),
        steps,
        done: 0,
        waits_for: None,
        aborted_by: None,
        error: None,
        started_ms: 1,
        ended_ms: None,
        unknown: Default::default(),
    };
    let key = cluster::keys::Key::Operation(cluster::ids::OperationId([1; 8]));
    let bytes = cluster::records::encode(key, &record).unwrap();
    assert_eq!(cluster::records::decode::<cluster::records::OperationRecord>(key, &bytes).unwrap(), record);
}

/// A cluster with some databases, as requests have made it.
fn random_layout(random: &mut SplitMix64) -> Layout {
    let zones = 1 + random.below(4);
    let mut layout = Layout::default();
    for index in 0..2 + random.below(7) as u8 {
        let mut room = node(index, &random.below(zones).to_string(), of(50 + random.below(100), random.below(3) * 100));
        if random.below(8) == 0 {
            room.role = Role::Quorum;
        }
        layout.nodes.push(room);
    }
    for index in 0..1 + random.below(4) as u8 {
        let request = random_create(random, index);
        if let Ok(plan) = plan(&layout, &request) {
            layout = plan.after;
        }
    }
    for database in &mut layout.databases {
        database.shards.iter_mut().for_each(|shard| shard.bytes = random.below(50));
    }
    layout
}

fn random_create(random: &mut SplitMix64, index: u8) -> Request {
    create(index, 1 + random.below(6) as u16, 1 + random.below(3) as u32, random_needs(random))
}

fn random_needs(random: &mut SplitMix64) -> Resources {
    of(1 + random.below(25), if random.below(2) == 0 { 0 } else { random.below(60) })
}

fn random_request(random: &mut SplitMix64, layout: &Layout) -> Request {
    let node = layout.nodes[random.index(layout.nodes.len())].id;
    let databases = &layout.databases;
    let database = (!databases.is_empty()).then(|| databases[random.index(databases.len())].clone());
    match (random.below(7), database) {
        (0, Some(database)) => Request::Resize { database: database.id, needs: random_needs(random) },
        (1, Some(database)) => {
            Request::AddReplicas { database: database.id, copies: database.copies + 1, needs: random_needs(random) }
        }
        (2, _) => Request::Drain { node },
        (3, _) => Request::Replace { node },
        (4, _) => Request::Rebalance,
        (5, Some(database)) => Request::AddMissing { database: database.id },
        _ => {
            let index = 100 + random.below(100) as u8;
            random_create(random, index)
        }
    }
}

/// Their nodes were removed from the cluster.
fn lose_replicas(random: &mut SplitMix64, layout: &mut Layout, database: DatabaseId) {
    let database = layout.databases.iter_mut().find(|other| other.id == database).unwrap();
    for shard in &mut database.shards {
        shard.replicas.retain(|_| random.below(2) == 0);
    }
}

/// Requests one after the other, each on the layout that the one before it left. Some nodes come between.
#[test]
fn every_plan_keeps_the_rules() {
    let (mut planned, mut refused) = (0, 0);
    seeds::each(1, 70, |seed| {
        let mut random = SplitMix64(seed);
        let mut layout = random_layout(&mut random);
        for round in 0..6 {
            let request = random_request(&mut random, &layout);
            if let Request::AddMissing { database } = request {
                lose_replicas(&mut random, &mut layout, database);
            }
            match plan(&layout, &request) {
                Ok(found) => {
                    planned += 1;
                    assert_eq!(checked(&layout, &request), found, "equal layouts give equal plans");
                    // The order of the input does not matter.
                    let mut turned = layout.clone();
                    turned.nodes.reverse();
                    turned.databases.reverse();
                    turned.databases.iter_mut().for_each(|database| database.shards.reverse());
                    assert_eq!(plan(&turned, &request).as_ref(), Ok(&found));
                    layout = found.after;
                }
                Err(PlanError::Refused(_)) => refused += 1,
                Err(other) => assert!(other.to_string().contains("is there already"), "{other}"),
            }
            if random.below(2) == 0 {
                layout.nodes.push(node(20 + round, &random.below(4).to_string(), of(50 + random.below(100), 100)));
            }
        }
    });
    println!("{planned} plans, {refused} refused");
    assert!(planned > 200);
    assert!(refused > 50);
}

/// Node a is the fullest, but has room for two copies; b and c have room for one each. A placement by free share alone gives the first shard to
/// b and c, and finds one node for the second.
#[test]
fn shards_that_come_last_find_enough_nodes() {
    let mut layout = nodes(&["1", "2", "3"], of(19, 0));
    layout.nodes[0].capacity = of(100, 0);
    let zones = vec!["1".parse().unwrap()];
    let fill = Request::Create { database: database(1), shards: 1, copies: 1, needs: of(79, 0), zones };
    let filled = checked(&layout, &fill).after;
    let plan = checked(&filled, &create(2, 2, 2, of(10, 0)));
    assert_eq!(plan.after.loads().unwrap().iter().map(|load| load.copies).collect::<Vec<_>>(), [3, 1, 1]);
}

/// All placements of equal copies are tried: a creation is refused only if there is none.
#[test]
fn a_creation_is_refused_only_if_nothing_fits() {
    let (mut fits, mut refused) = (0, 0);
    seeds::each(1, 400, |seed| {
        let mut random = SplitMix64(seed);
        let mut layout = Layout::default();
        let zones = 1 + random.below(5);
        for index in 0..2 + random.below(4) as u8 {
            layout.nodes.push(node(
                index,
                &random.below(zones).to_string(),
                of(random.below(5) * 10 + random.below(10), 100),
            ));
        }
        let (shards, copies) = (1 + random.below(4) as u16, 1 + random.below(3) as u32);
        let request = create(1, shards, copies, of(10, 1 + random.below(40)));
        let limit = copies_per_zone(&layout, &[], copies);
        let exists = least::creation_exists(&layout, &request, limit);
        match plan(&layout, &request) {
            Ok(_) => {
                checked(&layout, &request);
                fits += 1;
            }
            Err(why) => {
                assert!(!exists || limit > 1, "{why}\n{layout:?}\n{request:?}");
                refused += 1;
            }
        }
    });
    println!("{fits} fit, {refused} do not");
    assert!(fits > 50);
    assert!(refused > 50);
}

/// The smallest number of primaries on the fullest node, by trying every choice.
fn least_primaries(shards: &[ShardCopies], counts: &mut BTreeMap<NodeId, usize>) -> usize {
    let Some((shard, others)) = shards.split_first() else { return counts.values().copied().max().unwrap_or(0) };
    let choices = nodes_of(shard).into_iter().map(|node| {
        *counts.entry(node).or_default() += 1;
        let most = least_primaries(others, counts);
        *counts.entry(node).or_default() -= 1;
        most
    });
    choices.min().expect("a shard has copies")
}

#[test]
fn primaries_are_as_even_as_the_copies_allow() {
    let mut alone = 0;
    seeds::each(1, 60, |seed| {
        let mut random = SplitMix64(seed);
        let mut layout = random_layout(&mut random);
        for request in [create(200, 1 + random.below(8) as u16, 2, of(1, 0)), Request::Rebalance] {
            let Ok(plan) = plan(&layout, &request) else { continue };
            let touched =
                |database: &&DatabaseCopies| request == Request::Rebalance || database.id == self::database(200);
            for DatabaseCopies { shards, .. } in plan.after.databases.iter().filter(touched) {
                let mut counts = BTreeMap::new();
                shards.iter().for_each(|shard| *counts.entry(shard.primary).or_insert(0) += 1);
                assert_eq!(counts.values().copied().max().unwrap(), least_primaries(shards, &mut BTreeMap::new()));
                alone += usize::from(counts.len() > 1);
            }
            layout = plan.after;
        }
    });
    assert!(alone > 50, "{alone}");
}
