//! Owns what a node does with its copies of shards that have replicas: from a shard's record to the copy's role, and from what the copy says
//! to the transactions that it needs. Never decides a role: `cluster::failover::duty` does, and a `node::ShardCopy` reaches it.

use super::{LocalCopy, Reconciler, functions_revision, take_functions_again};
use crate::lives::{self, Life, Roles};
use crate::replica_stream;
use cluster::failover::duty::{Duty, duty, handed_over, resumed};
use cluster::ids::{CopyNumber, DatabaseId, Epoch, Incarnation, ShardNumber, shard_uid};
use cluster::keys::Key;
use cluster::records::{self, Member, ShardRecord, SpecRecord};
use cluster::stripes::STRIPES;
use cluster::view::{DatabaseView, Revised, View};
use config::definition::Definition;
use membership::records::{Change, RecordsError};
use node::{BootClock, CopyHost, CopyMemory, CopyRole, PrimaryAddress, Requirements, ShardCopy, Term, copy_name};
use parking_lot::Mutex;
use rand::RngCore;
use std::path::PathBuf;
use std::sync::Arc;

/// A copy of a shard with replicas.
pub(super) struct Replicated {
    pub copy: Arc<ShardCopy>,
    /// The revision of what this process has written last into the shard's record. What was read before is not looked at any more.
    written: i64,
    /// The revision of the record that the copy was told last.
    told: i64,
    /// The epoch in which this process wrote that it serves: it has everything, and need not be promoted.
    resumed: Option<Epoch>,
}

/// What the copy has for what it keeps: the file of its life.
struct Host {
    life: Mutex<Life>,
    state_dir: PathBuf,
    name: String,
    wake: Arc<dyn Fn() + Send + Sync>,
}

impl CopyHost for Host {
    fn keep(&self, memory: &CopyMemory) -> Result<(), String> {
        let CopyMemory { incarnation, promised, served, acknowledges } = *memory;
        let mut life = self.life.lock();
        let roles = Roles { promised, served, acknowledges, boot: lives::boot() };
        let now = Life { incarnation, roles: Some(roles), ..life.clone() };
        lives::write(&self.state_dir, &self.name, &now)?;
        *life = now;
        Ok(())
    }

    fn changed(&self) {
        (self.wake)();
    }
}

impl LocalCopy {
    /// The shard's record is to be changed: its in-sync set, or its primary.
    pub(super) fn wants_a_change(&self) -> bool {
        let wants = |copy: &ShardCopy| copy.wanted_in_sync().is_some() || copy.wanted_handover().is_some();
        self.replicated.as_ref().is_some_and(|replicated| wants(&replicated.copy))
    }
}

/// The copy of a shard that a step is about.
#[derive(Clone, Copy)]
pub(super) struct CopyName {
    pub database: DatabaseId,
    pub shard: ShardNumber,
    pub copy: CopyNumber,
}

impl CopyName {
    fn key(self) -> Key {
        Key::Shard(self.database, self.shard)
    }
}

impl Reconciler {
    /// What is known of the copy's dataset here before it is opened. A dataset that may miss the end of what it had is another one: it takes
    /// a new incarnation, and keeps the promises.
    pub(super) fn life_with_roles(&self, which: CopyName, definition: &Definition) -> Result<Life, String> {
        let CopyName { database, shard, copy } = which;
        let name = copy_name(&definition.name, shard.0);
        let found = self.kept_life(database, shard, &name, copy)?;
        let (boot, kept_roles) = (lives::boot(), found.as_ref().and_then(|life| life.roles.clone()));
        let is_whole = match definition.persistence.as_str() {
            "none" => false,
            "always" => true,
            // What is written survives the end of the process, and not that of the machine.
            _ => kept_roles.as_ref().is_some_and(|roles| !boot.is_empty() && roles.boot == boot),
        };
        let incarnation = found.filter(|_| is_whole).map(|life| life.incarnation).unwrap_or_else(|| {
            let mut bytes = [0; 8];
            rand::rng().fill_bytes(&mut bytes);
            Incarnation(bytes)
        });
        let first = Roles { promised: Epoch::FIRST, served: None, acknowledges: false, boot: boot.clone() };
        let roles = Roles { boot, ..kept_roles.unwrap_or(first) };
        Ok(Life { uid: shard_uid(database, shard), incarnation, copy, flushes: 0, roles: Some(roles) })
    }

