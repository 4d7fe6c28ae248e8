//! Owns the large form of a list: a sequence of chunks, each a run of elements. Never knows replies or settings.
//!
//! A chunk holds as many elements as [`Limit`] allows (8 KB with Redis's defaults) in one allocation, so an element costs
//! the two or four bytes of its lengths and nothing else. Both ends are O(1): the first chunk keeps room in front of its
//! elements, the last behind them, each doubling up to the limit. The element of an index is found by passing over the
//! chunks' counts from the nearer end and then over the elements of one chunk: 10 million elements of 16 bytes are
//! 22,000 chunks, of which half are passed at worst.

use crate::varint::{self, Varint};
use crate::{Buffer, Corrupt, malloc_bytes};
use std::collections::VecDeque;
use std::ops::Range;

pub mod packed;
pub mod run;

/// What a packed list or a chunk may be: Redis's `list-max-listpack-size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    bytes: usize,
    elements: usize,
}

/// Header and end mark of Redis's listpack, which count there.
const LISTPACK_FIXED_BYTES: usize = 7;
/// A limit of elements does not make chunks larger than this.
const SAFETY_BYTES: usize = 8192;

impl Limit {
    /// Positive: that many elements. −1 to −5: 4 KB, 8 KB … 64 KB.
    pub fn of(directive: i64) -> Limit {
        match directive {
            0.. => Limit { bytes: SAFETY_BYTES, elements: directive.max(1) as usize },
            _ => Limit { bytes: 4096 << (!directive).min(4), elements: usize::MAX },
        }
    }

    /// What a list that shrinks must come down to before it is packed again: so it does not change its form all the time.
    pub fn half(self) -> Limit {
        let elements = if self.elements == usize::MAX { usize::MAX } else { self.elements / 2 };
        Limit { bytes: self.bytes / 2, elements }
    }

    #[inline]
    pub fn allows(self, bytes: usize, elements: usize) -> bool {
        bytes.saturating_add(LISTPACK_FIXED_BYTES) <= self.bytes && elements <= self.elements
    }
}

/// A run of elements with room on both sides.
#[derive(Debug)]
struct Chunk {
    bytes: Vec<u8>,
    /// The run begins here; what is before is room.
    start: u32,
    count: u32,
}

/// Room below this is not worth giving back.
const ROOM_KEPT_BYTES: usize = 64;

impl Chunk {
    fn of(run: &[u8], count: usize) -> Chunk {
        Chunk { bytes: run.to_vec(), start: 0, count: count as u32 }
    }

    fn one(element: &[u8]) -> Chunk {
        let mut chunk = Chunk { bytes: Vec::new(), start: 0, count: 1 };
        run::push_back(&mut chunk, element);
        chunk
    }

    fn len(&self) -> usize {
        self.bytes.len() - self.start as usize
    }

    fn mem_bytes(&self) -> usize {
        malloc_bytes(self.bytes.capacity())
    }

    fn allows(&self, limit: Limit, element: &[u8]) -> bool {
        limit.allows(self.len() + run::size(element.len()), self.count as usize + 1)
    }

    fn offset(&self, index: usize) -> usize {
        run::offset(self.bytes(), index, self.count as usize)
    }

    fn push_front(&mut self, element: &[u8]) {
        run::push_front(self, element);
        self.count += 1;
    }

    fn push_back(&mut self, element: &[u8]) {
        run::push_back(self, element);
        self.count += 1;
    }

    fn remove(&mut self, elements: Range<usize>) {
        let count = elements.len();
        let bytes = self.offset(elements.start)..self.offset(elements.end);
        self.splice(bytes, &[]);
        self.count -= count as u32;
    }

    /// The elements from `index` on become a chunk of their own.
    fn split_off(&mut self, index: usize) -> Chunk {
        let at = self.offset(index);
        let tail = Chunk::of(&self.bytes()[at..], self.count as usize - index);
        let end = self.len();
        self.splice(at..end, &[]);
        self.count = index as u32;
        tail
    }

