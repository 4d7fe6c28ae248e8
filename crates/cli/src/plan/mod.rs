//! Owns `flintkv plan`: what data take here, described by numbers, or measured in a running Redis, a dump or a capture of MONITOR. The arithmetic is
//! `base::sizing`'s, the measuring `survey`'s. Never changes anything.

mod report;

use std::path::Path;
use std::time::Duration;

use base::device::{Device, Expected, ReadPoint};
use base::pattern::Pattern;
use base::sizing::{Demand, Sizing};
use indicatif::{ProgressBar, ProgressStyle};
use survey::{Address, Sample, Server, Traffic, Usage, Watched, look, read_capture, read_dump, watch};

use crate::args;
use crate::failure::Failure;
use crate::prepare::{measure_directory, stop_on_signals};

/// How many keys of a running server are measured.
const SAMPLES: usize = 10_000;
const KEY_BYTES: u64 = 16;
/// Of a load of which nothing else is known.
const TYPICAL_SKEW: f64 = 0.8;
/// Such a load lies between these: all keys alike, and most reads on few keys.
const SKEWS: [f64; 2] = [0.0, 1.1];

/// What was learnt of the data and their use.
#[derive(Default)]
struct Sources {
    /// Where from, for people.
    names: Vec<String>,
    sample: Option<Sample>,
    traffic: Option<Traffic>,
    usage: Option<Usage>,
    watched: Option<WatchCost>,
}

/// What watching a server has cost it.
struct WatchCost {
    seconds: f64,
    commands: u64,
    bytes: u64,
    cores_before: Option<f64>,
    cores_meanwhile: Option<f64>,
    ended_early: bool,
}

/// The answer.
struct Planned {
    sources: Sources,
    demand: Demand,
    /// Nothing is known of how the keys are used: the hit ratio lies between two.
    is_skew_guessed: bool,
    prices: Option<(f64, f64)>,
    chosen: Sizing,
    device: Option<Device>,
}

impl Planned {
    /// The hit ratios between which the true one lies, if the skew is a guess.
    fn range(&self, ram_share: f64) -> Option<[f64; 2]> {
        let of =
            |skew| Demand { pattern: Pattern::Skew(skew), ..self.demand.clone() }.for_ram_share(ram_share).hit_ratio;
        self.is_skew_guessed.then(|| SKEWS.map(of))
    }

    /// So many values were never used while it was measured: the hit ratio is what the nearest law says.
    fn is_beyond(&self, sizing: &Sizing) -> bool {
        match &self.demand.pattern {
            Pattern::Measured(curve) => sizing.ram_share < 1.0 && sizing.hot_values as f64 > curve.end().0,
            Pattern::Skew(_) => false,
        }
    }

    fn expected(&self, sizing: &Sizing) -> Option<Expected> {
        let value = self.demand.key_bytes + self.demand.value_bytes;
        self.device.as_ref().map(|device| device.expected(sizing, self.demand.writes_per_second * value as f64))
    }
}

pub fn run(args: &args::Plan) -> Result<String, Failure> {
    let device = device(&args.flash)?;
    let sources = sources(args)?;
    let pattern = match (&sources.usage, args.skew) {
        (Some(usage), _) if !usage.curve().is_empty() => Pattern::Measured(usage.curve()),
        (Some(usage), _) => {
            return Err(Failure::failed(format!(
                "{} reads of keys are too few to tell how keys are used",
                usage.reads()
            ))
            .hint("watch for longer, or say --skew instead"));
        }
        (None, skew) => Pattern::Skew(skew.unwrap_or(TYPICAL_SKEW)),
    };
    let is_skew_guessed = sources.usage.is_none() && args.skew.is_none();
    let demand = demand(args, &sources, pattern);
    demand.check().map_err(|wrong| Failure::refused(format!("{}: {}", option(wrong.field), wrong.why)))?;
    for (option, price) in [("--ram-price", args.ram_price), ("--flash-price", args.flash_price)] {
        if price.is_some_and(|price| !(0.0..=1e9).contains(&price)) {
            return Err(Failure::refused(format!("{option}: must be from 0 to 10^9")));
        }
    }
    let chosen = match args.ram_share {
        Some(share) => demand.for_ram_share(share),
        None => demand.for_hit_ratio(args.hit_ratio),
    };
    let prices = args.ram_price.zip(args.flash_price);
    let planned = Planned { sources, demand, is_skew_guessed, prices, chosen, device };
    Ok(if args.json { report::json(&planned) } else { report::text(&planned) })
}

/// The option that a field of a demand comes from.
fn option(field: &str) -> &str {
    match field {
        "keys" => "--keys",
        "key_bytes" => "--key-size",
        "value_bytes" => "--value-size",
        "compression" => "--compression",
        "skew" => "--skew",
        "reads_per_second" => "--reads",
        "writes_per_second" => "--writes",
        "workers" => "--workers",
        field => field,
    }
}

fn sources(args: &args::Plan) -> Result<Sources, Failure> {
    let mut sources = Sources::default();
    if let Some(from) = &args.from {
        server(from, args, &mut sources)?;
    }
    if let Some(path) = &args.rdb {
        let sample = with_bar(path, |report| read_dump(path, report))?;
        sources.names.push(format!("{}, written by version {}", path.display(), sample.version));
        sources.sample = Some(sample);
    }
    if let Some(path) = &args.trace {
        let capture = with_bar(path, |report| read_capture(path, report))?;
        sources.names.push(format!("{}, {:.0} s", path.display(), capture.seconds()));
        sources.traffic = Some(capture.traffic());
        let known = sources.sample.take();
        sources.sample = known.or_else(|| (capture.written.sampled > 0).then_some(capture.written));
        sources.usage = Some(capture.usage);
    }
    let is_empty = sources.sample.as_ref().is_some_and(|sample| sample.keys == 0);
    if is_empty && args.keys.is_none() {
        return Err(Failure::failed(format!("{} has no keys to measure", sources.names.join(", "))));
    }
    if sources.sample.is_none() && (args.keys.is_none() || args.value_size.is_none()) {
        return Err(Failure::refused(format!(
            "{} sets no values, so their size is not known",
            sources.names.join(", ")
        ))
        .hint("say --keys and --value-size, or add --from or --rdb"));
    }
    Ok(sources)
}

