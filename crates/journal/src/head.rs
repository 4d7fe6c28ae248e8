//! Owns the first bytes of each file of the journal, and of the ring's file, which say what the file is. Integers are
//! little-endian.
//!
//! ```text
//!   0       8         12       16       32           40      48      52
//!   | magic | version | number | log id | data bytes | epoch | CRC-32C of all before |
//!   |       | u32     | u32    |        | u64        | u64   | u32                   |
//! ```
//!
//! *Data bytes* is the length of what follows, at an offset that depends on the kind of file. *Epoch* is the ring's; it
//! is 0 in other files.

pub const HEAD_BYTES: usize = 52;
const VERSION: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub kind: Kind,
    pub number: u32,
    pub log_id: [u8; 16],
    pub data_bytes: u64,
    pub epoch: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Records,
    Ring,
}

impl Kind {
    fn magic(self) -> [u8; 8] {
        match self {
            Kind::Records => *b"FLINTKVJ",
            Kind::Ring => *b"FLINTKVR",
        }
    }
}

impl Head {
    pub fn write(&self, out: &mut [u8]) {
        out[..8].copy_from_slice(&self.kind.magic());
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&self.number.to_le_bytes());
        out[16..32].copy_from_slice(&self.log_id);
        out[32..40].copy_from_slice(&self.data_bytes.to_le_bytes());
        out[40..48].copy_from_slice(&self.epoch.to_le_bytes());
        let crc = base::crc::crc32c(&out[..48]);
        out[48..HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
    }

    /// The head at the start of `bytes`, the beginning of a file of this kind. An error says why there is no valid
    /// head.
    pub fn read(kind: Kind, bytes: &[u8]) -> Result<Head, String> {
        let Some(bytes) = bytes.first_chunk::<HEAD_BYTES>().filter(|bytes| bytes[..8] == kind.magic()) else {
            return Err("this is not a journal file".into());
        };
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        if u32_at(48) != base::crc::crc32c(&bytes[..48]) {
            return Err("the checksum of the file's header is wrong".into());
        }
        if u32_at(8) != VERSION {
            return Err(format!("the file has format {}, but this release reads only format {VERSION}", u32_at(8)));
        }
        let log_id = bytes[16..32].try_into().expect("16 bytes");
        Ok(Head { kind, number: u32_at(12), log_id, data_bytes: u64_at(32), epoch: u64_at(40) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// These bytes must stay readable.
    #[test]
    fn the_head_is_frozen() {
        let head = Head { kind: Kind::Ring, number: 2, log_id: *b"0123456789abcdef", data_bytes: 4096, epoch: 7 };
        let mut bytes = [0; HEAD_BYTES];
        head.write(&mut bytes);
        let text = b"FLINTKVR\x01\0\0\0\x02\0\0\x000123456789abcdef\0\x10\0\0\0\0\0\0\x07\0\0\0\0\0\0\0";
        assert_eq!(bytes[..48], text[..]);
        assert_eq!(Head::read(Kind::Ring, &bytes), Ok(head));
        assert!(Head::read(Kind::Records, &bytes).unwrap_err().contains("not a journal file"));
        bytes[20] ^= 1;
        assert!(Head::read(Kind::Ring, &bytes).unwrap_err().contains("checksum"));
    }
}
