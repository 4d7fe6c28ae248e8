//! Owns how a command reports that it failed. Never knows which command.

use std::fmt;

/// Why there is no result, and the exit code for scripts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub code: u8,
    pub message: String,
    /// What to do about it. Empty if the message says it already.
    pub hint: String,
}

impl Failure {
    /// The command line was valid, but the command failed.
    pub fn failed(message: impl Into<String>) -> Failure {
        Failure { code: 1, message: message.into(), hint: String::new() }
    }

    /// The command line was invalid or contradictory, or the command was not confirmed. Nothing was changed.
    pub fn refused(message: impl Into<String>) -> Failure {
        Failure { code: 2, message: message.into(), hint: String::new() }
    }

    /// Ended by a signal, with the exit code that a shell reports.
    pub fn interrupted(message: impl Into<String>) -> Failure {
        Failure { code: 130, message: message.into(), hint: String::new() }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = hint.into();
        self
    }
}

impl From<survey::Error> for Failure {
    fn from(error: survey::Error) -> Failure {
        Failure::failed(error.message).hint(error.hint)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error: {}", self.message)?;
        if !self.hint.is_empty() {
            writeln!(f, "hint: {}", self.hint)?;
        }
        Ok(())
    }
}
