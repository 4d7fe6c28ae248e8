//! Owns which backup and which archived records give the dataset of a moment, and why there may be none. Never reads a record.

use super::archive::{folder, of_log};
use super::card;
use super::place;
use crate::files::about;
use crate::progress::{Backup, Cut};
use base::time::instant;
use journal::archive::{self, Stretch};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The archived records behind a backup, without a gap.
pub struct Chain {
    pub folder: PathBuf,
    pub cut: Cut,
    pub stretches: Vec<Stretch>,
    /// The last moment that they reach.
    until_ms: u64,
    /// The first gap of the archive: the positions on both sides.
    gap: Option<(u64, u64)>,
}

impl Chain {
    /// `all`: the archive of the backup's journal.
    fn of(folder: PathBuf, cut: Cut, all: &[Stretch]) -> Chain {
        let (mut end, mut chain) =
            (cut.position, Chain { folder, cut, stretches: Vec::new(), until_ms: cut.at_ms, gap: None });
        for &stretch in all.iter().filter(|stretch| stretch.end >= cut.position) {
            if stretch.start > end {
                chain.gap = Some((end, stretch.start));
                break;
            }
            // Records may have been copied twice, so the stretches before may have all of this one.
            if stretch.end > end || stretch.start == stretch.end || end == cut.position {
                end = end.max(stretch.end);
                chain.until_ms = chain.until_ms.max(stretch.until_ms);
                chain.stretches.push(stretch);
            }
        }
        chain
    }

    /// Drops the stretches behind the moment. An error tells why the chain does not reach it.
    fn cut_to(mut self, at_ms: u64) -> Result<Chain, String> {
        let (at, until) = (instant(at_ms), instant(self.until_ms));
        if at_ms > self.until_ms {
            return Err(match self.gap {
                _ if self.stretches.is_empty() => format!(
                    "{} has no archived journal after the backup. A database archives its journal only if backup-journal-keep is set",
                    self.folder.display()
                ),
                Some((from, to)) => format!(
                    "the archived journal has a gap from position {from} to {to}: only times up to {until} can be restored, but {at} is later"
                ),
                None => format!("the journal is archived only up to {until}, but {at} is later"),
            });
        }
        // Records of the same millisecond may be in the next stretch.
        let needed = self.stretches.iter().take_while(|stretch| stretch.until_ms <= at_ms).count() + 1;
        self.stretches.truncate(needed);
        Ok(self)
    }
}

/// The archive of the journal that goes on from a backup.
fn folder_of(root: &Path, backup: &Backup, cut: Cut) -> PathBuf {
    // If the database's directory was copied, the copy has the archive too.
    let beside = root.join(&backup.path).parent().map(|above| of_log(&above.join("journal"), cut.log_id));
    match beside {
        Some(beside) if beside.is_dir() => beside,
        _ => of_log(&folder(root, &backup.database), cut.log_id),
    }
}

/// For each backup, the last moment that can be restored from it and the archived journal. `None`: only the backup's own moment. An archive
/// may have many files, and many backups one archive, so each directory is listed once.
pub fn reaches_ms(root: &Path, backups: &[Backup]) -> Vec<Option<u64>> {
    let mut listed: HashMap<PathBuf, Vec<Stretch>> = HashMap::new();
    let mut reach = |backup: &Backup| {
        let cut = backup.cut?;
        let folder = folder_of(root, backup, cut);
        let all = listed.entry(folder.clone()).or_insert_with(|| archive::list(&folder).unwrap_or_default());
        let chain = Chain::of(folder, cut, all);
        (!chain.stretches.is_empty()).then_some(chain.until_ms)
    };
    backups.iter().map(&mut reach).collect()
}

