//! Owns what a node asks of etcd: linearizable reads, transactions, watches and leases. Never knows a shard, a node or a role.
//!
//! Goals: a transaction whose outcome is unknown is never taken for a failed one; a silent watch is noticed; a lease is given up
//! before the server can have ended it; every call ends. Non-goals: a consensus of our own; the data path, which never waits for
//! etcd.
//!
//! [`Coord`] has two implementations: [`Etcd`], and [`Twin`], a store in memory whose clock and faults a test decides. [`Mirror`] and
//! [`Keeper`] use either.
//!
//! Reading order: [`types`], `error`, the trait below, [`mirror`], [`keeper`], [`twin`], [`etcd`].

#![forbid(unsafe_code)]

mod error;
pub mod etcd;
pub mod keeper;
pub mod mirror;
pub mod twin;
pub mod types;

use std::pin::Pin;
use std::time::Duration;

pub use error::Error;
pub use etcd::Etcd;
pub use keeper::Keeper;
pub use mirror::Mirror;
use tokio_stream::Stream;
pub use twin::Twin;
pub use types::*;

/// A call under way. It is sent when it is first polled, and borrows nothing, so it can be kept beside other calls.
pub type Answer<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// Changes in the order of their revisions. A batch holds whole revisions, so that a watch can be resumed after each batch. Nothing comes
/// after an end.
pub type Watch = Pin<Box<dyn Stream<Item = Result<Vec<Event>, WatchEnd>> + Send>>;

/// A store of entries that all nodes share. Each call ends, at the latest after the implementation's timeout.
pub trait Coord: Send + Sync {
    /// Linearizable, as all reads here: it sees every transaction that was committed before the call.
    fn get(&self, key: &str) -> Answer<Found>;

    /// The entries whose keys begin with `prefix`. The empty prefix means all.
    fn list(&self, prefix: &str) -> Answer<Listing>;

    /// What tells whether a copy of the prefix is up to date, without its values.
    fn probe(&self, prefix: &str) -> Answer<Probe>;

    /// An error means that nothing was changed and nothing will be.
    fn transact(&self, transaction: Transaction) -> Answer<Outcome>;

    /// The changes of the prefix from this revision on.
    fn watch(&self, prefix: &str, from: Revision) -> Watch;

    /// etcd counts whole seconds, and never fewer than its elections take (2 s by default).
    fn grant(&self, ttl: Duration) -> Answer<Lease>;

    /// Begins the lease's time anew.
    fn keep_alive(&self, id: LeaseId, timeout: Duration) -> Answer<Lease>;

    /// Ends the lease and deletes its entries.
    fn revoke(&self, id: LeaseId) -> Answer<()>;

    /// Forgets the changes before this revision.
    fn compact(&self, revision: Revision) -> Answer<()>;

    /// A clock that never goes back and counts while the machine sleeps. Its beginning means nothing.
    fn now(&self) -> Duration;

    fn sleep_until(&self, at: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}
