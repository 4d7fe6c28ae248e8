//! Owns a run of a stream's entries in one listpack, in Redis's layout, and a summary of it while it is on flash. The
//! chunk is a part (see `part`). Never knows its neighbours.
//!
//! ```text
//! live       entries that are there
//! deleted    entries that are marked as deleted
//! fields     how many fields the first entry has
//! field …    their names
//! 0
//! entry
//!   flags    1: deleted; 2: it has the first entry's fields
//!   ms, seq  its id, as a difference to the chunk's
//!   fields, (field value) …       or, with flag 2, value …
//!   count    elements of this entry before this one
//! ```

use super::Id;
use crate::input::{Input, put_number};
use crate::listpack::{self, Element};
use crate::part::{Absent, FlashCopiesOf, Numbered, Part};
use crate::{Corrupt, malloc_bytes};

const DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;
/// A chunk that is still being filled doubles, but grows by at most this.
const GROWTH_BYTES_MAX: usize = 1024;

#[derive(Clone)]
pub struct Chunk {
    pub part: Part,
    /// The number by which the chunk is identified on flash. Numbers ascend along the stream.
    pub number: u64,
    /// The ids of its entries are stored as differences to this id, which is not larger than any of them.
    pub base: Id,
    pub summary: Summary,
}

/// A summary of a chunk's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The id of the first entry that is not deleted; `0-0`: there is none.
    pub first: Id,
    /// The id of the last entry, even if that is marked as deleted.
    pub last: Id,
    pub live: u32,
    pub deleted: u32,
}

/// The header before the first entry.
struct Head {
    live: i64,
    deleted: i64,
    /// The position of the number of deleted entries.
    deleted_at: usize,
    fields: usize,
    fields_at: usize,
    entries_at: usize,
}

/// An entry, borrowed from its stream.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    pub id: Id,
    deleted: bool,
    list: &'a [u8],
    /// Where the entry starts.
    at: usize,
    fields: usize,
    /// The position of the first entry's field names, if this entry has the same fields.
    names_at: Option<usize>,
    /// The position of the first value, or of the first field name.
    values_at: usize,
    next: usize,
}

impl<'a> Entry<'a> {
    /// The number of fields.
    pub fn len(&self) -> usize {
        self.fields
    }

    pub fn is_empty(&self) -> bool {
        self.fields == 0
    }

    /// Fields and values, in order.
    pub fn pairs(&self) -> impl Iterator<Item = (Element<'a>, Element<'a>)> + use<'a> {
        let (list, mut names_at, mut at) = (self.list, self.names_at, self.values_at);
        (0..self.fields).map_while(move |_| {
            let name = match &mut names_at {
                Some(name_at) => {
                    let (name, next) = listpack::read(list, *name_at)?;
                    *name_at = next;
                    name
                }
                None => {
                    let (name, next) = listpack::read(list, at)?;
                    at = next;
                    name
                }
            };
            let (value, next) = listpack::read(list, at)?;
            at = next;
            Some((name, value))
        })
    }
}

fn number(list: &[u8], at: usize) -> Option<(i64, usize)> {
    match listpack::read(list, at)? {
        (Element::Int(number), next) => Some((number, next)),
        (Element::Bytes(_), _) => None,
    }
}

fn count(list: &[u8], at: usize) -> Option<(usize, usize)> {
    let (number, next) = number(list, at)?;
    Some((usize::try_from(number).ok()?, next))
}

/// The position after `elements` elements.
fn skip(list: &[u8], mut at: usize, elements: usize) -> Option<usize> {
    for _ in 0..elements {
        at = listpack::read(list, at)?.1;
    }
    Some(at)
}

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
        summary(bytes, self.base) == Ok((self.summary, true))
    }
}

