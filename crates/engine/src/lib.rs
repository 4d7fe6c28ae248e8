//! Owns what runs commands: the workers, the sessions of their clients, and what all workers of a database share. Never knows
//! a node, its databases and their limits, a listening socket or HTTP.
//!
//! In reading order, the way of one command, from a socket's bytes to its reply: `worker` receives and replies, `admit` says
//! whether it may run, `route` where, `execute` runs its handler, `account` keeps its figures, `prefetch` looks ahead;
//! `session` holds the connection and its buffers, `park` is every way of waiting but for a key, which is `blocked`'s.
//! `transaction` carries out EXEC, `script` EVAL and functions in the interpreter of crate `lua`; `access` says whether a
//! user may run a command; `stand_in` serves connections while a script holds up their thread; `host` answers the commands
//! about the server itself; `thread` is a worker: what one database has on one thread.
//!
//! Below it, what a database's workers share, and what needs no worker: `hub` holds all of it, `clients` is the register of connections, `acl` the
//! users, `directory` leads from a name to a command's row, `scripts` are the scripts by their SHA-1, `stats` the figures,
//! `pubsub` is who listens to what, `outbox` what others send to a connection, `post` the way to a worker, `waiter` a
//! blocked client's command, `control` what commands ask of the hub's owner; `exchange` speaks to other servers for MIGRATE,
//! `job` is what a command leaves to another thread.
//!
//! This part imports nothing of the way of a command, and is free of cycles. The modules of the way import each
//! other in cycles: each step takes the worker, whose tasks run the steps, and a command that is run may run others (EXEC,
//! a script, a key that becomes ready).
//!
//! Knows no value's type and no page's format.

mod access;
mod account;
mod acl;
mod admit;
mod blocked;
mod clients;
mod clock;
mod control;
mod directory;
mod exchange;
mod execute;
mod host;
mod hub;
mod job;
mod outbox;
mod park;
mod post;
mod prefetch;
mod pubsub;
pub mod random;
mod route;
mod script;
mod scripts;
mod session;
mod stand_in;
mod stats;
pub mod thread;
mod transaction;
mod waiter;
mod worker;

#[doc(hidden)]
pub use acl::try_rules;
pub use acl::{Role, Users};
pub use clients::{Card, Peer};
pub use clock::wall_ms;
pub use control::{CHANGE_PATIENCE, Control};
pub use directory::{Command, Directory, bit};
#[doc(hidden)]
pub use execute::{Call, Engine, Locked, Stripes, execute};
pub use hub::Hub;
pub use post::{Message, Post, Socket};
pub use stand_in::pass_while_waiting;
pub use stats::{Counter, Rates, Summary, WorkerStats};
