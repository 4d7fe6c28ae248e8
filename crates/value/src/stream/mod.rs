//! Owns the stream type: entries in the order of their ids, and consumer groups. Never knows keys, clocks or replies.
//!
//! Entries lie in chunks: listpacks of some KB, as in Redis, in which entries with the same fields share the field
//! names. A chunk is found by its first id. Trimming with `~` drops whole chunks, so the chunks' bounds are Redis's
//! too.
//!
//! A chunk is a part (see `part`). A chunk must be in memory to be read or changed, but not to be dropped whole. The
//! groups, and the table of the chunks with their bounds and counts (some 100 bytes for 100 entries), are always in
//! memory.

mod chunk;
mod group;
mod id;

pub use chunk::Entry;
pub use group::{Consumer, Group, Name, Pending};
pub use id::Id;

use crate::input::{Input, put_number};
use crate::part::{Absent, AbsentPart, FlashCopiesOf, InChunks};
use crate::{Corrupt, malloc_bytes, rdb};
use chunk::Chunk;
use std::collections::{BTreeMap, VecDeque};
use std::ops::{Deref, DerefMut, Range};

/// The limits of one chunk; 0 is no limit.
#[derive(Clone, Copy, Debug)]
pub struct ChunkLimits {
    pub bytes: usize,
    pub entries: usize,
}

/// The largest chunk, whatever the limits say, and the largest entry.
pub const CHUNK_BYTES_MAX: usize = 1 << 30;
const GROUP_BYTES: usize = 200;

#[derive(Default)]
pub struct Stream {
    chunks: VecDeque<Chunk>,
    /// The number of the next chunk.
    next_number: u64,
    len: u64,
    /// At least as large as the id of every entry there ever was, except after XSETID.
    pub last_id: Id,
    /// The largest id that was deleted individually.
    pub max_deleted_id: Id,
    /// The number of entries ever added.
    pub entries_added: u64,
    groups: BTreeMap<Box<[u8]>, Group>,
    /// Memory of the chunks' bytes.
    chunk_bytes: usize,
    group_bytes: usize,
    flash_copies: FlashCopiesOf,
}

/// What a trim keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The newest entries, this many.
    Len(u64),
    /// The entries from an id on.
    From(Id),
}

#[derive(Clone, Copy, Debug)]
pub struct Trim {
    pub keep: Keep,
    /// Remove only whole chunks.
    pub whole_chunks: bool,
    /// Remove at most this many entries; 0 is no limit.
    pub limit: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Ascending,
    Descending,
}

