//! Owns an operator's definition of a database, and the configuration file made from it. Never opens anything.

use crate::capacity::DEFAULT_NAME;
use crate::database::Database;
use base::{Codec, Policy, size};
use config::{Config, ConfigStore};
use std::fmt;
use std::path::PathBuf;

/// A database as an operator asks for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// Lower-case letters, digits and hyphens, at most [`NAME_BYTES_MAX`].
    pub name: String,
    /// 0: no such port. If the definition has no port and no socket, the next free port is taken.
    pub port: u16,
    pub tls_port: u16,
    pub unixsocket: Option<PathBuf>,
    /// Empty: the addresses of the node's default database.
    pub bind: Vec<String>,
    /// RAM and flash together.
    pub memory_limit_bytes: u64,
    pub ram_limit_bytes: u64,
    /// All files on flash; 0: what the other limits and the persistence need.
    pub flash_limit_bytes: u64,
    /// maxmemory-policy.
    pub policy: String,
    /// flash-compression.
    pub compression: String,
    pub password: Option<String>,
    /// One of [`PERSISTENCE`].
    pub persistence: String,
    /// recovery-time-target; 0: none.
    pub recovery_time_target_s: u32,
    /// backup-schedule; empty: none.
    pub backup_schedule: String,
    /// backup-keep.
    pub backup_keep: u32,
    /// backup-journal-keep; empty: the journal is not archived.
    pub backup_journal_keep: String,
    /// The backup that a new database gets its dataset from: its directory below `backup-path`. A database that is there has none.
    pub from: Option<String>,
    /// The moment whose dataset it gets, in milliseconds since 1970: `from` may be a directory with several backups then.
    pub at_ms: Option<u64>,
    /// HOST:PORT of the primary that the database follows; empty: it is a primary.
    pub replica_of: String,
    /// Reserved in the definition's format. Values other than the default are refused until nodes support them.
    pub shards: u32,
    pub replicas: u32,
    pub zones: Vec<String>,
}

impl Default for Definition {
    fn default() -> Definition {
        Definition {
            name: String::new(),
            port: 0,
            tls_port: 0,
            unixsocket: None,
            bind: Vec::new(),
            memory_limit_bytes: 0,
            ram_limit_bytes: 0,
            flash_limit_bytes: 0,
            policy: Policy::NoEviction.as_str().to_owned(),
            compression: Codec::Lz4.as_str().to_owned(),
            password: None,
            persistence: "none".to_owned(),
            recovery_time_target_s: RECOVERY_TIME_TARGET_S,
            backup_schedule: String::new(),
            backup_keep: BACKUPS_KEPT,
            backup_journal_keep: String::new(),
            from: None,
            at_ms: None,
            replica_of: String::new(),
            shards: 1,
            replicas: 0,
            zones: Vec::new(),
        }
    }
}

/// What may change while a database serves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DefinitionChange {
    pub memory_limit_bytes: Option<u64>,
    pub ram_limit_bytes: Option<u64>,
    pub flash_limit_bytes: Option<u64>,
    pub policy: Option<String>,
    pub compression: Option<String>,
    /// One of [`PERSISTENCE`]. It is changed alone.
    pub persistence: Option<String>,
    /// 0: none.
    pub recovery_time_target_s: Option<u32>,
    /// Empty: no schedule.
    pub backup_schedule: Option<String>,
    pub backup_keep: Option<u32>,
    /// Empty: the journal is not archived.
    pub backup_journal_keep: Option<String>,
    /// HOST:PORT; empty: it becomes a primary. It is changed alone.
    pub replica_of: Option<String>,
    /// `Some(None)` removes the password.
    pub password: Option<Option<String>>,
}

/// Why a database could not be made, changed or deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeError {
    Invalid {
        field: &'static str,
        message: String,
    },
    /// The message contains the calculation.
    NoRoom {
        message: String,
    },
    Exists(String),
    NotFound(String),
    /// A requested feature does not exist yet.
    Unsupported {
        field: &'static str,
        message: String,
    },
    Busy(String),
    Io(String),
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeError::Invalid { message, .. }
            | NodeError::Unsupported { message, .. }
            | NodeError::NoRoom { message }
            | NodeError::Busy(message)
            | NodeError::Io(message) => f.write_str(message),
            NodeError::Exists(name) => write!(f, "there is a database '{name}' already"),
            NodeError::NotFound(name) => write!(f, "there is no database '{name}'"),
        }
    }
}

