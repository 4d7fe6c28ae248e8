//! Owns what a primary does for its replicas from time to time: it tells them that it lives, ends those that are silent, and counts those
//! that keep up. Never knows a connection.

use crate::database::Database;
use crate::role::NOTHING_APPLIES;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Database {
    /// Ends the connections of all replicas.
    pub(crate) fn end_links(&self) {
        self.hub.clients.end_where(|client_info| client_info.is_replica.load(Relaxed));
    }

    /// The commands of a primary that are under way here may wait for the journal. Until they have run, no checkpoint is cut, and a journal
    /// whose files are full gets room only by a checkpoint. So it gets a file for them, as it does for a checkpoint.
    fn let_applying_end(&self) {
        if self.replication.applies_from.load(Relaxed) == NOTHING_APPLIES {
            return;
        }
        let log = self.files.journal.kept.lock().as_ref().map(|kept| Arc::clone(&kept.log));
        if let Some(log) = log.filter(|log| log.is_behind()) {
            log.demand(log.position());
        }
    }

    /// Called several times a second.
    pub(crate) fn tick_replicas(&self, now_ms: u64) {
        self.let_applying_end();
        let (config, links) = (self.hub.config.snapshot(), &self.hub.dataset.links);
        let (settings, timeout_ms) = (&config.primary, u64::from(config.replica.timeout_s) * 1000);
        let wanted = settings.replicas_min;
        let keep_up = || links.count_alive(settings.lag_s_max.saturating_mul(1000), now_ms);
        let has_too_few = wanted > 0 && settings.lag_s_max > 0 && keep_up() < wanted;
        // A replica refuses writes anyway.
        self.hub.dataset.journaling.set_too_few_replicas(has_too_few && !self.shard.store.follows());
        let all = links.all();
        if all.is_empty() {
            return;
        }
        for link in all.iter().filter(|link| link.silent_ms(now_ms) > timeout_ms) {
            tracing::warn!("replica {}:{} has sent nothing for repl-timeout: its link is closed", link.ip, link.port);
            self.hub.clients.end_where(|client_info| client_info.id == link.client);
        }
        // A primary that hands over adds nothing to its stream any more: the next one would not have it.
        let serving = &self.hub.dataset.journaling.serving;
        let leads = !self.shard.store.follows() && (!serving.is_on() || serving.is_open());
        if leads {
            self.check_replicas_if_due(now_ms, &all);
        }
        // A replica passes on what its own primary says.
        let told_ms = &self.replication.told_ms;
        // The first period begins now, because the first replica has just connected.
        let _ = told_ms.compare_exchange(0, now_ms, Relaxed, Relaxed);
        let is_due = now_ms.saturating_sub(told_ms.load(Relaxed)) >= settings.ping_period_s.saturating_mul(1000);
        if is_due && leads && self.replication.failover.lock().is_none() {
            told_ms.store(now_ms, Relaxed);
            self.hub.dataset.journaling.keep_for_replicas(&[b"PING"], now_ms);
        }
    }
}
