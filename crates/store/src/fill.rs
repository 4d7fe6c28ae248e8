//! Owns how records become written units: demoted values and relocated records are packed, written, and only then
//! does the index point to flash. Until a write has succeeded the object stays in RAM as it was, so a failed
//! write loses nothing.

use crate::compression::{Compression, TRAINING_BYTES, ZSTD_LEVEL};
use crate::counters::{Counter, Counters};
use crate::hand::{Victim, Writer, write_number};
use crate::hash::KeyHash;
use crate::index::Entry;
use crate::lane::{Flight, Lane, WRITES_IN_FLIGHT_MAX};
use crate::page::{Codec, PageBuilder, Placed, Push, Record, step_of};
use crate::parts::{PARTS_UID, PartName, number_of_place};
use crate::record_kind::RecordKind;
use crate::segment::{Segments, Stream, Unit};
use crate::store::Store;
use crate::word::{Place, Word};
use flash::io::{Done, Op, OpKind, PAGE_BYTES, PageBuf};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use value::Kind;

/// Pages of a write of small records.
const UNIT_PAGES: usize = 64;
const UNIT_PAGES_MIN: usize = 8;
/// A unit is written at the latest when it holds this many records or bytes: they stay in RAM until then.
const UNIT_ITEMS_MAX: usize = 2_048;
const UNIT_RAM_BYTES_MAX: usize = 1 << 20;
/// Nor more than this part of the objects' budget.
const UNIT_BUDGET_PART: usize = 64;

/// Sequence numbers of units.
static SEQUENCE: AtomicU64 = AtomicU64::new(1);

/// A record of a unit that is being filled or written, by its tag.
pub(crate) struct Item {
    pub hash: KeyHash,
    pub uid: u32,
    pub kind: Kind,
    pub expiry: Option<u64>,
    pub origin: Origin,
}

pub(crate) enum Origin {
    /// A dirty object, of so many bytes of RAM, marked with the number of its write.
    Ram { address: usize, write: u32, bytes: usize },
    /// A record of the segment being collected.
    Flash(Place),
    /// A dirty part of a value, of so many bytes.
    Part { name: PartName, write: u32, bytes: usize },
    /// A part's record in the segment being collected.
    FlashPart { name: PartName, from: Place },
}

#[derive(Default)]
pub(crate) struct Items {
    pub items: Vec<Item>,
    pub placed: Vec<Placed>,
}

/// The answer to a record that is to be written.
pub(crate) enum Verdict {
    Taken,
    /// It cannot be written at all (too large): it stays.
    Keep,
    /// No room to write: the slice ends.
    Stop,
}

/// What filling needs of the store.
pub(crate) struct Log<'s> {
    pub segments: &'s Segments,
    pub compression: &'s Compression,
    pub counters: &'s Counters,
}

/// A unit that has got its place, to be written there.
pub(crate) struct Write {
    pub unit: Unit,
    pub buf: PageBuf,
    pub items: Items,
}

/// Buffers for units, kept for the next ones.
#[derive(Default)]
pub(crate) struct UnitBufs(Vec<PageBuf>);

impl UnitBufs {
    fn take(&mut self, pages: usize) -> PageBuf {
        let mut buf = match self.0.pop() {
            Some(buf) if buf.capacity_pages() >= pages => buf,
            _ => PageBuf::new(pages.max(UNIT_PAGES)),
        };
        buf.set_pages(pages);
        buf
    }

    pub fn keep(&mut self, buf: PageBuf) {
        if self.0.len() < 2 && buf.capacity_pages() == UNIT_PAGES {
            self.0.push(buf);
        }
    }
}

/// A stream of units, one of them in the making.
pub(crate) struct Filling {
    stream: Stream,
    builder: PageBuilder,
    items: Vec<Item>,
    ram_bytes: usize,
    /// Filled, but no segment had room for it yet.
    waiting: Option<(PageBuf, Items)>,
    /// Have their places, for the lane to write.
    pub ready: VecDeque<Write>,
    /// Units on their way to flash, and ready ones.
    pub in_flight: usize,
    user_bytes: u64,
    idle_since_ms: u64,
}

