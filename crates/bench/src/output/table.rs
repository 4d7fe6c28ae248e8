//! Owns the table of results and the latency distribution, as memtier_benchmark prints them.

use std::fmt::Write;
use std::time::Duration;

use super::Titled;
use crate::stats::{Row, per_second};

const TYPE_WIDTH_MIN: usize = 8;
const OPS_WIDTH: usize = 12;
const HITS_WIDTH: usize = 13;
const LATENCY_WIDTH: usize = 16;
const KB_WIDTH: usize = 13;
/// Steps of the distribution until the remaining share has halved.
const STEPS_PER_HALF: u32 = 5;

/// `ALL STATS` and the table below it; `percentiles` are in per cent. `has_hits`: with the columns of hits and misses, which
/// memtier_benchmark has without --command only.
pub fn table(titled: &Titled<'_>, percentiles: &[f64], has_hits: bool) -> String {
    let stats = titled.stats;
    let rows: Vec<&Row> = stats.rows.iter().chain([&stats.totals]).collect();
    let type_width = rows.iter().map(|row| row.label.chars().count()).max().unwrap_or(0).max(TYPE_WIDTH_MIN);
    let mut text = String::new();
    let mut heads = format!("{:<type_width$}{:>OPS_WIDTH$}", "Type", "Ops/sec");
    if has_hits {
        let _ = write!(heads, "{:>HITS_WIDTH$}{:>HITS_WIDTH$}", "Hits/sec", "Misses/sec");
    }
    let _ = write!(heads, "{:>LATENCY_WIDTH$}", "Avg. Latency");
    for percentile in percentiles {
        let head = format!("p{percentile} Latency");
        let _ = write!(heads, "{head:>LATENCY_WIDTH$}");
    }
    let _ = write!(heads, "{:>KB_WIDTH$} ", "KB/sec");
    let line = |letter: &str| letter.repeat(heads.chars().count());
    let _ = writeln!(text, "{}\n{}\n{heads}\n{}", titled.title, line("="), line("-"));
    for row in rows {
        let _ = write!(text, "{:<type_width$}", row.label);
        text.push_str(&cells(row, stats.duration, percentiles, has_hits));
    }
    text
}

fn cells(row: &Row, duration: Duration, percentiles: &[f64], has_hits: bool) -> String {
    let mut text = format!("{:>OPS_WIDTH$.2}", row.ops_per_s(duration));
    let is_total = row.label == "Totals";
    for count in [row.hits, row.misses].into_iter().filter(|_| has_hits) {
        if is_total || row.label == "Gets" || row.hits + row.misses > 0 {
            let _ = write!(text, "{:>HITS_WIDTH$.2}", per_second(count, duration));
        } else {
            let _ = write!(text, "{:>HITS_WIDTH$}", "---");
        }
    }
    let quantiles = percentiles.iter().map(|percentile| row.quantile_ms(percentile / 100.0));
    for latency in std::iter::once(row.latency_ms_avg()).chain(quantiles) {
        if row.count > 0 {
            let _ = write!(text, "{latency:>LATENCY_WIDTH$.5}");
        } else {
            let _ = write!(text, "{:>LATENCY_WIDTH$}", "---");
        }
    }
    if row.label == "Waits" {
        let _ = writeln!(text, "{:>KB_WIDTH$} ", "---");
    } else {
        let _ = writeln!(text, "{:>KB_WIDTH$.2} ", row.kb_per_s(duration));
    }
    text
}

