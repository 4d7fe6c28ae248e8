//! Owns a table of entries in the order of their tags, which are keyed hashes. Never knows what an entry says.
//!
//! Entries lie in *chunks*, runs of some hundred bytes sorted by tag:
//! ```text
//! tag       4 bytes, little-endian
//! payload   as long as its own beginning says (Shape)
//! ... the next entry
//! ```
//! A directory of 2^depth chunk numbers is indexed by a tag's upper bits (extendible hashing: Fagin, Nievergelt,
//! Pippenger and Strong 1979). A chunk that has become too long is halved at its next bit; two halves that have
//! become short are joined. So nothing ever moves but one chunk, and now and then the directory, 4 bytes a chunk or
//! two: 0.2 ms for a million entries. One order serves lookups and walks: a cursor is a tag, so an entry that is
//! there during a whole walk is visited exactly once, whatever splits meanwhile.
//!
//! An entry costs its payload, 4 bytes of tag and some 3 of the chunk's own. Allocations grow by size classes.

use crate::malloc_bytes;
use std::marker::PhantomData;
use std::ops::Range;

/// Where a payload ends, told by its first bytes.
pub trait Shape {
    fn end(bytes: &[u8], at: usize) -> usize;
}

/// A chunk longer than this is halved ...
const CHUNK_BYTES_MAX: usize = 512;
/// ... unless it has so few entries that halving would make the directory outgrow them: with b entries to a chunk it
/// grows as n^(1 + 1/b).
const CHUNK_ENTRIES_MIN: u32 = 16;
/// Two halves are joined when they fit this.
const JOINED_BYTES_MAX: usize = CHUNK_BYTES_MAX / 2;
/// 2^26 chunks hold more entries than tags tell apart.
const DEPTH_MAX: u8 = 26;
const TAG_BYTES: usize = 4;

#[derive(Clone, Default)]
struct Chunk {
    bytes: Vec<u8>,
    entries: u32,
    /// The smallest tag that belongs here.
    start: u32,
    /// How many upper bits its tags have in common.
    depth: u8,
}

/// What one step of a walk leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Next(u64),
    End,
}

/// Where an entry stands or belongs. Good until the next change.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    chunk: usize,
    at: usize,
}

#[derive(Clone)]
pub struct Tagged<S> {
    /// The chunk of each of 2^depth shares of the tags.
    directory: Vec<u32>,
    depth: u8,
    /// In no order; never none.
    chunks: Vec<Chunk>,
    len: usize,
    /// What the chunks' bytes take.
    chunk_bytes: usize,
    /// No chunk has more entries than this.
    entries_max: u32,
    shape: PhantomData<S>,
}

impl<S: Shape> Default for Tagged<S> {
    fn default() -> Tagged<S> {
        Tagged {
            directory: vec![0],
            depth: 0,
            chunks: vec![Chunk::default()],
            len: 0,
            chunk_bytes: 0,
            entries_max: 0,
            shape: PhantomData,
        }
    }
}

impl<S: Shape> Tagged<S> {
    pub fn len(&self) -> usize {
        self.len
    }

    /// The place of the entry with this tag whose payload `is` the one sought, or where it belongs.
    #[inline]
    pub fn find(&self, tag: u32, mut is: impl FnMut(&[u8]) -> bool) -> Result<Place, Place> {
        let chunk = self.directory[self.share(tag)] as usize;
        let bytes = &self.chunks[chunk].bytes[..];
        let mut at = 0;
        while at < bytes.len() {
            let other = tag_at(bytes, at);
            if other > tag {
                break;
            }
            let end = S::end(bytes, at + TAG_BYTES);
            if other == tag && is(&bytes[at + TAG_BYTES..end]) {
                return Ok(Place { chunk, at });
            }
            at = end;
        }
        Err(Place { chunk, at })
    }

    #[inline]
    pub fn payload(&self, place: Place) -> &[u8] {
        let bytes = &self.chunks[place.chunk].bytes[..];
        &bytes[place.at + TAG_BYTES..S::end(bytes, place.at + TAG_BYTES)]
    }

