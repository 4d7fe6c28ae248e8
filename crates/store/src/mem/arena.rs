//! Owns the memory of objects up to 4 KiB: slabs of 64 KiB cut into cells of one size.
//! Never knows the contents of a cell, only its stripe. The holder of the stripe's lock may use the cell. So objects can be
//! visited in the order of their addresses, which is nearly the order of their creation.
//!
//! The size classes of general allocators are up to 25 % apart: a 525-byte object would take 640 bytes. The arena's classes are
//! 8 bytes apart up to 256, 16 up to 1 KiB and 64 up to 4 KiB. The bytes in use are known exactly, which a RAM limit needs.
//! Larger objects come from the global allocator and are counted here.
//!
//! A cell is taken from the calling worker's shard and given back to the shard that its slab belongs to; a
//! shard's lock is held for some ten instructions.

use parking_lot::{Mutex, MutexGuard};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

/// A slab's size and alignment. So an object's address determines its slab.
pub const SLAB_BYTES: usize = 64 * 1024;
/// Larger objects come from the global allocator.
pub const CELL_BYTES_MAX: usize = 4096;
const CHUNK_SLABS: usize = if cfg!(miri) { 8 } else { 64 };
const PAGE: usize = 4096;
#[cfg(not(miri))]
const HUGE_PAGE: usize = 2 << 20;
/// Maximum number of empty slabs kept in memory. More are given back to the kernel.
const SPARE_SLABS: usize = 16;
const CLASSES: usize = 32 + 48 + 48;

fn class_of(bytes: usize) -> usize {
    debug_assert!(bytes > 0 && bytes <= CELL_BYTES_MAX);
    match bytes {
        0..=256 => bytes.div_ceil(8) - 1,
        257..=1024 => 32 + (bytes - 256).div_ceil(16) - 1,
        _ => 80 + (bytes - 1024).div_ceil(64) - 1,
    }
}

fn class_bytes(class: usize) -> usize {
    match class {
        0..32 => (class + 1) * 8,
        32..80 => 256 + (class - 31) * 16,
        _ => 1024 + (class - 79) * 64,
    }
}

/// The bytes that an object of `bytes` really takes. If two sizes have the same result, growing from one to the other needs
/// no move.
#[inline]
pub fn rounded(bytes: usize) -> usize {
    match bytes {
        // The sizes of the classes.
        0..=256 => bytes.next_multiple_of(8),
        257..=1024 => bytes.next_multiple_of(16),
        1025..=CELL_BYTES_MAX => bytes.next_multiple_of(64),
        // Steps are an eighth of the next lower power of two, so appends copy a value at most eight times per doubling.
        _ => bytes.next_multiple_of((bytes.next_power_of_two() / 16).max(64)),
    }
}

/// The header at the start of every slab. It is followed by the stripe of each cell (u16, [`FREE`] for a free cell) and the cells.
#[repr(C)]
struct Slab {
    /// The shard's number plus one. 0 while the slab has no owner, which is also the content of the kernel's empty pages.
    /// All other fields are read and written under that shard's lock.
    owner: AtomicU32,
    /// Where the first cell is.
    cells_at: u16,
    class: u16,
    used: u16,
    /// Index of the first free cell that was used before, or NONE.
    free: u16,
    /// Cells from here on were never used.
    fresh: u16,
    cells: u16,
    /// Number of pages that were ever touched, from the slab's start. Only these are resident.
    touched: u16,
    /// Whether the slab is in its class's list of slabs with room.
    listed: bool,
    /// Objects are being moved out of the slab, and none is put in.
    evacuated: bool,
    prev: *mut Slab,
    next: *mut Slab,
}
/// Cells in use, with their stripes.
pub type Cells = Vec<(NonNull<u8>, u16)>;

const SLAB_HEADER: usize = 64;
const NONE: u16 = u16::MAX;
/// The stripe of a free cell.
const FREE: u16 = u16::MAX;
const _: () = assert!(size_of::<Slab>() <= SLAB_HEADER);

