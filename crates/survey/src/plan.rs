//! Owns a plan: the RAM and flash that data need, computed from a sample and from given numbers. The same plan is shown by
//! the command line, the API and the console. `base::sizing` and `base::device` have the formulas. Never connects, never
//! reads a file.

use base::device::{Device, Expected, ReadPoint};
use base::pattern::{Pattern, fitted};
use base::sizing::{SHARES, Sizing, WorkloadSpec, Wrong, cost};
use serde::Serialize;
use utoipa::ToSchema;

use crate::watch::Cost;
use crate::{Error, Sample, SampledWorkload, Uses};

const KEY_BYTES: u64 = 16;
/// The skew that is assumed if nothing is known about the load.
const TYPICAL_SKEW: f64 = 0.8;
/// The range of skews of such a load: from equal use of all keys to most reads on few keys.
const SKEWS: [f64; 2] = [0.0, 1.1];
/// An upper bound for the price of a gigabyte, in any currency.
const PRICE_MAX: f64 = 1e9;

/// The given numbers. They have priority over sampled ones.
#[derive(Debug, Clone)]
pub struct Said {
    pub keys: Option<u64>,
    pub key_bytes: Option<u64>,
    pub value_bytes: Option<u64>,
    pub compression: Option<f64>,
    pub skew: Option<f64>,
    pub reads_per_second: Option<f64>,
    pub writes_per_second: Option<f64>,
    pub workers: u64,
    pub has_journal: bool,
    pub aim: Aim,
    /// The prices of a gigabyte of RAM, and of flash.
    pub prices: Option<(f64, f64)>,
    pub device: Option<Device>,
}

/// The goal from which the amount of RAM follows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Aim {
    /// This share of the reads is to be served from RAM.
    HitRatio(f64),
    /// This share of the values is to be in RAM.
    RamShare(f64),
}

/// The RAM and flash that some data need in FlintKV.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct PlanInfo {
    /// Where the sample comes from, as text to show.
    pub sources: Vec<String>,
    pub sample: Option<SampleInfo>,
    pub usage: Option<UsageInfo>,
    pub monitor: Option<MonitorInfo>,
    pub workload: WorkloadInfo,
    pub chosen: SizingInfo,
    /// The same for other shares of values in RAM, the smallest share first.
    pub choices: Vec<SizingInfo>,
    /// The RAM that the same data need without flash.
    pub all_in_ram_bytes: u64,
    /// The price of the RAM that the same data need without flash. null: no prices were given.
    pub all_in_ram_price: Option<f64>,
}

/// What a sample of the keys in a server or a dump has shown.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct SampleInfo {
    /// The version of the server that has the keys, or that has written the dump.
    pub version: String,
    /// The number of all keys, including those that were not sampled.
    pub keys: u64,
    /// The number of sampled keys.
    pub sampled: u64,
    /// The average size of a key's name.
    pub key_bytes: u64,
    /// The average size of a value in FlintKV's RAM.
    pub value_bytes: u64,
    pub largest_bytes: u64,
    /// The number of sampled keys whose values were too large to fetch. Their sizes come from the server's MEMORY USAGE.
    pub estimated: u64,
    /// The compressed size on flash divided by the original size: 1 if the data do not compress.
    pub compression: f64,
}

/// How keys were used while the server's commands were watched.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct UsageInfo {
    /// The number of different keys that were used.
    pub keys: u64,
    pub reads: u64,
    pub changes: u64,
}

/// What it has cost the server to be watched with MONITOR.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct MonitorInfo {
    pub seconds: f64,
    pub commands: u64,
    pub bytes: u64,
    /// The processor cores that the server used in the second before MONITOR. null: the server does not report it.
    pub cores_before: Option<f64>,
    /// The processor cores that the server used during MONITOR. null: the server does not report it.
    pub cores_meanwhile: Option<f64>,
    /// MONITOR was ended early, because the server had to buffer output that was not read in time.
    pub ended_early: bool,
}

