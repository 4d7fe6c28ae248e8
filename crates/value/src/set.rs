//! Owns the set type: members without values. Never knows keys, settings or replies.
//!
//! A small set is *packed* into one run of bytes: sorted integers ([`ints`]) or a list of members ([`list`]). The first
//! byte tells which. A large set is a [`Table`]. Settings decide between the forms, so the commands convert.

pub mod ints;
pub mod list;
mod table;

pub use crate::tagged::Step;
pub use table::Table;

use crate::Corrupt;

/// Whether a packed set holds integers. Otherwise it is a list.
pub fn is_ints(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|&first| first != list::MARK)
}

/// Whether the bytes are a packed set up to their last byte.
pub fn check_packed(bytes: &[u8]) -> Result<(), Corrupt> {
    if is_ints(bytes) { ints::check(bytes) } else { list::check(bytes) }
}
