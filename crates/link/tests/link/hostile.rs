//! Bytes of the peer are never trusted: a wrong one ends the link with a clear reason, nothing panics, and memory stays bounded.

use link::frame::{Kind, WINDOW_BYTES, greeting};
use link::{End, Options, Role, Violation};
use proptest::collection::vec;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::common::{Peer, frame, run, settle, start};

/// What a link of this role says to these frames. The opener has session 0.
fn verdict(role: Role, frames: &[(Kind, u32, &[u8])]) -> Option<End> {
    let bytes: Vec<u8> = frames.iter().flat_map(|(kind, session, payload)| frame(*kind, *session, payload)).collect();
    verdict_of(role, &bytes)
}

fn verdict_of(role: Role, bytes: &[u8]) -> Option<End> {
    run(async {
        let (mut peer, link, _ended) = Peer::start(Options::default(), role).await;
        let _session = (role == Role::Opener).then(|| link.open(b"").unwrap());
        let _ = peer.0.write_all(bytes).await;
        settle().await;
        link.end()
    })
}

fn violation(violation: Violation) -> Option<End> {
    Some(End::Violation(violation))
}

#[test]
fn each_rule_of_the_protocol() {
    use Kind::*;
    use Role::{Acceptor, Opener};
    let open: (Kind, u32, &[u8]) = (Open, 0, b"target");
    let full = vec![0; 65_536];
    let data = (Data, 0, &full[..]);
    // What is allowed.
    assert_eq!(verdict(Opener, &[(Ping, 0, b""), (Data, 0, b"x"), (End, 0, b""), (Close, 0, b"")]), None);
    assert_eq!(verdict(Opener, &[(Refuse, 0, b"")]), None);
    assert_eq!(verdict(Acceptor, &[open, (Data, 0, b"x"), (Close, 0, b"")]), None);
    assert_eq!(verdict(Acceptor, &[(Open, 65_535, b"")]), None);
    // Kinds and lengths.
    assert_eq!(verdict_of(Opener, &[0; 8]), violation(Violation::UnknownKind(0)));
    assert_eq!(verdict_of(Opener, &[255; 8]), violation(Violation::UnknownKind(255)));
    let length = |kind: Kind, length: usize| {
        let [low, middle, high, _] = (length as u32).to_le_bytes();
        verdict_of(Opener, &[kind as u8, low, middle, high, 0, 0, 0, 0])
    };
    for (kind, bytes) in [
        (Open, 257),
        (Data, 0),
        (Data, 65_537),
        (Data, 0xff_ffff),
        (Credit, 3),
        (Credit, 5),
        (End, 1),
        (Close, 1),
        (Refuse, 1),
        (Message, 65_537),
        (More, 0),
        (More, 65_537),
        (Ping, 1),
    ] {
        assert_eq!(length(kind, bytes), violation(Violation::Length { kind, length: bytes }));
    }
    // Numbers.
    for kind in [Data, Credit, End, Close, Refuse] {
        let payload: &[u8] = match kind {
            Data => b"x",
            Credit => &[1, 0, 0, 0],
            _ => b"",
        };
        for session in [1, 65_536, u32::MAX] {
            assert_eq!(verdict(Opener, &[(kind, session, payload)]), violation(Violation::Session { kind, session }));
        }
        assert_eq!(
            verdict(Opener, &[(Close, 0, b""), (kind, 0, payload)]),
            violation(Violation::Session { kind, session: 0 })
        );
    }
    for kind in [Message, Ping] {
        assert_eq!(verdict(Opener, &[(kind, 1, b"")]), violation(Violation::Session { kind, session: 1 }));
    }
    assert_eq!(verdict(Acceptor, &[open, open]), violation(Violation::Number(0)));
    assert_eq!(verdict(Acceptor, &[open, (Close, 0, b""), open]), violation(Violation::Number(0)));
    assert_eq!(verdict(Acceptor, &[(Open, 65_536, b"")]), violation(Violation::Number(65_536)));
    assert_eq!(verdict(Acceptor, &[(Open, u32::MAX, b"")]), violation(Violation::Number(u32::MAX)));
    // Roles and order.
    assert_eq!(verdict(Opener, &[open]), violation(Violation::Role(Open)));
    assert_eq!(verdict(Acceptor, &[open, (Refuse, 0, b"")]), violation(Violation::Role(Refuse)));
    for kind in [Data, End] {
        let payload: &[u8] = if kind == Data { b"x" } else { b"" };
        assert_eq!(
            verdict(Opener, &[(End, 0, b""), (kind, 0, payload)]),
            violation(Violation::Order { kind, session: 0 })
        );
    }
    for first in [(Data, 0, &b"x"[..]), (End, 0, b"")] {
        let order = Violation::Order { kind: Refuse, session: 0 };
        assert_eq!(verdict(Opener, &[first, (Refuse, 0, b"")]), violation(order));
    }
    // Credit.
    assert_eq!(verdict(Opener, &[data; 16]), None);
    let mut frames = vec![data; 16];
    frames.push((Data, 0, b"x"));
    assert_eq!(verdict(Opener, &frames), violation(Violation::Data { session: 0, bytes: 1, credit: 0 }));
    for bytes in [0u32, 1, WINDOW_BYTES, u32::MAX] {
        let credit = Violation::Credit { session: 0, bytes };
        assert_eq!(verdict(Opener, &[(Credit, 0, &bytes.to_le_bytes())]), violation(credit));
    }
}

