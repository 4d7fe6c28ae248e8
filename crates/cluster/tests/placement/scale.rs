//! Large clusters: how long plans take is printed, never checked. `cargo test --release -p flintkv-cluster --test placement -- --ignored
//! --nocapture large` prints the figure for 1,000 nodes.

use super::{database, of};
use crate::model::checked;
use cluster::ids::NodeId;
use cluster::placement::{Condition, Layout, NodeRoom, Plan, Request, plan};
use cluster::records::Role;
use std::time::Instant;

const GB: u64 = 1 << 30;

fn room(index: u16, zones: u16) -> NodeRoom {
    let mut id = [0; 20];
    id[..2].copy_from_slice(&index.to_be_bytes());
    NodeRoom {
        id: NodeId(id),
        name: format!("node-{index}").parse().unwrap(),
        zone: format!("zone-{}", index % zones).parse().unwrap(),
        role: Role::Data,
        condition: Condition::Open,
        // Three kinds of machines.
        capacity: of((64 + 32 * u64::from(index % 4 / 2)) * GB, (1000 + 500 * u64::from(index % 5 / 3)) * GB),
    }
}

/// A request on a cluster, with a text of what it took. `check`: whether the plan is carried out and checked, which takes far longer.
fn timed(what: &str, layout: &Layout, request: &Request, check: bool) -> Plan {
    let started = Instant::now();
    let plan = plan(layout, request).unwrap_or_else(|error| panic!("{what}: {error}"));
    let took = started.elapsed();
    println!("{what}: {:.3} s, {} changes, {} GB moved", took.as_secs_f64(), plan.changes.len(), plan.bytes / GB);
    if check {
        assert_eq!(checked(layout, request), plan);
    }
    plan
}

/// Databases of up to 1,024 shards, until there are so many.
fn lifetime(nodes: u16, shards: u16, check: bool) {
    let mut layout = Layout { nodes: (0..nodes).map(|index| room(index, 3)).collect(), databases: Vec::new() };
    let (mut left, mut index, started) = (shards, 0, Instant::now());
    while left > 0 {
        let (count, needs) = (left.min(1000), of((2 + u64::from(index % 3)) * GB, 20 * GB));
        let request = Request::Create { database: database(index), shards: count, copies: 2, needs, zones: Vec::new() };
        layout = timed("create", &layout, &request, check).after;
        (left, index) = (left - count, index + 1);
    }
    println!("all databases: {:.3} s", started.elapsed().as_secs_f64());
    for database in &mut layout.databases {
        database.shards.iter_mut().for_each(|shard| shard.bytes = 10 * GB);
    }
    let plan = timed("rebalance", &layout, &Request::Rebalance, check);
    assert!(plan.survival.survives_any_node());
    layout.nodes.extend((nodes..nodes + nodes / 10).map(|index| room(index, 3)));
    let plan = timed("rebalance with a tenth more nodes", &layout, &Request::Rebalance, check);
    // A copy alone is up to 6 % of a node.
    assert!(plan.tolerance_percent <= Some(10));
    layout = plan.after;
    let drained = layout.nodes[0].id;
    layout = timed("drain", &layout, &Request::Drain { node: drained }, check).after;
    let lost = layout.nodes[1].id;
    // The failovers.
    for shard in layout.databases.iter_mut().flat_map(|database| &mut database.shards) {
        if shard.primary == lost {
            std::mem::swap(&mut shard.primary, &mut shard.replicas[0]);
        }
    }
    layout = timed("replace", &layout, &Request::Replace { node: lost }, check).after;
    let resize = Request::Resize { database: database(0), needs: of(3 * GB, 30 * GB) };
    timed("resize", &layout, &resize, check);
}

#[test]
fn a_cluster_of_60_nodes() {
    lifetime(60, 600, true);
}

#[test]
#[ignore = "it prints a figure of the release build: 1,000 nodes, 10,000 shards"]
fn a_large_cluster() {
    lifetime(1000, 10_000, false);
}
