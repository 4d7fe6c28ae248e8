//! Owns when a stream of changes was first seen to have which bytes. From this follows how far a replica is behind in time.
//! Never knows who follows.

use std::collections::VecDeque;

/// An hour of seconds. A replica that is further behind is shown with an hour.
const MOMENTS_MAX: usize = 3600;

#[derive(Default)]
pub struct Trace(VecDeque<(u64, u64)>);

impl Trace {
    /// An offset below the last one is that of another stream.
    pub fn saw(&mut self, at_ms: u64, offset: u64) {
        match self.0.back() {
            Some(&(_, last)) if last == offset => return,
            Some(&(_, last)) if last > offset => self.0.clear(),
            _ => {}
        }
        if self.0.len() == MOMENTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((at_ms, offset));
    }

    /// The age of the first byte that is not among the first `has`.
    pub fn lag_ms(&self, has: u64, now_ms: u64) -> u64 {
        let first = self.0.partition_point(|&(_, offset)| offset <= has);
        self.0.get(first).map_or(0, |&(at_ms, _)| now_ms.saturating_sub(at_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_is_the_age_of_the_first_missing_byte() {
        let mut trace = Trace::default();
        for (at_ms, offset) in [(1000, 10), (2000, 10), (3000, 30), (4000, 50)] {
            trace.saw(at_ms, offset);
        }
        assert_eq!([50, 49, 30, 29, 10, 9].map(|has| trace.lag_ms(has, 5000)), [0, 1000, 1000, 2000, 2000, 4000]);
        assert_eq!(trace.lag_ms(60, 5000), 0, "a replica that was asked later");
        trace.saw(6000, 5);
        assert_eq!((trace.lag_ms(4, 7000), trace.lag_ms(5, 7000)), (1000, 0), "another stream");
    }

    #[test]
    fn the_moments_are_bounded() {
        let mut trace = Trace::default();
        (0..MOMENTS_MAX as u64 + 5).for_each(|at| trace.saw(at * 1000, at));
        assert_eq!((trace.0.len(), trace.lag_ms(0, 4_000_000)), (MOMENTS_MAX, 4_000_000 - 5000));
    }
}
