//! Owns INFO: the sections and field names of Redis 7.2, and the section Tiering. Never counts anything itself.

use crate::database::{Database, Rate};
use crate::memory::{Allocator, cpu_us, resident_bytes, system_bytes};
use crate::role::{Following, GivenUp, Left, LinkState};
use base::size;
use commands::host::{REDIS_VERSION, Space};
use engine::replication::Link;
use engine::{Summary, wall_ms};
use std::cell::OnceCell;
use std::fmt::{Display, Write as _};
use std::sync::atomic::Ordering::Relaxed;
use store::StoreStats;

#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// Shown without being named.
    Default,
    /// Shown for `all` and `everything`, or by name.
    Asked,
}

type Write = fn(&Facts<'_>, &mut Text);

const SECTIONS: &[(&str, When, Write)] = &[
    ("Server", When::Default, server),
    ("Clients", When::Default, clients),
    ("Memory", When::Default, memory),
    ("Persistence", When::Default, persistence),
    ("Stats", When::Default, stats),
    ("Tiering", When::Default, tiering),
    ("Replication", When::Default, replication),
    ("CPU", When::Default, cpu),
    ("Modules", When::Default, modules),
    ("Commandstats", When::Asked, commandstats),
    ("Errorstats", When::Default, errorstats),
    ("Latencystats", When::Asked, latencystats),
    ("Cluster", When::Default, cluster),
    ("Keyspace", When::Default, keyspace),
];

/// Everything that more than one section shows, collected once, and only if a wanted section shows it.
struct Facts<'a> {
    database: &'a Database,
    now_ms: u64,
    store: OnceCell<StoreStats>,
    allocator: OnceCell<Allocator>,
    rates: OnceCell<[u64; Rate::COUNT]>,
}

impl Facts<'_> {
    fn store(&self) -> &StoreStats {
        self.store.get_or_init(|| self.database.shard.store.stats())
    }

    fn allocator(&self) -> &Allocator {
        self.allocator.get_or_init(Allocator::now)
    }

    fn rate(&self, rate: Rate) -> u64 {
        self.rates.get_or_init(|| self.database.rates.lock().per_second())[rate as usize]
    }

    /// Redis's used_memory: the bytes allocated from the allocator and from the store's own arena.
    fn used_bytes(&self) -> u64 {
        self.database.allocated_of(self.allocator().allocated) + self.store().object_bytes
    }
}

/// Lines of the form `field:value`.
#[derive(Default)]
struct Text(String);

impl Text {
    fn line(&mut self, name: &str, value: impl Display) {
        // Writing to a String cannot fail.
        let _ = write!(self.0, "{name}:{value}\r\n");
    }

    fn lines(&mut self, lines: &[(&str, &dyn Display)]) {
        for (name, value) in lines {
            self.line(name, value);
        }
    }

    fn both(&mut self, name: &str, bytes: u64) {
        self.line(name, bytes);
        self.line(&format!("{name}_human"), size::info(bytes));
    }

    fn ratio(&mut self, name: &str, part: u64, whole: u64) {
        self.line(name, format_args!("{:.2}", if whole == 0 { 0.0 } else { part as f64 / whole as f64 }));
    }

    fn percent(&mut self, name: &str, part: u64, whole: u64) {
        let percent = if whole == 0 { 100.0 } else { 100.0 * part as f64 / whole as f64 };
        self.line(name, format_args!("{percent:.2}"));
    }
}

/// The wanted sections in INFO's order. If none is named: the default sections.
pub fn info(database: &Database, wanted: &[&[u8]]) -> String {
    let asks = |name: &str| wanted.iter().any(|word| word.eq_ignore_ascii_case(name.as_bytes()));
    let all = asks("all") || asks("everything");
    let default = wanted.is_empty() || asks("default");
    let facts = Facts {
        database,
        now_ms: wall_ms(),
        store: OnceCell::new(),
        allocator: OnceCell::new(),
        rates: OnceCell::new(),
    };
    let mut text = Text::default();
    for (name, when, write) in SECTIONS {
        if all || (default && *when == When::Default) || asks(name) {
            if !text.0.is_empty() {
                text.0.push_str("\r\n");
            }
            let _ = write!(text.0, "# {name}\r\n");
            write(&facts, &mut text);
        }
    }
    text.0
}

