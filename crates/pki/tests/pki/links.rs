//! Who gets a link to whom.

use crate::common::{DAY_MS, HOUR_MS, MINUTE_MS, NOW_MS, Node, checked, connect, connect_and_send, credential};
use pki::{
    Authority, AuthorityCertificate, AuthorityError, CALL_PROTOCOL, CertificateError, ClusterId, Credential,
    CredentialError, CurrentCredential, Identity, JOIN_PROTOCOL, LINK_PROTOCOL, NodeId, NodeKey, Purpose, Refusal,
    STANDING_PROTOCOL, SecretText, Serial, ShutOut, Trust, TrustError, limits, refusal, revoked_serials,
};
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType, SerialNumber,
};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, DigitallySignedStruct, PeerIncompatible, ProtocolVersion, RootCertStore, ServerConfig,
    SignatureScheme,
};
use std::sync::Arc;
use std::time::Duration;

fn authority() -> Authority {
    Authority::create("east", NOW_MS).unwrap()
}

#[test]
fn two_members_see_each_other() {
    let authority = authority();
    let (a, b) = (Node::new(&authority), Node::new(&authority));
    let mut link = a.link(&b).unwrap();
    assert_eq!(link.callers_peer(), *b.current.get().identity());
    assert_eq!(link.answerers_peer(), *a.current.get().identity());
    assert_eq!(link.answerers_peer().node, a.id);
    assert_eq!(link.server.protocol_version(), Some(ProtocolVersion::TLSv1_3));
    assert_eq!(link.client.alpn_protocol(), Some(LINK_PROTOCOL));
    assert_eq!(link.ask(b"a command"), b"a command");
    assert_eq!(link.answer(b"its reply"), b"its reply");
}

#[test]
fn a_node_of_another_authority_is_refused_by_either_end() {
    let (east, west) = (authority(), authority());
    let ours = Node::new(&east);
    let theirs = Node::new(&west);
    assert_eq!(ours.link(&theirs).err().unwrap().by_client(), Refusal::OtherAuthority);
    // The same nodes, but the client would believe anybody that one of the two authorities has signed.
    let west_client = client_that_shows(&theirs, anyone());
    assert_eq!(connect(west_client, &ours).err().unwrap().by_server(), Refusal::OtherAuthority);
}

/// A server's verifier that believes everybody, to see what the server does.
fn anyone() -> Arc<dyn ServerCertVerifier> {
    #[derive(Debug)]
    struct Anyone;
    impl ServerCertVerifier for Anyone {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, rustls::Error> {
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ECDSA_NISTP256_SHA256]
        }
    }
    Arc::new(Anyone)
}

fn client_that_shows(node: &Node, servers: Arc<dyn ServerCertVerifier>) -> Arc<ClientConfig> {
    let mut config = ClientConfig::clone(&node.client(None));
    config.dangerous().set_certificate_verifier(servers);
    Arc::new(config)
}

/// A certificate by the authority's key with names and times that the authority itself would not give.
struct Forged {
    uris: Vec<String>,
    purposes: Vec<ExtendedKeyUsagePurpose>,
    is_authority: bool,
    serial: &'static [u8],
}

impl Forged {
    fn naming(uri: String) -> Forged {
        let purposes = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        Forged { uris: vec![uri], purposes, is_authority: false, serial: &[0x55; 16] }
    }

    /// Its chain for TLS: the certificate and the one that signed it.
    fn by(self, signer: &CertificateDer<'static>, key: KeyPair, now_s: i64) -> Chain {
        let mut params = CertificateParams::default();
        params.subject_alt_names = self.uris.into_iter().map(|uri| SanType::URI(uri.try_into().unwrap())).collect();
        params.extended_key_usages = self.purposes;
        params.serial_number = Some(SerialNumber::from_slice(self.serial));
        if self.is_authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        params.not_before = time::OffsetDateTime::from_unix_timestamp(now_s).unwrap();
        let own = KeyPair::generate().unwrap();
        let issuer = Issuer::from_ca_cert_der(signer, key).unwrap();
        let certificate = params.signed_by(&own, &issuer).unwrap();
        (vec![certificate.der().clone(), signer.clone()], PrivateKeyDer::Pkcs8(own.serialize_der().into()))
    }
}

