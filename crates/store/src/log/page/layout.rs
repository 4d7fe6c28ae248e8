//! Owns the bytes of a page's header and of its directory.
//! Never knows the contents of a frame.
//!
//! All integers are little-endian. The header:
//!
//! ```text
//!   0       2         3      4        8        12           16         24           28            32     34        36       38       40
//!   | magic | version | zero | crc32c | log id | generation | position | dictionary | expiry base | lead | records | frames | number |
//!   | u16   | u8 2    | u8   | u32    | u32    | u32        | u64      | u32, 0 no  | u32, s      | u16  | u16     | u16    | u16    |
//! ```
//!
//! The page, 4096 bytes:
//!
//! ```text
//!   40      40 + lead                                   4096 - 8·frames - 2·records    4096 - 8·frames  4096
//!   | lead  | frame 0 | … | frame n | zeroes            | fingerprints, u16 each       | frame entries, 8 each |
//! ```
//!
//! Frames grow up from the header. The directory stands at the page's end. Both are in the order of writing, and so are the
//! fingerprints of each frame's records. The last frame may be longer than the rest of its page: then it fills the page up to the
//! directory and goes on in the *lead* of the next page, and of the pages after that. A frame's entry:
//!
//! ```text
//!   |63   61|60        48|47   24|23     0|
//!   | codec | records 13 | raw 24 | stored 24 |
//! ```
//!
//! *Log id*, *generation* and *number* identify the page: its log, the use of its segment, and its index in the
//! segment. So a read notices a page that was not written, or was written to another place. *Position* is the sequence
//! number of the unit's first record; the numbers of the other records are near it.
//!
//! The CRC-32C covers bytes 0..4 and 8..4096.

use super::Corrupt;
use super::record::Bases;
use crate::narrow::{low16, to_usize};
use flash::io::PAGE_BYTES;

const MAGIC: u16 = u16::from_le_bytes(*b"FK");
/// The version of the format.
pub const VERSION: u8 = 2;

pub(super) const PAGE_HEADER_BYTES: usize = 40;
pub(super) const FRAME_ENTRY_BYTES: usize = 8;
pub(super) const FINGERPRINT_BYTES: usize = 2;
/// Shared by the lead, frames, frame entries and fingerprints of a page.
pub(super) const PAYLOAD_BYTES: usize = PAGE_BYTES - PAGE_HEADER_BYTES;
/// The records of one frame whose fingerprints must fit on one page.
pub(super) const FRAME_RECORDS_MAX: usize = 256;

/// The largest write unit: a segment of 16 MiB.
pub const UNIT_PAGES_MAX: usize = 4096;
/// The largest encoded record: what fits the largest unit uncompressed, so that a reader's memory and the time to compress one
/// record stay bounded. Larger records are refused ([`super::Push::Never`]) and stay in RAM.
pub const RECORD_BYTES_MAX: usize = UNIT_PAGES_MAX * PAYLOAD_BYTES - FRAME_ENTRY_BYTES - FINGERPRINT_BYTES;

const AT_VERSION: usize = 2;
const AT_CRC: usize = 4;
const AT_LOG: usize = 8;
const AT_GENERATION: usize = 12;
const AT_POSITION: usize = 16;
const AT_DICTIONARY: usize = 24;
const AT_EXPIRY_BASE: usize = 28;
const AT_LEAD: usize = 32;
const AT_RECORDS: usize = 34;
const AT_FRAMES: usize = 36;
const AT_NUMBER: usize = 38;

const STORED_BITS: u32 = 24;
const RAW_BITS: u32 = 24;
const RECORDS_BITS: u32 = 13;
const _: () = assert!(STORED_BITS + RAW_BITS + RECORDS_BITS + 3 == u64::BITS);
const _: () = assert!(RECORD_BYTES_MAX < 1 << RAW_BITS);
// A page's raw frame has fewer records than bytes.
const _: () = assert!(PAGE_BYTES < 1 << RECORDS_BITS);
const _: () = assert!(AT_NUMBER + 2 == PAGE_HEADER_BYTES);

/// The pages that a frame of `stored` bytes spans, of which `here` bytes fit on the page where it begins.
pub(super) fn span(stored: usize, here: usize) -> usize {
    1 + stored.saturating_sub(here).div_ceil(PAYLOAD_BYTES)
}

/// The pages of a unit that contains only one frame of one record.
pub(super) fn pages_alone(stored: usize) -> usize {
    span(stored, PAYLOAD_BYTES - FRAME_ENTRY_BYTES - FINGERPRINT_BYTES)
}

