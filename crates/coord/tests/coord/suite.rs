//! What etcd and its twin must do alike: each behaviour runs on both.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use coord::keeper::Lost;
use coord::{
    Coord, Error, Etcd, Event, Keeper, LeaseId, Mirror, OPERATIONS_MAX, Operation, Outcome, Probe, Transaction, Twin,
    VALUE_BYTES_MAX, WatchEnd,
};

use crate::cluster::Cluster;
use crate::common::{commit, delete, deleted, end, entry, eventually, follow, put, run, take, transaction};

/// The store of one behaviour. Several share an etcd, so each has a prefix of its own.
struct World {
    coord: Arc<dyn Coord>,
    prefix: &'static str,
    /// Opens the same store for a thread of its own.
    apart: Box<dyn Fn() -> Arc<dyn Coord>>,
}

impl World {
    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

type Behaviour = for<'a> fn(&'a World) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

macro_rules! behaviours {
    ($($name:ident),* $(,)?) => {
        &[$((concat!(stringify!($name), "/"), |world| Box::pin($name(world)))),*]
    };
}

/// One after the other, because they count revisions.
const BEHAVIOURS: &[(&str, Behaviour)] = behaviours! {
    reads_see_what_was_committed,
    a_transaction_is_done_whole_or_not_at_all,
    what_etcd_would_refuse_is_not_sent,
    a_watch_tells_each_change_once_and_in_order,
    a_mirror_follows,
    a_revoked_lease_takes_its_entries_along,
    a_keeper_says_when_the_lease_was_revoked,
    a_watch_of_forgotten_changes_ends,
};

/// These take the time that leases take, so they run side by side.
const SLOW: &[(&str, Behaviour)] =
    behaviours! { a_lease_ends_by_itself, a_keeper_keeps_a_lease_while_the_process_is_alive };

