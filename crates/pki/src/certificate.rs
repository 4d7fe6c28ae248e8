//! Owns what a certificate of a cluster means: the authority's, and those that it issues. Never knows whether to
//! believe one: nothing here checks a signature.
//!
//! ```text
//! authority            CN=<cluster's name>, O=<cluster id>   URI flintkv://<cluster id>
//! a node               CN=<node id>, O=<cluster id>          URI flintkv://<cluster id>/node/<node id>
//! a node's etcd        CN=etcd, O=<cluster id>               URI flintkv://<cluster id>/etcd/<node id>
//! ```
//! Only the URI is read back. etcd can ask for the common name `etcd` on its peer port.

use crate::hex::{Fingerprint, Hex, Serial, sha256};
use crate::id::{ClusterId, NodeId};
use crate::limits::{AUTHORITY_SUCCESSOR_MS, CLOCKS_APART_MS_MAX, RENEWED_AT};
use crate::name::check_name;
use crate::pem;
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use std::fmt;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Links between nodes, both ends, and the client's side of a connection to etcd.
    Node,
    /// Both sides of etcd's ports on a node.
    Etcd,
}

impl Purpose {
    fn word(self) -> &'static str {
        match self {
            Purpose::Node => "node",
            Purpose::Etcd => "etcd",
        }
    }
}

/// Whose an issued certificate is. A plain record: the cluster keeps one of each certificate until it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub cluster: ClusterId,
    pub node: NodeId,
    pub purpose: Purpose,
    pub serial: Serial,
    /// By the issuer's clock, in whole seconds.
    pub issued_ms: u64,
    pub expires_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateError {
    /// Not one certificate in DER or PEM.
    Unreadable,
    /// A certificate, but not of an authority of a cluster.
    NotAnAuthority,
    /// A certificate, but not one that a cluster's authority issues.
    NotIssued,
}

impl fmt::Display for CertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CertificateError::Unreadable => "this is no certificate",
            CertificateError::NotAnAuthority => "this is no certificate of a cluster's authority",
            CertificateError::NotIssued => "this certificate names no node of a cluster",
        })
    }
}

impl std::error::Error for CertificateError {}

pub(crate) fn authority_uri(cluster: ClusterId) -> String {
    format!("flintkv://{cluster}")
}

pub(crate) fn issued_uri(cluster: ClusterId, node: NodeId, purpose: Purpose) -> String {
    format!("flintkv://{cluster}/{}/{node}", purpose.word())
}

impl Identity {
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Identity, CertificateError> {
        let parsed = parse(certificate)?;
        let uri = only_uri(&parsed).ok_or(CertificateError::NotIssued)?;
        let (cluster, node, purpose) = read_issued_uri(uri).ok_or(CertificateError::NotIssued)?;
        let serial = parsed.raw_serial().try_into().map_err(|_| CertificateError::NotIssued)?;
        let (valid_from_ms, expires_ms) = validity_ms(&parsed);
        let issued_ms = valid_from_ms.saturating_add(CLOCKS_APART_MS_MAX);
        Ok(Identity { cluster, node, purpose, serial: Hex(serial), issued_ms, expires_ms })
    }

    /// From this moment on the certificate is valid.
    pub fn valid_from_ms(&self) -> u64 {
        self.issued_ms.saturating_sub(CLOCKS_APART_MS_MAX)
    }

    /// Less than a third of the certificate's life is left.
    pub fn needs_renewal(&self, now_ms: u64) -> bool {
        self.expires_ms.saturating_sub(now_ms) < self.expires_ms.saturating_sub(self.issued_ms) / RENEWED_AT
    }
}

/// The certificate of a cluster's authority, which every node has. The key is another matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityCertificate {
    der: CertificateDer<'static>,
    pub cluster: ClusterId,
    /// The cluster's name when the authority was made.
    pub name: String,
    pub issued_ms: u64,
    pub expires_ms: u64,
}

impl AuthorityCertificate {
    pub fn from_der(der: CertificateDer<'_>) -> Result<AuthorityCertificate, CertificateError> {
        let not_one = CertificateError::NotAnAuthority;
        let parsed = parse(&der)?;
        let cluster = only_uri(&parsed).and_then(|uri| uri.strip_prefix("flintkv://")?.parse().ok()).ok_or(not_one)?;
        let may_issue = parsed.key_usage().ok().flatten().is_some_and(|usage| usage.value.key_cert_sign());
        let name = parsed.subject().iter_common_name().next().and_then(|name| name.as_str().ok()).ok_or(not_one)?;
        if !parsed.is_ca() || !may_issue || check_name(name).is_err() {
            return Err(not_one);
        }
        let (name, (valid_from_ms, expires_ms)) = (name.to_owned(), validity_ms(&parsed));
        let issued_ms = valid_from_ms.saturating_add(CLOCKS_APART_MS_MAX);
        Ok(AuthorityCertificate { cluster, name, issued_ms, expires_ms, der: der.into_owned() })
    }

    /// Of a text with this certificate and no other.
    pub fn from_pem(text: &str) -> Result<AuthorityCertificate, CertificateError> {
        match pem::certificates(text).as_deref() {
            Some([der]) => AuthorityCertificate::from_der(der.clone()),
            _ => Err(CertificateError::Unreadable),
        }
    }

    /// Of a text with nothing but such certificates, as etcd's file of authorities.
    pub fn list_from_pem(text: &str) -> Result<Vec<AuthorityCertificate>, CertificateError> {
        let found = pem::certificates(text).ok_or(CertificateError::Unreadable)?;
        found.into_iter().map(AuthorityCertificate::from_der).collect()
    }

    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    pub fn pem(&self) -> String {
        pem::encode("CERTIFICATE", &self.der)
    }

    /// A node that joins knows only this.
    pub fn fingerprint(&self) -> Fingerprint {
        sha256(&self.der)
    }

    /// It is time to create another authority for the cluster, see docs/internals/pki.md.
    pub fn needs_successor(&self, now_ms: u64) -> bool {
        self.expires_ms.saturating_sub(now_ms) < AUTHORITY_SUCCESSOR_MS
    }
}

pub(crate) fn parse<'a>(der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, CertificateError> {
    match X509Certificate::from_der(der) {
        Ok(([], parsed)) => Ok(parsed),
        _ => Err(CertificateError::Unreadable),
    }
}

/// A certificate with two URIs would have two meanings.
fn only_uri<'a>(certificate: &'a X509Certificate<'_>) -> Option<&'a str> {
    let names = &certificate.subject_alternative_name().ok()??.value.general_names;
    let mut uris = names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) => Some(*uri),
        _ => None,
    });
    uris.next().filter(|_| uris.next().is_none())
}

fn read_issued_uri(uri: &str) -> Option<(ClusterId, NodeId, Purpose)> {
    let mut parts = uri.strip_prefix("flintkv://")?.split('/');
    let (cluster, word, node) = (parts.next()?, parts.next()?, parts.next()?);
    let purpose = [Purpose::Node, Purpose::Etcd].into_iter().find(|purpose| purpose.word() == word)?;
    let found = (cluster.parse().ok()?, node.parse().ok()?, purpose);
    parts.next().is_none().then_some(found)
}

fn validity_ms(certificate: &X509Certificate<'_>) -> (u64, u64) {
    let ms = |time: ASN1Time| u64::try_from(time.timestamp()).unwrap_or_default().saturating_mul(1000);
    (ms(certificate.validity().not_before), ms(certificate.validity().not_after))
}
