//! Owns a database's answers to the requests of commands to the database and its node. Never knows a client.

use crate::database::Database;
use crate::ending::Wanted;
use crate::memory::{self, Allocator};
use crate::metrics;
use crate::role::LinkState;
use commands::host::{ClientFilter, Failover, MemoryFigures, ReplicaState, Role, Shutdown};
use engine::replication::{Link, Order, Phase};
use engine::{ConfigControl, PersistenceControl, ProcessControl, ReplicationControl};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

impl ConfigControl for Database {
    fn try_set_config(&self, pairs: &[(&[u8], &[u8])], local: bool) -> Option<Result<(), String>> {
        Database::try_set_config(self, pairs, local)
    }

    fn set_config(&self, pairs: &[(&[u8], &[u8])], local: bool, timeout: Duration) -> Result<(), String> {
        Database::set_config(self, pairs, local, timeout)
    }

    fn set_config_inside(&self, pairs: &[(&[u8], &[u8])], local: bool, timeout: Duration) -> Result<(), String> {
        Database::set_config_inside(self, pairs, local, timeout)
    }

    fn rewrite_config(&self, timeout: Duration) -> Result<(), String> {
        Database::rewrite_config(self, timeout)
    }
}

impl PersistenceControl for Database {
    fn save(&self) -> Result<(), String> {
        self.save_dump()
    }

    fn save_in_background(&self, schedule: bool) -> Result<&'static str, String> {
        self.save_dump_in_background(schedule)
    }

    fn save_flushed(&self, waits: bool) {
        self.save_flushed_dump(waits);
    }

    fn saves_at_end(&self) -> bool {
        !self.hub.config.snapshot().redis_files.save_points.is_empty()
    }

    fn reload(&self, saves: bool) -> Result<(), String> {
        self.reload_dump(saves)
    }

    fn rewrite_journal(&self) -> Result<(), String> {
        self.start_rewrite()
    }

    fn last_save_s(&self) -> u64 {
        match self.files.last_save_s.load(Relaxed) {
            0 => self.hub.started_s,
            at_s => at_s,
        }
    }
}

impl ReplicationControl for Database {
    fn make_dump(&self, order: Arc<Order>) {
        self.order_dump(order);
    }

    fn role(&self) -> Role {
        if let Some(following) = self.replication.role.following() {
            let state = following.state();
            let offset = match state {
                LinkState::Connected => self.applied_offset() as i64,
                _ => -1,
            };
            return Role::Replica { host: following.host.clone(), port: following.port, state: state.name(), offset };
        }
        let links = self.hub.dataset.links.all();
        let online = links.iter().filter(|link| link.phase() == Phase::Online);
        let state = |link: &Arc<Link>| ReplicaState { ip: link.ip.clone(), port: link.port, offset: link.acked() };
        Role::Primary { offset: self.hub.dataset.journaling.stream.offset(), replicas: online.map(state).collect() }
    }

    fn fail_over(&self, wanted: Failover) -> Result<(), String> {
        self.begin_failover(wanted)
    }

    fn abort_failover(&self, may_wait: bool) -> Result<(), String> {
        self.end_failover(may_wait)
    }

    fn may_take_over(&self, id: &str) -> Result<(), String> {
        Database::may_take_over(self, id)
    }

    fn follow(&self, primary: Option<(&str, u16)>, may_wait: bool) -> Result<(), String> {
        Database::follow(self, primary, may_wait)
    }

    fn end_primary_link(&self, filter: &ClientFilter) -> bool {
        self.replication.role.following().is_some_and(|following| following.hang_up(filter))
    }
}

impl ProcessControl for Database {
    fn whole_info(&self, sections: &[&[u8]], shards: &[String], count: usize) -> String {
        crate::metrics::whole::whole_info(self, sections, shards, count)
    }

    fn info(&self, sections: &[&[u8]]) -> String {
        metrics::info(self, sections)
    }

    fn clients_max(&self) -> usize {
        let config = self.hub.config.snapshot();
        self.endpoint.as_ref().map_or(config.maxclients, |endpoint| endpoint.clients_max(&config))
    }

    fn reset_stats(&self) {
        if let Some(endpoint) = &self.endpoint {
            endpoint.rejected_connections.store(0, Relaxed);
        }
        self.memory_peak_bytes.store(0, Relaxed);
        *self.rounds_before.lock() = self.loops.rounds();
        let links = &self.hub.dataset.links;
        for count in [&links.full_syncs, &links.partial_syncs, &links.refused_partial_syncs] {
            count.store(0, Relaxed);
        }
    }

    fn memory(&self) -> MemoryFigures {
        let store = self.shard.store.stats();
        let allocator = Allocator::now();
        let allocated = self.allocated_of(allocator.allocated) + store.object_bytes;
        let keys = store.by_database.iter().map(|counts| counts.keys).enumerate();
        let keys_by_database = keys.filter(|&(_, keys)| keys > 0);
        MemoryFigures {
            peak_bytes: self.memory_peak_bytes.fetch_max(allocated, Relaxed).max(allocated),
            allocated_bytes: allocated,
            startup_bytes: self.memory_startup_bytes.load(Relaxed),
            resident_bytes: self.resident_of(memory::resident_bytes()),
            allocator_active_bytes: allocator.active + store.arena_bytes,
            allocator_resident_bytes: allocator.resident + store.arena_bytes,
            clients_bytes: self.hub.clients.totals().memory_bytes as u64,
            index_bytes: store.index_bytes,
            objects_bytes: store.object_bytes,
            flash_buffers_bytes: store.writing_bytes,
            scripts_bytes: self.hub.scripts.bytes() as u64,
            functions_bytes: self.hub.scripts.libraries.read().all().map(|library| library.code.len() as u64).sum(),
            keys: store.keys,
            keys_by_database: keys_by_database.collect(),
            expires: store.expires(),
            ram_limit_bytes: store.ram_limit,
            flash_used_bytes: store.flash_used_bytes,
            flash_limit_bytes: store.flash_bytes,
        }
    }

    fn malloc_report(&self) -> String {
        memory::report()
    }

    fn purge_memory(&self) {
        memory::purge();
    }

    fn shut_down(&self, client: u64, wanted: Shutdown) -> Result<(), String> {
        if !self.is_default() {
            return Err("ERR SHUTDOWN stops the whole node: send it to the node's default database".to_owned());
        }
        match wanted {
            Shutdown::Begin { saves, now, force } => {
                self.ending.ask(client, Wanted { saves, now, force });
                self.shutdown.notify_one();
                Ok(())
            }
            // Who waits for replicas looks every few milliseconds.
            Shutdown::Abort if self.ending.abort() => Ok(()),
            Shutdown::Abort => Err("ERR No shutdown in progress.".to_owned()),
        }
    }
}
