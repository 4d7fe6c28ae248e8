//! Owns the subscriptions: channels, patterns, shard channels. A message is encoded once for each protocol and put
//! into every subscriber's outbox. A worker is woken once for all of its connections. Never knows a session, or who
//! may subscribe.

use crate::clients::{ClientInfo, Clients};
use crate::memory::FREE_BYTES;
use crate::outbox::{Message, Put};
use crate::worker_handle::WorkerHandle;
use base::clock::wall_ms;
use base::glob;
use commands::host::Space;
use config::OutputLimit;
use parking_lot::RwLock;
use resp::{Out, Proto};
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use store::Store;

/// By connection id, so that leaving a large channel is as fast as joining it.
type Subscribers = BTreeMap<u64, Arc<ClientInfo>>;

/// A connection ended by CLIENT KILL no longer counts as a subscriber, although its worker may not have closed it
/// yet.
fn living(subscribers: &Subscribers) -> impl Iterator<Item = &Arc<ClientInfo>> {
    subscribers.values().filter(|client_info| !client_info.killed.load(Relaxed))
}

/// The names of one kind that have subscribers.
#[derive(Debug, Default)]
struct Topics {
    by_name: RwLock<HashMap<Box<[u8]>, Subscribers>>,
    /// The number of names, so that publishers without subscribers take no lock.
    count: AtomicUsize,
}

impl Topics {
    fn add(&self, name: &[u8], client_info: Arc<ClientInfo>) {
        let mut by_name = self.by_name.write();
        match by_name.get_mut(name) {
            Some(subscribers) => _ = subscribers.insert(client_info.id, client_info),
            None => _ = by_name.insert(name.into(), BTreeMap::from([(client_info.id, client_info)])),
        }
        self.count.store(by_name.len(), Relaxed);
    }

    fn remove(&self, name: &[u8], id: u64) {
        let mut by_name = self.by_name.write();
        if let Some(subscribers) = by_name.get_mut(name) {
            subscribers.remove(&id);
            if subscribers.is_empty() {
                by_name.remove(name);
            }
        }
        self.count.store(by_name.len(), Relaxed);
    }

    fn is_empty(&self) -> bool {
        self.count.load(Relaxed) == 0
    }
}

#[derive(Debug, Default)]
pub struct PubSub {
    channels: Topics,
    patterns: Topics,
    shard: Topics,
}

impl PubSub {
    fn topics(&self, space: Space) -> &Topics {
        match space {
            Space::Channel => &self.channels,
            Space::Pattern => &self.patterns,
            Space::Shard => &self.shard,
        }
    }

    pub fn subscribe(&self, space: Space, name: &[u8], client_info: Arc<ClientInfo>) {
        self.topics(space).add(name, client_info);
    }

    pub fn unsubscribe(&self, space: Space, name: &[u8], id: u64) {
        self.topics(space).remove(name, id);
    }

    /// The number of names that have subscribers.
    pub fn count(&self, space: Space) -> usize {
        self.topics(space).count.load(Relaxed)
    }

    pub fn subscriber_count(&self, space: Space, name: &[u8]) -> usize {
        self.topics(space).by_name.read().get(name).map_or(0, |subscribers| living(subscribers).count())
    }

    pub fn subscribers(&self, space: Space, name: &[u8]) -> Vec<Arc<ClientInfo>> {
        let by_name = self.topics(space).by_name.read();
        by_name.get(name).map_or(Vec::new(), |subscribers| subscribers.values().cloned().collect())
    }

    pub fn names(&self, space: Space, pattern: Option<&[u8]>) -> Vec<Box<[u8]>> {
        let by_name = self.topics(space).by_name.read();
        let fits = |name: &[u8]| pattern.is_none_or(|pattern| glob::matches(pattern, name, false));
        by_name.keys().filter(|name| fits(name)).cloned().collect()
    }

    /// Whether any channel or pattern has subscribers.
    pub fn has_listeners(&self) -> bool {
        !self.channels.is_empty() || !self.patterns.is_empty()
    }

