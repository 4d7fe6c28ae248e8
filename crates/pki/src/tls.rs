//! Owns the settings of rustls for the port between nodes: links, on which both ends show a certificate of the cluster,
//! and joining, where the caller has only a token. TLS 1.3 alone. Never knows a socket.
//!
//! One port serves both: the caller names its protocol (ALPN), and [`is_join`] says which settings the server takes. A
//! caller without a certificate can only get those for joining, whose connections carry one request and one answer.
//!
//! No session is resumed: a resumed handshake shows no certificate, so a node could come back after it was shut out.

use crate::certificate::{AuthorityCertificate, Identity};
use crate::credential::CurrentCredential;
use crate::hex::{Fingerprint, sha256};
use crate::id::{ClusterId, NodeId};
use crate::refusal::Refusal;
use crate::trust::{NO_HINTS, PeerCertificate, Trust};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoClientAuth, NoServerSessionStorage, ResolvesServerCert};
use rustls::time_provider::TimeProvider;
use rustls::version::TLS13;
use rustls::{ClientConfig, CommonState, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use std::sync::Arc;

/// The protocol of links between members.
pub const LINK_PROTOCOL: &[u8] = b"flintkv-link/1";
/// The protocol of links that go on without TLS after its handshake.
pub const PLAIN_LINK_PROTOCOL: &[u8] = b"flintkv-plain-link/1";
/// The protocol of one question between members, and its answer.
pub const CALL_PROTOCOL: &[u8] = b"flintkv-call/1";
/// The protocol of one request of a member's API to that of another.
pub const API_PROTOCOL: &[u8] = b"flintkv-api/1";
/// The protocol of a node that asks whether it is still a member.
pub const STANDING_PROTOCOL: &[u8] = b"flintkv-standing/1";
/// The protocol of a node that is to become a member.
pub const JOIN_PROTOCOL: &[u8] = b"flintkv-join/1";

/// The wall clock by which certificates are valid; `rustls::time_provider::DefaultTimeProvider` is the machine's.
pub type Clock = Arc<dyn TimeProvider>;

/// Whether a caller is to get the settings for joining; otherwise those for links.
pub fn is_join(hello: &ClientHello<'_>) -> bool {
    hello.alpn().is_some_and(|protocols| protocols.eq([JOIN_PROTOCOL]))
}

/// For callers that are members. The handshake fails unless the caller shows a certificate that `trust` admits. `links`: the protocol of
/// links, of the two; a caller that asks for the other one is refused.
pub fn link_server(
    current: &Arc<CurrentCredential>,
    trust: &Arc<Trust>,
    links: &[u8],
    clock: Clock,
) -> Arc<ServerConfig> {
    let members = Arc::new(Members { trust: Arc::clone(trust), wanted: None, takes_shut_out: false });
    server(current, trust.provider(), members, &[links, CALL_PROTOCOL, API_PROTOCOL], clock)
}

/// For callers that ask whether they are still members. A node that is shut out may ask that, and nothing else.
pub fn standing_server(current: &Arc<CurrentCredential>, trust: &Arc<Trust>, clock: Clock) -> Arc<ServerConfig> {
    let callers = Arc::new(Members { trust: Arc::clone(trust), wanted: None, takes_shut_out: true });
    server(current, trust.provider(), callers, &[STANDING_PROTOCOL], clock)
}

/// For callers with a token. They cannot show a certificate.
pub fn join_server(current: &Arc<CurrentCredential>, trust: &Arc<Trust>, clock: Clock) -> Arc<ServerConfig> {
    server(current, trust.provider(), Arc::new(NoClientAuth), &[JOIN_PROTOCOL], clock)
}

/// For a link to a member, a call, or a request to its API: `protocol`. `wanted`: the node that must answer, because another may have got its
/// address; `None`: any member.
///
/// In TLS 1.3 the client's handshake ends before the server has checked the client's certificate: that the link was
/// accepted is known only by the first bytes from the server.
pub fn link_client(
    current: &Arc<CurrentCredential>,
    trust: &Arc<Trust>,
    wanted: Option<NodeId>,
    protocol: &[u8],
    clock: Clock,
) -> Arc<ClientConfig> {
    let members = Arc::new(Members { trust: Arc::clone(trust), wanted, takes_shut_out: false });
    client(Some(current), trust.provider(), members, protocol, clock)
}

/// For a node that joins with a token: the server's certificate must be signed by the authority with this fingerprint.
/// Until it is checked nothing is sent that the token has.
pub fn join_client(authority: Fingerprint, clock: Clock) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let pinned = Arc::new(Pinned { authority, provider: Arc::clone(&provider) });
    client(None, &provider, pinned, JOIN_PROTOCOL, clock)
}

