//! Owns the stream of a session between a proxy and the owner of a shard: inside of this process, or over a link to another node. Never
//! knows which node that is.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

/// What either end may send before the other one has read it, at least. Between nodes it can become more.
pub const SESSION_WINDOW_BYTES: usize = 16 << 10;

pub enum SessionStream {
    Memory(DuplexStream),
    Link(link::Session),
}

impl AsyncRead for SessionStream {
    #[inline]
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            SessionStream::Memory(stream) => Pin::new(stream).poll_read(cx, buf),
            SessionStream::Link(session) => Pin::new(session).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for SessionStream {
    #[inline]
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            SessionStream::Memory(stream) => Pin::new(stream).poll_write(cx, bytes),
            SessionStream::Link(session) => Pin::new(session).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            SessionStream::Memory(stream) => Pin::new(stream).poll_flush(cx),
            SessionStream::Link(session) => Pin::new(session).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            SessionStream::Memory(stream) => Pin::new(stream).poll_shutdown(cx),
            SessionStream::Link(session) => Pin::new(session).poll_shutdown(cx),
        }
    }
}
