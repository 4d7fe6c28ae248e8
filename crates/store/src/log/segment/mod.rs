//! Owns the log's segments: their states, the counts of live records in each, and the places of pages.
//! Never knows the contents of a page. `space` judges how much room there is; `resize` changes the number of segments.

mod expiries;
mod growing;
mod resize;
pub mod rot;
mod saved;
mod scrub;
mod space;

use crate::log::page::{Stamp, UNIT_PAGES_MAX, step_pages};
use crate::mem::word::{PAGE_BITS, PageAddress};
use crate::narrow::whole;
pub use expiries::Expiries;
use flash::io::PAGE_BYTES;
use growing::Growing;
use parking_lot::Mutex;
pub use resize::SEGMENTS_MIN;
use rot::Rot;
pub use saved::{Input, NamedPages, SavedSegment, Tally, decode, encode};
use scrub::Scrub;
pub(crate) use space::FULLEST;
pub use space::{LogSpace, Relocation};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SegmentState {
    Free = 0,
    /// Being filled by one of the heads.
    Open = 1,
    Sealed = 2,
    /// Its live records are being moved out.
    Collecting = 3,
    /// A write to the segment failed. No more data is written to it; older data can still be read.
    Retired = 4,
    /// The segment is not in the log, or will be cut off with its end. No entry points into it.
    Outside = 5,
    /// No entry points into it, but a checkpoint may name its records. It is free after the next checkpoint.
    Quarantined = 6,
}

/// A snapshot that reads the log while others write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotKind {
    Checkpoint,
    /// For a file or a replica. It ends early if writers need the segments that it keeps.
    Dump,
}

/// Each of the two streams fills its own segments, so that records that survived a collection are not mixed with new data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentStream {
    Fresh,
    Relocated,
}

pub struct Segment {
    state: AtomicU8,
    /// Number of reads in flight. The segment is not reused before they are complete.
    readers: AtomicU32,
    /// Number of pages handed out and not yet written.
    writers: AtomicU32,
    /// Number of times that the segment was opened.
    generation: AtomicU32,
    /// The counts of records, by the number of pages that a record is on.
    records: [Records; CLASSES],
    used_pages: AtomicU32,
    /// The log's count of sealed segments when this one was sealed. The segment's age is the number of segments sealed after it.
    sealed_at: AtomicU64,
    /// A write to the segment failed, or a read of its live records failed.
    bad: AtomicBool,
    /// Whether some record has an expiry.
    expires: AtomicBool,
    /// Number of collections that could not read the whole segment.
    tries: AtomicU8,
    /// Number of failed tests of the bad segment, and when the next one may start.
    tests: AtomicU8,
    test_due_ms: AtomicU64,
    /// The number of the cut after which no checkpoint names the bad segment's records. 0: it is not known to be dead.
    unnamed_at: AtomicU64,
    about: Mutex<About>,
}

/// The classes of records: on one page, on two pages, on more.
const CLASSES: usize = 3;

/// Counts of a segment's records. A place does not contain the length of its record, so a live record counts with the
/// average length of those written. Records on more than two pages differ much in length, so each of them counts as
/// many times as its place has pages.
#[derive(Default)]
struct Records {
    live: AtomicU32,
    written: AtomicU32,
    /// Bytes that the written records take on flash.
    bytes: AtomicU32,
}

impl Records {
    /// Estimated bytes that the live records take on flash.
    fn live_bytes(&self) -> f64 {
        let average = f64::from(self.bytes.load(Relaxed)) / f64::from(self.written.load(Relaxed).max(1));
        f64::from(self.live.load(Relaxed)) * average
    }
}

/// The class of a record at this place, and how many times the record counts.
fn class(place: PageAddress) -> (usize, u32) {
    match step_pages(place.step) {
        pages @ 1..=2 => ((pages - 1) as usize, 1),
        pages => (2, pages),
    }
}

/// The number of segments in a list that names each of them once.
#[expect(clippy::cast_possible_truncation, reason = "segments have numbers of 32 bits")]
fn number_of(segments: usize) -> u32 {
    debug_assert!(segments <= 1 << PAGE_BITS);
    segments as u32
}

#[derive(Default)]
struct About {
    /// First page and number of pages of each written unit. A record never extends beyond its unit.
    units: Vec<(u16, u16)>,
    expiries: Expiries,
}

