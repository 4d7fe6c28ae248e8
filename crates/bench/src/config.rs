//! Owns the description of a run: plain data, checked once by [`Config::validate`]. Never knows the command line.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use crate::tls::Tls;

/// The largest value that Redis accepts in one argument.
pub const VALUE_BYTES_MAX: usize = 512 << 20;
/// More connections than this per run are a mistake in the command line.
pub const CONNECTIONS_MAX: u64 = 1_000_000;

/// One workload: which server, how many connections, which requests, for how long.
#[derive(Clone, Debug)]
pub struct Config {
    /// The name of the workload in progress and reports, for several workloads at once.
    pub name: String,
    pub target: Target,
    pub tls: Option<Tls>,
    pub protocol: Protocol,
    pub auth: Option<Auth>,
    pub select_db: u32,
    pub threads: u32,
    /// Connections per thread.
    pub clients: u32,
    pub ramp: Option<Ramp>,
    pub length: Length,
    /// Requests outstanding per connection.
    pub pipeline: u32,
    pub pace: Pace,
    pub work: Work,
    pub keys: KeySpace,
    pub data: DataSpec,
    pub seeding: Seeding,
    pub reconnect: Reconnect,
    /// Quantiles (0–1) kept for every second of the run.
    pub quantiles: Vec<f64>,
    /// Also keeps statistics for every connection, which takes memory.
    pub per_client: bool,
    /// Reports every connection error and error reply on standard error as it happens.
    pub debug: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Tcp { host: String, port: u16, family: Family },
    Unix(PathBuf),
}

impl Target {
    pub fn tcp(host: impl Into<String>, port: u16) -> Target {
        Target::Tcp { host: host.into(), port, family: Family::Any }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Any,
    V4,
    V6,
}

/// The HELLO that opens a connection, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Redis,
    Resp2,
    Resp3,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    pub user: Option<String>,
    pub password: String,
}

/// Starts with `start` connections per thread and adds `step` after every `every`, up to [`Config::clients`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ramp {
    pub start: u32,
    pub step: u32,
    pub every: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Per connection.
    Requests(u64),
    /// One pass over the key range: `max − min` requests per connection. If every pattern is parallel, each connection
    /// sends exactly its own part of the range.
    AllKeys,
    Time(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// The next request is sent when a reply has arrived.
    Unlimited,
    /// At most this many requests per second and connection, in at most 50 bursts per second.
    PerConnection(u64),
    /// Open loop: this many requests per second over the whole workload, each at a fixed time. Latency counts from that
    /// time even if the request was sent later, so every request that a stall delays shows the stall.
    OpenLoop(f64),
}

#[derive(Clone, Debug)]
pub enum Work {
    SetGet(SetGet),
    Commands(Commands),
}

/// `sets` SETs, then `gets` GETs, and so on.
#[derive(Clone, Debug, PartialEq)]
pub struct SetGet {
    pub sets: u32,
    pub gets: u32,
    pub set_pattern: KeyPattern,
    pub get_pattern: KeyPattern,
    /// For n > 0, GETs become MGETs of up to n keys.
    pub multi_key_get: u32,
    /// SET becomes SETEX with a time to live from this range, in seconds.
    pub expiry: Option<RangeInclusive<u64>>,
    pub wait: Option<Wait>,
}

/// WAITs between the SETs, `waits` for every `sets` of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    pub sets: u32,
    pub waits: u32,
    pub replicas: RangeInclusive<u64>,
    pub timeout_ms: RangeInclusive<u64>,
}

#[derive(Clone, Debug, Default)]
pub struct Commands {
    pub specs: Vec<CommandSpec>,
    pub monitor: Option<Monitor>,
    /// One row of statistics per command line. Otherwise lines with the same command share a row.
    pub by_line: bool,
    pub scan: Option<ScanFollow>,
}

/// A command line: `__key__`, `__data__`, and, with a capture, `__monitor_line3__` or `__monitor_line@__`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandSpec {
    pub line: String,
    /// Sent this many times before the next command.
    pub ratio: u32,
    pub pattern: KeyPattern,
}

/// The commands of a MONITOR capture, each a list of arguments.
#[derive(Clone, Debug)]
pub struct Monitor {
    pub lines: Arc<Vec<Vec<Vec<u8>>>>,
    /// `__monitor_line@__` draws lines at random instead of in order.
    pub random: bool,
}

