//! Owns a worker's side of flash I/O: reads that sessions wait for, completions, and the maintenance that keeps
//! the store within its limits. One lane per worker; the driver executes the operations.
//! Never knows sessions: a waiting session holds a [`Ticket`].

mod clean;
mod clock_hand;
mod collect;
mod compact;
mod copies;
mod damage;
mod force_demote;
mod regain;
mod scrub;
mod warm;
mod write;

use crate::counters::Counter;
use crate::keyspace::commit::Leave;
use crate::keyspace::direct::RecordCopy;
use crate::keyspace::{ColdRead, Identity, Named, RecordAt, Resume};
use crate::log::collect::Collect;
use crate::log::fill::{Filling, Items, UNIT_PAGES};
use crate::log::page::{Page, Record, Scratch};
use crate::log::page_bufs::PageBufs;
use crate::log::parts::number_of_place;
use crate::log::read::ReadError;
use crate::log::record_kind::RecordKind;
use crate::log::segment::{SegmentStream, Unit};
use crate::mem::arena::{Cells, SLAB_BYTES};
use crate::mem::hash::KeyHash;
use crate::mem::object::{Object, Parts, clock_at};
use crate::mem::tier::{Admission, Full, LARGE_BYTES};
use crate::mem::word::Word;
use crate::narrow::to_usize;
use crate::store::Store;
use crate::stripe::UPKEEP_TIMEOUT;
use clean::CleanHand;
use clock_hand::{ClockHand, TtlSample};
use collect::{EXPIRY_EVERY_MS, SHRINK_EVERY_MS};
use damage::Search;
use flash::io::{Done, Driver, Op, OpKind, PAGE_BYTES, PageBuf};
use force_demote::Due;
use regain::SegmentTest;
use rustc_hash::FxHashMap;
use scrub::Scrub;
use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Poll, Waker};
use value::Boxed;
use warm::{WARM_EVERY_MS, Warm};

/// A read that is in flight or complete. Dropping the ticket early does no harm.
pub struct Ticket(Rc<RefCell<Pending>>);

impl Ticket {
    /// Whether the value is in RAM only for the command that waited for it: see [`Lane::release`].
    pub fn holds_value(&self) -> bool {
        matches!(self.0.borrow().outcome, Some(Outcome::Passing { .. }))
    }
}

#[derive(Default)]
struct Pending {
    outcome: Option<Outcome>,
    waker: Option<Waker>,
}