/// The data to be stored, and how they are used.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct WorkloadInfo {
    pub keys: u64,
    pub key_bytes: u64,
    pub value_bytes: u64,
    pub compression: f64,
    /// How unevenly keys are used, as the exponent of Zipf's law; 0: all keys alike. If the use of keys was measured, the exponent
    /// that fits best.
    pub skew: f64,
    /// Nothing is known about how keys are used, so `skew` is a typical value, and the hit ratios are a range.
    pub is_skew_guessed: bool,
    /// Measured pairs: a number of values in RAM, and the share of the reads that these values answer. For more values than in the
    /// last pair, `skew` is used. null: the use of keys was not measured.
    pub hit_ratio_by_values: Option<Vec<(f64, f64)>>,
    pub reads_per_second: f64,
    pub writes_per_second: f64,
    pub workers: u64,
}

/// The RAM and flash that the data need if a certain share of the values is in RAM.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct SizingInfo {
    /// Share of the values in RAM, 0 to 1.
    pub ram_share: f64,
    /// Share of the reads that RAM answers, 0 to 1.
    pub hit_ratio: f64,
    /// The hit ratio if all keys are used alike. Same as `hit_ratio` unless the skew is guessed.
    pub hit_ratio_low: f64,
    /// The hit ratio if most reads go to few keys. Same as `hit_ratio` unless the skew is guessed.
    pub hit_ratio_high: f64,
    /// More values are in RAM than were used during the measurement, so the hit ratio is extrapolated.
    pub is_beyond_measured: bool,
    /// The RAM of the process itself, without data.
    pub own_bytes: u64,
    /// The RAM of the index of keys.
    pub index_bytes: u64,
    /// The number of values in RAM.
    pub hot_values: u64,
    /// The RAM that the values in RAM and their keys take.
    pub hot_bytes: u64,
    pub ram_limit_bytes: u64,
    /// The number of values that have a copy on flash: all that are not in RAM, and some that are.
    pub flash_values: u64,
    /// The flash that values take, without free room.
    pub flash_live_bytes: u64,
    /// The flash for values, including the free room that garbage collection needs.
    pub flash_bytes: u64,
    pub memory_limit_bytes: u64,
    /// The size of all files on flash. With a journal, it includes copies of the values in RAM, the journal and two checkpoints.
    pub files_bytes: u64,
    pub flash_reads_per_second: f64,
    /// How many databases the keys must be divided among, because the flash of one database has a maximum size.
    pub databases: u64,
    /// The price of the RAM and the flash. null: no prices were given.
    pub price: Option<f64>,
    /// The settings, as lines of flintkv.conf.
    pub directives: Vec<String>,
    /// What a flash device achieves under this load. null: no figures of a device were given.
    pub expected: Option<ExpectedInfo>,
}

/// What a flash device achieves under a load.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ExpectedInfo {
    /// The average time of a read from flash. null: the device cannot serve so many reads.
    pub flash_read_us: Option<f64>,
    /// The time within which 99 % of the reads from flash are done. null: the device cannot serve so many reads.
    pub flash_read_p99_us: Option<f64>,
    /// The time that flash adds to a client's read, as the average of all reads, including those that RAM answers.
    pub added_us: Option<f64>,
    /// The processor cores that the reads from flash take.
    pub cores: f64,
    /// The rate of clients' reads at which the device is saturated. null: no read goes to flash.
    pub reads_per_second_max: Option<f64>,
    /// How much of the device's write speed is used in the worst case: 1 is all of it.
    pub flash_written_share: f64,
}

