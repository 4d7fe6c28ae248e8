//! Owns the requests of commands to the database and its node for what the workers do not own: settings, INFO,
//! memory, shutdown. Never knows who answers.

use crate::replication::Order;
use commands::host::{ClientFilter, Failover, MemoryFigures, Role, Shutdown};
use std::sync::Arc;
use std::time::Duration;

/// How long one change of the databases or of a configuration waits for another.
pub const CHANGE_TIMEOUT: Duration = Duration::from_secs(30);

/// CONFIG SET and CONFIG REWRITE. The errors are whole replies.
pub trait ConfigControl: Send + Sync {
    /// CONFIG SET on a thread that must not wait. `None`: the change needs file work, or another change is in
    /// progress.
    fn try_set_config(&self, pairs: &[(&[u8], &[u8])], local: bool) -> Option<Result<(), String>>;
    /// CONFIG SET. Waits for files, and up to `timeout` for other changes.
    fn set_config(&self, pairs: &[(&[u8], &[u8])], local: bool, timeout: Duration) -> Result<(), String>;
    /// CONFIG SET inside of a transaction, on a thread that holds stripes: what needs all of them takes effect behind EXEC.
    fn set_config_inside(&self, pairs: &[(&[u8], &[u8])], local: bool, timeout: Duration) -> Result<(), String>;
    /// CONFIG REWRITE. Waits like [`ConfigControl::set_config`].
    fn rewrite_config(&self, timeout: Duration) -> Result<(), String>;
}

/// What keeps the dataset on disk: dumps and the journal. The errors are whole replies.
pub trait PersistenceControl: Send + Sync {
    /// SAVE. Waits until the file is written.
    fn save(&self) -> Result<(), String>;
    /// BGSAVE. Returns the reply.
    fn save_in_background(&self, schedule: bool) -> Result<&'static str, String>;
    /// Writes the dump of a dataset that was emptied. What fails is in the log, as the keys are gone anyhow. `waits`: when this
    /// returns, it is written, unless something else is being written.
    fn save_flushed(&self, waits: bool);
    /// Whether SHUTDOWN saves if it is not told.
    fn saves_at_end(&self) -> bool;
    /// DEBUG RELOAD. Waits until the dataset is loaded.
    fn reload(&self, saves: bool) -> Result<(), String>;
    /// BGREWRITEAOF. The work is done on another thread.
    fn rewrite_journal(&self) -> Result<(), String>;
    /// When the dataset was last saved, in seconds since 1970.
    fn last_save_s(&self) -> u64;
}

/// The database's role, and what it does for its replicas and its primary. The errors are whole replies.
pub trait ReplicationControl: Send + Sync {
    /// Makes a dump for a replica on another thread.
    fn make_dump(&self, order: Arc<Order>);
    /// ROLE.
    fn role(&self) -> Role;
    /// FAILOVER. The work is done on another thread.
    fn fail_over(&self, wanted: Failover) -> Result<(), String>;
    fn abort_failover(&self, may_wait: bool) -> Result<(), String>;
    /// Whether the primary with this stream may make this replica the primary.
    fn may_take_over(&self, id: &str) -> Result<(), String>;
    /// REPLICAOF: host and port of the primary that the database follows from now on. `None`: it becomes a primary; waits until all
    /// that was received is applied, unless it may not wait.
    fn follow(&self, primary: Option<(&str, u16)>, may_wait: bool) -> Result<(), String>;
    /// CLIENT KILL: ends the connection to the primary if it fits. Returns whether it did.
    fn end_primary_link(&self, filter: &ClientFilter) -> bool;
}

/// Figures and memory of the database and its process, and the process's end. The errors are whole replies.
pub trait ProcessControl: Send + Sync {
    fn info(&self, sections: &[&[u8]]) -> String;
    /// INFO of a database whose data are in so many shards, of which these have answered.
    fn whole_info(&self, sections: &[&[u8]], shards: &[String], count: usize) -> String;
    /// `maxclients`, or less if the system allows fewer open files.
    fn clients_max(&self) -> usize;
    /// CONFIG RESETSTAT for the figures that do not belong to workers.
    fn reset_stats(&self);
    fn memory(&self) -> MemoryFigures;
    /// The allocator's own report.
    fn malloc_report(&self) -> String;
    /// Gives unused memory back to the operating system.
    fn purge_memory(&self);
    /// SHUTDOWN. `client` waits until the node ends, unless it wants that now.
    fn shut_down(&self, client: u64, wanted: Shutdown) -> Result<(), String>;
}

/// All that the hub asks of the database and its node.
pub trait Control: ConfigControl + PersistenceControl + ReplicationControl + ProcessControl {}

impl<T: ConfigControl + PersistenceControl + ReplicationControl + ProcessControl> Control for T {}