fn server(facts: &Facts<'_>, text: &mut Text) {
    let database = facts.database;
    let config = database.hub.config.snapshot();
    let uptime_s = database.started.elapsed().as_secs();
    let executable = std::env::current_exe().map_or(String::new(), |path| path.display().to_string());
    let system = rustix::system::uname();
    let os = [system.sysname(), system.release(), system.machine()].map(|part| part.to_string_lossy().into_owned());
    text.lines(&[
        ("redis_version", &REDIS_VERSION),
        ("flintkv_version", &env!("CARGO_PKG_VERSION")),
        ("redis_git_sha1", &"00000000"),
        ("redis_git_dirty", &0),
        ("redis_build_id", &0),
        ("redis_mode", &"standalone"),
        ("os", &os.join(" ")),
        ("arch_bits", &usize::BITS),
        ("monotonic_clock", &"quanta"),
        ("multiplexing_api", &"epoll"),
        ("atomicvar_api", &"rust-atomic"),
        ("process_id", &std::process::id()),
        ("process_supervised", &crate::supervise::manager()),
        ("run_id", &database.run_id),
        ("tcp_port", &config.port),
        ("server_time_usec", &(facts.now_ms * 1000)),
        ("uptime_in_seconds", &uptime_s),
        ("uptime_in_days", &(uptime_s / 86_400)),
        ("hz", &config.hz),
        ("configured_hz", &config.hz),
        ("lru_clock", &((facts.now_ms / 1000) & 0xff_ffff)),
        ("executable", &executable),
        ("config_file", &database.hub.config.file().map_or(String::new(), |path| path.display().to_string())),
        ("io_threads_active", &u8::from(database.hub.worker_handles.len() > 1)),
        ("io_threads", &database.hub.worker_handles.len()),
    ]);
    if let Some(left_ms) = database.ending.left_ms(facts.now_ms) {
        text.line("shutdown_in_milliseconds", left_ms);
    }
}

fn clients(facts: &Facts<'_>, text: &mut Text) {
    let totals = facts.database.hub.clients.totals();
    let blocked = facts.database.hub.clients.blocked.load(Relaxed);
    let (keys, keys_any_change) = facts.database.shard.store.waited_for();
    text.lines(&[
        // Without replicas, as Redis counts.
        ("connected_clients", &totals.count.saturating_sub(facts.database.hub.dataset.links.all().len())),
        ("cluster_connections", &0),
        ("maxclients", &engine::ProcessControl::clients_max(facts.database)),
        ("client_recent_max_input_buffer", &totals.query_bytes_max),
        ("client_recent_max_output_buffer", &totals.output_bytes_max),
        ("blocked_clients", &blocked),
        ("tracking_clients", &facts.database.hub.tracking.counts().clients),
        ("pubsub_clients", &totals.listening),
        ("clients_waiting_for_memory", &facts.database.hub.dataset.memory.waiting()),
        ("clients_in_timeout_table", &0),
        ("total_blocking_keys", &keys),
        ("total_blocking_keys_on_nokey", &keys_any_change),
    ]);
}

fn memory(facts: &Facts<'_>, text: &mut Text) {
    let (database, store, allocator) = (facts.database, facts.store(), facts.allocator());
    let config = database.hub.config.snapshot();
    let used = facts.used_bytes();
    let peak = database.memory_peak_bytes.fetch_max(used, Relaxed).max(used);
    let startup = database.memory_startup_bytes.load(Relaxed);
    let resident = database.resident_of(resident_bytes());
    let dataset = store.object_bytes;
    let clients = database.hub.clients.totals().memory_bytes as u64;
    let stream = &database.hub.dataset.journaling.stream;
    let kept = stream.backlog();
    // The backlog's bytes that are in RAM. A replica has no buffer of its own.
    let replication_bytes = (kept.end - kept.start).min(stream.window_bytes() as u64);
    text.both("used_memory", used);
    text.both("used_memory_rss", resident);
    text.both("used_memory_peak", peak);
    text.line("used_memory_peak_perc", format_args!("{:.2}%", 100.0 * used as f64 / peak.max(1) as f64));
    text.line("used_memory_overhead", used.saturating_sub(dataset));
    text.line("used_memory_startup", startup);
    text.line("used_memory_dataset", dataset);
    let net = used.saturating_sub(startup).max(1);
    text.line("used_memory_dataset_perc", format_args!("{:.2}%", (100.0 * dataset as f64 / net as f64).min(100.0)));
    text.lines(&[
        ("allocator_allocated", &allocator.allocated),
        ("allocator_active", &allocator.active),
        ("allocator_resident", &allocator.resident),
    ]);
    text.both("total_system_memory", system_bytes("MemTotal"));
    let scripts = &database.hub.scripts;
    let interpreters = scripts.interpreter_bytes();
    text.line("used_memory_vm_eval", interpreters);
    text.both("used_memory_lua", interpreters);
    text.line("used_memory_scripts_eval", scripts.bytes());
    text.line("number_of_cached_scripts", scripts.count());
    text.line("number_of_functions", scripts.libraries.read().function_count());
    text.line("number_of_libraries", scripts.libraries.read().all().len());
    text.both("used_memory_vm_total", interpreters);
    text.both("used_memory_scripts", interpreters + scripts.bytes() as u64);
    text.both("maxmemory", config.ram_limit_bytes);
    text.line("maxmemory_policy", config.maxmemory_policy.as_str());
    text.ratio("allocator_frag_ratio", allocator.active, allocator.allocated);
    text.line("allocator_frag_bytes", allocator.active.saturating_sub(allocator.allocated));
    text.ratio("allocator_rss_ratio", allocator.resident, allocator.active);
    text.line("allocator_rss_bytes", allocator.resident.saturating_sub(allocator.active));
    text.ratio("rss_overhead_ratio", resident, allocator.resident + store.arena_bytes);
    text.line("rss_overhead_bytes", resident as i64 - (allocator.resident + store.arena_bytes) as i64);
    text.ratio("mem_fragmentation_ratio", resident, used);
    text.line("mem_fragmentation_bytes", resident as i64 - used as i64);
    text.lines(&[
        ("mem_not_counted_for_evict", &0),
        ("mem_replication_backlog", &database.hub.dataset.journaling.stream.window_bytes()),
        ("mem_total_replication_buffers", &replication_bytes),
        ("mem_clients_slaves", &0),
        ("mem_clients_normal", &clients),
        ("mem_clients_charged", &database.hub.dataset.memory.bytes()),
        ("mem_clients_charged_max", &database.hub.dataset.memory.bytes_max().unwrap_or(0)),
        ("mem_cluster_links", &0),
        ("mem_aof_buffer", &0),
        ("mem_allocator", &"arena+jemalloc"),
        ("active_defrag_running", &0),
        ("lazyfree_pending_objects", &0),
        ("lazyfreed_objects", &store.lazy_freed),
    ]);
}