impl Chunk {
    /// A chunk for an entry with these fields. The entry is appended afterwards.
    pub fn new<'a>(base: Id, fields: impl ExactSizeIterator<Item = &'a [u8]>) -> Chunk {
        let mut list = listpack::new();
        listpack::append(&mut list, |push| {
            push.int(0);
            push.int(0);
            push.int(fields.len() as i64);
            fields.for_each(|field| push.bytes(field));
            push.int(0);
        });
        let summary = Summary { first: Id::MIN, last: base, live: 0, deleted: 0 };
        Chunk { part: Part::of(list), number: 0, base, summary }
    }

    /// Makes a chunk from a dump. Its entries must be in order. True: its own counts of them were wrong, and were
    /// corrected.
    pub fn from_bytes(base: Id, mut list: Vec<u8>) -> Result<(Chunk, bool), Corrupt> {
        let (summary, is_sound) = summary(&list, base)?;
        if !is_sound {
            let head = head(&list).ok_or(Corrupt)?;
            listpack::replace_int(&mut list, head.deleted_at, summary.deleted.into());
            listpack::replace_int(&mut list, listpack::FIRST, summary.live.into());
        }
        list.reserve_exact(malloc_bytes(list.len()) - list.len());
        Ok((Chunk { part: Part::of(list), number: 0, base, summary }, !is_sound))
    }

    /// See `skeleton`. `before`: the number of the chunk before this one.
    pub fn save(&self, before: u64, out: &mut Vec<u8>) {
        put_number(out, self.number - before);
        for id in [self.base, self.summary.first, self.summary.last] {
            out.extend_from_slice(&id.to_bytes());
        }
        put_number(out, self.live());
        put_number(out, self.summary.deleted.into());
        self.part.save(out);
    }

    pub fn load(input: &mut Input<'_>, before: u64) -> Result<Chunk, Corrupt> {
        let number = input.number_after(before)?;
        let base = Id::from_bytes(input.array()?);
        let (first, last) = (Id::from_bytes(input.array()?), Id::from_bytes(input.array()?));
        let (live, deleted) = (input.short()?, input.short()?);
        let chunk = Chunk { part: Part::load(input)?, number, base, summary: Summary { first, last, live, deleted } };
        let is_sound = base <= first && first <= last && live > 0;
        let is_accepted = chunk.part.is_absent() || chunk.accepts(chunk.part.peek());
        if is_sound && is_accepted { Ok(chunk) } else { Err(Corrupt) }
    }

    /// The listpack. The chunk must be in memory.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.part.bytes()
    }

    /// Entries that are not deleted.
    #[inline]
    pub fn live(&self) -> u64 {
        self.summary.live.into()
    }

    #[inline]
    pub fn want(&self, out: &mut Absent) {
        self.part.want(self.number, out);
    }

    /// Whether the chunk has no room for an entry of this size.
    #[inline]
    pub fn is_full(&self, entry_bytes: usize, bytes_max: usize, entries_max: usize) -> bool {
        let held = self.live() + u64::from(self.summary.deleted);
        self.part.len() + entry_bytes >= bytes_max || entries_max > 0 && held >= entries_max as u64
    }

    /// Called when the chunk will not grow any more.
    pub fn close(&mut self, flash_copies: &FlashCopiesOf) {
        let wanted = malloc_bytes(self.part.len());
        if !self.part.is_absent() && self.part.capacity() > wanted {
            self.part.edit(flash_copies).shrink_to(wanted);
        }
    }

    pub fn append<'a>(
        &mut self,
        flash_copies: &FlashCopiesOf,
        id: Id,
        pairs: impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])> + Clone,
        bytes: usize,
    ) {
        let base = self.base;
        let list = self.part.edit(flash_copies);
        let head = head(list).expect("a chunk is checked before it is one");
        let fields = pairs.len();
        let same = head.fields == fields
            && pairs.clone().zip(elements(list, head.fields_at)).all(|((field, _), name)| name.is(field));
        // Flags, ids and lengths take a little more than the fields and values themselves.
        let room = bytes + 32 + 6 * fields;
        if list.capacity() - list.len() < room {
            let wanted = malloc_bytes(list.len() + room.max(list.len().min(GROWTH_BYTES_MAX)));
            list.reserve_exact(wanted - list.len());
        }
        listpack::append(list, |push| {
            push.int(if same { SAME_FIELDS } else { 0 });
            push.int(id.ms.wrapping_sub(base.ms) as i64);
            push.int(id.seq.wrapping_sub(base.seq) as i64);
            if !same {
                push.int(fields as i64);
            }
            for (field, value) in pairs {
                if !same {
                    push.bytes(field);
                }
                push.bytes(value);
            }
            push.int(if same { fields as i64 + 3 } else { 2 * fields as i64 + 4 });
        });
        listpack::replace_int(list, listpack::FIRST, head.live + 1);
        if self.summary.live == 0 {
            self.summary.first = id;
        }
        self.summary.last = id;
        self.summary.live += 1;
    }

    /// Marks the first `count` entries from this id on as deleted. Returns how many existed.
    pub fn delete(&mut self, flash_copies: &FlashCopiesOf, from: Id, count: u64) -> u64 {
        let mut deleted = 0;
        while deleted < count {
            // Marking an entry may move the entries after it.
            let next = self.entries().find(|entry| entry.id >= from).map(|entry| entry.at);
            let Some(at) = next else { break };
            let list = self.part.edit(flash_copies);
            let head = head(list).expect("a chunk is checked before it is one");
            let flags = number(list, at).map_or(0, |(flags, _)| flags);
            // From the back to the front: a number that gets longer moves the bytes after it.
            listpack::replace_int(list, at, flags | DELETED);
            listpack::replace_int(list, head.deleted_at, head.deleted + 1);
            listpack::replace_int(list, listpack::FIRST, head.live - 1);
            deleted += 1;
        }
        self.summary.live -= deleted as u32;
        self.summary.deleted += deleted as u32;
        if deleted > 0 && from <= self.summary.first {
            let first = self.entries().next().map_or(Id::MIN, |entry| entry.id);
            self.summary.first = first;
        }
        deleted
    }

    /// The entries in order.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.entries_of(self.part.bytes())
    }

    /// The entries in order, without counting as use. `bytes` are the bytes of an absent chunk.
    pub fn peek<'a>(&'a self, bytes: Option<&'a [u8]>) -> Result<impl Iterator<Item = Entry<'a>>, Corrupt> {
        Ok(self.entries_of(self.peek_bytes(bytes)?))
    }

    pub fn peek_bytes<'a>(&'a self, bytes: Option<&'a [u8]>) -> Result<&'a [u8], Corrupt> {
        match bytes {
            Some(bytes) if !self.accepts(bytes) => Err(Corrupt),
            Some(bytes) => Ok(bytes),
            None => Ok(self.part.peek()),
        }
    }

    fn entries_of<'a>(&self, list: &'a [u8]) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        let head = head(list);
        let (base, mut at) = (self.base, head.as_ref().map_or(list.len(), |head| head.entries_at));
        std::iter::from_fn(move || {
            let entry = entry(list, head.as_ref()?, base, at)?;
            at = entry.next;
            Some(entry)
        })
        .filter(|entry| !entry.deleted)
    }
}

