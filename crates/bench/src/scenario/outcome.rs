//! Owns the figures of a measured run, from the clients and from the server's counters, and the table that shows them
//! beside the published ones. Never invents a figure: a dash stands for what a server does not report.

use serde::Serialize;

use super::info::Snapshot;
use super::phase::PhaseRun;
use super::spec::Published;
use super::watch::Watch;
use crate::report::{Table, bytes, grouped, milliseconds, percent};
use crate::stats::{Row, RunStats};

pub const DASH: &str = "–";

#[derive(Clone, Debug, Default, Serialize)]
pub struct Measured {
    pub name: String,
    pub duration_s: f64,
    pub requests: u64,
    pub ops_per_s: f64,
    pub latency_ms_avg: f64,
    pub latency_ms_p50: f64,
    pub latency_ms_p99: f64,
    pub latency_ms_p9999: f64,
    pub bytes_per_s: f64,
    /// Keys that did not exist.
    pub misses: u64,
    pub error_replies: u64,
    pub connection_errors: u64,
    pub ram_hit_ratio: Option<f64>,
    pub processor_us_per_command: Option<f64>,
    pub flash: Option<Flash>,
    pub resident: u64,
    pub ram_limit: Option<u64>,
    pub evicted_keys: u64,
}

/// The figures of the flash tier.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Flash {
    pub values_in_ram: u64,
    pub values_in_flash: u64,
    pub reads_per_s: f64,
    pub read_bytes_per_s: f64,
    pub writes_per_s: f64,
    pub write_bytes_per_s: f64,
    /// Pages read ÷ values that were read from flash.
    pub reads_per_value: Option<f64>,
    /// Bytes written to flash ÷ bytes that clients wrote.
    pub write_amplification: Option<f64>,
    pub used_bytes: u64,
    pub live_bytes: u64,
    pub limit_bytes: u64,
    pub errors: u64,
    pub ram_hit_ms: [f64; 3],
    pub flash_hit_ms: [f64; 3],
}

/// All loads of a phase in one row.
pub fn totals(stats: &[RunStats]) -> Row {
    let mut totals = Row::new("ALL", "Totals");
    stats.iter().for_each(|one| totals.add(&one.totals));
    totals
}

impl Measured {
    pub fn of(run: &PhaseRun) -> Measured {
        let whole = Measured::from_row(&run.name, &totals(&run.stats), &run.stats);
        let seconds = whole.duration_s.max(1e-9);
        let (before, after) = (&run.before, &run.after);
        let per_command = |time: f64| time * 1e6 / whole.requests.max(1) as f64;
        let processor_us_per_command = run.processor_s.map(per_command);
        Measured {
            ram_hit_ratio: after.ram_hit_ratio_since(before),
            processor_us_per_command,
            flash: flash(before, after, seconds),
            resident: after.resident,
            ram_limit: after.ram_limit,
            evicted_keys: after.evicted_keys.saturating_sub(before.evicted_keys),
            ..whole
        }
    }

    /// The client-side figures of one load.
    pub fn of_load(stats: &RunStats) -> Measured {
        Measured::from_row(&stats.name, &stats.totals, std::slice::from_ref(stats))
    }

    fn from_row(name: &str, row: &Row, stats: &[RunStats]) -> Measured {
        let duration_s = stats.iter().map(|one| one.duration.as_secs_f64()).fold(0.0, f64::max);
        let per_second = |count: u64| if duration_s > 0.0 { count as f64 / duration_s } else { 0.0 };
        Measured {
            name: name.to_owned(),
            duration_s,
            requests: row.count,
            ops_per_s: per_second(row.count),
            latency_ms_avg: row.latency_ms_avg(),
            latency_ms_p50: row.quantile_ms(0.5),
            latency_ms_p99: row.quantile_ms(0.99),
            latency_ms_p9999: row.quantile_ms(0.9999),
            bytes_per_s: per_second(row.bytes_rx),
            misses: row.misses,
            error_replies: row.errors,
            connection_errors: stats.iter().map(|one| one.connection_errors).sum(),
            ..Measured::default()
        }
    }
}

fn flash(before: &Snapshot, after: &Snapshot, seconds: f64) -> Option<Flash> {
    let (then, now) = (before.tiering.as_ref()?, after.tiering.as_ref()?);
    let grown = |now: u64, then: u64| now.saturating_sub(then) as f64;
    let reads = grown(now.reads, then.reads);
    let value_reads = grown(now.value_reads, then.value_reads);
    let written = grown(now.write_bytes, then.write_bytes);
    let by_users = grown(now.user_write_bytes, then.user_write_bytes);
    Some(Flash {
        values_in_ram: now.values_in_ram,
        values_in_flash: now.values_in_flash,
        reads_per_s: reads / seconds,
        read_bytes_per_s: grown(now.read_bytes, then.read_bytes) / seconds,
        writes_per_s: grown(now.writes, then.writes) / seconds,
        write_bytes_per_s: written / seconds,
        reads_per_value: (value_reads > 0.0).then(|| reads / value_reads),
        write_amplification: (by_users > 0.0).then(|| written / by_users),
        used_bytes: now.flash_used,
        live_bytes: now.flash_live,
        limit_bytes: now.flash_limit,
        errors: grown(now.errors, then.errors) as u64,
        ram_hit_ms: now.ram_hit_ms,
        flash_hit_ms: now.flash_hit_ms,
    })
}

