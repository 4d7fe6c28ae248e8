//! Owns the command line of `flintkv bench`: memtier_benchmark's options, and a few of our own. It turns text into a
//! [`Config`]. Never runs anything.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{ArgAction, ArgMatches, CommandFactory, FromArgMatches, Parser};

use crate::config::{
    Auth, CommandSpec, Commands, Config, Family, Fill, KeyPattern, KeySpace, Length, Monitor, Pace, Protocol, Ramp,
    Reconnect, ScanFollow, Seeding, SetGet, SizePattern, SizeSpec, Target, Wait, Work,
};
use crate::monitor::read_capture;
use crate::tls::Tls;

/// Options that memtier_benchmark has and this program does not have are refused with this text.
const NOT_SUPPORTED: &str = "is not supported by flintkv bench";

/// Load generator for Redis-compatible servers, with memtier_benchmark's options and output.
#[derive(Parser, Debug)]
#[command(
    name = "flintkv bench",
    disable_help_flag = true,
    disable_version_flag = true,
    infer_long_args = true,
    args_override_self = true,
    max_term_width = 120
)]
pub struct Args {
    /// Server address
    #[arg(
        short = 'h',
        long,
        visible_short_alias = 's',
        visible_alias = "server",
        value_name = "ADDR",
        default_value = "localhost",
        help_heading = "Connection"
    )]
    host: String,
    /// Server port
    #[arg(short = 'p', long, value_name = "PORT", default_value_t = 6379, help_heading = "Connection")]
    port: u16,
    /// Unix socket instead of host and port
    #[arg(short = 'S', long, value_name = "SOCKET", help_heading = "Connection")]
    unix_socket: Option<PathBuf>,
    /// Only IPv4 addresses
    #[arg(short = '4', long, conflicts_with = "ipv6", help_heading = "Connection")]
    ipv4: bool,
    /// Only IPv6 addresses
    #[arg(short = '6', long, help_heading = "Connection")]
    ipv6: bool,
    /// redis, resp2 or resp3; the latter two open connections with HELLO
    #[arg(short = 'P', long, value_name = "PROTOCOL", default_value = "redis", help_heading = "Connection")]
    protocol: String,
    /// Authenticate with [USER:]PASSWORD
    #[arg(short = 'a', long, value_name = "CREDENTIALS", help_heading = "Connection")]
    authenticate: Option<String>,
    /// redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]; rediss:// is with TLS
    #[arg(short = 'u', long, value_name = "URI", help_heading = "Connection")]
    uri: Option<String>,
    /// Speak TLS
    #[arg(long, help_heading = "Connection")]
    tls: bool,
    /// The client's certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "key", help_heading = "Connection")]
    cert: Option<PathBuf>,
    /// The key of --cert, in PEM
    #[arg(long, value_name = "FILE", requires = "cert", help_heading = "Connection")]
    key: Option<PathBuf>,
    /// Certificates of authorities to trust, in PEM, instead of the system's
    #[arg(long, value_name = "FILE", help_heading = "Connection")]
    cacert: Option<PathBuf>,
    /// Accept any certificate of the server: anybody in between can read and change everything
    #[arg(long, help_heading = "Connection")]
    tls_skip_verify: bool,
    /// TLSv1.2, TLSv1.3 or both, with a comma
    #[arg(long, value_name = "LIST", help_heading = "Connection")]
    tls_protocols: Option<String>,
    /// The name to send, and to find in the server's certificate, instead of the host's
    #[arg(long, value_name = "NAME", help_heading = "Connection")]
    sni: Option<String>,
    /// Number of full runs
    #[arg(short = 'x', long, value_name = "NUMBER", default_value_t = 1, help_heading = "Connection")]
    pub run_count: u32,
    /// Print errors as they happen
    #[arg(short = 'D', long, help_heading = "Connection")]
    debug: bool,
    /// Not supported
    #[arg(long, help_heading = "Connection")]
    cluster_mode: bool,
    /// Print this help
    #[arg(long, action = ArgAction::Help, help_heading = "Connection")]
    help: Option<bool>,
    /// Print the version
    #[arg(short = 'v', long, help_heading = "Connection")]
    pub version: bool,

    /// File for the results, instead of standard output
    #[arg(short = 'o', long, value_name = "FILE", help_heading = "Output")]
    pub out_file: Option<PathBuf>,
    /// File for the results as JSON
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json_out_file: Option<PathBuf>,
    /// Write FILE-RUN-THREAD-CLIENT.csv for every connection
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub client_stats: Option<PathBuf>,
    /// Prefix of HDR histogram files
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub hdr_file_prefix: Option<PathBuf>,
    /// Print the whole configuration before the run
    #[arg(long, help_heading = "Output")]
    pub show_config: bool,
    /// Leave out the latency distribution
    #[arg(long, help_heading = "Output")]
    pub hide_histogram: bool,
    /// Percentiles in the table
    #[arg(
        long,
        value_name = "LIST",
        action = ArgAction::Set,
        value_delimiter = ',',
        default_value = "50,99,99.9",
        help_heading = "Output"
    )]
    pub print_percentiles: Vec<f64>,
    /// With several runs, print every one
    #[arg(long, help_heading = "Output")]
    pub print_all_runs: bool,
    /// One row per command name, or one per command line
    #[arg(
        long,
        value_name = "command|line",
        default_value = "command",
        value_parser = ["command", "line"],
        help_heading = "Output"
    )]
    command_stats_breakdown: String,
    /// Not supported
    #[arg(long, value_name = "HOST", help_heading = "Output")]
    statsd_host: Option<String>,
    /// Not supported
    #[arg(long, value_name = "PORT", help_heading = "Output")]
    statsd_port: Option<String>,
    /// Not supported
    #[arg(long, value_name = "PREFIX", help_heading = "Output")]
    statsd_prefix: Option<String>,
    /// Not supported
    #[arg(long, value_name = "LABEL", help_heading = "Output")]
    statsd_run_label: Option<String>,
    /// Not supported
    #[arg(long, value_name = "PORT", help_heading = "Output")]
    graphite_port: Option<String>,

    /// Requests per connection, or 'allkeys' for one pass over the key range [default: 10000]
    #[arg(short = 'n', long, value_name = "NUMBER", conflicts_with = "test_time", help_heading = "Test")]
    requests: Option<String>,
    /// Requests per second and connection, at most
    #[arg(long, value_name = "NUMBER", conflicts_with = "rate", help_heading = "Test")]
    rate_limiting: Option<u64>,
    /// Open loop: this many requests per second over all connections, each at a fixed time. Latency counts from that
    /// time, even if the request was sent later (no coordinated omission)
    #[arg(long, value_name = "NUMBER", help_heading = "Test")]
    rate: Option<f64>,
    /// Connections per thread
    #[arg(short = 'c', long, value_name = "NUMBER", default_value_t = 50, help_heading = "Test")]
    clients: u32,
    /// Threads
    #[arg(short = 't', long, value_name = "NUMBER", default_value_t = 4, help_heading = "Test")]
    threads: u32,
    /// Run for this many seconds instead of a number of requests
    #[arg(long, value_name = "SECS", help_heading = "Test")]
    test_time: Option<u64>,
    /// Start with this many connections per thread
    #[arg(long, value_name = "NUMBER", requires_all = ["clients_step", "step_duration"], help_heading = "Test")]
    clients_start: Option<u32>,
    /// Add this many connections per thread at each step
    #[arg(long, value_name = "NUMBER", requires = "clients_start", help_heading = "Test")]
    clients_step: Option<u32>,
    /// Duration of a step
    #[arg(long, value_name = "SECS", requires = "clients_start", help_heading = "Test")]
    step_duration: Option<u64>,
    /// SETs to GETs [default: 1:10]
    #[arg(long, value_name = "RATIO", help_heading = "Test")]
    ratio: Option<String>,
    /// Outstanding requests per connection
    #[arg(long, value_name = "NUMBER", default_value_t = 1, help_heading = "Test")]
    pipeline: u32,
    /// Close and reopen each connection after this many requests
    #[arg(long, value_name = "NUM", default_value_t = 0, help_heading = "Test")]
    reconnect_interval: u64,
    /// Connect again after an error
    #[arg(long, help_heading = "Test")]
    reconnect_on_error: bool,
    /// Give a connection up after this many failures in a row; 0: never
    #[arg(long, value_name = "NUM", default_value_t = 0, help_heading = "Test")]
    max_reconnect_attempts: u32,
    /// Factor by which the pause between attempts grows; 0: none
    #[arg(long, value_name = "NUM", default_value_t = 0.0, help_heading = "Test")]
    reconnect_backoff_factor: f64,
    /// Give up connecting after this many seconds; 0: the system decides
    #[arg(long, value_name = "SECS", default_value_t = 0, help_heading = "Test")]
    connection_timeout: u64,
    /// Shortest pause between two connections of a thread
    #[arg(long, value_name = "NUM", default_value_t = 0, help_heading = "Test")]
    thread_conn_start_min_jitter_micros: u64,
    /// Longest pause between two connections of a thread
    #[arg(long, value_name = "NUM", default_value_t = 0, help_heading = "Test")]
    thread_conn_start_max_jitter_micros: u64,
    /// MGET with up to this many keys instead of GET; 0: GET
    #[arg(long, value_name = "NUM", default_value_t = 0, help_heading = "Test")]
    multi_key_get: u32,
    /// Database to select
    #[arg(long, value_name = "DB", default_value_t = 0, help_heading = "Test")]
    select_db: u32,
    /// A key sequence of its own for every connection; otherwise all connections repeat the same one
    #[arg(long, help_heading = "Test")]
    distinct_client_seed: bool,
    /// Seed from time and process
    #[arg(long, help_heading = "Test")]
    randomize: bool,
    /// Seed of all random choices
    #[arg(long, value_name = "NUMBER", default_value_t = 0, conflicts_with = "randomize", help_heading = "Test")]
    seed: u64,

    /// A command to send, in quotes; __key__ and __data__ are replaced. Repeatable: the ratio and the key pattern after
    /// it belong to it
    #[arg(long, value_name = "COMMAND", action = ArgAction::Append, help_heading = "Arbitrary commands")]
    command: Vec<String>,
    /// How often the command before is sent in sequence [default: 1]
    #[arg(long, value_name = "NUMBER", action = ArgAction::Append, help_heading = "Arbitrary commands")]
    command_ratio: Vec<u32>,
    /// Key pattern of the command before: R, S, G, P or Z [default: R]
    #[arg(long, value_name = "PATTERN", action = ArgAction::Append, help_heading = "Arbitrary commands")]
    command_key_pattern: Vec<String>,
    /// Replay a MONITOR capture: --command=__monitor_line@__ (the default) or __monitor_line1__ …
    #[arg(long, value_name = "FILE", help_heading = "Arbitrary commands")]
    monitor_input: Option<PathBuf>,
    /// Lines in sequence (S) or at random (R)
    #[arg(
        long,
        value_name = "S|R",
        default_value = "S",
        value_parser = ["S", "R"],
        ignore_case = true,
        help_heading = "Arbitrary commands"
    )]
    monitor_pattern: String,
    /// --command="SCAN 0 …" follows its cursor until it is 0, then starts again
    #[arg(long, help_heading = "Arbitrary commands")]
    scan_incremental_iteration: bool,
    /// Most continuations of a SCAN; 0: no limit
    #[arg(long, value_name = "NUMBER", default_value_t = 0, help_heading = "Arbitrary commands")]
    scan_incremental_max_iterations: u64,

    /// Size of values [default: 32]
    #[arg(short = 'd', long, value_name = "SIZE", help_heading = "Objects")]
    data_size: Option<usize>,
    /// SETRANGE and GETRANGE at this offset
    #[arg(long, value_name = "OFFSET", default_value_t = 0, help_heading = "Objects")]
    data_offset: u64,
    /// Random values, of which one byte changes per request
    #[arg(short = 'R', long, conflicts_with = "data_compressibility", help_heading = "Objects")]
    random_data: bool,
    /// New values for every request, of which compressors remove this share (0–1)
    #[arg(long, value_name = "R", help_heading = "Objects")]
    data_compressibility: Option<f64>,
    /// Sizes from min-max
    #[arg(long, value_name = "RANGE", conflicts_with = "data_size", help_heading = "Objects")]
    data_size_range: Option<String>,
    /// Sizes with weights, size1:weight1,…
    #[arg(long, value_name = "LIST", conflicts_with_all = ["data_size", "data_size_range"], help_heading = "Objects")]
    data_size_list: Option<String>,
    /// With a range of sizes: random (R) or growing over the key range (S)
    #[arg(
        long,
        value_name = "R|S",
        default_value = "R",
        value_parser = ["R", "S"],
        ignore_case = true,
        help_heading = "Objects"
    )]
    data_size_pattern: String,
    /// SETEX with a time to live from min-max; where it is 0, SET
    #[arg(long, value_name = "RANGE", help_heading = "Objects")]
    expiry_range: Option<String>,

    /// Not supported
    #[arg(long, value_name = "FILE", help_heading = "Import")]
    data_import: Option<PathBuf>,
    /// Not supported
    #[arg(long, help_heading = "Import")]
    data_verify: bool,
    /// Not supported
    #[arg(long, help_heading = "Import")]
    verify_only: bool,
    /// Not supported
    #[arg(long, help_heading = "Import")]
    generate_keys: bool,
    /// Not supported
    #[arg(long, help_heading = "Import")]
    no_expiry: bool,

    /// Prefix of keys
    #[arg(long, value_name = "PREFIX", default_value = "memtier-", help_heading = "Keys")]
    key_prefix: OsString,
    /// Smallest key [default: 0]
    #[arg(long, value_name = "NUMBER", help_heading = "Keys")]
    key_minimum: Option<u64>,
    /// Largest key
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000_000, help_heading = "Keys")]
    key_maximum: u64,
    /// Patterns of SETs and GETs: R random, S sequential, P sequential in a part per connection, G Gaussian, Z Zipf
    /// [default: R:R]
    #[arg(long, value_name = "PATTERN", help_heading = "Keys")]
    key_pattern: Option<String>,
    /// Standard deviation of the Gaussian pattern [default: range / 6]
    #[arg(long, value_name = "NUMBER", help_heading = "Keys")]
    key_stddev: Option<f64>,
    /// Middle of the Gaussian pattern [default: middle of the range]
    #[arg(long, value_name = "NUMBER", help_heading = "Keys")]
    key_median: Option<f64>,
    /// Exponent of the Zipf pattern, 0–5
    #[arg(long, value_name = "NUMBER", default_value_t = 1.0, help_heading = "Keys")]
    key_zipf_exp: f64,

    /// SETs to WAITs
    #[arg(long, value_name = "RATIO", help_heading = "WAIT")]
    wait_ratio: Option<String>,
    /// Number of replicas to wait for, from min-max
    #[arg(long, value_name = "RANGE", requires = "wait_ratio", help_heading = "WAIT")]
    num_slaves: Option<String>,
    /// Milliseconds to wait for, from min-max, mostly near its middle
    #[arg(long, value_name = "RANGE", requires = "wait_ratio", help_heading = "WAIT")]
    wait_timeout: Option<String>,
}

