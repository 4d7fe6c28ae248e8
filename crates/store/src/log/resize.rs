//! Owns changing the size of flash while the store runs, and the arithmetic of what fits.
//! Never opens a file: the caller sets the files' length, before the store grows and after it has shrunk.

use crate::log::segment::{SEGMENTS_MIN, Segments};
use std::fmt;

/// The progress of shrinking: how many of the bytes that will be cut off are already empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub moved_bytes: u64,
    pub total_bytes: u64,
}

/// Why flash cannot have the wanted size. All numbers are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResizeError {
    /// The store has no flash.
    NoFlash,
    TooSmall {
        wanted: u64,
        least: u64,
        segment: u64,
    },
    TooLarge {
        wanted: u64,
        most: u64,
        segment: u64,
    },
    /// The live data does not fit, and the policy evicts nothing. `needed` includes the collector's room.
    TooFull {
        wanted: u64,
        live: u64,
        needed: u64,
    },
}

impl fmt::Display for ResizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let human = |&bytes: &u64| match bytes >> 10 {
            kb if kb < 10 << 10 => format!("{kb}kb"),
            kb if kb < 10 << 20 => format!("{}mb", kb >> 10),
            kb => format!("{:.1}gb", kb as f64 / f64::from(1 << 20)),
        };
        match self {
            ResizeError::NoFlash => f.write_str("there is no flash to resize: everything is in RAM"),
            ResizeError::TooSmall { wanted, least, segment } => write!(
                f,
                "flash of {} is too small: it has segments of {} since the start, and needs at least {SEGMENTS_MIN} of them, that is {}; a start without values on flash chooses a new segment size",
                human(wanted),
                human(segment),
                human(least)
            ),
            ResizeError::TooLarge { wanted, most, segment } => write!(
                f,
                "flash of {} is too large: with segments of {}, as since the start, it can have at most {}; a restart chooses a new segment size",
                human(wanted),
                human(segment),
                human(most)
            ),
            ResizeError::TooFull { wanted, live, needed } => write!(
                f,
                "flash of {} is too small for the values on it: {} are live, and with the room that garbage collection needs they take {}: delete some, choose a larger size, or set a maxmemory-policy that evicts",
                human(wanted),
                human(live),
                human(needed)
            ),
        }
    }
}

impl std::error::Error for ResizeError {}

impl Segments {
    /// Sets the number of segments for `bytes`. With `evicts`, the live data need not fit. Returns whether the size changes.
    pub fn resize(&self, bytes: u64, evicts: bool) -> Result<bool, ResizeError> {
        let end = self.segments_of(bytes)?;
        if end == self.end() {
            return Ok(false);
        }
        let sums = self.sums();
        let needed = self.count_needed(&sums);
        if end < self.end() && needed > end && !evicts {
            return Err(ResizeError::TooFull {
                wanted: bytes,
                live: sums.live_bytes,
                needed: u64::from(needed) * self.segment_bytes(),
            });
        }
        self.shrinks_again();
        self.set_end(end);
        self.weigh(!evicts);
        Ok(true)
    }

    /// The length that every path's file must have for a log of `bytes` bytes.
    pub fn path_bytes_for(&self, bytes: u64) -> Result<u64, ResizeError> {
        Ok(self.path_bytes(self.segments_of(bytes)?))
    }

    /// The bytes of every path's file that are in use, or that may become used at any time.
    pub fn path_bytes_needed(&self) -> u64 {
        self.path_bytes(self.count())
    }

    /// The progress of shrinking. None: the log is not being made smaller.
    pub fn progress(&self) -> Option<Progress> {
        let segment = self.segment_bytes();
        let (moved, total) = self.vacated()?;
        Some(Progress { moved_bytes: u64::from(moved) * segment, total_bytes: u64::from(total) * segment })
    }

    fn path_bytes(&self, segments: u32) -> u64 {
        u64::from(segments / self.paths) * self.segment_bytes()
    }

    fn segments_of(&self, bytes: u64) -> Result<u32, ResizeError> {
        if self.count() == 0 {
            return Err(ResizeError::NoFlash);
        }
        let segment = self.segment_bytes();
        let count = bytes / segment;
        let most = self.count_max();
        if count < SEGMENTS_MIN.into() {
            return Err(ResizeError::TooSmall { wanted: bytes, least: u64::from(SEGMENTS_MIN) * segment, segment });
        }
        let Some(count) = u32::try_from(count).ok().filter(|&count| count <= most) else {
            return Err(ResizeError::TooLarge { wanted: bytes, most: u64::from(most) * segment, segment });
        };
        Ok(count - count % self.paths)
    }
}
