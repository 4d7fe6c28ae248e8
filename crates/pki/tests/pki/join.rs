//! A node becomes a member, and gets further certificates.

use crate::common::{DAY_MS, Failed, HOUR_MS, Link, MINUTE_MS, NOW_MS, Node, connect, connect_and_send, credential};
use pki::{
    Admission, Authority, Candidate, ClusterId, Credential, CredentialError, Identity, IssueAnswer, IssueError,
    IssueRequest, JOIN_PROTOCOL, JoinAnswer, JoinError, JoinRequest, Known, MembershipError, MessageError, NodeId,
    NodeKey, Purpose, Refusal, Role, ShutOut, Token, TokenRecord, admit, decode, encode, issue, join_client, limits,
};
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use std::sync::Arc;

struct Cluster {
    authority: Authority,
    /// The node that is asked.
    issuer: Node,
}

impl Cluster {
    fn new() -> Cluster {
        let authority = Authority::create("east", NOW_MS).unwrap();
        Cluster { issuer: Node::new(&authority), authority }
    }

    fn candidate(&self) -> (Candidate, TokenRecord) {
        let (token, record) = Token::create(self.authority.certificate(), None, NOW_MS);
        (Candidate { token, node: NodeId::random(), key: NodeKey::generate() }, record)
    }

    fn admit(&self, request: &JoinRequest, known: Known<'_>, now_ms: u64) -> Result<Admission, JoinError> {
        admit(&self.authority, &self.issuer.trust, request, known, now_ms)
    }
}

fn request(candidate: &Candidate) -> JoinRequest {
    JoinRequest {
        secret: candidate.token.secret.clone(),
        cluster: None,
        node: candidate.node,
        name: "node-2".to_owned(),
        zone: Some("b".to_owned()),
        role: Role::Data,
        addresses: vec!["10.0.0.2".to_owned(), "node-2.example".to_owned()],
        peer_port: 8380,
        request: candidate.key.request(),
        clock_ms: NOW_MS,
    }
}

fn known(token: &TokenRecord) -> Known<'_> {
    Known { token: Some(token), name_owner: None, is_member: false }
}

fn dial(candidate: &Candidate, to: &Node, data: &[u8]) -> Result<Link, Box<Failed>> {
    connect_and_send(join_client(candidate.token.authority, Arc::clone(&to.clock) as _), to, data)
}

#[test]
fn a_node_joins_with_a_token_and_gets_links() {
    let cluster = Cluster::new();
    let (candidate, record) = cluster.candidate();
    let token = Token::parse(&candidate.token.reveal()).unwrap();
    let candidate = Candidate { token, ..candidate };
    let mut link = dial(&candidate, &cluster.issuer, b"").unwrap();
    assert_eq!(link.client.alpn_protocol(), Some(JOIN_PROTOCOL));
    let received = link.ask(&encode(&request(&candidate)));
    let asked: JoinRequest = decode(&received).unwrap();
    assert_eq!((&*asked.name, asked.zone.as_deref(), asked.role), ("node-2", Some("b"), Role::Data));
    assert_eq!(asked.secret.sha256(), record.secret_sha256, "the record is found by this");
    let admission = cluster.admit(&asked, known(&record), NOW_MS).unwrap();
    let used = admission.token.used.unwrap();
    assert_eq!((used.node, used.used_ms), (candidate.node, NOW_MS));
    let reply: Result<JoinAnswer, JoinError> = Ok(admission.answer);
    let answer: Result<JoinAnswer, JoinError> = decode(&link.answer(&encode(&reply))).unwrap();
    let member = candidate.accept(&answer.unwrap(), NOW_MS).unwrap();
    assert_eq!(*member.credential.identity(), admission.issued);
    let member = Node::with(member.credential, member.authorities);
    assert_eq!(member.link(&cluster.issuer).unwrap().answerers_peer().node, candidate.node);
    assert_eq!(cluster.issuer.link(&member).unwrap().callers_peer().node, candidate.node);
}

