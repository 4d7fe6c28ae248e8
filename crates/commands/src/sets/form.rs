//! Owns a set in any of its forms, and when it changes from one form to another. Never knows commands or replies.

use crate::cx::{BULK_FRAME_BYTES, Cx, Settings};
use crate::number::{self, Digits};
use crate::random::{Draws, SAMPLE_MAX};
use crate::stop::{Stop, WRONG_TYPE};
use resp::reply::Out;
use smallvec::SmallVec;
use store::{Key, Keyspace, Kind, Value, ValueMut};
use value::set::{Table, ints, is_ints, list};
use value::{Absent, Boxed, Buffer};

/// A set for reading.
#[derive(Clone, Copy)]
pub enum Set<'a> {
    Ints(&'a [u8]),
    List(&'a [u8]),
    Table(&'a Table),
}

#[derive(Clone, Copy)]
pub enum Member<'a> {
    Text(&'a [u8]),
    Int(i64),
}

pub fn set(value: Option<Value<'_>>) -> Result<Option<Set<'_>>, Stop> {
    match value {
        None => Ok(None),
        Some(Value::Inline(Kind::Set, bytes)) => Ok(Some(Set::of_packed(bytes))),
        Some(Value::Boxed(Boxed::Set(table))) => Ok(Some(Set::Table(table))),
        Some(_) => Err(WRONG_TYPE),
    }
}

/// The parts that hold these members.
pub fn of_members<'a>(members: impl Iterator<Item = &'a [u8]> + Clone) -> impl Fn(&Boxed, &mut Absent) {
    move |value, out| {
        if let Boxed::Set(table) = value {
            members.clone().for_each(|member| table.want(member, out));
        }
    }
}

/// The parts that hold this many random members.
pub fn of_sample(count: usize, distinct: bool, draws: Draws) -> impl Fn(&Boxed, &mut Absent) {
    move |value, out| match value {
        Boxed::Set(table) if is_sample(table, count, distinct) => {
            let mut draws = draws;
            let sample = table.sample(count, distinct, |n| draws.below(n));
            sample.into_iter().for_each(|drawn| table.want_drawn(drawn, out));
        }
        _ => value.absent(out),
    }
}

/// Whether to draw this many members one by one. If so, only the parts of those members are read. Distinct members must
/// be few compared with the length, so that each takes less than 1.5 draws on average.
pub fn is_sample(table: &Table, count: usize, distinct: bool) -> bool {
    count <= SAMPLE_MAX && (!distinct || count < table.len() / 3)
}

/// The sets at several keys. All cold ones are read together. Each value must be a set.
pub fn sets<'k>(ks: &'k mut Keyspace<'_>, keys: &[Key<'_>]) -> Result<SmallVec<[Option<Set<'k>>; 8]>, Stop> {
    ks.get_all(keys)?.into_iter().map(set).collect()
}

impl<'a> Member<'a> {
    pub fn with<R>(self, with: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Member::Text(text) => with(text),
            Member::Int(value) => with(Digits::new(value).as_bytes()),
        }
    }

    pub fn write(self, out: &mut Out<'_>) {
        match self {
            Member::Text(text) => out.bulk(text),
            Member::Int(value) => out.bulk_int(value),
        }
    }
}

