//! Owns the interface that commands about the server use to ask it: few, coarse functions with plain data. Never knows
//! how the server answers.

use crate::block::{Reached, UntilReached};
use crate::cx::Args;
use crate::job::FunctionsChange;
use crate::row::Row;
use crate::session::Session;
use crate::stop::Run;
use std::time::Duration;

/// The version for clients that check for features; `flintkv_version` in INFO is for people.
pub const REDIS_VERSION: &str = "7.2.4";

/// The server's functions for SCRIPT and FUNCTION. An error is a complete error reply, with its code first.
pub trait Scripting {
    /// Returns the script's SHA-1, forty hexadecimal digits.
    fn script_load(&self, body: &[u8]) -> Result<[u8; 40], String>;
    fn script_exists(&self, sha: &[u8]) -> bool;
    fn script_flush(&self);
    fn script_kill(&self) -> Result<(), &'static str>;

    /// The name that a library's code gives it.
    fn library_name(&self, code: &[u8]) -> Result<String, String>;
    /// It becomes the session's job if several shards must have the functions.
    fn change_functions(&self, me: &mut Session, change: FunctionsChange) -> Run;
    /// The libraries whose names fit the glob.
    fn function_list(&self, pattern: Option<&[u8]>) -> Vec<LibraryCard>;
    /// Returns the libraries in the format of Redis's FUNCTION DUMP.
    fn function_dump(&self) -> Vec<u8>;
    fn function_kill(&self) -> Result<(), &'static str>;
    fn function_stats(&self) -> Result<FunctionStats, &'static str>;
}

/// The server's functions for the commands of replication.
pub trait Replication {
    /// The offset of the replication stream behind the connection's last write.
    fn written_offset(&self, me: &Session) -> u64;
    fn reached(&self, until: &UntilReached) -> Reached;
    /// Requests acknowledgements from the replicas, unless the stream contains a request at this offset or behind it
    /// already. Returns the stream's offset behind the request.
    fn ask_replicas(&self, offset: u64) -> u64;
    fn is_replica(&self) -> bool;
    fn role(&self) -> Role;
    /// Begins a FAILOVER, which continues after the reply.
    fn fail_over(&self, wanted: Failover) -> Run;
    /// Aborts a FAILOVER. The reply comes when it has ended, unless the command may not wait.
    fn abort_failover(&self, me: &mut Session, may_wait: bool) -> Run;
    /// Makes this replica the primary, at the request of the primary whose stream has this id. The work becomes the
    /// session's job.
    fn take_over(&self, me: &mut Session, id: &str) -> Run;
}

/// The options of FAILOVER.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Failover {
    /// The replica that becomes the primary. `None`: the first one that has the whole stream.
    pub to: Option<(String, u16)>,
    pub timeout_ms: Option<u64>,
    /// Whether the replica becomes the primary at the timeout even if it lacks a part of the stream.
    pub force: bool,
}

/// The content of ROLE's reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    Primary {
        offset: u64,
        replicas: Vec<ReplicaState>,
    },
    Replica {
        host: String,
        port: u16,
        state: &'static str,
        /// -1: this replica has no data yet.
        offset: i64,
    },
}

/// A replica that has a dataset, and the offset up to which it has the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaState {
    pub ip: String,
    pub port: u16,
    pub offset: u64,
}

/// The server's functions for CLIENT, CONFIG, INFO and the like. An error is a complete error reply, with its code
/// first.
pub trait Host: Scripting + Replication {
    /// Wall clock, microseconds since 1970.
    fn time_us(&self) -> u64;
    /// When the server started, in seconds since 1970.
    fn started_s(&self) -> u64;

    // --- access
    fn access(&self) -> &dyn Access;
    /// Whether `enable-debug-command` lets this connection use DEBUG.
    fn debug_allowed(&self, session: &Session) -> bool;
    /// Whether the session may use MODULE, as `enable-module-command` says.
    fn modules_allowed(&self, session: &Session) -> bool;

    // --- clients
    /// The lines of CLIENT LIST, each ended by '\n'. The caller's own line shows `me` as it is now.
    fn client_list(&self, me: &Session, filter: &ClientFilter) -> String;
    fn client_kill(&self, me: &Session, filter: &ClientFilter) -> Killed;
    fn client_pause(&self, duration_ms: u64, what: Pause);
    fn client_unpause(&self);
    /// Ends the wait of a blocked client. False: the client is not blocked.
    fn client_unblock(&self, id: u64, how: Unblock) -> bool;

