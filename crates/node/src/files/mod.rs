//! Owns the files of Redis in a database's directory: which are loaded at the start, how, and how SAVE writes one. Never
//! knows how a command runs: a loaded dataset comes in as commands, like a client's.
//!
//! - `find` chooses what is loaded; `aof` reads append-only files and their manifest.
//! - `load` turns files into commands, `pipe` is a connection that carries them, `pipes` spreads them over connections by the
//!   stripe that `touched` finds. `replay` sends the records of a journal through them.
//! - `save` writes a dump, `cut` is its moment.
//! - `leftovers` removes temporary files of processes that were killed.

mod aof;
mod cut;
mod find;
mod leftovers;
mod load;
mod page_import;
mod pipe;
mod pipes;
mod replay;
mod save;
mod touched;

pub use cut::{AtCut, StreamAtDump};
pub use find::{Plan, directory, plan};
pub use leftovers::remove_leftovers;
pub use load::{Unloaded, empty, load_base, load_primarys};
pub use pipe::{Broken, Expect};
pub use pipes::Pipes;
pub use replay::Replay;
pub use save::{CutInfo, Dump, FIELDS_VERSION, FLASH, LARGE, LargeKeys, OnFlash, write as write_dump};
pub use touched::{Finder, changes, writes_in};

use crate::database::Database;
use base::clock::wall_ms;
use config::{Policy, RedisFiles};
use engine::LoadState;
use load::Loaded;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use store::counters::Counter;

/// How long SAVE waits for a script that keeps stripes.
const SAVE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the points of `save` wait after a failure.
const RETRY_MS: u64 = 5_000;
const BUSY: &str = "ERR Background save already in progress, or a checkpoint is being written, or the dataset is being loaded; BGSAVE SCHEDULE waits";

/// Loads a dataset with `load` into the new database on a thread of its own. Until that has ended, clients get `-LOADING`.
pub fn start(
    database: &Arc<Database>,
    load: impl FnOnce(&Arc<Database>) -> Result<(), String> + Send + 'static,
) -> std::io::Result<()> {
    database.close_gate_for_loading();
    let (is_loading, load_end) = mpsc::channel::<()>();
    *database.files.load_end.lock() = Some(load_end);
    let database = Arc::clone(database);
    let load = move || {
        match load(&database) {
            Ok(()) => database.hub.clients.set_load_state(LoadState::Open),
            Err(_) if database.hub.is_closing.load(Relaxed) => {}
            Err(why) => {
                let text = format!("database '{}' could not be loaded: {why}", database.hub.name);
                tracing::error!("{text}");
                *database.files.load_failure.lock() = Some(why);
                // Half a dataset is not served. The other databases of the node are.
                if database.is_default() {
                    // The first failure counts.
                    let _ = database.failure.set(text);
                    database.shutdown.notify_one();
                }
            }
        }
        drop(is_loading);
    };
    std::thread::Builder::new().name("load".into()).spawn(load).map(drop)
}

impl Database {
    fn close_gate_for_loading(&self) {
        self.files.loading_since_ms.store(wall_ms(), Relaxed);
        self.hub.clients.set_load_state(LoadState::Loading);
    }

    /// Loads files. The gate must be closed, and the caller holds the lock of files.
    pub(crate) fn load(&self, plan: &Plan) -> Result<(), String> {
        self.load_from(plan, load::load)
    }

    fn load_from(&self, plan: &Plan, load: fn(&Database, &Plan) -> Result<Loaded, String>) -> Result<(), String> {
        let files = &self.files;
        files.loaded_bytes.store(0, Relaxed);
        files.loading_total_bytes.store(plan.bytes(), Relaxed);
        let begun = Instant::now();
        let loaded = load(self, plan)?;
        files.keys_loaded.store(loaded.keys, Relaxed);
        files.keys_expired.store(loaded.expired, Relaxed);
        tracing::info!(
            "database '{}' is loaded from {}: {} keys and {} expired ones in {:.3} s",
            self.hub.name,
            plan.what(),
            loaded.keys,
            loaded.expired,
            begun.elapsed().as_secs_f64()
        );
        Ok(())
    }

