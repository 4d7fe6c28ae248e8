//! Owns what other nodes' links reach here: a session is served by the copy that it asks for. Never knows commands.

use crate::endpoints::{self, Endpoints};
use crate::peers::{echo_of, link_options, refusal};
use crate::published::Published;
use crate::shard::{ClusterShard, Purpose, Target};
use base::clock::wall_nanos;
use base::size::human;
use cluster::failover::CopyAnswer;
use cluster::ids::{DatabaseId, NodeId, ShardNumber, ShardUid};
use link::{Link, Role};
use membership::peer::{DetachedHello, accept_link};
use node::{CopyRole, Database, Node, PolledSocket, SessionStream, ShardCopy, beside_scripts};
use parking_lot::RwLock;
use pki::Trust;
use std::collections::HashMap;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::timeout;

/// How long a replica is kept waiting that comes before the copy serves: the wait for leases is longer.
const SOON: Duration = Duration::from_millis(500);
/// Of what a copy says of itself: the answer about many copies is one message.
pub const STATE_CHARS_MAX: usize = 300;

/// What other nodes may reach here.
#[derive(Default)]
pub struct Served {
    /// The copies that serve now.
    copies: RwLock<HashMap<(DatabaseId, ShardNumber), Weak<Database>>>,
    /// Notified when one more serves.
    more: Notify,
    proxies: RwLock<HashMap<DatabaseId, Weak<Database>>>,
    /// What other nodes have told of their endpoints.
    pub endpoints: Endpoints,
    /// The copies of shards with replicas that are open here, in whatever role.
    replicated: RwLock<HashMap<ShardUid, Arc<ShardCopy>>>,
    /// The shards as this node's proxies see them.
    shards: RwLock<HashMap<DatabaseId, Vec<Arc<ClusterShard>>>>,
}

impl Served {
    pub fn insert(&self, id: DatabaseId, shard: ShardNumber, copy: &Arc<Database>) {
        self.copies.write().insert((id, shard), Arc::downgrade(copy));
        self.more.notify_waiters();
    }

    pub fn remove(&self, id: DatabaseId, shard: ShardNumber) {
        self.copies.write().remove(&(id, shard));
    }

    pub fn insert_replicated(&self, shard: ShardUid, copy: &Arc<ShardCopy>) {
        self.replicated.write().insert(shard, Arc::clone(copy));
    }

    pub fn remove_replicated(&self, shard: ShardUid) {
        self.replicated.write().remove(&shard);
    }

    pub fn replicated(&self, shard: ShardUid) -> Option<Arc<ShardCopy>> {
        self.replicated.read().get(&shard).cloned()
    }

    /// What the copy of a shard with replicas knows of itself. `None`: there is none here, or its dataset is still being loaded.
    pub fn ask_copy(&self, shard: ShardUid) -> Option<CopyAnswer> {
        let copy = self.replicated(shard)?;
        let (standing, status) = (copy.standing(), copy.status());
        let given;
        let state = match status.role {
            CopyRole::Rests => "rests",
            CopyRole::Follows { synchronises: Some((_, 0)), .. } => "is given the dataset",
            CopyRole::Follows { synchronises: Some((done, total)), .. } => {
                given = format!("is given the dataset, {} of {}", human(done), human(total));
                &given
            }
            CopyRole::Follows { is_connected: true, .. } => "follows",
            CopyRole::Follows { .. } => "does not reach its primary",
            CopyRole::Promotes(_) => "is being promoted",
            CopyRole::Serves { .. } if copy.wanted_handover().is_some() => "hands over to another copy",
            CopyRole::Serves { is_open: true, .. } => "serves",
            CopyRole::Serves { is_open: false, .. } => "has no serving lease",
        };
        Some(CopyAnswer {
            shard,
            report: copy.report(),
            serving: standing.served.filter(|_| standing.serves),
            state: status.trouble.as_deref().unwrap_or(state).chars().take(STATE_CHARS_MAX).collect(),
        })
    }

    pub fn insert_proxy(&self, id: DatabaseId, proxy: &Arc<Database>) {
        self.proxies.write().insert(id, Arc::downgrade(proxy));
    }

    pub fn remove_proxy(&self, id: DatabaseId) {
        self.proxies.write().remove(&id);
    }

