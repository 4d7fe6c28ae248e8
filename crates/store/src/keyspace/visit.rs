//! Owns the walk over all values of all logical databases, in slices. Never moves a value, never marks a value as used, and never
//! removes expired keys: the walk leaves the tiers unchanged.
//!
//! A value in RAM is visited in place, under its stripe's lock. A record on flash is read, shown and dropped. The handler
//! stops for these reads as for any cold value, but the records go into its [`Resume`](super::Resume) and not into the store. To
//! keep the device busy, each stop asks for the records of many keys: the walk looks ahead from the first missing record.
//! A transaction or script cannot stop. Inside it each record is read when the walk reaches it, under the lock.
//!
//! Between two slices other commands may change anything. A key that exists during the whole walk is visited once, with its
//! value at that moment; a large value that changes in between is visited partly before and partly after the change. A
//! transaction or script holds every stripe until its end, so a visit inside it sees a single moment.

use super::{Cold, ColdRead, Keyspace, RecordAt};
use crate::keyspace::direct::{self, RecordCopy};
use crate::log::read::ReadError;
use crate::mem::hash::{KeyHash, STRIPES, first_slot};
use crate::mem::index::Entry;
use crate::mem::object::Value;
use crate::store::Store;
use crate::stripe::Stripe;
use flash::io::PAGE_BYTES;
use std::collections::HashMap;
use value::walk::{Cursor, Element, walk_inline};
use value::{AbsentPart, Boxed, Kind};

/// A key that is visited.
#[derive(Clone, Copy, Debug)]
pub struct Visited<'a> {
    pub db: usize,
    pub stripe: usize,
    pub name: &'a [u8],
    pub kind: Kind,
    /// Milliseconds since 1970.
    pub expiry: Option<u64>,
}

/// Receives keys and their elements. A key with `begin` but without `end` does not count: it was removed or replaced
/// meanwhile, or all of its elements have expired. Keys come database by database in no meaningful order. Elements come in the order
/// of their type, if it has one.
pub trait Visitor {
    /// A key begins. Its elements follow.
    fn begin(&mut self, key: &Visited<'_>);
    fn element(&mut self, element: Element<'_>);
    /// The key is complete.
    fn end(&mut self);
}

/// The cost that ends a slice: bytes shown, plus a fixed cost for each element. With SHA-256 of each element a slice takes about 1 ms.
const SLICE_COST: usize = 256 << 10;
const ELEMENT_COST: usize = 256;
/// One stop asks for at most this many records, and about this many bytes of pages. A single larger record is read all the same.
const READS_AT_ONCE: usize = 256;
const READ_BYTES_AT_ONCE: usize = 4 << 20;
/// Above this number, most copies are of values that have changed or moved since. Then all copies are dropped, and records that are
/// still needed are read again.
const COPIES_MAX: usize = 4 * READS_AT_ONCE;
/// Maximum number of entries and parts of values that one look-ahead passes.
const AHEAD_MAX: usize = 16_384;

/// The state kept between slices.
#[derive(Default)]
pub(crate) struct Visit {
    place: VisitPosition,
    /// Records that were read for the next slice. If the key has got another record at the same place meanwhile, the copy shows the
    /// key as it was a moment ago. That is correct, because a key may be shown as it was at any moment of the walk.
    pub(crate) copies: HashMap<RecordAt, RecordCopy>,
    /// See [`Resume::has_advanced`](super::Resume::has_advanced).
    pub(super) advanced: bool,
}

/// The position of the walk: before the first entry with hash `high`, or behind the first `passed` entries with exactly this hash.
#[derive(Default)]
struct VisitPosition {
    db: usize,
    stripe: usize,
    high: u64,
    passed: usize,
    /// The position inside the next value, if the walk stopped in the middle of it.
    inside: Option<Inside>,
}

struct Inside {
    name: Box<[u8]>,
    kind: Kind,
    cursor: Cursor,
    /// Number of elements shown so far.
    elements: usize,
}

/// Whether a slice continues.
#[derive(PartialEq, Eq)]
enum Flow {
    On,
    /// The slice has shown enough, needs records, or has failed.
    Stop,
}

struct Slice<'v> {
    store: &'v Store,
    now_ms: u64,
    at_once: bool,
    visit: &'v mut Visit,
    visitor: &'v mut dyn Visitor,
    cost_left: usize,
    /// Where the next slice begins. Set when a record was missing; from then on nothing is shown.
    missing_at: Option<VisitPosition>,
    reads: Vec<ColdRead>,
    read_bytes: usize,
    ahead_left: usize,
    failed: Option<ReadError>,
}

impl Keyspace<'_> {
    /// One slice of a visit to all values that have not expired. True: it was the last slice. False: the handler must yield and run
    /// again.
    pub fn visit(&mut self, visitor: &mut dyn Visitor) -> Result<bool, Cold> {
        if self.at_once && !self.add_all() {
            return Ok(false);
        }
        let has_all = self.has_all();
        let mut visit = self.resume.visit.take().unwrap_or_default();
        let mut place = std::mem::take(&mut visit.place);
        if visit.copies.len() > COPIES_MAX {
            visit.copies.clear();
        }
        let mut slice = Slice {
            store: self.store,
            now_ms: self.now_ms,
            at_once: self.at_once,
            visit: &mut visit,
            visitor,
            cost_left: SLICE_COST,
            missing_at: None,
            reads: Vec::new(),
            read_bytes: 0,
            ahead_left: AHEAD_MAX,
            failed: None,
        };
        let mut flow = Flow::On;
        while flow == Flow::On && place.db < self.store.databases() {
            let mut own;
            let stripe = if has_all {
                &*self.held.get(place.stripe)
            } else {
                own = self.store.stripe(place.stripe);
                &mut own
            };
            flow = slice.stripe(stripe, &mut place);
            if flow == Flow::On {
                let at = place.db * STRIPES + place.stripe + 1;
                place = VisitPosition { db: at / STRIPES, stripe: at % STRIPES, ..VisitPosition::default() };
            }
        }
        let Slice { missing_at, reads, failed, .. } = slice;
        let is_cold = missing_at.is_some() || failed.is_some();
        let is_done = !is_cold && place.db == self.store.databases();
        visit.place = missing_at.unwrap_or(place);
        if is_done {
            return Ok(true);
        }
        self.resume.visit = Some(visit);
        self.resume.failed = failed;
        if is_cold {
            self.stopped = true;
            self.resume.cold.extend(reads);
            return Err(Cold);
        }
        Ok(false)
    }
}

