//! Each mistake that can be made around the state machines is found.

use crate::histories;
use crate::sim::{Mutant, Options, Sim};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// In how many histories from its seed on each must be found once. Some are found in one history of ten thousands, which would take minutes: if
/// a change of the simulator moves them, search from 1 with FLINTKV_HISTORIES=100000.
const HISTORIES: u64 = 1_000;

fn is_found(mutant: Mutant, from: u64) {
    let recovers = mutant == Mutant::AnyIsTaken;
    let found = (from..from + histories(HISTORIES)).find(|seed| {
        let mut sim = Sim::new(*seed, Options { mutant: Some(mutant), recovers, ..Options::default() });
        catch_unwind(AssertUnwindSafe(|| sim.run())).is_err()
    });
    let seed = found.unwrap_or_else(|| panic!("{mutant:?} is not found"));
    println!("{mutant:?} is found by seed {seed}");
}

macro_rules! mutants {
    ($($name:ident $mutant:ident $from:literal)*) => {$(
        #[test]
        fn $name() {
            is_found(Mutant::$mutant, $from);
        }
    )*};
}

mutants! {
    a_primary_without_a_lease NoLease 2600
    a_copy_that_is_recorded_before_it_is_required AddedBeforeRequired 1
    a_copy_that_is_given_up_before_the_record_says_so RemovedBeforeRecorded 1
    an_incarnation_that_is_ignored IncarnationIgnored 1
    an_unknown_transaction_that_is_taken_for_a_failed_one UnknownIsFailure 1
    a_promise_that_is_forgotten PromiseForgotten 1
    grants_that_are_forgotten GrantsForgotten 59500
    a_promotion_without_what_was_received ReceivedIsNotApplied 1
    a_required_copy_that_is_refilled_as_it_was RefilledAsItWas 2200
    a_primary_that_goes_on_in_its_epoch RestartsInItsEpoch 1
    a_lease_that_is_counted_from_the_answer LeaseCountedFromTheAnswer 6800
    a_handover_before_the_next_primary_has_everything HandsOverTooEarly 1
    a_primary_that_serves_while_it_may_have_handed_over ServesAfterUnknown 1
    a_named_copy_that_never_waits_for_leases NeverWaits 1800
    a_primary_that_ended_before_it_served NamedIsServed 15400
    an_old_primary_that_is_not_required_after_its_handover OldPrimaryNotRequired 1
    any_copy_that_an_operator_goes_on_with AnyIsTaken 1
}