impl Pending {
    fn finish(&mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

enum Outcome {
    /// The value is in RAM, or the key no longer exists.
    Done,
    /// The value is in RAM for this command only.
    Passing {
        hash: KeyHash,
        table_id: u32,
        address: usize,
    },
    Named(Identity, Named),
    /// The run that begins at this page; `None`: it could not be read.
    Run(u32, Option<PageBuf>),
    Copied(RecordAt, RecordCopy),
    Failed(ReadError),
}

struct Waiter {
    cold: ColdRead,
    pending: Rc<RefCell<Pending>>,
}

/// An operation in flight.
pub(crate) enum Flight {
    Read {
        page: u32,
        pages: usize,
        waiters: Vec<ReadWaiter>,
    },
    Write {
        unit: Unit,
        stream: SegmentStream,
        items: Items,
    },
    Collect {
        unit: Unit,
    },
    Discard {
        segment: u32,
    },
    /// A step of the test of a segment that had an error.
    Test {
        unit: Unit,
    },
    Scrub {
        unit: Unit,
    },
}

pub(crate) struct ReadWaiter(Waiter);

struct QueuedRead {
    token: usize,
    path: u16,
    offset: u64,
    pages: usize,
}

/// When the worker should call [`Lane::maintain`] again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maintain {
    Now,
    /// At once if the worker has nothing else to do. No command waits for the remaining work.
    AtLeisure,
    After {
        ms: u64,
    },
}

pub struct Lane {
    pub(crate) store: Arc<Store>,
    pub(crate) driver: Option<Box<dyn Driver>>,
    worker: usize,
    pub(crate) now_ms: u64,
    flights: Vec<Option<Flight>>,
    free_tokens: Vec<usize>,
    /// The token of the latest read in flight that begins at this page.
    reading: FxHashMap<u32, usize>,
    done: Vec<Done>,
    /// Reads that wait until the device has fewer operations in flight. They have no buffer yet, because thousands of
    /// clients may wait at once.
    queued: VecDeque<QueuedRead>,
    /// Like `queued`, for large values. They wait for memory too, and small reads do not wait for them.
    queued_large: VecDeque<QueuedRead>,
    /// Large reads in flight.
    large_reads: usize,
    page_bufs: PageBufs,
    pub(crate) scratch: Scratch,
    pub(crate) fill: [Filling; 2],
    pub(crate) unit_bufs: PageBufs,
    trim_due_ms: u64,
    /// Scratch buffer for a boxed value's bytes.
    pub(crate) encoded: Vec<u8>,
    clock_hand: ClockHand,
    /// Scratch buffer for the neighbours of a victim.
    near: Cells,
    /// Slabs that are being emptied.
    sparse: Vec<NonNull<u8>>,
    /// When a slice of demotion last found nothing.
    swept_in_vain_ms: u64,
    expire: ClockHand,
    expire_due_ms: u64,
    expire_ttl: TtlSample,
    /// How many keys the sweep has removed since [`Lane::take_expired`].
    expired: usize,
    /// In the force-demote mode, the keys that expire soon.
    pub(crate) due: BTreeSet<Due>,
    /// The stripe where the sweep for expired hash fields continues.
    expire_fields: usize,
    measure_due_ms: u64,
    expired_segments_due_ms: u64,
    /// Expired keys are not removed and nothing is evicted, because the sink of the effects has no room for more.
    pub(crate) holds_deletions: bool,
    pub(crate) collect: Option<Collect>,
    /// When the next unit may be moved out of a shrinking log.
    pub(crate) shrink_due_ms: u64,
    pub(crate) weigh_due_ms: u64,
    pub(crate) watch_due_ms: u64,
    /// When the next unit may be read to remove expired keys.
    pub(crate) expiry_due_ms: u64,
    pub(crate) evict_due_ms: u64,
    /// The last started collection was to make room, not to shrink the log.
    pub(crate) made_room: bool,
    /// Number of collections for room since expired keys had a turn.
    pub(crate) rooms_made: u32,
    clean: Option<CleanHand>,
    pub(crate) test: Option<SegmentTest>,
    pub(crate) test_due_ms: u64,
    /// The search for what the running collection could not read.
    search: Search,
    pub(crate) scrub: Option<Scrub>,
    pub(crate) scrub_due_ms: u64,
    warm: Option<Warm>,
    warm_due_ms: u64,
    /// Since when no value could leave RAM although some had to. `None`: a value left, or none had to.
    no_victim_since_ms: Option<u64>,
    room: Vec<Waker>,
    /// The latencies of the reads that the store does not know yet.
    read_nanos: Vec<u64>,
    /// For each of these reads, the number of operations that were in flight, summed.
    read_depths: u64,
    statm: Option<std::fs::File>,
    /// Size of the kernel's pages, the unit of `statm`: 4 KiB, on some ARM machines 16 or 64 KiB.
    page_bytes: u64,
}

/// A read of more pages than this is large: it waits until memory for it is lent. Runs have fewer pages.
const LARGE_PAGES: usize = 66;
/// A read of a small record is of one page, or of two if the record is on both. Buffers of this size are kept for reuse.
const SMALL_PAGES: usize = 2;
/// Maximum number of operations that a lane has at the driver. More would only wait in the device's queue, each with a buffer.
const IN_FLIGHT_MAX: usize = 256;
/// Maximum number of writes in flight. Bounds the RAM of objects that are being written.
pub(crate) const WRITES_IN_FLIGHT_MAX: usize = 6;
/// Maximum number of slabs that one slice empties.
const SLICE_SLABS_MAX: usize = 4;
/// Maximum number of leaves that one slice of a sweep visits.
const SLICE_LEAVES_MAX: usize = 128;
/// A lane tells the store the latencies of this many reads at once.
const READS_NOTED: usize = 64;
const MEASURE_EVERY_MS: u64 = 10;
/// Buffers that were not used for so long are freed.
const TRIM_EVERY_MS: u64 = 1_000;
const EXPIRE_EVERY_MS: u64 = 10;
/// Writers get an error after nothing could leave RAM for this time.
const RAM_FULL_AFTER_MS: u64 = 1_000;
/// Maximum number of leaves, and of keys with an expiry, that one slice of the expiry sweep visits.
const EXPIRE_LEAVES_MAX: usize = 256;
const EXPIRE_KEYS_MAX: usize = 2_000;

impl Lane {
    /// Must be called on the worker's own thread.
    pub fn new(store: Arc<Store>, driver: Option<Box<dyn Driver>>, worker: usize) -> Lane {
        crate::mem::arena::set_worker(worker);
        let codec = store.compression.codec();
        assert_eq!(driver.is_some(), store.has_flash());
        Lane {
            store,
            driver,
            worker,
            now_ms: 0,
            flights: Vec::new(),
            free_tokens: Vec::new(),
            reading: FxHashMap::default(),
            done: Vec::new(),
            queued: VecDeque::new(),
            queued_large: VecDeque::new(),
            large_reads: 0,
            page_bufs: PageBufs::new(SMALL_PAGES),
            scratch: Scratch::new(),
            fill: [Filling::new(SegmentStream::Fresh, codec), Filling::new(SegmentStream::Relocated, codec)],
            unit_bufs: PageBufs::new(UNIT_PAGES),
            trim_due_ms: 0,
            encoded: Vec::new(),
            clock_hand: ClockHand::default(),
            near: Cells::new(),
            sparse: Vec::new(),
            swept_in_vain_ms: 0,
            expire: ClockHand::default(),
            expire_due_ms: 0,
            expire_ttl: TtlSample::default(),
            expired: 0,
            due: BTreeSet::new(),
            expire_fields: 0,
            measure_due_ms: 0,
            expired_segments_due_ms: 0,
            collect: None,
            shrink_due_ms: 0,
            weigh_due_ms: 0,
            watch_due_ms: 0,
            expiry_due_ms: 0,
            evict_due_ms: 0,
            holds_deletions: false,
            made_room: false,
            rooms_made: 0,
            clean: None,
            test: None,
            test_due_ms: 0,
            search: Search::default(),
            scrub: None,
            scrub_due_ms: 0,
            warm: None,
            warm_due_ms: 0,
            no_victim_since_ms: None,
            room: Vec::new(),
            read_nanos: Vec::with_capacity(2 * READS_NOTED),
            read_depths: 0,
            statm: std::fs::File::open("/proc/self/statm").ok(),
            page_bytes: kernel_page_bytes(),
        }
    }

