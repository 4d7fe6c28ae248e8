//! Owns what others send to a connection: published messages, invalidations, MONITOR's lines. Every thread may put
//! messages in. Only the connection's own worker takes them out, in order, after the replies that the connection is
//! sending. Never knows a socket, or what the messages mean.

use config::OutputLimit;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use store::Store;

/// A message is encoded once and shared by all receivers. It is charged once too: to the memory that is lent to clients.
#[derive(Clone, Debug)]
pub struct Message(Arc<Sheet>);

struct Sheet {
    bytes: Vec<u8>,
    /// Who has lent its memory.
    lender: OnceLock<Arc<Store>>,
}

impl Message {
    /// Charges the message until its last owner drops it. Returns false if it was charged before.
    pub fn charge(&self, store: &Arc<Store>) -> bool {
        let is_new = self.0.lender.set(Arc::clone(store)).is_ok();
        if is_new {
            store.lend(self.0.bytes.capacity());
        }
        is_new
    }
}

impl From<Vec<u8>> for Message {
    fn from(bytes: Vec<u8>) -> Message {
        Message(Arc::new(Sheet { bytes, lender: OnceLock::new() }))
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl fmt::Debug for Sheet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes.len())
    }
}

impl Drop for Sheet {
    fn drop(&mut self) {
        if let Some(store) = self.lender.get() {
            store.take_back(self.bytes.capacity());
        }
    }
}

/// The bytes moved to a connection's output, or collected for one send, at a time.
const PORTION_BYTES: usize = 64 * 1024;
/// An empty queue with more capacity than this is freed.
const QUEUE_KEPT: usize = 32;

#[derive(Debug, Default)]
pub struct Outbox {
    inner: Mutex<Inner>,
    /// Of the queued messages; written under the lock.
    bytes: AtomicUsize,
    count: AtomicUsize,
    /// When `bytes` exceeded the soft limit, in milliseconds; 0: it is below the limit.
    soft_since_ms: AtomicU64,
    /// The connection is sending its own replies, and takes the queued messages after them. Only the connection's
    /// worker reads this.
    busy: AtomicBool,
    /// A blocked command of the connection runs or has run, and its reply is not in the output yet. Messages wait for it:
    /// they may be news of what the command has changed.
    owes_reply: AtomicBool,
    /// Only the connection's task can write to its stream (TLS).
    by_task: AtomicBool,
}

#[derive(Default)]
struct Inner {
    queue: VecDeque<Message>,
    /// Who has lent the memory of the queue itself, and how much.
    lender: Option<Arc<Store>>,
    lent: usize,
    /// Bytes of the first message that were already sent.
    sent: usize,
    /// How many messages come before the reply that is owed.
    before_reply: usize,
    /// The connection is on its worker's list of outboxes to send.
    listed: bool,
    /// The outbox takes nothing more: its limit was exceeded, or the connection has ended.
    closed: bool,
    /// The waker of the connection's task.
    waker: Option<Waker>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} messages", self.queue.len())
    }
}

impl Inner {
    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    /// Charges the queue as long as it is: its messages are charged for themselves, and many may be small.
    fn charge(&mut self) {
        let (now, before) = (self.queue.capacity() * size_of::<Message>(), self.lent);
        let Some(store) = self.lender.as_ref().filter(|_| now != before) else { return };
        match now > before {
            true => store.lend(now - before),
            false => store.take_back(before - now),
        }
        self.lent = now;
    }
}

/// What the caller of [`Outbox::put`] must do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// Nothing: the message will be sent.
    Done,
    /// Put the connection on its worker's list.
    List,
    /// End the connection, whose client reads too slowly. Returned once.
    Exceeded,
}

impl Outbox {
    pub fn put(&self, message: &Message, limit: OutputLimit, store: &Arc<Store>, now_ms: impl FnOnce() -> u64) -> Put {
        let mut inner = self.inner.lock();
        if inner.closed {
            return Put::Done;
        }
        let bytes = self.bytes.load(Relaxed) + message.len();
        if limit.hard_bytes != 0 && bytes as u64 > limit.hard_bytes {
            self.end(&mut inner);
            return Put::Exceeded;
        }
        if limit.soft_bytes != 0 && bytes as u64 > limit.soft_bytes && self.soft_since_ms.load(Relaxed) == 0 {
            self.soft_since_ms.store(now_ms(), Relaxed);
        }
        inner.queue.push_back(message.clone());
        inner.lender.get_or_insert_with(|| Arc::clone(store));
        inner.charge();
        self.counts(&inner, bytes);
        if std::mem::replace(&mut inner.listed, true) { Put::Done } else { Put::List }
    }

