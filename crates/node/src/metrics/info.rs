//! Owns INFO: its sections are lists of rows of the table, with the names of Redis 7.2 and the section Tiering; what is no row is code
//! here. Never counts anything itself.

use super::figures::Figures;
use super::part;
use super::reading::percent;
use super::table::SECTIONS;
use super::{Info, Read, Row};
use crate::database::{Database, Rate};
use crate::memory::{Allocator, cpu_us};
use crate::replication::PrimaryFigures;
use crate::role::{GivenUp, Left};
use base::size;
use config::Config;
use engine::{Counter, Summary, WorkerStats, wall_ms};
use std::cell::OnceCell;
use std::fmt::{Display, Write as _};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What INFO's rows read. The figures are those that the wanted sections need.
pub struct Facts<'a> {
    pub database: &'a Database,
    pub config: Arc<Config>,
    pub figures: Figures,
    pub now_ms: u64,
    allocator: OnceCell<Allocator>,
    rates: OnceCell<[u64; Rate::COUNT]>,
}

impl Facts<'_> {
    pub fn allocator(&self) -> &Allocator {
        self.allocator.get_or_init(Allocator::now)
    }

    pub fn rate(&self, rate: Rate) -> u64 {
        self.rates.get_or_init(|| self.database.rates.lock().per_second())[rate as usize]
    }

    pub fn sum(&self, counter: fn(&WorkerStats) -> &Counter) -> u64 {
        self.database.hub.stats.sum(counter)
    }

    /// Redis's used_memory: the bytes allocated from the allocator and from the store's own arena.
    pub fn used_bytes(&self) -> u64 {
        self.database.allocated_of(self.allocator().allocated) + self.figures.store.object_bytes
    }

    pub fn peak_bytes(&self) -> u64 {
        let used = self.used_bytes();
        self.database.memory_peak_bytes.fetch_max(used, Relaxed).max(used)
    }

    /// What the allocator and the arena hold of the process's RAM.
    pub fn held_bytes(&self) -> u64 {
        self.allocator().resident + self.figures.store.arena_bytes
    }

    pub fn primary(&self) -> Option<&PrimaryFigures> {
        self.figures.replication.primary.as_ref()
    }

    /// The primary whose dataset is being received or loaded.
    pub fn syncing(&self) -> Option<&PrimaryFigures> {
        self.primary().filter(|primary| primary.is_synchronising)
    }

    /// -1: it is not going on.
    pub fn seconds_since(&self, began_ms: u64) -> Value {
        seconds_ago((began_ms != 0).then(|| self.now_ms.saturating_sub(began_ms))).into()
    }
}

/// What a line shows.
pub enum Value {
    Whole(u64),
    Signed(i64),
    Text(String),
    /// INFO has no such line now.
    Absent,
}

macro_rules! values {
    ($($variant:ident($as:ty): $($from:ty),+;)+) => {$($(
        impl From<$from> for Value {
            fn from(value: $from) -> Value {
                Value::$variant(value as $as)
            }
        }
    )+)+};
}

values! {
    Whole(u64): bool, u8, u16, u32, u64, usize;
    Signed(i64): i32, i64;
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Absent, T::into)
    }
}

/// Lines of the form `field:value`.
#[derive(Default)]
pub struct Text(String);

impl Text {
    fn line(&mut self, name: &str, value: impl Display) {
        // Writing to a String cannot fail.
        let _ = write!(self.0, "{name}:{value}\r\n");
    }

    fn value(&mut self, name: &str, value: Value) {
        match value {
            Value::Whole(value) => self.line(name, value),
            Value::Signed(value) => self.line(name, value),
            Value::Text(value) => self.line(name, value),
            Value::Absent => {}
        }
    }

