//! Owns what a command says when it does not do what it was asked to. Never knows which command.

use std::fmt;

/// Why there is no result, and the exit code that says so to scripts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub code: u8,
    pub message: String,
    /// What to do about it; empty if the message says it already.
    pub hint: String,
}

impl Failure {
    /// It was understood and did not work.
    pub fn failed(message: impl Into<String>) -> Failure {
        Failure { code: 1, message: message.into(), hint: String::new() }
    }

    /// It was not understood, contradicts itself, or was not confirmed: nothing was changed.
    pub fn refused(message: impl Into<String>) -> Failure {
        Failure { code: 2, message: message.into(), hint: String::new() }
    }

    /// By a signal, as a shell reports it.
    pub fn interrupted(message: impl Into<String>) -> Failure {
        Failure { code: 130, message: message.into(), hint: String::new() }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = hint.into();
        self
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
