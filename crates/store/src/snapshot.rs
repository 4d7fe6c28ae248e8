//! Owns snapshots: the whole dataset as it was at one moment, the *cut*, gathered while commands go on. Never knows where the
//! values go, never moves a value between the tiers, and removes nothing.
//!
//! At the cut every stripe is locked for a moment, and every table begins to track which of its entries the snapshot
//! still needs (see [`Table::begin_cut`](crate::mem::index::Table::begin_cut)). Then a walk goes over the stripes in
//! slices. A change of an entry that the walk has not reached yet first gives the entry to the snapshot: a value in RAM
//! is shown to the dumper, and of a cold value the place on flash is noted. A table that is emptied goes to the
//! snapshot as a whole, and the snapshot frees it later. A move between the tiers is not a change of the entry.
//!
//! Cold values follow in the order of their places on flash. Their notes are sorted outside of RAM if they do not fit
//! into [`NOTES_BYTES_MAX`]. Segments that are emptied meanwhile are not used again before the end of the snapshot, so
//! every noted place stays readable. If writers need these segments, the snapshot is given up.
//!
//! A value in parts is shown as a whole at once, so a large one keeps its stripe locked for as long as that takes. A checkpoint
//! only needs its skeleton.
//!
//! A snapshot *with pages* does not decode the values on flash: the dumper gets whole pages, which another store can
//! import ([`crate::page_import`]). If little of a page is live, its live values are shown one by one instead.
//!
//! A *checkpoint* is a snapshot that leaves values where they are on flash: the dumper gets only the values that have
//! no copy on flash. For all other values, their index entries are handed out, or the skeletons of values in parts
//! ([`Snapshot::run_places`]).

use crate::checkpoint_index::{CheckpointIndex, save_parts};
use crate::keyspace::direct;
use crate::keyspace::guards::{Held, Reach};
use crate::keyspace::{Value, Visited};
use crate::log::page::{Packing, Page, SHIPMENT_PAGES_MAX, Scratch};
use crate::log::parts::{PartName, place_of_number};
use crate::log::read::ReadError;
use crate::log::run::Run;
use crate::log::segment::SnapshotKind;
use crate::mem::hash::{KeyHash, STRIPES, first_slot};
use crate::mem::index::Entry;
use crate::mem::word::{PageAddress, Word};
use crate::narrow::to_usize;
use crate::store::{Cut, Orphan, Store, clean_word};
use flash::io::{PAGE_BYTES, PageBuf};
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use value::walk::Cursor;
use value::{AbsentPart, Boxed, Kind};

/// Maximum memory for the notes of cold values. A node with a small RAM limit uses less.
const NOTES_BYTES_MAX: u64 = 64 << 20;
const NOTES_BYTES_MIN: u64 = 256 << 10;
const NOTES_SHARE: u64 = 32;
/// Number of notes whose values are read together.
const NOTES_AT_ONCE: usize = 1 << 16;
/// A slice of the walk ends after this many bytes of values. Each entry counts for [`ENTRY_COST`] more.
const SLICE_COST: usize = 64 << 10;
const ENTRY_COST: usize = 64;
/// Maximum number of runs that are read at the same time.
const RUNS_AT_ONCE: usize = 16;
/// Maximum number of pages of these runs together. A single run may be longer.
const PAGES_AT_ONCE: u32 = 1024;
/// A page is sent whole if at least one in this many of its records is needed.
const LIVE_PART: usize = 2;
/// Number of parts of a large value that are read together.
const PARTS_AT_ONCE: usize = 1024;
/// How long a cut waits for all stripes.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Receives the keys of a snapshot. They come in no meaningful order, also not by logical database.
pub trait Dumper: Send + 'static {
    /// A key that had not expired. If a part of the value is on flash only, `parts` reads it. Stripes may be locked.
    fn key(&mut self, key: &Visited<'_>, value: Value<'_>, parts: &mut PartReader<'_>) -> Result<(), DumpError>;
    /// Passes on what was gathered. No stripe is locked by the caller.
    fn flush(&mut self) -> io::Result<()>;
    /// For a snapshot with pages: a dictionary that later pages need, for
    /// [`PageImport::dictionary`](crate::PageImport::dictionary).
    fn dictionary(&mut self, _dictionary: &[u8]) -> io::Result<()> {
        unreachable!("only a dumper of pages gets dictionaries")
    }
    /// For a snapshot with pages: a shipment of pages with so many live keys, for
    /// [`PageImport::take`](crate::PageImport::take).
    fn pages(&mut self, _shipment: &[u8], _keys: u64) -> io::Result<()> {
        unreachable!("only a dumper of pages gets pages")
    }
}

