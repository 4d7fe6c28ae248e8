//! Owns the large form of a hash: a table in the order of the fields' tags. Never knows replies or settings.
//!
//! A field and its value lie in a chunk of a [`Tagged`] table, so the field has no allocation of its own and costs some
//! ten bytes more than its content. An access walks over half a chunk on average, at most a few dozen fields.

use super::deadlines::Deadlines;
use crate::Corrupt;
use crate::input::Input;
use crate::part::{Absent, AbsentPart, Parts};
pub use crate::tagged::{Drawn, Step};
use crate::tagged::{Shape, Tagged, TaggedPosition};
use crate::varint::{self, Varint};

/// `[field length varint][field][value length varint][value]`, as in the packed form.
#[derive(Clone)]
struct Field;

impl Shape for Field {
    #[inline]
    fn checked_end(bytes: &[u8], at: usize) -> Option<usize> {
        let field = varint::read_part(bytes, at)?;
        varint::read_part(bytes, field.end).map(|value| value.end)
    }
}

/// A hash of any number of fields. Access to one is O(1), amortised for writes.
#[derive(Clone, Default)]
pub struct Table {
    fields: Tagged<Field>,
    /// The deadlines of the fields that expire. `None` while no field does.
    deadlines: Option<Box<Deadlines>>,
}

/// Called with a field, its value and its deadline.
type Visit<'v> = dyn FnMut(&[u8], &[u8], Option<u64>) + 'v;

impl Table {
    pub fn new() -> Table {
        Table::default()
    }

    pub fn len(&self) -> usize {
        self.fields.len()
    }

    pub fn is_empty(&self) -> bool {
        self.fields.len() == 0
    }

    pub fn get(&self, field: &[u8]) -> Option<&[u8]> {
        let place = self.find(self.fields.tag(field), field).ok()?;
        Some(split(self.fields.payload(place)).1)
    }

    /// Sets a field and removes its deadline. True: the field is new.
    pub fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        let is_new = self.change(field, value);
        if !is_new && self.deadlines.is_some() {
            self.set_deadline(field, None);
        }
        is_new
    }

    /// Like [`Table::set`], but keeps the deadline.
    pub fn change(&mut self, field: &[u8], value: &[u8]) -> bool {
        let tag = self.fields.tag(field);
        let (field_len, value_len) = (Varint::new(field.len()), Varint::new(value.len()));
        let payload = [field_len.as_bytes(), field, value_len.as_bytes(), value];
        match self.find(tag, field) {
            Ok(place) => {
                let old = split(self.fields.payload(place)).1.len();
                if old == value.len() {
                    let payload = self.fields.payload_mut(place);
                    let start = payload.len() - old;
                    payload[start..].copy_from_slice(value);
                } else {
                    self.fields.replace(place, &payload);
                }
                false
            }
            Err(place) => {
                self.fields.insert(place, tag, &payload);
                true
            }
        }
    }

    /// Removes a field. True: the field was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        let Ok(place) = self.find(self.fields.tag(field), field) else {
            return false;
        };
        self.fields.remove(place);
        if self.deadlines.is_some() {
            self.set_deadline(field, None);
        }
        true
    }

    /// When the field expires, in milliseconds since 1970.
    pub fn deadline(&self, field: &[u8]) -> Option<u64> {
        self.deadlines.as_ref()?.get(field)
    }

    /// Sets when an existing field expires; `None`: never.
    pub fn set_deadline(&mut self, field: &[u8], at_ms: Option<u64>) {
        match at_ms {
            Some(at_ms) => {
                let deadlines = self.deadlines.get_or_insert_with(|| Box::new(Deadlines::new(self.fields.salt())));
                deadlines.set(field, at_ms);
            }
            None => {
                let Some(deadlines) = &mut self.deadlines else { return };
                deadlines.remove(field);
                if deadlines.is_empty() {
                    self.deadlines = None;
                }
            }
        }
    }

    /// When the first field expires.
    #[inline]
    pub fn next_deadline(&self) -> Option<u64> {
        self.deadlines.as_ref()?.earliest()
    }

    /// How many fields have expired and are still there.
    pub fn due_count(&self, now_ms: u64) -> usize {
        self.deadlines.as_ref().map_or(0, |deadlines| deadlines.due_count(now_ms))
    }

    /// Removes the fields that have expired.
    pub fn expire(&mut self, now_ms: u64, gone: &mut dyn FnMut(&[u8])) {
        while let Some(field) = self.deadlines.as_mut().and_then(|deadlines| deadlines.take_due(now_ms)) {
            gone(&field);
            self.remove(&field);
        }
        if self.deadlines.as_ref().is_some_and(|deadlines| deadlines.is_empty()) {
            self.deadlines = None;
        }
    }

    /// Fields and values, in an order that looks random.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        self.fields.iter().map(split)
    }

    /// A uniformly random field. `draw(n)` is a random number below n.
    pub fn random(&self, draw: impl FnMut(usize) -> usize) -> Option<(&[u8], &[u8])> {
        self.fields.random(draw).map(split)
    }

    /// See [`Tagged::sample`].
    pub fn sample(&self, count: usize, distinct: bool, draw: impl FnMut(usize) -> usize) -> Vec<Drawn> {
        self.fields.sample(count, distinct, draw)
    }

    pub fn drawn(&self, drawn: Drawn) -> (&[u8], &[u8]) {
        split(self.fields.drawn(drawn))
    }

    /// One step of a walk over all fields: see [`Tagged::scan`].
    pub fn scan<'a>(&'a self, cursor: u64, count: usize, visit: &mut dyn FnMut(&'a [u8], &'a [u8])) -> Step {
        self.fields.scan(cursor, count, &mut |_, payload| {
            let (field, value) = split(payload);
            visit(field, value);
        })
    }

    /// Bytes of memory that the table holds besides itself.
    pub fn mem_bytes(&self) -> usize {
        self.fields.mem_bytes() + self.deadlines.as_ref().map_or(0, |deadlines| deadlines.mem_bytes())
    }

    /// Appends the number of fields, then all fields in the packed form, then the deadlines if there are any.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(Varint::new(self.len()).as_bytes());
        self.fields.iter().for_each(|payload| out.extend_from_slice(payload));
        if let Some(deadlines) = &self.deadlines {
            deadlines.encode(out);
        }
    }

    /// The fields may be in any order, because the salt that orders them changes with a restart.
    pub fn decode(bytes: &[u8]) -> Result<Table, Corrupt> {
        let (fields, mut at) = varint::read(bytes, 0).ok_or(Corrupt)?;
        let mut table = Table::new();
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

    /// See `skeleton`.
    pub(crate) fn save(&self, out: &mut Vec<u8>) {
        self.fields.save(out);
        if let Some(deadlines) = &self.deadlines {
            deadlines.encode(out);
        }
    }

    pub(crate) fn load(input: &mut Input<'_>) -> Result<Table, Corrupt> {
        let mut table = Table { fields: Tagged::load(input)?, deadlines: None };
        if !input.is_empty() {
            let mut deadlines = Box::new(Deadlines::new(table.fields.salt()));
            Deadlines::decode(input.rest(), |field, at_ms| match deadlines.set(field, at_ms) {
                None => Ok(()),
                Some(_) => Err(Corrupt),
            })?;
            table.deadlines = Some(deadlines);
        }
        if table.is_empty() { Err(Corrupt) } else { Ok(table) }
    }

    #[inline]
    fn find(&self, tag: u32, field: &[u8]) -> Result<TaggedPosition, TaggedPosition> {
        self.fields.find(tag, |payload| split(payload).0 == field)
    }
}

