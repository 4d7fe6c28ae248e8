//! Owns the answers about events, and about who changed what. Never knows who writes them.

use crate::auth::Role;
use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use crate::events::{Audited, Event};
use crate::lines::KEPT;
use crate::relay::{self, MissingNode, Others};
use crate::route::{Answer, Param, Route, flag, list, number, one, text};
use serde::Serialize;
use std::cmp::Reverse;
use utoipa::ToSchema;

const EVENTS_QUERY: &[Param] = &[
    number("before_ms", "only events before this time"),
    number("count", "the largest number of entries, 1 to 1000; default 100"),
    text("kind", "only of this kind: node, database, replication, backup, alert, benchmark, webhook, user"),
    number("after_ms", "only events after this time"),
    text("database", "only events of this database and of the node"),
    flag("marked", "true: only the events that graphs show"),
];

pub const ROUTES: &[Route] = &[
    Route {
        path: "/api/v1/events",
        tag: "Events",
        summary: "Events, newest first: databases, alerts, benchmarks, the node.",
        query: EVENTS_QUERY,
        reply: Answer::Json(list::<Event>),
        run: events,
        ..Route::BASE
    },
    Route {
        path: "/api/v1/cluster/events",
        tag: "Events",
        summary: "The events of all nodes of the cluster, newest first, each with its node.",
        query: EVENTS_QUERY,
        reply: Answer::Json(one::<ClusterEvents>),
        run: of_cluster,
        ..Route::BASE
    },
    Route {
        path: "/api/v1/audit",
        role: Some(Role::Admin),
        tag: "Events",
        summary: "Who changed what, newest first.",
        query: &[
            number("before_ms", "only events before this time"),
            number("count", "the largest number of entries, 1 to 1000; default 100"),
        ],
        reply: Answer::Json(list::<Audited>),
        run: audit,
        ..Route::BASE
    },
];

#[derive(Serialize, ToSchema)]
struct ClusterEvents {
    events: Vec<NodeEvent>,
    /// Whose events are not among them.
    missing: Vec<MissingNode>,
}

#[derive(Serialize, ToSchema)]
struct NodeEvent {
    node: String,
    event: Event,
}

fn events(cx: &Cx) -> Result<Reply, ApiError> {
    Reply::json(&found(cx)?)
}

fn of_cluster(cx: &Cx) -> Result<Reply, ApiError> {
    let own = relay::own_name(&cx.app)?;
    let mut events: Vec<NodeEvent> =
        found(cx)?.into_iter().map(|event| NodeEvent { node: own.clone(), event }).collect();
    let Others { answers, missing } = relay::read_others::<Vec<Event>>(cx, "/api/v1/events")?;
    for (node, found) in answers {
        events.extend(found.into_iter().map(|event| NodeEvent { node: node.clone(), event }));
    }
    events.sort_by_key(|one| Reverse(one.event.at_ms));
    events.truncate(count(cx)?);
    Reply::json(&ClusterEvents { events, missing })
}

fn count(cx: &Cx) -> Result<usize, ApiError> {
    cx.number("count", 100, (1, KEPT))
}

/// The events of this node that are asked for.
fn found(cx: &Cx) -> Result<Vec<Event>, ApiError> {
    let before_ms = cx.number("before_ms", u64::MAX, (0, u64::MAX))?;
    let count = count(cx)?;
    let after_ms = cx.number("after_ms", 0, (0, u64::MAX))?;
    let (kind, database, marked) = (cx.query("kind"), cx.query("database"), cx.flag("marked")?);
    let fits = |event: &Event| {
        event.at_ms < before_ms
            && (after_ms == 0 || event.at_ms > after_ms)
            && kind.is_none_or(|kind| event.kind == kind)
            && database.is_none_or(|database| event.database.is_empty() || event.database == database)
            && !(marked && event.mark.is_empty())
    };
    Ok(cx.app.events.newest(count, fits))
}

fn audit(cx: &Cx) -> Result<Reply, ApiError> {
    let before_ms = cx.number("before_ms", u64::MAX, (0, u64::MAX))?;
    let count = count(cx)?;
    let lines = cx.app.audit.lock();
    Reply::json(&lines.newest().filter(|line| line.at_ms < before_ms).take(count).collect::<Vec<_>>())
}
