//! Owns a consumer group: which entries were delivered to which consumer and are not acknowledged. Never knows the
//! entries themselves.

use super::Id;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeBounds;
use std::sync::Arc;

/// A consumer's name. The group's pending entries share it.
pub type Name = Arc<[u8]>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    pub consumer: Name,
    pub delivered_ms: i64,
    pub deliveries: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consumer {
    /// When the consumer last asked, and when it last received something; −1: never.
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
    /// How many entries of the stream's history the group has read, if known.
    pub entries_read: Option<u64>,
    pending: BTreeMap<Id, Pending>,
    consumers: BTreeMap<Name, Consumer>,
    /// Bytes of the consumers' names.
    name_bytes: usize,
}

/// Memory of the maps for each pending entry, with nodes two thirds full.
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

    /// Creates the consumer unless it exists. True: it is new.
    pub fn create_consumer(&mut self, name: &[u8], seen_ms: i64) -> bool {
        if self.consumers.contains_key(name) {
            return false;
        }
        self.name_bytes += name.len();
        self.consumers.insert(name.into(), Consumer { seen_ms, active_ms: -1, pending: BTreeSet::new() });
        true
    }

    /// Notes that the consumer has asked for something. Creates it unless it exists. True: it is new.
    pub fn see_consumer(&mut self, name: &[u8], now_ms: i64) -> bool {
        match self.consumers.get_mut(name) {
            Some(consumer) => {
                consumer.seen_ms = now_ms;
                false
            }
            None => self.create_consumer(name, now_ms),
        }
    }

    /// Notes that the consumer has received something.
    pub fn activate_consumer(&mut self, name: &[u8], now_ms: i64) {
        if let Some(consumer) = self.consumers.get_mut(name) {
            consumer.active_ms = now_ms;
        }
    }

    /// Removes a consumer and its pending entries. Returns how many were pending.
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

    /// Makes an entry pending at an existing consumer, even if it was pending at another one.
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

    /// Delivers a pending entry to its consumer once more.
    pub fn deliver_again(&mut self, id: Id, now_ms: i64) {
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.delivered_ms = now_ms;
            pending.deliveries = pending.deliveries.wrapping_add(1);
        }
    }

    /// Removes a pending entry. True: it was pending.
    pub fn acknowledge(&mut self, id: Id) -> bool {
        let Some(pending) = self.pending.remove(&id) else { return false };
        if let Some(owner) = self.consumers.get_mut(&pending.consumer) {
            owner.pending.remove(&id);
        }
        true
    }

    /// Adds what a part of a dump contains of the same group.
    pub(super) fn merge(&mut self, part: &Group) {
        (self.last_id, self.entries_read) = (part.last_id, part.entries_read);
        for (name, Consumer { seen_ms, active_ms, .. }) in &part.consumers {
            self.create_consumer(name, *seen_ms);
            if let Some(consumer) = self.consumers.get_mut(name) {
                (consumer.seen_ms, consumer.active_ms) = (*seen_ms, *active_ms);
            }
        }
        for (id, Pending { consumer, delivered_ms, deliveries }) in &part.pending {
            self.assign(*id, consumer, *delivered_ms, *deliveries);
        }
    }

    pub(super) fn mem_bytes(&self) -> usize {
        self.pending.len() * PENDING_BYTES + self.consumers.len() * CONSUMER_BYTES + self.name_bytes
    }
}