/// An error names the field of the wrong number.
pub fn plan(sampled: &SampledWorkload, said: &Said) -> Result<PlanInfo, Wrong> {
    let wrong = |field, why: &str| Err(Wrong { field, why: why.to_owned() });
    let sample = sampled.sample.as_ref();
    let curve = sampled.uses.as_ref().map(|uses| &uses.curve).filter(|curve| !curve.is_empty());
    let is_skew_guessed = said.skew.is_none() && curve.is_none();
    let pattern = match (said.skew, curve) {
        (None, Some(curve)) => Pattern::Measured(curve.clone()),
        (skew, _) => Pattern::Skew(skew.unwrap_or(TYPICAL_SKEW)),
    };
    let Some(keys) = said.keys.or(sample.map(|sample| sample.keys)) else { return wrong("keys", "is missing") };
    let Some(value_bytes) = said.value_bytes.or(sample.map(Sample::value_bytes)) else {
        return wrong("value_bytes", "is missing");
    };
    let rate = |said: Option<f64>, of: fn(&crate::Traffic) -> f64| said.or(sampled.traffic.as_ref().map(of));
    let workload = WorkloadSpec {
        keys,
        key_bytes: said.key_bytes.or(sample.map(Sample::name_bytes)).unwrap_or(KEY_BYTES),
        value_bytes,
        compression: said.compression.or(sample.map(Sample::compression)).unwrap_or(1.0),
        pattern,
        reads_per_second: rate(said.reads_per_second, |traffic| traffic.reads_per_second).unwrap_or(0.0),
        writes_per_second: rate(said.writes_per_second, |traffic| traffic.writes_per_second).unwrap_or(0.0),
        workers: said.workers,
        has_journal: said.has_journal,
        has_console: true,
    };
    workload.check()?;
    if let Some((ram, flash)) = said.prices {
        for (field, price) in [("ram_price", ram), ("flash_price", flash)] {
            if !(0.0..=PRICE_MAX).contains(&price) {
                return wrong(field, "must be from 0 to 10^9");
            }
        }
    }
    let (Aim::HitRatio(share) | Aim::RamShare(share)) = said.aim;
    if !(0.0..=1.0).contains(&share) {
        let field = if matches!(said.aim, Aim::HitRatio(_)) { "hit_ratio" } else { "ram_share" };
        return wrong(field, "must be from 0 to 1");
    }
    let chosen = match said.aim {
        Aim::HitRatio(share) => workload.for_hit_ratio(share),
        Aim::RamShare(share) => workload.for_ram_share(share),
    };
    let planned = Planned { workload: &workload, is_skew_guessed, said };
    Ok(PlanInfo {
        sources: sampled.sources.clone(),
        sample: sample.map(SampleInfo::of),
        usage: sampled.uses.as_ref().map(UsageInfo::of),
        monitor: sampled.cost.as_ref().map(MonitorInfo::of),
        workload: planned.workload_info(),
        chosen: planned.sizing_info(&chosen),
        choices: SHARES.map(|share| planned.sizing_info(&workload.for_ram_share(share))).into(),
        all_in_ram_bytes: workload.all_in_ram_bytes(),
        all_in_ram_price: said.prices.map(|(ram, _)| cost(workload.all_in_ram_bytes(), ram)),
    })
}

struct Planned<'a> {
    workload: &'a WorkloadSpec,
    is_skew_guessed: bool,
    said: &'a Said,
}

impl Planned<'_> {
    fn workload_info(&self) -> WorkloadInfo {
        let workload = self.workload;
        let (skew, by_values) = match &workload.pattern {
            Pattern::Skew(skew) => (*skew, None),
            Pattern::Measured(curve) => {
                let points = curve.points().iter().map(|point| (point.values, point.hit_ratio)).collect();
                (fitted(curve, workload.keys), Some(points))
            }
        };
        WorkloadInfo {
            keys: workload.keys,
            key_bytes: workload.key_bytes,
            value_bytes: workload.value_bytes,
            compression: workload.compression,
            skew,
            is_skew_guessed: self.is_skew_guessed,
            hit_ratio_by_values: by_values,
            reads_per_second: workload.reads_per_second,
            writes_per_second: workload.writes_per_second,
            workers: workload.workers,
        }
    }

    fn sizing_info(&self, sizing: &Sizing) -> SizingInfo {
        let with = |skew| {
            let workload = WorkloadSpec { pattern: Pattern::Skew(skew), ..self.workload.clone() };
            workload.for_ram_share(sizing.ram_share).hit_ratio
        };
        let [hit_ratio_low, hit_ratio_high] =
            if self.is_skew_guessed { SKEWS.map(with) } else { [sizing.hit_ratio; 2] };
        let is_beyond_measured = match &self.workload.pattern {
            Pattern::Measured(curve) => sizing.ram_share < 1.0 && sizing.hot_values as f64 > curve.end().values,
            Pattern::Skew(_) => false,
        };
        let pair_bytes = self.workload.key_bytes + self.workload.value_bytes;
        let written_bytes_per_second = self.workload.writes_per_second * pair_bytes as f64;
        let device = self.said.device.as_ref();
        SizingInfo {
            ram_share: sizing.ram_share,
            hit_ratio: sizing.hit_ratio,
            hit_ratio_low,
            hit_ratio_high,
            is_beyond_measured,
            own_bytes: sizing.own_bytes,
            index_bytes: sizing.index_bytes,
            hot_values: sizing.hot_values,
            hot_bytes: sizing.hot_bytes,
            ram_limit_bytes: sizing.ram_limit_bytes,
            flash_values: sizing.flash_values,
            flash_live_bytes: sizing.flash_live_bytes,
            flash_bytes: sizing.flash_bytes,
            memory_limit_bytes: sizing.memory_limit_bytes,
            files_bytes: sizing.files_bytes,
            flash_reads_per_second: sizing.flash_reads_per_second,
            databases: sizing.databases,
            price: self.said.prices.map(|(ram, flash)| sizing.cost(ram, flash)),
            directives: sizing.directives().map(|(name, value)| format!("{name} {value}")).into(),
            expected: device.map(|device| ExpectedInfo::of(&device.expected(sizing, written_bytes_per_second))),
        }
    }
}

