//! Owns filling a write unit: records are collected in a pending frame, frames fill the open page, pages and extents fill
//! the unit from front to back.
//! Never knows where the unit goes, nor what a tag means.
//!
//! How full pages come about: the ratio of past frames tells how many raw bytes the rest of the page will hold; that
//! is split evenly into frames of at most [`FRAME_RAW_TARGETS`]. The last one is compressed once it should fill the
//! page; if it turns out too large it is tried again with fewer records, at most twice. Data that does not compress
//! fills pages raw to the brim, and only every [`RAW_FRAMES_PER_PROBE`]-th frame tries compression again.
//!
//! A record is accepted only if it and all pending ones have a place even if nothing compresses ([`Worst`]).

use std::sync::Arc;

use super::codec::Compressor;
use super::layout::{
    Common, EXTENT_HEADER_BYTES, EXTENT_PAGES_MAX, EXTENT_RAW_BYTES_MAX, Extent, FINGERPRINT_BYTES, FRAME_ENTRY_BYTES,
    FRAME_RAW_BYTES_MAX, FrameCodec, FrameEntry, Kind, PAGE_HEADER_BYTES, PAYLOAD_BYTES, SMALL_BYTES_MAX, Small,
    extent_pages, write_checksum,
};
use super::record::Bases;
use super::{Dictionary, Record, step_of};
use base::Codec;
use flash::io::{PAGE_BYTES, PageBuf};

/// Raw bytes of a frame, at most. More compress better, fewer decode faster, and a read decodes one frame; so a larger
/// size is taken only where it pays ([`Pace`]): where records of a kilobyte or more resemble each other.
const FRAME_RAW_TARGETS: [usize; 4] = [5 << 10, 10 << 10, 20 << 10, 40 << 10];
/// Records are paced by their length: kinds of records that come in turns differ in ratio and best frame size. Below so
/// many bytes only so many of the frame sizes are considered: many short matches decode slowly.
const PACES: [(usize, usize); 3] = [(256, 2), (1024, 3), (usize::MAX, 4)];
/// Compression must save an eighth, or a frame that would fit raw is stored raw and read without decoding.
const WORTHWHILE_SHIFT: u32 = 3;
/// A page with fewer bytes left is closed rather than given another compressed frame.
const TAIL_BYTES: usize = 128;
/// How often data that did not compress is tried again: the cost of a probe spread over so many frames.
const RAW_FRAMES_PER_PROBE: usize = 16;
/// Frames tried with fewer records when the first attempt was too large for the page.
const ATTEMPTS_MAX: usize = 3;
/// Records above this get no help from a dictionary.
const DICTIONARY_RAW_BYTES_MAX: usize = FRAME_RAW_BYTES_MAX;

/// The answer to [`PageBuilder::push`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Push {
    /// The record was copied. `finish` returns its place.
    Taken,
    /// Not taken: finish the unit and begin another.
    Full,
    /// Not taken: no unit below this many pages holds it.
    TooLarge { pages: usize },
    /// Not taken: larger than any extent ([`EXTENT_RAW_BYTES_MAX`]).
    Never,
}

/// The place of a record in the unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    pub tag: u64,
    /// Within the unit.
    pub page: u16,
    /// What to read there, see [`super::step_pages`].
    pub step: u8,
}

/// A finished write unit.
#[derive(Debug)]
pub struct Unit {
    pub buf: PageBuf,
    /// Pages used, from the front; the others are zeroes and need not be written.
    pub pages: usize,
}

/// What went through a builder since it was made. Add up those of all workers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    pub records: u64,
    /// Keys and values, without headers.
    pub user_bytes: u64,
    pub pages: u64,
    /// Frames whose compressed form was not used: too large for the page, or not worthwhile.
    pub wasted_attempts: u64,
    /// Bytes of small-record pages left unused.
    pub slack_bytes: u64,
}

/// Packs records into the pages of a write unit; one per worker.
pub struct PageBuilder {
    compressor: Compressor,
    dictionary: Option<Arc<Dictionary>>,
    next_dictionary: Option<Arc<Dictionary>>,
    unit: Option<OpenUnit>,
    page: OpenPage,
    pending: Pending,
    worst: Worst,
    /// Raw bytes the pending frame should reach.
    target: usize,
    paces: [Pace; PACES.len()],
    /// The one for the pending frame: by the length of its first record.
    pace: usize,
    /// Of large records: stored per raw in 1024ths, moving average.
    extent_ratio: usize,
    large: Vec<u8>,
    placed: Vec<Placed>,
    stats: Stats,
}

