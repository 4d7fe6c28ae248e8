//! Owns how values get to flash: victims and moved records go into units, and when a unit is written the index points to it.
//! Until a write has succeeded the object stays in RAM unchanged, so a failed write loses nothing.
//! Never chooses a victim.

use super::clock_hand::{DirtyPart, Victim, Writer, write_number};
use super::{Flight, Lane, WRITES_IN_FLIGHT_MAX};
use crate::counters::Counter;
use crate::log::compression::TRAINING_BYTES;
use crate::log::fill::{Item, Items, Log, Origin, Verdict, Write};
use crate::log::page::{RECORD_BYTES_MAX, Record};
use crate::log::parts::{PARTS_UID, number_of_place};
use crate::log::record_kind::RecordKind;
use crate::log::segment::{SegmentStream, Unit};
use crate::mem::hash::KeyHash;
use crate::mem::index::Entry;
use crate::mem::object::clock_at;
use crate::mem::tier::{Full, LARGE_BYTES};
use crate::mem::word::{PageAddress, Word};
use crate::narrow::to_usize;
use crate::store::Store;
use flash::io::{Done, Op, OpKind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A buffer for encoding values that has grown beyond this is not kept.
const ENCODED_KEPT_BYTES: usize = 1 << 20;

/// The bytes of objects that may be in flight to flash: each is in memory a second time meanwhile.
fn writing_bytes_max(ram_limit: u64) -> usize {
    (to_usize(ram_limit) / 32).max(8 << 20)
}

impl Writer for Lane {
    fn value(&mut self, victim: Victim<'_>) -> Verdict {
        let Victim { hash, table_id, object: mut written, has_expiry, leaves, is_wanted } = victim;
        let object = written.view();
        let in_flight = self.fill[0].in_flight;
        let writes_much = || self.store.writing() > writing_bytes_max(self.store.tier.ram_limit());
        if in_flight >= WRITES_IN_FLIGHT_MAX || (in_flight > 0 && writes_much()) {
            return Verdict::Stop;
        }
        // It never moves, so there must not be room for its copies: other values, or memory for clients, would lack it.
        if object.inline().is_some_and(|value| object.key().len() + value.len() > RECORD_BYTES_MAX) {
            return Verdict::Keep;
        }
        let is_large = object.ram_bytes() > LARGE_BYTES;
        if is_large && writes_much() {
            self.finish_unit(SegmentStream::Fresh);
            return Verdict::Stop;
        }
        let tier = &self.store.tier;
        // When such a large value moves for the first time, smaller values leave first, to make room for its copies.
        // Only one worker at a time copies a large value.
        if is_large && (!tier.moves_large(object.ram_bytes(), self.now_ms) || tier.copies_large.swap(true, Relaxed)) {
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
            db: table_id,
            expiry_ms: object.expiry(),
            seq: self.store.sequence.take(is_wanted),
            hash: hash.high,
        };
        let bytes = object.ram_bytes();
        let write = write_number();
        let item = Item {
            hash,
            table_id,
            kind: object.kind(),
            expiry: record.expiry_ms,
            origin: Origin::Ram { address: object.address(), write, bytes, leaves },
        };
        debug_assert_eq!(has_expiry, record.expiry_ms.is_some());
        let verdict = self.add(SegmentStream::Fresh, record, item);
        if matches!(verdict, Verdict::Taken) {
            written.begin_write(write);
            self.taken(bytes, leaves);
        }
        if is_large {
            self.store.tier.copies_large.store(false, Relaxed);
        }
        self.encoded = if encoded.capacity() > ENCODED_KEPT_BYTES { Vec::new() } else { encoded };
        verdict
    }

    fn part(&mut self, part: DirtyPart<'_>) -> Verdict {
        let DirtyPart { name, write, kind, bytes: value, leaves } = part;
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
            seq: self.store.sequence.take(false),
            hash: hash.high,
        };
        let bytes = value.len();
        let item =
            Item { hash, table_id: PARTS_UID, kind, expiry: None, origin: Origin::Part { name, write, bytes, leaves } };
        let verdict = self.add(SegmentStream::Fresh, record, item);
        if matches!(verdict, Verdict::Taken) {
            self.taken(bytes, leaves);
        }
        verdict
    }
}

