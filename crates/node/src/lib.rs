//! Owns the process and what it serves: the node, its databases and their shards, from opening to closing. Never
//! knows how a command runs or how a value is kept.
//!
//! - `node` is the process with all its databases, `definition` an operator's description of one.
//! - `start` is the process's start and end.
//! - `database` is an endpoint with its own dataset, limits and configuration; `open` opens and closes it.
//! - `endpoint` is where its clients come in: sockets, accepting; `tls` has certificates and protocols.
//! - `answers` answers the requests of its workers' commands.
//! - `copies` are databases without a socket: the copies of shards that the node keeps for a cluster.
//! - `shard_copy` is a copy in a shard with replicas: it serves or follows. `promises` is what it has promised and granted.
//! - `shard` is a dataset and its flash, `resize` changes the size of its flash.
//! - `files` loads and writes Redis's files, `progress` is how far it is.
//! - `backup` copies a database into a directory, and makes a new one of such a copy.
//! - `replication` makes a database a primary or a replica, `role` is how far it is.
//! - `persist` keeps a dataset over restarts with a checkpoint and a journal, `estimate` tells how long a restart would take.
//! - `capacity` is what the machine has for all databases together.
//! - `worker_pool` holds the threads, which all databases share.
//! - `metrics` is the table of all figures, with INFO; `memory` and `log` report to operators too, `supervise` to systemd; `ready` says whether all datasets are loaded.
//! - `huge_pages` and `open_files` prepare the process.

mod answers;
mod backup;
mod capacity;
mod copies;
mod database;
mod definition;
mod ending;
mod endpoint;
mod estimate;
mod files;
mod huge_pages;
mod log;
mod log_throttle;
mod memory;
pub mod metrics;
mod node;
mod open;
mod open_files;
mod persist;
mod progress;
mod promises;
mod proxy;
mod ready;
mod replication;
mod resize;
mod role;
mod shard;
mod shard_copy;
mod shared_settings;
mod start;
mod supervise;
mod tls;
mod worker_pool;

pub use commands::host::Unblock;
pub use engine::replication::BootClock;
pub use engine::{
    CHANGE_TIMEOUT, Functions, NotReplaced, OtherProxies, PolledSocket, REVISIONS, Role, Routes, SESSION_WINDOW_BYTES,
    SessionStream, Settings, Shard, Summary, beside_scripts,
};

pub use backup::WantedBackup;
pub use capacity::{Capacity, DEFAULT_NAME};
pub use commands::host::REDIS_VERSION;
pub use config::definition::{Definition, DefinitionChange};
pub use copies::{copy_name, first_users, users_with_password};
pub use database::Database;
pub use definition::{NodeError, check_for_cluster};
pub use endpoint::Address;
pub use flash::lock;
pub use log::start as start_log;
#[doc(hidden)]
pub use memory::report as allocator_report;
pub use metrics::{Durability, Figures, Latencies, NodeFigures};
pub use node::{DatabaseState, Node};
pub use persist::{salvage, values};
pub use progress::{Backup, EndedBackup, Recovered, Rot, RunningBackup};
pub use promises::{CopyHost, CopyMemory};
pub use ready::Loading;
pub use replication::{CheckFigures, PrimaryFigures, ReplicaFigures, ReplicationFigures};
pub use role::{GivenUp, PrimaryAddress};
pub use shard::HashSecret;
pub use shard_copy::{CopyRole, CopyStatus, Requirements, ShardCopy, Term};
pub use start::{Then, run};
pub use store::KeyCounts;
pub use store::counters::Counter;
pub use supervise::is_supervised;
