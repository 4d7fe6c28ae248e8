//! Owns the way from a backup to a new database. A mark beside the database's definition names the backup until the dataset is loaded, so a
//! node that crashes meanwhile begins again. Never knows how a dump is loaded.

use super::card::{self, DUMP};
use super::{place, verify};
use crate::database::Database;
use crate::files::{Plan, about};
use crate::progress::Backup;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

/// A backup that a database is to get its dataset from.
pub struct Restore {
    backup: Backup,
    dump: PathBuf,
    mark: PathBuf,
}

impl Restore {
    /// What the mark of a database says. `None`: there is no mark.
    pub fn of_mark(mark: &Path, root: &Path) -> Result<Option<Restore>, String> {
        match fs::read_to_string(mark) {
            Ok(path) => {
                let backup = find(root, path.trim_end())?;
                let dump = root.join(&backup.path).join(DUMP);
                Ok(Some(Restore { backup, dump, mark: mark.to_owned() }))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(about(mark, error)),
        }
    }

    /// Compares the dump with its description, and loads it. The gate is closed, and the caller holds the lock of files.
    pub fn load(&self, database: &Database) -> Result<(), String> {
        let (files, backup) = (&database.files, &self.backup);
        files.loading_total_bytes.store(backup.bytes, Relaxed);
        let found = verify::verify(&self.dump, &files.loaded_bytes, &database.hub.is_closing)?;
        if found.sha256 != backup.sha256 {
            let what = format!("its SHA-256 is {}, and its description says {}", found.sha256, backup.sha256);
            return Err(about(&self.dump, what));
        }
        database.load(&Plan::dump(&self.dump)?)
    }

    /// The dataset is there: the next start does not begin again.
    pub fn end(&self) -> Result<(), String> {
        fs::remove_file(&self.mark).map_err(|error| about(&self.mark, error))
    }
}

/// The backup that an operator means.
pub fn find(root: &Path, given: &str) -> Result<Backup, String> {
    card::read(root, &place::below(root, given)?)
}
