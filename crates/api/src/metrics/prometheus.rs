//! Owns /metrics: Prometheus's text format 0.0.4, with redis_exporter's names for what Redis has, and `flintkv_` for
//! the rest. Never asks a worker: a scrape reads counters.

use super::machine::{self, Machine};
use super::reading::Reading;
use crate::app::App;
use crate::auth::Role;
use crate::condition::{self, Facts, Word};
use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use crate::route::{Answer, Route};
use node::{Database, Durability, Figures, KeyCounts, Latencies, PrimaryFigures, ReplicaFigures, Summary};
use std::fmt::{Display, Write};
use std::sync::Arc;

pub const ROUTES: &[Route] = &[Route {
    path: "/metrics",
    role: None,
    tag: "Health and metrics",
    summary: "All metrics, for Prometheus. Open to this machine; other machines need a token or `console-metrics-open yes`.",
    reply: Answer::Text(CONTENT_TYPE),
    inline: true,
    run: scrape,
    ..Route::BASE
}];

const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Upper bounds of the latencies' buckets: powers of two from 1 µs to 4 s.
const BUCKETS: u32 = 23;

fn scrape(cx: &Cx) -> Result<Reply, ApiError> {
    let known = cx.who.as_ref().is_some_and(|who| who.role >= Role::Viewer);
    if !(known || cx.peer.is_local || cx.app.metrics_open) {
        return Err(ApiError::unauthenticated("metrics are open to this machine only")
            .hint("send a token as Authorization: Bearer fkv_…, or set console-metrics-open yes"));
    }
    Ok(Reply::text(CONTENT_TYPE, page(&cx.app, cx.now_ms())))
}

/// A page of families, each with its samples.
#[derive(Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
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

const GAUGE: &str = "gauge";
const COUNTER: &str = "counter";

type Of = fn(&Figures) -> u64;

