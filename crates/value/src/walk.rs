//! Owns a walk over all elements of a value, one stretch at a time, wherever its parts are. Never reads flash, never
//! changes a value, and never marks a part as used.
//!
//! A stretch is the content of one part of a large value. The caller asks for the next part, reads the bytes of a part
//! that is on flash only, passes them in and drops them. The value may change between two stretches. The cursor stays
//! valid; the walk then visits some elements as they were and others as they are.

use crate::stream::{Entry, Group, Id, Pending, Stream};
use crate::{AbsentPart, Boxed, Corrupt, Kind, hash, list, set, zset};

/// One element of a value, or one of the items that a stream has besides entries.
#[derive(Clone, Copy, Debug)]
pub enum Element<'a> {
    /// A whole string.
    Text(&'a [u8]),
    /// An element of a list, with its index.
    Item(u64, &'a [u8]),
    /// A member of a set.
    Member(&'a [u8]),
    /// A hash's field, its value and, if the field expires, its deadline in milliseconds since 1970.
    Field(&'a [u8], &'a [u8], Option<u64>),
    /// A member of a sorted set.
    Scored(&'a [u8], f64),
    /// An entry of a stream.
    Entry(&'a Entry<'a>),
    /// A stream without its entries and groups. Visited once, after the last entry.
    Stream(&'a Stream),
    /// A consumer group with its name, without its pending entries.
    Group(&'a [u8], &'a Group),
    /// A pending entry of the group with this name.
    Pending(&'a [u8], Id, &'a Pending),
}

/// The position of a walk over a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cursor {
    /// In the elements: a tag, index, rank or chunk number, depending on how the type finds its parts.
    Elements(u64),
    /// In a stream's groups: the group, and the first pending entry to visit.
    Groups(usize, Id),
}

impl Default for Cursor {
    fn default() -> Cursor {
        Cursor::Elements(0)
    }
}

/// The next stretch of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The part to read first, if it is on flash only.
    pub absent: Option<AbsentPart>,
    /// Where the next stretch starts.
    pub next: Cursor,
}

/// Pending entries in one stretch.
const PENDING_MAX: usize = 128;
/// Before a stream's first group. No entry has the smallest id, so no pending entry is skipped.
const FIRST_GROUP: Cursor = Cursor::Groups(0, Id::MIN);

impl Boxed {
    /// The stretch at the cursor. `None`: the end.
    pub fn stretch(&self, cursor: Cursor) -> Option<Stretch> {
        let at = match cursor {
            Cursor::Elements(at) => at,
            Cursor::Groups(nth, from) => return self.groups(nth, from),
        };
        let found = match self {
            Boxed::Hash(table) => table.stretch(at),
            Boxed::List(list) => list.stretch(at),
            Boxed::Set(table) => table.stretch(at),
            Boxed::ZSet(tree) => tree.stretch(at),
            Boxed::Stream(stream) => match stream.stretch(at) {
                None => return self.stretch(FIRST_GROUP),
                found => found,
            },
        };
        found.map(|(absent, next)| Stretch { absent, next: Cursor::Elements(next) })
    }

    fn groups(&self, nth: usize, from: Id) -> Option<Stretch> {
        let Boxed::Stream(stream) = self else { return None };
        let group = stream.groups().nth(nth);
        let is_first = Cursor::Groups(nth, from) == FIRST_GROUP;
        if group.is_none() && !is_first {
            return None;
        }
        let rest = group.and_then(|(_, group)| group.pending(from..).nth(PENDING_MAX));
        let next = rest.map_or(Cursor::Groups(nth + 1, Id::MIN), |(id, _)| Cursor::Groups(nth, *id));
        Some(Stretch { absent: None, next })
    }

    /// Visits the elements of the stretch at the cursor. `bytes` are the bytes of its part, if that part is absent.
    pub fn walk(
        &self,
        cursor: Cursor,
        bytes: Option<&[u8]>,
        visit: &mut dyn FnMut(Element<'_>),
    ) -> Result<(), Corrupt> {
        let at = match (self, cursor) {
            (_, Cursor::Elements(at)) => at,
            (Boxed::Stream(stream), Cursor::Groups(nth, from)) => return walk_groups(stream, nth, from, visit),
            _ => return Ok(()),
        };
        match self {
            Boxed::Hash(table) => table.walk(at, bytes, &mut |field, value, deadline| {
                visit(Element::Field(field, value, deadline));
            }),
            Boxed::List(list) => list.walk(at, bytes, &mut |index, item| visit(Element::Item(index, item))),
            Boxed::Set(table) => table.walk(at, bytes, &mut |member| visit(Element::Member(member))),
            Boxed::ZSet(tree) => tree.walk(at, bytes, &mut |member, score| visit(Element::Scored(member, score))),
            Boxed::Stream(stream) if stream.stretch(at).is_none() => walk_groups(stream, 0, Id::MIN, visit),
            Boxed::Stream(stream) => stream.walk(at, bytes, &mut |entry| visit(Element::Entry(entry))),
        }
    }

    /// Visits all elements of a value whose parts are all in memory.
    pub fn walk_all(&self, visit: &mut dyn FnMut(Element<'_>)) {
        let mut cursor = Cursor::default();
        while let Some(stretch) = self.stretch(cursor) {
            self.walk(cursor, None, visit).expect("only bytes from flash may be wrong");
            cursor = stretch.next;
        }
    }
}

fn walk_groups(stream: &Stream, nth: usize, from: Id, visit: &mut dyn FnMut(Element<'_>)) -> Result<(), Corrupt> {
    if Cursor::Groups(nth, from) == FIRST_GROUP {
        visit(Element::Stream(stream));
    }
    if let Some((name, group)) = stream.groups().nth(nth) {
        if from == Id::MIN {
            visit(Element::Group(name, group));
        }
        let pending = group.pending(from..).take(PENDING_MAX);
        pending.for_each(|(id, pending)| visit(Element::Pending(name, *id, pending)));
    }
    Ok(())
}

/// Visits all elements of an inline value: a string, or a packed collection.
pub fn walk_inline(kind: Kind, bytes: &[u8], visit: &mut dyn FnMut(Element<'_>)) {
    match kind {
        Kind::String => visit(Element::Text(bytes)),
        Kind::Hash => {
            hash::packed::iter(bytes).for_each(|(field, value)| visit(Element::Field(field, value, None)));
        }
        Kind::List => {
            let items = list::run::iter(list::packed::run(bytes));
            (0..).zip(items).for_each(|(index, item)| visit(Element::Item(index, item)));
        }
        Kind::Set if set::is_ints(bytes) => {
            set::ints::iter(bytes).for_each(|number| visit(Element::Member(number.to_string().as_bytes())));
        }
        Kind::Set => set::list::iter(bytes).for_each(|member| visit(Element::Member(member))),
        Kind::ZSet => zset::run::iter(bytes).for_each(|(score, member)| visit(Element::Scored(member, score))),
        Kind::Stream => unreachable!("streams have no packed form"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::Limit;
    use crate::part::Fate;
    use crate::part::testing::Flash;
    use crate::stream::ChunkLimits;
    use std::sync::Arc;

    fn shown(element: Element<'_>) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match element {
            Element::Text(bytes) | Element::Member(bytes) => text(bytes),
            Element::Item(index, item) => format!("{index}: {}", text(item)),
            Element::Field(field, value, at_ms) => format!("{} {} {at_ms:?}", text(field), text(value)),
            Element::Scored(member, score) => format!("{score} {}", text(member)),
            Element::Entry(entry) => format!("{}-{} of {} fields", entry.id.ms, entry.id.seq, entry.len()),
            Element::Stream(stream) => format!("stream up to {:?}", stream.last_id),
            Element::Group(name, group) => format!("group {} at {:?}", text(name), group.last_id),
            Element::Pending(group, id, pending) => format!("{} has {id:?}, {} times", text(group), pending.deliveries),
        }
    }

    fn all(value: &Boxed) -> Vec<String> {
        let mut elements = Vec::new();
        value.walk_all(&mut |element| elements.push(shown(element)));
        elements
    }

    const ELEMENTS: usize = 3000;

    fn values() -> Vec<Boxed> {
        let name = |n: usize| format!("{n:0>20}").into_bytes();
        let mut hash: hash::Table = (0..ELEMENTS).map(|n| (name(n), name(7 * n))).collect();
        hash.set_deadline(&name(5), Some(77));
        let mut list = list::List::new();
        (0..ELEMENTS).for_each(|n| list.push_back(&name(n), Limit::of(-1)));
        let set: set::Table = (0..ELEMENTS).map(name).collect();
        let mut tree = zset::Tree::new();
        (0..ELEMENTS).for_each(|n| _ = tree.insert(&name(n), (n * 7919 % ELEMENTS) as f64));
        let mut stream = Stream::new();
        let mut group = Group::new(Id::new(9, 0), None);
        group.create_consumer(b"one", 0);
        for n in 1..=ELEMENTS {
            let id = Id::new(n as u64, 0);
            stream.append(id, [(&b"f"[..], &name(n)[..])].into_iter(), ChunkLimits { bytes: 4096, entries: 100 });
            if n <= 2 * PENDING_MAX + 1 {
                group.assign(id, b"one", 5, n as u64);
            }
        }
        stream.create_group(b"first", Group::new(Id::MIN, None));
        stream.create_group(b"second", group);
        vec![Boxed::Hash(hash), Boxed::List(list), Boxed::Set(set), Boxed::ZSet(tree), Boxed::Stream(Box::new(stream))]
    }

    #[test]
    fn every_element_is_visited_once() {
        for value in values() {
            let mut elements = all(&value);
            let beside = match value.kind() {
                // The stream itself, two groups, and the pending entries.
                Kind::Stream => 1 + 2 + 2 * PENDING_MAX + 1,
                _ => 0,
            };
            elements.sort();
            elements.dedup();
            assert_eq!(elements.len(), ELEMENTS + beside, "{:?}", value.kind());
        }
    }

    #[test]
    fn parts_on_flash_are_visited_there_and_no_part_counts_as_used() {
        for mut value in values() {
            let expected = all(&value);
            let flash = Arc::new(Flash::default());
            flash.send(&mut value);
            // Some parts are in memory, and unused since the last sweep.
            let absent = |value: &Boxed| {
                let mut out = Vec::new();
                value.absent(&mut out);
                out
            };
            let some: Vec<AbsentPart> = absent(&value).into_iter().step_by(4).collect();
            flash.bring(&mut value, |value, out| {
                out.extend(absent(value).into_iter().filter(|part| some.contains(part)));
            });
            let sweep = |value: &mut Boxed| value.sweep(0, usize::MAX, false, &mut |_, _| Fate::Stays).left;
            assert_eq!(sweep(&mut value), 0, "they have just come");
            let before = absent(&value);

            let (mut cursor, mut elements, mut read) = (Cursor::default(), Vec::new(), 0);
            while let Some(stretch) = value.stretch(cursor) {
                let bytes = stretch.absent.map(|part| flash.copy(part.place));
                read += usize::from(bytes.is_some());
                value.walk(cursor, bytes.as_deref(), &mut |element| elements.push(shown(element))).unwrap();
                cursor = stretch.next;
            }
            assert_eq!(elements, expected, "{:?}", value.kind());
            assert!(read > 0);
            assert_eq!(absent(&value), before, "nothing has come or gone");
            assert_eq!(sweep(&mut value), some.len(), "nobody has used them");
        }
    }
}
