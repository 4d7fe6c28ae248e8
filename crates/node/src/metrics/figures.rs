//! Owns what is gathered of a database and its node for those who show it: plain data of a moment. Never counts anything itself.

use super::reading::percent;
use crate::capacity::Capacity;
use crate::database::Database;
use crate::memory;
use crate::node::Node;
use crate::replication::ReplicationFigures;
use engine::{LoadState, Summary, bit};
use std::sync::atomic::Ordering::Relaxed;
use store::StoreStats;

/// Counts since the start or the last CONFIG RESETSTAT, except those marked "current". Fields named `…_bytes` are
/// bytes.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub commands_read: u64,
    pub commands_write: u64,
    pub commands_other: u64,
    pub connections_received: u64,
    pub rejected_connections: u64,
    /// Current.
    pub clients: u64,
    /// Current: maxclients.
    pub clients_max: u64,
    /// Current.
    pub blocked_clients: u64,
    /// Current: the memory that clients hold beside the objects, and the most that they may; 0: no limit.
    pub client_memory_bytes: u64,
    pub client_memory_max_bytes: u64,
    /// Current, of all connections: the longest buffers, those that listen to channels, and what they take. For INFO only.
    pub client_query_bytes_max: u64,
    pub client_output_bytes_max: u64,
    pub clients_listening: u64,
    pub clients_bytes: u64,
    /// Current.
    pub clients_waiting_for_memory: u64,
    pub client_memory_waits: u64,
    pub evicted_clients: u64,
    pub net_in_bytes: u64,
    pub net_out_bytes: u64,
    pub error_replies: u64,
    /// Of the proxy of a cluster's database.
    pub forwards_rejected: u64,
    pub forwards_uncertain: u64,
    pub forwards_down: u64,
    /// Error replies for want of room, of the journal, or of replicas.
    pub refused_for_room: u64,
    pub refused_otherwise: u64,
    /// Current: how many of the replicas that writes need do not keep up.
    pub replicas_missing: u64,
    /// Current: of a database of a cluster. The cluster's records have that, so whoever knows them puts it here.
    pub shards: Option<ShardFigures>,
    /// Current: it is a replica, and has no room for what its primary sends.
    pub is_full_replica: bool,
    /// Current: by its operator.
    pub is_paused: bool,
    /// Current: this database's share of the process's resident size.
    pub used_ram_bytes: u64,
    pub memory_limit_bytes: u64,
    pub ram_limit_bytes: u64,
    pub flash_limit_bytes: u64,
    /// All files on flash, and their limit; 0: no limit.
    pub files_bytes: u64,
    pub files_limit_bytes: u64,
    pub uptime_s: u64,
    pub store: StoreStats,
    pub durability: Durability,
    pub replication: ReplicationFigures,
}

/// What the shards of a cluster's database lack of what its definition wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardFigures {
    /// Shards that nobody serves.
    pub down: u64,
    /// Shards that want a replica in sync and have none.
    pub alone: u64,
    /// Copies that are not in sync, or are on a node that does not run.
    pub copies_out_of_sync: u64,
}

/// What a member of a cluster sees of it. `None`: that is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClusterFigures {
    /// The cluster's records in etcd cannot be followed, so that what they say may be old.
    pub etcd_is_away: bool,
    /// A member of etcd answers, and none that does knows a leader.
    pub etcd_has_no_leader: Option<bool>,
    /// The slowest request of the last seconds.
    pub etcd_slowest_us: Option<u64>,
    pub nodes_down: Option<u64>,
    /// Nobody leads the cluster, so that nobody names a primary.
    pub has_no_controller: Option<bool>,
    /// How far this node's clock and that of another one are apart at least.
    pub clocks_apart_us: Option<u64>,
}

/// What of the dataset is kept. The booleans and all sizes are current; 0 stands for what has not happened.
#[derive(Clone, Debug, Default)]
pub struct Durability {
    pub is_loading: bool,
    pub load_has_failed: bool,

