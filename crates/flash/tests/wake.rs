//! The owner of a driver sleeps on the wake descriptor. No completion may stay unnoticed while it sleeps.

use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use flash::io::{Driver, Op, OpKind, PageBuf};
use flash::{DATA_OFFSET, FlashFiles, FlashIo, ThreadPool, open_driver};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

const MIB: u64 = 1 << 20;

fn drivers(test: impl Fn(Box<dyn Driver>)) {
    let scratch = tempfile::tempdir().unwrap();
    let paths = [scratch.path().to_owned()];
    let files = Arc::new(FlashFiles::open(&paths, "flintkv-test.log", 16 * MIB).unwrap());
    for which in [FlashIo::Uring, FlashIo::Threads] {
        test(open_driver(&files, which, &ThreadPool::new(4)).unwrap());
    }
}

fn push_read(driver: &mut dyn Driver, token: u64) {
    let offset = DATA_OFFSET + token * 7919 % 4096 * 4096;
    driver.push(Op { token, path: 0, offset, kind: OpKind::Read(PageBuf::new(1)) });
}

/// Only a lost wake-up takes this long.
const HANGS: Duration = Duration::from_secs(60);

fn readable(fd: RawFd, patience: Duration) -> bool {
    // SAFETY: the descriptor belongs to the driver, which outlives the call.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let timeout = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: 0 };
    loop {
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)) {
            Ok(count) => return count > 0,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => panic!("{errno}"),
        }
    }
}

#[test]
fn the_descriptor_is_readable_until_its_completions_are_reaped() {
    drivers(|mut driver| {
        let fd = driver.wake_fd().unwrap();
        let mut done = Vec::new();
        for round in 0..200 {
            assert!(!readable(fd, Duration::ZERO));
            push_read(&mut *driver, round);
            driver.submit();
            while done.is_empty() {
                assert!(readable(fd, HANGS), "a wake-up is lost");
                driver.reap(&mut done);
            }
            done.clear();
            // The signal of the completion that was just reaped may be left over, once.
            driver.reap(&mut done);
        }
    });
}

/// Like a worker's loop, with tokio's edge-triggered descriptor: batches of every size, more submitted while others are
/// in flight, and a sleep whenever nothing is there.
#[test]
fn tokio_is_woken_for_every_completion() {
    drivers(|mut driver| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let fd = driver.wake_fd().unwrap();
            // SAFETY: the descriptor belongs to the driver, which is dropped after `wake`.
            let wake = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.unwrap();
            let mut done = Vec::new();
            let (mut pushed, mut completed, mut sleeps) = (0, 0, 0);
            while completed < 20_000 {
                for _ in 0..pushed % 37 + 1 {
                    push_read(&mut *driver, pushed);
                    pushed += 1;
                }
                driver.submit();
                while driver.in_flight() > 100 || (completed >= 15_000 && driver.in_flight() > 0) {
                    let mut ready =
                        tokio::time::timeout(HANGS, wake.readable()).await.expect("a wake-up is lost").unwrap();
                    // Before reaping, so that an edge from here on counts.
                    ready.clear_ready();
                    driver.reap(&mut done);
                    completed += done.len();
                    done.clear();
                    sleeps += 1;
                }
            }
            assert!(sleeps > 100);
        });
    });
}

/// A synchronous wait takes completions out of the kernel. reap must return all of them.
#[test]
fn a_wait_between_wake_ups_loses_nothing() {
    drivers(|mut driver| {
        let fd = driver.wake_fd().unwrap();
        let mut done = Vec::new();
        for round in 0..500 {
            for read in 0..8 {
                push_read(&mut *driver, round * 8 + read);
            }
            driver.submit();
            driver.wait();
            driver.reap(&mut done);
            assert!(!done.is_empty());
            while driver.in_flight() > 0 {
                assert!(readable(fd, HANGS), "a wake-up is lost");
                driver.reap(&mut done);
            }
            assert_eq!(done.len(), 8);
            done.clear();
        }
    });
}