impl SampleInfo {
    pub fn of(sample: &Sample) -> SampleInfo {
        SampleInfo {
            version: sample.version.clone(),
            keys: sample.keys,
            sampled: sample.sampled,
            key_bytes: sample.name_bytes(),
            value_bytes: sample.value_bytes(),
            largest_bytes: sample.largest_bytes,
            estimated: sample.estimated,
            compression: sample.compression(),
        }
    }
}

impl UsageInfo {
    pub fn of(uses: &Uses) -> UsageInfo {
        UsageInfo { keys: uses.keys, reads: uses.reads, changes: uses.changes }
    }
}

impl MonitorInfo {
    pub fn of(cost: &Cost) -> MonitorInfo {
        MonitorInfo {
            seconds: cost.seconds,
            commands: cost.commands,
            bytes: cost.bytes,
            cores_before: cost.cores_before,
            cores_meanwhile: cost.cores_meanwhile,
            ended_early: cost.ended_early,
        }
    }
}

impl ExpectedInfo {
    fn of(expected: &Expected) -> ExpectedInfo {
        ExpectedInfo {
            flash_read_us: expected.read.map(|read| read.latency_us),
            flash_read_p99_us: expected.read.map(|read| read.latency_p99_us),
            added_us: expected.added_us,
            cores: expected.cores,
            reads_per_second_max: expected.reads_per_second_max,
            flash_written_share: expected.written,
        }
    }
}

/// The devices in the output of `flintkv prepare-flash --json`.
pub fn printed_devices(text: &str) -> Result<Vec<Device>, Error> {
    let wrong = |why: String| {
        Error::new(why).hint("the output of flintkv prepare-flash --json DIR is expected, for a directory on the flash")
    };
    let printed: serde_json::Value = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
    let number = |of: &serde_json::Value, name: &str| of[name].as_f64().filter(|number| *number >= 0.0);
    let point = |point: &serde_json::Value| {
        Some(ReadPoint {
            reads_per_second: number(point, "reads_per_second")?,
            latency_us: number(point, "latency_us")?,
            latency_p99_us: number(point, "latency_p99_us")?,
            cpu_us_per_read: number(point, "cpu_us_per_read")?,
        })
    };
    let device = |directory: &serde_json::Value| {
        Some(Device {
            reads: directory["reads"].as_array()?.iter().map(point).collect::<Option<_>>()?,
            write_bytes_per_second: number(directory, "write_bytes_per_second")?,
        })
    };
    let directories = printed["directories"].as_array().filter(|directories| !directories.is_empty());
    let devices: Option<Vec<Device>> = directories.and_then(|all| all.iter().map(device).collect());
    devices.ok_or_else(|| wrong("it has no measured figures".to_owned()))
}
