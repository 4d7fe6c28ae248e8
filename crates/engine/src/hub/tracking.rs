//! Owns client-side caching: which connections have read which key, and which connections track which prefix. Each
//! connection is told once of a changed key, after the reply that showed the key's old value. Never knows a value,
//! nor which commands read.
//!
//! A read registers its key while the key's stripe is locked, and a change is announced while the stripe is locked.
//! So no change is missed in between. A connection that was told is removed, until it reads the key again.

use super::Hub;
use crate::clients::{ClientInfo, following};
use crate::outbox::Message;
use crate::pubsub::Delivery;
use commands::session::Tracking as Choice;
use parking_lot::{Mutex, RwLock};
use resp::{Out, Proto};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use store::Store;

/// Ids of the connections that have read a key.
type Readers = SmallVec<[u64; 2]>;
type Shard = Mutex<HashMap<Box<[u8]>, Readers>>;

const SHARDS: usize = 64;
/// The channel on which RESP2 clients get invalidations (with REDIRECT).
const CHANNEL: &[u8] = b"__redis__:invalidate";
/// The most keys in one message to a connection that tracks a prefix. More keys take several messages.
const PENDING_MAX: usize = 1000;
/// The most keys that one addition drops when the table exceeds its limit. As this is more than one, the table
/// shrinks faster than it grows.
const DROPPED_MAX: usize = 8;
/// The most keys that one slice of the background work drops.
const DROPPED_AT_ONCE_MAX: usize = 100;

#[derive(Debug)]
pub struct Tracking {
    hasher: RandomState,
    shards: Box<[Shard]>,
    keys: AtomicUsize,
    items: AtomicUsize,
    /// The number of connections with tracking on.
    clients: AtomicUsize,
    prefixes: RwLock<BTreeMap<Box<[u8]>, BTreeSet<u64>>>,
    prefix_count: AtomicUsize,
    /// Changed keys that the connections with prefixes must be told of, each with the client that changed it last.
    pending: Mutex<BTreeMap<Box<[u8]>, u64>>,
    has_pending: AtomicBool,
}

/// Figures for INFO.
pub struct Counts {
    pub keys: usize,
    /// The number of pairs of a key and a connection that has read it.
    pub items: usize,
    pub prefixes: usize,
    pub clients: usize,
}

impl Default for Tracking {
    fn default() -> Tracking {
        Tracking {
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            keys: AtomicUsize::new(0),
            items: AtomicUsize::new(0),
            clients: AtomicUsize::new(0),
            prefixes: RwLock::default(),
            prefix_count: AtomicUsize::new(0),
            pending: Mutex::default(),
            has_pending: AtomicBool::new(false),
        }
    }
}

impl Tracking {
    pub fn counts(&self) -> Counts {
        Counts {
            keys: self.keys.load(Relaxed),
            items: self.items.load(Relaxed),
            prefixes: self.prefix_count.load(Relaxed),
            clients: self.clients.load(Relaxed),
        }
    }

    /// Turns tracking on for a connection, or changes its mode.
    pub fn start(&self, store: &Store, client_info: &ClientInfo, choice: &Choice) {
        let mut bits = following::ON;
        for (on, bit) in [(choice.bcast, following::BCAST), (choice.noloop, following::NOLOOP)] {
            bits |= if on { bit } else { 0 };
        }
        client_info.redirect.store(choice.redirect, Relaxed);
        if client_info.following.swap(bits, Relaxed) & following::ON == 0 {
            self.clients.fetch_add(1, Relaxed);
        }
        if !choice.prefixes.is_empty() {
            let mut prefixes = self.prefixes.write();
            for prefix in &choice.prefixes {
                prefixes.entry(prefix.clone()).or_default().insert(client_info.id);
            }
            self.prefix_count.store(prefixes.len(), Relaxed);
        }
        store.set_change_events(true);
    }

    /// Turns tracking off. The keys that the connection has read stay in the table until they change.
    pub fn stop(&self, store: &Store, client_info: &ClientInfo) {
        let bits = client_info.following.swap(0, Relaxed);
        if bits & following::ON == 0 {
            return;
        }
        if bits & following::BCAST != 0 {
            let mut prefixes = self.prefixes.write();
            prefixes.retain(|_, followers| {
                followers.remove(&client_info.id);
                !followers.is_empty()
            });
            self.prefix_count.store(prefixes.len(), Relaxed);
        }
        if self.clients.fetch_sub(1, Relaxed) == 1 {
            store.set_change_events(false);
            if self.clients.load(Relaxed) > 0 {
                // Another connection has turned tracking on in the meantime.
                store.set_change_events(true);
            } else {
                self.forget_all();
            }
        }
    }

