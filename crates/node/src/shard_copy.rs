//! Owns a copy of a shard that has replicas: whether it serves as the shard's primary, follows it, or rests, and what it has promised. It
//! moves the state machines of `cluster::failover`. Never decides which of these it is to be (the cluster's records say that), never sends
//! a transaction, and never knows how a node is reached.
//!
//! ```text
//!             follow                        promote, when it was named
//!  rests ───────────────► follows ──────────────────────────────────────► serves
//!    ▲  └──────────────────── serve, when it resumes ────────────────────►  │
//!    └────────────────────────────── rest, follow ──────────────────────────┘
//! ```
//!
//! No call waits. [`ShardCopy::follow`], [`ShardCopy::promote`] and [`ShardCopy::serve`] assign a role, and a thread of the copy reaches it:
//! [`ShardCopy::standing`] says how far it is, and [`CopyHost::changed`] that it is worth asking again. The same assignment once more changes
//! nothing, so a caller may repeat what the records say. What fails is tried again, until another role is assigned.

use crate::database::Database;
use cluster::failover::{Report, Standing};
use cluster::ids::{CopyNumber, Epoch, Incarnation, ShardUid};
use cluster::records::Member;
use engine::SessionStream;
use engine::replication::BootClock;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// What a copy makes durable of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyMemory {
    /// Of the dataset that it has. It changes before the first byte of the dataset is thrown away.
    pub incarnation: Incarnation,
    /// It acknowledges nothing to primaries of older epochs.
    pub promised: Epoch,
    /// The last epoch in which it has served.
    pub served: Option<Epoch>,
    /// It follows a primary, and acknowledges what is only in its memory. If the process ends, the dataset may miss something of that:
    /// [`ShardCopy::begin`] then takes a new incarnation.
    pub acknowledges: bool,
}

/// What a copy needs of who keeps it. Called from several threads.
pub trait CopyHost: Send + Sync {
    /// Makes this durable: when it returns `Ok`, a loss of power does not change it back. After an error the old one may be there, or
    /// the new one.
    fn keep(&self, memory: &CopyMemory) -> Result<(), String>;

    /// [`ShardCopy::standing`], [`ShardCopy::status`] or [`ShardCopy::wanted_in_sync`] may answer otherwise than before. Must not wait,
    /// and must not call the copy.
    fn changed(&self);
}

/// A primary as its replicas reach it.
pub struct PrimaryAddress {
    pub copy: CopyNumber,
    /// Of the record that names it. A primary of another epoch refuses the connection.
    pub epoch: Epoch,
    /// For operators: INFO and the log show it.
    pub name: String,
    /// Connects to it, for each attempt. May wait for some seconds. At the other end of the stream, [`Database::serve_replica`] is called.
    pub open: Box<dyn Fn() -> io::Result<UnixStream> + Send + Sync>,
}

/// What a shard promises its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirements {
    /// A reply waits until every copy of the in-sync set has what it depends on. Otherwise the lease of the primary holds, and a failover may
    /// lose the newest writes.
    pub is_sync: bool,
    /// With fewer copies in the in-sync set, the primary among them, writes are refused: `NOREPLICAS`.
    pub in_sync_min: usize,
}

/// What a primary serves.
#[derive(Clone)]
pub struct Term {
    /// Of the record, which names this copy, or which this copy has written ([`cluster::failover::Duty::Resume`]).
    pub epoch: Epoch,
    /// As it is recorded for this epoch, with this copy in it.
    pub in_sync: Vec<Member>,
    /// The stripes of the shard.
    pub owns: Arc<dyn Fn(usize) -> bool + Send + Sync>,
}

/// For operators, and for who decides what comes next.
#[derive(Clone, Debug, PartialEq)]
pub struct CopyStatus {
    pub role: CopyRole,
    /// The bytes of its stream that its dataset has.
    pub offset: u64,
    /// Why it does not reach the role that was assigned last.
    pub trouble: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum CopyRole {
    Rests,
    Follows {
        primary: CopyNumber,
        epoch: Epoch,
        /// The stream comes.
        is_connected: bool,
        /// The primary's dataset is being received or loaded.
        is_synchronising: bool,
    },
    /// It was named, and does not serve yet.
    Promotes(Epoch),
    Serves {
        epoch: Epoch,
        /// Clients are served. Not while its serving lease has ended.
        is_open: bool,
    },
}

/// A copy in a shard with replicas.
pub struct ShardCopy {}

impl ShardCopy {
    /// Begins with a copy whose dataset is loaded, and rests. `memory`: what was kept last. It is replaced by a new incarnation, durably, if
    /// it says that the process which kept it acknowledged what may be missing now.
    pub fn begin(
        database: &Arc<Database>,
        uid: ShardUid,
        number: CopyNumber,
        memory: CopyMemory,
        host: Arc<dyn CopyHost>,
        clock: BootClock,
    ) -> Result<Arc<ShardCopy>, String> {
        unimplemented!()
    }

    /// Follows this primary. It does not serve any more when this returns.
    pub fn follow(&self, primary: PrimaryAddress) {}

    /// Serves as the primary of an epoch for which this copy was named by somebody else: promises the epoch, leaves its primary, applies all
    /// that it has received, waits until what it has granted has ended, notes that it serves, and serves.
    pub fn promote(&self, term: Term) {}

    /// Serves in the epoch that this copy has written into the record itself, because it has everything: promises, notes that it serves,
    /// and serves.
    pub fn serve(&self, term: Term) {}

    /// Serves nobody and follows nobody. It does not serve any more when this returns.
    pub fn rest(&self) {}

    /// Ends the copy's thread, before its database is closed. If it has applied all that it acknowledged, its incarnation stays.
    pub fn end(&self) {}

    pub fn set_requirements(&self, requirements: Requirements) {}

    pub fn standing(&self) -> Standing {
        unimplemented!()
    }

    /// For a controller that asks.
    pub fn report(&self) -> Report {
        unimplemented!()
    }

    pub fn status(&self) -> CopyStatus {
        unimplemented!()
    }

    /// The epoch in which it serves, and the in-sync set to record for it, if that is to be changed: in a transaction that compares the
    /// record with the last one of this epoch. Whatever becomes of the transaction, [`ShardCopy::recorded`] says what is certain.
    pub fn wanted_in_sync(&self) -> Option<(Epoch, Vec<Member>)> {
        None
    }

    /// The set that is recorded for this epoch: it was read or written, and is not older than what was said before. Of another epoch than
    /// the one that is served, it is ignored.
    pub fn recorded(&self, epoch: Epoch, in_sync: &[Member]) {}
}

impl Database {
    /// Serves the connection of a replica of this copy, which comes from another node of the cluster. It may do nothing but follow. Call
    /// this on a worker's thread.
    pub fn serve_replica(&self, stream: SessionStream, name: &str) -> io::Result<()> {
        unimplemented!()
    }
}
