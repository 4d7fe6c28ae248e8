//! Owns the commands on lists, and when a packed list becomes a chunked one and back. Never knows other types, except
//! to refuse them, or how the blocking commands wait.

mod blocking;
mod moves;

use crate::cx::{BULK_FRAME_BYTES, Cx, bulk_bytes, claim_reply};
use crate::number::{int, int_or_error};
use crate::row::{Access, Flag, Group, KeyUse, Row, is};
use crate::stop::{NO_SUCH_KEY, Run, SYNTAX, Stop, WRONG_TYPE};
use resp::reply::Out;
use store::{Class, Key, Keyspace, Kind, NOTHING, Value, ValueMut};
use value::list::{Limit, List, packed, run};
use value::{Absent, Boxed, Buffer};

const READ: &[Flag] = &[Flag::Readonly];
const WRITE: &[Flag] = &[Flag::Write];
const WRITE_FAST: &[Flag] = &[Flag::Write, Flag::Fast];
const GROW: &[Flag] = &[Flag::Write, Flag::Denyoom];
const GROW_FAST: &[Flag] = &[Flag::Write, Flag::Denyoom, Flag::Fast];

const WRONG_TYPE_REPLY: &str = "(error) WRONGTYPE Operation against a key holding the wrong kind of value";

const BASE: Row = Row { group: Group::List, since: "1.0.0", ..Row::BASE };

pub use blocking::ROWS as BLOCKING_ROWS;
pub use moves::ROWS as MOVING_ROWS;

