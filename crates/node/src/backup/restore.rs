//! Owns the way from a backup to a new database. A mark beside the database's definition names the backup until the dataset is loaded, so a
//! node that crashes meanwhile begins again. Never knows how a dump is loaded, nor how a record runs.
//!
//! ```text
//! orders/20261123-011105-123      the backup
//! at 1795396265000                the moment, if it is another than the backup's
//! ```

use super::card::{self, DUMP};
use super::point_in_time::{self, Chain};
use super::{place, verify};
use crate::database::Database;
use crate::files::{Broken, Plan, Replay, about, load_base};
use crate::progress::Backup;
use base::time::instant;
use config::Policy;
use journal::archive::{self, Reader};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

/// What a new database is to begin with, as somebody asks for it.
pub struct Target {
    pub backup: Backup,
    /// `None`: the backup's own moment.
    at_ms: Option<u64>,
}

impl Target {
    /// The backup that an operator means: with a moment, the newest one before it.
    pub fn find(root: &Path, given: &str, at_ms: Option<u64>) -> Result<Target, String> {
        let backup = match at_ms {
            None => card::read(root, &place::below(root, given)?)?,
            Some(at_ms) => point_in_time::choose(root, given, at_ms)?,
        };
        Ok(Target { backup, at_ms })
    }

    /// An error tells why the moment cannot be reached.
    pub fn check(&self, root: &Path) -> Result<(), String> {
        self.at_ms.map_or(Ok(()), |at_ms| point_in_time::chain_to(root, &self.backup, at_ms).map(drop))
    }
}

/// The text of a mark. `path`: the backup's.
pub fn mark(path: &str, at_ms: Option<u64>) -> String {
    let at = at_ms.map_or(String::new(), |at_ms| format!("at {at_ms}\n"));
    format!("{path}\n{at}")
}

/// A backup that a database is to get its dataset from.
pub struct Restore {
    backup: Backup,
    dump: PathBuf,
    /// The records behind the backup, and the moment that they lead to.
    behind: Option<(Chain, u64)>,
    mark: PathBuf,
}

impl Restore {
    /// What the mark of a database says. `None`: there is no mark.
    pub fn of_mark(mark: &Path, root: &Path) -> Result<Option<Restore>, String> {
        let text = match fs::read_to_string(mark) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|error| about(mark, error))?,
        };
        let mut lines = text.lines();
        let path = lines.next().unwrap_or_default();
        let at_ms = match lines.next() {
            None => None,
            Some(line) => {
                let at_ms = line.strip_prefix("at ").and_then(|at_ms| at_ms.parse().ok());
                Some(at_ms.ok_or_else(|| about(mark, format!("'{line}' is not a time")))?)
            }
        };
        let backup = card::read(root, &place::below(root, path)?)?;
        let dump = root.join(&backup.path).join(DUMP);
        let behind = at_ms.map(|at_ms| Ok::<_, String>((point_in_time::chain_to(root, &backup, at_ms)?, at_ms)));
        Ok(Some(Restore { behind: behind.transpose()?, backup, dump, mark: mark.to_owned() }))
    }

    /// Compares what is there with what it should be, and loads it. The gate is closed, and the caller holds the lock of files.
    pub fn load(&self, database: &Database) -> Result<(), String> {
        let (files, backup) = (&database.files, &self.backup);
        files.loading_total_bytes.store(backup.bytes, Relaxed);
        let found = verify::verify(&self.dump, &files.loaded_bytes, &database.hub.is_closing)?;
        if found.sha256 != backup.sha256 {
            let what = format!("its SHA-256 is {}, but the backup's description says {}", found.sha256, backup.sha256);
            return Err(about(&self.dump, what));
        }
        let dump = Plan::dump(&self.dump)?;
        let Some((chain, at_ms)) = &self.behind else { return database.load(&dump) };
        // Nothing expires, and nothing is evicted: the journal tells what has expired and what was evicted by the moment.
        let store = &database.shard.store;
        store.set_policy(Policy::NoEviction);
        store.set_replaying(true);
        let loaded = check(database, chain).and_then(|bytes| {
            files.loaded_bytes.store(0, Relaxed);
            files.loading_total_bytes.store(backup.bytes + bytes, Relaxed);
            let loaded = load_base(database, &dump)?;
            files.keys_loaded.store(loaded.keys, Relaxed);
            replay(database, chain, *at_ms)
        });
        store.set_replaying(false);
        store.set_policy(database.hub.config.snapshot().maxmemory_policy);
        let records = loaded?;
        tracing::info!(
            "database '{}' is restored to the state of '{}' at {}: from the backup {} and {records} records of the journal after it",
            database.hub.name,
            backup.database,
            instant(*at_ms),
            backup.path
        );
        Ok(())
    }

    /// The dataset is there: the next start does not begin again.
    pub fn end(&self) -> Result<(), String> {
        fs::remove_file(&self.mark).map_err(|error| about(&self.mark, error))
    }
}

/// Reads all archived records that are needed, before the first one runs. Returns how many bytes there are.
fn check(database: &Database, chain: &Chain) -> Result<u64, String> {
    let mut bytes = 0;
    let mut read = |more| {
        bytes += more;
        match database.hub.is_closing.load(Relaxed) {
            true => Err(io::Error::other("the database is being closed")),
            false => Ok(()),
        }
    };
    for stretch in &chain.stretches {
        let checked = archive::verify(&chain.folder, *stretch, chain.cut.log_id, &mut read);
        checked.map_err(|error| about(&chain.folder.join(stretch.name()), error))?;
    }
    Ok(bytes)
}

/// Runs the records between the backup and the moment. The first command of a later time ends it, so that the dataset is as it was
/// once, also if a clock was set back. Returns how many have run.
///
/// What a replica has repeated has no time of its own. It belongs to the moments between those at which records were archived, so only
/// these moments can be had.
fn replay(database: &Database, chain: &Chain, at_ms: u64) -> Result<u64, String> {
    let mut replay = Replay::begin(database)?;
    let mut position = chain.cut.position;
    // No record behind `position` is of an earlier time.
    let mut reached_ms = chain.cut.at_ms;
    let mut run = || {
        for stretch in &chain.stretches {
            let failed = |error| Err(about(&chain.folder.join(stretch.name()), error));
            let mut reader = match Reader::open(&chain.folder, *stretch, chain.cut.log_id) {
                Ok(reader) => reader,
                Err(error) => return failed(error),
            };
            loop {
                let (end, record) = match reader.next_record() {
                    Ok(Some(next)) => next,
                    Ok(None) => break,
                    Err(error) => return failed(error),
                };
                // The backup has it, or a copy before.
                if end <= position {
                    continue;
                }
                if record.time_ms > at_ms {
                    return Ok(());
                }
                if record.time_ms == 0 && stretch.until_ms > at_ms {
                    return if reached_ms >= at_ms { Ok(()) } else { Err(has_no_time(at_ms, reached_ms)) };
                }
                if let Err(Broken) = replay.run(&record) {
                    // The end of the replay tells why.
                    return Ok(());
                }
                database.files.loaded_bytes.fetch_add(record.resp.len() as u64, Relaxed);
                position = end;
            }
            reached_ms = reached_ms.max(stretch.until_ms);
        }
        Ok(())
    };
    let read = run();
    let records = replay.records();
    replay.finish().and(read).map(|()| records)
}

fn has_no_time(at_ms: u64, reached_ms: u64) -> String {
    format!(
        "the journal has changes near {} that a replica has repeated, and does not say when: the last moment before it that can be restored is {}",
        instant(at_ms),
        instant(reached_ms)
    )
}
