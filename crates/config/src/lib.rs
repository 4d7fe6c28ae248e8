//! Owns the configuration: the directives, their values, and how values are read, changed and written back.
//! Never knows a client, a key or a socket.
//!
//! Reading order: `table` (every directive), `row` (what a row of the table consists of, and what is made of it), `value` (words to value),
//! `load` (file, standard input, command line), `typed` (value to what the server reads, checks between directives), `rewrite`, `docs`.
//!
//! There is one way for a setting to take effect. Code that reads a setting when it needs it reads the current [`Config`].
//! Code that stores something derived from a setting subscribes to changes ([`ConfigStore::subscribe`]). Work that can
//! refuse a change (files, limits) is done between [`ConfigStore::draft`] and [`ConfigStore::keep`].
//!
//! A worker keeps the [`Config`] that it got from [`ConfigStore::snapshot`]. When [`ConfigStore::version`] has changed, the
//! worker takes a new snapshot. So a command reads the configuration without a lock.

#![forbid(unsafe_code)]

pub mod definition;
mod docs;
mod load;
mod rewrite;
mod row;
mod table;
mod text;
mod typed;
mod value;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::glob;
use parking_lot::{Mutex, MutexGuard, RwLock};

pub use docs::configuration_md;
pub use load::LoadError;
pub use rewrite::Prepared;
pub use row::{Change, Effect, Group, Kind, Row};
pub use table::{
    Config, ConsoleSettings, PrimarySettings, ROWS, RedisFiles, ReplicaSettings, TlsSettings, find_name, is_of_node,
    is_secret,
};
pub use typed::{
    AppendFsync, BindAddress, Codec, FLASH_BYTES_MIN, FlashIo, Guard, LogFormat, LogLevel, OutputLimit, Policy, Secret,
    Supervised, TierMode, TlsAuth, leaves_ram_for_values,
};

pub use text::{bytes as word_bytes, is_text, join as join_words, split as split_words, word};

use table::find;
use value::{Mode, Value};

/// The configuration of a running server.
#[derive(Debug)]
pub struct ConfigStore {
    current: RwLock<Arc<Config>>,
    version: AtomicU64,
    /// Held from reading the old configuration until everything uses the new one. That may include file I/O: see [`ChangeGuard`].
    turn: Mutex<()>,
    /// Locked only for short moments, never during I/O.
    state: Mutex<ConfigState>,
    file: Option<PathBuf>,
    /// For each row: whether the file or the command line set the directive.
    named: Vec<bool>,
    subscribers: Subscribers,
}

type Subscriber = Box<dyn Fn(&Draft) + Send + Sync>;

/// The functions that are called with each change, in the order of subscription.
#[derive(Default)]
struct Subscribers(RwLock<Vec<Subscriber>>);

impl std::fmt::Debug for Subscribers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Subscribers").field(&self.0.read().len()).finish()
    }
}

/// The lock that a thread must hold to change the configuration or to write its file. Without the lock, after two changes at
/// the same time the store could use one value while CONFIG GET shows the other.
pub struct ChangeGuard<'c>(#[expect(dead_code, reason = "it is held")] MutexGuard<'c, ()>);

/// A change that passed all checks and is not in effect yet.
pub struct Draft {
    pub before: Arc<Config>,
    pub now: Arc<Config>,
    values: Vec<Value>,
    /// The rows that CONFIG SET names, even if the value stays the same.
    rows: Vec<usize>,
    /// The directive that the error text names if the change is refused.
    blamed: String,
}

impl Draft {
    /// Whether the change sets a directive whose name satisfies `fits`.
    pub fn sets(&self, fits: impl Fn(&str) -> bool) -> bool {
        self.rows.iter().any(|&index| fits(ROWS[index].name))
    }

    /// The error reply if the change cannot take effect.
    pub fn refused(&self, why: &str) -> String {
        set_failed(&self.blamed, why)
    }

