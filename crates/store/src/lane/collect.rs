//! Owns when a segment is collected and how its live records move: they go to the relocation stream, then the segment is free.
//! A lane runs one collection at a time and reads one unit at a time, so that the pace follows demotion.
//! Never writes a unit itself: `write` does.

use super::write::points_to;
use super::{Flight, Lane, WRITES_IN_FLIGHT_MAX};
use crate::counters::Counter;
use crate::keyspace::commit::Leave;
use crate::log::collect::{Collect, FULLEST, Gathered, Purpose, part_name};
use crate::log::fill::{Item, Origin, Verdict, place_of};
use crate::log::page::Record;
use crate::log::parts::number_of_place;
use crate::log::record_kind::RecordKind;
use crate::log::segment::{Stream, Unit};
use flash::io::{Done, Op, OpKind, PageBuf};
use std::sync::atomic::Ordering::Relaxed;

/// A lane moves at most one unit (up to 256 KB) out of a shrinking log in this time. That is 51 MB/s and leaves most of the
/// worker's time to commands.
pub(crate) const SHRINK_EVERY_MS: u64 = 5;
/// How often the live data is summed while a log shrinks.
const WEIGH_EVERY_MS: u64 = 100;

impl Lane {
    /// One step of the running collection. Starts a collection if free segments run low or segments must leave the log. Returns
    /// whether there is more to do at once.
    pub(crate) fn collect_slice(&mut self) -> bool {
        if self.collect.is_some() {
            return self.collect_step();
        }
        // Some worker may have freed a segment meanwhile, which may be enough.
        self.retry_unit(Stream::Fresh);
        let segments = &self.store.segments;
        let low = segments.reserve() + (segments.end() / 32).max(2);
        let starved = self.fill[0].blocked();
        if segments.shrinks() && self.now_ms >= self.weigh_due_ms {
            self.weigh_due_ms = self.now_ms + WEIGH_EVERY_MS;
            segments.weigh(!self.store.evicts());
        }
        let leaving = segments.next_leaving();
        let lacks_room = leaving.is_some_and(|leaving| !segments.has_room_for(leaving));
        let wants_room = segments.free_count() < low || starved || lacks_room;
        let leaving = leaving.filter(|_| !lacks_room && self.now_ms >= self.shrink_due_ms);
        // Alternate if both are possible, so that writers in need of room do not delay the shrinking for ever.
        let room_first = wants_room && (leaving.is_none() || starved || !std::mem::take(&mut self.made_room));
        if room_first && self.collect_for_room(starved, lacks_room) {
            self.made_room = true;
            return true;
        }
        let Some(leaving) = leaving.filter(|&leaving| self.store.segments.begin_vacating(leaving)) else {
            return false;
        };
        self.begin_collection(leaving, Purpose::Shrinking);
        true
    }

    /// Starts collecting the segment with the largest gain. If no segment is worth collecting, flash is full for `starved` writers or
    /// for records that must move (`lacks_room`), and the policy may evict.
    fn collect_for_room(&mut self, starved: bool, lacks_room: bool) -> bool {
        let segments = &self.store.segments;
        let free = segments.free_count();
        // Announce the collection before the search: a worker that finds no segment must know that another may free one.
        let collecting = &self.store.tier.collecting;
        collecting.fetch_add(1, Relaxed);
        if let Some(segment) = segments.victim(self.now_ms, FULLEST) {
            self.begin_collection(segment, Purpose::Room);
            return true;
        }
        if (starved || lacks_room) && collecting.load(Relaxed) == 1 {
            // Flash is full of live records.
            if self.store.evicts()
                && let Some(segment) = segments.oldest()
            {
                self.begin_collection(segment, Purpose::Eviction);
                return true;
            }
            // No other worker has started or finished a collection meanwhile.
            if collecting.load(Relaxed) == 1 && segments.free_count() <= free {
                if starved {
                    self.store.tier.stuck.store(true, Relaxed);
                }
                if lacks_room {
                    segments.tell_stalled();
                }
            }
        }
        if collecting.load(Relaxed) == 1 {
            segments.nothing_to_collect();
        }
        collecting.fetch_sub(1, Relaxed);
        false
    }

