//! Owns the index: a hash table of 16-byte entries that grows a leaf at a time.
//! Never looks into an entry's word, never knows keys or values.
//!
//! Extendible hashing (Fagin et al., 1979) with leaves of at most 63 entries that are kept dense and sorted by
//! hash. Sorted leaves make the order of a walk the order of hashes, whatever splits happen meanwhile, and need
//! no empty cells: a leaf's capacity follows the allocator's size classes, so that on average 88 % of it is used
//! and no moment of growth doubles anything but a stripe's directory (8 bytes for about 45 keys).
//! A look-up guesses the position from the hash and is off by about three entries, one cache line.

use crate::word::Word;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::ptr::NonNull;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub high: u64,
    pub word: Word,
}
const _: () = assert!(size_of::<Entry>() == 16);

/// Cells of 16 bytes a leaf may have, its header's cell included: the allocator's size classes of 64 B to 1 KiB.
const CELLS: [u8; 12] = [4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64];
const LEAF_ENTRIES_MAX: usize = 63;
/// Two sibling leaves that together hold no more than this become one.
const MERGE_ENTRIES_MAX: usize = 24;
/// Keyed 64-bit hashes never need it; it bounds the directory should they be equal all the same.
const DEPTH_MAX: u8 = 40;

/// One allocation: a header cell, then the entries.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Leaf(NonNull<Header>);

#[repr(C, align(16))]
struct Header {
    count: u8,
    cells: u8,
    /// How many leading bits all hashes of this leaf share.
    depth: u8,
}
const _: () = assert!(size_of::<Header>() == 16);

impl Leaf {
    fn layout(cells: u8) -> Layout {
        Layout::from_size_align(cells as usize * 16, 16).expect("at most 1 KiB")
    }

    fn new(depth: u8, entries: &[Entry]) -> Leaf {
        let cells = cells_for(entries.len());
        // SAFETY: the size is not zero; the header is written before anything reads it.
        let mut leaf = unsafe {
            let raw = alloc(Self::layout(cells)).cast::<Header>();
            let Some(ptr) = NonNull::new(raw) else { handle_alloc_error(Self::layout(cells)) };
            ptr.write(Header { count: 0, cells, depth });
            Leaf(ptr)
        };
        leaf.fill(entries);
        leaf
    }

    fn fill(&mut self, entries: &[Entry]) {
        assert!(entries.len() < self.header().cells as usize);
        // SAFETY: the allocation has `cells` cells, so it has room for the entries after the header.
        unsafe { std::ptr::copy_nonoverlapping(entries.as_ptr(), self.first(), entries.len()) };
        self.header_mut().count = entries.len() as u8;
    }

    fn free(self) {
        let layout = Self::layout(self.header().cells);
        // SAFETY: allocated with this layout; the caller gives the leaf up.
        unsafe { dealloc(self.0.as_ptr().cast(), layout) }
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

    #[inline]
    fn first(&self) -> *mut Entry {
        // SAFETY: every leaf has at least four cells.
        unsafe { self.0.as_ptr().cast::<Entry>().add(1) }
    }

    #[inline]
    fn entries(&self) -> &[Entry] {
        // SAFETY: the first `count` entries are initialised.
        unsafe { std::slice::from_raw_parts(self.first(), self.header().count as usize) }
    }

    fn entries_mut(&mut self) -> &mut [Entry] {
        // SAFETY: as above; &mut self comes from &mut Table.
        unsafe { std::slice::from_raw_parts_mut(self.first(), self.header().count as usize) }
    }

    /// The first position whose hash is not below `high`.
    #[inline]
    fn lower_bound(&self, high: u64) -> usize {
        let entries = self.entries();
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
        let old = Self::layout(self.header().cells);
        // SAFETY: allocated with `old`; the new size is one of CELLS and holds header and entries.
        unsafe {
            let raw = realloc(self.0.as_ptr().cast(), old, cells as usize * 16).cast::<Header>();
            let Some(ptr) = NonNull::new(raw) else { handle_alloc_error(Self::layout(cells)) };
            self.0 = ptr;
        }
        self.header_mut().cells = cells;
    }

    /// There must be a free cell.
    fn insert(&mut self, at: usize, entry: Entry) {
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

    fn remove(&mut self, at: usize) -> Entry {
        let entries = self.entries_mut();
        let gone = entries[at];
        entries.copy_within(at + 1.., at);
        self.header_mut().count -= 1;
        gone
    }
}

fn cells_for(entries: usize) -> u8 {
    *CELLS.iter().find(|&&cells| cells as usize > entries).expect("a leaf is split before it outgrows 64 cells")
}

/// Asks for a cache line without waiting for it.
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

/// Where an entry stands. Valid until the table is changed.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    directory: u32,
    at: u8,
}

pub struct Table {
    /// 2^depth pointers; neighbours share a leaf whose own depth is smaller.
    directory: Vec<Leaf>,
    depth: u8,
    count: usize,
}

// SAFETY: a table owns its leaves, as a Vec of Boxes would.
unsafe impl Send for Table {}

impl Default for Table {
    fn default() -> Table {
        Table { directory: vec![Leaf::new(0, &[])], depth: 0, count: 0 }
    }
}

impl Table {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of memory the table holds.
    pub fn mem_bytes(&self) -> usize {
        self.directory.capacity() * size_of::<Leaf>()
            + self.leaves().map(|(_, leaf)| leaf.header().cells as usize * 16).sum::<usize>()
    }