/// A parsed command line.
#[derive(Debug)]
pub struct Parsed {
    pub args: Args,
    pub config: Config,
}

/// `argv` without the program's name.
pub fn parse(argv: impl IntoIterator<Item = OsString>) -> Result<Parsed> {
    let argv = std::iter::once(OsString::from("flintkv bench")).chain(argv);
    let matches = Args::command().try_get_matches_from(argv)?;
    let args = Args::from_arg_matches(&matches)?;
    if args.version {
        return Ok(Parsed { args, config: Config::default() });
    }
    args.refuse_unsupported()?;
    let config = args.config(&matches)?;
    config.validate()?;
    Ok(Parsed { args, config })
}

impl Args {
    fn refuse_unsupported(&self) -> Result<()> {
        let others = [
            ("--cluster-mode", self.cluster_mode),
            ("--statsd-host", self.statsd_host.is_some()),
            ("--statsd-port", self.statsd_port.is_some()),
            ("--statsd-prefix", self.statsd_prefix.is_some()),
            ("--statsd-run-label", self.statsd_run_label.is_some()),
            ("--graphite-port", self.graphite_port.is_some()),
            ("--data-import", self.data_import.is_some()),
            ("--data-verify", self.data_verify),
            ("--verify-only", self.verify_only),
            ("--generate-keys", self.generate_keys),
            ("--no-expiry", self.no_expiry),
        ];
        if let Some((name, _)) = others.iter().find(|(_, given)| *given) {
            bail!("{name} {NOT_SUPPORTED}");
        }
        Ok(())
    }