/// A number of bytes, records or frames of a page.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a page has 4,096 bytes, and each record and frame takes some of them"
)]
fn in_page(number: usize) -> u16 {
    debug_assert!(number <= PAGE_BYTES);
    number as u16
}

/// The index of a page in its unit.
#[expect(clippy::cast_possible_truncation, reason = "a unit has at most UNIT_PAGES_MAX pages, which is 4,096")]
pub(super) fn in_unit(page: usize) -> u16 {
    debug_assert!(page < UNIT_PAGES_MAX);
    page as u16
}

/// What each of the records of a frame takes on flash: its share of the frame and of the frame's entry, and its fingerprint.
#[expect(clippy::cast_possible_truncation, reason = "a frame stores at most RECORD_BYTES_MAX, which is below 2^24")]
pub(super) fn share_bytes(stored: usize, records: usize) -> u32 {
    debug_assert!(stored <= RECORD_BYTES_MAX);
    ((FRAME_ENTRY_BYTES + stored) / records + FINGERPRINT_BYTES) as u32
}

/// Says which page of which log this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    pub log: u32,
    /// Counts the uses of the segment.
    pub generation: u32,
    /// Index of the page in its segment.
    pub number: u16,
}

impl Stamp {
    /// The stamp in the header of a page. The page's checksum is not checked.
    pub fn of(page: &[u8; PAGE_BYTES]) -> Stamp {
        Stamp {
            log: u32::from_le_bytes(get(page, AT_LOG)),
            generation: u32::from_le_bytes(get(page, AT_GENERATION)),
            number: u16::from_le_bytes(get(page, AT_NUMBER)),
        }
    }

    /// The stamp of the page `pages` pages later.
    pub fn later(self, pages: usize) -> Stamp {
        Stamp { number: self.number.wrapping_add(low16(pages as u64)), ..self }
    }
}

/// How a frame is compressed. Persisted in 3 bits: numbers may only be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum FrameCodec {
    Raw = 0,
    /// An LZ4 block.
    Lz4 = 1,
    /// A zstd frame without its magic number.
    Zstd = 2,
    /// The same, with the page's dictionary.
    ZstdWithDictionary = 3,
}