/// How a snapshot handles values that have a copy on flash.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnFlash {
    Shown,
    /// Whole pages go to the dumper.
    Sent,
    /// The values stay where they are: this is a checkpoint.
    Stay,
}

impl OnFlash {
    fn kind(self) -> SnapshotKind {
        match self {
            OnFlash::Shown | OnFlash::Sent => SnapshotKind::Dump,
            OnFlash::Stay => SnapshotKind::Checkpoint,
        }
    }
}

/// What a checkpoint hands out for a stripe and a table id.
pub enum CheckpointPart<'k> {
    /// The hashes and words of some entries, for [`Adding::add`](crate::Adding::add).
    Entries(&'k [(u64, u64)]),
    /// A key whose value is in parts, for [`Restoring::add_parts`](crate::Restoring::add_parts).
    Parts(&'k [u8]),
}

/// Called with a stripe, a table id, and a part of what they contain.
pub type Places<'p> = dyn FnMut(u16, u16, CheckpointPart<'_>) -> io::Result<()> + 'p;

/// Where notes go that do not fit into RAM.
pub trait Spill: Read + Write + Seek {}
impl<F: Read + Write + Seek> Spill for F {}

/// Why a dump failed.
#[derive(Debug)]
pub enum DumpError {
    /// A value could not be read.
    Read(ReadError),
    /// The dumper has failed.
    Write(io::Error),
    /// Writers need the segments that the snapshot keeps from being used again.
    NoRoom,
    /// The caller gave up.
    GivenUp,
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
#[derive(Clone, Copy)]
struct Note {
    high: u64,
    word: Word,
    stripe: u16,
    table_id: u16,
}

/// What the walk and commands noted since the last slice of the walk.
#[derive(Default)]
struct Noted {
    cold: Vec<Note>,
    /// For a checkpoint: the stripe, the table id and the encoded skeleton of each value in parts.
    in_parts: Vec<(u16, u16, Vec<u8>)>,
}

/// A snapshot whose cut was made. Dropping it gives it up.
pub struct Snapshot<D: Dumper> {
    store: Arc<Store>,
    /// `None` after the end of the snapshot.
    gathered: Option<Arc<Gathered<D>>>,
    /// The number of its cut, for [`Store::checkpoint_durable`].
    cut: u64,
    /// For a checkpoint: records of values as they were at the cut or before have lower sequence numbers.
    first_after: u64,
}

/// The part of a snapshot that is shared with the store: the walk, and commands that change an entry, give entries to
/// it.
struct Gathered<D> {
    /// The wall clock at the cut.
    now_ms: u64,
    on_flash: OnFlash,
    /// The logical database of each table id at the cut.
    dbs: Box<[usize]>,
    dumper: Mutex<D>,
    noted: Mutex<Noted>,
    orphans: Mutex<Vec<Vec<Orphan>>>,
    failed: Mutex<Option<DumpError>>,
}

impl<D: Dumper> Gathered<D> {
    fn take(&self, store: &Store, entry: &Entry, stripe: usize, table_id: u32) -> Result<usize, DumpError> {
        #[expect(clippy::cast_possible_truncation, reason = "they are below STRIPES and DATABASES_MAX")]
        let (number, table) = (stripe as u16, table_id as u16);
        let note = |word| {
            let note = Note { high: entry.high(), word, stripe: number, table_id: table };
            self.noted.lock().cold.push(note);
            Ok(ENTRY_COST)
        };
        // The reference bit of a note says that the value was in RAM.
        let Some(object) = entry.object() else { return note(entry.word().with_referenced(false)) };
        if self.on_flash == OnFlash::Stay && object.is_in_parts() {
            let saved = save_parts(object);
            let cost = ENTRY_COST + saved.len();
            self.noted.lock().in_parts.push((number, table, saved));
            return Ok(cost);
        }
        if self.on_flash != OnFlash::Shown && !object.is_in_parts() && !entry.word().is_dirty() {
            // With the reference bit set, the first read after a restart brings the value back to RAM.
            return note(clean_word(object).with_referenced(true));
        }
        if object.expiry().is_some_and(|expiry| expiry <= self.now_ms) {
            return Ok(ENTRY_COST);
        }
        let (db, kind, expiry) = (self.dbs[table_id as usize], object.kind(), object.expiry());
        let key = Visited { db, stripe, name: object.key(), kind, expiry };
        let cost = ENTRY_COST + object.inline().map_or_else(|| object.boxed().map_or(0, Boxed::mem_bytes), <[u8]>::len);
        self.dumper.lock().key(&key, object.value(), &mut PartReader::new(store)).map(|()| cost)
    }
}

impl<D: Dumper> Cut for Gathered<D> {
    fn keep(&self, store: &Store, entry: &Entry, stripe: usize, table_id: u32) {
        if let Err(error) = self.take(store, entry, stripe, table_id) {
            // Keep only the first failure. The walk returns it.
            self.failed.lock().get_or_insert(error);
        }
    }

