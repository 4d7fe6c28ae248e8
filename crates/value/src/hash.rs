//! Owns the hash type: fields with values, some of which expire. Never knows keys, clocks or replies.
//!
//! A small hash is *packed*, all of it in one run of bytes and searched from its front; a large one is a [`Table`].
//! Which is which is the settings' choice, so it is the commands that convert. On flash both look the same inside:
//! a field, then its value, each behind its length. A hash with fields that expire is a table.

mod deadlines;
pub mod packed;
mod table;

pub(crate) use table::tag;
pub use table::{Step, Table, seed};