/// Somebody in between answers instead of the cluster.
#[test]
fn the_secret_is_not_sent_to_another_authority() {
    let (cluster, thief) = (Cluster::new(), Cluster::new());
    let (candidate, _) = cluster.candidate();
    let message = encode(&request(&candidate));
    let failed = dial(&candidate, &thief.issuer, &message).err().unwrap();
    assert_eq!(failed.by_client(), Refusal::OtherFingerprint { wanted: candidate.token.authority });
    assert_eq!(failed.received, b"");

    // The cluster's own certificate is no secret: the thief sends it along.
    let mut with_ours = Node::new(&thief.authority);
    let (chain, key) = parts(thief.issuer.current.get().to_pem().expose());
    let chain = vec![chain[0].clone(), cluster.authority.certificate().der().clone(), chain[1].clone()];
    let certified = CertifiedKey::from_der(chain, key, &default_provider()).unwrap();
    let mut config = ServerConfig::clone(&with_ours.join_server);
    config.cert_resolver = Arc::new(SingleCertAndKey::from(certified));
    with_ours.join_server = Arc::new(config);
    let failed = dial(&candidate, &with_ours, &message).err().unwrap();
    assert_eq!(failed.by_client(), Refusal::OtherAuthority);
    assert_eq!(failed.received, b"");
    // Nor to the cluster's etcd, which may run under another user.
    let authorities = vec![cluster.authority.certificate().clone()];
    let etcd = Node::with(credential(&cluster.authority, NodeId::random(), Purpose::Etcd, NOW_MS), authorities);
    let failed = dial(&candidate, &etcd, &message).err().unwrap();
    assert_eq!((failed.by_client(), &*failed.received), (Refusal::NotANode, &b""[..]));

    assert_eq!(dial(&candidate, &cluster.issuer, &message).unwrap().ask(b""), message, "the right one gets it");
}

fn parts(pem: &str) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let chain = CertificateDer::pem_slice_iter(pem.as_bytes()).map(Result::unwrap).collect();
    (chain, PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap())
}

#[test]
fn a_node_whose_clock_is_an_hour_behind_is_told_both_clocks() {
    let cluster = Cluster::new();
    let (candidate, record) = cluster.candidate();
    let now_ms = NOW_MS - HOUR_MS;
    let behind = crate::common::TestClock::at(now_ms);
    let config = join_client(candidate.token.authority, behind);
    let refused = connect(config, &cluster.issuer).err().unwrap().by_client();
    assert_eq!(refused, Refusal::NotYetValid { valid_from_ms: NOW_MS - 5 * MINUTE_MS, now_ms });
    // The issuer's certificate may be older: then the request tells.
    for node_ms in [now_ms, NOW_MS + HOUR_MS, 0, u64::MAX] {
        let asked = JoinRequest { clock_ms: node_ms, ..request(&candidate) };
        let error = cluster.admit(&asked, known(&record), NOW_MS).unwrap_err();
        assert_eq!(error, JoinError::ClocksApart { node_ms, issuer_ms: NOW_MS });
    }
    let text = JoinError::ClocksApart { node_ms: now_ms, issuer_ms: NOW_MS }.to_string();
    assert!(text.contains("17:04:05") && text.contains("18:04:05"), "{text}");
    for node_ms in [NOW_MS - 5 * MINUTE_MS, NOW_MS + 5 * MINUTE_MS] {
        let asked = JoinRequest { clock_ms: node_ms, ..request(&candidate) };
        let answer = cluster.admit(&asked, known(&record), NOW_MS).unwrap().answer;
        candidate.accept(&answer, node_ms).unwrap();
    }
    let answer = cluster.admit(&request(&candidate), known(&record), NOW_MS).unwrap().answer;
    let valid_from_ms = NOW_MS - 5 * MINUTE_MS;
    let late = MembershipError::Credential(CredentialError::NotYetValid { valid_from_ms, now_ms });
    assert_eq!(candidate.accept(&answer, now_ms).err(), Some(late));
}

