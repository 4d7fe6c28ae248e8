//! Owns which damaged pages and lost keys are known, so that each counts once, whoever finds it and how often. Never reads a page.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// At most so many pages, and so many keys, are known, in some megabytes. More are not counted.
const KNOWN_MAX: usize = 1 << 17;

#[derive(Default)]
pub struct Rot {
    /// Something is known.
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
    /// The key's, and its hash; or the number of a collection in parts.
    table_id: u32,
    id: u64,
}

impl Lost {
    pub fn key(page: u32, table_id: u32, hash_high: u64) -> Lost {
        Lost { page, table_id, id: hash_high }
    }

    /// A collection counts once, however many of its parts are lost.
    pub fn collection(id: u64) -> Lost {
        Lost { page: u32::MAX, table_id: u32::MAX, id }
    }
}

impl Rot {
    /// Of these pages, how many were not known to be damaged.
    pub fn add_pages(&self, pages: impl IntoIterator<Item = u32>) -> u64 {
        let mut known = self.known.lock();
        self.is_some.store(true, Relaxed);
        let added = pages.into_iter().filter(|&page| known.pages.len() < KNOWN_MAX && known.pages.insert(page));
        added.count() as u64
    }

    /// True: the key was not known to be lost.
    pub fn add_key(&self, lost: Lost) -> bool {
        let mut known = self.known.lock();
        self.is_some.store(true, Relaxed);
        known.keys.len() < KNOWN_MAX && known.keys.insert(lost)
    }

    /// These pages will be written again.
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