    // --- reads ---

    /// Queues a read, or joins a read of the same page in flight. Nothing starts before [`Lane::submit`].
    pub fn read(&mut self, cold: ColdRead) -> Ticket {
        let pending = Rc::new(RefCell::new(Pending::default()));
        let ticket = Ticket(pending.clone());
        let place = cold.word.place();
        if place.is_lost() {
            pending.borrow_mut().outcome = Some(unreadable(&cold, ReadError::Lost));
            return ticket;
        }
        let waiter = ReadWaiter(Waiter { cold, pending });
        let run = waiter.0.cold.run;
        let pages = run.map_or_else(|| self.store.segments.read_pages(place), |run| run.pages) as usize;
        // A run is not merged with other reads: its waiter gets the buffer with the pages.
        if run.is_none()
            && let Some(&token) = self.reading.get(&place.page)
            && let Some(Some(Flight::Read { pages: in_flight, waiters, .. })) = self.flights.get_mut(token)
            && *in_flight >= pages
        {
            waiters.push(waiter);
            self.store.counters.add(Counter::MergedReads, 1);
            return ticket;
        }
        let (path, offset) = self.store.segments.location(place.page);
        let token = self.token(Flight::Read { page: place.page, pages, waiters: vec![waiter] });
        if run.is_none() {
            self.reading.insert(place.page, token);
        }
        self.store.counters.add(Counter::FlashReads, 1);
        self.store.counters.add(Counter::FlashReadBytes, (pages * PAGE_BYTES) as u64);
        let queue = if pages > LARGE_PAGES { &mut self.queued_large } else { &mut self.queued };
        queue.push_back(QueuedRead { token, path, offset, pages });
        ticket
    }

    /// Number of reads that were requested and have not started.
    pub fn queued_reads(&self) -> usize {
        self.queued.len() + self.queued_large.len()
    }

    /// Starts queued reads, as many as may be in flight.
    pub fn submit(&mut self) {
        let Some(driver) = &mut self.driver else { return };
        while driver.in_flight() < IN_FLIGHT_MAX
            && let Some(read) = self.queued.pop_front().or_else(|| {
                let read = self.queued_large.front()?;
                // One large read may always be in flight.
                let bytes = large_read_bytes(read.pages);
                match self.large_reads {
                    0 => self.store.lend(bytes),
                    _ if self.store.try_lend(bytes) => {}
                    _ => return None,
                }
                self.large_reads += 1;
                self.queued_large.pop_front()
            })
        {
            let buf = self.page_bufs.take(read.pages);
            driver.push(Op { token: read.token as u64, path: read.path, offset: read.offset, kind: OpKind::Read(buf) });
        }
        driver.submit();
    }

