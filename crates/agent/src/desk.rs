//! Owns the transactions that operators' wishes become: each is planned on the records as this node knows them, and made only if they are
//! still these; otherwise it is planned again on what has come since. So of two operators at once one wins, and the other is told what he
//! would be told a moment later. Never waits for the nodes that follow, and never does anything on a node.

mod forget;
mod recover;

use crate::calls::Asks;
use crate::change_error::{ChangeError, find};
use crate::plans::{Planned, Wish, is_drain_of, planned};
use base::clock::wall_ms;
use cluster::ids::{CopyNumber, DatabaseId, HashSecret, NodeId, OperationId, ShardNumber};
use cluster::keys::Key;
use cluster::limits;
use cluster::names::{DatabaseName, NodeName};
use cluster::placement::{Change as PlacementChange, NodeLoad, Plan, PlanError, Request, plan};
use cluster::records::{
    self, Assignment, DatabaseState, LayoutRecord, MapRecord, NodeRecord, NodeStep, OperationKind, OperationRecord,
    Role, SettingsRecord, ShardRecord, SpecRecord, Step, StoredDefinition, Unknown, UsersRecord,
};
use cluster::stripes::StripeMap;
use cluster::view::{DatabaseView, View};
use config::definition::{Definition, DefinitionChange};
use membership::records::{Change, Records, RecordsError};
use node::NodeError;
use rand::RngCore;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

pub use forget::{Forgetting, Left};
pub use recover::{FoundCopy, RecoveredShard, Recovery};

/// Ports that are tried for a database that names none.
const PORTS: std::ops::RangeInclusive<u16> = 12000..=12999;
/// Records of shards in one transaction. etcd takes 128 operations.
pub const SHARDS_AT_ONCE: usize = 64;
/// How often a change is planned, if others change the same records each time.
const ATTEMPTS: usize = 20;
/// How long newer records may take to get here after a conflict.
const NEWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Operations that have ended are kept for operators to see.
const OPERATIONS_KEPT: usize = 50;
/// How many older ones are removed when one begins.
const TRIMMED_AT_ONCE: usize = 10;

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

/// A change that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    pub operation: OperationId,
    /// Whoever has the records of this revision sees it.
    pub revision: i64,
}

/// What an operation is about.
struct Begun<'a> {
    id: OperationId,
    kind: OperationKind,
    target: &'a str,
    database: Option<DatabaseId>,
    node: Option<NodeId>,
    /// Which nodes have something to do.
    nodes: BTreeSet<NodeId>,
    /// What the controller has to do.
    steps: Vec<Step>,
}

/// An operator at one node.
pub struct Desk<'a> {
    pub records: Records,
    pub view: watch::Receiver<Arc<View>>,
    /// How many a node has.
    pub workers: u64,
    /// Whether this node has a database with this name.
    pub has_own: &'a dyn Fn(&str) -> bool,
    /// Whether nobody listens on the port.
    pub is_free: &'a dyn Fn(u16) -> bool,
    /// Asks nodes what their copies of shards have.
    pub asks: &'a Asks<'a>,
    /// Who asks.
    pub by: &'a str,
}

