//! Owns what a node knows of its cluster: the records, kept up to date change by change. Never knows where a change comes from.

use crate::ids::{DatabaseId, NodeId, OperationId, SessionDigest, ShardNumber, ShardUid, shard_uid};
use crate::keys::Key;
use crate::limits::{self, Resources};
use crate::placement::{Condition, DatabaseCopies, Layout, NodeRoom, ShardCopies};
use crate::records::{
    self, ConsoleEndedRecord, ConsoleKeyRecord, ConsoleUsersRecord, DatabaseState, FailoverRecord, FeatureLevelRecord,
    FunctionsRecord, LayoutRecord, LeaderRecord, LiveRecord, MapRecord, NodeRecord, OperationRecord, Record,
    RecordError, SettingsRecord, ShardRecord, SpecRecord, StepKind, UsersRecord,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A record, and the revision of its last change.
#[derive(Clone, Debug, PartialEq)]
pub struct Revised<R> {
    pub record: Arc<R>,
    pub revision: i64,
}

impl<R> std::ops::Deref for Revised<R> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.record
    }
}

/// The records of a database. It is complete when it has spec and map.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DatabaseView {
    pub spec: Option<Revised<SpecRecord>>,
    pub map: Option<Revised<MapRecord>>,
    pub users: Option<Revised<UsersRecord>>,
    pub functions: Option<Revised<FunctionsRecord>>,
    pub shards: BTreeMap<ShardNumber, Revised<ShardRecord>>,
}

/// The records of the nodes' consoles.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConsoleView {
    pub users: Option<Revised<ConsoleUsersRecord>>,
    pub key: Option<Revised<ConsoleKeyRecord>>,
    /// The sessions that were ended before their time.
    pub ended: BTreeSet<SessionDigest>,
}

/// The records of a cluster. A clone is cheap for each record, and two views share what has not changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    pub nodes: BTreeMap<NodeId, Revised<NodeRecord>>,
    pub live: BTreeMap<NodeId, Revised<LiveRecord>>,
    pub databases: BTreeMap<DatabaseId, DatabaseView>,
    pub operations: BTreeMap<OperationId, Revised<OperationRecord>>,
    pub failovers: BTreeMap<OperationId, Revised<FailoverRecord>>,
    pub layout: Option<Revised<LayoutRecord>>,
    pub settings: Option<Revised<SettingsRecord>>,
    pub leader: Option<Revised<LeaderRecord>>,
    pub feature_level: Option<Revised<FeatureLevelRecord>>,
    pub console: ConsoleView,
    /// Records that cannot be read. What was known under their keys before is still there.
    pub unreadable: BTreeMap<String, RecordError>,
}

impl View {
    /// A record was put, or deleted if there are no bytes. `key` is below the cluster's prefix. Keys of others and of newer versions are
    /// left out.
    pub fn apply(&mut self, key: &str, bytes: Option<&[u8]>, revision: i64) {
        let Ok(parsed) = key.parse::<Key>() else { return };
        self.unreadable.remove(key);
        let Some(bytes) = bytes else { return self.remove(parsed) };
        if let Err(error) = self.put(parsed, bytes, revision) {
            self.unreadable.insert(key.to_owned(), error);
        }
    }

    fn put(&mut self, key: Key, bytes: &[u8], revision: i64) -> Result<(), RecordError> {
        fn kept<R: Record>(key: Key, bytes: &[u8], revision: i64) -> Result<Revised<R>, RecordError> {
            records::decode(key, bytes).map(|record| Revised { record: Arc::new(record), revision })
        }
        match key {
            Key::Node(id) => drop(self.nodes.insert(id, kept(key, bytes, revision)?)),
            Key::Live(id) => drop(self.live.insert(id, kept(key, bytes, revision)?)),
            Key::Spec(id) => self.database(id).spec = Some(kept(key, bytes, revision)?),
            Key::Users(id) => self.database(id).users = Some(kept(key, bytes, revision)?),
            Key::Functions(id) => self.database(id).functions = Some(kept(key, bytes, revision)?),
            Key::Map(id) => self.database(id).map = Some(kept(key, bytes, revision)?),
            Key::Shard(id, number) => {
                let shard = kept(key, bytes, revision)?;
                self.database(id).shards.insert(number, shard);
            }
            Key::Operation(id) => drop(self.operations.insert(id, kept(key, bytes, revision)?)),
            Key::Failover(id) => drop(self.failovers.insert(id, kept(key, bytes, revision)?)),
            Key::Layout => self.layout = Some(kept(key, bytes, revision)?),
            Key::Settings => self.settings = Some(kept(key, bytes, revision)?),
            Key::Leader => self.leader = Some(kept(key, bytes, revision)?),
            Key::FeatureLevel => self.feature_level = Some(kept(key, bytes, revision)?),
            Key::ConsoleUsers => self.console.users = Some(kept(key, bytes, revision)?),
            Key::ConsoleKey => self.console.key = Some(kept(key, bytes, revision)?),
            Key::ConsoleEnded(digest) => {
                kept::<ConsoleEndedRecord>(key, bytes, revision)?;
                self.console.ended.insert(digest);
            }
        }
        Ok(())
    }

