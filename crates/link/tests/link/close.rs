//! The end of sessions and of links, from either end and at each phase.

use std::io::ErrorKind;

use link::frame::{Kind, TARGET_BYTES_MAX, greeting};
use link::{End, Link, Options, Role, Session};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::common::{Peer, frame, pair, pair_of, read_all, run, settle, start};

/// Runs a test for both ends of a session: once the opener is the one that acts, once the acceptor.
fn both(test: impl AsyncFn(Session, Session)) {
    for acts in [Role::Opener, Role::Acceptor] {
        run(async {
            let pair = pair();
            let (opened, accepted) = pair.session().await;
            match acts {
                Role::Opener => test(opened, accepted).await,
                Role::Acceptor => test(accepted, opened).await,
            }
            settle().await;
            assert_eq!((pair.opener.sessions(), pair.acceptor.sessions()), (0, 0));
            assert_eq!((pair.opener.end(), pair.acceptor.end()), (None, None));
        });
    }
}

#[test]
fn a_dropped_session_ends_after_its_bytes() {
    both(async |mut actor, mut peer| {
        actor.write_all(b"last words").await.unwrap();
        drop(actor);
        assert_eq!(read_all(&mut peer).await, (b"last words".to_vec(), Ok(())));
        assert_eq!(peer.write_all(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert_eq!(read_all(&mut peer).await, (vec![], Ok(())));
    });
}

#[test]
fn a_session_is_dropped_before_a_byte() {
    both(async |actor, mut peer| {
        drop(actor);
        assert_eq!(read_all(&mut peer).await, (vec![], Ok(())));
    });
}

#[test]
fn a_session_is_dropped_while_the_peer_writes() {
    both(async |actor, mut peer| {
        let writer = tokio::spawn(async move {
            // More than the window: it waits for credit, and is woken.
            let error = peer.write_all(&vec![0; 3 << 20]).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        });
        settle().await;
        drop(actor);
        writer.await.unwrap();
    });
}

#[test]
fn both_drop_at_once_with_bytes_under_way() {
    both(async |mut actor, mut peer| {
        actor.write_all(&[1; 10_000]).await.unwrap();
        peer.write_all(&[2; 10_000]).await.unwrap();
        drop((actor, peer));
    });
}

#[test]
fn a_shut_down_direction_leaves_the_other_open() {
    both(async |mut actor, mut peer| {
        actor.write_all(b"question").await.unwrap();
        actor.shutdown().await.unwrap();
        actor.shutdown().await.unwrap();
        assert_eq!(actor.write_all(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert_eq!(read_all(&mut peer).await, (b"question".to_vec(), Ok(())));
        let answer = vec![7; 2 << 20];
        let sent = answer.clone();
        tokio::spawn(async move { peer.write_all(&sent).await.unwrap() });
        assert_eq!(read_all(&mut actor).await, (answer, Ok(())));
    });
}

#[test]
fn a_session_that_was_not_accepted_can_be_closed() {
    run(async {
        let pair = pair();
        let mut opened = pair.opener.open(b"early").unwrap();
        opened.write_all(b"bytes").await.unwrap();
        drop(opened);
        settle().await;
        let (target, mut accepted) = pair.acceptor.accept().await.unwrap();
        assert_eq!(target, b"early");
        assert_eq!(read_all(&mut accepted).await, (b"bytes".to_vec(), Ok(())));
    });
}

#[test]
fn a_refused_session() {
    run(async {
        let pair = pair();
        let (mut opened, accepted) = pair.session().await;
        opened.write_all(b"not read").await.unwrap();
        settle().await;
        accepted.refuse();
        assert_eq!(read_all(&mut opened).await, (vec![], Err(ErrorKind::ConnectionRefused)));
        assert_eq!(opened.write_all(b"x").await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        drop(opened);
        settle().await;
        assert_eq!((pair.opener.sessions(), pair.acceptor.sessions()), (0, 0));
    });
}

/// To say that nothing was carried out would be wrong.
#[test]
fn a_session_that_was_read_is_closed_instead_of_refused() {
    run(async {
        let pair = pair();
        let (mut opened, mut accepted) = pair.session().await;
        opened.write_all(b"ab").await.unwrap();
        accepted.read_u8().await.unwrap();
        accepted.refuse();
        assert_eq!(read_all(&mut opened).await, (vec![], Ok(())));
        let (mut opened, mut accepted) = pair.session().await;
        accepted.write_all(b"hello").await.unwrap();
        accepted.refuse();
        assert_eq!(read_all(&mut opened).await, (b"hello".to_vec(), Ok(())));
        // The end that opens cannot refuse.
        let (opened, mut accepted) = pair.session().await;
        opened.refuse();
        assert_eq!(read_all(&mut accepted).await, (vec![], Ok(())));
    });
}

#[test]
fn too_many_sessions() {
    run(async {
        let pair = pair_of(Options { sessions_max: 3, ..Options::default() });
        let mut sessions: Vec<_> = (0..3).map(|_| pair.opener.open(b"").unwrap()).collect();
        assert_eq!(pair.opener.open(b"").err().unwrap().kind(), ErrorKind::QuotaExceeded);
        drop(sessions.pop());
        // The peer has to close it too.
        assert_eq!(pair.opener.open(b"").err().unwrap().kind(), ErrorKind::QuotaExceeded);
        let accepted: Vec<_> = [pair.acceptor.accept().await, pair.acceptor.accept().await].into();
        drop(pair.acceptor.accept().await);
        settle().await;
        sessions.push(pair.opener.open(b"").unwrap());
        drop(accepted);
    });
}

#[test]
fn an_acceptor_refuses_more_than_it_wants() {
    run(async {
        let (a, b) = tokio::io::duplex(1 << 16);
        let (opener, _ended) = start(a, Options::default(), Role::Opener);
        let few = Options { sessions_max: 2, ..Options::default() };
        let (acceptor, _ended) = start(b, few, Role::Acceptor);
        let mut sessions: Vec<_> = (0..3).map(|_| opener.open(b"").unwrap()).collect();
        assert_eq!(read_all(&mut sessions[2]).await, (vec![], Err(ErrorKind::ConnectionRefused)));
        sessions.pop();
        settle().await;
        assert_eq!(acceptor.sessions(), 2);
    });
}

#[test]
fn what_open_refuses() {
    run(async {
        let pair = pair();
        assert_eq!(pair.acceptor.open(b"").err().unwrap().kind(), ErrorKind::Unsupported);
        assert_eq!(pair.opener.open(&[0; TARGET_BYTES_MAX + 1]).err().unwrap().kind(), ErrorKind::InvalidInput);
        assert!(pair.opener.accept().await.is_none());
        let session = pair.opener.open(&[0; TARGET_BYTES_MAX]).unwrap();
        assert_eq!(pair.acceptor.accept().await.unwrap().0, [0; TARGET_BYTES_MAX]);
        pair.opener.close();
        assert_eq!(pair.opener.open(b"").err().unwrap().kind(), ErrorKind::NotConnected);
        drop(session);
    });
}

#[test]
fn a_closed_link_sends_what_was_written() {
    for closes in [Role::Opener, Role::Acceptor] {
        run(async {
            let pair = pair();
            let (mut opened, mut accepted) = pair.session().await;
            let (link, actor, peer): (&Link, _, _) = match closes {
                Role::Opener => (&pair.opener, &mut opened, &mut accepted),
                Role::Acceptor => (&pair.acceptor, &mut accepted, &mut opened),
            };
            actor.write_all(&vec![3; 250_000]).await.unwrap();
            link.close();
            assert_eq!(read_all(actor).await, (vec![], Err(ErrorKind::ConnectionReset)));
            assert_eq!(actor.write_all(b"x").await.unwrap_err().kind(), ErrorKind::ConnectionReset);
            assert_eq!(read_all(peer).await, (vec![3; 250_000], Err(ErrorKind::ConnectionReset)));
            assert_eq!(peer.write_all(b"x").await.unwrap_err().kind(), ErrorKind::ConnectionReset);
            let ended = [pair.opener_ended.await.unwrap(), pair.acceptor_ended.await.unwrap()];
            match closes {
                Role::Opener => assert_eq!(ended, [End::Closed, End::ClosedByPeer]),
                Role::Acceptor => assert_eq!(ended, [End::ClosedByPeer, End::Closed]),
            }
            assert!(pair.acceptor.accept().await.is_none());
        });
    }
}

/// A session that had ended before the link has ended in order.
#[test]
fn the_end_of_a_session_counts_before_the_end_of_the_link() {
    run(async {
        let pair = pair();
        let (mut opened, accepted) = pair.session().await;
        drop(accepted);
        settle().await;
        pair.acceptor.close();
        pair.opener_ended.await.unwrap();
        assert_eq!(read_all(&mut opened).await, (vec![], Ok(())));
    });
}

#[test]
fn a_link_without_handles_and_sessions_closes() {
    run(async {
        let pair = pair();
        let (mut opened, mut accepted) = pair.session().await;
        let unaccepted = pair.opener.open(b"").unwrap();
        settle().await;
        // Sessions go on without handles. Those that nobody can accept any more are refused, and so are new ones.
        drop(pair.acceptor);
        let mut unaccepted = unaccepted;
        assert_eq!(read_all(&mut unaccepted).await, (vec![], Err(ErrorKind::ConnectionRefused)));
        let mut late = pair.opener.open(b"").unwrap();
        assert_eq!(read_all(&mut late).await, (vec![], Err(ErrorKind::ConnectionRefused)));
        opened.write_all(b"x").await.unwrap();
        assert_eq!(accepted.read_u8().await.unwrap(), b'x');
        accepted.write_all(b"bye").await.unwrap();
        drop(accepted);
        assert_eq!(read_all(&mut opened).await, (b"bye".to_vec(), Ok(())));
        assert_eq!(pair.acceptor_ended.await.unwrap(), End::Closed);
        assert_eq!(pair.opener_ended.await.unwrap(), End::ClosedByPeer);
    });
}

#[test]
fn a_dropped_driver_ends_the_link() {
    run(async {
        let pair = pair();
        let (mut opened, mut accepted) = pair.session().await;
        pair.opener_ended.abort();
        assert_eq!(read_all(&mut opened).await, (vec![], Err(ErrorKind::ConnectionReset)));
        assert_eq!(read_all(&mut accepted).await, (vec![], Err(ErrorKind::ConnectionReset)));
        assert_eq!(pair.opener.end(), Some(End::Dropped));
        assert_eq!(pair.acceptor.end(), Some(End::ClosedByPeer));
    });
}

/// A session that was closed here still takes what the peer has sent before it knew.
#[test]
fn late_bytes_of_a_closed_session_are_discarded() {
    run(async {
        let (mut peer, link, _ended) = Peer::start(Options::default(), Role::Opener).await;
        drop(link.open(b"").unwrap());
        assert_eq!(peer.receive().await.0, Kind::Open);
        assert_eq!(peer.receive().await.0, Kind::Close);
        for _ in 0..16 {
            peer.send(Kind::Data, 0, &[0; 65_536]).await;
        }
        settle().await;
        assert_eq!((link.end(), link.sessions()), (None, 1));
        assert!(link.mem_bytes() < 1 << 20, "{}", link.mem_bytes());
        peer.send(Kind::Close, 0, b"").await;
        settle().await;
        assert_eq!((link.end(), link.sessions()), (None, 0));
    });
}

/// The connection takes no more bytes, which says nothing about those that came before.
#[test]
fn what_came_is_read_although_a_write_fails() {
    run(async {
        let (mut peer, stream) = tokio::io::duplex(1 << 20);
        let (link, ended) = start(stream, Options::default(), Role::Opener);
        let mut session = link.open(b"").unwrap();
        settle().await;
        peer.write_all(&greeting()).await.unwrap();
        for _ in 0..15 {
            peer.write_all(&frame(Kind::Data, 0, &[4; 60_000])).await.unwrap();
        }
        session.write_all(b"one more question").await.unwrap();
        drop(peer);
        assert_eq!(read_all(&mut session).await, (vec![4; 900_000], Err(ErrorKind::ConnectionReset)));
        assert_eq!(ended.await.unwrap(), End::ClosedByPeer);
    });
}
