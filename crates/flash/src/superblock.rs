//! Owns the superblock: the description of a log file in its first two pages. Never opens a file.

use crate::io::{PAGE_BYTES, PageBuf};
use std::io;
use std::ops::Range;

/// Where the store's bytes start in every log file. The first pages are the superblock; the rest up to 1 MiB is
/// reserved, so that the store's large writes start at a boundary that suits RAID stripes and flash translation layers.
pub const DATA_OFFSET: u64 = 1 << 20;
const _: () = assert!(DATA_OFFSET.is_multiple_of(PAGE_BYTES as u64));

/// There are two copies. The valid one with the higher sequence counts, so a torn write leaves the other copy intact.
/// Integers are little-endian.
///
/// ```text
///    0       8         12       14       16         32            40           48         56     57     4092    4096
///    +-------+---------+--------+--------+----------+-------------+------------+----------+------+------+--------+
///    | magic | version | path   | path   | log id   | data offset | data bytes | sequence | kept | zero | CRC-32C|
///    |       | u32     | index  | count  | 16 bytes | u64         | u64        | u64      | u8   |      | of all |
///    |       |         | u16    | u16    |          |             |            |          |      |      | before |
///    +-------+---------+--------+--------+----------+-------------+------------+----------+------+------+--------+
/// ```
/// The log id is random, and the same on all paths of one start, so that logs of different starts cannot be mixed. The
/// sequence is 0 at the start and grows by one with every change. It determines which of the two pages is written. Kept
/// is 1 while a dataset that survives restarts has values in the log: then a start must not empty the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    pub path_index: u16,
    pub path_count: u16,
    pub log_id: [u8; 16],
    pub data_bytes: u64,
    pub sequence: u64,
    pub is_kept: bool,
}

mod at {
    use super::Range;
    pub const MAGIC: Range<usize> = 0..8;
    pub const VERSION: Range<usize> = 8..12;
    pub const PATH_INDEX: Range<usize> = 12..14;
    pub const PATH_COUNT: Range<usize> = 14..16;
    pub const LOG_ID: Range<usize> = 16..32;
    pub const DATA_OFFSET: Range<usize> = 32..40;
    pub const DATA_BYTES: Range<usize> = 40..48;
    pub const SEQUENCE: Range<usize> = 48..56;
    pub const KEPT: Range<usize> = 56..57;
    pub const ZERO: Range<usize> = 57..4092;
    pub const CRC: Range<usize> = 4092..4096;
}

const MAGIC: [u8; 8] = *b"FLINTKV\0";
const VERSION: u32 = 1;
/// Copies of the superblock, one page each, at the start of the file.
const COPIES: usize = 2;

const _: () = {
    assert!(at::MAGIC.end - at::MAGIC.start == MAGIC.len());
    assert!(at::MAGIC.end == at::VERSION.start && at::VERSION.end == at::PATH_INDEX.start);
    assert!(at::PATH_INDEX.end == at::PATH_COUNT.start && at::PATH_COUNT.end == at::LOG_ID.start);
    assert!(at::LOG_ID.end == at::DATA_OFFSET.start && at::DATA_OFFSET.end == at::DATA_BYTES.start);
    assert!(at::DATA_BYTES.end == at::SEQUENCE.start && at::SEQUENCE.end == at::KEPT.start);
    assert!(at::KEPT.end == at::ZERO.start);
    assert!(at::ZERO.end == at::CRC.start && at::CRC.end == PAGE_BYTES);
    assert!((COPIES * PAGE_BYTES) as u64 <= DATA_OFFSET);
};

impl Superblock {
    /// The page, and its offset in the file.
    pub(crate) fn page(&self) -> (u64, PageBuf) {
        let mut page = PageBuf::new(1);
        page[at::MAGIC].copy_from_slice(&MAGIC);
        page[at::VERSION].copy_from_slice(&VERSION.to_le_bytes());
        page[at::PATH_INDEX].copy_from_slice(&self.path_index.to_le_bytes());
        page[at::PATH_COUNT].copy_from_slice(&self.path_count.to_le_bytes());
        page[at::LOG_ID].copy_from_slice(&self.log_id);
        page[at::DATA_OFFSET].copy_from_slice(&DATA_OFFSET.to_le_bytes());
        page[at::DATA_BYTES].copy_from_slice(&self.data_bytes.to_le_bytes());
        page[at::SEQUENCE].copy_from_slice(&self.sequence.to_le_bytes());
        page[at::KEPT.start] = self.is_kept.into();
        let crc = base::crc::crc32c(&page[..at::CRC.start]);
        page[at::CRC].copy_from_slice(&crc.to_le_bytes());
        (self.sequence % COPIES as u64 * PAGE_BYTES as u64, page)
    }

