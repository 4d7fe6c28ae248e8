//! Owns the numbers computed from a key: its slot, its stripe and its keyed 128-bit hash.
//! Never knows where the key's value is.

use siphasher::sip128::{Hash128, Hasher128, SipHasher13};
use std::hash::Hasher as _;

pub const SLOTS: usize = 16_384;
pub const STRIPES: usize = 1024;
const SLOTS_PER_STRIPE: usize = SLOTS / STRIPES;

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
        self.slot as usize / SLOTS_PER_STRIPE
    }
}

/// A key's bytes with its hash.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    pub name: &'a [u8],
    pub hash: KeyHash,
}

/// The keyed hash. The secret is drawn at start. Without knowing it, nobody can construct two keys that collide.
#[derive(Clone)]
pub struct Hasher {
    keyed: SipHasher13,
}

impl Hasher {
    pub fn new(secret: [u64; 2]) -> Hasher {
        Hasher { keyed: SipHasher13::new_with_keys(secret[0], secret[1]) }
    }

    #[inline]
    pub fn key<'a>(&self, name: &'a [u8]) -> Key<'a> {
        Key { name, hash: self.hash(name) }
    }

    #[inline]
    pub fn hash(&self, name: &[u8]) -> KeyHash {
        let mut hasher = self.keyed;
        hasher.write(name);
        let Hash128 { h1, h2 } = hasher.finish128();
        KeyHash { high: h1, low: h2, slot: slot(name) }
    }
}

/// The cluster slot of a key: CRC-16/XMODEM of its hash tag (the part between the first `{` and the
/// next `}`, when that is not empty), else of all of it. Source: Redis Cluster specification.
pub fn slot(name: &[u8]) -> u16 {
    let tag = match opening(name) {
        Some(open) => match name[open + 1..].iter().position(|&b| b == b'}') {
            Some(len) if len > 0 => &name[open + 1..open + 1 + len],
            _ => name,
        },
        None => name,
    };
    crc16(tag) % SLOTS as u16
}

/// The position of the first `{`. Searches eight bytes at a step, because hardly any key contains one.
#[inline]
fn opening(name: &[u8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let mut at = 0;
    let mut eights = name.chunks_exact(8);
    for eight in &mut eights {
        let other = u64::from_le_bytes(eight.try_into().expect("eight bytes")) ^ (b'{' as u64 * ONES);
        // The high bit is set for zero bytes. Only the lowest set bit is exact.
        let zeros = other.wrapping_sub(ONES) & !other & (0x80 * ONES);
        if zeros != 0 {
            return Some(at + zeros.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    eights.remainder().iter().position(|&byte| byte == b'{').map(|tail| at + tail)
}

/// CRC16_TABLES[n][b]: the checksum of byte b followed by n zero bytes, for eight bytes a step.
const CRC16_TABLES: [[u16; 256]; 8] = {
    let mut tables = [[0u16; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
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

fn crc16(bytes: &[u8]) -> u16 {
    let mut crc = 0u16;
    let mut eights = bytes.chunks_exact(8);
    for e in &mut eights {
        let t = &CRC16_TABLES;
        crc = t[7][(e[0] ^ (crc >> 8) as u8) as usize]
            ^ t[6][(e[1] ^ crc as u8) as usize]
            ^ t[5][e[2] as usize]
            ^ t[4][e[3] as usize]
            ^ t[3][e[4] as usize]
            ^ t[2][e[5] as usize]
            ^ t[1][e[6] as usize]
            ^ t[0][e[7] as usize];
    }
    for &byte in eights.remainder() {
        crc = (crc << 8) ^ CRC16_TABLES[0][(byte ^ (crc >> 8) as u8) as usize];
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_redis_clusters() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12182);
        assert_eq!(slot(b"somekey"), 11058);
        assert_eq!(slot(b"foo{hash_tag}"), 2515);
        assert_eq!(slot(b"bar{hash_tag}"), 2515);
        assert_eq!(slot(b"{}x"), crc16(b"{}x") % 16384);
        assert_eq!(slot(b"a{b{c}d}"), slot(b"b{c"));
    }

    #[test]
    fn eight_bytes_a_step_equal_one() {
        let bytes: Vec<u8> = (0..100).map(|i| (i * 37) as u8).collect();
        for len in 0..bytes.len() {
            let simple =
                bytes[..len].iter().fold(0u16, |crc, &b| (crc << 8) ^ CRC16_TABLES[0][(b ^ (crc >> 8) as u8) as usize]);
            assert_eq!(crc16(&bytes[..len]), simple);
        }
    }

    #[test]
    fn the_opening_brace_is_the_first() {
        for len in 0..40 {
            let mut name: Vec<u8> = (0..len).map(|i| if i % 3 == 0 { b'|' } else { b'z' }).collect();
            assert_eq!(opening(&name), None);
            for at in (0..len).rev() {
                name[at] = b'{';
                assert_eq!(opening(&name), Some(at));
            }
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
