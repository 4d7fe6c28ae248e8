//! Owns a summary of the expiry times of a segment's records, in little memory. Never knows a clock.

use super::saved::Input;

/// Histogram of expiry times: at most 16 bins of equal width, which grows as needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expiries {
    width_log2: u8,
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
        let is_over =
            |bin: u64| (bin.saturating_add(1)).checked_shl(self.width_log2.into()).is_some_and(|end| end <= now_ms);
        self.bins.iter().filter(|&&(bin, _)| is_over(bin)).map(|&(_, count)| count).sum()
    }

    /// `| width u8 | bins u8 | has a first one u8 | first u64 | bins × (bin u64, count u32) |`, little-endian.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let bins = u8::try_from(self.bins.len()).expect("at most BINS_MAX");
        out.extend_from_slice(&[self.width_log2, bins, self.first_ms.is_some().into()]);
        out.extend_from_slice(&self.first_ms.unwrap_or(0).to_le_bytes());
        for (bin, count) in &self.bins {
            out.extend_from_slice(&bin.to_le_bytes());
            out.extend_from_slice(&count.to_le_bytes());
        }
    }

    pub fn decode(input: &mut Input<'_>) -> Option<Expiries> {
        let (width, count, has_first) = (input.u8()?, input.u8()?, input.u8()? != 0);
        let first = input.u64()?;
        let bins = (0..count).map(|_| Some((input.u64()?, input.u32()?))).collect::<Option<Vec<_>>>()?;
        let is_valid = width < 64 && bins.len() <= Self::BINS_MAX && bins.is_sorted();
        is_valid.then_some(Expiries { width_log2: width, bins, first_ms: has_first.then_some(first) })
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