    #[inline]
    fn position(&self, high: u64) -> usize {
        // Two shifts, because a shift by 64 is undefined where the depth is 0.
        ((high >> 1) >> (63 - self.depth)) as usize
    }

    /// The first thing a look-up of `high` touches.
    #[inline]
    pub fn prefetch_directory(&self, high: u64) {
        prefetch_line(&raw const self.directory[self.position(high)]);
    }

    /// The second: the leaf's header, and where the entry probably stands.
    #[inline]
    pub fn prefetch_leaf(&self, high: u64) {
        let leaf = self.directory[self.position(high)];
        prefetch_line(leaf.0.as_ptr());
        self.prefetch_entry(leaf, high);
    }

    /// Where the entry stands in a leaf of the usual size.
    #[inline]
    fn prefetch_entry(&self, leaf: Leaf, high: u64) {
        const USUAL_ENTRIES: u64 = 40;
        let fraction = (high << self.depth) >> 32;
        let at = (fraction * USUAL_ENTRIES) >> 32;
        prefetch_line(leaf.0.as_ptr().wrapping_add(1 + at as usize));
    }

    /// The entry of hash `high` whose word satisfies `is`.
    #[inline]
    pub fn find(&self, high: u64, mut is: impl FnMut(Word) -> bool) -> Option<Slot> {
        let directory = self.position(high);
        let leaf = self.directory[directory];
        // The header says how many entries there are; the cache miss on the probable one need not wait for that.
        self.prefetch_entry(leaf, high);
        let entries = leaf.entries();
        let mut at = leaf.lower_bound(high);
        while at < entries.len() && entries[at].high == high {
            if is(entries[at].word) {
                return Some(Slot { directory: directory as u32, at: at as u8 });
            }
            at += 1;
        }
        None
    }

    #[inline]
    pub fn word(&self, slot: Slot) -> Word {
        self.directory[slot.directory as usize].entries()[slot.at as usize].word
    }

    #[inline]
    pub fn word_mut(&mut self, slot: Slot) -> &mut Word {
        &mut self.directory[slot.directory as usize].entries_mut()[slot.at as usize].word
    }

    /// Adds an entry; that no equal one is there is the caller's to know.
    pub fn insert(&mut self, high: u64, word: Word) -> Slot {
        loop {
            let directory = self.position(high);
            let leaf = self.directory[directory];
            let count = leaf.header().count as usize;
            if count + 1 < leaf.header().cells as usize {
                let at = leaf.lower_bound(high);
                self.directory[directory].insert(at, Entry { high, word });
                self.count += 1;
                return Slot { directory: directory as u32, at: at as u8 };
            }
            if count < LEAF_ENTRIES_MAX {
                let mut grown = leaf;
                grown.resize(cells_for(count + 1));
                self.replace(directory, leaf, grown);
            } else {
                self.split(directory);
            }
        }
    }

