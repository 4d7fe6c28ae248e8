//! Owns the table of figures. A section of INFO is a list of rows, in INFO's order; rows that INFO does not show stand beside the rows
//! that they belong to. Never knows how a figure is counted.

use super::info::{self, Facts, Text, Value, kilobytes, one_line, ratio, seconds, seconds_ago, two_digits};
use super::reading::{flag, percent, quotient};
use super::{Chart, Figures, Fold, Info, Kind, Merge, NodeFigures, NodeSpan, Read, Row, ShardFigures, Span, Unit};
use crate::database::Rate;
use crate::memory::system_bytes;
use Fold::{Mean, Peak};
use Info::{As, Human, Percent as Perc, Plain, Ratio as Quotient, Status};
use Merge::{Derived, Max, Min, Same, Sum};
use Unit::{Bytes, BytesPerS, Count, Factor, OpsPerS, Percent, Ratio, Seconds, State, Timestamp, Us};
use commands::host::{REDIS_VERSION, Space};
use engine::ProcessControl;
use std::sync::atomic::Ordering::Relaxed;
use store::counters::Counter;

pub(super) struct Section {
    pub name: &'static str,
    /// Shown only for `all` and `everything`, or by name.
    pub is_asked: bool,
    /// The figures that its rows read, beside those that are always gathered.
    pub needs: u8,
    pub rows: &'static [Row],
}

const fn section(name: &'static str, needs: u8, rows: &'static [Row]) -> Section {
    Section { name, is_asked: false, needs, rows }
}

const fn asked(name: &'static str, rows: &'static [Row]) -> Section {
    Section { name, is_asked: true, needs: 0, rows }
}

pub(super) const SECTIONS: &[Section] = &[
    section("Server", 0, SERVER),
    section("Clients", Figures::CLIENTS, CLIENTS),
    section("Memory", Figures::STORE | Figures::CLIENTS | Figures::PROCESS, MEMORY),
    section("Persistence", Figures::DURABILITY, PERSISTENCE),
    section("Stats", Figures::STORE | Figures::REPLICATION, STATS),
    section("Tiering", Figures::STORE, TIERING),
    section("Replication", Figures::REPLICATION, REPLICATION),
    section("CPU", 0, &[lines(info::cpu)]),
    section("Modules", 0, &[]),
    asked("Commandstats", &[lines(info::command_stats)]),
    section("Errorstats", 0, &[lines(info::error_stats)]),
    asked("Latencystats", &[lines(info::latency_stats)]),
    section(
        "Cluster",
        0,
        &[
            fixed("cluster_enabled", "0"),
            // Of the copy of a shard: the revision of the functions that it has.
            line("functions_revision", Min, |x| {
                Some(x.database.functions_revision()).filter(|revision| *revision >= 0).into()
            }),
        ],
    ),
    section("Keyspace", Figures::STORE, &[lines(info::keyspace)]),
];

const fn row(name: &'static str, kind: Kind, unit: Unit, merge: Merge, help: &'static str, read: Read) -> Row {
    Row { name, kind, unit, help, merge, read, info: None, when: None, prometheus: None, chart: None }
}

const fn counter(name: &'static str, unit: Unit, help: &'static str, read: fn(&Figures) -> u64) -> Row {
    row(name, Kind::Counter, unit, Sum, help, Read::Number(read))
}

const fn gauge(name: &'static str, unit: Unit, merge: Merge, help: &'static str, read: fn(&Figures) -> u64) -> Row {
    row(name, Kind::Gauge, unit, merge, help, Read::Number(read))
}

const fn state(name: &'static str, merge: Merge, help: &'static str, read: fn(&Figures) -> bool) -> Row {
    row(name, Kind::Gauge, State, merge, help, Read::State(read))
}

const fn real(name: &'static str, unit: Unit, merge: Merge, help: &'static str, read: fn(&Figures) -> f64) -> Row {
    row(name, Kind::Gauge, unit, merge, help, Read::Real(read))
}

/// Of a database of a cluster.
fn of_shards(figures: &Figures, of: fn(&ShardFigures) -> u64) -> f64 {
    figures.shards.as_ref().map_or(f64::NAN, |shards| of(shards) as f64)
}

/// Only INFO shows it.
const fn line(name: &'static str, merge: Merge, read: fn(&Facts<'_>) -> Value) -> Row {
    row(name, Kind::Gauge, Count, merge, "", Read::Line(read)).info(Plain)
}

/// Redis has it, and FlintKV has nothing of the kind, or always the same.
const fn fixed(name: &'static str, value: &'static str) -> Row {
    row(name, Kind::Gauge, Count, Same, "", Read::Fixed(value)).info(Plain)
}

const fn lines(write: fn(&Facts<'_>, &mut Text)) -> Row {
    row("", Kind::Gauge, Count, Derived, "", Read::Lines(write)).info(Plain)
}

/// Only a chart shows it.
const fn span(name: &'static str, unit: Unit, read: fn(&Span<'_>) -> f64) -> Row {
    row(name, Kind::Gauge, unit, Derived, "", Read::Span(read))
}

const fn node(name: &'static str, unit: Unit, help: &'static str, read: fn(&NodeFigures) -> u64) -> Row {
    row(name, Kind::Gauge, unit, Same, help, Read::Node(read))
}

const fn node_span(name: &'static str, unit: Unit, read: fn(&NodeSpan<'_>) -> f64) -> Row {
    row(name, Kind::Gauge, unit, Same, "", Read::NodeSpan(read))
}

impl Row {
    const fn info(mut self, info: Info) -> Row {
        self.info = Some(info);
        self
    }

