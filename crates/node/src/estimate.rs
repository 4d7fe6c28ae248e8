//! Owns how long a restart would take, and whether a new checkpoint is due to make it shorter. Never knows a clock or a file.
//!
//! A restart reads the index and the dump of the checkpoint, and runs the records of the journal behind it. What these cost is measured at
//! each recovery that takes long enough, and kept for the next starts. Before, it is assumed to be more than a slow machine needs. What
//! a value on flash costs follows the device too, as it is while the node runs: a busy device shows before the restart.
//!
//! All databases of a node are loaded at once, and share the processors and the devices.

use std::time::{Duration, Instant};

/// A shorter time is more noise than figure.
const MEASURED_MIN: Duration = Duration::from_millis(100);
/// A new checkpoint is not worth it unless it makes a restart shorter by this share of what remains.
const GAIN_SHARE: u64 = 4;
/// The least time between two checkpoints that only make a restart shorter. If the last one took longer, as long as it took.
const REST_MS: u64 = 10_000;
/// While a checkpoint is urgent, the time is a half of what the last one took.
const URGENT_REST: u64 = 2;
/// The end of a node does not wait for a checkpoint that saves the next start less than this.
const END_GAIN_MS: u64 = 1000;
/// So many times what the next start would take without it, the end of a node waits for a checkpoint.
const END_TIMEOUT: u64 = 2;
const END_TIMEOUT_MS_MIN: u64 = 60_000;

/// A replay tells what reading values costs if that was expected to take at least this share of what the records take,
const READS_SHARE: f64 = 0.25;
/// and if a value does not cost more than on any device for which this is made.
const READ_NS_MAX: f64 = 5e6;

/// What a recovery costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    pub index_byte_ns: f64,
    pub dump_byte_ns: f64,
    /// The journal costs so much a record, or so much a byte, whichever is more.
    pub record_ns: f64,
    pub journal_byte_ns: f64,
    /// Or so much a value that is read from flash.
    pub read_ns: f64,
}

impl Default for Rates {
    /// Twelve million keys, 200 MB of a dump, 250,000 records or 200 MB of the journal a second: less than half of what two processors
    /// do. With lower rates, checkpoints that nobody needs would follow each other while a node is filled. Of values on flash, 50,000 a
    /// second, what a common NVMe device in a virtual machine gives.
    fn default() -> Rates {
        let (record_ns, read_ns) = (4000.0, 20_000.0);
        Rates { index_byte_ns: 5.0, dump_byte_ns: 5.0, record_ns, journal_byte_ns: 5.0, read_ns }
    }
}

/// What a restart has to read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    pub index_bytes: u64,
    pub dump_bytes: u64,
    pub records: u64,
    /// Of the journal behind the checkpoint.
    pub journal_bytes: u64,
    /// Values on flash that these records change.
    pub reads: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Took {
    pub index: Duration,
    pub dump: Duration,
    pub replay: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// Of the checkpoint.
    pub load_ms: u64,
    pub replay_ms: u64,
    /// What the node's other databases are given meanwhile.
    pub others_ms: u64,
}

impl Rates {
    /// With what a recovery has measured. What it was too short to tell stays as it was.
    pub fn measured(self, work: &Work, took: &Took) -> Rates {
        let rate = |took: Duration, amount: u64, before: f64| match amount {
            1.. => took.as_nanos() as f64 / amount as f64,
            0 => before,
        };
        let tells = |took: Duration| took >= MEASURED_MIN;
        let mut rates = self;
        if tells(took.index) {
            rates.index_byte_ns = rate(took.index, work.index_bytes, self.index_byte_ns);
        }
        if tells(took.dump) {
            rates.dump_byte_ns = rate(took.dump, work.dump_bytes, self.dump_byte_ns);
        }
        let (replay_ns, of_records) = (took.replay.as_nanos() as f64, self.records_ns(work));
        // Nobody sees what the time went into. If many records read values, more than records cost is what reading costs.
        let reads_flash = work.reads as f64 * self.read_ns >= of_records * READS_SHARE;
        let read_ns = replay_ns / (work.reads as f64).max(1.0);
        match tells(took.replay) {
            true if reads_flash && replay_ns > of_records && read_ns <= READ_NS_MAX => rates.read_ns = read_ns,
            true => {
                rates.record_ns = rate(took.replay, work.records, self.record_ns);
                rates.journal_byte_ns = rate(took.replay, work.journal_bytes, self.journal_byte_ns);
                if reads_flash {
                    rates.read_ns = self.read_ns.min(read_ns);
                }
            }
            false => {}
        }
        rates
    }

