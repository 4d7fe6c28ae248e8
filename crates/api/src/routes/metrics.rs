//! Owns the answers for graphs. Never knows how metrics are measured.

use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use crate::metrics::catalog::{self, MetricInfo};
use crate::metrics::watch::{Series, Wanted};
use crate::route::{Answer, Param, Route, list, number, one, text};

const QUERY: &[Param] = &[
    number("from_ms", "default: an hour ago"),
    number("to_ms", "default: now"),
    number("points", "the most points, 1 to 1000; default 600"),
    text("names", "metrics, separated by commas; default: all"),
];
const HOUR_MS: u64 = 3_600_000;

pub const ROUTES: &[Route] = &[
    Route {
        path: "/api/v1/metrics-catalog",
        tag: "Metrics",
        summary: "All metrics, with their units and meanings.",
        reply: Answer::Json(list::<MetricInfo>),
        run: |_| Reply::json(&catalog::cards()),
        ..Route::BASE
    },
    Route {
        path: "/api/v1/databases/{name}/metrics",
        tag: "Metrics",
        summary: "Past values of a database: one per second for an hour, one per ten seconds for a day, one per minute for ten days. Gaps are null.",
        query: QUERY,
        reply: Answer::Json(one::<Series>),
        run: |cx| {
            let database = cx.database()?;
            Reply::json(&cx.app.watch.series(Some(database.name()), &wanted(cx)?)?)
        },
        ..Route::BASE
    },
    Route {
        path: "/api/v1/node/metrics",
        tag: "Metrics",
        summary: "Past values of the node.",
        query: QUERY,
        reply: Answer::Json(one::<Series>),
        run: |cx| Reply::json(&cx.app.watch.series(None, &wanted(cx)?)?),
        ..Route::BASE
    },
];

fn wanted(cx: &Cx) -> Result<Wanted, ApiError> {
    let now_ms = cx.now_ms();
    let any = (0, u64::MAX / 2);
    let to_ms = cx.number("to_ms", now_ms, any)?.min(now_ms);
    let from_ms = cx.number("from_ms", to_ms.saturating_sub(HOUR_MS), any)?;
    if from_ms >= to_ms {
        return Err(ApiError::field("from_ms", "must be before to_ms and before now"));
    }
    let names = cx.query("names").unwrap_or("").split(',').filter(|name| !name.is_empty());
    Ok(Wanted {
        from_ms,
        to_ms,
        points: cx.number("points", 600, (1, 1000))?,
        names: names.map(str::to_owned).collect(),
        now_ms,
    })
}
