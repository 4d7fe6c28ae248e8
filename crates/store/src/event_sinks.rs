//! Owns the notifications about keys: keyspace events, and that a key has changed.
//! Never knows the listeners. Usually there are none; then each event costs one relaxed load.

use crate::effects::{ChangeLog, Effects, News, Sent};
use base::events::Class;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// Called while the key's stripe is locked, so that notifications of one key are in order. It must not call the store.
pub trait Listener: Send + Sync {
    fn event(&self, name: &'static str, db: usize, key: &[u8]);
    /// The value of a key may have changed in some logical database, by a command of `client`. 0: not by a client's command.
    fn changed(&self, key: &[u8], client: u64);
    /// All keys of a logical database may have been removed.
    fn flushed(&self);
    /// A transaction or script has published a message: see [`crate::Keyspace::publish`].
    fn published(&self, is_sharded: bool, channel: &[u8], text: &[u8]);
}

#[derive(Default)]
pub(crate) struct EventSinks {
    wanted: AtomicU32,
    listener: OnceLock<Box<dyn Listener>>,
    change_log: OnceLock<Arc<dyn ChangeLog>>,
}

impl EventSinks {
    pub fn set_listener(&self, listener: Box<dyn Listener>) {
        assert!(self.listener.set(listener).is_ok(), "a store has one listener");
    }

    pub fn set_event_classes(&self, classes: Class) {
        self.wanted.fetch_and(Class::CHANGE.bits() | Class::EFFECT.bits(), Relaxed);
        self.wanted.fetch_or(classes.bits(), Relaxed);
    }

    pub fn set_change_events(&self, on: bool) {
        match on {
            true => self.wanted.fetch_or(Class::CHANGE.bits(), Relaxed),
            false => self.wanted.fetch_and(!Class::CHANGE.bits(), Relaxed),
        };
    }

    pub fn set_change_log(&self, log: Arc<dyn ChangeLog>) {
        assert!(self.change_log.set(log).is_ok(), "a store has one change log");
        self.wanted.fetch_or(Class::EFFECT.bits(), Relaxed);
    }

    /// Appends a command's own bytes to the change log. False: it takes effects only, or there is none.
    #[inline]
    pub fn append_sent(&self, sent: &Sent<'_>) -> bool {
        self.change_log.get().is_some_and(|log| log.append_sent(sent))
    }

    pub fn append(&self, effects: &Effects) {
        if let Some(log) = self.change_log.get().filter(|_| !effects.is_empty()) {
            log.append(effects);
        }
    }

    pub fn send_news(&self, news: &News) {
        match news {
            News::Changed { key, client } => self.changed(key, *client),
            News::Flushed => self.flushed(),
            News::Event { class, name, db, key } => self.event(*class, name, *db, key),
            News::Message { is_sharded, channel, text } => {
                if let Some(listener) = self.listener.get() {
                    listener.published(*is_sharded, channel, text);
                }
            }
        }
    }

    #[inline]
    pub fn wants(&self, class: Class) -> bool {
        self.wanted.load(Relaxed) & class.bits() != 0
    }

    fn event(&self, class: Class, name: &'static str, db: usize, key: &[u8]) {
        if let Some(listener) = self.listener(class) {
            listener.event(name, db, key);
        }
    }

    fn changed(&self, key: &[u8], client: u64) {
        if let Some(listener) = self.listener(Class::CHANGE) {
            listener.changed(key, client);
        }
    }

    fn flushed(&self) {
        if let Some(listener) = self.listener(Class::CHANGE) {
            listener.flushed();
        }
    }

    fn listener(&self, class: Class) -> Option<&dyn Listener> {
        if self.wanted.load(Relaxed) & class.bits() == 0 {
            return None;
        }
        self.listener.get().map(|listener| &**listener)
    }
}
