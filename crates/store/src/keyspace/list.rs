//! Owns the list of the keys of a logical database, or of some that follow each other in the order of hashes, in slices: KEYS, and
//! SCAN's cursor with its guarantee. Never reads values, and never moves or changes anything.
//!
//! The names of cold keys are on flash, beside the values. So a list goes in rounds. A round *gathers* entries in the order of hashes:
//! keys in RAM are shown at once, and the entries of cold keys are noted. Then the notes are *named* in the order of their pages: pages
//! that lie together are read together, some runs ahead, and each page is decoded once for all notes on it. Only the memory for
//! notes bounds a round, so if all entries of a database fit there, each of its pages is read once.
//!
//! Between two slices other commands may change anything, so a record may have moved when its page has been read. A
//! record that is found names its key, whatever has changed since. The *rest* is looked up again, one by one: keys that
//! came to RAM or moved, keys whose page is damaged, and keys with large compressed values. So each key that existed
//! when its entry was gathered is shown once, unless it was removed before it was named, or its name cannot be read.
//! Such a key is left out, because a list without it is better than no list.

use super::{Cold, ColdRead, Identity, Keyspace, Named, Resume};
use crate::keyspace::direct;
use crate::log::page::{Page, Scratch};
use crate::log::run::{RUN_PAGES, Run};
use crate::mem::hash::{KeyHash, STRIPES, first_slot};
use crate::mem::index::Entry;
use crate::mem::lend::LENT_BYTES_MIN;
use crate::mem::word::{COLD_HASH_SHIFT, PAGE_BITS, Word};
use crate::narrow::{low16, to_usize};
use crate::store::Store;
use crate::stripe::Stripe;
use flash::io::{PAGE_BYTES, PageBuf};
use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::ops::Range;
use std::vec;
use value::Kind;

/// Memory for notes: half of what may still be lent; objects leave RAM to make room for it. A transaction or
/// script cannot wait for that, so it takes half of what may be lent at once. The maximum is 64 MB or one part in
/// `NOTES_SHARE` of the RAM limit, whichever is larger. The minimum is so little that a command need not wait for it.
const NOTES_BYTES_MAX: usize = 64 << 20;
const NOTES_BYTES_MIN: usize = 128 << 10;
const NOTES_SHARE: usize = 16;
/// With at most this many notes, pages are read before their memory is claimed, because it is too little to wait for.
const NOTES_FREE: usize = 32;
/// About this many pages are read at a time, while as many that were read before are searched. Fewer if memory is
/// scarce.
const PAGES_AT_ONCE: u32 = 128;
const PAGES_AT_ONCE_MIN: u32 = 8;
/// A list first reads at most this many pages of a record. A longer record is usually not compressed, and then its name
/// is on the first page.
const NAME_PAGES: u32 = 2;
/// The rest is looked up when it has `REST_MAX` notes: `REST_AT_ONCE` of them at a time, which read at most
/// `REST_PAGES_AT_ONCE` pages.
const REST_MAX: usize = 4096;
const REST_AT_ONCE: usize = 256;
const REST_PAGES_AT_ONCE: u32 = 1024;
/// A slice ends at this cost, after about a hundred microseconds. Noting or naming an entry costs 1. An entry whose
/// object is looked at costs `HOT_COST`, a page that is checked `PAGE_COST`, and a look-up `LOOK_UP_COST`.
const SLICE_COST: usize = 1024;
const HOT_COST: usize = 4;
const PAGE_COST: usize = 24;
const LOOK_UP_COST: usize = 8;

/// A position in the order of hashes: the stripe in the upper 10 bits, then the upper 54 bits of the hash.
#[derive(Clone, Copy, Default)]
pub(super) struct Cursor {
    pub stripe: usize,
    pub high: u64,
}

impl Cursor {
    const HASH_BITS: u32 = 54;

    pub fn new(number: u64) -> Cursor {
        Cursor { stripe: (number >> Self::HASH_BITS) as usize, high: number << (64 - Self::HASH_BITS) }
    }

    /// 0 both at the beginning and behind the end.
    pub fn number(self) -> u64 {
        (self.stripe as u64 % STRIPES as u64) << Self::HASH_BITS | self.high >> (64 - Self::HASH_BITS)
    }

