//! Owns the index: a hash table of 16-byte entries that grows a leaf at a time.
//! Never knows keys or values.
//!
//! An entry owns the object that its word points to. A word is only a number and may be copied. But it enters and leaves an
//! entry as an [`OwnedWord`], and each object has only one `OwnedWord`. So a borrow of an entry is a borrow of its object: while
//! there is a reference to a key or a value, the compiler refuses to remove, replace or move it.
//! ```
//! # use store::mem::index::{Slot, Table};
//! fn key_bytes(table: &mut Table, slot: Slot) -> usize {
//!     let bytes = table.entry(slot).hot().key().len();
//!     table.entry_mut(slot).touch();
//!     bytes
//! }
//! ```
//! Refused: the key is used after a change of the entry.
//! ```compile_fail,E0502
//! # use store::mem::index::{Slot, Table};
//! fn key_bytes(table: &mut Table, slot: Slot) -> usize {
//!     let key = table.entry(slot).hot().key();
//!     table.entry_mut(slot).touch();
//!     key.len()
//! }
//! ```
//! Refused: the value is read while it is changed.
//! ```compile_fail,E0502
//! # use store::mem::index::{Slot, Table};
//! fn changed(table: &mut Table, slot: Slot) -> bool {
//!     let mut object = table.entry_mut(slot).hot_mut();
//!     let before = object.view().boxed();
//!     let after = object.boxed_mut();
//!     before.is_some() && after.is_some()
//! }
//! ```
//! Refused: the value outlives the table, and so the lock.
//! ```compile_fail,E0515
//! # use store::mem::index::{Slot, Table};
//! fn value(table: Table, slot: Slot) -> &'static [u8] {
//!     table.entry(slot).hot().key()
//! }
//! ```
//! Refused: one object in two entries.
//! ```compile_fail,E0382
//! # use store::mem::index::{OwnedWord, Table};
//! fn twice(table: &mut Table, word: OwnedWord) {
//!     table.insert(1, word);
//!     table.insert(2, word);
//! }
//! ```
//!
//! A *cut* needs every entry of one moment once, although the table changes while the entries are gathered: see
//! [`Table::begin_cut`]. Each leaf records which of its entries the cut already has; splits, merges, insertions and
//! removals keep these records right.
//!
//! The table uses extendible hashing (Fagin et al., 1979) with leaves of at most 63 entries, dense and sorted by hash. So a walk
//! is always in the order of hashes, whatever splits happen meanwhile. Sorted leaves need no empty cells: a leaf's capacity
//! follows the allocator's size classes, and on average 88 % of it is used. Growth never doubles anything except a stripe's
//! directory (8 bytes for about 45 keys). A look-up guesses the position from the hash and misses by about three entries, one
//! cache line.

use crate::mem::arena::Arena;
use crate::mem::hash::KeyHash;
use crate::mem::leaf_memory;
use crate::mem::object::{Object, ObjectMut, ObjectRef};
use crate::mem::word::{PageAddress, Word};
use std::num::NonZeroU8;
use std::ops::Range;
use std::ptr::NonNull;

/// A hash and its word. Not `Copy`, because a hot entry owns its object.
#[repr(transparent)]
pub struct Entry(Pair);
const _: () = assert!(size_of::<Entry>() == 16);

/// An entry's bytes.
#[repr(C)]
#[derive(Clone, Copy)]
struct Pair {
    high: u64,
    word: Word,
}

/// A word outside of an entry. Not `Copy`, because a hot word owns its object.
#[must_use = "a hot word that is dropped leaks its object"]
pub struct OwnedWord(Word);

impl OwnedWord {
    #[inline]
    pub fn hot(hash: KeyHash, object: Object, frequency: u8, has_expiry: bool, dirty: bool) -> OwnedWord {
        let is_boxed = object.view().is_boxed();
        OwnedWord(Word::hot(hash, object.into_address(), is_boxed, frequency, has_expiry, dirty))
    }

    pub fn cold(word: Word) -> OwnedWord {
        assert!(!word.is_hot());
        OwnedWord(word)
    }

    #[inline]
    pub fn word(&self) -> Word {
        self.0
    }

    /// The object of a hot word.
    #[inline]
    pub fn into_object(self) -> Option<Object> {
        // SAFETY: the word took over the object in `hot` and is given up here. The arena still exists: a store, which has one
        // arena, takes the words out of its tables before it is dropped.
        self.0.is_hot().then(|| unsafe { Object::from_address(self.0.address()) })
    }
}

impl Entry {
    #[inline]
    pub fn high(&self) -> u64 {
        self.0.high
    }

    #[inline]
    pub fn word(&self) -> Word {
        self.0.word
    }

    /// Prefetches the header of a hot value.
    #[inline]
    pub fn prefetch_object(&self) {
        if self.0.word.is_hot() {
            prefetch_line(std::ptr::with_exposed_provenance::<u8>(self.0.word.address()));
        }
    }

