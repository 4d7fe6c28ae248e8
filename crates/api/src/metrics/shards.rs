//! Owns what a cluster's database is as a whole: the figures of its shards and of its endpoints on all nodes together, as the table of
//! figures says of each: the sum, the largest or the smallest. Latencies are those of merged histograms. Never knows how a part is asked.
//!
//! What is about clients is of the endpoints, and everything else of the shards. A figure of one part is not shown as that of the whole:
//! what a part has not said is unknown.

use node::metrics::part::Part;
use node::metrics::{Charted, Kind, Merge, Row, Scope, Times, Unit};
use node::{Figures, Latencies, Summary};
use std::collections::BTreeMap;
use std::time::Duration;

/// The groups of charts, and the charts of other groups, that are about clients.
const GROUPS_OF_ENDPOINTS: &[&str] = &["Clients"];
const OF_ENDPOINTS: &[&str] = &["rejected_clients", "clients_percent", "errors"];
/// The groups of charts that are not of the parts: what the cluster's records say, and what a database of a cluster has no figures for.
const OF_NO_PART: &[&str] = &["Cluster", "Replication"];

/// Rows of the table of figures: reads that found their value in RAM, and on flash.
const RAM_HITS: &str = "storage_provider_read_hits";
const FLASH_HITS: &str = "storage_provider_read_misses";

/// What the parts have said at a moment, together.
#[derive(Clone, Debug)]
pub struct ShardFigures {
    at_ms: u64,
    /// Which parts these are: figures of others cannot be compared.
    parts: Vec<String>,
    /// By the names of the rows. What the endpoints have not said is missing.
    figures: BTreeMap<&'static str, f64>,
    /// Of all commands from the endpoints; of reads by tier from the shards.
    latencies: Latencies,
    /// The endpoints have said theirs.
    has_endpoints: bool,
}

impl ShardFigures {
    /// `shards`: what each has answered. `None`: one has not, so nothing is known of the whole. `endpoints`: by the names of their nodes;
    /// `None`: that of a node is unknown.
    pub fn of(
        at_ms: u64,
        shards: &[Result<String, String>],
        endpoints: Option<&[(String, String)]>,
    ) -> Option<ShardFigures> {
        let texts: Option<Vec<&String>> = shards.iter().map(|shard| shard.as_ref().ok()).collect();
        let shards: Vec<Part> = texts?.into_iter().map(|text| Part::read(text)).collect();
        let endpoint_parts: Vec<Part> =
            endpoints.unwrap_or_default().iter().map(|(_, text)| Part::read(text)).collect();
        let figure = |row: &'static Row| {
            let parts = if is_of_endpoints(row) { &endpoint_parts } else { &shards };
            let values: Option<Vec<f64>> = parts.iter().map(|part| part.value(row.name)).collect();
            Some((row.name, merged(row.merge, &values.filter(|values| !values.is_empty())?)?))
        };
        let mut parts = vec![shards.len().to_string()];
        parts.extend(endpoints.unwrap_or_default().iter().map(|(node, _)| node.clone()));
        let mut latencies = Latencies::default();
        endpoint_parts.iter().for_each(|part| latencies.all.merge(&part.latencies.all));
        for shard in &shards {
            latencies.read_ram.merge(&shard.latencies.read_ram);
            latencies.read_flash.merge(&shard.latencies.read_flash);
        }
        let figures = Scope::Database.rows().filter(|row| !row.name.is_empty()).filter_map(figure).collect();
        Some(ShardFigures { at_ms, parts, figures, latencies, has_endpoints: endpoints.is_some() })
    }

    fn get(&self, row: &str) -> f64 {
        self.figures.get(row).copied().unwrap_or(f64::NAN)
    }

    /// The latencies since an earlier moment; `None`: unknown.
    fn since(&self, before: &ShardFigures, of: fn(&Latencies) -> &Summary) -> Option<Summary> {
        of(&self.latencies).checked_since(of(&before.latencies))
    }

    /// Puts them in the place of an endpoint's own, as far as a condition is judged by them.
    pub fn put_into(&self, figures: &mut Figures) {
        // What a shard's version does not say is as good as nothing.
        let whole = |row: &str| self.figures.get(row).map_or(0, |value| *value as u64);
        let is_so = |row: &str| whole(row) > 0;
        figures.used_ram_bytes = whole("used_memory_rss");
        figures.ram_limit_bytes = whole("maxmemory");
        figures.store.ram_full = is_so("ram_full");
        figures.store.flash_full = is_so("flash_full");
        figures.store.flash_charged_bytes = whole("flash_charged_bytes");
        figures.store.flash_full_at_bytes = whole("flash_full_at_bytes");
        figures.store.flash_retired_segments = whole("flash_retired_segments");
        figures.durability.journal_has_failed = is_so("journal_failed");
        figures.durability.journal.behind = is_so("aof_delayed_fsync").then_some(Duration::ZERO);
        figures.durability.checkpoint_failures = whole("aof_rewrites_consecutive_failures");
        figures.durability.journal_missing_bytes = whole("journal_missing_bytes");
        // An endpoint keeps nothing that could be damaged.
        figures.durability.damaged_checkpoints = whole("rot");
        figures.replicas_missing = whole("replicas_missing");
    }
}