/// The number of cells in a slab of this class, and the offset of the first one.
fn slab_layout(class: usize) -> (usize, usize) {
    let cells = (SLAB_BYTES - SLAB_HEADER - 8) / (class_bytes(class) + 2);
    (cells, (SLAB_HEADER + cells * 2).next_multiple_of(8))
}

/// A number of cells, bytes or pages of a slab.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "a slab has 64 KiB, and the first of them are its header")]
fn in_slab(number: usize) -> u16 {
    debug_assert!(number < SLAB_BYTES);
    number as u16
}

impl Slab {
    /// # Safety
    /// `slab` is a slab of this arena whose shard's lock is held, `index` below its cell count.
    unsafe fn cell(slab: *mut Slab, index: u16) -> *mut u8 {
        // SAFETY: by the caller's promise the result is inside the slab.
        unsafe {
            let at = (*slab).cells_at as usize + index as usize * class_bytes((*slab).class as usize);
            slab.cast::<u8>().add(at)
        }
    }

    /// The address of the cell's stripe number.
    ///
    /// # Safety
    /// As for `cell`.
    unsafe fn stripe(slab: *mut Slab, index: u16) -> *mut u16 {
        // SAFETY: by the caller's promise the result is inside the slab, before its cells.
        unsafe { slab.cast::<u8>().add(SLAB_HEADER).cast::<u16>().add(index as usize) }
    }

    /// # Safety
    /// `slab` is a slab of this arena that has an owner, whose lock is held or one of whose cells is in use.
    unsafe fn shard(slab: *mut Slab) -> usize {
        // SAFETY: by the caller's promise.
        unsafe { (*slab).owner.load(Relaxed) as usize - 1 }
    }

    /// # Safety
    /// `ptr` is in a cell of `slab`, a slab of this arena with an owner.
    unsafe fn index(slab: *mut Slab, ptr: NonNull<u8>) -> u16 {
        // SAFETY: by the caller's promise.
        let (cells_at, class) = unsafe { ((*slab).cells_at as usize, (*slab).class as usize) };
        in_slab((ptr.as_ptr() as usize - slab as usize - cells_at) / class_bytes(class))
    }
}

struct Shard {
    /// For each class, the list of slabs with room. The slab with the most recent free comes first.
    room: [*mut Slab; CLASSES],
}

// SAFETY: slabs are reached only under their shard's lock.
unsafe impl Send for Shard {}

/// A shard on its own cache line, because the workers allocate all the time.
#[repr(align(128))]
struct Line {
    shard: Mutex<Shard>,
    /// Bytes of cells in use. Written only under the lock, so a plain load and store are enough.
    used: AtomicUsize,
    /// Resident bytes of slabs in use. Written only under the lock.
    held: AtomicUsize,
    /// Bytes of these slabs that no cell can have. Written only under the lock.
    overhead: AtomicUsize,
}

impl Line {
    /// Counts `pages` more, or fewer, resident pages. The caller holds the lock.
    fn hold(&self, pages: isize) {
        self.held.store(self.held.load(Relaxed).wrapping_add_signed(pages * PAGE as isize), Relaxed);
    }

    /// Counts a slab of this class that comes into use, or that leaves (`by` = -1). The caller holds the lock.
    fn count_slab(&self, class: usize, by: isize) {
        let overhead = (SLAB_BYTES - slab_layout(class).0 * class_bytes(class)) as isize;
        self.overhead.store(self.overhead.load(Relaxed).wrapping_add_signed(by * overhead), Relaxed);
    }
}

struct Pool {
    /// Empty slabs that are resident, with their numbers of touched pages.
    resident: Vec<(*mut u8, u16)>,
    /// Empty slabs that are not resident: given back to the kernel, or never touched.
    absent: Vec<*mut u8>,
    chunks: Vec<*mut u8>,
}

// SAFETY: the pool owns the memory behind its pointers.
unsafe impl Send for Pool {}

