//! Owns the random numbers of handlers (HRANDFIELD, SPOP). Never use it where an adversary must not guess: it is fast,
//! not secret.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use store::Keyspace;

thread_local! {
    static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0u64));
}

/// A number below `n`; `n` must not be 0. The bias is below n / 2^64.
pub fn below(n: usize) -> usize {
    ((u128::from(next()) * n as u128) >> 64) as usize
}

fn next() -> u64 {
    STATE.with(|state| {
        let mut draws = Draws(state.get());
        let number = draws.next();
        state.set(draws.0);
        number
    })
}

/// Random numbers that repeat when a handler runs again, because the elements that it draws may have to be read from
/// flash first (SplitMix64: Steele, Lea and Flood 2014).
#[derive(Clone, Copy)]
pub struct Draws(u64);

impl Draws {
    pub fn of(ks: &mut Keyspace<'_>) -> Draws {
        Draws(ks.seed())
    }

    /// A number below `n`, like [`below`].
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// For more random elements than this, the whole value is read into memory.
pub const SAMPLE_MAX: usize = 1024;

/// Selects a fixed number of items while they pass. Each selection is equally likely (Knuth's algorithm S).
pub struct Selection {
    wanted: usize,
    left: usize,
}

impl Selection {
    pub fn new(wanted: usize, of: usize) -> Selection {
        Selection { wanted, left: of }
    }

    /// Whether to take the next item.
    pub fn takes(&mut self) -> bool {
        let takes = self.wanted > 0 && below(self.left.max(1)) < self.wanted;
        self.wanted -= usize::from(takes);
        self.left = self.left.saturating_sub(1);
        takes
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_selection_takes_the_wanted_number() {
        for wanted in 0..=9 {
            let mut selection = super::Selection::new(wanted, 9);
            assert_eq!((0..9).filter(|_| selection.takes()).count(), wanted);
            assert!(!selection.takes());
        }
    }

    #[test]
    fn all_numbers_below_n_come_up() {
        let mut seen = [false; 7];
        (0..1000).for_each(|_| seen[super::below(7)] = true);
        assert_eq!(seen, [true; 7]);
        assert_eq!(super::below(1), 0);
    }
}
