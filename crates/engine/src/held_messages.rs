//! Owns the messages that the commands of a worker have published in a copy of a shard with replicas, until they may leave: who gets a
//! message may conclude what was written before it. Never knows a subscriber.

use commands::host::Space;
use std::cell::RefCell;
use std::collections::VecDeque;
use tokio::sync::Notify;

/// There are no more than running batches have published: their replies wait too.
#[derive(Default)]
pub struct HeldMessages {
    queue: RefCell<VecDeque<HeldMessage>>,
    more: Notify,
}

pub struct HeldMessage {
    /// Of the copy, when the message was published.
    pub term: u64,
    pub space: Space,
    pub channel: Box<[u8]>,
    pub message: Box<[u8]>,
}

impl HeldMessages {
    pub fn put(&self, message: HeldMessage) {
        self.queue.borrow_mut().push_back(message);
        self.more.notify_one();
    }

    /// Waits for the oldest one, and takes it. The batch that has published it has run when this returns.
    pub async fn take(&self) -> HeldMessage {
        loop {
            let first = self.queue.borrow_mut().pop_front();
            match first {
                Some(message) => return message,
                None => self.more.notified().await,
            }
        }
    }
}
