//! Owns one io_uring ring: the operations in the kernel's hands and the buffers it reads and writes.
//! Never knows a page's content; never lets go of a buffer the kernel may still touch.
//!
//! A ring belongs to the thread that created it (`SINGLE_ISSUER`), which is also the only one to be
//! told of completions. That is what makes it cheap: the kernel needs no locks, interrupts nobody,
//! and runs the completions when the thread comes to fetch them (`DEFER_TASKRUN`).

use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::event::EventfdFlags;
use rustix::fs::FallocateFlags;
use store::io::{Done, Driver, Op, OpKind};

use crate::files::FlashFiles;
use crate::transfer::{Step, Transfer};

/// Operations in the kernel at a time, if the caller has no opinion. Above what a device needs to be
/// busy; more than that would only wait there instead of here.
pub const DEPTH: u32 = 256;

/// How long to wait before the kernel is asked again for memory it did not have.
const NO_MEMORY_PAUSE: Duration = Duration::from_millis(1);

pub struct Uring {
    ring: IoUring,
    files: Arc<FlashFiles>,
    event: OwnedFd,
    /// One per operation in the kernel; the index is the operation's `user_data`.
    slots: Vec<Option<InFlight>>,
    free: Vec<usize>,
    /// Operations beyond the depth, oldest first.
    queue: VecDeque<InFlight>,
    /// Completed while something else was waited for.
    ready: Vec<Done>,
    /// When the operations pushed since the last submit came in: one look at the clock for all.
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
    /// To be called on the thread that will use the driver. An error means that the kernel, a seccomp
    /// filter or a limit does not allow io_uring here.
    pub fn new(files: Arc<FlashFiles>, depth: u32) -> io::Result<Uring> {
        assert!(depth > 0);
        let ring = build_ring(depth)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::Read::CODE,
            opcode::Write::CODE,
            opcode::Fallocate::CODE,
        ];
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

    /// Hands the kernel what is in the submission ring, and waits for `want` completions.
    fn enter(&mut self, want: usize) -> io::Result<()> {
        loop {
            match self.ring.submit_and_wait(want) {
                // A kernel without SUBMIT_ALL stops after an operation it refuses; the rest is left.
                Ok(_) if self.ring.submission().is_empty() => return Ok(()),
                Ok(_) => {}
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    // No memory for more operations, or more completions than it can hold.
                    Some(libc::EAGAIN | libc::EBUSY) => std::thread::sleep(NO_MEMORY_PAUSE),
                    _ => return Err(error),
                },
            }
            if !self.ring.completion().is_empty() {
                // What was not taken goes with the next call: completions that are there wake the owner.
                return Ok(());
            }
        }
    }

    /// Settles every completion in the ring. Operations that moved a part, and operations that waited
    /// for a slot, are started at once.
    fn collect(&mut self, done: &mut Vec<Done>) {
        if self.ring.submission().taskrun() {
            // Completions wait in the kernel until the thread comes for them.
            self.enter(0).expect("the ring is ours and open");
        }
        let (_, mut submission, mut completion) = self.ring.split();
        if completion.is_empty() {
            return;
        }
        let now = Instant::now();
        for entry in &mut completion {
            let index = entry.user_data() as usize;
            let slot = self.slots[index]
                .as_mut()
                .expect("a completion is of an operation in flight");
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
                mem::replace(&mut self.slots[index], self.queue.pop_front())
                    .expect("looked at above");
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
                OpKind::Discard { .. } => None,
            };
            let nanos = now.duration_since(start).as_nanos() as u64;
            done.push(Done {
                token: op.token,
                result,
                buf,
                nanos,
            });
        }
        let started = !submission.is_empty();
        drop((submission, completion));
        if started {
            self.enter(0).expect("the ring is ours and open");
        }
    }

    /// Puts an operation into a free slot and the submission ring; the kernel sees it at the next enter.
    fn start(&mut self, index: usize, mut operation: InFlight) {
        let entry = operation.entry(&self.files, index);
        self.slots[index] = Some(operation);
        // SAFETY: the buffer belongs to the slot, which keeps it until the kernel has answered; a
        // PageBuf's memory does not move with it. Drop waits for every slot. The safe version would
        // be a copy of every page through memory registered with the ring.
        unsafe { self.ring.submission().push(&entry) }
            .expect("the submission ring has an entry for every slot");
    }
}

