//! Owns a handler's view of the store: keys and values of locked stripes.
//! Never waits: a cold value is recorded as a needed read, and the handler runs again when the value is in RAM. A transaction
//! or script that has started cannot run again, so inside it a cold value is read at once.

mod barrier;
pub(crate) mod commit;
pub(crate) mod direct;
mod edit;
mod fields;
pub(crate) mod guards;
mod list;
mod open;
mod parts;
mod resume;
#[cfg(test)]
mod tests;
mod visit;
mod wait;
mod walk;
mod watch;

pub use edit::ValueMut;
pub use list::{Show, cursor_of_stripe, stripe_of_cursor};
pub use resume::{Cold, ColdRead, NoEdit, Resume};
pub(crate) use resume::{Identity, Named, RecordAt};
pub use visit::{Visited, Visitor};
pub use watch::Watches;

use crate::counters::Counter;
use crate::effects::{News, Sent, Why};
use crate::keyspace::commit::{Extent, FieldsGone, Leave};
use crate::keyspace::guards::{Held, NotHeld, Reach, Stripes as _, all_stripes};
use crate::log::read::ReadError;
use crate::mem::hash::{Hasher, Key, STRIPES};
use crate::mem::index::{Entry, Slot};
pub use crate::mem::object::Value;
use crate::mem::object::{ObjectRef, clock_at};
use crate::mem::tier::Admission;
use crate::mem::word::Word;
use crate::store::Store;
use crate::stripe::{Database, Stripe};
use base::events::Class;
use smallvec::SmallVec;
use value::{Absent, Boxed, Kind};

/// The waiting messages of a transaction or script always get memory up to this size, however little there is.
const FREE_NEWS_BYTES: usize = 32 << 10;

/// What is known of an existing key without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peek {
    pub kind: Kind,
    pub has_expiry: bool,
}

/// Figures of a key for OBJECT, MEMORY USAGE and DEBUG OBJECT.
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
    /// The frequency that RESTORE has given, until the next access.
    pub restored_frequency: Option<u8>,
    pub expiry: Option<u64>,
}

/// Declares which parts of a value a command needs, by adding the parts that are not in RAM to `Absent`. It is called again
/// when these parts are in RAM, because one part may name the next.
pub type Want<'w> = &'w dyn Fn(&Boxed, &mut Absent);

/// Maximum number of parts that are read at a time, because a read in flight takes some 300 bytes.
const PARTS_AT_ONCE: usize = 16_384;

/// Needs only the skeleton: for the length, or to move the value to another key.
pub const NOTHING: Want<'static> = &|_, _| {};

pub struct Keyspace<'s> {
    store: &'s Store,
    held: Held<'s>,
    /// The logical database in which the command was given. Its effects name this database.
    home: usize,
    db: usize,
    table_id: u32,
    /// Keys with an expiry at this time or before have expired.
    now_ms: u64,
    /// The wall clock.
    clock_ms: u64,
    touch: bool,
    /// Cold values are read at once, with the stripe locked.
    at_once: bool,
    /// See [`Keyspace::rehearsal`].
    rehearses: bool,
    /// Random commands choose their members at run time, so this rehearsal records nothing.
    blind: bool,
    /// See [`Keyspace::take_whole`].
    takes_whole: bool,
    /// The handler has changed something.
    wrote: bool,
    /// The reason of the changes, if they are not those of an ordinary command.
    why: Option<Why>,
    /// The handler has stated its effect.
    stated: bool,
    stands: bool,
    committed: bool,
    finished: bool,
    stopped: bool,
    ram_hits: u32,
    flash_hits: u32,
    misses: u32,
    user_bytes: u64,
    pub resume: &'s mut Resume,
}

enum Found {
    Absent,
    /// The entry's slot, and whether its value is boxed. The object is borrowed from the entry only where it is needed.
    Hot(Slot, bool),
}

