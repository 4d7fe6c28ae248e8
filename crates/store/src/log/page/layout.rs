//! Owns the bytes of page and extent headers and of a page's directory.
//! Never knows what is inside a frame.
//!
//! All integers are little-endian. A page of small records, 4096 bytes:
//!
//! ```text
//!      0       2         3      4         8      16           20              26        28       30     32
//!      | magic | version | kind | crc32c  | seq  | dictionary | expiry base   | records | frames | used |
//!      | u16   | u8      | u8 1 | u32     | u64  | u32, 0 no  | u48, ms       | u16     | u16    | u16  |
//!
//!     32                used                              4096 - 6·frames - 2·records    4096 - 6·frames  4096
//!      | frame 0 | … | frame n | zeroes                 | fingerprints, u16 each       | frame entries, 6 each |
//! ```
//!
//! Frames grow up from the header, the directory stands at the page's end, both in the order of writing.
//! Fingerprints are in the order of the records, frame after frame. A frame's entry:
//!
//! ```text
//!      0                           2         4           6
//!      | codec, 3 bits | stored, 13 | raw u16 | records u16 |
//! ```
//!
//! An extent, one record on contiguous pages; what follows `stored` bytes on its last page is zeroes:
//!
//! ```text
//!      0 … 26 as above, kind 2    26            28       32    36      37        40          40 + stored
//!      |                        | fingerprint | stored | raw | codec | zeroes  | the frame … |
//!      |                        | u16         | u32    | u32 | u8    | 3       |
//! ```
//!
//! The CRC-32C covers bytes 0..4 and 8..end: the end of the page, or of the extent's stored bytes.

use super::Corrupt;
use super::record::Bases;
use flash::io::PAGE_BYTES;

const MAGIC: u16 = u16::from_le_bytes(*b"FK");
const VERSION: u8 = 1;

pub(super) const PAGE_HEADER_BYTES: usize = 32;
pub(super) const EXTENT_HEADER_BYTES: usize = 40;
pub(super) const FRAME_ENTRY_BYTES: usize = 6;
pub(super) const FINGERPRINT_BYTES: usize = 2;
/// What frames, frame entries and fingerprints of a page share.
pub(super) const PAYLOAD_BYTES: usize = PAGE_BYTES - PAGE_HEADER_BYTES;
/// A frame's raw bytes; a hostile page cannot make a reader decode more.
pub(super) const FRAME_RAW_BYTES_MAX: usize = u16::MAX as usize;

/// The largest encoded record that is sure to fit a page, whatever compression makes of it.
pub const SMALL_BYTES_MAX: usize = PAYLOAD_BYTES - FRAME_ENTRY_BYTES - FINGERPRINT_BYTES;
/// The largest extent: a segment of 16 MiB.
pub const EXTENT_PAGES_MAX: usize = 4096;
/// The largest encoded record: what fits the largest extent uncompressed, so that a reader's memory and the time
/// to compress one record stay bounded. Larger ones are refused ([`super::Push::Never`]) and stay in RAM.
pub const EXTENT_RAW_BYTES_MAX: usize = EXTENT_PAGES_MAX * PAGE_BYTES - EXTENT_HEADER_BYTES;

const AT_VERSION: usize = 2;
const AT_KIND: usize = 3;
const AT_CRC: usize = 4;
const AT_SEQ: usize = 8;
const AT_DICTIONARY: usize = 16;
const AT_EXPIRY_BASE: usize = 20;
const AT_RECORDS: usize = 26;
const AT_FRAMES: usize = 28;
const AT_USED: usize = 30;
const AT_FINGERPRINT: usize = 26;
const AT_STORED: usize = 28;
const AT_RAW: usize = 32;
const AT_CODEC: usize = 36;

