//! Owns what the process and its allocator say of memory. Never decides anything by it.

use std::fs;

/// Bytes that the program has asked for and not given back. Zero if jemalloc is not the process's allocator.
pub fn allocated_bytes() -> u64 {
    Allocator::now().allocated
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Allocator {
    pub allocated: u64,
    pub active: u64,
    pub resident: u64,
}

impl Allocator {
    pub fn now() -> Allocator {
        use tikv_jemalloc_ctl::{epoch, stats};
        // jemalloc's figures are of its last epoch; a figure it does not have is shown as nothing.
        let _ = epoch::advance();
        Allocator {
            allocated: stats::allocated::read().unwrap_or(0) as u64,
            active: stats::active::read().unwrap_or(0) as u64,
            resident: stats::resident::read().unwrap_or(0) as u64,
        }
    }
}

/// Gives unused pages of every arena back to the operating system: pages that may stay unused for no time at all
/// go at once.
pub fn purge() {
    // SAFETY: the controls and their types are jemalloc's documented ones (unsigned, ssize_t).
    let arenas = unsafe { tikv_jemalloc_ctl::raw::read::<u32>(b"arenas.narenas\0") }.unwrap_or(0);
    for arena in 0..arenas {
        for kind in ["dirty", "muzzy"] {
            let name = format!("arena.{arena}.{kind}_decay_ms\0");
            // SAFETY: as above. An arena that was never used refuses, and has nothing to give.
            unsafe {
                let Ok(usual) = tikv_jemalloc_ctl::raw::read::<isize>(name.as_bytes()) else { continue };
                let _ = tikv_jemalloc_ctl::raw::write::<isize>(name.as_bytes(), 0);
                let _ = tikv_jemalloc_ctl::raw::write(name.as_bytes(), usual);
            }
        }
    }
}

pub fn report() -> String {
    let mut text = Vec::new();
    let options = tikv_jemalloc_ctl::stats_print::Options::default();
    match tikv_jemalloc_ctl::stats_print::stats_print(&mut text, options) {
        Ok(()) => String::from_utf8_lossy(&text).into_owned(),
        Err(error) => format!("the allocator gives no report: {error}"),
    }
}

/// Bytes of RAM the process occupies.
pub fn resident_bytes() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok())
        .unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// Processor time of the process (or its children) in microseconds: user, system.
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

/// What the machine's memory is by one of its names: MemTotal, MemAvailable.
pub fn system_bytes(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Bytes as Redis writes them for people.
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "K", "M", "G", "T"];
    let unit = (bytes.max(1).ilog2() / 10).min(4) as usize;
    match unit {
        0 => format!("{bytes}B"),
        _ => format!("{:.2}{}", bytes as f64 / (1u64 << (10 * unit)) as f64, UNITS[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_for_people() {
        for (bytes, text) in [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1.00K"),
            (1536 * 1024, "1.50M"),
            (3 << 30, "3.00G"),
            (5 << 40, "5.00T"),
            (1 << 60, "1048576.00T"),
        ] {
            assert_eq!(human_bytes(bytes), text);
        }
    }
}