    fn tls(&self) -> Result<Option<Tls>> {
        if !self.tls && !self.uri.as_deref().is_some_and(|uri| uri.starts_with("rediss://")) {
            let given = [
                ("--cert", self.cert.is_some()),
                ("--cacert", self.cacert.is_some()),
                ("--tls-skip-verify", self.tls_skip_verify),
                ("--tls-protocols", self.tls_protocols.is_some()),
                ("--sni", self.sni.is_some()),
            ];
            let alone = given.iter().find(|(_, given)| *given);
            return alone.map_or(Ok(None), |(name, _)| bail!("{name} needs --tls"));
        }
        let protocols = self.tls_protocols.as_deref().unwrap_or_default();
        Ok(Some(Tls {
            cacert: self.cacert.clone(),
            identity: self.cert.clone().zip(self.key.clone()),
            skip_verify: self.tls_skip_verify,
            protocols: protocols.split([',', ' ']).filter(|name| !name.is_empty()).map(str::to_owned).collect(),
            name: self.sni.clone(),
        }))
    }

    fn config(&self, matches: &ArgMatches) -> Result<Config> {
        let family = match (self.ipv4, self.ipv6) {
            (true, _) => Family::V4,
            (_, true) => Family::V6,
            _ => Family::Any,
        };
        let mut config = Config {
            target: Target::Tcp { host: self.host.clone(), port: self.port, family },
            protocol: self.protocol()?,
            auth: self.authenticate.as_deref().map(credentials),
            select_db: self.select_db,
            threads: self.threads,
            clients: self.clients,
            length: self.length()?,
            pipeline: self.pipeline,
            pace: match (self.rate_limiting, self.rate) {
                (Some(rate), _) => Pace::PerConnection(rate),
                (None, Some(rate)) => Pace::OpenLoop(rate),
                (None, None) => Pace::Unlimited,
            },
            keys: KeySpace {
                prefix: self.key_prefix.clone().into_encoded_bytes(),
                min: self.key_minimum.unwrap_or(0),
                max: self.key_maximum,
                stddev: self.key_stddev,
                median: self.key_median,
                zipf_exponent: self.key_zipf_exp,
            },
            work: self.work(matches)?,
            quantiles: self.print_percentiles.iter().map(|percentile| percentile / 100.0).collect(),
            per_client: self.client_stats.is_some(),
            debug: self.debug,
            ..Config::default()
        };
        ensure!(self.key_minimum != Some(0), "--key-minimum must be at least 1");
        ensure!(self.run_count >= 1, "--run-count must be at least 1");
        if let Some(uri) = &self.uri {
            apply_uri(uri, family, &mut config).with_context(|| format!("--uri={uri}"))?;
        }
        if let Some(path) = &self.unix_socket {
            config.target = Target::Unix(path.clone());
        }
        config.tls = self.tls()?;
        if let (Some(start), Some(step), Some(seconds)) = (self.clients_start, self.clients_step, self.step_duration) {
            config.ramp = Some(Ramp { start, step, every: Duration::from_secs(seconds) });
        }
        config.data.offset = self.data_offset;
        config.data.size = self.sizes()?;
        config.data.fill = match self.data_compressibility {
            Some(share) => Fill::Compressible(share),
            None if self.random_data => Fill::Mutated,
            None => Fill::Constant,
        };
        config.seeding = Seeding { seed: self.seed, distinct: self.distinct_client_seed };
        config.reconnect = Reconnect {
            every: self.reconnect_interval,
            on_error: self.reconnect_on_error,
            attempts_max: self.max_reconnect_attempts,
            backoff_factor: self.reconnect_backoff_factor,
            timeout: Duration::from_secs(self.connection_timeout),
            start_jitter_us: (self.thread_conn_start_min_jitter_micros, self.thread_conn_start_max_jitter_micros),
        };
        Ok(config)
    }