    /// Whether the read is complete. If a name was read, it goes into `resume`.
    pub fn poll(&mut self, ticket: &Ticket, waker: &Waker, resume: &mut Resume) -> Poll<Result<(), ReadError>> {
        let mut pending = ticket.0.borrow_mut();
        match pending.outcome.take() {
            None => {
                if !pending.waker.as_ref().is_some_and(|held| held.will_wake(waker)) {
                    pending.waker = Some(waker.clone());
                }
                Poll::Pending
            }
            Some(Outcome::Failed(error)) => {
                pending.outcome = Some(Outcome::Failed(error.clone()));
                Poll::Ready(Err(error))
            }
            Some(Outcome::Named(identity, named)) => {
                resume.names.insert(identity, named);
                pending.outcome = Some(Outcome::Done);
                Poll::Ready(Ok(()))
            }
            Some(Outcome::Run(page, pages)) => {
                if let Some(list) = &mut resume.list {
                    list.has_read(page, pages);
                }
                pending.outcome = Some(Outcome::Done);
                Poll::Ready(Ok(()))
            }
            Some(Outcome::Copied(at, copy)) => {
                if let Some(visit) = &mut resume.visit {
                    visit.copies.insert(at, copy);
                }
                pending.outcome = Some(Outcome::Done);
                Poll::Ready(Ok(()))
            }
            Some(outcome) => {
                pending.outcome = Some(outcome);
                Poll::Ready(Ok(()))
            }
        }
    }

    /// Called after the command that wanted the value. A value that is in RAM only for this command leaves RAM.
    pub fn release(&mut self, ticket: Ticket) {
        let Some(Outcome::Passing { hash, table_id, address }) = ticket.0.borrow_mut().outcome.take() else {
            return;
        };
        let store = &self.store;
        let mut stripe = store.stripe(hash.stripe());
        let database = stripe.database_mut(table_id);
        let Some(slot) = database.find_address(hash.high, address) else {
            return;
        };
        let entry = database.table.entry(slot);
        let word = entry.word();
        // A dirty value was changed. A value that was used more than once is used by another command too.
        if word.is_dirty() || word.frequency() > 1 {
            return;
        }
        let cold = Word(entry.hot().place().expect("a clean object knows its place"));
        database.force_demote(store, slot, cold);
    }

    /// Reads a value while the caller waits. The last resort of a command that never finds all its values in RAM at the same
    /// time.
    pub fn read_now(&mut self, cold: ColdRead, resume: &mut Resume) -> Result<(), ReadError> {
        let ticket = self.read(cold);
        self.submit();
        loop {
            if let Poll::Ready(result) = self.poll(&ticket, Waker::noop(), resume) {
                return result;
            }
            if let Some(driver) = &mut self.driver {
                driver.wait();
            }
            self.complete(self.now_ms);
        }
    }

    // --- completions ---

    pub fn wake_fd(&self) -> Option<RawFd> {
        self.driver.as_ref().and_then(|driver| driver.wake_fd())
    }

    /// Number of operations in flight or queued.
    pub fn in_flight(&self) -> usize {
        self.driver.as_ref().map_or(0, |driver| driver.in_flight()) + self.queued.len() + self.queued_large.len()
    }

    /// Handles completed operations: puts values into RAM, wakes tickets, makes written objects cold. Returns the number of
    /// completed operations.
    pub fn complete(&mut self, now_ms: u64) -> usize {
        self.now_ms = now_ms;
        let Some(driver) = &mut self.driver else {
            return 0;
        };
        let mut done = std::mem::take(&mut self.done);
        driver.reap(&mut done);
        let count = done.len();
        let depth = (driver.in_flight() + count) as u64;
        for done in done.drain(..) {
            let token = to_usize(done.token);
            let flight = self.flights[token].take().expect("a token is in flight until its completion");
            self.free_tokens.push(token);
            match flight {
                Flight::Read { page, waiters, .. } => {
                    self.read_nanos.push(done.nanos);
                    self.read_depths += depth;
                    self.read_done(page, token, done, waiters);
                }
                Flight::Write { unit, stream, items } => self.write_done(unit, stream, items, done),
                Flight::Collect { unit } => self.collect_read_done(unit, done),
                Flight::Discard { segment } => self.store.segments.freed(segment),
                Flight::Test { unit } => self.test_done(unit, done),
                Flight::Scrub { unit } => self.scrub_read_done(unit, done),
            }
        }
        self.done = done;
        if count > 0 {
            if self.read_nanos.len() >= READS_NOTED {
                self.note_reads();
            }
            self.submit();
            self.wake_writers();
        }
        count
    }

    /// Adds the latencies of the last reads to the store's. The lane does so for many at once, because a lock costs more than an
    /// element.
    fn note_reads(&mut self) {
        let depth = std::mem::take(&mut self.read_depths) / self.read_nanos.len() as u64;
        let mut latency = self.store.latency.lock();
        self.read_nanos.iter().for_each(|&nanos| latency.saturating_record(nanos));
        drop(latency);
        let middle = self.read_nanos.len() / 2;
        let (_, &mut median, _) = self.read_nanos.select_nth_unstable(middle);
        self.store.note_reads(median, depth);
        self.read_nanos.clear();
    }

