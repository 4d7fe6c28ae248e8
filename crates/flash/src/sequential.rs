//! Owns the writing of a file from its start to its end, past the page cache where the file system allows it. Never
//! reads a file.
//!
//! If a file is synced only at its end, the device gets all its bytes at once, and every read of a value waits behind
//! them. Here the device gets little at a time, and the writer can pause in between.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use crate::files::set_flags;
use crate::io::{PAGE_BYTES, PageBuf};

/// Bytes that the device gets at once. This is enough to be worth a request, and a read that waits behind it does not
/// wait for long.
const PORTION_BYTES: usize = 256 << 10;
/// This many bytes are synced together. A device writes the content of its own cache at a sync, and reads wait for
/// that.
const SYNCED_BYTES: u64 = 1 << 20;

/// Called with the time that the device took for a portion. Nothing more is written before it returns.
pub type Rest = Box<dyn FnMut(Duration) + Send>;

/// Writes a new file. The file is complete only after [`SequentialWriter::finish`].
pub struct SequentialWriter {
    file: File,
    /// The file's bytes from `offset` on, of which there are `filled`.
    portion: PageBuf,
    filled: usize,
    offset: u64,
    is_direct: bool,
    rest: Rest,
}

impl SequentialWriter {
    /// `file` must be empty.
    pub fn new(file: File, rest: Rest) -> SequentialWriter {
        let is_direct = set_flags(&file, OFlags::DIRECT).is_ok();
        SequentialWriter {
            file,
            portion: PageBuf::new(PORTION_BYTES / PAGE_BYTES),
            filled: 0,
            offset: 0,
            is_direct,
            rest,
        }
    }

    /// Writes the rest and makes the file durable. Returns its size.
    pub fn finish(mut self) -> io::Result<u64> {
        let bytes = self.offset + self.filled as u64;
        if self.filled > 0 {
            let whole = self.filled.next_multiple_of(PAGE_BYTES);
            self.portion[self.filled..whole].fill(0);
            self.write_out(whole)?;
            self.file.set_len(bytes)?;
        }
        self.file.sync_all()?;
        Ok(bytes)
    }

    /// Writes the whole portion.
    fn pass(&mut self) -> io::Result<()> {
        let begun = Instant::now();
        self.write_out(PORTION_BYTES)?;
        if self.offset.is_multiple_of(SYNCED_BYTES) {
            self.file.sync_data()?;
        }
        (self.rest)(begun.elapsed());
        Ok(())
    }

    /// Writes this many bytes of the portion.
    fn write_out(&mut self, bytes: usize) -> io::Result<()> {
        let write = |own: &SequentialWriter| own.file.write_all_at(&own.portion[..bytes], own.offset);
        let mut written = write(self);
        // Some file systems accept the flag and refuse the first write.
        if written.is_err() && self.is_direct {
            set_flags(&self.file, OFlags::empty())?;
            self.is_direct = false;
            written = write(self);
        }
        written?;
        self.offset += bytes as u64;
        self.filled = 0;
        Ok(())
    }
}

impl Write for SequentialWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(PORTION_BYTES - self.filled);
        self.portion[self.filled..self.filled + count].copy_from_slice(&bytes[..count]);
        self.filled += count;
        if self.filled == PORTION_BYTES {
            self.pass()?;
        }
        Ok(count)
    }

    /// Does nothing: the file gets whole portions, and the rest at its end.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn restless(file: File) -> SequentialWriter {
        SequentialWriter::new(file, Box::new(|_| {}))
    }

    /// Files whose length is near a multiple of a page or a portion, written in pieces that fit neither.
    #[test]
    fn the_file_has_what_was_written_and_nothing_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for length in [0, 1, PAGE_BYTES, PORTION_BYTES - 1, PORTION_BYTES, PORTION_BYTES + 1, 3 * PORTION_BYTES + 5000]
        {
            let bytes: Vec<u8> = (0..length).map(|at| (at / 7 + at / 5000) as u8).collect();
            let mut writer = restless(File::create(&path).unwrap());
            bytes.chunks(10_007).for_each(|some| writer.write_all(some).unwrap());
            assert_eq!(writer.finish().unwrap(), length as u64);
            assert!(fs::read(&path).unwrap() == bytes, "{length}");
        }
    }

    #[test]
    fn the_device_rests_after_each_portion() {
        let (sender, rests) = std::sync::mpsc::channel();
        let rest = move |took| sender.send(took).unwrap();
        let mut writer = SequentialWriter::new(tempfile::tempfile().unwrap(), Box::new(rest));
        writer.write_all(&[1; 2 * PORTION_BYTES + 1]).unwrap();
        assert_eq!(rests.try_iter().count(), 2);
        writer.finish().unwrap();
        assert_eq!(rests.iter().count(), 0);
    }

    #[test]
    fn a_failed_write_is_an_error() {
        let mut writer = restless(File::options().write(true).open("/dev/full").unwrap());
        assert_eq!(writer.write(&[1; PORTION_BYTES]).unwrap_err().kind(), io::ErrorKind::StorageFull);
        let mut writer = restless(File::options().write(true).open("/dev/full").unwrap());
        writer.write_all(b"a little").unwrap();
        assert_eq!(writer.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
