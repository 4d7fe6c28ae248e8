//! Owns the read-only view of a journal: its files and records, of a stopped process or a running one. Changes no byte
//! and keeps no lock.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use flash::io::{PageBuf, Reader};
use rustix::fs::MemfdFlags;

use crate::files::{Files, OpenError, Remains, failed, is_in_use};
use crate::manifest::{Manifest, Untruncated};
use crate::recover::{self, Held, Salvaged, salvage};
use crate::ring::RING_BYTES_MIN;
use crate::{Config, Opened, Policy, Record, Settings};

/// A journal at the moment of [`View::open`].
pub struct View {
    opened: Opened,
    untruncated: Untruncated,
    is_in_use: bool,
}

impl View {
    /// Reads what the journal in `directory` has from `from` on, and finds all damage. If a process is writing to it,
    /// the last records may be missing, and a file that changes meanwhile may cause an error: try again.
    pub fn open(directory: &Path, log_id: [u8; 16], from: u64) -> Result<View, OpenError> {
        let is_in_use = is_in_use(directory);
        let (files, ring) = Files::look(directory, log_id)?;
        // Copy the ring first: what it releases later is in the frames.
        let ring = ring.map(|(file, head)| Ok((copy(&file)?, head))).transpose().map_err(failed("copy", directory))?;
        let settings =
            Settings { log_id, file_bytes: files.file_bytes(), ring_bytes: RING_BYTES_MIN, policy: Policy::No };
        let opened = Opened::of(directory, &settings, from, files, ring, true)?;
        Ok(View { opened, untruncated: Untruncated::default(), is_in_use })
    }

    /// The records behind the checkpoint of the manifest, without those that were truncated.
    pub fn of(directory: &Path, manifest: &Manifest) -> Result<View, OpenError> {
        let view = View::open(directory, manifest.log_id, manifest.position)?;
        Ok(View { untruncated: Untruncated::of(manifest), ..view })
    }

    /// Whether a process had the journal open.
    pub fn is_in_use(&self) -> bool {
        self.is_in_use
    }

    /// The position after the last record.
    pub fn end(&self) -> u64 {
        self.opened.end()
    }

    /// The files with frames, in the order of their positions.
    pub fn held(&self) -> Vec<Held> {
        self.opened.held()
    }

    /// Like [`Opened::records`].
    pub fn records(&self, each: &mut dyn FnMut(u64, &Record) -> ControlFlow<()>) -> Result<(), OpenError> {
        let mut untruncated = self.untruncated.clone();
        self.opened.records(&mut |end, record| match untruncated.counts(end, record) {
            true => each(end, record),
            false => ControlFlow::Continue(()),
        })
    }
}

/// Reads what the journal in `directory` has from `from` to `until`, and compares the checksums. Both positions are
/// durable, and the journal may be in use. `read` is called with the number of bytes to be read next: it may wait, or
/// stop the check with an error. If a checkpoint has freed files meanwhile, an error means nothing.
pub fn check(
    directory: &Path,
    log_id: [u8; 16],
    (from, until): (u64, u64),
    read: &(dyn Fn(u64) -> io::Result<()> + Sync),
) -> Result<(), OpenError> {
    let (files, _) = Files::look(directory, log_id)?;
    let config = Config { file_bytes: files.file_bytes(), ..Config::new(log_id) };
    let (count, files) = (files.count(), Told { files, read });
    let checked = recover::check(&files, config, count, from, until);
    checked.map_err(|source| OpenError::Records { directory: directory.to_owned(), source })
}

/// A reader that reports how much is read.
struct Told<'r> {
    files: Files,
    read: &'r (dyn Fn(u64) -> io::Result<()> + Sync),
}

impl Reader for Told<'_> {
    fn read(&self, path: u16, offset: u64, buf: &mut PageBuf) -> io::Result<()> {
        (self.read)(buf.len() as u64)?;
        self.files.read(path, offset, buf)
    }
}

/// A damaged journal, and the part of it that can be read.
pub struct Salvage {
    records: Records,
    untruncated: Untruncated,
    /// What is damaged.
    damage: Vec<String>,
}

enum Records {
    /// Only parts that the records do not need are damaged.
    All(Opened),
    Before(Files, Salvaged),
}

impl Salvage {
    /// Looks for damage in what the journal in `directory` has behind the checkpoint. `None`: there is none. Records that only
    /// the ring has count as lost if something before them is lost.
    pub fn open(directory: &Path, manifest: &Manifest) -> Result<Option<Salvage>, OpenError> {
        let (log_id, from, untruncated) = (manifest.log_id, manifest.position, Untruncated::of(manifest));
        let no_records = |source| OpenError::Records { directory: directory.to_owned(), source };
        let Remains { files, ring, mut damage } = Files::remains(directory, log_id)?;
        let config = Config { file_bytes: files.file_bytes(), ..Config::new(log_id) };
        let count = files.count();
        if let Some(salvaged) = salvage(&files, config, count, from).map_err(no_records)? {
            damage.push(salvaged.damage.to_string());
            return Ok(Some(Salvage { records: Records::Before(files, salvaged), untruncated, damage }));
        }
        let ring = ring.map(|(file, head)| Ok((copy(&file)?, head))).transpose().map_err(failed("copy", directory))?;
        let settings =
            Settings { log_id, file_bytes: files.file_bytes(), ring_bytes: RING_BYTES_MIN, policy: Policy::No };
        match Opened::of(directory, &settings, from, files, ring, true) {
            Ok(_) if damage.is_empty() => Ok(None),
            Ok(opened) => Ok(Some(Salvage { records: Records::All(opened), untruncated, damage })),
            // The ring's start shows that there was more.
            Err(OpenError::Records { source, .. }) => {
                let Remains { files, .. } = Files::remains(directory, log_id)?;
                let before = recover::recover_checked(&files, config, count, from).map_err(no_records)?;
                damage.push(source.to_string());
                let salvaged = Salvaged { before, damage: source, lost_records: 0, lost_until_ms: 0 };
                Ok(Some(Salvage { records: Records::Before(files, salvaged), untruncated, damage }))
            }
            Err(error) => Err(error),
        }
    }

