//! Owns the memory of a file that is mapped. What is written into it survives a killed process, because the kernel has
//! the pages. Never knows what the bytes mean. It is `unsafe` code: a write system call for each record would cost
//! about ten times as much as the copy.

use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::slice;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

pub(crate) struct Map {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a Map is the only owner of its mapping, as a Box<[u8]> is of its memory.
unsafe impl Send for Map {}

impl Map {
    /// Maps the first `bytes` bytes. The file must have these bytes, allocated, and keep them while it is mapped:
    /// otherwise an access ends the process (SIGBUS). No other process writes into the file; the journal's lock
    /// guarantees this.
    pub fn of(file: &File, bytes: usize) -> io::Result<Map> {
        assert!(bytes > 0);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an address where nothing is mapped.
        let start = unsafe { mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0) }?;
        Ok(Map { start: NonNull::new(start.cast()).expect("the kernel maps nothing at address 0"), bytes })
    }

    /// Announces that these bytes will be written, so that the processor can prefetch their cache lines.
    #[inline]
    pub fn expect_write(&self, at: usize, bytes: usize) {
        let bytes = self.get(at..).unwrap_or_default().get(..bytes);
        bytes.into_iter().flat_map(|bytes| bytes.chunks(LINE_BYTES)).for_each(|line| prefetch_to_write(line.as_ptr()));
    }
}

#[inline]
fn prefetch_to_write(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch changes nothing and faults at no address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

impl Deref for Map {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: start points to `bytes` bytes mapped for self, and nobody else writes into them (see `of`).
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl DerefMut for Map {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in deref, and &mut self makes it exclusive.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped in `of` with this length, and no reference into it outlives self. It cannot fail for a whole mapping.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_in_the_file_and_the_other_way_round() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let mut map = Map::of(&file, 8192).unwrap();
        map[8191] = 7;
        let mut byte = [0];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut byte, 8191).unwrap();
        assert_eq!(byte, [7]);
        std::os::unix::fs::FileExt::write_all_at(&file, &[9], 0).unwrap();
        assert_eq!((map[0], map.len()), (9, 8192));
    }
}
