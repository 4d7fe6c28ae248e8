//! Owns a journal that is in use: what the workers append to, and the thread that writes and syncs. Never knows what an effect means,
//! or who waits for it.

use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::{Error, Record};

/// When what was appended becomes durable. A killed process loses nothing with any of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// When the ring is half full.
    No,
    EverySecond,
    /// Before [`Log::safe`] passes it.
    Always,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Random, the same for the life of the journal.
    pub log_id: [u8; 16],
    /// The records of one file. A journal that exists keeps the size that it has.
    pub file_bytes: u64,
    /// The most that is appended and not durable before writers must wait.
    pub ring_bytes: u64,
    pub policy: Policy,
}

/// A journal in its directory, as a stop or a crash has left it. Its records are not changed yet.
pub struct Opened {}

/// Shared by all workers.
pub struct Log {}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    /// Since the start.
    pub records: u64,
    pub bytes: u64,
    /// Those that are made ahead included.
    pub files: u64,
    pub file_bytes: u64,
    pub syncs: u64,
    pub last_sync: Duration,
    /// For how long [`Log::is_behind`] has been true, now.
    pub behind: Option<Duration>,
    /// Why no file can be made. Tried again each second.
    pub trouble: Option<String>,
}

/// Why a journal cannot be used.
#[derive(Debug)]
pub enum OpenError {
    /// Another process has opened the journal, or this one.
    InUse {
        file: PathBuf,
    },
    /// The file belongs to another journal, or is not a file of a journal.
    Foreign {
        file: PathBuf,
        what: String,
    },
    /// A file that must be there is not.
    Missing {
        file: PathBuf,
    },
    /// The records cannot be read.
    Records {
        directory: PathBuf,
        source: Error,
    },
    NoSpace {
        file: PathBuf,
        needed_bytes: u64,
        source: io::Error,
    },
    Io {
        action: &'static str,
        file: PathBuf,
        source: io::Error,
    },
}

impl Opened {
    /// Opens the journal in `directory`, or begins one there if the directory has none and `from` is 0. Records before `from` are not
    /// needed. `from` is 0 or the position after a record, which was durable once.
    pub fn open(directory: &Path, settings: &Settings, from: u64) -> Result<Opened, OpenError> {
        let _ = (directory, settings, from);
        todo!()
    }

    /// Gives `each` every record from `from` on, in order, with the position after it, until it breaks.
    pub fn records(&self, each: &mut dyn FnMut(u64, &Record) -> ControlFlow<()>) -> Result<(), OpenError> {
        let _ = each;
        todo!()
    }

    /// The position after the last record.
    pub fn end(&self) -> u64 {
        todo!()
    }

    /// Makes durable what is not, and starts the thread `journal`.
    pub fn start(self) -> Result<Arc<Log>, OpenError> {
        todo!()
    }
}

impl Log {
    /// Called with the stripes of the change locked: never waits for a device. Returns the position after the record.
    pub fn append(&self, record: &Record) -> u64 {
        let _ = record;
        todo!()
    }

    /// The position after the last record.
    pub fn position(&self) -> u64 {
        todo!()
    }

    /// Everything before this position is durable.
    pub fn durable(&self) -> u64 {
        todo!()
    }

    /// The replies of commands up to this position may leave. With `Always` their effects are durable. With the other policies a
    /// crash of the process cannot take them back.
    pub fn safe(&self) -> u64 {
        todo!()
    }

    /// Writers must wait before they lock: the ring is nearly full, or the device is behind.
    pub fn is_behind(&self) -> bool {
        todo!()
    }

    /// The journal cannot be written any more, and why.
    pub fn failed(&self) -> Option<String> {
        todo!()
    }

    /// `f` is called by the thread after [`Log::safe`], [`Log::is_behind`] or [`Log::failed`] may have changed. It must not wait.
    pub fn on_progress(&self, f: Box<dyn Fn() + Send + Sync>) {
        let _ = f;
        todo!()
    }

    pub fn set_policy(&self, policy: Policy) {
        let _ = policy;
        todo!()
    }

    /// No record before `position` is needed any more: a durable checkpoint has their effects.
    pub fn needed_from(&self, position: u64) {
        let _ = position;
        todo!()
    }

    pub fn figures(&self) -> Figures {
        todo!()
    }

    /// Makes everything durable, writes the closing frame and ends the thread. Later calls do nothing.
    pub fn close(&self) -> io::Result<()> {
        todo!()
    }
}

/// Removes the journal's files from `directory`. Refused while the journal is open.
pub fn delete(directory: &Path) -> Result<(), OpenError> {
    let _ = directory;
    todo!()
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::InUse { file } => {
                write!(f, "{} is in use by another FlintKV process; stop it, or use another directory", file.display())
            }
            OpenError::Foreign { file, what } => write!(f, "{}: {what}", file.display()),
            OpenError::Missing { file } => {
                write!(f, "{} is missing, but other files of the journal are there", file.display())
            }
            OpenError::Records { directory, source } => write!(f, "{}: {source}", directory.display()),
            OpenError::NoSpace { file, needed_bytes, source } => {
                write!(
                    f,
                    "{} needs {needed_bytes} bytes, which its file system does not have: {source}",
                    file.display()
                )
            }
            OpenError::Io { action, file, source } => write!(f, "cannot {action} {}: {source}", file.display()),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OpenError::Records { source, .. } => Some(source),
            OpenError::NoSpace { source, .. } | OpenError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