pub const ROWS: &[Row] = &[
    Row {
        name: "lindex",
        arity: 3,
        flags: READ,
        complexity: "O(N) where N is the distance to the nearer end, most of it passed over by the thousand.",
        summary: "Gives the element at an index; negative ones count from the end.",
        syntax: "key index",
        examples: &[
            is("RPUSH l a b c", "(integer) 3"),
            is("LINDEX l 0", "\"a\""),
            is("LINDEX l -1", "\"c\""),
            is("LINDEX l 3", "(nil)"),
            is("LINDEX l x", "(error) ERR value is not an integer or out of range"),
        ],
        run: lindex,
        ..BASE
    },
    Row {
        name: "linsert",
        arity: 5,
        access: Access::All(KeyUse::INSERT),
        flags: GROW,
        since: "2.2.0",
        complexity: "O(N) where N is the number of elements before the pivot.",
        summary: "Puts an element before or after the first one that equals the pivot.",
        syntax: "key <BEFORE | AFTER> pivot element",
        examples: &[
            is("RPUSH l a c", "(integer) 2"),
            is("LINSERT l BEFORE c b", "(integer) 3"),
            is("LRANGE l 0 -1", "1) \"a\"\n2) \"b\"\n3) \"c\""),
            is("LINSERT l AFTER nosuch x", "(integer) -1"),
            is("LINSERT nosuch BEFORE a x", "(integer) 0"),
            is("LINSERT l BESIDE a x", "(error) ERR syntax error"),
        ],
        run: linsert,
        ..BASE
    },
    Row {
        name: "llen",
        arity: 2,
        access: Access::All(KeyUse::LOOK),
        flags: &[Flag::Readonly, Flag::Fast],
        summary: "Gives the number of elements of a list.",
        examples: &[
            is("RPUSH l a b", "(integer) 2"),
            is("LLEN l", "(integer) 2"),
            is("LLEN nosuch", "(integer) 0"),
            is("SET s x", "OK"),
            is("LLEN s", WRONG_TYPE_REPLY),
        ],
        run: |cx| {
            let len = elements(cx.ks.get_for(&cx.keys[0], NOTHING)?)?.map_or(0, Elements::len);
            cx.out.int(len as i64);
            Ok(())
        },
        ..BASE
    },
    Row {
        name: "lpop",
        arity: -2,
        access: Access::All(KeyUse::TAKE),
        flags: WRITE_FAST,
        complexity: "O(N) where N is the number of elements taken.",
        summary: "Takes the first element of a list, or several.",
        syntax: "key [count]",
        examples: &[
            is("RPUSH l a b c d", "(integer) 4"),
            is("LPOP l", "\"a\""),
            is("LPOP l 2", "1) \"b\"\n2) \"c\""),
            is("LPOP nosuch", "(nil)"),
            is("LPOP l -1", "(error) ERR value is out of range, must be positive"),
        ],
        run: |cx| pop_command(cx, End::Front),
        ..BASE
    },
    Row {
        name: "lpos",
        arity: -3,
        flags: READ,
        since: "6.0.6",
        complexity: "O(N) where N is the number of elements looked at.",
        summary: "Gives the indices of elements that equal the given one.",
        syntax: "key element [RANK rank] [COUNT num-matches] [MAXLEN len]",
        examples: &[
            is("RPUSH l a b c b a", "(integer) 5"),
            is("LPOS l b", "(integer) 1"),
            is("LPOS l b RANK -1", "(integer) 3"),
            is("LPOS l a COUNT 0", "1) (integer) 0\n2) (integer) 4"),
            is("LPOS l c MAXLEN 2", "(nil)"),
            is("LPOS l a COUNT -1", "(error) ERR COUNT can't be negative"),
        ],
        run: lpos,
        ..BASE
    },
    Row {
        name: "lpush",
        arity: -3,
        access: Access::All(KeyUse::INSERT),
        flags: GROW_FAST,
        complexity: "O(N) where N is the number of elements added.",
        summary: "Puts elements before the first one of a list, one after the other; no key is an empty list.",
        syntax: "key element [element ...]",
        examples: &[
            is("LPUSH l a b c", "(integer) 3"),
            is("LRANGE l 0 -1", "1) \"c\"\n2) \"b\"\n3) \"a\""),
            is("LPUSH l", "(error) ERR wrong number of arguments for 'lpush' command"),
            is("SET s x", "OK"),
            is("LPUSH s a", WRONG_TYPE_REPLY),
        ],
        run: |cx| push_command(cx, End::Front, false),
        ..BASE
    },
    Row {
        name: "lpushx",
        arity: -3,
        access: Access::All(KeyUse::INSERT),
        flags: GROW_FAST,
        since: "2.2.0",
        complexity: "O(N) where N is the number of elements added.",
        summary: "Puts elements before the first one of a list that exists.",
        syntax: "key element [element ...]",
        examples: &[
            is("LPUSHX l a", "(integer) 0"),
            is("RPUSH l a", "(integer) 1"),
            is("LPUSHX l b", "(integer) 2"),
            is("LPUSHX l", "(error) ERR wrong number of arguments for 'lpushx' command"),
        ],
        run: |cx| push_command(cx, End::Front, true),
        ..BASE
    },
    Row {
        name: "lrange",
        arity: 4,
        flags: READ,
        complexity: "O(S+N) where S is the distance of the start from the nearer end and N the number of elements given.",
        summary: "Gives the elements between two indices, both included; negative ones count from the end.",
        syntax: "key start stop",
        examples: &[
            is("RPUSH l a b c", "(integer) 3"),
            is("LRANGE l 0 -1", "1) \"a\"\n2) \"b\"\n3) \"c\""),
            is("LRANGE l -2 100", "1) \"b\"\n2) \"c\""),
            is("LRANGE l 5 10", "(empty array)"),
            is("LRANGE l 0 x", "(error) ERR value is not an integer or out of range"),
        ],
        run: lrange,
        ..BASE
    },
    Row {
        name: "lrem",
        arity: 4,
        access: Access::All(KeyUse::DELETE),
        flags: WRITE,
        complexity: "O(N) where N is the length of the list.",
        summary: "Removes elements that equal the given one: so many from the front, from the back if negative, all if 0.",
        syntax: "key count element",
        examples: &[
            is("RPUSH l a b a c a", "(integer) 5"),
            is("LREM l -1 a", "(integer) 1"),
            is("LRANGE l 0 -1", "1) \"a\"\n2) \"b\"\n3) \"a\"\n4) \"c\""),
            is("LREM l 0 a", "(integer) 2"),
            is("LREM l x a", "(error) ERR value is not an integer or out of range"),
        ],
        run: lrem,
        ..BASE
    },
    Row {
        name: "lset",
        arity: 4,
        access: Access::All(KeyUse::UPDATE),
        flags: GROW,
        complexity: "O(N) where N is the distance to the nearer end, most of it passed over by the thousand.",
        summary: "Changes the element at an index.",
        syntax: "key index element",
        examples: &[
            is("RPUSH l a b", "(integer) 2"),
            is("LSET l -1 z", "OK"),
            is("LRANGE l 0 -1", "1) \"a\"\n2) \"z\""),
            is("LSET l 2 x", "(error) ERR index out of range"),
            is("LSET nosuch 0 x", "(error) ERR no such key"),
        ],
        run: lset,
        ..BASE
    },
    Row {
        name: "ltrim",
        arity: 4,
        access: Access::All(KeyUse::DELETE),
        flags: WRITE,
        complexity: "O(N) where N is the number of elements removed.",
        summary: "Keeps the elements between two indices, both included, and removes the others.",
        syntax: "key start stop",
        examples: &[
            is("RPUSH l a b c d", "(integer) 4"),
            is("LTRIM l 1 -2", "OK"),
            is("LRANGE l 0 -1", "1) \"b\"\n2) \"c\""),
            is("LTRIM l 5 10", "OK"),
            is("EXISTS l", "(integer) 0"),
            is("LTRIM l x 0", "(error) ERR value is not an integer or out of range"),
        ],
        run: ltrim,
        ..BASE
    },
    Row {
        name: "rpop",
        arity: -2,
        access: Access::All(KeyUse::TAKE),
        flags: WRITE_FAST,
        complexity: "O(N) where N is the number of elements taken.",
        summary: "Takes the last element of a list, or several, the last one first.",
        syntax: "key [count]",
        examples: &[
            is("RPUSH l a b c d", "(integer) 4"),
            is("RPOP l", "\"d\""),
            is("RPOP l 2", "1) \"c\"\n2) \"b\""),
            is("RPOP l 0", "(empty array)"),
            is("RPOP l 1 2", "(error) ERR wrong number of arguments for 'rpop' command"),
        ],
        run: |cx| pop_command(cx, End::Back),
        ..BASE
    },
    Row {
        name: "rpush",
        arity: -3,
        access: Access::All(KeyUse::INSERT),
        flags: GROW_FAST,
        complexity: "O(N) where N is the number of elements added.",
        summary: "Puts elements after the last one of a list; no key is an empty list.",
        syntax: "key element [element ...]",
        examples: &[
            is("RPUSH l a b", "(integer) 2"),
            is("RPUSH l c", "(integer) 3"),
            is("LRANGE l 0 -1", "1) \"a\"\n2) \"b\"\n3) \"c\""),
            is("SET s x", "OK"),
            is("RPUSH s a", WRONG_TYPE_REPLY),
        ],
        run: |cx| push_command(cx, End::Back, false),
        ..BASE
    },
    Row {
        name: "rpushx",
        arity: -3,
        access: Access::All(KeyUse::INSERT),
        flags: GROW_FAST,
        since: "2.2.0",
        complexity: "O(N) where N is the number of elements added.",
        summary: "Puts elements after the last one of a list that exists.",
        syntax: "key element [element ...]",
        examples: &[
            is("RPUSHX l a", "(integer) 0"),
            is("RPUSH l a", "(integer) 1"),
            is("RPUSHX l b c", "(integer) 3"),
            is("SET s x", "OK"),
            is("RPUSHX s a", WRONG_TYPE_REPLY),
        ],
        run: |cx| push_command(cx, End::Back, true),
        ..BASE
    },
];

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Front,
    Back,
}

