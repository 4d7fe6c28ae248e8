//! Owns how a proxy's worker finds the worker of the same thread that serves a shard. Never knows what runs there.

use crate::hub::Hub;
use crate::local;
use crate::routes::Routes;
use crate::worker::Worker;
use std::rc::{Rc, Weak};
use std::sync::atomic::Ordering::Relaxed;

/// The worker on this thread that serves a shard; `None` if its owner is elsewhere, or is being closed.
#[inline]
pub fn owner(worker: &Worker, routes: &Routes, shard: u16) -> Option<Rc<Worker>> {
    let owner = worker.owners.borrow().get(usize::from(shard)).and_then(Weak::upgrade);
    match owner {
        Some(owner) => Some(owner).filter(|owner| !owner.hub.is_closing.load(Relaxed)),
        None => find(worker, routes, shard),
    }
}

#[cold]
fn find(worker: &Worker, routes: &Routes, shard: u16) -> Option<Rc<Worker>> {
    let hub = routes.shards[usize::from(shard)].local()?.downcast::<Hub>().ok()?;
    let owner = local::worker_of(&hub)?;
    let mut owners = worker.owners.borrow_mut();
    owners.resize_with(routes.shards.len(), Weak::new);
    owners[usize::from(shard)] = Rc::downgrade(&owner);
    Some(owner)
}
