//! Owns the clock hand that goes over the index. Never knows what it finds there.

use bench::Rng;

use crate::replacement::{Key, Setup};

/// Goes over all keys in the order of their hashes, again and again.
pub struct Hand {
    order: Vec<Key>,
    next: usize,
}

impl Hand {
    pub fn new(setup: Setup) -> Hand {
        Hand { order: shuffled(setup.keys, &mut Rng::new(setup.seed)), next: 0 }
    }

    /// The next key, and whether it ends a turn.
    pub fn advance(&mut self) -> (Key, bool) {
        let key = self.order[self.next];
        self.next = (self.next + 1) % self.order.len();
        (key, self.next == 0)
    }
}

/// All keys in random order (Fisher and Yates).
pub fn shuffled(keys: usize, rng: &mut Rng) -> Vec<Key> {
    let mut order: Vec<Key> = (0..keys as Key).collect();
    for at in (1..keys).rev() {
        order.swap(at, rng.range(0, at as u64) as usize);
    }
    order
}
