//! Owns going over all values of all logical databases, in slices. Never moves a value, marks one as used, or removes what
//! has expired: the tiers are afterwards as they were before.
//!
//! What is in RAM is visited where it is, under its stripe's lock. A record on flash is read, shown and dropped. The handler
//! stops for the reads as for any cold value, but the records go into its [`Resume`](super::Resume) and not into the store. So that the
//! device is kept busy, each stop asks for the records of many keys: the walk looks ahead from the first that is missing.
//! Inside a transaction or script, which cannot stop, each record is read when it is met, under the lock.
//!
//! Between two slices anybody may change anything. A key that is there during the whole walk is visited once, as it is when
//! the walk comes by; a large value that changes in between is visited partly before and partly after. A transaction or script
//! holds every stripe to its end, so that a visit in one sees a single moment.

use super::{Cold, ColdRead, Keyspace, RecordAt};
use crate::keyspace::direct::{self, RecordCopy};
use crate::log::read::ReadError;
use crate::mem::hash::{KeyHash, SLOTS, STRIPES};
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

/// Is told keys and their elements. A key that was begun and is not ended does not count: it has gone or become another value
/// meanwhile, or all of its elements have expired. Keys come database by database, in no order that means anything; elements come in the
/// order of their type, where it has one.
pub trait Visitor {
    /// The elements of this key follow.
    fn begin(&mut self, key: &Visited<'_>);
    fn element(&mut self, element: Element<'_>);
    /// All elements of the key that was begun have been told.
    fn end(&mut self);
}

/// What one slice shows: bytes, and so many more for each element. With SHA-256 of each element that is about 1 ms.
const SLICE_COST: usize = 256 << 10;
const ELEMENT_COST: usize = 256;
/// One stop asks for at most so many records, of about so many bytes of pages. A larger single record is read all the same.
const READS_AT_ONCE: usize = 256;
const READ_BYTES_AT_ONCE: usize = 4 << 20;
/// More copies than this are of values that have changed or moved since: what still is needed is read again.
const COPIES_MAX: usize = 4 * READS_AT_ONCE;
/// Entries, and parts of values, that one look ahead passes at most.
const AHEAD_MAX: usize = 16_384;

/// What is kept between slices.
#[derive(Default)]
pub(crate) struct Visit {
    place: Place,
    /// Records that were read for the next slice. Should the key have got another record at the same place meanwhile, then this
    /// is how it was a moment ago, and a key counts as it was at some moment of the walk.
    pub(crate) copies: HashMap<RecordAt, RecordCopy>,
    /// See [`Resume::has_advanced`](super::Resume::has_advanced).
    pub(super) advanced: bool,
}

/// Where the walk stands: before the entry of this hash, or behind so many of those with exactly this one.
#[derive(Default)]
struct Place {
    db: usize,
    stripe: usize,
    high: u64,
    passed: usize,
    /// In the middle of the next value.
    inside: Option<Inside>,
}

struct Inside {
    name: Box<[u8]>,
    kind: Kind,
    cursor: Cursor,
    /// Elements that were told so far.
    elements: usize,
}

/// Whether a slice goes on.
#[derive(PartialEq, Eq)]
enum Flow {
    On,
    /// It has shown enough, waits for records, or has failed.
    Stop,
}

struct Slice<'v> {
    store: &'v Store,
    now_ms: u64,
    at_once: bool,
    visit: &'v mut Visit,
    visitor: &'v mut dyn Visitor,
    cost_left: usize,
    /// Where the next slice begins, once a record was missing. From then on nothing is shown.
    missing_at: Option<Place>,
    reads: Vec<ColdRead>,
    read_bytes: usize,
    ahead_left: usize,
    failed: Option<ReadError>,
}

impl Keyspace<'_> {
    /// One slice of a visit to all values that have not expired. True: it was the last one. False: the handler is to give way to
    /// others and be run again.
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
                place = Place { db: at / STRIPES, stripe: at % STRIPES, ..Place::default() };
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
    /// From the place to the end of its stripe.
    fn stripe(&mut self, stripe: &Stripe, place: &mut Place) -> Flow {
        let uid = self.store.uid(place.db);
        let Some(database) = stripe.database(uid) else { return Flow::On };
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
                if self.entry(entry, uid, place) == Flow::Stop {
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

    fn entry(&mut self, entry: &Entry, uid: u32, place: &mut Place) -> Flow {
        let word = entry.word();
        let hash = KeyHash { high: entry.high(), low: word.0, slot: (place.stripe * (SLOTS / STRIPES)) as u16 };
        let Some(object) = entry.object() else {
            return self.cold(self.store.cold_read(hash, uid, word, None).copying(), place);
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
            Value::Boxed(value) => self.boxed(&key, value, (hash, uid), place),
        }
    }

    fn cold(&mut self, cold: ColdRead, place: &mut Place) -> Flow {
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

    /// A value in RAM, a stretch at a time, of which those that are absent are read.
    fn boxed(&mut self, key: &Visited<'_>, value: &Boxed, (hash, uid): (KeyHash, u32), place: &mut Place) -> Flow {
        let part_of = |store: &Store, part: AbsentPart| {
            let id = value.shelf_id().expect("only a value in parts has absent ones");
            ColdRead::of_part(store, hash, uid, key.kind, id, part).copying()
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

    /// Every type but a stream is gone with its last element.
    fn end(&mut self, elements: usize) {
        if elements > 0 {
            self.visitor.end();
        }
    }

    /// False: a field that has expired.
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

    /// The record, if it has been read. If not, and it cannot be read now, the next slice begins here.
    fn read(&mut self, cold: ColdRead, place: &mut Place) -> Option<RecordCopy> {
        if let Some(copy) = self.visit.copies.remove(&cold.record_at()) {
            return Some(copy);
        }
        if self.at_once {
            return direct::copy_now(self.store, &cold).map_err(|error| self.failed = Some(error)).ok();
        }
        let Place { db, stripe, high, passed, .. } = *place;
        self.missing_at = Some(Place { db, stripe, high, passed, inside: place.inside.take() });
        self.want(cold);
        None
    }

    fn after_missing(&self) -> Flow {
        if self.failed.is_some() { Flow::Stop } else { Flow::On }
    }

    /// A record that will be needed, unless it has been read already.
    fn look_ahead(&mut self, cold: ColdRead) {
        self.ahead_left = self.ahead_left.saturating_sub(1);
        if !self.visit.copies.contains_key(&cold.record_at()) {
            self.want(cold);
        }
    }

    fn want(&mut self, cold: ColdRead) {
        self.read_bytes += self.store.segments.read_pages(cold.word.place()) * PAGE_BYTES;
        self.reads.push(cold);
    }
}
