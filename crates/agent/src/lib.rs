//! Owns what a member of a cluster does: it follows the records in etcd, keeps the copies that they place on this node, and reaches those of
//! other nodes. Goals: serving never waits for etcd; whatever happens, the records decide. Never decides by itself who serves a shard, and
//! knows no command.
//!
//! Reading order: `agent` (the thread, and what it follows), `reconcile` (from records to what runs here), `operations` (what it says of
//! operations), `lives` (whose dataset a copy has), `shard`, `peers` and `links` (the two ends of a link), `endpoints` (what the nodes tell
//! each other of them), `functions` and `settings` (when they hold at all shards: `followers`), `changes` (what operators ask for) and `desk`
//! (which records that changes), `plans` (the steps of what moves copies and primaries), `controller` (who leads, and names primaries) and
//! `executor` (who carries steps out), `calls` (how a leader asks other nodes), `choice` (what is known when a copy is to be named), `handover` (how a primary is asked to make another copy primary), `authority` (its replacement),
//! `console` (what the nodes' consoles share), `api_port` (how their APIs ask each other).

#![forbid(unsafe_code)]

mod agent;
mod api_port;
mod authority;
mod calls;
mod candidate;
mod change_error;
mod changes;
mod choice;
mod console;
mod controller;
mod desk;
mod endpoints;
mod executor;
mod followers;
mod functions;
mod handover;
mod links;
mod lives;
mod operations;
mod peers;
mod plans;
mod published;
mod reconcile;
mod replica_stream;
#[cfg(test)]
mod scene;
mod settings;
mod shard;
mod shared;

pub use agent::{Agent, EtcdStatus, NoCluster, Seen, Status};
pub use api_port::ApiHello;
pub use authority::AuthorityStatus;
pub use change_error::ChangeError;
pub use choice::advice;
pub use coord::Error as EtcdError;
pub use coord::etcd::maintenance::{AlarmKind, Member as EtcdMember, Status as EtcdMemberStatus};
pub use desk::{Forgetting, FoundCopy, Left, Placement, RecoveredShard, Recovery};
pub use handover::hand_over;
pub use membership::api_stream::{ApiStream, ApiUnreachable, failure as api_failure};
pub use peers::{ClockGap, Connected};
pub use plans::{Planned, Wish};