impl Filling {
    pub fn new(stream: Stream, codec: Codec) -> Filling {
        Filling {
            stream,
            builder: PageBuilder::new(codec, ZSTD_LEVEL),
            items: Vec::new(),
            ram_bytes: 0,
            waiting: None,
            ready: VecDeque::new(),
            in_flight: 0,
            user_bytes: 0,
            idle_since_ms: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty() && self.waiting.is_none() && self.in_flight == 0
    }

    pub fn blocked(&self) -> bool {
        self.waiting.is_some()
    }

    /// Pages of a unit: where little RAM ends units early, a power of two below that, of which a segment takes whole ones. What
    /// does not fit behind the others is lost until the segment is collected: a quarter of small ones, measured.
    fn unit_pages(&self, log: &Log<'_>, budget: usize) -> usize {
        let most = UNIT_PAGES.min(log.segments.segment_pages as usize);
        match self.stream {
            Stream::Fresh => most.min(1 << (unit_ram_bytes_max(budget) / PAGE_BYTES).max(UNIT_PAGES_MIN).ilog2()),
            Stream::Relocated => most,
        }
    }

    /// Adds a record to the unit, beginning and finishing units as needed. A record with `seq` 0 gets the unit's.
    /// `budget`: bytes that objects may take in RAM.
    pub fn add(
        &mut self,
        log: &Log<'_>,
        bufs: &mut UnitBufs,
        (budget, now_ms): (usize, u64),
        record: &Record<'_>,
        item: Item,
    ) -> Verdict {
        let mut pages = self.unit_pages(log, budget);
        loop {
            if self.blocked() && !self.retry(log) {
                return Verdict::Stop;
            }
            if !self.builder.is_open() {
                self.begin(log, bufs.take(pages), now_ms);
            }
            let tag = self.items.len() as u64;
            let sequence = match record.seq {
                0 => self.builder.sequence(),
                older => older,
            };
            match self.builder.push(&Record { seq: sequence, ..*record }, tag) {
                Push::Taken => {
                    self.user_bytes += (record.key.len() + record.value.len()) as u64;
                    self.items.push(item);
                    return Verdict::Taken;
                }
                Push::Full => self.finish(log, bufs),
                Push::TooLarge { pages: needed } => {
                    if needed > log.segments.segment_pages as usize {
                        return Verdict::Keep;
                    }
                    self.finish(log, bufs);
                    pages = needed;
                }
                Push::Never => return Verdict::Keep,
            }
        }
    }

    fn begin(&mut self, log: &Log<'_>, buf: PageBuf, now_ms: u64) {
        self.builder.set_codec(log.compression.codec());
        self.builder.set_dictionary(log.compression.newest());
        self.builder.begin(buf, SEQUENCE.fetch_add(1, Relaxed), now_ms);
        self.user_bytes = 0;
    }

    /// So many bytes of RAM wait for the unit to be written. Says whether that is enough for one.
    pub fn took(&mut self, bytes: usize, budget: usize, now_ms: u64) -> bool {
        self.ram_bytes += bytes;
        self.idle_since_ms = now_ms;
        self.items.len() >= UNIT_ITEMS_MAX || self.ram_bytes >= unit_ram_bytes_max(budget)
    }

    /// Closes the unit. It is ready to be written, or waits until a segment has room.
    pub fn finish(&mut self, log: &Log<'_>, bufs: &mut UnitBufs) {
        if !self.builder.is_open() {
            return;
        }
        let mut placed = Vec::new();
        let unit = self.builder.finish(&mut placed);
        self.ram_bytes = 0;
        let items = Items { items: std::mem::take(&mut self.items), placed };
        if unit.pages == 0 {
            bufs.keep(unit.buf);
            return;
        }
        let mut buf = unit.buf;
        buf.set_pages(unit.pages);
        log.counters.add(Counter::RecordBytes, self.user_bytes);
        log.counters.add(Counter::RecordStoredBytes, (unit.pages * PAGE_BYTES) as u64);
        self.waiting = Some((buf, items));
        self.retry(log);
    }

    /// A finished unit becomes ready if a segment has room for it.
    pub fn retry(&mut self, log: &Log<'_>) -> bool {
        let Some((buf, items)) = self.waiting.take() else {
            return true;
        };
        let Some(unit) = log.segments.take_unit(self.stream, buf.pages() as u32) else {
            self.waiting = Some((buf, items));
            return false;
        };
        log.counters.add(Counter::FlashWrites, 1);
        log.counters.add(Counter::FlashWriteBytes, buf.len() as u64);
        self.in_flight += 1;
        self.ready.push_back(Write { unit, buf, items });
        true
    }

    /// Whether a unit was begun and nothing has come to it for a while.
    pub fn is_idle(&self, now_ms: u64) -> bool {
        const IDLE_MS: u64 = 50;
        !self.items.is_empty() && now_ms >= self.idle_since_ms + IDLE_MS
    }
}

/// RAM that the objects of one unit may take.
fn unit_ram_bytes_max(budget: usize) -> usize {
    UNIT_RAM_BYTES_MAX.min(budget / UNIT_BUDGET_PART)
}

impl Writer for Lane {
    fn value(&mut self, victim: Victim<'_>) -> Verdict {
        let Victim { hash, uid, object: mut written, has_expiry } = victim;
        let object = written.view();
        if self.fill[0].in_flight >= WRITES_IN_FLIGHT_MAX {
            return Verdict::Stop;
        }
        let mut encoded = std::mem::take(&mut self.encoded);
        encoded.clear();
        let value = match object.boxed() {
            Some(boxed) => {
                boxed.encode(&mut encoded);
                &encoded[..]
            }
            None => object.inline().expect("not boxed"),
        };
        let tag = RecordKind { kind: object.kind(), boxed: object.is_boxed(), raw: object.is_raw(), part: false };
        let record = Record {
            key: object.key(),
            value,
            kind: tag.to_byte(),
            db: uid,
            expiry_ms: object.expiry(),
            seq: 0,
            hash: hash.high,
        };
        let bytes = object.ram_bytes();
        let write = write_number();
        let item = Item {
            hash,
            uid,
            kind: object.kind(),
            expiry: record.expiry_ms,
            origin: Origin::Ram { address: object.address(), write, bytes },
        };
        debug_assert_eq!(has_expiry, record.expiry_ms.is_some());
        let verdict = self.add(Stream::Fresh, record, item);
        if matches!(verdict, Verdict::Taken) {
            written.begin_write(write);
            self.taken(bytes);
        }
        self.encoded = encoded;
        verdict
    }

