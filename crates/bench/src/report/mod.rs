//! Owns how a scenario's outcome is displayed: tables as text, Markdown and HTML, and plots in one file without a
//! network. Never knows servers or loads: everything arrives as plain data.

mod page;
mod table;

pub use page::html;
pub use table::{Table, bytes, grouped, milliseconds, percent};

use serde::Serialize;

/// Everything that a page shows. Lists of one plot have the same length.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    pub title: String,
    pub subtitle: String,
    /// The few figures that matter most.
    pub tiles: Vec<Tile>,
    pub tables: Vec<Table>,
    /// What the reader must know to judge the figures.
    pub notes: Vec<String>,
    /// Machine, server, limits.
    pub facts: Vec<(String, String)>,
    pub sweep: Option<Sweep>,
    pub phases: Vec<Phase>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Tile {
    pub label: String,
    pub value: String,
    pub beside: String,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Phase {
    pub name: String,
    /// The exact command lines.
    pub commands: Vec<String>,
    pub loads: Vec<LoadSeries>,
    pub server: Option<ServerSeries>,
}

/// Second by second, as clients saw it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LoadSeries {
    pub name: String,
    pub second: Vec<f64>,
    pub ops: Vec<f64>,
    pub latency_ms_avg: Vec<f64>,
    pub latency_ms_p99: Vec<f64>,
    pub latency_ms_p9999: Vec<f64>,
}

/// What the server said about once a second.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ServerSeries {
    pub second: Vec<f64>,
    pub resident: Vec<f64>,
    /// 0 without a limit.
    pub ram_limit: Vec<f64>,
    /// In per cent. `None` where nothing was read or the server has no flash.
    pub hit_percent: Vec<Option<f64>>,
    pub flash_reads: Vec<f64>,
    pub flash_write_mb: Vec<f64>,
    pub flash_used: Vec<f64>,
    pub has_flash: bool,
}

/// Throughput and latency by size of the working set.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sweep {
    /// Working set in per cent of all keys.
    pub percent: Vec<f64>,
    pub label: Vec<String>,
    pub lines: Vec<SweepLine>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct SweepLine {
    pub name: String,
    pub ops: Vec<f64>,
    pub latency_ms_avg: Vec<f64>,
    pub latency_ms_p99: Vec<f64>,
    pub hit_percent: Vec<Option<f64>>,
}
