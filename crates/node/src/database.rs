//! Owns a database: a dataset with its limits and configuration, and the endpoint of its clients. Never knows a command.

use crate::capacity::{CapacityLedger, DEFAULT_NAME, Reservation, files_limit};
use crate::ending::Ending;
use crate::endpoint::{Address, Endpoint};
use crate::progress::{AtRest, DurableState, Failure, Progress};
use crate::role::Replication;
use crate::shard::Shard;
use crate::shared_settings::SHARED;
use crate::tls;
use crate::worker_pool::{Loops, Rounds};
use base::clock::wall_ms;
use config::{ChangeGuard, Config, ConfigStore, Draft, Secret};
use engine::{CHANGE_TIMEOUT, Hub, Peer, Rates, Role, Socket};
use parking_lot::Mutex;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};
use store::ChangeLog;
use store::counters::Counter;
use tokio::sync::Notify;

/// Why [`Database::set_and_keep_config`] failed.
#[derive(Debug)]
pub enum NotSet {
    Refused(String),
    /// The configuration file could not be written.
    File(String),
}

/// The limits of a database: RAM, flash.
fn limits(config: &Config) -> (u64, u64) {
    (config.ram_limit_bytes, files_limit(config))
}

fn is_of_tls(directive: &str) -> bool {
    directive.starts_with("tls-")
}

fn is_of_persistence(directive: &str) -> bool {
    directive == "appendonly"
}

fn switches_persistence(draft: &Draft) -> bool {
    draft.before.redis_files.appendonly != draft.now.redis_files.appendonly
}

fn is_password(directive: &str) -> bool {
    directive == "requirepass"
}

/// A dataset with its limits, users and counters, and where its clients come in.
pub struct Database {
    /// What the workers share.
    pub(crate) hub: Arc<Hub>,
    /// Its dataset.
    pub(crate) shard: Arc<Shard>,
    /// What the database holds of the machine.
    pub(crate) reservation: Arc<Reservation>,
    /// What all databases of the node hold.
    pub(crate) ledger: Arc<CapacityLedger>,
    /// SHUTDOWN asks here for the node's end.
    pub(crate) shutdown: Arc<Notify>,
    /// How it is to end.
    pub(crate) ending: Arc<Ending>,
    /// Why the node must end.
    pub(crate) failure: Failure,
    /// What was loaded from files of Redis, and saved.
    pub(crate) files: Progress,
    /// What it has for its replicas and its primary.
    pub(crate) replication: Replication,
    /// `None`: it is a copy, which only streams in memory reach.
    pub(crate) endpoint: Option<Arc<Endpoint>>,
    /// It began empty with this start, to survive from then on.
    pub(crate) begins: bool,
    pub(crate) started: Instant,
    /// Forty hexadecimal digits, new at every start.
    /// The node's.
    pub(crate) run_id: String,
    /// `master_replid` while the database has no stream.
    pub(crate) lone_id: String,
    pub(crate) rates: Mutex<Rates<{ Rate::COUNT }>>,
    /// The event loops, which all databases share.
    pub(crate) loops: Arc<Loops>,
    /// What they had done at the last CONFIG RESETSTAT.
    pub(crate) rounds_before: Mutex<Rounds>,
    pub(crate) memory_peak_bytes: AtomicU64,
    pub(crate) memory_startup_bytes: AtomicU64,
    pub(crate) is_deleting: AtomicBool,
    /// Closed when the last worker has ended. `None` after the database is closed.
    pub(crate) workers_end: Mutex<Option<mpsc::Receiver<()>>>,
    /// The database itself, for tasks that outlive a call.
    pub(crate) me: Weak<Database>,
}

/// The counters that [`Database::rates`] follows.
#[derive(Debug, Clone, Copy)]
pub enum Rate {
    Commands,
    NetInBytes,
    NetOutBytes,
    RamHits,
    FlashHits,
    FlashReads,
    FlashReadBytes,
    FlashWrites,
    FlashWriteBytes,
    Rounds,
    RoundsUs,
}

impl Database {
    /// What the event loops have done since the last CONFIG RESETSTAT.
    pub(crate) fn rounds(&self) -> Rounds {
        let (now, before) = (self.loops.rounds(), *self.rounds_before.lock());
        Rounds { count: now.count - before.count, busy_us: now.busy_us - before.busy_us }
    }