    /// The next step of a copy whose dataset is loaded. True: nothing is left to do. `owns`: the stripes of the shard.
    pub(super) fn step_replicated(
        &mut self,
        view: &View,
        which: CopyName,
        records: &DatabaseView,
        record: &Revised<ShardRecord>,
        owns: Vec<bool>,
    ) -> Result<bool, String> {
        let spec = records.spec.as_ref().expect("it is of a database with a name");
        let copy = self.begin_replicated(which, &spec.record)?;
        let replicated = self.replicated(which);
        // What this process has written says more.
        if record.revision < replicated.written {
            return Ok(false);
        }
        let resumed_epoch = replicated.resumed;
        copy.assigned(&record.staying());
        if std::mem::replace(&mut replicated.told, record.revision) != record.revision {
            copy.recorded(record.epoch, &record.in_sync);
        }
        let standing = copy.standing();
        let term = |epoch, in_sync: &[Member]| {
            let owns = owns.clone();
            let owns = Arc::new(move |stripe: usize| owns[stripe]);
            Term { epoch, in_sync: in_sync.to_vec(), is_vacant: record.was_vacant(), owns }
        };
        let mut is_done = true;
        match duty(record, &standing) {
            Duty::Serve if record.flushes < spec.flushes => {
                self.flush_replicated(which, &copy, records, record, &standing.me, &term)?;
                is_done = false;
            }
            Duty::Serve => match copy.wanted_handover().filter(|(epoch, _)| *epoch == record.epoch) {
                Some((_, to)) => {
                    is_done = false;
                    if let Some(record) = self.hand_over(which, record, to)? {
                        return self.step_replicated(view, which, records, &record, owns);
                    }
                }
                None => self.record_in_sync(which, &copy, record)?,
            },
            Duty::Follow { primary, epoch } => copy.follow(self.primary_address(view, which, record, primary, epoch)?),
            // This process wrote that epoch itself.
            Duty::Promote { epoch, .. } if resumed_epoch == Some(epoch) => {
                copy.serve(term(epoch, &record.in_sync));
                is_done = false;
            }
            Duty::Promote { epoch, .. } => {
                if !matches!(copy.status().role, CopyRole::Promotes(_)) {
                    take_functions_again(&self.local_copy(which).database, records);
                }
                copy.promote(term(epoch, &record.in_sync));
                is_done = false;
            }
            Duty::Resume(epoch) => {
                let mut next = resumed(record, &standing.me, epoch);
                if record.epoch == Epoch::FIRST {
                    next.flushes = spec.flushes;
                }
                self.resume(which, &copy, records, record, next, &term)?;
                is_done = false;
            }
            Duty::NotTheRecorded => {
                copy.rest();
                self.set_serves(which, false);
                return Err(
                    "this copy may lack writes that were acknowledged, so another one is to be named".to_owned()
                );
            }
            // A newer record comes.
            Duty::ReadAgain => is_done = false,
        }
        let serves = matches!(copy.status().role, CopyRole::Serves { .. });
        self.set_serves(which, serves);
        Ok(is_done)
    }

    fn local_copy(&mut self, which: CopyName) -> &mut LocalCopy {
        self.local_mut(which.database).copies.get_mut(&which.shard).expect("it is open")
    }

    fn replicated(&mut self, which: CopyName) -> &mut Replicated {
        self.local_copy(which).replicated.as_mut().expect("it has begun")
    }

    fn begin_replicated(&mut self, which: CopyName, spec: &SpecRecord) -> Result<Arc<ShardCopy>, String> {
        let (state_dir, wake) = (self.node.state_dir().to_owned(), Arc::clone(&self.wake));
        let local = self.local_copy(which);
        let definition = spec.definition();
        let requirements =
            Requirements { is_sync: definition.replication == "sync", in_sync_min: definition.min_in_sync as usize };
        if let Some(replicated) = &local.replicated {
            replicated.copy.set_requirements(requirements);
            return Ok(Arc::clone(&replicated.copy));
        }
        let roles = local.life.roles.clone().expect("it was opened with its roles");
        let memory = CopyMemory {
            incarnation: local.life.incarnation,
            promised: roles.promised,
            served: roles.served,
            acknowledges: roles.acknowledges,
        };
        let name = local.database.name().to_owned();
        let host = Host { life: Mutex::new(local.life.clone()), state_dir, name, wake };
        let uid = shard_uid(which.database, which.shard);
        let copy = ShardCopy::begin(&local.database, uid, which.copy, memory, Arc::new(host), BootClock::Machine)?;
        copy.set_requirements(requirements);
        local.replicated = Some(Replicated { copy: Arc::clone(&copy), written: 0, told: 0, resumed: None });
        self.served.insert_replicated(uid, &copy);
        Ok(copy)
    }

    fn primary_address(
        &self,
        view: &View,
        which: CopyName,
        record: &ShardRecord,
        primary: CopyNumber,
        epoch: Epoch,
    ) -> Result<PrimaryAddress, String> {
        let node = record.node_of(primary).ok_or("its primary is on no node")?;
        let peers = Arc::clone(&self.peers);
        let shard = (which.database, which.shard);
        let open = Box::new(move || replica_stream::open(&peers, node, shard));
        Ok(PrimaryAddress { copy: primary, epoch, name: view.node_name(node), open })
    }

