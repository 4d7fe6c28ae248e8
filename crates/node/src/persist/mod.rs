//! Owns what keeps a dataset over restarts: a *checkpoint*, which is a dump of the dataset at one moment, the journal of the changes
//! since, and the manifest that names both. Never knows how a record becomes durable (the crate `journal`), nor how a change
//! gets into the journal (`engine`).
//!
//! ```text
//! dir/flintkv.journal/          of the default database; dir/NAME/flintkv.journal/ of another
//!   manifest                    see `manifest`
//!   manifest.boot               see `boot`
//!   manifest.rates              see `rates`
//!   manifest.older              see `older`
//!   base-4711.rdb               a dump of version 12: all keys, also those that have expired, and all functions
//!   base-4711.index             if there is flash: the keys whose values are there; the dump has the others only
//!   journal-0000 …              the journal
//! ```
//!
//! - `recover` brings a dataset back: the checkpoint, and then the journal.
//! - `checkpoint` writes checkpoints: the first one, and new ones when the journal has grown.
//! - `rates` keeps what a restart costs.
//! - `last_checkpoint` has them written before the node ends.
//! - `scrub` reads the checkpoint now and then, to find damage.
//! - `older` keeps an older checkpoint as long as other copies of a shard may lack the newest one's moment.
//! - `truncate` gives up the end of a stream that a new primary does not have.
//! - `salvage` reads the flash of a dataset that no node serves, for `flintkv repair` and `flintkv journal export`.

mod boot;
mod checkpoint;
mod index;
pub mod last_checkpoint;
mod older;
mod rates;
mod recover;
pub mod salvage;
mod scrub;
mod truncate;
pub mod values;

use crate::backup::Restore;
use crate::database::Database;
use crate::files::{self, Plan, about, directory};
use crate::progress::{AtRest, DurableState};
use crate::shard::Values;
use config::{AppendFsync, Config, RedisFiles};
use engine::replication::Mark;
use engine::{LoadState, random};
use journal::manifest::{self, CheckpointFile, Found, Manifest};
use journal::{Opened, Policy, Settings};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// No database has such a name, so none has its directory here.
const FOLDER: &str = "flintkv.journal";
/// How often who switches persistence asks whether the dataset is loaded.
const LOADING_STEP: Duration = Duration::from_millis(5);
/// How long a thread that loads or saves a closing dataset may take to notice that.
const WRITERS_TIMEOUT: Duration = Duration::from_secs(10);
const PAGE_BYTES: u64 = flash::io::PAGE_BYTES as u64;
const FILE_BYTES: u64 = 64 << 20;
/// The journal's ring takes this share of the RAM limit. Its records that are not durable yet are in the writer's frames too, so they take
/// memory twice.
const RING_SHARE: u64 = 32;
const RING_BYTES_MIN: u64 = 1 << 20;
const RING_BYTES_MAX: u64 = 32 << 20;

/// How a database gets its dataset.
pub enum Start {
    /// It begins empty, and nothing survives its end.
    Empty,
    /// It begins with files of Redis, and nothing survives its end.
    Files(Plan),
    /// It is to survive from now on, beginning with files of Redis.
    TakeOver(Plan),
    /// It is to survive from now on.
    Begin,
    /// It has survived.
    Recover(Manifest, Option<Box<index::Found>>),
    /// It begins with a backup.
    Restore(Box<Restore>),
}

impl Start {
    /// The values on flash that have survived.
    pub fn values(&self) -> Option<&Values> {
        match self {
            Start::Recover(_, found) => found.as_ref().map(|found| &found.values),
            _ => None,
        }
    }
}

/// Decides how a database gets its dataset. Nothing is changed.
pub fn plan(name: &str, settings: &RedisFiles) -> Result<Start, String> {
    let folder = folder(name, settings);
    match (manifest::read(&folder)?, settings.appendonly) {
        (Found::Dataset(manifest), true) => {
            let found = index::open(&folder, &manifest)?;
            return Ok(Start::Recover(manifest, found.map(Box::new)));
        }
        (Found::Dataset(_), false) => {
            return Err(format!(
                "{} has the dataset of an earlier run, but appendonly is no: set appendonly yes to continue with it, or move the directory away to start without it",
                folder.display()
            ));
        }
        (Found::Nothing, _) if has_files(&folder) => {
            return Err(format!(
                "{} has files but no manifest: restore the manifest, or move the directory away to start without it",
                folder.display()
            ));
        }
        (Found::Nothing | Found::Void, _) => {}
    }
    Ok(match (files::plan(name, settings)?, settings.appendonly) {
        (None, false) => Start::Empty,
        (None, true) => Start::Begin,
        (Some(plan), false) => Start::Files(plan),
        (Some(plan), true) => Start::TakeOver(plan),
    })
}

