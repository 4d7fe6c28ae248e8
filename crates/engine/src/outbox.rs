//! Owns what others send to a connection: published messages, invalidations, what MONITOR sees. Any thread puts in;
//! only the connection's own worker takes out, in order, behind the replies the connection has under way.
//! Never knows a socket, or what the messages mean.

use config::OutputLimit;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::Waker;

/// Encoded once, shared by all who get it.
pub type Message = Arc<[u8]>;

/// Bytes moved to a connection's output, or gathered for one send, at a time.
const PORTION_BYTES: usize = 64 * 1024;
/// A queue that was longer is not kept when it is empty.
const QUEUE_KEPT: usize = 32;

#[derive(Debug, Default)]
pub struct Outbox {
    inner: Mutex<Inner>,
    /// Of what is queued; written under the lock.
    bytes: AtomicUsize,
    count: AtomicUsize,
    /// Since when `bytes` is above the soft limit, milliseconds; 0: it is not.
    soft_since_ms: AtomicU64,
    /// The connection has replies of its own under way and takes what is here behind them. Only its worker looks.
    busy: AtomicBool,
}

#[derive(Debug, Default)]
struct Inner {
    queue: VecDeque<Message>,
    /// Bytes of the first message that were sent.
    sent: usize,
    /// It stands on its worker's list of those to be sent to.
    listed: bool,
    /// It takes nothing more: it has exceeded its limit or has ended.
    closed: bool,
    /// Only the connection's task can write to its stream (TLS).
    by_task: bool,
    /// Of the connection's task.
    waker: Option<Waker>,
}

/// What is left to do for who has put a message in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// Nothing: somebody will send it.
    Done,
    /// The connection is to be put on its worker's list.
    List,
    /// The connection reads too slowly: it is to be ended. Said once.
    Exceeded,
}

impl Outbox {
    pub fn put(&self, message: &Message, limit: OutputLimit, now_ms: impl FnOnce() -> u64) -> Put {
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
        inner.queue.push_back(Arc::clone(message));
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
        self.counts(inner, 0);
    }

    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    pub fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Since when it holds more than the soft limit, milliseconds; 0: it does not.
    pub fn soft_since_ms(&self) -> u64 {
        self.soft_since_ms.load(Relaxed)
    }

    /// The connection has ended.
    pub fn close(&self) {
        let mut inner = self.inner.lock();
        inner.waker = None;
        self.end(&mut inner);
    }

    // --- From here on: the connection's own worker.

    /// Once, when its task begins. A task has one waker as long as it lives. `by_task`: only the task can send.
    pub fn attach(&self, waker: &Waker, by_task: bool) {
        let mut inner = self.inner.lock();
        inner.waker = Some(waker.clone());
        inner.by_task = by_task;
    }

    /// From now on what is put in waits for [`Outbox::refill`].
    #[inline]
    pub fn hold(&self) {
        self.busy.store(true, Relaxed);
    }

    /// Whether the connection's task has something to send from here.
    #[inline]
    pub fn wants_task(&self) -> bool {
        self.bytes() > 0 && self.busy.load(Relaxed)
    }

    /// Appends what has come in to the connection's output; to be called when a command's reply is complete.
    #[inline]
    pub fn drain_into(&self, output: &mut Vec<u8>) {
        if self.bytes() > 0 {
            self.take(output);
        }
    }

    /// As [`Outbox::drain_into`] when all output is sent; false if there was nothing: the connection is done with it.
    #[inline]
    pub fn refill(&self, output: &mut Vec<u8>) -> bool {
        if self.bytes() > 0 {
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

    /// Sends what is queued by `send`, which tells how many bytes the socket took, None if it takes none now. What is
    /// left then is the connection's task's to send, which is woken. Returns the bytes sent. `scratch` is only memory.
    pub fn flush(&self, scratch: &mut Vec<u8>, mut send: impl FnMut(&[u8]) -> Option<usize>) -> usize {
        let (mut queue, mut offset) = {
            let mut inner = self.inner.lock();
            inner.listed = false;
            if self.busy.load(Relaxed) || inner.closed {
                return 0;
            }
            if inner.by_task {
                // The task may have taken everything before this worker came to it: then it must not be left holding.
                if !inner.queue.is_empty() {
                    self.hand_over(&inner);
                }
                return 0;
            }
            (std::mem::take(&mut inner.queue), std::mem::take(&mut inner.sent))
        };
        // Not locked while sending: publishers go on. Only this worker takes out, so the order holds.
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
        self.left(&inner, total);
        total
    }

    /// The task goes on from here.
    fn hand_over(&self, inner: &Inner) {
        self.hold();
        if let Some(waker) = &inner.waker {
            waker.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: OutputLimit = OutputLimit { hard_bytes: 100, soft_bytes: 10, soft_s: 1 };

    fn put(outbox: &Outbox, text: &str) -> Put {
        outbox.put(&Message::from(text.as_bytes()), LIMIT, || 7)
    }

    fn flush(outbox: &Outbox, room: &mut usize) -> String {
        let mut sent = Vec::new();
        let taken = outbox.flush(&mut Vec::new(), |bytes| {
            let count = bytes.len().min(*room);
            sent.extend_from_slice(&bytes[..count]);
            *room -= count;
            (count > 0).then_some(count)
        });
        assert_eq!(taken, sent.len());
        String::from_utf8(sent).unwrap()
    }

    #[test]
    fn messages_leave_in_order_whatever_the_socket_takes_at_once() {
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
    fn one_that_is_written_by_its_task_wakes_it() {
        let outbox = Outbox { inner: Mutex::new(Inner { by_task: true, ..Inner::default() }), ..Outbox::default() };
        assert_eq!(put(&outbox, "m"), Put::List);
        assert!(!outbox.wants_task());
        assert_eq!(flush(&outbox, &mut 9), "");
        assert!(outbox.wants_task());
    }

    /// It had a reply to send when the message came, and took it along: no later message may wait for a task that sleeps.
    #[test]
    fn one_that_is_written_by_its_task_sleeps_with_nothing_to_send() {
        let outbox = Outbox { inner: Mutex::new(Inner { by_task: true, ..Inner::default() }), ..Outbox::default() };
        assert_eq!(put(&outbox, "m"), Put::List);
        assert!(outbox.refill(&mut Vec::new()) && !outbox.refill(&mut Vec::new()));
        assert_eq!(flush(&outbox, &mut 9), "");
        assert_eq!(put(&outbox, "n"), Put::List);
        assert_eq!(flush(&outbox, &mut 9), "");
        assert!(outbox.wants_task());
    }

    #[test]
    fn the_limits_are_of_what_is_not_sent() {
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