    fn adopt(&self, orphans: Vec<Orphan>) {
        self.orphans.lock().push(orphans);
    }
}

impl Store {
    /// Makes the cut of a snapshot. `begin` makes the dumper at that moment, while every stripe is locked. `None`: a
    /// script holds stripes, or another snapshot is running.
    pub fn cut<D: Dumper>(
        self: &Arc<Store>,
        now_ms: u64,
        begin: impl FnOnce() -> Result<D, DumpError>,
    ) -> Option<Result<Snapshot<D>, DumpError>> {
        self.cut_with(now_ms, OnFlash::Shown, begin)
    }

    /// Like [`Store::cut`], for a snapshot with pages. Nothing counts as expired. If this store cannot send pages, all
    /// values are shown.
    pub fn cut_with_pages<D: Dumper>(
        self: &Arc<Store>,
        begin: impl FnOnce() -> Result<D, DumpError>,
    ) -> Option<Result<Snapshot<D>, DumpError>> {
        self.cut_with(0, OnFlash::Sent, begin)
    }

    /// Makes the cut of a checkpoint, like [`Store::cut`]. Nothing counts as expired. The snapshot must be run with
    /// [`Snapshot::run_places`].
    pub fn cut_for_checkpoint<D: Dumper>(
        self: &Arc<Store>,
        begin: impl FnOnce() -> Result<D, DumpError>,
    ) -> Option<Result<Snapshot<D>, DumpError>> {
        self.cut_with(0, OnFlash::Stay, begin)
    }

