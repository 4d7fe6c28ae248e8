//! Owns the one table of directives: a row has all that is known of a directive, and names the field of [`Config`] that the server reads.
//! Parsing, CONFIG GET/SET/REWRITE, `Config`, docs/configuration.md and the options of `flintkv server` are made of it. Never knows a current
//! value.

use std::path::PathBuf;

use base::events::Events;
use base::time::Schedule;
use base::{Codec, FlashIo, Policy};

use super::row::Kind::{
    AutoOrInt, Bool, Choice, Directory, Events as EventLetters, FileName, Int, Lines, Octal, OomScores, OutputLimits,
    Password, Path, Paths, Percentiles, Primary, Renames, Save, Segment, Size, SizeOrPercent, Text, Words,
};
use super::row::{Change, Group, Kind, Row, directives};
use super::typed::{
    AppendFsync, BindAddress, Guard, LogFormat, LogLevel, OutputLimit, SEGMENT_BYTES_MIN, Secret, Supervised, TierMode,
    TlsAuth, Typed, Values, backup_path, bytes_or_share, etcd_path, io_threads, ms_of_seconds, octal, output_limit,
    tls_sessions,
};

const INT_MAX: i64 = i32::MAX as i64;
const UINT_MAX: i64 = u32::MAX as i64;
const LONG_MAX: i64 = i64::MAX;
const LONG_MAX_BYTES: u64 = i64::MAX as u64;
const MB: u64 = 1024 * 1024;

const SHUTDOWN: Kind = Kind::Choices(&["default", "save", "nosave", "now", "force"]);

const NO_AOF: &str = "`appendonly yes` keeps changes in a journal of FlintKV's own format, not in an append-only file";
const NO_FSYNC: &str = "dumps and checkpoints are always written to the device a part at a time";
const NO_SIGNALS: &str = "a signal stops the node like SHUTDOWN without arguments, a second signal like SHUTDOWN NOW";
const NO_CLUSTER: &str = "FlintKV's cluster is not Redis Cluster: see `flintkv cluster`";
const NO_DH: &str = "finite-field key exchange is not supported: key exchange always uses elliptic curves";
const NO_SESSION_TIMEOUT: &str = "sessions are removed from the cache only when it is full";
const NO_MODULES: &str = "modules are not supported";
const NO_SYSLOG: &str = "syslog is not supported: log to a file or to standard output";
const NO_REHASH: &str = "the index is never rehashed as a whole";
const NO_DEFRAG: &str = "the allocator returns memory by itself";
const NO_SAMPLES: &str = "keys to evict are found by a clock algorithm with frequency bits, not by sampling";
const NO_LAZYFREE: &str = "large collections are always freed in the background; a flush frees there with ASYNC only";
const NO_HZ: &str = "background work paces itself";
const NO_CPULIST: &str = "use taskset or the service manager to choose processors";
const NO_NEED: &str = "FlintKV has nothing that this directive could change";
const HIDDEN: &str = "it is only for debugging Redis";

