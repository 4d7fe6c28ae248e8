//! Owns the reasons for which a node refuses a peer's certificate, with what an operator needs to know. Never knows how
//! they were found.

use crate::certificate::CertificateError;
use crate::hex::Fingerprint;
use crate::id::{ClusterId, NodeId};
use base::time::instant;
use rustls::pki_types::UnixTime;
use rustls::{CertificateError as Bad, OtherError};
use std::fmt;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No authority that this node trusts has signed it. rustls reports a peer without the certificate's key in the
    /// same way.
    OtherAuthority,
    OtherCluster {
        theirs: ClusterId,
        ours: ClusterId,
    },
    /// A certificate for etcd, which is none for a link.
    NotANode,
    /// The node at this address is not the wanted one.
    OtherNode {
        found: NodeId,
        wanted: NodeId,
    },
    ShutOut {
        node: NodeId,
        issued_ms: u64,
        issued_before_ms: u64,
    },
    Expired {
        expired_ms: u64,
        now_ms: u64,
    },
    NotYetValid {
        valid_from_ms: u64,
        now_ms: u64,
    },
    /// The certificates of the answering node have another authority than the token names: perhaps somebody is in
    /// between.
    OtherFingerprint {
        wanted: Fingerprint,
    },
    NoCertificate,
    Certificate(CertificateError),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::OtherAuthority => f.write_str(
                "the certificate is not signed by the cluster's authority, or the peer does not have its key",
            ),
            Refusal::OtherCluster { theirs, ours } => {
                write!(f, "the certificate is of the cluster {theirs}; this node is of the cluster {ours}")
            }
            Refusal::NotANode => f.write_str("the certificate is for etcd, not for links between nodes"),
            Refusal::OtherNode { found, wanted } => write!(f, "the node is {found}, not {wanted}"),
            Refusal::ShutOut { node, issued_ms, issued_before_ms } => write!(
                f,
                "the node {node} is shut out: its certificate was issued at {}, and those before {} do not count",
                instant(*issued_ms),
                // Shut out for good is the end of time.
                instant((*issued_before_ms).min(YEAR_9999_MS))
            ),
            Refusal::Expired { expired_ms, now_ms } => write!(
                f,
                "the certificate ended at {}; this node's clock says {}",
                instant(*expired_ms),
                instant(*now_ms)
            ),
            Refusal::NotYetValid { valid_from_ms, now_ms } => write!(
                f,
                "the certificate is valid from {} on, by the clock of the node that issued it; this node's \
                 clock says {}: set the clocks",
                instant(*valid_from_ms),
                instant(*now_ms)
            ),
            Refusal::OtherFingerprint { wanted } => write!(
                f,
                "the answering node is not of the cluster that the token names: no certificate of its authority \
                 has the SHA-256 {wanted}"
            ),
            Refusal::NoCertificate => f.write_str("the peer has no certificate"),
            Refusal::Certificate(error) => error.fmt(f),
        }
    }
}

const YEAR_9999_MS: u64 = 253_402_300_799_000;

impl std::error::Error for Refusal {}

impl From<Refusal> for rustls::Error {
    fn from(refusal: Refusal) -> rustls::Error {
        rustls::Error::InvalidCertificate(Bad::Other(OtherError(Arc::new(refusal))))
    }
}

impl From<CertificateError> for Refusal {
    fn from(error: CertificateError) -> Refusal {
        Refusal::Certificate(error)
    }
}

/// Why a handshake of one of this crate's settings failed, if it was the peer's certificate. rustls keeps some errors
/// of its own: they choose the alert that the peer gets.
pub fn refusal(error: &rustls::Error) -> Option<Refusal> {
    let ms = |time: &UnixTime| time.as_secs().saturating_mul(1000);
    Some(match error {
        rustls::Error::InvalidCertificate(Bad::Other(OtherError(error))) => error.downcast_ref::<Refusal>()?.clone(),
        rustls::Error::InvalidCertificate(Bad::ExpiredContext { time, not_after }) => {
            Refusal::Expired { expired_ms: ms(not_after), now_ms: ms(time) }
        }
        rustls::Error::InvalidCertificate(Bad::NotValidYetContext { time, not_before }) => {
            Refusal::NotYetValid { valid_from_ms: ms(not_before), now_ms: ms(time) }
        }
        rustls::Error::InvalidCertificate(Bad::UnknownIssuer | Bad::BadSignature) => Refusal::OtherAuthority,
        rustls::Error::InvalidCertificate(Bad::BadEncoding) => CertificateError::Unreadable.into(),
        rustls::Error::NoCertificatesPresented => Refusal::NoCertificate,
        _ => return None,
    })
}
