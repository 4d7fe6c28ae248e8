//! Owns which pages are read together: a *run* of pages of one segment. Never reads.

use super::segment::Segments;

/// One read covers at most this many pages, unless a single record is longer, and skips at most this many that nobody wants.
const RUN_PAGES: u32 = 64;
const GAP_PAGES: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub page: u32,
    pub pages: u32,
}

impl Run {
    /// The page behind it.
    pub fn end(self) -> u32 {
        self.page + self.pages
    }

    /// Takes in pages that lie in the run or a little behind it. They must not begin before it. False: another run has to read them.
    pub fn take(&mut self, segments: &Segments, other: Run) -> bool {
        let is_near =
            other.page <= self.end() + GAP_PAGES && segments.of_page(other.page) == segments.of_page(self.page);
        let fits = other.end() <= self.page + RUN_PAGES || other.page < self.end();
        if is_near && fits {
            self.pages = self.pages.max(other.end() - self.page);
        }
        is_near && fits
    }
}
