//! Owns what all workers of a database share: its dataset, clients, users, figures. Never knows a socket or a task.

use crate::acl::{Role, Users};
use crate::clients::{Clients, Peer};
use crate::config::{Config, ConfigStore, Secret};
use crate::directory::Directory;
use crate::listen;
use crate::monitors::Monitors;
use crate::node::Node;
use crate::open::{Flash, Running, apply_to_store};
use crate::pubsub::PubSub;
use crate::resize;
use crate::script::Scripts;
use crate::stats::{LatencyEvents, Rates, SlowLog, Stats};
use crate::thread::{Post, Socket};
use crate::tls::Tls;
use crate::tracking::Tracking;
use parking_lot::Mutex;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;
use store::Store;
use store::counters::Counter;

/// The database that the configuration file describes.
pub const DEFAULT_NAME: &str = "default";

/// Where clients find a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// `tcp`, `tls` or `unix`.
    pub kind: &'static str,
    /// `HOST:PORT` or a path.
    pub address: String,
}

/// An endpoint with its own dataset, limits, users and counters.
pub struct Database {
    pub name: Box<str>,
    pub node: Weak<Node>,
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
    pub flash: Option<Flash>,
    /// maxclients, or less where the system allows fewer open files.
    pub clients_cap: AtomicUsize,
    pub rejected_connections: AtomicU64,
    /// Connections to other servers that are kept for the next MIGRATE.
    pub targets_kept: AtomicUsize,
    pub rates: Mutex<Rates<{ Rate::COUNT }>>,
    pub memory_peak_bytes: AtomicU64,
    pub memory_startup_bytes: AtomicU64,
    /// Bytes that are its own beside objects (index, clients), as of the last second: see [`Database::weigh`].
    pub beside_bytes: AtomicU64,
    /// Version of the configuration that the clock has seen.
    pub config_applied: AtomicU64,
    pub is_deleting: AtomicBool,
    /// Its connections are being ended.
    pub is_closing: AtomicBool,
    /// None once it is closed.
    pub running: Mutex<Option<Running>>,
    pub endpoints: Vec<Endpoint>,
}

/// What [`Database::rates`] follows.
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

impl Database {
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

impl Database {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn config(&self) -> &Arc<ConfigStore> {
        &self.config
    }

    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    pub fn is_default(&self) -> bool {
        &*self.name == DEFAULT_NAME
    }

    pub fn is_paused(&self) -> bool {
        self.clients.suspended.load(Relaxed)
    }

    /// A client of the node's own, with what `role` may do: RESP3, exempt from pause and maxclients.
    pub fn connect(&self, role: Role) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        theirs.set_nonblocking(true)?;
        listen::hand_over(self, Socket::Console(theirs, role), Peer::Unix("console".into()))?;
        Ok(ours)
    }

    /// CONFIG SET: what the configuration is for takes effect, or nothing does. The error is the whole reply.
    pub fn set_config<N: AsRef<[u8]>, V: AsRef<[u8]>>(&self, pairs: &[(N, V)], local: bool) -> Result<(), String> {
        let before = self.config.snapshot();
        let names: Vec<&[u8]> = pairs.iter().map(|(name, _)| name.as_ref()).collect();
        if !self.is_default()
            && let Some(name) = names.iter().find(|name| crate::config::is_of_node(name))
        {
            let name = String::from_utf8_lossy(name);
            return Err(format!("ERR CONFIG SET failed - '{name}' is the node's: set it on its default database"));
        }
        let values = self.config.get(&names);
        self.config.set_as(pairs, local, |before, now| self.resize(before, now))?;
        let now = self.config.snapshot();
        let back = |why: String| {
            // What was there before is valid, and nobody else has changed it into something that is not.
            let _ = self.config.set_as(&values, true, |before, now| self.resize(before, now));
            Err(why)
        };
        // Also when the names of the files stay: what is in them may be new.
        if names.iter().any(|name| name.get(..4).is_some_and(|head| head.eq_ignore_ascii_case(b"tls-")))
            && let Err(why) = self.tls.set(&now.tls)
        {
            tracing::warn!("the TLS settings stay as they were: {why}");
            return back(format!("ERR CONFIG SET failed - Unable to update TLS configuration: {why}"));
        }
        apply_to_store(&self.store, &before, &now);
        if names.iter().any(|name| name.eq_ignore_ascii_case(b"requirepass")) {
            self.users.require_password(now.requirepass.as_ref().map(Secret::expose));
        }
        Ok(())
    }

    /// The limits that the configuration is about to have: refused where there is no room, carried out where it is flash's.
    fn resize(&self, before: &Config, now: &Config) -> Result<(), String> {
        let limits = |config: &Config| (config.ram_limit_bytes, config.flash_limit_bytes);
        if limits(before) != limits(now)
            && let Some(node) = self.node.upgrade()
        {
            node.check_room(&self.name, limits(now))?;
        }
        resize::apply(&self.store, self.flash.as_ref().map(|flash| &*flash.files), before, now)
    }

    /// CONFIG REWRITE. The error is the whole reply.
    pub fn rewrite_config(&self) -> Result<(), String> {
        let config = self.config.snapshot();
        // Users who have a file of their own are not the configuration's.
        let users =
            config.aclfile.is_none().then(|| self.users.directives(config.requirepass.as_ref().map(Secret::expose)));
        self.config.rewrite(users)
    }

    // --- its share of the process's memory ---

    /// Measures what is its own beside objects. Once a second: it visits every stripe.
    pub fn weigh(&self) {
        let bytes = self.store.index_bytes() + self.clients.totals().memory_bytes as u64;
        self.beside_bytes.store(bytes, Relaxed);
    }

    /// Bytes that are certainly its own: objects, index, clients.
    pub fn own_bytes(&self) -> u64 {
        self.store.held_bytes() + self.beside_bytes.load(Relaxed)
    }

    /// Of the process's resident bytes, those that count as this database's.
    pub fn resident_of(&self, process: u64) -> u64 {
        self.node.upgrade().map_or(process, |node| node.share(self, process))
    }

    /// Of what the process has allocated beside objects, what counts as this database's.
    pub fn allocated_of(&self, process: u64) -> u64 {
        self.node.upgrade().map_or(process, |node| node.share_beside(self, process))
    }
}

impl Rate {
    pub const COUNT: usize = Rate::FlashWriteBytes as usize + 1;
}
