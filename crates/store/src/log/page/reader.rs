//! Owns reading pages: it checks a page first, and then reads one record by its fingerprint, or all records.
//! Never knows where the bytes came from, nor which dictionaries exist: it asks for one by its number.
//!
//! Hostile bytes never cause a panic, and a frame never decodes to more than [`super::RECORD_BYTES_MAX`].

use std::ops::Range;
use std::sync::Arc;

use super::codec::Scratch;
use super::layout::{
    FINGERPRINT_BYTES, FRAME_ENTRY_BYTES, FrameCodec, FrameEntry, Header, PAGE_HEADER_BYTES, PAYLOAD_BYTES, Stamp,
    share_bytes, span,
};
use super::{Corrupt, Dictionary, Record, record};
use crate::narrow::low16;
use flash::io::PAGE_BYTES;

/// Returns the dictionary with a number.
pub type Dictionaries<'d> = dyn Fn(u32) -> Option<Arc<Dictionary>> + 'd;

/// The dictionaries of pages that need none.
pub fn no_dictionaries(_id: u32) -> Option<Arc<Dictionary>> {
    None
}

/// A page whose checksum and lengths are right, and the pages that were read after it.
#[derive(Debug, Clone, Copy)]
pub struct Page<'b> {
    bytes: &'b [u8],
    stamp: Stamp,
    header: Header,
}

/// A frame that begins on the page.
struct Frame {
    entry: FrameEntry,
    /// The position of its bytes, as far as they are on this page.
    here: Range<usize>,
    /// The position of its records' fingerprints.
    fingerprints: Range<usize>,
    /// Number of pages that the frame is on.
    pages: usize,
}

impl<'b> Page<'b> {
    /// Checks the page at the start of `bytes`, which must be the one with this stamp. The pages behind it are checked when a frame
    /// continues there.
    pub fn open(bytes: &'b [u8], stamp: Stamp) -> Result<Page<'b>, Corrupt> {
        let first = bytes.get(..PAGE_BYTES).ok_or(Corrupt::Short)?;
        let page = Page { bytes, stamp, header: Header::read(first, stamp)? };
        page.check_directory()?;
        Ok(page)
    }

    /// The position that was given to [`super::PageBuilder::begin`].
    pub fn seq(&self) -> u64 {
        self.header.bases.seq
    }

    /// The number of the dictionary that some frames need.
    pub fn dictionary(&self) -> Option<u32> {
        (self.header.dictionary != 0).then_some(self.header.dictionary)
    }

    pub(super) fn header(&self) -> Header {
        self.header
    }

    pub(super) fn frame_entries(&self) -> Vec<FrameEntry> {
        self.frames().map_while(Result::ok).map(|frame| frame.entry).collect()
    }

    /// Number of records that begin on the page.
    pub fn record_count(&self) -> usize {
        self.header.records
    }

    /// The newest record of that key. `hash` is the one that the record was pushed with.
    pub fn find<'s>(
        &self,
        hash: u64,
        db: u32,
        key: &[u8],
        dictionaries: &Dictionaries<'_>,
        scratch: &'s mut Scratch,
    ) -> Result<Option<Record<'s>>, Corrupt>
    where
        'b: 's,
    {
        self.find_by(hash, &mut |record| record.db == db && record.key == key, dictionaries, scratch)
    }

