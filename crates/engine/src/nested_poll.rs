//! Owns serving a thread's connections while the thread is blocked: by its own script, or by a stripe that another
//! worker's busy script holds. Never knows a command or a protocol.
//!
//! The runtime cannot continue below a task that does not return. But the other tasks can: each is in a `TaskSlot`.
//! Normally the runtime polls the task slots. While the thread is blocked, the thread itself polls them from time to time
//! ([`pass`]). The tasks run their usual code. While a script is busy, having run longer than `busy-reply-threshold`, `admit` answers
//! nearly every command with BUSY, and no command that runs then uses the busy database's store. Before that, `admit` lets commands
//! run that read one key whose stripe is free, and small ones without keys; the others wait.
//!
//! The thread has tasks that belong to no worker, such as its links to other nodes ([`beside_scripts`]). They are polled too: otherwise the
//! clients that come over a link would get nothing, and the other node would take the link for dead.
//!
//! Two things are different. Only tasks that wait for their client and for nothing else are polled. And their sockets
//! are tried by system call, since the runtime does not learn which sockets are ready. The runtime gets these events
//! afterwards.

use crate::local;
use crate::task_slot::{SlottedTask, TaskSlots};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use tokio::io::ReadBuf;
use tokio::task::coop::unconstrained;

thread_local! {
    /// A pass is in progress on this thread.
    static IS_ON: Cell<bool> = const { Cell::new(false) };
    /// The tasks that belong to no worker.
    static TASKS: TaskSlots = TaskSlots::default();
}

/// Makes a task of this thread go on while a script blocks the thread. Its timers do not fire meanwhile, and its sockets must be
/// [`crate::PolledSocket`]s. It must not use a store.
pub fn beside_scripts(task: impl Future<Output = ()> + 'static) -> SlottedTask {
    TASKS.with(|tasks| tasks.take(|_| task))
}

/// Whether the blocked thread is polling in place of the runtime.
#[inline]
pub fn is_on() -> bool {
    IS_ON.get()
}

/// Lets the tasks of this thread continue, if the next pass is due: first those that bring bytes to connections. What the connections of
/// the script's database get, `admit` says. Connections of the other databases are served.
#[cold]
pub fn pass() {
    if is_on() {
        return;
    }
    IS_ON.set(true);
    TASKS.with(poll_if_due);
    local::workers().iter().for_each(|worker| poll_if_due(&worker.task_slots));
    IS_ON.set(false);
}

fn poll_if_due(task_slots: &TaskSlots) {
    if !task_slots.is_due() {
        return;
    }
    // Give polled tasks their own tokio coop budget, not the remainder of the blocked task's.
    let all = pin!(unconstrained(poll_fn(|_| {
        task_slots.poll_open_ones();
        Poll::Ready(())
    })));
    let _ = all.poll(&mut Context::from_waker(Waker::noop()));
}

/// The store calls this while it waits for a stripe.
pub fn pass_while_waiting() {
    let busy: Vec<_> =
        local::workers().into_iter().filter(|worker| worker.hub.scripts.busy.load(Relaxed) > 0).collect();
    if busy.is_empty() {
        return;
    }
    // Count as busy until the pass is over, so that commands which arrive during the pass are refused.
    busy.iter().for_each(|worker| _ = worker.hub.scripts.busy.fetch_add(1, Relaxed));
    pass();
    busy.iter().for_each(|worker| _ = worker.hub.scripts.busy.fetch_sub(1, Relaxed));
}

// --- sockets, tried while the runtime does not know whether they are ready ---

/// `polled`: the runtime's result.
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
        // The waker is registered, because the runtime was asked just before.
        Err(Errno::AGAIN | Errno::INTR) => Poll::Pending,
        result => Poll::Ready(result.map_err(io::Error::from)),
    }
}