impl Slice<'_> {
    /// Visits the entries from the position to the end of its stripe.
    fn stripe(&mut self, stripe: &Stripe, place: &mut VisitPosition) -> Flow {
        let table_id = self.store.table_id(place.db);
        let Some(database) = stripe.database(table_id) else { return Flow::On };
        let mut leaf = Some(place.high);
        while let Some(high) = leaf {
            let (entries, next) = database.table.leaf_at(high);
            let (from, mut equal) = (place.high, (0, 0));
            for entry in entries.iter().filter(|entry| entry.high() >= from) {
                let high = entry.high();
                equal = if equal.0 == high { (high, equal.1 + 1) } else { (high, 1) };
                if high == place.high && equal.1 <= place.passed {
                    continue;
                }
                (place.high, place.passed) = (high, equal.1 - 1);
                if self.entry(entry, table_id, place) == Flow::Stop {
                    return Flow::Stop;
                }
                place.passed = equal.1;
                if self.cost_left == 0 || self.ahead_left == 0 || self.has_enough_reads() {
                    return Flow::Stop;
                }
            }
            leaf = next;
        }
        Flow::On
    }

    fn has_enough_reads(&self) -> bool {
        self.reads.len() >= READS_AT_ONCE || self.read_bytes >= READ_BYTES_AT_ONCE
    }

    fn entry(&mut self, entry: &Entry, table_id: u32, place: &mut VisitPosition) -> Flow {
        let word = entry.word();
        let hash = KeyHash { high: entry.high(), low: word.0, slot: first_slot(place.stripe) };
        let Some(object) = entry.object() else {
            return self.cold(self.store.cold_read(hash, table_id, word, None).copying(), place);
        };
        if object.expiry().is_some_and(|expiry| expiry <= self.now_ms) {
            return Flow::On;
        }
        let (db, stripe) = (place.db, place.stripe);
        let key = Visited { db, stripe, name: object.key(), kind: object.kind(), expiry: object.expiry() };
        match object.value() {
            Value::Inline(kind, bytes) => {
                if self.missing_at.is_some() {
                    self.ahead_left = self.ahead_left.saturating_sub(1);
                } else {
                    self.inline(&key, kind, bytes);
                }
                Flow::On
            }
            Value::Boxed(value) => self.boxed(&key, value, (hash, table_id), place),
        }
    }

    fn cold(&mut self, cold: ColdRead, place: &mut VisitPosition) -> Flow {
        if self.missing_at.is_some() {
            self.look_ahead(cold);
            return Flow::On;
        }
        let Some(record) = self.read(cold, place) else { return self.after_missing() };
        if record.expiry.is_some_and(|expiry| expiry <= self.now_ms) {
            return Flow::On;
        }
        let (kind, expiry) = (record.tag.kind, record.expiry);
        let key = Visited { db: place.db, stripe: place.stripe, name: &record.name, kind, expiry };
        if !record.tag.boxed && kind != Kind::Stream {
            self.inline(&key, kind, &record.value);
            return Flow::On;
        }
        let Ok(value) = Boxed::decode(kind, &record.value) else {
            self.failed = Some(ReadError::Missing);
            return Flow::Stop;
        };
        self.begin(&key);
        let mut elements = 0;
        value.walk_all(&mut |element| elements += usize::from(self.show(element)));
        self.end(elements);
        Flow::On
    }

    fn inline(&mut self, key: &Visited<'_>, kind: Kind, bytes: &[u8]) {
        self.begin(key);
        walk_inline(kind, bytes, &mut |element| _ = self.show(element));
        self.visitor.end();
    }

    /// Visits a boxed value in RAM, one stretch at a time. Absent parts are read.
    fn boxed(
        &mut self,
        key: &Visited<'_>,
        value: &Boxed,
        (hash, table_id): (KeyHash, u32),
        place: &mut VisitPosition,
    ) -> Flow {
        let part_of = |store: &Store, part: AbsentPart| {
            let id = value.shelf_id().expect("only a value in parts has absent ones");
            ColdRead::of_part(store, hash, table_id, key.kind, id, part).copying()
        };
        let (mut cursor, mut elements) = (Cursor::default(), 0);
        if self.missing_at.is_none() {
            let is_it = |inside: &Inside| *inside.name == *key.name && inside.kind == key.kind;
            match place.inside.take().filter(is_it) {
                Some(inside) => (cursor, elements) = (inside.cursor, inside.elements),
                None => self.begin(key),
            }
        }
        while let Some(stretch) = value.stretch(cursor) {
            if self.missing_at.is_some() {
                self.ahead_left = self.ahead_left.saturating_sub(1);
                if let Some(part) = stretch.absent {
                    self.look_ahead(part_of(self.store, part));
                }
                if self.ahead_left == 0 || self.has_enough_reads() {
                    return Flow::Stop;
                }
                cursor = stretch.next;
                continue;
            }
            let inside = || Some(Inside { name: key.name.into(), kind: key.kind, cursor, elements });
            if self.cost_left == 0 {
                place.inside = inside();
                return Flow::Stop;
            }
            let mut record = None;
            if let Some(part) = stretch.absent {
                place.inside = inside();
                record = self.read(part_of(self.store, part), place);
                if record.is_none() {
                    if self.after_missing() == Flow::Stop {
                        return Flow::Stop;
                    }
                    cursor = stretch.next;
                    continue;
                }
                place.inside = None;
            }
            let bytes = record.as_ref().map(|record| &*record.value);
            let shown = value.walk(cursor, bytes, &mut |element| elements += usize::from(self.show(element)));
            if shown.is_err() {
                self.failed = Some(ReadError::Missing);
                return Flow::Stop;
            }
            self.visit.advanced = true;
            cursor = stretch.next;
        }
        if self.missing_at.is_none() {
            self.end(elements);
        }
        Flow::On
    }

    fn begin(&mut self, key: &Visited<'_>) {
        self.visit.advanced = true;
        self.cost_left = self.cost_left.saturating_sub(ELEMENT_COST + key.name.len());
        self.visitor.begin(key);
    }

    /// Ends a key. A key without elements does not count, except a stream, because no other type exists without elements.
    fn end(&mut self, elements: usize) {
        if elements > 0 {
            self.visitor.end();
        }
    }

    /// Shows an element. False: it is a field that has expired.
    fn show(&mut self, element: Element<'_>) -> bool {
        let bytes = match element {
            Element::Field(_, _, Some(at_ms)) if at_ms <= self.now_ms => return false,
            Element::Text(bytes) | Element::Item(_, bytes) | Element::Member(bytes) | Element::Scored(bytes, _) => {
                bytes.len()
            }
            Element::Field(field, value, _) => field.len() + value.len(),
            Element::Entry(entry) => entry.len() * ELEMENT_COST,
            Element::Group(_, group) => group.consumers().len() * ELEMENT_COST,
            Element::Stream(_) | Element::Pending(..) => 0,
        };
        self.cost_left = self.cost_left.saturating_sub(ELEMENT_COST + bytes);
        self.visitor.element(element);
        true
    }

    /// The record, if it has been read. If it cannot be read now, the next slice begins here.
    fn read(&mut self, cold: ColdRead, place: &mut VisitPosition) -> Option<RecordCopy> {
        if let Some(copy) = self.visit.copies.remove(&cold.record_at()) {
            return Some(copy);
        }
        if self.at_once {
            return direct::copy_now(self.store, &cold).map_err(|error| self.failed = Some(error)).ok();
        }
        let VisitPosition { db, stripe, high, passed, .. } = *place;
        self.missing_at = Some(VisitPosition { db, stripe, high, passed, inside: place.inside.take() });
        self.want(cold);
        None
    }

    fn after_missing(&self) -> Flow {
        if self.failed.is_some() { Flow::Stop } else { Flow::On }
    }

    /// Asks for a record that will be needed, unless it has been read already.
    fn look_ahead(&mut self, cold: ColdRead) {
        self.ahead_left = self.ahead_left.saturating_sub(1);
        if !self.visit.copies.contains_key(&cold.record_at()) {
            self.want(cold);
        }
    }

    fn want(&mut self, cold: ColdRead) {
        self.read_bytes += self.store.segments.read_pages(cold.word.place()) as usize * PAGE_BYTES;
        self.reads.push(cold);
    }
}
