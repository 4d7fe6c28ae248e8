//! Owns the process's allocator and its settings. Never knows what is allocated.

use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// jemalloc reads this before `main` runs.
///
/// The RAM limit bounds the resident size, so freed pages must go back to the system within a second. A thread of the
/// allocator does this, so that a worker never pays for it. Pages are not freed lazily, because the kernel still counts
/// lazily freed pages as resident. Allocations above `oversize_threshold` (the buffers of large requests and replies) have
/// an arena of their own, which gives freed pages back at once: see `node::memory`. Large allocations (16 KiB and more)
/// do not get the extra page by which jemalloc varies their addresses.
const SETTINGS: &[u8] =
    b"background_thread:true,max_background_threads:1,dirty_decay_ms:1000,muzzy_decay_ms:0,cache_oblivious:false,\
      oversize_threshold:524288\0";

/// A pointer to a C string, as the C side declares it.
#[repr(transparent)]
pub struct Settings(*const u8);

// SAFETY: the pointer points to a constant, which is never written.
unsafe impl Sync for Settings {}

// SAFETY: jemalloc declares this symbol for its users to define, as a `const char *`; the string ends with NUL.
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static MALLOC_CONF: Settings = Settings(SETTINGS.as_ptr());

#[cfg(test)]
mod tests {
    /// If jemalloc did not read the symbol, nothing would fail, so the test asks the allocator for its settings.
    #[test]
    fn the_allocator_has_read_its_settings() {
        let report = node::allocator_report();
        for setting in [
            "background_thread: true",
            "dirty_decay_ms: 1000",
            "muzzy_decay_ms: 0",
            "cache_oblivious: false",
            "oversize_threshold: 524288",
        ] {
            assert!(report.contains(&format!("\n  opt.{setting}")), "{setting} is not in {report}");
        }
    }
}
