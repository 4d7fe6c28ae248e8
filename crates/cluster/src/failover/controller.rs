//! Owns whom to name as a shard's next primary. Never knows how the copies are asked, or why the primary is missed: a choice at the wrong
//! time costs a pause, not a write.

use super::Offset;
use crate::ids::{CopyNumber, Epoch, Incarnation, ShardUid};
use crate::records::ShardRecord;
use serde::{Deserialize, Serialize};

/// What a copy answers to a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub copy: CopyNumber,
    pub incarnation: Incarnation,
    pub promised: Epoch,
    pub received: Offset,
    /// The epoch in whose stream its last byte is. `None`: its dataset is of no stream, because it is empty, or it was not said.
    #[serde(default)]
    pub stream: Option<Epoch>,
    /// Where it has gone over to the newest stream that it knows. `None`: it knows one at most.
    #[serde(default)]
    pub began: Option<Began>,
    /// The last epoch in which an earlier process of this copy has served: nobody serves in it, nor in an older one.
    #[serde(default)]
    pub ended: Option<Epoch>,
    /// See [`super::Replica::hears_a_lease`].
    pub hears_a_lease: bool,
}

/// Up to this offset the bytes are of the stream of epoch `before` or an older one, from there on of the one of `epoch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Began {
    pub epoch: Epoch,
    pub at: Offset,
    pub before: Epoch,
}

/// What a node says of a copy that it keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyAnswer {
    pub shard: ShardUid,
    pub report: Report,
    /// The epoch in which it serves now.
    pub serving: Option<Epoch>,
    /// A word for operators: `serves`, `in sync`, `loads` and so on.
    pub state: String,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    /// The record to write, if the one that was given is still there.
    Name(ShardRecord),
    /// The primary serves: this copy hears it.
    IsServed(CopyNumber),
    /// No copy that has every acknowledged write has answered.
    NobodyKnown,
}

/// Who is to be the primary after the one in the record. A copy that did not answer stays in the set: it has every acknowledged write too,
/// and the new primary takes it out if it stays silent. `is_avoided`: a copy that is named only if there is no other one.
pub fn choose(record: &ShardRecord, reports: &[Report], is_avoided: impl Fn(CopyNumber) -> bool) -> Choice {
    let is_recorded = |report: &&Report| record.names(report.copy, report.incarnation);
    // A primary serves after the leases of all earlier ones have ended. If it was only named, these may still serve.
    let has_ended = reports.iter().any(|report| report.copy == record.primary && report.ended == Some(record.epoch));
    // What follows the primary may answer, in the set or not.
    let hears = |report: &&Report| report.hears_a_lease && report.copy != record.primary;
    if let Some(hears) = reports.iter().find(hears).filter(|_| !has_ended) {
        return Choice::IsServed(hears.copy);
    }
    let others = reports.iter().filter(is_recorded).filter(|report| report.copy != record.primary);
    // Who has promised more knows of a newer record than this one.
    let may_be_named = others.filter(|report| report.promised <= record.epoch);
    let Some(best) = may_be_named.max_by_key(|report| (!is_avoided(report.copy), report.received)) else {
        return Choice::NobodyKnown;
    };
    let mut next = record.clone();
    next.epoch = record.epoch.next();
    next.primary = best.copy;
    next.ended = has_ended.then_some(next.epoch);
    next.in_sync.retain(|member| member.copy != record.primary);
    Choice::Name(next)
}