/// The sizes of the whole scenario, besides those of the measured run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sizes {
    pub resident_max: u64,
    /// The largest resident size ÷ RAM limit.
    pub fill_max: Option<f64>,
    /// Raw ÷ stored, of everything that went to flash.
    pub compression_ratio: Option<f64>,
}

impl Sizes {
    pub fn of(watch: &Watch, compression_ratio: Option<f64>) -> Sizes {
        Sizes { resident_max: watch.resident_max(), fill_max: watch.fill_max(), compression_ratio }
    }
}

/// Published and measured, line by line.
pub fn table(title: &str, published: &Published, measured: &Measured, sizes: &Sizes) -> Table {
    let dash = || DASH.to_owned();
    let or_dash = |text: Option<String>| text.unwrap_or_else(dash);
    let flash = measured.flash.as_ref();
    let of_flash = |show: &dyn Fn(&Flash) -> String| flash.map_or_else(dash, show);
    let three = |ms: [f64; 3]| {
        if ms == [0.0; 3] { dash() } else { ms.map(milliseconds).join(" / ") }
    };
    let limit = |used: u64, limit: Option<u64>| match limit {
        Some(limit) if limit > 0 => {
            format!("{} of {} ({})", bytes(used), bytes(limit), percent(used as f64 / limit as f64))
        }
        _ => format!("{}, no limit", bytes(used)),
    };
    let io = |count: f64, amount: f64| format!("{} /s, {}/s", grouped(count), bytes(amount as u64));
    let rows: Vec<(&str, &str, String)> = vec![
        ("throughput, ops/s", published.ops_per_s, grouped(measured.ops_per_s)),
        ("average latency", published.latency_avg, milliseconds(measured.latency_ms_avg)),
        ("p50 latency", DASH, milliseconds(measured.latency_ms_p50)),
        ("p99 latency", published.latency_p99, milliseconds(measured.latency_ms_p99)),
        ("p99.99 latency", published.latency_p9999, milliseconds(measured.latency_ms_p9999)),
        ("RAM hit ratio of reads", published.hit_ratio, or_dash(measured.ram_hit_ratio.map(percent))),
        ("in the server, RAM hits: p50 / p99 / p99.9", DASH, of_flash(&|flash| three(flash.ram_hit_ms))),
        ("in the server, flash hits: p50 / p99 / p99.9", DASH, of_flash(&|flash| three(flash.flash_hit_ms))),
        ("flash reads", DASH, of_flash(&|flash| io(flash.reads_per_s, flash.read_bytes_per_s))),
        ("flash writes", DASH, of_flash(&|flash| io(flash.writes_per_s, flash.write_bytes_per_s))),
        (
            "flash bytes written per byte written by clients",
            DASH,
            or_dash(flash.and_then(|flash| flash.write_amplification).map(|ratio| format!("{ratio:.2}"))),
        ),
        (
            "values in RAM / in flash",
            DASH,
            of_flash(&|flash| {
                format!("{} / {}", grouped(flash.values_in_ram as f64), grouped(flash.values_in_flash as f64))
            }),
        ),
        ("RAM used (resident) of the RAM limit", DASH, limit(measured.resident, measured.ram_limit)),
        ("at most, over the whole scenario", DASH, limit(sizes.resident_max, measured.ram_limit)),
        ("flash used", DASH, of_flash(&|flash| limit(flash.used_bytes, Some(flash.limit_bytes)))),
        (
            "size on flash ÷ raw size",
            published.compression,
            or_dash(sizes.compression_ratio.filter(|&ratio| ratio > 0.0).map(|ratio| percent(1.0 / ratio))),
        ),
        (
            "processor time of the server per command",
            DASH,
            or_dash(measured.processor_us_per_command.map(|us| format!("{us:.2} µs"))),
        ),
        ("keys not found", DASH, grouped(measured.misses as f64)),
        (
            "error replies / connection errors",
            DASH,
            format!("{} / {}", measured.error_replies, measured.connection_errors),
        ),
        ("keys evicted", DASH, grouped(measured.evicted_keys as f64)),
        ("flash errors", DASH, of_flash(&|flash| flash.errors.to_string())),
    ];
    Table {
        title: title.to_owned(),
        head: vec![String::new(), String::from("published"), String::from("measured")],
        rows: rows
            .into_iter()
            .map(|(what, published, measured)| vec![what.into(), published.into(), measured])
            .collect(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::scenario::args::Name;
    use crate::scenario::info::Tiering;
    use crate::scenario::scale::Scale;
    use crate::scenario::spec::spec;
    use std::time::{Duration, SystemTime};

    pub fn stats(name: &str, count: u64, us: u64) -> RunStats {
        let mut totals = Row::new("ALL", "Totals");
        totals.count = count;
        totals.latency_ns_sum = count * us * 1000;
        totals.latency.record_n(us, count).expect("in range");
        (totals.hits, totals.misses) = (count - 3, 3);
        RunStats {
            name: name.to_owned(),
            started: SystemTime::UNIX_EPOCH,
            duration: Duration::from_secs(10),
            threads: 1,
            clients: 20,
            requests_per_client: None,
            rows: vec![],
            totals,
            quantiles: vec![0.5, 0.99, 0.9999],
            connection_errors: 0,
            error_texts: vec![],
            unsent: 0,
            interrupted: false,
            per_client: vec![],
        }
    }

    pub fn run() -> PhaseRun {
        let before = Snapshot { tiering: Some(Tiering::default()), ..Snapshot::default() };
        let after = Snapshot {
            hits: 500_000,
            resident: 180_000_000,
            ram_limit: Some(200_000_000),
            tiering: Some(Tiering {
                values_in_ram: 270_000,
                values_in_flash: 730_000,
                flash_limit: 460_000_000,
                flash_used: 230_000_000,
                value_reads: 75_000,
                reads: 75_000,
                read_bytes: 75_000 * 4096,
                writes: 40,
                write_bytes: 40 << 20,
                user_write_bytes: 260_000_000,
                ram_hit_ms: [0.002, 0.01, 0.05],
                flash_hit_ms: [0.1, 0.3, 0.9],
                ..Tiering::default()
            }),
            ..Snapshot::default()
        };
        PhaseRun {
            name: String::from("measured run"),
            commands: vec![String::from("flintkv bench --ratio=1:1")],
            stats: vec![stats("load", 1_000_000, 250)],
            before,
            after,
            processor_s: Some(2.5),
            samples: vec![],
            hit_ratio_stable: None,
        }
    }

    #[test]
    fn the_table_shows_published_and_measured() {
        let spec = spec(Name::Rof, Scale::new(1, 150));
        let sizes = Sizes { resident_max: 210_000_000, fill_max: Some(1.05), compression_ratio: Some(2.0) };
        let text = table("Redis on Flash", &spec.published, &Measured::of(&run()), &sizes).text();
        let expected = "\
Redis on Flash
                                                 published  measured
------------------------------------------------------------------------------------------
throughput, ops/s                                160,000    100,000
average latency                                  < 1 ms     0.250 ms
p50 latency                                      –          0.250 ms
p99 latency                                      –          0.250 ms
p99.99 latency                                   –          0.250 ms
RAM hit ratio of reads                           85 %       85.0 %
in the server, RAM hits: p50 / p99 / p99.9       –          2.00 µs / 10.00 µs / 50.00 µs
in the server, flash hits: p50 / p99 / p99.9     –          0.100 ms / 0.300 ms / 0.900 ms
flash reads                                      –          7,500 /s, 30.7 MB/s
flash writes                                     –          4 /s, 4.19 MB/s
flash bytes written per byte written by clients  –          0.16
values in RAM / in flash                         –          270,000 / 730,000
RAM used (resident) of the RAM limit             –          180 MB of 200 MB (90.0 %)
at most, over the whole scenario                 –          210 MB of 200 MB (105.0 %)
flash used                                       –          230 MB of 460 MB (50.0 %)
size on flash ÷ raw size                         –          50.0 %
processor time of the server per command         –          2.50 µs
keys not found                                   –          3
error replies / connection errors                –          0 / 0
keys evicted                                     –          0
flash errors                                     –          0
";
        assert_eq!(text, expected, "{text}");
    }

    #[test]
    fn a_server_without_flash_gets_dashes() {
        let mut run = run();
        (run.before.tiering, run.after.tiering, run.after.ram_limit, run.processor_s) = (None, None, None, None);
        let spec = spec(Name::Rof, Scale::new(1, 150));
        let text = table("t", &spec.published, &Measured::of(&run), &Sizes::default()).text();
        for line in ["flash reads ", "RAM hit ratio", "flash used ", "processor time"] {
            let row = text.lines().find(|row| row.starts_with(line)).expect(line);
            assert!(row.ends_with('–'), "{row}");
        }
        assert!(text.contains("180 MB, no limit"), "{text}");
    }
}