#[test]
fn a_reset_tells_what_was_wrong() {
    run(async {
        let (mut peer, link, _ended) = Peer::start(Options::default(), Role::Opener).await;
        let mut session = link.open(b"").unwrap();
        peer.send(Kind::Data, 0, b"good").await;
        peer.send(Kind::Data, 7, b"bad").await;
        let mut bytes = [0; 4];
        session.read_exact(&mut bytes).await.unwrap();
        let error = session.read_u8().await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the peer broke the link's protocol: a frame Data for session 7, which is not open"
        );
    });
}

#[test]
fn another_version_and_another_protocol_are_told() {
    run(async {
        for (first, end) in [
            (*b"FKLINK\x02\0", End::Version(2)),
            (*b"FKLINK\x01\x01", End::Version(257)),
            (*b"PING\r\nPI", End::NotALink(*b"PING\r\n")),
        ] {
            let (mut ours, theirs) = tokio::io::duplex(100);
            // The peer's greeting is there before the link looks for it, and the peer gets the link's all the same.
            ours.write_all(&first).await.unwrap();
            let (_link, ended) = start(theirs, Options::default(), Role::Acceptor);
            let mut greeted = Vec::new();
            ours.read_to_end(&mut greeted).await.unwrap();
            assert_eq!(greeted, greeting());
            assert_eq!(ended.await.unwrap(), end);
        }
        let text = End::Version(2).to_string();
        assert_eq!(text, "the peer's links have version 2, this node's have 1: run the same release on both nodes");
        assert!(
            End::NotALink(*b"PING\r\n").to_string().contains("\"PING\\\\r\\\\n\""),
            "{}",
            End::NotALink(*b"PING\r\n")
        );
    });
}

#[test]
fn a_peer_that_does_not_read_its_answers_ends_the_link() {
    run(async {
        let few = Options { sessions_max: 0, ..Options::default() };
        let (mut peer, link, _ended) = Peer::start(few, Role::Acceptor).await;
        let mut most = 0;
        let mut rounds = 0;
        while link.end().is_none() && rounds < 1_000_000 {
            // Each OPEN is refused, and so is 8 bytes that the peer does not read.
            let bytes = [frame(Kind::Open, 0, b""), frame(Kind::Close, 0, b"")].concat();
            let _ = peer.0.write_all(&bytes).await;
            rounds += 1;
            most = most.max(link.mem_bytes());
        }
        settle().await;
        assert_eq!(link.end(), Some(End::Backlog));
        assert!(most < 2 << 20, "{most}");
    });
}

