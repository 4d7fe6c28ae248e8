//! Owns the answers about benchmarks. Never knows how one runs.

use crate::auth::Role;
use crate::benchmarks::{Benchmark, NewBenchmark, Scenario, scenarios};
use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use crate::events::Event;
use crate::route::{Answer, Method, Route, list, one};

pub const ROUTES: &[Route] = &[
    Route {
        path: "/api/v1/scenarios",
        tag: "Benchmarks",
        summary: "The published benchmarks that can be run, at their full size.",
        reply: Answer::Json(list::<Scenario>),
        run: |_| Reply::json(&scenarios()),
        ..Route::BASE
    },
    Route {
        path: "/api/v1/benchmarks",
        tag: "Benchmarks",
        summary: "The last benchmarks, newest first.",
        reply: Answer::Json(list::<Benchmark>),
        run: |cx| Reply::json(&cx.app.benchmarks.all()),
        ..Route::BASE
    },
    Route {
        method: Method::Post,
        path: "/api/v1/benchmarks",
        role: Some(Role::Operator),
        tag: "Benchmarks",
        summary: "Runs a scenario against a database, which it fills with keys of its own. One at a time.",
        body: Some(one::<NewBenchmark>),
        reply: Answer::Created(one::<Benchmark>),
        action: "benchmark.start",
        run: start,
        ..Route::BASE
    },
    Route {
        path: "/api/v1/benchmarks/{id}",
        tag: "Benchmarks",
        summary: "One benchmark with its progress, and its report when it is done.",
        reply: Answer::Json(one::<Benchmark>),
        run: |cx| Reply::json(&cx.app.benchmarks.one(cx.param("id"))?),
        ..Route::BASE
    },
    Route {
        method: Method::Delete,
        path: "/api/v1/benchmarks/{id}",
        role: Some(Role::Operator),
        tag: "Benchmarks",
        summary: "Stops a benchmark that runs; forgets one that has ended.",
        action: "benchmark.stop",
        run: stop,
        ..Route::BASE
    },
];

fn start(cx: &Cx) -> Result<Reply, ApiError> {
    let wanted: NewBenchmark = cx.body()?;
    wanted.check()?;
    let database = cx.database_named(&wanted.database)?;
    cx.note(wanted.database.clone(), format!("{} at scale {}", wanted.scenario, wanted.scale));
    let benchmark = cx.app.benchmarks.start(&wanted, &database, cx.now_ms())?;
    let text = format!("benchmark {} at scale {} has started", wanted.scenario, wanted.scale);
    cx.app.event(Event::info("benchmark", &wanted.database, text).by(cx.user()));
    Reply::created(&benchmark)
}

fn stop(cx: &Cx) -> Result<Reply, ApiError> {
    cx.app.benchmarks.stop_or_forget(cx.param("id"))?;
    Ok(Reply::none())
}
