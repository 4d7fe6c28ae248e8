//! Owns the numbers computed from a key: its slot, its stripe and its keyed 128-bit hash.
//! Never knows where the key's value is.

use crate::narrow::{low16, low32, low64};
use aes::cipher::{BlockEncrypt, KeyInit};
use aes::{Aes128, Block};

// Slots and stripes in 16 bits, as hashes and objects store them.
const SLOT_COUNT: u16 = 16_384;
const STRIPE_COUNT: u16 = 1024;
const SLOTS_PER_STRIPE: u16 = SLOT_COUNT / STRIPE_COUNT;
pub const SLOTS: usize = SLOT_COUNT as usize;
pub const STRIPES: usize = STRIPE_COUNT as usize;

/// A key's identity inside one logical database.
///
/// `high` orders the entries of a stripe. A cold index entry contains `high` and the upper 24 bits of `low`, so 88 keyed bits
/// identify a cold key inside its stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyHash {
    pub high: u64,
    pub low: u64,
    pub slot: u16,
}

impl KeyHash {
    pub fn stripe(self) -> usize {
        self.stripe_u16().into()
    }

    /// The stripe as objects, checkpoints and notes of keys store it.
    pub fn stripe_u16(self) -> u16 {
        self.slot / SLOTS_PER_STRIPE
    }
}

/// The first slot of a stripe. It stands for the unknown slot of a key of which only the stripe is known.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "a stripe is below STRIPES, so its slots are below SLOTS, which is 2^14"
)]
pub(crate) fn first_slot(stripe: usize) -> u16 {
    debug_assert!(stripe < STRIPES);
    stripe as u16 * SLOTS_PER_STRIPE
}

/// A key's bytes with its hash.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    pub name: &'a [u8],
    pub hash: KeyHash,
}

/// The keyed hash: AES-CMAC (RFC 4493). The secret is drawn at start. Without knowing it, nobody can construct two keys that
/// collide. Processors with instructions for AES compute it in half the instructions of SipHash; for others there is software.
#[derive(Clone)]
pub struct Hasher {
    cipher: Aes128,
    /// XORed into the last block: `whole` if it has 16 bytes, `padded` if it had to be padded.
    whole: u128,
    padded: u128,
    /// Whether the processor has the instructions of [`Hasher::hash_short`].
    is_quick: bool,
}

impl Hasher {
    pub fn new(secret: [u64; 2]) -> Hasher {
        let secret = u128::from(secret[0]) | u128::from(secret[1]) << 64;
        let cipher = Aes128::new(&secret.to_le_bytes().into());
        let mut hasher = Hasher { cipher, whole: 0, padded: 0, is_quick: is_quick() };
        // The RFC counts bits from the first byte down, so these are shifts of big-endian numbers.
        let double = |number: u128| (number << 1) ^ ((number >> 127) * 0x87);
        let whole = double(hasher.encrypt(0).swap_bytes());
        (hasher.whole, hasher.padded) = (whole.swap_bytes(), double(whole).swap_bytes());
        hasher
    }