struct OpenUnit {
    buf: PageBuf,
    bases: Bases,
    next_page: usize,
}

impl OpenUnit {
    fn pages_left(&self) -> usize {
        self.buf.pages() - self.next_page
    }
}

/// The page being filled; `index` is `None` between pages.
#[derive(Default)]
struct OpenPage {
    index: Option<usize>,
    used: usize,
    frames: Vec<FrameEntry>,
    fingerprints: Vec<u16>,
    dictionary: u32,
}

impl OpenPage {
    fn open(&mut self, index: usize) {
        self.index = Some(index);
        self.used = PAGE_HEADER_BYTES;
        self.frames.clear();
        self.fingerprints.clear();
        self.dictionary = 0;
    }

    /// Bytes for another frame and its fingerprints; its entry is already subtracted.
    fn room(&self) -> usize {
        let directory = self.frames.len() * FRAME_ENTRY_BYTES + self.fingerprints.len() * FINGERPRINT_BYTES;
        (PAGE_BYTES - self.used - directory).saturating_sub(FRAME_ENTRY_BYTES)
    }

    /// `frame.stored` and the fingerprints fit into [`OpenPage::room`].
    fn add(
        &mut self,
        unit: &mut OpenUnit,
        frame: FrameEntry,
        stored: &[u8],
        records: &[Waiting],
        placed: &mut Vec<Placed>,
    ) {
        assert!(frame.stored + frame.records * FINGERPRINT_BYTES <= self.room());
        let index = self.index.expect("a page is open");
        let at = index * PAGE_BYTES + self.used;
        unit.buf[at..at + stored.len()].copy_from_slice(stored);
        self.used += stored.len();
        self.frames.push(frame);
        for record in records {
            self.fingerprints.push(record.fingerprint);
            placed.push(Placed { tag: record.tag, page: index as u16, step: 0 });
        }
    }

    /// Writes header, directory and checksum. Returns the bytes left unused.
    fn close(&mut self, unit: &mut OpenUnit) -> usize {
        let index = self.index.take().expect("a page is open");
        let page = &mut unit.buf[index * PAGE_BYTES..(index + 1) * PAGE_BYTES];
        let small = Small { records: self.fingerprints.len(), frames: self.frames.len(), used: self.used };
        Common { kind: Kind::Small, bases: unit.bases, dictionary: self.dictionary }.write(page);
        small.write(page);
        page[self.used..small.fingerprints_at()].fill(0);
        let fingerprints = page[small.fingerprints_at()..].chunks_exact_mut(FINGERPRINT_BYTES);
        for (out, fingerprint) in fingerprints.zip(&self.fingerprints) {
            out.copy_from_slice(&fingerprint.to_le_bytes());
        }
        let entries = page[small.entries_at()..].chunks_exact_mut(FRAME_ENTRY_BYTES);
        for (out, frame) in entries.zip(&self.frames) {
            frame.write(out);
        }
        write_checksum(page);
        small.fingerprints_at() - self.used
    }
}

/// Records waiting to become the next frame, already encoded.
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

    /// Bytes of all records.
    fn raw_bytes(&self) -> usize {
        self.records.last().map_or(0, |record| record.end)
    }

    /// How many records from the first fit into `room` bytes, fingerprints included, if `stored` tells what their
    /// raw bytes become.
    fn count_fitting(&self, room: usize, stored: impl Fn(usize) -> usize) -> usize {
        let fits = |(i, record): &(usize, &Waiting)| stored(record.end) + (i + 1) * FINGERPRINT_BYTES <= room;
        self.records.iter().enumerate().take_while(fits).count()
    }

    fn drop_first(&mut self, count: usize) {
        let bytes = self.records[count - 1].end;
        self.raw.drain(..bytes);
        self.records.drain(..count);
        for record in &mut self.records {
            record.end -= bytes;
        }
    }
}