    fn row(&mut self, row: &Row, facts: &Facts<'_>) {
        let Some(info) = row.info.filter(|_| row.when.is_none_or(|is_shown| is_shown(facts))) else { return };
        let value = match (info, row.read) {
            (Info::As(read), _) | (_, Read::Line(read)) => read(facts),
            (_, Read::Lines(write)) => return write(facts, self),
            (_, Read::Fixed(text)) => text.into(),
            (Info::Status, Read::State(read)) => if read(&facts.figures) { "ok" } else { "err" }.into(),
            (_, Read::State(read)) => read(&facts.figures).into(),
            (_, Read::Number(read)) => read(&facts.figures).into(),
            (Info::Percent, Read::Real(read)) => two_digits(read(&facts.figures), 100.0).into(),
            (_, Read::Real(read)) => two_digits(read(&facts.figures), 0.0).into(),
            (_, Read::Span(_) | Read::Node(_) | Read::NodeSpan(_)) => Value::Absent,
        };
        let human = match (info, &value) {
            (Info::Human, Value::Whole(bytes)) => Some(size::info(*bytes)),
            _ => None,
        };
        self.value(row.name, value);
        if let Some(human) = human {
            self.line(&format!("{}_human", row.name), human);
        }
    }
}

/// The wanted sections in INFO's order. If none is named: the default sections.
pub fn info(database: &Database, wanted: &[&[u8]]) -> String {
    if let [word] = wanted
        && word.eq_ignore_ascii_case(part::SECTION.as_bytes())
    {
        return part::text(database);
    }
    let asks = |name: &str| wanted.iter().any(|word| word.eq_ignore_ascii_case(name.as_bytes()));
    let all = asks("all") || asks("everything");
    let default = wanted.is_empty() || asks("default");
    let shown: Vec<_> =
        SECTIONS.iter().filter(|section| all || (default && !section.is_asked) || asks(section.name)).collect();
    let facts = Facts {
        database,
        config: database.hub.config.snapshot(),
        figures: database.figures_of(shown.iter().fold(0, |needs, section| needs | section.needs)),
        now_ms: wall_ms(),
        allocator: OnceCell::new(),
        rates: OnceCell::new(),
    };
    let mut text = Text::default();
    for section in shown {
        if !text.0.is_empty() {
            text.0.push_str("\r\n");
        }
        let _ = write!(text.0, "# {}\r\n", section.name);
        section.rows.iter().for_each(|row| text.row(row, &facts));
    }
    text.0
}

pub fn two_digits(value: f64, if_unknown: f64) -> String {
    format!("{:.2}", if value.is_nan() { if_unknown } else { value })
}

pub fn ratio(part: u64, whole: u64) -> Value {
    two_digits(super::reading::quotient(part, whole), 0.0).into()
}

pub fn kilobytes(bytes: u64) -> Value {
    format!("{:.2}", bytes as f64 / 1024.0).into()
}

/// Whole seconds; -1 if there are no milliseconds.
pub fn seconds(ms: u64) -> Value {
    seconds_ago((ms != 0).then_some(ms)).into()
}

/// -1: never.
pub fn seconds_ago(ms: Option<u64>) -> i64 {
    ms.map_or(-1, |ms| ms as i64 / 1000)
}

/// What another server has said must not end the line.
pub fn one_line(text: Option<&str>) -> String {
    text.unwrap_or_default().replace(|c: char| c.is_control(), " ")
}

fn micros(nanos: u64) -> String {
    format!("{:.3}", nanos as f64 / 1000.0)
}

pub fn system() -> String {
    let system = rustix::system::uname();
    [system.sysname(), system.release(), system.machine()].map(|part| part.to_string_lossy().into_owned()).join(" ")
}

pub fn executable() -> String {
    std::env::current_exe().map_or(String::new(), |path| path.display().to_string())
}

pub fn dataset_percent(facts: &Facts<'_>) -> String {
    let net = facts.used_bytes().saturating_sub(facts.database.memory_startup_bytes.load(Relaxed)).max(1);
    format!("{:.2}%", (100.0 * facts.figures.store.object_bytes as f64 / net as f64).min(100.0))
}

