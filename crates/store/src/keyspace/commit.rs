//! Owns the one point that every change of the dataset passes, whatever its reason: a command, an expiry, an eviction, a
//! flush. For each key it notifies WATCH, client-side caching, waiters and keyspace events; for each command it states the effect.
//! Never knows what was written, nor the listeners.
//!
//! A command's edits record the keys that they change ([`Noted`]) while the command runs. When the handler has succeeded,
//! [`Store::commit`] notifies for all of them, with the stripes still locked. A command that ends in an error has recorded
//! nothing. Expiry, eviction and flush commit at once. They do not notify WATCH: EXEC itself checks that a key that existed at
//! WATCH still exists.

use crate::counters::Counter;
use crate::effects::{Effects, News, Why};
use crate::keyspace::guards::Held;
use crate::mem::hash::{Key, KeyHash};
use crate::store::Store;
use crate::stripe::wait::Ready;
use crate::stripe::{Database, Stripe};
use base::events::Class;
use std::ops::Range;

/// Which part of a key has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Value,
    /// Metadata beside the value itself, such as the progress of a stream's consumer groups. Notifies only watches of
    /// everything.
    Beside,
    /// Something that clients wait for is gone. Notifies only the waiters.
    Waiters,
}

/// The changes and events of the running command until they are committed. Names of keys are recorded only while there
/// are listeners.
#[derive(Default)]
pub(crate) struct Noted {
    names: Vec<u8>,
    keys: Vec<NotedKey>,
    events: Vec<NotedEvent>,
    /// Whole databases were emptied.
    flushed: bool,
}

struct NotedKey {
    db: usize,
    hash: KeyHash,
    name: Range<usize>,
    extent: Extent,
}

struct NotedEvent {
    class: Class,
    event: &'static str,
    db: usize,
    name: Range<usize>,
}

impl Noted {
    #[inline]
    fn is_empty(&self) -> bool {
        self.keys.is_empty() & self.events.is_empty() & !self.flushed
    }

    fn name(&mut self, name: &[u8]) -> Range<usize> {
        let from = self.names.len();
        self.names.extend_from_slice(name);
        from..self.names.len()
    }

    #[cold]
    pub fn key(&mut self, db: usize, hash: KeyHash, name: &[u8], extent: Extent) {
        let is_noted = self
            .keys
            .last()
            .is_some_and(|last| last.db == db && last.extent == extent && self.names[last.name.clone()] == *name);
        if !is_noted {
            let name = self.name(name);
            self.keys.push(NotedKey { db, hash, name, extent });
        }
    }

    #[cold]
    pub fn event(&mut self, class: Class, event: &'static str, db: usize, name: &[u8]) {
        let name = self.name(name);
        self.events.push(NotedEvent { class, event, db, name });
    }

    pub fn flush(&mut self) {
        self.flushed = true;
    }

    pub fn clear(&mut self) {
        self.names.clear();
        self.keys.clear();
        self.events.clear();
        self.flushed = false;
    }
}

impl Stripe {
    /// Whether this stripe has watchers or waiters.
    #[inline]
    pub(crate) fn is_heard(&self) -> bool {
        self.watched.is_some() | self.waiters.is_some()
    }

    fn notify(&self, db: usize, key: &Key<'_>, extent: Extent, ready: &mut Vec<Ready>) {
        if let Some(watched) = self.watched.as_ref().filter(|_| extent != Extent::Waiters) {
            watched.changed(db, key.name, extent == Extent::Value);
        }
        if let Some(waiters) = self.waiters.as_ref().filter(|_| extent != Extent::Beside) {
            waiters.note(db, key, ready);
        }
    }
}

impl Store {
    /// Commits the recorded changes and notifies all listeners. `held` holds the stripes of the keys.
    #[inline]
    pub(crate) fn commit(
        &self,
        noted: &mut Noted,
        held: &mut Held<'_>,
        client: u64,
        ready: &mut Vec<Ready>,
        effects: &mut Effects,
    ) {
        if !noted.is_empty() {
            self.commit_noted(noted, held, client, ready, effects);
        }
    }

    #[cold]
    fn commit_noted(
        &self,
        noted: &mut Noted,
        held: &mut Held<'_>,
        client: u64,
        ready: &mut Vec<Ready>,
        effects: &mut Effects,
    ) {
        for NotedKey { db, hash, name, extent } in &noted.keys {
            let key = Key { name: &noted.names[name.clone()], hash: *hash };
            held.get(hash.stripe()).notify(*db, &key, *extent, ready);
            if *extent == Extent::Value {
                self.say_changed(effects, key.name, client);
            }
        }
        if noted.flushed && self.wants(Class::CHANGE) {
            effects.say(News::Flushed);
        }
        for NotedEvent { class, event, db, name } in &noted.events {
            self.say_event(effects, (*class, event), *db, &noted.names[name.clone()]);
        }
        noted.clear();
        self.send_unless_more_follows(effects, held);
    }

    /// Ends a command that changed nothing. Its events about missed keys are published all the same.
    #[inline]
    pub(crate) fn give_up(&self, noted: &mut Noted, held: &Held<'_>, effects: &mut Effects) {
        if !noted.is_empty() {
            self.give_up_noted(noted, held, effects);
        }
    }

