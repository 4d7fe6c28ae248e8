//! Owns the packed set of any members. Never knows when a set is too large for it.
//!
//! ```text
//! mark            1 byte: 0
//! member length   varint (1 byte below 128)
//! member
//! ... the next member
//! ```
//! Members are in the order of insertion. Malformed bytes (possible only if a flash page is wrong despite its checksum)
//! end the set early. They never cause a panic.

use crate::varint::{self, Varint};
use crate::{Buffer, Corrupt};
use std::ops::Range;

/// The first byte, which is not a width of integers.
pub const MARK: u8 = 0;
/// The empty set.
pub const EMPTY: &[u8] = &[MARK];

#[derive(Clone)]
pub struct Iter<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let member = varint::read_part(self.bytes, self.at)?;
        self.at = member.end;
        Some(&self.bytes[member])
    }
}

pub fn iter(bytes: &[u8]) -> Iter<'_> {
    Iter { bytes, at: 1 }
}

/// The number of members. Walks all of them.
pub fn len(bytes: &[u8]) -> usize {
    iter(bytes).count()
}

pub fn contains(bytes: &[u8], member: &[u8]) -> bool {
    iter(bytes).any(|other| other.len() == member.len() && other == member)
}

/// The range of the member with its length.
fn find(bytes: &[u8], member: &[u8]) -> Option<Range<usize>> {
    let mut at = 1;
    loop {
        let other = varint::read_part(bytes, at)?;
        if other.len() == member.len() && &bytes[other.clone()] == member {
            return Some(at..other.end);
        }
        at = other.end;
    }
}

/// Adds a member. The caller knows that it does not exist.
pub fn append<B: Buffer + ?Sized>(buffer: &mut B, member: &[u8]) {
    let end = buffer.bytes().len();
    let len = Varint::new(member.len());
    let mark: &[u8] = if end == 0 { EMPTY } else { &[] };
    buffer.splice(end..end, &[mark, len.as_bytes(), member]);
}

/// True: the member was there.
pub fn remove<B: Buffer + ?Sized>(buffer: &mut B, member: &[u8]) -> bool {
    let found = find(buffer.bytes(), member);
    if let Some(range) = found.clone() {
        buffer.splice(range, &[]);
    }
    found.is_some()
}

pub fn check(bytes: &[u8]) -> Result<(), Corrupt> {
    let mut members = iter(bytes);
    while members.next().is_some() {}
    if bytes.first() == Some(&MARK) && members.at == bytes.len() { Ok(()) } else { Err(Corrupt) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_as_a_list_without_duplicates(ops in proptest::collection::vec((any::<bool>(), "[a-c]{0,3}|x{150}"), 0..60)) {
            let (mut set, mut model) = (EMPTY.to_vec(), Vec::<String>::new());
            for (adds, member) in ops {
                let at = model.iter().position(|other| *other == member);
                prop_assert_eq!(contains(&set, member.as_bytes()), at.is_some());
                match (adds, at) {
                    (true, None) => { append(&mut set, member.as_bytes()); model.push(member); }
                    (true, Some(_)) => {}
                    (false, at) => {
                        prop_assert_eq!(remove(&mut set, member.as_bytes()), at.is_some());
                        at.map(|at| model.remove(at));
                    }
                }
            }
            prop_assert_eq!(check(&set), Ok(()));
            prop_assert_eq!(len(&set), model.len());
            prop_assert!(iter(&set).eq(model.iter().map(String::as_bytes)));
        }

        #[test]
        fn hostile_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let whole = check(&bytes).is_ok();
            contains(&bytes, b"a");
            remove(&mut bytes, b"");
            append(&mut bytes, b"a");
            prop_assert!(!whole || check(&bytes).is_ok());
        }
    }
}
