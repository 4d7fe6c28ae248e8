//! Owns the checking of a database's backups and of its archive, once in `scrub-interval`. Damage is told, and stays as it is: a later
//! backup is the cure. Never decides when.

use super::archive::{folder, logs};
use super::card::{self, DUMP};
use super::verify::verify_with;
use crate::database::Database;
use crate::files::about;
use crate::progress::Backup;
use journal::archive;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

/// Reads a whole dump, and compares it with the description of its backup.
pub fn check(root: &Path, backup: &Backup) -> Result<(), String> {
    check_with(root, backup, &mut |_| Ok(()))
}

fn check_with(root: &Path, backup: &Backup, read: &mut dyn FnMut(u64) -> io::Result<()>) -> Result<(), String> {
    let dump = root.join(&backup.path).join(DUMP);
    match verify_with(&dump, read)?.sha256 == backup.sha256 {
        true => Ok(()),
        false => Err(about(&dump, format!("its SHA-256 differs from the one in {}", card::CARD))),
    }
}

impl Database {
    /// Reads everything. `read` is told how many bytes more were read: it may wait, or stop this with an error.
    pub(crate) fn check_backups(&self, read: &mut dyn FnMut(u64) -> io::Result<()>) {
        let root = self.hub.config.snapshot().backup_path.clone();
        let all = card::list(&root).into_iter().filter(|backup| backup.database == self.name());
        for backup in all {
            let checked = check_with(&root, &backup, read);
            self.note_checked_backup(&backup, checked);
        }
        for (log_id, of_log) in logs(&folder(&root, self.name())) {
            for stretch in archive::list(&of_log).unwrap_or_default() {
                let file = of_log.join(stretch.name());
                let checked = archive::verify(&of_log, stretch, log_id, read);
                self.note_checked(&file, checked.map(drop).map_err(|error| about(&file, error)));
            }
        }
    }

    pub(crate) fn note_checked_backup(&self, backup: &Backup, checked: Result<(), String>) {
        let root = self.hub.config.snapshot().backup_path.clone();
        self.note_checked(&root.join(&backup.path).join(DUMP), checked);
    }

    /// The journal before the oldest backup is of no use any more.
    pub(crate) fn backup_is_gone(&self) {
        self.files.backups.archiving.pruned_ms.store(0, Relaxed);
    }

    fn note_checked(&self, file: &Path, checked: Result<(), String>) {
        let damaged = &self.files.backups.damaged;
        match checked {
            Ok(()) => drop(damaged.lock().remove(file)),
            // It may have been deleted meanwhile, by the schedule for example.
            Err(_) if self.hub.is_closing.load(Relaxed) || !file.exists() => {}
            Err(why) => {
                if damaged.lock().insert(file.to_owned()) {
                    tracing::error!("database '{}': the scrubber has found a damaged backup: {why}", self.hub.name);
                    self.files.backups.damaged_found.fetch_add(1, Relaxed);
                }
            }
        }
    }

    /// Files of backups and of the archive that are damaged, as far as is known, and still there.
    pub(crate) fn damaged_backups(&self) -> u64 {
        let mut damaged = self.files.backups.damaged.lock();
        damaged.retain(|file: &PathBuf| file.exists());
        damaged.len() as u64
    }
}
