//! One-way messages: order, limits, and that they and the sessions do not wait for each other.

use base::random::SplitMix64;
use link::frame::{Kind, MESSAGE_BYTES_MAX};
use link::{End, Options, Role, Violation};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::common::{Peer, pair, pair_of, run, settle};

#[test]
fn messages_go_both_ways_in_order() {
    run(async {
        let pair = pair();
        let mut random = SplitMix64(3);
        let sizes = [0, 1, 65_535, 65_536, 65_537, 300_000, MESSAGE_BYTES_MAX, 0, 17];
        let messages: Vec<_> = sizes.iter().map(|size| random.bytes(*size)).collect();
        for message in &messages {
            assert!(pair.opener.send_message(message));
            assert!(pair.acceptor.send_message(message));
        }
        for message in &messages {
            assert!(pair.acceptor.message().await.as_ref() == Some(message));
            assert!(pair.opener.message().await.as_ref() == Some(message));
        }
        assert!(!pair.opener.send_message(&vec![0; MESSAGE_BYTES_MAX + 1]));
        pair.opener.close();
        assert_eq!(pair.opener.message().await, None);
        assert_eq!(pair.acceptor.message().await, None);
        assert!(!pair.opener.send_message(b"late"));
    });
}

#[test]
fn what_came_before_the_end_can_still_be_taken() {
    run(async {
        let pair = pair();
        assert!(pair.opener.send_message(b"last"));
        pair.opener.close();
        assert_eq!(pair.acceptor_ended.await.unwrap(), End::ClosedByPeer);
        assert_eq!(pair.opener_ended.await.unwrap(), End::Closed);
        assert_eq!(pair.acceptor.message().await, Some(b"last".to_vec()));
        assert_eq!(pair.acceptor.message().await, None);
    });
}

#[test]
fn a_full_queue_refuses_and_sessions_go_on() {
    run(async {
        let (mut peer, link, _ended) = Peer::start(Options::default(), Role::Opener).await;
        // The peer does not read.
        let count = (0..10_000).take_while(|_| link.send_message(&[1; 10_000])).count();
        assert_eq!(count, (4 << 20) / 10_064);
        let empty = (0..100_000).take_while(|_| link.send_message(b"")).count();
        assert!(empty < 200, "an empty message counts too: {empty}");
        settle().await;
        let mut session = link.open(b"").unwrap();
        session.write_all(b"soon").await.unwrap();
        let mut before = 0;
        loop {
            match peer.receive().await {
                (Kind::Data, _, data) => break assert_eq!(data, b"soon"),
                (_, _, payload) => before += payload.len(),
            }
        }
        // One write with its share of messages was under way.
        assert!(before < 200_000, "{before}");
    });
}

#[test]
fn the_oldest_is_lost_when_nobody_takes_them() {
    run(async {
        let pair = pair_of(Options { messages_in_bytes_max: 100_000, ..Options::default() });
        let (mut opened, mut accepted) = pair.session().await;
        for number in 0..1000u32 {
            let mut message = number.to_le_bytes().to_vec();
            message.resize(1000, 0);
            assert!(pair.opener.send_message(&message));
        }
        // Sessions are not held up.
        opened.write_all(b"x").await.unwrap();
        assert_eq!(accepted.read_u8().await.unwrap(), b'x');
        settle().await;
        let kept = 100_000 / 1064;
        assert_eq!(pair.acceptor.messages_lost(), 1000 - kept);
        for number in 1000 - kept..1000 {
            assert_eq!(pair.acceptor.message().await.unwrap()[..4], (number as u32).to_le_bytes());
        }
        assert_eq!(pair.opener.messages_lost(), 0);
    });
}

#[test]
fn a_message_that_is_too_large_ends_the_link() {
    run(async {
        let (mut peer, link, ended) = Peer::start(Options::default(), Role::Acceptor).await;
        for _ in 0..16 {
            peer.send(Kind::More, 0, &[0; 65_536]).await;
        }
        settle().await;
        assert_eq!(link.end(), None, "1 MiB is allowed");
        peer.send(Kind::Message, 0, &[0]).await;
        assert_eq!(ended.await.unwrap(), End::Violation(Violation::MessageTooLarge));
    });
}
