//! Owns how a plan is shown, for people and as JSON. Never calculates one.

use base::device::Expected;
use base::pattern::{Pattern, fitted};
use base::size::human;
use base::sizing::{SHARES, Sizing, cost};
use serde_json::{Value, json};
use survey::Sample;

use super::{Planned, WatchCost};
use crate::size::{count, micros};
use crate::table::{Align, pairs, table};

pub fn text(planned: &Planned) -> String {
    format!("{}{}\n{}", learnt(planned), pairs(&answer(planned)), choices(planned))
}

fn percent(share: f64) -> String {
    let digits = usize::from(share > 0.0 && share < 0.0995);
    format!("{:.digits$} %", share * 100.0)
}

/// What was measured, and what measuring has cost.
fn learnt(planned: &Planned) -> String {
    let sources = &planned.sources;
    if sources.names.is_empty() {
        return String::new();
    }
    let mut rows = vec![("source", sources.names.join("; "))];
    if let Some(sample) = &sources.sample {
        rows.push((
            "sampled",
            format!(
                "{} of {} keys, names of {} and values of {} on average, the largest {}, compressed to {:.0} % with lz4",
                count(sample.sampled as f64),
                count(sample.keys as f64),
                human(sample.name_bytes()),
                human(sample.value_bytes()),
                human(sample.largest_bytes),
                sample.compression() * 100.0
            ),
        ));
    }
    if let Some(usage) = &sources.usage {
        rows.push((
            "used",
            format!(
                "{} keys, by {} reads and {} changes",
                count(usage.keys().round()),
                count(usage.reads() as f64),
                count(usage.changes() as f64)
            ),
        ));
    }
    if let Some(cost) = &sources.watched {
        rows.push(("MONITOR", monitor(cost)));
    }
    pairs(&rows) + "\n"
}

fn monitor(cost: &WatchCost) -> String {
    let mut text = format!("{:.0} s, {} commands, {}", cost.seconds, count(cost.commands as f64), human(cost.bytes));
    if let Some((before, meanwhile)) = cost.cores_before.zip(cost.cores_meanwhile) {
        text += &format!("; the server took {before:.2} cores before and {meanwhile:.2} meanwhile");
    }
    if cost.ended_early {
        text += "; ended early, as the server had to keep what could not be read in time";
    }
    text
}

fn answer(planned: &Planned) -> Vec<(&'static str, String)> {
    let (demand, sizing) = (&planned.demand, &planned.chosen);
    let mut rows = vec![
        (
            "data",
            format!(
                "{} keys of {} with values of {}: {}",
                count(demand.keys as f64),
                human(demand.key_bytes),
                human(demand.value_bytes),
                human(demand.keys.saturating_mul(demand.key_bytes + demand.value_bytes))
            ),
        ),
        ("hit ratio", hit_ratio(planned)),
        (
            "RAM limit",
            format!(
                "{}: {} for the process, {} for the index, {} for {} values; at 90 % values begin to leave",
                human(sizing.ram_limit_bytes),
                human(sizing.own_bytes),
                human(sizing.index_bytes),
                human(sizing.hot_bytes),
                count(sizing.hot_values as f64)
            ),
        ),
        (
            "flash",
            format!(
                "{}: {} for at most {} values, 80 % of it",
                human(sizing.flash_bytes),
                human(sizing.flash_live_bytes),
                count(sizing.flash_values as f64)
            ),
        ),
        ("databases", sizing.databases.to_string()),
    ];
    if demand.reads_per_second > 0.0 {
        let rate =
            format!("{}/s of {} reads", count(sizing.flash_reads_per_second.round()), count(demand.reads_per_second));
        let unknown = if planned.device.is_none() { "; --flash says what a device does with them" } else { "" };
        rows.push(("flash reads", rate + unknown));
    }
    if let Some(expected) = planned.expected(sizing) {
        rows.extend(on_device(&expected));
    }
    if let Some((ram, flash)) = planned.prices {
        let (here, alone) = (sizing.cost(ram, flash), cost(demand.all_in_ram_bytes(), ram));
        let saved = if alone > here { format!(": {} saved", percent(1.0 - here / alone)) } else { String::new() };
        rows.push(("price", format!("{here:.2} instead of {alone:.2} with all values in RAM{saved}")));
    }
    let directives = sizing.directives().map(|(name, value)| format!("{name} {value}"));
    rows.push(("directives", directives.join(", ")));
    rows
}

/// The hit ratio, and what it rests on.
fn hit_ratio(planned: &Planned) -> String {
    let sizing = &planned.chosen;
    let said = format!("{} with {} of the values in RAM", percent(sizing.hit_ratio), percent(sizing.ram_share));
    match &planned.demand.pattern {
        Pattern::Skew(skew) => match planned.range(sizing.ram_share) {
            Some([low, high]) => format!(
                "{said}, if keys are used with skew {skew}; it is not known: {} to {}. --monitor or --trace measures it",
                percent(low),
                percent(high)
            ),
            None => format!("{said}, if keys are used with skew {skew}"),
        },
        Pattern::Measured(curve) if planned.is_beyond(sizing) => format!(
            "about {said}: measured up to {} values with {}, and beyond that as with skew {:.2}",
            count(curve.end().0),
            percent(curve.end().1),
            fitted(curve, planned.demand.keys)
        ),
        Pattern::Measured(_) => format!("{said}, as the keys were used"),
    }
}

