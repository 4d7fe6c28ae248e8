//! Owns changing keys and values. Never reads flash: all cold values were read before the first change.

use super::{Cold, Found, Keyspace, NoEdit, Resume, Want};
use crate::counters::Counter;
use crate::keyspace::commit::Extent;
use crate::mem::hash::{Key, KeyHash};
use crate::mem::index::{Entry, OwnedWord, Slot};
use crate::mem::object::{Object, ObjectRef, Parts};
use crate::mem::word::{PageAddress, Word};
use crate::store::{Store, clean_place};
use crate::stripe::Database;
use base::events::Class;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use value::{Boxed, Buffer, Kind};

/// Redis frees a collection of more than 64 elements in the background. This is about the size of such a collection.
const LAZY_BYTES_MIN: usize = 2 << 10;

impl Keyspace<'_> {
    /// The value, for changing. From the first call that changes it, the value counts as changed and its copy on flash is
    /// invalid.
    pub fn get_mut(&mut self, key: &Key<'_>) -> Result<Option<ValueMut<'_>>, Cold> {
        let found = self.look(key)?;
        self.open(key, found, Extent::Value)
    }

    /// Like [`Keyspace::get_mut`], but only the wanted parts of a value in parts must be in RAM.
    pub fn get_mut_for(&mut self, key: &Key<'_>, want: Want<'_>) -> Result<Option<ValueMut<'_>>, Cold> {
        let found = self.look_at(key, want)?;
        self.open(key, found, Extent::Value)
    }

    /// Records the deadlines of the changed value's parts, so that expired parts are removed even if no command reads
    /// them.
    pub fn note_deadlines(&mut self, key: &Key<'_>) {
        let store = self.store;
        let database = self.database(key);
        if let Some(slot) = database.find(key) {
            let deadline = database.table.entry(slot).object().and_then(ObjectRef::next_deadline);
            database.note_deadline(store, key.hash.high, deadline);
        }
    }

    /// Like [`Keyspace::get_mut_for`], for metadata beside the value itself, such as the progress of a stream's
    /// consumer groups. Watchers and waiters of the key are not notified, except watches of everything.
    pub fn get_mut_aside(&mut self, key: &Key<'_>, want: Want<'_>) -> Result<Option<ValueMut<'_>>, Cold> {
        let found = self.look_at(key, want)?;
        self.open(key, found, Extent::Beside)
    }

    #[inline]
    fn open(&mut self, key: &Key<'_>, found: Found, extent: Extent) -> Result<Option<ValueMut<'_>>, Cold> {
        let Found::Hot(slot, _) = found else { return Ok(None) };
        self.may_change()?;
        let (store, db, table_id, clock, touch) = (self.store, self.db, self.table_id, self.clock(), self.touch);
        let stripe = self.held.get(key.hash.stripe());
        let is_heard = stripe.is_heard() | store.wants(Class::CHANGE);
        let database = stripe.database_mut(table_id);
        store.keep(database, slot, key.hash.stripe(), table_id);
        let entry = database.table.entry_mut(slot);
        if touch {
            entry.touch();
            entry.hot_mut().set_clock(clock);
        }
        Ok(Some(ValueMut {
            store,
            entry,
            hash: key.hash,
            table_id,
            db,
            clock,
            begun: false,
            heard_as: is_heard.then_some(extent),
            wrote: &mut self.wrote,
            user_bytes: &mut self.user_bytes,
            resume: self.resume,
        }))
    }

    /// Like [`Keyspace::get_mut`], but refuses a value of another kind.
    pub fn edit(&mut self, key: &Key<'_>, kind: Kind) -> Result<Option<ValueMut<'_>>, NoEdit> {
        match self.look(key)? {
            Found::Hot(slot, _) if self.object(key, slot).kind() != kind => Err(NoEdit::OtherKind),
            found => Ok(self.open(key, found, Extent::Value)?),
        }
    }

    /// Like [`Keyspace::edit`], but only the wanted parts of a value in parts must be in RAM.
    pub fn edit_for(&mut self, key: &Key<'_>, kind: Kind, want: Want<'_>) -> Result<Option<ValueMut<'_>>, NoEdit> {
        match self.look_at(key, want)? {
            Found::Hot(slot, _) if self.object(key, slot).kind() != kind => Err(NoEdit::OtherKind),
            found => Ok(self.open(key, found, Extent::Value)?),
        }
    }

    /// Sets a string. Replaces a value of any kind.
    #[inline]
    pub fn set_string(&mut self, key: &Key<'_>, value: &[u8], expiry: Option<u64>) {
        self.put(key, Kind::String, &[value], expiry);
    }

    /// Sets a string to the concatenation of `parts`.
    pub fn set_string_parts(&mut self, key: &Key<'_>, parts: &[&[u8]], expiry: Option<u64>) {
        self.put(key, Kind::String, parts, expiry);
    }

    /// Sets a collection in its packed form.
    pub fn set_packed(&mut self, key: &Key<'_>, kind: Kind, bytes: &[u8], expiry: Option<u64>) {
        self.put(key, kind, &[bytes], expiry);
    }

    pub fn set_boxed(&mut self, key: &Key<'_>, value: Boxed, expiry: Option<u64>) {
        if self.may_change().is_err() {
            return;
        }
        let (store, clock) = (self.store, self.clock());
        self.user_bytes += (key.name.len() + value.mem_bytes()) as u64;
        let parts = Parts {
            key: key.name,
            kind: value.kind(),
            raw: false,
            expiry,
            place: None,
            clock,
            stripe: key.hash.stripe_u16(),
        };
        if let Some(id) = value.shelf_id() {
            store.owners.set(id, key.hash, self.table_id);
        }
        let object = Object::new_boxed(&store.arena, &parts, value);
        let deadline = object.view().next_deadline();
        self.modified(key);
        let now_ms = self.now_ms;
        let database = self.database(key);
        let found = database.find(key);
        let had_expired = found.is_some_and(|slot| has_expired(store, database, slot, now_ms));
        match found {
            Some(slot) => replace(store, database, slot, key.hash, object),
            None => insert(database, key.hash, object),
        }
        // Note the deadline after the key is in the table: the note of a key that is not there may be dropped at once.
        database.note_deadline(store, key.hash.high, deadline);
        if had_expired {
            self.say_expired(key);
        }
        if found.is_none() || had_expired {
            self.event(Class::NEW, "new", key);
        }
    }

    #[inline]
    fn put(&mut self, key: &Key<'_>, kind: Kind, value: &[&[u8]], expiry: Option<u64>) {
        if self.may_change().is_err() {
            return;
        }
        let (store, clock, now_ms) = (self.store, self.clock(), self.now_ms);
        self.modified(key);
        self.user_bytes += (key.name.len() + value.iter().map(|part| part.len()).sum::<usize>()) as u64;
        let made = || {
            let stripe = key.hash.stripe_u16();
            let parts = Parts { key: key.name, kind, raw: false, expiry, place: None, clock, stripe };
            Object::new(&store.arena, &parts, value)
        };
        let database = self.database(key);
        let Some(slot) = database.find(key) else {
            insert(database, key.hash, made());
            return self.event(Class::NEW, "new", key);
        };
        if database.table.word(slot).has_expiry() && has_expired(store, database, slot, now_ms) {
            replace(store, database, slot, key.hash, made());
            self.say_expired(key);
            return self.event(Class::NEW, "new", key);
        }
        let entry = database.table.entry_mut(slot);
        let word = entry.word();
        if let ([value], Some(mut object)) = (value, entry.object_mut()) {
            let old = if word.is_dirty() { None } else { Some(clean_place(object.view())) };
            if object.overwrite(value, kind, expiry, clock) {
                old.into_iter().for_each(|place| store.segments.died(place));
                entry.set_dirty(true);
                entry.touch();
                return;
            }
        }
        replace(store, database, slot, key.hash, made());
    }

    /// Counts and announces that a command has overwritten an expired value that had not been removed yet. Replicas
    /// need no effect for this: the command's own effect overwrites the value there too.
    #[cold]
    fn say_expired(&mut self, key: &Key<'_>) {
        self.store.counters.add(Counter::ExpiredKeys, 1);
        self.event(Class::EXPIRED, "expired", key);
    }

    /// Removes the key's value, expired or not. Returns whether there was one. Reads nothing: whether a value on flash
    /// has expired does not matter.
    pub fn clear(&mut self, key: &Key<'_>) -> Result<bool, Cold> {
        self.may_change()?;
        let store = self.store;
        let Some(slot) = self.database(key).find(key) else {
            return Ok(false);
        };
        self.modified(key);
        self.database(key).discard(store, slot);
        Ok(true)
    }

    /// Like [`Keyspace::clear`], for a command that then sets the key anew. Announces the expiry of a value in RAM that
    /// had expired.
    pub fn clear_for_new(&mut self, key: &Key<'_>) -> Result<bool, Cold> {
        let (store, now_ms) = (self.store, self.now_ms);
        let database = self.database(key);
        let had_expired = database.find(key).is_some_and(|slot| has_expired(store, database, slot, now_ms));
        let held = self.clear(key)?;
        if had_expired {
            self.say_expired(key);
        }
        Ok(held)
    }

    /// Removes the key. Returns whether it existed. Reads flash only for a cold key with an expiry.
    pub fn remove(&mut self, key: &Key<'_>) -> Result<bool, Cold> {
        self.may_change()?;
        let (store, removes_unread) = (self.store, self.resume.removes_unread);
        let database = self.database(key);
        let Some(slot) = database.find(key) else {
            return Ok(false);
        };
        let word = database.table.word(slot);
        let slot = if word.has_expiry() && (word.is_hot() || !removes_unread) {
            match self.look_for(key)? {
                Found::Absent => return Ok(false),
                Found::Hot(slot, _) => slot,
            }
        } else {
            slot
        };
        self.modified(key);
        self.database(key).discard(store, slot);
        Ok(true)
    }

    /// Marks the key's value as lost: a repeated command would have computed it from values that cannot be read. The
    /// key answers with an error until it is set again or removed. The entry has the expiry bit, so that commands that
    /// only ask whether the key exists get the error too.
    #[cold]
    pub fn lose(&mut self, key: &Key<'_>) {
        let store = self.store;
        // No effect is needed: repeating the command elsewhere loses the value in the same way.
        self.stated = true;
        self.modified(key);
        let database = self.database(key);
        if let Some(slot) = database.find(key) {
            database.discard(store, slot);
        }
        let word = Word::cold(key.hash, PageAddress::LOST, Kind::String, true, false);
        database.table.insert(key.hash.high, OwnedWord::cold(word));
        database.expires += 1;
        store.cold.fetch_add(1, Relaxed);
        store.segments.born(PageAddress::LOST);
    }

    /// Where on flash the key's value lies, if it is not in RAM: the number of the path, and the offset.
    pub fn place_of(&mut self, key: &Key<'_>) -> Option<(u16, u64)> {
        let store = self.store;
        let database = self.database(key);
        let word = database.table.word(database.find(key)?);
        (!word.is_hot() && !word.place().is_lost()).then(|| store.segments.location(word.place().page))
    }

    /// Like [`Keyspace::remove`], for UNLINK: counts what Redis would free in the background.
    pub fn unlink(&mut self, key: &Key<'_>) -> Result<bool, Cold> {
        let database = self.database(key);
        let object = database.find(key).and_then(|slot| database.table.entry(slot).object());
        let is_large = object.and_then(ObjectRef::boxed).is_some_and(|value| value.mem_bytes() > LAZY_BYTES_MIN);
        let removed = self.remove(key)?;
        if removed && is_large {
            self.store.counters.add(Counter::LazyFreed, 1);
        }
        Ok(removed)
    }

    /// Sets or removes the expiry. Returns whether the key exists. Needs the value in RAM, because the record on flash contains
    /// the expiry.
    pub fn set_expiry(&mut self, key: &Key<'_>, expiry: Option<u64>) -> Result<bool, Cold> {
        self.may_change()?;
        let Found::Hot(slot, _) = self.look_for(key)? else {
            return Ok(false);
        };
        let (store, clock) = (self.store, self.clock());
        self.modified(key);
        let database = self.database(key);
        let had = database.table.word(slot).has_expiry();
        database.expires = database.expires + usize::from(expiry.is_some()) - usize::from(had);
        let entry = database.table.entry_mut(slot);
        make_dirty(store, entry, clock);
        match expiry {
            Some(expiry) if had => entry.hot_mut().replace_expiry(expiry),
            expiry if had == expiry.is_some() => {}
            expiry => entry.set_fields(&store.arena, key.hash.stripe_u16(), expiry, None),
        }
        Ok(true)
    }

    /// Sets the idle time or the access frequency of a key.
    pub fn set_use(&mut self, key: &Key<'_>, idle_seconds: Option<u64>, frequency: Option<u8>) -> Result<(), Cold> {
        self.may_change()?;
        let Found::Hot(slot, _) = self.look_for(key)? else { return Ok(()) };
        let clock = self.clock();
        let entry = self.entry(key, slot);
        if let Some(idle) = idle_seconds {
            entry.hot_mut().set_clock(clock.wrapping_sub(idle.min(0xff_ffff) as u32) & 0xff_ffff);
        }
        if let Some(frequency) = frequency {
            entry.set_frequency(frequency.min(crate::mem::word::FREQUENCY_MAX));
            entry.hot_mut().keep_frequency(frequency);
        }
        Ok(())
    }
}

