//! Owns changing keys and values. Never reads flash: what is cold was said before anything was changed.

use super::{Cold, Found, Keyspace, NoEdit, Want};
use crate::commit::{Extent, Noted};
use crate::hash::{Key, KeyHash};
use crate::index::Slot;
use crate::listen::Class;
use crate::object::{Object, Parts};
use crate::store::{Database, Store, clean_place};
use crate::word::Word;
use smallvec::SmallVec;
use std::ops::Range;
use value::{Boxed, Buffer, Kind};

impl Keyspace<'_> {
    /// The value, for changing. It counts as changed, and its copy on flash counts no more, from the first call on that
    /// changes it.
    pub fn get_mut(&mut self, key: &Key<'_>) -> Result<Option<ValueMut<'_>>, Cold> {
        let found = self.look(key)?;
        self.open(key, found, Extent::Value)
    }

    /// As [`Keyspace::get_mut`], but of a value in parts only what is wanted has to be in RAM.
    pub fn get_mut_for(&mut self, key: &Key<'_>, want: Want<'_>) -> Result<Option<ValueMut<'_>>, Cold> {
        let found = self.look_at(key, want)?;
        self.open(key, found, Extent::Value)
    }

    /// Parts of the value, which was changed, expire from now on: they go in time, also if nobody looks.
    pub fn note_deadlines(&mut self, key: &Key<'_>) {
        let store = self.store;
        let database = self.database(key);
        if let Some(word) = database.find(key).map(|slot| database.table.word(slot)).filter(|word| word.is_hot()) {
            database.note_deadline(store, key.hash.high, Object::from_address(word.address()));
        }
    }

    /// As [`Keyspace::get_mut_for`], for what is beside the value proper, such as who has read it: those who watch the key or
    /// wait for it are not told, unless they watch everything.
    pub fn get_mut_aside(&mut self, key: &Key<'_>, want: Want<'_>) -> Result<Option<ValueMut<'_>>, Cold> {
        let found = self.look_at(key, want)?;
        self.open(key, found, Extent::Beside)
    }

    #[inline]
    fn open(&mut self, key: &Key<'_>, found: Found, extent: Extent) -> Result<Option<ValueMut<'_>>, Cold> {
        let Found::Hot(slot, object) = found else { return Ok(None) };
        self.may_change()?;
        self.touched(key, slot, object);
        let (store, db, uid, clock) = (self.store, self.db, self.uid, self.clock());
        let stripe = self.held.get(key.hash.stripe());
        let is_heard = stripe.is_heard() | store.wants(Class::CHANGE);
        let word = stripe.database_mut(uid).table.word_mut(slot);
        Ok(Some(ValueMut {
            store,
            word,
            hash: key.hash,
            uid,
            db,
            clock,
            begun: false,
            heard_as: is_heard.then_some(extent),
            wrote: &mut self.wrote,
            noted: &mut self.resume.noted,
            user_bytes: &mut self.user_bytes,
            edited: &mut self.edited,
        }))
    }

    /// As [`Keyspace::get_mut`] for a value that must be of one kind; of another it is left as it is.
    pub fn edit(&mut self, key: &Key<'_>, kind: Kind) -> Result<Option<ValueMut<'_>>, NoEdit> {
        match self.look(key)? {
            Found::Hot(_, object) if object.kind() != kind => Err(NoEdit::OtherKind),
            found => Ok(self.open(key, found, Extent::Value)?),
        }
    }

    /// As [`Keyspace::edit`], but of a value in parts only what is wanted has to be in RAM.
    pub fn edit_for(&mut self, key: &Key<'_>, kind: Kind, want: Want<'_>) -> Result<Option<ValueMut<'_>>, NoEdit> {
        match self.look_at(key, want)? {
            Found::Hot(_, object) if object.kind() != kind => Err(NoEdit::OtherKind),
            found => Ok(self.open(key, found, Extent::Value)?),
        }
    }

    /// Sets a string, whatever was there.
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
            stripe: key.hash.stripe() as u16,
        };
        if let Some(id) = value.shelf_id() {
            store.owners.set(id, key.hash, self.uid);
        }
        let object = Object::new_boxed(&store.arena, &parts, value);
        self.modified(key);
        let database = self.database(key);
        database.note_deadline(store, key.hash.high, object);
        match database.find(key) {
            Some(slot) => replace(store, database, slot, key.hash, object),
            None => {
                insert(database, key.hash, object);
                self.event(Class::NEW, "new", key);
            }
        }
    }

    #[inline]
    fn put(&mut self, key: &Key<'_>, kind: Kind, value: &[&[u8]], expiry: Option<u64>) {
        if self.may_change().is_err() {
            return;
        }
        let (store, clock) = (self.store, self.clock());
        self.modified(key);
        self.user_bytes += (key.name.len() + value.iter().map(|part| part.len()).sum::<usize>()) as u64;
        let stripe = key.hash.stripe() as u16;
        let parts = Parts { key: key.name, kind, raw: false, expiry, place: None, clock, stripe };
        let database = self.database(key);
        let Some(slot) = database.find(key) else {
            insert(database, key.hash, Object::new(&store.arena, &parts, value));
            return self.event(Class::NEW, "new", key);
        };
        let word = database.table.word(slot);
        if let ([value], true) = (value, word.is_hot()) {
            let object = Object::from_address(word.address());
            let old = if word.is_dirty() { None } else { Some(clean_place(object)) };
            if object.overwrite(value, kind, expiry, clock) {
                old.into_iter().for_each(|place| store.segments.died(place));
                *database.table.word_mut(slot) = word.with_dirty(true).touched();
                return;
            }
        }
        replace(store, database, slot, key.hash, Object::new(&store.arena, &parts, value));
    }

    /// Removes the key; says whether it was there. Reads flash only for a cold key with an expiry.
    pub fn remove(&mut self, key: &Key<'_>) -> Result<bool, Cold> {
        self.may_change()?;
        let store = self.store;
        let database = self.database(key);
        let Some(slot) = database.find(key) else {
            return Ok(false);
        };
        let word = database.table.word(slot);
        let slot = if word.has_expiry() {
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

    /// Sets or takes away the expiry; says whether the key is there. Needs the value in RAM, because the expiry
    /// stands in the record.
    pub fn set_expiry(&mut self, key: &Key<'_>, expiry: Option<u64>) -> Result<bool, Cold> {
        self.may_change()?;
        let Found::Hot(slot, object) = self.look_for(key)? else {
            return Ok(false);
        };
        let (store, clock) = (self.store, self.clock());
        self.modified(key);
        let database = self.database(key);
        let had = database.table.word(slot).has_expiry();
        database.expires = database.expires + usize::from(expiry.is_some()) - usize::from(had);
        let word = database.table.word_mut(slot);
        make_dirty(store, word, object, clock);
        match expiry {
            Some(expiry) if had => object.replace_expiry(expiry),
            expiry if had == expiry.is_some() => {}
            expiry => {
                let moved = object.with_fields(&store.arena, key.hash.stripe() as u16, expiry, None);
                *word = word.with_address(moved.address()).with_expiry(expiry.is_some());
            }
        }
        Ok(true)
    }

    /// Makes a key look as if it had last been used so long ago, or so often.
    pub fn set_use(&mut self, key: &Key<'_>, idle_seconds: Option<u64>, frequency: Option<u8>) -> Result<(), Cold> {
        self.may_change()?;
        let Found::Hot(slot, object) = self.look_for(key)? else { return Ok(()) };
        if let Some(idle) = idle_seconds {
            object.set_clock(self.clock().wrapping_sub(idle.min(0xff_ffff) as u32) & 0xff_ffff);
        }
        if let Some(frequency) = frequency {
            let word = self.database(key).table.word_mut(slot);
            *word = word.with_frequency(frequency.min(crate::word::FREQUENCY_MAX));
        }
        Ok(())
    }
}

fn insert(database: &mut Database, hash: KeyHash, object: Object) {
    let has_expiry = object.expiry().is_some();
    database.table.insert(hash.high, Word::hot(hash, object.address(), 0, has_expiry, true));
    database.hot += 1;
    database.expires += usize::from(has_expiry);
}

/// Another object takes the entry's place; what was there is freed.
fn replace(store: &Store, database: &mut Database, slot: Slot, hash: KeyHash, object: Object) {
    let old = database.table.word(slot);
    let has_expiry = object.expiry().is_some();
    // A cold key that was asked for before has had its second touch.
    let frequency = if old.is_hot() { old.touched().frequency() } else { u8::from(old.is_referenced()) };
    *database.table.word_mut(slot) = Word::hot(hash, object.address(), frequency, has_expiry, true);
    database.hot += usize::from(!old.is_hot());
    database.expires = database.expires + usize::from(has_expiry) - usize::from(old.has_expiry());
    store.release(old);
}

fn make_dirty(store: &Store, word: &mut Word, object: Object, clock: u32) {
    if !word.is_dirty() {
        store.segments.died(clean_place(object));
        *word = word.with_dirty(true);
    }
    object.end_write(clock);
}

/// A value of a locked stripe, for changing. Looking at it changes nothing.
pub struct ValueMut<'k> {
    store: &'k Store,
    word: &'k mut Word,
    hash: KeyHash,
    uid: u32,
    db: usize,
    clock: u32,
    begun: bool,
    /// How a change is noted, if anybody wants to hear of one.
    heard_as: Option<Extent>,
    wrote: &'k mut bool,
    noted: &'k mut Noted,
    user_bytes: &'k mut u64,
    edited: &'k mut SmallVec<[(KeyHash, u32); 1]>,
}