/// The pages that pending records take if nothing compresses: next-fit, one raw frame a page. What [`PageBuilder::seal`]
/// does never needs more: it places at least those records into the open page that fit there raw, and next-fit of a
/// list's tail never needs more pages than next-fit of the list.
#[derive(Default)]
struct Worst {
    /// Beyond the open one.
    pages: usize,
    /// Left in the last of them.
    room: usize,
}

impl Worst {
    fn of(page: &OpenPage, pending: &Pending) -> Worst {
        let mut worst = Worst { pages: 0, room: page.room() };
        let mut start = 0;
        for record in &pending.records {
            worst.add(record.end - start);
            start = record.end;
        }
        worst
    }

    fn fits_last_page(&self, bytes: usize) -> bool {
        bytes + FINGERPRINT_BYTES <= self.room
    }

    fn pages_with(&self, bytes: usize) -> usize {
        self.pages + usize::from(!self.fits_last_page(bytes))
    }

    fn add(&mut self, bytes: usize) {
        if !self.fits_last_page(bytes) {
            self.pages += 1;
            self.room = PAYLOAD_BYTES - FRAME_ENTRY_BYTES;
        }
        self.room -= bytes + FINGERPRINT_BYTES;
    }
}

/// A linear model from past frames of one size: a point (raw bytes, stored bytes) and the slope there. Stored bytes include
/// fingerprints. The slope is smaller than the ratio if records share data that every frame stores once.
#[derive(Clone, Copy)]
struct Curve {
    raw: usize,
    stored: usize,
    /// Stored per raw byte, in 1024ths.
    slope: usize,
    frames: usize,
}

impl Curve {
    /// Stored per raw byte, in 1024ths.
    fn ratio(&self) -> usize {
        self.stored * 1024 / self.raw
    }

    /// The raw bytes that should become `stored`.
    fn raw_of(&self, stored: usize) -> usize {
        let more = stored.saturating_sub(self.stored) * 1024 / self.slope;
        let fewer = self.stored.saturating_sub(stored) * 1024 / self.slope;
        (self.raw + more).saturating_sub(fewer)
    }

    /// What `raw` bytes should become.
    fn stored_of(&self, raw: usize) -> usize {
        let more = raw.saturating_sub(self.raw) * self.slope / 1024;
        let fewer = self.raw.saturating_sub(raw) * self.slope / 1024;
        (self.stored + more).saturating_sub(fewer)
    }

    /// `weight` parts of what was known to one of what is new.
    fn note(&mut self, raw: usize, stored: usize, weight: usize) {
        let weight = weight.min(self.frames);
        self.raw = (self.raw * weight + raw) / (weight + 1);
        self.stored = (self.stored * weight + stored) / (weight + 1);
        self.frames += 1;
        self.clamp_slope();
    }

    /// Two attempts on the same records.
    fn note_slope(&mut self, raw: usize, stored: usize) {
        self.slope = (self.slope * 3 + stored * 1024 / raw) / 4;
        self.clamp_slope();
    }

    fn clamp_slope(&mut self) {
        let ratio = self.ratio().max(8);
        self.slope = self.slope.clamp(ratio / 4, ratio);
    }
}

/// Plans frames from what past ones became.
struct Pace {
    curves: [Curve; FRAME_RAW_TARGETS.len()],
    /// How many frame sizes are considered.
    sizes: usize,
    /// The frame size in use, and the one of the frame being gathered: a neighbour is tried now and then.
    size: usize,
    next_size: usize,
    frames: usize,
}

/// A ratio from which frames are stored raw without trying: 15/16.
const RATIO_RAW: usize = 960;
/// Of so many frames the first [`TRIED_LARGER`] are gathered for the next larger size, and one in the middle for the
/// next smaller.
const FRAMES_PER_TRIAL: usize = 64;
const TRIED_LARGER: usize = 4;
/// Percent of its bytes at which the next larger frame size is taken, and above which it is given up again.
const LARGER_PAYS: usize = 75;
const LARGER_KEPT: usize = 85;

impl Pace {
    fn new(sizes: usize) -> Pace {
        let curve = |raw| Curve { raw, stored: raw / 2, slope: 512, frames: 0 };
        Pace { curves: FRAME_RAW_TARGETS.map(curve), sizes, size: 0, next_size: 0, frames: 0 }
    }

    fn is_raw(&self) -> bool {
        self.curves[self.size].ratio() >= RATIO_RAW
    }

