//! Owns the list of settings that `--show-config` prints and JSON contains, with memtier_benchmark's names.

use std::fmt::Write;
use std::ops::RangeInclusive;

use serde_json::{Map, Value, json};

use crate::config::{Config, Family, Fill, KeyPattern, Length, Pace, Protocol, SizePattern, SizeSpec, Target, Work};

/// A name and its value.
pub type Setting = (String, Value);

/// The settings of `config`, then `more`, which belong to the report.
pub fn settings(config: &Config, more: &[Setting]) -> Vec<Setting> {
    let mut list = Vec::new();
    let mut put = |name: &str, value: Value| list.push((name.to_owned(), value));
    let (server, port, socket, family) = match &config.target {
        Target::Tcp { host, port, family } => (host.as_str(), *port, String::new(), *family),
        Target::Unix(path) => ("", 0, path.display().to_string(), Family::Any),
    };
    put("server", json!(server));
    put("port", json!(port));
    put("unix socket", json!(socket));
    let family = match family {
        Family::Any => "Unspecified",
        Family::V4 => "AF_INET",
        Family::V6 => "AF_INET6",
    };
    put("address family", json!(family));
    let protocol = match config.protocol {
        Protocol::Redis => "redis",
        Protocol::Resp2 => "resp2",
        Protocol::Resp3 => "resp3",
    };
    put("protocol", json!(protocol));
    put("authenticate", yes(config.auth.is_some()));
    put("select-db", json!(config.select_db));
    put("requests", json!(config.requests_per_client().unwrap_or(0)));
    let test_time = if let Length::Time(time) = config.length { time.as_secs() } else { 0 };
    put("test_time", json!(test_time));
    put("clients", json!(config.clients));
    put("threads", json!(config.threads));
    let ramp = config.ramp;
    put("clients_start", json!(ramp.map_or(0, |ramp| ramp.start)));
    put("clients_step", json!(ramp.map_or(0, |ramp| ramp.step)));
    put("step_duration", json!(ramp.map_or(0, |ramp| ramp.every.as_secs())));
    put("pipeline", json!(config.pipeline));
    put("rate_limiting", json!(if let Pace::PerConnection(rate) = config.pace { rate } else { 0 }));
    put("rate", json!(if let Pace::OpenLoop(rate) = config.pace { rate } else { 0.0 }));
    match &config.work {
        Work::SetGet(work) => {
            put("ratio", json!(format!("{}:{}", work.sets, work.gets)));
            put("key_pattern", json!(format!("{}:{}", letter(work.set_pattern), letter(work.get_pattern))));
            put("multi_key_get", json!(work.multi_key_get));
            put("expiry_range", json!(work.expiry.as_ref().map_or(String::new(), range)));
            let wait = work.wait.as_ref();
            put("wait-ratio", json!(wait.map_or(String::new(), |wait| format!("{}:{}", wait.sets, wait.waits))));
            put("num-slaves", json!(wait.map_or(String::new(), |wait| range(&wait.replicas))));
            put("wait-timeout", json!(wait.map_or(String::new(), |wait| range(&wait.timeout_ms))));
        }
        Work::Commands(work) => {
            let commands = work.specs.iter().map(|spec| {
                let pattern = letter(spec.pattern).to_string();
                json!({ "command": spec.line, "ratio": spec.ratio, "key_pattern": pattern })
            });
            put("commands", Value::Array(commands.collect()));
            put("command_stats_breakdown", json!(if work.by_line { "line" } else { "command" }));
            put("scan_incremental_iteration", yes(work.scan.is_some()));
            put("monitor_lines", json!(work.monitor.as_ref().map_or(0, |monitor| monitor.lines.len())));
        }
    }
    let (mut size, mut spread, mut list_text, mut pattern) = (0, String::new(), String::new(), "R");
    match &config.data.size {
        SizeSpec::Fixed(bytes) => size = *bytes,
        SizeSpec::Range { min, max, pattern: how } => {
            spread = format!("{min}-{max}");
            pattern = if *how == SizePattern::Random { "R" } else { "S" };
        }
        SizeSpec::List(list) => {
            let items: Vec<String> = list.iter().map(|(size, weight)| format!("{size}:{weight}")).collect();
            list_text = items.join(",");
        }
    }
    put("data_size", json!(size));
    put("data_offset", json!(config.data.offset));
    put("data_size_range", json!(spread));
    put("data_size_list", json!(list_text));
    put("data_size_pattern", json!(pattern));
    put("random_data", yes(config.data.fill == Fill::Mutated));
    let share = if let Fill::Compressible(share) = config.data.fill { json!(share) } else { Value::Null };
    put("data_compressibility", share);
    let keys = &config.keys;
    put("key_prefix", json!(String::from_utf8_lossy(&keys.prefix)));
    put("key_minimum", json!(keys.min));
    put("key_maximum", json!(keys.max));
    put("key_stddev", json!(keys.stddev.unwrap_or(0.0)));
    put("key_median", json!(keys.median.unwrap_or(0.0)));
    put("key_zipf_exp", json!(keys.zipf_exponent));
    put("seed", json!(config.seeding.seed));
    put("distinct_client_seed", yes(config.seeding.distinct));
    let reconnect = &config.reconnect;
    put("reconnect_interval", json!(reconnect.every));
    put("reconnect_on_error", yes(reconnect.on_error));
    put("max_reconnect_attempts", json!(reconnect.attempts_max));
    put("reconnect_backoff_factor", json!(reconnect.backoff_factor));
    put("connection_timeout", json!(reconnect.timeout.as_secs()));
    put("thread_conn_start_min_jitter_micros", json!(reconnect.start_jitter_us.0));
    put("thread_conn_start_max_jitter_micros", json!(reconnect.start_jitter_us.1));
    put("debug", yes(config.debug));
    list.extend_from_slice(more);
    list
}

/// `name = value`, one a line.
pub fn settings_text(settings: &[Setting]) -> String {
    let mut text = String::new();
    for (name, value) in settings {
        let _ = match value {
            Value::String(value) => writeln!(text, "{name} = {value}"),
            Value::Null => writeln!(text, "{name} ="),
            value => writeln!(text, "{name} = {value}"),
        };
    }
    text
}

pub(super) fn settings_json(settings: &[Setting]) -> Value {
    Value::Object(settings.iter().cloned().collect::<Map<String, Value>>())
}

fn yes(is: bool) -> Value {
    json!(if is { "yes" } else { "no" })
}

fn letter(pattern: KeyPattern) -> char {
    match pattern {
        KeyPattern::Random => 'R',
        KeyPattern::Sequential => 'S',
        KeyPattern::Gaussian => 'G',
        KeyPattern::Parallel => 'P',
        KeyPattern::Zipf => 'Z',
    }
}

fn range(range: &RangeInclusive<u64>) -> String {
    format!("{}-{}", range.start(), range.end())
}