    /// Writes that this copy serves from now on, and serves. Whatever is not certain, the record that comes next decides.
    fn resume(
        &mut self,
        which: CopyName,
        copy: &ShardCopy,
        records: &DatabaseView,
        record: &Revised<ShardRecord>,
        next: ShardRecord,
        term: &dyn Fn(Epoch, &[Member]) -> Term,
    ) -> Result<(), String> {
        // Whoever changes the functions waits only for shards that serve: those that begin to serve have the newest.
        let functions = Key::Functions(which.database).to_string();
        let given = Change::default().given(&functions, functions_revision(records));
        let Some(revision) = self.write_shard(which, record.revision, &next, given)? else { return Ok(()) };
        let replicated = self.replicated(which);
        (replicated.written, replicated.resumed) = (revision, Some(next.epoch));
        copy.serve(term(next.epoch, &next.in_sync));
        Ok(())
    }

    /// Brings the in-sync set of the primary here into the record.
    fn record_in_sync(
        &mut self,
        which: CopyName,
        copy: &ShardCopy,
        record: &Revised<ShardRecord>,
    ) -> Result<(), String> {
        let Some((epoch, in_sync)) = copy.wanted_in_sync().filter(|(epoch, _)| *epoch == record.epoch) else {
            return Ok(());
        };
        // The copy may have found this before it was told which copies are to go.
        let staying = record.staying();
        if in_sync.iter().any(|member| !record.is_in_sync(member.copy) && !staying.contains(&member.copy)) {
            return Ok(());
        }
        let next = ShardRecord { in_sync, ..ShardRecord::clone(&record.record) };
        if let Some(revision) = self.write_shard(which, record.revision, &next, Change::default())? {
            let replicated = self.replicated(which);
            (replicated.written, replicated.told) = (revision, revision);
            copy.recorded(epoch, &next.in_sync);
        }
        Ok(())
    }

    /// Writes that the copy `to` is the primary from now on. Returns the record, if it is certain that it was written. If not, this is done
    /// again until another record comes: the copy here serves nobody meanwhile.
    fn hand_over(
        &mut self,
        which: CopyName,
        record: &Revised<ShardRecord>,
        to: CopyNumber,
    ) -> Result<Option<Revised<ShardRecord>>, String> {
        let next = handed_over(record, to);
        let Some(revision) = self.write_shard(which, record.revision, &next, Change::default())? else {
            return Ok(None);
        };
        self.replicated(which).written = revision;
        Ok(Some(Revised { revision, record: Arc::new(next) }))
    }

    /// Deletes all keys, as an operator has asked. Nobody writes meanwhile, and the record that says so takes the next epoch: whoever comes
    /// back with the keys from before is not in its set.
    fn flush_replicated(
        &mut self,
        which: CopyName,
        copy: &ShardCopy,
        records: &DatabaseView,
        record: &Revised<ShardRecord>,
        me: &Member,
        term: &dyn Fn(Epoch, &[Member]) -> Term,
    ) -> Result<(), String> {
        let spec = records.spec.as_ref().expect("it is of a database with a name");
        copy.rest();
        self.set_serves(which, false);
        self.local_copy(which).database.empty()?;
        let mut next = resumed(record, me, record.epoch.next());
        (next.in_sync, next.flushes) = (vec![me.clone()], spec.flushes);
        self.resume(which, copy, records, record, next, term)?;
        tracing::info!("shard {}.{} was flushed by an operator", spec.name, which.shard);
        Ok(())
    }

    /// `None`: it is not certain that it was written.
    fn write_shard(
        &self,
        which: CopyName,
        revision: i64,
        next: &ShardRecord,
        given: Change,
    ) -> Result<Option<i64>, String> {
        let bytes = records::encode(which.key(), next).map_err(|error| error.to_string())?;
        let key = which.key().to_string();
        match self.change(given.given(&key, revision).put_bytes(&key, bytes)) {
            Ok(revision) => Ok(Some(revision)),
            Err(RecordsError::Conflict | RecordsError::Unknown(_)) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Whether sessions of proxies, and replicas, reach the copy.
    fn set_serves(&mut self, which: CopyName, serves: bool) {
        let served = Arc::clone(&self.served);
        let copy = self.local_copy(which);
        if std::mem::replace(&mut copy.serves, serves) != serves {
            match serves {
                true => served.insert(which.database, which.shard, &copy.database),
                false => served.remove(which.database, which.shard),
            }
        }
    }
}

/// The stripes that `owner` gives to the shard.
pub(super) fn stripes_of(shard: ShardNumber, owner: impl Fn(usize) -> u16) -> Vec<bool> {
    (0..usize::from(STRIPES)).map(|stripe| owner(stripe) == shard.0).collect()
}
