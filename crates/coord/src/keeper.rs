//! Owns keeping a lease: the keep-alives, on a thread of its own, and until when the lease may be relied on. Never knows what the lease
//! is for.
//!
//! A keep-alive is sent only while `alive` says that the process does its work. Otherwise a process whose workers hang, but whose keeper
//! runs, would keep its place for ever.
//!
//! The server counts a lease's time from a keep-alive's arrival, the keeper from its sending, on its own clock and a tenth less
//! ([`Lease::ends_at`]). So the keeper gives the lease up before the server can have ended it, whatever became of the answers. The server
//! may still end a lease early, when it is revoked; the keeper learns that from the next keep-alive.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::watch;

use crate::types::Lease;
use crate::{Coord, Error};

/// Keep-alives in a lease's time: so many may fail one after the other but for one.
const KEEP_ALIVES: u32 = 4;
/// Between two looks at `alive` when it says no, and after a keep-alive that failed.
const PAUSE: Duration = Duration::from_millis(50);

/// Why a lease is lost. It is never held again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// No keep-alive was answered in time.
    NotKept,
    /// `alive` said no for too long.
    NotAlive,
    /// The server has ended it early.
    Gone,
}

/// Keeps one lease until it is lost or the keeper is dropped. The lease of a dropped keeper ends by itself, or by `revoke`.
pub struct Keeper {
    held: Arc<Held>,
    lost: watch::Receiver<Option<Lost>>,
    /// Dropped: the thread ends.
    stop: Option<watch::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and its readers share.
struct Held {
    /// By `Coord::now`, in nanoseconds. 0: lost.
    until_nanos: AtomicU64,
}

impl Keeper {
    /// `coord` is used on the keeper's thread only: an `Etcd` that no other runtime uses ([`crate::Etcd::apart`]).
    pub fn start(coord: Arc<dyn Coord>, lease: Lease, alive: impl Fn() -> bool + Send + 'static) -> io::Result<Keeper> {
        let held = Arc::new(Held { until_nanos: AtomicU64::new(nanos(lease.ends_at())) });
        let (report, lost) = watch::channel(None);
        let (stop, mut stopped) = watch::channel(());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let run = {
            let held = Arc::clone(&held);
            move || {
                runtime.block_on(async {
                    tokio::select! {
                        why = keep(&*coord, lease, &alive, &held) => drop(report.send(Some(why))),
                        _ = stopped.changed() => {}
                    }
                });
            }
        };
        let thread = std::thread::Builder::new().name("lease".to_owned()).spawn(run)?;
        Ok(Keeper { held, lost, stop: Some(stop), thread: Some(thread) })
    }

    /// By `Coord::now` of now, so it is right even while the keeper's thread does not run.
    pub fn is_held(&self, now: Duration) -> bool {
        nanos(now) < self.held.until_nanos.load(SeqCst)
    }

