//! The connection is lost after each byte of an exchange.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use link::{End, Options, Role};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::Instant;

use crate::common::{read_all, run, start};

/// How a connection is lost.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Loss {
    EndOfFile,
    Reset,
}

/// A stream that loses its connection after it has read so many bytes.
struct Cut<S> {
    stream: S,
    left: usize,
    loss: Loss,
    read: Arc<AtomicUsize>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Cut<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.left == 0 {
            return Poll::Ready(match self.loss {
                Loss::EndOfFile => Ok(()),
                Loss::Reset => Err(ErrorKind::ConnectionReset.into()),
            });
        }
        let mut part = to.take(self.left);
        let before = part.filled().len();
        std::task::ready!(Pin::new(&mut self.stream).poll_read(context, &mut part))?;
        let bytes = part.filled().len() - before;
        let filled = to.filled().len() + bytes;
        // They are in the buffer already: `take` shares it.
        to.initialize_unfilled_to(bytes);
        to.set_filled(filled);
        self.left -= bytes;
        self.read.fetch_add(bytes, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Cut<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

fn question(session: u8) -> Vec<u8> {
    vec![session; 20 + usize::from(session)]
}

fn answer(session: u8) -> Vec<u8> {
    vec![100 + session; 30 + usize::from(session)]
}

/// What came is a prefix of what was sent. It is all of it if the session ended in order.
fn check(received: &(Vec<u8>, Result<(), ErrorKind>), sent: &[u8], context: &str) {
    assert!(sent.starts_with(&received.0), "{context}: {received:?}");
    match received.1 {
        Ok(()) => assert_eq!(received.0, sent, "{context}"),
        Err(kind) => assert_eq!(kind, ErrorKind::ConnectionReset, "{context}"),
    }
}

/// Three sessions ask and are answered. One end's connection is lost after it has read `left` bytes. Returns how many it has read.
fn exchange(cut: Role, left: usize, loss: Loss) -> usize {
    run(async {
        let context = format!("{cut:?} after {left} bytes, {loss:?}");
        let started = Instant::now();
        let read = Arc::new(AtomicUsize::new(0));
        let (a, b) = tokio::io::duplex(1000);
        let wrap = |role, stream| {
            let left = if cut == role { left } else { usize::MAX };
            Cut { stream, left, loss, read: if cut == role { read.clone() } else { Arc::default() } }
        };
        let (opener, opener_ended) = start(wrap(Role::Opener, a), Options::default(), Role::Opener);
        let (acceptor, acceptor_ended) = start(wrap(Role::Acceptor, b), Options::default(), Role::Acceptor);

        let serving = acceptor.clone();
        let name = context.clone();
        let server = tokio::spawn(async move {
            let mut tasks = Vec::new();
            while let Some((target, mut session)) = serving.accept().await {
                let context = format!("{name}: question {target:?}");
                tasks.push(tokio::spawn(async move {
                    let received = read_all(&mut session).await;
                    check(&received, &question(target[0]), &context);
                    if received.1.is_ok() {
                        let _ = session.write_all(&answer(target[0])).await;
                    }
                }));
            }
            for task in tasks {
                task.await.unwrap();
            }
        });
        let mut tasks = Vec::new();
        for number in 1..=3 {
            // The link may have ended.
            let Ok(mut session) = opener.open(&[number]) else { continue };
            let context = format!("{context}: answer {number}");
            tasks.push(tokio::spawn(async move {
                let _ = session.write_all(&question(number)).await;
                let _ = session.shutdown().await;
                let received = read_all(&mut session).await;
                check(&received, &answer(number), &context);
                received.1.is_ok()
            }));
            tokio::task::yield_now().await;
        }
        let mut answered = 0;
        for task in tasks {
            answered += usize::from(task.await.unwrap());
        }
        if left == usize::MAX {
            assert_eq!(answered, 3);
        }
        opener.close();
        drop((opener, acceptor));
        let ended = [opener_ended.await.unwrap(), acceptor_ended.await.unwrap()];
        if left < usize::MAX && loss == Loss::Reset {
            assert!(ended.iter().any(|end| matches!(end, End::Stream { .. } | End::Closed)), "{context}: {ended:?}");
        }
        server.await.unwrap();
        // Nobody had to wait for the keep-alive.
        assert!(started.elapsed() < Duration::from_millis(100), "{context}: {:?}", started.elapsed());
        read.load(Ordering::Relaxed)
    })
}

#[test]
fn a_connection_that_is_lost_after_any_byte() {
    for cut in [Role::Opener, Role::Acceptor] {
        let whole = exchange(cut, usize::MAX, Loss::Reset);
        assert!(whole > 150, "{whole}");
        for left in 0..whole {
            for loss in [Loss::EndOfFile, Loss::Reset] {
                assert_eq!(exchange(cut, left, loss), left);
            }
        }
    }
}
