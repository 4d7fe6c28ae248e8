//! Owns the steps of a scenario in their order, and the report about them. Never knows who started the server, or where
//! the report goes.

use std::time::Duration;

use anyhow::Result;

use super::info::Snapshot;
use super::node::Node;
use super::outcome::{DASH, Measured, Sizes, table};
use super::phase::{self, PhaseRun, Until};
use super::search::Search;
use super::spec::{Load, Part, Spec, Work};
use super::watch::Watch;
use crate::report::{
    LoadSeries, Phase, Report, ServerSeries, Sweep, SweepLine, Table, Tile, bytes, grouped, milliseconds, percent,
};

/// The longest wait for a stable RAM hit ratio.
const DRY_RUN_MAX: Duration = Duration::from_secs(60);
/// In the search for a standard deviation every try is short, because the content of RAM follows quickly.
const TRY_MAX: Duration = Duration::from_secs(16);
const TRIES_MAX: usize = 10;
const HIT_RATIO_TOLERANCE: f64 = 0.01;

/// A working set: with flash, and all in RAM if there is a server to compare with.
type Point = (Part, Measured, Option<Measured>);

/// What the command line changes.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub test_time: Duration,
    /// Instead of [`DRY_RUN_MAX`].
    pub dry_run_max: Option<Duration>,
    pub hit_ratio: Option<f64>,
    pub threads: Option<u32>,
    pub compressibility: Option<f64>,
}

pub struct Outcome {
    pub report: Report,
    /// The measured run, or the runs of a sweep.
    pub measured: Vec<Measured>,
    pub sizes: Sizes,
}

impl Settings {
    /// Connections stay as published. Only the number of threads that drive them follows this machine.
    fn fit(&self, loads: &[Load]) -> Vec<Load> {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        let share = (cores / loads.len() as u32).max(1);
        let fitted = loads.iter().map(|load| {
            let load = load.clone().on_threads(self.threads.unwrap_or(load.threads.min(share)));
            match self.compressibility {
                Some(share) => {
                    let mut load = load;
                    load.options.retain(|option| option != "--random-data");
                    load.with(format!("--data-compressibility={share}"))
                }
                None => load,
            }
        });
        fitted.collect()
    }
}

/// One running scenario.
struct Stage<'a> {
    spec: &'a Spec,
    settings: &'a Settings,
    watch: Watch,
    runs: Vec<PhaseRun>,
    notes: Vec<String>,
}

/// Runs every step against `node`. `compared` is the same server with enough RAM, for a sweep.
pub fn run(spec: &Spec, settings: &Settings, node: &mut Node, compared: Option<Node>) -> Result<Outcome> {
    eprintln!("{} at scale {}: {} keys, {}", spec.title, spec.scale, grouped(spec.keys as f64), bytes(spec.raw_bytes));
    let watch = Watch::start(node);
    let mut stage = Stage { spec, settings, watch, runs: Vec::new(), notes: spec.notes.clone() };
    stage.populate(node)?;
    match &spec.work {
        Work::Sweep { parts, .. } => stage.sweep(node, compared, parts),
        Work::Gauss { stddev, .. } => {
            stage.centralise(node)?;
            let found = match settings.hit_ratio {
                None => None,
                Some(wanted) => Some(stage.find_stddev(node, wanted, *stddev)?),
            };
            stage.measure(node, found)
        }
        Work::Together(_) => stage.measure(node, None),
    }
}