    /// Samples the counters for INFO's figures per second. Called every 100 ms.
    pub fn sample_rates(&self, now_ms: u64) {
        let counted = |counter| self.shard.store.counters().sum(counter);
        let mut totals = [0; Rate::COUNT];
        let rounds = self.loops.rounds();
        for (rate, total) in [
            (Rate::Commands, self.hub.stats.sum(|worker| &worker.commands)),
            (Rate::NetInBytes, self.hub.stats.sum(|worker| &worker.net_in_bytes)),
            (Rate::NetOutBytes, self.hub.stats.sum(|worker| &worker.net_out_bytes)),
            (Rate::RamHits, counted(Counter::RamHits)),
            (Rate::FlashHits, counted(Counter::FlashHits)),
            (Rate::FlashReads, counted(Counter::FlashReads)),
            (Rate::FlashReadBytes, counted(Counter::FlashReadBytes)),
            (Rate::FlashWrites, counted(Counter::FlashWrites)),
            (Rate::FlashWriteBytes, counted(Counter::FlashWriteBytes)),
            (Rate::Rounds, rounds.count),
            (Rate::RoundsUs, rounds.busy_us),
        ] {
            totals[rate as usize] = total;
        }
        self.rates.lock().sample(now_ms, totals);
    }
}

impl Database {
    pub fn name(&self) -> &str {
        &self.hub.name
    }

    pub fn config(&self) -> &Arc<ConfigStore> {
        &self.hub.config
    }

    pub fn addresses(&self) -> Vec<Address> {
        self.endpoint.as_ref().map_or_else(Vec::new, |endpoint| endpoint.addresses())
    }

    pub(crate) fn rejected_connections(&self) -> u64 {
        self.endpoint.as_ref().map_or(0, |endpoint| endpoint.rejected_connections.load(Relaxed))
    }

    pub fn is_default(&self) -> bool {
        &*self.hub.name == DEFAULT_NAME
    }

    pub fn is_paused(&self) -> bool {
        self.hub.clients.suspended.load(Relaxed)
    }

    /// Appends every later change to this log. Call this at most once, before any client's command.
    pub fn set_change_log(&self, log: Arc<dyn ChangeLog>) {
        self.shard.store.set_change_log(log);
    }

    /// What the database's journal is to its workers.
    #[doc(hidden)]
    pub fn journaling(&self) -> &Arc<engine::Journaling> {
        &self.hub.dataset.journaling
    }

