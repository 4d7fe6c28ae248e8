//! The scrubber over a simulated device: it reads everything once in its interval, and finds damage before anybody asks for the values.

mod node;

use flash::DATA_OFFSET;
use flash::io::PAGE_BYTES;
use node::{Node, Random};
use std::collections::BTreeSet;
use store::counters::Counter;
use store::{Codec, Policy};

const RAM: u64 = 2 << 20;
const FLASH: u64 = 32 << 20;
const INTERVAL_MS: u64 = 60_000;
const KEYS: u64 = 8_000;

fn value(key: u64) -> Vec<u8> {
    let mut random = Random(key);
    (0..500).map(|_| random.draw() as u8).collect()
}

fn set(node: &mut Node, key: u64) {
    assert!(node.make_room());
    node.run(0, &[&key.to_le_bytes()], |ks, keys| {
        ks.set_string(&keys[0], &value(key), None);
        Ok(())
    })
    .unwrap();
}

fn filled() -> Node {
    let mut node = Node::new(7, RAM, FLASH, Codec::Lz4, Policy::NoEviction);
    (0..KEYS).for_each(|key| set(&mut node, key));
    // A new interval begins a new round.
    node.store.set_scrub_interval(INTERVAL_MS);
    node
}

fn pass(node: &mut Node, ms: u64) {
    for _ in 0..ms / 10 {
        node.now_ms += 10;
        node.maintain();
    }
}

#[test]
fn a_round_reads_everything_once_in_the_interval_and_no_faster() {
    let mut node = filled();
    let before = node.store.stats();
    pass(&mut node, INTERVAL_MS / 2);
    let half = node.store.stats();
    assert_eq!(half.scrub_rounds, before.scrub_rounds);
    pass(&mut node, INTERVAL_MS / 2 + 1_000);
    let whole = node.store.stats();
    assert_eq!(
        (whole.scrub_rounds, whole[Counter::RottenPages], whole[Counter::RottenKeys]),
        (before.scrub_rounds + 1, 0, 0)
    );
    let (first, all) = (
        half[Counter::ScrubbedBytes] - before[Counter::ScrubbedBytes],
        whole[Counter::ScrubbedBytes] - before[Counter::ScrubbedBytes],
    );
    assert!(first < all && (2 << 20..=whole.flash_used_bytes).contains(&all), "{first} and {all} bytes of {whole:#?}");
    node.store.set_scrub_interval(0);
    pass(&mut node, 2 * INTERVAL_MS);
    assert_eq!(node.store.stats()[Counter::ScrubbedBytes], whole[Counter::ScrubbedBytes], "it is off");
}

/// After a restart, RAM gets the values that were used before, as far as there is room.
#[test]
fn values_that_were_used_come_back_before_they_are_asked_for() {
    let mut node = filled();
    node.store.set_scrub_interval(0);
    // Others are used until the clock hand has forgotten that those between were loaded not long ago.
    let (read, written) = (KEYS / 8, KEYS / 2);
    for number in 0..3 * KEYS {
        set(&mut node, written + number % (KEYS - written));
        node.get(0, &(number % read).to_le_bytes()).unwrap();
    }
    let used: Vec<u64> = (read..written).step_by(4).collect();
    for key in &used {
        // RAM is full: the first access is noted only.
        node.get(0, &key.to_le_bytes()).unwrap();
        assert!(node.make_room());
    }
    pass(&mut node, 1_000);
    let full = node.store.stats();
    node.store.warm();
    pass(&mut node, 1_000);
    assert_eq!(node.store.stats()[Counter::Promotions], full[Counter::Promotions], "there is no room");
    node.store.set_ram_limit(4 * RAM);
    pass(&mut node, 1_000);
    assert_eq!(node.store.stats()[Counter::Promotions], full[Counter::Promotions], "it has ended");
    node.store.warm();
    pass(&mut node, 10_000);
    let warm = node.store.stats();
    assert!(
        warm[Counter::Promotions] > full[Counter::Promotions] + 500,
        "{} of {}",
        warm[Counter::Promotions] - full[Counter::Promotions],
        used.len()
    );
    for key in used {
        assert_eq!(node.get(0, &key.to_le_bytes()).unwrap(), Some(value(key)));
    }
    assert_eq!(node.store.stats()[Counter::FlashReads], warm[Counter::FlashReads], "all of them are in RAM");
    assert!(warm.values_in_flash > KEYS / 4, "others stay where they are: {}", warm.values_in_flash);
    node.lanes.iter_mut().for_each(store::Lane::drain);
}