impl Stage<'_> {
    fn phase(&mut self, name: &str, node: &mut Node, loads: &[Load], until: Until) -> Result<()> {
        let run = phase::run(name, node, &self.watch, loads, until)?;
        self.runs.push(run);
        Ok(())
    }

    fn populate(&mut self, node: &mut Node) -> Result<()> {
        for load in self.settings.fit(&self.spec.populate) {
            let name = if self.spec.populate.len() > 1 { format!("populate {}", load.name) } else { load.name.clone() };
            self.phase(&name, node, &[load], Until::Done)?;
        }
        Ok(())
    }

    fn centralise(&mut self, node: &mut Node) -> Result<()> {
        for load in self.settings.fit(&self.spec.centralise) {
            self.phase("centralise", node, &[load], Until::Done)?;
        }
        Ok(())
    }

    /// Changes the standard deviation until the RAM hit ratio is as wanted.
    fn find_stddev(&mut self, node: &mut Node, wanted: f64, published: f64) -> Result<f64> {
        let longest = self.settings.dry_run_max.map_or(TRY_MAX, |longest| longest.min(TRY_MAX));
        let mut search = Search::new(published, wanted);
        for _ in 0..TRIES_MAX {
            let stddev = search.propose();
            let loads = self.settings.fit(&self.spec.loads(Some(stddev), None));
            let run = phase::run("find hit ratio", node, &self.watch, &loads, Until::Stable(longest))?;
            let Some(ratio) = run.hit_ratio_stable else {
                self.notes.push(String::from("--hit-ratio has no effect: this server does not report a RAM hit ratio"));
                return Ok(published);
            };
            eprintln!("standard deviation {stddev:.0}: {} RAM hits", percent(ratio));
            search.tried(stddev, ratio);
            if search.distance() <= HIT_RATIO_TOLERANCE / 2.0 {
                break;
            }
        }
        let stddev = search.best();
        let reached = if search.distance() <= HIT_RATIO_TOLERANCE { "" } else { " (not reached)" };
        self.notes.push(format!(
            "--hit-ratio: the standard deviation is {stddev:.0} instead of {published:.0} ({:.2} times the published \
             one) for a RAM hit ratio of {}{reached}; the dry runs had {}",
            stddev / published,
            percent(wanted),
            search.best_ratio().map_or(String::from(DASH), percent),
        ));
        Ok(stddev)
    }

    fn measure(mut self, node: &mut Node, stddev: Option<f64>) -> Result<Outcome> {
        let loads = self.settings.fit(&self.spec.loads(stddev, None));
        self.phase("dry run", node, &loads, Until::Stable(self.settings.dry_run_max.unwrap_or(DRY_RUN_MAX)))?;
        let lifetime = forget(node)?;
        let test_time = self.settings.test_time;
        self.phase("measured run", node, &loads, Until::Time(test_time))?;
        let run = self.runs.last().expect("it ran");
        let measured = Measured::of(run);
        let sizes = Sizes::of(&self.watch, compression(&lifetime, &run.after));
        let mut tables = vec![table(&self.heading(), &self.spec.published, &measured, &sizes)];
        if run.stats.len() > 1 {
            tables.push(by_load(run));
        }
        let tiles = tiles(&self.spec.published.hit_ratio.replace(DASH, ""), self.spec, &measured, &sizes);
        let report = self.report(node, tiles, tables, None);
        Ok(Outcome { report, measured: vec![measured], sizes })
    }

    /// Each working set on both servers, one after the other.
    fn sweep(mut self, node: &mut Node, mut compared: Option<Node>, parts: &[Part]) -> Result<Outcome> {
        if let Some(other) = &mut compared {
            let watch = Watch::start(other);
            for load in self.settings.fit(&self.spec.populate) {
                self.runs.push(phase::run("populate all-RAM", other, &watch, &[load], Until::Done)?);
            }
        }
        let mut points: Vec<Point> = Vec::new();
        let mut lifetime = forget(node)?;
        let dry_run_max = self.settings.dry_run_max.unwrap_or(DRY_RUN_MAX / 2);
        for &part in parts {
            let loads = self.settings.fit(&self.spec.loads(None, Some(part)));
            let label = format!("{} of the keys", percent(part.share).replace(".0", ""));
            self.phase(&format!("dry run, {label}"), node, &loads, Until::Stable(dry_run_max))?;
            let seen = forget(node)?;
            lifetime = newer(lifetime, seen);
            self.phase(&format!("flash, {label}"), node, &loads, Until::Time(self.settings.test_time))?;
            let measured = Measured::of(self.runs.last().expect("it ran"));
            let in_ram = match &mut compared {
                None => None,
                Some(other) => {
                    let watch = Watch::start(other);
                    let until = Until::Time(self.settings.test_time);
                    let run = phase::run(&format!("all RAM, {label}"), other, &watch, &loads, until)?;
                    let measured = Measured::of(&run);
                    self.runs.push(run);
                    Some(measured)
                }
            };
            points.push((part, measured, in_ram));
        }
        if compared.is_none() {
            self.notes.push(String::from("no server to compare with: give --compare HOST:PORT, or --start"));
        }
        let after = &self.runs.last().expect("it ran").after;
        let sizes = Sizes::of(&self.watch, compression(&lifetime, after));
        let (sweep, tables, tiles) = self.compare(&points, &sizes);
        let measured = points.into_iter().flat_map(|(_, flash, ram)| std::iter::once(flash).chain(ram)).collect();
        let report = self.report(node, tiles, tables, Some(sweep));
        Ok(Outcome { report, measured, sizes })
    }

    fn compare(&self, points: &[Point], sizes: &Sizes) -> (Sweep, Vec<Table>, Vec<Tile>) {
        let line = |name: &str, of: &dyn Fn(&Point) -> Option<Measured>| {
            let measured: Vec<Measured> = points.iter().filter_map(of).collect();
            SweepLine {
                name: name.to_owned(),
                ops: measured.iter().map(|one| one.ops_per_s).collect(),
                latency_ms_avg: measured.iter().map(|one| one.latency_ms_avg).collect(),
                latency_ms_p99: measured.iter().map(|one| one.latency_ms_p99).collect(),
                hit_percent: measured.iter().map(|one| one.ram_hit_ratio.map(|ratio| ratio * 100.0)).collect(),
            }
        };
        let mut lines = vec![line("flash", &|point| Some(point.1.clone()))];
        if points.iter().all(|point| point.2.is_some()) {
            lines.push(line("all RAM", &|point| point.2.clone()));
        }
        let sweep = Sweep {
            percent: points.iter().map(|(part, ..)| part.share * 100.0).collect(),
            label: points.iter().map(|(part, ..)| bytes(part.bytes)).collect(),
            lines,
        };
        let dash = || DASH.to_owned();
        let rows = points.iter().map(|(part, flash, ram)| {
            let compared = |show: &dyn Fn(&Measured) -> String| ram.as_ref().map_or_else(dash, show);
            vec![
                format!("{} ({} keys)", bytes(part.bytes), grouped(part.keys as f64)),
                grouped(flash.ops_per_s),
                compared(&|ram| grouped(ram.ops_per_s)),
                compared(&|ram| percent(flash.ops_per_s / ram.ops_per_s)),
                milliseconds(flash.latency_ms_avg),
                compared(&|ram| milliseconds(ram.latency_ms_avg)),
                milliseconds(flash.latency_ms_p99),
                flash.ram_hit_ratio.map_or_else(dash, percent),
                grouped(flash.flash.as_ref().map_or(0.0, |flash| flash.reads_per_s)),
                grouped(flash.misses as f64),
            ]
        });
        let head = [
            "working set",
            "flash, ops/s",
            "all RAM, ops/s",
            "ratio",
            "flash, avg",
            "all RAM, avg",
            "flash, p99",
            "RAM hits",
            "flash reads/s",
            "keys not found",
        ];
        let by_part = Table { title: self.heading(), head: head.map(String::from).to_vec(), rows: rows.collect() };
        let best = points.iter().map(|(_, flash, _)| flash.ops_per_s).fold(0.0, f64::max);
        let worst = points.iter().map(|(_, flash, _)| flash.ops_per_s).fold(f64::INFINITY, f64::min);
        let whole = points.last().expect("a sweep has parts");
        let ratio = whole.2.as_ref().map(|ram| whole.1.ops_per_s / ram.ops_per_s);
        let added = whole.2.as_ref().map(|ram| whole.1.latency_ms_avg - ram.latency_ms_avg);
        let row = |what: &str, published: &str, measured: Option<String>| {
            vec![what.to_owned(), published.to_owned(), measured.unwrap_or_else(dash)]
        };
        let spread = (best > 0.0).then(|| format!("{} slower", percent(1.0 - worst / best)));
        let us = |one: &Measured| one.processor_us_per_command.map(|us| format!("{us:.2} µs"));
        let flash_now = whole.1.flash.as_ref();
        let summary = Table {
            title: String::from("Beside the published figures"),
            head: vec![String::new(), String::from("published"), String::from("measured")],
            rows: vec![
                row("throughput ÷ all RAM, whole dataset", "85 %", ratio.map(percent)),
                row("added average latency, whole dataset", "0.5 ms", added.map(milliseconds)),
                row("worst working set ÷ best", "5 % slower", spread),
                row("cost of a RAM-only machine", "more than 5 times", None),
                row("processor time of the server per command, whole dataset", DASH, us(&whole.1)),
                row("RAM at most, of the RAM limit", DASH, sizes.fill_max.map(percent)),
                row(
                    "flash used",
                    DASH,
                    flash_now.map(|flash| format!("{} of {}", bytes(flash.used_bytes), bytes(flash.limit_bytes))),
                ),
                row(
                    "size on flash ÷ raw size",
                    DASH,
                    sizes.compression_ratio.filter(|&r| r > 0.0).map(|r| percent(1.0 / r)),
                ),
            ],
        };
        let tile = |label: &str, value: String, beside: &str| Tile {
            label: label.to_owned(),
            value,
            beside: format!("published: {beside}"),
        };
        let mut tiles = Vec::new();
        if let (Some(ratio), Some(added)) = (ratio, added) {
            tiles.push(tile("of the all-RAM throughput, whole dataset", percent(ratio), "85 %"));
            tiles.push(tile("added average latency", milliseconds(added), "0.5 ms"));
        }
        tiles.push(tile("worst working set against the best", percent(worst / best.max(1.0) - 1.0), "−5 %"));
        (sweep, vec![by_part, summary], tiles)
    }

    fn heading(&self) -> String {
        format!("{} ({}) at scale {}", self.spec.title, self.spec.name, self.spec.scale)
    }

    fn report(&self, node: &Node, tiles: Vec<Tile>, tables: Vec<Table>, sweep: Option<Sweep>) -> Report {
        // Errors come first.
        let mut notes: Vec<String> = self.runs.iter().flat_map(refusals).collect();
        notes.extend(self.notes.iter().cloned());
        notes.extend(self.differences(node));
        Report {
            title: self.spec.title.to_owned(),
            subtitle: format!(
                "{} at scale {}: {} keys, {} of raw data",
                self.spec.name,
                self.spec.scale,
                grouped(self.spec.keys as f64),
                bytes(self.spec.raw_bytes)
            ),
            tiles,
            tables,
            notes,
            facts: facts(node),
            sweep,
            phases: self.runs.iter().map(series).collect(),
        }
    }

    /// The differences to the published benchmark.
    fn differences(&self, node: &Node) -> Vec<String> {
        let published = &self.spec.published;
        let (wanted, facts) = (&self.spec.limits, &node.facts);
        let here = match facts.shards {
            None => String::from("one node"),
            Some(1) => String::from("a cluster's database with one shard"),
            Some(shards) => format!("a cluster's database with {shards} shards"),
        };
        let place = match facts.is_local {
            true => "on the same machine, taking its share of the processors",
            false => "elsewhere",
        };
        let mut notes = vec![format!(
            "{}: published on {}; here {here}, with the load generator {place} ({})",
            published.by,
            published.machine,
            machine(),
        )];
        notes.extend(self.spec.note_of_node.filter(|_| facts.shards.is_none()).map(String::from));
        if !node.is_ours() {
            let shown = |limit: Option<u64>| limit.map_or(String::from("none"), bytes);
            let (memory, ram) = (shown(facts.memory_limit), shown(facts.ram_limit));
            let (memory_wanted, ram_wanted) = (bytes(wanted.memory), bytes(wanted.ram));
            // The limits of a cluster's database are divided among its copies, in whole megabytes.
            let rounded = facts.shards.map_or(0, |shards| u64::from(shards) << 20);
            let is_about =
                |limit: Option<u64>, wanted: u64| limit.is_some_and(|limit| limit.abs_diff(wanted) <= rounded);
            if !is_about(facts.memory_limit, wanted.memory) || !is_about(facts.ram_limit, wanted.ram) {
                notes.push(format!(
                    "the node's limits are its own: memory {memory}, RAM {ram}; at this scale the scenario has \
                     {memory_wanted} and {ram_wanted}"
                ));
            }
        }
        if published.test_time_s > 0 && self.settings.test_time.as_secs() != published.test_time_s {
            let (published, here) = (published.test_time_s, self.settings.test_time.as_secs());
            notes.push(format!("measured for {here} s, published for {published} s"));
        }
        match self.settings.compressibility {
            Some(share) => notes.push(format!("values of which a compressor takes away {}", percent(share))),
            None if self.spec.name == "gemini-rta" => notes.push(String::from(
                "memtier's random data changes one byte from one value to the next: such values compress well \
                 together; --data-compressibility 0.5 shows an honest mixture",
            )),
            None => notes.push(String::from(
                "memtier's values are all 'x', as published, and nearly vanish when compressed: with real data flash \
                 holds less per page; try --data-compressibility 0.5",
            )),
        }
        if self.spec.needs_password && node.endpoint.password.is_none() {
            notes.push(String::from("published with a password; this server was used without one"));
        }
        let fitted = self.settings.fit(&self.spec.loads(None, None));
        let threads = |loads: &[Load]| loads.iter().map(|load| load.threads).sum::<u32>();
        let (here, there) = (threads(&fitted), threads(&self.spec.loads(None, None)));
        if here != there {
            notes.push(format!("{here} load threads instead of {there}, with as many connections"));
        }
        notes
    }
}

