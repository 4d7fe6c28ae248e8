//! Owns the checksum of dumps: CRC-64 with the polynomial 0xad93d23594c935a9 (Jones), reflected, from 0. Never knows
//! what the bytes mean.

const POLYNOMIAL: u64 = 0xad93_d235_94c9_35a9u64.reverse_bits();

/// `TABLES[n][b]`: the effect of byte b on the sum when n more bytes follow.
static TABLES: [[u64; 256]; 8] = tables();

const fn tables() -> [[u64; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ POLYNOMIAL } else { sum >> 1 };
            bit += 1;
        }
        tables[0][byte] = sum;
        byte += 1;
    }
    let mut more = 1;
    while more < 8 {
        let mut byte = 0;
        while byte < 256 {
            let sum = tables[more - 1][byte];
            tables[more][byte] = sum >> 8 ^ tables[0][(sum & 0xff) as usize];
            byte += 1;
        }
        more += 1;
    }
    tables
}

pub fn crc64(bytes: &[u8]) -> u64 {
    crc64_after(0, bytes)
}

/// The checksum of `bytes` behind bytes whose checksum is `sum`.
pub fn crc64_after(mut sum: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let mixed = (sum ^ u64::from_le_bytes(*word)).to_le_bytes();
        sum = mixed.iter().enumerate().fold(0, |sum, (n, &byte)| sum ^ TABLES[7 - n][usize::from(byte)]);
    }
    rest.iter().fold(sum, |sum, &byte| sum >> 8 ^ TABLES[0][usize::from(sum as u8 ^ byte)])
}

#[cfg(test)]
mod tests {
    #[test]
    fn sums_follow_the_definition() {
        assert_eq!(super::crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        assert_eq!(super::crc64_after(super::crc64(b"12345"), b"6789"), 0xe9c6_d914_c4b8_d9ca);
        assert_eq!(super::crc64(b""), 0);
        // The end of a redis-server's DUMP of the string "value".
        assert_eq!(super::crc64(b"\0\x05value\x0a\0").to_le_bytes(), *b"\x81\xf6\xc1\x38\xc1\xaa\x9b\x6e");
    }
}