    #[inline]
    pub fn object(&self) -> Option<ObjectRef<'_>> {
        // SAFETY: the entry owns the object (see OwnedWord), and cannot be changed while it is borrowed.
        self.0.word.is_hot().then(|| unsafe { ObjectRef::at(self.0.word.address()) })
    }

    #[inline]
    pub fn object_mut(&mut self) -> Option<ObjectMut<'_>> {
        // SAFETY: as above; the entry is borrowed exclusively.
        self.0.word.is_hot().then(|| unsafe { ObjectMut::at(self.0.word.address()) })
    }

    /// The object of a hot entry.
    #[inline]
    pub fn hot(&self) -> ObjectRef<'_> {
        self.object().expect("the entry is hot")
    }

    #[inline]
    pub fn hot_mut(&mut self) -> ObjectMut<'_> {
        self.object_mut().expect("the entry is hot")
    }

    /// Counts one more access.
    #[inline]
    pub fn touch(&mut self) {
        let next = self.0.word.touched();
        // Usually the word does not change. Then skip the write, so that the cache line stays clean.
        if next != self.0.word {
            self.0.word = next;
        }
    }

    #[inline]
    pub fn set_frequency(&mut self, frequency: u8) {
        self.0.word = self.0.word.with_frequency(frequency);
    }

    #[inline]
    pub fn set_dirty(&mut self, dirty: bool) {
        debug_assert!(self.0.word.is_hot());
        if dirty && !self.0.word.is_dirty() {
            self.hot_mut().forget_place();
        }
        self.0.word = self.0.word.with_dirty(dirty);
    }

    /// Sets the reference bit of a cold entry.
    #[inline]
    pub fn set_referenced(&mut self, referenced: bool) {
        debug_assert!(!self.0.word.is_hot());
        self.0.word = self.0.word.with_referenced(referenced);
    }

    /// Sets the new place of a cold entry's record.
    pub fn set_place(&mut self, place: PageAddress) {
        assert!(!self.0.word.is_hot());
        self.0.word = self.0.word.with_place(place);
    }

    /// Replaces the word. Returns the old word with its object.
    #[inline]
    pub fn replace(&mut self, word: OwnedWord) -> OwnedWord {
        OwnedWord(std::mem::replace(&mut self.0.word, word.0))
    }

    /// Replaces the object of a hot entry. Returns the old object.
    pub fn replace_object(&mut self, object: Object) -> Object {
        assert!(self.0.word.is_hot());
        let word = self.0.word.with_boxed(object.view().is_boxed());
        self.replace(OwnedWord(word.with_address(object.into_address()))).into_object().expect("the entry was hot")
    }

    /// Replaces the bytes `at` of a hot entry's inline value; the object may move.
    #[inline]
    pub fn splice(&mut self, arena: &Arena, stripe: u16, at: Range<usize>, with: &[&[u8]]) {
        self.rehouse(|object| object.splice(arena, stripe, at, with));
    }

    /// Gives a hot entry's object other fields; the object moves.
    pub fn set_fields(&mut self, arena: &Arena, stripe: u16, expiry: Option<u64>, place: Option<u64>) {
        self.rehouse(|object| object.with_fields(arena, stripe, expiry, place));
        self.0.word = self.0.word.with_expiry(expiry.is_some());
    }

    /// Moves a hot entry's object to another cell.
    pub fn move_object(&mut self, arena: &Arena, stripe: u16) {
        self.rehouse(|object| object.moved(arena, stripe));
    }

    /// `into` must not panic once it has freed the object: the entry would be left with a freed one.
    #[inline]
    fn rehouse(&mut self, into: impl FnOnce(Object) -> Object) {
        assert!(self.0.word.is_hot());
        // SAFETY: the entry owns the object and is borrowed exclusively. Meanwhile nobody reads the entry, and afterwards it
        // holds the object's new address.
        let object = unsafe { Object::from_address(self.0.word.address()) };
        self.0.word = self.0.word.with_address(into(object).into_address());
    }
}

/// The possible numbers of 16-byte cells of a leaf, including the header's cell: the allocator's size classes of 64 B to 1 KiB.
const CELLS: [u8; 12] = [4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64];
const LEAF_ENTRIES_MAX: usize = 63;
/// Two sibling leaves with at most this many entries together are merged.
const MERGE_ENTRIES_MAX: usize = 24;
/// The maximum depth. Keyed 64-bit hashes never reach it; it bounds the directory even if many hashes were equal, so that 32 bits
/// count its positions ([`Slot`]).
const DEPTH_MAX: u8 = 32;
const _: () = assert!(DEPTH_MAX as u32 <= u32::BITS);

/// One allocation: a header cell, then the entries.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Leaf(NonNull<Header>);

#[repr(C, align(16))]
struct Header {
    count: u8,
    cells: u8,
    /// How many leading bits all hashes of this leaf share.
    depth: u8,
    /// The cut to which `kept` belongs.
    cut: u32,
    /// A bit for each entry that this cut does not need, or has already: see [`Table::begin_cut`].
    kept: u64,
}
const _: () = assert!(size_of::<Header>() == 16);

/// The bits of the first `count` entries.
fn first_bits(count: usize) -> u64 {
    (1 << count) - 1
}

