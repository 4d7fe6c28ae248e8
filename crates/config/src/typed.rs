//! Owns the typed configuration that the server reads, and the checks between directives.
//! Never knows the source of a value: file, command line or CONFIG SET.

use std::fmt;
use std::path::{Path, PathBuf};

use super::table::{self, Kind};
use super::text;
use super::value::{self, Value};
use base::events::Events;
use base::sizing::{KEPT_BYTES_MIN, files_bytes, log_bytes};
use base::time::Schedule;
pub use base::{Codec, FlashIo, Policy};
use base::{ram, size, words};

/// A password. It can be compared and is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<[u8]>);

impl Secret {
    /// Of a word of the configuration.
    pub fn new(word: impl AsRef<str>) -> Self {
        Secret(text::bytes(word.as_ref()).into())
    }
    /// The secret itself, for the one comparison that needs it. It may be other than text.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// Whether clients must present a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsAuth {
    No,
    Yes,
    /// A client may present none, but a presented certificate must be valid.
    Optional,
}

/// The files of a dataset: those of Redis that are loaded and written, and the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisFiles {
    pub dir: PathBuf,
    pub dbfilename: String,
    pub appendonly: bool,
    pub appendfilename: String,
    pub appenddirname: String,
    pub aof_load_truncated: bool,
    pub rdbcompression: bool,
    pub rdbchecksum: bool,
    pub rdb_version: u32,
    /// A dump is written when so many seconds have passed with so many changes since the last one.
    pub save_points: Vec<(u64, u64)>,
    pub stop_writes_on_bgsave_error: bool,
    pub appendfsync: AppendFsync,
    /// 0: a new checkpoint is written only on demand.
    pub aof_rewrite_percentage: u64,
    pub aof_rewrite_min_bytes: u64,
    /// Of the stream for replicas.
    pub backlog_bytes: u64,
    /// 0: none.
    pub recovery_target_s: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// 0: no TLS.
    pub port: u16,
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
    pub key_password: Option<Secret>,
    /// What is shown to a primary. `None`: the same as to clients.
    pub client_cert_file: Option<PathBuf>,
    pub client_key_file: Option<PathBuf>,
    pub client_key_password: Option<Secret>,
    pub ca_file: Option<PathBuf>,
    pub ca_dir: Option<PathBuf>,
    pub auth: TlsAuth,
    pub protocols: String,
    pub ciphers: String,
    pub ciphersuites: String,
    pub prefer_own_ciphers: bool,
    /// Maximum number of TLS sessions kept for resumption.
    pub session_cache: usize,
}

/// What a primary wants of its replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrimarySettings {
    pub ping_period_s: u64,
    /// Writes need so many replicas that have said something within so many seconds. 0: they need none.
    pub replicas_min: usize,
    pub lag_s_max: u64,
    /// How long the end of the node waits for replicas that lack writes.
    pub shutdown_timeout_s: u64,
    /// How often replicas compare their datasets with this one. 0: never.
    pub check_interval_ms: u64,
    /// Of the dumps for all replicas. 0: no bound.
    pub transfer_bytes_per_s: u64,
}

/// How the database follows a primary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaSettings {
    /// Host and port. `None`: the database is a primary.
    pub primary: Option<(String, u16)>,
    /// `None`: the default user.
    pub user: Option<Secret>,
    /// `None`: no login.
    pub password: Option<Secret>,
    pub with_tls: bool,
    pub serves_stale: bool,
    pub priority: u32,
    pub is_announced: bool,
    /// `None`: the address of the connection.
    pub announced_ip: Option<String>,
    /// 0: the port where the database listens.
    pub announced_port: u16,
    pub timeout_s: u32,
}

/// Where the console listens, and its other start settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsoleSettings {
    /// 0: no console.
    pub port: u16,
    pub bind: Vec<BindAddress>,
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
    /// The password of the first user.
    pub password: Option<Secret>,
    pub metrics_open: bool,
}

/// One word of `bind`. With `-` in front it is no error if this machine lacks the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindAddress {
    pub address: String,
    pub optional: bool,
}

/// Limits of a client's unsent replies. A client above a limit is disconnected. 0 switches a limit off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputLimit {
    pub hard_bytes: u64,
    pub soft_bytes: u64,
    pub soft_s: u64,
}