#[test]
fn a_token_serves_one_node_for_one_hour() {
    let cluster = Cluster::new();
    let (candidate, record) = cluster.candidate();
    let asked = request(&candidate);
    assert_eq!(candidate.token.expires_ms, NOW_MS + HOUR_MS);
    let late = |now_ms| cluster.admit(&JoinRequest { clock_ms: now_ms, ..asked.clone() }, known(&record), now_ms).err();
    assert_eq!(late(NOW_MS + HOUR_MS - 1), None);
    let expired = JoinError::ExpiredToken { expired_ms: NOW_MS + HOUR_MS, issuer_ms: NOW_MS + HOUR_MS };
    assert_eq!(late(NOW_MS + HOUR_MS), Some(expired.clone()));
    assert_eq!(
        expired.to_string(),
        "the token ended at 2026-11-21T19:04:05.000Z by the clock of the node that was asked, which says 2026-11-21T19:04:05.000Z now"
    );

    let used = cluster.admit(&asked, known(&record), NOW_MS).unwrap().token;
    let another = JoinRequest { node: NodeId::random(), name: "node-3".to_owned(), ..asked.clone() };
    assert_eq!(cluster.admit(&another, known(&used), NOW_MS).err(), Some(JoinError::UsedToken));
    // Somebody who has read the token and the node's id, but does not have its key.
    let copied = JoinRequest { request: NodeKey::generate().request(), ..asked.clone() };
    assert_eq!(cluster.admit(&copied, known(&used), NOW_MS).err(), Some(JoinError::UsedToken));
    // The answer was lost, and the node asks again, perhaps another issuer.
    let as_member = Known { name_owner: Some(candidate.node), is_member: true, ..known(&used) };
    let again = cluster.admit(&asked, as_member, NOW_MS + MINUTE_MS).unwrap();
    assert_eq!(again.token, used);
    candidate.accept(&again.answer, NOW_MS).unwrap();
    assert!(matches!(cluster.admit(&asked, as_member, NOW_MS + HOUR_MS), Err(JoinError::ExpiredToken { .. })));
}

#[test]
fn without_the_right_token_nothing_is_learnt() {
    let cluster = Cluster::new();
    let (candidate, _) = cluster.candidate();
    let (_, other) = cluster.candidate();
    let taken = Known { token: None, name_owner: Some(NodeId::random()), is_member: true };
    let wrong = JoinRequest { name: "not a name".to_owned(), request: "no request".to_owned(), ..request(&candidate) };
    assert_eq!(cluster.admit(&wrong, taken, NOW_MS).err(), Some(JoinError::WrongToken));
    assert_eq!(
        cluster.admit(&wrong, Known { token: Some(&other), ..taken }, NOW_MS).err(),
        Some(JoinError::WrongToken)
    );
}

#[test]
fn every_other_refusal_says_what_to_do() {
    let cluster = Cluster::new();
    let (candidate, record) = cluster.candidate();
    let (asked, ours) = (request(&candidate), cluster.authority.certificate().cluster);
    let refused = |asked: &JoinRequest, known| cluster.admit(asked, known, NOW_MS).unwrap_err();
    let theirs = ClusterId::random();
    let of_other = JoinRequest { cluster: Some(theirs), ..asked.clone() };
    assert_eq!(refused(&of_other, known(&record)), JoinError::OtherCluster { node: theirs, issuer: ours });
    let of_ours = JoinRequest { cluster: Some(ours), ..asked.clone() };
    assert!(cluster.admit(&of_ours, known(&record), NOW_MS).is_ok());

    let by = NodeId::random();
    let name_taken = Known { name_owner: Some(by), ..known(&record) };
    assert_eq!(refused(&asked, name_taken), JoinError::NameTaken { name: "node-2".to_owned(), by });
    // A state directory that was copied, with a token of its own.
    let id_taken = Known { is_member: true, ..known(&record) };
    let copied = refused(&asked, id_taken);
    assert_eq!(copied, JoinError::IdTaken { node: candidate.node });
    assert!(copied.to_string().contains("is a copy"), "{copied}");

    let field = |asked: JoinRequest| match refused(&asked, known(&record)) {
        JoinError::Invalid { field, .. } => field,
        other => panic!("{other:?}"),
    };
    let addresses = |list: &[&str]| list.iter().map(|&address| address.to_owned()).collect();
    assert_eq!(field(JoinRequest { name: String::new(), ..asked.clone() }), "name");
    assert_eq!(field(JoinRequest { zone: Some("a b".to_owned()), ..asked.clone() }), "zone");
    assert_eq!(field(JoinRequest { addresses: addresses(&["10.0.0.2:8380"]), ..asked.clone() }), "addresses");
    assert_eq!(field(JoinRequest { addresses: addresses(&["::1"; 17]), ..asked.clone() }), "addresses");
    let etcd = pki::etcd_server_name(ours);
    assert_eq!(field(JoinRequest { addresses: vec![etcd], ..asked.clone() }), "addresses");
    assert_eq!(field(JoinRequest { request: "-----BEGIN".to_owned(), ..asked.clone() }), "request");

    cluster.issuer.trust.set_shut_out(&[ShutOut::for_good(candidate.node)]);
    let shut_out = refused(&asked, known(&record));
    assert!(matches!(shut_out, JoinError::ShutOut { .. }), "{shut_out:?}");
    assert!(shut_out.to_string().contains("is shut out"), "{shut_out}");
}

