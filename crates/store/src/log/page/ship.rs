//! Owns the transfer format of pages from one log to another: which records are live, and what changes in a page. Never
//! knows which logs these are, nor where the pages are written.
//!
//! A *shipment* consists of some pages of one segment, in order, with a bit for each record: 1 if the record is live.
//!
//! ```text
//! | pages u16 | crc32c of the bits u32 | pages × 4096 bytes | bits of the first page | of the second | … |
//! ```
//!
//! Integers are little-endian. The bits of a page take as many bytes as its records need; the first record's bit is the
//! lowest bit of the first byte. All pages of a live record are in the shipment. The last frame of a page may be
//! incomplete if it has no live records; the copy of the page then leaves this frame out.

use super::layout::{FrameEntry, Header, PAGE_HEADER_BYTES, write_around};
use super::{Corrupt, Dictionaries, Page, Record, Scratch, Stamp};
use base::crc::crc32c;
use flash::io::PAGE_BYTES;

/// Maximum number of pages of a shipment.
pub const SHIPMENT_PAGES_MAX: usize = 64;

const COUNT_BYTES: usize = 2;
const CRC_BYTES: usize = 4;
const HEADER_BYTES: usize = COUNT_BYTES + CRC_BYTES;

/// Chooses pages for a shipment, from pages that follow each other in a segment.
pub struct Packing {
    /// For each page that was chosen: the bits of its records.
    chosen: Vec<Option<Vec<u8>>>,
    keys: u64,
}

impl Packing {
    pub fn new(pages: usize) -> Packing {
        Packing { chosen: vec![None; pages], keys: 0 }
    }

    /// Marks a record of the page `at` as live and chooses the `pages` pages that it is on. `records`: the number of
    /// records of the page.
    pub fn add(&mut self, at: usize, records: usize, (position, pages): (usize, usize)) {
        self.bits(at, records)[position / 8] |= 1 << (position % 8);
        self.keys += 1;
        (at + 1..at + pages).for_each(|later| _ = self.chosen[later].get_or_insert_default());
    }

    fn bits(&mut self, at: usize, records: usize) -> &mut Vec<u8> {
        let bits = self.chosen[at].get_or_insert_default();
        bits.resize(records.div_ceil(8), 0);
        bits
    }

    /// Number of live records.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// Makes the shipment. Also returns the dictionaries that the chosen pages need. `bytes` are all pages, the first
    /// of which has this stamp.
    pub fn pack(mut self, bytes: &[u8], first: Stamp) -> Result<(Vec<u32>, Vec<u8>), Corrupt> {
        let count = self.chosen.iter().flatten().count();
        let mut out = Vec::with_capacity(HEADER_BYTES + count * (PAGE_BYTES + 8));
        out.extend_from_slice(&u16::try_from(count).expect("few pages are in a shipment").to_le_bytes());
        out.extend_from_slice(&[0; CRC_BYTES]);
        let mut dictionaries = Vec::new();
        for at in 0..self.chosen.len() {
            if self.chosen[at].is_none() {
                continue;
            }
            let here = &bytes[at * PAGE_BYTES..(at + 1) * PAGE_BYTES];
            let page = Page::open(here, first.later(at))?;
            self.bits(at, page.record_count());
            dictionaries.extend(page.dictionary());
            out.extend_from_slice(here);
        }
        dictionaries.sort_unstable();
        dictionaries.dedup();
        let bits = self.chosen.iter().flatten().flatten().copied().collect::<Vec<u8>>();
        out[COUNT_BYTES..HEADER_BYTES].copy_from_slice(&crc32c(&bits).to_le_bytes());
        out.extend_from_slice(&bits);
        Ok((dictionaries, out))
    }
}

/// A shipment that has arrived.
pub struct Shipment<'b> {
    pages: &'b [u8],
    bits: &'b [u8],
}

/// A record of a shipment, as it will be in the other log.
pub struct Shipped {
    /// Index of the record's first page in the shipment.
    pub page: usize,
    /// Number of pages that the record is on, and its share of their bytes.
    pub pages: usize,
    pub bytes: u32,
    pub is_live: bool,
}

