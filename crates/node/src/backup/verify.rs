//! Owns the reading of a whole dump: its structure, its own checksum, its SHA-256 and its keys. Never keeps a value.

use crate::files::about;
use rdb::{Item, Reader};
use ring::digest::{Context, SHA256};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

const READ_BYTES: usize = 256 << 10;

#[derive(Debug, PartialEq, Eq)]
pub struct Verified {
    pub keys: u64,
    pub bytes: u64,
    /// In hexadecimal digits.
    pub sha256: String,
}

/// Reads a dump from the first byte to the last. `done` counts the bytes; when `stops` is set, this ends with an error.
pub fn verify(dump: &Path, done: &AtomicU64, stops: &AtomicBool) -> Result<Verified, String> {
    done.store(0, Relaxed);
    verify_with(dump, &mut |bytes| {
        done.fetch_add(bytes, Relaxed);
        match stops.load(Relaxed) {
            true => Err(io::Error::other("the database is being closed")),
            false => Ok(()),
        }
    })
}

/// As [`verify`]. `read` is told how many bytes more were read: it may wait, or stop this with an error.
pub fn verify_with(dump: &Path, read: &mut dyn FnMut(u64) -> io::Result<()>) -> Result<Verified, String> {
    let fail = |what: &dyn std::fmt::Display| about(dump, what);
    let file = File::open(dump).map_err(|error| fail(&error))?;
    let mut source = Hashed { file, hash: Context::new(&SHA256), bytes: 0, read };
    let mut reader = Reader::new(BufReader::with_capacity(READ_BYTES, &mut source), true).map_err(|e| fail(&e))?;
    let mut keys = 0;
    loop {
        match reader.next_item().map_err(|error| fail(&error))? {
            Item::Key(_) => keys += 1,
            Item::End => break,
            _ => {}
        }
    }
    let (rest, mut unread) = reader.into_rest();
    let more = rest.len() as u64 + io::copy(&mut unread, &mut io::sink()).map_err(|error| fail(&error))?;
    drop(unread);
    if more > 0 {
        return Err(fail(&format!("{more} bytes follow the end of the dump")));
    }
    let bytes = source.bytes;
    let sha256 = source.hash.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Verified { keys, bytes, sha256 })
}

/// Hashes and counts what is read.
struct Hashed<'a> {
    file: File,
    hash: Context,
    bytes: u64,
    read: &'a mut dyn FnMut(u64) -> io::Result<()>,
}

impl Read for Hashed<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buf)?;
        (self.read)(count as u64)?;
        self.hash.update(&buf[..count]);
        self.bytes += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdb::{Options, Writer};

    #[test]
    fn a_dump_is_read_whole_and_damage_is_found_wherever_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dump.rdb");
        let mut dump = Writer::new(Vec::new(), Options { version: 12, compresses: true, has_checksum: true });
        dump.select(0);
        for name in ["one", "two", "three"] {
            dump.key(name.as_bytes(), None, value::rdb::Type::String).unwrap();
            dump.string(b"value").unwrap();
        }
        let dump = dump.finish().unwrap();
        let check = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            verify(&path, &AtomicU64::new(7), &AtomicBool::new(false))
        };
        let whole = check(&dump).unwrap();
        assert_eq!((whole.keys, whole.bytes, whole.sha256.len()), (3, dump.len() as u64, 64));
        for at in 0..dump.len() {
            let mut damaged = dump.clone();
            damaged[at] ^= 0x10;
            // Some bits change nothing but the sum.
            assert_ne!(check(&damaged).map(|found| found.sha256), Ok(whole.sha256.clone()), "byte {at}");
            assert!(check(&dump[..at]).is_err(), "cut off at {at}");
        }
        let longer = [dump.as_slice(), b"x"].concat();
        assert!(check(&longer).unwrap_err().ends_with("1 bytes follow the end of the dump"));
        let stopped = verify(&path, &AtomicU64::new(0), &AtomicBool::new(true)).unwrap_err();
        assert!(stopped.ends_with("the database is being closed"), "{stopped}");
    }
}
