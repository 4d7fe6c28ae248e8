//! Owns how wakers are kept and called. Never knows what is waited for.
//!
//! A waker is called after the link's lock is released: the woken task may run at once on another thread, and wants the lock.

use std::task::{Context, Waker};

pub fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

pub fn wake_all(wakers: &mut Vec<Waker>) {
    for waker in wakers.drain(..) {
        waker.wake();
    }
}

/// Keeps the context's waker, and clones it only if it is another one.
pub fn register(kept: &mut Option<Waker>, context: &Context<'_>) {
    match kept {
        Some(waker) if waker.will_wake(context.waker()) => {}
        _ => *kept = Some(context.waker().clone()),
    }
}

/// The tasks that wait for a queue to have something. All of them are woken.
#[derive(Default)]
pub struct Waiting(Vec<Waker>);

impl Waiting {
    pub fn register(&mut self, context: &Context<'_>) {
        if !self.0.iter().any(|waker| waker.will_wake(context.waker())) {
            self.0.push(context.waker().clone());
        }
    }

    pub fn take(&mut self, wakers: &mut Vec<Waker>) {
        wakers.append(&mut self.0);
    }
}
