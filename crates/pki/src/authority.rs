//! Owns the key of a cluster's authority, and what it signs: its own certificate, those of nodes and of etcd, and the
//! list of revoked ones. Never knows who may have one: that is for `join` and `issue` to check.

use crate::certificate::{self, AuthorityCertificate, CertificateError, Identity, Purpose, authority_uri, issued_uri};
use crate::hex::{Hex, Serial};
use crate::id::{ClusterId, NodeId};
use crate::limits::{ADDRESSES_MAX, AUTHORITY_LIFE_MS, CERTIFICATE_LIFE_MS, CLOCKS_APART_MS_MAX};
use crate::name::{Host, OWN_DOMAIN, check_name, parse_host};
use crate::pem;
use crate::request::{CheckedRequest, new_key, private_key};
use crate::secret::SecretText;
use base::time::instant;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
    PublicKeyData, RevokedCertParams, SanType, SerialNumber,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use std::fmt;
use std::time::Duration;
use time::OffsetDateTime;
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;

/// A cluster's authority with its key.
pub struct Authority {
    certificate: AuthorityCertificate,
    issuer: Issuer<'static, KeyPair>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("certificate", &self.certificate.fingerprint()).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthorityError {
    BadName(String),
    BadAddress {
        address: String,
        why: String,
    },
    Certificate(CertificateError),
    /// The text does not have exactly one certificate and one P-256 key.
    Unreadable,
    /// The key is not the certificate's.
    OtherKey,
    Expired {
        expired_ms: u64,
        now_ms: u64,
    },
}

impl fmt::Display for AuthorityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AuthorityError::BadName(why) => write!(f, "the name of a cluster {why}"),
            AuthorityError::BadAddress { address, why } => write!(f, "the address {address:?} {why}"),
            AuthorityError::Certificate(error) => error.fmt(f),
            AuthorityError::Unreadable => {
                f.write_str("this is no authority: not one certificate and one ECDSA P-256 key")
            }
            AuthorityError::OtherKey => f.write_str("the authority's key is not that of its certificate"),
            AuthorityError::Expired { expired_ms, now_ms } => write!(
                f,
                "the authority's certificate ended at {}; this node's clock says {}",
                instant(*expired_ms),
                instant(*now_ms)
            ),
        }
    }
}

impl std::error::Error for AuthorityError {}

/// A new certificate. The cluster keeps the identities of all: only so can it name those of a node in a list of revoked
/// ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    pub identity: Identity,
    /// In PEM, without the authority's.
    pub certificate: String,
}

impl Authority {
    /// For a new cluster, whose id is drawn here.
    pub fn create(name: &str, now_ms: u64) -> Result<Authority, AuthorityError> {
        check_name(name).map_err(AuthorityError::BadName)?;
        Ok(Authority::with_new_key(name, ClusterId::random(), now_ms))
    }

    /// With a new key, for the same cluster. Nodes trust both until each has a certificate of the new one.
    #[must_use]
    pub fn successor(&self, now_ms: u64) -> Authority {
        Authority::with_new_key(&self.certificate.name, self.certificate.cluster, now_ms)
    }

    fn with_new_key(name: &str, cluster: ClusterId, now_ms: u64) -> Authority {
        let mut params = valid(now_ms, now_ms.saturating_add(AUTHORITY_LIFE_MS));
        params.distinguished_name = subject(name, cluster);
        params.subject_alt_names = vec![uri(authority_uri(cluster))];
        // What it signs cannot sign anything in turn.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = new_key();
        let der = params.self_signed(&key).expect("a key in memory signs").der().clone();
        let certificate = AuthorityCertificate::from_der(der).expect("its own certificate is of an authority");
        Authority { certificate, issuer: Issuer::new(params, key) }
    }

    pub fn certificate(&self) -> &AuthorityCertificate {
        &self.certificate
    }

    /// Certificate and key, for the file and for another node that is to have the key.
    pub fn to_pem(&self) -> SecretText {
        let key = pem::encode("PRIVATE KEY", private_key(self.issuer.key()).secret_der());
        SecretText::new(self.certificate.pem() + &key)
    }

    pub fn from_pem(text: &SecretText) -> Result<Authority, AuthorityError> {
        let certificate = AuthorityCertificate::from_pem(text.expose()).map_err(AuthorityError::Certificate)?;
        let key = PrivateKeyDer::from_pem_slice(text.expose().as_bytes()).map_err(|_| AuthorityError::Unreadable)?;
        let key = KeyPair::from_der_and_sign_algo(&key, &PKCS_ECDSA_P256_SHA256);
        let key = key.map_err(|_| AuthorityError::Unreadable)?;
        let parsed = certificate::parse(certificate.der()).map_err(AuthorityError::Certificate)?;
        if parsed.public_key().raw != key.subject_public_key_info() {
            return Err(AuthorityError::OtherKey);
        }
        let issuer = Issuer::from_ca_cert_der(certificate.der(), key).map_err(|_| AuthorityError::Unreadable)?;
        Ok(Authority { certificate, issuer })
    }

