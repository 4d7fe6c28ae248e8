//! Owns how the other nodes are reached: one link from each worker to each node, made when it is needed and again after it was lost; and
//! connections to their APIs. Never knows what a link or an API carries.

use base::clock::wall_nanos;
use cluster::ids::NodeId;
use link::{Link, Options, Role};
use membership::api_stream::{self, ApiStream, ApiUnreachable};
use membership::link_stream::{LinkStream, link_protocol};
use node::{PolledSocket, SESSION_WINDOW_BYTES, beside_scripts};
use parking_lot::{Mutex, RwLock};
use pki::{API_PROTOCOL, CurrentCredential, Trust};
use rustls::ClientConfig;
use rustls::time_provider::DefaultTimeProvider;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::time::timeout;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Between two attempts to reach a node.
const PAUSE: Duration = Duration::from_millis(200);
/// Between two lines of the log about a node that cannot be reached.
const SAY_INTERVAL: Duration = Duration::from_secs(60);
/// How often a link is asked whether its other end is still admitted: a handshake is not repeated.
const ADMISSION_INTERVAL: Duration = Duration::from_secs(1);

/// How often a link's round trip is measured.
const ECHO_INTERVAL: Duration = Duration::from_secs(1);
/// For how long a message must be unanswered until the link to a node whose lease has ended is taken for lost.
const UNANSWERED: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(100);
/// The first byte of a message that the other end sends back, with its clock behind it; the rest is a number (`published` has the other kinds).
const ECHO: u8 = 2;

/// The links of all workers to one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connected {
    pub links: usize,
    /// Of the last message that came back.
    pub round_trip: Option<Duration>,
    pub clock: Option<ClockGap>,
}

/// How far another node's clock is ahead of this one's, in microseconds; below zero: behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockGap {
    pub ahead_us: i64,
    /// It may be more or less by so much: half of the time that the question took.
    pub error_us: u64,
}

impl ClockGap {
    /// The other node read its clock at some moment of the round trip, which has just ended.
    fn of(theirs_us: u64, now_us: u64, round_trip: Duration) -> ClockGap {
        let error_us = (round_trip / 2).as_micros() as u64;
        ClockGap { ahead_us: theirs_us.saturating_add(error_us).wrapping_sub(now_us) as i64, error_us }
    }

    /// The clocks are apart by at least so much.
    pub fn certain_us(&self) -> u64 {
        self.ahead_us.unsigned_abs().saturating_sub(self.error_us)
    }
}

/// Of every link between nodes. A proxy's clients that do not read keep a window of each of their sessions full, and there may be thousands
/// of them: so windows begin small, and those that are read grow.
pub fn link_options() -> Options {
    Options { first_window_bytes: SESSION_WINDOW_BYTES as u32, grown_bytes_max: 2 << 20, ..Options::default() }
}

/// Where the other nodes are, and what this node shows them.
pub struct Peers {
    pub current: Arc<CurrentCredential>,
    pub trust: Arc<Trust>,
    /// What links carry is TLS (`peer-tls`).
    enciphers: bool,
    addresses: RwLock<HashMap<NodeId, String>>,
    /// The nodes whose lease at etcd has not ended.
    running: RwLock<HashSet<NodeId>>,
    /// The nodes to which no link can be made before an operator has changed something, and why.
    refused: Mutex<BTreeMap<NodeId, String>>,
    connected: Mutex<HashMap<NodeId, Connected>>,
    /// When the log was told last that a node cannot be reached, until it was reached.
    said: Mutex<HashMap<NodeId, Instant>>,
}

thread_local! {
    /// Of this worker's thread.
    static LINKS: RefCell<HashMap<NodeId, PeerLink>> = RefCell::default();
}

enum PeerLink {
    Connecting,
    Open(Link),
    /// The last attempt failed.
    Failed(Instant),
}

impl Peers {
    pub fn new(current: Arc<CurrentCredential>, trust: Arc<Trust>, enciphers: bool) -> Arc<Peers> {
        Arc::new(Peers {
            current,
            trust,
            enciphers,
            addresses: RwLock::default(),
            running: RwLock::default(),
            refused: Mutex::default(),
            connected: Mutex::default(),
            said: Mutex::default(),
        })
    }