pub struct Arena {
    lines: Box<[Line]>,
    pool: Mutex<Pool>,
    /// Resident bytes of empty slabs.
    spare: AtomicUsize,
    /// Bytes of objects too large for a slab, and of boxed values.
    large: AtomicUsize,
    boxed: AtomicUsize,
    /// Number of slabs marked for evacuation that still contain objects.
    evacuating: AtomicUsize,
    /// Held while slabs are marked.
    marking: Mutex<()>,
    huge_pages: bool,
}

thread_local! {
    static WORKER: Cell<usize> = const { Cell::new(0) };
}

/// Sets this thread's worker number. The thread allocates from that worker's shard.
pub fn set_worker(worker: usize) {
    WORKER.set(worker);
}

#[inline]
pub(crate) fn worker() -> usize {
    WORKER.get()
}

impl Arena {
    pub fn new(workers: usize) -> Arena {
        let line = || Line {
            shard: Mutex::new(Shard { room: [std::ptr::null_mut(); CLASSES] }),
            used: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            overhead: AtomicUsize::new(0),
        };
        Arena {
            lines: (0..workers.max(1)).map(|_| line()).collect(),
            pool: Mutex::new(Pool { resident: Vec::new(), absent: Vec::new(), chunks: Vec::new() }),
            spare: AtomicUsize::new(0),
            large: AtomicUsize::new(0),
            boxed: AtomicUsize::new(0),
            evacuating: AtomicUsize::new(0),
            marking: Mutex::new(()),
            huge_pages: false,
        }
    }

    /// Asks for huge pages, which reduce TLB misses of look-ups.
    pub fn in_huge_pages(mut self, on: bool) -> Arena {
        self.huge_pages = on;
        self
    }

    /// Bytes of all objects.
    #[inline]
    pub fn used_bytes(&self) -> usize {
        self.lines.iter().map(|line| line.used.load(Relaxed)).sum::<usize>() + self.large.load(Relaxed)
    }

    /// Resident bytes held for objects, including free cells and spare slabs.
    pub fn held_bytes(&self) -> usize {
        self.slab_bytes() + self.spare.load(Relaxed)
    }

    /// The bytes of boxed values among them.
    pub fn boxed_bytes(&self) -> usize {
        self.boxed.load(Relaxed)
    }

    /// Resident bytes of slabs that have at least one object, and of large objects.
    pub fn slab_bytes(&self) -> usize {
        self.lines.iter().map(|line| line.held.load(Relaxed)).sum::<usize>() + self.large.load(Relaxed)
    }

    /// Bytes of slabs in use that no cell can have: their headers, and the rests at their ends.
    pub fn overhead_bytes(&self) -> usize {
        self.lines.iter().map(|line| line.overhead.load(Relaxed)).sum()
    }

    /// Bytes of free cells in slabs in use.
    pub fn free_bytes(&self) -> usize {
        self.slab_bytes().saturating_sub(self.overhead_bytes() + self.used_bytes())
    }

    /// Counts a change of `by` bytes in the memory of boxed values, which is outside the arena.
    pub fn count_boxed(&self, by: isize) {
        self.large.fetch_add(by as usize, Relaxed);
        self.boxed.fetch_add(by as usize, Relaxed);
    }

