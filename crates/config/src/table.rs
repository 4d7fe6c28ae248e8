//! Owns the one table of directives: name, type, default, whether CONFIG SET may change it, what it means.
//! Parsing, CONFIG GET/SET/REWRITE and docs/configuration.md are all read from it. Never knows a current value.

use super::typed;

/// One directive.
#[derive(Debug)]
pub struct Row {
    pub name: &'static str,
    /// A second name, empty if there is none.
    pub alias: &'static str,
    pub kind: Kind,
    /// As one would write it in the file.
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
    /// Bytes, with a unit: 1k = 1000, 1kb = 1024 and so on.
    Size(u64, u64),
    /// Bytes, or a percentage of something.
    SizeOrPercent,
    /// Bytes, a power of two within the range.
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
    /// The name of a file without a directory.
    FileName,
    Path,
    /// An existing directory, kept absolute.
    Directory,
    /// Words, at most so many.
    Words(usize),
    /// A directive that may be repeated, one path each; an empty path empties the list.
    Paths,
    /// `SECONDS CHANGES` pairs; repeated lines add up, an empty one empties the list.
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
    /// By CONFIG SET of a client that `enable-protected-configs` lets through.
    Protected,
    /// Only in the file or on the command line.
    Start,
    /// As `Start`, and CONFIG GET does not show it: it is an instruction rather than a value.
    FileOnly,
}

/// Whether the directive does anything here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Used,
    /// Accepted and kept; the log says once why it does nothing.
    Inert(&'static str),
}

/// Where the documentation puts it.
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
    /// Known to Redis, shown by CONFIG GET only when asked for by its whole name.
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

/// The row's index by name or alias, in any case.
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

const NO_PERSISTENCE: Effect = Effect::Inert("persistence is not built yet: data does not survive a restart");
const NO_REPLICATION: Effect = Effect::Inert("replication is not built yet");
const NO_CLUSTER: Effect = Effect::Inert("the cluster is not built yet");
const NO_DH: Effect = Effect::Inert("finite-field key exchange is not offered: it is elliptic curves always");
const NO_SESSION_TIMEOUT: Effect = Effect::Inert("sessions leave the cache when it is full");
const NO_MODULES: Effect = Effect::Inert("modules are not supported");
const NO_SYSLOG: Effect = Effect::Inert("syslog is not supported: log to a file or to standard output");
const NO_REHASH: Effect = Effect::Inert("the index is never rehashed as a whole");
const NO_DEFRAG: Effect = Effect::Inert("the allocator returns memory by itself");
const NO_SAMPLES: Effect = Effect::Inert("victims come from a sweep with frequency bits, not from samples");
const NO_LAZYFREE: Effect = Effect::Inert("values are freed where they are replaced");
const NO_HZ: Effect = Effect::Inert("background work paces itself");
const NO_CPULIST: Effect = Effect::Inert("use taskset or the service manager to choose processors");
const NO_NEED: Effect = Effect::Inert("FlintKV has nothing that it would change");
const HIDDEN: Effect = Effect::Inert("it is a debugging aid of Redis");

