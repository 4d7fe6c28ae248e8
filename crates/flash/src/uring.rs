//! Owns one io_uring ring: the operations in flight and their buffers. Never knows a page's content. Never frees a
//! buffer that the kernel may still touch.
//!
//! A ring belongs to the thread that created it (`SINGLE_ISSUER`), and only that thread receives completions. This
//! makes the ring cheap: the kernel needs no locks, sends no interrupts, and runs the completions when the thread
//! fetches them (`DEFER_TASKRUN`).

use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::io::{Done, Driver, Op, OpKind};
use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::event::EventfdFlags;
use rustix::fs::FallocateFlags;

use crate::files::FlashFiles;
use crate::transfer::{Step, Transfer};

/// The default number of operations in the kernel at a time. It is above what keeps a device busy. With more,
/// operations would wait in the kernel instead of here.
pub const DEPTH: u32 = 256;

/// The pause before the kernel is asked again for memory that it did not have.
const NO_MEMORY_PAUSE: Duration = Duration::from_millis(1);

/// A kernel thread starts operations of this size and more. Starting an operation takes time in proportion to its
/// memory (one request per 4 KiB to 1 MiB), which the worker would otherwise spend inside its submit: 38 µs for 256
/// KiB, 80 µs for 1 MiB, 1.1 ms for 16 MiB were measured, against 5 to 14 µs when handed over. The total processor time
/// is the same from 256 KiB on, and half as much again for 64 KiB.
const HANDED_OVER_BYTES: u32 = 256 << 10;

const RING_WORKS: &str = "the ring is this thread's own and open";

pub struct Uring {
    ring: IoUring,
    files: Arc<FlashFiles>,
    event: OwnedFd,
    /// One slot for each operation in the kernel. The index is the operation's `user_data`.
    slots: Vec<Option<InFlight>>,
    free: Vec<usize>,
    /// Operations beyond the depth, oldest first.
    queue: VecDeque<InFlight>,
    /// Operations that completed while the caller waited for something else.
    ready: Vec<Done>,
    /// When the operations since the last submit were pushed: one clock reading for all of them.
    batch_start: Option<Instant>,
    /// The kernel refuses every other thread.
    _not_send: PhantomData<*const ()>,
}

struct InFlight {
    op: Op,
    transfer: Transfer,
    start: Instant,
}

impl Uring {
    /// Call this on the thread that will use the driver. An error means that the kernel, a seccomp filter or a limit
    /// does not allow io_uring.
    pub fn new(files: Arc<FlashFiles>, depth: u32) -> io::Result<Uring> {
        assert!(depth > 0);
        Uring::over(build_ring(depth)?, files, depth)
    }