impl<'a> Set<'a> {
    fn of_packed(bytes: &'a [u8]) -> Set<'a> {
        if is_ints(bytes) { Set::Ints(bytes) } else { Set::List(bytes) }
    }

    /// Estimated maximum size of a reply with all members. A packed set is small, so it counts as 0.
    pub fn reply_bytes(self) -> usize {
        match self {
            Set::Ints(_) | Set::List(_) => 0,
            Set::Table(table) => table.mem_bytes() + table.len() * BULK_FRAME_BYTES,
        }
    }

    /// Estimated bytes of the members.
    pub fn element_bytes(self) -> usize {
        match self {
            Set::Ints(bytes) | Set::List(bytes) => bytes.len(),
            Set::Table(table) => table.mem_bytes(),
        }
    }

    pub fn len(self) -> usize {
        match self {
            Set::Ints(bytes) => ints::len(bytes),
            Set::List(bytes) => list::len(bytes),
            Set::Table(table) => table.len(),
        }
    }

    pub fn contains(self, member: &[u8]) -> bool {
        match self {
            Set::Ints(bytes) => number::int(member).is_some_and(|value| ints::contains(bytes, value)),
            Set::List(bytes) => list::contains(bytes, member),
            Set::Table(table) => table.contains(member),
        }
    }

    pub fn has(self, member: Member<'_>) -> bool {
        match (self, member) {
            (Set::Ints(bytes), Member::Int(value)) => ints::contains(bytes, value),
            (_, member) => member.with(|text| self.contains(text)),
        }
    }

    pub fn iter(self) -> Box<dyn Iterator<Item = Member<'a>> + 'a> {
        match self {
            Set::Ints(bytes) => Box::new(ints::iter(bytes).map(Member::Int)),
            Set::List(bytes) => Box::new(list::iter(bytes).map(Member::Text)),
            Set::Table(table) => Box::new(table.iter().map(Member::Text)),
        }
    }

    /// A uniformly random member; a set is never empty. `draw(n)` returns a random number below n.
    pub fn random(self, mut draw: impl FnMut(usize) -> usize) -> Member<'a> {
        match self {
            Set::Ints(bytes) => Member::Int(ints::get(bytes, draw(ints::len(bytes)))),
            Set::List(bytes) => {
                let member = list::iter(bytes).nth(draw(list::len(bytes).max(1)));
                Member::Text(member.unwrap_or_default())
            }
            Set::Table(table) => Member::Text(table.random(draw).unwrap_or_default()),
        }
    }
}

/// The limits up to which a set stays packed.
#[derive(Clone, Copy)]
pub struct Limits {
    ints: usize,
    entries: usize,
    bytes: usize,
}

/// This many integers take 128 MB; a setting may allow more.
const INTS_MAX: usize = 1 << 24;

impl Limits {
    pub fn of(settings: &Settings) -> Limits {
        Limits {
            ints: settings.set_max_intset_entries.min(INTS_MAX),
            entries: settings.set_max_listpack_entries,
            bytes: settings.set_max_listpack_value,
        }
    }
}

/// The result of adding a member to a packed set.
enum Added {
    New,
    There,
    /// The packed set did not change. This table, which includes the member, replaces it.
    Outgrown(Table),
}

fn add_packed<B: Buffer>(buffer: &mut B, member: &[u8], limits: Limits) -> Added {
    let outgrown = |bytes: &[u8]| {
        let mut table = unpacked(bytes);
        table.insert(member);
        Added::Outgrown(table)
    };
    if !is_ints(buffer.bytes()) {
        if list::contains(buffer.bytes(), member) {
            return Added::There;
        }
        if list::len(buffer.bytes()) >= limits.entries || member.len() > limits.bytes {
            return outgrown(buffer.bytes());
        }
        list::append(buffer, member);
        return Added::New;
    }
    let len = ints::len(buffer.bytes());
    let Some(value) = number::int(member) else {
        // As a list, if everything fits into a list.
        let digits = |at: usize| Digits::new(ints::get(buffer.bytes(), at)).as_bytes().len();
        let longest = if len == 0 { 0 } else { digits(0).max(digits(len - 1)) };
        let fits = len < limits.entries && longest.max(member.len()) <= limits.bytes;
        if !fits {
            return outgrown(buffer.bytes());
        }
        let mut members = list::EMPTY.to_vec();
        for value in ints::iter(buffer.bytes()) {
            list::append(&mut members, Digits::new(value).as_bytes());
        }
        list::append(&mut members, member);
        let whole = 0..buffer.bytes().len();
        buffer.splice(whole, &[&members]);
        return Added::New;
    };
    if len >= limits.ints && !ints::contains(buffer.bytes(), value) {
        return outgrown(buffer.bytes());
    }
    if ints::insert(buffer, value) { Added::New } else { Added::There }
}

fn unpacked(bytes: &[u8]) -> Table {
    let mut table = Table::new();
    for member in Set::of_packed(bytes).iter() {
        member.with(|text| table.insert(text));
    }
    table
}

