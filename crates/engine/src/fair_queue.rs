//! Owns the order in which the connections of a worker that have much to do are served: whose batch has run for long,
//! whose replies fill the socket, whose command is being received in parts. Never knows what they do.
//!
//! The runtime polls tasks in the order in which they were woken. If a hundred connections each use a millisecond, a
//! small command behind them waits for a tenth of a second. So these connections take turns. Each pass of the runtime
//! over the ready tasks and the sockets contains one turn. A small command waits for one of them at most.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tokio::sync::Notify;
use tokio::task::yield_now;

#[derive(Default)]
pub struct FairQueue {
    queue: RefCell<VecDeque<(HasTurn, Waker)>>,
    /// Somebody has the turn of this pass. True while somebody is in the queue.
    is_taken: Cell<bool>,
    taken: Notify,
}

/// Set when the turn has come.
type HasTurn = Rc<Cell<bool>>;

/// A connection's place in the queue, if it has one.
#[derive(Default)]
pub struct Turn(Option<HasTurn>);

impl FairQueue {
    /// Ready: the caller has the turn until it returns to the runtime.
    pub fn poll(&self, turn: &mut Turn, cx: &Context<'_>) -> Poll<()> {
        match &turn.0 {
            None if !self.is_taken.replace(true) => {
                self.taken.notify_one();
                Poll::Ready(())
            }
            None => {
                let place = HasTurn::default();
                self.queue.borrow_mut().push_back((Rc::clone(&place), cx.waker().clone()));
                turn.0 = Some(place);
                Poll::Pending
            }
            Some(place) if place.get() => {
                turn.0 = None;
                Poll::Ready(())
            }
            Some(_) => Poll::Pending,
        }
    }

    /// Hands out the turns, one a pass. The worker's task for this never ends.
    pub async fn hand_out(&self) {
        loop {
            self.taken.notified().await;
            loop {
                // Continues when the tasks that were ready have run and the sockets were asked.
                yield_now().await;
                let Some((place, waker)) = self.queue.borrow_mut().pop_front() else { break };
                place.set(true);
                waker.wake();
            }
            self.is_taken.set(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::task::{LocalSet, spawn_local};

    /// Tasks that always have more to do get one turn each in order, and a small task runs after each turn.
    #[test]
    fn a_small_task_waits_for_one_turn() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let log = Rc::new(RefCell::new(Vec::new()));
        runtime.block_on(LocalSet::new().run_until(async {
            let fair_queue = Rc::new(FairQueue::default());
            spawn_local({
                let fair_queue = Rc::clone(&fair_queue);
                async move { fair_queue.hand_out().await }
            });
            let large = ["a", "b", "c"].map(|name| {
                let (fair_queue, log) = (Rc::clone(&fair_queue), Rc::clone(&log));
                spawn_local(async move {
                    let mut turn = Turn::default();
                    for _ in 0..2 {
                        poll_fn(|cx| fair_queue.poll(&mut turn, cx)).await;
                        log.borrow_mut().push(name);
                        yield_now().await;
                    }
                })
            });
            let small = {
                let log = Rc::clone(&log);
                spawn_local(async move {
                    for _ in 0..6 {
                        yield_now().await;
                        log.borrow_mut().push(".");
                    }
                })
            };
            for task in large {
                task.await.unwrap();
            }
            small.await.unwrap();
        }));
        let log = log.borrow().concat();
        assert_eq!(log.replace('.', ""), "abcabc", "in order: {log}");
        assert!(log.split('.').all(|between| between.len() <= 1), "one turn a pass: {log}");
    }
}
