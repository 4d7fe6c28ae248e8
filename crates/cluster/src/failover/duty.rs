//! Owns what a copy has to do by the shard's record. Never does it.

use crate::ids::{CopyNumber, Epoch};
use crate::records::{Member, ShardRecord};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// It serves as the primary of this epoch, and goes on.
    Serve,
    /// It is a replica of this copy.
    Follow { primary: CopyNumber, epoch: Epoch },
    /// It was named: promise the epoch, apply everything, wait for the end of what was granted, note that it serves, serve. If it was named when
    /// the last primary had handed over or ended ([`ShardRecord::was_vacant`]), there is nothing to wait for: that one serves no more, and the
    /// leases of earlier ones ended before it served.
    Promote { epoch: Epoch, is_vacant: bool },
    /// It has served in the record's epoch, has everything, and was restarted: write the record with this epoch, promise it, note that it
    /// serves, serve. While it was primary it has granted nothing, so there is nothing to wait for. A shard that has never served begins like
    /// that too.
    Resume(Epoch),
    /// It is the recorded primary, but not with this dataset: something that was acknowledged may be missing. Another copy must be named.
    NotTheRecorded,
    /// The record is older than what this copy has promised.
    ReadAgain,
}

/// What a copy knows of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// With the incarnation of its dataset now.
    pub me: Member,
    /// As it was made durable.
    pub promised: Epoch,
    /// The last epoch in which it has served. Made durable before it serves.
    pub served: Option<Epoch>,
    /// This process serves, in the epoch of `served`.
    pub serves: bool,
}

pub fn duty(record: &ShardRecord, standing: &Standing) -> Duty {
    let Standing { me, promised, served, serves } = standing;
    if record.epoch < *promised {
        return Duty::ReadAgain;
    }
    if record.primary != me.copy {
        return Duty::Follow { primary: record.primary, epoch: record.epoch };
    }
    if record.in_sync.is_empty() {
        return Duty::Resume(record.epoch.next());
    }
    if !record.names(me.copy, me.incarnation) {
        return Duty::NotTheRecorded;
    }
    match *served == Some(record.epoch) {
        true if *serves => Duty::Serve,
        true => Duty::Resume(record.epoch.next()),
        false => Duty::Promote { epoch: record.epoch, is_vacant: record.was_vacant() },
    }
}

/// The record by which a copy resumes.
pub fn resumed(record: &ShardRecord, me: &Member, epoch: Epoch) -> ShardRecord {
    let mut next = record.clone();
    next.epoch = epoch;
    if next.in_sync.is_empty() {
        next.in_sync = vec![me.clone()];
    }
    next
}

/// The record by which a primary hands over to a copy of its set. It stays in the set itself, because it has everything too.
pub fn handed_over(record: &ShardRecord, to: CopyNumber) -> ShardRecord {
    let epoch = record.epoch.next();
    ShardRecord { epoch, primary: to, handed_over: Some(epoch), ..record.clone() }
}
