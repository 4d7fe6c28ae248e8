//! Owns the checking of what is read seldom: once in `scrub-interval` a thread reads the checkpoint, the journal behind it, and the backups.
//! The dataset is there, so damage of the checkpoint or of the journal only means that a new checkpoint is written. Never checks values on flash:
//! the store's lanes do.

use super::find_file;
use crate::database::Database;
use crate::files::about;
use crate::progress::{DurableState, Rot};
use base::size::human;
use journal::index::Index;
use rdb::{Item, Reader};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use store::counters::Counter;

/// Clients' reads of the same device go first.
const BYTES_PER_SECOND: u64 = 32 << 20;
const READ_BYTES: usize = 256 << 10;

impl Database {
    /// Called once a second: checks files if that is due, and writes a new checkpoint if values in RAM have lost their copies on flash.
    pub(crate) fn tick_scrub(&self, now_ms: u64) {
        let state = &self.files.journal;
        let rescued = self.shard.store.rescued_values();
        let interval_ms = self.hub.config.snapshot().scrub_interval_ms;
        // The checkpoint still names the places that cannot be read.
        if state.rescued_seen.swap(rescued, Relaxed) < rescued && super::is_on(self) {
            self.replace_checkpoint("values in RAM have lost their copies on flash");
        }
        let begun_ms = state.scrub_begun_ms.load(Relaxed);
        if begun_ms == 0 || begun_ms > now_ms {
            // The start has just read it.
            state.scrub_begun_ms.store(now_ms.max(1), Relaxed);
        } else if interval_ms > 0 && now_ms - begun_ms >= interval_ms {
            state.scrub_begun_ms.store(now_ms, Relaxed);
            self.start_check();
        }
    }

    /// What the scrubber has found since the last call.
    pub fn take_rot(&self) -> Option<Rot> {
        let store = self.shard.store.stats();
        let (journal, backups) = (&self.files.journal, &self.files.backups);
        let (checkpoints, journals) =
            (journal.damaged_checkpoints.load(Relaxed), journal.damaged_journals.load(Relaxed));
        let backups = backups.damaged_found.load(Relaxed);
        let mut told = self.files.rot_told.lock();
        let rot = Rot {
            pages: store[Counter::RottenPages].saturating_sub(told.pages),
            keys: store[Counter::RottenKeys].saturating_sub(told.keys),
            rescued: store[Counter::RescuedValues].saturating_sub(told.rescued),
            checkpoints: checkpoints - told.checkpoints,
            journals: journals - told.journals,
            backups: backups - told.backups,
        };
        // CONFIG RESETSTAT may have lowered the store's counts.
        let (pages, keys, rescued) =
            (store[Counter::RottenPages], store[Counter::RottenKeys], store[Counter::RescuedValues]);
        *told = Rot { pages, keys, rescued, checkpoints, journals, backups };
        (rot.pages + rot.checkpoints + rot.journals + rot.backups > 0).then_some(rot)
    }

    fn start_check(&self) {
        let Some(database) = self.me.upgrade() else { return };
        if self.files.journal.is_scrubbing.swap(true, Relaxed) {
            // An interval is shorter than what the device needs.
            return;
        }
        let check = move || {
            let begun = Instant::now();
            let pace = Pace { database: &database, begun, bytes: AtomicU64::new(0) };
            // The lock is not held while the files are read.
            let kept = database.files.journal.kept.lock().clone();
            if let Some(kept) = kept {
                database.check_kept(&kept, &pace);
            }
            database.check_backups(&mut |bytes| pace.read(bytes));
            database.files.journal.is_scrubbing.store(false, Relaxed);
        };
        if let Err(error) = std::thread::Builder::new().name("scrub".into()).spawn(check) {
            self.files.journal.is_scrubbing.store(false, Relaxed);
            tracing::error!("cannot start a thread to check files: {error}");
        }
    }

