//! Which values stay in RAM: a store over a simulated device on the simulator's traces (docs/internals/memory.md). What it does must be
//! what the simulator foretells, except for the values that are being written to flash.

#[path = "../../store/tests/node/mod.rs"]
#[allow(unused_imports, reason = "other tests use more of it")]
mod node;

use cachesim::policies::SecondAccess;
use cachesim::traces::{Moving, NewPolicy, Published, Scan, Trace};
use cachesim::{Key, Replacement, Setup};
use flash::sim::Faults;
use node::Node;
use std::cell::RefCell;
use store::{Codec, Policy, Resume};
use survey::Use;

const KEYS: usize = 12_000;
const VALUE_BYTES: usize = 4_000;
/// What a value takes of the RAM limit with its key, header, and its part of what stays free.
const RAM_BYTES: usize = 4_600;

struct Stored(RefCell<Node>);

impl Stored {
    fn new(setup: Setup) -> Stored {
        let (ram, flash) = (setup.ram * RAM_BYTES, 4 * setup.keys * VALUE_BYTES);
        let node = Node::new(setup.seed, ram as u64, flash as u64, Codec::None, Policy::NoEviction);
        node.sim.set_faults(Faults::default());
        Stored(RefCell::new(node))
    }
}

impl Replacement for Stored {
    fn access(&mut self, key: Key, kind: Use) -> bool {
        let was_in_ram = self.contains(key);
        let node = self.0.get_mut();
        let (name, value) = (key.to_le_bytes(), [key as u8; VALUE_BYTES]);
        if kind == Use::Read {
            let read = node.get(0, &name).expect("the device has no faults");
            assert_eq!(read.as_deref(), Some(&value[..]));
        } else {
            node.run(0, &[&name], |ks, keys| {
                ks.set_string(&keys[0], &value, None);
                Ok(())
            })
            .expect("a blind set reads nothing");
        }
        assert!(node.make_room(), "flash has room");
        was_in_ram
    }

    fn contains(&self, key: Key) -> bool {
        let node = self.0.borrow();
        let name = key.to_le_bytes();
        let keys = [node.store.hasher().key(&name)];
        let mut resume = Resume::default();
        let mut ks = node.store.lock(&keys, 0, node.now_ms, true, &mut resume);
        let is_hot = ks.is_hot(&keys[0]) == Some(true);
        ks.close();
        is_hot
    }
}

const STORE: NewPolicy = &|setup| Box::new(Stored::new(setup));
const SIMULATED: NewPolicy = &|setup| Box::new(SecondAccess::new(setup));

fn setup() -> Setup {
    Setup::of(KEYS, 0.28, 1)
}

fn both(trace: &dyn Trace) -> (Vec<f64>, Vec<f64>) {
    let both = (trace.measure(STORE), trace.measure(SIMULATED));
    println!("{}, {:?}: the store {:.3?}, simulated {:.3?}", trace.title(), trace.columns(), both.0, both.1);
    both
}

#[test]
fn values_that_were_read_once_after_a_load_are_in_ram_and_the_hit_ratio_is_as_simulated() {
    let (store, simulated) = both(&Published(setup()));
    assert!(store[Published::CENTRALISED] >= 0.95, "{store:?}");
    assert!(store[Published::STEADY] >= simulated[Published::STEADY] - 0.01, "{store:?}, {simulated:?}");
}

#[test]
fn a_scan_by_reads_leaves_the_hot_set_in_ram() {
    let (store, _) = both(&Scan(setup()));
    assert!(store[Scan::HOT_AFTER] >= store[Scan::HOT_BEFORE] - 0.03, "{store:?}");
    assert!(store[Scan::HITS_AFTER] >= store[Scan::HITS_BEFORE] - 0.03, "{store:?}");
}

#[test]
fn scan_moves_nothing() {
    let mut stored = Stored::new(setup());
    (0..KEYS as Key).for_each(|key| _ = stored.access(key, Use::Overwrite));
    let in_ram = |stored: &Stored| (0..KEYS as Key).filter(|&key| stored.contains(key)).collect::<Vec<_>>();
    let before = in_ram(&stored);
    let names = stored.0.get_mut().scan(0, 500).expect("the device has no faults");
    assert_eq!(names.len(), KEYS);
    assert!(before.len() < KEYS / 2, "{} values in RAM", before.len());
    assert_eq!(in_ram(&stored), before);
}

#[test]
fn a_hot_set_that_moved_comes_into_ram() {
    let (store, _) = both(&Moving(setup()));
    assert!(store[Moving::AFTER_4_READS] >= 0.95, "{store:?}");
}
