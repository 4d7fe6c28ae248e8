//! Owns etcd's twin in memory: calls and watches that behave as etcd's, on a clock that the test moves, with faults that the test
//! orders or the seed draws. Never knows a thread, a socket or the time.
//!
//! The same calls, polled in the same order, with the same seed give the same answers and the same faults. Without faults, a call
//! is executed when it is first polled.

mod store;

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use base::random::SplitMix64;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio_stream::Stream;

use crate::error::{Error, Failure};
use crate::types::{Entry, Event, Found, Lease, LeaseId, Listing, Outcome, Probe, Revision, Transaction, WatchEnd};
use crate::{Answer, Coord, Watch};
use store::Store;

/// As in `Etcd`'s options.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// What happens to one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is executed so much later, even if its caller has given it up by then.
    Stall(Duration),
    /// It is not executed, and the caller cannot know.
    LoseRequest,
    /// It is executed, and the caller cannot know.
    LoseAnswer,
}

/// How many of a million calls meet each fault. All zero: none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rates {
    /// For up to twice the timeout.
    pub stall: u32,
    pub lose_request: u32,
    pub lose_answer: u32,
    /// A lease ends before its time.
    pub revoke: u32,
    /// Changes are forgotten, up to some revision.
    pub compact: u32,
    /// All watches end.
    pub cut: u32,
    /// All watches stay open and say nothing any more.
    pub silence: u32,
}

/// A handle; its clones are the same store.
#[derive(Clone)]
pub struct Twin {
    shared: Arc<Mutex<TwinState>>,
}

struct TwinState {
    now: Duration,
    random: SplitMix64,
    rates: Rates,
    /// Of the next calls.
    ordered: VecDeque<Option<Fault>>,
    is_reachable: bool,
    is_silent: bool,
    store: Store,
    /// Stalled calls, by the time of their execution.
    stalled: BTreeMap<(Duration, u64), Stalled>,
    sleepers: BTreeMap<(Duration, u64), Waker>,
    watches: BTreeMap<u64, Watcher>,
    /// Of the last stalled call, sleeper or watch.
    last_number: u64,
}

type Stalled = Box<dyn FnOnce(&mut TwinState) + Send>;

#[derive(Default)]
struct Watcher {
    waker: Option<Waker>,
    fate: Fate,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Fate {
    #[default]
    Live,
    Cut,
    Silent,
}

impl Twin {
    pub fn new(seed: u64) -> Twin {
        let state = TwinState {
            now: Duration::ZERO,
            random: SplitMix64(seed),
            rates: Rates::default(),
            ordered: VecDeque::new(),
            is_reachable: true,
            is_silent: false,
            store: Store::default(),
            stalled: BTreeMap::new(),
            sleepers: BTreeMap::new(),
            watches: BTreeMap::new(),
            last_number: 0,
        };
        Twin { shared: Arc::new(Mutex::new(state)) }
    }

    /// The faults that the seed draws from now on.
    pub fn set_rates(&self, rates: Rates) {
        self.shared.lock().rates = rates;
    }

    /// For the next call that has none ordered yet.
    pub fn order(&self, fault: Fault) {
        self.order_after(0, fault);
    }

    /// The same, after so many calls without one.
    pub fn order_after(&self, calls: usize, fault: Fault) {
        let mut state = self.shared.lock();
        state.ordered.extend(std::iter::repeat_n(None, calls));
        state.ordered.push_back(Some(fault));
    }

    /// While it is not reachable, calls fail without being sent, and there are no watches. Leases end all the same.
    pub fn set_reachable(&self, is_reachable: bool) {
        let mut state = self.shared.lock();
        state.is_reachable = is_reachable;
        if !is_reachable {
            state.end_watches(Fate::Cut);
        }
    }

    /// While it is full, puts and leases are refused, as after etcd's alarm NOSPACE.
    pub fn set_full(&self, is_full: bool) {
        self.shared.lock().store.is_full = is_full;
    }

    pub fn cut_watches(&self) {
        self.shared.lock().end_watches(Fate::Cut);
    }

    /// The watches stay open, and no event and no end comes any more.
    pub fn silence_watches(&self) {
        self.shared.lock().end_watches(Fate::Silent);
    }

    /// While it is silent, new watches say nothing either.
    pub fn set_silent(&self, is_silent: bool) {
        self.shared.lock().is_silent = is_silent;
    }

    /// Ends a lease before its time.
    pub fn end_lease(&self, id: LeaseId) {
        let mut state = self.shared.lock();
        let _ = state.store.revoke(id);
        state.wake_watches();
    }

    /// The store as it was at this revision, as after a restore from a snapshot. Later changes are gone, and later revisions are given
    /// again. Panics if the changes since then are compacted.
    pub fn restore(&self, revision: Revision) {
        let mut state = self.shared.lock();
        state.store.restore(revision);
        state.end_watches(Fate::Cut);
    }

    /// What the store has, without a call.
    pub fn entries(&self) -> BTreeMap<String, Entry> {
        self.shared.lock().store.entries.clone()
    }

