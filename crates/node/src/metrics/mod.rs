//! Owns the figures of a database and of the node: one table, in which a figure is a row, and how its rows are read. INFO, /metrics, the
//! API's charts, the alerts and `flintkv top` show what the table says. Never counts anything itself, and never knows HTTP.
//!
//! - `table` is the table: what each figure is called where, what it means, and how it is read.
//! - `figures` gathers what rows read: plain data of a moment.
//! - `reading` is such a moment, and the interval between two; `window` how busy the tiers were lately; `machine` looks at processors and disks.
//! - `info` writes INFO. What is no row stands there as code: lines with several figures in one, one line for each command, error,
//!   replica or logical database, and latencies by percentile. What has labels stands in the API's `prometheus`: histograms, replicas,
//!   primaries, logical databases, conditions and disks.
//!
//! `part` is the figures of a shard or an endpoint of a cluster's database, on the way to the node that merges them.
//!
//! A new figure is a row here, and a counter where it is counted.

mod figures;
mod info;
mod machine;
pub mod part;
mod reading;
mod table;
pub mod whole;
mod window;

pub use figures::{ClusterFigures, Durability, Figures, Latencies, NodeFigures, ShardFigures};
pub use info::info;
pub use machine::{Disk, Io, Machine, places};
pub use reading::{NodeReading, NodeSpan, Reading, Span, Times};
pub use window::{Lately, Window};

use info::{Facts, Text, Value};
use reading::flag;
use std::sync::LazyLock;

/// A figure.
#[derive(Clone, Copy)]
pub struct Row {
    /// Its field of INFO, if it has one. Empty: it is several lines of INFO, which name themselves.
    pub name: &'static str,
    pub kind: Kind,
    pub unit: Unit,
    /// A sentence for /metrics. Empty for what only INFO shows and Redis documents.
    pub help: &'static str,
    pub merge: Merge,
    read: Read,
    info: Option<Info>,
    /// INFO shows it only while this is so.
    when: Option<fn(&Facts<'_>) -> bool>,
    /// Its name in /metrics.
    pub prometheus: Option<&'static str>,
    pub chart: Option<Chart>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Since the start or the last CONFIG RESETSTAT. Charts show how much it grows in a second.
    Counter,
    Gauge,
}

/// What the values of a database's shards are together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    Sum,
    Max,
    Min,
    /// All have the same, or it is of the endpoint and not of a shard.
    Same,
    /// It follows from other figures, when these are merged: a share, a quotient, a percentile of merged histograms.
    Derived,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    OpsPerS,
    /// Microseconds; seconds in /metrics.
    Us,
    /// A share of a whole, 0 to 1.
    Ratio,
    /// How many times as much.
    Factor,
    /// 1 while it is so, otherwise 0.
    State,
    Bytes,
    BytesPerS,
    Count,
    /// A share of 1 in /metrics.
    Percent,
    /// No chart has it.
    Seconds,
    /// Seconds since 1970. No chart has it.
    Timestamp,
}

impl Unit {
    /// Of charts, in the order of their declaration.
    pub const NAMES: &[&str] = &["ops/s", "us", "ratio", "factor", "state", "bytes", "bytes/s", "count", "percent"];

    /// Of a chart's unit.
    pub fn name(self) -> &'static str {
        Unit::NAMES[self as usize]
    }
}