    /// The best guess for the frame being gathered.
    fn curve(&self) -> &Curve {
        let next = &self.curves[self.next_size];
        if next.frames > 0 { next } else { &self.curves[self.size] }
    }

    /// A frame of `next_size` was compressed.
    fn note(&mut self, raw: usize, stored: usize) {
        // Ignore the short last frame of a page, which is not typical of the others.
        let page_raw = PAYLOAD_BYTES * 1024 / self.curve().ratio().max(8);
        if raw * 2 < FRAME_RAW_TARGETS[self.next_size].min(page_raw) {
            return;
        }
        // A trial has a larger weight, because trials are rare.
        let weight = if self.is_raw() || self.next_size != self.size { 1 } else { 3 };
        self.curves[self.next_size].note(raw, stored, weight);
        let now = self.curves[self.size].ratio();
        let known = |curve: &&Curve| curve.frames > 1;
        let larger = self.curves[..self.sizes].get(self.size + 1).filter(known);
        let smaller = self.curves[..self.size].last().filter(known);
        if larger.is_some_and(|larger| larger.ratio() * 100 < now * LARGER_PAYS) {
            self.size += 1;
        } else if smaller.is_some_and(|smaller| smaller.ratio() * LARGER_KEPT < now * 100) {
            self.size -= 1;
        }
    }

    /// Another attempt with fewer records: so many bytes less.
    fn note_retry(&mut self, raw_less: usize, stored_less: usize) {
        self.curves[self.next_size].note_slope(raw_less, stored_less);
    }

    /// Whether a frame of incompressible data tries compression all the same.
    fn is_raw_probe(&self) -> bool {
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

    /// The raw bytes to gather for the next frame of a page with `room` left, fingerprints included.
    fn frame_target(&self, room: usize) -> usize {
        let frame_bytes = FRAME_RAW_TARGETS[self.next_size];
        if self.is_raw() && self.is_raw_probe() {
            return frame_bytes;
        }
        let curve = self.curve();
        // Limit the estimate, because the curve is accurate only near its own frame size.
        let raw_of = |stored| curve.raw_of(stored).min(frame_bytes + frame_bytes / 2);
        // So many even frames, or one more if they hold more altogether.
        let fewer = (room / curve.stored_of(frame_bytes).max(1)).max(1);
        let more = fewer + 1;
        let frames = if more * raw_of(room / more) > fewer * raw_of(room / fewer) { more } else { fewer };
        let target = raw_of(room / frames);
        // A little less for the last frame of the page: a second attempt costs more than the gap.
        if frames == 1 { target - target / 64 } else { target }
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
            page: OpenPage::default(),
            pending: Pending::default(),
            worst: Worst::default(),
            target: 0,
            paces: PACES.map(|(_, sizes)| Pace::new(sizes)),
            pace: 0,
            extent_ratio: 512,
            large: Vec::new(),
            placed: Vec::new(),
            stats: Stats::default(),
        }
    }

    /// Takes effect with the next unit. Only zstd uses it: LZ4 would hash it anew for every
    /// frame, 5 µs more for one byte in 17.
    pub fn set_dictionary(&mut self, dictionary: Option<Arc<Dictionary>>) {
        self.next_dictionary = dictionary;
    }

    /// Begins a unit in `buf`, whose content does not matter; it is finished before another begins. Every page gets `seq`,
    /// and records with that very `seq` need not store theirs. `expiry_base_ms` is a time near those of the
    /// records' expiries, such as now.
    pub fn begin(&mut self, buf: PageBuf, seq: u64, expiry_base_ms: u64) {
        assert!(self.unit.is_none(), "finish the unit first");
        assert!(buf.pages() <= EXTENT_PAGES_MAX);
        let bases = Bases { seq, expiry_ms: expiry_base_ms.min((1 << 48) - 1) };
        self.dictionary = self.next_dictionary.clone();
        self.unit = Some(OpenUnit { buf, bases, next_page: 0 });
    }

    /// Whether a unit is begun and not finished.
    pub fn is_open(&self) -> bool {
        self.unit.is_some()
    }

    /// Of the unit that is begun: a record with this `seq` need not store it.
    pub fn sequence(&self) -> u64 {
        self.unit.as_ref().expect("a unit is begun").bases.seq
    }

