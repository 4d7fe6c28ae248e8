//! Owns `bench-suite`, the program behind `make bench`: all published figures, measured on this machine within one run, with
//! their targets. It is no part of the binary that is shipped. Never knows the server's code.
//!
//! `figure` is a result, `lab` the servers and the load; `hot`, `cold`, `tiered` (the group `flash`), `keys`, `endurance`, `commands`,
//! `replication`, `cluster`, `failover`, `durability` and `scenarios` measure.

mod cluster;
mod cold;
mod commands;
mod durability;
mod endurance;
mod failover;
mod figure;
mod hot;
mod keys;
mod lab;
mod replication;
mod scenarios;
mod tiered;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;

use bench::cli::interrupt;
use bench::report::Table;
use bench::scenario::steps::machine;
use figure::{Figure, table};
use lab::Lab;

/// Prints every figure with its target. A figure is the median of several repetitions; ratios are taken within one run,
/// against redis-server.
#[derive(Parser, Debug)]
#[command(name = "bench-suite", disable_version_flag = true, max_term_width = 120)]
struct Args {
    /// One repetition, shorter runs, fewer keys
    #[arg(long)]
    quick: bool,
    /// The restart of a hundred million keys too: ten minutes and 32 GB of flash more
    #[arg(long, conflicts_with = "quick")]
    big: bool,
    /// Only these groups: hot, cold, flash, endurance, keys, commands, replication, cluster, failover, durability, scenarios. Repeatable
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Figures and the measurements behind them, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Figures as a Markdown table
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Where flash is put [default: a temporary directory that takes O_DIRECT]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The binary that is measured [default: flintkv beside this program]
    #[arg(long, value_name = "FILE")]
    flintkv: Option<PathBuf>,
}

type Measure = fn(&mut Lab) -> Result<Vec<Figure>>;

const GROUPS: [(&str, &str, Measure); 11] = [
    ("hot", "all in RAM, and with flash, against redis-server", hot::measure),
    ("cold", "nothing in RAM", cold::measure),
    ("flash", "what flash costs the published load, against all in RAM and the device", tiered::measure),
    ("endurance", "flash that is nearly full", endurance::measure),
    ("keys", "more and more keys", keys::measure),
    ("commands", "redis-benchmark's list, scripts, pub/sub, small collections", commands::measure),
    ("replication", "a primary with a replica, copies, and a primary that is lost", replication::measure),
    ("cluster", "four shards on two nodes, against one node", cluster::measure),
    ("failover", "a shard with a replica that loses its primary", failover::measure),
    (
        "durability",
        "a dataset that survives restarts: what a journal costs, restarts, and what is lost",
        durability::measure,
    ),
    ("scenarios", "every published scenario, and how far it compresses", scenarios::measure),
];

/// Exit code 1 if something failed. A missed target is exit code 0: this is a measurement, not a test.
fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether every group could be measured.
fn run(args: &Args) -> Result<bool> {
    interrupt::install();
    if let Some(unknown) = args.only.iter().find(|only| !GROUPS.iter().any(|(name, ..)| name == only)) {
        bail!("--only {unknown}: the groups are {}", GROUPS.map(|(name, ..)| name).join(", "));
    }
    let flintkv = match &args.flintkv {
        Some(path) => path.clone(),
        None => std::env::current_exe().context("cannot find this program")?.with_file_name("flintkv"),
    };
    ensure!(flintkv.is_file(), "no binary at {}", flintkv.display());
    // Processes of clusters are those of the tests.
    flintkv_tests::set_binary(&flintkv);
    let begun = Instant::now();
    let mut lab = Lab::new(args.quick, args.big, args.dir.as_deref(), flintkv)?;
    let mut figures = Vec::new();
    for (name, what, measure) in GROUPS {
        if !args.only.is_empty() && !args.only.iter().any(|only| only == name) {
            continue;
        }
        eprintln!("\n== {name}: {what}");
        let begun = Instant::now();
        match measure(&mut lab) {
            Ok(measured) => figures.extend(measured),
            Err(error) if interrupt::interrupted() => return Err(error),
            // If a figure cannot be measured, the others are still measured.
            Err(error) => lab.note_failure(name, &error),
        }
        eprintln!("   {name} took {:.0} s", begun.elapsed().as_secs_f64());
    }
    figures.extend(lab.fill_figure());
    let title = format!(
        "{}, {}{:.0} min, {}",
        machine(),
        if args.quick { "quick run of " } else { "medians of three, " },
        (begun.elapsed().as_secs_f64() / 60.0).ceil(),
        lab.versions.join(" against ")
    );
    let table: Table = table(&title, &figures);
    println!("\n{}", table.text());
    for failure in &lab.failed {
        println!("not measured: {failure}");
    }
    if let Some(path) = &args.markdown {
        let text = format!("{}\n{title}.\n", table.markdown());
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(path) = &args.json {
        let whole = serde_json::json!({ "title": title, "figures": figures, "shots": lab.shots, "failed": lab.failed });
        std::fs::write(path, format!("{whole:#}\n")).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(lab.failed.is_empty())
}