/// `Request Latency Distribution`, row by row.
pub fn distribution(titled: &Titled<'_>) -> String {
    let rows: Vec<&Row> = titled.stats.rows.iter().filter(|row| row.count > 0).collect();
    let width = rows.iter().map(|row| row.name.chars().count() + 1).max().unwrap_or(0).max(TYPE_WIDTH_MIN);
    let mut text = String::from("Request Latency Distribution\n");
    let _ = writeln!(text, "{:<width$} {:>8} {:>14}\n{}", "Type", "<= msec", "Percent", "-".repeat(72));
    for (index, row) in rows.iter().enumerate() {
        if index > 0 {
            text.push_str("---\n");
        }
        for step in row.latency.iter_quantiles(STEPS_PER_HALF) {
            let ms = step.value_iterated_to() as f64 / 1e3;
            let percent = step.quantile_iterated_to() * 100.0;
            let _ = writeln!(text, "{:<width$} {ms:>8.3} {percent:>14.3}", row.name);
        }
    }
    text
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::stats::{RunStats, Second};

    pub fn row(name: &str, label: &str, latencies_us: &[u64], hits: u64, misses: u64) -> Row {
        let mut row = Row::new(name, label);
        for &us in latencies_us {
            row.count += 1;
            row.latency_ns_sum += us * 1000;
            row.latency.record(us).expect("in range");
        }
        (row.hits, row.misses) = (hits, misses);
        (row.bytes_rx, row.bytes_tx) = (row.count * 1000, row.count * 48);
        row.seconds.push(Second {
            index: 0,
            count: row.count,
            latency_ms_quantiles: vec![row.quantile_ms(0.5), row.quantile_ms(0.99)],
            ..Second::default()
        });
        row
    }

    /// A run of two seconds: 20 SETs and 200 GETs.
    pub fn run() -> RunStats {
        let sets = row("SET", "Sets", &[150; 20], 0, 0);
        let mut latencies = vec![100; 150];
        latencies.extend([1000; 50]);
        let gets = row("GET", "Gets", &latencies, 160, 40);
        let mut totals = Row::new("ALL", "Totals");
        [&sets, &gets].into_iter().for_each(|row| totals.add(row));
        RunStats {
            name: String::from("load"),
            started: SystemTime::UNIX_EPOCH,
            duration: Duration::from_secs(2),
            threads: 1,
            clients: 2,
            requests_per_client: Some(110),
            rows: vec![sets, gets, Row::new("WAIT", "Waits")],
            totals,
            quantiles: vec![0.5, 0.99],
            connection_errors: 0,
            error_texts: Vec::new(),
            unsent: 0,
            interrupted: false,
            per_client: Vec::new(),
        }
    }

    #[test]
    fn the_table_looks_like_memtiers() {
        let stats = run();
        let titled = Titled { title: String::from("ALL STATS"), stats: &stats, runs: 1 };
        let expected = "\
ALL STATS
============================================================================================================================
Type         Ops/sec     Hits/sec   Misses/sec    Avg. Latency     p50 Latency     p99 Latency   p99.9 Latency       KB/sec 
----------------------------------------------------------------------------------------------------------------------------
Sets           10.00          ---          ---         0.15000         0.15000         0.15000         0.15000        10.23 
Gets          100.00        80.00        20.00         0.32500         0.10000         1.00000         1.00000       102.34 
Waits           0.00          ---          ---             ---             ---             ---             ---          --- 
Totals        110.00        80.00        20.00         0.30909         0.10000         1.00000         1.00000       112.58 
";
        assert_eq!(table(&titled, &[50.0, 99.0, 99.9], true), expected);
    }

    #[test]
    fn tables_of_commands_have_no_hits() {
        let stats = run();
        let titled = Titled { title: String::from("ALL STATS"), stats: &stats, runs: 1 };
        let text = table(&titled, &[50.0], false);
        let rows: Vec<&str> = text.lines().filter(|line| !line.starts_with(['=', '-'])).collect();
        let expected = [
            "ALL STATS",
            "Type         Ops/sec    Avg. Latency     p50 Latency       KB/sec ",
            "Sets           10.00         0.15000         0.15000        10.23 ",
            "Gets          100.00         0.32500         0.10000       102.34 ",
            "Waits           0.00             ---             ---          --- ",
            "Totals        110.00         0.30909         0.10000       112.58 ",
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn long_names_widen_the_first_column() {
        let mut stats = run();
        stats.rows = vec![row("HSET", "hset __key__ field __data__", &[100], 0, 0)];
        let titled = Titled { title: String::from("ALL STATS"), stats: &stats, runs: 1 };
        let text = table(&titled, &[50.0], true);
        let starts: Vec<&str> = text.lines().skip(2).map(|line| line.get(..31).unwrap_or(line)).collect();
        assert_eq!(starts[0], "Type                            Ops/sec"[..31].to_owned());
        assert!(starts[2].starts_with("hset __key__ field __data__    "), "{}", starts[2]);
    }

    #[test]
    fn the_distribution_ends_at_100_per_cent() {
        let stats = run();
        let titled = Titled { title: String::new(), stats: &stats, runs: 1 };
        let text = distribution(&titled);
        assert!(text.starts_with("Request Latency Distribution\nType      <= msec        Percent\n-----"), "{text}");
        assert!(text.contains("\nSET         0.150        100.000\n---\nGET         0.100          0.000\n"), "{text}");
        assert!(text.ends_with("GET         1.000        100.000\n"), "{text}");
    }
}