impl End {
    /// LEFT or RIGHT.
    fn parse(word: &[u8]) -> Result<End, Stop> {
        match word {
            _ if word.eq_ignore_ascii_case(b"left") => Ok(End::Front),
            _ if word.eq_ignore_ascii_case(b"right") => Ok(End::Back),
            _ => Err(SYNTAX),
        }
    }

    /// The keyspace event of a push at this end.
    fn push_event(self) -> &'static str {
        if self == End::Front { "lpush" } else { "rpush" }
    }

    /// The keyspace event of a pop at this end.
    fn pop_event(self) -> &'static str {
        if self == End::Front { "lpop" } else { "rpop" }
    }
}

/// A list for reading, in either form.
#[derive(Clone, Copy)]
pub(crate) enum Elements<'a> {
    Packed(&'a [u8]),
    Chunked(&'a List),
}

pub(crate) fn elements(value: Option<Value<'_>>) -> Result<Option<Elements<'_>>, Stop> {
    match value {
        None => Ok(None),
        Some(Value::Inline(Kind::List, bytes)) => Ok(Some(Elements::Packed(bytes))),
        Some(Value::Boxed(Boxed::List(list))) => Ok(Some(Elements::Chunked(list))),
        Some(_) => Err(WRONG_TYPE),
    }
}

impl<'a> Elements<'a> {
    /// Estimated size of a reply with this many elements, as if all had the same length. A packed list is small, so it
    /// counts as 0.
    fn reply_bytes(self, count: usize) -> usize {
        match self {
            Elements::Packed(_) => 0,
            Elements::Chunked(list) => (list.mem_bytes() / list.len().max(1) + BULK_FRAME_BYTES) * count,
        }
    }

    pub fn len(self) -> usize {
        match self {
            Elements::Packed(bytes) => packed::len(bytes),
            Elements::Chunked(list) => list.len(),
        }
    }

    fn get(self, index: usize) -> Option<&'a [u8]> {
        match self {
            Elements::Packed(bytes) => packed::get(bytes, index),
            Elements::Chunked(list) => list.get(index),
        }
    }

    /// The element at this end.
    fn at(self, end: End) -> Option<&'a [u8]> {
        match end {
            End::Front => self.get(0),
            End::Back => self.get(self.len().checked_sub(1)?),
        }
    }

    /// Calls `visit` for the elements from `start` on, until `visit` returns false.
    pub fn each_from(self, start: usize, mut visit: impl FnMut(&'a [u8]) -> bool) {
        match self {
            Elements::Packed(bytes) => {
                let run = packed::run(bytes);
                let _ = run::iter(&run[packed::offset(bytes, start)..]).all(visit);
            }
            Elements::Chunked(list) => _ = list.iter_from(start).all(&mut visit),
        }
    }

    /// Calls `visit` for the elements from this end on, until `visit` returns false.
    fn each(self, end: End, visit: impl FnMut(&'a [u8]) -> bool) {
        match end {
            End::Front => self.each_from(0, visit),
            End::Back => self.each_back(visit),
        }
    }

    /// Calls `visit` for the elements from the last one back, until `visit` returns false.
    pub fn each_back(self, mut visit: impl FnMut(&'a [u8]) -> bool) {
        match self {
            Elements::Packed(bytes) => _ = run::iter(packed::run(bytes)).rev().all(visit),
            Elements::Chunked(list) => _ = list.iter_back().all(&mut visit),
        }
    }

    /// Appends `count` elements to a reply, in the order in which pops at that end return them.
    fn reply(self, end: End, count: usize, out: &mut Out<'_>) {
        let mut left = count;
        let mut give = |element: &[u8]| {
            out.bulk(element);
            left -= 1;
            left > 0
        };
        if count > 0 {
            self.each(end, &mut give);
        }
    }

    /// The index for a client's number, if such an element exists.
    fn index(self, number: i64) -> Option<usize> {
        let len = self.len();
        let index = match u64::try_from(number) {
            Ok(index) => usize::try_from(index).ok()?,
            Err(_) => len.checked_sub(usize::try_from(number.unsigned_abs()).ok()?)?,
        };
        (index < len).then_some(index)
    }
}

/// The parts of a list that `want` names.
fn of_list(want: impl Fn(&List, &mut Absent)) -> impl Fn(&Boxed, &mut Absent) {
    move |value, out| {
        if let Boxed::List(list) = value {
            want(list, out);
        }
    }
}

/// The parts that a push at this end touches.
fn of_push<'a>(
    elements: impl Iterator<Item = &'a [u8]> + Clone,
    end: End,
    limit: Limit,
) -> impl Fn(&Boxed, &mut Absent) {
    of_list(move |list, out| {
        if let Some(first) = elements.clone().next() {
            list.want_push(end == End::Back, first, limit, out);
        }
    })
}

/// The parts that a pop at this end touches.
fn of_pop(end: End, count: usize) -> impl Fn(&Boxed, &mut Absent) {
    of_list(move |list, out| list.want_pop(end == End::Back, count, out))
}

/// The part of the element at a client's number.
fn of_index(number: i64) -> impl Fn(&Boxed, &mut Absent) {
    of_list(move |list, out| {
        if let Some(index) = Elements::Chunked(list).index(number) {
            list.want(index..index + 1, out);
        }
    })
}

/// The elements from `start` to `stop`, both included, of a list of `len`. Negative numbers count from the end.
fn range(start: i64, stop: i64, len: usize) -> std::ops::Range<usize> {
    let len = len as i64;
    let from_start = |number: i64| if number < 0 { number.saturating_add(len).max(0) } else { number };
    let stop = if stop < 0 { stop.saturating_add(len) } else { stop };
    let (start, end) = (from_start(start), stop.saturating_add(1).min(len));
    if start < end { start as usize..end as usize } else { 0..0 }
}

/// Changes a list value in either form, and converts between the forms.
struct Editor<'v, 'k> {
    value: &'v mut ValueMut<'k>,
    limit: Limit,
}

impl Editor<'_, '_> {
    fn elements(&mut self) -> Elements<'_> {
        match self.value.is_boxed() {
            true => Elements::Chunked(self.chunked()),
            false => Elements::Packed(self.value.bytes()),
        }
    }

    fn chunked(&mut self) -> &mut List {
        match self.value.boxed() {
            Some(Boxed::List(list)) => list,
            _ => unreachable!("a list that is not packed is chunked"),
        }
    }

    /// Makes room for this many bytes and elements, and changes the form if needed. True: the list is chunked now.
    fn grow(&mut self, bytes: usize, count: usize) -> bool {
        if self.value.is_boxed() {
            return true;
        }
        if packed::may_grow(self.value.bytes(), self.limit, bytes, count) {
            return false;
        }
        let list = List::from_packed(self.value.bytes());
        self.value.replace_boxed(Boxed::List(list));
        true
    }

    /// Called after elements were removed or became smaller: a chunked list that is at most half of a packed list's
    /// limit becomes packed.
    fn shrink(&mut self) {
        if !self.value.is_boxed() {
            return;
        }
        let limit = self.limit.half();
        if let Some(packed) = self.chunked().to_packed(limit) {
            self.value.replace_inline(&packed);
        }
    }

    fn push<'a>(&mut self, elements: impl Iterator<Item = &'a [u8]> + Clone, end: End) -> usize {
        let (bytes, count) =
            elements.clone().fold((0, 0), |(bytes, count), element| (bytes + element.len(), count + 1));
        let limit = self.limit;
        if self.grow(bytes, count) {
            let list = self.chunked();
            push_chunked(list, elements, end, limit);
            return list.len();
        }
        let at = if end == End::Front { 0 } else { packed::run(self.value.bytes()).len() };
        if count == 1 {
            // The usual case, without gathering the elements first.
            elements.for_each(|element| packed::insert(self.value, at, element));
            return packed::len(self.value.bytes());
        }
        let mut added = Vec::with_capacity(bytes + 4 * count);
        for element in elements {
            match end {
                End::Front => run::push_front(&mut added, element),
                End::Back => run::push_back(&mut added, element),
            }
        }
        packed::insert_run(self.value, at, &added, count);
        packed::len(self.value.bytes())
    }

    fn insert(&mut self, index: usize, element: &[u8]) -> usize {
        let limit = self.limit;
        if self.grow(element.len(), 1) {
            let list = self.chunked();
            list.insert(index, element, limit);
            return list.len();
        }
        let at = packed::offset(self.value.bytes(), index);
        packed::insert(self.value, at, element);
        packed::len(self.value.bytes())
    }

    fn set(&mut self, index: usize, element: &[u8]) {
        let limit = self.limit;
        // As Redis does: the new element counts beside the old one.
        if self.grow(element.len(), 1) {
            self.chunked().set(index, element, limit);
            self.shrink();
        } else {
            packed::set(self.value, index, element);
        }
    }

    /// Removes elements. True: none is left.
    fn remove(&mut self, indices: std::ops::Range<usize>) -> bool {
        let limit = self.limit;
        if self.value.is_boxed() {
            let list = self.chunked();
            list.remove(indices, limit);
            let is_empty = list.is_empty();
            self.shrink();
            return is_empty;
        }
        packed::remove(self.value, indices);
        packed::len(self.value.bytes()) == 0
    }

    fn remove_equal(&mut self, element: &[u8], max: usize, from_back: bool) -> (usize, bool) {
        let limit = self.limit;
        if self.value.is_boxed() {
            let list = self.chunked();
            let removed = list.remove_equal(element, max, from_back, limit);
            let is_empty = list.is_empty();
            self.shrink();
            return (removed, is_empty);
        }
        let removed = packed::remove_equal(self.value, element, max, from_back);
        (removed, packed::len(self.value.bytes()) == 0)
    }
}