/// A member whose certificate has ended, or that was shut out, comes back under its id.
#[test]
fn a_member_joins_again_with_a_token_for_it_alone() {
    let cluster = Cluster::new();
    let (first, record) = cluster.candidate();
    cluster.admit(&request(&first), known(&record), NOW_MS).unwrap();
    cluster.issuer.trust.set_shut_out(&[ShutOut::until_it_joins_again(first.node, NOW_MS)]);

    let now_ms = NOW_MS + DAY_MS;
    let (token, record) = Token::create(cluster.authority.certificate(), Some(first.node), now_ms);
    let again = Candidate { token, node: first.node, key: NodeKey::generate() };
    let as_member = Known { name_owner: Some(first.node), is_member: true, ..known(&record) };
    let asked =
        JoinRequest { clock_ms: now_ms, cluster: Some(cluster.authority.certificate().cluster), ..request(&again) };
    let other = JoinRequest { node: NodeId::random(), ..asked.clone() };
    assert_eq!(
        cluster.admit(&other, known(&record), now_ms).err(),
        Some(JoinError::ReservedToken { node: first.node })
    );
    let answer = cluster.admit(&asked, as_member, now_ms).unwrap().answer;
    let member = again.accept(&answer, now_ms).unwrap();
    assert_eq!(cluster.issuer.trust.admits(member.credential.identity()), Ok(()));
}

#[test]
fn a_node_checks_the_answer() {
    let (cluster, other) = (Cluster::new(), Cluster::new());
    let (candidate, record) = cluster.candidate();
    let answer = cluster.admit(&request(&candidate), known(&record), NOW_MS).unwrap().answer;
    let refused = |answer: JoinAnswer| candidate.accept(&answer, NOW_MS).unwrap_err();
    let wanted = candidate.token.authority;
    let foreign = vec![other.authority.certificate().pem()];
    assert_eq!(
        refused(JoinAnswer { authorities: foreign, ..answer.clone() }),
        MembershipError::OtherFingerprint(wanted)
    );
    assert_eq!(refused(JoinAnswer { authorities: Vec::new(), ..answer.clone() }), MembershipError::Authorities);
    let many = vec![answer.authorities[0].clone(); 5];
    assert_eq!(refused(JoinAnswer { authorities: many, ..answer.clone() }), MembershipError::Authorities);
    let (named, real) = (ClusterId::random(), answer.cluster);
    assert_eq!(
        refused(JoinAnswer { cluster: named, ..answer.clone() }),
        MembershipError::OtherCluster { answer: named, authority: real }
    );
    let (namesake, _) = cluster.candidate();
    let other_key = Candidate { key: namesake.key, node: candidate.node, token: candidate.token.clone() };
    assert_eq!(other_key.accept(&answer, NOW_MS).unwrap_err(), MembershipError::Credential(CredentialError::OtherKey));
    let renamed = Candidate { node: NodeId::random(), token: candidate.token.clone(), key: candidate.key };
    assert_eq!(renamed.accept(&answer, NOW_MS).unwrap_err(), MembershipError::OtherIdentity);
}

/// While an authority is replaced: a token may name the old one, and the new one signs.
#[test]
fn a_token_of_the_previous_authority_still_serves() {
    let old = Cluster::new();
    let (candidate, record) = old.candidate();
    let new = old.authority.successor(NOW_MS);
    let both = vec![new.certificate().clone(), old.authority.certificate().clone()];
    old.issuer.trust.set_authorities(both).unwrap();
    let admission = admit(&new, &old.issuer.trust, &request(&candidate), known(&record), NOW_MS).unwrap();
    let member = candidate.accept(&admission.answer, NOW_MS).unwrap();
    assert_eq!(member.credential.authority(), new.certificate());
    assert_eq!(member.authorities.len(), 2);
    Node::with(member.credential, member.authorities).link(&old.issuer).unwrap();
}