    /// Whether every run gets a seed of its own.
    pub fn randomize(&self) -> bool {
        self.randomize
    }

    fn protocol(&self) -> Result<Protocol> {
        match self.protocol.as_str() {
            "redis" => Ok(Protocol::Redis),
            "resp2" => Ok(Protocol::Resp2),
            "resp3" => Ok(Protocol::Resp3),
            "memcache_text" | "memcache_binary" => {
                bail!("--protocol={} {NOT_SUPPORTED}", self.protocol)
            }
            other => bail!("--protocol={other}: expected redis, resp2 or resp3"),
        }
    }

    fn length(&self) -> Result<Length> {
        match (self.test_time, self.requests.as_deref()) {
            (Some(seconds), _) => Ok(Length::Time(Duration::from_secs(seconds))),
            (None, None) => Ok(Config::default().length),
            (None, Some("allkeys")) => Ok(Length::AllKeys),
            (None, Some(count)) => Ok(Length::Requests(number(count, "--requests")?)),
        }
    }

    fn sizes(&self) -> Result<SizeSpec> {
        if let Some(range) = &self.data_size_range {
            let range = parse_range::<usize>(range, "--data-size-range")?;
            let pattern = if self.data_size_pattern.eq_ignore_ascii_case("S") {
                SizePattern::Sequential
            } else {
                SizePattern::Random
            };
            return Ok(SizeSpec::Range { min: *range.start(), max: *range.end(), pattern });
        }
        if let Some(list) = &self.data_size_list {
            let items = list.split(',').map(|item| {
                let (size, weight) = item.split_once(':').context("--data-size-list: expected size:weight,…")?;
                Ok((number(size, "--data-size-list")?, number(weight, "--data-size-list")?))
            });
            return Ok(SizeSpec::List(items.collect::<Result<_>>()?));
        }
        Ok(SizeSpec::Fixed(self.data_size.unwrap_or(32)))
    }

