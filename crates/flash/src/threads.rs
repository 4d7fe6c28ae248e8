//! Owns the threads that carry out operations with pread and pwrite where io_uring is not allowed. Never knows a page's
//! content. All drivers of a node share the threads; each driver has its own completions.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crate::io::{Blocking, Done, Driver, Op, OpKind, PageBuf, Reader};
use parking_lot::{Condvar, Mutex};
use rustix::event::EventfdFlags;

use crate::files::{self, FlashFiles};
use crate::transfer::{Step, Transfer};

/// The device has at most this many operations at a time. The others wait in the pool's queue.
pub const THREADS: usize = 8;

/// The threads. The first driver starts them; they are joined when the last driver and handle are gone.
pub struct ThreadPool {
    count: usize,
    jobs: Arc<Jobs>,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

struct Jobs {
    queue: Mutex<Queue>,
    arrived: Condvar,
}

struct Queue {
    jobs: VecDeque<Job>,
    closed: bool,
}

struct Job {
    op: Op,
    start: Instant,
    files: Arc<FlashFiles>,
    reply_to: Arc<Completions>,
}

/// One driver's completed operations. Invariant: when the list becomes non-empty, the event is signalled afterwards.
/// The event is cleared before the list is emptied. So no signal is lost.
struct Completions {
    list: Mutex<Vec<Completed>>,
    arrived: Condvar,
    event: OwnedFd,
}

struct Completed {
    op: Op,
    start: Instant,
    result: io::Result<()>,
}

/// One worker's driver over the shared threads.
pub struct Threads {
    pool: Arc<ThreadPool>,
    files: Arc<FlashFiles>,
    completions: Arc<Completions>,
    /// Pushed and not submitted yet.
    batch: Vec<Op>,
    /// Submitted and not reaped yet.
    outstanding: usize,
    /// The completions being reaped. Empty between calls; kept for its allocation.
    arrived: Vec<Completed>,
}

impl ThreadPool {
    pub fn new(count: usize) -> Arc<ThreadPool> {
        assert!(count > 0);
        let queue = Mutex::new(Queue { jobs: VecDeque::new(), closed: false });
        let jobs = Arc::new(Jobs { queue, arrived: Condvar::new() });
        Arc::new(ThreadPool { count, jobs, handles: Mutex::new(Vec::new()) })
    }

    pub fn driver(self: &Arc<Self>, files: Arc<FlashFiles>) -> io::Result<Threads> {
        self.start()?;
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let list = Mutex::new(Vec::new());
        let completions = Arc::new(Completions { list, arrived: Condvar::new(), event });
        Ok(Threads { pool: self.clone(), files, completions, batch: Vec::new(), outstanding: 0, arrived: Vec::new() })
    }

