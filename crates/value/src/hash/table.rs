//! Owns the large form of a hash: a table in the order of its fields' hashes. Never knows replies or settings.
//!
//! Fields lie in an open-addressing table *sorted by a keyed 32-bit tag*. A tag's home is its share of the table,
//! `tag × homes / 2^32`; a field stands at its home or, when that is taken, after it, and everything between is
//! occupied (linear probing whose order is kept, "ordered hash tables", Amble & Knuth 1974). One order serves all:
//! - a lookup starts at the home and ends at the first larger tag or at a gap;
//! - HSCAN's cursor is a tag, so it stays valid while the table grows, shrinks and loses fields, and a field that is
//!   there all the time is visited exactly once (Redis promises at least once);
//! - growing copies the fields in their order, without computing a hash;
//! - any number of homes will do, not only powers of two, so it grows by half and stays well filled;
//! - a random slot, drawn again until it holds a field, is a uniformly random field. The table shrinks before the
//!   slots are mostly empty, so the expected number of draws is below 8.
//!
//! A slot is a tag (4 bytes) and a pointer with a length (16 bytes): 25 to 38 bytes a field, apart from the field and
//! its value, which share one allocation. Growth touches every slot: 1 ms per 100,000 fields at worst.

use super::deadlines::Deadlines;
pub use crate::tagged::Step;
use crate::varint::{self, Varint};
use crate::{Corrupt, malloc_bytes};
use siphasher::sip::SipHasher13;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

/// A tag no field has: an empty slot.
const EMPTY: u32 = 0;
/// Homes of the smallest table.
const HOMES_MIN: usize = 16;

/// A hash of any number of fields. Access to one is O(1), amortised for writes.
#[derive(Clone, Default)]
pub struct Table {
    /// Ascending, with gaps. After the last home there are as many slots as overflow needs.
    tags: Vec<u32>,
    /// `None` exactly where the tag is `EMPTY`: `[field length varint][field][value]`.
    entries: Vec<Option<Box<[u8]>>>,
    homes: usize,
    fields: usize,
    /// What the entries' allocations take.
    entry_bytes: usize,
    /// Those of fields that expire; there only while some do.
    deadlines: Option<Box<Deadlines>>,
}

static SECRET: OnceLock<[u64; 2]> = OnceLock::new();

/// Fixes the secret of the fields' order, so that a seed replays a run. Without it, or when a table came first, it
/// is random: who does not know it cannot make fields collide.
pub fn seed(secret: [u64; 2]) {
    let _ = SECRET.set(secret);
}

/// A keyed hash, for the order of tables. Never 0.
pub(crate) fn tag(field: &[u8]) -> u32 {
    let secret = SECRET.get_or_init(|| [RandomState::new().hash_one(0), RandomState::new().hash_one(1)]);
    let mut hasher = SipHasher13::new_with_keys(secret[0], secret[1]);
    hasher.write(field);
    ((hasher.finish() >> 32) as u32).max(EMPTY + 1)
}

impl Table {
    pub fn new() -> Table {
        Table::default()
    }

    /// A table with room for `fields` fields.
    pub fn with_room(fields: usize) -> Table {
        let mut table = Table::default();
        table.rebuild(homes_for(fields));
        table
    }

    pub fn len(&self) -> usize {
        self.fields
    }

    pub fn is_empty(&self) -> bool {
        self.fields == 0
    }

    pub fn get(&self, field: &[u8]) -> Option<&[u8]> {
        let at = self.find(tag(field), field).ok()?;
        Some(split(self.entries[at].as_deref()?).1)
    }

