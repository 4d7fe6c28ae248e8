//! Owns a link's order of a dump, and the dump: plain data. Never knows who makes it.

use super::Mark;
use commands::session::Replica;
use parking_lot::Mutex;
use std::fs::File;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A dump of the dataset, at an offset of the stream. Links read it while it is written.
#[derive(Debug)]
pub struct Dump {
    /// It loses its name when it is whole.
    pub file: File,
    pub mark: Mark,
    written: Mutex<Written>,
}

#[derive(Debug, Default)]
struct Written {
    bytes: u64,
    /// The size that the dump will have: an estimate, until the dump is complete.
    expected: u64,
    /// Set when the writing has ended. An error: the dump will never be complete.
    end: Option<Result<(), String>>,
    wakers: Vec<Waker>,
}

impl Dump {
    pub fn new(file: File, mark: Mark) -> Dump {
        Dump { file, mark, written: Mutex::default() }
    }

    /// Notes that `bytes` are in the file, of about `expected`.
    pub fn has(&self, bytes: u64, expected: u64) {
        let mut written = self.written.lock();
        written.expected = expected.max(bytes);
        if written.bytes < bytes {
            written.bytes = bytes;
            written.wakers.drain(..).for_each(Waker::wake);
        }
    }

    /// Notes that the dump is complete, or why it will never be.
    pub fn end(&self, end: Result<(), String>) {
        let mut written = self.written.lock();
        written.end = Some(end);
        written.wakers.drain(..).for_each(Waker::wake);
    }

    pub fn expected(&self) -> u64 {
        self.written.lock().expected
    }

    /// Waits until there are more than `at` bytes, or until it is whole. Returns how many there are.
    pub fn poll(&self, at: u64, cx: &Context<'_>) -> Poll<Result<u64, String>> {
        let mut written = self.written.lock();
        match &written.end {
            Some(end) => Poll::Ready(end.clone().map(|()| written.bytes)),
            None if written.bytes > at => Poll::Ready(Ok(written.bytes)),
            None => {
                if !written.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
                    written.wakers.push(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}

/// What a replica can load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// What Redis can.
    Redis,
    /// What only a FlintKV can.
    Flint,
    /// The same, and pages of flash as they are.
    Pages,
}

impl Contents {
    pub fn of(replica: &Replica) -> Contents {
        match replica {
            Replica { flint: true, pages: true, .. } => Contents::Pages,
            Replica { flint: true, .. } => Contents::Flint,
            _ => Contents::Redis,
        }
    }
}

/// A link waits for a dump.
#[derive(Debug)]
pub struct Order {
    pub contents: Contents,
    state: Mutex<OrderState>,
}

#[derive(Debug, Default)]
struct OrderState {
    outcome: Option<Result<Arc<Dump>, String>>,
    waker: Option<Waker>,
}

impl Order {
    pub fn new(contents: Contents) -> Order {
        Order { contents, state: Mutex::default() }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replication::new_id;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::task::Wake;

    #[derive(Default)]
    struct Bell(AtomicUsize);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    /// A link that sleeps, and how often it was woken.
    fn link() -> (Arc<Bell>, Waker) {
        let bell = Arc::new(Bell::default());
        (Arc::clone(&bell), bell.into())
    }

    fn dump() -> Dump {
        let mark = Mark { id: new_id(), second: None, offset: 0, db: None };
        Dump::new(File::open("/dev/null").unwrap(), mark)
    }

    #[test]
    fn every_link_that_waits_is_woken_once_by_what_comes() {
        let (dump, (first, first_waker), (second, second_waker)) = (dump(), link(), link());
        let rings = || (first.0.load(Relaxed), second.0.load(Relaxed));
        for waker in [&first_waker, &first_waker, &second_waker] {
            assert_eq!(dump.poll(0, &Context::from_waker(waker)), Poll::Pending);
        }
        dump.has(0, 9);
        assert_eq!(rings(), (0, 0), "nothing has come");
        dump.has(5, 9);
        assert_eq!(rings(), (1, 1));
        dump.has(6, 9);
        assert_eq!(rings(), (1, 1), "nobody waits");
        dump.has(3, 9);
        assert_eq!(dump.poll(5, &Context::from_waker(&first_waker)), Poll::Ready(Ok(6)), "what has come stays");
        assert_eq!(dump.poll(6, &Context::from_waker(&second_waker)), Poll::Pending);
        dump.end(Ok(()));
        assert_eq!(rings(), (1, 2));
    }

    #[test]
    fn an_order_is_answered_once_and_wakes_its_link() {
        for comes_first in [true, false] {
            let (order, (bell, waker)) = (Order::new(Contents::Flint), link());
            let cx = Context::from_waker(&waker);
            if !comes_first {
                assert!(order.poll(&cx).is_pending());
            }
            order.finish(Err("no room".to_owned()));
            assert_eq!(bell.0.load(Relaxed), usize::from(!comes_first));
            assert!(matches!(order.poll(&cx), Poll::Ready(Err(why)) if why == "no room"));
            assert!(order.poll(&cx).is_pending());
        }
    }

    #[test]
    fn a_dump_is_read_while_it_is_written() {
        let cx = Context::from_waker(Waker::noop());
        let whole = dump();
        assert_eq!(whole.poll(0, &cx), Poll::Pending);
        whole.has(5, 7);
        assert_eq!((whole.poll(0, &cx), whole.expected()), (Poll::Ready(Ok(5)), 7));
        assert_eq!(whole.poll(5, &cx), Poll::Pending);
        assert_eq!(whole.poll(u64::MAX, &cx), Poll::Pending);
        whole.end(Ok(()));
        assert_eq!(whole.poll(5, &cx), Poll::Ready(Ok(5)));
        assert_eq!(whole.poll(u64::MAX, &cx), Poll::Ready(Ok(5)));

        let failed = dump();
        failed.has(5, 0);
        failed.end(Err("no room".to_owned()));
        assert_eq!(failed.expected(), 5);
        assert_eq!(failed.poll(0, &cx), Poll::Ready(Err("no room".to_owned())));
    }
}
