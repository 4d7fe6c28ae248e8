//! Owns FlintKV's HTTP API: databases, keys, metrics and everything else that the web console and other programs ask of
//! a node. Never knows how a value is stored: it asks a database in RESP, as every client does.
//!
//! Reading order: [`serve`](start) opens the sockets; `middleware` takes a request from its headers to its handler; `relay`
//! has other nodes of a cluster answer; `route` is the type of a route, and `routes` has all of them, each beside its
//! handler. `cx` is what a handler sees of a request. `app` is the state that requests share: it holds the parts, and
//! `background` calls them once a second.
//!
//! A part knows neither the app nor a request. It is given what it needs: the node, the history, the events, the clock.
//! `metrics` collects metrics and their history, `condition` judges the state of a database, `events` is the log of events,
//! `database_events` and `following` write into it what databases report and how replication changes, `alerts` compares
//! metrics with rules and sends messages, `benchmarks` runs scenarios, `analysis` scans keys, `surveys` measures other
//! servers, `auth` has users and sessions. `link` is a connection to a database, `terminals` are connections that stay open
//! between requests, `stream` is a connection that receives messages.
//!
//! `console` serves the console's files, `openapi` generates the API's documents, `typescript` the console's types.
//!
//! Handlers are plain functions that may block. They run on threads of their own, never on a worker.

#![forbid(unsafe_code)]

mod alerts;
mod analysis;
mod app;
mod auth;
mod background;
mod benchmarks;
mod clock;
mod condition;
mod console;
mod cx;
mod database_events;
mod definition;
mod error;
mod events;
mod following;
mod lines;
mod link;
mod metrics;
mod middleware;
mod openapi;
mod relay;
mod route;
mod routes;
mod scan;
mod serve;
mod stream;
mod surveys;
mod terminals;
mod text;
mod typescript;
mod webhook;
mod words;

pub use app::Options;
pub use auth::Role;
pub use clock::Clock;
pub use routes::openapi_json;
pub use serve::Console;

use agent::Agent;
use node::Node;
use std::any::Any;
use std::io;
use std::sync::Arc;

/// Starts the console if the node's configuration asks for one. Dropping the result stops it.
pub fn start(node: &Arc<Node>, agent: Option<Arc<Agent>>) -> io::Result<Box<dyn Any>> {
    start_with(node, Options { agent, ..Options::default() })
}

pub fn start_with(node: &Arc<Node>, options: Options) -> io::Result<Box<dyn Any>> {
    Ok(Box::new(serve::start(node, options)?))
}

/// docs/api.md.
pub fn api_md() -> String {
    openapi::api_md(routes::all())
}

/// console/src/lib/schema.ts.
pub fn api_ts() -> String {
    typescript::api_ts(&openapi::document(routes::all()))
}

/// Every route: method, path, and the least role (`None`: no login needed).
pub fn routes() -> impl Iterator<Item = (&'static str, &'static str, Option<Role>)> {
    routes::all().map(|route| (route.method.name(), route.path, route.role))
}
