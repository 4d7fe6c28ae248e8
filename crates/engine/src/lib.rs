//! Owns what runs commands: the workers, the sessions of their clients, and what all workers of a database share. Never knows
//! a node, its databases and their limits, a listening socket or HTTP.
//!
//! In reading order: `worker` is the way of one command, from a socket's bytes to its reply: `admit` says whether it may
//! run, `route` where, `execute` runs its handler, `account` keeps its figures, `prefetch` looks ahead; `session` holds the
//! connection and its buffers, `park` is every way of waiting but for a key, which is `blocked`'s, `directory` leads from a
//! name to a command's row.
//! `thread` is a worker: what one database has on one thread; `hub` is what all of a database's workers share, `control`
//! what they ask of its owner, `clients` the register of connections, `stats` the figures, `random` random bytes.
//! `transaction` carries out EXEC, `script` EVAL and functions in the interpreter of crate `lua`; `exchange` speaks to
//! other servers for MIGRATE, `job` is what a command leaves to another thread; `acl` is who may do what.
//! `pubsub`, `tracking` and `monitors` know who hears of what, `notify` what the store says of its keys, `outbox` is
//! what others send to a connection; `stand_in` serves connections while a script holds up their thread;
//! `host` answers the commands about the server itself.
//!
//! Knows no value's type and no page's format.

mod account;
mod acl;
mod admit;
mod blocked;
mod clients;
mod control;
mod directory;
mod exchange;
mod execute;
mod host;
mod hub;
mod job;
mod monitors;
pub mod notify;
mod outbox;
mod park;
mod prefetch;
mod pubsub;
pub mod random;
mod route;
mod script;
mod session;
mod stand_in;
mod stats;
pub mod thread;
mod tracking;
mod transaction;
mod worker;

#[doc(hidden)]
pub use acl::try_rules;
pub use acl::{Role, Users};
pub use clients::{Card, Clients, Peer};
pub use control::{CHANGE_PATIENCE, Control};
pub use directory::{Command, Directory, bit};
#[doc(hidden)]
pub use execute::{Call, Engine, Locked, Stripes, execute};
pub use hub::Hub;
pub use monitors::Monitors;
pub use pubsub::{Mail, PubSub};
pub use script::Scripts;
pub use stand_in::pass_while_waiting;
pub use stats::{Counter, LatencyEvents, Rates, SlowLog, Stats, Summary, WorkerStats};
pub use tracking::Tracking;
