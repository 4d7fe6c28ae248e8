//! The functions of a database: `change` agrees upon a change with whoever keeps them for several shards, `dump` is the format of FUNCTION
//! DUMP. How a function runs is `script`'s.

mod change;
pub mod dump;

pub use change::{change, library};
