//! Owns a table of entries in the order of their tags, which are keyed hashes. Never knows what an entry means.
//!
//! Entries lie in *chunks*, runs of some hundred bytes sorted by tag:
//! ```text
//! tag       4 bytes, little-endian
//! payload   as long as its own beginning says (Shape)
//! ... the next entry
//! ```
//! The upper bits of a tag index a directory of 2^depth chunk numbers (extendible hashing: Fagin, Nievergelt, Pippenger
//! and Strong 1979). A chunk that is too long is split at its next bit; two short halves are merged. So a change moves
//! only one chunk, and rarely the directory, 4 bytes for each of its slots: 0.2 ms for a million entries. Look-ups and
//! walks use the same order. A cursor is a tag, so an entry that exists during a whole walk is visited exactly once,
//! even if chunks split meanwhile.
//!
//! An entry costs its payload, 4 bytes for the tag, and some 3 bytes as its share of the chunk. Allocations grow by
//! size classes.
//!
//! A chunk is a part (see `part`), and its number is the smallest tag that belongs to it. A chunk must be in memory to
//! be touched.

use crate::fit::{fitted, gap, shrink};
use crate::input::{Input, put_number};
use crate::part::{Absent, AbsentPart, FlashCopies, FlashCopiesOf, Part, Parts};
use crate::tag::Salt;
use crate::{Corrupt, malloc_bytes};
use std::collections::HashSet;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// Finds the end of a payload from its first bytes.
pub trait Shape {
    /// The end of the payload at `at`. `None`: the bytes are not a valid payload.
    fn checked_end(bytes: &[u8], at: usize) -> Option<usize>;

    #[inline]
    fn end(bytes: &[u8], at: usize) -> usize {
        Self::checked_end(bytes, at).expect("insert() wrote it")
    }
}

/// A chunk that is longer is split.
const CHUNK_BYTES_MAX: usize = 512;
/// The limit for chunks that go to flash alone: half as much stays in memory, and a change writes twice as much.
const PART_BYTES_MAX: usize = 2 * CHUNK_BYTES_MAX;
/// A chunk with fewer entries than this is not split, or the directory would outgrow the entries: with b entries per
/// chunk it grows as n^(1 + 1/b). For large entries, of which there are fewer, the limit is half of this, because every
/// change moves them.
const CHUNK_ENTRIES_MIN: u32 = 16;
const LARGE_CHUNK_BYTES: usize = 8192;
/// Two halves are merged if both together fit into this.
const JOINED_BYTES_MAX: usize = CHUNK_BYTES_MAX / 2;
/// 2^26 chunks hold more entries than tags can distinguish.
const DEPTH_MAX: u8 = 26;
pub(crate) const TAG_BYTES: usize = 4;

#[derive(Clone, Default)]
struct Chunk {
    part: Part,
    entries: u32,
    /// The smallest tag that belongs to this chunk.
    start: u32,
    /// How many upper bits its tags share.
    depth: u8,
}

/// Where a step of a walk leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Next(u64),
    End,
}

/// An entry that was drawn at random, without reading it. Valid until the next change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Drawn {
    chunk: usize,
    nth: usize,
}

/// The position of an entry, or where it belongs. Valid until the next change.
#[derive(Clone, Copy, Debug)]
pub struct TaggedPosition {
    chunk: usize,
    at: usize,
}

pub struct Tagged<S> {
    /// For each of 2^depth ranges of tags: the chunk.
    directory: Vec<u32>,
    depth: u8,
    /// In no order, and never empty.
    chunks: Vec<Chunk>,
    len: usize,
    /// Memory of the chunks' bytes.
    chunk_bytes: usize,
    /// No chunk has more entries than this.
    entries_max: u32,
    salt: Salt,
    flash_copies: FlashCopiesOf,
    shape: PhantomData<S>,
}

impl<S: Shape> Default for Tagged<S> {
    fn default() -> Tagged<S> {
        Tagged::with_salt(Salt::default())
    }
}

impl<S: Shape> Tagged<S> {
    pub fn with_salt(salt: Salt) -> Tagged<S> {
        Tagged {
            directory: vec![0],
            depth: 0,
            chunks: vec![Chunk::default()],
            len: 0,
            chunk_bytes: 0,
            entries_max: 0,
            salt,
            flash_copies: None,
            shape: PhantomData,
        }
    }

