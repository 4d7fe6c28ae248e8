//! Owns the errors of flash reads and the histogram of their latency. Never reads.

use crate::log::page::Corrupt;
use base::size::human;
use hdrhistogram::Histogram;
use std::fmt;
use std::sync::Arc;

/// A histogram of nanoseconds from 1 µs to 60 s, with two significant digits.
pub(crate) fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1_000, 60_000_000_000, 2).expect("constant bounds")
}

/// Why a value could not be read.
#[derive(Debug, Clone)]
pub enum ReadError {
    Io(Arc<std::io::Error>),
    Corrupt(Corrupt),
    /// The page is valid but does not contain the expected key.
    Missing,
    /// The key's value is lost: a repeated command could not read what it needed to compute the value. See
    /// [`crate::Keyspace::lose`].
    Lost,
    /// The command needs too much of a value in parts in memory at once: this many bytes.
    NotWhole {
        bytes: usize,
    },
}

impl ReadError {
    /// Whether the value cannot be read at all. If not, the command only needs too much of it at once.
    pub fn is_damage(&self) -> bool {
        !matches!(self, ReadError::NotWhole { .. })
    }
}

impl fmt::Display for ReadError {
    /// The text for the client, after `ERR `.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Io(error) => {
                write!(f, "reading this key's value from flash failed ({error})")
            }
            ReadError::Corrupt(corrupt) => {
                write!(f, "this key's value on flash is damaged ({corrupt})")
            }
            ReadError::NotWhole { bytes } => write!(
                f,
                "this command needs {} of a large value in memory at once, more than the RAM limit leaves: \
                 use a command that reads less of it (HSCAN, SSCAN, a shorter range ...)",
                human(*bytes as u64)
            ),
            ReadError::Lost => f.write_str(
                "this key's value is lost: it was changed by a command that could not be repeated, because a value on flash is damaged \
                 (set the key again, or delete it)",
            ),
            ReadError::Missing => f.write_str("this key's value on flash is damaged (its page does not hold it)"),
        }
    }
}
