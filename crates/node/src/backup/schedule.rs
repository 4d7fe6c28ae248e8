//! Owns when the node makes a backup by itself, and which old ones it deletes. Never writes a backup.

use super::card::list;
use super::make::WantedBackup;
use crate::database::Database;
use crate::files::about;
use crate::progress::{Backup, EndedBackup};
use base::time::Schedule;
use engine::LoadState;
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

/// The time between a scheduled backup that failed and the next try, unless the schedule says less.
const RETRY_MS: u64 = 600_000;

/// Whether a backup is due. A moment of the day that passed while the node was down counts. `last_ms`: when the last one was begun, 0: never; `failed_ms`: when the last try failed, 0: it did not.
fn is_due(now_ms: u64, schedule: Schedule, last_ms: u64, failed_ms: u64) -> bool {
    let interval_ms = schedule.every_ms;
    let rests = failed_ms != 0 && now_ms < failed_ms.saturating_add(interval_ms.min(RETRY_MS));
    let is_over = || match schedule.last_moment_ms(now_ms) {
        Some(moment_ms) => last_ms < moment_ms,
        None => now_ms - last_ms >= interval_ms,
    };
    // A clock that was set back must not stop the backups.
    !rests && (last_ms == 0 || last_ms > now_ms || is_over())
}

/// The scheduled backups of a database that are too many. `all` is sorted, newest first. A copy elsewhere is somebody's own.
fn superfluous<'a>(all: &'a [Backup], database: &str, keep: usize) -> Vec<&'a Backup> {
    let is_in_place = |path: &str| path.strip_prefix(database).is_some_and(|rest| rest.starts_with('/'));
    let is_ours = |backup: &&Backup| backup.is_scheduled && backup.database == database && is_in_place(&backup.path);
    all.iter().filter(is_ours).skip(keep).collect()
}

impl Database {
    /// Begins a backup if the schedule says so. Called once a second.
    pub fn back_up_if_due(&self, now_ms: u64) {
        let config = self.hub.config.snapshot();
        let backups = &self.files.backups;
        let Some(schedule) = config.backup_schedule else { return };
        if self.hub.clients.load_state() != LoadState::Open || backups.running.lock().is_some() {
            return;
        }
        let last_ms = *backups.scheduled_ms.lock().get_or_insert_with(|| {
            let all = list(&config.backup_path);
            superfluous(&all, self.name(), 0).first().map_or(0, |newest| newest.created_ms)
        });
        if !is_due(now_ms, schedule, last_ms, backups.failed_ms.load(Relaxed)) {
            return;
        }
        let wanted = WantedBackup { is_scheduled: true, ..WantedBackup::default() };
        if let Err(error) = self.start_backup(&wanted, now_ms) {
            let why = format!("the backup cannot begin: {error}");
            tracing::error!("database '{}': {why}", self.hub.name);
            let ended = EndedBackup {
                path: String::new(),
                is_scheduled: true,
                started_ms: now_ms,
                took_ms: 0,
                outcome: Err(why),
            };
            self.scheduled_backup_ended(&ended);
            backups.note(ended);
        }
    }

    /// Notes the outcome, and deletes old backups behind a new one.
    pub(super) fn scheduled_backup_ended(&self, ended: &EndedBackup) {
        let backups = &self.files.backups;
        if ended.outcome.is_err() {
            backups.failed_ms.store(ended.started_ms.max(1), Relaxed);
            return;
        }
        backups.failed_ms.store(0, Relaxed);
        *backups.scheduled_ms.lock() = Some(ended.started_ms);
        let config = self.hub.config.snapshot();
        let all = list(&config.backup_path);
        for old in superfluous(&all, self.name(), config.backup_keep) {
            match remove(&config.backup_path, old) {
                Ok(()) => tracing::info!("database '{}': its backup {} is deleted", self.hub.name, old.path),
                Err(why) => tracing::warn!("cannot delete an old backup: {why}"),
            }
        }
        // The journal before the oldest backup is of no use any more.
        backups.archiving.pruned_ms.store(0, Relaxed);
    }
}

pub fn remove(root: &Path, backup: &Backup) -> Result<(), String> {
    let folder = root.join(&backup.path);
    fs::remove_dir_all(&folder).map_err(|error| about(&folder, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    #[test]
    fn a_backup_is_due_after_the_interval_and_not_at_once_after_a_failure() {
        let now = 1_000 * HOUR;
        let is_due = |now, every_ms, last, failed| is_due(now, Schedule { every_ms, at_ms: None }, last, failed);
        assert!(is_due(now, HOUR, 0, 0), "the first one");
        assert!(!is_due(now, HOUR, now - HOUR + 1, 0));
        assert!(is_due(now, HOUR, now - HOUR, 0));
        assert!(is_due(now, HOUR, now + 1, 0), "the clock was set back");
        assert!(!is_due(now, HOUR, 0, now - RETRY_MS + 1), "it has just failed");
        assert!(is_due(now, HOUR, 0, now - RETRY_MS));
        assert!(is_due(now, 60_000, 0, now - 60_000), "a short interval");
    }

    #[test]
    fn a_time_of_the_day_is_due_once_and_is_made_up_for() {
        let daily = Schedule::parse("1d at 03:00").unwrap();
        let three = 20_000 * 24 * HOUR + 3 * HOUR;
        assert!(is_due(three + HOUR, daily, 0, 0), "the first one");
        assert!(!is_due(three - 1, daily, three - 24 * HOUR, 0));
        assert!(is_due(three, daily, three - 24 * HOUR, 0));
        assert!(!is_due(three + 1_000, daily, three, 0));
        assert!(is_due(three, daily, three - HOUR, 0), "one that came late does not move the next one");
        assert!(is_due(three + 9 * HOUR, daily, three - 24 * HOUR, 0), "the node was down at three");
    }

    #[test]
    fn only_old_scheduled_backups_of_the_same_database_go() {
        let backup = |path: &str, database: &str, is_scheduled| Backup {
            path: path.to_owned(),
            database: database.to_owned(),
            created_ms: 0,
            node_version: String::new(),
            rdb_version: 12,
            keys: 0,
            bytes: 0,
            sha256: String::new(),
            is_scheduled,
            cut: None,
        };
        let all = [
            backup("a/5", "a", true),
            backup("b/4", "b", true),
            backup("a/3", "a", false),
            backup("copies/a/2", "a", true),
            backup("ab/2", "a", true),
            backup("a/2", "a", true),
            backup("a/1", "a", true),
        ];
        let gone = |keep| superfluous(&all, "a", keep).iter().map(|backup| backup.path.as_str()).collect::<Vec<_>>();
        assert_eq!(gone(1), ["a/2", "a/1"]);
        assert_eq!(gone(2), ["a/1"]);
        assert!(gone(3).is_empty());
    }
}