    fn read_done(&mut self, page: u32, token: usize, done: Done, waiters: Vec<ReadWaiter>) {
        if self.reading.get(&page) == Some(&token) {
            self.reading.remove(&page);
        }
        let buf = done.buf.expect("a read brings its buffer back");
        if buf.capacity_pages() > LARGE_PAGES {
            self.large_reads -= 1;
            self.store.take_back(large_read_bytes(buf.capacity_pages()));
        }
        if let [ReadWaiter(Waiter { cold: ColdRead { run: Some(run), .. }, pending })] = &waiters[..] {
            pending.borrow_mut().finish(Outcome::Run(run.page, done.result.is_ok().then_some(buf)));
            return;
        }
        let opened = match done.result {
            Ok(()) => Page::open(&buf, self.store.segments.stamp(page)).map_err(ReadError::Corrupt),
            Err(error) => Err(ReadError::Io(Arc::new(error))),
        };
        for ReadWaiter(waiter) in waiters {
            let outcome = match &opened {
                Ok(page) => self.take_in(page, &waiter.cold),
                Err(error) => Err(error.clone()),
            };
            let outcome = outcome.unwrap_or_else(|error| self.read_failed(&waiter.cold, &buf, error));
            waiter.pending.borrow_mut().finish(outcome);
        }
        self.scratch.release();
        self.page_bufs.keep(buf);
    }

    /// Finds the wanted record in the page. If its value is wanted, puts it into RAM.
    fn take_in(&mut self, page: &Page<'_>, cold: &ColdRead) -> Result<Outcome, ReadError> {
        let store = &self.store;
        let dictionaries = |id| store.dictionary(id);
        let (hash, table_id) = (cold.hash, cold.table_id);
        if cold.copies {
            let copy = crate::keyspace::direct::copy(store, page, cold, &mut self.scratch)?;
            return Ok(Outcome::Copied(cold.record_at(), copy));
        }
        if let Some(name) = cold.part {
            crate::keyspace::direct::fill_part(store, page, name, cold.word.place(), &mut self.scratch)?;
            return Ok(Outcome::Done);
        }
        if cold.warms {
            return match Lane::find_to_warm(store, page, cold, &mut self.scratch)? {
                Some(record) => put_in_ram(store, store.hasher.hash(record.key), cold, &record, self.now_ms),
                None => Ok(Outcome::Done),
            };
        }
        let Some(name) = &cold.name else {
            let mut is_it = |record: &Record<'_>| {
                let found = store.hasher.hash(record.key);
                record.db == table_id && found.high == hash.high && cold.word.agrees(found)
            };
            let record = page
                .find_by(hash.high, &mut is_it, &dictionaries, &mut self.scratch)
                .map_err(ReadError::Corrupt)?
                .ok_or(ReadError::Missing)?;
            let named = Named { name: record.key.into(), expiry: record.expiry_ms };
            return Ok(Outcome::Named(cold.identity(), named));
        };
        let record = page
            .find(hash.high, table_id, name, &dictionaries, &mut self.scratch)
            .map_err(ReadError::Corrupt)?
            .ok_or(ReadError::Missing)?;
        if record.value.len() > LARGE_BYTES {
            store.tier.moves_large(record.value.len(), self.now_ms);
        }
        put_in_ram(store, hash, cold, &record, self.now_ms)
    }

    /// The outcome of a failed read. The error counts only if the key's record is still at the place that was read.
    fn read_failed(&self, cold: &ColdRead, read: &[u8], error: ReadError) -> Outcome {
        let store = &self.store;
        if let Some(name) = cold.part {
            let place = number_of_place(cold.word.place());
            if store.with_split(name.id, |value| value.has_copy(name.number, place)) != Some(true) {
                return Outcome::Done;
            }
        } else {
            let mut stripe = store.stripe(cold.hash.stripe());
            if stripe.database_mut(cold.table_id).find_cold(cold.hash, cold.word).is_none() {
                return Outcome::Done;
            }
        }
        store.found_lost(cold.word.place(), read, cold.lost(), cold.name.as_deref(), &error);
        unreadable(cold, error)
    }

    // --- maintenance ---

    /// Whether [`Lane::maintain`] has something to do now. Cheap enough to call after every batch.
    #[inline]
    pub fn wants_maintenance(&self) -> bool {
        self.store.tier.excess(&self.store.arena) > 0 && !self.sweeps_in_vain()
    }

    /// Whether maintenance should run at once after a completion. True during a collection and while a command waits for room, so
    /// that each step follows the previous one without delay.
    pub fn is_pressed(&self) -> bool {
        let shrinks = self.store.segments.shrinks();
        self.collect.is_some() || self.cleans() || shrinks || !self.room.is_empty() || self.wants_maintenance()
    }