    // Dumps
    pub changes_since_save: u64,
    pub is_saving: bool,
    pub last_save_failed: bool,
    pub last_save_at_s: u64,
    pub last_save_took_s: u64,
    pub saves: u64,

    // The journal; all is 0 without one.
    pub is_kept: bool,
    pub checkpoint_bytes: u64,
    /// Of the journal's records behind the checkpoint.
    pub tail_bytes: u64,
    /// What these records take in the journal's files.
    pub tail_file_bytes: u64,
    /// Where the checkpoint is in the journal.
    pub checkpoint_position: u64,
    /// What is not on the device yet.
    pub unsynced_bytes: u64,
    /// Its end: all bytes since its first day.
    pub journal_bytes: u64,
    /// Its files, records and syncs, and whether its device is behind, so that writes wait.
    pub journal: journal::Figures,
    /// The journal cannot be written.
    pub journal_has_failed: bool,
    /// Why it cannot be written, or no file of it be made.
    pub journal_error: String,
    /// How long a restart would take.
    pub recovery_estimated_ms: u64,
    /// A restart would take longer than `recovery-time-target`, or the last one has.
    pub recovery_is_late: bool,
    /// What the journal's file system is short of.
    pub journal_missing_bytes: u64,
    pub is_rewriting: bool,
    /// Checkpoints that could not be written since the last one.
    pub checkpoint_failures: u64,
    /// That the scrubber has found since the start.
    pub damaged_checkpoints: u64,
    pub damaged_journals: u64,
    /// Files of backups and of the archive, which are still there.
    pub damaged_backups: u64,
    pub last_checkpoint_took_s: u64,

    // Backups
    pub is_backing_up: bool,
    pub last_backup_failed: bool,
    pub last_backup_at_s: u64,
    /// Records of the journal cannot be copied beside the backups.
    pub archive_has_failed: bool,
    /// Up to when they are, in seconds since 1970; 0: not in this run of the node.
    pub archived_until_s: u64,
}

/// Durations of commands without the network, since the start or CONFIG RESETSTAT. For an interval, subtract an
/// earlier value.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// Of all commands; empty while `latency-tracking` is off.
    pub all: Summary,
    /// Of reading commands that found all values in RAM, and of those that did not.
    pub read_ram: Summary,
    pub read_flash: Summary,
}

/// Figures of the process and its machine.
#[derive(Clone, Debug, Default)]
pub struct NodeFigures {
    pub cpu_user_us: u64,
    pub cpu_system_us: u64,
    pub resident_bytes: u64,
    pub open_files: u64,
    pub uptime_s: u64,
    pub system_ram_bytes: u64,
    pub system_ram_free_bytes: u64,
    pub cores: u64,
    pub workers: u64,
    /// Since 1970.
    pub started_s: u64,
    pub capacity: Capacity,
}

/// The parts of the figures that cost something to gather.
impl Figures {
    pub const STORE: u8 = 1;
    pub const DURABILITY: u8 = 2;
    pub const REPLICATION: u8 = 4;
    /// The commands by class, and the errors.
    pub const COMMANDS: u8 = 8;
    /// The process's resident size.
    pub const PROCESS: u8 = 16;
    /// What a walk over all connections tells.
    pub const CLIENTS: u8 = 32;

    /// `None`, here and below: there is no limit.
    pub fn ram_percent(&self) -> Option<f64> {
        known(percent(self.used_ram_bytes, self.ram_limit_bytes))
    }

    /// 100 is where flash is full.
    pub fn flash_percent(&self) -> Option<f64> {
        known(percent(self.store.flash_charged_bytes, self.store.flash_full_at_bytes))
    }

    pub fn files_percent(&self) -> Option<f64> {
        known(percent(self.files_bytes, self.files_limit_bytes))
    }

    pub fn index_percent(&self) -> Option<f64> {
        known(percent(self.store.index_bytes, self.ram_limit_bytes))
    }

    pub fn clients_percent(&self) -> Option<f64> {
        known(percent(self.clients, self.clients_max))
    }
}

fn known(value: f64) -> Option<f64> {
    Some(value).filter(|value| !value.is_nan())
}

