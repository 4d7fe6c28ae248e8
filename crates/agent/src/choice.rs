//! Owns what is known when one of a shard's copies is to be named: whom to ask, what they have said, which of them are avoided, and what an
//! operator is told if the cluster may name none. Never names one.

use crate::calls::Answers;
use cluster::failover::Report;
use cluster::ids::{CopyNumber, NodeId, ShardUid};
use cluster::records::ShardRecord;
use cluster::view::View;
use std::collections::BTreeMap;

/// Which shards each node is to be asked about: the nodes that run and have a copy.
#[derive(Default)]
pub struct Asked(pub BTreeMap<NodeId, Vec<ShardUid>>);

impl Asked {
    pub fn add(&mut self, view: &View, uid: ShardUid, record: &ShardRecord) {
        for assigned in record.assignments.iter().filter(|assigned| view.live.contains_key(&assigned.node)) {
            self.0.entry(assigned.node).or_default().push(uid);
        }
    }
}

/// What the shard's copies have said.
pub fn reports(record: &ShardRecord, uid: ShardUid, answers: &Answers) -> Vec<Report> {
    let of_node = |node: NodeId| answers.get(&node)?.iter().find(|said| said.shard == uid);
    let said = record.assignments.iter().filter_map(|assigned| Some((assigned.copy, of_node(assigned.node)?.report)));
    // Another copy's files are of an assignment that was given up.
    said.filter(|(copy, report)| report.copy == *copy).map(|(_, report)| report).collect()
}

/// A copy that is to go, or whose node is drained, is named only if no other one can be.
pub fn is_avoided(view: &View, record: &ShardRecord, copy: CopyNumber) -> bool {
    let is_draining = |node: &NodeId| view.nodes.get(node).is_some_and(|node| node.is_draining);
    let mut assigned = record.assignments.iter().filter(|assigned| assigned.copy == copy);
    assigned.any(|assigned| assigned.is_leaving || is_draining(&assigned.node))
}

/// What an operator does about a shard of this database for which the cluster may name nobody. `None`: nobody has to do anything.
pub fn advice(view: &View, database: &str, record: &ShardRecord) -> Option<String> {
    if !record.is_undecided() {
        return None;
    }
    let away = record.assignments.iter().filter(|assigned| !view.live.contains_key(&assigned.node));
    let away: Vec<String> = away.map(|assigned| view.node_name(assigned.node)).collect();
    Some(match &away[..] {
        [] => format!(
            "no copy has every write that was acknowledged; flintkv database recover {database} shows what each has, and goes on \
             with the one that has most"
        ),
        away => format!(
            "no copy that runs has every write that was acknowledged: start {}; flintkv database recover {database} --lose-data \
             goes on without what is only there",
            away.join(" and ")
        ),
    })
}
