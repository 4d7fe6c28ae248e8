//! Owns `flintkv scenario`: a published benchmark, from an empty server to a table beside the published figures. Never
//! knows the server's code: everything it learns comes over sockets and from /proc.
//!
//! Reading order: `spec` (what is published, at a scale), `steps` (populate, centralise, dry run, measured run), `phase`
//! (one step), `search` (for a hit ratio), `node` and `wire` (the server under test), `info` and `watch` (the figures that
//! it reports), `outcome` (the table).

mod args;
pub mod info;
pub mod node;
pub mod outcome;
pub mod phase;
pub mod scale;
pub mod search;
pub mod spec;
pub mod steps;
pub mod watch;
pub mod wire;

pub use args::Name;
pub use scale::Scale;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use crate::cli::interrupt;
use crate::report::{self, Report};
use args::Args;
use node::{Node, Program, scratch_base};
use spec::{Limits, Spec, Work};
use steps::Settings;

/// `argv` without the program's name. Every mistake and every failure ends with exit code 1.
pub fn main(argv: impl Iterator<Item = OsString>) -> ExitCode {
    let outcome = Args::parse(argv).and_then(|args| run(&args));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if let Some(error) = error.downcast_ref::<clap::Error>() {
                let _ = error.print();
                return if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
            }
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The options of the command line, for completions and manual pages.
pub fn command() -> clap::Command {
    <Args as clap::CommandFactory>::command()
}

/// A scenario as an entry of a list, at full size.
#[derive(Clone, Debug)]
pub struct ScenarioInfo {
    pub name: &'static str,
    pub title: &'static str,
    pub published_by: &'static str,
    pub machine: &'static str,
    pub keys: u64,
    pub raw_bytes: u64,
    pub memory_bytes: u64,
    pub ram_bytes: u64,
}

/// All scenarios.
pub fn catalog() -> Vec<ScenarioInfo> {
    let card = |name: &Name| {
        let Spec { title, name, keys, raw_bytes, limits, published, .. } = spec::spec(*name, Scale::ONE);
        let Limits { memory, ram } = limits;
        ScenarioInfo {
            name,
            title,
            published_by: published.by,
            machine: published.machine,
            keys,
            raw_bytes,
            memory_bytes: memory,
            ram_bytes: ram,
        }
    };
    Name::value_variants().iter().map(card).collect()
}

fn run(args: &Args) -> Result<()> {
    interrupt::install();
    if args.json_lines {
        phase::tell_in_json();
    }
    let spec = spec::spec(args.name, args.scale);
    has_keys(&spec)?;
    let (mut node, compared, programs) = servers(args, &spec)?;
    let settings = Settings {
        test_time: args.test_time(),
        dry_run_max: args.dry_time.map(Duration::from_secs),
        hit_ratio: args.hit_ratio,
        threads: args.threads,
        compressibility: args.data_compressibility,
    };
    let mut outcome = steps::run(&spec, &settings, &mut node, compared)?;
    outcome.report.facts.extend(programs.into_iter().map(|line| (String::from("server's command"), line)));
    let report = outcome.report;
    if args.json_lines {
        println!("{}", serde_json::json!({ "report": &report, "measured": &outcome.measured }));
    } else {
        println!();
        for table in &report.tables {
            println!("{}", table.text());
        }
        for note in &report.notes {
            println!("note: {note}");
        }
    }
    if let Some(path) = &args.report {
        write(path, &report::html(&report))?;
        eprintln!("report: {}", path.display());
    }
    if let Some(path) = &args.json {
        write(path, &json(&report, &outcome.measured)?)?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn json(report: &Report, measured: &[outcome::Measured]) -> Result<String> {
    let whole = serde_json::json!({ "report": report, "measured": measured });
    Ok(format!("{whole:#}\n"))
}

/// The server under test, the server to compare with, and the command lines of those that were started here.
fn servers(args: &Args, spec: &Spec) -> Result<(Node, Option<Node>, Vec<String>)> {
    let is_sweep = matches!(spec.work, Work::Sweep { .. });
    if !args.start {
        let endpoint = args.endpoint();
        let node = Node::connect(endpoint)?;
        let compared = args.compared()?.map(Node::connect).transpose()?;
        return Ok((node, compared, Vec::new()));
    }
    let base = scratch_base(args.dir.as_deref())?;
    let this = std::env::current_exe().context("cannot find this program")?;
    let program = program(Program::flintkv(&this), spec, &args.directives)?;
    fits(args.name, spec, workers(&args.directives))?;
    let node = program.start(&base)?;
    let mut shown = vec![program.shown()];
    let compared = if is_sweep {
        let all_ram = Program::flintkv(&this);
        shown.push(all_ram.shown());
        Some(all_ram.start(&base)?)
    } else {
        None
    };
    Ok((node, compared, shown))
}

/// A FlintKV node with the scenario's limits.
pub fn program(flintkv: Program, spec: &Spec, directives: &[String]) -> Result<Program> {
    let Limits { memory, ram } = spec.limits;
    ensure!(ram > 0 && memory > ram, "scale {} leaves no memory", spec.scale);
    let mut program = flintkv.tiered(memory, ram);
    for (name, value) in spec.directives {
        program = program.directive(name, value);
    }
    for directive in directives {
        let (name, value) = directive.split_once('=').context("expected NAME=VALUE")?;
        program = program.directive(name, value);
    }
    if spec.needs_password {
        program = program.password(&one_time_password()?);
    }
    Ok(program)
}

/// The number of workers of a node with these directives: one per core, unless a directive sets it.
fn workers(directives: &[String]) -> u64 {
    let given =
        directives.iter().filter_map(|directive| directive.strip_prefix("io-threads=")?.parse().ok()).next_back();
    given.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64))
}

/// A node refuses a RAM limit below its own need. This is checked before the node is started; the error says which
/// scale is large enough.
fn fits(name: args::Name, spec: &Spec, workers: u64) -> Result<()> {
    let (ram, least) = (spec.limits.ram, base::ram::least_limit(workers));
    // One part less, because rounding may make the limit at the smallest scale a byte too small.
    let whole = spec::spec(name, Scale::ONE).limits.ram;
    let parts = (whole / least).saturating_sub(1).max(1);
    ensure!(
        ram >= least,
        "scale {} gives a RAM limit of {}, and a node with {workers} workers needs {}: the smallest scale is 1/{parts}",
        spec.scale,
        report::bytes(ram),
        report::bytes(least),
    );
    Ok(())
}

/// Checks that every load has at least one key for each of its clients; with fewer keys the load would differ from the
/// published one, on any server. The error says which scale is large enough.
fn has_keys(spec: &Spec) -> Result<()> {
    let (least, scarcest) = (u64::from(spec::FILL_CLIENTS), spec.scarcest);
    let left = spec.scale.of(scarcest);
    ensure!(
        left >= least,
        "scale {} leaves {left} keys for a load of {least} clients: the smallest scale is 1/{}",
        spec.scale,
        scarcest / least,
    );
    Ok(())
}

/// Why a scenario cannot run at this scale, against any server.
pub fn too_small(name: &str, scale: Scale) -> Option<String> {
    let name = Name::from_str(name, false).ok()?;
    has_keys(&spec::spec(name, scale)).err().map(|error| error.to_string())
}

fn one_time_password() -> Result<String> {
    use std::io::Read;
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).context("no randomness")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_too_small_names_the_smallest() {
        for name in Name::value_variants() {
            let error = fits(*name, &spec::spec(*name, Scale::new(1, 1_000_000)), 2).unwrap_err().to_string();
            let smallest: Scale = error.rsplit(' ').next().and_then(|scale| scale.parse().ok()).expect(&error);
            fits(*name, &spec::spec(*name, smallest), 2).expect("the smallest scale is large enough");
            assert!(error.contains("RAM limit of") && error.contains("21.0 MB"), "{error}");
        }
        for name in Name::value_variants() {
            let spec = |scale| spec::spec(*name, scale);
            let error = has_keys(&spec(Scale::new(1, 1_000_000_000))).unwrap_err().to_string();
            let smallest: Scale = error.rsplit(' ').next().and_then(|scale| scale.parse().ok()).expect(&error);
            has_keys(&spec(smallest)).expect("the smallest scale has enough keys");
            assert!(error.contains("for a load of 20 clients"), "{error}");
            let below = Scale::new(1, spec(Scale::ONE).scarcest / 19);
            assert!(has_keys(&spec(below)).is_err() && too_small(spec(below).name, below).is_some());
        }
        assert_eq!(workers(&["io-threads=3".to_owned(), "maxclients=1".to_owned()]), 3);
    }

    #[test]
    fn the_catalog_names_what_the_command_line_takes() {
        for card in catalog() {
            assert_eq!(Name::from_str(card.name, false).map(|name| spec::spec(name, Scale::ONE).title), Ok(card.title));
            assert!(card.keys > 1_000_000 && card.ram_bytes < card.memory_bytes, "{card:?}");
        }
    }
}
