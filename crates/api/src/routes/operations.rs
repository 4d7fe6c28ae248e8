//! Owns the list of what operators have asked of the cluster, with how far each node is, and of its failovers. Never begins anything.

use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use crate::route::{Answer, Route, list};
use crate::routes::cluster::agent;
use cluster::records::{FailoverRecord, OperationKind, OperationRecord};
use cluster::view::View;
use serde::Serialize;
use std::cmp::Reverse;
use utoipa::ToSchema;

pub const ROUTES: &[Route] = &[Route {
    path: "/api/v1/operations",
    tag: "Cluster",
    summary: "What operators have asked of the cluster, and the failovers of its shards, the newest first. Of those that have ended, the last ones are kept.",
    reply: Answer::Json(list::<Operation>),
    run: all,
    ..Route::BASE
}];

#[derive(Serialize, ToSchema)]
struct Operation {
    id: String,
    /// create, resize, delete, flush, pause, resume, forget or failover.
    kind: &'static str,
    /// The name of the database, node or shard that it is about.
    target: String,
    /// Who has asked for it. Of a failover, the cluster.
    by: String,
    /// running, done or failed. It runs until each of its nodes has done its part; one that does not run does so when it is back.
    state: &'static str,
    started_ms: u64,
    ended_ms: Option<u64>,
    /// Why it has failed.
    error: Option<String>,
    /// Of a failover: between which nodes, and why.
    about: Option<String>,
    nodes: Vec<OperationNode>,
}

#[derive(Serialize, ToSchema)]
struct OperationNode {
    name: String,
    is_done: bool,
    is_live: bool,
    /// What keeps it from its part.
    trouble: Option<String>,
}

fn all(cx: &Cx) -> Result<Reply, ApiError> {
    let status = agent(cx)?.status().map_err(|error| ApiError::unsupported(error.to_string()))?;
    let view = &*status.view;
    let mut operations: Vec<Operation> =
        view.operations.iter().map(|(id, operation)| shown(view, id.to_string(), operation)).collect();
    operations.extend(view.failovers.iter().map(|(id, failover)| failed_over(id.to_string(), failover)));
    operations.sort_by_key(|operation| Reverse(operation.started_ms));
    Reply::json(&operations)
}

fn shown(view: &View, id: String, operation: &OperationRecord) -> Operation {
    let nodes = operation.nodes.iter().map(|step| OperationNode {
        name: step.name.to_string(),
        is_done: step.is_done,
        is_live: view.live.contains_key(&step.node),
        trouble: step.trouble.clone(),
    });
    Operation {
        id,
        kind: kind_word(operation.kind),
        target: operation.target.clone(),
        by: operation.by.clone(),
        state: match (&operation.error, operation.ended_ms) {
            (Some(_), _) => "failed",
            (None, Some(_)) => "done",
            (None, None) => "running",
        },
        started_ms: operation.started_ms,
        ended_ms: operation.ended_ms,
        error: operation.error.clone(),
        about: None,
        nodes: nodes.collect(),
    }
}

fn failed_over(id: String, failover: &FailoverRecord) -> Operation {
    let FailoverRecord { target, cause, from, to, epoch, missed_ms, named_ms, .. } = failover;
    Operation {
        id,
        kind: "failover",
        target: target.clone(),
        by: "the cluster".to_owned(),
        state: "done",
        started_ms: *missed_ms,
        ended_ms: Some(*named_ms),
        error: None,
        about: Some(format!("from {from} to {to}, epoch {epoch}: {cause}")),
        nodes: Vec::new(),
    }
}

fn kind_word(kind: OperationKind) -> &'static str {
    match kind {
        OperationKind::Create => "create",
        OperationKind::Resize => "resize",
        OperationKind::AddReplicas => "add replicas",
        OperationKind::Drain => "drain",
        OperationKind::Replace => "replace",
        OperationKind::Rebalance => "rebalance",
        OperationKind::Delete => "delete",
        OperationKind::Flush => "flush",
        OperationKind::Pause => "pause",
        OperationKind::Resume => "resume",
        OperationKind::Forget => "forget",
    }
}
