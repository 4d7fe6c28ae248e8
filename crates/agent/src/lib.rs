//! Owns what a member of a cluster does: it follows the records in etcd, keeps the copies that they place on this node, and reaches those of
//! other nodes. Goals: serving never waits for etcd; whatever happens, the records decide. Never decides by itself who serves a shard, and
//! knows no command.
//!
//! Reading order: `agent` (the thread, and what it follows), `reconcile` (from records to what runs here), `lives` (whose dataset a copy
//! has), `shard`, `peers` and `links` (the two ends of a link), `functions` (how they get to all shards), `changes`
//! (what operators ask for) and `desk` (which records that changes), `console` (what the nodes' consoles share).

#![forbid(unsafe_code)]

mod agent;
mod changes;
mod console;
mod controller;
mod desk;
mod functions;
mod links;
mod lives;
mod peers;
mod published;
mod reconcile;
mod replica_stream;
mod shard;
mod shared;

pub use agent::{Agent, EtcdStatus, NoCluster, Seen, Status};
pub use coord::etcd::maintenance::{AlarmKind, Member as EtcdMember};
pub use desk::{ChangeError, Forgetting, Placement};
pub use peers::Connected;