    /// Sets a field, which does not expire from now on; true if it is new.
    pub fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        let is_new = self.change(field, value);
        if !is_new && self.deadlines.is_some() {
            self.set_deadline(field, None);
        }
        is_new
    }

    /// As [`Table::set`], but a field that expires still does.
    pub fn change(&mut self, field: &[u8], value: &[u8]) -> bool {
        let tag = tag(field);
        let at = match self.find(tag, field) {
            Ok(at) => {
                self.overwrite(at, field, value);
                return false;
            }
            Err(at) => at,
        };
        if self.is_full() {
            self.rebuild(homes_for(self.fields + self.fields / 2));
            let at = self.find(tag, field).expect_err("growing adds no field");
            self.insert(at, tag, entry(field, value));
        } else {
            self.insert(at, tag, entry(field, value));
        }
        true
    }

    /// True if the field was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        let Ok(mut gap) = self.find(tag(field), field) else {
            return false;
        };
        let entry = self.entries[gap].take().expect("found fields are there");
        self.entry_bytes -= malloc_bytes(entry.len());
        if self.deadlines.is_some() {
            self.set_deadline(field, None);
        }
        // What overflowed past the gap moves back, as far as each field's home allows.
        while gap + 1 < self.tags.len() && self.tags[gap + 1] != EMPTY && self.home(self.tags[gap + 1]) <= gap {
            self.tags[gap] = self.tags[gap + 1];
            self.entries.swap(gap, gap + 1);
            gap += 1;
        }
        self.tags[gap] = EMPTY;
        self.fields -= 1;
        if self.homes > HOMES_MIN && self.fields < self.homes / 8 {
            self.rebuild(homes_for(self.fields * 2));
        }
        true
    }

    /// When the field expires, milliseconds since 1970.
    pub fn deadline(&self, field: &[u8]) -> Option<u64> {
        self.deadlines.as_ref()?.get(field)
    }

    /// When a field that is there expires; `None`: never.
    pub fn set_deadline(&mut self, field: &[u8], at_ms: Option<u64>) {
        match at_ms {
            Some(at_ms) => _ = self.deadlines.get_or_insert_default().set(field, at_ms),
            None => {
                let Some(deadlines) = &mut self.deadlines else { return };
                deadlines.remove(field);
                if deadlines.is_empty() {
                    self.deadlines = None;
                }
            }
        }
    }

    /// When the next field expires.
    #[inline]
    pub fn next_deadline(&self) -> Option<u64> {
        self.deadlines.as_ref()?.earliest()
    }

    /// Removes the fields that have expired.
    pub fn expire(&mut self, now_ms: u64) {
        while let Some(field) = self.deadlines.as_mut().and_then(|deadlines| deadlines.take_due(now_ms)) {
            self.remove(&field);
        }
        if self.deadlines.as_ref().is_some_and(|deadlines| deadlines.is_empty()) {
            self.deadlines = None;
        }
    }

    /// Fields and values, in an order that looks random.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        self.entries.iter().flatten().map(|entry| split(entry))
    }

    /// A uniformly random field. `draw(n)` is a random number below n.
    pub fn random(&self, mut draw: impl FnMut(usize) -> usize) -> Option<(&[u8], &[u8])> {
        if self.fields == 0 {
            return None;
        }
        loop {
            if let Some(entry) = &self.entries[draw(self.entries.len())] {
                return Some(split(entry));
            }
        }
    }

    /// One step of a walk over all fields: visits at least `count` of them, from `cursor` on (0 is the start).
    /// A field that is there from the walk's start to its end is visited exactly once, whatever else changes.
    pub fn scan<'a>(&'a self, cursor: u64, count: usize, visit: &mut dyn FnMut(&'a [u8], &'a [u8])) -> Step {
        let Ok(from) = u32::try_from(cursor) else {
            return Step::End;
        };
        let mut visited = 0;
        let mut last = EMPTY;
        let start = if self.homes == 0 { 0 } else { self.home(from) };
        for (entry, &tag) in self.entries[start..].iter().zip(&self.tags[start..]) {
            let Some(entry) = entry else { continue };
            if tag < from {
                continue;
            }
            // Fields of one tag are one step: a cursor cannot stand between them.
            if visited >= count.max(1) && tag != last {
                return Step::Next(u64::from(tag));
            }
            let (field, value) = split(entry);
            visit(field, value);
            visited += 1;
            last = tag;
        }
        Step::End
    }

    /// Bytes of memory it holds besides itself.
    pub fn mem_bytes(&self) -> usize {
        self.entry_bytes
            + self.deadlines.as_ref().map_or(0, |deadlines| deadlines.mem_bytes())
            + malloc_bytes(self.tags.capacity() * size_of::<u32>())
            + malloc_bytes(self.entries.capacity() * size_of::<Option<Box<[u8]>>>())
    }

    /// Appends the number of fields and then all of them as the packed form has them, and then the deadlines, if any.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(Varint::new(self.fields).as_bytes());
        for (field, value) in self.iter() {
            for part in [field, value] {
                out.extend_from_slice(Varint::new(part.len()).as_bytes());
                out.extend_from_slice(part);
            }
        }
        if let Some(deadlines) = &self.deadlines {
            deadlines.encode(out);
        }
    }

    /// The fields may be in any order: the secret that orders them is another one after a restart.
    pub fn decode(bytes: &[u8]) -> Result<Table, Corrupt> {
        let (fields, mut at) = varint::read(bytes, 0).ok_or(Corrupt)?;
        // A field takes two bytes at least, so what is allocated here is bounded by what was read.
        if fields > (bytes.len() - at) / 2 {
            return Err(Corrupt);
        }
        let mut table = Table::with_room(fields);
        for _ in 0..fields {
            let field = varint::read_part(bytes, at).ok_or(Corrupt)?;
            let value = varint::read_part(bytes, field.end).ok_or(Corrupt)?;
            at = value.end;
            if !table.set(&bytes[field], &bytes[value]) {
                return Err(Corrupt);
            }
        }
        if at < bytes.len() {
            Deadlines::decode(&bytes[at..], |field, at_ms| {
                table.get(field).ok_or(Corrupt)?;
                table.set_deadline(field, Some(at_ms));
                Ok(())
            })?;
        }
        Ok(table)
    }

    #[inline]
    fn home(&self, tag: u32) -> usize {
        ((u64::from(tag) * self.homes as u64) >> 32) as usize
    }

    /// Where the field stands, or where it belongs. The walk is short: it stays within one run of occupied slots,
    /// whose expected length at the highest load, 4/5, is about a dozen.
    #[inline]
    fn find(&self, tag: u32, field: &[u8]) -> Result<usize, usize> {
        let mut at = self.home(tag);
        while let Some(&other) = self.tags.get(at) {
            if other == EMPTY || other > tag {
                break;
            }
            if other == tag && self.entries[at].as_deref().is_some_and(|entry| split(entry).0 == field) {
                return Ok(at);
            }
            at += 1;
        }
        Err(at)
    }

    fn is_full(&self) -> bool {
        self.fields >= self.homes / 5 * 4
    }

    /// Puts an entry at `at`; what stands there and after it, up to the next gap, moves by one.
    fn insert(&mut self, at: usize, tag: u32, entry: Box<[u8]>) {
        self.entry_bytes += malloc_bytes(entry.len());
        self.fields += 1;
        let gap = self.tags[at.min(self.tags.len())..].iter().position(|&tag| tag == EMPTY);
        let gap = match gap {
            Some(offset) => at + offset,
            None => {
                self.tags.push(EMPTY);
                self.entries.push(None);
                self.tags.len() - 1
            }
        };
        self.tags.copy_within(at..gap, at + 1);
        self.entries[at..=gap].rotate_right(1);
        self.tags[at] = tag;
        self.entries[at] = Some(entry);
    }

    fn overwrite(&mut self, at: usize, field: &[u8], value: &[u8]) {
        let slot = self.entries[at].as_mut().expect("found fields are there");
        let old = split(slot).1.len();
        if old == value.len() {
            let start = slot.len() - old;
            slot[start..].copy_from_slice(value);
            return;
        }
        let new = entry(field, value);
        self.entry_bytes -= malloc_bytes(slot.len());
        self.entry_bytes += malloc_bytes(new.len());
        *slot = new;
    }

    /// The same fields over another number of homes.
    fn rebuild(&mut self, homes: usize) {
        let tags = std::mem::take(&mut self.tags);
        let entries = std::mem::take(&mut self.entries);
        self.homes = homes;
        // A little more than homes: the last run flows over its end.
        self.tags.reserve_exact(homes + 8);
        self.entries.reserve_exact(homes + 8);
        self.tags.resize(homes, EMPTY);
        self.entries.resize_with(homes, || None);
        let mut next = 0;
        for (tag, entry) in tags.into_iter().zip(entries).filter(|(_, entry)| entry.is_some()) {
            let at = next.max(self.home(tag));
            if at == self.tags.len() {
                self.tags.push(tag);
                self.entries.push(entry);
            } else {
                self.tags[at] = tag;
                self.entries[at] = entry;
            }
            next = at + 1;
        }
    }
}

/// Homes for `fields` fields at a load of 4/5.
fn homes_for(fields: usize) -> usize {
    (fields / 4 * 5 + 5).max(HOMES_MIN)
}

fn entry(field: &[u8], value: &[u8]) -> Box<[u8]> {
    let len = Varint::new(field.len());
    let mut bytes = Vec::with_capacity(len.as_bytes().len() + field.len() + value.len());
    bytes.extend_from_slice(len.as_bytes());
    bytes.extend_from_slice(field);
    bytes.extend_from_slice(value);
    bytes.into_boxed_slice()
}

#[inline]
fn split(entry: &[u8]) -> (&[u8], &[u8]) {
    let (len, start) = varint::read(entry, 0).expect("entry() wrote it");
    entry[start..].split_at(len)
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("fields", &self.fields).field("homes", &self.homes).finish_non_exhaustive()
    }
}

impl FromIterator<(Vec<u8>, Vec<u8>)> for Table {
    fn from_iter<I: IntoIterator<Item = (Vec<u8>, Vec<u8>)>>(pairs: I) -> Table {
        let mut table = Table::new();
        for (field, value) in pairs {
            table.set(&field, &value);
        }
        table
    }
}

#[cfg(test)]
mod tests;
