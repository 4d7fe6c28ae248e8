//! Owns when a segment is collected and how its live records move: they go to the relocation stream, then the segment is free.
//! A lane runs one collection at a time and reads one unit at a time, so that the pace follows demotion.
//! Never writes a unit itself: `write` does. Never judges how much room there is: `log/segment/space` does.

use super::damage::{Losses, Search};
use super::write::points_to;
use super::{Flight, Lane, WRITES_IN_FLIGHT_MAX};
use crate::counters::Counter;
use crate::keyspace::commit::Leave;
use crate::log::collect::{Collect, Gathered, Purpose, part_name};
use crate::log::fill::{Item, Origin, Verdict, place_of};
use crate::log::page::Record;
use crate::log::parts::number_of_place;
use crate::log::record_kind::RecordKind;
use crate::log::segment::{FULLEST, LogSpace, Relocation, SegmentStream, Unit};
use crate::mem::tier::Full;
use crate::mem::word::PageAddress;
use flash::io::{Done, Op, OpKind, PageBuf};
use std::sync::atomic::Ordering::Relaxed;

/// A lane moves at most one unit (up to 256 KB) out of a shrinking log in this time. That is 51 MB/s and leaves most of the
/// worker's time to commands.
pub(crate) const SHRINK_EVERY_MS: u64 = 5;
/// A lane reads at most one unit to remove expired keys in this time: 128 MB/s, some tenth of the worker's time.
pub(crate) const EXPIRY_EVERY_MS: u64 = 2;
/// How often segments are searched for expired records, if none were found.
const EXPIRY_SEARCH_EVERY_MS: u64 = 100;
/// After this many collections for room, expired keys are removed once.
const ROOM_TURNS: u32 = 8;
/// How often the live data is summed while the log shrinks or has no room.
const WEIGH_EVERY_MS: u64 = 10;
const WATCH_EVERY_MS: u64 = 100;
/// Maximum number of dead segments that one slice frees.
const DEAD_MAX: usize = 32;
/// The share of a full log whose copies of values in RAM are dropped at once.
const COPIES_SHARE: u64 = 32;
/// How often the policy may try again after it found nothing to evict in the whole log.
const VAIN_EVERY_MS: u64 = 1_000;

/// Why collecting is needed.
struct Need {
    /// A finished unit of values waits for a segment.
    starved: bool,
    /// A segment that leaves the log cannot be emptied.
    lacks_room: bool,
    room: bool,
    leaving: Option<u32>,
}

enum Relocated {
    Moved,
    Evicted,
    /// Moved and not evicted, because it was used lately.
    Spared,
    NoRoom,
}

impl Lane {
    /// One step of the running collection. Starts a collection if free segments run low, if segments must leave the log, or if keys
    /// have expired. Returns whether there is more to do at once.
    pub(crate) fn collect_slice(&mut self) -> bool {
        let freed = self.free_dead_segments();
        // Some worker may have freed a segment meanwhile, which may be enough.
        self.retry_unit(SegmentStream::Fresh);
        let need = self.need();
        let is_urgent = need.starved || need.lacks_room;
        if is_urgent && self.collect.as_ref().is_some_and(|collect| !collect.why.moves() && !collect.reading) {
            // Writers wait. Room is more urgent than expired keys, and a collection for room removes expired keys too.
            self.give_up_collection();
        }
        let goes_on = if self.collect.is_some() { self.collect_step() } else { self.start_collection(&need) };
        self.report_full_flash(&need);
        freed || goes_on
    }

    fn need(&mut self) -> Need {
        let starved = self.fill[0].blocked();
        self.weigh_if_due(starved);
        let segments = &self.store.segments;
        let leaving = segments.next_leaving(self.now_ms);
        let lacks_room = leaving.is_some_and(|leaving| !segments.has_room_for(leaving));
        let room = starved || lacks_room || segments.wants_collection();
        Need { starved, lacks_room, room, leaving }
    }

    /// Sums the live data if the result matters.
    fn weigh_if_due(&mut self, starved: bool) {
        let segments = &self.store.segments;
        // One worker is enough to notice that live data reaches its limit. The interval is long, because this walks
        // over all segments.
        let watches = self.worker == 0 && segments.may_be_over() && self.now_ms >= self.watch_due_ms;
        let refuses = self.store.tier.full() == Full::Flash;
        if watches || (starved || refuses || segments.shrinks()) && self.now_ms >= self.weigh_due_ms {
            self.weigh_due_ms = self.now_ms + WEIGH_EVERY_MS;
            self.watch_due_ms = self.now_ms + WATCH_EVERY_MS;
            if starved {
                self.give_up_dead_unit();
            }
            self.store.segments.weigh(!self.store.evicts());
        }
    }