use Change::{FileOnly, Live, Protected, Start};
use Effect::Used;
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
    row("flash-path", Paths, "", Start, Used, Flash, "A directory on flash for cold values; repeat the directive to spread them over several devices. KeyDB's `storage-provider flash PATH` means the same. Without it everything stays in RAM."),
    row("flash-io", typed::FLASH_IO, "auto", Start, Used, Flash, "How flash is read and written: `uring`, `threads`, or `auto`, which takes io_uring where the system allows it."),
    row("flash-compression", typed::COMPRESSION, "lz4", Start, Used, Flash, "Compression of values on flash; what does not shrink is stored as it is."),
    row("flash-segment-size", Segment(typed::SEGMENT_BYTES_MIN, 128 * MB), "16mb", Start, Used, Flash, "The unit in which flash is written and freed, a power of two. Halved until flash holds 64 of them, down to 256kb."),
    row("flash-split-size", Size(1024, 16 * MB), "64kb", Live, Used, Flash, "A collection larger than this goes to flash in parts, some hundred bytes each, and comes back as far as a command touches it; a smaller one moves as a whole. One that is in parts already stays so."),
    row("debug-tier-mode", typed::TIER_MODE, "off", Live, Used, Flash, "For testing: `cold` sends every value to flash as soon as the command that wrote or read it has run, so that the next one finds it there. It is slow, and flash wears. Values larger than a segment stay in RAM. Needs flash-path."),
    row("memory-limit", Size(0, LONG_MAX_BYTES), "0", Live, Used, Memory, "RAM and flash together that the data may use; 0 is no limit, which flash-path does not allow. On a running server flash grows at once, and shrinks as its values move; what would not fit is refused, unless maxmemory-policy evicts: then what has been on flash longest goes, as on a full flash."),
    row("ram-limit", SizeOrPercent, "0", Live, Used, Memory, "The part of memory-limit that may be RAM, in bytes or percent; it bounds the resident size of the process. 0 is 30% of memory-limit where there is flash, otherwise memory-limit. CONFIG GET maxmemory shows the result in bytes. What it leaves of memory-limit is flash's, also when it changes while the server runs. With flash it is at least 16mb + 2mb for each of io-threads at start, and 12mb more where there is a console, which the process needs for itself.").alias("maxmemory"),

    // ---- Memory
    row("maxmemory-policy", POLICY, "noeviction", Live, Used, Memory, "Which keys make room when RAM and flash are both full; `noeviction` refuses writes instead."),
    row("maxmemory-samples", Int(1, INT_MAX), "5", Live, NO_SAMPLES, Memory, ""),
    row("maxmemory-eviction-tenacity", Int(0, 100), "10", Live, NO_SAMPLES, Memory, ""),
    row("maxmemory-clients", SizeOrPercent, "0", Live, Effect::Inert("buffers are bounded for each client, not in total"), Memory, ""),
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
    row("disable-thp", Bool, "yes", Start, Used, Memory, "Keeps transparent huge pages away from this process, but for the memory that `huge-pages` is about: they make its resident size larger than what it uses."),
    row("huge-pages", Bool, "yes", Start, Used, Memory, "Values in RAM lie in huge pages where the kernel gives them to those who ask (`/sys/kernel/mm/transparent_hugepage/enabled`): look-ups cost less. Not where ram-limit is below 1gb."),

    // ---- Network
    row("bind", Words(16), "127.0.0.1 -::1", Start, Used, Network, "Addresses to listen on; `*` and `::*` are all of IPv4 and IPv6. A `-` in front makes an address that this machine lacks no error."),
    row("port", Int(0, 65535), "6379", Start, Used, Network, "TCP port; 0 switches TCP off."),
    row("unixsocket", Path, "", Start, Used, Network, "Path of a unix socket to listen on as well."),
    row("unixsocketperm", Octal, "0", Start, Used, Network, "Its permissions in octal; 0 leaves them to the umask."),
    row("tcp-backlog", Int(0, INT_MAX), "511", Start, Used, Network, "Connections that may wait to be accepted; the kernel's somaxconn caps it."),
    row("tcp-keepalive", Int(0, INT_MAX), "300", Live, Used, Network, "Seconds between probes of a silent connection; 0 sends none."),
    row("timeout", Int(0, INT_MAX), "0", Live, Used, Network, "Seconds after which an idle client is disconnected; 0 never."),
    row("maxclients", Int(1, UINT_MAX), "10000", Live, Used, Network, "Connections at a time; further ones get an error."),
    row("bind-source-addr", Text, "", Live, NO_REPLICATION, Network, ""),
    row("socket-mark-id", Int(0, UINT_MAX), "0", Start, Effect::Inert("sockets are not marked"), Network, ""),

    // ---- Access
    row("protected-mode", Bool, "yes", Live, Used, Access, "Without a password, serve only clients of this machine."),
    row("requirepass", Password, "", Live, Used, Access, "The password that AUTH and HELLO ask for; empty asks for none."),
    row("rename-command", Renames, "", FileOnly, Used, Access, "Gives a command another name, or with \"\" none; repeatable."),
    row("enable-debug-command", GUARD, "no", Start, Used, Access, "Who may use DEBUG; `local` is a client of this machine."),
    row("enable-protected-configs", GUARD, "no", Start, Used, Access, "Who may change protected directives by CONFIG SET."),
    row("enable-module-command", GUARD, "no", Start, NO_MODULES, Access, ""),
    row("loadmodule", Lines, "", FileOnly, NO_MODULES, Access, ""),
    row("aclfile", Path, "", Start, Used, Access, "The file of users that ACL LOAD reads and ACL SAVE writes; then `user` directives are not allowed."),
    row("user", Lines, "", FileOnly, Used, Access, "A user and its rules, as ACL SETUSER takes them; repeatable."),
    row("acllog-max-len", Int(0, LONG_MAX), "128", Live, Used, Access, "Entries that ACL LOG keeps."),
    row("acl-pubsub-default", Choice(&["allchannels", "resetchannels"]), "resetchannels", Live, Used, Access, "Which channels a new user may use: all or none."),

    // ---- Limits of a client
    row("client-output-buffer-limit", OutputLimits, "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60", Live, Used, Clients, "For a class of clients, the unsent bytes at which it is disconnected: at once, or when a lower number lasts so many seconds. Classes: normal, replica, pubsub."),
    row("client-query-buffer-limit", Size(MB, LONG_MAX_BYTES), "1gb", Live, Used, Clients, "Bytes of commands not yet run that a client may have."),
    row("proto-max-bulk-len", Size(MB, LONG_MAX_BYTES), "512mb", Live, Used, Clients, "The longest single argument."),

    // ---- Keys and workers
    row("io-threads", AutoOrInt(1, 128), "auto", Start, Used, Keys, "Number of workers, each of which runs commands; `auto` is one for each core."),
    row("io-threads-do-reads", Bool, "no", Start, Effect::Inert("every worker reads, runs and answers"), Keys, ""),
    row("databases", Int(1, 16384), "16", Start, Used, Keys, "How many databases SELECT can choose from."),
    row("hash-max-listpack-entries", Int(0, LONG_MAX), "512", Live, Used, Keys, "Fields up to which a hash keeps its compact form.").alias("hash-max-ziplist-entries"),
    row("hash-max-listpack-value", Size(0, LONG_MAX_BYTES), "64", Live, Used, Keys, "Longest field or value that the compact form of a hash takes.").alias("hash-max-ziplist-value"),
    row("list-max-listpack-size", Int(-INT_MAX - 1, INT_MAX), "-2", Live, Used, Keys, "What a list's compact form, and each piece of a longer list, may hold: -1 to -5 for 4, 8 … 64 KB, a positive number for that many elements.").alias("list-max-ziplist-size"),
    row("set-max-intset-entries", Int(0, LONG_MAX), "512", Live, Used, Keys, "Members up to which a set of integers keeps its compact form."),
    row("set-max-listpack-entries", Int(0, LONG_MAX), "128", Live, Used, Keys, "Members up to which a set keeps its compact form."),
    row("set-max-listpack-value", Size(0, LONG_MAX_BYTES), "64", Live, Used, Keys, "Longest member that the compact form of a set takes."),
    row("zset-max-listpack-entries", Int(0, LONG_MAX), "128", Live, Used, Keys, "Members up to which a sorted set keeps its compact form.").alias("zset-max-ziplist-entries"),
    row("zset-max-listpack-value", Size(0, LONG_MAX_BYTES), "64", Live, Used, Keys, "Longest member that the compact form of a sorted set takes.").alias("zset-max-ziplist-value"),
    row("hll-sparse-max-bytes", Size(0, LONG_MAX_BYTES), "3000", Live, Used, Keys, "Bytes up to which a HyperLogLog keeps its sparse form."),
    row("stream-node-max-bytes", Size(0, LONG_MAX_BYTES), "4096", Live, Used, Keys, "Bytes of a stream's entries that are kept, and trimmed by `~`, together; 0 for no limit."),
    row("stream-node-max-entries", Int(0, LONG_MAX), "100", Live, Used, Keys, "Entries of a stream that are kept, and trimmed by `~`, together; 0 for no limit."),
    row("hz", Int(0, INT_MAX), "10", Live, NO_HZ, Keys, ""),
    row("dynamic-hz", Bool, "yes", Live, NO_HZ, Keys, ""),
    row("active-expire-effort", Int(1, 10), "1", Live, NO_HZ, Keys, ""),
    row("notify-keyspace-events", Events, "", Live, Used, Keys, "Which events of keys are published, as letters: on `K`, the channel of the key, or `E`, that of the event; `g$lshzt` general ones and those of a type, `x` expired, `e` evicted, `n` new, `m` missed, `A` for all but the last two. Empty publishes none."),
    row("busy-reply-threshold", Int(0, LONG_MAX), "5000", Live, Used, Keys, "Milliseconds that a script may run before other clients are answered with BUSY and it may be killed; 0: as long as it likes.").alias("lua-time-limit"),
    row("tracking-table-max-keys", Int(0, LONG_MAX), "1000000", Live, Used, Keys, "Keys of which the server remembers who has read them, for CLIENT TRACKING; beyond it some are forgotten, and their readers told so. 0 is no limit."),

    // ---- Log, slow log, latency
    row("loglevel", typed::LOG_LEVEL, "notice", Live, Used, Observation, "How much the log says."),
    row("log-format", typed::LOG_FORMAT, "text", Start, Used, Observation, "`json` writes each line of the log as an object with OpenTelemetry's field names."),
    row("logfile", Path, "", Start, Used, Observation, "The log's file; empty is standard output."),
    row("slowlog-log-slower-than", Int(-1, LONG_MAX), "10000", Live, Used, Observation, "Microseconds from which a command enters the slow log; -1 is never, 0 always."),
    row("slowlog-max-len", Int(0, LONG_MAX), "128", Live, Used, Observation, "Entries that the slow log keeps."),
    row("latency-monitor-threshold", Int(0, LONG_MAX), "0", Live, Used, Observation, "Milliseconds from which LATENCY records an event; 0 is off."),
    row("latency-tracking", Bool, "yes", Live, Used, Observation, "Keeps a latency histogram for each command."),
    row("latency-tracking-info-percentiles", Percentiles, "50 99 99.9", Live, Used, Observation, "The percentiles that INFO latencystats shows."),
    row("syslog-enabled", Bool, "no", Start, NO_SYSLOG, Observation, ""),
    row("syslog-ident", Text, "redis", Start, NO_SYSLOG, Observation, ""),
    row("syslog-facility", Choice(&["user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"]), "local0", Start, NO_SYSLOG, Observation, ""),
    row("crash-log-enabled", Bool, "yes", Live, Effect::Inert("a crash leaves a backtrace on standard error"), Observation, ""),
    row("crash-memcheck-enabled", Bool, "yes", Live, NO_NEED, Observation, ""),

    // ---- Node and console
    row("state-dir", Path, "flintkv-state", Start, Used, Console, "Where the node keeps the definitions of its databases, the console's users and history. It is made when it is needed."),
    row("console-port", Int(0, 65535), "8379", Start, Used, Console, "Port of the web console, the HTTP API and /metrics; 0 switches them off. A port that was not asked for and is taken is done without; called as redis-server, there is none unless it is asked for."),
    row("console-bind", Words(16), "127.0.0.1 -::1", Start, Used, Console, "Addresses the console listens on, as in `bind`. Beyond this machine it should have a certificate."),
    row("console-tls-cert-file", Path, "", Start, Used, Console, "The console's certificate, in PEM; with its key it speaks HTTPS."),
    row("console-tls-key-file", Path, "", Start, Used, Console, "The key of the console's certificate."),
    row("console-password", Password, "", Start, Used, Console, "The password of the console's first user, `admin`, when there are no users yet; empty: one is made up and said once in the log."),
    row("console-metrics-open", Bool, "no", Start, Used, Console, "Whether /metrics answers other machines without a token."),

    // ---- Process
    row("daemonize", Bool, "no", Start, Used, Process, "Detaches from the terminal once the configuration has been read."),
    row("pidfile", Path, "", Start, Used, Process, "Where to write the process id; empty is nowhere."),
    row("dir", Directory, ".", Protected, Used, Process, "The directory that relative paths of other directives start from."),
    row("supervised", typed::SUPERVISED, "no", Start, Used, Process, "Who is told when the node is ready and when it stops: `systemd` (Type=notify; `WatchdogSec` works too), or `auto`, systemd if it started the node. `daemonize` has no effect then."),
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
    row("shutdown-timeout", Int(0, INT_MAX), "10", Live, NO_REPLICATION, Process, ""),
    row("shutdown-on-sigint", SHUTDOWN, "default", Live, NO_PERSISTENCE, Process, ""),
    row("shutdown-on-sigterm", SHUTDOWN, "default", Live, NO_PERSISTENCE, Process, ""),

    // ---- Persistence
    row("save", Save, "", Live, NO_PERSISTENCE, Persistence, ""),
    row("dbfilename", FileName, "dump.rdb", Protected, NO_PERSISTENCE, Persistence, ""),
    row("rdbcompression", Bool, "yes", Live, NO_PERSISTENCE, Persistence, ""),
    row("rdbchecksum", Bool, "yes", Start, NO_PERSISTENCE, Persistence, ""),
    row("rdb-save-incremental-fsync", Bool, "yes", Live, NO_PERSISTENCE, Persistence, ""),
    row("rdb-del-sync-files", Bool, "no", Live, NO_PERSISTENCE, Persistence, ""),
    row("stop-writes-on-bgsave-error", Bool, "yes", Live, NO_PERSISTENCE, Persistence, ""),
    row("sanitize-dump-payload", Choice(&["no", "yes", "clients"]), "no", Live, NO_PERSISTENCE, Persistence, ""),
    row("appendonly", Bool, "no", Live, NO_PERSISTENCE, Persistence, ""),
    row("appendfilename", FileName, "appendonly.aof", Start, NO_PERSISTENCE, Persistence, ""),
    row("appenddirname", FileName, "appendonlydir", Start, NO_PERSISTENCE, Persistence, ""),
    row("appendfsync", Choice(&["everysec", "always", "no"]), "everysec", Live, NO_PERSISTENCE, Persistence, ""),
    row("no-appendfsync-on-rewrite", Bool, "no", Live, NO_PERSISTENCE, Persistence, ""),
    row("auto-aof-rewrite-percentage", Int(0, INT_MAX), "100", Live, NO_PERSISTENCE, Persistence, ""),
    row("auto-aof-rewrite-min-size", Size(0, LONG_MAX_BYTES), "64mb", Live, NO_PERSISTENCE, Persistence, ""),
    row("aof-load-truncated", Bool, "yes", Live, NO_PERSISTENCE, Persistence, ""),
    row("aof-use-rdb-preamble", Bool, "yes", Live, NO_PERSISTENCE, Persistence, ""),
    row("aof-timestamp-enabled", Bool, "no", Live, NO_PERSISTENCE, Persistence, ""),
    row("aof-disable-auto-gc", Bool, "no", Live, NO_PERSISTENCE, Persistence, ""),
    row("aof-rewrite-incremental-fsync", Bool, "yes", Live, NO_PERSISTENCE, Persistence, ""),

    // ---- Replication
    row("replicaof", Primary, "", Start, NO_REPLICATION, Replication, "").alias("slaveof"),
    row("masteruser", Password, "", Live, NO_REPLICATION, Replication, ""),
    row("masterauth", Password, "", Live, NO_REPLICATION, Replication, ""),
    row("replica-serve-stale-data", Bool, "yes", Live, NO_REPLICATION, Replication, "").alias("slave-serve-stale-data"),
    row("replica-read-only", Bool, "yes", Live, NO_REPLICATION, Replication, "").alias("slave-read-only"),
    row("replica-lazy-flush", Bool, "no", Live, NO_REPLICATION, Replication, "").alias("slave-lazy-flush"),
    row("replica-ignore-maxmemory", Bool, "yes", Live, NO_REPLICATION, Replication, "").alias("slave-ignore-maxmemory"),
    row("replica-ignore-disk-write-errors", Bool, "no", Live, NO_REPLICATION, Replication, ""),
    row("replica-priority", Int(0, INT_MAX), "100", Live, NO_REPLICATION, Replication, "").alias("slave-priority"),
    row("replica-announced", Bool, "yes", Live, NO_REPLICATION, Replication, ""),
    row("replica-announce-ip", Text, "", Live, NO_REPLICATION, Replication, "").alias("slave-announce-ip"),
    row("replica-announce-port", Int(0, 65535), "0", Live, NO_REPLICATION, Replication, "").alias("slave-announce-port"),
    row("repl-diskless-sync", Bool, "yes", Live, NO_REPLICATION, Replication, ""),
    row("repl-diskless-sync-delay", Int(0, INT_MAX), "5", Live, NO_REPLICATION, Replication, ""),
    row("repl-diskless-sync-max-replicas", Int(0, INT_MAX), "0", Live, NO_REPLICATION, Replication, ""),
    row("repl-diskless-load", Choice(&["disabled", "on-empty-db", "swapdb"]), "disabled", Live, NO_REPLICATION, Replication, ""),
    row("repl-ping-replica-period", Int(1, INT_MAX), "10", Live, NO_REPLICATION, Replication, "").alias("repl-ping-slave-period"),
    row("repl-timeout", Int(1, INT_MAX), "60", Live, NO_REPLICATION, Replication, ""),
    row("repl-disable-tcp-nodelay", Bool, "no", Live, NO_REPLICATION, Replication, ""),
    row("repl-backlog-size", Size(1, LONG_MAX_BYTES), "1mb", Live, NO_REPLICATION, Replication, ""),
    row("repl-backlog-ttl", Int(0, LONG_MAX), "3600", Live, NO_REPLICATION, Replication, ""),
    row("min-replicas-to-write", Int(0, INT_MAX), "0", Live, NO_REPLICATION, Replication, "").alias("min-slaves-to-write"),
    row("min-replicas-max-lag", Int(0, INT_MAX), "10", Live, NO_REPLICATION, Replication, "").alias("min-slaves-max-lag"),
    row("propagation-error-behavior", Choice(&["ignore", "panic", "panic-on-replicas"]), "ignore", Live, NO_REPLICATION, Replication, ""),

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
    row("tls-port", Int(0, 65535), "0", Start, Used, Tls, "The port for TLS connections; 0 is none. With `port 0` there are no others."),
    row("tls-cert-file", Text, "", Live, Used, Tls, "The certificate, with those it rests on behind it (PEM). CONFIG SET reads it again, for new connections."),
    row("tls-key-file", Text, "", Live, Used, Tls, "The key of the certificate (PEM)."),
    row("tls-key-file-pass", Password, "", Live, Used, Tls, "The password of an encrypted key (PKCS #8)."),
    row("tls-client-cert-file", Text, "", Live, NO_REPLICATION, Tls, ""),
    row("tls-client-key-file", Text, "", Live, NO_REPLICATION, Tls, ""),
    row("tls-client-key-file-pass", Password, "", Live, NO_REPLICATION, Tls, ""),
    row("tls-dh-params-file", Text, "", Live, NO_DH, Tls, ""),
    row("tls-ca-cert-file", Text, "", Live, Used, Tls, "Certificates of those who sign clients' certificates (PEM)."),
    row("tls-ca-cert-dir", Text, "", Live, Used, Tls, "A directory of such certificates."),
    row("tls-auth-clients", Choice(&["no", "yes", "optional"]), "yes", Live, Used, Tls, "Whether clients have to show a certificate: yes, no, or only a good one if any."),
    row("tls-replication", Bool, "no", Live, NO_REPLICATION, Tls, ""),
    row("tls-cluster", Bool, "no", Live, NO_CLUSTER, Tls, ""),
    row("tls-protocols", Text, "", Live, Used, Tls, "`TLSv1.2`, `TLSv1.3` or both; empty for both."),
    row("tls-ciphers", Text, "", Live, Used, Tls, "Ciphers of TLS 1.2 by OpenSSL's names, joined by colons; empty for all that are safe."),
    row("tls-ciphersuites", Text, "", Live, Used, Tls, "Cipher suites of TLS 1.3, joined by colons."),
    row("tls-prefer-server-ciphers", Bool, "no", Live, Used, Tls, "The order of ciphers is the server's, not the client's."),
    row("tls-session-caching", Bool, "yes", Live, Used, Tls, "Clients that come back need not negotiate anew."),
    row("tls-session-cache-size", Int(0, INT_MAX), "20480", Live, Used, Tls, "How many such sessions are kept."),
    row("tls-session-cache-timeout", Int(0, INT_MAX), "300", Live, NO_SESSION_TIMEOUT, Tls, ""),

    // ---- Encodings of other types
    row("list-compress-depth", Int(0, INT_MAX), "0", Live, Effect::Inert("lists are compressed on flash, not in RAM"), Types, ""),

    // ---- Others that Redis knows without showing them
    row("list-max-ziplist-entries", Lines, "", FileOnly, Effect::Inert("Redis dropped it long ago"), Other, ""),
    row("list-max-ziplist-value", Lines, "", FileOnly, Effect::Inert("Redis dropped it long ago"), Other, ""),
    row("lua-replicate-commands", Lines, "", FileOnly, Effect::Inert("Redis dropped it long ago"), Other, ""),
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
    fn every_used_directive_says_what_it_means() {
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