impl Desk<'_> {
    fn view(&self) -> Arc<View> {
        self.view.borrow().clone()
    }

    /// Makes the change that `plan` asks for.
    async fn change<T>(
        &self,
        plan: impl Fn(&View) -> Result<(Change, T), ChangeError>,
    ) -> Result<(i64, T), ChangeError> {
        self.attempt(async |view| {
            let (change, planned) = plan(view)?;
            Ok((self.records.change(change).await?, planned))
        })
        .await
    }

    /// Plans and changes once more whenever others have changed the same records.
    async fn attempt<T>(&self, attempt: impl AsyncFn(&View) -> Result<T, ChangeError>) -> Result<T, ChangeError> {
        for _ in 0..ATTEMPTS {
            let seen = self.view();
            match attempt(&seen).await {
                Err(ChangeError::Records(RecordsError::Conflict)) => {
                    let mut view = self.view.clone();
                    // If nothing comes, the next attempt meets the same conflict.
                    let _ = timeout(NEWER_TIMEOUT, view.wait_for(|view| !Arc::ptr_eq(view, &seen))).await;
                }
                outcome => return outcome,
            }
        }
        Err(ChangeError::Busy("others change the cluster at the same time: try again".to_owned()))
    }

    // --- databases ---

    /// Where a new database would be placed. Refuses what [`Desk::create`] would refuse.
    pub fn plan(&self, definition: &Definition) -> Result<Placement, ChangeError> {
        self.planned(&self.view(), definition, new_id())
    }

    /// Writes the records of a new database. Those of many shards take several transactions, and the last one makes the database: a shard
    /// without one is nothing to anybody, and the next creation removes what an interrupted one has left. Each of these transactions
    /// changes the layout, given that nobody else has since the one before it.
    pub async fn create(&self, definition: &Definition) -> Result<(Made, Placement), ChangeError> {
        let (id, operation) = (new_id(), new_operation());
        let mut secret = HashSecret([0; 16]);
        rand::rng().fill_bytes(&mut secret.0);
        self.attempt(async |view| {
            let placement = self.planned(view, definition, id)?;
            let (shards, last) = creation(id, secret, &placement)?;
            let begun = Begun {
                id: operation,
                kind: OperationKind::Create,
                target: &placement.definition.name,
                database: Some(id),
                node: None,
                nodes: data_nodes(view),
                steps: Vec::new(),
            };
            let last = begin(view, last, self.by, begun)?;
            let mut layout = layout_revision(view);
            for change in self.removal_of_leftovers(view).await?.into_iter().chain(shards) {
                layout = self.records.change(with_layout_of(view, layout, change)?).await?;
            }
            let revision = self.records.change(with_layout_of(view, layout, last)?).await?;
            Ok((Made { operation, revision }, placement))
        })
        .await
    }

    /// Removes the shards of creations that were interrupted. Another creation may be at work: then the layout changes.
    async fn removal_of_leftovers(&self, view: &View) -> Result<Vec<Change>, ChangeError> {
        let has_none = |database: &&DatabaseView| {
            let has_served = database.shards.values().any(|shard| !shard.in_sync.is_empty());
            database.spec.is_none() && database.map.is_none() && database.users.is_none() && !has_served
        };
        let left = view.databases.iter().filter(|(_, database)| has_none(database));
        let keys = left.flat_map(|(id, database)| database.shards.keys().map(|number| Key::Shard(*id, *number)));
        let keys: Vec<String> = keys.map(|key| key.to_string()).collect();
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut newer = self.view.clone();
        let is_at_work = newer.wait_for(|now| layout_revision(now) != layout_revision(view));
        if timeout(NEWER_TIMEOUT, is_at_work).await.is_ok() {
            return Err(RecordsError::Conflict.into());
        }
        let removal = |keys: &[String]| keys.iter().fold(Change::default(), |change, key| change.delete(key));
        Ok(keys.chunks(SHARDS_AT_ONCE).map(removal).collect())
    }

    fn planned(&self, view: &View, definition: &Definition, id: DatabaseId) -> Result<Placement, ChangeError> {
        let invalid = |field, why: String| ChangeError::Invalid { field, why };
        node::check_for_cluster(definition).map_err(of_node)?;
        let name = &definition.name;
        let _: DatabaseName = name.parse().map_err(|error| invalid("name", format!("{error}")))?;
        if view.named(name).is_some() || (self.has_own)(name) {
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
        let mut definition = definition.clone();
        self.choose_port(view, &mut definition)?;
        let copy = limits::of_copy(&definition, self.workers).map_err(|error| invalid(error.field, error.why))?;
        let layout = view.layout(self.workers);
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
        let loads = loads(view, &plan)?;
        Ok(Placement { copy: limits::needs(&copy), shards: shards.into_iter().collect(), loads, definition })
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
            if port != 0 && (taken.contains(&port) || !(self.is_free)(port)) {
                return Err(ChangeError::Invalid { field, why: format!("port {port} is taken: choose another") });
            }
        }
        if definition.port == 0 && definition.tls_port == 0 {
            let free = PORTS.into_iter().find(|port| !taken.contains(port) && (self.is_free)(*port));
            definition.port = free.ok_or_else(|| ChangeError::Invalid {
                field: "port",
                why: format!("no port from {} to {} is free: give one", PORTS.start(), PORTS.end()),
            })?;
        }
        Ok(())
    }

    /// Changes the spec of a database, and what `edit` adds, as one operation. `of_shards`: only the nodes of its shards have something to do.
    async fn change_spec(
        &self,
        name: &str,
        kind: OperationKind,
        of_shards: bool,
        edit: impl Fn(&View, DatabaseId, &mut SpecRecord, Change) -> Result<Change, ChangeError>,
    ) -> Result<Made, ChangeError> {
        let operation = new_operation();
        let (revision, ()) = self
            .change(|view| {
                let (id, spec) = find(view, name)?;
                let database = &view.databases[&id];
                let key = Key::Spec(id);
                let mut now = (*spec.record).clone();
                let change = edit(view, id, &mut now, Change::default().given(&key.to_string(), spec.revision))?;
                let mut nodes: BTreeSet<NodeId> = assigned(database).collect();
                if !of_shards {
                    nodes.extend(data_nodes(view));
                }
                let begun = Begun {
                    id: operation,
                    kind,
                    target: name,
                    database: Some(id),
                    node: None,
                    nodes,
                    steps: Vec::new(),
                };
                Ok((begin(view, put(change, key, &now)?, self.by, begun)?, ()))
            })
            .await?;
        Ok(Made { operation, revision })
    }

    pub async fn delete(&self, name: &str) -> Result<Made, ChangeError> {
        let edit = |_: &View, _, spec: &mut SpecRecord, change: Change| {
            spec.state = DatabaseState::Deleting;
            Ok(change.delete(&database_name_key(name)))
        };
        self.change_spec(name, OperationKind::Delete, false, edit).await
    }

    pub async fn set_paused(&self, name: &str, is_paused: bool) -> Result<Made, ChangeError> {
        let (kind, state) = match is_paused {
            true => (OperationKind::Pause, DatabaseState::Paused),
            false => (OperationKind::Resume, DatabaseState::Serving),
        };
        let edit = |_: &View, _, spec: &mut SpecRecord, change| {
            if spec.state == DatabaseState::Creating {
                return Err(ChangeError::Busy(format!("'{name}' is being created: wait until it is served")));
            }
            spec.state = state;
            Ok(change)
        };
        self.change_spec(name, kind, false, edit).await
    }

    /// Every copy deletes all keys that it has then.
    pub async fn flush(&self, name: &str) -> Result<Made, ChangeError> {
        let edit = |_: &View, _, spec: &mut SpecRecord, change| {
            spec.flushes += 1;
            Ok(change)
        };
        self.change_spec(name, OperationKind::Flush, true, edit).await
    }

    /// What [`Desk::resize`] would do.
    pub fn plan_resize(&self, name: &str, change: &DefinitionChange) -> Result<Placement, ChangeError> {
        self.resized(&self.view(), name, change)
    }

    fn resized(&self, view: &View, name: &str, change: &DefinitionChange) -> Result<Placement, ChangeError> {
        let (id, spec) = find(view, name)?;
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
        let copy = limits::of_copy(&definition, self.workers).map_err(|error| invalid(error.field, error.why))?;
        let request = Request::Resize { database: id, needs: limits::needs(&copy) };
        let in_words = |error: &PlanError| error.to_string().replace(&id.to_string(), name);
        let planned =
            plan(&view.layout(self.workers), &request).map_err(|error| ChangeError::NoRoom(in_words(&error)))?;
        if planned.changes.iter().any(|change| matches!(change, PlacementChange::Move { .. })) {
            let why = "the nodes of its shards do not have the room, and shards do not move yet";
            return Err(ChangeError::NoRoom(why.to_owned()));
        }
        let nodes = |shard: &ShardRecord| {
            let named = |assigned: &Assignment| Some((assigned.node, view.nodes.get(&assigned.node)?.name.clone()));
            shard.assignments.iter().filter_map(named).collect()
        };
        Ok(Placement {
            copy: limits::needs(&copy),
            shards: view.databases[&id].shards.iter().map(|(number, shard)| (*number, nodes(shard))).collect(),
            loads: loads(view, &planned)?,
            definition,
        })
    }

    /// Changes limits, policy, compression or password of a database; its copies and proxies follow. Refused if somebody else has changed
    /// it since this was asked for.
    pub async fn resize(&self, name: &str, change: &DefinitionChange) -> Result<Made, ChangeError> {
        let first = RefCell::new(None);
        let edit = |view: &View, id, spec: &mut SpecRecord, changes: Change| {
            let before = (id, spec.definition.clone());
            if *first.borrow_mut().get_or_insert_with(|| before.clone()) != before {
                let why = format!("somebody else has changed '{name}' at the same time: look at it, and try again");
                return Err(ChangeError::Busy(why));
            }
            let wanted = self.resized(view, name, change)?.definition;
            let known = &mut spec.definition.known;
            known.memory_limit_bytes = wanted.memory_limit_bytes;
            known.ram_limit_bytes = wanted.ram_limit_bytes;
            known.policy = wanted.policy;
            known.compression = wanted.compression;
            let changes = with_layout(view, changes)?;
            let Some(password) = &change.password else { return Ok(changes) };
            let missing = || ChangeError::Busy(format!("the record of the users of '{name}' is missing"));
            let users = view.databases[&id].users.as_ref().ok_or_else(missing)?;
            let lines: Vec<String> =
                users.acl.iter().filter_map(|line| Some(line.strip_prefix("user ")?.to_owned())).collect();
            let password = password.as_deref().filter(|password| !password.is_empty());
            let lines = node::users_with_password(&lines, password).map_err(ChangeError::Busy)?;
            let acl = lines.iter().map(|line| format!("user {line}")).collect();
            let key = Key::Users(id);
            let record = UsersRecord { acl, unknown: users.unknown.clone() };
            put(changes.given(&key.to_string(), users.revision), key, &record)
        };
        self.change_spec(name, OperationKind::Resize, false, edit).await
    }

    // --- copies and primaries ---

    /// The steps that [`Desk::operate`] would begin with.
    pub fn plan_operation(&self, wish: &Wish) -> Result<Planned, ChangeError> {
        planned(&self.view(), self.workers, wish)
    }

    /// Begins what the controller carries out.
    pub async fn operate(&self, wish: &Wish) -> Result<(OperationId, Planned), ChangeError> {
        let id = new_operation();
        let begins = |view: &View| {
            let planned = planned(view, self.workers, wish)?;
            Ok((begin_steps(view, id, &planned, self.by)?, planned))
        };
        let (_, planned) = self.change(begins).await?;
        Ok((id, planned))
    }

    /// Has the controller end an operation before its last step.
    pub async fn abort(&self, id: OperationId) -> Result<(), ChangeError> {
        let abort = |view: &View| {
            let known = view.operations.get(&id).ok_or_else(|| ChangeError::NotFound(format!("operation {id}")))?;
            let busy = |why: &str| Err(ChangeError::Busy(format!("operation {id} {why}")));
            if known.ended_ms.is_some() {
                return busy("has ended");
            }
            if !known.has_steps() {
                return busy("has no way back: each of its nodes does its part by itself");
            }
            if known.aborted_by.is_some() {
                return busy("is being aborted already");
            }
            let aborted = OperationRecord { aborted_by: Some(self.by.to_owned()), ..(*known.record).clone() };
            let key = Key::Operation(id);
            Ok((put(Change::default().given(&key.to_string(), known.revision), key, &aborted)?, ()))
        };
        self.change(abort).await.map(drop)
    }

    /// After how many seconds the copies of a node that does not run come anew on others; 0: never by themselves.
    pub async fn set_replace_after(&self, seconds: u64) -> Result<(), ChangeError> {
        let set = |view: &View| {
            let before = view.settings.as_ref();
            let mut record = before.map_or_else(SettingsRecord::default, |before| (*before.record).clone());
            record.replace_after_s = Some(seconds);
            let revision = before.map_or(0, |before| before.revision);
            Ok((put(Change::default().given(&Key::Settings.to_string(), revision), Key::Settings, &record)?, ()))
        };
        self.change(set).await.map(drop)
    }
}

