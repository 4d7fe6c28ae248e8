//! Owns the making of a backup: a directory under a temporary name gets the dump and its description, is read back, synced and
//! renamed. Never decides when a backup is made.

use super::card::{self, DUMP};
use super::{place, verify};
use crate::database::Database;
use crate::definition::NodeError;
use crate::files::{AtCut, CutInfo, FIELDS_VERSION, OnFlash, about, write_dump};
use crate::progress::{Backup, Cut, EndedBackup, RunningBackup};
use base::clock::wall_ms;
use base::size::human;
use engine::LoadState;
use journal::manifest;
use rdb::Options;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// How long to wait for a script that keeps stripes.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The last keeps everything. Older versions are for older servers.
const VERSIONS: [u32; 3] = [10, 11, 12];

/// Nothing of it is told in the dump.
impl CutInfo for Option<Cut> {}

/// A backup as somebody asks for it.
#[derive(Clone, Debug, Default)]
pub struct WantedBackup {
    /// Where, below `backup-path`. `None`: a directory with the database's name and the time.
    pub to: Option<String>,
    /// 10, 11 or 12, which is what `None` means.
    pub rdb_version: Option<u32>,
    pub is_scheduled: bool,
}

impl Database {
    /// Begins a backup. It goes on on a thread of its own: see [`Database::running_backup`] and [`Database::last_backup`].
    pub fn start_backup(&self, wanted: &WantedBackup, now_ms: u64) -> Result<Arc<RunningBackup>, NodeError> {
        let busy = |why: &str| NodeError::Busy(why.to_owned());
        let Some(database) = self.me.upgrade() else { return Err(busy("the database is being closed")) };
        if self.hub.clients.load_state() != LoadState::Open {
            return Err(busy("the dataset is being loaded"));
        }
        let version = wanted.rdb_version.unwrap_or(FIELDS_VERSION);
        if !VERSIONS.contains(&version) {
            let message = format!("{version} is not one of 10, 11 and 12");
            return Err(NodeError::Invalid { field: "rdb_version", message });
        }
        let mut running = self.files.backups.running.lock();
        if let Some(running) = &*running {
            return Err(NodeError::Busy(format!("another backup is being made: {}", running.path)));
        }
        let root = &self.hub.config.snapshot().backup_path;
        let invalid = |message| NodeError::Invalid { field: "to", message };
        let path = match &wanted.to {
            Some(to) => place::below(root, to).map_err(invalid)?,
            None => format!("{}/{}", self.name(), file_name(now_ms)),
        };
        let target = root.join(&path);
        is_free(&target).map_err(invalid)?;
        self.has_room(root).map_err(|message| NodeError::NoRoom { message })?;
        let draft = self.create_draft(&target).map_err(NodeError::Io)?;
        let begun = Arc::new(RunningBackup {
            path,
            is_scheduled: wanted.is_scheduled,
            started_ms: now_ms,
            is_verifying: false.into(),
            keys_total: self.shard.store.stats().keys,
            bytes_total: 0.into(),
            verified_bytes: 0.into(),
        });
        *running = Some(Arc::clone(&begun));
        let make = {
            let begun = Arc::clone(&begun);
            move || database.back_up(&begun, &draft, &target, version)
        };
        if let Err(error) = std::thread::Builder::new().name("backup".into()).spawn(make) {
            *running = None;
            return Err(NodeError::Io(format!("cannot start a thread: {error}")));
        }
        Ok(begun)
    }

    /// The backup that is being made, and how far it is: done and all, keys while it is written, bytes while it is verified.
    pub fn running_backup(&self) -> Option<(Arc<RunningBackup>, u64, u64)> {
        let running = self.files.backups.running.lock().clone()?;
        let (done, all) = match running.is_verifying() {
            true => (running.verified_bytes.load(Relaxed), running.bytes_total.load(Relaxed)),
            false => (self.files.saved_keys.load(Relaxed), running.keys_total),
        };
        Some((running, done.min(all), all))
    }

    /// The backup that ended last in this run of the node.
    pub fn last_backup(&self) -> Option<EndedBackup> {
        self.files.backups.last.lock().clone()
    }

    /// The backups that have ended since the last call.
    pub fn take_ended_backups(&self) -> Vec<EndedBackup> {
        self.files.backups.untold.lock().drain(..).collect()
    }

    fn back_up(&self, running: &RunningBackup, draft: &Path, target: &Path, version: u32) {
        let begun = Instant::now();
        let made = self.make_backup(running, draft, target, version);
        if made.is_err() {
            // Best effort: a later backup with this name removes it.
            let _ = fs::remove_dir_all(draft);
        }
        let took_ms = begun.elapsed().as_millis() as u64;
        match &made {
            Ok(backup) => tracing::info!(
                "database '{}' is backed up to {}: {} keys, {} in {:.3} s",
                self.hub.name,
                target.display(),
                backup.keys,
                human(backup.bytes),
                begun.elapsed().as_secs_f64()
            ),
            Err(why) => tracing::error!("database '{}' could not be backed up: {why}", self.hub.name),
        }
        let (path, is_scheduled, started_ms) = (running.path.clone(), running.is_scheduled, running.started_ms);
        let ended = EndedBackup { path, is_scheduled, started_ms, took_ms, outcome: made };
        if is_scheduled {
            self.scheduled_backup_ended(&ended);
        }
        self.files.backups.note(ended);
        *self.files.backups.running.lock() = None;
    }

