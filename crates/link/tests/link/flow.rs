//! Windows, the outgoing buffer and memory: a slow reader holds up its own session only, and turns go round.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use link::frame::{Kind, WINDOW_BYTES};
use link::{Options, Role, Session};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::common::{Peer, pair, pair_of, read_all, run, settle};

const WINDOW: usize = WINDOW_BYTES as usize;

/// Writes until the session takes no more, and lets the driver send it. Returns the number of bytes.
async fn fill(session: &mut Session) -> usize {
    let data = vec![5; 64 << 10];
    let mut sum = 0;
    for _ in 0..200 {
        while let Some(bytes) = write_now(session, &data).await {
            sum += bytes;
        }
        settle().await;
    }
    sum
}

/// One write, if it need not wait.
async fn write_now(session: &mut Session, data: &[u8]) -> Option<usize> {
    poll_fn(|context| match Pin::new(&mut *session).poll_write(context, data) {
        Poll::Ready(written) => Poll::Ready(Some(written.unwrap())),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

#[test]
fn a_slow_reader_holds_up_no_other_session() {
    run(async {
        let pair = pair();
        let (mut slow, mut slow_end) = pair.session().await;
        assert_eq!(fill(&mut slow).await, WINDOW);
        assert!(slow_end.mem_bytes() <= WINDOW + 512, "{}", slow_end.mem_bytes());
        let (mut other, mut other_end) = pair.session().await;
        for round in 0..100u8 {
            other.write_all(&vec![round; 50_000]).await.unwrap();
            let mut bytes = vec![0; 50_000];
            other_end.read_exact(&mut bytes).await.unwrap();
            assert!(bytes.iter().all(|byte| *byte == round));
        }
        // Credit comes back once half of the window was read.
        let mut bytes = vec![0; WINDOW / 2 - 1];
        slow_end.read_exact(&mut bytes).await.unwrap();
        assert_eq!(fill(&mut slow).await, 0);
        slow_end.read_exact(&mut bytes[..1]).await.unwrap();
        assert_eq!(fill(&mut slow).await, WINDOW / 2);
        drop(slow);
        assert_eq!(read_all(&mut slow_end).await.0.len(), WINDOW);
    });
}

#[test]
fn memory_is_bounded_and_given_back() {
    run(async {
        let pair = pair();
        let idle = pair.acceptor.mem_bytes();
        let mut sessions = Vec::new();
        for _ in 0..20 {
            let (mut opened, accepted) = pair.session().await;
            assert_eq!(fill(&mut opened).await, WINDOW);
            sessions.push((opened, accepted));
        }
        let full = pair.acceptor.mem_bytes();
        assert!(20 * WINDOW < full && full < 20 * (WINDOW + 1000) + (1 << 20), "{full}");
        assert!(pair.opener.mem_bytes() < 2 << 20, "{}", pair.opener.mem_bytes());
        for (_, accepted) in &mut sessions {
            let mut bytes = vec![0; WINDOW];
            accepted.read_exact(&mut bytes).await.unwrap();
            assert!(accepted.mem_bytes() < 1 << 10, "{}", accepted.mem_bytes());
        }
        drop(sessions);
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        assert!(pair.acceptor.mem_bytes() < idle + 4096, "{idle} {}", pair.acceptor.mem_bytes());
    });
}

/// Reads what comes until the window has no reason to grow, and returns what can be sent then.
async fn widen((opened, accepted): &mut (Session, Session)) -> usize {
    for _ in 0..7 {
        let sent = fill(opened).await;
        accepted.read_exact(&mut vec![0; sent]).await.unwrap();
    }
    fill(opened).await
}

/// Sessions that are read get large windows, until all have grown as much as is allowed. What is closed makes room.
#[test]
fn windows_grow_together_within_a_bound() {
    run(async {
        const FIRST: usize = 16 << 10;
        const GROWN_MAX: usize = 2 << 20;
        let options = Options { first_window_bytes: FIRST as u32, grown_bytes_max: GROWN_MAX, ..Options::default() };
        let pair = pair_of(options);
        let mut sessions = Vec::new();
        let mut all = 0;
        for number in 0..6 {
            let mut session = pair.session().await;
            assert_eq!(fill(&mut session.0).await, FIRST);
            session.1.read_exact(&mut [0; FIRST]).await.unwrap();
            let window = widen(&mut session).await;
            assert_eq!(window == WINDOW, number == 0, "session {number}: {window}");
            assert!(window >= FIRST, "session {number}: {window}");
            all += window;
            sessions.push(session);
        }
        assert!(all <= 6 * FIRST + GROWN_MAX, "{all}");
        let taken = pair.acceptor.mem_bytes();
        assert!((all..all + 6 * 1000 + (1 << 20)).contains(&taken), "{taken} for {all}");
        // While there is no room, those that are read give some back.
        let (_, accepted) = &mut sessions[0];
        accepted.read_exact(&mut vec![0; WINDOW]).await.unwrap();
        assert!(widen(&mut sessions[0]).await < WINDOW);
        drop(sessions);
        assert_eq!(widen(&mut pair.session().await).await, WINDOW);
    });
}

#[test]
fn an_idle_session_takes_less_than_a_kilobyte() {
    run(async {
        let pair = pair();
        let mut sessions = Vec::new();
        for _ in 0..1000 {
            let (mut opened, mut accepted) = pair.session().await;
            opened.write_all(&[1; 6000]).await.unwrap();
            accepted.read_exact(&mut [0; 6000]).await.unwrap();
            sessions.push((opened, accepted));
        }
        for link in [&pair.opener, &pair.acceptor] {
            assert!(link.mem_bytes() < 1000 * 300 + (1 << 20), "{}", link.mem_bytes());
        }
        assert!(sessions.iter().all(|(opened, accepted)| opened.mem_bytes() < 1000 && accepted.mem_bytes() < 1000));
    });
}

#[test]
fn writes_wait_for_a_peer_that_does_not_read() {
    run(async {
        let options = Options { silence_max: std::time::Duration::from_secs(3600), ..Options::default() };
        let (mut peer, link, _ended) = Peer::start(options, Role::Opener).await;
        let mut sessions: Vec<_> = (0..10).map(|_| link.open(b"").unwrap()).collect();
        let mut sum = 0;
        for session in &mut sessions {
            sum += fill(session).await;
        }
        // In the stream, under way and in the buffer, which a share may exceed.
        assert!((256 << 10..(64 << 10) + 2 * (320 << 10)).contains(&sum), "{sum}");
        assert!(link.mem_bytes() < 2 << 20, "{}", link.mem_bytes());
        let mut received = 0;
        while received < sum {
            received += match peer.receive().await {
                (Kind::Data, _, data) => data.len(),
                _ => 0,
            };
        }
        assert_eq!(received, sum);
    });
}

/// All but one write as much as they can; the last writes little. Each gets as much as it wants, in turn.
#[test]
fn no_session_starves() {
    run(async {
        let (mut peer, link, _ended) = Peer::start(Options::default(), Role::Opener).await;
        for _ in 0..16 {
            let mut greedy = link.open(b"").unwrap();
            tokio::spawn(async move { while greedy.write_all(&[1; 200_000]).await.is_ok() {} });
        }
        let mut modest = link.open(b"").unwrap();
        tokio::spawn(async move { while modest.write_all(&[2; 100]).await.is_ok() {} });
        let mut sent = [0usize; 17];
        let mut gaps = [0usize; 17];
        let mut frames = 0;
        while frames < 2000 {
            let (kind, session, data) = peer.receive().await;
            if kind != Kind::Data {
                continue;
            }
            frames += 1;
            gaps.iter_mut().for_each(|gap| *gap += 1);
            assert!(gaps[session as usize] < 60, "session {session} waited for {} frames", gaps[session as usize]);
            gaps[session as usize] = 0;
            sent[session as usize] += data.len();
            // Credit for all of it, so that only the turns decide.
            peer.send(Kind::Credit, session, &(data.len() as u32).to_le_bytes()).await;
        }
        assert!(gaps.iter().all(|gap| *gap < 60), "{gaps:?}");
        let (least, most) = (sent[..16].iter().min().unwrap(), sent[..16].iter().max().unwrap());
        assert!(*most < *least * 5 / 4, "{sent:?}");
    });
}

/// A session has waited for room, and when its turn comes its task waits for something else.
#[test]
fn a_turn_that_is_not_used_holds_up_nobody() {
    run(async {
        let (mut peer, link, _ended) = Peer::start(Options::default(), Role::Opener).await;
        let mut first = link.open(b"").unwrap();
        fill(&mut first).await;
        let mut lazy: Vec<_> = (0..40).map(|_| link.open(b"").unwrap()).collect();
        for session in &mut lazy {
            assert_eq!(write_now(session, b"x").await, None);
        }
        let mut eager = link.open(b"").unwrap();
        let started = tokio::time::Instant::now();
        let writer = tokio::spawn(async move {
            eager.write_all(&[9; 300_000]).await.unwrap();
            eager
        });
        let mut received = 0;
        while received < 300_000 {
            if let (Kind::Data, 41, data) = peer.receive().await {
                received += data.len();
            }
        }
        writer.await.unwrap();
        assert!(started.elapsed() < std::time::Duration::from_millis(500), "{:?}", started.elapsed());
        for session in &mut lazy {
            assert_eq!(write_now(session, b"x").await, Some(1));
        }
    });
}

/// Room that a turn leaves belongs to those who wait, not to a session that comes later.
#[test]
fn nobody_goes_before_those_who_wait() {
    run(async {
        let (mut peer, link, _ended) = Peer::start(Options::default(), Role::Opener).await;
        let mut first = link.open(b"").unwrap();
        fill(&mut first).await;
        for _ in 0..8 {
            let (mut session, mut late) = (link.open(b"").unwrap(), link.open(b"").unwrap());
            tokio::spawn(async move {
                session.write_all(b"waited").await.unwrap();
                late.write_all(b"late").await.unwrap();
                std::future::pending::<()>().await;
            });
        }
        settle().await;
        let mut order = Vec::new();
        while order.len() < 16 {
            let (kind, session, data) = peer.receive().await;
            if kind == Kind::Data && session != 0 {
                order.push(data);
            }
        }
        assert!(order[..8].iter().all(|data| data == b"waited"), "{order:?}");
    });
}

#[test]
fn what_was_sent_in_part_makes_room() {
    run(async {
        let (mut peer, link, _ended) = Peer::start(Options::default(), Role::Opener).await;
        let mut first = link.open(b"").unwrap();
        fill(&mut first).await;
        let mut second = link.open(b"").unwrap();
        assert_eq!(write_now(&mut second, b"x").await, None);
        peer.0.read_exact(&mut vec![0; 100_000]).await.unwrap();
        settle().await;
        assert_eq!(write_now(&mut second, b"x").await, Some(1));
    });
}

#[test]
fn sessions_that_are_dropped_while_they_wait_leave_the_queue() {
    run(async {
        let (mut peer, link, _ended) = Peer::start(Options::default(), Role::Opener).await;
        let started = tokio::time::Instant::now();
        let mut first = link.open(b"").unwrap();
        fill(&mut first).await;
        let mut waiting: Vec<_> = (0..30).map(|_| link.open(b"").unwrap()).collect();
        for session in &mut waiting {
            assert_eq!(write_now(session, b"x").await, None);
        }
        // Some are dropped, some are closed by the peer, some both.
        drop(waiting.split_off(15));
        for session in 10..31 {
            peer.send(Kind::Close, session, b"").await;
        }
        settle().await;
        let mut eager = link.open(b"").unwrap();
        let writer = tokio::spawn(async move {
            eager.write_all(&[9; 300_000]).await.unwrap();
            eager
        });
        settle().await;
        peer.0.read_exact(&mut vec![0; 300_000]).await.unwrap();
        settle().await;
        // Some have their turns now.
        drop(waiting);
        while !writer.is_finished() {
            assert!(peer.0.read(&mut [0; 10_000]).await.unwrap() > 0);
        }
        assert_eq!(started.elapsed(), std::time::Duration::ZERO, "nobody waited for the end of a turn");
        assert_eq!(link.end(), None);
    });
}
