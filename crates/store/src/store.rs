//! Owns the dataset shared by all workers: stripes, arena, segments, limits, counters.
//! Never knows commands, sockets or how I/O is carried out.

use crate::arena::Arena;
use crate::census::LastSeen;
use crate::counters::Counters;
use crate::deadlines::Deadlines;
use crate::guards::{Guard, Held};
use crate::hash::{Hasher, Key, KeyHash, STRIPES};
use crate::index::{Entry, OwnedWord, Slot, Table, prefetch_line};
use crate::io::Reader;
use crate::keyspace::{Access, ColdRead, Keyspace, Resume};
use crate::listen::Ears;
use crate::object::{Object, ObjectRef, Value};
use crate::page::{Codec, Dictionary};
use crate::parts::Owners;
use crate::segment::Segments;
use crate::tier::Tier;
use crate::wait::{Ready, WaitCounts, Waiters};
use crate::watch::Watched;
use crate::word::Word;
use base::Policy;
use base::random::{GAMMA, mix};
use parking_lot::{Mutex, RwLock};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::time::Duration;
use value::Boxed;

/// Where the log lies.
#[derive(Clone, Debug)]
pub struct FlashConfig {
    pub paths: u32,
    /// First byte of the log in each file.
    pub data_offset: u64,
    pub segment_bytes: u64,
    /// All paths together.
    pub segments: u32,
    pub codec: Codec,
}

impl FlashConfig {
    /// Shares `bytes` of flash out into segments: `wanted` bytes each, halved (to 256 KiB at least) until there
    /// are 64, because a collector needs segments to choose from.
    pub fn divide(bytes: u64, wanted: u64, paths: u32, data_offset: u64, codec: Codec) -> FlashConfig {
        let mut segment_bytes = wanted.next_power_of_two().clamp(256 << 10, 128 << 20);
        while segment_bytes > 256 << 10 && bytes / segment_bytes < 64 {
            segment_bytes /= 2;
        }
        let segments = u32::try_from(bytes / segment_bytes).unwrap_or(u32::MAX);
        FlashConfig { paths, data_offset, segment_bytes, segments: segments - segments % paths, codec }
    }

    /// Bytes each path's file needs after `data_offset`.
    pub fn bytes_per_path(&self) -> u64 {
        u64::from(self.segments / self.paths) * self.segment_bytes
    }
}

/// What the RAM limit is a limit of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitOf {
    /// The process's resident size, measured.
    Process,
    /// The objects alone, for runs that must not depend on the process around them.
    Objects,
}

#[derive(Clone, Debug)]
pub struct StoreConfig {
    pub workers: usize,
    pub databases: usize,
    /// 0: none.
    pub ram_limit: u64,
    pub limit_of: LimitOf,
    pub policy: Policy,
    /// Objects lie in huge pages where there are such.
    pub huge_pages: bool,
    /// `None`: everything stays in RAM.
    pub flash: Option<FlashConfig>,
    /// Drawn at random by the caller: the identity of cold keys depends on nobody knowing it.
    pub secret: [u64; 2],
}

impl StoreConfig {
    pub fn in_ram(workers: usize) -> StoreConfig {
        StoreConfig {
            workers,
            databases: 16,
            ram_limit: 0,
            limit_of: LimitOf::Process,
            policy: Policy::NoEviction,
            huge_pages: false,
            flash: None,
            secret: [0x0f1e_2d3c_4b5a_6978, 0x8796_a5b4_c3d2_e1f0],
        }
    }
}

/// One logical database's part of a stripe.
#[derive(Default)]
pub struct Database {
    pub(crate) table: Table,
    /// Entries with an expiry, and entries whose value is in RAM.
    pub(crate) expires: usize,
    pub(crate) hot: usize,
    /// Of hashes with fields that expire, if there are any in RAM.
    pub(crate) deadlines: Option<Box<Deadlines>>,
}

type ResidentShare = Box<dyn Fn(u64) -> u64 + Send + Sync>;

#[derive(Default)]
pub struct Stripe {
    /// Uid 0, where nearly everything is: beside the lock, a cache miss less.
    first: Database,
    /// Keys that somebody watches, if any.
    pub(crate) watched: Option<Box<Watched>>,
    /// Keys that somebody waits for, if any.
    pub(crate) waiters: Option<Box<Waiters>>,
    /// From uid 1 on. SWAPDB exchanges uids, so that what is on flash keeps its database's number.
    others: Vec<Database>,
}

