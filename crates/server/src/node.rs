//! Owns what all workers of a node share. Never knows a socket or a task.

use crate::acl::Users;
use crate::clients::Clients;
use crate::config::ConfigStore;
use crate::directory::Directory;
use crate::monitors::Monitors;
use crate::pubsub::PubSub;
use crate::script::Scripts;
use crate::stats::{LatencyEvents, Rates, SlowLog, Stats};
use crate::thread::Post;
use crate::tls::Tls;
use crate::tracking::Tracking;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use store::Store;
use store::counters::Counter;
use tokio::sync::Notify;

pub struct Node {
    pub config: Arc<ConfigStore>,
    pub store: Arc<Store>,
    pub directory: Directory,
    pub clients: Clients,
    pub pubsub: PubSub,
    pub users: Users,
    pub tls: Tls,
    pub tracking: Tracking,
    pub monitors: Monitors,
    pub scripts: Scripts,
    pub stats: Stats,
    pub slow_log: SlowLog,
    pub latency_events: LatencyEvents,
    /// One per worker.
    pub posts: Vec<Post>,
    pub started: Instant,
    /// The second since 1970 of that moment.
    pub started_s: u64,
    /// Forty hexadecimal digits, new at every start.
    pub run_id: String,
    /// `io_uring` or `threads`; empty without flash.
    pub flash_driver: OnceLock<&'static str>,
    /// maxclients, or less where the system allows fewer open files.
    pub clients_cap: AtomicUsize,
    pub rejected_connections: AtomicU64,
    /// Connections to other servers that are kept for the next MIGRATE.
    pub targets_kept: AtomicUsize,
    pub rates: Mutex<Rates<{ Rate::COUNT }>>,
    pub memory_peak_bytes: AtomicU64,
    pub memory_startup_bytes: AtomicU64,
    /// SHUTDOWN was given: the starter's thread is woken.
    pub shutdown: Notify,
    pub stopping: AtomicBool,
}

/// What [`Node::rates`] follows.
#[derive(Debug, Clone, Copy)]
pub enum Rate {
    Commands,
    NetInBytes,
    NetOutBytes,
    Hits,
    FlashValueReads,
    FlashReads,
    FlashReadBytes,
    FlashWrites,
    FlashWriteBytes,
}

impl Node {
    /// Every 100 ms: what INFO shows per second.
    pub fn sample_rates(&self, now_ms: u64) {
        let counted = |counter| self.store.counters().sum(counter);
        let hits = counted(Counter::KeyspaceHits);
        let mut totals = [0; Rate::COUNT];
        for (rate, total) in [
            (Rate::Commands, self.stats.sum(|worker| &worker.commands)),
            (Rate::NetInBytes, self.stats.sum(|worker| &worker.net_in_bytes)),
            (Rate::NetOutBytes, self.stats.sum(|worker| &worker.net_out_bytes)),
            (Rate::Hits, hits),
            (Rate::FlashValueReads, counted(Counter::FlashValueReads)),
            (Rate::FlashReads, counted(Counter::FlashReads)),
            (Rate::FlashReadBytes, counted(Counter::FlashReadBytes)),
            (Rate::FlashWrites, counted(Counter::FlashWrites)),
            (Rate::FlashWriteBytes, counted(Counter::FlashWriteBytes)),
        ] {
            totals[rate as usize] = total;
        }
        self.rates.lock().sample(now_ms, totals);
    }
}

impl Rate {
    pub const COUNT: usize = Rate::FlashWriteBytes as usize + 1;
}