fn persistence(facts: &Facts<'_>, text: &mut Text) {
    let files = &facts.database.files;
    let since_ms = files.loading_since_ms.load(Relaxed);
    let saving = files.saving_since_ms.load(Relaxed) != 0;
    let background_ms = files.background_since_ms.load(Relaxed);
    let background_s = match background_ms {
        0 => -1,
        since_ms => (facts.now_ms.saturating_sub(since_ms) / 1000) as i64,
    };
    let last_background_s = match files.last_background_took_ms.load(Relaxed) {
        0 => -1,
        took_ms => (took_ms / 1000) as i64,
    };
    let status = if files.last_save_failed.load(Relaxed) { "err" } else { "ok" };
    // Clients are served when this is 0, not a moment later.
    let is_loading = facts.database.hub.clients.load_state() != engine::LoadState::Open;
    text.line("loading", u8::from(is_loading));
    text.line("async_loading", 0);
    if is_loading {
        let (total, loaded) = (files.loading_total_bytes.load(Relaxed), files.loaded_bytes.load(Relaxed));
        let elapsed_ms = facts.now_ms.saturating_sub(since_ms);
        let left = total.saturating_sub(loaded) as u128;
        text.lines(&[
            ("loading_start_time", &(since_ms / 1000)),
            ("loading_total_bytes", &total),
            ("loading_rdb_used_mem", &0),
            ("loading_loaded_bytes", &loaded),
            ("loading_loaded_perc", &format!("{:.2}", 100.0 * loaded as f64 / total.max(1) as f64)),
            ("loading_eta_seconds", &(u128::from(elapsed_ms) * left / u128::from(loaded.max(1)) / 1000)),
        ]);
    }
    text.lines(&[
        ("current_cow_peak", &0),
        ("current_cow_size", &0),
        ("current_fork_perc", &"0.00"),
        ("current_save_keys_processed", &if saving { files.saved_keys.load(Relaxed) } else { 0 }),
        ("current_save_keys_total", &if saving { facts.store().keys } else { 0 }),
        ("rdb_changes_since_last_save", &facts.database.changes_since_save()),
        ("rdb_bgsave_in_progress", &u8::from(background_ms != 0)),
        ("rdb_last_save_time", &engine::PersistenceControl::last_save_s(facts.database)),
        ("rdb_last_bgsave_status", &status),
        ("rdb_last_bgsave_time_sec", &last_background_s),
        ("rdb_current_bgsave_time_sec", &background_s),
        ("rdb_saves", &files.saves.load(Relaxed)),
        ("rdb_last_cow_size", &0),
        ("rdb_last_load_keys_expired", &files.keys_expired.load(Relaxed)),
        ("rdb_last_load_keys_loaded", &files.keys_loaded.load(Relaxed)),
    ]);
    journal(facts, text);
    text.lines(&[("module_fork_in_progress", &0), ("module_fork_last_cow_size", &0)]);
}

