//! Owns reading pages and extents: checks first, then one record by fingerprint or all of them.
//! Never knows where the bytes came from, nor which dictionaries exist: it asks for one by id.
//!
//! Hostile bytes never panic and never make a reader decode more than [`FRAME_RAW_BYTES_MAX`] for a frame,
//! [`EXTENT_RAW_BYTES_MAX`] for an extent.
//!
//! [`FRAME_RAW_BYTES_MAX`]: super::layout::FRAME_RAW_BYTES_MAX
//! [`EXTENT_RAW_BYTES_MAX`]: super::EXTENT_RAW_BYTES_MAX

use std::ops::Range;
use std::sync::Arc;

use super::codec::Scratch;
use super::layout::{
    Common, EXTENT_HEADER_BYTES, Extent, FINGERPRINT_BYTES, FRAME_ENTRY_BYTES, FrameCodec, FrameEntry, Kind,
    PAGE_HEADER_BYTES, Small, check_checksum, extent_pages,
};
use super::{Corrupt, Dictionary, Record};
use flash::io::PAGE_BYTES;

/// Where a page's dictionary comes from.
pub type Dictionaries<'d> = dyn Fn(u32) -> Option<Arc<Dictionary>> + 'd;

/// For pages that need none.
pub fn no_dictionaries(_id: u32) -> Option<Arc<Dictionary>> {
    None
}

/// A page or an extent whose checksum and lengths are in order.
#[derive(Debug, Clone, Copy)]
pub struct Page<'b> {
    /// A page, or an extent up to the end of its stored bytes.
    bytes: &'b [u8],
    common: Common,
    body: Body,
}

#[derive(Debug, Clone, Copy)]
enum Body {
    Small(Small),
    Extent(Extent),
}

/// One frame and where its parts are in the page.
struct Frame {
    entry: FrameEntry,
    stored: Range<usize>,
    /// Of its records' fingerprints.
    fingerprints: Range<usize>,
}

impl<'b> Page<'b> {
    /// Checks the page or extent at the start of `buf`. What follows it is not looked at, so reading more pages than it has does
    /// no harm. The caller compares [`Page::seq`] with what it expects, to tell a stale page.
    pub fn open(buf: &'b [u8]) -> Result<Page<'b>, Corrupt> {
        if buf.len() < PAGE_BYTES {
            return Err(Corrupt::Short);
        }
        let common = Common::read(buf)?;
        match common.kind {
            Kind::Small => {
                let bytes = &buf[..PAGE_BYTES];
                check_checksum(bytes)?;
                let page = Page { bytes, common, body: Body::Small(Small::read(bytes)?) };
                page.check_directory()?;
                Ok(page)
            }
            Kind::Extent => {
                // Its lengths tell what the checksum covers, so they are looked at first.
                let extent = Extent::read(buf)?;
                let bytes = buf.get(..EXTENT_HEADER_BYTES + extent.stored).ok_or(Corrupt::Short)?;
                check_checksum(bytes)?;
                Ok(Page { bytes, common, body: Body::Extent(extent) })
            }
        }
    }

    pub fn kind(&self) -> Kind {
        self.common.kind
    }

    /// The number given to [`super::PageBuilder::begin`].
    pub fn seq(&self) -> u64 {
        self.common.bases.seq
    }

    /// Of the dictionary that reading needs.
    pub fn dictionary(&self) -> Option<u32> {
        (self.common.dictionary != 0).then_some(self.common.dictionary)
    }

    /// Pages it takes on flash.
    pub fn pages(&self) -> usize {
        match self.body {
            Body::Small(_) => 1,
            Body::Extent(extent) => extent_pages(extent.stored),
        }
    }

    pub fn record_count(&self) -> usize {
        match self.body {
            Body::Small(small) => small.records,
            Body::Extent(_) => 1,
        }
    }

    /// The newest record of that key. `hash` is the one it was pushed with.
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

    /// The record with the highest seq among those whose fingerprint is that of `hash` and that `matches` accepts.
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
        let fingerprint = hash as u16;
        let mut best: Option<Best> = None;
        let mut decoded = usize::MAX;
        for (index, frame) in self.frames().enumerate() {
            let frame = frame?;
            if !self.fingerprints(&frame).any(|f| f == fingerprint) {
                continue;
            }
            let raw = self.decode(&frame, dictionaries, scratch)?;
            decoded = index;
            let mut at = 0;
            for f in self.fingerprints(&frame) {
                let start = at;
                let record = Record::decode(raw, &mut at, self.common.bases, f)?;
                let newer = best.as_ref().is_none_or(|best| record.seq >= best.seq);
                if f == fingerprint && newer && matches(&record) {
                    best = Some(Best { index, start, seq: record.seq });
                }
            }
        }
        let Some(best) = best else {
            return Ok(None);
        };
        let frame = self.frames().nth(best.index).expect("it was there")?;
        if best.index != decoded {
            self.decode(&frame, dictionaries, scratch)?;
        }
        let mut at = best.start;
        Record::decode(self.raw(&frame, scratch), &mut at, self.common.bases, fingerprint).map(Some)
    }

