//! Owns the newest bytes of a stream: the very newest in RAM, more of them in a file. Never knows what the bytes mean, who reads them, or
//! which thread writes the file.
//!
//! ```text
//!          file                    window
//!   |------------------------|
//!                      |-----------------------|
//! start                     spilled           end
//! ```
//!
//! The file and the window are circular: a byte lies at its offset modulo the capacity. A thread copies from the window to the file, in
//! portions. If it is too slow, the window goes on without it, and the backlog begins behind what is lost: nobody waits for the file.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The bytes are not in the backlog any more.
#[derive(Debug, PartialEq, Eq)]
pub struct Gone;

/// One portion for the file.
pub const PORTION_BYTES: u64 = 256 << 10;

pub struct Backlog {
    window: Box<[u8]>,
    file: Option<Arc<File>>,
    /// Of the file.
    capacity: u64,
    /// The first offset that the file has. Beyond `spilled`: it has nothing.
    file_from: u64,
    /// The file has the bytes before this offset, and the thread may be writing the next portion.
    spilled: u64,
    end: u64,
}

/// A portion that is to be written to the file.
pub struct Portion {
    file: Arc<File>,
    capacity: u64,
    from: u64,
    bytes: Vec<u8>,
}

/// Where bytes are that are not in the window.
pub struct InFile {
    file: Arc<File>,
    capacity: u64,
    range: Range<u64>,
}

impl Backlog {
    /// Begins at an offset. Without a file there is only the window.
    pub fn new(window_bytes: usize, file: Option<(File, u64)>, from: u64) -> Backlog {
        assert!(window_bytes as u64 >= 2 * PORTION_BYTES);
        let capacity = file.as_ref().map_or(0, |(_, bytes)| (*bytes).max(4 * PORTION_BYTES));
        let file = file.map(|(file, _)| Arc::new(file));
        let window = vec![0; window_bytes].into_boxed_slice();
        Backlog { window, file, capacity, file_from: from, spilled: from, end: from }
    }

    pub fn end(&self) -> u64 {
        self.end
    }

    pub fn window_bytes(&self) -> usize {
        self.window.len()
    }

    /// The first offset that the window has.
    fn window_from(&self) -> u64 {
        // The window may have begun later than its size allows.
        self.end.saturating_sub(self.window.len() as u64).max(self.file_from)
    }

    /// The offsets whose bytes can be read.
    pub fn range(&self) -> Range<u64> {
        let in_file = self.file.is_some() && self.spilled >= self.window_from();
        // The thread may be overwriting the oldest portion.
        let file_from = (self.spilled + PORTION_BYTES).saturating_sub(self.capacity).max(self.file_from);
        (if in_file { file_from.min(self.window_from()) } else { self.window_from() })..self.end
    }

    pub fn push(&mut self, bytes: &[u8]) {
        let size = self.window.len();
        self.end += bytes.len() as u64;
        // Of a value that is longer than the window, the end stays.
        let bytes = &bytes[bytes.len().saturating_sub(size)..];
        let at = ((self.end - bytes.len() as u64) % size as u64) as usize;
        let first = bytes.len().min(size - at);
        self.window[at..at + first].copy_from_slice(&bytes[..first]);
        self.window[..bytes.len() - first].copy_from_slice(&bytes[first..]);
        let from = self.end.saturating_sub(size as u64);
        if self.spilled < from {
            // The file is too slow, or there is none.
            (self.file_from, self.spilled) = (from, from);
        }
    }

    /// Whether a portion waits for the file.
    pub fn is_due(&self) -> bool {
        self.file.is_some() && self.end - self.spilled >= PORTION_BYTES
    }

    /// The next portion for the file. The caller reports the outcome to [`Backlog::spilled`] before it asks for another one.
    pub fn portion(&self) -> Option<Portion> {
        let file = Arc::clone(self.file.as_ref().filter(|_| self.is_due())?);
        let mut bytes = Vec::with_capacity(PORTION_BYTES as usize);
        self.copy(self.spilled..self.spilled + PORTION_BYTES, &mut bytes);
        Some(Portion { file, capacity: self.capacity, from: self.spilled, bytes })
    }

    pub fn spilled(&mut self, portion: &Portion, written: &io::Result<()>) {
        match written {
            // If the window has lost the portion while it was written, the file begins anew behind it.
            Ok(()) if self.is_of(&portion.file) && self.spilled == portion.from => {
                self.spilled += portion.bytes.len() as u64
            }
            Err(_) if self.is_of(&portion.file) => self.file = None,
            _ => {}
        }
    }

    /// Whether this is still the backlog's file: the stream may have begun anew meanwhile.
    fn is_of(&self, file: &Arc<File>) -> bool {
        self.file.as_ref().is_some_and(|own| Arc::ptr_eq(own, file))
    }

    /// What the window has.
    fn copy(&self, range: Range<u64>, out: &mut Vec<u8>) {
        let (size, bytes) = (self.window.len(), (range.end - range.start) as usize);
        let at = (range.start % size as u64) as usize;
        let first = bytes.min(size - at);
        out.extend_from_slice(&self.window[at..at + first]);
        out.extend_from_slice(&self.window[..bytes - first]);
    }

