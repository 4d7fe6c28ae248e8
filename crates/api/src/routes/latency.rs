//! Owns the data of the database's latency monitor: events that took long, and when. Never knows their causes.

use crate::auth::Role;
use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use crate::link::{items, number as int, text as words};
use crate::route::{Answer, Method, Route, one, text};
use resp::client::Value;
use serde::Serialize;
use utoipa::ToSchema;

const PATH: &str = "/api/v1/databases/{name}/latency";
const THRESHOLD: &str = "latency-monitor-threshold";

pub const ROUTES: &[Route] = &[
    Route {
        path: PATH,
        tag: "Slow log",
        summary: "Events that took at least `latency-monitor-threshold`, with the longest one of each second.",
        reply: Answer::Json(one::<LatencyHistory>),
        run: history,
        ..Route::BASE
    },
    Route {
        method: Method::Delete,
        path: PATH,
        role: Some(Role::Operator),
        tag: "Slow log",
        summary: "Forgets latency events.",
        query: &[text("event", "only this one; default all")],
        action: "latency.reset",
        run: |cx| {
            let event = cx.query("event").unwrap_or("");
            cx.note(cx.param("name"), event);
            let named = [&b"LATENCY"[..], b"RESET", event.as_bytes()];
            cx.link()?.call(if event.is_empty() { &named[..2] } else { &named })?;
            Ok(Reply::none())
        },
        ..Route::BASE
    },
];

#[derive(Serialize, ToSchema)]
struct LatencyHistory {
    /// 0: nothing is noted.
    threshold_ms: u64,
    events: Vec<LatencyEvent>,
    /// What LATENCY DOCTOR says; empty for a viewer.
    report: String,
}

#[derive(Serialize, ToSchema)]
struct LatencyEvent {
    name: String,
    /// When it was last noted.
    at_ms: i64,
    last_ms: i64,
    /// Since the start, or since it was forgotten.
    worst_ms: i64,
    /// The oldest first; at most 160.
    samples: Vec<LatencySample>,
}

#[derive(Serialize, ToSchema)]
struct LatencySample {
    at_ms: i64,
    /// The longest of that second.
    took_ms: i64,
}

fn history(cx: &Cx) -> Result<Reply, ApiError> {
    let database = cx.database()?;
    let threshold = database.config().get(&[THRESHOLD]).into_iter().find(|(name, _)| name == THRESHOLD);
    let threshold_ms = threshold.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
    let mut link = cx.link()?;
    let mut events = Vec::new();
    for event in items(link.call(&[b"LATENCY", b"LATEST"])?) {
        let Ok([name, at_s, last_ms, worst_ms]) = <[Value; 4]>::try_from(items(event)) else { continue };
        let name = words(name);
        let sample = |sample: Value| {
            let [at_s, took_ms] = <[Value; 2]>::try_from(items(sample)).ok()?;
            Some(LatencySample { at_ms: int(&at_s)? * 1000, took_ms: int(&took_ms)? })
        };
        let samples = items(link.call(&[b"LATENCY", b"HISTORY", name.as_bytes()])?);
        events.push(LatencyEvent {
            at_ms: int(&at_s).unwrap_or(0) * 1000,
            last_ms: int(&last_ms).unwrap_or(0),
            worst_ms: int(&worst_ms).unwrap_or(0),
            samples: samples.into_iter().filter_map(sample).collect(),
            name,
        });
    }
    // Viewers may not run LATENCY DOCTOR.
    let report = if cx.role() >= Role::Operator { words(link.call(&[b"LATENCY", b"DOCTOR"])?) } else { String::new() };
    Reply::json(&LatencyHistory { threshold_ms, events, report })
}
