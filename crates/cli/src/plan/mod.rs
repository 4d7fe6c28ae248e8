//! Owns `flintkv plan`: how much RAM and flash data need, described by numbers, or measured in a running Redis, a dump or a
//! capture of MONITOR. The crate `survey` measures and plans. Never changes anything.

mod report;

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::device::Device;
use indicatif::ProgressBar;
use survey::plan::{Aim, Said, plan, printed_devices};
use survey::{Address, SampledWorkload, Stage};

use crate::args;
use crate::failure::Failure;
use crate::prepare::{measure_directory, stop_on_signals};
use crate::progress;

/// The hint that names the sources of a sample, for when the data are not described by numbers.
const SOURCES: &str = "or measure them: --from redis://HOST[:PORT] a running Redis, which is only read, --rdb FILE a dump, --trace FILE a capture \
                       of MONITOR; flintkv plan --help has all options";

pub fn run(args: &args::Plan) -> Result<String, Failure> {
    if args.from.is_none() && args.rdb.is_none() && args.trace.is_none() {
        let missing = match (args.keys, args.value_size) {
            (None, None) => Some("a plan needs to know the data: how many keys there are, and how large values are"),
            (None, Some(_)) => Some("--keys is missing: how many keys there are"),
            (Some(_), None) => Some("--value-size is missing: how large values are, on average"),
            (Some(_), Some(_)) => None,
        };
        if let Some(missing) = missing {
            return Err(Failure::refused(missing)
                .hint(format!("give both: flintkv plan --keys 75m --value-size 500; {SOURCES}")));
        }
    }
    let device = device(&args.flash)?;
    let sampled = learn(args)?;
    let said = Said {
        keys: args.keys,
        key_bytes: args.key_size,
        value_bytes: args.value_size,
        compression: args.compression,
        skew: args.skew,
        reads_per_second: args.reads.map(|rate| rate as f64),
        writes_per_second: args.writes.map(|rate| rate as f64),
        workers: args.workers,
        has_journal: !args.no_journal,
        aim: args.ram_share.map_or(Aim::HitRatio(args.hit_ratio), Aim::RamShare),
        prices: args.ram_price.zip(args.flash_price),
        device,
    };
    let planned =
        plan(&sampled, &said).map_err(|wrong| Failure::refused(format!("{}: {}", option(wrong.field), wrong.why)))?;
    match args.json {
        true => serde_json::to_string_pretty(&planned)
            .map(|text| text + "\n")
            .map_err(|error| Failure::failed(error.to_string())),
        false => Ok(report::text(&planned)),
    }
}

/// The option that a field of a plan comes from.
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
        "hit_ratio" => "--hit-ratio",
        "ram_share" => "--ram-share",
        "ram_price" => "--ram-price",
        "flash_price" => "--flash-price",
        field => field,
    }
}

fn learn(args: &args::Plan) -> Result<SampledWorkload, Failure> {
    let mut sampled = match &args.from {
        Some(from) => from_server(from, args)?,
        None => SampledWorkload::default(),
    };
    if let Some(path) = &args.rdb {
        with_bar(path, |report| sampled.add_dump(path, report))?;
    }
    if let Some(path) = &args.trace {
        with_bar(path, |report| sampled.add_capture(path, report))?;
    }
    let is_empty = sampled.sample.as_ref().is_some_and(|sample| sample.keys == 0);
    if is_empty && args.keys.is_none() {
        return Err(Failure::failed(format!("{} has no keys to measure", sampled.sources.join(", ")))
            .hint("give --keys and --value-size if the data do not exist yet"));
    }
    if let Some(uses) = sampled.uses.as_ref().filter(|uses| uses.curve.is_empty()) {
        let few = format!("{} reads of keys are too few to measure how keys are used", uses.reads);
        return Err(Failure::failed(few).hint("measure for longer, or give --skew instead of --monitor or --trace"));
    }
    if sampled.sample.is_none() && (args.keys.is_none() || args.value_size.is_none()) {
        return Err(Failure::refused(format!(
            "{} sets no values, so their size is not known",
            sampled.sources.join(", ")
        ))
        .hint("give --keys and --value-size, or add --from or --rdb"));
    }
    Ok(sampled)
}

