//! Owns metrics over time: `catalog` lists them, `reading` reads a database's counters, `history` stores values in a
//! file, `watch` does so every second, `prometheus` publishes them. Never changes a database.

pub mod catalog;
pub mod history;
pub mod prometheus;
pub mod reading;
pub mod watch;