/// Neighbouring stripes are locked by different workers: each on its own cache line.
#[repr(align(64))]
struct Line(Mutex<Stripe>);

/// How long a stripe may take to be had before its owner is taken for a script that runs long.
pub(crate) const LOCK_PATIENCE: Duration = Duration::from_millis(2);

pub struct Store {
    /// Itself, for the thread that frees flushed databases.
    pub(crate) me: Weak<Store>,
    /// Held by the one script that adds stripes to those it has.
    pub(crate) adding: Mutex<()>,
    pub(crate) reader: OnceLock<Arc<dyn Reader>>,
    /// What a thread does while a stripe is not to be had.
    waiting: OnceLock<fn()>,
    resident_share: OnceLock<ResidentShare>,
    pub(crate) hasher: Hasher,
    pub(crate) arena: Arena,
    stripes: Box<[Line]>,
    /// By logical database. Written with every stripe locked, read with any.
    uids: Box<[AtomicU32]>,
    pub(crate) segments: Segments,
    /// It was said that a smaller flash cannot be had for now.
    pub(crate) said_stalled: AtomicBool,
    pub(crate) codec: Mutex<Codec>,
    pub(crate) dictionaries: RwLock<Vec<Arc<Dictionary>>>,
    pub(crate) sampler: crate::fill::Sampler,
    pub(crate) tier: Tier,
    pub(crate) counters: Counters,
    pub(crate) last_seen: LastSeen,
    pub(crate) ears: Ears,
    pub(crate) latency: Mutex<hdrhistogram::Histogram<u64>>,
    /// Records on flash that an entry points to: zero means nothing need be looked for there.
    pub(crate) cold: AtomicU64,
    /// Whose the values in parts are.
    pub(crate) owners: Owners,
    pub(crate) expire_cycle: AtomicBool,
    /// Some stripe may have deadlines of fields.
    pub(crate) has_deadlines: AtomicBool,
    /// The all-cold mode was switched on, and no stripe has been looked through since.
    pub(crate) chill_all: AtomicBool,
    /// Average time to live seen by the last sweep, per uid, in milliseconds.
    pub(crate) average_ttl: Box<[AtomicU64]>,
    /// Flushes whose objects are not all freed yet.
    pub(crate) emptying: AtomicUsize,
    random: AtomicU64,
    graves: Mutex<mpsc::Sender<Grave>>,
    pub(crate) wait_counts: WaitCounts,
}

/// What is freed where nobody waits for it.
enum Grave {
    Value(Box<Boxed>),
    Databases(Arc<Store>, Vec<Database>),
}

/// Freeing a boxed value up to this size is left to who removed it.
const BURY_BYTES: usize = 64 * 1024;

impl Store {
    pub fn new(config: &StoreConfig) -> Arc<Store> {
        let (graves, undertaker) = mpsc::channel();
        std::thread::Builder::new()
            .name("lazyfree".into())
            .spawn(move || {
                for grave in undertaker {
                    match grave {
                        Grave::Value(value) => drop(value),
                        Grave::Databases(store, databases) => store.empty(databases),
                    }
                }
            })
            .expect("a thread can be started");
        let segments = match &config.flash {
            Some(flash) => {
                let pages = (flash.segment_bytes / crate::io::PAGE_BYTES as u64) as u32;
                Segments::new(flash.segments, pages, flash.paths, flash.data_offset)
            }
            None => Segments::new(0, 1, 1, 0),
        };
        Arc::new_cyclic(|me| Store {
            me: me.clone(),
            adding: Mutex::default(),
            reader: OnceLock::new(),
            waiting: OnceLock::new(),
            resident_share: OnceLock::new(),
            hasher: Hasher::new(config.secret),
            arena: Arena::new(config.workers).in_huge_pages(config.huge_pages),
            stripes: (0..STRIPES).map(|_| Line(Mutex::default())).collect(),
            uids: (0..config.databases as u32).map(AtomicU32::new).collect(),
            segments,
            said_stalled: AtomicBool::new(false),
            codec: Mutex::new(config.flash.as_ref().map_or(Codec::None, |flash| flash.codec)),
            dictionaries: RwLock::default(),
            sampler: Default::default(),
            tier: Tier::new(config.ram_limit, config.limit_of, config.policy),
            counters: Counters::new(config.workers),
            last_seen: LastSeen::default(),
            ears: Ears::default(),
            latency: Mutex::new(crate::lane::latency_histogram()),
            cold: AtomicU64::new(0),
            owners: Owners::default(),
            expire_cycle: AtomicBool::new(true),
            has_deadlines: AtomicBool::new(false),
            chill_all: AtomicBool::new(false),
            emptying: AtomicUsize::new(0),
            average_ttl: (0..config.databases).map(|_| AtomicU64::new(0)).collect(),
            random: AtomicU64::new(config.secret[0] ^ config.secret[1]),
            graves: Mutex::new(graves),
            wait_counts: WaitCounts::default(),
        })
    }