impl<'s> Keyspace<'s> {
    /// The stripes of `held` as a command in logical database `db` sees them. Build a keyspace in its final place: moving one costs
    /// as much as finding a key.
    #[inline(always)]
    pub fn new(held: Held<'s>, db: usize, now_ms: u64, touch: bool, resume: &'s mut Resume) -> Keyspace<'s> {
        let store = held.store();
        Keyspace {
            store,
            home: db,
            db,
            table_id: store.table_id(db),
            now_ms,
            clock_ms: now_ms,
            touch,
            at_once: held.is_inner(),
            rehearses: false,
            blind: false,
            takes_whole: false,
            wrote: false,
            why: None,
            stated: false,
            stands: false,
            committed: false,
            finished: false,
            stopped: false,
            ram_hits: 0,
            flash_hits: 0,
            misses: 0,
            user_bytes: 0,
            held,
            resume,
        }
    }

    /// The keyspace for a command inside the transaction or script that holds these stripes. The command sees the same time, and
    /// cold values are read at once.
    pub fn inner(&mut self, db: usize, touch: bool) -> Keyspace<'_> {
        let (now_ms, clock_ms) = (self.now_ms, self.clock_ms);
        let (held, resume) = self.lend();
        let mut inner = Keyspace::new(held, db, now_ms, touch, resume);
        inner.clock_ms = clock_ms;
        inner
    }

    /// Lends the parts that [`Keyspace::inner`] is built from.
    pub fn lend(&mut self) -> (Held<'_>, &mut Resume) {
        (self.held.inner(), self.resume)
    }

    /// Whether the command runs inside a transaction or script. Such a command cannot run again, so it must not wait.
    pub fn runs_once(&self) -> bool {
        self.at_once
    }

    /// A keyspace for rehearsing a later command, to find out which parts of this key's value it needs. The handler records the
    /// parts and stops before its first change. `None`: the value is not in parts, or its skeleton is not in RAM.
    pub fn rehearsal(&mut self, key: &Key<'_>, db: usize) -> Option<Keyspace<'_>> {
        let mut inner = self.inner(db, false);
        inner.at_once = false;
        // A rehearsal must not count in the statistics.
        (inner.rehearses, inner.stopped) = (true, true);
        let database = inner.database(key);
        let slot = database.find(key)?;
        crate::log::parts::is_in_parts(database.table.entry(slot)).then_some(inner)
    }

    /// Called before a handler's first change. Stops a rehearsal.
    #[inline]
    fn may_change(&self) -> Result<(), Cold> {
        if self.rehearses { Err(Cold) } else { Ok(()) }
    }

    /// Whether the stripes of these keys are locked.
    pub fn holds(&mut self, keys: &[Key<'_>]) -> bool {
        keys.iter().all(|key| self.held.holds(key.hash.stripe()))
    }

    /// Locks the stripes of these keys too. False: they could not be locked in time, as when two scripts wait for
    /// stripes of each other.
    pub fn add(&mut self, keys: &[Key<'_>]) -> bool {
        let stripes: SmallVec<[usize; 8]> = keys.iter().map(|key| key.hash.stripe()).collect();
        self.held.add(&stripes)
    }

    /// Locks the stripes of these keys too, where they are not locked. [`NotHeld::Busy`]: as in [`Keyspace::add`].
    pub fn reach(&mut self, keys: &[Key<'_>], reach: Reach) -> Result<(), NotHeld> {
        if !self.holds(keys) && !self.add(keys) {
            return Err(NotHeld::Busy);
        }
        let reaches = reach == Reach::All || keys.iter().all(|key| self.held.owns(key.hash.stripe()));
        if reaches { Ok(()) } else { Err(NotHeld::NotOwned) }
    }

    /// Locks every stripe. False: as in [`Keyspace::add`].
    pub fn add_all(&mut self) -> bool {
        self.held.count() == STRIPES || self.held.add(&all_stripes())
    }

    /// Records the reads of the keys' cold values, which are needed before a transaction or script starts.
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

    /// The time by which keys have expired.
    #[inline]
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// The wall clock, from which relative times count.
    #[inline]
    pub fn clock_ms(&self) -> u64 {
        self.clock_ms
    }

    /// Lets nothing expire for this command: the primary has already run it, and the primary decides what has expired.
    #[inline]
    pub fn expire_nothing(&mut self) {
        self.now_ms = 0;
    }

    /// Lets this command have as much of a value in RAM at once as it needs: it has run elsewhere, or earlier, and must run here too.
    #[inline]
    pub fn take_whole(&mut self) {
        self.takes_whole = true;
    }

    /// Fields of hashes that have expired by this time stay where they are, and this command must not see them. `None`: the look-up
    /// removes them.
    pub fn hides_fields_at(&self) -> Option<u64> {
        self.store.keeps_expired(self.now_ms).then_some(self.now_ms)
    }

    pub fn db(&self) -> usize {
        self.db
    }

    pub fn hasher(&self) -> &'s Hasher {
        &self.store.hasher
    }

    /// A random number. It stays the same when this command runs again.
    pub fn seed(&mut self) -> u64 {
        // A command inside a transaction or script runs once, and it shares its `Resume` with the other commands.
        if self.at_once {
            return self.store.next_random();
        }
        // The real run will draw another number, so its parts cannot be known now.
        self.blind |= self.rehearses;
        *self.resume.random.get_or_insert_with(|| self.store.next_random())
    }

    /// Whether this handler has changed anything.
    pub fn wrote(&self) -> bool {
        self.wrote
    }

    /// Declares that the changes stand although the command returns an error.
    pub fn commit_despite_error(&mut self) {
        self.stands = true;
    }

    pub fn stands(&self) -> bool {
        self.stands
    }

    /// Later calls use logical database `db`. A key has the same stripe in all logical databases.
    pub fn select(&mut self, db: usize) {
        self.db = db;
        self.table_id = self.store.table_id(db);
    }

    #[inline]
    fn clock(&self) -> u32 {
        clock_at(self.clock_ms)
    }

    #[inline(always)]
    fn database(&mut self, key: &Key<'_>) -> &mut Database {
        self.held.get(key.hash.stripe()).database_mut(self.table_id)
    }

    /// Records that this command changes the key. Listeners are notified when the command is committed.
    #[inline]
    fn modified(&mut self, key: &Key<'_>) {
        self.wrote = true;
        let is_heard = self.held.get(key.hash.stripe()).is_heard() | self.store.wants(Class::CHANGE);
        if is_heard {
            self.resume.noted.key(self.db, key.hash, key.name, Extent::Value);
        }
        let (store, table_id) = (self.store, self.table_id);
        let database = self.database(key);
        if database.table.is_cut()
            && let Some(slot) = database.find(key)
        {
            store.keep(database, slot, key.hash.stripe(), table_id);
        }
    }

    /// Notifies only waiters that want any change of the key, for example because a group of a stream is gone.
    #[cold]
    pub fn wake(&mut self, key: &Key<'_>) {
        self.resume.noted.key(self.db, key.hash, key.name, Extent::Waiters);
    }

    /// Records that the command changes the functions, which no key holds.
    pub fn modified_libraries(&mut self) {
        self.wrote = true;
    }

    /// Whether a script or function has called the running command.
    pub fn is_in_script(&self) -> bool {
        self.resume.why == Why::Script
    }

    /// Whether effects are kept. If not, a handler need not gather their words. A rehearsal has no effects.
    #[inline]
    pub fn records_effects(&self) -> bool {
        self.store.records_effects() && !self.rehearses
    }

    /// States the effect of the running command: a command that makes the same change whenever and wherever it runs on the same
    /// data. It runs in the logical database in which the running command was given. May be called several times. Does nothing
    /// while effects are not kept.
    #[inline]
    pub fn effect<'w>(&mut self, words: impl IntoIterator<Item = &'w [u8]>) {
        if self.records_effects() {
            self.keep_effect(words);
        }
    }

    /// Like [`Keyspace::effect`], with the bytes that the client sent. False: there is no sink for such bytes, or they
    /// are not the only effect; then the effect must be stated in words.
    #[inline]
    pub fn effect_sent(&mut self, bytes: &[u8]) -> bool {
        let is_alone = self.resume.effects.is_empty() && !self.held.is_inner();
        let is_told = is_alone && self.store.append_sent(&Sent { db: self.home, now_ms: self.now_ms, bytes });
        self.stated |= is_told;
        is_told
    }

    /// Announces that the transaction around this command will state this many bytes of words. Its connection has
    /// reserved memory for them.
    pub fn expect_effects(&mut self, bytes: usize) {
        if self.records_effects() {
            self.resume.effects.expect(bytes);
        }
    }

    #[cold]
    fn keep_effect<'w>(&mut self, words: impl IntoIterator<Item = &'w [u8]>) {
        self.stated = true;
        let why = self.why.unwrap_or(self.resume.why);
        self.resume.effects.push(why, self.home, self.now_ms, words);
        match self.resume.effects.take_growth() {
            0 => {}
            bytes => self.store.lend(bytes),
        }
    }

    /// Whether the effects of a script may take more memory while they wait for its end. Growing needs several times
    /// the buffer's size: a full buffer is copied into one of twice the size, and at the end the journal's record is
    /// made from it.
    pub fn may_keep_more(&self) -> bool {
        let buffer = self.resume.effects.lent_buffer();
        buffer == 0 || self.store.lent_bytes() + 4 * buffer <= self.store.lent_bytes_max()
    }

    /// The bytes of the changes that wait for the end of the transaction or script.
    pub fn kept_bytes(&self) -> usize {
        self.resume.effects.bytes()
    }

    /// Whether a message of the running command must wait for the end of the transaction or script around it. Otherwise
    /// a subscriber could act on earlier changes of the transaction that are not kept yet.
    pub fn must_publish_later(&self) -> bool {
        self.held.is_inner() && self.records_effects()
    }

    /// Publishes a message as soon as the outermost command's effects are kept. False: there is no memory in which the
    /// message could wait.
    pub fn publish(&mut self, is_sharded: bool, channel: &[u8], text: &[u8]) -> bool {
        let news = News::Message { is_sharded, channel: channel.into(), text: text.into() };
        let (effects, bytes) = (&mut self.resume.effects, news.lent_bytes());
        if effects.lent_bytes() + bytes <= FREE_NEWS_BYTES {
            self.store.lend(bytes);
        } else if !self.store.try_lend_now(bytes) {
            return false;
        }
        effects.say(news);
        true
    }

    /// Whether the handler has changed something and must still state the effect.
    #[inline]
    pub fn owes_effect(&self) -> bool {
        self.wrote && !self.stated && self.records_effects()
    }

    /// Commits the changes of a handler that succeeded, and notifies the listeners.
    #[inline]
    pub fn commit(&mut self) {
        debug_assert!(
            !self.owes_effect(),
            "a handler that changes something must state the command that repeats the change"
        );
        self.committed = true;
        self.resume.random = None;
        let Resume { noted, ready, client, effects, .. } = &mut *self.resume;
        self.store.commit(noted, &mut self.held, *client, ready, effects);
    }

    /// Ends a handler that stopped or returned an error, and so has changed nothing.
    #[inline]
    pub fn give_up(&mut self) {
        assert!(!self.wrote, "a handler that ends in an error has changed nothing");
        if self.stopped {
            // Keep the random number for the command's next run.
            self.resume.noted.clear();
        } else {
            self.resume.random = None;
            let Resume { noted, effects, .. } = &mut *self.resume;
            self.store.give_up(noted, &self.held, effects);
        }
    }

    /// Records a keyspace event of a key in the current logical database.
    #[inline]
    pub fn event(&mut self, class: Class, name: &'static str, key: &Key<'_>) {
        if self.store.wants(class) {
            self.resume.noted.event(class, name, self.db, key.name);
        }
    }

    /// Counts a look-up that needed no value, as Redis does.
    #[inline]
    pub fn looked_up(&mut self, key: &Key<'_>, found: bool) {
        if found { self.ram_hits += 1 } else { self.missed(key) }
    }

    #[inline]
    fn entry(&mut self, key: &Key<'_>, slot: Slot) -> &mut Entry {
        self.database(key).table.entry_mut(slot)
    }

    /// The object of a hot entry.
    #[inline]
    fn object(&mut self, key: &Key<'_>, slot: Slot) -> ObjectRef<'_> {
        self.database(key).table.entry(slot).hot()
    }

    /// Counts a look-up that found a value, and marks the value as used.
    #[inline]
    fn hit(&mut self, key: &Key<'_>, slot: Slot) -> &Entry {
        let clock = self.touch.then(|| self.clock());
        let entry = self.held.get(key.hash.stripe()).database_mut(self.table_id).table.entry_mut(slot);
        if clock.is_some() {
            entry.touch();
        }
        if entry.hot_mut().used(clock) {
            self.flash_hits += 1
        } else {
            self.ram_hits += 1
        }
        entry
    }

    #[inline]
    fn missed(&mut self, key: &Key<'_>) {
        self.misses += 1;
        if self.store.wants(Class::MISS) {
            self.resume.noted.event(Class::MISS, "keymiss", self.db, key.name);
        }
    }

    fn is_cold(&mut self, key: &Key<'_>, word: Word) -> Cold {
        debug_assert!(!self.wrote, "a handler's reads come before its first write");
        self.stopped = true;
        self.resume.cold.push(self.store.cold_read(key.hash, self.table_id, word, Some(key.name)));
        Cold
    }

    /// Reads a cold value at once inside a transaction or script. Otherwise records the needed read.
    #[cold]
    fn read(&mut self, key: &Key<'_>, word: Word) -> Result<(), Cold> {
        if !self.at_once {
            return Err(self.is_cold(key, word));
        }
        let (store, table_id, now_ms) = (self.store, self.table_id, self.now_ms);
        let database = self.held.get(key.hash.stripe()).database_mut(table_id);
        match direct::install(store, database, key, table_id, word, now_ms, &mut self.resume.effects) {
            Ok(passing) => self.resume.passing.extend(passing.map(|address| (key.hash, table_id, address))),
            Err(error) => {
                self.stopped = true;
                self.resume.failed = Some(error);
                return Err(Cold);
            }
        }
        Ok(())
    }

    /// Finds the key's object, with all of its value in RAM, unless the key has expired.
    #[inline]
    fn look(&mut self, key: &Key<'_>) -> Result<Found, Cold> {
        self.look_at(key, &|value, out| value.absent(out))
    }

    /// Like [`Keyspace::look`], but only the wanted parts of a value in parts must be in RAM: see [`Want`].
    #[inline]
    fn look_at(&mut self, key: &Key<'_>, want: Want<'_>) -> Result<Found, Cold> {
        let found = self.look_for(key)?;
        if let Found::Hot(slot, true) = found
            && self.object(key, slot).is_in_parts()
        {
            self.bring(key, slot, want)?;
        }
        Ok(found)
    }

    /// Records the reads of wanted parts that are not in RAM. Inside a transaction or script, reads them at once. Parts that would
    /// take more than half of the RAM for objects are refused, or read at once if the command must run: if it waited, they
    /// could leave RAM as fast as they come.
    #[cold]
    fn bring(&mut self, key: &Key<'_>, slot: Slot, want: Want<'_>) -> Result<(), Cold> {
        let mut object = self.held.get(key.hash.stripe()).database_mut(self.table_id).table.entry_mut(slot).hot_mut();
        let value = object.boxed_mut().expect("its caller looked");
        // One part may name the next.
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
            let is_much = bytes > self.store.tier.budget() / 2;
            if is_much && !self.takes_whole {
                self.stopped = true;
                if !self.rehearses {
                    self.resume.failed = Some(ReadError::NotWhole { bytes });
                }
                return Err(Cold);
            }
            if !self.at_once && !is_much {
                debug_assert!(!self.wrote, "a handler's reads come before its first write");
                self.stopped = true;
                if self.blind {
                    return Err(Cold);
                }
                let id = value.shelf_id().expect("its caller looked");
                let of = |part| ColdRead::of_part(self.store, key.hash, self.table_id, value.kind(), id, part);
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

    /// Finds the key's object, unless the key has expired. Parts of its value may be on flash.
    #[inline]
    fn look_for(&mut self, key: &Key<'_>) -> Result<Found, Cold> {
        let (store, now_ms, table_id) = (self.store, self.now_ms, self.table_id);
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
        let object = database.table.entry(slot).hot();
        if word.has_expiry() && object.expiry().is_some_and(|expiry| expiry <= now_ms) {
            if store.keeps_expired(now_ms) {
                return Ok(Found::Absent);
            }
            self.may_change()?;
            let stripe = self.held.get(key.hash.stripe());
            if let Some(waiters) = &stripe.waiters {
                waiters.note(self.db, key, &mut self.resume.ready);
            }
            let leave = Leave::expired(table_id, None, now_ms);
            store.commit_leave(leave, stripe.database_mut(table_id), slot, Some(&mut self.resume.effects));
            return Ok(Found::Absent);
        }
        let Some(value) = object.boxed() else {
            return Ok(Found::Hot(slot, false));
        };
        // While expired keys are kept, expired fields are kept too: see `hides_fields_at`.
        if value.next_deadline().is_some_and(|at_ms| at_ms <= now_ms) && !store.keeps_expired(now_ms) {
            self.bring(key, slot, &|value, out| value.want_due(now_ms, out))?;
            self.may_change()?;
            return Ok(self.expire_parts(key, slot));
        }
        Ok(Found::Hot(slot, true))
    }

    /// Removes expired fields of a hash, and the key with the last field. This does not make the copy on flash invalid: after a
    /// read of the copy, the same fields are found expired again.
    #[cold]
    fn expire_parts(&mut self, key: &Key<'_>, slot: Slot) -> Found {
        let (store, now_ms, db, table_id) = (self.store, self.now_ms, self.db, self.table_id);
        let mut fields = Vec::new();
        store.keep(self.database(key), slot, key.hash.stripe(), table_id);
        let mut object = self.entry(key, slot).hot_mut();
        let is_empty = object
            .boxed_mut()
            .is_some_and(|value| value.expire(now_ms, &mut |field| fields.push(Box::<[u8]>::from(field))));
        object.account(&store.arena);
        let deadline = object.view().next_deadline();
        let gone = FieldsGone { db, key, now_ms, fields: &fields, is_empty };
        let stripe = self.held.get(key.hash.stripe());
        store.commit_fields(&gone, stripe, &mut self.resume.ready, &mut self.resume.effects);
        let database = stripe.database_mut(table_id);
        if is_empty {
            database.discard(store, slot);
            return Found::Absent;
        }
        database.note_deadline(store, key.hash.high, deadline);
        Found::Hot(slot, true)
    }

    #[inline]
    fn touched(&mut self, key: &Key<'_>, slot: Slot) {
        if self.touch {
            let clock = self.clock();
            let entry = self.entry(key, slot);
            entry.touch();
            entry.hot_mut().set_clock(clock);
        }
    }

    /// Removes the key or parts of its value if they have expired. Cold data is read at once.
    pub(crate) fn notice(mut self, key: &Key<'_>) {
        self.at_once = true;
        // A value that cannot be read stays; the log says so.
        let _ = self.look(key);
        self.finish();
    }

    /// Removes expired parts of a value in RAM. Parts on flash are read at once.
    pub(crate) fn notice_parts(mut self, key: &Key<'_>) {
        let database = self.database(key);
        if database.find(key).is_some_and(|slot| database.table.word(slot).is_hot()) {
            self.at_once = true;
            // A value that cannot be read stays; the log says so.
            let _ = self.look_for(key);
        }
        self.finish();
    }

    /// Whether the key exists, and its type. Reads flash only for a cold key with an expiry.
    pub fn peek(&mut self, key: &Key<'_>) -> Result<Option<Peek>, Cold> {
        let removes_unread = self.resume.removes_unread;
        let database = self.database(key);
        let Some(slot) = database.find(key) else {
            return Ok(None);
        };
        let word = database.table.word(slot);
        if !word.is_hot() && (!word.has_expiry() || removes_unread) {
            return Ok(Some(Peek { kind: word.kind(), has_expiry: false }));
        }
        Ok(match self.look_for(key)? {
            Found::Absent => None,
            Found::Hot(slot, _) => Some(Peek { kind: self.object(key, slot).kind(), has_expiry: word.has_expiry() }),
        })
    }

    /// Whether the key has an entry. An expired entry that was not removed yet counts.
    pub fn is_there(&mut self, key: &Key<'_>) -> bool {
        self.database(key).find(key).is_some()
    }

    /// Whether the value is in RAM. Reads nothing, and does not mark the value as used.
    pub fn is_hot(&mut self, key: &Key<'_>) -> Option<bool> {
        let database = self.database(key);
        let slot = database.find(key)?;
        Some(database.table.word(slot).is_hot())
    }

    /// Whether a long-running command may continue to use memory.
    pub fn admission(&self) -> Admission {
        self.store.admission()
    }

    /// See [`Store::refusal`].
    pub fn refusal(&self) -> &'static str {
        self.store.refusal()
    }

    /// For TOUCH: whether the key exists. Marks the value as used.
    pub fn touch(&mut self, key: &Key<'_>) -> Result<bool, Cold> {
        let database = self.database(key);
        if let Some(slot) = database.find(key) {
            let entry = database.table.entry_mut(slot);
            if !entry.word().is_hot() && !entry.word().has_expiry() {
                entry.set_referenced(true);
                return Ok(true);
            }
        }
        Ok(match self.look_for(key)? {
            Found::Absent => false,
            Found::Hot(slot, _) => {
                self.touched(key, slot);
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

    /// Like [`Keyspace::get`], but only the wanted parts of a value in parts must be in RAM.
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
            Found::Hot(slot, _) => Some(self.hit(key, slot).hot().value()),
        }
    }

    /// The values of several keys, for reading at the same time. The reads of all cold values are recorded together.
    pub fn get_all(&mut self, keys: &[Key<'_>]) -> Result<SmallVec<[Option<Value<'_>>; 8]>, Cold> {
        self.all(keys, |ks, at| ks.look(&keys[at]))
    }

    /// Like [`Keyspace::get_all`], but only the wanted parts of values in parts must be in RAM. `want` gets the index of the key.
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
        // A look-up may remove the key, install its value or fill in parts, so it needs the stripe exclusively. No reference is
        // handed out before all look-ups are done: a key may be named twice, and a removal may move entries.
        let mut cold = false;
        for (at, key) in keys.iter().enumerate() {
            match look(self, at) {
                Ok(Found::Hot(slot, _)) => _ = self.hit(key, slot),
                Ok(Found::Absent) => self.missed(key),
                Err(Cold) => cold = true,
            }
        }
        if cold {
            return Err(Cold);
        }
        let (table_id, now_ms) = (self.table_id, self.now_ms);
        // The look-ups have removed what has expired, unless a pause keeps it.
        let seen_ms = if self.store.keeps_expired(now_ms) { now_ms } else { 0 };
        Ok(keys.iter().map(|key| self.held.see(key.hash.stripe()).database(table_id)?.value(key, seen_ms)).collect())
    }

    /// The value, for OBJECT. Does not mark the value as used.
    pub fn view(&mut self, key: &Key<'_>) -> Result<Option<Value<'_>>, Cold> {
        Ok(match self.look(key)? {
            Found::Absent => None,
            Found::Hot(slot, _) => Some(self.object(key, slot).value()),
        })
    }

    /// The value, for a command that may change it next. Marks it as used; as in Redis, such a look-up is neither a hit nor a miss.
    pub fn get_to_edit(&mut self, key: &Key<'_>) -> Result<Option<Value<'_>>, Cold> {
        self.get_to_edit_for(key, &|value, out| value.absent(out))
    }

    /// Like [`Keyspace::get_to_edit`], but only the wanted parts of a value in parts must be in RAM.
    pub fn get_to_edit_for(&mut self, key: &Key<'_>, want: Want<'_>) -> Result<Option<Value<'_>>, Cold> {
        let Found::Hot(slot, _) = self.look_at(key, want)? else { return Ok(None) };
        self.touched(key, slot);
        Ok(Some(self.object(key, slot).value()))
    }

    /// Like [`Keyspace::view`], but only the wanted parts of a value in parts must be in RAM.
    pub fn view_for(&mut self, key: &Key<'_>, want: Want<'_>) -> Result<Option<Value<'_>>, Cold> {
        Ok(match self.look_at(key, want)? {
            Found::Absent => None,
            Found::Hot(slot, _) => Some(self.object(key, slot).value()),
        })
    }

    /// Whether APPEND or SETRANGE made the string. OBJECT ENCODING shows this.
    pub fn is_raw(&mut self, key: &Key<'_>) -> Result<bool, Cold> {
        Ok(match self.look_for(key)? {
            Found::Absent => false,
            Found::Hot(slot, _) => self.object(key, slot).is_raw(),
        })
    }

    /// `None`: no such key. `Some(None)`: the key has no expiry.
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
            Found::Hot(slot, _) => Some(self.object(key, slot).expiry()),
        })
    }

    /// All figures of a key. Reads the value.
    pub fn inspect(&mut self, key: &Key<'_>) -> Result<Option<Inspect>, Cold> {
        let Found::Hot(slot, _) = self.look_for(key)? else {
            return Ok(None);
        };
        let clock = self.clock();
        let entry = self.entry(key, slot);
        let (word, object) = (entry.word(), entry.hot());
        let pages = match object.place() {
            Some(place) if !word.is_dirty() => crate::log::page::step_pages(Word(place).place().step),
            _ => 0,
        };
        Ok(Some(Inspect {
            kind: object.kind(),
            hot: true,
            dirty: word.is_dirty(),
            raw: object.is_raw(),
            boxed: object.is_boxed(),
            ram_bytes: object.ram_bytes() + size_of::<crate::mem::index::Entry>(),
            flash_pages: pages,
            idle_seconds: object.idle_seconds(clock),
            frequency: word.frequency(),
            restored_frequency: object.restored_frequency(),
            expiry: object.expiry(),
        }))
    }

    /// Number of keys of the current logical database.
    pub fn len(&mut self) -> u64 {
        match self.has_all() {
            false => self.store.len(self.db),
            true => {
                let table_id = self.table_id;
                (0..STRIPES).map(|stripe| self.held.get(stripe).keys(table_id) as u64).sum()
            }
        }
    }

    /// Whether every stripe is held. A command on whole databases holds every stripe or none.
    fn has_all(&self) -> bool {
        let count = self.held.count();
        assert!(count == 0 || count == STRIPES, "a command on whole databases holds every stripe or none");
        count > 0
    }

    pub fn is_empty(&mut self) -> bool {
        self.len() == 0
    }

    /// Empties a logical database, or all (`None`). The caller must hold every stripe.
    pub fn flush(&mut self, db: Option<usize>, lazy: bool) {
        assert!(self.has_all(), "a barrier holds every stripe");
        (self.wrote, self.why) = (true, Some(Why::Flushed));
        self.resume.noted.flush();
        let taken = self.store.take(db, &mut self.held, &mut self.resume.ready);
        self.store.drop_databases(taken, lazy);
    }

    /// Exchanges two logical databases. The caller must hold every stripe.
    pub fn swap(&mut self, a: usize, b: usize) {
        assert!(self.has_all(), "a barrier holds every stripe");
        (self.wrote, self.why) = (true, Some(Why::Swapped));
        self.store.swap(a, b, &mut self.held, self.now_ms, &mut self.resume.ready);
        self.table_id = self.store.table_id(self.db);
    }

    /// Ends a command, whatever its outcome: counts memory and look-ups, publishes the effects if this is the outermost command, and
    /// unlocks the stripes.
    #[inline]
    pub fn finish(mut self) {
        self.finish_in_place();
    }

    /// Like [`Keyspace::finish`], but the stripes are unlocked when the caller drops the keyspace, which it must do next. Moving
    /// the keyspace once more would cost as much as a hash.
    #[inline]
    pub fn finish_in_place(&mut self) {
        debug_assert!(self.committed || !self.wrote, "what a handler changes is committed");
        self.end_command();
        self.finished = true;
    }

    /// Commits changes that were made without a command's row and unlocks the stripes. Only while no effects are kept.
    pub fn close(mut self) {
        self.commit();
        self.finish();
    }

    fn account_values(&mut self) {
        let Resume { edited, passing, .. } = &mut *self.resume;
        for (hash, table_id) in edited.drain(..) {
            self.held.get(hash.stripe()).database_mut(table_id).account(self.store, hash);
        }
        for (hash, table_id, address) in passing.drain(..) {
            self.held.get(hash.stripe()).database_mut(table_id).pass(self.store, hash, address);
        }
    }

    #[inline]
    fn end_command(&mut self) {
        if !self.resume.edited.is_empty() | !self.resume.passing.is_empty() {
            self.account_values();
        }
        if self.resume.effects.must_be_told() && !self.held.is_inner() {
            self.store.publish(&mut self.resume.effects);
        }
        // A run that stopped for a cold value will be repeated, so it does not count.
        if self.stopped {
            return;
        }
        if self.store.is_force_demote() {
            self.resume.touched.extend(self.store.all_to_chill());
            self.held.note_hot(&mut self.resume.touched);
        }
        let counters = self.store.counters.line();
        if self.ram_hits > 0 {
            counters.add(Counter::RamHits, self.ram_hits.into());
        }
        if self.flash_hits > 0 {
            counters.add(Counter::FlashHits, self.flash_hits.into());
        }
        if self.misses > 0 {
            counters.add(Counter::KeyspaceMisses, self.misses.into());
        }
        if self.wrote {
            counters.add(Counter::Changes, 1);
        }
        if self.user_bytes > 0 {
            counters.add(Counter::UserBytes, self.user_bytes);
        }
    }
}

impl Drop for Keyspace<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.finished {
            self.unwound();
        }
    }
}

impl Keyspace<'_> {
    /// The keyspace is dropped without `finish`: it was not opened for a command (but for a waiter's place), or the handler has
    /// panicked. A panic before the first change closes only the connection. After a change the process stops, because a half-made
    /// change must not be served or written to flash.
    #[cold]
    fn unwound(&mut self) {
        if self.wrote && !self.committed {
            tracing::error!(
                "a bug: a command panicked in the middle of a change of the dataset (the panic is above); the process stops, so \
                that the half-made change is not served or written to flash"
            );
            std::process::abort();
        }
        self.end_command();
    }
}
