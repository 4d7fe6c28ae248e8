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
//! The file is circular: a byte lies at its offset modulo the capacity. A thread writes from the window to the file, in portions. If it is
//! too slow, the window goes on without it, and the backlog begins behind what is lost: nobody waits for the file. But what is larger than the
//! window when it is added stays in RAM until the file has it: readers that have everything before it must get it.
//!
//! The window is a list of pieces whose bytes never change, and the *tail*, to which the stream is added. A piece shares its memory with
//! those who send it or write it to the file. So a byte of the stream is copied once, when it is added.
//!
//! ```text
//!   block of 64 KiB        block                     block
//!   |--------|--------|    |-----------------|       |-------|---------|        |
//!     piece    piece         piece                     piece   tail       room
//! ```

use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
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

/// The tail grows into blocks of this size.
const BLOCK_BYTES: usize = 64 << 10;
/// The first block of the window is kept as long as any byte of it is in the window, and the last one has room for more.
const UNUSED_BYTES_MAX: usize = 2 * BLOCK_BYTES;
/// Less of the tail is copied for its reader: small pieces would take more memory than what they have.
const PIECE_BYTES_MIN: usize = 4 << 10;

pub struct Backlog {
    /// Without a gap between them, and before the tail.
    pieces: VecDeque<Piece>,
    /// The newest bytes.
    tail: BytesMut,
    /// The memory of the window.
    window_bytes: usize,
    file: Option<Arc<File>>,
    /// Of the file.
    capacity: u64,
    /// The first offset that the file has. Beyond `spilled`: it has nothing.
    file_from: u64,
    /// The file has the bytes before this offset, and the thread may be writing the next portion.
    spilled: u64,
    end: u64,
    /// The additions that were larger than the window, as far as the backlog has them.
    large: VecDeque<Range<u64>>,
    /// The last one of them, and what was in the window before it, as far as only RAM has that: the window is so much larger.
    held: Range<u64>,
}

struct Piece {
    from: u64,
    bytes: Bytes,
}

impl Piece {
    fn end(&self) -> u64 {
        self.from + self.bytes.len() as u64
    }
}

/// A portion that is to be written to the file.
pub struct Portion {
    file: Arc<File>,
    capacity: u64,
    range: Range<u64>,
    pieces: Vec<Bytes>,
}

/// Where bytes of the stream are.
pub enum Found {
    InWindow(Vec<Bytes>),
    InFile(InFile),
}

/// Bytes that are not in the window.
pub struct InFile {
    file: Arc<File>,
    capacity: u64,
    range: Range<u64>,
}

impl Backlog {
    /// Begins at an offset. Without a file there is only the window.
    pub fn new(window_bytes: usize, file: Option<(File, u64)>, from: u64) -> Backlog {
        assert!((window_bytes - UNUSED_BYTES_MAX) as u64 >= PORTION_BYTES);
        let capacity = file.as_ref().map_or(0, |(_, bytes)| (*bytes).max(4 * PORTION_BYTES));
        let file = file.map(|(file, _)| Arc::new(file));
        let (pieces, tail) = (VecDeque::new(), BytesMut::new());
        Backlog {
            pieces,
            tail,
            window_bytes,
            file,
            capacity,
            file_from: from,
            spilled: from,
            end: from,
            large: VecDeque::new(),
            held: 0..0,
        }
    }

    pub fn end(&self) -> u64 {
        self.end
    }

    /// Who can take in as much as the window, and has the stream up to `from`, is sent it up to here: an addition that begins before that and
    /// is larger comes whole.
    pub fn sent_ahead(&self, from: u64) -> u64 {
        let end = from + self.window_bytes as u64;
        let cut = self.large.iter().find(|large| large.start < end && end < large.end);
        cut.map_or(end, |large| large.end)
    }

    /// What the window takes in RAM, when it is full.
    pub fn window_bytes(&self) -> usize {
        self.window_bytes
    }

    /// As much of the stream is in the window.
    fn kept_bytes(&self) -> usize {
        self.window_bytes - UNUSED_BYTES_MAX
    }

    /// The first offset that the window has.
    fn window_from(&self) -> u64 {
        let usual = self.end.saturating_sub(self.kept_bytes() as u64);
        let from = if self.held.is_empty() { usual } else { usual.min(self.held.start) };
        // The window may have begun later than its size allows.
        from.max(self.file_from)
    }

