//! Owns what a node says in the record of an operation: that it has done its part, or what keeps it from that; and when the operation has
//! ended. Never knows etcd.

use cluster::ids::{DatabaseId, NodeId, ShardNumber};
use cluster::records::{DatabaseState, OperationKind, OperationRecord};
use cluster::view::View;
use std::collections::BTreeMap;

/// Of each node in a record, which has only so much room.
const TROUBLE_CHARS_MAX: usize = 300;

/// How far this node is.
pub enum Part {
    Done,
    Open { trouble: Option<String> },
}

/// What keeps this node from its part of an operation on a database; `None`: on all of them.
pub fn trouble_with(
    database: Option<DatabaseId>,
    troubles: &BTreeMap<(DatabaseId, Option<ShardNumber>), String>,
) -> Option<String> {
    let of_it = troubles.iter().filter(|((id, _), _)| database.is_none_or(|database| *id == database));
    let line = |((_, shard), why): (&(DatabaseId, Option<ShardNumber>), &String)| match shard {
        Some(number) => format!("shard {number}: {why}"),
        None => why.clone(),
    };
    let lines: Vec<String> = of_it.map(line).collect();
    (!lines.is_empty()).then(|| lines.join("; ").chars().take(TROUBLE_CHARS_MAX).collect())
}

/// The operation, with what this node says of it. One with steps is the controller's.
pub fn reported(view: &View, me: NodeId, before: &OperationRecord, part: &Part, now_ms: u64) -> OperationRecord {
    let mut operation = before.clone();
    if before.has_steps() {
        return operation;
    }
    for step in &mut operation.nodes {
        match part {
            Part::Done if step.node == me => step.is_done = true,
            Part::Open { trouble } if step.node == me => step.trouble.clone_from(trouble),
            _ => {}
        }
        // A node that was removed has nothing to do any more.
        step.is_done |= !view.nodes.contains_key(&step.node);
        if step.is_done {
            step.trouble = None;
        }
    }
    let open: Vec<&str> = operation.nodes.iter().filter(|step| !step.is_done).map(|step| step.name.as_str()).collect();
    if open.is_empty() {
        operation.ended_ms = Some(now_ms);
    } else if before.kind != OperationKind::Delete && before.database.is_some_and(|id| is_gone(view, id)) {
        operation.error = Some(format!("'{}' was deleted before {} had done it", before.target, open.join(", ")));
        operation.ended_ms = Some(now_ms);
    }
    operation
}

/// A database that is deleted takes with it what was asked of it before.
fn is_gone(view: &View, id: DatabaseId) -> bool {
    match view.databases.get(&id) {
        Some(database) => database.spec.as_ref().is_some_and(|spec| spec.state == DatabaseState::Deleting),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::records::{NodeStep, Unknown};

    fn node(digit: char) -> NodeId {
        digit.to_string().repeat(40).parse().unwrap()
    }

    fn database() -> DatabaseId {
        format!("{}0000", "d".repeat(20)).parse().unwrap()
    }

    /// Of a flush that two nodes take part in.
    fn flush() -> OperationRecord {
        let step = |digit, name: &str| NodeStep {
            node: node(digit),
            name: name.parse().unwrap(),
            is_done: false,
            trouble: None,
            unknown: Unknown::new(),
        };
        OperationRecord {
            kind: OperationKind::Flush,
            target: "orders".to_owned(),
            by: "ann".to_owned(),
            database: Some(database()),
            node: None,
            nodes: vec![step('1', "n1"), step('2', "n2")],
            steps: Vec::new(),
            done: 0,
            waits_for: None,
            aborted_by: None,
            error: None,
            started_ms: 1,
            ended_ms: None,
            unknown: Unknown::new(),
        }
    }

    /// Two nodes, and the database if it is there.
    fn view(has_database: bool) -> View {
        let mut view = View::default();
        for digit in ['1', '2'] {
            let node = format!(
                r#"{{"name":"n{digit}","zone":"a","role":"data","addresses":{{"peer":"h:1","client_host":"h"}},"capacity":{{"ram_bytes":1,"flash_bytes":1}},"versions":{{"flintkv":"1"}},"feature_level":1}}"#
            );
            view.apply(&format!("nodes/{}", digit.to_string().repeat(40)), Some(node.as_bytes()), 1);
        }
        assert_eq!(view.nodes.len(), 2, "{:?}", view.unreadable);
        if has_database {
            view.databases.insert(database(), Default::default());
        }
        view
    }

    #[test]
    fn an_operation_ends_when_each_node_has_done_its_part() {
        let view = view(true);
        let (one, other): (NodeId, NodeId) = (node('1'), node('2'));
        let open = Part::Open { trouble: Some("shard 1: flash is full".to_owned()) };
        let begun = reported(&view, other, &reported(&view, one, &flush(), &Part::Done, 5), &open, 6);
        assert_eq!((begun.nodes[0].is_done, begun.nodes[1].is_done, begun.ended_ms), (true, false, None));
        assert_eq!(begun.nodes[1].trouble.as_deref(), Some("shard 1: flash is full"));
        let ended = reported(&view, other, &begun, &Part::Done, 7);
        assert_eq!((ended.nodes[1].trouble.clone(), ended.error.clone(), ended.ended_ms), (None, None, Some(7)));
    }

    #[test]
    fn what_was_asked_of_a_database_that_is_deleted_has_failed() {
        let (one, part) = (node('1'), Part::Done);
        let failed = reported(&view(false), one, &flush(), &part, 5);
        assert_eq!(failed.error.as_deref(), Some("'orders' was deleted before n2 had done it"));
        assert_eq!(failed.ended_ms, Some(5));
        // Unless it was done before; and the deletion itself goes on.
        let mut done = flush();
        done.nodes[1].is_done = true;
        assert_eq!(reported(&view(false), one, &done, &part, 5).error, None);
        let delete = OperationRecord { kind: OperationKind::Delete, ..flush() };
        let delete = reported(&view(false), one, &delete, &part, 5);
        assert_eq!((delete.error, delete.ended_ms), (None, None));
    }
}