fn push_chunked<'a>(list: &mut List, elements: impl Iterator<Item = &'a [u8]>, end: End, limit: Limit) {
    for element in elements {
        match end {
            End::Front => list.push_front(element, limit),
            End::Back => list.push_back(element, limit),
        }
    }
}

/// Adds elements to the list at a key, and creates the list if needed. Returns the length.
fn push<'a>(
    ks: &mut Keyspace<'_>,
    key: &Key<'_>,
    elements: impl Iterator<Item = &'a [u8]> + Clone,
    end: End,
    limit: Limit,
) -> Result<usize, Stop> {
    if let Some(mut value) = ks.edit_for(key, Kind::List, &of_push(elements.clone(), end, limit))? {
        return Ok(Editor { value: &mut value, limit }.push(elements, end));
    }
    Ok(create(ks, key, elements, end, limit, None))
}

/// Creates a list in the form that fits it, and replaces any value at the key.
pub(crate) fn create<'a>(
    ks: &mut Keyspace<'_>,
    key: &Key<'_>,
    elements: impl Iterator<Item = &'a [u8]> + Clone,
    end: End,
    limit: Limit,
    expiry: Option<u64>,
) -> usize {
    let (bytes, count) =
        elements.clone().fold((0usize, 0), |(bytes, count), element| (bytes.saturating_add(element.len()), count + 1));
    if !limit.allows(bytes, count) {
        let mut list = List::new();
        push_chunked(&mut list, elements, end, limit);
        ks.set_boxed(key, Boxed::List(list), expiry);
        return count;
    }
    let mut list = packed::of(&[], 0);
    for element in elements {
        let at = if end == End::Front { 0 } else { packed::run(&list).len() };
        packed::insert(&mut list, at, element);
    }
    ks.set_packed(key, Kind::List, &list, expiry);
    count
}

