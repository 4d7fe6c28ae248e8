//! Owns when fields of a hash expire. Never knows their values or the current time.

use crate::tag::Salt;
use crate::tagged::{Shape, Tagged, TaggedPosition};
use crate::varint::{self, Varint};
use crate::{Corrupt, malloc_bytes};
use std::collections::BTreeSet;

const AT_BYTES: usize = 8;

/// `[milliseconds since 1970, 8 bytes][field length varint][field]`.
#[derive(Clone)]
struct Deadline;

impl Shape for Deadline {
    #[inline]
    fn checked_end(bytes: &[u8], at: usize) -> Option<usize> {
        varint::read_part(bytes, at + AT_BYTES).map(|field| field.end)
    }
}

fn parts(payload: &[u8]) -> (&[u8], u64) {
    let (at, rest) = payload.split_first_chunk().expect("set() wrote it");
    let (_, start) = varint::read(rest, 0).expect("set() wrote it");
    (&rest[start..], u64::from_le_bytes(*at))
}

#[derive(Clone)]
pub struct Deadlines {
    /// Its tags are those of the table's fields.
    by_field: Tagged<Deadline>,
    /// Each deadline with the tag of its field, earliest first.
    by_time: BTreeSet<(u64, u32)>,
}

impl Deadlines {
    /// `salt`: the salt of the table's fields.
    pub fn new(salt: Salt) -> Deadlines {
        Deadlines { by_field: Tagged::with_salt(salt), by_time: BTreeSet::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.by_time.is_empty()
    }

    pub fn get(&self, field: &[u8]) -> Option<u64> {
        let place = self.find(self.by_field.tag(field), field).ok()?;
        Some(parts(self.by_field.payload(place)).1)
    }

    /// Sets a field's deadline. Returns the one that it replaces.
    pub fn set(&mut self, field: &[u8], at_ms: u64) -> Option<u64> {
        let tag = self.by_field.tag(field);
        let old = match self.find(tag, field) {
            Ok(place) => {
                let old = parts(self.by_field.payload(place)).1;
                self.by_field.payload_mut(place)[..AT_BYTES].copy_from_slice(&at_ms.to_le_bytes());
                self.forget_time(old, tag);
                Some(old)
            }
            Err(place) => {
                let len = Varint::new(field.len());
                self.by_field.insert(place, tag, &[&at_ms.to_le_bytes(), len.as_bytes(), field]);
                None
            }
        };
        self.by_time.insert((at_ms, tag));
        old
    }

    pub fn remove(&mut self, field: &[u8]) -> Option<u64> {
        let tag = self.by_field.tag(field);
        let place = self.find(tag, field).ok()?;
        let at_ms = parts(self.by_field.payload(place)).1;
        self.by_field.remove(place);
        self.forget_time(at_ms, tag);
        Some(at_ms)
    }

    pub fn earliest(&self) -> Option<u64> {
        self.by_time.first().map(|&(at_ms, _)| at_ms)
    }

    /// Takes a field whose deadline is at or before `now_ms`, and removes that deadline.
    pub fn take_due(&mut self, now_ms: u64) -> Option<Vec<u8>> {
        let &(at_ms, tag) = self.by_time.first().filter(|&&(at_ms, _)| at_ms <= now_ms)?;
        let found = self.by_field.find(tag, |payload| parts(payload).1 == at_ms);
        let place = found.expect("every deadline has its field");
        let field = parts(self.by_field.payload(place)).0.to_vec();
        self.by_field.remove(place);
        self.forget_time(at_ms, tag);
        Some(field)
    }

    /// The tags of the fields that [`Deadlines::take_due`] would return.
    pub fn due(&self, now_ms: u64) -> impl Iterator<Item = u32> {
        self.by_time.iter().take_while(move |&&(at_ms, _)| at_ms <= now_ms).map(|&(_, tag)| tag)
    }

    /// How many fields have expired.
    pub fn due_count(&self, now_ms: u64) -> usize {
        // `by_time` has fields with one tag and one deadline once.
        self.by_field.iter().filter(|payload| parts(payload).1 <= now_ms).count()
    }

    pub fn mem_bytes(&self) -> usize {
        // The nodes of the B-tree are two thirds full on average.
        malloc_bytes(size_of::<Deadlines>()) + self.by_field.mem_bytes() + self.by_time.len() * 24
    }

    /// Appends the number of deadlines, then all deadlines with their fields.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(Varint::new(self.by_field.len()).as_bytes());
        self.by_field.iter().for_each(|payload| out.extend_from_slice(payload));
    }

    /// Visits what [`Deadlines::encode`] wrote, up to the end of the bytes. There is at least one.
    pub fn decode(bytes: &[u8], mut visit: impl FnMut(&[u8], u64) -> Result<(), Corrupt>) -> Result<(), Corrupt> {
        let (count, mut at) = varint::read(bytes, 0).filter(|&(count, _)| count > 0).ok_or(Corrupt)?;
        for _ in 0..count {
            let at_ms = bytes.get(at..).and_then(<[u8]>::first_chunk).ok_or(Corrupt)?;
            let field = varint::read_part(bytes, at + AT_BYTES).ok_or(Corrupt)?;
            at = field.end;
            visit(&bytes[field], u64::from_le_bytes(*at_ms))?;
        }
        if at == bytes.len() { Ok(()) } else { Err(Corrupt) }
    }

    fn find(&self, tag: u32, field: &[u8]) -> Result<TaggedPosition, TaggedPosition> {
        self.by_field.find(tag, |payload| parts(payload).0 == field)
    }

    /// Removes the time of a field with this tag whose deadline was changed or removed, unless another field has both
    /// the same tag and the same deadline.
    fn forget_time(&mut self, at_ms: u64, tag: u32) {
        if self.by_field.find(tag, |payload| parts(payload).1 == at_ms).is_err() {
            self.by_time.remove(&(at_ms, tag));
        }
    }
}
