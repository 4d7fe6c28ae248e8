//! Owns a job: what a command leaves to another thread, because it takes file work or a lock that is held during file work, and
//! how that went. Plain data. Never knows how it is done.
//!
//! The host leaves a [`Job`] in the session and the handler returns [`Stop::Exchange`](crate::Stop::Exchange). No stripe is
//! locked and the worker serves others while the job is done; then the handler is run again and the host finds the outcome.

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
    SetConfig { pairs: Vec<Setting>, local: bool },
    RewriteConfig,
}

impl fmt::Debug for Task {
    /// Without the values, some of which are secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Task::SetConfig { .. } => "SetConfig",
            Task::RewriteConfig => "RewriteConfig",
        })
    }
}
