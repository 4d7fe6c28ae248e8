//! Owns filling a write unit: records are collected in a pending frame, and frames follow one another on the unit's pages.
//! Never knows the place of the unit, nor the meaning of a tag.
//!
//! A frame that does not fit on the open page goes on in the lead of the next one. A reader then needs two pages, in one request. So
//! a frame begins on a page only if at least [`PART_BYTES_MIN`] of it fit there.
//!
//! Records that do not compress are stored raw: those that fit on the page share a frame, and the one that leaves the page has its
//! own. Only every [`RAW_FRAMES_PER_PROBE`]-th frame of such data tries compression again.
//!
//! A record is accepted only if it and all pending records have room even if nothing compresses ([`PageBuilder::worst_pages`]).

use std::sync::Arc;

use super::codec::Compressor;
use super::layout::{
    FINGERPRINT_BYTES, FRAME_ENTRY_BYTES, FRAME_RECORDS_MAX, FrameCodec, FrameEntry, Header, PAGE_HEADER_BYTES,
    PAYLOAD_BYTES, RECORD_BYTES_MAX, UNIT_PAGES_MAX, in_unit, pages_alone, share_bytes, span, write_around,
};
use super::record::Bases;
use super::{Dictionary, Record, step_of};
use crate::narrow::low32;
use base::Codec;
use flash::io::{PAGE_BYTES, PageBuf};

/// The raw bytes of a frame. More of them compress better, fewer decode faster, and a read decodes one frame. So a larger
/// size is used only where it pays ([`Pace`]): where records of a kilobyte or more resemble each other.
const FRAME_RAW_TARGETS: [usize; 4] = [5 << 10, 10 << 10, 20 << 10, 40 << 10];
/// Records of similar length share a [`Pace`], because kinds of records that alternate differ in their ratio and their
/// best frame size. Each row is a length, and the number of frame sizes for records below it. Short records have fewer
/// sizes, because many short matches decode slowly.
const PACES: [(usize, usize); 3] = [(256, 2), (1024, 3), (usize::MAX, 4)];
/// Compression must save an eighth. Otherwise the frame is stored raw and read without decoding.
const WORTHWHILE_SHIFT: u32 = 3;
/// A frame begins on a page only if at least this many of its bytes fit there. Saving less room is not worth reading a
/// second page.
const PART_BYTES_MIN: usize = 128;
/// Of the frames of data that did not compress, one in this many tries compression again.
const RAW_FRAMES_PER_PROBE: usize = 16;
/// A record of at most this size shares a frame with others.
const SHARED_BYTES_MAX: usize = PAYLOAD_BYTES - FRAME_ENTRY_BYTES - FINGERPRINT_BYTES;
/// Records above this size are compressed without a dictionary, which would not help.
const DICTIONARY_RAW_BYTES_MAX: usize = 64 << 10;
/// Every page holds at least so many bytes of raw records with their fingerprints: the rest is for two frame entries, and is
/// too small to begin another frame.
const RAW_BYTES_SURE: usize = PAYLOAD_BYTES - 2 * FRAME_ENTRY_BYTES - PART_BYTES_MIN;

/// The answer to [`PageBuilder::push`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Push {
    /// The record was copied. `finish` returns its place.
    Taken,
    /// Not taken: finish the unit and begin another.
    Full,
    /// Not taken: only a unit of this many pages holds the record.
    TooLarge { pages: usize },
    /// Not taken: larger than any unit ([`RECORD_BYTES_MAX`]).
    Never,
}

/// The place of a record in the unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    pub tag: u64,
    /// Within the unit.
    pub page: u16,
    /// Number of pages to read there, see [`super::step_pages`].
    pub step: u8,
    /// The record's part of the unit: its share of its frame, of the frame's entry, and its fingerprint.
    pub bytes: u32,
}

/// A finished write unit. [`super::stamp`] completes its pages when their place is known.
#[derive(Debug)]
pub struct Unit {
    pub buf: PageBuf,
    /// Number of pages used, from the front. The others are not written.
    pub pages: usize,
}

/// Everything that went through a builder since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    pub records: u64,
    /// Keys and values, without headers.
    pub user_bytes: u64,
    pub pages: u64,
    /// Frames whose compressed form was not worthwhile.
    pub wasted_attempts: u64,
    /// Bytes of pages left unused.
    pub slack_bytes: u64,
}