    fn work(&self, matches: &ArgMatches) -> Result<Work> {
        if self.command.is_empty() && self.monitor_input.is_none() {
            ensure!(self.command_ratio.is_empty(), "--command-ratio needs a --command before it");
            ensure!(self.command_key_pattern.is_empty(), "--command-key-pattern needs a --command before it");
            ensure!(!self.scan_incremental_iteration, "--scan-incremental-iteration needs --command=\"SCAN 0 …\"");
            return self.set_get().map(Work::SetGet);
        }
        ensure!(self.ratio.is_none(), "--ratio is for SET and GET; with --command use --command-ratio");
        ensure!(
            self.key_pattern.is_none(),
            "--key-pattern is for SET and GET; with --command use --command-key-pattern"
        );
        ensure!(self.wait_ratio.is_none(), "--wait-ratio cannot be used with --command");
        ensure!(self.multi_key_get == 0, "--multi-key-get cannot be used with --command");
        ensure!(self.data_offset == 0, "--data-offset cannot be used with --command");
        ensure!(self.expiry_range.is_none(), "--expiry-range cannot be used with --command");
        let limited = self.scan_incremental_max_iterations;
        ensure!(limited == 0 || self.scan_incremental_iteration, "--scan-incremental-max-iterations without its mode");
        let monitor = match &self.monitor_input {
            None => None,
            Some(path) => {
                let lines = Arc::new(read_capture(path)?);
                Some(Monitor { lines, random: self.monitor_pattern.eq_ignore_ascii_case("R") })
            }
        };
        Ok(Work::Commands(Commands {
            specs: self.commands(matches)?,
            monitor,
            by_line: self.command_stats_breakdown == "line",
            scan: self
                .scan_incremental_iteration
                .then_some(ScanFollow { continuations_max: self.scan_incremental_max_iterations }),
        }))
    }