/// A valid stream of an opener, to be damaged.
fn valid() -> Vec<u8> {
    let mut bytes = greeting().to_vec();
    for session in 0..4 {
        bytes.extend(frame(Kind::Open, session, b"target"));
        bytes.extend(frame(Kind::Data, session, &[session as u8; 40]));
    }
    bytes.extend(frame(Kind::More, 0, b"a part"));
    bytes.extend(frame(Kind::Message, 0, b"the rest"));
    bytes.extend(frame(Kind::End, 1, b""));
    bytes.extend(frame(Kind::Ping, 0, b""));
    bytes.extend(frame(Kind::Close, 0, b""));
    bytes.extend(frame(Kind::Open, 9, b"another"));
    bytes.extend(frame(Kind::Data, 3, b"more"));
    bytes
}

/// Feeds bytes in pieces to a link that echoes. Returns its end, after the peer has closed the connection.
fn feed(role: Role, bytes: &[u8], pieces: &[usize]) -> End {
    run(async {
        let (ours, theirs) = tokio::io::duplex(4096);
        let (link, ended) = start(theirs, Options::default(), role);
        let _sessions: Vec<_> = (0..3).filter_map(|_| link.open(b"t").ok()).collect();
        let echoing = link.clone();
        tokio::spawn(async move {
            while let Some((_, session)) = echoing.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = tokio::io::split(session);
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        let (mut from, mut to) = tokio::io::split(ours);
        tokio::spawn(async move {
            let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
        });
        let mut rest = bytes;
        let mut sizes = pieces.iter().cycle();
        while !rest.is_empty() {
            let (piece, after) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
            if to.write_all(piece).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
            rest = after;
        }
        settle().await;
        let _ = to.shutdown().await;
        assert!(link.mem_bytes() < 1 << 20);
        ended.await.unwrap()
    })
}

#[test]
fn a_valid_stream_in_pieces_of_each_size() {
    for size in 1..100 {
        assert_eq!(feed(Role::Acceptor, &valid(), &[size]), End::ClosedByPeer);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes(greets: bool, is_opener: bool, bytes in vec(any::<u8>(), 0..300), pieces in vec(1usize..50, 1..5)) {
        let mut all = if greets { greeting().to_vec() } else { Vec::new() };
        all.extend(bytes);
        let role = if is_opener { Role::Opener } else { Role::Acceptor };
        let end = feed(role, &all, &pieces);
        prop_assert!(matches!(end, End::ClosedByPeer | End::Violation(_) | End::NotALink(_)), "{end:?}");
    }

    #[test]
    fn random_frames(
        is_opener: bool,
        frames in vec((1u8..=10, 0u32..4, 0usize..70), 0..40),
        pieces in vec(1usize..200, 1..5),
    ) {
        let mut all = greeting().to_vec();
        for (kind, session, length) in frames {
            let length = match Kind::from_byte(kind) {
                Some(Kind::Credit) => 4,
                Some(kind) if !kind.can_have(length) => 0,
                _ => length,
            };
            all.extend([kind, length as u8, 0, 0]);
            all.extend(session.to_le_bytes());
            all.extend(vec![1; length]);
        }
        let role = if is_opener { Role::Opener } else { Role::Acceptor };
        let end = feed(role, &all, &pieces);
        prop_assert!(matches!(end, End::ClosedByPeer | End::Violation(_)), "{end:?}");
    }

    #[test]
    fn a_damaged_stream(
        is_opener: bool,
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        pieces in vec(1usize..200, 1..5),
    ) {
        let mut all = valid();
        for (at, byte) in changes {
            let at = at.index(all.len());
            all[at] = byte;
        }
        let role = if is_opener { Role::Opener } else { Role::Acceptor };
        let end = feed(role, &all, &pieces);
        prop_assert!(
            matches!(end, End::ClosedByPeer | End::Violation(_) | End::NotALink(_) | End::Version(_)),
            "{end:?}"
        );
    }
}
