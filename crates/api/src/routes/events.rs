//! Owns the answers about events, and about who changed what. Never knows who writes them.

use crate::auth::Role;
use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use crate::events::{Audited, Event};
use crate::lines::KEPT;
use crate::route::{Answer, Route, flag, list, number, text};

pub const ROUTES: &[Route] = &[
    Route {
        path: "/api/v1/events",
        tag: "Events",
        summary: "Events, newest first: databases, alerts, benchmarks, the node.",
        query: &[
            number("before_ms", "only events before this time"),
            number("count", "the largest number of entries, 1 to 1000; default 100"),
            text("kind", "only of this kind: node, database, replication, backup, alert, benchmark, webhook, user"),
            number("after_ms", "only events after this time"),
            text("database", "only events of this database and of the node"),
            flag("marked", "true: only the events that graphs show"),
        ],
        reply: Answer::Json(list::<Event>),
        run: events,
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

fn events(cx: &Cx) -> Result<Reply, ApiError> {
    let before_ms = cx.number("before_ms", u64::MAX, (0, u64::MAX))?;
    let count = cx.number("count", 100, (1, KEPT))?;
    let after_ms = cx.number("after_ms", 0, (0, u64::MAX))?;
    let (kind, database, marked) = (cx.query("kind"), cx.query("database"), cx.flag("marked")?);
    let fits = |event: &Event| {
        event.at_ms < before_ms
            && (after_ms == 0 || event.at_ms > after_ms)
            && kind.is_none_or(|kind| event.kind == kind)
            && database.is_none_or(|database| event.database.is_empty() || event.database == database)
            && !(marked && event.mark.is_empty())
    };
    Reply::json(&cx.app.events.newest(count, fits))
}

fn audit(cx: &Cx) -> Result<Reply, ApiError> {
    let before_ms = cx.number("before_ms", u64::MAX, (0, u64::MAX))?;
    let count = cx.number("count", 100, (1, KEPT))?;
    let lines = cx.app.audit.lock();
    Reply::json(&lines.newest().filter(|line| line.at_ms < before_ms).take(count).collect::<Vec<_>>())
}