impl Driver for Uring {
    fn push(&mut self, op: Op) {
        self.files.assert_inside(&op);
        let start = *self.batch_start.get_or_insert_with(Instant::now);
        let transfer = match &op.kind {
            OpKind::Read(buf) => Transfer::read(buf.len()),
            OpKind::Write(buf) => Transfer::write(buf.len()),
            OpKind::Discard { .. } => Transfer::write(0),
        };
        let operation = InFlight {
            op,
            transfer,
            start,
        };
        match self.free.pop() {
            Some(index) => self.start(index, operation),
            None => self.queue.push_back(operation),
        }
    }

    fn submit(&mut self) {
        self.batch_start = None;
        if !self.ring.submission().is_empty() {
            self.enter(0).expect("the ring is ours and open");
        }
    }

    fn reap(&mut self, done: &mut Vec<Done>) {
        // Before looking: what completes from here on signals again.
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
        done.append(&mut self.ready);
        self.collect(done);
    }

    fn wait(&mut self) {
        self.batch_start = None;
        let mut ready = mem::take(&mut self.ready);
        while ready.is_empty() && self.in_kernel() > 0 {
            if self.ring.completion().is_empty() {
                self.enter(1).expect("the ring is ours and open");
            }
            self.collect(&mut ready);
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
    /// Waits until the kernel has let go of every buffer. Closing the ring would not: the kernel
    /// finishes what it began after the process has reused the memory.
    fn drop(&mut self) {
        self.queue.clear();
        while self.in_kernel() > 0 {
            if self.ring.completion().is_empty() && self.enter(1).is_err() {
                tracing::error!("io_uring does not answer; the buffers in flight are given up");
                mem::forget(mem::take(&mut self.slots));
                return;
            }
            self.collect(&mut Vec::new());
        }
    }
}

impl InFlight {
    fn entry(&mut self, files: &FlashFiles, index: usize) -> squeue::Entry {
        let fd = types::Fixed(u32::from(self.op.path));
        let moved = self.transfer.moved;
        // A PageBuf is at most a segment, so what is left fits into 32 bits.
        let left = (self.transfer.bytes - moved) as u32;
        let offset = self.op.offset + moved as u64;
        let entry = match &mut self.op.kind {
            OpKind::Read(buf) => opcode::Read::new(fd, buf[moved..].as_mut_ptr(), left)
                .offset(offset)
                .build(),
            OpKind::Write(buf) => opcode::Write::new(fd, buf[moved..].as_ptr(), left)
                .offset(offset)
                .build(),
            OpKind::Discard { bytes } if files.discards(self.op.path) => {
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                opcode::Fallocate::new(fd, *bytes)
                    .offset(offset)
                    .mode(mode.bits() as i32)
                    .build()
            }
            // Nothing to do, but its completion comes the way every other does.
            OpKind::Discard { .. } => opcode::Nop::new().build(),
        };
        entry.user_data(index as u64)
    }

    fn settle(&mut self, answer: i32) -> Step {
        let answer = match answer {
            0.. => Ok(answer as usize),
            _ => Err(io::Error::from_raw_os_error(-answer)),
        };
        match self.op.kind {
            OpKind::Discard { .. } => Step::Finished(answer.map(|_| ())),
            _ => self.transfer.advance(answer),
        }
    }
}

/// The cheapest ring this kernel has: 6.1 knows all flags, 5.19 all but the deferral, 5.6 none.
fn build_ring(depth: u32) -> io::Result<IoUring> {
    let refused_flags = |error: &io::Error| error.raw_os_error() == Some(libc::EINVAL);
    let deferred = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_submit_all()
        .dontfork()
        .build(depth);
    if !deferred.as_ref().is_err_and(refused_flags) {
        return deferred;
    }
    let cooperative = IoUring::builder()
        .setup_coop_taskrun()
        .setup_taskrun_flag()
        .setup_submit_all()
        .dontfork()
        .build(depth);
    if !cooperative.as_ref().is_err_and(refused_flags) {
        return cooperative;
    }
    IoUring::builder().dontfork().build(depth)
}