    /// Fewer threads than asked for are enough; none is an error.
    fn start(&self) -> io::Result<()> {
        let mut handles = self.handles.lock();
        while handles.len() < self.count {
            let jobs = self.jobs.clone();
            let name = format!("flash-{}", handles.len());
            match thread::Builder::new().name(name).spawn(move || jobs.work()) {
                Ok(handle) => handles.push(handle),
                Err(error) if handles.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        Ok(())
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.jobs.queue.lock().closed = true;
        self.jobs.arrived.notify_all();
        for handle in self.handles.get_mut().drain(..) {
            if handle.join().is_err() {
                tracing::error!("a flash thread has panicked");
            }
        }
    }
}

impl Jobs {
    /// A thread's loop: it takes jobs until the queue is closed and empty.
    fn work(&self) {
        loop {
            let mut queue = self.queue.lock();
            let job = loop {
                match queue.jobs.pop_front() {
                    Some(job) => break job,
                    None if queue.closed => return,
                    None => self.arrived.wait(&mut queue),
                }
            };
            drop(queue);
            let Job { mut op, start, files, reply_to } = job;
            let result = run_operation(&files, &mut op);
            reply_to.deliver(Completed { op, start, result });
        }
    }
}

fn run_operation(files: &FlashFiles, op: &mut Op) -> io::Result<()> {
    let file = files.file(op.path);
    let offset = op.offset;
    match &mut op.kind {
        OpKind::Read(buf) => {
            repeat(Transfer::read(buf.len()), |moved| file.read_at(&mut buf[moved..], offset + moved as u64))
        }
        OpKind::Write(buf) => {
            repeat(Transfer::write(buf.len()), |moved| file.write_at(&buf[moved..], offset + moved as u64))
        }
        OpKind::Discard { bytes } if files.discards(op.path) => files::punch(file, offset, *bytes),
        OpKind::Discard { .. } => Ok(()),
        OpKind::Sync => file.sync_data(),
    }
}

impl Reader for FlashFiles {
    fn read(&self, path: u16, offset: u64, buf: &mut PageBuf) -> io::Result<()> {
        let file = self.file(path);
        repeat(Transfer::read(buf.len()), |moved| file.read_at(&mut buf[moved..], offset + moved as u64))
    }
}

impl Blocking for FlashFiles {
    fn write(&self, path: u16, offset: u64, buf: &PageBuf) -> io::Result<()> {
        let file = self.file(path);
        repeat(Transfer::write(buf.len()), |moved| file.write_at(&buf[moved..], offset + moved as u64))
    }
}

fn repeat(mut transfer: Transfer, mut from: impl FnMut(usize) -> io::Result<usize>) -> io::Result<()> {
    loop {
        let answer = from(transfer.moved);
        if let Step::Finished(result) = transfer.advance(answer) {
            return result;
        }
    }
}

impl Completions {
    fn deliver(&self, completed: Completed) {
        let mut list = self.list.lock();
        list.push(completed);
        let first = list.len() == 1;
        drop(list);
        if first {
            // Fails only if the counter is full, and then the event is signalled anyway.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
        self.arrived.notify_one();
    }
}

impl Driver for Threads {
    fn push(&mut self, op: Op) {
        self.files.assert_inside(&op);
        self.batch.push(op);
    }

    fn submit(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let start = Instant::now();
        let count = self.batch.len();
        let jobs = self.batch.drain(..).map(|op| Job {
            op,
            start,
            files: self.files.clone(),
            reply_to: self.completions.clone(),
        });
        self.pool.jobs.queue.lock().jobs.extend(jobs);
        for _ in 0..count.min(self.pool.count) {
            self.pool.jobs.arrived.notify_one();
        }
        self.outstanding += count;
    }

    fn reap(&mut self, done: &mut Vec<Done>) {
        if self.outstanding == 0 {
            return;
        }
        // Clear the event before the list is taken: see `Completions`.
        let _ = rustix::io::read(&self.completions.event, &mut [0; 8]);
        mem::swap(&mut self.arrived, &mut *self.completions.list.lock());
        if self.arrived.is_empty() {
            return;
        }
        let now = Instant::now();
        self.outstanding -= self.arrived.len();
        done.extend(self.arrived.drain(..).map(|Completed { op, start, result }| Done {
            token: op.token,
            result,
            buf: match op.kind {
                OpKind::Read(buf) | OpKind::Write(buf) => Some(buf),
                OpKind::Discard { .. } | OpKind::Sync => None,
            },
            nanos: now.duration_since(start).as_nanos() as u64,
        }));
    }

    fn wait(&mut self) {
        self.submit();
        let mut list = self.completions.list.lock();
        while list.is_empty() && self.outstanding > 0 {
            self.completions.arrived.wait(&mut list);
        }
    }

    fn wake_fd(&self) -> Option<RawFd> {
        Some(self.completions.event.as_fd().as_raw_fd())
    }

    fn in_flight(&self) -> usize {
        self.batch.len() + self.outstanding
    }
}

impl Drop for Threads {
    /// The buffers could outlive the driver safely. Waiting guarantees that nothing is written after the driver is
    /// gone.
    fn drop(&mut self) {
        self.batch.clear();
        let mut done = Vec::new();
        while self.outstanding > 0 {
            self.wait();
            self.reap(&mut done);
        }
    }
}
