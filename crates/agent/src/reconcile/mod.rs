//! Owns the way from the cluster's records to what runs on this node: which proxies and copies are open, and which of them serve. Never
//! decides what there should be: that is in etcd.
//!
//! It compares what is wanted with what is there, and does the next step of each database; so it does not matter what happened before, or
//! how often it is called. A step that fails is tried again.
//!
//! A copy serves when three things are true: its dataset is loaded, it is the primary in the shard's record, and this process has written
//! its own epoch there. So a process that was replaced, or whose dataset is another one, never serves.

mod replicas;

use crate::desk::SHARDS_AT_ONCE;
use crate::followers::Followers;
use crate::functions::{KeptFunctions, codes};
use crate::links::Served;
use crate::lives::{self, Life};
use crate::operations::{self, Part};
use crate::peers::Peers;
use crate::published::OtherNodes;
use crate::settings::{Agreed, Agreement, KeptSettings};
use crate::shard::{ClusterShard, Place};
use crate::shared::{self, Entries, merge};
use base::clock::wall_ms;
use cluster::ids::{CopyNumber, DatabaseId, Epoch, Incarnation, NodeId, ProcessId, ShardNumber, shard_uid};
use cluster::keys::Key;
use cluster::limits;
use cluster::records::{self, DatabaseState, Member, NodeRecord, Role, ShardRecord, SpecRecord, Unknown, UsersRecord};
use cluster::view::{DatabaseView, Revised, View};
use config::definition::Definition;
use membership::records::{Change, Records, RecordsError};
use node::{Database, Node, NodeError, Routes, Shard, copy_name};
use parking_lot::RwLock;
use rand::RngCore;
use replicas::{CopyName, Replicated, stripes_of};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::watch;

pub struct Reconciler {
    pub node: Arc<Node>,
    pub me: NodeId,
    /// This run of the node, and whether the cluster has known it as the node's.
    pub process: ProcessId,
    pub was_live: bool,
    pub records: Arc<RwLock<Records>>,
    pub view: watch::Receiver<Arc<View>>,
    pub runtime: Handle,
    pub peers: Arc<Peers>,
    pub served: Arc<Served>,
    pub proxy_ram_bytes: u64,
    /// Has [`Reconciler::step`] called soon.
    pub wake: Arc<dyn Fn() + Send + Sync>,
    /// The data nodes but this one.
    pub others: Arc<RwLock<Vec<NodeId>>>,
    /// What is open.
    pub local: BTreeMap<DatabaseId, LocalDatabase>,
    /// Why something is not as it should be, by database and shard.
    pub troubles: BTreeMap<(DatabaseId, Option<ShardNumber>), String>,
}

pub struct LocalDatabase {
    name: String,
    /// In the order of their numbers.
    shards: Vec<Arc<ClusterShard>>,
    proxy: Option<Proxy>,
    copies: BTreeMap<ShardNumber, LocalCopy>,
    /// The shards that have no copy here, nor files of an earlier one.
    without_files: BTreeSet<ShardNumber>,
}

struct Proxy {
    database: Arc<Database>,
    /// What it and the cluster's record had when they last agreed.
    users: Entries,
    settings: Entries,
    /// As far as the proxy and the records were compared.
    compared: Compared,
    agreed: Arc<Agreed>,
    /// The revision of what this node has written last.
    written: i64,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Compared {
    users_version: u64,
    users_revision: i64,
    settings_version: u64,
    spec_revision: i64,
}

struct LocalCopy {
    database: Arc<Database>,
    life: Life,
    /// What this process has written into the shard's record.
    claimed: Option<Epoch>,
    serves: bool,
    /// Of a shard with replicas, as soon as the dataset is loaded.
    replicated: Option<Replicated>,
}

impl LocalCopy {
    fn is_loaded(&self) -> bool {
        matches!(self.database.state(), node::DatabaseState::Active | node::DatabaseState::Resizing { .. })
    }
}

impl Reconciler {
    /// One step for each database. True: something is still to be done, though no record changes.
    pub fn step(&mut self, view: &View) -> bool {
        // It was removed, and its shards may have begun anew elsewhere: the agent ends this.
        if !view.nodes.contains_key(&self.me) {
            return false;
        }
        match view.live.get(&self.me).map(|live| live.process == self.process) {
            Some(true) => self.was_live = true,
            // Another process is the node: this one never was, or is not any more.
            Some(false) => {
                if std::mem::take(&mut self.was_live) {
                    tracing::error!("another process has become this node: nothing is served here any more");
                }
                return !self.close_all();
            }
            // Its lease has ended, perhaps because etcd was away. What is served goes on; what is new waits.
            None if !self.was_live => return false,
            None => {}
        }
        let is_live = view.live.contains_key(&self.me);
        let mut unfinished = BTreeSet::new();
        self.meet(view);
        for (&id, database) in &view.databases {
            if self.step_of(view, id, database, is_live) {
                unfinished.insert(id);
            }
        }
        let mut is_unfinished = !unfinished.is_empty();
        if is_live {
            is_unfinished |= !self.report(view, &unfinished);
        }
        let gone: Vec<_> = self.local.keys().filter(|id| !view.databases.contains_key(id)).copied().collect();
        for id in gone {
            // A database that is deleted says so first. Records that are only missing may have been lost: the data stay.
            if self.local[&id].copies.is_empty() {
                is_unfinished |= !self.close(id, false);
                continue;
            }
            let name = &self.local[&id].name;
            tracing::error!(
                "the records of '{name}' are gone from etcd, and it was not deleted: its files stay in this node's state-dir"
            );
            is_unfinished |= !self.close(id, false);
        }
        self.troubles.retain(|(id, _), _| view.databases.contains_key(id));
        is_unfinished
    }