/// Resets the statistics, so that latencies are those of the measured run. Returns the counts before.
fn forget(node: &mut Node) -> Result<Snapshot> {
    let before = node.snapshot()?;
    node.client().call(&["CONFIG", "RESETSTAT"])?;
    Ok(before)
}

/// The compression ratio of all records written before the reset, unless there were none.
fn compression(before: &Snapshot, after: &Snapshot) -> Option<f64> {
    let ratio = |snapshot: &Snapshot| snapshot.tiering.as_ref().map(|tiering| tiering.compression_ratio);
    ratio(before).filter(|&ratio| ratio > 0.0).or(ratio(after)).filter(|&ratio| ratio > 0.0)
}

fn newer(old: Snapshot, new: Snapshot) -> Snapshot {
    let known = |snapshot: &Snapshot| snapshot.tiering.as_ref().is_some_and(|tiering| tiering.compression_ratio > 0.0);
    if known(&old) || !known(&new) { old } else { new }
}

fn by_load(run: &PhaseRun) -> Table {
    let head = ["load", "ops/s", "average", "p50", "p99", "p99.99", "received", "keys not found"];
    let rows = run.stats.iter().map(|stats| {
        let one = Measured::of_load(stats);
        vec![
            one.name.clone(),
            grouped(one.ops_per_s),
            milliseconds(one.latency_ms_avg),
            milliseconds(one.latency_ms_p50),
            milliseconds(one.latency_ms_p99),
            milliseconds(one.latency_ms_p9999),
            format!("{}/s", bytes(one.bytes_per_s as u64)),
            grouped(one.misses as f64),
        ]
    });
    Table { title: String::from("By load"), head: head.map(String::from).to_vec(), rows: rows.collect() }
}