/// How a figure is read.
#[derive(Clone, Copy)]
enum Read {
    Number(fn(&Figures) -> u64),
    State(fn(&Figures) -> bool),
    /// Unknown: NaN.
    Real(fn(&Figures) -> f64),
    /// What only INFO shows: always the same, a line, and several.
    Fixed(&'static str),
    Line(fn(&Facts<'_>) -> Value),
    Lines(fn(&Facts<'_>, &mut Text)),
    /// Only a chart shows it, and it needs two readings.
    Span(fn(&Span<'_>) -> f64),
    Node(fn(&NodeFigures) -> u64),
    NodeSpan(fn(&NodeSpan<'_>) -> f64),
}

/// How INFO writes a figure.
#[derive(Clone, Copy)]
enum Info {
    Plain,
    /// A second line has the bytes for people.
    Human,
    /// ok or err.
    Status,
    /// With two digits; 0.00 if it is unknown.
    Ratio,
    /// With two digits; 100.00 if it is unknown.
    Percent,
    /// INFO's value is another one than that of /metrics.
    As(fn(&Facts<'_>) -> Value),
}

/// A figure over time, for the API: history, charts and alerts.
#[derive(Clone, Copy)]
pub struct Chart {
    /// Its place among the charts of its scope, with gaps for new ones. The histories' files depend on the order.
    pub place: u16,
    pub name: &'static str,
    pub group: &'static str,
    pub label: &'static str,
    /// Empty: the row's help says it.
    description: &'static str,
    pub fold: Fold,
}

/// How several values become one when a graph has fewer points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    Mean,
    /// A peak must not vanish in a long range.
    Peak,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Database,
    Node,
}

/// A row with its chart.
pub type Charted = (&'static Row, Chart);

impl Scope {
    pub const ALL: [Scope; 2] = [Scope::Database, Scope::Node];

    pub fn name(self) -> &'static str {
        if self == Scope::Database { "database" } else { "node" }
    }

    pub fn rows(self) -> Box<dyn Iterator<Item = &'static Row>> {
        match self {
            Scope::Database => Box::new(table::SECTIONS.iter().flat_map(|section| section.rows)),
            Scope::Node => Box::new(table::NODE.iter()),
        }
    }

    /// In their order.
    pub fn charts(self) -> &'static [Charted] {
        static CHARTS: LazyLock<[Vec<Charted>; 2]> = LazyLock::new(|| {
            Scope::ALL.map(|scope| {
                let mut charts: Vec<_> = scope.rows().filter_map(|row| Some((row, row.chart?))).collect();
                charts.sort_by_key(|(_, chart)| chart.place);
                charts
            })
        });
        &CHARTS[self as usize]
    }

    /// Where the chart of this name is in their order.
    pub fn column(self, name: &str) -> Option<usize> {
        self.charts().iter().position(|(_, chart)| chart.name == name)
    }
}

impl Row {
    /// Of its chart.
    pub fn description(&self) -> &'static str {
        self.chart.map(|chart| chart.description).filter(|text| !text.is_empty()).unwrap_or(self.help)
    }

    pub fn chart_unit(&self) -> Unit {
        match (self.kind, self.unit) {
            (Kind::Counter, Unit::Count) => Unit::OpsPerS,
            (Kind::Counter, Unit::Bytes) => Unit::BytesPerS,
            // Microseconds of each second.
            (Kind::Counter, Unit::Us) => Unit::Ratio,
            (_, unit) => unit,
        }
    }

    /// What the chart shows of a database. Unknown: NaN.
    pub fn of_span(&self, span: &Span<'_>) -> f64 {
        let value = match self.read {
            Read::Number(read) if self.kind == Kind::Counter && self.unit == Unit::Us => span.rate(read) / 1e6,
            Read::Number(read) if self.kind == Kind::Counter => span.rate(read),
            Read::Number(read) => read(&span.now.figures) as f64,
            Read::State(read) => flag(read(&span.now.figures)),
            Read::Real(read) => read(&span.now.figures),
            Read::Span(read) => read(span),
            _ => f64::NAN,
        };
        if value.is_finite() { value } else { f64::NAN }
    }

    /// What the chart shows of the node. Unknown: NaN.
    pub fn of_node_span(&self, span: &NodeSpan<'_>) -> f64 {
        let value = match self.read {
            Read::Node(read) => read(&span.now.figures) as f64,
            Read::NodeSpan(read) => read(span),
            _ => f64::NAN,
        };
        if value.is_finite() { value } else { f64::NAN }
    }

    /// What /metrics shows of a database. `None`: nothing is known.
    pub fn of_figures(&self, figures: &Figures) -> Option<String> {
        match (self.read, self.unit) {
            (Read::Number(read), Unit::Us) => Some((read(figures) as f64 / 1e6).to_string()),
            (Read::Number(read), _) => Some(read(figures).to_string()),
            (Read::State(read), _) => Some(u8::from(read(figures)).to_string()),
            (Read::Real(read), unit) => {
                let value = Some(read(figures)).filter(|value| !value.is_nan())?;
                Some(if unit == Unit::Percent { value / 100.0 } else { value }.to_string())
            }
            _ => None,
        }
    }

    /// What /metrics shows of the node.
    pub fn of_node(&self, figures: &NodeFigures) -> Option<u64> {
        if let Read::Node(read) = self.read { Some(read(figures)) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn rows() -> impl Iterator<Item = &'static Row> {
        Scope::ALL.into_iter().flat_map(Scope::rows)
    }

    #[test]
    fn each_place_shows_a_name_once() {
        let mut seen = HashSet::new();
        for row in rows() {
            assert!(row.prometheus.is_none_or(|name| seen.insert(("prometheus", name))), "{} twice", row.name);
        }
        for scope in Scope::ALL {
            for row in scope.rows().filter(|row| !row.name.is_empty()) {
                assert!(seen.insert(("figures", row.name)) || scope == Scope::Node, "{} twice", row.name);
            }
            for (_, chart) in scope.charts() {
                assert!(seen.insert((scope.name(), chart.name)), "{} twice", chart.name);
            }
            let places: HashSet<u16> = scope.charts().iter().map(|(_, chart)| chart.place).collect();
            assert_eq!(places.len(), scope.charts().len(), "two charts of the {} have one place", scope.name());
        }
    }

    #[test]
    fn what_is_shown_is_described() {
        for row in rows() {
            assert!(row.prometheus.is_none() || row.help.ends_with('.'), "{}", row.name);
            assert!(row.chart.is_none() || row.description().ends_with('.'), "{}", row.name);
            assert!(row.chart.is_none() || (row.chart_unit() as usize) < Unit::NAMES.len(), "{}", row.name);
        }
    }

    #[test]
    fn counters_end_as_counters_do_and_are_added() {
        for row in rows().filter(|row| row.kind == Kind::Counter) {
            assert_eq!(row.merge, Merge::Sum, "{}", row.name);
        }
        for row in rows() {
            let Some(name) = row.prometheus else { continue };
            // redis_exporter's name, which its dashboards use.
            let exception = name == "redis_total_error_replies";
            assert_eq!(row.kind == Kind::Counter, name.ends_with("_total") || exception, "{name}");
        }
    }

    #[test]
    fn the_node_has_the_sums_of_its_databases() {
        for (_, chart) in Scope::Node.charts().iter().filter(|(_, chart)| chart.group == "Databases together") {
            assert!(Scope::Database.column(chart.name).is_some(), "{}", chart.name);
        }
    }
}