    pub fn remove(&mut self, slot: Slot) -> Entry {
        let directory = slot.directory as usize;
        let gone = self.directory[directory].remove(slot.at as usize);
        self.count -= 1;
        let leaf = self.directory[directory];
        let (count, cells) = (leaf.header().count as usize, leaf.header().cells);
        if count * 2 < cells as usize && cells > CELLS[0] && !self.merge(directory) {
            let fitting = cells_for(count + count / 4);
            if fitting < cells {
                let mut shrunk = leaf;
                shrunk.resize(fitting);
                self.replace(directory, leaf, shrunk);
            }
        }
        gone
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
        assert!(depth < DEPTH_MAX, "64 keyed hashes share 40 leading bits");
        let mut directory = directory;
        if depth == self.depth {
            self.directory = self.directory.iter().flat_map(|&leaf| [leaf, leaf]).collect();
            self.depth += 1;
            directory *= 2;
        }
        let entries = leaf.entries();
        let bit = 1u64 << (63 - depth);
        let middle = entries.partition_point(|entry| entry.high & bit == 0);
        let lower = Leaf::new(depth + 1, &entries[..middle]);
        let upper = Leaf::new(depth + 1, &entries[middle..]);
        let aliases = self.aliases(directory, depth);
        let half = aliases.start + aliases.len() / 2;
        self.directory[aliases.start..half].fill(lower);
        self.directory[half..aliases.end].fill(upper);
        leaf.free();
    }

    /// Joins the leaf with its sibling when both are small; says whether it did.
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
        let mut both = [Entry { high: 0, word: Word(0) }; MERGE_ENTRIES_MAX];
        let middle = lower.entries().len();
        both[..middle].copy_from_slice(lower.entries());
        both[middle..count].copy_from_slice(upper.entries());
        let merged = Leaf::new(depth - 1, &both[..count]);
        let aliases = self.aliases(directory, depth - 1);
        self.directory[aliases].fill(merged);
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

    pub fn leaf_at_mut(&mut self, high: u64) -> (&mut [Entry], Option<u64>) {
        let directory = self.position(high);
        let end = self.leaf_end(directory);
        (self.directory[directory].entries_mut(), end)
    }

    fn leaf_end(&self, directory: usize) -> Option<u64> {
        let end = self.aliases(directory, self.directory[directory].header().depth).end;
        // The end of the last leaf is 2^64: no next one.
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
    use std::collections::BTreeMap;

    fn mix(n: u64) -> u64 {
        let mut x = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    fn walk(table: &Table) -> Vec<u64> {
        let mut seen = Vec::new();
        let mut cursor = Some(0);
        while let Some(high) = cursor {
            let (entries, next) = table.leaf_at(high);
            seen.extend(entries.iter().map(|entry| entry.high));
            cursor = next;
        }
        seen
    }

    #[test]
    fn it_is_a_map_and_its_walk_is_in_order() {
        let mut table = Table::default();
        let mut model = BTreeMap::new();
        for step in 0..60_000u64 {
            // Grows to thousands of keys, then shrinks to nothing: splits and merges both happen.
            let key = mix(step % 7_000);
            let grow = step < 30_000 && step % 3 != 0;
            match table.find(key, |_| true) {
                Some(slot) if !grow => {
                    assert_eq!(table.remove(slot).word.0, model.remove(&key).unwrap());
                }
                Some(slot) => {
                    table.word_mut(slot).0 = step;
                    model.insert(key, step);
                }
                None if grow => {
                    table.insert(key, Word(step));
                    assert!(model.insert(key, step).is_none());
                }
                None => assert!(!model.contains_key(&key)),
            }
            assert_eq!(table.len(), model.len());
            if step % 1_000 == 0 {
                assert_eq!(walk(&table), model.keys().copied().collect::<Vec<_>>());
            }
        }
        for (key, word) in model {
            let slot = table.find(key, |_| true).unwrap();
            assert_eq!(table.word(slot).0, word);
            table.remove(slot);
        }
        assert!(table.is_empty());
        assert_eq!(walk(&table), Vec::<u64>::new());
    }

    #[test]
    fn equal_hashes_are_told_apart_by_their_words() {
        let mut table = Table::default();
        for word in 0..5 {
            table.insert(42, Word(word));
        }
        for word in 0..5 {
            let slot = table.find(42, |found| found == Word(word)).unwrap();
            assert_eq!(table.remove(slot).word, Word(word));
        }
        assert!(table.find(42, |_| true).is_none());
    }

    #[test]
    fn a_key_costs_at_most_21_bytes_at_any_size() {
        let mut table = Table::default();
        for n in 0..40_000u64 {
            table.insert(mix(n), Word(n));
            if n > 2_000 && n % 500 == 0 {
                let each = table.mem_bytes() as f64 / n as f64;
                assert!(each <= 21.0, "{each} bytes a key at {n} keys");
            }
        }
    }
}