    fn check_kept(&self, kept: &DurableState, pace: &Pace<'_>) {
        let state = &self.files.journal;
        let name = &self.hub.name;
        // The checkpoint may have been replaced meanwhile. Then the journal's files before the new one are used again.
        let is_old = || {
            let now = state.kept.lock();
            self.hub.is_closing.load(Relaxed) || now.as_ref().is_none_or(|now| now.manifest != kept.manifest)
        };
        match check(kept, pace) {
            Ok(bytes) => tracing::info!("database '{name}': the checkpoint is intact: {}", human(bytes)),
            Err(_) if is_old() => return,
            Err(why) => {
                tracing::error!("database '{name}': the checkpoint is damaged: {why}");
                state.damaged_checkpoints.fetch_add(1, Relaxed);
                return self.replace_checkpoint("the checkpoint is damaged");
            }
        }
        let (log_id, stretch) = (kept.manifest.log_id, (kept.manifest.position, kept.log.durable()));
        match journal::check(&kept.folder, log_id, stretch, &|bytes| pace.read(bytes)) {
            Ok(()) => tracing::info!("database '{name}': the journal is intact up to position {}", stretch.1),
            Err(_) if is_old() => {}
            Err(why) => {
                tracing::error!("database '{name}': the journal is damaged: {why}");
                state.damaged_journals.fetch_add(1, Relaxed);
                self.replace_checkpoint("the journal is damaged");
            }
        }
    }

    fn replace_checkpoint(&self, why: &str) {
        match self.start_rewrite() {
            Ok(()) => tracing::warn!("database '{}': a new checkpoint is started, because {why}", self.hub.name),
            Err(error) => tracing::warn!("database '{}': {why}; {error}", self.hub.name),
        }
    }
}

/// How fast files are read.
struct Pace<'d> {
    database: &'d Database,
    begun: Instant,
    bytes: AtomicU64,
}

impl Pace<'_> {
    /// Waits after so many bytes more. An error: the database is being closed.
    fn read(&self, more: u64) -> io::Result<()> {
        let bytes = self.bytes.fetch_add(more, Relaxed) + more;
        let due = Duration::from_micros(bytes * 1_000_000 / BYTES_PER_SECOND);
        std::thread::sleep(due.saturating_sub(self.begun.elapsed()));
        match self.database.hub.is_closing.load(Relaxed) {
            true => Err(io::Error::other("the database is being closed")),
            false => Ok(()),
        }
    }
}

/// Reads the checkpoint as fast as it may. Returns its size.
fn check(kept: &DurableState, pace: &Pace<'_>) -> Result<u64, String> {
    let mut bytes = 0;
    if let Some(checkpoint) = &kept.manifest.checkpoint {
        let path = find_file(&kept.folder, checkpoint)?;
        check_dump(&path, &mut |read| {
            bytes += read;
            pace.read(read)
        })
        .map_err(|error| about(&path, error))?;
    }
    if let Some(index) = &kept.manifest.index {
        let path = find_file(&kept.folder, index)?;
        let read = Index::open(&path).and_then(|mut index| {
            index.read::<io::Error>(&mut |_, _, rows| {
                bytes += rows.bytes();
                pace.read(rows.bytes())
            })
        });
        read.map_err(|error| about(&path, error))?;
    }
    Ok(bytes)
}

fn check_dump(path: &Path, read: &mut dyn FnMut(u64) -> io::Result<()>) -> Result<(), rdb::Error> {
    let source = BufReader::with_capacity(READ_BYTES, Told { file: File::open(path).map_err(rdb::Error::Io)?, read });
    let mut reader = Reader::new(source, true)?;
    while !matches!(reader.next_item()?, Item::End) {}
    Ok(())
}

/// Tells how much is read.
struct Told<'a> {
    file: File,
    read: &'a mut dyn FnMut(u64) -> io::Result<()>,
}

impl Read for Told<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buf)?;
        (self.read)(count as u64)?;
        Ok(count)
    }
}
