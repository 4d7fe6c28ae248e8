//! Owns what operators ask of the cluster's copies and primaries, and the list of what they have asked for, with how far it is, and of
//! failovers. Never plans or carries anything out: `agent` does.

use crate::auth::Role;
use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use crate::events::{Event, Severity};
use crate::route::{Answer, Method, Param, Route, flag, list, one};
use crate::routes::cluster::agent;
use agent::{Planned, Wish};
use cluster::ids::OperationId;
use cluster::records::{FailoverRecord, OperationKind, OperationRecord, Step, StepKind};
use cluster::view::View;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use utoipa::ToSchema;

const DRY_RUN: &[Param] = &[flag("dry_run", "true: only shows the steps, and what is left out")];

/// Begins an operation, which the cluster carries out.
const BEGINS: Route = Route {
    method: Method::Post,
    role: Some(Role::Admin),
    tag: "Cluster",
    query: DRY_RUN,
    reply: Answer::Created(one::<BegunOperation>),
    dry_run_reply: Some(one::<BegunOperation>),
    ..Route::BASE
};

pub const ROUTES: &[Route] = &[
    Route {
        path: "/api/v1/operations",
        tag: "Cluster",
        summary: "What operators have asked of the cluster, and the failovers of its shards, the newest first. Of those that have ended, the last ones are kept.",
        reply: Answer::Json(list::<Operation>),
        run: all,
        ..Route::BASE
    },
    Route {
        method: Method::Post,
        path: "/api/v1/operations/{id}/abort",
        role: Some(Role::Admin),
        tag: "Cluster",
        summary: "Ends an operation with steps before its last one. The cluster takes back what is half done, and leaves what is done.",
        action: "operation.abort",
        run: abort,
        ..Route::BASE
    },
    Route {
        path: "/api/v1/cluster/switchover",
        summary: "Makes other copies of a database's shards the primaries. No write is lost, and no client gets an error.",
        body: Some(one::<SwitchoverRequest>),
        action: "cluster.switchover",
        run: switchover,
        ..BEGINS
    },
    Route {
        path: "/api/v1/cluster/nodes/{node}/drain",
        summary: "Has all primaries leave a node. Until it is undrained, none is named there while another copy can be, and it gets no new copies.",
        action: "cluster.drain",
        run: drain,
        ..BEGINS
    },
    Route {
        path: "/api/v1/cluster/nodes/{node}/undrain",
        summary: "Lets a node have primaries again, and gives it its part of them.",
        action: "cluster.undrain",
        run: undrain,
        ..BEGINS
    },
    Route {
        path: "/api/v1/cluster/nodes/{node}/replace",
        summary: "Makes the copies of a node that does not run anew on other nodes.",
        action: "cluster.replace",
        run: replace,
        ..BEGINS
    },
    Route {
        path: "/api/v1/cluster/move",
        summary: "Moves a copy of a shard to another node. If it is the primary, the new copy is the primary then.",
        body: Some(one::<MoveRequest>),
        action: "cluster.move",
        run: move_copy,
        ..BEGINS
    },
    Route {
        path: "/api/v1/cluster/restart",
        summary: "Starts the processes of nodes anew, one after the other, each without primaries and with the file that is at its program's path then.",
        body: Some(one::<RestartRequest>),
        action: "cluster.restart",
        run: restart,
        ..BEGINS
    },
    Route {
        path: "/api/v1/cluster/settings",
        tag: "Cluster",
        summary: "What is set for the whole cluster.",
        reply: Answer::Json(one::<ClusterSettings>),
        run: settings,
        ..Route::BASE
    },
    Route {
        method: Method::Put,
        path: "/api/v1/cluster/settings",
        role: Some(Role::Admin),
        tag: "Cluster",
        summary: "Sets it.",
        body: Some(one::<ClusterSettings>),
        reply: Answer::Json(one::<ClusterSettings>),
        action: "cluster.settings",
        run: set_settings,
        ..Route::BASE
    },
];

