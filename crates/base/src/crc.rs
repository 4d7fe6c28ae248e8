//! Owns the CRC-32C of a piece of bytes. Never knows what the bytes mean.
//!
//! The crate `crc32c` computes three streams in parallel only in blocks of 768 bytes. With fewer bytes each step waits for
//! the previous one: a piece of 540 bytes takes some 200 cycles, while the journal's lock is held. And combining the streams
//! costs as much as half of a page's CRC. Here any length up to a page is divided into three streams, and their CRCs are
//! combined with one multiplication each (Gopal et al., "Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction",
//! Intel, 2011).

/// CRC-32C, as in iSCSI.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_append(0, bytes)
}

/// The CRC-32C of earlier bytes, whose CRC is `crc`, followed by these bytes.
#[inline]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() < STREAM_WORDS_MAX * 3 * WORD_BYTES
        && std::arch::is_x86_feature_detected!("sse4.2")
        && std::arch::is_x86_feature_detected!("pclmulqdq")
    {
        // SAFETY: the processor has the two features that the function requires.
        return unsafe { three_streams(crc, bytes) };
    }
    crc32c::crc32c_append(crc, bytes)
}

#[cfg(target_arch = "x86_64")]
const WORD_BYTES: usize = 8;
/// The most words of a stream: a page has 170.
#[cfg(target_arch = "x86_64")]
const STREAM_WORDS_MAX: usize = 176;
/// The loop is unrolled to so many words of each stream: counting single words would cost half as much as the CRC.
#[cfg(target_arch = "x86_64")]
const TURN_WORDS: usize = 8;

/// A CRC multiplied by `SHIFTS[n]`, and then reduced, is the CRC of the same bytes followed by `n` words of zeroes. It is
/// x^(64n − 33), because the product of two reflected polynomials has an additional factor x, and the reduction one of x^32.
#[cfg(target_arch = "x86_64")]
static SHIFTS: [u32; STREAM_WORDS_MAX] = {
    const fn times_x(polynomial: u32, times: u32) -> u32 {
        let (mut polynomial, mut count) = (polynomial, 0);
        while count < times {
            polynomial = if polynomial & 1 == 1 { polynomial >> 1 ^ 0x82F6_3B78 } else { polynomial >> 1 };
            count += 1;
        }
        polynomial
    }
    let (mut shifts, mut words) = ([0; STREAM_WORDS_MAX], 1);
    let mut shift = times_x(1 << 31, 64 - 33);
    while words < STREAM_WORDS_MAX {
        shifts[words] = shift;
        shift = times_x(shift, 64);
        words += 1;
    }
    shifts
};

/// # Safety
/// The processor has SSE 4.2 and PCLMULQDQ.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn three_streams(crc: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{
        _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64, _mm_cvtsi64_si128, _mm_cvtsi128_si64,
    };
    let (words, rest) = bytes.as_chunks::<WORD_BYTES>();
    let length = words.len() / 3;
    let (first, others) = words.split_at(length);
    let (second, others) = others.split_at(length);
    let (third, last) = others.split_at(length);
    let mut crc = u64::from(!crc);
    if length > 0 {
        let mut crcs = [crc, 0, 0];
        let mut take = |words: [&[u8; WORD_BYTES]; 3]| {
            for (crc, word) in crcs.iter_mut().zip(words) {
                *crc = _mm_crc32_u64(*crc, u64::from_le_bytes(*word));
            }
        };
        let (firsts, first) = first.as_chunks::<TURN_WORDS>();
        let (seconds, second) = second.as_chunks::<TURN_WORDS>();
        let (thirds, third) = third.as_chunks::<TURN_WORDS>();
        for ((a, b), c) in firsts.iter().zip(seconds).zip(thirds) {
            for at in 0..TURN_WORDS {
                take([&a[at], &b[at], &c[at]]);
            }
        }
        for ((a, b), c) in first.iter().zip(second).zip(third) {
            take([a, b, c]);
        }
        let by = _mm_cvtsi64_si128(SHIFTS[length].into());
        let behind = |crc: u64, next: u64| {
            let product = _mm_clmulepi64_si128::<0>(_mm_cvtsi64_si128(crc as i64), by);
            _mm_crc32_u64(0, _mm_cvtsi128_si64(product) as u64) ^ next
        };
        crc = behind(behind(crcs[0], crcs[1]), crcs[2]);
    }
    crc = last.iter().fold(crc, |crc, word| _mm_crc32_u64(crc, u64::from_le_bytes(*word)));
    let (halves, rest) = rest.as_chunks::<4>();
    let crc = halves.iter().fold(crc as u32, |crc, half| _mm_crc32_u32(crc, u32::from_le_bytes(*half)));
    let crc = rest.iter().fold(crc, |crc, &byte| _mm_crc32_u8(crc, byte));
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_has_the_known_crc() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        let bytes: Vec<u8> = (0..4300_u32).map(|at| (at.wrapping_mul(0x9E37_79B9) >> 24) as u8).collect();
        for length in 0..bytes.len() {
            assert_eq!(crc32c(&bytes[..length]), crc32c::crc32c(&bytes[..length]), "{length} bytes");
            assert_eq!(crc32c(&bytes[length..]), crc32c::crc32c(&bytes[length..]), "from byte {length}");
            assert_eq!(
                crc32c_append(crc32c(&bytes[..length]), &bytes[length..]),
                crc32c(&bytes),
                "{length} bytes before"
            );
        }
    }
}