#[rustfmt::skip]
const FIGURES: &[(&str, &str, &str, Of)] = &[
    ("redis_connected_clients", GAUGE, "Connections.", |f| f.clients),
    ("redis_config_maxclients", GAUGE, "The most connections: maxclients.", |f| f.clients_max),
    ("redis_blocked_clients", GAUGE, "Clients that wait for a key.", |f| f.blocked_clients),
    ("redis_evicted_clients_total", COUNTER, "Clients closed because they held most while others waited for memory.", |f| f.evicted_clients),
    ("flintkv_client_memory_bytes", GAUGE, "RAM of what clients ask for: replies, queries, transactions, messages.", |f| f.client_memory_bytes),
    ("flintkv_client_memory_max_bytes", GAUGE, "The most that clients may ask for at once now; 0: no limit.", |f| f.client_memory_max_bytes),
    ("flintkv_client_memory_waits_total", COUNTER, "How often a client had to wait for memory.", |f| f.client_memory_waits),
    ("flintkv_clients_waiting_for_memory", GAUGE, "Clients that wait for memory.", |f| f.clients_waiting_for_memory),
    ("redis_connections_received_total", COUNTER, "Connections accepted.", |f| f.connections_received),
    ("redis_rejected_connections_total", COUNTER, "Connections refused because of maxclients.", |f| f.rejected_connections),
    ("redis_commands_processed_total", COUNTER, "Commands run.", |f| f.commands_read + f.commands_write + f.commands_other),
    ("redis_net_input_bytes_total", COUNTER, "Bytes received from clients.", |f| f.net_in_bytes),
    ("redis_net_output_bytes_total", COUNTER, "Bytes sent to clients.", |f| f.net_out_bytes),
    ("redis_total_error_replies", COUNTER, "Error replies.", |f| f.error_replies),
    ("flintkv_refused_writes_total", COUNTER, "Commands that got OOM, MISCONF or NOREPLICAS.", |f| f.refused_for_room + f.refused_otherwise),
    ("flintkv_replicas_missing", GAUGE, "Replicas that writes need (min-replicas-to-write) and that do not keep up.", |f| f.replicas_missing),
    ("redis_keyspace_hits_total", COUNTER, "Reads that found their key.", |f| f.keyspace_hits),
    ("redis_keyspace_misses_total", COUNTER, "Reads of keys that did not exist.", |f| f.keyspace_misses),
    ("redis_expired_keys_total", COUNTER, "Keys that expired.", |f| f.store.expired_keys),
    ("redis_evicted_keys_total", COUNTER, "Keys that were evicted.", |f| f.store.evicted_keys),
    ("redis_memory_used_bytes", GAUGE, "RAM that counts against the RAM limit.", |f| f.used_ram_bytes),
    ("redis_memory_max_bytes", GAUGE, "RAM limit; 0: no limit.", |f| f.ram_limit_bytes),
    ("redis_memory_used_dataset_bytes", GAUGE, "Objects in RAM.", |f| f.store.object_bytes),
    ("flintkv_tier_keys", GAUGE, "Keys of all logical databases.", |f| f.store.keys),
    ("flintkv_tier_expires", GAUGE, "Keys that expire.", |f| f.expires),
    ("flintkv_tier_values_in_ram", GAUGE, "Keys whose value is in RAM.", |f| f.store.values_in_ram),
    ("flintkv_tier_values_in_flash", GAUGE, "Keys whose value is only on flash.", |f| f.store.values_in_flash),
    ("flintkv_tier_ram_hits_total", COUNTER, "Reads that found their value in RAM.", |f| f.reads_ram_hit),
    ("flintkv_tier_flash_hits_total", COUNTER, "Reads whose value came from flash.", |f| f.reads_flash_hit),
    ("flintkv_tier_memory_limit_bytes", GAUGE, "RAM and flash together; 0: no limit.", |f| f.memory_limit_bytes),
    ("flintkv_tier_index_bytes", GAUGE, "RAM of the index.", |f| f.store.index_bytes),
    ("flintkv_tier_flash_limit_bytes", GAUGE, "Flash that the database may use.", |f| f.flash_limit_bytes),
    ("flintkv_tier_files_bytes", GAUGE, "What the flash log, the journal and the checkpoints take of their devices.", |f| f.files_bytes),
    ("flintkv_tier_files_limit_bytes", GAUGE, "Limit of all files on flash; 0: none.", |f| f.files_limit_bytes),
    ("flintkv_tier_flash_used_bytes", GAUGE, "Flash in segments that are not empty.", |f| f.store.flash_used_bytes),
    ("flintkv_tier_flash_live_bytes", GAUGE, "Flash that live values take.", |f| f.store.flash_live_bytes),
    ("flintkv_tier_flash_charged_bytes", GAUGE, "Flash that live values take with the unused parts of their pages and segments.", |f| f.store.flash_charged_bytes),
    ("flintkv_tier_flash_usable_bytes", GAUGE, "Flash that live values may take, without the collector's part.", |f| f.store.flash_usable_bytes),
    ("flintkv_tier_flash_full_at_bytes", GAUGE, "At so many charged bytes flash is full.", |f| f.store.flash_full_at_bytes),
    ("flintkv_tier_flash_full", GAUGE, "1 if flash is full.", |f| f.store.flash_full.into()),
    ("flintkv_tier_ram_full", GAUGE, "1 if RAM is full of what cannot move to flash.", |f| f.store.ram_full.into()),
    ("flintkv_tier_flash_free_segments", GAUGE, "Segments that are empty.", |f| f.store.flash_free_segments),
    ("flintkv_tier_flash_retired_segments", GAUGE, "Segments not used because of an error, until a test finds them good.", |f| f.store.flash_retired_segments),
    ("flintkv_tier_flash_reads_total", COUNTER, "Reads of flash.", |f| f.store.flash_reads),
    ("flintkv_tier_flash_read_bytes_total", COUNTER, "Bytes read from flash.", |f| f.store.flash_read_bytes),
    ("flintkv_tier_flash_writes_total", COUNTER, "Writes to flash.", |f| f.store.flash_writes),
    ("flintkv_tier_flash_write_bytes_total", COUNTER, "Bytes written to flash.", |f| f.store.flash_write_bytes),
    ("flintkv_tier_flash_merged_reads_total", COUNTER, "Reads that used the page of another read.", |f| f.store.merged_reads),
    ("flintkv_tier_user_write_bytes_total", COUNTER, "Bytes of values that clients wrote.", |f| f.store.user_bytes),
    ("flintkv_tier_record_bytes_total", COUNTER, "Bytes of records before compression.", |f| f.store.record_bytes),
    ("flintkv_tier_record_stored_bytes_total", COUNTER, "Bytes of records as stored.", |f| f.store.record_stored_bytes),
    ("flintkv_tier_promotions_total", COUNTER, "Values that came into RAM.", |f| f.store.promotions),
    ("flintkv_tier_demotions_clean_total", COUNTER, "Values dropped from RAM whose copy on flash was valid.", |f| f.store.demotions_clean),
    ("flintkv_tier_demotions_written_total", COUNTER, "Values written to flash.", |f| f.store.demotions_written),
    ("flintkv_tier_collected_segments_total", COUNTER, "Segments collected.", |f| f.store.collected_segments),
    ("flintkv_tier_relocated_records_total", COUNTER, "Records that collection moved.", |f| f.store.relocated_records),
    ("flintkv_tier_taken_records_total", COUNTER, "Values that came in pages of a primary's flash.", |f| f.store.taken_records),
    ("flintkv_tier_checksum_errors_total", COUNTER, "Pages whose checksum was wrong.", |f| f.store.checksum_errors),
    ("flintkv_tier_read_errors_total", COUNTER, "Reads of flash that failed.", |f| f.store.read_errors),
    ("flintkv_tier_write_errors_total", COUNTER, "Writes to flash that failed.", |f| f.store.write_errors),
    ("flintkv_tier_scrubbed_bytes_total", COUNTER, "Bytes on flash that the scrubber has checked.", |f| f.store.scrubbed_bytes),
    ("flintkv_tier_scrub_rounds_total", COUNTER, "How often the scrubber has checked everything.", |f| f.store.scrub_rounds),
    ("flintkv_tier_rotten_pages_total", COUNTER, "Damaged pages that were found, each once.", |f| f.store.rotten_pages),
    ("flintkv_tier_rotten_keys_total", COUNTER, "Keys that were found to have lost values on damaged pages, each once.", |f| f.store.rotten_keys),
    ("flintkv_tier_rescued_values_total", COUNTER, "Values with a copy on a damaged page that were in RAM too.", |f| f.store.rescued_values),
    ("flintkv_damaged_journals_total", COUNTER, "How often the scrubber has found damage in the journal, and a new checkpoint was written.", |f| f.durability.damaged_journals),
    ("flintkv_damaged_backups", GAUGE, "Files of backups and of the archived journal that the scrubber has found damaged, and that are still there.", |f| f.durability.damaged_backups),
    ("flintkv_damaged_checkpoints_total", COUNTER, "Checkpoints that the scrubber has found damaged, and replaced.", |f| f.durability.damaged_checkpoints),
    ("redis_loading_dump_file", GAUGE, "1 while the dataset is being loaded.", |f| f.durability.is_loading.into()),
    ("flintkv_load_failed", GAUGE, "1 if the dataset could not be loaded: the database serves nobody.", |f| f.durability.load_has_failed.into()),
    ("redis_rdb_changes_since_last_save", GAUGE, "Changes since the last dump.", |f| f.durability.changes_since_save),
    ("redis_rdb_bgsave_in_progress", GAUGE, "1 while a dump is written in the background.", |f| f.durability.is_saving.into()),
    ("redis_rdb_last_save_timestamp_seconds", GAUGE, "When the last dump was written, since 1970.", |f| f.durability.last_save_at_s),
    ("redis_rdb_last_bgsave_status", GAUGE, "1 if the last dump was written, 0 if it failed.", |f| (!f.durability.last_save_failed).into()),
    ("redis_rdb_last_bgsave_duration_sec", GAUGE, "How long the last dump in the background took.", |f| f.durability.last_save_took_s),
    ("redis_rdb_saves_total", COUNTER, "Dumps that were written.", |f| f.durability.saves),
    ("redis_aof_enabled", GAUGE, "1 if the dataset survives a restart.", |f| f.durability.is_kept.into()),
    ("redis_aof_rewrite_in_progress", GAUGE, "1 while a new checkpoint is written.", |f| f.durability.is_rewriting.into()),
    ("redis_aof_last_rewrite_duration_sec", GAUGE, "How long the last checkpoint took.", |f| f.durability.last_checkpoint_took_s),
    ("redis_aof_last_bgrewrite_status", GAUGE, "1 if the last checkpoint was written, 0 if it failed.", |f| (f.durability.checkpoint_failures == 0).into()),
    ("redis_aof_last_write_status", GAUGE, "0 if the journal cannot be written: writes are refused.", |f| (!f.durability.journal_has_failed).into()),
    ("redis_aof_current_size_bytes", GAUGE, "Bytes that the checkpoint and the journal behind it take.", |f| f.durability.checkpoint_bytes + f.durability.tail_file_bytes),
    ("redis_aof_base_size_bytes", GAUGE, "Bytes of the checkpoint.", |f| f.durability.checkpoint_bytes),
    ("redis_aof_delayed_fsync", GAUGE, "1 while the journal's device is behind, and writes wait.", |f| f.durability.is_behind.into()),
    ("flintkv_journal_tail_bytes", GAUGE, "Bytes of the journal behind the checkpoint, which a restart replays.", |f| f.durability.tail_bytes),
    ("flintkv_journal_unsynced_bytes", GAUGE, "Bytes of the journal that are not on the device yet.", |f| f.durability.unsynced_bytes),
    ("flintkv_journal_file_bytes", GAUGE, "Bytes of the journal's files, those that are made ahead included.", |f| f.durability.journal_file_bytes),
    ("flintkv_journal_records_total", COUNTER, "Records that were appended to the journal.", |f| f.durability.journal_records),
    ("flintkv_journal_bytes_total", COUNTER, "Bytes that were appended to the journal since its first day.", |f| f.durability.journal_bytes),
    ("flintkv_journal_syncs_total", COUNTER, "Syncs of the journal's device.", |f| f.durability.journal_syncs),
    ("flintkv_recovery_late", GAUGE, "1 if a restart would take longer than recovery-time-target, or the last one has.", |f| f.durability.recovery_is_late.into()),
    ("flintkv_journal_missing_bytes", GAUGE, "Bytes that the journal's file system is short of, for the next checkpoint and the journal up to it.", |f| f.durability.journal_missing_bytes),
    ("flintkv_backup_in_progress", GAUGE, "1 while a backup is made.", |f| f.durability.is_backing_up.into()),
    ("flintkv_backup_last_status", GAUGE, "0 if the last backup failed.", |f| (!f.durability.last_backup_failed).into()),
    ("flintkv_backup_last_success_timestamp_seconds", GAUGE, "When the newest backup known to the node was begun, since 1970; 0: none.", |f| f.durability.last_backup_at_s),
    ("flintkv_archive_failed", GAUGE, "1 if the journal cannot be copied beside the backups.", |f| f.durability.archive_has_failed.into()),
    ("flintkv_archive_until_timestamp_seconds", GAUGE, "Up to when the journal is copied beside the backups, since 1970; 0: it is not.", |f| f.durability.archived_until_s),
    ("redis_connected_slaves", GAUGE, "Replicas that are connected.", |f| f.replication.replicas.len() as u64),
    ("redis_master_repl_offset", GAUGE, "Bytes of the stream for replicas; 0: there is none.", |f| f.replication.offset),
    ("redis_replication_backlog_bytes", GAUGE, "The most bytes that the backlog for replicas holds.", |f| f.replication.backlog_bytes_max),
    ("redis_repl_backlog_is_active", GAUGE, "1 if there is a stream for replicas.", |f| (!f.replication.id.is_empty()).into()),
    ("redis_repl_backlog_first_byte_offset", GAUGE, "The first byte of the stream that the backlog has.", |f| if f.replication.id.is_empty() { 0 } else { f.replication.backlog.start + 1 }),
    ("redis_repl_backlog_history_bytes", GAUGE, "Bytes of the stream that the backlog has.", |f| f.replication.backlog.end - f.replication.backlog.start),
    ("redis_replica_resyncs_full", GAUGE, "Replicas that got the whole dataset.", |f| f.replication.full_syncs),
    ("redis_replica_partial_resync_accepted", GAUGE, "Replicas that went on where they were.", |f| f.replication.partial_syncs),
    ("redis_replica_partial_resync_denied", GAUGE, "Replicas that could not go on where they were.", |f| f.replication.refused_partial_syncs),
    ("flintkv_replication_sent_bytes_total", COUNTER, "Bytes sent to replicas.", |f| f.replication.sent_bytes),
    ("flintkv_replication_received_bytes_total", COUNTER, "Bytes received from the primary.", |f| f.replication.received_bytes),
    ("flintkv_replication_failed_commands_total", COUNTER, "Commands of the primary that have failed here.", |f| f.replication.failed_commands),
    ("flintkv_replication_checks_total", COUNTER, "Comparisons of the datasets of primary and replica, as either of them.", |f| f.replication.checks.done),
    ("flintkv_replication_checks_given_up_total", COUNTER, "Comparisons of the datasets that could not be made.", |f| f.replication.checks.given_up),
    ("flintkv_replication_differences_total", COUNTER, "Comparisons that have found that the dataset is not the primary's.", |f| f.replication.checks.differences),
];

