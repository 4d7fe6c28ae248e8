//! Owns Redis's listpack: strings and integers one after another in one run of bytes. Streams keep their entries in
//! it, and DUMP payloads hold collections in it. Never knows what the elements mean.
//!
//! ```text
//! bytes      4, little-endian: all of it, header and end included
//! elements   2, little-endian; 65,535: count them
//! element
//!   0nnnnnnn                       an integer of 0 to 127
//!   10llllll string                up to 63 bytes
//!   110nnnnn nnnnnnnn              an integer of 13 bits, signed
//!   1110llll llllllll string       up to 4,095 bytes
//!   11110000 length 4 string
//!   11110001 … 11110100 number     an integer of 2, 3, 4 or 8 bytes, little-endian
//!   length of the above            seven bits a byte, most significant first, the top bit set on all but the first
//! 11111111   the end
//! ```
//! Reading never trusts the bytes: a truncated element ends the walk.

use crate::Corrupt;

const HEADER_BYTES: usize = 6;
const END: u8 = 0xff;
const COUNT_UNKNOWN: u16 = u16::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element<'a> {
    Bytes(&'a [u8]),
    Int(i64),
}

impl Element<'_> {
    pub fn is(&self, text: &[u8]) -> bool {
        match self {
            Element::Bytes(bytes) => *bytes == text,
            Element::Int(number) => int(text) == Some(*number),
        }
    }

    pub fn to_vec(&self) -> Vec<u8> {
        match self {
            Element::Bytes(bytes) => bytes.to_vec(),
            Element::Int(number) => number.to_string().into_bytes(),
        }
    }

    pub fn int(&self) -> Option<i64> {
        match self {
            Element::Bytes(bytes) => int(bytes),
            Element::Int(number) => Some(*number),
        }
    }
}

/// The integer whose only decimal form is this text.
pub fn int(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > 19 || digits[0] == b'0' && text.len() > 1 {
        return None;
    }
    let mut value = 0i64;
    for digit in digits {
        let digit = i64::from(digit.checked_sub(b'0').filter(|digit| *digit <= 9)?);
        value = value.checked_mul(10)?;
        value = if negative { value.checked_sub(digit)? } else { value.checked_add(digit)? };
    }
    Some(value)
}

pub fn new() -> Vec<u8> {
    let mut list = vec![0; HEADER_BYTES];
    list.push(END);
    list[0] = list.len() as u8;
    list
}

/// The position of the first element.
pub const FIRST: usize = HEADER_BYTES;

/// Appends to a list what `write` pushes to it.
pub fn append(list: &mut Vec<u8>, write: impl FnOnce(&mut Pusher<'_>)) {
    list.pop();
    let mut pusher = Pusher { list, pushed: 0 };
    write(&mut pusher);
    let pushed = pusher.pushed;
    list.push(END);
    seal(list, pushed);
}

/// Corrects the header after `added` elements were appended.
fn seal(list: &mut [u8], added: usize) {
    let bytes = u32::try_from(list.len()).expect("a listpack is below 4 GB");
    list[..4].copy_from_slice(&bytes.to_le_bytes());
    let count = usize::from(u16::from_le_bytes([list[4], list[5]])).saturating_add(added);
    list[4..6].copy_from_slice(&(count.min(COUNT_UNKNOWN.into()) as u16).to_le_bytes());
}

/// Writes elements at the end of a list.
pub struct Pusher<'a> {
    list: &'a mut Vec<u8>,
    pushed: usize,
}

impl Pusher<'_> {
    pub fn bytes(&mut self, text: &[u8]) {
        match int(text) {
            Some(number) => self.int(number),
            None => {
                self.pushed += 1;
                push_bytes(self.list, text);
            }
        }
    }

    pub fn int(&mut self, number: i64) {
        self.pushed += 1;
        push_int(self.list, number);
    }
}

fn push_bytes(out: &mut Vec<u8>, text: &[u8]) {
    let start = out.len();
    match text.len() {
        len @ 0..64 => out.push(0x80 | len as u8),
        len @ 64..4096 => out.extend_from_slice(&[0xe0 | (len >> 8) as u8, len as u8]),
        len => {
            out.push(0xf0);
            out.extend_from_slice(&(len as u32).to_le_bytes());
        }
    }
    out.extend_from_slice(text);
    push_back_length(out, out.len() - start);
}