/// Stores a new list, and replaces any value at the key.
pub(crate) fn store<'a>(cx: &mut Cx<'_>, key: &Key<'_>, elements: impl Iterator<Item = &'a [u8]> + Clone) {
    create(&mut cx.ks, key, elements, End::Back, cx.settings.list_limit, None);
}

/// Takes `count` elements from an end. They exist and were read before. True: the last element went, and so did the
/// key.
fn take(cx: &mut Cx<'_>, key: &Key<'_>, end: End, count: usize) -> Result<bool, Stop> {
    let limit = cx.settings.list_limit;
    let Some(mut value) = cx.ks.edit_for(key, Kind::List, NOTHING)? else { return Ok(false) };
    let mut list = Editor { value: &mut value, limit };
    let len = list.elements().len();
    let indices = if end == End::Front { 0..count } else { len - count..len };
    // A list that becomes empty is removed as it is, without edits.
    let is_empty = count == len || list.remove(indices);
    if is_empty {
        cx.ks.remove(key)?;
    }
    Ok(is_empty)
}

/// Notes the event of a list that may be gone now.
fn notify(cx: &mut Cx<'_>, key: &Key<'_>, event: &'static str, is_gone: bool) {
    cx.ks.event(Class::LIST, event, key);
    if is_gone {
        cx.ks.event(Class::GENERIC, "del", key);
    }
}

