//! Owns how a shard with replicas loses nothing that it has acknowledged: which replies may leave, who is in the in-sync set, what a replica
//! promises, and who becomes primary. Plain state, moved by calls that get the time. Never knows a socket, a file, etcd or a command: who
//! calls carries the messages, makes durable what must be durable, and sends the transactions.
//!
//! The rules, by which a promoted copy has every acknowledged write, whatever clocks do:
//! 1. A reply leaves when every *required* copy has acknowledged the position that the reply depends on, and the serving lease is valid
//!    ([`Primary::acknowledged`], [`Primary::has_lease`]).
//! 2. Each acknowledged heartbeat grants the primary a serving lease. The replica counts [`LEASE_GRANTED_MS`] from its acknowledgement, the
//!    primary [`LEASE_COUNTED_MS`] from sending the heartbeat.
//! 3. The primary requires a copy *before* the transaction that adds it to the recorded set, and stops requiring one *after* the transaction
//!    that removes it. So every copy that etcd can name has been required since it was recorded.
//! 4. The controller names a recorded copy, with the next epoch, and takes the old primary out of the set, in one transaction.
//! 5. The named copy promises to acknowledge no older epoch, durably, applies what it has received, and waits until the leases that it has
//!    granted have ended. Only then it notes, durably, that it serves in this epoch, and serves.
//!    If the last primary has handed over, there are no leases to wait for.
//! 6. A copy that was restarted after it has served in the record's epoch takes the next epoch by a transaction before it serves, and only if
//!    it has everything that it had.
//! 7. A primary hands over ([`Primary::hand_over`]) when it runs no command any more and every required copy has everything that it has. It
//!    names the next primary itself, in one transaction that leaves the set as it is. From before that on it does not serve any more, unless
//!    a newer record of its epoch shows that the transaction cannot be committed.
//!
//! A copy whose dataset may miss something takes a new incarnation, so that a record that names the old one does not mean it.
//!
//! Times are milliseconds of the machine's clock that counts while it sleeps. Its beginning means nothing, and no two machines' are compared.

pub mod controller;
pub mod duty;
pub mod primary;
pub mod recovery;
pub mod replica;

use crate::ids::Epoch;

pub use controller::{Began, Choice, CopyAnswer, Report, choose};
pub use duty::{Duty, Standing, duty};
pub use primary::{Handover, Hindrance, Primary};
pub use recovery::{Survivor, Undecided, recover, survive};
pub use replica::Replica;

/// Between two heartbeats of a primary.
pub const HEARTBEAT_MS: u64 = 200;
/// For so long after acknowledging a heartbeat, a replica is not promoted.
pub const LEASE_GRANTED_MS: u64 = 1_500;
/// For so long after sending a heartbeat that was acknowledged, the primary serves. Shorter than what was granted, for clocks that run at
/// different speeds.
pub const LEASE_COUNTED_MS: u64 = 1_300;
/// A replica that was silent for so long leaves the in-sync set.
pub const SILENCE_MS: u64 = 800;
/// A primary that wants to hand over rejects commands for at most so long while a required copy does not have everything.
pub const HANDOVER_MS: u64 = 2_000;

/// A position in a shard's replication stream: the number of bytes before it.
pub type Offset = u64;

/// A primary's message to its replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    pub epoch: Epoch,
    /// Grows by one.
    pub number: u64,
    /// When this was sent, the primary's serving lease was valid.
    pub has_lease: bool,
}

/// A replica's answer to a heartbeat or a portion of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    pub epoch: Epoch,
    /// The replica has everything before this position.
    pub received: Offset,
    /// The newest heartbeat that it has heard on this connection. `None`: none yet.
    pub heartbeat: Option<u64>,
}
