//! Owns the bytes of a frame. Never knows what its records mean, or which file it is in.
//!
//! A frame is the unit of writing: whole pages of 4 KiB, padded with zeroes. All integers are little-endian:
//!
//! ```text
//!   0       4         6      8            12         16         32     36       40         48        56        64
//!   | magic | version | zero | header CRC | body CRC | log id   | term | file   | position | copied  | durable | …
//!   | u32   | u16     | u16  | u32        | u32      | 16 bytes | u32  | number | u64      | to, u64 | u64     |
//!                                                                       | u32    |
//!   64            72            76      80      84     96
//!   | replication | CRC of the  | pages | bytes | zero | bytes of records | zeroes to the end of the last page |
//!   | offset, u64 | frame before| u32   | u32   | 12   |
//!                 | u32         |
//! ```
//!
//! In version 2 the records are compressed to an LZ4 block: bytes 84..88 say how many bytes the block has (u32), always
//! fewer than *bytes*; 88..96 are zero. A frame that compression would make hardly smaller has version 1.
//!
//! *Position* is that of the first record. *Copied to*: a term is void unless its frames reach this position. *Durable* is the position
//! up to which everything was durable when the frame was formed. *Replication offset* is that after the last record. The file
//! number grows by one with each use of a file.
//!
//! The header CRC covers bytes 0..8 and 12..96, so it covers the body CRC. The body CRC covers the first 8 bytes of
//! each piece of a record: the piece's own CRC, which covers the rest of the piece, and its length. So while the
//! journal is written, no byte is read twice for a CRC. In version 2 the body CRC covers the LZ4 block. The header CRC
//! is the frame's CRC, and the next frame repeats it: the frames form a chain. In later versions, the first 96 bytes
//! have the magic, the version and the header CRC at the same places.

use flash::io::{PAGE_BYTES, PageBuf};

use crate::record::{Piece, crc_of_crcs};

pub const HEADER_BYTES: usize = 96;
/// The latest version. A frame whose records are not compressed has version 1.
pub const VERSION: u16 = 2;
const PLAIN: u16 = 1;
const MAGIC: [u8; 4] = *b"FKJ\0";

const AT_VERSION: usize = 4;
const AT_HEADER_CRC: usize = 8;
const AT_BODY_CRC: usize = 12;
const AT_LOG: usize = 16;
const AT_TERM: usize = 32;
const AT_NUMBER: usize = 36;
const AT_POSITION: usize = 40;
const AT_COPIED_TO: usize = 48;
const AT_DURABLE: usize = 56;
const AT_OFFSET: usize = 64;
const AT_BEFORE: usize = 72;
const AT_PAGES: usize = 76;
const AT_BYTES: usize = 80;
const AT_STORED: usize = 84;
const AT_ZERO: usize = 88;
const _: () = assert!(AT_ZERO + 8 == HEADER_BYTES);

/// The content of an LZ4 block is at most this many times as long as the block.
const LZ4_RATIO_MAX: u32 = 255;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub log_id: [u8; 16],
    pub term: u32,
    pub number: u32,
    pub position: u64,
    pub copied_to: u64,
    pub durable: u64,
    pub replication_offset: u64,
    pub crc_before: u32,
    pub pages: u32,
    pub bytes: u32,
    /// Bytes that the records take in the frame: less than `bytes` if they are compressed.
    pub stored: u32,
}

/// What a page begins with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The header, the frame's CRC, and the CRC of its body.
    Header(Header, u32, u32),
    /// A header of a version that this release does not know.
    Newer(u16),
    Nothing,
}

/// The number of pages of a frame in which the records take this many bytes.
pub(crate) fn pages(stored: usize) -> usize {
    (HEADER_BYTES + stored).div_ceil(PAGE_BYTES)
}

impl Header {
    pub fn end(&self) -> u64 {
        self.position + u64::from(self.bytes)
    }

    pub fn is_packed(&self) -> bool {
        self.stored < self.bytes
    }

    /// Writes the header before the records, which are in the frame already, compressed or not. Returns the frame's
    /// CRC.
    pub fn seal(&self, frame: &mut [u8]) -> u32 {
        frame[..HEADER_BYTES].fill(0);
        put(frame, 0, MAGIC);
        put(frame, AT_VERSION, if self.is_packed() { VERSION } else { PLAIN }.to_le_bytes());
        put(frame, AT_LOG, self.log_id);
        put(frame, AT_TERM, self.term.to_le_bytes());
        put(frame, AT_NUMBER, self.number.to_le_bytes());
        put(frame, AT_POSITION, self.position.to_le_bytes());
        put(frame, AT_COPIED_TO, self.copied_to.to_le_bytes());
        put(frame, AT_DURABLE, self.durable.to_le_bytes());
        put(frame, AT_OFFSET, self.replication_offset.to_le_bytes());
        put(frame, AT_BEFORE, self.crc_before.to_le_bytes());
        put(frame, AT_PAGES, self.pages.to_le_bytes());
        put(frame, AT_BYTES, self.bytes.to_le_bytes());
        let stored = &frame[HEADER_BYTES..HEADER_BYTES + self.stored as usize];
        let body = match self.is_packed() {
            true => base::crc::crc32c(stored),
            false => crc_of_crcs(stored).expect("a frame has whole pieces"),
        };
        put(frame, AT_BODY_CRC, body.to_le_bytes());
        if self.is_packed() {
            put(frame, AT_STORED, self.stored.to_le_bytes());
        }
        let crc = header_crc(frame);
        put(frame, AT_HEADER_CRC, crc.to_le_bytes());
        crc
    }

