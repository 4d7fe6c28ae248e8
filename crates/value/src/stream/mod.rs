//! Owns the stream type: entries in the order of their ids, and consumer groups. Never knows keys, clocks or replies.
//!
//! Entries lie in chunks, listpacks of some KB as Redis makes them, in which entries with the same fields share their
//! names; a chunk is found by its first id. Trimming by `~` drops whole chunks, so their bounds are Redis's too.

mod chunk;
mod group;
mod id;

pub use chunk::Entry;
pub use group::{Consumer, Group, Name, Pending};
pub use id::Id;

use crate::{Corrupt, malloc_bytes, rdb};
use chunk::Chunk;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

/// How much goes into one chunk; 0 is no limit.
#[derive(Clone, Copy, Debug)]
pub struct ChunkLimits {
    pub bytes: usize,
    pub entries: usize,
}

/// The largest chunk, whatever the limits say, and the longest entry.
pub const CHUNK_BYTES_MAX: usize = 1 << 30;
/// What the map of chunks takes for each, its nodes being two thirds full.
const CHUNK_ENTRY_BYTES: usize = 64;
const GROUP_BYTES: usize = 200;

#[derive(Clone, Default)]
pub struct Stream {
    chunks: BTreeMap<Id, Chunk>,
    len: u64,
    /// Above every id there is or was, but for XSETID.
    pub last_id: Id,
    first_id: Id,
    /// The largest id that was deleted by itself.
    pub max_deleted_id: Id,
    /// Entries ever added.
    pub entries_added: u64,
    groups: BTreeMap<Box<[u8]>, Group>,
    chunk_bytes: usize,
    group_bytes: usize,
}

/// What XTRIM leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The newest so many.
    Len(u64),
    /// Those from an id on.
    From(Id),
}

#[derive(Clone, Copy, Debug)]
pub struct Trim {
    pub keep: Keep,
    /// Only chunks that go as a whole.
    pub whole_chunks: bool,
    /// Entries removed at most; 0 is no limit.
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

