//! Owns a sample of a running server's keys, and how often they are used. Never changes anything there.

use resp::client::Value;
use value::rdb::restore;

use crate::server::{Server, bytes};
use crate::{Error, Sample};

const BATCH: usize = 100;

/// How often a server's keys are used.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Traffic {
    pub reads_per_second: f64,
    pub writes_per_second: f64,
}

impl Traffic {
    /// As the server has counted it: its rate now, and its share of reads since it started.
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

/// Looks at this many random keys.
pub fn look(source: &mut Server, wanted: usize) -> Result<Sample, Error> {
    // So that looking at a key does not count as a use of it. Servers before Redis 7.2 do not know the command.
    source.call(&[b"CLIENT", b"NO-TOUCH", b"ON"])?;
    let version = source.info("server")?.get("redis_version").cloned().unwrap_or_default();
    let databases = source.keys()?;
    let keys: u64 = databases.values().sum();
    let mut sample = Sample::new(version, keys);
    for (&db, &of_it) in &databases {
        source.select(db)?;
        let share = (wanted as u64 * of_it).div_ceil(keys.max(1)).min(of_it) as usize;
        for from in (0..share).step_by(BATCH) {
            let names = source.pipeline((from..share.min(from + BATCH)).map(|_| vec![&b"RANDOMKEY"[..]]))?;
            let names: Vec<&[u8]> = names.iter().filter_map(bytes).collect();
            let dumps = source.pipeline(names.iter().map(|name| vec![&b"DUMP"[..], name]))?;
            names.iter().zip(&dumps).for_each(|(name, dump)| add(&mut sample, name, dump));
        }
    }
    sample.finish();
    Ok(sample)
}

fn add(sample: &mut Sample, name: &[u8], dump: &Value) {
    // It may have expired meanwhile.
    let Some(dump) = bytes(dump) else { return };
    sample.begin(name);
    match restore(dump) {
        Ok(value) => sample.value(&value),
        // Newer than what is known here: it counts as it is.
        Err(_) => sample.string(dump),
    }
    sample.end();
}
