//! Owns LZF (Marc Lehmann), the compression of long strings in dumps.
//!
//! ```text
//! 000lllll                          l + 1 bytes as they are
//! lllooooo oooooooo                 l + 2 bytes from o + 1 back
//! 111ooooo llllllll oooooooo        l + 9 bytes from o + 1 back
//! ```

use crate::Corrupt;

/// Three bytes expand to at most 264.
const EXPANSION_MAX: usize = 88;

/// Decompresses to `len` bytes. A length that the input cannot expand to is refused before memory is allocated.
pub fn decompress(bytes: &[u8], len: usize) -> Result<Vec<u8>, Corrupt> {
    if len / EXPANSION_MAX > bytes.len() {
        return Err(Corrupt);
    }
    let mut out = Vec::with_capacity(len);
    let mut at = 0;
    let byte = |at: &mut usize| {
        let byte = bytes.get(*at).copied().map(usize::from).ok_or(Corrupt);
        *at += 1;
        byte
    };
    while at < bytes.len() {
        let control = byte(&mut at)?;
        if control < 32 {
            let literal = bytes.get(at..at + control + 1).ok_or(Corrupt)?;
            out.extend_from_slice(literal);
            at += literal.len();
        } else {
            let long = if control >> 5 == 7 { byte(&mut at)? } else { 0 };
            let count = (control >> 5) + long + 2;
            let back = ((control & 31) << 8 | byte(&mut at)?) + 1;
            let from = out.len().checked_sub(back).ok_or(Corrupt)?;
            if out.len() + count > len {
                return Err(Corrupt);
            }
            // The copied range may overlap the bytes that this copy has just written.
            for n in from..from + count {
                out.push(out[n]);
            }
        }
        if out.len() > len {
            return Err(Corrupt);
        }
    }
    if out.len() == len { Ok(out) } else { Err(Corrupt) }
}

const TABLE_BITS: u32 = 14;
const LITERAL_BYTES_MAX: usize = 32;
const COPY_BYTES_MIN: usize = 3;
const COPY_BYTES_MAX: usize = 264;
const BACK_MAX: usize = 1 << 13;
/// After this many places (a power of two) without a repetition, each step becomes one byte longer.
const VAIN_LOG2: u32 = 5;

/// Compresses strings. It keeps the table of places between strings: each place is compared before it is used, so a
/// place of an earlier string does no harm.
pub struct Compressor {
    /// For the hash of three bytes: where they were seen last.
    places: Box<[u32]>,
}

impl Default for Compressor {
    fn default() -> Compressor {
        Compressor { places: vec![0; 1 << TABLE_BITS].into() }
    }
}

impl Compressor {
    /// The compressed bytes, if they are fewer than the originals.
    pub fn compress(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(bytes.len());
        let (mut at, mut literal_from, mut vain) = (0, 0, 0);
        while at + COPY_BYTES_MIN <= bytes.len() && out.len() < bytes.len() {
            let Some((back, len)) = self.seen(bytes, at) else {
                // The longer nothing repeats, the fewer places are searched.
                vain += 1;
                at += 1 + (vain >> VAIN_LOG2);
                continue;
            };
            vain = 0;
            put_literals(&mut out, &bytes[literal_from..at]);
            let far = back - 1;
            match len - 2 {
                short @ ..7 => out.push((short << 5 | far >> 8) as u8),
                long => out.extend_from_slice(&[(7 << 5 | far >> 8) as u8, (long - 7) as u8]),
            }
            out.push(far as u8);
            at += len;
            literal_from = at;
        }
        put_literals(&mut out, &bytes[literal_from..]);
        (out.len() < bytes.len()).then_some(out)
    }

    /// How far back the bytes at this place occurred before, and how many of them. Notes this place.
    fn seen(&mut self, bytes: &[u8], at: usize) -> Option<(usize, usize)> {
        let three = u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], 0]);
        let slot = three.wrapping_mul(0x9e37_79b1) >> (32 - TABLE_BITS);
        let before = std::mem::replace(&mut self.places[slot as usize], at as u32) as usize;
        let back = at.checked_sub(before).filter(|back| (1..=BACK_MAX).contains(back))?;
        let rest = &bytes[at..bytes.len().min(at + COPY_BYTES_MAX)];
        let len = rest.iter().zip(&bytes[before..]).take_while(|(a, b)| a == b).count();
        (len >= COPY_BYTES_MIN).then_some((back, len))
    }
}

fn put_literals(out: &mut Vec<u8>, bytes: &[u8]) {
    for run in bytes.chunks(LITERAL_BYTES_MAX) {
        out.push((run.len() - 1) as u8);
        out.extend_from_slice(run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn copies_may_overlap_themselves() {
        assert_eq!(decompress(&[0, b'a', 0xe0, 20, 0], 30), Ok(vec![b'a'; 30]));
        assert_eq!(decompress(&[2, b'a', b'b', b'c', 0x20, 2], 6), Ok(b"abcabc".to_vec()));
    }

    #[test]
    fn hostile_bytes_are_refused() {
        for (bytes, len) in [
            (&[0, b'a', 0x20, 1][..], 4),
            (&[5, b'a'], 6),
            (&[0, b'a'], 2),
            (&[1, b'a', b'b'], 1),
            (&[0xe0], 9),
            (&[], 1),
            (&[0, b'a'], 1 << 40),
        ] {
            assert_eq!(decompress(bytes, len), Err(Corrupt), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn compressed_bytes_come_back(
            texts in proptest::collection::vec(proptest::collection::vec(0..4u8, 0..600), 1..4), long in 0..20_000usize,
        ) {
            let mut compressor = Compressor::default();
            for text in texts.into_iter().chain([vec![b'l'; long]]) {
                if let Some(compressed) = compressor.compress(&text) {
                    prop_assert!(compressed.len() < text.len());
                    prop_assert_eq!(decompress(&compressed, text.len()), Ok(text));
                } else {
                    prop_assert!(text.len() < 100, "four letters can be compressed");
                }
            }
        }

        #[test]
        fn any_bytes_give_the_wanted_length_or_nothing(
            bytes in proptest::collection::vec(any::<u8>(), 0..100), len in 0..500usize,
        ) {
            if let Ok(out) = decompress(&bytes, len) {
                prop_assert_eq!(out.len(), len);
            }
        }
    }
}