impl std::error::Error for NodeError {}

/// Why there is nothing to archive.
pub const NO_JOURNAL: &str = "only a database with persistence has a journal that can be kept: set persistence too";
/// The default of recovery-time-target.
const RECOVERY_TIME_TARGET_S: u32 = 10;
/// The default of backup-keep.
const BACKUPS_KEPT: u32 = 7;
pub const NAME_BYTES_MAX: usize = 40;
/// Nothing survives a restart; or `appendonly yes`, and the word is `appendfsync`.
pub const PERSISTENCE: &[&str] = &["none", "no", "everysec", "always"];
impl Definition {
    /// Checks everything that does not depend on the node.
    pub fn check(&self) -> Result<(), NodeError> {
        let invalid = |field, message: String| Err(NodeError::Invalid { field, message });
        let unsupported = |field, message: &str| Err(NodeError::Unsupported { field, message: message.to_owned() });
        let is_plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        let name = self.name.as_bytes();
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name[0] == b'-' || !name.iter().copied().all(is_plain) {
            let message = format!(
                "a name is 1 to {NAME_BYTES_MAX} small letters, digits and hyphens, and does not begin with a hyphen"
            );
            return invalid("name", message);
        }
        if matches!(self.name.as_str(), DEFAULT_NAME | "node") {
            return invalid("name", format!("'{}' is taken: choose another name", self.name));
        }
        if self.memory_limit_bytes == 0 {
            return invalid("memory_limit_bytes", "a database needs a memory limit: RAM and flash together".to_owned());
        }
        if self.ram_limit_bytes == 0 {
            return invalid("ram_limit_bytes", "a database needs a RAM limit".to_owned());
        }
        if self.ram_limit_bytes > self.memory_limit_bytes {
            let message = format!(
                "the RAM limit {} is more than the memory limit {}, which is RAM and flash together",
                size::exact(self.ram_limit_bytes),
                size::exact(self.memory_limit_bytes)
            );
            return invalid("ram_limit_bytes", message);
        }
        if self.shards != 1 {
            return unsupported(
                "shards",
                "a database has one shard until there are clusters: leave shards at 1, and divide keys over several databases in the client",
            );
        }
        if self.replicas != 0 {
            return unsupported(
                "replicas",
                "a node does not place replicas on other nodes until there are clusters: leave replicas at 0. To have a replica today, create \
                 a database with replica_of on another node, or let an existing one follow: POST …/replicate",
            );
        }
        if !PERSISTENCE.contains(&self.persistence.as_str()) {
            let message = format!("'{}' is none of {}", self.persistence, PERSISTENCE.join(", "));
            return invalid("persistence", message);
        }
        if !self.backup_journal_keep.is_empty() && self.persistence == "none" {
            return invalid("backup_journal_keep", NO_JOURNAL.to_owned());
        }
        if self.at_ms.is_some() && self.from.is_none() {
            let message = "a moment needs the backups that it is reached from: give from too".to_owned();
            return invalid("at_ms", message);
        }
        if primary_of(&self.replica_of)?.is_some() && self.from.is_some() {
            let message = "a replica's dataset comes from its primary: give from or replica_of".to_owned();
            return invalid("from", message);
        }
        if self.recovery_time_target_s > i32::MAX as u32 {
            let message = format!("a restart may take at most {} seconds; 0: as long as it takes", i32::MAX);
            return invalid("recovery_time_target_s", message);
        }
        if !self.zones.is_empty() {
            return unsupported(
                "zones",
                "zones say where a cluster will place a database's replicas, and there are no clusters yet: leave zones empty, and choose the \
                 node on which you create a replica",
            );
        }
        if self.port != 0 && self.port == self.tls_port {
            return invalid("tls_port", "port and tls-port are the same".to_owned());
        }
        Ok(())
    }

