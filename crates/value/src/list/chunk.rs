//! Owns one chunk of a list: a run of elements with room on both sides. The chunk is a part. Never knows its
//! neighbours.

use super::{Limit, run};
use crate::fit::fitted;
use crate::input::{Input, put_number};
use crate::part::{Absent, FlashCopiesOf, Numbered, Part};
use crate::{Buffer, Corrupt, malloc_bytes};
use std::ops::Range;

/// A run of elements with room on both sides.
pub struct Chunk {
    pub part: Part,
    /// Neighbours share a number if no number between them was free. Then the number identifies the first of them, and
    /// the others do not leave memory.
    pub number: u64,
    pub count: u32,
    /// The run starts here in the part's bytes. The bytes before it are room, and go to flash too.
    start: u32,
}

/// Less room than this is not worth giving back.
pub const ROOM_KEPT_BYTES: usize = 64;
/// A chunk that grows doubles its room, up to this: the largest size that a limit asks for.
const DOUBLED_BYTES_MAX: usize = 64 << 10;

impl Numbered for Chunk {
    fn number(&self) -> u64 {
        self.number
    }

    fn part(&self) -> &Part {
        &self.part
    }

    fn part_mut(&mut self) -> &mut Part {
        &mut self.part
    }

    fn accepts(&self, bytes: &[u8]) -> bool {
        bytes.get(self.start as usize..).is_some_and(|run| run::count(run) == Ok(self.count as usize))
    }
}

impl Chunk {
    pub fn of(run: &[u8], count: usize) -> Chunk {
        Chunk { part: Part::of(fitted(run)), number: 0, start: 0, count: count as u32 }
    }

    pub fn one(element: &[u8]) -> Chunk {
        let mut chunk = Chunk::of(&[], 0);
        chunk.open(&None).push_back(element);
        chunk
    }

    /// See `skeleton`. `before`: the number of the chunk before this one.
    pub fn save(&self, before: u64, out: &mut Vec<u8>) {
        for number in [self.number - before, self.count.into(), self.start.into()] {
            put_number(out, number);
        }
        self.part.save(out);
    }

    pub fn load(input: &mut Input<'_>, before: u64) -> Result<Chunk, Corrupt> {
        let number = input.number_after(before)?;
        let (count, start, part) = (input.short()?, input.short()?, Part::load(input)?);
        let chunk = Chunk { part, number, count, start };
        let is_sound = match chunk.part.is_absent() {
            true => (start as usize) < chunk.part.len(),
            false => chunk.accepts(chunk.part.peek()),
        };
        if is_sound && count > 0 { Ok(chunk) } else { Err(Corrupt) }
    }

    /// The elements. The chunk must be in memory.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.part.bytes()[self.start as usize..]
    }

    /// The elements, without counting as use. `bytes` are the bytes of an absent chunk.
    pub fn peek<'a>(&'a self, bytes: Option<&'a [u8]>) -> Result<&'a [u8], Corrupt> {
        match bytes {
            Some(bytes) if !self.accepts(bytes) => Err(Corrupt),
            Some(bytes) => Ok(&bytes[self.start as usize..]),
            None => Ok(&self.part.peek()[self.start as usize..]),
        }
    }

    /// The length of the bytes, wherever they are.
    #[inline]
    pub fn len(&self) -> usize {
        self.part.len() - self.start as usize
    }

    #[inline]
    pub fn allows(&self, limit: Limit, element: &[u8]) -> bool {
        limit.allows(self.len() + run::size(element.len()), self.count as usize + 1)
    }

    pub fn offset(&self, index: usize) -> usize {
        run::offset(self.bytes(), index, self.count as usize)
    }

    #[inline]
    pub fn open(&mut self, flash_copies: &FlashCopiesOf) -> Open<'_> {
        Open { bytes: self.part.edit(flash_copies), start: &mut self.start, count: &mut self.count }
    }

    #[inline]
    pub fn want(&self, out: &mut Absent) {
        self.part.want(self.number, out);
    }
}

