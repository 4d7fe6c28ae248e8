//! Owns the random numbers of tests: a seed gives the same run on every machine. Never reads a clock.

use base::random::SplitMix64;

#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(SplitMix64(seed))
    }

    pub fn draw(&mut self) -> u64 {
        self.0.draw()
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0.index(n)
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn of<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len())]
    }

    /// Incompressible bytes.
    pub fn noise(&mut self, bytes: usize) -> Vec<u8> {
        let mut noise = Vec::with_capacity(bytes + 8);
        while noise.len() < bytes {
            noise.extend_from_slice(&self.draw().to_le_bytes());
        }
        noise.truncate(bytes);
        noise
    }

    /// Text that compresses to about half of its size.
    pub fn text(&mut self, bytes: usize) -> Vec<u8> {
        let mut text = Vec::with_capacity(bytes + 16);
        while text.len() < bytes {
            text.extend_from_slice(format!("{:08x}", self.draw() as u32).as_bytes());
            text.extend_from_slice(b"flintkv ");
        }
        text.truncate(bytes);
        text
    }
}

/// A number from the environment.
pub fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

/// The seed of a run. `FLINTKV_SEED` replays one; `random` draws one.
pub fn seed() -> u64 {
    seeds::seed(20_261_121)
}
