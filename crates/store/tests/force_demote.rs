//! Tests of the force-demote mode: after each command all touched values are on flash, however often the log is rewritten.

use flash::Sim;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;
use store::counters::Counter;
use store::{Codec, Cold, FlashConfig, Key, Keyspace, Lane, Resume, Store, StoreConfig, Value};

const NOW_MS: u64 = 1_700_000_000_000;

struct Node {
    store: Arc<Store>,
    lanes: Vec<Lane>,
    resume: Resume,
    turn: usize,
}

impl Node {
    fn new(flash_bytes: u64) -> Node {
        let config = FlashConfig::divide(flash_bytes, 16 << 20, 1, flash::DATA_OFFSET, Codec::Lz4);
        let sim = Sim::new(11, 1, config.bytes_per_path());
        let store = Store::new(&StoreConfig { flash: Some(config), ..StoreConfig::in_ram(2) });
        store.set_blocking(Arc::new(sim.clone()));
        let lanes = (0..2).map(|worker| Lane::new(store.clone(), Some(Box::new(sim.driver())), worker)).collect();
        Node { store, lanes, resume: Resume::default(), turn: 0 }
    }

    /// As a session does. Commands come from both workers in turn.
    fn run<T>(&mut self, names: &[&str], handler: impl Fn(&mut Keyspace<'_>, &[Key<'_>]) -> Result<T, Cold>) -> T {
        self.turn += 1;
        let Node { store, lanes, resume, turn } = self;
        let lane = &mut lanes[*turn % 2];
        resume.clear();
        let keys: Vec<Key<'_>> = names.iter().map(|name| store.hasher().key(name.as_bytes())).collect();
        let mut tickets = Vec::new();
        let value = loop {
            let mut ks = store.lock(&keys, 0, NOW_MS, true, resume);
            let result = handler(&mut ks, &keys);
            ks.close();
            if let Ok(value) = result {
                break value;
            }
            tickets.extend(std::mem::take(&mut resume.cold).into_iter().map(|cold| lane.read(cold)));
            lane.submit();
            for ticket in &tickets {
                while lane.poll(ticket, Waker::noop(), resume).map(|read| read.unwrap()).is_pending() {
                    lane.complete(NOW_MS);
                }
            }
        };
        lane.force_demote(NOW_MS, &mut resume.touched);
        tickets.into_iter().for_each(|ticket| lane.release(ticket));
        value
    }

    fn set(&mut self, name: &str, value: &[u8]) {
        self.run(&[name], |ks, keys| {
            ks.set_string(&keys[0], value, None);
            Ok(())
        });
    }

    fn get(&mut self, name: &str) -> Option<Vec<u8>> {
        self.run(&[name], |ks, keys| {
            Ok(ks.get(&keys[0])?.map(|value| match value {
                Value::Inline(_, bytes) => bytes.to_vec(),
                Value::Boxed(_) => panic!("only strings were set"),
            }))
        })
    }
}

fn value(number: usize) -> Vec<u8> {
    // Now and then larger than a page.
    format!("{number} ").repeat(1 + number * 7919 % 200 * if number.is_multiple_of(31) { 20 } else { 1 }).into_bytes()
}

#[test]
fn touched_values_become_cold_while_the_log_is_rewritten() {
    const FLASH_BYTES: u64 = 8 << 20;
    let mut node = Node::new(FLASH_BYTES);
    node.store.set_force_demote(true);
    let mut model = BTreeMap::new();
    for number in 0..12_000 {
        let name = format!("key:{}", number * 7907 % 300);
        match number % 4 {
            0 | 1 => {
                node.set(&name, &value(number));
                model.insert(name, value(number));
            }
            2 => assert_eq!(node.get(&name), model.get(&name).cloned(), "{name}"),
            _ => {
                let other = format!("key:{}", number * 31 % 300);
                let both = node.run(&[&name, &other], |ks, keys| Ok(ks.get_all(keys)?.iter().flatten().count()));
                let names = [&name, &other];
                assert_eq!(both, names.iter().filter(|name| model.contains_key(**name)).count());
            }
        }
        assert_eq!(node.store.hot(0), 0, "after command {number}");
    }
    for (name, value) in &model {
        assert_eq!(node.get(name).as_ref(), Some(value), "{name}");
    }
    let stats = node.store.stats();
    assert!(
        stats[Counter::FlashWriteBytes] > 2 * FLASH_BYTES,
        "{} bytes were written",
        stats[Counter::FlashWriteBytes]
    );
}

#[test]
fn switching_it_on_empties_ram_and_switching_it_off_lets_values_in() {
    let mut node = Node::new(64 << 20);
    for number in 0..30_000 {
        node.set(&format!("key:{number}"), &value(number));
    }
    assert_eq!(node.store.hot(0), 30_000);
    node.store.set_force_demote(true);
    // Any command will do.
    node.run(&[], |_, _| Ok(()));
    assert_eq!(node.store.hot(0), 0);
    node.store.set_force_demote(false);
    for number in 0..30_000 {
        assert_eq!(node.get(&format!("key:{number}")), Some(value(number)));
    }
    assert_eq!(node.store.hot(0), 30_000);
}

/// Does not compress.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1u64;
    let next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

#[test]
fn values_that_flash_cannot_take_stay_in_ram() {
    let mut node = Node::new(4 << 20);
    node.store.set_force_demote(true);
    let huge = noise(300 << 10);
    node.set("huge", &huge);
    node.set("small", b"small");
    assert_eq!(node.store.hot(0), 1);
    assert!(node.get("huge") == Some(huge));
    // Far more than the log holds.
    let large = noise(100 << 10);
    for number in 0..80 {
        node.set(&format!("key:{number}"), &large);
    }
    assert!(node.store.hot(0) > 40, "{} stay in RAM", node.store.hot(0));
    for number in 0..80 {
        assert!(node.get(&format!("key:{number}")).as_ref() == Some(&large));
    }
}

#[test]
fn expiry_of_cold_keys_is_noticed() {
    let mut node = Node::new(8 << 20);
    node.store.set_force_demote(true);
    for number in 0..100u64 {
        node.run(&[&format!("key:{number}")], |ks, keys| {
            ks.set_string(&keys[0], b"value", Some(NOW_MS + 1 + 10 * (number / 2)));
            Ok(())
        });
    }
    // One of two changes its mind.
    for number in (0..100).step_by(2) {
        assert!(node.run(&[&format!("key:{number}")], |ks, keys| ks.set_expiry(&keys[0], None)));
    }
    for (at_ms, left) in [(NOW_MS + 5, 99), (NOW_MS + 105, 89), (NOW_MS + 1000, 50), (NOW_MS + 100_000, 50)] {
        for lane in &mut node.lanes {
            lane.maintain(at_ms);
        }
        assert_eq!((node.store.len(0), node.store.hot(0)), (left, 0), "at {at_ms}");
    }
}