words!(
    /// When the journal is put on the device.
    AppendFsync { Always = "always", EverySec = "everysec", No = "no" }
);
words!(
    /// Who may use a guarded command or directive. `Local` means clients over loopback or the unix socket.
    Guard { No = "no", Yes = "yes", Local = "local" }
);
words!(
    /// For testing: `Cold` moves every value to flash after each command. `Off` is normal operation.
    TierMode { Off = "off", Cold = "cold" }
);
words!(LogFormat { Text = "text", Json = "json" });
words!(
    /// The supervisor that the node notifies when it is ready.
    Supervised { Upstart = "upstart", Systemd = "systemd", Auto = "auto", No = "no" }
);
words!(LogLevel {
    Debug = "debug",
    Verbose = "verbose",
    Notice = "notice",
    Warning = "warning",
    Nothing = "nothing",
});

impl Guard {
    /// Whether a client is allowed. `local` says that the client is connected over loopback or the unix socket.
    pub fn allows(self, local: bool) -> bool {
        match self {
            Guard::No => false,
            Guard::Yes => true,
            Guard::Local => local,
        }
    }
}

/// The configuration that the server reads. Paths are absolute, sizes are bytes, percentages are resolved to bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    // Network
    pub bind: Vec<BindAddress>,
    /// 0: no TCP.
    pub port: u16,
    pub unixsocket: Option<PathBuf>,
    /// 0: the umask decides.
    pub unixsocketperm: u32,
    pub tcp_backlog: i32,
    /// 0: off.
    pub tcp_keepalive_s: u32,
    /// 0: idle clients are not disconnected.
    pub timeout_s: u32,
    pub maxclients: usize,

    pub tls: TlsSettings,
    pub console: ConsoleSettings,

    // Access
    pub protected_mode: bool,
    pub requirepass: Option<Secret>,
    pub aclfile: Option<PathBuf>,
    pub redis_files: RedisFiles,
    pub primary: PrimarySettings,
    pub replica: ReplicaSettings,
    pub backup_path: PathBuf,
    /// `None`: the node makes no backups by itself.
    pub backup_schedule: Option<Schedule>,
    pub backup_keep: usize,
    /// 0: the journal is not archived.
    pub backup_journal_keep_ms: u64,
    /// The arguments of each `user` directive, as one text.
    pub users: Vec<String>,
    pub acllog_max_len: usize,
    /// New users may use all channels.
    pub acl_pubsub_all: bool,
    /// (command, new name); an empty new name removes the command.
    pub rename_commands: Vec<(String, String)>,
    pub enable_debug_command: Guard,
    pub enable_module_command: Guard,
    pub enable_protected_configs: Guard,

    // Limits of one client
    pub output_limit_normal: OutputLimit,
    pub output_limit_replica: OutputLimit,
    pub output_limit_pubsub: OutputLimit,
    pub client_query_buffer_limit_bytes: usize,
    pub proto_max_bulk_len_bytes: usize,

    // Memory and flash
    /// RAM + flash; 0: none.
    pub memory_limit_bytes: u64,
    /// 0: none.
    pub ram_limit_bytes: u64,
    /// The size of the flash log; 0: no flash. See [`log_bytes`].
    pub flash_bytes: u64,
    /// What live values may take of the log.
    pub flash_data_bytes: u64,
    /// All files of the dataset: the flash log, and with persistence the journal and the checkpoints; 0: none.
    pub flash_limit_bytes: u64,
    /// The limit as it was given; 0: it follows from the others.
    pub flash_limit_given_bytes: u64,
    pub maxmemory_policy: Policy,
    /// What clients may hold in total; 0: no limit besides the one that follows from the RAM limit.
    pub maxmemory_clients_bytes: u64,
    pub flash_paths: Vec<PathBuf>,
    pub flash_io: FlashIo,
    pub flash_compression: Codec,
    /// The configured size, a power of two. The store uses smaller segments on small flash.
    pub flash_segment_bytes: u64,
    /// Collections larger than this move to flash in parts.
    pub flash_split_bytes: u64,
    pub expired_key_lag_ms: u64,
    /// 0: the scrubber is off.
    pub scrub_interval_ms: u64,
    pub debug_tier_mode: TierMode,

    // Workers and keys
    /// Number of workers.
    pub io_threads: usize,
    pub databases: usize,
    pub hz: u32,
    pub events: Events,
    /// 0: no limit.
    pub tracking_table_max_keys: usize,
    /// 0: no limit.
    pub busy_reply_threshold_ms: u64,
    /// Of the interpreter of one worker. 0: what the RAM limit allows.
    pub script_memory_bytes: usize,
    pub hash_max_listpack_entries: usize,
    pub hash_max_listpack_value: usize,
    pub list_max_listpack_size: i64,
    pub set_max_intset_entries: usize,
    pub set_max_listpack_entries: usize,
    pub set_max_listpack_value: usize,
    pub zset_max_listpack_entries: usize,
    pub zset_max_listpack_value: usize,
    pub hll_sparse_max_bytes: usize,
    pub stream_node_max_bytes: usize,
    pub stream_node_max_entries: usize,

    // Observation
    pub loglevel: LogLevel,
    pub log_format: LogFormat,
    /// None: standard output.
    pub logfile: Option<PathBuf>,
    /// −1: off, 0: every command.
    pub slowlog_log_slower_than_us: i64,
    pub slowlog_max_len: usize,
    /// 0: off.
    pub latency_monitor_threshold_ms: u64,
    pub latency_tracking: bool,
    pub latency_tracking_percentiles: Vec<f64>,

    // Process
    pub daemonize: bool,
    pub supervised: Supervised,
    pub pidfile: Option<PathBuf>,
    pub dir: PathBuf,
    pub state_dir: PathBuf,
    pub disable_thp: bool,
    pub huge_pages: bool,
}