    /// Frees segments that contain no live record. This needs no room, so it comes before everything else.
    fn free_dead_segments(&mut self) -> bool {
        for _ in 0..DEAD_MAX {
            let Some(segment) = self.store.segments.next_dead() else { return false };
            self.free_segment(segment);
        }
        true
    }

    /// Gives back an emptied segment. If plenty of segments are free, its place on flash is discarded first.
    fn free_segment(&mut self, segment: u32) {
        let segments = &self.store.segments;
        self.store.counters.add(Counter::CollectedSegments, 1);
        if segment < segments.end() && segments.free_count() > segments.end() / 2 && !segments.quarantines() {
            // The segment is not written again before the discard is complete.
            let (path, offset) = segments.location(segment * segments.segment_pages);
            let bytes = segments.segment_bytes();
            let token = self.token(Flight::Discard { segment });
            self.push(Op { token: token as u64, path, offset, kind: OpKind::Discard { bytes } });
        } else {
            segments.freed(segment);
        }
    }

    fn start_collection(&mut self, need: &Need) -> bool {
        let can_leave = need.leaving.filter(|_| !need.lacks_room && self.now_ms >= self.shrink_due_ms);
        let expiry_first = self.rooms_made >= ROOM_TURNS && !need.starved;
        if expiry_first && self.collect_expired() {
            return true;
        }
        // Alternate if both are possible, so that writers in need of room do not delay the shrinking for ever.
        let room_first = need.room && (can_leave.is_none() || need.starved || !std::mem::take(&mut self.made_room));
        if room_first && self.collect_for_room(need) {
            self.made_room = true;
            self.rooms_made += 1;
            return true;
        }
        if let Some(leaving) = can_leave.filter(|&leaving| self.store.segments.begin_vacating(leaving)) {
            self.begin_collection(leaving, Purpose::Shrinking);
            return true;
        }
        self.collect_expired()
    }

    /// Starts collecting the segment with the largest gain. If flash is full and the policy may evict, evicts the records of the oldest
    /// segment.
    fn collect_for_room(&mut self, need: &Need) -> bool {
        let segments = &self.store.segments;
        let held_back = segments.quarantines();
        let answer = segments.may_relocate(held_back);
        if answer != Relocation::May {
            self.declare_full_if_wedged(answer);
            return false;
        }
        // If live data has reached its own limit, moving records does not help: they stay live.
        let victim = if segments.is_over() { None } else { segments.victim(self.now_ms, FULLEST) };
        let victim = victim.map(|segment| (segment, Purpose::Room)).or_else(|| {
            let wanted = need.starved || need.lacks_room;
            let evicts = wanted && segments.is_full() && self.may_evict() && !self.holds_deletions;
            evicts.then(|| segments.oldest()).flatten().map(|segment| (segment, Purpose::Eviction))
        });
        let Some((segment, why)) = victim else {
            if segments.relocating() == 0 {
                segments.nothing_to_collect();
            }
            return false;
        };
        let answer = segments.begin_relocation(segment, held_back);
        if answer == Relocation::May {
            self.begin_collection(segment, why);
            return true;
        }
        segments.uncollected(segment);
        self.declare_full_if_wedged(answer);
        false
    }

    /// If no record can be moved because failed writes have used up even the reserve, marks the log as full. Only a
    /// segment without live records can become free then.
    fn declare_full_if_wedged(&self, answer: Relocation) {
        let segments = &self.store.segments;
        if answer == Relocation::Wedged && !segments.quarantines() {
            segments.declare_full();
        }
    }

    /// Whether eviction by the policy may find a record to evict.
    fn may_evict(&self) -> bool {
        let in_vain = self.store.segments.evicted_in_vain() > self.store.segments.end();
        self.store.evicts() && (!in_vain || self.now_ms >= self.evict_due_ms)
    }

    /// Whether copies of values in RAM are being dropped. If none are, begins that, unless it would be in vain.
    fn drops_copies(&self) -> bool {
        let wanted = self.store.flash_bytes() / COPIES_SHARE;
        self.store.copies.begin(wanted, self.now_ms)
    }

    /// Tells writers whether flash is full of live records, or that it is not any more.
    fn report_full_flash(&self, need: &Need) {
        let segments = &self.store.segments;
        let is_full = segments.is_full() && !self.may_evict();
        // Before a write is refused, copies of values in RAM make room (`lane/copies`).
        let is_full = is_full && !((need.starved || need.lacks_room) && self.drops_copies());
        if need.lacks_room && is_full {
            segments.report_stalled();
        }
        match (need.starved, is_full) {
            (true, true) => self.store.tier.set_full(Full::Flash),
            (false, _) if matches!(segments.room(), LogSpace::Waiting | LogSpace::Full) => {}
            _ => self.store.tier.clear_full(Full::Flash),
        }
    }

