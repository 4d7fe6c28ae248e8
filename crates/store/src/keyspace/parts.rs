//! Owns finding the value of a part on flash, also after the value's key was renamed. Owns the life of a value in parts.
//! Never knows the contents of a part.

use crate::counters::Counter;
use crate::keyspace::commit::Leave;
use crate::log::parts::{is_in_parts, place_of_number};
use crate::mem::hash::{Key, KeyHash};
use crate::mem::index::{Entry, Slot};
use crate::store::Store;
use crate::stripe::Database;
use std::sync::{Arc, Weak};
use value::{Boxed, FlashCopies};

struct Home {
    store: Weak<Store>,
    id: u64,
}

impl FlashCopies for Home {
    fn id(&self) -> u64 {
        self.id
    }

    fn died(&self, place: u64) {
        if let Some(store) = self.store.upgrade() {
            store.segments.died(place_of_number(place));
            store.counters.add(Counter::ChangedOnFlash, 1);
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
    /// Sets the size above which values go to flash in parts.
    pub fn set_split_bytes(&self, bytes: usize) {
        self.owners.set_split_bytes(bytes);
    }

    /// Whether the value goes to flash in parts and not as one record.
    #[inline]
    pub(crate) fn moves_in_parts(&self, value: &Boxed) -> bool {
        let is_large = || value.mem_bytes() > self.owners.split_bytes();
        self.has_flash() && (value.shelf_id().is_some() || is_large())
    }

    /// Whether the store has any value in parts.
    pub fn has_parts(&self) -> bool {
        !self.owners.is_empty()
    }

    /// Whether the key's value is in parts, with its skeleton in RAM.
    pub fn is_in_parts(&self, key: &Key<'_>, db: usize) -> bool {
        let stripe = self.stripe(key.hash.stripe());
        let Some(database) = stripe.database(self.table_id(db)) else { return false };
        database.find(key).is_some_and(|slot| is_in_parts(database.table.entry(slot)))
    }

    /// The value's number. Gives the value a number if it has none yet.
    pub(crate) fn split(&self, value: &mut Boxed, hash: KeyHash, table_id: u32) -> u64 {
        value.shelf_id().unwrap_or_else(|| {
            let id = self.owners.next_id();
            self.adopt(id, value, hash, table_id);
            id
        })
    }

    /// Gives the value this number, which no other value has.
    pub(crate) fn adopt(&self, id: u64, value: &mut Boxed, hash: KeyHash, table_id: u32) {
        self.owners.set(id, hash, table_id);
        value.split(Arc::new(Home { store: self.me.clone(), id }));
    }

    /// Removes the key of a value in parts if the policy allows it and the key was not used recently.
    pub(crate) fn evict_split(&self, id: u64, now_ms: u64) -> bool {
        let Some((hash, table_id)) = self.owners.get(id) else { return false };
        let mut stripe = self.stripe(hash.stripe());
        let owned = stripe.owned;
        let database = stripe.database_mut(table_id);
        let Some(slot) = database.find_split(hash, id) else { return false };
        let word = database.table.word(slot);
        if !owned || word.frequency() > 0 || !self.tier.policy().evicts(word.has_expiry()) {
            return false;
        }
        self.commit_leave(Leave::evicted(table_id, None, now_ms), database, slot, None);
        true
    }

    /// Runs `with` on the value with this number, under its stripe's lock, wherever its key is now. `None`: the value is gone.
    pub(crate) fn with_split<R>(&self, id: u64, with: impl FnOnce(&mut Boxed) -> R) -> Option<R> {
        let mut seen = None;
        loop {
            let (hash, table_id) = self.owners.get(id)?;
            if seen == Some((hash, table_id)) {
                return None;
            }
            seen = Some((hash, table_id));
            let mut stripe = self.stripe(hash.stripe());
            let database = stripe.database_mut(table_id);
            if let Some(slot) = database.find_split(hash, id) {
                let mut object = database.table.entry_mut(slot).hot_mut();
                let result = with(object.boxed_mut().expect("it was found boxed"));
                object.account(&self.arena);
                return Some(result);
            }
            // The key was renamed between the two look-ups, or its table is being dropped.
        }
    }
}

impl Database {
    /// Finds the entry of the value with this number.
    fn find_split(&self, hash: KeyHash, id: u64) -> Option<Slot> {
        let boxed = |entry: &'_ Entry| entry.object()?.boxed()?.shelf_id();
        self.table.find(hash.high, |entry| boxed(entry) == Some(id))
    }
}