    fn counts(&self, inner: &Inner, bytes: usize) {
        self.bytes.store(bytes, Relaxed);
        self.count.store(inner.queue.len(), Relaxed);
    }

    fn end(&self, inner: &mut Inner) {
        inner.closed = true;
        inner.queue = VecDeque::new();
        inner.charge();
        self.counts(inner, 0);
    }

    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    pub fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// When the queued bytes exceeded the soft limit, in milliseconds; 0: they are below the limit.
    pub fn soft_since_ms(&self) -> u64 {
        self.soft_since_ms.load(Relaxed)
    }

    /// The connection has ended: drops all messages and takes no more.
    pub fn close(&self) {
        let mut inner = self.inner.lock();
        inner.waker = None;
        self.end(&mut inner);
    }

    /// From now on, messages wait until [`Outbox::answered`]. Called by the worker that runs a blocked command of the
    /// connection.
    pub fn owe_reply(&self) {
        let mut inner = self.inner.lock();
        inner.before_reply = inner.queue.len();
        self.owes_reply.store(true, Relaxed);
    }

    /// The reply is in the output, or there is none.
    pub fn answered(&self) {
        let mut inner = self.inner.lock();
        inner.before_reply = 0;
        self.owes_reply.store(false, Relaxed);
        if !inner.queue.is_empty() {
            self.hand_over(&inner);
        }
    }

    // --- called only by the connection's own worker ---

    /// Call this once, when the connection's task starts. A task keeps one waker as long as it lives. `by_task`: only
    /// the task can send.
    pub fn attach(&self, waker: &Waker, by_task: bool) {
        self.by_task.store(by_task, Relaxed);
        self.inner.lock().waker = Some(waker.clone());
    }

    pub fn is_sent_by_task(&self) -> bool {
        self.by_task.load(Relaxed)
    }

    /// From now on, messages wait for [`Outbox::refill`].
    #[inline]
    pub fn hold(&self) {
        self.busy.store(true, Relaxed);
    }

    /// Whether the connection's task must send messages of this outbox.
    #[inline]
    pub fn wants_task(&self) -> bool {
        self.bytes() > 0 && self.busy.load(Relaxed) && !self.owes_reply.load(Relaxed)
    }

    /// Appends the messages that come before the reply that is owed.
    pub fn drain_before_reply(&self, output: &mut Vec<u8>) {
        let mut inner = self.inner.lock();
        let mut taken = 0;
        for _ in 0..std::mem::take(&mut inner.before_reply) {
            let Some(message) = inner.queue.pop_front() else { break };
            let rest = &message[std::mem::take(&mut inner.sent)..];
            output.extend_from_slice(rest);
            taken += rest.len();
        }
        self.left(&inner, taken);
    }

    /// Whether messages wait for [`Outbox::refill`].
    #[inline]
    pub fn is_held(&self) -> bool {
        self.busy.load(Relaxed)
    }

    /// Appends the queued messages to the connection's output. Call this between two replies.
    #[inline]
    pub fn drain_into(&self, output: &mut Vec<u8>) {
        if self.bytes() > 0 {
            self.take(output);
        }
    }

    /// Like [`Outbox::drain_into`], but called when all output is sent. If there was no message, returns false and
    /// ends the hold.
    #[inline]
    pub fn refill(&self, output: &mut Vec<u8>) -> bool {
        if self.bytes() > 0 && !self.owes_reply.load(Relaxed) {
            self.take(output);
            return true;
        }
        self.busy.store(false, Relaxed);
        false
    }

    #[cold]
    fn take(&self, output: &mut Vec<u8>) {
        let mut inner = self.inner.lock();
        let mut taken = 0;
        while taken < PORTION_BYTES
            && let Some(message) = inner.queue.pop_front()
        {
            let rest = &message[std::mem::take(&mut inner.sent)..];
            output.extend_from_slice(rest);
            taken += rest.len();
        }
        self.left(&inner, taken);
    }