    // --- pub/sub
    /// The session has already recorded the subscription.
    fn subscribe(&self, me: &Session, space: Space, name: &[u8]);
    fn unsubscribe(&self, me: &Session, space: Space, name: &[u8]);
    /// Returns the number of receivers.
    fn publish(&self, space: Space, channel: &[u8], message: &[u8]) -> usize;
    /// Bytes of a channel and a message together that can be published.
    fn message_bytes_max(&self) -> usize;
    /// The number of receivers that a message would have if it was published now.
    fn receivers(&self, space: Space, channel: &[u8]) -> usize;
    /// Whether published messages must be sent to replicas too.
    fn sends_messages_on(&self) -> bool;
    /// The names with at least one subscriber that fit the glob.
    fn topic_names(&self, space: Space, pattern: Option<&[u8]>) -> Vec<Box<[u8]>>;
    /// The number of names with at least one subscriber.
    fn topics(&self, space: Space) -> usize;
    fn subscribers(&self, space: Space, name: &[u8]) -> usize;

    // --- client-side caching, MONITOR
    fn client_exists(&self, id: u64) -> bool;
    /// Must be called when the session's tracking settings have changed.
    fn tracking_changed(&self, me: &Session);
    /// Whether the connection that receives the redirected invalidations has closed.
    fn redirect_broken(&self, me: &Session) -> bool;
    /// Must be called when the session starts or stops to receive all commands.
    fn monitors_changed(&self, me: &Session);

    // --- configuration
    /// Name and value of every directive that fits any of the patterns (globs, any case).
    fn config_get(&self, patterns: &[&[u8]]) -> Vec<(String, Vec<u8>)>;
    /// Sets all or none. A setting that takes long becomes the session's job, unless the command may not wait.
    fn config_set(&self, me: &mut Session, pairs: &[(&[u8], &[u8])], may_wait: bool) -> Run;
    fn config_rewrite(&self, me: &mut Session, may_wait: bool) -> Run;
    fn reset_stats(&self);

    // --- what happened
    /// The named sections. No name: the default sections.
    fn info(&self, sections: &[&[u8]]) -> String;
    /// Newest first.
    fn slowlog(&self, count: usize) -> Vec<SlowCommand>;
    fn slowlog_len(&self) -> usize;
    fn slowlog_reset(&self);
    fn latency_latest(&self) -> Vec<LatencyEvent>;
    /// Pairs of second and milliseconds, oldest first.
    fn latency_history(&self, event: &[u8]) -> Vec<(u64, u64)>;
    /// No name: all events. Returns how many events were reset.
    fn latency_reset(&self, events: &[&[u8]]) -> usize;
    /// No name: every command that was called. Commands without calls are left out.
    fn latency_histogram(&self, commands: &[&[u8]]) -> Vec<CommandLatency>;

    // --- memory
    fn memory(&self) -> MemoryFigures;
    /// The allocator's own report.
    fn malloc_report(&self) -> String;
    /// Gives unused memory back to the operating system.
    fn purge_memory(&self);

    // --- files
    /// SAVE. It becomes the session's job.
    fn save(&self, me: &mut Session) -> Run;
    /// DEBUG RELOAD: empties the dataset and loads it from the file, which is written first if `saves`.
    fn reload(&self, me: &mut Session, saves: bool) -> Run;
    /// BGREWRITEAOF: starts to write a new checkpoint of the journal.
    fn rewrite_journal(&self) -> Run;
    /// The journal's position after what the connection has written, and whether the journal is durable up to there. `None`: changes do
    /// not go into a journal.
    fn journaled(&self, me: &Session) -> Option<(u64, bool)>;
    /// When the dataset was last saved, in seconds since 1970; if never, when the server started.
    fn last_save_s(&self) -> u64;
    /// BGSAVE. Returns the reply.
    fn save_in_background(&self, schedule: bool) -> Result<&'static str, String>;
    /// Whether SHUTDOWN without an option saves the dataset.
    fn saves_at_end(&self) -> bool;
    /// Must be called when all keys were deleted. If there are points of `save`, writes a new dump, so that the old one
    /// does not bring the keys back. Writing becomes the session's job, unless the command may not wait.
    fn save_flushed(&self, me: &mut Session, may_wait: bool) -> Run;

