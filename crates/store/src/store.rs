//! Owns the dataset that all workers share: stripes, arena, segments, limits, counters.
//! Never knows commands, sockets or how I/O is done.

use crate::config::StoreConfig;
use crate::counters::{Counter, Counters};
use crate::effects::{ChangeLog, Effects, Sent};
use crate::event_sinks::{EventSinks, Listener};
use crate::log::compression::Compression;
use crate::log::page::{Dictionary, scan};
use crate::log::parts::Owners;
use crate::log::read::ReadError;
use crate::log::resize::{Progress, ResizeError};
use crate::log::segment::rot::Lost;
use crate::log::segment::{LogSpace, Segments, SnapshotKind};
use crate::log::sequence::Sequence;
use crate::mem::arena::Arena;
use crate::mem::cleaning::Cleaning;
use crate::mem::compaction::Compaction;
use crate::mem::copies::Copies;
use crate::mem::hash::{Hasher, KeyHash, STRIPES};
use crate::mem::index::{Entry, OwnedWord, Prefetched, Slot};
use crate::mem::lend::LENT_BYTES_MIN;
use crate::mem::object::{Object, ObjectRef};
use crate::mem::tier::{Admission, Full, Tier};
use crate::mem::word::{PageAddress, Word};
use crate::narrow::{low32, to_usize};
use crate::stripe::census::{Census, LastSeen};
use crate::stripe::wait::WaitCounts;
use crate::stripe::{Database, Guard, StripeSet};
use base::Codec;
use base::events::Class;
use base::random::{GAMMA, SplitMix64, mix};
use base::size::human;
use flash::io::Blocking;
use parking_lot::{Mutex, RwLock};
use smallvec::SmallVec;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::time::Duration;
use value::Boxed;

type ResidentShare = Box<dyn Fn(u64) -> u64 + Send + Sync>;

/// Number of keys that [`Store::prefetch`] handles without an allocation.
const PREFETCH_KEYS_MAX: usize = 32;

pub struct Store {
    /// The store itself, for the thread that frees flushed databases.
    pub(crate) me: Weak<Store>,
    pub(crate) blocking: OnceLock<Arc<dyn Blocking>>,
    resident_share: OnceLock<ResidentShare>,
    pub(crate) hasher: Hasher,
    pub(crate) arena: Arena,
    pub(crate) stripes: StripeSet,
    pub(crate) segments: Segments,
    pub(crate) compression: Compression,
    pub(crate) sequence: Sequence,
    pub(crate) tier: Tier,
    pub(crate) counters: Counters,
    pub(crate) last_seen: LastSeen,
    pub(crate) cleaning: Cleaning,
    pub(crate) copies: Copies,
    pub(crate) compaction: Mutex<Compaction>,
    pub(crate) event_sinks: EventSinks,
    pub(crate) latency: Mutex<hdrhistogram::Histogram<u64>>,
    /// Recent mean cost of a flash read: see [`Store::read_cost_ns`].
    pub(crate) read_cost_ns: AtomicU64,
    /// The next stripe that the lanes warm, that is, read into RAM before a command needs its values. `STRIPES` or
    /// more: no stripe is left to warm.
    pub(crate) warm_next: AtomicUsize,
    /// Number of records on flash that an entry points to. If it is zero, no look-up needs to consider flash.
    pub(crate) cold: AtomicU64,
    /// The keys that own the values in parts.
    pub(crate) owners: Owners,
    pub(crate) expire_cycle: AtomicBool,
    /// An expired key leaves flash at most this long after its expiry, if the workers have the time.
    pub(crate) expired_key_lag_ms: AtomicU64,
    /// Before this time expired keys are not removed, for CLIENT PAUSE. Commands do not see them.
    keeps_expired_until_ms: AtomicU64,
    /// See [`Store::set_replaying`].
    is_replaying: AtomicBool,
    /// See [`Store::set_follows`].
    follows: AtomicBool,
    /// See [`Store::set_loads_commands`].
    loads_commands: AtomicBool,
    /// Whether some stripe may have deadlines of hash fields.
    pub(crate) has_deadlines: AtomicBool,
    /// The force-demote mode was switched on, and the sweep over all stripes has not started since.
    pub(crate) force_demote_all: AtomicBool,
    /// The average time to live that the last sweep saw, by table id, in milliseconds.
    pub(crate) average_ttl: Box<[AtomicU64]>,
    /// Number of flushes whose objects are not all freed yet.
    pub(crate) emptying: AtomicUsize,
    /// Number of values that left their tables and that the lazyfree thread has not freed yet. Until then their records
    /// on flash count as live.
    buried: Arc<AtomicUsize>,
    random: AtomicU64,
    pub(crate) secret: [u64; 2],
    drop_queue: Mutex<mpsc::Sender<Garbage>>,
    pub(crate) wait_counts: WaitCounts,
    /// The snapshot that is being taken. Written while every stripe is locked, or when no table refers to the snapshot
    /// any more.
    pub(crate) cut: RwLock<Option<Arc<dyn Cut>>>,
    /// Number of snapshots begun so far.
    pub(crate) cuts: AtomicU32,
}