/// Packs records into the pages of a write unit. Each stream of a worker has its own.
pub struct PageBuilder {
    compressor: Compressor,
    dictionary: Option<Arc<Dictionary>>,
    next_dictionary: Option<Arc<Dictionary>>,
    unit: Option<OpenUnit>,
    pending: Pending,
    /// The raw bytes at which the pending frame is complete.
    target: usize,
    paces: [Pace; PACES.len()],
    /// The pace of the pending frame, by the length of its first record.
    pace: usize,
    /// Of large records: stored bytes per raw byte in 1024ths, moving average.
    large_ratio: usize,
    large: Vec<u8>,
    stats: Stats,
}

struct OpenUnit {
    buf: PageBuf,
    bases: Bases,
    /// Number of pages begun. The last one is `page`, if it is open.
    begun: usize,
    page: Option<OpenPage>,
    placed: Vec<Placed>,
    slack_bytes: u64,
}

/// The page being filled.
struct OpenPage {
    lead: usize,
    used: usize,
    frames: Vec<FrameEntry>,
    fingerprints: Vec<u16>,
    dictionary: u32,
}

impl OpenPage {
    fn new(lead: usize) -> OpenPage {
        let used = PAGE_HEADER_BYTES + lead;
        OpenPage { lead, used, frames: Vec::new(), fingerprints: Vec::new(), dictionary: 0 }
    }

    /// The bytes left on the page if the directory gets this many more frames and records.
    fn room(&self, frames: usize, records: usize) -> usize {
        let frames = (self.frames.len() + frames) * FRAME_ENTRY_BYTES;
        let records = (self.fingerprints.len() + records) * FINGERPRINT_BYTES;
        PAGE_BYTES.saturating_sub(self.used + frames + records)
    }

    /// Whether a raw record of this many bytes fits into the last frame.
    fn can_join(&self, bytes: usize) -> bool {
        let is_raw = self.frames.last().is_some_and(|frame| frame.codec == FrameCodec::Raw);
        is_raw && bytes <= self.room(0, 1)
    }
}

impl OpenUnit {
    fn pages_left(&self) -> usize {
        self.buf.pages() - self.begun
    }

    /// Number of pages that the unit begins for a frame.
    fn new_pages(&self, stored: usize, records: usize) -> usize {
        let here = self.page.as_ref().map_or(0, |page| page.room(1, records));
        if here >= stored.min(PART_BYTES_MIN) {
            span(stored, here) - 1
        } else {
            span(stored, PAYLOAD_BYTES - FRAME_ENTRY_BYTES - records * FINGERPRINT_BYTES)
        }
    }

    /// Like [`OpenUnit::new_pages`], for a raw record.
    fn new_raw_pages(&self, bytes: usize) -> usize {
        match self.page.as_ref().is_some_and(|page| page.can_join(bytes)) {
            true => 0,
            false => self.new_pages(bytes, 1),
        }
    }

    /// Adds a frame. The unit has [`OpenUnit::new_pages`] for it.
    fn add(&mut self, frame: FrameEntry, stored: &[u8], records: &[Waiting], dictionary: u32) {
        let has_room = |page: &OpenPage| page.room(1, records.len()) >= stored.len().min(PART_BYTES_MIN);
        if !self.page.as_ref().is_some_and(has_room) {
            self.close_page();
            self.open_page(0);
        }
        let first = self.begun - 1;
        let page = self.page.as_mut().expect("a page is open");
        let here = page.room(1, records.len()).min(stored.len());
        page.frames.push(frame);
        page.fingerprints.extend(records.iter().map(|record| record.fingerprint));
        page.dictionary = page.dictionary.max(dictionary);
        let (part, mut rest) = stored.split_at(here);
        self.append(part);
        while !rest.is_empty() {
            self.close_page();
            let (lead, behind) = rest.split_at(rest.len().min(PAYLOAD_BYTES));
            self.open_page(lead.len());
            let at = (self.begun - 1) * PAGE_BYTES + PAGE_HEADER_BYTES;
            self.buf[at..at + lead.len()].copy_from_slice(lead);
            rest = behind;
        }
        let step = step_of(self.begun - first);
        let bytes = share_bytes(stored.len(), records.len());
        let placed = records.iter().map(|record| Placed { tag: record.tag, page: in_unit(first), step, bytes });
        self.placed.extend(placed);
    }