#[derive(Serialize, ToSchema)]
struct Operation {
    id: String,
    /// create, resize, delete, flush, pause, resume, forget, recover, failover; with steps: add replicas, switchover, drain, undrain, move, replace or restart.
    kind: &'static str,
    /// The name of the database, node or shard that it is about.
    target: String,
    /// Who has asked for it. Of what the cluster does by itself, the cluster.
    by: String,
    /// running, done or failed. It runs until each of its nodes has done its part, or until its last step is done; a node that does not run
    /// does its part when it is back.
    state: &'static str,
    started_ms: u64,
    ended_ms: Option<u64>,
    /// Why it has failed, or what stays as it is after it was aborted.
    error: Option<String>,
    /// Of a failover: between which nodes, and why.
    about: Option<String>,
    failover: Option<Failover>,
    nodes: Vec<OperationNode>,
    /// In the order in which the cluster carries them out.
    steps: Vec<OperationStep>,
    /// How many steps are done.
    steps_done: usize,
    /// What the next step waits for.
    waits_for: Option<String>,
    /// Who has aborted it.
    aborted_by: Option<String>,
}

/// A change of a shard's primary that nobody has asked for.
#[derive(Serialize, ToSchema)]
struct Failover {
    from: String,
    to: String,
    /// That the new primary serves in.
    epoch: u64,
    /// Why the old primary was given up.
    cause: String,
    /// When the cluster missed the old primary, named the new one, and heard it serve. null: not yet, or that is not known.
    missed_ms: u64,
    named_ms: u64,
    served_ms: Option<u64>,
}

#[derive(Serialize, ToSchema)]
struct OperationStep {
    /// add, move, drop, switchover, resize or restart.
    kind: &'static str,
    /// The shard, such as orders.1.
    shard: Option<String>,
    /// The node that a copy leaves.
    from: Option<String>,
    /// The node that gets a copy or the primary, or that starts anew.
    to: Option<String>,
}

