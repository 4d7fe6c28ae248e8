//! Owns the random numbers of handlers (HRANDFIELD, SPOP). Never use it where an adversary must not guess: it is fast,
//! not secret.

use base::random::SplitMix64;
use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use store::Keyspace;

thread_local! {
    static STATE: Cell<SplitMix64> = Cell::new(SplitMix64(RandomState::new().hash_one(0u64)));
}

/// A number below `n`, which is not 0.
pub fn below(n: usize) -> usize {
    STATE.with(|state| {
        let mut random = state.get();
        let number = random.index(n);
        state.set(random);
        number
    })
}

/// Random numbers that are the same when a handler runs again, because the parts that the handler chooses may have to
/// be read from flash first.
#[derive(Clone, Copy)]
pub struct Draws(SplitMix64);

impl Draws {
    pub fn of(ks: &mut Keyspace<'_>) -> Draws {
        Draws(SplitMix64(ks.seed()))
    }

    /// A number below `n`, like [`below`].
    pub fn below(&mut self, n: usize) -> usize {
        self.0.index(n)
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
}
