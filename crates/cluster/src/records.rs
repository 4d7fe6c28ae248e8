//! Owns the records that lie in etcd: a type for each key, its JSON, and what must be true inside of one record. Never knows etcd, and never
//! trusts the bytes: a record that cannot be read is an error that names key and field.
//!
//! | key | record | writer |
//! | --- | --- | --- |
//! | `nodes/<id>` | [`NodeRecord`] | the node's agent |
//! | `live/<id>` | [`LiveRecord`] | the node's agent, with a lease |
//! | `db/<id>/spec` | [`SpecRecord`] | API |
//! | `db/<id>/users`, `functions` | [`UsersRecord`], [`FunctionsRecord`] | API |
//! | `db/<id>/map` | [`MapRecord`] | API at creation, then splits |
//! | `db/<id>/shard/<n>` | [`ShardRecord`] | primary, and the controller |
//! | `ops/<id>` | [`OperationRecord`] | API at its begin, then the agents of its nodes, or the controller |
//! | `failovers/<id>` | [`FailoverRecord`] | controller |
//! | `layout` | [`LayoutRecord`] | API, with whatever needs room on nodes |
//! | `settings` | [`SettingsRecord`] | API |
//! | `ctl/leader` | [`LeaderRecord`] | controller, with a lease |
//! | `feature_level` | [`FeatureLevelRecord`] | controller |
//! | `console/users` | [`ConsoleUsersRecord`] | API |
//! | `console/key` | [`ConsoleKeyRecord`] | API |
//! | `console/ended/<digest>` | [`ConsoleEndedRecord`] | API, with a lease |
//!
//! # Versions
//! Nodes of two versions write the same records during an upgrade. A newer one may add a *field* to any object at any time: fields that
//! this version does not know are kept in `unknown`, and written back. A new *word* (a state, a kind of operation) or another form of a
//! field is an error to an older node, so it may be written only when `feature_level` says that there is no older node. Numbers are
//! integers: a fraction that an older node writes back may differ in its last digit.

use crate::ids::{
    ConsoleKey, CopyNumber, DatabaseId, Epoch, HashSecret, Incarnation, NodeId, ProcessId, ShardNumber, ShardUid,
};
use crate::keys::Key;
use crate::limits::REPLICAS_MAX;
use crate::names::{Address, DatabaseName, NodeName, ZoneName};
use crate::position::path_at_line;
use crate::stripes::{Run, SHARDS_MAX, StripeMap};
use config::definition::{Definition, FIELDS};
use serde::de::{DeserializeOwned, Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// etcd refuses requests above 1.5 MiB, and a transaction has several records.
pub const RECORD_BYTES_MAX: usize = 1 << 20;
/// An error may quote a name or a value from the record.
const TEXT_CHARS_MAX: usize = 300;

/// The fields of an object that this version does not know, in their order.
pub type Unknown = Map<String, Value>;

/// Why a record was not read, or not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordError {
    pub key: Key,
    /// Names and indices, joined by dots: `assignments.2.node`. Empty: the whole record.
    pub field: String,
    pub why: String,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RecordError { key, field, why } = self;
        match field.is_empty() {
            true => write!(f, "{key}: {why}"),
            false => write!(f, "{key}: {field}: {why}"),
        }
    }
}

impl std::error::Error for RecordError {}

