//! Owns the route /metrics, and who may read it. Never knows what is on the page.

use crate::auth::Role;
use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use crate::metrics::prometheus;
use crate::route::{Answer, Route};

pub const ROUTES: &[Route] = &[Route {
    path: "/metrics",
    role: None,
    tag: "Health and metrics",
    summary: "All metrics, for Prometheus. Open to this machine; other machines need a token or `console-metrics-open yes`.",
    reply: Answer::Text(prometheus::CONTENT_TYPE),
    run: scrape,
    ..Route::BASE
}];

fn scrape(cx: &Cx) -> Result<Reply, ApiError> {
    let known = cx.who.as_ref().is_some_and(|who| who.role >= Role::Viewer);
    if !(known || cx.peer.is_local || cx.app.metrics_open) {
        return Err(ApiError::unauthenticated("metrics are open to this machine only")
            .hint("send a token as Authorization: Bearer fkv_…, or set console-metrics-open yes"));
    }
    let app = &cx.app;
    let page = prometheus::page(&app.node, app.agent.as_deref(), &app.watch, app.alerts.firing(), cx.now_ms());
    Ok(Reply::text(prometheus::CONTENT_TYPE, page))
}
