//! The twin's faults, one by one, and what the mirror makes of them. The clock moves only where a test moves it.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use coord::twin::{Fault, TIMEOUT};
use coord::{Coord, Entry, Error, Event, Mirror, Outcome, Twin, WatchEnd};

use crate::common::{commit, delete, deleted, end, entry, put, run, take, transaction};

/// One poll.
pub fn poll<T>(future: impl Future<Output = T>) -> Poll<T> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// A call that needs no time.
fn now<T>(future: impl Future<Output = T>) -> T {
    match poll(future) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("it is not ready"),
    }
}

/// Moves the clock in small steps until the mirror has changes.
fn wait(twin: &Twin, mirror: &mut Mirror) -> (Vec<Event>, Duration) {
    let from = twin.now();
    for _ in 0..10_000 {
        if let Poll::Ready(changes) = poll(mirror.next()) {
            return (changes, twin.now() - from);
        }
        twin.advance(Duration::from_millis(10));
    }
    panic!("nothing happened: {:?}", mirror.trouble());
}

/// A store with one entry, and a mirror that has it.
fn mirrored() -> (Twin, Mirror) {
    let twin = Twin::new(3);
    now(commit(&twin, vec![put("p/a", "1")]));
    let mut mirror = Mirror::new(Arc::new(twin.clone()), "p/");
    assert_eq!(wait(&twin, &mut mirror).0.len(), 1);
    assert!(poll(mirror.next()).is_pending());
    (twin, mirror)
}

fn equals(twin: &Twin, mirror: &Mirror) -> bool {
    let below: BTreeMap<String, Entry> = twin.entries().into_iter().filter(|(key, _)| key.starts_with("p/")).collect();
    below == *mirror.entries()
}

#[test]
fn a_lost_request_and_a_lost_answer_look_alike() {
    let twin = Twin::new(1);
    let create = || twin.transact(transaction(&[("a", 0)], vec![put("a", "1")]));
    twin.order(Fault::LoseRequest);
    assert!(matches!(now(create()), Ok(Outcome::Unknown(_))));
    assert!(twin.entries().is_empty());
    twin.order(Fault::LoseAnswer);
    assert!(matches!(now(create()), Ok(Outcome::Unknown(_))));
    assert_eq!(twin.entries().len(), 1);
    assert_eq!(now(create()), Ok(Outcome::Conflict));
    // Of other calls too it is not known whether they were executed.
    twin.order(Fault::LoseAnswer);
    assert!(matches!(now(twin.get("a")), Err(Error::Lost(_))));
}

#[test]
fn a_stalled_transaction_is_committed_after_its_caller_gave_up() {
    let twin = Twin::new(1);
    twin.order(Fault::Stall(TIMEOUT + Duration::from_secs(1)));
    let mut late = twin.transact(transaction(&[], vec![put("a", "1")]));
    assert!(poll(&mut late).is_pending());
    twin.advance(TIMEOUT);
    assert!(matches!(now(late), Ok(Outcome::Unknown(_))));
    assert!(twin.entries().is_empty());
    twin.advance(Duration::from_secs(1));
    assert_eq!(twin.entries().len(), 1);
}

#[test]
fn a_stalled_call_that_is_in_time_is_answered() {
    let twin = Twin::new(1);
    twin.order(Fault::Stall(Duration::from_secs(1)));
    let mut slow = twin.transact(transaction(&[], vec![put("a", "1")]));
    assert!(poll(&mut slow).is_pending());
    twin.advance(Duration::from_secs(1));
    assert_eq!(now(slow), Ok(Outcome::Committed(2)));
}

#[test]
fn what_cannot_be_reached_was_not_sent() {
    let twin = Twin::new(1);
    let mut watch = twin.watch("", 1);
    twin.set_reachable(false);
    assert!(matches!(now(twin.transact(transaction(&[], vec![put("a", "1")]))), Err(Error::Unreachable(_))));
    assert!(matches!(now(end(&mut watch)), WatchEnd::Cut(_)));
    twin.set_reachable(true);
    assert!(twin.entries().is_empty());
    twin.set_full(true);
    assert_eq!(now(twin.transact(transaction(&[], vec![put("a", "1")]))), Err(Error::NoSpace));
}

#[test]
fn a_lease_ends_early_and_in_time() {
    let twin = Twin::new(1);
    let lease = now(twin.grant(Duration::from_secs(3))).unwrap();
    let other = now(twin.grant(Duration::from_secs(3))).unwrap();
    twin.advance(Duration::from_secs(2));
    twin.end_lease(other.id);
    let kept = now(twin.keep_alive(lease.id, TIMEOUT)).unwrap();
    assert_eq!(now(twin.keep_alive(other.id, TIMEOUT)), Err(Error::LeaseGone));
    twin.advance(Duration::from_secs(3) - Duration::from_millis(1));
    assert!(twin.now() > kept.ends_at(), "the holder gives it up first");
    assert!(now(twin.keep_alive(lease.id, TIMEOUT)).is_ok());
    twin.advance(Duration::from_secs(4));
    assert_eq!(now(twin.keep_alive(lease.id, TIMEOUT)), Err(Error::LeaseGone));
}

