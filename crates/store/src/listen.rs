//! Owns what the store says of its keys to whoever listens: keyspace events, and that a key has changed.
//! Never knows who listens. Nobody does most of the time: then it costs a relaxed load where something happens.

use crate::effects::Effects;
use crate::hash::Key;
use crate::store::Store;
use base::events::Class;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Told while the key's stripe is locked, so that what is said of a key is in order; it must not come back to the store.
pub trait Listener: Send + Sync {
    fn event(&self, name: &'static str, db: usize, key: &[u8]);
    /// A key's value may have changed, in whatever database, by a command of `client`; 0: by none.
    fn changed(&self, key: &[u8], client: u64);
    /// All keys of a database may be gone.
    fn flushed(&self);
}

#[derive(Default)]
pub(crate) struct Ears {
    wanted: AtomicU32,
    listener: OnceLock<Box<dyn Listener>>,
    keeper: OnceLock<Keeper>,
}

/// Is told the effects of each outermost command while its stripes are locked; it must not come back to the store.
pub type Keeper = Box<dyn Fn(&Effects) + Send + Sync>;

impl Ears {
    #[inline]
    fn listener(&self, class: Class) -> Option<&dyn Listener> {
        if self.wanted.load(Relaxed) & class.bits() == 0 {
            return None;
        }
        self.listener.get().map(|listener| &**listener)
    }
}

impl Store {
    /// Who is told from now on. Once.
    pub fn set_listener(&self, listener: Box<dyn Listener>) {
        assert!(self.ears.listener.set(listener).is_ok(), "a store has one listener");
    }

    /// Which events are told.
    pub fn tell_events(&self, classes: Class) {
        self.ears.wanted.fetch_and(Class::CHANGE.bits() | Class::EFFECT.bits(), Relaxed);
        self.ears.wanted.fetch_or(classes.bits(), Relaxed);
    }

    /// Whether changes are told.
    pub fn tell_changes(&self, on: bool) {
        match on {
            true => self.ears.wanted.fetch_or(Class::CHANGE.bits(), Relaxed),
            false => self.ears.wanted.fetch_and(!Class::CHANGE.bits(), Relaxed),
        };
    }

    /// Who keeps the effects of all that changes from now on. Once.
    pub fn keep_effects(&self, keeper: Keeper) {
        assert!(self.ears.keeper.set(keeper).is_ok(), "a store's effects have one keeper");
        self.ears.wanted.fetch_or(Class::EFFECT.bits(), Relaxed);
    }

    /// Whether effects are kept: otherwise nobody need state them.
    #[inline]
    pub fn keeps_effects(&self) -> bool {
        self.wants(Class::EFFECT)
    }

    /// The effects of an outermost command, whose stripes are locked, go to who keeps them.
    #[cold]
    pub(crate) fn tell_effects(&self, effects: &mut Effects) {
        if let Some(keeper) = self.ears.keeper.get() {
            keeper(effects);
        }
        effects.clear();
    }

    #[inline]
    pub(crate) fn wants(&self, class: Class) -> bool {
        self.ears.wanted.load(Relaxed) & class.bits() != 0
    }

    #[inline]
    pub(crate) fn event(&self, class: Class, name: &'static str, db: usize, key: &[u8]) {
        if let Some(listener) = self.ears.listener(class) {
            listener.event(name, db, key);
        }
    }

    #[inline]
    pub(crate) fn changed(&self, key: &Key<'_>, client: u64) {
        if let Some(listener) = self.ears.listener(Class::CHANGE) {
            listener.changed(key.name, client);
        }
    }

    pub(crate) fn flushed(&self) {
        if let Some(listener) = self.ears.listener(Class::CHANGE) {
            listener.flushed();
        }
    }
}
