//! Owns the formulas of sizing: how much RAM and flash a dataset needs, and which share of its reads is served from RAM.
//! Pure functions. docs/operations.md has the formulas in words. Never knows a node or a device.

use crate::pattern::{Pattern, Reads, SKEW_MAX};
use crate::{ram, size};

/// A key in the index: 24.9 measured with 10 million keys whose values are on flash.
const INDEX_BYTES: f64 = 25.0;
/// The bytes of an object in RAM besides key and value: header, flash address, rounding.
const OBJECT_BYTES: f64 = 20.0;
/// The flash address of a value in RAM that has a copy on flash.
const COPY_BYTES: f64 = 8.0;
/// The bytes of a record on flash besides key and value.
const RECORD_BYTES: f64 = 8.0;
/// The overhead of page headers and unused ends of pages.
const PAGE_FACTOR: f64 = 1.02;
/// The RAM limit beside what process, index and values take, for the arena's slabs and for what grows while values leave: a share
/// and a number of bytes. Of a small limit, a tenth is free.
const RAM_FACTOR: f64 = 1.02;
const RAM_FREE_BYTES: f64 = 16.0 * 1_048_576.0;
const RAM_FILL_MIN: f64 = 0.9;
/// The live share of flash that leaves segments free for collection.
const FLASH_FILL: f64 = 0.8;
/// What one database can address on flash: 2^29 pages of 4 KiB.
pub const DATABASE_FLASH_BYTES_MAX: u64 = 2 << 40;
/// Larger strings stay in RAM.
pub const VALUE_BYTES_MAX: u64 = 16 << 20;
/// Far above any real node, and small enough that the sums do not overflow.
const KEYS_MAX: u64 = 1_000_000_000_000;
const KEY_BYTES_MAX: u64 = 1 << 20;

/// The data to be stored, and how it is used.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadSpec {
    pub keys: u64,
    pub key_bytes: u64,
    /// On average.
    pub value_bytes: u64,
    /// Compressed size ÷ original size: 1 for data that does not compress.
    pub compression: f64,
    pub pattern: Pattern,
    pub reads_per_second: f64,
    pub writes_per_second: f64,
    pub workers: u64,
    /// Whether a journal keeps the data over restarts.
    pub has_journal: bool,
    pub has_console: bool,
}

/// A number of a workload that makes no sense: the name of its field, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    pub field: &'static str,
    pub why: String,
}

/// What a workload needs with one share of its values in RAM.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizing {
    /// Share of the values that are in RAM, 0 to 1.
    pub ram_share: f64,
    /// Share of the reads that are served from RAM, 0 to 1.
    pub hit_ratio: f64,
    /// The process itself.
    pub own_bytes: u64,
    pub index_bytes: u64,
    pub hot_values: u64,
    pub hot_bytes: u64,
    pub ram_limit_bytes: u64,
    /// Values with a record on flash: those that are not in RAM, and those that a read has brought to RAM and that were not
    /// written since.
    pub flash_values: u64,
    pub flash_live_bytes: u64,
    /// Includes the space that collection needs.
    pub flash_bytes: u64,
    pub memory_limit_bytes: u64,
    /// All files on flash. With a journal these are more than the values.
    pub files_bytes: u64,
    pub flash_reads_per_second: f64,
    /// How many databases the keys must be divided among.
    pub databases: u64,
}

impl WorkloadSpec {
    pub fn check(&self) -> Result<(), Wrong> {
        let wrong = |field, why: &str| Err(Wrong { field, why: why.to_owned() });
        if !(1..=KEYS_MAX).contains(&self.keys) {
            return wrong("keys", "must be from 1 to 10^12");
        }
        if !(1..=KEY_BYTES_MAX).contains(&self.key_bytes) {
            return wrong("key_bytes", "must be from 1 to 1 MB");
        }
        if self.value_bytes > VALUE_BYTES_MAX {
            return wrong(
                "value_bytes",
                "must be at most 16 MB: a larger string stays in RAM, and a larger collection moves to flash in parts, so describe the parts instead, as values of 1 KB",
            );
        }
        if !(0.01..=1.0).contains(&self.compression) {
            return wrong("compression", "must be from 0.01 to 1: the size of the data on flash ÷ their original size");
        }
        if let Pattern::Skew(skew) = self.pattern
            && !(0.0..=SKEW_MAX).contains(&skew)
        {
            return wrong("skew", "must be from 0, all keys alike, to 5");
        }
        for (field, rate) in
            [("reads_per_second", self.reads_per_second), ("writes_per_second", self.writes_per_second)]
        {
            if !(0.0..=1e12).contains(&rate) {
                return wrong(field, "must be from 0 to 10^12");
            }
        }
        if !(1..=1024).contains(&self.workers) {
            return wrong("workers", "must be from 1 to 1024");
        }
        Ok(())
    }