impl Leaf {
    fn new(depth: u8, entries: &[Pair]) -> Leaf {
        let cells = cells_for(entries.len());
        let memory = leaf_memory::alloc(cell_bytes(cells)).cast::<Header>();
        // SAFETY: the memory has room for a header, and is aligned for it.
        unsafe { memory.write(Header { count: 0, cells, depth, cut: 0, kept: 0 }) };
        let mut leaf = Leaf(memory);
        leaf.fill(entries);
        leaf
    }

    fn fill(&mut self, entries: &[Pair]) {
        assert!(entries.len() < self.header().cells as usize);
        // SAFETY: the allocation has `cells` cells, so it has room for the entries after the header.
        unsafe { std::ptr::copy_nonoverlapping(entries.as_ptr(), self.first(), entries.len()) };
        #[expect(clippy::cast_possible_truncation, reason = "there are fewer than cells, which is a u8")]
        let count = entries.len() as u8;
        self.header_mut().count = count;
    }

    fn free(self) {
        let bytes = cell_bytes(self.header().cells);
        // SAFETY: allocated with this size; the caller gives the leaf up.
        unsafe { leaf_memory::free(self.0.cast(), bytes) }
    }

    /// The same leaf in a fuller page, if it lies in an emptier one. The old one is freed.
    fn moved(self) -> Option<Leaf> {
        let bytes = cell_bytes(self.header().cells);
        // SAFETY: allocated with this size; if the bytes have moved, the caller gives this leaf up.
        unsafe { leaf_memory::moved(self.0.cast(), bytes) }.map(|memory| Leaf(memory.cast()))
    }

    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: a leaf points to an initialised header for as long as its table holds it.
        unsafe { self.0.as_ref() }
    }

    fn header_mut(&mut self) -> &mut Header {
        // SAFETY: as above; &mut self comes from &mut Table.
        unsafe { self.0.as_mut() }
    }

    fn cells(&self) -> usize {
        self.header().cells.into()
    }

    #[inline]
    fn first(&self) -> *mut Pair {
        // SAFETY: every leaf has at least four cells.
        unsafe { self.0.as_ptr().cast::<Pair>().add(1) }
    }

    #[inline]
    fn pairs(&self) -> &[Pair] {
        // SAFETY: the first `count` entries are initialised.
        unsafe { std::slice::from_raw_parts(self.first(), self.header().count as usize) }
    }

    fn pairs_mut(&mut self) -> &mut [Pair] {
        // SAFETY: as above; &mut self comes from &mut Table.
        unsafe { std::slice::from_raw_parts_mut(self.first(), self.header().count as usize) }
    }

    #[inline]
    fn entries(&self) -> &[Entry] {
        // SAFETY: as above; an entry is a pair.
        unsafe { std::slice::from_raw_parts(self.first().cast(), self.header().count as usize) }
    }

    #[inline]
    fn entries_mut(&mut self) -> &mut [Entry] {
        // SAFETY: as above; &mut self comes from &mut Table.
        unsafe { std::slice::from_raw_parts_mut(self.first().cast(), self.header().count as usize) }
    }

    /// The first position whose hash is not below `high`.
    #[inline]
    fn lower_bound(&self, high: u64) -> usize {
        let entries = self.pairs();
        let fraction = (high << self.header().depth) >> 32;
        let mut at = ((fraction * entries.len() as u64) >> 32) as usize;
        while at < entries.len() && entries[at].high < high {
            at += 1;
        }
        while at > 0 && entries[at - 1].high >= high {
            at -= 1;
        }
        at
    }

    fn resize(&mut self, cells: u8) {
        let old = cell_bytes(self.header().cells);
        // SAFETY: allocated with the size `old`; the new size is one of CELLS and holds header and entries.
        self.0 = unsafe { leaf_memory::realloc(self.0.cast(), old, cell_bytes(cells)) }.cast();
        self.header_mut().cells = cells;
    }

    /// The entries that this cut does not need, or has already.
    fn kept(&self, cut: u32) -> u64 {
        let header = self.header();
        if header.cut == cut { header.kept } else { 0 }
    }

    fn set_kept(&mut self, cut: u32, kept: u64) {
        let header = self.header_mut();
        (header.cut, header.kept) = (cut, kept);
    }

    /// There must be a free cell.
    fn insert(&mut self, at: usize, entry: Pair) {
        let count = self.header().count as usize;
        assert!(at <= count && count + 1 < self.header().cells as usize);
        // SAFETY: the cell after the last entry is inside the allocation.
        unsafe {
            let slot = self.first().add(at);
            std::ptr::copy(slot, slot.add(1), count - at);
            slot.write(entry);
        }
        self.header_mut().count += 1;
    }

    fn remove(&mut self, at: usize) -> Pair {
        let entries = self.pairs_mut();
        let gone = entries[at];
        entries.copy_within(at + 1.., at);
        self.header_mut().count -= 1;
        gone
    }
}

fn cell_bytes(cells: u8) -> usize {
    usize::from(cells) * size_of::<Pair>()
}

fn cells_for(entries: usize) -> u8 {
    *CELLS.iter().find(|&&cells| cells as usize > entries).expect("a leaf is split before it outgrows 64 cells")
}