    fn cut_with<D: Dumper>(
        self: &Arc<Store>,
        now_ms: u64,
        on_flash: OnFlash,
        begin: impl FnOnce() -> Result<D, DumpError>,
    ) -> Option<Result<Snapshot<D>, DumpError>> {
        let mut held = Held::all(self, Some(TIMEOUT), Reach::All)?;
        let mut slot = self.cut.write();
        if slot.is_some() {
            return None;
        }
        let dumper = match begin() {
            Ok(dumper) => dumper,
            Err(error) => return Some(Err(error)),
        };
        let on_flash = match on_flash {
            OnFlash::Sent if !self.exchanges_pages() => OnFlash::Shown,
            on_flash => on_flash,
        };
        let mut dbs = vec![0; self.databases()].into_boxed_slice();
        (0..self.databases()).for_each(|db| dbs[self.table_id(db) as usize] = db);
        let number = self.cuts.fetch_add(1, Relaxed) + 1;
        let cut = if on_flash == OnFlash::Stay { self.checkpoint_cut() } else { 0 };
        let mut in_ram = 0;
        for stripe in 0..STRIPES {
            for database in held.get(stripe).all_mut().filter(|database| !database.table.is_empty()) {
                database.table.begin_cut(number);
                in_ram += database.hot as u64;
            }
        }
        // Records get their sequence numbers under the stripes' locks, all of which are held here, so the number is
        // exact.
        let first_after = if on_flash == OnFlash::Stay { self.sequence.cut(in_ram) } else { 0 };
        self.set_snapshot(Some(on_flash.kind()));
        let gathered = Arc::new(Gathered {
            now_ms,
            on_flash,
            dbs,
            dumper: Mutex::new(dumper),
            noted: Mutex::default(),
            orphans: Mutex::default(),
            failed: Mutex::default(),
        });
        *slot = Some(Arc::clone(&gathered) as Arc<dyn Cut>);
        Some(Ok(Snapshot { store: Arc::clone(self), gathered: Some(gathered), cut, first_after }))
    }
}

impl<D: Dumper> Snapshot<D> {
    /// Shows all keys to the dumper and returns the dumper. `pause` is called repeatedly while no stripe is locked: it
    /// may wait, or give the snapshot up with an error.
    pub fn run(
        mut self,
        spill: &mut dyn Spill,
        pause: &mut dyn FnMut() -> Result<(), DumpError>,
    ) -> Result<D, DumpError> {
        self.show_all(spill, pause)?;
        let gathered = self.end().expect("it has not ended");
        Ok(Arc::into_inner(gathered).expect("the store has forgotten the snapshot").dumper.into_inner())
    }

    /// For a checkpoint: shows the values that have no copy on flash to the dumper, and gives the entries of all others
    /// to `places`. Returns the dumper, the table that a store needs to find these others again, and the cut's number
    /// for [`Store::checkpoint_durable`].
    pub fn run_places(
        mut self,
        places: &mut Places<'_>,
        pause: &mut dyn FnMut() -> Result<(), DumpError>,
    ) -> Result<(D, CheckpointIndex, u64), DumpError> {
        self.walk(pause, &mut |Noted { cold: mut notes, in_parts }| {
            notes.sort_by_key(|note| (note.stripe, note.table_id));
            for some in notes.chunk_by(|one, other| (one.stripe, one.table_id) == (other.stripe, other.table_id)) {
                let pairs: Vec<(u64, u64)> = some.iter().map(|note| (note.high, note.word.0)).collect();
                places(some[0].stripe, some[0].table_id, CheckpointPart::Entries(&pairs))?;
            }
            in_parts
                .iter()
                .try_for_each(|(stripe, table_id, saved)| places(*stripe, *table_id, CheckpointPart::Parts(saved)))
        })?;
        // Only now, after the walk, does the table of segments contain the segment of every entry that was handed out.
        let is_ordered = self.store.sequence.end_cut();
        let checkpoint = self.store.checkpoint(&self.gathered().dbs, self.first_after, is_ordered);
        let cut = self.cut;
        let gathered = self.end().expect("it has not ended");
        let dumper = Arc::into_inner(gathered).expect("the store has forgotten the snapshot").dumper.into_inner();
        Ok((dumper, checkpoint, cut))
    }

    fn gathered(&self) -> &Gathered<D> {
        self.gathered.as_ref().expect("it has not ended")
    }

