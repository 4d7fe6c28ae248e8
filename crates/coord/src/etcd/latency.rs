//! Owns how long the slowest of the last requests took. Never knows which request it was.

use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Both spans together reach back for at least so long, and at most twice.
const SPAN: Duration = Duration::from_secs(10);

#[derive(Default)]
pub struct Latency(Mutex<Option<Spans>>);

struct Spans {
    began: Instant,
    /// The slowest request that has ended in this span, and in the one before.
    now: Option<Duration>,
    before: Option<Duration>,
}

impl Latency {
    pub fn note(&self, begun: Instant, ended: Instant) {
        self.at(ended, |spans| spans.now = spans.now.max(Some(ended - begun)));
    }

    pub fn slowest(&self, now: Instant) -> Option<Duration> {
        self.at(now, |spans| spans.now.max(spans.before))
    }

    fn at<T>(&self, now: Instant, then: impl FnOnce(&mut Spans) -> T) -> T {
        let mut spans = self.0.lock();
        let spans = spans.get_or_insert(Spans { began: now, now: None, before: None });
        let age = now.saturating_duration_since(spans.began);
        if age >= SPAN {
            let before = spans.now.take().filter(|_| age < 2 * SPAN);
            *spans = Spans { began: now, now: None, before };
        }
        then(spans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_request_counts_for_ten_to_twenty_seconds() {
        let (latency, begin) = (Latency::default(), Instant::now());
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        assert_eq!(latency.slowest(at(0)), None, "nothing was asked");
        latency.note(at(0), at(3));
        latency.note(at(4), at(5));
        assert_eq!(latency.slowest(at(9)), Some(Duration::from_secs(3)));
        latency.note(at(11), at(12));
        assert_eq!(latency.slowest(at(19)), Some(Duration::from_secs(3)), "of the span before");
        latency.note(at(22), at(24));
        assert_eq!(latency.slowest(at(25)), Some(Duration::from_secs(2)));
        assert_eq!(latency.slowest(at(60)), None, "nothing was asked for long");
    }
}