/// The journal is what Redis's append-only file is.
fn journal(facts: &Facts<'_>, text: &mut Text) {
    let state = &facts.database.files.journal;
    let kept = state.kept.lock().clone();
    let failed = kept.as_ref().and_then(|kept| kept.log.failed());
    let status = |is_bad| if is_bad { "err" } else { "ok" };
    let since_ms = state.rewriting_since_ms.load(Relaxed);
    let failures = state.rewrite_failures.load(Relaxed);
    let seconds = |ms: u64| if ms == 0 { -1 } else { (ms / 1000) as i64 };
    let current = if since_ms == 0 { -1 } else { (facts.now_ms.saturating_sub(since_ms) / 1000) as i64 };
    text.lines(&[
        ("aof_enabled", &u8::from(kept.is_some())),
        ("aof_rewrite_in_progress", &u8::from(since_ms != 0)),
        ("aof_rewrite_scheduled", &0),
        ("aof_last_rewrite_time_sec", &seconds(state.last_rewrite_took_ms.load(Relaxed))),
        ("aof_current_rewrite_time_sec", &current),
        ("aof_last_bgrewrite_status", &status(failures > 0)),
        ("aof_rewrites", &state.rewrites.load(Relaxed)),
        ("aof_rewrites_consecutive_failures", &failures),
        ("aof_last_write_status", &status(failed.is_some())),
        ("aof_last_cow_size", &0),
    ]);
    let Some(kept) = kept else { return };
    let figures = kept.log.figures();
    let position = kept.log.position();
    text.lines(&[
        ("aof_current_size", &(kept.checkpoint_bytes() + kept.tail_file_bytes())),
        ("aof_base_size", &kept.checkpoint_bytes()),
        ("aof_pending_rewrite", &0),
        ("aof_buffer_length", &(position - kept.log.durable())),
        ("aof_pending_bio_fsync", &0),
        ("aof_delayed_fsync", &u8::from(figures.behind.is_some())),
        ("journal_position", &position),
        ("journal_durable_position", &kept.log.durable()),
        ("journal_checkpoint_position", &kept.manifest.position),
        ("journal_records", &figures.records),
        ("journal_bytes", &figures.bytes),
        ("journal_written_bytes", &figures.written_bytes),
        ("journal_files", &figures.files),
        ("journal_file_bytes", &figures.file_bytes),
        ("journal_syncs", &figures.syncs),
        ("journal_last_sync_us", &figures.last_sync.as_micros()),
        ("journal_behind_ms", &figures.behind_total.as_millis()),
        ("recovery_estimated_ms", &facts.database.restart_estimate(&kept).total_ms()),
        ("recovery_last_ms", &state.recovery_took_ms.load(Relaxed)),
        ("lost_keys", &facts.database.shard.store.lost_keys()),
        ("lost_records", &facts.database.hub.dataset.lost.commands.load(Relaxed)),
        ("journal_missing_bytes", &state.missing_bytes.load(Relaxed)),
        ("journal_error", &failed.or(figures.trouble).unwrap_or_default()),
    ]);
}