/// Follows SCAN's cursor until it is 0 again, or for at most `continuations_max` replies (0: no limit).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanFollow {
    pub continuations_max: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPattern {
    /// R: uniform over the range, both ends included.
    Random,
    /// S: in order over the whole range, repeatedly.
    Sequential,
    /// G: normal. Keys outside the range are drawn again.
    Gaussian,
    /// P: in order over this connection's own part of the range.
    Parallel,
    /// Z: key k with probability proportional to k⁻ˢ.
    Zipf,
}

#[derive(Clone, Debug, PartialEq)]
pub struct KeySpace {
    pub prefix: Vec<u8>,
    pub min: u64,
    pub max: u64,
    /// `None`: a sixth of the range.
    pub stddev: Option<f64>,
    /// `None`: the centre of the range.
    pub median: Option<f64>,
    /// 0–5.
    pub zipf_exponent: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct DataSpec {
    pub size: SizeSpec,
    /// With an offset > 0, SET becomes SETRANGE and GET becomes GETRANGE.
    pub offset: u64,
    pub fill: Fill,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SizeSpec {
    Fixed(usize),
    Range {
        min: usize,
        max: usize,
        pattern: SizePattern,
    },
    /// (size, weight): `weight` values of one size, then those of the next.
    List(Vec<(usize, u32)>),
}

impl SizeSpec {
    pub fn max(&self) -> usize {
        match self {
            SizeSpec::Fixed(size) => *size,
            SizeSpec::Range { max, .. } => *max,
            SizeSpec::List(list) => list.iter().map(|(size, _)| *size).max().unwrap_or(0),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizePattern {
    Random,
    /// From the smallest at the first key to the largest at the last.
    Sequential,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    /// All 'x'.
    Constant,
    /// Random once per connection, then one byte changes per request: near-duplicates.
    Mutated,
    /// New bytes for every value; compressors remove this share (0–1) of them.
    Compressible(f64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeding {
    pub seed: u64,
    /// Every connection has its own sequence; otherwise all repeat the same one.
    pub distinct: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reconnect {
    /// Closes and reopens the connection after this many requests; 0 = never.
    pub every: u64,
    pub on_error: bool,
    /// In a row; 0 = no limit.
    pub attempts_max: u32,
    /// The pause before the next attempt grows by this factor, from 1 s up to 60 s; 0 = a pause of 10 ms only.
    pub backoff_factor: f64,
    /// Zero = the system's own.
    pub timeout: Duration,
    /// Pause between two connections of a thread, drawn from this range (µs).
    pub start_jitter_us: (u64, u64),
}

impl Default for Config {
    /// memtier_benchmark's defaults.
    fn default() -> Config {
        Config {
            name: String::from("load"),
            target: Target::tcp("localhost", 6379),
            tls: None,
            protocol: Protocol::Redis,
            auth: None,
            select_db: 0,
            threads: 4,
            clients: 50,
            ramp: None,
            length: Length::Requests(10_000),
            pipeline: 1,
            pace: Pace::Unlimited,
            work: Work::SetGet(SetGet::default()),
            keys: KeySpace::default(),
            data: DataSpec { size: SizeSpec::Fixed(32), offset: 0, fill: Fill::Constant },
            seeding: Seeding { seed: 0, distinct: false },
            reconnect: Reconnect::default(),
            quantiles: vec![0.5, 0.99, 0.999, 0.9999],
            per_client: false,
            debug: false,
        }
    }
}

impl Default for SetGet {
    fn default() -> SetGet {
        SetGet {
            sets: 1,
            gets: 10,
            set_pattern: KeyPattern::Random,
            get_pattern: KeyPattern::Random,
            multi_key_get: 0,
            expiry: None,
            wait: None,
        }
    }
}

impl Default for KeySpace {
    fn default() -> KeySpace {
        KeySpace {
            prefix: b"memtier-".to_vec(),
            min: 0,
            max: 10_000_000,
            stddev: None,
            median: None,
            zipf_exponent: 1.0,
        }
    }
}

impl Default for Reconnect {
    fn default() -> Reconnect {
        Reconnect {
            every: 0,
            on_error: false,
            attempts_max: 0,
            backoff_factor: 0.0,
            timeout: Duration::ZERO,
            start_jitter_us: (0, 0),
        }
    }
}

impl Config {
    /// Connections over all threads.
    pub fn connections(&self) -> u64 {
        u64::from(self.threads) * u64::from(self.clients)
    }

    fn patterns(&self) -> Vec<KeyPattern> {
        match &self.work {
            Work::SetGet(work) => vec![work.set_pattern, work.get_pattern],
            Work::Commands(work) => work.specs.iter().map(|spec| spec.pattern).collect(),
        }
    }

    fn all_parallel(&self) -> bool {
        let patterns = self.patterns();
        !patterns.is_empty() && patterns.iter().all(|&pattern| pattern == KeyPattern::Parallel)
    }

    /// The number in the result's heading, if the run's length is a number of requests.
    pub fn requests_per_client(&self) -> Option<u64> {
        let span = self.keys.max - self.keys.min;
        match self.length {
            Length::Requests(count) => Some(count),
            Length::AllKeys if self.all_parallel() => Some(span / self.connections() + 1),
            Length::AllKeys => Some(span),
            Length::Time(_) => None,
        }
    }

    /// How many requests the `index`-th connection sends.
    pub(crate) fn requests_of(&self, index: u64) -> Option<u64> {
        if self.length == Length::AllKeys && self.all_parallel() {
            let (first, last) = self.keys.part(index, self.connections());
            return Some(last - first + 1);
        }
        self.requests_per_client()
    }

    /// Requests of the whole run, if its length is a number of requests.
    pub fn requests_total(&self) -> Option<u64> {
        if self.length == Length::AllKeys && self.all_parallel() {
            return Some(self.keys.max - self.keys.min + 1);
        }
        self.requests_per_client().map(|count| count.saturating_mul(self.connections()))
    }

    /// Refuses everything that cannot be run, with the option's name.
    pub fn validate(&self) -> Result<()> {
        ensure!(self.threads >= 1, "--threads must be at least 1");
        ensure!(self.clients >= 1, "--clients must be at least 1");
        ensure!(self.connections() <= CONNECTIONS_MAX, "more than {CONNECTIONS_MAX} connections");
        ensure!(self.pipeline >= 1, "--pipeline must be at least 1");
        match self.length {
            Length::Requests(count) => ensure!(count >= 1, "--requests must be at least 1"),
            Length::Time(time) => ensure!(!time.is_zero(), "--test-time must be at least 1 second"),
            Length::AllKeys => ensure!(self.keys.max > self.keys.min, "--requests=allkeys needs a range of keys"),
        }
        match self.pace {
            Pace::PerConnection(rate) => ensure!(rate >= 1, "--rate-limiting must be at least 1"),
            Pace::OpenLoop(rate) => {
                ensure!(rate > 0.0 && rate.is_finite(), "--rate must be above 0");
                ensure!(self.ramp.is_none(), "--rate and --clients-start exclude each other");
            }
            Pace::Unlimited => {}
        }
        if let Some(ramp) = self.ramp {
            ensure!(ramp.start >= 1, "--clients-start must be at least 1");
            ensure!(ramp.start < self.clients, "--clients-start must be less than --clients");
            ensure!(ramp.step >= 1, "--clients-step must be at least 1");
            ensure!(!ramp.every.is_zero(), "--step-duration must be at least 1 second");
        }
        self.validate_keys()?;
        self.validate_data()?;
        match &self.work {
            Work::SetGet(work) => work.validate(&self.data)?,
            Work::Commands(work) => work.validate(self.pipeline)?,
        }
        let (low, high) = self.reconnect.start_jitter_us;
        ensure!(low <= high, "the jitter's minimum is above its maximum");
        let factor = self.reconnect.backoff_factor;
        ensure!(factor == 0.0 || factor >= 1.0, "--reconnect-backoff-factor must be 0 or at least 1");
        for quantile in &self.quantiles {
            ensure!((0.0..=1.0).contains(quantile), "a percentile must be between 0 and 100");
        }
        Ok(())
    }

    fn validate_keys(&self) -> Result<()> {
        let keys = &self.keys;
        ensure!(keys.max >= keys.min, "--key-maximum must be at least --key-minimum");
        ensure!(keys.max < u64::MAX, "--key-maximum must be below 2^64 - 1");
        let patterns = self.patterns();
        if patterns.contains(&KeyPattern::Parallel) {
            let count = keys.max - keys.min + 1;
            ensure!(count >= self.connections(), "fewer keys than connections: nothing to split for the P pattern");
        }
        if patterns.contains(&KeyPattern::Zipf) {
            ensure!((0.0..=5.0).contains(&keys.zipf_exponent), "--key-zipf-exp must be between 0 and 5");
            ensure!(keys.max >= 1, "the Z pattern needs a positive --key-maximum");
        }
        if patterns.contains(&KeyPattern::Gaussian) {
            if let Some(stddev) = keys.stddev {
                ensure!(stddev > 0.0 && stddev.is_finite(), "--key-stddev must be above 0");
            }
            if let Some(median) = keys.median {
                let range = keys.min as f64..=keys.max as f64;
                ensure!(range.contains(&median), "--key-median must be within the range of keys");
            }
        } else {
            ensure!(keys.stddev.is_none(), "--key-stddev needs the G pattern");
            ensure!(keys.median.is_none(), "--key-median needs the G pattern");
        }
        Ok(())
    }

    fn validate_data(&self) -> Result<()> {
        match &self.data.size {
            SizeSpec::Fixed(size) => ensure!(*size >= 1, "--data-size must be at least 1"),
            SizeSpec::Range { min, max, .. } => {
                ensure!(*min >= 1 && min <= max, "--data-size-range must be min-max with 1 <= min <= max");
            }
            SizeSpec::List(list) => {
                ensure!(!list.is_empty(), "--data-size-list is empty");
                let good = list.iter().all(|&(size, weight)| size >= 1 && weight >= 1);
                ensure!(good, "sizes and weights of --data-size-list must be at least 1");
            }
        }
        ensure!(self.data.size.max() <= VALUE_BYTES_MAX, "a value may have at most {VALUE_BYTES_MAX} bytes");
        ensure!(self.data.offset <= VALUE_BYTES_MAX as u64, "--data-offset may be at most {VALUE_BYTES_MAX}");
        if let Fill::Compressible(share) = self.data.fill {
            ensure!((0.0..=1.0).contains(&share), "--data-compressibility must be between 0 and 1");
        }
        Ok(())
    }
}

impl SetGet {
    fn validate(&self, data: &DataSpec) -> Result<()> {
        ensure!(self.sets > 0 || self.gets > 0, "--ratio must not be 0:0");
        let parallel = |pattern| pattern == KeyPattern::Parallel;
        if parallel(self.set_pattern) != parallel(self.get_pattern) {
            bail!("--key-pattern: parallel works only for both SETs and GETs (P:P)");
        }
        if let Some(expiry) = &self.expiry {
            ensure!(!expiry.is_empty(), "--expiry-range must be min-max with min <= max");
            ensure!(data.offset == 0, "--expiry-range and --data-offset exclude each other");
        }
        ensure!(self.multi_key_get == 0 || data.offset == 0, "--multi-key-get and --data-offset exclude each other");
        if let Some(wait) = &self.wait {
            ensure!(wait.sets >= 1, "--wait-ratio needs at least 1 SET");
            ensure!(!wait.replicas.is_empty() && !wait.timeout_ms.is_empty(), "--num-slaves, --wait-timeout: min-max");
        }
        Ok(())
    }
}

impl Commands {
    fn validate(&self, pipeline: u32) -> Result<()> {
        ensure!(!self.specs.is_empty(), "no --command");
        ensure!(self.specs.iter().all(|spec| spec.ratio >= 1), "--command-ratio must be at least 1");
        let parallel = self.specs.iter().filter(|spec| spec.pattern == KeyPattern::Parallel).count();
        ensure!(
            parallel == 0 || parallel == self.specs.len(),
            "--command-key-pattern: parallel works only if every command has it"
        );
        if self.scan.is_some() {
            ensure!(pipeline == 1, "--scan-incremental-iteration requires --pipeline 1");
            ensure!(self.specs.len() == 1, "--scan-incremental-iteration takes exactly one --command");
            let words: Vec<&str> = self.specs[0].line.split_ascii_whitespace().collect();
            let good = words.len() >= 2 && words[0].eq_ignore_ascii_case("scan") && words[1] == "0";
            ensure!(good, "--scan-incremental-iteration needs --command=\"SCAN 0 …\"");
        }
        Ok(())
    }
}

impl KeySpace {
    /// First and last key of the `index`-th of `count` even parts; the last takes the remainder.
    pub(crate) fn part(&self, index: u64, count: u64) -> (u64, u64) {
        let each = (self.max - self.min + 1) / count;
        let first = self.min + each * index;
        let last = if index + 1 == count { self.max } else { first + each - 1 };
        (first, last)
    }
}
