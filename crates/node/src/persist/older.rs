//! Owns the older checkpoint that a copy in a shard with replicas keeps beside its newest one, with the journal behind it: the newest
//! checkpoint may have writes that only this copy has, and if another copy becomes primary without them, these are to be given up. Decides
//! how long it is kept. Never knows how something is given up (`truncate`).
//!
//! It is kept as long as some copy of the in-sync set may lack the moment of the newest checkpoint: usually for less than a second. It takes
//! the room of one more checkpoint, and of the journal between the two. When room is short, it goes.

use super::{find_file, remove_if_there};
use crate::database::Database;
use crate::files::about;
use crate::progress::DurableState;
use journal::manifest::{self, Found, Manifest};
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

/// The older checkpoint that an earlier run has left, if it can still be used.
pub fn find(folder: &Path, newest: &Manifest) -> Option<Manifest> {
    match manifest::read_older(folder) {
        Ok(Found::Dataset(older)) if older.is_behind(newest) => {
            let is_whole = older.files().all(|file| find_file(folder, file).is_ok());
            is_whole.then_some(older)
        }
        _ => None,
    }
}

/// Durable when it returns: afterwards, what only the older checkpoint names may be used again.
pub fn remove(folder: &Path) -> Result<(), String> {
    let path = folder.join(manifest::OLDER);
    if !path.exists() {
        return Ok(());
    }
    remove_if_there(&path).and_then(|()| manifest::sync(folder)).map_err(|error| about(&path, error))
}

impl Database {
    /// The offset of the stream up to which every copy that can be named primary has everything.
    fn shared_offset(&self) -> u64 {
        let journaling = self.journaling();
        // Read the end first: if this copy is alone afterwards, whoever joins has everything before it.
        let end = journaling.stream.offset();
        if let Some(shared) = journaling.serving.shared(end) {
            self.replication.shared.fetch_max(shared, Relaxed);
        }
        self.replication.shared.load(Relaxed)
    }

    /// Which checkpoint is to be kept beside a new one that was cut at this offset.
    pub(super) fn older_beside(&self, kept: &DurableState, offset: Option<u64>) -> Option<Manifest> {
        self.replication.promises.get()?;
        let shared = self.shared_offset();
        match &kept.older {
            _ if offset? <= shared => None,
            Some(older) if kept.manifest.stream.is_none_or(|mark| mark.offset > shared) => Some(older.clone()),
            _ => kept.manifest.stream.is_some().then(|| kept.manifest.clone()),
        }
    }

    /// Called once a second.
    pub(super) fn tick_older(&self, kept: &DurableState, is_pressed: bool) {
        if kept.older.is_none() {
            return;
        }
        let is_shared = kept.manifest.stream.is_some_and(|mark| mark.offset <= self.shared_offset());
        if is_shared || is_pressed {
            self.release_older((!is_shared).then_some("the journal needs its room"));
        }
    }

    /// Removes the older checkpoint. `why`: it may still be needed. False: there was none, or it could not be removed.
    pub(super) fn release_older(&self, why: Option<&str>) -> bool {
        let journal = &self.files.journal;
        let _naming = journal.naming.lock();
        let Some(kept) = journal.kept.lock().clone() else { return false };
        let Some(older) = &kept.older else { return false };
        if let Err(error) = remove(&kept.folder) {
            tracing::warn!("database '{}': its older checkpoint stays: {error}", self.name());
            return false;
        }
        if let Some(why) = why {
            tracing::warn!(
                "database '{}': its older checkpoint is removed, because {why}: if another copy is promoted now, this one may need a full synchronisation",
                self.name()
            );
        }
        if let Some(kept) = &mut *journal.kept.lock() {
            kept.older = None;
        }
        if let Some(cut) = kept.cut {
            self.shard.store.checkpoint_durable(cut);
        }
        kept.log.needed_from(kept.manifest.position);
        let is_of_newest = |name: &str| kept.manifest.files().any(|file| file.name == name);
        for file in older.files().filter(|file| !is_of_newest(&file.name)) {
            // The next checkpoint removes what stays.
            let _ = fs::remove_file(kept.folder.join(&file.name));
        }
        true
    }
}
