//! Neither the secret of a token nor a key shows in `Debug`, in an error or in a log line made of them.

use crate::common::{NOW_MS, Node, checked};
use pki::{
    Authority, Candidate, Credential, JoinRequest, Known, NodeId, NodeKey, Role, SecretText, Token, admit, decode,
    encode, read_secret, write_secret,
};

#[test]
fn secrets_are_not_shown() {
    let authority = Authority::create("east", NOW_MS).unwrap();
    let node = Node::new(&authority);
    let (token, record) = Token::create(authority.certificate(), None, NOW_MS);
    let text = token.reveal();
    let secret = text[4 + 64..4 + 96].to_owned();
    let candidate = Candidate { token, node: NodeId::random(), key: NodeKey::generate() };
    let request = JoinRequest {
        secret: candidate.token.secret.clone(),
        cluster: None,
        node: candidate.node,
        name: "node-2".to_owned(),
        zone: None,
        role: Role::Quorum,
        addresses: Vec::new(),
        peer_port: 8380,
        request: candidate.key.request(),
        clock_ms: NOW_MS,
    };
    assert!(String::from_utf8(encode(&request)).unwrap().contains(&secret), "the message itself has it");
    let known = Known { token: Some(&record), name_owner: None, is_member: false };
    let admission = admit(&authority, &node.trust, &request, known, NOW_MS).unwrap();
    let membership = candidate.accept(&admission.answer, NOW_MS).unwrap();
    let pems = [authority.to_pem(), membership.credential.to_pem(), node.current.get().to_pem()];

    let mut shown = vec![
        format!("{candidate:?} {candidate:#?} {:?} {:?}", candidate.token, candidate.token.secret),
        format!("{record:?} {request:?} {known:?} {admission:?} {membership:?}"),
        format!("{authority:?} {:?} {:?} {:?}", node.current, node.trust, node.link_server),
        format!("{:?} {:?} {:?}", candidate.key, checked(&candidate.key), pems),
        format!("{:?}", node.client(None)),
    ];
    // Errors of what was meant to be a secret: a message cut anywhere, a token with a slip, a value of another type.
    let message = encode(&request);
    for end in 0..message.len() {
        if let Err(error) = decode::<JoinRequest>(&message[..end]) {
            shown.push(format!("{error} {error:?}"));
        }
    }
    let wrong = String::from_utf8(message).unwrap();
    for wrong in [wrong.replace(&secret, &format!("{secret}0")), wrong.replace("\"quorum\"", &format!("\"{secret}\""))]
    {
        let error = decode::<JoinRequest>(wrong.as_bytes()).unwrap_err();
        shown.push(format!("{error} {error:?} {}", pki::JoinError::from(error.clone())));
    }
    for wrong in [&text[4..], &text[..text.len() - 1], &format!("{text}00"), &text.replace("fkj1", "fkj2")] {
        let error = Token::parse(wrong).unwrap_err();
        shown.push(format!("{error} {error:?}"));
    }
    for pem in &pems {
        let broken = SecretText::new(pem.expose().replace("-----END PRIVATE KEY-----", ""));
        shown.push(format!("{:?} {:?}", Authority::from_pem(&broken), Credential::from_pem(&broken, NOW_MS)));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("authority.pem");
    write_secret(&path, &pems[0]).unwrap();
    shown.push(format!("{:?}", read_secret(&path).unwrap()));

    let keys: Vec<String> = pems.iter().flat_map(|pem| key_lines(pem.expose())).collect();
    assert!(keys.len() >= 9);
    // Also as Rust shows a list of bytes.
    let bytes: Vec<u8> = (0..16).map(|at| u8::from_str_radix(&secret[2 * at..2 * at + 2], 16).unwrap()).collect();
    let listed = format!("{bytes:?}");
    for text in &shown {
        assert!(!text.contains(&secret) && !text.contains(&secret.to_uppercase()), "{text}");
        assert!(!text.contains(listed.trim_matches(['[', ']'])), "{text}");
        for line in &keys {
            assert!(!text.contains(line), "{text}");
        }
    }
    // The hash of the secret may be shown: nobody finds 128 random bits by it.
    assert!(shown[1].contains(&record.secret_sha256.to_string()));
}

fn key_lines(pem: &str) -> Vec<String> {
    let key = &pem[pem.find("-----BEGIN PRIVATE KEY-----").unwrap()..];
    // The first line has only the names of the algorithm.
    key.lines().filter(|line| !line.starts_with("-----")).map(str::to_owned).collect()
}

#[test]
fn a_token_is_one_word_of_letters_and_digits() {
    let authority = Authority::create("east", NOW_MS).unwrap();
    let (token, record) = Token::create(authority.certificate(), None, NOW_MS);
    let text = token.reveal();
    assert!(
        text.len() == 124 && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()),
        "{}",
        text.len()
    );
    for text in [text.clone(), format!("  {text}\n"), text.to_uppercase().replacen("FKJ", "fkj", 1)] {
        let read = Token::parse(&text).unwrap();
        assert_eq!((read.authority, read.expires_ms), (authority.certificate().fingerprint(), token.expires_ms));
        assert_eq!(read.secret.sha256(), record.secret_sha256);
    }
    let (other, _) = Token::create(authority.certificate(), None, NOW_MS);
    assert_ne!(other.secret.sha256(), record.secret_sha256);
}