    /// Says which operations this node has done its part of, and what keeps it from the others. False: not yet.
    fn report(&self, view: &View, unfinished: &BTreeSet<DatabaseId>) -> bool {
        let mut is_said = true;
        for (&id, kept) in view.operations.iter().filter(|(_, operation)| operation.ended_ms.is_none()) {
            let is_followed = kept.database.map_or_else(|| unfinished.is_empty(), |id| !unfinished.contains(&id));
            let part = match is_followed {
                true => Part::Done,
                false => Part::Open { trouble: operations::trouble_with(kept.database, &self.troubles) },
            };
            let operation = operations::reported(view, self.me, &kept.record, &part, wall_ms());
            if operation == *kept.record {
                continue;
            }
            let key = Key::Operation(id);
            // The other nodes of the operation write the same record: the next step finds what they have written.
            is_said &= records::encode(key, &operation).is_ok_and(|bytes| {
                let key = key.to_string();
                self.change(Change::default().given(&key, kept.revision).put_bytes(&key, bytes)).is_ok()
            });
        }
        is_said
    }

    /// Makes links to the other data nodes before somebody needs them.
    fn meet(&self, view: &View) {
        let is_other = |(id, node): &(&NodeId, &Revised<NodeRecord>)| node.role == Role::Data && **id != self.me;
        let others: Vec<NodeId> = view.nodes.iter().filter(is_other).map(|(id, _)| *id).collect();
        self.others.write().clone_from(&others);
        for worker in 0..self.node.workers() {
            let (peers, others) = (Arc::clone(&self.peers), others.clone());
            let meet = async move { others.into_iter().for_each(|node| drop(peers.link(node))) };
            self.node.run_on_worker(worker, Box::new(move || Box::pin(meet)));
        }
    }

    /// Ends what this node does for the cluster. The files of copies stay. False: something is left.
    pub fn close_all(&mut self) -> bool {
        for id in self.local.keys().copied().collect::<Vec<_>>() {
            self.close(id, false);
        }
        self.local.is_empty()
    }

    /// Has copies of shards with replicas leave their roles, before the node closes all datasets.
    pub fn end_roles(&mut self) {
        let copies = self.local.values().flat_map(|local| local.copies.values());
        copies.filter_map(|copy| copy.replicated.as_ref()).for_each(|replicated| replicated.copy.end());
    }

