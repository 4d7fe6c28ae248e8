//! Owns metrics over time and for others: `catalog` describes their charts, `history` stores values in a file, `watch` does so every second,
//! `shards` makes one of a cluster's shards, `trace` knows when a stream had which bytes, `prometheus` publishes them, and `cluster` what it knows of
//! the cluster. What they are says `node::metrics`. Never changes a database.

pub mod catalog;
pub mod cluster;
pub mod history;
pub mod prometheus;
pub mod shards;
mod trace;
pub mod watch;
