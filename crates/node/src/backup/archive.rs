//! Owns the archive of a database's journal: when records are copied beside the backups, and which copies go. Never knows what a
//! record means, nor who reads it again.
//!
//! ```text
//! backup-path/NAME/journal/LOG-ID/     see `journal::archive`
//! ```
//! Records are copied once a minute. A checkpoint makes the journal's files free for new records, so their records are copied before it. So
//! the archive has no gap, and holds no room on flash. The checkpoint does not wait, and the archive gets a gap, in two cases only: room
//! for the journal or on flash is short, or the backup path cannot be written.

use super::card;
use crate::database::Database;
use crate::files::{FIELDS_VERSION, about};
use crate::progress::{Backup, DurableState};
use base::clock::wall_ms;
use journal::archive::{self, Stretch, Writer};
use journal::{Record, View};
use std::fs::{self, DirBuilder};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

const ROUND_MS: u64 = 60_000;
/// Records are also copied as soon as there are so many bytes of them. It is the size of a journal's file, which is the least that a look
/// at the journal reads.
const ROUND_BYTES: u64 = 64 << 20;
const FILE_BYTES: u64 = 64 << 20;
/// Between two looks for copies that are not needed any more.
const PRUNE_MS: u64 = 600_000;
/// Reading a journal may fail while a process writes it, so it is tried this many times.
const LOOKS: u32 = 3;

/// Why a copy has ended early.
enum Ended {
    /// The copy must not go on: writers wait for room that a checkpoint frees, or the database is being closed.
    InTheWay,
    Failed(String),
}

impl From<String> for Ended {
    fn from(why: String) -> Ended {
        Ended::Failed(why)
    }
}

/// The archive of the journals of the database `name`.
pub fn folder(root: &Path, name: &str) -> PathBuf {
    root.join(name).join("journal")
}

/// The archive of one journal.
pub fn of_log(folder: &Path, log_id: [u8; 16]) -> PathBuf {
    folder.join(format!("{:032x}", u128::from_be_bytes(log_id)))
}

impl Database {
    /// Called once a second: copies records if that is due.
    pub(crate) fn tick_archive(&self, now_ms: u64) {
        let archiving = &self.files.backups.archiving;
        let Some(kept) = self.archived() else { return };
        let begun_ms = archiving.begun_ms.load(Relaxed);
        let rests = begun_ms <= now_ms && now_ms - begun_ms < ROUND_MS;
        let waiting = kept.log.position().saturating_sub(archiving.position.load(Relaxed));
        let has_failed = archiving.failure.lock().is_some();
        if rests && (waiting < ROUND_BYTES || has_failed) || archiving.next.is_locked() {
            return;
        }
        let Some(database) = self.me.upgrade() else { return };
        archiving.begun_ms.store(now_ms, Relaxed);
        let copy = move || {
            database.archive(&kept, false);
            database.prune_if_due(&kept, now_ms);
        };
        if let Err(error) = std::thread::Builder::new().name("archive".into()).spawn(copy) {
            self.note_archived(Err(Ended::Failed(format!("cannot start a thread: {error}"))));
        }
    }

    /// The journal, if it is to be archived.
    fn archived(&self) -> Option<DurableState> {
        let is_on = self.hub.config.snapshot().backup_journal_keep_ms > 0;
        if !is_on {
            // The journal is not to be archived any more, so an earlier failure does not count.
            *self.files.backups.archiving.failure.lock() = None;
            return None;
        }
        self.files.journal.kept.lock().clone()
    }

    /// The failures of the archive since the last call (`Err`), and their ends (`Ok`).
    pub fn take_archive_news(&self) -> Vec<Result<String, String>> {
        self.files.backups.archiving.untold.lock().drain(..).collect()
    }

    /// Whether this journal is being archived.
    pub(crate) fn archives(&self, log_id: [u8; 16]) -> bool {
        self.archived().is_some_and(|kept| kept.manifest.log_id == log_id)
    }

    /// Copies all records up to now, because a new database is to be restored to a recent moment.
    pub(crate) fn archive_now(&self) -> Result<(), String> {
        let Some(kept) = self.archived() else { return Ok(()) };
        self.archive(&kept, true);
        match &*self.files.backups.archiving.failure.lock() {
            Some(why) => Err(why.clone()),
            None => Ok(()),
        }
    }

