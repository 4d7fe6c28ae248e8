//! Owns lengths as bytes: seven bits each, least significant first, with the top bit set on all but the last byte
//! (LEB128). Never knows what the lengths belong to.

/// A length is below 2^32, so it takes at most this.
pub const BYTES_MAX: usize = 5;

/// A length as bytes, on the stack.
#[derive(Clone, Copy)]
pub struct Varint {
    bytes: [u8; BYTES_MAX],
    len: u8,
}

impl Varint {
    #[inline]
    pub fn new(value: usize) -> Varint {
        let mut rest = u32::try_from(value).expect("no part of a value is longer than 512 MB");
        let mut bytes = [0; BYTES_MAX];
        let mut len = 0;
        while rest >= 0x80 {
            bytes[len] = rest as u8 | 0x80;
            rest >>= 7;
            len += 1;
        }
        bytes[len] = rest as u8;
        Varint { bytes, len: len as u8 + 1 }
    }

    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }

    /// The same bytes in reverse order, to be read from the end by [`read_back`].
    #[inline]
    pub fn reversed(mut self) -> Varint {
        self.bytes[..self.len as usize].reverse();
        self
    }
}

/// The number of bytes that a length takes.
#[inline]
pub fn width(value: usize) -> usize {
    if value < 0x80 { 1 } else { (value.max(1).ilog2() as usize) / 7 + 1 }
}

/// The length whose reversed bytes end at `end`, and where those bytes start.
#[inline]
pub fn read_back(bytes: &[u8], end: usize) -> Option<(usize, usize)> {
    let last = *bytes.get(end.checked_sub(1)?)?;
    if last < 0x80 {
        return Some((last as usize, end - 1));
    }
    let mut value = u64::from(last & 0x7f);
    for n in 1..BYTES_MAX {
        let byte = bytes[end.checked_sub(n + 1)?];
        value |= u64::from(byte & 0x7f) << (7 * n);
        if byte < 0x80 {
            return (value <= u64::from(u32::MAX)).then_some((value as usize, end - n - 1));
        }
    }
    None
}

/// The length at `at` and the position after it. `None`: the bytes end inside it, or it exceeds 32 bits.
#[inline]
pub fn read(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let first = *bytes.get(at)?;
    if first < 0x80 {
        return Some((first as usize, at + 1));
    }
    let mut value = u64::from(first & 0x7f);
    for n in 1..BYTES_MAX {
        let byte = *bytes.get(at + n)?;
        value |= u64::from(byte & 0x7f) << (7 * n);
        if byte < 0x80 {
            return (value <= u64::from(u32::MAX)).then_some((value as usize, at + n + 1));
        }
    }
    None
}

/// Like [`read`], for a length and the bytes that follow it: the range of those bytes.
#[inline]
pub fn read_part(bytes: &[u8], at: usize) -> Option<std::ops::Range<usize>> {
    let (len, start) = read(bytes, at)?;
    // No overflow: both are far below the size of the address space.
    (bytes.len() - start >= len).then_some(start..start + len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_come_back() {
        for value in [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 1 << 30, u32::MAX as usize] {
            let varint = Varint::new(value);
            assert_eq!(read(varint.as_bytes(), 0), Some((value, varint.as_bytes().len())));
            let reversed = varint.reversed();
            assert_eq!(read_back(reversed.as_bytes(), reversed.as_bytes().len()), Some((value, 0)));
            assert_eq!(width(value), reversed.as_bytes().len());
            // A truncated length is refused.
            for cut in 0..varint.as_bytes().len() {
                assert_eq!(read(&varint.as_bytes()[..cut], 0), None);
            }
        }
    }

    #[test]
    fn hostile_lengths_are_refused() {
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0x1f], 0), None, "33 bits");
        assert_eq!(read(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x00], 0), None, "six bytes");
        assert_eq!(read_part(&[3, b'a', b'b'], 0), None, "one byte short");
        assert_eq!(read_part(&[2, b'a', b'b'], 0), Some(1..3));
        assert_eq!(read_part(&[], 0), None);
        assert_eq!(read_back(&[], 0), None);
        assert_eq!(read_back(&[0x80], 1), None, "it begins before the bytes do");
        assert_eq!(read_back(&[0x1f, 0xff, 0xff, 0xff, 0xff], 5), None, "33 bits");
    }
}