    /// The same, if it is known which directive is the cause.
    pub fn refused_for(&self, name: &str, why: &str) -> String {
        set_failed(name, why)
    }
}

fn set_failed(name: &str, why: &str) -> String {
    format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}")
}

struct ConfigState {
    values: Vec<Value>,
    /// For each row: whether the log has already said that the directive has no effect.
    told: Vec<bool>,
    /// Log lines that were collected before the log existed.
    notices: Vec<String>,
}

impl std::fmt::Debug for ConfigState {
    /// Leaves out the values, because some are secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConfigState").field("notices", &self.notices).finish_non_exhaustive()
    }
}

impl ConfigStore {
    /// Reads the arguments of `flintkv server`: `[CONF|-] [--directive value …]`.
    pub fn from_args(args: &[String]) -> Result<Self, LoadError> {
        let launch = load::arguments(args)?;
        let mut loaded = launch.load(std::io::stdin())?;
        loaded.keep_what_is_on_flash();
        // Make the path absolute, so that CONFIG REWRITE finds the file after a change of the working directory.
        let file = match &launch.file {
            Some(file) => Some(
                std::path::absolute(file)
                    .map_err(|error| LoadError { place: file.display().to_string(), why: error.to_string() })?,
            ),
            None => None,
        };
        Self::new(loaded, file)
    }

    /// A configuration from directives alone, for tests and embedding.
    pub fn from_directives(directives: &[(&str, &str)]) -> Result<Self, LoadError> {
        let mut loaded = load::Loaded::defaults()?;
        for (name, value) in directives {
            let words = [name.to_string(), value.to_string()];
            loaded.directive("directive", &words, 0)?;
        }
        loaded.keep_what_is_on_flash();
        Self::new(loaded, None)
    }

    /// The configuration of a database with its own file. The node's `directives` override those of the file.
    pub fn from_file_and(file: &Path, directives: &[(&str, Vec<String>)]) -> Result<Self, LoadError> {
        let mut loaded = load::Loaded::defaults()?;
        loaded.file(file)?;
        for (name, words) in directives {
            let line: Vec<String> = std::iter::once((*name).to_owned()).chain(words.iter().cloned()).collect();
            loaded.directive("the node", &line, 0)?;
        }
        Self::new(loaded, Some(file.to_owned()))
    }

    /// The words of a directive's value, as a file would contain them.
    pub fn words(&self, name: &str) -> Vec<String> {
        find(name).map_or_else(Vec::new, |index| self.state.lock().values[index].clone())
    }

    /// Whether the file or the command line set a directive.
    pub fn is_named(&self, name: &str) -> bool {
        find(name).is_some_and(|index| self.named[index])
    }

    fn new(loaded: load::Loaded, file: Option<PathBuf>) -> Result<Self, LoadError> {
        let config = typed::build(&loaded.values).map_err(LoadError::contradiction)?;
        let mut state =
            ConfigState { values: loaded.values, told: vec![false; ROWS.len()], notices: typed::advice(&config) };
        for (index, row) in ROWS.iter().enumerate() {
            let default = load::default_value(row).map_err(LoadError::contradiction)?;
            if loaded.named[index] && state.values[index] != default {
                let line = state.notice_of(index);
                state.notices.extend(line);
            }
        }
        Ok(ConfigStore {
            current: RwLock::new(Arc::new(config)),
            version: AtomicU64::new(1),
            turn: Mutex::new(()),
            state: Mutex::new(state),
            file,
            named: loaded.named,
            subscribers: Subscribers::default(),
        })
    }

    /// The current configuration.
    pub fn snapshot(&self) -> Arc<Config> {
        Arc::clone(&self.current.read())
    }

