//! Bytes arrive as they were written, whatever other sessions do meanwhile.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base::random::SplitMix64;
use link::frame::{HEADER_BYTES, Header, Kind};
use link::{End, Link, Options, Role, Session};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::common::{Counted, Peer, pair, pair_of, read_all, run, settle, start};

/// Sends each session's bytes back, until the link ends.
fn echo(acceptor: Link) {
    tokio::spawn(async move {
        while let Some((_, session)) = acceptor.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = tokio::io::split(session);
                let _ = tokio::io::copy(&mut from, &mut to).await;
                let _ = to.shutdown().await;
            });
        }
    });
}

#[test]
fn an_echo() {
    run(async {
        let pair = pair();
        let mut session = pair.opener.open(b"shard 7").unwrap();
        session.write_all(b"PING\r\n").await.unwrap();
        let (target, mut accepted) = pair.acceptor.accept().await.unwrap();
        assert_eq!(target, b"shard 7");
        let mut bytes = [0; 6];
        accepted.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"PING\r\n");
        accepted.write_all(b"+PONG\r\n").await.unwrap();
        let mut bytes = [0; 7];
        session.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"+PONG\r\n");
    });
}

#[test]
fn a_session_of_many_windows() {
    run(async {
        let pair = pair();
        echo(pair.acceptor.clone());
        let sent = SplitMix64(1).bytes(5 << 20);
        let (mut from, mut to) = tokio::io::split(pair.opener.open(b"").unwrap());
        let copy = sent.clone();
        tokio::spawn(async move {
            to.write_all(&copy).await.unwrap();
            to.shutdown().await.unwrap();
        });
        let mut received = Vec::new();
        from.read_to_end(&mut received).await.unwrap();
        assert!(received == sent);
    });
}

/// Writes and reads random pieces, each of another size.
async fn converse(session: Session, mut random: SplitMix64) -> usize {
    let pieces = 1 + random.index(8);
    let sizes: Vec<usize> = (0..pieces)
        .map(|_| match random.below(20) {
            0 => random.index(300_000),
            _ => random.index(6000),
        })
        .collect();
    let sent = random.bytes(sizes.iter().sum());
    let (mut from, mut to) = tokio::io::split(session);
    let copy = sent.clone();
    let writer = tokio::spawn(async move {
        let mut rest = &copy[..];
        for size in sizes {
            let (piece, after) = rest.split_at(size);
            to.write_all(piece).await.unwrap();
            if random.below(3) == 0 {
                tokio::task::yield_now().await;
            }
            rest = after;
        }
        to.shutdown().await.unwrap();
        random
    });
    let mut received = Vec::new();
    let mut buffer = vec![0; 1 + sent.len() % 9000];
    loop {
        match from.read(&mut buffer).await.unwrap() {
            0 => break,
            bytes => received.extend_from_slice(&buffer[..bytes]),
        }
    }
    writer.await.unwrap();
    assert!(received == sent, "{} of {} bytes", received.len(), sent.len());
    sent.len()
}

#[test]
fn a_thousand_sessions_at_once() {
    seeds::each(1, 2, |seed| {
        run(async {
            let mut random = SplitMix64(seed);
            let outgoing_bytes_max = [500, 3000, 64 << 10, 256 << 10][random.index(4)];
            let pair = pair_of(Options { outgoing_bytes_max, ..Options::default() });
            echo(pair.acceptor.clone());
            let tasks: Vec<_> = (0..1000)
                .map(|_| {
                    let session = pair.opener.open(b"echo").unwrap();
                    tokio::spawn(converse(session, SplitMix64(random.draw())))
                })
                .collect();
            let mut bytes = 0;
            for task in tasks {
                bytes += task.await.unwrap();
            }
            assert!(bytes > 5_000_000, "{bytes}");
            settle().await;
            assert_eq!(pair.opener.sessions(), 0);
            assert_eq!(pair.acceptor.sessions(), 0);
        });
    });
}