fn server(from: &str, args: &args::Plan, sources: &mut Sources) -> Result<(), Failure> {
    let address: Address = from.parse().map_err(|why: String| Failure::refused(format!("--from: {why}")))?;
    let address = address.with_password(args.from_password.as_deref());
    let mut server = Server::connect(&address, args.cacert.as_deref())?;
    // Before the sample, which is a load of its own.
    sources.traffic = Some(Traffic::of(&mut server)?);
    if let Some(seconds) = args.monitor {
        let stop = stop_on_signals()?;
        let bar = bar(&format!("watching {address}"));
        let go_on = |part: f64| {
            bar.set_position((part * 1000.0) as u64);
            !stop.load(std::sync::atomic::Ordering::Relaxed)
        };
        let watched = watch(&address, args.cacert.as_deref(), Duration::from_secs(seconds.into()), &go_on)?;
        bar.finish_and_clear();
        let Watched { capture, seconds, cores_before, cores_meanwhile, ended_early } = watched;
        sources.traffic = Some(capture.traffic());
        let (commands, bytes) = (capture.commands, capture.bytes);
        sources.watched = Some(WatchCost { seconds, commands, bytes, cores_before, cores_meanwhile, ended_early });
        sources.usage = Some(capture.usage);
    }
    let sample = look(&mut server, SAMPLES)?;
    let is_of_cluster = server.info("server")?.get("redis_mode").is_some_and(|mode| mode == "cluster");
    let part = if is_of_cluster { ", one node of a cluster: its own keys only" } else { "" };
    sources.names.push(format!("{address}, version {}{part}", sample.version));
    sources.sample = Some(sample);
    Ok(())
}

fn demand(args: &args::Plan, sources: &Sources, pattern: Pattern) -> Demand {
    let sample = sources.sample.as_ref();
    let rate = |said: Option<u64>, measured: Option<f64>| said.map(|rate| rate as f64).or(measured).unwrap_or(0.0);
    Demand {
        keys: args.keys.or(sample.map(|sample| sample.keys)).unwrap_or(0),
        key_bytes: args.key_size.or(sample.map(Sample::name_bytes)).unwrap_or(KEY_BYTES),
        value_bytes: args.value_size.or(sample.map(Sample::value_bytes)).unwrap_or(0),
        compression: args.compression.or(sample.map(Sample::compression)).unwrap_or(1.0),
        pattern,
        reads_per_second: rate(args.reads, sources.traffic.map(|traffic| traffic.reads_per_second)),
        writes_per_second: rate(args.writes, sources.traffic.map(|traffic| traffic.writes_per_second)),
        workers: args.workers,
        has_journal: !args.no_journal,
        has_console: true,
    }
}

/// What flash can do: measured now, or as `prepare-flash --json` has printed it. Several share the reads.
fn device(paths: &[std::path::PathBuf]) -> Result<Option<Device>, Failure> {
    let mut devices = Vec::new();
    for path in paths {
        if path.is_dir() {
            devices.push(measure_directory(path)?);
        } else {
            devices.extend(printed(path)?);
        }
    }
    Ok(Device::together(&devices))
}

fn printed(path: &Path) -> Result<Vec<Device>, Failure> {
    let about = |why: &dyn std::fmt::Display| {
        Failure::refused(format!("--flash {}: {why}", path.display()))
            .hint("it takes a directory, or a file that flintkv prepare-flash --json DIR has printed")
    };
    let text = std::fs::read_to_string(path).map_err(|error| about(&error))?;
    let printed: serde_json::Value = serde_json::from_str(&text).map_err(|error| about(&error))?;
    let number = |of: &serde_json::Value, name: &str| of[name].as_f64().filter(|number| *number >= 0.0);
    let point = |point: &serde_json::Value| {
        Some(ReadPoint {
            reads_per_second: number(point, "reads_per_second")?,
            latency_us: number(point, "latency_us")?,
            latency_p99_us: number(point, "latency_p99_us")?,
            cpu_us_per_read: number(point, "cpu_us_per_read")?,
        })
    };
    let device = |directory: &serde_json::Value| {
        Some(Device {
            reads: directory["reads"].as_array()?.iter().map(point).collect::<Option<_>>()?,
            write_bytes_per_second: number(directory, "write_bytes_per_second")?,
        })
    };
    let directories = printed["directories"].as_array().filter(|directories| !directories.is_empty());
    let devices: Option<Vec<Device>> = directories.and_then(|all| all.iter().map(device).collect());
    devices.ok_or_else(|| about(&"it has no figures of a measurement"))
}

fn bar(what: &str) -> ProgressBar {
    let bar = ProgressBar::new(1000);
    let style = ProgressStyle::with_template("{prefix} [{bar:30}] {percent:>3}%").expect("the template is fixed");
    bar.set_style(style.progress_chars("=> "));
    bar.set_prefix(what.to_owned());
    bar
}

fn with_bar<T>(path: &Path, read: impl FnOnce(&dyn Fn(f64)) -> Result<T, survey::Error>) -> Result<T, Failure> {
    let bar = bar(&path.display().to_string());
    let done = read(&|part| bar.set_position((part * 1000.0) as u64));
    bar.finish_and_clear();
    Ok(done?)
}