const _: () = assert!(AT_USED + 2 == PAGE_HEADER_BYTES);
const _: () = assert!(AT_EXPIRY_BASE + 6 == AT_RECORDS);
const _: () = assert!(AT_CODEC + 4 == EXTENT_HEADER_BYTES);
// `stored` has 13 bits and `used` 16; a page's frames and records are counted in 16.
const _: () = assert!(PAGE_BYTES < 1 << 13);
const _: () = assert!(EXTENT_PAGES_MAX <= u16::MAX as usize);

/// The pages of an extent whose record takes `stored` bytes after compression.
pub fn extent_pages(stored: usize) -> usize {
    (EXTENT_HEADER_BYTES + stored).div_ceil(PAGE_BYTES)
}

/// Persisted: numbers may only be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Small = 1,
    Extent = 2,
}

/// What pages and extents have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct Common {
    pub kind: Kind,
    pub bases: Bases,
    pub dictionary: u32,
}

/// A page's own part of the header.
#[derive(Debug, Clone, Copy)]
pub(super) struct Small {
    pub records: usize,
    pub frames: usize,
    /// Where frames end, counted from the start of the page.
    pub used: usize,
}

/// What one frame is compressed with. Persisted in 3 bits: numbers may only be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum FrameCodec {
    Raw = 0,
    /// An LZ4 block.
    Lz4 = 1,
    /// A zstd frame without its magic number, with the page's dictionary if it has one.
    Zstd = 2,
}

impl FrameCodec {
    pub fn from_number(number: u8) -> Result<FrameCodec, Corrupt> {
        match number {
            0 => Ok(FrameCodec::Raw),
            1 => Ok(FrameCodec::Lz4),
            2 => Ok(FrameCodec::Zstd),
            other => Err(Corrupt::Codec(other)),
        }
    }
}

/// An extent's own part of the header.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    pub fingerprint: u16,
    pub stored: usize,
    pub raw: usize,
    pub codec: FrameCodec,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct FrameEntry {
    pub codec: FrameCodec,
    pub stored: usize,
    pub raw: usize,
    pub records: usize,
}

impl Common {
    pub fn write(&self, out: &mut [u8]) {
        put(out, 0, MAGIC.to_le_bytes());
        out[AT_VERSION] = VERSION;
        out[AT_KIND] = self.kind as u8;
        put(out, AT_SEQ, self.bases.seq.to_le_bytes());
        put(out, AT_DICTIONARY, self.dictionary.to_le_bytes());
        out[AT_EXPIRY_BASE..AT_EXPIRY_BASE + 6].copy_from_slice(&self.bases.expiry_ms.to_le_bytes()[..6]);
    }

    /// `bytes` is at least a page.
    pub fn read(bytes: &[u8]) -> Result<Common, Corrupt> {
        if u16::from_le_bytes(get(bytes, 0)) != MAGIC {
            let empty = bytes[..PAGE_BYTES].iter().all(|&b| b == 0);
            return Err(if empty { Corrupt::Empty } else { Corrupt::Magic });
        }
        if bytes[AT_VERSION] != VERSION {
            return Err(Corrupt::Version(bytes[AT_VERSION]));
        }
        let kind = match bytes[AT_KIND] {
            1 => Kind::Small,
            2 => Kind::Extent,
            other => return Err(Corrupt::Kind(other)),
        };
        let mut expiry = [0; 8];
        expiry[..6].copy_from_slice(&bytes[AT_EXPIRY_BASE..AT_EXPIRY_BASE + 6]);
        Ok(Common {
            kind,
            bases: Bases { seq: u64::from_le_bytes(get(bytes, AT_SEQ)), expiry_ms: u64::from_le_bytes(expiry) },
            dictionary: u32::from_le_bytes(get(bytes, AT_DICTIONARY)),
        })
    }
}

impl Small {
    pub fn write(&self, out: &mut [u8]) {
        put(out, AT_RECORDS, (self.records as u16).to_le_bytes());
        put(out, AT_FRAMES, (self.frames as u16).to_le_bytes());
        put(out, AT_USED, (self.used as u16).to_le_bytes());
    }

