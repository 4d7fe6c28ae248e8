//! Owns the estimate of the RAM and flash that a dataset needs in FlintKV, and of the time that the copy takes. Never
//! changes anything.

use std::time::{Duration, Instant};

use base::pattern::Pattern;
use base::size::human;
use base::sizing::{Sizing, WorkloadSpec};
use resp::client::Value;
use survey::{Sample, Server, bytes};

use crate::failure::Failure;
use crate::size::count;
use crate::table::pairs;

/// The share of values in RAM that the estimate assumes.
const RAM_SHARE: f64 = 0.3;
/// The smallest memory limit, in MB, that is recommended.
const MEGABYTES_MIN: u64 = 64;
/// How long the rate of the source is measured.
const RATE_TIME: Duration = Duration::from_secs(1);
const BATCH: usize = 100;

/// What the dataset needs in FlintKV with this share of its values in RAM, on one worker.
fn sized(sample: &Sample, ram_share: f64) -> Sizing {
    let workload = WorkloadSpec {
        keys: sample.keys,
        key_bytes: sample.name_bytes(),
        value_bytes: sample.value_bytes(),
        compression: sample.compression(),
        pattern: Pattern::Skew(0.0),
        reads_per_second: 0.0,
        writes_per_second: 0.0,
        workers: 1,
        has_journal: true,
        has_console: true,
    };
    workload.for_ram_share(ram_share)
}

/// The least memory limit of a target: the index, and room for all values on flash.
fn needed_bytes(sample: &Sample) -> u64 {
    let sized = sized(sample, 0.0);
    sized.flash_bytes + sized.index_bytes
}

pub fn report(sample: &Sample, source: &str) -> String {
    let (least, start) = (sized(sample, 0.0), sized(sample, RAM_SHARE));
    let megabytes = |bytes: u64| bytes.div_ceil(1 << 20).max(MEGABYTES_MIN);
    let ram = megabytes(start.ram_limit_bytes);
    pairs(&[
        ("source", format!("{source}, version {}", sample.version)),
        ("keys", count(sample.keys as f64)),
        (
            "sampled",
            format!(
                "{} keys, names of {} and values of {} on average, the largest {}",
                count(sample.sampled as f64),
                human(sample.name_bytes()),
                human(sample.value_bytes()),
                human(sample.largest_bytes)
            ),
        ),
        ("dataset", format!("about {}", human(sample.dataset_bytes()))),
        (
            "on flash",
            format!(
                "about {}, compressed to {:.0} % with lz4, with the room that collection needs",
                human(least.flash_bytes),
                sample.compression() * 100.0
            ),
        ),
        ("in RAM at least", format!("about {} for the keys' entries", human(least.index_bytes))),
        ("a good start", format!("--memory-limit {}mb --ram-limit {ram}mb", ram + megabytes(start.flash_bytes))),
    ])
}

/// Refuses a target that is too small.
pub fn fits(sample: &Sample, target: &mut Server, force: bool) -> Result<(), Failure> {
    let limit = target.info("memory")?.get("maxmemory").and_then(|limit| limit.parse::<u64>().ok()).unwrap_or(0);
    if force || limit == 0 || limit >= needed_bytes(sample) {
        return Ok(());
    }
    Err(Failure::refused(format!(
        "the dataset needs about {}, and the target's limit is {}",
        human(needed_bytes(sample)),
        human(limit)
    ))
    .hint("raise its limit (flintkv database resize), or give --force if the estimate is wrong"))
}

pub fn duration(sample: &Sample, bytes_a_second: u64) -> String {
    let seconds = sample.dataset_bytes() / bytes_a_second.max(1);
    let rate = human(bytes_a_second);
    pairs(&[(
        "time",
        format!("about {} s at {rate}/s, the rate at which this machine can read the source's values", seconds + 1),
    )])
}

/// How many bytes of values per second the source sends on one connection.
pub fn rate(source: &mut Server, sample: &Sample) -> Result<u64, Failure> {
    if sample.sampled == 0 {
        return Ok(u64::MAX);
    }
    let (begun, mut received) = (Instant::now(), 0);
    while begun.elapsed() < RATE_TIME {
        let names = source.pipeline((0..BATCH).map(|_| vec![&b"RANDOMKEY"[..]]))?;
        let dumps = source.pipeline(names.iter().filter_map(bytes).map(|name| vec![&b"DUMP"[..], name]))?;
        received += dumps.iter().filter_map(bytes).map(|dump| dump.len() as u64).sum::<u64>();
        if dumps.iter().all(|dump| matches!(dump, Value::Null)) {
            break;
        }
    }
    Ok((received as f64 / begun.elapsed().as_secs_f64()) as u64)
}