    fn over(ring: IoUring, files: Arc<FlashFiles>, depth: u32) -> io::Result<Uring> {
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [opcode::Read::CODE, opcode::Write::CODE, opcode::Fallocate::CODE, opcode::Fsync::CODE];
        if !needed.iter().all(|&code| probe.is_supported(code)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        ring.submitter().register_files(&files.raw_fds())?;
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        ring.submitter().register_eventfd(event.as_raw_fd())?;
        let depth = depth as usize;
        Ok(Uring {
            ring,
            files,
            event,
            slots: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            queue: VecDeque::new(),
            ready: Vec::new(),
            batch_start: None,
            _not_send: PhantomData,
        })
    }

    fn in_kernel(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Submits the content of the submission ring, and waits for `want` completions.
    fn enter(&mut self, want: usize) -> io::Result<()> {
        loop {
            match self.ring.submit_and_wait(want) {
                // A kernel without SUBMIT_ALL stops after an operation that it refuses, and leaves the rest.
                Ok(_) if self.ring.submission().is_empty() => return Ok(()),
                Ok(_) => {}
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    // The kernel has no memory for more operations, or the ring has no room for more completions.
                    Some(libc::EAGAIN | libc::EBUSY) => std::thread::sleep(NO_MEMORY_PAUSE),
                    _ => return Err(error),
                },
            }
            if !self.ring.completion().is_empty() {
                // The next call submits the rest: the completions that are there wake the owner.
                return Ok(());
            }
        }
    }

    /// Makes the kernel move the completions that it holds for this thread into the ring.
    fn fetch(&mut self) -> io::Result<()> {
        if self.ring.submission().taskrun() { self.enter(0) } else { Ok(()) }
    }

    /// Handles every completion in the ring. Operations that moved only a part, and operations that waited for a slot,
    /// are started at once.
    fn collect(&mut self, done: &mut Vec<Done>) -> io::Result<()> {
        self.fetch()?;
        let (_, mut submission, mut completion) = self.ring.split();
        if completion.is_empty() {
            return Ok(());
        }
        let now = Instant::now();
        for entry in &mut completion {
            let index = entry.user_data() as usize;
            let slot = self.slots[index].as_mut().expect("a completion is of an operation in flight");
            let result = match slot.settle(entry.result()) {
                Step::Again => {
                    // SAFETY: as in `start`.
                    unsafe { submission.push(&slot.entry(&self.files, index)) }
                        .expect("the submission ring has an entry for every slot");
                    continue;
                }
                Step::Finished(result) => result,
            };
            let InFlight { op, start, .. } =
                mem::replace(&mut self.slots[index], self.queue.pop_front()).expect("looked at above");
            match &mut self.slots[index] {
                Some(next) => {
                    // SAFETY: as in `start`.
                    unsafe { submission.push(&next.entry(&self.files, index)) }
                        .expect("the submission ring has an entry for every slot");
                }
                None => self.free.push(index),
            }
            let buf = match op.kind {
                OpKind::Read(buf) | OpKind::Write(buf) => Some(buf),
                OpKind::Discard { .. } | OpKind::Sync => None,
            };
            let nanos = now.duration_since(start).as_nanos() as u64;
            done.push(Done { token: op.token, result, buf, nanos });
        }
        let started = !submission.is_empty();
        drop((submission, completion));
        if started { self.enter(0) } else { Ok(()) }
    }

    /// Puts an operation into a free slot and into the submission ring. The kernel sees it at the next enter.
    fn start(&mut self, index: usize, mut operation: InFlight) {
        let entry = operation.entry(&self.files, index);
        self.slots[index] = Some(operation);
        // SAFETY: the slot owns the buffer until the kernel has answered, and a PageBuf's memory does not move with it.
        // Drop waits for every slot. The safe version would copy every page through memory registered with the ring.
        unsafe { self.ring.submission().push(&entry) }.expect("the submission ring has an entry for every slot");
    }
}

impl Driver for Uring {
    fn push(&mut self, op: Op) {
        self.files.assert_inside(&op);
        let start = *self.batch_start.get_or_insert_with(Instant::now);
        let transfer = match &op.kind {
            OpKind::Read(buf) => Transfer::read(buf.len()),
            OpKind::Write(buf) => Transfer::write(buf.len()),
            OpKind::Discard { .. } | OpKind::Sync => Transfer::write(0),
        };
        let operation = InFlight { op, transfer, start };
        match self.free.pop() {
            Some(index) => self.start(index, operation),
            None => self.queue.push_back(operation),
        }
    }

    fn submit(&mut self) {
        self.batch_start = None;
        if !self.ring.submission().is_empty() {
            self.enter(0).expect(RING_WORKS);
        }
    }

    fn reap(&mut self, done: &mut Vec<Done>) {
        // Fetching completions also signals, so fetch before reading the event; otherwise every wake-up would cause one
        // more for nothing. `collect` handles completions that signalled between the two calls, and signals from here
        // on are not lost.
        self.fetch().expect(RING_WORKS);
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
        done.append(&mut self.ready);
        self.collect(done).expect(RING_WORKS);
    }

    fn wait(&mut self) {
        self.batch_start = None;
        let mut ready = mem::take(&mut self.ready);
        while ready.is_empty() && self.in_kernel() > 0 {
            if self.ring.completion().is_empty() {
                self.enter(1).expect(RING_WORKS);
            }
            self.collect(&mut ready).expect(RING_WORKS);
        }
        self.ready = ready;
    }

