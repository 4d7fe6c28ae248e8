//! Random bytes, and what was right before some of its bytes changed: an error, never a panic, and never something else
//! than was signed.

use crate::common::{NOW_MS, address, checked};
use base::random::SplitMix64;
use pki::{
    Authority, AuthorityCertificate, Candidate, CheckedRequest, Credential, Identity, IssueRequest, JoinAnswer,
    JoinError, JoinRequest, NodeId, NodeKey, Purpose, Role, SecretText, Token, TokenRecord, decode, encode,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// A few bytes replaced, removed, inserted or cut off.
fn mutated(bytes: &[u8], random: &mut SplitMix64) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..1 + random.index(3) {
        let at = random.index(bytes.len().max(1));
        match random.index(5) {
            0 if at < bytes.len() => bytes[at] = random.draw() as u8,
            1 if at < bytes.len() => bytes[at] ^= 1 << random.index(8),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            3 => bytes.insert(at, random.draw() as u8),
            _ if random.index(8) == 0 => bytes.truncate(at),
            _ => {}
        }
    }
    bytes
}

/// All readers of bytes that another node, an operator or a file gives.
fn read_with_all(bytes: &[u8]) {
    let _ = decode::<JoinRequest>(bytes);
    let _ = decode::<Result<JoinAnswer, JoinError>>(bytes);
    let _ = decode::<IssueRequest>(bytes);
    let _ = serde_json::from_slice::<TokenRecord>(bytes);
    let _ = Identity::of(&CertificateDer::from(bytes));
    let _ = AuthorityCertificate::from_der(CertificateDer::from(bytes));
    let text = String::from_utf8_lossy(bytes).into_owned();
    let _ = Token::parse(&text);
    let _ = Token::parse(&format!("fkj1{text}"));
    let _ = CheckedRequest::from_pem(&text);
    let _ = AuthorityCertificate::from_pem(&text);
    let text = SecretText::new(text);
    let _ = Authority::from_pem(&text);
    let _ = Credential::from_pem(&text, NOW_MS);
}

#[test]
fn random_bytes_are_errors() {
    seeds::each(1, 3000, |seed| {
        let mut random = SplitMix64(seed);
        let count = random.index(300);
        read_with_all(&random.bytes(count));
    });
}

#[test]
fn a_mutated_token_is_refused() {
    let authority = Authority::create("east", NOW_MS).unwrap();
    let (token, record) = Token::create(authority.certificate(), None, NOW_MS);
    let text = token.reveal();
    // Each single slip.
    for at in 0..text.len() {
        for digit in "0123456789abcdefg".bytes() {
            let mut slip = text.clone().into_bytes();
            if std::mem::replace(&mut slip[at], digit) != digit {
                assert!(Token::parse(std::str::from_utf8(&slip).unwrap()).is_err(), "at {at}");
            }
        }
        assert!(Token::parse(&text[..at]).is_err() && Token::parse(&text[at + 1..]).is_err());
    }
    seeds::each(1, 3000, |seed| {
        let mutated = mutated(text.as_bytes(), &mut SplitMix64(seed));
        if let Ok(read) = Token::parse(&String::from_utf8_lossy(&mutated)) {
            let is_same = read.authority == token.authority && read.secret.sha256() == record.secret_sha256;
            assert!(is_same && read.expires_ms == token.expires_ms, "another token");
        }
    });
}

#[test]
fn a_mutated_request_asks_for_no_other_key() {
    let key = NodeKey::generate();
    let (text, wanted) = (key.request(), checked(&key).key_sha256());
    let der = rustls::pki_types::CertificateSigningRequestDer::from_pem_slice(text.as_bytes()).unwrap();
    let (mut refused, mut same) = (0, 0);
    seeds::each(1, 2000, |seed| {
        let mut random = SplitMix64(seed);
        let text = match random.index(2) {
            0 => String::from_utf8_lossy(&mutated(text.as_bytes(), &mut random)).into_owned(),
            _ => pem("CERTIFICATE REQUEST", &mutated(&der, &mut random)),
        };
        match CheckedRequest::from_pem(&text) {
            Ok(checked) => {
                assert_eq!(checked.key_sha256(), wanted);
                same += 1;
            }
            Err(_) => refused += 1,
        }
    });
    assert!(refused > 1000, "{refused} refused, {same} read");
}