impl Database {
    /// Cheap enough to call once a second.
    pub fn figures(&self) -> Figures {
        self.figures_of(!Figures::CLIENTS)
    }

    /// The parts that are wanted; the other parts are empty.
    pub(super) fn figures_of(&self, wanted: u8) -> Figures {
        let wants = |part| wanted & part != 0;
        let (config, memory) = (self.hub.config.snapshot(), &self.hub.dataset.memory);
        let sum = |counter: fn(&engine::WorkerStats) -> &engine::Counter| self.hub.stats.sum(counter);
        let (files_bytes, files_limit_bytes) = self.flash_files();
        let following = self.replication.role.following();
        let mut figures = Figures {
            connections_received: sum(|worker| &worker.connections),
            rejected_connections: self.rejected_connections(),
            clients: self.hub.clients.count() as u64,
            clients_max: config.maxclients as u64,
            blocked_clients: self.hub.clients.blocked.load(Relaxed) as u64,
            client_memory_bytes: memory.bytes() as u64,
            client_memory_max_bytes: memory.bytes_max().unwrap_or(0) as u64,
            clients_waiting_for_memory: memory.waiting() as u64,
            client_memory_waits: memory.waits.load(Relaxed),
            evicted_clients: memory.evicted.load(Relaxed),
            net_in_bytes: sum(|worker| &worker.net_in_bytes),
            net_out_bytes: sum(|worker| &worker.net_out_bytes),
            error_replies: sum(|worker| &worker.error_replies),
            forwards_rejected: sum(|worker| &worker.forwards_rejected),
            forwards_uncertain: sum(|worker| &worker.forwards_uncertain),
            forwards_down: sum(|worker| &worker.forwards_down),
            is_full_replica: following.is_some_and(|following| following.is_full.load(Relaxed)),
            is_paused: self.is_paused(),
            memory_limit_bytes: config.memory_limit_bytes,
            ram_limit_bytes: config.ram_limit_bytes,
            flash_limit_bytes: config.flash_bytes,
            files_bytes,
            files_limit_bytes,
            uptime_s: self.started.elapsed().as_secs(),
            ..Figures::default()
        };
        if wants(Figures::STORE) {
            figures.store = self.shard.store.stats();
        }
        if wants(Figures::DURABILITY) {
            figures.durability = self.durability();
        }
        if wants(Figures::REPLICATION) {
            figures.replication = self.replication_figures();
            figures.replicas_missing = self.replicas_missing();
        }
        if wants(Figures::CLIENTS) {
            let totals = self.hub.clients.totals();
            figures.client_query_bytes_max = totals.query_bytes_max as u64;
            figures.client_output_bytes_max = totals.output_bytes_max as u64;
            figures.clients_listening = totals.listening as u64;
            figures.clients_bytes = totals.memory_bytes as u64;
        }
        if wants(Figures::COMMANDS) {
            self.add_commands(&mut figures);
        }
        if wants(Figures::PROCESS) {
            figures.used_ram_bytes = self.resident_of(memory::resident_bytes());
        }
        figures
    }

    fn add_commands(&self, figures: &mut Figures) {
        for command in self.hub.directory.all() {
            let class = match () {
                () if command.is(bit::WRITE) => &mut figures.commands_write,
                () if command.is(bit::READONLY) => &mut figures.commands_read,
                () => &mut figures.commands_other,
            };
            *class += self.hub.stats.calls(command.id);
        }
        let codes = self.hub.stats.errors();
        let errors = |code: &str| codes.get(code).copied().unwrap_or(0);
        figures.refused_for_room = errors("OOM");
        figures.refused_otherwise = errors("MISCONF") + errors("NOREPLICAS");
    }

    fn replicas_missing(&self) -> u64 {
        let settings = self.hub.config.snapshot().primary.clone();
        if self.shard.store.follows() || settings.lag_s_max == 0 {
            return 0;
        }
        let alive = self.hub.dataset.links.count_alive(settings.lag_s_max.saturating_mul(1000), engine::wall_ms());
        settings.replicas_min.saturating_sub(alive) as u64
    }