    /// Allocates uninitialised memory of `bytes` ≥ 2, aligned to 8. It must be used and freed only under the lock of `stripe`.
    pub fn alloc(&self, bytes: usize, stripe: u16) -> NonNull<u8> {
        if bytes > CELL_BYTES_MAX {
            return self.alloc_large(bytes);
        }
        let class = class_of(bytes);
        let which = WORKER.get() % self.lines.len();
        let line = &self.lines[which];
        let mut shard = line.shard.lock();
        let mut slab = shard.room[class];
        if slab.is_null() {
            slab = self.new_slab(which, class);
            // SAFETY: just made.
            line.hold(unsafe { (*slab).touched } as isize);
            line.count_slab(class, 1);
            shard.link(slab);
        }
        // SAFETY: the slab belongs to this shard, whose lock is held, and has room: a free or a fresh cell.
        unsafe {
            let index = if (*slab).free != NONE {
                let index = (*slab).free;
                (*slab).free = Slab::cell(slab, index).cast::<u16>().read();
                index
            } else {
                (*slab).fresh += 1;
                let end = (*slab).cells_at as usize + (*slab).fresh as usize * class_bytes(class);
                let pages = in_slab(end.div_ceil(PAGE));
                if pages > (*slab).touched {
                    line.hold((pages - (*slab).touched) as isize);
                    (*slab).touched = pages;
                }
                (*slab).fresh - 1
            };
            (*slab).used += 1;
            if (*slab).used == (*slab).cells {
                shard.unlink(slab);
            }
            Slab::stripe(slab, index).write(stripe);
            line.used.store(line.used.load(Relaxed) + class_bytes(class), Relaxed);
            NonNull::new_unchecked(Slab::cell(slab, index))
        }
    }

    /// Gives memory back.
    ///
    /// # Safety
    /// `ptr` came from `alloc(b)` of this arena with `rounded(b) == rounded(bytes)` and is not used any more.
    pub unsafe fn free(&self, ptr: NonNull<u8>, bytes: usize) {
        if bytes > CELL_BYTES_MAX {
            // SAFETY: by the caller's promise, allocated with this layout.
            unsafe { dealloc(ptr.as_ptr(), large_layout(bytes)) };
            self.large.fetch_sub(rounded(bytes), Relaxed);
            return;
        }
        let slab = slab_of(ptr);
        // SAFETY: the slab's shard and class never change while one of its cells is in use.
        let (which, class) = unsafe { (Slab::shard(slab), (*slab).class as usize) };
        debug_assert_eq!(class, class_of(bytes));
        let line = &self.lines[which];
        let mut shard = line.shard.lock();
        line.used.store(line.used.load(Relaxed) - class_bytes(class), Relaxed);
        // SAFETY: the slab is a slab of this shard, whose lock is held, and `ptr` is one of its cells.
        unsafe {
            let index = Slab::index(slab, ptr);
            Slab::stripe(slab, index).write(FREE);
            ptr.cast::<u16>().write((*slab).free);
            (*slab).free = index;
            (*slab).used -= 1;
            if (*slab).used == 0 {
                if (*slab).listed {
                    shard.unlink(slab);
                }
                if (*slab).evacuated {
                    self.evacuating.fetch_sub(1, Relaxed);
                }
                let touched = (*slab).touched;
                line.hold(-(touched as isize));
                line.count_slab(class, -1);
                (*slab).owner.store(0, Relaxed);
                self.give_back(slab.cast(), touched);
            } else if !(*slab).listed && !(*slab).evacuated {
                shard.link(slab);
            }
        }
    }

    fn alloc_large(&self, bytes: usize) -> NonNull<u8> {
        let layout = large_layout(bytes);
        // SAFETY: the size is not zero.
        let Some(ptr) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        self.large.fetch_add(layout.size(), Relaxed);
        ptr
    }

    /// Changes the size of a large object, in place if the allocator can.
    ///
    /// # Safety
    /// As for `free`; both sizes are above [`CELL_BYTES_MAX`].
    pub unsafe fn realloc_large(&self, ptr: NonNull<u8>, old: usize, new: usize) -> NonNull<u8> {
        let (before, after) = (large_layout(old), large_layout(new));
        // SAFETY: by the caller's promise, allocated with `before`; the new size is not zero.
        let raw = unsafe { realloc(ptr.as_ptr(), before, after.size()) };
        let Some(ptr) = NonNull::new(raw) else { handle_alloc_error(after) };
        self.large.fetch_add(after.size(), Relaxed);
        self.large.fetch_sub(before.size(), Relaxed);
        ptr
    }