/// The newest backup before the moment. `given` is one, or a directory of backups.
pub fn choose(root: &Path, given: &str, at_ms: u64) -> Result<Backup, String> {
    let path = place::below(root, given)?;
    let at = instant(at_ms);
    if root.join(&path).join(card::CARD).exists() {
        let backup = card::read(root, &path)?;
        let cut_ms = moment_of(&backup)?;
        return match cut_ms <= at_ms {
            true => Ok(backup),
            false => Err(format!(
                "the backup {path} was made at {}, but {at} is earlier: give an older backup, or the directory that has all backups",
                instant(cut_ms)
            )),
        };
    }
    let is_in = |backup: &Backup| Path::new(&backup.path).parent() == Some(Path::new(&path));
    let all: Vec<Backup> = card::list(root).into_iter().filter(is_in).collect();
    if all.is_empty() {
        return Err(format!("there is no backup in {}", root.join(&path).display()));
    }
    let moments = || all.iter().filter_map(|backup| Some((moment_of(backup).ok()?, backup)));
    let newest = moments().filter(|&(cut_ms, _)| cut_ms <= at_ms).max_by_key(|&(cut_ms, _)| cut_ms);
    match (newest, moments().map(|(cut_ms, _)| cut_ms).min()) {
        (Some((_, backup)), _) => Ok(backup.clone()),
        (None, Some(first_ms)) => {
            Err(format!("the oldest backup in {path} was made at {}, but {at} is earlier", instant(first_ms)))
        }
        (None, None) => moment_of(&all[0]).map(|_| all[0].clone()),
    }
}

/// When the dataset was as the backup has it. An error tells why no journal can go on from there.
fn moment_of(backup: &Backup) -> Result<u64, String> {
    let path = &backup.path;
    match backup.cut {
        None => Err(format!(
            "the backup {path} does not say at which position of the journal it was made: only backups of databases with persistence do, and those of earlier releases do not"
        )),
        Some(_) if backup.rdb_version != crate::files::FIELDS_VERSION => Err(format!(
            "the backup {path} has version {} of the RDB format: only a backup of version {} has everything that the journal's changes build on",
            backup.rdb_version,
            crate::files::FIELDS_VERSION
        )),
        Some(cut) => Ok(cut.at_ms),
    }
}

/// What gives the dataset of a moment, behind this backup.
pub fn chain_to(root: &Path, backup: &Backup, at_ms: u64) -> Result<Chain, String> {
    moment_of(backup)?;
    let cut = backup.cut.expect("it has a moment");
    let folder = folder_of(root, backup, cut);
    let all = archive::list(&folder).map_err(|error| about(&folder, error))?;
    Chain::of(folder, cut, &all).cut_to(at_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUT: Cut = Cut { log_id: [7; 16], position: 50, at_ms: 1000 };

    fn chain(all: &[(u64, u64, u64)]) -> Chain {
        let all: Vec<Stretch> = all.iter().map(|&(start, end, until_ms)| Stretch { start, end, until_ms }).collect();
        Chain::of("/a".into(), CUT, &all)
    }

    fn needed(all: &[(u64, u64, u64)], at_ms: u64) -> Result<Vec<u64>, String> {
        chain(all).cut_to(at_ms).map(|chain| chain.stretches.iter().map(|stretch| stretch.start).collect())
    }

    #[test]
    fn a_moment_needs_the_stretches_from_the_backup_on() {
        let all = [(0, 40, 900), (40, 60, 1100), (60, 90, 1200), (90, 90, 1300), (90, 99, 1400)];
        assert_eq!(needed(&all, 1000), Ok(vec![40]), "the backup may be in the middle of a stretch");
        assert_eq!(needed(&all, 1099), Ok(vec![40]));
        assert_eq!(needed(&all, 1100), Ok(vec![40, 60]), "the next stretch may begin in the same millisecond");
        assert_eq!(needed(&all, 1250), Ok(vec![40, 60, 90]));
        assert_eq!(needed(&all, 1400), Ok(vec![40, 60, 90, 90]));
        let late = "the journal is archived only up to 1970-01-01T00:00:01.400Z, but 1970-01-01T00:00:01.401Z is later";
        assert_eq!(needed(&all, 1401), Err(late.to_owned()));
        assert_eq!(needed(&all[..2], 1000), Ok(vec![40]));
    }

    #[test]
    fn a_gap_and_an_empty_archive_are_told() {
        let gap = "the archived journal has a gap from position 60 to 61: only times up to 1970-01-01T00:00:01.100Z can be restored, but 1970-01-01T00:00:01.200Z is later";
        assert_eq!(needed(&[(40, 60, 1100), (61, 90, 1200)], 1200), Err(gap.to_owned()));
        assert_eq!(needed(&[(40, 60, 1100), (61, 90, 1200)], 1100), Ok(vec![40]));
        for all in [&[][..], &[(0, 40, 900)], &[(51, 60, 1100)]] {
            let why = needed(all, 1050).unwrap_err();
            assert!(why.starts_with("/a has no archived journal after the backup"), "{why}");
        }
    }
}
