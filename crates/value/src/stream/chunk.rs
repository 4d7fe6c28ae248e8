//! Owns a run of a stream's entries in one listpack, laid out as Redis lays it out. Never knows its neighbours.
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
use crate::listpack::{self, Element};
use crate::{Corrupt, malloc_bytes};

const DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;
/// A chunk that is still filled grows by as much as it holds, but not by more than this.
const GROWTH_BYTES_MAX: usize = 1024;

#[derive(Clone)]
pub struct Chunk {
    list: Vec<u8>,
}

/// What stands before the first entry.
struct Head {
    live: u64,
    deleted: u64,
    /// Where the number of deleted entries stands.
    deleted_at: usize,
    fields: usize,
    fields_at: usize,
    entries_at: usize,
}

/// An entry, which borrows from its stream.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    pub id: Id,
    deleted: bool,
    list: &'a [u8],
    /// Where the entry begins.
    at: usize,
    fields: usize,
    /// Where the names of the first entry's fields stand, if this one has the same.
    names_at: Option<usize>,
    /// Where the first value stands, or the first field's name.
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

/// Past `elements` elements.
fn skip(list: &[u8], mut at: usize, elements: usize) -> Option<usize> {
    for _ in 0..elements {
        at = listpack::read(list, at)?.1;
    }
    Some(at)
}

impl Chunk {
    /// A chunk for an entry with these fields, which is then appended to it.
    pub fn new<'a>(fields: impl ExactSizeIterator<Item = &'a [u8]>) -> Chunk {
        let mut list = listpack::new();
        listpack::append(&mut list, |push| {
            push.int(0);
            push.int(0);
            push.int(fields.len() as i64);
            fields.for_each(|field| push.bytes(field));
            push.int(0);
        });
        Chunk { list }
    }

    /// A chunk from elsewhere, whose entries must be in order, and their number.
    pub fn from_bytes(list: Vec<u8>, base: Id) -> Result<Chunk, Corrupt> {
        let elements = listpack::check(&list)?;
        let chunk = Chunk { list };
        let head = chunk.head().ok_or(Corrupt)?;
        let (mut live, mut deleted, mut last, mut at) = (0, 0, None, head.entries_at);
        let mut left = elements.checked_sub(head.fields + 4).ok_or(Corrupt)?;
        while at < chunk.list.len() - 1 {
            let entry = chunk.entry(&head, base, at).ok_or(Corrupt)?;
            let here = if entry.names_at.is_some() { entry.fields + 3 } else { 2 * entry.fields + 4 };
            left = left.checked_sub(here + 1).ok_or(Corrupt)?;
            let counted = skip(&chunk.list, at, here).and_then(|at| count(&chunk.list, at)).ok_or(Corrupt)?.0;
            if counted != here || entry.id < base || last.is_some_and(|last| last >= entry.id) || entry.fields == 0 {
                return Err(Corrupt);
            }
            last = Some(entry.id);
            if entry.deleted {
                deleted += 1;
            } else {
                live += 1;
            }
            at = entry.next;
        }
        let sound = left == 0 && live == head.live && deleted == head.deleted && last.is_some();
        if sound { Ok(chunk) } else { Err(Corrupt) }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.list
    }

    pub fn mem_bytes(&self) -> usize {
        malloc_bytes(self.list.capacity())
    }

    pub fn live(&self) -> u64 {
        self.head().map_or(0, |head| head.live)
    }

    /// Whether it takes no more entries like this one.
    pub fn is_full(&self, entry_bytes: usize, bytes_max: usize, entries_max: usize) -> bool {
        let held = || self.head().map_or(0, |head| head.live + head.deleted);
        self.list.len() + entry_bytes >= bytes_max || entries_max > 0 && held() >= entries_max as u64
    }

    /// It will not grow any more.
    pub fn close(&mut self) {
        self.list.shrink_to_fit();
    }

    pub fn append<'a>(
        &mut self,
        base: Id,
        id: Id,
        pairs: impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])> + Clone,
        bytes: usize,
    ) {
        let head = self.head().expect("a chunk is checked before it is one");
        let fields = pairs.len();
        let same = head.fields == fields
            && pairs.clone().zip(self.elements(head.fields_at)).all(|((field, _), name)| name.is(field));
        // Flags, ids and lengths take a little more than the fields and values themselves.
        let room = bytes + 32 + 6 * fields;
        if self.list.capacity() - self.list.len() < room {
            self.list.reserve_exact(room.max(self.list.len().min(GROWTH_BYTES_MAX)));
        }
        listpack::append(&mut self.list, |push| {
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
        listpack::replace_int(&mut self.list, listpack::FIRST, head.live as i64 + 1);
    }

    /// Marks the entry at a place, as [`Chunk::entries`] gave it, as deleted.
    pub fn delete(&mut self, at: usize) {
        let head = self.head().expect("a chunk is checked before it is one");
        let flags = number(&self.list, at).map_or(0, |(flags, _)| flags);
        // From the back to the front: a number that gets longer moves what follows it.
        listpack::replace_int(&mut self.list, at, flags | DELETED);
        listpack::replace_int(&mut self.list, head.deleted_at, head.deleted as i64 + 1);
        listpack::replace_int(&mut self.list, listpack::FIRST, head.live as i64 - 1);
    }

    /// All entries, those marked as deleted too, in order.
    fn all(&self, base: Id) -> impl Iterator<Item = Entry<'_>> {
        let head = self.head();
        let mut at = head.as_ref().map_or(self.list.len(), |head| head.entries_at);
        std::iter::from_fn(move || {
            let entry = self.entry(head.as_ref()?, base, at)?;
            at = entry.next;
            Some(entry)
        })
    }

    /// The entries in order, each with its place.
    pub fn entries(&self, base: Id) -> impl Iterator<Item = (usize, Entry<'_>)> {
        self.all(base).filter(|entry| !entry.deleted).map(|entry| (entry.at, entry))
    }

    /// The last id, also if that entry is deleted.
    pub fn last_id(&self, base: Id) -> Id {
        self.all(base).last().map_or(base, |entry| entry.id)
    }

    fn elements(&self, mut at: usize) -> impl Iterator<Item = Element<'_>> {
        std::iter::from_fn(move || {
            let (element, next) = listpack::read(&self.list, at)?;
            at = next;
            Some(element)
        })
    }

    fn head(&self) -> Option<Head> {
        let list = &self.list;
        let (live, deleted_at) = number(list, listpack::FIRST)?;
        let (deleted, at) = number(list, deleted_at)?;
        let (fields, fields_at) = count(list, at)?;
        let at = skip(list, fields_at, fields)?;
        let (zero, entries_at) = number(list, at)?;
        let (live, deleted) = (u64::try_from(live).ok()?, u64::try_from(deleted).ok()?);
        (zero == 0).then_some(Head { live, deleted, deleted_at, fields, fields_at, entries_at })
    }

    fn entry(&self, head: &Head, base: Id, at: usize) -> Option<Entry<'_>> {
        let list = &self.list[..];
        let (flags, next) = number(list, at)?;
        let (ms, next) = number(list, next)?;
        let (seq, next) = number(list, next)?;
        let same = flags & SAME_FIELDS != 0;
        let (fields, values_at) = if same { (head.fields, next) } else { count(list, next)? };
        let elements = if same { fields } else { fields.checked_mul(2)? };
        // What the entry's elements are counted as stands behind them.
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
}