fn key_of(pem: &str) -> KeyPair {
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap();
    KeyPair::from_der_and_sign_algo(&key, &rcgen::PKCS_ECDSA_P256_SHA256).unwrap()
}

fn forged_by(authority: &Authority, forged: Forged) -> Chain {
    let key = key_of(authority.to_pem().expose());
    forged.by(authority.certificate().der(), key, (NOW_MS / 1000) as i64)
}

type Chain = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The errors of a server to which a caller shows it, and of a client to which a server does.
fn errors_at_both_ends(node: &Node, (chain, key): Chain) -> [rustls::Error; 2] {
    let certified = CertifiedKey::from_der(chain, key, &default_provider()).unwrap();
    let single = Arc::new(SingleCertAndKey::from(certified));
    let mut client = ClientConfig::clone(&node.client(None));
    client.client_auth_cert_resolver = Arc::clone(&single) as _;
    let by_server = connect(Arc::new(client), node).err().unwrap().server.unwrap();
    let other = credential(&authority(), NodeId::random(), Purpose::Node, NOW_MS);
    let mut impostor = Node::with(other, node.trust.authorities());
    let mut server = ServerConfig::clone(&impostor.link_server);
    server.cert_resolver = single;
    impostor.link_server = Arc::new(server);
    [by_server, connect(node.client(None), &impostor).err().unwrap().client.unwrap()]
}

fn refused_at_both_ends(node: &Node, chain: Chain) -> [Refusal; 2] {
    errors_at_both_ends(node, chain).map(|error| refusal(&error).unwrap_or_else(|| panic!("{error:?}")))
}

#[test]
fn the_right_authority_with_the_name_of_another_cluster_is_refused() {
    let authority = authority();
    let node = Node::new(&authority);
    let (theirs, ours) = (ClusterId::random(), authority.certificate().cluster);
    let uri = format!("flintkv://{theirs}/node/{}", NodeId::random());
    let refused = refused_at_both_ends(&node, forged_by(&authority, Forged::naming(uri)));
    assert_eq!(refused, [Refusal::OtherCluster { theirs, ours }, Refusal::OtherCluster { theirs, ours }]);
}

#[test]
fn a_certificate_must_name_exactly_one_node() {
    let authority = authority();
    let node = Node::new(&authority);
    let cluster = authority.certificate().cluster;
    let id = NodeId::random();
    let wrong = [
        vec![],
        vec![format!("flintkv://{cluster}")],
        vec![format!("flintkv://{cluster}/controller/{id}")],
        vec![format!("flintkv://{cluster}/node/{id}/x")],
        vec![format!("https://{cluster}/node/{id}")],
        vec![format!("flintkv://{cluster}/node/{id}"), format!("flintkv://{cluster}/node/{}", node.id)],
    ];
    for uris in wrong {
        let forged = Forged { uris: uris.clone(), ..Forged::naming(String::new()) };
        let not_issued = Refusal::Certificate(CertificateError::NotIssued);
        assert_eq!(
            refused_at_both_ends(&node, forged_by(&authority, forged)),
            [not_issued.clone(), not_issued],
            "{uris:?}"
        );
    }
    // The authority's serial numbers have 16 bytes.
    for serial in [&[0x55; 15][..], &[0x55; 17], &[1]] {
        let forged = Forged { serial, ..Forged::naming(format!("flintkv://{cluster}/node/{id}")) };
        let not_issued = Refusal::Certificate(CertificateError::NotIssued);
        assert_eq!(refused_at_both_ends(&node, forged_by(&authority, forged)), [not_issued.clone(), not_issued]);
    }
}

