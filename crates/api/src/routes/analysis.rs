//! Owns the answers about analyses of keys. Never knows how keys are looked at.

use crate::analysis::Analysis;
use crate::auth::Role;
use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use crate::route::{Answer, Method, Route, number, one};

const PATH: &str = "/api/v1/databases/{name}/analysis";

pub const ROUTES: &[Route] = &[
    Route {
        path: PATH,
        tag: "Keys",
        summary: "The last analysis of a database's keys, with its progress; null if there is none.",
        reply: Answer::Json(one::<Analysis>),
        run: |cx| Reply::json(&cx.app.analyses.of(cx.database()?.name())),
        ..Route::BASE
    },
    Route {
        method: Method::Post,
        path: PATH,
        role: Some(Role::Operator),
        tag: "Keys",
        summary: "Starts an analysis of all keys. It looks at a few keys at a time, rests in between, and moves no value.",
        query: &[number("db", "logical database; default 0")],
        reply: Answer::Created(one::<Analysis>),
        action: "keys.analyse",
        run: start,
        ..Route::BASE
    },
    Route {
        method: Method::Delete,
        path: PATH,
        role: Some(Role::Operator),
        tag: "Keys",
        summary: "Stops an analysis. What it has found so far stays.",
        action: "keys.analyse.stop",
        run: stop,
        ..Route::BASE
    },
];

fn start(cx: &Cx) -> Result<Reply, ApiError> {
    let db = cx.number("db", 0, (0, u32::MAX))?;
    let database = cx.database()?;
    cx.note(database.name(), format!("db {db}"));
    Reply::created(&cx.app.analyses.start(database, cx.role().on_database(), db)?)
}

fn stop(cx: &Cx) -> Result<Reply, ApiError> {
    cx.app.analyses.stop(cx.database()?.name())?;
    Ok(Reply::none())
}
