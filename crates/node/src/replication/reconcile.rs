//! Owns the way from the role that a database has to the one that it is assigned. Never knows who assigns it (REPLICAOF, FAILOVER, an
//! operator, the start), nor how a primary is followed (`follow`).
//!
//! One thread at a time reconciles. It always moves to the newest assignment, so that of several that come at once the last one holds. A
//! step that fails leaves the assignment: the clock tries again.

use super::follow::Link;
use crate::database::Database;
use crate::persist;
use crate::role::{AssignedRole, FollowerCommand, Following, Left, LinkState};
use base::clock::wall_ms;
use commands::host::Unblock;
use engine::CHANGE_TIMEOUT;
use engine::replication::{Id, new_id};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Database {
    /// REPLICAOF. `None`: NO ONE. Unless it may not wait, a promotion has applied what has arrived when this returns.
    pub(crate) fn follow(&self, primary: Option<(&str, u16)>, may_wait: bool) -> Result<(), String> {
        self.replication.role.assign(AssignedRole::of(primary));
        match may_wait {
            true => self.reconcile(),
            false => self.reconcile_on_a_thread(),
        }
    }

    /// FAILOVER: follows a replica, which takes over.
    pub(super) fn hand_over_to(&self, host: &str, port: u16) -> Result<Arc<Following>, String> {
        self.replication.role.assign(AssignedRole::Replica { host: host.to_owned(), port, hands_over: true });
        self.reconcile()?;
        let following = self.replication.role.following();
        following
            .filter(|following| following.host == host && following.port == port)
            .ok_or_else(|| "ERR the role has been changed meanwhile".to_owned())
    }

    /// Called from the clock: tries again what could not be done.
    pub(crate) fn tick_role(&self) {
        let is_idle = self.replication.role.changing.try_lock().is_some();
        if is_idle
            && !self.replication.role.is_reached()
            && let Err(why) = self.reconcile_on_a_thread()
        {
            tracing::error!("database '{}' does not change its role: {why}", self.name());
        }
    }

    fn reconcile_on_a_thread(&self) -> Result<(), String> {
        let database = self.me.upgrade().ok_or("ERR the database is being closed")?;
        let reconcile = move || {
            if let Err(why) = database.reconcile() {
                tracing::error!("database '{}' does not change its role: {why}", database.name());
            }
        };
        let started = std::thread::Builder::new().name("role".into()).spawn(reconcile);
        started.map(drop).map_err(|error| format!("ERR cannot start a thread: {error}"))
    }

    /// Moves to the newest assignment. The error is a whole reply.
    fn reconcile(&self) -> Result<(), String> {
        let role = &self.replication.role;
        let _changing = role.changing.lock();
        while !role.is_reached() {
            let assignment = role.assignment();
            match &assignment.role {
                AssignedRole::Primary => self.become_primary()?,
                AssignedRole::Replica { host, port, hands_over } => {
                    self.become_replica(Following::new(host, *port, *hands_over, wall_ms()))?;
                }
            }
            role.reach(&assignment);
            self.keep_primary(assignment.role.primary())?;
        }
        Ok(())
    }

    /// For CONFIG REWRITE and INFO. The file of a database with a definition has it at once.
    fn keep_primary(&self, primary: Option<(&str, u16)>) -> Result<(), String> {
        let busy = "ERR the role has changed, but the configuration has not, because another change of it is in progress: send the command again";
        let turn = self.hub.config.turn(CHANGE_TIMEOUT).ok_or(busy)?;
        self.hub.config.keep_primary(&turn, primary).map_err(|why| format!("ERR {why}"))?;
        drop(turn);
        // What a definition shows is what a restart does. The default database's file is its owner's.
        if !self.is_default()
            && let Err(why) = self.rewrite_config(CHANGE_TIMEOUT)
        {
            tracing::error!(
                "database '{}': the role is not saved, and a restart would not restore it: {why}",
                self.hub.name
            );
        }
        Ok(())
    }

    /// A node starts with a replica. No client is there yet, and nothing is loaded.
    pub(crate) fn start_as_replica(&self) {
        self.hub.dataset.journaling.set_read_only(true);
        self.follow_in_store(true);
    }

    /// The role that the configuration says, when the dataset is there or being loaded.
    pub(crate) fn start_following(&self, host: &str, port: u16) -> Result<(), String> {
        let role = &self.replication.role;
        let assignment = role.assign(AssignedRole::of(Some((host, port))));
        let _changing = role.changing.lock();
        self.become_replica(Following::new(host, port, false, wall_ms()))?;
        role.reach(&assignment);
        Ok(())
    }

    /// Follows from now on. The dataset stays until the primary's has arrived.
    pub(crate) fn become_replica(&self, following: Arc<Following>) -> Result<(), String> {
        let database = self.me.upgrade().ok_or("ERR the database is being closed")?;
        let role = &self.replication.role;
        if let Some(before) = role.following() {
            before.end(FollowerCommand::Stop);
        }
        role.takes_over.store(false, Relaxed);
        *role.left.lock() = None;
        self.hub.dataset.journaling.set_read_only(true);
        self.hub.clients.unblock_all(Unblock::Replica);
        Link::start(database, &following)?;
        let Following { host, port, .. } = &*following;
        tracing::info!("database '{}' follows {host}:{port} from now on", self.hub.name);
        role.set(Some(following));
        Ok(())
    }

    /// Nothing is done if it is one. It stays a replica that accepts no writes as long as a restart would not know the new stream.
    fn become_primary(&self) -> Result<(), String> {
        let role = &self.replication.role;
        let Some(before) = role.following() else { return Ok(()) };
        let hands_over = role.takes_over.swap(false, Relaxed);
        let was_up = before.state() == LinkState::Connected && !hands_over;
        before.end(FollowerCommand::Promote);
        let Following { host, port, .. } = &*before;
        let left = Left { host: host.clone(), port: *port, was_up };
        self.take_lead(new_id()).map_err(|why| {
            format!("ERR the database is not promoted, because the new role could not be saved: {why}")
        })?;
        *role.left.lock() = Some(left);
        let journaling = &self.hub.dataset.journaling;
        let (name, offset) = (&self.hub.name, journaling.stream.offset());
        tracing::info!("database '{name}' is now a primary, and its stream continues at byte {offset}");
        if was_up {
            let text = format!("promoted while the primary {host}:{port} was up: both may take writes");
            tracing::warn!("database '{name}' was {text}");
            self.replication.report(text);
        }
        Ok(())
    }

    /// The database follows nobody any more: its own stream begins, with this id. The role has not changed after an error.
    pub(crate) fn take_lead(&self, id: Id) -> Result<(), String> {
        let journaling = &self.hub.dataset.journaling;
        // The journal is off if the primary's dataset could not be loaded. A primary without it would acknowledge what a restart does not find.
        if self.hub.config.snapshot().redis_files.appendonly && !persist::is_on(self) {
            let _busy = self.files.busy.lock();
            persist::begin(self).map_err(|why| format!("its journal cannot begin: {why}"))?;
        }
        // Before the first write: after a crash, the old id must not name it.
        let mark = journaling.stream.mark();
        journaling.stream.change_id(id);
        if let Err(why) = persist::note_stream(self) {
            mark.inspect(|mark| journaling.stream.restore_id(*mark));
            return Err(why);
        }
        // Replicas connect again, and learn the new id.
        self.end_links();
        self.follow_in_store(false);
        self.hub.clients.stale.store(false, Relaxed);
        self.replication.role.set(None);
        journaling.set_read_only(false);
        Ok(())
    }
}