    pub fn salt(&self) -> Salt {
        self.salt
    }

    /// The tag of an entry of this name.
    #[inline]
    pub fn tag(&self, name: &[u8]) -> u32 {
        self.salt.tag(name)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// The place of the entry with this tag for whose payload `is` returns true, or the place to insert it.
    #[inline]
    pub fn find(&self, tag: u32, mut is: impl FnMut(&[u8]) -> bool) -> Result<TaggedPosition, TaggedPosition> {
        let chunk = self.directory[self.share(tag)] as usize;
        let bytes = self.chunks[chunk].part.bytes();
        let mut at = 0;
        while at < bytes.len() {
            let other = tag_at(bytes, at);
            if other > tag {
                break;
            }
            let end = S::end(bytes, at + TAG_BYTES);
            if other == tag && is(&bytes[at + TAG_BYTES..end]) {
                return Ok(TaggedPosition { chunk, at });
            }
            at = end;
        }
        Err(TaggedPosition { chunk, at })
    }

    #[inline]
    pub fn payload(&self, place: TaggedPosition) -> &[u8] {
        let bytes = self.chunks[place.chunk].part.bytes();
        &bytes[place.at + TAG_BYTES..S::end(bytes, place.at + TAG_BYTES)]
    }

    /// The payload, to overwrite it with one of the same length.
    pub fn payload_mut(&mut self, place: TaggedPosition) -> &mut [u8] {
        let bytes = &mut self.chunks[place.chunk].part.edit(&self.flash_copies)[..];
        let end = S::end(bytes, place.at + TAG_BYTES);
        &mut bytes[place.at + TAG_BYTES..end]
    }

    /// Inserts an entry at the place that [`Tagged::find`] returned.
    pub fn insert(&mut self, place: TaggedPosition, tag: u32, payload: &[&[u8]]) {
        let chunk = &mut self.chunks[place.chunk];
        let bytes = chunk.part.edit(&self.flash_copies);
        self.chunk_bytes -= bytes.capacity();
        let len = TAG_BYTES + payload.iter().map(|part| part.len()).sum::<usize>();
        let (head, rest) = gap(bytes, place.at, len).split_at_mut(TAG_BYTES);
        head.copy_from_slice(&tag.to_le_bytes());
        write_all(rest, payload);
        self.chunk_bytes += bytes.capacity();
        let is_long = bytes.len() > CHUNK_BYTES_MAX;
        chunk.entries += 1;
        self.len += 1;
        self.entries_max = self.entries_max.max(chunk.entries);
        if is_long {
            self.halve(place.chunk);
        }
    }

    /// Replaces the payload of an entry.
    pub fn replace(&mut self, place: TaggedPosition, payload: &[&[u8]]) {
        let bytes = self.chunks[place.chunk].part.edit(&self.flash_copies);
        self.chunk_bytes -= bytes.capacity();
        let start = place.at + TAG_BYTES;
        let old = S::end(bytes, start) - start;
        let new = payload.iter().map(|part| part.len()).sum::<usize>();
        if new > old {
            gap(bytes, start, new - old);
        } else {
            bytes.drain(start..start + old - new);
        }
        write_all(&mut bytes[start..start + new], payload);
        shrink(bytes);
        self.chunk_bytes += bytes.capacity();
        if bytes.len() > CHUNK_BYTES_MAX {
            self.halve(place.chunk);
        }
    }

    pub fn remove(&mut self, place: TaggedPosition) {
        let chunk = &mut self.chunks[place.chunk];
        let bytes = chunk.part.edit(&self.flash_copies);
        self.chunk_bytes -= bytes.capacity();
        let end = S::end(bytes, place.at + TAG_BYTES);
        bytes.drain(place.at..end);
        shrink(bytes);
        self.chunk_bytes += bytes.capacity();
        let len = bytes.len();
        chunk.entries -= 1;
        self.len -= 1;
        if len <= JOINED_BYTES_MAX {
            self.join(place.chunk);
        }
    }

    /// All payloads, in the order of their tags.
    pub fn iter(&self) -> Iter<'_, S> {
        Iter { table: self, bytes: self.chunks[self.directory[0] as usize].part.bytes(), at: 0, share: 0 }
    }

