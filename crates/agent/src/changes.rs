//! Owns what operators ask of the cluster's databases and nodes: each is a plan, and then a change of the records, which all nodes follow.
//! Never does anything itself on a node.

use crate::agent::{Agent, Membership, NoCluster};
use cluster::ids::{DatabaseId, HashSecret, NodeId, ShardNumber};
use cluster::keys::Key;
use cluster::limits;
use cluster::names::{DatabaseName, NodeName};
use cluster::placement::{Change as PlacementChange, NodeLoad, Plan, PlanError, Request, plan};
use cluster::records::{
    self, Assignment, DatabaseState, MapRecord, ShardRecord, SpecRecord, StoredDefinition, Unknown, UsersRecord,
};
use cluster::stripes::StripeMap;
use cluster::view::{Kept, View};
use config::definition::{Definition, DefinitionChange};
use membership::call::NewToken;
use membership::issuer::coordinator_key;
use membership::records::{Change, RecordsError, name_key, shut_out_key};
use node::NodeError;
use rand::RngCore;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use tokio::time::timeout;

/// How long a new database may take to be served everywhere.
const CREATE_TIMEOUT: Duration = Duration::from_secs(25);
/// Ports that are tried for a database that names none.
const PORTS: std::ops::RangeInclusive<u16> = 12000..=12999;
/// Records of shards in one transaction.
const SHARDS_AT_ONCE: usize = 100;