    /// Why no links can be made to some nodes.
    pub fn refused(&self) -> BTreeMap<NodeId, String> {
        self.refused.lock().clone()
    }

    pub fn set_addresses(&self, addresses: HashMap<NodeId, String>) {
        self.refused.lock().retain(|node, _| addresses.contains_key(node));
        *self.addresses.write() = addresses;
    }

    pub fn set_running(&self, running: HashSet<NodeId>) {
        *self.running.write() = running;
    }

    /// The nodes to which this one has had a link.
    pub fn connected(&self) -> HashMap<NodeId, Connected> {
        self.connected.lock().clone()
    }

    fn note(&self, node: NodeId, change: impl FnOnce(&mut Connected)) {
        change(self.connected.lock().entry(node).or_default());
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
                Some(PeerLink::Open(link)) if link.end().is_none() => return Some(link.clone()),
                Some(PeerLink::Connecting) => return None,
                Some(PeerLink::Failed(at)) if at.elapsed() < PAUSE => return None,
                _ => {}
            }
            links.insert(node, PeerLink::Connecting);
            let peers = Arc::clone(self);
            drop(tokio::task::spawn_local(beside_scripts(async move { peers.run(node).await })));
            None
        })
    }

    /// Makes a link and drives it until it ends.
    async fn run(self: Arc<Peers>, node: NodeId) {
        let put = |state| LINKS.with_borrow_mut(|links| drop(links.insert(node, state)));
        let (peer, stream) = match self.connect(node).await {
            Ok(connected) => connected,
            Err(error) => {
                self.note_failure(node, &error);
                return put(PeerLink::Failed(Instant::now()));
            }
        };
        self.refused.lock().remove(&node);
        self.said.lock().remove(&node);
        let (link, driver) = Link::start(stream, link_options(), Role::Opener);
        put(PeerLink::Open(link.clone()));
        self.note(node, |connected| connected.links += 1);
        tokio::select! {
            end = driver => tracing::info!("the link to node {node} has ended: {end}"),
            why = refusal(&self.trust, &peer) => {
                link.close();
                tracing::warn!("the link to node {node} was closed: {why}");
            }
            () = self.measure(node, &link) => {
                link.close();
                tracing::warn!("the link to node {node} was closed: the node's lease has ended, and it does not answer");
            }
        }
        self.note(node, |connected| {
            connected.links -= 1;
            if connected.links == 0 {
                *connected = Connected::default();
            }
        });
        LINKS.with_borrow_mut(|links| links.remove(&node));
    }

    /// Every worker tries all the time, so the log is told once of what stays until an operator changes it, and once a minute of the rest.
    fn note_failure(&self, node: NodeId, error: &io::Error) {
        if error.kind() == io::ErrorKind::Unsupported {
            let why = error.to_string();
            if self.refused.lock().insert(node, why.clone()).as_ref() != Some(&why) {
                tracing::error!("there are no links to node {node}: {why}");
            }
            return;
        }
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

    /// Sends messages that come back. Returns when the node is lost: the link alone would notice that after 5 seconds, and what is on its way
    /// to the node waits until then, although another copy serves.
    async fn measure(&self, node: NodeId, link: &Link) {
        let mut number = 0u64;
        loop {
            number += 1;
            let echo = [&[ECHO][..], &number.to_le_bytes()].concat();
            let begun = Instant::now();
            let mut answered = pin!(async {
                loop {
                    // An answer that came too late is not this one's.
                    let answer = link.message().await?;
                    if let Some(clock) = answer.strip_prefix(&echo[..]) {
                        return Some(clock.try_into().map(u64::from_le_bytes).ok());
                    }
                }
            });
            let mut waits = link.send_message(&echo);
            while waits && begun.elapsed() < CONNECT_TIMEOUT {
                if let Ok(answer) = timeout(LOOK, answered.as_mut()).await {
                    waits = false;
                    if let Some(theirs_us) = answer {
                        let (round_trip, now_us) = (begun.elapsed(), wall_nanos() / 1000);
                        self.note(node, |connected| {
                            connected.round_trip = Some(round_trip);
                            connected.clock = theirs_us.map(|theirs_us| ClockGap::of(theirs_us, now_us, round_trip));
                        });
                    }
                } else if begun.elapsed() >= UNANSWERED && !self.running.read().contains(&node) {
                    return;
                }
            }
            tokio::time::sleep(ECHO_INTERVAL).await;
        }
    }

    /// A new connection to the node, behind its handshake.
    pub async fn connect(&self, node: NodeId) -> io::Result<(pki::PeerCertificate, LinkStream<PolledSocket>)> {
        let (address, tls) = self.way_to(node, link_protocol(self.enciphers))?;
        let connected = async {
            let stream = TcpStream::connect(&address).await?;
            stream.set_nodelay(true)?;
            LinkStream::open(PolledSocket(stream), tls).await
        };
        timeout(CONNECT_TIMEOUT, connected).await.map_err(|_| io::ErrorKind::TimedOut)?
    }

    /// A connection to the node's API, which is TLS whatever `peer-tls` says.
    pub async fn open_api(&self, node: NodeId) -> Result<ApiStream, ApiUnreachable> {
        let way = self.way_to(node, API_PROTOCOL).map_err(|error| ApiUnreachable::Away(error.to_string()));
        let (address, tls) = way?;
        api_stream::open(&address, tls).await
    }

    /// The node's address, and the settings of TLS for a connection to it and nobody else.
    fn way_to(&self, node: NodeId, protocol: &[u8]) -> io::Result<(String, Arc<ClientConfig>)> {
        let address = self.addresses.read().get(&node).cloned().ok_or(io::ErrorKind::NotFound)?;
        let wanted = node.to_string().parse().map_err(io::Error::other)?;
        let clock = Arc::new(DefaultTimeProvider);
        Ok((address, pki::link_client(&self.current, &self.trust, Some(wanted), protocol, clock)))
    }
}