    /// Starts to remove the expired keys of a segment.
    fn collect_expired(&mut self) -> bool {
        self.rooms_made = 0;
        let is_due = self.now_ms >= self.expired_segments_due_ms && !self.holds_deletions;
        if !is_due || !self.store.expires_actively(self.now_ms) {
            return false;
        }
        let lag_ms = self.store.expired_key_lag_ms.load(Relaxed);
        let Some(segment) = self.store.segments.expired_victim(self.now_ms, lag_ms) else {
            self.expired_segments_due_ms = self.now_ms + EXPIRY_SEARCH_EVERY_MS;
            return false;
        };
        self.begin_collection(segment, Purpose::Expiry);
        true
    }

    fn begin_collection(&mut self, segment: u32, why: Purpose) {
        let is_dead = self.store.segments.get(segment).is_dead();
        let units = if is_dead { Vec::new() } else { self.store.segments.units(segment) };
        self.search = Search::default();
        self.collect = Some(Collect::new(segment, units, why));
    }

    fn collect_step(&mut self) -> bool {
        let Some(mut collect) = self.collect.take() else {
            return false;
        };
        let is_early = match collect.why {
            Purpose::Shrinking => self.now_ms < self.shrink_due_ms,
            Purpose::Expiry => self.now_ms < self.expiry_due_ms,
            Purpose::Room | Purpose::Eviction => false,
        };
        if collect.reading || is_early || self.fill[1].in_flight >= WRITES_IN_FLIGHT_MAX {
            self.collect = Some(collect);
            return false;
        }
        while let Some(record) = collect.backlog.pop() {
            // At most half of a segment's records may stay, so that eviction always makes room.
            let spares = collect.spared < collect.evicted;
            match self.relocate(&record, collect.why, spares) {
                Relocated::Moved => {}
                Relocated::Spared => collect.spared += 1,
                Relocated::Evicted => collect.evicted += 1,
                Relocated::NoRoom => {
                    collect.backlog.push(record);
                    self.collect = Some(collect);
                    return self.give_up_if_stranded();
                }
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
            self.expiry_due_ms = self.now_ms + EXPIRY_EVERY_MS;
            self.collect = Some(collect);
            return false;
        }
        if collect.why == Purpose::Expiry {
            self.store.segments.expired_removed(collect.segment, collect.expiries);
            return true;
        }
        // All units were read. The moved records must be on flash before the segment is free.
        self.finish_unit(SegmentStream::Relocated);
        self.retry_unit(SegmentStream::Relocated);
        if !self.fill[1].is_empty() {
            self.collect = Some(collect);
            return self.give_up_if_stranded();
        }
        let segments = &self.store.segments;
        let segment = collect.segment;
        // Missing records are lost too: a page may have been overwritten by another valid page, which is no visible
        // damage.
        let missing = !collect.unwritten && !self.store.has_unfreed();
        if segments.get(segment).is_dead() {
            if !segments.emptied(segment) {
                self.collect = Some(collect);
                return false;
            }
            // A bad segment is tested before it takes data again. A segment that leaves the log takes no more data.
            match segments.get(segment).is_bad() && segment < segments.end() {
                true => segments.uncollected(segment),
                false => self.free_segment(segment),
            }
        } else if collect.unread || collect.damaged || missing {
            if !self.search_unread(&collect) {
                self.collect = Some(collect);
                return false;
            }
            if self.store.segments.get(segment).is_dead() {
                self.collect = Some(collect);
                return true;
            }
            // Their keys answer with an error, and do not look absent.
            self.store.segments.damaged(segment, self.now_ms);
        } else {
            self.store.segments.uncollected(segment);
        }
        self.collection_ends(&collect);
        true
    }

    /// Looks for the values of the records that this collection has not moved. Values in RAM are written again. The others are lost if the
    /// segment leaves the log and was readable as a whole several times, and these records were not among what was read. True: it is done.
    fn search_unread(&mut self, collect: &Collect) -> bool {
        let segments = &self.store.segments;
        let segment = collect.segment;
        let is_final =
            !collect.unread && !collect.unwritten && !self.store.has_unfreed() && segments.is_last_try(segment);
        let losses = if is_final { Losses::GivenUp } else { Losses::Stay };
        let is_here = |place: PageAddress| !place.is_lost() && segments.of_page(place.page) == segment;
        if !self.search.step(&self.store, &is_here, losses) {
            return false;
        }
        if is_final && self.search.lost > 0 {
            tracing::error!(
                segment,
                "{} keys whose values cannot be read answer with an error until they are set again: their place leaves flash, which becomes smaller",
                self.search.lost
            );
        }
        true
    }

    fn collection_ends(&mut self, collect: &Collect) {
        match collect.why {
            Purpose::Shrinking => self.store.segments.vacating_ends(),
            Purpose::Room => self.store.segments.relocation_ends(),
            Purpose::Eviction => {
                self.store.segments.relocation_ends();
                self.store.segments.note_eviction(collect.evicted);
                if collect.evicted == 0 {
                    self.evict_due_ms = self.now_ms + VAIN_EVERY_MS;
                }
            }
            Purpose::Expiry => {}
        }
        self.weigh_due_ms = 0;
    }

    /// `begin_relocation` promises room. Only failed writes, or records that compress much worse than before, can break
    /// the promise. Then the records stay at their old places, so that their segment can be collected later or die.
    fn give_up_if_stranded(&mut self) -> bool {
        let relocated = &self.fill[SegmentStream::Relocated as usize];
        if relocated.blocked() && relocated.in_flight == 0 {
            self.give_up_collection();
        }
        false
    }

    /// Ends the collection. Records that were not moved yet stay where they are. No read or write of the collection may
    /// be in flight.
    fn give_up_collection(&mut self) {
        let Some(collect) = self.collect.take() else { return };
        debug_assert!(!collect.reading);
        if collect.why.moves() {
            self.fill[SegmentStream::Relocated as usize].give_up(&mut self.unit_bufs);
        }
        self.store.segments.uncollected(collect.segment);
        self.collection_ends(&collect);
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
        let (only_expired, now_ms) = (collect.why == Purpose::Expiry, self.now_ms);
        let mut expiries = std::mem::take(&mut collect.expiries);
        let is_live = &mut |record: &Record<'_>, place| {
            if only_expired {
                let expiry = record.expiry_ms?;
                if !store.lane_removes(Some(expiry), now_ms) {
                    expiries.add(expiry);
                    return None;
                }
            }
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
        let at = (first, store.segments.stamp(first));
        let damaged = collect.gather(buf, at, &|id| store.dictionary(id), &mut self.scratch, is_live);
        collect.expiries = expiries;
        store.counters.add(Counter::ChecksumErrors, damaged.len() as u64);
        store.found_rot(damaged);
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
                collect.unread = true;
            }
        }
        self.collect = Some(collect);
    }

    /// Moves a record to the relocation stream. Removes its key instead if it has expired or must be evicted. `spares`: a value
    /// that was used lately is not evicted.
    fn relocate(&mut self, record: &Gathered, why: Purpose, spares: bool) -> Relocated {
        let evict = why == Purpose::Eviction;
        let store = self.store.clone();
        let place = place_of(record.page, record.pages);
        let part = part_name(record.kind, &record.bytes[..record.key]);
        let mut spared = false;
        if let Some(name) = part {
            if evict && store.evict_split(name.id, self.now_ms) {
                return Relocated::Evicted;
            }
            if store.with_split(name.id, |value| value.has_copy(name.number, number_of_place(place))) != Some(true) {
                return Relocated::Moved;
            }
        } else {
            let mut stripe = store.stripe(record.hash.stripe());
            let owned = stripe.owned;
            let database = stripe.database_mut(record.table_id);
            let found = database.table.find(record.hash.high, |entry| points_to(entry, record.hash, place));
            let Some(slot) = found else { return Relocated::Moved };
            if owned && store.lane_removes(record.expiry, self.now_ms) {
                let name = Some(&record.bytes[..record.key]);
                store.commit_leave(Leave::expired(record.table_id, name, self.now_ms), database, slot, None);
                return Relocated::Moved;
            }
            let word = database.table.word(slot);
            if evict && owned && !word.is_hot() && store.tier.policy().evicts(word.has_expiry()) {
                spared = spares && word.is_referenced() && store.tier.turn.forgets();
                if !spared {
                    let name = Some(&record.bytes[..record.key]);
                    store.commit_leave(Leave::evicted(record.table_id, name, self.now_ms), database, slot, None);
                    return Relocated::Evicted;
                }
            }
        }
        if !why.moves() {
            // CLIENT PAUSE has begun, so the key stays where it is.
            return Relocated::Moved;
        }
        let Some(kind) = RecordKind::from_byte(record.kind) else {
            return Relocated::Moved;
        };
        let (key, value) = record.bytes.split_at(record.key);
        let copied = Record {
            key,
            value,
            kind: record.kind,
            db: record.table_id,
            expiry_ms: record.expiry,
            seq: record.seq,
            hash: record.hash.high,
        };
        let item = Item {
            hash: record.hash,
            table_id: record.table_id,
            kind: kind.kind,
            expiry: record.expiry,
            origin: part.map_or(Origin::Flash(place), |name| Origin::FlashPart { name, from: place }),
        };
        match self.add(SegmentStream::Relocated, copied, item) {
            Verdict::Taken if spared => Relocated::Spared,
            Verdict::Taken => Relocated::Moved,
            Verdict::Stop | Verdict::Keep => Relocated::NoRoom,
        }
    }
}
