//! The API of a whole node, as a browser or a program asks for it. Each test has a node of its own in a process of its own.

mod access;
mod benchmarks;
mod common;
mod console;
mod databases;
mod docs;
mod keys;
mod metrics;
mod sessions;