fn stats(facts: &Facts<'_>, text: &mut Text) {
    let (database, store) = (facts.database, facts.store());
    let all = &database.hub.stats;
    let too_slow = database.hub.clients.too_slow.load(Relaxed);
    let tracked = database.hub.tracking.counts();
    let kilobytes = |rate| format!("{:.2}", facts.rate(rate) as f64 / 1024.0);
    let (rounds, rounds_per_s) = (database.rounds(), facts.rate(Rate::Rounds));
    text.lines(&[
        ("total_connections_received", &all.sum(|worker| &worker.connections)),
        ("total_commands_processed", &all.sum(|worker| &worker.commands)),
        ("instantaneous_ops_per_sec", &facts.rate(Rate::Commands)),
        ("total_net_input_bytes", &all.sum(|worker| &worker.net_in_bytes)),
        ("total_net_output_bytes", &all.sum(|worker| &worker.net_out_bytes)),
        ("total_net_repl_input_bytes", &database.replication.role.received_bytes.load(Relaxed)),
        ("total_net_repl_output_bytes", &database.hub.dataset.links.sent_bytes.load(Relaxed)),
        ("instantaneous_input_kbps", &kilobytes(Rate::NetInBytes)),
        ("instantaneous_output_kbps", &kilobytes(Rate::NetOutBytes)),
        ("instantaneous_input_repl_kbps", &"0.00"),
        ("instantaneous_output_repl_kbps", &"0.00"),
        ("rejected_connections", &database.rejected_connections()),
        ("sync_full", &database.hub.dataset.links.full_syncs.load(Relaxed)),
        ("sync_partial_ok", &database.hub.dataset.links.partial_syncs.load(Relaxed)),
        ("sync_partial_err", &database.hub.dataset.links.refused_partial_syncs.load(Relaxed)),
        ("expired_keys", &store.expired_keys),
        ("expired_stale_perc", &"0.00"),
        ("expired_time_cap_reached_count", &0),
        ("expire_cycle_cpu_milliseconds", &0),
        ("evicted_keys", &store.evicted_keys),
        ("evicted_clients", &database.hub.dataset.memory.evicted.load(Relaxed)),
        ("client_memory_waits", &database.hub.dataset.memory.waits.load(Relaxed)),
        ("total_eviction_exceeded_time", &0),
        ("current_eviction_exceeded_time", &0),
        ("keyspace_hits", &store.keyspace_hits()),
        ("keyspace_misses", &store.keyspace_misses),
        ("pubsub_channels", &database.hub.pubsub.count(Space::Channel)),
        ("pubsub_patterns", &database.hub.pubsub.count(Space::Pattern)),
        ("pubsubshard_channels", &database.hub.pubsub.count(Space::Shard)),
        ("latest_fork_usec", &0),
        ("total_forks", &0),
        ("migrate_cached_sockets", &database.hub.targets_kept.load(Relaxed)),
        ("slave_expires_tracked_keys", &0),
        ("active_defrag_hits", &0),
        ("active_defrag_misses", &0),
        ("active_defrag_key_hits", &0),
        ("active_defrag_key_misses", &0),
        ("total_active_defrag_time", &0),
        ("current_active_defrag_time", &0),
        ("tracking_total_keys", &tracked.keys),
        ("tracking_total_items", &tracked.items),
        ("tracking_total_prefixes", &tracked.prefixes),
        ("unexpected_error_replies", &0),
        ("total_error_replies", &all.sum(|worker| &worker.error_replies)),
        ("dump_payload_sanitizations", &0),
        ("total_reads_processed", &all.sum(|worker| &worker.batches)),
        ("total_writes_processed", &all.sum(|worker| &worker.batches)),
        ("io_threaded_reads_processed", &0),
        ("io_threaded_writes_processed", &0),
        ("client_query_buffer_limit_disconnections", &all.sum(|worker| &worker.query_limit_closed)),
        ("client_output_buffer_limit_disconnections", &(all.sum(|worker| &worker.output_limit_closed) + too_slow)),
        ("reply_buffer_shrinks", &0),
        ("reply_buffer_expands", &0),
        ("eventloop_cycles", &rounds.count),
        ("eventloop_duration_sum", &rounds.busy_us),
        ("eventloop_duration_cmd_sum", &(all.command_nanos() / 1000)),
        ("instantaneous_eventloop_cycles_per_sec", &rounds_per_s),
        ("instantaneous_eventloop_duration_usec", &(facts.rate(Rate::RoundsUs) / rounds_per_s.max(1))),
        ("acl_access_denied_auth", &all.sum(|worker| &worker.auth_failures)),
        ("acl_access_denied_cmd", &all.sum(|worker| &worker.acl_denied_commands)),
        ("acl_access_denied_key", &all.sum(|worker| &worker.acl_denied_keys)),
        ("acl_access_denied_channel", &all.sum(|worker| &worker.acl_denied_channels)),
    ]);
}