    /// A uniformly random payload. `draw(n)` is a random number below n.
    pub fn random(&self, draw: impl FnMut(usize) -> usize) -> Option<&[u8]> {
        self.draw(draw).map(|drawn| self.drawn(drawn))
    }

    /// A uniformly random entry: draw a random chunk, and accept it with the probability of its entries ÷ the most
    /// entries of any chunk.
    pub fn draw(&self, mut draw: impl FnMut(usize) -> usize) -> Option<Drawn> {
        if self.len == 0 {
            return None;
        }
        loop {
            let chunk = draw(self.chunks.len());
            let nth = draw(self.entries_max as usize);
            if nth < self.chunks[chunk].entries as usize {
                return Some(Drawn { chunk, nth });
            }
        }
    }

    /// `count` random entries, each about equally likely: with repetition, or distinct ones if there are far more
    /// entries.
    pub fn sample(&self, count: usize, distinct: bool, mut draw: impl FnMut(usize) -> usize) -> Vec<Drawn> {
        let mut sample = Vec::new();
        let mut seen = HashSet::new();
        while sample.len() < count {
            let Some(drawn) = self.draw(&mut draw) else { break };
            if !distinct || seen.insert(drawn) {
                sample.push(drawn);
            }
        }
        sample
    }

    pub fn drawn(&self, Drawn { chunk, nth }: Drawn) -> &[u8] {
        let (bytes, mut at) = (self.chunks[chunk].part.bytes(), 0);
        for _ in 0..nth {
            at = S::end(bytes, at + TAG_BYTES);
        }
        &bytes[at + TAG_BYTES..S::end(bytes, at + TAG_BYTES)]
    }

    /// One step of a walk over all entries: visits at least `count` entries, from `cursor` on (0 is the start). An
    /// entry that exists during the whole walk is visited exactly once, whatever else changes.
    pub fn scan<'a>(&'a self, cursor: u64, count: usize, visit: &mut dyn FnMut(u32, &'a [u8])) -> Step {
        let Ok(from) = u32::try_from(cursor) else {
            return Step::End;
        };
        let (mut visited, mut last) = (0, None);
        let mut share = self.share(from);
        while let Some(&chunk) = self.directory.get(share) {
            let chunk = &self.chunks[chunk as usize];
            // Do not read the next chunk to find the cursor: that chunk may be on flash.
            if visited >= count.max(1) && chunk.entries > 0 {
                return Step::Next(u64::from(chunk.start));
            }
            let (bytes, mut at) = (chunk.part.bytes(), 0);
            while at < bytes.len() {
                let tag = tag_at(bytes, at);
                let end = S::end(bytes, at + TAG_BYTES);
                if tag >= from {
                    // Entries with the same tag belong to one step: a cursor cannot point between them.
                    if visited >= count.max(1) && last != Some(tag) {
                        return Step::Next(u64::from(tag));
                    }
                    visit(tag, &bytes[at + TAG_BYTES..end]);
                    visited += 1;
                    last = Some(tag);
                }
                at = end;
            }
            share = self.shares(chunk).end;
        }
        Step::End
    }

    /// Bytes of memory that the table holds besides itself.
    pub fn mem_bytes(&self) -> usize {
        self.chunk_bytes
            + malloc_bytes(self.directory.capacity() * size_of::<u32>())
            + malloc_bytes(self.chunks.capacity() * size_of::<Chunk>())
    }

    #[inline]
    fn share(&self, tag: u32) -> usize {
        (u64::from(tag) >> (32 - self.depth)) as usize
    }

    /// The chunk's range in the directory.
    fn shares(&self, chunk: &Chunk) -> Range<usize> {
        let first = self.share(chunk.start);
        first..first + (1 << (self.depth - chunk.depth))
    }

