//! Owns the ziplist, which Redis wrote before 7.0. Never writes one.
//!
//! ```text
//! bytes      4, little-endian: all of it
//! last       4, little-endian: where the last element stands
//! elements   2, little-endian; 65,535: count them
//! element
//!   length of the one before     1 byte below 254, else 254 and 4 bytes, little-endian
//!   00llllll string              up to 63 bytes
//!   01llllll llllllll string     up to 16,383 bytes
//!   10000000 length 4 string     most significant first
//!   11000000 number              an integer of 2 bytes, little-endian; 1101: 4, 1110: 8, 11110000: 3, 11111110: 1
//!   1111nnnn                     n − 1, from 0 to 12
//! 11111111   the end
//! ```

use super::Parts;
use crate::Corrupt;

const HEADER_BYTES: usize = 10;

pub fn parts(list: &[u8]) -> Result<Parts, Corrupt> {
    let header = list.first_chunk::<HEADER_BYTES>().ok_or(Corrupt)?;
    let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]) as usize;
    let counted = usize::from(u16::from_le_bytes([header[8], header[9]]));
    let (body, end) = (list.len().checked_sub(1).ok_or(Corrupt)?, list.last());
    if number(0) != list.len() || end != Some(&0xff) || body < HEADER_BYTES {
        return Err(Corrupt);
    }
    let (mut parts, mut at, mut last, mut before) = (Parts::new(), HEADER_BYTES, HEADER_BYTES, 0);
    while at < body {
        let start = at;
        let mut reader = Reader { bytes: &list[..body], at };
        let told = match reader.byte()? {
            254 => u32::from_le_bytes(reader.array()?) as usize,
            255 => return Err(Corrupt),
            byte => byte.into(),
        };
        if told != before {
            return Err(Corrupt);
        }
        reader.element(&mut parts)?;
        at = reader.at;
        before = at - start;
        last = start;
    }
    if number(4) == last && (counted == parts.len() || counted == usize::from(u16::MAX)) {
        Ok(parts)
    } else {
        Err(Corrupt)
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Corrupt> {
        let end = self.at.checked_add(len).ok_or(Corrupt)?;
        let taken = self.bytes.get(self.at..end).ok_or(Corrupt)?;
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Corrupt> {
        self.take(N)?.try_into().map_err(|_| Corrupt)
    }

    fn byte(&mut self) -> Result<u8, Corrupt> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn element(&mut self, parts: &mut Parts) -> Result<(), Corrupt> {
        let first = self.byte()?;
        let number: i64 = match first {
            0..0x40 => return parts.push(self.take(first.into())?),
            0x40..0x80 => {
                let len = usize::from(first & 0x3f) << 8 | usize::from(self.byte()?);
                return parts.push(self.take(len)?);
            }
            0x80 => {
                let len = u32::from_be_bytes(self.array()?) as usize;
                return parts.push(self.take(len)?);
            }
            0xc0 => i16::from_le_bytes(self.array()?).into(),
            0xd0 => i32::from_le_bytes(self.array()?).into(),
            0xe0 => i64::from_le_bytes(self.array()?),
            0xf0 => {
                let [a, b, c] = self.array()?;
                i64::from(i32::from_le_bytes([0, a, b, c]) >> 8)
            }
            0xfe => i64::from(self.byte()? as i8),
            0xf1..=0xfd => i64::from(first & 0x0f) - 1,
            _ => return Err(Corrupt),
        };
        parts.push(number.to_string().as_bytes())
    }
}