    /// Whether demotion pauses until the next millisecond: the last slice found no value that can leave RAM, and no
    /// command waits for room.
    fn sweeps_in_vain(&self) -> bool {
        self.swept_in_vain_ms == self.now_ms && self.room.is_empty()
    }

    /// Sets whether the next slices may not remove expired keys nor evict. A collection that has begun continues.
    pub fn hold_deletions(&mut self, holds: bool) {
        self.holds_deletions = holds;
    }

    /// Runs slices of demotion, collection and expiry, in some hundred microseconds at most.
    pub fn maintain(&mut self, now_ms: u64) -> Maintain {
        self.now_ms = now_ms;
        if now_ms >= self.measure_due_ms {
            self.measure_due_ms = now_ms + MEASURE_EVERY_MS;
            self.measure();
        }
        if now_ms >= self.trim_due_ms {
            self.trim_due_ms = now_ms + TRIM_EVERY_MS;
            self.page_bufs.trim();
            self.unit_bufs.trim();
        }
        if !self.due.is_empty() && !self.holds_deletions {
            self.expire_due();
        }
        let mut more = !self.holds_deletions && self.expire_slice();
        more |= self.evacuate_slice();
        // Without flash, demotion is eviction.
        if self.store.has_flash() || !self.holds_deletions {
            more |= self.demote_slice();
        }
        let (mut cleans, mut warms) = (false, false);
        if self.store.has_flash() {
            more |= self.collect_slice();
            more |= self.drop_copies_slice();
            cleans = self.clean_slice();
            self.test_slice();
            self.scrub_slice();
            warms = self.warm_slice();
            self.submit();
        }
        self.wake_writers();
        match (more, self.room.is_empty()) {
            (true, _) => Maintain::Now,
            // Another worker may make room.
            (false, false) => Maintain::After { ms: 1 },
            (false, true) if cleans => Maintain::AtLeisure,
            (false, true) if warms => Maintain::After { ms: WARM_EVERY_MS },
            (false, true) if self.store.segments.shrinks() => Maintain::After { ms: SHRINK_EVERY_MS },
            (false, true) if self.collect.is_some() => Maintain::After { ms: EXPIRY_EVERY_MS },
            (false, true) => Maintain::After { ms: MEASURE_EVERY_MS },
        }
    }