    fn part(&mut self, name: PartName, write: u32, kind: Kind, value: &[u8]) -> Verdict {
        if self.fill[0].in_flight >= WRITES_IN_FLIGHT_MAX {
            return Verdict::Stop;
        }
        let key = name.to_bytes();
        let hash = self.store.hasher.hash(&key);
        let record = Record {
            key: &key,
            value,
            kind: RecordKind::part(kind).to_byte(),
            db: PARTS_UID,
            expiry_ms: None,
            seq: 0,
            hash: hash.high,
        };
        let bytes = value.len();
        let item = Item { hash, uid: PARTS_UID, kind, expiry: None, origin: Origin::Part { name, write, bytes } };
        let verdict = self.add(Stream::Fresh, record, item);
        if matches!(verdict, Verdict::Taken) {
            self.taken(bytes);
        }
        verdict
    }
}

impl Lane {
    /// So many bytes of RAM are on their way to flash.
    fn taken(&mut self, bytes: usize) {
        self.store.tier.writing.fetch_add(bytes, Relaxed);
        if self.fill[0].took(bytes, self.store.tier.budget(), self.now_ms) {
            self.finish_unit(Stream::Fresh);
        }
    }

    /// Adds a record to the stream's unit: see [`Filling::add`].
    pub(crate) fn add(&mut self, stream: Stream, record: Record<'_>, item: Item) -> Verdict {
        let Lane { store, fill, unit_bufs, now_ms, .. } = self;
        let limits = (store.tier.budget(), *now_ms);
        let verdict = fill[stream as usize].add(&store.log(), unit_bufs, limits, &record, item);
        if stream == Stream::Fresh && matches!(verdict, Verdict::Taken) {
            store.sample(&record);
        }
        self.write_ready(stream);
        verdict
    }

