//! Owns the large form of a list: a sequence of chunks, each a run of elements. Never knows replies or settings.
//!
//! A chunk holds as many elements as [`Limit`] allows (8 KB with Redis's defaults) in one allocation, so an element
//! costs only the two or four bytes of its lengths. Both ends are O(1): the first chunk keeps room before its elements,
//! the last chunk after them, and the room doubles up to the limit. To find an index, walk over the chunks' counts from
//! the nearer end, then over the elements of one chunk. 10 million elements of 16 bytes are 22,000 chunks, of which at
//! most half are walked.
//!
//! A chunk is a part (see `part`). A chunk must be in memory to be read or changed, but not to be dropped whole. Chunks
//! move within their sequence, so flash knows each by a number. Numbers ascend along the list.

use crate::input::{Input, put_number};
use crate::part::{Absent, AbsentPart, FlashCopiesOf, InChunks};
use crate::varint::{self, Varint};
use crate::{Corrupt, malloc_bytes};
use chunk::{Chunk, Open, ROOM_KEPT_BYTES};
use std::collections::VecDeque;
use std::ops::Range;

mod chunk;
pub mod packed;
pub mod run;

/// The limit of a packed list or a chunk: Redis's `list-max-listpack-size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    bytes: usize,
    elements: usize,
}

/// Header and end mark of Redis's listpack, which count towards Redis's limit.
const LISTPACK_FIXED_BYTES: usize = 7;
/// With a limit of elements, chunks are still not larger than this.
const SAFETY_BYTES: usize = 8192;

impl Limit {
    /// Positive: that many elements. −1 to −5: 4 KB, 8 KB … 64 KB.
    pub fn of(directive: i64) -> Limit {
        match directive {
            0.. => Limit { bytes: SAFETY_BYTES, elements: directive.max(1) as usize },
            _ => Limit { bytes: 4096 << (!directive).min(4), elements: usize::MAX },
        }
    }

    /// A list that shrinks becomes packed only below this half of the limit, so that it does not change its form back
    /// and forth.
    pub fn half(self) -> Limit {
        let elements = if self.elements == usize::MAX { usize::MAX } else { self.elements / 2 };
        Limit { bytes: self.bytes / 2, elements }
    }

    #[inline]
    pub fn allows(self, bytes: usize, elements: usize) -> bool {
        bytes.saturating_add(LISTPACK_FIXED_BYTES) <= self.bytes && elements <= self.elements
    }
}

/// The number of a list's first chunk. A chunk added at either end takes the number one gap away. There are 2^43 gaps
/// before the numbers end.
const FIRST_NUMBER: u64 = 1 << 63;
/// The gap. A chunk between two others takes the number in the middle.
const NUMBER_GAP: u64 = 1 << 20;
/// If no number is free, as many neighbours are renumbered as are needed for this distance between them.
const SPREAD_GAP: u64 = 16;

/// A list of any length.
#[derive(Default)]
pub struct List {
    /// No chunk is empty.
    chunks: VecDeque<Chunk>,
    len: usize,
    /// Memory of the chunks' allocations.
    chunk_bytes: usize,
    flash_copies: FlashCopiesOf,
}

impl List {
    pub fn new() -> List {
        List::default()
    }

    /// The packed list as one chunk, whatever its size.
    pub fn from_packed(packed: &[u8]) -> List {
        let mut list = List::new();
        let count = packed::len(packed);
        if count > 0 {
            list.put_back(Chunk::of(packed::run(packed), count));
        }
        list
    }