    pub fn hasher(&self) -> &Hasher {
        &self.hasher
    }

    pub fn databases(&self) -> usize {
        self.uids.len()
    }

    pub fn has_flash(&self) -> bool {
        self.segments.count() > 0
    }

    /// Whether any value is on flash only.
    #[inline]
    pub fn has_cold(&self) -> bool {
        self.cold.load(Relaxed) > 0
    }

    /// Locks the stripes of `keys`, in ascending order, for one command in logical database `db`.
    #[inline]
    pub fn lock<'a>(
        &'a self,
        keys: &[Key<'_>],
        db: usize,
        now_ms: u64,
        touch: bool,
        resume: &'a mut Resume,
    ) -> Keyspace<'a> {
        Keyspace::new(self, keys, Access { db, now_ms, touch }, None, resume).expect("waited for without end")
    }

    /// As [`Store::lock`], but gives up when a script keeps a stripe for long.
    #[inline]
    pub fn try_lock<'a>(
        &'a self,
        keys: &[Key<'_>],
        db: usize,
        now_ms: u64,
        touch: bool,
        resume: &'a mut Resume,
    ) -> Option<Keyspace<'a>> {
        Keyspace::new(self, keys, Access { db, now_ms, touch }, Some(LOCK_PATIENCE), resume)
    }

    /// As [`Store::try_lock`], with every stripe.
    pub fn try_lock_all<'a>(
        &'a self,
        db: usize,
        now_ms: u64,
        touch: bool,
        resume: &'a mut Resume,
    ) -> Option<Keyspace<'a>> {
        Keyspace::whole(self, Access { db, now_ms, touch }, Some(LOCK_PATIENCE), resume)
    }

    /// Whether a command on this key would have to read flash first. Brings the key's entry into the cache. A stripe that is
    /// locked is not waited for: the command itself finds out.
    pub fn probe(&self, key: &Key<'_>, db: usize) -> Option<ColdRead> {
        let stripe = self.stripes[key.hash.stripe()].0.try_lock()?;
        let uid = self.uid(db);
        let database = stripe.database(uid)?;
        let word = database.table.word(database.find(key)?);
        if word.is_hot() {
            return None;
        }
        Some(self.cold_read(key.hash, uid, word, Some(key.name)))
    }

    /// Brings what look-ups of these keys will touch into the processor's cache. Each step is made for all keys
    /// before the next, so that their misses overlap instead of following one another: worth it from a handful of
    /// keys on.
    pub fn prefetch(&self, hashes: &[KeyHash], db: usize) {
        for hash in hashes {
            prefetch_line(&raw const self.stripes[hash.stripe()]);
        }
        let step = |of: fn(&Table, u64)| {
            for hash in hashes {
                // One that is locked is in the cache already.
                if let Some(stripe) = self.stripes[hash.stripe()].0.try_lock()
                    && let Some(database) = stripe.database(self.uid(db))
                {
                    of(&database.table, hash.high);
                }
            }
        };
        step(Table::prefetch_directory);
        step(Table::prefetch_leaf);
        step(|table, high| {
            if let Some(slot) = table.find(high, |entry| entry.word().is_hot()) {
                let object = std::ptr::with_exposed_provenance::<u8>(table.word(slot).address());
                prefetch_line(object);
                prefetch_line(object.wrapping_add(64));
            }
        });
    }

    /// Under the stripe's lock: notes the reader with the segment, so that its pages stay.
    pub(crate) fn cold_read(&self, hash: KeyHash, uid: u32, word: Word, name: Option<&[u8]>) -> ColdRead {
        ColdRead::new(self, hash, uid, word, name)
    }

    #[inline]
    pub(crate) fn stripe(&self, stripe: usize) -> Guard<'_> {
        match self.stripes[stripe].0.try_lock() {
            Some(guard) => guard,
            None => self.stripe_in_time(stripe),
        }
    }

    #[cold]
    fn stripe_in_time(&self, stripe: usize) -> Guard<'_> {
        loop {
            if let Some(guard) = self.stripes[stripe].0.try_lock_for(LOCK_PATIENCE) {
                return guard;
            }
            self.wait();
        }
    }

    #[inline]
    pub(crate) fn try_stripe(&self, stripe: usize, patience: Duration) -> Option<Guard<'_>> {
        let lock = &self.stripes[stripe].0;
        lock.try_lock().or_else(|| lock.try_lock_for(patience))
    }

    /// For upkeep and statistics, which a script that keeps a stripe must not hold up. After the first stripe that was not to
    /// be had within `patience` none is waited for, so that a pass over all stripes waits once.
    pub(crate) fn stripe_or_skip(&self, stripe: usize, patience: &mut Duration) -> Option<Guard<'_>> {
        let guard = self.try_stripe(stripe, *patience);
        if guard.is_none() {
            *patience = Duration::ZERO;
        }
        guard
    }

    /// A stripe has not been to be had for a while: a script has it.
    pub(crate) fn wait(&self) {
        if let Some(waiting) = self.waiting.get() {
            waiting();
        }
    }

    /// What a thread is to do, again and again, while it waits for a stripe that a script has. It must not use the
    /// store.
    pub fn set_waiting(&self, waiting: fn()) {
        // The first one stays: a store has one server.
        let _ = self.waiting.set(waiting);
    }

    /// Where a process has several stores: of its resident bytes, those that are this store's.
    pub fn set_resident(&self, share: ResidentShare) {
        // The first one stays, as above.
        let _ = self.resident_share.set(share);
    }

    pub(crate) fn own_resident(&self, process: u64) -> u64 {
        self.resident_share.get().map_or(process, |share| share(process))
    }

    /// Bytes that are held for values.
    pub fn held_bytes(&self) -> u64 {
        self.arena.held_bytes() as u64
    }

    /// What reads pages while a caller waits. Needed where there is flash.
    pub fn set_reader(&self, reader: Arc<dyn Reader>) {
        let _ = self.reader.set(reader);
    }

    /// Call with a stripe locked.
    #[inline]
    pub(crate) fn uid(&self, db: usize) -> u32 {
        self.uids[db].load(Relaxed)
    }

    /// `held`: every stripe.
    pub(crate) fn swap(&self, a: usize, b: usize, held: &mut Held<'_>, now_ms: u64, ready: &mut Vec<Ready>) {
        let (first, second) = (self.uid(a), self.uid(b));
        for stripe in 0..STRIPES {
            let stripe = held.get(stripe);
            if let Some(waiters) = &stripe.waiters {
                waiters.note_all(self, |db| db == a || db == b, ready);
            }
            if let Some(watched) = &stripe.watched {
                watched.swapped([a, b], |name| {
                    let key = self.hasher.key(name);
                    [first, second].iter().any(|&uid| stripe.has_live(uid, &key, now_ms))
                });
            }
        }
        self.uids[a].store(second, Relaxed);
        self.uids[b].store(first, Relaxed);
    }

    /// Takes the contents of a logical database, or of all, out of their tables, to be given to
    /// [`Store::drop_databases`]. `held`: every stripe.
    pub(crate) fn take(&self, db: Option<usize>, held: &mut Held<'_>, ready: &mut Vec<Ready>) -> Vec<Database> {
        let mut taken = Vec::new();
        self.emptying.fetch_add(1, Relaxed);
        for stripe in 0..STRIPES {
            let stripe = held.get(stripe);
            if let Some(waiters) = &stripe.waiters {
                waiters.note_all(self, |waited| db.is_none_or(|db| db == waited), ready);
            }
            match db {
                None => taken.extend(stripe.all_mut().map(std::mem::take)),
                Some(db) => {
                    let uid = self.uid(db);
                    if stripe.database(uid).is_some() {
                        taken.push(std::mem::take(stripe.database_mut(uid)));
                    }
                }
            }
        }
        taken
    }

    /// Gives back the memory of databases that were taken, here or in another thread.
    pub(crate) fn drop_databases(&self, taken: Vec<Database>, lazy: bool) {
        match self.me.upgrade() {
            // The receiver lives as long as its thread, which ends with this sender.
            Some(store) if lazy => drop(self.graves.lock().send(Grave::Databases(store, taken))),
            _ => self.empty(taken),
        }
    }

    fn empty(&self, databases: Vec<Database>) {
        for mut database in databases {
            database.table.drain(|word| self.release(word));
        }
        self.emptying.fetch_sub(1, Relaxed);
    }

    /// Frees what an entry that is gone from its table held.
    pub(crate) fn release(&self, owned: OwnedWord) {
        let word = owned.word();
        match owned.into_object() {
            Some(object) => {
                if !word.is_dirty() {
                    self.segments.died(clean_place(object.view()));
                }
                self.free(object);
            }
            None => {
                self.segments.died(word.place());
                self.cold.fetch_sub(1, Relaxed);
            }
        }
    }

    /// Frees an object that no entry holds any more.
    pub(crate) fn free(&self, object: Object) {
        if let Some(value) = object.free(&self.arena) {
            self.bury(value);
        }
    }

    fn bury(&self, value: Box<Boxed>) {
        if value.mem_bytes() > BURY_BYTES {
            let _ = self.graves.lock().send(Grave::Value(value));
        }
    }

    /// Keys of a logical database, exactly: waits for every stripe. For statistics there is [`Store::census`].
    pub fn len(&self, db: usize) -> u64 {
        self.sum(db, |database| database.table.len())
    }

    /// Keys of a logical database whose value is in RAM, as exactly.
    pub fn hot(&self, db: usize) -> u64 {
        self.sum(db, |database| database.hot)
    }

    fn sum(&self, db: usize, of: impl Fn(&Database) -> usize) -> u64 {
        (0..STRIPES)
            .map(|stripe| {
                let stripe = self.stripe(stripe);
                stripe.database(self.uid(db)).map_or(0, |database| of(database) as u64)
            })
            .sum()
    }

    /// Milliseconds, 0 when unknown.
    pub fn average_ttl(&self, db: usize) -> u64 {
        self.average_ttl[self.uid(db) as usize].load(Relaxed)
    }

    /// Bytes of the stripes themselves.
    pub(crate) fn stripes_bytes(&self) -> u64 {
        size_of_val(&*self.stripes) as u64
    }

    /// SplitMix64 over a counter: good enough to choose a key, different at each start by the secret.
    pub(crate) fn next_random(&self) -> u64 {
        mix(self.random.fetch_add(GAMMA, Relaxed))
    }

    pub(crate) fn dictionary(&self, id: u32) -> Option<Arc<Dictionary>> {
        self.dictionaries.read().iter().find(|dictionary| dictionary.id() == id).cloned()
    }

    /// Compression of records from now on; what is on flash stays as it is.
    pub fn set_codec(&self, codec: Codec) {
        *self.codec.lock() = codec;
    }

    /// DEBUG SET-ACTIVE-EXPIRE.
    pub fn set_active_expire(&self, on: bool) {
        self.expire_cycle.store(on, Relaxed);
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Boxed values live outside the arena; without this they would leak when a store goes.
        let Store { stripes, arena, .. } = self;
        for line in stripes {
            for database in line.0.get_mut().all_mut() {
                database.table.drain(|word| drop(word.into_object().and_then(|object| object.free(arena))));
            }
        }
    }
}

