//! Owns how far a database's files are loaded, saved and backed up, and why a load has failed. Plain data. Never knows a file.

use crate::estimate::{Estimate, Rates, Work};
use journal::Log;
use journal::manifest::{CheckpointFile, Manifest};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

/// The lock of files, while the dataset is neither saved nor loaded.
pub struct AtRest<'d>(#[allow(dead_code, reason = "held")] pub MutexGuard<'d, ()>);

/// What was loaded and saved, for INFO and LASTSAVE.
#[derive(Default)]
pub struct Progress {
    /// Held while the dataset is saved or loaded.
    pub busy: Mutex<()>,
    /// Of the thread that loads the dataset at the start. Carries no message; closed when the thread has ended.
    pub load_end: Mutex<Option<mpsc::Receiver<()>>>,
    /// When the last load began, in milliseconds since 1970.
    pub loading_since_ms: AtomicU64,
    pub loading_total_bytes: AtomicU64,
    pub loaded_bytes: Arc<AtomicU64>,
    /// Of the last load.
    pub keys_loaded: AtomicU64,
    pub keys_expired: AtomicU64,
    /// Why the dataset could not be loaded; the database then stays closed.
    pub load_failure: Mutex<Option<String>>,
    /// In seconds since 1970; 0: never.
    pub last_save_s: AtomicU64,
    pub last_save_failed: AtomicBool,
    pub saves: AtomicU64,
    /// When the running save began, in milliseconds since 1970; 0: none runs.
    pub saving_since_ms: AtomicU64,
    pub saved_keys: Arc<AtomicU64>,
    pub last_save_took_ms: AtomicU64,
    /// When the running or scheduled BGSAVE began, in milliseconds since 1970; 0: there is none.
    pub background_since_ms: AtomicU64,
    pub last_background_took_ms: AtomicU64,
    /// When the last save began.
    pub last_try_ms: AtomicU64,
    /// How many changes there were when the last save began that succeeded.
    pub saved_changes: AtomicU64,
    pub journal: Journalling,
    pub backups: Backups,
    /// How the dataset was recovered at the start, until the report is fetched.
    pub recovered: Mutex<Option<Recovered>>,
    /// The scrubber's counts that were already reported.
    pub rot_told: Mutex<Rot>,
}

/// Damage that the scrubber has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rot {
    pub pages: u64,
    /// Keys that have lost values.
    pub keys: u64,
    /// Values that are in RAM too.
    pub rescued: u64,
    pub checkpoints: u64,
    /// Of the journal.
    pub journals: u64,
    /// Files of backups and of the archive.
    pub backups: u64,
}

/// A dataset that came back from its journal.
#[derive(Clone, Debug)]
pub struct Recovered {
    pub keys: u64,
    pub took_ms: u64,
    /// The positions of the journal's part that was replayed.
    pub from: u64,
    pub to: u64,
    pub records: u64,
}

/// The most news that wait to be fetched. In a node without a console, nobody fetches them.
pub const UNTOLD_MAX: usize = 16;

/// The backups of a database in this run of the node.
#[derive(Default)]
pub struct Backups {
    pub running: Mutex<Option<Arc<RunningBackup>>>,
    /// The one that ended last.
    pub last: Mutex<Option<EndedBackup>>,
    /// Ended backups that were not fetched yet, oldest first; at most [`UNTOLD_MAX`].
    pub untold: Mutex<VecDeque<EndedBackup>>,
    /// When the newest scheduled backup was begun, in milliseconds since 1970. `None`: nobody has looked.
    pub scheduled_ms: Mutex<Option<u64>>,
    /// When a scheduled backup failed last, in milliseconds since 1970; 0: none since the last success.
    pub failed_ms: AtomicU64,
    pub archiving: Archiving,
    /// Files that the scrubber has found damaged.
    pub damaged: Mutex<BTreeSet<PathBuf>>,
    /// How many, since the start.
    pub damaged_found: AtomicU64,
}

/// The archive of a database's journal, in this run of the node.
#[derive(Default)]
pub struct Archiving {
    /// The journal's id, and the position up to which it is archived. `None`: not determined yet. Locked while records are copied.
    pub next: Mutex<Option<([u8; 16], u64)>>,
    /// When records were copied last, in milliseconds since 1970.
    pub begun_ms: AtomicU64,
    /// The position and the time up to which the journal is archived. 0: nothing was archived in this run.
    pub position: AtomicU64,
    pub until_ms: AtomicU64,
    /// When old copies were looked for.
    pub pruned_ms: AtomicU64,
    /// Why records are not copied now.
    pub failure: Mutex<Option<String>>,
    /// News that were not fetched yet, at most [`UNTOLD_MAX`]: `Err` is a failure, `Ok` the end of one.
    pub untold: Mutex<VecDeque<Result<String, String>>>,
}