/// The smallest segment. A log needs at least 16 segments to collect its own garbage.
pub const SEGMENT_BYTES_MIN: u64 = 256 * 1024;
pub const FLASH_BYTES_MIN: u64 = 16 * SEGMENT_BYTES_MIN;
/// With flash, the default of `ram-limit` is this share of `memory-limit`.
pub const RAM_SHARE_PERCENT: u64 = 30;

/// Values by the name of their row. An unknown name is a bug and panics; the tests read every name.
pub(super) struct Values<'a>(pub &'a [Value]);

/// A point of `save`: seconds and changes.
fn save_point(pair: &[String]) -> (u64, u64) {
    let number = |word: &String| word.parse().expect("the table checked the number");
    (number(&pair[0]), number(&pair[1]))
}

impl Values<'_> {
    fn words(&self, name: &str) -> &[String] {
        let index = table::find(name).unwrap_or_else(|| panic!("'{name}' is not in the table"));
        &self.0[index]
    }
    fn choice<T>(&self, name: &str, from_word: fn(&str) -> Option<T>) -> T {
        from_word(self.word(name)).unwrap_or_else(|| panic!("the table let '{}' through as {name}", self.word(name)))
    }
    fn word(&self, name: &str) -> &str {
        self.words(name).first().map_or("", String::as_str)
    }
    fn yes(&self, name: &str) -> bool {
        self.word(name) == "yes"
    }
    fn int<T: TryFrom<i64>>(&self, name: &str) -> T {
        let number: i64 = self.word(name).parse().expect("the table checked the integer");
        T::try_from(number).ok().expect("the table's range fits the field")
    }
    fn bytes(&self, name: &str) -> u64 {
        self.word(name).parse().expect("the table checked the size")
    }
    /// A size, or a percentage of `whole`.
    fn bytes_or_share(&self, name: &str, whole: u64) -> u64 {
        match self.word(name).strip_suffix('%') {
            Some(percent) => share(whole, percent.parse().expect("the table checked the percentage")),
            None => self.bytes(name),
        }
    }
    fn path(&self, name: &str, dir: &Path) -> Option<PathBuf> {
        Some(self.word(name)).filter(|text| !text.is_empty()).map(|text| dir.join(text))
    }
}

/// A backup reads and writes the whole dataset.
const BACKUP_INTERVAL_MS_MIN: u64 = 60_000;
/// Maximum number of TLS sessions if the configuration sets no limit.
const TLS_SESSIONS_MAX: usize = 1 << 20;