    fn step_of(&mut self, view: &View, id: DatabaseId, database: &DatabaseView, is_live: bool) -> bool {
        let Some(spec) = &database.spec else { return false };
        if spec.state == DatabaseState::Deleting {
            return self.delete(id, database);
        }
        let Some(map) = &database.map else { return false };
        let Ok(map) = map.map() else { return false };
        let definition = spec.definition();
        let shards = definition.shards as u16;
        let owner = |stripe: usize| map.owner_of_stripe(stripe as u16).0;
        if !self.local.contains_key(&id) {
            let shard = |number| {
                let (name, which) = (copy_name(&definition.name, number), (id, ShardNumber(number)));
                Arc::new(ClusterShard::new(name, which, shards > 1, Arc::clone(&self.peers)))
            };
            let local = LocalDatabase {
                name: definition.name.clone(),
                shards: (0..shards).map(shard).collect(),
                proxy: None,
                copies: BTreeMap::new(),
                without_files: BTreeSet::new(),
            };
            self.served.insert_shards(id, &local.shards);
            self.local.insert(id, local);
        }
        let is_data = view.nodes.get(&self.me).is_some_and(|node| node.role == Role::Data);
        if is_data && self.local[&id].proxy.is_none() {
            let data_nodes = view.nodes.values().filter(|node| node.role == Role::Data).count() as u64;
            let here_bytes = definition.ram_limit_bytes / data_nodes.max(1);
            let opened = self.open_proxy(id, &definition, here_bytes, spec.hash_secret, database, owner);
            self.note(id, None, opened);
        }
        let mut is_unfinished = self.local[&id].proxy.is_none() && is_data;
        for (&number, record) in &database.shards {
            // Without the lease it says nothing in the shard's record.
            let mine = record.assignments.iter().find(|assigned| is_live && assigned.node == self.me);
            if is_live && record.on(self.me).is_none() && !self.local[&id].without_files.contains(&number) {
                let removed = self.remove_dropped(id, number, record);
                is_unfinished |= removed.is_err();
                self.note(id, Some(number), removed);
            }
            if let Some(mine) = mine.map(|mine| mine.copy) {
                self.local_mut(id).without_files.remove(&number);
                let stepped = self.step_of_copy(view, id, &definition, database, number, mine, record, owner);
                is_unfinished |= !matches!(stepped, Ok(true));
                self.note(id, Some(number), stepped.map(drop));
            }
            self.place(id, number, record);
        }
        let is_whole = database.shards.len() == usize::from(shards);
        if spec.state == DatabaseState::Creating
            && is_whole
            && database.shards.values().all(|shard| !shard.in_sync.is_empty())
        {
            is_unfinished |= !self.finish_creation(id, spec);
        }
        if let Some(proxy) = &self.local[&id].proxy {
            take_functions(&proxy.database, database);
            proxy.database.set_paused(spec.state == DatabaseState::Paused);
        }
        is_unfinished |= !self.share(id, database);
        self.note_settings(id);
        is_unfinished
    }

    /// Every shard of a new database has been made. Any node may say so.
    fn finish_creation(&self, id: DatabaseId, spec: &Revised<SpecRecord>) -> bool {
        let served = SpecRecord { state: DatabaseState::Serving, ..(*spec.record).clone() };
        let key = Key::Spec(id);
        let Ok(bytes) = records::encode(key, &served) else { return false };
        let key = key.to_string();
        self.change(Change::default().given(&key, spec.revision).put_bytes(&key, bytes)).is_ok()
    }

    fn open_proxy(
        &mut self,
        id: DatabaseId,
        definition: &Definition,
        here_bytes: u64,
        secret: cluster::ids::HashSecret,
        records: &DatabaseView,
        owner: impl Fn(usize) -> u16,
    ) -> Result<(), String> {
        let ram_bytes = match self.proxy_ram_bytes {
            0 => limits::proxy_ram_bytes(here_bytes, u64::MAX),
            bytes => bytes,
        };
        let proxy = Definition {
            shards: 1,
            replicas: 0,
            replication: Definition::default().replication,
            min_in_sync: 1,
            zones: Vec::new(),
            ram_limit_bytes: ram_bytes,
            memory_limit_bytes: ram_bytes,
            flash_limit_bytes: 0,
            policy: "noeviction".to_owned(),
            persistence: "none".to_owned(),
            backup_schedule: String::new(),
            backup_journal_keep: String::new(),
            ..definition.clone()
        };
        let local = self.local.get_mut(&id).expect("it was made before");
        let shards = local.shards.iter().map(|shard| Arc::clone(shard) as Arc<dyn Shard>).collect();
        let others = OtherNodes { database: id, peers: Arc::clone(&self.peers), nodes: Arc::clone(&self.others) };
        let followers = Followers {
            database: id,
            view: self.view.clone(),
            runtime: self.runtime.clone(),
            node: Arc::downgrade(&self.node),
            shards: local.shards.clone(),
        };
        let agreed: Arc<Agreed> = Arc::default();
        let settings = KeptSettings { agreed: Arc::clone(&agreed), followers: followers.clone() };
        let functions = KeptFunctions { records: Arc::clone(&self.records), followers };
        let routes = Routes::new(shards, owner)
            .with_others(Box::new(others))
            .with_functions(Box::new(functions))
            .with_settings(Box::new(settings));
        // Before the first client comes: the database may want a password.
        let users = recorded_users(records).ok_or("the record of its users is missing")?;
        let lines: Vec<String> = users.values().cloned().collect();
        let opened = self.node.open_proxy(&proxy, &lines, words(secret), routes).map_err(|error| error.to_string())?;
        self.served.insert_proxy(id, &opened);
        let settings = opened.shared_settings().into_iter().collect();
        let compared = Compared::default();
        local.proxy = Some(Proxy { database: opened, users, settings, compared, agreed, written: 0 });
        Ok(())
    }