/// What operators of tiered Redis look for, under the names they know.
fn tiering(facts: &Facts<'_>, text: &mut Text) {
    let (database, store) = (facts.database, facts.store());
    let config = database.hub.config.snapshot();
    let resizing = store.resizing.unwrap_or_default();
    let (ram_hits, hits) = (store.ram_hits, store.keyspace_hits());
    let (ram_rate, flash_rate) = (facts.rate(Rate::RamHits), facts.rate(Rate::FlashHits));
    text.lines(&[
        ("tiering_enabled", &u8::from(database.shard.store.has_flash())),
        ("flash_driver", &database.shard.driver().unwrap_or("none")),
        ("flash_compression", &config.flash_compression.as_str()),
        ("memory_limit", &config.memory_limit_bytes),
        ("ram_limit", &store.ram_limit),
        ("used_ram", &store.resident),
        ("used_ram_max", &store.resident_max),
        ("ram_object_budget", &store.object_budget),
        ("ram_object_bytes", &store.object_bytes),
        ("ram_arena_bytes", &store.arena_bytes),
        ("ram_writing_bytes", &store.writing_bytes),
        ("ram_index_bytes", &store.index_bytes),
        ("ram_dataset_overhead", &store.resident.saturating_sub(store.object_bytes)),
        ("values_in_ram", &store.values_in_ram),
        ("values_in_flash", &store.values_in_flash),
    ]);
    text.percent("values_in_ram_perc", store.values_in_ram, store.keys);
    text.percent("ram_hit_ratio", ram_hits, hits);
    text.percent("ram_hit_ratio_recent", ram_rate, ram_rate + flash_rate);
    text.ratio("ram_flash_access_ratio", ram_hits, store.flash_hits);
    text.lines(&[
        ("flash_files_limit", &config.flash_limit_bytes),
        ("flash_files_bytes", &database.flash_files().0),
        ("flash_limit", &store.flash_bytes),
        ("flash_live_limit", &store.flash_data_bytes),
        ("used_flash", &store.flash_used_bytes),
        ("free_flash", &store.flash_bytes.saturating_sub(store.flash_used_bytes)),
        ("flash_live_bytes", &store.flash_live_bytes),
        ("flash_charged_bytes", &store.flash_charged_bytes),
        ("flash_usable_bytes", &store.flash_usable_bytes),
        ("flash_room", &store.flash_room),
        ("flash_full", &u8::from(store.flash_full)),
        ("ram_full", &u8::from(store.ram_full)),
        ("flash_segment_bytes", &store.segment_bytes),
        ("flash_free_segments", &store.flash_free_segments),
        ("flash_retired_segments", &store.flash_retired_segments),
        ("flash_quarantined_segments", &store.flash_quarantined_segments),
        ("flash_resize_in_progress", &u8::from(store.resizing.is_some())),
        ("flash_resize_moved_bytes", &resizing.moved_bytes),
        ("flash_resize_total_bytes", &resizing.total_bytes),
    ]);
    text.ratio("flash_fragmentation_ratio", store.flash_used_bytes, store.flash_live_bytes);
    text.ratio("flash_compression_ratio", store.record_bytes, store.record_stored_bytes);
    text.line("flash_dictionaries", store.dictionaries);
    text.ratio("flash_write_amplification", store.flash_write_bytes, store.user_bytes);
    text.lines(&[
        ("user_write_bytes", &store.user_bytes),
        ("flash_kv_reads", &store.flash_value_reads),
        ("flash_part_reads", &store.flash_part_reads),
        ("flash_part_demotions", &store.part_demotions),
        ("flash_kv_writes", &store.demotions_written),
        ("flash_reads", &store.flash_reads),
        ("flash_read_bytes", &store.flash_read_bytes),
        ("flash_reads_merged", &store.merged_reads),
        ("flash_reads_under_lock", &store.reads_under_lock),
        ("flash_writes", &store.flash_writes),
        ("flash_write_bytes", &store.flash_write_bytes),
        ("flash_io_per_sec", &(facts.rate(Rate::FlashReads) + facts.rate(Rate::FlashWrites))),
        ("flash_reads_per_sec", &facts.rate(Rate::FlashReads)),
        ("flash_read_bytes_per_sec", &facts.rate(Rate::FlashReadBytes)),
        ("flash_writes_per_sec", &facts.rate(Rate::FlashWrites)),
        ("flash_write_bytes_per_sec", &facts.rate(Rate::FlashWriteBytes)),
        ("flash_read_errors", &store.read_errors),
        ("flash_write_errors", &store.write_errors),
        ("flash_checksum_errors", &store.checksum_errors),
        ("flash_scrubbed_bytes", &store.scrubbed_bytes),
        ("flash_scrub_rounds", &store.scrub_rounds),
        ("rotten_pages", &store.rotten_pages),
        ("rotten_keys", &store.rotten_keys),
        ("rescued_values", &store.rescued_values),
        ("promotions", &store.promotions),
        ("demotions_clean", &store.demotions_clean),
        ("demotions_written", &store.demotions_written),
        ("collected_segments", &store.collected_segments),
        ("relocated_records", &store.relocated_records),
        ("taken_records", &store.taken_records),
        ("evacuated_objects", &store.evacuated_objects),
        ("commands_waited_for_flash", &database.hub.stats.sum(|worker| &worker.flash_waits)),
        ("commands_waited_for_room", &database.hub.stats.sum(|worker| &worker.room_waits)),
    ]);
    for (name, nanos) in ["p50", "p99", "p99.9", "max"].into_iter().zip(store.flash_latency_nanos) {
        text.line(&format!("flash_read_latency_usec_{name}"), micros(nanos));
    }
    let ram = database.hub.stats.merged(|worker| &worker.ram_latency);
    let flash = database.hub.stats.merged(|worker| &worker.flash_latency);
    for (name, summary) in [("ram_hit", ram), ("flash_hit", flash)] {
        text.line(&format!("command_{name}_count"), summary.count);
        for percent in [50.0, 99.0, 99.9] {
            let value = micros(summary.percentile(percent));
            text.line(&format!("command_{name}_latency_usec_p{percent}"), value);
        }
    }
    // KeyDB's names, which redis_exporter maps.
    text.line("storage_provider_read_hits", ram_hits);
    text.line("storage_provider_read_misses", store.flash_hits);
}