    /// Splits a chunk that is too long, and its halves if they still are.
    fn halve(&mut self, at: usize) {
        let mut waiting = vec![at];
        while let Some(at) = waiting.pop() {
            let chunk = &self.chunks[at];
            let bytes = chunk.part.bytes().len();
            let entries_min = if bytes > LARGE_CHUNK_BYTES { CHUNK_ENTRIES_MIN / 2 } else { CHUNK_ENTRIES_MIN };
            let bytes_max = if self.flash_copies.is_some() { PART_BYTES_MAX } else { CHUNK_BYTES_MAX };
            if bytes <= bytes_max || chunk.entries <= entries_min || chunk.depth == DEPTH_MAX {
                continue;
            }
            if chunk.depth == self.depth {
                self.directory = self.directory.iter().flat_map(|&chunk| [chunk, chunk]).collect();
                self.depth += 1;
            }
            let chunk = &mut self.chunks[at];
            chunk.depth += 1;
            let start = chunk.start | 1 << (32 - chunk.depth);
            let bytes = chunk.part.edit(&self.flash_copies);
            let (mut split, mut lower) = (0, 0);
            while split < bytes.len() && tag_at(bytes, split) < start {
                split = S::end(bytes, split + TAG_BYTES);
                lower += 1;
            }
            let upper = Chunk {
                part: Part::of(fitted(&bytes[split..])),
                entries: chunk.entries - lower,
                start,
                depth: chunk.depth,
            };
            self.chunk_bytes -= bytes.capacity();
            *bytes = fitted(&bytes[..split]);
            chunk.entries = lower;
            self.chunk_bytes += bytes.capacity() + upper.part.capacity();
            let shares = self.shares(&upper);
            let number = self.chunks.len();
            self.directory[shares].fill(number as u32);
            if number == self.chunks.capacity() {
                // Do not double the capacity: both copies exist while the vector grows.
                self.chunks.reserve_exact(number / 8 + 4);
            }
            self.chunks.push(upper);
            waiting.extend([at, number]);
        }
    }

