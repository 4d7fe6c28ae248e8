//! Owns going over the whole dataset at one moment, for a file that holds all of it. Every stripe is locked until the end. Never
//! knows the format of the file, never moves a value between the tiers, and removes nothing.
//!
//! Values in RAM come first. Cold values follow in the order of their places on flash: the index entries of a range of pages are
//! noted and sorted, neighbouring pages are read at once by several threads, and the next pages are read while the values of
//! the ones before are written. The ranges are so narrow that the notes of one fit into [`NOTES_BYTES_MAX`].

use crate::keyspace::direct::{self, RecordCopy};
use crate::keyspace::guards::Held;
use crate::keyspace::{Value, Visited};
use crate::log::page::{Page, Scratch};
use crate::log::parts::{PartName, place_of_number};
use crate::log::read::ReadError;
use crate::mem::hash::{KeyHash, SLOTS, STRIPES};
use crate::mem::index::Entry;
use crate::mem::word::{PAGE_BITS, Place, Word};
use crate::store::Store;
use flash::io::{PAGE_BYTES, PageBuf};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use value::walk::Cursor;
use value::{AbsentPart, Boxed, Kind};

/// The notes of cold values, at most. Without this limit they would take 24 bytes for each key. A node with a small RAM limit uses
/// less.
const NOTES_BYTES_MAX: u64 = 64 << 20;
const NOTES_BYTES_MIN: u64 = 1 << 20;
const NOTES_SHARE: u64 = 32;
/// The entries are counted by ranges of this many pages: 256 MB.
const RANGE_PAGES: u32 = 1 << 16;
/// One read covers at most this many pages, and skips at most this many that nobody wants.
const RUN_PAGES: u32 = 64;
const GAP_PAGES: u32 = 4;
/// Runs that are read at the same time.
const RUNS_AT_ONCE: usize = 16;
/// And how many pages they have, unless the first has more.
const PAGES_AT_ONCE: u32 = 1024;
/// Parts of a large value that are read together.
const PARTS_AT_ONCE: usize = 1024;
/// How long to wait for all stripes at a time.
const PATIENCE: Duration = Duration::from_secs(1);

/// Receives the keys. They come in no meaningful order, also not by logical database.
pub trait Dumper {
    /// The moment is chosen: nothing changes from here to the end.
    fn begin(&mut self) -> io::Result<()>;
    /// A key that has not expired. If a part of the value is on flash only, `parts` reads it.
    fn key(&mut self, key: &Visited<'_>, value: Value<'_>, parts: &mut PartReader<'_>) -> Result<(), DumpError>;
}

/// Why a dump failed.
#[derive(Debug)]
pub enum DumpError {
    /// A value could not be read.
    Read(ReadError),
    /// The dumper has failed.
    Write(io::Error),
}

impl From<io::Error> for DumpError {
    fn from(error: io::Error) -> DumpError {
        DumpError::Write(error)
    }
}

impl From<ReadError> for DumpError {
    fn from(error: ReadError) -> DumpError {
        DumpError::Read(error)
    }
}

/// A cold value's index entry.
struct Note {
    high: u64,
    word: Word,
    stripe: u16,
    db: u16,
}

/// Pages that are read at once.
struct Run {
    page: u32,
    pages: u32,
}

impl Store {
    /// Shows all keys that have not expired. `None`: a script holds stripes, and nothing was shown.
    pub fn dump(&self, now_ms: u64, dumper: &mut dyn Dumper) -> Option<Result<(), DumpError>> {
        let held = Held::all(self, Some(PATIENCE))?;
        Some(Dump { store: self, held, now_ms }.run(dumper))
    }
}

struct Dump<'d> {
    store: &'d Store,
    held: Held<'d>,
    now_ms: u64,
}

