//! Owns what a dataset will take here, from a sample of its keys. Never changes anything.

use std::time::{Duration, Instant};

use base::size::human;
use base::sizing::{Demand, Sizing};
use resp::client::Value;
use value::rdb::{Decoded, restore};

use super::server::{Server, bytes};
use crate::failure::Failure;
use crate::size::count;
use crate::table::pairs;

/// Values are compressed together, as on flash.
const PAGE_BYTES: usize = 16 << 10;
/// What a member of a collection takes beside its bytes.
const MEMBER_BYTES: u64 = 2;
/// The share of values in RAM that a target begins with.
const RAM_SHARE: f64 = 0.3;
/// A database with less is hardly one.
const MEGABYTES_MIN: u64 = 64;
/// How long the rate of the source is measured.
const RATE_TIME: Duration = Duration::from_secs(1);
const BATCH: usize = 100;

pub struct Sample {
    version: String,
    pub keys: u64,
    sampled: u64,
    name_bytes: u64,
    /// As the values lie in RAM here.
    value_bytes: u64,
    /// Of the sampled values and names, compressed.
    packed_bytes: u64,
    unpacked_bytes: u64,
    largest_bytes: u64,
}

/// Looks at this many random keys.
pub fn sample(source: &mut Server, wanted: usize) -> Result<Sample, Failure> {
    // So that looking at a key does not count as a use of it. Servers before Redis 7.2 do not know the command.
    source.call(&[b"CLIENT", b"NO-TOUCH", b"ON"])?;
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
                page.extend_from_slice(name);
                let value_bytes = unpacked(dump, &mut page);
                sample.sampled += 1;
                sample.name_bytes += name.len() as u64;
                sample.value_bytes += value_bytes;
                sample.largest_bytes = sample.largest_bytes.max(value_bytes);
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

    pub fn name_bytes(&self) -> u64 {
        self.name_bytes.div_ceil(self.sampled.max(1))
    }

    pub fn value_bytes(&self) -> u64 {
        self.value_bytes.div_ceil(self.sampled.max(1))
    }

    /// What the data take on flash, of what they are.
    pub fn compression(&self) -> f64 {
        self.packed_bytes as f64 / self.unpacked_bytes.max(1) as f64
    }

    fn dataset_bytes(&self) -> u64 {
        self.keys * (self.name_bytes() + self.value_bytes())
    }

    /// What the dataset takes here with this share of its values in RAM, on one worker.
    fn sized(&self, ram_share: f64) -> Sizing {
        let demand = Demand {
            keys: self.keys,
            key_bytes: self.name_bytes(),
            value_bytes: self.value_bytes(),
            compression: self.compression(),
            skew: 0.0,
            reads_per_second: 0.0,
            writes_per_second: 0.0,
            workers: 1,
            has_journal: true,
            has_console: true,
        };
        demand.for_ram_share(ram_share)
    }

    /// What a target needs at least: the index, and room for all values on flash.
    fn needed_bytes(&self) -> u64 {
        let sized = self.sized(0.0);
        sized.flash_bytes + sized.index_bytes
    }

    pub fn report(&self, source: &str) -> String {
        let of_each = |sum: u64| human(sum / self.sampled.max(1));
        let (least, start) = (self.sized(0.0), self.sized(RAM_SHARE));
        let megabytes = |bytes: u64| bytes.div_ceil(1 << 20).max(MEGABYTES_MIN);
        let ram = megabytes(start.ram_limit_bytes);
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
            (
                "on flash",
                format!(
                    "about {}, compressed to {:.0} % with lz4, with the room that collection needs",
                    human(least.flash_bytes),
                    self.compression() * 100.0
                ),
            ),
            ("in RAM at least", format!("about {} for the keys' entries", human(least.index_bytes))),
            ("a good start", format!("--memory-limit {}mb --ram-limit {ram}mb", ram + megabytes(start.flash_bytes))),
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

/// Appends the value of a dump as it lies in RAM, nearly, and says how many bytes that is. A string may be compressed in the dump. A dump
/// that is newer than what is known here, and a stream, count as they are.
fn unpacked(dump: &[u8], page: &mut Vec<u8>) -> u64 {
    let before = page.len();
    let rest = match restore(dump) {
        Ok(Decoded::String(text)) => {
            page.extend_from_slice(&text);
            0
        }
        Ok(Decoded::List(parts) | Decoded::Set(parts) | Decoded::Hash(parts)) => {
            parts.iter().for_each(|part| page.extend_from_slice(part));
            parts.len() as u64 * MEMBER_BYTES
        }
        Ok(Decoded::ZSet(parts, scores)) => {
            parts.iter().for_each(|part| page.extend_from_slice(part));
            scores.iter().for_each(|score| page.extend_from_slice(&score.to_le_bytes()));
            parts.len() as u64 * MEMBER_BYTES
        }
        Ok(Decoded::Stream(_)) | Err(_) => {
            page.extend_from_slice(dump);
            0
        }
    };
    (page.len() - before) as u64 + rest
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
