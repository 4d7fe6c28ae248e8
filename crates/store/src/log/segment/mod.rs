//! Owns the log's segments: which are free, open, sealed or given up, what is live in each, where pages lie.
//! Never knows what is in a page. How their number changes is `resize`'s.

mod growing;
mod resize;

use crate::log::page::step_pages;
use crate::mem::word::{PAGE_BITS, Place};
use flash::io::PAGE_BYTES;
use growing::Growing;
use parking_lot::Mutex;
pub use resize::SEGMENTS_MIN;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    Free = 0,
    /// Being filled by one of the heads.
    Open = 1,
    Sealed = 2,
    /// Its live records are being moved out.
    Collecting = 3,
    /// A write to it failed: nothing is written to it any more; what was written before is still read.
    Retired = 4,
    /// Not in the log, or to be cut off with its end: nothing points into it.
    Outside = 5,
}

/// Two streams fill segments of their own, so that what survived a collection stays apart from new data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Fresh,
    Relocated,
}

pub struct Segment {
    state: AtomicU8,
    /// Reads in flight. It is not reused before they are over.
    readers: AtomicU32,
    /// Units handed out and not yet written.
    writers: AtomicU32,
    /// Live records of one page or less, of `records` written.
    live: AtomicU32,
    records: AtomicU32,
    /// Pages of live records that take several, of `large_pages` written.
    live_pages: AtomicU32,
    large_pages: AtomicU32,
    used_pages: AtomicU32,
    /// Value of the log's count of sealed segments when this one was sealed: its age is how many came after.
    sealed_at: AtomicU64,
    /// A write to it failed, or a read of what is live in it.
    bad: AtomicBool,
    /// Collections that could not read all of it.
    tries: AtomicU8,
    about: Mutex<About>,
}

#[derive(Default)]
struct About {
    /// First page and pages of each written unit; a record never leaves its unit.
    units: Vec<(u16, u16)>,
    expiries: Expiries,
}

/// When the records of a segment expire: at most 16 bins of equal width, wider as needed.
#[derive(Default)]
struct Expiries {
    width_log2: u32,
    bins: Vec<(u64, u32)>,
}

impl Expiries {
    const BINS_MAX: usize = 16;

    fn add(&mut self, expiry_ms: u64) {
        self.width_log2 = self.width_log2.max(10);
        let bin = expiry_ms >> self.width_log2;
        match self.bins.binary_search_by_key(&bin, |&(bin, _)| bin) {
            Ok(at) => self.bins[at].1 += 1,
            Err(at) => self.bins.insert(at, (bin, 1)),
        }
        while self.bins.len() > Self::BINS_MAX {
            self.width_log2 += 1;
            let mut wider: Vec<(u64, u32)> = Vec::with_capacity(Self::BINS_MAX);
            for (bin, count) in self.bins.drain(..) {
                match wider.last_mut() {
                    Some(last) if last.0 == bin >> 1 => last.1 += count,
                    _ => wider.push((bin >> 1, count)),
                }
            }
            self.bins = wider;
        }
    }

    /// Records that have expired for certain.
    fn expired(&self, now_ms: u64) -> u32 {
        self.bins.iter().filter(|&&(bin, _)| (bin + 1) << self.width_log2 <= now_ms).map(|&(_, count)| count).sum()
    }
}

impl Segment {
    fn new() -> Segment {
        Segment {
            state: AtomicU8::new(State::Outside as u8),
            readers: AtomicU32::new(0),
            writers: AtomicU32::new(0),
            live: AtomicU32::new(0),
            records: AtomicU32::new(0),
            live_pages: AtomicU32::new(0),
            large_pages: AtomicU32::new(0),
            used_pages: AtomicU32::new(0),
            sealed_at: AtomicU64::new(0),
            bad: AtomicBool::new(false),
            tries: AtomicU8::new(0),
            about: Mutex::default(),
        }
    }

    pub fn state(&self) -> State {
        match self.state.load(Relaxed) {
            0 => State::Free,
            1 => State::Open,
            2 => State::Sealed,
            3 => State::Collecting,
            4 => State::Retired,
            _ => State::Outside,
        }
    }

    fn turn(&self, from: State, to: State) -> bool {
        self.state.compare_exchange(from as u8, to as u8, Relaxed, Relaxed).is_ok()
    }

    /// Whether any index entry still points into it.
    pub fn is_dead(&self) -> bool {
        self.live.load(Relaxed) == 0 && self.live_pages.load(Relaxed) == 0
    }

