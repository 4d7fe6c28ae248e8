//! Owns the model of a measured flash device: how long reads take at a given rate, and the highest possible rate. Pure
//! functions.

use crate::sizing::Sizing;

/// GETs of values on flash reach this share of the device's bare reads (docs/figures.md).
const REACHED: f64 = 0.6;
/// Bytes written to flash for each byte that leaves RAM, when every key is overwritten at random (docs/operations.md).
const WRITTEN_PER_BYTE: f64 = 2.9;

/// The device's reads at one queue depth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadPoint {
    pub reads_per_second: f64,
    pub latency_us: f64,
    pub latency_p99_us: f64,
    pub cpu_us_per_read: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// In ascending order of the queue depth.
    pub reads: Vec<ReadPoint>,
    pub write_bytes_per_second: f64,
}

/// What a sizing means on a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// The reads from flash at their expected rate. `None`: the device cannot serve that many.
    pub read: Option<ReadPoint>,
    /// The latency that flash adds to a client's read, on average over all reads, RAM hits included.
    pub added_us: Option<f64>,
    /// The number of cores that reads from flash take.
    pub cores: f64,
    /// The rate of client reads at which the device is saturated. `None`: there are no reads from flash.
    pub reads_per_second_max: Option<f64>,
    /// The used share of the device's write rate, in the worst case.
    pub written: f64,
}

impl Device {
    /// Several devices that share the reads evenly.
    pub fn together(devices: &[Device]) -> Option<Device> {
        let first = devices.first()?;
        let count = devices.len() as f64;
        let depths = devices.iter().map(|device| device.reads.len()).min()?;
        let at = |depth: usize, of: &dyn Fn(&ReadPoint) -> f64| {
            devices.iter().map(|device| of(&device.reads[depth])).sum::<f64>()
        };
        let reads = (0..depths).map(|depth| ReadPoint {
            reads_per_second: at(depth, &|point| point.reads_per_second),
            latency_us: at(depth, &|point| point.latency_us) / count,
            latency_p99_us: devices.iter().map(|device| device.reads[depth].latency_p99_us).fold(0.0, f64::max),
            cpu_us_per_read: at(depth, &|point| point.cpu_us_per_read) / count,
        });
        let written = devices.iter().map(|device| device.write_bytes_per_second).sum();
        (!first.reads.is_empty()).then(|| Device { reads: reads.collect(), write_bytes_per_second: written })
    }

    /// The most reads from flash per second that clients can get.
    pub fn reads_per_second_max(&self) -> f64 {
        self.reads.iter().map(|point| point.reads_per_second).fold(0.0, f64::max) * REACHED
    }

    /// The reads at this rate. `None`: the rate is too high.
    pub fn at(&self, reads_per_second: f64) -> Option<ReadPoint> {
        let wanted = reads_per_second / REACHED;
        let to = self.reads.iter().position(|point| point.reads_per_second >= wanted)?;
        let high = self.reads[to];
        // No rate has a lower latency than that of one read at a time.
        let Some(low) = to.checked_sub(1).map(|at| self.reads[at]) else { return Some(high) };
        let part = (wanted - low.reads_per_second) / (high.reads_per_second - low.reads_per_second);
        let between = |low: f64, high: f64| low + (high - low) * part.clamp(0.0, 1.0);
        Some(ReadPoint {
            reads_per_second,
            latency_us: between(low.latency_us, high.latency_us),
            latency_p99_us: between(low.latency_p99_us, high.latency_p99_us),
            cpu_us_per_read: between(low.cpu_us_per_read, high.cpu_us_per_read),
        })
    }

    /// `written_bytes_per_second`: the bytes that clients write.
    pub fn expected(&self, sizing: &Sizing, written_bytes_per_second: f64) -> Expected {
        let read = self.at(sizing.flash_reads_per_second);
        let missed = 1.0 - sizing.hit_ratio;
        let cpu = read.or(self.reads.last().copied()).map_or(0.0, |point| point.cpu_us_per_read);
        Expected {
            read,
            added_us: read.map(|point| point.latency_us * missed),
            cores: sizing.flash_reads_per_second * cpu / 1e6,
            reads_per_second_max: (missed > 0.0).then(|| self.reads_per_second_max() / missed),
            written: written_bytes_per_second * (1.0 - sizing.ram_share) * WRITTEN_PER_BYTE
                / self.write_bytes_per_second.max(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Pattern;
    use crate::sizing::WorkloadSpec;

    fn point(reads_per_second: f64, latency_us: f64) -> ReadPoint {
        ReadPoint { reads_per_second, latency_us, latency_p99_us: 2.0 * latency_us, cpu_us_per_read: 5.0 }
    }

    fn device() -> Device {
        Device {
            reads: vec![point(10_000.0, 100.0), point(30_000.0, 140.0), point(50_000.0, 1000.0)],
            write_bytes_per_second: 1e9,
        }
    }

    #[test]
    fn latency_grows_with_the_rate_until_there_is_no_more() {
        let latency = |rate: f64| device().at(rate).map(|point| point.latency_us.round());
        assert_eq!(latency(0.0), Some(100.0));
        assert_eq!(latency(6_000.0), Some(100.0));
        assert_eq!(latency(12_000.0), Some(120.0));
        assert_eq!(latency(30_000.0), Some(1000.0));
        assert_eq!((latency(30_001.0), device().reads_per_second_max()), (None, 30_000.0));
        let two = Device::together(&[device(), device()]).expect("two");
        assert_eq!((two.reads_per_second_max(), two.at(24_000.0).unwrap().latency_us.round()), (60_000.0, 120.0));
        assert_eq!(Device::together(&[]), None);
    }

    #[test]
    fn a_sizing_says_what_reads_from_flash_cost() {
        let workload = WorkloadSpec {
            keys: 1_000_000,
            key_bytes: 16,
            value_bytes: 1000,
            compression: 1.0,
            pattern: Pattern::Skew(0.0),
            reads_per_second: 20_000.0,
            writes_per_second: 1000.0,
            workers: 2,
            has_journal: true,
            has_console: true,
        };
        // Half of the reads go to flash.
        let expected = device().expected(&workload.for_ram_share(0.5), 1e6);
        assert_eq!(expected.added_us.map(f64::round), Some(57.0));
        assert_eq!(expected.reads_per_second_max.map(f64::round), Some(60_000.0));
        assert!((expected.cores - 0.05).abs() < 1e-9 && (expected.written - 0.00145).abs() < 1e-9, "{expected:?}");
        let all = device().expected(&workload.for_ram_share(1.0), 1e6);
        assert_eq!((all.reads_per_second_max, all.written, all.added_us), (None, 0.0, Some(0.0)));
        let hopeless = WorkloadSpec { reads_per_second: 1e6, ..workload };
        let expected = device().expected(&hopeless.for_ram_share(0.5), 0.0);
        assert_eq!((expected.read, expected.added_us), (None, None));
    }
}
