//! Owns how a worker's connections are served while its thread is held up: by a script of its own that runs longer
//! than `busy-reply-threshold`, or by a stripe that another worker's such script holds.
//! Never knows a command or a protocol.
//!
//! The runtime cannot go on below a task that does not return, but the other tasks can: each lies in a [`Seat`], which
//! the runtime polls, and in its place the held-up thread itself, now and then ([`pass`]). They go their usual way;
//! `worker::admit` answers nearly everything with BUSY, and nothing that runs then uses the busy database's store. Two things are
//! different: only those are polled that wait for their client and for nothing else, and their sockets are tried, since
//! the runtime does not learn meanwhile which of them are ready. What it would have told them it tells them afterwards.

use crate::thread::Worker;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::cell::{Cell, OnceCell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};
use tokio::io::ReadBuf;
use tokio::task::coop::unconstrained;

/// Between two passes, at least: every connection costs one a system call.
const INTERVAL: Duration = Duration::from_millis(5);
/// Passes take one part in so many of the time, however many connections there are.
const SHARE: u32 = 10;

thread_local! {
    /// A pass is under way on this thread.
    static IS_ON: Cell<bool> = const { Cell::new(false) };
    /// Those of this thread, one for each database.
    static WORKERS: RefCell<Vec<Weak<Worker>>> = const { RefCell::new(Vec::new()) };
}

/// Whether a held-up thread polls in the runtime's place.
#[inline]
pub fn is_on() -> bool {
    IS_ON.get()
}

/// The tasks of a worker that may go on while its thread is held up.
#[derive(Default)]
pub struct Seats {
    all: RefCell<Vec<Weak<Seat>>>,
    /// Not before then.
    next: Cell<Option<Instant>>,
}

pub struct Seat {
    /// None: it has ended.
    task: RefCell<Option<Pin<Box<dyn Future<Output = ()>>>>>,
    /// The runtime's, once that has polled it.
    waker: OnceCell<Waker>,
    /// It may be polled by a stand-in: it waits for its client and for nothing else.
    open: Open,
    /// It has, under a stand-in; what its end takes is the runtime's.
    has_ended: Cell<bool>,
}

pub type Open = Rc<Cell<bool>>;

/// A task as the runtime has it.
pub struct Seated(Rc<Seat>);

impl Seats {
    /// `open`: by it the task says whether it may be polled by a stand-in.
    pub fn take(&self, open: Open, task: impl Future<Output = ()> + 'static) -> Seated {
        let seat = Rc::new(Seat {
            task: RefCell::new(Some(Box::pin(task))),
            waker: OnceCell::new(),
            open,
            has_ended: Cell::new(false),
        });
        let mut all = self.all.borrow_mut();
        if all.len() == all.capacity() {
            all.retain(|seat| seat.strong_count() > 0);
        }
        all.push(Rc::downgrade(&seat));
        Seated(seat)
    }

    fn is_due(&self) -> bool {
        self.next.get().is_none_or(|next| next <= Instant::now())
    }

    fn poll_open_ones(&self) {
        let begun = Instant::now();
        let mut at = 0;
        loop {
            // Looked up one by one: a task that is polled may begin others.
            let Some(seat) = self.all.borrow().get(at).map(Weak::upgrade) else { break };
            if let Some(seat) = seat.filter(|seat| seat.open.get()) {
                seat.poll_out_of_turn();
            }
            at += 1;
        }
        self.next.set(Some(Instant::now() + INTERVAL.max(begun.elapsed() * SHARE)));
    }
}

impl Seat {
    fn poll_out_of_turn(&self) {
        // The one that holds up the thread is being polled.
        let Ok(mut task) = self.task.try_borrow_mut() else { return };
        let Some(future) = task.as_mut() else { return };
        // One that has just begun has no waker yet; the runtime is about to poll it.
        let mut cx = Context::from_waker(self.waker.get().unwrap_or(Waker::noop()));
        // As in the runtime, a task that panics ends alone. Below are a script's frames, which must not be unwound.
        let ended = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut cx).is_ready()));
        if ended.unwrap_or(true) {
            self.open.set(false);
            self.has_ended.set(true);
            cx.waker().wake_by_ref();
        }
    }
}

impl Future for Seated {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let seat = &self.0;
        seat.waker.get_or_init(|| cx.waker().clone());
        let mut task = seat.task.borrow_mut();
        let Some(future) = task.as_mut() else { return Poll::Ready(()) };
        if !seat.has_ended.get() {
            ready!(future.as_mut().poll(cx));
        }
        *task = None;
        Poll::Ready(())
    }
}

/// To be called once for each worker, on its thread.
pub fn begin(worker: &Rc<Worker>) {
    WORKERS.with_borrow_mut(|workers| {
        workers.retain(|worker| worker.strong_count() > 0);
        workers.push(Rc::downgrade(worker));
    });
}

/// The workers of this thread.
fn workers() -> Vec<Rc<Worker>> {
    WORKERS.with_borrow(|workers| workers.iter().filter_map(Weak::upgrade).collect())
}

/// Lets the connections of this thread go on, if it is time: those of the busy database, which get BUSY, and those of the
/// others, which are served. A script is busy, as the caller has seen to.
#[cold]
pub fn pass() {
    if is_on() {
        return;
    }
    IS_ON.set(true);
    for worker in workers().into_iter().filter(|worker| worker.seats.is_due()) {
        // What tasks may do at a time is not to be taken from what the held-up task has left.
        let all = pin!(unconstrained(poll_fn(|_| {
            worker.seats.poll_open_ones();
            Poll::Ready(())
        })));
        let _ = all.poll(&mut Context::from_waker(Waker::noop()));
    }
    IS_ON.set(false);
}

/// What the store calls while a stripe is not to be had.
pub fn pass_while_waiting() {
    let busy: Vec<_> = workers().into_iter().filter(|worker| worker.hub.scripts.busy.load(Relaxed) > 0).collect();
    if busy.is_empty() {
        return;
    }
    // Until the pass is over: what it meets must not run.
    busy.iter().for_each(|worker| _ = worker.hub.scripts.busy.fetch_add(1, Relaxed));
    pass();
    busy.iter().for_each(|worker| _ = worker.hub.scripts.busy.fetch_sub(1, Relaxed));
}

// --- sockets, tried where the runtime does not know whether they are ready ---

/// `polled`: what the runtime says.
#[inline]
pub fn read(socket: impl AsFd, buf: &mut ReadBuf<'_>, polled: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
    if polled.is_ready() || !is_on() {
        return polled;
    }
    let received = rustix::net::recv(socket, buf.initialize_unfilled(), RecvFlags::DONTWAIT);
    tried(received).map_ok(|(count, _)| buf.advance(count))
}

#[inline]
pub fn write(socket: impl AsFd, bytes: &[u8], polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
    if polled.is_ready() || !is_on() {
        return polled;
    }
    tried(rustix::net::send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL))
}

fn tried<T>(result: Result<T, Errno>) -> Poll<io::Result<T>> {
    match result {
        // Its waker is registered: the runtime has just been asked.
        Err(Errno::AGAIN | Errno::INTR) => Poll::Pending,
        result => Poll::Ready(result.map_err(io::Error::from)),
    }
}
