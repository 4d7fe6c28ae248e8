//! Owns the one table of directives: name, type, default, whether CONFIG SET may change it, what it means.
//! Parsing, CONFIG GET/SET/REWRITE and docs/configuration.md use this table. Never knows a current value.

use super::typed;

/// One directive.
#[derive(Debug)]
pub struct Row {
    pub name: &'static str,
    /// A second name, empty if there is none.
    pub alias: &'static str,
    pub kind: Kind,
    /// The default as the file would write it.
    pub default: &'static str,
    pub change: Change,
    pub effect: Effect,
    pub group: Group,
    pub about: &'static str,
}

/// The type of a directive's value. Sizes and integers carry their inclusive range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Bool,
    Int(i64, i64),
    /// Bytes with an optional unit: 1k = 1000, 1kb = 1024 and so on.
    Size(u64, u64),
    /// Bytes, or a percentage of another size.
    SizeOrPercent,
    /// Bytes: a power of two within the range.
    Segment(u64, u64),
    /// `auto` or an integer.
    AutoOrInt(i64, i64),
    /// File permissions.
    Octal,
    Choice(&'static [&'static str]),
    /// Several of the words.
    Choices(&'static [&'static str]),
    Text,
    /// Text that is never logged.
    Password,
    /// A file name without a directory.
    FileName,
    Path,
    /// An existing directory, stored as an absolute path.
    Directory,
    /// At most this many words.
    Words(usize),
    /// A repeatable directive with one path on each line. An empty path empties the list.
    Paths,
    /// `SECONDS CHANGES` pairs. Each line adds pairs; an empty line empties the list.
    Save,
    OutputLimits,
    OomScores,
    Events,
    Percentiles,
    /// `HOST PORT` or `no one`.
    Primary,
    /// `COMMAND NEW-NAME`, repeatable.
    Renames,
    /// Anything, repeatable.
    Lines,
}

/// When a directive may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// By CONFIG SET.
    Live,
    /// By CONFIG SET, if `enable-protected-configs` allows it to the client.
    Protected,
    /// Only in the file or on the command line.
    Start,
    /// Like `Start`, but CONFIG GET does not show the directive, because it is an instruction and not a value.
    FileOnly,
}

/// Whether the directive has an effect in FlintKV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Used,
    /// The value is accepted and stored. The log says once why it has no effect.
    Inert(&'static str),
}

/// The section of the documentation that lists the directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    Flash,
    Memory,
    Network,
    Access,
    Clients,
    Keys,
    Observation,
    Process,
    Persistence,
    Replication,
    Cluster,
    Tls,
    Console,
    Types,
    Other,
    /// A directive of Redis that CONFIG GET shows only when asked for the exact name.
    Hidden,
}

impl Group {
    pub const ALL: [Group; 16] = [
        Group::Flash,
        Group::Memory,
        Group::Network,
        Group::Access,
        Group::Clients,
        Group::Keys,
        Group::Observation,
        Group::Process,
        Group::Persistence,
        Group::Replication,
        Group::Cluster,
        Group::Tls,
        Group::Console,
        Group::Types,
        Group::Other,
        Group::Hidden,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Group::Flash => "Flash",
            Group::Memory => "Memory",
            Group::Network => "Network",
            Group::Access => "Access",
            Group::Clients => "Limits of a client",
            Group::Keys => "Keys and workers",
            Group::Observation => "Log, slow log, latency",
            Group::Process => "Process",
            Group::Persistence => "Persistence",
            Group::Replication => "Replication",
            Group::Cluster => "Cluster",
            Group::Tls => "TLS",
            Group::Console => "Node and console",
            Group::Types => "Encodings of other types",
            Group::Other => "Others",
            Group::Hidden => "Hidden",
        }
    }
}

/// The index of the row with this name or alias. Letters may be of any case.
pub fn find(name: &str) -> Option<usize> {
    if name.is_empty() {
        return None;
    }
    ROWS.iter().position(|row| row.name.eq_ignore_ascii_case(name) || row.alias.eq_ignore_ascii_case(name))
}

/// Whether the log, SLOWLOG and MONITOR must hide the value of this directive.
pub fn is_secret(name: &str) -> bool {
    find(name).is_some_and(|index| matches!(ROWS[index].kind, Kind::Password | Kind::Lines))
}

const fn row(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    change: Change,
    effect: Effect,
    group: Group,
    about: &'static str,
) -> Row {
    Row { name, alias: "", kind, default, change, effect, group, about }
}

impl Row {
    const fn alias(mut self, alias: &'static str) -> Row {
        self.alias = alias;
        self
    }
}

const INT_MAX: i64 = i32::MAX as i64;
const UINT_MAX: i64 = u32::MAX as i64;
const LONG_MAX: i64 = i64::MAX;
const LONG_MAX_BYTES: u64 = i64::MAX as u64;
const MB: u64 = 1024 * 1024;

const POLICY: Kind = typed::POLICY;
const GUARD: Kind = typed::GUARD;
const SHUTDOWN: Kind = Kind::Choices(&["default", "save", "nosave", "now", "force"]);

const NO_AOF: Effect =
    Effect::Inert("`appendonly yes` keeps changes in a journal of FlintKV's own format, not in an append-only file");
const NO_FSYNC: Effect = Effect::Inert("dumps and checkpoints always go to the device a part at a time");
const NO_SIGNALS: Effect =
    Effect::Inert("a signal ends the node as SHUTDOWN without words does, a second one as SHUTDOWN NOW");
const NO_CLUSTER: Effect = Effect::Inert("the cluster is not built yet");
const NO_DH: Effect =
    Effect::Inert("finite-field key exchange is not supported: key exchange always uses elliptic curves");
