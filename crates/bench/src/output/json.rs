//! Owns the JSON report, with memtier_benchmark's names.

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};

use super::{Setting, Titled, compressed, settings::settings_json};
use crate::stats::{Row, RunStats, Second, per_second};

/// The whole report: configuration, run information, then one object per title.
pub fn json(settings: &[Setting], runs: &[Titled<'_>], percentiles: &[f64]) -> Value {
    let mut report = Map::new();
    report.insert(String::from("configuration"), settings_json(settings));
    if let Some(first) = runs.first() {
        let stats = first.stats;
        let mut information = Map::new();
        information.insert(String::from("Threads"), json!(stats.threads));
        information.insert(String::from("Connections per thread"), json!(stats.clients));
        match stats.requests_per_client {
            Some(requests) => information.insert(String::from("Requests per client"), json!(requests)),
            None => information.insert(String::from("Seconds"), json!(stats.duration.as_secs_f64().round())),
        };
        information.insert(String::from("Format version"), json!(2));
        report.insert(String::from("run information"), Value::Object(information));
    }
    for run in runs {
        report.insert(run.title.clone(), one(run.stats, run.runs, percentiles));
    }
    Value::Object(report)
}

fn one(stats: &RunStats, runs: u32, percentiles: &[f64]) -> Value {
    let mut object = Map::new();
    let start_ms = stats.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    let total_ms = stats.duration.as_millis() as u64;
    object.insert(
        String::from("Runtime"),
        json!({
            "Start time": start_ms,
            "Finish time": start_ms + total_ms,
            "Total duration": total_ms,
            "Time unit": "MILLISECONDS",
            "Interrupted": if stats.interrupted { "true" } else { "false" },
            "Runs": runs,
        }),
    );
    for row in &stats.rows {
        object.insert(row.label.clone(), row_json(row, stats, percentiles));
    }
    let mut totals = row_json(&stats.totals, stats, percentiles);
    if let Value::Object(totals) = &mut totals {
        totals.insert(String::from("Connection Errors"), json!(stats.connection_errors));
        let rate = per_second(stats.connection_errors, stats.duration);
        totals.insert(String::from("Connection Errors/sec"), number(rate));
        totals.insert(String::from("Due but unsent"), json!(stats.unsent));
    }
    object.insert(String::from("Totals"), totals);
    if !stats.error_texts.is_empty() {
        let texts = stats.error_texts.iter().map(|(text, count)| (text.clone(), json!(count)));
        object.insert(String::from("Errors"), Value::Object(texts.collect()));
    }
    Value::Object(object)
}

fn row_json(row: &Row, stats: &RunStats, percentiles: &[f64]) -> Value {
    let duration: Duration = stats.duration;
    let kb = |bytes| number(per_second(bytes, duration) / 1024.0);
    let ms = |us: u64| number(us as f64 / 1e3);
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
    put("Count", json!(row.count));
    put("Ops/sec", number(row.ops_per_s(duration)));
    put("Hits/sec", number(per_second(row.hits, duration)));
    put("Misses/sec", number(per_second(row.misses, duration)));
    put("Errors", json!(row.errors));
    put("Latency", number(row.latency_ms_avg()));
    put("Average Latency", number(row.latency_ms_avg()));
    put("Accumulated Latency", json!(row.latency_ns_sum / 1_000_000));
    put("Min Latency", ms(row.latency.min()));
    put("Max Latency", ms(row.latency.max()));
    put("KB/sec", kb(row.bytes_rx + row.bytes_tx));
    put("KB/sec RX", kb(row.bytes_rx));
    put("KB/sec TX", kb(row.bytes_tx));
    let series = row.seconds.iter().map(|second| (second.index.to_string(), second_json(second, &stats.quantiles)));
    put("Time-Serie", Value::Object(series.collect()));
    let mut latencies = Map::new();
    if row.count > 0 {
        for percentile in percentiles {
            let value = number(row.quantile_ms(percentile / 100.0));
            latencies.insert(percentile_name(*percentile), value);
        }
        let log = json!({ "Compressed Histogram": compressed(&row.latency) });
        latencies.insert(String::from("Histogram log format"), log);
    }
    put("Percentile Latencies", Value::Object(latencies));
    Value::Object(object)
}

fn second_json(second: &Second, quantiles: &[f64]) -> Value {
    let mut object = Map::new();
    let mut put = |name: String, value: Value| object.insert(name, value);
    put(String::from("Count"), json!(second.count));
    put(String::from("Hits"), json!(second.hits));
    put(String::from("Misses"), json!(second.misses));
    put(String::from("Average Latency"), number(second.latency_ms_avg));
    put(String::from("Min Latency"), number(second.latency_ms_min));
    put(String::from("Max Latency"), number(second.latency_ms_max));
    put(String::from("Accumulated Latency"), number(second.latency_ms_avg * second.count as f64));
    put(String::from("Bytes RX"), json!(second.bytes_rx));
    put(String::from("Bytes TX"), json!(second.bytes_tx));
    for (quantile, ms) in quantiles.iter().zip(&second.latency_ms_quantiles) {
        put(percentile_name(quantile * 100.0), number(*ms));
    }
    Value::Object(object)
}

/// `p99.00`. More decimals only where two would name another percentile.
fn percentile_name(percentile: f64) -> String {
    // 0.999 × 100 is 99.90000000000001; ten digits are enough for any percentile.
    let percentile = (percentile * 1e10).round() / 1e10;
    let short = format!("p{percentile:.2}");
    let exact = short[1..].parse::<f64>().is_ok_and(|read| (read - percentile).abs() < 1e-9);
    if exact { short } else { format!("p{percentile}") }
}

/// Five decimals are more precise than a histogram, and enough for a reader.
fn number(value: f64) -> Value {
    json!((value * 1e5).round() / 1e5)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::settings;
    use crate::output::table::tests::run;

    #[test]
    fn the_report_has_memtiers_structure() {
        let stats = run();
        let runs = [Titled { title: String::from("ALL STATS"), stats: &stats, runs: 1 }];
        let report = json(&settings(&crate::Config::default(), &[]), &runs, &[50.0, 99.0, 99.999]);
        assert_eq!(report["configuration"]["port"], 6379);
        assert_eq!(report["configuration"]["ratio"], "1:10");
        assert_eq!(report["run information"]["Requests per client"], 110);
        let all = &report["ALL STATS"];
        assert_eq!(all["Runtime"]["Total duration"], 2000);
        assert_eq!(all["Runtime"]["Time unit"], "MILLISECONDS");
        let gets = &all["Gets"];
        assert_eq!(gets["Count"], 200);
        assert_eq!(gets["Ops/sec"], 100.0);
        assert_eq!((&gets["Hits/sec"], &gets["Misses/sec"]), (&json!(80.0), &json!(20.0)));
        assert_eq!((&gets["Latency"], &gets["Max Latency"]), (&json!(0.325), &json!(1.0)));
        assert_eq!(gets["Time-Serie"]["0"]["Count"], 200);
        assert_eq!(gets["Time-Serie"]["0"]["p99.00"], 1.0);
        assert_eq!(gets["Percentile Latencies"]["p50.00"], 0.1);
        assert_eq!(gets["Percentile Latencies"]["p99.999"], 1.0);
        let coded = gets["Percentile Latencies"]["Histogram log format"]["Compressed Histogram"].as_str();
        assert!(coded.is_some_and(|coded| coded.starts_with("HISTFAAAA")));
        assert_eq!(all["Waits"]["Percentile Latencies"], json!({}));
        assert_eq!(all["Totals"]["Connection Errors"], 0);
        let order: Vec<&String> = all.as_object().expect("an object").keys().collect();
        assert_eq!(order, ["Runtime", "Sets", "Gets", "Waits", "Totals"]);
    }

    #[test]
    fn percentiles_keep_their_names() {
        assert_eq!(percentile_name(50.0), "p50.00");
        assert_eq!(percentile_name(0.999 * 100.0), "p99.90");
        assert_eq!(percentile_name(99.999), "p99.999");
        assert_eq!(percentile_name(0.99999 * 100.0), "p99.999");
    }
}
