//! Owns the memory figures of the process and its allocator. Never makes a decision from them.

use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::MaybeUninit;
use std::{fs, ptr};

/// Certainly above the allocator's threshold for large buffers, which have an arena of their own.
const LARGE_BYTES: usize = 16 << 20;
/// Stands for all arenas: MALLCTL_ARENAS_ALL of jemalloc's header.
const ALL_ARENAS: u32 = 4096;

/// Bytes that the program has allocated and not freed. Zero if jemalloc is not the process's allocator.
pub fn allocated_bytes() -> u64 {
    Allocator::now().allocated
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Allocator {
    pub allocated: u64,
    pub active: u64,
    pub resident: u64,
    pub metadata: u64,
}

impl Allocator {
    pub fn now() -> Allocator {
        // SAFETY: the controls and their types are those of jemalloc's manual (uint64_t, size_t).
        unsafe {
            // jemalloc updates its figures when the epoch is written. A figure that jemalloc does not have is zero.
            write::<u64>(c"epoch", 1);
            Allocator {
                allocated: read::<usize>(c"stats.allocated").unwrap_or(0) as u64,
                active: read::<usize>(c"stats.active").unwrap_or(0) as u64,
                resident: read::<usize>(c"stats.resident").unwrap_or(0) as u64,
                metadata: read::<usize>(c"stats.metadata").unwrap_or(0) as u64,
            }
        }
    }

    /// Bytes of pages in use that no allocation has.
    pub fn gaps(self) -> u64 {
        self.active.saturating_sub(self.allocated)
    }

    /// Resident bytes that nobody uses: free pages, and free places in other pages.
    pub fn unused(self) -> u64 {
        self.resident.saturating_sub(self.allocated + self.metadata)
    }
}

/// Gives the unused pages of every arena back to the operating system. Several threads may do this at once.
pub fn purge() {
    let name = CString::new(format!("arena.{ALL_ARENAS}.purge")).expect("no NUL in it");
    // SAFETY: the control takes no value and gives none.
    let error =
        unsafe { tikv_jemalloc_sys::mallctl(name.as_ptr(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), 0) };
    debug_assert_eq!(error, 0, "jemalloc knows the control");
}

/// Makes the allocator give large buffers back to the operating system as soon as they are freed. Within a second they
/// could become a multiple of what clients may hold at once. Call this once.
pub fn release_large_at_once() {
    let mut probe = Vec::<u8>::with_capacity(LARGE_BYTES);
    let (mut arena, mut bytes) = (0u32, size_of::<u32>());
    let mut address: *mut c_void = probe.as_mut_ptr().cast();
    // SAFETY: the control and its types are those of jemalloc's manual (unsigned, void *), and the pointer is allocated.
    let error = unsafe {
        let (found, key) = ((&raw mut arena).cast(), (&raw mut address).cast());
        tikv_jemalloc_sys::mallctl(c"arenas.lookup".as_ptr(), found, &mut bytes, key, size_of::<*mut c_void>())
    };
    if error == 0 && arena > 0 {
        let name = CString::new(format!("arena.{arena}.dirty_decay_ms")).expect("no NUL in it");
        // SAFETY: as above (ssize_t).
        unsafe { write::<isize>(&name, 0) };
    }
}

/// The allocator's own report, with its settings.
pub fn report() -> String {
    /// Appends a piece of the report to the `Vec<u8>` behind `text`.
    ///
    /// # Safety
    /// `text` is a `Vec<u8>` that nothing else uses, and `piece` ends with NUL.
    unsafe extern "C" fn append(text: *mut c_void, piece: *const c_char) {
        // SAFETY: `text` is the vector below, which nothing else uses in the meantime; jemalloc's pieces end with
        // NUL.
        unsafe { (*text.cast::<Vec<u8>>()).extend_from_slice(CStr::from_ptr(piece).to_bytes()) }
    }
    let mut text = Vec::<u8>::new();
    // SAFETY: jemalloc calls `append` with this pointer, and only before it returns.
    unsafe { tikv_jemalloc_sys::malloc_stats_print(Some(append), (&raw mut text).cast(), c"".as_ptr()) };
    String::from_utf8_lossy(&text).into_owned()
}

/// Reads a control of jemalloc. `None`: jemalloc does not have the control.
///
/// # Safety
/// jemalloc's manual must give the control this type.
unsafe fn read<T: Copy>(control: &CStr) -> Option<T> {
    let mut value = MaybeUninit::<T>::uninit();
    let mut bytes = size_of::<T>();
    // SAFETY: the name ends with NUL, and jemalloc writes no more than `bytes` into the value.
    let error = unsafe {
        let value = value.as_mut_ptr().cast();
        tikv_jemalloc_sys::mallctl(control.as_ptr(), value, &mut bytes, ptr::null_mut(), 0)
    };
    // SAFETY: jemalloc wrote the whole value, and the caller guarantees that it is a T.
    (error == 0 && bytes == size_of::<T>()).then(|| unsafe { value.assume_init() })
}

/// Sets a control of jemalloc. A control that does not exist is ignored.
///
/// # Safety
/// As for [`read`].
unsafe fn write<T: Copy>(control: &CStr, mut value: T) {
    // SAFETY: the name ends with NUL, and jemalloc only reads the value.
    unsafe {
        let (nothing, value) = (ptr::null_mut(), (&raw mut value).cast());
        tikv_jemalloc_sys::mallctl(control.as_ptr(), nothing, ptr::null_mut(), value, size_of::<T>());
    }
}

/// The process's resident size in bytes.
pub fn resident_bytes() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok())
        .unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// Processor time of the process (or of its children) in microseconds: user, system.
pub fn cpu_us(who: libc::c_int) -> (u64, u64) {
    // SAFETY: rusage is plain numbers, for which zeroes are valid, and getrusage fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(who, &mut usage);
        usage
    };
    let us = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    (us(usage.ru_utime), us(usage.ru_stime))
}

/// A field of /proc/meminfo in bytes, for example MemTotal or MemAvailable.
pub fn system_bytes(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// Once, a purge set the decay time to zero for a moment. Of two at once, the second took the zero for the usual time.
    #[test]
    fn purges_of_several_threads_leave_the_settings_alone() {
        // SAFETY: the control and its type are those of jemalloc's manual (ssize_t).
        let decay_ms = || unsafe { read::<isize>(c"arena.0.dirty_decay_ms") };
        let before = decay_ms();
        assert!(before.is_some_and(|ms| ms > 0), "{before:?}");
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..2_000).for_each(|_| purge()));
            }
        });
        assert_eq!(decay_ms(), before);
    }
}