    /// The list in its packed form, if it is a single chunk within the limit and in memory.
    pub fn to_packed(&self, limit: Limit) -> Option<Vec<u8>> {
        let is_packable = |chunk: &Chunk| !chunk.part.is_absent() && limit.allows(chunk.len(), self.len);
        match self.chunks.len() {
            0 => Some(packed::of(&[], 0)),
            1 if is_packable(&self.chunks[0]) => Some(packed::of(self.chunks[0].bytes(), self.len)),
            _ => None,
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let (chunk, at) = self.locate(index)?;
        let chunk = &self.chunks[chunk];
        let place = run::at(chunk.bytes(), chunk.offset(at))?;
        Some(&chunk.bytes()[place.bytes])
    }

    /// All elements from `index` on.
    pub fn iter_from(&self, index: usize) -> impl Iterator<Item = &[u8]> {
        let (chunk, skipped) = self.locate(index).unwrap_or((self.chunks.len(), 0));
        let start = self.chunks.get(chunk).map_or(0, |chunk| chunk.offset(skipped));
        let mut chunks = self.chunks.range(chunk..);
        let first = chunks.next().map_or(&[][..], |chunk| &chunk.bytes()[start..]);
        run::iter(first).chain(chunks.flat_map(|chunk| run::iter(chunk.bytes())))
    }

    /// All elements from the last to the first.
    pub fn iter_back(&self) -> impl Iterator<Item = &[u8]> {
        self.chunks.iter().rev().flat_map(|chunk| run::iter(chunk.bytes()).rev())
    }

    pub fn push_front(&mut self, element: &[u8], limit: Limit) {
        if self.has_room(0, element, limit) {
            self.edit(0, |chunk| chunk.push_front(element));
        } else {
            self.seal(0);
            self.put(0, Chunk::one(element));
        }
        self.len += 1;
    }

    pub fn push_back(&mut self, element: &[u8], limit: Limit) {
        let last = self.chunks.len().wrapping_sub(1);
        if self.has_room(last, element, limit) {
            self.edit(last, |chunk| chunk.push_back(element));
        } else {
            self.seal(last);
            self.put(last.wrapping_add(1), Chunk::one(element));
        }
        self.len += 1;
    }

    /// Inserts an element before the one at `index`, or at the end.
    pub fn insert(&mut self, index: usize, element: &[u8], limit: Limit) {
        let Some((mut chunk, at)) = self.locate(index) else { return self.push_back(element, limit) };
        if self.has_room(chunk, element, limit) {
            self.edit(chunk, |chunk| chunk.insert(at, element));
        } else {
            if at > 0 {
                let tail = self.edit(chunk, |chunk| chunk.split_off(at));
                chunk += 1;
                self.put(chunk, tail);
            }
            // Between two chunks: use one that has room, or add a new one.
            if self.has_room(chunk.wrapping_sub(1), element, limit) {
                self.edit(chunk - 1, |chunk| chunk.push_back(element));
            } else if self.has_room(chunk, element, limit) {
                self.edit(chunk, |chunk| chunk.push_front(element));
            } else {
                self.put(chunk, Chunk::one(element));
            }
        }
        self.len += 1;
    }

    /// Changes the element at `index`. False: there is none.
    pub fn set(&mut self, index: usize, element: &[u8], limit: Limit) -> bool {
        let Some((chunk, at)) = self.locate(index) else { return false };
        let old = &self.chunks[chunk];
        let Some(place) = run::at(old.bytes(), old.offset(at)) else { return false };
        let grown = old.len() - place.whole.len() + run::size(element.len());
        if old.count == 1 || limit.allows(grown, 0) {
            self.edit(chunk, |chunk| run::replace(chunk, place.whole, element));
        } else {
            self.remove(index..index + 1, limit);
            self.insert(index, element, limit);
        }
        true
    }

    /// Removes the elements at these indices, which must exist.
    pub fn remove(&mut self, indices: Range<usize>, limit: Limit) {
        let mut left = indices.len();
        let Some((mut chunk, mut at)) = self.locate(indices.start) else { return };
        let first = chunk;
        while left > 0 {
            let count = self.chunks[chunk].count as usize;
            let gone = left.min(count - at);
            if gone == count {
                self.cut(chunk);
            } else {
                self.edit(chunk, |chunk| chunk.remove(at..at + gone));
                chunk += 1;
            }
            left -= gone;
            at = 0;
        }
        self.len -= indices.len();
        self.merge_around(first, limit);
    }

    /// Removes up to `max` elements equal to `element`, from the front or the back. Returns how many.
    pub fn remove_equal(&mut self, element: &[u8], max: usize, from_back: bool, limit: Limit) -> usize {
        let mut removed = 0;
        let chunks = self.chunks.len();
        for n in 0..chunks {
            if removed == max {
                break;
            }
            let at = if from_back { chunks - 1 - n } else { n };
            // An unchanged chunk keeps its copy on flash.
            if run::iter(self.chunks[at].bytes()).any(|other| other == element) {
                removed += self.edit(at, |chunk| chunk.remove_equal(element, max - removed, from_back));
            }
        }
        self.len -= removed;
        if removed > 0 {
            let bytes = &mut self.chunk_bytes;
            self.chunks.retain(|chunk| {
                if chunk.count == 0 {
                    *bytes -= chunk.part.capacity();
                }
                chunk.count > 0
            });
            let mut at = 1;
            while at < self.chunks.len() {
                if !self.merge(at - 1, limit) {
                    at += 1;
                }
            }
        }
        removed
    }

    /// Bytes of memory that the list holds besides itself.
    pub fn mem_bytes(&self) -> usize {
        self.chunk_bytes + malloc_bytes(self.chunks.capacity() * size_of::<Chunk>())
    }

    /// Appends the number of chunks, and for each chunk its number of elements, its length and its bytes. A list that
    /// comes back from flash has the same chunks.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(Varint::new(self.chunks.len()).as_bytes());
        for chunk in &self.chunks {
            out.extend_from_slice(Varint::new(chunk.count as usize).as_bytes());
            out.extend_from_slice(Varint::new(chunk.len()).as_bytes());
            out.extend_from_slice(chunk.bytes());
        }
    }