/// Prefetches a cache line.
#[inline]
pub(crate) fn prefetch_line<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch changes nothing and faults at no address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// The position of an entry. Valid until the table changes.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    directory: u32,
    /// The entry's cell in its leaf. Never 0, the header's: so an `Option<Slot>` fits a register.
    cell: NonZeroU8,
}

impl Slot {
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a directory has at most 2^DEPTH_MAX positions, a leaf 63 entries"
    )]
    fn new(directory: usize, at: usize) -> Slot {
        Slot { directory: directory as u32, cell: NonZeroU8::new(at as u8 + 1).expect("a leaf has at most 63 entries") }
    }

    #[inline]
    fn at(self) -> usize {
        usize::from(self.cell.get()) - 1
    }
}

/// A leaf whose memory is on its way to the processor's cache.
pub struct Prefetched<'t> {
    leaf: &'t Leaf,
    high: u64,
}

impl Prefetched<'_> {
    /// Prefetches the first lines of a hot value.
    #[inline]
    pub fn prefetch_object(&self) {
        let entry = self.leaf.entries().get(self.leaf.lower_bound(self.high));
        if let Some(word) =
            entry.filter(|entry| entry.high() == self.high).map(Entry::word).filter(|word| word.is_hot())
        {
            let object = std::ptr::with_exposed_provenance::<u8>(word.address());
            prefetch_line(object);
            prefetch_line(object.wrapping_add(64));
        }
    }
}

pub struct Table {
    /// 2^depth pointers; neighbours share a leaf whose own depth is smaller.
    directory: Vec<Leaf>,
    depth: u8,
    count: usize,
    /// Cells of all leaves, kept up to date because walking the leaves takes long.
    cells: usize,
    /// The cut that does not have all its entries yet. 0: none.
    cut: u32,
}

// SAFETY: a table owns its leaves, as a Vec of Boxes would.
unsafe impl Send for Table {}

impl Default for Table {
    fn default() -> Table {
        let leaf = Leaf::new(0, &[]);
        Table { directory: vec![leaf], depth: 0, count: 0, cells: leaf.cells(), cut: 0 }
    }
}

impl Table {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of memory of the table.
    pub fn mem_bytes(&self) -> usize {
        self.directory.capacity() * size_of::<Leaf>() + self.cells * size_of::<Pair>()
    }

    #[inline]
    fn position(&self, high: u64) -> usize {
        // Two shifts, because a shift by 64 is undefined where the depth is 0.
        ((high >> 1) >> (63 - self.depth)) as usize
    }

    /// Prefetches the first memory that a look-up of `high` touches.
    #[inline]
    pub fn prefetch_directory(&self, high: u64) {
        prefetch_line(&raw const self.directory[self.position(high)]);
    }