type OfReplica = fn(&ReplicaFigures) -> u64;
#[rustfmt::skip]
const REPLICAS: &[(&str, &str, OfReplica)] = &[
    ("redis_connected_slave_offset_bytes", "Bytes of the stream that a replica has.", |replica| replica.offset),
    ("redis_connected_slave_lag_seconds", "Seconds since a replica last said what it has.", |replica| replica.silent_ms / 1000),
    ("flintkv_replica_lag_bytes", "Bytes of the stream that a replica has not.", |replica| replica.lag_bytes),
];

type OfPrimary = fn(&PrimaryFigures) -> u64;
#[rustfmt::skip]
const PRIMARIES: &[(&str, &str, OfPrimary)] = &[
    ("redis_master_link_up", "1 if the replica is connected with its primary.", |primary| primary.is_up.into()),
    ("redis_master_last_io_seconds_ago", "Seconds since the last byte of the primary.", |primary| primary.silent_ms.unwrap_or(0) / 1000),
    ("redis_master_sync_in_progress", "1 while the primary's dataset is copied.", |primary| primary.is_synchronising.into()),
];

type Percent = fn(&Figures) -> Option<f64>;
/// Percentages, shown as ratios.
const RATIOS: &[(&str, &str, Percent)] = &[
    ("flintkv_ram_used_ratio", "Used RAM, of the RAM limit.", condition::ram_percent),
    (
        "flintkv_tier_flash_used_ratio",
        "Values on flash, of what they may take; at 1 flash is full.",
        condition::flash_percent,
    ),
    ("flintkv_tier_files_used_ratio", "Files on flash, of their limit.", condition::files_percent),
    ("flintkv_index_ratio", "The index, of the RAM limit.", condition::index_percent),
    ("flintkv_clients_used_ratio", "Connections, of maxclients.", condition::clients_percent),
];

