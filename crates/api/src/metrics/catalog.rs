//! Owns the list of metrics: name, unit, meaning, and how each is computed from two readings. History, the console's
//! charts and the alerts read this list. Never knows a file or a request.

use super::reading::{NodeSpan, Span, quotient};
use crate::condition;
use serde::Serialize;
use utoipa::ToSchema;

/// A metric of a database, or of the node if `S` is [`NodeSpan`].
pub struct Metric<S> {
    pub name: &'static str,
    pub unit: Unit,
    pub group: &'static str,
    pub label: &'static str,
    pub description: &'static str,
    /// How several values become one when a graph has fewer points.
    pub fold: Fold,
    pub of: S,
}

type OfDatabase = Metric<fn(&Span<'_>) -> f64>;
type OfNode = Metric<fn(&NodeSpan<'_>) -> f64>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    Mean,
    /// A peak must not vanish in a long range.
    Max,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub enum Unit {
    #[serde(rename = "ops/s")]
    OpsPerS,
    #[serde(rename = "us")]
    Us,
    /// A share of a whole, 0 to 1.
    #[serde(rename = "ratio")]
    Ratio,
    /// How many times as much.
    #[serde(rename = "factor")]
    Factor,
    /// 1 while it is so, otherwise 0.
    #[serde(rename = "state")]
    State,
    #[serde(rename = "bytes")]
    Bytes,
    #[serde(rename = "bytes/s")]
    BytesPerS,
    #[serde(rename = "count")]
    Count,
    #[serde(rename = "percent")]
    Percent,
}

use Fold::{Max, Mean};
use Unit::{Bytes, BytesPerS, Count, Factor, OpsPerS, Percent, Ratio, State, Us};

const fn of_database(
    name: &'static str,
    unit: Unit,
    fold: Fold,
    group: &'static str,
    label: &'static str,
    description: &'static str,
    of: fn(&Span<'_>) -> f64,
) -> OfDatabase {
    Metric { name, unit, group, label, description, fold, of }
}

const fn of_node(
    name: &'static str,
    unit: Unit,
    group: &'static str,
    label: &'static str,
    description: &'static str,
    of: fn(&NodeSpan<'_>) -> f64,
) -> OfNode {
    Metric { name, unit, group, label, description, fold: Mean, of }
}

#[rustfmt::skip]
pub const DATABASE: &[OfDatabase] = &[
    of_database("ops", OpsPerS, Mean, "Throughput", "Operations", "Commands per second.", |span| span.rate(|f| f.commands_read + f.commands_write + f.commands_other)),
    of_database("ops_read", OpsPerS, Mean, "Throughput", "Reads", "Commands per second that read.", |span| span.rate(|f| f.commands_read)),
    of_database("ops_write", OpsPerS, Mean, "Throughput", "Writes", "Commands per second that write.", |span| span.rate(|f| f.commands_write)),
    of_database("ops_other", OpsPerS, Mean, "Throughput", "Others", "Commands per second that neither read nor write data.", |span| span.rate(|f| f.commands_other)),
    of_database("latency_us", Us, Mean, "Latency", "Average", "Time of a command in the server, without the network.", |span| span.all().mean_us()),
    of_database("latency_p50_us", Us, Max, "Latency", "p50", "Half of the commands take no longer.", |span| span.all().percentile_us(50.0)),
    of_database("latency_p99_us", Us, Max, "Latency", "p99", "99 % of the commands take no longer.", |span| span.all().percentile_us(99.0)),
    of_database("latency_p999_us", Us, Max, "Latency", "p99.9", "99.9 % of the commands take no longer.", |span| span.all().percentile_us(99.9)),
    of_database("latency_p9999_us", Us, Max, "Latency", "p99.99", "99.99 % of the commands take no longer.", |span| span.all().percentile_us(99.99)),
    of_database("ram_latency_us", Us, Mean, "Latency", "RAM hits", "Time of a read whose value was in RAM.", |span| span.ram().mean_us()),
    of_database("ram_latency_p99_us", Us, Max, "Latency", "RAM hits, p99", "99 % of the reads from RAM take no longer.", |span| span.ram().percentile_us(99.0)),
    of_database("flash_latency_us", Us, Mean, "Latency", "Flash hits", "Time of a read whose value came from flash.", |span| span.flash().mean_us()),
    of_database("flash_latency_p99_us", Us, Max, "Latency", "Flash hits, p99", "99 % of the reads from flash take no longer.", |span| span.flash().percentile_us(99.0)),
    of_database("hit_ratio", Ratio, Mean, "Hits", "RAM hit ratio", "Of the reads that found a value, the share that found it in RAM.", |span| span.share(|f| f.reads_ram_hit, |f| f.reads_flash_hit)),
    of_database("ram_hits", OpsPerS, Mean, "Hits", "RAM hits", "Reads per second that found their value in RAM.", |span| span.rate(|f| f.reads_ram_hit)),
    of_database("flash_hits", OpsPerS, Mean, "Hits", "Flash hits", "Reads per second whose value came from flash.", |span| span.rate(|f| f.reads_flash_hit)),
    of_database("misses", OpsPerS, Mean, "Hits", "Misses", "Reads per second of keys that do not exist.", |span| span.rate(|f| f.keyspace_misses)),
    of_database("keys", Count, Mean, "Values", "Keys", "Keys of all logical databases.", |span| span.now.figures.store.keys as f64),
    of_database("values_in_ram", Count, Mean, "Values", "Values in RAM", "Keys whose value is in RAM.", |span| span.now.figures.store.values_in_ram as f64),
    of_database("values_in_flash", Count, Mean, "Values", "Values in flash", "Keys whose value is only on flash.", |span| span.now.figures.store.values_in_flash as f64),
    of_database("values_in_ram_ratio", Ratio, Mean, "Values", "Share of values in RAM", "Values in RAM ÷ all values.", |span| quotient(span.now.figures.store.values_in_ram, span.now.figures.store.keys)),
    of_database("used_ram_bytes", Bytes, Mean, "Memory", "Used RAM", "RAM that counts against the RAM limit.", |span| span.now.figures.used_ram_bytes as f64),
    of_database("ram_limit_bytes", Bytes, Mean, "Memory", "RAM limit", "The part of the memory limit that may be RAM; 0: no limit.", |span| span.now.figures.ram_limit_bytes as f64),
    of_database("ram_overhead_bytes", Bytes, Mean, "Memory", "RAM besides values", "Used RAM without keys and values: the index, clients, buffers and a share of the process.", |span| { let store = &span.now.figures.store; store.resident.saturating_sub(store.object_bytes) as f64 }),
    of_database("used_flash_bytes", Bytes, Mean, "Memory", "Used flash", "Flash in segments that are not empty.", |span| span.now.figures.store.flash_used_bytes as f64),
    of_database("live_flash_bytes", Bytes, Mean, "Memory", "Live flash", "Flash that live values take, without dead records that are not collected yet.", |span| span.now.figures.store.flash_live_bytes as f64),
    of_database("flash_limit_bytes", Bytes, Mean, "Memory", "Flash limit", "The part of the memory limit that is flash.", |span| span.now.figures.flash_limit_bytes as f64),
    of_database("files_bytes", Bytes, Mean, "Memory", "Files on flash", "What the flash log and, with persistence, the journal and the checkpoints take of their devices.", |span| span.now.figures.files_bytes as f64),
    of_database("files_limit_bytes", Bytes, Mean, "Memory", "Limit of files on flash", "flash-limit, or what follows from the other limits; 0: none.", |span| span.now.figures.files_limit_bytes as f64),
    of_database("ram_percent", Percent, Max, "Limits", "RAM, of its limit", "Used RAM in percent of the RAM limit. In front of flash, RAM is full on purpose.", |span| known(condition::ram_percent(&span.now.figures))),
    of_database("flash_percent", Percent, Max, "Limits", "Flash, of its limit", "The values on flash in percent of what they may take; at 100 flash is full.", |span| known(condition::flash_percent(&span.now.figures))),
    of_database("files_percent", Percent, Max, "Limits", "Files, of their limit", "All files on flash in percent of their limit.", |span| known(condition::files_percent(&span.now.figures))),
    of_database("index_percent", Percent, Max, "Limits", "Index, of the RAM limit", "The index in percent of the RAM limit. The index never leaves RAM.", |span| known(condition::index_percent(&span.now.figures))),
    of_database("clients_percent", Percent, Max, "Limits", "Clients, of maxclients", "Connections in percent of maxclients.", |span| known(condition::clients_percent(&span.now.figures))),
    of_database("flash_full", State, Max, "Limits", "Flash is full", "1 while flash is full: writes are refused, or keys evicted.", |span| flag(span.now.figures.store.flash_full)),
    of_database("ram_full", State, Max, "Limits", "RAM is full", "1 while RAM is full of what cannot leave it: writes are refused, or keys evicted.", |span| flag(span.now.figures.store.ram_full)),
    of_database("refused", OpsPerS, Max, "Limits", "Refused writes", "Commands per second that got OOM, MISCONF or NOREPLICAS.", |span| span.rate(|f| f.refused_for_room + f.refused_otherwise)),
    of_database("rejected_clients", OpsPerS, Max, "Limits", "Rejected clients", "Connections per second that were refused because of maxclients.", |span| span.rate(|f| f.rejected_connections)),
    of_database("flash_reads", OpsPerS, Mean, "Flash", "Flash reads", "Reads of flash per second.", |span| span.rate(|f| f.store.flash_reads)),
    of_database("flash_writes", OpsPerS, Mean, "Flash", "Flash writes", "Writes to flash per second.", |span| span.rate(|f| f.store.flash_writes)),
    of_database("flash_read_bytes", BytesPerS, Mean, "Flash", "Read from flash", "Bytes read from flash per second.", |span| span.rate(|f| f.store.flash_read_bytes)),
    of_database("flash_write_bytes", BytesPerS, Mean, "Flash", "Written to flash", "Bytes written to flash per second.", |span| span.rate(|f| f.store.flash_write_bytes)),
    of_database("compression_ratio", Factor, Mean, "Flash", "Size on flash", "Stored bytes ÷ raw bytes of all records written since the start; unknown while no value is on flash.", |span| {
        let store = &span.now.figures.store;
        if store.flash_live_bytes == 0 { f64::NAN } else { quotient(store.record_stored_bytes, store.record_bytes) }
    }),
    of_database("write_amplification", Factor, Mean, "Flash", "Write amplification", "Bytes written to flash ÷ bytes that clients wrote, since the start.", |span| quotient(span.now.figures.store.flash_write_bytes, span.now.figures.store.user_bytes)),
    of_database("busy_write_amplification", Factor, Mean, "Flash", "Write amplification under load", "Bytes written to flash ÷ bytes that clients wrote, of the last ten minutes. Unknown unless more than 10 MB a second were written to flash in them: less says little, and wears nothing out.", |span| span.lately.write_amplification()),
    of_database("busy_hit_ratio", Ratio, Mean, "Hits", "RAM hit ratio under load", "The RAM hit ratio of the last ten minutes. Unknown unless more than 1000 reads a second came from flash in them: fewer trouble nobody.", |span| span.lately.hit_ratio()),
    of_database("flash_errors", OpsPerS, Max, "Flash", "Errors of flash", "Reads and writes of flash per second that failed.", |span| span.rate(|f| f.store.read_errors + f.store.write_errors)),
    of_database("checksum_errors", OpsPerS, Max, "Flash", "Damaged pages read", "Reads per second that found a page with a wrong checksum.", |span| span.rate(|f| f.store.checksum_errors)),
    of_database("demotions", OpsPerS, Mean, "Flash", "Demotions", "Values per second that left RAM.", |span| span.rate(|f| f.store.demotions_clean + f.store.demotions_written)),
    of_database("promotions", OpsPerS, Mean, "Flash", "Promotions", "Values per second that came into RAM.", |span| span.rate(|f| f.store.promotions)),
    of_database("flash_fragmentation", Factor, Mean, "Flash", "Fragmentation", "Used flash ÷ live flash.", |span| quotient(span.now.figures.store.flash_used_bytes, span.now.figures.store.flash_live_bytes)),
    of_database("clients", Count, Mean, "Clients", "Clients", "Connections.", |span| span.now.figures.clients as f64),
    of_database("blocked_clients", Count, Mean, "Clients", "Blocked clients", "Clients that wait for a key.", |span| span.now.figures.blocked_clients as f64),
    of_database("net_in_bytes", BytesPerS, Mean, "Clients", "Received", "Bytes received from clients per second.", |span| span.rate(|f| f.net_in_bytes)),
    of_database("net_out_bytes", BytesPerS, Mean, "Clients", "Sent", "Bytes sent to clients per second.", |span| span.rate(|f| f.net_out_bytes)),
    of_database("expired", OpsPerS, Mean, "Events", "Expired", "Keys per second that expired.", |span| span.rate(|f| f.store.expired_keys)),
    of_database("evicted", OpsPerS, Mean, "Events", "Evicted", "Keys per second that were evicted.", |span| span.rate(|f| f.store.evicted_keys)),
    of_database("errors", OpsPerS, Mean, "Events", "Errors", "Error replies per second.", |span| span.rate(|f| f.error_replies)),
    of_database("journal_bytes", BytesPerS, Mean, "Durability", "Journalled", "Bytes appended to the journal per second.", |span| span.rate(|f| f.durability.journal_bytes)),
    of_database("journal_tail_bytes", Bytes, Mean, "Durability", "Journal to replay", "Bytes of the journal behind the checkpoint, which a restart replays.", |span| span.now.figures.durability.tail_bytes as f64),
    of_database("checkpoint_bytes", Bytes, Mean, "Durability", "Checkpoint", "Bytes of the checkpoint.", |span| span.now.figures.durability.checkpoint_bytes as f64),
    of_database("journal_unsynced_bytes", Bytes, Max, "Durability", "Not synced", "Bytes of the journal that are not on the device yet.", |span| span.now.figures.durability.unsynced_bytes as f64),
    of_database("journal_sync_us", Us, Max, "Durability", "Sync", "How long the last sync of the journal took.", |span| span.now.figures.durability.last_sync_us as f64),
    of_database("journal_behind", State, Max, "Durability", "Journal behind", "1 while the journal's device is behind, and writes wait.", |span| flag(span.now.figures.durability.is_behind)),
    of_database("journal_waiting", Ratio, Mean, "Durability", "Writes wait for the journal", "The share of the time in which the journal's ring was nearly full, and writes waited for its device.", |span| span.rate(|f| f.durability.behind_us) / 1e6),
    of_database("journal_failed", State, Max, "Durability", "Journal failed", "1 if the journal cannot be written: writes are refused.", |span| flag(span.now.figures.durability.journal_has_failed)),
    of_database("recovery_us", Us, Max, "Durability", "Restart", "How long a restart would take, as estimated.", |span| span.now.figures.durability.recovery_estimated_ms as f64 * 1000.0),
    of_database("recovery_late", State, Max, "Durability", "Restart takes too long", "1 if a restart would take longer than `recovery-time-target`, or the last one has.", |span| flag(span.now.figures.durability.recovery_is_late)),
    of_database("journal_missing_bytes", Bytes, Max, "Durability", "Room missing for the journal", "Bytes that the journal's file system is short of, for the next checkpoint and the journal up to it.", |span| span.now.figures.durability.journal_missing_bytes as f64),
    of_database("checkpoint_failures", Count, Max, "Durability", "Checkpoints that failed", "Checkpoints that could not be written since the last one.", |span| span.now.figures.durability.checkpoint_failures as f64),
    of_database("rot", Count, Max, "Durability", "Damage found", "Damaged pages, checkpoints, journals and files of backups that were found since the start or CONFIG RESETSTAT.", |span| {
        let durability = &span.now.figures.durability;
        (span.now.figures.store.rotten_pages + durability.damaged_checkpoints + durability.damaged_journals + durability.damaged_backups) as f64
    }),
    of_database("backup_failed", State, Max, "Durability", "Backup failed", "1 if the last backup failed.", |span| flag(span.now.figures.durability.last_backup_failed)),
    of_database("archive_failed", State, Max, "Durability", "Journal not archived", "1 if the journal cannot be copied beside the backups.", |span| flag(span.now.figures.durability.archive_has_failed)),
    of_database("load_failed", State, Max, "Durability", "Dataset not loaded", "1 if the dataset could not be loaded: the database serves nobody.", |span| flag(span.now.figures.durability.load_has_failed)),
    of_database("paused", State, Max, "Clients", "Paused", "1 while the database is paused.", |span| flag(span.now.is_paused)),
    of_database("replicas", Count, Mean, "Replication", "Replicas", "Replicas that are connected.", |span| span.now.figures.replication.replicas.len() as f64),
    of_database("replicas_missing", Count, Max, "Replication", "Replicas missing", "Replicas that writes need (min-replicas-to-write) and that do not keep up.", |span| span.now.figures.replicas_missing as f64),
    of_database("replica_lag_bytes", Bytes, Max, "Replication", "Lag in bytes", "Bytes of the stream that the last of the replicas has not.", |span| span.now.figures.replication.replicas.iter().map(|replica| replica.lag_bytes).max().map_or(f64::NAN, |bytes| bytes as f64)),
    of_database("replica_lag_us", Us, Max, "Replication", "Lag in time", "The age of the first change that the last of the replicas has not.", |span| span.lag_ms_max.map_or(f64::NAN, |ms| ms as f64 * 1000.0)),
    of_database("link_down", State, Max, "Replication", "No link to the primary", "1 while a replica has no link to its primary, and does not receive its dataset either.", |span| {
        span.now.figures.replication.primary.as_ref().map_or(f64::NAN, |primary| flag(!primary.is_up && !primary.is_synchronising))
    }),
    of_database("replica_differences", OpsPerS, Max, "Replication", "Differences from the primary", "Comparisons per second that have found that the dataset is not the primary's.", |span| span.rate(|f| f.replication.checks.differences)),
    of_database("replicated_bytes", BytesPerS, Mean, "Replication", "Sent to replicas", "Bytes sent to replicas per second.", |span| span.rate(|f| f.replication.sent_bytes)),
    of_database("followed_bytes", BytesPerS, Mean, "Replication", "Received from the primary", "Bytes received from the primary per second.", |span| span.rate(|f| f.replication.received_bytes)),
];

#[rustfmt::skip]
pub const NODE: &[OfNode] = &[
    of_node("cpu_percent", Percent, "Process", "Processor", "Processor time of the process; 100 is one core.", |span| span.cpu_percent(|f| f.cpu_user_us + f.cpu_system_us)),
    of_node("cpu_user_percent", Percent, "Process", "Processor, user", "Processor time in the program itself.", |span| span.cpu_percent(|f| f.cpu_user_us)),
    of_node("cpu_system_percent", Percent, "Process", "Processor, system", "Processor time in the kernel.", |span| span.cpu_percent(|f| f.cpu_system_us)),
    of_node("resident_bytes", Bytes, "Process", "Resident size", "RAM of the process.", |span| span.now.figures.resident_bytes as f64),
    of_node("machine_cpu_percent", Percent, "Machine", "Processors", "Use of all processors of the machine, by every process; 100 is all of them.", |span| span.machine(|before, now| now.cpu.busy_percent(&before.cpu))),
    of_node("machine_io_wait_percent", Percent, "Machine", "Processors that wait for disks", "Time in which a processor had nothing to do but wait for a disk, in percent of all processors.", |span| span.machine(|before, now| now.cpu.wait_percent(&before.cpu))),
    of_node("machine_ram_free_bytes", Bytes, "Machine", "Available RAM", "RAM that processes can still have without swapping.", |span| span.now.figures.system_ram_free_bytes as f64),
    of_node("machine_ram_free_percent", Percent, "Machine", "Available RAM, of all", "Available RAM in percent of the machine's RAM.", |span| 100.0 * quotient(span.now.figures.system_ram_free_bytes, span.now.figures.system_ram_bytes)),
    of_node("disk_free_percent", Percent, "Machine", "Free on the fullest disk", "Free space in percent, of the fullest of the file systems that the node uses.", |span| span.now.machine.least_free_percent()),
    of_node("disk_latency_us", Us, "Machine", "Latency of the slowest disk", "How long a read or a write of the slowest disk that the node uses took on average, with its wait in the queue.", |span| span.machine(|before, now| now.slowest_us(before))),
    of_node("disk_busy_percent", Percent, "Machine", "Busy time of the busiest disk", "Share of the time in which the busiest disk that the node uses had something to do. An NVMe device can take more even at 100.", |span| span.machine(|before, now| now.busiest_percent(before))),
    of_node("ops", OpsPerS, "Databases together", "Operations", "Commands per second of all databases.", |span| span.sum("ops")),
    of_node("clients", Count, "Databases together", "Clients", "Connections to all databases.", |span| span.sum("clients")),
    of_node("net_in_bytes", BytesPerS, "Databases together", "Received", "Bytes received from clients per second.", |span| span.sum("net_in_bytes")),
    of_node("net_out_bytes", BytesPerS, "Databases together", "Sent", "Bytes sent to clients per second.", |span| span.sum("net_out_bytes")),
    of_node("flash_reads", OpsPerS, "Databases together", "Flash reads", "Reads of flash per second.", |span| span.sum("flash_reads")),
    of_node("flash_writes", OpsPerS, "Databases together", "Flash writes", "Writes to flash per second.", |span| span.sum("flash_writes")),
    of_node("flash_read_bytes", BytesPerS, "Databases together", "Read from flash", "Bytes read from flash per second.", |span| span.sum("flash_read_bytes")),
    of_node("flash_write_bytes", BytesPerS, "Databases together", "Written to flash", "Bytes written to flash per second.", |span| span.sum("flash_write_bytes")),
    of_node("used_ram_bytes", Bytes, "Databases together", "Used RAM", "RAM of all databases.", |span| span.sum("used_ram_bytes")),
    of_node("used_flash_bytes", Bytes, "Databases together", "Used flash", "Flash of all databases.", |span| span.sum("used_flash_bytes")),
];

pub fn database_values(span: &Span<'_>) -> Vec<f64> {
    DATABASE.iter().map(|metric| finite((metric.of)(span))).collect()
}

pub fn node_values(span: &NodeSpan<'_>) -> Vec<f64> {
    NODE.iter().map(|metric| finite((metric.of)(span))).collect()
}

fn flag(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

fn known(value: Option<f64>) -> f64 {
    value.unwrap_or(f64::NAN)
}

fn finite(value: f64) -> f64 {
    if value.is_finite() { value } else { f64::NAN }
}

#[derive(Debug, Serialize, ToSchema)]
pub struct MetricInfo {
    pub name: &'static str,
    pub unit: Unit,
    pub group: &'static str,
    pub label: &'static str,
    pub description: &'static str,
    /// database or node
    pub scope: &'static str,
}

pub fn cards() -> Vec<MetricInfo> {
    fn card<S>(metric: &Metric<S>, scope: &'static str) -> MetricInfo {
        let Metric { name, unit, group, label, description, .. } = *metric;
        MetricInfo { name, unit, group, label, description, scope }
    }
    let databases = DATABASE.iter().map(|metric| card(metric, "database"));
    databases.chain(NODE.iter().map(|metric| card(metric, "node"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_in_their_scope_and_everything_is_described() {
        let mut seen = HashSet::new();
        for card in cards() {
            assert!(seen.insert((card.scope, card.name)), "{} twice", card.name);
            assert!(!card.label.is_empty() && card.description.ends_with('.'), "{}", card.name);
        }
    }

    #[test]
    fn the_node_has_the_sums_of_its_databases() {
        for metric in NODE.iter().filter(|metric| metric.group == "Databases together") {
            assert!(DATABASE.iter().any(|other| other.name == metric.name), "{}", metric.name);
        }
    }
}