/// Gives a new database its dataset. What takes long is done on a thread of its own.
pub fn start(database: &Arc<Database>, start: Start) -> io::Result<()> {
    let weak = Arc::downgrade(database);
    database.hub.config.subscribe(move |draft| {
        // A journal that begins or is recovered now follows the configuration when it is there: see `keep`.
        if let Some(database) = weak.upgrade()
            && let Some(kept) = &*database.files.journal.kept.lock()
        {
            kept.log.set_policy(policy(&draft.now.redis_files));
        }
    });
    match start {
        Start::Empty => Ok(()),
        Start::Files(plan) => files::start(database, move |database| {
            let _busy = database.files.busy.lock();
            database.load_with_stream(&plan)
        }),
        Start::TakeOver(plan) => files::start(database, move |database| {
            let _busy = database.files.busy.lock();
            database.load_with_stream(&plan)?;
            begin(database)
        }),
        Start::Begin => begin(database).map_err(io::Error::other),
        Start::Recover(manifest, found) => files::start(database, move |database| {
            let _busy = database.files.busy.lock();
            recover::recover(database, &folder_of(database), manifest, found.map(|found| *found))
        }),
        Start::Restore(restore) => files::start(database, move |database| {
            let _busy = database.files.busy.lock();
            restore.load(database)?;
            if database.hub.config.snapshot().redis_files.appendonly {
                begin(database)?;
            }
            restore.end()
        }),
    }
}

/// Makes what is there durable, and ends the journal.
pub fn close(database: &Database) {
    database.hub.dataset.journaling.stream.close();
    let Some(kept) = database.files.journal.kept.lock().take() else { return };
    if let Err(error) = kept.log.close() {
        tracing::error!("database '{}': its last changes may not be durable: {error}", database.hub.name);
    }
}

/// Removes the files of a database that is closed, because it is deleted. If this fails, it can be called again.
pub fn delete(database: &Database) -> Result<(), String> {
    // A thread may still be loading it, or writing a checkpoint. It ends by itself, because the database is closing.
    let _busy = database.files.at_end(WRITERS_TIMEOUT).ok_or_else(|| {
        format!("the files of '{}' cannot be removed: it is still being loaded or saved", database.hub.name)
    })?;
    // A load may have begun a journal meanwhile.
    close(database);
    let _naming = database.files.journal.naming.lock();
    // If this is interrupted, what is left can be opened again, as an empty dataset.
    if let Err(why) = database.shard.set_kept(false) {
        tracing::warn!("{why}");
    }
    remove(&database.hub.name, &database.hub.config.snapshot().redis_files)
}

/// As [`delete`], of a database that is not open. Nothing is read, because the files may be damaged. What is on flash stays.
pub fn remove(name: &str, settings: &RedisFiles) -> Result<(), String> {
    let folder = folder(name, settings);
    if !folder.exists() {
        return Ok(());
    }
    if journal::is_in_use(&folder) {
        return Err(about(&folder, "another process uses this journal"));
    }
    manifest::write(&folder, None)?;
    clear(&folder)
}

impl Database {
    /// Waits, up to `timeout` if there is any, until the dataset is neither saved nor loaded.
    pub(crate) fn files_at_rest(&self, timeout: Option<Duration>) -> Result<AtRest<'_>, String> {
        let until = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            let busy = match until {
                None => Some(self.files.busy.lock()),
                Some(until) => self.files.busy.try_lock_until(until),
            };
            let Some(busy) = busy else { return Err("the dataset is being saved or loaded: try again".to_owned()) };
            if self.hub.clients.load_state() == LoadState::Open {
                return Ok(AtRest(busy));
            }
            drop(busy);
            if self.hub.is_closing.load(Relaxed) || until.is_some_and(|until| Instant::now() >= until) {
                return Err("the dataset is being loaded: try again".to_owned());
            }
            std::thread::sleep(LOADING_STEP);
        }
    }

    /// Applies a changed `appendonly`. An error changes nothing.
    pub(crate) fn switch_journal(&self, is_on: bool, _files: &AtRest<'_>) -> Result<(), String> {
        let done = if is_on { begin(self) } else { end(self) };
        done.inspect_err(|why| tracing::error!("database '{}': appendonly is not switched: {why}", self.hub.name))
    }
}