    /// Copies the records before a checkpoint makes their files free. A failure does not hold the checkpoint up.
    pub(crate) fn archive_before_checkpoint(&self, kept: &DurableState) {
        if self.hub.config.snapshot().backup_journal_keep_ms > 0 {
            self.archive(kept, false);
        }
    }

    /// Copies the records from the end of the archive up to now. `is_marked`: the archive notes this time even if there are no records.
    fn archive(&self, kept: &DurableState, is_marked: bool) {
        let copied = self.copy_records(kept, is_marked);
        self.note_archived(copied);
    }

    fn copy_records(&self, kept: &DurableState, is_marked: bool) -> Result<(), Ended> {
        let (backups, log_id) = (&self.files.backups, kept.manifest.log_id);
        let archiving = &backups.archiving;
        let mut next = archiving.next.lock();
        // Take the time before the position: records behind the position are then of a later time.
        let until_ms = wall_ms();
        let end = kept.log.position();
        kept.log.make_durable(end)?;
        let root = &self.hub.config.snapshot().backup_path;
        let folder = of_log(&folder(root, self.name()), log_id);
        let from = match *next {
            Some((log, position)) if log == log_id => position,
            _ => {
                let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
                let all = made.and_then(|()| archive::list(&folder)).map_err(|error| about(&folder, error))?;
                all.iter().map(|stretch| stretch.end).max().unwrap_or(kept.manifest.position)
            }
        };
        if from > end {
            return Err(Ended::Failed(format!(
                "{} has records up to position {from}, but the journal ends at {end}: the journal was restored from an older copy. Move that directory to another place",
                folder.display()
            )));
        }
        *next = Some((log_id, from));
        if from < end || is_marked {
            let (from, view) = self.look(kept, from, end)?;
            *next = Some((log_id, from));
            let mut copy = Copy { folder: &folder, log_id, writer: None, at: from, last_ms: 0 };
            let copied = self.copy_stretches(kept, &view, &mut copy, (end, until_ms), &mut next);
            copied.inspect_err(|_| copy.discard())?;
        }
        archiving.position.store(end, Relaxed);
        archiving.until_ms.store(until_ms, Relaxed);
        Ok(())
    }

