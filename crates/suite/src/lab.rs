//! Owns the tools that all figures use: starting and stopping servers, filling them, short measured loads, and the
//! highest resident size ÷ RAM limit. Never knows a target.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::figure::{Figure, Target, median};
use bench::report::percent;
use bench::scenario::info::Snapshot;
use bench::scenario::node::{Node, Process, Program, scratch_base};
use bench::scenario::outcome::{Measured, totals};
use bench::scenario::phase::{self, PhaseRun, Until};
use bench::scenario::search::Search;
use bench::scenario::spec::Load;
use bench::scenario::watch::Watch;

/// rof's limits for one key: 100 GB for 150 million, 30 % of it RAM.
const MEMORY_LIMIT_PER_KEY: f64 = 100e9 / 150e6;
const RAM_SHARE: f64 = 0.3;
/// `memtier-` and eight digits: 16 bytes.
pub const FIRST_KEY: u64 = 10_000_001;
pub const KEY_BYTES: u64 = 16;
pub const VALUE_BYTES: u64 = 500;
/// The allocator returns lazily freed pages within a second or two.
const SETTLE: Duration = Duration::from_secs(3);
const CALIBRATION_MAX: Duration = Duration::from_secs(12);
const CALIBRATIONS_MAX: usize = 9;
const HIT_RATIO_TOLERANCE: f64 = 0.006;

pub struct Lab {
    pub quick: bool,
    /// Also measure the figures of a hundred million keys.
    pub big: bool,
    base: PathBuf,
    flintkv: PathBuf,
    pub repetitions: usize,
    pub shot: Duration,
    /// The highest resident size ÷ RAM limit, and where it occurred.
    fill_max: Vec<(f64, String)>,
    pub shots: Vec<Shot>,
    pub versions: Vec<String>,
    /// What could not be measured, and why.
    pub failed: Vec<String>,
}

/// A server with a name in this suite.
pub struct Subject {
    pub name: String,
    pub node: Node,
    pub watch: Watch,
}

/// One measured load. Without flash, what is said of flash is not a number.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Shot {
    pub subject: String,
    pub load: String,
    pub ops_per_s: f64,
    pub processor_us: f64,
    pub latency_ms_avg: f64,
    pub latency_ms_p999: f64,
    pub hit_ratio: f64,
    pub reads_per_command: f64,
    pub written_per_user_byte: f64,
    pub misses: u64,
    pub errors: u64,
}

/// Several rounds, each with one shot of every subject.
pub struct Rounds(pub Vec<Vec<Shot>>);

impl Rounds {
    /// The median of one subject's shots.
    pub fn of(&self, subject: usize, value: fn(&Shot) -> f64) -> f64 {
        median(&self.0.iter().map(|round| value(&round[subject])).collect::<Vec<_>>())
    }

    /// The ratio of each round, then the median: what slows a whole round down cancels out.
    pub fn ratio(&self, above: usize, below: usize, value: fn(&Shot) -> f64) -> f64 {
        median(&self.0.iter().map(|round| value(&round[above]) / value(&round[below])).collect::<Vec<_>>())
    }
}

impl Lab {
    pub fn new(quick: bool, big: bool, dir: Option<&Path>, flintkv: PathBuf) -> Result<Lab> {
        Ok(Lab {
            quick,
            big,
            base: scratch_base(dir)?,
            flintkv,
            repetitions: if quick { 1 } else { 3 },
            shot: Duration::from_secs(if quick { 3 } else { 4 }),
            fill_max: Vec::new(),
            shots: Vec::new(),
            versions: Vec::new(),
            failed: Vec::new(),
        })
    }

    /// `full` or, for a quick run, a smaller number.
    pub fn scaled(&self, full: u64, quick: u64) -> u64 {
        if self.quick { quick } else { full }
    }

    /// The node that is measured.
    pub fn flintkv(&self) -> Program {
        Program::flintkv(&self.flintkv)
    }

    pub fn binary(&self) -> &Path {
        &self.flintkv
    }

    pub fn base(&self) -> &Path {
        &self.base
    }

    pub fn start(&mut self, name: &str, program: &Program) -> Result<Subject> {
        let node = program.start(&self.base)?;
        if !self.versions.contains(&node.name) {
            self.versions.push(node.name.clone());
        }
        let watch = Watch::start(&node);
        Ok(Subject { name: name.to_owned(), node, watch })
    }

    /// A node with rof's limits for this many keys.
    pub fn start_tiered(&mut self, name: &str, keys: u64) -> Result<Subject> {
        let memory = keys as f64 * MEMORY_LIMIT_PER_KEY;
        let program = self.flintkv().tiered(memory as u64, (memory * RAM_SHARE) as u64).directive("io-threads", 2);
        self.start(name, &program)
    }