    #[inline]
    pub fn key<'a>(&self, name: &'a [u8]) -> Key<'a> {
        Key { name, hash: self.hash(name) }
    }

    #[inline]
    pub fn hash(&self, name: &[u8]) -> KeyHash {
        #[cfg(target_arch = "x86_64")]
        if self.is_quick && name.len() < 16 {
            // SAFETY: the processor has the instructions.
            return unsafe { self.hash_short(name) };
        }
        self.hash_any(name)
    }

    /// The name's hash, which is that of the other hasher if both have one secret.
    #[inline]
    pub fn hash_known(&self, name: &[u8], other: &Hasher, hash: KeyHash) -> KeyHash {
        // The cipher of zeros, doubled: one in 2^128 pairs of secrets has the same.
        if self.whole == other.whole { hash } else { self.hash(name) }
    }

    /// A name of less than 16 bytes is one block: code and slot are computed from one register, in half the instructions.
    ///
    /// # Safety
    /// The processor has AES and PCLMULQDQ.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "aes,pclmulqdq")]
    fn hash_short(&self, name: &[u8]) -> KeyHash {
        use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8};
        let block = padded(name);
        let code = self.encrypt(block ^ self.padded);
        let hash = |slot| KeyHash { high: low64(code), low: (code >> 64) as u64, slot };
        let bytes = _mm_set_epi64x((block >> 64) as i64, low64(block) as i64);
        if _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'{' as i8))) != 0 {
            return hash(slot(name));
        }
        // The name as a number with its first byte highest, without the one bit of the padding. Zeros in front do not
        // change the checksum.
        let number = block.swap_bytes() >> 8 >> (8 * (15 - name.len()));
        let crc = step_by_product((number >> 64) as u64);
        hash(step_by_product(low64(number) ^ u64::from(crc) << 48) % SLOT_COUNT)
    }

    #[inline(never)]
    fn hash_any(&self, name: &[u8]) -> KeyHash {
        let code = self.code(name);
        KeyHash { high: low64(code), low: (code >> 64) as u64, slot: slot(name) }
    }

    /// The authentication code, its first byte lowest.
    #[inline]
    fn code(&self, name: &[u8]) -> u128 {
        let (mut state, mut rest) = (0, name);
        while rest.len() > 16
            && let Some((block, behind)) = rest.split_first_chunk()
        {
            state = self.encrypt(state ^ u128::from_le_bytes(*block));
            rest = behind;
        }
        let last = match rest.first_chunk() {
            Some(block) => u128::from_le_bytes(*block) ^ self.whole,
            None => padded(rest) ^ self.padded,
        };
        self.encrypt(state ^ last)
    }

    #[inline]
    fn encrypt(&self, block: u128) -> u128 {
        let mut block = Block::from(block.to_le_bytes());
        self.cipher.encrypt_block(&mut block);
        u128::from_le_bytes(block.into())
    }
}

/// CMAC's last block if it has less than 16 bytes: the bytes, a one bit, then zeros.
#[inline]
fn padded(bytes: &[u8]) -> u128 {
    const ONE: u64 = 0x80;
    let (low, high) = match (bytes.first_chunk(), bytes.last_chunk()) {
        (Some(first), Some(last)) => {
            // The two overlap: drop the bytes that the first contains.
            let bits = 8 * (low32(bytes.len() as u64) - 8);
            (u64::from_le_bytes(*first), u64::from_le_bytes(*last).checked_shr(64 - bits).unwrap_or(0) | ONE << bits)
        }
        _ => (up_to_eight(bytes) | ONE << (8 * bytes.len()), 0),
    };
    u128::from(low) | u128::from(high) << 64
}

/// At most eight bytes as a number, the first byte lowest. Two loads that overlap cost less than one of unknown length.
#[inline]
fn up_to_eight(bytes: &[u8]) -> u64 {
    match *bytes {
        [_, _, _, _, ..] => {
            let low = u32::from_le_bytes(*bytes.first_chunk().expect("four bytes"));
            let high = u32::from_le_bytes(*bytes.last_chunk().expect("four bytes"));
            u64::from(low) | u64::from(high) << (8 * (bytes.len() - 4))
        }
        [a, b, c] => u64::from(a) | u64::from(b) << 8 | u64::from(c) << 16,
        [a, b] => u64::from(a) | u64::from(b) << 8,
        [a] => u64::from(a),
        [] => 0,
    }
}

/// The cluster slot of a key: CRC-16/XMODEM of its hash tag (the part between the first `{` and the
/// next `}`, when that is not empty), else of all of it. Source: Redis Cluster specification.
#[inline]
pub fn slot(name: &[u8]) -> u16 {
    let (crc, has_brace) = crc16(name);
    let crc = if has_brace { crc16(tag(name)).0 } else { crc };
    crc % SLOT_COUNT
}

/// The part of a key that is hashed, if the key contains a `{`.
#[cold]
fn tag(name: &[u8]) -> &[u8] {
    let Some(open) = name.iter().position(|&byte| byte == b'{') else { return name };
    let behind = &name[open + 1..];
    match behind.iter().position(|&byte| byte == b'}') {
        Some(len) if len > 0 => &behind[..len],
        _ => name,
    }
}

/// CRC16_TABLES[n][b]: the checksum of byte b followed by n zero bytes, for eight bytes a step.
const CRC16_TABLES: [[u16; 256]; 8] = {
    let mut tables = [[0u16; 256]; 8];
    let mut byte = 0u16;
    while byte < 256 {
        let mut crc = byte << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 };
            bit += 1;
        }
        tables[0][byte as usize] = crc;
        byte += 1;
    }
    let mut n = 1;
    while n < 8 {
        let mut byte = 0;
        while byte < 256 {
            let crc = tables[n - 1][byte];
            tables[n][byte] = (crc << 8) ^ tables[0][(crc >> 8) as usize];
            byte += 1;
        }
        n += 1;
    }
    tables
};

