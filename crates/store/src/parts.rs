//! Owns who the parts of large values belong to: the numbers of values whose parts are on flash for themselves, their
//! records' names, and the way from a part to its value. Never knows what a part holds.
//!
//! A value larger than [`Store::split_bytes`] does not move as one: its skeleton stays in RAM, each of its parts is a
//! record of its own (see `value::part`). The record is named by the value's number, which stays when its key is renamed.

use crate::commit::Leave;
use crate::hash::{Key, KeyHash};
use crate::index::{Entry, Slot};
use crate::store::Store;
use crate::stripe::Database;
use crate::word::Place;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use value::{Boxed, Shelf};

/// The database number of parts' records: no logical database has it.
pub(crate) const PARTS_UID: u32 = u32::MAX;

/// Above this a value goes to flash in parts. Decoding one of this size takes some 1 ms.
const SPLIT_BYTES: usize = 64 << 10;

/// A part's record, as it is found again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PartName {
    pub id: u64,
    pub number: u64,
}

impl PartName {
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.id.to_be_bytes());
        bytes[8..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<PartName> {
        let (id, number) = bytes.split_first_chunk()?;
        Some(PartName { id: u64::from_be_bytes(*id), number: u64::from_be_bytes(number.try_into().ok()?) })
    }
}

/// Values in parts, by their numbers: the hash and database of the key that each belongs to.
pub(crate) struct Owners {
    keys: Mutex<HashMap<u64, (KeyHash, u32)>>,
    next: AtomicU64,
    split_bytes: AtomicUsize,
}

impl Default for Owners {
    fn default() -> Owners {
        Owners { keys: Mutex::default(), next: AtomicU64::new(1), split_bytes: AtomicUsize::new(SPLIT_BYTES) }
    }
}

impl Owners {
    /// The value with this number is that key's from now on.
    pub fn set(&self, id: u64, hash: KeyHash, uid: u32) {
        self.keys.lock().insert(id, (hash, uid));
    }

    /// A value in parts needs a number.
    pub fn next_id(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    pub fn get(&self, id: u64) -> Option<(KeyHash, u32)> {
        self.keys.lock().get(&id).copied()
    }

    /// The value is gone.
    pub fn remove(&self, id: u64) {
        self.keys.lock().remove(&id);
    }

    pub fn is_empty(&self) -> bool {
        self.keys.lock().is_empty()
    }

    /// Values larger than this go to flash in parts.
    pub fn split_bytes(&self) -> usize {
        self.split_bytes.load(Relaxed)
    }

    pub fn set_split_bytes(&self, bytes: usize) {
        self.split_bytes.store(bytes, Relaxed);
    }
}

/// Whether an entry's value is in RAM, and in parts.
pub(crate) fn is_in_parts(entry: &Entry) -> bool {
    entry.object().is_some_and(|object| object.is_in_parts())
}

struct Home {
    store: Weak<Store>,
    id: u64,
}

impl Shelf for Home {
    fn id(&self) -> u64 {
        self.id
    }

    fn died(&self, place: u64) {
        if let Some(store) = self.store.upgrade() {
            store.segments.died(place_of_number(place));
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Some(store) = self.store.upgrade() {
            store.owners.remove(self.id);
        }
    }
}

impl Store {
    /// Values larger than this go to flash in parts.
    pub fn set_split_bytes(&self, bytes: usize) {
        self.owners.set_split_bytes(bytes);
    }

    /// Whether the value goes to flash in parts, not as one.
    #[inline]
    pub(crate) fn moves_in_parts(&self, value: &Boxed) -> bool {
        let is_large = || value.mem_bytes() > self.owners.split_bytes();
        self.has_flash() && (value.shelf_id().is_some() || is_large())
    }

    /// Whether there is any value in parts.
    pub fn has_parts(&self) -> bool {
        !self.owners.is_empty()
    }

    /// Whether the key's value is in RAM, and in parts.
    pub fn is_in_parts(&self, key: &Key<'_>, db: usize) -> bool {
        let stripe = self.stripe(key.hash.stripe());
        let Some(database) = stripe.database(self.uid(db)) else { return false };
        database.find(key).is_some_and(|slot| is_in_parts(database.table.entry(slot)))
    }

    /// The value's number; it gets one if it has none yet.
    pub(crate) fn split(&self, value: &mut Boxed, hash: KeyHash, uid: u32) -> u64 {
        value.shelf_id().unwrap_or_else(|| {
            let id = self.owners.next_id();
            self.owners.set(id, hash, uid);
            value.split(Arc::new(Home { store: self.me.clone(), id }));
            id
        })
    }

    /// Removes the key of a value in parts, if the policy may evict it and nobody has used it lately.
    pub(crate) fn evict_split(&self, id: u64, now_ms: u64) -> bool {
        let Some((hash, uid)) = self.owners.get(id) else { return false };
        let mut stripe = self.stripe(hash.stripe());
        let database = stripe.database_mut(uid);
        let Some(slot) = database.find_split(hash, id) else { return false };
        let word = database.table.word(slot);
        if word.frequency() > 0 || !self.tier.policy().evicts(word.has_expiry()) {
            return false;
        }
        self.commit_leave(Leave::evicted(uid, None, now_ms), database, slot, None);
        true
    }

    /// Runs `with` on the value that has this number, under its stripe's lock, wherever it is by now. `None`: it is gone.
    pub(crate) fn with_split<R>(&self, id: u64, with: impl FnOnce(&mut Boxed) -> R) -> Option<R> {
        let mut seen = None;
        loop {
            let (hash, uid) = self.owners.get(id)?;
            if seen == Some((hash, uid)) {
                return None;
            }
            seen = Some((hash, uid));
            let mut stripe = self.stripe(hash.stripe());
            let database = stripe.database_mut(uid);
            if let Some(slot) = database.find_split(hash, id) {
                let mut object = database.table.entry_mut(slot).hot_mut();
                let result = with(object.boxed_mut().expect("it was found boxed"));
                object.account(&self.arena);
                return Some(result);
            }
            // Renamed between the two look-ups, or in a table that is being dropped.
        }
    }
}

impl Database {
    /// The entry of the value with this number.
    fn find_split(&self, hash: KeyHash, id: u64) -> Option<Slot> {
        let boxed = |entry: &'_ Entry| entry.object()?.boxed()?.shelf_id();
        self.table.find(hash.high, |entry| boxed(entry) == Some(id))
    }
}

/// The number that a value knows a place by.
pub(crate) fn number_of_place(place: Place) -> u64 {
    u64::from(place.page) << 5 | u64::from(place.step)
}

pub(crate) fn place_of_number(number: u64) -> Place {
    Place { page: (number >> 5) as u32, step: number as u8 & 31 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_places_come_back() {
        let name = PartName { id: 7, number: 1 << 32 | 5 };
        assert_eq!(PartName::from_bytes(&name.to_bytes()), Some(name));
        assert_eq!(PartName::from_bytes(b"fifteen bytes.."), None);
        let place = Place { page: (1 << crate::word::PAGE_BITS) - 1, step: 23 };
        assert_eq!(place_of_number(number_of_place(place)), place);
    }
}
