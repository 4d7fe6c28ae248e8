//! Owns the joining node's side: what it asks of a member with its token, and what it writes down. Never knows the command line.

use crate::call::{self, Call, EtcdAdmission, Reply, Welcome};
use crate::folder::{EtcdMember, Folder, Member, announced_port, host_and_port, url};
use crate::init::certificate_addresses;
use crate::issuer::{DEFAULT_ZONE, role_of};
use base::clock::wall_ms;
use cluster::names::{NodeName, ZoneName};
use config::Config;
use pki::{
    Authority, AuthorityCertificate, Candidate, Credential, CurrentCredential, IssueRequest, JoinAnswer, JoinError,
    JoinRequest, NodeId, NodeKey, Purpose, SecretText, Token, Trust,
};
use rustls::ClientConfig;
use rustls::time_provider::DefaultTimeProvider;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often the node asks to run a member of etcd: etcd admits one new member at a time.
const ETCD_ATTEMPTS: usize = 60;
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Join {
    /// HOST:PORT of a member that has the authority's key.
    pub at: String,
    pub token: Token,
    pub name: NodeName,
    pub zone: Option<ZoneName>,
    pub role: pki::Role,
    /// Where other nodes reach this one; `None`: at the address from which it calls.
    pub host: Option<String>,
}

/// Asks with the token, then as a member. `progress` gets a line for each step that takes a while.
pub async fn join(config: &Config, options: &Join, progress: &mut dyn FnMut(&str)) -> Result<Member, String> {
    let folder = Folder::of(config);
    let before = folder.member().map_err(|error| error.to_string())?;
    if let Some(member) = &before {
        return Err(format!(
            "this node is a member of the cluster '{}' already: see flintkv cluster leave",
            member.cluster_name
        ));
    }
    folder.make().map_err(|error| error.to_string())?;
    let candidate = Candidate { token: options.token.clone(), node: NodeId::random(), key: NodeKey::generate() };
    let tls = pki::join_client(options.token.authority, Arc::new(DefaultTimeProvider));
    let mut stream = connect(&options.at, tls).await.map_err(|error| refused(&options.at, &error))?;
    let host = match &options.host {
        Some(host) => host.clone(),
        None => own_address(&stream).map_err(|error| error.to_string())?,
    };
    let request = JoinRequest {
        secret: options.token.secret.clone(),
        cluster: None,
        node: candidate.node,
        name: options.name.as_str().to_owned(),
        zone: options.zone.as_ref().map(|zone| zone.as_str().to_owned()),
        role: options.role,
        addresses: certificate_addresses(&host),
        peer_port: announced_port(config),
        request: candidate.key.request(),
        clock_ms: wall_ms(),
    };
    let answer: Result<JoinAnswer, JoinError> =
        call::ask(&mut stream, &request).await.map_err(|error| refused(&options.at, &error))?;
    let answer = answer.map_err(|error| format!("{} refuses: {error}", options.at))?;
    let membership = candidate.accept(&answer, wall_ms()).map_err(|error| error.to_string())?;
    let authorities: Vec<String> = membership.authorities.iter().map(AuthorityCertificate::pem).collect();
    let trust = Trust::new(membership.authorities.clone()).map_err(|error| error.to_string())?;
    let current = CurrentCredential::new(membership.credential);
    let peer = Peer { at: options.at.clone(), current: Arc::clone(&current), trust };
    let welcome: Welcome = peer.ask(&Call::Welcome).await?;
    let mut etcd = welcome.etcd;
    if welcome.coordinates {
        let member = run_etcd(config, &folder, &peer, candidate.node, &host, &membership.authorities, progress).await?;
        etcd.endpoints.insert(0, member.client_url());
    }
    let member = Member::new(
        welcome.cluster,
        welcome.cluster_name,
        candidate.node,
        options.name.clone(),
        options.zone.clone().unwrap_or_else(|| DEFAULT_ZONE.parse().expect("it is a zone's name")),
        role_of(options.role),
        host,
        authorities,
        etcd,
    );
    folder.write_credential(&current.get()).map_err(|error| error.to_string())?;
    folder.write_member(&member).map_err(|error| error.to_string())?;
    Ok(member)
}

