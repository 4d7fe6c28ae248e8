//! Owns what several crates need and none of them owns. Never knows another crate of ours, and does no I/O.

pub mod glob;
pub mod random;
pub mod size;
