//! Owns the questions that commands about the server itself ask of it: few, coarse, plain data in and out.
//! Never knows how the server answers them.

use crate::cx::{Args, Run};
use crate::row::Row;
use crate::session::Session;
use std::time::Duration;

/// What clients that check for features are told; `flintkv_version` in INFO is for people.
pub const REDIS_VERSION: &str = "7.2.4";

/// What SCRIPT and FUNCTION need of the server. Errors are whole error replies, code first.
pub trait Scripting {
    /// Returns its SHA-1, forty hexadecimal digits.
    fn script_load(&self, body: &[u8]) -> Result<[u8; 40], String>;
    fn script_exists(&self, sha: &[u8]) -> bool;
    fn script_flush(&self);
    fn script_kill(&self) -> Result<(), &'static str>;

    /// Returns the library's name.
    fn function_load(&self, code: &[u8], replace: bool) -> Result<String, String>;
    /// False: there is no such library.
    fn function_delete(&self, library: &[u8]) -> bool;
    fn function_flush(&self);
    /// Those whose names fit the glob.
    fn function_list(&self, pattern: Option<&[u8]>) -> Vec<LibraryCard>;
    /// In the form of Redis's FUNCTION DUMP.
    fn function_dump(&self) -> Vec<u8>;
    fn function_restore(&self, payload: &[u8], policy: RestorePolicy) -> Result<(), String>;
    fn function_kill(&self) -> Result<(), &'static str>;
    fn function_stats(&self) -> Result<FunctionStats, &'static str>;
}

/// What CLIENT, CONFIG, INFO and their like need of the server. Errors are whole error replies, code first.
pub trait Host: Scripting {
    /// Wall clock, microseconds since 1970.
    fn time_us(&self) -> u64;
    /// The second since 1970 in which the server started.
    fn started_s(&self) -> u64;

    // --- access
    fn access(&self) -> &dyn Access;
    /// Whether `enable-debug-command` lets this connection use DEBUG.
    fn debug_allowed(&self, session: &Session) -> bool;

    // --- clients
    /// The lines of CLIENT LIST, each ended by '\n'. The caller's own line is as fresh as `me`.
    fn client_list(&self, me: &Session, filter: &ClientFilter) -> String;
    fn client_kill(&self, me: &Session, filter: &ClientFilter) -> Killed;
    fn client_pause(&self, duration_ms: u64, what: Pause);
    fn client_unpause(&self);
    /// Ends the wait of a blocked client; false if it is not blocked.
    fn client_unblock(&self, id: u64, how: Unblock) -> bool;

    // --- pub/sub
    /// The session has noted it already.
    fn subscribe(&self, me: &Session, space: Space, name: &[u8]);
    fn unsubscribe(&self, me: &Session, space: Space, name: &[u8]);
    /// To how many the message goes.
    fn publish(&self, space: Space, channel: &[u8], message: &[u8]) -> usize;
    /// The names somebody listens to, those that fit the glob.
    fn topic_names(&self, space: Space, pattern: Option<&[u8]>) -> Vec<Box<[u8]>>;
    /// How many names somebody listens to.
    fn topics(&self, space: Space) -> usize;
    fn subscribers(&self, space: Space, name: &[u8]) -> usize;

    // --- client-side caching, MONITOR
    fn client_exists(&self, id: u64) -> bool;
    /// What the session says of its tracking has changed.
    fn tracking_changed(&self, me: &Session);
    /// Whether the connection that was to be told has gone.
    fn redirect_broken(&self, me: &Session) -> bool;
    /// The session sees all commands from now on, or no longer.
    fn monitors_changed(&self, me: &Session);

    // --- configuration
    /// Name and value of every directive that any of the patterns (globs, any case) fits.
    fn config_get(&self, patterns: &[&[u8]]) -> Vec<(String, String)>;
    /// All or none. What takes long becomes the session's job, unless the command may not wait.
    fn config_set(&self, me: &mut Session, pairs: &[(&[u8], &[u8])], may_wait: bool) -> Run;
    fn config_rewrite(&self, me: &mut Session, may_wait: bool) -> Run;
    fn reset_stats(&self);

    // --- what happened
    /// The sections asked for, by name; none: the default ones.
    fn info(&self, sections: &[&[u8]]) -> String;
    /// Newest first.
    fn slowlog(&self, count: usize) -> Vec<SlowCommand>;
    fn slowlog_len(&self) -> usize;
    fn slowlog_reset(&self);
    fn latency_latest(&self) -> Vec<LatencyEvent>;
    /// (second, milliseconds), oldest first.
    fn latency_history(&self, event: &[u8]) -> Vec<(u64, u64)>;
    /// None named: all. Returns how many were forgotten.
    fn latency_reset(&self, events: &[&[u8]]) -> usize;
    /// None named: every command that was called. Names without calls are left out.
    fn latency_histogram(&self, commands: &[&[u8]]) -> Vec<CommandLatency>;