/// Adds to a change that an operation begins with it, and removes old ones.
fn begin(view: &View, mut change: Change, by: &str, begun: Begun<'_>) -> Result<Change, ChangeError> {
    let Begun { id, kind, target, database, node, nodes, steps } = begun;
    let mut ended: Vec<(u64, OperationId)> = view
        .operations
        .iter()
        .filter_map(|(id, operation)| operation.ended_ms.map(|_| (operation.started_ms, *id)))
        .collect();
    ended.sort_unstable();
    let surplus = ended.len().saturating_sub(OPERATIONS_KEPT).min(TRIMMED_AT_ONCE);
    for (_, old) in &ended[..surplus] {
        change = change.delete(&Key::Operation(*old).to_string());
    }
    let step = |node: NodeId| {
        let name = view.nodes.get(&node)?.name.clone();
        Some(NodeStep { node, name, is_done: false, trouble: None, unknown: Unknown::new() })
    };
    let nodes: Vec<NodeStep> = nodes.into_iter().filter_map(step).collect();
    let started_ms = wall_ms();
    let mut record = OperationRecord {
        kind,
        target: target.to_owned(),
        by: by.to_owned(),
        database,
        node,
        ended_ms: None,
        nodes,
        steps,
        done: 0,
        waits_for: None,
        aborted_by: None,
        error: None,
        started_ms,
        unknown: Unknown::new(),
    };
    if record.nodes.is_empty() && !record.has_steps() {
        record.ended_ms = Some(started_ms);
    }
    put(change, Key::Operation(id), &record)
}

