//! Owns the process's allocator and its settings. Never knows what is allocated.

use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// jemalloc reads this before `main`.
///
/// The RAM limit is a promise about the resident size, so freed pages go back within a second, by a thread of the
/// allocator's own (a worker never pays for it) and without the detour of lazily freed pages, which the kernel still
/// counts as resident. A large allocation (16 KiB and more) gives up the page that jemalloc would add to vary its
/// address.
const SETTINGS: &[u8] =
    b"background_thread:true,max_background_threads:1,dirty_decay_ms:1000,muzzy_decay_ms:0,cache_oblivious:false\0";

/// A pointer to a C string, which is what the C side declares.
#[repr(transparent)]
pub struct Settings(*const u8);

// SAFETY: it points to a constant that nobody writes.
unsafe impl Sync for Settings {}

// SAFETY: jemalloc declares this symbol for its users to define, as a `const char *`; the string ends with NUL.
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static MALLOC_CONF: Settings = Settings(SETTINGS.as_ptr());

#[cfg(test)]
mod tests {
    /// A symbol that nobody reads would be silent: the allocator itself says what it took.
    #[test]
    fn the_allocator_has_read_its_settings() {
        let report = server::allocator_report();
        for setting in
            ["background_thread: true", "dirty_decay_ms: 1000", "muzzy_decay_ms: 0", "cache_oblivious: false"]
        {
            assert!(report.contains(&format!("\n  opt.{setting}")), "{setting} is not in {report}");
        }
    }
}
