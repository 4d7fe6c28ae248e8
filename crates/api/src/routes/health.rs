//! Owns the answers for service managers and load balancers. Never blocks.

use super::openapi_json;
use crate::cx::{Cx, JSON, Reply};
use crate::error::ApiError;
use crate::route::{Answer, Route, plain};

pub const ROUTES: &[Route] = &[
    Route {
        path: "/health/live",
        role: None,
        tag: "Health and metrics",
        summary: "200 while the process runs.",
        reply: Answer::Text(TEXT),
        inline: true,
        run: |_| Ok(Reply::text(TEXT, "live\n")),
        ..Route::BASE
    },
    Route {
        path: "/health/ready",
        role: None,
        tag: "Health and metrics",
        summary: "200 while clients are served; 503 until every dataset is loaded, and when the node is stopping.",
        reply: Answer::Text(TEXT),
        inline: true,
        run: ready,
        ..Route::BASE
    },
    Route {
        path: "/api/v1/openapi.json",
        role: None,
        tag: "Health and metrics",
        summary: "This description.",
        reply: Answer::Json(plain::<serde_json::Value>),
        run: |_| Ok(Reply::text(JSON, openapi_json())),
        ..Route::BASE
    },
];

const TEXT: &str = "text/plain; charset=utf-8";

fn ready(cx: &Cx) -> Result<Reply, ApiError> {
    let node = &cx.app.node;
    match node.is_ready() {
        true => Ok(Reply::text(TEXT, "ready\n")),
        false if node.is_stopping() => Err(ApiError::stopping()),
        // The clock will notice in a moment that no dataset is left to load.
        false => {
            Err(ApiError::loading(node.loading().map_or("the node is starting".to_owned(), |all| all.to_string())))
        }
    }
}
