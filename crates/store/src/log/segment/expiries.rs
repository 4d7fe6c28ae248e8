//! Owns what is known of the expiry times of a segment's records, in little memory. Never knows a clock.

/// Histogram of expiry times: at most 16 bins of equal width, which grows as needed.
#[derive(Default)]
pub(crate) struct Expiries {
    width_log2: u32,
    bins: Vec<(u64, u32)>,
    first_ms: Option<u64>,
}

impl Expiries {
    const BINS_MAX: usize = 16;

    pub fn add(&mut self, expiry_ms: u64) {
        self.first_ms = Some(self.first_ms.map_or(expiry_ms, |first| first.min(expiry_ms)));
        self.width_log2 = self.width_log2.max(10);
        let bin = expiry_ms >> self.width_log2;
        match self.bins.binary_search_by_key(&bin, |&(bin, _)| bin) {
            Ok(at) => self.bins[at].1 += 1,
            Err(at) => self.bins.insert(at, (bin, 1)),
        }
        while self.bins.len() > Self::BINS_MAX {
            self.width_log2 += 1;
            let mut wider: Vec<(u64, u32)> = Vec::with_capacity(Self::BINS_MAX);
            for (bin, count) in self.bins.drain(..) {
                match wider.last_mut() {
                    Some(last) if last.0 == bin >> 1 => last.1 += count,
                    _ => wider.push((bin >> 1, count)),
                }
            }
            self.bins = wider;
        }
    }

    /// A lower bound of the number of expired records.
    pub fn expired(&self, now_ms: u64) -> u32 {
        let is_over = |bin: u64| (bin.saturating_add(1)).checked_shl(self.width_log2).is_some_and(|end| end <= now_ms);
        self.bins.iter().filter(|&&(bin, _)| is_over(bin)).map(|&(_, count)| count).sum()
    }

    /// The earliest expiry time.
    pub fn first_ms(&self) -> Option<u64> {
        self.first_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_never_count_too_early_and_stay_few() {
        let mut expiries = Expiries::default();
        assert_eq!((expiries.first_ms(), expiries.expired(u64::MAX)), (None, 0));
        let times: Vec<u64> = (0..5_000).map(|n| 1_700_000_000_000 + n * 7_919).collect();
        times.iter().rev().for_each(|&at| expiries.add(at));
        assert!(expiries.bins.len() <= Expiries::BINS_MAX);
        assert_eq!(expiries.first_ms(), Some(times[0]));
        for now in [0, times[0], times[2_500], times[4_999], times[4_999] + (1 << 30)] {
            let truly = times.iter().filter(|&&at| at <= now).count() as u32;
            assert!(expiries.expired(now) <= truly);
        }
        assert_eq!(expiries.expired(times[4_999] + (1 << 30)), 5_000);
    }
}
