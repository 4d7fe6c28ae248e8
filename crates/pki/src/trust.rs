//! Owns whom a node believes: the authorities of its cluster, less the nodes that are shut out. Both may change at any
//! time, and count from the next handshake on. Never knows who changes them.

use crate::certificate::{AuthorityCertificate, CertificateError, Identity, Purpose};
use crate::id::{ClusterId, NodeId};
use crate::limits::{AUTHORITIES_MAX, CLOCKS_APART_MS_MAX};
use crate::refusal::Refusal;
use parking_lot::RwLock;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{DistinguishedName, RootCertStore};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Release},
};
use std::time::Duration;

/// A node whose certificates do not count if they were issued before a moment. A plain record: the cluster keeps a list
/// of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShutOut {
    pub node: NodeId,
    /// By the clock of whoever issued the certificate.
    pub issued_before_ms: u64,
}

impl ShutOut {
    /// The node may come back with a new certificate, which it gets only with a new token: its old ones do not renew
    /// themselves. An issuer whose clock is ahead may have issued one that seems to come from the future, so the moment
    /// is a little later.
    pub fn until_it_joins_again(node: NodeId, now_ms: u64) -> ShutOut {
        ShutOut { node, issued_before_ms: now_ms.saturating_add(CLOCKS_APART_MS_MAX) }
    }

    pub fn for_good(node: NodeId) -> ShutOut {
        ShutOut { node, issued_before_ms: u64::MAX }
    }

    /// When the node was shut out, unless for good.
    pub fn since_ms(&self) -> Option<u64> {
        (self.issued_before_ms != u64::MAX).then(|| self.issued_before_ms.saturating_sub(CLOCKS_APART_MS_MAX))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrustError {
    /// None, or more than [`AUTHORITIES_MAX`].
    Count(usize),
    OtherCluster(ClusterId),
    Unusable,
}

impl fmt::Display for TrustError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrustError::Count(count) => write!(f, "a node trusts 1 to {AUTHORITIES_MAX} authorities, not {count}"),
            TrustError::OtherCluster(cluster) => write!(f, "the authority is of another cluster, {cluster}"),
            TrustError::Unusable => f.write_str("the authority's certificate cannot be used"),
        }
    }
}

impl std::error::Error for TrustError {}

/// What the other end of a connection has shown. Whether it counts may change while the connection lives.
#[derive(Clone, Debug)]
pub struct PeerCertificate {
    pub identity: Identity,
    der: CertificateDer<'static>,
}

impl PeerCertificate {
    pub(crate) fn new(der: &CertificateDer<'_>) -> Result<PeerCertificate, CertificateError> {
        Ok(PeerCertificate { identity: Identity::of(der)?, der: der.clone().into_owned() })
    }
}

pub struct Trust {
    cluster: ClusterId,
    provider: Arc<CryptoProvider>,
    authorities: RwLock<Arc<Authorities>>,
    /// The moment of each node that is shut out.
    shut_out: RwLock<HashMap<NodeId, u64>>,
    /// How often any of it has changed.
    changes: AtomicU64,
}

/// rustls's form of the authorities, made once for all handshakes.
struct Authorities {
    certificates: Vec<AuthorityCertificate>,
    roots: Arc<RootCertStore>,
    clients: Arc<dyn ClientCertVerifier>,
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trust").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl Trust {
    /// All authorities are of one cluster. None is shut out yet.
    pub fn new(authorities: Vec<AuthorityCertificate>) -> Result<Arc<Trust>, TrustError> {
        let cluster = authorities.first().ok_or(TrustError::Count(0))?.cluster;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let authorities = RwLock::new(Arc::new(prepare(cluster, authorities, &provider)?));
        let (shut_out, changes) = (RwLock::default(), AtomicU64::new(0));
        Ok(Arc::new(Trust { cluster, provider, authorities, shut_out, changes }))
    }

    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    pub fn authorities(&self) -> Vec<AuthorityCertificate> {
        self.authorities.read().certificates.clone()
    }

    /// If one cannot be used, the previous ones stay.
    pub fn set_authorities(&self, authorities: Vec<AuthorityCertificate>) -> Result<(), TrustError> {
        let prepared = prepare(self.cluster, authorities, &self.provider)?;
        *self.authorities.write() = Arc::new(prepared);
        self.changes.fetch_add(1, Release);
        Ok(())
    }

