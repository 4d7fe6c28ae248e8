//! Owns the server's answers to the commands that ask about the server. Never parses an argument and never writes a
//! reply.

use crate::clients::{Clients, following};
use crate::control::Control;
use crate::dataset::Dataset;
use crate::job;
use crate::worker::Worker;
use crate::worker_handle::Message;
use base::clock::wall_ms;
use commands::host::{
    Access, ClientFilter, CommandLatency, Failover, Host, Killed, LatencyEvent, MemoryFigures, Pause, Replication,
    Role, Shutdown, SlowCommand, Space, Unblock,
};
use commands::job::Task;
use commands::session::Session;
use commands::{Reached, Run, Stop, UntilReached};
use lua::sha1;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// A transaction cannot be left in the middle. So it waits at most this long for another change of the configuration.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest DEBUG SLEEP. It blocks all connections.
const SLEEP_MAX: Duration = Duration::from_secs(60);

impl Worker {
    fn control(&self) -> Result<Arc<dyn Control>, Stop> {
        self.hub.control().ok_or(Stop::error("ERR the database is being closed"))
    }
}

impl Replication for Worker {
    fn written_offset(&self, me: &Session) -> u64 {
        let now = self.hub.dataset.journaling.stream.offset();
        // The stream may be another one than when the connection wrote.
        if now > me.replicated.from { now } else { me.replicated.to.min(now) }
    }

    fn reached(&self, until: &UntilReached) -> Reached {
        let here = self.hub.dataset.journaling.is_durable(until.position) == Some(true);
        Reached { here, replicas: self.hub.dataset.links.count_at(until.offset, until.durably) }
    }

    fn ask_replicas(&self, offset: u64) -> u64 {
        let Dataset { journaling, links, .. } = &self.hub.dataset;
        if links.must_ask(offset) {
            let asked = journaling.stream.offset();
            journaling.keep_for_replicas(&[b"REPLCONF", b"GETACK", b"*"], self.now_ms());
            links.hurry(asked);
        }
        journaling.stream.offset()
    }

    fn is_replica(&self) -> bool {
        self.config_snapshot().config.replica.primary.is_some()
    }

    fn role(&self) -> Role {
        match self.hub.control() {
            Some(control) => control.role(),
            None => Role::Primary { offset: self.hub.dataset.journaling.stream.offset(), replicas: Vec::new() },
        }
    }

    fn fail_over(&self, wanted: Failover) -> Run {
        self.control()?.fail_over(wanted).map_err(|text| Stop::Error(text.into()))
    }

    fn abort_failover(&self, me: &mut Session, may_wait: bool) -> Run {
        if !may_wait {
            return self.control()?.abort_failover(false).map_err(|text| Stop::Error(text.into()));
        }
        job::outcome(me).unwrap_or_else(|| job::leave(me, Task::AbortFailover))
    }

    fn take_over(&self, me: &mut Session, id: &str) -> Run {
        if let Some(outcome) = job::outcome(me) {
            return outcome;
        }
        self.control()?.may_take_over(id).map_err(|text| Stop::Error(text.into()))?;
        job::leave(me, Task::Follow { primary: None })
    }
}

impl Host for Worker {
    fn started_s(&self) -> u64 {
        self.hub.started_s
    }

    fn time_us(&self) -> u64 {
        Worker::time_us(self)
    }

    fn access(&self) -> &dyn Access {
        self
    }

    fn debug_allowed(&self, session: &Session) -> bool {
        // A proxy has asked its own configuration.
        session.forwarded.is_some() || self.config_snapshot().config.enable_debug_command.allows(session.local)
    }

    fn modules_allowed(&self, session: &Session) -> bool {
        self.config_snapshot().config.enable_module_command.allows(session.local)
    }

    fn client_list(&self, me: &Session, filter: &ClientFilter) -> String {
        // Publish what the caller changed in this batch, so that its own line is current.
        if let Some(mine) = self.hub.clients.client_info(me.id) {
            mine.publish(me);
        }
        self.hub.clients.list(filter, wall_ms(), &|id| self.hub.directory.name(id))
    }

    fn client_kill(&self, me: &Session, filter: &ClientFilter) -> Killed {
        let mut killed = self.hub.clients.kill(me.id, filter, wall_ms());
        killed.count += usize::from(self.hub.control().is_some_and(|control| control.end_primary_link(filter)));
        killed
    }

    fn client_pause(&self, duration_ms: u64, what: Pause) {
        let now_ms = wall_ms();
        self.hub.change_pauses(|clients| clients.pause(now_ms.saturating_add(duration_ms), what, now_ms));
    }

    fn client_unblock(&self, id: u64, how: Unblock) -> bool {
        self.hub.clients.unblock(id, how)
    }

    fn client_unpause(&self) {
        self.hub.change_pauses(Clients::unpause);
    }

    fn subscribe(&self, me: &Session, space: Space, name: &[u8]) {
        // The caller is in the register while its command runs.
        let Some(client_info) = self.hub.clients.client_info(me.id) else { return };
        self.hub.pubsub.subscribe(space, name, client_info);
    }

