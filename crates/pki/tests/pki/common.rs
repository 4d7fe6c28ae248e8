//! Nodes of a cluster whose connections are in memory and whose clocks the test sets.

use pki::{
    Authority, AuthorityCertificate, CheckedRequest, Clock, Credential, CurrentCredential, Identity, NodeId, NodeKey,
    Purpose, Refusal, STANDING_PROTOCOL, Trust, is_join, join_server, link_client, link_server, peer_identity, refusal,
    server_name, standing_server,
};
use rustls::pki_types::UnixTime;
use rustls::server::Acceptor;
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// 2026-11-21T18:04:05Z.
pub const NOW_MS: u64 = 1_795_284_245_000;
pub const MINUTE_MS: u64 = 60_000;
pub const HOUR_MS: u64 = 60 * MINUTE_MS;
pub const DAY_MS: u64 = 24 * HOUR_MS;

#[derive(Debug)]
pub struct TestClock(AtomicU64);

impl TestClock {
    pub fn at(ms: u64) -> Arc<TestClock> {
        Arc::new(TestClock(AtomicU64::new(ms)))
    }

    pub fn set(&self, ms: u64) {
        self.0.store(ms, Relaxed);
    }
}

impl TimeProvider for TestClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_millis(self.0.load(Relaxed))))
    }
}

/// What a node of a cluster has.
pub struct Node {
    pub id: NodeId,
    pub current: Arc<CurrentCredential>,
    pub trust: Arc<Trust>,
    pub clock: Arc<TestClock>,
    pub link_server: Arc<ServerConfig>,
    pub standing_server: Arc<ServerConfig>,
    pub join_server: Arc<ServerConfig>,
}

pub fn address() -> Vec<String> {
    vec!["127.0.0.1".to_owned()]
}

pub fn checked(key: &NodeKey) -> CheckedRequest {
    CheckedRequest::from_pem(&key.request()).unwrap()
}

/// A new certificate for a node.
pub fn credential(authority: &Authority, node: NodeId, purpose: Purpose, now_ms: u64) -> Credential {
    let key = NodeKey::generate();
    let issued = authority.issue(&checked(&key), node, purpose, &address(), now_ms).unwrap();
    Credential::new(&key, &issued.certificate, authority.certificate(), now_ms).unwrap()
}

impl Node {
    /// A member that trusts its own authority.
    pub fn new(authority: &Authority) -> Node {
        let id = NodeId::random();
        Node::with(credential(authority, id, Purpose::Node, NOW_MS), vec![authority.certificate().clone()])
    }

    pub fn with(credential: Credential, authorities: Vec<AuthorityCertificate>) -> Node {
        let (id, clock) = (credential.identity().node, TestClock::at(NOW_MS));
        let (current, trust) = (CurrentCredential::new(credential), Trust::new(authorities).unwrap());
        Node {
            id,
            link_server: link_server(&current, &trust, pki::LINK_PROTOCOL, Arc::clone(&clock) as Clock),
            standing_server: standing_server(&current, &trust, Arc::clone(&clock) as Clock),
            join_server: join_server(&current, &trust, Arc::clone(&clock) as Clock),
            current,
            trust,
            clock,
        }
    }

    pub fn client(&self, wanted: Option<NodeId>) -> Arc<ClientConfig> {
        self.client_of(wanted, pki::LINK_PROTOCOL)
    }

    pub fn client_of(&self, wanted: Option<NodeId>, protocol: &[u8]) -> Arc<ClientConfig> {
        link_client(&self.current, &self.trust, wanted, protocol, Arc::clone(&self.clock) as Clock)
    }

    /// A link to another node, which both ends have accepted.
    pub fn link(&self, to: &Node) -> Result<Link, Box<Failed>> {
        connect(self.client(Some(to.id)), to)
    }
}

/// A connection whose handshake both ends have ended.
pub struct Link {
    pub client: ClientConnection,
    pub server: ServerConnection,
}

/// Why each end gave up. `None`: it only heard the other's alert, or nothing.
pub struct Failed {
    pub client: Option<rustls::Error>,
    pub server: Option<rustls::Error>,
    /// What the server had received of the client's data.
    pub received: Vec<u8>,
}

impl fmt::Debug for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {:?}, server {:?}", self.client, self.server)
    }
}

