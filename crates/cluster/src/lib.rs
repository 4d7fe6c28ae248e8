//! Owns the logic of a cluster: which records lie in etcd, how a database's limits are divided, on which nodes copies of shards are placed,
//! which shard owns which stripes, and how a shard's replicas replace its primary. Plain data in, plain data out. Never does I/O, never reads
//! a clock, never draws a random number, and starts no thread: a caller passes what it needs.
//!
//! Reading order: `ids` and `names`, `stripes` (which shard owns what), `keys` and `records` (what lies in etcd), `routes` (what a proxy
//! learns of it), `limits` (from a database's limits to a copy's), `placement` (where copies go), `view` (all records of a cluster),
//! `failover` (which of a shard's copies serves, and when a reply may leave).

#![forbid(unsafe_code)]

pub mod failover;
pub mod ids;
pub mod keys;
pub mod limits;
pub mod names;
pub mod placement;
mod position;
pub mod records;
pub mod routes;
pub mod stripes;
mod text;
pub mod view;
