//! Owns the process as its operator sees it: the databases it serves, what they may take together, and what is kept of
//! them over a restart. Never serves a connection.
//!
//! ```text
//! state-dir/databases/NAME.conf     a database's configuration
//! state-dir/databases/NAME.paused   its commands are refused
//! ```

use crate::config::{self, Config, ConfigStore};
use crate::crew::Crew;
use crate::database::{DEFAULT_NAME, Database, NotSet};
use crate::definition::{Definition, DefinitionChange, NodeError, inherited};
use crate::memory;
use crate::open;
use crate::start::raise_open_files;
use crate::thread::wall_ms;
use base::{Codec, Policy, size};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::Notify;

pub struct Node {
    pub(crate) crew: Crew,
    /// Of the thread that accepts connections and watches the clock.
    pub(crate) runtime: Handle,
    /// The default one first, then by name.
    databases: RwLock<Vec<Arc<Database>>>,
    /// Defined, and could not be opened: why.
    failed: Mutex<BTreeMap<String, String>>,
    /// One change of what databases there are, or of their limits, at a time.
    changes: Mutex<()>,
    state_dir: PathBuf,
    huge_pages: AtomicBool,
    run_id: String,
    pub(crate) started: Instant,
    started_ms: u64,
    /// SHUTDOWN was given, or asked for: the starter's thread is woken.
    pub(crate) shutdown: Notify,
    is_stopping: AtomicBool,
}

/// What the machine has for databases and what their limits take of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// The machine's (or the container's) RAM less a reserve for the system.
    pub ram_bytes: u64,
    pub ram_taken_bytes: u64,
    /// Of the flash paths: what is free, and what databases hold.
    pub flash_bytes: u64,
    pub flash_taken_bytes: u64,
    /// Name, RAM, flash.
    pub by_database: Vec<(String, u64, u64)>,
}

/// What a database is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Active,
    Paused,
    /// Its flash becomes smaller: values move out of what is given back.
    Resizing {
        done_bytes: u64,
        total_bytes: u64,
    },
    Deleting,
}

/// Of the machine's RAM, the system keeps one part in so many.
const SYSTEM_SHARE: u64 = 16;
/// How long one change of the databases waits for another.
pub const CHANGE_PATIENCE: Duration = Duration::from_secs(30);
/// Ports looked at for one that is free.
const PORTS_TRIED: u16 = 1000;

impl Node {
    pub(crate) fn new(runtime: Handle, threads: usize, config: &Config) -> io::Result<Arc<Node>> {
        Ok(Arc::new(Node {
            crew: Crew::start(threads)?,
            runtime,
            databases: RwLock::default(),
            failed: Mutex::default(),
            changes: Mutex::default(),
            state_dir: config.state_dir.clone(),
            huge_pages: AtomicBool::new(false),
            run_id: open::run_id(),
            started: Instant::now(),
            started_ms: wall_ms(),
            shutdown: Notify::new(),
            is_stopping: AtomicBool::new(false),
        }))
    }

    // --- what there is ---

    /// The default one first, then by name.
    pub fn databases(&self) -> Vec<Arc<Database>> {
        self.databases.read().clone()
    }

    pub fn database(&self, name: &str) -> Option<Arc<Database>> {
        self.databases.read().iter().find(|database| *database.name == *name).cloned()
    }

    fn default(&self) -> Arc<Database> {
        Arc::clone(&self.databases.read()[0])
    }

    /// Databases that are defined and could not be opened, and why.
    pub fn failed(&self) -> BTreeMap<String, String> {
        self.failed.lock().clone()
    }

    /// The default database's configuration, which has the node's directives.
    pub fn config(&self) -> Arc<ConfigStore> {
        Arc::clone(&self.default().config)
    }

    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    pub fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    pub fn started_ms(&self) -> u64 {
        self.started_ms
    }

