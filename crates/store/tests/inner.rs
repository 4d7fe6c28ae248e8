//! Tests of commands inside a transaction: cold values are read at once, with the stripes held.

use flash::Sim;
use std::sync::Arc;
use store::{
    Admission, Codec, Cold, FlashConfig, Key, Lane, LimitOf, Policy, Resume, Show, Store, StoreConfig, Value, Watches,
};

const NOW_MS: u64 = 1_700_000_000_000;

struct Node {
    sim: Sim,
    store: Arc<Store>,
    lane: Lane,
}

/// A store most of whose values are on flash.
fn filled(keys: usize) -> Node {
    let config = FlashConfig::divide(32 << 20, 16 << 20, 1, flash::DATA_OFFSET, Codec::Lz4);
    let sim = Sim::new(7, 1, config.bytes_per_path());
    let store = Store::new(&StoreConfig {
        ram_limit: 2 << 20,
        limit_of: LimitOf::Objects,
        policy: Policy::NoEviction,
        flash: Some(config),
        ..StoreConfig::in_ram(1)
    });
    store.set_blocking(Arc::new(sim.clone()));
    let mut lane = Lane::new(store.clone(), Some(Box::new(sim.driver())), 0);
    for number in 0..keys {
        let name = name(number);
        let key = store.hasher().key(name.as_bytes());
        let mut resume = Resume::default();
        set(&store, &key, &value(number), 0, &mut resume);
        while store.admission() != Admission::Open {
            lane.complete(NOW_MS);
            lane.maintain(NOW_MS);
        }
    }
    assert!(store.hot(0) < keys as u64 / 2, "most values are on flash");
    Node { sim, store, lane }
}

fn name(number: usize) -> String {
    format!("key:{number}")
}

fn value(number: usize) -> Vec<u8> {
    format!("{number:0>1000}").into_bytes()
}

fn read(ks: &mut store::Keyspace<'_>, key: &Key<'_>) -> Result<Option<Vec<u8>>, Cold> {
    Ok(ks.get(key)?.map(|value| match value {
        Value::Inline(_, bytes) => bytes.to_vec(),
        Value::Boxed(_) => panic!("only strings were set"),
    }))
}

#[test]
fn cold_values_are_read_through_the_locks_and_leave_again() {
    const KEYS: usize = 6000;
    let mut node = filled(KEYS);
    let store = node.store.clone();
    let mut resume = Resume::default();
    let mut ks = store.try_lock_all(0, NOW_MS, true, store::Reach::All, &mut resume).expect("nobody else locks");
    let mut scanned = 0;
    for count in [Some(500), None] {
        let mut cursor = 0;
        loop {
            let mut inner = ks.inner(0, true);
            inner.begin_list(cursor, count);
            match inner.list(&mut Show { kinds: &|_| true, name: &mut |_| scanned += 1 }).unwrap() {
                None => {}
                Some(0) => break,
                Some(next) => cursor = next,
            }
        }
    }
    assert_eq!(scanned, 2 * KEYS, "names are read too");
    for number in 0..KEYS {
        let name = name(number);
        let key = store.hasher().key(name.as_bytes());
        let mut inner = ks.inner(0, true);
        assert_eq!(read(&mut inner, &key), Ok(Some(value(number))));
        if number % 7 == 0 {
            // Written after a read, as inside a transaction it may be.
            inner.set_string(&key, b"new", None);
        }
        inner.close();
    }
    assert_eq!(ks.inner(0, true).len(), KEYS as u64);
    drop(ks);
    assert!(
        store.stats().object_bytes < 6 << 20,
        "{} bytes: what was read for a moment left again",
        store.stats().object_bytes
    );
    node.lane.drain();
}

#[test]
fn a_failed_read_is_reported() {
    let node = filled(6000);
    let store = &node.store;
    let cold = (0..6000).map(name).find(|name| store.probe(&store.hasher().key(name.as_bytes()), 0).is_some()).unwrap();
    let key = store.hasher().key(cold.as_bytes());
    node.sim.fail_next_read();
    let mut resume = Resume::default();
    let mut ks = store.lock(&[key], 0, NOW_MS, true, &mut resume);
    assert_eq!(read(&mut ks.inner(0, true), &key), Err(Cold));
    assert!(ks.resume.failed.take().is_some());
    assert!(read(&mut ks.inner(0, true), &key).unwrap().is_some(), "the device has recovered");
}

