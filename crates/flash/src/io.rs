//! Owns the types with which the store asks for flash I/O and receives its completion.
//! Never does any I/O: the drivers carry the operations out.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::os::fd::RawFd;

/// The unit of a flash read, and the alignment of every buffer and offset (O_DIRECT wants both).
pub const PAGE_BYTES: usize = 4096;

/// A zeroed, page-aligned buffer of whole pages, owned by exactly one side at a time: it goes to the driver inside an
/// [`Op`] and comes back inside a [`Done`].
pub struct PageBuf {
    ptr: *mut u8,
    /// The visible bytes, of `capacity` allocated ones.
    bytes: usize,
    capacity: usize,
}

// SAFETY: a PageBuf is the only owner of its memory, as a Vec<u8> is.
unsafe impl Send for PageBuf {}

impl PageBuf {
    /// Allocates `pages` ≥ 1 pages.
    pub fn new(pages: usize) -> PageBuf {
        assert!(pages > 0);
        let layout = Self::layout(pages * PAGE_BYTES);
        // SAFETY: the layout's size is not zero.
        let ptr = unsafe { alloc_zeroed(layout) };
        if ptr.is_null() {
            handle_alloc_error(layout);
        }
        PageBuf { ptr, bytes: pages * PAGE_BYTES, capacity: pages * PAGE_BYTES }
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, PAGE_BYTES).expect("buffer sizes are bounded by a segment")
    }

    pub fn pages(&self) -> usize {
        self.bytes / PAGE_BYTES
    }

    /// Makes only the first `pages` pages visible from now on. May make more visible again, at most as many as were
    /// allocated.
    pub fn set_pages(&mut self, pages: usize) {
        assert!(pages > 0 && pages * PAGE_BYTES <= self.capacity);
        self.bytes = pages * PAGE_BYTES;
    }

    pub fn capacity_pages(&self) -> usize {
        self.capacity / PAGE_BYTES
    }
}

impl std::ops::Deref for PageBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: ptr points to `bytes` initialised bytes owned by self.
        unsafe { std::slice::from_raw_parts(self.ptr, self.bytes) }
    }
}

impl std::ops::DerefMut for PageBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in deref, and &mut self makes it exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.ptr, self.bytes) }
    }
}

impl Drop for PageBuf {
    fn drop(&mut self) {
        // SAFETY: allocated in new() with the same layout.
        unsafe { dealloc(self.ptr, Self::layout(self.capacity)) }
    }
}

impl std::fmt::Debug for PageBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PageBuf({} bytes)", self.bytes)
    }
}

/// One operation. `path` is the index of a flash path, `offset` a multiple of [`PAGE_BYTES`] in its log file.
#[derive(Debug)]
pub struct Op {
    /// Chosen by the store, handed back in [`Done`]; unique among a driver's operations in flight.
    pub token: u64,
    pub path: u16,
    pub offset: u64,
    pub kind: OpKind,
}

#[derive(Debug)]
pub enum OpKind {
    /// Fill the whole buffer. Fewer bytes than that (end of file) is an error (`UnexpectedEof`).
    Read(PageBuf),
    /// Write the whole buffer.
    Write(PageBuf),
    /// These bytes are not needed any more; may be carried out as a punched hole or not at all.
    Discard { bytes: u64 },
    /// Make durable every write to this path's file whose completion was reaped before this operation was pushed.
    /// `offset` is 0. After a failed sync, it is not known what is durable, and a later successful sync does not prove
    /// it: the kernel may have dropped the bytes. So they must be written again, elsewhere.
    Sync,
}

/// The completion of one [`Op`].
#[derive(Debug)]
pub struct Done {
    pub token: u64,
    pub result: io::Result<()>,
    /// The operation's buffer; `None` for a discard and a sync.
    pub buf: Option<PageBuf>,
    /// Time from submission to completion as the driver saw it.
    pub nanos: u64,
}

/// Carries out the store's operations. Each worker owns a driver; all drivers of a node share the files.
pub trait Driver {
    /// Queues an operation. Nothing need start before [`Driver::submit`].
    fn push(&mut self, op: Op);
    /// Starts everything queued, in one system call where the driver can. Operations beyond the
    /// driver's depth stay queued inside it and start as others complete.
    fn submit(&mut self);
    /// Moves every completion that is there into `done`; never blocks.
    fn reap(&mut self, done: &mut Vec<Done>);
    /// Blocks until at least one operation has completed or none is in flight. For the store's
    /// synchronous fallback, shutdown and tests.
    fn wait(&mut self);
    /// Becomes readable when completions may be there. `None`: the caller must poll (simulated driver).
    fn wake_fd(&self) -> Option<RawFd>;
    /// Operations pushed and not yet reaped.
    fn in_flight(&self) -> usize;
}

/// Reads pages while the caller waits, from any thread: for a command that needs a value and can no longer stop to wait
/// for it.
pub trait Reader: Send + Sync {
    /// Fills the whole buffer, as [`OpKind::Read`] does.
    fn read(&self, path: u16, offset: u64, buf: &mut PageBuf) -> io::Result<()>;
}

/// Like [`Reader`], and writes too: for threads that do nothing else meanwhile.
pub trait Blocking: Reader {
    /// Writes the whole buffer, as [`OpKind::Write`] does.
    fn write(&self, path: u16, offset: u64, buf: &PageBuf) -> io::Result<()>;
}
