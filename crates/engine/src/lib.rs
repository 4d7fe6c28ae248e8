//! Owns the running of commands: the workers, the sessions of their clients, and what all workers of a database
//! share. Never knows a node, its databases and their limits, a listening socket or HTTP. Also knows no value's type
//! and no page's format.
//!
//! The path of one command, in reading order:
//! - `worker` receives and replies.
//! - `admit` decides whether the command may run, `route` decides where.
//! - `execute` runs the handler, `account` records its figures, `prefetch` looks ahead.
//! - `session` holds the connection and its buffers.
//! - `park` holds every kind of waiting except the wait for a key, which is in `blocked`.
//! - `transaction` carries out EXEC. `script` carries out EVAL and functions, in the interpreter of crate `lua`.
//! - `access` decides whether a user may run a command.
//! - `nested_poll` serves connections while a script blocks their thread.
//! - `feed` serves the connection of a replica after PSYNC.
//! - `host` answers the commands about the server itself.
//! - `thread` is a worker: what one database has on one thread.
//!
//! Below the path: what a database's workers share, and what needs no worker:
//! - `hub` holds all of it.
//! - `clients` is the register of connections, `acl` holds the users, `stats` the figures.
//! - `directory` maps a name to a command's row, `scripts` maps a SHA-1 to a script.
//! - `pubsub` holds the subscriptions, `outbox` the messages to a connection.
//! - `worker_handle` is the way to a worker, `waiter` a blocked client's command.
//! - `ahead` holds what a client has sent before it is its turn.
//! - `memory` is what connections hold beside the objects, who waits for it, and who is ended.
//! - `task_slot` holds the tasks of a worker's connections, `reply_coalescer` those whose replies wait for other connections.
//! - `lost` is what becomes of keys if a record of the journal meets a value that cannot be read.
//! - `journaling` is what the workers have of the database's journal: effects go in, replies and writers wait for it.
//! - `replication` is the stream of effects that replicas get.
//! - `control` is what commands ask of the hub's owner.
//! - `exchange` talks to other servers for MIGRATE, `job` is what a command leaves to another thread.
//!
//! The modules below the path import nothing of the path, and have no cycles. The modules of the path import each
//! other in cycles: each step takes the worker, the worker's tasks run the steps, and a command may run other
//! commands (EXEC, a script, a key that becomes ready).

mod access;
mod account;
mod acl;
mod admit;
mod ahead;
mod blocked;
mod clients;
mod control;
mod directory;
mod exchange;
mod execute;
mod fair_queue;
mod feed;
mod host;
mod hub;
mod job;
mod journaling;
mod lost;
mod memory;
mod nested_poll;
mod outbox;
mod park;
mod prefetch;
mod pubsub;
pub mod random;
pub mod replication;
mod reply_coalescer;
mod route;
mod script;
mod scripts;
mod session;
mod stats;
mod task_slot;
pub mod thread;
mod transaction;
mod waiter;
mod worker;
mod worker_handle;

#[doc(hidden)]
pub use acl::try_rules;
pub use acl::{Role, Users};
pub use admit::{ERRORS_ONLY, REPLAY_AT};
pub use base::clock::wall_ms;
pub use clients::{ClientInfo, Hold, LoadState, Peer};
pub use control::{CHANGE_TIMEOUT, Control};
pub use directory::{Command, Directory, bit};
#[doc(hidden)]
pub use execute::{Call, Engine, Locked, Stripes, execute};
pub use hub::Hub;
pub use journaling::Journaling;
pub use lost::{Lost, LostKey, Step, Words, instead};
pub use nested_poll::pass_while_waiting;
pub use stats::{Counter, Rates, Summary, WorkerStats};
pub use worker_handle::{Message, Socket, WorkerHandle};
