//! Owns how long a restart would take, and whether a new base is due to make it shorter. Never knows a clock or a file.
//!
//! A restart reads the index and the dump of the base, and runs the records of the journal behind it. What these cost is measured at
//! each recovery that takes long enough. Before, it is assumed to be more than a slow machine needs.

use std::time::Duration;

/// A shorter time is more noise than figure.
const MEASURED_MIN: Duration = Duration::from_millis(100);
/// A new base is not worth it unless it makes a restart shorter by this share of what remains.
const GAIN_SHARE: u64 = 4;
/// The least time between two bases that only make a restart shorter. If the last one took longer, as long as it took.
const REST_MS: u64 = 10_000;
/// While a base is urgent, the time is a half of what the last one took.
const URGENT_REST: u64 = 2;
/// The end of a node does not wait for a base that saves the next start less than this.
const END_GAIN_MS: u64 = 1000;
/// So many times what the next start would take without it, the end of a node waits for a base.
const END_PATIENCE: u64 = 2;
const END_PATIENCE_MS_MIN: u64 = 60_000;

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
    /// do. With lower rates, bases that nobody needs would follow each other while a node is filled. Of values on flash, 50,000 a
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
    /// Of the journal behind the base.
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
    /// Of the base.
    pub load_ms: u64,
    pub replay_ms: u64,
}

impl Rates {
    /// With what a recovery has measured.
    pub fn measured(work: &Work, took: &Took) -> Rates {
        let assumed = Rates::default();
        let rate = |took: Duration, amount: u64, assumed: f64| match amount {
            1.. if took >= MEASURED_MIN => took.as_nanos() as f64 / amount as f64,
            _ => assumed,
        };
        // A replay tells what it costs to read values if that is most of its work, and else what the records cost.
        let reads_flash = work.reads > work.records / 2;
        let of_records = |rate: f64, assumed: f64| if reads_flash { assumed } else { rate };
        let (record_ns, byte_ns) = (assumed.record_ns, assumed.journal_byte_ns);
        Rates {
            index_byte_ns: rate(took.index, work.index_bytes, assumed.index_byte_ns),
            dump_byte_ns: rate(took.dump, work.dump_bytes, assumed.dump_byte_ns),
            record_ns: of_records(rate(took.replay, work.records, record_ns), record_ns),
            journal_byte_ns: of_records(rate(took.replay, work.journal_bytes, byte_ns), byte_ns),
            read_ns: if reads_flash { rate(took.replay, work.reads, assumed.read_ns) } else { assumed.read_ns },
        }
    }

    pub fn estimate(&self, work: &Work) -> Estimate {
        let ms = |amount: u64, ns: f64| (amount as f64 * ns / 1e6) as u64;
        Estimate {
            load_ms: ms(work.index_bytes, self.index_byte_ns) + ms(work.dump_bytes, self.dump_byte_ns),
            replay_ms: ms(work.records, self.record_ns)
                .max(ms(work.journal_bytes, self.journal_byte_ns))
                .max(ms(work.reads, self.read_ns)),
        }
    }
}

impl Estimate {
    pub fn total_ms(&self) -> u64 {
        self.load_ms + self.replay_ms
    }

    /// `target_ms`: 0 if there is none.
    pub fn is_above(&self, target_ms: u64) -> bool {
        target_ms > 0 && self.total_ms() > target_ms
    }

    /// Whether a new base is due, of which the last one took so long and ended so long ago.
    pub fn asks_for_base(&self, target_ms: u64, last_took_ms: u64, since_last_ms: u64) -> bool {
        let rest_ms = if self.is_urgent(target_ms) { last_took_ms / URGENT_REST } else { last_took_ms.max(REST_MS) };
        self.is_late(target_ms) && since_last_ms > rest_ms
    }

    /// So late that the next base cannot wait for anything, although the base itself is loaded in time.
    pub fn is_urgent(&self, target_ms: u64) -> bool {
        self.load_ms <= target_ms && self.is_late(target_ms * 3 / 2)
    }

    /// Longer than that, and a base helps: one so large that loading it alone takes longer is not written again and again.
    fn is_late(&self, ms: u64) -> bool {
        self.is_above(ms) && self.gains_by_base()
    }

    /// Whether a base before the end of the node makes the next start much shorter.
    pub fn asks_for_last_base(&self) -> bool {
        self.replay_ms > END_GAIN_MS && self.gains_by_base()
    }

    /// How long the end of the node may wait for that base. Then the next start replays the journal.
    pub fn last_base_ms_max(&self) -> u64 {
        (END_PATIENCE * self.total_ms()).max(END_PATIENCE_MS_MIN)
    }

