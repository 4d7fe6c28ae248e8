//! Owns the measurement of a Redis dataset from outside: the sizes of its keys and values, how well they compress, and how
//! they are used. A running server is only read. Never knows its callers.
//!
//! - `address` is the address of a server, `server` a connection to it.
//! - `sample` adds up sizes, and compresses the values as the log on flash would.
//! - `look` fills a sample from a running server, `dump` from an RDB file.
//! - `access` says which keys a command uses; `reuse` computes from these uses the hit ratio for each size of RAM.
//! - `watch` feeds `reuse` from a running server, `capture` from a file with MONITOR's output.
//! - `learn` combines the sources, and `plan` computes the RAM and flash that the data need in FlintKV.

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
pub use capture::read_uses;
pub use learn::{SampledWorkload, Stage, Uses};
pub use look::{Traffic, look};
pub use reuse::Usage;
pub use sample::Sample;
pub use server::{Server, bytes, list};
pub use watch::Cost;

/// Why something could not be sampled, as text.
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