    #[cold]
    fn give_up_noted(&self, noted: &mut Noted, held: &Held<'_>, effects: &mut Effects) {
        for NotedEvent { class, event, db, name } in noted.events.iter().filter(|event| event.class == Class::MISS) {
            self.say_event(effects, (*class, event), *db, &noted.names[name.clone()]);
        }
        noted.clear();
        self.send_unless_more_follows(effects, held);
    }

    /// Sends the notifications now if there are no effects. Otherwise they wait until the effects are kept, when the
    /// outermost command ends.
    fn send_unless_more_follows(&self, effects: &mut Effects, held: &Held<'_>) {
        if effects.is_empty() && !(held.is_inner() && self.records_effects()) {
            self.publish(effects);
        }
    }

    fn say_changed(&self, effects: &mut Effects, key: &[u8], client: u64) {
        if self.wants(Class::CHANGE) {
            effects.say(News::Changed { key: key.into(), client });
        }
    }

    fn say_event(&self, effects: &mut Effects, (class, name): (Class, &'static str), db: usize, key: &[u8]) {
        if self.wants(class) {
            effects.say(News::Event { class, name, db, key: key.into() });
        }
    }

    /// Commits that a key leaves without a command, by expiry or eviction. `name` is needed for a cold key, whose object is not in
    /// RAM. `effects` are those of the command that met the key; without them the effect is published at once.
    pub(crate) fn commit_leave(
        &self,
        leave: Leave<'_>,
        database: &mut Database,
        slot: crate::mem::index::Slot,
        effects: Option<&mut Effects>,
    ) {
        let Leave { why, name, table_id, .. } = leave;
        if database.table.is_cut() {
            let object = database.table.entry(slot).object();
            let name = name.or(object.map(|object| object.key())).expect("known, as below");
            let stripe = self.hasher.key(name).hash.stripe();
            self.keep(database, slot, stripe, table_id);
        }
        let object = database.table.entry(slot).object();
        let name = name.unwrap_or_else(|| object.expect("the caller that removes a cold key knows its name").key());
        let (class, event, counter) = match why {
            Why::Evicted => (Class::EVICTED, "evicted", Counter::EvictedKeys),
            _ => (Class::EXPIRED, "expired", Counter::ExpiredKeys),
        };
        if self.wants(class.and(Class::CHANGE).and(Class::EFFECT)) {
            self.say_left(leave, (class, event), name, effects);
        }
        database.discard(self, slot);
        self.counters.add(counter, 1);
    }

    /// Commits that fields of a hash have expired.
    pub(crate) fn commit_fields(
        &self,
        gone: &FieldsGone<'_>,
        stripe: &Stripe,
        ready: &mut Vec<Ready>,
        effects: &mut Effects,
    ) {
        let FieldsGone { db, key, now_ms, fields, is_empty } = *gone;
        stripe.notify(db, key, Extent::Value, ready);
        self.say_changed(effects, key.name, 0);
        self.say_event(effects, (Class::HASH, "hexpired"), db, key.name);
        if is_empty {
            self.say_event(effects, (Class::GENERIC, "del"), db, key.name);
        }
        if self.records_effects() {
            let words = [&b"HDEL"[..], key.name].into_iter().chain(fields.iter().map(|field| &**field));
            effects.push(Why::FieldExpired, db, now_ms, words);
        }
    }

    #[cold]
    fn say_left(&self, leave: Leave<'_>, event: (Class, &'static str), name: &[u8], effects: Option<&mut Effects>) {
        let Leave { why, table_id, now_ms, .. } = leave;
        let mut own = Effects::default();
        let is_own = effects.is_none();
        let effects = effects.unwrap_or(&mut own);
        self.say_changed(effects, name, 0);
        // SWAPDB may have moved the table id to another logical database; this finds it.
        if let Some(db) = (0..self.databases()).find(|&db| self.table_id(db) == table_id) {
            self.say_event(effects, event, db, name);
            if self.records_effects() {
                effects.push(why, db, now_ms, [&b"DEL"[..], name]);
            }
        }
        if is_own {
            self.publish(effects);
        }
    }
}

/// Expired fields of a hash.
#[derive(Clone, Copy)]
pub(crate) struct FieldsGone<'g> {
    pub db: usize,
    pub key: &'g Key<'g>,
    pub now_ms: u64,
    pub fields: &'g [Box<[u8]>],
    /// They were the last fields of the hash.
    pub is_empty: bool,
}

/// A key that leaves without a command.
#[derive(Clone, Copy)]
pub(crate) struct Leave<'n> {
    pub why: Why,
    pub table_id: u32,
    /// `None`: the key is hot, and its object contains the name.
    pub name: Option<&'n [u8]>,
    pub now_ms: u64,
}

impl<'n> Leave<'n> {
    pub fn expired(table_id: u32, name: Option<&'n [u8]>, now_ms: u64) -> Leave<'n> {
        Leave { why: Why::Expired, table_id, name, now_ms }
    }

    pub fn evicted(table_id: u32, name: Option<&'n [u8]>, now_ms: u64) -> Leave<'n> {
        Leave { why: Why::Evicted, table_id, name, now_ms }
    }
}
