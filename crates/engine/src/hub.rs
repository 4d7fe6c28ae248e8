//! Owns what all workers of a database share: its clients, users, channels, statistics, and the way to its data and its
//! configuration. Never knows a node, what a database may take, or where it listens: it asks through [`Control`].

use crate::acl::Users;
use crate::clients::Clients;
use crate::control::Control;
use crate::directory::Directory;
use crate::monitors::Monitors;
use crate::pubsub::PubSub;
use crate::script::Scripts;
use crate::stats::{LatencyEvents, SlowLog, Stats};
use crate::thread::Post;
use crate::tracking::Tracking;
use config::ConfigStore;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Weak};
use store::Store;

/// What the workers of one database have in common.
pub struct Hub {
    /// The database's.
    pub name: Box<str>,
    pub config: Arc<ConfigStore>,
    pub store: Arc<Store>,
    pub directory: Directory,
    pub clients: Clients,
    pub pubsub: PubSub,
    pub users: Users,
    pub tracking: Tracking,
    pub monitors: Monitors,
    pub scripts: Scripts,
    pub stats: Stats,
    pub slow_log: SlowLog,
    pub latency_events: LatencyEvents,
    /// One per worker.
    pub posts: Vec<Post>,
    /// The second since 1970 of the start.
    pub started_s: u64,
    /// Connections to other servers that are kept for the next MIGRATE.
    pub targets_kept: AtomicUsize,
    /// Its connections are being ended.
    pub is_closing: AtomicBool,
    pub control: Weak<dyn Control>,
}

impl Hub {
    /// None: the database has been closed, and its last workers are ending.
    pub fn control(&self) -> Option<Arc<dyn Control>> {
        self.control.upgrade()
    }
}
