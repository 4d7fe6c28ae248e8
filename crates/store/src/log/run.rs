//! Owns which pages are read together: a *run* of pages of one segment. Never reads.

use super::segment::Segments;

/// One read covers at most this many pages, unless a single record is longer, and skips at most this many that nobody wants.
pub(crate) const RUN_PAGES: u32 = 64;
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
        let fits = other.end() <= self.page + RUN_PAGES || other.page < self.end().min(self.page + RUN_PAGES);
        if is_near && fits {
            self.pages = self.pages.max(other.end() - self.page);
        }
        is_near && fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records of two pages each of which begins on the last page of the one before it.
    #[test]
    fn records_that_share_pages_do_not_make_a_run_without_end() {
        let segments = Segments::new(2, 1024, 1, 0, 1);
        let mut run = Run { page: 0, pages: 2 };
        let first_left = (1..).find(|&page| !run.take(&segments, Run { page, pages: 2 }));
        assert_eq!(first_left, Some(RUN_PAGES));
        assert_eq!(run.pages, RUN_PAGES + 1);
        // What lies in it already is not read twice.
        assert!(run.take(&segments, Run { page: RUN_PAGES - 1, pages: 2 }));
    }

    #[test]
    fn a_run_ends_at_a_gap_and_at_its_segments_end() {
        let segments = Segments::new(2, 16, 1, 0, 1);
        let mut run = Run { page: 2, pages: 1 };
        assert!(run.take(&segments, Run { page: run.end() + GAP_PAGES, pages: 1 }));
        assert!(!run.take(&segments, Run { page: run.end() + GAP_PAGES + 1, pages: 1 }));
        assert!(run.take(&segments, Run { page: 12, pages: 4 }));
        assert!(!run.take(&segments, Run { page: 16, pages: 1 }));
    }
}