#[test]
fn more_stripes_are_added_to_those_held() {
    let store = Store::new(&StoreConfig::in_ram(1));
    let names: Vec<String> = (0..50).map(name).collect();
    let keys: Vec<Key<'_>> = names.iter().map(|name| store.hasher().key(name.as_bytes())).collect();
    let mut resume = Resume::default();
    let mut ks = store.lock(&keys[25..26], 0, NOW_MS, true, &mut resume);
    for key in &keys {
        let mut inner = ks.inner(0, true);
        assert!(inner.add(&[*key]) && inner.holds(&[*key]));
        inner.set_string(key, b"x", None);
        inner.close();
    }
    let stripes: std::collections::HashSet<usize> = keys.iter().map(|key| key.hash.stripe()).collect();
    let elsewhere =
        (0..).map(name).find(|name| !stripes.contains(&store.hasher().key(name.as_bytes()).hash.stripe())).unwrap();
    assert!(!ks.holds(&[store.hasher().key(elsewhere.as_bytes())]));
    assert!(ks.add_all());
    assert_eq!(ks.inner(0, true).len(), 50);
}

/// Two scripts that hold what the other wants: the second to ask is refused, the first gets it.
#[test]
fn of_two_scripts_that_want_each_others_stripes_one_is_refused() {
    let store = Store::new(&StoreConfig::in_ram(2));
    let names: Vec<String> = (0..2).map(name).collect();
    let barrier = std::sync::Barrier::new(2);
    let results: Vec<bool> = std::thread::scope(|scope| {
        let run = |mine: usize| {
            let (store, names, barrier) = (&store, &names, &barrier);
            move || {
                let mut resume = Resume::default();
                let mut ks = store.lock(&[store.hasher().key(names[mine].as_bytes())], 0, NOW_MS, true, &mut resume);
                barrier.wait();
                ks.add(&[store.hasher().key(names[1 - mine].as_bytes())])
            }
        };
        let threads = [scope.spawn(run(0)), scope.spawn(run(1))];
        threads.map(|thread| thread.join().unwrap()).into()
    });
    assert_eq!(results.iter().filter(|&&had| had).count(), 1, "{results:?}");
}

#[test]
fn a_script_that_adds_a_stripe_overtakes_commands_that_lock_several() {
    let store = Store::new(&StoreConfig::in_ram(2));
    let names: Vec<String> = (0..200).map(name).collect();
    let all: Vec<Key<'_>> = names.iter().map(|name| store.hasher().key(name.as_bytes())).collect();
    let lowest = *all.iter().min_by_key(|key| key.hash.stripe()).unwrap();
    let highest = *all.iter().max_by_key(|key| key.hash.stripe()).unwrap();
    let (locked, begin) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let (store, all) = (&store, &all);
        scope.spawn(move || {
            let mut resume = Resume::default();
            let mut ks = store.lock(&[highest], 0, NOW_MS, true, &mut resume);
            locked.send(()).unwrap();
            // Long enough for the other to hold the lowest and wait for the highest.
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(ks.add(&[lowest]));
        });
        begin.recv().unwrap();
        let mut resume = Resume::default();
        let mut ks = store.lock(all, 0, NOW_MS, true, &mut resume);
        ks.set_string(&lowest, b"x", None);
        ks.close();
    });
}

#[test]
fn watches_end_when_they_are_dropped() {
    let store = Store::new(&StoreConfig::in_ram(1));
    let key = store.hasher().key(b"k");
    let mut resume = Resume::default();
    let mut watches = [Watches::default(), Watches::default()];
    for watches in &mut watches {
        store.lock(&[key], 0, NOW_MS, true, &mut resume).watch(&[key, key], watches).unwrap();
        assert_eq!(watches.len(), 1);
    }
    let [first, second] = watches;
    drop(first);
    set(&store, &key, b"x", 1, &mut resume);
    assert!(!second.changed(), "in another database");
    set(&store, &key, b"x", 0, &mut resume);
    assert!(second.changed());
}

fn set(store: &Store, key: &Key<'_>, value: &[u8], db: usize, resume: &mut Resume) {
    let mut ks = store.lock(&[*key], db, NOW_MS, true, resume);
    ks.set_string(key, value, None);
    ks.close();
}