const NO_SESSION_TIMEOUT: Effect = Effect::Inert("sessions are removed from the cache only when it is full");
const NO_MODULES: Effect = Effect::Inert("modules are not supported");
const NO_SYSLOG: Effect = Effect::Inert("syslog is not supported: log to a file or to standard output");
const NO_REHASH: Effect = Effect::Inert("the index is never rehashed as a whole");
const NO_DEFRAG: Effect = Effect::Inert("the allocator returns memory by itself");
const NO_SAMPLES: Effect = Effect::Inert("victims come from a sweep with frequency bits, not from samples");
const NO_LAZYFREE: Effect =
    Effect::Inert("large collections are always freed in the background; a flush frees there with ASYNC only");
const NO_HZ: Effect = Effect::Inert("background work paces itself");
const NO_CPULIST: Effect = Effect::Inert("use taskset or the service manager to choose processors");
const NO_NEED: Effect = Effect::Inert("FlintKV has nothing that it could change");
const HIDDEN: Effect = Effect::Inert("it is only for debugging Redis");

use Change::{FileOnly, Live, Protected, Start};
use Effect::{Inert, Used};
use Group::{
    Access, Clients, Cluster, Console, Flash, Hidden, Keys, Memory, Network, Observation, Other, Persistence, Process,
    Replication, Tls, Types,
};
use Kind::{
    AutoOrInt, Bool, Choice, Directory, Events, FileName, Int, Lines, Octal, OomScores, OutputLimits, Password, Path,
    Paths, Percentiles, Primary, Renames, Save, Segment, Size, SizeOrPercent, Text, Words,
};

