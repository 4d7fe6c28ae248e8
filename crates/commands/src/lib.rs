//! Owns the command table: one file per family, with each row beside its handler.
//!
//! Never knows threads, sockets, files or flash: a handler is plain synchronous code over locked stripes.

#![forbid(unsafe_code)]

pub mod block;
pub mod cx;
pub mod docs;
pub mod exchange;
pub mod host;
pub mod job;
pub mod number;
mod owned_args;
mod random;
pub mod row;
mod scan;
pub mod session;
mod stop;
pub mod table;
mod timeout;

mod acl;
mod bitfield;
mod bitmaps;
mod connection;
mod counters;
mod databases;
mod dump;
mod expiry;
mod geo;
mod hashes;
mod hyperloglog;
mod keys;
mod lcs;
mod lists;
mod migrate;
mod object;
mod pubsub;
mod replication;
mod scripting;
mod server;
mod sets;
mod sort;
mod standalone;
mod streams;
mod strings;
mod tracking;
mod transactions;
mod zsets;

pub use block::{Block, Reached, UntilReached};
pub use connection::unknown_subcommand;
pub use cx::{Args, Cx, Settings};
pub use owned_args::OwnedArgs;
pub use row::{
    Access, Acl, Channels, Effect, Example, Expect, Flag, Group, Handling, KeyUse, Keys, Row, Secrets, Use, Values,
};
pub use stop::{Run, Stop, wrong_arity};