    /// Ratios and patterns belong to the command that they follow.
    fn commands(&self, matches: &ArgMatches) -> Result<Vec<CommandSpec>> {
        let places = |name: &str| matches.indices_of(name).into_iter().flatten().collect::<Vec<usize>>();
        let new = |line: &str| CommandSpec { line: line.to_owned(), ratio: 1, pattern: KeyPattern::Random };
        let mut specs: Vec<CommandSpec> = self.command.iter().map(|line| new(line)).collect();
        let mut starts = places("command");
        if specs.is_empty() {
            specs.push(new("__monitor_line@__"));
            starts.push(0);
        }
        let owner = |place: usize| starts.iter().rposition(|&start| start < place);
        for (place, ratio) in places("command_ratio").into_iter().zip(&self.command_ratio) {
            specs[owner(place).context("--command-ratio needs a --command before it")?].ratio = *ratio;
        }
        for (place, text) in places("command_key_pattern").into_iter().zip(&self.command_key_pattern) {
            let owner = owner(place).context("--command-key-pattern needs a --command before it")?;
            specs[owner].pattern = pattern(text).with_context(|| format!("--command-key-pattern={text}"))?;
        }
        Ok(specs)
    }

    fn set_get(&self) -> Result<SetGet> {
        let mut work = SetGet { multi_key_get: self.multi_key_get, ..SetGet::default() };
        if let Some(ratio) = &self.ratio {
            (work.sets, work.gets) = parse_ratio(ratio, "--ratio")?;
        }
        if let Some(text) = &self.key_pattern {
            let (set, get) = text.split_once(':').context("--key-pattern: expected two patterns such as R:R")?;
            work.set_pattern = pattern(set).with_context(|| format!("--key-pattern={text}"))?;
            work.get_pattern = pattern(get).with_context(|| format!("--key-pattern={text}"))?;
        }
        if let Some(range) = &self.expiry_range {
            work.expiry = Some(parse_range(range, "--expiry-range")?);
        }
        if let Some(ratio) = &self.wait_ratio {
            let (sets, waits) = parse_ratio(ratio, "--wait-ratio")?;
            let range = |text: &Option<String>, name, default| match text {
                Some(text) => parse_range(text, name),
                None => Ok(default),
            };
            work.wait = Some(Wait {
                sets,
                waits,
                replicas: range(&self.num_slaves, "--num-slaves", 1..=1)?,
                timeout_ms: range(&self.wait_timeout, "--wait-timeout", 0..=0)?,
            });
        }
        Ok(work)
    }
}