impl<'b> Shipment<'b> {
    pub fn new(bytes: &'b [u8]) -> Result<Shipment<'b>, Corrupt> {
        let (count, rest) = bytes.split_first_chunk::<COUNT_BYTES>().ok_or(Corrupt::Short)?;
        let (crc, rest) = rest.split_first_chunk::<CRC_BYTES>().ok_or(Corrupt::Short)?;
        let count = usize::from(u16::from_le_bytes(*count));
        if count > SHIPMENT_PAGES_MAX {
            return Err(Corrupt::Lengths);
        }
        let (pages, bits) = rest.split_at_checked(count * PAGE_BYTES).ok_or(Corrupt::Short)?;
        match u32::from_le_bytes(*crc) == crc32c(bits) {
            true => Ok(Shipment { pages, bits }),
            false => Err(Corrupt::Checksum),
        }
    }

    /// Number of pages.
    pub fn pages(&self) -> usize {
        self.pages.len() / PAGE_BYTES
    }

    /// Writes the pages to `out` in the form that the other log needs, except for their stamps. `take` gets each record
    /// and returns its fingerprint in the other log. `dictionaries` returns a dictionary by its number in the shipment,
    /// and `rename` returns the dictionary's number in the other log. `later` is added to sequence numbers.
    pub fn unpack(
        &self,
        out: &mut [u8],
        dictionaries: &Dictionaries<'_>,
        rename: &dyn Fn(u32) -> Option<u32>,
        later: u64,
        scratch: &mut Scratch,
        take: &mut dyn FnMut(&Record<'_>, Shipped) -> u16,
    ) -> Result<(), Corrupt> {
        let pages = self.pages.as_chunks::<PAGE_BYTES>().0;
        let mut bits = self.bits;
        for (at, page) in pages.iter().enumerate() {
            let stamp = Stamp::of(page);
            let follow =
                pages[at..].iter().enumerate().take_while(|(n, page)| Stamp::of(page) == stamp.later(*n)).count();
            let opened = Page::open(&self.pages[at * PAGE_BYTES..(at + follow) * PAGE_BYTES], stamp)?;
            let (live, behind) = bits.split_at_checked(opened.record_count().div_ceil(8)).ok_or(Corrupt::Short)?;
            bits = behind;
            let is_live = |position: usize| live[position / 8] >> (position % 8) & 1 == 1;
            let mut fingerprints = Vec::with_capacity(opened.record_count());
            let is_whole = opened.for_each_read(dictionaries, scratch, &mut |record, share| {
                let is_live = is_live(fingerprints.len());
                fingerprints.push(take(record, Shipped { page: at, pages: share.pages, bytes: share.bytes, is_live }));
            })?;
            if (fingerprints.len()..opened.record_count()).any(is_live) {
                return Err(Corrupt::Short);
            }
            let frames = opened.frame_entries();
            let frames = &frames[..frames.len() - usize::from(!is_whole)];
            let dictionary = match opened.dictionary() {
                Some(id) => rename(id).ok_or(Corrupt::UnknownDictionary(id))?,
                None => 0,
            };
            let out = &mut out[at * PAGE_BYTES..(at + 1) * PAGE_BYTES];
            out.copy_from_slice(page);
            opened.write_again(out, frames, &fingerprints, dictionary, later);
        }
        if bits.is_empty() { Ok(()) } else { Err(Corrupt::Lengths) }
    }
}

impl Page<'_> {
    /// Writes the header and the directory of a copy of this page: with only these frames, other fingerprints, and
    /// another dictionary.
    fn write_again(&self, copy: &mut [u8], frames: &[FrameEntry], fingerprints: &[u16], dictionary: u32, later: u64) {
        let before = self.header();
        let mut header = Header { records: fingerprints.len(), frames: frames.len(), dictionary, ..before };
        header.bases.seq = before.bases.seq.wrapping_add(later);
        let stored: usize = frames.iter().map(|frame| frame.stored).sum();
        // The part of the last frame on later pages is not on this page.
        let used = (PAGE_HEADER_BYTES + before.lead + stored).min(header.fingerprints_at());
        write_around(copy, &header, used, fingerprints.iter().copied(), frames);
    }
}