    fn new_slab(&self, shard: usize, class: usize) -> *mut Slab {
        let (raw, touched) = self.take_slab();
        let (cells, cells_at) = slab_layout(class);
        let slab = raw.cast::<Slab>();
        // SAFETY: `raw` is 64 KiB that nobody else holds, aligned to 64 KiB. Other threads read only `owner` without this
        // shard's lock, which the caller holds.
        unsafe {
            let fields = Slab {
                owner: AtomicU32::new(0),
                cells_at: in_slab(cells_at),
                class: in_slab(class),
                used: 0,
                free: NONE,
                fresh: 0,
                cells: in_slab(cells),
                touched: touched.max(in_slab(cells_at.div_ceil(PAGE))),
                listed: false,
                evacuated: false,
                prev: std::ptr::null_mut(),
                next: std::ptr::null_mut(),
            };
            // Clear all but `owner`, which other threads may be reading.
            let owner = size_of::<AtomicU32>();
            let (from, to) = ((&raw const fields).cast::<u8>(), slab.cast::<u8>());
            std::ptr::copy_nonoverlapping(from.add(owner), to.add(owner), size_of::<Slab>() - owner);
            Slab::stripe(slab, 0).write_bytes(0xff, cells);
            #[expect(clippy::cast_possible_truncation, reason = "there is one shard for each worker, a thread")]
            (*slab).owner.store(shard as u32 + 1, Relaxed);
        }
        slab
    }

    /// Takes an empty slab. Returns it with its number of resident pages.
    fn take_slab(&self) -> (*mut u8, u16) {
        let mut pool = self.pool.lock();
        if let Some((slab, touched)) = pool.resident.pop() {
            self.spare.fetch_sub(touched as usize * PAGE, Relaxed);
            return (slab, touched);
        }
        if pool.absent.is_empty() {
            let chunk = map_chunk(self.huge_pages);
            pool.chunks.push(chunk);
            for n in (0..CHUNK_SLABS).rev() {
                // SAFETY: inside the chunk.
                pool.absent.push(unsafe { chunk.add(n * SLAB_BYTES) });
            }
        }
        (pool.absent.pop().expect("a chunk has slabs"), 0)
    }

    fn give_back(&self, slab: *mut u8, touched: u16) {
        let mut pool = self.pool.lock();
        if pool.resident.len() < SPARE_SLABS {
            self.spare.fetch_add(touched as usize * PAGE, Relaxed);
            pool.resident.push((slab, touched));
            return;
        }
        forget_pages(slab);
        pool.absent.push(slab);
    }

    /// Marks up to `slabs_max` slabs for evacuation that are used less than `percent`. No object is put into a marked slab, and
    /// the caller moves its objects out ([`Arena::evacuated_cells`]). Marks none while other slabs are being emptied.
    pub fn evacuate(&self, percent: usize, slabs_max: usize) -> Vec<NonNull<u8>> {
        let _marking = self.marking.lock();
        let mut marked = Vec::new();
        if self.evacuating() > 0 {
            return marked;
        }
        for line in &self.lines {
            let mut shard = line.shard.lock();
            for class in 0..CLASSES {
                // Skip the first slab of a class. It serves the next allocations, so the moved objects would fill it.
                let mut slab = shard.room[class];
                let mut first = true;
                while !slab.is_null() {
                    // SAFETY: listed slabs belong to this shard, whose lock is held.
                    unsafe {
                        let next = (*slab).next;
                        let sparse = ((*slab).used as usize) * 100 < (*slab).cells as usize * percent;
                        if !first && sparse && marked.len() < slabs_max {
                            shard.unlink(slab);
                            (*slab).evacuated = true;
                            marked.push(NonNull::new_unchecked(slab.cast()));
                        }
                        slab = next;
                    }
                    first = false;
                }
            }
        }
        self.evacuating.fetch_add(marked.len(), Relaxed);
        marked
    }

    /// Slabs marked for evacuation that still hold objects.
    #[inline]
    pub fn evacuating(&self) -> usize {
        self.evacuating.load(Relaxed)
    }