impl Lane {
    /// Counts bytes of RAM that were added to the unit.
    fn taken(&mut self, bytes: usize, leaves: bool) {
        match leaves {
            true => drop(self.store.tier.writing.fetch_add(bytes, Relaxed)),
            false => self.store.cleaning.took(bytes),
        }
        if self.fill[0].took(bytes, self.store.tier.budget(), self.now_ms) {
            self.finish_unit(SegmentStream::Fresh);
        }
    }

    /// Adds a record to the stream's unit: see [`crate::log::fill::Filling::add`].
    pub(crate) fn add(&mut self, stream: SegmentStream, record: Record<'_>, item: Item) -> Verdict {
        let Lane { store, fill, unit_bufs, now_ms, .. } = self;
        let limits = (store.tier.budget(), *now_ms);
        let verdict = fill[stream as usize].add(&store.log(), unit_bufs, limits, &record, item);
        if stream == SegmentStream::Fresh && matches!(verdict, Verdict::Taken) {
            store.sample(&record);
        }
        self.write_ready(stream);
        verdict
    }

    /// Closes the stream's unit and writes it. If no segment has room, the unit waits.
    pub(crate) fn finish_unit(&mut self, stream: SegmentStream) {
        let Lane { store, fill, unit_bufs, .. } = self;
        fill[stream as usize].finish(&store.log(), unit_bufs);
        self.write_ready(stream);
    }

    /// Writes a finished unit if a segment has room for it.
    pub(crate) fn retry_unit(&mut self, stream: SegmentStream) -> bool {
        let has_room = self.fill[stream as usize].retry(&self.store.log());
        self.write_ready(stream);
        has_room
    }

    fn write_ready(&mut self, stream: SegmentStream) {
        while let Some(Write { unit, buf, items }) = self.fill[stream as usize].ready.pop_front() {
            if stream == SegmentStream::Fresh {
                self.store.tier.clear_full(Full::Flash);
            }
            let (path, offset) = self.store.segments.location(self.store.segments.page(unit, 0));
            let token = self.token(Flight::Write { unit, stream, items });
            self.push(Op { token: token as u64, path, offset, kind: OpKind::Write(buf) });
        }
    }

    /// Drops the waiting unit of values if all of them were changed or deleted meanwhile.
    pub(crate) fn give_up_dead_unit(&mut self) {
        let items = self.fill[0].waiting_items();
        if items.is_empty() || items.iter().any(|item| self.store.awaits(item)) {
            return;
        }
        for item in self.fill[0].give_up(&mut self.unit_bufs) {
            self.unwritten(&item);
        }
    }

    /// Writes an incomplete unit if no more values come, because the unit was started while memory was short.
    pub(crate) fn flush_fresh_if_idle(&mut self) {
        if self.fill[0].is_idle(self.now_ms) {
            self.finish_unit(SegmentStream::Fresh);
        }
    }

    pub(crate) fn write_done(&mut self, unit: Unit, stream: SegmentStream, items: Items, done: Done) {
        self.fill[stream as usize].in_flight -= 1;
        match done.result {
            Ok(()) => {
                for placed in &items.placed {
                    let page = self.store.segments.page(unit, placed.page.into());
                    let place = PageAddress { page, step: placed.step };
                    let item = &items.items[to_usize(placed.tag)];
                    self.store.segments.wrote(place, placed.bytes, item.expiry);
                    self.point_to_flash(item, place);
                }
            }
            Err(error) => {
                self.store.counters.add(Counter::WriteErrors, 1);
                let (path, offset) = self.store.segments.location(self.store.segments.page(unit, 0));
                tracing::error!(
                    path,
                    offset,
                    "flash write failed ({error}): the store stops writing to this segment, and the values stay in RAM"
                );
                self.store.segments.retire(unit);
                for item in &items.items {
                    self.unwritten(item);
                }
                if stream == SegmentStream::Relocated {
                    self.relocation_failed();
                }
            }
        }
        self.store.segments.unit_written(unit);
        if let Some(buf) = done.buf {
            self.unit_bufs.keep(buf);
        }
    }