fn push_int(out: &mut Vec<u8>, number: i64) {
    let start = out.len();
    let fits = |bits: u32| (-(1i64 << (bits - 1))..1i64 << (bits - 1)).contains(&number);
    match number {
        0..128 => out.push(number as u8),
        _ if fits(13) => {
            let bits = number as u16 & 0x1fff;
            out.extend_from_slice(&[0xc0 | (bits >> 8) as u8, bits as u8]);
        }
        _ => {
            let (tag, bytes) = match () {
                () if fits(16) => (0xf1, 2),
                () if fits(24) => (0xf2, 3),
                () if fits(32) => (0xf3, 4),
                () => (0xf4, 8),
            };
            out.push(tag);
            out.extend_from_slice(&number.to_le_bytes()[..bytes]);
        }
    }
    push_back_length(out, out.len() - start);
}

/// How many bytes the length after an element takes. The bounds are Redis's, one below what would fit.
fn back_length_bytes(len: usize) -> usize {
    match len {
        0..128 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    }
}

fn push_back_length(out: &mut Vec<u8>, len: usize) {
    let bytes = back_length_bytes(len);
    for n in (0..bytes).rev() {
        let more = if n + 1 == bytes { 0 } else { 0x80 };
        out.push((len >> (7 * n)) as u8 & 0x7f | more);
    }
}

/// The element at `at` and the position of the next one. `None`: the end, or malformed bytes.
pub fn read(list: &[u8], at: usize) -> Option<(Element<'_>, usize)> {
    let rest = list.get(at..)?;
    let first = *rest.first()?;
    let (header, len): (usize, usize) = match first {
        0..0x80 => return Some((Element::Int(first.into()), at + 2)),
        0x80..0xc0 => (1, usize::from(first & 0x3f)),
        0xc0..0xe0 => {
            let bits = u16::from(first & 0x1f) << 8 | u16::from(*rest.get(1)?);
            // The sign is the highest of 13 bits.
            return Some((Element::Int(((bits << 3) as i16 >> 3).into()), at + 3));
        }
        0xe0..0xf0 => (2, usize::from(first & 0x0f) << 8 | usize::from(*rest.get(1)?)),
        0xf0 => (5, u32::from_le_bytes(*rest.get(1..)?.first_chunk()?) as usize),
        0xf1..=0xf4 => {
            let bytes = [2, 3, 4, 8][usize::from(first - 0xf1)];
            let mut wide = [0; 8];
            wide[8 - bytes..].copy_from_slice(rest.get(1..1 + bytes)?);
            let number = i64::from_le_bytes(wide) >> (64 - 8 * bytes);
            return Some((Element::Int(number), at + 1 + bytes + 1));
        }
        _ => return None,
    };
    let text = rest.get(header..header.checked_add(len)?)?;
    Some((Element::Bytes(text), at + header + len + back_length_bytes(header + len)))
}

/// The elements in order.
pub fn iter(list: &[u8]) -> impl Iterator<Item = Element<'_>> + Clone {
    let mut at = FIRST;
    std::iter::from_fn(move || {
        let (element, next) = read(list, at)?;
        at = next;
        Some(element)
    })
}

/// Replaces the element at `at` by an integer.
pub fn replace_int(list: &mut Vec<u8>, at: usize, number: i64) {
    let Some((_, next)) = read(list, at) else { return };
    let mut new = Vec::with_capacity(10);
    push_int(&mut new, number);
    if new.len() == next - at {
        list[at..next].copy_from_slice(&new);
    } else {
        list.splice(at..next, new);
        seal(list, 0);
    }
}

