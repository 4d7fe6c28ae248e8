//! Owns which memory of the process is in transparent huge pages: only that of objects, which is large and accessed
//! at random. Never knows what the memory contains.

use config::Config;

/// With a smaller RAM limit, huge pages cost too much: a slab that is used only a little would still take a whole
/// huge page.
pub const RAM_LIMIT_MIN: u64 = 1 << 30;
/// A flag of PR_SET_THP_DISABLE, since Linux 6.18: memory that asks for huge pages still gets them.
const EXCEPT_ADVISED: libc::c_ulong = 1 << 1;

/// Turns huge pages off for memory that does not ask for them, if `disable-thp` says so. Returns whether objects
/// should ask for them.
pub fn set_up(config: &Config) -> bool {
    let of_objects = config.huge_pages && (config.ram_limit_bytes == 0 || config.ram_limit_bytes >= RAM_LIMIT_MIN);
    if !config.disable_thp {
        return of_objects;
    }
    if of_objects && disable(EXCEPT_ADVISED) {
        return true;
    }
    // This kernel can only turn huge pages off for the whole process. With `[madvise]`, only memory that asks gets
    // huge pages, so nothing needs to be turned off.
    let mode = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if of_objects && mode.contains("[madvise]") {
        return true;
    }
    disable(0);
    if of_objects && mode.contains("[always]") {
        tracing::info!(
            "objects do not use huge pages, because this kernel's setting is always: huge pages are for the whole process or not at all. Write madvise \
             to /sys/kernel/mm/transparent_hugepage/enabled, or set disable-thp no"
        );
    }
    false
}

fn disable(flags: libc::c_ulong) -> bool {
    let (on, unused): (libc::c_ulong, libc::c_ulong) = (1, 0);
    // SAFETY: a prctl without pointers; a kernel that does not know the flag refuses it.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, on, flags, unused, unused) == 0 }
}