    // --- replication
    /// REPLICAOF: host and port of the primary that the database follows from now on; `None`: it becomes a primary. A promotion
    /// becomes the session's job, unless the command may not wait.
    fn follow(&self, me: &mut Session, primary: Option<(&str, u16)>, may_wait: bool) -> Run;
    /// Host and port of the primary.
    fn followed(&self) -> Option<(String, u16)>;

    // --- control
    /// Ends the node, or aborts the shutdown that is waiting. True: the node waits for replicas first, and the client
    /// waits too.
    fn shutdown(&self, me: &Session, wanted: Shutdown) -> Result<bool, String>;
    /// Blocks all workers, and so all connections. The time is bounded.
    fn sleep(&self, duration: Duration);
    fn set_active_expire(&self, on: bool);
    fn log(&self, message: &str);
    fn sha1(&self, bytes: &[u8]) -> [u8; 20];
}

/// What a client can subscribe to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    Channel,
    /// All channels whose names fit a pattern.
    Pattern,
    Shard,
}

impl Space {
    pub const ALL: [Space; 3] = [Space::Channel, Space::Pattern, Space::Shard];
}

/// Users: who may log in, and what they may do. An error is a whole error reply.
pub trait Access {
    /// Whether a new connection belongs to the default user without AUTH.
    fn is_open(&self) -> bool;
    /// Gives the session to the user if the password is right. The time does not depend on where a wrong password
    /// differs. `by` is the command's name as the client typed it.
    fn authenticate(&self, me: &mut Session, by: &[u8], user: &[u8], password: &[u8]) -> bool;
    /// Gives the session back to the default user, as after connecting.
    fn start_over(&self, me: &mut Session);
    /// Applies all rules or none. True: the caller's own connection closes after its reply, because it is subscribed to
    /// a channel that the user may no longer use.
    fn set_user(&self, me: &Session, name: &[u8], rules: Vec<Vec<u8>>) -> Result<bool, String>;
    fn user(&self, name: &[u8]) -> Option<AclUser>;
    /// Closes the users' connections. Returns how many users existed.
    fn delete_users(&self, me: &Session, names: &[&[u8]]) -> Killed;
    /// In order of name.
    fn user_names(&self) -> Vec<String>;
    /// One line for each user, as in the configuration file.
    fn user_lines(&self) -> Vec<String>;
    /// Whether the user may run the command. If not, the reason.
    fn dry_run(&self, user: &[u8], args: Args<'_>) -> Result<Option<String>, String>;
    /// Newest first.
    fn denials(&self, count: usize) -> Vec<AclDenial>;
    fn forget_denials(&self);
    /// Loads the ACL file, all or nothing. True: the caller's own connection closes after its reply.
    fn load_users(&self, me: &Session) -> Result<bool, String>;
    fn save_users(&self) -> Result<(), String>;
    /// Random bytes from the system's generator.
    fn random(&self, bytes: &mut [u8]);
}

/// The rights of a user who may not do everything.
pub trait Rights: std::fmt::Debug + Send + Sync {
    /// Whether the command with this number is allowed; `positions` are the positions of its keys.
    fn check(&self, id: usize, row: &Row, args: Args<'_>, positions: &[usize]) -> Result<(), Denial>;
    /// Whether this command may read every key (SORT with BY or GET reads any key).
    fn reads_every_key(&self, command: &Row) -> bool;
    /// Rules of ACL SETUSER that give these rights to a new user.
    fn rules(&self) -> Vec<String>;
}

/// Why a command was refused. Of two reasons, the reply gives the greater one. Positions are those of arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denial {
    Command,
    Key(usize),
    Channel(usize),
}

/// What ACL GETUSER shows.
#[derive(Debug, Clone, Default)]
pub struct AclUser {
    pub flags: Vec<&'static str>,
    /// Hashes, in hexadecimal.
    pub passwords: Vec<String>,
    /// The first one is the user's own.
    pub selectors: Vec<AclSelector>,
}

#[derive(Debug, Clone, Default)]
pub struct AclSelector {
    pub commands: String,
    pub keys: Vec<String>,
    pub channels: Vec<String>,
}

/// An entry of ACL LOG.
#[derive(Debug, Clone)]
pub struct AclDenial {
    pub id: u64,
    pub count: u64,
    /// `command`, `key`, `channel` or `auth`.
    pub reason: &'static str,
    /// `toplevel`, `multi` or `lua`.
    pub context: &'static str,
    pub object: Vec<u8>,
    pub user: Vec<u8>,
    /// The client's line of CLIENT LIST.
    pub client: String,
    pub created_ms: u64,
    pub updated_ms: u64,
}

/// Which connections to choose. A field that is `None` fits all.
#[derive(Debug, Default, Clone)]
pub struct ClientFilter {
    /// Empty fits all.
    pub ids: Vec<u64>,
    pub addr: Option<String>,
    pub laddr: Option<String>,
    pub kind: Option<ClientKind>,
    pub user: Option<String>,
    pub skip_me: bool,
    /// Connected for longer than this many seconds.
    pub age_s_min: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientKind {
    Normal,
    Master,
    Replica,
    Pubsub,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Killed {
    pub count: usize,
    /// Whether the caller's connection is among them. It closes itself after its reply.
    pub me: bool,
}

/// What an unblocked client receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unblock {
    /// The reply of a timeout.
    Timeout,
    Error,
    /// An error, and the end of the connection: the database has become a replica.
    Replica,
    /// The error of a SHUTDOWN that was given up.
    NoShutdown,
    /// The command comes back unexecuted: the database does not own its keys any more.
    NotOwned,
}

/// SHUTDOWN, as a client asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    Abort,
    Begin {
        /// `None`: the dataset is saved if there are `save` points.
        saves: Option<bool>,
        /// The node does not wait for replicas.
        now: bool,
        /// The node ends even if the dataset cannot be saved.
        force: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    All,
    Write,
}

#[derive(Debug, Clone)]
pub struct SlowCommand {
    pub id: u64,
    pub at_s: u64,
    pub duration_us: u64,
    /// Shortened when stored: at most 32 arguments of at most 128 bytes each.
    pub args: Vec<Vec<u8>>,
    pub addr: String,
    pub name: String,
}

#[derive(Debug, Clone)]
pub struct LatencyEvent {
    pub name: &'static str,
    pub at_s: u64,
    pub last_ms: u64,
    pub max_ms: u64,
}

#[derive(Debug, Clone)]
pub struct CommandLatency {
    pub name: String,
    pub calls: u64,
    /// Pairs of an upper bound in microseconds (a power of two) and the number of calls that took at most that long, in
    /// rising order.
    pub cumulative_us: Vec<(u64, u64)>,
}

#[derive(Debug, Clone, Default)]
pub struct MemoryFigures {
    /// Redis calls these fields peak.allocated, total.allocated and startup.allocated.
    pub peak_bytes: u64,
    pub allocated_bytes: u64,
    pub startup_bytes: u64,
    pub resident_bytes: u64,
    pub allocator_active_bytes: u64,
    pub allocator_resident_bytes: u64,
    /// The buffers of normal clients.
    pub clients_bytes: u64,
    pub index_bytes: u64,
    /// Objects in RAM: keys and values.
    pub objects_bytes: u64,
    /// Page buffers, and writes that have not reached flash yet.
    pub flash_buffers_bytes: u64,
    /// The texts of scripts, and the code of libraries.
    pub scripts_bytes: u64,
    pub functions_bytes: u64,
    pub keys: u64,
    /// The logical databases that have keys, with their numbers of keys.
    pub keys_by_database: Vec<(usize, u64)>,
    pub expires: u64,
    pub ram_limit_bytes: u64,
    pub flash_used_bytes: u64,
    pub flash_limit_bytes: u64,
}

/// A library of functions.
#[derive(Debug, Clone)]
pub struct LibraryCard {
    pub name: String,
    pub code: Box<[u8]>,
    pub functions: Vec<FunctionCard>,
}

#[derive(Debug, Clone)]
pub struct FunctionCard {
    pub name: String,
    pub description: Option<String>,
    pub flags: Vec<&'static str>,
}

#[derive(Debug, Clone, Default)]
pub struct FunctionStats {
    /// A script that runs for too long.
    pub running: Option<RunningScript>,
    pub libraries: usize,
    pub functions: usize,
}

#[derive(Debug, Clone)]
pub struct RunningScript {
    pub name: String,
    pub command: Vec<Vec<u8>>,
    pub duration_ms: u64,
}