    /// The offsets whose bytes can be read.
    pub fn range(&self) -> Range<u64> {
        let in_file = self.file.is_some() && self.spilled >= self.window_from();
        // The thread may be overwriting the oldest portion.
        let file_from = (self.spilled + PORTION_BYTES).saturating_sub(self.capacity).max(self.file_from);
        (if in_file { file_from.min(self.window_from()) } else { self.window_from() })..self.end
    }

    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        if bytes.len() < self.tail.capacity() - self.tail.len() {
            self.tail.extend_from_slice(bytes);
            self.end += bytes.len() as u64;
        } else {
            self.push_into_blocks(bytes);
        }
    }

    #[cold]
    fn push_into_blocks(&mut self, bytes: &[u8]) {
        let kept = self.kept_bytes() as u64;
        if bytes.len() as u64 > kept {
            // Of an earlier one that the file does not have yet, only the end stays: RAM must not fill up because a file is slow.
            let from = self.window_from().max(self.end.saturating_sub(kept));
            let end = self.end + bytes.len() as u64;
            let oldest = self.range().start;
            self.large.retain(|large| large.end > oldest);
            self.large.push_back(self.end..end);
            self.held = from..end;
        }
        self.end += bytes.len() as u64;
        let mut bytes = bytes;
        while !bytes.is_empty() {
            if self.tail.len() == self.tail.capacity() {
                self.cut_tail(self.end - bytes.len() as u64);
                self.tail = BytesMut::with_capacity(BLOCK_BYTES);
            }
            let (now, later) = bytes.split_at(bytes.len().min(self.tail.capacity() - self.tail.len()));
            self.tail.extend_from_slice(now);
            bytes = later;
        }
        if self.end - self.held.end >= kept {
            // Without a file, the window has gone on.
            self.held.start = self.held.end;
        }
        self.trim();
    }

    /// Drops what is not in the window.
    fn trim(&mut self) {
        let from = self.window_from();
        while self.pieces.front().is_some_and(|piece| piece.end() <= from) {
            self.pieces.pop_front();
        }
        if self.spilled < from {
            // The file is too slow, or there is none.
            (self.file_from, self.spilled) = (from, from);
        }
    }

    /// The bytes of the tail, which end at this offset, are a piece from now on.
    fn cut_tail(&mut self, end: u64) {
        if !self.tail.is_empty() {
            let bytes = self.tail.split().freeze();
            self.pieces.push_back(Piece { from: end - bytes.len() as u64, bytes });
        }
    }

    /// Whether a portion waits for the file.
    pub fn is_due(&self) -> bool {
        self.file.is_some() && self.end - self.spilled >= PORTION_BYTES
    }

    /// The next portion for the file. The caller reports the outcome to [`Backlog::spilled`] before it asks for another one.
    pub fn portion(&mut self) -> Option<Portion> {
        let file = Arc::clone(self.file.as_ref().filter(|_| self.is_due())?);
        let range = self.spilled..self.spilled + PORTION_BYTES;
        let pieces = self.in_window(range.clone());
        Some(Portion { file, capacity: self.capacity, range, pieces })
    }

    pub fn spilled(&mut self, portion: &Portion, written: &io::Result<()>) {
        match written {
            // If the window has lost the portion while it was written, the file begins anew behind it.
            Ok(()) if self.is_of(&portion.file) && self.spilled == portion.range.start => {
                self.spilled = portion.range.end;
                self.held.start = self.held.end.min(self.held.start.max(self.spilled));
                self.trim();
            }
            Err(_) if self.is_of(&portion.file) => self.file = None,
            _ => {}
        }
    }

    /// Whether this is still the backlog's file: the stream may have begun anew meanwhile.
    fn is_of(&self, file: &Arc<File>) -> bool {
        self.file.as_ref().is_some_and(|own| Arc::ptr_eq(own, file))
    }

    /// What the window has of a range that is in it.
    fn in_window(&mut self, range: Range<u64>) -> Vec<Bytes> {
        let tail_from = self.end - self.tail.len() as u64;
        let of_tail = range.end.saturating_sub(tail_from.max(range.start)) as usize;
        if of_tail >= PIECE_BYTES_MIN {
            self.cut_tail(self.end);
        }
        let first = self.pieces.partition_point(|piece| piece.end() <= range.start);
        let shared = self.pieces.range(first..).take_while(|piece| piece.from < range.end).map(|piece| {
            let from = range.start.saturating_sub(piece.from) as usize;
            let to = (range.end.min(piece.end()) - piece.from) as usize;
            piece.bytes.slice(from..to)
        });
        let mut found: Vec<Bytes> = shared.collect();
        if (1..PIECE_BYTES_MIN).contains(&of_tail) {
            let to = (range.end - tail_from) as usize;
            found.push(Bytes::copy_from_slice(&self.tail[to - of_tail..to]));
        }
        found
    }

    /// Finds at most `max` bytes from this offset on.
    pub fn read(&mut self, from: u64, max: usize) -> Result<Found, Gone> {
        if !self.range().contains(&from) && from != self.end {
            return Err(Gone);
        }
        let to = |end: u64| end.min(from.saturating_add(max as u64));
        if from >= self.window_from() {
            return Ok(Found::InWindow(self.in_window(from..to(self.end))));
        }
        let file = Arc::clone(self.file.as_ref().ok_or(Gone)?);
        Ok(Found::InFile(InFile { file, capacity: self.capacity, range: from..to(self.spilled) }))
    }
}

