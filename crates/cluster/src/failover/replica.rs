//! Owns what a copy has promised and granted as a replica. Never knows who the primary is, or what the stream says.

use super::{Heartbeat, LEASE_GRANTED_MS, SILENCE_MS};
use crate::ids::Epoch;

#[derive(Clone, Debug)]
pub struct Replica {
    promised: Epoch,
    /// A primary may serve until then because of what this copy has acknowledged.
    granted_until_ms: u64,
    /// When a primary last said that its serving lease was valid.
    lease_heard_ms: Option<u64>,
}

impl Replica {
    /// `promised` is what was made durable. What an earlier process has granted is not known, so it counts as granted now.
    pub fn start(promised: Epoch, now_ms: u64) -> Replica {
        Replica { promised, granted_until_ms: now_ms + LEASE_GRANTED_MS, lease_heard_ms: None }
    }

    pub fn promised(&self) -> Epoch {
        self.promised
    }

    /// Whether messages of a primary of this epoch may be acknowledged.
    pub fn accepts(&self, epoch: Epoch) -> bool {
        epoch >= self.promised
    }

    /// A heartbeat that is acknowledged from now on. Returns false if it must not be: it is of an epoch before the promised one.
    #[must_use]
    pub fn hear(&mut self, heartbeat: &Heartbeat, now_ms: u64) -> bool {
        if !self.accepts(heartbeat.epoch) {
            return false;
        }
        self.granted_until_ms = self.granted_until_ms.max(now_ms + LEASE_GRANTED_MS);
        self.lease_heard_ms = if heartbeat.has_lease { Some(now_ms) } else { None };
        true
    }

    /// Call it when the promise is durable.
    pub fn promise(&mut self, epoch: Epoch) {
        assert!(epoch >= self.promised, "a promise of epoch {epoch} after one of {}", self.promised);
        self.promised = epoch;
    }

    /// Whether no primary serves any more because of what this copy has granted. It grants nothing to older epochs since its promise.
    pub fn grants_have_ended(&self, now_ms: u64) -> bool {
        now_ms >= self.granted_until_ms
    }

    /// Whether a primary that this copy hears is serving. Then there is no reason to promote another one.
    pub fn hears_a_lease(&self, now_ms: u64) -> bool {
        self.lease_heard_ms.is_some_and(|at_ms| now_ms < at_ms + SILENCE_MS)
    }
}