    // --- memory
    fn memory(&self) -> MemoryFigures;
    /// The allocator's own report.
    fn malloc_report(&self) -> String;
    /// Gives unused memory back to the operating system.
    fn purge_memory(&self);

    // --- control
    fn shutdown(&self, abort: bool, nosave: bool) -> Result<(), String>;
    /// Holds up this worker and its connections, as it holds up all of Redis. At most a bounded time.
    fn sleep(&self, duration: Duration);
    fn set_active_expire(&self, on: bool);
    fn log(&self, message: &str);
    fn sha1(&self, bytes: &[u8]) -> [u8; 20];
}

/// What one can listen to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    Channel,
    /// All channels whose names fit.
    Pattern,
    Shard,
}

impl Space {
    pub const ALL: [Space; 3] = [Space::Channel, Space::Pattern, Space::Shard];
}

/// Users: who may come in, and what they may do. Errors are whole error replies.
pub trait Access {
    /// Whether connections are the default user's without a word.
    fn is_open(&self) -> bool;
    /// Makes the session the user's if the password is right; takes a time that does not depend on where it differs.
    /// `by` is the command as it was typed.
    fn authenticate(&self, me: &mut Session, by: &[u8], user: &[u8], password: &[u8]) -> bool;
    /// The session is the default user's again, as after connecting.
    fn start_over(&self, me: &mut Session);
    /// All rules or none. Whether the caller's own connection ends with its reply: it listens to what it may not.
    fn set_user(&self, me: &Session, name: &[u8], rules: Vec<Vec<u8>>) -> Result<bool, String>;
    fn user(&self, name: &[u8]) -> Option<AclUser>;
    /// Ends their connections; how many users there were.
    fn delete_users(&self, me: &Session, names: &[&[u8]]) -> Killed;
    /// In the order of their names.
    fn user_names(&self) -> Vec<String>;
    /// As the configuration file would say it.
    fn user_lines(&self) -> Vec<String>;
    /// Whether the user may run the command; if not, why.
    fn dry_run(&self, user: &[u8], args: Args<'_>) -> Result<Option<String>, String>;
    /// Newest first.
    fn denials(&self, count: usize) -> Vec<AclDenial>;
    fn forget_denials(&self);
    /// From the ACL file, all or none. Whether the caller's own connection ends with its reply.
    fn load_users(&self, me: &Session) -> Result<bool, String>;
    fn save_users(&self) -> Result<(), String>;
    /// From the system's generator.
    fn random(&self, bytes: &mut [u8]);
}

/// What a user may do, if that is not everything.
pub trait Rights: std::fmt::Debug + Send + Sync {
    /// Whether a command is allowed, which has this number; `positions` are those of its keys.
    fn check(&self, id: usize, row: &Row, args: Args<'_>, positions: &[usize]) -> Result<(), Denial>;
    /// Whether every key may be read, with this command (SORT with BY or GET reads any).
    fn reads_every_key(&self, command: &Row) -> bool;
}

/// What a command was refused for; the greater of two is the one to tell. Positions are of arguments.
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
    /// The first is the user's own.
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
    /// Its line of CLIENT LIST.
    pub client: String,
    pub created_ms: u64,
    pub updated_ms: u64,
}

/// Which connections; a field that is None fits all.
#[derive(Debug, Default, Clone)]
pub struct ClientFilter {
    /// Empty: all.
    pub ids: Vec<u64>,
    pub addr: Option<String>,
    pub laddr: Option<String>,
    pub kind: Option<ClientKind>,
    pub user: Option<String>,
    pub skip_me: bool,
    /// Older than this many seconds.
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
    /// The caller is among them: it closes itself after its reply.
    pub me: bool,
}

/// What a client that is unblocked is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unblock {
    /// That its time is over.
    Timeout,
    Error,
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
    /// Shortened as they were kept: at most 32 of at most 128 bytes each.
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
    /// (upper bound in microseconds, a power of two; calls that took at most that), rising.
    pub cumulative_us: Vec<(u64, u64)>,
}

#[derive(Debug, Clone, Default)]
pub struct MemoryFigures {
    /// What Redis calls peak.allocated, total.allocated and startup.allocated.
    pub peak_bytes: u64,
    pub allocated_bytes: u64,
    pub startup_bytes: u64,
    pub resident_bytes: u64,
    pub allocator_active_bytes: u64,
    pub allocator_resident_bytes: u64,
    /// Buffers of normal clients.
    pub clients_bytes: u64,
    pub index_bytes: u64,
    /// Objects in RAM: keys and values.
    pub objects_bytes: u64,
    /// Page buffers and writes on their way to flash.
    pub flash_buffers_bytes: u64,
    pub keys: u64,
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

/// What becomes of the libraries that are there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestorePolicy {
    /// They go.
    Flush,
    /// They stay; a library of the same name is an error.
    Append,
    /// A library of the same name goes.
    Replace,
}

#[derive(Debug, Clone, Default)]
pub struct FunctionStats {
    /// One that runs for too long.
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
