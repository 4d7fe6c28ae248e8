//! Owns the way from a member to the leaf that it is in: a table of leaf numbers by the members' tags. Never knows
//! members, so each costs 8 bytes here and stands in its leaf alone.

use crate::tagged::{Place, Shape, Step, Tagged};

#[derive(Clone)]
struct LeafNumber;

const BYTES: usize = 4;

impl Shape for LeafNumber {
    #[inline]
    fn checked_end(bytes: &[u8], at: usize) -> Option<usize> {
        (at + BYTES <= bytes.len()).then_some(at + BYTES)
    }
}

#[derive(Clone, Default)]
pub struct Index {
    leaves: Tagged<LeafNumber>,
}

fn number(payload: &[u8]) -> u32 {
    u32::from_le_bytes(payload.try_into().expect("four bytes"))
}

impl Index {
    /// The leaf with this tag of which `holds` is true, or where its number belongs.
    #[inline]
    pub fn find(&self, tag: u32, mut holds: impl FnMut(u32) -> bool) -> Result<u32, Place> {
        self.leaves.find(tag, |payload| holds(number(payload))).map(|place| number(self.leaves.payload(place)))
    }

    pub fn insert(&mut self, place: Place, tag: u32, leaf: u32) {
        self.leaves.insert(place, tag, &[&leaf.to_le_bytes()]);
    }

    /// A member has gone to another leaf. Two with the same tag in the same leaf cannot be told apart, and need not.
    pub fn move_to(&mut self, tag: u32, from: u32, to: u32) {
        let place = self.place(tag, from);
        self.leaves.payload_mut(place).copy_from_slice(&to.to_le_bytes());
    }

    pub fn remove(&mut self, tag: u32, leaf: u32) {
        let place = self.place(tag, leaf);
        self.leaves.remove(place);
    }

    fn place(&self, tag: u32, leaf: u32) -> Place {
        self.leaves.find(tag, |payload| number(payload) == leaf).expect("every member is in the index")
    }

    /// See [`Tagged::scan`]; visits tags with leaves.
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
