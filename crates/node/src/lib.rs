//! Owns the process and what it serves: the node, its databases and their shards, from opening to closing. Never
//! knows how a command runs or how a value is kept.
//!
//! - `node` is the process with all its databases, `definition` an operator's description of one.
//! - `start` is the process's start and end.
//! - `database` is an endpoint with its own dataset, limits and configuration; `open` opens and closes it.
//! - `listen` holds its sockets, `tls` its certificates and protocols.
//! - `answers` answers the requests of its workers' commands.
//! - `shard` is the copy of its dataset, `resize` changes the size of its flash.
//! - `files` loads and writes Redis's files, `progress` is how far it is.
//! - `backup` copies a database into a directory, and makes a new one of such a copy.
//! - `replication` makes a database a primary or a replica, `role` is how far it is.
//! - `persist` keeps a dataset over restarts with a checkpoint and a journal, `estimate` tells how long a restart would take.
//! - `capacity` is what the machine has for all databases together.
//! - `worker_pool` holds the threads, which all databases share.
//! - `info`, `figures`, `memory` and `log` report to operators, `supervise` to systemd; `ready` says whether all datasets are loaded.
//! - `huge_pages` and `open_files` prepare the process.

mod answers;
mod backup;
mod capacity;
mod database;
mod definition;
mod ending;
mod estimate;
mod figures;
mod files;
mod huge_pages;
mod info;
mod listen;
mod log;
mod log_throttle;
mod memory;
mod node;
mod open;
mod open_files;
mod persist;
mod progress;
mod ready;
mod relisten;
mod replication;
mod resize;
mod role;
mod shard;
mod start;
mod supervise;
mod tls;
mod worker_pool;

pub use engine::{Role, Summary};

pub use backup::WantedBackup;
pub use capacity::{Capacity, DEFAULT_NAME};
pub use commands::host::REDIS_VERSION;
pub use config::definition::{Definition, DefinitionChange};
pub use database::{Database, Endpoint};
pub use definition::NodeError;
pub use figures::{Durability, Figures, Latencies, NodeFigures};
pub use flash::lock;
#[doc(hidden)]
pub use memory::report as allocator_report;
pub use node::{DatabaseState, Node};
pub use persist::{salvage, values};
pub use progress::{Backup, EndedBackup, Recovered, Rot, RunningBackup};
pub use ready::Loading;
pub use replication::{CheckFigures, PrimaryFigures, ReplicaFigures, ReplicationFigures};
pub use role::GivenUp;
pub use start::run;
pub use store::KeyCounts;
pub use supervise::is_supervised;