    /// Entries whose hashes agree in these bits are gathered together.
    fn coarse(high: u64) -> u64 {
        high >> (64 - Self::HASH_BITS)
    }
}

/// The stripe at which SCAN goes on with this cursor.
pub fn stripe_of_cursor(cursor: u64) -> usize {
    Cursor::new(cursor).stripe
}

/// The cursor with which SCAN begins at this stripe; 0 behind the last one.
pub fn cursor_of_stripe(stripe: usize) -> u64 {
    Cursor { stripe, high: 0 }.number()
}

/// A cold entry, in 16 bytes because there may be one for each key: the upper half of its hash, and
/// ```text
///  63       54 53                  30  29  28                    0
/// ┌───────────┬──────────────────────┬────┬───────────────────────┐
/// │ stripe 10 │ more of the hash  24 │ 1  │ first page         29 │
/// └───────────┴──────────────────────┴────┴───────────────────────┘
///                                      1: the record goes on behind that page
/// ```
#[derive(Clone, Copy)]
struct Note {
    high: u64,
    rest: u64,
}

const NOTE_BYTES: usize = size_of::<Note>();
const _: () = assert!(NOTE_BYTES == 16);
const GOES_ON: u64 = 1 << PAGE_BITS;
const LOW_SHIFT: u32 = PAGE_BITS + 1;
const STRIPE_SHIFT: u32 = LOW_SHIFT + u64::BITS - COLD_HASH_SHIFT;
const _: () = assert!(STRIPE_SHIFT + STRIPES.ilog2() == u64::BITS && NAME_PAGES == 2);

impl Note {
    fn new(store: &Store, stripe: usize, high: u64, word: Word) -> Note {
        let goes_on = if store.segments.read_pages(word.place()) > 1 { GOES_ON } else { 0 };
        let low = word.0 >> COLD_HASH_SHIFT;
        let rest = (stripe as u64) << STRIPE_SHIFT | low << LOW_SHIFT | goes_on | u64::from(word.place().page);
        Note { high, rest }
    }

    fn page(&self) -> u32 {
        (self.rest & (GOES_ON - 1)) as u32
    }

    fn stripe(&self) -> usize {
        (self.rest >> STRIPE_SHIFT) as usize
    }

    fn hash(&self) -> KeyHash {
        let low = self.rest >> LOW_SHIFT << COLD_HASH_SHIFT;
        KeyHash { high: self.high, low, slot: first_slot(self.stripe()) }
    }

    fn fingerprint(&self) -> u16 {
        low16(self.high)
    }

    /// Whether a key with this hash is the entry's.
    fn is_of(&self, hash: KeyHash) -> bool {
        let own = self.hash();
        hash.high == own.high
            && hash.stripe() == own.stripe()
            && hash.low >> COLD_HASH_SHIFT == own.low >> COLD_HASH_SHIFT
    }

    /// The pages that are read to find the name: see [`NAME_PAGES`].
    fn pages(&self) -> Run {
        Run { page: self.page(), pages: if self.rest & GOES_ON == 0 { 1 } else { NAME_PAGES } }
    }
}

/// The notes of a round, sorted in pieces, and the merge of the pieces in the order of pages. A piece is small and is
/// freed when it is used up, because freeing all notes at once would delay other clients.
#[derive(Default)]
struct Notes {
    /// How many notes the round has, and how many it may have.
    count: usize,
    max: usize,
    /// The notes of this slice, not sorted yet.
    gathered: Vec<Note>,
    pieces: Vec<vec::IntoIter<Note>>,
    /// The page of the first remaining note of each piece.
    next: BinaryHeap<Reverse<(u32, usize)>>,
}

impl Notes {
    fn push(&mut self, note: Note) {
        self.gathered.push(note);
        self.count += 1;
    }

    /// Sorts the notes that were added since the last call. Sorting all notes at once would take too long.
    fn sort_piece(&mut self) {
        self.gathered.sort_unstable_by_key(Note::page);
        if let Some(first) = self.gathered.first() {
            self.next.push(Reverse((first.page(), self.pieces.len())));
            let piece: Box<[Note]> = self.gathered.as_slice().into();
            self.pieces.push(piece.into_iter());
            self.gathered.clear();
        }
    }

    fn peek(&self) -> Option<&Note> {
        let &Reverse((_, piece)) = self.next.peek()?;
        self.pieces[piece].as_slice().first()
    }