/// Error replies of a phase. A refused write means that a key is missing from then on.
fn refusals(run: &PhaseRun) -> Option<String> {
    let errors: u64 = run.stats.iter().map(|stats| stats.totals.errors + stats.connection_errors).sum();
    let texts = run.stats.iter().flat_map(|stats| &stats.error_texts);
    let texts: Vec<String> = texts.map(|(text, count)| format!("{} × {text}", grouped(*count as f64))).collect();
    (errors > 0).then(|| format!("{}: {} errors: {}", run.name, grouped(errors as f64), texts.join(", ")))
}

fn tiles(hit_ratio: &str, spec: &Spec, measured: &Measured, sizes: &Sizes) -> Vec<Tile> {
    let published =
        |text: &str| if text.is_empty() || text == DASH { String::new() } else { format!("published: {text}") };
    let tile = |label: &str, value: String, beside: String| Tile { label: label.to_owned(), value, beside };
    let mut tiles = vec![
        tile("ops/s", grouped(measured.ops_per_s), published(spec.published.ops_per_s)),
        tile("average latency", milliseconds(measured.latency_ms_avg), published(spec.published.latency_avg)),
        tile("p99 latency", milliseconds(measured.latency_ms_p99), published(spec.published.latency_p99)),
    ];
    if let Some(ratio) = measured.ram_hit_ratio {
        tiles.push(tile("of reads hit RAM", percent(ratio), published(hit_ratio)));
    }
    if let Some(ratio) = sizes.compression_ratio {
        tiles.push(tile("size on flash ÷ raw", percent(1.0 / ratio), published(spec.published.compression)));
    }
    if let Some(fill) = sizes.fill_max {
        tiles.push(tile("of the RAM limit, at most", percent(fill), String::new()));
    }
    tiles
}

