//! Owns the register of this thread's workers, one of each database: how code that runs on the thread finds them without a message.
//! Never knows what a worker does.

use crate::hub::Hub;
use crate::worker::Worker;
use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;

thread_local! {
    static WORKERS: RefCell<Vec<Weak<Worker>>> = const { RefCell::new(Vec::new()) };
}

/// Call this once for each worker, on its thread.
pub fn register(worker: &Rc<Worker>) {
    WORKERS.with_borrow_mut(|workers| {
        workers.retain(|worker| worker.strong_count() > 0);
        workers.push(Rc::downgrade(worker));
    });
}

/// The workers of this thread.
pub fn workers() -> Vec<Rc<Worker>> {
    WORKERS.with_borrow(|workers| workers.iter().filter_map(Weak::upgrade).collect())
}

/// This thread's worker of a database.
pub fn worker_of(hub: &Arc<Hub>) -> Option<Rc<Worker>> {
    WORKERS.with_borrow(|workers| workers.iter().filter_map(Weak::upgrade).find(|worker| Arc::ptr_eq(&worker.hub, hub)))
}
