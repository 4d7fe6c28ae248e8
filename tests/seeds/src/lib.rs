//! Owns the duration and the seeds of random tests. Never knows what a test does with a seed.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `FLINTKV_TEST_SECONDS` | the time budget of each random test, [`SECONDS`] by default; a test always completes its minimum |
//! | `FLINTKV_CRASHES` | how many crashes each simulation of crashes makes at least |
//! | `FLINTKV_SEED` | a number: run only this seed, to replay a failure. `random`: begin with a seed from the clock |

use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The default budget of one test: its minimum number of seeds only, so that `make test` runs the same everywhere.
/// `make soak` runs longer.
pub const SECONDS: u64 = 0;

/// The time budget of a random test.
pub fn budget() -> Duration {
    Duration::from_secs(number("FLINTKV_TEST_SECONDS").unwrap_or(SECONDS))
}

/// The seed of a test that has only one: `usual`, unless the environment gives another.
pub fn seed(usual: u64) -> u64 {
    match std::env::var("FLINTKV_SEED") {
        Ok(text) if text == "random" => by_clock(),
        _ => number("FLINTKV_SEED").unwrap_or(usual),
    }
}

/// Whether only one seed runs, whose failure somebody looks into.
pub fn is_replay() -> bool {
    std::env::var("FLINTKV_SEED").is_ok_and(|text| text != "random")
}

/// Runs a test with seeds from `usual` on: at least `least` of them, however slow the machine is, then more until the
/// budget is spent. Prints the seed whose run panics. Returns the number of runs: 1 in a replay.
pub fn each(usual: u64, least: u64, run: impl FnMut(u64)) -> u64 {
    let started = Instant::now();
    let (least, budget) = if is_replay() { (1, Duration::ZERO) } else { (least, budget()) };
    from(seed(usual), least, || started.elapsed() < budget, run)
}

/// As [`each`], for runs that simulate crashes and return how many: until there are `FLINTKV_CRASHES` too. Returns and prints their number.
pub fn each_crash(usual: u64, least: u64, mut run: impl FnMut(u64) -> u64) -> u64 {
    let (crashes, wanted) = (Cell::new(0), number("FLINTKV_CRASHES").unwrap_or(0));
    let is_replay = is_replay();
    let started = Instant::now();
    let goes_on = || !is_replay && (crashes.get() < wanted || started.elapsed() < budget());
    let first = seed(usual);
    from(first, if is_replay { 1 } else { least }, goes_on, |seed| crashes.set(crashes.get() + run(seed)));
    println!("{} crashes were simulated, from seed {first} on", crashes.get());
    crashes.get()
}

fn from(first: u64, least: u64, goes_on: impl Fn() -> bool, mut run: impl FnMut(u64)) -> u64 {
    let mut count = 0;
    while count < least || goes_on() {
        let seed = Said(first.wrapping_add(count));
        run(seed.0);
        count += 1;
    }
    count
}

/// A seed that prints its number when a panic unwinds.
struct Said(u64);

impl Drop for Said {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("it failed with seed {0}: FLINTKV_SEED={0} runs it again", self.0);
        }
    }
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

fn by_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64 >> 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minimum_runs_without_a_budget() {
        let mut seen = Vec::new();
        assert_eq!(from(7, 3, || false, |seed| seen.push(seed)), 3);
        assert_eq!(seen, [7, 8, 9]);
    }

    #[test]
    fn more_seeds_run_while_the_budget_lasts() {
        let left = Cell::new(5);
        let goes_on = || left.replace(left.get() - 1) > 0;
        let mut seen = Vec::new();
        assert_eq!(from(u64::MAX, 2, goes_on, |seed| seen.push(seed)), 7);
        assert_eq!(seen, [u64::MAX, 0, 1, 2, 3, 4, 5]);
    }
}