    /// Every change from this revision on that is not compacted, without a call.
    pub fn history(&self, from: Revision) -> Vec<(Revision, Vec<Event>)> {
        self.shared.lock().store.history_from(from).cloned().collect()
    }

    /// Moves the clock. What is due is done in the order of its time: leases end, stalled calls are executed, sleepers wake.
    pub fn advance(&self, by: Duration) {
        let mut state = self.shared.lock();
        let until = state.now + by;
        loop {
            let lease = state.store.first_end();
            let stalled = state.stalled.first_key_value().map(|(key, _)| key.0);
            let sleeper = state.sleepers.first_key_value().map(|(key, _)| key.0);
            let Some(due) = [lease, stalled, sleeper].into_iter().flatten().min().filter(|due| *due <= until) else {
                break;
            };
            state.now = state.now.max(due);
            if lease == Some(due) {
                let now = state.now;
                state.store.end_leases(now);
                state.wake_watches();
            } else if stalled == Some(due) {
                let (_, execute) = state.stalled.pop_first().expect("it was just seen");
                execute(&mut state);
            } else {
                let (_, waker) = state.sleepers.pop_first().expect("it was just seen");
                waker.wake();
            }
        }
        state.now = until;
    }

    /// A call: `execute` runs at most once, when the fault says so.
    fn call<T: Send + 'static>(
        &self,
        limit: Duration,
        execute: impl FnOnce(&mut TwinState) -> Result<T, Error> + Send + 'static,
    ) -> Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>> {
        let twin = self.clone();
        Box::pin(async move {
            let (receiver, until) = {
                let mut state = twin.shared.lock();
                if !state.is_reachable {
                    return Err(Failure::NotSent("the twin is not reachable".to_owned()));
                }
                state.draw_faults();
                let run = move |state: &mut TwinState| {
                    let answer = execute(state);
                    state.wake_watches();
                    answer
                };
                match state.fault() {
                    None => return run(&mut state).map_err(Failure::Refused),
                    Some(Fault::LoseRequest) => return Err(Failure::Lost("the request was lost".to_owned())),
                    Some(Fault::LoseAnswer) => {
                        // A refusal is lost like any other answer.
                        let _ = run(&mut state);
                        return Err(Failure::Lost("the answer was lost".to_owned()));
                    }
                    Some(Fault::Stall(time)) => {
                        let (sender, receiver) = oneshot::channel();
                        let at = (state.now + time, state.number());
                        state.stalled.insert(at, Box::new(move |state| drop(sender.send(run(state)))));
                        (receiver, state.now + limit)
                    }
                }
            };
            tokio::select! {
                biased;
                answer = receiver => answer.expect("a stalled call is executed").map_err(Failure::Refused),
                () = twin.sleep_until(until) => Err(Failure::Lost("no answer in time".to_owned())),
            }
        })
    }

    fn ask<T: Send + 'static>(
        &self,
        limit: Duration,
        execute: impl FnOnce(&mut TwinState) -> Result<T, Error> + Send + 'static,
    ) -> Answer<T> {
        let call = self.call(limit, execute);
        Box::pin(async move { Ok(call.await?) })
    }
}

impl TwinState {
    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// What may happen to the store and to the watches at any time happens before a call.
    fn draw_faults(&mut self) {
        let rates = self.rates;
        if self.happens(rates.revoke)
            && let Some(id) = self.store.any_lease(&mut self.random)
        {
            let _ = self.store.revoke(id);
            self.wake_watches();
        }
        if self.happens(rates.compact) {
            let span = (self.store.revision - self.store.compacted) as u64;
            let revision = self.store.compacted + self.random.below(span + 1) as Revision;
            let _ = self.store.compact(revision);
            self.wake_watches();
        }
        if self.happens(rates.cut) {
            self.end_watches(Fate::Cut);
        }
        if self.happens(rates.silence) {
            self.end_watches(Fate::Silent);
        }
    }

    /// What happens to this call.
    fn fault(&mut self) -> Option<Fault> {
        let rates = self.rates;
        let ordered = self.ordered.pop_front().flatten();
        let stall = self.happens(rates.stall);
        let lose_request = self.happens(rates.lose_request);
        let lose_answer = self.happens(rates.lose_answer);
        match () {
            () if ordered.is_some() => ordered,
            () if stall => Some(Fault::Stall(self.up_to(2 * TIMEOUT))),
            () if lose_request => Some(Fault::LoseRequest),
            () if lose_answer => Some(Fault::LoseAnswer),
            () => None,
        }
    }

    fn happens(&mut self, rate: u32) -> bool {
        rate > 0 && self.random.below(1_000_000) < u64::from(rate)
    }

    fn up_to(&mut self, longest: Duration) -> Duration {
        Duration::from_millis(self.random.below(longest.as_millis() as u64))
    }

    fn end_watches(&mut self, fate: Fate) {
        self.watches.values_mut().filter(|watcher| watcher.fate == Fate::Live).for_each(|watcher| watcher.fate = fate);
        self.wake_watches();
    }

