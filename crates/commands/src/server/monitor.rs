//! Owns the commands that report: MEMORY, SLOWLOG, LATENCY. Never measures anything itself.

use super::{ADMIN, BASE, WATCH};
use crate::connection::help;
use crate::cx::Cx;
use crate::host::MemoryFigures;
use crate::number;
use crate::row::{Access, Flag, KeyUse, Keys, Row, Values, is, only_here, starts};
use crate::stop::{NOT_INTEGER, Run, SYNTAX, Stop};
use base::size::human;

pub(super) const MEMORY: &[Row] = &[
    Row {
        name: "doctor",
        arity: 2,
        tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
        since: "4.0.0",
        summary: "Outputs a memory problems report.",
        examples: &[starts("MEMORY DOCTOR", "\"")],
        run: |cx| {
            let text = diagnosis(&cx.server.memory());
            cx.out.verbatim("txt", text.as_bytes());
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "help",
        arity: 2,
        flags: WATCH,
        since: "4.0.0",
        summary: "Returns helpful text about the different subcommands.",
        examples: &[starts("MEMORY HELP", " 1) MEMORY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")],
        run: |cx| help(cx, "MEMORY", MEMORY),
        ..BASE
    },
    Row {
        name: "malloc-stats",
        arity: 2,
        tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
        since: "4.0.0",
        complexity: "Depends on how much memory is allocated, could be slow",
        summary: "Returns the allocator statistics.",
        examples: &[starts("MEMORY MALLOC-STATS", "\"")],
        run: |cx| {
            cx.out.verbatim("txt", cx.server.malloc_report().as_bytes());
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "purge",
        arity: 2,
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        since: "4.0.0",
        complexity: "Depends on how much memory is allocated, could be slow",
        summary: "Asks the allocator to release memory.",
        examples: &[is("MEMORY PURGE", "OK")],
        run: |cx| {
            cx.server.purge_memory();
            cx.out.ok();
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "stats",
        arity: 2,
        tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
        since: "4.0.0",
        summary: "Returns details about memory usage.",
        examples: &[starts("MEMORY STATS", " 1) \"peak.allocated\"\n 2) (integer) ")],
        run: memory_stats,
        ..BASE
    },
    Row {
        name: "usage",
        arity: -3,
        access: Access::All(KeyUse::LOOK),
        keys: Keys::Range { first: 2, last: 2, step: 1 },
        flags: &[Flag::Readonly],
        values: Values::Read,
        since: "4.0.0",
        complexity: "O(N) where N is the number of samples.",
        summary: "Estimates the memory usage of a key.",
        syntax: "key [SAMPLES count]",
        examples: &[
            is("SET k v", "OK"),
            starts("MEMORY USAGE k", "(integer) "),
            starts("MEMORY USAGE k SAMPLES 0", "(integer) "),
            is("MEMORY USAGE nosuchkey", "(nil)"),
            is("MEMORY USAGE k SAMPLES -1", "(error) ERR syntax error"),
        ],
        run: memory_usage,
        ..BASE
    },
];

/// Every entry of the index, hot or cold.
const ENTRY_BYTES: usize = 16;

fn memory_usage(cx: &mut Cx<'_>) -> Run {
    let args = cx.args;
    match args.len() {
        3 => {}
        5 if args[3].eq_ignore_ascii_case(b"samples") => {
            // The size of a value is known without samples. SAMPLES is still validated.
            if number::int(&args[4]).ok_or(NOT_INTEGER)? < 0 {
                return Err(SYNTAX);
            }
        }
        _ => return Err(SYNTAX),
    }
    match cx.ks.inspect(&cx.keys[0])? {
        Some(found) => cx.out.int((ENTRY_BYTES + found.ram_bytes) as i64),
        None => cx.out.null(),
    }
    Ok(())
}

/// A figure of MEMORY STATS.
enum Figure {
    Count(u64),
    /// May be negative: resident memory may be less than what was allocated.
    Difference(u64, u64),
    Ratio(f64),
}

/// Redis's fields in Redis's order, with a map for each logical database that has keys, and FlintKV's own fields.
fn memory_stats(cx: &mut Cx<'_>) -> Run {
    use Figure::{Count, Difference, Ratio};
    let figures = cx.server.memory();
    let overhead = figures.allocated_bytes.saturating_sub(figures.objects_bytes);
    let net = figures.allocated_bytes.saturating_sub(figures.startup_bytes).max(1);
    let ratio = |a: u64, b: u64| if b == 0 { 0.0 } else { a as f64 / b as f64 };
    let before = [
        ("peak.allocated", figures.peak_bytes),
        ("total.allocated", figures.allocated_bytes),
        ("startup.allocated", figures.startup_bytes),
        ("replication.backlog", 0),
        ("clients.slaves", 0),
        ("clients.normal", figures.clients_bytes),
        ("cluster.links", 0),
        ("aof.buffer", 0),
        ("lua.caches", figures.scripts_bytes),
        ("functions.caches", figures.functions_bytes),
    ];
    let after = [
        ("overhead.total", Count(overhead)),
        ("keys.count", Count(figures.keys)),
        ("keys.bytes-per-key", Count(net / figures.keys.max(1))),
        ("dataset.bytes", Count(figures.objects_bytes)),
        ("dataset.percentage", Ratio(100.0 * ratio(figures.objects_bytes, net))),
        ("peak.percentage", Ratio(100.0 * ratio(figures.allocated_bytes, figures.peak_bytes))),
        ("allocator.allocated", Count(figures.allocated_bytes)),
        ("allocator.active", Count(figures.allocator_active_bytes)),
        ("allocator.resident", Count(figures.allocator_resident_bytes)),
        ("allocator-fragmentation.ratio", Ratio(ratio(figures.allocator_active_bytes, figures.allocated_bytes))),
        ("allocator-fragmentation.bytes", Difference(figures.allocator_active_bytes, figures.allocated_bytes)),
        ("allocator-rss.ratio", Ratio(ratio(figures.allocator_resident_bytes, figures.allocator_active_bytes))),
        ("allocator-rss.bytes", Difference(figures.allocator_resident_bytes, figures.allocator_active_bytes)),
        ("rss-overhead.ratio", Ratio(ratio(figures.resident_bytes, figures.allocator_resident_bytes))),
        ("rss-overhead.bytes", Difference(figures.resident_bytes, figures.allocator_resident_bytes)),
        ("fragmentation", Ratio(ratio(figures.resident_bytes, figures.allocated_bytes))),
        ("fragmentation.bytes", Difference(figures.resident_bytes, figures.allocated_bytes)),
        ("index.total", Count(figures.index_bytes)),
        ("flash.buffers", Count(figures.flash_buffers_bytes)),
        ("keys.expires", Count(figures.expires)),
        ("ram.limit", Count(figures.ram_limit_bytes)),
        ("flash.used", Count(figures.flash_used_bytes)),
        ("flash.limit", Count(figures.flash_limit_bytes)),
    ];
    let out = &mut cx.out;
    out.map(before.len() + figures.keys_by_database.len() + after.len());
    for (name, value) in before {
        out.bulk(name.as_bytes());
        out.int(value as i64);
    }
    for &(db, keys) in &figures.keys_by_database {
        out.bulk(format!("db.{db}").as_bytes());
        out.map(3);
        out.bulk(b"overhead.hashtable.main");
        out.int((figures.index_bytes as u128 * u128::from(keys) / u128::from(figures.keys.max(1))) as i64);
        // An expiry lies in its object.
        for name in ["overhead.hashtable.expires", "overhead.hashtable.slot-to-keys"] {
            out.bulk(name.as_bytes());
            out.int(0);
        }
    }
    for (name, figure) in after {
        out.bulk(name.as_bytes());
        match figure {
            Count(value) => out.int(value as i64),
            Difference(a, b) => out.int(a as i64 - b as i64),
            Ratio(value) => out.double(value),
        }
    }
    Ok(())
}

/// Advice for the owner of a tiered store, from the figures.
fn diagnosis(figures: &MemoryFigures) -> String {
    const MIB: u64 = 1024 * 1024;
    if figures.allocated_bytes < 5 * MIB {
        return "This instance is almost empty, so nothing can be said about its memory yet.\n".to_owned();
    }
    let mut findings = Vec::new();
    let limit = figures.ram_limit_bytes;
    if limit > 0 && figures.resident_bytes > limit + limit / 10 {
        findings.push(format!(
            "The process occupies {} of RAM, more than 110 % of the RAM limit of {}. The limit should hold: if this lasts, please report it.",
            human(figures.resident_bytes),
            human(limit)
        ));
    }
    if limit > 0 && figures.index_bytes > limit / 2 {
        findings.push(format!(
            "The index of {} keys takes {}, more than half of the RAM limit. Values are read from flash more often than necessary: raise ram-limit.",
            figures.keys,
            human(figures.index_bytes)
        ));
    }
    if figures.resident_bytes > figures.allocated_bytes / 10 * 14 && figures.resident_bytes > 100 * MIB {
        findings.push(format!(
            "{} are resident but only {} in use: memory is fragmented. MEMORY PURGE returns as much as possible to the system.",
            human(figures.resident_bytes),
            human(figures.allocated_bytes)
        ));
    }
    if figures.clients_bytes > figures.allocated_bytes / 4 {
        findings.push(
            "Clients' buffers take more than a quarter of the memory: look for slow readers in CLIENT LIST.".to_owned(),
        );
    }
    if figures.flash_limit_bytes > 0 && figures.flash_used_bytes > figures.flash_limit_bytes / 100 * 95 {
        findings.push(
            "Flash is more than 95 % full: raise memory-limit, or choose a maxmemory-policy that evicts.".to_owned(),
        );
    }
    match findings.is_empty() {
        true => "No memory problems found.\n".to_owned(),
        false => findings.iter().map(|finding| format!("* {finding}\n")).collect(),
    }
}

pub(super) const SLOWLOG: &[Row] = &[
    Row {
        name: "get",
        arity: -2,
        flags: ADMIN_WATCH,
        tips: &["request_policy:all_nodes", "nondeterministic_output"],
        since: "2.2.12",
        complexity: "O(N) where N is the number of entries returned",
        summary: "Returns the slow log's entries.",
        syntax: "[count]",
        examples: &[
            is("SLOWLOG RESET", "OK"),
            is("SLOWLOG GET", "(empty array)"),
            is("SLOWLOG GET -2", "(error) ERR count should be greater than or equal to -1"),
        ],
        run: slowlog_get,
        ..BASE
    },
    Row {
        name: "help",
        arity: 2,
        flags: WATCH,
        since: "6.2.0",
        summary: "Returns helpful text about the different subcommands.",
        examples: &[only_here(
            "SLOWLOG HELP",
            "1) SLOWLOG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:\n\
             2) GET [count]\n3)     Returns the slow log's entries.\n\
             4) HELP\n5)     Returns helpful text about the different subcommands.\n\
             6) LEN\n7)     Returns the number of entries in the slow log.\n\
             8) RESET\n9)     Clears all entries from the slow log.",
        )],
        run: |cx| help(cx, "SLOWLOG", SLOWLOG),
        ..BASE
    },
    Row {
        name: "len",
        arity: 2,
        flags: ADMIN_WATCH,
        tips: &["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"],
        since: "2.2.12",
        summary: "Returns the number of entries in the slow log.",
        examples: &[is("SLOWLOG RESET", "OK"), is("SLOWLOG LEN", "(integer) 0")],
        run: |cx| {
            cx.out.int(cx.server.slowlog_len() as i64);
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "reset",
        arity: 2,
        flags: ADMIN_WATCH,
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        since: "2.2.12",
        complexity: "O(N) where N is the number of entries in the slowlog",
        summary: "Clears all entries from the slow log.",
        examples: &[is("SLOWLOG RESET", "OK")],
        run: |cx| {
            cx.server.slowlog_reset();
            cx.out.ok();
            Ok(())
        },
        ..BASE
    },
];

const ADMIN_WATCH: &[Flag] = &[Flag::Admin, Flag::Loading, Flag::Stale];

/// Entries that SLOWLOG GET returns without a count.
const SLOWLOG_COUNT: usize = 10;

fn slowlog_get(cx: &mut Cx<'_>) -> Run {
    let count = match cx.args.get(2) {
        None => SLOWLOG_COUNT,
        Some(_) if cx.args.len() > 3 => {
            return Err(Stop::error(
                "ERR unknown subcommand or wrong number of arguments for 'GET'. Try SLOWLOG HELP.",
            ));
        }
        Some(word) => match number::int(word) {
            Some(-1) => usize::MAX,
            count => count
                .and_then(|count| usize::try_from(count).ok())
                .ok_or(Stop::error("ERR count should be greater than or equal to -1"))?,
        },
    };
    let entries = cx.server.slowlog(count);
    let out = &mut cx.out;
    out.array(entries.len());
    for entry in entries {
        out.array(6);
        out.int(entry.id as i64);
        out.int(entry.at_s as i64);
        out.int(entry.duration_us as i64);
        out.array(entry.args.len());
        entry.args.iter().for_each(|arg| out.bulk(arg));
        out.bulk(entry.addr.as_bytes());
        out.bulk(entry.name.as_bytes());
    }
    Ok(())
}

pub(super) const LATENCY: &[Row] = &[
    Row {
        name: "doctor",
        arity: 2,
        flags: ADMIN,
        tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
        since: "2.8.13",
        summary: "Returns a human-readable latency analysis report.",
        examples: &[starts("LATENCY DOCTOR", "\"")],
        run: |cx| {
            let text = latency_report(cx);
            cx.out.verbatim("txt", text.as_bytes());
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "graph",
        arity: 3,
        flags: ADMIN,
        tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
        since: "2.8.13",
        summary: "Returns a latency graph for an event.",
        syntax: "event",
        examples: &[is("LATENCY GRAPH nosuchevent", "(error) ERR No samples available for event 'nosuchevent'")],
        run: |cx| {
            let samples = cx.server.latency_history(&cx.args[2]);
            if samples.is_empty() {
                let event = String::from_utf8_lossy(&cx.args[2]);
                return Err(Stop::Error(format!("ERR No samples available for event '{event}'").into()));
            }
            let text = graph(&String::from_utf8_lossy(&cx.args[2]), &samples);
            cx.out.verbatim("txt", text.as_bytes());
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "help",
        arity: 2,
        flags: WATCH,
        since: "2.8.13",
        summary: "Returns helpful text about the different subcommands.",
        examples: &[starts("LATENCY HELP", " 1) LATENCY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")],
        run: |cx| help(cx, "LATENCY", LATENCY),
        ..BASE
    },
    Row {
        name: "histogram",
        arity: -2,
        flags: ADMIN,
        tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
        since: "7.0.0",
        complexity: "O(N) where N is the number of commands with latency information being retrieved",
        summary: "Returns the cumulative distribution of latencies of a subset or all commands.",
        syntax: "[command [command ...]]",
        examples: &[
            is("CONFIG RESETSTAT", "OK"),
            is("GET k", "(nil)"),
            starts(
                "LATENCY HISTOGRAM get",
                "1) \"get\"\n2) 1) \"calls\"\n   2) (integer) 1\n   3) \"histogram_usec\"\n",
            ),
            is("LATENCY HISTOGRAM nosuchcommand", "(empty array)"),
        ],
        run: latency_histogram,
        ..BASE
    },
    Row {
        name: "history",
        arity: 3,
        flags: ADMIN,
        tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
        since: "2.8.13",
        summary: "Returns timestamp-latency samples for an event.",
        syntax: "event",
        examples: &[is("LATENCY HISTORY command", "(empty array)")],
        run: |cx| {
            let samples = cx.server.latency_history(&cx.args[2]);
            cx.out.array(samples.len());
            for (at_s, ms) in samples {
                cx.out.array(2);
                cx.out.int(at_s as i64);
                cx.out.int(ms as i64);
            }
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "latest",
        arity: 2,
        flags: ADMIN,
        tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
        since: "2.8.13",
        summary: "Returns the latest latency samples for all events.",
        examples: &[is("LATENCY RESET", "(integer) 0"), is("LATENCY LATEST", "(empty array)")],
        run: |cx| {
            let events = cx.server.latency_latest();
            cx.out.array(events.len());
            for event in events {
                cx.out.array(4);
                cx.out.bulk(event.name.as_bytes());
                cx.out.int(event.at_s as i64);
                cx.out.int(event.last_ms as i64);
                cx.out.int(event.max_ms as i64);
            }
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "reset",
        arity: -2,
        flags: ADMIN,
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        since: "2.8.13",
        summary: "Resets the latency data for one or more events.",
        syntax: "[event [event ...]]",
        examples: &[is("LATENCY RESET nosuchevent", "(integer) 0")],
        run: |cx| {
            let events: Vec<&[u8]> = cx.args.from(2).collect();
            cx.out.int(cx.server.latency_reset(&events) as i64);
            Ok(())
        },
        ..BASE
    },
];

fn latency_histogram(cx: &mut Cx<'_>) -> Run {
    let commands: Vec<&[u8]> = cx.args.from(2).collect();
    let found = cx.server.latency_histogram(&commands);
    let out = &mut cx.out;
    out.map(found.len());
    for command in found {
        out.bulk(command.name.as_bytes());
        out.map(2);
        out.bulk(b"calls");
        out.int(command.calls as i64);
        out.bulk(b"histogram_usec");
        out.map(command.cumulative_us.len());
        for (bound_us, count) in command.cumulative_us {
            out.int(bound_us as i64);
            out.int(count as i64);
        }
    }
    Ok(())
}

fn latency_report(cx: &Cx<'_>) -> String {
    let events = cx.server.latency_latest();
    if events.is_empty() {
        return "No event took longer than latency-monitor-threshold. With a threshold of 0 nothing is watched: try \
                CONFIG SET latency-monitor-threshold 100 (milliseconds).\n"
            .to_owned();
    }
    let mut text = String::from("These events took longer than latency-monitor-threshold:\n");
    for event in events {
        let samples = cx.server.latency_history(event.name.as_bytes());
        let mean = samples.iter().map(|(_, ms)| ms).sum::<u64>() / samples.len().max(1) as u64;
        text.push_str(&format!(
            "* {}: {} seconds with such an event, {mean} ms on average, {} ms at most. SLOWLOG GET shows which \
             commands they were.\n",
            event.name,
            samples.len(),
            event.max_ms
        ));
    }
    text
}

/// The rows of a graph, and its largest number of columns.
const GRAPH_ROWS: u64 = 4;
const GRAPH_COLUMNS: usize = 80;

/// The last samples as bars, oldest first.
fn graph(event: &str, samples: &[(u64, u64)]) -> String {
    let shown = &samples[samples.len().saturating_sub(GRAPH_COLUMNS)..];
    let values = || shown.iter().map(|&(_, ms)| ms);
    let (low, high) = (values().min().unwrap_or(0), values().max().unwrap_or(0));
    let mut text = format!("{event} - high {high} ms, low {low} ms\n");
    text.push_str(&"-".repeat(GRAPH_COLUMNS));
    text.push('\n');
    for row in (1..=GRAPH_ROWS).rev() {
        let line: String = values()
            .map(|ms| {
                let height = (ms - low) * GRAPH_ROWS / (high - low).max(1);
                if height >= row || row == 1 { '#' } else { ' ' }
            })
            .collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_has_its_bars_in_order() {
        let text = graph("command", &[(1, 10), (2, 50), (3, 30)]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "command - high 50 ms, low 10 ms");
        assert_eq!(lines[2..], [" #", " #", " ##", "###"]);
    }

    #[test]
    fn the_doctor_names_what_is_wrong() {
        let healthy = MemoryFigures {
            allocated_bytes: 1 << 30,
            resident_bytes: 1 << 30,
            ram_limit_bytes: 1 << 30,
            ..MemoryFigures::default()
        };
        assert_eq!(diagnosis(&healthy), "No memory problems found.\n");
        let over = MemoryFigures { resident_bytes: 3 << 29, ..healthy.clone() };
        assert!(diagnosis(&over).contains("more than 110 %"));
        let full = MemoryFigures { flash_limit_bytes: 1 << 30, flash_used_bytes: 1 << 30, ..healthy };
        assert!(diagnosis(&full).contains("95 % full"));
    }
}