    pub fn insert_shards(&self, id: DatabaseId, shards: &[Arc<ClusterShard>]) {
        self.shards.write().insert(id, shards.to_vec());
    }

    pub fn remove_shards(&self, id: DatabaseId) {
        self.shards.write().remove(&id);
    }

    /// The shards of a database, by their numbers.
    pub fn shards(&self, id: DatabaseId) -> Vec<Arc<ClusterShard>> {
        self.shards.read().get(&id).cloned().unwrap_or_default()
    }

    fn find(&self, target: Target) -> Option<Arc<Database>> {
        self.copies.read().get(&(target.database, target.shard))?.upgrade()
    }

    /// A copy that is about to serve. A replica comes early after a handover, and its connection is on the way to the first lease.
    async fn find_soon(&self, target: Target) -> Option<Arc<Database>> {
        let found = async {
            loop {
                let mut more = pin!(self.more.notified());
                more.as_mut().enable();
                if let Some(copy) = self.find(target) {
                    return copy;
                }
                more.await;
            }
        };
        timeout(SOON, found).await.ok()
    }

    fn publish(&self, published: &Published<'_>) {
        if let Some(proxy) = self.proxies.read().get(&published.database).and_then(Weak::upgrade) {
            proxy.publish_here(published.is_sharded, published.channel, published.message);
        }
    }
}

/// Hands links to workers in turns.
pub struct Links {
    pub node: Weak<Node>,
    pub served: Arc<Served>,
    pub trust: Arc<Trust>,
    pub next: AtomicUsize,
}

impl Links {
    pub fn attend(&self, hello: DetachedHello) {
        let Some(node) = self.node.upgrade() else { return };
        let worker = self.next.fetch_add(1, Relaxed) % node.workers();
        let (served, trust) = (Arc::clone(&self.served), Arc::clone(&self.trust));
        node.run_on_worker(worker, Box::new(move || Box::pin(beside_scripts(serve(hello, served, trust)))));
    }
}

async fn serve(hello: DetachedHello, served: Arc<Served>, trust: Arc<Trust>) {
    let (peer, stream) = match accept_link(hello, PolledSocket).await {
        Ok(accepted) => accepted,
        // It asks all the time. `Peers` says so, once, at each of the two nodes.
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            return tracing::debug!("a link of another node was not accepted: {error}");
        }
        Err(error) => return tracing::info!("a link of another node was not accepted: {error}"),
    };
    let (link, driver) = Link::start(stream, link_options(), Role::Acceptor);
    let from = peer.identity.node;
    let name = format!("node:{from}");
    tokio::select! {
        end = driver => tracing::info!("the link of node {from} has ended: {end}"),
        () = accept_sessions(&link, &served, &name) => {}
        () = take_messages(&link, &served, from) => {}
        why = refusal(&trust, &peer) => {
            link.close();
            tracing::warn!("the link of node {from} was closed: {why}");
        }
    }
}

async fn take_messages(link: &Link, served: &Served, node: pki::NodeId) {
    let node = node.to_string().parse::<NodeId>().ok();
    while let Some(message) = link.message().await {
        if let Some(answer) = echo_of(&message, wall_nanos() / 1000) {
            // One that finds no room is lost, as a published message is.
            link.send_message(&answer);
            continue;
        }
        if let (Some(node), Some((database, text))) = (node, endpoints::decode(&message)) {
            served.endpoints.insert(node, database, text, Instant::now());
            continue;
        }
        // What cannot be read is of a newer version.
        if let Some(published) = Published::decode(&message) {
            served.publish(&published);
        }
    }
}

async fn accept_sessions(link: &Link, served: &Served, name: &str) {
    while let Some((target, session)) = link.accept().await {
        let found = match Target::parse(&target) {
            // Such a session has a link of its own, so nobody else waits.
            Some(target) if target.purpose == Purpose::Replica => served.find_soon(target).await.zip(Some(target)),
            target => target.and_then(|target| Some((served.find(target)?, target))),
        };
        let Some((copy, target)) = found else {
            session.refuse();
            continue;
        };
        let session = SessionStream::Link(session);
        let attended = match target.purpose {
            Purpose::Client { is_divided } => copy.serve_proxy(session, is_divided, name),
            Purpose::Replica => copy.serve_replica(session, name),
        };
        if let Err(error) = attended {
            tracing::debug!("a session with {} was not served: {error}", copy.name());
        }
    }
}