    fn make_backup(
        &self,
        running: &RunningBackup,
        draft: &Path,
        target: &Path,
        version: u32,
    ) -> Result<Backup, String> {
        let dump = draft.join(DUMP);
        let cut = {
            // One dump at a time is written. Persistence is not switched meanwhile.
            let _busy = self.files.busy.lock();
            let kept = self.files.journal.kept.lock().clone();
            let compresses = self.hub.config.snapshot().redis_files.rdbcompression;
            let options = Options { version, compresses, has_checksum: true };
            self.files.saved_keys.store(0, Relaxed);
            let on_flash = OnFlash::Written { now_ms: running.started_ms };
            // What a primary sends is in the journal before it is in the dataset.
            let applied = AtCut::new(self);
            let at_cut = || {
                applied.mark();
                let kept = kept.as_ref()?;
                let (log_id, position) = (kept.manifest.log_id, kept.log.position());
                Some(Cut { log_id, position, at_ms: wall_ms() })
            };
            let (cut, _) = write_dump(self, &dump, options, on_flash, TIMEOUT, &at_cut)?;
            // A crash must not take back what the backup has: the journal would go on from there with other records.
            if let (Some(kept), Some(cut)) = (&kept, cut) {
                kept.log.make_durable(cut.position)?;
            }
            cut
        };
        let bytes = fs::metadata(&dump).map_err(|error| about(&dump, error))?.len();
        running.bytes_total.store(bytes, Relaxed);
        running.is_verifying.store(true, Relaxed);
        let verified = verify::verify(&dump, &running.verified_bytes, &self.hub.is_closing)?;
        let backup = Backup {
            path: running.path.clone(),
            database: self.name().to_owned(),
            created_ms: running.started_ms,
            node_version: env!("CARGO_PKG_VERSION").to_owned(),
            rdb_version: version,
            keys: verified.keys,
            bytes: verified.bytes,
            sha256: verified.sha256,
            is_scheduled: running.is_scheduled,
            cut,
        };
        card::write(&backup, draft)?;
        sync(draft)?;
        // This fails if somebody has put something there meanwhile.
        fs::rename(draft, target).map_err(|error| about(target, error))?;
        sync(parent(target))?;
        Ok(backup)
    }

    /// Refuses a backup that would fill the file system, on which the journal may be too: a dump is seldom smaller than half of
    /// what the values take.
    fn has_room(&self, root: &Path) -> Result<(), String> {
        let stats = self.shard.store.stats();
        let needed = (stats.object_bytes + stats.flash_live_bytes) / 2;
        // The first directory that exists: the backup path may not yet.
        let Some(there) = root.ancestors().find(|folder| folder.is_dir()) else { return Ok(()) };
        let free = rustix::fs::statvfs(there).map_err(|error| about(there, error))?;
        enough(root, needed, free.f_bavail.saturating_mul(free.f_frsize))
    }

    /// Makes the directory that becomes the backup, beside it.
    fn create_draft(&self, target: &Path) -> Result<PathBuf, String> {
        let folder = parent(target);
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| about(folder, error))?;
        let leaf = target.file_name().unwrap_or_default().to_string_lossy();
        let ending = format!(".{}.part", self.name());
        // A database makes one backup at a time, so what is there is of a node that has ended meanwhile.
        for entry in fs::read_dir(folder).map_err(|error| about(folder, error))?.filter_map(Result::ok) {
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| name.starts_with('.') && name.ends_with(&ending)) {
                fs::remove_dir_all(entry.path()).map_err(|error| about(&entry.path(), error))?;
            }
        }
        let draft = folder.join(format!(".{leaf}{ending}"));
        DirBuilder::new().mode(0o700).create(&draft).map_err(|error| about(&draft, error))?;
        Ok(draft)
    }
}

/// Whether a backup may take this name.
fn is_free(target: &Path) -> Result<(), String> {
    match fs::read_dir(target).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!("{} is not empty", target.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(about(target, error)),
    }
}

fn enough(root: &Path, needed: u64, free: u64) -> Result<(), String> {
    if free >= needed {
        return Ok(());
    }
    Err(format!(
        "{} has {} free, but the backup needs at least {}: {} are missing",
        root.display(),
        human(free),
        human(needed),
        human(needed - free)
    ))
}

/// `20261123-011105-123`, in UTC: names sort by time.
fn file_name(now_ms: u64) -> String {
    base::time::instant(now_ms).replace(['-', ':', 'Z'], "").replace(['T', '.'], "-")
}

fn parent(path: &Path) -> &Path {
    path.parent().expect("a backup is below the backup path")
}

fn sync(folder: &Path) -> Result<(), String> {
    manifest::sync(folder).map_err(|error| about(folder, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_by_time_and_room_is_counted() {
        assert_eq!(file_name(1_795_284_245_678), "20261121-180405-678");
        let root = Path::new("/backups");
        assert_eq!(enough(root, 10, 10), Ok(()));
        let why = "/backups has 9 B free, but the backup needs at least 10 B: 1 B are missing".to_owned();
        assert_eq!(enough(root, 10, 9), Err(why));
    }
}