    /// Adds a record as it is.
    fn add_raw(&mut self, record: &Waiting, raw: &[u8]) {
        let Some(page) = self.page.as_mut().filter(|page| page.can_join(raw.len())) else {
            let frame = FrameEntry { codec: FrameCodec::Raw, stored: raw.len(), raw: raw.len(), records: 1 };
            return self.add(frame, raw, std::slice::from_ref(record), 0);
        };
        let frame = page.frames.last_mut().expect("the record joins it");
        frame.stored += raw.len();
        frame.raw += raw.len();
        frame.records += 1;
        page.fingerprints.push(record.fingerprint);
        self.append(raw);
        let bytes = low32((raw.len() + FINGERPRINT_BYTES) as u64);
        self.placed.push(Placed { tag: record.tag, page: in_unit(self.begun - 1), step: 0, bytes });
    }

    fn append(&mut self, bytes: &[u8]) {
        let page = self.page.as_mut().expect("a page is open");
        let at = (self.begun - 1) * PAGE_BYTES + page.used;
        self.buf[at..at + bytes.len()].copy_from_slice(bytes);
        page.used += bytes.len();
    }

    fn open_page(&mut self, lead: usize) {
        assert!(self.pages_left() > 0, "the unit has room for what was accepted");
        self.begun += 1;
        self.page = Some(OpenPage::new(lead));
    }

    /// Writes the open page's header and directory.
    fn close_page(&mut self) {
        let Some(open) = self.page.take() else { return };
        let page = &mut self.buf[(self.begun - 1) * PAGE_BYTES..self.begun * PAGE_BYTES];
        let header = Header {
            bases: self.bases,
            dictionary: open.dictionary,
            lead: open.lead,
            records: open.fingerprints.len(),
            frames: open.frames.len(),
        };
        write_around(page, &header, open.used, open.fingerprints.iter().copied(), &open.frames);
        self.slack_bytes += (header.fingerprints_at() - open.used) as u64;
    }
}

/// The records of the next frame, already encoded.
#[derive(Default)]
struct Pending {
    /// The records, and behind them the one being pushed.
    raw: Vec<u8>,
    records: Vec<Waiting>,
}

struct Waiting {
    end: usize,
    fingerprint: u16,
    tag: u64,
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Number of bytes of all records.
    fn raw_bytes(&self) -> usize {
        self.records.last().map_or(0, |record| record.end)
    }

    /// Removes all records but the one being pushed.
    fn clear(&mut self) {
        self.raw.drain(..self.raw_bytes());
        self.records.clear();
    }
}

/// The ratio of past frames of one size.
#[derive(Clone, Copy)]
struct Ratio {
    raw: usize,
    stored: usize,
    frames: usize,
}

impl Ratio {
    /// Stored bytes per raw byte, in 1024ths.
    fn get(&self) -> usize {
        self.stored * 1024 / self.raw
    }

    /// `weight` is the weight of the past frames against 1 of the new one.
    fn note(&mut self, raw: usize, stored: usize, weight: usize) {
        let weight = weight.min(self.frames);
        self.raw = (self.raw * weight + raw) / (weight + 1);
        self.stored = (self.stored * weight + stored) / (weight + 1);
        self.frames += 1;
    }
}

/// Chooses the size of frames from the ratios of past ones.
struct Pace {
    ratios: [Ratio; FRAME_RAW_TARGETS.len()],
    /// Number of frame sizes that this pace may choose.
    sizes: usize,
    /// The frame size in use, and the size of the next frame, which now and then is a neighbour for a trial.
    size: usize,
    next_size: usize,
    frames: usize,
}

/// A ratio from which frames are stored raw without trying: 15/16.
const RATIO_RAW: usize = 960;
/// In each group of this many frames, the first [`TRIED_LARGER`] have the next larger size, and one in the middle has
/// the next smaller size.
const FRAMES_PER_TRIAL: usize = 64;
const TRIED_LARGER: usize = 4;
/// The next larger frame size is taken if it needs at most this percentage of the bytes. Above the second one it is given up again.
const LARGER_PAYS: usize = 75;
const LARGER_KEPT: usize = 85;