/// Whose a connection's other end is. After the handshake.
pub fn peer_identity(connection: &CommonState) -> Result<Identity, Refusal> {
    peer_certificate(connection).map(|peer| peer.identity)
}

/// What a connection's other end has shown. After the handshake.
pub fn peer_certificate(connection: &CommonState) -> Result<PeerCertificate, Refusal> {
    let certificate = connection.peer_certificates().and_then(|chain| chain.first()).ok_or(Refusal::NoCertificate)?;
    Ok(PeerCertificate::new(certificate)?)
}

/// What a client of this crate gives to rustls as the server's name. It is not sent: nodes are known by their
/// certificates' ids.
pub fn server_name() -> ServerName<'static> {
    ServerName::try_from("node.flintkv").expect("it is a name")
}

/// What a client of etcd must ask for, whatever address it connects to.
pub fn etcd_server_name(cluster: ClusterId) -> String {
    crate::authority::etcd_name(cluster)
}

fn server(
    current: &Arc<CurrentCredential>,
    provider: &Arc<CryptoProvider>,
    clients: Arc<dyn ClientCertVerifier>,
    protocols: &[&[u8]],
    clock: Clock,
) -> Arc<ServerConfig> {
    let builder = ServerConfig::builder_with_details(Arc::clone(provider), clock);
    let builder = builder.with_protocol_versions(&[&TLS13]).expect("ring has the suites of TLS 1.3");
    let resolver: Arc<dyn ResolvesServerCert> = Arc::clone(current) as _;
    let mut config = builder.with_client_cert_verifier(clients).with_cert_resolver(resolver);
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Arc::new(config)
}

fn client(
    current: Option<&Arc<CurrentCredential>>,
    provider: &Arc<CryptoProvider>,
    servers: Arc<dyn ServerCertVerifier>,
    protocol: &[u8],
    clock: Clock,
) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_details(Arc::clone(provider), clock);
    let builder = builder.with_protocol_versions(&[&TLS13]).expect("ring has the suites of TLS 1.3");
    let builder = builder.dangerous().with_custom_certificate_verifier(servers);
    let mut config = match current {
        Some(current) => {
            let resolver: Arc<dyn ResolvesClientCert> = Arc::clone(current) as _;
            builder.with_client_cert_resolver(resolver)
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Arc::new(config)
}

/// Believes the members of the cluster.
#[derive(Debug)]
struct Members {
    trust: Arc<Trust>,
    wanted: Option<NodeId>,
    /// Clients only.
    takes_shut_out: bool,
}

impl ServerCertVerifier for Members {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let found = self.trust.check_server(certificate, between, now)?.node;
        match self.wanted {
            Some(wanted) if wanted != found => Err(Refusal::OtherNode { found, wanted }.into()),
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.trust.provider().signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.trust.provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.trust.provider().signature_verification_algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for Members {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        NO_HINTS
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        match self.takes_shut_out {
            true => self.trust.check_signed(certificate, between, now)?,
            false => drop(self.trust.check_client(certificate, between, now)?),
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        ServerCertVerifier::verify_tls12_signature(self, message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        ServerCertVerifier::verify_tls13_signature(self, message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ServerCertVerifier::supported_verify_schemes(self)
    }
}

/// Believes one authority, of which it knows only the fingerprint: the server sends the authority's certificate with
/// its own.
#[derive(Debug)]
struct Pinned {
    authority: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let authority = between.iter().find(|der| sha256(der) == self.authority);
        let authority = authority.ok_or(Refusal::OtherFingerprint { wanted: self.authority })?;
        let authority = AuthorityCertificate::from_der(authority.clone()).map_err(Refusal::from)?;
        let trust = Trust::new(vec![authority]).map_err(|_| Refusal::OtherAuthority)?;
        trust.check_server(certificate, &[], now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