    /// As [`Database::load`], at the start. If the dump says where the stream was at its moment, the stream goes on there: replicas that
    /// have no more than that need no dataset, and a replica asks its primary for the rest.
    pub(crate) fn load_with_stream(&self, plan: &Plan) -> Result<(), String> {
        // A pipe can be read only once.
        let dump = plan.files.first().filter(|file| !plan.is_aof && file.is_file());
        let at = dump.map(|dump| StreamAtDump::read(dump).map_err(|why| about(dump, why))).transpose()?;
        let Some(mark) = at.and_then(|at| at.mark()) else { return self.load(plan) };
        let store = &self.shard.store;
        // What has expired is removed when the stream can say so.
        store.set_policy(Policy::NoEviction);
        store.set_replaying(true);
        self.load_from(plan, load::load_base)?;
        self.prepare_stream(Some(mark));
        let stream = &self.hub.dataset.journaling.stream;
        if !store.follows() {
            // What followed in an earlier run is not in the dump.
            stream.change_id(engine::replication::new_id());
        }
        self.keep_effects_in_stream();
        stream.turn_on();
        store.set_replaying(false);
        self.follow_in_store(store.follows());
        Ok(())
    }

    /// SAVE. The error is the whole reply.
    pub(crate) fn save_dump(&self) -> Result<(), String> {
        let Some(_busy) = self.files.busy.try_lock() else { return Err(BUSY.to_owned()) };
        self.save_if_open()
    }

    /// Saves after the dump or the checkpoint that is being written.
    pub(crate) fn save_last_dump(&self) -> Result<(), String> {
        let _busy = self.files.busy.lock();
        self.save_if_open()
    }

    /// FLUSHALL: the last dump must not bring the keys back. While something else is being saved, this save comes after it, and nobody
    /// waits for both. `waits`: otherwise it is written when this returns.
    pub(crate) fn save_flushed_dump(&self, waits: bool) {
        // What is being loaded was not emptied by a client.
        if self.hub.clients.load_state() != LoadState::Open {
            return;
        }
        if waits && let Some(_busy) = self.files.busy.try_lock() {
            // The log has the error.
            let _ = self.save_if_open();
            return;
        }
        let Some(database) = self.me.upgrade() else { return };
        let save = move || _ = database.save_last_dump();
        if let Err(error) = std::thread::Builder::new().name("save".into()).spawn(save) {
            tracing::error!(
                "database '{}': cannot start a thread to write the dump after a flush, so the dump still has the deleted keys: {error}",
                self.hub.name
            );
        }
    }

    fn save_if_open(&self) -> Result<(), String> {
        if self.hub.clients.load_state() != LoadState::Open {
            return Err("ERR the dataset is being loaded".to_owned());
        }
        self.save_now()
    }