impl Archiving {
    pub fn report(&self, news: Result<String, String>) {
        let mut untold = self.untold.lock();
        if untold.len() == UNTOLD_MAX {
            untold.pop_front();
        }
        untold.push_back(news);
    }
}

pub struct RunningBackup {
    /// Its directory below `backup-path`.
    pub path: String,
    pub is_scheduled: bool,
    pub started_ms: u64,
    /// The dump is written, and is being read back.
    pub is_verifying: AtomicBool,
    /// When it began.
    pub keys_total: u64,
    /// While it is being verified.
    pub bytes_total: AtomicU64,
    pub verified_bytes: AtomicU64,
}

impl Backups {
    pub fn note(&self, ended: EndedBackup) {
        let mut untold = self.untold.lock();
        if untold.len() == UNTOLD_MAX {
            untold.pop_front();
        }
        untold.push_back(ended.clone());
        *self.last.lock() = Some(ended);
    }
}

impl RunningBackup {
    pub fn is_verifying(&self) -> bool {
        self.is_verifying.load(Relaxed)
    }
}

#[derive(Clone, Debug)]
pub struct EndedBackup {
    pub path: String,
    pub is_scheduled: bool,
    pub started_ms: u64,
    pub took_ms: u64,
    pub outcome: Result<Backup, String>,
}

/// A backup that is whole, as its `backup.json` describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// Its directory below `backup-path`.
    pub path: String,
    /// Of which database.
    pub database: String,
    pub created_ms: u64,
    pub node_version: String,
    pub rdb_version: u32,
    pub keys: u64,
    pub bytes: u64,
    /// Of the dump, in hexadecimal digits.
    pub sha256: String,
    pub is_scheduled: bool,
    /// `None`: the database had no journal, or the backup is of an earlier release.
    pub cut: Option<Cut>,
}

/// Where a backup lies in a journal: the records behind this position continue the backup's dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    pub log_id: [u8; 16],
    pub position: u64,
    /// The moment of the backup, in milliseconds since 1970.
    pub at_ms: u64,
}

impl Progress {
    /// Waits until the dataset of a database that is closing is neither saved nor loaded any more. `None`: it still is after `timeout`.
    pub fn at_end(&self, timeout: Duration) -> Option<MutexGuard<'_, ()>> {
        // The thread takes the lock only some time after its start.
        if let Some(end) = &*self.load_end.lock() {
            (end.recv_timeout(timeout) != Err(mpsc::RecvTimeoutError::Timeout)).then_some(())?;
        }
        self.busy.try_lock_for(timeout)
    }
}

/// The journal of a database, for INFO.
#[derive(Default)]
pub struct Journalling {
    /// `None`: the dataset does not survive a restart. Changed only by who holds `naming`.
    pub kept: Mutex<Option<DurableState>>,
    /// Locked while the manifest is replaced: by a new checkpoint, whose writer also holds [`Progress::busy`], or because the stream's id
    /// has changed.
    pub naming: Mutex<()>,
    /// When the checkpoint that is being written was begun, in milliseconds since 1970; 0: none is.
    pub rewriting_since_ms: AtomicU64,
    /// Checkpoints written since the start.
    pub rewrites: AtomicU64,
    /// Failed attempts since the last success.
    pub rewrite_failures: AtomicU64,
    pub last_rewrite_failed_ms: AtomicU64,
    /// When the last attempt to write a checkpoint ended, in milliseconds since 1970.
    pub last_rewrite_ms: AtomicU64,
    /// 0: no checkpoint was written.
    pub last_rewrite_took_ms: AtomicU64,
    /// The store's count of values that were changed on flash, when the checkpoint was cut; 0: before this start.
    pub changed_at_checkpoint: AtomicU64,
    /// What a restart costs, as the last ones have shown.
    pub rates: Mutex<Rates>,
    /// 0: nothing was recovered at the start.
    pub recovery_took_ms: AtomicU64,
    /// The average size of the records that the start has replayed; 0: none were replayed.
    pub replayed_record_bytes: AtomicU64,
    /// The bytes that the journal's file system lacks for the next checkpoint and the journal up to it.
    pub missing_bytes: AtomicU64,
    /// When the checkpoint was checked last, in milliseconds since 1970; 0: not since the start.
    pub scrub_begun_ms: AtomicU64,
    /// Files are being checked.
    pub is_scrubbing: AtomicBool,
    /// Checkpoints that were found damaged, since the start.
    pub damaged_checkpoints: AtomicU64,
    /// How often the journal was found damaged, since the start.
    pub damaged_journals: AtomicU64,
    /// The store's count of rescued values for which a checkpoint was begun.
    pub rescued_seen: AtomicU64,
    /// See [`crate::database::Database::must_reopen`].
    pub must_reopen: AtomicBool,
}