    /// Collects a segment with many expired records, even if there is enough room.
    pub(crate) fn collect_expired(&mut self) {
        if let Some(segment) = self.store.segments.expired_victim(self.now_ms) {
            self.store.tier.collecting.fetch_add(1, Relaxed);
            self.begin_collection(segment, Purpose::Room);
        }
    }

    /// The caller has already counted this collection in `tier.collecting`.
    fn begin_collection(&mut self, segment: u32, why: Purpose) {
        let units =
            if self.store.segments.get(segment).is_dead() { Vec::new() } else { self.store.segments.units(segment) };
        self.collect = Some(Collect::new(segment, units, why));
    }

    fn collect_step(&mut self) -> bool {
        let Some(mut collect) = self.collect.take() else {
            return false;
        };
        let is_early = collect.why == Purpose::Shrinking && self.now_ms < self.shrink_due_ms;
        if collect.reading || is_early || self.fill[1].in_flight >= WRITES_IN_FLIGHT_MAX {
            self.collect = Some(collect);
            return false;
        }
        while let Some(record) = collect.backlog.pop() {
            if !self.relocate(&record, collect.why == Purpose::Eviction) {
                collect.backlog.push(record);
                self.collect = Some(collect);
                self.tell_if_stranded();
                return false;
            }
        }
        if let Some(unit) = collect.units.pop() {
            let page = self.store.segments.page(unit, 0);
            let (path, offset) = self.store.segments.location(page);
            let buf = PageBuf::new(unit.pages as usize);
            self.store.counters.add(Counter::FlashReads, 1);
            self.store.counters.add(Counter::FlashReadBytes, buf.len() as u64);
            let token = self.token(Flight::Collect { unit });
            self.push(Op { token: token as u64, path, offset, kind: OpKind::Read(buf) });
            collect.reading = true;
            self.shrink_due_ms = self.now_ms + SHRINK_EVERY_MS;
            self.collect = Some(collect);
            return false;
        }
        // All units were read. The moved records must be on flash before the segment is free.
        self.finish_unit(Stream::Relocated);
        self.retry_unit(Stream::Relocated);
        if !self.fill[1].is_empty() {
            self.collect = Some(collect);
            self.tell_if_stranded();
            return false;
        }
        let segments = &self.store.segments;
        let segment = collect.segment;
        // A page may have been overwritten by another valid page. That is no visible damage, but its records are lost.
        let all_freed = self.store.emptying.load(Relaxed) == 0;
        let missing = collect.why == Purpose::Shrinking && !collect.unwritten && all_freed;
        if segments.get(segment).is_dead() {
            if !segments.emptied(segment) {
                self.collect = Some(collect);
                return false;
            }
            self.store.counters.add(Counter::CollectedSegments, 1);
            if segment < segments.end() && segments.free_count() > segments.end() / 2 {
                // Plenty of segments are free, so discard this one. It is not written before the discard is complete.
                let (path, offset) = segments.location(segment * segments.segment_pages);
                let bytes = segments.segment_bytes();
                let token = self.token(Flight::Discard { segment });
                self.push(Op { token: token as u64, path, offset, kind: OpKind::Discard { bytes } });
            } else {
                segments.freed(segment);
            }
        } else if collect.damaged || missing {
            // Damaged records keep their entries, so that their keys answer with an error and do not look absent.
            segments.damaged(segment);
        } else {
            segments.uncollected(segment);
        }
        match collect.why {
            Purpose::Shrinking => self.store.segments.vacating_ends(),
            Purpose::Room | Purpose::Eviction => _ = self.store.tier.collecting.fetch_sub(1, Relaxed),
        }
        true
    }

    /// Logs once that failed writes have used up even the collector's reserve. Records on flash stay, but nothing new can be written.
    fn tell_if_stranded(&self) {
        let relocated = &self.fill[Stream::Relocated as usize];
        if self.store.segments.free_count() == 0 && relocated.blocked() && relocated.in_flight == 0 {
            self.store.tier.stuck.store(true, Relaxed);
        }
    }