/// The place of a clean object's copy on flash.
pub(crate) fn clean_place(object: ObjectRef<'_>) -> crate::word::Place {
    Word(object.place().expect("a clean object knows its place")).place()
}

impl Stripe {
    #[inline]
    pub(crate) fn database(&self, uid: u32) -> Option<&Database> {
        match uid {
            0 => Some(&self.first),
            uid => self.others.get(uid as usize - 1),
        }
    }

    #[inline]
    pub(crate) fn database_mut(&mut self, uid: u32) -> &mut Database {
        let Some(other) = (uid as usize).checked_sub(1) else { return &mut self.first };
        if other >= self.others.len() {
            self.others.resize_with(other + 1, Database::default);
        }
        &mut self.others[other]
    }

    pub(crate) fn keys(&self, uid: u32) -> usize {
        self.database(uid).map_or(0, |database| database.table.len())
    }

    /// Whether the key is there and has not expired, as far as that is known without reading flash.
    fn has_live(&self, uid: u32, key: &Key<'_>, now_ms: u64) -> bool {
        let Some((database, slot)) = self.database(uid).and_then(|database| Some((database, database.find(key)?)))
        else {
            return false;
        };
        let object = database.table.entry(slot).object();
        object.and_then(|object| object.expiry()).is_none_or(|expiry| expiry > now_ms)
    }