    /// Reads what a page begins with. `page` is at least one page long.
    pub fn read(page: &[u8]) -> Found {
        let crc = u32::from_le_bytes(get(page, AT_HEADER_CRC));
        if page[..MAGIC.len()] != MAGIC || crc != header_crc(page) {
            return Found::Nothing;
        }
        let version = u16::from_le_bytes(get(page, AT_VERSION));
        if version > VERSION {
            return Found::Newer(version);
        }
        let bytes = u32::from_le_bytes(get(page, AT_BYTES));
        let stored = if version == PLAIN { bytes } else { u32::from_le_bytes(get(page, AT_STORED)) };
        let header = Header {
            log_id: get(page, AT_LOG),
            term: u32::from_le_bytes(get(page, AT_TERM)),
            number: u32::from_le_bytes(get(page, AT_NUMBER)),
            position: u64::from_le_bytes(get(page, AT_POSITION)),
            copied_to: u64::from_le_bytes(get(page, AT_COPIED_TO)),
            durable: u64::from_le_bytes(get(page, AT_DURABLE)),
            replication_offset: u64::from_le_bytes(get(page, AT_OFFSET)),
            crc_before: u32::from_le_bytes(get(page, AT_BEFORE)),
            pages: u32::from_le_bytes(get(page, AT_PAGES)),
            bytes,
            stored,
        };
        let is_sound = header.is_packed() == (version != PLAIN)
            && bytes / LZ4_RATIO_MAX <= stored
            && pages(stored as usize) == header.pages as usize
            && header.position.checked_add(bytes.into()).is_some();
        match is_sound {
            true => Found::Header(header, crc, u32::from_le_bytes(get(page, AT_BODY_CRC))),
            false => Found::Nothing,
        }
    }
}

/// The CRC of the body of a frame with this header. `None`: the body is damaged.
pub(crate) fn body_crc(frame: &[u8], header: &Header) -> Option<u32> {
    let (stored, padding) = frame[HEADER_BYTES..].split_at_checked(header.stored as usize)?;
    if padding.iter().any(|&byte| byte != 0) {
        return None;
    }
    if header.is_packed() {
        return Some(base::crc::crc32c(stored));
    }
    let mut rest = stored;
    while !rest.is_empty() {
        rest = &rest[Piece::read(rest)?.bytes()..];
    }
    crc_of_crcs(stored)
}

/// Compresses the records of frames.
#[derive(Default)]
pub(crate) struct Packer {
    table: lz4_flex::block::CompressTable,
    out: Vec<u8>,
    /// Number of frames that are not tried, because the last one became hardly smaller.
    skips: u32,
}

impl Packer {
    /// While frames do not become smaller, one frame in this many is tried.
    const TRIED_EVERY: u32 = 16;

    /// Compresses the frame's records in place if that saves an eighth. Returns the bytes that they take then. Random
    /// values, and values that are compressed already, should not take processor time in vain.
    pub fn pack(&mut self, frame: &mut [u8], bytes: u32) -> Option<u32> {
        if self.skips > 0 {
            self.skips -= 1;
            return None;
        }
        let records = &mut frame[HEADER_BYTES..HEADER_BYTES + bytes as usize];
        self.out.resize(lz4_flex::block::get_maximum_output_size(records.len()), 0);
        let packed = lz4_flex::block::compress_into_with_table(records, &mut self.out, &mut self.table);
        let stored = packed.expect("there is room for the longest block");
        if stored > records.len() / 8 * 7 {
            self.skips = Packer::TRIED_EVERY - 1;
            return None;
        }
        records[..stored].copy_from_slice(&self.out[..stored]);
        Some(stored as u32)
    }
}

/// The frame with its records decompressed, on as many pages as they need. `None`: the frame is damaged.
pub(crate) fn unpacked(frame: &PageBuf, header: &Header) -> Option<PageBuf> {
    let stored = frame[HEADER_BYTES..].get(..header.stored as usize)?;
    let mut plain = PageBuf::new(pages(header.bytes as usize));
    let records = &mut plain[HEADER_BYTES..HEADER_BYTES + header.bytes as usize];
    let bytes = lz4_flex::block::decompress_into(stored, records).ok()?;
    (bytes == records.len()).then_some(plain)
}

fn header_crc(page: &[u8]) -> u32 {
    base::crc::crc32c_append(base::crc::crc32c(&page[..AT_HEADER_CRC]), &page[AT_BODY_CRC..HEADER_BYTES])
}

fn put<const N: usize>(out: &mut [u8], at: usize, bytes: [u8; N]) {
    out[at..at + N].copy_from_slice(&bytes);
}

fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the slice has N bytes")
}
