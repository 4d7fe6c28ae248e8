//! Owns what a handler sees of the store: keys and values of locked stripes.
//! Never waits: what is cold is noted, and the handler is run again when it is there. Inside a transaction or script
//! that has begun, which cannot run again, it is read at once.

use crate::counters::Counter;
use crate::direct;
use crate::guards::{Held, Stripes as _, all_stripes};
use crate::hash::{Hasher, Key, KeyHash, STRIPES};
use crate::index::Slot;
use crate::lane::ReadError;
use crate::listen::Class;
pub use crate::object::Value;
use crate::object::{Object, Parts};
use crate::parts::{PartName, place_of_number};
use crate::store::{Database, Store, Stripe, clean_place, expire};
use crate::tier::Admission;
use crate::wait::Ready;
use crate::word::Word;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use value::{Absent, AbsentPart, Boxed, Buffer, Kind};

/// A value that is needed is on flash. What to read is in [`Resume::cold`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cold;

/// Why a value cannot be changed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoEdit {
    Cold,
    OtherKind,
}

impl From<Cold> for NoEdit {
    fn from(_: Cold) -> NoEdit {
        NoEdit::Cold
    }
}

/// One value, or one key's name, to be read from flash. While it exists its pages are not reused.
pub struct ColdRead {
    store: *const Store,
    pub(crate) hash: KeyHash,
    pub(crate) uid: u32,
    pub(crate) word: Word,
    /// The key, when its value is wanted; `None` when only its name is (SCAN).
    pub(crate) name: Option<SmallVec<[u8; 40]>>,
    /// A part of that key's value is wanted, not an entry's value.
    pub(crate) part: Option<PartName>,
}

impl ColdRead {
    pub(crate) fn new(store: &Store, hash: KeyHash, uid: u32, word: Word, name: Option<&[u8]>) -> ColdRead {
        store.segments.reader_begins(word.place().page);
        ColdRead { store, hash, uid, word, name: name.map(SmallVec::from_slice), part: None }
    }

    /// Of a part of a value, whose key has this hash.
    fn of_part(store: &Store, hash: KeyHash, uid: u32, kind: Kind, id: u64, part: AbsentPart) -> ColdRead {
        let word = Word::cold(hash, place_of_number(part.place), kind, false, false);
        let mut read = ColdRead::new(store, hash, uid, word, None);
        read.part = Some(PartName { id, number: part.number });
        read
    }

    pub(crate) fn identity(&self) -> Identity {
        Identity::new(self.hash, self.word)
    }
}

impl Drop for ColdRead {
    fn drop(&mut self) {
        // SAFETY: a cold read is made by a session or lane of the store's server, all of which hold an Arc of the
        // store for longer than any command.
        unsafe { &*self.store }.segments.reader_ends(self.word.place().page);
    }
}

/// What is known of a cold key without reading it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Identity {
    high: u64,
    low: u64,
    slot: u16,
}

impl Identity {
    fn new(hash: KeyHash, word: Word) -> Identity {
        Identity { high: hash.high, low: word.0 >> 40, slot: hash.stripe() as u16 }
    }
}

pub(crate) struct Named {
    pub name: Box<[u8]>,
    pub expiry: Option<u64>,
}

/// What survives the re-runs of one command. Cleared between commands, its memory kept.
#[derive(Default)]
pub struct Resume {
    /// What the handler that returned [`Cold`] needs.
    pub cold: Vec<ColdRead>,
    pub(crate) names: HashMap<Identity, Named>,
    random: Option<u64>,
    /// Why a value could not be read at once: what a [`Cold`] inside a transaction or script means.
    pub failed: Option<ReadError>,
    /// Keys that were changed while somebody waits for them. Not cleared but taken, by who serves those.
    pub ready: Vec<Ready>,
    /// In the all-cold mode, stripes with values that are to leave RAM. Not cleared but taken, by [`crate::Lane::chill`].
    pub touched: Vec<usize>,
    /// Whose commands these are; 0: nobody's. Stays when the rest is cleared.
    pub client: u64,
    /// For the handler's own progress (KEYS).
    pub cursor: u64,
    pub bytes: Vec<u8>,
    pub count: u64,
}

impl Resume {
    pub fn clear(&mut self) {
        self.cold.clear();
        if !self.names.is_empty() {
            self.names = HashMap::new();
        }
        self.random = None;
        self.failed = None;
        self.cursor = 0;
        self.bytes = Vec::new();
        self.count = 0;
    }
}

/// A key's existence without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peek {
    pub kind: Kind,
    pub has_expiry: bool,
}

/// For OBJECT, MEMORY USAGE and DEBUG OBJECT.
#[derive(Clone, Debug)]
pub struct Inspect {
    pub kind: Kind,
    pub hot: bool,
    pub dirty: bool,
    pub raw: bool,
    pub boxed: bool,
    pub ram_bytes: usize,
    pub flash_pages: u32,
    pub idle_seconds: u64,
    pub frequency: u8,
    pub expiry: Option<u64>,
}

/// Says what a command touches of a value in parts: those that are not in RAM are noted. Asked again when they are, for
/// what one part says may name the next.
pub type Want<'w> = &'w dyn Fn(&Boxed, &mut Absent);