    /// The record with the highest seq among those whose fingerprint is that of `hash` and that `matches` accepts. A record that
    /// continues beyond the pages that were read is not considered: a place counts all pages of its record.
    pub fn find_by<'s>(
        &self,
        hash: u64,
        matches: &mut dyn FnMut(&Record<'_>) -> bool,
        dictionaries: &Dictionaries<'_>,
        scratch: &'s mut Scratch,
    ) -> Result<Option<Record<'s>>, Corrupt>
    where
        'b: 's,
    {
        let fingerprint = low16(hash);
        let mut best: Option<Found> = None;
        // The record that was visited last, in the frame that is decoded, and the position behind it.
        let mut last: Option<Found> = None;
        let mut next = 0;
        while let Some(at) = self.position_of(fingerprint, next) {
            next = at + 1;
            let (index, frame, first) = self.frame_of(at)?;
            // The frame continues behind the pages that were read.
            if frame.pages * PAGE_BYTES > self.bytes.len() {
                continue;
            }
            let before = last.filter(|last| last.frame == index);
            let raw = match before {
                Some(_) => self.raw(&frame, scratch),
                None => self.decode(&frame, dictionaries, scratch)?,
            };
            let (mut number, mut end) = before.map_or((first, 0), |last| (last.number + 1, last.end));
            while number < at {
                record::skip(raw, &mut end, self.header.bases)?;
                number += 1;
            }
            let start = end;
            let record = Record::decode(raw, &mut end, self.header.bases, fingerprint)?;
            let found = Found { frame: index, number: at, start, end, seq: record.seq };
            last = Some(found);
            if best.is_none_or(|best| found.seq >= best.seq) && matches(&record) {
                best = Some(found);
            }
        }
        let (Some(best), Some(last)) = (best, last) else { return Ok(None) };
        let (_, frame, _) = self.frame_of(best.number)?;
        if best.frame != last.frame {
            self.decode(&frame, dictionaries, scratch)?;
        }
        let mut at = best.start;
        Record::decode(self.raw(&frame, scratch), &mut at, self.header.bases, fingerprint).map(Some)
    }

