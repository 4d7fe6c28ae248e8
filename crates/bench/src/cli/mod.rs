//! Owns the program `flintkv bench`: command line in, runs, tables and files out.

mod args;
pub mod interrupt;
mod progress;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::json;

use crate::config::{Config, Work};
use crate::output::{self, Setting, Titled};
use crate::stats::RunStats;
use args::{Args, Parsed};
use base::clock::wall_nanos;
use base::random::mix;

/// The exit code for a signal, as a shell reports it.
const EXIT_INTERRUPTED: u8 = 130;

/// `argv` without the program's name. Every mistake and every failure ends with exit code 1.
pub fn main(argv: impl Iterator<Item = OsString>) -> ExitCode {
    let parsed = match args::parse(argv) {
        Ok(parsed) => parsed,
        Err(error) => {
            if let Some(error) = error.downcast_ref::<clap::Error>() {
                let _ = error.print();
                return if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
            }
            eprintln!("error: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    if parsed.args.version {
        println!("flintkv bench {}", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    match measure(&parsed) {
        Ok(false) => ExitCode::SUCCESS,
        Ok(true) => ExitCode::from(EXIT_INTERRUPTED),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The options of the command line, for completions and manual pages.
pub fn command() -> clap::Command {
    <Args as clap::CommandFactory>::command()
}

/// The run that a command line describes, with its own random seed if the command line asks for one.
pub(crate) fn config_of<T: Into<OsString>>(argv: impl IntoIterator<Item = T>) -> Result<Config> {
    let Parsed { args, mut config } = args::parse(argv.into_iter().map(Into::into))?;
    if args.randomize() {
        config.seeding.seed = seed_of_the_moment();
    }
    Ok(config)
}

/// Runs and reports. Returns true if the run was interrupted.
fn measure(parsed: &Parsed) -> Result<bool> {
    let Parsed { args, config } = parsed;
    interrupt::install();
    let settings = output::settings(config, &report_settings(args));
    if args.show_config {
        eprint!("============== Configuration values: ==============\n{}", output::settings_text(&settings));
        eprintln!("===================================================");
    }
    let mut runs: Vec<RunStats> = Vec::new();
    for number in 1..=args.run_count {
        let mut config = config.clone();
        if args.randomize() {
            config.seeding.seed = seed_of_the_moment();
        }
        eprintln!("[RUN #{number}] Preparing benchmark client...\n[RUN #{number}] Launching threads now...");
        let stats = crate::run(&config, &progress::Line::new(number))?;
        warn(&stats);
        write_run_files(args, &stats, number)?;
        let interrupted = stats.interrupted;
        runs.push(stats);
        if interrupted {
            break;
        }
    }
    let interrupted = runs.last().is_some_and(|run| run.interrupted);
    report(args, &settings, &runs, matches!(config.work, Work::SetGet(_)))?;
    Ok(interrupted)
}

/// Settings that belong to the report, not to the run.
fn report_settings(args: &Args) -> Vec<Setting> {
    let path = |path: &Option<PathBuf>| json!(path.as_ref().map_or(String::new(), |path| path.display().to_string()));
    let yes = |is| json!(if is { "yes" } else { "no" });
    let list = [
        ("run_count", json!(args.run_count)),
        ("randomize", yes(args.randomize())),
        ("out_file", path(&args.out_file)),
        ("json_out_file", path(&args.json_out_file)),
        ("client_stats", path(&args.client_stats)),
        ("hdr_file_prefix", path(&args.hdr_file_prefix)),
        ("print_percentiles", json!(args.print_percentiles)),
        ("print_all_runs", yes(args.print_all_runs)),
    ];
    list.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn seed_of_the_moment() -> u64 {
    mix(wall_nanos() ^ mix(u64::from(std::process::id())))
}

/// Prints what the table does not show but its reader must know.
fn warn(stats: &RunStats) {
    let error_replies = stats.totals.errors;
    if error_replies > 0 || stats.connection_errors > 0 {
        eprintln!("warning: {error_replies} error replies, {} connection errors", stats.connection_errors);
    }
    for (text, count) in &stats.error_texts {
        eprintln!("warning: {count} × {text}");
    }
    if stats.unsent > 0 {
        let unsent = stats.unsent;
        eprintln!("warning: {unsent} requests were due but could not be sent: the server did not hold the rate");
    }
    if stats.interrupted {
        eprintln!("warning: interrupted; these are the results so far");
    }
}

fn write_run_files(args: &Args, stats: &RunStats, run: u32) -> Result<()> {
    if let Some(prefix) = &args.hdr_file_prefix {
        let mut parts = vec![(format!("_FULL_RUN_{run}"), &stats.totals)];
        for row in stats.rows.iter().filter(|row| row.count > 0) {
            // A command line may contain characters that a file name may not.
            let name = row.name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_");
            parts.push((format!("_{name}_command_run_{run}"), row));
        }
        for (suffix, row) in parts {
            let path = |extension| suffixed(prefix, &format!("{suffix}.{extension}"));
            write_file(&path("txt"), &output::hdr_log(&row.latency, stats.started, stats.duration))?;
            write_file(&path("hgrm"), &output::hgrm(&row.latency))?;
        }
    }
    if let Some(prefix) = &args.client_stats {
        for client in &stats.per_client {
            let path = suffixed(prefix, &format!("-{run}-{}-{}.csv", client.thread, client.client));
            write_file(&path, &output::client_csv(client))?;
        }
    }
    Ok(())
}

fn suffixed(prefix: &Path, suffix: &str) -> PathBuf {
    let mut path = prefix.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

fn write_file(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn report(args: &Args, settings: &[Setting], runs: &[RunStats], has_hits: bool) -> Result<()> {
    let Some(first) = runs.first() else {
        return Ok(());
    };
    let aggregate = RunStats::aggregate(runs);
    let titled = titles(runs, aggregate.as_ref(), args.print_all_runs);
    let mut text = format!("{:<9} Threads\n{:<9} Connections per thread\n", first.threads, first.clients);
    let _ = match first.requests_per_client {
        Some(requests) => writeln!(text, "{requests:<9} Requests per client\n\n"),
        None => writeln!(text, "{:<9} Seconds\n\n", first.duration.as_secs_f64().round()),
    };
    for one in &titled {
        text.push_str(&output::table(one, &args.print_percentiles, has_hits));
        text.push_str("\n\n");
        if !args.hide_histogram {
            text.push_str(&output::distribution(one));
            text.push('\n');
        }
    }
    match &args.out_file {
        Some(path) => write_file(path, &text)?,
        None => {
            let mut stdout = std::io::stdout().lock();
            stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("cannot write the results")?;
        }
    }
    if let Some(path) = &args.json_out_file {
        let report = output::json(settings, &titled, &args.print_percentiles);
        write_file(path, &format!("{report:#}\n"))?;
    }
    Ok(())
}

/// A single run has the title ALL STATS. Of several runs, the best, the worst and the average are shown.
fn titles<'a>(runs: &'a [RunStats], aggregate: Option<&'a RunStats>, every_run: bool) -> Vec<Titled<'a>> {
    if let [only] = runs {
        return vec![Titled { title: String::from("ALL STATS"), stats: only, runs: 1 }];
    }
    let mut titled = Vec::new();
    if every_run {
        for (index, stats) in runs.iter().enumerate() {
            titled.push(Titled { title: format!("RUN #{} RESULTS", index + 1), stats, runs: 1 });
        }
    }
    let rate = |run: &RunStats| run.totals.ops_per_s(run.duration);
    let by_rate = |a: &&RunStats, b: &&RunStats| rate(a).total_cmp(&rate(b));
    if let (Some(best), Some(worst)) = (runs.iter().max_by(by_rate), runs.iter().min_by(by_rate)) {
        titled.push(Titled { title: String::from("BEST RUN RESULTS"), stats: best, runs: 1 });
        titled.push(Titled { title: String::from("WORST RUN RESULTS"), stats: worst, runs: 1 });
    }
    if let Some(stats) = aggregate {
        let title = format!("AGGREGATED AVERAGE RESULTS ({} runs)", runs.len());
        titled.push(Titled { title, stats, runs: runs.len() as u32 });
    }
    titled
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Row;
    use std::time::Duration;

    fn run(count: u64, seconds: u64) -> RunStats {
        let mut totals = Row::new("ALL", "Totals");
        totals.count = count;
        RunStats {
            name: String::new(),
            started: std::time::SystemTime::UNIX_EPOCH,
            duration: Duration::from_secs(seconds),
            threads: 1,
            clients: 1,
            requests_per_client: None,
            rows: vec![],
            totals,
            quantiles: vec![],
            connection_errors: 0,
            error_texts: vec![],
            unsent: 0,
            interrupted: false,
            per_client: vec![],
        }
    }

    #[test]
    fn several_runs_show_the_best_the_worst_and_the_average() {
        let runs = [run(100, 1), run(300, 1), run(200, 2)];
        let aggregate = RunStats::aggregate(&runs);
        let titles = titles(&runs, aggregate.as_ref(), true);
        let names: Vec<(&str, f64)> = titles
            .iter()
            .map(|titled| (titled.title.as_str(), titled.stats.totals.ops_per_s(titled.stats.duration)))
            .collect();
        let expected = [
            ("RUN #1 RESULTS", 100.0),
            ("RUN #2 RESULTS", 300.0),
            ("RUN #3 RESULTS", 100.0),
            ("BEST RUN RESULTS", 300.0),
            ("WORST RUN RESULTS", 100.0),
            ("AGGREGATED AVERAGE RESULTS (3 runs)", 150.0),
        ];
        assert_eq!(names, expected);
    }
}
