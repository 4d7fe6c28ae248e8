//! Owns the counters: each worker counts without contention; a reader sums over the workers. Never knows how the
//! figures are shown.

mod events;
mod histogram;

pub use events::{LatencyEvents, SlowLog, shortened};
pub use histogram::{Histogram, Summary, bucket};

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A counter with one writer. The increment is a load and a store, not a locked instruction.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    pub fn reset(&self) {
        self.0.store(0, Relaxed);
    }
}

/// One command's figures on one worker.
#[derive(Debug, Default)]
pub struct CommandStats {
    pub calls: Counter,
    pub nanos: Counter,
    /// Refused before the handler ran: arity, authentication, no room.
    pub rejected: Counter,
    /// The reply was an error.
    pub failed: Counter,
    /// Allocated at the first call: most commands are never called.
    latency: OnceLock<Box<Histogram>>,
}

impl CommandStats {
    #[inline]
    pub fn latency(&self) -> &Histogram {
        self.latency.get_or_init(Box::default)
    }

    fn reset(&self) {
        for counter in [&self.calls, &self.nanos, &self.rejected, &self.failed] {
            counter.reset();
        }
        if let Some(latency) = self.latency.get() {
            latency.reset();
        }
    }
}

/// One worker's figures. The alignment keeps the figures of two workers out of one cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct WorkerStats {
    pub commands: Counter,
    pub batches: Counter,
    /// The time of commands inside of others, of EXEC or a script, which have it too.
    pub nested_nanos: Counter,
    pub net_in_bytes: Counter,
    pub net_out_bytes: Counter,
    pub connections: Counter,
    pub query_limit_closed: Counter,
    pub output_limit_closed: Counter,
    pub protocol_errors: Counter,
    pub error_replies: Counter,
    /// Commands that waited for flash at least once.
    pub flash_waits: Counter,
    /// Times a writer waited for room.
    pub room_waits: Counter,
    pub auth_failures: Counter,
    pub acl_denied_commands: Counter,
    pub acl_denied_keys: Counter,
    pub acl_denied_channels: Counter,
    /// Of a proxy's commands: times that a shard's owner rejected some, which are sent again; replies UNCERTAIN, and CLUSTERDOWN.
    pub forwards_rejected: Counter,
    pub forwards_uncertain: Counter,
    pub forwards_down: Counter,
    /// Latencies of reading commands: those that found all values in RAM, and those that did not.
    pub ram_latency: Histogram,
    pub flash_latency: Histogram,
    /// Indexed by [`crate::directory::Command::id`].
    pub by_command: Box<[CommandStats]>,
    /// Counts by the first word of the error reply. At most [`ERROR_CODES_MAX`] entries.
    errors: Mutex<BTreeMap<Box<str>, u64>>,
}

/// As in Redis, clients that invent error codes (in scripts) cannot fill the memory.
const ERROR_CODES_MAX: usize = 128;

impl WorkerStats {
    pub fn new(commands: usize) -> WorkerStats {
        WorkerStats {
            by_command: std::iter::repeat_with(CommandStats::default).take(commands).collect(),
            ..WorkerStats::default()
        }
    }

    pub fn error(&self, reply: &str) {
        self.error_replies.add(1);
        let code = reply.split(' ').next().unwrap_or("ERR");
        let mut errors = self.errors.lock();
        if let Some(count) = errors.get_mut(code) {
            *count += 1;
        } else if errors.len() < ERROR_CODES_MAX {
            errors.insert(code.into(), 1);
        }
    }

    /// CONFIG RESETSTAT. The owner may count at the same time, so a count may survive the reset. That is harmless.
    pub fn reset(&self) {
        for counter in [
            &self.commands,
            &self.batches,
            &self.nested_nanos,
            &self.net_in_bytes,
            &self.net_out_bytes,
            &self.connections,
            &self.query_limit_closed,
            &self.output_limit_closed,
            &self.protocol_errors,
            &self.error_replies,
            &self.flash_waits,
            &self.room_waits,
            &self.auth_failures,
            &self.acl_denied_commands,
            &self.acl_denied_keys,
            &self.acl_denied_channels,
            &self.forwards_rejected,
            &self.forwards_uncertain,
            &self.forwards_down,
        ] {
            counter.reset();
        }
        self.ram_latency.reset();
        self.flash_latency.reset();
        self.by_command.iter().for_each(CommandStats::reset);
        self.errors.lock().clear();
    }
}

/// The figures of all workers.
pub struct Stats {
    pub workers: Vec<WorkerStats>,
}

impl Stats {
    pub fn new(workers: usize, commands: usize) -> Stats {
        Stats { workers: std::iter::repeat_with(|| WorkerStats::new(commands)).take(workers).collect() }
    }

    pub fn sum(&self, counter: impl Fn(&WorkerStats) -> &Counter) -> u64 {
        self.workers.iter().map(|worker| counter(worker).get()).sum()
    }