    /// Prefetches the second: the leaf's header and the probable position of the entry.
    #[inline]
    pub fn prefetch_leaf(&self, high: u64) -> Prefetched<'_> {
        let leaf = &self.directory[self.position(high)];
        prefetch_line(leaf.0.as_ptr());
        self.prefetch_entry(*leaf, high);
        Prefetched { leaf, high }
    }

    /// Prefetches the entry's probable position in a leaf of the usual size.
    #[inline]
    fn prefetch_entry(&self, leaf: Leaf, high: u64) {
        const USUAL_ENTRIES: u64 = 40;
        let fraction = (high << self.depth) >> 32;
        let at = (fraction * USUAL_ENTRIES) >> 32;
        prefetch_line(leaf.0.as_ptr().wrapping_add(1 + at as usize));
    }

    /// The entry of hash `high` that satisfies `is`.
    #[inline]
    pub fn find(&self, high: u64, mut is: impl FnMut(&Entry) -> bool) -> Option<Slot> {
        let directory = self.position(high);
        let leaf = self.directory[directory];
        // Start the cache miss on the probable entry now, before the header with the number of entries has arrived.
        self.prefetch_entry(leaf, high);
        let entries = leaf.entries();
        let mut at = leaf.lower_bound(high);
        while at < entries.len() && entries[at].high() == high {
            if is(&entries[at]) {
                return Some(Slot::new(directory, at));
            }
            at += 1;
        }
        None
    }

    #[inline]
    pub fn word(&self, slot: Slot) -> Word {
        self.entry(slot).word()
    }

    #[inline]
    pub fn entry(&self, slot: Slot) -> &Entry {
        &self.directory[slot.directory as usize].entries()[slot.at()]
    }

    #[inline]
    pub fn entry_mut(&mut self, slot: Slot) -> &mut Entry {
        &mut self.directory[slot.directory as usize].entries_mut()[slot.at()]
    }

    /// Adds an entry. The caller must know that no equal entry exists.
    pub fn insert(&mut self, high: u64, word: OwnedWord) -> Slot {
        loop {
            let directory = self.position(high);
            let leaf = self.directory[directory];
            let count = leaf.header().count as usize;
            if count + 1 < leaf.header().cells as usize {
                let at = leaf.lower_bound(high);
                self.directory[directory].insert(at, Pair { high, word: word.0 });
                self.count += 1;
                if self.cut != 0 {
                    let kept = leaf.kept(self.cut);
                    let (before, behind) = (kept & first_bits(at), kept & !first_bits(at));
                    self.directory[directory].set_kept(self.cut, before | 1 << at | behind << 1);
                }
                return Slot::new(directory, at);
            }
            if count < LEAF_ENTRIES_MAX {
                let mut grown = leaf;
                self.cells -= leaf.cells();
                grown.resize(cells_for(count + 1));
                self.cells += grown.cells();
                self.replace(directory, leaf, grown);
            } else {
                self.split(directory);
            }
        }
    }

    /// Adds cold entries: a hash and its word each. The caller must know that none of them is in the table. Entries
    /// that are sorted by hash fill each leaf at once, which takes a fifth of the time of [`Table::insert`].
    pub fn insert_cold(&mut self, entries: &[(u64, u64)]) {
        assert_eq!(self.cut, 0, "a cut begins when all entries are there");
        let mut rest = entries;
        while let Some(&(high, word)) = rest.first() {
            let directory = self.position(high);
            let leaf = self.directory[directory];
            let count = leaf.pairs().len();
            if leaf.pairs().last().is_some_and(|last| last.high > high) {
                self.insert(high, OwnedWord::cold(Word(word)));
                rest = &rest[1..];
                continue;
            }
            let end = self.leaf_end(directory);
            let goes_on = |pair: &[(u64, u64)]| pair[0].0 <= pair[1].0 && end.is_none_or(|end| pair[1].0 < end);
            let run = 1 + rest.windows(2).take(LEAF_ENTRIES_MAX).take_while(|pair| goes_on(pair)).count();
            if count + run > LEAF_ENTRIES_MAX {
                self.split(directory);
                continue;
            }
            if count + run >= leaf.cells() {
                let mut grown = leaf;
                self.cells -= leaf.cells();
                grown.resize(cells_for(count + run));
                self.cells += grown.cells();
                self.replace(directory, leaf, grown);
            }
            let (these, others) = rest.split_at(run);
            for (at, &(high, word)) in these.iter().enumerate() {
                let word = OwnedWord::cold(Word(word)).0;
                self.directory[directory].insert(count + at, Pair { high, word });
            }
            self.count += run;
            rest = others;
        }
    }

    pub fn remove(&mut self, slot: Slot) -> OwnedWord {
        let directory = slot.directory as usize;
        let gone = self.directory[directory].remove(slot.at());
        self.count -= 1;
        if self.cut != 0 {
            let (at, kept) = (slot.at(), self.directory[directory].kept(self.cut));
            let behind = kept >> at >> 1 << at;
            self.directory[directory].set_kept(self.cut, kept & first_bits(at) | behind);
        }
        let leaf = self.directory[directory];
        let (count, cells) = (leaf.header().count as usize, leaf.header().cells);
        if count * 2 < cells as usize && cells > CELLS[0] && !self.merge(directory) {
            let fitting = cells_for(count + count / 4);
            if fitting < cells {
                let mut shrunk = leaf;
                self.cells -= leaf.cells();
                shrunk.resize(fitting);
                self.cells += shrunk.cells();
                self.replace(directory, leaf, shrunk);
            }
        }
        OwnedWord(gone.word)
    }

    /// The directory positions that share the leaf at `directory`, whose depth is `depth`.
    fn aliases(&self, directory: usize, depth: u8) -> std::ops::Range<usize> {
        let width = 1usize << (self.depth - depth);
        let first = directory & !(width - 1);
        first..first + width
    }

    fn replace(&mut self, directory: usize, old: Leaf, new: Leaf) {
        if old != new {
            let aliases = self.aliases(directory, new.header().depth);
            self.directory[aliases].fill(new);
        }
    }

    fn split(&mut self, directory: usize) {
        let leaf = self.directory[directory];
        let depth = leaf.header().depth;
        assert!(depth < DEPTH_MAX, "64 keyed hashes share 32 leading bits");
        let mut directory = directory;
        if depth == self.depth {
            self.directory = self.directory.iter().flat_map(|&leaf| [leaf, leaf]).collect();
            self.depth += 1;
            directory *= 2;
        }
        let entries = leaf.pairs();
        let bit = 1u64 << (63 - depth);
        let middle = entries.partition_point(|entry| entry.high & bit == 0);
        let mut lower = Leaf::new(depth + 1, &entries[..middle]);
        let mut upper = Leaf::new(depth + 1, &entries[middle..]);
        if self.cut != 0 {
            let kept = leaf.kept(self.cut);
            lower.set_kept(self.cut, kept & first_bits(middle));
            upper.set_kept(self.cut, kept >> middle);
        }
        let aliases = self.aliases(directory, depth);
        let half = aliases.start + aliases.len() / 2;
        self.directory[aliases.start..half].fill(lower);
        self.directory[half..aliases.end].fill(upper);
        self.cells = self.cells + lower.cells() + upper.cells() - leaf.cells();
        leaf.free();
    }

    /// Merges the leaf with its sibling if both are small. Returns whether it did.
    fn merge(&mut self, directory: usize) -> bool {
        let leaf = self.directory[directory];
        let depth = leaf.header().depth;
        if depth == 0 {
            return false;
        }
        let own = self.aliases(directory, depth);
        let sibling = self.directory[own.start ^ own.len()];
        let count = leaf.header().count as usize + sibling.header().count as usize;
        if sibling.header().depth != depth || count > MERGE_ENTRIES_MAX {
            return false;
        }
        let lower_first = own.start & own.len() == 0;
        let (lower, upper) = if lower_first { (leaf, sibling) } else { (sibling, leaf) };
        let mut both = [Pair { high: 0, word: Word(0) }; MERGE_ENTRIES_MAX];
        let middle = lower.pairs().len();
        both[..middle].copy_from_slice(lower.pairs());
        both[middle..count].copy_from_slice(upper.pairs());
        let mut merged = Leaf::new(depth - 1, &both[..count]);
        if self.cut != 0 {
            merged.set_kept(self.cut, lower.kept(self.cut) | upper.kept(self.cut) << middle);
        }
        let aliases = self.aliases(directory, depth - 1);
        self.directory[aliases].fill(merged);
        self.cells = self.cells + merged.cells() - leaf.cells() - sibling.cells();
        leaf.free();
        sibling.free();
        true
    }

    /// The entries of the leaf that holds `high`, in order of hash, and where the next leaf begins.
    pub fn leaf_at(&self, high: u64) -> (&[Entry], Option<u64>) {
        let directory = self.position(high);
        let leaf = &self.directory[directory];
        (leaf.entries(), self.leaf_end(directory))
    }

    /// Like [`Table::leaf_at`], for changing, with a bit for each entry that a cut needs.
    pub fn leaf_at_mut(&mut self, high: u64) -> (&mut [Entry], u64, Option<u64>) {
        let directory = self.position(high);
        let end = self.leaf_end(directory);
        let wanted = if self.cut == 0 { 0 } else { !self.directory[directory].kept(self.cut) };
        (self.directory[directory].entries_mut(), wanted, end)
    }

    /// Moves the leaf that holds `high` to a fuller page, if that gains memory. Returns whether it has moved, and where the next
    /// leaf begins.
    pub fn compact_leaf(&mut self, high: u64) -> (bool, Option<u64>) {
        let directory = self.position(high);
        let (leaf, end) = (self.directory[directory], self.leaf_end(directory));
        let aliases = self.aliases(directory, leaf.header().depth);
        let moved = leaf.moved();
        if let Some(moved) = moved {
            self.directory[aliases].fill(moved);
        }
        (moved.is_some(), end)
    }

    // --- cuts ---

    /// Begins a cut, which needs every entry that is in the table now, once each. A walk takes the entries with
    /// [`Table::keep_leaf`]; before a change of an entry that the walk has not reached, [`Table::keep`] must be called.
    /// Entries added later are not needed. `cut` is not 0 and was never used before.
    pub fn begin_cut(&mut self, cut: u32) {
        assert!(cut != 0 && self.cut == 0);
        self.cut = cut;
    }

    /// Ends the cut, because it has all entries or was given up.
    pub fn end_cut(&mut self) {
        self.cut = 0;
    }

    /// Whether a cut still needs entries.
    #[inline]
    pub fn is_cut(&self) -> bool {
        self.cut != 0
    }

    /// Whether the cut needs this entry. From then on the entry counts as taken.
    pub fn keep(&mut self, slot: Slot) -> bool {
        let (leaf, bit) = (&mut self.directory[slot.directory as usize], 1 << slot.at());
        let kept = leaf.kept(self.cut);
        leaf.set_kept(self.cut, kept | bit);
        self.cut != 0 && kept & bit == 0
    }

    /// Whether the cut needs this entry.
    pub fn wants(&self, slot: Slot) -> bool {
        self.cut != 0 && self.directory[slot.directory as usize].kept(self.cut) & 1 << slot.at() == 0
    }

    /// The entries that the cut needs of the leaf that holds `high`, and where the next leaf begins. From then on these
    /// entries count as taken.
    pub fn keep_leaf(&mut self, high: u64) -> (impl Iterator<Item = &Entry> + Clone, Option<u64>) {
        let directory = self.position(high);
        let end = self.leaf_end(directory);
        let cut = self.cut;
        let leaf = &mut self.directory[directory];
        let kept = if cut == 0 { u64::MAX } else { leaf.kept(cut) };
        leaf.set_kept(cut, u64::MAX >> 1);
        let wanted = leaf.entries().iter().enumerate().filter(move |(at, _)| kept >> at & 1 == 0);
        (wanted.map(|(_, entry)| entry), end)
    }

    fn leaf_end(&self, directory: usize) -> Option<u64> {
        let end = self.aliases(directory, self.directory[directory].header().depth).end;
        // The end of the last leaf is 2^64, so there is no next leaf.
        (end < self.directory.len()).then(|| (end as u64) << (64 - self.depth))
    }

    fn leaves(&self) -> impl Iterator<Item = (usize, &Leaf)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let leaf = self.directory.get(at)?;
            let here = at;
            at = self.aliases(at, leaf.header().depth).end;
            Some((here, leaf))
        })
    }

    /// Every entry, in order of hash.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.leaves().flat_map(|(_, leaf)| leaf.entries())
    }

    /// Takes every word out.
    pub fn drain(&mut self, mut take: impl FnMut(OwnedWord)) {
        let mut at = 0;
        while at < self.directory.len() {
            // Remove the entry from its leaf before the call of `take`.
            while let Some(last) = self.directory[at].pairs().len().checked_sub(1) {
                self.count -= 1;
                take(OwnedWord(self.directory[at].remove(last).word));
            }
            at = self.aliases(at, self.directory[at].header().depth).end;
        }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        let leaves: Vec<Leaf> = self.leaves().map(|(_, leaf)| *leaf).collect();
        leaves.into_iter().for_each(Leaf::free);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::object::Parts;
    use base::random::mix;
    use std::collections::BTreeMap;
    use value::{Boxed, Kind, hash};

    #[test]
    fn a_value_that_is_changed_knows_no_place_on_flash() {
        let arena = Arena::new(1);
        let parts =
            Parts { key: b"k", kind: Kind::String, raw: false, expiry: None, place: Some(6), clock: 9, stripe: 0 };
        let object = Object::new(&arena, &parts, &[b"value"]);
        let hash = KeyHash { high: 1, low: 2, slot: 0 };
        let mut table = Table::default();
        let slot = table.insert(hash.high, OwnedWord::hot(hash, object, 0, false, false));
        let entry = table.entry_mut(slot);
        assert!(entry.hot().knows_place());
        entry.set_dirty(true);
        assert!(!entry.hot().knows_place());
        table.remove(slot).into_object().expect("it is hot").free(&arena);
    }

    /// The clock hand passes over entries by their words alone.
    #[test]
    fn the_word_says_whether_the_value_is_boxed_after_it_was_replaced() {
        let arena = Arena::new(1);
        let parts = Parts { key: b"k", kind: Kind::Hash, raw: false, expiry: None, place: None, clock: 9, stripe: 0 };
        let inline = || Object::new(&arena, &parts, &[b"value"]);
        let boxed = || Object::new_boxed(&arena, &parts, Boxed::Hash(hash::Table::default()));
        let hash = KeyHash { high: 1, low: 2, slot: 0 };
        let mut table = Table::default();
        let slot = table.insert(hash.high, OwnedWord::hot(hash, inline(), 0, false, false));
        for (object, is_boxed) in [(boxed(), true), (boxed(), true), (inline(), false), (inline(), false)] {
            let entry = table.entry_mut(slot);
            entry.replace_object(object).free(&arena);
            assert_eq!(entry.word().is_boxed(), is_boxed);
            assert_eq!(entry.hot().is_boxed(), is_boxed);
        }
        table.remove(slot).into_object().expect("it is hot").free(&arena);
    }

    fn walk(table: &Table) -> Vec<u64> {
        let mut seen = Vec::new();
        let mut cursor = Some(0);
        while let Some(high) = cursor {
            let (entries, next) = table.leaf_at(high);
            seen.extend(entries.iter().map(|entry| entry.high()));
            cursor = next;
        }
        seen
    }

    #[test]
    fn it_is_a_map_and_its_walk_is_in_order() {
        let mut table = Table::default();
        let mut model = BTreeMap::new();
        let (steps, keys) = if cfg!(miri) { (800, 150) } else { (60_000, 7_000) };
        for step in 0..steps {
            // Grows to thousands of keys, then shrinks to nothing: splits and merges both happen.
            let key = mix(step % keys);
            let grow = step < steps / 2 && step % 3 != 0;
            match table.find(key, |_| true) {
                Some(slot) if !grow => {
                    assert_eq!(table.remove(slot).0.0, model.remove(&key).unwrap());
                }
                Some(slot) => {
                    _ = table.entry_mut(slot).replace(OwnedWord(Word(step)));
                    model.insert(key, step);
                }
                None if grow => {
                    table.insert(key, OwnedWord(Word(step)));
                    assert!(model.insert(key, step).is_none());
                }
                None => assert!(!model.contains_key(&key)),
            }
            assert_eq!(table.len(), model.len());
            if step % 1_000 == 0 {
                assert_eq!(walk(&table), model.keys().copied().collect::<Vec<_>>());
                let cells: usize = table.leaves().map(|(_, leaf)| leaf.cells()).sum();
                assert_eq!(table.mem_bytes(), table.directory.capacity() * 8 + cells * 16);
            }
        }
        for (key, word) in model {
            let slot = table.find(key, |_| true).unwrap();
            assert_eq!(table.word(slot).0, word);
            _ = table.remove(slot);
        }
        assert!(table.is_empty());
        assert_eq!(walk(&table), Vec::<u64>::new());
    }

    /// Fills a table as a restart does: chunks in order of hash, and then some entries that are not in order. Tests an
    /// empty table and one that is not.
    #[test]
    fn cold_entries_in_order_are_added_as_one_by_one() {
        let keys = if cfg!(miri) { 300 } else { 20_000 };
        let cold = |n: u64| (mix(n), n << 8);
        for before in [0, 1, 40, keys / 10] {
            let mut model = BTreeMap::new();
            let mut table = Table::default();
            for (high, word) in (keys..keys + before).map(cold) {
                table.insert(high, OwnedWord::cold(Word(word)));
                model.insert(high, word);
            }
            let mut pairs: Vec<_> = (0..keys).map(cold).collect();
            pairs[..keys as usize * 9 / 10].sort_unstable();
            for chunk in pairs.chunks(1 + keys as usize / 7) {
                table.insert_cold(chunk);
            }
            model.extend(pairs);
            assert_eq!(walk(&table), model.keys().copied().collect::<Vec<_>>());
            assert_eq!(table.len(), model.len());
            assert!(model.iter().all(|(&high, &word)| table.find(high, |entry| entry.word().0 == word).is_some()));
            let cells: usize = table.leaves().map(|(_, leaf)| leaf.cells()).sum();
            assert_eq!(table.mem_bytes(), table.directory.capacity() * 8 + cells * 16);
        }
    }

    #[test]
    fn equal_hashes_are_distinguished_by_their_words() {
        let mut table = Table::default();
        for word in 0..5 {
            table.insert(42, OwnedWord(Word(word)));
        }
        for word in 0..5 {
            let slot = table.find(42, |found| found.word() == Word(word)).unwrap();
            assert_eq!(table.remove(slot).word(), Word(word));
        }
        assert!(table.find(42, |_| true).is_none());
    }

    #[test]
    fn a_cut_gets_every_entry_of_its_moment_once() {
        let mut table = Table::default();
        let (keys, rounds) = if cfg!(miri) { (120, 6) } else { (3_000, 60) };
        let mut random = base::random::SplitMix64(5);
        for round in 1..=rounds {
            // Between one and all of the keys, so that leaves are small and large.
            let universe = keys * u64::from(round) / u64::from(rounds) + 1;
            let change = |table: &mut Table, key: u64, cut: &mut Vec<u64>| match table.find(mix(key), |_| true) {
                Some(slot) => {
                    if table.is_cut() && table.keep(slot) {
                        cut.push(mix(key));
                    }
                    _ = table.remove(slot);
                }
                None => _ = table.insert(mix(key), OwnedWord(Word(key))),
            };
            for _ in 0..universe {
                change(&mut table, random.draw() % universe, &mut Vec::new());
            }
            let (wanted, mut cut) = (walk(&table), Vec::new());
            table.begin_cut(round);
            let mut at = Some(0);
            while let Some(high) = at {
                for _ in 0..random.draw() % 30 {
                    // More often removals or insertions, so that leaves merge and split during the cut.
                    let key = random.draw() % universe;
                    if table.find(mix(key), |_| true).is_some() == round.is_multiple_of(2)
                        || random.draw().is_multiple_of(4)
                    {
                        change(&mut table, key, &mut cut);
                    }
                }
                let (entries, next) = table.keep_leaf(high);
                cut.extend(entries.map(Entry::high));
                at = next;
            }
            table.end_cut();
            cut.sort_unstable();
            assert_eq!(cut, wanted, "round {round}");
        }
    }

    #[test]
    fn leaves_move_together_with_their_entries_and_their_part_of_a_cut() {
        let mut table = Table::default();
        let keys = if cfg!(miri) { 300 } else { 60_000 };
        (0..keys).for_each(|key| _ = table.insert(mix(key), OwnedWord(Word(key))));
        // Leaves that became small leave gaps behind.
        for key in (0..keys).filter(|key| key % 3 > 0) {
            let slot = table.find(mix(key), |_| true).unwrap();
            _ = table.remove(slot);
        }
        table.begin_cut(7);
        for key in (0..keys).filter(|key| key % 6 == 0) {
            let slot = table.find(mix(key), |_| true).unwrap();
            assert!(table.keep(slot));
        }
        let (before, cells) = (walk(&table), table.cells);
        let (mut at, mut moved) = (Some(0), 0);
        while let Some(high) = at {
            let (has_moved, next) = table.compact_leaf(high);
            moved += usize::from(has_moved);
            at = next;
        }
        assert!(moved > 0 && moved <= table.leaves().count(), "{moved} leaves");
        assert_eq!((walk(&table), table.cells), (before, cells));
        for key in (0..keys).filter(|key| key % 3 == 0) {
            let slot = table.find(mix(key), |entry| entry.word().0 == key).unwrap();
            assert_eq!(table.wants(slot), key % 6 != 0, "{key}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "it measures sizes, at tens of thousands of keys")]
    fn a_key_costs_at_most_21_bytes_at_any_size() {
        let mut table = Table::default();
        for n in 0..40_000u64 {
            table.insert(mix(n), OwnedWord(Word(n)));
            if n > 2_000 && n % 500 == 0 {
                let each = table.mem_bytes() as f64 / n as f64;
                assert!(each <= 21.0, "{each} bytes a key at {n} keys");
            }
        }
    }
}