/// `open`: the store of a behaviour.
async fn run_all(open: impl Fn(&'static str) -> World) {
    for (prefix, behaviour) in BEHAVIOURS {
        println!("{prefix}");
        behaviour(&open(prefix)).await;
    }
    let worlds: Vec<World> = SLOW.iter().map(|(prefix, _)| open(prefix)).collect();
    tokio::join!(SLOW[0].1(&worlds[0]), SLOW[1].1(&worlds[1]));
}

#[test]
fn every_behaviour_on_etcd() {
    run(async {
        let cluster = Cluster::start(1).await;
        let etcd = cluster.etcd();
        let open = |prefix| {
            let other: Etcd = etcd.apart();
            World { coord: Arc::new(etcd.clone()), prefix, apart: Box::new(move || Arc::new(other.apart())) }
        };
        run_all(open).await;
    });
}

#[test]
fn every_behaviour_on_the_twin() {
    run(async {
        let twin = Twin::new(1);
        let open = |prefix| {
            let other = twin.clone();
            World { coord: Arc::new(twin.clone()), prefix, apart: Box::new(move || Arc::new(other.clone())) }
        };
        let clock = async {
            loop {
                twin.advance(Duration::from_millis(10));
                // Keepers run on threads: their clock must not run away from them.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            () = run_all(open) => {}
            () = clock => {}
        }
    });
}

async fn reads_see_what_was_committed(world: &World) {
    let coord = &*world.coord;
    let (a, b) = (world.key("a"), world.key("b"));
    assert_eq!(coord.get(&a).await.unwrap().entry, None);
    let empty = coord.probe(world.prefix).await.unwrap();
    assert_eq!((empty.newest, empty.count), (0, 0));

    let first = commit(coord, vec![put(&b, "1")]).await;
    let second = commit(coord, vec![put(&a, "2")]).await;
    assert!(second > first);
    let found = coord.get(&a).await.unwrap();
    assert_eq!(found.entry, Some(entry(&a, "2", second)));
    assert!(found.revision >= second);

    let listing = coord.list(world.prefix).await.unwrap();
    assert_eq!(listing.entries, [entry(&a, "2", second), entry(&b, "1", first)]);
    // The prefix of one key only, and one that ends just before it.
    assert_eq!(coord.list(&a).await.unwrap().entries.len(), 1);
    assert_eq!(coord.list(&world.key("`")).await.unwrap().entries, []);
    assert!(coord.list("").await.unwrap().entries.len() >= 2);
    let probe = coord.probe(world.prefix).await.unwrap();
    assert_eq!(probe, Probe { newest: second, count: 2, revision: listing.revision });
}

async fn a_transaction_is_done_whole_or_not_at_all(world: &World) {
    let coord = &*world.coord;
    let (a, b) = (world.key("a"), world.key("b"));
    let create = || transaction(&[(&a, 0)], vec![put(&a, "1"), put(&b, "1")]);
    let Outcome::Committed(made) = coord.transact(create()).await.unwrap() else { panic!("it is the first") };
    assert_eq!(coord.transact(create()).await.unwrap(), Outcome::Conflict);

    // Both keys have the transaction's revision.

    for key in [&a, &b] {
        assert_eq!(coord.get(key).await.unwrap().entry.unwrap().mod_revision, made);
    }

    // One of two comparisons does not hold.
    let half = transaction(&[(&a, made), (&b, made + 1)], vec![put(&a, "2"), delete(&b)]);
    assert_eq!(coord.transact(half).await.unwrap(), Outcome::Conflict);
    assert_eq!(coord.get(&a).await.unwrap().entry, Some(entry(&a, "1", made)));

    let both = transaction(&[(&a, made), (&b, made)], vec![put(&a, "2"), delete(&b)]);
    assert_eq!(coord.transact(both).await.unwrap(), Outcome::Committed(made + 1));
    assert_eq!(coord.list(world.prefix).await.unwrap().entries, [entry(&a, "2", made + 1)]);

    // What changes nothing has no revision of its own.
    let nothing = transaction(&[(&b, 0)], vec![delete(&b)]);
    assert_eq!(coord.transact(nothing).await.unwrap(), Outcome::Committed(made + 1));
    assert_eq!(coord.transact(transaction(&[(&a, made + 1)], Vec::new())).await.unwrap(), Outcome::Committed(made + 1));

    // There is no such lease.
    let leased = Operation::Put { key: b.clone(), value: Vec::new(), lease: Some(LeaseId(4711)) };
    let refused = coord.transact(transaction(&[], vec![put(&a, "3"), leased])).await;
    assert_eq!(refused, Err(Error::LeaseGone));
    assert_eq!(coord.get(&a).await.unwrap().entry, Some(entry(&a, "2", made + 1)));
}

async fn what_etcd_would_refuse_is_not_sent(world: &World) {
    let coord = &*world.coord;
    let a = world.key("a");
    let value = |bytes| Operation::Put { key: a.clone(), value: vec![7; bytes], lease: None };
    commit(coord, vec![value(VALUE_BYTES_MAX)]).await;
    let before = coord.get(&a).await.unwrap();

    let refused = async |transaction: Transaction| coord.transact(transaction).await.unwrap_err();
    let large = refused(transaction(&[], vec![value(VALUE_BYTES_MAX + 1)])).await;
    assert_eq!(
        large.to_string(),
        format!("the value of {a} has 1048577 bytes, and at most 1048576 are allowed: store less")
    );
    let several = (0..2).map(|number| Operation::Put {
        key: world.key(&number.to_string()),
        value: vec![7; VALUE_BYTES_MAX * 2 / 3],
        lease: None,
    });
    assert!(matches!(refused(transaction(&[], several.collect())).await, Error::TooLarge { .. }));
    assert!(matches!(refused(transaction(&[], vec![put(&a, ""), delete(&a)])).await, Error::Refused(_)));
    assert!(matches!(refused(transaction(&[], vec![put("", "")])).await, Error::Refused(_)));
    let many = (0..=OPERATIONS_MAX).map(|number| put(&world.key(&number.to_string()), ""));
    assert!(matches!(refused(transaction(&[], many.collect())).await, Error::Refused(_)));
    assert_eq!(coord.get(&a).await.unwrap(), before);

    // As many as are allowed.
    commit(coord, (0..OPERATIONS_MAX).map(|number| put(&world.key(&number.to_string()), "")).collect()).await;
}

async fn a_watch_tells_each_change_once_and_in_order(world: &World) {
    let coord = &*world.coord;
    let (a, b) = (world.key("a"), world.key("b"));
    let first = commit(coord, vec![put(&a, "1")]).await;
    commit(coord, vec![put("elsewhere", "")]).await;
    let mut watch = coord.watch(world.prefix, first);
    let second = commit(coord, vec![delete(&a), put(&b, "2")]).await;
    let third = commit(coord, vec![put(&a, "3")]).await;
    let expected = [
        Event::Put(entry(&a, "1", first)),
        deleted(&a, second),
        Event::Put(entry(&b, "2", second)),
        Event::Put(entry(&a, "3", third)),
    ];
    let mut events = take(&mut watch, expected.len()).await;
    // etcd orders the events of one revision by their keys or as they came, so the order in a revision is nobody's.
    events.sort_by_key(|event| (event.revision(), event.key().to_owned()));
    assert_eq!(events, expected);

    // Revisions are not divided: a watch from the second has both of its changes.
    let mut later = coord.watch(world.prefix, second);
    assert_eq!(take(&mut later, 1).await.iter().filter(|event| event.revision() == second).count(), 2);
    // And one that begins in the future has only what comes.
    let mut future = coord.watch(world.prefix, third + 1);
    let fourth = commit(coord, vec![delete(&b)]).await;
    assert_eq!(take(&mut future, 1).await, [deleted(&b, fourth)]);
    assert_eq!(take(&mut watch, 1).await, [deleted(&b, fourth)]);
}

async fn a_watch_of_forgotten_changes_ends(world: &World) {
    let coord = &*world.coord;
    let a = world.key("a");
    let first = commit(coord, vec![put(&a, "1")]).await;
    let second = commit(coord, vec![put(&a, "2")]).await;
    let third = commit(coord, vec![put(&a, "3")]).await;
    coord.compact(second).await.unwrap();
    assert_eq!(end(&mut coord.watch(world.prefix, first)).await, WatchEnd::Compacted { revision: second });
    let mut rest = coord.watch(world.prefix, third);
    assert_eq!(take(&mut rest, 1).await, [Event::Put(entry(&a, "3", third))]);
    assert!(matches!(coord.compact(first).await, Err(Error::Refused(_))));
    assert!(matches!(coord.compact(third + 1000).await, Err(Error::Refused(_))));
}

async fn a_mirror_follows(world: &World) {
    let coord = &*world.coord;
    let mut mirror = Mirror::new(Arc::clone(&world.coord), world.prefix);
    assert_eq!(mirror.next().await, [], "the list is empty");
    let mut last = 0;
    for number in 0..50 {
        let (a, b) = (world.key(&(number % 7).to_string()), world.key(&(number % 5).to_string()));
        let mut operations = vec![put(&a, &number.to_string())];
        if a != b {
            operations.push(delete(&b));
        }
        last = commit(coord, operations).await;
    }
    let events = follow(&mut mirror, last).await;
    assert!(events.is_sorted_by_key(Event::revision));
    assert_eq!(events.iter().filter(|event| matches!(event, Event::Put(_))).count(), 50);
    let listed = coord.list(world.prefix).await.unwrap().entries;
    let listed: BTreeMap<_, _> = listed.into_iter().map(|entry| (entry.key.clone(), entry)).collect();
    assert_eq!(*mirror.entries(), listed);

    // A mirror that begins now begins with the list.
    let mut other = Mirror::new(Arc::clone(&world.coord), world.prefix);
    assert_eq!(other.next().await.len(), listed.len());
    assert_eq!(*other.entries(), listed);
    // While nothing changes, reads prove that nothing was missed.
    let from = coord.now();
    while other.proven_at().is_none_or(|at| at < from) {
        let soon = coord.sleep_until(coord.now() + Duration::from_millis(100));
        tokio::select! {
            changes = other.next() => panic!("nothing changes: {changes:?}"),
            () = soon => {}
        }
    }
}

fn leased(key: &str, lease: LeaseId) -> Operation {
    Operation::Put { key: key.to_owned(), value: Vec::new(), lease: Some(lease) }
}

async fn a_revoked_lease_takes_its_entries_along(world: &World) {
    let coord = &*world.coord;
    let [a, b, c] = ["a", "b", "c"].map(|name| world.key(name));
    let lease = coord.grant(Duration::from_secs(60)).await.unwrap();
    assert_eq!(lease.ttl, Duration::from_secs(60));
    assert!(lease.asked_at <= coord.now());
    let made = commit(coord, vec![leased(&a, lease.id), leased(&b, lease.id), leased(&c, lease.id)]).await;
    assert_eq!(coord.get(&a).await.unwrap().entry.unwrap().lease, Some(lease.id));
    // A put without the lease takes the entry from it.
    let kept = commit(coord, vec![put(&c, "")]).await;
    assert_eq!(coord.keep_alive(lease.id, Duration::from_secs(5)).await.unwrap().ttl, lease.ttl);

    let mut watch = coord.watch(world.prefix, made + 2);
    coord.revoke(lease.id).await.unwrap();
    // All in one revision.
    assert_eq!(take(&mut watch, 2).await, [deleted(&a, kept + 1), deleted(&b, kept + 1)]);
    assert_eq!(coord.list(world.prefix).await.unwrap().entries, [entry(&c, "", kept)]);
    assert_eq!(coord.keep_alive(lease.id, Duration::from_secs(5)).await, Err(Error::LeaseGone));
    assert_eq!(coord.revoke(lease.id).await, Err(Error::LeaseGone));
}

async fn a_lease_ends_by_itself(world: &World) {
    let coord = &*world.coord;
    let a = world.key("a");
    let before = coord.now();
    let lease = coord.grant(Duration::from_millis(100)).await.unwrap();
    assert!(lease.ttl >= Duration::from_millis(100));
    let made = commit(coord, vec![leased(&a, lease.id)]).await;
    let mut watch = coord.watch(world.prefix, made + 1);
    assert!(matches!(&take(&mut watch, 1).await[..], [Event::Deleted { key, .. }] if *key == a));
    assert!(coord.now() >= before + lease.ttl, "not before its time");
}

async fn a_keeper_keeps_a_lease_while_the_process_is_alive(world: &World) {
    let coord = &*world.coord;
    let a = world.key("a");
    // Long, because a busy machine may delay keep-alives.
    let lease = coord.grant(Duration::from_secs(4)).await.unwrap();
    let is_alive = Arc::new(AtomicBool::new(true));
    let alive = Arc::clone(&is_alive);
    let keeper = Keeper::start((world.apart)(), lease, move || alive.load(SeqCst)).unwrap();
    commit(coord, vec![leased(&a, lease.id)]).await;
    // Longer than it would live by itself.
    coord.sleep_until(lease.asked_at + lease.ttl * 5 / 4).await;
    let late = coord.now();
    assert!(keeper.is_held(late));
    assert!(coord.get(&a).await.unwrap().entry.is_some());

    is_alive.store(false, SeqCst);
    assert_eq!(keeper.lost().await, Lost::NotAlive);
    assert!(!keeper.is_held(late), "never again");
    // The server counts longer, or exactly so long.
    is_alive.store(true, SeqCst);
    coord.sleep_until(coord.now() + lease.ttl).await;
    assert_eq!(coord.keep_alive(lease.id, Duration::from_secs(5)).await, Err(Error::LeaseGone), "nobody kept it");
}

async fn a_keeper_says_when_the_lease_was_revoked(world: &World) {
    let coord = &*world.coord;
    let lease = coord.grant(Duration::from_secs(4)).await.unwrap();
    let keeper = Keeper::start((world.apart)(), lease, || true).unwrap();
    assert!(keeper.is_held(lease.asked_at));
    coord.revoke(lease.id).await.unwrap();
    assert_eq!(keeper.lost().await, Lost::Gone);
    assert!(!keeper.is_held(lease.asked_at));
    // A keeper that is dropped ends its thread and leaves the lease.
    let other = coord.grant(Duration::from_secs(60)).await.unwrap();
    drop(Keeper::start((world.apart)(), other, || true).unwrap());
    eventually("the lease is there", async || coord.keep_alive(other.id, Duration::from_secs(5)).await.is_ok()).await;
}