    /// Visits the records whose fingerprints are wanted, without their values. Each frame that contains such a record
    /// is decoded once. If a frame continues behind the pages that were read, it is visited only if it is not
    /// compressed, and only the keys within the read pages.
    pub fn for_each_key(
        &self,
        is_wanted: &dyn Fn(u16) -> bool,
        dictionaries: &Dictionaries<'_>,
        scratch: &mut Scratch,
        visit: &mut dyn FnMut(&Record<'_>),
    ) -> Result<(), Corrupt> {
        for frame in self.frames() {
            let frame = frame?;
            let Some(last) = self.fingerprints(&frame).rposition(&is_wanted) else { continue };
            let was_read = frame.pages * PAGE_BYTES <= self.bytes.len();
            let raw = match (was_read, frame.entry.codec) {
                (true, _) => self.decode(&frame, dictionaries, scratch)?,
                (false, FrameCodec::Raw) => &self.bytes[frame.here.clone()],
                (false, _) => continue,
            };
            let mut at = 0;
            for f in self.fingerprints(&frame).take(last + 1) {
                match Record::decode_key(raw, &mut at, self.header.bases, f) {
                    Ok(record) if is_wanted(f) => visit(&record),
                    Ok(_) => {}
                    Err(error) if was_read => return Err(error),
                    // The record continues behind the pages that were read.
                    Err(_) => break,
                }
            }
        }
        Ok(())
    }

    /// Visits every record that begins on the page, in the order of writing, with the number of pages that its frame is on.
    pub fn for_each(
        &self,
        dictionaries: &Dictionaries<'_>,
        scratch: &mut Scratch,
        visit: &mut dyn FnMut(&Record<'_>, usize),
    ) -> Result<(), Corrupt> {
        for frame in self.frames() {
            self.for_each_of(&frame?, dictionaries, scratch, &mut |record, share| visit(record, share.pages))?;
        }
        Ok(())
    }

    /// Like [`Page::for_each`], for the frames whose pages were all read. False: the last frame was left out, because
    /// it continues behind them. Only the last frame can.
    pub(super) fn for_each_read(
        &self,
        dictionaries: &Dictionaries<'_>,
        scratch: &mut Scratch,
        visit: &mut dyn FnMut(&Record<'_>, Share),
    ) -> Result<bool, Corrupt> {
        for frame in self.frames() {
            let frame = frame?;
            if frame.pages * PAGE_BYTES > self.bytes.len() {
                return Ok(false);
            }
            self.for_each_of(&frame, dictionaries, scratch, visit)?;
        }
        Ok(true)
    }

    fn for_each_of(
        &self,
        frame: &Frame,
        dictionaries: &Dictionaries<'_>,
        scratch: &mut Scratch,
        visit: &mut dyn FnMut(&Record<'_>, Share),
    ) -> Result<(), Corrupt> {
        let raw = self.decode(frame, dictionaries, scratch)?;
        let (mut at, share) = (0, frame.share());
        for f in self.fingerprints(frame) {
            visit(&Record::decode(raw, &mut at, self.header.bases, f)?, share);
        }
        if at == raw.len() { Ok(()) } else { Err(Corrupt::Lengths) }
    }

    /// The index of the one record with the fingerprint of `hash`, and on how many pages it is. `None`: no record has
    /// this fingerprint, or several have it.
    pub fn position(&self, hash: u64) -> Option<(usize, usize)> {
        let found = self.position_of(low16(hash), 0)?;
        if self.position_of(low16(hash), found + 1).is_some() {
            return None;
        }
        let (_, frame, _) = self.frame_of(found).ok()?;
        Some((found, frame.pages))
    }

    /// The first position of a fingerprint, at or behind `from`, among those of all records that begin on the page.
    fn position_of(&self, fingerprint: u16, from: usize) -> Option<usize> {
        let wanted = fingerprint.to_le_bytes();
        let (all, _) = self.bytes[self.header.fingerprints_at()..self.header.entries_at()].as_chunks();
        let mut at = from;
        while all.get(at..)?.first_chunk().is_some_and(|group| !holds(group, wanted)) {
            at += FINGERPRINTS_AT_ONCE;
        }
        all[at..].iter().position(|&other| other == wanted).map(|here| at + here)
    }

    /// The frame of the record at this position: its index, the frame, and the position of its first record.
    fn frame_of(&self, record: usize) -> Result<(usize, Frame, usize), Corrupt> {
        let limit = self.header.fingerprints_at();
        let (mut at, mut first) = (PAGE_HEADER_BYTES + self.header.lead, 0);
        for (index, entry) in self.entries().enumerate() {
            let (stored, records) = FrameEntry::lengths(entry);
            if record < first + records {
                return Ok((index, self.frame(FrameEntry::read(entry)?, at, limit + first * FINGERPRINT_BYTES), first));
            }
            at += stored;
            first += records;
        }
        Err(Corrupt::Lengths)
    }

    /// Checks that the directory is consistent: only the last frame leaves the page, and no range of [`Page::frames`]
    /// is outside of it.
    fn check_directory(&self) -> Result<(), Corrupt> {
        let (mut end, mut records) = (PAGE_HEADER_BYTES + self.header.lead, 0);
        let limit = self.header.fingerprints_at();
        for entry in self.entries() {
            if end > limit {
                return Err(Corrupt::Lengths);
            }
            let entry = FrameEntry::read(entry)?;
            end += entry.stored;
            records += entry.records;
        }
        if records == self.header.records { Ok(()) } else { Err(Corrupt::Lengths) }
    }

    fn entries(&self) -> impl Iterator<Item = &'b [u8; FRAME_ENTRY_BYTES]> + use<'b> {
        self.bytes[self.header.entries_at()..PAGE_BYTES].as_chunks().0.iter()
    }

    fn frames(&self) -> impl Iterator<Item = Result<Frame, Corrupt>> + '_ {
        let (mut at, mut fingerprints_at) = (PAGE_HEADER_BYTES + self.header.lead, self.header.fingerprints_at());
        self.entries().map(move |entry| {
            let frame = self.frame(FrameEntry::read(entry)?, at, fingerprints_at);
            at = frame.here.end;
            fingerprints_at = frame.fingerprints.end;
            Ok(frame)
        })
    }

    /// The frame that begins at `at`.
    fn frame(&self, entry: FrameEntry, at: usize, fingerprints_at: usize) -> Frame {
        let limit = self.header.fingerprints_at();
        Frame {
            here: at..(at + entry.stored).min(limit),
            fingerprints: fingerprints_at..fingerprints_at + entry.records * FINGERPRINT_BYTES,
            pages: span(entry.stored, limit - at),
            entry,
        }
    }

    fn fingerprints(&self, frame: &Frame) -> impl DoubleEndedIterator<Item = u16> + ExactSizeIterator + use<'b> {
        let bytes = &self.bytes[frame.fingerprints.clone()];
        bytes.chunks_exact(FINGERPRINT_BYTES).map(|f| u16::from_le_bytes([f[0], f[1]]))
    }

    /// The frame's bytes, a piece on each of its pages.
    fn pieces(&self, frame: &Frame) -> impl Iterator<Item = Result<&'b [u8], Corrupt>> {
        let Page { bytes, stamp, .. } = *self;
        let here = frame.here.clone();
        let mut rest = frame.entry.stored - here.len();
        let later = (1..frame.pages).map(move |at| {
            let page = bytes.get(at * PAGE_BYTES..(at + 1) * PAGE_BYTES).ok_or(Corrupt::Short)?;
            let lead = rest.min(PAYLOAD_BYTES);
            if Header::read(page, stamp.later(at))?.lead != lead {
                return Err(Corrupt::Lengths);
            }
            rest -= lead;
            Ok(&page[PAGE_HEADER_BYTES..PAGE_HEADER_BYTES + lead])
        });
        std::iter::once(Ok(&bytes[here])).chain(later)
    }

    /// The frame's records. Those of a raw frame in one piece are in the page itself.
    fn decode<'s>(
        &self,
        frame: &Frame,
        dictionaries: &Dictionaries<'_>,
        scratch: &'s mut Scratch,
    ) -> Result<&'s [u8], Corrupt>
    where
        'b: 's,
    {
        if !frame.is_readable_in_place() {
            let dictionary = match frame.entry.codec {
                FrameCodec::ZstdWithDictionary => {
                    let id = self.header.dictionary;
                    Some(dictionaries(id).ok_or(Corrupt::UnknownDictionary(id))?)
                }
                _ => None,
            };
            scratch.decode(frame.entry.codec, self.pieces(frame), frame.entry.raw, dictionary.as_ref())?;
        }
        Ok(self.raw(frame, scratch))
    }