    fn shard(&self, key: &[u8]) -> &Shard {
        &self.shards[self.hasher.hash_one(key) as usize % SHARDS]
    }

    /// Registers that the connection has just read the key, whose stripe is still locked.
    pub fn remember(&self, hub: &Hub, key: &[u8], id: u64) {
        {
            let mut shard = self.shard(key).lock();
            match shard.get_mut(key) {
                Some(readers) if readers.contains(&id) => return,
                Some(readers) => readers.push(id),
                None => {
                    shard.insert(key.into(), Readers::from_slice(&[id]));
                    self.keys.fetch_add(1, Relaxed);
                }
            }
            self.items.fetch_add(1, Relaxed);
        }
        self.keep_limit(hub, key);
    }

    /// Removes keys while there are more than `tracking-table-max-keys`. Their readers are told that the keys have
    /// changed.
    fn keep_limit(&self, hub: &Hub, except: &[u8]) {
        // Start at the shard of the new key. Any other key may be removed.
        let first = self.hasher.hash_one(except) as usize;
        self.drop_some(hub, first, Some(except), DROPPED_MAX);
    }

    /// Removes some of the keys that are too many because the limit was lowered. Returns whether there are more.
    pub fn shrink(&self, hub: &Hub) -> bool {
        self.keys.load(Relaxed) > 0 && self.drop_some(hub, 0, None, DROPPED_AT_ONCE_MAX)
    }

    /// Removes at most `count` keys above the limit. Returns whether there are more.
    fn drop_some(&self, hub: &Hub, first: usize, except: Option<&[u8]>, count: usize) -> bool {
        let max = hub.config.snapshot().tracking_table_max_keys;
        let exceeds = || max != 0 && self.keys.load(Relaxed) > max;
        for dropped in 1..=count {
            if !exceeds() {
                return false;
            }
            let victim = (0..SHARDS).find_map(|at| {
                let shard = self.shards[(first + dropped + at) % SHARDS].lock();
                shard.keys().find(|key| except.is_none_or(|except| ***key != *except)).cloned()
            });
            let Some(victim) = victim else { return false };
            self.invalidate_readers(hub, &victim, 0);
        }
        exceeds()
    }

    /// `client` has changed a key. The key's stripe is locked.
    pub fn changed(&self, hub: &Hub, key: &[u8], client: u64) {
        if self.prefix_count.load(Relaxed) > 0 {
            self.pending.lock().insert(key.into(), client);
            self.has_pending.store(true, Relaxed);
        }
        if self.keys.load(Relaxed) > 0 {
            self.invalidate_readers(hub, key, client);
        }
    }

    fn invalidate_readers(&self, hub: &Hub, key: &[u8], client: u64) {
        let Some(readers) = self.shard(key).lock().remove(key) else { return };
        self.keys.fetch_sub(1, Relaxed);
        self.items.fetch_sub(readers.len(), Relaxed);
        let keys = [key];
        let mut news = News::new(Some(&keys));
        let mut delivery = hub.delivery();
        for id in readers {
            let Some(client_info) = hub.clients.client_info(id) else { continue };
            let bits = client_info.following.load(Relaxed);
            let by_itself = id == client && bits & following::NOLOOP != 0;
            if bits & following::ON != 0 && bits & following::BCAST == 0 && !by_itself {
                send_invalidation(hub, &client_info, &mut news, &mut delivery);
            }
        }
        delivery.finish();
    }

    /// Whether [`Tracking::invalidate_all`] has work. Checked after every batch.
    #[inline]
    pub fn has_pending(&self) -> bool {
        self.has_pending.load(Relaxed)
    }