    /// Merges a short chunk with its other half if that is short too and in memory. Then does the same with the result.
    fn join(&mut self, mut at: usize) {
        loop {
            let chunk = &self.chunks[at];
            if chunk.depth == 0 {
                return;
            }
            let bit = 1 << (32 - chunk.depth);
            let other_at = self.directory[self.share(chunk.start ^ bit)] as usize;
            let other = &self.chunks[other_at];
            if other.depth != chunk.depth
                || other.part.is_absent()
                || other.part.bytes().len() + chunk.part.bytes().len() > JOINED_BYTES_MAX
            {
                return;
            }
            let (lower_at, upper_at) = if chunk.start & bit == 0 { (at, other_at) } else { (other_at, at) };
            let upper = std::mem::take(&mut self.chunks[upper_at]);
            upper.part.forget_copy(&self.flash_copies);
            let lower = &mut self.chunks[lower_at];
            let bytes = lower.part.edit(&self.flash_copies);
            self.chunk_bytes -= bytes.capacity() + upper.part.capacity();
            let end = bytes.len();
            gap(bytes, end, upper.part.bytes().len()).copy_from_slice(upper.part.bytes());
            self.chunk_bytes += bytes.capacity();
            lower.entries += upper.entries;
            lower.depth -= 1;
            self.entries_max = self.entries_max.max(lower.entries);
            self.point_to(lower_at);
            // The last chunk takes the free number.
            let last = self.chunks.len() - 1;
            self.chunks.swap_remove(upper_at);
            at = lower_at;
            if upper_at != last {
                self.point_to(upper_at);
                if lower_at == last {
                    at = upper_at;
                }
            }
            // Checked only at powers of two, so that all checks together cost no more than the removed chunks.
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

/// The parts that an operation touches, named before it runs.
impl<S: Shape> Tagged<S> {
    /// Whether the entries with this tag are in memory.
    pub fn is_here(&self, tag: u32) -> bool {
        !self.chunks[self.directory[self.share(tag)] as usize].part.is_absent()
    }

    /// Records the part with the entries of this tag.
    pub fn want(&self, tag: u32, out: &mut Absent) {
        if self.flash_copies.is_some() {
            let chunk = &self.chunks[self.directory[self.share(tag)] as usize];
            chunk.part.want(chunk.start.into(), out);
        }
    }

    /// Records the parts for a step of a walk.
    pub fn want_scan(&self, cursor: u64, count: usize, out: &mut Absent) {
        let (Ok(from), true) = (u32::try_from(cursor), self.flash_copies.is_some()) else { return };
        let (mut share, mut entries) = (self.share(from), 0);
        while let Some(&chunk) = self.directory.get(share) {
            let chunk = &self.chunks[chunk as usize];
            // All entries of the first chunk may be before the cursor.
            if entries >= count.max(1) {
                return;
            }
            chunk.part.want(chunk.start.into(), out);
            if chunk.start >= from {
                entries += chunk.entries as usize;
            }
            share = self.shares(chunk).end;
        }
    }

    /// Records the part with an entry that was drawn.
    pub fn want_drawn(&self, drawn: Drawn, out: &mut Absent) {
        let chunk = &self.chunks[drawn.chunk];
        chunk.part.want(chunk.start.into(), out);
    }
}

/// The table in a skeleton: see `skeleton`.
impl<S: Shape> Tagged<S> {
    /// Saves the chunks in the order of memory. In the order of tags, each chunk would be a cache miss under the
    /// stripe's lock.
    pub fn save(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.salt.to_bytes());
        put_number(out, self.chunks.len() as u64);
        for chunk in &self.chunks {
            out.push(chunk.depth);
            put_number(out, u64::from(chunk.start) >> (32 - chunk.depth));
            put_number(out, chunk.entries.into());
            chunk.part.save(out);
        }
    }

    /// Loads a table. Its chunks must not overlap, and together they must cover all tags.
    pub fn load(input: &mut Input<'_>) -> Result<Tagged<S>, Corrupt> {
        const TAGS: u64 = 1 << 32;
        let mut table = Tagged::with_salt(Salt::from_bytes(input.array()?));
        let count = input.count(5)?;
        table.chunks = Vec::with_capacity(count);
        let mut covered = 0;
        for _ in 0..count {
            let depth = Some(input.byte()?).filter(|&depth| depth <= DEPTH_MAX).ok_or(Corrupt)?;
            let prefix = Some(input.number()?).filter(|&prefix| prefix < 1 << depth).ok_or(Corrupt)?;
            let (entries, part) = (input.short()?, Part::load(input)?);
            table.len += entries as usize;
            table.entries_max = table.entries_max.max(entries);
            table.chunk_bytes += part.capacity();
            table.depth = table.depth.max(depth);
            table.chunks.push(Chunk { part, entries, start: (prefix << (32 - depth)) as u32, depth });
            covered += TAGS >> depth;
        }
        if covered != TAGS {
            return Err(Corrupt);
        }
        const FREE: u32 = u32::MAX;
        table.directory = vec![FREE; 1 << table.depth];
        for at in 0..count {
            let shares = table.shares(&table.chunks[at]);
            if table.directory[shares.clone()].iter().any(|&chunk| chunk != FREE) {
                return Err(Corrupt);
            }
            table.directory[shares].fill(at as u32);
        }
        let is_sound = |chunk: &Chunk| chunk.part.is_absent() || table.accepts(chunk.start.into(), chunk.part.peek());
        if table.chunks.iter().all(is_sound) { Ok(table) } else { Err(Corrupt) }
    }
}

/// A walk over all entries, one chunk at a time, wherever the chunks are: see `walk`.
impl<S: Shape> Tagged<S> {
    /// For the chunk of `tag`: its place on flash if it is absent, and the first tag of the next chunk. `None`: `tag`
    /// is after the last chunk.
    pub fn stretch(&self, tag: u64) -> Option<(Option<AbsentPart>, u64)> {
        let chunk = self.chunk_of(u32::try_from(tag).ok()?);
        Some((chunk.part.absent(chunk.start.into()), u64::from(chunk.start) + (1 << (32 - chunk.depth))))
    }

    /// Visits the payloads of the chunk of `tag`, from that tag on. `bytes` are the bytes of an absent chunk.
    pub fn walk(&self, tag: u64, bytes: Option<&[u8]>, visit: &mut dyn FnMut(&[u8])) -> Result<(), Corrupt> {
        let Ok(tag) = u32::try_from(tag) else { return Ok(()) };
        let chunk = self.chunk_of(tag);
        let bytes = match bytes {
            Some(bytes) if !self.accepts(chunk.start.into(), bytes) => return Err(Corrupt),
            Some(bytes) => bytes,
            None => chunk.part.peek(),
        };
        let mut at = 0;
        while at < bytes.len() {
            let end = S::end(bytes, at + TAG_BYTES);
            if tag_at(bytes, at) >= tag {
                visit(&bytes[at + TAG_BYTES..end]);
            }
            at = end;
        }
        Ok(())
    }

    fn chunk_of(&self, tag: u32) -> &Chunk {
        &self.chunks[self.directory[self.share(tag)] as usize]
    }
}

impl<S: Shape> Parts for Tagged<S> {
    fn flash_copies(&self) -> &FlashCopiesOf {
        &self.flash_copies
    }

    fn set_flash_copies(&mut self, flash_copies: Arc<dyn FlashCopies>) {
        self.flash_copies = Some(flash_copies);
    }

    fn part(&self, number: u64) -> Option<&Part> {
        let chunk = &self.chunks[self.directory[self.share(u32::try_from(number).ok()?)] as usize];
        (u64::from(chunk.start) == number).then_some(&chunk.part)
    }

    fn part_mut(&mut self, number: u64) -> Option<&mut Part> {
        let at = self.directory[self.share(u32::try_from(number).ok()?)] as usize;
        let chunk = &mut self.chunks[at];
        (u64::from(chunk.start) == number).then_some(&mut chunk.part)
    }

    fn next_part(&self, from: u64) -> Option<u64> {
        let from = u32::try_from(from).ok()?;
        let chunk = &self.chunks[self.directory[self.share(from)] as usize];
        if chunk.start >= from {
            return Some(chunk.start.into());
        }
        let next = *self.directory.get(self.shares(chunk).end)?;
        Some(self.chunks[next as usize].start.into())
    }

    fn accepts(&self, number: u64, bytes: &[u8]) -> bool {
        let Some(chunk) = u32::try_from(number).ok().map(|tag| &self.chunks[self.directory[self.share(tag)] as usize])
        else {
            return false;
        };
        let (mut entries, mut at) = (0, 0);
        while at < bytes.len() {
            let Some(end) = bytes.get(at + TAG_BYTES..).and_then(|_| S::checked_end(bytes, at + TAG_BYTES)) else {
                return false;
            };
            let share = self.share(tag_at(bytes, at));
            if !self.shares(chunk).contains(&share) {
                return false;
            }
            (entries, at) = (entries + 1, end);
        }
        entries == chunk.entries
    }

    fn grown(&mut self, _: u64, by: isize) {
        self.chunk_bytes = self.chunk_bytes.wrapping_add_signed(by);
    }
}

impl<S> Drop for Tagged<S> {
    fn drop(&mut self) {
        if self.flash_copies.is_some() {
            self.chunks.iter().for_each(|chunk| chunk.part.forget_copy(&self.flash_copies));
        }
    }
}

impl<S> Clone for Tagged<S> {
    /// The copy is in memory and has nothing on flash.
    fn clone(&self) -> Tagged<S> {
        let chunks = self.chunks.clone();
        let chunk_bytes = chunks.iter().map(|chunk| chunk.part.capacity()).sum();
        let (directory, shape) = (self.directory.clone(), PhantomData);
        Tagged { directory, chunks, chunk_bytes, flash_copies: None, shape, ..*self }
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
            (self.bytes, self.at) = (self.table.chunks[next as usize].part.bytes(), 0);
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

/// Writes the concatenation of `parts`. It fills `room` exactly.
fn write_all(mut room: &mut [u8], parts: &[&[u8]]) {
    for part in parts {
        let (head, tail) = room.split_at_mut(part.len());
        head.copy_from_slice(part);
        room = tail;
    }
}

#[cfg(test)]
impl<S: Shape> Tagged<S> {
    /// The invariants of the table.
    pub fn check(&self) {
        assert_eq!(self.directory.len(), 1 << self.depth);
        let (mut len, mut held, mut at) = (0, 0, 0);
        while at < self.directory.len() {
            let number = self.directory[at];
            let chunk = &self.chunks[number as usize];
            assert!(chunk.depth <= self.depth);
            let shares = self.shares(chunk);
            assert_eq!(shares.start, at);
            assert!(self.directory[shares.clone()].iter().all(|&other| other == number));
            let (mut entries, mut last, mut place) = (0, 0, 0);
            let bytes = chunk.part.bytes();
            while place < bytes.len() {
                let tag = tag_at(bytes, place);
                assert!(tag >= last);
                assert!(shares.contains(&self.share(tag)));
                (entries, last, place) = (entries + 1, tag, S::end(bytes, place + TAG_BYTES));
            }
            assert_eq!(entries, chunk.entries);
            assert!(entries <= self.entries_max);
            (len, held, at) = (len + entries as usize, held + chunk.part.capacity(), shares.end);
        }
        assert_eq!((len, held), (self.len, self.chunk_bytes));
    }

    pub fn chunk_count(&self) -> usize {
        self.chunks.len()
    }
}