/// The change with which an operation begins that the controller carries out.
pub fn begin_steps(view: &View, id: OperationId, planned: &Planned, by: &str) -> Result<Change, ChangeError> {
    let mut change = Change::default();
    if planned.takes_room() {
        change = with_layout(view, change)?;
    }
    if let (Some(is_draining), Some(node)) = (planned.drains(), planned.node) {
        let before = &view.nodes[&node];
        let record = NodeRecord { is_draining, ..(*before.record).clone() };
        change = put(change.given(&Key::Node(node).to_string(), before.revision), Key::Node(node), &record)?;
    }
    if planned.kind == OperationKind::Undrain {
        for (id, drain) in view.operations.iter().filter(|(_, operation)| is_drain_of(operation, planned.node)) {
            let error = Some(format!("undrained by {by}: the primaries that have left stay where they are"));
            let ended_ms = Some(wall_ms());
            let ended = OperationRecord { error, ended_ms, waits_for: None, ..(*drain.record).clone() };
            change = put(change.given(&Key::Operation(*id).to_string(), drain.revision), Key::Operation(*id), &ended)?;
        }
    }
    let begun = Begun {
        id,
        kind: planned.kind,
        target: &planned.target,
        database: planned.database,
        node: planned.node,
        nodes: BTreeSet::new(),
        steps: planned.steps.clone(),
    };
    begin(view, change, by, begun)
}