    /// Between units.
    pub fn set_codec(&mut self, codec: Codec) {
        assert!(self.unit.is_none(), "finish the unit first");
        self.compressor.set_codec(codec);
    }

    /// Copies the record into the unit; `tag` comes back with its place. A unit is begun.
    pub fn push(&mut self, record: &Record<'_>, tag: u64) -> Push {
        let user_bytes = record.key.len() + record.value.len();
        if user_bytes > EXTENT_RAW_BYTES_MAX {
            return Push::Never;
        }
        let bases = self.unit.as_ref().expect("a unit is begun").bases;
        let answer = if user_bytes > SMALL_BYTES_MAX {
            self.push_large(record, tag)
        } else {
            // Encoded behind the pending ones, and taken back if it is not accepted.
            let before = self.pending.raw.len();
            record.encode(bases, &mut self.pending.raw);
            if self.pending.raw.len() - before > SMALL_BYTES_MAX {
                self.pending.raw.truncate(before);
                self.push_large(record, tag)
            } else {
                let bytes = self.pending.raw.len() - before;
                let taken = self.admit(bytes);
                let before = self.pending.raw.len() - bytes;
                if taken {
                    let end = before + bytes;
                    self.pending.records.push(Waiting { end, fingerprint: record.fingerprint(), tag });
                    self.worst.add(bytes);
                    Push::Taken
                } else {
                    self.pending.raw.truncate(before);
                    Push::Full
                }
            }
        };
        if answer == Push::Taken {
            self.stats.records += 1;
            self.stats.user_bytes += user_bytes as u64;
        }
        answer
    }

    /// Closes the unit. Appends the place of every record taken since [`PageBuilder::begin`].
    pub fn finish(&mut self, placed: &mut Vec<Placed>) -> Unit {
        while !self.pending.is_empty() {
            self.seal();
        }
        if self.page.index.is_some() {
            self.close_page();
        }
        placed.append(&mut self.placed);
        let mut unit = self.unit.take().expect("a unit is begun");
        unit.buf[unit.next_page * PAGE_BYTES..].fill(0);
        self.stats.pages += unit.next_page as u64;
        Unit { buf: unit.buf, pages: unit.next_page }
    }

    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Makes sure that a record of `bytes` has a place; false if the unit has none.
    fn admit(&mut self, bytes: usize) -> bool {
        loop {
            if self.page.index.is_none() && !self.open_page() {
                return false;
            }
            if self.pending.is_empty() {
                self.pace = PACES.iter().position(|&(below, _)| bytes < below).expect("the last is endless");
                self.plan_frame();
                if !self.page.frames.is_empty() && !self.may_fit(bytes) {
                    self.close_page();
                    continue;
                }
            } else if self.is_frame_full(bytes) {
                self.seal();
                continue;
            }
            if self.worst.pages_with(bytes) <= self.unit.as_ref().expect("a unit is begun").pages_left() {
                return true;
            }
            if self.pending.is_empty() {
                return false;
            }
            // Compress the pending records, which may make enough room.
            self.seal();
        }
    }

    /// Whether a record of `bytes` probably fits into what is left of the open page.
    fn may_fit(&self, bytes: usize) -> bool {
        let room = self.page.room();
        let bytes = bytes + FINGERPRINT_BYTES;
        bytes <= room || (!self.is_raw() && room >= TAIL_BYTES && bytes <= self.pace().curve().raw_of(room))
    }

    /// Whether pending records should become a frame before another of `bytes` joins them.
    fn is_frame_full(&self, bytes: usize) -> bool {
        if self.is_raw() && !self.is_probe() {
            self.worst.pages_with(bytes) > 0
        } else {
            let records = self.pending.records.len() + 1;
            self.pending.raw_bytes() + bytes + records * FINGERPRINT_BYTES > self.target
        }
    }

    fn is_probe(&self) -> bool {
        self.compressor.frame_codec() != FrameCodec::Raw && self.pace().is_raw_probe()
    }

    fn pace(&self) -> &Pace {
        &self.paces[self.pace]
    }

    fn is_raw(&self) -> bool {
        self.compressor.frame_codec() == FrameCodec::Raw || self.pace().is_raw()
    }