#[test]
fn a_certificate_for_etcd_is_none_for_a_link() {
    let authority = authority();
    let node = Node::new(&authority);
    let etcd = Node::with(
        credential(&authority, NodeId::random(), Purpose::Etcd, NOW_MS),
        vec![authority.certificate().clone()],
    );
    assert_eq!(node.link(&etcd).err().unwrap().by_client(), Refusal::NotANode);
    assert_eq!(etcd.link(&node).err().unwrap().by_server(), Refusal::NotANode);
}

#[test]
fn a_node_cannot_sign_for_another() {
    let authority = authority();
    let (node, thief) = (Node::new(&authority), Node::new(&authority));
    let uri = format!("flintkv://{}/node/{}", authority.certificate().cluster, node.id);
    let own = thief.current.get().to_pem();
    let own_certificate = CertificateDer::from_pem_slice(own.expose().as_bytes()).unwrap();
    // Even if the forged one says that it is an authority itself.
    for is_authority in [false, true] {
        let forged = Forged { is_authority, ..Forged::naming(uri.clone()) };
        let forged = forged.by(&own_certificate, key_of(own.expose()), (NOW_MS / 1000) as i64);
        for error in errors_at_both_ends(&node, forged) {
            assert!(matches!(error, rustls::Error::InvalidCertificate(_)), "{error:?}");
        }
    }
}

/// Certificates are public: only who has the key may use one.
#[test]
fn a_certificate_is_of_no_use_without_its_key() {
    let authority = authority();
    let (node, victim) = (Node::new(&authority), Node::new(&authority));
    let chain = victim.current.get().to_pem();
    let chain: Vec<_> = CertificateDer::pem_slice_iter(chain.expose().as_bytes()).map(Result::unwrap).collect();
    let own = PrivateKeyDer::Pkcs8(KeyPair::generate().unwrap().serialize_der().into());
    let own = rustls::crypto::ring::sign::any_supported_type(&own).unwrap();
    let single = Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, own)));
    let mut client = ClientConfig::clone(&node.client(None));
    client.client_auth_cert_resolver = Arc::clone(&single) as _;
    assert!(connect(Arc::new(client), &node).err().unwrap().server.is_some());

    let mut impostor = Node::new(&authority);
    let (mut links, mut joins) =
        (ServerConfig::clone(&impostor.link_server), ServerConfig::clone(&impostor.join_server));
    (links.cert_resolver, joins.cert_resolver) = (Arc::clone(&single) as _, single);
    (impostor.link_server, impostor.join_server) = (Arc::new(links), Arc::new(joins));
    let joining = pki::join_client(authority.certificate().fingerprint(), Arc::clone(&node.clock) as _);
    for config in [node.client(Some(victim.id)), joining] {
        let failed = connect_and_send(config, &impostor, b"a secret").err().unwrap();
        assert!(failed.client.is_some(), "{failed:?}");
        assert_eq!(failed.received, b"");
    }
}

#[test]
fn a_certificate_counts_between_its_two_moments_only() {
    let authority = authority();
    let (node, peer) = (Node::new(&authority), Node::new(&authority));
    let expired_ms = peer.current.get().identity().expires_ms;
    assert_eq!(expired_ms, NOW_MS + limits::CERTIFICATE_LIFE_MS);
    // The peer's clock has stopped, so that it refuses nobody itself.
    for (now_ms, refused) in [
        (expired_ms + 1000, Refusal::Expired { expired_ms, now_ms: expired_ms + 1000 }),
        (NOW_MS - HOUR_MS, Refusal::NotYetValid { valid_from_ms: NOW_MS - 5 * MINUTE_MS, now_ms: NOW_MS - HOUR_MS }),
    ] {
        node.clock.set(now_ms);
        assert_eq!(node.link(&peer).err().unwrap().by_client(), refused);
        assert_eq!(peer.link(&node).err().unwrap().by_server(), refused);
    }
    for now_ms in [expired_ms - 1000, NOW_MS - 4 * MINUTE_MS] {
        node.clock.set(now_ms);
        node.link(&peer).unwrap();
        peer.link(&node).unwrap();
    }
    let text = Refusal::NotYetValid { valid_from_ms: NOW_MS, now_ms: NOW_MS - HOUR_MS }.to_string();
    assert!(
        text.contains("2026-11-21T18:04:05.000Z") && text.contains("2026-11-21T17:04:05.000Z"),
        "both clocks: {text}"
    );
}