/// The backlog's bytes that are in RAM. A replica has no buffer of its own.
pub fn backlog_in_ram(facts: &Facts<'_>) -> u64 {
    let stream = &facts.database.hub.dataset.journaling.stream;
    let backlog = stream.backlog();
    (backlog.end - backlog.start).min(stream.window_bytes() as u64)
}

/// The bytes of the dataset that is being loaded: all, and those that are loaded.
fn load_bytes(facts: &Facts<'_>) -> (u64, u64) {
    let files = &facts.database.files;
    (files.loading_total_bytes.load(Relaxed), files.loaded_bytes.load(Relaxed))
}

pub fn loaded_percent(facts: &Facts<'_>) -> String {
    let (total, loaded) = load_bytes(facts);
    format!("{:.2}", 100.0 * loaded as f64 / total.max(1) as f64)
}

pub fn loading_left_s(facts: &Facts<'_>) -> u64 {
    let (total, loaded) = load_bytes(facts);
    let elapsed_ms = facts.now_ms.saturating_sub(facts.database.files.loading_since_ms.load(Relaxed));
    let left = u128::from(total.saturating_sub(loaded));
    (u128::from(elapsed_ms) * left / u128::from(loaded.max(1)) / 1000) as u64
}

pub fn while_saving(facts: &Facts<'_>, keys: impl Fn() -> u64) -> u64 {
    if facts.database.files.saving_since_ms.load(Relaxed) != 0 { keys() } else { 0 }
}

pub fn recent_hits(facts: &Facts<'_>) -> String {
    let ram = facts.rate(Rate::RamHits);
    two_digits(percent(ram, ram + facts.rate(Rate::FlashHits)), 100.0)
}

/// Latencies of reads by percentile: of flash, and of commands by the tier of their values.
pub fn read_latencies(facts: &Facts<'_>, text: &mut Text) {
    for (name, nanos) in ["p50", "p99", "p99.9", "max"].into_iter().zip(facts.figures.store.flash_latency_nanos) {
        text.line(&format!("flash_read_latency_usec_{name}"), micros(nanos));
    }
    let stats = &facts.database.hub.stats;
    let (ram, flash) = (stats.merged(|worker| &worker.ram_latency), stats.merged(|worker| &worker.flash_latency));
    for (name, summary) in [("ram_hit", ram), ("flash_hit", flash)] {
        text.line(&format!("command_{name}_count"), summary.count);
        for percent in [50.0, 99.0, 99.9] {
            let value = micros(summary.percentile(percent));
            text.line(&format!("command_{name}_latency_usec_p{percent}"), value);
        }
    }
}

/// What a database was before it was promoted, and what it has given up.
pub fn promotion(facts: &Facts<'_>, text: &mut Text) {
    let role = &facts.database.replication.role;
    if let Some(Left { host, port, was_up }) = &*role.left.lock() {
        text.line("promoted_from", format!("{host}:{port}"));
        text.line("promoted_while_primary_up", u8::from(*was_up));
    }
    if let Some(GivenUp { from, bytes, writes }) = facts.figures.replication.given_up {
        text.line("given_up_from_offset", from);
        text.line("given_up_bytes", bytes);
        text.line("given_up_writes", writes.map_or(-1, |writes| writes as i64));
    }
}

/// Those that keep up, if writes need any.
pub fn good_replicas(facts: &Facts<'_>) -> Option<usize> {
    let settings = &facts.config.primary;
    let count = || facts.database.hub.dataset.links.count_alive(settings.lag_s_max.saturating_mul(1000), facts.now_ms);
    (settings.replicas_min > 0).then(count)
}

