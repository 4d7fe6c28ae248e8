//! Owns what a dataset will take here, from a sample of its keys. Never changes anything.

use std::time::{Duration, Instant};

use base::size::human;
use resp::client::Value;

use super::server::{Server, bytes};
use crate::failure::Failure;
use crate::size::count;
use crate::table::pairs;

/// Values are compressed together, as on flash.
const PAGE_BYTES: usize = 16 << 10;
/// Of a record on flash, beside its key and value.
const RECORD_BYTES: u64 = 24;
/// What every key takes in RAM, hot or cold.
const ENTRY_BYTES: u64 = 20;
/// What the collector needs free, in percent of the live data.
const FLASH_SPARE_PERCENT: u64 = 20;
const RAM_PERCENT: u64 = 30;
/// A database with less is hardly one.
const MEGABYTES_MIN: u64 = 64;
/// How long the rate of the source is measured.
const RATE_TIME: Duration = Duration::from_secs(1);
const BATCH: usize = 100;

pub struct Sample {
    version: String,
    keys: u64,
    sampled: u64,
    name_bytes: u64,
    value_bytes: u64,
    /// Of the sampled values and names, compressed.
    packed_bytes: u64,
    unpacked_bytes: u64,
    largest_bytes: u64,
}

/// Looks at this many random keys.
pub fn sample(source: &mut Server, wanted: usize) -> Result<Sample, Failure> {
    let version = source.info("server")?.get("redis_version").cloned().unwrap_or_default();
    let databases = source.keys()?;
    let keys: u64 = databases.values().sum();
    let mut sample = Sample {
        version,
        keys,
        sampled: 0,
        name_bytes: 0,
        value_bytes: 0,
        packed_bytes: 0,
        unpacked_bytes: 0,
        largest_bytes: 0,
    };
    let mut page = Vec::new();
    for (&db, &of_it) in &databases {
        source.select(db)?;
        let share = (wanted as u64 * of_it).div_ceil(keys.max(1)).min(of_it) as usize;
        for from in (0..share).step_by(BATCH) {
            let names = source.pipeline((from..share.min(from + BATCH)).map(|_| vec![&b"RANDOMKEY"[..]]))?;
            let names: Vec<&[u8]> = names.iter().filter_map(bytes).collect();
            let dumps = source.pipeline(names.iter().map(|name| vec![&b"DUMP"[..], name]))?;
            for (name, dump) in names.iter().zip(&dumps) {
                // It may have expired meanwhile.
                let Some(dump) = bytes(dump) else { continue };
                sample.sampled += 1;
                sample.name_bytes += name.len() as u64;
                sample.value_bytes += dump.len() as u64;
                sample.largest_bytes = sample.largest_bytes.max(dump.len() as u64);
                page.extend_from_slice(name);
                page.extend_from_slice(dump);
                if page.len() >= PAGE_BYTES {
                    sample.pack(&mut page);
                }
            }
        }
    }
    sample.pack(&mut page);
    Ok(sample)
}

impl Sample {
    fn pack(&mut self, page: &mut Vec<u8>) {
        self.unpacked_bytes += page.len() as u64;
        self.packed_bytes += lz4_flex::block::compress(page).len().min(page.len()) as u64;
        page.clear();
    }

    fn of_all(&self, sampled_bytes: u64) -> u64 {
        (u128::from(sampled_bytes) * u128::from(self.keys) / u128::from(self.sampled.max(1))) as u64
    }

    fn dataset_bytes(&self) -> u64 {
        self.of_all(self.name_bytes + self.value_bytes) + self.keys * RECORD_BYTES
    }

    /// What the dataset takes on flash, with what the collector needs.
    fn flash_bytes(&self) -> u64 {
        let packed = self.of_all(self.packed_bytes) + self.keys * RECORD_BYTES;
        packed + packed * FLASH_SPARE_PERCENT / 100
    }

    fn entries_bytes(&self) -> u64 {
        self.keys * ENTRY_BYTES
    }

    /// What a target needs at least.
    fn needed_bytes(&self) -> u64 {
        self.flash_bytes() + self.entries_bytes()
    }

    pub fn report(&self, source: &str) -> String {
        let of_each = |sum: u64| human(sum / self.sampled.max(1));
        let percent = self.packed_bytes * 100 / self.unpacked_bytes.max(1);
        let memory = ((self.dataset_bytes() + self.entries_bytes()) >> 20).max(2 * MEGABYTES_MIN);
        pairs(&[
            ("source", format!("{source}, version {}", self.version)),
            ("keys", count(self.keys as f64)),
            (
                "sampled",
                format!(
                    "{} keys, names of {} and values of {} on average, the largest {}",
                    count(self.sampled as f64),
                    of_each(self.name_bytes),
                    of_each(self.value_bytes),
                    human(self.largest_bytes)
                ),
            ),
            ("dataset", format!("about {}", human(self.dataset_bytes()))),
            ("on flash", format!("about {}, compressed to {percent} % with lz4", human(self.flash_bytes()))),
            ("in RAM at least", format!("about {} for the keys' entries", human(self.entries_bytes()))),
            (
                "a good start",
                format!("--memory-limit {memory}mb --ram-limit {}mb", (memory * RAM_PERCENT / 100).max(MEGABYTES_MIN)),
            ),
        ])
    }

    /// Refuses a target that is too small.
    pub fn fits(&self, target: &mut Server, force: bool) -> Result<(), Failure> {
        let limit = target.info("memory")?.get("maxmemory").and_then(|limit| limit.parse::<u64>().ok()).unwrap_or(0);
        if force || limit == 0 || limit >= self.needed_bytes() {
            return Ok(());
        }
        Err(Failure::refused(format!(
            "the dataset needs about {}, and the target's limit is {}",
            human(self.needed_bytes()),
            human(limit)
        ))
        .hint("raise its limit (flintkv database resize), or say --force if the estimate is wrong"))
    }

    pub fn duration(&self, bytes_a_second: u64) -> String {
        let seconds = self.dataset_bytes() / bytes_a_second.max(1);
        let rate = human(bytes_a_second);
        pairs(&[(
            "time",
            format!("about {} s at {rate}/s, as fast as the source gives its values to this machine", seconds + 1),
        )])
    }
}

/// How many bytes of values the source gives in a second, one connection.
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