    /// True: the copy serves, or has nothing to do.
    #[expect(clippy::too_many_arguments, reason = "a copy is named by four of them")]
    fn step_of_copy(
        &mut self,
        view: &View,
        id: DatabaseId,
        definition: &Definition,
        records: &DatabaseView,
        number: ShardNumber,
        mine: CopyNumber,
        record: &Revised<ShardRecord>,
        owner: impl Fn(usize) -> u16,
    ) -> Result<bool, String> {
        let spec = records.spec.as_ref().expect("it is of a database with a name");
        let name = copy_name(&definition.name, number.0);
        let is_kept = definition.persistence != "none";
        let which = CopyName { database: id, shard: number, copy: mine };
        if self.local[&id].copies.get(&number).is_some_and(|copy| copy.database.must_reopen()) {
            self.close_copy(id, number)?;
        }
        if !self.local[&id].copies.contains_key(&number) {
            // Without its proxy it would have users of its own.
            if self.local[&id].proxy.is_none() {
                return Ok(false);
            }
            let life = match definition.replicas {
                0 => self.life(id, number, &name, is_kept, mine, record, spec.flushes)?,
                _ => self.life_with_roles(which, definition)?,
            };
            let database = self.open_copy(id, definition, spec.hash_secret, number)?;
            lives::write(self.node.state_dir(), &name, &life)?;
            let copy = LocalCopy { database, life, claimed: None, serves: false, replicated: None };
            self.local_mut(id).copies.insert(number, copy);
        }
        let copy = &self.local[&id].copies[&number];
        if let Some(why) = copy.database.load_failure() {
            return Err(why);
        }
        if copy.is_loaded() {
            take_functions(&copy.database, records);
        } else if copy.replicated.is_none() {
            return Ok(false);
        }
        let stepped = match definition.replicas {
            0 => self.step_alone(which, records, record, owner),
            _ => self.step_replicated(view, which, records, record, stripes_of(number, owner)),
        };
        // Last, and not in the way of a role: a copy may refuse its limits for ever, and a disk may be slow.
        let copy = &self.local[&id].copies[&number];
        let resized = match copy.is_loaded() {
            true => resize(&copy.database, definition, self.node.workers() as u64),
            false => Ok(()),
        };
        let is_done = stepped?;
        resized.map(|()| is_done).map_err(|why| format!("its limits are those from before: {why}"))
    }

    /// The next step of the only copy of a shard, whose dataset is loaded. True: nothing is left to do.
    fn step_alone(
        &mut self,
        which: CopyName,
        records: &DatabaseView,
        record: &Revised<ShardRecord>,
        owner: impl Fn(usize) -> u16,
    ) -> Result<bool, String> {
        let CopyName { database: id, shard: number, copy: mine } = which;
        let spec = records.spec.as_ref().expect("it is of a database with a name");
        let local = self.local.get_mut(&id).expect("it was made before");
        let name = copy_name(&local.name, number.0);
        let copy = local.copies.get_mut(&number).expect("it is open");
        if copy.life.flushes < spec.flushes {
            // What is written behind the flush must not be flushed again: nobody writes until its number is in the file.
            copy.database.set_owned(|_| false);
            copy.serves = false;
            self.served.remove(id, number);
            copy.database.empty()?;
            let life = Life { flushes: spec.flushes, ..copy.life.clone() };
            lives::write(self.node.state_dir(), &name, &life)?;
            copy.life = life;
            tracing::info!("shard {name} was flushed by an operator");
        }
        if record.primary != mine {
            return Ok(true);
        }
        let life = copy.life.clone();
        let is_member =
            record.in_sync.iter().any(|member| member.copy == mine && member.incarnation == life.incarnation);
        if copy.claimed != Some(record.epoch) || !is_member {
            let epoch = if record.in_sync.is_empty() { record.epoch } else { record.epoch.next() };
            copy.claimed = None;
            self.claim(id, number, mine, life, epoch, record, functions_revision(records))?;
            self.local_mut(id).copies.get_mut(&number).expect("it is open").claimed = Some(epoch);
            return Ok(false);
        }
        let copy = self.local.get_mut(&id).and_then(|local| local.copies.get_mut(&number)).expect("it is open");
        if !std::mem::replace(&mut copy.serves, true) {
            copy.database.set_owned(|stripe| owner(stripe) == number.0);
            self.served.insert(id, number, &copy.database);
            tracing::info!("shard {name} is served here, epoch {}", record.epoch);
        }
        Ok(true)
    }