    fn unsubscribe(&self, me: &Session, space: Space, name: &[u8]) {
        self.hub.pubsub.unsubscribe(space, name, me.id);
    }

    fn publish(&self, space: Space, channel: &[u8], message: &[u8]) -> usize {
        self.hub.publish(space, channel, message, self.now_ms())
    }

    fn message_bytes_max(&self) -> usize {
        self.hub.message_bytes_max()
    }

    fn receivers(&self, space: Space, channel: &[u8]) -> usize {
        self.hub.receivers(space, channel)
    }

    fn sends_messages_on(&self) -> bool {
        self.hub.dataset.journaling.has_replicas_to_tell() || self.hub.has_other_proxies()
    }

    fn client_exists(&self, id: u64) -> bool {
        self.hub.clients.client_info(id).is_some()
    }

    fn tracking_changed(&self, me: &Session) {
        let Some(client_info) = self.hub.clients.client_info(me.id) else { return };
        match &me.tracking {
            Some(choice) => self.hub.tracking.start(&self.hub.dataset.store, &client_info, choice),
            None => self.hub.tracking.stop(&self.hub.dataset.store, &client_info),
        }
    }

    fn redirect_broken(&self, me: &Session) -> bool {
        self.hub
            .clients
            .client_info(me.id)
            .is_some_and(|client_info| client_info.following.load(Relaxed) & following::BROKEN != 0)
    }

    fn monitors_changed(&self, me: &Session) {
        let Some(client_info) = self.hub.clients.client_info(me.id) else { return };
        client_info.monitors.store(me.monitors, Relaxed);
        match me.monitors {
            true => self.hub.monitors.add(client_info),
            false => self.hub.monitors.remove(me.id),
        }
    }

    fn topic_names(&self, space: Space, pattern: Option<&[u8]>) -> Vec<Box<[u8]>> {
        self.hub.pubsub.names(space, pattern)
    }

    fn topics(&self, space: Space) -> usize {
        self.hub.pubsub.count(space)
    }

    fn subscribers(&self, space: Space, name: &[u8]) -> usize {
        self.hub.pubsub.subscriber_count(space, name)
    }

    fn config_get(&self, patterns: &[&[u8]]) -> Vec<(String, Vec<u8>)> {
        // Who may read the settings of a database is not the console's administrator.
        let found = self
            .hub
            .config
            .get(patterns)
            .into_iter()
            .filter(|(name, _)| !name.eq_ignore_ascii_case("console-password"));
        let mut found: Vec<_> = found.map(|(name, value)| (name, config::word_bytes(&value))).collect();
        if let Some((_, value)) = found.iter_mut().find(|(name, _)| name.eq_ignore_ascii_case("maxclients"))
            && let Some(control) = self.hub.control()
        {
            *value = control.clients_max().to_string().into_bytes();
        }
        found
    }

    fn config_set(&self, me: &mut Session, pairs: &[(&[u8], &[u8])], may_wait: bool) -> Run {
        if !may_wait {
            let done = self.control()?.set_config_inside(pairs, me.local, TRANSACTION_TIMEOUT);
            return done.map_err(|text| Stop::Error(text.into()));
        }
        if let Some(outcome) = job::outcome(me) {
            return outcome;
        }
        match self.control()?.try_set_config(pairs, me.local) {
            Some(Ok(())) if self.hub.kept_settings().is_some() => job::leave(me, Task::SpreadSettings),
            Some(done) => done.map_err(|text| Stop::Error(text.into())),
            None => {
                let pairs = pairs.iter().map(|&(name, value)| (name.into(), value.into())).collect();
                job::leave(me, Task::SetConfig { pairs, local: me.local })
            }
        }
    }

    fn config_rewrite(&self, me: &mut Session, may_wait: bool) -> Run {
        if !may_wait {
            let done = self.control()?.rewrite_config(TRANSACTION_TIMEOUT);
            return done.map_err(|text| Stop::Error(text.into()));
        }
        // What is kept for all shards is kept since CONFIG SET. If that could not be, this says so again.
        let task = if self.hub.kept_settings().is_some() { Task::SpreadSettings } else { Task::RewriteConfig };
        job::outcome(me).unwrap_or_else(|| job::leave(me, task))
    }

    fn follow(&self, me: &mut Session, primary: Option<(&str, u16)>, may_wait: bool) -> Run {
        if !may_wait {
            return self.control()?.follow(primary, false).map_err(|text| Stop::Error(text.into()));
        }
        let primary = primary.map(|(host, port)| (host.to_owned(), port));
        job::outcome(me).unwrap_or_else(|| job::leave(me, Task::Follow { primary }))
    }

    fn followed(&self) -> Option<(String, u16)> {
        self.hub.config.snapshot().replica.primary.clone()
    }

    fn save(&self, me: &mut Session) -> Run {
        job::outcome(me).unwrap_or_else(|| job::leave(me, Task::Save))
    }

