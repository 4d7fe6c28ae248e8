//! Keep-alive, with a clock that the test moves.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use link::frame::Kind;
use link::{End, Link, Options, Role};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, sleep};

use crate::common::{Peer, STREAM_BYTES, frame, pair, run};

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

/// As while a script blocks the thread: no timer fires, and another task polls the drivers now and then.
#[test]
fn a_link_lives_on_polls_alone() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let options = Options {
            ping_after: Duration::from_millis(20),
            silence_max: Duration::from_secs(1),
            ..Options::default()
        };
        let (a, b) = tokio::io::duplex(STREAM_BYTES);
        let ((opener, mut one), (acceptor, mut other)) =
            (Link::start(a, options, Role::Opener), Link::start(b, options, Role::Acceptor));
        let mut session = opener.open(b"target").unwrap();
        let mut cx = Context::from_waker(Waker::noop());
        // Each poll with a budget of its own, which this task would have used up.
        let mut poll_drivers = || {
            let both = poll_fn(|cx| {
                assert!(Pin::new(&mut one).poll(cx).is_pending());
                assert!(Pin::new(&mut other).poll(cx).is_pending());
                Poll::Ready(())
            });
            assert!(pin!(unconstrained(both)).poll(&mut Context::from_waker(Waker::noop())).is_ready());
        };
        let begun = std::time::Instant::now();
        while begun.elapsed() < 2 * options.silence_max {
            poll_drivers();
            std::thread::sleep(Duration::from_millis(5));
        }
        // What a session sends is carried too.
        let Poll::Ready(Some((_, mut accepted))) = acceptor.poll_accept(&mut cx) else { panic!("it was opened") };
        assert!(Pin::new(&mut session).poll_write(&mut cx, b"x").is_ready());
        poll_drivers();
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        assert!(Pin::new(&mut accepted).poll_read(&mut cx, &mut buffer).is_ready());
        assert_eq!(buffer.filled(), b"x");
    });
}