    pub fn workers(&self) -> usize {
        self.crew.count()
    }

    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Relaxed)
    }

    /// The process ends as by SIGTERM.
    pub fn shut_down(&self) {
        self.shutdown.notify_one();
    }

    // --- start and end ---

    pub(crate) fn open_default(
        self: &Arc<Self>,
        config: Arc<ConfigStore>,
        clients_cap: usize,
        huge_pages: bool,
    ) -> io::Result<Arc<Database>> {
        self.huge_pages.store(huge_pages, Relaxed);
        let database = open::open(self, DEFAULT_NAME, config, clients_cap, huge_pages)?;
        database.clients.suspended.store(self.paused_file(DEFAULT_NAME).exists(), Relaxed);
        self.databases.write().push(Arc::clone(&database));
        Ok(database)
    }

    /// Opens the databases whose definitions were kept. One that cannot be opened does not keep the others from it.
    pub(crate) fn open_others(self: &Arc<Self>) {
        let Ok(folder) = fs::read_dir(self.folder()) else { return };
        let mut names: Vec<String> = folder
            .filter_map(|file| Some(file.ok()?.file_name().to_str()?.strip_suffix(".conf")?.to_owned()))
            .collect();
        names.sort();
        for name in names {
            if let Err(error) = self.open_one(&name) {
                tracing::error!("database '{name}' is not served: {error}");
                self.failed.lock().insert(name, error.to_string());
            }
        }
        let room = self.room();
        if room.ram_taken_bytes > room.ram_bytes {
            tracing::warn!(
                "the RAM limits of all databases together, {}, are more than the {} this machine has for them",
                size::human(room.ram_taken_bytes),
                size::human(room.ram_bytes)
            );
        }
    }

    fn open_one(self: &Arc<Self>, name: &str) -> io::Result<Arc<Database>> {
        let default = self.default();
        let config =
            ConfigStore::from_file_and(&self.conf_file(name), &inherited(&default.config)).map_err(io::Error::other)?;
        for notice in config.take_notices() {
            tracing::warn!("database '{name}': {notice}");
        }
        let limit = config.snapshot().ram_limit_bytes;
        let huge_pages = self.huge_pages.load(Relaxed) && limit >= crate::huge_pages::RAM_LIMIT_MIN;
        let clients_cap = config.snapshot().maxclients;
        let database = open::open(self, name, Arc::new(config), clients_cap, huge_pages)?;
        database.clients.suspended.store(self.paused_file(name).exists(), Relaxed);
        {
            let mut databases = self.databases.write();
            databases.push(Arc::clone(&database));
            databases[1..].sort_by(|a, b| a.name.cmp(&b.name));
        }
        self.make_room_for_clients(&database);
        tracing::info!("database '{name}' is served on {:?}", database.endpoints);
        Ok(database)
    }

    /// No database is changed any more.
    pub(crate) fn stopping(&self) {
        self.is_stopping.store(true, Relaxed);
        drop(self.changes.lock());
    }

    pub(crate) fn close(&self) {
        let databases = std::mem::take(&mut *self.databases.write());
        std::thread::scope(|scope| {
            for database in &databases {
                scope.spawn(|| open::close(database));
            }
        });
        self.crew.end();
    }

    /// maxclients of a database, or less where the system allows fewer open files.
    pub(crate) fn make_room_for_clients(&self, changed: &Database) {
        let wanted = |database: &Database| database.config.snapshot().maxclients;
        let databases = self.databases();
        let all: usize = databases.iter().map(|database| wanted(database)).sum();
        let cap = raise_open_files(all);
        for database in databases.iter().filter(|database| cap < all || *database.name == *changed.name) {
            let mine = wanted(database);
            let share = if cap < all { (mine as u128 * cap as u128 / all as u128) as usize } else { mine };
            database.clients_cap.store(share.max(1), Relaxed);
        }
    }

    // --- what databases may take together ---

    pub fn room(&self) -> Room {
        let databases = self.databases();
        let by_database: Vec<(String, u64, u64)> = databases.iter().map(|database| takes(database)).collect();
        let config = self.default().config.snapshot();
        let held: u64 = databases.iter().filter_map(|database| database.flash.as_ref()).map(open::Flash::bytes).sum();
        let ram = memory::system_bytes("MemTotal").min(container_bytes().unwrap_or(u64::MAX));
        Room {
            ram_bytes: ram - ram / SYSTEM_SHARE,
            ram_taken_bytes: by_database.iter().map(|(_, ram, _)| ram).sum(),
            flash_bytes: free_bytes(&config.flash_paths) + held,
            flash_taken_bytes: by_database.iter().map(|(.., flash)| flash).sum(),
            by_database,
        }
    }

    /// Whether a database may have these limits (RAM, flash) beside the others. The error has the arithmetic. The caller holds
    /// [`Node::begin_change`]: of two databases that grow at a time, each would find the room that only one of them can have.
    pub(crate) fn check_room(&self, name: &str, (ram, flash): (u64, u64)) -> Result<(), String> {
        let room = self.room();
        // Alone it is its owner's own affair, as it is with Redis.
        if name == DEFAULT_NAME && room.by_database.len() == 1 {
            return Ok(());
        }
        let before =
            room.by_database.iter().find(|(known, ..)| known == name).map_or((0, 0), |&(_, ram, flash)| (ram, flash));
        let parts = |of: fn(&(String, u64, u64)) -> u64| {
            let others = room.by_database.iter().filter(|(known, ..)| known != name);
            let parts: Vec<String> = others.map(|taken| format!("{} {}", taken.0, size::human(of(taken)))).collect();
            if parts.is_empty() { String::new() } else { format!("{} + ", parts.join(" + ")) }
        };
        let refuse = |what: &str, others: String, wanted: u64, taken: u64, has: u64| {
            Err(format!(
                "{what} of all databases together would be {others}{name} {} = {}, and this machine has {} for them: {} \
                 are left for '{name}'",
                size::human(wanted),
                size::human(taken + wanted),
                size::human(has),
                size::human(has.saturating_sub(taken))
            ))
        };
        // What becomes smaller is never refused.
        if ram > before.0 && room.ram_taken_bytes - before.0 + ram > room.ram_bytes {
            return refuse("RAM limits", parts(|t| t.1), ram, room.ram_taken_bytes - before.0, room.ram_bytes);
        }
        if flash > before.1 && room.flash_taken_bytes - before.1 + flash > room.flash_bytes {
            return refuse("flash", parts(|t| t.2), flash, room.flash_taken_bytes - before.1, room.flash_bytes);
        }
        Ok(())
    }

    /// Of the process's resident bytes those that count as one database's: what is its own, and of what is nobody's (code,
    /// the allocator's slack) a share as large as its share of what is somebody's.
    pub(crate) fn share(&self, mine: &Database, process: u64) -> u64 {
        let databases = self.databases.read();
        if databases.len() < 2 {
            return process;
        }
        let own: u64 = databases.iter().map(|database| database.own_bytes()).sum();
        let mine = mine.own_bytes();
        mine + portion(process.saturating_sub(own), mine, own, databases.len())
    }

    /// The same of what is allocated beside objects.
    pub(crate) fn share_beside(&self, mine: &Database, process: u64) -> u64 {
        let databases = self.databases.read();
        if databases.len() < 2 {
            return process;
        }
        let own: u64 = databases.iter().map(|database| database.own_bytes()).sum();
        let beside: u64 = databases.iter().map(|database| database.beside_bytes.load(Relaxed)).sum();
        let rest = process.saturating_sub(beside);
        mine.beside_bytes.load(Relaxed) + portion(rest, mine.own_bytes(), own, databases.len())
    }

    // --- changes ---

    /// What would be made of a definition: the port that is free, if none is said. Refused as [`Node::create`] would.
    pub fn plan(&self, definition: &Definition) -> Result<Definition, NodeError> {
        definition.check()?;
        let name = &definition.name;
        if self.database(name).is_some() || self.conf_file(name).exists() {
            return Err(NodeError::Exists(name.clone()));
        }
        let invalid = |field, message: String| NodeError::Invalid { field, message };
        for (field, value, words) in
            [("policy", &definition.policy, Policy::WORDS), ("compression", &definition.compression, Codec::WORDS)]
        {
            if !words.contains(&value.as_str()) {
                return Err(invalid(field, format!("'{value}' is none of {}", words.join(", "))));
            }
        }
        let has_flash = !self.default().config.snapshot().flash_paths.is_empty();
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
            planned.port = self
                .free_port()
                .ok_or_else(|| invalid("port", "no port is free beside the default database's: say one".to_owned()))?;
        }
        for (field, port) in [("port", planned.port), ("tls_port", planned.tls_port)] {
            if port != 0 && !self.is_free(port) {
                return Err(invalid(field, format!("port {port} is taken: choose another")));
            }
        }
        self.check_room(name, (definition.ram_limit_bytes, flash)).map_err(|message| NodeError::NoRoom { message })?;
        self.check_file(&planned)?;
        Ok(planned)
    }

    /// Makes a database and serves it. Blocks while its flash is made.
    pub fn create(self: &Arc<Self>, definition: &Definition) -> Result<Arc<Database>, NodeError> {
        let _changes = self.begin_change(CHANGE_PATIENCE)?;
        loop {
            let planned = self.plan(definition)?;
            let (name, file) = (&planned.name, self.conf_file(&planned.name));
            write_secret(&file, &planned.file()).map_err(|error| io_error(&file, &error))?;
            let error = match self.open_one(name) {
                Ok(database) => return Ok(database),
                Err(error) => error,
            };
            // It was never there.
            let _ = fs::remove_file(&file);
            let is_taken = error.kind() == io::ErrorKind::AddrInUse;
            if planned.port == definition.port || !is_taken {
                return Err(NodeError::Io(format!("database '{name}' cannot be opened: {error}")));
            }
            // Somebody took the port that was free a moment ago: there is another.
        }
    }

    /// Changes limits, policy, compression or password of a database while it serves; it is kept in its file.
    pub fn resize(&self, name: &str, change: &DefinitionChange) -> Result<(), NodeError> {
        let _changes = self.begin_change(CHANGE_PATIENCE)?;
        let database = self.database(name).ok_or_else(|| NodeError::NotFound(name.to_owned()))?;
        let (before, now) = (database.definition(), database.config.snapshot());
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
        let flash = if now.flash_paths.is_empty() { 0 } else { memory.saturating_sub(ram) };
        self.check_room(name, (ram, flash)).map_err(|message| NodeError::NoRoom { message })?;
        let field = match (change.memory_limit_bytes, change.ram_limit_bytes, &change.policy, &change.compression) {
            (Some(_), ..) => "memory_limit_bytes",
            (_, Some(_), ..) => "ram_limit_bytes",
            (.., Some(_), _) => "policy",
            (.., Some(_)) => "compression",
            _ => "password",
        };
        database.set_and_keep_config(&change.directives(), CHANGE_PATIENCE).map_err(|why| match why {
            NotSet::Refused(why) => NodeError::Invalid { field, message: plain(&why) },
            NotSet::File(why) => NodeError::Io(plain(&why)),
        })?;
        if database.config.file().is_none() {
            tracing::warn!("the change of database '{name}' lasts until the node ends: it was started without a file");
        }
        Ok(())
    }

    pub fn pause(&self, name: &str) -> Result<(), NodeError> {
        self.set_paused(name, true)
    }

    pub fn resume(&self, name: &str) -> Result<(), NodeError> {
        self.set_paused(name, false)
    }

    fn set_paused(&self, name: &str, paused: bool) -> Result<(), NodeError> {
        let _changes = self.begin_change(CHANGE_PATIENCE)?;
        let database = self.database(name).ok_or_else(|| NodeError::NotFound(name.to_owned()))?;
        let mark = self.paused_file(name);
        let kept = match paused {
            true => write_secret(&mark, ""),
            false if mark.exists() => fs::remove_file(&mark),
            false => Ok(()),
        };
        kept.map_err(|error| io_error(&mark, &error))?;
        database.clients.suspended.store(paused, Relaxed);
        Ok(())
    }

    /// Ends a database: its connections, its data and its definition. Blocks until it is gone.
    pub fn delete(&self, name: &str) -> Result<(), NodeError> {
        let _changes = self.begin_change(CHANGE_PATIENCE)?;
        if name == DEFAULT_NAME {
            let message = "the default database is the configuration file's: it goes with the node".to_owned();
            return Err(NodeError::Unsupported { field: "name", message });
        }
        let file = self.conf_file(name);
        let Some(database) = self.database(name) else {
            // One that could not be opened has a definition all the same.
            if self.failed.lock().remove(name).is_none() {
                return Err(NodeError::NotFound(name.to_owned()));
            }
            return fs::remove_file(&file).map_err(|error| io_error(&file, &error));
        };
        // Its definition goes first: whatever happens now, it is not there again after a restart.
        fs::remove_file(&file).map_err(|error| io_error(&file, &error))?;
        // Best effort, and there may be none.
        let _ = fs::remove_file(self.paused_file(name));
        database.is_deleting.store(true, Relaxed);
        open::close(&database);
        self.databases.write().retain(|known| *known.name != *name);
        if let Some(flash) = &database.flash {
            flash.files.delete().map_err(|error| NodeError::Io(error.to_string()))?;
        }
        tracing::info!("database '{name}' is deleted");
        Ok(())
    }

    /// The right to change databases and their limits, until it is dropped.
    pub(crate) fn begin_change(&self, patience: Duration) -> Result<parking_lot::MutexGuard<'_, ()>, NodeError> {
        let busy = |what: &str| NodeError::Busy(what.to_owned());
        let changes = self.changes.try_lock_for(patience);
        let changes = changes.ok_or_else(|| busy("another change of the node's databases is under way: try again"))?;
        if self.is_stopping() { Err(busy("the node is stopping")) } else { Ok(changes) }
    }

    /// Whether the configuration that the definition makes is one; nothing is kept.
    fn check_file(&self, definition: &Definition) -> Result<(), NodeError> {
        let trial = self.folder().join(format!(".{}.trial", definition.name));
        write_secret(&trial, &definition.file()).map_err(|error| io_error(&trial, &error))?;
        let loaded = ConfigStore::from_file_and(&trial, &inherited(&self.default().config));
        // Best effort: the name shows what it is.
        let _ = fs::remove_file(&trial);
        let checked = loaded.map_err(|error| error.why).and_then(|config| {
            config::leaves_ram_for_values(&config.snapshot(), false)?;
            Ok(())
        });
        checked.map_err(|message| NodeError::Invalid { field: "memory_limit_bytes", message })
    }

    fn free_port(&self) -> Option<u16> {
        let config = self.default().config.snapshot();
        let from = if config.port == 0 { 6379 } else { config.port };
        (from.saturating_add(1)..=from.saturating_add(PORTS_TRIED)).find(|&port| self.is_free(port))
    }

    fn is_free(&self, port: u16) -> bool {
        let config = self.default().config.snapshot();
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
}

