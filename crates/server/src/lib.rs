//! FlintKV's server: workers, connections, configuration, INFO.
//!
//! In reading order: `worker` is the way of one command, from a socket's bytes to its reply: `admit` says whether it may run, `route` where,
//! `execute` runs its handler, `account` keeps its figures, `prefetch` looks ahead; `session` holds the connection and its buffers, `park` is every way of waiting but for a key, which is `blocked`'s, `directory` leads from a name to a command's row.
//! `crew` are the threads, shared by all databases, `thread` a worker: what one database has on one of them; `database` is
//! what all its workers share, `open` its beginning and end, `listen` its sockets, `clients` the register of connections.
//! `node` is the process with all its databases, `definition` what operators say of one, `start` the process's way up and
//! down. `stats`, `info`, `memory` and `log` say what happens, `supervise` says it to systemd;
//! `exchange` speaks to other servers for MIGRATE, `job` is what a command leaves to another thread; `acl` is who may do what, `tls` certificates and protocols;
//! `transaction` carries out EXEC, `script` EVAL and functions;
//! `pubsub`, `tracking` and `monitors` know who hears of what, `notify` what the store says of its keys, `outbox` is
//! what others send to a connection;
//! `host` answers the commands about the server itself; [`config`] is the configuration.
//!
//! Knows no value's type and no page's format.

mod account;
mod acl;
mod admit;
mod blocked;
mod clients;
pub mod config;
mod crew;
mod database;
mod definition;
mod directory;
mod exchange;
mod execute;
mod figures;
mod host;
mod huge_pages;
mod info;
mod job;
mod listen;
mod log;
mod memory;
mod monitors;
mod node;
mod notify;
mod open;
mod outbox;
mod park;
mod prefetch;
mod pubsub;
mod resize;
mod route;
mod script;
mod session;
mod stand_in;
mod start;
mod stats;
mod supervise;
mod thread;
mod tls;
mod tracking;
mod transaction;
mod worker;

pub use acl::Role;
#[doc(hidden)]
pub use acl::try_rules;

#[doc(hidden)]
pub use execute::{Call, Engine, Locked, Stripes, execute};

pub use commands::host::REDIS_VERSION;
pub use database::{DEFAULT_NAME, Database, Endpoint};
pub use definition::{Definition, DefinitionChange, NodeError};
pub use figures::{CommandFigures, Figures, Latencies, NodeFigures};
#[doc(hidden)]
pub use memory::report as allocator_report;
pub use node::{Node, Room, State};
#[doc(hidden)]
pub use script::try_script;
pub use start::run;
pub use stats::Summary;
pub use store::KeyCounts;
pub use supervise::is_supervised;