/// Receives the entries that a running snapshot needs, before they change.
pub(crate) trait Cut: Send + Sync {
    /// Takes an entry of a locked stripe before it changes.
    fn keep(&self, store: &Store, entry: &Entry, stripe: usize, table_id: u32);
    /// Takes tables of one flush that contain entries the snapshot needs. They have left their stripes, so only the
    /// snapshot can reach them.
    fn adopt(&self, orphans: Vec<Orphan>);
}

/// A table that was taken out of its stripe.
pub(crate) struct Orphan {
    pub stripe: usize,
    pub table_id: u32,
    pub database: Database,
}

/// Memory that the lazyfree thread frees.
enum Garbage {
    Value(Box<Boxed>),
    Databases(Arc<Store>, Vec<Database>),
    /// For tests: the thread waits for the other end to be dropped.
    Hold(mpsc::Receiver<()>),
}

/// A boxed value up to this size is freed by the thread that removed it. Larger values go to the lazyfree thread.
const BURY_BYTES: usize = 64 * 1024;

/// [`Store::try_lend_spare`] leaves one part in this many of the lendable memory free, for borrowers that cannot do
/// without.
const SPARE_LEFT_PART: usize = 16;

const MEMORY_IS_FULL: &str = "OOM command not allowed when used memory > 'maxmemory'.";
const FLASH_IS_FULL: &str =
    "OOM command not allowed when used memory > 'maxmemory'. Flash is full: delete values or raise the memory limit.";
const RAM_IS_FULL: &str = "OOM command not allowed when used memory > 'maxmemory'. RAM is full of data that cannot move to flash \
                           (index, large collections' tables, values larger than a segment): raise the RAM limit.";
const EXPIRED_KEY_LAG_MS: u64 = 3_600_000;

/// The number in the headers of this log's pages. Pages of a log with another secret are not valid.
pub(crate) fn log_id(secret: [u64; 2]) -> u32 {
    low32(SplitMix64(secret[0] ^ secret[1].rotate_left(32)).draw())
}

impl Store {
    pub fn new(config: &StoreConfig) -> Arc<Store> {
        let (drop_queue, reclaimer) = mpsc::channel();
        let buried = Arc::new(AtomicUsize::new(0));
        let freed = Arc::clone(&buried);
        std::thread::Builder::new()
            .name("lazyfree".into())
            .spawn(move || {
                for garbage in reclaimer {
                    match garbage {
                        Garbage::Value(value) => {
                            drop(value);
                            freed.fetch_sub(1, Release);
                        }
                        Garbage::Databases(store, databases) => store.empty(databases),
                        Garbage::Hold(held) => _ = held.recv(),
                    }
                }
            })
            .expect("a thread can be started");
        let segments = match &config.flash {
            Some(flash) => {
                let pages = flash.segment_bytes / flash::io::PAGE_BYTES as u64;
                let pages = u32::try_from(pages).expect("a segment has at most SEGMENT_PAGES_MAX pages");
                Segments::new(flash.segments, pages, flash.paths, flash.data_offset, log_id(config.secret))
            }
            None => Segments::new(0, 1, 1, 0, 0),
        };
        Arc::new_cyclic(|me| Store {
            me: me.clone(),
            blocking: OnceLock::new(),
            resident_share: OnceLock::new(),
            hasher: Hasher::new(config.secret),
            arena: Arena::new(config.workers).in_huge_pages(config.huge_pages),
            stripes: StripeSet::new(config.databases),
            segments,
            sequence: Sequence::default(),
            compression: Compression::new(config.flash.as_ref().map_or(Codec::None, |flash| flash.codec)),
            tier: Tier::new(config.ram_limit, config.limit_of, config.policy, config.workers),
            counters: Counters::new(config.workers),
            last_seen: LastSeen::default(),
            cleaning: Cleaning::default(),
            copies: Copies::default(),
            compaction: Mutex::default(),
            event_sinks: EventSinks::default(),
            latency: Mutex::new(crate::log::read::latency_histogram()),
            read_cost_ns: AtomicU64::new(0),
            warm_next: AtomicUsize::new(STRIPES),
            cold: AtomicU64::new(0),
            owners: Owners::default(),
            expire_cycle: AtomicBool::new(true),
            expired_key_lag_ms: AtomicU64::new(EXPIRED_KEY_LAG_MS),
            keeps_expired_until_ms: AtomicU64::new(0),
            is_replaying: AtomicBool::new(false),
            follows: AtomicBool::new(false),
            loads_commands: AtomicBool::new(false),
            has_deadlines: AtomicBool::new(false),
            force_demote_all: AtomicBool::new(false),
            emptying: AtomicUsize::new(0),
            buried,
            average_ttl: (0..config.databases).map(|_| AtomicU64::new(0)).collect(),
            random: AtomicU64::new(config.seed),
            secret: config.secret,
            drop_queue: Mutex::new(drop_queue),
            wait_counts: WaitCounts::default(),
            cut: RwLock::default(),
            cuts: AtomicU32::new(0),
        })
    }

