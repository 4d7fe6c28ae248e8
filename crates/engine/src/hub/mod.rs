//! Owns what all workers of a database share: its clients, users, channels, statistics, and the access to its data
//! and its configuration. Never knows a node, a database's limits, or where the database listens: the hub asks
//! through [`Control`].
//!
//! `monitors` and `tracking` hold which connections see every command and which are told of changed keys. Both reach
//! their clients through the hub. `notify` receives the store's news of its keys.

mod monitors;
mod notify;
mod tracking;

pub use monitors::{Monitors, is_secret};
pub use tracking::Tracking;

use crate::acl::Users;
use crate::clients::{Clients, Peer};
use crate::control::Control;
use crate::dataset::Dataset;
use crate::directory::Directory;
use crate::held_messages::{HeldMessage, HeldMessages};
use crate::pubsub::{Delivery, PubSub};
use crate::routes::{OtherProxies, Routes, Settings};
use crate::scripts::Scripts;
use crate::stats::{LatencyEvents, SlowLog, Stats};
use crate::worker_handle::{Arrival, Message, Socket, WorkerHandle};
use base::clock::wall_ms;
use commands::host::{Space, Unblock};
use config::{ConfigStore, Secret};
use parking_lot::Mutex;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use store::{STRIPES, Store};

/// What the workers of one database share.
pub struct Hub {
    /// The database's name.
    pub name: Box<str>,
    pub config: Arc<ConfigStore>,
    pub dataset: Dataset,
    pub directory: Directory,
    pub clients: Clients,
    /// Held while pauses change, so that the store knows the last one.
    pausing: Mutex<()>,
    pub pubsub: PubSub,
    pub held_messages: HeldMessages,
    /// A copy has those of its proxy.
    pub users: Arc<Users>,
    pub tracking: Tracking,
    pub monitors: Monitors,
    pub scripts: Scripts,
    pub stats: Stats,
    pub slow_log: SlowLog,
    pub latency_events: LatencyEvents,
    /// One per worker.
    pub worker_handles: Vec<WorkerHandle>,
    /// When the database started, in seconds since 1970.
    pub started_s: u64,
    /// The number of connections to other servers that are kept for the next MIGRATE.
    pub targets_kept: AtomicUsize,
    /// The database's connections are being ended.
    pub is_closing: AtomicBool,
    /// If it is a proxy's: the owners of the keys, of which it has none itself.
    pub routes: OnceLock<Routes>,
    /// If it is a copy's: the revision of the settings that it has taken from its database's records; 0: none yet.
    pub settings_revision: AtomicI64,
    /// If it is a copy's: the proxy whose clients get the messages that scripts and transactions publish here.
    proxy: OnceLock<Weak<Hub>>,
    pub control: Weak<dyn Control>,
}

impl Hub {
    pub fn new(
        name: &str,
        config: Arc<ConfigStore>,
        store: Arc<Store>,
        directory: Directory,
        users: Arc<Users>,
        worker_handles: Vec<WorkerHandle>,
        control: Weak<dyn Control>,
    ) -> Arc<Hub> {
        let workers = worker_handles.len();
        Arc::new(Hub {
            name: name.into(),
            config,
            dataset: Dataset::new(store),
            stats: Stats::new(workers, directory.count),
            directory,
            clients: Clients::default(),
            pausing: Mutex::new(()),
            pubsub: PubSub::default(),
            held_messages: HeldMessages::default(),
            users,
            tracking: Tracking::default(),
            monitors: Monitors::default(),
            scripts: Scripts::new(workers),
            slow_log: SlowLog::default(),
            latency_events: LatencyEvents::default(),
            worker_handles,
            started_s: wall_ms() / 1000,
            targets_kept: AtomicUsize::new(0),
            is_closing: AtomicBool::new(false),
            routes: OnceLock::new(),
            settings_revision: AtomicI64::new(0),
            proxy: OnceLock::new(),
            control,
        })
    }

    /// Subscribes to the store's news of its keys and to changes of the configuration.
    pub fn connect(self: &Arc<Self>) {
        notify::connect(self);
        self.dataset.store.set_event_classes(self.config.snapshot().events.classes());
        let hub = Arc::downgrade(self);
        self.config.subscribe(move |draft| {
            let Some(hub) = hub.upgrade() else { return };
            if draft.before.events != draft.now.events {
                hub.dataset.store.set_event_classes(draft.now.events.classes());
            }
            // Also if the password is unchanged: an ACL rule may have changed the default user since.
            if draft.sets(|name| name == "requirepass") {
                hub.users.require_password(draft.now.requirepass.as_ref().map(Secret::expose));
            }
        });
    }

    /// Sends a message to all its subscribers, here, at the replicas and at other nodes' proxies. Returns the number of those here. A copy in a
    /// shard with replicas holds it until they have what was written before.
    pub fn publish(&self, space: Space, channel: &[u8], message: &[u8], now_ms: u64) -> usize {
        let journaling = &self.dataset.journaling;
        if !journaling.serving.is_on() {
            return self.publish_now(space, channel, message, now_ms);
        }
        let count = self.receivers(space, channel);
        let (channel, message) = (channel.into(), message.into());
        self.held_messages.put(HeldMessage { seen: journaling.seen(), space, channel, message });
        count
    }