    /// Every record, in the order of writing.
    pub fn for_each(
        &self,
        dictionaries: &Dictionaries<'_>,
        scratch: &mut Scratch,
        visit: &mut dyn FnMut(&Record<'_>),
    ) -> Result<(), Corrupt> {
        for frame in self.frames() {
            let frame = frame?;
            let raw = self.decode(&frame, dictionaries, scratch)?;
            let mut at = 0;
            for f in self.fingerprints(&frame) {
                visit(&Record::decode(raw, &mut at, self.common.bases, f)?);
            }
            if at != raw.len() {
                return Err(Corrupt::Lengths);
            }
        }
        Ok(())
    }

    /// The directory agrees with itself: every range that [`Page::frames`] makes is inside the page.
    fn check_directory(&self) -> Result<(), Corrupt> {
        let Body::Small(small) = self.body else {
            return Ok(());
        };
        let (mut end, mut records) = (PAGE_HEADER_BYTES, 0);
        for entry in self.bytes[small.entries_at()..].chunks_exact(FRAME_ENTRY_BYTES) {
            let entry = FrameEntry::read(entry)?;
            end += entry.stored;
            records += entry.records;
        }
        if end == small.used && records == small.records { Ok(()) } else { Err(Corrupt::Lengths) }
    }

    fn frames(&self) -> impl Iterator<Item = Result<Frame, Corrupt>> + '_ {
        let (count, mut stored_at, mut fingerprints_at) = match self.body {
            Body::Small(small) => (small.frames, PAGE_HEADER_BYTES, small.fingerprints_at()),
            Body::Extent(_) => (1, EXTENT_HEADER_BYTES, 0),
        };
        (0..count).map(move |index| {
            let entry = match self.body {
                Body::Small(small) => FrameEntry::read(&self.bytes[small.entries_at() + index * FRAME_ENTRY_BYTES..])?,
                Body::Extent(Extent { stored, raw, codec, .. }) => FrameEntry { codec, stored, raw, records: 1 },
            };
            let fingerprints_end = fingerprints_at + entry.records * FINGERPRINT_BYTES;
            let frame = Frame {
                stored: stored_at..stored_at + entry.stored,
                fingerprints: fingerprints_at..fingerprints_end,
                entry,
            };
            stored_at = frame.stored.end;
            fingerprints_at = fingerprints_end;
            Ok(frame)
        })
    }

    fn fingerprints(&self, frame: &Frame) -> impl Iterator<Item = u16> + use<'b> {
        let (bytes, only) = match self.body {
            Body::Small(_) => (&self.bytes[frame.fingerprints.clone()], None),
            Body::Extent(extent) => (&self.bytes[..0], Some(extent.fingerprint)),
        };
        only.into_iter().chain(bytes.chunks_exact(FINGERPRINT_BYTES).map(|f| u16::from_le_bytes([f[0], f[1]])))
    }

    /// The frame's records, from the page itself if it is stored raw.
    fn decode<'s>(
        &self,
        frame: &Frame,
        dictionaries: &Dictionaries<'_>,
        scratch: &'s mut Scratch,
    ) -> Result<&'s [u8], Corrupt>
    where
        'b: 's,
    {
        if frame.entry.codec != FrameCodec::Raw {
            let dictionary = match self.dictionary().filter(|_| frame.entry.codec == FrameCodec::Zstd) {
                Some(id) => Some(dictionaries(id).ok_or(Corrupt::UnknownDictionary(id))?),
                None => None,
            };
            let stored = &self.bytes[frame.stored.clone()];
            scratch.decode(frame.entry.codec, stored, frame.entry.raw, dictionary.as_ref())?;
        }
        Ok(self.raw(frame, scratch))
    }

    /// What [`Page::decode`] returned for this frame.
    fn raw<'s>(&self, frame: &Frame, scratch: &'s Scratch) -> &'s [u8]
    where
        'b: 's,
    {
        match frame.entry.codec {
            FrameCodec::Raw => &self.bytes[frame.stored.clone()],
            _ => scratch.raw(),
        }
    }
}

struct Best {
    /// Of the frame.
    index: usize,
    /// Of the record in the frame.
    start: usize,
    seq: u64,
}

/// Walks the pages and extents of a segment: the index of each one's first page, and the page itself. Empty pages are
/// passed over. After a corrupt page the walk goes on with the next one, so the inside of a damaged extent comes out as
/// corrupt pages, or, where a value looks like one, as a page: compare [`Page::seq`] and never trust a record that
/// the index does not point to.
pub fn scan(buf: &[u8]) -> impl Iterator<Item = (usize, Result<Page<'_>, Corrupt>)> {
    let mut index = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = buf.get(index * PAGE_BYTES..).filter(|rest| rest.len() >= PAGE_BYTES)?;
            let at = index;
            match Page::open(rest) {
                Err(Corrupt::Empty) => index += 1,
                Err(corrupt) => {
                    index += 1;
                    return Some((at, Err(corrupt)));
                }
                Ok(page) => {
                    index += page.pages();
                    return Some((at, Ok(page)));
                }
            }
        }
    })
}
