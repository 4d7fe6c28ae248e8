//! Owns the test of segments that had an error and have no live records any more: each unit is written and read back. A
//! segment that passes takes data again. One that does not is tested again later.

use super::{Flight, Lane};
use crate::counters::Counter;
use crate::log::segment::Unit;
use base::random::SplitMix64;
use flash::io::{Done, Op, OpKind, PAGE_BYTES, PageBuf};

/// Pages that are written and read back at once.
const TEST_PAGES: u32 = 64;
/// How often a lane looks for a segment to test.
const TEST_EVERY_MS: u64 = 1_000;

/// The running test of a segment. One operation is in flight at a time.
pub(crate) struct SegmentTest {
    segment: u32,
    /// Whether the operation in flight reads what was written.
    reads: bool,
}

impl Lane {
    /// Starts a test if a segment is due.
    pub(crate) fn test_slice(&mut self) {
        if self.test.is_some() || self.now_ms < self.test_due_ms {
            return;
        }
        self.test_due_ms = self.now_ms + TEST_EVERY_MS;
        let Some(segment) = self.store.segments.next_to_test(self.now_ms) else { return };
        self.test = Some(SegmentTest { segment, reads: false });
        self.write_pattern(0);
    }

    fn write_pattern(&mut self, first: u32) {
        let segment = self.test.as_ref().expect("a test is running").segment;
        let pages = TEST_PAGES.min(self.store.segments.segment_pages - first);
        let unit = Unit { segment, first, pages };
        let mut buf = PageBuf::new(pages as usize);
        fill_with_pattern(&mut buf, self.store.segments.page(unit, 0));
        self.store.counters.add(Counter::FlashWrites, 1);
        self.store.counters.add(Counter::FlashWriteBytes, buf.len() as u64);
        self.push_test(unit, OpKind::Write(buf));
    }

    fn push_test(&mut self, unit: Unit, kind: OpKind) {
        let (path, offset) = self.store.segments.location(self.store.segments.page(unit, 0));
        let token = self.token(Flight::Test { unit });
        self.push(Op { token: token as u64, path, offset, kind });
    }

    pub(crate) fn test_done(&mut self, unit: Unit, done: Done) {
        let test = self.test.as_mut().expect("a test is running");
        let mut buf = done.buf.expect("the buffer comes back");
        let first_page = self.store.segments.page(unit, 0);
        let is_good = done.result.is_ok() && (!test.reads || has_pattern(&buf, first_page));
        let next = unit.first + unit.pages;
        if !is_good {
            self.test = None;
            self.store.segments.proved_bad(unit.segment, self.now_ms);
        } else if !test.reads {
            test.reads = true;
            buf.fill(0);
            self.store.counters.add(Counter::FlashReads, 1);
            self.store.counters.add(Counter::FlashReadBytes, buf.len() as u64);
            self.push_test(unit, OpKind::Read(buf));
        } else if next < self.store.segments.segment_pages {
            test.reads = false;
            self.write_pattern(next);
        } else {
            self.test = None;
            self.store.segments.proved_good(unit.segment);
            tracing::info!(segment = unit.segment, "a flash segment that had an error works again and is used again");
        }
    }
}

/// Bytes that differ from page to page, so that a page at the wrong place is noticed. No page of records begins like this.
fn fill_with_pattern(buf: &mut [u8], first_page: u32) {
    for (at, page) in buf.chunks_exact_mut(PAGE_BYTES).enumerate() {
        let mut random = SplitMix64(u64::from(first_page) + at as u64);
        page.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.draw().to_le_bytes()));
        page[0] = 0;
    }
}

fn has_pattern(buf: &[u8], first_page: u32) -> bool {
    let mut expected = vec![0; buf.len()];
    fill_with_pattern(&mut expected, first_page);
    buf == expected
}