/// Builds the typed configuration. The error says which directives contradict each other and what to do.
pub(super) fn build(values: &[Value]) -> Result<Config, String> {
    let v = Values(values);
    if !v.yes("replica-read-only") {
        return Err("replica-read-only must be yes: a replica that is written to is a copy no longer".to_owned());
    }
    let text = |name: &str| Some(v.word(name)).filter(|text| !text.is_empty());
    let dir = PathBuf::from(v.word("dir"));
    let flash_paths: Vec<PathBuf> = v.words("flash-path").iter().map(|path| dir.join(path)).collect();
    let limits = limits(&v, !flash_paths.is_empty())?;
    let debug_tier_mode = v.choice("debug-tier-mode", TierMode::from_word);
    if debug_tier_mode == TierMode::Cold && flash_paths.is_empty() {
        return Err("debug-tier-mode cold sends every value to flash: it needs flash-path".to_owned());
    }
    let output_limit = |class: usize| value::output_limit(v.words("client-output-buffer-limit"), class);
    let io_threads = match v.word("io-threads") {
        "auto" => std::thread::available_parallelism().map_or(1, |cores| cores.get()).min(128),
        _ => v.int("io-threads"),
    };
    if v.word("console-tls-cert-file").is_empty() != v.word("console-tls-key-file").is_empty() {
        return Err("console-tls-cert-file and console-tls-key-file go together: set both or neither".to_owned());
    }
    let backup_schedule = match v.word("backup-schedule") {
        "" => None,
        text => {
            let schedule = Schedule::parse(text).map_err(|why| format!("backup-schedule: {why}"))?;
            if schedule.every_ms < BACKUP_INTERVAL_MS_MIN {
                return Err(format!("backup-schedule '{text}' is less than a minute"));
            }
            Some(schedule)
        }
    };
    let backup_journal_keep_ms = match v.word("backup-journal-keep") {
        "" => 0,
        text => base::time::parse_ms(text).map_err(|why| format!("backup-journal-keep: {why}"))?,
    };
    let state_dir = dir.join(v.word("state-dir"));
    Ok(Config {
        bind: addresses(v.words("bind")),
        port: v.int("port"),
        unixsocket: v.path("unixsocket", &dir),
        unixsocketperm: u32::from_str_radix(v.word("unixsocketperm"), 8).expect("the table checked the mode"),
        tcp_backlog: v.int("tcp-backlog"),
        tcp_keepalive_s: v.int("tcp-keepalive"),
        timeout_s: v.int("timeout"),
        maxclients: v.int("maxclients"),
        tls: TlsSettings {
            port: v.int("tls-port"),
            cert_file: v.path("tls-cert-file", &dir),
            key_file: v.path("tls-key-file", &dir),
            key_password: text("tls-key-file-pass").map(Secret::new),
            client_cert_file: v.path("tls-client-cert-file", &dir),
            client_key_file: v.path("tls-client-key-file", &dir),
            client_key_password: text("tls-client-key-file-pass").map(Secret::new),
            ca_file: v.path("tls-ca-cert-file", &dir),
            ca_dir: v.path("tls-ca-cert-dir", &dir),
            auth: match v.word("tls-auth-clients") {
                "no" => TlsAuth::No,
                "optional" => TlsAuth::Optional,
                _ => TlsAuth::Yes,
            },
            protocols: v.words("tls-protocols").join(" "),
            ciphers: v.word("tls-ciphers").to_owned(),
            ciphersuites: v.word("tls-ciphersuites").to_owned(),
            prefer_own_ciphers: v.yes("tls-prefer-server-ciphers"),
            session_cache: match v.yes("tls-session-caching") {
                // 0 means no limit for OpenSSL. FlintKV always has a limit.
                true => Some(v.int("tls-session-cache-size")).filter(|&size| size > 0).unwrap_or(TLS_SESSIONS_MAX),
                false => 0,
            },
        },
        console: ConsoleSettings {
            port: v.int("console-port"),
            bind: addresses(v.words("console-bind")),
            cert_file: v.path("console-tls-cert-file", &dir),
            key_file: v.path("console-tls-key-file", &dir),
            password: Some(v.word("console-password")).filter(|pass| !pass.is_empty()).map(Secret::new),
            metrics_open: v.yes("console-metrics-open"),
        },
        protected_mode: v.yes("protected-mode"),
        requirepass: Some(v.word("requirepass")).filter(|pass| !pass.is_empty()).map(Secret::new),
        aclfile: v.path("aclfile", &dir),
        redis_files: RedisFiles {
            dbfilename: v.word("dbfilename").to_owned(),
            appendonly: v.yes("appendonly"),
            appendfilename: v.word("appendfilename").to_owned(),
            appenddirname: v.word("appenddirname").to_owned(),
            aof_load_truncated: v.yes("aof-load-truncated"),
            rdbcompression: v.yes("rdbcompression"),
            rdbchecksum: v.yes("rdbchecksum"),
            rdb_version: v.word("rdb-version").parse().expect("the table checked the version"),
            save_points: v.words("save").chunks_exact(2).map(save_point).collect(),
            stop_writes_on_bgsave_error: v.yes("stop-writes-on-bgsave-error"),
            appendfsync: v.choice("appendfsync", AppendFsync::from_word),
            aof_rewrite_percentage: v.int("auto-aof-rewrite-percentage"),
            aof_rewrite_min_bytes: v.bytes("auto-aof-rewrite-min-size"),
            backlog_bytes: v.bytes("repl-backlog-size"),
            recovery_target_s: v.int("recovery-time-target"),
            dir: dir.clone(),
        },
        primary: PrimarySettings {
            ping_period_s: v.int("repl-ping-replica-period"),
            replicas_min: v.int("min-replicas-to-write"),
            lag_s_max: v.int("min-replicas-max-lag"),
            shutdown_timeout_s: v.int("shutdown-timeout"),
            check_interval_ms: v.int::<u64>("repl-check-interval") * 1_000,
            transfer_bytes_per_s: v.bytes("repl-transfer-rate"),
        },
        replica: ReplicaSettings {
            primary: match v.words("replicaof") {
                [host, port] => Some((host.clone(), port.parse().expect("the table checked the port"))),
                _ => None,
            },
            user: text("masteruser").map(Secret::new),
            password: text("masterauth").map(Secret::new),
            with_tls: v.yes("tls-replication"),
            serves_stale: v.yes("replica-serve-stale-data"),
            priority: v.int("replica-priority"),
            is_announced: v.yes("replica-announced"),
            announced_ip: text("replica-announce-ip").map(str::to_owned),
            announced_port: v.int("replica-announce-port"),
            timeout_s: v.int("repl-timeout"),
        },
        users: v.words("user").to_vec(),
        acllog_max_len: v.int("acllog-max-len"),
        acl_pubsub_all: v.word("acl-pubsub-default") == "allchannels",
        rename_commands: v
            .words("rename-command")
            .chunks_exact(2)
            .map(|pair| (pair[0].clone(), pair[1].clone()))
            .collect(),
        enable_debug_command: v.choice("enable-debug-command", Guard::from_word),
        enable_module_command: v.choice("enable-module-command", Guard::from_word),
        enable_protected_configs: v.choice("enable-protected-configs", Guard::from_word),
        output_limit_normal: output_limit(0),
        output_limit_replica: output_limit(1),
        output_limit_pubsub: output_limit(2),
        client_query_buffer_limit_bytes: v.bytes("client-query-buffer-limit") as usize,
        proto_max_bulk_len_bytes: v.bytes("proto-max-bulk-len") as usize,
        memory_limit_bytes: limits.memory,
        ram_limit_bytes: limits.ram,
        flash_bytes: limits.log,
        flash_data_bytes: if limits.is_kept { limits.log.min(limits.memory) } else { limits.log },
        flash_limit_bytes: limits.files,
        flash_limit_given_bytes: v.bytes("flash-limit"),
        maxmemory_clients_bytes: v.bytes_or_share("maxmemory-clients", limits.ram),
        maxmemory_policy: v.choice("maxmemory-policy", Policy::from_word),
        flash_paths,
        flash_io: v.choice("flash-io", FlashIo::from_word),
        flash_compression: v.choice("flash-compression", Codec::from_word),
        flash_segment_bytes: v.bytes("flash-segment-size"),
        flash_split_bytes: v.bytes("flash-split-size"),
        expired_key_lag_ms: v.int::<u64>("expired-key-lag") * 1_000,
        scrub_interval_ms: v.int::<u64>("scrub-interval") * 1_000,
        debug_tier_mode,
        io_threads,
        databases: v.int("databases"),
        hz: v.int::<u32>("hz").clamp(1, 500),
        events: Events::parse(v.word("notify-keyspace-events")),
        tracking_table_max_keys: v.int("tracking-table-max-keys"),
        busy_reply_threshold_ms: v.int("busy-reply-threshold"),
        script_memory_bytes: v.bytes_or_share("script-memory-limit", limits.ram) as usize,
        hash_max_listpack_entries: v.int("hash-max-listpack-entries"),
        hash_max_listpack_value: v.bytes("hash-max-listpack-value") as usize,
        list_max_listpack_size: v.int("list-max-listpack-size"),
        set_max_intset_entries: v.int("set-max-intset-entries"),
        set_max_listpack_entries: v.int("set-max-listpack-entries"),
        set_max_listpack_value: v.bytes("set-max-listpack-value") as usize,
        zset_max_listpack_entries: v.int("zset-max-listpack-entries"),
        zset_max_listpack_value: v.bytes("zset-max-listpack-value") as usize,
        hll_sparse_max_bytes: v.bytes("hll-sparse-max-bytes") as usize,
        stream_node_max_bytes: v.bytes("stream-node-max-bytes") as usize,
        stream_node_max_entries: v.int("stream-node-max-entries"),
        loglevel: v.choice("loglevel", LogLevel::from_word),
        log_format: v.choice("log-format", LogFormat::from_word),
        logfile: v.path("logfile", &dir),
        slowlog_log_slower_than_us: v.int("slowlog-log-slower-than"),
        slowlog_max_len: v.int("slowlog-max-len"),
        latency_monitor_threshold_ms: v.int("latency-monitor-threshold"),
        latency_tracking: v.yes("latency-tracking"),
        latency_tracking_percentiles: v
            .words("latency-tracking-info-percentiles")
            .iter()
            .map(|word| word.parse().expect("the table checked the percentile"))
            .collect(),
        daemonize: v.yes("daemonize"),
        supervised: v.choice("supervised", Supervised::from_word),
        pidfile: v.path("pidfile", &dir),
        backup_path: v.path("backup-path", &dir).unwrap_or_else(|| state_dir.join("backups")),
        backup_schedule,
        backup_keep: v.int("backup-keep"),
        backup_journal_keep_ms,
        state_dir,
        dir,
        disable_thp: v.yes("disable-thp"),
        huge_pages: v.yes("huge-pages"),
    })
}