    /// The cells in use, with their stripes, of a slab that [`Arena::evacuate`] returned. None if the slab is empty now.
    pub fn evacuated_cells(&self, slab: NonNull<u8>, out: &mut Cells) {
        self.cells(slab.as_ptr().cast(), out, |slab, _| slab.evacuated);
    }

    /// The cells in use, with their stripes, of the slab of `ptr`, in the order of addresses. None for a large object or a slab
    /// that is being filled. The cells may be freed at any time after this call: see [`Arena::belongs`].
    ///
    /// # Safety
    /// `ptr` is a live object of `bytes` of this arena.
    pub unsafe fn neighbours(&self, ptr: NonNull<u8>, bytes: usize, out: &mut Cells) {
        if bytes <= CELL_BYTES_MAX {
            self.cells(slab_of(ptr), out, |slab, shard| !std::ptr::eq(shard.room[slab.class as usize], slab));
        }
    }

    /// The cells in use of a slab for which `wanted` holds. `slab` is or was one of this arena.
    fn cells(&self, slab: *mut Slab, out: &mut Cells, wanted: impl FnOnce(&Slab, &Shard) -> bool) {
        let Some((shard, _)) = self.owner(slab) else { return };
        // SAFETY: the owner's lock is held.
        unsafe {
            if !wanted(&*slab, &shard) {
                return;
            }
            for index in 0..(*slab).fresh {
                let stripe = Slab::stripe(slab, index).read();
                if stripe != FREE {
                    out.push((NonNull::new_unchecked(Slab::cell(slab, index)), stripe));
                }
            }
        }
    }

    /// The shard that owns the slab, locked. `slab` is or was one of this arena.
    fn owner(&self, slab: *mut Slab) -> Option<(MutexGuard<'_, Shard>, usize)> {
        // SAFETY: slabs stay mapped for the arena's life, and only the owner is read without its lock.
        let owner = || unsafe { (*slab).owner.load(Relaxed) as usize };
        let which = owner().checked_sub(1)?;
        let shard = self.lines[which].shard.lock();
        (owner() == which + 1).then_some((shard, which))
    }

    /// Whether a cell from [`Arena::neighbours`] or [`Arena::evacuated_cells`] is (still or again) in use and belongs to `stripe`.
    /// The caller holds that stripe's lock, so after true no other thread may free or change the cell.
    pub fn belongs(&self, cell: NonNull<u8>, stripe: u16) -> bool {
        let slab = slab_of(cell);
        let Some(_owner) = self.owner(slab) else { return false };
        // SAFETY: the owner's lock is held. The slab may have got another class meanwhile, so the address is checked to be a cell.
        unsafe {
            if cell.addr().get() < slab.addr() + (*slab).cells_at as usize {
                return false;
            }
            let index = Slab::index(slab, cell);
            index < (*slab).fresh
                && Slab::cell(slab, index) == cell.as_ptr()
                && Slab::stripe(slab, index).read() == stripe
        }
    }
}

impl Shard {
    fn link(&mut self, slab: *mut Slab) {
        // SAFETY: the slab and the list's head belong to this shard, whose lock the caller holds.
        unsafe {
            let class = (*slab).class as usize;
            let head = self.room[class];
            (*slab).prev = std::ptr::null_mut();
            (*slab).next = head;
            (*slab).listed = true;
            if !head.is_null() {
                (*head).prev = slab;
            }
            self.room[class] = slab;
        }
    }

