//! Owns the measurement of a node under load: its resident size, and the time of a small command. Never generates the
//! load.

use crate::Node;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

const SAMPLE: Duration = Duration::from_millis(5);
const PROBE: Duration = Duration::from_millis(1);

/// The largest resident size of a node, and the longest time of a PING, since the start or since the last `take`.
pub struct Watch<'a> {
    node: &'a Node,
    largest: AtomicU64,
    samples: AtomicU64,
    longest_us: AtomicU64,
    stop: AtomicBool,
}

impl<'a> Watch<'a> {
    /// Watches while `load` runs.
    pub fn during<T>(node: &'a Node, load: impl FnOnce(&Watch<'a>) -> T) -> T {
        let watch = Watch {
            node,
            largest: AtomicU64::new(0),
            samples: AtomicU64::new(0),
            longest_us: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        };
        thread::scope(|scope| {
            let _stop = StopAtEnd(&watch.stop);
            scope.spawn(|| watch.sample());
            scope.spawn(|| watch.probe());
            load(&watch)
        })
    }

    fn sample(&self) {
        while !self.stop.load(Relaxed) {
            self.largest.fetch_max(self.node.resident_bytes(), Relaxed);
            self.samples.fetch_add(1, Relaxed);
            thread::sleep(SAMPLE);
        }
    }

    fn probe(&self) {
        let mut client = self.node.connect();
        while !self.stop.load(Relaxed) {
            let begun = Instant::now();
            // While a script is busy, the reply says so.
            let reply = client.run("PING");
            assert!(reply == "PONG" || reply.starts_with("(error) BUSY"), "{reply}");
            self.longest_us.fetch_max(begun.elapsed().as_micros() as u64, Relaxed);
            thread::sleep(PROBE);
        }
    }

    /// The largest resident size so far in bytes, and the longest PING in milliseconds. Resets both.
    pub fn take(&self) -> (u64, f64) {
        (self.largest.swap(0, Relaxed), self.longest_us.swap(0, Relaxed) as f64 / 1000.0)
    }

    pub fn samples(&self) -> u64 {
        self.samples.load(Relaxed)
    }
}

/// Ends the threads, even if the load panics.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