    fn show_all(
        &self,
        spill: &mut dyn Spill,
        pause: &mut dyn FnMut() -> Result<(), DumpError>,
    ) -> Result<(), DumpError> {
        let limit = match self.store.tier.ram_limit() {
            0 => NOTES_BYTES_MAX,
            limit => (limit / NOTES_SHARE).clamp(NOTES_BYTES_MIN, NOTES_BYTES_MAX),
        };
        let mut notes = Notes::new(spill, to_usize(limit) / size_of::<Note>());
        self.walk(pause, &mut |noted| noted.cold.into_iter().try_for_each(|note| notes.add(note)))?;
        let (mut notes, mut sent) = (notes.sorted()?, HashSet::new());
        loop {
            let some: Vec<Note> = notes.by_ref().take(NOTES_AT_ONCE).collect::<io::Result<_>>()?;
            if some.is_empty() {
                return Ok(());
            }
            self.cold(&some, &mut sent, pause)?;
        }
    }

    /// Walks over all entries. `add` gets what was noted after each slice.
    fn walk(
        &self,
        pause: &mut dyn FnMut() -> Result<(), DumpError>,
        add: &mut dyn FnMut(Noted) -> io::Result<()>,
    ) -> Result<(), DumpError> {
        for stripe in 0..STRIPES {
            let mut at = Some((0, 0));
            while let Some(place) = at {
                at = self.slice(stripe, place)?;
                self.between(pause, add)?;
            }
        }
        Ok(())
    }

    /// Walks over entries of a stripe, from a table id and a hash on. Returns where to continue; `None`: the stripe is
    /// done.
    fn slice(&self, stripe: usize, (mut table_id, mut high): (u32, u64)) -> Result<Option<(u32, u64)>, DumpError> {
        let mut guard = self.store.stripe(stripe);
        let mut cost = 0;
        while table_id < guard.table_ids() {
            let database = guard.database_mut(table_id);
            let mut next = Some(high).filter(|_| database.table.is_cut());
            while let Some(from) = next {
                if cost > SLICE_COST {
                    return Ok(Some((table_id, from)));
                }
                let (entries, end) = database.table.keep_leaf(from);
                entries.clone().for_each(Entry::prefetch_object);
                for entry in entries {
                    cost += self.gathered().take(&self.store, entry, stripe, table_id)?;
                }
                next = end;
            }
            database.table.end_cut();
            (table_id, high) = (table_id + 1, 0);
        }
        Ok(None)
    }

    /// The work between two slices of the walk.
    fn between(
        &self,
        pause: &mut dyn FnMut() -> Result<(), DumpError>,
        add: &mut dyn FnMut(Noted) -> io::Result<()>,
    ) -> Result<(), DumpError> {
        let orphans = std::mem::take(&mut *self.gathered().orphans.lock());
        for mut group in orphans {
            for Orphan { stripe, table_id, database } in &mut group {
                let mut next = Some(0);
                while let Some(high) = next {
                    let (mut entries, end) = database.table.keep_leaf(high);
                    entries
                        .try_for_each(|entry| self.gathered().take(&self.store, entry, *stripe, *table_id).map(drop))?;
                    next = end;
                }
            }
            self.store.empty(group.into_iter().map(|orphan| orphan.database).collect());
        }
        let noted = std::mem::take(&mut *self.gathered().noted.lock());
        add(noted)?;
        self.rest(pause)
    }

    fn rest(&self, pause: &mut dyn FnMut() -> Result<(), DumpError>) -> Result<(), DumpError> {
        self.gathered().dumper.lock().flush()?;
        if let Some(error) = self.gathered().failed.lock().take() {
            return Err(error);
        }
        // A checkpoint is not given up, because it is what frees the segments.
        if self.gathered().on_flash.kind() == SnapshotKind::Dump && self.store.is_short_of_segments() {
            return Err(DumpError::NoRoom);
        }
        pause()
    }

    /// Ends the snapshot: removes it from the store and its tables.
    fn end(&mut self) -> Option<Arc<Gathered<D>>> {
        let gathered = self.gathered.take()?;
        for stripe in 0..STRIPES {
            self.store.stripe(stripe).all_mut().for_each(|database| database.table.end_cut());
        }
        self.store.sequence.end_cut();
        *self.store.cut.write() = None;
        self.store.set_snapshot(None);
        for group in gathered.orphans.lock().drain(..) {
            self.store.empty(group.into_iter().map(|orphan| orphan.database).collect());
        }
        Some(gathered)
    }