impl ValueMut<'_> {
    fn object(&self) -> Object {
        Object::from_address(self.word.address())
    }

    /// The value changes from here on: its copy on flash counts no more, and the change is noted.
    #[inline]
    fn begin(&mut self) -> Object {
        let object = self.object();
        if !std::mem::replace(&mut self.begun, true) {
            *self.wrote = true;
            *self.user_bytes += object.key().len() as u64;
            make_dirty(self.store, self.word, object, self.clock);
            if let Some(extent) = self.heard_as {
                self.noted.key(self.db, self.hash, object.key(), extent);
            }
        }
        object
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

    /// The boxed value, for looking at it.
    pub fn view_boxed(&self) -> Option<&Boxed> {
        self.object().boxed()
    }

    pub fn inline_mut(&mut self) -> Option<&mut [u8]> {
        self.begin().inline_mut()
    }

    /// Replaces the bytes `at` of an inline value by the concatenation of `with`.
    pub fn splice(&mut self, at: Range<usize>, with: &[&[u8]]) {
        let object = self.begin();
        *self.user_bytes += with.iter().map(|part| part.len() as u64).sum::<u64>();
        let moved = object.splice(&self.store.arena, self.hash.stripe() as u16, at, with);
        *self.word = self.word.with_address(moved.address());
    }

    /// Makes an inline value `len` bytes long, with zeros at its end, if it is shorter.
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

    /// OBJECT ENCODING shows that the string was edited. That alone is no change of the dataset, but goes to flash with it.
    pub fn mark_raw(&mut self) {
        let object = self.object();
        if !object.is_raw() {
            make_dirty(self.store, self.word, object, self.clock);
            object.mark_raw();
        }
    }

    /// The boxed value, for changing it.
    pub fn boxed(&mut self) -> Option<&mut Boxed> {
        if !self.is_boxed() {
            return None;
        }
        let object = self.begin();
        if self.edited.last() != Some(&(self.hash, self.uid)) {
            self.edited.push((self.hash, self.uid));
        }
        object.boxed_mut()
    }

    pub fn replace_boxed(&mut self, value: Boxed) {
        assert!(value.shelf_id().is_none(), "a value in parts is put at its key with set_boxed");
        let object = self.begin();
        let parts = self.parts(object, value.kind());
        let new = Object::new_boxed(&self.store.arena, &parts, value);
        self.put(object, new);
    }

    /// Replaces the value by inline bytes of the same kind.
    pub fn replace_inline(&mut self, bytes: &[u8]) {
        let object = self.begin();
        let parts = self.parts(object, object.kind());
        let new = Object::new(&self.store.arena, &parts, &[bytes]);
        self.put(object, new);
    }

    fn parts<'a>(&self, object: Object, kind: Kind) -> Parts<'a> {
        let (key, expiry, clock) = (object.key(), object.expiry(), object.clock());
        Parts { key, kind, raw: false, expiry, place: None, clock, stripe: self.hash.stripe() as u16 }
    }

    fn put(&mut self, old: Object, new: Object) {
        *self.word = self.word.with_address(new.address());
        if let Some(value) = old.free(&self.store.arena) {
            self.store.bury(value);
        }
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
