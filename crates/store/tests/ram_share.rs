//! RAM is nearly full of values in the steady state, whatever the limit: what is left free is a number of bytes, and not a share.

mod node;

use flash::sim::Faults;
use node::{Node, Random};
use store::{Codec, Policy};

const MB: u64 = 1 << 20;
/// The process is not counted here, so the objects' slabs may take all but the margin.
const LIMIT: u64 = 256 * MB;
/// Free in the steady state: three of the steps between the levels (`mem/tier.rs`) below the budget. The margin comes on top.
const FREE_BYTES_MAX: u64 = 10 * MB;
const VALUE_BYTES: usize = 4_000;
const KEYS: u64 = 3 * LIMIT / VALUE_BYTES as u64 / 2;

fn set(node: &mut Node, key: u64) {
    assert!(node.make_room(), "flash has room");
    let value = [key as u8; VALUE_BYTES];
    node.run(0, &[&key.to_le_bytes()], |ks, keys| {
        ks.set_string(&keys[0], &value, None);
        Ok(())
    })
    .expect("a blind set reads nothing");
}

#[test]
fn in_the_steady_state_a_few_megabytes_are_free() {
    let mut node = Node::new(11, LIMIT, 512 * MB, Codec::Lz4, Policy::NoEviction);
    node.sim.set_faults(Faults::default());
    let mut random = Random(11);
    (0..KEYS).for_each(|key| set(&mut node, key));
    let mut held = Vec::new();
    for step in 0..KEYS / 2 {
        let key = random.below(KEYS);
        if random.below(2) == 0 {
            set(&mut node, key);
        } else {
            let value = node.get(0, &key.to_le_bytes()).expect("the device has no faults");
            assert_eq!(value.as_deref(), Some(&[key as u8; VALUE_BYTES][..]));
            node.maintain();
        }
        if step % 100 == 0 {
            held.push(node.store.stats().arena_bytes);
        }
    }
    let stats = node.store.stats();
    println!("{KEYS} keys, held {:?} of {LIMIT}: {stats:#?}", (held.iter().min(), held.iter().max()));
    let (least, most) = (*held.iter().min().unwrap(), *held.iter().max().unwrap());
    assert_eq!(stats.object_budget, LIMIT - stats.margin_bytes);
    assert!(least >= stats.object_budget - FREE_BYTES_MAX, "{least} bytes of {}", stats.object_budget);
    assert!(most <= LIMIT, "{most} bytes");
    node.lanes.iter_mut().for_each(store::Lane::drain);
}