/// More parts than this are brought in several goes: a read on its way takes some 300 bytes.
const PARTS_AT_ONCE: usize = 16_384;

/// The skeleton is enough: for the length, or to take the value to another key.
pub const NOTHING: Want<'static> = &|_, _| {};

pub struct Keyspace<'s> {
    store: &'s Store,
    held: Held<'s>,
    db: usize,
    uid: u32,
    now_ms: u64,
    touch: bool,
    /// Cold values are read at once, under the lock.
    at_once: bool,
    /// See [`Keyspace::rehearsal`].
    rehearses: bool,
    /// It goes by chance what is needed: nothing is noted.
    blind: bool,
    wrote: bool,
    stopped: bool,
    /// Read at once while RAM was full: they leave again when this command has run.
    passing: Vec<(KeyHash, u32, usize)>,
    hits: u32,
    misses: u32,
    user_bytes: u64,
    /// Boxed values that were changed: what they take is counted when the command has run.
    edited: SmallVec<[(KeyHash, u32); 1]>,
    /// Keys not found, while somebody wants to hear of them.
    missed: Vec<Box<[u8]>>,
    pub resume: &'s mut Resume,
}

enum Found {
    Absent,
    Hot(Slot, Object),
}

impl<'s> Keyspace<'s> {
    /// `None`: a stripe was not to be had within `patience`. Without one it waits as long as it takes.
    #[inline]
    pub(crate) fn new(
        store: &'s Store,
        keys: &[Key<'_>],
        how: Access,
        patience: Option<Duration>,
        resume: &'s mut Resume,
    ) -> Option<Keyspace<'s>> {
        let held = match keys {
            [] => Held::none(store),
            [key] => {
                let stripe = key.hash.stripe();
                let guard = match patience {
                    None => store.stripe(stripe),
                    Some(patience) => store.try_stripe(stripe, patience)?,
                };
                Held::one(store, stripe, guard)
            }
            keys => {
                let mut stripes: SmallVec<[usize; 32]> = keys.iter().map(|key| key.hash.stripe()).collect();
                stripes.sort_unstable();
                stripes.dedup();
                Held::many(store, &stripes, patience)?
            }
        };
        Some(Keyspace::over(store, held, how, resume))
    }