/// An operation that has begun, or would begin.
#[derive(Serialize, ToSchema)]
struct BegunOperation {
    /// null: nothing was begun.
    id: Option<String>,
    kind: &'static str,
    target: String,
    steps: Vec<OperationStep>,
    /// What is left out, and why.
    notes: Vec<String>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SwitchoverRequest {
    database: String,
    /// The number of a shard. Without it, all shards.
    #[serde(default)]
    shard: Option<u16>,
    /// The node of the next primary. Without it, the copy that is in sync and whose node has the fewest primaries.
    #[serde(default)]
    to: Option<String>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct MoveRequest {
    /// Such as orders.1.
    shard: String,
    /// The node that gets the copy.
    to: String,
    /// The node that it leaves. Without it, that of the shard's only replica.
    #[serde(default)]
    from: Option<String>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RestartRequest {
    /// Empty: all nodes that run.
    #[serde(default)]
    nodes: Vec<String>,
}

#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ClusterSettings {
    /// When a node has not run for so many seconds, its copies come anew on other nodes. 0: only when an operator asks for that.
    replace_after_s: u64,
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

fn wished(cx: &Cx, target: &str, wish: &Wish) -> Result<Reply, ApiError> {
    cx.note(target.to_owned(), "");
    let agent = agent(cx)?;
    let shown = |view: &View, id: Option<OperationId>, planned: &Planned| BegunOperation {
        id: id.map(|id| id.to_string()),
        kind: kind_word(planned.kind),
        target: planned.target.clone(),
        steps: planned.steps.iter().map(|step| shown_step(view, step)).collect(),
        notes: planned.notes.clone(),
    };
    let view = || agent.status().map(|status| status.view).map_err(|error| ApiError::unsupported(error.to_string()));
    if cx.flag("dry_run")? {
        cx.unaudited();
        let planned = agent.plan_operation(wish)?;
        return Reply::json(&shown(&*view()?, None, &planned));
    }
    let (id, planned) = agent.operate(wish, &cx.user())?;
    let text = format!("operation {id} has begun: {} of {}", kind_word(planned.kind), planned.target);
    cx.note_more(&text);
    cx.app.event(Event::info("node", "", text).severity(Severity::Warning).by(cx.user()));
    Reply::created(&shown(&*view()?, Some(id), &planned))
}

fn switchover(cx: &Cx) -> Result<Reply, ApiError> {
    let SwitchoverRequest { database, shard, to } = cx.body()?;
    wished(cx, &database, &Wish::SwitchOver { database: database.clone(), shard, to })
}

fn drain(cx: &Cx) -> Result<Reply, ApiError> {
    let node = cx.param("node").to_owned();
    wished(cx, &node, &Wish::Drain { node: node.clone() })
}

fn undrain(cx: &Cx) -> Result<Reply, ApiError> {
    let node = cx.param("node").to_owned();
    wished(cx, &node, &Wish::Undrain { node: node.clone() })
}

fn replace(cx: &Cx) -> Result<Reply, ApiError> {
    let node = cx.param("node").to_owned();
    wished(cx, &node, &Wish::Replace { node: node.clone() })
}

fn move_copy(cx: &Cx) -> Result<Reply, ApiError> {
    let MoveRequest { shard, to, from } = cx.body()?;
    wished(cx, &shard, &Wish::Move { shard: shard.clone(), to, from })
}

fn restart(cx: &Cx) -> Result<Reply, ApiError> {
    let RestartRequest { nodes } = cx.body()?;
    let target = if nodes.is_empty() { "all nodes".to_owned() } else { nodes.join(", ") };
    wished(cx, &target, &Wish::Restart { nodes })
}

fn abort(cx: &Cx) -> Result<Reply, ApiError> {
    let id = cx.param("id").to_owned();
    cx.note(id.clone(), "");
    let parsed = id.parse().map_err(|_| ApiError::not_found(format!("the cluster has no operation {id}")))?;
    agent(cx)?.abort(parsed, &cx.user())?;
    let text = format!("operation {id} is being aborted");
    cx.app.event(Event::info("node", "", text).severity(Severity::Warning).by(cx.user()));
    Ok(Reply::none())
}

fn settings(cx: &Cx) -> Result<Reply, ApiError> {
    let status = agent(cx)?.status().map_err(|error| ApiError::unsupported(error.to_string()))?;
    let set = status.view.settings.as_ref().and_then(|settings| settings.replace_after_s);
    Reply::json(&ClusterSettings { replace_after_s: set.unwrap_or(cluster::records::REPLACE_AFTER_S) })
}

fn set_settings(cx: &Cx) -> Result<Reply, ApiError> {
    let settings: ClusterSettings = cx.body()?;
    cx.note("replace_after_s", settings.replace_after_s.to_string());
    agent(cx)?.set_replace_after(settings.replace_after_s, &cx.user())?;
    Reply::json(&settings)
}

fn shown_step(view: &View, step: &Step) -> OperationStep {
    OperationStep {
        kind: match step.kind {
            StepKind::Add => "add",
            StepKind::Move => "move",
            StepKind::Drop => "drop",
            StepKind::SwitchOver => "switchover",
            StepKind::Resize => "resize",
            StepKind::Restart => "restart",
        },
        shard: step.shard.map(|shard| view.shard_name(shard)),
        from: step.from.map(|node| view.node_name(node)),
        to: step.to.map(|node| view.node_name(node)),
    }
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
        failover: None,
        nodes: nodes.collect(),
        steps: operation.steps.iter().map(|step| shown_step(view, step)).collect(),
        steps_done: operation.done,
        waits_for: operation.waits_for.clone(),
        aborted_by: operation.aborted_by.clone(),
    }
}

fn failed_over(id: String, failover: &FailoverRecord) -> Operation {
    let FailoverRecord { target, cause, from, to, epoch, missed_ms, named_ms, served_ms, .. } = failover;
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
        failover: Some(Failover {
            from: from.to_string(),
            to: to.to_string(),
            epoch: epoch.0.get(),
            cause: cause.clone(),
            missed_ms: *missed_ms,
            named_ms: *named_ms,
            served_ms: *served_ms,
        }),
        nodes: Vec::new(),
        steps: Vec::new(),
        steps_done: 0,
        waits_for: None,
        aborted_by: None,
    }
}

fn kind_word(kind: OperationKind) -> &'static str {
    match kind {
        OperationKind::Create => "create",
        OperationKind::Resize => "resize",
        OperationKind::AddReplicas => "add replicas",
        OperationKind::SwitchOver => "switchover",
        OperationKind::Undrain => "undrain",
        OperationKind::Move => "move",
        OperationKind::Restart => "restart",
        OperationKind::Drain => "drain",
        OperationKind::Replace => "replace",
        OperationKind::Rebalance => "rebalance",
        OperationKind::Delete => "delete",
        OperationKind::Flush => "flush",
        OperationKind::Pause => "pause",
        OperationKind::Resume => "resume",
        OperationKind::Forget => "forget",
        OperationKind::Recover => "recover",
    }
}
