//! Owns how a read of flash ends: why it has failed, and the histogram of how long reads take. Never reads.

use crate::log::page::Corrupt;
use hdrhistogram::Histogram;
use std::fmt;
use std::sync::Arc;

/// Nanoseconds, 1 µs to 60 s, two digits.
pub(crate) fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1_000, 60_000_000_000, 2).expect("constant bounds")
}

/// Why a value could not be read.
#[derive(Debug, Clone)]
pub enum ReadError {
    Io(Arc<std::io::Error>),
    Corrupt(Corrupt),
    /// The page is in order but does not hold the key it should.
    Missing,
    /// A value in parts, of so many bytes, would have to be in memory as a whole.
    NotWhole {
        bytes: usize,
    },
}

impl fmt::Display for ReadError {
    /// As the client sees it, behind `ERR `.
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
                "this command needs {bytes} bytes of a large value in memory at once, more than the RAM limit leaves: \
                 use one that works on less of it (HSCAN, SSCAN, shorter ranges ...)"
            ),
            ReadError::Missing => f.write_str("this key's value on flash is damaged (its page does not hold it)"),
        }
    }
}
