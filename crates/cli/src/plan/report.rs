//! Owns the text output of a plan. Never calculates one.

use base::size::human;
use survey::plan::{ExpectedInfo, MonitorInfo, PlanInfo, SizingInfo};

use crate::size::{count, micros};
use crate::table::{Align, pairs, table};

pub fn text(planned: &PlanInfo) -> String {
    format!("{}{}\n{}", sampled(planned), pairs(&answer(planned)), choices(planned))
}

fn percent(share: f64) -> String {
    let digits = usize::from(share > 0.0 && share < 0.0995);
    format!("{:.digits$} %", share * 100.0)
}

/// What was measured, and the cost of the measurement.
fn sampled(planned: &PlanInfo) -> String {
    if planned.sources.is_empty() {
        return String::new();
    }
    let mut rows = vec![("source", planned.sources.join("; "))];
    if let Some(sample) = &planned.sample {
        let estimated = match sample.estimated {
            0 => String::new(),
            keys => format!("; {} too large to fetch, as the server says their sizes", count(keys as f64)),
        };
        rows.push((
            "sampled",
            format!(
                "{} of {} keys, names of {} and values of {} on average, the largest {}, compressed to {:.0} % with lz4{estimated}",
                count(sample.sampled as f64),
                count(sample.keys as f64),
                human(sample.key_bytes),
                human(sample.value_bytes),
                human(sample.largest_bytes),
                sample.compression * 100.0
            ),
        ));
    }
    if let Some(usage) = &planned.usage {
        rows.push((
            "used",
            format!(
                "{} keys, by {} reads and {} changes",
                count(usage.keys as f64),
                count(usage.reads as f64),
                count(usage.changes as f64)
            ),
        ));
    }
    if let Some(cost) = &planned.monitor {
        rows.push(("MONITOR", monitor(cost)));
    }
    pairs(&rows) + "\n"
}

fn monitor(cost: &MonitorInfo) -> String {
    let mut text = format!("{:.0} s, {} commands, {}", cost.seconds, count(cost.commands as f64), human(cost.bytes));
    if let Some((before, meanwhile)) = cost.cores_before.zip(cost.cores_meanwhile) {
        text += &format!("; the server took {before:.2} cores before and {meanwhile:.2} meanwhile");
    }
    if cost.ended_early {
        text += "; ended early, because the server had to buffer what could not be read in time";
    }
    text
}

fn answer(planned: &PlanInfo) -> Vec<(&'static str, String)> {
    let (workload, sizing) = (&planned.workload, &planned.chosen);
    let mut rows = vec![
        (
            "data",
            format!(
                "{} keys of {} with values of {}: {}",
                count(workload.keys as f64),
                human(workload.key_bytes),
                human(workload.value_bytes),
                human(workload.keys.saturating_mul(workload.key_bytes + workload.value_bytes))
            ),
        ),
        ("hit ratio", hit_ratio(planned)),
        (
            "RAM limit",
            format!(
                "{}: {} for the process, {} for the index, {} for {} values; the rest is for what grows while values leave",
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
                "{}: {} for {} values, 80 % of it{}",
                human(sizing.flash_bytes),
                human(sizing.flash_live_bytes),
                count(sizing.flash_values as f64),
                copies(planned)
            ),
        ),
        ("databases", sizing.databases.to_string()),
    ];
    if sizing.files_bytes > sizing.flash_bytes {
        let files =
            format!("{}: with copies of what is in RAM, the journal and two checkpoints", human(sizing.files_bytes));
        rows.insert(rows.len() - 1, ("files", files));
    }
    if workload.reads_per_second > 0.0 {
        let rate =
            format!("{}/s of {} reads", count(sizing.flash_reads_per_second.round()), count(workload.reads_per_second));
        let unknown = if sizing.expected.is_none() { "; --flash shows what a device can do with them" } else { "" };
        rows.push(("flash reads", rate + unknown));
    }
    if let Some(expected) = &sizing.expected {
        rows.extend(on_device(expected));
    }
    if let Some((here, alone)) = sizing.price.zip(planned.all_in_ram_price) {
        let saved = if alone > here { format!(": {} saved", percent(1.0 - here / alone)) } else { String::new() };
        rows.push(("price", format!("{here:.2} instead of {alone:.2} with all values in RAM{saved}")));
    }
    rows.push(("directives", sizing.directives.join(", ")));
    rows
}

