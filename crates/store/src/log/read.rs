//! Owns the errors of flash reads and the histogram of their latency. Never reads.

use crate::log::page::Corrupt;
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
    /// A key's name could not be read, so no list of keys is complete.
    Unnamed {
        why: Box<ReadError>,
        path: u16,
        offset: u64,
    },
    /// The command needs too much of a value in parts in memory at once: this many bytes.
    NotWhole {
        bytes: usize,
    },
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
            ReadError::Unnamed { why, path, offset } => {
                write!(f, "the name of a key cannot be read from flash (flash path {path}, offset {offset}: ")?;
                match &**why {
                    ReadError::Io(error) => write!(f, "{error}")?,
                    ReadError::Corrupt(corrupt) => write!(f, "{corrupt}")?,
                    _ => f.write_str("the page does not hold it")?,
                }
                f.write_str("): commands that list keys fail until it is set again or deleted")
            }
            ReadError::NotWhole { bytes } => write!(
                f,
                "this command needs {bytes} bytes of a large value in memory at once, more than the RAM limit leaves: \
                 use one that works on less of it (HSCAN, SSCAN, shorter ranges ...)"
            ),
            ReadError::Missing => f.write_str("this key's value on flash is damaged (its page does not hold it)"),
        }
    }
}
