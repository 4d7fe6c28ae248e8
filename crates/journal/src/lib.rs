//! Owns the journal: the effects of commands as records, the records in frames, and the frames in files. Never knows what an effect
//! means.
//!
//! Goals: what was durable once is read back after any crash, complete and in order; nothing else is ever read back;
//! durable bytes are never written again; an appended record survives even if the process is killed immediately
//! afterwards; an append never waits for a device. Non-goals: to decide which records a checkpoint makes superfluous;
//! to hold replies back.
//!
//! [`frame`], [`record`], [`recover`] and [`writer`] use no clock and no random numbers. They describe I/O and never
//! perform it, except that recovery reads, with threads that read ahead. [`log`] and the modules that it uses are the
//! journal in use: workers append to `ring`, and `thread` takes records from there to the `writer` and performs the I/O
//! that the writer asks for.
//!
//! A journal is one sequence of bytes: records, one after the other. A *position* counts these bytes from the beginning
//! of the journal. A file of the journal is one *path* of a driver; its frames begin at [`flash::DATA_OFFSET`]. All
//! files have one size. A file is used again when its records are not needed by a checkpoint any more.
//!
//! A *term* is one uninterrupted run of a writer. A writer begins a new term, always in a fresh file, after each start
//! of the process and after each failed write or sync. The term begins with a copy of the frames that are not known to
//! be durable, because it is not known what the old file really contains. A term whose copy is incomplete is void, and
//! the terms before it count. Otherwise the term replaces what earlier terms have from its first position on.
//!
//! Reading order: [`record`] and [`frame`] (the bytes), [`writer`], [`recover`], `ring`, `state`, `thread`, `files`, [`log`], [`manifest`], [`index`], `mark`.
//! `view` reads a journal and changes nothing. [`archive`] has copies of records that outlive the journal's files.

pub mod archive;
mod files;
pub mod frame;
mod head;
pub mod index;
pub mod log;
pub mod manifest;
mod map;
mod mark;
pub mod record;
pub mod recover;
mod ring;
mod state;
#[cfg(test)]
mod tests;
mod thread;
mod view;
pub mod writer;

pub use files::{OpenError, delete, is_in_use, log_id_in};
pub use log::{Log, Opened, Settings};
pub use mark::{Id, Mark, NoId};
pub use record::{Draft, Record, stored_bytes};
pub use recover::{Error, Held, Recovered, Salvaged, recover, salvage};
pub use state::{Figures, Policy, RoomListener};
pub use view::{Salvage, View, check};
pub use writer::{Failed, Refused, Writer};

/// What stays the same for the life of a journal, and the limits of its writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Random, so that the files of two journals cannot be mixed, and no value inside a record can look like a frame.
    pub log_id: [u8; 16],
    /// Bytes of each file after [`flash::DATA_OFFSET`]; a multiple of a page.
    pub file_bytes: u64,
    /// The largest frame; a multiple of a page.
    pub frame_bytes: usize,
    /// Maximum of appended bytes that are not durable. The writer keeps these bytes in RAM.
    pub buffer_bytes: u64,
    /// Frames with at least this many bytes of records are compressed. Smaller frames would reach the device hardly
    /// sooner.
    pub packed_from: usize,
}

impl Config {
    /// The usual sizes.
    pub fn new(log_id: [u8; 16]) -> Config {
        Config { log_id, file_bytes: 64 << 20, frame_bytes: 256 << 10, buffer_bytes: 64 << 20, packed_from: 32 << 10 }
    }
}
