//! Owns the records of membership in etcd: the cluster, join tokens, names of nodes, issued certificates, and who is shut out; and how a
//! record is read and written. Never knows databases (`cluster::records`).
//!
//! | key below the cluster's prefix | record |
//! | --- | --- |
//! | `cluster` | [`ClusterRecord`] |
//! | `tokens/<SHA-256 of the secret>` | `pki::TokenRecord` |
//! | `names/<name>` | the id of the node that has the name |
//! | `issued/<node>/<serial>` | `pki::Identity` |
//! | `shut_out/<node>` | `pki::ShutOut` |
//! | `authority` | `authority::AuthorityRecord` |
//! | `certificates/<node>` | `authority::NodeCertificates` |
//! | `etcd_trusts/<node>` | the authorities with which the node's etcd was started |

use coord::{Coord, Operation, Outcome, Revision, Transaction};
use pki::ClusterId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

pub const CLUSTER: &str = "cluster";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterRecord {
    pub name: String,
    pub created_ms: u64,
}

pub fn token_key(token: &pki::Fingerprint) -> String {
    format!("tokens/{token}")
}

pub fn name_key(name: &str) -> String {
    format!("names/{name}")
}

pub fn issued_key(issued: &pki::Identity) -> String {
    format!("issued/{}/{}", issued.node, issued.serial)
}

pub fn shut_out_key(node: pki::NodeId) -> String {
    format!("shut_out/{node}")
}

/// Why a record was not read or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordsError {
    Coord(coord::Error),
    /// It may have been changed, and may still be.
    Unknown(String),
    /// Somebody else changed what was read.
    Conflict,
    Damaged {
        key: String,
        why: String,
    },
}

impl fmt::Display for RecordsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordsError::Coord(error) => write!(f, "etcd: {error}"),
            RecordsError::Unknown(why) => write!(f, "etcd did not say whether the change was made: {why}"),
            RecordsError::Conflict => f.write_str("somebody else made a change at the same time: try again"),
            RecordsError::Damaged { key, why } => write!(f, "the record {key} in etcd cannot be read: {why}"),
        }
    }
}

impl std::error::Error for RecordsError {}

impl From<coord::Error> for RecordsError {
    fn from(error: coord::Error) -> RecordsError {
        RecordsError::Coord(error)
    }
}

/// The records of one cluster.
#[derive(Clone)]
pub struct Records {
    pub coord: Arc<dyn Coord>,
    prefix: String,
}

/// A change of several records at once.
#[derive(Default)]
pub struct Change(Transaction);

impl Records {
    pub fn new(coord: Arc<dyn Coord>, cluster: ClusterId) -> Records {
        Records { coord, prefix: format!("flintkv/{cluster}/") }
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// A record and the revision of its last change.
    pub async fn get<R: DeserializeOwned>(&self, key: &str) -> Result<Option<(R, Revision)>, RecordsError> {
        let found = self.coord.get(&format!("{}{key}", self.prefix)).await?;
        found.entry.map(|entry| Ok((read(key, &entry.value)?, entry.mod_revision))).transpose()
    }

    /// The records whose keys begin with `prefix`, by the rest of their keys.
    pub async fn list<R: DeserializeOwned>(&self, prefix: &str) -> Result<Vec<(String, R)>, RecordsError> {
        let whole = format!("{}{prefix}", self.prefix);
        let listed = self.coord.list(&whole).await?;
        let entry = |entry: coord::Entry| {
            let key = entry.key.strip_prefix(&whole).unwrap_or(&entry.key).to_owned();
            let record = read(&key, &entry.value)?;
            Ok((key, record))
        };
        listed.entries.into_iter().map(entry).collect()
    }

    /// Makes all changes, or none.
    pub async fn change(&self, change: Change) -> Result<Revision, RecordsError> {
        let Change(mut transaction) = change;
        for (key, _) in &mut transaction.compare {
            key.insert_str(0, &self.prefix);
        }
        for operation in &mut transaction.operations {
            let (Operation::Put { key, .. } | Operation::Delete { key }) = operation;
            key.insert_str(0, &self.prefix);
        }
        match self.coord.transact(transaction).await? {
            Outcome::Committed(revision) => Ok(revision),
            Outcome::Conflict => Err(RecordsError::Conflict),
            Outcome::Unknown(why) => Err(RecordsError::Unknown(why)),
        }
    }
}

impl Change {
    /// Only if the record's last change is still this one; 0: if there is none.
    #[must_use]
    pub fn given(mut self, key: &str, revision: Revision) -> Change {
        self.0.compare.push((key.to_owned(), revision));
        self
    }

    /// Both changes together.
    #[must_use]
    pub fn and(mut self, Change(other): Change) -> Change {
        self.0.compare.extend(other.compare);
        self.0.operations.extend(other.operations);
        self
    }

    #[must_use]
    pub fn put(self, key: &str, record: &impl Serialize) -> Change {
        self.put_bytes(key, serde_json::to_vec(record).expect("a record is plain data"))
    }

    #[must_use]
    pub fn put_bytes(mut self, key: &str, value: Vec<u8>) -> Change {
        self.0.operations.push(Operation::Put { key: key.to_owned(), value, lease: None });
        self
    }

    #[must_use]
    pub fn put_leased(mut self, key: &str, value: Vec<u8>, lease: coord::LeaseId) -> Change {
        self.0.operations.push(Operation::Put { key: key.to_owned(), value, lease: Some(lease) });
        self
    }

    #[must_use]
    pub fn delete(mut self, key: &str) -> Change {
        self.0.operations.push(Operation::Delete { key: key.to_owned() });
        self
    }
}

fn read<R: DeserializeOwned>(key: &str, value: &[u8]) -> Result<R, RecordsError> {
    serde_json::from_slice(value).map_err(|error| RecordsError::Damaged { key: key.to_owned(), why: error.to_string() })
}
