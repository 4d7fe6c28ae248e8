//! Owns the words of coordination (entries, transactions, events, leases), and what of a transaction is refused before anything is
//! sent. Never knows who answers.

use std::collections::HashSet;
use std::time::Duration;

use crate::Error;

/// etcd refuses a request of more than 1.5 MiB, with its keys and frames; and a large value delays everybody's transactions.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// Keys and values of one transaction.
pub const TRANSACTION_BYTES_MAX: usize = VALUE_BYTES_MAX + (VALUE_BYTES_MAX >> 2);
/// etcd's `--max-txn-ops`: comparisons, and operations.
pub const OPERATIONS_MAX: usize = 128;

/// Counts the transactions that changed something; the store has one counter for all keys.
pub type Revision = i64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub key: String,
    pub value: Vec<u8>,
    /// Of the last put.
    pub mod_revision: Revision,
    /// The entry is deleted when this lease ends.
    pub lease: Option<LeaseId>,
}

/// The answer to `get`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub entry: Option<Entry>,
    /// At which the store was read.
    pub revision: Revision,
}

/// The answer to `list`: the entries in the order of their keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    pub entries: Vec<Entry>,
    /// At which the store was read.
    pub revision: Revision,
}

/// The answer to `probe`. Who has all changes up to a revision, and knows of no entry that was put later and of as many entries,
/// has the same entries: an entry that is missing or too many changes the count, and a changed one has a later revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// The largest `mod_revision` of the entries; 0 without entries.
    pub newest: Revision,
    pub count: usize,
    /// At which the store was read.
    pub revision: Revision,
}

/// All operations are done if every comparison holds, otherwise none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transaction {
    /// A key, and the `mod_revision` that it must have. 0: there must be no such key.
    pub compare: Vec<(String, Revision)>,
    pub operations: Vec<Operation>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    Put { key: String, value: Vec<u8>, lease: Option<LeaseId> },
    Delete { key: String },
}

/// What became of a transaction that may have been sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// At this revision of the store. A transaction that changed nothing has no revision of its own.
    Committed(Revision),
    /// A comparison did not hold, so nothing was changed.
    Conflict,
    /// The connection was lost, or the time was over: the transaction was committed, was not, or will still be. Read before going on.
    Unknown(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Put(Entry),
    Deleted { key: String, revision: Revision },
}

impl Event {
    pub fn key(&self) -> &str {
        match self {
            Event::Put(entry) => &entry.key,
            Event::Deleted { key, .. } => key,
        }
    }

    pub fn revision(&self) -> Revision {
        match self {
            Event::Put(entry) => entry.mod_revision,
            Event::Deleted { revision, .. } => *revision,
        }
    }
}

/// Why a watch ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEnd {
    /// Changes before this revision are not kept any more, and the watch wanted some of them. List again.
    Compacted { revision: Revision },
    /// Resume from the revision after the last event.
    Cut(String),
}

/// A lease as of one answer, to `grant` or to `keep_alive`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    pub id: LeaseId,
    /// What the server gave: at least what was asked for.
    pub ttl: Duration,
    /// When the request was sent, by `Coord::now`. The server cannot have begun to count earlier.
    pub asked_at: Duration,
}

impl Lease {
    /// Until when the holder may rely on the lease. A tenth of it is left for clocks that run at different speeds.
    pub fn ends_at(&self) -> Duration {
        self.asked_at + self.ttl - self.ttl / 10
    }
}

impl Transaction {
    /// What etcd would refuse, or might refuse, is not sent.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.compare.len().max(self.operations.len()) > OPERATIONS_MAX {
            return Err(Error::Refused(format!(
                "a transaction has at most {OPERATIONS_MAX} comparisons and operations"
            )));
        }
        let mut keys = HashSet::new();
        let mut bytes: usize = self.compare.iter().map(|(key, _)| key.len()).sum();
        for operation in &self.operations {
            let (key, value): (&str, &[u8]) = match operation {
                Operation::Put { key, value, .. } => (key, value),
                Operation::Delete { key } => (key, &[]),
            };
            if value.len() > VALUE_BYTES_MAX {
                return Err(Error::TooLarge {
                    what: format!("the value of {key}"),
                    bytes: value.len(),
                    max: VALUE_BYTES_MAX,
                });
            }
            if !keys.insert(key) {
                return Err(Error::Refused(format!("a transaction changes {key} twice")));
            }
            bytes += key.len() + value.len();
        }
        if keys.contains("") || self.compare.iter().any(|(key, _)| key.is_empty()) {
            return Err(Error::Refused("a key is empty".to_owned()));
        }
        if bytes > TRANSACTION_BYTES_MAX {
            return Err(Error::TooLarge { what: "a transaction".to_owned(), bytes, max: TRANSACTION_BYTES_MAX });
        }
        Ok(())
    }
}
