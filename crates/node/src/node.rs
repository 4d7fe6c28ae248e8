//! Owns the process as its operator sees it: its databases, their limits together, and what is kept of them over a
//! restart. Never serves a connection.
//!
//! ```text
//! state-dir/databases/NAME.conf     a database's configuration
//! state-dir/databases/NAME.paused   its commands are refused
//! state-dir/databases/NAME.restore  the backup that it is being loaded from
//! ```

use crate::backup::{self, Restore, Target};
use crate::capacity::{Capacity, DEFAULT_NAME, files_limit};
use crate::database::{Database, NotSet};
use crate::definition::{self, NO_JOURNAL, NodeError, inherited, primary_of};
use crate::ending::Ending;
use crate::open::{self, Common, Part};
use crate::open_files::raise_open_files;
use crate::progress::{Backup, Failure, Recovered};
use crate::worker_pool::{Begin, WorkerPool};
use base::clock::wall_ms;
use base::{Codec, Policy, size};
use config::definition::{Definition, DefinitionChange, PERSISTENCE};
use config::{Config, ConfigStore, LoadError};
use engine::{CHANGE_TIMEOUT, LoadState};
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;
use tokio::runtime::Handle;

pub struct Node {
    common: Common,
    /// The default database first, then by name.
    databases: RwLock<Vec<Arc<Database>>>,
    /// By name.
    pub(crate) copies: RwLock<BTreeMap<String, Arc<Database>>>,
    /// Databases that are defined but could not be opened, with the reason.
    failed: Mutex<BTreeMap<String, String>>,
    state_dir: PathBuf,
    huge_pages: AtomicBool,
    /// See [`Node::begins_anew`].
    begins_anew: Arc<AtomicBool>,
    /// Every dataset of the start is loaded: see [`Node::is_ready`].
    pub(crate) has_started: AtomicBool,
    pub(crate) started: Instant,
    started_ms: u64,
}

/// What a database is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseState {
    /// Its dataset is being loaded; a backup is read twice, as it is verified first.
    Loading {
        done_bytes: u64,
        total_bytes: u64,
    },
    /// Its dataset could not be loaded: [`Database::load_failure`] says why. It serves nobody.
    Failed,
    Active,
    Paused,
    /// Its flash is shrinking: values move out of the part that is given back.
    Resizing {
        done_bytes: u64,
        total_bytes: u64,
    },
    Deleting,
}

/// How many ports are tried to find a free one.
const PORTS_TRIED: u16 = 1000;

impl Node {
    pub(crate) fn new(runtime: Handle, threads: usize, config: &Config) -> io::Result<Arc<Node>> {
        Ok(Arc::new(Node {
            common: Common {
                run_id: open::random_id(),
                worker_pool: WorkerPool::start(threads)?,
                runtime,
                ledger: Arc::default(),
                shutdown: Arc::default(),
                ending: Arc::default(),
                failure: Failure::default(),
            },
            databases: RwLock::default(),
            copies: RwLock::default(),
            failed: Mutex::default(),
            state_dir: config.state_dir.clone(),
            huge_pages: AtomicBool::new(false),
            begins_anew: Arc::default(),
            has_started: AtomicBool::new(false),
            started: Instant::now(),
            started_ms: wall_ms(),
        }))
    }

    // --- looking up ---

    /// The default database first, then by name.
    pub fn databases(&self) -> Vec<Arc<Database>> {
        self.databases.read().clone()
    }

    pub fn database(&self, name: &str) -> Option<Arc<Database>> {
        self.databases.read().iter().find(|database| *database.hub.name == *name).cloned()
    }

    fn default(&self) -> Arc<Database> {
        Arc::clone(&self.databases.read()[0])
    }

    /// Databases that are defined but could not be opened, with the reason.
    pub fn failed(&self) -> BTreeMap<String, String> {
        self.failed.lock().clone()
    }