    pub fn decode(bytes: &[u8]) -> Result<List, Corrupt> {
        let (chunks, mut at) = varint::read(bytes, 0).ok_or(Corrupt)?;
        let mut list = List::new();
        for _ in 0..chunks {
            let (count, start) = varint::read(bytes, at).ok_or(Corrupt)?;
            let part = varint::read_part(bytes, start).ok_or(Corrupt)?;
            at = part.end;
            if count == 0 || run::count(&bytes[part.clone()])? != count {
                return Err(Corrupt);
            }
            list.put_back(Chunk::of(&bytes[part], count));
        }
        if at == bytes.len() { Ok(list) } else { Err(Corrupt) }
    }

    /// See `skeleton`.
    pub(crate) fn save(&self, out: &mut Vec<u8>) {
        put_number(out, self.chunks.len() as u64);
        let mut before = 0;
        for chunk in &self.chunks {
            chunk.save(before, out);
            before = chunk.number;
        }
    }

    pub(crate) fn load(input: &mut Input<'_>) -> Result<List, Corrupt> {
        let (mut list, mut before) = (List::new(), 0);
        for _ in 0..input.count(5)? {
            let chunk = Chunk::load(input, before)?;
            before = chunk.number;
            list.len += chunk.count as usize;
            list.chunk_bytes += chunk.part.capacity();
            list.chunks.push_back(chunk);
        }
        if list.is_empty() { Err(Corrupt) } else { Ok(list) }
    }

    /// For the chunk with element `index`: its place on flash if it is absent, and the first index of the next chunk.
    /// `None`: no such element. See `walk`.
    pub(crate) fn stretch(&self, index: u64) -> Option<(Option<AbsentPart>, u64)> {
        let (chunk, at) = self.locate(usize::try_from(index).ok()?)?;
        let chunk = &self.chunks[chunk];
        Some((chunk.part.absent(chunk.number), index - at as u64 + u64::from(chunk.count)))
    }