    /// The text of the database's configuration file.
    pub fn file(&self) -> String {
        let mut text = format!(
            "# Database {} of a FlintKV node. The node reads it at start; the console and CONFIG REWRITE write it.\n",
            self.name
        );
        let mut line = |name: &str, words: &[String]| {
            text.push_str(&format!("{name} {}\n", config::join_words(words)));
        };
        line("port", &[self.port.to_string()]);
        line("tls-port", &[self.tls_port.to_string()]);
        if let Some(path) = &self.unixsocket {
            line("unixsocket", &[path.display().to_string()]);
        }
        if !self.bind.is_empty() {
            line("bind", &self.bind);
        }
        line("memory-limit", &[self.memory_limit_bytes.to_string()]);
        line("ram-limit", &[self.ram_limit_bytes.to_string()]);
        if self.flash_limit_bytes != 0 {
            line("flash-limit", &[self.flash_limit_bytes.to_string()]);
        }
        line("maxmemory-policy", std::slice::from_ref(&self.policy));
        line("flash-compression", std::slice::from_ref(&self.compression));
        match self.persistence.as_str() {
            "none" => line("appendonly", &["no".to_owned()]),
            appendfsync => {
                line("appendonly", &["yes".to_owned()]);
                line("appendfsync", &[appendfsync.to_owned()]);
            }
        }
        line("recovery-time-target", &[self.recovery_time_target_s.to_string()]);
        if !self.backup_schedule.is_empty() {
            line("backup-schedule", std::slice::from_ref(&self.backup_schedule));
        }
        line("backup-keep", &[self.backup_keep.to_string()]);
        if !self.backup_journal_keep.is_empty() {
            line("backup-journal-keep", std::slice::from_ref(&self.backup_journal_keep));
        }
        // `check` has looked at it.
        if let Ok(Some((host, port))) = primary_of(&self.replica_of) {
            line("replicaof", &[host.to_owned(), port.to_string()]);
        }
        if let Some(password) = &self.password {
            line("requirepass", std::slice::from_ref(password));
        }
        text
    }
}

/// The primary's host and port. `None`: the text is empty.
pub fn primary_of(text: &str) -> Result<Option<(&str, u16)>, NodeError> {
    if text.is_empty() {
        return Ok(None);
    }
    let message = || format!("'{text}' is no HOST:PORT of a primary");
    let invalid = || NodeError::Invalid { field: "replica_of", message: message() };
    let (host, port) = text.rsplit_once(':').ok_or_else(invalid)?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let is_host = !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || c.is_control() || c == '"');
    match port.parse::<u16>() {
        Ok(port @ 1..) if is_host => Ok(Some((host, port))),
        _ => Err(invalid()),
    }
}

impl DefinitionChange {
    /// The change as directives of CONFIG SET, but for the persistence.
    pub fn directives(&self) -> Vec<(&'static str, String)> {
        let mut pairs = Vec::new();
        let mut add = |name, value: Option<String>| pairs.extend(value.map(|value| (name, value)));
        add("memory-limit", self.memory_limit_bytes.map(|bytes| bytes.to_string()));
        add("ram-limit", self.ram_limit_bytes.map(|bytes| bytes.to_string()));
        add("flash-limit", self.flash_limit_bytes.map(|bytes| bytes.to_string()));
        add("maxmemory-policy", self.policy.clone());
        add("flash-compression", self.compression.clone());
        add("recovery-time-target", self.recovery_time_target_s.map(|seconds| seconds.to_string()));
        add("backup-schedule", self.backup_schedule.clone());
        add("backup-keep", self.backup_keep.map(|keep| keep.to_string()));
        add("backup-journal-keep", self.backup_journal_keep.clone());
        add("requirepass", self.password.clone().map(Option::unwrap_or_default));
        pairs
    }
}

impl Database {
    /// The current definition.
    pub fn definition(&self) -> Definition {
        let config: &Config = &self.hub.config.snapshot();
        Definition {
            name: self.hub.name.to_string(),
            port: config.port,
            tls_port: config.tls.port,
            unixsocket: config.unixsocket.clone(),
            bind: self.hub.config.words("bind"),
            memory_limit_bytes: config.memory_limit_bytes,
            ram_limit_bytes: config.ram_limit_bytes,
            flash_limit_bytes: config.flash_limit_given_bytes,
            policy: config.maxmemory_policy.as_str().to_owned(),
            compression: config.flash_compression.as_str().to_owned(),
            password: config.requirepass.as_ref().map(|secret| config::word(secret.expose())),
            persistence: match config.redis_files.appendonly {
                true => config.redis_files.appendfsync.as_str().to_owned(),
                false => "none".to_owned(),
            },
            recovery_time_target_s: config.redis_files.recovery_target_s as u32,
            backup_schedule: self.hub.config.words("backup-schedule").concat(),
            backup_keep: config.backup_keep as u32,
            backup_journal_keep: self.hub.config.words("backup-journal-keep").concat(),
            replica_of: self.hub.config.words("replicaof").join(":"),
            ..Definition::default()
        }
    }
}

