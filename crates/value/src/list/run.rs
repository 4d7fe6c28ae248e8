//! Owns a run of a list's elements, in order. Never knows how many there are.
//!
//! ```text
//! length   varint (1 byte below 128)
//! bytes
//! length   the same varint, last byte first, so that a walk can begin at the end
//! ... the next element
//! ```
//! There is no header and no end mark: zero bytes are the empty run. Malformed bytes end the run early. They never
//! cause a panic or a read past the end.

use crate::varint::{self, Varint};
use crate::{Buffer, Corrupt};
use std::ops::Range;

/// The position of an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementSpan {
    /// With both lengths included.
    pub whole: Range<usize>,
    pub bytes: Range<usize>,
}

/// The size of an element of `len` bytes in the run.
#[inline]
pub fn size(len: usize) -> usize {
    len + 2 * varint::width(len)
}

/// The element that starts at `at`.
#[inline]
pub fn at(bytes: &[u8], at: usize) -> Option<ElementSpan> {
    let part = varint::read_part(bytes, at)?;
    let end = part.end + varint::width(part.len());
    (end <= bytes.len()).then_some(ElementSpan { whole: at..end, bytes: part })
}

/// The element that ends at `end`.
#[inline]
pub fn before(bytes: &[u8], end: usize) -> Option<ElementSpan> {
    let (len, tail) = varint::read_back(bytes, end)?;
    let start = tail.checked_sub(len)?;
    let head = start.checked_sub(varint::width(len))?;
    Some(ElementSpan { whole: head..end, bytes: start..tail })
}

/// The elements, from either end.
#[derive(Clone)]
pub struct Iter<'a> {
    bytes: &'a [u8],
    front: usize,
    back: usize,
}

pub fn iter(bytes: &[u8]) -> Iter<'_> {
    Iter { bytes, front: 0, back: bytes.len() }
}

impl Iter<'_> {
    #[inline]
    fn forward(&mut self) -> Option<ElementSpan> {
        if self.front >= self.back {
            return None;
        }
        let place = at(self.bytes, self.front)?;
        self.front = place.whole.end;
        Some(place)
    }

    #[inline]
    fn backward(&mut self) -> Option<ElementSpan> {
        if self.front >= self.back {
            return None;
        }
        let place = before(self.bytes, self.back)?;
        self.back = place.whole.start;
        Some(place)
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.forward().map(|place| &self.bytes[place.bytes])
    }
}

impl<'a> DoubleEndedIterator for Iter<'a> {
    #[inline]
    fn next_back(&mut self) -> Option<&'a [u8]> {
        self.backward().map(|place| &self.bytes[place.bytes])
    }
}

/// The number of elements. Walks all of them.
pub fn len(bytes: &[u8]) -> usize {
    iter(bytes).count()
}

/// The position of element `index` of `count`, found from the nearer end. For `count`: the end of the run.
pub fn offset(bytes: &[u8], index: usize, count: usize) -> usize {
    if index <= count / 2 { offset_front(bytes, index) } else { offset_back(bytes, count.saturating_sub(index)) }
}

fn offset_front(bytes: &[u8], index: usize) -> usize {
    let mut walk = iter(bytes);
    for _ in 0..index {
        if walk.forward().is_none() {
            return bytes.len();
        }
    }
    walk.front
}

/// The position of the element with `behind` elements after it.
fn offset_back(bytes: &[u8], behind: usize) -> usize {
    let mut walk = iter(bytes);
    for _ in 0..behind {
        if walk.backward().is_none() {
            return 0;
        }
    }
    walk.back
}

/// Inserts an element before byte `at`, which must be the start of an element or the end.
pub fn insert<B: Buffer + ?Sized>(buffer: &mut B, at: usize, element: &[u8]) {
    replace(buffer, at..at, element);
}

pub fn push_front<B: Buffer + ?Sized>(buffer: &mut B, element: &[u8]) {
    insert(buffer, 0, element);
}

pub fn push_back<B: Buffer + ?Sized>(buffer: &mut B, element: &[u8]) {
    let end = buffer.bytes().len();
    insert(buffer, end, element);
}

/// Replaces the bytes `whole` by an element, or removes them.
pub fn replace<B: Buffer + ?Sized>(buffer: &mut B, whole: Range<usize>, element: &[u8]) {
    let len = Varint::new(element.len());
    buffer.splice(whole, &[len.as_bytes(), element, len.reversed().as_bytes()]);
}

/// Removes up to `max` elements equal to `element`, from the front or the back. Returns how many.
pub fn remove_equal<B: Buffer + ?Sized>(buffer: &mut B, element: &[u8], max: usize, from_back: bool) -> usize {
    let mut cuts = Vec::new();
    let mut walk = iter(buffer.bytes());
    while cuts.len() < max {
        let Some(place) = (if from_back { walk.backward() } else { walk.forward() }) else { break };
        if &walk.bytes[place.bytes] == element {
            cuts.push(place.whole);
        }
    }
    if from_back {
        cuts.reverse();
    }
    let Some(first) = cuts.first() else { return 0 };
    // Each kept byte moves once, whatever the number of removed elements.
    let mut kept_to = first.start;
    let bytes = buffer.bytes_mut();
    for (n, cut) in cuts.iter().enumerate() {
        let next = cuts.get(n + 1).map_or(bytes.len(), |next| next.start);
        bytes.copy_within(cut.end..next, kept_to);
        kept_to += next - cut.end;
    }
    let end = bytes.len();
    buffer.splice(kept_to..end, &[]);
    cuts.len()
}