    fn pop(&mut self) -> Option<Note> {
        let mut first = self.next.peek_mut()?;
        let Reverse((page, piece)) = &mut *first;
        let left = &mut self.pieces[*piece];
        let note = left.next();
        match left.as_slice().first() {
            Some(next) => *page = next.page(),
            None => {
                *left = vec::IntoIter::default();
                _ = PeekMut::pop(first);
            }
        }
        note
    }

    fn are_full(&self) -> bool {
        self.count >= self.max
    }

    fn clear(&mut self) {
        self.count = 0;
        self.pieces.clear();
    }
}

/// The state kept between slices.
#[derive(Default)]
pub(crate) struct List {
    table_id: u32,
    /// Where the next entry is gathered, and how many are still to be gathered.
    from: Cursor,
    left: usize,
    /// Whether this round is still gathering.
    is_gathering: bool,
    /// The notes of the round that belong to no run yet.
    notes: Notes,
    /// The notes of the runs whose reads were requested, and these runs, both in the order of pages. A run may begin on
    /// the last page of the run before.
    asked: VecDeque<Note>,
    runs: VecDeque<AskedRun>,
    /// The runs that were read, by their first pages. `None`: the run could not be read.
    read: HashMap<u32, Option<PageBuf>>,
    /// See [`PAGES_AT_ONCE`].
    pages_at_once: u32,
    rest: Vec<Note>,
    scratch: Scratch,
    /// The notes of one page, what was found of each, and the names.
    here: Vec<Note>,
    found: Vec<Option<Found>>,
    names: Vec<u8>,
    /// See [`Resume::has_advanced`].
    pub(super) advanced: bool,
}

/// A run whose read was requested, and the number of its notes that are not named yet.
struct AskedRun {
    run: Run,
    notes: usize,
}

/// The newest record of a note that is on the page.
#[derive(Clone)]
struct Found {
    seq: u64,
    expiry: Option<u64>,
    name: Range<usize>,
}

/// What a list shows.
pub struct Show<'a> {
    /// Whether keys of this type are wanted. Records of other types are not read.
    pub kinds: &'a dyn Fn(Kind) -> bool,
    /// Gets each name. A stripe may be locked.
    pub name: &'a mut dyn FnMut(&[u8]),
}

/// How a slice ended.
enum Flow {
    Yield,
    Cold,
    /// The list is complete.
    End,
}

impl Keyspace<'_> {
    /// Begins a list of `count` keys from a cursor on, or of fewer if the memory for notes is less. Without `count`: of all keys. Does
    /// nothing if the list has begun. Returns about how much memory the list takes now, beside the names.
    pub fn begin_list(&mut self, cursor: u64, count: Option<usize>) -> usize {
        if self.resume.list.is_none() {
            let lendable = self.store.lendable_for_lists(self.at_once);
            let notes = self.store.notes_max(lendable);
            let max = match count {
                Some(count) => count.clamp(1, notes),
                // A margin, because some keys become cold meanwhile.
                None => (self.cold() + self.cold() / 8 + 64).min(notes),
            };
            let pages = lendable / 4 / PAGE_BYTES;
            self.resume.list = Some(Box::new(List {
                table_id: self.table_id,
                from: Cursor::new(cursor),
                left: count.map_or(usize::MAX, |_| max),
                is_gathering: true,
                notes: Notes { max, ..Notes::default() },
                pages_at_once: u32::try_from(pages).unwrap_or(u32::MAX).clamp(PAGES_AT_ONCE_MIN, PAGES_AT_ONCE),
                ..List::default()
            }));
        }
        let Some(list) = &self.resume.list else { unreachable!("it has begun") };
        let pages = list.notes.count.min(2 * list.pages_at_once as usize);
        list.notes.max * NOTE_BYTES + pages * PAGE_BYTES
    }

    /// Runs one slice of the list that was begun. Returns the cursor behind the list at its end, 0 if there are no more
    /// keys. `None`: the handler must yield and run again. The slice may have requested reads that the next one will
    /// need.
    ///
    /// A key that exists while all keys are listed, at once or in parts by cursors, is shown. If all are listed at once, each is shown
    /// once. A key that is added or removed meanwhile may be shown.
    pub fn list(&mut self, show: &mut Show<'_>) -> Result<Option<u64>, Cold> {
        let mut list = self.resume.list.take().expect("it has begun");
        let flow = Slice { ks: self, cost_left: SLICE_COST }.run(&mut list, show);
        if let Flow::End = flow {
            self.resume.names.clear();
            return Ok(Some(list.from.number()));
        }
        self.resume.list = Some(list);
        if let Flow::Yield = flow {
            return Ok(None);
        }
        self.stopped = true;
        Err(Cold)
    }

    /// The number of cold keys of the current logical database.
    fn cold(&mut self) -> usize {
        let table_id = self.table_id;
        match self.has_all() {
            false => to_usize(self.store.cold(self.db)),
            true => (0..STRIPES).filter_map(|stripe| Some(self.held.get(stripe).database(table_id)?.cold())).sum(),
        }
    }

    /// Calls `look` with a stripe that is locked already, or else locks it for this call.
    pub(super) fn look_in<R>(&mut self, stripe: usize, look: impl FnOnce(&Stripe, &mut Resume) -> R) -> R {
        match self.has_all() {
            true => look(self.held.get(stripe), self.resume),
            false => look(&self.store.stripe(stripe), self.resume),
        }
    }
}