/// A member that is asked.
pub struct Peer {
    pub at: String,
    pub current: Arc<CurrentCredential>,
    pub trust: Arc<Trust>,
}

impl Peer {
    /// The reply, or a sentence that says why there is none.
    pub async fn ask<A: DeserializeOwned>(&self, call: &Call) -> Result<A, String> {
        self.ask_raw::<Call, Reply<A>>(call).await?.map_err(|why| format!("{}: {why}", self.at))
    }

    pub async fn ask_raw<Q: Serialize, A: DeserializeOwned>(&self, call: &Q) -> Result<A, String> {
        let clock = Arc::new(DefaultTimeProvider);
        let tls = pki::link_client(&self.current, &self.trust, None, pki::CALL_PROTOCOL, clock);
        let mut stream = connect(&self.at, tls).await.map_err(|error| refused(&self.at, &error))?;
        call::ask(&mut stream, call).await.map_err(|error| refused(&self.at, &error))
    }
}

async fn run_etcd(
    config: &Config,
    folder: &Folder,
    peer: &Peer,
    node: NodeId,
    host: &str,
    authorities: &[AuthorityCertificate],
    progress: &mut dyn FnMut(&str),
) -> Result<EtcdMember, String> {
    let key = NodeKey::generate();
    let peer_url = url(host, config.etcd_peer_port);
    let question = || Call::RunEtcd {
        issue: IssueRequest {
            purpose: Purpose::Etcd,
            addresses: certificate_addresses(host),
            request: key.request(),
            clock_ms: wall_ms(),
        },
        peer_url: peer_url.clone(),
    };
    let mut attempt = 1;
    let admission: EtcdAdmission = loop {
        match peer.ask(&question()).await {
            Ok(admission) => break admission,
            Err(why) if attempt == ETCD_ATTEMPTS => return Err(why),
            Err(why) if attempt == 1 => progress(&format!("waiting to run a member of etcd ({why})")),
            Err(_) => {}
        }
        attempt += 1;
        sleep(PAUSE).await;
    };
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let authority = Authority::from_pem(&SecretText::new(admission.authority)).map_err(|error| text(&error))?;
    let credential = Credential::new(&key, &admission.issued.certificate, authority.certificate(), wall_ms());
    let credential = credential.map_err(|error| text(&error))?;
    let ports = (config.etcd_client_port, config.etcd_peer_port);
    let cluster = authority.certificate().cluster;
    let member = EtcdMember::new(node, host.to_owned(), ports, cluster, admission.others);
    folder.write_authority(&authority).map_err(|error| text(&error))?;
    folder.write_ca(authorities).map_err(|error| text(&error))?;
    folder.write_etcd_credential(&credential).map_err(|error| text(&error))?;
    folder.write_etcd_member(&member).map_err(|error| text(&error))?;
    Ok(member)
}

pub(crate) async fn connect(at: &str, tls: Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    let connected = async {
        let stream = TcpStream::connect(at).await?;
        stream.set_nodelay(true)?;
        TlsConnector::from(tls).connect(pki::server_name(), stream).await
    };
    timeout(CONNECT_TIMEOUT, connected).await.map_err(|_| io::ErrorKind::TimedOut)?
}

fn own_address(stream: &TlsStream<TcpStream>) -> io::Result<String> {
    let address: IpAddr = stream.get_ref().0.local_addr()?.ip();
    Ok(address.to_canonical().to_string())
}

/// Why a member did not answer. A refusal of our own checks says all that is to be said.
fn refused(at: &str, error: &io::Error) -> String {
    let inner = error.get_ref();
    let refusal = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()).and_then(pki::refusal);
    let unreadable = inner.and_then(|inner| inner.downcast_ref::<pki::MessageError>());
    match (refusal, unreadable) {
        (Some(refusal), _) => format!("{at}: {refusal}"),
        (None, Some(unreadable)) => format!("{at} answers, but {unreadable}"),
        (None, None) => format!("{at}: {error}. Is a node of the cluster there, and is its peer-port reachable?"),
    }
}

/// The address of a member as it is written on the command line: the port may be missing.
pub fn address(text: &str, default_port: u16) -> String {
    match config::definition::host_and_port(text) {
        Some(_) => text.to_owned(),
        None => host_and_port(text.trim_matches(['[', ']']), default_port),
    }
}
