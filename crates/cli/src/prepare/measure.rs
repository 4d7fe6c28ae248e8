//! Owns the measurement of one directory with FlintKV's own drivers, in the sizes that FlintKV reads and writes. Never
//! knows what the figures are used for.
//!
//! The probe file is deleted as soon as it is open, so nothing stays behind, however the process ends.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::size::human;
use flash::probe::{random_reads, sequential_writes};
use flash::{FlashFiles, FlashIo, OpenError, ThreadPool, open_driver};
use hdrhistogram::Histogram;

const PROBE_FILE: &str = ".flintkv-probe";
/// The size of a worker's write: 64 pages, several writes at a time.
const WRITE_BYTES: usize = 256 << 10;
const WRITE_DEPTH: usize = 4;
pub const DEPTHS: [usize; 5] = [1, 4, 16, 64, 128];
/// The depth at which threads are compared with io_uring.
const COMPARED_DEPTH: usize = 64;
const LATENCY_NANOS_MAX: u64 = 60_000_000_000;
/// Less would measure only the device's caches.
pub const BYTES_MIN: u64 = 32 << 20;
/// Shares of the time: for writing, then for the read depths, then for the comparison.
const WRITE_SHARE: f64 = 0.25;
const READ_SHARE: f64 = (1.0 - WRITE_SHARE) / (DEPTHS.len() + 1) as f64;

#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub seconds: f64,
    pub bytes: u64,
}

/// Times in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReadPoint {
    pub depth: usize,
    pub reads_per_second: f64,
    pub latency_us: f64,
    pub latency_p50_us: f64,
    pub latency_p99_us: f64,
    pub cpu_us_per_read: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    pub o_direct: bool,
    pub preallocated: bool,
    pub punches_holes: bool,
    /// Why io_uring is not available. `None`: it is.
    pub uring_refused: Option<String>,
    /// The bytes that were written, and then read.
    pub bytes: u64,
    pub write_bytes_per_second: f64,
    /// The reads at each depth, with io_uring if available, otherwise with threads.
    pub reads: Vec<ReadPoint>,
    /// The measurement with threads, in addition to io_uring.
    pub threads: Option<ReadPoint>,
}

#[derive(Debug)]
pub enum MeasureError {
    Interrupted,
    TooSmall { free_bytes: u64 },
    Open(OpenError),
    Io(io::Error),
}

impl fmt::Display for MeasureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MeasureError::Interrupted => f.write_str("interrupted"),
            MeasureError::TooSmall { free_bytes } => write!(
                f,
                "{} are free; a measurement takes half of what is free, and at least {}",
                human(*free_bytes),
                human(BYTES_MIN)
            ),
            MeasureError::Open(error) => error.fmt(f),
            MeasureError::Io(error) => error.fmt(f),
        }
    }
}

