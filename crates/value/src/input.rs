//! Owns reading and writing the pieces of which skeletons are made: numbers of seven bits a byte, least significant first, with
//! the top bit set on all but the last byte (LEB128), and runs of bytes. Never knows what they mean.

use crate::Corrupt;

pub fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    put_number(out, text.len() as u64);
    out.extend_from_slice(text);
}

/// Bytes that are read from the front.
pub struct Input<'b>(&'b [u8]);

impl<'b> Input<'b> {
    pub fn new(bytes: &'b [u8]) -> Input<'b> {
        Input(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn take(&mut self, bytes: usize) -> Result<&'b [u8], Corrupt> {
        let (front, rest) = self.0.split_at_checked(bytes).ok_or(Corrupt)?;
        self.0 = rest;
        Ok(front)
    }

    pub fn rest(&mut self) -> &'b [u8] {
        std::mem::take(&mut self.0)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Corrupt> {
        self.take(N).map(|bytes| bytes.try_into().expect("as many bytes"))
    }

    pub fn byte(&mut self) -> Result<u8, Corrupt> {
        self.array().map(|[byte]| byte)
    }

    pub fn number(&mut self) -> Result<u64, Corrupt> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return Err(Corrupt);
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Corrupt)
    }

    /// A number of at most 32 bits.
    pub fn short(&mut self) -> Result<u32, Corrupt> {
        u32::try_from(self.number()?).map_err(|_| Corrupt)
    }

    /// How many items follow that take at least `bytes` bytes each.
    pub fn count(&mut self, bytes: usize) -> Result<usize, Corrupt> {
        let count = usize::try_from(self.number()?).map_err(|_| Corrupt)?;
        if count <= self.0.len() / bytes { Ok(count) } else { Err(Corrupt) }
    }

    /// The number of a chunk, as the difference to the number of the chunk before it.
    pub fn number_after(&mut self, before: u64) -> Result<u64, Corrupt> {
        before.checked_add(self.number()?).filter(|&number| number < u64::MAX).ok_or(Corrupt)
    }

    pub fn text(&mut self) -> Result<&'b [u8], Corrupt> {
        let bytes = self.count(1)?;
        self.take(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for number in [0, 1, 127, 128, 16_383, 16_384, 1 << 32, 1 << 63, u64::MAX] {
            let mut bytes = Vec::new();
            put_number(&mut bytes, number);
            let mut input = Input::new(&bytes);
            assert_eq!((input.number(), input.is_empty()), (Ok(number), true));
            for cut in 0..bytes.len() {
                assert_eq!(Input::new(&bytes[..cut]).number(), Err(Corrupt), "cut at {cut}");
            }
        }
        assert_eq!(Input::new(&[[0xff; 9].as_slice(), &[2]].concat()).number(), Err(Corrupt), "65 bits");
        assert_eq!(Input::new(&[0x80; 11]).number(), Err(Corrupt), "eleven bytes");
        assert_eq!(Input::new(&[3, b'a', b'b']).text(), Err(Corrupt), "one byte short");
        assert_eq!(Input::new(&[2, 1, 2, 3]).count(2), Err(Corrupt), "two items of two bytes need four");
    }
}
