//! Owns the typed configuration that the server reads, and the checks between directives.
//! Never knows the source of a value: file, command line or CONFIG SET.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::table::{self, Config};
use super::text;
use super::value::Value;
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
    /// Whether clients must present a certificate. `Optional`: a client may present none, but a presented certificate must be valid.
    TlsAuth { No = "no", Yes = "yes", Optional = "optional" }
);
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

/// The smallest segment. A log needs at least 16 segments to collect its own garbage.
pub const SEGMENT_BYTES_MIN: u64 = 256 * 1024;
pub const FLASH_BYTES_MIN: u64 = 16 * SEGMENT_BYTES_MIN;
/// With flash, the default of `ram-limit` is this share of `memory-limit`.
pub const RAM_SHARE_PERCENT: u64 = 30;

/// A backup reads and writes the whole dataset.
const BACKUP_INTERVAL_MS_MIN: u64 = 60_000;
/// Maximum number of TLS sessions if the configuration sets no limit.
const TLS_SESSIONS_MAX: usize = 1 << 20;

/// The values of all directives, and what follows from several of them. An unknown name is a bug and panics; the tests read every name.
pub(super) struct Values<'a> {
    values: &'a [Value],
    pub limits: Limits,
    pub backup_schedule: Option<Schedule>,
    pub backup_journal_keep_ms: u64,
}

impl<'a> Values<'a> {
    /// The error says which directives contradict each other and what to do.
    fn checked(values: &'a [Value]) -> Result<Values<'a>, String> {
        let mut v = Values { values, limits: Limits::default(), backup_schedule: None, backup_journal_keep_ms: 0 };
        if !v.yes("replica-read-only") {
            return Err(
                "replica-read-only must be yes: a replica with writes of its own would differ from its primary"
                    .to_owned(),
            );
        }
        let has_flash = !v.words("flash-path").is_empty();
        v.limits = limits(&v, has_flash)?;
        if v.word("debug-tier-mode") == TierMode::Cold.as_str() && !has_flash {
            return Err("debug-tier-mode cold sends every value to flash: it needs flash-path".to_owned());
        }
        if v.word("console-tls-cert-file").is_empty() != v.word("console-tls-key-file").is_empty() {
            return Err(
                "console-tls-cert-file and console-tls-key-file must be set together: set both or neither".to_owned()
            );
        }
        let text = v.word("backup-schedule");
        if !text.is_empty() {
            let schedule = Schedule::parse(text).map_err(|why| format!("backup-schedule: {why}"))?;
            if schedule.every_ms < BACKUP_INTERVAL_MS_MIN {
                return Err(format!("backup-schedule '{text}' is less than a minute"));
            }
            v.backup_schedule = Some(schedule);
        }
        let text = v.word("backup-journal-keep");
        if !text.is_empty() {
            v.backup_journal_keep_ms =
                base::time::parse_ms(text).map_err(|why| format!("backup-journal-keep: {why}"))?;
        }
        Ok(v)
    }

    pub fn words(&self, name: &str) -> &'a [String] {
        let index = table::find(name).unwrap_or_else(|| panic!("'{name}' is not in the table"));
        &self.values[index]
    }
    fn word(&self, name: &str) -> &'a str {
        self.words(name).first().map_or("", String::as_str)
    }
    fn yes(&self, name: &str) -> bool {
        self.word(name) == "yes"
    }
    fn bytes(&self, name: &str) -> u64 {
        number(self.word(name))
    }
    fn path(&self, word: &str) -> PathBuf {
        Path::new(self.word("dir")).join(word)
    }
}

/// Builds the typed configuration. The error says which directives contradict each other and what to do.
pub(super) fn build(values: &[Value]) -> Result<Config, String> {
    Values::checked(values).map(|v| Config::of(&v))
}