impl Segment {
    fn new() -> Segment {
        Segment {
            state: AtomicU8::new(SegmentState::Outside as u8),
            readers: AtomicU32::new(0),
            writers: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            records: Default::default(),
            used_pages: AtomicU32::new(0),
            sealed_at: AtomicU64::new(0),
            bad: AtomicBool::new(false),
            expires: AtomicBool::new(false),
            tries: AtomicU8::new(0),
            tests: AtomicU8::new(0),
            test_due_ms: AtomicU64::new(0),
            unnamed_at: AtomicU64::new(0),
            about: Mutex::default(),
        }
    }

    pub fn state(&self) -> SegmentState {
        match self.state.load(Relaxed) {
            0 => SegmentState::Free,
            1 => SegmentState::Open,
            2 => SegmentState::Sealed,
            3 => SegmentState::Collecting,
            4 => SegmentState::Retired,
            6 => SegmentState::Quarantined,
            _ => SegmentState::Outside,
        }
    }

    fn turn(&self, from: SegmentState, to: SegmentState) -> bool {
        self.state.compare_exchange(from as u8, to as u8, Relaxed, Relaxed).is_ok()
    }

    /// Whether no index entry points into the segment any more.
    pub fn is_dead(&self) -> bool {
        self.records.iter().all(|records| records.live.load(Relaxed) == 0)
    }

    /// A lower bound of the number of expired records. Usually no record expires, so there is nothing to lock.
    fn expired(&self, now_ms: u64) -> u32 {
        if self.expires.load(Relaxed) { self.about.lock().expiries.expired(now_ms) } else { 0 }
    }

    /// Whether a write to the segment or a read of its live records failed.
    pub fn is_bad(&self) -> bool {
        self.bad.load(Relaxed)
    }

    /// Whether the segment's live records can be read and moved. A segment that was retired after a failed write counts
    /// as readable until a collection has tried to read it.
    fn is_collectable(&self) -> bool {
        let state = match self.state() {
            SegmentState::Sealed => true,
            SegmentState::Retired => self.tries.load(Relaxed) == 0 && !self.is_dead(),
            _ => false,
        };
        state && self.writers.load(Relaxed) == 0
    }

    /// Estimated number of pages that the live records take, with their part of headers and of unused room.
    fn live_pages_estimate(&self) -> f64 {
        let live: f64 = self.records.iter().map(Records::live_bytes).sum();
        let written: f64 = self.records.iter().map(|records| f64::from(records.bytes.load(Relaxed))).sum();
        live / written.max(1.0) * f64::from(self.used_pages.load(Relaxed))
    }

    /// Estimated number of pages of expired records, as if all records were of one length.
    fn expired_pages(&self, now_ms: u64) -> f64 {
        let written: u32 = self.records.iter().map(|records| records.written.load(Relaxed)).sum();
        f64::from(self.expired(now_ms)) / f64::from(written.max(1)) * f64::from(self.used_pages.load(Relaxed))
    }

    fn live_records(&self) -> u32 {
        self.records.iter().map(|records| records.live.load(Relaxed)).sum()
    }
}

/// Contiguous pages of a segment that are written at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    pub segment: u32,
    /// Index of the first page within the segment.
    pub first: u32,
    pub pages: u32,
}

#[derive(Default)]
struct Heads {
    open: [Option<(u32, u32)>; 2],
    free: VecDeque<u32>,
    /// Free segments that will leave the log. The collector may use them until it has made room before the new end.
    lent: Vec<u32>,
    /// Whether emptied segments wait for a checkpoint, and whether they wait for the end of a snapshot. Each waiting
    /// segment has the number of cuts that were made before it was emptied.
    checkpoints: bool,
    snapshot: bool,
    quarantined: Vec<(u32, u64)>,
    /// The number of the last cut, and of the last one that is durable.
    cut: u64,
    durable: u64,
}

impl Heads {
    fn quarantines(&self) -> bool {
        self.checkpoints || self.snapshot
    }
}

/// Sums over all segments.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    /// Number of segments that contain data or may contain data, and of those that take none because of an error.
    pub used: u32,
    pub retired: u32,
    pub live_bytes: u64,
    /// Number of segments that the live data takes, with unused parts of pages.
    pub charged: f64,
}

