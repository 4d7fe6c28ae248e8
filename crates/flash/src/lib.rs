//! Owns the types with which flash I/O is requested, the drivers that carry it out, and the log files. Never knows what
//! a page contains, which key it belongs to, or why it is read.
//!
//! Goals: little processor time per read; never free a buffer while the kernel may write to it; a clear message when
//! the file system or the kernel refuses something. Non-goals: caching, ordering between operations in flight, retrying
//! operations that the device has failed.
//!
//! Reading order: [`io`] (operations and their completions), [`lock`] (one process at a time), [`files`] (opening, sizing and resizing), [`superblock`] (a log's description of itself),
//! `uring`, `threads`, [`sim`] (three ways to carry out an operation), `choice` (which one), [`probe`] (what the device
//! can do), [`sequential`] (a file that is written once, from start to end).

mod choice;
pub mod files;
pub mod io;
pub mod lock;
pub mod probe;
pub mod sequential;
pub mod sim;
pub mod superblock;
mod threads;
mod transfer;
mod uring;

pub use base::FlashIo;
pub use choice::{choose_driver, open_driver};
pub use files::{FlashFiles, OpenError, PathInfo, Sizing};
pub use sim::Sim;
pub use superblock::DATA_OFFSET;
pub use threads::{THREADS, ThreadPool, Threads};
pub use uring::Uring;
