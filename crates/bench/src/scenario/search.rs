//! Owns the search for the standard deviation that gives a wanted RAM hit ratio: a wider one gives fewer hits. Never
//! runs a load: the caller reports each try, and gets the next value to try.

/// The factor of the first steps, until the wanted ratio lies between two tries.
const STEP: f64 = 1.25;
/// The factor of the first step after the bound on the other side turned out to be outdated.
const STEP_AGAIN: f64 = 1.1;
/// The largest deviation, as a multiple of the start. Beyond this it makes no difference: keys are then uniform over
/// their range, and redrawing keys outside the range would take for ever.
const WIDEST: f64 = 16.0;
/// The content of RAM lags behind, so an early try may mislead. A bound that this many tries in a row did not move is
/// dropped.
const SAME_SIDE_MAX: u32 = 2;

pub struct Search {
    wanted: f64,
    start: f64,
    step: f64,
    /// The widest deviation with too many hits, and the narrowest with too few, with their ratios.
    low: Option<(f64, f64)>,
    high: Option<(f64, f64)>,
    /// Tries in a row on one side, and whether that side had too many hits.
    same_side: (u32, bool),
    /// Distance, standard deviation and ratio of the best try.
    nearest: Option<(f64, f64, f64)>,
}

impl Search {
    pub fn new(start: f64, wanted: f64) -> Search {
        Search { wanted, start, step: STEP, low: None, high: None, same_side: (0, false), nearest: None }
    }

    pub fn propose(&mut self) -> f64 {
        let outwards = |step: &mut f64| {
            *step *= *step;
            step.sqrt()
        };
        let next = match (self.low, self.high) {
            (None, None) => self.start,
            (Some((low, _)), None) => low * outwards(&mut self.step),
            (None, Some((high, _))) => high / outwards(&mut self.step),
            // Interpolate linearly in the logarithm, but never too near to either bound: ratios are not exact.
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

    /// The distance of the best try from the wanted ratio; infinite before the first try.
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

    /// A tier of 30 keys in the middle, with normally distributed reads: roughly how a hit ratio behaves.
    fn hits(stddev: f64) -> f64 {
        (15.0 / stddev / std::f64::consts::SQRT_2).tanh().clamp(0.0, 1.0)
    }

    fn tries(start: f64, wanted: f64, tolerance: f64) -> usize {
        let mut search = Search::new(start, wanted);
        for count in 1..=10 {
            let stddev = search.propose();
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
    fn contradictions_do_not_stop_the_search() {
        let mut search = Search::new(10.0, 0.85);
        search.tried(10.0, 0.80);
        search.tried(8.0, 0.90);
        // The tier has warmed up in the meantime, so even a wider deviation has more hits.
        search.tried(11.0, 0.91);
        assert!(search.propose() > 11.0);
    }

    /// The first try saw an empty tier. Every later try has more hits than its bound says.
    #[test]
    fn an_outdated_bound_is_dropped() {
        let mut search = Search::new(10.0, 0.85);
        search.tried(10.0, 0.55);
        for count in 2..=10 {
            let stddev = search.propose();
            search.tried(stddev, hits(stddev / 2.0));
            if search.distance() <= 0.01 {
                assert!(count <= 9, "{count} tries");
                return;
            }
        }
        panic!("not found: {} gives {:?}", search.best(), search.best_ratio());
    }

    #[test]
    fn an_unreachable_ratio_gives_the_nearest() {
        let mut search = Search::new(10.0, 0.5);
        for _ in 0..5 {
            let stddev = search.propose();
            search.tried(stddev, 0.875);
        }
        assert_eq!((search.best(), search.best_ratio()), (10.0, Some(0.875)));
    }
}