    fn left(&self, inner: &Inner, taken: usize) {
        self.counts(inner, self.bytes() - taken);
        if inner.queue.is_empty() {
            self.soft_since_ms.store(0, Relaxed);
        }
    }

    /// Sends the queued messages with `send`, unless they must wait for the journal (`is_clear`): then the task waits and sends. `send` returns the number of bytes that the socket took, or `None` if
    /// it takes none now. If messages are left, wakes the connection's task, which sends them. Returns the bytes
    /// sent. `scratch` is reused memory.
    pub fn flush(
        &self,
        scratch: &mut Vec<u8>,
        is_clear: impl FnOnce() -> bool,
        mut send: impl FnMut(&[u8]) -> Option<usize>,
    ) -> usize {
        let (mut queue, mut offset) = {
            let mut inner = self.inner.lock();
            inner.listed = false;
            if self.busy.load(Relaxed) || self.owes_reply.load(Relaxed) || inner.closed {
                return 0;
            }
            if self.is_sent_by_task() || !is_clear() {
                // The task may already have taken everything. Then do not hold the outbox, because nothing would end
                // the hold.
                if !inner.queue.is_empty() {
                    self.hand_over(&inner);
                }
                return 0;
            }
            (std::mem::take(&mut inner.queue), std::mem::take(&mut inner.sent))
        };
        // Unlocked while sending, so that publishers can continue. Only this worker takes messages out, so their
        // order is kept.
        let mut total = 0;
        let mut is_blocked = false;
        while !queue.is_empty() && !is_blocked {
            let wanted;
            let took = if queue.len() == 1 {
                wanted = queue[0].len() - offset;
                send(&queue[0][offset..])
            } else {
                scratch.clear();
                scratch.extend_from_slice(&queue[0][offset..]);
                for message in queue.range(1..) {
                    if scratch.len() + message.len() > PORTION_BYTES {
                        break;
                    }
                    scratch.extend_from_slice(message);
                }
                wanted = scratch.len();
                send(scratch)
            };
            let mut took = took.unwrap_or(0);
            is_blocked = took < wanted;
            total += took;
            while took > 0 {
                let rest = queue[0].len() - offset;
                if took < rest {
                    offset += took;
                    break;
                }
                took -= rest;
                offset = 0;
                queue.pop_front();
            }
        }
        let mut inner = self.inner.lock();
        if inner.closed {
            return total;
        }
        if is_blocked {
            inner.sent = offset;
            queue.append(&mut inner.queue);
            inner.queue = queue;
            self.hand_over(&inner);
        } else if inner.queue.is_empty() && queue.capacity() <= QUEUE_KEPT {
            inner.queue = queue;
        }
        inner.charge();
        self.left(&inner, total);
        total
    }

    /// Leaves the rest to the connection's task.
    fn hand_over(&self, inner: &Inner) {
        self.hold();
        inner.wake();
    }