    /// The first entry's id; `0-0` when there is none.
    pub fn first_id(&self) -> Id {
        self.first_id
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

    /// Adds an entry, whose id is above all before it.
    pub fn append<'a>(
        &mut self,
        id: Id,
        pairs: impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])> + Clone,
        limits: ChunkLimits,
    ) {
        assert!(id > self.last_id, "ids only grow");
        let bytes = pairs.clone().map(|(field, value)| field.len() + value.len()).sum();
        let bytes_max = if limits.bytes == 0 { CHUNK_BYTES_MAX } else { limits.bytes.min(CHUNK_BYTES_MAX) };
        let has_room = match self.chunks.last_entry() {
            None => false,
            Some(mut last) => {
                let is_full = last.get().is_full(bytes, bytes_max, limits.entries);
                if is_full {
                    self.chunk_bytes -= last.get().mem_bytes();
                    last.get_mut().close();
                    self.chunk_bytes += last.get().mem_bytes();
                }
                !is_full
            }
        };
        if !has_room {
            let chunk = Chunk::new(pairs.clone().map(|(field, _)| field));
            self.chunk_bytes += chunk.mem_bytes() + CHUNK_ENTRY_BYTES;
            self.chunks.insert(id, chunk);
        }
        let mut last = self.chunks.last_entry().expect("one was just made");
        let base = *last.key();
        self.chunk_bytes -= last.get().mem_bytes();
        last.get_mut().append(base, id, pairs, bytes);
        self.chunk_bytes += last.get().mem_bytes();
        if self.len == 0 {
            self.first_id = id;
        }
        self.len += 1;
        self.entries_added += 1;
        self.last_id = id;
    }

    /// Visits the entries from `start` to `end`, both included, until `visit` says false.
    pub fn each<'a>(&'a self, start: Id, end: Id, order: Order, mut visit: impl FnMut(&Entry<'a>) -> bool) {
        if start > end {
            return;
        }
        // The chunk that `start` lies in begins before it.
        let from = self.chunks.range(..=start).next_back().map_or(start, |(&base, _)| base);
        let inside = |entry: &Entry<'_>| entry.id >= start && entry.id <= end;
        let chunks = self.chunks.range(from..=end);
        if order == Order::Ascending {
            for (&base, chunk) in chunks {
                for (_, entry) in chunk.entries(base) {
                    if entry.id > end || inside(&entry) && !visit(&entry) {
                        return;
                    }
                }
            }
            return;
        }
        for (&base, chunk) in chunks.rev() {
            // A chunk is walked from its front, as its entries differ in length.
            let entries: Vec<_> = chunk.entries(base).map(|(_, entry)| entry).filter(inside).collect();
            if !entries.iter().rev().all(&mut visit) {
                return;
            }
        }
    }

    /// The entry with that id.
    pub fn get(&self, id: Id) -> Option<Entry<'_>> {
        let (&base, chunk) = self.chunks.range(..=id).next_back()?;
        chunk.entries(base).map(|(_, entry)| entry).find(|entry| entry.id == id)
    }

    /// Deletes one entry; true if it was there.
    pub fn remove(&mut self, id: Id) -> bool {
        let Some((&base, chunk)) = self.chunks.range_mut(..=id).next_back() else { return false };
        let Some(at) = chunk.entries(base).find(|(_, entry)| entry.id == id).map(|(at, _)| at) else { return false };
        self.chunk_bytes -= chunk.mem_bytes();
        chunk.delete(at);
        let (is_empty, bytes) = (chunk.live() == 0, chunk.mem_bytes());
        if is_empty {
            self.chunks.remove(&base);
            self.chunk_bytes -= CHUNK_ENTRY_BYTES;
        } else {
            self.chunk_bytes += bytes;
        }
        self.len -= 1;
        self.max_deleted_id = self.max_deleted_id.max(id);
        if id == self.first_id {
            self.find_first();
        }
        true
    }

    /// Drops entries from the front; says how many.
    pub fn trim(&mut self, trim: &Trim) -> u64 {
        let mut removed = 0;
        loop {
            let is_enough = matches!(trim.keep, Keep::Len(len) if self.len <= len);
            let Some(first) = self.chunks.first_entry().filter(|_| !is_enough) else { break };
            let live = first.get().live();
            if trim.limit > 0 && removed + live > trim.limit {
                break;
            }
            let whole = match trim.keep {
                Keep::Len(len) => self.len - live >= len,
                Keep::From(id) => first.get().last_id(*first.key()) < id,
            };
            if whole {
                self.chunk_bytes -= first.get().mem_bytes() + CHUNK_ENTRY_BYTES;
                first.remove();
                self.len -= live;
                removed += live;
                continue;
            }
            if !trim.whole_chunks {
                removed += self.trim_first_chunk(trim.keep);
            }
            break;
        }
        if removed > 0 {
            self.find_first();
        }
        removed
    }

    fn trim_first_chunk(&mut self, keep: Keep) -> u64 {
        let Some(mut first) = self.chunks.first_entry() else { return 0 };
        let base = *first.key();
        let surplus = match keep {
            Keep::Len(len) => self.len.saturating_sub(len),
            Keep::From(_) => u64::MAX,
        };
        let goes = |entry: &Entry<'_>| !matches!(keep, Keep::From(id) if entry.id >= id);
        let count = first.get().entries(base).take_while(|(_, entry)| goes(entry)).count() as u64;
        let count = count.min(surplus);
        let chunk = first.get_mut();
        self.chunk_bytes -= chunk.mem_bytes();
        for _ in 0..count {
            // Marking one may move those behind it.
            let Some((at, _)) = chunk.entries(base).next() else { break };
            chunk.delete(at);
        }
        let (is_empty, bytes) = (chunk.live() == 0, chunk.mem_bytes());
        if is_empty {
            first.remove();
            self.chunk_bytes -= CHUNK_ENTRY_BYTES;
        } else {
            self.chunk_bytes += bytes;
        }
        self.len -= count;
        count
    }

    fn find_first(&mut self) {
        let mut first = Id::MIN;
        self.each(Id::MIN, Id::MAX, Order::Ascending, |entry| {
            first = entry.id;
            false
        });
        self.first_id = first;
    }

    /// Whether an entry from `start` on has been deleted by itself, so that counting ids says nothing.
    pub fn has_gaps_from(&self, start: Id) -> bool {
        self.len > 0 && self.max_deleted_id != Id::MIN && start <= self.max_deleted_id
    }

    /// How many entries there have been up to an id, where that can be told.
    pub fn entries_until(&self, id: Id) -> Option<u64> {
        if self.entries_added == 0 {
            return Some(0);
        }
        if self.len == 0 && id <= self.last_id {
            return Some(self.entries_added);
        }
        match id.cmp(&self.last_id) {
            std::cmp::Ordering::Equal => return Some(self.entries_added),
            std::cmp::Ordering::Greater => return None,
            std::cmp::Ordering::Less => {}
        }
        if self.max_deleted_id == Id::MIN || self.max_deleted_id < self.first_id {
            let before = self.entries_added.saturating_sub(self.len);
            match id.cmp(&self.first_id) {
                std::cmp::Ordering::Less => return Some(before),
                std::cmp::Ordering::Equal => return Some(before + 1),
                std::cmp::Ordering::Greater => {}
            }
        }
        None
    }

    /// How many entries a group has still to read, where that can be told.
    pub fn lag(&self, group: &Group) -> Option<i64> {
        if self.entries_added == 0 {
            return Some(0);
        }
        let read = group.entries_read.filter(|_| !self.has_gaps_from(group.last_id));
        let read = read.or_else(|| self.entries_until(group.last_id))?;
        Some((self.entries_added as i64).wrapping_sub(read as i64))
    }

    /// A group, which may be none of its own yet, is given an entry beyond its last one.
    pub fn read_by(&self, group: &mut Group, id: Id) {
        match group.entries_read {
            // Counting holds as long as no entry is missing from here on.
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

    /// A group for changing; memory is accounted for when the borrow ends.
    pub fn group_mut(&mut self, name: &[u8]) -> Option<GroupMut<'_>> {
        let group = self.groups.get_mut(name)?;
        Some(GroupMut { before: group.mem_bytes(), group, total: &mut self.group_bytes })
    }

    /// A group for changing, and the entries beside it.
    pub fn with_group<T>(&mut self, name: &[u8], change: impl FnOnce(&Stream, &mut Group) -> T) -> Option<T> {
        let (name, mut group) = self.groups.remove_entry(name)?;
        self.group_bytes -= group.mem_bytes();
        let result = change(self, &mut group);
        self.group_bytes += group.mem_bytes();
        self.groups.insert(name, group);
        Some(result)
    }

    /// False if there is a group of that name.
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

    /// Bytes of memory it holds besides itself.
    pub fn mem_bytes(&self) -> usize {
        self.chunk_bytes + malloc_bytes(self.group_bytes)
    }

    /// The chunks as they are, for a dump.
    pub(crate) fn raw_chunks(&self) -> impl ExactSizeIterator<Item = (Id, &[u8])> {
        self.chunks.iter().map(|(&base, chunk)| (base, chunk.bytes()))
    }

    /// A chunk from a dump; chunks come in order, and `last_id` is known.
    pub(crate) fn push_chunk(&mut self, base: Id, list: Vec<u8>) -> Result<(), Corrupt> {
        let chunk = Chunk::from_bytes(list, base)?;
        let follows = self.chunks.last_key_value().is_none_or(|(&other, last)| last.last_id(other) < base);
        if !follows {
            return Err(Corrupt);
        }
        self.len += chunk.live();
        self.chunk_bytes += chunk.mem_bytes() + CHUNK_ENTRY_BYTES;
        self.chunks.insert(base, chunk);
        Ok(())
    }

    /// After the last chunk of a dump: what follows from the chunks.
    pub(crate) fn settle(&mut self) -> Result<(), Corrupt> {
        self.find_first();
        let last = self.chunks.last_key_value().map(|(&base, chunk)| chunk.last_id(base));
        if last.is_some_and(|last| last > self.last_id) { Err(Corrupt) } else { Ok(()) }
    }

    /// Appends its form for flash, which is that of a dump.
    pub fn encode(&self, out: &mut Vec<u8>) {
        rdb::stream::write(self, out);
    }

    pub fn decode(bytes: &[u8]) -> Result<Stream, Corrupt> {
        let mut reader = rdb::Reader::new(bytes);
        let stream = rdb::stream::read(&mut reader, rdb::stream::Version::V3)?;
        if reader.is_empty() { Ok(stream) } else { Err(Corrupt) }
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