/// The change that makes a database, and before it those that write the shards for which it has no room.
fn creation(id: DatabaseId, secret: HashSecret, placement: &Placement) -> Result<(Vec<Change>, Change), ChangeError> {
    let definition = &placement.definition;
    let shards = definition.shards as u16;
    let map = StripeMap::even(shards)
        .ok_or_else(|| ChangeError::Invalid { field: "shards", why: format!("{shards} shards are not possible") })?;
    let spec = SpecRecord {
        name: definition.name.parse().expect("it was checked"),
        state: DatabaseState::Creating,
        hash_secret: secret,
        config: BTreeMap::new(),
        flushes: 0,
        definition: StoredDefinition { known: definition.clone(), unknown: Unknown::new() },
        unknown: Unknown::new(),
    };
    let map = MapRecord { runs: map.runs().to_vec(), unknown: Unknown::new() };
    let record = |nodes: &[(NodeId, NodeName)]| {
        let copies = (0..).zip(nodes).map(|(copy, (node, _))| Assignment::new(CopyNumber(copy), *node));
        ShardRecord::new(CopyNumber(0), copies.collect())
    };
    let with_shards = |change: Change, shards: &[(ShardNumber, Vec<(NodeId, NodeName)>)]| {
        shards.iter().try_fold(change, |change, (number, nodes)| put(change, Key::Shard(id, *number), &record(nodes)))
    };
    let (first, others) = placement.shards.split_at(placement.shards.len().min(SHARDS_AT_ONCE));
    let others = others.chunks(SHARDS_AT_ONCE).map(|part| with_shards(Change::default(), part));
    let name = database_name_key(&definition.name);
    let change = Change::default().given(&name, 0).put(&name, &id.to_string());
    let acl = node::first_users(definition.password.as_deref()).iter().map(|line| format!("user {line}")).collect();
    let change = put(change, Key::Spec(id), &spec)?;
    let change = put(change, Key::Users(id), &UsersRecord { acl, unknown: Unknown::new() })?;
    let change = put(change, Key::Map(id), &map)?;
    Ok((others.collect::<Result<_, _>>()?, with_shards(change, first)?))
}