    /// Grows whenever somebody who was believed may be believed no more.
    pub fn changes(&self) -> u64 {
        self.changes.load(Acquire)
    }

    /// The whole list. Of two records for a node the later moment counts.
    pub fn set_shut_out(&self, list: &[ShutOut]) {
        let mut moments: HashMap<NodeId, u64> = HashMap::with_capacity(list.len());
        for record in list {
            let moment = moments.entry(record.node).or_default();
            *moment = record.issued_before_ms.max(*moment);
        }
        let mut shut_out = self.shut_out.write();
        if *shut_out != moments {
            *shut_out = moments;
            self.changes.fetch_add(1, Release);
        }
    }

    /// Whether the other end of a living connection is still believed. After a change its user asks this of each link, because a handshake
    /// is not repeated. A certificate that has ended meanwhile counts: a node renews its certificate, and keeps its links.
    pub fn still_admits(&self, peer: &PeerCertificate) -> Result<(), Refusal> {
        let then = UnixTime::since_unix_epoch(Duration::from_millis(peer.identity.issued_ms));
        self.check_signed(&peer.der, &[], then).map_err(|_| Refusal::OtherAuthority)?;
        self.admits(&peer.identity)
    }

    /// Whether a node is of this cluster and not shut out.
    pub fn admits(&self, identity: &Identity) -> Result<(), Refusal> {
        if identity.cluster != self.cluster {
            return Err(Refusal::OtherCluster { theirs: identity.cluster, ours: self.cluster });
        }
        match self.shut_out(identity) {
            Some(ShutOut { node, issued_before_ms }) => {
                Err(Refusal::ShutOut { node, issued_ms: identity.issued_ms, issued_before_ms })
            }
            None => Ok(()),
        }
    }

    /// The record that shuts this node out, if its certificate does not count any more.
    pub fn shut_out(&self, identity: &Identity) -> Option<ShutOut> {
        let issued_before_ms = *self.shut_out.read().get(&identity.node)?;
        let is_out = identity.issued_ms < issued_before_ms;
        is_out.then_some(ShutOut { node: identity.node, issued_before_ms })
    }

    pub(crate) fn provider(&self) -> &Arc<CryptoProvider> {
        &self.provider
    }

    pub(crate) fn check_client(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<Identity, rustls::Error> {
        self.check_signed(certificate, between, now)?;
        self.check_node(certificate)
    }

    /// An authority has signed a client's certificate, whoever the client is.
    pub(crate) fn check_signed(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        let authorities = Arc::clone(&self.authorities.read());
        authorities.clients.verify_client_cert(certificate, between, now).map(drop)
    }

    pub(crate) fn check_server(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<Identity, rustls::Error> {
        let authorities = Arc::clone(&self.authorities.read());
        let parsed = ParsedCertificate::try_from(certificate)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &authorities.roots, between, now, algorithms)?;
        self.check_node(certificate)
    }

    fn check_node(&self, certificate: &CertificateDer<'_>) -> Result<Identity, rustls::Error> {
        let identity = Identity::of(certificate).map_err(Refusal::from)?;
        self.admits(&identity)?;
        match identity.purpose {
            Purpose::Node => Ok(identity),
            Purpose::Etcd => Err(Refusal::NotANode.into()),
        }
    }
}

fn prepare(
    cluster: ClusterId,
    certificates: Vec<AuthorityCertificate>,
    provider: &Arc<CryptoProvider>,
) -> Result<Authorities, TrustError> {
    if !(1..=AUTHORITIES_MAX).contains(&certificates.len()) {
        return Err(TrustError::Count(certificates.len()));
    }
    let mut roots = RootCertStore::empty();
    for certificate in &certificates {
        if certificate.cluster != cluster {
            return Err(TrustError::OtherCluster(certificate.cluster));
        }
        roots.add(certificate.der().clone()).map_err(|_| TrustError::Unusable)?;
    }
    let roots = Arc::new(roots);
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(provider)).build();
    Ok(Authorities { certificates, roots, clients: clients.map_err(|_| TrustError::Unusable)? })
}

/// Authorities may change while the settings live, so no hint is given: a node has only one certificate to show.
pub(crate) const NO_HINTS: &[DistinguishedName] = &[];