/// Every directive of Redis 7.2, and FlintKV's own.
#[rustfmt::skip]
pub const ROWS: &[Row] = &[
    // ---- FlintKV's own
    row("flash-path", Paths, "", Start, Used, Flash, "A directory on flash for cold values. Repeat the directive to spread the values over several devices. A directory that is missing is made, but its parent must exist: otherwise a device is not mounted. KeyDB's `storage-provider flash PATH` means the same. Without a flash-path all values stay in RAM."),
    row("flash-io", typed::FLASH_IO, "auto", Start, Used, Flash, "How flash is read and written: `uring`, `threads`, or `auto`, which uses io_uring if the system allows it and threads otherwise."),
    row("flash-compression", typed::COMPRESSION, "lz4", Live, Used, Flash, "Codec for values on flash. Data that does not shrink is stored uncompressed. After a change, values on flash stay as they are until they are written again; a value that only moves there is never compressed less than before."),
    row("flash-segment-size", Segment(typed::SEGMENT_BYTES_MIN, 128 * MB), "16mb", Start, Used, Flash, "Size of a segment, the unit in which flash is freed. A power of two. If flash is too small for 64 segments, the size is halved until 64 fit, but not below 256kb."),
    row("flash-split-size", Size(1024, 16 * MB), "64kb", Live, Used, Flash, "A collection larger than this moves to flash in parts of some hundred bytes each, and a command reads back only the parts that it needs. A smaller collection moves as a whole. A collection that is already in parts stays in parts."),
    row("expired-key-lag", Int(1, 31_536_000), "3600", Live, Used, Flash, "An expired key leaves flash at most this many seconds after its expiry. A key that is asked for is gone at once. Segments with many expired keys are cleaned earlier, and when flash is short of room expired keys go first. Cleaning takes at most some tenth of a worker's time, so with very many keys it can take longer."),
    row("scrub-interval", Int(0, 31_536_000), "604800", Live, Used, Flash, "The scrubber reads every page on flash, the checkpoint and the journal of a dataset that survives restarts, its backups and its archived journal, once in this many seconds, and checks them, so that damage is found before somebody needs the values. What is also in RAM is written again; the keys of the rest are counted: rotten_keys of INFO tiering, which also counts the keys whose damage clients meet, each once. It reads at most 26 MB a second for each worker, and 32 MB a second of other files. 0: nothing is checked."),
    row("debug-tier-mode", typed::TIER_MODE, "off", Live, Used, Flash, "For testing: `cold` moves every value to flash as soon as the command that wrote or read it has run, so the next command finds the value on flash. This is slow and wears out flash. Values larger than a segment stay in RAM. Needs flash-path."),
    row("memory-limit", Size(0, LONG_MAX_BYTES), "0", Live, Used, Memory, "Limit of RAM and flash together. 0 is no limit; with flash-path a limit is required. On a running server a higher limit makes flash larger at once. A lower limit makes flash smaller step by step, while its values move. If the data would not fit, the change is refused, unless maxmemory-policy evicts keys: then the values that have been on flash longest are evicted, as when flash is full."),
    row("flash-limit", Size(0, LONG_MAX_BYTES), "0", Live, Used, Memory, "Limit of all files of a database: the log of values on flash, and with appendonly the journal and two checkpoints. 0 means: without appendonly what ram-limit leaves of memory-limit; with it, as values in RAM have a copy in the log too, 1.1 times memory-limit and ram-limit for the log, and twice ram-limit and an eighth of memory-limit (at least 512mb) for the rest; no limit without flash-path. A smaller limit makes the log smaller, down to what ram-limit leaves of memory-limit. When the journal has used half of the room that is left, a checkpoint is written; when it has used all of it, writes wait for the checkpoint. A checkpoint that would not fit is not written, and an alert tells."),
    row("ram-limit", SizeOrPercent, "0", Live, Used, Memory, "The part of memory-limit that may be RAM, in bytes or percent. It bounds the resident size of the process. 0 means 30% of memory-limit with flash, and all of memory-limit without flash. INFO memory shows the result as maxmemory, and so does CONFIG GET maxmemory unless ram-limit is 0. The rest of memory-limit is flash, also when ram-limit changes while the server runs; flash-limit says how large the files are. With flash, ram-limit must be at least 16mb + 2mb for each of io-threads, 8mb more with appendonly, and 12mb more with a console: the process itself needs this memory. A start, a definition and CONFIG SET appendonly yes are refused below it; CONFIG SET ram-limit is not.").alias("maxmemory"),

    // ---- Memory
    row("maxmemory-policy", POLICY, "noeviction", Live, Used, Memory, "Which keys are evicted when both RAM and flash are full. `noeviction` evicts no key and refuses writes."),
    row("maxmemory-samples", Int(1, INT_MAX), "5", Live, NO_SAMPLES, Memory, ""),
    row("maxmemory-eviction-tenacity", Int(0, 100), "10", Live, NO_SAMPLES, Memory, ""),
    row("maxmemory-clients", SizeOrPercent, "0", Live, Used, Memory, "The most memory that all clients together may hold for replies, requests and queued commands, in bytes or in percent of ram-limit. What does not fit waits; what never fits is refused; when clients wait for five seconds and nobody gives memory back (thirty seconds if somebody does), the client that holds most is ended, unless it has CLIENT NO-EVICT. 0 means half of what ram-limit leaves beside the process itself, which is always the most."),
    row("lfu-log-factor", Int(0, INT_MAX), "10", Live, NO_SAMPLES, Memory, ""),
    row("lfu-decay-time", Int(0, INT_MAX), "1", Live, NO_SAMPLES, Memory, ""),
    row("lazyfree-lazy-user-flush", Bool, "no", Live, NO_LAZYFREE, Memory, ""),
    row("lazyfree-lazy-eviction", Bool, "no", Live, NO_LAZYFREE, Memory, ""),
    row("lazyfree-lazy-expire", Bool, "no", Live, NO_LAZYFREE, Memory, ""),
    row("lazyfree-lazy-server-del", Bool, "no", Live, NO_LAZYFREE, Memory, ""),
    row("lazyfree-lazy-user-del", Bool, "no", Live, NO_LAZYFREE, Memory, ""),
    row("jemalloc-bg-thread", Bool, "yes", Live, Effect::Inert("the allocator's background thread always runs"), Memory, ""),
    row("activedefrag", Bool, "no", Live, NO_DEFRAG, Memory, ""),
    row("active-defrag-cycle-min", Int(1, 99), "1", Live, NO_DEFRAG, Memory, ""),
    row("active-defrag-cycle-max", Int(1, 99), "25", Live, NO_DEFRAG, Memory, ""),
    row("active-defrag-threshold-lower", Int(0, 1000), "10", Live, NO_DEFRAG, Memory, ""),
    row("active-defrag-threshold-upper", Int(0, 1000), "100", Live, NO_DEFRAG, Memory, ""),
    row("active-defrag-max-scan-fields", Int(1, LONG_MAX), "1000", Live, NO_DEFRAG, Memory, ""),
    row("active-defrag-ignore-bytes", Size(1, LONG_MAX_BYTES), "100mb", Live, NO_DEFRAG, Memory, ""),
    row("activerehashing", Bool, "yes", Live, NO_REHASH, Memory, ""),
    row("disable-thp", Bool, "yes", Start, Used, Memory, "Disables transparent huge pages for this process, except for the memory that `huge-pages` controls. Huge pages can make the resident size larger than the memory in use."),
    row("huge-pages", Bool, "yes", Start, Used, Memory, "Puts values in RAM into huge pages, which makes look-ups cheaper. The kernel must allow it (`madvise` or `always` in `/sys/kernel/mm/transparent_hugepage/enabled`). No effect with a RAM limit below 1gb."),

    // ---- Network
    row("bind", Words(16), "127.0.0.1 -::1", Live, Used, Network, "Addresses to listen on. `*` is all IPv4 addresses and `::*` all IPv6 addresses. With a `-` in front, it is no error if this machine does not have the address."),
    row("port", Int(0, 65535), "6379", Live, Used, Network, "TCP port; 0 switches TCP off."),
    row("unixsocket", Path, "", Start, Used, Network, "Path of a unix socket to listen on, in addition to TCP."),
    row("unixsocketperm", Octal, "0", Start, Used, Network, "Permissions of the unix socket in octal. 0 lets the umask decide."),
    row("tcp-backlog", Int(0, INT_MAX), "511", Start, Used, Network, "How many connections may wait to be accepted. The kernel's somaxconn is an upper bound."),
    row("tcp-keepalive", Int(0, INT_MAX), "300", Live, Used, Network, "Seconds between keep-alive probes on an idle connection; 0 sends none."),
    row("timeout", Int(0, INT_MAX), "0", Live, Used, Network, "Seconds after which an idle client is disconnected; 0 never."),
    row("maxclients", Int(1, UINT_MAX), "10000", Live, Used, Network, "Maximum number of connections at a time. Further connections get an error."),
    row("bind-source-addr", Text, "", Live, Inert("the system chooses the address from which connections to other servers leave"), Network, ""),
    row("socket-mark-id", Int(0, UINT_MAX), "0", Start, Effect::Inert("sockets are not marked"), Network, ""),

    // ---- Access
    row("protected-mode", Bool, "yes", Live, Used, Access, "If no password is set, serve only clients on this machine."),
    row("requirepass", Password, "", Live, Used, Access, "The password that clients give with AUTH or HELLO. Empty: no password is needed."),
    row("rename-command", Renames, "", FileOnly, Used, Access, "Renames a command. The new name \"\" removes the command. Repeatable."),
    row("enable-debug-command", GUARD, "no", Start, Used, Access, "Who may use DEBUG. `local` means clients on this machine."),
    row("enable-protected-configs", GUARD, "no", Start, Used, Access, "Who may change protected directives with CONFIG SET. `local` means clients on this machine."),
    row("enable-module-command", GUARD, "no", Start, NO_MODULES, Access, ""),
    row("loadmodule", Lines, "", FileOnly, NO_MODULES, Access, ""),
    row("aclfile", Path, "", Start, Used, Access, "The file of users that ACL LOAD reads and ACL SAVE writes. With an aclfile, `user` directives are not allowed."),
    row("user", Lines, "", FileOnly, Used, Access, "A user and the user's rules, written as for ACL SETUSER. Repeatable."),
    row("acllog-max-len", Int(0, LONG_MAX), "128", Live, Used, Access, "Maximum number of entries that ACL LOG keeps."),
    row("acl-pubsub-default", Choice(&["allchannels", "resetchannels"]), "resetchannels", Live, Used, Access, "Which channels a new user may use: all or none."),

    // ---- Limits of a client
    row("client-output-buffer-limit", OutputLimits, "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60", Live, Used, Clients, "Limits of a client's unsent reply bytes: class, hard limit, soft limit, seconds. A client above the hard limit is disconnected at once. A client that stays above the soft limit for the given seconds is disconnected too. Classes: normal, replica, pubsub."),
    row("client-query-buffer-limit", Size(MB, LONG_MAX_BYTES), "1gb", Live, Used, Clients, "Maximum bytes of received commands that have not run yet, for each client."),
    row("proto-max-bulk-len", Size(MB, LONG_MAX_BYTES), "512mb", Live, Used, Clients, "Maximum bytes of one argument."),

    // ---- Keys and workers
    row("io-threads", AutoOrInt(1, 128), "auto", Start, Used, Keys, "Number of worker threads. Every worker runs commands. `auto` is one worker for each core."),
    row("io-threads-do-reads", Bool, "no", Start, Effect::Inert("every worker reads, runs and answers"), Keys, ""),
    row("databases", Int(1, 16384), "16", Start, Used, Keys, "Number of logical databases that SELECT can choose."),
    row("hash-max-listpack-entries", Int(0, LONG_MAX), "512", Live, Used, Keys, "Maximum number of fields of a hash in compact form.").alias("hash-max-ziplist-entries"),
    row("hash-max-listpack-value", Size(0, LONG_MAX_BYTES), "64", Live, Used, Keys, "Maximum bytes of a field or a value of a hash in compact form.").alias("hash-max-ziplist-value"),
    row("list-max-listpack-size", Int(-INT_MAX - 1, INT_MAX), "-2", Live, Used, Keys, "Maximum size of a list in compact form, and of each piece of a longer list. -1 to -5 mean 4, 8 … 64 KB; a positive number is a number of elements.").alias("list-max-ziplist-size"),
    row("set-max-intset-entries", Int(0, LONG_MAX), "512", Live, Used, Keys, "Maximum number of members of a set of integers in compact form."),
    row("set-max-listpack-entries", Int(0, LONG_MAX), "128", Live, Used, Keys, "Maximum number of members of a set in compact form."),
    row("set-max-listpack-value", Size(0, LONG_MAX_BYTES), "64", Live, Used, Keys, "Maximum bytes of a member of a set in compact form."),
    row("zset-max-listpack-entries", Int(0, LONG_MAX), "128", Live, Used, Keys, "Maximum number of members of a sorted set in compact form.").alias("zset-max-ziplist-entries"),
    row("zset-max-listpack-value", Size(0, LONG_MAX_BYTES), "64", Live, Used, Keys, "Maximum bytes of a member of a sorted set in compact form.").alias("zset-max-ziplist-value"),
    row("hll-sparse-max-bytes", Size(0, LONG_MAX_BYTES), "3000", Live, Used, Keys, "Maximum bytes of a HyperLogLog in sparse form."),
    row("stream-node-max-bytes", Size(0, LONG_MAX_BYTES), "4096", Live, Used, Keys, "Maximum bytes of a node of a stream. The entries of one node are stored together, and trimming with `~` removes them together. 0 is no limit."),
    row("stream-node-max-entries", Int(0, LONG_MAX), "100", Live, Used, Keys, "Maximum number of entries in a node of a stream. 0 is no limit."),
    row("hz", Int(0, INT_MAX), "10", Live, NO_HZ, Keys, ""),
    row("dynamic-hz", Bool, "yes", Live, NO_HZ, Keys, ""),
    row("active-expire-effort", Int(1, 10), "1", Live, NO_HZ, Keys, ""),
    row("notify-keyspace-events", Events, "", Live, Used, Keys, "Which keyspace events are published, as letters. `K` publishes on the channel of the key, `E` on the channel of the event. `g` are general events, `$lshzt` the events of one type, `x` expired keys, `e` evicted keys, `n` new keys, `m` missed keys; `A` is all classes except `n` and `m`. Empty publishes nothing."),
    row("busy-reply-threshold", Int(0, LONG_MAX), "5000", Live, Used, Keys, "Milliseconds that a script may run before other clients get BUSY and may kill the script. 0 is no limit.").alias("lua-time-limit"),
    row("script-memory-limit", SizeOrPercent, "0", Live, Used, Keys, "The most memory that scripts and functions may have in each of io-threads for Lua's own values: variables, tables, compiled scripts. In bytes or in percent of ram-limit; at least 4mb. A script that needs more gets `not enough memory`; what it has changed stays. 0 means a quarter of what ram-limit leaves beside the process itself, divided by io-threads, at most 256mb. A table of a million numbers takes 16 MB, and 24 MB while it grows. ram-limit must have room for it beside the index and what clients hold, because a script cannot wait until objects have left RAM."),
    row("tracking-table-max-keys", Int(0, LONG_MAX), "1000000", Live, Used, Keys, "Maximum number of keys whose readers the server remembers for CLIENT TRACKING. Above it the server forgets some keys and sends invalidations to their readers. 0 is no limit."),

    // ---- Log, slow log, latency
    row("loglevel", typed::LOG_LEVEL, "notice", Live, Used, Observation, "The least important level of messages that the log contains."),
    row("log-format", typed::LOG_FORMAT, "text", Start, Used, Observation, "`json` writes each line of the log as an object with OpenTelemetry's field names."),
    row("logfile", Path, "", Start, Used, Observation, "The file of the log. Empty is standard output."),
    row("slowlog-log-slower-than", Int(-1, LONG_MAX), "10000", Live, Used, Observation, "The slow log records commands that run at least this many microseconds. 0 records every command, -1 none."),
    row("slowlog-max-len", Int(0, LONG_MAX), "128", Live, Used, Observation, "Maximum number of entries that the slow log keeps."),
    row("latency-monitor-threshold", Int(0, LONG_MAX), "0", Live, Used, Observation, "LATENCY records events that take at least this many milliseconds. 0 is off."),
    row("latency-tracking", Bool, "yes", Live, Used, Observation, "Keeps a latency histogram for each command."),
    row("latency-tracking-info-percentiles", Percentiles, "50 99 99.9", Live, Used, Observation, "The percentiles that INFO latencystats shows."),
    row("syslog-enabled", Bool, "no", Start, NO_SYSLOG, Observation, ""),
    row("syslog-ident", Text, "redis", Start, NO_SYSLOG, Observation, ""),
    row("syslog-facility", Choice(&["user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"]), "local0", Start, NO_SYSLOG, Observation, ""),
    row("crash-log-enabled", Bool, "yes", Live, Effect::Inert("a crash leaves a backtrace on standard error"), Observation, ""),
    row("crash-memcheck-enabled", Bool, "yes", Live, NO_NEED, Observation, ""),

    // ---- Node and console
    row("state-dir", Path, "flintkv-state", Start, Used, Console, "The directory where the node keeps the definitions of its databases, the console's users and the history. The node creates it when it is needed."),
    row("console-port", Int(0, 65535), "8379", Start, Used, Console, "Port of the web console, the HTTP API and /metrics; 0 switches them off. If the port is not set explicitly and is in use, the node starts without a console. If the program is called as redis-server, there is a console only if the port is set explicitly."),
    row("console-bind", Words(16), "127.0.0.1 -::1", Start, Used, Console, "Addresses that the console listens on, as in `bind`. If other machines can reach the console, it should have a certificate."),
    row("console-tls-cert-file", Path, "", Start, Used, Console, "The certificate of the console (PEM). With a certificate and its key the console uses HTTPS."),
    row("console-tls-key-file", Path, "", Start, Used, Console, "The private key of the console's certificate (PEM)."),
    row("console-password", Password, "", Start, Used, Console, "The password of the console's first user, `admin`. It is used only if there are no users yet. If it is empty, the node makes a random password and writes it once to the log."),
    row("console-metrics-open", Bool, "no", Start, Used, Console, "Whether other machines may read /metrics without a token."),

    // ---- Process
    row("daemonize", Bool, "no", Start, Used, Process, "Detaches from the terminal once the configuration has been read."),
    row("pidfile", Path, "", Start, Used, Process, "The file for the process id. Empty: no file is written."),
    row("dir", Directory, ".", Protected, Used, Process, "Relative paths in other directives start from this directory."),
    row("supervised", typed::SUPERVISED, "no", Start, Used, Process, "The supervisor that the node tells when it is ready and when it stops. `systemd` needs Type=notify; `WatchdogSec` works too. `auto` means systemd if systemd started the node. Under a supervisor `daemonize` has no effect."),
    row("set-proc-title", Bool, "yes", Start, NO_NEED, Process, ""),
    row("proc-title-template", Text, "{title} {listen-addr} {server-mode}", Live, NO_NEED, Process, ""),
    row("always-show-logo", Bool, "no", Start, NO_NEED, Process, ""),
    row("ignore-warnings", Text, "", Live, NO_NEED, Process, ""),
    row("locale-collate", Text, "", Live, Effect::Inert("strings compare by bytes"), Process, ""),
    row("oom-score-adj", Choice(&["no", "yes", "relative", "absolute"]), "no", Live, Effect::Inert("use the service manager's OOMScoreAdjust"), Process, ""),
    row("oom-score-adj-values", OomScores, "0 200 800", Live, Effect::Inert("use the service manager's OOMScoreAdjust"), Process, ""),
    row("server_cpulist", Text, "", Start, NO_CPULIST, Process, ""),
    row("bio_cpulist", Text, "", Start, NO_CPULIST, Process, ""),
    row("aof_rewrite_cpulist", Text, "", Start, NO_CPULIST, Process, ""),
    row("bgsave_cpulist", Text, "", Start, NO_CPULIST, Process, ""),
    row("shutdown-timeout", Int(0, INT_MAX), "10", Live, Used, Process, "Seconds that the end of a node waits for replicas that lack writes. 0: it does not wait."),
    row("shutdown-on-sigint", SHUTDOWN, "default", Live, NO_SIGNALS, Process, ""),
    row("shutdown-on-sigterm", SHUTDOWN, "default", Live, NO_SIGNALS, Process, ""),

    // ---- Persistence
    row("save", Save, "", Live, Used, Persistence, "When dumps are written: after so many seconds, if there were at least so many changes, as in `save 3600 1 300 100`. Each changing command counts as one change. Redis has three such points by default, FlintKV none: a dump has the whole dataset."),
    row("dbfilename", FileName, "dump.rdb", Protected, Used, Persistence, "The file that SAVE, BGSAVE and `save` points write and that is loaded at the start. It is in `dir`; a database other than the default has a directory there with its name."),
    row("rdbcompression", Bool, "yes", Live, Used, Persistence, "Whether SAVE compresses strings of more than 20 bytes."),
    row("rdbchecksum", Bool, "yes", Start, Used, Persistence, "Whether SAVE writes a checksum, and whether the checksum of a loaded file is compared."),
    row("rdb-version", Choice(&["10", "11", "12"]), "10", Live, Used, Persistence, "The version of the format that SAVE writes: 10 is that of Redis 7.0, 11 of 7.2, 12 of 7.4. Only version 12 has fields of hashes that expire; with an older version SAVE refuses a dataset that has such fields."),
    row("rdb-save-incremental-fsync", Bool, "yes", Live, NO_FSYNC, Persistence, ""),
    row("rdb-del-sync-files", Bool, "no", Live, Inert("the files of a synchronisation are always deleted"), Persistence, ""),
    row("stop-writes-on-bgsave-error", Bool, "yes", Live, Used, Persistence, "Whether writes are refused from a failed dump until one succeeds, while there are `save` points."),
    row("sanitize-dump-payload", Choice(&["no", "yes", "clients"]), "no", Live, Inert("every value of a dump is checked while it is decoded"), Persistence, ""),
    row("appendonly", Bool, "no", Live, Used, Persistence, "Whether the dataset survives a restart: every change goes into a journal in `dir`. With flash-path the default is `yes`. At the first start the append-only file or the dump of Redis in `dir` is taken over. `CONFIG SET` switches it while the node runs."),
    row("appendfilename", FileName, "appendonly.aof", Start, Used, Persistence, "The name of Redis's append-only file, which is taken over at the first start with `appendonly yes`."),
    row("appenddirname", FileName, "appendonlydir", Start, Used, Persistence, "The directory in `dir` of Redis's append-only file, since Redis 7.0."),
    row("appendfsync", typed::APPEND_FSYNC, "everysec", Live, Used, Persistence, "When changes are put on the device, which they need to survive the loss of power. `always`: before the reply. `everysec`: each second. `no`: when the node needs the room. A process that is killed loses nothing with any of them."),
    row("backup-path", Path, "", Start, Used, Persistence, "The directory of all backups. Backups are written and read below it only. Empty: `backups` in `state-dir`."),
    row("backup-schedule", Text, "", Live, Used, Persistence, "How often the node backs up the database by itself: a time span such as `6h`, `1d` or `30m`, at least a minute. `1d at 03:00` names the time of the day too, in UTC; then the time span is whole days, or it divides a day. Empty: never. The first backup begins at once if there is none of this schedule."),
    row("backup-keep", Int(1, 10_000), "7", Live, Used, Persistence, "How many scheduled backups of the database are kept. Older ones are deleted after a new one was read back. Backups that somebody asked for are never deleted."),
    row("backup-journal-keep", Text, "", Live, Used, Persistence, "For how long a new database can be made of any moment: a time span such as `7d` or `12h`. The changes of the journal are copied beside the backups once a minute, from the newest backup before that time on, so that a backup and the changes behind it give the dataset of a moment between two backups. It needs `appendonly yes`. Empty: nothing is copied."),
    row("no-appendfsync-on-rewrite", Bool, "no", Live, Inert("the journal is synced as `appendfsync` says, also while a checkpoint is written"), Persistence, ""),
    row("auto-aof-rewrite-percentage", Int(0, INT_MAX), "100", Live, Used, Persistence, "By how much journal and checkpoint grow, in per cent of the checkpoint, before a new checkpoint is written. 0: never by itself."),
    row("auto-aof-rewrite-min-size", Size(0, LONG_MAX_BYTES), "64mb", Live, Used, Persistence, "Up to this size of journal and checkpoint no new checkpoint is written by itself."),
    row("recovery-time-target", Int(0, INT_MAX), "10", Live, Used, Persistence, "How many seconds a restart should take at most. If it would take longer, a new checkpoint is written, so that less of the journal is replayed: ten seconds after the last one at the soonest, and earlier if it would take half as long again. 0: no target."),
    row("aof-load-truncated", Bool, "yes", Live, Used, Persistence, "Whether an append-only file whose last command is cut off is loaded without that command."),
    row("aof-use-rdb-preamble", Bool, "yes", Live, NO_AOF, Persistence, ""),
    row("aof-timestamp-enabled", Bool, "no", Live, Inert("the journal always has the times of its changes: `backup-journal-keep`"), Persistence, ""),
    row("aof-disable-auto-gc", Bool, "no", Live, NO_AOF, Persistence, ""),
    row("aof-rewrite-incremental-fsync", Bool, "yes", Live, NO_FSYNC, Persistence, ""),

    // ---- Replication
    row("replicaof", Primary, "", Start, Used, Replication, "`HOST PORT` of the primary whose dataset the database copies, and follows from then on. REPLICAOF changes it while the node runs, and CONFIG REWRITE keeps it. Empty, or `no one`: the database is a primary.").alias("slaveof"),
    row("masteruser", Password, "", Live, Used, Replication, "The user with which a replica logs in at its primary. Empty: the default user."),
    row("masterauth", Password, "", Live, Used, Replication, "The password with which a replica logs in at its primary. Empty: it does not log in."),
    row("replica-serve-stale-data", Bool, "yes", Live, Used, Replication, "Whether a replica without a connection to its primary answers from the dataset that it has. With `no` clients get -MASTERDOWN, except for commands like INFO and REPLICAOF.").alias("slave-serve-stale-data"),
    row("replica-read-only", Bool, "yes", Live, Used, Replication, "A replica refuses writes of clients with -READONLY. Only `yes` is possible: a write of its own would make the datasets differ.").alias("slave-read-only"),
    row("replica-lazy-flush", Bool, "no", Live, Inert("the old dataset is always freed in the background"), Replication, "").alias("slave-lazy-flush"),
    row("replica-ignore-maxmemory", Bool, "yes", Live, Inert("a replica never evicts: its primary does"), Replication, "").alias("slave-ignore-maxmemory"),
    row("replica-ignore-disk-write-errors", Bool, "no", Live, Inert("a replica whose journal cannot be written stops following"), Replication, ""),
    row("replica-priority", Int(0, INT_MAX), "100", Live, Used, Replication, "What INFO tells Sentinel about the order in which replicas are promoted; 0: never.").alias("slave-priority"),
    row("replica-announced", Bool, "yes", Live, Used, Replication, "Whether INFO tells Sentinel that the replica may be shown to clients."),
    row("replica-announce-ip", Text, "", Live, Used, Replication, "The address that a replica tells its primary, for INFO and ROLE. Empty: the one that it connects from.").alias("slave-announce-ip"),
    row("replica-announce-port", Int(0, 65535), "0", Live, Used, Replication, "The port that a replica tells its primary. 0: the one where it listens.").alias("slave-announce-port"),
    row("repl-diskless-sync", Bool, "yes", Live, Inert("a dataset goes through a file on both sides"), Replication, ""),
    row("repl-diskless-sync-delay", Int(0, INT_MAX), "5", Live, Inert("replicas that come while a dump is made share the next one"), Replication, ""),
    row("repl-diskless-sync-max-replicas", Int(0, INT_MAX), "0", Live, Inert("replicas that come while a dump is made share the next one"), Replication, ""),
    row("repl-diskless-load", Choice(&["disabled", "on-empty-db", "swapdb"]), "disabled", Live, Inert("a dataset goes through a file on both sides"), Replication, ""),
    row("repl-ping-replica-period", Int(1, INT_MAX), "10", Live, Used, Replication, "How often a primary tells its replicas that it lives, in seconds.").alias("repl-ping-slave-period"),
    row("repl-timeout", Int(1, INT_MAX), "60", Live, Used, Replication, "Seconds without a byte from the other side after which a primary or a replica ends the connection between them."),
    row("repl-disable-tcp-nodelay", Bool, "no", Live, Inert("TCP_NODELAY is always on"), Replication, ""),
    row("repl-backlog-size", Size(1, LONG_MAX_BYTES), "1gb", Live, Used, Replication, "The newest bytes that replicas get, kept in a file in the database's directory for those that are slow, that were cut off or that are being synchronised. A change counts from the next start of the stream on: the first replica's, or a full synchronisation of this database."),
    row("repl-backlog-ttl", Int(0, LONG_MAX), "3600", Live, Inert("the backlog stays as long as the database is open"), Replication, ""),
    row("repl-check-interval", Int(0, 31_536_000), "86400", Live, Used, Replication, "Seconds between two comparisons of a FlintKV replica's dataset with this primary's. Both compute digests of their datasets as they are at one byte of the stream, while commands go on, each with at most a quarter of one core; everything on flash is read. A replica that differs says so and asks for the whole dataset anew. A comparison that could not be made is tried again after a twenty-fourth of the interval. 0: nothing is compared."),
    row("repl-transfer-rate", Size(0, LONG_MAX_BYTES), "0", Live, Used, Replication, "The most bytes a second that a primary sends for full synchronisations, of all replicas together. The stream of changes is not slowed down. 0: no bound."),
    row("min-replicas-to-write", Int(0, INT_MAX), "0", Live, Used, Replication, "A primary refuses writes with -NOREPLICAS while fewer replicas than this are connected and have said what they have within min-replicas-max-lag. 0: never.").alias("min-slaves-to-write"),
    row("min-replicas-max-lag", Int(0, INT_MAX), "10", Live, Used, Replication, "The seconds of min-replicas-to-write. 0: writes are never refused for that.").alias("min-slaves-max-lag"),
    row("propagation-error-behavior", Choice(&["ignore", "panic", "panic-on-replicas"]), "ignore", Live, Inert("a command of the stream that fails is logged and counted: replica_failed_commands of INFO"), Replication, ""),

    // ---- Cluster
    row("cluster-enabled", Bool, "no", Start, NO_CLUSTER, Cluster, ""),
    row("cluster-config-file", Text, "nodes.conf", Start, NO_CLUSTER, Cluster, ""),
    row("cluster-node-timeout", Int(0, LONG_MAX), "15000", Live, NO_CLUSTER, Cluster, ""),
    row("cluster-port", Int(0, 65535), "0", Start, NO_CLUSTER, Cluster, ""),
    row("cluster-migration-barrier", Int(0, INT_MAX), "1", Live, NO_CLUSTER, Cluster, ""),
    row("cluster-allow-replica-migration", Bool, "yes", Live, NO_CLUSTER, Cluster, ""),
    row("cluster-replica-validity-factor", Int(0, INT_MAX), "10", Live, NO_CLUSTER, Cluster, "").alias("cluster-slave-validity-factor"),
    row("cluster-replica-no-failover", Bool, "no", Live, NO_CLUSTER, Cluster, "").alias("cluster-slave-no-failover"),
    row("cluster-require-full-coverage", Bool, "yes", Live, NO_CLUSTER, Cluster, ""),
    row("cluster-allow-reads-when-down", Bool, "no", Live, NO_CLUSTER, Cluster, ""),
    row("cluster-allow-pubsubshard-when-down", Bool, "yes", Live, NO_CLUSTER, Cluster, ""),
    row("cluster-link-sendbuf-limit", Size(0, u64::MAX), "0", Live, NO_CLUSTER, Cluster, ""),
    row("cluster-announce-ip", Text, "", Live, NO_CLUSTER, Cluster, ""),
    row("cluster-announce-port", Int(0, 65535), "0", Live, NO_CLUSTER, Cluster, ""),
    row("cluster-announce-tls-port", Int(0, 65535), "0", Live, NO_CLUSTER, Cluster, ""),
    row("cluster-announce-bus-port", Int(0, 65535), "0", Live, NO_CLUSTER, Cluster, ""),
    row("cluster-announce-hostname", Text, "", Live, NO_CLUSTER, Cluster, ""),
    row("cluster-announce-human-nodename", Text, "", Live, NO_CLUSTER, Cluster, ""),
    row("cluster-preferred-endpoint-type", Choice(&["ip", "hostname", "unknown-endpoint"]), "ip", Live, NO_CLUSTER, Cluster, ""),

    // ---- TLS
    row("tls-port", Int(0, 65535), "0", Live, Used, Tls, "Port for TLS connections; 0 switches TLS off. Set `port 0` to refuse connections without TLS."),
    row("tls-cert-file", Text, "", Live, Used, Tls, "The certificate, followed by its intermediate certificates (PEM). CONFIG SET reads the file again, for new connections."),
    row("tls-key-file", Text, "", Live, Used, Tls, "The private key of the certificate (PEM)."),
    row("tls-key-file-pass", Password, "", Live, Used, Tls, "The password of the private key if the key is encrypted (PKCS #8)."),
    row("tls-client-cert-file", Text, "", Live, Used, Tls, "The certificate that a replica shows its primary. Empty: that of tls-cert-file."),
    row("tls-client-key-file", Text, "", Live, Used, Tls, "The key of tls-client-cert-file."),
    row("tls-client-key-file-pass", Password, "", Live, Used, Tls, "The password of tls-client-key-file."),
    row("tls-dh-params-file", Text, "", Live, NO_DH, Tls, ""),
    row("tls-ca-cert-file", Text, "", Live, Used, Tls, "Certificates of the authorities that sign clients' certificates (PEM)."),
    row("tls-ca-cert-dir", Text, "", Live, Used, Tls, "A directory of certificates of such authorities (PEM)."),
    row("tls-auth-clients", Choice(&["no", "yes", "optional"]), "yes", Live, Used, Tls, "Whether clients must present a certificate. `optional`: a client may present none, but a presented certificate must be valid."),
    row("tls-replication", Bool, "no", Live, Used, Tls, "A replica connects to its primary with TLS, with the files and protocols of the directives `tls-…`. The primary's certificate must be signed by an authority in tls-ca-cert-file or tls-ca-cert-dir; its name is not compared, as in Redis."),
    row("tls-cluster", Bool, "no", Live, NO_CLUSTER, Tls, ""),
    row("tls-protocols", Text, "", Live, Used, Tls, "`TLSv1.2`, `TLSv1.3` or both. Empty is both."),
    row("tls-ciphers", Text, "", Live, Used, Tls, "Ciphers of TLS 1.2 by OpenSSL's names, joined by colons. Empty is all safe ciphers."),
    row("tls-ciphersuites", Text, "", Live, Used, Tls, "Cipher suites of TLS 1.3, joined by colons."),
    row("tls-prefer-server-ciphers", Bool, "no", Live, Used, Tls, "Choose the cipher by the server's order of preference, not by the client's."),
    row("tls-session-caching", Bool, "yes", Live, Used, Tls, "Keep TLS sessions, so that a returning client can resume its session without a full handshake."),
    row("tls-session-cache-size", Int(0, INT_MAX), "20480", Live, Used, Tls, "Maximum number of TLS sessions that are kept."),
    row("tls-session-cache-timeout", Int(0, INT_MAX), "300", Live, NO_SESSION_TIMEOUT, Tls, ""),

    // ---- Encodings of other types
    row("list-compress-depth", Int(0, INT_MAX), "0", Live, Effect::Inert("lists are compressed on flash, not in RAM"), Types, ""),

    // ---- Other directives that Redis accepts but does not show
    row("list-max-ziplist-entries", Lines, "", FileOnly, Effect::Inert("Redis removed it long ago"), Other, ""),
    row("list-max-ziplist-value", Lines, "", FileOnly, Effect::Inert("Redis removed it long ago"), Other, ""),
    row("lua-replicate-commands", Lines, "", FileOnly, Effect::Inert("Redis removed it long ago"), Other, ""),
    row("rdb-key-save-delay", Int(-INT_MAX - 1, INT_MAX), "0", Live, HIDDEN, Hidden, ""),
    row("key-load-delay", Int(-INT_MAX - 1, INT_MAX), "0", Live, HIDDEN, Hidden, ""),
    row("watchdog-period", Int(0, INT_MAX), "0", Live, HIDDEN, Hidden, ""),
    row("loading-process-events-interval-bytes", Int(1024, INT_MAX), "2097152", Live, HIDDEN, Hidden, ""),
    row("use-exit-on-panic", Bool, "no", Live, HIDDEN, Hidden, ""),
    row("lua-enable-deprecated-api", Bool, "no", Start, HIDDEN, Hidden, ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_lower_case() {
        let mut seen = std::collections::BTreeSet::new();
        for row in ROWS {
            for name in [row.name, row.alias].into_iter().filter(|name| !name.is_empty()) {
                assert_eq!(name, name.to_ascii_lowercase());
                assert!(seen.insert(name), "'{name}' appears twice");
            }
        }
    }

    #[test]
    fn every_used_directive_has_a_help_text() {
        for row in ROWS {
            assert_eq!(row.effect == Used, !row.about.is_empty(), "{}", row.name);
        }
    }

    #[test]
    fn a_name_is_found_by_its_alias_and_in_any_case() {
        assert_eq!(ROWS[find("MaxMemory").unwrap()].name, "ram-limit");
        assert_eq!(ROWS[find("slave-priority").unwrap()].name, "replica-priority");
        assert_eq!(find("no-such-directive"), None);
        assert_eq!(find(""), None);
    }

    #[test]
    fn passwords_are_secret() {
        for name in ["requirepass", "masterauth", "tls-key-file-pass", "user"] {
            assert!(is_secret(name), "{name}");
        }
        assert!(!is_secret("port"));
    }
}