fn from_server(from: &str, args: &args::Plan) -> Result<SampledWorkload, Failure> {
    let address: Address = from.parse().map_err(|why: String| Failure::refused(format!("--from: {why}")))?;
    let address = address.with_password(args.from_password.as_deref());
    // The first signal ends only the monitoring, not the command.
    let stop = args.monitor.map(|_| stop_on_signals()).transpose()?;
    let bar = bar(&address.to_string());
    let go_on = |stage: Stage, part: f64| {
        bar.set_prefix(match stage {
            Stage::Watching => format!("watching {address}"),
            Stage::Looking => format!("reading keys of {address}"),
        });
        bar.set_position((part * 1000.0) as u64);
        stage == Stage::Looking || !stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed))
    };
    let time = args.monitor.map(|seconds| Duration::from_secs(seconds.into()));
    let sampled = SampledWorkload::from_server(&address, args.cacert.as_deref(), time, &go_on);
    bar.finish_and_clear();
    Ok(sampled?)
}

/// The speed of flash: measured now, or from the output of `prepare-flash --json`. Several devices share the reads.
fn device(paths: &[PathBuf]) -> Result<Option<Device>, Failure> {
    let mut devices = Vec::new();
    for path in paths {
        if path.is_dir() {
            devices.push(measure_directory(path)?);
        } else {
            let about =
                |why: &str, hint: String| Failure::refused(format!("--flash {}: {why}", path.display())).hint(hint);
            let hint = "a directory is expected, or a file with the output of flintkv prepare-flash --json DIR";
            let text = std::fs::read_to_string(path).map_err(|error| about(&error.to_string(), hint.to_owned()))?;
            devices.extend(printed_devices(&text).map_err(|error| about(&error.message, error.hint))?);
        }
    }
    Ok(Device::together(&devices))
}

fn bar(what: &str) -> ProgressBar {
    progress::bar("{prefix} [{bar:30}] {percent:>3}%", 1000).with_prefix(what.to_owned())
}

fn with_bar<T>(path: &Path, read: impl FnOnce(&dyn Fn(f64)) -> Result<T, survey::Error>) -> Result<T, Failure> {
    let bar = bar(&path.display().to_string());
    let done = read(&|part| bar.set_position((part * 1000.0) as u64));
    bar.finish_and_clear();
    Ok(done?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn plan(line: &str) -> Result<String, Failure> {
        let cli = Cli::try_parse_from(["flintkv", "plan"].into_iter().chain(line.split_whitespace())).expect(line);
        let Command::Plan(args) = cli.command else { panic!("{line}") };
        run(&args)
    }

    /// The report explains that 42.8 M values in RAM and 60.9 M on flash are not 103.7 M keys, because some values are
    /// in both.
    #[test]
    fn values_that_are_in_ram_and_on_flash_are_named() {
        let text = plan("--keys 75m --value-size 500 --skew 0.8 --hit-ratio 85% --reads 100k --writes 10k").unwrap();
        let row = text.lines().find(|line| line.starts_with("flash ")).unwrap();
        let number = |word: &str| {
            row.split(word).next().unwrap().rsplit(' ').find(|part| part.ends_with('M')).unwrap().to_owned()
        };
        let of = |text: String| text.trim_end_matches('M').parse::<f64>().unwrap();
        let (all, cold, copies) =
            (of(number(" values, 80")), of(number(" of them are not in RAM")), of(number(" are copies of values")));
        assert!((all - cold - copies).abs() < 0.2 && copies > 1.0, "{row}");
        assert!(
            !plan("--keys 75m --value-size 500 --skew 0.8 --reads 0 --writes 10k --ram-share 0%")
                .unwrap()
                .contains("copies of values")
        );
    }

    #[test]
    fn without_data_the_plan_says_what_it_needs() {
        for (line, needs) in [
            ("", "a plan needs to know the data: how many keys there are, and how large values are"),
            ("--keys 75m", "--value-size is missing: how large values are, on average"),
            ("--value-size 500", "--keys is missing: how many keys there are"),
        ] {
            let refused = plan(line).unwrap_err();
            assert_eq!((refused.code, refused.message.as_str()), (2, needs), "{line}");
            assert!(
                refused.hint.contains("--keys 75m --value-size 500") && refused.hint.contains("--from redis://HOST")
            );
        }
    }
}
