//! Owns how records become units: records are packed into pages, and a finished unit waits until a segment has room for it.
//! Never knows where a record comes from, what happens after its write, or who writes it.

use crate::counters::{Counter, Counters};
use crate::log::compression::{Compression, ZSTD_LEVEL};
use crate::log::page::{Codec, PageBuilder, Placed, Push, Record, stamp, step_of};
use crate::log::page_bufs::PageBufs;
use crate::log::parts::PartName;
use crate::log::segment::{SegmentStream, Segments, Unit};
use crate::mem::hash::KeyHash;
use crate::mem::word::PageAddress;
use flash::io::{PAGE_BYTES, PageBuf};
use std::collections::VecDeque;
use value::Kind;

/// Pages of a write of small records.
pub(crate) const UNIT_PAGES: usize = 64;
const UNIT_PAGES_MIN: usize = 8;
/// A unit is finished at the latest when it holds this many records, because the records stay in RAM until the write.
const UNIT_ITEMS_MAX: usize = 2_048;
const UNIT_RAM_BYTES_MAX: usize = 1 << 20;
/// A unit holds at most the objects' budget divided by this.
const UNIT_BUDGET_PART: usize = 64;

/// A record of a unit that is being filled or written, by its tag.
pub(crate) struct Item {
    pub hash: KeyHash,
    pub table_id: u32,
    pub kind: Kind,
    pub expiry: Option<u64>,
    pub origin: Origin,
}

pub(crate) enum Origin {
    /// A dirty object that takes `bytes` of RAM and is marked with the number of its write.
    /// `leaves`: it leaves RAM when it is written.
    Ram { address: usize, write: u32, bytes: usize, leaves: bool },
    /// A record of the segment being collected.
    Flash(PageAddress),
    /// A dirty part of a value that takes `bytes` of RAM. `leaves`: as above.
    Part { name: PartName, write: u32, bytes: usize, leaves: bool },
    /// A part's record in the segment being collected.
    FlashPart { name: PartName, from: PageAddress },
}

#[derive(Default)]
pub(crate) struct Items {
    pub items: Vec<Item>,
    pub placed: Vec<Placed>,
}

/// The answer to a record that should be written.
pub(crate) enum Verdict {
    Taken,
    /// The record is too large to be written. It stays where it is.
    Keep,
    /// There is no room to write. The slice ends.
    Stop,
}

/// The parts of the store that filling needs.
pub(crate) struct Log<'s> {
    pub segments: &'s Segments,
    pub compression: &'s Compression,
    pub counters: &'s Counters,
}

/// A unit with its place on flash, ready to be written.
pub(crate) struct Write {
    pub unit: Unit,
    pub buf: PageBuf,
    pub items: Items,
}

/// A stream of units. One unit is being filled.
pub(crate) struct Filling {
    stream: SegmentStream,
    builder: PageBuilder,
    items: Vec<Item>,
    ram_bytes: usize,
    /// A finished unit for which no segment had room yet.
    waiting: Option<(PageBuf, Items)>,
    /// Units with their places, to be written by the lane.
    pub ready: VecDeque<Write>,
    /// Number of units being written or ready.
    pub in_flight: usize,
    user_bytes: u64,
    idle_since_ms: u64,
}

