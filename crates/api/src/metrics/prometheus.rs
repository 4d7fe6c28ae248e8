//! Owns /metrics: Prometheus's text format 0.0.4, with redis_exporter's names for what Redis has, and `flintkv_` for the rest. The figures
//! are the rows of `node::metrics`; what has labels beside the database is code here. Never asks a worker: a scrape reads counters.

use super::cluster::cluster;
use super::watch::Watch;
use crate::condition::{Facts, Word};
use agent::Agent;
use node::metrics::{Kind, Machine, Reading, Row, Scope, places};
use node::{Database, KeyCounts, Latencies, Node, PrimaryFigures, ReplicaFigures, Summary};
use std::fmt::{Display, Write};
use std::sync::Arc;

pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Upper bounds of the latencies' buckets: powers of two from 1 µs to 4 s.
const BUCKETS: u32 = 23;

/// A page of families, each with its samples.
#[derive(Default)]
pub(super) struct Page(String);

impl Page {
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Its name, if it is in /metrics.
    fn family_of(&mut self, row: &Row) -> Option<&'static str> {
        let name = row.prometheus?;
        self.family(name, if row.kind == Kind::Counter { COUNTER } else { GAUGE }, row.help);
        Some(name)
    }

    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (nth, (label, text)) in labels.iter().enumerate() {
            self.0.push(if nth == 0 { '{' } else { ',' });
            let _ = write!(self.0, "{label}=\"");
            for c in text.chars() {
                match c {
                    '\\' | '"' => self.0.extend(['\\', c]),
                    '\n' => self.0.push_str("\\n"),
                    c => self.0.push(c),
                }
            }
            self.0.push('"');
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }
}

pub(super) const GAUGE: &str = "gauge";
const COUNTER: &str = "counter";

type OfReplica = fn(&ReplicaFigures) -> u64;
#[rustfmt::skip]
const REPLICAS: &[(&str, &str, OfReplica)] = &[
    ("redis_connected_slave_offset_bytes", "Bytes of the stream that a replica has received.", |replica| replica.offset),
    ("redis_connected_slave_lag_seconds", "Seconds since a replica last acknowledged what it has received.", |replica| replica.silent_ms / 1000),
    ("flintkv_replica_lag_bytes", "Bytes of the stream that a replica has not received.", |replica| replica.lag_bytes),
];

type OfPrimary = fn(&PrimaryFigures) -> u64;
#[rustfmt::skip]
const PRIMARIES: &[(&str, &str, OfPrimary)] = &[
    ("redis_master_link_up", "1 if the replica is connected with its primary.", |primary| primary.is_up.into()),
    ("redis_master_last_io_seconds_ago", "Seconds since the last byte of the primary.", |primary| primary.silent_ms.unwrap_or(0) / 1000),
    ("redis_master_sync_in_progress", "1 while the primary's dataset is copied.", |primary| primary.is_synchronising.into()),
];

type OfLatencies = fn(&Latencies) -> &Summary;
/// By tier; without a name, the total.
type ByTier = &'static [(&'static str, OfLatencies)];
const LATENCIES: &[(&str, &str, ByTier)] = &[
    ("flintkv_command_duration_seconds", "Time of a command in the server, without the network.", &[("", |l| &l.all)]),
    (
        "flintkv_tier_read_duration_seconds",
        "Time of a read, by the tier of its value.",
        &[("ram", |l| &l.read_ram), ("flash", |l| &l.read_flash)],
    ),
];

/// A database, or a copy of a shard, with its figures.
struct Source {
    reading: Reading,
    database: Arc<Database>,
    /// This node's name in its cluster. Databases that are the node's own have none.
    node: Option<Arc<str>>,
}

impl Source {
    /// What a series is of. Copies of shards are named DATABASE.SHARD, and no database has a dot in its name.
    fn labels(&self) -> Vec<(&str, &str)> {
        let mut labels = match self.database.name().rsplit_once('.') {
            Some((name, shard)) => vec![("database", name), ("shard", shard)],
            None => vec![("database", self.database.name())],
        };
        labels.extend(self.node.as_deref().map(|node| ("node", node)));
        labels
    }
}

