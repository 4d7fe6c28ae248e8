//! Owns benchmarks: one `flintkv scenario` at a time, in a process of its own, against one of the databases, with its
//! progress and its report. Never loads a database itself.

use crate::error::ApiError;
use crate::events::{Event, Events, Severity};
use node::Database;
use parking_lot::Mutex;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::Arc;
use utoipa::ToSchema;

/// How many benchmarks are kept, and how many lines of each.
const KEPT: usize = 20;
const LINES_KEPT: usize = 200;
const LINE_BYTES_MAX: u64 = 4 << 20;
const SECONDS_MAX: u64 = 3600;

#[derive(Debug, Serialize, ToSchema)]
pub struct Scenario {
    pub name: &'static str,
    pub title: &'static str,
    pub published_by: &'static str,
    pub machine: &'static str,
    pub keys: u64,
    pub raw_bytes: u64,
    pub memory_bytes: u64,
    pub ram_bytes: u64,
}

/// The benchmarks that can be run.
pub fn scenarios() -> Vec<Scenario> {
    let card = |card: bench::scenario::ScenarioInfo| Scenario {
        name: card.name,
        title: card.title,
        published_by: card.published_by,
        machine: card.machine,
        keys: card.keys,
        raw_bytes: card.raw_bytes,
        memory_bytes: card.memory_bytes,
        ram_bytes: card.ram_bytes,
    };
    bench::scenario::catalog().into_iter().map(card).collect()
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewBenchmark {
    pub database: String,
    pub scenario: String,
    /// A fraction of the published size: "1/150", "0.01" or a number.
    #[schema(value_type = String)]
    #[serde(deserialize_with = "fraction")]
    pub scale: String,
    /// Of the measured run; populating and the dry run come before it.
    seconds: Option<u64>,
}

impl NewBenchmark {
    pub fn check(&self) -> Result<(), ApiError> {
        if !bench::scenario::catalog().iter().any(|card| card.name == self.scenario) {
            return Err(ApiError::field("scenario", format!("there is no scenario '{}'", self.scenario))
                .hint("GET /api/v1/scenarios lists them"));
        }
        let scale = bench::scenario::Scale::from_str(&self.scale);
        let scale = scale.map_err(|error| ApiError::field("scale", error.to_string()))?;
        if let Some(why) = bench::scenario::too_small(&self.scenario, scale) {
            return Err(ApiError::field("scale", why));
        }
        if self.seconds.is_some_and(|seconds| !(1..=SECONDS_MAX).contains(&seconds)) {
            return Err(ApiError::field("seconds", format!("a number from 1 to {SECONDS_MAX} is expected")));
        }
        Ok(())
    }
}

fn fraction<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::String(text) => Ok(text),
        serde_json::Value::Number(number) => Ok(number.to_string()),
        _ => Err(serde::de::Error::custom("scale: expected a fraction such as \"1/150\" or a number")),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    Running,
    Done,
    Failed,
    Cancelled,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Benchmark {
    pub id: String,
    pub database: String,
    pub scenario: String,
    pub scale: String,
    pub state: Stage,
    pub started_ms: u64,
    pub ended_ms: Option<u64>,
    /// populate, dry run, measured run …
    pub phase: String,
    /// Of the phase.
    pub percent: f64,
    /// What the scenario said, oldest first.
    pub lines: Vec<String>,
    pub report: Option<BenchmarkReport>,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct BenchmarkReport {
    pub title: String,
    pub rows: Vec<ReportRow>,
    pub notes: Vec<String>,
    /// The whole report, as `flintkv scenario --json` writes it.
    #[schema(value_type = Object)]
    pub whole: serde_json::Value,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ReportRow {
    pub name: String,
    pub value: String,
    /// Empty: the value contains its unit.
    pub unit: String,
    pub published: String,
}

pub struct Benchmarks {
    program: Vec<OsString>,
    state: Arc<Mutex<BenchmarksState>>,
}

#[derive(Default)]
struct BenchmarksState {
    next: u64,
    all: VecDeque<Benchmark>,
    child: Option<Child>,
    /// Benchmarks that have ended, and whose event is not written yet: id and result.
    untold: Vec<(String, Stage)>,
}

impl BenchmarksState {
    fn find(&mut self, id: &str) -> Option<&mut Benchmark> {
        self.all.iter_mut().find(|benchmark| benchmark.id == id)
    }

    fn is_running(&self) -> bool {
        self.all.iter().any(|benchmark| benchmark.state == Stage::Running)
    }
}

impl Benchmarks {
    pub fn new(program: Vec<OsString>) -> Benchmarks {
        Benchmarks { program, state: Arc::default() }
    }

    pub fn all(&self) -> Vec<Benchmark> {
        self.state.lock().all.iter().rev().cloned().collect()
    }

    pub fn one(&self, id: &str) -> Result<Benchmark, ApiError> {
        self.state.lock().find(id).cloned().ok_or_else(|| unknown(id))
    }

    /// Called every second: reports benchmarks that have ended.
    pub fn look(&self, events: &Events, now_ms: u64) {
        let untold: Vec<(String, Stage)> = std::mem::take(&mut self.state.lock().untold);
        for (id, stage) in untold {
            let Ok(benchmark) = self.one(&id) else { continue };
            if let Some(benchmark) = self.state.lock().find(&id) {
                benchmark.ended_ms = Some(now_ms);
            }
            let (severity, what) = match stage {
                Stage::Failed => (Severity::Warning, "failed"),
                Stage::Cancelled => (Severity::Info, "was stopped"),
                _ => (Severity::Info, "is done"),
            };
            let text = format!("benchmark {} at scale {} {what}", benchmark.scenario, benchmark.scale);
            events.push(Event::info("benchmark", &benchmark.database, text).severity(severity));
        }
    }

    /// Stops a benchmark that runs; forgets one that has ended.
    pub fn stop_or_forget(&self, id: &str) -> Result<(), ApiError> {
        let mut state = self.state.lock();
        let benchmark = state.find(id).ok_or_else(|| unknown(id))?;
        if benchmark.state == Stage::Running {
            benchmark.state = Stage::Cancelled;
            if let Some(child) = &mut state.child {
                child.kill().map_err(|error| ApiError::failed(format!("it cannot be stopped: {error}")))?;
            }
        } else {
            state.all.retain(|benchmark| benchmark.id != id);
        }
        Ok(())
    }

    /// The node stops, so the load generator stops too.
    pub fn stop(&self) {
        if let Some(child) = &mut self.state.lock().child {
            let _ = child.kill();
        }
    }

    /// `wanted` was checked. A second benchmark at the same time is refused.
    pub fn start(&self, wanted: &NewBenchmark, database: &Database, now_ms: u64) -> Result<Benchmark, ApiError> {
        let (host, port) = address(database)?;
        let mut state = self.state.lock();
        if state.is_running() || state.child.is_some() {
            return Err(ApiError::busy("another benchmark is running").hint("wait for it, or stop it"));
        }
        let (program, first) = self.program.split_first().ok_or_else(|| ApiError::failed("no program to run"))?;
        let mut command = Command::new(program);
        command.args(first).arg(&wanted.scenario).args(["--json-lines", "--scale", &wanted.scale]);
        command.args(["--host", &host, "--port", &port.to_string()]);
        if let Some(seconds) = wanted.seconds {
            command.args(["--test-time", &seconds.to_string(), "--dry-time", &seconds.max(1).to_string()]);
        }
        // Not as an argument, because every user of the machine can read arguments.
        command.env("REDISCLI_AUTH", database.definition().password.unwrap_or_default());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().map_err(|error| ApiError::failed(format!("cannot run {}: {error}", program.display())))?;
        state.next += 1;
        let benchmark = Benchmark {
            id: state.next.to_string(),
            database: wanted.database.clone(),
            scenario: wanted.scenario.clone(),
            scale: wanted.scale.clone(),
            state: Stage::Running,
            started_ms: now_ms,
            ended_ms: None,
            phase: "starting".to_owned(),
            percent: 0.0,
            lines: Vec::new(),
            report: None,
        };
        let pipes = (child.stdout.take(), child.stderr.take());
        if state.all.len() == KEPT {
            state.all.pop_front();
        }
        state.all.push_back(benchmark.clone());
        state.child = Some(child);
        drop(state);
        if let (Some(out), Some(err)) = pipes {
            let (shared, id) = (Arc::clone(&self.state), benchmark.id.clone());
            let errors = {
                let (shared, id) = (Arc::clone(&shared), id.clone());
                std::thread::spawn(move || each_line(err, |line| say(&mut shared.lock(), &id, line)))
            };
            std::thread::spawn(move || {
                each_line(out, |line| hear(&mut shared.lock(), &id, line));
                let _ = errors.join();
                ended(&mut shared.lock(), &id);
            });
        }
        Ok(benchmark)
    }
}

fn unknown(id: &str) -> ApiError {
    ApiError::not_found(format!("there is no benchmark '{id}'"))
}

/// The lines of a process, none longer than [`LINE_BYTES_MAX`], until it ends.
fn each_line(pipe: impl Read, mut each: impl FnMut(&str)) {
    let mut reader = BufReader::new(pipe);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => each(String::from_utf8_lossy(&line).trim_end()),
        }
    }
}

fn say(state: &mut BenchmarksState, id: &str, line: &str) {
    let Some(benchmark) = state.find(id).filter(|_| !line.is_empty()) else { return };
    if benchmark.lines.len() == LINES_KEPT {
        benchmark.lines.remove(0);
    }
    benchmark.lines.push(line.chars().take(1000).collect());
}

/// Handles a line of the output of `--json-lines`: progress or the report.
fn hear(state: &mut BenchmarksState, id: &str, line: &str) {
    let Ok(line) = serde_json::from_str::<serde_json::Value>(line) else { return };
    let Some(benchmark) = state.find(id) else { return };
    if let Some(phase) = line["phase"].as_str() {
        benchmark.phase = phase.to_owned();
        benchmark.percent = line["percent"].as_f64().unwrap_or(0.0);
        let text = format!("{phase}: {:.0} %, {}", benchmark.percent, line["text"].as_str().unwrap_or(""));
        say(state, id, &text);
    } else if line["report"].is_object() {
        benchmark.report = Some(outcome(line));
        benchmark.phase = "done".to_owned();
        benchmark.percent = 100.0;
    }
}

/// The table beside the published figures, as rows.
fn outcome(whole: serde_json::Value) -> BenchmarkReport {
    let report = &whole["report"];
    let text = |value: &serde_json::Value| value.as_str().unwrap_or("").to_owned();
    let empty = Vec::new();
    let tables = report["tables"].as_array().unwrap_or(&empty);
    let beside = tables.iter().find(|table| table["head"][1] == "published");
    let rows = beside.and_then(|table| table["rows"].as_array()).unwrap_or(&empty);
    let rows = rows.iter().map(|row| ReportRow {
        name: text(&row[0]),
        value: text(&row[2]),
        unit: String::new(),
        published: text(&row[1]),
    });
    let notes = report["notes"].as_array().unwrap_or(&empty).iter().map(text);
    BenchmarkReport {
        title: text(&report["title"]),
        rows: rows.collect(),
        notes: notes.collect(),
        whole: whole.clone(),
    }
}

fn ended(state: &mut BenchmarksState, id: &str) {
    let status = state.child.take().and_then(|mut child| child.wait().ok());
    let Some(benchmark) = state.find(id) else { return };
    if benchmark.state == Stage::Running {
        let well = status.is_some_and(|status| status.success()) && benchmark.report.is_some();
        benchmark.state = if well { Stage::Done } else { Stage::Failed };
    }
    let stage = benchmark.state;
    state.untold.push((id.to_owned(), stage));
}

/// The address that the load generator uses.
fn address(database: &Database) -> Result<(String, u16), ApiError> {
    let endpoints = database.addresses();
    let tcp = endpoints.iter().find(|endpoint| endpoint.kind == "tcp");
    let split = tcp.and_then(|endpoint| endpoint.address.rsplit_once(':'));
    let found = split.and_then(|(host, port)| {
        let host = match host.trim_start_matches('[').trim_end_matches(']') {
            "0.0.0.0" | "*" | "" => "127.0.0.1",
            "::" => "::1",
            host => host,
        };
        Some((host.to_owned(), port.parse().ok()?))
    });
    found.ok_or_else(|| {
        ApiError::unsupported(format!("'{}' has no plain TCP port, which the load generator needs", database.name()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_becomes_rows_beside_the_published() {
        let whole = serde_json::json!({ "report": { "title": "T", "notes": ["n"], "tables": [
            { "title": "parts", "head": ["", "ops"], "rows": [["a", "1"]] },
            { "title": "", "head": ["", "published", "measured"], "rows": [["throughput, ops/s", "160,000", "99"]] },
        ] }, "measured": [] });
        let outcome = outcome(whole);
        let row = ReportRow {
            name: "throughput, ops/s".into(),
            value: "99".into(),
            unit: String::new(),
            published: "160,000".into(),
        };
        assert_eq!((outcome.rows, outcome.notes), (vec![row], vec!["n".to_owned()]));
    }

    #[test]
    fn lines_are_bounded_and_malformed_ones_are_ignored() {
        let mut lines = Vec::new();
        each_line(&b"one\r\n\ntwo"[..], |line| lines.push(line.to_owned()));
        assert_eq!(lines, ["one", "", "two"]);
        let mut state = BenchmarksState::default();
        hear(&mut state, "1", "{\"phase\":\"populate\"}");
        hear(&mut state, "1", "running 1 test");
    }
}