    /// Called when a unit of moved records could not be written.
    pub(crate) fn relocation_failed(&mut self) {
        if let Some(collect) = &mut self.collect {
            collect.unwritten = true;
        }
    }

    /// Copies those records of the unit that the index still points to.
    fn gather(&mut self, buf: &[u8], unit: Unit, collect: &mut Collect) {
        let store = &self.store;
        let is_live = &mut |record: &Record<'_>, place| {
            let hash = store.hasher.hash(record.key);
            let live = match part_name(record.kind, record.key) {
                Some(name) => {
                    store.with_split(name.id, |value| value.has_copy(name.number, number_of_place(place))) == Some(true)
                }
                None => {
                    let mut stripe = store.stripe(hash.stripe());
                    let table = &stripe.database_mut(record.db).table;
                    table.find(hash.high, |entry| points_to(entry, hash, place)).is_some()
                }
            };
            live.then_some(hash)
        };
        let first = store.segments.page(unit, 0);
        let damaged = collect.gather(buf, first, &|id| store.dictionary(id), &mut self.scratch, is_live);
        store.counters.add(Counter::ChecksumErrors, damaged);
    }

    pub(crate) fn collect_read_done(&mut self, unit: Unit, done: Done) {
        let Some(mut collect) = self.collect.take() else {
            return;
        };
        collect.reading = false;
        let buf = done.buf.expect("a read brings its buffer back");
        match done.result {
            Ok(()) => self.gather(&buf, unit, &mut collect),
            Err(error) => {
                self.store.counters.add(Counter::ReadErrors, 1);
                tracing::error!(segment = collect.segment, "flash read failed while collecting: {error}");
                collect.damaged = true;
            }
        }
        self.collect = Some(collect);
    }

    /// Moves a record to the relocation stream. Removes its key instead if it has expired or must be evicted. False: there is no
    /// room, try again.
    fn relocate(&mut self, record: &Gathered, evict: bool) -> bool {
        let store = self.store.clone();
        let place = place_of(record.page, record.pages);
        let part = part_name(record.kind, &record.bytes[..record.key]);
        if let Some(name) = part {
            if evict && store.evict_split(name.id, self.now_ms) {
                return true;
            }
            if store.with_split(name.id, |value| value.has_copy(name.number, number_of_place(place))) != Some(true) {
                return true;
            }
        } else {
            let mut stripe = store.stripe(record.hash.stripe());
            let database = stripe.database_mut(record.uid);
            let found = database.table.find(record.hash.high, |entry| points_to(entry, record.hash, place));
            let Some(slot) = found else { return true };
            if store.removes(record.expiry, self.now_ms) {
                let name = Some(&record.bytes[..record.key]);
                store.commit_leave(Leave::expired(record.uid, name, self.now_ms), database, slot, None);
                return true;
            }
            let word = database.table.word(slot);
            if evict && !word.is_hot() && !word.is_referenced() && store.tier.policy().evicts(word.has_expiry()) {
                let name = Some(&record.bytes[..record.key]);
                store.commit_leave(Leave::evicted(record.uid, name, self.now_ms), database, slot, None);
                return true;
            }
        }
        let Some(kind) = RecordKind::from_byte(record.kind) else {
            return true;
        };
        let (key, value) = record.bytes.split_at(record.key);
        let copied = Record {
            key,
            value,
            kind: record.kind,
            db: record.uid,
            expiry_ms: record.expiry,
            seq: record.seq,
            hash: record.hash.high,
        };
        let item = Item {
            hash: record.hash,
            uid: record.uid,
            kind: kind.kind,
            expiry: record.expiry,
            origin: part.map_or(Origin::Flash(place), |name| Origin::FlashPart { name, from: place }),
        };
        match self.add(Stream::Relocated, copied, item) {
            Verdict::Taken => true,
            Verdict::Stop | Verdict::Keep => false,
        }
    }
}