#[test]
fn another_version_is_named_before_anything_else_is_read() {
    assert_eq!(
        decode::<JoinRequest>(br#"{"version":2,"letter":[]}"#).err(),
        Some(MessageError::OtherVersion { theirs: 2 })
    );
    let error = JoinError::from(MessageError::OtherVersion { theirs: 2 });
    assert_eq!(error, JoinError::OtherVersion { node: 2, issuer: 1 });
    let sent: Result<JoinAnswer, JoinError> = Err(error.clone());
    assert_eq!(decode::<Result<JoinAnswer, JoinError>>(&encode(&sent)).unwrap(), Err(error));
    let long = vec![b' '; limits::MESSAGE_BYTES_MAX + 1];
    assert_eq!(decode::<JoinRequest>(&long).err(), Some(MessageError::TooLong));
    assert_eq!(decode::<JoinRequest>(b"{}").err(), Some(MessageError::Unreadable { line: 1, column: 2 }));
}

/// An issuer's own answer, in the form that stays: another version of FlintKV reads it.
#[test]
fn the_form_of_messages_stays() {
    let cluster = Cluster::new();
    let (candidate, record) = cluster.candidate();
    let text = String::from_utf8(encode(&JoinRequest { request: "CSR".to_owned(), ..request(&candidate) })).unwrap();
    let secret = &candidate.token.reveal()[4 + 64..4 + 96];
    assert_eq!(
        text,
        format!(
            r#"{{"version":1,"message":{{"secret":"{secret}","cluster":null,"node":"{}","name":"node-2","zone":"b","role":"data","addresses":["10.0.0.2","node-2.example"],"peer_port":8380,"request":"CSR","clock_ms":{NOW_MS}}}}}"#,
            candidate.node
        )
    );
    let text = serde_json::to_string(&record).unwrap();
    let hash = record.secret_sha256;
    assert_eq!(
        text,
        format!(r#"{{"secret_sha256":"{hash}","expires_ms":{},"returning":null,"used":null}}"#, NOW_MS + HOUR_MS)
    );
    assert_eq!(serde_json::from_str::<TokenRecord>(&text).unwrap(), record);
    let sent: Result<JoinAnswer, JoinError> = Err(JoinError::UsedToken);
    assert_eq!(encode(&sent), br#"{"version":1,"message":{"Err":{"error":"used_token"}}}"#);
}

#[test]
fn a_member_renews_its_certificate_over_a_link() {
    let cluster = Cluster::new();
    let member = Node::new(&cluster.authority);
    let link = member.link(&cluster.issuer).unwrap();
    let key = NodeKey::generate();
    let asked = IssueRequest {
        purpose: Purpose::Node,
        addresses: vec!["10.0.0.3".to_owned()],
        request: key.request(),
        clock_ms: NOW_MS,
    };
    let asked: IssueRequest = decode(&encode(&asked)).unwrap();
    let ask = |asked: &IssueRequest, runs_etcd| {
        issue(&cluster.authority, &cluster.issuer.trust, &link.answerers_peer(), runs_etcd, asked, NOW_MS)
    };
    let (issued, answer): (Identity, IssueAnswer) = ask(&asked, false).unwrap();
    assert_eq!((issued.node, issued.purpose), (member.id, Purpose::Node));
    let renewed = Credential::new(&key, &answer.certificate, cluster.authority.certificate(), NOW_MS).unwrap();
    member.current.replace(renewed).unwrap();
    assert_eq!(member.link(&cluster.issuer).unwrap().answerers_peer(), issued);

    let for_etcd = IssueRequest { purpose: Purpose::Etcd, ..asked.clone() };
    assert_eq!(ask(&for_etcd, false).err(), Some(IssueError::NoEtcd { node: member.id }));
    assert_eq!(ask(&for_etcd, true).unwrap().0.purpose, Purpose::Etcd);
    let late = IssueRequest { clock_ms: NOW_MS - HOUR_MS, ..asked.clone() };
    assert_eq!(ask(&late, false).err(), Some(IssueError::ClocksApart { node_ms: NOW_MS - HOUR_MS, issuer_ms: NOW_MS }));
    let bad = IssueRequest { request: String::new(), ..asked.clone() };
    assert!(matches!(ask(&bad, false), Err(IssueError::Invalid { .. })));
    let bad = IssueRequest { addresses: vec!["a b".to_owned()], ..asked.clone() };
    assert!(matches!(ask(&bad, false), Err(IssueError::Invalid { .. })));
    // The link lives on, but brings no certificate any more.
    cluster.issuer.trust.set_shut_out(&[ShutOut::until_it_joins_again(member.id, NOW_MS)]);
    assert!(matches!(ask(&asked, false), Err(IssueError::ShutOut { .. })));
}
