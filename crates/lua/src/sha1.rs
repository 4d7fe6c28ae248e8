//! Owns SHA-1, which names scripts and compares values. Never used where an attacker could gain from a collision.

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// Forty lower-case hexadecimal digits.
pub type Sha = [u8; 40];

pub fn sha1_hex(bytes: &[u8]) -> Sha {
    let sum = sha1(bytes);
    std::array::from_fn(|digit| b"0123456789abcdef"[usize::from(sum[digit / 2] >> (4 - 4 * (digit % 2)) & 15)])
}

pub fn sha1(bytes: &[u8]) -> [u8; 20] {
    digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes).as_ref().try_into().expect("SHA-1 has 20 bytes")
}

#[cfg(test)]
mod tests {
    use super::sha1_hex;

    #[test]
    fn sha1_agrees_with_the_examples_of_the_standard() {
        let million = vec![b'a'; 1_000_000];
        for (input, digest) in [
            (&b""[..], "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
            (b"abc", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", "84983e441c3bd26ebaae4aa1f95129e5e54670f1"),
            (&million, "34aa973cd4c4daa4f61eeb2bdbad27316534016f"),
        ] {
            assert_eq!(std::str::from_utf8(&sha1_hex(input)).unwrap(), digest);
        }
    }
}