    /// Called for each record of a written unit: makes its entry point to flash, unless the value has changed meanwhile.
    fn point_to_flash(&mut self, item: &Item, place: PageAddress) {
        let store = &self.store;
        match item.origin {
            Origin::Part { name, write, bytes, leaves } => {
                store.written(bytes, leaves);
                store.with_split(name.id, |value| {
                    if value.part_written(name.number, write, number_of_place(place)) {
                        store.segments.born(place);
                        store.counters.add(Counter::PartDemotions, u64::from(leaves));
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
            Origin::Ram { address, write, bytes, leaves } => {
                store.written(bytes, leaves);
                let mut stripe = store.stripe(item.hash.stripe());
                let database = stripe.database_mut(item.table_id);
                let Some(slot) = database.find_address(item.hash.high, address) else {
                    return;
                };
                let entry = database.table.entry_mut(slot);
                if !entry.hot().is_written_by(write) {
                    return;
                }
                // It was used when it came into RAM.
                let cold = Word::cold(item.hash, place, item.kind, item.expiry.is_some(), true);
                store.segments.born(place);
                if leaves {
                    store.counters.add(Counter::DemotionsWritten, 1);
                }
                if leaves && entry.word().frequency() == 0 {
                    database.force_demote(store, slot, cold);
                    return;
                }
                // The object was used meanwhile, or only needed a copy on flash. It stays in RAM and is clean now.
                let mut object = entry.hot_mut();
                object.end_write(clock_at(self.now_ms));
                if object.view().place().is_some() {
                    object.set_place(cold.0);
                } else {
                    entry.set_fields(&store.arena, item.hash.stripe_u16(), item.expiry, Some(cold.0));
                }
                entry.set_dirty(false);
            }
            Origin::Flash(from) => {
                let mut stripe = store.stripe(item.hash.stripe());
                let database = stripe.database_mut(item.table_id);
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

    /// Called for each record of a unit whose write failed: a dirty object becomes an ordinary dirty object again, and a relocated
    /// record stays at its old place.
    fn unwritten(&mut self, item: &Item) {
        let store = &self.store;
        let (address, write, bytes, leaves) = match item.origin {
            Origin::Ram { address, write, bytes, leaves } => (address, write, bytes, leaves),
            Origin::Part { name, write, bytes, leaves } => {
                store.written(bytes, leaves);
                store.with_split(name.id, |value| value.part_unwritten(name.number, write));
                return;
            }
            Origin::Flash(_) | Origin::FlashPart { .. } => return,
        };
        store.written(bytes, leaves);
        let mut stripe = store.stripe(item.hash.stripe());
        let database = stripe.database_mut(item.table_id);
        if let Some(slot) = database.find_address(item.hash.high, address) {
            let mut object = database.table.entry_mut(slot).hot_mut();
            if object.view().is_written_by(write) {
                object.end_write(clock_at(self.now_ms));
            }
        }
    }
}

/// Whether an entry is cold with its record at `place`, or hot with its clean copy at `place`.
pub(crate) fn points_to(entry: &Entry, hash: KeyHash, place: PageAddress) -> bool {
    let word = entry.word();
    if !word.agrees(hash) {
        return false;
    }
    match entry.object() {
        None => word.place() == place,
        Some(object) => !word.is_dirty() && object.place().is_some_and(|cold| Word(cold).place() == place),
    }
}

impl Store {
    /// Bytes of values in RAM that are being written to flash.
    fn writing(&self) -> usize {
        self.tier.writing.load(Relaxed) + self.cleaning.writing.load(Relaxed)
    }

    /// Counts a value whose write has ended.
    fn written(&self, bytes: usize, leaves: bool) {
        let writing = if leaves { &self.tier.writing } else { &self.cleaning.writing };
        writing.fetch_sub(bytes, Relaxed);
    }

    /// Whether a value still needs this record to be written.
    fn awaits(&self, item: &Item) -> bool {
        match item.origin {
            Origin::Ram { address, write, .. } => {
                let mut stripe = self.stripe(item.hash.stripe());
                let database = stripe.database_mut(item.table_id);
                let found = database.find_address(item.hash.high, address);
                found.is_some_and(|slot| database.table.entry(slot).hot().is_written_by(write))
            }
            // The part's value is in RAM as long as its key exists.
            Origin::Part { name, .. } => self.with_split(name.id, |_| ()).is_some(),
            Origin::Flash(_) | Origin::FlashPart { .. } => true,
        }
    }

    /// The parts of the store that filling needs.
    fn log(&self) -> Log<'_> {
        Log { segments: &self.segments, compression: &self.compression, counters: &self.counters }
    }

    /// Offers a record to the samples for a dictionary. If there are enough samples, starts a thread that trains a dictionary.
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
            tracing::warn!("no thread could be started to train a dictionary; compression continues without it");
        }
    }

    /// Waits, at most a second, until values have left RAM to make room for the training.
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
