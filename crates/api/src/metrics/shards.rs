//! Owns what the charts show of a cluster's database: the figures of its shards together, from their INFO, as the table of figures says of each:
//! the sum, the largest or the smallest. Never knows how a shard is asked.
//!
//! What is about clients is that of the endpoint on this node. Of what INFO does not have, nothing is known.

use node::metrics::{Charted, Kind, Merge, Scope, Unit};
use std::collections::BTreeMap;

/// The groups of charts that are about the clients of this node's endpoint.
const OF_ENDPOINT: &[&str] = &["Clients", "Latency", "Replication"];

/// The figures of all shards at a moment, by the names of their charts.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardFigures {
    at_ms: u64,
    figures: BTreeMap<&'static str, f64>,
}

impl ShardFigures {
    /// `None`: a shard has not answered, so nothing is known of the whole.
    pub fn of(at_ms: u64, infos: &[Result<String, String>]) -> Option<ShardFigures> {
        let texts: Vec<&str> = infos.iter().map(|info| info.as_deref().ok()).collect::<Option<_>>()?;
        let figure = |(row, chart): &Charted| {
            let values: Option<Vec<f64>> = texts.iter().map(|text| value(text, row.name)).collect();
            let values = values.filter(|values| !values.is_empty())?.into_iter();
            let merged = match row.merge {
                Merge::Sum => values.sum(),
                Merge::Max => values.fold(f64::MIN, f64::max),
                Merge::Min => values.fold(f64::MAX, f64::min),
                Merge::Same | Merge::Derived => return None,
            };
            Some((chart.name, merged))
        };
        let charts = Scope::Database.charts().iter().filter(|(_, chart)| !OF_ENDPOINT.contains(&chart.group));
        Some(ShardFigures { at_ms, figures: charts.filter_map(figure).collect() })
    }

    fn get(&self, chart: &str) -> f64 {
        self.figures.get(chart).copied().unwrap_or(f64::NAN)
    }
}

/// A field of INFO.
fn value(text: &str, name: &str) -> Option<f64> {
    if name == "keys" {
        // `db0:keys=1,…`, a line for each logical database.
        let keys = |line: &str| line.strip_prefix("db")?.split_once(":keys=")?.1.split(',').next()?.parse::<f64>().ok();
        return text.contains("# Keyspace").then(|| text.lines().filter_map(keys).sum());
    }
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.parse().ok())
}

/// What the charts show of the database, from what they would show of its endpoint. Unknown: NaN.
pub fn of_shards(endpoint: &[f64], before: Option<&ShardFigures>, now: Option<&ShardFigures>) -> Vec<f64> {
    // A shard that has restarted counts from zero, and then the sum says nothing about the others.
    let rate = |chart: &str| match (before, now) {
        (Some(before), Some(now)) if now.at_ms > before.at_ms => {
            let grown = now.get(chart) - before.get(chart);
            if grown >= 0.0 { grown * 1000.0 / (now.at_ms - before.at_ms) as f64 } else { f64::NAN }
        }
        _ => f64::NAN,
    };
    let gauge = |chart: &str| now.map_or(f64::NAN, |now| now.get(chart));
    let one = |((row, chart), own): (&Charted, &f64)| match chart.name {
        _ if OF_ENDPOINT.contains(&chart.group) => *own,
        "hit_ratio" => rate("ram_hits") / (rate("ram_hits") + rate("flash_hits")),
        "values_in_ram_ratio" => gauge("values_in_ram") / gauge("keys"),
        "ram_percent" => 100.0 * gauge("used_ram_bytes") / gauge("ram_limit_bytes"),
        name if row.kind == Kind::Counter && row.unit == Unit::Us => rate(name) / 1e6,
        name if row.kind == Kind::Counter => rate(name),
        name => gauge(name),
    };
    let known = |value: f64| if value.is_finite() { value } else { f64::NAN };
    Scope::Database.charts().iter().zip(endpoint).map(one).map(known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(keys: u64, in_ram: u64, ram: u64, full: u8, hits: (u64, u64), commands: u64) -> Result<String, String> {
        Ok(format!(
            "# Memory\r\nused_memory_rss:{ram}\r\nmaxmemory:400\r\n# Stats\r\ntotal_commands_processed:{commands}\r\n# Tiering\r\n\
             values_in_ram:{in_ram}\r\nflash_full:{full}\r\nstorage_provider_read_hits:{}\r\nstorage_provider_read_misses:{}\r\n\
             # Keyspace\r\ndb0:keys={keys},expires=0,avg_ttl=0,cached_keys=0\r\n",
            hits.0, hits.1
        ))
    }

    #[test]
    fn figures_of_shards_are_merged_as_the_table_says() {
        let charts = Scope::Database.charts();
        let endpoint: Vec<f64> = charts.iter().map(|_| 7.0).collect();
        let before = ShardFigures::of(1000, &[info(1, 1, 100, 0, (10, 0), 50), info(2, 1, 100, 0, (0, 5), 50)]);
        let now = ShardFigures::of(3000, &[info(10, 5, 100, 0, (40, 0), 150), info(30, 15, 300, 1, (0, 15), 250)]);
        let of = |before: &Option<ShardFigures>, now: &Option<ShardFigures>| {
            let values = of_shards(&endpoint, before.as_ref(), now.as_ref());
            move |name: &str| values[Scope::Database.column(name).unwrap()]
        };
        let value = of(&before, &now);
        assert_eq!((value("keys"), value("used_ram_bytes"), value("ram_limit_bytes")), (40.0, 400.0, 800.0));
        assert_eq!((value("values_in_ram_ratio"), value("ram_percent")), (0.5, 50.0));
        assert_eq!(value("flash_full"), 1.0, "one is full, so the database refuses writes");
        assert_eq!((value("ops"), value("ram_hits"), value("flash_hits")), (150.0, 15.0, 5.0));
        assert_eq!(value("hit_ratio"), 0.75);
        assert_eq!((value("clients"), value("latency_us")), (7.0, 7.0), "the endpoint's own");
        assert!(value("ops_read").is_nan(), "INFO does not have it, and the endpoint's own is not the database's");
        // Without an earlier reading rates are unknown; after a restart too, and without an answer of each shard everything is.
        assert!(of(&None, &now)("ops").is_nan() && of(&None, &now)("keys") == 40.0);
        assert!(of(&now, &before)("ops").is_nan());
        assert_eq!(ShardFigures::of(4000, &[info(1, 1, 1, 0, (0, 0), 1), Err("it is away".to_owned())]), None);
        assert!(of(&now, &None)("keys").is_nan());
    }
}