    /// Shows the values of some notes, which are sorted by their places on flash, or sends their pages. `sent`: the
    /// dictionaries that were already sent.
    fn cold(
        &self,
        mut notes: &[Note],
        sent: &mut HashSet<u32>,
        pause: &mut dyn FnMut() -> Result<(), DumpError>,
    ) -> Result<(), DumpError> {
        let store = &*self.store;
        if notes.iter().any(|note| note.word.place().is_lost()) {
            return Err(ReadError::Lost.into());
        }
        let mut runs: VecDeque<Run> = runs(store, notes.iter().map(|note| note.word.place())).into();
        let mut ready = read_runs(store, some(&mut runs));
        let mut scratch = Scratch::new();
        while !ready.is_empty() {
            let next = some(&mut runs);
            let (shown, read) = std::thread::scope(|scope| {
                let reading = scope.spawn(move || read_runs(store, next));
                let shown = ready.drain(..).try_for_each(|(run, pages)| {
                    let pages = pages?;
                    let (here, behind) =
                        notes.split_at(notes.partition_point(|note| note.word.place().page < run.page + run.pages));
                    notes = behind;
                    let shown = self.send(here, &run, &pages, sent)?;
                    // A page is checked once, for all values that begin on it.
                    for some in shown.as_deref().unwrap_or(here).chunk_by(|one, other| one.page() == other.page()) {
                        let page = open(store, &run, &pages, some[0].page())?;
                        some.iter().try_for_each(|note| self.show(note, &page, &mut scratch))?;
                    }
                    Ok::<(), DumpError>(())
                });
                (shown, reading.join().expect("reading does not panic"))
            });
            shown?;
            ready = read;
            self.rest(pause)?;
        }
        Ok(())
    }

    /// Sends the pages of a run of which enough records are needed. Returns the notes whose values must be shown
    /// instead; `None`: all of them.
    fn send(
        &self,
        notes: &[Note],
        run: &Run,
        pages: &[u8],
        sent: &mut HashSet<u32>,
    ) -> Result<Option<Vec<Note>>, DumpError> {
        if self.gathered().on_flash != OnFlash::Sent || run.pages as usize > SHIPMENT_PAGES_MAX {
            return Ok(None);
        }
        let (mut packing, mut shown) = (Packing::new(run.pages as usize), Vec::new());
        for some in notes.chunk_by(|one, other| one.page() == other.page()) {
            let at = (some[0].page() - run.page) as usize;
            let page = open(&self.store, run, pages, some[0].page())?;
            let records = page.record_count();
            if some.len() * LIVE_PART < records {
                shown.extend_from_slice(some);
                continue;
            }
            for note in some {
                match page.position(note.high).filter(|&(_, on)| at + on <= run.pages as usize) {
                    Some(position) => packing.add(at, records, position),
                    None => shown.push(*note),
                }
            }
        }
        let keys = packing.keys();
        let (needed, shipment) =
            packing.pack(pages, self.store.segments.stamp(run.page)).map_err(ReadError::Corrupt)?;
        let mut dumper = self.gathered().dumper.lock();
        for id in needed {
            if sent.insert(id) {
                let dictionary = self.store.dictionary(id).ok_or(ReadError::Missing)?;
                dumper.dictionary(&dictionary.serialize())?;
            }
        }
        if keys > 0 {
            dumper.pages(&shipment, keys)?;
        }
        Ok(Some(shown))
    }

