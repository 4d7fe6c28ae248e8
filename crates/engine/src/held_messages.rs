//! Owns the messages that commands of a copy in a shard with replicas have published, until they may leave: who gets a message may conclude
//! what was written before it. Never knows a subscriber.

use crate::replication::Seen;
use commands::host::Space;
use parking_lot::Mutex;
use std::collections::VecDeque;
use tokio::sync::Notify;

/// There are no more than running batches have published: their replies wait too.
#[derive(Default)]
pub struct HeldMessages {
    queue: Mutex<VecDeque<HeldMessage>>,
    more: Notify,
}

pub struct HeldMessage {
    /// What was to be seen when it was published.
    pub seen: Seen,
    pub space: Space,
    pub channel: Box<[u8]>,
    pub message: Box<[u8]>,
}

impl HeldMessages {
    pub fn put(&self, message: HeldMessage) {
        self.queue.lock().push_back(message);
        self.more.notify_one();
    }

    /// Waits for the oldest one, and takes it.
    pub async fn take(&self) -> HeldMessage {
        loop {
            let first = self.queue.lock().pop_front();
            match first {
                Some(message) => return message,
                None => self.more.notified().await,
            }
        }
    }
}