    pub fn merged(&self, histogram: impl Fn(&WorkerStats) -> &Histogram) -> Summary {
        let mut summary = Summary::default();
        self.workers.iter().for_each(|worker| summary.add(histogram(worker)));
        summary
    }

    pub fn command(&self, id: usize) -> CommandTotals {
        let mut totals = CommandTotals::default();
        for worker in &self.workers {
            let stats = &worker.by_command[id];
            totals.calls += stats.calls.get();
            totals.nanos += stats.nanos.get();
            totals.rejected += stats.rejected.get();
            totals.failed += stats.failed.get();
        }
        totals
    }

    /// The time of all commands, each counted once.
    pub fn command_nanos(&self) -> u64 {
        let of = |worker: &WorkerStats| worker.by_command.iter().map(|command| command.nanos.get()).sum::<u64>();
        self.workers.iter().map(|worker| of(worker).saturating_sub(worker.nested_nanos.get())).sum()
    }

    pub fn calls(&self, id: usize) -> u64 {
        self.workers.iter().map(|worker| worker.by_command[id].calls.get()).sum()
    }

    /// Adds the latencies of all commands.
    pub fn add_command_latencies(&self, summary: &mut Summary) {
        let commands = self.workers.iter().flat_map(|worker| worker.by_command.iter());
        commands.filter_map(|command| command.latency.get()).for_each(|latency| summary.add(latency));
    }

    /// A command's latencies; `None` if none were recorded.
    pub fn command_latency(&self, id: usize) -> Option<Summary> {
        let mut summary = Summary::default();
        for worker in &self.workers {
            if let Some(latency) = worker.by_command[id].latency.get() {
                summary.add(latency);
            }
        }
        (summary.count > 0).then_some(summary)
    }

    pub fn errors(&self) -> BTreeMap<Box<str>, u64> {
        let mut sums = BTreeMap::new();
        for worker in &self.workers {
            for (code, count) in worker.errors.lock().iter() {
                *sums.entry(code.clone()).or_insert(0) += count;
            }
        }
        sums
    }

    pub fn reset(&self) {
        self.workers.iter().for_each(WorkerStats::reset);
    }
}

#[derive(Debug, Default, Clone, Copy)]
pub struct CommandTotals {
    pub calls: u64,
    pub nanos: u64,
    pub rejected: u64,
    pub failed: u64,
}

/// One sample every 100 ms: 16 samples are 1.6 seconds, as in Redis.
const RATE_SAMPLES: usize = 16;

/// Rates over the last [`RATE_SAMPLES`] samples, for INFO's instantaneous figures.
#[derive(Debug)]
pub struct Rates<const N: usize> {
    last: [u64; N],
    last_ms: u64,
    samples: [[u64; N]; RATE_SAMPLES],
    next: usize,
}

impl<const N: usize> Default for Rates<N> {
    fn default() -> Self {
        Rates { last: [0; N], last_ms: 0, samples: [[0; N]; RATE_SAMPLES], next: 0 }
    }
}

impl<const N: usize> Rates<N> {
    pub fn sample(&mut self, now_ms: u64, totals: [u64; N]) {
        let elapsed_ms = now_ms.saturating_sub(self.last_ms).max(1);
        for (i, total) in totals.iter().enumerate() {
            // A total below the last one means that the counter was reset.
            let grown = total.checked_sub(self.last[i]).unwrap_or(*total);
            self.samples[self.next][i] = if self.last_ms == 0 { 0 } else { grown * 1000 / elapsed_ms };
        }
        self.last = totals;
        self.last_ms = now_ms;
        self.next = (self.next + 1) % RATE_SAMPLES;
    }

    pub fn per_second(&self) -> [u64; N] {
        std::array::from_fn(|i| self.samples.iter().map(|sample| sample[i]).sum::<u64>() / RATE_SAMPLES as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_average_the_last_samples_and_survive_a_reset() {
        let mut rates = Rates::<1>::default();
        rates.sample(1000, [500]);
        assert_eq!(rates.per_second(), [0]);
        for i in 1..=16 {
            rates.sample(1000 + i * 100, [500 + i * 10]);
        }
        assert_eq!(rates.per_second(), [100]);
        rates.sample(2700, [3]);
        assert_eq!(rates.per_second(), [(15 * 100 + 30) / 16]);
    }

    #[test]
    fn errors_are_counted_by_their_code() {
        let stats = Stats::new(2, 1);
        stats.workers[0].error("ERR syntax error");
        stats.workers[1].error("ERR no such key");
        stats.workers[1].error("WRONGTYPE Operation against");
        let errors: Vec<_> = stats.errors().into_iter().collect();
        assert_eq!(errors, [("ERR".into(), 2), ("WRONGTYPE".into(), 1)]);
        assert_eq!(stats.sum(|worker| &worker.error_replies), 3);
    }
}
