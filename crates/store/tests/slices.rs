//! Background work comes in slices whose length does not depend on the number of keys. Counted, not timed.

mod node;

use node::{Node, Random};
use store::counters::Counter;
use store::{Codec, Policy};

/// The most entries that one slice of maintenance looked at, while keys are written, move to flash, and expire.
fn most_in_a_slice(keys: u64) -> u64 {
    let mut node = Node::with(90, keys * 30, (keys * 90).max(6 << 20), Codec::None, Policy::NoEviction, 1, 1);
    let mut random = Random(90);
    let mut most = 0;
    for key in 0..keys + 5_000 {
        for _ in 0..1_000 {
            let before = node.store.swept_entries();
            node.now_ms += 1;
            node.maintain();
            most = most.max(node.store.swept_entries() - before);
            if node.store.admission() == store::Admission::Open {
                break;
            }
        }
        assert_eq!(node.store.admission(), store::Admission::Open, "{:#?}", node.store.stats());
        let (now_ms, key) = (node.now_ms, key % keys);
        let expiry = (random.below(200) == 0).then(|| now_ms + 1 + random.below(2 * keys));
        node.run(0, &[&key.to_le_bytes()], |ks, at| {
            ks.set_string(&at[0], &[7; 24], expiry);
            Ok(())
        })
        .unwrap();
    }
    let stats = node.store.stats();
    assert!(stats[Counter::DemotionsWritten] > 0 && stats[Counter::ExpiredKeys] > 0, "{stats:#?}");
    most
}

#[test]
fn a_slice_of_background_work_does_not_grow_with_the_number_of_keys() {
    // With 200,000 keys the index has some 5,000 leaves of 40 entries. A slice visits at most 384 leaves and the neighbours of victims.
    let (few, many) = (most_in_a_slice(5_000), most_in_a_slice(200_000));
    assert!(few > 100 && many < 30_000, "{few} entries with 5,000 keys, {many} with 200,000");
}
