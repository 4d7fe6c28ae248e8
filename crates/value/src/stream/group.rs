//! Owns a consumer group: what was delivered to whom and not yet acknowledged. Never knows the entries themselves.

use super::Id;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeBounds;
use std::sync::Arc;

/// Consumers are known by their names; the group's pending entries share them.
pub type Name = Arc<[u8]>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    pub consumer: Name,
    pub delivered_ms: i64,
    pub deliveries: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consumer {
    /// When it last asked, and when it last got something; −1: never.
    pub seen_ms: i64,
    pub active_ms: i64,
    pending: BTreeSet<Id>,
}

impl Consumer {
    pub fn pending(&self) -> &BTreeSet<Id> {
        &self.pending
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub last_id: Id,
    /// How many entries of the stream's history it has read, where that is known.
    pub entries_read: Option<u64>,
    pending: BTreeMap<Id, Pending>,
    consumers: BTreeMap<Name, Consumer>,
    /// Of the consumers' names.
    name_bytes: usize,
}

/// What the maps take for each, their nodes being two thirds full.
const PENDING_BYTES: usize = 104;
const CONSUMER_BYTES: usize = 120;

impl Group {
    pub fn new(last_id: Id, entries_read: Option<u64>) -> Group {
        Group { last_id, entries_read, pending: BTreeMap::new(), consumers: BTreeMap::new(), name_bytes: 0 }
    }

    pub fn consumers(&self) -> impl ExactSizeIterator<Item = (&Name, &Consumer)> + Clone {
        self.consumers.iter()
    }

    pub fn consumer(&self, name: &[u8]) -> Option<&Consumer> {
        self.consumers.get(name)
    }

    pub fn consumer_mut(&mut self, name: &[u8]) -> Option<&mut Consumer> {
        self.consumers.get_mut(name)
    }

    /// Makes the consumer unless it is there; true if it was not.
    pub fn create_consumer(&mut self, name: &[u8], seen_ms: i64) -> bool {
        if self.consumers.contains_key(name) {
            return false;
        }
        self.name_bytes += name.len();
        self.consumers.insert(name.into(), Consumer { seen_ms, active_ms: -1, pending: BTreeSet::new() });
        true
    }

    /// The consumer asks for something: it is made unless it is there. True if it was not.
    pub fn see_consumer(&mut self, name: &[u8], now_ms: i64) -> bool {
        match self.consumers.get_mut(name) {
            Some(consumer) => {
                consumer.seen_ms = now_ms;
                false
            }
            None => self.create_consumer(name, now_ms),
        }
    }

    /// The consumer got something.
    pub fn activate_consumer(&mut self, name: &[u8], now_ms: i64) {
        if let Some(consumer) = self.consumers.get_mut(name) {
            consumer.active_ms = now_ms;
        }
    }

    /// Removes a consumer with what it has not acknowledged, and says how much that was.
    pub fn remove_consumer(&mut self, name: &[u8]) -> Option<usize> {
        let consumer = self.consumers.remove(name)?;
        self.name_bytes -= name.len();
        for id in &consumer.pending {
            self.pending.remove(id);
        }
        Some(consumer.pending.len())
    }

    pub fn pending_len(&self) -> usize {
        self.pending.len()
    }

    pub fn pending(&self, ids: impl RangeBounds<Id>) -> impl DoubleEndedIterator<Item = (&Id, &Pending)> {
        self.pending.range(ids)
    }

    pub fn pending_at(&self, id: Id) -> Option<&Pending> {
        self.pending.get(&id)
    }

    /// Makes an entry the pending one of a consumer that is there, whoever had it before.
    pub fn assign(&mut self, id: Id, consumer: &[u8], delivered_ms: i64, deliveries: u64) {
        let (name, _) = self.consumers.get_key_value(consumer).expect("a consumer is made before it is given anything");
        let pending = Pending { consumer: name.clone(), delivered_ms, deliveries };
        if let Some(old) = self.pending.insert(id, pending)
            && *old.consumer != *consumer
            && let Some(owner) = self.consumers.get_mut(&old.consumer)
        {
            owner.pending.remove(&id);
        }
        if let Some(owner) = self.consumers.get_mut(consumer) {
            owner.pending.insert(id);
        }
    }

    /// A pending entry is given to its consumer once more.
    pub fn deliver_again(&mut self, id: Id, now_ms: i64) {
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.delivered_ms = now_ms;
            pending.deliveries = pending.deliveries.wrapping_add(1);
        }
    }

    /// Takes an entry out of what is pending; true if it was there.
    pub fn acknowledge(&mut self, id: Id) -> bool {
        let Some(pending) = self.pending.remove(&id) else { return false };
        if let Some(owner) = self.consumers.get_mut(&pending.consumer) {
            owner.pending.remove(&id);
        }
        true
    }

    pub(super) fn mem_bytes(&self) -> usize {
        self.pending.len() * PENDING_BYTES + self.consumers.len() * CONSUMER_BYTES + self.name_bytes
    }
}