/// The checksum, and whether there is a `{` in the bytes.
#[inline]
fn crc16(bytes: &[u8]) -> (u16, bool) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("pclmulqdq") {
        // SAFETY: the processor has the instruction.
        return unsafe { crc16_by_product(bytes) };
    }
    crc16_by_tables(bytes)
}

fn crc16_by_tables(bytes: &[u8]) -> (u16, bool) {
    crc16_by(bytes, |eight| {
        let eight = eight.to_be_bytes();
        (0..8).fold(0, |crc, at| crc ^ CRC16_TABLES[7 - at][eight[at] as usize])
    })
}

/// Takes 50 instructions for a key of 11 bytes. Tables take 110: the difference is worth the `unsafe`.
///
/// # Safety
/// The processor has PCLMULQDQ.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "pclmulqdq")]
fn crc16_by_product(bytes: &[u8]) -> (u16, bool) {
    crc16_by(bytes, |eight| step_by_product(eight))
}

/// The checksum of eight bytes, the first of which is the highest of the number.
///
/// # Safety
/// The processor has PCLMULQDQ.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "pclmulqdq")]
fn step_by_product(eight: u64) -> u16 {
    use std::arch::x86_64::{_mm_clmulepi64_si128, _mm_cvtsi64_si128, _mm_cvtsi128_si64, _mm_unpackhi_epi64};
    /// x^80 divided by the polynomial, without its highest bit.
    const INVERSE: u64 = {
        let (mut quotient, mut rest, mut power) = (0u64, 0x1021u32, 64);
        while power > 0 {
            power -= 1;
            rest <<= 1;
            if rest & 0x1_0000 != 0 {
                rest ^= 0x1_1021;
                quotient |= 1 << power;
            }
        }
        quotient
    };
    // Barrett's reduction: the quotient is exact, and the rest is its product with the polynomial, cut to 16 bits.
    let product = _mm_clmulepi64_si128::<0>(_mm_cvtsi64_si128(eight as i64), _mm_cvtsi64_si128(INVERSE as i64));
    let quotient = eight ^ _mm_cvtsi128_si64(_mm_unpackhi_epi64(product, product)) as u64;
    low16(quotient ^ (quotient << 5) ^ (quotient << 12))
}

/// Whether the processor has instructions for AES and for products without carry.
fn is_quick() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// `step` gives the checksum of eight bytes, the first of which is the highest of the number.
#[inline(always)]
fn crc16_by(bytes: &[u8], step: impl Fn(u64) -> u16) -> (u16, bool) {
    // Zero bytes in front do not change the checksum. So the bytes that fill no group of eight come first, with zeros
    // before them.
    let (odd, eights) = bytes.as_rchunks();
    let first = bytes.first_chunk().map_or_else(|| up_to_eight(odd).swap_bytes(), |&first| u64::from_be_bytes(first));
    let mut braces = zeros(first ^ BRACES);
    let mut crc = step(first.checked_shr(64 - 8 * low32(odd.len() as u64)).unwrap_or(0));
    for &eight in eights {
        let eight = u64::from_be_bytes(eight);
        braces |= zeros(eight ^ BRACES);
        crc = step(eight ^ (u64::from(crc) << 48));
    }
    (crc, braces != 0)
}

const BRACES: u64 = u64::from_le_bytes([b'{'; 8]);