    fn remove(&mut self, key: Key) {
        match key {
            Key::Node(id) => drop(self.nodes.remove(&id)),
            Key::Live(id) => drop(self.live.remove(&id)),
            Key::Spec(id) => self.database(id).spec = None,
            Key::Users(id) => self.database(id).users = None,
            Key::Functions(id) => self.database(id).functions = None,
            Key::Map(id) => self.database(id).map = None,
            Key::Shard(id, number) => drop(self.database(id).shards.remove(&number)),
            Key::Operation(id) => drop(self.operations.remove(&id)),
            Key::Failover(id) => drop(self.failovers.remove(&id)),
            Key::Layout => self.layout = None,
            Key::Settings => self.settings = None,
            Key::Leader => self.leader = None,
            Key::FeatureLevel => self.feature_level = None,
            Key::ConsoleUsers => self.console.users = None,
            Key::ConsoleKey => self.console.key = None,
            Key::ConsoleEnded(digest) => drop(self.console.ended.remove(&digest)),
        }
        self.databases.retain(|_, database| *database != DatabaseView::default());
    }

    fn database(&mut self, id: DatabaseId) -> &mut DatabaseView {
        self.databases.entry(id).or_default()
    }

    /// The database with this name, but for one that is being deleted: its name may be used again.
    pub fn named(&self, name: &str) -> Option<(DatabaseId, &DatabaseView)> {
        let is_it = |spec: &Revised<SpecRecord>| spec.name.as_str() == name && spec.state != DatabaseState::Deleting;
        let found = self.databases.iter().find(|(_, database)| database.spec.as_ref().is_some_and(is_it));
        found.map(|(id, database)| (*id, database))
    }

    /// The shard's owner has said that it serves the shard, and it runs.
    pub fn is_served(&self, shard: &ShardRecord) -> bool {
        !shard.in_sync.is_empty()
            && !shard.is_undecided()
            && shard.primary_node().is_some_and(|node| self.live.contains_key(&node))
    }

    /// How many of a shard's copies are in sync, on nodes that run.
    pub fn in_sync(&self, shard: &ShardRecord) -> usize {
        if shard.is_undecided() {
            return 0;
        }
        let is_live = |node: Option<NodeId>| node.is_some_and(|node| self.live.contains_key(&node));
        shard.in_sync.iter().filter(|member| is_live(shard.node_of(member.copy))).count()
    }

    pub fn shard(&self, uid: ShardUid) -> Option<&Revised<ShardRecord>> {
        self.databases.get(&uid.database())?.shards.get(&uid.number())
    }

    /// The name of a shard: that of its database, and its number.
    pub fn shard_name(&self, uid: ShardUid) -> String {
        let database = self.databases.get(&uid.database()).and_then(|database| database.spec.as_ref());
        let name = database.map_or_else(|| uid.database().to_string(), |spec| spec.name.to_string());
        format!("{name}.{}", uid.number())
    }

    /// The shards that have a copy on the node, and are not being deleted.
    pub fn shards_on(&self, node: NodeId) -> impl Iterator<Item = (ShardUid, &Revised<ShardRecord>)> {
        let is_kept = |spec: &Revised<SpecRecord>| spec.state != DatabaseState::Deleting;
        let kept = self.databases.iter().filter(move |(_, database)| database.spec.as_ref().is_some_and(is_kept));
        let shards = kept.flat_map(|(id, database)| {
            database.shards.iter().map(|(number, record)| (shard_uid(*id, *number), record))
        });
        shards.filter(move |(_, record)| record.on(node).is_some())
    }

    /// The name of a node; its id, if nothing is known of it.
    pub fn node_name(&self, id: NodeId) -> String {
        self.nodes.get(&id).map_or_else(|| id.to_string(), |node| node.name.to_string())
    }

    /// The node whose name this is, or whose id begins with it.
    pub fn node_named(&self, name: &str) -> Option<(NodeId, &Revised<NodeRecord>)> {
        let by_name = self.nodes.iter().find(|(_, node)| node.name.as_str() == name);
        by_name.or_else(|| self.nodes.iter().find(|(id, _)| id.to_string() == name)).map(|(id, node)| (*id, node))
    }