    /// The payload, to be overwritten by one of the same length.
    pub fn payload_mut(&mut self, place: Place) -> &mut [u8] {
        let bytes = &mut self.chunks[place.chunk].bytes[..];
        let end = S::end(bytes, place.at + TAG_BYTES);
        &mut bytes[place.at + TAG_BYTES..end]
    }

    /// Puts an entry where [`Tagged::find`] said that it belongs.
    pub fn insert(&mut self, place: Place, tag: u32, payload: &[&[u8]]) {
        let chunk = &mut self.chunks[place.chunk];
        self.chunk_bytes -= chunk.bytes.capacity();
        let bytes = TAG_BYTES + payload.iter().map(|part| part.len()).sum::<usize>();
        let (head, mut rest) = gap(&mut chunk.bytes, place.at, bytes).split_at_mut(TAG_BYTES);
        head.copy_from_slice(&tag.to_le_bytes());
        for part in payload {
            let (head, tail) = rest.split_at_mut(part.len());
            head.copy_from_slice(part);
            rest = tail;
        }
        self.chunk_bytes += chunk.bytes.capacity();
        chunk.entries += 1;
        self.len += 1;
        self.entries_max = self.entries_max.max(chunk.entries);
        if chunk.bytes.len() > CHUNK_BYTES_MAX {
            self.halve(place.chunk);
        }
    }

    pub fn remove(&mut self, place: Place) {
        let chunk = &mut self.chunks[place.chunk];
        let end = S::end(&chunk.bytes, place.at + TAG_BYTES);
        chunk.bytes.drain(place.at..end);
        chunk.entries -= 1;
        self.len -= 1;
        let (len, capacity) = (chunk.bytes.len(), chunk.bytes.capacity());
        if malloc_bytes(len) < capacity / 2 {
            chunk.bytes.shrink_to(malloc_bytes(len));
            self.chunk_bytes = self.chunk_bytes - capacity + chunk.bytes.capacity();
        }
        if len <= JOINED_BYTES_MAX {
            self.join(place.chunk);
        }
    }