/// Not 0 if one of the bytes is 0.
#[inline]
fn zeros(bytes: u64) -> u64 {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    bytes.wrapping_sub(ONES) & !bytes & (ONES << 7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_redis_clusters() {
        assert_eq!(crc16(b"123456789").0, 0x31c3);
        assert_eq!(slot(b"foo"), 12182);
        assert_eq!(slot(b"somekey"), 11058);
        assert_eq!(slot(b"foo{hash_tag}"), 2515);
        assert_eq!(slot(b"bar{hash_tag}"), 2515);
        assert_eq!(slot(b"{}x"), crc16(b"{}x").0 % 16384);
        assert_eq!(slot(b"a{b{c}d}"), slot(b"b{c"));
        assert_eq!(slot(b"a}b{c"), crc16(b"a}b{c").0 % 16384);
    }

    #[test]
    fn eight_bytes_a_step_equal_one() {
        let bytes: Vec<u8> = (0..100).map(|i| (i * 37) as u8).collect();
        for len in 0..bytes.len() {
            let simple =
                bytes[..len].iter().fold(0u16, |crc, &b| (crc << 8) ^ CRC16_TABLES[0][(b ^ (crc >> 8) as u8) as usize]);
            assert_eq!(crc16(&bytes[..len]).0, simple);
            assert_eq!(crc16_by_tables(&bytes[..len]).0, simple);
        }
    }

    #[test]
    fn a_hash_of_another_secret_is_not_taken_over() {
        let (one, two) = (Hasher::new([7, 8]), Hasher::new([7, 9]));
        let hash = |hasher: &Hasher| (hasher.hash(b"name").high, hasher.hash(b"name").slot);
        let known = two.hash_known(b"name", &one, one.hash(b"name"));
        assert_eq!((known.high, known.slot), hash(&two));
        assert_ne!(hash(&one), hash(&two));
        let known = one.hash_known(b"name", &Hasher::new([7, 8]), one.hash(b"name"));
        assert_eq!((known.high, known.slot), hash(&one));
    }

    /// `hash_short` gives the same result as the general way.
    #[test]
    fn short_names_hash_as_all_names_do() {
        let hasher = Hasher::new([7, 8]);
        let mut state = 1u64;
        for round in 0..20_000usize {
            let mut name = [0; 20];
            for byte in &mut name {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let random = (state >> 33) as u8;
                *byte = [random, b"{}ab"[random as usize % 4]][round % 2];
            }
            let name = &name[..round % 20];
            assert_eq!(hasher.hash(name), hasher.hash_any(name), "{name:?}");
            assert_eq!(hasher.hash(name).slot, slot(name), "{name:?}");
        }
    }

    #[test]
    fn an_opening_brace_is_seen_everywhere() {
        for len in 0..40 {
            let mut name: Vec<u8> = (0..len).map(|i| [b'|', b'z', 0, 0xfb][i % 4]).collect();
            assert!(!crc16(&name).1);
            for at in 0..len {
                let other = std::mem::replace(&mut name[at], b'{');
                assert!(crc16(&name).1, "{name:?}");
                name[at] = other;
            }
        }
    }

    /// The examples of RFC 4493, section 4.
    #[test]
    fn the_hash_is_aes_cmac() {
        let number = |hex: &str| u128::from_str_radix(hex, 16).unwrap();
        let key = number("2b7e151628aed2a6abf7158809cf4f3c").swap_bytes();
        let hasher = Hasher::new([key as u64, (key >> 64) as u64]);
        let message: Vec<u8> = [
            "6bc1bee22e409f96e93d7e117393172a",
            "ae2d8a571e03ac9c9eb76fac45af8e51",
            "30c81c46a35ce411e5fbc1191a0a52ef",
            "f69f2445df4f9b17ad2b417be66c3710",
        ]
        .iter()
        .flat_map(|hex| number(hex).to_be_bytes())
        .collect();
        for (len, code) in [
            (0, "bb1d6929e95937287fa37d129b756746"),
            (16, "070a16b46b4d4144f79bdd9dd04a287c"),
            (40, "dfa66747de9ae63030ca32611497c827"),
            (64, "51f0bebf7e3b9d92fc49741779363cfe"),
        ] {
            assert_eq!(hasher.code(&message[..len]).swap_bytes(), number(code), "{len} bytes");
        }
    }

    #[test]
    fn a_last_block_is_padded_with_one_bit() {
        let bytes: Vec<u8> = (1..16).collect();
        for len in 0..16 {
            let mut block = [0; 16];
            block[..len].copy_from_slice(&bytes[..len]);
            block[len] = 0x80;
            assert_eq!(padded(&bytes[..len]), u128::from_le_bytes(block), "{len} bytes");
        }
    }

    #[test]
    fn the_secret_changes_the_hash_but_not_the_slot() {
        let a = Hasher::new([1, 2]).hash(b"k");
        let b = Hasher::new([1, 3]).hash(b"k");
        assert_ne!(a.high, b.high);
        assert_eq!(a.slot, b.slot);
    }
}