/// Why an operator's change was not made.
#[derive(Clone, Debug, PartialEq)]
pub enum ChangeError {
    NoCluster,
    Invalid {
        field: &'static str,
        why: String,
    },
    Exists(String),
    NotFound(String),
    /// With the arithmetic per node.
    NoRoom(String),
    /// Something else must be done first.
    Busy(String),
    Records(RecordsError),
    /// It was made, and is not complete yet.
    Slow(String),
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChangeError::NoCluster => NoCluster.fmt(f),
            ChangeError::Invalid { why, .. }
            | ChangeError::NoRoom(why)
            | ChangeError::Busy(why)
            | ChangeError::Slow(why) => f.write_str(why),
            ChangeError::Exists(name) => write!(f, "a database '{name}' exists already"),
            ChangeError::NotFound(what) => write!(f, "the cluster has no {what}"),
            ChangeError::Records(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ChangeError {}

impl From<NoCluster> for ChangeError {
    fn from(_: NoCluster) -> ChangeError {
        ChangeError::NoCluster
    }
}

impl From<RecordsError> for ChangeError {
    fn from(error: RecordsError) -> ChangeError {
        ChangeError::Records(error)
    }
}

/// Where the shards of a database will be, and what the nodes have then.
#[derive(Clone, Debug)]
pub struct Placement {
    /// The whole database's, complete.
    pub definition: Definition,
    /// What each copy takes.
    pub copy: limits::Resources,
    /// The nodes of each shard's copies, the primary first.
    pub shards: Vec<(ShardNumber, Vec<(NodeId, NodeName)>)>,
    pub loads: Vec<(NodeName, NodeLoad)>,
}

impl Agent {
    /// Where a new database would be placed. Refuses what [`Agent::create`] would refuse.
    pub fn plan(&self, definition: &Definition) -> Result<Placement, ChangeError> {
        let membership = self.membership()?;
        self.planned(&membership.view(), definition, new_id()).map(|(placement, _)| placement)
    }

    /// Makes a database and waits until it is served.
    pub fn create(&self, definition: &Definition) -> Result<Placement, ChangeError> {
        let membership = self.membership()?;
        let id = new_id();
        let (placement, plan) = self.planned(&membership.view(), definition, id)?;
        self.wait(create(&membership, id, &placement, &plan))?;
        Ok(placement)
    }

    fn planned(&self, view: &View, definition: &Definition, id: DatabaseId) -> Result<(Placement, Plan), ChangeError> {
        let invalid = |field, why: String| ChangeError::Invalid { field, why };
        node::check_for_cluster(definition).map_err(of_node)?;
        let name = &definition.name;
        let _: DatabaseName = name.parse().map_err(|error| invalid("name", format!("{error}")))?;
        if view.named(name).is_some() || self.node().database(name).is_some() {
            return Err(ChangeError::Exists(name.clone()));
        }
        let not_built: [(&'static str, bool); 6] = [
            ("from", definition.from.is_some()),
            ("replica_of", !definition.replica_of.is_empty()),
            ("backup_schedule", !definition.backup_schedule.is_empty()),
            ("backup_journal_keep", !definition.backup_journal_keep.is_empty()),
            ("unixsocket", definition.unixsocket.is_some()),
            ("bind", !definition.bind.is_empty()),
        ];
        if let Some((field, _)) = not_built.into_iter().find(|(_, is_given)| *is_given) {
            let why = format!("a database of a cluster has no {} yet", field.replace('_', " "));
            return Err(invalid(field, why));
        }
        if definition.replicas != 0 {
            let why = "replicas in a cluster are not built yet: leave replicas at 0";
            return Err(invalid("replicas", why.to_owned()));
        }
        let mut definition = definition.clone();
        self.choose_port(view, &mut definition)?;
        let workers = self.node().workers() as u64;
        let copy = limits::of_copy(&definition, workers).map_err(|error| invalid(error.field, error.why))?;
        let layout = view.layout(workers);
        let zones =
            definition.zones.iter().map(|zone| zone.parse().map_err(|error| invalid("zones", format!("{error}"))));
        let request = Request::Create {
            database: id,
            shards: definition.shards as u16,
            copies: definition.replicas + 1,
            needs: limits::needs(&copy),
            zones: zones.collect::<Result<_, _>>()?,
        };
        // Nobody knows the id of a database that is not there.
        let in_words = |error: &PlanError| error.to_string().replace(&id.to_string(), name);
        let plan = plan(&layout, &request).map_err(|error| ChangeError::NoRoom(in_words(&error)))?;
        let named = |node: NodeId| (node, view.nodes.get(&node).expect("the plan is of these nodes").name.clone());
        let mut shards: BTreeMap<ShardNumber, Vec<(NodeId, NodeName)>> = BTreeMap::new();
        for change in &plan.changes {
            if let PlacementChange::Add { shard, to } = *change {
                shards.entry(shard.number()).or_default().push(named(to));
            }
        }
        let loads = plan.after.loads().map_err(|error| no_room(&error))?;
        let placement = Placement {
            copy: limits::needs(&copy),
            shards: shards.into_iter().collect(),
            loads: loads.into_iter().map(|load| (named(load.node).1, load)).collect(),
            definition,
        };
        Ok((placement, plan))
    }

    /// Each node listens on the same port.
    fn choose_port(&self, view: &View, definition: &mut Definition) -> Result<(), ChangeError> {
        let taken: Vec<u16> = view
            .databases
            .values()
            .filter_map(|database| database.spec.as_ref())
            .flat_map(|spec| [spec.definition.known.port, spec.definition.known.tls_port])
            .filter(|&port| port != 0)
            .collect();
        for (field, port) in [("port", definition.port), ("tls_port", definition.tls_port)] {
            if port != 0 && (taken.contains(&port) || !self.node().is_free(port)) {
                return Err(ChangeError::Invalid { field, why: format!("port {port} is taken: choose another") });
            }
        }
        if definition.port == 0 && definition.tls_port == 0 {
            let free = PORTS.into_iter().find(|port| !taken.contains(port) && self.node().is_free(*port));
            definition.port = free.ok_or_else(|| ChangeError::Invalid {
                field: "port",
                why: format!("no port from {} to {} is free: give one", PORTS.start(), PORTS.end()),
            })?;
        }
        Ok(())
    }

    /// Deletes a database of the cluster. Waits until every node that runs has removed its part; false: one does not run, and will do it
    /// when it is back.
    pub fn delete(&self, name: &str) -> Result<bool, ChangeError> {
        let membership = self.membership()?;
        let (id, spec) = find(&membership.view(), name)?;
        self.wait(async {
            let changed = change_spec(&membership, id, &spec, |spec| spec.state = DatabaseState::Deleting);
            changed.await?;
            let is_gone = |view: &View| {
                let Some(database) = view.databases.get(&id) else { return true };
                let is_live = |node: &NodeId| view.live.contains_key(node);
                let nodes = database.shards.values().flat_map(|shard| &shard.assignments);
                database.spec.is_none()
                    || !nodes.into_iter().any(|assigned| is_live(&assigned.node)) && !database.shards.is_empty()
            };
            match timeout(CREATE_TIMEOUT, membership.view_when(is_gone)).await {
                Ok(view) => Ok(!view.databases.contains_key(&id)),
                Err(_) => {
                    Err(ChangeError::Slow(format!("'{name}' is being deleted, and not all nodes have done it yet")))
                }
            }
        })
    }

    pub fn set_paused(&self, name: &str, is_paused: bool) -> Result<(), ChangeError> {
        let membership = self.membership()?;
        let (id, spec) = find(&membership.view(), name)?;
        let state = if is_paused { DatabaseState::Paused } else { DatabaseState::Serving };
        self.wait(change_spec(&membership, id, &spec, |spec| spec.state = state))
    }

    /// Changes limits, policy or compression of a database; its copies follow.
    pub fn resize(&self, name: &str, change: &DefinitionChange) -> Result<(), ChangeError> {
        let membership = self.membership()?;
        let view = membership.view();
        let (id, spec) = find(&view, name)?;
        let invalid = |field, why: String| ChangeError::Invalid { field, why };
        let mut definition = spec.definition();
        for (field, _) in change.words() {
            match field.name {
                "memory_limit_bytes" | "ram_limit_bytes" | "policy" | "compression" | "password" => {}
                other => {
                    let why = format!("{other} of a cluster's database cannot be changed yet");
                    return Err(invalid(field.name, why));
                }
            }
        }
        definition.memory_limit_bytes = change.memory_limit_bytes.unwrap_or(definition.memory_limit_bytes);
        definition.ram_limit_bytes = change.ram_limit_bytes.unwrap_or(definition.ram_limit_bytes);
        definition.policy = change.policy.clone().unwrap_or(definition.policy);
        definition.compression = change.compression.clone().unwrap_or(definition.compression);
        node::check_for_cluster(&definition).map_err(of_node)?;
        let workers = self.node().workers() as u64;
        let copy = limits::of_copy(&definition, workers).map_err(|error| invalid(error.field, error.why))?;
        let request = Request::Resize { database: id, needs: limits::needs(&copy) };
        let planned = plan(&view.layout(workers), &request).map_err(|error| no_room(&error))?;
        if planned.changes.iter().any(|change| matches!(change, PlacementChange::Move { .. })) {
            let why = "the nodes of its shards do not have the room, and shards do not move yet";
            return Err(ChangeError::NoRoom(why.to_owned()));
        }
        if let Some(password) = &change.password {
            // From here it goes to the others as every change of a user does.
            let proxy = self
                .node()
                .database(name)
                .ok_or_else(|| ChangeError::NotFound(format!("endpoint of '{name}' here")))?;
            proxy.require_password(password.as_deref().filter(|password| !password.is_empty()));
        }
        self.wait(change_spec(&membership, id, &spec, |spec| {
            let known = &mut spec.definition.known;
            known.memory_limit_bytes = definition.memory_limit_bytes;
            known.ram_limit_bytes = definition.ram_limit_bytes;
            known.policy = definition.policy;
            known.compression = definition.compression;
        }))
    }

    /// A token with which another node joins.
    pub fn new_token(&self, may_coordinate: bool) -> Result<NewToken, ChangeError> {
        let membership = self.membership()?;
        let token = self.wait(membership.issuer().new_token(None, may_coordinate));
        token.map_err(ChangeError::Busy)
    }

    /// Removes a node that does not run, or this one. Its copies must be gone before, unless `loses_data`.
    pub fn forget(&self, name: &str, loses_data: bool) -> Result<(), ChangeError> {
        let membership = self.membership()?;
        let view = membership.view();
        let (id, record) = view.node_named(name).ok_or_else(|| ChangeError::NotFound(format!("node '{name}'")))?;
        let is_me = id == membership.me;
        if view.live.contains_key(&id) && !is_me {
            let why = format!(
                "node '{name}' runs: let it leave itself (flintkv cluster leave on that node), or stop it first"
            );
            return Err(ChangeError::Busy(why));
        }
        let on_it = |shard: &Kept<ShardRecord>| shard.assignments.iter().any(|assigned| assigned.node == id);
        let mut shards = Vec::new();
        for (database, found) in &view.databases {
            for (number, shard) in found.shards.iter().filter(|(_, shard)| on_it(shard)) {
                let database_name =
                    found.spec.as_ref().map_or_else(|| database.to_string(), |spec| spec.name.to_string());
                shards.push((
                    Key::Shard(*database, *number).to_string(),
                    shard.revision,
                    format!("{database_name}.{number}"),
                ));
            }
        }
        if !shards.is_empty() && (is_me || !loses_data) {
            let names: Vec<&str> = shards.iter().map(|(.., name)| name.as_str()).collect();
            let way = match is_me {
                true => "delete their databases first",
                false => "delete their databases first, or give up the data that were only there (--lose-data)",
            };
            return Err(ChangeError::Busy(format!("node '{name}' has the shards {}: {way}", names.join(", "))));
        }
        if !shards.is_empty() {
            return Err(ChangeError::Busy(
                "a shard without its node cannot be given up yet: delete its database".to_owned(),
            ));
        }
        self.wait(async {
            let issuer = membership.issuer();
            let pki_id: pki::NodeId = id.to_string().parse().map_err(ChangeError::Busy)?;
            // etcd first: a member that is gone and still counts takes part of the majority away.
            if issuer.member.etcd.external.is_none() {
                let busy = |error: coord::Error| ChangeError::Busy(format!("etcd: {error}"));
                let members = issuer.etcd.members().await.map_err(busy)?;
                if let Some(member) = members.iter().find(|member| member.name == id.to_string()) {
                    issuer.etcd.remove_member(member.id).await.map_err(busy)?;
                }
            }
            let now_ms = base::clock::wall_ms();
            let node_key = Key::Node(id).to_string();
            let change = Change::default()
                .given(&node_key, record.revision)
                .delete(&node_key)
                .delete(&name_key(record.name.as_str()))
                .delete(&coordinator_key(pki_id))
                // The node knows it, and could sign sessions of any user: another one is drawn, and all users sign in anew.
                .delete(&Key::ConsoleKey.to_string())
                .put(&shut_out_key(pki_id), &pki::ShutOut::until_it_joins_again(pki_id, now_ms));
            issuer.records.change(change).await?;
            Ok(())
        })
    }
}

impl Agent {
    /// This node leaves its cluster, which knows it no more afterwards.
    pub fn leave(&self) -> Result<(), ChangeError> {
        let member = self.status()?.member;
        self.forget(member.name.as_str(), false)?;
        let folder = self.membership()?.issuer().folder.clone();
        folder.remove().map_err(|error| ChangeError::Busy(error.to_string()))
    }
}

async fn create(
    membership: &Membership,
    id: DatabaseId,
    placement: &Placement,
    plan: &Plan,
) -> Result<(), ChangeError> {
    let definition = &placement.definition;
    let shards = definition.shards as u16;
    let map = StripeMap::even(shards)
        .ok_or_else(|| ChangeError::Invalid { field: "shards", why: format!("{shards} shards are not possible") })?;
    let mut secret = HashSecret([0; 16]);
    rand::rng().fill_bytes(&mut secret.0);
    let spec = SpecRecord {
        name: definition.name.parse().expect("it was checked"),
        state: DatabaseState::Creating,
        hash_secret: secret,
        config: BTreeMap::new(),
        definition: StoredDefinition { known: definition.clone(), unknown: Unknown::new() },
        unknown: Unknown::new(),
    };
    let map = MapRecord { runs: map.runs().to_vec(), unknown: Unknown::new() };
    let mut by_shard: BTreeMap<ShardNumber, Vec<NodeId>> = BTreeMap::new();
    for change in &plan.changes {
        if let PlacementChange::Add { shard, to } = *change {
            by_shard.entry(shard.number()).or_default().push(to);
        }
    }
    let name = database_name_key(&definition.name);
    let records = membership.records();
    let change = put(Change::default().given(&name, 0).put(&name, &id.to_string()), Key::Spec(id), &spec)?;
    let acl = node::first_users(definition.password.as_deref()).iter().map(|line| format!("user {line}")).collect();
    let change = put(change, Key::Users(id), &UsersRecord { acl, unknown: Unknown::new() })?;
    records.change(put(change, Key::Map(id), &map)?).await.map_err(|error| match error {
        RecordsError::Conflict => ChangeError::Exists(definition.name.clone()),
        error => ChangeError::Records(error),
    })?;
    let by_shard: Vec<_> = by_shard.into_iter().collect();
    for part in by_shard.chunks(SHARDS_AT_ONCE) {
        let mut change = Change::default();
        for (number, nodes) in part {
            let copies = (0..).zip(nodes).map(|(copy, &node)| Assignment::new(cluster::ids::CopyNumber(copy), node));
            let record = ShardRecord::new(cluster::ids::CopyNumber(0), copies.collect());
            change = put(change, Key::Shard(id, *number), &record)?;
        }
        records.change(change).await?;
    }
    let is_served = |view: &View| {
        let spec = view.databases.get(&id).and_then(|database| database.spec.as_ref());
        spec.is_some_and(|spec| spec.state != DatabaseState::Creating)
    };
    if timeout(CREATE_TIMEOUT, membership.view_when(is_served)).await.is_err() {
        let why = "not all nodes have made their shards yet: see flintkv cluster status";
        return Err(ChangeError::Slow(format!("'{}' was created, but {why}", definition.name)));
    }
    Ok(())
}

/// The name of a database is taken once.
fn database_name_key(name: &str) -> String {
    format!("db_names/{name}")
}

async fn change_spec(
    membership: &Membership,
    id: DatabaseId,
    spec: &Kept<SpecRecord>,
    change: impl FnOnce(&mut SpecRecord),
) -> Result<(), ChangeError> {
    let mut now = (*spec.record).clone();
    change(&mut now);
    let key = Key::Spec(id);
    let name = key.to_string();
    let mut changes = put(Change::default().given(&name, spec.revision), key, &now)?;
    if now.state == DatabaseState::Deleting {
        changes = changes.delete(&database_name_key(now.name.as_str()));
    }
    let revision = membership.records().change(changes).await?;
    // Whoever asks next sees it.
    let is_seen = |view: &View| {
        let database = view.databases.get(&id);
        database.and_then(|database| database.spec.as_ref()).is_none_or(|spec| spec.revision >= revision)
    };
    let _ = timeout(CREATE_TIMEOUT, membership.view_when(is_seen)).await;
    Ok(())
}

fn put<R: records::Record>(change: Change, key: Key, record: &R) -> Result<Change, ChangeError> {
    let bytes = records::encode(key, record)
        .map_err(|error| ChangeError::Invalid { field: "definition", why: error.to_string() })?;
    Ok(change.put_bytes(&key.to_string(), bytes))
}

fn find(view: &View, name: &str) -> Result<(DatabaseId, Kept<SpecRecord>), ChangeError> {
    let (id, database) = view.named(name).ok_or_else(|| ChangeError::NotFound(format!("database '{name}'")))?;
    Ok((id, database.spec.clone().expect("it has a name")))
}

fn new_id() -> DatabaseId {
    let mut bytes = [0; 10];
    rand::rng().fill_bytes(&mut bytes);
    DatabaseId(bytes)
}

fn no_room(error: &PlanError) -> ChangeError {
    ChangeError::NoRoom(error.to_string())
}

fn of_node(error: NodeError) -> ChangeError {
    match error {
        NodeError::Invalid { field, message } | NodeError::Unsupported { field, message } => {
            ChangeError::Invalid { field, why: message }
        }
        NodeError::Exists(name) => ChangeError::Exists(name),
        NodeError::NotFound(name) => ChangeError::NotFound(format!("database '{name}'")),
        NodeError::NoRoom { message } => ChangeError::NoRoom(message),
        NodeError::Busy(why) | NodeError::Io(why) => ChangeError::Busy(why),
    }
}