    /// No more elements are expected.
    fn seal(&mut self) {
        if self.bytes.capacity() - self.len() > ROOM_KEPT_BYTES {
            self.rebuild(0, 0);
        }
    }

    /// The same elements with so much room before and behind them.
    fn rebuild(&mut self, front: usize, back: usize) {
        let mut bytes = Vec::with_capacity(front + self.len() + back);
        bytes.resize(front, 0);
        bytes.extend_from_slice(self.bytes());
        self.bytes = bytes;
        self.start = front as u32;
    }
}

impl Buffer for Chunk {
    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.bytes[self.start as usize..]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start as usize..]
    }

    /// At the front the room before the list is used, elsewhere what is behind `at` moves.
    fn splice(&mut self, at: Range<usize>, with: &[&[u8]]) {
        let added: usize = with.iter().map(|part| part.len()).sum();
        if at.start == 0 && at.end < self.len() {
            if added > at.len() + self.start as usize {
                self.rebuild(added.max(self.len()), 0);
            }
            self.start = (self.start as usize + at.len() - added) as u32;
        } else {
            let (from, to) = (self.start as usize + at.start, self.start as usize + at.end);
            let old = self.bytes.len();
            self.bytes.resize(old.max(old + added - at.len()), 0);
            self.bytes.copy_within(to..old, from + added);
            self.bytes.truncate(old + added - at.len());
        }
        let mut to = self.start as usize + at.start;
        for part in with {
            self.bytes[to..to + part.len()].copy_from_slice(part);
            to += part.len();
        }
        let room = self.bytes.capacity() - self.len();
        if room > ROOM_KEPT_BYTES && room > 3 * self.len() {
            self.rebuild(0, 0);
        }
    }
}

impl Clone for Chunk {
    fn clone(&self) -> Chunk {
        Chunk::of(self.bytes(), self.count as usize)
    }
}

/// A list of any length.
#[derive(Debug, Default)]
pub struct List {
    /// None is empty.
    chunks: VecDeque<Chunk>,
    len: usize,
    /// What the chunks' allocations take.
    chunk_bytes: usize,
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

