//! Owns metrics over time: `catalog` lists them, `reading` reads a database's counters, `trace` knows
//! when a stream had which bytes, `window` how busy the tiers were lately, `machine` looks at processors and disks, `history` stores values in a file, `watch` does so every second, `prometheus` publishes them. Never changes a database.

pub mod catalog;
pub mod history;
pub mod machine;
pub mod prometheus;
mod reading;
mod trace;
pub mod watch;
mod window;