    /// BGSAVE. `schedule`: after what else is being saved or loaded. The error is the whole reply.
    pub(crate) fn save_dump_in_background(&self, schedule: bool) -> Result<&'static str, String> {
        let is_busy = self.files.busy.is_locked();
        if is_busy && !schedule {
            return Err(BUSY.to_owned());
        }
        if self.files.background_since_ms.compare_exchange(0, wall_ms(), Relaxed, Relaxed).is_err() {
            return Err("ERR Background save already in progress".to_owned());
        }
        let Some(database) = self.me.upgrade() else { return Err("ERR the database is being closed".to_owned()) };
        let save = move || {
            let files = &database.files;
            database.free_segments_for_dump();
            let saved = {
                let _busy = files.busy.lock();
                files.background_since_ms.store(wall_ms(), Relaxed);
                database.save_now()
            };
            if saved.is_ok() {
                files.last_background_took_ms.store(files.last_save_took_ms.load(Relaxed), Relaxed);
            }
            files.background_since_ms.store(0, Relaxed);
        };
        if let Err(error) = std::thread::Builder::new().name("save".into()).spawn(save) {
            self.files.background_since_ms.store(0, Relaxed);
            return Err(format!("ERR the save cannot begin: {error}"));
        }
        Ok(if is_busy { "Background saving scheduled" } else { "Background saving started" })
    }

    /// Begins a save if a point of `save` says so. Called several times a second.
    pub(crate) fn save_if_due(&self, now_ms: u64) {
        let settings = &self.hub.config.snapshot().redis_files;
        let files = &self.files;
        let has_failed = files.last_save_failed.load(Relaxed);
        let has_points = !settings.save_points.is_empty();
        self.hub.clients.unsaved.store(has_failed && has_points && settings.stop_writes_on_bgsave_error, Relaxed);
        if !has_points || files.busy.is_locked() || self.hub.clients.load_state() != LoadState::Open {
            return;
        }
        let changes = self.changes_since_save();
        let passed_s = (now_ms / 1000).saturating_sub(engine::PersistenceControl::last_save_s(self));
        let due = settings.save_points.iter().find(|&&(seconds, least)| passed_s > seconds && changes >= least.max(1));
        let rests = has_failed && now_ms.saturating_sub(files.last_try_ms.load(Relaxed)) < RETRY_MS;
        if let Some((seconds, _)) = due.filter(|_| !rests) {
            match self.save_dump_in_background(false) {
                Ok(_) => tracing::info!("{changes} changes in {seconds} seconds: a dump is being written"),
                Err(why) => tracing::error!("{why}"),
            }
        }
    }

    pub(crate) fn changes_since_save(&self) -> u64 {
        self.changes().saturating_sub(self.files.saved_changes.load(Relaxed))
    }

    fn changes(&self) -> u64 {
        let counted = |counter| self.shard.store.counters().sum(counter);
        counted(Counter::Changes) + counted(Counter::ExpiredKeys) + counted(Counter::EvictedKeys)
    }

    /// Writes the dump. `busy` is held.
    fn save_now(&self) -> Result<(), String> {
        let (files, begun, changes) = (&self.files, Instant::now(), self.changes());
        files.saved_keys.store(0, Relaxed);
        files.last_try_ms.store(wall_ms(), Relaxed);
        files.saving_since_ms.store(wall_ms().max(1), Relaxed);
        let saved = save::save(self, SAVE_TIMEOUT);
        files.saving_since_ms.store(0, Relaxed);
        files.last_save_took_ms.store(begun.elapsed().as_millis() as u64, Relaxed);
        files.last_save_failed.store(saved.is_err(), Relaxed);
        match &saved {
            Ok(path) => {
                files.last_save_s.store(wall_ms() / 1000, Relaxed);
                files.saves.fetch_add(1, Relaxed);
                files.saved_changes.store(changes, Relaxed);
                self.hub.clients.unsaved.store(false, Relaxed);
                tracing::info!(
                    "database '{}' is saved to {}: {} keys in {:.3} s",
                    self.hub.name,
                    path.display(),
                    files.saved_keys.load(Relaxed),
                    begun.elapsed().as_secs_f64()
                );
            }
            Err(why) => tracing::error!("database '{}' could not be saved: {why}", self.hub.name),
        }
        saved.map(drop).map_err(|why| format!("ERR {why}"))
    }

    /// DEBUG RELOAD. The error is the whole reply.
    pub(crate) fn reload_dump(&self, saves: bool) -> Result<(), String> {
        if self.shard.store.follows() {
            return Err("ERR a replica's dataset comes from its primary: it is not reloaded".to_owned());
        }
        if saves {
            self.save_dump()?;
        }
        let path = self.dump_file();
        let plan = Plan::dump(&path).map_err(|why| format!("ERR {why}"))?;
        let _busy = self.files.busy.lock();
        self.close_gate_for_loading();
        let loaded = load::empty(self).and_then(|()| self.load(&plan));
        self.hub.clients.set_load_state(LoadState::Open);
        loaded.map_err(|why| {
            tracing::error!("DEBUG RELOAD has lost the dataset: {why}");
            format!("ERR Error trying to load the RDB dump, the dataset is not complete: {why}")
        })
    }

    fn dump_file(&self) -> PathBuf {
        dump_file(&self.hub.name, &self.hub.config.snapshot().redis_files)
    }
}

fn dump_file(name: &str, settings: &RedisFiles) -> PathBuf {
    directory(name, settings).join(&settings.dbfilename)
}

/// Gives the dump of a deleted database another name: a new database of the same name must not load it.
pub fn retire_dump(name: &str, settings: &RedisFiles) {
    let dump = dump_file(name, settings);
    let mut retired = dump.clone().into_os_string();
    retired.push(".deleted");
    match std::fs::rename(&dump, &retired) {
        Ok(()) => tracing::info!("the deleted database's last dump is kept as {}", Path::new(&retired).display()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => tracing::error!("{}", about(&dump, error)),
    }
}

/// An error about a file.
pub fn about(path: &Path, error: impl std::fmt::Display) -> String {
    format!("{}: {error}", path.display())
}
