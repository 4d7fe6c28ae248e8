//! Owns the connections of a worker whose replies wait until other ready connections have been served. Never knows a
//! reply.
//!
//! Replies then leave in a burst. Often many connections belong to one client process. It wakes up once and finds all
//! replies, instead of once for each reply.
//!
//! One task polls all of them. If each connection woke its own task, the runtime would take some 250 instructions more
//! for each, a tenth of what a single command takes.

use crate::seat::{OwnSeat, Seat};
use std::cell::{OnceCell, RefCell};
use std::future::poll_fn;
use std::rc::Weak;
use std::task::{Poll, Waker};

/// The most connections whose replies wait at the same time, and the most bytes that each may hold. This memory is
/// not counted in any budget, so it must be bounded.
const COUNT_MAX: usize = 32;
pub const BYTES_MAX: usize = 64 << 10;

#[derive(Default)]
pub struct Later {
    seats: RefCell<Vec<Weak<Seat>>>,
    /// Wakes [`Later::serve`].
    waker: OnceCell<Waker>,
}

impl Later {
    /// Waits until the other ready connections have been served, unless enough connections wait already.
    pub async fn turn(&self, own: &OwnSeat) {
        let mut waits = self.enter(own);
        poll_fn(|_| if std::mem::take(&mut waits) { Poll::Pending } else { Poll::Ready(()) }).await;
    }

    /// Whether the connection waits.
    fn enter(&self, own: &OwnSeat) -> bool {
        let mut seats = self.seats.borrow_mut();
        let Some(waker) = self.waker.get().filter(|_| seats.len() < COUNT_MAX) else { return false };
        if seats.is_empty() {
            waker.wake_by_ref();
        }
        seats.push(own.seat());
        true
    }

    /// Polls the connections that wait, whenever there are some. The runtime polls this task after the connections that
    /// were ready before it was woken.
    pub async fn serve(&self) {
        let mut polled = Vec::new();
        poll_fn(|cx| {
            self.waker.get_or_init(|| cx.waker().clone());
            // A polled connection may enter again, for the next turn.
            std::mem::swap(&mut polled, &mut *self.seats.borrow_mut());
            polled.drain(..).filter_map(|seat| seat.upgrade()).for_each(|seat| seat.poll_out_of_turn());
            Poll::<()>::Pending
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seat::Seats;
    use std::rc::Rc;
    use tokio::task::{LocalSet, spawn_local, yield_now};

    /// What so many connections do that are ready at the same time: (connection, whether it replies).
    async fn steps(connections: usize) -> Vec<(usize, bool)> {
        let (later, seats, log) = (Rc::<Later>::default(), Seats::default(), Rc::<RefCell<Vec<_>>>::default());
        let server = spawn_local({
            let later = Rc::clone(&later);
            async move { later.serve().await }
        });
        yield_now().await;
        let start = |number| {
            let (later, log) = (Rc::clone(&later), Rc::clone(&log));
            spawn_local(seats.take(|seat| async move {
                log.borrow_mut().push((number, false));
                later.turn(&seat).await;
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