/// The summary of a chunk's bytes, if they are a chunk up to their last byte, and whether the counts in its head are
/// right.
fn summary(list: &[u8], base: Id) -> Result<(Summary, bool), Corrupt> {
    let elements = listpack::check(list)?;
    let head = head(list).ok_or(Corrupt)?;
    let (mut live, mut deleted, mut first, mut last, mut at) = (0, 0, None, None, head.entries_at);
    let mut left = elements.checked_sub(head.fields + 4).ok_or(Corrupt)?;
    while at < list.len() - 1 {
        let entry = entry(list, &head, base, at).ok_or(Corrupt)?;
        let here = if entry.names_at.is_some() { entry.fields + 3 } else { 2 * entry.fields + 4 };
        left = left.checked_sub(here + 1).ok_or(Corrupt)?;
        let counted = skip(list, at, here).and_then(|at| count(list, at)).ok_or(Corrupt)?.0;
        if counted != here || entry.id < base || last.is_some_and(|last| last >= entry.id) || entry.fields == 0 {
            return Err(Corrupt);
        }
        last = Some(entry.id);
        if entry.deleted {
            deleted += 1;
        } else {
            live += 1;
            first = first.or(last);
        }
        at = entry.next;
    }
    let is_sound = head.live == i64::from(live) && head.deleted == i64::from(deleted);
    match last {
        Some(last) if left == 0 => Ok((Summary { first: first.unwrap_or(Id::MIN), last, live, deleted }, is_sound)),
        _ => Err(Corrupt),
    }
}

fn elements(list: &[u8], mut at: usize) -> impl Iterator<Item = Element<'_>> {
    std::iter::from_fn(move || {
        let (element, next) = listpack::read(list, at)?;
        at = next;
        Some(element)
    })
}

fn head(list: &[u8]) -> Option<Head> {
    let (live, deleted_at) = number(list, listpack::FIRST)?;
    let (deleted, at) = number(list, deleted_at)?;
    let (fields, fields_at) = count(list, at)?;
    let at = skip(list, fields_at, fields)?;
    let (zero, entries_at) = number(list, at)?;
    (zero == 0).then_some(Head { live, deleted, deleted_at, fields, fields_at, entries_at })
}

fn entry<'a>(list: &'a [u8], head: &Head, base: Id, at: usize) -> Option<Entry<'a>> {
    let (flags, next) = number(list, at)?;
    let (ms, next) = number(list, next)?;
    let (seq, next) = number(list, next)?;
    let same = flags & SAME_FIELDS != 0;
    let (fields, values_at) = if same { (head.fields, next) } else { count(list, next)? };
    let elements = if same { fields } else { fields.checked_mul(2)? };
    // The count of the entry's elements comes after them.
    let next = skip(list, values_at, elements.checked_add(1)?)?;
    Some(Entry {
        id: Id::new(base.ms.wrapping_add(ms as u64), base.seq.wrapping_add(seq as u64)),
        deleted: flags & DELETED != 0,
        list,
        at,
        fields,
        names_at: same.then_some(head.fields_at),
        values_at,
        next,
    })
}
