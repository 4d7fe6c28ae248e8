//! Owns whom a node believes: the authorities of its cluster, less the nodes that are shut out. Both may change at any
//! time, and count from the next handshake on. Never knows who changes them.

use crate::certificate::{AuthorityCertificate, Identity, Purpose};
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

pub struct Trust {
    cluster: ClusterId,
    provider: Arc<CryptoProvider>,
    authorities: RwLock<Arc<Authorities>>,
    /// The moment of each node that is shut out.
    shut_out: RwLock<HashMap<NodeId, u64>>,
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
        Ok(Arc::new(Trust { cluster, provider, authorities, shut_out: RwLock::default() }))
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
        Ok(())
    }

    /// The whole list. Of two records for a node the later moment counts.
    pub fn set_shut_out(&self, list: &[ShutOut]) {
        let mut moments: HashMap<NodeId, u64> = HashMap::with_capacity(list.len());
        for record in list {
            let moment = moments.entry(record.node).or_default();
            *moment = record.issued_before_ms.max(*moment);
        }
        *self.shut_out.write() = moments;
    }

    /// Whether a node is of this cluster and not shut out. After a change of the list its user asks this of each living
    /// link, because a handshake is not repeated.
    pub fn admits(&self, identity: &Identity) -> Result<(), Refusal> {
        if identity.cluster != self.cluster {
            return Err(Refusal::OtherCluster { theirs: identity.cluster, ours: self.cluster });
        }
        match self.shut_out.read().get(&identity.node) {
            Some(&issued_before_ms) if identity.issued_ms < issued_before_ms => {
                Err(Refusal::ShutOut { node: identity.node, issued_ms: identity.issued_ms, issued_before_ms })
            }
            _ => Ok(()),
        }
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
        let authorities = Arc::clone(&self.authorities.read());
        authorities.clients.verify_client_cert(certificate, between, now)?;
        self.check_node(certificate)
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