    /// The result of [`Page::decode`] for this frame.
    fn raw<'s>(&self, frame: &Frame, scratch: &'s Scratch) -> &'s [u8]
    where
        'b: 's,
    {
        match frame.is_readable_in_place() {
            true => &self.bytes[frame.here.clone()],
            false => scratch.raw(),
        }
    }
}

impl Frame {
    fn share(&self) -> Share {
        Share { pages: self.pages, bytes: share_bytes(self.entry.stored, self.entry.records.max(1)) }
    }

    fn is_readable_in_place(&self) -> bool {
        self.entry.codec == FrameCodec::Raw && self.pages == 1
    }
}

/// How much of flash a record takes: the number of pages that its frame is on, and its share of the frame's bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    pub pages: usize,
    pub bytes: u32,
}

/// A record of a frame that was decoded.
#[derive(Clone, Copy)]
struct Found {
    /// Index of the frame.
    frame: usize,
    /// Index of the record on the page.
    number: usize,
    /// The record's bytes in the frame.
    start: usize,
    end: usize,
    seq: u64,
}

const FINGERPRINTS_AT_ONCE: usize = 16;

/// Whether one of the fingerprints is this one. Looks at all of them, so that it needs no branches.
#[inline]
fn holds(group: &[[u8; FINGERPRINT_BYTES]; FINGERPRINTS_AT_ONCE], wanted: [u8; FINGERPRINT_BYTES]) -> bool {
    group.iter().fold(false, |any, &other| any | (other == wanted))
}

/// Opens the pages of a unit that begins at the page with this stamp: the index of each, and the page. After a corrupt
/// page the walk continues with the next page.
pub fn scan(unit: &[u8], first: Stamp) -> impl Iterator<Item = (u32, Result<Page<'_>, Corrupt>)> {
    #[expect(clippy::cast_possible_truncation, reason = "these are pages of one segment")]
    let pages = (unit.len() / PAGE_BYTES) as u32;
    (0..pages).map(move |number| {
        let at = number as usize;
        (number, Page::open(&unit[at * PAGE_BYTES..], first.later(at)))
    })
}
