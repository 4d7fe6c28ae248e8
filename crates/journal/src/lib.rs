//! Owns the journal: the effects of commands as records, the records in frames, and the frames in files. Never knows what an effect
//! means.
//!
//! Goals: what was durable once is read back after any crash, whole and in order; nothing else is ever read back; durable bytes are
//! never written again; what was appended survives a killed process at once; an append never waits for a device. Non-goals: which
//! records a checkpoint makes superfluous; holding replies back.
//!
//! [`frame`], [`record`], [`recover`] and [`writer`] have no clock and no random numbers. They describe I/O and never do any, except
//! that recovery reads, with a thread that reads ahead. [`log`] and what it uses are the journal in use: `ring` is what workers append to, `thread` takes
//! records from there to the `writer` and carries out what it asks for.
//!
//! A journal is one sequence of bytes: records, one after the other. A *position* counts these bytes from the journal's first day.
//! A file of the journal is one *path* of a driver; its frames begin at [`flash::DATA_OFFSET`]. All files have one size. A file is
//! used again when a checkpoint does not need its records any more.
//!
//! A *term* is one uninterrupted run of a writer. A writer starts a new term, always in a fresh file, after each start of the
//! process and after each failed write or sync. It begins with a copy of the frames that are not known to be durable, since nobody
//! knows what the old file really holds. A term whose copy is not whole is void, and the terms before it count. Otherwise the term
//! replaces what earlier terms have from its first position on.
//!
//! Reading order: [`record`] and [`frame`] (the bytes), [`writer`], [`recover`], `ring`, `state`, `thread`, `files`, [`log`], [`manifest`], [`index`], `mark`.
//! `view` looks at a journal and changes nothing. [`archive`] has copies of records that outlive the journal's files.

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
    /// Random, so that files of two journals cannot be mixed, and no value in a record looks like a frame.
    pub log_id: [u8; 16],
    /// Of each file, after [`flash::DATA_OFFSET`]; a multiple of a page.
    pub file_bytes: u64,
    /// The largest frame; a multiple of a page.
    pub frame_bytes: usize,
    /// The most that is appended and not durable, which is what the writer keeps in RAM.
    pub buffer_bytes: u64,
    /// Frames with so many bytes of records are packed. Smaller ones would be hardly sooner on the device.
    pub packed_from: usize,
}

impl Config {
    /// The usual sizes.
    pub fn new(log_id: [u8; 16]) -> Config {
        Config { log_id, file_bytes: 64 << 20, frame_bytes: 256 << 10, buffer_bytes: 64 << 20, packed_from: 32 << 10 }
    }
}