    /// Connects a client of the node's own, with the rights of `role`: RESP3, exempt from pause and maxclients.
    pub fn connect(&self, role: Role) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        theirs.set_nonblocking(true)?;
        self.hub.hand_over(Socket::Console(theirs, role), Peer::Unix("console".into()))?;
        Ok(ours)
    }

    /// A connection that this worker serves.
    pub(crate) fn connect_to(&self, worker: usize, role: Role) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        theirs.set_nonblocking(true)?;
        self.hub.hand_to(worker, Socket::Console(theirs, role), Peer::Unix("console".into()))?;
        Ok(ours)
    }

    /// CONFIG SET on a thread that must not wait. `None`: the change needs file work, or another change is in
    /// progress. The error is the whole reply.
    pub fn try_set_config<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        pairs: &[(N, V)],
        local: bool,
    ) -> Option<Result<(), String>> {
        let turn = self.hub.config.turn(Duration::ZERO)?;
        match self.draft(&turn, pairs, local) {
            Ok(draft) if switches_persistence(&draft) => None,
            Ok(draft) if draft.sets(is_of_tls) || limits(&draft.before) != limits(&draft.now) => None,
            Ok(draft) => Some(self.apply_config(&turn, &draft, None)),
            Err(why) => Some(Err(why)),
        }
    }

    /// CONFIG SET: either every setting takes effect, or none does. Waits for files, and up to `timeout` for other
    /// changes. The error is the whole reply.
    pub fn set_config<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        pairs: &[(N, V)],
        local: bool,
        timeout: Duration,
    ) -> Result<(), String> {
        // A save may take long, so nothing else is held while it is waited for. A mistake is told at once.
        let switches = {
            let turn = self.config_turn(timeout)?;
            let draft = self.draft(&turn, pairs, local)?;
            switches_persistence(&draft).then(|| self.may_switch(&draft)).transpose()?.is_some()
        };
        let files = switches.then(|| self.files_at_rest(None)).transpose();
        let files = files.map_err(|why| format!("ERR CONFIG SET failed - {why}"))?;
        // Take the ledger's lock before the configuration's, as in `Node::resize`: room is checked under the ledger's
        // lock.
        let _change = self.ledger.begin_change(timeout).map_err(|busy| format!("ERR CONFIG SET failed - {busy}"))?;
        if self.is_deleting.load(Relaxed) {
            return Err("ERR CONFIG SET failed - the database is being deleted".to_owned());
        }
        let turn = self.config_turn(timeout)?;
        let draft = self.draft(&turn, pairs, local)?;
        self.apply_config(&turn, &draft, files.as_ref())
    }

    /// CONFIG SET inside of a transaction, which holds stripes: waits up to `timeout` for other changes. A switch of persistence needs a
    /// moment at which every stripe is free, so it is only checked here, and takes effect behind EXEC.
    pub fn set_config_inside<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        pairs: &[(N, V)],
        local: bool,
        timeout: Duration,
    ) -> Result<(), String> {
        let draft = {
            let turn = self.config_turn(timeout)?;
            self.draft(&turn, pairs, local)?
        };
        if !switches_persistence(&draft) {
            return self.set_config(pairs, local, timeout);
        }
        self.may_switch(&draft)?;
        let Some(database) = self.me.upgrade() else { return Err("ERR the database is being closed".to_owned()) };
        let value = if draft.now.redis_files.appendonly { "yes" } else { "no" };
        let switch = move || {
            if let Err(why) = database.set_config(&[("appendonly", value)], local, CHANGE_TIMEOUT) {
                tracing::error!(
                    "database '{}': a transaction has set appendonly, but the change failed after EXEC: {why}",
                    database.name()
                );
            }
        };
        let started = std::thread::Builder::new().name("appendonly".into()).spawn(switch);
        started.map(drop).map_err(|error| draft.refused_for("appendonly", &format!("cannot start a thread: {error}")))
    }

    /// CONFIG SET and CONFIG REWRITE in one. An error means that neither was done, unless its text says otherwise.
    /// The caller holds the ledger's lock.
    pub fn set_and_keep_config(&self, pairs: &[(&str, String)], timeout: Duration) -> Result<(), NotSet> {
        let turn = self.config_turn(timeout).map_err(NotSet::Refused)?;
        let draft = self.draft(&turn, pairs, true).map_err(NotSet::Refused)?;
        let files = switches_persistence(&draft).then(|| self.files_at_rest(Some(timeout))).transpose();
        let files = files.map_err(NotSet::Refused)?;
        let file = match self.hub.config.file() {
            Some(_) => {
                let users = self.user_directives(&draft.now, draft.sets(is_password));
                Some(self.hub.config.prepare_file(&turn, users, Some(&draft)).map_err(NotSet::File)?)
            }
            None => None,
        };
        self.apply_config(&turn, &draft, files.as_ref()).map_err(NotSet::Refused)?;
        let Some(file) = file else { return Ok(()) };
        file.publish().map_err(|why| {
            let why = why.trim_start_matches("ERR ");
            NotSet::File(format!("the change is in effect, but will be lost at the next start: {why}"))
        })
    }

    fn config_turn(&self, timeout: Duration) -> Result<ChangeGuard<'_>, String> {
        let busy = "ERR CONFIG SET failed - another change of the configuration is under way: try again";
        self.hub.config.turn(timeout).ok_or_else(|| busy.to_owned())
    }

    fn draft<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        turn: &ChangeGuard<'_>,
        pairs: &[(N, V)],
        local: bool,
    ) -> Result<Draft, String> {
        if !self.is_default()
            && let Some((name, _)) = pairs.iter().find(|(name, _)| config::is_of_node(name.as_ref()))
        {
            let name = String::from_utf8_lossy(name.as_ref());
            return Err(format!(
                "ERR CONFIG SET failed - '{name}' is a setting of the node: set it on the node's default database"
            ));
        }
        if self.is_of_cluster() {
            let is_shared = |name: &[u8]| {
                let row = config::find_name(name);
                row.is_none_or(|row| SHARED.contains(&row))
            };
            if let Some((name, _)) = pairs.iter().find(|(name, _)| !is_shared(name.as_ref())) {
                let name = String::from_utf8_lossy(name.as_ref());
                return Err(format!(
                    "ERR CONFIG SET failed (possibly related to argument '{name}') - '{name}' cannot be set for a database of a \
                     cluster: limits, policy and passwords are changed with flintkv database resize, users with ACL SETUSER"
                ));
            }
        }
        self.hub.config.draft(turn, pairs, local)
    }

    /// Carries out a draft. The steps that may fail come first, and change nothing if they fail. All other settings
    /// take effect through subscriptions. The turn is held until everything uses the draft. A switch of persistence needs the lock of
    /// `files`.
    fn apply_config(&self, turn: &ChangeGuard<'_>, draft: &Draft, files: Option<&AtRest<'_>>) -> Result<(), String> {
        let (before, now) = (&draft.before, &draft.now);
        // Also if the names of the files are unchanged: their contents may be new.
        let tls = match draft.sets(is_of_tls) {
            true => Some(tls::read(&now.tls).map_err(|why| {
                tracing::warn!("the TLS settings are unchanged: {why}");
                format!("ERR CONFIG SET failed - Unable to update TLS configuration: {why}")
            })?),
            false => None,
        };
        let is_ending = before.redis_files.appendonly && !now.redis_files.appendonly;
        if is_ending {
            self.switch_persistence(draft, files)?;
            if let Err(why) = self.resize(before, now) {
                tracing::warn!("database '{}': its flash could not be made smaller: {why}", self.hub.name);
            }
        } else {
            self.resize(before, now).map_err(|why| draft.refused(&why))?;
            if !before.redis_files.appendonly && now.redis_files.appendonly {
                self.switch_persistence(draft, files).inspect_err(|_| self.resize_back(before, now))?;
            }
        }
        if let Some(endpoint) = &self.endpoint {
            endpoint.relisten(before, now).map_err(|(name, why)| {
                self.resize_back(before, now);
                draft.refused_for(name, why)
            })?;
        }
        self.hub.config.keep(turn, draft);
        if before.primary != now.primary {
            self.tick_replicas(wall_ms());
        }
        if let (Some(tls), Some(endpoint)) = (tls, &self.endpoint) {
            endpoint.tls.put(tls);
        }
        Ok(())
    }

    /// Whether persistence may be switched. Together with other changes that may fail, all could not be undone.
    fn may_switch(&self, draft: &Draft) -> Result<(), String> {
        if draft.sets(|directive| !is_of_persistence(directive)) {
            let why = "appendonly must be set alone: set the other directives in a separate command";
            return Err(draft.refused_for("appendonly", why));
        }
        if draft.now.redis_files.appendonly {
            config::leaves_ram_for_values(&draft.now, self.is_default())
                .map_err(|why| draft.refused_for("appendonly", &why))?;
        }
        Ok(())
    }

    fn switch_persistence(&self, draft: &Draft, files: Option<&AtRest<'_>>) -> Result<(), String> {
        self.may_switch(draft)?;
        // It was switched by somebody else since this change was looked at.
        let files = files
            .ok_or_else(|| draft.refused_for("appendonly", "another command changed it at the same time: try again"))?;
        let switched = self.switch_journal(draft.now.redis_files.appendonly, files);
        switched.map_err(|why| draft.refused_for("appendonly", &why))
    }

    /// Back to the old limits, for which there was room a moment ago.
    fn resize_back(&self, before: &Config, now: &Config) {
        if limits(before) != limits(now)
            && let Err(why) = self.resize(now, before)
        {
            tracing::error!("the old limits could not be restored after a failed change: {why}");
        }
    }

    /// Applies new limits: refuses them if there is no room, and resizes flash. The caller holds the ledger's lock if
    /// the limits change.
    fn resize(&self, before: &Config, now: &Config) -> Result<(), String> {
        if limits(before) != limits(now) {
            self.ledger.check(&self.hub.name, limits(now))?;
        }
        self.shard.resize(before, now)
    }

    /// CONFIG REWRITE. Waits for the file, and up to `timeout` for other changes. The error is the whole reply.
    pub fn rewrite_config(&self, timeout: Duration) -> Result<(), String> {
        if self.is_of_cluster() {
            let why = "ERR the settings of a database of a cluster are kept in etcd, where CONFIG SET puts them: CONFIG REWRITE cannot wait for that \
                       in a transaction";
            return Err(why.to_owned());
        }
        let busy = "ERR Rewriting config file: a change of the configuration is under way: try again";
        let turn = self.hub.config.turn(timeout).ok_or(busy)?;
        self.hub.config.rewrite(&turn, self.user_directives(&self.hub.config.snapshot(), false))
    }

    /// The configuration's lines that describe the users. `None`: the users have a file of their own.
    fn user_directives(&self, config: &Config, is_new_password: bool) -> Option<Vec<String>> {
        let password = config.requirepass.as_ref().map(Secret::expose);
        config.aclfile.is_none().then(|| match is_new_password {
            true => self.hub.users.directives_with(password),
            false => self.hub.users.directives(password),
        })
    }

    // --- the database's share of the process's memory ---

    /// Called once a second: see [`Reservation::weigh`].
    pub fn weigh(&self) {
        self.reservation.weigh(self.hub.clients.totals().memory_bytes as u64, self.kept_bytes());
    }

    /// What the journal and the checkpoints take.
    fn kept_bytes(&self) -> u64 {
        self.files.journal.kept.lock().as_ref().map_or(0, DurableState::file_bytes)
    }

    /// The bytes of its files, as last measured, and their limit; 0: none.
    pub fn flash_files(&self) -> (u64, u64) {
        (self.reservation.files_bytes(), self.hub.config.snapshot().flash_limit_bytes)
    }

    /// The part of the process's resident bytes that counts as this database's.
    pub fn resident_of(&self, process: u64) -> u64 {
        self.ledger.share(&self.reservation, process)
    }

    /// The part of the process's allocated bytes, without objects, that counts as this database's.
    pub fn allocated_of(&self, process: u64) -> u64 {
        self.ledger.share_beside(&self.reservation, process)
    }
}

impl Rate {
    pub const COUNT: usize = Rate::RoundsUs as usize + 1;
}
