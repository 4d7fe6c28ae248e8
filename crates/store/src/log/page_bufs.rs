//! Owns the buffers of flash reads and writes between two uses. Never knows what is read or written.

use flash::io::PageBuf;

/// Buffers of one size, kept for reuse. There are as many as were used at once lately: to allocate one costs more than its read, because its
/// memory is zeroed first.
pub(crate) struct PageBufs {
    pages: usize,
    free: Vec<PageBuf>,
    /// The fewest free ones since the last [`PageBufs::trim`].
    spare: usize,
}

impl PageBufs {
    /// `pages`: of one buffer.
    pub fn new(pages: usize) -> PageBufs {
        PageBufs { pages, free: Vec::new(), spare: 0 }
    }

    /// A buffer of so many pages, with any content.
    pub fn take(&mut self, pages: usize) -> PageBuf {
        if pages > self.pages {
            return PageBuf::new(pages);
        }
        let mut buf = self.free.pop().unwrap_or_else(|| PageBuf::new(self.pages));
        self.spare = self.spare.min(self.free.len());
        buf.set_pages(pages);
        buf
    }

    /// A larger buffer is freed.
    pub fn keep(&mut self, buf: PageBuf) {
        if buf.capacity_pages() == self.pages {
            self.free.push(buf);
        }
    }

    /// Frees the buffers that were not used since the last call.
    pub fn trim(&mut self) {
        self.free.truncate(self.free.len() - self.spare);
        self.spare = self.free.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_kept_as_were_used_at_once_lately() {
        let mut bufs = PageBufs::new(2);
        let use_at_once = |bufs: &mut PageBufs, count: usize| {
            let used: Vec<PageBuf> = (0..count).map(|_| bufs.take(1)).collect();
            assert!(used.iter().all(|buf| buf.pages() == 1 && buf.capacity_pages() == 2));
            used.into_iter().for_each(|buf| bufs.keep(buf));
        };
        use_at_once(&mut bufs, 100);
        bufs.trim();
        assert_eq!(bufs.free.len(), 100, "all were used");
        use_at_once(&mut bufs, 30);
        use_at_once(&mut bufs, 10);
        assert_eq!(bufs.free.len(), 100);
        bufs.trim();
        assert_eq!(bufs.free.len(), 30);
        bufs.trim();
        assert_eq!(bufs.free.len(), 0, "none was used");
        let large = bufs.take(3);
        assert_eq!(large.pages(), 3);
        bufs.keep(large);
        assert_eq!(bufs.free.len(), 0);
    }
}