    fn wake_watches(&mut self) {
        self.watches.values_mut().filter_map(|watcher| watcher.waker.take()).for_each(Waker::wake);
    }
}

impl Coord for Twin {
    fn get(&self, key: &str) -> Answer<Found> {
        let key = key.to_owned();
        self.ask(TIMEOUT, move |state| {
            Ok(Found { entry: state.store.entries.get(&key).cloned(), revision: state.store.revision })
        })
    }

    fn list(&self, prefix: &str) -> Answer<Listing> {
        let prefix = prefix.to_owned();
        self.ask(TIMEOUT, move |state| {
            Ok(Listing { entries: state.store.with_prefix(&prefix).cloned().collect(), revision: state.store.revision })
        })
    }

    fn probe(&self, prefix: &str) -> Answer<Probe> {
        let prefix = prefix.to_owned();
        self.ask(TIMEOUT, move |state| {
            let newest = state.store.with_prefix(&prefix).map(|entry| entry.mod_revision).max().unwrap_or(0);
            Ok(Probe { newest, count: state.store.with_prefix(&prefix).count(), revision: state.store.revision })
        })
    }

    fn transact(&self, transaction: Transaction) -> Answer<Outcome> {
        let twin = self.clone();
        Box::pin(async move {
            transaction.check()?;
            match twin.call(TIMEOUT, move |state| state.store.transact(transaction)).await {
                Err(Failure::Lost(why)) => Ok(Outcome::Unknown(why)),
                answer => Ok(answer?),
            }
        })
    }

    fn watch(&self, prefix: &str, from: Revision) -> Watch {
        let mut state = self.shared.lock();
        let number = state.number();
        let fate = match () {
            () if !state.is_reachable => Fate::Cut,
            () if state.is_silent => Fate::Silent,
            () => Fate::Live,
        };
        state.watches.insert(number, Watcher { waker: None, fate });
        drop(state);
        Box::pin(TwinWatch { twin: self.clone(), number, prefix: prefix.to_owned(), next: from, has_ended: false })
    }

    fn grant(&self, ttl: Duration) -> Answer<Lease> {
        let (twin, this) = (self.clone(), self.clone());
        Box::pin(async move {
            let asked_at = this.now();
            let granted = twin.ask(TIMEOUT, move |state| state.store.grant(ttl, state.now, &mut state.random));
            let (id, ttl) = granted.await?;
            Ok(Lease { id, ttl, asked_at })
        })
    }

    fn keep_alive(&self, id: LeaseId, timeout: Duration) -> Answer<Lease> {
        let twin = self.clone();
        Box::pin(async move {
            let asked_at = twin.now();
            let kept = twin.ask(timeout, move |state| state.store.keep_alive(id, state.now, &mut state.random));
            Ok(Lease { id, ttl: kept.await?, asked_at })
        })
    }

    fn revoke(&self, id: LeaseId) -> Answer<()> {
        self.ask(TIMEOUT, move |state| state.store.revoke(id))
    }

    fn compact(&self, revision: Revision) -> Answer<()> {
        self.ask(TIMEOUT, move |state| state.store.compact(revision))
    }

    fn now(&self) -> Duration {
        self.shared.lock().now
    }

    fn sleep_until(&self, at: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(Sleep { twin: self.clone(), at, number: None })
    }
}

struct Sleep {
    twin: Twin,
    at: Duration,
    number: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let twin = self.twin.clone();
        let mut state = twin.shared.lock();
        if state.now >= self.at {
            return Poll::Ready(());
        }
        let number = *self.number.get_or_insert_with(|| state.number());
        state.sleepers.insert((self.at, number), cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.twin.shared.lock().sleepers.remove(&(self.at, number));
        }
    }
}

struct TwinWatch {
    twin: Twin,
    number: u64,
    prefix: String,
    /// The first revision that was not delivered.
    next: Revision,
    has_ended: bool,
}

impl Stream for TwinWatch {
    type Item = Result<Vec<Event>, WatchEnd>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let twin = self.twin.clone();
        let mut guard = twin.shared.lock();
        let state = &mut *guard;
        if self.has_ended {
            return Poll::Ready(None);
        }
        let watcher = state.watches.get_mut(&self.number).expect("it stays until the watch is dropped");
        match watcher.fate {
            Fate::Silent => return Poll::Pending,
            Fate::Cut => {
                self.has_ended = true;
                return Poll::Ready(Some(Err(WatchEnd::Cut("the twin cut the watch".to_owned()))));
            }
            Fate::Live => {}
        }
        if self.next < state.store.compacted {
            self.has_ended = true;
            return Poll::Ready(Some(Err(WatchEnd::Compacted { revision: state.store.compacted })));
        }
        // One revision or several, as etcd sends them.
        let most = 1 + state.random.below(3) as usize;
        let (events, next) = state.store.changes(&self.prefix, self.next, most);
        self.next = next;
        if events.is_empty() {
            watcher.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Some(Ok(events)))
    }
}

impl Drop for TwinWatch {
    fn drop(&mut self) {
        self.twin.shared.lock().watches.remove(&self.number);
    }
}
