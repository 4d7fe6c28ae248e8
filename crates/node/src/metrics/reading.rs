//! Owns one reading of a database or the node, and the interval between two readings. Never knows a file.

use super::figures::{ClusterFigures, Figures, Latencies, NodeFigures};
use super::machine::Machine;
use super::window::Lately;
use super::{Scope, machine};
use crate::database::Database;
use crate::node::Node;
use engine::Summary;

/// The counters at a moment.
#[derive(Clone)]
pub struct Reading {
    pub at_ms: u64,
    pub figures: Figures,
    pub latencies: Latencies,
}

impl Reading {
    pub fn of(database: &Database, at_ms: u64) -> Reading {
        Reading { at_ms, figures: database.figures(), latencies: database.latencies() }
    }
}

/// The interval between two readings of a database. Without an earlier reading, rates are unknown (NaN) but states are
/// known.
pub struct Span<'r> {
    pub before: Option<&'r Reading>,
    pub now: &'r Reading,
    /// How far the last replica is behind.
    pub lag_ms_max: Option<u64>,
    /// The last ten minutes, whatever the interval is.
    pub lately: Lately,
    /// The latencies within the interval.
    all: Option<Summary>,
    ram: Option<Summary>,
    flash: Option<Summary>,
}

impl<'r> Span<'r> {
    pub fn new(before: Option<&'r Reading>, now: &'r Reading, lag_ms_max: Option<u64>, lately: Lately) -> Span<'r> {
        let between =
            |of: fn(&Latencies) -> &Summary| before.map(|before| of(&now.latencies).since(of(&before.latencies)));
        Span {
            before,
            now,
            lag_ms_max,
            lately,
            all: between(|latencies| &latencies.all),
            ram: between(|latencies| &latencies.read_ram),
            flash: between(|latencies| &latencies.read_flash),
        }
    }

    /// How much a counter grew. A counter that was reset counts from zero.
    fn grown(&self, of: impl Fn(&Figures) -> u64) -> f64 {
        let Some(before) = self.before else { return f64::NAN };
        let (then, now) = (of(&before.figures), of(&self.now.figures));
        now.checked_sub(then).unwrap_or(now) as f64
    }

    pub fn rate(&self, of: impl Fn(&Figures) -> u64) -> f64 {
        let ms = self.before.map_or(0, |before| self.now.at_ms.saturating_sub(before.at_ms));
        self.grown(of) * 1000.0 / ms.max(1) as f64
    }

    /// The share of `part` in the growth of `part` and `rest`. Unknown if nothing grew.
    pub fn share(&self, part: impl Fn(&Figures) -> u64, rest: impl Fn(&Figures) -> u64) -> f64 {
        let part = self.grown(part);
        part / (part + self.grown(rest))
    }

    pub fn all(&self) -> Times<'_> {
        Times(self.all.as_ref())
    }

    pub fn ram(&self) -> Times<'_> {
        Times(self.ram.as_ref())
    }

    pub fn flash(&self) -> Times<'_> {
        Times(self.flash.as_ref())
    }
}

/// Latencies in microseconds. Unknown if nothing was measured.
pub struct Times<'h>(pub Option<&'h Summary>);

impl Times<'_> {
    pub fn mean_us(&self) -> f64 {
        match self.0 {
            Some(histogram) if histogram.count > 0 => histogram.sum_nanos() as f64 / histogram.count as f64 / 1000.0,
            _ => f64::NAN,
        }
    }

    pub fn percentile_us(&self, percent: f64) -> f64 {
        match self.0 {
            Some(histogram) if histogram.count > 0 => histogram.percentile(percent) as f64 / 1000.0,
            _ => f64::NAN,
        }
    }
}

/// The quotient of two states. Unknown if the divisor is zero.
pub fn quotient(part: u64, whole: u64) -> f64 {
    if whole == 0 { f64::NAN } else { part as f64 / whole as f64 }
}

pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { f64::NAN } else { 100.0 * part as f64 / whole as f64 }
}

pub fn flag(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

/// The node at a moment, and the sum of the databases' values at the same moment.
#[derive(Clone)]
pub struct NodeReading {
    pub at_ms: u64,
    pub figures: NodeFigures,
    pub machine: Machine,
    /// `None`: it is a member of none.
    pub cluster: Option<ClusterFigures>,
}

impl NodeReading {
    pub fn of(node: &Node, cluster: Option<ClusterFigures>, at_ms: u64) -> NodeReading {
        NodeReading { at_ms, figures: node.figures(), machine: Machine::look(&machine::places(node)), cluster }
    }
}

pub struct NodeSpan<'r> {
    pub before: Option<&'r NodeReading>,
    pub now: &'r NodeReading,
    /// The values of each database, in the order of their charts.
    pub databases: &'r [Vec<f64>],
}

impl NodeSpan<'_> {
    /// What follows from two looks at the machine. Unknown after the first one.
    pub fn machine(&self, of: impl Fn(&Machine, &Machine) -> f64) -> f64 {
        self.before.map_or(f64::NAN, |before| of(&before.machine, &self.now.machine))
    }

    pub fn cluster(&self, of: impl Fn(&ClusterFigures) -> Option<f64>) -> f64 {
        self.now.cluster.as_ref().and_then(of).unwrap_or(f64::NAN)
    }

    /// The process's use of processors, in percent of one.
    pub fn cpu_percent(&self, of: impl Fn(&NodeFigures) -> u64) -> f64 {
        let Some(before) = self.before else { return f64::NAN };
        let us = of(&self.now.figures).saturating_sub(of(&before.figures)) as f64;
        let ms = self.now.at_ms.saturating_sub(before.at_ms).max(1) as f64;
        us / ms / 10.0
    }

    /// The sum of the known values over all databases.
    pub fn sum(&self, name: &str) -> f64 {
        let Some(column) = Scope::Database.column(name) else { return f64::NAN };
        let known = self.databases.iter().map(|values| values[column]).filter(|value| !value.is_nan());
        let (sum, count) = known.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
        if count == 0 { f64::NAN } else { sum }
    }
}