    /// Shows the value of an entry, which begins on this page.
    fn show(&self, note: &Note, page: &Page<'_>, scratch: &mut Scratch) -> Result<(), DumpError> {
        let (store, gathered) = (&*self.store, self.gathered());
        let (table_id, stripe) = (u32::from(note.table_id), usize::from(note.stripe));
        let hash = KeyHash { high: note.high, low: note.word.0, slot: first_slot(stripe) };
        let wanted = store.cold_read(hash, table_id, note.word, None).copying();
        let (record, tag) = direct::find(store, page, &wanted, scratch)?;
        if record.expiry_ms.is_some_and(|expiry_ms| expiry_ms <= gathered.now_ms) {
            return Ok(());
        }
        let (kind, expiry) = (tag.kind, record.expiry_ms);
        let key = Visited { db: gathered.dbs[table_id as usize], stripe, name: record.key, kind, expiry };
        let mut parts = PartReader::new(store);
        let mut dumper = gathered.dumper.lock();
        if !tag.boxed && kind != Kind::Stream {
            return dumper.key(&key, Value::Inline(kind, record.value), &mut parts);
        }
        let value = Boxed::decode(kind, record.value).map_err(|_| ReadError::Missing)?;
        dumper.key(&key, Value::Boxed(&value), &mut parts)
    }
}

impl<D: Dumper> Drop for Snapshot<D> {
    fn drop(&mut self) {
        self.end();
    }
}

/// The notes of cold values: most are outside of RAM, in sorted runs.
struct Notes<'s> {
    spill: &'s mut dyn Spill,
    in_ram: Vec<Note>,
    in_ram_max: usize,
    /// The number of notes of each sorted run outside of RAM.
    runs: Vec<usize>,
}

impl<'s> Notes<'s> {
    fn new(spill: &'s mut dyn Spill, in_ram_max: usize) -> Notes<'s> {
        Notes { spill, in_ram: Vec::new(), in_ram_max, runs: Vec::new() }
    }

    fn add(&mut self, note: Note) -> io::Result<()> {
        if self.in_ram.len() == self.in_ram_max {
            self.in_ram.sort_unstable_by_key(Note::page);
            for some in self.in_ram.chunks(NOTES_AT_ONCE / 16) {
                let bytes: Vec<u8> = some.iter().flat_map(Note::bytes).collect();
                self.spill.write_all(&bytes)?;
            }
            self.runs.push(self.in_ram.len());
            self.in_ram.clear();
        }
        self.in_ram.push(note);
        Ok(())
    }

    /// All notes in the order of their places on flash.
    fn sorted(mut self) -> io::Result<Sorted<'s>> {
        self.in_ram.sort_unstable_by_key(Note::page);
        // The notes that are read ahead of all runs together take as much RAM as the notes in RAM did before.
        let ahead = (self.in_ram_max / (self.runs.len() + 1)).max(1);
        let mut offset = 0;
        let mut runs: Vec<NoteRun> = Vec::new();
        for &count in &self.runs {
            runs.push(NoteRun { ahead: VecDeque::new(), offset, left: count });
            offset += (count * NOTE_BYTES) as u64;
        }
        runs.push(NoteRun { ahead: self.in_ram.into(), offset, left: 0 });
        let mut sorted = Sorted { spill: self.spill, runs, ahead, next: BinaryHeap::new() };
        (0..sorted.runs.len()).try_for_each(|run| sorted.queue(run))?;
        Ok(sorted)
    }
}

const NOTE_BYTES: usize = 20;

impl Note {
    fn page(&self) -> u32 {
        self.word.place().page
    }

    fn bytes(&self) -> [u8; NOTE_BYTES] {
        let mut bytes = [0; NOTE_BYTES];
        bytes[..8].copy_from_slice(&self.high.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.word.0.to_le_bytes());
        bytes[16..18].copy_from_slice(&self.stripe.to_le_bytes());
        bytes[18..].copy_from_slice(&self.table_id.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; NOTE_BYTES]) -> Note {
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        Note { high: number(0), word: Word(number(8)), stripe: short(16), table_id: short(18) }
    }
}

/// The merge of all runs of notes.
struct Sorted<'s> {
    spill: &'s mut dyn Spill,
    runs: Vec<NoteRun>,
    /// Number of notes of a run that are read at a time.
    ahead: usize,
    /// The page of the next note of each run that has one.
    next: BinaryHeap<Reverse<(u32, usize)>>,
}

