//! Stripes that a store does not own: no command of a client locks them, and their keys neither expire nor are evicted. The node drives
//! demotion, expiry and collection by a simulated clock and device.

mod node;

use flash::Sim;
use node::{Node, Random};
use store::counters::Counter;
use store::{Codec, Key, Keyspace, LimitOf, NotHeld, Policy, Reach, Resume, STRIPES, Store, StoreConfig};

const KEYS: u32 = 400;

fn name(key: u32) -> [u8; 4] {
    key.to_be_bytes()
}

fn set(node: &mut Node, key: u32, value: &[u8], expiry: Option<u64>) {
    node.run(0, &[&name(key)], |ks, keys| {
        ks.set_string(&keys[0], value, expiry);
        Ok(())
    })
    .expect("a blind set reads nothing");
}

/// Of 1,000 bytes that do not shrink.
fn noise() -> Vec<u8> {
    let mut random = Random(3);
    (0..1_000).map(|_| random.draw() as u8).collect()
}

fn idle(node: &mut Node, ms: u64) {
    for _ in 0..ms {
        node.now_ms += 1;
        node.maintain();
    }
}

/// What the store holds, owned or not.
fn held(node: &Node) -> u64 {
    node.store.census().databases[0].keys
}

fn node(ram: u64, policy: Policy) -> Node {
    Node::new(7, ram, 6 << 20, Codec::None, policy)
}

#[test]
fn a_clients_command_does_not_lock_a_stripe_that_is_not_owned() {
    let node = node(4 << 20, Policy::NoEviction);
    let store = &node.store;
    let keys: Vec<_> = (0..KEYS).map(name).collect();
    let keys: Vec<_> = keys.iter().map(|name| store.hasher().key(name)).collect();
    store.set_owned(|stripe| stripe % 2 == 0);
    assert_eq!(store.owned(), STRIPES / 2);
    let (owned, others): (Vec<&Key<'_>>, Vec<&Key<'_>>) = keys.iter().partition(|key| key.hash.stripe() % 2 == 0);
    let mut resume = Resume::default();
    let mut tried = |keys: &[Key<'_>], reach| {
        store.try_lock(keys, 0, node.now_ms, true, reach, &mut resume).map(Keyspace::finish).err()
    };
    assert_eq!(tried(&[*owned[0]], Reach::Owned), None);
    assert_eq!(tried(&[*owned[0], *owned[1]], Reach::Owned), None);
    assert_eq!(tried(&[*others[0]], Reach::Owned), Some(NotHeld::NotOwned));
    assert_eq!(tried(&[*owned[0], *others[0]], Reach::Owned), Some(NotHeld::NotOwned));
    assert_eq!(tried(&[*owned[0], *others[0]], Reach::All), None);
    let mut all = |reach| store.try_lock_all(0, node.now_ms, true, reach, &mut resume).map(Keyspace::finish).err();
    assert_eq!(all(Reach::Owned), None);
    store.set_owned(|_| false);
    assert_eq!(all(Reach::Owned), Some(NotHeld::NotOwned));
    assert_eq!(all(Reach::All), None);
    // A script reaches for a stripe while it holds another.
    store.set_owned(|stripe| stripe % 2 == 0);
    let mut ks = store.try_lock(&[*owned[0]], 0, node.now_ms, true, Reach::Owned, &mut resume).expect("it is owned");
    assert_eq!(ks.reach(&[*owned[1]], Reach::Owned), Ok(()));
    assert_eq!(ks.reach(&[*others[0]], Reach::Owned), Err(NotHeld::NotOwned));
    assert!(ks.add_all());
    assert_eq!(ks.reach(&[*others[1]], Reach::Owned), Err(NotHeld::NotOwned));
    ks.finish();
}

/// In RAM and on flash: the sweep over RAM, the collector and a flash read all meet keys whose time is over.
#[test]
fn keys_expire_only_where_the_stripe_is_owned() {
    for ram in [4 << 20, 300 << 10] {
        let mut node = node(ram, Policy::NoEviction);
        let expiry = node.now_ms + 1_000;
        for key in 0..KEYS {
            set(&mut node, key, &noise(), Some(expiry));
        }
        node.store.set_owned(|_| false);
        idle(&mut node, 3_000);
        assert_eq!(held(&node), u64::from(KEYS), "RAM {ram}: nothing has expired");
        node.store.set_owned(|stripe| stripe < STRIPES / 2);
        idle(&mut node, 3_000);
        let owned = (0..KEYS).filter(|&key| node.store.hasher().key(&name(key)).hash.stripe() < STRIPES / 2).count();
        let left = held(&node);
        assert!(left >= u64::from(KEYS) - owned as u64, "RAM {ram}: {left} left, {owned} owned");
        if ram > 1 << 20 {
            assert_eq!(left, u64::from(KEYS) - owned as u64, "all that is owned and in RAM has expired");
        }
        node.store.set_owned(|_| true);
        for key in 0..KEYS {
            assert_eq!(node.get(0, &name(key)).expect("the device is whole"), None);
        }
    }
}

#[test]
fn keys_are_evicted_only_where_the_stripe_is_owned() {
    let config = StoreConfig {
        ram_limit: 600 << 10,
        limit_of: LimitOf::Objects,
        policy: Policy::AllKeysLru,
        ..StoreConfig::in_ram(1)
    };
    let mut node = Node::of(Sim::new(9, 1, 1 << 20), Store::new(&config), 1);
    let mut keys = 0;
    while node.store.counters().sum(Counter::EvictedKeys) == 0 {
        set(&mut node, keys, &noise(), None);
        keys += 1;
        idle(&mut node, 1);
    }
    node.store.set_owned(|_| false);
    let (before, evicted) = (held(&node), node.store.counters().sum(Counter::EvictedKeys));
    // What repeats a primary's commands still writes.
    for key in keys..keys + 100 {
        set(&mut node, key, &noise(), None);
        idle(&mut node, 2);
    }
    assert_eq!(node.store.counters().sum(Counter::EvictedKeys), evicted);
    assert_eq!(held(&node), before + 100);
    node.store.set_owned(|_| true);
    idle(&mut node, 100);
    assert!(node.store.counters().sum(Counter::EvictedKeys) > evicted, "it is evicted again");
}

/// Lists skip what is not owned, in RAM and on flash.
#[test]
fn scan_shows_what_is_owned() {
    for ram in [4 << 20, 300 << 10] {
        let mut node = node(ram, Policy::NoEviction);
        for key in 0..KEYS {
            set(&mut node, key, &noise(), None);
            idle(&mut node, 1);
        }
        for wanted in [0, STRIPES / 2, STRIPES] {
            node.store.set_owned(|stripe| stripe < wanted);
            let mut shown = node.scan(0, 50).expect("the device is whole");
            shown.sort();
            let mut owned: Vec<Vec<u8>> = (0..KEYS).map(|key| name(key).to_vec()).collect();
            owned.retain(|name| node.store.hasher().key(name).hash.stripe() < wanted);
            assert_eq!(shown, owned, "RAM {ram}, {wanted} stripes");
        }
    }
}