    /// Ends a copy that is not assigned to this node any more, and removes its files: the shard is served by others, which have everything that
    /// was acknowledged. Perhaps the node was away when that was decided.
    fn remove_dropped(&mut self, id: DatabaseId, number: ShardNumber, record: &ShardRecord) -> Result<(), String> {
        // A shard that has never served may have been opened anew, and the files here are of what it was.
        if record.in_sync.is_empty() {
            return Ok(());
        }
        let state_dir = self.node.state_dir().to_owned();
        let name = copy_name(&self.local[&id].name, number.0);
        let life = lives::read(&state_dir, &name)?.filter(|life| life.uid == shard_uid(id, number));
        if life.is_some_and(|life| life.roles.is_some() && life.copy < record.next_copy) {
            if let Some(copy) = self.local_mut(id).copies.remove(&number) {
                self.served.remove(id, number);
                self.served.remove_replicated(shard_uid(id, number));
                if let Some(replicated) = &copy.replicated {
                    replicated.copy.end();
                }
                if let Err(error) = self.node.delete_copy(&name) {
                    self.local_mut(id).copies.insert(number, copy);
                    return Err(format!("the files of a copy that has left this node are still there: {error}"));
                }
                lives::remove(&state_dir, &name);
            } else {
                self.discard(id, number, &name)?;
            }
            tracing::info!("the copy {name} has left this node: its files are removed");
        }
        self.local_mut(id).without_files.insert(number);
        Ok(())
    }

    /// What is kept here of this copy. The files of one that was given up are removed.
    fn kept_life(
        &self,
        id: DatabaseId,
        number: ShardNumber,
        name: &str,
        mine: CopyNumber,
    ) -> Result<Option<Life>, String> {
        let found = lives::read(self.node.state_dir(), name)?;
        if let Some(other) = found.as_ref().filter(|found| found.uid != shard_uid(id, number)) {
            return Err(format!("state-dir has the files of {}, another shard with the name {name}", other.uid));
        }
        // The cluster has given it up, perhaps while this node was away.
        if let Some(old) = found.as_ref().filter(|found| found.copy != mine) {
            tracing::warn!("{name} of this node, copy {}, was given up: its files are removed", old.copy);
            self.discard(id, number, name)?;
            return Ok(None);
        }
        Ok(found)
    }

    /// Which dataset the copy has or will have. An error: it has not the one that was acknowledged, and without an operator it serves
    /// nothing.
    #[expect(clippy::too_many_arguments, reason = "a copy is named by four of them")]
    fn life(
        &self,
        id: DatabaseId,
        number: ShardNumber,
        name: &str,
        is_kept: bool,
        mine: CopyNumber,
        record: &ShardRecord,
        flushes: u64,
    ) -> Result<Life, String> {
        let uid = shard_uid(id, number);
        let new = || {
            let mut bytes = [0; 8];
            rand::rng().fill_bytes(&mut bytes);
            Life { uid, incarnation: Incarnation(bytes), copy: mine, flushes, roles: None }
        };
        let found = self.kept_life(id, number, name, mine)?;
        let recorded = record.in_sync.iter().find(|member| member.copy == mine);
        match (found, recorded) {
            (None, None) => Ok(new()),
            (Some(found), None) if is_kept => Ok(found),
            (Some(found), Some(recorded)) if is_kept && found.incarnation == recorded.incarnation => Ok(found),
            (_, Some(_)) if is_kept => Err(format!(
                "the dataset of {name} that clients were acknowledged is not in this node's state-dir: bring the directories of this \
                 node back, or delete the database"
            )),
            (_, recorded) => {
                if recorded.is_some() {
                    tracing::warn!("shard {name} begins empty: its database has no persistence");
                }
                Ok(new())
            }
        }
    }

    fn open_copy(
        &self,
        id: DatabaseId,
        definition: &Definition,
        secret: cluster::ids::HashSecret,
        number: ShardNumber,
    ) -> Result<Arc<Database>, String> {
        let of_copy = limits::of_copy(definition, self.node.workers() as u64).map_err(|error| error.to_string())?;
        let proxy = self.local[&id].proxy.as_ref().map(|proxy| &proxy.database);
        let copy = self.node.open_copy(&of_copy, number.0, proxy.map(|proxy| &**proxy), Some(words(secret)));
        let copy = copy.map_err(|error| error.to_string())?;
        if let Some(proxy) = proxy {
            proxy.pass_settings_on(&copy);
        }
        Ok(copy)
    }