impl Store {
    /// The memory that a list may borrow.
    fn lendable_for_lists(&self, at_once: bool) -> usize {
        let most = self.lent_bytes_max().saturating_sub(self.lent_bytes());
        match at_once {
            true => self.lendable_bytes() / 2,
            // The process itself takes nearly all RAM, so objects cannot make room.
            false if self.lent_bytes_max() <= LENT_BYTES_MIN => 0,
            false => most / 2,
        }
    }

    /// The notes that a list may hold at a time.
    fn notes_max(&self, lendable: usize) -> usize {
        let most = NOTES_BYTES_MAX.max(to_usize(self.tier.ram_limit()) / NOTES_SHARE);
        lendable.clamp(NOTES_BYTES_MIN, most) / NOTE_BYTES
    }
}

impl List {
    /// Stores the result of reading a run. `None`: it could not be read.
    pub(crate) fn has_read(&mut self, page: u32, pages: Option<PageBuf>) {
        self.advanced = true;
        self.read.insert(page, pages);
    }

    fn is_at_end(&self) -> bool {
        self.from.stripe == STRIPES
    }

    fn is_next_read(&self) -> bool {
        self.runs.front().is_some_and(|asked| self.read.contains_key(&asked.run.page))
    }

    /// Gathers the entries of a stripe from the position on. Returns where to continue if the stripe has more entries.
    fn gather(
        &mut self,
        store: &Store,
        stripe: &Stripe,
        cost: &mut usize,
        now_ms: u64,
        show: &mut Show<'_>,
    ) -> Option<u64> {
        let from = self.from.high;
        let table = &stripe.database(self.table_id).filter(|_| stripe.owned)?.table;
        let (mut leaf, mut last) = (Some(from), None);
        while let Some(high) = leaf {
            let (entries, next) = table.leaf_at(high);
            for entry in entries.iter().filter(|entry| entry.high() >= from) {
                let is_enough = self.left == 0 || *cost == 0 || self.notes.are_full();
                if is_enough && last != Some(Cursor::coarse(entry.high())) {
                    return Some(entry.high());
                }
                last = Some(Cursor::coarse(entry.high()));
                self.left = self.left.saturating_sub(1);
                *cost = cost.saturating_sub(self.take(store, entry, now_ms, show));
            }
            leaf = next;
        }
        None
    }

    /// Shows an entry or notes it. Returns what it costs.
    fn take(&mut self, store: &Store, entry: &Entry, now_ms: u64, show: &mut Show<'_>) -> usize {
        let Some(object) = entry.object() else {
            if !entry.word().place().is_lost() && (show.kinds)(entry.word().kind()) {
                self.notes.push(Note::new(store, self.from.stripe, entry.high(), entry.word()));
            }
            return 1;
        };
        if (show.kinds)(object.kind()) && object.expiry().is_none_or(|expiry| expiry > now_ms) {
            (show.name)(object.key());
        }
        HOT_COST
    }

