//! Owns sampling the keys of a running server, and reading how often they are used. Never changes anything there.

use std::time::{Duration, Instant};

use resp::client::Value;
use value::rdb::restore;

use crate::server::{Server, bytes, list};
use crate::{Error, Sample};

/// The number of keys of one pipeline.
const BATCH: u64 = 100;
/// A larger value is not fetched, because the server would serve no other client meanwhile. Its size is then that of
/// MEMORY USAGE.
const VALUE_BYTES_MAX: u64 = 4 << 20;
/// Values are fetched together up to this size.
const GROUP_BYTES: u64 = 4 << 20;
/// The limit of all values together. This is enough to tell how well they compress.
const FETCHED_BYTES_MAX: u64 = 256 << 20;
const REPLY_BYTES_MAX: usize = 64 << 20;
const TIME_MAX: Duration = Duration::from_secs(300);

/// How often a server's keys are used.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Traffic {
    pub reads_per_second: f64,
    pub writes_per_second: f64,
}

impl Traffic {
    /// From the server's counters: its current rate, and the share of reads since it started.
    pub fn of(source: &mut Server) -> Result<Traffic, Error> {
        let stats = source.info("stats")?;
        let number = |name: &str| stats.get(name).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
        let commands = number("total_commands_processed");
        let reads = (number("keyspace_hits") + number("keyspace_misses")).min(commands);
        let share = if commands > 0.0 { reads / commands } else { 1.0 };
        let rate = number("instantaneous_ops_per_sec");
        Ok(Traffic { reads_per_second: (rate * share).round(), writes_per_second: (rate * (1.0 - share)).round() })
    }
}

/// Samples this many keys: all keys if there are no more, otherwise random ones. `go_on` gets the progress, 0 to 1; if it
/// returns false, the sample ends with the keys seen so far. `only_db`: sample only this logical database.
pub fn look(
    source: &mut Server,
    wanted: usize,
    only_db: Option<u32>,
    go_on: &dyn Fn(f64) -> bool,
) -> Result<Sample, Error> {
    source.limit_replies(REPLY_BYTES_MAX);
    // With this, sampling a key does not count as a use of it. Servers before Redis 7.2 do not have the command.
    source.call(&[b"CLIENT", b"NO-TOUCH", b"ON"])?;
    let version = source.info("server")?.get("redis_version").cloned().unwrap_or_default();
    let mut databases = source.keys()?;
    databases.retain(|&db, _| only_db.is_none_or(|only| only == db));
    let keys: u64 = databases.values().sum();
    let mut looker = Looker { source, sample: Sample::new(version, keys), fetched_bytes: 0, fetched_bytes_max: 0 };
    let begun = Instant::now();
    let mut before = 0;
    for (&db, &of_it) in &databases {
        looker.source.select(db)?;
        let part = |of: u64| (u128::from(of) * u128::from(of_it)).div_ceil(u128::from(keys.max(1))) as u64;
        // Each logical database gets its share of the bytes that may be fetched.
        looker.fetched_bytes_max += part(FETCHED_BYTES_MAX);
        let share = part(wanted as u64).min(of_it);
        let mut names = Names { cursor: share == of_it, next: b"0".to_vec() };
        let mut looked = 0;
        while looked < share && looker.fetched_bytes < looker.fetched_bytes_max && begun.elapsed() < TIME_MAX {
            let batch = names.batch(looker.source, (share - looked).min(BATCH))?;
            looker.add(&batch)?;
            looked += if names.cursor { batch.len() as u64 } else { BATCH };
            let is_over = names.cursor && names.next == b"0";
            if !go_on(((before + looked.min(share)) as f64 / wanted.min(keys.max(1) as usize) as f64).min(1.0))
                || is_over
            {
                break;
            }
        }
        before += share;
    }
    let mut sample = looker.sample;
    source.limit_replies(usize::MAX);
    sample.finish();
    Ok(sample)
}

/// An iterator over the names of a logical database's keys: all of them in turn, or random ones.
struct Names {
    cursor: bool,
    next: Vec<u8>,
}

impl Names {
    fn batch(&mut self, source: &mut Server, count: u64) -> Result<Vec<Vec<u8>>, Error> {
        let replies = match self.cursor {
            true => {
                let reply = source.call(&[b"SCAN", &self.next, b"COUNT", BATCH.to_string().as_bytes()])?;
                if let Value::Error(text) = &reply {
                    return Err(source.refused("SCAN", text));
                }
                let mut reply = list(reply).into_iter();
                self.next = reply.next().as_ref().and_then(bytes).unwrap_or(b"0").to_vec();
                list(reply.next().unwrap_or(Value::Null))
            }
            false => source.pipeline((0..count).map(|_| vec![&b"RANDOMKEY"[..]]))?,
        };
        replies
            .iter()
            .filter_map(|reply| match reply {
                Value::Error(text) => Some(Err(source.refused("RANDOMKEY", text))),
                reply => bytes(reply).map(|name| Ok(name.to_vec())),
            })
            .collect()
    }
}

struct Looker<'s> {
    source: &'s mut Server,
    sample: Sample,
    fetched_bytes: u64,
    fetched_bytes_max: u64,
}

impl Looker<'_> {
    fn add(&mut self, names: &[Vec<u8>]) -> Result<(), Error> {
        let sizes = self.source.pipeline(names.iter().map(|name| vec![&b"MEMORY"[..], b"USAGE", name]))?;
        let mut group: Vec<&[u8]> = Vec::new();
        let mut group_bytes = 0;
        for (name, size) in names.iter().zip(&sizes) {
            let size = match size {
                Value::Int(size) => size.unsigned_abs(),
                Value::Error(text) if !is_elsewhere(text) => return Err(self.source.refused("MEMORY USAGE", text)),
                // It may have expired meanwhile, or moved.
                _ => continue,
            };
            if size > VALUE_BYTES_MAX {
                self.sample.estimate(name, size);
                continue;
            }
            group.push(name);
            group_bytes += size;
            if group_bytes >= GROUP_BYTES {
                self.fetch(&std::mem::take(&mut group))?;
                group_bytes = 0;
            }
        }
        self.fetch(&group)
    }

    fn fetch(&mut self, names: &[&[u8]]) -> Result<(), Error> {
        let dumps = self.source.pipeline(names.iter().map(|name| vec![&b"DUMP"[..], name]))?;
        for (name, dump) in names.iter().zip(&dumps) {
            match dump {
                Value::Error(text) if !is_elsewhere(text) => return Err(self.source.refused("DUMP", text)),
                dump => {
                    // It may have expired meanwhile, or moved.
                    let Some(dump) = bytes(dump) else { continue };
                    self.fetched_bytes += dump.len() as u64;
                    add(&mut self.sample, name, dump);
                }
            }
        }
        Ok(())
    }
}

/// The key's slot is moving to another node of the cluster.
fn is_elsewhere(error: &[u8]) -> bool {
    [&b"MOVED "[..], b"ASK ", b"TRYAGAIN "].iter().any(|code| error.starts_with(code))
}

fn add(sample: &mut Sample, name: &[u8], dump: &[u8]) {
    sample.begin(name);
    match restore(dump) {
        Ok(value) => sample.value(&value),
        // The format is newer than the ones known here: count the payload as it is.
        Err(_) => sample.string(dump),
    }
    sample.end();
}
