//! A copy that comes back into the set, step by step.

use cluster::failover::{Acknowledgement, Primary};
use cluster::ids::{CopyNumber, Epoch, Incarnation};
use cluster::records::{Member, Unknown};

fn member(copy: u32, incarnation: u8) -> Member {
    Member { copy: CopyNumber(copy), incarnation: Incarnation([incarnation; 8]), unknown: Unknown::new() }
}

fn hears(primary: &mut Primary, replica: &Member, received: u64, now_ms: u64) {
    let heartbeat = primary.heartbeat(now_ms).map(|heartbeat| heartbeat.number);
    primary.hear(replica, &Acknowledgement { epoch: Epoch::FIRST, received, heartbeat }, now_ms);
}

/// Once, such a copy followed and was never recorded again: it was added, and at once removed as a copy that needs another dataset.
#[test]
fn a_copy_that_needs_another_dataset_while_it_is_added_joins_with_it() {
    let (me, before) = (member(0, 0), member(1, 1));
    let mut primary = Primary::begin(Epoch::FIRST, me.clone(), std::slice::from_ref(&me), 0);
    primary.follows(&before, 10, 0);
    hears(&mut primary, &before, 10, 0);
    // It is to be added when it has what was written meanwhile; then its connection ends, and it asks for a whole dataset.
    assert_eq!(primary.wanted(20, 0), None);
    assert!(!primary.may_be_refilled(CopyNumber(1)), "replies wait for it");
    // It is silent, so it is not added.
    assert_eq!(primary.wanted(20, 1_000), None);
    assert!(primary.may_be_refilled(CopyNumber(1)));
    let after = member(1, 2);
    primary.follows(&after, 20, 1_100);
    for now_ms in [1_100, 1_300] {
        hears(&mut primary, &after, 20, now_ms);
    }
    let set = vec![me, after];
    assert_eq!(primary.wanted(20, 1_300).as_ref(), Some(&set));
    primary.recorded(&set);
    assert_eq!(primary.wanted(20, 1_300), None, "it stays");
}
