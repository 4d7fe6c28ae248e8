//! Owns what a node shows to its peers: a certificate with its key and its authority's certificate, in one text, so
//! that they can only change together. Never knows whom the node believes.

use crate::certificate::{AuthorityCertificate, CertificateError, Identity};
use crate::pem;
use crate::request::NodeKey;
use crate::secret::SecretText;
use base::time::instant;
use parking_lot::RwLock;
use rustls::client::ResolvesClientCert;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, UnixTime};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, SignatureScheme};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub struct Credential {
    identity: Identity,
    authority: AuthorityCertificate,
    key: PrivateKeyDer<'static>,
    /// The certificate and its authority's: a node that joins knows only the latter's fingerprint.
    certified: Arc<CertifiedKey>,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").field("identity", &self.identity).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialError {
    /// The text does not have a certificate, its authority's, and one key.
    Unreadable,
    Certificate(CertificateError),
    /// The key is not the certificate's.
    OtherKey,
    /// The authority has not signed the certificate, or is another cluster's.
    OtherAuthority,
    Expired {
        expired_ms: u64,
        now_ms: u64,
    },
    NotYetValid {
        valid_from_ms: u64,
        now_ms: u64,
    },
    /// Of another node, cluster or purpose than the one that it is to replace.
    OtherIdentity,
    /// Issued before the one that it is to replace.
    Older,
}

impl fmt::Display for CredentialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CredentialError::Unreadable => {
                f.write_str("this is no node's certificate with its authority's certificate and its key")
            }
            CredentialError::Certificate(error) => error.fmt(f),
            CredentialError::OtherKey => f.write_str("the key is not that of the certificate"),
            CredentialError::OtherAuthority => f.write_str("the certificate is not signed by the authority beside it"),
            CredentialError::Expired { expired_ms, now_ms } => write!(
                f,
                "this node's certificate ended at {}; its clock says {}: if the clock is right, the node must \
                 join again",
                instant(*expired_ms),
                instant(*now_ms)
            ),
            CredentialError::NotYetValid { valid_from_ms, now_ms } => write!(
                f,
                "this node's certificate is valid from {} on, by the clock of the node that issued it; this node's \
                 clock says {}: set the clocks",
                instant(*valid_from_ms),
                instant(*now_ms)
            ),
            CredentialError::OtherIdentity => {
                f.write_str("the new certificate is of another node, cluster or purpose than the old one")
            }
            CredentialError::Older => f.write_str("the new certificate was issued before the old one"),
        }
    }
}

impl std::error::Error for CredentialError {}

impl Credential {
    /// `certificate`: as the authority issued it, in PEM.
    pub fn new(
        key: &NodeKey,
        certificate: &str,
        authority: &AuthorityCertificate,
        now_ms: u64,
    ) -> Result<Credential, CredentialError> {
        Credential::of_parts(key.der(), certificate, authority.clone(), now_ms)
    }

    fn of_parts(
        key: PrivateKeyDer<'static>,
        certificate: &str,
        authority: AuthorityCertificate,
        now_ms: u64,
    ) -> Result<Credential, CredentialError> {
        let certificates = pem::certificates(certificate).ok_or(CredentialError::Unreadable)?;
        let [certificate] = &certificates[..] else { return Err(CredentialError::Unreadable) };
        let identity = Identity::of(certificate).map_err(CredentialError::Certificate)?;
        if now_ms < identity.valid_from_ms() {
            return Err(CredentialError::NotYetValid { valid_from_ms: identity.valid_from_ms(), now_ms });
        }
        if now_ms >= identity.expires_ms {
            return Err(CredentialError::Expired { expired_ms: identity.expires_ms, now_ms });
        }
        let parsed = ParsedCertificate::try_from(certificate).map_err(|_| CredentialError::Unreadable)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.der().clone()).map_err(|_| CredentialError::Unreadable)?;
        let now = UnixTime::since_unix_epoch(Duration::from_millis(now_ms));
        let provider = default_provider();
        let algorithms = provider.signature_verification_algorithms.all;
        let is_signed = verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], now, algorithms).is_ok();
        if !is_signed || identity.cluster != authority.cluster {
            return Err(CredentialError::OtherAuthority);
        }
        let chain = vec![certificate.clone(), authority.der().clone()];
        let certified = CertifiedKey::from_der(chain, key.clone_key(), &provider);
        let certified = Arc::new(certified.map_err(|_| CredentialError::OtherKey)?);
        Ok(Credential { identity, authority, key, certified })
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    pub fn authority(&self) -> &AuthorityCertificate {
        &self.authority
    }

    /// Certificate, authority's certificate and key, for one file. etcd takes this file for its certificate and for its
    /// key.
    pub fn to_pem(&self) -> SecretText {
        let certificates = self.certified.cert.iter().map(|der| pem::encode("CERTIFICATE", der));
        SecretText::new(certificates.collect::<String>() + &pem::encode("PRIVATE KEY", self.key.secret_der()))
    }

    pub fn from_pem(text: &SecretText, now_ms: u64) -> Result<Credential, CredentialError> {
        let certificates = pem::certificates(text.expose()).ok_or(CredentialError::Unreadable)?;
        let [certificate, authority] = &certificates[..] else { return Err(CredentialError::Unreadable) };
        let authority = AuthorityCertificate::from_der(authority.clone()).map_err(CredentialError::Certificate)?;
        let key = PrivateKeyDer::from_pem_slice(text.expose().as_bytes()).map_err(|_| CredentialError::Unreadable)?;
        Credential::of_parts(key, &pem::encode("CERTIFICATE", certificate), authority, now_ms)
    }
}

/// The newest certificate of a node: every handshake takes it from here, and connections that live keep theirs.
pub struct CurrentCredential(RwLock<Arc<Credential>>);

impl fmt::Debug for CurrentCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CurrentCredential").field(&self.get()).finish()
    }
}

impl CurrentCredential {
    pub fn new(credential: Credential) -> Arc<CurrentCredential> {
        Arc::new(CurrentCredential(RwLock::new(Arc::new(credential))))
    }

    pub fn get(&self) -> Arc<Credential> {
        Arc::clone(&self.0.read())
    }

    /// From the next handshake on.
    pub fn replace(&self, renewed: Credential) -> Result<(), CredentialError> {
        let mut current = self.0.write();
        let (old, new) = (current.identity, renewed.identity);
        if (new.cluster, new.node, new.purpose) != (old.cluster, old.node, old.purpose) {
            return Err(CredentialError::OtherIdentity);
        }
        if new.issued_ms < old.issued_ms {
            return Err(CredentialError::Older);
        }
        *current = Arc::new(renewed);
        Ok(())
    }
}

impl ResolvesServerCert for CurrentCredential {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().certified))
    }
}

impl ResolvesClientCert for CurrentCredential {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().certified))
    }

    fn has_certs(&self) -> bool {
        true
    }
}
