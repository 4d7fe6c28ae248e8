//! The functions of a database: `change` says what a change makes of them, and agrees upon it with whoever keeps them for several shards; `dump` is the format of FUNCTION
//! DUMP. How a function runs is `script`'s.

mod change;
pub mod dump;

pub use change::{change, changed, check, load};
