//! Owns a node's key and its request for a certificate (PKCS #10, RFC 2986). Never knows what the certificate will say:
//! the authority takes the public key of a request, and proof that the requester has the private one, and nothing else.

use crate::hex::{Fingerprint, sha256};
use crate::limits::REQUEST_CHARS_MAX;
use crate::pem;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm};
use rustls::pki_types::pem::SectionKind;
use rustls::pki_types::{CertificateSigningRequestDer, PrivateKeyDer};
use std::fmt;

/// A P-256 key, which rustls and Go's TLS, that is etcd, both take. A node's key never leaves the node.
pub struct NodeKey(KeyPair);

impl fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeKey(secret)")
    }
}

impl NodeKey {
    pub fn generate() -> NodeKey {
        NodeKey(new_key())
    }

    /// The request, in PEM.
    pub fn request(&self) -> String {
        let request = CertificateParams::default().serialize_request(&self.0).expect("a key in memory signs");
        pem::encode("CERTIFICATE REQUEST", request.der())
    }

    pub(crate) fn der(&self) -> PrivateKeyDer<'static> {
        private_key(&self.0)
    }
}

pub(crate) fn new_key() -> KeyPair {
    // This fails only if the system has no random generator.
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("the system gives random bytes")
}

pub(crate) fn private_key(key: &KeyPair) -> PrivateKeyDer<'static> {
    PrivateKeyDer::Pkcs8(key.serialize_der().into())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    TooLong,
    /// Not one request in PEM.
    Unreadable,
    /// The requester does not have the private key, or the request was changed on its way.
    BadSignature,
    /// The authority signs P-256 keys only.
    OtherAlgorithm,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::TooLong => {
                write!(f, "the request for a certificate is longer than {REQUEST_CHARS_MAX} characters")
            }
            RequestError::Unreadable => f.write_str("this is no request for a certificate (PKCS #10 in PEM)"),
            RequestError::BadSignature => f.write_str("the request for a certificate is not signed by its key"),
            RequestError::OtherAlgorithm => {
                f.write_str("the request for a certificate has another key than ECDSA P-256")
            }
        }
    }
}

impl std::error::Error for RequestError {}

/// A public key whose holder has the private one.
pub struct CheckedRequest {
    point: Vec<u8>,
}

impl fmt::Debug for CheckedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CheckedRequest({})", self.key_sha256())
    }
}

impl CheckedRequest {
    pub fn from_pem(text: &str) -> Result<CheckedRequest, RequestError> {
        if text.len() > REQUEST_CHARS_MAX {
            return Err(RequestError::TooLong);
        }
        let der = pem::only(SectionKind::Csr, text).ok_or(RequestError::Unreadable)?;
        let der = CertificateSigningRequestDer::from(der);
        let request = rcgen::CertificateSigningRequestParams::from_der(&der).map_err(|error| match error {
            rcgen::Error::InvalidCertificationRequestSignature => RequestError::BadSignature,
            rcgen::Error::UnsupportedSignatureAlgorithm => RequestError::OtherAlgorithm,
            _ => RequestError::Unreadable,
        })?;
        // The signature's algorithm alone does not name the curve. An uncompressed point of P-256 has 65 bytes, and the
        // check of the signature has found it on its curve.
        let point = request.public_key.der_bytes();
        if request.public_key.algorithm() != &PKCS_ECDSA_P256_SHA256 || point.len() != 65 || point[0] != 4 {
            return Err(RequestError::OtherAlgorithm);
        }
        Ok(CheckedRequest { point: point.to_vec() })
    }

    /// Names the key: the same for each request that the key signs.
    pub fn key_sha256(&self) -> Fingerprint {
        sha256(&self.point)
    }
}

impl PublicKeyData for CheckedRequest {
    fn der_bytes(&self) -> &[u8] {
        &self.point
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}
