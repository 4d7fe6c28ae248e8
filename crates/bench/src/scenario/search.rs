//! Owns the search for the standard deviation that gives a wanted RAM hit ratio: the wider, the fewer hits. Never runs a
//! load: it is told what was tried and says what to try next.

/// First step away from the start, before the wanted ratio lies between two tries.
const STEP: f64 = 1.25;

pub struct Search {
    wanted: f64,
    start: f64,
    step: f64,
    /// The widest that gave too many hits, and the narrowest that gave too few, with their ratios.
    low: Option<(f64, f64)>,
    high: Option<(f64, f64)>,
    /// Distance, standard deviation and ratio of the nearest try.
    nearest: Option<(f64, f64, f64)>,
}

impl Search {
    pub fn new(start: f64, wanted: f64) -> Search {
        Search { wanted, start, step: STEP, low: None, high: None, nearest: None }
    }

    pub fn next(&mut self) -> f64 {
        let outwards = |step: &mut f64| {
            *step *= *step;
            step.sqrt()
        };
        match (self.low, self.high) {
            (None, None) => self.start,
            (Some((low, _)), None) => low * outwards(&mut self.step),
            (None, Some((high, _))) => high / outwards(&mut self.step),
            // straight through both in the logarithm, but never too near to either: ratios are not exact
            (Some((low, more)), Some((high, fewer))) => {
                let part = if more > fewer { (more - self.wanted) / (more - fewer) } else { 0.5 };
                low * (high / low).powf(part.clamp(0.15, 0.85))
            }
        }
    }

    pub fn tried(&mut self, stddev: f64, ratio: f64) {
        let distance = (ratio - self.wanted).abs();
        if self.nearest.is_none_or(|(nearest, ..)| distance < nearest) {
            self.nearest = Some((distance, stddev, ratio));
        }
        let side = if ratio > self.wanted { &mut self.low } else { &mut self.high };
        *side = Some((stddev, ratio));
        // what is in RAM lags behind, so that tries may contradict each other: then the older one is forgotten
        if let (Some((low, _)), Some((high, _))) = (self.low, self.high)
            && low >= high
        {
            *(if ratio > self.wanted { &mut self.high } else { &mut self.low }) = None;
            self.step = STEP;
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
