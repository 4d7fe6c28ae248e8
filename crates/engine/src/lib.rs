//! Owns the running of commands: the workers, the sessions of their clients, and what all workers of a database
//! share. Never knows a node, its databases and their limits, a listening socket or HTTP. Also knows no value's type
//! and no page's format.
//!
//! The path of one command, from the top down: a module imports what is below it.
//! - `thread` starts the connections of a worker, and runs the worker's other tasks.
//! - `command_loop` receives and replies, and takes each command through the steps: admit → route → execute → (park | reply).
//! - `route` decides where a command runs. `park` holds every kind of waiting except the wait for a key, which is in `blocked`.
//! - `transaction` carries out EXEC. `script` carries out EVAL and functions, in the interpreter of crate `lua`;
//!   `functions` changes those of a database with several shards.
//! - `feed` serves the connection of a replica after PSYNC.
//! - `session` holds the connection, `stream` its socket.
//! - `admit` decides whether the command may run, `prefetch` looks ahead.
//! - `execute` runs the handler, for every caller. `account` records its figures.
//! - `nested_poll` serves connections while a script blocks their thread. `local` finds the workers of a thread.
//! - `access` decides whether a user may run a command, `host` answers the commands about the server itself.
//! - `worker` is what one database has on one thread. Every step takes it.
//!
//! Below the path: what a worker keeps, what a database's workers share, and what needs no worker:
//! - `work` holds the buffers of a connection that has work, `batch` the bytes and commands that it has received.
//! - `halt` says why a command goes no further, or a connection ends. `error_replies` has the replies that several steps give.
//! - `config_snapshot` is a worker's copy of the configuration, `interpreter` its Lua.
//! - `hub` holds all that a database's workers share; `dataset` is the part of it that is data.
//! - `clients` is the register of connections, `acl` holds the users, `stats` the figures.
//! - `directory` maps a name to a command's row, `scripts` maps a SHA-1 to a script.
//! - `pubsub` holds the subscriptions, `outbox` the messages to a connection.
//! - `worker_handle` is the way to a worker, `waiter` a blocked client's command.
//! - `ahead` holds what a client has sent before it is its turn.
//! - `memory` is what connections hold beside the objects, who waits for it, and who is ended.
//! - `task_slot` holds the tasks of a worker's connections, `reply_coalescer` those whose replies wait for other connections.
//! - `lost` is what becomes of keys if a record of the journal meets a value that cannot be read.
//! - `journaling` is what the workers have of the database's journal: effects go in, replies and writers wait for it.
//! - `held_messages` are those that wait until a copy's replicas have what was written before.
//! - `replication` is the stream of effects that replicas get.
//! - `control` is what commands ask of the hub's owner, in four traits.
//! - `exchange` talks to other servers for MIGRATE, `job` is what a command leaves to another thread.
//!
//! No modules import each other in a cycle (`tests/tests/modules.rs`). A step that must reach one above it is given that one by its
//! caller: EXEC tells `execute` how to run a script.

mod access;
mod account;
mod acl;
mod admit;
mod ahead;
mod batch;
mod blocked;
mod clients;
mod command_loop;
mod config_snapshot;
mod control;
mod dataset;
mod directory;
mod error_replies;
mod exchange;
mod execute;
mod fair_queue;
mod feed;
mod forward;
mod forwarding;
mod functions;
mod halt;
mod held_messages;
mod host;
mod hub;
mod interpreter;
mod job;
mod journaling;
mod local;
mod lost;
mod memory;
mod nested_poll;
mod outbox;
mod owners;
mod park;
mod prefetch;
mod pubsub;
pub mod random;
pub mod replication;
mod reply_coalescer;
mod route;
mod routes;
mod script;
mod scripts;
mod session;
mod session_stream;
mod stats;
mod stream;
mod task_slot;
pub mod thread;
mod transaction;
mod waiter;
mod work;
mod worker;
mod worker_handle;

#[doc(hidden)]
pub use acl::try_rules;
pub use acl::{Role, Users};
pub use admit::{ERRORS_ONLY, REPLAY_AT, REVISIONS};
pub use base::clock::wall_ms;
pub use clients::{ClientInfo, Hold, LoadState, Peer};
pub use control::{CHANGE_TIMEOUT, ConfigControl, Control, PersistenceControl, ProcessControl, ReplicationControl};
pub use directory::{Command, Directory, bit};
#[doc(hidden)]
pub use execute::{Call, Engine, Locked, Stripes, execute};
pub use hub::Hub;
pub use journaling::Journaling;
pub use lost::{Lost, LostKey, Step, Words, instead};
pub use nested_poll::{beside_scripts, pass_while_waiting};
pub use routes::{Functions, NotReplaced, OtherProxies, Routes, Settings, Shard};
pub use session_stream::{SESSION_WINDOW_BYTES, SessionStream};
pub use stats::{Counter, Rates, Summary, WorkerStats};
pub use stream::PolledSocket;
pub use thread::{attend_session, connect};
pub use worker_handle::{Entry, Message, Socket, WorkerHandle};