    /// Turns as many pending records into a frame as the open page holds, or closes the page if it holds none.
    fn seal(&mut self) {
        if !self.seal_compressed() {
            let fits_raw = self.pending.count_fitting(self.page.room(), |raw| raw);
            if fits_raw > 0 {
                let PageBuilder { page, pending, unit, placed, .. } = self;
                let records = &pending.records[..fits_raw];
                let raw = &pending.raw[..records[fits_raw - 1].end];
                let frame = FrameEntry { codec: FrameCodec::Raw, stored: raw.len(), raw: raw.len(), records: fits_raw };
                page.add(unit.as_mut().expect("a unit is begun"), frame, raw, records, placed);
                pending.drop_first(fits_raw);
            } else {
                self.close_page();
                assert!(self.open_page(), "pending records have a place by Worst");
            }
        }
        self.paces[self.pace].advance();
        self.plan_frame();
    }

    /// Places pending records compressed, if that is worthwhile.
    fn seal_compressed(&mut self) -> bool {
        if self.is_raw() && !self.is_probe() {
            return false;
        }
        let room = self.page.room();
        let fits_raw = self.pending.count_fitting(room, |raw| raw);
        let codec = self.compressor.frame_codec();
        let PageBuilder { compressor, dictionary, page, pending, unit, paces, pace, placed, stats, .. } = self;
        let mut count = pending.records.len();
        let mut last: Option<(usize, usize)> = None;
        for attempt in 0..ATTEMPTS_MAX {
            let raw_bytes = pending.records[count - 1].end;
            let stored = compressor.compress(&pending.raw[..raw_bytes], dictionary.as_deref());
            let stored_bytes = stored.map_or(raw_bytes, <[u8]>::len);
            if attempt == 0 {
                paces[*pace].note(raw_bytes + count * FINGERPRINT_BYTES, stored_bytes + count * FINGERPRINT_BYTES);
            }
            let worthwhile = count > fits_raw || stored_bytes + (raw_bytes >> WORTHWHILE_SHIFT) <= raw_bytes;
            let fits = stored_bytes + count * FINGERPRINT_BYTES <= room;
            if let Some(stored) = stored.filter(|_| worthwhile && fits) {
                let frame = FrameEntry { codec, stored: stored_bytes, raw: raw_bytes, records: count };
                if codec == FrameCodec::Zstd {
                    page.dictionary = dictionary.as_ref().map_or(0, |dictionary| dictionary.id());
                }
                page.add(unit.as_mut().expect("a unit is begun"), frame, stored, &pending.records[..count], placed);
                pending.drop_first(count);
                return true;
            }
            stats.wasted_attempts += 1;
            if count <= fits_raw {
                return false;
            }
            // How much fewer records will save: their share at first, then as the last two attempts showed, for
            // what all records have in common is stored once however few they are.
            let slope = match last {
                Some((raw, stored)) => {
                    let (raw_less, stored_less) = (raw - raw_bytes, stored - stored_bytes.min(stored));
                    paces[*pace].note_retry(raw_less, stored_less);
                    stored_less * 1024 / raw_less
                }
                None => paces[*pace].curve().slope,
            };
            last = Some((raw_bytes, stored_bytes));
            let margin = stored_bytes / 32;
            let expected = |raw: usize| (stored_bytes + margin).saturating_sub((raw_bytes - raw) * slope / 1024);
            // The last attempt must succeed.
            let aim = if attempt + 2 == ATTEMPTS_MAX { room * 3 / 4 } else { room };
            count = pending.count_fitting(aim, expected).min(count - 1);
            if count <= fits_raw {
                return false;
            }
        }
        false
    }

    fn open_page(&mut self) -> bool {
        let unit = self.unit.as_mut().expect("a unit is begun");
        if unit.pages_left() == 0 {
            return false;
        }
        self.page.open(unit.next_page);
        unit.next_page += 1;
        self.plan_frame();
        true
    }

    fn close_page(&mut self) {
        let unit = self.unit.as_mut().expect("a unit is begun");
        self.stats.slack_bytes += self.page.close(unit) as u64;
    }

    /// After the open page or the pending records changed.
    fn plan_frame(&mut self) {
        self.worst = Worst::of(&self.page, &self.pending);
        self.target = self.pace().frame_target(self.page.room()).min(FRAME_RAW_BYTES_MAX);
    }

