//! Owns the packed form of a list: its length and a [`run`] of its elements, together one run of bytes. Never knows
//! when a list is too large for it.
//!
//! ```text
//! 0..2   number of elements, little-endian
//! 2..    the elements, as a run
//! ```
//! The length serves LLEN and the reply of every push, and an index can be reached from the nearer end. A chunk of 64
//! KB, the largest that `list-max-listpack-size` allows, holds less than 65,536 elements of two bytes or more.

use crate::list::{Limit, run};
use crate::{Buffer, Corrupt};
use std::ops::Range;

pub const HEADER_BYTES: usize = 2;

/// A packed list from a run of `count` elements.
pub fn of(run: &[u8], count: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + run.len());
    bytes.extend_from_slice(&header(count));
    bytes.extend_from_slice(run);
    bytes
}

fn header(count: usize) -> [u8; HEADER_BYTES] {
    u16::try_from(count).expect("the limit keeps packed lists short").to_le_bytes()
}

#[inline]
pub fn len(bytes: &[u8]) -> usize {
    bytes.first_chunk().map_or(0, |header| u16::from_le_bytes(*header) as usize)
}

#[inline]
pub fn run(bytes: &[u8]) -> &[u8] {
    bytes.get(HEADER_BYTES..).unwrap_or_default()
}

/// Whether the list may stay packed with this much more in it.
pub fn may_grow(bytes: &[u8], limit: Limit, more_bytes: usize, more_elements: usize) -> bool {
    limit.allows(run(bytes).len().saturating_add(more_bytes), len(bytes).saturating_add(more_elements))
}

/// The position of element `index` in the run.
pub fn offset(bytes: &[u8], index: usize) -> usize {
    run::offset(run(bytes), index, len(bytes))
}

pub fn get(bytes: &[u8], index: usize) -> Option<&[u8]> {
    let run = run(bytes);
    let place = run::at(run, offset(bytes, index))?;
    Some(&run[place.bytes])
}

/// The bytes after the header. Changes also update the number of elements.
struct Body<'b, B: Buffer + ?Sized>(&'b mut B);

impl<B: Buffer + ?Sized> Buffer for Body<'_, B> {
    fn bytes(&self) -> &[u8] {
        run(self.0.bytes())
    }
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0.bytes_mut()[HEADER_BYTES..]
    }
    fn splice(&mut self, at: Range<usize>, with: &[&[u8]]) {
        self.0.splice(at.start + HEADER_BYTES..at.end + HEADER_BYTES, with);
    }
}

fn set_len<B: Buffer + ?Sized>(buffer: &mut B, count: usize) {
    buffer.bytes_mut()[..HEADER_BYTES].copy_from_slice(&header(count));
}

/// Inserts a run of `count` elements before byte `at` of the run.
pub fn insert_run<B: Buffer + ?Sized>(buffer: &mut B, at: usize, run: &[u8], count: usize) {
    Body(buffer).splice(at..at, &[run]);
    set_len(buffer, len(buffer.bytes()) + count);
}

/// Inserts an element before byte `at` of the run.
pub fn insert<B: Buffer + ?Sized>(buffer: &mut B, at: usize, element: &[u8]) {
    run::insert(&mut Body(buffer), at, element);
    set_len(buffer, len(buffer.bytes()) + 1);
}

/// Changes the element at `index`, which must exist.
pub fn set<B: Buffer + ?Sized>(buffer: &mut B, index: usize, element: &[u8]) {
    if let Some(place) = run::at(run(buffer.bytes()), offset(buffer.bytes(), index)) {
        run::replace(&mut Body(buffer), place.whole, element);
    }
}

/// Removes the elements at these indices, which must exist.
pub fn remove<B: Buffer + ?Sized>(buffer: &mut B, indices: Range<usize>) {
    let cut = offset(buffer.bytes(), indices.start)..offset(buffer.bytes(), indices.end);
    Body(buffer).splice(cut.start..cut.end.max(cut.start), &[]);
    set_len(buffer, len(buffer.bytes()).saturating_sub(indices.len()));
}

/// Removes up to `max` elements equal to `element`, from the front or the back. Returns how many.
pub fn remove_equal<B: Buffer + ?Sized>(buffer: &mut B, element: &[u8], max: usize, from_back: bool) -> usize {
    let removed = run::remove_equal(&mut Body(buffer), element, max, from_back);
    set_len(buffer, len(buffer.bytes()).saturating_sub(removed));
    removed
}

/// Whether the bytes are a packed list up to their last byte.
pub fn check(bytes: &[u8]) -> Result<(), Corrupt> {
    let is_sound = bytes.len() >= HEADER_BYTES && run::count(run(bytes))? == len(bytes);
    if is_sound { Ok(()) } else { Err(Corrupt) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_length_comes_before_the_elements() {
        let mut list = of(&[], 0);
        insert(&mut list, 0, b"b");
        insert(&mut list, 0, b"a");
        assert_eq!(list, b"\x02\0\x01a\x01\x01b\x01");
        insert_run(&mut list, 6, b"\x01c\x01\x00\x00", 2);
        assert_eq!((len(&list), get(&list, 2), get(&list, 3)), (4, Some(&b"c"[..]), Some(&b""[..])));
        set(&mut list, 3, b"last");
        remove(&mut list, 0..2);
        assert_eq!(run::iter(run(&list)).collect::<Vec<_>>(), [&b"c"[..], b"last"]);
        assert_eq!(remove_equal(&mut list, b"c", 9, false), 1);
        assert_eq!((len(&list), check(&list)), (1, Ok(())));
        remove(&mut list, 0..1);
        assert_eq!(list, [0, 0]);
    }

    #[test]
    fn malformed_lists_are_detected() {
        for bytes in [&b""[..], b"\0", b"\x01\0", b"\0\0\x01a\x01", b"\x01\0\x01a\x02", b"\x01\0\x01a\x01x"] {
            assert_eq!(check(bytes), Err(Corrupt), "{bytes:?}");
        }
    }

    #[test]
    fn a_limit_counts_bytes_as_redis_does() {
        let list = of(b"\x01a\x01", 1);
        assert!(may_grow(&list, Limit::of(-1), 4096 - 7 - 3, 1));
        assert!(!may_grow(&list, Limit::of(-1), 4096 - 7 - 2, 1));
        assert!(may_grow(&list, Limit::of(2), 10, 1) && !may_grow(&list, Limit::of(2), 10, 2));
        assert!(!may_grow(&list, Limit::of(-5), usize::MAX, usize::MAX));
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 2..100), a in 0..40usize, b in 0..40usize) {
            get(&bytes, a);
            set(&mut bytes, a, b"x");
            remove(&mut bytes, a.min(b)..a.max(b));
            remove_equal(&mut bytes, b"x", 3, true);
            let _ = check(&bytes);
        }
    }
}
