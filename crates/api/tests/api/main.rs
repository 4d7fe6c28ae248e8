//! The API of a whole node, as a browser or a program uses it. Each test has its own node in its own process.

mod access;
mod backups;
mod benchmarks;
mod common;
mod console;
mod databases;
mod docs;
mod keys;
mod metrics;
mod plan;
mod replication;
mod sessions;
mod terminals;
