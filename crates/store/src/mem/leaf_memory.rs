//! Owns how the index's leaves get memory, and which of them lie in pages that are mostly empty. Never knows what is in a leaf.
//!
//! A leaf grows through many sizes and then is split, so its memory comes and goes by size, in no order: a page is free only when the
//! last leaf in it has gone. With 8 million keys, some 55 MB beside 142 MB of leaves were in such pages. So leaves are moved together
//! now and then. For that they come from jemalloc itself, which knows how full a page is, whatever the process's
//! allocator is.

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::NonNull;

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 16).expect("a leaf has at most 1 KiB")
}

/// Memory of `bytes` > 0, aligned to 16.
pub fn alloc(bytes: usize) -> NonNull<u8> {
    NonNull::new(raw::alloc(bytes)).unwrap_or_else(|| handle_alloc_error(layout(bytes)))
}

/// # Safety
/// `memory` came from this module with this size, and is not used any more.
pub unsafe fn free(memory: NonNull<u8>, bytes: usize) {
    // SAFETY: by the caller's promise.
    unsafe { raw::free(memory.as_ptr(), bytes) }
}

/// # Safety
/// `memory` came from this module with the size `old`, and is not used any more: its bytes are in the new memory.
pub unsafe fn realloc(memory: NonNull<u8>, old: usize, new: usize) -> NonNull<u8> {
    // SAFETY: by the caller's promise.
    let raw = unsafe { raw::realloc(memory.as_ptr(), old, new) };
    NonNull::new(raw).unwrap_or_else(|| handle_alloc_error(layout(new)))
}

/// Moves the bytes to a fuller page, if they lie in one that is emptier than others of this size.
///
/// # Safety
/// As [`realloc`], if this returns the new memory.
pub unsafe fn moved(memory: NonNull<u8>, bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: by the caller's promise.
    NonNull::new(unsafe { raw::moved(memory.as_ptr(), bytes) }?)
}

#[cfg(not(miri))]
mod raw {
    use std::ffi::{CStr, c_void};
    use std::ptr;
    use std::sync::OnceLock;
    use tikv_jemalloc_sys::{
        MALLOCX_ALIGN, MALLOCX_ARENA, MALLOCX_TCACHE_NONE, mallctlbymib, mallctlnametomib, mallocx, rallocx, sdallocx,
    };

    pub fn alloc(bytes: usize) -> *mut u8 {
        // SAFETY: the size is not 0.
        unsafe { mallocx(bytes, MALLOCX_ALIGN(16)) }.cast()
    }

    /// # Safety
    /// See the module's function of this name.
    pub unsafe fn free(memory: *mut u8, bytes: usize) {
        // SAFETY: by the caller's promise, jemalloc's, with this size and alignment.
        unsafe { sdallocx(memory.cast(), bytes, MALLOCX_ALIGN(16)) }
    }

    /// # Safety
    /// See the module's function of this name.
    pub unsafe fn realloc(memory: *mut u8, _old: usize, new: usize) -> *mut u8 {
        // SAFETY: by the caller's promise, jemalloc's; the new size is not 0.
        unsafe { rallocx(memory.cast(), new, MALLOCX_ALIGN(16)) }.cast()
    }

    /// A control of jemalloc by its number, which is found by its name once.
    struct Control {
        path: [usize; 3],
        length: usize,
    }

    impl Control {
        fn new(name: &CStr) -> Option<Control> {
            let (mut path, mut length) = ([0; 3], 3);
            // SAFETY: the name ends with NUL, and the path has room for `length` numbers.
            let error = unsafe { mallctlnametomib(name.as_ptr(), path.as_mut_ptr(), &mut length) };
            (error == 0).then_some(Control { path, length })
        }

        /// What the control says of the memory at this address.
        ///
        /// # Safety
        /// The control takes a pointer and gives an `Out`.
        unsafe fn of<Out: Default>(&self, mut memory: *mut c_void) -> Option<Out> {
            let (mut out, mut bytes) = (Out::default(), size_of::<Out>());
            // SAFETY: by the caller's promise; both pointers are to values of these sizes.
            let error = unsafe {
                let (out, given) = ((&raw mut out).cast(), (&raw mut memory).cast());
                mallctlbymib(self.path.as_ptr(), self.length, out, &mut bytes, given, size_of::<*mut c_void>())
            };
            (error == 0).then_some(out)
        }
    }

    /// What jemalloc says of the slab (some pages with regions of one size) that memory is in, and of all slabs of that size.
    #[repr(C)]
    struct Usage {
        /// The slab that the next allocations come from.
        current: *mut c_void,
        free: usize,
        regions: usize,
        slab_bytes: usize,
        all_free: usize,
        all_regions: usize,
    }