/// The whole answer. `alerts_firing`: how many alerts fire now.
pub fn page(node: &Node, agent: Option<&Agent>, watch: &Watch, alerts_firing: u64, now_ms: u64) -> String {
    let mut page = Page(String::with_capacity(64 << 10));
    let status = agent.and_then(|agent| agent.status().ok());
    let name: Option<Arc<str>> = status.as_ref().map(|status| status.member.name.as_str().into());
    let source = |database: Arc<Database>, is_of_cluster| Source {
        reading: Reading::of(&database, now_ms),
        database,
        node: name.clone().filter(|_| is_of_cluster),
    };
    let of_databases = node.databases().into_iter().map(|database| {
        let is_of_cluster = database.is_of_cluster();
        source(database, is_of_cluster)
    });
    let all: Vec<Source> = of_databases.chain(node.copies().into_iter().map(|copy| source(copy, true))).collect();

    for row in Scope::Database.rows() {
        let Some(name) = page.family_of(row) else { continue };
        for source in &all {
            if let Some(value) = row.of_figures(&source.reading.figures) {
                page.sample(name, &source.labels(), value);
            }
        }
    }
    conditions(&mut page, watch, &all);
    replication(&mut page, watch, &all, now_ms);
    type Count = fn(&KeyCounts) -> u64;
    let of_keyspaces: [(&str, &str, Count); 2] = [
        ("redis_db_keys", "Keys of a logical database.", |counts| counts.keys),
        ("redis_db_keys_expiring", "Keys of a logical database that expire.", |counts| counts.expires),
    ];
    for (name, help, of) in of_keyspaces {
        page.family(name, GAUGE, help);
        for source in &all {
            let by_database = source.reading.figures.store.by_database.iter().enumerate();
            for (db, counts) in by_database.filter(|(_, counts)| counts.keys > 0) {
                page.sample(name, &[&source.labels()[..], &[("db", &format!("db{db}"))]].concat(), of(counts));
            }
        }
    }
    for (name, help, series) in LATENCIES {
        page.family(name, "histogram", help);
        for source in &all {
            for (tier, of) in *series {
                let mut labels = source.labels();
                if !tier.is_empty() {
                    labels.push(("tier", tier));
                }
                histogram(&mut page, name, &labels, of(&source.reading.latencies));
            }
        }
    }
    node_metrics(&mut page, node, alerts_firing);
    if let (Some(status), Some(seen)) = (&status, agent.and_then(|agent| agent.seen().ok())) {
        cluster(&mut page, status, &seen, node.config().snapshot().etcd_quota_bytes);
    }
    page.0
}

/// As redis_exporter and Prometheus have sets of states: one sample for each word, 1 where it applies.
fn conditions(page: &mut Page, watch: &Watch, all: &[Source]) {
    let name = "flintkv_database_condition";
    page.family(name, GAUGE, "1 for each word that says what a database is or does.");
    for source in all {
        let Source { reading, database, .. } = source;
        let refuses = watch.now(database.name()).get("refused").copied().flatten().is_some_and(|rate| rate > 0.0);
        let figures = watch.judged(database, reading.figures.clone());
        let found = Facts::of(database, &figures, refuses).conditions();
        for word in Word::WORDS {
            let applies = found.iter().any(|condition| condition.name.as_str() == *word);
            page.sample(name, &[&source.labels()[..], &[("condition", word)]].concat(), u8::from(applies));
        }
    }
}

fn replication(page: &mut Page, watch: &Watch, all: &[Source], now_ms: u64) {
    page.family("flintkv_replica_lag_seconds", GAUGE, "The age of the first change that a replica has not received.");
    for Source { reading, database, .. } in all {
        for replica in &reading.figures.replication.replicas {
            let (ip, port) = (&*replica.ip, &*replica.port.to_string());
            let labels = [("database", database.name()), ("slave_ip", ip), ("slave_port", port)];
            let lag_ms = watch.lag_ms(database.name(), replica.offset, now_ms);
            page.sample("flintkv_replica_lag_seconds", &labels, lag_ms as f64 / 1000.0);
        }
    }
    for (name, help, of) in REPLICAS {
        page.family(name, GAUGE, help);
        for Source { reading, database, .. } in all {
            for replica in &reading.figures.replication.replicas {
                let (ip, port) = (&*replica.ip, &*replica.port.to_string());
                let labels = [
                    ("database", database.name()),
                    ("slave_ip", ip),
                    ("slave_port", port),
                    ("slave_state", replica.state),
                ];
                page.sample(name, &labels, of(replica));
            }
        }
    }
    for (name, help, of) in PRIMARIES {
        page.family(name, GAUGE, help);
        for Source { reading, database, .. } in all {
            if let Some(primary) = &reading.figures.replication.primary {
                let (host, port) = (&*primary.host, &*primary.port.to_string());
                let labels = [("database", database.name()), ("master_host", host), ("master_port", port)];
                page.sample(name, &labels, of(primary));
            }
        }
    }
}