/// Measures a directory. `report` gets the progress, 0 to 1, and what is being measured.
pub fn measure(
    dir: &Path,
    free_bytes: u64,
    plan: Plan,
    stop: &AtomicBool,
    report: &dyn Fn(f64, &str),
) -> Result<Measured, MeasureError> {
    let bytes = plan.bytes.min(free_bytes / 2) / WRITE_BYTES as u64 * WRITE_BYTES as u64;
    if bytes < BYTES_MIN {
        return Err(MeasureError::TooSmall { free_bytes });
    }
    let files = open(dir, bytes)?;
    let info = files.describe().next().expect("one path was opened").clone();
    let uring_refused = match open_driver(&files, FlashIo::Uring, &ThreadPool::new(flash::THREADS)) {
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    };
    let which = if uring_refused.is_none() { FlashIo::Uring } else { FlashIo::Threads };
    let begun = std::cell::Cell::new(0.0);
    let go_on = |share: f64, what: &str, elapsed: Duration| {
        let part = elapsed.as_secs_f64() / (plan.seconds * share);
        report((begun.get() + share * part.min(1.0)).min(1.0), what);
        part < 1.0 && !stop.load(Ordering::Relaxed)
    };

    let what = "sequential writes";
    let written =
        sequential_writes(&files, which, bytes, WRITE_BYTES, WRITE_DEPTH, |elapsed| go_on(WRITE_SHARE, what, elapsed))
            .map_err(MeasureError::Io)?;
    begun.set(WRITE_SHARE);
    let read = |which: FlashIo, depth| {
        let what = format!("random reads, {depth} at a time, {}", which.as_str());
        let mut latencies = Histogram::<u64>::new_with_bounds(1, LATENCY_NANOS_MAX, 3).expect("the bounds are fixed");
        let rate = random_reads(
            &files,
            which,
            written.bytes_written,
            depth,
            |elapsed| go_on(READ_SHARE, &what, elapsed),
            |nanos| latencies.saturating_record(nanos),
        )
        .map_err(MeasureError::Io)?;
        begun.set(begun.get() + READ_SHARE);
        Ok(ReadPoint {
            depth,
            reads_per_second: rate.reads_per_second,
            latency_us: rate.latency_micros_mean,
            latency_p50_us: latencies.value_at_quantile(0.5) as f64 / 1e3,
            latency_p99_us: latencies.value_at_quantile(0.99) as f64 / 1e3,
            cpu_us_per_read: rate.cpu_micros_per_read,
        })
    };
    let interrupted = || stop.load(Ordering::Relaxed);
    let mut reads = Vec::new();
    for depth in DEPTHS {
        if interrupted() {
            return Err(MeasureError::Interrupted);
        }
        reads.push(read(which, depth)?);
    }
    let threads = (which == FlashIo::Uring).then(|| read(FlashIo::Threads, COMPARED_DEPTH)).transpose()?;
    if interrupted() {
        return Err(MeasureError::Interrupted);
    }
    Ok(Measured {
        o_direct: info.o_direct,
        preallocated: info.preallocated,
        punches_holes: info.discard,
        uring_refused,
        bytes: written.bytes_written,
        write_bytes_per_second: written.bytes_per_second,
        reads,
        threads,
    })
}

/// Opens the probe file and deletes its name.
fn open(dir: &Path, bytes: u64) -> Result<Arc<FlashFiles>, MeasureError> {
    let opened = FlashFiles::open(&[PathBuf::from(dir)], PROBE_FILE, bytes);
    // A file in use belongs to another measurement, which is about to delete it.
    if !matches!(opened, Err(OpenError::InUse { .. }))
        && let Err(error) = fs::remove_file(dir.join(PROBE_FILE))
        && opened.is_ok()
    {
        return Err(MeasureError::Io(error));
    }
    opened.map(Arc::new).map_err(MeasureError::Open)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const PLAN: Plan = Plan { seconds: 0.3, bytes: BYTES_MIN };

    #[test]
    fn every_depth_is_measured_and_nothing_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let seen = RefCell::new(Vec::new());
        let report = |part: f64, what: &str| {
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "{what}: the probe file has a name");
            seen.borrow_mut().push(part);
        };
        let measured = measure(dir.path(), 1 << 30, PLAN, &AtomicBool::new(false), &report).expect("measured");
        assert_eq!(measured.reads.iter().map(|point| point.depth).collect::<Vec<_>>(), DEPTHS);
        assert!(measured.write_bytes_per_second > 0.0);
        for point in measured.reads.iter().chain(&measured.threads) {
            assert!(point.reads_per_second > 0.0 && point.latency_us > 0.0, "{point:?}");
            assert!(0.1 < point.latency_p50_us && point.latency_p50_us <= point.latency_p99_us, "{point:?}");
        }
        assert_eq!(measured.threads.is_some(), measured.uring_refused.is_none());
        assert!(seen.borrow().is_sorted(), "progress went back");
    }

    #[test]
    fn an_interrupted_measurement_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let stop = AtomicBool::new(false);
        let plan = Plan { seconds: 3600.0, ..PLAN };
        let report = |_: f64, what: &str| {
            if what.contains("reads") {
                stop.store(true, Ordering::Relaxed);
            }
        };
        let ended = measure(dir.path(), 1 << 30, plan, &stop, &report);
        assert!(matches!(ended, Err(MeasureError::Interrupted)), "{ended:?}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn too_little_free_space_is_refused_before_anything_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let ended = measure(dir.path(), BYTES_MIN, PLAN, &AtomicBool::new(false), &|_, _| ());
        assert!(matches!(ended, Err(MeasureError::TooSmall { .. })), "{ended:?}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