    fn measure(&mut self) {
        use std::os::unix::fs::FileExt;
        let mut text = [0u8; 128];
        let Some(length) = self.statm.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()) else {
            return;
        };
        if let Some(process) = resident_bytes(&text[..length], self.page_bytes) {
            let resident = self.store.own_resident(process);
            self.store.tier.measured(resident, &self.store.arena, self.now_ms);
        }
        self.evacuate_if_sparse();
    }

    /// Starts emptying half-empty slabs, whose memory is freed by moving their objects together.
    fn evacuate_if_sparse(&mut self) {
        let (arena, budget) = (&self.store.arena, self.store.tier.budget());
        if budget == usize::MAX || arena.evacuating() > 0 {
            return;
        }
        let (used, free, wanted) = (arena.used_bytes(), arena.free_bytes(), self.store.tier.slabs_to_empty(arena));
        if wanted > 0 && free >= wanted {
            // Choose slabs below the average fill, so that their objects fit into the other slabs.
            self.sparse = arena.evacuate(used * 100 / (used + free) + 2, wanted / SLAB_BYTES + 1);
            self.store.tier.crowded.store(self.sparse.is_empty(), Relaxed);
        }
    }

    /// Moves objects out of sparse slabs, some at a time.
    fn evacuate_slice(&mut self) -> bool {
        let mut cells = std::mem::take(&mut self.near);
        for _ in 0..SLICE_SLABS_MAX.min(self.sparse.len()) {
            let Some(slab) = self.sparse.pop() else { break };
            cells.clear();
            self.store.arena.evacuated_cells(slab, &mut cells);
            if !ClockHand::sweep_evacuated(&self.store, &cells) {
                // An object that is being written keeps its slab. So write the unit now, without waiting until it is full.
                self.finish_unit(SegmentStream::Fresh);
                self.sparse.insert(0, slab);
                self.near = cells;
                return self.admission() == Admission::Slow;
            }
        }
        self.near = cells;
        !self.sparse.is_empty()
    }

    fn demote_slice(&mut self) -> bool {
        let store = self.store.clone();
        let excess = store.tier.excess(&store.arena);
        if excess == 0 {
            self.report_full_ram(false);
            // This sweep did not look for victims, so it does not count as fruitless.
            store.tier.progress();
            self.flush_fresh_if_idle();
            return false;
        }
        if self.sweeps_in_vain() {
            return false;
        }
        let goal = (excess / 8).clamp(16 << 10, 512 << 10);
        let before = store.tier.writing.load(Relaxed);
        let mut freed = 0;
        let mut stopped = false;
        let mut hand = self.clock_hand;
        let mut near = std::mem::take(&mut self.near);
        let mut timeout = UPKEEP_TIMEOUT;
        for _ in 0..SLICE_LEAVES_MAX {
            let written = store.tier.writing.load(Relaxed).saturating_sub(before);
            if freed + written >= goal {
                break;
            }
            let now_ms = self.now_ms;
            let mut slice = hand.sweep_leaf(&store, now_ms, &mut timeout, &mut near, self);
            if !slice.stopped && !near.is_empty() {
                freed += slice.freed;
                slice = hand.sweep_near(&store, &near, self);
            }
            freed += slice.freed;
            if slice.stopped {
                stopped = true;
                break;
            }
        }
        self.near = near;
        self.clock_hand = hand;
        // Enough writes are in flight, and the next completion continues the sweep; or flash has no segment for them. Looking for one again and again
        // would take the processors from the checkpoint that frees some.
        let waits = stopped && (self.fill[0].in_flight > 0 || self.fill[0].blocked());
        if !waits && freed == 0 && store.tier.writing.load(Relaxed) <= before {
            self.swept_in_vain_ms = self.now_ms;
        }
        if store.tier.fruitless() > crate::mem::hash::STRIPES {
            // A whole round found no more values for this unit, so write it as it is.
            self.finish_unit(SegmentStream::Fresh);
        }
        // After five rounds every frequency is zero, so the remaining values cannot leave RAM.
        let barren = store.tier.fruitless() > 5 * crate::mem::hash::STRIPES && store.tier.writing.load(Relaxed) == 0;
        self.report_full_ram(barren);
        !barren && !waits
    }

    /// Notifies writers if RAM is full of data that cannot leave it. With flash this waits a while, because the
    /// objects' budget may be small for a moment, when clients' buffers or a training take memory.
    fn report_full_ram(&mut self, barren: bool) {
        let tier = &self.store.tier;
        if !barren {
            self.no_victim_since_ms = None;
            if tier.fruitless() == 0 {
                tier.clear_full(Full::Ram);
            }
            return;
        }
        let since_ms = *self.no_victim_since_ms.get_or_insert(self.now_ms);
        if !self.store.has_flash() || self.now_ms >= since_ms + RAM_FULL_AFTER_MS {
            tier.set_full(Full::Ram);
        }
    }

    /// The number of keys that the sweep has removed since the last call.
    pub fn take_expired(&mut self) -> usize {
        std::mem::take(&mut self.expired)
    }

    fn expire_slice(&mut self) -> bool {
        if self.now_ms < self.expire_due_ms || !self.store.expires_actively(self.now_ms) {
            return false;
        }
        // One worker is enough for the expiry sweep, because removing is much cheaper than serving.
        if self.worker != 0 {
            self.expire_due_ms = self.now_ms + EXPIRE_EVERY_MS;
            return false;
        }
        let (mut seen, mut expired) = (0, 0);
        let mut timeout = UPKEEP_TIMEOUT;
        for _ in 0..EXPIRE_LEAVES_MAX {
            let (had, went) = self.expire.expire_leaf(&self.store, self.now_ms, &mut timeout, &mut self.expire_ttl);
            seen += had;
            expired += went;
            if self.expire.at_stripe_start() && self.expire.stripe() == 0 {
                self.expire_ttl.publish(&self.store);
                break;
            }
            if seen >= EXPIRE_KEYS_MAX {
                break;
            }
        }
        self.expire_fields = self.store.expire_fields(self.expire_fields, self.now_ms, EXPIRE_KEYS_MAX);
        self.expired += expired;
        let many = expired * 10 > seen || self.expire_fields > 0;
        if !many {
            self.expire_due_ms = self.now_ms + EXPIRE_EVERY_MS;
        }
        many
    }

    // --- back-pressure ---

    /// Whether a command that needs memory may run.
    #[inline]
    pub fn admission(&self) -> Admission {
        self.store.admission()
    }

    /// Ready when writers may continue, or must get an error because there is no room.
    pub fn poll_room(&mut self, waker: &Waker) -> Poll<()> {
        if self.admission() != Admission::Slow {
            return Poll::Ready(());
        }
        if !self.room.iter().any(|held| held.will_wake(waker)) {
            self.room.push(waker.clone());
        }
        Poll::Pending
    }

    pub(crate) fn wake_writers(&mut self) {
        if !self.room.is_empty() && self.admission() != Admission::Slow {
            self.room.drain(..).for_each(Waker::wake);
        }
    }

    // --- operations ---

    pub(crate) fn token(&mut self, flight: Flight) -> usize {
        match self.free_tokens.pop() {
            Some(token) => {
                self.flights[token] = Some(flight);
                token
            }
            None => {
                self.flights.push(Some(flight));
                self.flights.len() - 1
            }
        }
    }

    pub(crate) fn push(&mut self, op: Op) {
        self.driver.as_mut().expect("values are cold only where there is flash").push(op);
    }

    /// Waits for all operations in flight, for shutdown and tests.
    pub fn drain(&mut self) {
        while self.in_flight() > 0 {
            self.submit();
            if let Some(driver) = &mut self.driver {
                driver.wait();
            }
            self.complete(self.now_ms);
        }
    }
}

