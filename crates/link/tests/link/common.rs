//! What several tests need: a runtime, two linked ends, a peer that writes frames by hand, and streams that count.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use link::frame::{HEADER_BYTES, Header, Kind, greeting};
use link::{End, Link, Options, Role, Session};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::task::JoinHandle;

/// What the stream between the ends holds, as a socket's buffers would.
pub const STREAM_BYTES: usize = 64 << 10;

pub fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    // In paused time, which passes only when nothing else can go on.
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(600), test).await.expect("the test ends") })
}

pub type Ended = JoinHandle<End>;

pub fn start<S>(stream: S, options: Options, role: Role) -> (Link, Ended)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (link, driver) = Link::start(stream, options, role);
    (link, tokio::spawn(driver))
}

pub struct Pair {
    pub opener: Link,
    pub acceptor: Link,
    pub opener_ended: Ended,
    pub acceptor_ended: Ended,
}

pub fn pair_of(options: Options) -> Pair {
    let (a, b) = tokio::io::duplex(STREAM_BYTES);
    let (opener, opener_ended) = start(a, options, Role::Opener);
    let (acceptor, acceptor_ended) = start(b, options, Role::Acceptor);
    Pair { opener, acceptor, opener_ended, acceptor_ended }
}

pub fn pair() -> Pair {
    pair_of(Options::default())
}

impl Pair {
    /// A session, from both ends.
    pub async fn session(&self) -> (Session, Session) {
        let opened = self.opener.open(b"").expect("a session");
        let (_, accepted) = self.acceptor.accept().await.expect("the session");
        (opened, accepted)
    }
}

/// Lets all tasks run until each of them waits.
pub async fn settle() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

/// Reads to the end, and says how it ended.
pub async fn read_all(session: &mut Session) -> (Vec<u8>, Result<(), io::ErrorKind>) {
    let mut bytes = Vec::new();
    let end = session.read_to_end(&mut bytes).await;
    (bytes, end.map(|_| ()).map_err(|error| error.kind()))
}

pub fn frame(kind: Kind, session: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Header { kind, length: payload.len(), session }.encode().to_vec();
    bytes.extend_from_slice(payload);
    bytes
}

/// A peer that writes frames by hand.
pub struct Peer(pub DuplexStream);

impl Peer {
    /// Opposite to a link of this role. Both have greeted.
    pub async fn start(options: Options, role: Role) -> (Peer, Link, Ended) {
        let (ours, theirs) = tokio::io::duplex(STREAM_BYTES);
        let (link, ended) = start(theirs, options, role);
        let mut peer = Peer(ours);
        peer.0.write_all(&greeting()).await.expect("sent");
        let mut first = [0; HEADER_BYTES];
        peer.0.read_exact(&mut first).await.expect("a greeting");
        assert_eq!(first, greeting());
        (peer, link, ended)
    }

    pub async fn send(&mut self, kind: Kind, session: u32, payload: &[u8]) {
        self.0.write_all(&frame(kind, session, payload)).await.expect("sent");
    }

    /// The next frame that is no PING.
    pub async fn receive(&mut self) -> (Kind, u32, Vec<u8>) {
        loop {
            let mut head = [0; HEADER_BYTES];
            self.0.read_exact(&mut head).await.expect("a header");
            let header = Header::decode(head).expect("a known kind");
            let mut payload = vec![0; header.length];
            self.0.read_exact(&mut payload).await.expect("a payload");
            if header.kind != Kind::Ping {
                return (header.kind, header.session, payload);
            }
        }
    }
}

/// A stream that counts its writes.
pub struct Counted<S> {
    pub stream: S,
    pub writes: Arc<AtomicUsize>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, to)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.stream).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
