//! Owns one step of a scenario: its loads, the progress on the screen, and the server's counters before and after.
//! Never knows which scenario it belongs to.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::info::Snapshot;
use super::node::Node;
use super::spec::Load;
use super::watch::{Sample, Watch};
use super::wire::Client;
use crate::cli::{config_of, interrupt};
use crate::config::{Config, Length, Target};
use crate::engine::{Observer, Progress, WorkloadProgress};
use crate::stats::RunStats;

/// How often a line is printed if there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// The same for JSON, which is read by a program.
const JSON_EVERY: Duration = Duration::from_secs(1);
const BAR_STEPS: u64 = 1000;
/// A RAM hit ratio counts as stable when this many windows in a row lie within the tolerance.
const WINDOW: Duration = Duration::from_secs(2);
const WINDOWS: usize = 3;
const TOLERANCE: f64 = 0.005;

static IN_JSON: AtomicBool = AtomicBool::new(false);

/// From now on, progress goes to standard output, as one line of JSON per second and load.
pub fn tell_in_json() {
    IN_JSON.store(true, Ordering::Relaxed);
}

/// When a phase ends.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// When all its requests are done.
    Done,
    Time(Duration),
    /// When the RAM hit ratio is stable, or after this time at the latest.
    Stable(Duration),
}

/// The result of a phase.
pub struct PhaseRun {
    pub name: String,
    /// One command line per load.
    pub commands: Vec<String>,
    pub stats: Vec<RunStats>,
    pub before: Snapshot,
    pub after: Snapshot,
    /// Processor time of the server, if its process runs on this machine.
    pub processor_s: Option<f64>,
    pub samples: Vec<Sample>,
    /// The ratio of the last windows, for a phase that waits for a stable ratio.
    pub hit_ratio_stable: Option<f64>,
}

/// Runs `loads` at the same time against `node`.
pub fn run(name: &str, node: &mut Node, watch: &Watch, loads: &[Load], until: Until) -> Result<PhaseRun> {
    let configs = loads.iter().map(|load| configure(load, node, until)).collect::<Result<Vec<Config>>>()?;
    let shown_time = match until {
        Until::Done => None,
        Until::Time(time) | Until::Stable(time) => Some(format!("--test-time={}", time.as_secs().max(1))),
    };
    let commands = loads.iter().map(|load| shown(load, node, shown_time.as_deref())).collect();
    let before = node.snapshot()?;
    let processor_before = node.process.and_then(super::node::Process::processor_seconds);
    let screen = Screen::new(name, loads, node, watch, until)?;
    let started = SystemTime::now();
    let stats = crate::run_all(&configs, &screen);
    let hit_ratio_stable = screen.finish();
    let stats = stats?;
    if interrupt::interrupted() {
        bail!("interrupted");
    }
    let processor_after = node.process.and_then(super::node::Process::processor_seconds);
    let after = node.snapshot()?;
    for (text, count) in stats.iter().flat_map(|one| &one.error_texts) {
        eprintln!("warning: {name}: {count} × {text}");
    }
    let answered: u64 = stats.iter().map(|one| one.totals.count).sum();
    ensure!(answered > 0, "{name}: the server answered nothing");
    Ok(PhaseRun {
        name: name.to_owned(),
        commands,
        stats,
        before,
        after,
        processor_s: processor_after.zip(processor_before).map(|(after, before)| after - before),
        samples: watch.samples_since(started),
        hit_ratio_stable,
    })
}

fn configure(load: &Load, node: &Node, until: Until) -> Result<Config> {
    let mut args = load.args();
    if let Some(password) = &node.endpoint.password {
        args.push(format!("--authenticate={password}"));
    }
    let mut config = config_of(args.iter().map(OsString::from)).with_context(|| load.args().join(" "))?;
    config.name.clone_from(&load.name);
    config.target = Target::tcp(&node.endpoint.host, node.endpoint.port);
    config.quantiles = vec![0.5, 0.99, 0.9999];
    if let Until::Time(time) | Until::Stable(time) = until {
        config.length = Length::Time(time);
    }
    Ok(config)
}

/// A command line for the report, with the server's address in front, and quotes where a shell needs them.
fn shown(load: &Load, node: &Node, time: Option<&str>) -> String {
    let words = node.endpoint.options(false).into_iter().chain(load.args()).chain(time.map(str::to_owned));
    let quoted = words.map(|word| match word.split_once('=') {
        Some((name, value)) if value.contains(' ') => format!("{name}='{value}'"),
        _ => word,
    });
    std::iter::once(String::from("flintkv bench")).chain(quoted).collect::<Vec<_>>().join(" ")
}

/// The progress of a phase, as bars or lines.
struct Screen<'a> {
    name: &'a str,
    watch: &'a Watch,
    bars: Option<(MultiProgress, Vec<ProgressBar>)>,
    state: RefCell<PhaseState>,
    started: SystemTime,
}

struct PhaseState {
    written: Instant,
    stable: Option<Stable>,
}

/// Checks whether the RAM hit ratio still changes.
struct Stable {
    client: Client,
    window: (Instant, Snapshot),
    ratios: Vec<f64>,
}

