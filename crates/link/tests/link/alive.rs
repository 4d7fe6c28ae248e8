//! Keep-alive, with a clock that the test moves.

use std::time::Duration;

use link::frame::Kind;
use link::{End, Options, Role};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep};

use crate::common::{Peer, frame, pair, run};

#[test]
fn an_idle_link_lives() {
    run(async {
        let pair = pair();
        let (mut opened, mut accepted) = pair.session().await;
        sleep(Duration::from_secs(120)).await;
        assert_eq!((pair.opener.end(), pair.acceptor.end()), (None, None));
        opened.write_all(b"x").await.unwrap();
        assert_eq!(accepted.read_u8().await.unwrap(), b'x');
    });
}

#[test]
fn a_ping_is_sent_after_a_second_without_another_frame() {
    run(async {
        let (mut peer, link, _ended) = Peer::start(Options::default(), Role::Opener).await;
        let started = Instant::now();
        let mut bytes = [0; 8];
        for second in 1..4 {
            peer.0.read_exact(&mut bytes).await.unwrap();
            assert_eq!(bytes[..], frame(Kind::Ping, 0, b""));
            assert_eq!(started.elapsed().as_millis() / 10, second * 100, "{:?}", started.elapsed());
        }
        // Another frame does as well.
        sleep(Duration::from_millis(500)).await;
        assert!(link.send_message(b"m"));
        assert_eq!(peer.receive().await, (Kind::Message, 0, b"m".to_vec()));
        peer.0.read_exact(&mut bytes).await.unwrap();
        assert_eq!(started.elapsed().as_millis() / 10, 450, "{:?}", started.elapsed());
    });
}

#[test]
fn a_silent_peer_ends_the_link() {
    run(async {
        let (mut peer, link, ended) = Peer::start(Options::default(), Role::Opener).await;
        let mut session = link.open(b"").unwrap();
        let started = Instant::now();
        // Any byte counts, also a part of a frame.
        sleep(Duration::from_secs(4)).await;
        let data = frame(Kind::Data, 0, b"abc");
        peer.0.write_all(&data[..3]).await.unwrap();
        sleep(Duration::from_secs(4)).await;
        peer.0.write_all(&data[3..]).await.unwrap();
        let mut bytes = [0; 3];
        session.read_exact(&mut bytes).await.unwrap();
        let error = session.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        assert_eq!(error.to_string(), "the peer sent nothing for 5s");
        assert_eq!(ended.await.unwrap(), End::Silence(Duration::from_secs(5)));
        assert_eq!(started.elapsed().as_millis() / 10, 1300, "{:?}", started.elapsed());
    });
}

/// No PING helps when the stream takes nothing, and a peer that still sends is alive.
#[test]
fn a_peer_that_sends_and_does_not_read_is_alive() {
    run(async {
        let (mut peer, link, _ended) = Peer::start(Options::default(), Role::Opener).await;
        let mut session = link.open(b"").unwrap();
        tokio::spawn(async move { while session.write_all(&[0; 100_000]).await.is_ok() {} });
        for _ in 0..20 {
            peer.send(Kind::Ping, 0, b"").await;
            sleep(Duration::from_secs(4)).await;
        }
        assert_eq!(link.end(), None);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(link.end(), Some(End::Silence(Duration::from_secs(5))));
    });
}

#[test]
fn a_close_waits_for_the_peer_no_longer_than_for_a_silent_one() {
    run(async {
        let (peer, link, ended) = Peer::start(Options::default(), Role::Opener).await;
        let started = Instant::now();
        link.close();
        assert_eq!(ended.await.unwrap(), End::Closed);
        assert_eq!(started.elapsed().as_millis() / 10, 500, "{:?}", started.elapsed());
        drop(peer);
    });
}