/// The directives that a database inherits from the default database's configuration.
pub fn inherited(default: &ConfigStore) -> Vec<(&'static str, Vec<String>)> {
    let mut directives = Vec::new();
    for name in config::ROWS.iter().filter(|row| row.is_inherited).map(|row| row.name) {
        let words = default.words(name);
        if name != "flash-path" {
            if !words.is_empty() {
                directives.push((name, words));
            }
            continue;
        }
        // An empty path clears the list; each further directive adds one path. The paths are already absolute.
        directives.push((name, vec![String::new()]));
        let paths = default.snapshot().flash_paths.clone();
        directives.extend(paths.into_iter().map(|path| (name, vec![path.display().to_string()])));
    }
    directives
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> Definition {
        Definition {
            name: "orders-2".to_owned(),
            port: 7000,
            memory_limit_bytes: 100 << 20,
            ram_limit_bytes: 30 << 20,
            ..Definition::default()
        }
    }

    #[test]
    fn an_invalid_definition_is_reported_by_its_field() {
        assert_eq!(sound().check(), Ok(()));
        let field = |change: fn(&mut Definition)| {
            let mut definition = sound();
            change(&mut definition);
            match definition.check() {
                Err(NodeError::Invalid { field, .. }) => field,
                Err(NodeError::Unsupported { field, .. }) => field,
                other => panic!("{other:?}"),
            }
        };
        for name in ["", "Orders", "-a", "a b", "../x", "default", "node", &"a".repeat(41)] {
            let definition = Definition { name: name.to_owned(), ..sound() };
            assert!(matches!(definition.check(), Err(NodeError::Invalid { field: "name", .. })), "{name}");
        }
        assert_eq!(field(|d| d.memory_limit_bytes = 0), "memory_limit_bytes");
        assert_eq!(field(|d| d.ram_limit_bytes = 0), "ram_limit_bytes");
        assert_eq!(field(|d| d.ram_limit_bytes = 101 << 20), "ram_limit_bytes");
        assert_eq!(field(|d| d.shards = 2), "shards");
        assert_eq!(field(|d| d.replicas = 1), "replicas");
        assert_eq!(field(|d| d.persistence = "aof".to_owned()), "persistence");
        assert_eq!(field(|d| d.recovery_time_target_s = 1 << 31), "recovery_time_target_s");
        assert_eq!(field(|d| d.zones = vec!["a".to_owned()]), "zones");
        assert_eq!(field(|d| d.tls_port = 7000), "tls_port");
        for primary in ["host", ":1", "host:", "host:0", "host:65536", "two words:1"] {
            let definition = Definition { replica_of: primary.to_owned(), ..sound() };
            assert!(matches!(definition.check(), Err(NodeError::Invalid { field: "replica_of", .. })), "{primary}");
        }
        let definition = Definition { replica_of: "h:1".to_owned(), from: Some("b".to_owned()), ..sound() };
        assert!(matches!(definition.check(), Err(NodeError::Invalid { field: "from", .. })));
    }

    #[test]
    fn a_file_says_what_the_definition_says() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("orders-2.conf");
        let replica_of = "[::1]:6379".to_owned();
        let definition =
            Definition { replica_of, password: Some("with \"quotes\" and spaces #1".to_owned()), ..sound() };
        std::fs::write(&path, definition.file()).unwrap();
        let config = ConfigStore::from_file_and(&path, &[]).unwrap();
        assert_eq!(config.snapshot().requirepass.as_ref().map(|p| config::word(p.expose())), definition.password);
        assert_eq!(config.snapshot().port, 7000);
        assert_eq!(config.snapshot().replica.primary, Some(("::1".to_owned(), 6379)));
        assert_eq!(config.snapshot().memory_limit_bytes, 100 << 20);
        assert_eq!(config.snapshot().ram_limit_bytes, 30 << 20);
    }
}