impl Journalling {
    /// How long a restart would take, of this database alone. `changed`: the store's count of values that were changed on flash;
    /// `read_ns`: what a read of a value costs there now.
    pub fn estimate(&self, kept: &DurableState, changed: u64, read_ns: u64) -> Estimate {
        let reads = changed.saturating_sub(self.changed_at_checkpoint.load(Relaxed));
        let work = Work { reads, ..kept.work(self.replayed_record_bytes.load(Relaxed)) };
        self.rates.lock().on_device(read_ns).estimate(&work)
    }
}

/// What keeps a dataset over a restart.
#[derive(Clone)]
pub struct DurableState {
    pub log: Arc<Log>,
    pub folder: PathBuf,
    pub manifest: Manifest,
    /// An older checkpoint that is kept: see `persist::older`.
    pub older: Option<Manifest>,
    /// The store frees segments up to this cut as soon as no older checkpoint is kept. `None`: the checkpoint has no index.
    pub cut: Option<u64>,
}

impl DurableState {
    /// The position from which the journal is needed.
    pub fn needed_from(&self) -> u64 {
        self.older.as_ref().unwrap_or(&self.manifest).position
    }

    pub fn older_bytes(&self) -> u64 {
        self.older.iter().flat_map(Manifest::files).map(|file| file.bytes).sum()
    }

    pub fn checkpoint_bytes(&self) -> u64 {
        self.manifest.files().map(|file| file.bytes).sum()
    }

    /// What the journal and the checkpoints take on their file system, without a checkpoint that is being written.
    pub fn file_bytes(&self) -> u64 {
        self.checkpoint_bytes() + self.older_bytes() + self.log.figures().file_bytes
    }

    /// The bytes of the journal's records behind the checkpoint.
    pub fn tail_bytes(&self) -> u64 {
        self.log.position() - self.manifest.position
    }

    /// What these records take in the journal's files, packed as they are there.
    pub fn tail_file_bytes(&self) -> u64 {
        self.log.figures().needed_bytes.min(self.tail_bytes())
    }

    /// What a restart must read, without the values on flash. The number of records follows from their average size in this run or, if this
    /// run has none, in the replay at the start.
    fn work(&self, replayed_record_bytes: u64) -> Work {
        let bytes = |file: &Option<CheckpointFile>| file.as_ref().map_or(0, |file| file.bytes);
        let (figures, journal_bytes) = (self.log.figures(), self.tail_bytes());
        let record_bytes = figures.bytes.checked_div(figures.records).unwrap_or(replayed_record_bytes);
        Work {
            index_bytes: bytes(&self.manifest.index),
            dump_bytes: bytes(&self.manifest.checkpoint),
            records: journal_bytes.checked_div(record_bytes).unwrap_or(0),
            journal_bytes,
            reads: 0,
        }
    }
}

/// Why the node must end: a dataset could not be loaded.
pub type Failure = Arc<OnceLock<String>>;

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(1);

    /// The directory of a copy was once removed after the start of the thread that loads it, and before that had locked anything.
    #[test]
    fn a_thread_that_has_not_begun_to_load_is_waited_for_too() {
        let progress = Progress::default();
        assert!(progress.at_end(SHORT).is_some(), "nothing is loaded");
        let (is_loading, load_end) = mpsc::channel();
        *progress.load_end.lock() = Some(load_end);
        assert!(progress.at_end(SHORT).is_none());
        let busy = progress.busy.lock();
        drop(is_loading);
        assert!(progress.at_end(SHORT).is_none(), "a checkpoint is being written");
        drop(busy);
        assert!(progress.at_end(SHORT).is_some());
        assert!(progress.at_end(SHORT).is_some(), "asked again");
    }
}
