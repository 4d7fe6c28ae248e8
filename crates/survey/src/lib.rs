//! Owns what can be sampled of a dataset of Redis from outside: how large its keys and values are, how well they compress, how they are used. A running
//! server is only read. Never knows who asks.
//!
//! - `address` is where a server is, `server` a connection to it.
//! - `sample` adds up sizes, and compresses what it is given as flash would.
//! - `look` fills a sample from a running server, `dump` from an RDB file.
//! - `access` says which keys a command uses; `reuse` makes of these how many reads a RAM of each size would answer.
//! - `watch` feeds it from a running server, `capture` from a file of what MONITOR has shown.
//! - `learn` puts together what the sources tell, and `plan` makes of it what the data take here.

#![forbid(unsafe_code)]

mod access;
mod address;
mod capture;
mod dump;
mod learn;
mod look;
pub mod plan;
mod reuse;
mod sample;
mod server;
mod watch;

pub use access::{Use, uses};
pub use address::Address;
pub use learn::{SampledWorkload, Stage, Uses};
pub use look::{Traffic, look};
pub use reuse::Usage;
pub use sample::Sample;
pub use server::{Server, bytes, list};
pub use watch::Cost;

/// Why something could not be sampled, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    pub message: String,
    /// What to do about it. Empty if the message says it already.
    pub hint: String,
}

impl Error {
    pub fn new(message: impl Into<String>) -> Error {
        Error { message: message.into(), hint: String::new() }
    }

    pub fn hint(self, hint: impl Into<String>) -> Error {
        Error { hint: hint.into(), ..self }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