#[test]
fn another_node_at_the_address_is_not_the_wanted_one() {
    let authority = authority();
    let (a, b, c) = (Node::new(&authority), Node::new(&authority), Node::new(&authority));
    let refused = connect(a.client(Some(b.id)), &c).err().unwrap();
    assert_eq!(refused.by_client(), Refusal::OtherNode { found: c.id, wanted: b.id });
    assert_eq!(connect(a.client(None), &c).unwrap().callers_peer().node, c.id);
}

#[test]
fn a_node_that_was_shut_out_gets_no_new_link() {
    let authority = authority();
    let (a, bad) = (Node::new(&authority), Node::new(&authority));
    // The settings are made once, so a session could be resumed.
    let (to_bad, to_a) = (a.client(None), bad.client(None));
    let mut living = connect(Arc::clone(&to_a), &a).unwrap();
    living.answer(b"a first reply, behind which the server would send tickets");
    a.trust.set_shut_out(&[ShutOut::until_it_joins_again(bad.id, NOW_MS), ShutOut::for_good(NodeId::random())]);

    let issued_before_ms = NOW_MS + limits::CLOCKS_APART_MS_MAX;
    let refused = Refusal::ShutOut { node: bad.id, issued_ms: NOW_MS, issued_before_ms };
    assert_eq!(connect(Arc::clone(&to_a), &a).err().unwrap().by_server(), refused);
    assert_eq!(connect(to_bad, &bad).err().unwrap().by_client(), refused);
    // The link that lives: its user learns by asking.
    assert_eq!(a.trust.admits(&living.answerers_peer()), Err(refused));
    assert_eq!(living.ask(b"still there"), b"still there");

    // A certificate of after the moment counts, and one of before does not count by being shown again.
    let again_ms = issued_before_ms;
    let old = bad.current.get();
    bad.current.replace(credential(&authority, bad.id, Purpose::Node, again_ms)).unwrap();
    for node in [&a, &bad] {
        node.clock.set(again_ms);
    }
    connect(to_a, &a).unwrap();
    assert!(a.trust.admits(old.identity()).is_err());
    a.trust.set_shut_out(&[ShutOut::for_good(bad.id), ShutOut::until_it_joins_again(bad.id, NOW_MS)]);
    assert!(matches!(bad.link(&a).err().unwrap().by_server(), Refusal::ShutOut { .. }), "the later moment counts");
    a.trust.set_shut_out(&[]);
    bad.link(&a).unwrap();
}

#[test]
fn a_node_that_is_shut_out_may_ask_whether_it_is() {
    let authority = authority();
    let (a, bad) = (Node::new(&authority), Node::new(&authority));
    a.trust.set_shut_out(&[ShutOut::until_it_joins_again(bad.id, NOW_MS)]);
    let mut asked = connect(bad.client_of(None, STANDING_PROTOCOL), &a).unwrap();
    assert_eq!(asked.server.alpn_protocol(), Some(STANDING_PROTOCOL));
    let peer = asked.answerers_peer();
    assert_eq!(peer.node, bad.id);
    let shut_out = a.trust.shut_out(&peer).unwrap();
    assert_eq!(shut_out.since_ms(), Some(NOW_MS));
    assert_eq!(ShutOut::for_good(bad.id).since_ms(), None);
    assert_eq!(asked.answer(b"since then"), b"since then");
    // Nothing else, and nobody else.
    for protocol in [LINK_PROTOCOL, CALL_PROTOCOL] {
        let refused = connect(bad.client_of(None, protocol), &a).err().unwrap().by_server();
        assert!(matches!(refused, Refusal::ShutOut { .. }), "{refused:?}");
    }
    let foreign = Node::new(&Authority::create("other", NOW_MS).unwrap());
    let stranger = Node { trust: Arc::clone(&bad.trust), ..foreign };
    let refused = connect(stranger.client_of(None, STANDING_PROTOCOL), &a).err().unwrap().by_server();
    assert_eq!(refused, Refusal::OtherAuthority);
}