    /// Records the highest fill of the subject's RAM limit.
    pub fn note_fill_of(&mut self, subject: &Subject) {
        self.note_fill(&subject.name, subject.watch.fill_max());
    }

    pub fn note_fill(&mut self, name: &str, fill: Option<f64>) {
        self.fill_max.extend(fill.map(|fill| (fill, name.to_owned())));
    }

    pub fn note_failure(&mut self, what: &str, error: &anyhow::Error) {
        eprintln!("{what} could not be measured: {error:#}");
        self.failed.push(format!("{what}: {error:#}"));
    }

    pub fn fill_figure(&self) -> Option<Figure> {
        let (worst, _) = self.fill_max.iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
        let all: Vec<String> = self.fill_max.iter().map(|(fill, name)| format!("{name} {}", percent(*fill))).collect();
        Some(Figure::new(
            "resident size",
            "÷ RAM limit, maximum over every scenario and every node with flash above, populate included",
            *worst,
            Target::AtMost(1.10),
            all.join(", "),
        ))
    }

    pub fn run(&mut self, subject: &mut Subject, load: &Load, until: Until) -> Result<PhaseRun> {
        let title = format!("{}: {}", subject.name, load.name);
        phase::run(&title, &mut subject.node, &subject.watch, std::slice::from_ref(load), until)
    }

    /// Writes every key once.
    pub fn populate(&mut self, subject: &mut Subject, loads: &[Load]) -> Result<()> {
        let begun = Instant::now();
        let mut count = 0;
        for load in loads {
            let run = self.run(subject, load, Until::Done)?;
            let totals = &run.stats[0].totals;
            if totals.errors > 0 {
                bail!("{}: {} of the writes were refused", subject.name, totals.errors);
            }
            count += totals.count;
        }
        eprintln!("   {}: {count} keys in {:.1} s", subject.name, begun.elapsed().as_secs_f64());
        Ok(())
    }

    pub fn rounds(&mut self, subjects: &mut [Subject], load: &Load, time: Duration) -> Result<Rounds> {
        self.rounds_of(subjects, load, time, 0..self.repetitions)
    }

    /// Runs every subject in turn, in every other round in reverse order, so that a drift of the machine's speed
    /// affects all subjects equally.
    pub fn rounds_of(
        &mut self,
        subjects: &mut [Subject],
        load: &Load,
        time: Duration,
        numbers: Range<usize>,
    ) -> Result<Rounds> {
        let mut rounds = Vec::new();
        for round in numbers {
            let mut order: Vec<usize> = (0..subjects.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            let mut shots: Vec<Option<Shot>> = vec![None; subjects.len()];
            for index in order {
                shots[index] = Some(self.shoot_for(&mut subjects[index], load, time)?.0);
            }
            rounds.push(shots.into_iter().flatten().collect());
        }
        Ok(Rounds(rounds))
    }

    pub fn shoot(&mut self, subject: &mut Subject, load: &Load) -> Result<(Shot, Measured)> {
        self.shoot_for(subject, load, self.shot)
    }

    pub fn shoot_for(&mut self, subject: &mut Subject, load: &Load, time: Duration) -> Result<(Shot, Measured)> {
        self.shoot_until(subject, load, Until::Time(time))
    }

    pub fn shoot_until(&mut self, subject: &mut Subject, load: &Load, until: Until) -> Result<(Shot, Measured)> {
        let run = self.run(subject, load, until)?;
        let measured = Measured::of(&run);
        let flash = measured.flash.as_ref();
        let shot = Shot {
            subject: subject.name.clone(),
            load: load.name.clone(),
            ops_per_s: measured.ops_per_s,
            processor_us: measured.processor_us_per_command.unwrap_or(f64::NAN),
            latency_ms_avg: measured.latency_ms_avg,
            latency_ms_p999: totals(&run.stats).quantile_ms(0.999),
            hit_ratio: measured.ram_hit_ratio.unwrap_or(f64::NAN),
            reads_per_command: flash.map_or(f64::NAN, |flash| flash.reads_per_s / measured.ops_per_s),
            written_per_user_byte: flash.and_then(|flash| flash.write_amplification).unwrap_or(f64::NAN),
            misses: measured.misses,
            errors: measured.error_replies + measured.connection_errors,
        };
        eprintln!(
            "   {:<14} {:<22} {:>9.0} ops/s  {:>7.3} ms  {:>6.2} µs of processor per command{}{}{}",
            shot.subject,
            shot.load,
            shot.ops_per_s,
            shot.latency_ms_avg,
            shot.processor_us,
            if shot.hit_ratio.is_finite() { format!("  {} RAM hits", percent(shot.hit_ratio)) } else { String::new() },
            if shot.misses > 0 { format!("  {} keys not found", shot.misses) } else { String::new() },
            if shot.errors > 0 { format!("  {} errors", shot.errors) } else { String::new() },
        );
        self.shots.push(shot.clone());
        Ok((shot, measured))
    }

    /// Searches, from `start` on, for the standard deviation of rof's load at which `wanted` of the reads are served
    /// from RAM.
    pub fn calibrate(
        &mut self,
        subject: &mut Subject,
        keys: u64,
        pipeline: u32,
        start: Option<f64>,
        wanted: f64,
    ) -> Result<f64> {
        let mut search = Search::new(start.unwrap_or(keys as f64 * 10.25 / 150.0), wanted);
        for _ in 0..CALIBRATIONS_MAX {
            let stddev = search.propose();
            let run = self.run(subject, &rof_load(keys, pipeline, stddev), Until::Stable(CALIBRATION_MAX))?;
            let ratio = run.hit_ratio_stable.context("this server does not report a RAM hit ratio")?;
            eprintln!("   {}: {} RAM hits at a standard deviation of {stddev:.0}", subject.name, percent(ratio));
            search.tried(stddev, ratio);
            if search.distance() <= HIT_RATIO_TOLERANCE {
                break;
            }
        }
        Ok(search.best())
    }
}

impl Subject {
    pub fn snapshot(&mut self) -> Result<Snapshot> {
        self.node.snapshot()
    }

