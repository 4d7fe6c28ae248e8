//! Owns the server's answers to the commands that ask about it. Never parses an argument and never writes a reply.

use crate::clients::following;
use crate::config::Secret;
use crate::memory::{self, Allocator};
use crate::script::sha1;
use crate::start::apply_to_store;
use crate::thread::{Worker, wall_ms};
use commands::host::{
    Access, ClientFilter, CommandLatency, Host, Killed, LatencyEvent, MemoryFigures, Pause, SlowCommand, Space, Unblock,
};
use commands::session::Session;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The longest DEBUG SLEEP: it holds up this worker's other connections.
const SLEEP_MAX: Duration = Duration::from_secs(60);

impl Host for Worker {
    fn started_s(&self) -> u64 {
        self.node.started_s
    }

    fn time_us(&self) -> u64 {
        Worker::time_us(self)
    }

    fn access(&self) -> &dyn Access {
        self
    }

    fn debug_allowed(&self, session: &Session) -> bool {
        self.live().config.enable_debug_command.allows(session.local)
    }

    fn client_list(&self, me: &Session, filter: &ClientFilter) -> String {
        // The caller's own line: what it changed in this batch is published.
        if let Some(mine) = self.node.clients.card(me.id) {
            mine.publish(me);
        }
        self.node.clients.list(filter, wall_ms(), &|id| self.node.directory.name(id))
    }

    fn client_kill(&self, me: &Session, filter: &ClientFilter) -> Killed {
        self.node.clients.kill(me.id, filter, wall_ms())
    }

    fn client_pause(&self, duration_ms: u64, what: Pause) {
        let now_ms = wall_ms();
        self.node.clients.pause(now_ms.saturating_add(duration_ms), what, now_ms);
    }

    fn client_unblock(&self, id: u64, how: Unblock) -> bool {
        let blocked = self.node.clients.card(id).and_then(|card| card.blocked.lock().clone());
        blocked.is_some_and(|blocked| blocked.unblock(how))
    }

    fn client_unpause(&self) {
        self.node.clients.unpause();
    }

    fn subscribe(&self, me: &Session, space: Space, name: &[u8]) {
        // It is in the register while its command runs.
        let Some(card) = self.node.clients.card(me.id) else { return };
        self.node.pubsub.subscribe(space, name, card);
    }

    fn unsubscribe(&self, me: &Session, space: Space, name: &[u8]) {
        self.node.pubsub.unsubscribe(space, name, me.id);
    }

    fn publish(&self, space: Space, channel: &[u8], message: &[u8]) -> usize {
        let mut delivery = self.delivery();
        let count = self.node.pubsub.publish(space, channel, message, &mut delivery);
        delivery.finish();
        count
    }

    fn client_exists(&self, id: u64) -> bool {
        self.node.clients.card(id).is_some()
    }

    fn tracking_changed(&self, me: &Session) {
        let Some(card) = self.node.clients.card(me.id) else { return };
        match &me.tracking {
            Some(choice) => self.node.tracking.start(&self.node.store, &card, choice),
            None => self.node.tracking.stop(&self.node.store, &card),
        }
    }

    fn redirect_broken(&self, me: &Session) -> bool {
        self.node.clients.card(me.id).is_some_and(|card| card.following.load(Relaxed) & following::BROKEN != 0)
    }

    fn monitors_changed(&self, me: &Session) {
        let Some(card) = self.node.clients.card(me.id) else { return };
        card.monitors.store(me.monitors, Relaxed);
        match me.monitors {
            true => self.node.monitors.add(card),
            false => self.node.monitors.remove(me.id),
        }
    }

    fn topic_names(&self, space: Space, pattern: Option<&[u8]>) -> Vec<Box<[u8]>> {
        self.node.pubsub.names(space, pattern)
    }

    fn topics(&self, space: Space) -> usize {
        self.node.pubsub.count(space)
    }

    fn subscribers(&self, space: Space, name: &[u8]) -> usize {
        self.node.pubsub.subscriber_count(space, name)
    }

    fn config_get(&self, patterns: &[&[u8]]) -> Vec<(String, String)> {
        self.node.config.get(patterns)
    }

    fn config_set(&self, me: &Session, pairs: &[(&[u8], &[u8])]) -> Result<(), String> {
        let before = self.node.config.snapshot();
        let names: Vec<&[u8]> = pairs.iter().map(|(name, _)| *name).collect();
        let values = self.node.config.get(&names);
        self.node.config.set_as(pairs, me.local)?;
        let now = self.node.config.snapshot();
        // Also when the names of the files stay: what is in them may be new.
        if names.iter().any(|name| name.get(..4).is_some_and(|head| head.eq_ignore_ascii_case(b"tls-")))
            && let Err(why) = self.node.tls.set(&now.tls)
        {
            self.node.config.set_as(&values, me.local)?;
            tracing::warn!("the TLS settings stay as they were: {why}");
            return Err(format!("ERR CONFIG SET failed - Unable to update TLS configuration: {why}"));
        }
        apply_to_store(&self.node.store, &before, &now);
        if pairs.iter().any(|(name, _)| name.eq_ignore_ascii_case(b"requirepass")) {
            self.node.users.require_password(now.requirepass.as_ref().map(Secret::expose));
        }
        Ok(())
    }