/// Checks that the bytes are a listpack. Returns its number of elements.
pub fn check(list: &[u8]) -> Result<usize, Corrupt> {
    let header = list.first_chunk::<HEADER_BYTES>().ok_or(Corrupt)?;
    let bytes = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    if bytes as usize != list.len() || list.last() != Some(&END) {
        return Err(Corrupt);
    }
    let (mut at, mut count, mut length) = (FIRST, 0, Vec::with_capacity(5));
    while at < list.len() - 1 {
        let (_, next) = read(list, at).ok_or(Corrupt)?;
        if next >= list.len() {
            return Err(Corrupt);
        }
        // Most elements are shorter than 128 bytes, with a length of one byte.
        let back = (1..=5).find(|&back| back_length_bytes(next - at - back) == back).ok_or(Corrupt)?;
        length.clear();
        push_back_length(&mut length, next - at - back);
        if list[next - back..next] != length[..] {
            return Err(Corrupt);
        }
        count += 1;
        at = next;
    }
    let counted = u16::from_le_bytes([header[4], header[5]]);
    if counted == COUNT_UNKNOWN || usize::from(counted) == count { Ok(count) } else { Err(Corrupt) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(items: &[&[u8]]) -> Vec<u8> {
        let mut list = new();
        append(&mut list, |push| items.iter().for_each(|item| push.bytes(item)));
        list
    }

    #[test]
    fn bytes_equal_redis_s() {
        assert_eq!(new(), [7, 0, 0, 0, 0, 0, 0xff]);
        assert_eq!(of(&[b"a", b"5", b"-1"]), [15, 0, 0, 0, 3, 0, 0x81, b'a', 2, 5, 1, 0xdf, 0xff, 2, 0xff]);
        assert_eq!(of(&[b"300000"])[6..], [0xf2, 0xe0, 0x93, 0x04, 4, 0xff]);
        let long = of(&[&[b'x'; 200]]);
        assert_eq!(long[6..8], [0xe0, 200]);
        assert_eq!(long[208..], [1, 0x80 | 74, 0xff], "202 in two bytes");
    }

    #[test]
    fn integers_have_one_text() {
        for text in ["", "-", "+1", "01", "-0", " 1", "1 ", "9223372036854775808", "1x", "-01"] {
            assert_eq!(int(text.as_bytes()), None, "{text:?}");
        }
        for number in [0, 1, -1, i64::MAX, i64::MIN] {
            assert_eq!(int(number.to_string().as_bytes()), Some(number));
        }
    }

    #[test]
    fn an_integer_is_replaced_by_one_of_another_size() {
        let mut list = of(&[b"1", b"b"]);
        for number in [127, 128, -4097, 1 << 40, 0] {
            replace_int(&mut list, FIRST, number);
            assert_eq!(check(&list), Ok(2));
            assert_eq!(iter(&list).collect::<Vec<_>>(), [Element::Int(number), Element::Bytes(b"b")]);
        }
    }

    proptest! {
        #[test]
        fn elements_come_back(
            items in proptest::collection::vec(prop_oneof![
                any::<i64>().prop_map(|n| n.to_string().into_bytes()),
                (any::<i64>(), 0..63u32).prop_map(|(n, shift)| (n >> shift).to_string().into_bytes()),
                proptest::collection::vec(any::<u8>(), 0..100),
                (0..20_000usize).prop_map(|len| vec![b'y'; len]),
            ], 0..30)
        ) {
            let list = of(&items.iter().map(Vec::as_slice).collect::<Vec<_>>());
            prop_assert_eq!(check(&list), Ok(items.len()));
            let back: Vec<Vec<u8>> = iter(&list).map(|element| element.to_vec()).collect();
            prop_assert_eq!(&back, &items);
            prop_assert!(iter(&list).zip(&items).all(|(element, item)| element.is(item)));
            for cut in 0..list.len().min(300) {
                prop_assert_eq!(check(&list[..cut]), Err(Corrupt));
            }
        }

        #[test]
        fn hostile_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0..300usize) {
            let _ = (check(&bytes), read(&bytes, at), iter(&bytes).count());
            if bytes.len() > 6 {
                let len = bytes.len() as u32;
                bytes[..4].copy_from_slice(&len.to_le_bytes());
                *bytes.last_mut().unwrap() = 0xff;
                bytes[4..6].copy_from_slice(&[0xff; 2]);
                if let Ok(count) = check(&bytes) {
                    prop_assert_eq!(iter(&bytes).count(), count);
                }
            }
        }
    }
}