/// A field whose value cannot be, and why.
pub type Wrong = (&'static str, String);

/// A record, and under which keys it lies.
pub trait Record: Serialize + DeserializeOwned {
    fn lies_at(key: &Key) -> bool;

    /// What must be true between the fields.
    fn check(&self) -> Result<(), Wrong> {
        Ok(())
    }
}

/// Reads the bytes that lie at `key`. A key of another record is a bug and panics.
pub fn decode<R: Record>(key: Key, bytes: &[u8]) -> Result<R, RecordError> {
    assert!(R::lies_at(&key), "{key} has another record");
    let wrong = |field: String, why: String| {
        let shown =
            |text: String| text.chars().take(TEXT_CHARS_MAX).map(|c| if c.is_control() { '?' } else { c }).collect();
        RecordError { key, field: shown(field), why: shown(why) }
    };
    check_size(bytes.len()).map_err(|why| wrong(String::new(), why))?;
    let record: R = serde_json::from_slice(bytes)
        .map_err(|error| wrong(path_at_line(bytes, error.line(), error.column()), error.to_string()))?;
    record.check().map_err(|(field, why)| wrong(field.to_owned(), why))?;
    Ok(record)
}

/// The bytes for `key`.
pub fn encode<R: Record>(key: Key, record: &R) -> Result<Vec<u8>, RecordError> {
    assert!(R::lies_at(&key), "{key} has another record");
    let wrong = |field: &str, why| RecordError { key, field: field.to_owned(), why };
    record.check().map_err(|(field, why)| wrong(field, why))?;
    let bytes = serde_json::to_vec(record).map_err(|error| wrong("", error.to_string()))?;
    check_size(bytes.len()).map_err(|why| wrong("", why))?;
    Ok(bytes)
}

fn check_size(bytes: usize) -> Result<(), String> {
    match bytes <= RECORD_BYTES_MAX {
        true => Ok(()),
        false => Err(format!("a record of {bytes} bytes: the most is {RECORD_BYTES_MAX}")),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Keeps copies of shards and has a proxy for each database.
    Data,
    /// Only votes: it keeps no data and has no clients.
    Quorum,
}

impl Role {
    pub fn word(self) -> &'static str {
        match self {
            Role::Data => "data",
            Role::Quorum => "quorum",
        }
    }
}

/// A node that belongs to the cluster, whether it runs or not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeRecord {
    pub name: NodeName,
    pub zone: ZoneName,
    pub role: Role,
    /// Its primaries leave it, none is named there while another copy can be, and no new copy is placed there.
    #[serde(default)]
    pub is_draining: bool,
    pub addresses: Addresses,
    pub versions: Versions,
    pub capacity: Capacity,
    /// The highest that the node's version knows.
    pub feature_level: u32,
    #[serde(flatten)]
    pub unknown: Unknown,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Addresses {
    /// For other nodes: links, the stream of copies, the node's API.
    pub peer: Address,
    /// The host under which clients reach the databases' ports.
    pub client_host: String,
    #[serde(flatten)]
    pub unknown: Unknown,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Versions {
    pub flintkv: String,
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// What the node has for databases: the machine's resources without the reserve for the system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    pub ram_bytes: u64,
    pub flash_bytes: u64,
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Record for NodeRecord {
    fn lies_at(key: &Key) -> bool {
        matches!(key, Key::Node(_))
    }
}

/// A node's process that runs. The key ends with its lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveRecord {
    pub process: ProcessId,
    /// The boot of the machine, and the state directory on it. A process that holds this directory's lock knows that the one that wrote the
    /// record has ended; one with a copy of the directory is at another place.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub place: String,
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Record for LiveRecord {
    fn lies_at(key: &Key) -> bool {
        matches!(key, Key::Live(_))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DatabaseState {
    Creating,
    Serving,
    /// Its copies keep the data, its proxies refuse clients.
    Paused,
    Deleting,
}

/// What a database is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpecRecord {
    pub name: DatabaseName,
    pub state: DatabaseState,
    /// Cold keys are told apart by a keyed hash. All copies must have the same key.
    pub hash_secret: HashSecret,
    /// What CONFIG SET has changed, by the names of the directives.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, String>,
    /// How often operators have flushed it. A copy that has done fewer does so before it serves.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub flushes: u64,
    pub definition: StoredDefinition,
    #[serde(flatten)]
    pub unknown: Unknown,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl SpecRecord {
    /// With its name, which is not among the definition's own fields.
    pub fn definition(&self) -> Definition {
        Definition { name: self.name.as_str().to_owned(), ..self.definition.known.clone() }
    }
}

impl Record for SpecRecord {
    fn lies_at(key: &Key) -> bool {
        matches!(key, Key::Spec(_))
    }

    fn check(&self) -> Result<(), Wrong> {
        let Definition { port, tls_port, shards, replicas, .. } = self.definition.known;
        if port == 0 && tls_port == 0 {
            return Err(("definition.port", "a database of a cluster has a port, the same on each node".to_owned()));
        }
        if shards == 0 || shards > SHARDS_MAX.into() {
            return Err(("definition.shards", format!("{shards} is not from 1 to {SHARDS_MAX}")));
        }
        if replicas > REPLICAS_MAX {
            return Err(("definition.replicas", format!("{replicas} is more than {REPLICAS_MAX}")));
        }
        Ok(())
    }
}

/// A definition as it lies in etcd: the limits are the whole database's. The name is the record's, passwords are the users'.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StoredDefinition {
    #[serde(flatten)]
    pub known: Definition,
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl<'de> Deserialize<'de> for StoredDefinition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<StoredDefinition, D::Error> {
        deserializer.deserialize_map(StoredFields)
    }
}

struct StoredFields;

impl<'de> Visitor<'de> for StoredFields {
    type Value = StoredDefinition;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a definition")
    }

    /// What is not shown of a definition is not written either, so it is no known field here.
    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<StoredDefinition, A::Error> {
        let (mut known, mut unknown) = (Map::new(), Unknown::new());
        while let Some((name, value)) = fields.next_entry::<String, Value>()? {
            match FIELDS.iter().any(|field| field.is_shown && field.name == name) {
                true => known.insert(name, value),
                false => unknown.insert(name, value),
            };
        }
        // Each alone first: the error of all together does not say which.
        for (name, value) in &known {
            let alone = Map::from_iter([(name.clone(), value.clone())]);
            if let Err(error) = Definition::deserialize(Value::Object(alone)) {
                return Err(A::Error::custom(format!("{name}: {error}")));
            }
        }
        let known = Definition::deserialize(Value::Object(known)).map_err(A::Error::custom)?;
        Ok(StoredDefinition { known, unknown })
    }
}

/// The users of a database. Bytes that are no text are written as in configuration files (`config::word`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UsersRecord {
    /// As in an ACL file: `user NAME RULE …`.
    pub acl: Vec<String>,
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Record for UsersRecord {
    fn lies_at(key: &Key) -> bool {
        matches!(key, Key::Users(_))
    }
}

/// The functions of a database, written like users.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FunctionsRecord {
    /// The code of each library, as FUNCTION LOAD takes it.
    pub libraries: Vec<String>,
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Record for FunctionsRecord {
    fn lies_at(key: &Key) -> bool {
        matches!(key, Key::Functions(_))
    }
}

/// Which shard owns which stripes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MapRecord {
    pub runs: Vec<Run>,
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl MapRecord {
    pub fn map(&self) -> Result<StripeMap, Wrong> {
        StripeMap::from_runs(self.runs.clone()).map_err(|error| ("runs", error.to_string()))
    }
}

impl Record for MapRecord {
    fn lies_at(key: &Key) -> bool {
        matches!(key, Key::Map(_))
    }

    fn check(&self) -> Result<(), Wrong> {
        self.map().map(drop)
    }
}

/// Who keeps a shard, and who may be named its primary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShardRecord {
    pub epoch: Epoch,
    pub primary: CopyNumber,
    /// The copies that have every acknowledged write, the primary among them. Empty only before a new shard has served.
    pub in_sync: Vec<Member>,
    /// Where the copies are, by number.
    pub assignments: Vec<Assignment>,
    /// The number of the next copy.
    pub next_copy: CopyNumber,
    /// Of a shard with replicas: how many of the flushes that operators have asked for its dataset has done.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub flushes: u64,
    /// The epoch whose record the primary before has written itself, which serves no more since. It says nothing of any later epoch, so
    /// nobody has to remove it, and a version that does not know it may keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handed_over: Option<Epoch>,
    /// The epoch in which the leader has named the primary after the process of the one before had ended. Like `handed_over`, it says nothing of
    /// any later epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Epoch>,
    /// The epoch in which the leader has found that no copy that answers has every acknowledged write. Like `handed_over`, it says nothing of
    /// any later epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undecided: Option<Epoch>,
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// A copy of the in-sync set. With another incarnation, it is not the copy that acknowledged the writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Member {
    pub copy: CopyNumber,
    pub incarnation: Incarnation,
    #[serde(flatten)]
    pub unknown: Unknown,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    pub copy: CopyNumber,
    pub node: NodeId,
    /// The copy is to go: the primary takes it out of the in-sync set, and then it is assigned to no node any more.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_leaving: bool,
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Assignment {
    pub fn new(copy: CopyNumber, node: NodeId) -> Assignment {
        Assignment { copy, node, is_leaving: false, unknown: Unknown::new() }
    }
}

impl ShardRecord {
    /// A shard that has not served yet. `primary` is among the assignments, which are in ascending order.
    pub fn new(primary: CopyNumber, assignments: Vec<Assignment>) -> ShardRecord {
        let next_copy = CopyNumber(assignments.last().map_or(0, |last| last.copy.0 + 1));
        ShardRecord {
            epoch: Epoch::FIRST,
            primary,
            in_sync: Vec::new(),
            assignments,
            next_copy,
            flushes: 0,
            handed_over: None,
            ended: None,
            undecided: None,
            unknown: Unknown::new(),
        }
    }

    /// The copy on this node.
    pub fn on(&self, node: NodeId) -> Option<&Assignment> {
        self.assignments.iter().find(|assigned| assigned.node == node)
    }

    pub fn is_in_sync(&self, copy: CopyNumber) -> bool {
        self.in_sync.iter().any(|member| member.copy == copy)
    }

    /// The copy is of the in-sync set, with this dataset.
    pub fn names(&self, copy: CopyNumber, incarnation: Incarnation) -> bool {
        self.in_sync.iter().any(|member| (member.copy, member.incarnation) == (copy, incarnation))
    }

    /// The copies that are not to go.
    pub fn staying(&self) -> BTreeSet<CopyNumber> {
        self.assignments.iter().filter(|assigned| !assigned.is_leaving).map(|assigned| assigned.copy).collect()
    }

    /// The primary of the epoch before has written this one, and serves no more.
    pub fn is_handed_over(&self) -> bool {
        self.handed_over == Some(self.epoch)
    }

    /// Nobody served any more when this epoch's primary was named, so it need not wait for the leases of earlier ones.
    pub fn was_vacant(&self) -> bool {
        self.is_handed_over() || self.ended == Some(self.epoch)
    }

    /// Nobody serves, and nobody can be named: unless a copy comes back that has everything, an operator decides.
    pub fn is_undecided(&self) -> bool {
        self.undecided == Some(self.epoch)
    }

    pub fn node_of(&self, copy: CopyNumber) -> Option<NodeId> {
        self.assignments.iter().find(|assigned| assigned.copy == copy).map(|assigned| assigned.node)
    }

    /// Without the copy on this node, which is not the primary.
    #[must_use]
    pub fn without(&self, node: NodeId) -> ShardRecord {
        let mut rest = self.clone();
        rest.assignments.retain(|assigned| assigned.node != node);
        rest.in_sync.retain(|member| rest.assignments.iter().any(|assigned| assigned.copy == member.copy));
        rest
    }

    /// There is one in each record that was checked.
    pub fn primary_node(&self) -> Option<NodeId> {
        self.node_of(self.primary)
    }
}

impl Record for ShardRecord {
    fn lies_at(key: &Key) -> bool {
        matches!(key, Key::Shard(..))
    }

    fn check(&self) -> Result<(), Wrong> {
        let ShardRecord { primary, in_sync, assignments, next_copy, .. } = self;
        if !assignments.is_sorted_by(|a, b| a.copy < b.copy) {
            return Err(("assignments", "the copies are not in ascending order, each once".to_owned()));
        }
        for (index, assigned) in assignments.iter().enumerate() {
            if let Some(other) = assignments[..index].iter().find(|other| other.node == assigned.node) {
                let Assignment { copy, node, .. } = assigned;
                return Err(("assignments", format!("copies {} and {copy} are both on node {node}", other.copy)));
            }
        }
        if let Some(last) = assignments.last().filter(|last| last.copy >= *next_copy) {
            return Err(("next_copy", format!("{next_copy} is not above copy {}", last.copy)));
        }
        if self.primary_node().is_none() {
            return Err(("primary", format!("copy {primary} is assigned to no node")));
        }
        if !in_sync.is_sorted_by(|a, b| a.copy < b.copy) {
            return Err(("in_sync", "the copies are not in ascending order, each once".to_owned()));
        }
        if let Some(member) = in_sync.iter().find(|member| self.node_of(member.copy).is_none()) {
            return Err(("in_sync", format!("copy {} is assigned to no node", member.copy)));
        }
        if !in_sync.is_empty() && in_sync.iter().all(|member| member.copy != *primary) {
            return Err(("in_sync", format!("copy {primary}, the primary, is missing")));
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationKind {
    Create,
    Resize,
    /// Shards get the copies that they lack.
    AddReplicas,
    /// Other copies of a database's shards become the primaries.
    SwitchOver,
    /// The primaries leave a node.
    Drain,
    /// A node takes primaries again.
    Undrain,
    /// A copy goes from one node to another one.
    Move,
    /// The copies of a node that does not run come anew on other nodes.
    Replace,
    /// The processes of nodes start anew, one after the other.
    Restart,
    Rebalance,
    Delete,
    Flush,
    Pause,
    Resume,
    /// A node that is gone was removed, with the data that only it had.
    Forget,
    /// Shards without a copy that has every acknowledged write go on with what is left.
    Recover,
}

/// What an operator has asked for, with its progress. It begins with the change of the records that it is about, and ends when each of
/// its nodes has followed them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationRecord {
    pub kind: OperationKind,
    /// The name of the database or node, which may be gone.
    #[serde(default)]
    pub target: String,
    /// Who has asked for it.
    #[serde(default)]
    pub by: String,
    /// What it is about, if that is one database or one node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<DatabaseId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// The nodes that have something to do. One that was removed from the cluster counts as done.
    #[serde(default)]
    pub nodes: Vec<NodeStep>,
    /// Of an operation that a controller carries out: in the order in which they are taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// How many steps are done.
    #[serde(default)]
    pub done: usize,
    /// What the step that comes next waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// Who has asked for its end before its last step. The controller takes back what is half done first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aborted_by: Option<String>,
    /// Why it ended before its last step, or before each of its nodes had done its part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Milliseconds since 1970.
    pub started_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// A node's part of an operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeStep {
    pub node: NodeId,
    pub name: NodeName,
    pub is_done: bool,
    /// Why it is not done yet, if something keeps the node from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    #[serde(flatten)]
    pub unknown: Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// A new copy, on `to`.
    Add,
    /// A copy from `from` to `to`: a new one joins the in-sync set, becomes the primary if the old one is, and the old one goes.
    Move,
    /// The copy on `from` goes.
    Drop,
    /// The copy on `to` becomes the primary.
    SwitchOver,
    /// The copies of a database get their new limits.
    Resize,
    /// The process of the node `to` starts anew, without a primary meanwhile.
    Restart,
}

/// The process that a step of kind `Restart` ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Restarted {
    pub process: ProcessId,
    /// An operator had drained the node before, so it goes on draining.
    pub stays_drained: bool,
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// A step of an operation. A copy is named by shard and node: a node has at most one copy of a shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub kind: StepKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<ShardUid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<NodeId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<NodeId>,
    /// Of a restart that has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarted: Option<Restarted>,
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Step {
    pub fn switch_over(shard: ShardUid, to: NodeId) -> Step {
        Step { shard: Some(shard), ..Step::to(StepKind::SwitchOver, to) }
    }

    pub fn adding(shard: ShardUid, to: NodeId) -> Step {
        Step { shard: Some(shard), ..Step::to(StepKind::Add, to) }
    }

    pub fn moving(shard: ShardUid, from: NodeId, to: NodeId) -> Step {
        Step { shard: Some(shard), from: Some(from), ..Step::to(StepKind::Move, to) }
    }

    pub fn restart(node: NodeId) -> Step {
        Step::to(StepKind::Restart, node)
    }

    fn to(kind: StepKind, to: NodeId) -> Step {
        Step { kind, shard: None, from: None, to: Some(to), restarted: None, unknown: Unknown::new() }
    }
}

impl OperationRecord {
    /// The controller carries it out. Others are done when each of their nodes has followed the records.
    pub fn has_steps(&self) -> bool {
        use OperationKind::{AddReplicas, Drain, Move, Rebalance, Replace, Restart, SwitchOver, Undrain};
        matches!(self.kind, SwitchOver | Drain | Undrain | Move | Replace | Restart | AddReplicas | Rebalance)
    }
}

impl Record for OperationRecord {
    fn lies_at(key: &Key) -> bool {
        matches!(key, Key::Operation(_))
    }

    fn check(&self) -> Result<(), Wrong> {
        let OperationRecord { steps, done, .. } = self;
        if *done > steps.len() {
            return Err(("done", format!("{done} of {} steps", steps.len())));
        }
        for (index, step) in steps.iter().enumerate() {
            let needed = match step.kind {
                StepKind::Add | StepKind::SwitchOver => (true, false, true),
                StepKind::Move => (true, true, true),
                StepKind::Drop => (true, true, false),
                StepKind::Resize => (false, false, false),
                StepKind::Restart => (false, false, true),
            };
            if needed != (step.shard.is_some(), step.from.is_some(), step.to.is_some()) {
                let why = format!("step {index}, {:?}, does not have exactly its shard, from and to", step.kind);
                return Err(("steps", why));
            }
        }
        Ok(())
    }
}

/// A change of a shard's primary that no operator has asked for. The last ones are kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailoverRecord {
    pub database: DatabaseId,
    pub shard: ShardNumber,
    /// The shard's name.
    pub target: String,
    /// Why the old primary was given up.
    pub cause: String,
    /// The nodes of the old primary and of the new one.
    pub from: NodeName,
    pub to: NodeName,
    /// The epoch that the new primary serves in.
    pub epoch: Epoch,
    /// When the controller missed the old primary, and when it named the new one: milliseconds since 1970.
    pub missed_ms: u64,
    pub named_ms: u64,
    /// When the controller heard the new primary serve. `None`: not yet, or another one has led since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_ms: Option<u64>,
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Record for FailoverRecord {
    fn lies_at(key: &Key) -> bool {
        matches!(key, Key::Failover(_))
    }
}

/// Changes with each change that needs room on nodes: two of them, planned at the same time, do not take the same room.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LayoutRecord {
    pub changes: u64,
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Record for LayoutRecord {
    fn lies_at(key: &Key) -> bool {
        matches!(key, Key::Layout)
    }
}

/// What operators have set for the whole cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SettingsRecord {
    /// A node's copies come anew on other nodes when it has not run for so many seconds. 0: only when an operator asks for that. `None`: the
    /// default, [`REPLACE_AFTER_S`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace_after_s: Option<u64>,
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// Longer than a machine takes to start, since replacing copies whole datasets. It is also Ceph's default.
pub const REPLACE_AFTER_S: u64 = 600;

impl Record for SettingsRecord {
    fn lies_at(key: &Key) -> bool {
        matches!(key, Key::Settings)
    }
}

/// The controller that leads. The key ends with its lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaderRecord {
    pub node: NodeId,
    pub process: ProcessId,
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Record for LeaderRecord {
    fn lies_at(key: &Key) -> bool {
        matches!(key, Key::Leader)
    }
}

/// What every node of the cluster knows. It only grows, when each node's version knows the next one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FeatureLevelRecord {
    pub level: u32,
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Record for FeatureLevelRecord {
    fn lies_at(key: &Key) -> bool {
        matches!(key, Key::FeatureLevel)
    }
}

/// The console's users and API tokens: what a node that is alone has in `users.json`. The API knows the fields, and keeps those that it does
/// not know. Passwords and tokens are in it as hashes.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ConsoleUsersRecord(pub Map<String, Value>);

/// Hashes stay out of logs.
impl fmt::Debug for ConsoleUsersRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConsoleUsersRecord")
    }
}

impl Record for ConsoleUsersRecord {
    fn lies_at(key: &Key) -> bool {
        matches!(key, Key::ConsoleUsers)
    }
}

/// The key that signs the sessions of all consoles. It is drawn anew when a node that knows it is removed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConsoleKeyRecord {
    pub key: ConsoleKey,
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Record for ConsoleKeyRecord {
    fn lies_at(key: &Key) -> bool {
        matches!(key, Key::ConsoleKey)
    }
}

/// A session that its user has ended. The key ends when the session would have ended by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConsoleEndedRecord {
    /// Milliseconds since 1970.
    pub ended_ms: u64,
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Record for ConsoleEndedRecord {
    fn lies_at(key: &Key) -> bool {
        matches!(key, Key::ConsoleEnded(_))
    }
}