impl Pace {
    fn new(sizes: usize) -> Pace {
        let ratio = |raw| Ratio { raw, stored: raw / 2, frames: 0 };
        Pace { ratios: FRAME_RAW_TARGETS.map(ratio), sizes, size: 0, next_size: 0, frames: 0 }
    }

    fn is_raw(&self) -> bool {
        self.ratios[self.size].get() >= RATIO_RAW
    }

    /// Notes that a frame of `next_size` with this many records was compressed.
    fn note(&mut self, records: usize, raw: usize, stored: usize) {
        // Ignore a frame that ended early, which is not typical of the others.
        if raw * 2 < self.target() && records < FRAME_RECORDS_MAX {
            return;
        }
        // A trial has a larger weight, because trials are rare.
        let weight = if self.is_raw() || self.next_size != self.size { 1 } else { 3 };
        self.ratios[self.next_size].note(raw, stored, weight);
        let now = self.ratios[self.size].get();
        let known = |ratio: &&Ratio| ratio.frames > 1;
        let larger = self.ratios[..self.sizes].get(self.size + 1).filter(known);
        let smaller = self.ratios[..self.size].last().filter(known);
        if larger.is_some_and(|larger| larger.get() * 100 < now * LARGER_PAYS) {
            self.size += 1;
        } else if smaller.is_some_and(|smaller| smaller.get() * LARGER_KEPT < now * 100) {
            self.size -= 1;
        }
    }

    /// Whether a frame of incompressible data tries compression all the same.
    fn is_probe(&self) -> bool {
        self.frames.is_multiple_of(RAW_FRAMES_PER_PROBE)
    }

    /// Chooses the size of the next frame.
    fn advance(&mut self) {
        self.frames += 1;
        self.next_size = match self.frames % FRAMES_PER_TRIAL {
            0..TRIED_LARGER => (self.size + 1).min(self.sizes - 1),
            n if n == FRAMES_PER_TRIAL / 2 => self.size.saturating_sub(1),
            _ => self.size,
        };
    }

    /// The raw bytes of the next frame. A frame takes no more than a page, so that a read needs two pages at most.
    fn target(&self) -> usize {
        let next = &self.ratios[self.next_size];
        let ratio = if next.frames > 0 { next } else { &self.ratios[self.size] };
        FRAME_RAW_TARGETS[self.next_size].min(PAYLOAD_BYTES * 1024 / ratio.get().max(8))
    }
}

impl PageBuilder {
    /// `level` is zstd's.
    pub fn new(codec: Codec, level: i32) -> PageBuilder {
        PageBuilder {
            compressor: Compressor::new(codec, level),
            dictionary: None,
            next_dictionary: None,
            unit: None,
            pending: Pending::default(),
            target: 0,
            paces: PACES.map(|(_, sizes)| Pace::new(sizes)),
            pace: 0,
            large_ratio: 1024,
            large: Vec::new(),
            stats: Stats::default(),
        }
    }

    /// Takes effect with the next unit. Only zstd uses it.
    pub fn set_dictionary(&mut self, dictionary: Option<Arc<Dictionary>>) {
        self.next_dictionary = dictionary;
    }

    /// Begins a unit in `buf`, whose content does not matter. A unit must be finished before another one begins. `seq` is written to
    /// every page, and records with that `seq` need not store theirs. `expiry_base_ms` is a time near those of the
    /// records' expiries, such as now.
    pub fn begin(&mut self, buf: PageBuf, seq: u64, expiry_base_ms: u64) {
        assert!(self.unit.is_none(), "finish the unit first");
        assert!(buf.pages() <= UNIT_PAGES_MAX);
        let bases = Bases { seq, expiry_s: u32::try_from(expiry_base_ms / 1000).unwrap_or(u32::MAX) };
        self.dictionary = self.next_dictionary.clone();
        self.unit = Some(OpenUnit { buf, bases, begun: 0, page: None, placed: Vec::new(), slack_bytes: 0 });
    }

