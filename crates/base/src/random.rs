//! Owns SplitMix64 (Steele, Lea and Flood: Fast Splittable Pseudorandom Number Generators, 2014): fast, and the same numbers from the
//! same seed on every machine. Never used where an adversary must not guess.

/// What the state grows by with each number.
pub const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// A generator. Its only state is the field, so that a seed is a generator and a generator can be kept as a number.
#[derive(Clone, Copy, Debug)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    pub fn draw(&mut self) -> u64 {
        let number = mix(self.0);
        self.0 = self.0.wrapping_add(GAMMA);
        number
    }

    /// A number below `n`, which is not 0. The bias is below n / 2^64.
    pub fn below(&mut self, n: u64) -> u64 {
        self.draw() % n
    }

    /// Bytes that nothing compresses.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.draw() as u8).collect()
    }

    /// A place in something of this length, which is not 0.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }
}

/// The number that a generator with this state draws: neighbouring numbers give unrelated ones.
#[must_use]
pub fn mix(state: u64) -> u64 {
    let mut mixed = state.wrapping_add(GAMMA);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers that the authors' splitmix64.c prints for the seed 1234567.
    #[test]
    fn the_published_sequence() {
        let mut random = SplitMix64(1_234_567);
        let drawn: Vec<u64> = (0..3).map(|_| random.draw()).collect();
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn all_numbers_below_n_come_and_no_other() {
        let (mut random, mut seen) = (SplitMix64(7), [false; 7]);
        (0..1000).for_each(|_| seen[random.index(7)] = true);
        assert_eq!(seen, [true; 7]);
        assert_eq!(random.below(1), 0);
    }
}