directives! {
    Flash {
        "flash-path" inherited: Paths, "", Start, .flash_paths: Vec<PathBuf> => "A directory on flash for cold values. Repeat the directive to spread the values over several devices. A missing directory is created, but its parent must exist, because otherwise a device may not be mounted. KeyDB's `storage-provider flash PATH` means the same. Without a flash-path all values stay in RAM.";
        "flash-io" inherited: Choice(FlashIo::WORDS), "auto", Start, .flash_io: FlashIo => "How flash is read and written: `uring`, `threads`, or `auto`, which uses io_uring if the system allows it and threads otherwise.";
        "flash-compression": Choice(Codec::WORDS), "lz4", Live, .flash_compression: Codec => "Codec for values on flash. Data that does not shrink is stored uncompressed. After a change, values on flash stay as they are until they are written again; a value that only moves there is never compressed less than before.";
        "flash-segment-size" inherited: Segment(SEGMENT_BYTES_MIN, 128 * MB), "16mb", Start, .flash_segment_bytes: u64 => "Size of a segment, the unit in which flash is freed. A power of two. If flash is too small for 64 segments, the size is halved until 64 fit, but not below 256kb.";
        "flash-split-size" inherited: Size(1024, 16 * MB), "64kb", Live, .flash_split_bytes: u64 => "A collection larger than this moves to flash in parts of some hundred bytes each, and a command reads back only the parts that it needs. A smaller collection moves as a whole. A collection that is already in parts stays in parts.";
        "expired-key-lag": Int(1, 31_536_000), "3600", Live, .expired_key_lag_ms: u64 = ms_of_seconds => "An expired key leaves flash at most this many seconds after its expiry. A command never sees an expired key. Segments with many expired keys are cleaned earlier, and when flash is short of room expired keys go first. Cleaning takes at most some tenth of a worker's time, so with very many keys it can take longer.";
        "scrub-interval": Int(0, 31_536_000), "604800", Live, .scrub_interval_ms: u64 = ms_of_seconds => "The scrubber reads every page on flash, the checkpoint and the journal of a dataset that survives restarts, its backups and its archived journal, once in this many seconds, and checks them, so that damage is found before somebody needs the values. Damaged values that are also in RAM are written again; the keys of the others are counted in rotten_keys of INFO tiering, which also counts, each once, the keys whose damage a client's command finds. It reads at most 26 MB a second for each worker, and 32 MB a second of other files. 0: nothing is checked.";
        "debug-tier-mode": Choice(TierMode::WORDS), "off", Live, .debug_tier_mode: TierMode => "For testing: `cold` moves every value to flash as soon as the command that wrote or read it has run, so the next command finds the value on flash. This is slow and wears out flash. Values larger than a segment stay in RAM. Needs flash-path.";
    }
    Memory {
        "memory-limit": Size(0, LONG_MAX_BYTES), "0", Live, .memory_limit_bytes: u64 => "Limit of RAM and flash together. 0 is no limit; with flash-path a limit is required. On a running server a higher limit makes flash larger at once. A lower limit makes flash smaller step by step, while its values move. If the data would not fit, the change is refused, unless maxmemory-policy evicts keys: then the values that have been on flash longest are evicted, as when flash is full.";
        "flash-limit": Size(0, LONG_MAX_BYTES), "0", Live,
            /// As it was given; 0: it follows from the others.
            .flash_limit_given_bytes: u64,
            /// As it is; 0: there is none.
            .flash_limit_bytes: u64 = |v, _| v.limits.files,
            /// The size of the log of values on flash; 0: no flash. See [`base::sizing::log_bytes`].
            .flash_bytes: u64 = |v, _| v.limits.log
            => "Limit of all files of a database: the log of values on flash, and with appendonly the journal and two checkpoints. 0 means: without appendonly, memory-limit minus ram-limit; with it, 1.5 times memory-limit, or 1gb if that is more; no limit without flash-path. With appendonly, twice ram-limit and a 50th of memory-limit (below 9.6gb 192mb instead, or an eighth if that is less; at least 512mb in all) are for the journal and the checkpoints, and the log takes the rest: at least memory-limit minus ram-limit, even if the files then take more than that usual limit, and at most 1.1 times memory-limit and ram-limit. A log that an earlier version has made larger keeps its size until a limit is given. When the journal has used half of the room that is left, a checkpoint is written; when it has used all of it, writes wait for the checkpoint. A checkpoint that would not fit is not written, and an alert is raised.";
        "ram-limit" | "maxmemory": SizeOrPercent, "0", Live,
            /// As it is; 0: there is none.
            .ram_limit_bytes: u64 = |v, _| v.limits.ram
            => "The part of memory-limit that may be RAM, in bytes or percent. It bounds the resident size of the process. 0 means 30% of memory-limit with flash, and all of memory-limit without flash. INFO memory shows the result as maxmemory, and so does CONFIG GET maxmemory unless ram-limit is 0. The rest of memory-limit is flash, also when ram-limit changes while the server runs; flash-limit says how large the files are. With flash, ram-limit must be at least 16mb + 2mb for each of io-threads, 8mb more with appendonly, and 12mb more with a console: the process itself needs this memory. A start, a definition and CONFIG SET appendonly yes are refused below it; CONFIG SET ram-limit is not.";
        "maxmemory-policy": Choice(Policy::WORDS), "noeviction", Live, .maxmemory_policy: Policy => "Which keys are evicted when both RAM and flash are full. `noeviction` evicts no key and refuses writes.";
        "maxmemory-samples" inert: Int(1, INT_MAX), "5", Live => NO_SAMPLES;
        "maxmemory-eviction-tenacity" inert: Int(0, 100), "10", Live => NO_SAMPLES;
        "maxmemory-clients": SizeOrPercent, "0", Live, .maxmemory_clients_bytes: u64 = bytes_or_share => "The most memory that all clients together may hold for replies, requests and queued commands, in bytes or in percent of ram-limit. A command that does not fit waits; a command that can never fit is refused. When clients have waited for five seconds and no client frees memory (thirty seconds if one does), the client that holds most memory is disconnected, unless it has CLIENT NO-EVICT. 0 means half of ram-limit after the memory that the process itself needs is subtracted, which is also the highest possible value.";
        "lfu-log-factor" inert: Int(0, INT_MAX), "10", Live => NO_SAMPLES;
        "lfu-decay-time" inert: Int(0, INT_MAX), "1", Live => NO_SAMPLES;
        "lazyfree-lazy-user-flush" inert: Bool, "no", Live => NO_LAZYFREE;
        "lazyfree-lazy-eviction" inert: Bool, "no", Live => NO_LAZYFREE;
        "lazyfree-lazy-expire" inert: Bool, "no", Live => NO_LAZYFREE;
        "lazyfree-lazy-server-del" inert: Bool, "no", Live => NO_LAZYFREE;
        "lazyfree-lazy-user-del" inert: Bool, "no", Live => NO_LAZYFREE;
        "jemalloc-bg-thread" inert: Bool, "yes", Live => "the allocator's background thread always runs";
        "activedefrag" inert: Bool, "no", Live => NO_DEFRAG;
        "active-defrag-cycle-min" inert: Int(1, 99), "1", Live => NO_DEFRAG;
        "active-defrag-cycle-max" inert: Int(1, 99), "25", Live => NO_DEFRAG;
        "active-defrag-threshold-lower" inert: Int(0, 1000), "10", Live => NO_DEFRAG;
        "active-defrag-threshold-upper" inert: Int(0, 1000), "100", Live => NO_DEFRAG;
        "active-defrag-max-scan-fields" inert: Int(1, LONG_MAX), "1000", Live => NO_DEFRAG;
        "active-defrag-ignore-bytes" inert: Size(1, LONG_MAX_BYTES), "100mb", Live => NO_DEFRAG;
        "activerehashing" inert: Bool, "yes", Live => NO_REHASH;
        "disable-thp" of_node: Bool, "yes", Start, .disable_thp: bool => "Disables transparent huge pages for this process, except for the memory that `huge-pages` controls. Huge pages can make the resident size larger than the memory in use.";
        "huge-pages" inherited: Bool, "yes", Start, .huge_pages: bool => "Puts values in RAM into huge pages, which makes look-ups cheaper. The kernel must allow it (`madvise` or `always` in `/sys/kernel/mm/transparent_hugepage/enabled`). No effect with a RAM limit below 1gb.";
    }
    Network {
        "bind": Words(16), "127.0.0.1 -::1", Live, .bind: Vec<BindAddress> => "Addresses to listen on. `*` is all IPv4 addresses and `::*` all IPv6 addresses. With a `-` in front, it is no error if this machine does not have the address.";
        "port": Int(0, 65535), "6379", Live, .port: u16 => "TCP port; 0 switches TCP off.";
        "unixsocket": Path, "", Start, .unixsocket: Option<PathBuf> => "Path of a unix socket to listen on, in addition to TCP.";
        "unixsocketperm": Octal, "0", Start, .unixsocketperm: u32 = octal => "Permissions of the unix socket in octal. 0 lets the umask decide.";
        "tcp-backlog": Int(0, INT_MAX), "511", Start, .tcp_backlog: i32 => "How many connections may wait to be accepted. The kernel's somaxconn is an upper bound.";
        "tcp-keepalive": Int(0, INT_MAX), "300", Live, .tcp_keepalive_s: u32 => "Seconds between keep-alive probes on an idle connection; 0 sends none.";
        "timeout": Int(0, INT_MAX), "0", Live, .timeout_s: u32 => "Seconds after which an idle client is disconnected; 0 never.";
        "maxclients": Int(1, UINT_MAX), "10000", Live, .maxclients: usize => "Maximum number of connections at a time. Further connections get an error.";
        "bind-source-addr" inert: Text, "", Live => "the system chooses the address from which connections to other servers leave";
        "socket-mark-id" inert: Int(0, UINT_MAX), "0", Start => "sockets are not marked";
    }
    Access {
        "protected-mode" inherited: Bool, "yes", Live, .protected_mode: bool => "If no password is set, serve only clients on this machine.";
        "requirepass": Password, "", Live, .requirepass: Option<Secret> => "The password that clients give with AUTH or HELLO. Empty: no password is needed.";
        "rename-command": Renames, "", FileOnly, .rename_commands: Vec<(String, String)> => "Renames a command. The new name \"\" removes the command. Repeatable.";
        "enable-debug-command": Choice(Guard::WORDS), "no", Start, .enable_debug_command: Guard => "Who may use DEBUG. `local` means clients on this machine.";
        "enable-protected-configs": Choice(Guard::WORDS), "no", Start, .enable_protected_configs: Guard => "Who may change protected directives with CONFIG SET. `local` means clients on this machine.";
        "enable-module-command" inert: Choice(Guard::WORDS), "no", Start, .enable_module_command: Guard => "modules are not supported";
        "loadmodule" inert: Lines, "", FileOnly => NO_MODULES;
        "aclfile": Path, "", Start, .aclfile: Option<PathBuf> => "The file of users that ACL LOAD reads and ACL SAVE writes. With an aclfile, `user` directives are not allowed.";
        "user": Lines, "", FileOnly, .users: Vec<String> => "A user and the user's rules, written as for ACL SETUSER. Repeatable.";
        "acllog-max-len": Int(0, LONG_MAX), "128", Live, .acllog_max_len: usize => "Maximum number of entries that ACL LOG keeps.";
        "acl-pubsub-default": Choice(&["allchannels", "resetchannels"]), "resetchannels", Live, .acl_pubsub_all: bool = |_, words| words == ["allchannels"] => "Which channels a new user may use: all or none.";
    }
    Clients {
        "client-output-buffer-limit": OutputLimits, "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60", Live, .output_limit_normal: OutputLimit = |_, words| output_limit(words, 0), .output_limit_replica: OutputLimit = |_, words| output_limit(words, 1), .output_limit_pubsub: OutputLimit = |_, words| output_limit(words, 2) => "Limits of a client's unsent reply bytes: class, hard limit, soft limit, seconds. A client above the hard limit is disconnected at once. A client that stays above the soft limit for the given seconds is disconnected too. Classes: normal, replica, pubsub.";
        "client-query-buffer-limit": Size(MB, LONG_MAX_BYTES), "1gb", Live, .client_query_buffer_limit_bytes: usize => "Maximum bytes of received commands that have not run yet, for each client.";
        "proto-max-bulk-len": Size(MB, LONG_MAX_BYTES), "512mb", Live, .proto_max_bulk_len_bytes: usize => "Maximum bytes of one argument.";
    }
    Keys {
        "io-threads" inherited: AutoOrInt(1, 128), "auto", Start, .io_threads: usize = io_threads => "Number of worker threads. Every worker runs commands. `auto` is one worker for each core.";
        "io-threads-do-reads" inert: Bool, "no", Start => "every worker reads requests, runs commands and sends replies";
        "databases": Int(1, 16384), "16", Start, .databases: usize => "Number of logical databases that SELECT can choose.";
        "hash-max-listpack-entries" | "hash-max-ziplist-entries": Int(0, LONG_MAX), "512", Live, .hash_max_listpack_entries: usize => "Maximum number of fields of a hash in compact form.";
        "hash-max-listpack-value" | "hash-max-ziplist-value": Size(0, LONG_MAX_BYTES), "64", Live, .hash_max_listpack_value: usize => "Maximum bytes of a field or a value of a hash in compact form.";
        "list-max-listpack-size" | "list-max-ziplist-size": Int(-INT_MAX - 1, INT_MAX), "-2", Live, .list_max_listpack_size: i64 => "Maximum size of a list in compact form, and of each piece of a longer list. -1 to -5 mean 4, 8 … 64 KB; a positive number is a number of elements.";
        "set-max-intset-entries": Int(0, LONG_MAX), "512", Live, .set_max_intset_entries: usize => "Maximum number of members of a set of integers in compact form.";
        "set-max-listpack-entries": Int(0, LONG_MAX), "128", Live, .set_max_listpack_entries: usize => "Maximum number of members of a set in compact form.";
        "set-max-listpack-value": Size(0, LONG_MAX_BYTES), "64", Live, .set_max_listpack_value: usize => "Maximum bytes of a member of a set in compact form.";
        "zset-max-listpack-entries" | "zset-max-ziplist-entries": Int(0, LONG_MAX), "128", Live, .zset_max_listpack_entries: usize => "Maximum number of members of a sorted set in compact form.";
        "zset-max-listpack-value" | "zset-max-ziplist-value": Size(0, LONG_MAX_BYTES), "64", Live, .zset_max_listpack_value: usize => "Maximum bytes of a member of a sorted set in compact form.";
        "hll-sparse-max-bytes": Size(0, LONG_MAX_BYTES), "3000", Live, .hll_sparse_max_bytes: usize => "Maximum bytes of a HyperLogLog in sparse form.";
        "stream-node-max-bytes": Size(0, LONG_MAX_BYTES), "4096", Live, .stream_node_max_bytes: usize => "Maximum bytes of a node of a stream. The entries of one node are stored together, and trimming with `~` removes them together. 0 is no limit.";
        "stream-node-max-entries": Int(0, LONG_MAX), "100", Live, .stream_node_max_entries: usize => "Maximum number of entries in a node of a stream. 0 is no limit.";
        "hz" inert: Int(0, INT_MAX), "10", Live, .hz: u32 = |v, words| u32::of(v, words).clamp(1, 500) => "background work paces itself";
        "dynamic-hz" inert: Bool, "yes", Live => NO_HZ;
        "active-expire-effort" inert: Int(1, 10), "1", Live => NO_HZ;
        "notify-keyspace-events": EventLetters, "", Live, .events: Events => "Which keyspace events are published, as letters. `K` publishes on the channel of the key, `E` on the channel of the event. `g` are general events, `$lshzt` the events of one type, `x` expired keys, `e` evicted keys, `n` new keys, `m` missed keys; `A` is all classes except `n` and `m`. Empty publishes nothing.";
        "busy-reply-threshold" | "lua-time-limit": Int(0, LONG_MAX), "5000", Live, .busy_reply_threshold_ms: u64 => "Milliseconds that a script may run before other clients get BUSY and may kill the script. 0 is no limit.";
        "script-memory-limit": SizeOrPercent, "0", Live, .script_memory_bytes: usize = |v, words| bytes_or_share(v, words) as usize => "The most memory that scripts and functions may have in each of io-threads for Lua's own values: variables, tables, compiled scripts. In bytes or in percent of ram-limit; at least 4mb. A script that needs more gets the error `not enough memory`; the changes that it has made remain. 0 means a quarter of ram-limit after the memory that the process itself needs is subtracted, divided by io-threads, at most 256mb. A table of a million numbers takes 16 MB, and 24 MB while it grows. ram-limit must have room for this in addition to the index and the clients' memory, because a script cannot wait until objects have left RAM.";
        "tracking-table-max-keys": Int(0, LONG_MAX), "1000000", Live, .tracking_table_max_keys: usize => "Maximum number of keys whose readers the server remembers for CLIENT TRACKING. Above it the server forgets some keys and sends invalidations to their readers. 0 is no limit.";
    }
    Observation {
        "loglevel" of_node: Choice(LogLevel::WORDS), "notice", Live, .loglevel: LogLevel => "The least important level of messages that the log contains.";
        "log-format": Choice(LogFormat::WORDS), "text", Start, .log_format: LogFormat => "`json` writes each line of the log as an object with OpenTelemetry's field names.";
        "logfile": Path, "", Start, .logfile: Option<PathBuf> => "The file of the log. Empty is standard output.";
        "slowlog-log-slower-than": Int(-1, LONG_MAX), "10000", Live, .slowlog_log_slower_than_us: i64 => "The slow log records commands that run at least this many microseconds. 0 records every command, -1 none.";
        "slowlog-max-len": Int(0, LONG_MAX), "128", Live, .slowlog_max_len: usize => "Maximum number of entries that the slow log keeps.";
        "latency-monitor-threshold": Int(0, LONG_MAX), "0", Live, .latency_monitor_threshold_ms: u64 => "LATENCY records events that take at least this many milliseconds. 0 is off.";
        "latency-tracking": Bool, "yes", Live, .latency_tracking: bool => "Keeps a latency histogram for each command.";
        "latency-tracking-info-percentiles": Percentiles, "50 99 99.9", Live, .latency_tracking_percentiles: Vec<f64> => "The percentiles that INFO latencystats shows.";
        "syslog-enabled" inert: Bool, "no", Start => NO_SYSLOG;
        "syslog-ident" inert: Text, "redis", Start => NO_SYSLOG;
        "syslog-facility" inert: Choice(&["user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"]), "local0", Start => NO_SYSLOG;
        "crash-log-enabled" inert: Bool, "yes", Live => "a crash leaves a backtrace on standard error";
        "crash-memcheck-enabled" inert: Bool, "yes", Live => NO_NEED;
    }
    Console {
        "state-dir" inherited: Path, "flintkv-state", Start, .state_dir: PathBuf => "The directory where the node keeps the definitions of its databases, the console's users and the history. The node creates it when it is needed.";
        "console-port": Int(0, 65535), "8379", Start, console.port: u16 => "Port of the web console, the HTTP API and /metrics; 0 switches them off. If the port is not set explicitly and is in use, the node starts without a console. If the program is called as redis-server, there is a console only if the port is set explicitly.";
        "console-bind": Words(16), "127.0.0.1 -::1", Start, console.bind: Vec<BindAddress> => "Addresses that the console listens on, as in `bind`. If other machines can reach the console, it should have a certificate.";
        "console-tls-cert-file": Path, "", Start, console.cert_file: Option<PathBuf> => "The certificate of the console (PEM). With a certificate and its key the console uses HTTPS.";
        "console-tls-key-file": Path, "", Start, console.key_file: Option<PathBuf> => "The private key of the console's certificate (PEM).";
        "console-password": Password, "", Start, console.password: Option<Secret> => "The password of the console's first user, `admin`. It is used only if there are no users yet. If it is empty, the node makes a random password and writes it once to the log.";
        "console-metrics-open": Bool, "no", Start, console.metrics_open: bool => "Whether other machines may read /metrics without a token.";
    }
    Process {
        "daemonize": Bool, "no", Start, .daemonize: bool => "Detaches from the terminal once the configuration has been read.";
        "pidfile": Path, "", Start, .pidfile: Option<PathBuf> => "The file for the process id. Empty: no file is written.";
        "dir" of_node inherited: Directory, ".", Protected, .dir: PathBuf, redis_files.dir: PathBuf => "Relative paths in other directives start from this directory.";
        "supervised": Choice(Supervised::WORDS), "no", Start, .supervised: Supervised => "The supervisor that the node notifies when it is ready and when it stops. `systemd` needs Type=notify; `WatchdogSec` works too. `auto` means systemd if systemd started the node. Under a supervisor `daemonize` has no effect.";
        "set-proc-title" inert: Bool, "yes", Start => NO_NEED;
        "proc-title-template" inert: Text, "{title} {listen-addr} {server-mode}", Live => NO_NEED;
        "always-show-logo" inert: Bool, "no", Start => NO_NEED;
        "ignore-warnings" inert: Text, "", Live => NO_NEED;
        "locale-collate" inert: Text, "", Live => "strings compare by bytes";
        "oom-score-adj" inert: Choice(&["no", "yes", "relative", "absolute"]), "no", Live => "use the service manager's OOMScoreAdjust";
        "oom-score-adj-values" inert: OomScores, "0 200 800", Live => "use the service manager's OOMScoreAdjust";
        "server_cpulist" inert: Text, "", Start => NO_CPULIST;
        "bio_cpulist" inert: Text, "", Start => NO_CPULIST;
        "aof_rewrite_cpulist" inert: Text, "", Start => NO_CPULIST;
        "bgsave_cpulist" inert: Text, "", Start => NO_CPULIST;
        "shutdown-timeout": Int(0, INT_MAX), "10", Live, primary.shutdown_timeout_s: u64 => "Seconds that a node waits at shutdown for replicas that lack writes. 0: it does not wait.";
        "shutdown-on-sigint" inert: SHUTDOWN, "default", Live => NO_SIGNALS;
        "shutdown-on-sigterm" inert: SHUTDOWN, "default", Live => NO_SIGNALS;
    }
    Persistence {
        "save": Save, "", Live, redis_files.save_points: Vec<(u64, u64)> => "When dumps are written: after so many seconds, if there were at least so many changes, as in `save 3600 1 300 100`. Each changing command counts as one change. Redis has three such points by default, FlintKV none: a dump has the whole dataset.";
        "dbfilename": FileName, "dump.rdb", Protected, redis_files.dbfilename: String => "The file that SAVE, BGSAVE and `save` points write and that is loaded at the start. It is in `dir`; a database other than the default has a directory there with its name.";
        "rdbcompression": Bool, "yes", Live, redis_files.rdbcompression: bool => "Whether SAVE compresses strings of more than 20 bytes.";
        "rdbchecksum": Bool, "yes", Start, redis_files.rdbchecksum: bool => "Whether SAVE writes a checksum, and whether the checksum of a loaded file is compared.";
        "rdb-version": Choice(&["10", "11", "12"]), "10", Live, redis_files.rdb_version: u32 => "The version of the format that SAVE writes: 10 is that of Redis 7.0, 11 of 7.2, 12 of 7.4. Only version 12 has fields of hashes that expire; with an older version SAVE refuses a dataset that has such fields.";
        "rdb-save-incremental-fsync" inert: Bool, "yes", Live => NO_FSYNC;
        "rdb-del-sync-files" inert: Bool, "no", Live => "the files of a synchronisation are always deleted";
        "stop-writes-on-bgsave-error": Bool, "yes", Live, redis_files.stop_writes_on_bgsave_error: bool => "Whether writes are refused from a failed dump until one succeeds, while there are `save` points.";
        "sanitize-dump-payload" inert: Choice(&["no", "yes", "clients"]), "no", Live => "every value of a dump is checked while it is decoded";
        "appendonly": Bool, "no", Live, redis_files.appendonly: bool => "Whether the dataset survives a restart: every change goes into a journal in `dir`. With flash-path the default is `yes`. At the first start the append-only file or the dump of Redis in `dir` is imported. `CONFIG SET` switches it while the node runs.";
        "appendfilename": FileName, "appendonly.aof", Start, redis_files.appendfilename: String => "The name of Redis's append-only file, which is imported at the first start with `appendonly yes`.";
        "appenddirname": FileName, "appendonlydir", Start, redis_files.appenddirname: String => "The directory in `dir` of Redis's append-only file, since Redis 7.0.";
        "appendfsync": Choice(AppendFsync::WORDS), "everysec", Live, redis_files.appendfsync: AppendFsync => "When changes are synced to the device, which is needed for them to survive a loss of power. `always`: before the reply. `everysec`: each second. `no`: when the node needs the room. A process that is killed loses nothing with any of them.";
        "backup-path" inherited: Path, "", Start, .backup_path: PathBuf = backup_path => "The directory of all backups. Backups are written and read below it only. Empty: `backups` in `state-dir`.";
        "backup-schedule": Text, "", Live, .backup_schedule: Option<Schedule> = |v, _| v.backup_schedule => "How often the node makes a backup of the database: a time span such as `6h`, `1d` or `30m`, at least a minute. `1d at 03:00` names the time of the day too, in UTC; then the time span is whole days, or it divides a day. Empty: never. The first backup begins at once if there is none of this schedule.";
        "backup-keep": Int(1, 10_000), "7", Live, .backup_keep: usize => "How many scheduled backups of the database are kept. Older ones are deleted after a new one was read back. Backups that somebody asked for are never deleted.";
        "backup-journal-keep": Text, "", Live, .backup_journal_keep_ms: u64 = |v, _| v.backup_journal_keep_ms => "For how long back a new database can be created with the dataset of any time: a time span such as `7d` or `12h`. The changes in the journal are copied to the backups' directory once a minute, beginning with the newest backup before that time, so that a backup and the changes after it give the dataset of any time between two backups. It needs `appendonly yes`. Empty: nothing is copied.";
        "no-appendfsync-on-rewrite" inert: Bool, "no", Live => "the journal is synced as `appendfsync` says, also while a checkpoint is written";
        "auto-aof-rewrite-percentage": Int(0, INT_MAX), "100", Live, redis_files.aof_rewrite_percentage: u64 => "By how much journal and checkpoint grow, in percent of the checkpoint, before a new checkpoint is written. 0: growth alone starts none.";
        "auto-aof-rewrite-min-size": Size(0, LONG_MAX_BYTES), "64mb", Live, redis_files.aof_rewrite_min_bytes: u64 => "Up to this size of journal and checkpoint, growth does not start a new checkpoint.";
        "recovery-time-target": Int(0, INT_MAX), "10", Live, redis_files.recovery_target_s: u64 => "How many seconds a restart should take at most. If it would take longer, a new checkpoint is written, so that less of the journal is replayed: not sooner than ten seconds after the last one, unless a restart would take one and a half times as long. 0: no target.";
        "aof-load-truncated": Bool, "yes", Live, redis_files.aof_load_truncated: bool => "Whether an append-only file whose last command is cut off is loaded without that command.";
        "aof-use-rdb-preamble" inert: Bool, "yes", Live => NO_AOF;
        "aof-timestamp-enabled" inert: Bool, "no", Live => "the journal always has the times of its changes: `backup-journal-keep`";
        "aof-disable-auto-gc" inert: Bool, "no", Live => NO_AOF;
        "aof-rewrite-incremental-fsync" inert: Bool, "yes", Live => NO_FSYNC;
    }
    Replication {
        "replicaof" | "slaveof": Primary, "", Start, replica.primary: Option<(String, u16)> => "`HOST PORT` of the primary whose dataset the database copies and then follows. REPLICAOF changes it while the node runs, and CONFIG REWRITE keeps it. Empty, or `no one`: the database is a primary.";
        "masteruser": Password, "", Live, replica.user: Option<Secret> => "The user with which a replica logs in at its primary. Empty: the default user.";
        "masterauth": Password, "", Live, replica.password: Option<Secret> => "The password with which a replica logs in at its primary. Empty: it does not log in.";
        "replica-serve-stale-data" | "slave-serve-stale-data": Bool, "yes", Live, replica.serves_stale: bool => "Whether a replica without a connection to its primary answers from the dataset that it has. With `no` clients get -MASTERDOWN, except for commands like INFO and REPLICAOF.";
        "replica-read-only" | "slave-read-only": Bool, "yes", Live => "A replica refuses writes of clients with -READONLY. Only `yes` is possible: a write of its own would make the datasets differ.";
        "replica-lazy-flush" | "slave-lazy-flush" inert: Bool, "no", Live => "the old dataset is always freed in the background";
        "replica-ignore-maxmemory" | "slave-ignore-maxmemory" inert: Bool, "yes", Live => "a replica never evicts: its primary does";
        "replica-ignore-disk-write-errors" inert: Bool, "no", Live => "a replica whose journal cannot be written stops following";
        "replica-priority" | "slave-priority": Int(0, INT_MAX), "100", Live, replica.priority: u32 => "The priority that INFO shows to Sentinel, which promotes the replica with the lowest value; 0: never promote this one.";
        "replica-announced": Bool, "yes", Live, replica.is_announced: bool => "Whether INFO tells Sentinel to show this replica to clients.";
        "replica-announce-ip" | "slave-announce-ip": Text, "", Live, replica.announced_ip: Option<String> => "The address that a replica announces to its primary, for INFO and ROLE. Empty: the address from which it connects.";
        "replica-announce-port" | "slave-announce-port": Int(0, 65535), "0", Live, replica.announced_port: u16 => "The port that a replica announces to its primary. 0: the port on which it listens.";
        "repl-diskless-sync" inert: Bool, "yes", Live => "a dataset goes through a file on both sides";
        "repl-diskless-sync-delay" inert: Int(0, INT_MAX), "5", Live => "replicas that connect while a dump is made share the next dump";
        "repl-diskless-sync-max-replicas" inert: Int(0, INT_MAX), "0", Live => "replicas that connect while a dump is made share the next dump";
        "repl-diskless-load" inert: Choice(&["disabled", "on-empty-db", "swapdb"]), "disabled", Live => "a dataset goes through a file on both sides";
        "repl-ping-replica-period" | "repl-ping-slave-period": Int(1, INT_MAX), "10", Live, primary.ping_period_s: u64 => "How often a primary sends its replicas a PING, in seconds.";
        "repl-timeout": Int(1, INT_MAX), "60", Live, replica.timeout_s: u32 => "Seconds without a byte from the other side after which a primary or a replica ends the connection between them.";
        "repl-disable-tcp-nodelay" inert: Bool, "no", Live => "TCP_NODELAY is always on";
        "repl-backlog-size": Size(1, LONG_MAX_BYTES), "1gb", Live, redis_files.backlog_bytes: u64 => "The size of the newest part of the stream for replicas that is kept, in a file in the database's directory, for replicas that are slow, were disconnected or are being synchronised. A change takes effect at the next start of the stream: when the first replica connects, or after a full synchronisation of this database.";
        "repl-backlog-ttl" inert: Int(0, LONG_MAX), "3600", Live => "the backlog stays as long as the database is open";
        "repl-check-interval" inherited: Int(0, 31_536_000), "86400", Live, primary.check_interval_ms: u64 = ms_of_seconds => "Seconds between two comparisons of a FlintKV replica's dataset with this primary's. Both compute digests of their datasets as they are at one byte of the stream, while commands go on, each with at most a quarter of one core; everything on flash is read. A replica that differs reports it and requests a full synchronisation. A comparison that could not be made is repeated after a twenty-fourth of the interval. 0: nothing is compared.";
        "repl-transfer-rate": Size(0, LONG_MAX_BYTES), "0", Live, primary.transfer_bytes_per_s: u64 => "The most bytes a second that a primary sends for full synchronisations, of all replicas together. The stream of changes is not slowed down. 0: no limit.";
        "min-replicas-to-write" | "min-slaves-to-write": Int(0, INT_MAX), "0", Live, primary.replicas_min: usize => "A primary refuses writes with -NOREPLICAS while fewer replicas than this are connected and have acknowledged the stream within min-replicas-max-lag. 0: never.";
        "min-replicas-max-lag" | "min-slaves-max-lag": Int(0, INT_MAX), "10", Live, primary.lag_s_max: u64 => "The seconds within which replicas must acknowledge for min-replicas-to-write. 0: writes are never refused for this reason.";
        "propagation-error-behavior" inert: Choice(&["ignore", "panic", "panic-on-replicas"]), "ignore", Live => "a command of the stream that fails is logged and counted: replica_failed_commands of INFO";
    }
    Cluster {
        "peer-port" of_node: Int(1, 65535), "8380", Start, .peer_port: u16 => "Port for the other nodes of the cluster. Connections are mutual TLS with the cluster's own certificates. The node listens there once it is a member of a cluster: see `flintkv cluster`.";
        "peer-announce-port" of_node: Int(0, 65535), "0", Start, .peer_announce_port: u16 => "The port where other nodes reach `peer-port`, if something between them forwards another one, as a container's published port. 0: `peer-port` itself.";
        "peer-tls" of_node: Bool, "yes", Start, .peer_tls: bool => "Whether links between nodes, which carry clients' commands, stay enciphered after their handshake. `no` saves the cipher, for a network where nobody else can read or change what nodes send. It must be the same on all nodes: nodes that differ do not reach each other's shards. Nodes show each other certificates in either case, and joining, calls between nodes and etcd are TLS always.";
        "proxy-ram" of_node: Size(0, LONG_MAX_BYTES), "0", Start, .proxy_ram_bytes: u64 => "RAM on this node for the proxy of each database of the cluster: its clients' connections and what is on the way between them and the shards. 0: a twentieth of the RAM that the database may take on one node, at least 64mb.";
        "etcd-client-port" of_node: Int(1, 65535), "8381", Start, .etcd_client_port: u16 => "Port of this node's member of etcd for the nodes of the cluster. It is used when the node inits or joins a cluster.";
        "etcd-peer-port" of_node: Int(1, 65535), "8382", Start, .etcd_peer_port: u16 => "Port of this node's member of etcd for the other members. It is used when the node inits or joins a cluster.";
        "etcd-path" of_node: Path, "", Start, .etcd_path: PathBuf = etcd_path => "The directory where `flintkv coordinator` keeps etcd's data. Empty: `etcd` in `state-dir`. Each transaction waits for this directory's device.";
        "etcd-binary" of_node: Text, "etcd", Start, .etcd_binary: String => "The program that `flintkv coordinator` starts: etcd 3.4 or later. A name without a slash is looked up in PATH.";
        "etcd-quota" of_node: Size(16 * MB, LONG_MAX_BYTES), "2gb", Start, .etcd_quota_bytes: u64 => "The most that etcd's database may take. Above it etcd refuses changes until it was compacted and defragmented (`flintkv coordinator compact`).";
        "cluster-enabled" inert: Bool, "no", Start => NO_CLUSTER;
        "cluster-config-file" inert: Text, "nodes.conf", Start => NO_CLUSTER;
        "cluster-node-timeout" inert: Int(0, LONG_MAX), "15000", Live => NO_CLUSTER;
        "cluster-port" inert: Int(0, 65535), "0", Start => NO_CLUSTER;
        "cluster-migration-barrier" inert: Int(0, INT_MAX), "1", Live => NO_CLUSTER;
        "cluster-allow-replica-migration" inert: Bool, "yes", Live => NO_CLUSTER;
        "cluster-replica-validity-factor" | "cluster-slave-validity-factor" inert: Int(0, INT_MAX), "10", Live => NO_CLUSTER;
        "cluster-replica-no-failover" | "cluster-slave-no-failover" inert: Bool, "no", Live => NO_CLUSTER;
        "cluster-require-full-coverage" inert: Bool, "yes", Live => NO_CLUSTER;
        "cluster-allow-reads-when-down" inert: Bool, "no", Live => NO_CLUSTER;
        "cluster-allow-pubsubshard-when-down" inert: Bool, "yes", Live => NO_CLUSTER;
        "cluster-link-sendbuf-limit" inert: Size(0, u64::MAX), "0", Live => NO_CLUSTER;
        "cluster-announce-ip" inert: Text, "", Live => NO_CLUSTER;
        "cluster-announce-port" inert: Int(0, 65535), "0", Live => NO_CLUSTER;
        "cluster-announce-tls-port" inert: Int(0, 65535), "0", Live => NO_CLUSTER;
        "cluster-announce-bus-port" inert: Int(0, 65535), "0", Live => NO_CLUSTER;
        "cluster-announce-hostname" inert: Text, "", Live => NO_CLUSTER;
        "cluster-announce-human-nodename" inert: Text, "", Live => NO_CLUSTER;
        "cluster-preferred-endpoint-type" inert: Choice(&["ip", "hostname", "unknown-endpoint"]), "ip", Live => NO_CLUSTER;
    }
    Tls {
        "tls-port": Int(0, 65535), "0", Live, tls.port: u16 => "Port for TLS connections; 0 switches TLS off. Set `port 0` to refuse connections without TLS.";
        "tls-cert-file" inherited: Text, "", Live, tls.cert_file: Option<PathBuf> => "The certificate, followed by its intermediate certificates (PEM). CONFIG SET reads the file again, for new connections.";
        "tls-key-file" inherited: Text, "", Live, tls.key_file: Option<PathBuf> => "The private key of the certificate (PEM).";
        "tls-key-file-pass" inherited: Password, "", Live, tls.key_password: Option<Secret> => "The password of the private key if the key is encrypted (PKCS #8).";
        "tls-client-cert-file": Text, "", Live, tls.client_cert_file: Option<PathBuf> => "The certificate that a replica shows its primary. Empty: that of tls-cert-file.";
        "tls-client-key-file": Text, "", Live, tls.client_key_file: Option<PathBuf> => "The key of tls-client-cert-file.";
        "tls-client-key-file-pass": Password, "", Live, tls.client_key_password: Option<Secret> => "The password of tls-client-key-file.";
        "tls-dh-params-file" inert: Text, "", Live => NO_DH;
        "tls-ca-cert-file" inherited: Text, "", Live, tls.ca_file: Option<PathBuf> => "Certificates of the authorities that sign clients' certificates (PEM).";
        "tls-ca-cert-dir" inherited: Text, "", Live, tls.ca_dir: Option<PathBuf> => "A directory of certificates of such authorities (PEM).";
        "tls-auth-clients" inherited: Choice(TlsAuth::WORDS), "yes", Live, tls.auth: TlsAuth => "Whether clients must present a certificate. `optional`: a client may present none, but a presented certificate must be valid.";
        "tls-replication": Bool, "no", Live, replica.with_tls: bool => "A replica connects to its primary with TLS, with the files and protocols of the directives `tls-…`. The primary's certificate must be signed by an authority in tls-ca-cert-file or tls-ca-cert-dir; its name is not compared, as in Redis.";
        "tls-cluster" inert: Bool, "no", Live => "connections between nodes are always mutual TLS, with certificates of the cluster";
        "tls-protocols" inherited: Text, "", Live, tls.protocols: String => "`TLSv1.2`, `TLSv1.3` or both. Empty is both.";
        "tls-ciphers": Text, "", Live, tls.ciphers: String => "Ciphers of TLS 1.2 by OpenSSL's names, joined by colons. Empty is all safe ciphers.";
        "tls-ciphersuites": Text, "", Live, tls.ciphersuites: String => "Cipher suites of TLS 1.3, joined by colons.";
        "tls-prefer-server-ciphers": Bool, "no", Live, tls.prefer_own_ciphers: bool => "Choose the cipher by the server's order of preference, not by the client's.";
        "tls-session-caching": Bool, "yes", Live => "Keep TLS sessions, so that a returning client can resume its session without a full handshake.";
        "tls-session-cache-size": Int(0, INT_MAX), "20480", Live, tls.session_cache: usize = tls_sessions => "Maximum number of TLS sessions that are kept.";
        "tls-session-cache-timeout" inert: Int(0, INT_MAX), "300", Live => NO_SESSION_TIMEOUT;
    }
    Types {
        "list-compress-depth" inert: Int(0, INT_MAX), "0", Live => "lists are compressed on flash, not in RAM";
    }
    Other {
        "list-max-ziplist-entries" inert: Lines, "", FileOnly => "Redis removed it long ago";
        "list-max-ziplist-value" inert: Lines, "", FileOnly => "Redis removed it long ago";
        "lua-replicate-commands" inert: Lines, "", FileOnly => "Redis removed it long ago";
    }
    Hidden {
        "rdb-key-save-delay" inert: Int(-INT_MAX - 1, INT_MAX), "0", Live => HIDDEN;
        "key-load-delay" inert: Int(-INT_MAX - 1, INT_MAX), "0", Live => HIDDEN;
        "watchdog-period" inert: Int(0, INT_MAX), "0", Live => HIDDEN;
        "loading-process-events-interval-bytes" inert: Int(1024, INT_MAX), "2097152", Live => HIDDEN;
        "use-exit-on-panic" inert: Bool, "no", Live => HIDDEN;
        "lua-enable-deprecated-api" inert: Bool, "no", Start => HIDDEN;
    }
}

/// The index of the row with this name or alias. Letters may be of any case.
pub fn find(name: &str) -> Option<usize> {
    if name.is_empty() {
        return None;
    }
    ROWS.iter().position(|row| row.name.eq_ignore_ascii_case(name) || row.alias.eq_ignore_ascii_case(name))
}

/// Whether a directive belongs to the node. Such a directive is set on the default database.
/// The name of the directive that this name or alias means.
pub fn find_name(name: &[u8]) -> Option<&'static str> {
    std::str::from_utf8(name).ok().and_then(find).map(|index| ROWS[index].name)
}

pub fn is_of_node(name: &[u8]) -> bool {
    ROWS.iter().any(|row| row.is_of_node && row.name.as_bytes().eq_ignore_ascii_case(name))
}

/// Whether the log, SLOWLOG and MONITOR must hide the value of this directive.
pub fn is_secret(name: &str) -> bool {
    find(name).is_some_and(|index| matches!(ROWS[index].kind, Kind::Password | Kind::Lines))
}

#[cfg(test)]
mod tests {
    use super::super::row::Effect;
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
            assert_eq!(row.effect == Effect::Used, !row.about.is_empty(), "{}", row.name);
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
