//! Owns small helpers that several crates need. Never knows another crate of ours, and does no I/O.

pub mod clock;
pub mod crc;
pub mod device;
pub mod events;
pub mod glob;
pub mod pattern;
pub mod ram;
pub mod random;
pub mod size;
pub mod sizing;
pub mod time;
pub mod words;

pub use words::{Codec, FlashIo, Policy};