    /// The nodes and what is placed on them, or will be by operations that have begun. A database whose records are not complete takes nothing
    /// yet. `workers`: how many a node has.
    pub fn layout(&self, workers: u64) -> Layout {
        // The one that is to be created has a proxy too.
        let databases = self.databases.values().filter(|database| database.spec.is_some()).count() as u64 + 1;
        let node = |(id, node): (&NodeId, &Revised<NodeRecord>)| NodeRoom {
            id: *id,
            name: node.name.clone(),
            zone: node.zone.clone(),
            role: node.role,
            condition: if node.is_draining { Condition::Draining } else { Condition::Open },
            capacity: Resources {
                ram_bytes: limits::ram_for_copies(node.capacity.ram_bytes, databases),
                flash_bytes: node.capacity.flash_bytes,
            },
        };
        let mut coming: BTreeMap<ShardUid, BTreeSet<NodeId>> = BTreeMap::new();
        for operation in self.operations.values().filter(|operation| operation.ended_ms.is_none()) {
            for step in operation.steps.iter().skip(operation.done) {
                if let (StepKind::Add | StepKind::Move, Some(shard), Some(to)) = (step.kind, step.shard, step.to) {
                    coming.entry(shard).or_default().insert(to);
                }
            }
        }
        let database = |(id, database): (&DatabaseId, &DatabaseView)| {
            let definition = database.spec.as_ref()?.definition();
            let copy = limits::of_copy(&definition, workers).ok()?;
            let shard = |(number, shard): (&ShardNumber, &Revised<ShardRecord>)| {
                let primary = shard.primary_node()?;
                let mut replicas: BTreeSet<NodeId> = shard.assignments.iter().map(|assigned| assigned.node).collect();
                replicas.extend(coming.get(&shard_uid(*id, *number)).into_iter().flatten());
                replicas.retain(|node| *node != primary && self.nodes.contains_key(node));
                let replicas = replicas.into_iter().collect();
                Some(ShardCopies { number: *number, bytes: copy.memory_limit_bytes, primary, replicas })
            };
            Some(DatabaseCopies {
                id: *id,
                needs: limits::needs(&copy),
                copies: definition.replicas + 1,
                zones: definition.zones.iter().filter_map(|zone| zone.parse().ok()).collect(),
                shards: database.shards.iter().filter_map(shard).collect(),
            })
        };
        Layout {
            nodes: self.nodes.iter().map(node).collect(),
            databases: self.databases.iter().filter_map(database).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{CopyNumber, HashSecret, ProcessId};
    use crate::records::{Assignment, StoredDefinition, Unknown, encode};
    use crate::stripes::StripeMap;

    const ID: &str = "001122334455667788990000";

    fn spec(name: &str, state: DatabaseState) -> SpecRecord {
        let mut definition = StoredDefinition::default();
        definition.known.port = 7000;
        definition.known.shards = 2;
        let hash_secret = HashSecret([7; 16]);
        SpecRecord {
            name: name.parse().unwrap(),
            state,
            hash_secret,
            config: BTreeMap::new(),
            flushes: 0,
            definition,
            unknown: Unknown::new(),
        }
    }

    #[test]
    fn records_come_change_and_go() {
        let id: DatabaseId = ID.parse().unwrap();
        let mut view = View::default();
        let put = |view: &mut View, key: Key, bytes: Vec<u8>, revision| {
            view.apply(&key.to_string(), Some(&bytes), revision);
        };
        let (spec_key, map_key) = (Key::Spec(id), Key::Map(id));
        put(&mut view, spec_key, encode(spec_key, &spec("orders", DatabaseState::Serving)).unwrap(), 3);
        let map = MapRecord { runs: StripeMap::even(2).unwrap().runs().to_vec(), unknown: Unknown::new() };
        put(&mut view, map_key, encode(map_key, &map).unwrap(), 3);
        let shard = ShardRecord::new(CopyNumber(0), vec![Assignment::new(CopyNumber(0), NodeId([1; 20]))]);
        for number in 0..2 {
            let key = Key::Shard(id, ShardNumber(number));
            put(&mut view, key, encode(key, &shard).unwrap(), 3);
        }
        let live = Key::Live(NodeId([1; 20]));
        let record = LiveRecord { process: ProcessId([5; 8]), place: String::new(), unknown: Unknown::new() };
        put(&mut view, live, encode(live, &record).unwrap(), 4);
        let (found, database) = view.named("orders").unwrap();
        assert_eq!((found, database.shards.len(), database.spec.as_ref().unwrap().revision), (id, 2, 3));

        // A record that cannot be read changes nothing, and is told until it is right again.
        let before = view.clone();
        put(&mut view, spec_key, b"{".to_vec(), 5);
        assert_eq!(view.unreadable.keys().collect::<Vec<_>>(), [&spec_key.to_string()]);
        assert_eq!(view.databases, before.databases);
        put(&mut view, spec_key, encode(spec_key, &spec("orders", DatabaseState::Deleting)).unwrap(), 6);
        assert!(view.unreadable.is_empty());
        assert_eq!(view.named("orders"), None, "the name is free");

        // Others' keys are nothing to us.
        view.apply("tokens/ab", Some(b"x"), 7);
        assert!(view.unreadable.is_empty());

        for key in [spec_key, map_key, Key::Shard(id, ShardNumber(0)), Key::Shard(id, ShardNumber(1)), live] {
            view.apply(&key.to_string(), None, 8);
        }
        assert_eq!(view, View::default());
    }
}