    /// Whether a unit is begun and not finished.
    pub fn is_open(&self) -> bool {
        self.unit.is_some()
    }

    fn unit(&self) -> &OpenUnit {
        self.unit.as_ref().expect("a unit is begun")
    }

    /// Call it between units.
    pub fn set_codec(&mut self, codec: Codec) {
        assert!(self.unit.is_none(), "finish the unit first");
        self.compressor.set_codec(codec);
    }

    /// Copies the record into the unit. `tag` comes back with its place. A unit is begun.
    pub fn push(&mut self, record: &Record<'_>, tag: u64) -> Push {
        let user_bytes = record.key.len() + record.value.len();
        let answer = match user_bytes {
            _ if user_bytes > RECORD_BYTES_MAX => Push::Never,
            _ if user_bytes > SHARED_BYTES_MAX => self.push_large(record, tag),
            _ => self.push_small(record, tag),
        };
        if answer == Push::Taken {
            self.stats.records += 1;
            self.stats.user_bytes += user_bytes as u64;
        }
        answer
    }

    fn push_small(&mut self, record: &Record<'_>, tag: u64) -> Push {
        // Encode it behind the pending records, and take it back if it is not accepted.
        let before = self.pending.raw_bytes();
        let bases = self.unit().bases;
        record.encode(bases, &mut self.pending.raw);
        let bytes = self.pending.raw.len() - before;
        if bytes > SHARED_BYTES_MAX {
            self.pending.raw.truncate(before);
            return self.push_large(record, tag);
        }
        let is_taken = self.admit(bytes);
        let before = self.pending.raw_bytes();
        if !is_taken {
            self.pending.raw.truncate(before);
            return Push::Full;
        }
        let end = before + bytes;
        self.pending.records.push(Waiting { end, fingerprint: record.fingerprint(), tag });
        Push::Taken
    }

    /// Closes the unit. Appends the place of every record taken since [`PageBuilder::begin`].
    pub fn finish(&mut self, placed: &mut Vec<Placed>) -> Unit {
        self.seal();
        let mut unit = self.unit.take().expect("a unit is begun");
        unit.close_page();
        placed.append(&mut unit.placed);
        self.stats.pages += unit.begun as u64;
        self.stats.slack_bytes += unit.slack_bytes;
        Unit { buf: unit.buf, pages: unit.begun }
    }

    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Makes sure that a record of `bytes` has room. False: the unit has none.
    fn admit(&mut self, bytes: usize) -> bool {
        if !self.pending.is_empty() && self.is_frame_full(bytes) {
            self.seal();
        }
        if self.worst_pages(bytes) > self.unit().pages_left() {
            // Compress the pending records, which may make enough room.
            self.seal();
            if self.worst_pages(bytes) > self.unit().pages_left() {
                return false;
            }
        }
        if self.pending.is_empty() {
            self.pace = PACES.iter().position(|&(below, _)| bytes < below).expect("the last row has no limit");
            self.target = if self.tries_compression() { self.paces[self.pace].target() } else { PAYLOAD_BYTES };
        }
        true
    }

    /// The pages that the pending records and one of `bytes` need beyond the open page if nothing compresses.
    fn worst_pages(&self, bytes: usize) -> usize {
        if self.pending.is_empty() {
            return self.unit().new_raw_pages(bytes);
        }
        let records = self.pending.records.len() + 1;
        let needed = self.pending.raw_bytes() + bytes + records * FINGERPRINT_BYTES;
        let here = self.unit().page.as_ref().map_or(0, |page| page.room(2, 0).saturating_sub(PART_BYTES_MIN));
        needed.saturating_sub(here).div_ceil(RAW_BYTES_SURE)
    }

    /// Whether the pending records should become a frame before another of `bytes` joins them.
    fn is_frame_full(&self, bytes: usize) -> bool {
        self.pending.raw_bytes() + bytes > self.target || self.pending.records.len() == FRAME_RECORDS_MAX
    }

    fn tries_compression(&self) -> bool {
        let pace = &self.paces[self.pace];
        self.compressor.frame_codec(false) != FrameCodec::Raw && (!pace.is_raw() || pace.is_probe())
    }