    /// With every stripe locked.
    pub(crate) fn whole(
        store: &'s Store,
        how: Access,
        patience: Option<Duration>,
        resume: &'s mut Resume,
    ) -> Option<Keyspace<'s>> {
        let held = Held::many(store, &all_stripes(), patience)?;
        Some(Keyspace::over(store, held, how, resume))
    }

    #[inline]
    fn over(store: &'s Store, held: Held<'s>, Access { db, now_ms, touch }: Access, resume: &'s mut Resume) -> Self {
        Keyspace {
            store,
            held,
            db,
            uid: store.uid(db),
            now_ms,
            touch,
            at_once: false,
            rehearses: false,
            blind: false,
            wrote: false,
            stopped: false,
            passing: Vec::new(),
            hits: 0,
            misses: 0,
            user_bytes: 0,
            edited: SmallVec::new(),
            missed: Vec::new(),
            resume,
        }
    }

    /// For a command that runs inside a transaction or script that holds these stripes: it sees the same moment, and
    /// values that are cold are read at once.
    pub fn inner(&mut self, db: usize, touch: bool) -> Keyspace<'_> {
        let how = Access { db, now_ms: self.now_ms, touch };
        let mut inner = Keyspace::over(self.store, self.held.inner(), how, self.resume);
        inner.at_once = true;
        inner
    }

    /// For finding out which parts of this key's value a command needs whose turn has not come: its handler notes them,
    /// and stops where it would change something. `None`: the value is not one in parts, or not in RAM at all.
    pub fn rehearsal(&mut self, key: &Key<'_>, db: usize) -> Option<Keyspace<'_>> {
        let how = Access { db, now_ms: self.now_ms, touch: false };
        let mut inner = Keyspace::over(self.store, self.held.inner(), how, self.resume);
        // Nothing of it counts.
        (inner.rehearses, inner.stopped) = (true, true);
        let database = inner.database(key);
        let word = database.table.word(database.find(key)?);
        let is_in_parts = word.is_hot() && Object::from_address(word.address()).boxed()?.shelf_id().is_some();
        is_in_parts.then_some(inner)
    }

    /// A handler is about to change something.
    #[inline]
    fn may_change(&self) -> Result<(), Cold> {
        if self.rehearses { Err(Cold) } else { Ok(()) }
    }

    /// Whether the stripes of these keys are locked.
    pub fn holds(&mut self, keys: &[Key<'_>]) -> bool {
        keys.iter().all(|key| self.held.holds(key.hash.stripe()))
    }

    /// Locks the stripes of these keys too. False: another script wants what this one has, and asked first.
    pub fn add(&mut self, keys: &[Key<'_>]) -> bool {
        let stripes: SmallVec<[usize; 8]> = keys.iter().map(|key| key.hash.stripe()).collect();
        self.held.add(&stripes)
    }

    /// Locks every stripe. False as in [`Keyspace::add`].
    pub fn add_all(&mut self) -> bool {
        self.held.count() == STRIPES || self.held.add(&all_stripes())
    }

    /// Notes which of the keys' values are on flash, to be read before a transaction or script begins.
    pub fn want(&mut self, keys: &[Key<'_>]) -> Result<(), Cold> {
        let mut cold = Ok(());
        for key in keys {
            let database = self.database(key);
            if let Some(slot) = database.find(key) {
                let word = database.table.word(slot);
                if !word.is_hot() {
                    cold = Err(self.is_cold(key, word));
                }
            }
        }
        cold
    }

    pub(crate) fn store(&self) -> &'s Store {
        self.store
    }

    pub(crate) fn stripe_of(&mut self, key: &Key<'_>) -> &mut Stripe {
        self.held.get(key.hash.stripe())
    }

    #[inline]
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    pub fn db(&self) -> usize {
        self.db
    }

    pub fn hasher(&self) -> &'s Hasher {
        &self.store.hasher
    }

    /// A random number, the same each time that this command is run again.
    pub fn seed(&mut self) -> u64 {
        // What runs inside a transaction or script runs once, and others with it.
        if self.at_once {
            return self.store.next_random();
        }
        // What the command will meet when its turn comes cannot be known.
        self.blind |= self.rehearses;
        *self.resume.random.get_or_insert_with(|| self.store.next_random())
    }

    /// Whether this handler has changed anything.
    pub fn wrote(&self) -> bool {
        self.wrote
    }

    /// Later calls work on logical database `db`. A key's stripe is the same in all of them.
    pub fn select(&mut self, db: usize) {
        self.db = db;
        self.uid = self.store.uid(db);
    }

    #[inline]
    fn clock(&self) -> u32 {
        (self.now_ms / 1000) as u32
    }

    #[inline]
    fn database(&mut self, key: &Key<'_>) -> &mut Database {
        self.held.get(key.hash.stripe()).database_mut(self.uid)
    }

    /// A handler changes this key: whoever watches it or has read it is told, whoever waits for it is noted. To be called
    /// by itself where a value that was opened aside has changed after all.
    #[inline]
    pub fn modified(&mut self, key: &Key<'_>) {
        self.store.changed(key, self.resume.client);
        let db = self.db;
        let stripe = self.held.get(key.hash.stripe());
        if let Some(watched) = &stripe.watched {
            watched.changed(db, key.name, true);
        }
        if let Some(waiters) = &stripe.waiters {
            waiters.note(db, key, &mut self.resume.ready);
        }
    }

    /// Who waits for any change of the key is noted, though nothing is changed that others would be told of: it has
    /// expired, or a group of its is gone.
    #[cold]
    pub fn wake(&mut self, key: &Key<'_>) {
        if let Some(waiters) = &self.held.get(key.hash.stripe()).waiters {
            waiters.note(self.db, key, &mut self.resume.ready);
        }
    }

    /// Tells whoever listens what has happened to a key of the current database.
    #[inline]
    pub fn event(&mut self, class: Class, name: &'static str, key: &Key<'_>) {
        self.store.event(class, name, self.db, key.name);
    }

    /// Counts a look-up that no value was needed for, as Redis counts it.
    #[inline]
    pub fn looked_up(&mut self, key: &Key<'_>, found: bool) {
        if found { self.hits += 1 } else { self.missed(key) }
    }

    #[inline]
    fn missed(&mut self, key: &Key<'_>) {
        self.misses += 1;
        if self.store.wants(Class::MISS) {
            self.missed.push(key.name.into());
        }
    }

    fn is_cold(&mut self, key: &Key<'_>, word: Word) -> Cold {
        debug_assert!(!self.wrote, "a handler's reads come before its first write");
        self.stopped = true;
        self.resume.cold.push(self.store.cold_read(key.hash, self.uid, word, Some(key.name)));
        Cold
    }

    /// Reads a cold value at once, if that is how this command runs.
    #[cold]
    fn read(&mut self, key: &Key<'_>, word: Word) -> Result<(), Cold> {
        if !self.at_once {
            return Err(self.is_cold(key, word));
        }
        let (store, uid, now_ms) = (self.store, self.uid, self.now_ms);
        match direct::install(store, self.database(key), key, uid, word, now_ms) {
            Ok(passing) => self.passing.extend(passing.map(|address| (key.hash, uid, address))),
            Err(error) => {
                self.stopped = true;
                self.resume.failed = Some(error);
                return Err(Cold);
            }
        }
        Ok(())
    }

    /// The key's object with all of its value in RAM, unless it has expired.
    #[inline]
    fn look(&mut self, key: &Key<'_>) -> Result<Found, Cold> {
        let found = self.look_for(key)?;
        if let Found::Hot(_, object) = found
            && object.boxed().is_some_and(|value| value.shelf_id().is_some())
        {
            self.bring(key, object, &|value, out| value.absent(out))?;
        }
        Ok(found)
    }

    /// As [`Keyspace::look`], but only what a command touches of a value in parts has to be there: see [`Want`].
    #[inline]
    fn look_at(&mut self, key: &Key<'_>, want: Want<'_>) -> Result<Found, Cold> {
        let found = self.look_for(key)?;
        if let Found::Hot(_, object) = found
            && object.boxed().is_some_and(|value| value.shelf_id().is_some())
        {
            self.bring(key, object, want)?;
        }
        Ok(found)
    }

    /// Notes the parts that are wanted and not in RAM, or reads them if that is how this command runs. More than half of what
    /// RAM may hold is refused.
    #[cold]
    fn bring(&mut self, key: &Key<'_>, object: Object, want: Want<'_>) -> Result<(), Cold> {
        let value = object.boxed_mut().expect("its caller looked");
        // What one part says may name the next.
        loop {
            let mut absent = Absent::new();
            want(value, &mut absent);
            absent.sort_unstable_by_key(|part| part.number);
            absent.dedup();
            if absent.is_empty() {
                object.account(&self.store.arena);
                return Ok(());
            }
            let bytes = absent.iter().map(|part| part.bytes).sum();
            if bytes > self.store.tier.budget() / 2 {
                self.stopped = true;
                if !self.rehearses {
                    self.resume.failed = Some(ReadError::NotWhole { bytes });
                }
                return Err(Cold);
            }
            if !self.at_once {
                debug_assert!(!self.wrote, "a handler's reads come before its first write");
                self.stopped = true;
                if self.blind {
                    return Err(Cold);
                }
                let id = value.shelf_id().expect("its caller looked");
                let of = |part| ColdRead::of_part(self.store, key.hash, self.uid, value.kind(), id, part);
                self.resume.cold.extend(absent.into_iter().take(PARTS_AT_ONCE).map(of));
                return Err(Cold);
            }
            for part in absent {
                if let Err(error) = direct::install_part(self.store, value, part) {
                    self.stopped = true;
                    self.resume.failed = Some(error);
                    return Err(Cold);
                }
            }
        }
    }

    /// The key's object as it is, unless it has expired.
    #[inline]
    fn look_for(&mut self, key: &Key<'_>) -> Result<Found, Cold> {
        let (store, now_ms, uid) = (self.store, self.now_ms, self.uid);
        let mut database = self.database(key);
        let Some(mut slot) = database.find(key) else {
            return Ok(Found::Absent);
        };
        let mut word = database.table.word(slot);
        if !word.is_hot() {
            self.read(key, word)?;
            database = self.database(key);
            let Some(found) = database.find(key) else {
                return Ok(Found::Absent);
            };
            slot = found;
            word = database.table.word(slot);
        }
        let object = Object::from_address(word.address());
        if word.has_expiry() && object.expiry().is_some_and(|expiry| expiry <= now_ms) {
            self.may_change()?;
            let database = self.database(key);
            expire(store, database, uid, slot, None);
            self.wake(key);
            return Ok(Found::Absent);
        }
        let due = |value: &Boxed| value.next_deadline().is_some_and(|at_ms| at_ms <= now_ms);
        if object.boxed().is_some_and(due) {
            self.bring(key, object, &|value, out| value.want_due(now_ms, out))?;
            self.may_change()?;
            return Ok(self.expire_parts(key, slot, object));
        }
        Ok(Found::Hot(slot, object))
    }

    /// Fields of a hash have expired: they go, and the key with the last. That is no change of the value, so a copy on
    /// flash stays good: whoever reads it finds them expired again.
    #[cold]
    fn expire_parts(&mut self, key: &Key<'_>, slot: Slot, object: Object) -> Found {
        let (store, now_ms) = (self.store, self.now_ms);
        let is_empty = object.boxed_mut().is_some_and(|value| value.expire(now_ms));
        object.account(&store.arena);
        self.modified(key);
        self.event(Class::HASH, "hexpired", key);
        if !is_empty {
            self.database(key).note_deadline(store, key.hash.high, object);
            return Found::Hot(slot, object);
        }
        self.database(key).discard(store, slot);
        self.event(Class::GENERIC, "del", key);
        Found::Absent
    }

    #[inline]
    fn touched(&mut self, key: &Key<'_>, slot: Slot, object: Object) {
        if self.touch {
            let clock = self.clock();
            let word = self.database(key).table.word_mut(slot);
            let next = word.touched();
            if next != *word {
                *word = next;
            }
            object.set_clock(clock);
        }
    }

    /// Removes the key, or parts of its value, if it is their time. What is cold is read at once.
    pub(crate) fn notice(mut self, key: &Key<'_>) {
        self.at_once = true;
        // What cannot be read stays; the log says so.
        let _ = self.look(key);
    }

    /// Lets those parts of a value in RAM go whose time has come. What of them is on flash is read at once.
    pub(crate) fn notice_parts(mut self, key: &Key<'_>) {
        let database = self.database(key);
        if database.find(key).is_some_and(|slot| database.table.word(slot).is_hot()) {
            self.at_once = true;
            // What cannot be read stays; the log says so.
            let _ = self.look_for(key);
        }
    }

    /// Whether the key exists and what it is. Reads flash only for a cold key with an expiry.
    pub fn peek(&mut self, key: &Key<'_>) -> Result<Option<Peek>, Cold> {
        let database = self.database(key);
        let Some(slot) = database.find(key) else {
            return Ok(None);
        };
        let word = database.table.word(slot);
        if !word.is_hot() && !word.has_expiry() {
            return Ok(Some(Peek { kind: word.kind(), has_expiry: false }));
        }
        Ok(match self.look_for(key)? {
            Found::Absent => None,
            Found::Hot(_, object) => Some(Peek { kind: object.kind(), has_expiry: word.has_expiry() }),
        })
    }

    /// Whether the key has an entry. One that has expired and was not noticed counts.
    pub fn is_there(&mut self, key: &Key<'_>) -> bool {
        self.database(key).find(key).is_some()
    }

    /// For a command that goes on for long.
    pub fn admission(&self) -> Admission {
        self.store.admission()
    }

    /// TOUCH: whether the key is there; it counts as used.
    pub fn touch(&mut self, key: &Key<'_>) -> Result<bool, Cold> {
        let database = self.database(key);
        if let Some(slot) = database.find(key) {
            let word = database.table.word_mut(slot);
            if !word.is_hot() && !word.has_expiry() {
                *word = word.with_referenced(true);
                return Ok(true);
            }
        }
        Ok(match self.look_for(key)? {
            Found::Absent => false,
            Found::Hot(slot, object) => {
                self.touched(key, slot, object);
                true
            }
        })
    }

    /// The value, for reading.
    #[inline]
    pub fn get(&mut self, key: &Key<'_>) -> Result<Option<Value<'_>>, Cold> {
        let found = self.look(key)?;
        Ok(self.got(key, found))
    }

    /// As [`Keyspace::get`], but of a value in parts only what is wanted has to be in RAM.
    #[inline]
    pub fn get_for(&mut self, key: &Key<'_>, want: Want<'_>) -> Result<Option<Value<'_>>, Cold> {
        let found = self.look_at(key, want)?;
        Ok(self.got(key, found))
    }

    #[inline]
    fn got(&mut self, key: &Key<'_>, found: Found) -> Option<Value<'_>> {
        match found {
            Found::Absent => {
                self.missed(key);
                None
            }
            Found::Hot(slot, object) => {
                self.hits += 1;
                self.touched(key, slot, object);
                Some(object.value())
            }
        }
    }

    /// The values of several keys, for reading at the same time. All that are cold are noted at once.
    pub fn get_all(&mut self, keys: &[Key<'_>]) -> Result<SmallVec<[Option<Value<'_>>; 8]>, Cold> {
        self.all(keys, |ks, at| ks.look(&keys[at]))
    }

    /// As [`Keyspace::get_all`], but of values in parts only what is wanted has to be in RAM, told for each key by its
    /// place.
    pub fn get_all_for(
        &mut self,
        keys: &[Key<'_>],
        want: &dyn Fn(usize, &Boxed, &mut Absent),
    ) -> Result<SmallVec<[Option<Value<'_>>; 8]>, Cold> {
        self.all(keys, |ks, at| ks.look_at(&keys[at], &|value, out| want(at, value, out)))
    }

    fn all(
        &mut self,
        keys: &[Key<'_>],
        look: impl Fn(&mut Self, usize) -> Result<Found, Cold>,
    ) -> Result<SmallVec<[Option<Value<'_>>; 8]>, Cold> {
        let mut values = SmallVec::new();
        let mut cold = false;
        for (at, key) in keys.iter().enumerate() {
            match look(self, at) {
                Ok(Found::Hot(slot, object)) => {
                    self.hits += 1;
                    self.touched(key, slot, object);
                    // Looking at the keys after it frees only what has expired, which this has not.
                    values.push(Some(object.value()));
                }
                Ok(Found::Absent) => {
                    self.misses += 1;
                    values.push(None);
                }
                Err(Cold) => cold = true,
            }
        }
        if cold { Err(Cold) } else { Ok(values) }
    }

    /// The value, for OBJECT: looking does not count as use.
    pub fn view(&mut self, key: &Key<'_>) -> Result<Option<Value<'_>>, Cold> {
        Ok(match self.look(key)? {
            Found::Absent => None,
            Found::Hot(_, object) => Some(object.value()),
        })
    }

    /// As [`Keyspace::view`], but of a value in parts only what is wanted has to be in RAM.
    pub fn view_for(&mut self, key: &Key<'_>, want: Want<'_>) -> Result<Option<Value<'_>>, Cold> {
        Ok(match self.look_at(key, want)? {
            Found::Absent => None,
            Found::Hot(_, object) => Some(object.value()),
        })
    }

    /// Whether a string was made by APPEND or SETRANGE, which OBJECT ENCODING shows.
    pub fn is_raw(&mut self, key: &Key<'_>) -> Result<bool, Cold> {
        Ok(match self.look_for(key)? {
            Found::Absent => false,
            Found::Hot(_, object) => object.is_raw(),
        })
    }

    /// `None`: no such key; `Some(None)`: it does not expire.
    pub fn expiry(&mut self, key: &Key<'_>) -> Result<Option<Option<u64>>, Cold> {
        let database = self.database(key);
        let Some(slot) = database.find(key) else {
            return Ok(None);
        };
        if !database.table.word(slot).has_expiry() {
            return Ok(Some(None));
        }
        Ok(match self.look_for(key)? {
            Found::Absent => None,
            Found::Hot(_, object) => Some(object.expiry()),
        })
    }

    /// The value, for changing. Its copy on flash, if it has one, counts no more.
    pub fn get_mut(&mut self, key: &Key<'_>) -> Result<Option<ValueMut<'_>>, Cold> {
        let Found::Hot(slot, object) = self.look(key)? else {
            return Ok(None);
        };
        self.may_change()?;
        self.modified(key);
        Ok(Some(self.opened(key, slot, object)))
    }

    /// As [`Keyspace::get_mut`], but of a value in parts only what is wanted has to be in RAM.
    pub fn get_mut_for(&mut self, key: &Key<'_>, want: Want<'_>) -> Result<Option<ValueMut<'_>>, Cold> {
        let Found::Hot(slot, object) = self.look_at(key, want)? else {
            return Ok(None);
        };
        self.may_change()?;
        self.modified(key);
        Ok(Some(self.opened(key, slot, object)))
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
        let Found::Hot(slot, object) = self.look_at(key, want)? else { return Ok(None) };
        self.may_change()?;
        let db = self.db;
        if let Some(watched) = &self.held.get(key.hash.stripe()).watched {
            watched.changed(db, key.name, false);
        }
        Ok(Some(self.opened(key, slot, object)))
    }

    #[inline]
    fn opened(&mut self, key: &Key<'_>, slot: Slot, object: Object) -> ValueMut<'_> {
        self.touched(key, slot, object);
        self.wrote = true;
        let (store, clock) = (self.store, self.clock());
        self.user_bytes += key.name.len() as u64;
        let word = self.held.get(key.hash.stripe()).database_mut(self.uid).table.word_mut(slot);
        make_dirty(store, word, object, clock);
        let (user_bytes, edited) = (&mut self.user_bytes, &mut self.edited);
        ValueMut { store, word, hash: key.hash, uid: self.uid, user_bytes, edited }
    }

    /// As [`Keyspace::get_mut`] for a value that must be of one kind; of another it is left as it is.
    pub fn edit(&mut self, key: &Key<'_>, kind: Kind) -> Result<Option<ValueMut<'_>>, NoEdit> {
        match self.look(key)? {
            Found::Hot(_, object) if object.kind() != kind => Err(NoEdit::OtherKind),
            Found::Hot(..) => Ok(self.get_mut(key)?),
            Found::Absent => Ok(None),
        }
    }

    /// As [`Keyspace::edit`], but of a value in parts only what is wanted has to be in RAM.
    pub fn edit_for(&mut self, key: &Key<'_>, kind: Kind, want: Want<'_>) -> Result<Option<ValueMut<'_>>, NoEdit> {
        match self.look_at(key, want)? {
            Found::Hot(_, object) if object.kind() != kind => Err(NoEdit::OtherKind),
            Found::Hot(slot, object) => {
                self.may_change()?;
                self.modified(key);
                Ok(Some(self.opened(key, slot, object)))
            }
            Found::Absent => Ok(None),
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
        self.wrote = true;
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
        self.wrote = true;
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
        self.wrote = true;
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
        self.wrote = true;
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

    /// Everything that can be told about a key. Reads the value.
    pub fn inspect(&mut self, key: &Key<'_>) -> Result<Option<Inspect>, Cold> {
        let Found::Hot(slot, object) = self.look_for(key)? else {
            return Ok(None);
        };
        let clock = self.clock();
        let database = self.database(key);
        let word = database.table.word(slot);
        let pages = match object.place() {
            Some(place) if !word.is_dirty() => crate::page::step_pages(Word(place).place().step) as u32,
            _ => 0,
        };
        Ok(Some(Inspect {
            kind: object.kind(),
            hot: true,
            dirty: word.is_dirty(),
            raw: object.is_raw(),
            boxed: object.is_boxed(),
            ram_bytes: object.ram_bytes() + size_of::<crate::index::Entry>(),
            flash_pages: pages,
            idle_seconds: object.idle_seconds(clock),
            frequency: word.frequency(),
            expiry: object.expiry(),
        }))
    }

    /// Keys of the current database.
    pub fn len(&mut self) -> u64 {
        match self.has_all() {
            false => self.store.len(self.db),
            true => {
                let uid = self.uid;
                (0..STRIPES).map(|stripe| self.held.get(stripe).keys(uid) as u64).sum()
            }
        }
    }

    /// Whether every stripe is held, rather than none: what works on whole databases is given one or the other.
    fn has_all(&self) -> bool {
        let count = self.held.count();
        assert!(count == 0 || count == STRIPES, "a command on whole databases holds every stripe or none");
        count > 0
    }

    pub fn is_empty(&mut self) -> bool {
        self.len() == 0
    }

    /// Empties the current database, another, or all (`None`).
    pub fn flush(&mut self, db: Option<usize>, lazy: bool) {
        self.wrote = true;
        let store = self.store;
        let has_all = self.has_all();
        let ready = &mut self.resume.ready;
        let taken = match has_all {
            true => store.take(db, &mut self.held, ready),
            false => store.take(db, &mut Held::all(store), ready),
        };
        store.drop_databases(taken, lazy);
        store.flushed();
    }

    /// Exchanges two logical databases.
    pub fn swap(&mut self, a: usize, b: usize) {
        self.wrote = true;
        let (store, now_ms) = (self.store, self.now_ms);
        let has_all = self.has_all();
        let ready = &mut self.resume.ready;
        match has_all {
            true => store.swap(a, b, &mut self.held, now_ms, ready),
            false => store.swap(a, b, &mut Held::all(store), now_ms, ready),
        }
        self.uid = store.uid(self.db);
    }

    /// A key of the current database, each about as likely.
    pub fn random(&mut self) -> Result<Option<Vec<u8>>, Cold> {
        let store = self.store;
        // Expired keys are not visited, so an answer may take several places to look.
        for _ in 0..100 {
            let random = *self.resume.random.get_or_insert_with(|| store.next_random());
            let mut found = None;
            let next = self.walk(random, 1, true, &mut |name, _| found = Some(name.to_vec()))?;
            if found.is_some() {
                return Ok(found);
            }
            if next == 0 {
                // Past the end: once more from the start tells an empty database.
                let next = self.walk(0, 1, true, &mut |name, _| found = Some(name.to_vec()))?;
                if found.is_some() || next == 0 {
                    return Ok(found);
                }
            }
            self.resume.random = None;
        }
        Ok(None)
    }

    /// One step of a walk in the order of hashes: visits at least `count` keys, or what is left, and returns the
    /// cursor to go on from, 0 at the end. A key that is there from the first step to the last is visited; one that
    /// comes or goes meanwhile may be.
    pub fn scan(&mut self, cursor: u64, count: usize, visit: &mut dyn FnMut(&[u8], Kind)) -> Result<u64, Cold> {
        self.walk(cursor, count, false, visit)
    }

    fn walk(
        &mut self,
        cursor: u64,
        count: usize,
        stop_at_one: bool,
        visit: &mut dyn FnMut(&[u8], Kind),
    ) -> Result<u64, Cold> {
        let mut step = Step { wanted: count.clamp(1, SCAN_KEYS_MAX), found: Vec::new(), missing: Vec::new() };
        let mut cursor = Cursor::new(cursor);
        let mut next = 0;
        let has_all = self.has_all();
        while cursor.stripe < STRIPES {
            let mut own;
            let stripe = if has_all {
                &*self.held.get(cursor.stripe)
            } else {
                own = self.store.stripe(cursor.stripe);
                &mut own
            };
            let position = step.gather(self.store, stripe, self.uid, cursor, self.now_ms, self.resume);
            if self.at_once {
                step.read(self.store, self.now_ms, self.resume)?;
            }
            match position {
                Some(high) => {
                    next = Cursor { stripe: cursor.stripe, high }.number();
                    break;
                }
                None => cursor = Cursor { stripe: cursor.stripe + 1, high: 0 },
            }
        }
        if !step.missing.is_empty() {
            self.stopped = true;
            self.resume.cold.append(&mut step.missing);
            return Err(Cold);
        }
        // KEYS takes many steps. RANDOMKEY's second walk still needs the names that its first had no use for.
        if !stop_at_one {
            self.resume.names.clear();
        }
        for (name, kind) in step.found.iter().take(if stop_at_one { 1 } else { usize::MAX }) {
            visit(name, *kind);
        }
        Ok(next)
    }
}

/// Keys one step of a walk visits at most, whatever COUNT says: the work of a step stays bounded.
const SCAN_KEYS_MAX: usize = 10_000;

/// A place in the walk: the stripe in the upper 10 bits, then the upper 54 bits of the hash.
#[derive(Clone, Copy)]
struct Cursor {
    stripe: usize,
    high: u64,
}

impl Cursor {
    const HASH_BITS: u32 = 54;

    fn new(number: u64) -> Cursor {
        Cursor { stripe: (number >> Self::HASH_BITS) as usize, high: number << (64 - Self::HASH_BITS) }
    }

    fn number(self) -> u64 {
        (self.stripe as u64) << Self::HASH_BITS | self.high >> (64 - Self::HASH_BITS)
    }
}

struct Step {
    wanted: usize,
    found: Vec<(Box<[u8]>, Kind)>,
    missing: Vec<ColdRead>,
}

impl Step {
    /// Collects the keys of a stripe from the cursor on. Returns where to go on in this stripe when enough were
    /// found; entries whose hashes agree in the cursor's bits are never parted.
    fn gather(
        &mut self,
        store: &Store,
        stripe: &Stripe,
        uid: u32,
        from: Cursor,
        now_ms: u64,
        resume: &Resume,
    ) -> Option<u64> {
        let table = &stripe.database(uid)?.table;
        let coarse = |high: u64| high >> (64 - Cursor::HASH_BITS);
        let mut last = None;
        let mut leaf = Some(from.high);
        while let Some(high) = leaf {
            let (entries, next) = table.leaf_at(high);
            for entry in entries.iter().filter(|entry| entry.high >= from.high) {
                let enough = self.found.len() + self.missing.len() >= self.wanted;
                if enough && last != Some(coarse(entry.high)) {
                    return Some(entry.high);
                }
                last = Some(coarse(entry.high));
                self.take(store, entry.high, entry.word, uid, from.stripe, now_ms, resume);
            }
            leaf = next;
        }
        None
    }

    /// Reads the names that are missing at once; their stripe is locked.
    fn read(&mut self, store: &Store, now_ms: u64, resume: &mut Resume) -> Result<(), Cold> {
        for cold in self.missing.drain(..) {
            match direct::name(store, cold.hash, cold.uid, cold.word) {
                Ok(named) => {
                    if named.expiry.is_none_or(|expiry| expiry > now_ms) {
                        self.found.push((named.name, cold.word.kind()));
                    }
                }
                Err(error) => {
                    resume.failed = Some(error);
                    return Err(Cold);
                }
            }
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "one call, in the loop above")]
    fn take(&mut self, store: &Store, high: u64, word: Word, uid: u32, stripe: usize, now_ms: u64, resume: &Resume) {
        let live = |expiry: Option<u64>| expiry.is_none_or(|expiry| expiry > now_ms);
        if word.is_hot() {
            let object = Object::from_address(word.address());
            if live(object.expiry()) {
                self.found.push((object.key().into(), object.kind()));
            }
            return;
        }
        let hash = KeyHash { high, low: word.0, slot: (stripe * (crate::hash::SLOTS / STRIPES)) as u16 };
        match resume.names.get(&Identity::new(hash, word)) {
            Some(named) if live(named.expiry) => self.found.push((named.name.clone(), word.kind())),
            Some(_) => {}
            None => self.missing.push(store.cold_read(hash, uid, word, None)),
        }
    }
}

/// How a command looks at the keyspace.
#[derive(Clone, Copy)]
pub(crate) struct Access {
    pub db: usize,
    pub now_ms: u64,
    pub touch: bool,
}

impl Drop for Keyspace<'_> {
    #[inline]
    fn drop(&mut self) {
        for (hash, uid) in std::mem::take(&mut self.edited) {
            self.held.get(hash.stripe()).database_mut(uid).account(self.store, hash);
        }
        if !self.passing.is_empty() {
            for (hash, uid, address) in std::mem::take(&mut self.passing) {
                self.held.get(hash.stripe()).database_mut(uid).pass(self.store, hash, address);
            }
        }
        // A run that stopped for a cold value is repeated: it counts once.
        if self.stopped {
            return;
        }
        if self.store.is_all_cold() {
            self.resume.touched.extend(self.store.all_to_chill());
            self.held.note_hot(&mut self.resume.touched);
        }
        for name in std::mem::take(&mut self.missed) {
            self.store.event(Class::MISS, "keymiss", self.db, &name);
        }
        let counters = &self.store.counters;
        if self.hits > 0 {
            counters.add(Counter::KeyspaceHits, self.hits.into());
        }
        if self.misses > 0 {
            counters.add(Counter::KeyspaceMisses, self.misses.into());
        }
        if self.user_bytes > 0 {
            counters.add(Counter::UserBytes, self.user_bytes);
        }
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

/// A value of a locked stripe, for changing.
pub struct ValueMut<'k> {
    store: &'k Store,
    word: &'k mut Word,
    hash: KeyHash,
    uid: u32,
    user_bytes: &'k mut u64,
    edited: &'k mut SmallVec<[(KeyHash, u32); 1]>,
}

impl ValueMut<'_> {
    fn object(&self) -> Object {
        Object::from_address(self.word.address())
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

    pub fn inline_mut(&mut self) -> Option<&mut [u8]> {
        self.object().inline_mut()
    }

    /// Replaces the bytes `at` of an inline value by the concatenation of `with`.
    pub fn splice(&mut self, at: Range<usize>, with: &[&[u8]]) {
        *self.user_bytes += with.iter().map(|part| part.len() as u64).sum::<u64>();
        let moved = self.object().splice(&self.store.arena, self.hash.stripe() as u16, at, with);
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

    pub fn mark_raw(&mut self) {
        self.object().mark_raw();
    }

    pub fn boxed(&mut self) -> Option<&mut Boxed> {
        let value = self.object().boxed_mut()?;
        if self.edited.last() != Some(&(self.hash, self.uid)) {
            self.edited.push((self.hash, self.uid));
        }
        Some(value)
    }

    pub fn replace_boxed(&mut self, value: Boxed) {
        assert!(value.shelf_id().is_none(), "a value in parts is put at its key with set_boxed");
        let object = self.object();
        let parts = self.parts(object, value.kind());
        let new = Object::new_boxed(&self.store.arena, &parts, value);
        self.put(object, new);
    }

    /// Replaces the value by inline bytes of the same kind.
    pub fn replace_inline(&mut self, bytes: &[u8]) {
        let object = self.object();
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

/// Relaxed read of how many values are on flash only, for statistics.
pub fn cold_count(store: &Store) -> u64 {
    store.cold.load(Relaxed)
}