    pub fn hasher(&self) -> &Hasher {
        &self.hasher
    }

    pub fn databases(&self) -> usize {
        self.stripes.databases()
    }

    pub fn has_flash(&self) -> bool {
        self.segments.count() > 0
    }

    /// Prefetches what [`Store::prefetch`] touches first. Call this for each of its keys, before it.
    #[inline]
    pub fn prefetch_stripe(&self, hash: KeyHash) {
        self.stripes.prefetch(hash.stripe());
    }

    /// Prefetches the memory that look-ups of these keys will touch into the processor's cache. Each step runs for all keys
    /// before the next step, so that the cache misses overlap. This pays off from a handful of keys on. The stripes stay
    /// locked during all steps, a microsecond or two, because locking costs more than a step.
    pub fn prefetch(&self, hashes: impl Iterator<Item = KeyHash>, db: usize) {
        let table_id = self.table_id(db);
        // A stripe that another worker has locked is in the cache already. Two keys of one stripe are rare.
        let mut locked = SmallVec::<[(Guard<'_>, u64); PREFETCH_KEYS_MAX]>::new();
        for hash in hashes {
            let Some(guard) = self.stripes.lock_at_once(hash.stripe()) else { continue };
            if let Some(database) = guard.database(table_id) {
                database.table.prefetch_directory(hash.high);
                locked.push((guard, hash.high));
            }
        }
        let tables = locked.iter().filter_map(|(guard, high)| Some((&guard.database(table_id)?.table, *high)));
        let leaves: SmallVec<[Prefetched<'_>; PREFETCH_KEYS_MAX]> =
            tables.map(|(table, high)| table.prefetch_leaf(high)).collect();
        leaves.iter().for_each(Prefetched::prefetch_object);
    }

    /// Sets which stripes the store owns; at first, all. Commands of clients that need another stripe come back unexecuted
    /// ([`NotHeld::NotOwned`](crate::NotHeld::NotOwned)), and lists leave out its keys, which neither expire nor are evicted. When this
    /// returns, no client's command runs in a stripe that is not owned. Statistics and snapshots have all stripes.
    pub fn set_owned(&self, owns: impl Fn(usize) -> bool) {
        for stripe in 0..STRIPES {
            self.stripe(stripe).owned = owns(stripe);
        }
    }

    /// The number of stripes that the store owns.
    pub fn owned(&self) -> usize {
        (0..STRIPES).filter(|&stripe| self.stripe(stripe).owned).count()
    }

    #[inline]
    pub(crate) fn stripe(&self, stripe: usize) -> Guard<'_> {
        self.stripes.lock(stripe)
    }

    #[inline(always)]
    pub(crate) fn try_stripe(&self, stripe: usize, timeout: Duration) -> Option<Guard<'_>> {
        self.stripes.try_lock(stripe, timeout)
    }

    /// See [`StripeSet::lock_or_skip`].
    pub(crate) fn stripe_or_skip(&self, stripe: usize, timeout: &mut Duration) -> Option<Guard<'_>> {
        self.stripes.lock_or_skip(stripe, timeout)
    }

    /// Called when a stripe could not be locked for a while, because a script holds it.
    pub(crate) fn wait(&self) {
        self.stripes.wait();
    }

    /// Sets the function that a thread calls repeatedly while it waits for a stripe that a script holds. The function must not
    /// use the store.
    pub fn set_waiting(&self, waiting: fn()) {
        self.stripes.set_waiting(waiting);
    }

    /// Sets the function that computes this store's share of the process's resident bytes, for processes with several stores.
    pub fn set_resident(&self, share: ResidentShare) {
        // The first function stays: a store belongs to one server.
        let _ = self.resident_share.set(share);
    }

    pub(crate) fn own_resident(&self, process: u64) -> u64 {
        self.resident_share.get().map_or(process, |share| share(process))
    }

    /// Bytes of RAM held for values.
    pub fn held_bytes(&self) -> u64 {
        self.arena.held_bytes() as u64
    }

    /// Bytes on flash that live values take.
    pub fn flash_live_bytes(&self) -> u64 {
        self.segments.sums().live_bytes
    }

