//! Owns the packed set of integers. Never knows when a set is too large for it.
//!
//! ```text
//! width     1 byte: 2, 4 or 8
//! integers  of so many bytes each, two's complement, little-endian, ascending
//! ```
//! The width is that of the widest integer that was ever in the set. Malformed bytes (possible only if a flash page is
//! wrong despite its checksum) are read as far as they go. They never cause a panic.

use crate::{Buffer, Corrupt};

/// The empty set.
pub const EMPTY: &[u8] = &[2];

fn width(bytes: &[u8]) -> usize {
    match bytes.first() {
        Some(4) => 4,
        Some(8) => 8,
        _ => 2,
    }
}

fn width_of(value: i64) -> usize {
    if i16::try_from(value).is_ok() {
        2
    } else if i32::try_from(value).is_ok() {
        4
    } else {
        8
    }
}

pub fn len(bytes: &[u8]) -> usize {
    bytes.len().saturating_sub(1) / width(bytes)
}

/// The integer at `index`, which must be below the length.
#[inline]
pub fn get(bytes: &[u8], index: usize) -> i64 {
    let width = width(bytes);
    let at = 1 + index * width;
    let bytes = &bytes[at..at + width];
    match *bytes {
        [a, b] => i16::from_le_bytes([a, b]).into(),
        [a, b, c, d] => i32::from_le_bytes([a, b, c, d]).into(),
        _ => i64::from_le_bytes(bytes.try_into().expect("eight bytes")),
    }
}

pub fn iter(bytes: &[u8]) -> impl DoubleEndedIterator<Item = i64> + Clone + '_ {
    (0..len(bytes)).map(|index| get(bytes, index))
}

/// The index of the integer, or the index to insert it at.
fn search(bytes: &[u8], value: i64) -> Result<usize, usize> {
    let (mut low, mut high) = (0, len(bytes));
    while low < high {
        let middle = low + (high - low) / 2;
        match get(bytes, middle).cmp(&value) {
            std::cmp::Ordering::Equal => return Ok(middle),
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
        }
    }
    Err(low)
}

pub fn contains(bytes: &[u8], value: i64) -> bool {
    search(bytes, value).is_ok()
}

/// True: the integer is new.
pub fn insert<B: Buffer + ?Sized>(buffer: &mut B, value: i64) -> bool {
    let bytes = buffer.bytes();
    let Err(index) = search(bytes, value) else {
        return false;
    };
    let (old, new) = (width(bytes), width(bytes).max(width_of(value)));
    if bytes.is_empty() || new > old {
        let mut wider = Vec::with_capacity(1 + (len(bytes) + 1) * new);
        wider.push(new as u8);
        iter(bytes).for_each(|value| wider.extend_from_slice(&value.to_le_bytes()[..new]));
        let whole = 0..bytes.len();
        buffer.splice(whole, &[&wider]);
    }
    let at = 1 + index * new;
    buffer.splice(at..at, &[&value.to_le_bytes()[..new]]);
    true
}

/// True: the integer was there.
pub fn remove<B: Buffer + ?Sized>(buffer: &mut B, value: i64) -> bool {
    let Ok(index) = search(buffer.bytes(), value) else {
        return false;
    };
    let width = width(buffer.bytes());
    let at = 1 + index * width;
    buffer.splice(at..at + width, &[]);
    true
}

pub fn check(bytes: &[u8]) -> Result<(), Corrupt> {
    let (&[width], integers) = bytes.split_at_checked(1).ok_or(Corrupt)? else { return Err(Corrupt) };
    let whole = matches!(width, 2 | 4 | 8) && integers.len().is_multiple_of(width.into());
    let ascending = whole && iter(bytes).is_sorted_by(|a, b| a < b);
    if ascending { Ok(()) } else { Err(Corrupt) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_wider_integer_widens_all() {
        let mut set = EMPTY.to_vec();
        assert!(insert(&mut set, 5));
        assert!(insert(&mut set, -3));
        assert_eq!(set, [2, 0xfd, 0xff, 5, 0]);
        assert!(insert(&mut set, 70_000));
        assert_eq!(set.len(), 1 + 3 * 4);
        assert!(insert(&mut set, i64::MIN));
        assert!(!insert(&mut set, i64::MIN));
        assert_eq!(iter(&set).collect::<Vec<_>>(), [i64::MIN, -3, 5, 70_000]);
        assert!(remove(&mut set, 5));
        assert!(!remove(&mut set, 5));
        assert_eq!(check(&set), Ok(()));
    }

    #[test]
    fn hostile_bytes_are_refused() {
        for bytes in [&[][..], &[1], &[3, 0, 0, 0], &[2, 1], &[2, 5, 0, 4, 0], &[2, 5, 0, 5, 0], &[8, 0, 0, 0, 0]] {
            assert_eq!(check(bytes), Err(Corrupt), "{bytes:?}");
            contains(bytes, 4);
        }
    }

    proptest! {
        #[test]
        fn behaves_as_a_sorted_set(ops in proptest::collection::vec((any::<bool>(), prop_oneof![-9..9i64, any::<i64>(), any::<i32>().prop_map(i64::from)]), 0..80)) {
            let (mut set, mut model) = (EMPTY.to_vec(), BTreeSet::new());
            for (adds, value) in ops {
                if adds {
                    prop_assert_eq!(insert(&mut set, value), model.insert(value));
                } else {
                    prop_assert_eq!(remove(&mut set, value), model.remove(&value));
                }
            }
            prop_assert_eq!(check(&set), Ok(()));
            prop_assert_eq!(len(&set), model.len());
            prop_assert!(iter(&set).eq(model.iter().copied()));
        }
    }
}