    /// Writes into the shard's record that this process serves it.
    #[expect(clippy::too_many_arguments, reason = "a copy is named by four of them")]
    fn claim(
        &self,
        id: DatabaseId,
        number: ShardNumber,
        mine: CopyNumber,
        life: Life,
        epoch: Epoch,
        record: &Revised<ShardRecord>,
        functions: i64,
    ) -> Result<(), String> {
        let member = Member { copy: mine, incarnation: life.incarnation, unknown: Unknown::new() };
        let claimed = ShardRecord { epoch, in_sync: vec![member], ..(*record.record).clone() };
        let key = Key::Shard(id, number);
        let bytes = records::encode(key, &claimed).map_err(|error| error.to_string())?;
        let key = key.to_string();
        // Whoever changes the functions waits only for shards that serve: those that begin to serve have the newest.
        let functions_key = Key::Functions(id).to_string();
        let change = Change::default().given(&key, record.revision).given(&functions_key, functions);
        match self.change(change.put_bytes(&key, bytes)) {
            Ok(_) => Ok(()),
            // What the record says now will come, and decides.
            Err(RecordsError::Conflict | RecordsError::Unknown(_)) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Returns the revision of the change.
    fn change(&self, change: Change) -> Result<i64, RecordsError> {
        let records = self.records.read().clone();
        self.runtime.block_on(records.change(change))
    }

    /// Whether something was changed at a proxy here, or at a shard's primary, that the records do not have yet.
    pub fn has_changes(&self) -> bool {
        if self.local.values().flat_map(|local| local.copies.values()).any(LocalCopy::wants_a_change) {
            return true;
        }
        let proxies = self.local.values().filter_map(|local| local.proxy.as_ref());
        proxies.into_iter().any(|proxy| {
            let Compared { users_version, settings_version, .. } = proxy.compared;
            (users_version, settings_version) != (proxy.database.users_version(), proxy.database.config().version())
        })
    }

    /// Brings users and settings of the proxy and of the records together. False: not yet.
    fn share(&mut self, id: DatabaseId, records: &DatabaseView) -> bool {
        let (Some(spec), Some(proxy)) = (&records.spec, self.local.get(&id).and_then(|local| local.proxy.as_ref()))
        else {
            return true;
        };
        let now = Compared {
            users_version: proxy.database.users_version(),
            users_revision: records.users.as_ref().map_or(0, |users| users.revision),
            settings_version: proxy.database.config().version(),
            spec_revision: spec.revision,
        };
        if now == proxy.compared {
            return true;
        }
        // Until what this node has written comes back, the view says what was before.
        if now.users_revision.max(now.spec_revision) < proxy.written {
            return true;
        }
        let Some(recorded) = recorded_users(records) else { return true };
        let mine = shared::users(proxy.database.user_lines());
        let users = merge(&proxy.users, &mine, &recorded);
        let mine_settings: Entries = proxy.database.shared_settings().into_iter().collect();
        let mut recorded_settings = proxy.settings.clone();
        recorded_settings.extend(spec.config.clone());
        let settings = merge(&proxy.settings, &mine_settings, &recorded_settings);
        let mut change = Change::default();
        let mut is_changed = false;
        if users != recorded {
            let record = UsersRecord {
                acl: users.values().map(|line| format!("user {line}")).collect(),
                unknown: records.users.as_ref().map_or_else(Unknown::new, |record| record.unknown.clone()),
            };
            let key = Key::Users(id);
            match records::encode(key, &record) {
                Ok(bytes) => {
                    change = change.given(&key.to_string(), now.users_revision).put_bytes(&key.to_string(), bytes)
                }
                Err(error) => {
                    tracing::error!("the users of '{}' stay on this node: {error}", spec.name);
                    return true;
                }
            }
            is_changed = true;
        }
        if settings != recorded_settings {
            let mut record = (*spec.record).clone();
            let changed = settings.iter().filter(|(name, value)| recorded_settings.get(*name) != Some(value));
            record.config.extend(changed.map(|(name, value)| (name.clone(), value.clone())));
            let key = Key::Spec(id);
            let Ok(bytes) = records::encode(key, &record) else { return true };
            change = change.given(&key.to_string(), spec.revision).put_bytes(&key.to_string(), bytes);
            is_changed = true;
        }
        let mut written = proxy.written;
        if is_changed {
            let records = self.records.read().clone();
            match self.runtime.block_on(records.change(change)) {
                Ok(revision) => written = revision,
                Err(_) => return false,
            }
        }
        let database = Arc::clone(&proxy.database);
        if users != mine {
            let lines: Vec<String> = users.values().cloned().collect();
            if let Err(why) = database.set_users(&lines) {
                tracing::error!("the users of '{}' in etcd are not taken: {why}", spec.name);
            }
        }
        let new: Vec<(&str, &str)> = settings
            .iter()
            .filter(|(name, value)| mine_settings.get(*name) != Some(value))
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        if !new.is_empty()
            && let Err(why) = database.set_config(&new, true, node::CHANGE_TIMEOUT)
        {
            tracing::error!("the settings of '{}' in etcd are not taken: {why}", spec.name);
        }
        let local = self.local_mut(id);
        for copy in local.copies.values() {
            database.pass_settings_on(&copy.database);
        }
        let proxy = local.proxy.as_mut().expect("it was there");
        proxy.written = written;
        (proxy.users, proxy.settings) = (users, settings);
        // The versions from before: what clients have changed since then is compared next time, together with what was taken just now.
        proxy.compared = now;
        let revision = if is_changed { written } else { now.spec_revision };
        proxy.agreed.set(Agreement { version: now.settings_version, revision });
        true
    }

    /// Copies have the settings of their proxy since they were opened, or since the proxy has agreed with the records.
    fn note_settings(&self, id: DatabaseId) {
        let local = &self.local[&id];
        if let Some(proxy) = &local.proxy {
            let revision = proxy.agreed.now().revision;
            local.copies.values().for_each(|copy| copy.database.note_settings(revision));
        }
    }

    /// Tells the proxy where the shard is.
    fn place(&self, id: DatabaseId, number: ShardNumber, record: &ShardRecord) {
        let local = &self.local[&id];
        let Some(shard) = local.shards.get(usize::from(number.0)) else { return };
        let here = local.copies.get(&number).filter(|copy| copy.serves);
        shard.set_place(match (here, record.primary_node()) {
            (Some(copy), _) => Place::Here(Arc::downgrade(&copy.database)),
            (None, Some(node)) if node != self.me => Place::At(node),
            _ => Place::Nowhere,
        });
    }

    /// Deletes what is here of the database, then its records. True: something is left.
    fn delete(&mut self, id: DatabaseId, database: &DatabaseView) -> bool {
        if !self.close(id, true) {
            return true;
        }
        let spec = database.spec.as_ref().expect("it says that it is deleted");
        let mine = |record: &Revised<ShardRecord>| record.assignments.iter().any(|assigned| assigned.node == self.me);
        let mut here = database.shards.iter().filter(|(_, record)| mine(record));
        let mut change = Change::default();
        let mut has_changes = false;
        for (&number, record) in here.by_ref().take(SHARDS_AT_ONCE) {
            // The node may have been away when the others deleted theirs.
            if let Err(why) = self.discard(id, number, &copy_name(spec.name.as_str(), number.0)) {
                tracing::error!("shard {}.{number} was not deleted: {why}", spec.name);
                return true;
            }
            // The last copy takes the record with it: that of the primary.
            let key = Key::Shard(id, number).to_string();
            if record.assignments.len() > 1 && record.primary_node() == Some(self.me) {
                continue;
            }
            change = change.given(&key, record.revision);
            if record.assignments.len() == 1 {
                change = change.delete(&key);
            } else {
                match records::encode(Key::Shard(id, number), &record.without(self.me)) {
                    Ok(bytes) => change = change.put_bytes(&key, bytes),
                    Err(error) => {
                        tracing::error!("{error}");
                        return true;
                    }
                }
            }
            has_changes = true;
        }
        if database.shards.is_empty() {
            // Whoever is first removes the rest.
            let key = Key::Spec(id).to_string();
            change = change.given(&key, spec.revision).delete(&key);
            for key in [Key::Map(id), Key::Users(id), Key::Functions(id)] {
                change = change.delete(&key.to_string());
            }
            has_changes = true;
        }
        if has_changes && let Err(error) = self.change(change) {
            tracing::debug!("the records of a deleted database are still there: {error}");
            return true;
        }
        // Those that the transaction had no room for come with the next step.
        here.next().is_some()
    }

    /// Closes proxy and copies, and removes the copies' files if they are not needed any more. False: something is left.
    fn close(&mut self, id: DatabaseId, removes: bool) -> bool {
        let Some(mut local) = self.local.remove(&id) else { return true };
        local.shards.iter().for_each(|shard| shard.set_place(Place::Nowhere));
        self.served.remove_proxy(id);
        self.served.remove_shards(id);
        if local.proxy.is_some() {
            match self.node.close_proxy(&local.name) {
                Ok(()) | Err(NodeError::NotFound(_)) => local.proxy = None,
                Err(error) => tracing::warn!("the proxy of '{}' was not closed: {error}", local.name),
            }
        }
        let mut failed = BTreeMap::new();
        for (number, copy) in std::mem::take(&mut local.copies) {
            self.served.remove(id, number);
            if let Some(replicated) = &copy.replicated {
                self.served.remove_replicated(shard_uid(id, number));
                replicated.copy.end();
            }
            let name = copy.database.name().to_owned();
            let ended = match removes {
                true => self.node.delete_copy(&name),
                false => self.node.close_copy(&name),
            };
            match ended {
                Ok(()) if removes => lives::remove(self.node.state_dir(), &name),
                Ok(()) => {}
                Err(error) => {
                    tracing::warn!("the copy {name} was not removed: {error}");
                    failed.insert(number, copy);
                }
            }
        }
        local.copies = failed;
        let is_done = local.copies.is_empty() && local.proxy.is_none();
        if !is_done {
            self.local.insert(id, local);
        }
        is_done
    }

    /// Closes a copy that gave up a part of its dataset on its files, and is to be opened again.
    fn close_copy(&mut self, id: DatabaseId, number: ShardNumber) -> Result<(), String> {
        self.served.remove(id, number);
        let local = self.local_mut(id);
        let copy = local.copies.remove(&number).expect("it is open");
        if let Some(shard) = local.shards.get(usize::from(number.0)) {
            shard.set_place(Place::Nowhere);
        }
        if let Some(replicated) = &copy.replicated {
            self.served.remove_replicated(shard_uid(id, number));
            replicated.copy.end();
        }
        let closed = self.node.close_copy(copy.database.name()).map_err(|error| error.to_string());
        if closed.is_err() {
            self.local_mut(id).copies.insert(number, copy);
        }
        closed
    }

    /// Removes the files of a copy that is not open.
    fn discard(&self, id: DatabaseId, number: ShardNumber, name: &str) -> Result<(), String> {
        let state_dir: &Path = self.node.state_dir();
        if lives::read(state_dir, name)?.is_some_and(|life| life.uid == shard_uid(id, number)) {
            self.node.discard_copy(name).map_err(|error| error.to_string())?;
            lives::remove(state_dir, name);
        }
        Ok(())
    }

    fn local_mut(&mut self, id: DatabaseId) -> &mut LocalDatabase {
        self.local.get_mut(&id).expect("it was made before")
    }

    /// Tells a trouble once.
    fn note(&mut self, id: DatabaseId, number: Option<ShardNumber>, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => drop(self.troubles.remove(&(id, number))),
            // Nothing may be opened any more.
            Err(_) if self.node.is_stopping() => {}
            Err(why) => {
                let name = &self.local[&id].name;
                let what =
                    number.map_or_else(|| format!("the proxy of '{name}'"), |number| format!("shard {name}.{number}"));
                if self.troubles.get(&(id, number)) != Some(&why) {
                    tracing::error!("{what} is not as it should be: {why}");
                    self.troubles.insert((id, number), why);
                }
            }
        }
    }
}

/// 0: there is no record.
fn functions_revision(records: &DatabaseView) -> i64 {
    records.functions.as_ref().map_or(0, |functions| functions.revision)
}

/// Gives a proxy or a copy the functions of its database, if it does not have them.
fn take_functions(database: &Database, records: &DatabaseView) {
    let revision = functions_revision(records);
    if database.functions_revision() != revision {
        take_functions_again(database, records);
    }
}

/// The same, if it may have other ones than its revision says: the dataset of a primary has brought them.
fn take_functions_again(database: &Database, records: &DatabaseView) {
    let revision = functions_revision(records);
    let codes = records.functions.as_ref().map_or_else(Vec::new, |record| codes(record));
    if let Err(why) = database.take_functions(revision, &codes) {
        tracing::error!("functions of '{}' in etcd are not taken: {why}", database.name());
    }
}

/// The users in the cluster's record. `None`: the record is missing, or is not of users.
fn recorded_users(records: &DatabaseView) -> Option<Entries> {
    let record = records.users.as_ref()?;
    Some(shared::users(record.acl.iter().filter_map(|line| Some(line.strip_prefix("user ")?.to_owned()))))
}

/// The store's form of the secret.
fn words(secret: cluster::ids::HashSecret) -> node::HashSecret {
    let half = |at: usize| u64::from_le_bytes(secret.0[at..at + 8].try_into().expect("eight bytes"));
    [half(0), half(8)]
}

/// Gives a copy the limits that its database has now.
fn resize(copy: &Database, definition: &Definition, workers: u64) -> Result<(), String> {
    let wanted = limits::of_copy(definition, workers).map_err(|error| error.to_string())?;
    let has = copy.definition();
    let mut pairs: Vec<(&str, String)> = Vec::new();
    let mut set = |name, is_changed: bool, value: String| {
        if is_changed {
            pairs.push((name, value));
        }
    };
    set("memory-limit", wanted.memory_limit_bytes != has.memory_limit_bytes, wanted.memory_limit_bytes.to_string());
    set("ram-limit", wanted.ram_limit_bytes != has.ram_limit_bytes, wanted.ram_limit_bytes.to_string());
    set("maxmemory-policy", wanted.policy != has.policy, wanted.policy.clone());
    set("flash-compression", wanted.compression != has.compression, wanted.compression.clone());
    if pairs.is_empty() {
        return Ok(());
    }
    copy.set_config(&pairs, true, node::CHANGE_TIMEOUT).map_err(|why| why.trim_start_matches("ERR ").to_owned())
}
