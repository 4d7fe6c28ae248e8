//! Owns how a worker reaches the other nodes: one link from each worker to each node, made when it is needed and again after it was lost.
//! Never knows what a link carries.

use cluster::ids::NodeId;
use link::{Link, Options, Role};
use node::SESSION_WINDOW_BYTES;
use parking_lot::{Mutex, RwLock};
use pki::{CurrentCredential, LINK_PROTOCOL, Trust};
use rustls::time_provider::DefaultTimeProvider;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Between two attempts to reach a node.
const PAUSE: Duration = Duration::from_millis(200);
/// Between two lines of the log about a node that cannot be reached.
const SAY_INTERVAL: Duration = Duration::from_secs(60);
/// How often a link is asked whether its other end is still admitted: a handshake is not repeated.
const ADMISSION_INTERVAL: Duration = Duration::from_secs(1);

/// Of every link between nodes. A proxy's clients that do not read keep a window of each of their sessions full, and there may be thousands
/// of them: so windows begin small, and those that are read grow.
pub fn link_options() -> Options {
    Options { first_window_bytes: SESSION_WINDOW_BYTES as u32, grown_bytes_max: 2 << 20, ..Options::default() }
}

/// Where the other nodes are, and what this node shows them.
pub struct Peers {
    pub current: Arc<CurrentCredential>,
    pub trust: Arc<Trust>,
    addresses: RwLock<HashMap<NodeId, String>>,
    /// When the log was told last that a node cannot be reached, until it was reached.
    said: Mutex<HashMap<NodeId, Instant>>,
}

thread_local! {
    /// Of this worker's thread.
    static LINKS: RefCell<HashMap<NodeId, State>> = RefCell::default();
}

enum State {
    Connecting,
    Open(Link),
    /// The last attempt failed.
    Failed(Instant),
}

impl Peers {
    pub fn new(current: Arc<CurrentCredential>, trust: Arc<Trust>) -> Arc<Peers> {
        Arc::new(Peers { current, trust, addresses: RwLock::default(), said: Mutex::default() })
    }

    pub fn set_addresses(&self, addresses: HashMap<NodeId, String>) {
        *self.addresses.write() = addresses;
    }

    /// Opens a session over this worker's link to the node. If there is no link, one is made, and the session can be opened later.
    pub fn open(self: &Arc<Peers>, node: NodeId, target: &[u8]) -> io::Result<link::Session> {
        match self.link(node) {
            Some(link) => link.open(target),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// The link to the node. `None`: it is being made. Call this on a worker's thread.
    pub fn link(self: &Arc<Peers>, node: NodeId) -> Option<Link> {
        LINKS.with_borrow_mut(|links| {
            match links.get(&node) {
                Some(State::Open(link)) if link.end().is_none() => return Some(link.clone()),
                Some(State::Connecting) => return None,
                Some(State::Failed(at)) if at.elapsed() < PAUSE => return None,
                _ => {}
            }
            links.insert(node, State::Connecting);
            let peers = Arc::clone(self);
            drop(tokio::task::spawn_local(async move { peers.run(node).await }));
            None
        })
    }

    /// Makes a link and drives it until it ends.
    async fn run(self: Arc<Peers>, node: NodeId) {
        let put = |state| LINKS.with_borrow_mut(|links| drop(links.insert(node, state)));
        let (stream, identity) = match self.connect(node).await {
            Ok(connected) => connected,
            Err(error) => {
                self.say(node, &error);
                return put(State::Failed(Instant::now()));
            }
        };
        self.said.lock().remove(&node);
        let (link, driver) = Link::start(stream, link_options(), Role::Opener);
        put(State::Open(link.clone()));
        tokio::select! {
            end = driver => tracing::info!("the link to node {node} has ended: {end}"),
            why = refusal(&self.trust, &identity) => {
                link.close();
                tracing::warn!("the link to node {node} was closed: {why}");
            }
        }
        LINKS.with_borrow_mut(|links| links.remove(&node));
    }

    /// Says why a node cannot be reached, not at each attempt of each worker.
    fn say(&self, node: NodeId, error: &io::Error) {
        let now = Instant::now();
        let mut said = self.said.lock();
        if said.get(&node).is_some_and(|at| now.duration_since(*at) < SAY_INTERVAL) {
            return;
        }
        said.insert(node, now);
        drop(said);
        let refusal = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()).and_then(pki::refusal);
        let why = refusal.map_or_else(|| error.to_string(), |refusal| refusal.to_string());
        tracing::warn!("node {node} cannot be reached, so its shards are not served here: {why}");
    }

    async fn connect(&self, node: NodeId) -> io::Result<(tokio_rustls::client::TlsStream<TcpStream>, pki::Identity)> {
        let address = self.addresses.read().get(&node).cloned().ok_or(io::ErrorKind::NotFound)?;
        let wanted = node.to_string().parse().map_err(io::Error::other)?;
        let clock = Arc::new(DefaultTimeProvider);
        let tls = pki::link_client(&self.current, &self.trust, Some(wanted), LINK_PROTOCOL, clock);
        let connected = async {
            let stream = TcpStream::connect(&address).await?;
            stream.set_nodelay(true)?;
            TlsConnector::from(tls).connect(pki::server_name(), stream).await
        };
        let stream = timeout(CONNECT_TIMEOUT, connected).await.map_err(|_| io::ErrorKind::TimedOut)??;
        let identity = pki::peer_identity(stream.get_ref().1).map_err(io::Error::other)?;
        Ok((stream, identity))
    }
}

/// Waits until the node is shut out.
pub async fn refusal(trust: &Trust, identity: &pki::Identity) -> pki::Refusal {
    loop {
        tokio::time::sleep(ADMISSION_INTERVAL).await;
        if let Err(refusal) = trust.admits(identity) {
            return refusal;
        }
    }
}
