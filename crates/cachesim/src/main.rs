//! Owns the program of the simulator: `scripts/cachesim.sh`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use clap::Parser;

use cachesim::traces::{Capture, Moving, Published, Recent, Scan, Trace, Zipf};
use cachesim::{Setup, simulate};

/// Prints which part of the reads finds its value in RAM, and which values stay there, by replacement policy.
#[derive(Parser, Debug)]
#[command(name = "cachesim", disable_version_flag = true, max_term_width = 120)]
struct Args {
    /// Number of keys
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1000..=1_000_000_000))]
    keys: u32,
    /// Only these traces
    #[arg(long, value_name = "TRACE", value_delimiter = ',')]
    only: Vec<String>,
    /// Parts of the values that RAM has room for, 0.001 to 1, instead of each trace's own
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    ram: Vec<f64>,
    /// The same seed gives the same tables
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Files with MONITOR's output, instead of the traces
    captures: Vec<PathBuf>,
}

/// Its name, the parts of the values that RAM has room for, and what makes it.
type Row = (&'static str, &'static [f64], fn(Setup) -> Box<dyn Trace>);

/// RAM for 28 % of the values is what the published limits leave them; the parts beside it are what other overheads would leave.
const TRACES: [Row; 5] = [
    ("published", &[0.252, 0.28, 0.308], |setup| Box::new(Published(setup))),
    ("scan", &[0.28], |setup| Box::new(Scan(setup))),
    ("moving", &[0.28], |setup| Box::new(Moving(setup))),
    ("recent", &[0.1, 0.28], |setup| Box::new(Recent(setup))),
    ("zipf", &[0.02, 0.1, 0.28], |setup| Box::new(Zipf(setup))),
];

const CAPTURE_RAM: &[f64] = &[0.02, 0.1, 0.28];

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    if let Some(unknown) = args.only.iter().find(|only| !TRACES.iter().any(|(name, ..)| name == only)) {
        bail!("--only {unknown}: the traces are {}", TRACES.map(|(name, ..)| name).join(", "));
    }
    ensure!(args.ram.iter().all(|part| (0.001..=1.0).contains(part)), "--ram: each part is from 0.001 to 1");
    let ram = |own: &'static [f64]| if args.ram.is_empty() { own } else { &args.ram };
    for path in &args.captures {
        print(&Capture::read(path, ram(CAPTURE_RAM), args.seed)?);
    }
    if !args.captures.is_empty() {
        return Ok(());
    }
    for (name, own, trace) in TRACES {
        if args.only.is_empty() || args.only.iter().any(|only| only == name) {
            ram(own).iter().for_each(|&part| print(&*trace(Setup::of(args.keys as usize, part, args.seed))));
        }
    }
    Ok(())
}

fn print(trace: &dyn Trace) {
    println!("{}", simulate(trace).markdown());
}