    /// Adds at most `max` bytes from this offset to `out`, or says where in the file they are.
    pub fn read(&self, from: u64, max: usize, out: &mut Vec<u8>) -> Result<Option<InFile>, Gone> {
        if !self.range().contains(&from) && from != self.end {
            return Err(Gone);
        }
        if from >= self.window_from() {
            self.copy(from..self.end.min(from + max as u64), out);
            return Ok(None);
        }
        let file = Arc::clone(self.file.as_ref().ok_or(Gone)?);
        Ok(Some(InFile { file, capacity: self.capacity, range: from..self.spilled.min(from + max as u64) }))
    }
}

impl Portion {
    pub fn write(&self) -> io::Result<()> {
        let at = self.from % self.capacity;
        let first = self.bytes.len().min((self.capacity - at) as usize);
        self.file.write_all_at(&self.bytes[..first], at)?;
        self.file.write_all_at(&self.bytes[first..], 0)
    }
}

impl InFile {
    /// Adds the bytes to `out`. They count only if the backlog still has their first one afterwards.
    pub fn read(&self, out: &mut Vec<u8>) -> io::Result<()> {
        let bytes = (self.range.end - self.range.start) as usize;
        let at = self.range.start % self.capacity;
        let first = bytes.min((self.capacity - at) as usize);
        let from = out.len();
        out.resize(from + bytes, 0);
        self.file.read_exact_at(&mut out[from..from + first], at)?;
        self.file.read_exact_at(&mut out[from + first..], 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: usize = 2 * PORTION_BYTES as usize;

    /// The byte at an offset.
    fn byte(offset: u64) -> u8 {
        (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
    }

    fn bytes(range: Range<u64>) -> Vec<u8> {
        range.map(byte).collect()
    }

    fn spill(backlog: &mut Backlog) {
        while let Some(portion) = backlog.portion() {
            let written = portion.write();
            backlog.spilled(&portion, &written);
        }
    }

    fn read(backlog: &Backlog, from: u64, max: usize) -> Result<Vec<u8>, Gone> {
        let mut out = Vec::new();
        if let Some(in_file) = backlog.read(from, max, &mut out)? {
            in_file.read(&mut out).unwrap();
        }
        Ok(out)
    }

    #[test]
    fn the_newest_bytes_are_read_from_the_window_and_older_ones_from_the_file() {
        let capacity = 8 * PORTION_BYTES;
        let file = tempfile::tempfile().unwrap();
        let mut backlog = Backlog::new(WINDOW, Some((file, capacity)), 1000);
        let mut random = base::random::SplitMix64(7);
        while backlog.end() < 5 * capacity {
            let end = backlog.end();
            backlog.push(&bytes(end..end + random.below(100_000)));
            spill(&mut backlog);
            let range = backlog.range();
            assert_eq!(range.start, 1000.max((backlog.spilled + PORTION_BYTES).saturating_sub(capacity)));
            let from = range.start + random.below(range.end - range.start + 1);
            let max = 1 + random.below(50_000) as usize;
            let found = read(&backlog, from, max).unwrap();
            assert!(found == bytes(from..from + found.len() as u64), "{from}");
            assert_eq!(found.is_empty(), from == range.end);
        }
        assert_eq!(read(&backlog, backlog.range().start - 1, 10), Err(Gone));
        assert_eq!(read(&backlog, backlog.end() + 1, 10), Err(Gone));
    }

    #[test]
    fn what_a_slow_file_has_missed_is_gone_and_the_rest_is_not() {
        let mut backlog = Backlog::new(WINDOW, Some((tempfile::tempfile().unwrap(), 8 * PORTION_BYTES)), 0);
        backlog.push(&bytes(0..PORTION_BYTES));
        let slow = backlog.portion().unwrap();
        let end = PORTION_BYTES + WINDOW as u64 + 7;
        backlog.push(&bytes(PORTION_BYTES..end));
        backlog.spilled(&slow, &slow.write());
        assert_eq!(backlog.range(), end - WINDOW as u64..end);
        spill(&mut backlog);
        backlog.push(&bytes(end..end + 100_000));
        assert_eq!(backlog.range().start, end - WINDOW as u64);
        let from = backlog.range().start;
        let found = read(&backlog, from, 1000).unwrap();
        assert!(found == bytes(from..from + 1000));
    }

    #[test]
    fn without_a_file_the_window_is_all() {
        let mut backlog = Backlog::new(WINDOW, None, 5);
        backlog.push(&bytes(5..10));
        assert_eq!((backlog.range(), read(&backlog, 7, 100)), (5..10, Ok(bytes(7..10))));
        // Longer than the window.
        backlog.push(&bytes(10..2 * WINDOW as u64));
        assert_eq!(backlog.range(), WINDOW as u64..2 * WINDOW as u64);
        assert_eq!(read(&backlog, WINDOW as u64, 9), Ok(bytes(WINDOW as u64..WINDOW as u64 + 9)));
    }
}
