//! What every policy must do, and LRU against a list.

use std::collections::VecDeque;

use bench::{KeyPattern, KeySpace, Keys, Rng};
use cachesim::policies::{Lru, POLICIES};
use cachesim::{Key, Replacement, Setup};
use survey::Use;

const KEYS: usize = 200;

/// Random uses of keys, small ones more often.
fn uses(count: usize, seed: u64) -> Vec<(Key, Use)> {
    let space = KeySpace { min: 1, max: KEYS as u64, zipf_exponent: 0.8, ..KeySpace::default() };
    let (mut keys, mut rng) = (Keys::new(KeyPattern::Zipf, &space, 0, 1), Rng::new(seed));
    let kinds = [Use::Read, Use::Read, Use::Change, Use::Overwrite];
    (0..count).map(|_| (keys.next(&mut rng) as Key - 1, kinds[rng.range(0, 3) as usize])).collect()
}

#[test]
fn policies_hold_what_is_written_and_never_more_than_fits() {
    for ram in [2, 3, 29, 100] {
        let setup = Setup { keys: KEYS, ram, seed: 5 };
        for (name, make) in POLICIES {
            let mut policy = make(setup);
            for (key, kind) in uses(1500, 6) {
                let was_in_ram = policy.contains(key);
                assert_eq!(policy.access(key, kind), was_in_ram, "{name}, RAM for {ram}");
                assert!(
                    kind == Use::Read || policy.contains(key),
                    "{name} with RAM for {ram}: a written value is in RAM"
                );
                let held = (0..KEYS as Key).filter(|&key| policy.contains(key)).count();
                assert!(held <= ram, "{name} holds {held} values in RAM for {ram}");
            }
            let held = (0..KEYS as Key).filter(|&key| policy.contains(key)).count();
            assert!(held + 1 >= ram, "{name} holds only {held} values in RAM for {ram}");
        }
    }
}

#[test]
fn lru_is_a_list_by_use() {
    let ram = 40;
    let (mut policy, mut recent) = (Lru::new(Setup { keys: KEYS, ram, seed: 0 }), VecDeque::new());
    for (key, kind) in uses(20_000, 7) {
        let place = recent.iter().position(|&other| other == key);
        assert_eq!(policy.access(key, kind), place.is_some());
        place.map(|at| recent.remove(at));
        recent.push_front(key);
        recent.truncate(ram);
    }
}

#[test]
fn one_seed_gives_the_same_decisions() {
    for (name, make) in POLICIES {
        let hits = |seed| {
            let mut policy = make(Setup { keys: KEYS, ram: 50, seed });
            uses(5000, 8).into_iter().map(|(key, kind)| policy.access(key, kind)).collect::<Vec<_>>()
        };
        assert_eq!(hits(1), hits(1), "{name}");
    }
}