fn pem(label: &str, der: &[u8]) -> String {
    use base64::Engine;
    format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        base64::engine::general_purpose::STANDARD.encode(der)
    )
}

/// A request that is right in itself, but not one that the authority takes.
#[test]
fn a_request_with_another_kind_of_key_is_named() {
    use pki::RequestError;
    let request =
        |key: &rcgen::KeyPair| rcgen::CertificateParams::default().serialize_request(key).unwrap().der().to_vec();
    for algorithm in [&rcgen::PKCS_ED25519, &rcgen::PKCS_ECDSA_P384_SHA384] {
        let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
        let refused = CheckedRequest::from_pem(&pem("CERTIFICATE REQUEST", &request(&key))).err();
        assert_eq!(refused, Some(RequestError::OtherAlgorithm), "{algorithm:?}");
    }
    let key = NodeKey::generate();
    let text = key.request();
    // What was signed by another key: the last bytes of a request are its signature.
    let mut der = rustls::pki_types::CertificateSigningRequestDer::from_pem_slice(text.as_bytes()).unwrap().to_vec();
    *der.last_mut().unwrap() ^= 1;
    assert_eq!(CheckedRequest::from_pem(&pem("CERTIFICATE REQUEST", &der)).err(), Some(RequestError::BadSignature));
    for (wrong, error) in [
        (String::new(), RequestError::Unreadable),
        (text.replace("CERTIFICATE REQUEST", "CERTIFICATE"), RequestError::Unreadable),
        (text.clone() + &text, RequestError::Unreadable),
        (pem("CERTIFICATE REQUEST", b""), RequestError::Unreadable),
        ("x".repeat(5000), RequestError::TooLong),
    ] {
        assert_eq!(CheckedRequest::from_pem(&wrong).err(), Some(error));
        assert!(!error.to_string().is_empty());
    }
}

#[test]
fn mutated_files_and_messages_are_errors() {
    let authority = Authority::create("east", NOW_MS).unwrap();
    let (id, key) = (NodeId::random(), NodeKey::generate());
    let issued = authority.issue(&checked(&key), id, Purpose::Node, &address(), NOW_MS).unwrap();
    let credential = Credential::new(&key, &issued.certificate, authority.certificate(), NOW_MS).unwrap();
    let (token, record) = Token::create(authority.certificate(), None, NOW_MS);
    let candidate = Candidate { token, node: id, key };
    let request = JoinRequest {
        secret: candidate.token.secret.clone(),
        cluster: None,
        node: id,
        name: "node-2".to_owned(),
        zone: None,
        role: Role::Data,
        addresses: address(),
        peer_port: 8380,
        request: candidate.key.request(),
        clock_ms: NOW_MS,
    };
    let leaf = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
    let right = [
        authority.to_pem().expose().as_bytes().to_vec(),
        credential.to_pem().expose().as_bytes().to_vec(),
        authority.certificate().der().to_vec(),
        leaf.to_vec(),
        encode(&request),
        serde_json::to_vec(&record).unwrap(),
    ];
    seeds::each(1, 2000, |seed| {
        let mut random = SplitMix64(seed);
        let bytes = mutated(&right[random.index(right.len())], &mut random);
        read_with_all(&bytes);
        // Whatever is accepted is what was signed.
        let text = SecretText::new(String::from_utf8_lossy(&bytes).into_owned());
        if let Ok(read) = Credential::from_pem(&text, NOW_MS) {
            assert_eq!(read.identity(), credential.identity());
        }
    });
}
