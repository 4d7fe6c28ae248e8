//! Owns how the nodes' consoles change what they share: users, the key of their sessions, and the sessions that were ended. Each node sees it
//! in its view of the records. Never knows what a user is.

use crate::agent::{Agent, Membership};
use crate::change_error::ChangeError;
use cluster::ids::{ConsoleKey, SessionDigest};
use cluster::keys::Key;
use cluster::records::{self, ConsoleEndedRecord, ConsoleKeyRecord, ConsoleUsersRecord, Unknown};
use cluster::view::View;
use coord::Coord;
use membership::records::{Change, RecordsError};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::time::timeout;

/// How long a change may take to come back to this node.
const SEEN_TIMEOUT: Duration = Duration::from_secs(5);
/// Sessions whose end the other nodes do not know yet, because etcd is away.
const ENDING_MAX: usize = 1000;
/// Before etcd is asked again.
const AGAIN: Duration = Duration::from_secs(1);

impl Agent {
    /// Puts the users if their record still has this revision; 0: if there is none. When it returns, this node knows them, and after
    /// `RecordsError::Conflict` those of somebody else.
    pub fn put_console_users(&self, revision: i64, users: &ConsoleUsersRecord) -> Result<(), ChangeError> {
        let key = Key::ConsoleUsers;
        let bytes = encode(key, users)?;
        let change = Change::default().given(&key.to_string(), revision).put_bytes(&key.to_string(), bytes);
        let of = |view: &View| view.console.users.as_ref().map_or(0, |users| users.revision);
        self.make(change, move |view, made| of(view) >= made, move |view| of(view) != revision)
    }

    /// Puts the key of sessions, if there is none.
    pub fn put_console_key(&self, drawn: ConsoleKey) -> Result<(), ChangeError> {
        let key = Key::ConsoleKey;
        let bytes = encode(key, &ConsoleKeyRecord { key: drawn, unknown: Unknown::new() })?;
        let change = Change::default().given(&key.to_string(), 0).put_bytes(&key.to_string(), bytes);
        let has_one = |view: &View| view.console.key.is_some();
        match self.make(change, move |view, _| has_one(view), has_one) {
            Err(ChangeError::Records(RecordsError::Conflict)) => Ok(()),
            made => made,
        }
    }

    /// Has a session ended at all nodes, and remembered for so long: tried until it is done, or the session would have ended by itself.
    pub fn end_console_session(&self, digest: SessionDigest, ended_ms: u64, ttl: Duration) {
        let Ok(membership) = self.membership() else { return };
        if self.ending.fetch_add(1, Relaxed) >= ENDING_MAX {
            self.ending.fetch_sub(1, Relaxed);
            return tracing::error!("a session has ended at this node only: {ENDING_MAX} others wait for etcd");
        }
        let ending = Arc::clone(&self.ending);
        self.spawn(async move {
            let tried = async {
                while let Err(error) = end_session(&membership, digest, ended_ms, ttl).await {
                    tracing::debug!("the other nodes do not know yet that a session has ended: {error}");
                    tokio::time::sleep(AGAIN).await;
                }
            };
            // A session that has outlived the waiting has ended everywhere.
            let _ = timeout(ttl, tried).await;
            ending.fetch_sub(1, Relaxed);
        });
    }

    fn make(
        &self,
        change: Change,
        is_seen: impl Fn(&View, i64) -> bool,
        is_other: impl Fn(&View) -> bool,
    ) -> Result<(), ChangeError> {
        let membership = self.membership()?;
        self.wait(async {
            let made = membership.records().change(change).await;
            // What is not seen in time is seen later: the change is made.
            let _ = match made {
                Ok(revision) => timeout(SEEN_TIMEOUT, membership.view_when(|view| is_seen(view, revision))).await,
                Err(RecordsError::Conflict) => timeout(SEEN_TIMEOUT, membership.view_when(is_other)).await,
                Err(error) => return Err(error.into()),
            };
            made.map(drop).map_err(ChangeError::from)
        })
    }
}

async fn end_session(
    membership: &Membership,
    digest: SessionDigest,
    ended_ms: u64,
    ttl: Duration,
) -> Result<(), ChangeError> {
    let key = Key::ConsoleEnded(digest);
    let bytes = encode(key, &ConsoleEndedRecord { ended_ms, unknown: Unknown::new() })?;
    let issuer = membership.issuer();
    let lease = issuer.etcd.grant(ttl).await.map_err(RecordsError::Coord)?;
    issuer.records.change(Change::default().put_leased(&key.to_string(), bytes, lease.id)).await?;
    Ok(())
}

fn encode<R: records::Record>(key: Key, record: &R) -> Result<Vec<u8>, ChangeError> {
    records::encode(key, record).map_err(|error| ChangeError::Invalid { field: "users", why: error.to_string() })
}
