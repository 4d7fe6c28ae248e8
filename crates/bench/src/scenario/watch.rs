//! Owns the observation of a running server: resident size ten times a second and INFO once a second, on a thread of
//! its own. Never changes anything, and never stops a run: a failed query is a missing sample.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use super::info::Snapshot;
use super::node::{Node, Process};
use super::wire::Client;

const LOOK_EVERY: Duration = Duration::from_millis(100);
const ASK_EVERY: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub struct Sample {
    pub at: SystemTime,
    pub snapshot: Snapshot,
}

/// Observes until it is dropped.
pub struct Watch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    resident_max: AtomicU64,
    /// The highest resident size ÷ RAM limit, in millionths.
    fill_max: AtomicU64,
    ram_limit: AtomicU64,
    /// The server reports the RAM of the database, which is used instead of the process's, because the process may have
    /// other databases.
    tells: AtomicBool,
    /// `used_ram_max` at the start of the observation: an earlier maximum does not count.
    max_before: AtomicU64,
    samples: Mutex<Vec<Sample>>,
}

impl Watch {
    pub fn start(node: &Node) -> Watch {
        let shared = Arc::new(Shared::default());
        shared.ram_limit.store(node.facts.ram_limit.unwrap_or(0), Relaxed);
        if let Some(Ok(info)) = Client::connect(&node.endpoint).ok().as_mut().map(Client::info) {
            shared.begin(&Snapshot::of(&info));
        }
        let (state, process, endpoint) = (Arc::clone(&shared), node.process, node.endpoint.clone());
        let body = move || {
            let mut client = Client::connect(&endpoint).ok();
            let mut asked = Instant::now() - ASK_EVERY;
            while !state.stop.load(Relaxed) {
                let process = process.filter(|_| !state.tells.load(Relaxed));
                if let Some(resident) = process.and_then(Process::resident) {
                    state.saw(resident);
                }
                if asked.elapsed() >= ASK_EVERY {
                    asked = Instant::now();
                    match client.as_mut().map(Client::info) {
                        Some(Ok(info)) => state.take(Snapshot::of(&info)),
                        // Reconnect: perhaps only this connection has failed.
                        _ => client = Client::connect(&endpoint).ok(),
                    }
                }
                std::thread::sleep(LOOK_EVERY);
            }
        };
        let thread = std::thread::Builder::new().name(String::from("watch")).spawn(body).ok();
        Watch { shared, thread }
    }

    pub fn resident_max(&self) -> u64 {
        self.shared.resident_max.load(Relaxed)
    }

    /// `None`: no limit.
    pub fn fill_max(&self) -> Option<f64> {
        let millionths = self.shared.fill_max.load(Relaxed);
        (millionths > 0).then_some(millionths as f64 / 1e6)
    }

    pub fn samples_since(&self, start: SystemTime) -> Vec<Sample> {
        let samples = self.shared.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.iter().filter(|sample| sample.at >= start).cloned().collect()
    }
}

impl Shared {
    fn saw(&self, resident: u64) {
        self.resident_max.fetch_max(resident, Relaxed);
        let limit = self.ram_limit.load(Relaxed);
        if let Some(millionths) = (u128::from(resident) * 1_000_000).checked_div(u128::from(limit)) {
            self.fill_max.fetch_max(millionths as u64, Relaxed);
        }
    }

    fn begin(&self, snapshot: &Snapshot) {
        if let Some(tiering) = &snapshot.tiering {
            self.tells.store(true, Relaxed);
            self.max_before.store(tiering.resident_max, Relaxed);
        }
    }

    fn take(&self, snapshot: Snapshot) {
        self.ram_limit.store(snapshot.ram_limit.unwrap_or(0), Relaxed);
        self.saw(snapshot.resident);
        if let Some(tiering) = &snapshot.tiering {
            // CONFIG RESETSTAT lowers the maximum. From then on a new maximum counts.
            let before = self.max_before.fetch_min(tiering.resident_max, Relaxed);
            if tiering.resident_max > before {
                self.saw(tiering.resident_max);
            }
        }
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.push(Sample { at: SystemTime::now(), snapshot });
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maximum_is_relative_to_the_limit_at_that_time() {
        let shared = Shared::default();
        shared.saw(900);
        assert_eq!(shared.fill_max.load(Relaxed), 0, "no limit, no share");
        shared.take(Snapshot { ram_limit: Some(1000), resident: 950, ..Snapshot::default() });
        shared.take(Snapshot { ram_limit: Some(2000), resident: 1500, ..Snapshot::default() });
        assert_eq!(shared.fill_max.load(Relaxed), 950_000);
        assert_eq!(shared.resident_max.load(Relaxed), 1500);
    }

    #[test]
    fn the_maximum_is_that_of_the_database_since_the_start() {
        let tiering = |resident_max| Some(super::super::info::Tiering { resident_max, ..Default::default() });
        let at =
            |resident, max| Snapshot { ram_limit: Some(1000), resident, tiering: tiering(max), ..Snapshot::default() };
        let shared = Shared::default();
        shared.begin(&at(100, 990));
        assert!(shared.tells.load(Relaxed), "the process is not asked: it may have other databases");
        shared.take(at(200, 990));
        assert_eq!(shared.resident_max.load(Relaxed), 200, "990 was before");
        shared.take(at(300, 995));
        assert_eq!(shared.resident_max.load(Relaxed), 995);
        // CONFIG RESETSTAT
        let shared = Shared::default();
        shared.begin(&at(100, 990));
        shared.take(at(100, 110));
        shared.take(at(100, 400));
        assert_eq!(shared.resident_max.load(Relaxed), 400);
    }
}