impl Stream {
    pub fn new() -> Stream {
        Stream::default()
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// The first entry's id; `0-0`: there is none.
    pub fn first_id(&self) -> Id {
        self.chunks.iter().find(|chunk| chunk.live() > 0).map_or(Id::MIN, |chunk| chunk.summary.first)
    }

    /// The last entry's id.
    pub fn last_entry_id(&self) -> Option<Id> {
        let mut last = None;
        self.each(Id::MIN, Id::MAX, Order::Descending, |entry| {
            last = Some(entry.id);
            false
        });
        last
    }

    /// Adds an entry. Its id must be larger than all before it.
    pub fn append<'a>(
        &mut self,
        id: Id,
        pairs: impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])> + Clone,
        limits: ChunkLimits,
    ) {
        assert!(id > self.last_id, "ids only grow");
        let bytes = pairs.clone().map(|(field, value)| field.len() + value.len()).sum();
        if !self.last_takes(bytes, limits) {
            if let Some(last) = self.chunks.len().checked_sub(1) {
                self.edit(last, |chunk, flash_copies| chunk.close(flash_copies));
            }
            self.push(Chunk::new(id, pairs.clone().map(|(field, _)| field)));
        }
        self.edit(self.chunks.len() - 1, |chunk, flash_copies| chunk.append(flash_copies, id, pairs, bytes));
        self.len += 1;
        self.entries_added += 1;
        self.last_id = id;
    }

    /// For the first chunk whose number is at least this: its place on flash if it is absent, and the number after its
    /// own. `None`: no such chunk. See `walk`.
    pub(crate) fn stretch(&self, number: u64) -> Option<(Option<AbsentPart>, u64)> {
        let chunk = self.chunk_from(number)?;
        Some((chunk.part.absent(chunk.number), chunk.number + 1))
    }

    /// Visits the entries of that chunk. `bytes` are the bytes of an absent chunk.
    pub(crate) fn walk(
        &self,
        number: u64,
        bytes: Option<&[u8]>,
        visit: &mut dyn FnMut(&Entry<'_>),
    ) -> Result<(), Corrupt> {
        let Some(chunk) = self.chunk_from(number) else { return Ok(()) };
        chunk.peek(bytes)?.for_each(|entry| visit(&entry));
        Ok(())
    }

    /// The chunk that a walk's stretch visits, as a dump has it: its first id and its listpack. `bytes` are the bytes of its
    /// part, if that part is absent. `None`: the stretch visits no chunk.
    pub fn raw_chunk<'a>(&'a self, number: u64, bytes: Option<&'a [u8]>) -> Result<Option<(Id, &'a [u8])>, Corrupt> {
        let Some(chunk) = self.chunk_from(number) else { return Ok(None) };
        Ok(Some((chunk.base, chunk.peek_bytes(bytes)?)))
    }

    fn chunk_from(&self, number: u64) -> Option<&Chunk> {
        self.chunks.get(self.chunks.partition_point(|chunk| chunk.number < number))
    }

    /// Visits the entries from `start` to `end`, both included, until `visit` returns false.
    pub fn each<'a>(&'a self, start: Id, end: Id, order: Order, mut visit: impl FnMut(&Entry<'a>) -> bool) {
        let inside = |entry: &Entry<'_>| entry.id >= start && entry.id <= end;
        let mut chunks = self.chunks.range(self.between(start, end));
        match order {
            Order::Ascending => _ = chunks.all(|chunk| chunk.entries().filter(inside).all(|entry| visit(&entry))),
            // Walk a chunk from its front, because entries differ in length.
            Order::Descending => {
                _ = chunks.rev().all(|chunk| {
                    let entries: Vec<_> = chunk.entries().filter(inside).collect();
                    entries.iter().rev().all(&mut visit)
                })
            }
        }
    }

    /// The entry with that id.
    pub fn get(&self, id: Id) -> Option<Entry<'_>> {
        self.chunks[self.holder(id)?].entries().find(|entry| entry.id == id)
    }

    /// Deletes one entry. True: it was there.
    pub fn remove(&mut self, id: Id) -> bool {
        let Some(at) = self.holder(id).filter(|_| self.get(id).is_some()) else { return false };
        self.delete(at, id, 1);
        self.max_deleted_id = self.max_deleted_id.max(id);
        true
    }

    /// Drops entries from the front. Returns how many.
    pub fn trim(&mut self, trim: &Trim) -> u64 {
        let before = self.len;
        let (whole, is_cut) = self.plan(trim, 0);
        for _ in 0..whole {
            self.len -= self.cut(0).live();
        }
        if is_cut {
            let count = match trim.keep {
                Keep::Len(len) => self.len - len,
                Keep::From(id) => self.chunks[0].entries().take_while(|entry| entry.id < id).count() as u64,
            };
            self.delete(0, Id::MIN, count);
        }
        before - self.len
    }

    /// Whether a trim would drop anything.
    pub fn has_surplus(&self, trim: &Trim) -> bool {
        let (whole, is_cut) = self.plan(trim, 0);
        whole > 0 || is_cut
    }

    /// How many whole chunks a trim drops after `more` entries were added at the end, and whether it also cuts through
    /// the chunk after them.
    fn plan(&self, trim: &Trim, more: u64) -> (usize, bool) {
        let (mut len, mut removed) = (self.len + more, 0);
        for (at, chunk) in self.chunks.iter().enumerate() {
            let live = chunk.live();
            let is_enough = matches!(trim.keep, Keep::Len(keep) if len <= keep);
            if is_enough || trim.limit > 0 && removed + live > trim.limit {
                return (at, false);
            }
            let (is_whole, is_cut) = match trim.keep {
                Keep::Len(keep) => (len - live >= keep, true),
                Keep::From(id) => (chunk.summary.last < id, chunk.summary.first < id),
            };
            if !is_whole {
                return (at, is_cut && !trim.whole_chunks);
            }
            len -= live;
            removed += live;
        }
        (self.chunks.len(), false)
    }

    /// Whether an entry of this size fits into the last chunk.
    fn last_takes(&self, bytes: usize, limits: ChunkLimits) -> bool {
        let bytes_max = if limits.bytes == 0 { CHUNK_BYTES_MAX } else { limits.bytes.min(CHUNK_BYTES_MAX) };
        self.chunks.back().is_some_and(|chunk| !chunk.is_full(bytes, bytes_max, limits.entries))
    }

    /// The chunks that may hold entries from `start` to `end`.
    fn between(&self, start: Id, end: Id) -> Range<usize> {
        let from = self.chunks.partition_point(|chunk| chunk.summary.last < start);
        let to = self.chunks.partition_point(|chunk| chunk.base <= end);
        if start <= end { from..to.max(from) } else { from..from }
    }

    /// The chunk that would hold this entry, if there is one.
    fn holder(&self, id: Id) -> Option<usize> {
        let at = self.chunks.partition_point(|chunk| chunk.summary.last < id);
        let summary = &self.chunks.get(at)?.summary;
        (summary.live > 0 && summary.first <= id).then_some(at)
    }

    /// Deletes the first `count` entries of a chunk from this id on.
    fn delete(&mut self, at: usize, from: Id, count: u64) {
        self.len -= self.edit(at, |chunk, flash_copies| chunk.delete(flash_copies, from, count));
        if self.chunks[at].live() == 0 {
            self.cut(at);
        }
    }

    /// Changes one chunk, and updates the sum of their sizes.
    #[inline]
    fn edit<R>(&mut self, at: usize, change: impl FnOnce(&mut Chunk, &FlashCopiesOf) -> R) -> R {
        let chunk = &mut self.chunks[at];
        self.chunk_bytes -= chunk.part.capacity();
        let result = change(chunk, &self.flash_copies);
        self.chunk_bytes += chunk.part.capacity();
        result
    }

    fn push(&mut self, mut chunk: Chunk) {
        chunk.number = self.next_number;
        self.next_number += 1;
        self.chunk_bytes += chunk.part.capacity();
        // Do not double the capacity: a long stream has many chunks.
        if self.chunks.len() == self.chunks.capacity() {
            self.chunks.reserve_exact(self.chunks.len() / 8 + 1);
        }
        self.chunks.push_back(chunk);
    }

    /// Removes a chunk from the table. In the middle, this moves the chunk table: 5 MB for a stream of ten million
    /// entries, once for every 100 deleted entries.
    fn cut(&mut self, at: usize) -> Chunk {
        let chunk = self.chunks.remove(at).expect("a chunk's place");
        chunk.part.forget_copy(&self.flash_copies);
        self.chunk_bytes -= chunk.part.capacity();
        if self.chunks.capacity() > 2 * self.chunks.len() {
            self.chunks.shrink_to(self.chunks.len() + self.chunks.len() / 8);
        }
        chunk
    }

    /// Whether an entry from `start` on was deleted individually. Then ids cannot be counted.
    pub fn has_gaps_from(&self, start: Id) -> bool {
        self.len > 0 && self.max_deleted_id != Id::MIN && start <= self.max_deleted_id
    }

    /// How many entries there have been up to an id, if that is known.
    pub fn entries_until(&self, id: Id) -> Option<u64> {
        let Stream { len: entries, entries_added, last_id, max_deleted_id, .. } = *self;
        Counts { entries, entries_added, first_id: self.first_id(), last_id, max_deleted_id }.until(id)
    }

    /// How many entries a group has still to read, if that is known.
    pub fn lag(&self, group: &Group) -> Option<i64> {
        if self.entries_added == 0 {
            return Some(0);
        }
        let read = group.entries_read.filter(|_| !self.has_gaps_from(group.last_id));
        let read = read.or_else(|| self.entries_until(group.last_id))?;
        Some((self.entries_added as i64).wrapping_sub(read as i64))
    }

    /// Notes that a group receives the entry after its last one. The group may be a copy.
    pub fn read_by(&self, group: &mut Group, id: Id) {
        match group.entries_read {
            // The count is valid as long as no entry is missing from here on.
            Some(read) if !self.has_gaps_from(id) => group.entries_read = Some(read.wrapping_add(1)),
            _ if self.entries_added > 0 => group.entries_read = self.entries_until(id),
            _ => {}
        }
        group.last_id = id;
    }

    pub fn groups(&self) -> impl ExactSizeIterator<Item = (&[u8], &Group)> {
        self.groups.iter().map(|(name, group)| (&**name, group))
    }

    pub fn group(&self, name: &[u8]) -> Option<&Group> {
        self.groups.get(name)
    }

    /// A group for a change. Memory is accounted for when the borrow ends.
    pub fn group_mut(&mut self, name: &[u8]) -> Option<GroupMut<'_>> {
        let group = self.groups.get_mut(name)?;
        Some(GroupMut { before: group.mem_bytes(), group, total: &mut self.group_bytes })
    }

    /// A group for a change, together with the entries.
    pub fn with_group<T>(&mut self, name: &[u8], change: impl FnOnce(&Stream, &mut Group) -> T) -> Option<T> {
        let (name, mut group) = self.groups.remove_entry(name)?;
        self.group_bytes -= group.mem_bytes();
        let result = change(self, &mut group);
        self.group_bytes += group.mem_bytes();
        self.groups.insert(name, group);
        Some(result)
    }

    /// Creates a group. False: a group with that name exists.
    pub fn create_group(&mut self, name: &[u8], group: Group) -> bool {
        if self.groups.contains_key(name) {
            return false;
        }
        self.group_bytes += GROUP_BYTES + name.len() + group.mem_bytes();
        self.groups.insert(name.into(), group);
        true
    }

    pub fn remove_group(&mut self, name: &[u8]) -> bool {
        let Some(group) = self.groups.remove(name) else { return false };
        self.group_bytes -= GROUP_BYTES + name.len() + group.mem_bytes();
        true
    }

    /// Bytes of memory that the stream holds besides itself.
    pub fn mem_bytes(&self) -> usize {
        self.chunk_bytes + malloc_bytes(self.chunks.capacity() * size_of::<Chunk>()) + malloc_bytes(self.group_bytes)
    }

    /// The chunks as they are, for a dump.
    pub(crate) fn raw_chunks(&self) -> impl ExactSizeIterator<Item = (Id, &[u8])> {
        self.chunks.iter().map(|chunk| (chunk.base, chunk.bytes()))
    }

    /// Adds a chunk of a dump. Chunks come in order. True: the chunk's own counts of entries were wrong, and were
    /// corrected.
    pub(crate) fn push_chunk(&mut self, base: Id, list: Vec<u8>) -> Result<bool, Corrupt> {
        let (chunk, is_corrected) = Chunk::from_bytes(base, list)?;
        if self.chunks.back().is_some_and(|last| last.summary.last >= base) {
            return Err(Corrupt);
        }
        // A chunk without entries is left out.
        if chunk.live() > 0 {
            self.len += chunk.live();
            self.push(chunk);
        }
        Ok(is_corrected)
    }

    /// Ends a part of a dump that has only chunks. `base`: the base id of the last chunk, which may have been left out
    /// because it has no entries.
    pub(crate) fn end_with_chunks(&mut self, base: Id) {
        self.last_id = self.chunks.back().map_or(base, |chunk| chunk.summary.last);
        self.entries_added = self.len;
    }

    /// Whether a part of a dump can follow: its chunks must be behind those that this stream has.
    pub fn takes(&self, part: &Stream) -> bool {
        let Some(last) = self.chunks.back().map(|chunk| chunk.summary.last) else { return true };
        last <= part.last_id && part.chunks.front().is_none_or(|chunk| last < chunk.base)
    }

    /// Adds the next part of a dump: chunks, groups, and consumers and pending entries of groups. The fields of the
    /// whole stream are taken from the part.
    pub fn merge(&mut self, mut part: Stream) {
        assert!(self.takes(&part), "whoever merges has asked");
        (self.last_id, self.max_deleted_id, self.entries_added) =
            (part.last_id, part.max_deleted_id, part.entries_added);
        for chunk in std::mem::take(&mut part.chunks) {
            self.len += chunk.live();
            self.push(chunk);
        }
        for (name, of_part) in std::mem::take(&mut part.groups) {
            if let Some(mut group) = self.group_mut(&name) {
                group.merge(&of_part);
                continue;
            }
            self.create_group(&name, of_part);
        }
    }

    /// After the last chunk of a dump: checks that the last id is not too small.
    pub(crate) fn check_last_id(&mut self) -> Result<(), Corrupt> {
        let is_below = self.chunks.back().is_some_and(|chunk| chunk.summary.last > self.last_id);
        if is_below { Err(Corrupt) } else { Ok(()) }
    }

    /// See `skeleton`.
    pub(crate) fn save(&self, out: &mut Vec<u8>) {
        put_number(out, self.chunks.len() as u64);
        let mut before = 0;
        for chunk in &self.chunks {
            chunk.save(before, out);
            before = chunk.number;
        }
        put_number(out, self.next_number);
        rdb::stream::write_after_chunks(self, rdb::stream::Version::V3, out);
    }

    pub(crate) fn load(input: &mut Input<'_>) -> Result<Stream, Corrupt> {
        let (mut stream, mut before) = (Stream::new(), 0);
        for _ in 0..input.count(53)? {
            let chunk = Chunk::load(input, before)?;
            let follows = |last: &Chunk| last.summary.last < chunk.base && last.number < chunk.number;
            if !stream.chunks.back().is_none_or(follows) {
                return Err(Corrupt);
            }
            before = chunk.number;
            stream.len += chunk.live();
            stream.chunk_bytes += chunk.part.capacity();
            stream.chunks.push_back(chunk);
        }
        stream.next_number = input.number()?;
        if stream.chunks.back().is_some_and(|last| last.number >= stream.next_number) {
            return Err(Corrupt);
        }
        let mut reader = rdb::Reader::new(input.rest());
        let told = rdb::stream::read_after_chunks(&mut stream, &mut reader, rdb::stream::Version::V3)?;
        if reader.is_empty() && told == stream.len { Ok(stream) } else { Err(Corrupt) }
    }

    /// Appends the stream's form for flash, which is that of a dump.
    pub fn encode(&self, out: &mut Vec<u8>) {
        rdb::stream::write(self, rdb::stream::Version::V3, out);
    }

    pub fn decode(bytes: &[u8]) -> Result<Stream, Corrupt> {
        let mut reader = rdb::Reader::new(bytes);
        match rdb::stream::read(&mut reader, rdb::stream::Version::V3)? {
            rdb::Decoded::Stream(stream, None) if reader.is_empty() => Ok(*stream),
            _ => Err(Corrupt),
        }
    }
}