fn is_of_endpoints(row: &Row) -> bool {
    row.chart.is_some_and(|chart| GROUPS_OF_ENDPOINTS.contains(&chart.group) || OF_ENDPOINTS.contains(&chart.name))
}

/// `None`: it follows from others, or is not of a part.
fn merged(merge: Merge, values: &[f64]) -> Option<f64> {
    let values = values.iter().copied();
    match merge {
        Merge::Sum => Some(values.sum()),
        // A share is that of the part with the largest: the fullest one refuses first.
        Merge::Max | Merge::Derived => Some(values.fold(f64::MIN, f64::max)),
        Merge::Min => Some(values.fold(f64::MAX, f64::min)),
        Merge::Same => None,
    }
}

/// What the charts show of the database, from what they would show of the endpoint on this node. Unknown: NaN.
pub fn of_shards(endpoint: &[f64], before: Option<&ShardFigures>, now: Option<&ShardFigures>) -> Vec<f64> {
    let both = match (before, now) {
        (Some(before), Some(now)) if now.at_ms > before.at_ms && now.parts == before.parts => Some((before, now)),
        _ => None,
    };
    // A part that has restarted counts from zero, and then the sum says nothing about the others.
    let rate = |row: &str| match both {
        Some((before, now)) => {
            let grown = now.get(row) - before.get(row);
            if grown >= 0.0 { grown * 1000.0 / (now.at_ms - before.at_ms) as f64 } else { f64::NAN }
        }
        None => f64::NAN,
    };
    let gauge = |row: &str| now.map_or(f64::NAN, |now| now.get(row));
    let since = |of| both.and_then(|(before, now)| now.since(before, of));
    let all = both.filter(|(before, now)| before.has_endpoints && now.has_endpoints);
    let all = all.and_then(|(before, now)| now.since(before, |latencies| &latencies.all));
    let (ram, flash) = (since(|latencies| &latencies.read_ram), since(|latencies| &latencies.read_flash));
    let (all, ram, flash) = (Times(all.as_ref()), Times(ram.as_ref()), Times(flash.as_ref()));
    let one = |((row, chart), own): (&Charted, &f64)| match chart.name {
        "latency_us" => all.mean_us(),
        "latency_p50_us" => all.percentile_us(50.0),
        "latency_p99_us" => all.percentile_us(99.0),
        "latency_p999_us" => all.percentile_us(99.9),
        "latency_p9999_us" => all.percentile_us(99.99),
        "ram_latency_us" => ram.mean_us(),
        "ram_latency_p99_us" => ram.percentile_us(99.0),
        "flash_latency_us" => flash.mean_us(),
        "flash_latency_p99_us" => flash.percentile_us(99.0),
        "hit_ratio" => rate(RAM_HITS) / (rate(RAM_HITS) + rate(FLASH_HITS)),
        "values_in_ram_ratio" => gauge("values_in_ram") / gauge("keys"),
        "ram_percent" => 100.0 * gauge("used_memory_rss") / gauge("maxmemory"),
        _ if OF_NO_PART.contains(&chart.group) => *own,
        _ if row.kind == Kind::Counter && row.unit == Unit::Us => rate(row.name) / 1e6,
        _ if row.kind == Kind::Counter => rate(row.name),
        _ => gauge(row.name),
    };
    let known = |value: f64| if value.is_finite() { value } else { f64::NAN };
    Scope::Database.charts().iter().zip(endpoint).map(one).map(known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Shard {
        keys: u64,
        in_ram: u64,
        ram: u64,
        full: u8,
        hits: (u64, u64),
        commands: u64,
    }

    fn shard(Shard { keys, in_ram, ram, full, hits, commands }: Shard) -> Result<String, String> {
        Ok(format!(
            "# Figures\r\nused_memory_rss:{ram}\r\nmaxmemory:400\r\ntotal_commands_processed:{commands}\r\nkeys:{keys}\r\n\
             values_in_ram:{in_ram}\r\nflash_full:{full}\r\nflash_percent:{}\r\n{RAM_HITS}:{}\r\n{FLASH_HITS}:{}\r\n\
             aof_rewrites_consecutive_failures:{full}\r\nnewer:7\r\nhistogram_read_ram:1000={}\r\n",
            10 * ram,
            hits.0,
            hits.1,
            hits.0
        ))
    }

    fn endpoint(node: &str, clients: u64, fast: u64, slow: u64) -> (String, String) {
        let text = format!("connected_clients:{clients}\r\nhistogram_all:1000={fast},1000000={slow}\r\n");
        (node.to_owned(), text)
    }

    #[test]
    fn figures_of_parts_are_merged_as_the_table_says() {
        let charts = Scope::Database.charts();
        let own: Vec<f64> = charts.iter().map(|_| 7.0).collect();
        let first = Shard { keys: 1, in_ram: 1, ram: 100, full: 0, hits: (10, 0), commands: 50 };
        let second = Shard { keys: 2, in_ram: 1, ram: 100, full: 0, hits: (0, 5), commands: 50 };
        let endpoints = [endpoint("n1", 2, 1000, 10), endpoint("n2", 3, 1000, 10)];
        let before = ShardFigures::of(1000, &[shard(first), shard(second)], Some(&endpoints));
        let first = || Shard { keys: 10, in_ram: 5, ram: 100, full: 0, hits: (40, 0), commands: 150 };
        let second = || Shard { keys: 30, in_ram: 15, ram: 300, full: 1, hits: (0, 15), commands: 250 };
        let shards = [shard(first()), shard(second())];
        // Of 1000 new commands at one node all are fast, and of 30 at the other one all are slow: 3 % of all.
        let endpoints = [endpoint("n1", 4, 2000, 10), endpoint("n2", 5, 1000, 40)];
        let now = ShardFigures::of(3000, &shards, Some(&endpoints));
        let of = |before: &Option<ShardFigures>, now: &Option<ShardFigures>| {
            let values = of_shards(&own, before.as_ref(), now.as_ref());
            move |name: &str| values[Scope::Database.column(name).unwrap()]
        };
        let value = of(&before, &now);
        assert_eq!((value("keys"), value("used_ram_bytes"), value("ram_limit_bytes")), (40.0, 400.0, 800.0));
        assert_eq!((value("values_in_ram_ratio"), value("ram_percent")), (0.5, 50.0));
        assert_eq!(value("flash_full"), 1.0, "one is full, so the database refuses writes");
        assert_eq!(value("flash_percent"), 3000.0, "that of the fullest shard");
        assert_eq!((value("ops"), value("ram_hits"), value("flash_hits")), (150.0, 15.0, 5.0));
        assert_eq!((value("hit_ratio"), value("clients"), value("checkpoint_failures")), (0.75, 9.0, 1.0));
        assert!(value("latency_p50_us") < 1.1 && value("latency_p99_us") > 900.0, "of all commands together");
        assert!((value("latency_us") - 30.1).abs() < 1.5, "{}", value("latency_us"));
        assert!(value("ram_latency_p99_us") < 1.1 && value("flash_latency_us").is_nan());
        assert!(value("ops_read").is_nan(), "no shard has said it");

        // The condition of the whole.
        let mut figures = Figures::default();
        now.as_ref().unwrap().put_into(&mut figures);
        assert_eq!((figures.used_ram_bytes, figures.ram_limit_bytes, figures.store.flash_full), (400, 800, true));
        assert_eq!((figures.durability.checkpoint_failures, figures.durability.journal_has_failed), (1, false));

        // Without an earlier reading rates are unknown; after a restart too, and without an answer of each shard everything is.
        assert!(of(&None, &now)("ops").is_nan() && of(&None, &now)("keys") == 40.0);
        assert!(of(&now, &before)("ops").is_nan());
        assert!(ShardFigures::of(4000, &[shard(first()), Err("it is away".to_owned())], Some(&endpoints)).is_none());
        assert!(of(&now, &None)("keys").is_nan());
        // Without an endpoint nothing is known of the clients, but of the data; and the next reading is of other parts.
        let without = ShardFigures::of(4000, &shards, None);
        assert_eq!(of(&now, &without)("keys"), 40.0);
        for name in ["clients", "latency_us", "ops"] {
            assert!(of(&now, &without)(name).is_nan(), "{name}");
        }
    }
}