    /// A certificate for both ends of a connection. `addresses`: IP addresses and host names, without ports.
    pub fn issue(
        &self,
        request: &CheckedRequest,
        node: NodeId,
        purpose: Purpose,
        addresses: &[String],
        now_ms: u64,
    ) -> Result<Issued, AuthorityError> {
        let AuthorityCertificate { cluster, expires_ms, .. } = self.certificate;
        if now_ms >= expires_ms {
            return Err(AuthorityError::Expired { expired_ms: expires_ms, now_ms });
        }
        let mut params = valid(now_ms, now_ms.saturating_add(CERTIFICATE_LIFE_MS).min(expires_ms));
        params.distinguished_name = match purpose {
            Purpose::Node => subject(&node.to_string(), cluster),
            Purpose::Etcd => subject("etcd", cluster),
        };
        params.subject_alt_names = vec![uri(issued_uri(cluster, node, purpose))];
        if purpose == Purpose::Etcd {
            params.subject_alt_names.push(SanType::DnsName(ascii(etcd_name(cluster))));
        }
        for name in hosts(addresses)? {
            params.subject_alt_names.push(name);
        }
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        // Two authorities of a cluster have one name; this says whose key signed.
        params.use_authority_key_identifier_extension = true;
        params.serial_number = Some(SerialNumber::from_slice(&new_serial().0));
        let signed = params.signed_by(request, &self.issuer).expect("a key in memory signs");
        let identity = Identity::of(signed.der()).expect("its own certificate names a node");
        Ok(Issued { identity, certificate: pem::encode("CERTIFICATE", signed.der()) })
    }

    /// The list of revoked certificates for etcd (`--client-crl-file`, `--peer-crl-file`), in DER, which every version
    /// of etcd reads. `number` grows with each list.
    pub fn revocation_list(&self, revoked: &[Serial], number: u64, now_ms: u64) -> Vec<u8> {
        let entry = |serial: &Serial| RevokedCertParams {
            serial_number: SerialNumber::from_slice(&serial.0),
            revocation_time: date(now_ms),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date(now_ms),
            next_update: date(now_ms.saturating_add(AUTHORITY_LIFE_MS)),
            crl_number: SerialNumber::from(number),
            issuing_distribution_point: None,
            revoked_certs: revoked.iter().map(entry).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).expect("a key in memory signs").der().to_vec()
    }
}

/// The serial numbers in a list of revoked certificates, in their order. `None`: it is no such list, in DER.
pub fn revoked_serials(list: &[u8]) -> Option<Vec<Serial>> {
    let ([], parsed) = CertificateRevocationList::from_der(list).ok()? else { return None };
    parsed.iter_revoked_certificates().map(|revoked| Some(Hex(revoked.raw_serial().try_into().ok()?))).collect()
}

/// Only a certificate for etcd has this name. A client of etcd asks for it instead of an address: a node may have any
/// address in its certificate, so with addresses each node could pose as etcd.
pub(crate) fn etcd_name(cluster: ClusterId) -> String {
    format!("etcd.{cluster}.{OWN_DOMAIN}")
}

fn hosts(addresses: &[String]) -> Result<Vec<SanType>, AuthorityError> {
    // Not all of a long one: it comes from another node, and goes into its log.
    let bad = |address: &str, why| AuthorityError::BadAddress { address: address.chars().take(64).collect(), why };
    if let Some(address) = addresses.get(ADDRESSES_MAX) {
        return Err(bad(address, format!("is one too many: a certificate has at most {ADDRESSES_MAX}")));
    }
    let name = |address: &String| match parse_host(address) {
        Ok(Host::Ip(ip)) => Ok(SanType::IpAddress(ip)),
        Ok(Host::Dns(name)) => Ok(SanType::DnsName(ascii(name))),
        Err(why) => Err(bad(address, why)),
    };
    addresses.iter().map(name).collect()
}

/// Names, addresses and URIs are ASCII once they have been checked.
fn ascii<T: TryFrom<String, Error: fmt::Debug>>(text: String) -> T {
    text.try_into().expect("the text is ASCII")
}

fn uri(uri: String) -> SanType {
    SanType::URI(ascii(uri))
}

fn subject(common_name: &str, cluster: ClusterId) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name.push(DnType::OrganizationName, cluster.to_string());
    name
}

/// Positive and 16 bytes long in every encoding, so 126 bits are random.
fn new_serial() -> Serial {
    let Hex(mut bytes) = Serial::random();
    bytes[0] = bytes[0] & 0x3f | 0x40;
    Hex(bytes)
}

fn valid(issued_ms: u64, expires_ms: u64) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.not_before = date(issued_ms.saturating_sub(CLOCKS_APART_MS_MAX));
    params.not_after = date(expires_ms);
    params
}

/// X.509 has whole seconds, and no year after 9999.
fn date(ms: u64) -> OffsetDateTime {
    const LAST_SECOND: u64 = 253_402_300_799;
    OffsetDateTime::UNIX_EPOCH + Duration::from_secs((ms / 1000).min(LAST_SECOND))
}