    fn reload(&self, me: &mut Session, saves: bool) -> Run {
        job::outcome(me).unwrap_or_else(|| job::leave(me, Task::Reload { saves }))
    }

    fn save_in_background(&self, schedule: bool) -> Result<&'static str, String> {
        self.hub.control().ok_or("ERR the database is being closed")?.save_in_background(schedule)
    }

    fn saves_at_end(&self) -> bool {
        self.hub.control().is_some_and(|control| control.saves_at_end())
    }

    fn save_flushed(&self, me: &mut Session, may_wait: bool) -> Run {
        if let Some(outcome) = job::outcome(me) {
            return outcome;
        }
        let control = self.hub.control().filter(|control| control.saves_at_end());
        match control {
            None => Ok(()),
            Some(_) if may_wait => job::leave(me, Task::SaveFlushed),
            Some(control) => {
                control.save_flushed(false);
                Ok(())
            }
        }
    }

    fn journaled(&self, me: &Session) -> Option<(u64, bool)> {
        let journaling = &self.hub.dataset.journaling;
        let now = journaling.position();
        // The journal may be another one than when the connection wrote.
        let position = if now > me.written.from { now } else { me.written.to.min(now) };
        journaling.is_durable(position).map(|is_durable| (position, is_durable))
    }

    fn rewrite_journal(&self) -> Run {
        self.control()?.rewrite_journal().map_err(|text| Stop::Error(text.into()))
    }

    fn last_save_s(&self) -> u64 {
        self.hub.control().map_or(self.hub.started_s, |control| control.last_save_s())
    }

    fn reset_stats(&self) {
        self.hub.stats.reset();
        self.hub.dataset.store.reset_stats();
        self.hub.clients.too_slow.store(0, Relaxed);
        if let Some(control) = self.hub.control() {
            control.reset_stats();
        }
    }

    fn info(&self, sections: &[&[u8]]) -> String {
        self.hub.control().map_or_else(String::new, |control| control.info(sections))
    }

    fn slowlog(&self, count: usize) -> Vec<SlowCommand> {
        self.hub.slow_log.newest(count)
    }

    fn slowlog_len(&self) -> usize {
        self.hub.slow_log.len()
    }

    fn slowlog_reset(&self) {
        self.hub.slow_log.clear();
    }

    fn latency_latest(&self) -> Vec<LatencyEvent> {
        self.hub.latency_events.latest()
    }

    fn latency_history(&self, event: &[u8]) -> Vec<(u64, u64)> {
        self.hub.latency_events.history(event)
    }

    fn latency_reset(&self, events: &[&[u8]]) -> usize {
        self.hub.latency_events.reset(events)
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
        let mut found: Vec<_> = self.hub.directory.all().filter(|command| wanted(command.name)).collect();
        found.sort_by_key(|command| command.id);
        found
            .into_iter()
            .filter_map(|command| {
                let summary = self.hub.stats.command_latency(command.id)?;
                Some(CommandLatency {
                    name: command.name.to_owned(),
                    calls: summary.count,
                    cumulative_us: summary.cumulative_us(),
                })
            })
            .collect()
    }

    fn memory(&self) -> MemoryFigures {
        self.hub.control().map_or_else(MemoryFigures::default, |control| control.memory())
    }

    fn malloc_report(&self) -> String {
        self.hub.control().map_or_else(String::new, |control| control.malloc_report())
    }

    fn purge_memory(&self) {
        if let Some(control) = self.hub.control() {
            control.purge_memory();
        }
    }

    fn shutdown(&self, me: &Session, wanted: Shutdown) -> Result<bool, String> {
        // While a script is busy, only SHUTDOWN NOSAVE may end it: the client must say that the script's writes may
        // be lost.
        let must_ask = matches!(wanted, Shutdown::Begin { saves, .. } if saves != Some(false));
        let busy = self.hub.scripts.busy();
        if let Some(text) = busy.filter(|_| must_ask) {
            return Err(text.to_owned());
        }
        // If the database is already being closed, nothing is left to do.
        let Some(control) = self.hub.control() else { return Ok(false) };
        control.shut_down(me.id, wanted)?;
        Ok(matches!(wanted, Shutdown::Begin { now: false, .. }) && busy.is_none())
    }

    fn sleep(&self, duration: Duration) {
        let until = Instant::now() + duration.min(SLEEP_MAX);
        for (_, worker_handle) in self.hub.worker_handles.iter().enumerate().filter(|&(index, _)| index != self.index) {
            // A worker that has stopped serves nobody.
            let _ = worker_handle.sender.send(Message::Sleep(until));
        }
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
    }

    fn sha1(&self, bytes: &[u8]) -> [u8; 20] {
        sha1(bytes)
    }

    fn log(&self, message: &str) {
        tracing::warn!("{}", message.escape_debug());
    }

    fn set_active_expire(&self, on: bool) {
        self.hub.dataset.store.set_active_expire(on);
    }
}
