//! Owns the decision when requests may be sent: in bursts per connection, or at fixed times for the whole workload.
//! Never reads a clock.

const SECOND_NS: u64 = 1_000_000_000;
const TICKS_PER_S_MAX: u64 = 50;

/// `--rate-limiting`: at most 50 ticks a second. Each tick allows every connection the same few requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticks {
    pub per_tick: u64,
    interval_ns: u64,
    next_ns: u64,
}

impl Ticks {
    pub fn new(rate: u64, start_ns: u64) -> Ticks {
        let per_tick = rate.div_ceil(TICKS_PER_S_MAX);
        let interval_ns = (u128::from(SECOND_NS) * u128::from(per_tick) / u128::from(rate)) as u64;
        Ticks { per_tick, interval_ns, next_ns: start_ns }
    }

    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Whether a tick has come. Missed ticks are dropped, so there is never more than one burst at a time.
    pub fn tick(&mut self, now_ns: u64) -> bool {
        if now_ns < self.next_ns {
            return false;
        }
        let missed = (now_ns - self.next_ns) / self.interval_ns;
        self.next_ns += (missed + 1) * self.interval_ns;
        true
    }
}

/// `--rate`: request n of the workload is due n/rate seconds after the start, on connection n mod count. A thread
/// serves the connections `first .. first + clients`.
#[derive(Clone, Debug)]
pub struct Schedule {
    rate: f64,
    start_ns: u64,
    first: u64,
    clients: u64,
    connections: u64,
    released: u64,
}

impl Schedule {
    pub fn new(rate: f64, start_ns: u64, first: u64, clients: u64, connections: u64) -> Schedule {
        Schedule { rate, start_ns, first, clients, connections, released: 0 }
    }

    /// When the `index`-th request of the thread's `client`-th connection is due.
    pub fn due_ns(&self, client: u64, index: u64) -> u64 {
        let number = index * self.connections + self.first + client;
        self.start_ns + (number as f64 * (SECOND_NS as f64 / self.rate)) as u64
    }

    /// How many requests of the thread's `client`-th connection are due.
    pub fn due_count(&self, client: u64, now_ns: u64) -> u64 {
        let all = (now_ns.saturating_sub(self.start_ns) as f64 * (self.rate / SECOND_NS as f64)) as u64 + 1;
        let mut count = all.saturating_sub(self.first + client).div_ceil(self.connections);
        // The estimate is wrong by at most one.
        while count > 0 && self.due_ns(client, count - 1) > now_ns {
            count -= 1;
        }
        count
    }

    /// When the next request of this thread is due.
    pub fn next_ns(&self) -> u64 {
        self.due_ns(self.released % self.clients, self.released / self.clients)
    }

    /// The connection whose request has become due; one for each call.
    pub fn release(&mut self, now_ns: u64) -> Option<usize> {
        if self.next_ns() > now_ns {
            return None;
        }
        let client = self.released % self.clients;
        self.released += 1;
        Some(client as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn up_to_50_a_second_ticks_are_single_requests() {
        let ticks = Ticks::new(10, 0);
        assert_eq!((ticks.per_tick, ticks.interval_ns), (1, SECOND_NS / 10));
        let ticks = Ticks::new(50, 0);
        assert_eq!((ticks.per_tick, ticks.interval_ns), (1, SECOND_NS / 50));
    }

    #[test]
    fn beyond_that_ticks_are_bursts_and_the_rate_is_kept() {
        for (rate, per_tick) in [(51, 2), (60, 2), (1000, 20), (1001, 21)] {
            let ticks = Ticks::new(rate, 0);
            assert_eq!(ticks.per_tick, per_tick);
            assert!(SECOND_NS / ticks.interval_ns <= TICKS_PER_S_MAX);
            let per_second = ticks.per_tick as f64 * SECOND_NS as f64 / ticks.interval_ns as f64;
            assert!((per_second - rate as f64).abs() < 0.001, "{rate}: {per_second}");
        }
    }

    #[test]
    fn missed_ticks_do_not_pile_up() {
        let mut ticks = Ticks::new(50, 0);
        assert!(ticks.tick(0));
        assert!(!ticks.tick(19_999_999));
        assert!(ticks.tick(95_000_000));
        assert!(!ticks.tick(99_999_999));
        assert!(ticks.tick(100_000_000));
    }

    /// Two threads with two connections each share 1000 requests a second: one every millisecond, in turn.
    #[test]
    fn appointed_times_are_even_over_all_connections() {
        let mut due = Vec::new();
        for thread in 0..2 {
            let mut schedule = Schedule::new(1000.0, 500, thread * 2, 2, 4);
            let mut sent = [0u64; 2];
            while let Some(client) = schedule.release(500 + 7_999_999) {
                due.push((schedule.due_ns(client as u64, sent[client]) - 500, thread * 2 + client as u64));
                sent[client] += 1;
            }
        }
        let counts: Vec<u64> = (0..4)
            .map(|connection| {
                let schedule = Schedule::new(1000.0, 500, connection / 2 * 2, 2, 4);
                schedule.due_count(connection % 2, 500 + 5_999_999)
            })
            .collect();
        assert_eq!(counts, [2, 2, 1, 1]);
        due.sort_unstable();
        let expected: Vec<(u64, u64)> = (0..8).map(|number| (number * 1_000_000, number % 4)).collect();
        assert_eq!(due, expected);
    }
}
