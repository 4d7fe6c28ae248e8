//! Owns which pages are read together: a *run* of pages of one segment. Never reads.

use super::segment::Segments;

/// One read covers about this many pages. It is longer only if records that share pages follow each other. Between two
/// wanted pages, a read covers at most `GAP_PAGES` pages that are not needed.
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

    /// Extends the run by pages that lie in it or a little behind it. They must not begin before the run. False:
    /// another run has to read these pages.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_in_a_run_belongs_to_it() {
        let segments = Segments::new(2, 1024, 1, 0, 1);
        let mut run = Run { page: 0, pages: 2 };
        assert!((1..100).all(|page| run.take(&segments, Run { page, pages: 2 })));
        assert_eq!(run.end(), 101);
        assert!(!run.take(&segments, Run { page: 101, pages: 1 }), "it is long enough");
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