#[test]
fn a_mirror_resumes_a_cut_watch_and_misses_nothing() {
    let (twin, mut mirror) = mirrored();
    twin.cut_watches();
    for number in 0..10 {
        now(commit(&twin, vec![put("p/a", &number.to_string()), put("p/b", "")]));
    }
    let mut events = Vec::new();
    while !equals(&twin, &mirror) {
        events.extend(wait(&twin, &mut mirror).0);
    }
    assert_eq!(events.len(), 20, "each change, not only the difference");
    assert!(events.is_sorted_by_key(Event::revision));
}

/// Two seconds: one until a read shows the change, one to give the watch time.
#[test]
fn a_silent_watch_is_noticed() {
    let (twin, mut mirror) = mirrored();
    twin.silence_watches();
    let first = now(commit(&twin, vec![put("p/a", "2")]));
    let second = now(commit(&twin, vec![delete("p/a")]));
    let (mut events, time) = wait(&twin, &mut mirror);
    while events.len() < 2 {
        events.extend(wait(&twin, &mut mirror).0);
    }
    assert_eq!(events, [Event::Put(entry("p/a", "2", first)), deleted("p/a", second)]);
    assert!(time <= Duration::from_millis(2100), "{time:?}");
}

#[test]
fn a_silent_watch_that_misses_only_a_deletion_is_noticed() {
    let (twin, mut mirror) = mirrored();
    twin.silence_watches();
    let revision = now(commit(&twin, vec![delete("p/a")]));
    assert_eq!(wait(&twin, &mut mirror).0, [deleted("p/a", revision)]);
}

#[test]
fn a_watch_that_stays_silent_is_replaced_by_a_list() {
    let (twin, mut mirror) = mirrored();
    twin.silence_watches();
    twin.set_silent(true);
    now(commit(&twin, vec![put("p/a", "2")]));
    let revision = now(commit(&twin, vec![put("p/a", "3")]));
    let (changes, time) = wait(&twin, &mut mirror);
    assert_eq!(changes, [Event::Put(entry("p/a", "3", revision))], "the difference");
    assert!(time > Duration::from_millis(2500), "it was resumed first: {time:?}");
}

#[test]
fn a_mirror_lists_again_after_a_compaction_and_tells_the_difference() {
    let (twin, mut mirror) = mirrored();
    now(commit(&twin, vec![put("p/b", "1"), put("p/c", "1")]));
    while !equals(&twin, &mirror) {
        wait(&twin, &mut mirror);
    }
    assert!(poll(mirror.next()).is_pending());
    twin.cut_watches();
    now(commit(&twin, vec![put("p/a", "2")]));
    let changed = now(commit(&twin, vec![put("p/a", "3")]));
    now(commit(&twin, vec![delete("p/b")]));
    let made = now(commit(&twin, vec![put("p/d", "1")]));
    let last = now(commit(&twin, vec![put("elsewhere", "")]));
    now(twin.compact(last)).unwrap();
    let expected = [Event::Put(entry("p/a", "3", changed)), Event::Put(entry("p/d", "1", made)), deleted("p/b", last)];
    assert_eq!(wait(&twin, &mut mirror).0, expected);
    assert!(equals(&twin, &mirror));
}

#[test]
fn a_mirror_notices_a_store_that_was_restored() {
    let (twin, mut mirror) = mirrored();
    let first = mirror.revision();
    now(commit(&twin, vec![put("p/a", "2"), put("p/b", "1")]));
    wait(&twin, &mut mirror);
    twin.restore(first);
    let changes = wait(&twin, &mut mirror).0;
    assert_eq!(changes, [Event::Put(entry("p/a", "1", first)), deleted("p/b", first)]);
    assert!(equals(&twin, &mirror));
}

#[test]
fn a_mirror_says_what_hinders_it_and_when_it_was_right() {
    let (twin, mut mirror) = mirrored();
    twin.set_reachable(false);
    let cut_off = twin.now();
    for _ in 0..1000 {
        assert!(poll(mirror.next()).is_pending());
        twin.advance(Duration::from_millis(10));
    }
    assert!(mirror.trouble().is_some());
    assert!(mirror.proven_at().is_some_and(|at| at <= cut_off));
    twin.set_reachable(true);
    for _ in 0..200 {
        assert!(poll(mirror.next()).is_pending());
        twin.advance(Duration::from_millis(10));
    }
    assert!(mirror.proven_at().is_some_and(|at| at > cut_off));
}

/// The twin works under a runtime too: a sleeper and a watch are woken.
#[test]
fn what_waits_is_woken() {
    let twin = Twin::new(1);
    run(async {
        let sleeper = twin.sleep_until(Duration::from_secs(1));
        let mut watch = twin.watch("", 1);
        let acts = async {
            tokio::task::yield_now().await;
            twin.advance(Duration::from_secs(1));
            commit(&twin, vec![put("a", "1")]).await
        };
        let ((), events, revision) = tokio::join!(sleeper, take(&mut watch, 1), acts);
        assert_eq!(events, [Event::Put(entry("a", "1", revision))]);
    });
}
