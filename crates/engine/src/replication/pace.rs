//! Owns how fast dumps are sent: a bound of bytes a second for all links together. Never knows a link or a clock.

use std::time::{Duration, Instant};

/// A piece at a low rate takes about this part of a second, so that a link that is slowed down is not silent.
const PIECES_A_SECOND: u64 = 10;

#[derive(Debug, Default)]
pub struct Pace {
    /// When what was sent has had its time. `None`: nothing was sent.
    free: Option<Instant>,
}

impl Pace {
    /// The most bytes of one piece. `rate`: bytes a second, 0 is any number.
    pub fn piece_bytes(rate: u64, max: usize) -> usize {
        match rate {
            0 => max,
            rate => usize::try_from(rate / PIECES_A_SECOND).unwrap_or(max).clamp(1, max),
        }
    }

    /// Whether the next piece may be sent: then it counts as sent. Otherwise when to ask again.
    pub fn take(&mut self, bytes: usize, rate: u64, now: Instant) -> Result<(), Instant> {
        if rate == 0 {
            self.free = None;
            return Ok(());
        }
        let free = self.free.unwrap_or(now).max(now);
        if free > now {
            // A higher rate counts at once.
            return Err(free.min(now + Duration::from_secs(1) / PIECES_A_SECOND as u32));
        }
        self.free = Some(free + Duration::from_secs_f64(bytes as f64 / rate as f64));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends pieces for so many seconds of a counted clock, on two links. Returns the bytes.
    fn sent(rate: impl Fn(u64) -> u64, seconds: u64) -> u64 {
        let (begun, mut pace, mut bytes) = (Instant::now(), Pace::default(), 0);
        for ms in 0..seconds * 1000 {
            let (now, rate) = (begun + Duration::from_millis(ms), rate(ms / 1000));
            for _link in 0..2 {
                let piece = Pace::piece_bytes(rate, 256 << 10);
                while bytes < u64::MAX / 2 && rate > 0 && pace.take(piece, rate, now).is_ok() {
                    bytes += piece as u64;
                }
            }
        }
        bytes
    }

    #[test]
    fn all_links_together_send_no_more_than_the_rate() {
        for rate in [1, 7, 999, 100_000, 64 << 20] {
            let (found, piece) = (sent(|_| rate, 20), Pace::piece_bytes(rate, 256 << 10) as u64);
            assert!(found <= 20 * rate + piece, "{found} bytes at {rate} a second");
            // The clock of this test counts milliseconds, and a piece is sent at one of them.
            let at_least = (20 * rate).min(20_000 * piece) * 9 / 10;
            assert!(found >= at_least, "{found} bytes at {rate} a second");
        }
        // A change counts from the next piece on.
        let found = sent(|second| if second < 10 { 1_000 } else { 1_000_000 }, 20);
        assert!((9_000_000..=10_300_000).contains(&found), "{found}");
    }

    #[test]
    fn without_a_rate_nobody_waits_and_nothing_is_owed() {
        let (now, mut pace) = (Instant::now(), Pace::default());
        assert_eq!(pace.take(1 << 30, 1, now), Ok(()));
        let again = pace.take(1, 1, now).unwrap_err();
        assert!(again > now && again <= now + Duration::from_millis(100), "a long debt is looked at again soon");
        assert_eq!(pace.take(1 << 30, 0, now), Ok(()));
        assert_eq!(pace.take(1, 1, now), Ok(()));
    }
}
