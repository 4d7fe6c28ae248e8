//! Owns the map from a member to its leaf: a table of leaf numbers by the members' tags. Never knows members: each
//! costs 8 bytes here, and its name is only in its leaf.

use crate::Corrupt;
use crate::input::Input;
use crate::part::{Absent, FlashCopies, FlashCopiesOf, Part, Parts};
use crate::tagged::{Shape, Step, TAG_BYTES, Tagged, TaggedPosition};
use std::sync::Arc;

#[derive(Clone)]
struct LeafNumber;

const BYTES: usize = 4;

impl Shape for LeafNumber {
    #[inline]
    fn checked_end(bytes: &[u8], at: usize) -> Option<usize> {
        (at + BYTES <= bytes.len()).then_some(at + BYTES)
    }
}

/// Parts of the index have this bit in their numbers; leaves have not.
const FAMILY: u64 = 1 << 32;

#[derive(Clone, Default)]
pub struct Index {
    leaves: Tagged<LeafNumber>,
}

fn number(payload: &[u8]) -> u32 {
    u32::from_le_bytes(payload.try_into().expect("four bytes"))
}

impl Index {
    #[inline]
    pub fn tag(&self, member: &[u8]) -> u32 {
        self.leaves.tag(member)
    }

    /// The leaf with this tag for which `holds` is true, or the place to insert it.
    #[inline]
    pub fn find(&self, tag: u32, mut holds: impl FnMut(u32) -> bool) -> Result<u32, TaggedPosition> {
        self.leaves.find(tag, |payload| holds(number(payload))).map(|place| number(self.leaves.payload(place)))
    }

    pub fn insert(&mut self, place: TaggedPosition, tag: u32, leaf: u32) {
        self.leaves.insert(place, tag, &[&leaf.to_le_bytes()]);
    }

    /// Records that a member moved to another leaf. Two members with the same tag in the same leaf are
    /// indistinguishable here, which does no harm.
    pub fn move_to(&mut self, tag: u32, from: u32, to: u32) {
        let place = self.place(tag, from);
        self.leaves.payload_mut(place).copy_from_slice(&to.to_le_bytes());
    }

    pub fn remove(&mut self, tag: u32, leaf: u32) {
        let place = self.place(tag, leaf);
        self.leaves.remove(place);
    }

    fn place(&self, tag: u32, leaf: u32) -> TaggedPosition {
        self.leaves.find(tag, |payload| number(payload) == leaf).expect("every member is in the index")
    }

    /// See [`Tagged::scan`]. Visits tags with their leaves.
    pub fn scan(&self, cursor: u64, count: usize, visit: &mut dyn FnMut(u32, u32)) -> Step {
        self.leaves.scan(cursor, count, &mut |tag, payload| visit(tag, number(payload)))
    }

    pub fn mem_bytes(&self) -> usize {
        self.leaves.mem_bytes()
    }

    #[cfg(test)]
    pub fn check(&self, len: usize) {
        self.leaves.check();
        assert_eq!(self.leaves.len(), len);
    }
}

/// The index in a skeleton: see `crate::skeleton`.
impl Index {
    pub fn len(&self) -> usize {
        self.leaves.len()
    }

    pub fn save(&self, out: &mut Vec<u8>) {
        self.leaves.save(out);
    }

    pub fn load(input: &mut Input<'_>) -> Result<Index, Corrupt> {
        Ok(Index { leaves: Tagged::load(input)? })
    }

    /// Whether the leaf numbers that are in memory are below `leaves`.
    pub fn is_sound(&self, leaves: usize) -> bool {
        let numbers = std::iter::successors(self.next_part(FAMILY), |&number| self.next_part(number + 1));
        let mut parts = numbers.filter_map(|number| Some((number, self.part(number)?)));
        parts.all(|(number, part)| part.is_absent() || self.accepts(number, part.peek(), leaves))
    }
}

/// The parts of the index.
impl Index {
    /// Whether the entries of this tag are in memory.
    pub fn is_here(&self, tag: u32) -> bool {
        self.leaves.is_here(tag)
    }

    /// Records the part for this tag.
    pub fn want(&self, tag: u32, out: &mut Absent) {
        let before = out.len();
        self.leaves.want(tag, out);
        out[before..].iter_mut().for_each(|part| part.number |= FAMILY);
    }

    /// Records the parts for a step of a walk.
    pub fn want_scan(&self, cursor: u64, count: usize, out: &mut Absent) {
        let before = out.len();
        self.leaves.want_scan(cursor, count, out);
        out[before..].iter_mut().for_each(|part| part.number |= FAMILY);
    }

    /// Whether this number belongs to a part of the index.
    pub fn owns(number: u64) -> bool {
        number >= FAMILY
    }

    pub fn flash_copies(&self) -> &FlashCopiesOf {
        self.leaves.flash_copies()
    }

    pub fn set_flash_copies(&mut self, flash_copies: Arc<dyn FlashCopies>) {
        self.leaves.set_flash_copies(flash_copies);
    }

    pub fn part(&self, number: u64) -> Option<&Part> {
        self.leaves.part(number ^ FAMILY)
    }

    pub fn part_mut(&mut self, number: u64) -> Option<&mut Part> {
        self.leaves.part_mut(number ^ FAMILY)
    }

    pub fn next_part(&self, from: u64) -> Option<u64> {
        self.leaves.next_part(from.saturating_sub(FAMILY)).map(|number| number | FAMILY)
    }

    /// Whether bytes from flash can be the content of this absent part. Leaf numbers must be below `leaves`.
    pub fn accepts(&self, number: u64, bytes: &[u8], leaves: usize) -> bool {
        let is_known = |entry: &[u8]| (self::number(&entry[TAG_BYTES..]) as usize) < leaves;
        self.leaves.accepts(number ^ FAMILY, bytes) && bytes.chunks_exact(TAG_BYTES + BYTES).all(is_known)
    }

    pub fn grown(&mut self, number: u64, by: isize) {
        self.leaves.grown(number ^ FAMILY, by);
    }
}
