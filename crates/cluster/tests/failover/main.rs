//! Random histories of a shard with replicas: crashes, losses of power, pauses, cuts, clocks that run at different speeds, answers of etcd
//! that are lost. After each step, what must always hold is checked.
//!
//! `FLINTKV_HISTORIES` is the least number of histories, 1,000 by default.

mod joining;
mod leaving;
mod mutants;
mod sim;

use sim::{Options, Sim};

fn histories(least: u64) -> u64 {
    std::env::var("FLINTKV_HISTORIES").map_or(least, |text| text.parse().expect("a number of histories"))
}

#[test]
fn nothing_acknowledged_is_lost_and_no_read_is_stale() {
    let mut totals = sim::Totals::default();
    let count = seeds::each(1, histories(2_000), |seed| {
        let mut sim = Sim::new(seed, Options::default());
        sim.run();
        totals.add(&sim.totals);
    });
    println!("{count} histories: {totals:?}");
    // A history in which nothing happens proves nothing.
    let least = |what: &str, number: u64| assert!(number >= count / 20, "{what}: {number} in {count} histories");
    if count >= 1_000 {
        least("promotions", totals.promotions);
        least("resumptions", totals.resumptions);
        least("copies that joined the set", totals.joined);
        least("copies that left the set", totals.left);
        least("acknowledged writes", totals.acknowledged);
        least("reads", totals.reads);
        least("refills", totals.refills);
        least("unknown transactions", totals.unknown);
        least("handovers", totals.handovers);
        least("handovers that were given up", totals.handovers_given_up);
        least("replies after a handover", totals.late);
        least("promotions after a process's end", totals.ended);
    }
}

/// All copies lose their power at once. Where an operator has to decide then, nothing is lost but what the copy that goes on does not have,
/// no other copy has more, and the shard is served again.
#[test]
fn after_a_loss_of_all_power_an_operator_goes_on_with_what_is_left() {
    let mut totals = sim::Totals::default();
    let count = seeds::each(1, histories(1_000), |seed| {
        let mut sim = Sim::new(seed, Options { recovers: true, ..Options::default() });
        sim.run();
        totals.add(&sim.totals);
    });
    println!("{count} histories: {totals:?}");
    assert!(totals.recoveries >= count / 4 && totals.lost > 0, "{totals:?}");
}

#[test]
fn a_copy_that_is_to_go_leaves_the_set_and_does_not_join_it() {
    let mut totals = sim::Totals::default();
    let count = seeds::each(1, histories(500), |seed| {
        let mut sim = Sim::new(seed, Options { leaves: true, ..Options::default() });
        sim.run();
        totals.add(&sim.totals);
    });
    println!("{count} histories: {totals:?}");
    assert!(totals.left >= count / 4, "{totals:?}");
}