impl Portion {
    pub fn write(&self) -> io::Result<()> {
        let mut from = self.range.start;
        for piece in &self.pieces {
            let at = from % self.capacity;
            let first = piece.len().min((self.capacity - at) as usize);
            self.file.write_all_at(&piece[..first], at)?;
            self.file.write_all_at(&piece[first..], 0)?;
            from += piece.len() as u64;
        }
        Ok(())
    }
}

impl InFile {
    /// They count only if the backlog still has their first one afterwards.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; (self.range.end - self.range.start) as usize];
        let at = self.range.start % self.capacity;
        let first = bytes.len().min((self.capacity - at) as usize);
        self.file.read_exact_at(&mut bytes[..first], at)?;
        self.file.read_exact_at(&mut bytes[first..], 0)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: usize = 2 * PORTION_BYTES as usize;
    /// Of the stream, when the window is full.
    const KEPT: u64 = (WINDOW - UNUSED_BYTES_MAX) as u64;

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

    fn read(backlog: &mut Backlog, from: u64, max: usize) -> Result<Vec<u8>, Gone> {
        Ok(match backlog.read(from, max)? {
            Found::InWindow(pieces) => pieces.concat(),
            Found::InFile(in_file) => in_file.read().unwrap(),
        })
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
            let found = read(&mut backlog, from, max).unwrap();
            assert!(found == bytes(from..from + found.len() as u64), "{from}");
            assert_eq!(found.is_empty(), from == range.end);
        }
        let range = backlog.range();
        assert_eq!(read(&mut backlog, range.start - 1, 10), Err(Gone));
        assert_eq!(read(&mut backlog, range.end + 1, 10), Err(Gone));
    }

    #[test]
    fn what_a_slow_file_has_missed_is_gone_and_the_rest_is_not() {
        let mut backlog = Backlog::new(WINDOW, Some((tempfile::tempfile().unwrap(), 8 * PORTION_BYTES)), 0);
        backlog.push(&bytes(0..PORTION_BYTES));
        let slow = backlog.portion().unwrap();
        let end = PORTION_BYTES + KEPT + 7;
        (PORTION_BYTES..end).step_by(1000).for_each(|from| backlog.push(&bytes(from..end.min(from + 1000))));
        backlog.spilled(&slow, &slow.write());
        assert_eq!(backlog.range(), end - KEPT..end);
        spill(&mut backlog);
        backlog.push(&bytes(end..end + 100_000));
        assert_eq!(backlog.range().start, end - KEPT);
        let from = backlog.range().start;
        let found = read(&mut backlog, from, 1000).unwrap();
        assert!(found == bytes(from..from + 1000));
    }

    #[test]
    fn without_a_file_the_window_is_all() {
        let mut backlog = Backlog::new(WINDOW, None, 5);
        backlog.push(&bytes(5..10));
        assert_eq!((backlog.range(), read(&mut backlog, 7, 100)), (5..10, Ok(bytes(7..10))));
        let end = 2 * WINDOW as u64;
        (10..end).step_by(50).for_each(|from| backlog.push(&bytes(from..end.min(from + 50))));
        let range = end - KEPT..end;
        assert_eq!(backlog.range(), range);
        assert_eq!(read(&mut backlog, range.start, 9), Ok(bytes(range.start..range.start + 9)));
    }

    /// Once such a value ended the links of all replicas, each of which needed the whole dataset then.
    #[test]
    fn who_has_all_before_it_gets_what_is_larger_than_the_window() {
        let (file, large) = (tempfile::tempfile().unwrap(), 10 * WINDOW as u64);
        for file in [None, Some((file, 64 * PORTION_BYTES))] {
            let is_spilled = file.is_some();
            let mut backlog = Backlog::new(WINDOW, file, 0);
            assert_eq!(backlog.sent_ahead(7), 7 + WINDOW as u64);
            let before = KEPT / 100 * 100;
            (0..before).step_by(100).for_each(|from| backlog.push(&bytes(from..from + 100)));
            let end = before + large;
            backlog.push(&bytes(before..end));
            assert_eq!(backlog.range(), 0..end);
            assert_eq!([backlog.sent_ahead(7), backlog.sent_ahead(end)], [end, end + WINDOW as u64]);
            assert!(read(&mut backlog, 7, usize::MAX).unwrap() == bytes(7..end));
            // What the file has is no more in RAM.
            spill(&mut backlog);
            let in_ram = backlog.pieces.iter().map(|piece| piece.bytes.len()).sum::<usize>() + backlog.tail.len();
            assert_eq!(in_ram <= WINDOW, is_spilled, "{in_ram}");
            let mut at = 7;
            while at < end {
                let found = read(&mut backlog, at, 1 << 20).unwrap();
                assert!(found == bytes(at..at + found.len() as u64), "{at}");
                at += found.len() as u64;
            }
            // The window goes on as ever.
            for from in (end..end + KEPT + 1).step_by(100) {
                backlog.push(&bytes(from..from + 100));
                spill(&mut backlog);
            }
            assert_eq!(backlog.range().start == 0, is_spilled);
            let in_ram: usize = backlog.pieces.iter().map(|piece| piece.bytes.len()).sum();
            assert!(in_ram <= WINDOW, "{in_ram}");
            // A second one, before the file has the first.
            let end = backlog.end();
            backlog.push(&bytes(end..end + large));
            backlog.push(&bytes(end + large..end + 2 * large));
            assert_eq!(backlog.range(), end + large - KEPT..end + 2 * large);
            // Each is sent whole, when it is its turn.
            let sent = [end - WINDOW as u64, end - WINDOW as u64 + 1, end, end + large - 1, end + large];
            let ahead = [end, end + large, end + large, end + 2 * large, end + 2 * large];
            assert_eq!(sent.map(|applied| backlog.sent_ahead(applied)), ahead);
        }
    }

    #[test]
    fn readers_share_the_bytes() {
        fn pieces(backlog: &mut Backlog, from: u64) -> Vec<Bytes> {
            match backlog.read(from, usize::MAX).unwrap() {
                Found::InWindow(pieces) => pieces,
                Found::InFile(_) => panic!("there is no file"),
            }
        }
        let mut backlog = Backlog::new(WINDOW, None, 0);
        backlog.push(&bytes(0..100_000));
        let (one, other) = (pieces(&mut backlog, 0), pieces(&mut backlog, 0));
        assert_eq!((one.concat(), one.len()), (bytes(0..100_000), 2), "two blocks");
        assert!(one.iter().zip(&other).all(|(one, other)| one.as_ptr() == other.as_ptr()));
        // What is sent stays as it is, whatever the stream does.
        backlog.push(&bytes(100_000..2_000_000));
        assert_eq!(one.concat(), bytes(0..100_000));
        // The block is filled up, although its beginning is a piece already.
        let mut backlog = Backlog::new(WINDOW, None, 0);
        for end in (5_000..=60_000).step_by(5_000) {
            backlog.push(&bytes(end - 5_000..end));
            assert_eq!(pieces(&mut backlog, end - 5_000).concat(), bytes(end - 5_000..end));
        }
        let all = pieces(&mut backlog, 0);
        assert_eq!(all.len(), 12);
        let follows = |pair: &[Bytes]| pair[0].as_ptr().wrapping_add(pair[0].len()) == pair[1].as_ptr();
        assert!(all.windows(2).all(follows), "one block");
        // Little is copied, and makes no piece.
        for end in 60_001..60_100 {
            backlog.push(&bytes(end - 1..end));
            assert_eq!(pieces(&mut backlog, end - 1).concat(), bytes(end - 1..end));
        }
        assert_eq!(backlog.pieces.len(), 12);
    }
}