    /// Visits the elements of that chunk from `index` on, each with its index. `bytes` are the bytes of an absent
    /// chunk.
    pub(crate) fn walk(
        &self,
        index: u64,
        bytes: Option<&[u8]>,
        visit: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<(), Corrupt> {
        let Some((chunk, at)) = usize::try_from(index).ok().and_then(|index| self.locate(index)) else { return Ok(()) };
        let elements = run::iter(self.chunks[chunk].peek(bytes)?).skip(at);
        (index..).zip(elements).for_each(|(index, element)| visit(index, element));
        Ok(())
    }

    /// The chunk that holds element `index`, and the element's index in the chunk.
    fn locate(&self, index: usize) -> Option<(usize, usize)> {
        if index >= self.len {
            return None;
        }
        if index <= self.len / 2 {
            let mut left = index;
            for (at, chunk) in self.chunks.iter().enumerate() {
                let count = chunk.count as usize;
                if left < count {
                    return Some((at, left));
                }
                left -= count;
            }
        } else {
            let mut left = self.len - index;
            for (at, chunk) in self.chunks.iter().enumerate().rev() {
                let count = chunk.count as usize;
                if left <= count {
                    return Some((at, count - left));
                }
                left -= count;
            }
        }
        unreachable!("the counts add up to the length")
    }

    /// Whether the chunk exists, is in memory, and has room for the element.
    #[inline]
    fn has_room(&self, at: usize, element: &[u8], limit: Limit) -> bool {
        self.chunks.get(at).is_some_and(|chunk| !chunk.part.is_absent() && chunk.allows(limit, element))
    }

    /// Changes one chunk, and updates the sum of their sizes.
    #[inline]
    fn edit<R>(&mut self, at: usize, change: impl FnOnce(&mut Open<'_>) -> R) -> R {
        let mut chunk = self.chunks[at].open(&self.flash_copies);
        self.chunk_bytes -= chunk.capacity();
        let result = change(&mut chunk);
        self.chunk_bytes += chunk.capacity();
        result
    }

    /// Called when a chunk, if it exists, is not expected to grow any more.
    fn seal(&mut self, at: usize) {
        let has_room = |chunk: &Chunk| chunk.part.capacity() > chunk.len() + ROOM_KEPT_BYTES;
        if self.chunks.get(at).is_some_and(|chunk| !chunk.part.is_absent() && has_room(chunk)) {
            self.edit(at, |chunk| chunk.rebuild(0));
        }
    }

    fn put(&mut self, at: usize, mut chunk: Chunk) {
        self.chunk_bytes += chunk.part.capacity();
        let before = at.checked_sub(1).map(|at| self.chunks[at].number);
        let after = self.chunks.get(at).map(|chunk| chunk.number);
        chunk.number = match (before, after) {
            (None, None) => FIRST_NUMBER,
            (Some(before), None) => before.saturating_add(NUMBER_GAP),
            (None, Some(after)) => after.saturating_sub(NUMBER_GAP),
            (Some(before), Some(after)) => before + (after - before) / 2,
        };
        let is_taken = [before, after].contains(&Some(chunk.number));
        self.chunks.insert(at, chunk);
        if is_taken {
            self.spread(at);
        }
    }

    /// Renumbers a chunk and as many neighbours as needed, so that there is room between their numbers. Chunks that are
    /// on flash only keep their numbers. If those leave too little room, some chunks get the same number.
    #[cold]
    fn spread(&mut self, at: usize) {
        let in_memory = |chunk: Option<&Chunk>| chunk.is_some_and(|chunk| !chunk.part.is_absent());
        let (mut from, mut to) = (at, at + 1);
        let (low, high) = loop {
            let gaps = (to - from) as u64 + 1;
            let before = from.checked_sub(1).map(|at| self.chunks[at].number);
            let after = self.chunks.get(to).map(|chunk| chunk.number);
            let (low, high) = match (before, after) {
                (None, None) => (FIRST_NUMBER, FIRST_NUMBER + gaps * NUMBER_GAP),
                (Some(before), None) => (before, before.saturating_add(gaps * NUMBER_GAP)),
                (None, Some(after)) => (after.saturating_sub(gaps * NUMBER_GAP), after),
                (Some(before), Some(after)) => (before, after),
            };
            let to_left = in_memory(from.checked_sub(1).and_then(|at| self.chunks.get(at)));
            let to_right = in_memory(self.chunks.get(to));
            if (high - low) / gaps >= SPREAD_GAP || !to_left && !to_right {
                break (low, high);
            }
            (from, to) = (from - usize::from(to_left), to + usize::from(to_right));
        };
        let gaps = (to - from) as u128 + 1;
        for (n, chunk) in self.chunks.range_mut(from..to).enumerate() {
            // The copy on flash under the old number becomes invalid.
            chunk.part.edit(&self.flash_copies);
            chunk.number = low + ((n as u128 + 1) * u128::from(high - low) / gaps) as u64;
        }
    }

    fn put_back(&mut self, chunk: Chunk) {
        self.len += chunk.count as usize;
        let at = self.chunks.len();
        self.put(at, chunk);
    }

    fn cut(&mut self, at: usize) -> Chunk {
        let chunk = self.chunks.remove(at).expect("a chunk's number");
        chunk.part.forget_copy(&self.flash_copies);
        self.chunk_bytes -= chunk.part.capacity();
        chunk
    }

    /// Merges chunks that removals have made small.
    fn merge_around(&mut self, at: usize, limit: Limit) {
        self.merge(at, limit);
        if at > 0 {
            self.merge(at - 1, limit);
        }
        // A list that was long does not keep the memory for its chunk table.
        if self.chunks.capacity() > 32 && self.chunks.len() < self.chunks.capacity() / 4 {
            self.chunks.shrink_to(self.chunks.len() * 2);
        }
    }

    /// Merges the chunk with the next one if both together are at most half full. This bounds how often an element
    /// moves, even if removals and insertions alternate. Both chunks must be in memory.
    fn merge(&mut self, at: usize, limit: Limit) -> bool {
        let (Some(first), Some(second)) = (self.chunks.get(at), self.chunks.get(at + 1)) else { return false };
        let is_small = limit.half().allows(first.len() + second.len(), (first.count + second.count) as usize);
        if !is_small || first.part.is_absent() || second.part.is_absent() {
            return false;
        }
        let second = self.cut(at + 1);
        self.edit(at, |first| first.append(&second));
        true
    }
}

/// A walk that meets an absent chunk asks for as much again as it has read, and for at least this much.
const WALK_BYTES_MIN: usize = 64 << 10;

/// The parts that an operation touches, named before it runs.
impl List {
    /// Records the parts for pushing elements at an end. `element`: the first of them.
    pub fn want_push(&self, at_back: bool, element: &[u8], limit: Limit, out: &mut Absent) {
        let chunk = if at_back { self.chunks.back() } else { self.chunks.front() };
        if let Some(chunk) = chunk.filter(|chunk| chunk.allows(limit, element)) {
            chunk.want(out);
        }
    }

    /// Records the parts for reading the elements at these indices.
    pub fn want(&self, indices: Range<usize>, out: &mut Absent) {
        let Some((first, before)) = self.locate(indices.start).filter(|_| !indices.is_empty()) else { return };
        let mut left = before + indices.len();
        for chunk in self.chunks.range(first..) {
            chunk.want(out);
            left = left.saturating_sub(chunk.count as usize);
            if left == 0 {
                return;
            }
        }
    }

    /// Records the parts for reading and removing up to `count` elements at an end.
    pub fn want_pop(&self, at_back: bool, count: usize, out: &mut Absent) {
        let (all, rest) = (0..self.len, self.len.saturating_sub(count));
        let (popped, kept) =
            if at_back { (rest..all.end, 0..rest) } else { (0..all.end - rest, all.end - rest..all.end) };
        self.want(popped, out);
        self.want_keep(kept, out);
    }

    /// Records the parts for removing all elements except those at these indices. A chunk that is dropped whole is not
    /// needed.
    pub fn want_keep(&self, kept: Range<usize>, out: &mut Absent) {
        if kept.is_empty() || kept.len() == self.len {
            return;
        }
        let (Some((first, before)), Some((last, at))) = (self.locate(kept.start), self.locate(kept.end - 1)) else {
            return;
        };
        // A single remaining chunk may become a packed list.
        if before > 0 || first == last {
            self.chunks[first].want(out);
        }
        if first != last && at + 1 < self.chunks[last].count as usize {
            self.chunks[last].want(out);
        }
    }

    /// Records the parts for a walk from an end over the elements while `goes_on` returns true.
    pub fn want_walk(&self, from_back: bool, mut goes_on: impl FnMut(&[u8]) -> bool, out: &mut Absent) {
        if self.flash_copies.is_none() || !self.chunks.iter().any(|chunk| chunk.part.is_absent()) {
            return;
        }
        let chunks = self.chunks.len();
        let chunk = |n: usize| &self.chunks[if from_back { chunks - 1 - n } else { n }];
        let mut seen = 0;
        for n in 0..chunks {
            let next = chunk(n);
            if next.part.is_absent() {
                let mut wanted = 0;
                for next in (n..chunks).map(chunk).filter(|chunk| chunk.part.is_absent()) {
                    next.want(out);
                    wanted += next.len();
                    if wanted >= seen.max(WALK_BYTES_MIN) {
                        return;
                    }
                }
                return;
            }
            seen += next.len();
            let mut elements = run::iter(next.bytes());
            if !if from_back { elements.rev().all(&mut goes_on) } else { elements.all(&mut goes_on) } {
                return;
            }
        }
    }
}

impl InChunks for List {
    type Chunk = Chunk;

    fn chunks(&self) -> &VecDeque<Chunk> {
        &self.chunks
    }

    fn chunks_mut(&mut self) -> &mut VecDeque<Chunk> {
        &mut self.chunks
    }

    fn flash_copies(&self) -> &FlashCopiesOf {
        &self.flash_copies
    }

    fn flash_copies_mut(&mut self) -> &mut FlashCopiesOf {
        &mut self.flash_copies
    }

    fn chunk_bytes_mut(&mut self) -> &mut usize {
        &mut self.chunk_bytes
    }
}

impl Drop for List {
    fn drop(&mut self) {
        if self.flash_copies.is_some() {
            self.chunks.iter().for_each(|chunk| chunk.part.forget_copy(&self.flash_copies));
        }
    }
}

impl Clone for List {
    /// The copy has no spare room at the chunks' ends. It is in memory and has nothing on flash.
    fn clone(&self) -> List {
        let mut list = List::new();
        list.chunks.reserve(self.chunks.len());
        self.chunks.iter().for_each(|chunk| list.put_back(Chunk::of(chunk.bytes(), chunk.count as usize)));
        list
    }
}

impl std::fmt::Debug for List {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("List").field("len", &self.len).field("chunks", &self.chunks.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
