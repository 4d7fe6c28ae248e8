//! Owns the hash type: fields with values, some of which expire. Never knows keys, clocks or replies.
//!
//! A small hash is *packed* into one run of bytes and searched from its front. A large one is a [`Table`]. Settings
//! decide between the forms, so the commands convert. On flash both look the same inside: a field, then its value, each
//! after its length. A hash with fields that expire is always a table.

mod deadlines;
pub mod packed;
mod table;

pub use crate::tag::seed;
pub use table::{Step, Table};
