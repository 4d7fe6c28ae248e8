//! Owns how busy a database's tiers were in the last ten minutes. From this follow two metrics that mean nothing over a second, because load
//! comes and goes: an alert on them would begin anew at each quiet second. Never knows an alert.

use super::reading::Reading;
use std::collections::VecDeque;
use store::counters::Counter;

const STEP_MS: u64 = 60_000;
const STEPS: u64 = 10;
/// Fewer reads of flash a second than this trouble nobody, whatever their share.
const BUSY_READS_PER_S: f64 = 1000.0;
/// Flash that is written slower than this lasts.
const BUSY_WRITES_BYTES_PER_S: f64 = 10e6;

/// Counters at a moment.
#[derive(Clone, Copy, Debug, Default)]
struct Tiers {
    at_ms: u64,
    ram_hits: u64,
    flash_hits: u64,
    flash_write_bytes: u64,
    user_bytes: u64,
}

impl Tiers {
    fn of(reading: &Reading) -> Tiers {
        let store = &reading.figures.store;
        Tiers {
            at_ms: reading.at_ms,
            ram_hits: store[Counter::RamHits],
            flash_hits: store[Counter::FlashHits],
            flash_write_bytes: store[Counter::FlashWriteBytes],
            user_bytes: store[Counter::UserBytes],
        }
    }

    /// How much each has grown. `None`: one was reset.
    fn since(self, before: Tiers) -> Option<Tiers> {
        Some(Tiers {
            at_ms: self.at_ms.checked_sub(before.at_ms)?,
            ram_hits: self.ram_hits.checked_sub(before.ram_hits)?,
            flash_hits: self.flash_hits.checked_sub(before.flash_hits)?,
            flash_write_bytes: self.flash_write_bytes.checked_sub(before.flash_write_bytes)?,
            user_bytes: self.user_bytes.checked_sub(before.user_bytes)?,
        })
    }
}

/// One moment of each of the last minutes.
#[derive(Default)]
pub struct Window(VecDeque<Tiers>);

impl Window {
    /// What has happened in the last ten minutes, or since there are readings. Unknown in the first minute.
    pub fn saw(&mut self, reading: &Reading) -> Lately {
        self.add(Tiers::of(reading))
    }

    fn add(&mut self, now: Tiers) -> Lately {
        if self.0.back().is_some_and(|&last| now.since(last).is_none()) {
            self.0.clear();
        }
        if self.0.back().is_none_or(|last| now.at_ms - last.at_ms >= STEP_MS) {
            self.0.push_back(now);
        }
        while self.0.front().is_some_and(|first| now.at_ms - first.at_ms > STEPS * STEP_MS) {
            self.0.pop_front();
        }
        let grown = self.0.front().and_then(|&first| now.since(first));
        Lately(grown.filter(|grown| grown.at_ms >= STEP_MS))
    }
}

/// What has happened in some minutes, if it is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lately(Option<Tiers>);

impl Lately {
    fn busy(self, rate_of: fn(Tiers) -> u64, least: f64) -> Option<Tiers> {
        self.0.filter(|tiers| rate_of(*tiers) as f64 * 1000.0 / tiers.at_ms as f64 > least)
    }

    /// The share of the reads that found their value in RAM. Unknown (NaN) if few came from flash.
    pub fn hit_ratio(self) -> f64 {
        let busy = self.busy(|tiers| tiers.flash_hits, BUSY_READS_PER_S);
        busy.map_or(f64::NAN, |tiers| tiers.ram_hits as f64 / (tiers.ram_hits + tiers.flash_hits) as f64)
    }

    /// Bytes written to flash ÷ bytes that clients wrote. Unknown (NaN) if little was written to flash.
    pub fn write_amplification(self) -> f64 {
        let busy = self.busy(|tiers| tiers.flash_write_bytes, BUSY_WRITES_BYTES_PER_S);
        busy.map_or(f64::NAN, |tiers| tiers.flash_write_bytes as f64 / tiers.user_bytes.max(1) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A look each second, over so many seconds. `load` says what happens in a second.
    struct World {
        window: Window,
        now: Tiers,
    }

    impl World {
        fn new() -> World {
            World { window: Window::default(), now: Tiers { at_ms: 1_000_000, ..Tiers::default() } }
        }

        fn run(&mut self, seconds: u64, load: impl Fn(u64, &mut Tiers)) -> Lately {
            let mut lately = Lately::default();
            for second in 0..seconds {
                load(second, &mut self.now);
                self.now.at_ms += 1000;
                lately = self.window.add(self.now);
            }
            lately
        }
    }

    fn reads(ram: u64, flash: u64) -> impl Fn(u64, &mut Tiers) {
        move |_, now| (now.ram_hits, now.flash_hits) = (now.ram_hits + ram, now.flash_hits + flash)
    }

    #[test]
    fn load_that_comes_and_goes_counts() {
        let mut world = World::new();
        assert!(world.run(30, reads(1000, 4000)).hit_ratio().is_nan(), "too little is known");
        // One second of load, one without.
        let by_turns = |second: u64, now: &mut Tiers| {
            if second.is_multiple_of(2) {
                reads(1000, 4000)(second, now)
            }
        };
        for _ in 0..5 {
            let lately = world.run(600, by_turns);
            assert_eq!(lately.hit_ratio(), 0.2);
            assert!(lately.write_amplification().is_nan(), "nothing is written");
        }
        assert!(world.window.0.len() <= 11, "{}", world.window.0.len());
    }

    #[test]
    fn what_is_ten_minutes_old_does_not_count() {
        let mut world = World::new();
        world.run(1800, reads(0, 5000));
        assert_eq!(world.run(1, reads(0, 0)).hit_ratio(), 0.0);
        assert_eq!(world.run(700, reads(5000, 5000)).hit_ratio(), 0.5);
        assert!(world.run(700, reads(5000, 900)).hit_ratio().is_nan(), "flash has little to do");
    }

    #[test]
    fn writes_count_if_flash_has_to_do() {
        let writes = |user: u64, flash: u64| {
            move |_: u64, now: &mut Tiers| {
                (now.user_bytes, now.flash_write_bytes) = (now.user_bytes + user, now.flash_write_bytes + flash);
            }
        };
        let mut world = World::new();
        assert_eq!(world.run(120, writes(4_000_000, 16_000_000)).write_amplification(), 4.0);
        assert!(world.run(700, writes(1_000_000, 9_000_000)).write_amplification().is_nan());
    }

    #[test]
    fn counters_that_were_reset_begin_anew() {
        let mut world = World::new();
        world.run(600, reads(0, 5000));
        (world.now.ram_hits, world.now.flash_hits) = (0, 0);
        assert!(world.run(30, reads(5000, 5000)).hit_ratio().is_nan());
        assert_eq!(world.run(60, reads(5000, 5000)).hit_ratio(), 0.5);
    }
}