    /// Values in RAM.
    pub(crate) fn hot(&self) -> usize {
        self.all().map(|database| database.hot).sum()
    }

    pub(crate) fn uids(&self) -> u32 {
        1 + self.others.len() as u32
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Database> {
        std::iter::once(&self.first).chain(&self.others)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Database> {
        std::iter::once(&mut self.first).chain(&mut self.others)
    }
}

impl Database {
    /// The key's entry. A hot one is compared whole, a cold one by its hash bits.
    #[inline]
    pub(crate) fn find(&self, key: &Key<'_>) -> Option<Slot> {
        self.table.find(key.hash.high, |entry| {
            entry.word().agrees(key.hash) && entry.object().is_none_or(|object| object.key() == key.name)
        })
    }

    /// The key's value, if it is in RAM.
    pub(crate) fn value(&self, key: &Key<'_>) -> Option<Value<'_>> {
        self.table.entry(self.find(key)?).object().map(ObjectRef::value)
    }

    /// The cold entry of exactly this hash and place.
    pub(crate) fn find_cold(&self, hash: KeyHash, word: Word) -> Option<Slot> {
        let is_it = |found: Word| !found.is_hot() && found.agrees(hash) && found.place() == word.place();
        self.table.find(hash.high, |entry| is_it(entry.word()))
    }

    pub(crate) fn find_address(&self, high: u64, address: usize) -> Option<Slot> {
        self.table.find(high, |entry| entry.word().is_hot() && entry.word().address() == address)
    }

    /// Counts what a boxed value takes now.
    pub(crate) fn account(&mut self, store: &Store, hash: KeyHash) {
        let is_it = |entry: &Entry| entry.word().agrees(hash) && entry.object().is_some_and(|object| object.is_boxed());
        if let Some(slot) = self.table.find(hash.high, is_it) {
            self.table.entry_mut(slot).hot_mut().account(&store.arena);
        }
    }

    /// Takes the entry out and frees what it held.
    pub(crate) fn discard(&mut self, store: &Store, slot: Slot) {
        let owned = self.table.remove(slot);
        let word = owned.word();
        self.hot -= usize::from(word.is_hot());
        self.expires -= usize::from(word.has_expiry());
        store.release(owned);
    }

    /// A cold entry's value is in RAM now, clean.
    pub(crate) fn warm(&mut self, store: &Store, slot: Slot, hash: KeyHash, object: Object, frequency: u8) {
        let deadline = object.view().next_deadline();
        let entry = self.table.entry_mut(slot);
        let has_expiry = entry.word().has_expiry();
        let cold = entry.replace(OwnedWord::hot(hash, object, frequency, has_expiry, false));
        debug_assert!(!cold.word().is_hot());
        self.hot += 1;
        store.cold.fetch_sub(1, Relaxed);
        self.note_deadline(store, hash.high, deadline);
    }

    /// An object that was read for one command alone leaves RAM again, unless it was changed or somebody else wants it.
    pub(crate) fn pass(&mut self, store: &Store, hash: KeyHash, address: usize) {
        let Some(slot) = self.find_address(hash.high, address) else { return };
        let entry = self.table.entry(slot);
        if !entry.word().is_dirty() && entry.word().frequency() <= 1 {
            let place = entry.hot().place().expect("a clean object knows its place");
            self.chill(store, slot, Word(place));
        }
    }

    /// A hot entry becomes cold: `cold` is the word of its copy on flash, which counts as live already.
    pub(crate) fn chill(&mut self, store: &Store, slot: Slot, cold: Word) {
        let hot = self.table.entry_mut(slot).replace(OwnedWord::cold(cold));
        self.hot -= 1;
        store.cold.fetch_add(1, Relaxed);
        store.free(hot.into_object().expect("the entry was hot"));
    }
}
