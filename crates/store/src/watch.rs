//! Owns which keys somebody watches and whether they were changed: WATCH's memory, in the stripe beside the keys.
//! Never knows who watches.
//!
//! A change is noted when a handler makes it. What removes keys by itself (expiry, eviction, FLUSHALL) notes nothing: a
//! key that was there when it was watched must still be there when it counts.

use crate::hash::{Key, KeyHash};
use crate::keyspace::{Cold, Keyspace};
use crate::store::Store;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A stripe's watched keys. There only while there are any.
#[derive(Default)]
pub(crate) struct Watched(HashMap<Box<[u8]>, Watchers>);

type Watchers = SmallVec<[Watcher; 1]>;

struct Watcher {
    db: u32,
    /// It is also told of what is beside the value proper: who has read of a stream.
    of_everything: bool,
    changed: Arc<AtomicBool>,
}

impl Watched {
    pub fn add(&mut self, db: usize, name: &[u8], of_everything: bool, changed: &Arc<AtomicBool>) {
        let watcher = Watcher { db: db as u32, of_everything, changed: Arc::clone(changed) };
        self.0.entry(name.into()).or_default().push(watcher);
    }

    pub fn remove(&mut self, db: usize, name: &[u8], changed: &Arc<AtomicBool>) {
        if let Some(watchers) = self.0.get_mut(name) {
            watchers.retain(|watcher| watcher.db != db as u32 || !Arc::ptr_eq(&watcher.changed, changed));
            if watchers.is_empty() {
                self.0.remove(name);
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The key was changed, its value or only what is beside it.
    pub fn changed(&self, db: usize, name: &[u8], value: bool) {
        let watchers = self.0.get(name).into_iter().flatten();
        for watcher in watchers.filter(|watcher| watcher.db == db as u32 && (value || watcher.of_everything)) {
            watcher.changed.store(true, Relaxed);
        }
    }

    /// Two databases are exchanged: changes what is in either of them.
    pub fn swapped(&self, databases: [usize; 2], is_there: impl Fn(&[u8]) -> bool) {
        for (name, watchers) in &self.0 {
            let mut affected = watchers.iter().filter(|watcher| databases.contains(&(watcher.db as usize))).peekable();
            if affected.peek().is_some() && is_there(name) {
                affected.for_each(|watcher| watcher.changed.store(true, Relaxed));
            }
        }
    }
}

/// The keys that one connection watches. Dropping them, or clearing, locks their stripes: none may be held then.
#[derive(Default)]
pub struct Watches {
    store: Option<Arc<Store>>,
    keys: Vec<WatchedKey>,
    of_everything: bool,
    changed: Arc<AtomicBool>,
}

struct WatchedKey {
    db: usize,
    name: Box<[u8]>,
    hash: KeyHash,
    was_there: bool,
}

impl Watches {
    /// That also notes what WATCH does not count as a change: consumer groups of a stream that go on.
    pub fn of_everything() -> Watches {
        let mut watches = Watches::default();
        watches.of_everything = true;
        watches
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether a handler has changed one of the keys. That none has is not the whole truth: see [`Keyspace::unchanged`].
    pub fn changed(&self) -> bool {
        self.changed.load(Relaxed)
    }

    pub fn keys(&self) -> impl Iterator<Item = Key<'_>> {
        self.keys.iter().map(|key| Key { name: &key.name, hash: key.hash })
    }

    pub fn clear(&mut self) {
        let Some(store) = &self.store else { return };
        for key in self.keys.drain(..) {
            let mut stripe = store.stripe(key.hash.stripe());
            if let Some(watched) = &mut stripe.watched {
                watched.remove(key.db, &key.name, &self.changed);
                if watched.is_empty() {
                    stripe.watched = None;
                }
            }
        }
        self.changed.store(false, Relaxed);
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        self.clear();
    }
}

impl std::fmt::Debug for Watches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Watches({} keys, changed: {})", self.len(), self.changed())
    }
}

impl Keyspace<'_> {
    /// WATCH: from now on a change of these keys is noted. Reads flash only for cold keys with an expiry.
    pub fn watch(&mut self, keys: &[Key<'_>], watches: &mut Watches) -> Result<(), Cold> {
        let mut cold = false;
        let mut there: SmallVec<[bool; 8]> = SmallVec::new();
        for key in keys {
            match self.peek(key) {
                Ok(found) => there.push(found.is_some()),
                Err(Cold) => cold = true,
            }
        }
        if cold {
            return Err(Cold);
        }
        let db = self.db();
        for (key, was_there) in keys.iter().zip(there) {
            if watches.keys.iter().any(|known| known.db == db && *known.name == *key.name) {
                continue;
            }
            if watches.store.is_none() {
                watches.store = self.store().me.upgrade();
            }
            let watched = self.stripe_of(key).watched.get_or_insert_default();
            watched.add(db, key.name, watches.of_everything, &watches.changed);
            watches.keys.push(WatchedKey { db, name: key.name.into(), hash: key.hash, was_there });
        }
        Ok(())
    }

    /// Whether none of the watched keys has changed, expired or otherwise gone. Their stripes are locked.
    pub fn unchanged(&mut self, watches: &Watches) -> Result<bool, Cold> {
        let db = self.db();
        let mut cold = false;
        let mut gone = false;
        for watched in watches.keys.iter().filter(|watched| watched.was_there) {
            self.select(watched.db);
            match self.peek(&Key { name: &watched.name, hash: watched.hash }) {
                Ok(found) => gone |= found.is_none(),
                Err(Cold) => cold = true,
            }
        }
        self.select(db);
        if gone || watches.changed() {
            return Ok(false);
        }
        if cold { Err(Cold) } else { Ok(true) }
    }
}