    /// Tells the connections that track prefixes which keys have changed since the last call.
    #[cold]
    pub fn invalidate_all(&self, hub: &Hub) {
        // Hold the lock until the end, so that messages of two workers keep the order of the changes.
        let mut pending = self.pending.lock();
        self.has_pending.store(false, Relaxed);
        let changed = std::mem::take(&mut *pending);
        let mut delivery = hub.delivery();
        for (prefix, followers) in self.prefixes.read().iter() {
            let meant: Vec<(&[u8], u64)> = changed
                .range::<[u8], _>((std::ops::Bound::Included(&**prefix), std::ops::Bound::Unbounded))
                .take_while(|(key, _)| key.starts_with(prefix))
                .map(|(key, client)| (&**key, *client))
                .collect();
            for meant in meant.chunks(PENDING_MAX) {
                let keys: Vec<&[u8]> = meant.iter().map(|(key, _)| *key).collect();
                let mut news = News::new(Some(&keys));
                for &id in followers {
                    let Some(client_info) = hub.clients.client_info(id) else { continue };
                    if client_info.following.load(Relaxed) & following::NOLOOP == 0 {
                        send_invalidation(hub, &client_info, &mut news, &mut delivery);
                        continue;
                    }
                    let others: Vec<&[u8]> =
                        meant.iter().filter(|(_, client)| *client != id).map(|(key, _)| *key).collect();
                    if !others.is_empty() {
                        send_invalidation(hub, &client_info, &mut News::new(Some(&others)), &mut delivery);
                    }
                }
            }
        }
        delivery.finish();
    }

    /// All keys may be gone: every client must drop its whole cache.
    pub fn flushed(&self, hub: &Hub) {
        self.forget_all();
        let mut news = News::new(None);
        let mut delivery = hub.delivery();
        for client_info in
            hub.clients.cards_where(|client_info| client_info.following.load(Relaxed) & following::ON != 0)
        {
            send_invalidation(hub, &client_info, &mut news, &mut delivery);
        }
        delivery.finish();
    }

    fn forget_all(&self) {
        for shard in &self.shards {
            let forgotten = std::mem::take(&mut *shard.lock());
            self.keys.fetch_sub(forgotten.len(), Relaxed);
            self.items.fetch_sub(forgotten.values().map(SmallVec::len).sum(), Relaxed);
        }
    }
}

/// Tells a connection, or the connection to which it redirects.
fn send_invalidation(hub: &Hub, client_info: &Arc<ClientInfo>, news: &mut News<'_>, delivery: &mut Delivery<'_>) {
    let redirect = client_info.redirect.load(Relaxed);
    if redirect == 0 {
        if client_info.resp3.load(Relaxed) {
            delivery.put(client_info, news.push());
        }
        return;
    }
    match hub.clients.client_info(redirect) {
        Some(other) if other.resp3.load(Relaxed) => delivery.put(&other, news.push()),
        Some(other) if other.listens() => delivery.put(&other, news.message()),
        Some(_) => {}
        None => {
            client_info.following.fetch_or(following::BROKEN, Relaxed);
            if client_info.resp3.load(Relaxed) {
                let mut bytes = Vec::new();
                let mut out = Out::new(&mut bytes, Proto::Resp3);
                out.push(2);
                out.bulk(b"tracking-redir-broken");
                out.int(redirect as i64);
                delivery.put(client_info, &bytes.into());
            }
        }
    }
}

/// An invalidation, encoded for each protocol when the protocol is first needed.
struct News<'a> {
    /// `None`: all keys.
    keys: Option<&'a [&'a [u8]]>,
    push: Option<Message>,
    message: Option<Message>,
}

impl<'a> News<'a> {
    fn new(keys: Option<&'a [&'a [u8]]>) -> News<'a> {
        News { keys, push: None, message: None }
    }

    fn push(&mut self) -> &Message {
        let keys = self.keys;
        self.push.get_or_insert_with(|| encode(Proto::Resp3, &[b"invalidate"], keys))
    }

    fn message(&mut self) -> &Message {
        let keys = self.keys;
        self.message.get_or_insert_with(|| encode(Proto::Resp2, &[b"message", CHANNEL], keys))
    }
}

fn encode(proto: Proto, head: &[&[u8]], keys: Option<&[&[u8]]>) -> Message {
    let mut bytes = Vec::new();
    let mut out = Out::new(&mut bytes, proto);
    out.push(head.len() + 1);
    head.iter().for_each(|part| out.bulk(part));
    match keys {
        None => out.null(),
        Some(keys) => {
            out.array(keys.len());
            keys.iter().for_each(|key| out.bulk(key));
        }
    }
    bytes.into()
}
