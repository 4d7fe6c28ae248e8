//! Owns SplitMix64 (Steele, Lea and Flood: Fast Splittable Pseudorandom Number Generators, 2014). It is fast, and one seed gives the
//! same numbers on every machine. Never used for numbers that an attacker must not guess.

/// The increment of the state for each number.
pub const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// A generator. The field is its whole state, so any seed is a valid generator, and a generator can be stored as a
/// number.
#[derive(Clone, Copy, Debug)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    pub fn draw(&mut self) -> u64 {
        let number = mix(self.0);
        self.0 = self.0.wrapping_add(GAMMA);
        number
    }

    /// A number below `n`. `n` must not be 0. The bias is below n / 2^64.
    pub fn below(&mut self, n: u64) -> u64 {
        self.draw() % n
    }

    /// Bytes that no codec can compress.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.draw() as u8).collect()
    }

    /// An index into a sequence of length `len`, which must not be 0.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }
}

/// The number that a generator with this state returns. Neighbouring states give unrelated numbers.
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
    fn below_draws_every_number_below_n_and_no_other() {
        let (mut random, mut seen) = (SplitMix64(7), [false; 7]);
        (0..1000).for_each(|_| seen[random.index(7)] = true);
        assert_eq!(seen, [true; 7]);
        assert_eq!(random.below(1), 0);
    }
}
