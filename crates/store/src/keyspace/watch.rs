//! Owns what one connection watches, and whether a transaction may run. Never knows which connection it is.

use super::{Cold, Keyspace};
use crate::mem::hash::{Key, KeyHash};
use crate::store::Store;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

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
