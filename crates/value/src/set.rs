//! Owns the set type: members without values. Never knows keys, settings or replies.
//!
//! A small set is *packed*, one run of bytes: sorted integers ([`ints`]) or a list of members ([`list`]), told apart by
//! its first byte. A large one is a [`Table`]. Which is which is the settings' choice, so it is the commands that
//! convert.

pub mod ints;
pub mod list;
mod table;

pub use crate::tagged::Step;
pub use table::Table;

use crate::Corrupt;

/// Whether a packed set is one of integers; otherwise it is a list.
pub fn is_ints(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|&first| first != list::MARK)
}

/// Whether the bytes are a packed set to their very end.
pub fn check_packed(bytes: &[u8]) -> Result<(), Corrupt> {
    if is_ints(bytes) { ints::check(bytes) } else { list::check(bytes) }
}