#[test]
fn a_link_counts_as_long_as_its_authority_does() {
    let old = authority();
    let new = old.successor(NOW_MS);
    let both = || vec![old.certificate().clone(), new.certificate().clone()];
    let (a, b) = (Node::new(&old), Node::with(credential(&new, NodeId::random(), Purpose::Node, NOW_MS), both()));
    a.trust.set_authorities(both()).unwrap();
    let link = a.link(&b).unwrap();
    let (of_a, of_b) = (pki::peer_certificate(&link.server).unwrap(), pki::peer_certificate(&link.client).unwrap());
    // Its certificate has ended meanwhile, which was renewed.
    let before = (b.trust.changes(), a.trust.changes());
    for node in [&a, &b] {
        node.clock.set(NOW_MS + limits::CERTIFICATE_LIFE_MS + HOUR_MS);
    }
    assert_eq!((b.trust.still_admits(&of_a), a.trust.still_admits(&of_b)), (Ok(()), Ok(())));
    assert_eq!((b.trust.changes(), a.trust.changes()), before);
    for node in [&a, &b] {
        node.trust.set_authorities(vec![new.certificate().clone()]).unwrap();
    }
    assert_eq!(b.trust.still_admits(&of_a), Err(Refusal::OtherAuthority));
    assert_eq!(a.trust.still_admits(&of_b), Ok(()));
    a.trust.set_shut_out(&[ShutOut::for_good(b.id)]);
    assert!(matches!(a.trust.still_admits(&of_b), Err(Refusal::ShutOut { .. })));
    assert_eq!(a.trust.changes(), before.1 + 2);
    // The same list again is no change.
    a.trust.set_shut_out(&[ShutOut::for_good(b.id)]);
    assert_eq!(a.trust.changes(), before.1 + 2);
}

#[test]
fn without_a_certificate_there_is_no_link() {
    let authority = authority();
    let node = Node::new(&authority);
    let bare = |protocols: &[&[u8]]| {
        let builder = ClientConfig::builder_with_details(Arc::new(default_provider()), Arc::clone(&node.clock) as _);
        let builder = builder.with_protocol_versions(&[&rustls::version::TLS13]).unwrap();
        let mut config = builder.dangerous().with_custom_certificate_verifier(anyone()).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Arc::new(config)
    };
    for protocols in [&[LINK_PROTOCOL][..], &[], &[JOIN_PROTOCOL, LINK_PROTOCOL], &[LINK_PROTOCOL, JOIN_PROTOCOL]] {
        assert_eq!(connect(bare(protocols), &node).err().unwrap().by_server(), Refusal::NoCertificate, "{protocols:?}");
    }
    let mut joining = connect(bare(&[JOIN_PROTOCOL]), &node).unwrap();
    assert_eq!(joining.server.alpn_protocol(), Some(JOIN_PROTOCOL));
    assert_eq!(pki::peer_identity(&joining.server), Err(Refusal::NoCertificate));
    assert_eq!(joining.ask(b"a request"), b"a request");
}

#[test]
fn a_caller_with_tls_1_2_is_refused() {
    let authority = authority();
    let node = Node::new(&authority);
    let builder = ClientConfig::builder_with_details(Arc::new(default_provider()), Arc::clone(&node.clock) as _);
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS12]).unwrap();
    let resolver = Arc::clone(&node.current) as Arc<dyn rustls::client::ResolvesClientCert>;
    let config = builder.dangerous().with_custom_certificate_verifier(anyone()).with_client_cert_resolver(resolver);
    let failed = connect(Arc::new(config), &node).err().unwrap();
    let refused = rustls::Error::PeerIncompatible(PeerIncompatible::Tls12NotOfferedOrEnabled);
    assert_eq!(failed.server, Some(refused));
}