    /// Pages that live records take, by the average of the segment's small records.
    fn live_pages_estimate(&self) -> f64 {
        let records = f64::from(self.records.load(Relaxed).max(1));
        let large = self.large_pages.load(Relaxed);
        let small = self.used_pages.load(Relaxed).saturating_sub(large);
        f64::from(self.live.load(Relaxed)) / records * f64::from(small) + f64::from(self.live_pages.load(Relaxed))
    }
}

/// Contiguous pages of a segment, to be filled and written at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    pub segment: u32,
    /// Within the segment.
    pub first: u32,
    pub pages: u32,
}

#[derive(Default)]
struct Heads {
    open: [Option<(u32, u32)>; 2],
    free: VecDeque<u32>,
    /// Free ones that leave the log: for the collector, until it has made room before its end.
    lent: Vec<u32>,
}

pub struct Segments {
    segments: Growing<Segment>,
    /// Segments that there are, and those of them that take data: fewer while the log shrinks.
    count: AtomicU32,
    end: AtomicU32,
    /// Segments from `end` on that are not outside yet, and those of them that are being emptied.
    leaving: AtomicU32,
    vacating: AtomicU32,
    /// While the log shrinks: all room before its end is for what is live already.
    is_taken: AtomicBool,
    /// It was said that a smaller log cannot be had for now.
    said_stalled: AtomicBool,
    pub segment_pages: u32,
    pub paths: u32,
    data_offset: u64,
    heads: Mutex<Heads>,
    free: AtomicU32,
    sealed: AtomicU64,
}

/// Segments that new data leaves to the collector, without which it could not make room.
const RESERVE: u32 = 3;
/// Pages of small units that are read together.
const READ_PAGES: u32 = 64;

