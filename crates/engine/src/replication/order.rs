//! Owns a link's order of a dump, and the dump: plain data. Never knows who makes it.

use super::Mark;
use parking_lot::Mutex;
use std::fs::File;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A dump of the dataset, at an offset of the stream.
#[derive(Debug)]
pub struct Dump {
    /// It has no name any more.
    pub file: File,
    pub bytes: u64,
    pub mark: Mark,
}

/// A link waits for a dump.
#[derive(Debug)]
pub struct Order {
    /// The replica loads what only a FlintKV can load.
    pub is_flint: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    outcome: Option<Result<Arc<Dump>, String>>,
    waker: Option<Waker>,
}

impl Order {
    pub fn new(is_flint: bool) -> Order {
        Order { is_flint, state: Mutex::default() }
    }

    pub fn finish(&self, outcome: Result<Arc<Dump>, String>) {
        let waker = {
            let mut state = self.state.lock();
            state.outcome = Some(outcome);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Waits for the dump, or for the reason why there is none.
    pub fn poll(&self, cx: &Context<'_>) -> Poll<Result<Arc<Dump>, String>> {
        let mut state = self.state.lock();
        match state.outcome.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}