    /// All payloads in the order of their tags.
    pub fn iter(&self) -> Iter<'_, S> {
        Iter { table: self, bytes: &self.chunks[self.directory[0] as usize].bytes, at: 0, share: 0 }
    }

    /// A uniformly random payload: a random chunk, taken with a chance of its entries to the most that any has.
    /// `draw(n)` is a random number below n.
    pub fn random(&self, mut draw: impl FnMut(usize) -> usize) -> Option<&[u8]> {
        if self.len == 0 {
            return None;
        }
        loop {
            let chunk = &self.chunks[draw(self.chunks.len())];
            let drawn = draw(self.entries_max as usize);
            if drawn < chunk.entries as usize {
                let mut at = 0;
                for _ in 0..drawn {
                    at = S::end(&chunk.bytes, at + TAG_BYTES);
                }
                return Some(&chunk.bytes[at + TAG_BYTES..S::end(&chunk.bytes, at + TAG_BYTES)]);
            }
        }
    }

    /// One step of a walk over all entries: visits at least `count` of them, from `cursor` on (0 is the start).
    /// An entry that is there from the walk's start to its end is visited exactly once, whatever else changes.
    pub fn scan<'a>(&'a self, cursor: u64, count: usize, visit: &mut dyn FnMut(u32, &'a [u8])) -> Step {
        let Ok(from) = u32::try_from(cursor) else {
            return Step::End;
        };
        let (mut visited, mut last) = (0, None);
        let mut share = self.share(from);
        while let Some(&chunk) = self.directory.get(share) {
            let chunk = &self.chunks[chunk as usize];
            let mut at = 0;
            while at < chunk.bytes.len() {
                let tag = tag_at(&chunk.bytes, at);
                let end = S::end(&chunk.bytes, at + TAG_BYTES);
                if tag >= from {
                    // Entries of one tag are one step: a cursor cannot stand between them.
                    if visited >= count.max(1) && last != Some(tag) {
                        return Step::Next(u64::from(tag));
                    }
                    visit(tag, &chunk.bytes[at + TAG_BYTES..end]);
                    visited += 1;
                    last = Some(tag);
                }
                at = end;
            }
            share = self.shares(chunk).end;
        }
        Step::End
    }

    /// Bytes of memory it holds besides itself.
    pub fn mem_bytes(&self) -> usize {
        self.chunk_bytes
            + malloc_bytes(self.directory.capacity() * size_of::<u32>())
            + malloc_bytes(self.chunks.capacity() * size_of::<Chunk>())
    }

    #[inline]
    fn share(&self, tag: u32) -> usize {
        (u64::from(tag) >> (32 - self.depth)) as usize
    }

    /// The directory's shares of a chunk.
    fn shares(&self, chunk: &Chunk) -> Range<usize> {
        let first = self.share(chunk.start);
        first..first + (1 << (self.depth - chunk.depth))
    }

    /// Halves a chunk that is too long, and its halves if they still are.
    fn halve(&mut self, at: usize) {
        let mut waiting = vec![at];
        while let Some(at) = waiting.pop() {
            let chunk = &self.chunks[at];
            let is_long = chunk.bytes.len() > CHUNK_BYTES_MAX && chunk.entries > CHUNK_ENTRIES_MIN;
            if !is_long || chunk.depth == DEPTH_MAX {
                continue;
            }
            if chunk.depth == self.depth {
                self.directory = self.directory.iter().flat_map(|&chunk| [chunk, chunk]).collect();
                self.depth += 1;
            }
            let chunk = &mut self.chunks[at];
            chunk.depth += 1;
            let start = chunk.start | 1 << (32 - chunk.depth);
            let (mut split, mut lower) = (0, 0);
            while split < chunk.bytes.len() && tag_at(&chunk.bytes, split) < start {
                split = S::end(&chunk.bytes, split + TAG_BYTES);
                lower += 1;
            }
            let upper = Chunk {
                bytes: fitted(&chunk.bytes[split..]),
                entries: chunk.entries - lower,
                start,
                depth: chunk.depth,
            };
            self.chunk_bytes -= chunk.bytes.capacity();
            chunk.bytes = fitted(&chunk.bytes[..split]);
            chunk.entries = lower;
            self.chunk_bytes += chunk.bytes.capacity() + upper.bytes.capacity();
            let shares = self.shares(&upper);
            let number = self.chunks.len();
            self.directory[shares].fill(number as u32);
            self.chunks.push(upper);
            waiting.extend([at, number]);
        }
    }

    /// Joins a short chunk with its other half, if that is short too, and the result with its own.
    fn join(&mut self, mut at: usize) {
        loop {
            let chunk = &self.chunks[at];
            if chunk.depth == 0 {
                return;
            }
            let bit = 1 << (32 - chunk.depth);
            let other_at = self.directory[self.share(chunk.start ^ bit)] as usize;
            let other = &self.chunks[other_at];
            if other.depth != chunk.depth || other.bytes.len() + chunk.bytes.len() > JOINED_BYTES_MAX {
                return;
            }
            let (lower_at, upper_at) = if chunk.start & bit == 0 { (at, other_at) } else { (other_at, at) };
            let upper = std::mem::take(&mut self.chunks[upper_at]);
            let lower = &mut self.chunks[lower_at];
            self.chunk_bytes -= lower.bytes.capacity() + upper.bytes.capacity();
            let end = lower.bytes.len();
            gap(&mut lower.bytes, end, upper.bytes.len()).copy_from_slice(&upper.bytes);
            self.chunk_bytes += lower.bytes.capacity();
            lower.entries += upper.entries;
            lower.depth -= 1;
            self.entries_max = self.entries_max.max(lower.entries);
            self.point_to(lower_at);
            // The last chunk takes the number that is free now.
            let last = self.chunks.len() - 1;
            self.chunks.swap_remove(upper_at);
            at = lower_at;
            if upper_at != last {
                self.point_to(upper_at);
                if lower_at == last {
                    at = upper_at;
                }
            }
            // At powers of two, so that all such looks together cost no more than the chunks that went.
            if self.chunks.len().is_power_of_two() {
                self.tidy();
            }
        }
    }

    fn point_to(&mut self, at: usize) {
        let shares = self.shares(&self.chunks[at]);
        self.directory[shares].fill(at as u32);
    }

    /// Makes the directory as small as its chunks allow.
    fn tidy(&mut self) {
        self.entries_max = self.chunks.iter().map(|chunk| chunk.entries).max().unwrap_or(0);
        let depth = self.chunks.iter().map(|chunk| chunk.depth).max().unwrap_or(0);
        if depth < self.depth {
            self.directory = self.directory.iter().copied().step_by(1 << (self.depth - depth)).collect();
            self.depth = depth;
        }
        self.chunks.shrink_to(2 * self.chunks.len());
    }
}