    /// Sets what reads and writes while the caller waits. Required if there is flash.
    pub fn set_blocking(&self, blocking: Arc<dyn Blocking>) {
        let _ = self.blocking.set(blocking);
    }

    /// The caller must hold a stripe's lock.
    #[inline]
    pub(crate) fn table_id(&self, db: usize) -> u32 {
        self.stripes.table_id(db)
    }

    /// Frees databases that were taken out of their stripes: in this thread, or in the lazyfree thread if `lazy`.
    pub(crate) fn drop_databases(&self, taken: Vec<Database>, lazy: bool) {
        if lazy {
            let keys = taken.iter().map(|database| database.table.len() as u64).sum();
            self.counters.add(Counter::LazyFreed, keys);
        }
        match self.me.upgrade() {
            // The receiver lives as long as the lazyfree thread, which ends when this sender is dropped.
            Some(store) if lazy => drop(self.drop_queue.lock().send(Garbage::Databases(store, taken))),
            _ => self.empty(taken),
        }
    }

    /// Frees the databases of one flush in this thread.
    pub(crate) fn empty(&self, databases: Vec<Database>) {
        for mut database in databases {
            database.table.drain(|word| self.release(word));
        }
        self.emptying.fetch_sub(1, Relaxed);
    }

    /// Number of keys whose values are lost: see [`crate::Keyspace::lose`].
    pub fn lost_keys(&self) -> u64 {
        self.segments.lost()
    }

    /// Whether the key's value is lost.
    pub fn is_lost(&self, db: usize, name: &[u8]) -> bool {
        let key = self.hasher.key(name);
        let stripe = self.stripe(key.hash.stripe());
        let found =
            stripe.database(self.table_id(db)).and_then(|database| Some(database.table.word(database.find(&key)?)));
        found.is_some_and(|word| !word.is_hot() && word.place().is_lost())
    }

    /// Frees the memory that an entry held. The entry has left its table.
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

    /// Frees an object that no entry holds.
    pub(crate) fn free(&self, object: Object) {
        if let Some(value) = object.free(&self.arena) {
            self.bury(value);
        }
    }

    fn bury(&self, value: Box<Boxed>) {
        if value.mem_bytes() > BURY_BYTES {
            self.buried.fetch_add(1, Relaxed);
            let _ = self.drop_queue.lock().send(Garbage::Value(value));
        }
    }

    /// Whether some records on flash may still count as live although they belong to no key any more, because their
    /// values are not freed yet.
    pub(crate) fn has_unfreed(&self) -> bool {
        self.emptying.load(Relaxed) > 0 || self.buried.load(Acquire) > 0
    }

    /// For tests: the lazyfree thread frees nothing until the result is dropped.
    #[doc(hidden)]
    pub fn hold_lazyfree(&self) -> mpsc::Sender<()> {
        let (hold, held) = mpsc::channel();
        let _ = self.drop_queue.lock().send(Garbage::Hold(held));
        hold
    }

    /// The exact number of keys of a logical database. Waits for every stripe; use [`Store::census`] for statistics.
    pub fn len(&self, db: usize) -> u64 {
        self.sum(db, |database| database.table.len())
    }

    /// The exact number of keys of a logical database whose value is in RAM. Waits for every stripe.
    pub fn hot(&self, db: usize) -> u64 {
        self.sum(db, |database| database.hot)
    }

    /// The number of keys, for statistics. For a stripe that a script holds, the last known numbers count.
    pub fn census(&self) -> Census {
        self.last_seen.census(&self.stripes)
    }

    /// The exact number of keys of a logical database whose value is on flash only. Waits for every stripe.
    pub(crate) fn cold(&self, db: usize) -> u64 {
        self.sum(db, Database::cold)
    }

    fn sum(&self, db: usize, of: impl Fn(&Database) -> usize) -> u64 {
        (0..STRIPES)
            .map(|stripe| {
                let stripe = self.stripe(stripe);
                stripe.database(self.table_id(db)).map_or(0, |database| of(database) as u64)
            })
            .sum()
    }

    /// The average time to live in milliseconds. 0: unknown.
    pub fn average_ttl(&self, db: usize) -> u64 {
        self.average_ttl[self.table_id(db) as usize].load(Relaxed)
    }

    /// SplitMix64 over a counter. Good enough to choose a random key. The seed makes the sequence different at each start.
    pub(crate) fn next_random(&self) -> u64 {
        mix(self.random.fetch_add(GAMMA, Relaxed))
    }

    pub(crate) fn dictionary(&self, id: u32) -> Option<Arc<Dictionary>> {
        self.compression.get(id)
    }

    /// Sets the codec for new records. Records already on flash stay unchanged.
    pub fn set_codec(&self, codec: Codec) {
        self.compression.set_codec(codec);
    }

