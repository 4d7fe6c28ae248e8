//! Owns the progress line on standard error.

use std::cell::Cell;
use std::io::Write;
use std::ops::ControlFlow;
use std::time::Duration;

use super::interrupt;
use crate::engine::{Observer, Progress, WorkloadProgress};

/// Rewrites one line about once a second, and reports Ctrl-C to the run.
pub struct Line {
    run: u32,
    /// When the line was last written, and how wide it was.
    last: Cell<(Duration, usize)>,
}

impl Line {
    pub fn new(run: u32) -> Line {
        Line { run, last: Cell::new((Duration::ZERO, 0)) }
    }
}

impl Observer for Line {
    fn progress(&self, progress: &Progress<'_>) -> ControlFlow<()> {
        let (written, width) = self.last.get();
        let ended = progress.workloads.iter().all(|workload| workload.threads_running == 0);
        let due = progress.elapsed >= written + Duration::from_millis(950) || (written.is_zero() && width == 0);
        if (due || ended) && !progress.elapsed.is_zero() {
            let Some(workload) = progress.workloads.first() else {
                return ControlFlow::Continue(());
            };
            let line = text(self.run, progress.elapsed, workload);
            let mut stderr = std::io::stderr().lock();
            // Ignore the error: the run goes on if the terminal is closed.
            let _ = write!(stderr, "\r{line:<width$}");
            if ended {
                let _ = writeln!(stderr, "\n");
            }
            let _ = stderr.flush();
            self.last.set((progress.elapsed, line.chars().count()));
        }
        if interrupt::interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

fn text(run: u32, elapsed: Duration, at: &WorkloadProgress) -> String {
    format!(
        "[RUN #{run} {:.0}%, {:>3} secs] {:>2} threads {:>2} conns: {:>11} ops, {:>7.0} (avg: {:>7.0}) ops/sec, \
         {}/sec (avg: {}/sec), {:>5.2} (avg: {:>5.2}) msec latency",
        at.fraction * 100.0,
        elapsed.as_secs(),
        at.threads_running,
        at.clients,
        at.ops,
        at.ops_per_s,
        at.ops_per_s_avg,
        size(at.bytes_per_s),
        size(at.bytes_per_s_avg),
        at.latency_ms,
        at.latency_ms_avg,
    )
}

fn size(bytes: f64) -> String {
    let units = ["B", "KB", "MB", "GB", "TB"];
    let mut value = bytes;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.2}{}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_reads_like_memtiers() {
        let at = WorkloadProgress {
            threads_running: 4,
            clients: 50,
            ops: 1_234_567,
            fraction: 0.42,
            ops_per_s: 102_880.2,
            ops_per_s_avg: 99_000.0,
            bytes_per_s: 5.0 * 1024.0 * 1024.0,
            bytes_per_s_avg: 900.0,
            latency_ms: 1.944,
            latency_ms_avg: 2.0,
            ..WorkloadProgress::default()
        };
        assert_eq!(
            text(1, Duration::from_millis(12_900), &at),
            "[RUN #1 42%,  12 secs]  4 threads 50 conns:     1234567 ops,  102880 (avg:   99000) ops/sec, \
             5.00MB/sec (avg: 900.00B/sec),  1.94 (avg:  2.00) msec latency"
        );
    }
}