    /// While a read of the device costs so much. 0: it has not been read.
    pub fn on_device(self, read_ns: u64) -> Rates {
        Rates { read_ns: self.read_ns.max(read_ns as f64), ..self }
    }

    /// Of a database that is alone.
    pub fn estimate(&self, work: &Work) -> Estimate {
        let ms = |ns: f64| (ns / 1e6) as u64;
        Estimate {
            load_ms: ms(work.index_bytes as f64 * self.index_byte_ns) + ms(work.dump_bytes as f64 * self.dump_byte_ns),
            replay_ms: ms(self.records_ns(work).max(work.reads as f64 * self.read_ns)),
            others_ms: 0,
        }
    }

    fn records_ns(&self, work: &Work) -> f64 {
        (work.records as f64 * self.record_ns).max(work.journal_bytes as f64 * self.journal_byte_ns)
    }

    /// One line, for a file.
    pub fn to_text(self) -> String {
        let Rates { index_byte_ns, dump_byte_ns, record_ns, journal_byte_ns, read_ns } = self;
        format!("{index_byte_ns} {dump_byte_ns} {record_ns} {journal_byte_ns} {read_ns}\n")
    }

    pub fn from_text(text: &str) -> Option<Rates> {
        let is_rate = |ns: &f64| ns.is_finite() && *ns > 0.0;
        let rates: Vec<f64> =
            text.split_ascii_whitespace().map_while(|word| word.parse().ok().filter(is_rate)).collect();
        let &[index_byte_ns, dump_byte_ns, record_ns, journal_byte_ns, read_ns] = rates.as_slice() else { return None };
        Some(Rates { index_byte_ns, dump_byte_ns, record_ns, journal_byte_ns, read_ns })
    }
}

/// What a database waits for others, if all are loaded at once and share the machine: until the shorter of the two is there, half of the
/// time goes to each other one.
pub fn others_ms(own_ms: u64, others_ms: impl Iterator<Item = u64>) -> u64 {
    others_ms.map(|other_ms| other_ms.min(own_ms)).sum()
}

/// A clock that tells how long a recovery would have taken alone: it is so many times slower as recoveries are under way.
#[derive(Debug, Default)]
pub struct SharedRecoveryClock {
    under_way: u32,
    alone: Duration,
    /// Of the last change.
    at: Option<Instant>,
}

impl SharedRecoveryClock {
    pub fn begin(&mut self, now: Instant) {
        self.alone(now);
        self.under_way += 1;
    }

    pub fn end(&mut self, now: Instant) {
        self.alone(now);
        self.under_way = self.under_way.saturating_sub(1);
    }

    pub fn alone(&mut self, now: Instant) -> Duration {
        let passed = self.at.replace(now).map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.alone += passed / self.under_way.max(1);
        self.alone
    }
}

impl Estimate {
    pub fn total_ms(&self) -> u64 {
        self.load_ms + self.replay_ms + self.others_ms
    }

    /// `target_ms`: 0 if there is none.
    pub fn is_above(&self, target_ms: u64) -> bool {
        target_ms > 0 && self.total_ms() > target_ms
    }

    /// Whether a new checkpoint is due, of which the last one took so long and ended so long ago.
    pub fn asks_for_checkpoint(&self, target_ms: u64, last_took_ms: u64, since_last_ms: u64) -> bool {
        let rest_ms = if self.is_urgent(target_ms) { last_took_ms / URGENT_REST } else { last_took_ms.max(REST_MS) };
        self.is_late(target_ms) && since_last_ms > rest_ms
    }

    /// So late that the next checkpoint cannot wait for anything, although the checkpoint itself is loaded in time.
    pub fn is_urgent(&self, target_ms: u64) -> bool {
        self.load_ms <= target_ms && self.is_late(target_ms * 3 / 2)
    }

    /// Longer than that, and a checkpoint helps: one so large that loading it alone takes longer is not written again and again.
    fn is_late(&self, ms: u64) -> bool {
        self.is_above(ms) && self.gains_by_checkpoint()
    }

