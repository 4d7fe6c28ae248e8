//! Owns the list of known damaged pages and lost keys, so that each is counted once, even if several reads find it.
//! Never reads a page.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Maximum number of pages, and of keys, in the list: some megabytes. More are not counted.
const KNOWN_MAX: usize = 1 << 17;

#[derive(Default)]
pub struct Rot {
    /// Whether the list contains anything.
    is_some: AtomicBool,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    pages: BTreeSet<u32>,
    keys: BTreeSet<Lost>,
}

/// A key whose value is on a damaged page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lost {
    page: u32,
    /// The table id and the hash of the key; or, for a value in parts, the value's number as `id`.
    table_id: u32,
    id: u64,
}

impl Lost {
    pub fn key(page: u32, table_id: u32, hash_high: u64) -> Lost {
        Lost { page, table_id, id: hash_high }
    }

    /// A value in parts. It counts once, however many of its parts are lost.
    pub fn collection(id: u64) -> Lost {
        Lost { page: u32::MAX, table_id: u32::MAX, id }
    }
}

impl Rot {
    /// Adds damaged pages. Returns how many of them were not known before.
    pub fn add_pages(&self, pages: impl IntoIterator<Item = u32>) -> u64 {
        let mut known = self.known.lock();
        self.is_some.store(true, Relaxed);
        let added = pages.into_iter().filter(|&page| known.pages.len() < KNOWN_MAX && known.pages.insert(page));
        added.count() as u64
    }

    /// Adds a lost key. True: it was not known before.
    pub fn add_key(&self, lost: Lost) -> bool {
        let mut known = self.known.lock();
        self.is_some.store(true, Relaxed);
        known.keys.len() < KNOWN_MAX && known.keys.insert(lost)
    }

    /// Removes these pages and their keys from the list, because the pages will be written again.
    pub fn forget(&self, pages: Range<u32>) {
        if self.is_some.load(Relaxed) {
            let mut known = self.known.lock();
            known.pages.retain(|page| !pages.contains(page));
            known.keys.retain(|lost| !pages.contains(&lost.page));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_counts_once_until_its_pages_are_written_again() {
        let rot = Rot::default();
        rot.forget(0..10);
        assert_eq!((rot.add_pages([3, 4]), rot.add_pages([4, 5])), (2, 1));
        assert!(rot.add_key(Lost::key(3, 0, 77)));
        assert!(!rot.add_key(Lost::key(3, 0, 77)));
        assert!(rot.add_key(Lost::key(3, 1, 77)), "the same name in another logical database");
        assert!(rot.add_key(Lost::collection(77)));
        rot.forget(0..4);
        assert_eq!(rot.add_pages([3, 4, 5]), 1);
        assert!(rot.add_key(Lost::key(3, 0, 77)));
        assert!(!rot.add_key(Lost::collection(77)));
        assert_eq!(rot.add_pages(10..1 << 20), KNOWN_MAX as u64 - 3);
    }
}