impl Filling {
    pub fn new(stream: SegmentStream, codec: Codec) -> Filling {
        Filling {
            stream,
            builder: PageBuilder::new(codec, ZSTD_LEVEL),
            items: Vec::new(),
            ram_bytes: 0,
            waiting: None,
            ready: VecDeque::new(),
            in_flight: 0,
            user_bytes: 0,
            idle_since_ms: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty() && self.waiting.is_none() && self.in_flight == 0
    }

    pub fn blocked(&self) -> bool {
        self.waiting.is_some()
    }

    /// Pages of a unit. With little RAM, units end early. A unit is at most as long as the rest of the open segment, because a longer
    /// one would go to the next segment, and the rest would be lost until the segment is collected.
    fn unit_pages(&self, log: &Log<'_>, budget: usize) -> usize {
        let most = UNIT_PAGES.min(log.segments.segment_pages as usize);
        let most = match self.stream {
            SegmentStream::Fresh => {
                most.min(1 << (unit_ram_bytes_max(budget) / PAGE_BYTES).max(UNIT_PAGES_MIN).ilog2())
            }
            SegmentStream::Relocated => most,
        };
        log.segments.open_rest(self.stream).map_or(most, |rest| most.min(rest as usize))
    }

    /// Adds a record to the unit. Starts and finishes units as needed.
    /// `budget` is the number of bytes that objects may take in RAM.
    pub fn add(
        &mut self,
        log: &Log<'_>,
        bufs: &mut PageBufs,
        (budget, now_ms): (usize, u64),
        record: &Record<'_>,
        item: Item,
    ) -> Verdict {
        let mut pages = None;
        loop {
            if self.blocked() && !self.retry(log) {
                return Verdict::Stop;
            }
            if !self.builder.is_open() {
                let pages = pages.unwrap_or_else(|| self.unit_pages(log, budget));
                self.begin(log, bufs.take(pages), record.seq, now_ms);
            }
            let tag = self.items.len() as u64;
            match self.builder.push(record, tag) {
                Push::Taken => {
                    self.user_bytes += (record.key.len() + record.value.len()) as u64;
                    self.items.push(item);
                    return Verdict::Taken;
                }
                Push::Full => self.finish(log, bufs),
                Push::TooLarge { pages: needed } => {
                    if needed > log.segments.segment_pages as usize {
                        return Verdict::Keep;
                    }
                    self.finish(log, bufs);
                    pages = Some(needed);
                }
                Push::Never => return Verdict::Keep,
            }
        }
    }

    /// `seq`: the sequence number of the first record. Those of the other records are near it.
    fn begin(&mut self, log: &Log<'_>, buf: PageBuf, seq: u64, now_ms: u64) {
        self.builder.set_codec(match self.stream {
            SegmentStream::Fresh => log.compression.codec(),
            SegmentStream::Relocated => log.compression.codec_of_moved(),
        });
        self.builder.set_dictionary(log.compression.newest());
        self.builder.begin(buf, seq, now_ms);
        self.user_bytes = 0;
    }

    /// Counts bytes of RAM that wait for the unit's write. Returns whether they are enough to finish the unit.
    pub fn took(&mut self, bytes: usize, budget: usize, now_ms: u64) -> bool {
        self.ram_bytes += bytes;
        self.idle_since_ms = now_ms;
        self.items.len() >= UNIT_ITEMS_MAX || self.ram_bytes >= unit_ram_bytes_max(budget)
    }

    /// Finishes the unit. The unit becomes ready, or waits until a segment has room.
    pub fn finish(&mut self, log: &Log<'_>, bufs: &mut PageBufs) {
        if !self.builder.is_open() {
            return;
        }
        let mut placed = Vec::new();
        let unit = self.builder.finish(&mut placed);
        self.ram_bytes = 0;
        let items = Items { items: std::mem::take(&mut self.items), placed };
        if unit.pages == 0 {
            bufs.keep(unit.buf);
            return;
        }
        let mut buf = unit.buf;
        buf.set_pages(unit.pages);
        log.counters.add(Counter::RecordBytes, self.user_bytes);
        log.counters.add(Counter::RecordStoredBytes, (unit.pages * PAGE_BYTES) as u64);
        self.waiting = Some((buf, items));
        self.retry(log);
    }

    /// Makes the waiting unit ready if a segment has room for it.
    pub fn retry(&mut self, log: &Log<'_>) -> bool {
        let Some((mut buf, items)) = self.waiting.take() else {
            return true;
        };
        #[expect(clippy::cast_possible_truncation, reason = "the builder's units have at most UNIT_PAGES_MAX pages")]
        let pages = buf.pages() as u32;
        let Some(unit) = log.segments.take_unit(self.stream, pages) else {
            self.waiting = Some((buf, items));
            return false;
        };
        stamp(&mut buf, log.segments.stamp(log.segments.page(unit, 0)));
        log.counters.add(Counter::FlashWrites, 1);
        log.counters.add(Counter::FlashWriteBytes, buf.len() as u64);
        self.in_flight += 1;
        self.ready.push_back(Write { unit, buf, items });
        true
    }

    /// Drops the records that were not given a place yet, and returns them. The records stay where they were.
    pub fn give_up(&mut self, bufs: &mut PageBufs) -> Vec<Item> {
        let mut items = std::mem::take(&mut self.items);
        self.ram_bytes = 0;
        if self.builder.is_open() {
            bufs.keep(self.builder.finish(&mut Vec::new()).buf);
        }
        if let Some((buf, waiting)) = self.waiting.take() {
            bufs.keep(buf);
            items.extend(waiting.items);
        }
        items
    }

    /// The records of the unit for which no segment has room.
    pub fn waiting_items(&self) -> &[Item] {
        self.waiting.as_ref().map_or(&[], |(_, items)| &items.items)
    }

    /// Whether a unit was started and no record was added to it for a while.
    pub fn is_idle(&self, now_ms: u64) -> bool {
        const IDLE_MS: u64 = 50;
        !self.items.is_empty() && now_ms >= self.idle_since_ms + IDLE_MS
    }
}

/// Maximum RAM that the objects of one unit may take.
fn unit_ram_bytes_max(budget: usize) -> usize {
    UNIT_RAM_BYTES_MAX.min(budget / UNIT_BUDGET_PART)
}

/// The place of a record on `pages` pages that begin at `page`.
pub(crate) fn place_of(page: u32, pages: usize) -> PageAddress {
    PageAddress { page, step: step_of(pages) }
}