pub struct Segments {
    segments: Growing<Segment>,
    /// Number of segments that exist, and of those that take data, which are fewer while the log shrinks.
    count: AtomicU32,
    end: AtomicU32,
    /// Number of segments from `end` on that are not outside yet, and of those that are being emptied.
    leaving: AtomicU32,
    vacating: AtomicU32,
    /// While the log shrinks: whether the live data needs all the room before the new end.
    is_taken: AtomicBool,
    /// Whether it was logged that shrinking makes no progress.
    said_stalled: AtomicBool,
    pub segment_pages: u32,
    pub paths: u32,
    data_offset: u64,
    log_id: u32,
    heads: Mutex<Heads>,
    free: AtomicU32,
    quarantined: AtomicU32,
    sealed: AtomicU64,
    /// Whether the live data left no room for more when it was last summed.
    full: AtomicBool,
    /// How much live data may take, which may be less than the segments have room for; and whether it took that much
    /// when it was last summed.
    data_max: AtomicU64,
    over: AtomicBool,
    /// Whether a [`SnapshotKind::Dump`] is running.
    is_dumping: AtomicBool,
    /// Number of segments, besides the reserve, that should be free or become free with the next checkpoint.
    ahead: AtomicU32,
    /// How many bytes of copies of values in RAM should be dropped, so that these segments have room.
    copies_to_drop: AtomicU64,
    /// Number of segments whose live records are being moved.
    relocating: AtomicU32,
    /// Number of segments since one contained a record that could be evicted.
    vain: AtomicU32,
    /// Segments whose last live record has died, and whether there are any such segments.
    dead: Mutex<VecDeque<u32>>,
    some_died: AtomicBool,
    /// Number of entries at [`PageAddress::LOST`], which is in no segment.
    lost: AtomicU64,
    scrub: Scrub,
    pub rot: Rot,
}

const RESERVE: u32 = 3;
/// A page's header and the lists of units contain the index of a page in its segment in 16 bits.
pub const SEGMENT_PAGES_MAX: u32 = 1 << 16;
/// An operation of I/O contains the number of its path in 16 bits.
pub const PATHS_MAX: u32 = 1 << 16;
/// Maximum pages of small units that are read together.
const READ_PAGES: u32 = 64;

impl Segments {
    /// `count` segments of `segment_pages` pages, distributed over `paths` files. The data begins at `data_offset` of each file.
    pub fn new(count: u32, segment_pages: u32, paths: u32, data_offset: u64, log_id: u32) -> Segments {
        assert!(segment_pages <= SEGMENT_PAGES_MAX);
        assert!(paths <= PATHS_MAX);
        let count = count.min((1 << PAGE_BITS) / segment_pages.max(1));
        let segments = Segments {
            segments: Growing::new(),
            count: AtomicU32::new(0),
            end: AtomicU32::new(0),
            leaving: AtomicU32::new(0),
            vacating: AtomicU32::new(0),
            is_taken: AtomicBool::new(false),
            said_stalled: AtomicBool::new(false),
            segment_pages,
            paths: paths.max(1),
            data_offset,
            log_id,
            heads: Mutex::default(),
            free: AtomicU32::new(0),
            quarantined: AtomicU32::new(0),
            sealed: AtomicU64::new(0),
            full: AtomicBool::new(false),
            data_max: AtomicU64::new(u64::MAX),
            over: AtomicBool::new(false),
            is_dumping: AtomicBool::new(false),
            ahead: AtomicU32::new(0),
            copies_to_drop: AtomicU64::new(0),
            relocating: AtomicU32::new(0),
            vain: AtomicU32::new(0),
            dead: Mutex::default(),
            some_died: AtomicBool::new(false),
            lost: AtomicU64::new(0),
            scrub: Scrub::default(),
            rot: Rot::default(),
        };
        segments.set_end(count);
        segments
    }

    /// Number of segments, including those that are leaving.
    pub fn count(&self) -> u32 {
        self.count.load(Relaxed)
    }

    fn all(&self) -> impl Iterator<Item = &Segment> {
        (0..self.count()).map(|number| self.get(number))
    }

    pub fn free_count(&self) -> u32 {
        self.free.load(Relaxed)
    }

    pub fn data_offset(&self) -> u64 {
        self.data_offset
    }

    pub fn segment_bytes(&self) -> u64 {
        u64::from(self.segment_pages) * PAGE_BYTES as u64
    }

    pub fn get(&self, segment: u32) -> &Segment {
        self.segments.get(segment)
    }

    pub fn of_page(&self, page: u32) -> u32 {
        page / self.segment_pages
    }