/// Explains why there are more values in RAM and on flash together than keys.
fn copies(planned: &PlanInfo) -> String {
    let sizing = &planned.chosen;
    let cold = planned.workload.keys.saturating_sub(sizing.hot_values);
    match sizing.flash_values.saturating_sub(cold) {
        0 => String::new(),
        copies => format!(
            ". {} of them are not in RAM; {} are copies of values in RAM, which a read has brought there and nothing has written since",
            count(cold as f64),
            count(copies as f64)
        ),
    }
}

/// The hit ratio, and how it was estimated.
fn hit_ratio(planned: &PlanInfo) -> String {
    let (sizing, workload) = (&planned.chosen, &planned.workload);
    let said = format!("{} with {} of the values in RAM", percent(sizing.hit_ratio), percent(sizing.ram_share));
    let Some(points) = &workload.hit_ratio_by_values else {
        let said = format!("{said}, if keys are used with skew {}", workload.skew);
        return match workload.is_skew_guessed {
            true => format!(
                "{said}; it is not known: {} to {}. --monitor or --trace measures it",
                percent(sizing.hit_ratio_low),
                percent(sizing.hit_ratio_high)
            ),
            false => said,
        };
    };
    match points.last().filter(|_| sizing.is_beyond_measured) {
        Some((values, ratio)) => format!(
            "about {said}: measured up to {} values with {}, and beyond that as with skew {:.2}",
            count(*values),
            percent(*ratio),
            workload.skew
        ),
        None => format!("{said}, as the keys were used"),
    }
}

fn on_device(expected: &ExpectedInfo) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    match (expected.flash_read_us, expected.flash_read_p99_us, expected.added_us) {
        (Some(read), Some(p99), Some(added)) => rows.push((
            "latency",
            format!(
                "a read from flash takes {}, 99 % within {}; on average flash adds {} to a read",
                micros(read),
                micros(p99),
                micros(added)
            ),
        )),
        _ => rows.push(("latency", "the flash cannot do so many reads: use more RAM, or more devices".to_owned())),
    }
    if let Some(most) = expected.reads_per_second_max {
        rows.push(("throughput", format!("at most {} reads/s at this hit ratio", count(most.round()))));
    }
    rows.push((
        "takes",
        format!(
            "{:.2} cores for reads from flash, {} of what the flash can write",
            expected.cores,
            percent(expected.flash_written_share)
        ),
    ));
    rows
}

/// A table of other shares of values in RAM.
fn choices(planned: &PlanInfo) -> String {
    let mut head = vec!["VALUES IN RAM", "HIT RATIO", "RAM LIMIT", "FLASH", "FLASH READS/S"];
    head.extend(planned.chosen.expected.as_ref().map(|_| "FLASH ADDS"));
    head.extend(planned.chosen.price.map(|_| "PRICE"));
    let head: Vec<(&str, Align)> = head.into_iter().map(|title| (title, Align::Right)).collect();
    let row = |sizing: &SizingInfo| {
        let (low, high) = (sizing.hit_ratio_low, sizing.hit_ratio_high);
        let ratio = match planned.workload.is_skew_guessed && low < high {
            true => format!("{} to {}", percent(low), percent(high)),
            false if sizing.is_beyond_measured => format!("about {}", percent(sizing.hit_ratio)),
            false => percent(sizing.hit_ratio),
        };
        let mut row = vec![
            percent(sizing.ram_share),
            ratio,
            human(sizing.ram_limit_bytes),
            human(sizing.flash_bytes),
            count(sizing.flash_reads_per_second.round()),
        ];
        row.extend(sizing.expected.as_ref().map(|on| on.added_us.map_or("too many".to_owned(), micros)));
        row.extend(sizing.price.map(|price| format!("{price:.2}")));
        row
    };
    let rows: Vec<Vec<String>> = planned.choices.iter().map(row).collect();
    table(&head, &rows)
}