    fn unlink(&mut self, slab: *mut Slab) {
        // SAFETY: as in link; the slab is in its class's list.
        unsafe {
            let (prev, next) = ((*slab).prev, (*slab).next);
            if prev.is_null() {
                self.room[(*slab).class as usize] = next;
            } else {
                (*prev).next = next;
            }
            if !next.is_null() {
                (*next).prev = prev;
            }
            (*slab).listed = false;
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for &chunk in &self.pool.get_mut().chunks {
            unmap_chunk(chunk);
        }
    }
}

fn slab_of(ptr: NonNull<u8>) -> *mut Slab {
    ptr.as_ptr().map_addr(|address| address & !(SLAB_BYTES - 1)).cast()
}

fn large_layout(bytes: usize) -> Layout {
    Layout::from_size_align(rounded(bytes), 16).expect("object sizes are bounded by 512 MB and a key")
}

/// Maps 4 MiB of address space aligned to huge pages. The kernel provides memory when it is touched.
#[cfg(not(miri))]
fn map_chunk(huge_pages: bool) -> *mut u8 {
    let bytes = CHUNK_SLABS * SLAB_BYTES;
    // SAFETY: this is our own anonymous mapping, and the parts cut off at both ends belong to it.
    unsafe {
        let raw = libc::mmap(
            std::ptr::null_mut(),
            bytes + HUGE_PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        );
        if raw == libc::MAP_FAILED {
            handle_alloc_error(Layout::from_size_align_unchecked(bytes, HUGE_PAGE));
        }
        let raw = raw.cast::<u8>();
        let front = raw.align_offset(HUGE_PAGE);
        if front > 0 {
            libc::munmap(raw.cast(), front);
        }
        libc::munmap(raw.add(front + bytes).cast(), HUGE_PAGE - front);
        if huge_pages {
            // Only a hint: without huge pages, small pages are used.
            libc::madvise(raw.add(front).cast(), bytes, libc::MADV_HUGEPAGE);
        }
        raw.add(front)
    }
}

#[cfg(not(miri))]
fn unmap_chunk(chunk: *mut u8) {
    // SAFETY: mapped by map_chunk with this size; the store that held pointers into it is gone.
    unsafe { libc::munmap(chunk.cast(), CHUNK_SLABS * SLAB_BYTES) };
}

/// Gives the pages of an empty slab back to the kernel. They read as zero afterwards. If the kernel refuses, the memory stays
/// resident, and the measured resident size shows it.
#[cfg(not(miri))]
fn forget_pages(slab: *mut u8) {
    // SAFETY: nobody else has the slab.
    unsafe { libc::madvise(slab.cast(), SLAB_BYTES, libc::MADV_DONTNEED) };
}

// Miri cannot unmap a part of a mapping and does not know madvise. Under Miri a chunk is an ordinary allocation.

#[cfg(miri)]
fn chunk_layout() -> Layout {
    Layout::from_size_align(CHUNK_SLABS * SLAB_BYTES, SLAB_BYTES).expect("constants")
}

#[cfg(miri)]
fn map_chunk(_huge_pages: bool) -> *mut u8 {
    // SAFETY: the size is not zero.
    let chunk = unsafe { std::alloc::alloc_zeroed(chunk_layout()) };
    if chunk.is_null() { handle_alloc_error(chunk_layout()) } else { chunk }
}

#[cfg(miri)]
fn unmap_chunk(chunk: *mut u8) {
    // SAFETY: allocated by map_chunk with this layout.
    unsafe { dealloc(chunk, chunk_layout()) };
}

#[cfg(miri)]
fn forget_pages(slab: *mut u8) {
    // SAFETY: nobody else has the slab.
    unsafe { slab.write_bytes(0, SLAB_BYTES) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_cover_every_size_tightly() {
        for bytes in 1..=CELL_BYTES_MAX {
            let got = rounded(bytes);
            assert!(got >= bytes);
            assert!(got - bytes < 8.max(got / 16), "{bytes} takes {got}");
        }
        assert_eq!(class_of(CELL_BYTES_MAX), CLASSES - 1);
        assert_eq!(rounded(525), 528);
    }

    #[test]
    fn cells_do_not_overlap_and_come_back() {
        let arena = Arena::new(1);
        let mut held: Vec<(NonNull<u8>, usize, u8)> = Vec::new();
        let mut seed = 7u64;
        for step in 0..if cfg!(miri) { 100 } else { 40_000u64 } {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let random = (seed >> 33) as usize;
            if random % 5 < 3 || held.is_empty() {
                let bytes = 2 + random % 6000;
                let ptr = arena.alloc(bytes, 1);
                assert_eq!(ptr.as_ptr() as usize % 8, 0);
                // SAFETY: just allocated.
                unsafe { ptr.as_ptr().write_bytes(step as u8, bytes) };
                held.push((ptr, bytes, step as u8));
            } else {
                let (ptr, bytes, filled) = held.swap_remove(random % held.len());
                // SAFETY: allocated above and not freed.
                unsafe {
                    let seen = std::slice::from_raw_parts(ptr.as_ptr(), bytes);
                    assert!(seen.iter().all(|&b| b == filled));
                    arena.free(ptr, bytes);
                }
            }
        }
        for (ptr, bytes, _) in held {
            // SAFETY: as above.
            unsafe { arena.free(ptr, bytes) };
        }
        assert_eq!(arena.used_bytes(), 0);
        assert_eq!(arena.slab_bytes(), 0);
        assert!(arena.held_bytes() <= SPARE_SLABS * SLAB_BYTES);
    }

    #[test]
    fn neighbours_are_visited_in_order_and_only_while_they_exist() {
        let arena = Arena::new(1);
        let all: Vec<_> = (0..if cfg!(miri) { 300 } else { 1000 }).map(|n| arena.alloc(500, n % 7)).collect();
        let mut near = Vec::new();
        // SAFETY: a live object of this size.
        unsafe { arena.neighbours(all[50], 500, &mut near) };
        let expected: Vec<_> = (0..near.len()).map(|n| (all[n], n as u16 % 7)).collect();
        assert!(near.len() > 100);
        assert_eq!(near, expected);
        // SAFETY: a live object of this size, freed once.
        unsafe { arena.free(all[3], 500) };
        for (n, &(cell, stripe)) in near.iter().enumerate() {
            assert_eq!(arena.belongs(cell, stripe), n != 3);
            assert!(!arena.belongs(cell, stripe + 1));
        }
        // The slab is given back and is reused for another size.
        for &(cell, _) in near.iter().filter(|(cell, _)| *cell != all[3]) {
            // SAFETY: a live object of this size, freed once.
            unsafe { arena.free(cell, 500) };
        }
        assert!(near.iter().all(|&(cell, stripe)| !arena.belongs(cell, stripe)));
        let other: Vec<_> = (0..if cfg!(miri) { 300 } else { 2000 }).map(|_| arena.alloc(96, 5)).collect();
        let begins = |cell| other.contains(&cell);
        assert!(near.iter().all(|&(cell, _)| arena.belongs(cell, 5) == begins(cell)));
    }

    #[test]
    fn a_sparse_slab_is_emptied_by_moving_its_objects() {
        let arena = Arena::new(1);
        let all: Vec<_> = (0..if cfg!(miri) { 1_500 } else { 10_000 }).map(|_| arena.alloc(500, 1)).collect();
        let mut kept = Vec::new();
        for (n, ptr) in all.into_iter().enumerate() {
            if n % 10 == 0 {
                kept.push(ptr);
            } else {
                // SAFETY: allocated above with this size.
                unsafe { arena.free(ptr, 500) };
            }
        }
        let before = arena.slab_bytes();
        let marked = arena.evacuate(50, usize::MAX);
        assert!(!marked.is_empty());
        assert!(arena.evacuate(50, usize::MAX).is_empty(), "one batch after the other");
        for slab in &marked {
            let mut cells = Cells::new();
            arena.evacuated_cells(*slab, &mut cells);
            for (cell, stripe) in cells {
                assert!(arena.belongs(cell, stripe));
                let at = kept.iter().position(|ptr| *ptr == cell).unwrap();
                kept[at] = arena.alloc(500, stripe);
                // SAFETY: a live object of this size.
                unsafe { arena.free(cell, 500) };
            }
        }
        assert_eq!(arena.evacuating(), 0);
        assert!(arena.slab_bytes() * 4 < before, "{} of {before}", arena.slab_bytes());
        for ptr in kept {
            // SAFETY: as above.
            unsafe { arena.free(ptr, 500) };
        }
    }
}