/// The parts that an operation touches, named before it runs.
impl Stream {
    /// Records the parts for adding an entry of this size, and for a trim after it.
    pub fn want_append(&self, bytes: usize, limits: ChunkLimits, trim: Option<&Trim>, out: &mut Absent) {
        if let Some(last) = self.chunks.back().filter(|_| self.last_takes(bytes, limits)) {
            last.want(out);
        }
        if let Some(trim) = trim {
            self.want_cut(self.plan(trim, 1), out);
        }
    }

    pub fn want_trim(&self, trim: &Trim, out: &mut Absent) {
        self.want_cut(self.plan(trim, 0), out);
    }

    fn want_cut(&self, (whole, is_cut): (usize, bool), out: &mut Absent) {
        if let Some(chunk) = self.chunks.get(whole).filter(|_| is_cut) {
            chunk.want(out);
        }
    }

    /// Records the part for one entry.
    pub fn want_id(&self, id: Id, out: &mut Absent) {
        if let Some(at) = self.holder(id) {
            self.chunks[at].want(out);
        }
    }

    /// Records the parts for the first `count` entries from `start` to `end`, in that order; 0 is no limit.
    pub fn want(&self, start: Id, end: Id, order: Order, count: u64, out: &mut Absent) {
        if self.flash_copies.is_none() {
            return;
        }
        let mut found = 0;
        let mut is_short = |chunk: &Chunk| {
            chunk.want(out);
            let is_inside = chunk.base >= start && chunk.summary.last <= end;
            // How many entries of an absent chunk count is known only after it was read. Then this function is called
            // again.
            found += match is_inside || chunk.part.is_absent() {
                true => chunk.live(),
                false => chunk.entries().filter(|entry| entry.id >= start && entry.id <= end).count() as u64,
            };
            count == 0 || found < count
        };
        let mut chunks = self.chunks.range(self.between(start, end));
        match order {
            Order::Ascending => _ = chunks.all(&mut is_short),
            Order::Descending => _ = chunks.rev().all(&mut is_short),
        }
    }
}