    /// Waits until the lease is lost.
    pub async fn lost(&self) -> Lost {
        let mut lost = self.lost.clone();
        let why = lost.wait_for(Option::is_some).await.map(|why| why.expect("it was waited for"));
        // The thread has ended without a word: it has panicked, and the lease is not kept.
        why.unwrap_or(Lost::NotKept)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn keep(coord: &dyn Coord, mut lease: Lease, alive: &impl Fn() -> bool, held: &Held) -> Lost {
    let mut why = Lost::NotKept;
    loop {
        let ends_at = lease.ends_at();
        let period = lease.ttl / KEEP_ALIVES;
        let now = coord.now();
        if now >= ends_at {
            return lose(held, why);
        }
        let mut next = now + PAUSE;
        if !alive() {
            why = Lost::NotAlive;
        } else {
            why = Lost::NotKept;
            match coord.keep_alive(lease.id, period.min(ends_at - now)).await {
                // An answer that comes after the end is of no use: readers have already seen that the lease is lost.
                Ok(_) if coord.now() >= ends_at => return lose(held, why),
                Ok(kept) => {
                    lease = kept;
                    held.until_nanos.store(nanos(lease.ends_at()), SeqCst);
                    next = lease.asked_at + period;
                }
                Err(Error::LeaseGone) => return lose(held, Lost::Gone),
                Err(_) => next = coord.now() + PAUSE,
            }
        }
        coord.sleep_until(next.min(lease.ends_at())).await;
    }
}

fn lose(held: &Held, why: Lost) -> Lost {
    held.until_nanos.store(0, SeqCst);
    why
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

/// The loop without its thread, on the twin's clock.
#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::AtomicBool;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::twin::{Fault, Twin};
    use crate::types::{Operation, Transaction};

    const STEP: Duration = Duration::from_millis(10);

    fn poll<T>(future: impl Future<Output = T>) -> Poll<T> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn now<T>(future: impl Future<Output = T>) -> T {
        match poll(future) {
            Poll::Ready(answer) => answer,
            Poll::Pending => panic!("it is not ready"),
        }
    }

    /// Keeps a lease of 4 s that has an entry, for 60 s at most, and does `act` before each step. Returns when and why it was lost;
    /// until then it was held, and the entry was there.
    fn keep_while(mut act: impl FnMut(&Twin, &AtomicBool, Lease)) -> Option<(Duration, Lost)> {
        let twin = Twin::new(1);
        let lease = now(twin.grant(Duration::from_secs(4))).unwrap();
        let put = Operation::Put { key: "a".to_owned(), value: Vec::new(), lease: Some(lease.id) };
        now(twin.transact(Transaction { compare: Vec::new(), operations: vec![put] })).unwrap();
        let is_alive = AtomicBool::new(true);
        let held = Held { until_nanos: AtomicU64::new(nanos(lease.ends_at())) };
        let alive = || is_alive.load(SeqCst);
        let mut kept = pin!(keep(&twin, lease, &alive, &held));
        while twin.now() < Duration::from_secs(60) {
            act(&twin, &is_alive, lease);
            if let Poll::Ready(why) = poll(kept.as_mut()) {
                assert_eq!(held.until_nanos.load(SeqCst), 0);
                assert!(why == Lost::Gone || twin.entries().contains_key("a"), "the server has not ended it yet");
                return Some((twin.now(), why));
            }
            assert!(nanos(twin.now()) < held.until_nanos.load(SeqCst), "it is held");
            twin.advance(STEP);
        }
        None
    }

    fn at_ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn it_is_kept_for_ever() {
        assert_eq!(keep_while(|_, _, _| {}), None);
    }

    #[test]
    fn it_is_lost_before_the_server_ends_it() {
        // The last keep-alive was sent at 10 s.
        let lost = keep_while(|twin, _, _| twin.set_reachable(twin.now() <= at_ms(10_000)));
        assert_eq!(lost, Some((at_ms(13_600), Lost::NotKept)));
        let lost = keep_while(|twin, is_alive, _| is_alive.store(twin.now() <= at_ms(10_000), SeqCst));
        assert_eq!(lost, Some((at_ms(13_600), Lost::NotAlive)));
    }

    #[test]
    fn a_pause_is_survived() {
        let lost = keep_while(|twin, is_alive, _| {
            let ms = twin.now().as_millis() % 10_000;
            twin.set_reachable(!(1100..3900).contains(&ms));
            is_alive.store(!(5000..7500).contains(&ms), SeqCst);
        });
        assert_eq!(lost, None);
    }

    /// The server has kept the lease, and the keeper cannot know.
    #[test]
    fn an_answer_that_is_lost_does_not_count() {
        let lost = keep_while(|twin, _, _| {
            if twin.now() > at_ms(10_000) {
                twin.order(Fault::LoseAnswer);
            }
        });
        assert_eq!(lost, Some((at_ms(13_600), Lost::NotKept)));
    }

    /// Time counts from the sending of what was answered, however late the answer is.
    #[test]
    fn a_late_answer_counts_from_its_sending() {
        let lost = keep_while(|twin, _, _| match twin.now().as_millis() {
            1..10_000 => twin.order(Fault::Stall(at_ms(900))),
            10_000.. => twin.set_reachable(false),
            _ => {}
        });
        let (at, why) = lost.unwrap();
        assert_eq!(why, Lost::NotKept);
        assert!(at < at_ms(10_000 + 3600 - 900), "{at:?}");
    }

    /// The thread did not run while the lease's time ended, and readers have seen that it is lost.
    #[test]
    fn an_answer_that_is_read_after_the_end_does_not_count() {
        let lost = keep_while(|twin, _, _| match twin.now().as_millis() {
            10_010 => twin.set_reachable(false),
            13_500 => {
                twin.set_reachable(true);
                twin.order(Fault::Stall(at_ms(50)));
            }
            13_510 => twin.advance(at_ms(500)),
            _ => {}
        });
        assert_eq!(lost, Some((at_ms(14_010), Lost::NotKept)));
    }

    #[test]
    fn a_revoked_lease_is_gone_at_the_next_keep_alive() {
        let lost = keep_while(|twin, _, lease| {
            if twin.now() == at_ms(10_500) {
                twin.end_lease(lease.id);
            }
        });
        assert_eq!(lost, Some((at_ms(11_000), Lost::Gone)));
    }
}