#[test]
fn a_certificate_is_renewed_while_links_live() {
    let authority = authority();
    let (a, b) = (Node::new(&authority), Node::new(&authority));
    let (from_a, from_b) = (a.client(None), b.client(None));
    let mut living = connect(Arc::clone(&from_a), &b).unwrap();
    let first = *a.current.get().identity();
    let due_ms = NOW_MS + limits::CERTIFICATE_LIFE_MS / 3 * 2 + MINUTE_MS;
    assert!(!first.needs_renewal(due_ms - 2 * MINUTE_MS), "a third is left");
    assert!(first.needs_renewal(due_ms) && first.needs_renewal(first.expires_ms + DAY_MS));

    a.current.replace(credential(&authority, a.id, Purpose::Node, due_ms)).unwrap();
    for node in [&a, &b] {
        node.clock.set(due_ms);
    }
    assert_eq!((living.ask(b"on"), living.answer(b"and on")), (b"on".to_vec(), b"and on".to_vec()));
    assert_eq!(living.answerers_peer(), first, "a link keeps the certificate of its handshake");
    let renewed = *a.current.get().identity();
    assert_ne!(renewed.serial, first.serial);
    assert_eq!(connect(from_a, &b).unwrap().answerers_peer(), renewed);
    assert_eq!(connect(from_b, &a).unwrap().callers_peer(), renewed);
}

#[test]
fn only_a_newer_certificate_of_the_same_node_replaces_one() {
    let authority = authority();
    let node = Node::new(&authority);
    let of = |id, purpose, now_ms| credential(&authority, id, purpose, now_ms);
    let replace = |credential| node.current.replace(credential);
    assert_eq!(replace(of(NodeId::random(), Purpose::Node, NOW_MS)), Err(CredentialError::OtherIdentity));
    assert_eq!(replace(of(node.id, Purpose::Etcd, NOW_MS)), Err(CredentialError::OtherIdentity));
    assert_eq!(
        replace(credential(&self::authority(), node.id, Purpose::Node, NOW_MS)),
        Err(CredentialError::OtherIdentity)
    );
    assert_eq!(replace(of(node.id, Purpose::Node, NOW_MS - 1000)), Err(CredentialError::Older));
    assert_eq!(replace(of(node.id, Purpose::Node, NOW_MS)), Ok(()));
}

#[test]
fn another_authority_takes_over_without_a_gap() {
    let old = authority();
    let (a, b) = (Node::new(&old), Node::new(&old));
    let new = old.successor(NOW_MS);
    assert_eq!(new.certificate().cluster, old.certificate().cluster);
    assert_ne!(new.certificate().fingerprint(), old.certificate().fingerprint());
    assert!(!old.certificate().needs_successor(NOW_MS));
    assert!(
        old.certificate().needs_successor(NOW_MS + limits::AUTHORITY_LIFE_MS - 2 * limits::CERTIFICATE_LIFE_MS + 1000)
    );
    let both = vec![new.certificate().clone(), old.certificate().clone()];
    // First every node trusts both, then one after the other gets a new certificate, then nobody trusts the old.
    for node in [&a, &b] {
        node.trust.set_authorities(both.clone()).unwrap();
    }
    a.current.replace(credential(&new, a.id, Purpose::Node, NOW_MS)).unwrap();
    a.link(&b).unwrap();
    b.link(&a).unwrap();
    a.trust.set_authorities(vec![new.certificate().clone()]).unwrap();
    assert_eq!(b.link(&a).err().unwrap().by_server(), Refusal::OtherAuthority);
    assert_eq!(a.link(&b).err().unwrap().by_client(), Refusal::OtherAuthority);
    b.current.replace(credential(&new, b.id, Purpose::Node, NOW_MS)).unwrap();
    a.link(&b).unwrap();
    b.link(&a).unwrap();
}