/// Begins a journal and writes the first checkpoint, at whose moment the journal begins. The caller holds the lock of files.
pub fn begin(database: &Database) -> Result<(), String> {
    let config = database.hub.config.snapshot();
    let folder = folder(&database.hub.name, &config.redis_files);
    let is_new = !folder.exists();
    fs::create_dir_all(&folder).map_err(|error| about(&folder, error))?;
    if is_new && let Some(parent) = folder.parent() {
        manifest::sync(parent).map_err(|error| about(parent, error))?;
    }
    begin_in(database, &config, &folder).inspect_err(|_| {
        // The first error counts. What stays is cleared when a journal begins here the next time.
        if is_new && !matches!(manifest::read(&folder), Ok(Found::Dataset(_))) {
            let _ = clear(&folder);
        }
    })
}

fn begin_in(database: &Database, config: &Config, folder: &Path) -> Result<(), String> {
    if let Found::Dataset(_) = manifest::read(folder)? {
        return Err(format!("{} has another dataset", folder.display()));
    }
    // Refused while another process uses the directory.
    clear_files(folder)?;
    manifest::write(folder, None)?;
    let log_id = (u128::from(random::number()) << 64 | u128::from(random::number())).to_be_bytes();
    let opened = Opened::open(folder, &settings_of(log_id, config), 0).map_err(|error| error.to_string())?;
    let log = opened.start().map_err(|error| error.to_string())?;
    checkpoint::limit_journal(config, &log, 0);
    let attach = || {
        attach(database, &log);
        log.position()
    };
    let store = &database.shard.store;
    store.set_quarantine(store.has_flash());
    let written = checkpoint::write(database, folder, &log, &attach);
    let _naming = database.files.journal.naming.lock();
    match written.and_then(|written| checkpoint::publish(database, folder, (log_id, &[]), written, None)) {
        Ok((manifest, cut)) => {
            tracing::info!("database '{}' survives restarts from now on: {}", database.hub.name, folder.display());
            boot::note(folder);
            let folder = folder.to_owned();
            keep(database, DurableState { log, folder, manifest, older: None, cut });
            Ok(())
        }
        Err(why) => {
            database.hub.dataset.journaling.detach();
            store.set_quarantine(false);
            let _ = log.close();
            // The manifest of the checkpoint may be in force already. It must not name files that are gone.
            if let Err(why) = manifest::write(folder, None).and_then(|()| clear(folder)) {
                tracing::warn!("{why}");
            }
            Err(why)
        }
    }
}

/// From now on the dataset survives. `appendfsync` may have changed since the journal was opened.
fn keep(database: &Database, durable: DurableState) {
    let mut kept = database.files.journal.kept.lock();
    // Under the lock, so that a change that comes now is applied after this.
    durable.log.set_policy(policy(&database.hub.config.snapshot().redis_files));
    *kept = Some(durable);
}

/// Ends the journal, and removes what would survive. The caller holds the lock of files.
pub fn end(database: &Database) -> Result<(), String> {
    if !is_on(database) {
        return Ok(());
    }
    database.shard.set_kept(false)?;
    let kept = {
        let _naming = database.files.journal.naming.lock();
        let Some(kept) = database.files.journal.kept.lock().clone() else { return Ok(()) };
        if let Err(why) = manifest::write(&kept.folder, None) {
            take_back(database, &kept, why)?;
        }
        *database.files.journal.kept.lock() = None;
        kept
    };
    database.shard.store.set_quarantine(false);
    database.hub.dataset.journaling.detach();
    if let Err(error) = kept.log.close() {
        tracing::warn!("database '{}': {error}", database.hub.name);
    }
    // If this fails, the manifest says already that the files do not count.
    if let Err(why) = clear(&kept.folder) {
        tracing::warn!("{why}");
    }
    tracing::info!("database '{}' does not survive restarts from now on", database.hub.name);
    Ok(())
}

/// The manifest that says that there is no dataset could not be written, but it may be in force: then a restart would not find what is
/// acknowledged from now on. So the old one is written again. If it cannot be, and the dataset is gone for a restart, this is `Ok`, and the
/// journal ends.
fn take_back(database: &Database, kept: &DurableState, why: String) -> Result<(), String> {
    if let Err(again) = manifest::write(&kept.folder, Some(&kept.manifest))
        && manifest::read(&kept.folder) == Ok(Found::Void)
    {
        tracing::error!(
            "database '{}': its manifest says already that nothing survives a restart, and cannot be taken back ({again}), so the journal ends although there was an error: {why}",
            database.hub.name
        );
        return Ok(());
    }
    if kept.manifest.index.is_some()
        && let Err(why) = database.shard.set_kept(true)
    {
        tracing::error!("the flash files could not be marked as a part of the dataset: {why}");
    }
    Err(why)
}