    impl Default for Usage {
        fn default() -> Usage {
            Usage { current: ptr::null_mut(), free: 0, regions: 0, slab_bytes: 0, all_free: 0, all_regions: 0 }
        }
    }

    impl Usage {
        /// Whether the slab is emptier than the mean, and all slabs together have so much free that moving gains something.
        fn is_sparse(&self, memory: *mut u8) -> bool {
            let offset = (memory as usize).wrapping_sub(self.current as usize);
            offset >= self.slab_bytes
                && 8 * self.all_free > self.all_regions
                && self.free * self.all_regions >= self.all_free * self.regions
        }
    }

    /// # Safety
    /// See the module's function of this name.
    pub unsafe fn moved(memory: *mut u8, bytes: usize) -> Option<*mut u8> {
        static CONTROLS: OnceLock<Option<(Control, Control)>> = OnceLock::new();
        let controls = CONTROLS
            .get_or_init(|| Some((Control::new(c"experimental.utilization.query")?, Control::new(c"arenas.lookup")?)));
        let (usage, lookup) = controls.as_ref()?;
        // SAFETY: the controls and their types are those of jemalloc's manual and of its sources (inspect.h).
        let (usage, arena) = unsafe { (usage.of::<Usage>(memory.cast())?, lookup.of::<u32>(memory.cast())?) };
        if !usage.is_sparse(memory) {
            return None;
        }
        // Past this thread's cache, which would give back what was freed last. In the same arena, so that its gaps are filled.
        let flags = MALLOCX_ALIGN(16) | MALLOCX_TCACHE_NONE | MALLOCX_ARENA(arena as usize);
        // SAFETY: the size is not 0. The old memory is jemalloc's by the caller's promise, and is given up here if there is new one.
        unsafe {
            let new = mallocx(bytes, flags).cast::<u8>();
            if new.is_null() {
                return None;
            }
            ptr::copy_nonoverlapping(memory, new, bytes);
            sdallocx(memory.cast(), bytes, MALLOCX_ALIGN(16) | MALLOCX_TCACHE_NONE);
            Some(new)
        }
    }
}

/// Miri knows the standard allocator only.
#[cfg(miri)]
mod raw {
    use super::layout;

    pub fn alloc(bytes: usize) -> *mut u8 {
        // SAFETY: the size is not 0.
        unsafe { std::alloc::alloc(layout(bytes)) }
    }

    /// # Safety
    /// See the module's function of this name.
    pub unsafe fn free(memory: *mut u8, bytes: usize) {
        // SAFETY: by the caller's promise.
        unsafe { std::alloc::dealloc(memory, layout(bytes)) }
    }

    /// # Safety
    /// See the module's function of this name.
    pub unsafe fn realloc(memory: *mut u8, old: usize, new: usize) -> *mut u8 {
        // SAFETY: by the caller's promise.
        unsafe { std::alloc::realloc(memory, layout(old), new) }
    }

    /// # Safety
    /// See the module's function of this name.
    pub unsafe fn moved(memory: *mut u8, bytes: usize) -> Option<*mut u8> {
        let new = alloc(bytes);
        // SAFETY: by the caller's promise.
        unsafe {
            std::ptr::copy_nonoverlapping(memory, new, bytes);
            free(memory, bytes);
        }
        Some(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_moves_out_of_pages_that_are_mostly_empty() {
        const BYTES: usize = 640;
        let count = if cfg!(miri) { 64 } else { 4_096 };
        let mut all: Vec<NonNull<u8>> = (0..count).map(|_| alloc(BYTES)).collect();
        let rest: Vec<NonNull<u8>> = (0..count / 8).map(|nth| all[nth * 8]).collect();
        for (nth, &memory) in rest.iter().enumerate() {
            // SAFETY: it has so many bytes.
            unsafe { memory.write_bytes(nth as u8, BYTES) };
        }
        all.retain(|memory| !rest.contains(memory));
        // SAFETY: all but the rest are given up.
        all.into_iter().for_each(|memory| unsafe { free(memory, BYTES) });
        let mut moves = 0;
        for (nth, mut memory) in rest.into_iter().enumerate() {
            // SAFETY: what has moved is used at its new place only, and then given up.
            unsafe {
                if let Some(new) = moved(memory, BYTES) {
                    memory = new;
                    moves += 1;
                }
                let bytes = std::slice::from_raw_parts(memory.as_ptr(), BYTES);
                assert!(bytes.iter().all(|&byte| byte == nth as u8), "{nth}");
                free(memory, BYTES);
            }
        }
        assert!(moves > count / 64, "{moves} of {}", count / 8);
    }
}
