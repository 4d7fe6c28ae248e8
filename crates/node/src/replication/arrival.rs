//! Owns the file of a dataset that comes from a primary: it is read while it is written. Never knows what the bytes mean.

use crate::files::about;
use base::clock::wall_ms;
use parking_lot::{Condvar, Mutex};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A file that is gone with its owner.
pub struct Spool(pub PathBuf);

impl Spool {
    pub fn new(folder: &Path, what: &str) -> Result<Spool, String> {
        // Two may begin in one millisecond.
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let path = folder.join(format!(
            "temp-{what}-{}-{}-{}.rdb",
            std::process::id(),
            wall_ms(),
            NUMBER.fetch_add(1, Relaxed)
        ));
        File::create_new(&path).map(|_| Spool(path.clone())).map_err(|error| about(&path, error))
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0) {
            tracing::warn!("{}", about(&self.0, error));
        }
    }
}

pub struct Arrival {
    spool: Spool,
    file: File,
    state: Mutex<ArrivalState>,
    more: Condvar,
}

#[derive(Default)]
struct ArrivalState {
    bytes: u64,
    /// Whether it is whole; `None`: more will come.
    is_whole: Option<bool>,
    /// Nobody reads it any more.
    is_given_up: bool,
}

impl Arrival {
    pub fn new(folder: &Path) -> Result<Arrival, String> {
        let spool = Spool::new(folder, "sync")?;
        let file = File::options().write(true).open(&spool.0).map_err(|error| about(&spool.0, error))?;
        Ok(Arrival { spool, file, state: Mutex::default(), more: Condvar::new() })
    }

    pub fn path(&self) -> &Path {
        &self.spool.0
    }

    pub fn bytes(&self) -> u64 {
        self.state.lock().bytes
    }

    /// Adds bytes at the end.
    pub fn put(&self, bytes: &[u8]) -> Result<(), String> {
        if self.is_given_up() {
            return Err("the dataset cannot be loaded".to_owned());
        }
        (&self.file).write_all(bytes).map_err(|error| about(self.path(), error))?;
        self.state.lock().bytes += bytes.len() as u64;
        self.more.notify_all();
        Ok(())
    }

    /// No more bytes come.
    pub fn end(&self, is_whole: bool) {
        self.state.lock().is_whole = Some(is_whole);
        self.more.notify_all();
    }

    /// Who reads it has failed. What has not come yet need not come.
    pub fn give_up(&self) {
        let mut state = self.state.lock();
        state.is_given_up = state.is_whole.is_none();
    }

    /// Whether it was given up before all had come.
    pub fn is_given_up(&self) -> bool {
        self.state.lock().is_given_up
    }

    /// Reads it from the start on, and waits for what has not come yet.
    pub fn reader(&self) -> Result<Arriving<'_>, String> {
        let file = File::open(self.path()).map_err(|error| about(self.path(), error))?;
        Ok(Arriving { arrival: self, file, at: 0 })
    }
}

pub struct Arriving<'a> {
    arrival: &'a Arrival,
    file: File,
    at: u64,
}

impl Read for Arriving<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let there = {
            let mut state = self.arrival.state.lock();
            while state.bytes == self.at && state.is_whole.is_none() {
                self.arrival.more.wait(&mut state);
            }
            if state.is_whole == Some(false) {
                return Err(io::Error::other("the primary has sent only a part of its dataset"));
            }
            state.bytes - self.at
        };
        let bytes = buf.len().min(usize::try_from(there).unwrap_or(usize::MAX));
        let read = self.file.read(&mut buf[..bytes])?;
        self.at += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_is_read_while_it_comes() {
        let folder = tempfile::tempdir().unwrap();
        let arrival = Arrival::new(folder.path()).unwrap();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let (mut reader, mut start, mut rest) = (arrival.reader().unwrap(), [0; 3], Vec::new());
                reader.read_exact(&mut start).unwrap();
                // The end comes only behind this.
                arrival.put(b"de").unwrap();
                arrival.end(true);
                reader.read_to_end(&mut rest).unwrap();
                [&start[..], &rest].concat()
            });
            arrival.put(b"a").unwrap();
            arrival.put(b"bc").unwrap();
            assert_eq!(reader.join().unwrap(), b"abcde");
        });
        drop(arrival);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    /// The reader waits in most rounds when the end comes.
    #[test]
    fn the_end_wakes_who_waits_for_more() {
        for round in 0..20 {
            // The file's name has the time, and the reader of the last round may not have left yet.
            let folder = tempfile::tempdir().unwrap();
            let arrival = std::sync::Arc::new(Arrival::new(folder.path()).unwrap());
            let (said, heard) = std::sync::mpsc::channel();
            let reading = std::sync::Arc::clone(&arrival);
            std::thread::spawn(move || {
                let (mut reader, mut start, mut rest) = (reading.reader().unwrap(), [0; 1], Vec::new());
                reader.read_exact(&mut start).unwrap();
                said.send(true).unwrap();
                said.send(reader.read_to_end(&mut rest).is_ok()).unwrap();
            });
            arrival.put(b"a").unwrap();
            let timeout = std::time::Duration::from_secs(60);
            assert!(heard.recv_timeout(timeout).unwrap());
            std::thread::yield_now();
            arrival.end(round % 2 == 0);
            assert_eq!(heard.recv_timeout(timeout), Ok(round % 2 == 0));
        }
    }

    #[test]
    fn what_is_cut_off_is_an_error_and_no_end() {
        let folder = tempfile::tempdir().unwrap();
        let arrival = Arrival::new(folder.path()).unwrap();
        arrival.put(b"abc").unwrap();
        arrival.end(false);
        arrival.give_up();
        assert!(!arrival.is_given_up(), "who reads it has not failed first");
        assert!(arrival.reader().unwrap().read_to_end(&mut Vec::new()).is_err());
        drop(arrival);

        let arrival = Arrival::new(folder.path()).unwrap();
        arrival.give_up();
        assert!(arrival.put(b"abc").is_err());
    }
}