    const fn when(mut self, is_shown: fn(&Facts<'_>) -> bool) -> Row {
        self.when = Some(is_shown);
        self
    }

    const fn prometheus(mut self, name: &'static str) -> Row {
        self.prometheus = Some(name);
        self
    }

    const fn chart(
        mut self,
        place: u16,
        fold: Fold,
        name: &'static str,
        group: &'static str,
        label: &'static str,
        description: &'static str,
    ) -> Row {
        self.chart = Some(Chart { place, name, group, label, description, fold });
        self
    }
}

fn loading(x: &Facts<'_>) -> bool {
    x.figures.durability.is_loading
}

fn journalled(x: &Facts<'_>) -> bool {
    x.figures.durability.is_kept
}

fn follows(x: &Facts<'_>) -> bool {
    x.primary().is_some()
}

// In a row, `f` is the figures of the database, `x` what INFO shows beside them, and `n` the figures of the node. A chart's number is its
// place among the charts.

#[rustfmt::skip]
pub(super) const SERVER: &[Row] = &[
    line("redis_version", Same, |_| REDIS_VERSION.into()),
    line("flintkv_version", Same, |_| env!("CARGO_PKG_VERSION").into()),
    fixed("redis_git_sha1", "00000000"),
    fixed("redis_git_dirty", "0"),
    fixed("redis_build_id", "0"),
    fixed("redis_mode", "standalone"),
    line("os", Same, |_| info::system().into()),
    line("arch_bits", Same, |_| usize::BITS.into()),
    fixed("monotonic_clock", "quanta"),
    fixed("multiplexing_api", "epoll"),
    fixed("atomicvar_api", "rust-atomic"),
    line("process_id", Same, |_| std::process::id().into()),
    line("process_supervised", Same, |_| crate::supervise::manager().into()),
    line("run_id", Same, |x| x.database.run_id.as_str().into()),
    line("tcp_port", Same, |x| x.config.port.into()),
    line("server_time_usec", Same, |x| (x.now_ms * 1000).into()),
    state("redis_up", Min, "1: the database serves clients.", |_| true).prometheus("redis_up"),
    gauge("uptime_in_seconds", Seconds, Min, "Seconds since the start of the database.", |f| f.uptime_s).info(Plain).prometheus("redis_uptime_in_seconds"),
    line("uptime_in_days", Min, |x| (x.figures.uptime_s / 86_400).into()),
    line("hz", Same, |x| x.config.hz.into()),
    line("configured_hz", Same, |x| x.config.hz.into()),
    line("lru_clock", Same, |x| ((x.now_ms / 1000) & 0xff_ffff).into()),
    line("executable", Same, |_| info::executable().into()),
    line("config_file", Same, |x| x.database.hub.config.file().map_or(String::new(), |path| path.display().to_string()).into()),
    line("io_threads_active", Max, |x| (x.database.hub.worker_handles.len() > 1).into()),
    line("io_threads", Sum, |x| x.database.hub.worker_handles.len().into()),
    line("shutdown_in_milliseconds", Same, |x| x.database.ending.left_ms(x.now_ms).into()),
    state("paused", Max, "1 while the database is paused by its operator.", |f| f.is_paused).prometheus("flintkv_database_paused").chart(750, Peak, "paused", "Clients", "Paused", "1 while the database is paused."),
];

#[rustfmt::skip]
pub(super) const CLIENTS: &[Row] = &[
    // Without replicas, as Redis counts.
    gauge("connected_clients", Count, Sum, "Connections.", |f| f.clients).info(As(|x| (x.figures.clients.saturating_sub(x.database.hub.dataset.links.all().len() as u64)).into())).prometheus("redis_connected_clients").chart(520, Mean, "clients", "Clients", "Clients", ""),
    fixed("cluster_connections", "0"),
    gauge("maxclients", Count, Same, "The most connections: maxclients.", |f| f.clients_max).info(As(|x| (x.database.clients_max() as u64).into())).prometheus("redis_config_maxclients"),
    gauge("client_recent_max_input_buffer", Bytes, Max, "The longest query buffer.", |f| f.client_query_bytes_max).info(Plain),
    gauge("client_recent_max_output_buffer", Bytes, Max, "The longest output buffer.", |f| f.client_output_bytes_max).info(Plain),
    gauge("blocked_clients", Count, Sum, "Clients that wait for a key.", |f| f.blocked_clients).info(Plain).prometheus("redis_blocked_clients").chart(530, Mean, "blocked_clients", "Clients", "Blocked clients", ""),
    line("tracking_clients", Sum, |x| x.database.hub.tracking.counts().clients.into()),
    gauge("pubsub_clients", Count, Sum, "Connections that listen to channels.", |f| f.clients_listening).info(Plain),
    gauge("clients_waiting_for_memory", Count, Sum, "Clients that wait because clients' memory is used up.", |f| f.clients_waiting_for_memory).info(Plain).prometheus("flintkv_clients_waiting_for_memory"),
    fixed("clients_in_timeout_table", "0"),
    line("total_blocking_keys", Sum, |x| x.database.shard.store.waited_for().0.into()),
    line("total_blocking_keys_on_nokey", Sum, |x| x.database.shard.store.waited_for().1.into()),
    real("clients_percent", Percent, Derived, "Connections ÷ maxclients.", |f| f.clients_percent().unwrap_or(f64::NAN)).prometheus("flintkv_clients_used_ratio").chart(340, Peak, "clients_percent", "Limits", "Clients, of maxclients", "Connections in percent of maxclients."),
];

#[rustfmt::skip]
pub(super) const MEMORY: &[Row] = &[
    line("used_memory", Sum, |x| x.used_bytes().into()).info(Human),
    gauge("used_memory_rss", Bytes, Sum, "RAM that counts against the RAM limit.", |f| f.used_ram_bytes).info(Human).prometheus("redis_memory_used_bytes").chart(220, Mean, "used_ram_bytes", "Memory", "Used RAM", ""),
    line("used_memory_peak", Sum, |x| x.peak_bytes().into()).info(Human),
    line("used_memory_peak_perc", Derived, |x| format!("{:.2}%", 100.0 * x.used_bytes() as f64 / x.peak_bytes().max(1) as f64).into()),
    line("used_memory_overhead", Sum, |x| x.used_bytes().saturating_sub(x.figures.store.object_bytes).into()),
    line("used_memory_startup", Sum, |x| x.database.memory_startup_bytes.load(Relaxed).into()),
    gauge("used_memory_dataset", Bytes, Sum, "Objects in RAM.", |f| f.store.object_bytes).info(Plain).prometheus("redis_memory_used_dataset_bytes"),
    line("used_memory_dataset_perc", Derived, |x| info::dataset_percent(x).into()),
    line("allocator_allocated", Sum, |x| x.allocator().allocated.into()),
    line("allocator_active", Sum, |x| x.allocator().active.into()),
    line("allocator_resident", Sum, |x| x.allocator().resident.into()),
    line("total_system_memory", Same, |_| system_bytes("MemTotal").into()).info(Human),
    line("used_memory_vm_eval", Sum, |x| x.database.hub.scripts.interpreter_bytes().into()),
    line("used_memory_lua", Sum, |x| x.database.hub.scripts.interpreter_bytes().into()).info(Human),
    line("used_memory_scripts_eval", Sum, |x| x.database.hub.scripts.bytes().into()),
    line("number_of_cached_scripts", Max, |x| x.database.hub.scripts.count().into()),
    line("number_of_functions", Same, |x| x.database.hub.scripts.libraries.read().function_count().into()),
    line("number_of_libraries", Same, |x| x.database.hub.scripts.libraries.read().all().len().into()),
    line("used_memory_vm_total", Sum, |x| x.database.hub.scripts.interpreter_bytes().into()).info(Human),
    line("used_memory_scripts", Sum, |x| (x.database.hub.scripts.interpreter_bytes() + x.database.hub.scripts.bytes() as u64).into()).info(Human),
    gauge("maxmemory", Bytes, Sum, "RAM limit; 0: no limit.", |f| f.ram_limit_bytes).info(Human).prometheus("redis_memory_max_bytes").chart(230, Mean, "ram_limit_bytes", "Memory", "RAM limit", "The part of the memory limit that may be RAM; 0: no limit."),
    line("maxmemory_policy", Same, |x| x.config.maxmemory_policy.as_str().into()),
    line("allocator_frag_ratio", Derived, |x| ratio(x.allocator().active, x.allocator().allocated)),
    line("allocator_frag_bytes", Sum, |x| x.allocator().active.saturating_sub(x.allocator().allocated).into()),
    line("allocator_rss_ratio", Derived, |x| ratio(x.allocator().resident, x.allocator().active)),
    line("allocator_rss_bytes", Sum, |x| x.allocator().resident.saturating_sub(x.allocator().active).into()),
    line("rss_overhead_ratio", Derived, |x| ratio(x.figures.used_ram_bytes, x.held_bytes())),
    line("rss_overhead_bytes", Sum, |x| (x.figures.used_ram_bytes as i64 - x.held_bytes() as i64).into()),
    line("mem_fragmentation_ratio", Derived, |x| ratio(x.figures.used_ram_bytes, x.used_bytes())),
    line("mem_fragmentation_bytes", Sum, |x| (x.figures.used_ram_bytes as i64 - x.used_bytes() as i64).into()),
    fixed("mem_not_counted_for_evict", "0"),
    line("mem_replication_backlog", Sum, |x| x.database.hub.dataset.journaling.stream.window_bytes().into()),
    line("mem_total_replication_buffers", Sum, |x| info::backlog_in_ram(x).into()),
    fixed("mem_clients_slaves", "0"),
    gauge("mem_clients_normal", Bytes, Sum, "RAM of all connections.", |f| f.clients_bytes).info(Plain),
    gauge("mem_clients_charged", Bytes, Sum, "RAM for what clients request: replies, queries, transactions, messages.", |f| f.client_memory_bytes).info(Plain).prometheus("flintkv_client_memory_bytes"),
    gauge("mem_clients_charged_max", Bytes, Sum, "The most RAM that clients' requests may use at once now; 0: no limit.", |f| f.client_memory_max_bytes).info(Plain).prometheus("flintkv_client_memory_max_bytes"),
    fixed("mem_cluster_links", "0"),
    fixed("mem_aof_buffer", "0"),
    fixed("mem_allocator", "arena+jemalloc"),
    fixed("active_defrag_running", "0"),
    fixed("lazyfree_pending_objects", "0"),
    counter("lazyfreed_objects", Count, "Values that were freed in the background: by UNLINK, FLUSHALL ASYNC and similar commands.", |f| f.store[Counter::LazyFreed]).info(Plain),
    real("ram_percent", Percent, Derived, "Used RAM ÷ RAM limit.", |f| f.ram_percent().unwrap_or(f64::NAN)).prometheus("flintkv_ram_used_ratio").chart(300, Peak, "ram_percent", "Limits", "RAM, of its limit", "Used RAM in percent of the RAM limit. In front of flash, RAM is full on purpose."),
    real("index_percent", Percent, Derived, "RAM of the index ÷ RAM limit.", |f| f.index_percent().unwrap_or(f64::NAN)).prometheus("flintkv_index_ratio").chart(330, Peak, "index_percent", "Limits", "Index, of the RAM limit", "The index in percent of the RAM limit. The index never leaves RAM."),
];

#[rustfmt::skip]
pub(super) const PERSISTENCE: &[Row] = &[
    // Clients are served when this is 0, not a moment later.
    state("loading", Max, "1 while the dataset is being loaded.", |f| f.durability.is_loading).info(Plain).prometheus("redis_loading_dump_file"),
    state("load_failed", Max, "1 if the dataset could not be loaded: the database serves nobody.", |f| f.durability.load_has_failed).prometheus("flintkv_load_failed").chart(740, Peak, "load_failed", "Durability", "Dataset not loaded", ""),
    fixed("async_loading", "0"),
    line("loading_start_time", Min, |x| (x.database.files.loading_since_ms.load(Relaxed) / 1000).into()).when(loading),
    line("loading_total_bytes", Sum, |x| x.database.files.loading_total_bytes.load(Relaxed).into()).when(loading),
    fixed("loading_rdb_used_mem", "0").when(loading),
    line("loading_loaded_bytes", Sum, |x| x.database.files.loaded_bytes.load(Relaxed).into()).when(loading),
    line("loading_loaded_perc", Derived, |x| info::loaded_percent(x).into()).when(loading),
    line("loading_eta_seconds", Max, |x| info::loading_left_s(x).into()).when(loading),
    fixed("current_cow_peak", "0"),
    fixed("current_cow_size", "0"),
    fixed("current_fork_perc", "0.00"),
    line("current_save_keys_processed", Sum, |x| info::while_saving(x, || x.database.files.saved_keys.load(Relaxed)).into()),
    line("current_save_keys_total", Sum, |x| info::while_saving(x, || x.database.shard.store.stats().keys).into()),
    gauge("rdb_changes_since_last_save", Count, Sum, "Changes since the last dump.", |f| f.durability.changes_since_save).info(Plain).prometheus("redis_rdb_changes_since_last_save"),
    state("rdb_bgsave_in_progress", Max, "1 while a dump is written in the background.", |f| f.durability.is_saving).info(Plain).prometheus("redis_rdb_bgsave_in_progress"),
    gauge("rdb_last_save_time", Timestamp, Min, "When the last dump was written, since 1970.", |f| f.durability.last_save_at_s).info(Plain).prometheus("redis_rdb_last_save_timestamp_seconds"),
    state("rdb_last_bgsave_status", Min, "1 if the last dump was written, 0 if it failed.", |f| !f.durability.last_save_failed).info(Status).prometheus("redis_rdb_last_bgsave_status"),
    gauge("rdb_last_bgsave_time_sec", Seconds, Max, "How long the last dump in the background took.", |f| f.durability.last_save_took_s).info(As(|x| seconds(x.database.files.last_background_took_ms.load(Relaxed)))).prometheus("redis_rdb_last_bgsave_duration_sec"),
    line("rdb_current_bgsave_time_sec", Max, |x| x.seconds_since(x.database.files.background_since_ms.load(Relaxed))),
    counter("rdb_saves", Count, "Dumps that were written.", |f| f.durability.saves).info(Plain).prometheus("redis_rdb_saves_total"),
    fixed("rdb_last_cow_size", "0"),
    line("rdb_last_load_keys_expired", Sum, |x| x.database.files.keys_expired.load(Relaxed).into()),
    line("rdb_last_load_keys_loaded", Sum, |x| x.database.files.keys_loaded.load(Relaxed).into()),
    // The journal is what Redis's append-only file is.
    state("aof_enabled", Min, "1 if the dataset survives a restart.", |f| f.durability.is_kept).info(Plain).prometheus("redis_aof_enabled"),
    state("aof_rewrite_in_progress", Max, "1 while a new checkpoint is written.", |f| f.durability.is_rewriting).info(Plain).prometheus("redis_aof_rewrite_in_progress"),
    fixed("aof_rewrite_scheduled", "0"),
    gauge("aof_last_rewrite_time_sec", Seconds, Max, "How long the last checkpoint took.", |f| f.durability.last_checkpoint_took_s).info(As(|x| seconds(x.database.files.journal.last_rewrite_took_ms.load(Relaxed)))).prometheus("redis_aof_last_rewrite_duration_sec"),
    line("aof_current_rewrite_time_sec", Max, |x| x.seconds_since(x.database.files.journal.rewriting_since_ms.load(Relaxed))),
    state("aof_last_bgrewrite_status", Min, "1 if the last checkpoint was written, 0 if it failed.", |f| f.durability.checkpoint_failures == 0).info(Status).prometheus("redis_aof_last_bgrewrite_status"),
    line("aof_rewrites", Sum, |x| x.database.files.journal.rewrites.load(Relaxed).into()),
    gauge("aof_rewrites_consecutive_failures", Count, Max, "Checkpoints that could not be written since the last one.", |f| f.durability.checkpoint_failures).info(Plain).chart(700, Peak, "checkpoint_failures", "Durability", "Checkpoints that failed", ""),
    state("aof_last_write_status", Min, "0 if the journal cannot be written: writes are refused.", |f| !f.durability.journal_has_failed).info(Status).prometheus("redis_aof_last_write_status"),
    state("journal_failed", Max, "1 if the journal cannot be written: writes are refused.", |f| f.durability.journal_has_failed).chart(660, Peak, "journal_failed", "Durability", "Journal failed", ""),
    fixed("aof_last_cow_size", "0"),
    gauge("aof_current_size", Bytes, Sum, "Bytes that the checkpoint and the journal after it take.", |f| f.durability.checkpoint_bytes + f.durability.tail_file_bytes).info(Plain).when(journalled).prometheus("redis_aof_current_size_bytes"),
    gauge("aof_base_size", Bytes, Sum, "Bytes of the checkpoint.", |f| f.durability.checkpoint_bytes).info(Plain).when(journalled).prometheus("redis_aof_base_size_bytes").chart(610, Mean, "checkpoint_bytes", "Durability", "Checkpoint", ""),
    fixed("aof_pending_rewrite", "0").when(journalled),
    gauge("aof_buffer_length", Bytes, Sum, "Bytes of the journal that are not on the device yet.", |f| f.durability.unsynced_bytes).info(Plain).when(journalled).prometheus("flintkv_journal_unsynced_bytes").chart(620, Peak, "journal_unsynced_bytes", "Durability", "Not synced", ""),
    fixed("aof_pending_bio_fsync", "0").when(journalled),
    state("aof_delayed_fsync", Max, "1 while the journal's device is behind, and writes wait.", |f| f.durability.journal.behind.is_some()).info(Plain).when(journalled).prometheus("redis_aof_delayed_fsync").chart(640, Peak, "journal_behind", "Durability", "Journal behind", ""),
    counter("journal_position", Bytes, "Bytes that were appended to the journal since it was created.", |f| f.durability.journal_bytes).info(Plain).when(journalled).prometheus("flintkv_journal_bytes_total")
        .chart(590, Mean, "journal_bytes", "Durability", "Journalled", "Bytes appended to the journal per second."),
    line("journal_durable_position", Same, |x| (x.figures.durability.journal_bytes - x.figures.durability.unsynced_bytes).into()).when(journalled),
    line("journal_checkpoint_position", Same, |x| x.figures.durability.checkpoint_position.into()).when(journalled),
    gauge("journal_tail_bytes", Bytes, Sum, "Bytes of the journal after the checkpoint, which a restart replays.", |f| f.durability.tail_bytes).prometheus("flintkv_journal_tail_bytes").chart(600, Mean, "journal_tail_bytes", "Durability", "Journal to replay", ""),
    counter("journal_records", Count, "Records that were appended to the journal.", |f| f.durability.journal.records).info(Plain).when(journalled).prometheus("flintkv_journal_records_total"),
    line("journal_bytes", Sum, |x| x.figures.durability.journal.bytes.into()).when(journalled),
    line("journal_written_bytes", Sum, |x| x.figures.durability.journal.written_bytes.into()).when(journalled),
    line("journal_files", Sum, |x| x.figures.durability.journal.files.into()).when(journalled),
    gauge("journal_file_bytes", Bytes, Sum, "Bytes of the journal's files, including files created in advance.", |f| f.durability.journal.file_bytes).info(Plain).when(journalled).prometheus("flintkv_journal_file_bytes"),
    counter("journal_syncs", Count, "Syncs of the journal's device.", |f| f.durability.journal.syncs).info(Plain).when(journalled).prometheus("flintkv_journal_syncs_total"),
    gauge("journal_last_sync_us", Us, Max, "How long the last sync of the journal took.", |f| f.durability.journal.last_sync.as_micros() as u64).info(Plain).when(journalled).prometheus("flintkv_journal_last_sync_seconds").chart(630, Peak, "journal_sync_us", "Durability", "Sync", ""),
    counter("journal_behind_ms", Us, "Time in which the journal's ring was nearly full, and writes waited for its device.", |f| f.durability.journal.behind_total.as_micros() as u64).info(As(|x| (x.figures.durability.journal.behind_total.as_millis() as u64).into())).when(journalled).prometheus("flintkv_journal_behind_seconds_total")
        .chart(650, Mean, "journal_waiting", "Durability", "Writes wait for the journal", "The share of the time in which the journal's ring was nearly full, and writes waited for its device."),
    gauge("recovery_estimated_ms", Us, Max, "How long a restart would take, as estimated.", |f| f.durability.recovery_estimated_ms * 1000).info(As(|x| x.figures.durability.recovery_estimated_ms.into())).when(journalled).prometheus("flintkv_recovery_estimated_seconds")
        .chart(670, Peak, "recovery_us", "Durability", "Restart", ""),
    state("recovery_late", Max, "1 if a restart would take longer than recovery-time-target, or the last restart took longer.", |f| f.durability.recovery_is_late).prometheus("flintkv_recovery_late")
        .chart(680, Peak, "recovery_late", "Durability", "Restart takes too long", "1 if a restart would take longer than `recovery-time-target`, or the last restart took longer."),
    line("recovery_last_ms", Max, |x| x.database.files.journal.recovery_took_ms.load(Relaxed).into()).when(journalled),
    line("lost_keys", Sum, |x| x.database.shard.store.lost_keys().into()).when(journalled),
    line("lost_records", Sum, |x| x.database.hub.dataset.lost.commands.load(Relaxed).into()).when(journalled),
    gauge("journal_missing_bytes", Bytes, Sum, "Bytes that are missing on the journal's file system for the next checkpoint and for the journal until then.", |f| f.durability.journal_missing_bytes).info(Plain).when(journalled).prometheus("flintkv_journal_missing_bytes")
        .chart(690, Peak, "journal_missing_bytes", "Durability", "Space missing for the journal", ""),
    line("journal_error", Same, |x| x.figures.durability.journal_error.as_str().into()).when(journalled),
    fixed("module_fork_in_progress", "0"),
    fixed("module_fork_last_cow_size", "0"),
    counter("damaged_journals", Count, "Number of times that the scrubber has found damage in the journal, after which a new checkpoint was written.", |f| f.durability.damaged_journals).prometheus("flintkv_damaged_journals_total"),
    gauge("damaged_backups", Count, Max, "Damaged files of backups and of the archived journal that the scrubber has found, and that still exist.", |f| f.durability.damaged_backups).prometheus("flintkv_damaged_backups"),
    counter("damaged_checkpoints", Count, "Damaged checkpoints that the scrubber has found, and that were replaced.", |f| f.durability.damaged_checkpoints).prometheus("flintkv_damaged_checkpoints_total"),
    gauge("rot", Count, Sum, "Damaged pages, checkpoints, journals and files of backups that were found since the start or CONFIG RESETSTAT.", |f| f.store[Counter::RottenPages] + f.durability.damaged_checkpoints + f.durability.damaged_journals + f.durability.damaged_backups)
        .chart(710, Peak, "rot", "Durability", "Damage found", ""),
    state("backup_in_progress", Max, "1 while a backup is made.", |f| f.durability.is_backing_up).prometheus("flintkv_backup_in_progress"),
    state("backup_last_status", Min, "0 if the last backup failed.", |f| !f.durability.last_backup_failed).prometheus("flintkv_backup_last_status"),
    state("backup_failed", Max, "1 if the last backup failed.", |f| f.durability.last_backup_failed).chart(720, Peak, "backup_failed", "Durability", "Backup failed", ""),
    gauge("backup_last_success", Timestamp, Min, "When the newest backup known to the node was begun, since 1970; 0: none.", |f| f.durability.last_backup_at_s).prometheus("flintkv_backup_last_success_timestamp_seconds"),
    state("archive_failed", Max, "1 if the journal cannot be copied to the backups' directory.", |f| f.durability.archive_has_failed).prometheus("flintkv_archive_failed").chart(730, Peak, "archive_failed", "Durability", "Journal not archived", ""),
    gauge("archive_until", Timestamp, Min, "The time up to which the journal is copied to the backups' directory, since 1970; 0: it is not copied.", |f| f.durability.archived_until_s).prometheus("flintkv_archive_until_timestamp_seconds"),
];

#[rustfmt::skip]
pub(super) const STATS: &[Row] = &[
    counter("total_connections_received", Count, "Connections accepted.", |f| f.connections_received).info(Plain).prometheus("redis_connections_received_total"),
    counter("total_commands_processed", Count, "Commands run.", |f| f.commands_read + f.commands_write + f.commands_other).info(As(|x| x.sum(|worker| &worker.commands).into())).prometheus("redis_commands_processed_total").chart(10, Mean, "ops", "Throughput", "Operations", "Commands per second."),
    counter("commands_read", Count, "Commands per second that read.", |f| f.commands_read).chart(20, Mean, "ops_read", "Throughput", "Reads", ""),
    counter("commands_write", Count, "Commands per second that write.", |f| f.commands_write).chart(30, Mean, "ops_write", "Throughput", "Writes", ""),
    counter("commands_other", Count, "Commands per second that neither read nor write data.", |f| f.commands_other).chart(40, Mean, "ops_other", "Throughput", "Others", ""),
    line("instantaneous_ops_per_sec", Sum, |x| x.rate(Rate::Commands).into()),
    counter("total_net_input_bytes", Bytes, "Bytes received from clients.", |f| f.net_in_bytes).info(Plain).prometheus("redis_net_input_bytes_total").chart(540, Mean, "net_in_bytes", "Clients", "Received", "Bytes received from clients per second."),
    counter("total_net_output_bytes", Bytes, "Bytes sent to clients.", |f| f.net_out_bytes).info(Plain).prometheus("redis_net_output_bytes_total").chart(550, Mean, "net_out_bytes", "Clients", "Sent", "Bytes sent to clients per second."),
    counter("total_net_repl_input_bytes", Bytes, "Bytes received from the primary.", |f| f.replication.received_bytes).info(Plain).prometheus("flintkv_replication_received_bytes_total")
        .chart(830, Mean, "followed_bytes", "Replication", "Received from the primary", "Bytes received from the primary per second."),
    counter("total_net_repl_output_bytes", Bytes, "Bytes sent to replicas.", |f| f.replication.sent_bytes).info(Plain).prometheus("flintkv_replication_sent_bytes_total").chart(820, Mean, "replicated_bytes", "Replication", "Sent to replicas", "Bytes sent to replicas per second."),
    line("instantaneous_input_kbps", Sum, |x| kilobytes(x.rate(Rate::NetInBytes))),
    line("instantaneous_output_kbps", Sum, |x| kilobytes(x.rate(Rate::NetOutBytes))),
    fixed("instantaneous_input_repl_kbps", "0.00"),
    fixed("instantaneous_output_repl_kbps", "0.00"),
    counter("rejected_connections", Count, "Connections refused because of maxclients.", |f| f.rejected_connections).info(Plain).prometheus("redis_rejected_connections_total")
        .chart(380, Peak, "rejected_clients", "Limits", "Rejected clients", "Connections per second that were refused because of maxclients."),
    gauge("sync_full", Count, Sum, "Full synchronisations of replicas.", |f| f.replication.full_syncs).info(Plain).prometheus("redis_replica_resyncs_full"),
    gauge("sync_partial_ok", Count, Sum, "Partial synchronisations of replicas: they received only the changes that they lacked.", |f| f.replication.partial_syncs).info(Plain).prometheus("redis_replica_partial_resync_accepted"),
    gauge("sync_partial_err", Count, Sum, "Replicas that asked for a partial synchronisation and needed a full one.", |f| f.replication.refused_partial_syncs).info(Plain).prometheus("redis_replica_partial_resync_denied"),
    counter("expired_keys", Count, "Keys that expired.", |f| f.store[Counter::ExpiredKeys]).info(Plain).prometheus("redis_expired_keys_total").chart(560, Mean, "expired", "Events", "Expired", "Keys per second that expired."),
    fixed("expired_stale_perc", "0.00"),
    fixed("expired_time_cap_reached_count", "0"),
    fixed("expire_cycle_cpu_milliseconds", "0"),
    counter("evicted_keys", Count, "Keys that were evicted.", |f| f.store[Counter::EvictedKeys]).info(Plain).prometheus("redis_evicted_keys_total").chart(570, Mean, "evicted", "Events", "Evicted", "Keys per second that were evicted."),
    counter("evicted_clients", Count, "Clients closed because they held the most memory while others waited for memory.", |f| f.evicted_clients).info(Plain).prometheus("redis_evicted_clients_total"),
    counter("client_memory_waits", Count, "How often a client had to wait for memory.", |f| f.client_memory_waits).info(Plain).prometheus("flintkv_client_memory_waits_total"),
    fixed("total_eviction_exceeded_time", "0"),
    fixed("current_eviction_exceeded_time", "0"),
    counter("keyspace_hits", Count, "Reads that found their key.", |f| f.store.keyspace_hits()).info(Plain).prometheus("redis_keyspace_hits_total"),
    counter("keyspace_misses", Count, "Reads of keys that did not exist.", |f| f.store[Counter::KeyspaceMisses]).info(Plain).prometheus("redis_keyspace_misses_total").chart(170, Mean, "misses", "Hits", "Misses", "Reads per second of keys that do not exist."),
    line("pubsub_channels", Max, |x| x.database.hub.pubsub.count(Space::Channel).into()),
    line("pubsub_patterns", Max, |x| x.database.hub.pubsub.count(Space::Pattern).into()),
    line("pubsubshard_channels", Sum, |x| x.database.hub.pubsub.count(Space::Shard).into()),
    fixed("latest_fork_usec", "0"),
    fixed("total_forks", "0"),
    line("migrate_cached_sockets", Sum, |x| x.database.hub.targets_kept.load(Relaxed).into()),
    fixed("slave_expires_tracked_keys", "0"),
    fixed("active_defrag_hits", "0"),
    fixed("active_defrag_misses", "0"),
    fixed("active_defrag_key_hits", "0"),
    fixed("active_defrag_key_misses", "0"),
    fixed("total_active_defrag_time", "0"),
    fixed("current_active_defrag_time", "0"),
    line("tracking_total_keys", Sum, |x| x.database.hub.tracking.counts().keys.into()),
    line("tracking_total_items", Sum, |x| x.database.hub.tracking.counts().items.into()),
    line("tracking_total_prefixes", Sum, |x| x.database.hub.tracking.counts().prefixes.into()),
    fixed("unexpected_error_replies", "0"),
    counter("total_error_replies", Count, "Error replies.", |f| f.error_replies).info(Plain).prometheus("redis_total_error_replies").chart(580, Mean, "errors", "Events", "Errors", "Error replies per second."),
    counter("refused_writes", Count, "Commands that got OOM, MISCONF or NOREPLICAS.", |f| f.refused_for_room + f.refused_otherwise).prometheus("flintkv_refused_writes_total").chart(370, Peak, "refused", "Limits", "Refused writes", "Commands per second that got OOM, MISCONF or NOREPLICAS."),
    counter("forwards_rejected", Count, "Times that a shard's owner rejected commands of this proxy: they have not run, and are sent again.", |f| f.forwards_rejected).prometheus("flintkv_forwards_rejected_total"),
    counter("forwards_uncertain", Count, "Replies UNCERTAIN: the link to the shard's owner was lost while a write was on its way.", |f| f.forwards_uncertain).prometheus("flintkv_forwards_uncertain_total"),
    counter("forwards_down", Count, "Replies CLUSTERDOWN: nobody served the shard for 5 seconds.", |f| f.forwards_down).prometheus("flintkv_forwards_down_total"),
    fixed("dump_payload_sanitizations", "0"),
    line("total_reads_processed", Sum, |x| x.sum(|worker| &worker.batches).into()),
    line("total_writes_processed", Sum, |x| x.sum(|worker| &worker.batches).into()),
    fixed("io_threaded_reads_processed", "0"),
    fixed("io_threaded_writes_processed", "0"),
    line("client_query_buffer_limit_disconnections", Sum, |x| x.sum(|worker| &worker.query_limit_closed).into()),
    line("client_output_buffer_limit_disconnections", Sum, |x| (x.sum(|worker| &worker.output_limit_closed) + x.database.hub.clients.too_slow.load(Relaxed)).into()),
    fixed("reply_buffer_shrinks", "0"),
    fixed("reply_buffer_expands", "0"),
    line("eventloop_cycles", Same, |x| x.database.rounds().count.into()),
    line("eventloop_duration_sum", Same, |x| x.database.rounds().busy_us.into()),
    line("eventloop_duration_cmd_sum", Sum, |x| (x.database.hub.stats.command_nanos() / 1000).into()),
    line("instantaneous_eventloop_cycles_per_sec", Same, |x| x.rate(Rate::Rounds).into()),
    line("instantaneous_eventloop_duration_usec", Same, |x| (x.rate(Rate::RoundsUs) / x.rate(Rate::Rounds).max(1)).into()),
    line("acl_access_denied_auth", Sum, |x| x.sum(|worker| &worker.auth_failures).into()),
    line("acl_access_denied_cmd", Sum, |x| x.sum(|worker| &worker.acl_denied_commands).into()),
    line("acl_access_denied_key", Sum, |x| x.sum(|worker| &worker.acl_denied_keys).into()),
    line("acl_access_denied_channel", Sum, |x| x.sum(|worker| &worker.acl_denied_channels).into()),
    span("latency_us", Us, |span| span.all().mean_us()).chart(50, Mean, "latency_us", "Latency", "Average", "Time of a command in the server, without the network."),
    span("latency_p50_us", Us, |span| span.all().percentile_us(50.0)).chart(60, Peak, "latency_p50_us", "Latency", "p50", "Half of the commands take no longer."),
    span("latency_p99_us", Us, |span| span.all().percentile_us(99.0)).chart(70, Peak, "latency_p99_us", "Latency", "p99", "99 % of the commands take no longer."),
    span("latency_p999_us", Us, |span| span.all().percentile_us(99.9)).chart(80, Peak, "latency_p999_us", "Latency", "p99.9", "99.9 % of the commands take no longer."),
    span("latency_p9999_us", Us, |span| span.all().percentile_us(99.99)).chart(90, Peak, "latency_p9999_us", "Latency", "p99.99", "99.99 % of the commands take no longer."),
];

/// What operators of tiered Redis look for, under the names they know.
#[rustfmt::skip]
pub(super) const TIERING: &[Row] = &[
    line("tiering_enabled", Max, |x| x.database.shard.store.has_flash().into()),
    line("flash_driver", Same, |x| x.database.shard.driver().unwrap_or("none").into()),
    line("flash_compression", Same, |x| x.config.flash_compression.as_str().into()),
    gauge("memory_limit", Bytes, Sum, "RAM and flash together; 0: no limit.", |f| f.memory_limit_bytes).info(Plain).prometheus("flintkv_tier_memory_limit_bytes"),
    gauge("ram_limit", Bytes, Sum, "The RAM limit of the store; 0: no limit.", |f| f.store.ram_limit).info(Plain),
    gauge("used_ram", Bytes, Sum, "RAM that the store counts against its limit.", |f| f.store.resident).info(Plain),
    gauge("used_ram_max", Bytes, Sum, "The most RAM that the store has counted.", |f| f.store.resident_max).info(Plain),
    gauge("ram_object_budget", Bytes, Sum, "RAM that objects may take; 0: no limit.", |f| f.store.object_budget).info(Plain),
    gauge("ram_object_soft_bytes", Bytes, Sum, "Objects in RAM from which on values leave it; 0: no limit.", |f| f.store.object_soft_bytes).info(Plain),
    gauge("ram_margin_bytes", Bytes, Sum, "RAM that is kept free below the limit for growth between two measurements; 0: no limit.", |f| f.store.margin_bytes).info(Plain),
    gauge("ram_object_bytes", Bytes, Sum, "Objects in RAM.", |f| f.store.object_bytes).info(Plain),
    gauge("ram_arena_bytes", Bytes, Sum, "What the arena holds for objects.", |f| f.store.arena_bytes).info(Plain),
    gauge("ram_free_cell_bytes", Bytes, Sum, "Free cells of the arena's slabs.", |f| f.store.free_cell_bytes).info(Plain),
    gauge("ram_slab_overhead_bytes", Bytes, Sum, "Headers and rests of the arena's slabs, which no object can have.", |f| f.store.slab_overhead_bytes).info(Plain),
    gauge("ram_writing_bytes", Bytes, Sum, "Objects that are being written to flash.", |f| f.store.writing_bytes).info(Plain),
    gauge("ram_index_bytes", Bytes, Sum, "RAM of the index.", |f| f.store.index_bytes).info(Plain).prometheus("flintkv_tier_index_bytes"),
    gauge("ram_process_bytes", Bytes, Sum, "Used RAM that is neither the arena's nor the index: code, stacks, buffers, connections, and what the allocator holds free.", |f| f.store.resident.saturating_sub(f.store.arena_bytes + f.store.index_bytes)).info(Plain),
    gauge("ram_dataset_overhead", Bytes, Sum, "Used RAM without keys and values: the index, clients, buffers and a share of the process.", |f| f.store.resident.saturating_sub(f.store.object_bytes)).info(Plain).chart(240, Mean, "ram_overhead_bytes", "Memory", "RAM other than values", ""),
    gauge("keys", Count, Sum, "Keys of all logical databases.", |f| f.store.keys).prometheus("flintkv_tier_keys").chart(180, Mean, "keys", "Values", "Keys", ""),
    gauge("expires", Count, Sum, "Keys that expire.", |f| f.store.expires()).prometheus("flintkv_tier_expires"),
    gauge("values_in_ram", Count, Sum, "Keys whose value is in RAM.", |f| f.store.values_in_ram).info(Plain).prometheus("flintkv_tier_values_in_ram").chart(190, Mean, "values_in_ram", "Values", "Values in RAM", ""),
    gauge("values_in_flash", Count, Sum, "Keys whose value is only on flash.", |f| f.store.values_in_flash).info(Plain).prometheus("flintkv_tier_values_in_flash").chart(200, Mean, "values_in_flash", "Values", "Values in flash", ""),
    real("values_in_ram_perc", Percent, Derived, "Values in RAM ÷ all values.", |f| percent(f.store.values_in_ram, f.store.keys)).info(Perc),
    real("values_in_ram_ratio", Ratio, Derived, "Values in RAM ÷ all values.", |f| quotient(f.store.values_in_ram, f.store.keys)).chart(210, Mean, "values_in_ram_ratio", "Values", "Share of values in RAM", ""),
    real("ram_hit_ratio", Percent, Derived, "Reads that found their value in RAM ÷ all reads that found a value.", |f| percent(f.store[Counter::RamHits], f.store.keyspace_hits())).info(Perc),
    line("ram_hit_ratio_recent", Derived, |x| info::recent_hits(x).into()),
    real("ram_flash_access_ratio", Factor, Derived, "Reads that found their value in RAM ÷ reads that found it on flash.", |f| quotient(f.store[Counter::RamHits], f.store[Counter::FlashHits])).info(Quotient),
    span("hit_ratio", Ratio, |span| span.share(|f| f.store[Counter::RamHits], |f| f.store[Counter::FlashHits])).chart(140, Mean, "hit_ratio", "Hits", "RAM hit ratio", "Of the reads that found a value, the share that found it in RAM."),
    span("busy_hit_ratio", Ratio, |span| span.lately.hit_ratio()).chart(460, Mean, "busy_hit_ratio", "Hits", "RAM hit ratio under load", "The RAM hit ratio of the last ten minutes. Unknown unless more than 1000 reads a second came from flash in this time: fewer are no problem."),
    gauge("flash_files_limit", Bytes, Sum, "Limit of all files on flash; 0: none.", |f| f.files_limit_bytes).info(Plain).prometheus("flintkv_tier_files_limit_bytes")
        .chart(290, Mean, "files_limit_bytes", "Memory", "Limit of files on flash", "flash-limit, or the limit calculated from the other limits; 0: none."),
    gauge("flash_files_bytes", Bytes, Sum, "Space that the flash log, the journal and the checkpoints take on their devices.", |f| f.files_bytes).info(Plain).prometheus("flintkv_tier_files_bytes")
        .chart(280, Mean, "files_bytes", "Memory", "Files on flash", "Space that the flash log and, with persistence, the journal and the checkpoints take on their devices."),
    real("files_percent", Percent, Derived, "Files on flash ÷ their limit.", |f| f.files_percent().unwrap_or(f64::NAN)).prometheus("flintkv_tier_files_used_ratio").chart(320, Peak, "files_percent", "Limits", "Files, of their limit", "All files on flash in percent of their limit."),
    gauge("flash_limit_bytes", Bytes, Sum, "Flash that the database may use.", |f| f.flash_limit_bytes).prometheus("flintkv_tier_flash_limit_bytes").chart(270, Mean, "flash_limit_bytes", "Memory", "Flash limit", "The part of the memory limit that is flash."),
    gauge("flash_limit", Bytes, Sum, "Size of the flash log.", |f| f.store.flash_bytes).info(Plain),
    gauge("flash_live_limit", Bytes, Sum, "The part of the flash log that live values may take.", |f| f.store.flash_data_bytes).info(Plain),
    gauge("used_flash", Bytes, Sum, "Flash in segments that are not empty.", |f| f.store.flash_used_bytes).info(Plain).prometheus("flintkv_tier_flash_used_bytes").chart(250, Mean, "used_flash_bytes", "Memory", "Used flash", ""),
    gauge("free_flash", Bytes, Sum, "Flash in segments that are empty.", |f| f.store.flash_bytes.saturating_sub(f.store.flash_used_bytes)).info(Plain),
    gauge("flash_live_bytes", Bytes, Sum, "Flash that live values take.", |f| f.store.flash_live_bytes).info(Plain).prometheus("flintkv_tier_flash_live_bytes").chart(260, Mean, "live_flash_bytes", "Memory", "Live flash", "Flash that live values take, without dead records that are not collected yet."),
    gauge("flash_charged_bytes", Bytes, Sum, "Flash that live values take with the unused parts of their pages and segments.", |f| f.store.flash_charged_bytes).info(Plain).prometheus("flintkv_tier_flash_charged_bytes"),
    gauge("flash_usable_bytes", Bytes, Sum, "Flash that live values may take, without the part reserved for collecting garbage.", |f| f.store.flash_usable_bytes).info(Plain).prometheus("flintkv_tier_flash_usable_bytes"),
    gauge("flash_full_at_bytes", Bytes, Sum, "Flash is full when flash_charged_bytes reaches this value.", |f| f.store.flash_full_at_bytes).prometheus("flintkv_tier_flash_full_at_bytes"),
    real("flash_percent", Percent, Derived, "Flash that values take ÷ flash that they may take; at 1 flash is full.", |f| f.flash_percent().unwrap_or(f64::NAN)).prometheus("flintkv_tier_flash_used_ratio")
        .chart(310, Peak, "flash_percent", "Limits", "Flash, of its limit", "Flash that values take, in percent of what they may take; at 100 flash is full."),
    line("flash_room", Same, |x| x.figures.store.flash_room.into()),
    state("flash_full", Max, "1 if flash is full.", |f| f.store.flash_full).info(Plain).prometheus("flintkv_tier_flash_full").chart(350, Peak, "flash_full", "Limits", "Flash is full", "1 while flash is full: writes are refused, or keys evicted."),
    state("ram_full", Max, "1 if RAM is full of data that cannot move to flash.", |f| f.store.ram_full).info(Plain).prometheus("flintkv_tier_ram_full").chart(360, Peak, "ram_full", "Limits", "RAM is full", "1 while RAM is full of data that cannot move to flash: writes are refused, or keys evicted."),
    gauge("flash_segment_bytes", Bytes, Same, "Size of a segment.", |f| f.store.segment_bytes).info(Plain),
    gauge("flash_free_segments", Count, Sum, "Segments that are empty.", |f| f.store.flash_free_segments).info(Plain).prometheus("flintkv_tier_flash_free_segments"),
    gauge("flash_retired_segments", Count, Sum, "Segments not used because of an error, until a test finds them good.", |f| f.store.flash_retired_segments).info(Plain).prometheus("flintkv_tier_flash_retired_segments"),
    gauge("flash_quarantined_segments", Count, Sum, "Segments that a checkpoint will free.", |f| f.store.flash_quarantined_segments).info(Plain),
    state("flash_resize_in_progress", Max, "1 while flash is made smaller.", |f| f.store.resizing.is_some()).info(Plain),
    gauge("flash_resize_moved_bytes", Bytes, Sum, "Bytes already moved out of the part of flash that is being removed.", |f| f.store.resizing.map_or(0, |progress| progress.moved_bytes)).info(Plain),
    gauge("flash_resize_total_bytes", Bytes, Sum, "Bytes that must move out of the part of flash that is being removed.", |f| f.store.resizing.map_or(0, |progress| progress.total_bytes)).info(Plain),
    real("flash_fragmentation_ratio", Factor, Derived, "Used flash ÷ live flash.", |f| quotient(f.store.flash_used_bytes, f.store.flash_live_bytes)).info(Quotient).chart(510, Mean, "flash_fragmentation", "Flash", "Fragmentation", ""),
    real("flash_compression_ratio", Factor, Derived, "Raw bytes ÷ stored bytes of all records written.", |f| quotient(f.store[Counter::RecordBytes], f.store[Counter::RecordStoredBytes])).info(Quotient),
    real("compression_ratio", Factor, Derived, "Stored bytes ÷ raw bytes of all records written since the start; unknown while no value is on flash.", |f| if f.store.flash_live_bytes == 0 { f64::NAN } else { quotient(f.store[Counter::RecordStoredBytes], f.store[Counter::RecordBytes]) })
        .chart(430, Mean, "compression_ratio", "Flash", "Size on flash", ""),
    gauge("flash_dictionaries", Count, Sum, "Dictionaries of the compression.", |f| f.store.dictionaries).info(Plain),
    real("flash_write_amplification", Factor, Derived, "Bytes written to flash ÷ bytes that clients wrote, since the start.", |f| quotient(f.store[Counter::FlashWriteBytes], f.store[Counter::UserBytes])).info(Quotient).chart(440, Mean, "write_amplification", "Flash", "Write amplification", ""),
    span("busy_write_amplification", Factor, |span| span.lately.write_amplification())
        .chart(450, Mean, "busy_write_amplification", "Flash", "Write amplification under load", "Bytes written to flash ÷ bytes that clients wrote, of the last ten minutes. Unknown unless more than 10 MB a second were written to flash in this time: with fewer the ratio says little, and the wear does not matter."),
    counter("user_write_bytes", Bytes, "Bytes of values that clients wrote.", |f| f.store[Counter::UserBytes]).info(Plain).prometheus("flintkv_tier_user_write_bytes_total"),
    counter("record_bytes", Bytes, "Bytes of records before compression.", |f| f.store[Counter::RecordBytes]).prometheus("flintkv_tier_record_bytes_total"),
    counter("record_stored_bytes", Bytes, "Bytes of records as stored.", |f| f.store[Counter::RecordStoredBytes]).prometheus("flintkv_tier_record_stored_bytes_total"),
    counter("flash_kv_reads", Count, "Values read from flash.", |f| f.store[Counter::FlashValueReads]).info(Plain),
    counter("flash_part_reads", Count, "Parts of large values read from flash.", |f| f.store[Counter::FlashPartReads]).info(Plain),
    counter("flash_part_demotions", Count, "Parts of large values that left RAM.", |f| f.store[Counter::PartDemotions]).info(Plain),
    counter("flash_kv_writes", Count, "Values written to flash.", |f| f.store[Counter::DemotionsWritten]).info(Plain),
    counter("flash_reads", Count, "Reads of flash.", |f| f.store[Counter::FlashReads]).info(Plain).prometheus("flintkv_tier_flash_reads_total").chart(390, Mean, "flash_reads", "Flash", "Flash reads", "Reads of flash per second."),
    counter("flash_read_bytes", Bytes, "Bytes read from flash.", |f| f.store[Counter::FlashReadBytes]).info(Plain).prometheus("flintkv_tier_flash_read_bytes_total").chart(410, Mean, "flash_read_bytes", "Flash", "Read from flash", "Bytes read from flash per second."),
    counter("flash_reads_merged", Count, "Reads that shared the page read by another read.", |f| f.store[Counter::MergedReads]).info(Plain).prometheus("flintkv_tier_flash_merged_reads_total"),
    counter("flash_reads_under_lock", Count, "Reads of flash that a command waited for with its stripes locked.", |f| f.store[Counter::ReadsUnderLock]).info(Plain),
    counter("flash_writes", Count, "Writes to flash.", |f| f.store[Counter::FlashWrites]).info(Plain).prometheus("flintkv_tier_flash_writes_total").chart(400, Mean, "flash_writes", "Flash", "Flash writes", "Writes to flash per second."),
    counter("flash_write_bytes", Bytes, "Bytes written to flash.", |f| f.store[Counter::FlashWriteBytes]).info(Plain).prometheus("flintkv_tier_flash_write_bytes_total").chart(420, Mean, "flash_write_bytes", "Flash", "Written to flash", "Bytes written to flash per second."),
    line("flash_io_per_sec", Sum, |x| (x.rate(Rate::FlashReads) + x.rate(Rate::FlashWrites)).into()),
    line("flash_reads_per_sec", Sum, |x| x.rate(Rate::FlashReads).into()),
    line("flash_read_bytes_per_sec", Sum, |x| x.rate(Rate::FlashReadBytes).into()),
    line("flash_writes_per_sec", Sum, |x| x.rate(Rate::FlashWrites).into()),
    line("flash_write_bytes_per_sec", Sum, |x| x.rate(Rate::FlashWriteBytes).into()),
    counter("flash_read_errors", Count, "Reads of flash that failed.", |f| f.store[Counter::ReadErrors]).info(Plain).prometheus("flintkv_tier_read_errors_total"),
    counter("flash_write_errors", Count, "Writes to flash that failed.", |f| f.store[Counter::WriteErrors]).info(Plain).prometheus("flintkv_tier_write_errors_total"),
    counter("flash_errors", Count, "Reads and writes of flash per second that failed.", |f| f.store[Counter::ReadErrors] + f.store[Counter::WriteErrors]).chart(470, Peak, "flash_errors", "Flash", "Errors of flash", ""),
    counter("flash_checksum_errors", Count, "Pages whose checksum was wrong.", |f| f.store[Counter::ChecksumErrors]).info(Plain).prometheus("flintkv_tier_checksum_errors_total").chart(480, Peak, "checksum_errors", "Flash", "Damaged pages read", "Reads per second that found a page with a wrong checksum."),
    counter("flash_scrubbed_bytes", Bytes, "Bytes on flash that the scrubber has checked.", |f| f.store[Counter::ScrubbedBytes]).info(Plain).prometheus("flintkv_tier_scrubbed_bytes_total"),
    counter("flash_scrub_rounds", Count, "Number of times that the scrubber has checked everything.", |f| f.store.scrub_rounds).info(Plain).prometheus("flintkv_tier_scrub_rounds_total"),
    counter("rotten_pages", Count, "Damaged pages that were found, each once.", |f| f.store[Counter::RottenPages]).info(Plain).prometheus("flintkv_tier_rotten_pages_total"),
    counter("rotten_keys", Count, "Keys that were found to have lost values on damaged pages, each once.", |f| f.store[Counter::RottenKeys]).info(Plain).prometheus("flintkv_tier_rotten_keys_total"),
    counter("rescued_values", Count, "Values on damaged pages that were saved, because they were also in RAM.", |f| f.store[Counter::RescuedValues]).info(Plain).prometheus("flintkv_tier_rescued_values_total"),
    counter("promotions", Count, "Values that moved from flash to RAM.", |f| f.store[Counter::Promotions]).info(Plain).prometheus("flintkv_tier_promotions_total").chart(500, Mean, "promotions", "Flash", "Promotions", "Values per second that moved from flash to RAM."),
    counter("demotions_clean", Count, "Values dropped from RAM without a write, because their copy on flash was valid.", |f| f.store[Counter::DemotionsClean]).info(Plain).prometheus("flintkv_tier_demotions_clean_total"),
    counter("demotions_written", Count, "Values written to flash.", |f| f.store[Counter::DemotionsWritten]).info(Plain).prometheus("flintkv_tier_demotions_written_total"),
    counter("demotions", Count, "Values per second that left RAM.", |f| f.store[Counter::DemotionsClean] + f.store[Counter::DemotionsWritten]).chart(490, Mean, "demotions", "Flash", "Demotions", ""),
    counter("collected_segments", Count, "Segments collected.", |f| f.store[Counter::CollectedSegments]).info(Plain).prometheus("flintkv_tier_collected_segments_total"),
    counter("relocated_records", Count, "Records that collection moved.", |f| f.store[Counter::RelocatedRecords]).info(Plain).prometheus("flintkv_tier_relocated_records_total"),
    counter("taken_records", Count, "Values that were imported in pages of the primary's flash.", |f| f.store[Counter::TakenRecords]).info(Plain).prometheus("flintkv_tier_taken_records_total"),
    counter("evacuated_objects", Count, "Objects that were moved so that the arena can give memory back.", |f| f.store[Counter::EvacuatedObjects]).info(Plain),
    line("commands_waited_for_flash", Sum, |x| x.sum(|worker| &worker.flash_waits).into()),
    line("commands_waited_for_room", Sum, |x| x.sum(|worker| &worker.room_waits).into()),
    lines(info::read_latencies),
    span("ram_latency_us", Us, |span| span.ram().mean_us()).chart(100, Mean, "ram_latency_us", "Latency", "RAM hits", "Time of a read whose value was in RAM."),
    span("ram_latency_p99_us", Us, |span| span.ram().percentile_us(99.0)).chart(110, Peak, "ram_latency_p99_us", "Latency", "RAM hits, p99", "99 % of the reads from RAM take no longer."),
    span("flash_latency_us", Us, |span| span.flash().mean_us()).chart(120, Mean, "flash_latency_us", "Latency", "Flash hits", "Time of a read whose value came from flash."),
    span("flash_latency_p99_us", Us, |span| span.flash().percentile_us(99.0)).chart(130, Peak, "flash_latency_p99_us", "Latency", "Flash hits, p99", "99 % of the reads from flash take no longer."),
    // KeyDB's names, which redis_exporter maps.
    counter("storage_provider_read_hits", Count, "Reads that found their value in RAM.", |f| f.store[Counter::RamHits]).info(Plain).prometheus("flintkv_tier_ram_hits_total").chart(150, Mean, "ram_hits", "Hits", "RAM hits", "Reads per second that found their value in RAM."),
    counter("storage_provider_read_misses", Count, "Reads whose value came from flash.", |f| f.store[Counter::FlashHits]).info(Plain).prometheus("flintkv_tier_flash_hits_total").chart(160, Mean, "flash_hits", "Hits", "Flash hits", "Reads per second whose value came from flash."),
];

#[rustfmt::skip]
pub(super) const REPLICATION: &[Row] = &[
    line("role", Same, |x| if x.figures.replication.primary.is_some() { "slave" } else { "master" }.into()),
    line("master_host", Same, |x| x.primary().map(|primary| primary.host.clone()).into()),
    line("master_port", Same, |x| x.primary().map(|primary| primary.port).into()),
    line("master_link_status", Min, |x| x.primary().map(|primary| if primary.is_up { "up" } else { "down" }).into()),
    line("master_last_io_seconds_ago", Max, |x| x.primary().map(|primary| seconds_ago(primary.silent_ms)).into()),
    line("master_sync_in_progress", Max, |x| x.primary().map(|primary| u8::from(primary.is_synchronising)).into()),
    line("slave_read_repl_offset", Same, |x| x.database.hub.dataset.journaling.stream.offset().into()).when(follows),
    line("slave_repl_offset", Same, |x| x.database.applied_offset().into()).when(follows),
    line("master_sync_total_bytes", Sum, |x| x.syncing().map(|primary| primary.sync_total_bytes).into()),
    line("master_sync_read_bytes", Sum, |x| x.syncing().map(|primary| primary.sync_bytes).into()),
    line("master_sync_left_bytes", Sum, |x| x.syncing().map(|primary| primary.sync_total_bytes.saturating_sub(primary.sync_bytes)).into()),
    line("master_sync_perc", Derived, |x| x.syncing().map(|primary| two_digits(percent(primary.sync_bytes, primary.sync_total_bytes), 100.0)).into()),
    line("master_sync_last_io_seconds_ago", Max, |x| x.syncing().map(|primary| seconds_ago(primary.silent_ms)).into()),
    line("master_link_down_since_seconds", Max, |x| x.primary().filter(|primary| !primary.is_up).map(|primary| seconds_ago(primary.down_ms)).into()),
    line("master_link_state", Same, |x| x.primary().map(|primary| primary.state).into()),
    line("replica_state", Same, |x| x.primary().map(|primary| if x.figures.is_full_replica { "full" } else { primary.state }).into()),
    line("master_link_error", Same, |x| x.primary().map(|primary| one_line(primary.error.as_deref())).into()),
    counter("replica_failed_commands", Count, "Commands of the primary that have failed here.", |f| f.replication.failed_commands).info(Plain).when(follows).prometheus("flintkv_replication_failed_commands_total"),
    line("replica_last_failure", Same, |x| one_line(x.database.replication.role.failures.last.lock().as_deref()).into()).when(follows),
    line("slave_priority", Same, |x| x.config.replica.priority.into()).when(follows),
    fixed("slave_read_only", "1").when(follows),
    line("replica_announced", Same, |x| x.config.replica.is_announced.into()).when(follows),
    real("link_down", State, Max, "1 while a replica has no link to its primary, and does not receive its dataset either.", |f| f.replication.primary.as_ref().map_or(f64::NAN, |primary| flag(!primary.is_up && !primary.is_synchronising)))
        .chart(800, Peak, "link_down", "Replication", "No link to the primary", ""),
    lines(info::promotion),
    gauge("connected_slaves", Count, Same, "Replicas that are connected.", |f| f.replication.replicas.len() as u64).info(Plain).prometheus("redis_connected_slaves").chart(760, Mean, "replicas", "Replication", "Replicas", ""),
    line("min_slaves_good_slaves", Min, |x| info::good_replicas(x).into()),
    gauge("replicas_missing", Count, Max, "Replicas that writes need (min-replicas-to-write) and that do not keep up.", |f| f.replicas_missing).prometheus("flintkv_replicas_missing").chart(770, Peak, "replicas_missing", "Replication", "Replicas missing", ""),
    real("replica_lag_bytes", Bytes, Max, "Bytes of the stream that the slowest replica has not received.", |f| f.replication.replicas.iter().map(|replica| replica.lag_bytes).max().map_or(f64::NAN, |bytes| bytes as f64)).chart(780, Peak, "replica_lag_bytes", "Replication", "Lag in bytes", ""),
    span("replica_lag_us", Us, |span| span.lag_ms_max.map_or(f64::NAN, |ms| ms as f64 * 1000.0)).chart(790, Peak, "replica_lag_us", "Replication", "Lag in time", "The age of the first change that the slowest replica has not received."),
    real("shards_down", Count, Same, "Shards of a cluster's database that nobody serves.", |f| of_shards(f, |shards| shards.down)).chart(850, Peak, "shards_down", "Cluster", "Shards that are not served", ""),
    real("shards_alone", Count, Same, "Shards of a cluster's database that want a replica in sync and have none.", |f| of_shards(f, |shards| shards.alone)).chart(860, Peak, "shards_alone", "Cluster", "Shards without a replica in sync", ""),
    real("copies_out_of_sync", Count, Same, "Copies of a cluster's database that are not in sync, or are on a node that does not run.", |f| of_shards(f, |shards| shards.copies_out_of_sync)).chart(870, Peak, "copies_out_of_sync", "Cluster", "Copies out of sync", ""),
    lines(info::replicas),
    line("master_failover_state", Same, |x| x.figures.replication.failover.into()),
    line("master_replid", Same, |x| info::stream_id(x).into()),
    line("master_replid2", Same, |x| info::second_id(x).into()),
    gauge("master_repl_offset", Bytes, Same, "Bytes of the stream for replicas; 0: there is none.", |f| f.replication.offset).info(Plain).prometheus("redis_master_repl_offset"),
    // As Redis counts: the first byte that the second id does not have.
    line("second_repl_offset", Same, |x| info::second_offset(x).into()),
    state("repl_backlog_active", Max, "1 if there is a stream for replicas.", |f| !f.replication.id.is_empty()).info(Plain).prometheus("redis_repl_backlog_is_active"),
    gauge("repl_backlog_size", Bytes, Sum, "The most bytes that the backlog for replicas holds.", |f| f.replication.backlog_bytes_max).info(Plain).prometheus("redis_replication_backlog_bytes"),
    gauge("repl_backlog_first_byte_offset", Bytes, Same, "The first byte of the stream that the backlog has.", |f| if f.replication.id.is_empty() { 0 } else { f.replication.backlog.start + 1 }).info(Plain).prometheus("redis_repl_backlog_first_byte_offset"),
    gauge("repl_backlog_histlen", Bytes, Sum, "Bytes of the stream that the backlog has.", |f| f.replication.backlog.end - f.replication.backlog.start).info(Plain).prometheus("redis_repl_backlog_history_bytes"),
    counter("repl_checks", Count, "Comparisons of the datasets of primary and replica in which this database took part.", |f| f.replication.checks.done).info(Plain).prometheus("flintkv_replication_checks_total"),
    counter("repl_checks_given_up", Count, "Comparisons of the datasets that could not be made.", |f| f.replication.checks.given_up).info(Plain).prometheus("flintkv_replication_checks_given_up_total"),
    gauge("repl_given_up_bytes", Bytes, Sum, "Bytes of its stream that the database has given up last, because its primary did not have them.", |f| f.replication.given_up.map_or(0, |given_up| given_up.bytes)).prometheus("flintkv_replication_given_up_bytes"),
    gauge("repl_given_up_writes", Count, Sum, "Commands in them that write; 0 if they are not known.", |f| f.replication.given_up.and_then(|given_up| given_up.writes).unwrap_or(0)).prometheus("flintkv_replication_given_up_writes"),
    counter("repl_check_differences", Count, "Comparisons that have found a difference between the dataset and the primary's.", |f| f.replication.checks.differences).info(Plain).prometheus("flintkv_replication_differences_total")
        .chart(810, Peak, "replica_differences", "Replication", "Differences from the primary", "Comparisons per second that have found a difference between the dataset and the primary's."),
    line("repl_check_last_seconds_ago", Max, |x| seconds_ago(x.figures.replication.checks.last_ago_ms).into()),
    line("repl_check_last_stripes", Sum, |x| x.figures.replication.checks.stripes.into()),
    line("repl_check_last_error", Same, |x| one_line(x.figures.replication.checks.error.as_deref()).into()),
];

/// Of the process and its machine. Several nodes have each their own.
#[rustfmt::skip]
pub(super) const NODE: &[Row] = &[
    node_span("cpu_percent", Percent, |span| span.cpu_percent(|f| f.cpu_user_us + f.cpu_system_us)).chart(10, Mean, "cpu_percent", "Process", "Processor", "Processor time of the process; 100 is one core."),
    node_span("cpu_user_percent", Percent, |span| span.cpu_percent(|f| f.cpu_user_us)).chart(20, Mean, "cpu_user_percent", "Process", "Processor, user", "Processor time in the program itself."),
    node_span("cpu_system_percent", Percent, |span| span.cpu_percent(|f| f.cpu_system_us)).chart(30, Mean, "cpu_system_percent", "Process", "Processor, system", "Processor time in the kernel."),
    node("resident_bytes", Bytes, "RAM of the process.", |n| n.resident_bytes).prometheus("process_resident_memory_bytes").chart(40, Mean, "resident_bytes", "Process", "Resident size", ""),
    node("process_open_fds", Count, "Open files of the process.", |n| n.open_files).prometheus("process_open_fds"),
    node("process_start_time_seconds", Timestamp, "When the process started, since 1970.", |n| n.started_s).prometheus("process_start_time_seconds"),
    node("flintkv_node_workers", Count, "Threads that serve data.", |n| n.workers).prometheus("flintkv_node_workers"),
    node("flintkv_node_cores", Count, "Processors of the machine.", |n| n.cores).prometheus("flintkv_node_cores"),
    node("flintkv_node_system_ram_bytes", Bytes, "RAM of the machine.", |n| n.system_ram_bytes).prometheus("flintkv_node_system_ram_bytes"),
    node_span("machine_cpu_percent", Percent, |span| span.machine(|before, now| now.cpu.busy_percent(&before.cpu))).chart(50, Mean, "machine_cpu_percent", "Machine", "Processors", "Use of all processors of the machine, by every process; 100 is all of them."),
    node_span("machine_io_wait_percent", Percent, |span| span.machine(|before, now| now.cpu.wait_percent(&before.cpu)))
        .chart(60, Mean, "machine_io_wait_percent", "Machine", "Processors that wait for disks", "Time in which a processor had nothing to do but wait for a disk, in percent of all processors."),
    node("machine_ram_free_bytes", Bytes, "RAM of the machine that is free.", |n| n.system_ram_free_bytes).prometheus("flintkv_node_system_ram_free_bytes").chart(70, Mean, "machine_ram_free_bytes", "Machine", "Available RAM", "RAM that processes can still have without swapping."),
    node_span("machine_ram_free_percent", Percent, |span| 100.0 * quotient(span.now.figures.system_ram_free_bytes, span.now.figures.system_ram_bytes)).chart(80, Mean, "machine_ram_free_percent", "Machine", "Available RAM, of all", "Available RAM in percent of the machine's RAM."),
    node("flintkv_node_room_ram_bytes", Bytes, "RAM that all databases together may have.", |n| n.capacity.ram_bytes).prometheus("flintkv_node_room_ram_bytes"),
    node("flintkv_node_room_ram_taken_bytes", Bytes, "RAM that is promised to databases.", |n| n.capacity.ram_taken_bytes).prometheus("flintkv_node_room_ram_taken_bytes"),
    node("flintkv_node_room_flash_bytes", Bytes, "Flash that all databases together may have.", |n| n.capacity.flash_bytes).prometheus("flintkv_node_room_flash_bytes"),
    node("flintkv_node_room_flash_taken_bytes", Bytes, "Flash that is promised to databases.", |n| n.capacity.flash_taken_bytes).prometheus("flintkv_node_room_flash_taken_bytes"),
    node_span("disk_free_percent", Percent, |span| span.now.machine.least_free_percent()).chart(90, Mean, "disk_free_percent", "Machine", "Free on the fullest disk", "Free space in percent, of the fullest of the file systems that the node uses."),
    node_span("disk_latency_us", Us, |span| span.machine(|before, now| now.slowest_us(before))).chart(100, Mean, "disk_latency_us", "Machine", "Latency of the slowest disk", "How long a read or a write of the slowest disk that the node uses took on average, with its wait in the queue."),
    node_span("disk_busy_percent", Percent, |span| span.machine(|before, now| now.busiest_percent(before)))
        .chart(110, Mean, "disk_busy_percent", "Machine", "Busy time of the busiest disk", "Share of the time in which the busiest disk that the node uses had something to do. An NVMe device can take more even at 100."),
    node_span("ops", OpsPerS, |span| span.sum("ops")).chart(120, Mean, "ops", "Databases together", "Operations", "Commands per second of all databases."),
    node_span("clients", Count, |span| span.sum("clients")).chart(130, Mean, "clients", "Databases together", "Clients", "Connections to all databases."),
    node_span("net_in_bytes", BytesPerS, |span| span.sum("net_in_bytes")).chart(140, Mean, "net_in_bytes", "Databases together", "Received", "Bytes received from clients per second."),
    node_span("net_out_bytes", BytesPerS, |span| span.sum("net_out_bytes")).chart(150, Mean, "net_out_bytes", "Databases together", "Sent", "Bytes sent to clients per second."),
    node_span("flash_reads", OpsPerS, |span| span.sum("flash_reads")).chart(160, Mean, "flash_reads", "Databases together", "Flash reads", "Reads of flash per second."),
    node_span("flash_writes", OpsPerS, |span| span.sum("flash_writes")).chart(170, Mean, "flash_writes", "Databases together", "Flash writes", "Writes to flash per second."),
    node_span("flash_read_bytes", BytesPerS, |span| span.sum("flash_read_bytes")).chart(180, Mean, "flash_read_bytes", "Databases together", "Read from flash", "Bytes read from flash per second."),
    node_span("flash_write_bytes", BytesPerS, |span| span.sum("flash_write_bytes")).chart(190, Mean, "flash_write_bytes", "Databases together", "Written to flash", "Bytes written to flash per second."),
    node_span("used_ram_bytes", Bytes, |span| span.sum("used_ram_bytes")).chart(200, Mean, "used_ram_bytes", "Databases together", "Used RAM", "RAM of all databases."),
    node_span("used_flash_bytes", Bytes, |span| span.sum("used_flash_bytes")).chart(210, Mean, "used_flash_bytes", "Databases together", "Used flash", "Flash of all databases."),
    node_span("etcd_slowest_us", Us, |span| span.cluster(|c| Some(c.etcd_slowest_us? as f64))).chart(220, Peak, "etcd_slowest_us", "Cluster", "Slowest request to etcd", "How long the slowest of the node's requests to etcd of the last 10 to 20 seconds took."),
    node_span("clocks_apart_us", Us, |span| span.cluster(|c| Some(c.clocks_apart_us? as f64))).chart(230, Peak, "clocks_apart_us", "Cluster", "Clocks apart", "How far the node's clock and that of another node with data are apart at least."),
    node_span("nodes_down", Count, |span| span.cluster(|c| Some(c.nodes_down? as f64))).chart(240, Peak, "nodes_down", "Cluster", "Nodes that do not run", "Nodes of the cluster that do not run, as this one sees it."),
    node_span("no_controller", State, |span| span.cluster(|c| c.has_no_controller.map(flag))).chart(250, Peak, "no_controller", "Cluster", "No controller", "1 while nobody leads the cluster, so that no primary is named when a node is lost."),
    node_span("etcd_away", State, |span| span.cluster(|c| Some(flag(c.etcd_is_away)))).chart(260, Peak, "etcd_away", "Cluster", "No etcd", "1 while the node cannot follow the cluster's records in etcd."),
    node_span("etcd_no_leader", State, |span| span.cluster(|c| c.etcd_has_no_leader.map(flag))).chart(270, Peak, "etcd_no_leader", "Cluster", "No leader of etcd", "1 while the members of etcd that answer know no leader: less than a majority of them is there."),
];