    /// Switches the expiry sweep on or off, for DEBUG SET-ACTIVE-EXPIRE.
    pub fn set_active_expire(&self, on: bool) {
        self.expire_cycle.store(on, Relaxed);
    }

    /// Sets how long after its expiry a key may stay on flash.
    pub fn set_expired_key_lag(&self, ms: u64) {
        self.expired_key_lag_ms.store(ms, Relaxed);
    }

    /// The error for a command that needs memory while [`Store::admission`] is `Full`. Clients know its first sentence from Redis.
    pub fn refusal(&self) -> &'static str {
        match (self.tier.full(), self.has_flash()) {
            (Full::Ram, true) => RAM_IS_FULL,
            (Full::Flash, _) => FLASH_IS_FULL,
            _ => MEMORY_IS_FULL,
        }
    }

    // --- snapshots and checkpoints ---

    /// Must be called before an entry changes, unless the entry only moves between the tiers, while its stripe is
    /// locked: a running snapshot may still need the entry as it is.
    #[inline]
    pub(crate) fn keep(&self, database: &mut Database, slot: Slot, stripe: usize, table_id: u32) {
        if database.table.is_cut() {
            self.keep_now(database, slot, stripe, table_id);
        }
    }

    #[cold]
    fn keep_now(&self, database: &mut Database, slot: Slot, stripe: usize, table_id: u32) {
        if database.table.keep(slot)
            && let Some(cut) = &*self.cut.read()
        {
            cut.keep(self, database.table.entry(slot), stripe, table_id);
        }
    }

    /// Sets whether emptied segments are held back until a checkpoint that was cut after their emptying is durable.
    pub fn set_quarantine(&self, on: bool) {
        self.segments.set_quarantine(on);
    }

    /// Sets which snapshot is running. Meanwhile emptied segments are not reused, because the snapshot may still
    /// read them.
    pub(crate) fn set_snapshot(&self, running: Option<SnapshotKind>) {
        self.segments.set_snapshot(running);
    }

    /// Whether a checkpoint should be written now, because emptied segments wait for it.
    pub fn wants_checkpoint(&self) -> bool {
        self.segments.wants_checkpoint()
    }

    /// Whether the log has no space for writes while emptied segments wait for a checkpoint.
    pub fn is_short_of_segments(&self) -> bool {
        self.segments.quarantined_count() > 0 && matches!(self.segments.room(), LogSpace::Waiting | LogSpace::Full)
    }

    /// Called at the cut of a checkpoint. Returns the cut's number for [`Store::checkpoint_durable`].
    pub fn checkpoint_cut(&self) -> u64 {
        self.segments.cut()
    }

    /// Frees the segments that were emptied before this cut.
    pub fn checkpoint_durable(&self, cut: u64) {
        self.segments.durable(cut);
    }

    /// Before this time an expired key is not removed and no event announces its expiry. Commands do not see the key.
    pub fn keep_expired_until(&self, ms: u64) {
        self.keeps_expired_until_ms.store(ms, Relaxed);
    }

    pub(crate) fn keeps_expired(&self, now_ms: u64) -> bool {
        now_ms < self.keeps_expired_until_ms.load(Relaxed)
            || self.follows.load(Relaxed)
            || self.loads_commands.load(Relaxed)
    }

    /// Sets whether commands are being loaded from a file. The file contains its own removals of expired keys, so
    /// meanwhile expired keys are not removed.
    pub fn set_loads_commands(&self, on: bool) {
        self.loads_commands.store(on, Relaxed);
    }

    /// Sets whether the dataset is a replica. The primary decides when a key expires: until the primary's removal
    /// arrives, an expired key is not removed, and commands do not see it.
    pub fn set_follows(&self, on: bool) {
        self.follows.store(on, Relaxed);
    }

    /// See [`Store::set_follows`].
    pub fn follows(&self) -> bool {
        self.follows.load(Relaxed)
    }

    /// Whether background work removes expired keys, without a command that accesses them.
    pub(crate) fn expires_actively(&self, now_ms: u64) -> bool {
        self.expire_cycle.load(Relaxed) && !self.keeps_expired(now_ms) && !self.is_replaying.load(Relaxed)
    }

    /// Sets whether a journal is being replayed. Meanwhile only commands remove expired keys: each runs at its recorded
    /// time, which is before the lanes' time, and the journal contains what the lanes have removed.
    pub fn set_replaying(&self, on: bool) {
        self.is_replaying.store(on, Relaxed);
    }

    /// Whether a lane may remove a key with this expiry now.
    pub(crate) fn lane_removes(&self, expiry: Option<u64>, now_ms: u64) -> bool {
        self.removes(expiry, now_ms) && !self.is_replaying.load(Relaxed)
    }

    /// Whether a key with this expiry must be removed now.
    pub(crate) fn removes(&self, expiry: Option<u64>, now_ms: u64) -> bool {
        expiry.is_some_and(|expiry| expiry <= now_ms) && !self.keeps_expired(now_ms)
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    #[inline]
    pub fn admission(&self) -> Admission {
        match self.tier.admission(&self.arena) {
            // During a replay the replaying thread itself takes the checkpoint that frees segments, so it must not wait
            // for it here. Until then RAM takes the values that wait for flash. A replica's checkpoint waits for the commands of the
            // primary that are under way; before the next ones, the replica asks `waits_for_checkpoint`.
            Admission::Slow if self.repeats() && self.is_short_of_segments() => Admission::Open,
            admission => admission,
        }
    }

    fn repeats(&self) -> bool {
        self.is_replaying.load(Relaxed) || self.follows()
    }

    /// Whether only a checkpoint can make room for more, because it frees the segments that values in RAM wait for.
    pub fn waits_for_checkpoint(&self) -> bool {
        self.tier.admission(&self.arena) == Admission::Slow && self.is_short_of_segments()
    }

    // --- memory beside the objects that clients borrow ---

    /// Counts and logs that the value at this place cannot be read. `read`: the bytes that the device returned. `name`:
    /// the key's name, if it is known.
    pub(crate) fn found_lost(
        &self,
        place: PageAddress,
        read: &[u8],
        lost: Lost,
        name: Option<&[u8]>,
        error: &ReadError,
    ) {
        let is_unread = matches!(error, ReadError::Io(_));
        self.counters.add(if is_unread { Counter::ReadErrors } else { Counter::ChecksumErrors }, 1);
        let count = self.segments.read_pages(place);
        let mut pages: Vec<u32> = match is_unread {
            true => (place.page..place.page + count).collect(),
            false => scan(read, self.segments.stamp(place.page))
                .filter_map(|(at, page)| page.is_err().then_some(place.page + at))
                .collect(),
        };
        if pages.is_empty() {
            // The pages are intact, but the record is not in them.
            pages.push(place.page);
        }
        self.found_rot(pages);
        self.counters.add(Counter::RottenKeys, u64::from(self.segments.rot.add_key(lost)));
        let (path, offset) = self.segments.location(place.page);
        tracing::error!(
            path,
            offset,
            key = name.map(|name| tracing::field::display(name.escape_ascii().to_string())),
            "flash read failed: {error}; the key answers with an error until it is set again"
        );
    }

    /// Counts these pages as damaged, each page once.
    pub(crate) fn found_rot(&self, pages: impl IntoIterator<Item = u32>) {
        self.counters.add(Counter::RottenPages, self.segments.rot.add_pages(pages));
    }

    /// Counts memory as lent without a check for room, because the memory is in use already, or is too little to wait
    /// for.
    pub fn lend(&self, bytes: usize) {
        self.tier.lent.add(bytes);
        self.tier.renew_budget();
    }

    /// Lends memory if there is room for it: within what may be lent, and beside the objects.
    pub fn try_lend(&self, bytes: usize) -> bool {
        self.try_lend_with_room(bytes, 0)
    }

    /// Like [`Store::try_lend`], and reserves room for objects of `room` bytes, which the borrower is about to make,
    /// until [`Store::give_up_room`].
    pub fn try_lend_with_room(&self, bytes: usize, room: usize) -> bool {
        let lent = &self.tier.lent;
        if room > 0 && !lent.may_keep(bytes, room) {
            return false;
        }
        // The objects' budget is already smaller by the bytes that [`Store::want_to_lend`] has announced.
        let max = match self.tier.admission_of((bytes + room).saturating_sub(lent.wanted()), &self.arena) {
            Admission::Open => lent.max(),
            // Objects cannot leave RAM, so waiting would not help: lend within the margin of the RAM limit.
            Admission::Full if room == 0 => self.margin_bytes(),
            Admission::Slow | Admission::Full => return false,
        };
        let is_lent = self.lend_up_to(bytes, max);
        if is_lent && room > 0 {
            lent.add_room(room);
            self.tier.renew_budget();
        }
        is_lent
    }

    /// Sets what the allocator has and nobody uses, for the time that somebody waits for memory; 0 for any other time.
    pub fn set_unused_bytes(&self, bytes: u64) {
        self.tier.lent.set_unused(bytes);
    }

    /// How many bytes other borrowers must give back before `bytes` can be lent and `room` be reserved.
    pub fn missing_to_lend(&self, bytes: usize, room: usize) -> usize {
        self.tier.lent.missing(bytes, room)
    }

    /// Lends memory that its borrower could do without, if there is room for it and enough is left for others.
    pub fn try_lend_spare(&self, bytes: usize) -> bool {
        let max = self.tier.lent.max();
        self.lent_bytes() + bytes <= max - max / SPARE_LEFT_PART && self.try_lend(bytes)
    }

    /// Ends a reservation of [`Store::try_lend_with_room`]: the objects are made, or will not be made.
    pub fn give_up_room(&self, room: usize) {
        self.tier.lent.sub_room(room);
        self.tier.renew_budget();
    }

    /// Like [`Store::try_lend`], for a borrower that cannot wait until objects have left RAM: it may use the margin of
    /// the RAM limit.
    pub fn try_lend_now(&self, bytes: usize) -> bool {
        self.try_lend(bytes) || self.lend_up_to(bytes, self.margin_bytes())
    }

    /// How much the margin of the RAM limit allows to lend, however many objects there are.
    fn margin_bytes(&self) -> usize {
        self.tier.lent.max().min((to_usize(self.tier.ram_limit()) / 8).max(LENT_BYTES_MIN))
    }

    fn lend_up_to(&self, bytes: usize, max: usize) -> bool {
        let has_room = self.tier.lent.try_add(bytes, max);
        if has_room {
            self.tier.renew_budget();
        }
        has_room
    }

    pub fn take_back(&self, bytes: usize) {
        self.tier.lent.sub(bytes);
    }

    /// Sets how many bytes the next borrower waits for, so that objects leave RAM to make room for it. 0: no borrower
    /// waits.
    pub fn want_to_lend(&self, bytes: usize) {
        self.tier.lent.want(bytes);
        self.tier.renew_budget();
    }

    /// How much may be lent now without waiting for objects.
    pub fn lendable_bytes(&self) -> usize {
        let lent = &self.tier.lent;
        let free = |max: usize| max.saturating_sub(lent.bytes());
        // A part of this comes from the RAM limit's margin, before objects have made room.
        free(lent.max()).min(free(lent.max() / 8).saturating_add(self.tier.room(&self.arena)))
    }

    pub fn lent_bytes(&self) -> usize {
        self.tier.lent.bytes()
    }

    /// 0: no limit.
    pub fn ram_limit(&self) -> u64 {
        self.tier.ram_limit()
    }

    /// The most that may be lent now.
    pub fn lent_bytes_max(&self) -> usize {
        self.tier.lent.max()
    }

    /// The most that may ever be lent: a request for more is refused at once. `usize::MAX`: no limit.
    pub fn lent_bytes_ever_max(&self) -> usize {
        self.tier.lent.ever_max()
    }

    /// Sets the operator's limit for lent memory.
    pub fn cap_lent(&self, bytes: usize) {
        self.tier.lent.set_cap(bytes);
        self.tier.renew_lent();
    }

    // --- the size of flash ---

    /// Sets the size of flash. Growing takes effect at once: the files must already have the length that
    /// [`Store::flash_bytes_for`] returns. Shrinking is refused if the live data would not fit, unless the policy evicts.
    /// Otherwise the workers' maintenance moves the records behind the new end. The caller may cut the files to
    /// [`Store::flash_bytes_needed`] at any time. Another size may be set before the shrinking is complete.
    pub fn resize_flash(&self, bytes: u64) -> Result<(), ResizeError> {
        let segments = &self.segments;
        if segments.resize(bytes, self.evicts())? {
            self.tier.clear_full(Full::Flash);
            tracing::info!(
                "flash now has {} segments of {}; {} other segments must be emptied first",
                segments.end(),
                human(segments.segment_bytes()),
                segments.count() - segments.end()
            );
        }
        Ok(())
    }

    /// The size of flash.
    pub fn flash_bytes(&self) -> u64 {
        u64::from(self.segments.end()) * self.segments.segment_bytes()
    }

    /// Limits how much of flash live values may take. `u64::MAX`: no limit but the size of flash.
    pub fn limit_flash_data(&self, bytes: u64) {
        if self.segments.limit_data(bytes) {
            self.segments.weigh(!self.evicts());
            self.tier.clear_full(Full::Flash);
        }
    }

    /// The length that every path's file must have for flash of `bytes` bytes.
    pub fn flash_bytes_for(&self, bytes: u64) -> Result<u64, ResizeError> {
        self.segments.path_bytes_for(bytes)
    }

    /// The bytes of every path's file that are in use, or that may become used at any time.
    pub fn flash_bytes_needed(&self) -> u64 {
        self.segments.path_bytes_needed()
    }

    /// The progress of shrinking. None: flash is not being made smaller.
    pub fn resizing(&self) -> Option<Progress> {
        self.segments.progress()
    }

    /// Whether objects can leave RAM. If not, waiting for room in RAM has no use.
    pub fn can_make_room(&self) -> bool {
        self.has_flash() || self.evicts()
    }

    /// Whether the policy evicts any keys.
    pub(crate) fn evicts(&self) -> bool {
        let policy = self.tier.policy();
        policy.evicts(true) || policy.evicts(false)
    }

    // --- listeners ---

    /// Sets the listener. May be called once.
    pub fn set_listener(&self, listener: Box<dyn Listener>) {
        self.event_sinks.set_listener(listener);
    }

    /// Sets the classes of events that the listener receives.
    pub fn set_event_classes(&self, classes: Class) {
        self.event_sinks.set_event_classes(classes);
    }

    /// Sets whether the listener is called for changes.
    pub fn set_change_events(&self, on: bool) {
        self.event_sinks.set_change_events(on);
    }

    /// Appends the changes to this log from now on. May be called once.
    pub fn set_change_log(&self, log: Arc<dyn ChangeLog>) {
        self.event_sinks.set_change_log(log);
    }

    /// Appends a command's own bytes to the change log. False: it takes effects only, or there is none.
    #[inline]
    pub(crate) fn append_sent(&self, sent: &Sent<'_>) -> bool {
        self.event_sinks.append_sent(sent)
    }

    /// Whether effects are kept. If not, handlers need not state them.
    #[inline]
    pub fn records_effects(&self) -> bool {
        self.wants(Class::EFFECT)
    }

    /// Appends the effects of an outermost command to the change log, while the command's stripes are locked. Then sends the
    /// notifications that waited for these effects.
    #[cold]
    pub(crate) fn publish(&self, effects: &mut Effects) {
        self.event_sinks.append(effects);
        for news in effects.take_news() {
            self.event_sinks.send_news(&news);
            match news.lent_bytes() {
                0 => {}
                bytes => self.take_back(bytes),
            }
        }
        match effects.lent_buffer() {
            0 => {}
            bytes => self.take_back(bytes),
        }
        effects.clear();
    }

    #[inline]
    pub(crate) fn wants(&self, class: Class) -> bool {
        self.event_sinks.wants(class)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Boxed values are outside the arena. Without this loop they would leak when the store is dropped.
        let Store { stripes, arena, .. } = self;
        for stripe in stripes.all_mut() {
            for database in stripe.all_mut() {
                database.table.drain(|word| drop(word.into_object().and_then(|object| object.free(arena))));
            }
        }
    }
}