#[test]
fn rot_that_clients_meet_counts_once() {
    let mut node = filled();
    node.store.set_scrub_interval(0);
    let pages = [0, 1, 9, 40, 70, 130];
    for page in pages {
        node.sim.flip_bit_at(page as u16 % 2, DATA_OFFSET + page * PAGE_BYTES as u64 + 77 * (page + 1) % 4096, 3);
    }
    let mut lost = BTreeSet::new();
    for _ in 0..3 {
        for key in 0..KEYS {
            if node.get(0, &key.to_le_bytes()).is_err() {
                lost.insert(key);
            }
            assert!(node.make_room());
        }
    }
    let stats = node.store.stats();
    assert!(lost.len() > 10 && stats[Counter::ChecksumErrors] > lost.len() as u64, "{} keys, {stats:#?}", lost.len());
    assert_eq!((stats[Counter::RottenKeys], stats[Counter::RottenPages]), (lost.len() as u64, pages.len() as u64));
    // The scrubber finds the same.
    node.store.set_scrub_interval(INTERVAL_MS);
    pass(&mut node, INTERVAL_MS + 1_000);
    let stats = node.store.stats();
    assert!(stats[Counter::ScrubbedBytes] > 0);
    assert_eq!((stats[Counter::RottenKeys], stats[Counter::RottenPages]), (lost.len() as u64, pages.len() as u64));
    node.lanes.iter_mut().for_each(store::Lane::drain);
}

#[test]
fn rot_is_found_before_anybody_reads_it_and_values_in_ram_survive() {
    let mut node = filled();
    // Some values come to RAM and stay there, with their copies on flash.
    let in_ram: Vec<u64> = (0..KEYS).step_by(10).collect();
    for _ in 0..2 {
        for &key in &in_ram {
            node.get(0, &key.to_le_bytes()).unwrap();
        }
    }
    let pages = [0, 1, 9, 40, 70, 130];
    for page in pages {
        node.sim.flip_bit_at(page as u16 % 2, DATA_OFFSET + page * PAGE_BYTES as u64 + 77 * (page + 1) % 4096, 3);
    }
    pass(&mut node, INTERVAL_MS + 1_000);
    let stats = node.store.stats();
    assert_eq!(stats[Counter::RottenPages], pages.len() as u64, "{stats:#?}");
    assert!(stats[Counter::RottenKeys] > 0 && stats[Counter::RescuedValues] > 0, "{stats:#?}");
    assert_eq!(stats[Counter::ChecksumErrors], 0, "no client has met it");
    // Every value is right or an error, and there are as many errors as were told. What was in RAM is on flash again.
    node.store.set_ram_limit(RAM / 8);
    pass(&mut node, 5_000);
    let mut lost = BTreeSet::new();
    for _ in 0..2 {
        for key in 0..KEYS {
            match node.get(0, &key.to_le_bytes()) {
                Ok(found) => assert_eq!(found, Some(value(key)), "{key}"),
                Err(_) => _ = lost.insert(key),
            }
            assert!(node.make_room());
        }
    }
    let lost = lost.len() as u64;
    assert!(
        lost > 0 && lost == stats[Counter::RottenKeys],
        "{lost} keys, and {} were told",
        stats[Counter::RottenKeys]
    );
    // What is known is not told again.
    pass(&mut node, INTERVAL_MS + 1_000);
    assert_eq!(node.store.stats()[Counter::RottenPages], pages.len() as u64);
    node.lanes.iter_mut().for_each(store::Lane::drain);
}