impl<'a> Screen<'a> {
    fn new(name: &'a str, loads: &[Load], node: &Node, watch: &'a Watch, until: Until) -> Result<Screen<'a>> {
        let is_json = IN_JSON.load(Ordering::Relaxed);
        let bars = (!is_json && std::io::stderr().is_terminal()).then(|| {
            let all = MultiProgress::new();
            let style = ProgressStyle::with_template("{prefix:<14} {bar:24.cyan/dim} {percent:>3} %  {msg}");
            let style = style.expect("a good template");
            let bar = |load: &Load| {
                let title = if loads.len() > 1 { load.name.clone() } else { name.to_owned() };
                all.add(ProgressBar::new(BAR_STEPS)).with_style(style.clone()).with_prefix(title)
            };
            let bars = loads.iter().map(bar).collect();
            (all, bars)
        });
        let stable = match until {
            Until::Stable(_) => {
                let mut client = Client::connect(&node.endpoint)?;
                let first = Snapshot::of(&client.info()?);
                Some(Stable { client, window: (Instant::now(), first), ratios: Vec::new() })
            }
            _ => None,
        };
        let state = RefCell::new(PhaseState { written: Instant::now(), stable });
        Ok(Screen { name, watch, bars, state, started: SystemTime::now() })
    }

    /// The stable hit ratio, if the phase waited for one.
    fn finish(self) -> Option<f64> {
        if let Some((_, bars)) = &self.bars {
            bars.iter().for_each(ProgressBar::finish);
        }
        let stable = self.state.into_inner().stable?;
        let last = &stable.ratios[stable.ratios.len().saturating_sub(WINDOWS)..];
        (!last.is_empty()).then(|| last.iter().sum::<f64>() / last.len() as f64)
    }

    /// RAM hit ratio over the last second or two.
    fn hit_ratio_now(&self) -> Option<f64> {
        let samples = self.watch.samples_since(self.started);
        let [.., before, last] = samples.as_slice() else { return None };
        last.snapshot.ram_hit_ratio_since(&before.snapshot)
    }
}

impl Observer for Screen<'_> {
    fn progress(&self, progress: &Progress<'_>) -> ControlFlow<()> {
        if interrupt::interrupted() {
            return ControlFlow::Break(());
        }
        let mut state = self.state.borrow_mut();
        let hits = self.hit_ratio_now();
        if let Some((_, bars)) = &self.bars {
            for (bar, at) in bars.iter().zip(progress.workloads) {
                bar.set_position((at.fraction * BAR_STEPS as f64) as u64);
                bar.set_message(message(at, progress.elapsed, hits));
            }
        } else if IN_JSON.load(Ordering::Relaxed) {
            let ended = progress.workloads.iter().all(|workload| workload.threads_running == 0);
            if ended || state.written.elapsed() >= JSON_EVERY {
                state.written = Instant::now();
                for at in progress.workloads {
                    let (percent, text) = (at.fraction.clamp(0.0, 1.0) * 100.0, message(at, progress.elapsed, hits));
                    println!(
                        "{}",
                        serde_json::json!({ "phase": self.name, "load": at.name, "percent": percent, "text": text })
                    );
                }
            }
        } else if state.written.elapsed() >= LINE_EVERY {
            state.written = Instant::now();
            for at in progress.workloads {
                let title = if at.name == self.name { String::new() } else { format!(" ({})", at.name) };
                let percent = at.fraction * 100.0;
                eprintln!("{}{title}: {percent:.0} %, {}", self.name, message(at, progress.elapsed, hits));
            }
        }
        let running = !progress.elapsed.is_zero();
        let enough = running && state.stable.as_mut().is_some_and(Stable::look);
        if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Stable {
    /// Whether to stop waiting. A server that reports no ratio, or that stops answering, is not waited for.
    fn look(&mut self) -> bool {
        if self.window.0.elapsed() < WINDOW {
            return false;
        }
        let Ok(info) = self.client.info() else { return true };
        let now = Snapshot::of(&info);
        let ratio = now.ram_hit_ratio_since(&self.window.1);
        self.window = (Instant::now(), now);
        match ratio {
            None => true,
            Some(ratio) => {
                self.ratios.push(ratio);
                is_stable(&self.ratios)
            }
        }
    }
}

fn is_stable(ratios: &[f64]) -> bool {
    let Some(last) = ratios.len().checked_sub(WINDOWS).map(|start| &ratios[start..]) else { return false };
    let (low, high) = last.iter().fold((1.0f64, 0.0f64), |(low, high), &ratio| (low.min(ratio), high.max(ratio)));
    high - low <= TOLERANCE
}

fn message(at: &WorkloadProgress, elapsed: Duration, hits: Option<f64>) -> String {
    let rate = crate::report::grouped(at.ops_per_s);
    let hits = hits.map_or(String::new(), |ratio| format!(", {:.1} % RAM hits", ratio * 100.0));
    let left = match at.fraction {
        fraction if fraction > 0.005 && fraction < 1.0 => {
            let seconds = elapsed.as_secs_f64() * (1.0 - fraction) / fraction;
            format!(", {} left", duration(seconds))
        }
        _ => String::new(),
    };
    format!("{rate} ops/s, {:.2} ms{hits}{left}", at.latency_ms)
}

fn duration(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_stable_after_three_windows_alike() {
        assert!(!is_stable(&[0.85, 0.85]));
        assert!(!is_stable(&[0.80, 0.85, 0.853]));
        assert!(is_stable(&[0.80, 0.851, 0.85, 0.853]));
    }

    #[test]
    fn progress_says_rate_hits_and_time_left() {
        let at = WorkloadProgress { fraction: 0.25, ops_per_s: 123_456.4, latency_ms: 0.214, ..Default::default() };
        let text = message(&at, Duration::from_secs(10), Some(0.8512));
        assert_eq!(text, "123,456 ops/s, 0.21 ms, 85.1 % RAM hits, 30 s left");
        assert_eq!(duration(119.0), "119 s");
        assert_eq!(duration(601.0), "11 min");
    }
}
