//! Owns the format of the log: how records become pages, and how bytes read from flash become records
//! again, or an error that says what is wrong with them.
//! Never knows files, segments, the index, clocks or randomness: plain bytes in, plain bytes out.
//!
//! In reading order: [`layout`] describes the bytes of a page, [`record`] those of a record,
//! [`builder`] fills a write unit, [`reader`] finds records again, [`codec`] compresses, [`dict`] trains dictionaries,
//! [`ship`] brings pages to another log.
//!
//! ```text
//! let mut builder = PageBuilder::new(Codec::Zstd, 1);
//! builder.begin(PageBuf::new(64), seq, now_ms);
//! while builder.push(&victim, tag) == Push::Taken { … }
//! let unit = builder.finish(&mut placed);
//! stamp(&mut unit.buf, first_page);                  // one write: unit.buf[..unit.pages]
//!
//! let page = Page::open(&buf, first_page)?;          // checks the page
//! let record = page.find(hash, db, key, &dictionaries, &mut scratch)?;
//! ```

mod builder;
mod codec;
mod dict;
mod layout;
mod reader;
mod record;
mod ship;
#[cfg(test)]
mod tests;

pub use base::Codec;
pub use builder::{PageBuilder, Placed, Push, Stats, Unit};
pub use codec::Scratch;
pub use dict::{DICTIONARY_BYTES, Dictionary, Trainer};
pub use layout::{RECORD_BYTES_MAX, Stamp, UNIT_PAGES_MAX, VERSION, stamp};
pub use reader::{Dictionaries, Page, no_dictionaries, scan};
pub use record::Record;
pub use ship::{Packing, SHIPMENT_PAGES_MAX, Shipment, Shipped};

/// What is wrong with bytes that came from flash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Corrupt {
    /// The page is all zeroes: it was never written, or discarded.
    Empty,
    /// The buffer ends before the page or its last record does.
    Short,
    /// Not a page of a log.
    Magic,
    /// A format version this program does not know.
    Version(u8),
    /// The checksum does not match: a torn write or flipped bits.
    Checksum,
    /// A valid page, but not the expected one: a write was lost or went to another place.
    Stale,
    /// Lengths or counts contradict each other.
    Lengths,
    /// A compression this program does not know.
    Codec(u8),
    /// The page needs a dictionary that is not there.
    UnknownDictionary(u32),
    /// A frame does not decompress to what the directory says.
    Decompress,
}

impl std::fmt::Display for Corrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Corrupt::Empty => f.write_str("page is empty"),
            Corrupt::Short => f.write_str("page or record is cut short"),
            Corrupt::Magic => f.write_str("page has no magic number"),
            Corrupt::Version(v) => write!(f, "page has unknown format version {v}"),
            Corrupt::Checksum => f.write_str("page checksum mismatch"),
            Corrupt::Stale => f.write_str("page is not the one that was written last: a write was lost"),
            Corrupt::Lengths => f.write_str("the lengths in the page contradict each other"),
            Corrupt::Codec(c) => write!(f, "page has unknown compression {c}"),
            Corrupt::UnknownDictionary(id) => write!(f, "page needs unknown dictionary {id}"),
            Corrupt::Decompress => f.write_str("page frame does not decompress"),
        }
    }
}

impl std::error::Error for Corrupt {}

/// The page counts an index entry can express, five bits each. Persisted: may only grow at its end.
const STEPS: [u16; 24] =
    [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096];
const _: () = assert!(STEPS[STEPS.len() - 1] as usize == UNIT_PAGES_MAX);

/// The smallest step that covers `pages` (1 ..= [`UNIT_PAGES_MAX`]).
#[expect(clippy::cast_possible_truncation, reason = "it is at most the number of steps")]
pub fn step_of(pages: usize) -> u8 {
    assert!(pages > 0);
    assert!(pages <= UNIT_PAGES_MAX);
    STEPS.partition_point(|&step| usize::from(step) < pages) as u8
}

/// The pages to read for a step: the record's own and up to half as many beyond them. A step from
/// a damaged index entry reads the most.
pub fn step_pages(step: u8) -> u32 {
    u32::from(STEPS[usize::from(step).min(STEPS.len() - 1)])
}
