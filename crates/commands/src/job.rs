//! Owns a job: work that a command leaves to another thread, because the work touches files or waits for a lock that is
//! held during file work, and the outcome of that work. Plain data. Never knows how the work is done.
//!
//! The host leaves a [`Job`] in the session and the handler returns [`Stop::Exchange`](crate::Stop::Exchange). No
//! stripe is locked, and the worker serves others while the job runs. Then the handler runs again and the host finds
//! the outcome.

use std::fmt;

#[derive(Debug)]
pub struct Job {
    pub task: Task,
    /// The error is the whole reply.
    pub outcome: Option<Result<(), String>>,
}

/// A directive's name and its value.
pub type Setting = (Box<[u8]>, Box<[u8]>);

#[derive(Clone, PartialEq, Eq)]
pub enum Task {
    SetConfig {
        pairs: Vec<Setting>,
        local: bool,
    },
    RewriteConfig,
    /// CONFIG SET and CONFIG REWRITE of a database whose settings are kept for all of its shards: waits until they have what is set.
    SpreadSettings,
    /// SAVE.
    Save,
    /// The dump after FLUSHALL.
    SaveFlushed,
    /// DEBUG RELOAD. `saves`: the file is written first.
    Reload {
        saves: bool,
    },
    /// REPLICAOF: host and port of the primary. `None`: NO ONE.
    Follow {
        primary: Option<(String, u16)>,
    },
    /// FAILOVER ABORT.
    AbortFailover,
    /// FUNCTION LOAD and the like, of a database whose functions are kept for all of its shards.
    ChangeFunctions(FunctionsChange),
}

impl fmt::Debug for Task {
    /// Without the values: some of them are secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Task::SetConfig { .. } => "SetConfig",
            Task::RewriteConfig => "RewriteConfig",
            Task::SpreadSettings => "SpreadSettings",
            Task::Save => "Save",
            Task::SaveFlushed => "SaveFlushed",
            Task::Reload { .. } => "Reload",
            Task::Follow { .. } => "Follow",
            Task::AbortFailover => "AbortFailover",
            Task::ChangeFunctions(_) => "ChangeFunctions",
        })
    }
}

/// What is done with the libraries of functions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FunctionsChange {
    Load { code: Box<[u8]>, replaces: bool },
    Delete { library: Box<[u8]> },
    Flush,
    Restore { payload: Box<[u8]>, policy: RestorePolicy },
}

impl FunctionsChange {
    /// Whether code of libraries runs, to learn their functions.
    pub fn has_code(&self) -> bool {
        matches!(self, FunctionsChange::Load { .. } | FunctionsChange::Restore { .. })
    }
}

/// What to do with the libraries that already exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestorePolicy {
    /// Remove them.
    Flush,
    /// Keep them. A library with the same name is an error.
    Append,
    /// Keep them. Replace a library with the same name.
    Replace,
}