fn addresses(words: &[String]) -> Vec<BindAddress> {
    let address = |word: &String| match word.strip_prefix('-') {
        Some(address) => BindAddress { address: address.to_owned(), optional: true },
        None => BindAddress { address: word.clone(), optional: false },
    };
    words.iter().filter(|word| !word.is_empty()).map(address).collect()
}

struct Limits {
    memory: u64,
    ram: u64,
    log: u64,
    files: u64,
    is_kept: bool,
}

/// Resolves the limits: memory limit = RAM limit + flash.
fn limits(v: &Values<'_>, has_flash: bool) -> Result<Limits, String> {
    let memory = v.bytes("memory-limit");
    let wanted = v.word("ram-limit");
    if has_flash && memory == 0 {
        return Err("flash-path needs memory-limit, the sum of RAM and flash to use: for 10gb of RAM and 90gb of \
                    flash, set memory-limit 100gb and ram-limit 10gb"
            .to_owned());
    }
    let ram = match wanted.strip_suffix('%') {
        Some(_) if memory == 0 => {
            return Err(format!(
                "ram-limit {wanted} is a share of memory-limit, which is not set: set memory-limit, or give \
                 ram-limit in bytes"
            ));
        }
        Some("0") => {
            return Err("ram-limit 0% leaves no RAM: give a share from 1% or a size".to_owned());
        }
        Some(percent) => share(memory, percent.parse().expect("the table checked the percentage")),
        None => match wanted.parse().expect("the table checked the size") {
            0 if has_flash => share(memory, RAM_SHARE_PERCENT),
            0 => memory,
            bytes => bytes,
        },
    };
    if memory != 0 && ram > memory {
        return Err(format!(
            "ram-limit {} is more than memory-limit {}: memory-limit is RAM + flash, so raise it to at least {} or \
             lower ram-limit",
            size::exact(ram),
            size::exact(memory),
            size::exact(ram)
        ));
    }
    let flash = if has_flash { memory - ram } else { 0 };
    if has_flash && flash < FLASH_BYTES_MIN {
        return Err(format!(
            "memory-limit {} − ram-limit {} leaves {} for flash, less than the {} that flash-path needs: raise \
             memory-limit, lower ram-limit, or drop flash-path",
            size::exact(memory),
            size::exact(ram),
            size::exact(flash),
            size::exact(FLASH_BYTES_MIN)
        ));
    }
    let is_kept = v.yes("appendonly");
    let (log, files) = match has_flash {
        true => (log_bytes(memory, ram, is_kept, v.bytes("flash-limit")), flash_limit(v, memory, ram, is_kept)?),
        // A journal's files alone are limited only if it is asked for.
        false => (0, flash_limit(v, 0, 0, is_kept)?),
    };
    Ok(Limits { memory, ram, log, files, is_kept })
}

