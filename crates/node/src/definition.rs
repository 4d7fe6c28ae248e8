//! Owns which definitions of a database this node takes, and the definition of a database that is open. Never opens anything.

use crate::capacity::DEFAULT_NAME;
use crate::database::Database;
use base::size;
use config::definition::{Definition, PERSISTENCE, REPLICATION, host_and_port};
use config::{Config, ConfigStore};
use std::fmt;

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
            NodeError::Exists(name) => write!(f, "a database '{name}' exists already"),
            NodeError::NotFound(name) => write!(f, "there is no database '{name}'"),
        }
    }
}

impl std::error::Error for NodeError {}

/// Why there is nothing to archive.
pub const NO_JOURNAL: &str = "only a database with persistence has a journal to archive: set persistence too";
const NAME_BYTES_MAX: usize = 40;

/// Checks everything that does not depend on the node.
pub fn check(definition: &Definition) -> Result<(), NodeError> {
    check_placement(definition)?;
    check_for_cluster(definition)
}

/// What only a cluster does.
fn check_placement(definition: &Definition) -> Result<(), NodeError> {
    let unsupported = |field, message: &str| Err(NodeError::Unsupported { field, message: message.to_owned() });
    if definition.shards != 1 {
        return unsupported(
            "shards",
            "a database of several shards needs a cluster, and this node is a member of none: see flintkv cluster. Or leave shards at 1",
        );
    }
    if definition.replicas != 0 {
        return unsupported(
            "replicas",
            "a database whose replicas are placed by themselves needs a cluster, and this node is a member of none: leave replicas at 0. To \
             have a replica, create a database with replica_of on another node, or let an existing one follow: POST …/replicate",
        );
    }
    if definition.replication != "async" {
        return unsupported(
            "replication",
            "writes wait for the replicas that a cluster places, and this node is a member of none: leave replication at async",
        );
    }
    if !definition.zones.is_empty() {
        return unsupported(
            "zones",
            "a database whose shards are placed by zones needs a cluster, and this node is a member of none: leave zones empty",
        );
    }
    Ok(())
}

/// Checks everything that does not depend on the nodes, of a database of a cluster.
pub fn check_for_cluster(definition: &Definition) -> Result<(), NodeError> {
    let invalid = |field, message: String| Err(NodeError::Invalid { field, message });
    let is_plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    let name = definition.name.as_bytes();
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name[0] == b'-' || !name.iter().copied().all(is_plain) {
        let message = format!(
            "a name is 1 to {NAME_BYTES_MAX} small letters, digits and hyphens, and does not begin with a hyphen"
        );
        return invalid("name", message);
    }
    if matches!(definition.name.as_str(), DEFAULT_NAME | "node") {
        return invalid("name", format!("the name '{}' is reserved: choose another name", definition.name));
    }
    if definition.memory_limit_bytes == 0 {
        return invalid("memory_limit_bytes", "a database needs a memory limit: RAM and flash together".to_owned());
    }
    if definition.ram_limit_bytes == 0 {
        return invalid("ram_limit_bytes", "a database needs a RAM limit".to_owned());
    }
    if definition.ram_limit_bytes > definition.memory_limit_bytes {
        let message = format!(
            "the RAM limit {} is more than the memory limit {}, which is RAM and flash together",
            size::exact(definition.ram_limit_bytes),
            size::exact(definition.memory_limit_bytes)
        );
        return invalid("ram_limit_bytes", message);
    }
    if !PERSISTENCE.contains(&definition.persistence.as_str()) {
        let message = format!("'{}' is not one of {}", definition.persistence, PERSISTENCE.join(", "));
        return invalid("persistence", message);
    }
    if !REPLICATION.contains(&definition.replication.as_str()) {
        let message = format!("'{}' is not one of {}", definition.replication, REPLICATION.join(", "));
        return invalid("replication", message);
    }
    let copies = definition.replicas.saturating_add(1);
    if definition.min_in_sync == 0 || definition.min_in_sync > copies {
        let message = format!(
            "{} is not from 1 to {copies}, the copies that a shard with {} replicas has",
            definition.min_in_sync, definition.replicas
        );
        return invalid("min_in_sync", message);
    }
    if !definition.backup_journal_keep.is_empty() && definition.persistence == "none" {
        return invalid("backup_journal_keep", NO_JOURNAL.to_owned());
    }
    if definition.at_ms.is_some() && definition.from.is_none() {
        let message = "a time to restore needs a backup to begin with: give from too".to_owned();
        return invalid("at_ms", message);
    }
    if primary_of(&definition.replica_of)?.is_some() && definition.from.is_some() {
        let message = "a replica's dataset comes from its primary: give from or replica_of".to_owned();
        return invalid("from", message);
    }
    if definition.recovery_time_target_s > i32::MAX as u32 {
        let message = format!("the target for a restart is at most {} seconds; 0 means no target", i32::MAX);
        return invalid("recovery_time_target_s", message);
    }
    if definition.port != 0 && definition.port == definition.tls_port {
        return invalid("tls_port", "port and tls-port are the same".to_owned());
    }
    Ok(())
}

/// The primary's host and port. `None`: the text is empty.
pub fn primary_of(text: &str) -> Result<Option<(&str, u16)>, NodeError> {
    let invalid =
        || NodeError::Invalid { field: "replica_of", message: format!("'{text}' is not HOST:PORT of a primary") };
    if text.is_empty() { Ok(None) } else { host_and_port(text).map(Some).ok_or_else(invalid) }
}

impl Database {
    /// The current definition.
    pub fn definition(&self) -> Definition {
        let config: &Config = &self.hub.config.snapshot();
        Definition {
            name: self.hub.name.to_string(),
            // As they are, not as they are written.
            unixsocket: config.unixsocket.clone(),
            ram_limit_bytes: config.ram_limit_bytes,
            persistence: match config.redis_files.appendonly {
                true => config.redis_files.appendfsync.as_str().to_owned(),
                false => "none".to_owned(),
            },
            replica_of: self.hub.config.words("replicaof").join(":"),
            ..Definition::of(&self.hub.config)
        }
    }
}

/// The directives that a database inherits from the default database's configuration. `has_flash`: its files are where the node's are.
pub fn inherited(default: &ConfigStore, has_flash: bool) -> Vec<(&'static str, Vec<String>)> {
    let mut directives = Vec::new();
    for name in config::ROWS.iter().filter(|row| row.is_inherited).map(|row| row.name) {
        let words = default.words(name);
        if name == "flash-path" && !has_flash {
            continue;
        }
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
        assert_eq!(check(&sound()), Ok(()));
        let field = |change: fn(&mut Definition)| {
            let mut definition = sound();
            change(&mut definition);
            match check(&definition) {
                Err(NodeError::Invalid { field, .. }) => field,
                Err(NodeError::Unsupported { field, .. }) => field,
                other => panic!("{other:?}"),
            }
        };
        for name in ["", "Orders", "-a", "a b", "../x", "default", "node", &"a".repeat(41)] {
            let definition = Definition { name: name.to_owned(), ..sound() };
            assert!(matches!(check(&definition), Err(NodeError::Invalid { field: "name", .. })), "{name}");
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
            assert!(matches!(check(&definition), Err(NodeError::Invalid { field: "replica_of", .. })), "{primary}");
        }
        let definition = Definition { replica_of: "h:1".to_owned(), from: Some("b".to_owned()), ..sound() };
        assert!(matches!(check(&definition), Err(NodeError::Invalid { field: "from", .. })));
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
