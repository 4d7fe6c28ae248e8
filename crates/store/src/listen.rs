//! Owns what the store says of its keys to whoever listens: keyspace events, and that a key has changed.
//! Never knows who listens. Nobody does most of the time: then it costs a relaxed load where something happens.

use crate::effects::Effects;
use crate::mem::hash::Key;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A kind of keyspace event; sets of them are sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class(u32);

impl Class {
    pub const GENERIC: Class = Class(1);
    pub const STRING: Class = Class(1 << 1);
    pub const LIST: Class = Class(1 << 2);
    pub const SET: Class = Class(1 << 3);
    pub const HASH: Class = Class(1 << 4);
    pub const SORTED_SET: Class = Class(1 << 5);
    pub const EXPIRED: Class = Class(1 << 6);
    pub const EVICTED: Class = Class(1 << 7);
    pub const STREAM: Class = Class(1 << 8);
    pub const MODULE: Class = Class(1 << 9);
    /// A command that reads has not found the key.
    pub const MISS: Class = Class(1 << 10);
    /// A key that was not there before.
    pub const NEW: Class = Class(1 << 11);
    /// Not an event: changes of keys, whatever they are.
    pub(crate) const CHANGE: Class = Class(1 << 31);
    /// Not an event: the effects of commands.
    pub(crate) const EFFECT: Class = Class(1 << 30);

    /// The class of a letter of `notify-keyspace-events`.
    pub fn from_letter(letter: char) -> Option<Class> {
        Some(match letter {
            'g' => Class::GENERIC,
            '$' => Class::STRING,
            'l' => Class::LIST,
            's' => Class::SET,
            'h' => Class::HASH,
            'z' => Class::SORTED_SET,
            'x' => Class::EXPIRED,
            'e' => Class::EVICTED,
            't' => Class::STREAM,
            'd' => Class::MODULE,
            'm' => Class::MISS,
            'n' => Class::NEW,
            _ => return None,
        })
    }

    #[must_use]
    pub fn and(self, other: Class) -> Class {
        Class(self.0 | other.0)
    }
}

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
    pub fn set_listener(&self, listener: Box<dyn Listener>) {
        assert!(self.listener.set(listener).is_ok(), "a store has one listener");
    }

    pub fn tell_events(&self, classes: Class) {
        self.wanted.fetch_and(Class::CHANGE.0 | Class::EFFECT.0, Relaxed);
        self.wanted.fetch_or(classes.0, Relaxed);
    }

    pub fn tell_changes(&self, on: bool) {
        match on {
            true => self.wanted.fetch_or(Class::CHANGE.0, Relaxed),
            false => self.wanted.fetch_and(!Class::CHANGE.0, Relaxed),
        };
    }

    pub fn keep_effects(&self, keeper: Keeper) {
        assert!(self.keeper.set(keeper).is_ok(), "a store's effects have one keeper");
        self.wanted.fetch_or(Class::EFFECT.0, Relaxed);
    }

    #[cold]
    pub fn tell_effects(&self, effects: &mut Effects) {
        if let Some(keeper) = self.keeper.get() {
            keeper(effects);
        }
        effects.clear();
    }

    #[inline]
    pub fn wants(&self, class: Class) -> bool {
        self.wanted.load(Relaxed) & class.0 != 0
    }

    #[inline]
    pub fn event(&self, class: Class, name: &'static str, db: usize, key: &[u8]) {
        if let Some(listener) = self.listener(class) {
            listener.event(name, db, key);
        }
    }

    #[inline]
    pub fn changed(&self, key: &Key<'_>, client: u64) {
        if let Some(listener) = self.listener(Class::CHANGE) {
            listener.changed(key.name, client);
        }
    }

    pub fn flushed(&self) {
        if let Some(listener) = self.listener(Class::CHANGE) {
            listener.flushed();
        }
    }

    #[inline]
    fn listener(&self, class: Class) -> Option<&dyn Listener> {
        if self.wanted.load(Relaxed) & class.0 == 0 {
            return None;
        }
        self.listener.get().map(|listener| &**listener)
    }
}
