//! Owns FlintKV's HTTP API: databases, keys, metrics and everything else that the web console and other programs ask of
//! a node. Never knows how a value is stored: it asks a database in RESP, as every client does.
//!
//! Reading order: [`serve`](start) opens the sockets; `middleware` takes a request from its headers to its handler; `route`
//! is the type of a route, and `routes` has all of them, each beside its handler. `app` is the state that requests share,
//! `cx` is what a handler sees of a request. `link` is a connection to a database, `terminals` are connections that stay
//! open between requests, `stream` is a connection that receives messages. `metrics` collects metrics and their history,
//! `condition` judges the state of a database, `following` writes events about replication, `alerts` compares metrics with
//! rules and sends messages, `benchmarks` runs scenarios, `analysis` scans keys, `surveys` measures other servers, `auth`
//! has users and sessions, `console` serves the console's files, `openapi` generates the API's documents, `typescript` the
//! console's types.
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
mod error;
mod events;
mod following;
mod lines;
mod link;
mod metrics;
mod middleware;
mod openapi;
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
pub use openapi::{api_md, json as openapi_json};
pub use serve::Console;
pub use typescript::api_ts;

use node::Node;
use std::any::Any;
use std::io;
use std::sync::Arc;

/// Starts the console if the node's configuration asks for one. Dropping the result stops it.
pub fn start(node: &Arc<Node>) -> io::Result<Box<dyn Any>> {
    start_with(node, Options::default())
}

pub fn start_with(node: &Arc<Node>, options: Options) -> io::Result<Box<dyn Any>> {
    Ok(Box::new(serve::start(node, options)?))
}

/// Every route: method, path, and the least role (`None`: no login needed).
pub fn routes() -> impl Iterator<Item = (&'static str, &'static str, Option<Role>)> {
    routes::all().map(|route| (route.method.name(), route.path, route.role))
}