fn on_device(expected: &Expected) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    match (expected.read, expected.added_us) {
        (Some(read), Some(added)) => rows.push((
            "latency",
            format!(
                "a read from flash takes {}, 99 % within {}; on average flash adds {} to a read",
                micros(read.latency_us),
                micros(read.latency_p99_us),
                micros(added)
            ),
        )),
        _ => rows.push(("latency", "the flash does not do so many reads: take more RAM, or more devices".to_owned())),
    }
    if let Some(most) = expected.reads_per_second_max {
        rows.push(("throughput", format!("at most {} reads/s at this hit ratio", count(most.round()))));
    }
    rows.push((
        "takes",
        format!(
            "{:.2} cores for reads from flash, {} of what the flash can write",
            expected.cores,
            percent(expected.written)
        ),
    ));
    rows
}

/// What other shares of values in RAM mean.
fn choices(planned: &Planned) -> String {
    let mut head = vec!["VALUES IN RAM", "HIT RATIO", "RAM LIMIT", "FLASH", "FLASH READS/S"];
    head.extend(planned.device.as_ref().map(|_| "FLASH ADDS"));
    head.extend(planned.prices.map(|_| "PRICE"));
    let head: Vec<(&str, Align)> = head.into_iter().map(|title| (title, Align::Right)).collect();
    let rows = SHARES.map(|share| {
        let sizing = planned.demand.for_ram_share(share);
        let ratio = match planned.range(share) {
            Some([low, high]) if low < high => format!("{} to {}", percent(low), percent(high)),
            _ if planned.is_beyond(&sizing) => format!("about {}", percent(sizing.hit_ratio)),
            _ => percent(sizing.hit_ratio),
        };
        let mut row = vec![
            percent(share),
            ratio,
            human(sizing.ram_limit_bytes),
            human(sizing.flash_bytes),
            count(sizing.flash_reads_per_second.round()),
        ];
        row.extend(planned.expected(&sizing).map(|expected| expected.added_us.map_or("too many".to_owned(), micros)));
        row.extend(planned.prices.map(|(ram, flash)| format!("{:.2}", sizing.cost(ram, flash))));
        row
    });
    table(&head, &rows)
}

pub fn json(planned: &Planned) -> String {
    let demand = &planned.demand;
    let (skew, curve) = match &demand.pattern {
        Pattern::Skew(skew) => (json!(skew), Value::Null),
        Pattern::Measured(curve) => (Value::Null, json!(curve.points())),
    };
    let sources = &planned.sources;
    let printed = json!({
        "sources": sources.names,
        "sample": sources.sample.as_ref().map(sample),
        "usage": sources.usage.as_ref().map(|usage| json!({
            "keys": usage.keys().round(), "reads": usage.reads(), "changes": usage.changes(),
        })),
        "monitor": sources.watched.as_ref().map(|cost| json!({
            "seconds": cost.seconds, "commands": cost.commands, "bytes": cost.bytes,
            "cores_before": cost.cores_before, "cores_meanwhile": cost.cores_meanwhile, "ended_early": cost.ended_early,
        })),
        "demand": {
            "keys": demand.keys, "key_bytes": demand.key_bytes, "value_bytes": demand.value_bytes,
            "compression": demand.compression, "skew": skew, "hit_ratio_by_values": curve,
            "reads_per_second": demand.reads_per_second, "writes_per_second": demand.writes_per_second,
            "workers": demand.workers,
        },
        "chosen": sizing(planned, &planned.chosen),
        "choices": SHARES.map(|share| sizing(planned, &demand.for_ram_share(share))),
        "all_in_ram_bytes": demand.all_in_ram_bytes(),
        "all_in_ram_price": planned.prices.map(|(ram, _)| cost(demand.all_in_ram_bytes(), ram)),
    });
    format!("{printed:#}\n")
}

fn sample(sample: &Sample) -> Value {
    json!({
        "version": sample.version, "keys": sample.keys, "sampled": sample.sampled, "key_bytes": sample.name_bytes(),
        "value_bytes": sample.value_bytes(), "largest_bytes": sample.largest_bytes, "compression": sample.compression(),
    })
}

/// With the names that the API has for them.
fn sizing(planned: &Planned, sizing: &Sizing) -> Value {
    let [low, high] = planned.range(sizing.ram_share).unwrap_or([sizing.hit_ratio; 2]);
    let expected = planned.expected(sizing).map(|expected| {
        json!({
            "flash_read_us": expected.read.map(|read| read.latency_us),
            "flash_read_p99_us": expected.read.map(|read| read.latency_p99_us),
            "added_us": expected.added_us, "cores": expected.cores,
            "reads_per_second_max": expected.reads_per_second_max, "flash_written_share": expected.written,
        })
    });
    json!({
        "ram_share": sizing.ram_share, "hit_ratio": sizing.hit_ratio, "hit_ratio_low": low, "hit_ratio_high": high,
        "is_beyond_measured": planned.is_beyond(sizing),
        "own_bytes": sizing.own_bytes, "index_bytes": sizing.index_bytes,
        "hot_values": sizing.hot_values, "hot_bytes": sizing.hot_bytes, "ram_limit_bytes": sizing.ram_limit_bytes,
        "flash_values": sizing.flash_values, "flash_live_bytes": sizing.flash_live_bytes,
        "flash_bytes": sizing.flash_bytes, "memory_limit_bytes": sizing.memory_limit_bytes,
        "flash_reads_per_second": sizing.flash_reads_per_second, "databases": sizing.databases,
        "price": planned.prices.map(|(ram, flash)| sizing.cost(ram, flash)),
        "directives": sizing.directives().map(|(name, value)| format!("{name} {value}")),
        "expected": expected,
    })
}
