//! Owns the decompression of LZF (Marc Lehmann), which Redis uses for long strings in dumps. Never compresses.
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
        fn any_bytes_give_the_wanted_length_or_nothing(
            bytes in proptest::collection::vec(any::<u8>(), 0..100), len in 0..500usize,
        ) {
            if let Ok(out) = decompress(&bytes, len) {
                prop_assert_eq!(out.len(), len);
            }
        }
    }
}