    /// Searches a page for the records of the notes on it.
    fn find(&mut self, store: &Store, bytes: &[u8], number: u32) {
        let List { table_id, here, found, names, scratch, .. } = self;
        let Ok(page) = Page::open(bytes, store.segments.stamp(number)) else { return };
        let first = |f: u16| here.partition_point(|note| note.fingerprint() < f);
        let is_wanted = |f: u16| here.get(first(f)).is_some_and(|note| note.fingerprint() == f);
        // A damaged frame ends the search. The notes that were not found are looked up later.
        let _ = page.for_each_key(&is_wanted, &|id| store.dictionary(id), scratch, &mut |record| {
            if record.db != *table_id {
                return;
            }
            let hash = store.hasher.hash(record.key);
            let fingerprint = low16(hash.high);
            let at = here[first(fingerprint)..]
                .iter()
                .take_while(|note| note.fingerprint() == fingerprint)
                .position(|note| note.is_of(hash));
            let Some(found) = at.map(|at| &mut found[first(fingerprint) + at]) else { return };
            if found.as_ref().is_none_or(|found| record.seq >= found.seq) {
                let from = names.len();
                names.extend_from_slice(record.key);
                *found = Some(Found { seq: record.seq, expiry: record.expiry_ms, name: from..names.len() });
            }
        });
    }
}

struct Slice<'k, 's> {
    ks: &'k mut Keyspace<'s>,
    cost_left: usize,
}

/// The result of a look-up.
enum Looked {
    Done,
    Missing(ColdRead),
}

impl Slice<'_, '_> {
    fn run(&mut self, list: &mut List, show: &mut Show<'_>) -> Flow {
        while self.cost_left > 0 {
            if list.is_gathering {
                self.gather(list, show);
                if !list.is_gathering && list.notes.count > NOTES_FREE {
                    // Yield first, so that memory for the pages is claimed before they are read.
                    return Flow::Yield;
                }
                continue;
            }
            self.ask(list);
            if !list.runs.is_empty() && list.rest.len() < REST_MAX {
                if !list.is_next_read() {
                    return Flow::Cold;
                }
                self.name(list, show);
            } else if !list.rest.is_empty() {
                if !self.look_up(list, show) {
                    return Flow::Cold;
                }
            } else if list.is_at_end() || list.left == 0 {
                return Flow::End;
            } else {
                list.notes.clear();
                list.is_gathering = true;
            }
        }
        Flow::Yield
    }

    fn pay(&mut self, cost: usize) {
        self.cost_left = self.cost_left.saturating_sub(cost);
    }

    fn is_live(&self, expiry: Option<u64>) -> bool {
        expiry.is_none_or(|expiry| expiry > self.ks.now_ms)
    }

    fn gather(&mut self, list: &mut List, show: &mut Show<'_>) {
        list.advanced = true;
        let now_ms = self.ks.now_ms;
        while self.cost_left > 0 && !list.is_at_end() {
            let mut cost = self.cost_left;
            let store = self.ks.store;
            let next =
                self.ks.look_in(list.from.stripe, |stripe, _| list.gather(store, stripe, &mut cost, now_ms, show));
            self.cost_left = cost;
            self.pay(1);
            match next {
                Some(high) => {
                    list.from.high = high;
                    list.is_gathering = list.left > 0 && !list.notes.are_full();
                    break;
                }
                None => list.from = Cursor { stripe: list.from.stripe + 1, high: 0 },
            }
        }
        list.is_gathering &= !list.is_at_end();
        list.notes.sort_piece();
    }

    /// Requests reads of runs if there is nothing to name, or some that can be named meanwhile. A transaction or script
    /// reads one run at once.
    fn ask(&mut self, list: &mut List) {
        let (store, at_once) = (self.ks.store, self.ks.at_once);
        let mut pages: u32 = list.runs.iter().map(|asked| asked.run.pages).sum();
        if !list.runs.is_empty() && (at_once || !list.is_next_read() || pages > list.pages_at_once) {
            return;
        }
        let until = pages + list.pages_at_once;
        while pages < until
            && let Some(first) = list.notes.peek()
        {
            let (mut run, noted) = (first.pages(), list.asked.len());
            // A list claims its memory before it reads, so a run needs a bound: without one, records that share pages
            // could extend it to the end of the segment.
            let most = run.page + RUN_PAGES;
            while list.notes.peek().is_some_and(|note| note.page() < most && run.take(&store.segments, note.pages())) {
                list.asked.extend(list.notes.pop());
            }
            assert!(run.pages <= RUN_PAGES + NAME_PAGES, "{run:?}");
            list.runs.push_back(AskedRun { run, notes: list.asked.len() - noted });
            pages += run.pages;
            if at_once {
                self.pay(run.pages as usize * PAGE_COST);
                list.has_read(run.page, direct::read_run(store, run));
                return;
            }
            self.ks.resume.cold.push(ColdRead::of_run(store, run));
        }
    }