impl Dump<'_> {
    fn run(&self, dumper: &mut dyn Dumper) -> Result<(), DumpError> {
        dumper.begin()?;
        let ranges = self.hot(dumper)?;
        let limit = match self.store.tier.ram_limit() {
            0 => NOTES_BYTES_MAX,
            limit => (limit / NOTES_SHARE).clamp(NOTES_BYTES_MIN, NOTES_BYTES_MAX),
        };
        let notes_max = limit / size_of::<Note>() as u64;
        let mut from = 0;
        while from < ranges.len() {
            let (mut to, mut notes) = (from, 0);
            while to < ranges.len() && (to == from || notes + ranges[to] <= notes_max) {
                notes += ranges[to];
                to += 1;
            }
            if notes > 0 {
                self.cold(from as u32 * RANGE_PAGES..to as u32 * RANGE_PAGES, notes as usize, dumper)?;
            }
            from = to;
        }
        Ok(())
    }

    /// Calls `visit` with each entry, its logical database and its stripe.
    fn each(&self, mut visit: impl FnMut(&Entry, usize, usize) -> Result<(), DumpError>) -> Result<(), DumpError> {
        for db in 0..self.store.databases() {
            let uid = self.store.uid(db);
            for stripe in 0..STRIPES {
                let Some(database) = self.held.see(stripe).database(uid) else { continue };
                let mut leaf = Some(0);
                while let Some(high) = leaf {
                    let (entries, next) = database.table.leaf_at(high);
                    entries.iter().try_for_each(|entry| visit(entry, db, stripe))?;
                    leaf = next;
                }
            }
        }
        Ok(())
    }

    /// Shows the values in RAM. Returns how many cold entries each range of pages has.
    fn hot(&self, dumper: &mut dyn Dumper) -> Result<Vec<u64>, DumpError> {
        let mut ranges = vec![0; (1usize << PAGE_BITS) / RANGE_PAGES as usize];
        self.each(|entry, db, stripe| {
            let Some(object) = entry.object() else {
                ranges[(entry.word().place().page / RANGE_PAGES) as usize] += 1;
                return Ok(());
            };
            if object.expiry().is_some_and(|expiry| expiry <= self.now_ms) {
                return Ok(());
            }
            let key = Visited { db, stripe, name: object.key(), kind: object.kind(), expiry: object.expiry() };
            dumper.key(&key, object.value(), &mut PartReader::new(self.store))
        })?;
        Ok(ranges)
    }

    /// Shows the cold values in these pages. There are `count`.
    fn cold(&self, range: Range<u32>, count: usize, dumper: &mut dyn Dumper) -> Result<(), DumpError> {
        let mut notes = Vec::with_capacity(count);
        self.each(|entry, db, stripe| {
            let word = entry.word();
            if !word.is_hot() && range.contains(&word.place().page) {
                notes.push(Note { high: entry.high(), word, stripe: stripe as u16, db: db as u16 });
            }
            Ok(())
        })?;
        notes.sort_unstable_by_key(|note| note.word.place().page);
        let store = self.store;
        let mut runs: VecDeque<Run> = runs(store, notes.iter().map(|note| note.word.place())).into();
        let mut notes = notes.iter().peekable();
        let mut ready = read_runs(store, some(&mut runs));
        while !ready.is_empty() {
            let next = some(&mut runs);
            let (shown, read) = std::thread::scope(|scope| {
                let reading = scope.spawn(move || read_runs(store, next));
                let shown = ready.drain(..).try_for_each(|(run, pages)| {
                    let pages = pages?;
                    while let Some(note) = notes.next_if(|note| note.word.place().page < run.page + run.pages) {
                        self.show(note, &pages[(note.word.place().page - run.page) as usize * PAGE_BYTES..], dumper)?;
                    }
                    Ok::<(), DumpError>(())
                });
                (shown, reading.join().expect("reading does not panic"))
            });
            shown?;
            ready = read;
        }
        Ok(())
    }

    /// Shows the value of an entry whose page begins at the start of `bytes`.
    fn show(&self, note: &Note, bytes: &[u8], dumper: &mut dyn Dumper) -> Result<(), DumpError> {
        let (db, stripe) = (usize::from(note.db), usize::from(note.stripe));
        let hash = KeyHash { high: note.high, low: note.word.0, slot: (stripe * (SLOTS / STRIPES)) as u16 };
        let page = Page::open(bytes, self.store.segments.stamp(note.word.place().page)).map_err(ReadError::Corrupt)?;
        let wanted = self.store.cold_read(hash, self.store.uid(db), note.word, None).copying();
        let record: RecordCopy = direct::copy(self.store, &page, &wanted, &mut Scratch::new())?;
        if record.expiry.is_some_and(|expiry| expiry <= self.now_ms) {
            return Ok(());
        }
        let (kind, expiry) = (record.tag.kind, record.expiry);
        let key = Visited { db, stripe, name: &record.name, kind, expiry };
        let mut parts = PartReader::new(self.store);
        if !record.tag.boxed && kind != Kind::Stream {
            return dumper.key(&key, Value::Inline(kind, &record.value), &mut parts);
        }
        let value = Boxed::decode(kind, &record.value).map_err(|_| ReadError::Missing)?;
        dumper.key(&key, Value::Boxed(&value), &mut parts)
    }
}