impl Segments {
    /// `count` segments of `segment_pages` pages, dealt over `paths` files that begin at `data_offset`.
    pub fn new(count: u32, segment_pages: u32, paths: u32, data_offset: u64) -> Segments {
        let addressable = (1u64 << PAGE_BITS) / u64::from(segment_pages.max(1));
        let count = u64::from(count).min(addressable) as u32;
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
            heads: Mutex::default(),
            free: AtomicU32::new(0),
            sealed: AtomicU64::new(0),
        };
        segments.set_end(count);
        segments
    }

    /// With those that are on their way out.
    pub fn count(&self) -> u32 {
        self.count.load(Relaxed)
    }

    fn all(&self) -> impl Iterator<Item = &Segment> {
        (0..self.count()).map(|number| self.get(number))
    }

    pub fn free_count(&self) -> u32 {
        self.free.load(Relaxed)
    }

    pub fn retired_count(&self) -> u32 {
        self.all().filter(|segment| segment.state() == State::Retired).count() as u32
    }

    pub fn reserve(&self) -> u32 {
        RESERVE.min(self.end() / 4)
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
    pub fn location(&self, page: u32) -> (u16, u64) {
        let segment = self.of_page(page);
        let inside = u64::from(page % self.segment_pages) * PAGE_BYTES as u64;
        let offset = self.data_offset + u64::from(segment / self.paths) * self.segment_bytes() + inside;
        ((segment % self.paths) as u16, offset)
    }

    /// Pages to read for a place: its step, cut at the segment's end.
    pub fn read_pages(&self, place: Place) -> usize {
        let left = self.segment_pages - place.page % self.segment_pages;
        step_pages(place.step).min(left as usize)
    }

    /// Pages of the log that hold data or may, in bytes.
    pub fn used_bytes(&self) -> u64 {
        let holds_data =
            |segment: &&Segment| matches!(segment.state(), State::Open | State::Sealed | State::Collecting);
        self.all().filter(holds_data).count() as u64 * self.segment_bytes()
    }

    pub fn live_bytes(&self) -> u64 {
        let pages: f64 = self.all().map(Segment::live_pages_estimate).sum();
        (pages * PAGE_BYTES as f64) as u64
    }

    /// The next `pages` pages of the stream's open segment, opening another when needed. `None`: no segment is
    /// free for this stream.
    pub fn take_unit(&self, stream: Stream, pages: u32) -> Option<Unit> {
        assert!(pages > 0 && pages <= self.segment_pages);
        let mut heads = self.heads.lock();
        if let Some((segment, next)) = heads.open[stream as usize] {
            let usable = self.get(segment).state() == State::Open;
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
            Stream::Fresh if self.is_taken.load(Relaxed) || heads.free.len() <= self.reserve() as usize => return None,
            Stream::Fresh => heads.free.pop_front()?,
            Stream::Relocated => heads.free.pop_front().or_else(|| heads.lent.pop())?,
        };
        self.free.store(heads.free.len() as u32, Relaxed);
        let opened = self.get(segment).turn(State::Free, State::Open);
        assert!(opened, "a free segment is in no other hands");
        heads.open[stream as usize] = Some((segment, pages));
        Some(self.unit(segment, 0, pages))
    }

    fn unit(&self, segment: u32, first: u32, pages: u32) -> Unit {
        let about = self.get(segment);
        about.writers.fetch_add(1, Relaxed);
        about.used_pages.fetch_add(pages, Relaxed);
        about.about.lock().units.push((first as u16, pages as u16));
        Unit { segment, first, pages }
    }

    fn seal(&self, segment: u32) {
        let now = self.sealed.fetch_add(1, Relaxed) + 1;
        self.get(segment).sealed_at.store(now, Relaxed);
        self.get(segment).turn(State::Open, State::Sealed);
    }

    /// A unit's write is over and all its records are accounted for.
    pub fn unit_written(&self, unit: Unit) {
        self.get(unit.segment).writers.fetch_sub(1, Relaxed);
    }

    /// A record was written to flash; it counts as live only once an entry points to it.
    pub fn wrote(&self, place: Place, expiry: Option<u64>) {
        let segment = self.get(self.of_page(place.page));
        if place.step == 0 {
            segment.records.fetch_add(1, Relaxed);
        } else {
            segment.large_pages.fetch_add(step_pages(place.step) as u32, Relaxed);
        }
        if let Some(expiry) = expiry {
            segment.about.lock().expiries.add(expiry);
        }
    }

    /// An index entry, or the object of one, points to this place from now on.
    pub fn born(&self, place: Place) {
        let segment = self.get(self.of_page(place.page));
        match place.step {
            0 => segment.live.fetch_add(1, Relaxed),
            step => segment.live_pages.fetch_add(step_pages(step) as u32, Relaxed),
        };
    }

    /// Nothing points to this place any more.
    pub fn died(&self, place: Place) {
        let segment = self.get(self.of_page(place.page));
        let before = match place.step {
            0 => segment.live.fetch_sub(1, Relaxed),
            step => segment.live_pages.fetch_sub(step_pages(step) as u32, Relaxed),
        };
        debug_assert!(before > 0, "a record dies once");
    }

    /// Call under the stripe's lock under which the entry was read: the collector changes entries under it,
    /// so a segment cannot be freed between the look-up and this.
    pub fn reader_begins(&self, page: u32) {
        self.get(self.of_page(page)).readers.fetch_add(1, Relaxed);
    }

    pub fn reader_ends(&self, page: u32) {
        self.get(self.of_page(page)).readers.fetch_sub(1, Relaxed);
    }

    /// A unit's write failed: its segment gets no more data. What it holds beside stays readable.
    pub fn retire(&self, unit: Unit) {
        let segment = self.get(unit.segment);
        segment.about.lock().units.retain(|&(first, _)| u32::from(first) != unit.first);
        segment.bad.store(true, Relaxed);
        for state in [State::Open, State::Sealed] {
            segment.turn(state, State::Retired);
        }
    }

    /// The segment whose collection gains most, (1 − u) · age / (1 + u), expired records counting as dead
    /// (Rosenblum and Ousterhout, 1992). Only segments used to less than `fullest` (0 to 1) are worth it. It is the
    /// caller's until [`Segments::collected`].
    pub fn victim(&self, now_ms: u64, fullest: f64) -> Option<u32> {
        self.best(|segment, age| {
            let expired = f64::from(segment.about.lock().expiries.expired(now_ms));
            let records = f64::from(segment.records.load(Relaxed).max(1));
            let small = segment.used_pages.load(Relaxed).saturating_sub(segment.large_pages.load(Relaxed));
            let expired_pages = expired / records * f64::from(small);
            let live = (segment.live_pages_estimate() - expired_pages).max(0.0);
            // Of what was written: the tail left unused when the segment was sealed is not won by moving records.
            let used = (live / f64::from(segment.used_pages.load(Relaxed).max(1))).min(1.0);
            (used <= fullest).then(|| (1.0 - used) * age / (1.0 + used))
        })
    }

    /// The segment that was sealed first, to evict what it holds: that left RAM, or was last kept, longest ago. It is
    /// the caller's until [`Segments::collected`].
    pub fn oldest(&self) -> Option<u32> {
        self.best(|_, age| Some(age))
    }

    /// The sealed segment that nobody writes to with the largest gain, which is told of its age in segments.
    fn best(&self, gain: impl Fn(&Segment, f64) -> Option<f64>) -> Option<u32> {
        let sealed = self.sealed.load(Relaxed);
        let mut best: Option<(f64, u32)> = None;
        for number in 0..self.end() {
            let segment = self.get(number);
            if segment.state() != State::Sealed || segment.writers.load(Relaxed) > 0 {
                continue;
            }
            // Another worker may have sealed it since.
            let age = sealed.saturating_sub(segment.sealed_at.load(Relaxed)) as f64 + 1.0;
            if let Some(gain) = gain(segment, age)
                && best.is_none_or(|(most, _)| gain > most)
            {
                best = Some((gain, number));
            }
        }
        let (_, segment) = best?;
        self.get(segment).turn(State::Sealed, State::Collecting).then_some(segment)
    }

    /// A sealed segment of which at least a quarter of the live records have expired.
    pub fn expired_victim(&self, now_ms: u64) -> Option<u32> {
        for number in 0..self.end() {
            let segment = self.get(number);
            if segment.state() != State::Sealed || segment.writers.load(Relaxed) > 0 {
                continue;
            }
            let expired = segment.about.lock().expiries.expired(now_ms);
            if expired > 0
                && expired >= segment.live.load(Relaxed) / 4
                && segment.turn(State::Sealed, State::Collecting)
            {
                return Some(number);
            }
        }
        None
    }

    /// What was written, small units that follow one another taken together, to be read at once.
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

    /// Whether a segment in the caller's hands is dead and nobody reads from it any more: then it is empty, and the
    /// caller's until [`Segments::freed`]. Otherwise: ask again.
    pub fn emptied(&self, segment: u32) -> bool {
        let about = self.get(segment);
        assert_eq!(about.state(), State::Collecting);
        if !about.is_dead() || about.readers.load(Relaxed) > 0 {
            return false;
        }
        for counter in [&about.records, &about.large_pages, &about.used_pages] {
            counter.store(0, Relaxed);
        }
        about.tries.store(0, Relaxed);
        *about.about.lock() = About::default();
        true
    }

    /// An emptied segment may be written anew, or cut off.
    pub fn freed(&self, segment: u32) {
        let mut heads = self.heads.lock();
        self.get(segment).turn(State::Collecting, State::Outside);
        match segment < self.end() {
            true => self.admit(segment, &mut heads),
            false => self.left(),
        }
        if heads.free.len() > self.reserve() as usize {
            self.return_lent(&mut heads);
        }
    }

    /// Gives a segment back uncollected, to be looked at again later.
    pub fn uncollected(&self, segment: u32) {
        let about = self.get(segment);
        let state = if about.bad.load(Relaxed) { State::Retired } else { State::Sealed };
        about.turn(State::Collecting, state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiry_bins_never_count_too_early_and_stay_few() {
        let mut expiries = Expiries::default();
        let times: Vec<u64> = (0..5_000).map(|n| 1_700_000_000_000 + n * 7_919).collect();
        times.iter().for_each(|&at| expiries.add(at));
        assert!(expiries.bins.len() <= Expiries::BINS_MAX);
        for now in [0, times[0], times[2_500], times[4_999], times[4_999] + (1 << 30)] {
            let truly = times.iter().filter(|&&at| at <= now).count() as u32;
            assert!(expiries.expired(now) <= truly);
        }
        assert_eq!(expiries.expired(times[4_999] + (1 << 30)), 5_000);
    }

    #[test]
    fn a_segment_goes_round() {
        let segments = Segments::new(8, 16, 2, 4096);
        let mut units = Vec::new();
        while let Some(unit) = segments.take_unit(Stream::Fresh, 8) {
            units.push(unit);
        }
        assert_eq!(units.len(), 2 * (8 - segments.reserve() as usize));
        assert_eq!(segments.location(segments.page(units[2], 3)), (1, 4096 + 3 * 4096));
        for &unit in &units {
            let place = Place { page: segments.page(unit, 0), step: 0 };
            segments.wrote(place, None);
            segments.born(place);
            segments.unit_written(unit);
        }
        // The third segment's records die: it is the victim, and free after its last reader.
        let dead = Place { page: segments.page(units[4], 0), step: 0 };
        segments.reader_begins(dead.page);
        for unit in [units[4], units[5]] {
            segments.died(Place { page: segments.page(unit, 0), step: 0 });
        }
        // Its garbage says nothing about how long ago the others were in use.
        assert_eq!(segments.oldest(), Some(0));
        segments.uncollected(0);
        assert_eq!(segments.victim(0, 0.5), Some(2));
        assert!(!segments.emptied(2));
        segments.reader_ends(dead.page);
        assert!(segments.emptied(2));
        segments.freed(2);
        assert_eq!(segments.free_count(), segments.reserve() + 1);
        assert_eq!(segments.take_unit(Stream::Fresh, 16).map(|unit| unit.first), Some(0));
    }
}