fn push_command(cx: &mut Cx<'_>, end: End, must_exist: bool) -> Run {
    let (key, elements, limit) = (&cx.keys[0], cx.args.from(2), cx.settings.list_limit);
    let len = if must_exist {
        match cx.ks.edit_for(key, Kind::List, &of_push(elements.clone(), end, limit))? {
            Some(mut value) => Editor { value: &mut value, limit }.push(elements, end),
            None => 0,
        }
    } else {
        push(&mut cx.ks, key, elements, end, limit)?
    };
    if len > 0 {
        notify(cx, key, end.push_event(), false);
    }
    cx.out.int(len as i64);
    Ok(())
}

fn pop_command(cx: &mut Cx<'_>, end: End) -> Run {
    let (key, args) = (&cx.keys[0], cx.args);
    let count = match args.get(2) {
        None => None,
        Some(_) if args.len() > 3 => {
            let name = if end == End::Front { "lpop" } else { "rpop" };
            return Err(crate::stop::wrong_arity(name));
        }
        Some(text) => {
            let count = int(text).and_then(|count| usize::try_from(count).ok());
            Some(count.ok_or(Stop::error("ERR value is out of range, must be positive"))?)
        }
    };
    let Some(list) = elements(cx.ks.view_for(key, &of_pop(end, count.unwrap_or(1)))?)? else {
        match count {
            Some(_) => cx.out.null_array(),
            None => cx.out.null(),
        }
        return Ok(());
    };
    let taken = count.unwrap_or(1).min(list.len());
    claim_reply(cx.settings, cx.session, &mut cx.out, list.reply_bytes(taken))?;
    if count.is_some() {
        cx.out.array(taken);
    }
    list.reply(end, taken, &mut cx.out);
    if taken > 0 {
        let is_gone = take(cx, key, end, taken)?;
        notify(cx, key, end.pop_event(), is_gone);
    }
    Ok(())
}