struct NoteRun {
    ahead: VecDeque<Note>,
    /// The offset of its unread notes outside of RAM, and their number.
    offset: u64,
    left: usize,
}

impl Sorted<'_> {
    /// Adds the next note of a run to the heap, if there is one.
    fn queue(&mut self, at: usize) -> io::Result<()> {
        let run = &mut self.runs[at];
        if run.ahead.is_empty() && run.left > 0 {
            let count = self.ahead.min(run.left);
            let mut bytes = vec![0; count * NOTE_BYTES];
            self.spill.seek(SeekFrom::Start(run.offset))?;
            self.spill.read_exact(&mut bytes)?;
            run.ahead.extend(bytes.as_chunks().0.iter().map(Note::from_bytes));
            run.offset += bytes.len() as u64;
            run.left -= count;
        }
        self.next.extend(run.ahead.front().map(|note| Reverse((note.page(), at))));
        Ok(())
    }
}

impl Iterator for Sorted<'_> {
    type Item = io::Result<Note>;

    fn next(&mut self) -> Option<io::Result<Note>> {
        let Reverse((_, run)) = self.next.pop()?;
        let note = self.runs[run].ahead.pop_front().expect("it was entered");
        Some(self.queue(run).map(|()| note))
    }
}

/// The runs of pages that cover these places, which are sorted.
fn runs(store: &Store, places: impl Iterator<Item = PageAddress>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for place in places {
        let pages = Run { page: place.page, pages: store.segments.read_pages(place) };
        if !runs.last_mut().is_some_and(|run| run.take(&store.segments, pages)) {
            runs.push(pages);
        }
    }
    runs
}

/// Takes the next runs that are to be read at the same time.
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
    let files = store.blocking.get().expect("values are cold only where there is flash to read");
    files.read(path, offset, &mut pages).map_err(|error| ReadError::Io(Arc::new(error)))?;
    Ok(pages)
}

/// Checks a page of a run. The pages behind it are checked when a value that continues there is read.
fn open<'b>(store: &Store, run: &Run, pages: &'b [u8], number: u32) -> Result<Page<'b>, ReadError> {
    let bytes = &pages[(number - run.page) as usize * PAGE_BYTES..];
    Page::open(bytes, store.segments.stamp(number)).map_err(|corrupt| {
        store.found_rot([number]);
        ReadError::Corrupt(corrupt)
    })
}

/// Reads the parts of one value that are on flash only, many at a time.
pub struct PartReader<'s> {
    store: &'s Store,
    /// Most values have no such parts.
    scratch: Option<Scratch>,
    /// The value's absent parts that were not read yet, in the order of a walk.
    absent: Option<VecDeque<AbsentPart>>,
    read: HashMap<u64, Box<[u8]>>,
}

impl PartReader<'_> {
    fn new(store: &Store) -> PartReader<'_> {
        PartReader { store, scratch: None, absent: None, read: HashMap::new() }
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
            let scratch = self.scratch.get_or_insert_with(Scratch::new);
            while !runs.is_empty() {
                for (run, pages) in read_runs(self.store, some(&mut runs)) {
                    let pages = pages?;
                    let is_in_run = |part: &&AbsentPart| place_of_number(part.place).page < run.page + run.pages;
                    while let Some(part) = together.next_if(|part| is_in_run(part)) {
                        let page = open(self.store, &run, &pages, place_of_number(part.place).page)?;
                        let name = PartName { id, number: part.number };
                        let bytes = direct::part_copy(self.store, &page, name, scratch)?;
                        self.read.insert(part.number, bytes);
                    }
                }
            }
        }
        Ok(self.read.remove(&part.number).expect("it was just found"))
    }
}

/// The absent parts in the order in which a walk over the value meets them.
fn in_order(value: &Boxed) -> VecDeque<AbsentPart> {
    let (mut cursor, mut absent) = (Cursor::default(), VecDeque::new());
    while let Some(stretch) = value.stretch(cursor) {
        absent.extend(stretch.absent);
        cursor = stretch.next;
    }
    absent
}
