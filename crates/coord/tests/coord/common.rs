//! What several tests need: a runtime, waiting, and short words for transactions.

use std::time::Duration;

use coord::{Coord, Entry, Event, Mirror, Operation, Outcome, Revision, Transaction, Watch, WatchEnd};
use tokio_stream::StreamExt;

/// Of one wait: so long that no machine is too busy for it.
pub const BOUND: Duration = Duration::from_secs(30);

pub fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(4 * BOUND, test).await.expect("the test ends in time") })
}

/// Waits until the condition holds.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(BOUND, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(waited.await.is_ok(), "{what}");
}

pub fn put(key: &str, value: &str) -> Operation {
    Operation::Put { key: key.to_owned(), value: value.as_bytes().to_vec(), lease: None }
}

pub fn delete(key: &str) -> Operation {
    Operation::Delete { key: key.to_owned() }
}

pub fn transaction(compare: &[(&str, Revision)], operations: Vec<Operation>) -> Transaction {
    Transaction { compare: compare.iter().map(|(key, revision)| ((*key).to_owned(), *revision)).collect(), operations }
}

/// A transaction that nothing can hinder.
pub async fn commit(coord: &dyn Coord, operations: Vec<Operation>) -> Revision {
    match coord.transact(transaction(&[], operations)).await {
        Ok(Outcome::Committed(revision)) => revision,
        other => panic!("not committed: {other:?}"),
    }
}

pub fn entry(key: &str, value: &str, mod_revision: Revision) -> Entry {
    Entry { key: key.to_owned(), value: value.as_bytes().to_vec(), mod_revision, lease: None }
}

pub fn deleted(key: &str, revision: Revision) -> Event {
    Event::Deleted { key: key.to_owned(), revision }
}

/// The next `count` events, which come in whole revisions.
pub async fn take(watch: &mut Watch, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while events.len() < count {
        events.extend(watch.next().await.expect("the watch lives").expect("the watch lives"));
    }
    events
}

pub async fn end(watch: &mut Watch) -> WatchEnd {
    loop {
        if let Err(end) = watch.next().await.expect("an end comes first") {
            return end;
        }
    }
}

/// Follows until the mirror has this revision.
pub async fn follow(mirror: &mut Mirror, until: Revision) -> Vec<Event> {
    let mut events = Vec::new();
    while mirror.revision() < until {
        events.extend(mirror.next().await);
    }
    events
}