    fn gains_by_base(&self) -> bool {
        self.replay_ms > self.load_ms / GAIN_SHARE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORK: Work =
        Work { index_bytes: 16_000_000, dump_bytes: 10_000_000, records: 200_000, journal_bytes: 1000, reads: 0 };

    #[test]
    fn what_was_measured_replaces_what_was_assumed() {
        assert_eq!(Rates::default().estimate(&WORK), Estimate { load_ms: 80 + 50, replay_ms: 800 });
        let took = Took {
            index: Duration::from_millis(480),
            dump: Duration::from_millis(99),
            replay: Duration::from_millis(500),
        };
        let rates = Rates::measured(&WORK, &took);
        assert_eq!((rates.index_byte_ns, rates.dump_byte_ns), (30.0, 5.0), "the dump was too fast to tell");
        assert_eq!(rates.estimate(&WORK), Estimate { load_ms: 480 + 50, replay_ms: 500 });
        let twice = Work { records: 2 * WORK.records, ..WORK };
        assert_eq!(rates.estimate(&twice).replay_ms, 1000);
        let larger = Work { journal_bytes: 3 * WORK.journal_bytes, ..WORK };
        assert_eq!(rates.estimate(&larger).replay_ms, 1500, "larger values, not more records");
        assert_eq!(Rates::measured(&Work::default(), &took), Rates::default());
    }

    #[test]
    fn values_on_flash_that_the_records_change_are_read() {
        let cold = Work { reads: 150_000, ..WORK };
        assert_eq!(Rates::default().estimate(&cold).replay_ms, 3000);
        let took = Took { replay: Duration::from_millis(1500), ..Took::default() };
        let rates = Rates::measured(&cold, &took);
        assert_eq!(rates, Rates { read_ns: 10_000.0, ..Rates::default() }, "what a record costs is not known");
        assert_eq!(rates.estimate(&Work { reads: 300_000, ..WORK }).replay_ms, 3000);
        let few = Rates::measured(&Work { reads: 100_000, ..WORK }, &took);
        assert_eq!((few.record_ns, few.read_ns), (7500.0, 20_000.0));
    }

    #[test]
    fn a_base_is_due_if_it_makes_a_late_restart_much_shorter() {
        let of = |load_ms, replay_ms| Estimate { load_ms, replay_ms };
        let asks = |estimate: Estimate, target_ms| estimate.asks_for_base(target_ms, 0, 60_000);
        assert!(!asks(of(6000, 4000), 10_000));
        assert!(asks(of(6000, 4001), 10_000));
        assert!(!asks(of(6000, 4001), 0), "off");
        assert!(of(20_000, 1).is_above(10_000));
        assert!(!asks(of(20_000, 5000), 10_000));
        assert!(asks(of(20_000, 5001), 10_000));
        assert!(!of(5000, 10_000).is_urgent(10_000));
        assert!(of(5000, 10_001).is_urgent(10_000));
        assert!(!of(5000, 10_001).is_urgent(0), "off");
        assert!(!of(10_001, 10_000).is_urgent(10_000), "the base alone takes too long");
    }

    #[test]
    fn bases_rest_and_urgent_ones_less() {
        let of = |load_ms, replay_ms| Estimate { load_ms, replay_ms };
        for (estimate, took_ms, rest_ms) in [
            (of(1000, 14_000), 3000, 10_000),
            (of(1000, 14_000), 12_000, 12_000),
            (of(1000, 14_001), 3000, 1500),
            (of(1000, 14_001), 12_000, 6000),
            (of(10_001, 14_001), 12_000, 12_000),
        ] {
            assert!(!estimate.asks_for_base(10_000, took_ms, rest_ms));
            assert!(estimate.asks_for_base(10_000, took_ms, rest_ms + 1));
        }
    }

    #[test]
    fn a_node_ends_with_a_base_if_the_next_start_is_much_shorter_then() {
        let of = |load_ms, replay_ms| Estimate { load_ms, replay_ms };
        assert!(!of(0, 1000).asks_for_last_base());
        assert!(of(0, 1001).asks_for_last_base());
        assert!(!of(8000, 2000).asks_for_last_base(), "the base alone takes most of the start");
        assert!(of(8000, 2001).asks_for_last_base());
        assert_eq!(of(100, 2000).last_base_ms_max(), 60_000);
        assert_eq!(of(20_000, 20_000).last_base_ms_max(), 80_000);
    }
}