    fn config_rewrite(&self) -> Result<(), String> {
        let config = self.node.config.snapshot();
        // Users who have a file of their own are not the configuration's.
        let users = config
            .aclfile
            .is_none()
            .then(|| self.node.users.directives(config.requirepass.as_ref().map(Secret::expose)));
        self.node.config.rewrite(users)
    }

    fn reset_stats(&self) {
        self.node.stats.reset();
        self.node.store.reset_stats();
        self.node.rejected_connections.store(0, Relaxed);
        self.node.clients.too_slow.store(0, Relaxed);
        self.node.memory_peak_bytes.store(0, Relaxed);
    }

    fn info(&self, sections: &[&[u8]]) -> String {
        crate::info::info(&self.node, sections)
    }

    fn slowlog(&self, count: usize) -> Vec<SlowCommand> {
        self.node.slow_log.newest(count)
    }

    fn slowlog_len(&self) -> usize {
        self.node.slow_log.len()
    }

    fn slowlog_reset(&self) {
        self.node.slow_log.clear();
    }

    fn latency_latest(&self) -> Vec<LatencyEvent> {
        self.node.latency_events.latest()
    }

    fn latency_history(&self, event: &[u8]) -> Vec<(u64, u64)> {
        self.node.latency_events.history(event)
    }

    fn latency_reset(&self, events: &[&[u8]]) -> usize {
        self.node.latency_events.reset(events)
    }

    fn latency_histogram(&self, commands: &[&[u8]]) -> Vec<CommandLatency> {
        let wanted = |name: &str| {
            commands.is_empty()
                || commands.iter().any(|wanted| {
                    // A container's name stands for all its subcommands.
                    let container = name.split_once('|').map_or(name, |(container, _)| container);
                    wanted.eq_ignore_ascii_case(name.as_bytes()) || wanted.eq_ignore_ascii_case(container.as_bytes())
                })
        };
        let mut found: Vec<_> = self.node.directory.all().filter(|command| wanted(command.name)).collect();
        found.sort_by_key(|command| command.id);
        found
            .into_iter()
            .filter_map(|command| {
                let summary = self.node.stats.command_latency(command.id)?;
                Some(CommandLatency {
                    name: command.name.to_owned(),
                    calls: summary.count,
                    cumulative_us: summary.cumulative_us(),
                })
            })
            .collect()
    }

    fn memory(&self) -> MemoryFigures {
        let store = self.node.store.stats();
        let allocator = Allocator::now();
        let allocated = allocator.allocated + store.object_bytes;
        let expires = (0..self.node.store.databases()).map(|db| self.node.store.expires(db)).sum();
        MemoryFigures {
            peak_bytes: self.node.memory_peak_bytes.fetch_max(allocated, Relaxed).max(allocated),
            allocated_bytes: allocated,
            startup_bytes: self.node.memory_startup_bytes.load(Relaxed),
            resident_bytes: memory::resident_bytes(),
            allocator_active_bytes: allocator.active + store.arena_bytes,
            allocator_resident_bytes: allocator.resident + store.arena_bytes,
            clients_bytes: self.node.clients.totals().memory_bytes as u64,
            index_bytes: store.index_bytes,
            objects_bytes: store.object_bytes,
            flash_buffers_bytes: store.writing_bytes,
            keys: store.keys,
            expires,
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

    fn shutdown(&self, abort: bool, nosave: bool) -> Result<(), String> {
        // A shutdown has nothing to save and is never long under way: there is none to abort.
        if abort {
            return Err("ERR No shutdown in progress.".to_owned());
        }
        // Nothing would be saved; that its writes may be lost is to be said by who ends a script.
        if let Some(text) = self.node.scripts.busy().filter(|_| !nosave) {
            return Err(text.to_owned());
        }
        self.node.shutdown.notify_one();
        Ok(())
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration.min(SLEEP_MAX));
    }

    fn sha1(&self, bytes: &[u8]) -> [u8; 20] {
        sha1(bytes)
    }

    fn log(&self, message: &str) {
        tracing::warn!("DEBUG LOG: {}", message.escape_debug());
    }

    fn set_active_expire(&self, on: bool) {
        self.node.store.set_active_expire(on);
    }
}