/// The limit of all files.
fn flash_limit(v: &Values<'_>, memory: u64, ram: u64, is_kept: bool) -> Result<u64, String> {
    let wanted = v.bytes("flash-limit");
    if wanted == 0 {
        return Ok(files_bytes(memory, ram, is_kept));
    }
    let flash = memory.saturating_sub(ram);
    let (parts, needed) = match is_kept {
        true => (
            format!(" and at least {} for the journal and the checkpoints", size::exact(KEPT_BYTES_MIN)),
            KEPT_BYTES_MIN,
        ),
        false => (String::new(), 0),
    };
    let needed = flash.saturating_add(needed);
    if wanted >= needed {
        return Ok(wanted);
    }
    Err(format!(
        "flash-limit {} is less than {}: memory-limit − ram-limit leaves {} for values on flash{parts}. Raise flash-limit, or lower \
         memory-limit",
        size::exact(wanted),
        size::exact(needed),
        size::exact(flash)
    ))
}

/// At least 1, because 0 would mean no limit.
fn share(bytes: u64, percent: u64) -> u64 {
    ((u128::from(bytes) * u128::from(percent) / 100) as u64).max(1)
}

/// Refuses a RAM limit that leaves no memory for values: every write would get an out-of-memory error although flash is empty.
/// `console` says whether the console's memory counts against this limit.
pub fn leaves_ram_for_values(config: &Config, console: bool) -> Result<(), String> {
    let workers = config.io_threads.max(1) as u64;
    let of_console = if console && config.console.port != 0 { ram::CONSOLE_BYTES } else { 0 };
    let of_journal = if config.redis_files.appendonly { ram::JOURNAL_BYTES } else { 0 };
    let own = ram::least_limit(workers) + of_journal + of_console;
    if config.flash_paths.is_empty() || config.ram_limit_bytes >= own {
        return Ok(());
    }
    let (mut parts, mut advice) = (String::new(), vec!["lower io-threads"]);
    for (bytes, what, directive) in
        [(of_journal, "the journal", "set appendonly no"), (of_console, "the console", "set console-port 0")]
    {
        if bytes > 0 {
            parts.push_str(&format!(" + {} for {what}", size::exact(bytes)));
            advice.push(directive);
        }
    }
    Err(format!(
        "ram-limit {} is less than the {} that a node with flash needs for itself ({} + {workers} io-threads × {}{parts}): \
         raise ram-limit to at least {}, or {}",
        size::exact(config.ram_limit_bytes),
        size::exact(own),
        size::exact(ram::OWN_BYTES),
        size::exact(ram::OWN_BYTES_PER_WORKER),
        size::exact(own),
        advice.join(", or ")
    ))
}