    /// Wakes the connection's task, whatever it waits for.
    pub fn wake(&self) {
        self.inner.lock().wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::StoreConfig;

    const LIMIT: OutputLimit = OutputLimit { hard_bytes: 100, soft_bytes: 10, soft_s: 1 };

    fn put(outbox: &Outbox, text: &str) -> Put {
        outbox.put(&Message::from(text.as_bytes().to_vec()), LIMIT, &Store::new(&StoreConfig::in_ram(1)), || 7)
    }

    fn flush(outbox: &Outbox, room: &mut usize) -> String {
        let mut sent = Vec::new();
        let taken = outbox.flush(
            &mut Vec::new(),
            || true,
            |bytes| {
                let count = bytes.len().min(*room);
                sent.extend_from_slice(&bytes[..count]);
                *room -= count;
                (count > 0).then_some(count)
            },
        );
        assert_eq!(taken, sent.len());
        String::from_utf8(sent).unwrap()
    }

    #[test]
    fn messages_leave_in_order_however_much_the_socket_takes() {
        let outbox = Outbox::default();
        assert_eq!(put(&outbox, "abc"), Put::List);
        assert_eq!(put(&outbox, "def"), Put::Done, "it is on the list already");
        assert_eq!(flush(&outbox, &mut 4), "abcd");
        assert_eq!(outbox.bytes(), 2);
        assert_eq!(put(&outbox, "ghi"), Put::List);
        assert_eq!(flush(&outbox, &mut 9), "", "the task has it now");
        assert!(outbox.wants_task());
        let mut output = Vec::new();
        assert!(outbox.refill(&mut output));
        assert_eq!(output, b"efghi");
        assert!(!outbox.refill(&mut output));
        assert_eq!(put(&outbox, "j"), Put::List);
        assert_eq!(flush(&outbox, &mut 9), "j");
        assert_eq!((outbox.bytes(), outbox.count()), (0, 0));
    }

    #[test]
    fn a_message_is_charged_once_until_its_last_receiver_has_it() {
        let store = Store::new(&StoreConfig::in_ram(1));
        let lender_of_queues = Store::new(&StoreConfig::in_ram(1));
        let outboxes = [Outbox::default(), Outbox::default()];
        let message = Message::from(vec![b'm'; 50]);
        let charged = outboxes.each_ref().map(|outbox| {
            outbox.put(&message, LIMIT, &lender_of_queues, || 7);
            message.charge(&store)
        });
        assert_eq!((charged, store.lent_bytes()), ([true, false], 50));
        drop(message);
        flush(&outboxes[0], &mut 50);
        assert_eq!(store.lent_bytes(), 50);
        outboxes[1].close();
        assert_eq!(store.lent_bytes(), 0);
    }

    /// Once, a million messages of a byte took 8 MB that nobody had lent.
    #[test]
    fn the_queue_itself_is_charged() {
        let store = Store::new(&StoreConfig::in_ram(1));
        let outbox = Outbox::default();
        let message = Message::from(b"m".to_vec());
        for _ in 0..1000 {
            outbox.put(&message, OutputLimit { hard_bytes: 0, soft_bytes: 0, soft_s: 0 }, &store, || 7);
        }
        assert!((8000..=16_384).contains(&store.lent_bytes()), "{}", store.lent_bytes());
        flush(&outbox, &mut 1000);
        assert!(store.lent_bytes() < 1000, "an empty queue that is long is freed");
        outbox.put(&message, LIMIT, &store, || 7);
        outbox.close();
        assert_eq!(store.lent_bytes(), 0);
    }

    #[test]
    fn a_held_outbox_waits_for_the_replies_before_it() {
        let outbox = Outbox::default();
        outbox.hold();
        put(&outbox, "m");
        assert_eq!(flush(&outbox, &mut 9), "");
        let mut output = b"+OK\r\n".to_vec();
        outbox.drain_into(&mut output);
        assert_eq!(output, b"+OK\r\nm");
    }

    #[test]
    fn an_outbox_sent_by_its_task_wakes_the_task() {
        let outbox = Outbox { by_task: AtomicBool::new(true), ..Outbox::default() };
        assert_eq!(put(&outbox, "m"), Put::List);
        assert!(!outbox.wants_task());
        assert_eq!(flush(&outbox, &mut 9), "");
        assert!(outbox.wants_task());
    }

    /// The task was sending a reply when the message came, and sent the message too. A later message must not wait
    /// for a task that sleeps.
    #[test]
    fn an_outbox_sent_by_its_task_does_not_hold_when_empty() {
        let outbox = Outbox { by_task: AtomicBool::new(true), ..Outbox::default() };
        assert_eq!(put(&outbox, "m"), Put::List);
        assert!(outbox.refill(&mut Vec::new()) && !outbox.refill(&mut Vec::new()));
        assert_eq!(flush(&outbox, &mut 9), "");
        assert_eq!(put(&outbox, "n"), Put::List);
        assert_eq!(flush(&outbox, &mut 9), "");
        assert!(outbox.wants_task());
    }

    #[test]
    fn the_limits_count_only_unsent_bytes() {
        let outbox = Outbox::default();
        put(&outbox, "0123456789");
        assert_eq!(outbox.soft_since_ms(), 0);
        put(&outbox, "0");
        assert_eq!(outbox.soft_since_ms(), 7);
        flush(&outbox, &mut 11);
        assert_eq!(outbox.soft_since_ms(), 0);
        assert_eq!(put(&outbox, &"x".repeat(100)), Put::List);
        assert_eq!(put(&outbox, "x"), Put::Exceeded);
        assert_eq!((outbox.bytes(), outbox.count()), (0, 0), "its memory is free at once");
        assert_eq!(put(&outbox, "x"), Put::Done, "and it is said once");
        assert_eq!(outbox.bytes(), 0);
    }
}
