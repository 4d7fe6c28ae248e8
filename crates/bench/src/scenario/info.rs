//! Owns the figures that a server reports: INFO's fields, and the counters by which a run is judged. Never invents a
//! figure: a server without a Tiering section (any but FlintKV) has no figures of flash.

use std::collections::HashMap;
use std::str::FromStr;

use serde::Serialize;

/// INFO's `field:value` lines.
#[derive(Clone, Debug, Default)]
pub struct Info(HashMap<String, String>);

impl Info {
    pub fn parse(text: &str) -> Info {
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        Info(pairs.map(|(name, value)| (name.to_owned(), value.trim_end().to_owned())).collect())
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub fn number<T: FromStr>(&self, name: &str) -> Option<T> {
        self.text(name)?.parse().ok()
    }

    fn count(&self, name: &str) -> u64 {
        self.number(name).unwrap_or(0)
    }

    pub fn is_flintkv(&self) -> bool {
        self.text("flintkv_version").is_some()
    }

    pub fn server_name(&self) -> String {
        match (self.text("flintkv_version"), self.text("redis_version")) {
            (Some(version), _) => format!("FlintKV {version}"),
            (None, Some(version)) => format!("redis-server {version}"),
            (None, None) => String::from("unknown server"),
        }
    }
}

/// Counters and sizes at one moment. Bytes unless the name says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Snapshot {
    pub commands: u64,
    pub hits: u64,
    pub misses: u64,
    pub resident: u64,
    pub evicted_keys: u64,
    /// The limit that the server reports, under whatever name. `None`: no limit.
    pub ram_limit: Option<u64>,
    pub tiering: Option<Tiering>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Tiering {
    pub memory_limit: u64,
    pub resident_max: u64,
    pub object_bytes: u64,
    pub values_in_ram: u64,
    pub values_in_flash: u64,
    pub flash_limit: u64,
    /// The part of the flash that live values may take.
    pub flash_live_limit: u64,
    pub flash_used: u64,
    pub flash_live: u64,
    pub value_reads: u64,
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub write_bytes: u64,
    pub user_write_bytes: u64,
    pub compression_ratio: f64,
    pub errors: u64,
    /// Server-side latency of commands in milliseconds (p50, p99, p99.9), by where the value was.
    pub ram_hit_ms: [f64; 3],
    pub flash_hit_ms: [f64; 3],
}

impl Snapshot {
    pub fn of(info: &Info) -> Snapshot {
        let count = |name| info.count(name);
        let limit = if info.is_flintkv() { "ram_limit" } else { "maxmemory" };
        Snapshot {
            commands: count("total_commands_processed"),
            hits: count("keyspace_hits"),
            misses: count("keyspace_misses"),
            resident: count("used_memory_rss"),
            evicted_keys: count("evicted_keys"),
            ram_limit: Some(count(limit)).filter(|&limit| limit > 0),
            tiering: info.number::<u8>("tiering_enabled").filter(|&enabled| enabled == 1).map(|_| Tiering::of(info)),
        }
    }

    /// The share of reads between two moments that found their value in RAM. `None`: no flash, or no reads.
    pub fn ram_hit_ratio_since(&self, before: &Snapshot) -> Option<f64> {
        let (now, then) = (self.tiering.as_ref()?, before.tiering.as_ref()?);
        let hits = self.hits.saturating_sub(before.hits);
        let from_flash = now.value_reads.saturating_sub(then.value_reads).min(hits);
        (hits > 0).then(|| (hits - from_flash) as f64 / hits as f64)
    }
}

impl Tiering {
    fn of(info: &Info) -> Tiering {
        let count = |name| info.count(name);
        let latency = |hit: &str| {
            ["p50", "p99", "p99.9"].map(|percentile| {
                let name = format!("command_{hit}_latency_usec_{percentile}");
                info.number::<f64>(&name).unwrap_or(0.0) / 1000.0
            })
        };
        Tiering {
            memory_limit: count("memory_limit"),
            resident_max: count("used_ram_max"),
            object_bytes: count("ram_object_bytes"),
            values_in_ram: count("values_in_ram"),
            values_in_flash: count("values_in_flash"),
            flash_limit: count("flash_limit"),
            flash_live_limit: count("flash_live_limit"),
            flash_used: count("used_flash"),
            flash_live: count("flash_live_bytes"),
            value_reads: count("flash_kv_reads"),
            reads: count("flash_reads"),
            read_bytes: count("flash_read_bytes"),
            writes: count("flash_writes"),
            write_bytes: count("flash_write_bytes"),
            user_write_bytes: count("user_write_bytes"),
            compression_ratio: info.number("flash_compression_ratio").unwrap_or(0.0),
            errors: count("flash_read_errors") + count("flash_write_errors") + count("flash_checksum_errors"),
            ram_hit_ms: latency("ram_hit"),
            flash_hit_ms: latency("flash_hit"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(text: &str) -> Snapshot {
        Snapshot::of(&Info::parse(text))
    }

    #[test]
    fn a_server_without_flash_has_no_hit_ratio() {
        let before = snapshot("# Stats\r\nredis_version:7.0.15\r\nkeyspace_hits:1\r\n");
        let after = snapshot("# Stats\r\nredis_version:7.0.15\r\nkeyspace_hits:9\r\nmaxmemory:0\r\n");
        assert_eq!(after.hits, 9);
        assert_eq!(after.ram_limit, None);
        assert_eq!(after.ram_hit_ratio_since(&before), None);
    }

    #[test]
    fn the_hit_ratio_is_that_of_the_interval() {
        let text = |hits, reads| {
            format!(
                "flintkv_version:0.1.0\r\nkeyspace_hits:{hits}\r\ntiering_enabled:1\r\nram_limit:500\r\n\
                 flash_kv_reads:{reads}\r\ncommand_flash_hit_latency_usec_p99:250.500\r\n"
            )
        };
        let (before, after) = (snapshot(&text(1000, 900)), snapshot(&text(2000, 1050)));
        assert_eq!(after.ram_hit_ratio_since(&before), Some(0.85));
        assert_eq!(after.ram_limit, Some(500));
        assert_eq!(after.tiering.as_ref().map(|tiering| tiering.flash_hit_ms[1]), Some(0.2505));
        assert_eq!(after.ram_hit_ratio_since(&after), None, "no reads, no ratio");
    }
}