/// Adds a member. True: the member is new.
pub fn add(value: &mut ValueMut<'_>, member: &[u8], limits: Limits) -> bool {
    if let Some(boxed) = value.boxed() {
        let Boxed::Set(table) = boxed else { unreachable!("its kind was looked at") };
        return table.insert(member);
    }
    match add_packed(value, member, limits) {
        Added::New => true,
        Added::There => false,
        Added::Outgrown(table) => {
            value.replace_boxed(Boxed::Set(table));
            true
        }
    }
}

/// Removes a member. True: the member was there.
pub fn remove(value: &mut ValueMut<'_>, member: &[u8]) -> bool {
    match value.boxed() {
        Some(Boxed::Set(table)) => table.remove(member),
        Some(_) => unreachable!("its kind was looked at"),
        None => remove_packed(value, member),
    }
}

fn remove_packed<B: Buffer>(buffer: &mut B, member: &[u8]) -> bool {
    if is_ints(buffer.bytes()) {
        number::int(member).is_some_and(|value| ints::remove(buffer, value))
    } else {
        list::remove(buffer, member)
    }
}

pub fn is_empty(value: &mut ValueMut<'_>) -> bool {
    match value.boxed() {
        Some(Boxed::Set(table)) => table.is_empty(),
        // Only the first byte is left.
        _ => value.bytes().len() <= 1,
    }
}

/// Whether adding this many members at once makes the set a table. The decision comes before the first member is added.
pub fn outgrows(set: Set<'_>, members: usize, limits: Limits) -> bool {
    match set {
        Set::Ints(_) => members > limits.ints,
        Set::List(_) => members > limits.entries,
        Set::Table(_) => false,
    }
}

pub fn make_table(value: &mut ValueMut<'_>) {
    let table = unpacked(value.bytes());
    value.replace_boxed(Boxed::Set(table));
}

/// A new set that is not yet at a key.
pub enum Draft {
    Packed(Vec<u8>),
    Table(Table),
}

impl Draft {
    /// A draft in the form for `members` members, the first of which is `first`.
    pub fn new(first: &[u8], members: usize, limits: Limits) -> Draft {
        if number::int(first).is_some() && members <= limits.ints {
            Draft::ints()
        } else if members <= limits.entries {
            Draft::list()
        } else {
            Draft::Table(Table::new())
        }
    }

    pub fn ints() -> Draft {
        Draft::Packed(ints::EMPTY.to_vec())
    }

    pub fn list() -> Draft {
        Draft::Packed(list::EMPTY.to_vec())
    }

    pub fn as_set(&self) -> Set<'_> {
        match self {
            Draft::Packed(bytes) => Set::of_packed(bytes),
            Draft::Table(table) => Set::Table(table),
        }
    }

    pub fn add(&mut self, member: &[u8], limits: Limits) -> bool {
        let buffer = match self {
            Draft::Table(table) => return table.insert(member),
            Draft::Packed(bytes) => bytes,
        };
        match add_packed(buffer, member, limits) {
            Added::New => true,
            Added::There => false,
            Added::Outgrown(table) => {
                *self = Draft::Table(table);
                true
            }
        }
    }

    pub fn remove(&mut self, member: &[u8]) {
        match self {
            Draft::Table(table) => table.remove(member),
            Draft::Packed(bytes) => remove_packed(bytes, member),
        };
    }

    /// The same members as integers, if all members are integers and not too many.
    pub fn with_ints_if_all_are(self, limits: Limits) -> Draft {
        let set = self.as_set();
        if matches!(set, Set::Ints(_)) || set.len() > limits.ints {
            return self;
        }
        let integers: Option<Vec<i64>> = set.iter().map(|member| member.with(number::int)).collect();
        let Some(mut integers) = integers else { return self };
        // In ascending order, each insertion is an append.
        integers.sort_unstable();
        let mut bytes = ints::EMPTY.to_vec();
        for value in integers {
            ints::insert(&mut bytes, value);
        }
        Draft::Packed(bytes)
    }

    /// Replaces whatever the key holds by this set.
    pub fn store(self, cx: &mut Cx<'_>, key: &Key<'_>, expiry: Option<u64>) {
        match self {
            Draft::Packed(bytes) => cx.ks.set_packed(key, Kind::Set, &bytes, expiry),
            Draft::Table(table) => cx.ks.set_boxed(key, Boxed::Set(table), expiry),
        }
    }
}