    /// Visits those who get a message on this channel: the channel's own subscribers, and those of each pattern that matches.
    fn each_topic(&self, space: Space, channel: &[u8], mut visit: impl FnMut(Topic<'_>, &Subscribers)) {
        let topics = self.topics(space);
        if !topics.is_empty()
            && let Some(subscribers) = topics.by_name.read().get(channel)
        {
            visit(Topic::Channel, subscribers);
        }
        if space == Space::Channel && !self.patterns.is_empty() {
            for (pattern, subscribers) in self.patterns.by_name.read().iter() {
                if glob::matches(pattern, channel, false) {
                    visit(Topic::Pattern(pattern), subscribers);
                }
            }
        }
    }

    /// How many subscribers a message that is published now would reach.
    pub fn receivers(&self, space: Space, channel: &[u8]) -> usize {
        let mut count = 0;
        self.each_topic(space, channel, |_, subscribers| count += living(subscribers).count());
        count
    }

    /// Puts a message into the outboxes of all subscribers. Returns their number.
    pub fn publish(&self, space: Space, channel: &[u8], message: &[u8], delivery: &mut Delivery<'_>) -> usize {
        let mut count = 0;
        self.each_topic(space, channel, |topic, subscribers| {
            let (kind, pattern) = match topic {
                Topic::Channel if space == Space::Shard => ("smessage", None),
                Topic::Channel => ("message", None),
                Topic::Pattern(pattern) => ("pmessage", Some(pattern)),
            };
            let parts: SmallVec<[&[u8]; 4]> =
                [Some(kind.as_bytes()), pattern, Some(channel), Some(message)].into_iter().flatten().collect();
            let mut encoded = Encoded::new(&parts);
            for client_info in living(subscribers) {
                delivery.put(client_info, encoded.of(client_info));
                count += 1;
            }
        });
        count
    }
}

/// Why a message reaches its subscribers.
enum Topic<'a> {
    /// They have subscribed to its channel.
    Channel,
    /// They have subscribed to this pattern.
    Pattern(&'a [u8]),
}

/// A message, encoded for each protocol when the first connection needs it.
pub struct Encoded<'a> {
    parts: &'a [&'a [u8]],
    resp2: Option<Message>,
    resp3: Option<Message>,
}

impl<'a> Encoded<'a> {
    pub fn new(parts: &'a [&'a [u8]]) -> Encoded<'a> {
        Encoded { parts, resp2: None, resp3: None }
    }

    fn of(&mut self, client_info: &ClientInfo) -> &Message {
        let (place, proto) = match client_info.resp3.load(Relaxed) {
            true => (&mut self.resp3, Proto::Resp3),
            false => (&mut self.resp2, Proto::Resp2),
        };
        place.get_or_insert_with(|| {
            let mut bytes = Vec::with_capacity(self.parts.iter().map(|part| part.len() + 16).sum::<usize>() + 8);
            let mut out = Out::new(&mut bytes, proto);
            out.push(self.parts.len());
            self.parts.iter().for_each(|part| out.bulk(part));
            bytes.into()
        })
    }
}

/// Collects the workers to wake, so that each is woken once.
pub struct Delivery<'n> {
    worker_handles: &'n [WorkerHandle],
    clients: &'n Clients,
    store: &'n Arc<Store>,
    limit: OutputLimit,
    lists: Vec<Vec<Arc<ClientInfo>>>,
    exceeded: Vec<Arc<ClientInfo>>,
}

impl<'n> Delivery<'n> {
    pub fn new(
        worker_handles: &'n [WorkerHandle],
        clients: &'n Clients,
        store: &'n Arc<Store>,
        limit: OutputLimit,
    ) -> Delivery<'n> {
        Delivery { worker_handles, clients, store, limit, lists: Vec::new(), exceeded: Vec::new() }
    }

    pub fn put(&mut self, client_info: &Arc<ClientInfo>, message: &Message) {
        if message.charge(self.store) && self.store.lent_bytes() > self.store.lent_bytes_max() {
            // Who publishes cannot wait for those who read slowly. So these end.
            self.limit.hard_bytes = match self.limit.hard_bytes {
                0 => FREE_BYTES as u64,
                bytes => bytes.min(FREE_BYTES as u64),
            };
        }
        match client_info.outbox.put(message, self.limit, self.store, wall_ms) {
            Put::Done => {}
            Put::List => {
                if self.lists.is_empty() {
                    self.lists.resize_with(self.worker_handles.len(), Vec::new);
                }
                self.lists[client_info.worker].push(Arc::clone(client_info));
            }
            Put::Exceeded => self.exceeded.push(Arc::clone(client_info)),
        }
    }

    /// Ends the connections that exceeded their limit, and wakes the workers.
    pub fn finish(mut self) {
        for client_info in &self.exceeded {
            tracing::warn!(
                client = client_info.id,
                "closed: {} reads published messages too slowly for client-output-buffer-limit pubsub",
                client_info.peer.addr()
            );
            self.clients.end_too_slow(client_info);
        }
        for (worker_handle, list) in self.worker_handles.iter().zip(&mut self.lists) {
            if !list.is_empty() {
                worker_handle.ready_clients.add(list);
            }
        }
    }
}
