//! Owns the search for the standard deviation that gives a wanted RAM hit ratio: the wider, the fewer hits. Never runs a
//! load: it is told what was tried and says what to try next.

/// First step away from the start, before the wanted ratio lies between two tries.
const STEP: f64 = 1.25;
/// First step away from a try after the other side turned out to be out of date.
const STEP_AGAIN: f64 = 1.1;
/// Times the start beyond which it makes no difference: keys are then uniform over their range, and drawing again what
/// falls outside it would take for ever.
const WIDEST: f64 = 16.0;
/// What is in RAM lags behind, so an early try may mislead: a bound that so many tries in a row did not move is
/// forgotten.
const SAME_SIDE_MAX: u32 = 2;

pub struct Search {
    wanted: f64,
    start: f64,
    step: f64,
    /// The widest that gave too many hits, and the narrowest that gave too few, with their ratios.
    low: Option<(f64, f64)>,
    high: Option<(f64, f64)>,
    /// Tries in a row on one side, and whether it was the one with too many hits.
    same_side: (u32, bool),
    /// Distance, standard deviation and ratio of the nearest try.
    nearest: Option<(f64, f64, f64)>,
}

impl Search {
    pub fn new(start: f64, wanted: f64) -> Search {
        Search { wanted, start, step: STEP, low: None, high: None, same_side: (0, false), nearest: None }
    }

    pub fn next(&mut self) -> f64 {
        let outwards = |step: &mut f64| {
            *step *= *step;
            step.sqrt()
        };
        let next = match (self.low, self.high) {
            (None, None) => self.start,
            (Some((low, _)), None) => low * outwards(&mut self.step),
            (None, Some((high, _))) => high / outwards(&mut self.step),
            // straight through both in the logarithm, but never too near to either: ratios are not exact
            (Some((low, more)), Some((high, fewer))) => {
                let part = if more > fewer { (more - self.wanted) / (more - fewer) } else { 0.5 };
                low * (high / low).powf(part.clamp(0.15, 0.85))
            }
        };
        next.min(self.start * WIDEST)
    }

    pub fn tried(&mut self, stddev: f64, ratio: f64) {
        let distance = (ratio - self.wanted).abs();
        if self.nearest.is_none_or(|(nearest, ..)| distance < nearest) {
            self.nearest = Some((distance, stddev, ratio));
        }
        let too_many = ratio > self.wanted;
        let count = if self.same_side.1 == too_many { self.same_side.0 + 1 } else { 1 };
        self.same_side = (count, too_many);
        let (this, other) = if too_many { (&mut self.low, &mut self.high) } else { (&mut self.high, &mut self.low) };
        *this = Some((stddev, ratio));
        let crossed = other.is_some_and(|(bound, _)| if too_many { bound <= stddev } else { bound >= stddev });
        if other.is_some() && (crossed || count > SAME_SIDE_MAX) {
            *other = None;
            self.step = STEP_AGAIN;
            self.same_side = (1, too_many);
        }
    }

    /// Of the nearest try from the wanted ratio; infinite before the first.
    pub fn distance(&self) -> f64 {
        self.nearest.map_or(f64::INFINITY, |(distance, ..)| distance)
    }

    pub fn best(&self) -> f64 {
        self.nearest.map_or(self.start, |(_, stddev, _)| stddev)
    }

    pub fn best_ratio(&self) -> Option<f64> {
        self.nearest.map(|(_, _, ratio)| ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tier of 30 keys in the middle, reads normally distributed: roughly what a hit ratio does.
    fn hits(stddev: f64) -> f64 {
        (15.0 / stddev / std::f64::consts::SQRT_2).tanh().clamp(0.0, 1.0)
    }

    fn tries(start: f64, wanted: f64, tolerance: f64) -> usize {
        let mut search = Search::new(start, wanted);
        for count in 1..=10 {
            let stddev = search.next();
            search.tried(stddev, hits(stddev));
            if search.distance() <= tolerance {
                return count;
            }
        }
        panic!("not found from {start}: {}", search.best())
    }

    #[test]
    fn a_few_tries_are_enough_from_either_side() {
        assert_eq!(tries(8.45, 0.85, 0.01), 1, "a good start is kept");
        for start in [2.0, 6.0, 12.0, 40.0] {
            let count = tries(start, 0.85, 0.005);
            assert!(count <= 6, "{count} tries from {start}");
        }
    }

    #[test]
    fn contradictions_do_not_trap_it() {
        let mut search = Search::new(10.0, 0.85);
        search.tried(10.0, 0.80);
        search.tried(8.0, 0.90);
        // the tier has warmed up meanwhile: now even a wider one hits more
        search.tried(11.0, 0.91);
        assert!(search.next() > 11.0);
    }

    /// The first try saw an empty tier; everything after it hits more than its bound says.
    #[test]
    fn a_bound_that_is_out_of_date_is_forgotten() {
        let mut search = Search::new(10.0, 0.85);
        search.tried(10.0, 0.55);
        for count in 2..=10 {
            let stddev = search.next();
            search.tried(stddev, hits(stddev / 2.0));
            if search.distance() <= 0.01 {
                assert!(count <= 9, "{count} tries");
                return;
            }
        }
        panic!("not found: {} gives {:?}", search.best(), search.best_ratio());
    }

    #[test]
    fn what_cannot_be_reached_gives_the_nearest() {
        let mut search = Search::new(10.0, 0.5);
        for _ in 0..5 {
            let stddev = search.next();
            search.tried(stddev, 0.875);
        }
        assert_eq!((search.best(), search.best_ratio()), (10.0, Some(0.875)));
    }
}
