//! Owns the checksum of dumps: CRC-64 with the polynomial 0xad93d23594c935a9 (Jones), reflected, from 0. Never knows
//! what the bytes mean.

use crc_fast::{CrcAlgorithm, Digest};

pub fn crc64(bytes: &[u8]) -> u64 {
    crc64_after(0, bytes)
}

/// The checksum of `bytes` behind bytes whose checksum is `sum`.
pub fn crc64_after(sum: u64, bytes: &[u8]) -> u64 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc64Redis, sum);
    digest.update(bytes);
    digest.finalize()
}

#[cfg(test)]
mod tests {
    #[test]
    fn sums_follow_the_definition() {
        assert_eq!(super::crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        assert_eq!(super::crc64(b""), 0);
        // The end of a redis-server's DUMP of the string "value".
        assert_eq!(super::crc64(b"\0\x05value\x0a\0").to_le_bytes(), *b"\x81\xf6\xc1\x38\xc1\xaa\x9b\x6e");
    }

    const POLYNOMIAL: u64 = 0xad93_d235_94c9_35a9u64.reverse_bits();

    /// The library has other code for each processor and length.
    #[test]
    fn every_length_has_the_sum_of_its_bits() {
        let bitwise =
            |sum: u64, &byte: &u8| (0..8).fold(sum ^ u64::from(byte), |sum, _| (sum >> 1) ^ ((sum & 1) * POLYNOMIAL));
        let bytes: Vec<u8> = (0..1200_u32).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
        for length in 0..bytes.len() {
            let (first, second) = bytes.split_at(length);
            let sum = first.iter().fold(0, bitwise);
            assert_eq!(super::crc64(first), sum, "{length} bytes");
            assert_eq!(super::crc64_after(sum, second), second.iter().fold(sum, bitwise), "behind {length} bytes");
        }
    }
}