    pub fn publish_now(&self, space: Space, channel: &[u8], message: &[u8], now_ms: u64) -> usize {
        if let Some(proxy) = self.proxy.get().and_then(Weak::upgrade) {
            return proxy.publish(space, channel, message, now_ms);
        }
        let count = self.publish_here(space, channel, message);
        if let Some(others) = self.other_proxies() {
            others.publish(space == Space::Shard, channel, message);
        }
        let name: &[u8] = if space == Space::Shard { b"SPUBLISH" } else { b"PUBLISH" };
        self.dataset.journaling.keep_for_replicas(&[name, channel, message], now_ms);
        count
    }

    /// Sends a message to its subscribers here, and returns their number.
    pub fn publish_here(&self, space: Space, channel: &[u8], message: &[u8]) -> usize {
        let mut delivery = self.delivery();
        let count = self.pubsub.publish(space, channel, message, &mut delivery);
        delivery.finish();
        count
    }

    fn other_proxies(&self) -> Option<&dyn OtherProxies> {
        self.routes.get()?.others.as_deref()
    }

    /// Who keeps the settings, if they are those of all shards and proxies of a database.
    pub fn kept_settings(&self) -> Option<&dyn Settings> {
        self.routes.get()?.settings.as_deref()
    }

    /// Whether a message goes to other nodes too.
    pub fn has_other_proxies(&self) -> bool {
        match self.proxy.get().and_then(Weak::upgrade) {
            Some(proxy) => proxy.has_other_proxies(),
            None => self.other_proxies().is_some(),
        }
    }

    /// Bytes of a channel and a message together that can be published.
    pub fn message_bytes_max(&self) -> usize {
        match self.proxy.get().and_then(Weak::upgrade) {
            Some(proxy) => proxy.message_bytes_max(),
            None => self.other_proxies().map_or(usize::MAX, OtherProxies::message_bytes_max),
        }
    }

    /// It is a copy behind this proxy, since it was opened.
    pub fn set_proxy(&self, proxy: &Arc<Hub>) {
        assert!(self.proxy.set(Arc::downgrade(proxy)).is_ok(), "a copy has one proxy");
    }

    /// Who would get a message now.
    pub fn receivers(&self, space: Space, channel: &[u8]) -> usize {
        match self.proxy.get().and_then(Weak::upgrade) {
            Some(proxy) => proxy.receivers(space, channel),
            None => self.pubsub.receivers(space, channel),
        }
    }

    fn delivery(&self) -> Delivery<'_> {
        Delivery::new(
            &self.worker_handles,
            &self.clients,
            &self.dataset.store,
            self.config.snapshot().output_limit_pubsub,
        )
    }

    /// Gives a connection to the worker with the fewest connections. Workers without a busy script come first.
    pub fn hand_over(&self, socket: Socket, peer: Peer) -> io::Result<()> {
        let load = |(index, worker_handle): &(usize, &WorkerHandle)| {
            (self.scripts.keeps(*index), worker_handle.connections.load(Relaxed))
        };
        let (worker, _) = self.worker_handles.iter().enumerate().min_by_key(load).expect("there is a worker");
        self.hand_to(worker, socket, peer)
    }

    /// Gives a connection to this worker.
    pub fn hand_to(&self, worker: usize, socket: Socket, peer: Peer) -> io::Result<()> {
        let worker_handle = &self.worker_handles[worker];
        worker_handle.connections.fetch_add(1, Relaxed);
        if worker_handle.sender.send(Message::Serve(Arrival { socket, peer })).is_err() {
            worker_handle.connections.fetch_sub(1, Relaxed);
            return Err(io::ErrorKind::NotConnected.into());
        }
        Ok(())
    }

    /// Changes who waits. As in Redis, nothing expires or is told to expire while writers wait.
    pub fn change_pauses(&self, change: impl FnOnce(&Clients)) {
        let _turn = self.pausing.lock();
        change(&self.clients);
        self.dataset.store.keep_expired_until(self.clients.writers_wait_until_ms());
    }

    /// Sets which stripes clients reach: see [`Store::set_owned`]. What waits for a key comes back unexecuted, whether it lost its stripe or
    /// not. When this returns, no client's command runs in a stripe that is not owned.
    pub fn set_owned(&self, owns: impl Fn(usize) -> bool) {
        let owns_nothing = !(0..STRIPES).any(&owns);
        self.clients.owns_nothing.store(owns_nothing, Relaxed);
        self.dataset.store.set_owned(owns);
        self.clients.unblock_all(Unblock::NotOwned);
    }

    /// `None`: the database has been closed, and its last workers are ending.
    pub fn control(&self) -> Option<Arc<dyn Control>> {
        self.control.upgrade()
    }
}