pub fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kb: u64 = total.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok()).unwrap_or(0);
    format!("{cores} processors, {} of RAM", bytes(kb * 1024))
}

fn facts(node: &Node) -> Vec<(String, String)> {
    let facts = &node.facts;
    let mut list = vec![("server", node.name.clone()), ("machine of the load generator", machine())];
    list.push(("memory limit", facts.memory_limit.map_or(String::from("none"), bytes)));
    list.push(("RAM limit", facts.ram_limit.map_or(String::from("none"), bytes)));
    list.extend(facts.workers.map(|workers| ("workers", workers.to_string())));
    list.extend(facts.flash_driver.clone().map(|driver| ("flash driver", driver)));
    list.extend(facts.flash_compression.clone().map(|codec| ("flash compression", codec)));
    list.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn series(run: &PhaseRun) -> Phase {
    let loads = run.stats.iter().map(|stats| {
        let mut series = LoadSeries { name: stats.name.clone(), ..LoadSeries::default() };
        let seconds = &stats.totals.seconds;
        let length = stats.duration.as_secs_f64();
        for second in seconds {
            // The last second is seldom complete: its rate is computed over its real length.
            let part = (length - second.index as f64).clamp(0.0, 1.0);
            if part < 0.25 && seconds.len() > 1 {
                continue;
            }
            series.second.push(second.index as f64 + part);
            series.ops.push(second.count as f64 / part.max(1e-3));
            series.latency_ms_avg.push(second.latency_ms_avg);
            series.latency_ms_p99.push(second.latency_ms_quantiles.get(1).copied().unwrap_or(0.0));
            series.latency_ms_p9999.push(second.latency_ms_quantiles.get(2).copied().unwrap_or(0.0));
        }
        series
    });
    let started = run.stats.first().map(|stats| stats.started);
    let server = started.map(|started| {
        let mut series = ServerSeries::default();
        let mut before = &run.before;
        let mut at_before = 0.0;
        for sample in &run.samples {
            let at = sample.at.duration_since(started).map_or(0.0, |since| since.as_secs_f64());
            let seconds = (at - at_before).max(1e-3);
            let snapshot = &sample.snapshot;
            let grown = |of: fn(&super::info::Tiering) -> u64| {
                let value = |snapshot: &Snapshot| snapshot.tiering.as_ref().map_or(0, of);
                value(snapshot).saturating_sub(value(before)) as f64 / seconds
            };
            series.second.push(at);
            series.resident.push(snapshot.resident as f64);
            series.ram_limit.push(snapshot.ram_limit.unwrap_or(0) as f64);
            series.hit_percent.push(snapshot.ram_hit_ratio_since(before).map(|ratio| ratio * 100.0));
            series.flash_reads.push(grown(|tiering| tiering.reads));
            series.flash_write_mb.push(grown(|tiering| tiering.write_bytes) / 1e6);
            series.flash_used.push(snapshot.tiering.as_ref().map_or(0.0, |tiering| tiering.flash_used as f64));
            series.has_flash |= snapshot.tiering.is_some();
            (before, at_before) = (snapshot, at);
        }
        series
    });
    Phase { name: run.name.clone(), commands: run.commands.clone(), loads: loads.collect(), server }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::outcome::tests::{run, stats};
    use crate::scenario::watch::Sample;
    use crate::stats::Second;
    use std::time::SystemTime;

    #[test]
    fn compressibility_replaces_random_data() {
        let settings = Settings { threads: Some(1), compressibility: Some(0.5), ..Settings::default() };
        let spec = crate::scenario::spec::spec(super::super::Name::GeminiRta, super::super::Scale::new(1, 4000));
        for load in settings.fit(&spec.populate) {
            assert!(!load.options.contains(&String::from("--random-data")));
            assert_eq!(load.options.last().map(String::as_str), Some("--data-compressibility=0.5"));
            assert_eq!(load.threads, 1);
        }
    }

    #[test]
    fn an_incomplete_last_second_does_not_look_like_a_dip() {
        let mut one = stats("load", 100, 250);
        one.duration = Duration::from_millis(2100);
        let second =
            |index| Second { index, count: 50, latency_ms_quantiles: vec![0.1, 0.2, 0.3], ..Second::default() };
        one.totals.seconds = (0..3).map(second).collect();
        let phase = series(&PhaseRun { stats: vec![one], ..run() });
        assert_eq!(
            (phase.loads[0].second.as_slice(), phase.loads[0].ops.as_slice()),
            (&[1.0, 2.0][..], &[50.0, 50.0][..])
        );
    }

    #[test]
    fn refused_writes_are_reported() {
        let mut bad = stats("load", 100, 250);
        bad.totals.errors = 1200;
        bad.error_texts = vec![(String::from("OOM no room"), 1200)];
        let run = PhaseRun { name: String::from("populate"), stats: vec![stats("load", 9, 9), bad], ..run() };
        assert_eq!(refusals(&run).as_deref(), Some("populate: 1,200 errors: 1,200 × OOM no room"));
        assert_eq!(refusals(&PhaseRun { stats: vec![stats("load", 9, 9)], ..run }), None);
    }

    #[test]
    fn the_servers_series_are_differences() {
        let mut run = run();
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        run.samples =
            vec![Sample { at: at(1), snapshot: run.before.clone() }, Sample { at: at(3), snapshot: run.after.clone() }];
        let server = series(&run).server.expect("samples");
        assert_eq!(server.second, [1.0, 3.0]);
        assert_eq!(server.hit_percent, [None, Some(85.0)]);
        assert_eq!(server.flash_reads, [0.0, 37_500.0]);
        assert!(server.has_flash);
    }
}