    fn wake_fd(&self) -> Option<RawFd> {
        Some(self.event.as_fd().as_raw_fd())
    }

    fn in_flight(&self) -> usize {
        self.in_kernel() + self.queue.len() + self.ready.len()
    }
}

impl Drop for Uring {
    /// Waits until the kernel has released every buffer. Closing the ring is not enough: the kernel finishes operations
    /// after the process has reused the memory.
    fn drop(&mut self) {
        self.queue.clear();
        while self.in_kernel() > 0 {
            let answered = self.enter(1).and_then(|()| self.collect(&mut Vec::new()));
            if let Err(error) = answered {
                tracing::error!("io_uring fails ({error}); the buffers in flight are leaked");
                mem::forget(mem::take(&mut self.slots));
                return;
            }
        }
        // The kernel destroys a ring some time after it is closed, and holds the files' locks until then.
        let _ = self.ring.submitter().unregister_files();
    }
}

impl InFlight {
    fn entry(&mut self, files: &FlashFiles, index: usize) -> squeue::Entry {
        let fd = types::Fixed(u32::from(self.op.path));
        let moved = self.transfer.moved;
        // A PageBuf is at most a segment, so the remaining length fits into 32 bits.
        let left = (self.transfer.bytes - moved) as u32;
        let offset = self.op.offset + moved as u64;
        let entry = match &mut self.op.kind {
            OpKind::Read(buf) => opcode::Read::new(fd, buf[moved..].as_mut_ptr(), left).offset(offset).build(),
            OpKind::Write(buf) => opcode::Write::new(fd, buf[moved..].as_ptr(), left).offset(offset).build(),
            OpKind::Discard { bytes } if files.discards(self.op.path) => {
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                opcode::Fallocate::new(fd, *bytes).offset(offset).mode(mode.bits() as i32).build()
            }
            // There is nothing to do, but the completion must come in the usual way.
            OpKind::Discard { .. } => opcode::Nop::new().build(),
            OpKind::Sync => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
        };
        let entry = if left >= HANDED_OVER_BYTES { entry.flags(squeue::Flags::ASYNC) } else { entry };
        entry.user_data(index as u64)
    }

    fn settle(&mut self, answer: i32) -> Step {
        let answer = match answer {
            0.. => Ok(answer as usize),
            _ => Err(io::Error::from_raw_os_error(-answer)),
        };
        match self.op.kind {
            OpKind::Discard { .. } | OpKind::Sync => Step::Finished(answer.map(|_| ())),
            _ => self.transfer.advance(answer),
        }
    }
}

/// The features that make a ring cheaper, best first.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// Linux 6.1: completions run when the owner fetches them.
    Deferred,
    /// Linux 5.19: completions run with the owner's next system call, without an interrupt.
    Cooperative,
    /// Linux 5.6.
    Plain,
}

fn build_ring(depth: u32) -> io::Result<IoUring> {
    let unknown_flags = |error: &io::Error| error.raw_os_error() == Some(libc::EINVAL);
    for kind in [Kind::Deferred, Kind::Cooperative] {
        let ring = build_ring_of(kind, depth);
        if !ring.as_ref().is_err_and(unknown_flags) {
            return ring;
        }
    }
    build_ring_of(Kind::Plain, depth)
}