/// A chunk in memory, during a change.
pub struct Open<'c> {
    bytes: &'c mut Vec<u8>,
    start: &'c mut u32,
    count: &'c mut u32,
}

impl Open<'_> {
    fn len(&self) -> usize {
        self.bytes.len() - *self.start as usize
    }

    fn offset(&self, index: usize) -> usize {
        run::offset(self.bytes(), index, *self.count as usize)
    }

    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    pub fn push_front(&mut self, element: &[u8]) {
        run::push_front(self, element);
        *self.count += 1;
    }

    pub fn push_back(&mut self, element: &[u8]) {
        run::push_back(self, element);
        *self.count += 1;
    }

    pub fn insert(&mut self, index: usize, element: &[u8]) {
        run::insert(self, self.offset(index), element);
        *self.count += 1;
    }

    pub fn append(&mut self, other: &Chunk) {
        let end = self.len();
        self.splice(end..end, &[other.bytes()]);
        *self.count += other.count;
    }

    pub fn remove(&mut self, elements: Range<usize>) {
        let count = elements.len();
        let bytes = self.offset(elements.start)..self.offset(elements.end);
        self.splice(bytes, &[]);
        *self.count -= count as u32;
    }

    pub fn remove_equal(&mut self, element: &[u8], max: usize, from_back: bool) -> usize {
        let removed = run::remove_equal(self, element, max, from_back);
        *self.count -= removed as u32;
        removed
    }

    /// Moves the elements from `index` on into a new chunk.
    pub fn split_off(&mut self, index: usize) -> Chunk {
        let at = self.offset(index);
        let tail = Chunk::of(&self.bytes()[at..], *self.count as usize - index);
        let end = self.len();
        self.splice(at..end, &[]);
        *self.count = index as u32;
        tail
    }

    /// Rebuilds the bytes with this much room before the elements.
    pub fn rebuild(&mut self, front: usize) {
        let mut bytes = Vec::with_capacity(malloc_bytes(front + self.len()));
        bytes.resize(front, 0);
        bytes.extend_from_slice(self.bytes());
        *self.bytes = bytes;
        *self.start = front as u32;
    }

    /// Resizes the bytes, room included. The capacity equals an allocator size class, as it is accounted.
    fn resize(&mut self, len: usize) {
        let had = self.bytes.capacity();
        if len > had {
            let wanted = malloc_bytes(len.max((2 * had).min(DOUBLED_BYTES_MAX)));
            self.bytes.reserve_exact(wanted - self.bytes.len());
        }
        self.bytes.resize(len, 0);
    }
}

impl Buffer for Open<'_> {
    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.bytes[*self.start as usize..]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[*self.start as usize..]
    }

    /// At the front, use the room before the run; elsewhere, move the bytes after `at`.
    fn splice(&mut self, at: Range<usize>, with: &[&[u8]]) {
        let added: usize = with.iter().map(|part| part.len()).sum();
        if at.start == 0 && at.end < self.len() {
            if added > at.len() + *self.start as usize {
                self.rebuild(added.max(self.len()));
            }
            *self.start = (*self.start as usize + at.len() - added) as u32;
        } else {
            let (from, to) = (*self.start as usize + at.start, *self.start as usize + at.end);
            let old = self.bytes.len();
            self.resize(old.max(old + added - at.len()));
            self.bytes.copy_within(to..old, from + added);
            self.bytes.truncate(old + added - at.len());
        }
        let mut to = *self.start as usize + at.start;
        for part in with {
            self.bytes[to..to + part.len()].copy_from_slice(part);
            to += part.len();
        }
        let room = self.bytes.capacity() - self.len();
        if room > ROOM_KEPT_BYTES && room > 3 * self.len() {
            self.rebuild(0);
        }
    }
}