#[test]
fn a_nodes_certificate_is_no_authority() {
    let authority = authority();
    let issued = authority.issue(&checked(&NodeKey::generate()), NodeId::random(), Purpose::Node, &[], NOW_MS).unwrap();
    assert_eq!(AuthorityCertificate::from_pem(&issued.certificate), Err(CertificateError::NotAnAuthority));
    // Nor is one that calls itself so, without the right to sign.
    let cluster = authority.certificate().cluster;
    let (chain, _) = forged_by(&authority, Forged::naming(format!("flintkv://{cluster}")));
    assert_eq!(AuthorityCertificate::from_der(chain[0].clone()), Err(CertificateError::NotAnAuthority));
    let certificate = authority.certificate();
    assert_eq!(AuthorityCertificate::from_pem(&certificate.pem()), Ok(certificate.clone()));
}

/// What etcd, and any other standard implementation, sees.
#[test]
fn etcd_is_known_by_its_name_and_revoked_by_serial_numbers() {
    let authority = authority();
    let name = pki::etcd_server_name(authority.certificate().cluster);
    let issue = |purpose| {
        let addresses = ["10.0.0.1".to_owned(), "node-1.example".to_owned()];
        let key = NodeKey::generate();
        let issued = authority.issue(&checked(&key), NodeId::random(), purpose, &addresses, NOW_MS).unwrap();
        (CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap(), issued.identity)
    };
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate().der().clone()).unwrap();
    let (roots, provider) = (Arc::new(roots), Arc::new(default_provider()));
    let now = UnixTime::since_unix_epoch(Duration::from_millis(NOW_MS));
    let server =
        WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider)).build().unwrap();
    let is_named = |certificate: &CertificateDer<'_>, name: &str| {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        server.verify_server_cert(certificate, &[], &name, &[], now).is_ok()
    };
    let ((node, of_node), (etcd, of_etcd)) = (issue(Purpose::Node), issue(Purpose::Etcd));
    for address in ["10.0.0.1", "node-1.example"] {
        assert!(is_named(&node, address) && is_named(&etcd, address), "{address}");
    }
    assert!(is_named(&etcd, &name) && !is_named(&node, &name));
    assert!(!is_named(&etcd, "10.0.0.2"));

    let is_admitted = |certificate: &CertificateDer<'_>, revoked: &[Serial]| {
        let list = CertificateRevocationListDer::from(authority.revocation_list(revoked, 7, NOW_MS));
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        builder.with_crls([list]).build().unwrap().verify_client_cert(certificate, &[], now).map(|_| ())
    };
    let revoked = Err(rustls::Error::InvalidCertificate(rustls::CertificateError::Revoked));
    assert_eq!((is_admitted(&node, &[]), is_admitted(&etcd, &[])), (Ok(()), Ok(())));
    assert_eq!(
        (is_admitted(&node, &[of_node.serial]), is_admitted(&etcd, &[of_node.serial])),
        (revoked.clone(), Ok(()))
    );
    assert_eq!(is_admitted(&etcd, &[of_node.serial, of_etcd.serial]), revoked);
    for listed in [&[][..], &[of_node.serial, of_etcd.serial]] {
        let list = authority.revocation_list(listed, 7, NOW_MS);
        assert_eq!(revoked_serials(&list).as_deref(), Some(listed));
        assert_eq!(revoked_serials(&list[..list.len() - 1]), None);
        assert_eq!(revoked_serials(&[&list[..], b"x"].concat()), None);
    }
}

#[test]
fn trust_is_in_one_cluster() {
    let (east, west) = (authority(), authority());
    let certificates =
        |authorities: &[&Authority]| authorities.iter().map(|one| one.certificate().clone()).collect::<Vec<_>>();
    assert_eq!(Trust::new(Vec::new()).err(), Some(TrustError::Count(0)));
    let trust = Trust::new(certificates(&[&east])).unwrap();
    let other = west.certificate().cluster;
    assert_eq!(trust.set_authorities(certificates(&[&east, &west])), Err(TrustError::OtherCluster(other)));
    assert_eq!(trust.set_authorities(certificates(&[&east; 5])), Err(TrustError::Count(5)));
    assert_eq!(trust.authorities(), certificates(&[&east]), "the previous ones stay");
}