fn lindex(cx: &mut Cx<'_>) -> Run {
    let number = int_or_error(&cx.args[2]);
    let wanted = of_index(*number.as_ref().unwrap_or(&0));
    let Some(list) = elements(cx.ks.get_for(&cx.keys[0], &wanted)?)? else {
        cx.out.null();
        return Ok(());
    };
    let element = list.index(number?).and_then(|index| list.get(index));
    claim_reply(cx.settings, cx.session, &mut cx.out, bulk_bytes(element))?;
    cx.out.bulk_or_null(element);
    Ok(())
}

fn lrange(cx: &mut Cx<'_>) -> Run {
    let (start, stop) = (int_or_error(&cx.args[2])?, int_or_error(&cx.args[3])?);
    let wanted = of_list(|list, out| list.want(range(start, stop, list.len()), out));
    let Some(list) = elements(cx.ks.get_for(&cx.keys[0], &wanted)?)? else {
        cx.out.array(0);
        return Ok(());
    };
    let range = range(start, stop, list.len());
    let (out, mut left) = (&mut cx.out, range.len());
    claim_reply(cx.settings, cx.session, out, list.reply_bytes(left))?;
    out.array(left);
    if left > 0 {
        list.each_from(range.start, |element| {
            out.bulk(element);
            left -= 1;
            left > 0
        });
    }
    Ok(())
}

fn lset(cx: &mut Cx<'_>) -> Run {
    let (args, limit) = (cx.args, cx.settings.list_limit);
    let number = int_or_error(&args[2]);
    let wanted = of_index(*number.as_ref().unwrap_or(&0));
    let list = elements(cx.ks.view_for(&cx.keys[0], &wanted)?)?.ok_or(NO_SUCH_KEY)?;
    let index = list.index(number?).ok_or(Stop::error("ERR index out of range"))?;
    if let Some(mut value) = cx.ks.edit_for(&cx.keys[0], Kind::List, NOTHING)? {
        Editor { value: &mut value, limit }.set(index, &args[3]);
    }
    notify(cx, &cx.keys[0], "lset", false);
    cx.out.ok();
    Ok(())
}

fn linsert(cx: &mut Cx<'_>) -> Run {
    let (args, limit) = (cx.args, cx.settings.list_limit);
    let behind = match &args[2] {
        word if word.eq_ignore_ascii_case(b"before") => 0,
        word if word.eq_ignore_ascii_case(b"after") => 1,
        _ => return Err(SYNTAX),
    };
    let up_to_pivot = of_list(|list, out| list.want_walk(false, |element| *element != args[3], out));
    let Some(list) = elements(cx.ks.view_for(&cx.keys[0], &up_to_pivot)?)? else {
        cx.out.int(0);
        return Ok(());
    };
    let (mut index, mut found) = (0, false);
    list.each_from(0, |element| {
        found = *element == args[3];
        index += usize::from(!found);
        !found
    });
    let mut len = -1;
    if found && let Some(mut value) = cx.ks.edit_for(&cx.keys[0], Kind::List, NOTHING)? {
        len = Editor { value: &mut value, limit }.insert(index + behind, &args[4]) as i64;
        notify(cx, &cx.keys[0], "linsert", false);
    }
    cx.out.int(len);
    Ok(())
}

fn lrem(cx: &mut Cx<'_>) -> Run {
    let (key, args, limit) = (&cx.keys[0], cx.args, cx.settings.list_limit);
    let count = int_or_error(&args[2])?;
    let max = if count == 0 { usize::MAX } else { usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX) };
    let end = if count < 0 { End::Back } else { End::Front };
    let up_to_last = of_list(|list, out| {
        let mut left = max;
        let goes_on = |element: &[u8]| {
            left -= usize::from(*element == args[3]);
            left > 0
        };
        list.want_walk(end == End::Back, goes_on, out);
    });
    let mut found = false;
    if let Some(list) = elements(cx.ks.view_for(key, &up_to_last)?)? {
        list.each(end, |element| {
            found = *element == args[3];
            !found
        });
    }
    // Removing an element that is not there must not make the value dirty.
    let (mut removed, mut is_empty) = (0, false);
    if found && let Some(mut value) = cx.ks.edit_for(key, Kind::List, NOTHING)? {
        (removed, is_empty) = Editor { value: &mut value, limit }.remove_equal(&args[3], max, end == End::Back);
    }
    if is_empty {
        cx.ks.remove(key)?;
    }
    if removed > 0 {
        notify(cx, key, "lrem", is_empty);
    }
    cx.out.int(removed as i64);
    Ok(())
}