fn number<T: FromStr>(text: &str, option: &str) -> Result<T> {
    text.trim().parse().ok().with_context(|| format!("{option}: '{text}' is not a number that fits"))
}

/// `min-max`, or one number for both.
fn parse_range<T: FromStr + Copy>(text: &str, option: &str) -> Result<RangeInclusive<T>> {
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    Ok(number(low, option)?..=number(high, option)?)
}

fn parse_ratio(text: &str, option: &str) -> Result<(u32, u32)> {
    let (left, right) = text.split_once(':').with_context(|| format!("{option}: expected two numbers such as 1:10"))?;
    Ok((number(left, option)?, number(right, option)?))
}

fn pattern(text: &str) -> Result<KeyPattern> {
    match text {
        "R" | "r" => Ok(KeyPattern::Random),
        "S" | "s" => Ok(KeyPattern::Sequential),
        "G" | "g" => Ok(KeyPattern::Gaussian),
        "P" | "p" => Ok(KeyPattern::Parallel),
        "Z" | "z" => Ok(KeyPattern::Zipf),
        other => bail!("'{other}' is not one of the patterns R, S, G, P, Z"),
    }
}

fn credentials(text: &str) -> Auth {
    match text.split_once(':') {
        Some((user, password)) if !user.is_empty() => {
            Auth { user: Some(user.to_owned()), password: password.to_owned() }
        }
        Some((_, password)) => Auth { user: None, password: password.to_owned() },
        None => Auth { user: None, password: text.to_owned() },
    }
}

/// `redis://[[user]:password@]host[:port][/db]`, or `rediss://` with TLS. Parts that the URI leaves out do not change.
fn apply_uri(uri: &str, family: Family, config: &mut Config) -> Result<()> {
    let rest = uri.strip_prefix("redis://").or_else(|| uri.strip_prefix("rediss://"));
    let rest = rest.context("expected redis://… or rediss://…")?;
    let (authority, db) = rest.split_once('/').unwrap_or((rest, ""));
    let (user_info, address) = match authority.rsplit_once('@') {
        Some((user_info, address)) => (Some(user_info), address),
        None => (None, authority),
    };
    if let Some(user_info) = user_info {
        let (user, password) = user_info.split_once(':').unwrap_or(("", user_info));
        let (user, password) = (percent_decoded(user)?, percent_decoded(password)?);
        config.auth = Some(Auth { user: (!user.is_empty()).then_some(user), password });
    }
    let (host, port) = match address.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => address.split_once(':').map_or((address, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Ok(6379), |port| number(port, "port"))?;
    let host = if host.is_empty() { "localhost" } else { host };
    config.target = Target::Tcp { host: host.to_owned(), port, family };
    if !db.is_empty() {
        config.select_db = number(db, "database")?;
    }
    Ok(())
}

fn percent_decoded(text: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else { bail!("a % without two hexadecimal digits") };
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).context("not UTF-8")
}

#[cfg(test)]
#[path = "args_tests.rs"]
mod tests;