    /// The sizing with the least RAM that serves this share of the reads. The workload must be valid.
    pub fn for_hit_ratio(&self, hit_ratio: f64) -> Sizing {
        let reads = Reads::new(self.keys, &self.pattern);
        let ram_share = reads.share_for(hit_ratio);
        self.sized(ram_share, hit_ratio, &reads)
    }

    /// The sizing with this share of the values in RAM. The workload must be valid.
    pub fn for_ram_share(&self, ram_share: f64) -> Sizing {
        let reads = Reads::new(self.keys, &self.pattern);
        self.sized(ram_share, reads.hit_ratio(ram_share), &reads)
    }

    /// What the same data take in RAM if there is no flash.
    pub fn all_in_ram_bytes(&self) -> u64 {
        let values = self.keys as f64 * (self.pair_bytes() + OBJECT_BYTES);
        self.own_bytes() + (self.keys as f64 * INDEX_BYTES + values) as u64
    }

    fn sized(&self, ram_share: f64, hit_ratio: f64, reads: &Reads) -> Sizing {
        let keys = self.keys as f64;
        let hot = keys * ram_share;
        let uses = self.reads_per_second + self.writes_per_second;
        let read_share = if uses > 0.0 { self.reads_per_second / uses } else { 1.0 };
        // Values with a record on flash, and those of them that are in RAM.
        let (on_flash, copied) = match ram_share < 1.0 {
            true => {
                let uncopied = keys * reads.uncopied(ram_share, read_share);
                (keys - uncopied, hot - uncopied)
            }
            false => (0.0, 0.0),
        };
        let hot_bytes = hot * (self.pair_bytes() + OBJECT_BYTES) + copied * COPY_BYTES;
        let index_bytes = keys * INDEX_BYTES;
        let own_bytes = self.own_bytes();
        let taken = own_bytes as f64 + index_bytes + hot_bytes;
        let ram = (taken * RAM_FACTOR + RAM_FREE_BYTES).min(taken / RAM_FILL_MIN);
        let live = on_flash * (self.pair_bytes() + RECORD_BYTES) * PAGE_FACTOR * self.compression;
        let (ram_limit_bytes, flash_bytes) = (ram.ceil() as u64, (live / FLASH_FILL).ceil() as u64);
        let memory_limit_bytes = ram_limit_bytes + flash_bytes;
        Sizing {
            ram_share,
            hit_ratio,
            own_bytes,
            index_bytes: index_bytes as u64,
            hot_values: hot.round() as u64,
            hot_bytes: hot_bytes as u64,
            ram_limit_bytes,
            flash_values: on_flash.round() as u64,
            flash_live_bytes: live.ceil() as u64,
            flash_bytes,
            memory_limit_bytes,
            files_bytes: files_bytes(memory_limit_bytes, ram_limit_bytes, self.has_journal),
            flash_reads_per_second: self.reads_per_second * (1.0 - hit_ratio),
            databases: flash_bytes.div_ceil(DATABASE_FLASH_BYTES_MAX).max(1),
        }
    }

    fn pair_bytes(&self) -> f64 {
        (self.key_bytes + self.value_bytes) as f64
    }

    fn own_bytes(&self) -> u64 {
        let of = |is_there: bool, bytes: u64| if is_there { bytes } else { 0 };
        ram::LOADED_BYTES
            + ram::OWN_BYTES_PER_WORKER * self.workers
            + of(self.has_journal, ram::JOURNAL_BYTES)
            + of(self.has_console, ram::CONSOLE_BYTES)
    }
}

/// Shares of values in RAM that a planner compares.
pub const SHARES: [f64; 8] = [0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0];