    /// Copies the records of the view before a position. `next` follows what is on the device.
    fn copy_stretches(
        &self,
        kept: &DurableState,
        view: &View,
        copy: &mut Copy<'_>,
        (end, until_ms): (u64, u64),
        next: &mut Option<([u8; 16], u64)>,
    ) -> Result<(), Ended> {
        let (log_id, folder) = (copy.log_id, copy.folder);
        let failed = |error| Ended::Failed(about(folder, error));
        let mut ended = None;
        let read = view.records(&mut |position, record| {
            if position > end {
                return ControlFlow::Break(());
            }
            if self.is_archive_in_the_way(kept) {
                ended = Some(Ended::InTheWay);
                return ControlFlow::Break(());
            }
            match copy.put(position, record) {
                Ok(stretch) => *next = stretch.map_or(*next, |stretch| Some((log_id, stretch.end))),
                Err(error) => ended = Some(failed(error)),
            }
            if ended.is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        if let Some(why) = ended {
            return Err(why);
        }
        read.map_err(|error| Ended::Failed(error.to_string()))?;
        let stretch = copy.finish(end, until_ms).map_err(failed)?;
        *next = Some((log_id, stretch.end));
        Ok(())
    }

    /// A view of the journal from position `from`. If the journal does not have these records any more, the view begins at the checkpoint's position.
    fn look(&self, kept: &DurableState, from: u64, end: u64) -> Result<(u64, View), String> {
        let mut why = String::new();
        let starts = std::iter::repeat_n(from, LOOKS as usize).chain([kept.manifest.position]);
        for start in starts.filter(|&start| start >= from) {
            match View::open(&kept.folder, kept.manifest.log_id, start) {
                Ok(view) if view.end() < end => {
                    why = format!("the journal can be read only up to position {}", view.end())
                }
                Ok(view) => {
                    if start > from {
                        let gap = format!(
                            "the archive of the journal has a gap from position {from} to {start}: no time in this gap can be restored, and no later time until the next backup is made"
                        );
                        tracing::error!("database '{}': {gap}", self.hub.name);
                        self.files.backups.archiving.report(Err(gap));
                    }
                    return Ok((start, view));
                }
                Err(error) => why = error.to_string(),
            }
        }
        Err(why)
    }

    /// Whether the copy must stop: a checkpoint has to free room for writers first, or the database is being closed.
    fn is_archive_in_the_way(&self, kept: &DurableState) -> bool {
        let is_short = || kept.log.is_behind() && kept.log.figures().trouble.is_some();
        self.hub.is_closing.load(Relaxed) || is_short() || self.shard.store.is_short_of_segments()
    }

    /// Stores the outcome. Reports the first failure, and the first success behind it.
    fn note_archived(&self, copied: Result<(), Ended>) {
        let archiving = &self.files.backups.archiving;
        let why = match copied {
            Ok(()) => None,
            Err(Ended::InTheWay) if self.hub.is_closing.load(Relaxed) => return,
            Err(Ended::InTheWay) => {
                Some("writes wait for room in the journal, so a checkpoint is written first".to_owned())
            }
            Err(Ended::Failed(why)) => Some(why),
        };
        let before = std::mem::replace(&mut *archiving.failure.lock(), why.clone());
        match (before, why) {
            (None, Some(why)) => {
                let text = format!("the journal is not archived: {why}");
                tracing::error!("database '{}': {text}", self.hub.name);
                archiving.report(Err(text));
            }
            (Some(_), None) => {
                tracing::info!("database '{}': the journal is archived again", self.hub.name);
                archiving.report(Ok("the journal is archived again".to_owned()));
            }
            _ => {}
        }
    }

    fn prune_if_due(&self, kept: &DurableState, now_ms: u64) {
        let pruned_ms = &self.files.backups.archiving.pruned_ms;
        let before_ms = pruned_ms.load(Relaxed);
        if before_ms <= now_ms && now_ms - before_ms < PRUNE_MS {
            return;
        }
        pruned_ms.store(now_ms, Relaxed);
        self.prune_archive(kept.manifest.log_id, now_ms);
    }

    /// Deletes copies from which no moment can be restored any more, and those of moments that are too old.
    pub(crate) fn prune_archive(&self, current: [u8; 16], now_ms: u64) {
        let config = self.hub.config.snapshot();
        if config.backup_journal_keep_ms == 0 {
            return;
        }
        let since_ms = now_ms.saturating_sub(config.backup_journal_keep_ms);
        let backups = match card::list_all(&config.backup_path) {
            Ok(backups) => backups,
            // A backup that is overlooked would lose the records behind it for ever.
            Err(why) => {
                let name = &self.hub.name;
                tracing::warn!(
                    "database '{name}': nothing of its archived journal is deleted now, because it is not known which backups there are: {why}"
                );
                return;
            }
        };
        let folder = folder(&config.backup_path, self.name());
        for (log_id, of_log) in logs(&folder) {
            let Ok(all) = archive::list(&of_log) else { continue };
            let cuts = cuts(&backups, log_id);
            let old = superfluous(&all, &cuts, since_ms, log_id == current);
            for stretch in old {
                if let Err(error) = fs::remove_file(of_log.join(stretch.name())) {
                    tracing::warn!("cannot delete an old file of the archived journal: {}", about(&of_log, error));
                }
            }
            if log_id != current {
                // Succeeds when nothing is left in it.
                let _ = fs::remove_dir(&of_log);
            }
        }
    }
}

/// The archives of all journals that a database has had.
pub fn logs(folder: &Path) -> Vec<([u8; 16], PathBuf)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let logs = names.filter_map(|name| {
        let log_id = u128::from_str_radix(&name, 16).ok()?.to_be_bytes();
        let path = of_log(folder, log_id);
        path.ends_with(&name).then_some((log_id, path))
    });
    logs.collect()
}

/// The moments of the backups that a journal goes on from, and their positions.
fn cuts(backups: &[Backup], log_id: [u8; 16]) -> Vec<(u64, u64)> {
    // A moment cannot be restored from a backup without them: see `point_in_time`.
    let with_fields = backups.iter().filter(|backup| backup.rdb_version == FIELDS_VERSION);
    let cuts = with_fields.filter_map(|backup| backup.cut.as_ref());
    cuts.filter(|cut| cut.log_id == log_id).map(|cut| (cut.at_ms, cut.position)).collect()
}

/// The copies that are not needed to restore moments since `since_ms`. The first of these moments is restored from the newest backup before
/// it, so older copies are not needed. `cuts`: the moments and positions of this journal's backups. A journal that is not the current one
/// gets no more records.
fn superfluous<'a>(all: &'a [Stretch], cuts: &[(u64, u64)], since_ms: u64, is_current: bool) -> Vec<&'a Stretch> {
    let is_over = !is_current && all.iter().all(|stretch| stretch.until_ms < since_ms);
    let before = cuts.iter().filter(|&&(at_ms, _)| at_ms <= since_ms).max();
    let first = before.or_else(|| cuts.iter().min());
    let is_old = |stretch: &&Stretch| match first {
        _ if is_over => true,
        Some(&(_, position)) => stretch.end <= position,
        None => stretch.until_ms < since_ms,
    };
    all.iter().filter(is_old).collect()
}