    /// The list in its packed form, if it is one chunk within the limit.
    pub fn to_packed(&self, limit: Limit) -> Option<Vec<u8>> {
        match self.chunks.len() {
            0 => Some(packed::of(&[], 0)),
            1 if limit.allows(self.chunks[0].len(), self.len) => Some(packed::of(self.chunks[0].bytes(), self.len)),
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
        match self.chunks.front() {
            Some(first) if first.allows(limit, element) => self.edit(0, |chunk| chunk.push_front(element)),
            _ => {
                if !self.chunks.is_empty() {
                    self.edit(0, Chunk::seal);
                }
                self.put(0, Chunk::one(element));
            }
        }
        self.len += 1;
    }

    pub fn push_back(&mut self, element: &[u8], limit: Limit) {
        let last = self.chunks.len().wrapping_sub(1);
        match self.chunks.back() {
            Some(chunk) if chunk.allows(limit, element) => self.edit(last, |chunk| chunk.push_back(element)),
            back => {
                if back.is_some() {
                    self.edit(last, Chunk::seal);
                }
                self.put(last.wrapping_add(1), Chunk::one(element));
            }
        }
        self.len += 1;
    }

    /// Puts an element before the one at `index`, or at the end.
    pub fn insert(&mut self, index: usize, element: &[u8], limit: Limit) {
        let Some((mut chunk, at)) = self.locate(index) else { return self.push_back(element, limit) };
        if self.chunks[chunk].allows(limit, element) {
            self.edit(chunk, |chunk| {
                run::insert(chunk, chunk.offset(at), element);
                chunk.count += 1;
            });
        } else {
            if at > 0 {
                let mut tail = None;
                self.edit(chunk, |chunk| tail = Some(chunk.split_off(at)));
                chunk += 1;
                self.put(chunk, tail.expect("split_off ran"));
            }
            // Between two chunks: into one that has room, or a new one.
            if chunk > 0 && self.chunks[chunk - 1].allows(limit, element) {
                self.edit(chunk - 1, |chunk| chunk.push_back(element));
            } else if self.chunks[chunk].allows(limit, element) {
                self.edit(chunk, |chunk| chunk.push_front(element));
            } else {
                self.put(chunk, Chunk::one(element));
            }
        }
        self.len += 1;
    }

    /// Gives the element at `index` another value; false if there is none.
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

    /// Removes the elements of those indices, which must be there.
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

    /// Removes up to `max` elements that equal `element`, from the front or the back; how many.
    pub fn remove_equal(&mut self, element: &[u8], max: usize, from_back: bool, limit: Limit) -> usize {
        let mut removed = 0;
        let chunks = self.chunks.len();
        for n in 0..chunks {
            if removed == max {
                break;
            }
            let at = if from_back { chunks - 1 - n } else { n };
            self.edit(at, |chunk| {
                let gone = run::remove_equal(chunk, element, max - removed, from_back);
                chunk.count -= gone as u32;
                removed += gone;
            });
        }
        self.len -= removed;
        if removed > 0 {
            let bytes = &mut self.chunk_bytes;
            self.chunks.retain(|chunk| {
                if chunk.count == 0 {
                    *bytes -= chunk.mem_bytes();
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

    /// Bytes of memory it holds besides itself.
    pub fn mem_bytes(&self) -> usize {
        self.chunk_bytes + malloc_bytes(self.chunks.capacity() * size_of::<Chunk>())
    }

    /// Appends the number of chunks, and for each its number of elements, its length and its bytes: a list that comes
    /// back from flash is as it was.
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

    /// The chunk that holds element `index`, and which of its elements that is.
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

    /// Changes one chunk, and the sum of their sizes with it.
    fn edit(&mut self, at: usize, change: impl FnOnce(&mut Chunk)) {
        let chunk = &mut self.chunks[at];
        let before = chunk.mem_bytes();
        change(chunk);
        self.chunk_bytes = self.chunk_bytes + chunk.mem_bytes() - before;
    }

    fn put(&mut self, at: usize, chunk: Chunk) {
        self.chunk_bytes += chunk.mem_bytes();
        self.chunks.insert(at, chunk);
    }

    fn put_back(&mut self, chunk: Chunk) {
        self.len += chunk.count as usize;
        let at = self.chunks.len();
        self.put(at, chunk);
    }

    fn cut(&mut self, at: usize) -> Chunk {
        let chunk = self.chunks.remove(at).expect("a chunk's number");
        self.chunk_bytes -= chunk.mem_bytes();
        chunk
    }

    /// Chunks that removals have made small become one.
    fn merge_around(&mut self, at: usize, limit: Limit) {
        self.merge(at, limit);
        if at > 0 {
            self.merge(at - 1, limit);
        }
        // A list that was long once does not keep the room for its chunks.
        if self.chunks.capacity() > 32 && self.chunks.len() < self.chunks.capacity() / 4 {
            self.chunks.shrink_to(self.chunks.len() * 2);
        }
    }

    /// Joins the chunk with the next one if they then are no more than half full: each element moves so a bounded
    /// number of times, however removals and insertions alternate.
    fn merge(&mut self, at: usize, limit: Limit) -> bool {
        let (Some(first), Some(second)) = (self.chunks.get(at), self.chunks.get(at + 1)) else { return false };
        if !limit.half().allows(first.len() + second.len(), (first.count + second.count) as usize) {
            return false;
        }
        let second = self.cut(at + 1);
        self.edit(at, |first| {
            let end = first.len();
            first.splice(end..end, &[second.bytes()]);
            first.count += second.count;
        });
        true
    }
}

impl Clone for List {
    /// Without the room that the chunks' ends keep.
    fn clone(&self) -> List {
        let mut list = List::new();
        list.chunks.reserve(self.chunks.len());
        self.chunks.iter().for_each(|chunk| list.put_back(chunk.clone()));
        list
    }
}

#[cfg(test)]
mod tests;