impl Sizing {
    /// The directives of a database of this size, in whole megabytes. With all values in RAM, no flash is needed.
    pub fn directives(&self) -> [(&'static str, String); 2] {
        let ram = self.ram_limit_bytes.next_multiple_of(1 << 20);
        let memory = ram + self.flash_bytes.next_multiple_of(1 << 20);
        [("memory-limit", size::exact(memory)), ("ram-limit", size::exact(ram))]
    }

    /// The cost, for prices per gigabyte (2^30 bytes).
    pub fn cost(&self, ram_price: f64, flash_price: f64) -> f64 {
        cost(self.ram_limit_bytes, ram_price) + cost(self.flash_bytes, flash_price)
    }
}

/// The size of the flash log. If the dataset survives restarts, the log gets what the limit of all files leaves beside the
/// checkpoints and the journal, but at least what the values need, and at most [`log_bytes_max`]. `flash_limit`: 0 if none is given.
pub fn log_bytes(memory: u64, ram: u64, is_kept: bool, flash_limit: u64) -> u64 {
    let least = memory.saturating_sub(ram);
    if !is_kept {
        return least;
    }
    let limit = if flash_limit == 0 { usual_limit(memory) } else { flash_limit };
    limit.saturating_sub(kept_bytes(memory, ram)).clamp(least, log_bytes_max(memory, ram))
}

/// The largest useful log of a dataset that survives restarts: live values up to the memory limit, because values in RAM have a
/// copy there too, so that checkpoints need not contain them; as much as RAM for garbage, which takes space until a new checkpoint
/// frees it; and a tenth for collection.
pub fn log_bytes_max(memory: u64, ram: u64) -> u64 {
    let most = memory.saturating_add(memory / 10).saturating_add(ram).min(DATABASE_FLASH_BYTES_MAX);
    most.max(memory.saturating_sub(ram))
}

/// The limit of all files of a dataset that survives restarts, if none is given. Less costs more collection and a journal that is full more
/// often: docs/durability.md has the measurements. Far below a gigabyte, checkpoints and journal leave no room for copies.
fn usual_limit(memory: u64) -> u64 {
    memory.saturating_add(memory / 2).max(USUAL_LIMIT_MIN)
}

/// The size of all files if no limit is given; 0: no limit, because there is no flash.
pub fn files_bytes(memory: u64, ram: u64, is_kept: bool) -> u64 {
    match memory.saturating_sub(ram) {
        0 => 0,
        _ if is_kept => log_bytes(memory, ram, true, 0).saturating_add(kept_bytes(memory, ram)),
        flash => flash,
    }
}

/// What a dataset that survives restarts takes besides its values: two checkpoints, which may contain everything that is in
/// RAM, their indexes, and the least of a journal. Checkpoints are smaller than RAM, and the journal gets what they leave.
fn kept_bytes(memory: u64, ram: u64) -> u64 {
    let journal = (memory / 50).max(JOURNAL_BYTES_MIN).min(memory / 8);
    (2 * ram).saturating_add(journal).max(2 * KEPT_BYTES_MIN)
}

/// A text that explains the sum of [`files_bytes`]. `flash_limit`: 0 if none is given.
pub fn files_sum(memory: u64, ram: u64, is_kept: bool, flash_limit: u64) -> String {
    let human = size::human;
    let log = log_bytes(memory, ram, is_kept, flash_limit);
    match (is_kept, flash_limit) {
        (false, _) => format!("memory-limit {} − ram-limit {} = {}", human(memory), human(ram), human(log)),
        (true, 0) => format!(
            "{} for values (memory-limit {}, ram-limit {}) + {} for two checkpoints and the journal = {}; without appendonly {}",
            human(log),
            human(memory),
            human(ram),
            human(kept_bytes(memory, ram)),
            human(files_bytes(memory, ram, true)),
            human(files_bytes(memory, ram, false))
        ),
        (true, limit) => format!(
            "flash-limit {} = {} for values + {} for two checkpoints and the journal",
            human(limit),
            human(log),
            human(limit.saturating_sub(log))
        ),
    }
}

/// Room for a ring, a nearly empty checkpoint, and some files of the journal.
pub const KEPT_BYTES_MIN: u64 = 256 << 20;
/// Three files of the journal.
const JOURNAL_BYTES_MIN: u64 = 192 << 20;
const USUAL_LIMIT_MIN: u64 = 1 << 30;

pub fn cost(bytes: u64, price: f64) -> f64 {
    bytes as f64 / (1u64 << 30) as f64 * price
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload() -> WorkloadSpec {
        WorkloadSpec {
            keys: 75_000_000,
            key_bytes: 16,
            value_bytes: 500,
            compression: 1.0,
            pattern: Pattern::Skew(0.0),
            reads_per_second: 0.0,
            writes_per_second: 0.0,
            workers: 2,
            has_journal: true,
            has_console: true,
        }
    }

    #[test]
    fn the_files_of_a_database_are_a_sum_that_people_can_check() {
        const GB: u64 = 1 << 30;
        let of = |is_kept, limit| files_sum(100 * GB, 30 * GB, is_kept, limit);
        assert_eq!(of(false, 0), "memory-limit 100 GB − ram-limit 30 GB = 70 GB");
        assert_eq!(
            of(true, 0),
            "88 GB for values (memory-limit 100 GB, ram-limit 30 GB) + 62 GB for two checkpoints and the journal = 150 GB; without \
             appendonly 70 GB"
        );
        assert_eq!(
            of(true, 170 * GB),
            "flash-limit 170 GB = 108 GB for values + 62 GB for two checkpoints and the journal"
        );
        assert_eq!(files_bytes(100 * GB, 30 * GB, true), 150 * GB);
    }

    #[test]
    fn the_files_of_a_dataset_that_survives_take_three_halves_of_its_limit() {
        const GB: u64 = 1 << 30;
        let sizes = |memory, ram| (log_bytes(memory, ram, true, 0), files_bytes(memory, ram, true));
        assert_eq!(sizes(100 * GB, 20 * GB), (108 * GB, 150 * GB));
        // The log does not become smaller than the values need.
        assert_eq!(sizes(100 * GB, 60 * GB), (40 * GB, 162 * GB));
        // Nor larger than is useful.
        assert_eq!(sizes(100 * GB, 5 * GB), (115 * GB, 127 * GB));
        // A small database has room for copies of all that is in RAM.
        assert_eq!(sizes(GB / 4, GB / 16), (log_bytes_max(GB / 4, GB / 16), log_bytes_max(GB / 4, GB / 16) + GB / 2));
        assert_eq!(sizes(GB / 2, GB / 8), (GB / 2, GB), "1 GB");
        // A limit that is given is obeyed in both directions.
        assert_eq!(log_bytes(100 * GB, 30 * GB, true, 200 * GB), 138 * GB);
        assert_eq!(log_bytes(100 * GB, 30 * GB, true, 300 * GB), log_bytes_max(100 * GB, 30 * GB));
        assert_eq!(log_bytes(100 * GB, 30 * GB, true, 110 * GB), 70 * GB);
        assert_eq!(log_bytes(100 * GB, 30 * GB, false, 200 * GB), 70 * GB);
        for (memory, ram) in [(0, 0), (u64::MAX, 0), (u64::MAX, u64::MAX / 4), (4 << 40, GB)] {
            let (log, files) = sizes(memory, ram);
            assert!(log >= memory - ram && (files >= log || memory == ram), "{memory} {ram}: {log} {files}");
        }
    }

    fn is_near(value: f64, expected: f64, tolerance: f64) -> bool {
        (value - expected).abs() <= tolerance
    }

    #[test]
    fn the_formulas_are_those_of_the_guide() {
        // 50 MB, 75 M × 25 B and 20.5 M × 544 B, and 75 M × 524 B × 1.02.
        let sizing = workload().for_ram_share(20.5 / 75.0);
        assert_eq!((sizing.own_bytes, sizing.index_bytes, sizing.hot_values), (50 << 20, 1_875_000_000, 20_500_000));
        assert!(is_near(
            sizing.ram_limit_bytes as f64,
            (50.0 * 1_048_576.0 + 1.875e9 + 20.5e6 * 544.0) * 1.02 + 16_777_216.0,
            100.0
        ));
        assert!(is_near(sizing.flash_bytes as f64, 75e6 * 524.0 * 1.02 / 0.8, 100.0), "{sizing:?}");
        assert_eq!(sizing.memory_limit_bytes, sizing.ram_limit_bytes + sizing.flash_bytes);
        // Half of the values are in RAM. A tenth of the uses are reads.
        let written = WorkloadSpec { writes_per_second: 9.0, reads_per_second: 1.0, ..workload() }.for_ram_share(0.5);
        assert_eq!(written.flash_values, (75e6 * (0.5 + 0.5 * 0.1 * 0.5 / 0.95_f64)).round() as u64);
        let halved = WorkloadSpec { compression: 0.5, ..workload() }.for_ram_share(0.2);
        assert_eq!(halved.flash_bytes, workload().for_ram_share(0.2).flash_bytes.div_ceil(2));
        let all = workload().for_ram_share(1.0);
        assert_eq!(
            WorkloadSpec { keys: 1000, ..workload() }.for_ram_share(0.5).directives(),
            [("memory-limit", "57mb".to_owned()), ("ram-limit", "56mb".to_owned())]
        );
        assert_eq!((all.flash_bytes, all.flash_values, all.hit_ratio), (0, 0, 1.0));
        assert!(is_near(all.cost(10.0, 1.0), all.ram_limit_bytes as f64 / (1 << 30) as f64 * 10.0, 1e-6));
    }

    #[test]
    fn hit_ratios_follow_the_skew() {
        let of = |skew: f64, share: f64| {
            100.0
                * WorkloadSpec { keys: 300_000, pattern: Pattern::Skew(skew), ..workload() }
                    .for_ram_share(share)
                    .hit_ratio
        };
        // The expected values are sums over single keys. docs/operations.md has the measurements of a node.
        for (skew, share, expected) in [
            (0.0, 0.2438, 24.38),
            (0.6, 0.2438, 44.10),
            (0.8, 0.2438, 63.98),
            (1.0, 0.2438, 84.83),
            (1.2, 0.2438, 96.31),
            (0.6, 0.517, 69.17),
            (1.0, 0.517, 92.84),
        ] {
            let found = of(skew, share);
            assert!(is_near(found, expected, 0.1), "{skew}, {share}: {found} instead of {expected}");
        }
    }

    #[test]
    fn a_hit_ratio_and_its_share_of_ram_agree() {
        for keys in [1, 2, 1000, 1_000_000_000_000] {
            for skew in [0.0, 0.9, 1.0, 1.3, 5.0] {
                let workload =
                    WorkloadSpec { keys, pattern: Pattern::Skew(skew), reads_per_second: 1000.0, ..workload() };
                let mut before = 0.0;
                for share in [0.01, 0.1, 0.5, 0.9, 1.0] {
                    let sizing = workload.for_ram_share(share);
                    assert!(sizing.hit_ratio >= before && sizing.hit_ratio <= 1.0, "{keys} {skew} {share}");
                    // If all keys are used equally often, the hit ratio is the share of values in RAM.
                    assert!(
                        skew > 0.0 || is_near(sizing.hit_ratio, share, 1e-6),
                        "{keys} {share}: {}",
                        sizing.hit_ratio
                    );
                    assert!(is_near(sizing.flash_reads_per_second, 1000.0 * (1.0 - sizing.hit_ratio), 1e-6));
                    before = sizing.hit_ratio;
                    if sizing.hit_ratio < 0.999 {
                        let again = workload.for_hit_ratio(sizing.hit_ratio);
                        assert!(is_near(again.ram_share, share, 1e-6), "{keys} {skew} {share}: {}", again.ram_share);
                    }
                }
            }
        }
    }

    #[test]
    fn more_flash_than_a_database_addresses_is_divided() {
        let large = WorkloadSpec { keys: 10_000_000_000, ..workload() }.for_ram_share(0.1);
        assert_eq!(large.databases, large.flash_bytes.div_ceil(2 << 40));
        assert!(large.databases > 2);
        assert_eq!(workload().for_ram_share(1.0).databases, 1);
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused() {
        assert_eq!(workload().check(), Ok(()));
        let cases = [
            ("keys", WorkloadSpec { keys: 0, ..workload() }),
            ("keys", WorkloadSpec { keys: u64::MAX, ..workload() }),
            ("key_bytes", WorkloadSpec { key_bytes: 0, ..workload() }),
            ("value_bytes", WorkloadSpec { value_bytes: (16 << 20) + 1, ..workload() }),
            ("compression", WorkloadSpec { compression: 0.0, ..workload() }),
            ("compression", WorkloadSpec { compression: f64::NAN, ..workload() }),
            ("skew", WorkloadSpec { pattern: Pattern::Skew(-0.1), ..workload() }),
            ("skew", WorkloadSpec { pattern: Pattern::Skew(f64::NAN), ..workload() }),
            ("reads_per_second", WorkloadSpec { reads_per_second: -1.0, ..workload() }),
            ("writes_per_second", WorkloadSpec { writes_per_second: f64::INFINITY, ..workload() }),
            ("workers", WorkloadSpec { workers: 0, ..workload() }),
        ];
        for (field, workload) in cases {
            assert_eq!(workload.check().map_err(|wrong| wrong.field), Err(field));
        }
    }
}
