//! Owns the watched keys and whether they were changed, for WATCH, in the stripe beside the keys.
//! Never knows which connection watches.
//!
//! Changes by handlers are recorded. Expiry, eviction and FLUSHALL record nothing: instead, EXEC checks that a key that
//! existed at WATCH still exists.

use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A stripe's watched keys. Exists only while there are any.
#[derive(Default)]
pub(crate) struct Watched(HashMap<Box<[u8]>, Watchers>);

type Watchers = SmallVec<[Watcher; 1]>;

struct Watcher {
    db: u32,
    /// Whether the watcher also counts changes of metadata beside the value itself, such as the progress of a stream's
    /// consumer groups.
    of_everything: bool,
    changed: Arc<AtomicBool>,
}

impl Watched {
    pub fn add(&mut self, db: usize, name: &[u8], of_everything: bool, changed: &Arc<AtomicBool>) {
        let db = u32::try_from(db).expect("databases have small numbers");
        let watcher = Watcher { db, of_everything, changed: Arc::clone(changed) };
        self.0.entry(name.into()).or_default().push(watcher);
    }

    pub fn remove(&mut self, db: usize, name: &[u8], changed: &Arc<AtomicBool>) {
        if let Some(watchers) = self.0.get_mut(name) {
            watchers.retain(|watcher| watcher.db as usize != db || !Arc::ptr_eq(&watcher.changed, changed));
            if watchers.is_empty() {
                self.0.remove(name);
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Records a change of the key. `value` is false if only data beside the value changed.
    pub fn changed(&self, db: usize, name: &[u8], value: bool) {
        let watchers = self.0.get(name).into_iter().flatten();
        for watcher in watchers.filter(|watcher| watcher.db as usize == db && (value || watcher.of_everything)) {
            watcher.changed.store(true, Relaxed);
        }
    }

    /// SWAPDB: records a change of every watched key in the two databases that exists in either of them.
    pub fn swapped(&self, databases: [usize; 2], is_there: impl Fn(&[u8]) -> bool) {
        for (name, watchers) in &self.0 {
            let mut affected = watchers.iter().filter(|watcher| databases.contains(&(watcher.db as usize))).peekable();
            if affected.peek().is_some() && is_there(name) {
                affected.for_each(|watcher| watcher.changed.store(true, Relaxed));
            }
        }
    }
}