/// Whether the entry's value has expired and must be removed. The expiry of a value on flash is not known before the
/// value is read, so such a value counts as not expired.
fn has_expired(store: &Store, database: &Database, slot: Slot, now_ms: u64) -> bool {
    database.table.entry(slot).object().is_some_and(|object| store.removes(object.expiry(), now_ms))
}

fn insert(database: &mut Database, hash: KeyHash, object: Object) {
    let has_expiry = object.view().expiry().is_some();
    database.table.insert(hash.high, OwnedWord::hot(hash, object, 0, has_expiry, true));
    database.hot += 1;
    database.expires += usize::from(has_expiry);
}

/// Replaces the entry's object and frees the old one.
fn replace(store: &Store, database: &mut Database, slot: Slot, hash: KeyHash, object: Object) {
    let entry = database.table.entry_mut(slot);
    let old = entry.word();
    let has_expiry = object.view().expiry().is_some();
    // A cold entry with the reference bit was used before, so this is its second use.
    let frequency = if old.is_hot() { old.touched().frequency() } else { u8::from(old.is_referenced()) };
    let gone = entry.replace(OwnedWord::hot(hash, object, frequency, has_expiry, true));
    database.hot += usize::from(!old.is_hot());
    database.expires = database.expires + usize::from(has_expiry) - usize::from(old.has_expiry());
    store.release(gone);
}