fn ltrim(cx: &mut Cx<'_>) -> Run {
    let (key, args, limit) = (&cx.keys[0], cx.args, cx.settings.list_limit);
    let (start, stop) = (int_or_error(&args[2])?, int_or_error(&args[3])?);
    let wanted = of_list(|list, out| list.want_keep(range(start, stop, list.len()), out));
    if let Some(mut value) = cx.ks.edit_for(key, Kind::List, &wanted)? {
        let mut list = Editor { value: &mut value, limit };
        let len = list.elements().len();
        let kept = range(start, stop, len);
        if kept.is_empty() {
            cx.ks.remove(key)?;
        } else if kept.len() < len {
            list.remove(kept.end..len);
            list.remove(0..kept.start);
        }
        notify(cx, key, "ltrim", kept.is_empty());
    }
    cx.out.ok();
    Ok(())
}

fn lpos(cx: &mut Cx<'_>) -> Run {
    let args = cx.args;
    let (mut rank, mut count, mut max_len) = (1, None, 0);
    let mut at = 3;
    while let Some(option) = args.get(at) {
        let value = args.get(at + 1).ok_or(SYNTAX)?;
        let positive = |error| int(value).and_then(|value| usize::try_from(value).ok()).ok_or(Stop::error(error));
        if option.eq_ignore_ascii_case(b"rank") {
            rank = int_or_error(value)?;
            if rank == 0 {
                return Err(Stop::error(
                    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use \
                     negative to start from the end of the list",
                ));
            }
            if rank == i64::MIN {
                return Err(Stop::error(
                    "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
                ));
            }
        } else if option.eq_ignore_ascii_case(b"count") {
            count = Some(positive("ERR COUNT can't be negative")?);
        } else if option.eq_ignore_ascii_case(b"maxlen") {
            max_len = positive("ERR MAXLEN can't be negative")?;
        } else {
            return Err(SYNTAX);
        }
        at += 2;
    }
    let wanted = match count {
        None => 1,
        Some(0) => usize::MAX,
        Some(count) => count,
    };
    let end = if rank < 0 { End::Back } else { End::Front };
    let search = |len: usize| Search {
        element: &args[2],
        skip: rank.unsigned_abs() - 1,
        seen: 0,
        seen_max: if max_len == 0 { len } else { max_len.min(len) },
        found: Vec::new(),
        found_max: wanted,
    };
    let touched = of_list(|list, out| {
        let mut search = search(list.len());
        list.want_walk(end == End::Back, |element| search.goes_on(element), out);
    });
    let Some(list) = elements(cx.ks.get_for(&cx.keys[0], &touched)?)? else {
        match count {
            Some(_) => cx.out.array(0),
            None => cx.out.null(),
        }
        return Ok(());
    };
    let len = list.len();
    let mut search = search(len);
    list.each(end, |element| search.goes_on(element));
    let mut found = search.found.iter().map(|&at| (if end == End::Back { len - 1 - at } else { at }) as i64);
    match (count, found.next()) {
        (None, Some(index)) => cx.out.int(index),
        (None, None) => cx.out.null(),
        (Some(_), first) => {
            cx.out.array(search.found.len());
            first.into_iter().chain(found).for_each(|index| cx.out.int(index));
        }
    }
    Ok(())
}

/// LPOS's search from one end.
struct Search<'a> {
    element: &'a [u8],
    /// Skip this many matches.
    skip: u64,
    seen: usize,
    seen_max: usize,
    /// Positions of the matches, counted from that end.
    found: Vec<usize>,
    found_max: usize,
}

impl Search<'_> {
    fn goes_on(&mut self, element: &[u8]) -> bool {
        if element == self.element {
            match self.skip {
                0 => self.found.push(self.seen),
                _ => self.skip -= 1,
            }
        }
        self.seen += 1;
        self.seen < self.seen_max && self.found.len() < self.found_max
    }
}
