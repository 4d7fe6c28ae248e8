//! Owns the choice between io_uring and threads. Never knows what the driver is used for.

use std::io;
use std::sync::{Arc, Once};

use crate::io::Driver;
use base::FlashIo;

use crate::files::FlashFiles;
use crate::threads::ThreadPool;
use crate::uring::{DEPTH, Uring};

/// A worker's driver; to be called on the thread of the worker, which is the only one to use it.
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