/// A change that takes room on nodes: it was planned on this layout.
fn with_layout(view: &View, change: Change) -> Result<Change, ChangeError> {
    with_layout_of(view, layout_revision(view), change)
}

fn layout_revision(view: &View) -> i64 {
    view.layout.as_ref().map_or(0, |layout| layout.revision)
}

/// The same, if the operator's own last transaction has changed the layout, to this revision.
fn with_layout_of(view: &View, revision: i64, change: Change) -> Result<Change, ChangeError> {
    let before = view.layout.as_ref();
    let record = LayoutRecord {
        changes: before.map_or(0, |layout| layout.changes) + 1,
        unknown: before.map_or_else(Unknown::new, |layout| layout.unknown.clone()),
    };
    put(change.given(&Key::Layout.to_string(), revision), Key::Layout, &record)
}

fn data_nodes(view: &View) -> BTreeSet<NodeId> {
    view.nodes.iter().filter(|(_, node)| node.role == Role::Data).map(|(id, _)| *id).collect()
}

/// The nodes that have copies of the database.
fn assigned(database: &DatabaseView) -> impl Iterator<Item = NodeId> {
    database.shards.values().flat_map(|shard| shard.assignments.iter().map(|assigned| assigned.node))
}

/// What the nodes have when the plan is carried out.
fn loads(view: &View, plan: &Plan) -> Result<Vec<(NodeName, NodeLoad)>, ChangeError> {
    let loads = plan.after.loads().map_err(|error| no_room(&error))?;
    Ok(loads.into_iter().filter_map(|load| Some((view.nodes.get(&load.node)?.name.clone(), load))).collect())
}

pub fn new_operation() -> OperationId {
    let mut bytes = [0; 8];
    rand::rng().fill_bytes(&mut bytes);
    OperationId(bytes)
}

/// The name of a database is taken once.
fn database_name_key(name: &str) -> String {
    format!("db_names/{name}")
}

fn put<R: records::Record>(change: Change, key: Key, record: &R) -> Result<Change, ChangeError> {
    let bytes = records::encode(key, record)
        .map_err(|error| ChangeError::Invalid { field: "definition", why: error.to_string() })?;
    Ok(change.put_bytes(&key.to_string(), bytes))
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

#[cfg(test)]
mod tests;