fn histogram(page: &mut Page, name: &str, labels: &[(&str, &str)], values: &Summary) {
    let steps = values.cumulative_us();
    let bucket = format!("{name}_bucket");
    let mut seen = 0;
    let mut steps = steps.into_iter().peekable();
    for power in 0..BUCKETS {
        while let Some((_, count)) = steps.next_if(|&(bound_us, _)| bound_us <= 1 << power) {
            seen = count;
        }
        let bound = (f64::from(1u32 << power) / 1e6).to_string();
        page.sample(&bucket, &[labels, &[("le", &bound)]].concat(), seen);
    }
    page.sample(&bucket, &[labels, &[("le", "+Inf")]].concat(), values.count);
    page.sample(&format!("{name}_sum"), labels, values.sum_nanos() as f64 / 1e9);
    page.sample(&format!("{name}_count"), labels, values.count);
}

fn node_metrics(page: &mut Page, node: &Node, alerts_firing: u64) {
    let figures = node.figures();
    let info = [("version", node.version()), ("redis_version", node::REDIS_VERSION), ("run_id", node.run_id())];
    page.family("flintkv_node_info", GAUGE, "What runs.");
    page.sample("flintkv_node_info", &info, 1);
    let seconds = |us: u64| us as f64 / 1e6;
    page.family("flintkv_node_cpu_seconds_total", COUNTER, "Processor time of the process.");
    page.sample("flintkv_node_cpu_seconds_total", &[("mode", "user")], seconds(figures.cpu_user_us));
    page.sample("flintkv_node_cpu_seconds_total", &[("mode", "system")], seconds(figures.cpu_system_us));
    for row in Scope::Node.rows() {
        let Some(name) = page.family_of(row) else { continue };
        if let Some(value) = row.of_node(&figures) {
            page.sample(name, &[], value);
        }
    }
    page.family("flintkv_node_alerts_firing", GAUGE, "Alerts that fire.");
    page.sample("flintkv_node_alerts_firing", &[], alerts_firing);
    machine_metrics(page, &Machine::look(&places(node)));
}

fn machine_metrics(page: &mut Page, machine: &Machine) {
    let (busy, all) = machine.cpu.seconds();
    page.family(
        "flintkv_machine_cpu_busy_seconds_total",
        COUNTER,
        "Time in which the machine's processors did something.",
    );
    page.sample("flintkv_machine_cpu_busy_seconds_total", &[], busy);
    page.family("flintkv_machine_cpu_seconds_total", COUNTER, "Time of the machine's processors, in all states.");
    page.sample("flintkv_machine_cpu_seconds_total", &[], all);
    page.family("flintkv_disk_bytes", GAUGE, "Size of a file system that the node uses.");
    for (disk, bytes, ..) in machine.counters() {
        page.sample("flintkv_disk_bytes", &[("disk", disk)], bytes);
    }
    page.family("flintkv_disk_free_bytes", GAUGE, "What the node may still take of it.");
    for (disk, _, free_bytes, _) in machine.counters() {
        page.sample("flintkv_disk_free_bytes", &[("disk", disk)], free_bytes);
    }
    page.family(
        "flintkv_disk_operations_total",
        COUNTER,
        "Reads and writes of a disk that the node uses, by every process.",
    );
    for (disk, _, _, io) in machine.counters() {
        io.iter()
            .for_each(|(operations, _)| page.sample("flintkv_disk_operations_total", &[("disk", disk)], *operations));
    }
    page.family(
        "flintkv_disk_operation_seconds_total",
        COUNTER,
        "Time that these reads and writes took together, with their wait.",
    );
    for (disk, _, _, io) in machine.counters() {
        io.iter().for_each(|(_, took_ms)| {
            page.sample("flintkv_disk_operation_seconds_total", &[("disk", disk)], *took_ms as f64 / 1000.0);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_quoted() {
        let mut page = Page::default();
        page.sample("a", &[("x", "q\"u\\o\nte"), ("y", "")], 1.5);
        page.sample("b", &[], 2);
        assert_eq!(page.0, "a{x=\"q\\\"u\\\\o\\nte\",y=\"\"} 1.5\nb 2\n");
    }
}
