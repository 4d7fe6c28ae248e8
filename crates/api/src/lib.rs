//! Owns FlintKV's HTTP API: databases, keys, metrics and everything else that the web console and other programs ask of
//! a node. Never knows how a value is stored: it asks a database in RESP, as every client does.
//!
//! Reading order: [`serve`](start) opens the sockets; `middleware` is the way of one request, from its headers to its handler; `route` is
//! the shape of a route and `routes` the list of all of them, each beside its handler. `app` is what requests share, `cx` what a
//! handler sees, `link` the conversation with a database, `terminals` those that go on between requests, `stream` one of messages. `metrics` watches and remembers, `condition` says how a database is,
//! `following` tells of replication, `alerts` compares values with rules and tells others, `benchmarks` runs scenarios, `analysis` goes
//! over keys, `surveys` measures other servers, `auth` knows users, `console` serves the console's files, `openapi` describes it all, `typescript` for the console.
//!
//! Handlers are plain functions that may block. They run on threads of their own, never on a worker.

#![forbid(unsafe_code)]

mod alerts;
mod analysis;
mod app;
mod auth;
mod benchmarks;
mod condition;
mod console;
mod cx;
mod definition;
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

pub use app::{Clock, Options};
pub use auth::Role;
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