/// Spans of time in microseconds, shown in seconds.
type Microseconds = fn(&Durability) -> u64;

#[rustfmt::skip]
const SPANS: &[(&str, &str, &str, Microseconds)] = &[
    ("flintkv_journal_last_sync_seconds", GAUGE, "How long the last sync of the journal took.", |d| d.last_sync_us),
    ("flintkv_journal_behind_seconds_total", COUNTER, "For how long the journal's ring was nearly full, and writes waited for its device.", |d| d.behind_us),
    ("flintkv_recovery_estimated_seconds", GAUGE, "How long a restart would take, as estimated.", |d| d.recovery_estimated_ms * 1000),
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

fn page(app: &App, now_ms: u64) -> String {
    let node = &app.node;
    let mut page = Page(String::with_capacity(64 << 10));
    let all: Vec<_> = node.databases().into_iter().map(|database| (Reading::of(&database, now_ms), database)).collect();

    page.family("redis_up", GAUGE, "1: the database serves clients.");
    for (_, database) in &all {
        page.sample("redis_up", &[("database", database.name())], 1);
    }
    page.family("redis_uptime_in_seconds", GAUGE, "Seconds since the start of the database.");
    for (reading, database) in &all {
        page.sample("redis_uptime_in_seconds", &[("database", database.name())], reading.figures.uptime_s);
    }
    page.family("flintkv_database_paused", GAUGE, "1 while the database is paused by its operator.");
    for (_, database) in &all {
        let paused = u8::from(database.is_paused());
        page.sample("flintkv_database_paused", &[("database", database.name())], paused);
    }
    for (name, kind, help, of) in FIGURES {
        page.family(name, kind, help);
        for (reading, database) in &all {
            page.sample(name, &[("database", database.name())], of(&reading.figures));
        }
    }
    for (name, help, percent) in RATIOS {
        page.family(name, GAUGE, help);
        for (reading, database) in &all {
            if let Some(percent) = percent(&reading.figures) {
                page.sample(name, &[("database", database.name())], percent / 100.0);
            }
        }
    }
    conditions(&mut page, app, &all);
    for (name, kind, help, us) in SPANS {
        page.family(name, kind, help);
        for (reading, database) in &all {
            page.sample(name, &[("database", database.name())], us(&reading.figures.durability) as f64 / 1e6);
        }
    }
    replication(&mut page, app, &all, now_ms);
    type Count = fn(&KeyCounts) -> u64;
    let of_keyspaces: [(&str, &str, Count); 2] = [
        ("redis_db_keys", "Keys of a logical database.", |counts| counts.keys),
        ("redis_db_keys_expiring", "Keys of a logical database that expire.", |counts| counts.expires),
    ];
    for (name, help, of) in of_keyspaces {
        page.family(name, GAUGE, help);
        for (reading, database) in &all {
            let by_database = reading.figures.store.by_database.iter().enumerate();
            for (db, counts) in by_database.filter(|(_, counts)| counts.keys > 0) {
                page.sample(name, &[("database", database.name()), ("db", &format!("db{db}"))], of(counts));
            }
        }
    }
    for (name, help, series) in LATENCIES {
        page.family(name, "histogram", help);
        for (reading, database) in &all {
            for (tier, of) in *series {
                let labels = [("database", database.name()), ("tier", tier)];
                histogram(
                    &mut page,
                    name,
                    if tier.is_empty() { &labels[..1] } else { &labels },
                    of(&reading.latencies),
                );
            }
        }
    }
    node_metrics(&mut page, app);
    page.0
}

/// As redis_exporter and Prometheus have sets of states: one sample for each word, 1 where it applies.
fn conditions(page: &mut Page, app: &App, all: &[(Reading, Arc<Database>)]) {
    let name = "flintkv_database_condition";
    page.family(name, GAUGE, "1 for each word that says what a database is or does.");
    for (reading, database) in all {
        let refuses = app.watch.now(database.name()).get("refused").copied().flatten().is_some_and(|rate| rate > 0.0);
        let found = Facts::of(database, &reading.figures, refuses).conditions();
        for word in Word::WORDS {
            let applies = found.iter().any(|condition| condition.name.as_str() == *word);
            page.sample(name, &[("database", database.name()), ("condition", word)], u8::from(applies));
        }
    }
}

fn replication(page: &mut Page, app: &App, all: &[(Reading, Arc<Database>)], now_ms: u64) {
    page.family("flintkv_replica_lag_seconds", GAUGE, "The age of the first change that a replica has not.");
    for (reading, database) in all {
        for replica in &reading.figures.replication.replicas {
            let (ip, port) = (&*replica.ip, &*replica.port.to_string());
            let labels = [("database", database.name()), ("slave_ip", ip), ("slave_port", port)];
            let lag_ms = app.watch.lag_ms(database.name(), replica.offset, now_ms);
            page.sample("flintkv_replica_lag_seconds", &labels, lag_ms as f64 / 1000.0);
        }
    }
    for (name, help, of) in REPLICAS {
        page.family(name, GAUGE, help);
        for (reading, database) in all {
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
        for (reading, database) in all {
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

fn node_metrics(page: &mut Page, app: &App) {
    let node = &app.node;
    let (figures, room) = (node.figures(), node.capacity());
    let info = [("version", node.version()), ("redis_version", node::REDIS_VERSION), ("run_id", node.run_id())];
    page.family("flintkv_node_info", GAUGE, "What runs.");
    page.sample("flintkv_node_info", &info, 1);
    let seconds = |us: u64| us as f64 / 1e6;
    page.family("flintkv_node_cpu_seconds_total", COUNTER, "Processor time of the process.");
    page.sample("flintkv_node_cpu_seconds_total", &[("mode", "user")], seconds(figures.cpu_user_us));
    page.sample("flintkv_node_cpu_seconds_total", &[("mode", "system")], seconds(figures.cpu_system_us));
    for (name, help, value) in [
        ("process_resident_memory_bytes", "RAM of the process.", figures.resident_bytes),
        ("process_open_fds", "Open files of the process.", figures.open_files),
        ("process_start_time_seconds", "When the process started, since 1970.", node.started_ms() / 1000),
        ("flintkv_node_workers", "Threads that serve data.", node.workers() as u64),
        ("flintkv_node_cores", "Processors of the machine.", figures.cores),
        ("flintkv_node_system_ram_bytes", "RAM of the machine.", figures.system_ram_bytes),
        ("flintkv_node_system_ram_free_bytes", "RAM of the machine that is free.", figures.system_ram_free_bytes),
        ("flintkv_node_room_ram_bytes", "RAM that databases may have together.", room.ram_bytes),
        ("flintkv_node_room_ram_taken_bytes", "RAM that databases were given.", room.ram_taken_bytes),
        ("flintkv_node_room_flash_bytes", "Flash that databases may have together.", room.flash_bytes),
        ("flintkv_node_room_flash_taken_bytes", "Flash that databases were given.", room.flash_taken_bytes),
        ("flintkv_node_alerts_firing", "Alerts that fire.", app.alerts.firing()),
    ] {
        page.family(name, GAUGE, help);
        page.sample(name, &[], value);
    }
    machine_metrics(page, &Machine::look(&machine::places(node)));
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

    #[test]
    fn names_are_unique_and_counters_end_as_counters_do() {
        let mut names: Vec<&str> = FIGURES.iter().map(|(name, ..)| *name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
        for (name, kind, help, _) in FIGURES {
            // redis_exporter's name, which its dashboards use.
            let exception = *name == "redis_total_error_replies";
            assert_eq!(*kind == COUNTER, name.ends_with("_total") || exception, "{name}");
            assert!(help.ends_with('.'), "{name}");
        }
    }
}