    /// Closes the stream's unit and writes it, or keeps it until a segment has room.
    pub(crate) fn finish_unit(&mut self, stream: Stream) {
        let Lane { store, fill, unit_bufs, .. } = self;
        fill[stream as usize].finish(&store.log(), unit_bufs);
        self.write_ready(stream);
    }

    /// Writes a finished unit if a segment has room for it.
    pub(crate) fn retry_unit(&mut self, stream: Stream) -> bool {
        let has_room = self.fill[stream as usize].retry(&self.store.log());
        self.write_ready(stream);
        has_room
    }

    fn write_ready(&mut self, stream: Stream) {
        while let Some(Write { unit, buf, items }) = self.fill[stream as usize].ready.pop_front() {
            if stream == Stream::Fresh {
                self.store.tier.stuck.store(false, Relaxed);
            }
            let (path, offset) = self.store.segments.location(self.store.segments.page(unit, 0));
            let token = self.token(Flight::Write { unit, stream, items });
            self.push(Op { token: token as u64, path, offset, kind: OpKind::Write(buf) });
        }
    }

    /// A unit begun when memory was short is written even if nothing more comes.
    pub(crate) fn flush_fresh_if_idle(&mut self) {
        if self.fill[0].is_idle(self.now_ms) {
            self.finish_unit(Stream::Fresh);
        }
    }

    pub(crate) fn write_done(&mut self, unit: Unit, stream: Stream, items: Items, done: Done) {
        self.fill[stream as usize].in_flight -= 1;
        match done.result {
            Ok(()) => {
                for placed in &items.placed {
                    let page = self.store.segments.page(unit, placed.page.into());
                    self.settle(&items.items[placed.tag as usize], Place { page, step: placed.step });
                }
            }
            Err(error) => {
                self.store.counters.add(Counter::WriteErrors, 1);
                let (path, offset) = self.store.segments.location(self.store.segments.page(unit, 0));
                tracing::error!(
                    path,
                    offset,
                    "flash write failed ({error}): its segment is not written any more, its values stay in RAM"
                );
                self.store.segments.retire(unit);
                for item in &items.items {
                    self.unwritten(item);
                }
                if stream == Stream::Relocated {
                    self.relocation_failed();
                }
            }
        }
        self.store.segments.unit_written(unit);
        if let Some(buf) = done.buf {
            self.unit_bufs.keep(buf);
        }
    }

    /// A record is on flash: its entry points there from now on, unless it has changed meanwhile.
    fn settle(&mut self, item: &Item, place: Place) {
        let store = &self.store;
        store.segments.wrote(place, item.expiry);
        match item.origin {
            Origin::Part { name, write, bytes } => {
                store.tier.writing.fetch_sub(bytes, Relaxed);
                store.with_split(name.id, |value| {
                    if value.part_written(name.number, write, number_of_place(place)) {
                        store.segments.born(place);
                        store.counters.add(Counter::PartDemotions, 1);
                    }
                });
            }
            Origin::FlashPart { name, from } => {
                store.with_split(name.id, |value| {
                    if value.copy_moved(name.number, number_of_place(from), number_of_place(place)) {
                        store.segments.died(from);
                        store.segments.born(place);
                        store.counters.add(Counter::RelocatedRecords, 1);
                    }
                });
            }
            Origin::Ram { address, write, bytes } => {
                let mut stripe = store.stripe(item.hash.stripe());
                let database = stripe.database_mut(item.uid);
                store.tier.writing.fetch_sub(bytes, Relaxed);
                let Some(slot) = database.find_address(item.hash.high, address) else {
                    return;
                };
                let entry = database.table.entry_mut(slot);
                if !entry.hot().is_written_by(write) {
                    return;
                }
                let cold = Word::cold(item.hash, place, item.kind, item.expiry.is_some(), false);
                store.segments.born(place);
                store.counters.add(Counter::DemotionsWritten, 1);
                if entry.word().frequency() == 0 {
                    database.chill(store, slot, cold);
                    return;
                }
                // Somebody used it meanwhile: it stays, clean.
                let mut object = entry.hot_mut();
                object.end_write((self.now_ms / 1000) as u32);
                if object.view().place().is_some() {
                    object.set_place(cold.0);
                } else {
                    entry.set_fields(&store.arena, item.hash.stripe() as u16, item.expiry, Some(cold.0));
                }
                entry.set_dirty(false);
            }
            Origin::Flash(from) => {
                let mut stripe = store.stripe(item.hash.stripe());
                let database = stripe.database_mut(item.uid);
                let found = database.table.find(item.hash.high, |entry| points_to(entry, item.hash, from));
                let Some(slot) = found else { return };
                let entry = database.table.entry_mut(slot);
                if let Some(mut object) = entry.object_mut() {
                    let cold = Word(object.view().place().expect("a clean object knows its place"));
                    object.set_place(cold.with_place(place).0);
                } else {
                    entry.set_place(place);
                }
                store.segments.died(from);
                store.segments.born(place);
                store.counters.add(Counter::RelocatedRecords, 1);
            }
        }
    }

