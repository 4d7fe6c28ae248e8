//! Owns how long a restart would take, and whether a new checkpoint is due to make it shorter. Never knows a clock or a file.
//!
//! A restart reads the index and the dump of the checkpoint, and replays the journal's records behind it. Each recovery that takes long
//! enough measures these costs, and they are kept for the next starts. Before the first measurement, the assumed costs are higher than
//! those of a slow machine. The cost of a value on flash also follows the device while the node runs, so a busy device shows before the
//! restart.
//!
//! All databases of a node are loaded at once, and share the processors and the devices.

use std::time::{Duration, Instant};

/// A shorter time is too noisy to count as a measurement.
const MEASURED_MIN: Duration = Duration::from_millis(100);
/// A new checkpoint is worth its cost only if the replay that it saves takes more than 1/GAIN_SHARE of the time that loading the checkpoint takes.
const GAIN_SHARE: u64 = 4;
/// The least time between two checkpoints that only make a restart shorter. If the last one took longer, as long as it took.
const REST_MS: u64 = 10_000;
/// While a checkpoint is urgent, the least time is 1/URGENT_REST of what the last one took.
const URGENT_REST: u64 = 2;
/// The end of a node does not wait for a checkpoint that saves the next start less than this.
const END_GAIN_MS: u64 = 1000;
/// The end of a node waits for a checkpoint this many times as long as the next start would take without it.
const END_TIMEOUT: u64 = 2;
const END_TIMEOUT_MS_MIN: u64 = 60_000;

/// A replay measures the cost of reading values only if these reads were expected to take at least this share of the records' cost.
const READS_SHARE: f64 = 0.25;
/// A higher measured cost of one read does not count: no device for which this is made is so slow.
const READ_NS_MAX: f64 = 5e6;

/// What a recovery costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    pub index_byte_ns: f64,
    pub dump_byte_ns: f64,
    /// The time of a replay is the largest of three products: records, bytes of the journal, and values read from flash, each times its cost.
    pub record_ns: f64,
    pub journal_byte_ns: f64,
    /// The cost of a value that is read from flash.
    pub read_ns: f64,
}

impl Default for Rates {
    /// In a second: twelve million keys, 200 MB of a dump, and 250,000 records or 200 MB of the journal. This is less than half of what two
    /// processors do. With lower rates, a node that is being filled would write checkpoints that nobody needs, one after another. 50,000
    /// values on flash in a second are what a common NVMe device in a virtual machine gives.
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
    /// Bytes of the journal behind the checkpoint.
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
    /// Loading the checkpoint.
    pub load_ms: u64,
    pub replay_ms: u64,
    /// The time that the node's other databases get meanwhile.
    pub others_ms: u64,
}

impl Rates {
    /// These rates with a recovery's measurements. A part of the recovery that was too short to measure leaves its rate unchanged.
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
        // A replay is measured only as a whole. If many records read values, and the replay took longer than records cost, its time is the
        // cost of the reads.
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

    /// These rates with the device's present cost of a read, if that is higher. 0: the device was not read yet.
    pub fn on_device(self, read_ns: u64) -> Rates {
        Rates { read_ns: self.read_ns.max(read_ns as f64), ..self }
    }

    /// The estimate for a database that is loaded alone.
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

/// How long a database waits for others, if all are loaded at once. Two databases share the machine equally until the shorter load ends, so
/// each other one costs the shorter of the two times.
pub fn others_ms(own_ms: u64, others_ms: impl Iterator<Item = u64>) -> u64 {
    others_ms.map(|other_ms| other_ms.min(own_ms)).sum()
}

/// A clock that measures how long a recovery would have taken alone: while N recoveries run, it runs at 1/N of the speed.
#[derive(Debug, Default)]
pub struct SharedRecoveryClock {
    under_way: u32,
    alone: Duration,
    /// When `alone` was updated last.
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

    /// Whether a new checkpoint is due. `last_took_ms`: how long the last one took; `since_last_ms`: how long ago it ended.
    pub fn asks_for_checkpoint(&self, target_ms: u64, last_took_ms: u64, since_last_ms: u64) -> bool {
        let rest_ms = if self.is_urgent(target_ms) { last_took_ms / URGENT_REST } else { last_took_ms.max(REST_MS) };
        self.is_late(target_ms) && since_last_ms > rest_ms
    }

    /// Whether a restart takes half as long again as the target, so that the next checkpoint must not wait. Not if loading the checkpoint
    /// alone exceeds the target.
    pub fn is_urgent(&self, target_ms: u64) -> bool {
        self.load_ms <= target_ms && self.is_late(target_ms * 3 / 2)
    }

    /// Whether a restart takes longer than `ms` and a new checkpoint would make it shorter. Without the second condition, a checkpoint that
    /// is too large to be loaded in time would be written again and again.
    fn is_late(&self, ms: u64) -> bool {
        self.is_above(ms) && self.gains_by_checkpoint()
    }

    /// Whether a checkpoint before the end of the node makes the next start much shorter.
    pub fn asks_for_last_checkpoint(&self) -> bool {
        self.replay_ms > END_GAIN_MS && self.gains_by_checkpoint()
    }

    /// How long the end of the node may wait for that checkpoint. After this time, the node ends without it, and the next start replays the journal.
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