impl Failed {
    pub fn by_client(&self) -> Refusal {
        refusal(self.client.as_ref().expect("the client gave up")).unwrap_or_else(|| panic!("{self:?}"))
    }

    pub fn by_server(&self) -> Refusal {
        refusal(self.server.as_ref().expect("the server gave up")).unwrap_or_else(|| panic!("{self:?}"))
    }
}

pub fn connect(config: Arc<ClientConfig>, server: &Node) -> Result<Link, Box<Failed>> {
    connect_and_send(config, server, b"")
}

/// `data` is handed to the client before its handshake, as a careless caller would.
pub fn connect_and_send(config: Arc<ClientConfig>, server: &Node, data: &[u8]) -> Result<Link, Box<Failed>> {
    let mut client = ClientConnection::new(config, server_name()).unwrap();
    client.writer().write_all(data).unwrap();
    let mut acceptor = Acceptor::default();
    let accepted = loop {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        acceptor.read_tls(&mut &bytes[..]).unwrap();
        if let Some(accepted) = acceptor.accept().map_err(|(error, _)| error).unwrap() {
            break accepted;
        }
    };
    let is_standing = accepted.client_hello().alpn().is_some_and(|asked| asked.eq([STANDING_PROTOCOL]));
    let config = match is_join(&accepted.client_hello()) {
        true => &server.join_server,
        false if is_standing => &server.standing_server,
        false => &server.link_server,
    };
    let failed = |client, server, received| Box::new(Failed { client, server, received });
    let mut server = match accepted.into_connection(Arc::clone(config)) {
        Ok(server) => server,
        Err((error, mut alert)) => {
            let mut bytes = Vec::new();
            alert.write_all(&mut bytes).unwrap();
            client.read_tls(&mut &bytes[..]).unwrap();
            return Err(failed(client.process_new_packets().err(), Some(error), Vec::new()));
        }
    };
    let (mut client_error, mut server_error) = (None, None);
    loop {
        let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
        while server.wants_write() {
            server.write_tls(&mut to_client).unwrap();
        }
        if !to_client.is_empty() && client_error.is_none() {
            client.read_tls(&mut &to_client[..]).unwrap();
            client_error = client.process_new_packets().err();
        }
        while client.wants_write() {
            client.write_tls(&mut to_server).unwrap();
        }
        if !to_server.is_empty() && server_error.is_none() {
            server.read_tls(&mut &to_server[..]).unwrap();
            server_error = server.process_new_packets().err();
        }
        if to_client.is_empty() && to_server.is_empty() {
            break;
        }
    }
    if client_error.is_none() && server_error.is_none() && !client.is_handshaking() && !server.is_handshaking() {
        return Ok(Link { client, server });
    }
    let own = |error: Option<rustls::Error>| error.filter(|error| !matches!(error, rustls::Error::AlertReceived(_)));
    let received = read_all(&mut server.reader());
    Err(failed(own(client_error), own(server_error), received))
}

pub fn read_all(from: &mut impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    match from.read_to_end(&mut bytes) {
        Err(error) if error.kind() != ErrorKind::WouldBlock => panic!("{error}"),
        _ => bytes,
    }
}

impl Link {
    pub fn callers_peer(&self) -> Identity {
        peer_identity(&self.client).unwrap()
    }

    pub fn answerers_peer(&self) -> Identity {
        peer_identity(&self.server).unwrap()
    }

    /// From the client to the server.
    pub fn ask(&mut self, data: &[u8]) -> Vec<u8> {
        self.client.writer().write_all(data).unwrap();
        let mut bytes = Vec::new();
        while self.client.wants_write() {
            self.client.write_tls(&mut bytes).unwrap();
        }
        let mut bytes = &bytes[..];
        while !bytes.is_empty() {
            self.server.read_tls(&mut bytes).unwrap();
            self.server.process_new_packets().unwrap();
        }
        read_all(&mut self.server.reader())
    }

    /// From the server to the client.
    pub fn answer(&mut self, data: &[u8]) -> Vec<u8> {
        self.server.writer().write_all(data).unwrap();
        let mut bytes = Vec::new();
        while self.server.wants_write() {
            self.server.write_tls(&mut bytes).unwrap();
        }
        let mut bytes = &bytes[..];
        while !bytes.is_empty() {
            self.client.read_tls(&mut bytes).unwrap();
            self.client.process_new_packets().unwrap();
        }
        read_all(&mut self.client.reader())
    }
}