    pub fn page(&self, unit: Unit, page_in_unit: u32) -> u32 {
        unit.segment * self.segment_pages + unit.first + page_in_unit
    }

    /// Flash path and byte offset of a page.
    #[expect(clippy::cast_possible_truncation, reason = "a remainder of `paths`, which is at most PATHS_MAX")]
    pub fn location(&self, page: u32) -> (u16, u64) {
        let segment = self.of_page(page);
        let inside = u64::from(page % self.segment_pages) * PAGE_BYTES as u64;
        let offset = self.data_offset + u64::from(segment / self.paths) * self.segment_bytes() + inside;
        ((segment % self.paths) as u16, offset)
    }

    /// What the header of this page must contain, since its segment was opened.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a remainder of `segment_pages`, which is at most SEGMENT_PAGES_MAX"
    )]
    pub fn stamp(&self, page: u32) -> Stamp {
        let generation = self.get(self.of_page(page)).generation.load(Relaxed);
        Stamp { log: self.log_id, generation, number: (page % self.segment_pages) as u16 }
    }

    /// Number of pages to read for a place: the pages of its step, cut at the segment's end. Of a lost value there are none.
    pub fn read_pages(&self, place: PageAddress) -> u32 {
        if place.is_lost() {
            return 0;
        }
        let left = self.segment_pages - place.page % self.segment_pages;
        step_pages(place.step).min(left)
    }

    /// Computes the sums in one walk over all segments.
    pub fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        let (mut live_pages, mut charged_pages) = (0.0, 0.0);
        for segment in self.all() {
            match segment.state() {
                SegmentState::Open | SegmentState::Sealed | SegmentState::Collecting => sums.used += 1,
                SegmentState::Retired => sums.retired += 1,
                SegmentState::Free | SegmentState::Outside | SegmentState::Quarantined => {}
            }
            live_pages += segment.live_pages_estimate();
            charged_pages += segment.charge(self.segment_pages);
        }
        sums.live_bytes = whole(live_pages * PAGE_BYTES as f64);
        sums.charged = charged_pages / f64::from(self.segment_pages);
        sums
    }

    /// Takes the next `pages` pages of the stream's open segment. Opens another segment if needed. `None`: no segment is free for
    /// this stream.
    pub fn take_unit(&self, stream: SegmentStream, pages: u32) -> Option<Unit> {
        assert!(pages > 0 && pages <= self.segment_pages);
        let mut heads = self.heads.lock();
        if let Some((segment, next)) = heads.open[stream as usize] {
            let usable = self.get(segment).state() == SegmentState::Open;
            if usable && next + pages <= self.segment_pages {
                heads.open[stream as usize] = Some((segment, next + pages));
                return Some(self.unit(segment, next, pages));
            }
            heads.open[stream as usize] = None;
            if usable {
                self.seal(segment);
            }
        }
        let segment = match stream {
            SegmentStream::Fresh if !self.takes_new() || heads.free.len() <= self.reserve() as usize => return None,
            SegmentStream::Fresh => heads.free.pop_front()?,
            SegmentStream::Relocated => heads.free.pop_front().or_else(|| heads.lent.pop())?,
        };
        self.free.store(number_of(heads.free.len()), Relaxed);
        let opened = self.get(segment).turn(SegmentState::Free, SegmentState::Open);
        assert!(opened, "a free segment is in no other hands");
        self.get(segment).generation.fetch_add(1, Relaxed);
        heads.open[stream as usize] = Some((segment, pages));
        Some(self.unit(segment, 0, pages))
    }

    /// Pages left in the stream's open segment, if there is one with any.
    pub fn open_rest(&self, stream: SegmentStream) -> Option<u32> {
        let (segment, next) = self.heads.lock().open[stream as usize]?;
        let rest = self.segment_pages - next;
        (rest > 0 && self.get(segment).state() == SegmentState::Open).then_some(rest)
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "units are in a segment, and `first` is below SEGMENT_PAGES_MAX"
    )]
    fn unit(&self, segment: u32, first: u32, pages: u32) -> Unit {
        debug_assert!(pages as usize <= UNIT_PAGES_MAX);
        let about = self.get(segment);
        about.writers.fetch_add(pages, Relaxed);
        about.used_pages.fetch_add(pages, Relaxed);
        about.about.lock().units.push((first as u16, pages as u16));
        Unit { segment, first, pages }
    }

    fn seal(&self, segment: u32) {
        let now = self.sealed.fetch_add(1, Relaxed) + 1;
        self.get(segment).sealed_at.store(now, Relaxed);
        self.get(segment).turn(SegmentState::Open, SegmentState::Sealed);
        if self.get(segment).is_dead() {
            self.note_death(segment);
        }
    }

    /// Called when a unit's write is complete and all its records are counted.
    pub fn unit_written(&self, unit: Unit) {
        let segment = self.get(unit.segment);
        if segment.writers.fetch_sub(unit.pages, Relaxed) == unit.pages && segment.is_dead() {
            self.note_death(unit.segment);
        }
    }

    /// Counts a record that was written to flash and takes `bytes` there. It counts as live only when an entry points to it.
    pub fn wrote(&self, place: PageAddress, bytes: u32, expiry: Option<u64>) {
        let segment = self.get(self.of_page(place.page));
        let (class, times) = class(place);
        segment.records[class].written.fetch_add(times, Relaxed);
        segment.records[class].bytes.fetch_add(bytes, Relaxed);
        if let Some(expiry) = expiry {
            segment.expires.store(true, Relaxed);
            segment.about.lock().expiries.add(expiry);
        }
    }

    /// Number of pages of all segments.
    pub fn pages(&self) -> u64 {
        u64::from(self.count()) * u64::from(self.segment_pages)
    }

    /// Number of keys whose values are lost.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// Counts a record as live: an index entry, or the object of an entry, points to this place from now on.
    pub fn born(&self, place: PageAddress) {
        if place.is_lost() {
            self.lost.fetch_add(1, Relaxed);
            return;
        }
        let (class, times) = class(place);
        self.get(self.of_page(place.page)).records[class].live.fetch_add(times, Relaxed);
    }

    /// Counts a record as dead: nothing points to this place any more.
    pub fn died(&self, place: PageAddress) {
        if place.is_lost() {
            self.lost.fetch_sub(1, Relaxed);
            return;
        }
        let number = self.of_page(place.page);
        let segment = self.get(number);
        let (class, died) = class(place);
        let before = segment.records[class].live.fetch_sub(died, Relaxed);
        debug_assert!(before >= died, "a record dies once");
        // An open segment is checked for this when it is sealed.
        if before == died && segment.state() == SegmentState::Sealed && segment.is_dead() {
            self.note_death(number);
        }
    }

    /// Counts a reader of the page's segment. Call it under the same stripe lock as the look-up of the entry. The collector changes
    /// entries only under this lock, so the segment cannot be freed between the look-up and this call.
    pub fn reader_begins(&self, page: u32) {
        self.get(self.of_page(page)).readers.fetch_add(1, Relaxed);
    }

    pub fn reader_ends(&self, page: u32) {
        self.get(self.of_page(page)).readers.fetch_sub(1, Relaxed);
    }

    /// Called when a unit's write failed: the segment gets no more data. Its other data stays readable.
    pub fn retire(&self, unit: Unit) {
        let segment = self.get(unit.segment);
        segment.about.lock().units.retain(|&(first, _)| u32::from(first) != unit.first);
        segment.bad.store(true, Relaxed);
        for state in [SegmentState::Open, SegmentState::Sealed] {
            segment.turn(state, SegmentState::Retired);
        }
    }

    /// Takes the segment with the largest gain, (1 − u) · age / (1 + u), where expired records count as dead
    /// (Rosenblum and Ousterhout, 1992). Only segments whose live share is below `fullest` (0 to 1) are considered. The caller
    /// owns the segment until [`Segments::collected`].
    pub fn victim(&self, now_ms: u64, fullest: f64) -> Option<u32> {
        self.best(|segment, age| {
            let live = (segment.live_pages_estimate() - segment.expired_pages(now_ms)).max(0.0);
            // The share of written pages, because moving records does not gain the tail that was unused when the segment was sealed.
            let used = (live / f64::from(segment.used_pages.load(Relaxed).max(1))).min(1.0);
            (used <= fullest).then(|| (1.0 - used) * age / (1.0 + used))
        })
    }

    /// Takes the segment that was sealed first, to evict its records: they left RAM, or were last relocated, longest ago. The caller
    /// owns the segment until [`Segments::collected`].
    pub fn oldest(&self) -> Option<u32> {
        self.best(|_, age| Some(age))
    }

    /// Takes the segment without writers that has the largest gain. `gain` gets the segment's age, counted in segments. A segment that
    /// was retired after a failed write still has readable records, so it may be taken once.
    fn best(&self, gain: impl Fn(&Segment, f64) -> Option<f64>) -> Option<u32> {
        let sealed = self.sealed.load(Relaxed);
        let mut best: Option<(f64, u32)> = None;
        for number in 0..self.end() {
            let segment = self.get(number);
            if !segment.is_collectable() {
                continue;
            }
            // Saturate, because another worker may have sealed the segment after `sealed` was read.
            let age = sealed.saturating_sub(segment.sealed_at.load(Relaxed)) as f64 + 1.0;
            if let Some(gain) = gain(segment, age)
                && best.is_none_or(|(most, _)| gain > most)
            {
                best = Some((gain, number));
            }
        }
        let (_, segment) = best?;
        self.take(segment).then_some(segment)
    }

    /// False: another worker has taken the segment.
    fn take(&self, segment: u32) -> bool {
        [SegmentState::Sealed, SegmentState::Retired]
            .into_iter()
            .any(|state| self.get(segment).turn(state, SegmentState::Collecting))
    }

    /// Takes a segment whose expired records should leave: a quarter of the live records have expired, or some record expired more
    /// than `lag_ms` ago.
    pub fn expired_victim(&self, now_ms: u64, lag_ms: u64) -> Option<u32> {
        (0..self.count()).find(|&number| {
            let segment = self.get(number);
            if !segment.expires.load(Relaxed) || !segment.is_collectable() || segment.is_dead() {
                return false;
            }
            let about = segment.about.lock();
            let expired = about.expiries.expired(now_ms);
            let many = expired > 0 && expired >= segment.live_records() / 4;
            let late = about.expiries.first_ms().is_some_and(|first| first.saturating_add(lag_ms) <= now_ms);
            drop(about);
            (many || late) && self.take(number)
        })
    }

    /// Gives back a segment whose expired records were removed. `left`: the expiry times of the records that were found in it.
    pub(crate) fn expired_removed(&self, segment: u32, left: Expiries) {
        let about = self.get(segment);
        about.expires.store(left.first_ms().is_some(), Relaxed);
        about.about.lock().expiries = left;
        self.uncollected(segment);
    }

    /// The written units. Adjacent small units are joined, so that one read takes them together.
    pub fn units(&self, segment: u32) -> Vec<Unit> {
        let mut units: Vec<Unit> = Vec::new();
        for &(first, pages) in &self.get(segment).about.lock().units {
            let (first, pages) = (first.into(), pages.into());
            match units.last_mut() {
                Some(last) if last.first + last.pages == first && last.pages + pages <= READ_PAGES => {
                    last.pages += pages
                }
                _ => units.push(Unit { segment, first, pages }),
            }
        }
        units
    }

    /// Whether a segment that the caller owns is dead and has no readers. If so, the segment is empty, and the caller owns it until
    /// [`Segments::freed`]. If not, ask again later.
    pub fn emptied(&self, segment: u32) -> bool {
        let about = self.get(segment);
        assert_eq!(about.state(), SegmentState::Collecting);
        if !about.is_dead() || about.readers.load(Relaxed) > 0 {
            return false;
        }
        true
    }

    /// Gives back an emptied segment, which may then be written again or cut off, at once or after the next checkpoint.
    pub fn freed(&self, segment: u32) {
        self.rot.forget(segment * self.segment_pages..(segment + 1) * self.segment_pages);
        let mut heads = self.heads.lock();
        if heads.quarantines() {
            return self.quarantine(segment, &mut heads);
        }
        self.get(segment).turn(SegmentState::Collecting, SegmentState::Outside);
        self.place_freed(segment, &mut heads);
    }

    /// The emptied segment waits until a later cut is durable.
    fn quarantine(&self, segment: u32, heads: &mut Heads) {
        let cut = heads.cut;
        self.get(segment).turn(SegmentState::Collecting, SegmentState::Quarantined);
        heads.quarantined.push((segment, cut));
        self.quarantined.store(number_of(heads.quarantined.len()), Relaxed);
    }

    /// The segment is outside: it may be written again, or it leaves the log.
    fn place_freed(&self, segment: u32, heads: &mut Heads) {
        self.get(segment).forget();
        match segment < self.end() {
            true => self.admit(segment, heads),
            false => self.left(),
        }
        if heads.free.len() > self.reserve() as usize {
            self.return_lent(heads);
        }
    }

    /// Gives back a segment that was not collected. It may be chosen again later.
    pub fn uncollected(&self, segment: u32) {
        let about = self.get(segment);
        let state = if about.bad.load(Relaxed) { SegmentState::Retired } else { SegmentState::Sealed };
        about.turn(SegmentState::Collecting, state);
        if about.is_dead() {
            self.note_death(segment);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a unit of one record, which is dead at once.
    fn write_dead(segments: &Segments, stream: SegmentStream, pages: u32) -> Unit {
        let unit = segments.take_unit(stream, pages).expect("some segment is free");
        segments.wrote(PageAddress { page: segments.page(unit, 0), step: 0 }, 500, None);
        segments.unit_written(unit);
        while let Some(dead) = segments.next_dead() {
            segments.freed(dead);
        }
        unit
    }

    /// A stream whose segment was retired, tested and is written by the other stream must not go on in it.
    #[test]
    fn a_segment_that_comes_back_belongs_to_one_stream() {
        let segments = Segments::new(8, 16, 1, 0, 1);
        let failed = segments.take_unit(SegmentStream::Relocated, 4).expect("all are free");
        segments.retire(failed);
        segments.unit_written(failed);
        let tested = segments.next_to_test(0).expect("it is dead");
        assert_eq!(tested, failed.segment);
        segments.proved_good(tested);
        let fresh = (0..100).map(|_| write_dead(&segments, SegmentStream::Fresh, 8));
        assert!(fresh.into_iter().any(|unit| unit.segment == tested), "it takes data again");
        let relocated = segments.take_unit(SegmentStream::Relocated, 4).expect("some are free");
        assert_ne!((relocated.segment, relocated.first), (tested, 4));
        assert_eq!(relocated.first, 0, "a segment of its own");
    }

    /// A segment that has left the log and comes back was bad in another life. A checkpoint may name what is in it now.
    #[test]
    fn a_segment_that_leaves_the_log_is_new_when_it_comes_back() {
        let segments = Segments::new(32, 16, 1, 0, 1);
        segments.set_quarantine(true);
        let last = 31;
        let fail = || loop {
            let unit = segments.take_unit(SegmentStream::Fresh, 16).expect("some are free");
            if unit.segment == last {
                segments.retire(unit);
                segments.unit_written(unit);
                break;
            }
            segments.unit_written(unit);
            while let Some(dead) = segments.next_dead() {
                segments.freed(dead);
            }
            segments.durable(segments.cut());
        };
        fail();
        assert_eq!(segments.next_to_test(0), None, "a checkpoint may name it");
        segments.set_end(16);
        while let Some(leaving) = segments.next_leaving(0) {
            assert!(segments.begin_vacating(leaving));
            segments.freed(leaving);
            segments.vacating_ends();
        }
        segments.durable(segments.cut());
        assert!(!segments.shrinks());
        segments.set_end(32);
        fail();
        assert_eq!(segments.next_to_test(0), None, "a checkpoint may name what it had");
    }

    #[test]
    fn a_segment_passes_through_all_states() {
        let segments = Segments::new(8, 16, 2, 4096, 1);
        let mut units = Vec::new();
        while let Some(unit) = segments.take_unit(SegmentStream::Fresh, 8) {
            units.push(unit);
        }
        assert_eq!(units.len(), 2 * (8 - segments.reserve() as usize));
        assert_eq!(segments.location(segments.page(units[2], 3)), (1, 4096 + 3 * 4096));
        for &unit in &units {
            let place = PageAddress { page: segments.page(unit, 0), step: 0 };
            segments.wrote(place, 500, None);
            segments.born(place);
            segments.unit_written(unit);
        }
        // The records of the third segment die. It becomes the victim, and it is free after its last reader.
        let dead = PageAddress { page: segments.page(units[4], 0), step: 0 };
        segments.reader_begins(dead.page);
        for unit in [units[4], units[5]] {
            segments.died(PageAddress { page: segments.page(unit, 0), step: 0 });
        }
        // The age of a segment counts here, not its garbage.
        assert_eq!(segments.oldest(), Some(0));
        segments.uncollected(0);
        assert_eq!(segments.victim(0, 0.5), Some(2));
        assert!(!segments.emptied(2));
        segments.reader_ends(dead.page);
        assert!(segments.emptied(2));
        segments.freed(2);
        assert_eq!(segments.free_count(), segments.reserve() + 1);
        assert_eq!(segments.take_unit(SegmentStream::Fresh, 16).map(|unit| unit.first), Some(0));
    }

    #[test]
    fn a_collection_waits_for_another_one_and_only_without_others_the_log_is_wedged() {
        let segments = Segments::new(8, 16, 1, 0, 1);
        while segments.take_unit(SegmentStream::Fresh, 16).is_some() {}
        assert_eq!(segments.free_count(), 2);
        assert_eq!(segments.begin_relocation(0, false), Relocation::May);
        assert_eq!(
            (segments.may_relocate(false), segments.begin_relocation(1, false)),
            (Relocation::Later, Relocation::Later)
        );
        // Moved records take the last free segments, and no segment becomes free.
        while segments.take_unit(SegmentStream::Relocated, 16).is_some() {}
        assert_eq!(segments.may_relocate(false), Relocation::Later);
        segments.relocation_ends();
        assert_eq!(segments.may_relocate(false), Relocation::Wedged);
    }

    #[test]
    fn segments_are_collected_for_the_next_checkpoint_as_far_as_live_data_leaves_room() {
        let segments = Segments::new(64, 16, 1, 0, 1);
        let fill = |count| {
            for _ in 0..count {
                let unit = segments.take_unit(SegmentStream::Fresh, 16).expect("there is room");
                let place = PageAddress { page: segments.page(unit, 0), step: 0 };
                segments.wrote(place, 500, None);
                segments.born(place);
                segments.unit_written(unit);
            }
        };
        segments.set_quarantine(true);
        fill(52);
        assert!(!segments.wants_collection(), "12 are more than the reserve and 8");
        fill(1);
        assert!(segments.wants_collection());
        // 53 of 64 are live, and 55.2 may be.
        segments.durable(segments.cut());
        assert!(!segments.wants_collection());
        assert_eq!(segments.take_copies_to_drop(), 7 * 2 * segments.segment_bytes());
        assert_eq!(segments.take_copies_to_drop(), 0);
        fill(7);
        segments.died(PageAddress { page: 0, step: 0 });
        let dead = segments.next_dead().expect("it has no live record");
        assert!(segments.wants_collection());
        segments.freed(dead);
        assert_eq!((segments.free_count(), segments.quarantined_count()), (4, 1));
        assert!(segments.wants_collection(), "5 are few");
        for number in 1..9 {
            segments.died(PageAddress { page: number * 16, step: 0 });
        }
        segments.durable(segments.cut());
        while let Some(dead) = segments.next_dead() {
            segments.freed(dead);
        }
        assert_eq!((segments.free_count(), segments.quarantined_count()), (5, 8));
        assert!(!segments.wants_collection(), "the next checkpoint frees enough");
        segments.set_snapshot(Some(SnapshotKind::Dump));
        assert!(!segments.wants_collection());
        fill(2);
        assert!(segments.wants_collection(), "a writer would wait, so it ends the dump");
        segments.set_snapshot(Some(SnapshotKind::Checkpoint));
        assert!(!segments.wants_collection());
        segments.set_snapshot(None);
        segments.weigh(true);
        segments.set_quarantine(false);
        assert_eq!(segments.free_count(), 11);
    }

    #[test]
    fn live_pages_are_estimated_from_the_lengths_of_records() {
        let segments = Segments::new(8, 64, 1, 0, 1);
        let unit = segments.take_unit(SegmentStream::Fresh, 64).expect("all are free");
        let place = |page, pages| PageAddress { page, step: crate::log::page::step_of(pages) };
        // Eight small records on the first page, one on the next two, one of 4 pages, and one of 48.
        let large = [(place(1, 2), 4_100), (place(3, 4), 16_000), (place(7, 48), 194_000)];
        for (place, bytes) in [(place(0, 1), 500); 8].into_iter().chain(large) {
            segments.wrote(place, bytes, None);
            segments.born(place);
        }
        segments.unit_written(unit);
        let live = || segments.get(0).live_pages_estimate().round();
        assert_eq!(live(), 64.0);
        segments.died(large[2].0);
        assert!((4.0..8.0).contains(&live()), "{}", live());
        segments.died(large[1].0);
        (0..8).for_each(|_| segments.died(place(0, 1)));
        assert!((1.0..2.0).contains(&live()), "{}", live());
    }
}