    /// The default database's configuration, which has the node's directives.
    pub fn config(&self) -> Arc<ConfigStore> {
        Arc::clone(&self.default().hub.config)
    }

    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    pub fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    pub fn run_id(&self) -> &str {
        &self.common.run_id
    }

    pub fn started_ms(&self) -> u64 {
        self.started_ms
    }

    pub fn workers(&self) -> usize {
        self.common.worker_pool.count()
    }

    /// Runs a task on a worker's thread.
    #[doc(hidden)]
    pub fn run_on_worker(&self, worker: usize, begin: Begin) {
        self.common.worker_pool.begin(worker, begin);
    }

    /// True: when the node has ended, its process executes its program again.
    pub fn begins_anew(&self) -> &Arc<AtomicBool> {
        &self.begins_anew
    }

    pub fn is_stopping(&self) -> bool {
        self.common.ledger.is_stopping()
    }

    /// Returns when SHUTDOWN was asked for, or when the node cannot go on.
    pub(crate) async fn shutdown_asked(&self) {
        self.common.shutdown.notified().await;
    }

    pub(crate) fn ending(&self) -> &Ending {
        &self.common.ending
    }

    /// Why the node ends, if it cannot go on.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.common.failure.get().map(String::as_str)
    }

    // --- start and end ---

    pub(crate) fn open_default(
        self: &Arc<Self>,
        config: Arc<ConfigStore>,
        clients_cap: usize,
        huge_pages: bool,
    ) -> io::Result<Arc<Database>> {
        self.huge_pages.store(huge_pages, Relaxed);
        let database = open::open(&self.common, DEFAULT_NAME, config, clients_cap, huge_pages, None, Part::Whole)?;
        database.hub.clients.suspended.store(self.paused_file(DEFAULT_NAME).exists(), Relaxed);
        self.databases.write().push(Arc::clone(&database));
        self.common.ledger.add(&database.reservation);
        self.follow_maxclients(&database);
        Ok(database)
    }

    /// Opens the databases whose definitions were kept. If one cannot be opened, the others still are.
    pub(crate) fn open_others(self: &Arc<Self>) {
        let Ok(folder) = fs::read_dir(self.folder()) else { return };
        let mut names: Vec<String> = folder
            .filter_map(|file| Some(file.ok()?.file_name().to_str()?.strip_suffix(".conf")?.to_owned()))
            .collect();
        names.sort();
        for name in names {
            if let Err(error) = self.open_one(&name) {
                tracing::error!("cannot open database '{name}': {error}");
                self.failed.lock().insert(name, error.to_string());
            }
        }
        let room = self.capacity();
        if room.ram_taken_bytes > room.ram_bytes {
            tracing::warn!(
                "the RAM limits of all databases together are {}, more than the {} that this machine has for them",
                size::human(room.ram_taken_bytes),
                size::human(room.ram_bytes)
            );
        }
    }

    fn open_one(self: &Arc<Self>, name: &str) -> io::Result<Arc<Database>> {
        let mark = self.restore_file(name);
        let database = self.open_from(name, &self.conf_file(name), Some(&mark), Part::Whole)?;
        database.hub.clients.suspended.store(self.paused_file(name).exists(), Relaxed);
        self.enter(&database);
        Ok(database)
    }

    /// Makes an open database one of the node's.
    pub(crate) fn enter(self: &Arc<Self>, database: &Arc<Database>) {
        {
            let mut databases = self.databases.write();
            databases.push(Arc::clone(database));
            databases[1..].sort_by(|a, b| a.hub.name.cmp(&b.hub.name));
        }
        self.common.ledger.add(&database.reservation);
        self.make_room_for_clients(database);
        self.follow_maxclients(database);
        let at: Vec<String> = database.addresses().into_iter().map(|address| address.address).collect();
        tracing::info!("database '{}' accepts connections on {}", database.name(), at.join(", "));
    }

    /// A database is none of the node's any more.
    pub(crate) fn leave(&self, database: &Database) {
        self.databases.write().retain(|known| *known.hub.name != *database.hub.name);
        self.common.ledger.remove(database.name());
    }

    /// One of the node's own databases. Those of the cluster are changed for all nodes at once, by the agent.
    fn own_database(&self, name: &str) -> Result<Arc<Database>, NodeError> {
        let database = self.database(name).ok_or_else(|| NodeError::NotFound(name.to_owned()))?;
        if database.is_of_cluster() {
            let why = format!("'{name}' is a database of the cluster: it is changed as a whole");
            return Err(NodeError::Unsupported { field: "name", message: why });
        }
        Ok(database)
    }

    /// Opens a database with the configuration of a file, and of the default database. `restore_mark`: the file that says with which
    /// backup it begins, if it exists.
    pub(crate) fn open_from(
        &self,
        name: &str,
        file: &Path,
        restore_mark: Option<&Path>,
        part: Part,
    ) -> io::Result<Arc<Database>> {
        let config = self.config_of(file, part.has_flash())?;
        for notice in config.take_notices() {
            tracing::warn!("database '{name}': {notice}");
        }
        let limit = config.snapshot().ram_limit_bytes;
        let huge_pages = self.huge_pages.load(Relaxed) && limit >= crate::huge_pages::RAM_LIMIT_MIN;
        let clients_cap = config.snapshot().maxclients;
        let restore = match restore_mark {
            Some(mark) => Restore::of_mark(mark, &config.snapshot().backup_path).map_err(io::Error::other)?,
            None => None,
        };
        open::open(&self.common, name, Arc::new(config), clients_cap, huge_pages, restore, part)
    }

    /// The configuration of a database that this file defines.
    pub(crate) fn config_of(&self, file: &Path, has_flash: bool) -> io::Result<ConfigStore> {
        let inherited = inherited(&self.default().hub.config, has_flash);
        ConfigStore::from_file_and(file, &inherited).map_err(io::Error::other)
    }

    pub(crate) fn add_to_ledger(&self, database: &Database) {
        self.common.ledger.add(&database.reservation);
    }

    pub(crate) fn remove_from_ledger(&self, name: &str) {
        self.common.ledger.remove(name);
    }

    /// From now on no database may be changed.
    pub(crate) fn stopping(&self) {
        self.common.ledger.stop();
    }

    pub(crate) fn close(&self) {
        let mut databases = std::mem::take(&mut *self.databases.write());
        databases.extend(std::mem::take(&mut *self.copies.write()).into_values());
        self.common.ledger.clear();
        std::thread::scope(|scope| {
            for database in &databases {
                scope.spawn(|| open::close(database));
            }
        });
        self.common.worker_pool.end();
    }

    /// Recomputes the databases' shares of open files whenever `maxclients` changes.
    fn follow_maxclients(self: &Arc<Self>, database: &Arc<Database>) {
        let (node, of) = (Arc::downgrade(self), Arc::downgrade(database));
        database.hub.config.subscribe(move |draft| {
            if draft.before.maxclients != draft.now.maxclients
                && let (Some(node), Some(database)) = (node.upgrade(), of.upgrade())
            {
                node.make_room_for_clients(&database);
            }
        });
    }

    /// Sets the database's maxclients, or less if the system allows fewer open files.
    fn make_room_for_clients(&self, changed: &Database) {
        let wanted = |database: &Database| database.hub.config.snapshot().maxclients;
        let databases = self.databases();
        let all: usize = databases.iter().map(|database| wanted(database)).sum();
        let is_asked = databases.iter().any(|database| database.hub.config.is_named("maxclients"));
        let cap = raise_open_files(all, is_asked);
        for database in databases.iter().filter(|database| cap < all || *database.hub.name == *changed.hub.name) {
            let mine = wanted(database);
            let share = if cap < all { (mine as u128 * cap as u128 / all as u128) as usize } else { mine };
            if let Some(endpoint) = &database.endpoint {
                endpoint.clients_cap.store(share.max(1), Relaxed);
            }
        }
    }

    // --- changes ---

    pub fn capacity(&self) -> Capacity {
        self.common.ledger.capacity()
    }

    pub(crate) fn check_room(&self, name: &str, limits: (u64, u64)) -> Result<(), NodeError> {
        self.common.ledger.check(name, limits).map_err(|message| NodeError::NoRoom { message })
    }

    /// The right to change databases and their limits, held until it is dropped.
    pub(crate) fn begin_change(&self) -> Result<MutexGuard<'_, ()>, NodeError> {
        self.common.ledger.begin_change(CHANGE_TIMEOUT).map_err(|why| NodeError::Busy(why.to_owned()))
    }

    /// Completes a definition without making the database: picks a free port if none is given. Refuses what
    /// [`Node::create`] would refuse.
    pub fn plan(&self, definition: &Definition) -> Result<Definition, NodeError> {
        definition::check(definition)?;
        let name = &definition.name;
        if self.database(name).is_some() || self.conf_file(name).exists() {
            return Err(NodeError::Exists(name.clone()));
        }
        let invalid = |field, message: String| NodeError::Invalid { field, message };
        for (field, value, words) in
            [("policy", &definition.policy, Policy::WORDS), ("compression", &definition.compression, Codec::WORDS)]
        {
            if !words.contains(&value.as_str()) {
                return Err(invalid(field, format!("'{value}' is not one of {}", words.join(", "))));
            }
        }
        let has_flash = !self.default().hub.config.snapshot().flash_paths.is_empty();
        let flash = definition.memory_limit_bytes - definition.ram_limit_bytes;
        if !has_flash && flash > 0 {
            let message = format!(
                "this node has no flash: make the memory limit as large as the RAM limit, {}, or start the node with flash-path",
                size::exact(definition.ram_limit_bytes)
            );
            return Err(invalid("memory_limit_bytes", message));
        }
        let mut planned = definition.clone();
        if definition.port == 0 && definition.tls_port == 0 && definition.unixsocket.is_none() {
            planned.port = self.free_port().ok_or_else(|| {
                invalid("port", "no free port was found near the default database's: give a port".to_owned())
            })?;
        }
        for (field, port) in [("port", planned.port), ("tls_port", planned.tls_port)] {
            if port != 0 && !self.is_free(port) {
                return Err(invalid(field, format!("port {port} is taken: choose another")));
            }
        }
        if let Some(from) = &definition.from {
            planned.from = Some(self.target(from, definition.at_ms)?.backup.path);
        }
        let limits = self.check_file(&planned)?;
        self.check_room(name, limits)?;
        Ok(planned)
    }

    /// Makes a database and serves it. Blocks while its flash files are made.
    pub fn create(self: &Arc<Self>, definition: &Definition) -> Result<Arc<Database>, NodeError> {
        let _changes = self.begin_change()?;
        if let (Some(from), Some(at_ms)) = (&definition.from, definition.at_ms) {
            self.archive_for(from, at_ms)?;
        }
        loop {
            let planned = self.plan(definition)?;
            let (name, file) = (&planned.name, self.conf_file(&planned.name));
            let mark = self.restore_file(name);
            match &planned.from {
                Some(from) => {
                    let text = backup::mark(from, planned.at_ms);
                    write_secret(&mark, &text).map_err(|error| io_error(&mark, &error))?;
                }
                // Best effort: there is one only if a node has crashed.
                None => drop(fs::remove_file(&mark)),
            }
            write_secret(&file, &planned.file()).map_err(|error| io_error(&file, &error))?;
            let error = match self.open_one(name) {
                Ok(database) => return Ok(database),
                Err(error) => error,
            };
            // The database was never opened, so its files must not stay.
            let _ = fs::remove_file(&file);
            let _ = fs::remove_file(&mark);
            let is_taken = error.kind() == io::ErrorKind::AddrInUse;
            if planned.port == definition.port || !is_taken {
                return Err(NodeError::Io(format!("database '{name}' cannot be opened: {error}")));
            }
            // Another process took the port that was free a moment ago. Plan again with another port.
        }
    }

    /// Changes limits, policy, compression, password, backups or persistence of a database while it serves. The change is kept in its file.
    pub fn resize(&self, name: &str, change: &DefinitionChange) -> Result<(), NodeError> {
        let _changes = self.begin_change()?;
        let database = self.own_database(name)?;
        let changed = change.words().len();
        if let Some(persistence) = &change.persistence {
            if changed > 1 {
                let message = "persistence must be changed alone: send the other changes in a separate request";
                return Err(NodeError::Invalid { field: "persistence", message: message.to_owned() });
            }
            return change_persistence(&database, persistence);
        }
        if let Some(replica_of) = &change.replica_of {
            if changed > 1 {
                let message = "the primary must be changed alone: send the other changes in a separate request";
                return Err(NodeError::Invalid { field: "replica_of", message: message.to_owned() });
            }
            return database.follow(primary_of(replica_of)?, true).map_err(NodeError::Busy);
        }
        let field = self.check_resize(&database, change)?;
        set_and_keep(&database, &change.directives(), field)
    }

    /// Checks what [`Node::resize`] would check before it changes anything. Whether the data fit is known only then.
    pub fn plan_resize(&self, name: &str, change: &DefinitionChange) -> Result<(), NodeError> {
        let database = self.own_database(name)?;
        self.check_resize(&database, change).map(drop)
    }

    /// Returns the field that an error of the change itself is about.
    fn check_resize(&self, database: &Database, change: &DefinitionChange) -> Result<&'static str, NodeError> {
        let (before, now) = (database.definition(), database.hub.config.snapshot());
        let memory = change.memory_limit_bytes.unwrap_or(before.memory_limit_bytes);
        let ram = change.ram_limit_bytes.unwrap_or(before.ram_limit_bytes);
        let invalid = |field, message: &str| Err(NodeError::Invalid { field, message: message.to_owned() });
        if change.memory_limit_bytes == Some(0) || change.ram_limit_bytes == Some(0) {
            return invalid("ram_limit_bytes", "a database needs a memory limit and a RAM limit");
        }
        if memory < ram && memory != 0 {
            return invalid(
                "ram_limit_bytes",
                "the RAM limit is more than the memory limit, which is RAM and flash together",
            );
        }
        if !now.redis_files.appendonly && change.backup_journal_keep.as_ref().is_some_and(|keep| !keep.is_empty()) {
            return invalid("backup_journal_keep", NO_JOURNAL);
        }
        if change.ram_limit_bytes.is_some() {
            let wanted = Config { ram_limit_bytes: ram, ..Config::clone(&now) };
            config::leaves_ram_for_values(&wanted, database.is_default())
                .map_err(|message| NodeError::Invalid { field: "ram_limit_bytes", message })?;
        }
        let files = match change.flash_limit_bytes.unwrap_or(before.flash_limit_bytes) {
            0 => base::sizing::files_bytes(memory, ram, now.redis_files.appendonly),
            given => given,
        };
        self.check_room(database.name(), (ram, if now.flash_paths.is_empty() { 0 } else { files }))?;
        Ok(change.words().first().map_or("", |(field, _)| field.name))
    }

    pub fn pause(&self, name: &str) -> Result<(), NodeError> {
        self.set_paused(name, true)
    }

    pub fn resume(&self, name: &str) -> Result<(), NodeError> {
        self.set_paused(name, false)
    }

    fn set_paused(&self, name: &str, paused: bool) -> Result<(), NodeError> {
        let _changes = self.begin_change()?;
        let database = self.own_database(name)?;
        let mark = self.paused_file(name);
        let kept = match paused {
            true => write_secret(&mark, ""),
            false if mark.exists() => fs::remove_file(&mark),
            false => Ok(()),
        };
        kept.map_err(|error| io_error(&mark, &error))?;
        database.hub.clients.suspended.store(paused, Relaxed);
        Ok(())
    }

    /// Deletes a database: its connections, its data and its definition. Blocks until it is gone.
    pub fn delete(&self, name: &str) -> Result<(), NodeError> {
        let _changes = self.begin_change()?;
        if name == DEFAULT_NAME {
            let message =
                "the default database is defined by the configuration file: it lasts as long as the node".to_owned();
            return Err(NodeError::Unsupported { field: "name", message });
        }
        let file = self.conf_file(name);
        if self.database(name).is_some() {
            self.own_database(name)?;
        }
        match self.database(name) {
            Some(database) => {
                database.is_deleting.store(true, Relaxed);
                open::close(&database);
                open::delete_files(&database).map_err(NodeError::Io)?;
                self.forget(name)?;
                self.leave(&database);
            }
            None => {
                // A database that could not be opened still has a definition, and files that a new one of this name must not find.
                if !self.failed.lock().contains_key(name) {
                    return Err(NodeError::NotFound(name.to_owned()));
                }
                // If its file cannot be read, its files are where those of the others are.
                let config = self
                    .config_of(&file, true)
                    .map_or_else(|_| self.default().hub.config.snapshot(), |own| own.snapshot());
                open::remove_files(name, &config).map_err(NodeError::Io)?;
                self.forget(name)?;
                self.failed.lock().remove(name);
            }
        }
        tracing::info!("database '{name}' is deleted");
        Ok(())
    }

    /// Removes the definition of a database whose files are gone. It goes last: until then, the database can be deleted again, also after a
    /// restart.
    fn forget(&self, name: &str) -> Result<(), NodeError> {
        for file in [self.paused_file(name), self.restore_file(name), self.conf_file(name)] {
            match fs::remove_file(&file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_error(&file, &error)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks that the definition's configuration file is valid. Keeps nothing. Returns the limits.
    pub(crate) fn check_file(&self, definition: &Definition) -> Result<(u64, u64), NodeError> {
        self.check_file_of(definition, true)
    }

    /// `has_flash`: it has files on flash, if the node has flash.
    pub(crate) fn check_file_of(&self, definition: &Definition, has_flash: bool) -> Result<(u64, u64), NodeError> {
        let trial = self.folder().join(format!(".{}.trial", definition.name));
        write_secret(&trial, &definition.file()).map_err(|error| io_error(&trial, &error))?;
        let loaded = ConfigStore::from_file_and(&trial, &inherited(&self.default().hub.config, has_flash));
        // Best effort: a leftover file shows by its name what it is.
        let _ = fs::remove_file(&trial);
        let invalid = |field, message| NodeError::Invalid { field, message };
        let config = loaded.map_err(|error| invalid(field_of(&error), error.why))?.snapshot();
        config::leaves_ram_for_values(&config, false).map_err(|why| invalid("ram_limit_bytes", why))?;
        Ok((config.ram_limit_bytes, files_limit(&config)))
    }

    fn free_port(&self) -> Option<u16> {
        let config = self.default().hub.config.snapshot();
        let from = if config.port == 0 { 6379 } else { config.port };
        (from.saturating_add(1)..=from.saturating_add(PORTS_TRIED)).find(|&port| self.is_free(port))
    }

    /// Whether a database could listen there.
    pub fn is_free(&self, port: u16) -> bool {
        let config = self.default().hub.config.snapshot();
        port != config.console.port && TcpListener::bind(("127.0.0.1", port)).is_ok()
    }

    fn folder(&self) -> PathBuf {
        self.state_dir.join("databases")
    }

    fn conf_file(&self, name: &str) -> PathBuf {
        self.folder().join(format!("{name}.conf"))
    }

    fn paused_file(&self, name: &str) -> PathBuf {
        self.folder().join(format!("{name}.paused"))
    }

    fn restore_file(&self, name: &str) -> PathBuf {
        self.folder().join(format!("{name}.restore"))
    }

    // --- backups ---

    /// All backups, newest first, whichever database they are of.
    pub fn backups(&self) -> Vec<Backup> {
        backup::list(&self.backup_path())
    }

    /// Reads the dump of a backup anew from its first byte to its last, and compares it with its description. Blocks until that is done.
    pub fn verify_backup(&self, path: &str) -> Result<Backup, NodeError> {
        let backup = self.backup(path)?;
        let checked = backup::check(&self.backup_path(), &backup);
        if let Some(database) = self.database(&backup.database) {
            database.note_checked_backup(&backup, checked.clone());
        }
        checked.map(|()| backup).map_err(|message| NodeError::Invalid { field: "path", message })
    }

    /// Deletes a backup, whoever has made it.
    pub fn delete_backup(&self, path: &str) -> Result<Backup, NodeError> {
        let _changes = self.begin_change()?;
        let backup = self.backup(path)?;
        let loading =
            self.databases().into_iter().find(|database| matches!(database.state(), DatabaseState::Loading { .. }));
        if let Some(database) = loading {
            let why =
                format!("{} is being loaded, perhaps from a backup: wait until it serves clients", database.name());
            return Err(NodeError::Busy(why));
        }
        backup::remove(&self.backup_path(), &backup).map_err(NodeError::Io)?;
        if let Some(database) = self.database(&backup.database) {
            database.backup_is_gone();
        }
        Ok(backup)
    }

    fn backup(&self, path: &str) -> Result<Backup, NodeError> {
        let invalid = |message| NodeError::Invalid { field: "path", message };
        let root = self.backup_path();
        let path = backup::below(&root, path).map_err(invalid)?;
        backup::read(&root, &path).map_err(invalid)
    }

    /// For each backup, the last moment that can be restored from it and the archived journal. `None`: only the backup's own moment.
    pub fn reaches_ms(&self, backups: &[Backup]) -> Vec<Option<u64>> {
        backup::reaches_ms(&self.backup_path(), backups)
    }

    /// What a new database is to begin with. Moments that the archive has not yet are taken while the database that the backup is of
    /// serves: see [`Node::archive_for`].
    fn target(&self, from: &str, at_ms: Option<u64>) -> Result<Target, NodeError> {
        let root = self.backup_path();
        let field = if at_ms.is_some() { "at_ms" } else { "from" };
        let invalid = |message| NodeError::Invalid { field, message };
        if let Some(at_ms) = at_ms.filter(|&at_ms| at_ms > wall_ms()) {
            return Err(invalid(format!("{} is in the future", base::time::instant(at_ms))));
        }
        let target = Target::find(&root, from, at_ms).map_err(invalid)?;
        match target.check(&root) {
            Err(why) if self.source_of(&target.backup).is_none() => Err(invalid(why)),
            _ => Ok(target),
        }
    }

    /// The database that a backup is of, if its journal is being archived.
    fn source_of(&self, backup: &Backup) -> Option<Arc<Database>> {
        let cut = backup.cut.as_ref()?;
        self.databases().iter().find(|database| database.archives(cut.log_id)).cloned()
    }

    /// Archives what the moment needs and the archive has not yet.
    fn archive_for(&self, from: &str, at_ms: u64) -> Result<(), NodeError> {
        let root = self.backup_path();
        let target = self.target(from, Some(at_ms))?;
        if target.check(&root).is_ok() {
            return Ok(());
        }
        if let Some(source) = self.source_of(&target.backup) {
            source.archive_now().map_err(NodeError::Io)?;
        }
        target.check(&root).map_err(|message| NodeError::Invalid { field: "at_ms", message })
    }

    /// The directory of all backups.
    pub fn backup_path(&self) -> PathBuf {
        self.config().snapshot().backup_path.clone()
    }
}

/// The field of a definition that an error of its file is about. The place of a wrong value ends with its line, and a contradiction
/// begins with a directive.
fn field_of(error: &LoadError) -> &'static str {
    let fields = [
        ("ram-limit", "ram_limit_bytes"),
        ("flash-limit", "flash_limit_bytes"),
        ("maxmemory-policy", "policy"),
        ("flash-compression", "compression"),
        ("bind", "bind"),
        ("backup-schedule", "backup_schedule"),
        ("backup-keep", "backup_keep"),
    ];
    let is_of = |directive: &str| error.why.starts_with(directive) || error.place.contains(&format!(": {directive} "));
    fields.iter().find(|(directive, _)| is_of(directive)).map_or("memory_limit_bytes", |&(_, field)| field)
}

/// Switches `appendonly` and `appendfsync` as CONFIG SET does.
fn change_persistence(database: &Database, persistence: &str) -> Result<(), NodeError> {
    const FIELD: &str = "persistence";
    if !PERSISTENCE.contains(&persistence) {
        let message = format!("'{persistence}' is not one of {}", PERSISTENCE.join(", "));
        return Err(NodeError::Invalid { field: FIELD, message });
    }
    let is_on = persistence != "none";
    if is_on {
        set_and_keep(database, &[("appendfsync", persistence.to_owned())], FIELD)?;
    }
    // Alone, because it writes the whole dataset.
    set_and_keep(database, &[("appendonly", if is_on { "yes" } else { "no" }.to_owned())], FIELD)
}

fn set_and_keep(database: &Database, pairs: &[(&str, String)], field: &'static str) -> Result<(), NodeError> {
    database.set_and_keep_config(pairs, CHANGE_TIMEOUT).map_err(|why| match why {
        NotSet::Refused(why) => NodeError::Invalid { field, message: plain(&why) },
        NotSet::File(why) => NodeError::Io(plain(&why)),
    })?;
    if database.hub.config.file().is_none() {
        let name = database.name();
        tracing::warn!(
            "the change of database '{name}' is lost when the node stops, because the node was started without a configuration file"
        );
    }
    Ok(())
}

impl Database {
    /// Why the dataset could not be loaded.
    pub fn load_failure(&self) -> Option<String> {
        self.files.load_failure.lock().clone()
    }

    /// Keys that the last load of files or of a primary's dataset brought; 0: there was none.
    pub fn keys_loaded(&self) -> u64 {
        self.files.keys_loaded.load(Relaxed)
    }

    /// How the dataset came back at the start. Only the first call is told.
    pub fn take_recovered(&self) -> Option<Recovered> {
        self.files.recovered.lock().take()
    }

    pub fn state(&self) -> DatabaseState {
        match () {
            () if self.is_deleting.load(Relaxed) => DatabaseState::Deleting,
            () if self.load_failure().is_some() => DatabaseState::Failed,
            () if self.hub.clients.load_state() != LoadState::Open => DatabaseState::Loading {
                done_bytes: self.files.loaded_bytes.load(Relaxed),
                total_bytes: self.files.loading_total_bytes.load(Relaxed),
            },
            () if self.is_paused() => DatabaseState::Paused,
            () => self.shard.store.resizing().map_or(DatabaseState::Active, |progress| DatabaseState::Resizing {
                done_bytes: progress.moved_bytes,
                total_bytes: progress.total_bytes,
            }),
        }
    }
}

/// Writes a file completely or not at all. Only its owner may read it, because it may contain a password.
pub(crate) fn write_secret(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let draft = path.with_extension("new");
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&draft, path)
}

pub(crate) fn io_error(path: &Path, error: &io::Error) -> NodeError {
    NodeError::Io(format!("{}: {error}", path.display()))
}

/// Turns an error reply into a sentence.
fn plain(reply: &str) -> String {
    let text = reply.strip_prefix("ERR ").unwrap_or(reply);
    text.rsplit_once(" - ").map_or(text, |(_, why)| why).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_replies_become_sentences() {
        assert_eq!(plain("ERR CONFIG SET failed (possibly related to argument 'x') - too small"), "too small");
        assert_eq!(plain("ERR nothing"), "nothing");
    }
}