pub fn replicas(facts: &Facts<'_>, text: &mut Text) {
    for (number, replica) in facts.figures.replication.replicas.iter().enumerate() {
        let (ip, port, state, offset) = (&replica.ip, replica.port, replica.state, replica.offset);
        let lag = replica.silent_ms / 1000;
        text.line(&format!("slave{number}"), format!("ip={ip},port={port},state={state},offset={offset},lag={lag}"));
    }
}

pub fn stream_id(facts: &Facts<'_>) -> String {
    let id = &facts.figures.replication.id;
    if id.is_empty() { &facts.database.lone_id } else { id }.clone()
}

pub fn second_id(facts: &Facts<'_>) -> String {
    let second = facts.database.hub.dataset.journaling.stream.mark().and_then(|mark| mark.second);
    second.map_or_else(|| "0".repeat(40), |(id, _)| id.to_string())
}

pub fn second_offset(facts: &Facts<'_>) -> i64 {
    let second = facts.database.hub.dataset.journaling.stream.mark().and_then(|mark| mark.second);
    second.map_or(-1, |(_, to)| to as i64 + 1)
}

pub fn cpu(_: &Facts<'_>, text: &mut Text) {
    let seconds = |us: u64| format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
    for (name, who) in [("", libc::RUSAGE_SELF), ("_children", libc::RUSAGE_CHILDREN)] {
        let (user_us, system_us) = cpu_us(who);
        text.line(&format!("used_cpu_sys{name}"), seconds(system_us));
        text.line(&format!("used_cpu_user{name}"), seconds(user_us));
    }
}

pub fn command_stats(facts: &Facts<'_>, text: &mut Text) {
    let database = facts.database;
    let mut commands: Vec<_> = database.hub.directory.all().collect();
    commands.sort_by_key(|command| command.id);
    for command in commands {
        let totals = database.hub.stats.command(command.id);
        if totals.calls + totals.rejected + totals.failed == 0 {
            continue;
        }
        let usec = totals.nanos as f64 / 1000.0;
        let each = usec / totals.calls.max(1) as f64;
        text.line(
            &format!("cmdstat_{}", command.name),
            format_args!(
                "calls={},usec={usec:.0},usec_per_call={each:.2},rejected_calls={},failed_calls={}",
                totals.calls, totals.rejected, totals.failed
            ),
        );
    }
}

pub fn error_stats(facts: &Facts<'_>, text: &mut Text) {
    for (code, count) in facts.database.hub.stats.errors() {
        text.line(&format!("errorstat_{code}"), format_args!("count={count}"));
    }
}

pub fn latency_stats(facts: &Facts<'_>, text: &mut Text) {
    let database = facts.database;
    if !facts.config.latency_tracking {
        return;
    }
    let mut commands: Vec<_> = database.hub.directory.all().collect();
    commands.sort_by_key(|command| command.id);
    for command in commands {
        if let Some(summary) = database.hub.stats.command_latency(command.id) {
            let values = percentiles(&summary, &facts.config.latency_tracking_percentiles);
            text.line(&format!("latency_percentiles_usec_{}", command.name), values);
        }
    }
}

/// `p50=1.003,p99=2.007`
fn percentiles(summary: &Summary, percents: &[f64]) -> String {
    let each = percents.iter().map(|&percent| format!("p{percent}={}", micros(summary.percentile(percent))));
    each.collect::<Vec<_>>().join(",")
}

pub fn keyspace(facts: &Facts<'_>, text: &mut Text) {
    let store = &facts.database.shard.store;
    for (db, counts) in facts.figures.store.by_database.iter().enumerate() {
        if counts.keys > 0 {
            text.line(
                &format!("db{db}"),
                format_args!(
                    "keys={},expires={},avg_ttl={},cached_keys={}",
                    counts.keys,
                    counts.expires,
                    store.average_ttl(db),
                    counts.hot
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_with_a_zero_whole_are_finite() {
        assert!(matches!(ratio(5, 0), Value::Text(text) if text == "0.00"));
        assert_eq!(two_digits(percent(0, 0), 100.0), "100.00");
    }
}