    pub fn read(page: &[u8]) -> Result<Small, Corrupt> {
        let small = Small {
            records: u16::from_le_bytes(get(page, AT_RECORDS)).into(),
            frames: u16::from_le_bytes(get(page, AT_FRAMES)).into(),
            used: u16::from_le_bytes(get(page, AT_USED)).into(),
        };
        let fits = small.used >= PAGE_HEADER_BYTES && small.used + small.directory_bytes() <= PAGE_BYTES;
        if fits { Ok(small) } else { Err(Corrupt::Lengths) }
    }

    fn directory_bytes(&self) -> usize {
        self.records * FINGERPRINT_BYTES + self.frames * FRAME_ENTRY_BYTES
    }

    pub fn fingerprints_at(&self) -> usize {
        PAGE_BYTES - self.directory_bytes()
    }

    pub fn entries_at(&self) -> usize {
        PAGE_BYTES - self.frames * FRAME_ENTRY_BYTES
    }
}

impl Extent {
    pub fn write(&self, out: &mut [u8]) {
        put(out, AT_FINGERPRINT, self.fingerprint.to_le_bytes());
        put(out, AT_STORED, (self.stored as u32).to_le_bytes());
        put(out, AT_RAW, (self.raw as u32).to_le_bytes());
        put(out, AT_CODEC, [self.codec as u8, 0, 0, 0]);
    }

    pub fn read(bytes: &[u8]) -> Result<Extent, Corrupt> {
        let extent = Extent {
            fingerprint: u16::from_le_bytes(get(bytes, AT_FINGERPRINT)),
            stored: u32::from_le_bytes(get(bytes, AT_STORED)) as usize,
            raw: u32::from_le_bytes(get(bytes, AT_RAW)) as usize,
            codec: FrameCodec::from_number(bytes[AT_CODEC])?,
        };
        let raw_agrees = extent.codec != FrameCodec::Raw || extent.raw == extent.stored;
        if extent.raw > EXTENT_RAW_BYTES_MAX || extent.stored > EXTENT_RAW_BYTES_MAX || !raw_agrees {
            return Err(Corrupt::Lengths);
        }
        Ok(extent)
    }
}

impl FrameEntry {
    pub fn write(&self, out: &mut [u8]) {
        debug_assert!(self.stored < 1 << 13);
        put(out, 0, ((self.codec as u16) << 13 | self.stored as u16).to_le_bytes());
        put(out, 2, (self.raw as u16).to_le_bytes());
        put(out, 4, (self.records as u16).to_le_bytes());
    }

    pub fn read(bytes: &[u8]) -> Result<FrameEntry, Corrupt> {
        let first = u16::from_le_bytes(get(bytes, 0));
        let entry = FrameEntry {
            codec: FrameCodec::from_number((first >> 13) as u8)?,
            stored: usize::from(first & 0x1fff),
            raw: u16::from_le_bytes(get(bytes, 2)).into(),
            records: u16::from_le_bytes(get(bytes, 4)).into(),
        };
        if entry.codec == FrameCodec::Raw && entry.raw != entry.stored {
            return Err(Corrupt::Lengths);
        }
        Ok(entry)
    }
}

/// `bytes` ends where the checksum's cover ends.
pub(super) fn write_checksum(bytes: &mut [u8]) {
    put(bytes, AT_CRC, checksum(bytes).to_le_bytes());
}

pub(super) fn check_checksum(bytes: &[u8]) -> Result<(), Corrupt> {
    let stored = u32::from_le_bytes(get(bytes, AT_CRC));
    if checksum(bytes) == stored { Ok(()) } else { Err(Corrupt::Checksum) }
}

fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..AT_CRC]), &bytes[AT_SEQ..])
}

fn put<const N: usize>(out: &mut [u8], at: usize, bytes: [u8; N]) {
    out[at..at + N].copy_from_slice(&bytes);
}

fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the slice has N bytes")
}