    /// A record that may not fit a page: a frame of its own if it compresses to less than a page, otherwise an extent.
    fn push_large(&mut self, record: &Record<'_>, tag: u64) -> Push {
        let unit = self.unit.as_ref().expect("a unit is begun");
        self.large.clear();
        record.encode(unit.bases, &mut self.large);
        let raw_bytes = self.large.len();
        if raw_bytes > EXTENT_RAW_BYTES_MAX {
            return Push::Never;
        }
        // Expected not to fit: spares compressing it for nothing. In a fresh unit it is compressed to be sure.
        let expected_pages = extent_pages(raw_bytes * self.extent_ratio / 1024);
        if unit.next_page > 0 && expected_pages > unit.pages_left() {
            return Push::Full;
        }
        if raw_bytes <= FRAME_RAW_BYTES_MAX {
            // It may become a frame, and frames are written in order.
            while !self.pending.is_empty() {
                self.seal();
            }
        }
        let PageBuilder { compressor, dictionary, large, unit, worst, extent_ratio, .. } = self;
        let unit = unit.as_mut().expect("a unit is begun");
        let codec = compressor.frame_codec();
        let dictionary = dictionary.as_deref().filter(|_| raw_bytes <= DICTIONARY_RAW_BYTES_MAX);
        let compressed = compressor.compress(large, dictionary);
        let stored_bytes = compressed.map_or(raw_bytes, <[u8]>::len);
        *extent_ratio = (*extent_ratio * 3 + stored_bytes * 1024 / raw_bytes) / 4;
        if raw_bytes <= FRAME_RAW_BYTES_MAX && stored_bytes <= SMALL_BYTES_MAX {
            return self.push_large_as_frame(record.fingerprint(), stored_bytes, tag);
        }

        // Only whole pages count.
        let compressed = compressed.filter(|stored| extent_pages(stored.len()) < extent_pages(raw_bytes));
        let (codec, stored, dictionary) = match compressed {
            Some(stored) => (codec, stored, dictionary.map_or(0, Dictionary::id)),
            None => (FrameCodec::Raw, &large[..], 0),
        };
        let pages = extent_pages(stored.len());
        if pages > unit.buf.pages() {
            return Push::TooLarge { pages };
        }
        let pending_pages = if self.pending.is_empty() { 0 } else { worst.pages };
        if pages + pending_pages > unit.pages_left() {
            return Push::Full;
        }
        let first_page = unit.next_page;
        unit.next_page += pages;
        let out = &mut unit.buf[first_page * PAGE_BYTES..unit.next_page * PAGE_BYTES];
        Common { kind: Kind::Extent, bases: unit.bases, dictionary }.write(out);
        Extent { fingerprint: record.fingerprint(), stored: stored.len(), raw: raw_bytes, codec }.write(out);
        let end = EXTENT_HEADER_BYTES + stored.len();
        out[EXTENT_HEADER_BYTES..end].copy_from_slice(stored);
        out[end..].fill(0);
        write_checksum(&mut out[..end]);
        self.placed.push(Placed { tag, page: first_page as u16, step: step_of(pages) });
        self.release_large();
        Push::Taken
    }

    /// Places what the compressor made last, `stored_bytes` of it. Nothing is pending.
    fn push_large_as_frame(&mut self, fingerprint: u16, stored_bytes: usize, tag: u64) -> Push {
        let fits = |page: &OpenPage| page.index.is_some() && stored_bytes + FINGERPRINT_BYTES <= page.room();
        if !fits(&self.page) {
            if self.page.index.is_some() {
                self.close_page();
            }
            if !self.open_page() {
                return Push::Full;
            }
        }
        let PageBuilder { compressor, dictionary, page, unit, placed, large, .. } = self;
        let codec = compressor.frame_codec();
        let frame = FrameEntry { codec, stored: stored_bytes, raw: large.len(), records: 1 };
        if codec == FrameCodec::Zstd {
            page.dictionary = dictionary.as_ref().map_or(0, |dictionary| dictionary.id());
        }
        let record = Waiting { end: large.len(), fingerprint, tag };
        let unit = unit.as_mut().expect("a unit is begun");
        page.add(unit, frame, compressor.last(stored_bytes), &[record], placed);
        self.plan_frame();
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