/// The reads that cover these places, which are in order.
fn runs(store: &Store, places: impl Iterator<Item = Place>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for place in places {
        let end = place.page + store.segments.read_pages(place) as u32;
        if let Some(run) = runs.last_mut()
            && place.page <= run.page + run.pages + GAP_PAGES
            && store.segments.of_page(place.page) == store.segments.of_page(run.page)
            && (end <= run.page + RUN_PAGES || place.page < run.page + run.pages)
        {
            run.pages = run.pages.max(end - run.page);
            continue;
        }
        runs.push(Run { page: place.page, pages: end - place.page });
    }
    runs
}

/// The next runs to read at the same time.
fn some(runs: &mut VecDeque<Run>) -> Vec<Run> {
    let mut pages = 0;
    let fits = |run: &&Run| {
        pages += run.pages;
        pages <= PAGES_AT_ONCE
    };
    let count = runs.iter().take(RUNS_AT_ONCE).take_while(fits).count();
    runs.drain(..count.max(1).min(runs.len())).collect()
}

/// Reads all runs at the same time.
fn read_runs(store: &Store, runs: Vec<Run>) -> Vec<(Run, Result<PageBuf, ReadError>)> {
    std::thread::scope(|scope| {
        let reads: Vec<_> = runs.into_iter().map(|run| scope.spawn(move || (read_run(store, &run), run))).collect();
        let done = reads.into_iter().map(|read| read.join().expect("reading does not panic"));
        done.map(|(pages, run)| (run, pages)).collect()
    })
}

fn read_run(store: &Store, run: &Run) -> Result<PageBuf, ReadError> {
    let mut pages = PageBuf::new(run.pages as usize);
    let (path, offset) = store.segments.location(run.page);
    let reader = store.reader.get().expect("values are cold only where there is flash to read");
    reader.read(path, offset, &mut pages).map_err(|error| ReadError::Io(Arc::new(error)))?;
    Ok(pages)
}

/// Reads the parts of one value that are on flash only, many at a time.
pub struct PartReader<'s> {
    store: &'s Store,
    /// The value's absent parts that were not read yet, in the order of a walk.
    absent: Option<VecDeque<AbsentPart>>,
    read: HashMap<u64, Box<[u8]>>,
}

impl PartReader<'_> {
    fn new(store: &Store) -> PartReader<'_> {
        PartReader { store, absent: None, read: HashMap::new() }
    }

    /// The bytes of an absent part of `value`, which must be the same value in every call.
    pub fn read(&mut self, value: &Boxed, part: AbsentPart) -> Result<Box<[u8]>, DumpError> {
        let absent = self.absent.get_or_insert_with(|| in_order(value));
        while !self.read.contains_key(&part.number) {
            let mut together: Vec<AbsentPart> = absent.drain(..absent.len().min(PARTS_AT_ONCE)).collect();
            let Some(id) = value.shelf_id().filter(|_| !together.is_empty()) else {
                return Err(ReadError::Missing.into());
            };
            together.sort_unstable_by_key(|part| place_of_number(part.place).page);
            let mut runs = VecDeque::from(runs(self.store, together.iter().map(|part| place_of_number(part.place))));
            let mut together = together.iter().peekable();
            while !runs.is_empty() {
                for (run, pages) in read_runs(self.store, some(&mut runs)) {
                    let pages = pages?;
                    let is_in_run = |part: &&AbsentPart| place_of_number(part.place).page < run.page + run.pages;
                    while let Some(part) = together.next_if(|part| is_in_run(part)) {
                        let first = place_of_number(part.place).page;
                        let bytes = &pages[(first - run.page) as usize * PAGE_BYTES..];
                        let stamp = self.store.segments.stamp(first);
                        let page = Page::open(bytes, stamp).map_err(ReadError::Corrupt)?;
                        let name = PartName { id, number: part.number };
                        let bytes = direct::part_copy(self.store, &page, name)?;
                        self.read.insert(part.number, bytes);
                    }
                }
            }
        }
        Ok(self.read.remove(&part.number).expect("it was just found"))
    }
}

/// The absent parts in the order in which a walk asks for them.
fn in_order(value: &Boxed) -> VecDeque<AbsentPart> {
    let (mut cursor, mut absent) = (Cursor::default(), VecDeque::new());
    while let Some(stretch) = value.stretch(cursor) {
        absent.extend(stretch.absent);
        cursor = stretch.next;
    }
    absent
}