impl Database {
    pub fn state(&self) -> State {
        match () {
            () if self.is_deleting.load(Relaxed) => State::Deleting,
            () if self.is_paused() => State::Paused,
            () => self.store.resizing().map_or(State::Active, |progress| State::Resizing {
                done_bytes: progress.moved_bytes,
                total_bytes: progress.total_bytes,
            }),
        }
    }
}

/// Name, RAM and flash that a database may take. Without a RAM limit: what it takes now.
fn takes(database: &Database) -> (String, u64, u64) {
    let config = database.config.snapshot();
    let ram = match config.ram_limit_bytes {
        0 => database.resident_of(memory::resident_bytes()),
        limit => limit,
    };
    (database.name.to_string(), ram, config.flash_limit_bytes)
}

/// `whole` in proportion of `mine` to `all`; in equal parts where there is nothing yet.
fn portion(whole: u64, mine: u64, all: u64, count: usize) -> u64 {
    match all {
        0 => whole / count as u64,
        _ => (u128::from(whole) * u128::from(mine) / u128::from(all)) as u64,
    }
}

/// The limit of the control group, in a container.
fn container_bytes() -> Option<u64> {
    fs::read_to_string("/sys/fs/cgroup/memory.max").ok()?.trim().parse().ok()
}

/// Free bytes of the file systems that the paths are on, each counted once.
fn free_bytes(paths: &[PathBuf]) -> u64 {
    let mut devices = BTreeMap::new();
    for path in paths {
        let Ok(found) = fs::metadata(path) else { continue };
        if let Ok(space) = rustix::fs::statvfs(path) {
            devices.insert(found.dev(), space.f_bavail * space.f_frsize);
        }
    }
    devices.values().sum()
}

/// Written whole or not at all, readable by its owner alone: there may be a password in it.
fn write_secret(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let draft = path.with_extension("new");
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&draft, path)
}

fn io_error(path: &Path, error: &io::Error) -> NodeError {
    NodeError::Io(format!("{}: {error}", path.display()))
}

/// An error reply as a sentence.
fn plain(reply: &str) -> String {
    let text = reply.strip_prefix("ERR ").unwrap_or(reply);
    text.rsplit_once(" - ").map_or(text, |(_, why)| why).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nobodys_is_shared_in_proportion() {
        assert_eq!(portion(100, 30, 120, 2), 25);
        assert_eq!(portion(100, 0, 0, 4), 25);
        assert_eq!(portion(u64::MAX, 1 << 40, 1 << 41, 2), u64::MAX / 2);
    }

    #[test]
    fn error_replies_become_sentences() {
        assert_eq!(plain("ERR CONFIG SET failed (possibly related to argument 'x') - too small"), "too small");
        assert_eq!(plain("ERR nothing"), "nothing");
    }
}
