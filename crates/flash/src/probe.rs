//! Owns the measurement of a device and a driver, for comparison with the database. Never knows the store: it writes
//! noise and reads it back.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::io::{Driver, Op, OpKind, PAGE_BYTES, PageBuf};
use base::FlashIo;
use base::random::SplitMix64;
use rustix::time::{ClockId, clock_gettime};

use crate::choice::open_driver;
use crate::files::FlashFiles;
use crate::superblock::DATA_OFFSET;
use crate::threads::{THREADS, ThreadPool};

#[derive(Debug, Clone, Copy)]
pub struct ReadRate {
    pub reads_per_second: f64,
    pub latency_micros_mean: f64,
    /// Processor time of this process, including the kernel's work for it. Other work of the process during the
    /// measurement counts too.
    pub cpu_micros_per_read: f64,
}

#[derive(Debug, Clone, Copy)]
pub struct WriteRate {
    pub bytes_per_second: f64,
    /// The bytes written to every path.
    pub bytes_written: u64,
    pub cpu_micros_per_mib: f64,
}

/// Fills the first `bytes` of every path in order, `write_bytes` at a time, with `depth` writes in flight. The data
/// does not compress, and every page differs.
pub fn sequential_write_rate(
    files: &Arc<FlashFiles>,
    which: FlashIo,
    bytes: u64,
    write_bytes: usize,
    depth: usize,
) -> io::Result<WriteRate> {
    sequential_writes(files, which, bytes, write_bytes, depth, |_| true)
}

/// Like [`sequential_write_rate`], but may end early: `go_on` gets the time since the start before every write.
pub fn sequential_writes(
    files: &Arc<FlashFiles>,
    which: FlashIo,
    bytes: u64,
    write_bytes: usize,
    depth: usize,
    mut go_on: impl FnMut(Duration) -> bool,
) -> io::Result<WriteRate> {
    let mut driver = open_driver(files, which, &ThreadPool::new(THREADS))?;
    let writes_per_path = bytes / write_bytes as u64;
    let total = writes_per_path * files.count() as u64;
    let mut noise = SplitMix64(1);
    let mut next = 0;
    let buffers = (0..depth).map(|_| {
        let mut buf = PageBuf::new(write_bytes / PAGE_BYTES);
        buf.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&noise.draw().to_le_bytes()));
        buf
    });
    let buffers: Vec<_> = buffers.collect();
    let meter = Meter::start();
    let write = |mut buf: PageBuf| {
        // End only when every path has received the same amount.
        if next == total || (next % files.count() as u64 == 0 && !go_on(meter.begun.elapsed())) {
            return None;
        }
        for page in buf.chunks_exact_mut(PAGE_BYTES) {
            page[..8].copy_from_slice(&noise.draw().to_le_bytes());
        }
        let path = (next % files.count() as u64) as u16;
        let offset = DATA_OFFSET + next / files.count() as u64 * write_bytes as u64;
        next += 1;
        Some(Op { token: next, path, offset, kind: OpKind::Write(buf) })
    };
    run(driver.as_mut(), buffers, write, |_| ())?;
    let (seconds, cpu_micros) = meter.stop();
    let written = (next * write_bytes as u64) as f64;
    Ok(WriteRate {
        bytes_per_second: written / seconds,
        bytes_written: next / files.count() as u64 * write_bytes as u64,
        cpu_micros_per_mib: cpu_micros / (written / f64::from(1 << 20)),
    })
}

/// Reads random pages of the first `bytes` of every path, with `depth` reads in flight. The region must have been
/// written (see [`sequential_write_rate`]), because a page that was never written is not on the device.
pub fn random_read_rate(
    files: &Arc<FlashFiles>,
    which: FlashIo,
    bytes: u64,
    depth: usize,
    duration: Duration,
) -> io::Result<ReadRate> {
    random_reads(files, which, bytes, depth, |elapsed| elapsed < duration, |_| ())
}

/// Ask `go_on` once for this many reads.
const READS_PER_LOOK: u64 = 64;

/// Like [`random_read_rate`], for as long as `go_on` says. `go_on` gets the time since the start now and then; `seen`
/// gets the latency of every read in nanoseconds.
pub fn random_reads(
    files: &Arc<FlashFiles>,
    which: FlashIo,
    bytes: u64,
    depth: usize,
    mut go_on: impl FnMut(Duration) -> bool,
    mut seen: impl FnMut(u64),
) -> io::Result<ReadRate> {
    let mut driver = open_driver(files, which, &ThreadPool::new(THREADS))?;
    let pages = bytes / PAGE_BYTES as u64;
    let mut noise = SplitMix64(2);
    let (mut started, mut nanos) = (0, 0);
    let buffers = (0..depth).map(|_| PageBuf::new(1)).collect();
    let meter = Meter::start();
    let mut ended = false;
    let read = |buf| {
        // Do not read the clock for every read: that would be measured too.
        ended = ended || (started % READS_PER_LOOK == 0 && !go_on(meter.begun.elapsed()));
        if ended {
            return None;
        }
        started += 1;
        let path = noise.index(files.count()) as u16;
        let offset = DATA_OFFSET + noise.below(pages) * PAGE_BYTES as u64;
        Some(Op { token: started, path, offset, kind: OpKind::Read(buf) })
    };
    run(driver.as_mut(), buffers, read, |latency| {
        nanos += latency;
        seen(latency);
    })?;
    let (seconds, cpu_micros) = meter.stop();
    let reads = started as f64;
    Ok(ReadRate {
        reads_per_second: reads / seconds,
        latency_micros_mean: nanos as f64 / 1e3 / reads,
        cpu_micros_per_read: cpu_micros / reads,
    })
}

/// Keeps every buffer in flight until `next` has no more operations. `seen` gets every latency in nanoseconds.
fn run(
    driver: &mut dyn Driver,
    buffers: Vec<PageBuf>,
    mut next: impl FnMut(PageBuf) -> Option<Op>,
    mut seen: impl FnMut(u64),
) -> io::Result<()> {
    let mut done = Vec::new();
    buffers.into_iter().filter_map(&mut next).for_each(|op| driver.push(op));
    driver.submit();
    while driver.in_flight() > 0 {
        driver.wait();
        driver.reap(&mut done);
        for completion in done.drain(..) {
            completion.result?;
            seen(completion.nanos);
            let buf = completion.buf.expect("reads and writes have a buffer");
            if let Some(op) = next(buf) {
                driver.push(op);
            }
        }
        driver.submit();
    }
    Ok(())
}

struct Meter {
    begun: Instant,
    cpu: Duration,
}

impl Meter {
    fn start() -> Meter {
        Meter { begun: Instant::now(), cpu: cpu_time() }
    }

    /// Wall-clock seconds, and microseconds of processor time.
    fn stop(self) -> (f64, f64) {
        let cpu = cpu_time() - self.cpu;
        (self.begun.elapsed().as_secs_f64(), cpu.as_secs_f64() * 1e6)
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