fn micros(nanos: u64) -> String {
    format!("{:.3}", nanos as f64 / 1000.0)
}

fn replication(facts: &Facts<'_>, text: &mut Text) {
    let hub = &facts.database.hub;
    let (stream, links, now_ms) = (&hub.dataset.journaling.stream, hub.dataset.links.all(), facts.now_ms);
    let mark = stream.mark();
    let id = mark.map_or_else(|| facts.database.lone_id.clone(), |mark| mark.id.to_string());
    let second = mark.and_then(|mark| mark.second);
    let backlog = stream.backlog();
    let config = hub.config.snapshot();
    let settings = &config.primary;
    let following = facts.database.replication.role.following();
    text.line("role", if following.is_some() { "slave" } else { "master" });
    if let Some(following) = following {
        replica(facts, &following, text);
    }
    let role = &facts.database.replication.role;
    if let Some(Left { host, port, was_up }) = &*role.left.lock() {
        text.line("promoted_from", format!("{host}:{port}"));
        text.line("promoted_while_primary_up", u8::from(*was_up));
    }
    if let Some(GivenUp { from, bytes, writes }) = *role.given_up.lock() {
        text.lines(&[
            ("given_up_from_offset", &from),
            ("given_up_bytes", &bytes),
            ("given_up_writes", &writes.map_or(-1, |writes| writes as i64)),
        ]);
    }
    text.line("connected_slaves", links.len());
    if settings.replicas_min > 0 {
        text.line(
            "min_slaves_good_slaves",
            hub.dataset.links.count_alive(settings.lag_s_max.saturating_mul(1000), now_ms),
        );
    }
    for (number, link) in links.iter().enumerate() {
        let Link { ip, port, .. } = &**link;
        let (state, offset, lag) = (link.phase().name(), link.acked(), link.silent_ms(now_ms) / 1000);
        text.line(&format!("slave{number}"), format!("ip={ip},port={port},state={state},offset={offset},lag={lag}"));
    }
    text.lines(&[
        ("master_failover_state", &facts.database.failover_state()),
        ("master_replid", &id),
        ("master_replid2", &second.map_or_else(|| "0".repeat(40), |(id, _)| id.to_string())),
        ("master_repl_offset", &mark.map_or(0, |_| facts.database.applied_offset())),
        // As Redis counts: the first byte that the second id does not have.
        ("second_repl_offset", &second.map_or(-1, |(_, to)| to as i64 + 1)),
        ("repl_backlog_active", &u8::from(mark.is_some())),
        ("repl_backlog_size", &config.redis_files.backlog_bytes),
        ("repl_backlog_first_byte_offset", &if mark.is_some() { backlog.start + 1 } else { 0 }),
        ("repl_backlog_histlen", &(backlog.end - backlog.start)),
    ]);
    let checks = facts.database.check_figures(now_ms);
    text.lines(&[
        ("repl_checks", &checks.done),
        ("repl_checks_given_up", &checks.given_up),
        ("repl_check_differences", &checks.differences),
        ("repl_check_last_seconds_ago", &checks.last_ago_ms.map_or(-1, |ms| ms as i64 / 1000)),
        ("repl_check_last_stripes", &checks.stripes),
        ("repl_check_last_error", &one_line(checks.error.as_deref())),
    ]);
}