    /// What is damaged: the files, and the first bad frame.
    pub fn damage(&self) -> String {
        self.damage.join("\n")
    }

    /// The position of the damage, and up to where the journal was durable.
    pub fn lost(&self) -> (u64, u64) {
        match &self.records {
            Records::All(opened) => (opened.end(), opened.end()),
            Records::Before(_, salvaged) => (salvaged.before.end(), salvaged.before.durable()),
        }
    }

    /// The number of records behind the damage that could be read, and the time of the last one. At least these are
    /// lost.
    pub fn lost_records(&self) -> (u64, u64) {
        match &self.records {
            Records::All(_) => (0, 0),
            Records::Before(_, salvaged) => (salvaged.lost_records, salvaged.lost_until_ms),
        }
    }

    /// The records before the damage, with the position after each.
    pub fn records(&self, each: &mut dyn FnMut(u64, &Record)) -> Result<(), OpenError> {
        let mut untruncated = self.untruncated.clone();
        let mut each = |end: u64, record: &Record| {
            if untruncated.counts(end, record) {
                each(end, record);
            }
        };
        match &self.records {
            Records::All(opened) => opened.records(&mut |end, record| {
                each(end, record);
                ControlFlow::Continue(())
            }),
            Records::Before(files, salvaged) => {
                let no_records = |source| OpenError::Records { directory: files.directory().to_owned(), source };
                salvaged.before.records(files, each).map_err(no_records)
            }
        }
    }
}

/// Copies the file to RAM, because the process that uses the file continues to write.
fn copy(mut file: &File) -> io::Result<File> {
    let mut copy = File::from(rustix::fs::memfd_create("journal-ring", MemfdFlags::CLOEXEC)?);
    io::copy(&mut file, &mut copy)?;
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::fs;

    fn bytes_of(directory: &Path) -> BTreeMap<String, Vec<u8>> {
        let files = fs::read_dir(directory).unwrap().map(|file| file.unwrap());
        files.map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap())).collect()
    }

    fn resp_of(view: &View) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        let read = view.records(&mut |_, record| {
            found.push(record.resp.to_owned());
            ControlFlow::Continue(())
        });
        read.unwrap();
        found
    }

    #[test]
    fn a_look_sees_all_records_and_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let log_id = [7; 16];
        let settings = Settings { log_id, file_bytes: 1 << 20, ring_bytes: RING_BYTES_MIN, policy: Policy::No };
        let log = Opened::open(directory, &settings, 0).unwrap().start().unwrap();
        for resp in [&b"one"[..], b"two"] {
            log.append(&Record { db: 0, time_ms: 1, resp });
        }
        // Only the ring has the records.
        let view = View::open(directory, log_id, 0).unwrap();
        assert!(view.is_in_use());
        assert_eq!((resp_of(&view), view.end()), (vec![b"one".to_vec(), b"two".to_vec()], log.position()));
        log.close().unwrap();
        drop(log);
        let before = bytes_of(directory);
        let view = View::open(directory, log_id, 0).unwrap();
        assert!(!view.is_in_use());
        assert_eq!(resp_of(&view), [b"one", b"two"]);
        let held = view.held();
        assert_eq!((held[0].start, held.last().unwrap().end), (0, view.end()));
        assert!(bytes_of(directory) == before, "no byte has changed");
    }

    #[test]
    fn damage_of_what_is_durable_is_found_while_the_journal_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let log_id = [7; 16];
        let settings = Settings { log_id, file_bytes: 1 << 20, ring_bytes: RING_BYTES_MIN, policy: Policy::No };
        let log = Opened::open(directory, &settings, 0).unwrap().start().unwrap();
        let record = Record { db: 0, time_ms: 1, resp: &[7; 10_000] };
        let mut ends = Vec::new();
        for _ in 0..200 {
            ends.push(log.append(&record));
            log.make_durable(log.position()).unwrap();
        }
        let until = log.durable();
        log.append(&record);
        let check = |from| check(directory, log_id, (from, until), &|_| Ok(()));
        check(0).unwrap();
        check(ends[100]).unwrap();
        check(until).unwrap();
        let stopped = super::check(directory, log_id, (0, until), &|_| Err(io::Error::other("stopped"))).unwrap_err();
        assert!(stopped.to_string().ends_with("stopped"), "{stopped}");
        // A frame in the middle of the second file.
        let path = directory.join("journal-0001");
        let mut bytes = fs::read(&path).unwrap();
        bytes[flash::DATA_OFFSET as usize + 20 * 12_288 + 5_000] ^= 1;
        fs::write(&path, bytes).unwrap();
        let damage = check(0).unwrap_err().to_string();
        assert!(damage.contains("journal file 1 is damaged at offset"), "{damage}");
        assert!(check(ends[50]).is_err());
        // A checkpoint behind the damage makes the damage harmless.
        check(ends[190]).unwrap();
        log.close().unwrap();
    }
}
