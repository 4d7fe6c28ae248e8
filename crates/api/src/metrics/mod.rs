//! Owns what is measured over time: `catalog` names it, `reading` takes it from a database, `history` keeps it in a file, `watch` does so
//! every second, `prometheus` shows it to others. Never changes anything.

pub mod catalog;
pub mod history;
pub mod prometheus;
pub mod reading;
pub mod watch;
