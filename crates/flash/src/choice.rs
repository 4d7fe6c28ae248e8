//! Owns the choice between io_uring and threads. Never knows what the driver is used for.

use std::io;
use std::sync::{Arc, Once};

use crate::io::Driver;

use crate::files::FlashFiles;
use crate::threads::ThreadPool;
use crate::uring::{DEPTH, Uring};

/// The configuration's `flash-io`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlashIo {
    /// io_uring where it is allowed, otherwise threads.
    #[default]
    Auto,
    Uring,
    Threads,
}

impl FlashIo {
    pub const NAMES: [(&str, FlashIo); 3] =
        [("auto", FlashIo::Auto), ("uring", FlashIo::Uring), ("threads", FlashIo::Threads)];
}

impl std::str::FromStr for FlashIo {
    type Err = ();

    fn from_str(name: &str) -> Result<FlashIo, ()> {
        let known = FlashIo::NAMES.iter().find(|(known, _)| name.eq_ignore_ascii_case(known));
        known.map(|&(_, which)| which).ok_or(())
    }
}

impl std::fmt::Display for FlashIo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, _) = FlashIo::NAMES.iter().find(|(_, which)| which == self).expect("all are named");
        f.write_str(name)
    }
}

/// A worker's driver. Call this on the worker's thread, which must be the only one to use the driver.
pub fn open_driver(files: &Arc<FlashFiles>, which: FlashIo, pool: &Arc<ThreadPool>) -> io::Result<Box<dyn Driver>> {
    choose_driver(
        which,
        || Ok(Box::new(Uring::new(files.clone(), DEPTH)?)),
        || Ok(Box::new(pool.driver(files.clone())?)),
    )
}

/// [`open_driver`] with the two ways to open as arguments, so that tests can simulate a refusal.
pub fn choose_driver(
    which: FlashIo,
    uring: impl FnOnce() -> io::Result<Box<dyn Driver>>,
    threads: impl FnOnce() -> io::Result<Box<dyn Driver>>,
) -> io::Result<Box<dyn Driver>> {
    let refused = match which {
        FlashIo::Threads => return threads(),
        FlashIo::Uring => return uring(),
        FlashIo::Auto => match uring() {
            Ok(driver) => return Ok(driver),
            Err(refused) => refused,
        },
    };
    // Whatever the reason (no such system call, seccomp, sysctl, memory limits), threads work. Every worker of the
    // process is refused for the same reason, so one line is enough.
    static SAID: Once = Once::new();
    SAID.call_once(|| tracing::warn!("io_uring is refused ({refused}); threads read flash"));
    threads()
}