/// Writes the stream's new id into the manifest, so that a restart knows it.
pub fn note_stream(database: &Database) -> Result<(), String> {
    let journal = &database.files.journal;
    let _naming = journal.naming.lock();
    let Some(kept) = journal.kept.lock().clone() else { return Ok(()) };
    let manifest = Manifest { stream: named_now(database, kept.manifest.stream), ..kept.manifest.clone() };
    manifest::write(&kept.folder, Some(&manifest))?;
    // The database may be closing.
    if let Some(kept) = &mut *journal.kept.lock() {
        kept.manifest = manifest;
    }
    Ok(())
}

impl Database {
    /// As [`note_stream`]. An error is only logged: what the stream's id names is not written here. False: there was one.
    pub(crate) fn note_stream(&self) -> bool {
        let noted = note_stream(self);
        if let Err(why) = &noted {
            tracing::error!(
                "database '{}': the replication id is not saved, so replicas may need a full synchronisation after a restart: {why}",
                self.hub.name
            );
        }
        noted.is_ok()
    }
}

/// The stream's place at a checkpoint, with the ids of this moment. The checkpoint is older than a change of the id, so both ids name its place.
fn named_now(database: &Database, checkpoint: Option<Mark>) -> Option<Mark> {
    let now = database.hub.dataset.journaling.stream.mark();
    checkpoint.map(|checkpoint| now.map_or(checkpoint, |now| Mark { id: now.id, second: now.second, ..checkpoint }))
}

/// From now on all effects go into the log. The caller has every stripe, or the database has no client.
fn attach(database: &Database, log: &Arc<journal::Log>) {
    // The store's effect sink stays when persistence is switched off.
    database.keep_effects_in_stream();
    let name = database.hub.name.clone();
    log.on_room(Box::new(move |trouble| match trouble {
        Some(why) => tracing::error!("database '{name}': writes wait, because there is no room for the journal: {why}"),
        None => tracing::info!("database '{name}': the journal has room again, and writes continue"),
    }));
    database.hub.dataset.journaling.attach(Arc::clone(log));
}

/// Removes a directory whose manifest says that it holds nothing.
fn clear(folder: &Path) -> Result<(), String> {
    clear_files(folder)?;
    boot::forget(folder)
        .and_then(|()| rates::forget(folder))
        .and_then(|()| remove_if_there(&folder.join(manifest::NAME)))
        .and_then(|()| fs::remove_dir(folder))
        .map_err(|error| about(folder, error))
}

fn remove_if_there(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Removes all files but the manifest.
fn clear_files(folder: &Path) -> Result<(), String> {
    journal::delete(folder).map_err(|error| error.to_string())?;
    older::remove(folder)?;
    checkpoint::remove_others(folder, [])
        .and_then(|()| manifest::remove_drafts(folder))
        .map_err(|error| about(folder, error))
}

/// A file that the manifest names.
fn find_file(folder: &Path, file: &CheckpointFile) -> Result<PathBuf, String> {
    let path = folder.join(&file.name);
    let advice = "Restore the directory from a copy, or move it away to start without it";
    let bytes = match fs::metadata(&path) {
        Ok(file) => file.len(),
        Err(error) => return Err(about(&path, format!("the manifest names this file: {error}. {advice}"))),
    };
    match bytes == file.bytes {
        true => Ok(path),
        false => Err(about(&path, format!("it has {bytes} bytes, but the manifest says {}. {advice}", file.bytes))),
    }
}

fn has_files(folder: &Path) -> bool {
    let Ok(files) = fs::read_dir(folder) else { return false };
    files.filter_map(Result::ok).any(|file| !file.file_name().to_string_lossy().starts_with(manifest::NAME))
}

fn folder(name: &str, settings: &RedisFiles) -> PathBuf {
    directory(name, settings).join(FOLDER)
}

fn folder_of(database: &Database) -> PathBuf {
    folder(&database.hub.name, &database.hub.config.snapshot().redis_files)
}

fn settings_of(log_id: [u8; 16], config: &Config) -> Settings {
    let ring_bytes = match config.ram_limit_bytes {
        0 => RING_BYTES_MAX,
        limit => (limit / RING_SHARE).clamp(RING_BYTES_MIN, RING_BYTES_MAX).next_multiple_of(PAGE_BYTES),
    };
    Settings { log_id, file_bytes: FILE_BYTES, ring_bytes, policy: policy(&config.redis_files) }
}

fn policy(settings: &RedisFiles) -> Policy {
    match settings.appendfsync {
        AppendFsync::Always => Policy::Always,
        AppendFsync::EverySec => Policy::EverySecond,
        AppendFsync::No => Policy::No,
    }
}

/// For the places that only ask.
pub fn is_on(database: &Database) -> bool {
    database.files.journal.kept.lock().is_some()
}
