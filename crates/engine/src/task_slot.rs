//! Owns the tasks of a worker's connections, each in a task slot: so that others than the runtime can poll them. Never knows
//! what a task does.

use std::cell::{Cell, OnceCell, RefCell};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

/// The least time between two passes: a pass costs one system call per connection.
const INTERVAL: Duration = Duration::from_millis(5);
/// Passes take at most 1/SHARE of the time, however many connections there are.
const SHARE: u32 = 10;

/// The tasks of a worker that may continue while its thread is blocked.
#[derive(Default)]
pub struct TaskSlots {
    all: RefCell<Vec<Weak<TaskSlot>>>,
    /// The earliest time of the next pass.
    next: Cell<Option<Instant>>,
}

pub struct TaskSlot {
    /// `None`: the task has ended.
    task: RefCell<Option<Pin<Box<dyn Future<Output = ()>>>>>,
    /// The runtime's waker, set when the runtime first polls the task.
    waker: OnceCell<Waker>,
    /// A stand-in may poll the task: it waits for its client and for nothing else.
    open: Cell<bool>,
    /// The task has ended out of turn. The runtime drops it when it polls the task next.
    has_ended: Cell<bool>,
}

/// A task's handle on the task slot that the task is in.
pub struct OwnTaskSlot(Weak<TaskSlot>);

impl OwnTaskSlot {
    pub fn set_open(&self, open: bool) {
        if let Some(task_slot) = self.0.upgrade() {
            task_slot.open.set(open);
        }
    }

    pub fn task_slot(&self) -> Weak<TaskSlot> {
        Weak::clone(&self.0)
    }
}

/// A task as the runtime sees it.
pub struct SlottedTask(Rc<TaskSlot>);

impl TaskSlots {
    /// Takes the task that `make` makes. Until the task says otherwise, a stand-in may poll it.
    pub fn take<T: Future<Output = ()> + 'static>(&self, make: impl FnOnce(OwnTaskSlot) -> T) -> SlottedTask {
        let task_slot = Rc::new(TaskSlot {
            task: RefCell::default(),
            waker: OnceCell::new(),
            open: Cell::new(true),
            has_ended: Cell::new(false),
        });
        *task_slot.task.borrow_mut() = Some(Box::pin(make(OwnTaskSlot(Rc::downgrade(&task_slot)))));
        let mut all = self.all.borrow_mut();
        if all.len() == all.capacity() {
            all.retain(|task_slot| task_slot.strong_count() > 0);
        }
        all.push(Rc::downgrade(&task_slot));
        SlottedTask(task_slot)
    }

    /// Whether it is time for the next [`TaskSlots::poll_open_ones`].
    pub fn is_due(&self) -> bool {
        self.next.get().is_none_or(|next| next <= Instant::now())
    }

    /// Polls the tasks that wait for their client and for nothing else.
    pub fn poll_open_ones(&self) {
        let begun = Instant::now();
        let mut at = 0;
        loop {
            // Look up each task slot anew: a polled task may start other tasks.
            let Some(task_slot) = self.all.borrow().get(at).map(Weak::upgrade) else { break };
            if let Some(task_slot) = task_slot.filter(|task_slot| task_slot.open.get()) {
                task_slot.poll_out_of_turn();
            }
            at += 1;
        }
        self.next.set(Some(Instant::now() + INTERVAL.max(begun.elapsed() * SHARE)));
    }
}

impl TaskSlot {
    /// Polls the task in place of the runtime.
    pub fn poll_out_of_turn(&self) {
        // The task that blocks the thread is being polled already.
        let Ok(mut task) = self.task.try_borrow_mut() else { return };
        let Some(future) = task.as_mut() else { return };
        // A task that has just started has no waker yet. The runtime is about to poll it.
        let mut cx = Context::from_waker(self.waker.get().unwrap_or(Waker::noop()));
        // As in the runtime, a task that panics ends alone. The panic must not unwind the frames below on the stack: of a
        // script, or of the task that polls others.
        let ended = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut cx).is_ready()));
        if ended.unwrap_or(true) {
            self.open.set(false);
            self.has_ended.set(true);
            cx.waker().wake_by_ref();
        }
    }
}

impl Future for SlottedTask {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let task_slot = &self.0;
        task_slot.waker.get_or_init(|| cx.waker().clone());
        let mut task = task_slot.task.borrow_mut();
        let Some(future) = task.as_mut() else { return Poll::Ready(()) };
        if !task_slot.has_ended.get() {
            ready!(future.as_mut().poll(cx));
        }
        *task = None;
        Poll::Ready(())
    }
}
