//! A copy that is to go, step by step.

use cluster::failover::{Acknowledgement, Primary};
use cluster::ids::{CopyNumber, Epoch, Incarnation};
use cluster::records::{Member, Unknown};
use std::collections::BTreeSet;

fn member(copy: u32) -> Member {
    Member { copy: CopyNumber(copy), incarnation: Incarnation([copy as u8; 8]), unknown: Unknown::new() }
}

fn copies<const N: usize>(numbers: [u32; N]) -> BTreeSet<CopyNumber> {
    numbers.map(CopyNumber).into()
}

/// The copy acknowledges this, and the newest heartbeat.
fn hears(primary: &mut Primary, copy: u32, received: u64, now_ms: u64) {
    let heartbeat = primary.heartbeat(now_ms).map(|heartbeat| heartbeat.number);
    primary.hear(&member(copy), &Acknowledgement { epoch: Epoch::FIRST, received, heartbeat }, now_ms);
}

#[test]
fn it_is_required_until_the_record_is_without_it_and_does_not_come_back() {
    let set = [member(0), member(1), member(2)];
    let mut primary = Primary::begin(Epoch::FIRST, member(0), &set, 0);
    for copy in [1, 2] {
        hears(&mut primary, copy, 10, 0);
    }
    assert_eq!(primary.wanted(10, 0), None);
    primary.assigned(copies([0, 2]));
    assert_eq!(primary.wanted(10, 0), Some(vec![member(0), member(2)]));
    hears(&mut primary, 2, 20, 10);
    assert_eq!(primary.acknowledged(), Some(10), "copy 1 is required");
    primary.recorded(&set);
    assert_eq!(primary.wanted(20, 10), Some(vec![member(0), member(2)]), "the transaction is sent again");
    primary.recorded(&[member(0), member(2)]);
    assert_eq!(primary.acknowledged(), Some(20));
    hears(&mut primary, 1, 20, 20);
    assert!(!primary.may_add(20));
    assert_eq!(primary.wanted(20, 20), None);
    // It is not to go after all.
    primary.assigned(copies([0, 1, 2]));
    hears(&mut primary, 1, 20, 210);
    assert!(primary.may_add(210));
}

#[test]
fn a_copy_that_is_just_being_added_goes_too() {
    let mut primary = Primary::begin(Epoch::FIRST, member(0), &[member(0)], 0);
    primary.follows(&member(1), 10, 0);
    hears(&mut primary, 1, 10, 0);
    assert_eq!(primary.wanted(10, 0), Some(vec![member(0), member(1)]));
    primary.assigned(copies([0]));
    // The transaction that adds it may have been made.
    assert_eq!(primary.wanted(10, 0), Some(vec![member(0)]));
    primary.recorded(&[member(0), member(1)]);
    assert_eq!((primary.wanted(10, 0), primary.acknowledged()), (Some(vec![member(0)]), Some(10)));
    primary.recorded(&[member(0)]);
    assert_eq!((primary.wanted(10, 0), primary.acknowledged()), (None, None));
}
