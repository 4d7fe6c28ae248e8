//! Owns what the consoles of a cluster share, as this node knows it: users, the key of sessions, and which sessions were ended. Never knows a
//! password, a cookie or a request.
//!
//! What counts is the cluster's records, which the agent mirrors; a copy lies in `console-of-cluster.json`, so that a node that starts while etcd
//! is away knows the users too. A node outside of a cluster has none of this.

use super::users::Stored;
use crate::lines::replace;
use agent::{Agent, ChangeError};
use cluster::ids::{ConsoleKey, SessionDigest};
use cluster::records::ConsoleUsersRecord;
use cluster::view::View;
use membership::records::RecordsError;
use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The cluster's records, for those who read and change them.
pub trait Records: Send + Sync {
    /// The id of the cluster that the node is a member of.
    fn cluster(&self) -> Option<String>;
    /// `None`: nothing is known yet.
    fn view(&self) -> Option<Arc<View>>;
    /// If the record has this revision; 0: if there is none.
    fn put_users(&self, revision: i64, users: &ConsoleUsersRecord) -> Result<(), ChangeError>;
    fn put_key(&self, key: ConsoleKey) -> Result<(), ChangeError>;
    /// Tells all nodes. Does not wait for it.
    fn end_session(&self, digest: SessionDigest, now_ms: u64, ttl: Duration);
}

impl Records for Agent {
    fn cluster(&self) -> Option<String> {
        Agent::cluster(self).map(|cluster| cluster.to_string())
    }

    fn view(&self) -> Option<Arc<View>> {
        Agent::view(self)
    }

    fn put_users(&self, revision: i64, users: &ConsoleUsersRecord) -> Result<(), ChangeError> {
        self.put_console_users(revision, users)
    }

    fn put_key(&self, key: ConsoleKey) -> Result<(), ChangeError> {
        self.put_console_key(key)
    }

    fn end_session(&self, digest: SessionDigest, now_ms: u64, ttl: Duration) {
        self.end_console_session(digest, now_ms, ttl);
    }
}

/// Whose users count on this node.
pub enum Standing {
    /// Its own.
    Alone,
    Member(Known),
}

/// What a member knows of the records.
#[derive(Clone)]
pub struct Known {
    pub cluster: String,
    /// 0: the cluster has no users yet, or they are not known.
    pub revision: i64,
    /// `None`: see `is_read`.
    pub users: Option<Arc<Stored>>,
    pub key: Option<ConsoleKey>,
    view: Option<Arc<View>>,
}

impl Known {
    /// The records were read, and not only their copy: what is missing there does not exist.
    pub fn is_read(&self) -> bool {
        self.view.is_some()
    }

    pub fn has_ended(&self, digest: &SessionDigest) -> bool {
        self.view.as_ref().is_some_and(|view| view.console.ended.contains(digest))
    }
}

/// The copy of the records.
#[derive(Clone, Serialize, Deserialize)]
struct RecordsCopy {
    cluster: String,
    revision: i64,
    users: ConsoleUsersRecord,
    key: Option<ConsoleKey>,
}

#[derive(Default)]
struct SharedState {
    kept: Option<RecordsCopy>,
    /// The users of a cluster's record, read once for each revision.
    read: Option<(String, i64, Arc<Stored>)>,
}

pub struct Shared {
    records: Option<Arc<dyn Records>>,
    path: Option<PathBuf>,
    state: Mutex<SharedState>,
}

impl Shared {
    pub fn open(records: Option<Arc<dyn Records>>, path: Option<PathBuf>) -> Shared {
        // A copy that cannot be read is as good as none: the records are elsewhere.
        let kept = path.as_ref().and_then(|path| std::fs::read(path).ok());
        let kept = kept.and_then(|text| serde_json::from_slice(&text).ok());
        Shared { records, path, state: Mutex::new(SharedState { kept, read: None }) }
    }

    pub fn records(&self) -> Option<&dyn Records> {
        self.records.as_deref()
    }

    pub fn standing(&self) -> Standing {
        let Some(records) = &self.records else { return Standing::Alone };
        let Some(cluster) = records.cluster() else { return Standing::Alone };
        let view = records.view();
        let mut state = self.state.lock();
        let (revision, users, key) = match view.as_ref().map(|view| &view.console) {
            Some(console) => (
                console.users.as_ref().map_or(0, |users| users.revision),
                console.users.as_ref().map(|users| &*users.record),
                console.key.as_ref().map(|key| key.key),
            ),
            None => match state.kept.as_ref().filter(|kept| kept.cluster == cluster) {
                Some(kept) => (kept.revision, Some(&kept.users), kept.key),
                None => (0, None, None),
            },
        };
        let is_it = |read: &&(String, i64, Arc<Stored>)| read.0 == cluster && read.1 == revision;
        let read = state.read.as_ref().filter(is_it).map(|(.., users)| users);
        let users = match (read, users) {
            (Some(read), Some(_)) => Some(Arc::clone(read)),
            (None, Some(record)) => match Stored::of_record(record) {
                Ok(users) => Some(Arc::new(users)),
                Err(error) => {
                    tracing::error!("the record of the console's users cannot be read: {error}");
                    Some(Arc::default())
                }
            },
            (_, None) => None,
        };
        state.read = users.clone().map(|users| (cluster.clone(), revision, users));
        Standing::Member(Known { cluster, revision, users, key, view })
    }

    /// Writes the copy if it is not up to date.
    pub fn keep(&self) {
        let (Some(path), Standing::Member(known)) = (&self.path, self.standing()) else { return };
        let Some(users) = known.view.as_ref().and_then(|view| view.console.users.as_ref()) else { return };
        let (cluster, revision, key) = (known.cluster, users.revision, known.key);
        let mut state = self.state.lock();
        let is_kept = |kept: &RecordsCopy| kept.cluster == cluster && kept.revision == revision && kept.key == key;
        if state.kept.as_ref().is_some_and(is_kept) {
            return;
        }
        let kept = RecordsCopy { cluster, revision, users: (*users.record).clone(), key };
        let text = serde_json::to_vec(&kept).map_err(std::io::Error::from);
        if let Err(error) = text.and_then(|text| replace(path, &text)) {
            tracing::error!("{} cannot be written: {error}", path.display());
        }
        // Not written again before there is something new.
        state.kept = Some(kept);
    }
}

/// Whether somebody else has changed the record.
pub fn is_conflict(error: &ChangeError) -> bool {
    matches!(error, ChangeError::Records(RecordsError::Conflict))
}

pub fn draw_key() -> ConsoleKey {
    let mut key = ConsoleKey([0; 32]);
    // This fails only if the system has no random generator.
    SystemRandom::new().fill(&mut key.0).expect("the system gives random bytes");
    key
}