    /// The superblock of a log that starts with these bytes. If no copy is valid, the error is that of the first one.
    pub fn newest(log: &[u8]) -> io::Result<Superblock> {
        let copies = log.chunks_exact(PAGE_BYTES).take(COPIES);
        let newest = copies.filter_map(|page| Superblock::decode(page).ok()).max_by_key(|copy| copy.sequence);
        newest.map_or_else(|| Superblock::decode(log.get(..PAGE_BYTES).unwrap_or_default()), Ok)
    }

    /// `page` is one of the copies.
    pub fn decode(page: &[u8]) -> io::Result<Superblock> {
        let refuse = |what| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        if page.len() != PAGE_BYTES || page[at::MAGIC] != MAGIC {
            return refuse("not a FlintKV log");
        }
        if u32_at(page, at::CRC) != base::crc::crc32c(&page[..at::CRC.start]) {
            return refuse("the superblock's checksum is wrong");
        }
        if u32_at(page, at::VERSION) != VERSION {
            return refuse("a log format that this version does not know");
        }
        if u64_at(page, at::DATA_OFFSET) != DATA_OFFSET {
            return refuse("a log whose data begins at another offset");
        }
        let mut log_id = [0; 16];
        log_id.copy_from_slice(&page[at::LOG_ID]);
        Ok(Superblock {
            path_index: u16_at(page, at::PATH_INDEX),
            path_count: u16_at(page, at::PATH_COUNT),
            log_id,
            data_bytes: u64_at(page, at::DATA_BYTES),
            sequence: u64_at(page, at::SEQUENCE),
            is_kept: page[at::KEPT.start] != 0,
        })
    }
}

fn u16_at(page: &[u8], at: Range<usize>) -> u16 {
    u16::from_le_bytes(page[at].try_into().expect("a range of two bytes"))
}

fn u32_at(page: &[u8], at: Range<usize>) -> u32 {
    u32::from_le_bytes(page[at].try_into().expect("a range of four bytes"))
}

fn u64_at(page: &[u8], at: Range<usize>) -> u64 {
    u64::from_le_bytes(page[at].try_into().expect("a range of eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG_ID: [u8; 16] = *b"0123456789abcdef";

    /// The layout of release 0.1, whose reserved bytes are today's sequence 0. These bytes must stay readable.
    #[test]
    fn the_superblock_s_layout_is_frozen() {
        let superblock = Superblock {
            path_index: 1,
            path_count: 2,
            log_id: LOG_ID,
            data_bytes: 0x1234_5000,
            sequence: 0,
            is_kept: false,
        };
        let (offset, mut page) = superblock.page();
        assert_eq!(offset, 0);
        assert_eq!(&page[..16], b"FLINTKV\0\x01\0\0\0\x01\0\x02\0");
        assert_eq!(&page[16..32], b"0123456789abcdef");
        assert_eq!(&page[32..48], b"\0\0\x10\0\0\0\0\0\0\x50\x34\x12\0\0\0\0");
        assert!(page[48..4092].iter().all(|&byte| byte == 0));
        assert_eq!(base::crc::crc32c(&page[..4092]), u32_at(&page, at::CRC));
        assert_eq!(Superblock::decode(&page).unwrap(), superblock);
        for byte in 0..PAGE_BYTES {
            page[byte] ^= 0x10;
            assert!(Superblock::decode(&page).is_err(), "byte {byte} may change unnoticed");
            page[byte] ^= 0x10;
        }
        let (offset, page) = Superblock { sequence: 0x0203, is_kept: true, ..superblock }.page();
        assert_eq!((offset, &page[48..58]), (4096, b"\x03\x02\0\0\0\0\0\0\x01\0".as_slice()));
        assert!(Superblock::decode(&page).unwrap().is_kept);
    }

    #[test]
    fn a_torn_write_leaves_the_copy_before_it() {
        let mut log = vec![0; 2 * PAGE_BYTES];
        assert!(Superblock::newest(&log).is_err());
        assert!(Superblock::newest(&[]).is_err());
        for sequence in 0..5 {
            let superblock = Superblock {
                path_index: 0,
                path_count: 1,
                log_id: LOG_ID,
                data_bytes: sequence << 20,
                sequence,
                is_kept: false,
            };
            let before = Superblock::newest(&log).ok();
            let (offset, page) = superblock.page();
            let copy = &mut log[offset as usize..][..PAGE_BYTES];
            copy[..512].copy_from_slice(&page[..512]);
            if let Some(before) = before {
                assert_eq!(Superblock::newest(&log).unwrap(), before, "torn while {sequence} was written");
            }
            log[offset as usize..][..PAGE_BYTES].copy_from_slice(&page);
            assert_eq!(Superblock::newest(&log).unwrap(), superblock);
        }
    }
}