    /// The write of a record failed: a dirty object is an ordinary dirty object again, a relocated one stays
    /// where it was.
    fn unwritten(&mut self, item: &Item) {
        let store = &self.store;
        let (address, write, bytes) = match item.origin {
            Origin::Ram { address, write, bytes } => (address, write, bytes),
            Origin::Part { name, write, bytes } => {
                store.tier.writing.fetch_sub(bytes, Relaxed);
                store.with_split(name.id, |value| value.part_unwritten(name.number, write));
                return;
            }
            Origin::Flash(_) | Origin::FlashPart { .. } => return,
        };
        store.tier.writing.fetch_sub(bytes, Relaxed);
        let mut stripe = store.stripe(item.hash.stripe());
        let database = stripe.database_mut(item.uid);
        if let Some(slot) = database.find_address(item.hash.high, address) {
            let mut object = database.table.entry_mut(slot).hot_mut();
            if object.view().is_written_by(write) {
                object.end_write((self.now_ms / 1000) as u32);
            }
        }
    }
}

/// Whether an entry is cold at `place`, or hot with its clean copy there.
pub(crate) fn points_to(entry: &Entry, hash: KeyHash, place: Place) -> bool {
    let word = entry.word();
    if !word.agrees(hash) {
        return false;
    }
    match entry.object() {
        None => word.place() == place,
        Some(object) => !word.is_dirty() && object.place().is_some_and(|cold| Word(cold).place() == place),
    }
}

/// The place of a record that takes `pages` pages from `page` on.
pub(crate) fn place_of(page: u32, pages: usize) -> Place {
    Place { page, step: step_of(pages) }
}

impl Store {
    /// What filling needs of it.
    fn log(&self) -> Log<'_> {
        Log { segments: &self.segments, compression: &self.compression, counters: &self.counters }
    }

    /// Offers a record to the dictionary's samples. When there are enough, a thread of its own trains.
    fn sample(self: &Arc<Store>, record: &Record<'_>) {
        let Some(samples) = self.compression.offer(record) else { return };
        let store = self.clone();
        let train = move || {
            store.make_room_for_training();
            store.compression.train(samples);
            store.tier.reserve(0, &store.arena);
            store.compression.training_ends();
        };
        if std::thread::Builder::new().name("dictionary".into()).spawn(train).is_err() {
            tracing::warn!("no thread to train a dictionary with; going on without");
        }
    }

    /// Waits until values have left RAM for what training takes, if they do within a second.
    fn make_room_for_training(&self) {
        self.tier.reserve(TRAINING_BYTES, &self.arena);
        for _ in 0..100 {
            std::thread::sleep(Duration::from_millis(10));
            if self.tier.excess(&self.arena) == 0 {
                break;
            }
        }
    }
}