    /// Whether a checkpoint before the end of the node makes the next start much shorter.
    pub fn asks_for_last_checkpoint(&self) -> bool {
        self.replay_ms > END_GAIN_MS && self.gains_by_checkpoint()
    }

    /// How long the end of the node may wait for that checkpoint. Then the next start replays the journal.
    pub fn last_checkpoint_ms_max(&self) -> u64 {
        (END_TIMEOUT * self.total_ms()).max(END_TIMEOUT_MS_MIN)
    }

    fn gains_by_checkpoint(&self) -> bool {
        self.replay_ms > self.load_ms / GAIN_SHARE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORK: Work =
        Work { index_bytes: 16_000_000, dump_bytes: 10_000_000, records: 200_000, journal_bytes: 1000, reads: 0 };

    fn of(load_ms: u64, replay_ms: u64) -> Estimate {
        Estimate { load_ms, replay_ms, others_ms: 0 }
    }

    #[test]
    fn what_was_measured_replaces_what_was_assumed() {
        assert_eq!(Rates::default().estimate(&WORK), of(80 + 50, 800));
        let took = Took {
            index: Duration::from_millis(480),
            dump: Duration::from_millis(99),
            replay: Duration::from_millis(500),
        };
        let rates = Rates::default().measured(&WORK, &took);
        assert_eq!((rates.index_byte_ns, rates.dump_byte_ns), (30.0, 5.0), "the dump was too fast to tell");
        assert_eq!(rates.estimate(&WORK), of(480 + 50, 500));
        let twice = Work { records: 2 * WORK.records, ..WORK };
        assert_eq!(rates.estimate(&twice).replay_ms, 1000);
        let larger = Work { journal_bytes: 3 * WORK.journal_bytes, ..WORK };
        assert_eq!(rates.estimate(&larger).replay_ms, 1500, "larger values, not more records");
        assert_eq!(Rates::default().measured(&Work::default(), &took), Rates::default());
        // A short recovery does not make the node forget what a long one has told.
        let short = Took { replay: Duration::from_millis(20), ..Took::default() };
        assert_eq!(rates.measured(&Work { records: 10, ..Work::default() }, &short), rates);
        assert_eq!(Rates::from_text(&rates.to_text()), Some(rates));
        for text in ["", "1 2 3 4", "1 2 3 4 0", "1 2 3 4 NaN", "1 2 3 4 5 6"] {
            assert_eq!(Rates::from_text(text), None, "{text}");
        }
    }

    #[test]
    fn values_on_flash_that_the_records_change_are_read() {
        let rates = Rates::default();
        let cold = Work { reads: 150_000, ..WORK };
        assert_eq!(rates.estimate(&cold).replay_ms, 3000);
        let took = |ms| Took { replay: Duration::from_millis(ms), ..Took::default() };
        let faster = rates.measured(&cold, &took(1500));
        assert_eq!(faster, Rates { read_ns: 10_000.0, ..rates }, "what a record costs is not known");
        assert_eq!(rates.measured(&Work { reads: 3000, ..cold }, &took(1500)).record_ns, 7500.0, "too few to tell");
        assert_eq!(
            rates.measured(&cold, &took(600)),
            Rates { record_ns: 3000.0, journal_byte_ns: 600_000.0, read_ns: 4000.0, ..rates }
        );
        // A replica: 73,020 records of 330 bytes, of which most read flash, took 99 s on a busy machine.
        let work = Work { records: 73_020, journal_bytes: 24_000_000, reads: 60_000, ..Work::default() };
        assert!(rates.estimate(&work).total_ms() < 10_000);
        let learnt = rates.measured(&work, &took(99_000));
        assert!((98_990..=99_000).contains(&learnt.estimate(&work).replay_ms), "{learnt:?}");
        assert_eq!((learnt.record_ns, learnt.read_ns), (rates.record_ns, 1_650_000.0));
        // Whether most of the records read flash or a few: the next checkpoint comes before the target is missed.
        for reads in [60_000, 30_000, 7_300] {
            let rates = rates.measured(&Work { reads, ..work }, &took(99_000));
            let tenth = Work { records: 7_302, journal_bytes: 2_400_000, reads: reads / 10, ..Work::default() };
            assert!((9_890..=9_900).contains(&rates.estimate(&tenth).replay_ms), "{reads}: {rates:?}");
        }
    }

    #[test]
    fn a_busy_device_shows_before_the_restart() {
        let work = Work { records: 73_020, journal_bytes: 24_000_000, reads: 60_000, ..Work::default() };
        let at = |read_us: u64| Rates::default().on_device(read_us * 1000).estimate(&work);
        assert_eq!(at(0), at(20), "what a common device needs is assumed anyway");
        assert!(!at(20).is_above(10_000));
        assert!(at(1_400).is_above(10_000));
        assert!(at(1_400).asks_for_checkpoint(10_000, 0, 60_000));
    }

    #[test]
    fn databases_that_are_loaded_at_once_wait_for_each_other() {
        assert_eq!(others_ms(6_000, [6_000; 4].into_iter()), 24_000);
        assert_eq!(others_ms(1_000, [6_000, 500, 0].into_iter()), 1_500, "a small one is there soon");
        let five = Estimate { others_ms: 24_000, ..of(1_000, 5_000) };
        assert_eq!(five.total_ms(), 30_000);
        assert!(!of(1_000, 5_000).is_above(10_000));
        assert!(five.is_above(10_000));
        assert!(five.asks_for_checkpoint(10_000, 0, 60_000), "each of them helps");
    }

    /// Five databases begin together, and the machine does one of them in six seconds.
    #[test]
    fn what_a_recovery_takes_beside_others_is_not_taken_for_its_own_cost() {
        let second = |second: u64| Duration::from_secs(second);
        let (mut clock, began) = (SharedRecoveryClock::default(), Instant::now());
        assert_eq!(clock.alone(began), Duration::ZERO);
        let later = began + second(100);
        let from = clock.alone(later);
        (0..5).for_each(|_| clock.begin(later));
        assert_eq!(clock.alone(later + second(30)) - from, second(6));
        (0..4).for_each(|_| clock.end(later + second(30)));
        assert_eq!(clock.alone(later + second(32)) - from, second(8), "it is alone now");
        clock.end(later + second(32));
        // The clock of a machine does not go back, and if it does, no time has passed.
        assert_eq!(clock.alone(later) - from, second(8));
    }

    #[test]
    fn a_checkpoint_is_due_if_it_makes_a_late_restart_much_shorter() {
        let asks = |estimate: Estimate, target_ms| estimate.asks_for_checkpoint(target_ms, 0, 60_000);
        assert!(!asks(of(6000, 4000), 10_000));
        assert!(asks(of(6000, 4001), 10_000));
        assert!(!asks(of(6000, 4001), 0), "off");
        assert!(of(20_000, 1).is_above(10_000));
        assert!(!asks(of(20_000, 5000), 10_000));
        assert!(asks(of(20_000, 5001), 10_000));
        assert!(!of(5000, 10_000).is_urgent(10_000));
        assert!(of(5000, 10_001).is_urgent(10_000));
        assert!(!of(5000, 10_001).is_urgent(0), "off");
        assert!(!of(10_001, 10_000).is_urgent(10_000), "the checkpoint alone takes too long");
    }

    #[test]
    fn checkpoints_rest_and_urgent_ones_less() {
        for (estimate, took_ms, rest_ms) in [
            (of(1000, 14_000), 3000, 10_000),
            (of(1000, 14_000), 12_000, 12_000),
            (of(1000, 14_001), 3000, 1500),
            (of(1000, 14_001), 12_000, 6000),
            (of(10_001, 14_001), 12_000, 12_000),
        ] {
            assert!(!estimate.asks_for_checkpoint(10_000, took_ms, rest_ms));
            assert!(estimate.asks_for_checkpoint(10_000, took_ms, rest_ms + 1));
        }
    }

    #[test]
    fn a_node_ends_with_a_checkpoint_if_the_next_start_is_much_shorter_then() {
        assert!(!of(0, 1000).asks_for_last_checkpoint());
        assert!(of(0, 1001).asks_for_last_checkpoint());
        assert!(!of(8000, 2000).asks_for_last_checkpoint(), "the checkpoint alone takes most of the start");
        assert!(of(8000, 2001).asks_for_last_checkpoint());
        assert_eq!(of(100, 2000).last_checkpoint_ms_max(), 60_000);
        assert_eq!(of(20_000, 20_000).last_checkpoint_ms_max(), 80_000);
    }
}
