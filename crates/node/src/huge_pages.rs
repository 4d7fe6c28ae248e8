//! Owns which memory of the process lies in transparent huge pages: that of objects, which is looked up at random and
//! is as large as the data; nothing else. Never knows what is in it.

use config::Config;

/// In a smaller RAM limit the rest of a huge page that a small share of a slab has touched would be a loss that counts.
pub const RAM_LIMIT_MIN: u64 = 1 << 30;
/// Of PR_SET_THP_DISABLE, since Linux 6.18: memory that asks for huge pages still gets them.
const EXCEPT_ADVISED: libc::c_ulong = 1 << 1;

/// Keeps huge pages away from what does not ask for them, as `disable-thp` says; whether objects are to ask.
pub fn set_up(config: &Config) -> bool {
    let of_objects = config.huge_pages && (config.ram_limit_bytes == 0 || config.ram_limit_bytes >= RAM_LIMIT_MIN);
    if !config.disable_thp {
        return of_objects;
    }
    if of_objects && disable(EXCEPT_ADVISED) {
        return true;
    }
    // A kernel that knows only all or nothing. Where it gives huge pages only to those who ask, nobody else does.
    let mode = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if of_objects && mode.contains("[madvise]") {
        return true;
    }
    disable(0);
    if of_objects && mode.contains("[always]") {
        tracing::info!(
            "objects do not lie in huge pages: this kernel has them for all of the process or for nothing; write madvise \
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