    /// Names the notes of the next page, which was read.
    fn name(&mut self, list: &mut List, show: &mut Show<'_>) {
        let (Some(asked), Some(page)) = (list.runs.front_mut(), list.asked.front().map(Note::page)) else {
            unreachable!("a run is asked for because there are notes")
        };
        let run = asked.run;
        list.here.clear();
        while asked.notes > 0
            && let Some(note) = list.asked.pop_front_if(|note| note.page() == page)
        {
            list.here.push(note);
            asked.notes -= 1;
        }
        let has_more = asked.notes > 0;
        list.here.sort_unstable_by_key(Note::fingerprint);
        list.found.clear();
        list.found.resize(list.here.len(), None);
        list.names.clear();
        self.pay(PAGE_COST + list.here.len());
        let read = list.read.remove(&run.page).expect("it was read");
        if let Some(pages) = &read {
            list.find(self.ks.store, &pages[(page - run.page) as usize * PAGE_BYTES..], page);
        }
        for (note, found) in list.here.iter().zip(&list.found) {
            match found {
                Some(found) if self.is_live(found.expiry) => (show.name)(&list.names[found.name.clone()]),
                // Not found, or expired. The expiry may have been removed since the page was written, so look the key
                // up.
                _ => list.rest.push(*note),
            }
        }
        list.advanced = true;
        if has_more {
            list.read.insert(run.page, read);
        } else {
            list.runs.pop_front();
        }
    }

    /// Looks up a part of the rest and shows the names. False: reads are needed.
    fn look_up(&mut self, list: &mut List, show: &mut Show<'_>) -> bool {
        let (mut pages, mut missing) = (0, Vec::new());
        for _ in 0..REST_AT_ONCE {
            if pages >= REST_PAGES_AT_ONCE {
                break;
            }
            let Some(note) = list.rest.pop() else { break };
            self.pay(LOOK_UP_COST);
            match self.look_up_one(note, list.table_id, show) {
                Looked::Done => list.advanced = true,
                Looked::Missing(read) => {
                    pages += self.ks.store.segments.read_pages(read.word.place());
                    missing.push(note);
                    self.ks.resume.cold.push(read);
                }
            }
        }
        let is_done = missing.is_empty();
        // The next call takes these notes first. Their names have been read by then.
        list.rest.append(&mut missing);
        if list.rest.is_empty() {
            self.ks.resume.names.clear();
        }
        is_done
    }

    fn look_up_one(&mut self, note: Note, table_id: u32, show: &mut Show<'_>) -> Looked {
        let (store, now_ms, at_once) = (self.ks.store, self.ks.now_ms, self.ks.at_once);
        let is_live = |expiry: Option<u64>| expiry.is_none_or(|expiry| expiry > now_ms);
        let hash = note.hash();
        self.ks.look_in(note.stripe(), |stripe, resume| {
            let Some(database) = stripe.database(table_id) else { return Looked::Done };
            let slot = database.table.find(hash.high, |entry| match entry.object() {
                Some(object) => note.is_of(store.hasher.hash(object.key())),
                None => entry.word().agrees(hash),
            });
            let Some(entry) = slot.map(|slot| database.table.entry(slot)) else { return Looked::Done };
            if let Some(object) = entry.object() {
                if is_live(object.expiry()) {
                    (show.name)(object.key());
                }
                return Looked::Done;
            }
            let word = entry.word();
            if word.place().is_lost() {
                return Looked::Done;
            }
            let named = match resume.names.remove(&Identity::new(hash, word)) {
                Some(named) => named,
                None if !at_once => return Looked::Missing(store.cold_read(hash, table_id, word, None)),
                None => direct::name(store, hash, table_id, word).unwrap_or_else(|_| Named::unknown()),
            };
            if is_live(named.expiry) {
                (show.name)(&named.name);
            }
            Looked::Done
        })
    }
}