/// Warnings about a valid configuration, for the log at start.
pub(super) fn advice(config: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    if config.flash_paths.is_empty() && config.ram_limit_bytes < config.memory_limit_bytes {
        lines.push(format!(
            "there is no flash-path, so {} of memory-limit {} cannot be used: only ram-limit {} counts",
            size::exact(config.memory_limit_bytes - config.ram_limit_bytes),
            size::exact(config.memory_limit_bytes),
            size::exact(config.ram_limit_bytes)
        ));
    }
    if config.ram_limit_bytes != 0 && config.ram_limit_bytes < 1024 * 1024 {
        lines.push(format!(
            "ram-limit is {}, less than the process itself takes: every write will be refused",
            size::human(config.ram_limit_bytes)
        ));
    }
    lines
}

// The table takes the words of these choices from the typed enums.
pub(super) const TIER_MODE: Kind = Kind::Choice(TierMode::WORDS);
pub(super) const POLICY: Kind = Kind::Choice(Policy::WORDS);
pub(super) const APPEND_FSYNC: Kind = Kind::Choice(AppendFsync::WORDS);
pub(super) const GUARD: Kind = Kind::Choice(Guard::WORDS);
pub(super) const COMPRESSION: Kind = Kind::Choice(Codec::WORDS);
pub(super) const FLASH_IO: Kind = Kind::Choice(FlashIo::WORDS);
pub(super) const LOG_FORMAT: Kind = Kind::Choice(LogFormat::WORDS);
pub(super) const SUPERVISED: Kind = Kind::Choice(Supervised::WORDS);
pub(super) const LOG_LEVEL: Kind = Kind::Choice(LogLevel::WORDS);