/// The outcome of a read that failed because of damage. A walk over all keys continues without the name.
fn unreadable(cold: &ColdRead, error: ReadError) -> Outcome {
    match cold.is_for_name() {
        true => Outcome::Named(cold.identity(), Named::unknown()),
        false => Outcome::Failed(error),
    }
}

/// The memory that a large read takes at once: the pages, the record without the pages' headers, and the value that is
/// made from the record.
fn large_read_bytes(pages: usize) -> usize {
    3 * pages * PAGE_BYTES
}

/// The resident bytes of the process, from the text of `/proc/self/statm`.
fn resident_bytes(statm: &[u8], page_bytes: u64) -> Option<u64> {
    let pages: u64 = std::str::from_utf8(statm).ok()?.split(' ').nth(1)?.parse().ok()?;
    Some(pages * page_bytes)
}

fn kernel_page_bytes() -> u64 {
    // SAFETY: sysconf only reads a constant of the system.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).expect("every kernel has pages")
}

/// Puts the value of a cold entry into RAM, if the entry is still there. It stays if RAM has room or if this is its second access.
fn put_in_ram(
    store: &Store,
    hash: KeyHash,
    cold: &ColdRead,
    record: &Record<'_>,
    now_ms: u64,
) -> Result<Outcome, ReadError> {
    let table_id = cold.table_id;
    let tag = RecordKind::from_byte(record.kind).ok_or(ReadError::Missing)?;
    let boxed = match tag.boxed {
        true => Some(Boxed::decode(tag.kind, record.value).map_err(|_| ReadError::Missing)?),
        false => None,
    };
    let mut stripe = store.stripe(hash.stripe());
    let owned = stripe.owned;
    let database = stripe.database_mut(table_id);
    let Some(slot) = database.find_cold(hash, cold.word) else {
        return Ok(Outcome::Done);
    };
    if owned && store.lane_removes(record.expiry_ms, now_ms) {
        store.commit_leave(Leave::expired(table_id, Some(record.key), now_ms), database, slot, None);
        return Ok(Outcome::Done);
    }
    let word = database.table.word(slot);
    let parts = Parts {
        key: record.key,
        kind: tag.kind,
        raw: tag.raw,
        expiry: record.expiry_ms,
        place: Some(word.with_referenced(true).0),
        clock: clock_at(now_ms),
        stripe: hash.stripe_u16(),
    };
    let mut object = match boxed {
        Some(value) => Object::new_boxed(&store.arena, &parts, value),
        None => Object::new(&store.arena, &parts, &[record.value]),
    };
    let stays = !store.is_force_demote() && (word.is_referenced() || store.tier.has_room(&store.arena));
    object.mark_fresh();
    let address = object.view().address();
    database.warm(store, slot, hash, object, u8::from(stays));
    store.counters.add(Counter::FlashValueReads, 1);
    if stays {
        store.counters.add(Counter::Promotions, 1);
        return Ok(Outcome::Done);
    }
    Ok(Outcome::Passing { hash, table_id, address })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bug: on a kernel with 64 KiB pages, RAM was measured sixteen times too low, so the RAM limit was never
    /// reached.
    #[test]
    fn resident_memory_is_counted_in_the_kernels_pages() {
        let statm = b"49184 7731 3920 2511 0 11042 0\n";
        assert_eq!(resident_bytes(statm, 4 << 10), Some(7731 << 12));
        assert_eq!(resident_bytes(statm, 64 << 10), Some(7731 << 16));
        assert_eq!(resident_bytes(b"", 4 << 10), None);
        // The resident size of this process as the kernel reports it in kilobytes.
        let kilobytes = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
        };
        let (before, statm, after) = (kilobytes(), std::fs::read("/proc/self/statm").unwrap(), kilobytes());
        let measured = resident_bytes(&statm, kernel_page_bytes()).unwrap() >> 10;
        // The kernel updates the sum of its per-thread counters with a small delay.
        assert!((before.min(after) / 2..before.max(after) * 2).contains(&measured), "{before} {measured} {after}");
    }
}