pub struct Iter<'a, S> {
    table: &'a Tagged<S>,
    bytes: &'a [u8],
    at: usize,
    share: usize,
}

impl<S> Clone for Iter<'_, S> {
    fn clone(&self) -> Self {
        Iter { ..*self }
    }
}

impl<'a, S: Shape> Iterator for Iter<'a, S> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        while self.at == self.bytes.len() {
            let number = *self.table.directory.get(self.share)?;
            self.share = self.table.shares(&self.table.chunks[number as usize]).end;
            let next = *self.table.directory.get(self.share)?;
            (self.bytes, self.at) = (&self.table.chunks[next as usize].bytes, 0);
        }
        let start = self.at + TAG_BYTES;
        self.at = S::end(self.bytes, start);
        Some(&self.bytes[start..self.at])
    }
}

#[inline]
fn tag_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + TAG_BYTES].try_into().expect("four bytes"))
}

/// A copy whose capacity is an allocation's whole size.
pub(crate) fn fitted(bytes: &[u8]) -> Vec<u8> {
    let mut copy = Vec::with_capacity(malloc_bytes(bytes.len()));
    copy.extend_from_slice(bytes);
    copy
}

/// Makes room for `len` bytes at `at`. The capacity grows to the next size class, not to twice itself.
pub(crate) fn gap(bytes: &mut Vec<u8>, at: usize, len: usize) -> &mut [u8] {
    let end = bytes.len();
    if bytes.capacity() - end < len {
        bytes.reserve_exact(malloc_bytes(end + len) - end);
    }
    bytes.resize(end + len, 0);
    bytes.copy_within(at..end, at + len);
    &mut bytes[at..at + len]
}

#[cfg(test)]
impl<S: Shape> Tagged<S> {
    /// What must always hold.
    pub fn check(&self) {
        assert_eq!(self.directory.len(), 1 << self.depth);
        let (mut len, mut bytes, mut at) = (0, 0, 0);
        while at < self.directory.len() {
            let number = self.directory[at];
            let chunk = &self.chunks[number as usize];
            assert!(chunk.depth <= self.depth);
            let shares = self.shares(chunk);
            assert_eq!(shares.start, at);
            assert!(self.directory[shares.clone()].iter().all(|&other| other == number));
            let (mut entries, mut last, mut place) = (0, 0, 0);
            while place < chunk.bytes.len() {
                let tag = tag_at(&chunk.bytes, place);
                assert!(tag >= last);
                assert!(shares.contains(&self.share(tag)));
                (entries, last, place) = (entries + 1, tag, S::end(&chunk.bytes, place + TAG_BYTES));
            }
            assert_eq!(entries, chunk.entries);
            assert!(entries <= self.entries_max);
            (len, bytes, at) = (len + entries as usize, bytes + chunk.bytes.capacity(), shares.end);
        }
        assert_eq!((len, bytes), (self.len, self.chunk_bytes));
    }

    pub fn chunk_count(&self) -> usize {
        self.chunks.len()
    }
}
