//! Owns the connections of a worker whose replies wait until other ready connections have been served. Never knows a
//! reply.
//!
//! Replies then leave in a burst. Often many connections belong to one client process. It wakes up once and finds all
//! replies, instead of once for each reply.
//!
//! One task polls all of them. If each connection woke its own task, the runtime would take some 250 instructions more
//! for each, a tenth of what a single command takes.

use crate::task_slot::{OwnTaskSlot, TaskSlot};
use std::cell::{OnceCell, RefCell};
use std::future::poll_fn;
use std::rc::Weak;
use std::task::{Poll, Waker};

/// The most connections whose replies wait at the same time, and the most bytes that each may hold. This memory is
/// not counted in any budget, so it must be bounded.
const COUNT_MAX: usize = 32;
pub const BYTES_MAX: usize = 64 << 10;

#[derive(Default)]
pub struct ReplyCoalescer {
    task_slots: RefCell<Vec<Weak<TaskSlot>>>,
    /// Wakes [`ReplyCoalescer::serve`].
    waker: OnceCell<Waker>,
}

impl ReplyCoalescer {
    /// Waits until the other ready connections have been served, unless enough connections wait already.
    pub async fn turn(&self, own: &OwnTaskSlot) {
        let mut waits = self.enter(own);
        poll_fn(|_| if std::mem::take(&mut waits) { Poll::Pending } else { Poll::Ready(()) }).await;
    }

    /// Whether the connection waits.
    fn enter(&self, own: &OwnTaskSlot) -> bool {
        let mut task_slots = self.task_slots.borrow_mut();
        let Some(waker) = self.waker.get().filter(|_| task_slots.len() < COUNT_MAX) else { return false };
        if task_slots.is_empty() {
            waker.wake_by_ref();
        }
        task_slots.push(own.task_slot());
        true
    }

    /// Polls the connections that wait, whenever there are some. The runtime polls this task after the connections that
    /// were ready before it was woken.
    pub async fn serve(&self) {
        let mut polled = Vec::new();
        poll_fn(|cx| {
            self.waker.get_or_init(|| cx.waker().clone());
            // A polled connection may enter again, for the next turn.
            std::mem::swap(&mut polled, &mut *self.task_slots.borrow_mut());
            polled
                .drain(..)
                .filter_map(|task_slot| task_slot.upgrade())
                .for_each(|task_slot| task_slot.poll_out_of_turn());
            Poll::<()>::Pending
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task_slot::TaskSlots;
    use std::rc::Rc;
    use tokio::task::{LocalSet, spawn_local, yield_now};

    /// What so many connections do that are ready at the same time: (connection, whether it replies).
    async fn steps(connections: usize) -> Vec<(usize, bool)> {
        let (reply_coalescer, task_slots, log) =
            (Rc::<ReplyCoalescer>::default(), TaskSlots::default(), Rc::<RefCell<Vec<_>>>::default());
        let server = spawn_local({
            let reply_coalescer = Rc::clone(&reply_coalescer);
            async move { reply_coalescer.serve().await }
        });
        yield_now().await;
        let start = |number| {
            let (reply_coalescer, log) = (Rc::clone(&reply_coalescer), Rc::clone(&log));
            spawn_local(task_slots.take(|task_slot| async move {
                log.borrow_mut().push((number, false));
                reply_coalescer.turn(&task_slot).await;
                log.borrow_mut().push((number, true));
            }))
        };
        let tasks: Vec<_> = (0..connections).map(start).collect();
        for task in tasks {
            task.await.expect("no panic");
        }
        server.abort();
        log.take()
    }

    #[tokio::test(flavor = "current_thread")]
    async fn all_ready_connections_are_served_before_one_replies() {
        let steps = LocalSet::new().run_until(steps(3)).await;
        assert_eq!(steps, [(0, false), (1, false), (2, false), (0, true), (1, true), (2, true)]);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn when_enough_wait_the_next_one_replies_at_once() {
        let steps = LocalSet::new().run_until(steps(COUNT_MAX + 2)).await;
        assert_eq!(steps[COUNT_MAX..][..4], [COUNT_MAX, COUNT_MAX + 1].map(|n| [(n, false), (n, true)]).concat()[..]);
        assert_eq!(steps.len(), 2 * (COUNT_MAX + 2));
    }
}