    fn durability(&self) -> Durability {
        let files = &self.files;
        let (journal, backups) = (&files.journal, &files.backups);
        let kept = journal.kept.lock().clone();
        let last = backups.last.lock();
        let last_ms = match &*last {
            Some(ended) if ended.outcome.is_ok() => ended.started_ms,
            _ => 0,
        };
        let mut durability = Durability {
            is_loading: self.hub.clients.load_state() != LoadState::Open,
            load_has_failed: self.load_failure().is_some(),
            changes_since_save: self.changes_since_save(),
            is_saving: files.background_since_ms.load(Relaxed) != 0,
            last_save_failed: files.last_save_failed.load(Relaxed),
            last_save_at_s: engine::PersistenceControl::last_save_s(self),
            last_save_took_s: files.last_background_took_ms.load(Relaxed) / 1000,
            saves: files.saves.load(Relaxed),
            is_rewriting: journal.rewriting_since_ms.load(Relaxed) != 0,
            checkpoint_failures: journal.rewrite_failures.load(Relaxed),
            damaged_checkpoints: journal.damaged_checkpoints.load(Relaxed),
            damaged_journals: journal.damaged_journals.load(Relaxed),
            damaged_backups: self.damaged_backups(),
            last_checkpoint_took_s: journal.last_rewrite_took_ms.load(Relaxed) / 1000,
            is_backing_up: backups.running.lock().is_some(),
            last_backup_failed: last.as_ref().is_some_and(|ended| ended.outcome.is_err()),
            last_backup_at_s: last_ms.max(backups.scheduled_ms.lock().unwrap_or(0)) / 1000,
            archive_has_failed: backups.archiving.failure.lock().is_some(),
            archived_until_s: backups.archiving.until_ms.load(Relaxed) / 1000,
            ..Durability::default()
        };
        if let Some(kept) = kept {
            durability.is_kept = true;
            durability.checkpoint_bytes = kept.checkpoint_bytes();
            durability.tail_bytes = kept.tail_bytes();
            durability.tail_file_bytes = kept.tail_file_bytes();
            let position = kept.log.position();
            durability.checkpoint_position = kept.manifest.position;
            durability.unsynced_bytes = position - kept.log.durable();
            durability.journal_bytes = position;
            durability.journal = kept.log.figures();
            durability.journal_has_failed = kept.log.has_failed();
            let trouble = durability.journal.trouble.clone();
            durability.journal_error = kept.log.failed().or(trouble).unwrap_or_default();
            let target_ms = self.hub.config.snapshot().redis_files.recovery_target_s * 1000;
            let estimate = self.restart_estimate(&kept);
            let was_late = target_ms > 0 && journal.recovery_took_ms.load(Relaxed) > target_ms;
            durability.recovery_estimated_ms = estimate.total_ms();
            durability.recovery_is_late = estimate.is_above(target_ms) || was_late;
            durability.journal_missing_bytes = journal.missing_bytes.load(Relaxed);
        }
        durability
    }

    pub fn latencies(&self) -> Latencies {
        let mut all = Summary::default();
        self.hub.stats.add_command_latencies(&mut all);
        Latencies {
            all,
            read_ram: self.hub.stats.merged(|worker| &worker.ram_latency),
            read_flash: self.hub.stats.merged(|worker| &worker.flash_latency),
        }
    }
}

impl Node {
    pub fn figures(&self) -> NodeFigures {
        let (cpu_user_us, cpu_system_us) = memory::cpu_us(libc::RUSAGE_SELF);
        NodeFigures {
            cpu_user_us,
            cpu_system_us,
            resident_bytes: memory::resident_bytes(),
            open_files: std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64),
            uptime_s: self.started.elapsed().as_secs(),
            system_ram_bytes: memory::system_bytes("MemTotal"),
            system_ram_free_bytes: memory::system_bytes("MemAvailable"),
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
            workers: self.workers() as u64,
            started_s: self.started_ms() / 1000,
            capacity: self.capacity(),
        }
    }
}
