//! Owns what other nodes' links reach here: a session is served by the copy that it asks for. Never knows commands.

use crate::peers::refusal;
use crate::shard::Target;
use link::{Link, Options, Role};
use membership::peer::{DetachedHello, accept_link};
use node::{Database, Node, SessionStream};
use parking_lot::RwLock;
use pki::Trust;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// The copies that serve now, by database and shard.
#[derive(Default)]
pub struct Served(RwLock<HashMap<(cluster::ids::DatabaseId, cluster::ids::ShardNumber), Weak<Database>>>);

impl Served {
    pub fn insert(&self, target: (cluster::ids::DatabaseId, cluster::ids::ShardNumber), copy: &Arc<Database>) {
        self.0.write().insert(target, Arc::downgrade(copy));
    }

    pub fn remove(&self, target: (cluster::ids::DatabaseId, cluster::ids::ShardNumber)) {
        self.0.write().remove(&target);
    }

    fn find(&self, target: Target) -> Option<Arc<Database>> {
        self.0.read().get(&(target.database, target.shard))?.upgrade()
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
        node.run_on_worker(worker, Box::new(move || Box::pin(serve(hello, served, trust))));
    }
}

async fn serve(hello: DetachedHello, served: Arc<Served>, trust: Arc<Trust>) {
    let (identity, stream) = match accept_link(hello).await {
        Ok(accepted) => accepted,
        Err(error) => return tracing::info!("a link of another node was not accepted: {error}"),
    };
    let (link, driver) = Link::start(stream, Options::default(), Role::Acceptor);
    let name = format!("node:{}", identity.node);
    tokio::select! {
        end = driver => tracing::info!("the link of node {} has ended: {end}", identity.node),
        () = accept_sessions(&link, &served, &name) => {}
        why = refusal(&trust, &identity) => {
            link.close();
            tracing::warn!("the link of node {} was closed: {why}", identity.node);
        }
    }
}

async fn accept_sessions(link: &Link, served: &Served, name: &str) {
    while let Some((target, session)) = link.accept().await {
        let target = Target::parse(&target);
        let Some((copy, target)) = target.and_then(|target| Some((served.find(target)?, target))) else {
            session.refuse();
            continue;
        };
        if let Err(error) = copy.serve_proxy(SessionStream::Link(session), target.is_divided, name) {
            tracing::debug!("a session with {} was not served: {error}", copy.name());
        }
    }
}