impl InChunks for Stream {
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

impl Drop for Stream {
    fn drop(&mut self) {
        if self.flash_copies.is_some() {
            self.chunks.iter().for_each(|chunk| chunk.part.forget_copy(&self.flash_copies));
        }
    }
}

impl Clone for Stream {
    /// The copy is in memory and has nothing on flash.
    fn clone(&self) -> Stream {
        let chunks = self.chunks.clone();
        let chunk_bytes = chunks.iter().map(|chunk| chunk.part.capacity()).sum();
        Stream { chunks, chunk_bytes, groups: self.groups.clone(), flash_copies: None, ..*self }
    }
}

/// The numbers from which the number of entries that a stream has had is computed.
pub(crate) struct Counts {
    pub entries: u64,
    pub entries_added: u64,
    pub first_id: Id,
    pub last_id: Id,
    pub max_deleted_id: Id,
}

impl Counts {
    /// The number of entries up to an id, if that is known.
    pub fn until(&self, id: Id) -> Option<u64> {
        if self.entries_added == 0 {
            return Some(0);
        }
        if self.entries == 0 && id <= self.last_id {
            return Some(self.entries_added);
        }
        match id.cmp(&self.last_id) {
            std::cmp::Ordering::Equal => return Some(self.entries_added),
            std::cmp::Ordering::Greater => return None,
            std::cmp::Ordering::Less => {}
        }
        if self.max_deleted_id == Id::MIN || self.max_deleted_id < self.first_id {
            let before = self.entries_added.saturating_sub(self.entries);
            match id.cmp(&self.first_id) {
                std::cmp::Ordering::Less => return Some(before),
                std::cmp::Ordering::Equal => return Some(before + 1),
                std::cmp::Ordering::Greater => {}
            }
        }
        None
    }
}

/// See [`Stream::group_mut`].
pub struct GroupMut<'a> {
    group: &'a mut Group,
    before: usize,
    total: &'a mut usize,
}

impl Deref for GroupMut<'_> {
    type Target = Group;
    fn deref(&self) -> &Group {
        self.group
    }
}

impl DerefMut for GroupMut<'_> {
    fn deref_mut(&mut self) -> &mut Group {
        self.group
    }
}

impl Drop for GroupMut<'_> {
    fn drop(&mut self) {
        *self.total = *self.total + self.group.mem_bytes() - self.before;
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("len", &self.len).field("last_id", &self.last_id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