    /// A number that changes whenever [`snapshot`](Self::snapshot) would return another configuration.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The absolute path of the configuration file, if the server was started with one.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Log lines about the configuration, to be written when the log exists. Empty from the second call on.
    pub fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().notices)
    }

    /// CONFIG GET: the names that any pattern matches, with their values, each once, in the table's order.
    /// For a pattern without wildcards, the reply repeats the name as the client spelled it. A password may be bytes that
    /// are not text: see [`word_bytes`].
    pub fn get<P: AsRef<[u8]>>(&self, patterns: &[P]) -> Vec<(String, String)> {
        let state = self.state.lock();
        let config = self.snapshot();
        let mut found = Vec::new();
        for (row, value) in ROWS.iter().zip(&state.values).filter(|(row, _)| row.change != Change::FileOnly) {
            for name in [row.name, row.alias].into_iter().filter(|name| !name.is_empty()) {
                let matching = patterns.iter().find_map(|pattern| match std::str::from_utf8(pattern.as_ref()) {
                    Ok(exact) if exact.eq_ignore_ascii_case(name) => Some(exact),
                    _ if row.group == Group::Hidden => None,
                    _ => glob::matches(pattern.as_ref(), name.as_bytes(), true).then_some(name),
                });
                let Some(shown_name) = matching else { continue };
                let shown = match name {
                    // If `maxmemory` was set, CONFIG GET shows the RAM limit.
                    "maxmemory" if value::show(row, value) != "0" => config.ram_limit_bytes.to_string(),
                    "io-threads" => config.io_threads.to_string(),
                    _ => value::show(row, value),
                };
                found.push((shown_name.to_owned(), shown));
            }
        }
        found
    }

    /// Takes the lock for a change. None: another change held the lock for as long as `timeout`.
    pub fn turn(&self, timeout: Duration) -> Option<ChangeGuard<'_>> {
        self.turn.try_lock_for(timeout).map(ChangeGuard)
    }

    /// CONFIG SET by a client of another machine. Sets all pairs or none. The error is the whole reply, `ERR …`.
    pub fn set<N: AsRef<[u8]>, V: AsRef<[u8]>>(&self, pairs: &[(N, V)]) -> Result<(), String> {
        let turn = ChangeGuard(self.turn.lock());
        let draft = self.draft(&turn, pairs, false)?;
        self.keep(&turn, &draft);
        Ok(())
    }

    /// Checks CONFIG SET. `local` says that the client is connected over loopback or the unix socket:
    /// `enable-protected-configs local` allows such a client to change protected directives. The error is the whole reply.
    pub fn draft<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        _turn: &ChangeGuard<'_>,
        pairs: &[(N, V)],
        local: bool,
    ) -> Result<Draft, String> {
        let before = self.snapshot();
        let guard = before.enable_protected_configs;

        let mut changes: Vec<(usize, &str, &[u8])> = Vec::with_capacity(pairs.len());
        for (name, value) in pairs {
            let shown = String::from_utf8_lossy(name.as_ref());
            let known = std::str::from_utf8(name.as_ref()).ok().and_then(|name| Some((find(name)?, name)));
            let Some((index, name)) = known.filter(|&(index, _)| ROWS[index].change != Change::FileOnly) else {
                let shown: String = shown.chars().take(128).map(|c| if c.is_control() { '?' } else { c }).collect();
                return Err(format!("ERR Unknown option or number of arguments for CONFIG SET - '{shown}'"));
            };
            match ROWS[index].change {
                Change::Start | Change::FileOnly => {
                    return Err(set_failed(name, "can't set immutable config"));
                }
                Change::Protected if !guard.allows(local) => {
                    return Err(set_failed(name, "can't set protected config"));
                }
                Change::Protected | Change::Live => {}
            }
            if changes.iter().any(|(_, other, _)| other.eq_ignore_ascii_case(name)) {
                return Err(set_failed(name, "duplicate parameter"));
            }
            changes.push((index, name, value.as_ref()));
        }

        let mut values = self.state.lock().values.clone();
        for &(index, name, value) in &changes {
            match value::read(&ROWS[index], &[text::word(value)], &values[index], Mode::Set) {
                Ok(value) => values[index] = value,
                Err(why) => return Err(set_failed(name, &why)),
            }
        }
        // Only memory limits can contradict each other, so blame a memory directive if one was set.
        let memory = |row: &Row| matches!(row.group, Group::Memory | Group::Flash);
        let blamed = changes.iter().find(|(index, ..)| memory(&ROWS[*index])).or(changes.first());
        let blamed = blamed.map_or("", |(_, name, _)| name).to_owned();
        let now = Arc::new(typed::build(&values).map_err(|why| set_failed(&blamed, &why))?);
        let rows = changes.iter().map(|&(index, ..)| index).collect();
        Ok(Draft { before, now, values, rows, blamed })
    }

    /// REPLICAOF: the primary that the database follows from now on, if any. CONFIG SET cannot change it.
    pub fn keep_primary(&self, turn: &ChangeGuard<'_>, primary: Option<(&str, u16)>) -> Result<(), String> {
        let before = self.snapshot();
        let mut values = self.state.lock().values.clone();
        let row = find("replicaof").expect("it is in the table");
        values[row] = primary.map_or_else(Vec::new, |(host, port)| vec![host.to_owned(), port.to_string()]);
        let now = Arc::new(typed::build(&values)?);
        self.keep(turn, &Draft { before, now, values, rows: vec![row], blamed: String::new() });
        Ok(())
    }

    /// From now on, calls `subscriber` with every change that takes effect, while the lock of the change is held. `subscriber`
    /// must not change the configuration. It must not hold a strong reference to the owner of this store.
    pub fn subscribe(&self, subscriber: impl Fn(&Draft) + Send + Sync + 'static) {
        self.subscribers.0.write().push(Box::new(subscriber));
    }

    /// Makes the draft the current configuration. When this function returns, all subscribers have applied the change.
    pub fn keep(&self, _turn: &ChangeGuard<'_>, draft: &Draft) {
        let mut state = self.state.lock();
        for &index in &draft.rows {
            if draft.values[index] != state.values[index]
                && let Some(line) = state.notice_of(index)
            {
                tracing::warn!("{line}");
            }
        }
        state.values.clone_from(&draft.values);
        let mut current = self.current.write();
        if **current != *draft.now {
            current.clone_from(&draft.now);
            self.version.fetch_add(1, Ordering::Release);
        }
        drop((current, state));
        for subscriber in self.subscribers.0.read().iter() {
            subscriber(draft);
        }
    }

    /// CONFIG REWRITE: writes the current values into the file and keeps its comments and order. The error is the whole reply.
    /// `users` are the `user` lines to write. None: an ACL file holds the users.
    pub fn rewrite(&self, turn: &ChangeGuard<'_>, users: Option<Vec<String>>) -> Result<(), String> {
        self.prepare_file(turn, users, None)?.publish()
    }

    /// Writes the file of [`ConfigStore::rewrite`], with the values of `draft` if there is one, to a temporary file in the same
    /// directory. The configuration file itself does not change before [`Prepared::publish`].
    pub fn prepare_file(
        &self,
        _turn: &ChangeGuard<'_>,
        users: Option<Vec<String>>,
        draft: Option<&Draft>,
    ) -> Result<Prepared, String> {
        let file = self.file.as_deref().ok_or("ERR The server is running without a config file")?;
        let mut values = match draft {
            Some(draft) => draft.values.clone(),
            None => self.state.lock().values.clone(),
        };
        if let Some(users) = users {
            values[find("user").expect("it is in the table")] = users;
        }
        rewrite::prepare(file, &values)
    }
}

impl ConfigState {
    /// The log line that says that a directive has no effect. None after the first call for a row.
    fn notice_of(&mut self, index: usize) -> Option<String> {
        let Effect::Inert(why) = ROWS[index].effect else {
            return None;
        };
        let first = !std::mem::replace(&mut self.told[index], true);
        first.then(|| format!("directive '{}' has no effect: {why}", ROWS[index].name))
    }
}

#[cfg(test)]
mod tests;