/// What is to be sent back. `None`: the message is another one.
pub fn echo_of(message: &[u8], now_us: u64) -> Option<Vec<u8>> {
    matches!(message, [ECHO, number @ ..] if number.len() == 8).then(|| [message, &now_us.to_le_bytes()].concat())
}

/// Waits until the other end is believed no more: its node is shut out, or its certificate's authority was replaced.
pub async fn refusal(trust: &Trust, peer: &pki::PeerCertificate) -> pki::Refusal {
    let mut seen = None;
    let mut timer = pin!(tokio::time::sleep(Duration::ZERO));
    poll_fn(|cx| {
        // While a script blocks the thread, no timer fires: then this is polled every few milliseconds.
        while timer.as_mut().poll(cx).is_ready() || tokio::time::Instant::now() >= timer.deadline() {
            let changes = trust.changes();
            if seen.replace(changes) != Some(changes)
                && let Err(refusal) = trust.still_admits(peer)
            {
                return Poll::Ready(refusal);
            }
            timer.as_mut().reset(tokio::time::Instant::now() + ADMISSION_INTERVAL);
        }
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_comes_back_with_the_clock_of_the_other_end() {
        let echo = [&[ECHO][..], &7u64.to_le_bytes()].concat();
        let answer = echo_of(&echo, 1_000_000).unwrap();
        assert_eq!(answer.strip_prefix(&echo[..]), Some(&1_000_000u64.to_le_bytes()[..]));
        assert_eq!(echo_of(&answer, 0), None, "an answer is not answered");
        assert_eq!(echo_of(&[1; 9], 0), None);
    }

    #[test]
    fn clocks_are_apart_by_what_the_round_trip_does_not_explain() {
        let took = Duration::from_millis(10);
        // Its clock was read in the middle.
        assert_eq!(ClockGap::of(1_000_000, 1_005_000, took), ClockGap { ahead_us: 0, error_us: 5_000 });
        // At the beginning or at the end: nothing is certain.
        for theirs_us in [1_000_000, 1_010_000] {
            assert_eq!(ClockGap::of(theirs_us, 1_010_000, took).certain_us(), 0, "{theirs_us}");
        }
        let (ahead, behind) = (ClockGap::of(4_005_000, 1_010_000, took), ClockGap::of(1_005_000, 4_010_000, took));
        assert_eq!((ahead.ahead_us, ahead.certain_us()), (3_000_000, 2_995_000));
        assert_eq!((behind.ahead_us, behind.certain_us()), (-3_000_000, 2_995_000));
    }
}