#[test]
fn what_a_node_shows_is_checked_before() {
    let authority = authority();
    let (id, key) = (NodeId::random(), NodeKey::generate());
    let issued = authority.issue(&checked(&key), id, Purpose::Node, &[], NOW_MS).unwrap();
    let new = |key: &NodeKey, authority: &Authority, now_ms| {
        Credential::new(key, &issued.certificate, authority.certificate(), now_ms).err()
    };
    assert_eq!(new(&key, &authority, NOW_MS), None);
    assert_eq!(new(&NodeKey::generate(), &authority, NOW_MS), Some(CredentialError::OtherKey));
    assert_eq!(new(&key, &self::authority(), NOW_MS), Some(CredentialError::OtherAuthority));
    assert_eq!(new(&key, &authority.successor(NOW_MS), NOW_MS), Some(CredentialError::OtherAuthority));
    let behind_ms = NOW_MS - HOUR_MS;
    let valid_from_ms = NOW_MS - 5 * MINUTE_MS;
    assert_eq!(
        new(&key, &authority, behind_ms),
        Some(CredentialError::NotYetValid { valid_from_ms, now_ms: behind_ms })
    );
    let expired_ms = issued.identity.expires_ms;
    assert_eq!(new(&key, &authority, expired_ms), Some(CredentialError::Expired { expired_ms, now_ms: expired_ms }));
    let both_clocks = CredentialError::NotYetValid { valid_from_ms, now_ms: behind_ms }.to_string();
    assert!(both_clocks.contains("17:59:05") && both_clocks.contains("17:04:05"), "{both_clocks}");
    // Across its file too.
    let credential = Credential::new(&key, &issued.certificate, authority.certificate(), NOW_MS).unwrap();
    let again = Credential::from_pem(&credential.to_pem(), NOW_MS).unwrap();
    assert_eq!((again.identity(), again.authority()), (credential.identity(), authority.certificate()));
    assert_eq!(CurrentCredential::new(again).get().identity().node, id);
}

#[test]
fn an_authority_survives_its_file_and_signs_on() {
    let authority = authority();
    let again = Authority::from_pem(&authority.to_pem()).unwrap();
    assert_eq!(again.certificate(), authority.certificate());
    assert_eq!((&*again.certificate().name, again.certificate().issued_ms), ("east", NOW_MS));
    assert_eq!(again.certificate().expires_ms, NOW_MS + limits::AUTHORITY_LIFE_MS);
    Node::new(&again).link(&Node::new(&authority)).unwrap();
    let other_key = self::authority().to_pem();
    let key_at = other_key.expose().find("-----BEGIN PRIVATE").unwrap();
    let mixed = authority.certificate().pem() + &other_key.expose()[key_at..];
    let mixed = Authority::from_pem(&SecretText::new(mixed));
    assert_eq!(mixed.err(), Some(AuthorityError::OtherKey));
    // Its last certificate ends with it, and then it issues none.
    let late_ms = authority.certificate().expires_ms - DAY_MS;
    let last = credential(&authority, NodeId::random(), Purpose::Node, late_ms);
    assert_eq!(last.identity().expires_ms, authority.certificate().expires_ms);
    let (key, expired_ms) = (NodeKey::generate(), authority.certificate().expires_ms);
    let none = authority.issue(&checked(&key), NodeId::random(), Purpose::Node, &[], expired_ms);
    assert_eq!(none, Err(AuthorityError::Expired { expired_ms, now_ms: expired_ms }));
}

/// Identities lie in the cluster's state.
#[test]
fn an_identity_is_a_plain_record() {
    let identity = *credential(&authority(), NodeId::random(), Purpose::Etcd, NOW_MS).identity();
    let text = serde_json::to_string(&identity).unwrap();
    assert_eq!(serde_json::from_str::<Identity>(&text).unwrap(), identity);
    let shut_out = ShutOut::for_good(identity.node);
    assert_eq!(
        serde_json::to_string(&shut_out).unwrap(),
        format!("{{\"node\":\"{}\",\"issued_before_ms\":18446744073709551615}}", identity.node)
    );
}