impl FrameCodec {
    fn from_number(number: u8) -> Result<FrameCodec, Corrupt> {
        match number {
            0 => Ok(FrameCodec::Raw),
            1 => Ok(FrameCodec::Lz4),
            2 => Ok(FrameCodec::Zstd),
            3 => Ok(FrameCodec::ZstdWithDictionary),
            other => Err(Corrupt::Codec(other)),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub bases: Bases,
    /// 0: none.
    pub dictionary: u32,
    /// Bytes at the front that belong to the last frame of an earlier page.
    pub lead: usize,
    pub records: usize,
    pub frames: usize,
}

impl Header {
    /// Writes all but the stamp and the checksum, which [`stamp`] adds.
    pub fn write(&self, page: &mut [u8]) {
        page[..PAGE_HEADER_BYTES].fill(0);
        put(page, 0, MAGIC.to_le_bytes());
        page[AT_VERSION] = VERSION;
        put(page, AT_POSITION, self.bases.seq.to_le_bytes());
        put(page, AT_DICTIONARY, self.dictionary.to_le_bytes());
        put(page, AT_EXPIRY_BASE, self.bases.expiry_s.to_le_bytes());
        put(page, AT_LEAD, in_page(self.lead).to_le_bytes());
        put(page, AT_RECORDS, in_page(self.records).to_le_bytes());
        put(page, AT_FRAMES, in_page(self.frames).to_le_bytes());
    }

    /// Reads the header of a page whose checksum is right and that is the expected one.
    pub fn read(page: &[u8], expected: Stamp) -> Result<Header, Corrupt> {
        if u16::from_le_bytes(get(page, 0)) != MAGIC {
            let empty = page.iter().all(|&b| b == 0);
            return Err(if empty { Corrupt::Empty } else { Corrupt::Magic });
        }
        if page[AT_VERSION] != VERSION {
            return Err(Corrupt::Version(page[AT_VERSION]));
        }
        if u32::from_le_bytes(get(page, AT_CRC)) != checksum(page) {
            return Err(Corrupt::Checksum);
        }
        if Stamp::of(page.first_chunk().ok_or(Corrupt::Short)?) != expected {
            return Err(Corrupt::Stale);
        }
        let header = Header {
            bases: Bases {
                seq: u64::from_le_bytes(get(page, AT_POSITION)),
                expiry_s: u32::from_le_bytes(get(page, AT_EXPIRY_BASE)),
            },
            dictionary: u32::from_le_bytes(get(page, AT_DICTIONARY)),
            lead: u16::from_le_bytes(get(page, AT_LEAD)).into(),
            records: u16::from_le_bytes(get(page, AT_RECORDS)).into(),
            frames: u16::from_le_bytes(get(page, AT_FRAMES)).into(),
        };
        let fits = PAGE_HEADER_BYTES + header.lead + header.directory_bytes() <= PAGE_BYTES;
        if fits { Ok(header) } else { Err(Corrupt::Lengths) }
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

#[derive(Debug, Clone, Copy)]
pub(super) struct FrameEntry {
    pub codec: FrameCodec,
    pub stored: usize,
    pub raw: usize,
    pub records: usize,
}

impl FrameEntry {
    pub fn write(&self, out: &mut [u8]) {
        let lengths = self.stored as u64 | (self.raw as u64) << STORED_BITS;
        let records = (self.records as u64) << (STORED_BITS + RAW_BITS);
        let codec = (self.codec as u64) << (STORED_BITS + RAW_BITS + RECORDS_BITS);
        put(out, 0, (lengths | records | codec).to_le_bytes());
    }

    /// The stored bytes and the number of records.
    #[inline]
    pub fn lengths(bytes: &[u8; FRAME_ENTRY_BYTES]) -> (usize, usize) {
        let word = u64::from_le_bytes(*bytes);
        (field(word, 0, STORED_BITS), field(word, STORED_BITS + RAW_BITS, RECORDS_BITS))
    }

    #[inline]
    pub fn read(bytes: &[u8; FRAME_ENTRY_BYTES]) -> Result<FrameEntry, Corrupt> {
        let word = u64::from_le_bytes(*bytes);
        let (stored, records) = FrameEntry::lengths(bytes);
        let entry = FrameEntry {
            codec: FrameCodec::from_number((word >> (STORED_BITS + RAW_BITS + RECORDS_BITS)) as u8)?,
            stored,
            raw: field(word, STORED_BITS, RAW_BITS),
            records,
        };
        let raw_agrees = entry.codec != FrameCodec::Raw || entry.raw == entry.stored;
        if entry.raw > RECORD_BYTES_MAX || entry.stored > RECORD_BYTES_MAX || !raw_agrees {
            return Err(Corrupt::Lengths);
        }
        Ok(entry)
    }
}

#[inline]
fn field(word: u64, shift: u32, bits: u32) -> usize {
    to_usize(word >> shift & ((1 << bits) - 1))
}

/// Writes a page's header but for the stamp, and its directory. Its frames end at `used`.
pub(super) fn write_around(
    page: &mut [u8],
    header: &Header,
    used: usize,
    fingerprints: impl Iterator<Item = u16>,
    frames: &[FrameEntry],
) {
    header.write(page);
    page[used..header.fingerprints_at()].fill(0);
    for (out, fingerprint) in page[header.fingerprints_at()..].chunks_exact_mut(FINGERPRINT_BYTES).zip(fingerprints) {
        out.copy_from_slice(&fingerprint.to_le_bytes());
    }
    for (out, frame) in page[header.entries_at()..].chunks_exact_mut(FRAME_ENTRY_BYTES).zip(frames) {
        frame.write(out);
    }
}

/// Completes the pages of a finished unit, which begins at the page with this stamp.
pub fn stamp(unit: &mut [u8], first: Stamp) {
    for (at, page) in unit.chunks_exact_mut(PAGE_BYTES).enumerate() {
        let own = first.later(at);
        put(page, AT_LOG, own.log.to_le_bytes());
        put(page, AT_GENERATION, own.generation.to_le_bytes());
        put(page, AT_NUMBER, own.number.to_le_bytes());
        let crc = checksum(page);
        put(page, AT_CRC, crc.to_le_bytes());
    }
}

fn checksum(page: &[u8]) -> u32 {
    base::crc::crc32c_append(base::crc::crc32c(&page[..AT_CRC]), &page[AT_LOG..])
}

fn put<const N: usize>(out: &mut [u8], at: usize, bytes: [u8; N]) {
    out[at..at + N].copy_from_slice(&bytes);
}

fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the slice has N bytes")
}
