//! Owns the drivers that carry out the store's flash operations, and the log files they work on.
//! Never knows what a page holds, which key it belongs to, or why it is read.
//!
//! Goals: little processor time per read, no buffer freed while the kernel may write to it, a clear
//! word when the file system or the kernel refuses something. Non-goals: caching, ordering between
//! operations in flight, retrying what the device failed.
//!
//! Reading order: [`files`] (what is opened, locked, laid out and resized), [`superblock`] (what a log says of itself), `uring`, `threads`, [`sim`] (three
//! ways to carry out an operation), `choice` (which one), [`probe`] (what the device can do).

mod choice;
pub mod files;
pub mod probe;
pub mod sim;
pub mod superblock;
mod threads;
mod transfer;
mod uring;

pub use base::FlashIo;
pub use choice::{choose_driver, open_driver};
pub use files::{DATA_OFFSET, FlashFiles, OpenError, PathInfo, Sizing};
pub use sim::Sim;
pub use threads::{THREADS, ThreadPool, Threads};
pub use uring::Uring;