/// A copy in progress.
struct Copy<'f> {
    folder: &'f Path,
    log_id: [u8; 16],
    /// `None`: no file is begun.
    writer: Option<Writer>,
    /// The position after the last record.
    at: u64,
    /// The latest time of the records.
    last_ms: u64,
}

impl Copy<'_> {
    /// Adds a record. If this completes a file, returns what the file has.
    fn put(&mut self, position: u64, record: &Record<'_>) -> io::Result<Option<Stretch>> {
        let writer = self.writer()?;
        writer.put(position, record)?;
        let is_full = writer.bytes() >= FILE_BYTES;
        (self.at, self.last_ms) = (position, self.last_ms.max(record.time_ms));
        if is_full { self.finish(position, self.last_ms).map(Some) } else { Ok(None) }
    }

    fn finish(&mut self, end: u64, until_ms: u64) -> io::Result<Stretch> {
        self.writer()?;
        self.at = end;
        self.writer.take().expect("it was begun").finish(end, until_ms)
    }

    fn writer(&mut self) -> io::Result<&mut Writer> {
        match &mut self.writer {
            Some(writer) => Ok(writer),
            none => Ok(none.insert(Writer::create(self.folder, self.log_id, self.at)?)),
        }
    }

    fn discard(&mut self) {
        self.writer.take().into_iter().for_each(Writer::discard);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Cut;

    #[test]
    fn copies_stay_from_the_newest_backup_before_the_time_on() {
        let stretch = |start, end, until_ms| Stretch { start, end, until_ms };
        let all = [stretch(0, 10, 100), stretch(10, 20, 200), stretch(20, 30, 300)];
        let gone = |cuts: &[(u64, u64)], since_ms, is_current| {
            let gone = superfluous(&all, cuts, since_ms, is_current);
            gone.iter().map(|stretch| stretch.end).collect::<Vec<_>>()
        };
        // Without a backup nothing can be reached, but one may be made.
        assert_eq!(gone(&[], 150, true), [10]);
        assert_eq!(gone(&[], 350, true), [10, 20, 30]);
        // The first backup, however old the moments are before it.
        assert_eq!(gone(&[(160, 15)], 100, true), [10]);
        // The newest one before the time is where the first moment is reached from.
        assert_eq!(gone(&[(90, 5), (160, 15), (250, 25)], 240, true), [10]);
        assert_eq!(gone(&[(90, 5), (160, 15), (250, 25)], 260, true), [10, 20]);
        assert_eq!(gone(&[(90, 5)], 5000, true), [0; 0], "the journal goes on");
        assert_eq!(gone(&[(90, 5)], 5000, false), [10, 20, 30]);
        assert_eq!(gone(&[(90, 5)], 300, false), [0; 0]);
    }

    #[test]
    fn only_a_backup_that_moments_can_be_restored_from_counts() {
        let backup = |rdb_version, at_ms| Backup {
            path: String::new(),
            database: String::new(),
            created_ms: at_ms,
            node_version: String::new(),
            rdb_version,
            keys: 0,
            bytes: 0,
            sha256: String::new(),
            is_scheduled: false,
            cut: Some(Cut { log_id: [7; 16], position: at_ms, at_ms }),
        };
        let backups = [backup(FIELDS_VERSION, 90), backup(10, 160)];
        assert_eq!(cuts(&backups, [7; 16]), [(90, 90)]);
        assert_eq!(cuts(&backups, [8; 16]), []);
    }

    #[test]
    fn only_directories_of_journals_are_archives() {
        let root = tempfile::tempdir().unwrap();
        let folder = folder(root.path(), "orders");
        let log_id = *b"0123456789abcdef";
        for path in [of_log(&folder, log_id), folder.join("7"), folder.join("x")] {
            fs::create_dir_all(path).unwrap();
        }
        assert_eq!(logs(&folder), [(log_id, folder.join("30313233343536373839616263646566"))]);
        assert!(logs(&folder.join("none")).is_empty());
    }
}