/// What the words of a directive become in [`Config`]. The table has checked the words.
pub(super) trait Typed: Sized {
    fn of(v: &Values<'_>, words: &[String]) -> Self;
}

macro_rules! typed {
    ($($type:ty = |$v:pat_param, $words:pat_param| $of:expr;)*) => {
        $(impl Typed for $type { fn of($v: &Values<'_>, $words: &[String]) -> $type { $of } })*
    };
}

typed! {
    bool = |_, words| words == ["yes"];
    u16 = |_, words| number(&words[0]);
    u32 = |_, words| number(&words[0]);
    u64 = |_, words| number(&words[0]);
    usize = |_, words| number(&words[0]);
    i32 = |_, words| number(&words[0]);
    i64 = |_, words| number(&words[0]);
    String = |_, words| words.concat();
    Option<String> = |_, words| words.first().cloned();
    Vec<String> = |_, words| words.to_vec();
    Vec<f64> = |_, words| words.iter().map(|word| number(word)).collect();
    PathBuf = |v, words| v.path(&words.concat());
    Option<PathBuf> = |v, words| words.first().map(|word| v.path(word));
    Vec<PathBuf> = |v, words| words.iter().map(|word| v.path(word)).collect();
    Option<Secret> = |_, words| words.first().map(Secret::new);
    // Points of `save`: seconds and changes.
    Vec<(u64, u64)> = |_, words| words.chunks_exact(2).map(|pair| (number(&pair[0]), number(&pair[1]))).collect();
    Vec<(String, String)> = |_, words| words.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    // Host and port.
    Option<(String, u16)> = |_, words| words.get(1).map(|port| (words[0].clone(), number(port)));
    Events = |_, words| Events::parse(&words.concat());
    Vec<BindAddress> = |_, words| words.iter().filter(|word| !word.is_empty()).map(|word| BindAddress::of(word)).collect();
    AppendFsync = |_, words| choice(AppendFsync::from_word, words);
    Codec = |_, words| choice(Codec::from_word, words);
    FlashIo = |_, words| choice(FlashIo::from_word, words);
    Guard = |_, words| choice(Guard::from_word, words);
    LogFormat = |_, words| choice(LogFormat::from_word, words);
    LogLevel = |_, words| choice(LogLevel::from_word, words);
    Policy = |_, words| choice(Policy::from_word, words);
    Supervised = |_, words| choice(Supervised::from_word, words);
    TierMode = |_, words| choice(TierMode::from_word, words);
    TlsAuth = |_, words| choice(TlsAuth::from_word, words);
}

fn number<T: FromStr>(word: &str) -> T {
    word.parse().ok().expect("the table checked the number, and its range fits the field")
}

fn choice<T>(from_word: fn(&str) -> Option<T>, words: &[String]) -> T {
    from_word(&words[0]).unwrap_or_else(|| panic!("the table let '{}' through", words[0]))
}

// What the table names for fields whose type alone does not say how they are made.

pub(super) fn ms_of_seconds(_: &Values<'_>, words: &[String]) -> u64 {
    number::<u64>(&words[0]) * 1_000
}

/// A size, or a percentage of the RAM limit.
pub(super) fn bytes_or_share(v: &Values<'_>, words: &[String]) -> u64 {
    match words[0].strip_suffix('%') {
        Some(percent) => share(v.limits.ram, number(percent)),
        None => number(&words[0]),
    }
}

pub(super) fn octal(_: &Values<'_>, words: &[String]) -> u32 {
    u32::from_str_radix(&words[0], 8).expect("the table checked the mode")
}

pub(super) fn io_threads(_: &Values<'_>, words: &[String]) -> usize {
    match words[0].as_str() {
        "auto" => std::thread::available_parallelism().map_or(1, |cores| cores.get()).min(128),
        word => number(word),
    }
}

pub(super) fn backup_path(v: &Values<'_>, words: &[String]) -> PathBuf {
    words.first().map_or_else(|| v.path(v.word("state-dir")).join("backups"), |word| v.path(word))
}

pub(super) fn etcd_path(v: &Values<'_>, words: &[String]) -> PathBuf {
    words.first().map_or_else(|| v.path(v.word("state-dir")).join("etcd"), |word| v.path(word))
}

pub(super) fn tls_sessions(v: &Values<'_>, words: &[String]) -> usize {
    match number(&words[0]) {
        _ if !v.yes("tls-session-caching") => 0,
        // 0 means no limit for OpenSSL. FlintKV always has a limit.
        0 => TLS_SESSIONS_MAX,
        sessions => sessions,
    }
}

/// One class of `client-output-buffer-limit`: 0 normal, 1 replica, 2 pubsub.
pub(super) fn output_limit(words: &[String], class: usize) -> OutputLimit {
    let [_, hard, soft, soft_s] = &words[class * 4..class * 4 + 4] else { unreachable!("four words") };
    OutputLimit { hard_bytes: number(hard), soft_bytes: number(soft), soft_s: number(soft_s) }
}

impl BindAddress {
    fn of(word: &str) -> BindAddress {
        let address = word.strip_prefix('-');
        BindAddress { address: address.unwrap_or(word).to_owned(), optional: address.is_some() }
    }
}

/// Limits, resolved: memory limit = RAM limit + flash.
#[derive(Default)]
pub(super) struct Limits {
    pub ram: u64,
    /// The log of values on flash.
    pub log: u64,
    /// All files.
    pub files: u64,
}

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
            "memory-limit {} − ram-limit {} leaves {} for flash, less than the {} that flash-path needs: raise memory-limit, lower ram-limit, or remove flash-path",
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
    Ok(Limits { ram, log, files })
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
            "ram-limit is {}, less than the process itself needs: every write will be refused",
            size::human(config.ram_limit_bytes)
        ));
    }
    lines
}