/// The parts that an operation touches. [`crate::Boxed::fill`] loads them before the operation runs.
impl Table {
    /// Records the part for reading, setting or removing one field.
    pub fn want(&self, field: &[u8], out: &mut Absent) {
        self.fields.want(self.fields.tag(field), out);
    }

    /// Records the parts for [`Table::scan`].
    pub fn want_scan(&self, cursor: u64, count: usize, out: &mut Absent) {
        self.fields.want_scan(cursor, count, out);
    }

    /// Records the part for an entry that was drawn.
    pub fn want_drawn(&self, drawn: Drawn, out: &mut Absent) {
        self.fields.want_drawn(drawn, out);
    }

    /// Records the parts for [`Table::expire`].
    pub fn want_due(&self, now_ms: u64, out: &mut Absent) {
        if let Some(deadlines) = &self.deadlines {
            deadlines.due(now_ms).for_each(|tag| self.fields.want(tag, out));
        }
    }

    /// See [`Tagged::stretch`].
    pub(crate) fn stretch(&self, tag: u64) -> Option<(Option<AbsentPart>, u64)> {
        self.fields.stretch(tag)
    }

    /// See [`Tagged::walk`]. A field is visited with its value and its deadline.
    pub(crate) fn walk(&self, tag: u64, bytes: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<(), Corrupt> {
        self.fields.walk(tag, bytes, &mut |payload| {
            let (field, value) = split(payload);
            visit(field, value, self.deadline(field));
        })
    }

    pub(crate) fn parts(&self) -> &dyn Parts {
        &self.fields
    }

    pub(crate) fn parts_mut(&mut self) -> &mut dyn Parts {
        &mut self.fields
    }
}

#[inline]
fn split(payload: &[u8]) -> (&[u8], &[u8]) {
    let field = varint::read_part(payload, 0).expect("change() wrote it");
    let value = varint::read_part(payload, field.end).expect("change() wrote it");
    (&payload[field], &payload[value])
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("fields", &self.len()).finish_non_exhaustive()
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
