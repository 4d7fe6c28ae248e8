//! Owns the register of this thread's workers, one of each database: how code that runs on the thread finds them without a message.
//! Never knows what a worker does.

use crate::acl::Role;
use crate::clients::Peer;
use crate::hub::Hub;
use crate::thread::{Worker, attend};
use crate::worker_handle::{Arrival, Socket};
use std::cell::RefCell;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::io::{DuplexStream, duplex};

thread_local! {
    static WORKERS: RefCell<Vec<Weak<Worker>>> = const { RefCell::new(Vec::new()) };
}

/// What a client in this process may send before the worker has read it, and the other way.
pub const STREAM_BYTES: usize = 1 << 20;

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
fn worker_of(hub: &Arc<Hub>) -> Option<Rc<Worker>> {
    WORKERS.with_borrow(|workers| workers.iter().filter_map(Weak::upgrade).find(|worker| Arc::ptr_eq(&worker.hub, hub)))
}

/// Connects a client in this process, by a stream without a descriptor. `name`: its address in CLIENT LIST. On a worker's thread, the database's worker of the same thread
/// serves it; elsewhere, the worker with the fewest connections.
pub fn connect(hub: &Arc<Hub>, role: Option<Role>, name: &str) -> io::Result<DuplexStream> {
    let (ours, theirs) = duplex(STREAM_BYTES);
    let (socket, peer) = (Socket::Memory(theirs, role), Peer::Unix(name.into()));
    match worker_of(hub) {
        Some(worker) => {
            hub.worker_handles[worker.index].connections.fetch_add(1, Relaxed);
            attend(&worker, Arrival { socket, peer });
        }
        None => hub.hand_over(socket, peer)?,
    }
    Ok(ours)
}
