//! Owns the ownership of parts of large values: the numbers of the values in parts, and the names of the parts' records.
//! Never knows the contents of a part, nor where its value is.
//!
//! A value larger than [`Owners::split_bytes`] does not move as a whole. Its skeleton stays in RAM, and each part is a record
//! of its own (see `value::part`). The record's name contains the value's number, which stays the same when the key is renamed.

use crate::mem::hash::KeyHash;
use crate::mem::index::Entry;
use crate::mem::word::{PAGE_BITS, PageAddress};
use crate::narrow::{low8, low32};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The database number in records of parts. No logical database has this number.
pub(crate) const PARTS_UID: u32 = u32::MAX;

/// A value above this size goes to flash in parts. Decoding a value of this size takes about 1 ms.
const SPLIT_BYTES: usize = 64 << 10;

/// The name of a part's record.
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

/// The owners of values in parts: from the value's number to the hash and table id of its key.
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
    /// Sets the key that owns the value with this number.
    pub fn set(&self, id: u64, hash: KeyHash, table_id: u32) {
        self.keys.lock().insert(id, (hash, table_id));
    }

    /// A new number for a value in parts.
    pub fn next_id(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    /// The number that the next value in parts would get.
    pub fn next(&self) -> u64 {
        self.next.load(Relaxed)
    }

    /// Continues with numbers that no record on flash has.
    pub fn set_next(&self, next: u64) {
        self.next.fetch_max(next, Relaxed);
    }

    pub fn get(&self, id: u64) -> Option<(KeyHash, u32)> {
        self.keys.lock().get(&id).copied()
    }

    /// Forgets a value that was removed.
    pub fn remove(&self, id: u64) {
        self.keys.lock().remove(&id);
    }

    pub fn is_empty(&self) -> bool {
        self.keys.lock().is_empty()
    }

    /// The size above which values go to flash in parts.
    pub fn split_bytes(&self) -> usize {
        self.split_bytes.load(Relaxed)
    }

    pub fn set_split_bytes(&self, bytes: usize) {
        self.split_bytes.store(bytes, Relaxed);
    }
}

/// Whether an entry's value is in parts, with its skeleton in RAM.
pub(crate) fn is_in_parts(entry: &Entry) -> bool {
    entry.object().is_some_and(|object| object.is_in_parts())
}

/// Encodes a place as the number that a value stores.
pub(crate) fn number_of_place(place: PageAddress) -> u64 {
    u64::from(place.page) << 5 | u64::from(place.step)
}

/// The place with this number. A part keeps as many bits of a number as a place has, and reads no larger one (`value::part`).
pub(crate) fn place_of_number(number: u64) -> PageAddress {
    debug_assert!(number < 1 << (PAGE_BITS + 5));
    PageAddress { page: low32(number >> 5), step: low8(number) & 31 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_places_come_back() {
        let name = PartName { id: 7, number: 1 << 32 | 5 };
        assert_eq!(PartName::from_bytes(&name.to_bytes()), Some(name));
        assert_eq!(PartName::from_bytes(b"fifteen bytes.."), None);
        let place = PageAddress { page: (1 << crate::mem::word::PAGE_BITS) - 1, step: 23 };
        assert_eq!(place_of_number(number_of_place(place)), place);
    }
}