/// A node has a thread per core: the sessions of a link are used on other threads than its driver's.
#[test]
fn sessions_on_other_threads() {
    let (a, b) = tokio::io::duplex(10_000);
    // The clock is real here: the machine may stand still for as long as it likes.
    let options = Options { silence_max: Duration::from_secs(3600), outgoing_bytes_max: 20_000, ..Options::default() };
    let (opener, opener_driver) = Link::start(a, options, Role::Opener);
    let (acceptor, acceptor_driver) = Link::start(b, options, Role::Acceptor);
    let thread = |future: Pin<Box<dyn Future<Output = ()> + Send>>| {
        std::thread::spawn(move || {
            tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future);
        })
    };
    let mut threads = vec![
        thread(Box::pin(async { assert_eq!(opener_driver.await, End::Closed) })),
        thread(Box::pin(async { assert_eq!(acceptor_driver.await, End::ClosedByPeer) })),
        thread(Box::pin(async move {
            let mut tasks = Vec::new();
            while let Some((_, session)) = acceptor.accept().await {
                tasks.push(tokio::spawn(async move {
                    let (mut from, mut to) = tokio::io::split(session);
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                    let _ = to.shutdown().await;
                }));
            }
            for task in tasks {
                task.await.unwrap();
            }
        })),
    ];
    for number in 0..3 {
        let opener = opener.clone();
        threads.push(thread(Box::pin(async move {
            let mut random = SplitMix64(number);
            for _ in 0..10 {
                let tasks: Vec<_> = (0..5)
                    .map(|_| tokio::spawn(converse(opener.open(b"").unwrap(), SplitMix64(random.draw()))))
                    .collect();
                for task in tasks {
                    task.await.unwrap();
                }
            }
        })));
    }
    // The last handle closes the link.
    drop(opener);
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn what_a_hundred_sessions_write_in_one_tick_leaves_in_one_write() {
    run(async {
        let (a, b) = tokio::io::duplex(1 << 20);
        let writes = Arc::new(AtomicUsize::new(0));
        let (opener, _ended) = start(Counted { stream: a, writes: writes.clone() }, Options::default(), Role::Opener);
        let (acceptor, _ended) = start(b, Options::default(), Role::Acceptor);
        let sessions: Vec<_> = (0..100).map(|_| opener.open(b"").unwrap()).collect();
        settle().await;
        assert_eq!(writes.swap(0, Ordering::Relaxed), 1, "the greeting and a hundred OPENs");
        // Each in its own task, as connections are.
        for mut session in sessions {
            tokio::spawn(async move {
                session.write_all(&[7; 1000]).await.unwrap();
                std::future::pending::<()>().await;
            });
        }
        settle().await;
        assert_eq!(writes.load(Ordering::Relaxed), 1);
        for _ in 0..100 {
            let (_, mut session) = acceptor.accept().await.unwrap();
            let mut bytes = [0; 1000];
            session.read_exact(&mut bytes).await.unwrap();
            assert_eq!(bytes, [7; 1000]);
        }
    });
}

#[test]
fn small_writes_in_a_row_are_one_frame() {
    run(async {
        let (mut peer, link, _ended) = Peer::start(Options::default(), Role::Opener).await;
        let (mut a, mut b) = (link.open(b"a").unwrap(), link.open(b"b").unwrap());
        for piece in [&b"one "[..], b"two ", b"three"] {
            a.write_all(piece).await.unwrap();
        }
        b.write_all(b"other").await.unwrap();
        a.write_all(b"four").await.unwrap();
        assert_eq!(peer.receive().await, (Kind::Open, 0, b"a".to_vec()));
        assert_eq!(peer.receive().await, (Kind::Open, 1, b"b".to_vec()));
        assert_eq!(peer.receive().await, (Kind::Data, 0, b"one two three".to_vec()));
        assert_eq!(peer.receive().await, (Kind::Data, 1, b"other".to_vec()));
        assert_eq!(peer.receive().await, (Kind::Data, 0, b"four".to_vec()));
        // A frame holds 64 KiB.
        a.write_all(&[1; 65_530]).await.unwrap();
        a.write_all(&[2; 6]).await.unwrap();
        a.write_all(&[3; 6]).await.unwrap();
        assert_eq!(peer.receive().await.2.len(), 65_536);
        assert_eq!(peer.receive().await, (Kind::Data, 0, vec![3; 6]));
    });
}

#[test]
fn the_bytes_of_the_protocol() {
    assert_eq!(link::frame::greeting(), *b"FKLINK\x01\0");
    let header = Header { kind: Kind::Data, length: 0x01_0000, session: 0x0807_0605 };
    assert_eq!(header.encode(), [2, 0, 0, 1, 5, 6, 7, 8]);
    for kind in Kind::ALL {
        assert_eq!(Kind::from_byte(kind as u8), Some(kind));
        let header =
            Header { kind, length: (0..=65_536).rev().find(|length| kind.can_have(*length)).unwrap(), session: 9 };
        assert_eq!(Header::decode(header.encode()), Ok(header));
    }
    assert_eq!(Header::decode([0; HEADER_BYTES]), Err(0));
    assert_eq!(Header::decode([10; HEADER_BYTES]), Err(10));
}

#[test]
fn numbers_are_used_again() {
    run(async {
        let pair = pair();
        for round in 0..300u32 {
            let (mut opened, mut accepted) = pair.session().await;
            opened.write_all(&round.to_le_bytes()).await.unwrap();
            drop(opened);
            assert_eq!(read_all(&mut accepted).await, (round.to_le_bytes().to_vec(), Ok(())));
            drop(accepted);
            settle().await;
            assert_eq!((pair.opener.sessions(), pair.acceptor.sessions()), (0, 0));
        }
    });
}