fn build_ring_of(kind: Kind, depth: u32) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.dontfork();
    match kind {
        Kind::Deferred => builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().setup_submit_all(),
        Kind::Cooperative => builder.setup_coop_taskrun().setup_taskrun_flag().setup_submit_all(),
        Kind::Plain => &mut builder,
    };
    builder.build(depth)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::PageBuf;
    use crate::superblock::DATA_OFFSET;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    /// Sleeps on the wake descriptor until something is done. A minute without a wake-up means that one was lost.
    fn sleep_and_reap(driver: &mut Uring) -> Vec<Done> {
        let mut done = Vec::new();
        while done.is_empty() {
            let timeout = Timespec { tv_sec: 60, tv_nsec: 0 };
            match poll(&mut [PollFd::new(&driver.event, PollFlags::IN)], Some(&timeout)) {
                Ok(0) => panic!("a wake-up is lost"),
                Ok(_) | Err(rustix::io::Errno::INTR) => driver.reap(&mut done),
                Err(errno) => panic!("{errno}"),
            }
        }
        done
    }

    /// Older kernels support other kinds of rings. All must read and wake in the same way.
    #[test]
    fn every_kind_of_ring_carries_out_and_wakes() {
        let scratch = tempfile::tempdir().unwrap();
        let paths = [scratch.path().to_owned()];
        let files = Arc::new(FlashFiles::open(&paths, "log", 16 << 20).unwrap());
        for kind in [Kind::Deferred, Kind::Cooperative, Kind::Plain] {
            let driver = &mut Uring::over(build_ring_of(kind, 8).unwrap(), files.clone(), 8).unwrap();
            let push = |driver: &mut Uring, token: u64, kind| {
                let offset = DATA_OFFSET + token * 4096;
                driver.push(Op { token, path: 0, offset, kind });
            };
            let mut large = PageBuf::new(1024);
            large.chunks_exact_mut(4096).zip(0u64..).for_each(|(page, at)| page.fill(at as u8));
            push(driver, 0, OpKind::Write(large));
            driver.submit();
            for done in sleep_and_reap(driver) {
                done.result.unwrap();
            }
            for round in 0..100 {
                for token in round..round + round % 20 + 1 {
                    push(driver, token, OpKind::Read(PageBuf::new(1)));
                }
                driver.submit();
                while driver.in_flight() > 0 {
                    for done in sleep_and_reap(driver) {
                        done.result.unwrap();
                        assert!(done.buf.unwrap().iter().all(|&byte| byte == done.token as u8));
                    }
                }
            }
        }
    }

    #[test]
    fn a_sync_is_an_fdatasync_of_the_path_s_file() {
        let scratch = tempfile::tempdir().unwrap();
        let files = FlashFiles::open(&[scratch.path().to_owned()], "log", 1 << 20).unwrap();
        let op = Op { token: 1, path: 0, offset: 0, kind: OpKind::Sync };
        let mut sync = InFlight { op, transfer: Transfer::write(0), start: Instant::now() };
        let asked = format!("{:?}", sync.entry(&files, 0));
        assert!(asked.contains(&format!("op_code: {},", opcode::Fsync::CODE)), "{asked}");
        assert!(matches!(sync.settle(-libc::EIO), Step::Finished(Err(_))));
    }

    #[test]
    fn what_was_pushed_and_never_submitted_is_dropped_with_the_driver() {
        let scratch = tempfile::tempdir().unwrap();
        let paths = [scratch.path().to_owned()];
        let files = Arc::new(FlashFiles::open(&paths, "log", 16 << 20).unwrap());
        let mut driver = Uring::new(files.clone(), 4).unwrap();
        for token in 0..100 {
            let kind = OpKind::Read(PageBuf::new(1));
            driver.push(Op { token, path: 0, offset: DATA_OFFSET, kind });
        }
        assert_eq!(driver.in_flight(), 100);
        drop(driver);
        assert_eq!(Arc::strong_count(&files), 1);
    }

    /// The kernel destroys a closed ring later, when it has time. The files must not stay locked until then.
    #[test]
    fn a_dropped_driver_lets_go_of_the_files_at_once() {
        let scratch = tempfile::tempdir().unwrap();
        let paths = [scratch.path().to_owned()];
        for _ in 0..10 {
            let files = Arc::new(FlashFiles::open(&paths, "log", 1 << 20).unwrap());
            let mut driver = Uring::new(files.clone(), 4).unwrap();
            let kind = OpKind::Read(PageBuf::new(1));
            driver.push(Op { token: 1, path: 0, offset: DATA_OFFSET, kind });
            driver.submit();
            drop((driver, files));
            let log = std::fs::File::open(scratch.path().join("log")).unwrap();
            rustix::fs::flock(&log, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
        }
    }
}
