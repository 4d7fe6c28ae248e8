//! Owns the keys that one connection watches, and whether its transaction may run. Never knows which connection it is.

use super::{Cold, Keyspace};
use crate::mem::hash::{Key, KeyHash};
use crate::store::Store;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The keys that one connection watches. Dropping or clearing locks their stripes, so the thread must hold no stripe then.
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
    /// Watches that also record changes that WATCH ignores, such as the progress of a stream's consumer groups.
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

    /// Whether a handler has changed one of the keys. False does not mean that all keys are unchanged: see [`Keyspace::unchanged`].
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
    /// For WATCH: from now on changes of these keys are recorded. Reads flash only for cold keys with an expiry.
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

    /// Whether no watched key was changed, expired or was removed. The caller must hold their stripes.
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