    /// Starts the program again in the directory of its ended process. Returns how long clients waited.
    pub fn restart(&mut self, program: &Program) -> Result<Duration> {
        let took = self.node.restart(program)?;
        self.watch = Watch::start(&self.node);
        Ok(took)
    }

    /// The resident size after the allocator has returned its free pages.
    pub fn resident_settled(&mut self) -> Result<u64> {
        std::thread::sleep(SETTLE);
        self.node.process.and_then(Process::resident).context("the server's process is not of this machine")
    }

    /// Sends every value to flash by lowering the RAM limit. Returns the share that stays in RAM.
    pub fn force_demote(&mut self) -> Result<f64> {
        const TIMEOUT: Duration = Duration::from_secs(120);
        const LEFT_BYTES: u64 = 32 << 20;
        let limit = self.node.facts.ram_limit.map_or(LEFT_BYTES, |limit| (limit / 4).min(LEFT_BYTES));
        self.node.client().call(&["CONFIG", "SET", "ram-limit", &limit.to_string()])?;
        let deadline = Instant::now() + TIMEOUT;
        let mut last = u64::MAX;
        loop {
            std::thread::sleep(Duration::from_millis(500));
            let snapshot = self.snapshot()?;
            let tiering = snapshot.tiering.context("no flash")?;
            let all = tiering.values_in_ram + tiering.values_in_flash;
            let left = tiering.values_in_ram as f64 / all.max(1) as f64;
            if left < 0.002 || Instant::now() > deadline || (left < 0.02 && tiering.values_in_ram >= last) {
                eprintln!("   {}: {} of the values are left in RAM", self.name, percent(left));
                return Ok(left);
            }
            last = tiering.values_in_ram;
        }
    }
}

/// Keys of 16 bytes from [`FIRST_KEY`] on, with values of 500 bytes. The middle comes last, so it is in RAM when the
/// load starts. This replaces rof's centralising step, which takes minutes with many keys.
pub fn populate_loads(keys: u64) -> Vec<Load> {
    let (low, high) = (keys * 36 / 100, keys * 64 / 100);
    [(0, low), (high, keys), (low, high)].map(|(from, to)| fill(FIRST_KEY + from, to - from)).to_vec()
}

/// `count` keys from `first` on.
pub fn fill(first: u64, count: u64) -> Load {
    let options = ["--requests=allkeys", "--key-pattern=P:P", "--ratio=1:0", "--pipeline=24"];
    Load::new("populate", 1, 20, options)
        .with(format!("--key-minimum={first}"))
        .with(format!("--key-maximum={}", first + count - 1))
        .with(format!("--data-size={VALUE_BYTES}"))
}

/// rof's load: keys around the middle, one SET for one GET.
pub fn rof_load(keys: u64, pipeline: u32, stddev: f64) -> Load {
    let options = ["--key-pattern=G:G", "--ratio=1:1", "--distinct-client-seed", "--randomize"];
    ranged(Load::new(&format!("1:1, pipeline {pipeline}"), 1, 20, options), keys)
        .with(format!("--data-size={VALUE_BYTES}"))
        .with(format!("--pipeline={pipeline}"))
        .with(format!("--key-stddev={:.0}", stddev.max(1.0)))
}

pub fn ranged(load: Load, keys: u64) -> Load {
    load.with(format!("--key-minimum={FIRST_KEY}")).with(format!("--key-maximum={}", FIRST_KEY + keys - 1))
}