fn make_dirty(store: &Store, entry: &mut Entry, clock: u32) {
    if !entry.word().is_dirty() {
        store.segments.died(clean_place(entry.hot()));
        store.counters.add(Counter::ChangedOnFlash, 1);
        entry.set_dirty(true);
    }
    entry.hot_mut().end_write(clock);
}

/// A value of a locked stripe, for changing. Looking at it changes nothing.
pub struct ValueMut<'k> {
    store: &'k Store,
    entry: &'k mut Entry,
    hash: KeyHash,
    table_id: u32,
    db: usize,
    clock: u32,
    begun: bool,
    /// How a change is recorded. `None`: there are no listeners.
    heard_as: Option<Extent>,
    wrote: &'k mut bool,
    user_bytes: &'k mut u64,
    resume: &'k mut Resume,
}

impl ValueMut<'_> {
    fn object(&self) -> ObjectRef<'_> {
        self.entry.hot()
    }

    /// Called before the first change: makes the copy on flash invalid and records the change.
    #[inline]
    fn begin(&mut self) {
        if !std::mem::replace(&mut self.begun, true) {
            *self.wrote = true;
            make_dirty(self.store, self.entry, self.clock);
            let key = self.entry.hot().key();
            *self.user_bytes += key.len() as u64;
            if let Some(extent) = self.heard_as {
                self.resume.noted.key(self.db, self.hash, key, extent);
            }
        }
    }

    pub fn kind(&self) -> Kind {
        self.object().kind()
    }

    pub fn is_boxed(&self) -> bool {
        self.object().is_boxed()
    }

    pub fn inline(&self) -> Option<&[u8]> {
        self.object().inline()
    }

    /// The boxed value, for reading.
    pub fn view_boxed(&self) -> Option<&Boxed> {
        self.object().boxed()
    }

    pub fn inline_mut(&mut self) -> Option<&mut [u8]> {
        self.begin();
        self.entry.hot_mut().inline_mut()
    }

    /// Replaces the bytes `at` of an inline value by the concatenation of `with`.
    pub fn splice(&mut self, at: Range<usize>, with: &[&[u8]]) {
        self.begin();
        *self.user_bytes += with.iter().map(|part| part.len() as u64).sum::<u64>();
        self.entry.splice(&self.store.arena, self.hash.stripe_u16(), at, with);
    }

    /// Extends an inline value with zeros to `len` bytes, if it is shorter.
    pub fn extend_zero(&mut self, len: usize) {
        const ZEROS: [u8; 4096] = [0; 4096];
        let have = self.inline().map_or(0, <[u8]>::len);
        if len > have {
            let missing = len - have;
            let mut parts: Vec<&[u8]> = vec![&ZEROS; missing / ZEROS.len()];
            parts.push(&ZEROS[..missing % ZEROS.len()]);
            self.splice(have..have, &parts);
        }
    }

    /// Marks the string as edited, for OBJECT ENCODING. The mark alone is no change of the dataset, but it is stored on flash too.
    pub fn mark_raw(&mut self) {
        if !self.object().is_raw() {
            make_dirty(self.store, self.entry, self.clock);
            self.entry.hot_mut().mark_raw();
        }
    }

    /// The boxed value, for changing.
    pub fn boxed(&mut self) -> Option<&mut Boxed> {
        if !self.is_boxed() {
            return None;
        }
        self.begin();
        if self.resume.edited.last() != Some(&(self.hash, self.table_id)) {
            self.resume.edited.push((self.hash, self.table_id));
        }
        self.entry.hot_mut().into_boxed_mut()
    }

    pub fn replace_boxed(&mut self, value: Boxed) {
        assert!(value.shelf_id().is_none(), "a value in parts is set with set_boxed");
        self.begin();
        let parts = self.parts(value.kind());
        let new = Object::new_boxed(&self.store.arena, &parts, value);
        self.store.free(self.entry.replace_object(new));
    }

    /// Replaces the value by packed bytes of the same kind.
    pub fn replace_inline(&mut self, bytes: &[u8]) {
        self.begin();
        let parts = self.parts(self.kind());
        let new = Object::new(&self.store.arena, &parts, &[bytes]);
        self.store.free(self.entry.replace_object(new));
    }

    fn parts(&self, kind: Kind) -> Parts<'_> {
        let object = self.object();
        let (key, expiry, clock) = (object.key(), object.expiry(), object.clock());
        Parts { key, kind, raw: false, expiry, place: None, clock, stripe: self.hash.stripe_u16() }
    }
}

impl Buffer for ValueMut<'_> {
    fn bytes(&self) -> &[u8] {
        self.inline().expect("a packed value is inline")
    }
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.inline_mut().expect("a packed value is inline")
    }
    fn splice(&mut self, at: Range<usize>, with: &[&[u8]]) {
        ValueMut::splice(self, at, with);
    }
}
