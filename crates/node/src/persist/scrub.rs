//! Owns the checking of the base: once in `scrub-interval` a thread reads its dump and its index. The dataset is there, so damage only
//! means that a new base is written. Never checks values on flash: the store's lanes do.

use super::find_file;
use crate::database::Database;
use crate::files::about;
use crate::progress::{Kept, Rot};
use journal::index::Index;
use rdb::{Item, Reader};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Clients' reads of the same device go first.
const BYTES_PER_SECOND: u64 = 32 << 20;
const READ_BYTES: usize = 256 << 10;

impl Database {
    /// Called once a second: checks the base if that is due, and writes a new one if values in RAM have lost their copies on flash.
    pub(crate) fn tend_scrub(&self, now_ms: u64) {
        let state = &self.files.journal;
        let rescued = self.shard.store.rescued_values();
        let interval_ms = self.hub.config.snapshot().scrub_interval_ms;
        if !super::is_on(self) {
            state.rescued_seen.store(rescued, Relaxed);
            return;
        }
        // The base names their old places.
        if state.rescued_seen.swap(rescued, Relaxed) < rescued {
            self.replace_base("values in RAM have lost their copies on flash");
        }
        let begun_ms = state.scrub_begun_ms.load(Relaxed);
        if begun_ms == 0 || begun_ms > now_ms {
            // The start has just read it.
            state.scrub_begun_ms.store(now_ms.max(1), Relaxed);
        } else if interval_ms > 0 && now_ms - begun_ms >= interval_ms {
            state.scrub_begun_ms.store(now_ms, Relaxed);
            self.start_base_check();
        }
    }

    /// What the scrubber has found since the last call.
    pub fn take_rot(&self) -> Option<Rot> {
        let store = self.shard.store.stats();
        let bases = self.files.journal.damaged_bases.load(Relaxed);
        let mut told = self.files.rot_told.lock();
        let rot = Rot {
            pages: store.rotten_pages.saturating_sub(told.pages),
            keys: store.rotten_keys.saturating_sub(told.keys),
            rescued: store.rescued_values.saturating_sub(told.rescued),
            bases: bases - told.bases,
        };
        // CONFIG RESETSTAT may have made them less.
        *told = Rot { pages: store.rotten_pages, keys: store.rotten_keys, rescued: store.rescued_values, bases };
        (rot.pages + rot.bases > 0).then_some(rot)
    }

    fn start_base_check(&self) {
        let Some(database) = self.me.upgrade() else { return };
        let check = move || {
            let Some(kept) = database.files.journal.kept.lock().clone() else { return };
            let checked = check(&database, &kept);
            // It may have been replaced meanwhile.
            let is_current =
                || database.files.journal.kept.lock().as_ref().is_some_and(|now| now.manifest == kept.manifest);
            match checked {
                Ok(bytes) => tracing::info!("database '{}': the base is sound: {bytes} bytes", database.hub.name),
                Err(_) if database.hub.is_closing.load(Relaxed) || !is_current() => {}
                Err(why) => {
                    tracing::error!("database '{}': the base is damaged: {why}", database.hub.name);
                    database.files.journal.damaged_bases.fetch_add(1, Relaxed);
                    database.replace_base("the base is damaged");
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().name("scrub".into()).spawn(check) {
            tracing::error!("no thread to check the base: {error}");
        }
    }

    fn replace_base(&self, why: &str) {
        match self.start_rewrite() {
            Ok(()) => tracing::warn!("database '{}': a new base is begun, because {why}", self.hub.name),
            Err(error) => tracing::warn!("database '{}': {why}; {error}", self.hub.name),
        }
    }
}

/// Reads the base as fast as it may. Returns its size.
fn check(database: &Database, kept: &Kept) -> Result<u64, String> {
    let begun = Instant::now();
    let wait = |bytes: u64| {
        let due = Duration::from_micros(bytes * 1_000_000 / BYTES_PER_SECOND);
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
        match database.hub.is_closing.load(Relaxed) {
            true => Err(io::Error::other("the database is being closed")),
            false => Ok(()),
        }
    };
    let mut bytes = 0;
    if let Some(base) = &kept.manifest.base {
        let path = find_file(&kept.folder, base)?;
        check_dump(&path, &mut |read| {
            bytes += read;
            wait(bytes)
        })
        .map_err(|error| about(&path, error))?;
    }
    if let Some(index) = &kept.manifest.index {
        let path = find_file(&kept.folder, index)?;
        let read = Index::open(&path).and_then(|mut index| {
            index.read::<io::Error>(&mut |_, _, rows| {
                bytes += rows.bytes();
                wait(bytes)
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