    /// Places the pending records.
    fn seal(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        if !self.seal_compressed() {
            let PageBuilder { unit, pending, .. } = self;
            let unit = unit.as_mut().expect("a unit is begun");
            let mut start = 0;
            for record in &pending.records {
                unit.add_raw(record, &pending.raw[start..record.end]);
                start = record.end;
            }
        }
        self.pending.clear();
        self.paces[self.pace].advance();
    }

    /// Places the pending records compressed, if that is worthwhile.
    fn seal_compressed(&mut self) -> bool {
        if !self.tries_compression() {
            return false;
        }
        let PageBuilder { compressor, dictionary, pending, unit, paces, pace, stats, .. } = self;
        let unit = unit.as_mut().expect("a unit is begun");
        let (raw, count) = (pending.raw_bytes(), pending.records.len());
        let codec = compressor.frame_codec(dictionary.is_some());
        let compressed = compressor.compress(&pending.raw[..raw], dictionary.as_deref());
        paces[*pace].note(count, raw, compressed.map_or(raw, <[u8]>::len));
        let is_worthwhile = |stored: &&[u8]| {
            stored.len() + FRAME_ENTRY_BYTES + (raw >> WORTHWHILE_SHIFT) <= raw
                && unit.new_pages(stored.len(), count) <= unit.pages_left()
        };
        let Some(stored) = compressed.filter(is_worthwhile) else {
            stats.wasted_attempts += 1;
            return false;
        };
        let frame = FrameEntry { codec, stored: stored.len(), raw, records: count };
        unit.add(frame, stored, &pending.records, dictionary_of(codec, dictionary.as_deref()));
        true
    }

    /// A record that may not fit on one page gets a frame of its own.
    fn push_large(&mut self, record: &Record<'_>, tag: u64) -> Push {
        self.large.clear();
        let bases = self.unit().bases;
        record.encode(bases, &mut self.large);
        let raw = self.large.len();
        if raw > RECORD_BYTES_MAX {
            return Push::Never;
        }
        // By the usual ratio it would not fit, so do not compress it in vain. In a fresh unit it is compressed all the
        // same, to be sure.
        let expected_pages = pages_alone(raw * self.large_ratio / 1024);
        let unit = self.unit();
        let is_fresh = unit.begun == 0 && self.pending.is_empty();
        if !is_fresh && expected_pages > unit.pages_left() + 1 {
            return Push::Full;
        }
        // Frames are in the order of the records.
        self.seal();
        let PageBuilder { compressor, dictionary, large, unit, large_ratio, .. } = self;
        let unit = unit.as_mut().expect("a unit is begun");
        let dictionary = dictionary.as_deref().filter(|_| raw <= DICTIONARY_RAW_BYTES_MAX);
        let codec = compressor.frame_codec(dictionary.is_some());
        let compressed = compressor.compress(large, dictionary);
        *large_ratio = (*large_ratio * 3 + compressed.map_or(raw, <[u8]>::len) * 1024 / raw) / 4;
        let compressed = compressed.filter(|stored| stored.len() + (raw >> WORTHWHILE_SHIFT) <= raw);
        let (codec, stored) = match compressed {
            Some(stored) => (codec, stored),
            None => (FrameCodec::Raw, &large[..]),
        };
        if unit.new_pages(stored.len(), 1) > unit.pages_left() {
            return match pages_alone(stored.len()) {
                pages if pages > unit.buf.pages() => Push::TooLarge { pages },
                _ => Push::Full,
            };
        }
        let frame = FrameEntry { codec, stored: stored.len(), raw, records: 1 };
        let record = Waiting { end: raw, fingerprint: record.fingerprint(), tag };
        unit.add(frame, stored, &[record], dictionary_of(codec, dictionary));
        self.release_large();
        Push::Taken
    }

    /// Frees the memory of an unusually large record.
    fn release_large(&mut self) {
        self.compressor.release();
        if self.large.capacity() > 1 << 20 {
            self.large = Vec::new();
        }
    }
}

/// The number for the header of a page that has a frame of this codec.
fn dictionary_of(codec: FrameCodec, dictionary: Option<&Dictionary>) -> u32 {
    dictionary.filter(|_| codec == FrameCodec::ZstdWithDictionary).map_or(0, Dictionary::id)
}