/// What a replica says of its primary.
fn replica(facts: &Facts<'_>, following: &Following, text: &mut Text) {
    let database = facts.database;
    let (config, role) = (database.hub.config.snapshot(), &database.replication.role);
    let state = following.state();
    let seconds_since = |at_ms: u64| match at_ms {
        0 => -1,
        at_ms => facts.now_ms.saturating_sub(at_ms) as i64 / 1000,
    };
    let is_syncing = matches!(state, LinkState::Sync | LinkState::Load);
    let received = database.hub.dataset.journaling.stream.offset();
    text.lines(&[
        ("master_host", &following.host),
        ("master_port", &following.port),
        ("master_link_status", &if state == LinkState::Connected { "up" } else { "down" }),
        ("master_last_io_seconds_ago", &seconds_since(following.last_io_ms.load(Relaxed))),
        ("master_sync_in_progress", &u8::from(is_syncing)),
        ("slave_read_repl_offset", &received),
        ("slave_repl_offset", &database.applied_offset()),
    ]);
    if is_syncing {
        let (total, read) = (following.sync_total_bytes.load(Relaxed), following.sync_bytes.load(Relaxed));
        text.lines(&[
            ("master_sync_total_bytes", &total),
            ("master_sync_read_bytes", &read),
            ("master_sync_left_bytes", &total.saturating_sub(read)),
        ]);
        text.percent("master_sync_perc", read, total);
        text.line("master_sync_last_io_seconds_ago", seconds_since(following.last_io_ms.load(Relaxed)));
    }
    if state != LinkState::Connected {
        text.line("master_link_down_since_seconds", seconds_since(following.down_since_ms.load(Relaxed)));
    }
    let error = following.error.lock().clone();
    let failed = role.failures.last.lock().clone();
    text.lines(&[
        ("master_link_state", &state.name()),
        ("replica_state", &if following.is_full.load(Relaxed) { "full" } else { state.name() }),
        ("master_link_error", &one_line(error.as_deref())),
        ("replica_failed_commands", &role.failures.count.load(Relaxed)),
        ("replica_last_failure", &one_line(failed.as_deref())),
        ("slave_priority", &config.replica.priority),
        ("slave_read_only", &1),
        ("replica_announced", &u8::from(config.replica.is_announced)),
    ]);
}

/// What another server has said must not end the line.
fn one_line(text: Option<&str>) -> String {
    text.unwrap_or_default().replace(|c: char| c.is_control(), " ")
}

fn cpu(_: &Facts<'_>, text: &mut Text) {
    let seconds = |us: u64| format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
    for (name, who) in [("", libc::RUSAGE_SELF), ("_children", libc::RUSAGE_CHILDREN)] {
        let (user_us, system_us) = cpu_us(who);
        text.line(&format!("used_cpu_sys{name}"), seconds(system_us));
        text.line(&format!("used_cpu_user{name}"), seconds(user_us));
    }
}

fn modules(_: &Facts<'_>, _: &mut Text) {}

fn commandstats(facts: &Facts<'_>, text: &mut Text) {
    let database = facts.database;
    let mut commands: Vec<_> = database.hub.directory.all().collect();
    commands.sort_by_key(|command| command.id);
    for command in commands {
        let totals = database.hub.stats.command(command.id);
        if totals.calls + totals.rejected + totals.failed == 0 {
            continue;
        }
        let usec = totals.nanos as f64 / 1000.0;
        let each = usec / totals.calls.max(1) as f64;
        text.line(
            &format!("cmdstat_{}", command.name),
            format_args!(
                "calls={},usec={usec:.0},usec_per_call={each:.2},rejected_calls={},failed_calls={}",
                totals.calls, totals.rejected, totals.failed
            ),
        );
    }
}

fn errorstats(facts: &Facts<'_>, text: &mut Text) {
    for (code, count) in facts.database.hub.stats.errors() {
        text.line(&format!("errorstat_{code}"), format_args!("count={count}"));
    }
}

fn latencystats(facts: &Facts<'_>, text: &mut Text) {
    let database = facts.database;
    let config = database.hub.config.snapshot();
    if !config.latency_tracking {
        return;
    }
    let mut commands: Vec<_> = database.hub.directory.all().collect();
    commands.sort_by_key(|command| command.id);
    for command in commands {
        if let Some(summary) = database.hub.stats.command_latency(command.id) {
            let values = percentiles(&summary, &config.latency_tracking_percentiles);
            text.line(&format!("latency_percentiles_usec_{}", command.name), values);
        }
    }
}

/// `p50=1.003,p99=2.007`
fn percentiles(summary: &Summary, percents: &[f64]) -> String {
    let each = percents.iter().map(|&percent| format!("p{percent}={}", micros(summary.percentile(percent))));
    each.collect::<Vec<_>>().join(",")
}

fn cluster(_: &Facts<'_>, text: &mut Text) {
    text.line("cluster_enabled", 0);
}

fn keyspace(facts: &Facts<'_>, text: &mut Text) {
    let store = &facts.database.shard.store;
    for (db, counts) in facts.store().by_database.iter().enumerate() {
        if counts.keys > 0 {
            text.line(
                &format!("db{db}"),
                format_args!(
                    "keys={},expires={},avg_ttl={},cached_keys={}",
                    counts.keys,
                    counts.expires,
                    store.average_ttl(db),
                    counts.hot
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_with_a_zero_whole_are_finite() {
        let mut text = Text::default();
        text.ratio("a", 5, 0);
        text.percent("b", 0, 0);
        assert_eq!(text.0, "a:0.00\r\nb:100.00\r\n");
    }
}
