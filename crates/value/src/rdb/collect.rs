//! Owns strings that were read, one after another in one allocation. Never knows what they belong to.

use crate::Corrupt;
use crate::listpack::Element;

/// Many strings, with an overhead of eight bytes each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Parts {
    pub fn new() -> Parts {
        Parts::default()
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of all strings together.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator + Clone {
        (0..self.ends.len()).map(|at| {
            let start = if at == 0 { 0 } else { self.ends[at - 1] };
            &self.bytes[start..self.ends[at]]
        })
    }

    /// The strings in pairs.
    pub fn pairs(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        self.iter().step_by(2).zip(self.iter().skip(1).step_by(2))
    }

    /// Appends a string. Its length must be below 2^32, because values are limited to that.
    pub fn push(&mut self, part: &[u8]) -> Result<(), Corrupt> {
        if u32::try_from(part.len()).is_err() {
            return Err(Corrupt);
        }
        self.bytes.extend_from_slice(part);
        self.ends.push(self.bytes.len());
        Ok(())
    }

    pub(super) fn push_element(&mut self, element: Element<'_>) -> Result<(), Corrupt> {
        match element {
            Element::Bytes(bytes) => self.push(bytes),
            Element::Int(number) => self.push(number.to_string().as_bytes()),
        }
    }

    pub fn append(&mut self, more: &Parts) -> Result<(), Corrupt> {
        more.iter().try_for_each(|part| self.push(part))
    }
}