/// The place on flash of a clean object's copy.
pub(crate) fn clean_place(object: ObjectRef<'_>) -> crate::mem::word::PageAddress {
    clean_word(object).place()
}

/// The cold word of a clean object.
pub(crate) fn clean_word(object: ObjectRef<'_>) -> Word {
    Word(object.place().expect("a clean object knows its place"))
}

impl Database {
    /// Updates the accounted size of a boxed value.
    pub(crate) fn account(&mut self, store: &Store, hash: KeyHash) {
        let is_it = |entry: &Entry| entry.word().agrees(hash) && entry.object().is_some_and(|object| object.is_boxed());
        if let Some(slot) = self.table.find(hash.high, is_it) {
            self.table.entry_mut(slot).hot_mut().account(&store.arena);
        }
    }

    /// Removes the entry and frees its value.
    pub(crate) fn discard(&mut self, store: &Store, slot: Slot) {
        let owned = self.table.remove(slot);
        let word = owned.word();
        self.hot -= usize::from(word.is_hot());
        self.expires -= usize::from(word.has_expiry());
        store.release(owned);
    }

    /// Makes a cold entry hot: `object` is its clean value in RAM.
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

    /// Records the next deadline ([`ObjectRef::next_deadline`]) of a value that came to RAM or was changed.
    #[inline]
    pub(crate) fn note_deadline(&mut self, store: &Store, high: u64, deadline: Option<u64>) {
        if let Some(at_ms) = deadline {
            self.note_deadline_at(store, high, at_ms);
        }
    }

    #[cold]
    fn note_deadline_at(&mut self, store: &Store, high: u64, at_ms: u64) {
        self.keep_deadline(high, at_ms);
        store.has_deadlines.store(true, Relaxed);
    }

    /// Removes from RAM an object that was read for one command only, unless it was changed or another command used it.
    pub(crate) fn pass(&mut self, store: &Store, hash: KeyHash, address: usize) {
        let Some(slot) = self.find_address(hash.high, address) else { return };
        let entry = self.table.entry(slot);
        if !entry.word().is_dirty() && entry.word().frequency() <= 1 {
            let place = entry.hot().place().expect("a clean object knows its place");
            self.force_demote(store, slot, Word(place));
        }
    }

    /// Makes a hot entry cold. `cold` is the word of its copy on flash, which is already counted as live.
    pub(crate) fn force_demote(&mut self, store: &Store, slot: Slot, cold: Word) {
        let hot = self.table.entry_mut(slot).replace(OwnedWord::cold(cold));
        self.hot -= 1;
        store.cold.fetch_add(1, Relaxed);
        store.free(hot.into_object().expect("the entry was hot"));
    }
}