/// The number of elements, if the bytes are a run up to their last byte.
pub fn count(bytes: &[u8]) -> Result<usize, Corrupt> {
    let (mut walk, mut count) = (iter(bytes), 0);
    while let Some(place) = walk.forward() {
        let len = Varint::new(place.bytes.len());
        // A longer encoding of the same length would be found only by a walk from the front.
        let is_sound = bytes[place.whole.start..place.bytes.start] == *len.as_bytes()
            && bytes[place.bytes.end..place.whole.end] == *len.reversed().as_bytes();
        if !is_sound {
            return Err(Corrupt);
        }
        count += 1;
    }
    if walk.front == bytes.len() { Ok(count) } else { Err(Corrupt) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run_of(elements: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        elements.iter().for_each(|element| push_back(&mut bytes, element));
        bytes
    }

    #[test]
    fn a_short_element_costs_two_bytes_of_overhead() {
        assert_eq!(run_of(&[b"a", b"", b"xyz"]), b"\x01a\x01\x00\x00\x03xyz\x03");
        for len in [0, 1, 127, 128, 16_383, 16_384, 100_000] {
            assert_eq!(run_of(&[&vec![b'x'; len]]).len(), size(len));
        }
    }

    #[test]
    fn elements_are_found_from_both_ends() {
        let long = vec![b'l'; 300];
        let bytes = run_of(&[b"a", &long, b"", b"c"]);
        for (index, element) in [&b"a"[..], &long, b"", b"c"].into_iter().enumerate() {
            let place = at(&bytes, offset(&bytes, index, 4)).unwrap();
            assert_eq!(&bytes[place.bytes.clone()], element);
            assert_eq!(before(&bytes, place.whole.end), Some(place));
        }
        assert_eq!((offset(&bytes, 4, 4), offset(&bytes, 9, 4)), (bytes.len(), bytes.len()));
        assert_eq!((at(&bytes, bytes.len()), before(&bytes, 0)), (None, None));
    }

    #[test]
    fn equal_elements_are_removed_from_the_asked_end() {
        for (max, from_back, left, gone) in [
            (9, false, &[b"b"][..], 3),
            (2, false, &[b"b", b"a"], 2),
            (2, true, &[b"a", b"b"], 2),
            (0, false, &[b"a", b"a", b"b", b"a"], 0),
        ] {
            let mut bytes = run_of(&[b"a", b"a", b"b", b"a"]);
            assert_eq!(remove_equal(&mut bytes, b"a", max, from_back), gone);
            assert_eq!(iter(&bytes).collect::<Vec<_>>(), left);
        }
    }

    proptest! {
        #[test]
        fn behaves_as_a_vector(ops in proptest::collection::vec((0..5u8, 0..40usize, "[ab]{0,3}|[xy]{120,140}"), 0..80)) {
            let (mut bytes, mut model) = (Vec::new(), Vec::<Vec<u8>>::new());
            for (op, at, element) in ops {
                let element = element.into_bytes();
                match op {
                    0 => { push_front(&mut bytes, &element); model.insert(0, element); }
                    1 => { push_back(&mut bytes, &element); model.push(element); }
                    2 => { let at = at.min(model.len()); let to = offset(&bytes, at, model.len()); insert(&mut bytes, to, &element); model.insert(at, element); }
                    3 if at < model.len() => {
                        let place = super::at(&bytes, offset(&bytes, at, model.len())).unwrap();
                        replace(&mut bytes, place.whole, &element);
                        model[at] = element;
                    }
                    3 => {}
                    _ => {
                        let had = model.len();
                        model.retain(|other| *other != element);
                        prop_assert_eq!(remove_equal(&mut bytes, &element, usize::MAX, at % 2 == 0), had - model.len());
                    }
                }
                prop_assert_eq!(count(&bytes), Ok(model.len()));
            }
            prop_assert_eq!(iter(&bytes).collect::<Vec<_>>(), model.iter().collect::<Vec<_>>());
            prop_assert_eq!(iter(&bytes).rev().collect::<Vec<_>>(), model.iter().rev().collect::<Vec<_>>());
        }

        #[test]
        fn hostile_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), index in 0..20usize) {
            let whole = count(&bytes);
            prop_assert!(len(&bytes) <= bytes.len() / 2 + 1);
            prop_assert!(iter(&bytes).rev().count() <= bytes.len());
            if let Ok(count) = whole {
                prop_assert_eq!(iter(&bytes).rev().count(), count);
            }
            remove_equal(&mut bytes, b"", usize::MAX, index < 10);
            for at in [offset(&bytes, index, 20), offset(&bytes, index, 0)] {
                insert(&mut bytes, at, b"x");
            }
        }
    }
}
