//! Owns the stream of a connection: a socket, with or without TLS, or a pipe in this process. Never knows what it carries, or who serves it.

use crate::clients::Transport;
use crate::nested_poll;
use crate::session_stream::SessionStream;
use rustix::net::{RecvFlags, SendFlags};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

pub enum Stream {
    Tcp(TcpStream),
    Tls(Box<TlsStream<PolledSocket>>),
    Unix(UnixStream),
    Memory(MemoryStream),
}

/// A client in this process, without a descriptor.
pub struct MemoryStream {
    pub stream: SessionStream,
    /// What has arrived is still read, and then the end of the input.
    pub is_shut: Arc<AtomicBool>,
}

/// A socket under TLS or a link, which can be read and written while a script blocks its thread.
pub struct PolledSocket(pub TcpStream);

impl AsyncRead for PolledSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let socket = &mut self.get_mut().0;
        let polled = Pin::new(&mut *socket).poll_read(cx, buf);
        nested_poll::read(socket, buf, polled)
    }
}

impl AsyncWrite for PolledSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let socket = &mut self.get_mut().0;
        let polled = Pin::new(&mut *socket).poll_write(cx, bytes);
        nested_poll::write(socket, bytes, polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let socket = &mut self.get_mut().0;
        let polled = Pin::new(&mut *socket).poll_write_vectored(cx, parts);
        let first = parts.iter().find(|part| !part.is_empty()).map_or(&[][..], |part| part);
        nested_poll::write(socket, first, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(cx)
    }
}

impl Stream {
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // `try_io` without a read tells whether the runtime knows of bytes. It takes a third of the instructions of a poll, which is needed
        // only to wait.
        let polled = match self {
            Stream::Tcp(stream) if stream.try_io(Interest::READABLE, || Ok(())).is_ok() => Poll::Ready(Ok(())),
            Stream::Tcp(stream) => stream.poll_read_ready(cx),
            // Bytes that are already decrypted do not show at the socket, so only a read can tell.
            Stream::Tls(_) | Stream::Memory(_) => Poll::Ready(Ok(())),
            Stream::Unix(stream) if stream.try_io(Interest::READABLE, || Ok(())).is_ok() => Poll::Ready(Ok(())),
            Stream::Unix(stream) => stream.poll_read_ready(cx),
        };
        if polled.is_pending() && nested_poll::is_on() { Poll::Ready(Ok(())) } else { polled }
    }

    pub fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        if let Some(received) = self.try_read(buf) {
            return Poll::Ready(received);
        }
        let mut buf = ReadBuf::new(buf);
        ready!(match self {
            Stream::Tcp(stream) => {
                let polled = Pin::new(&mut *stream).poll_read(cx, &mut buf);
                nested_poll::read(stream, &mut buf, polled)
            }
            Stream::Tls(stream) => match ready!(Pin::new(stream).poll_read(cx, &mut buf)) {
                // Many clients close without the TLS close message.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
                read => Poll::Ready(read),
            },
            Stream::Unix(stream) => {
                let polled = Pin::new(&mut *stream).poll_read(cx, &mut buf);
                nested_poll::read(stream, &mut buf, polled)
            }
            Stream::Memory(MemoryStream { stream, is_shut }) => {
                let polled = Pin::new(stream).poll_read(cx, &mut buf);
                if polled.is_pending() && is_shut.load(Relaxed) { Poll::Ready(Ok(())) } else { polled }
            }
        })?;
        Poll::Ready(Ok(buf.filled().len()))
    }

    /// Receives what the socket holds, if the runtime knows that it holds something: the usual case, in half the
    /// instructions of AsyncRead.
    fn try_read(&self, buf: &mut [u8]) -> Option<io::Result<usize>> {
        let mut received = None;
        let tried = match self {
            Stream::Tcp(stream) => stream.try_io(Interest::READABLE, || receive(stream, buf, &mut received)),
            Stream::Unix(stream) => stream.try_io(Interest::READABLE, || receive(stream, buf, &mut received)),
            Stream::Tls(_) | Stream::Memory(_) => return None,
        };
        match (received, tried) {
            (Some(count), _) => Some(Ok(count)),
            (None, Err(error)) if error.kind() != io::ErrorKind::WouldBlock => Some(Err(error)),
            (None, _) => None,
        }
    }

    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Stream::Tcp(stream) => {
                let polled = Pin::new(&mut *stream).poll_write(cx, bytes);
                nested_poll::write(stream, bytes, polled)
            }
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Memory(memory) => Pin::new(&mut memory.stream).poll_write(cx, bytes),
            Stream::Unix(stream) => {
                let polled = Pin::new(&mut *stream).poll_write(cx, bytes);
                nested_poll::write(stream, bytes, polled)
            }
        }
    }

    pub fn poll_write_vectored(&mut self, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let first = || parts.iter().find(|part| !part.is_empty()).map_or(&[][..], |part| part);
        match self {
            Stream::Tcp(stream) => {
                let polled = Pin::new(&mut *stream).poll_write_vectored(cx, parts);
                nested_poll::write(stream, first(), polled)
            }
            Stream::Unix(stream) => {
                let polled = Pin::new(&mut *stream).poll_write_vectored(cx, parts);
                nested_poll::write(stream, first(), polled)
            }
            Stream::Tls(_) | Stream::Memory(_) => self.poll_write(cx, first()),
        }
    }

    #[inline]
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) if !nested_poll::is_on() => {
                stream.try_io(Interest::WRITABLE, || transmit(&*stream, bytes))
            }
            Stream::Unix(stream) if !nested_poll::is_on() => {
                stream.try_io(Interest::WRITABLE, || transmit(&*stream, bytes))
            }
            stream => stream.try_by_poll(bytes),
        }
    }

    #[cold]
    fn try_by_poll(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // No waker is needed: the caller asks again with `poll_write` or `poll_flush` for what is pending.
        match self.poll_write(&mut Context::from_waker(Waker::noop()), bytes) {
            Poll::Ready(written) => written,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Sends what TLS has encrypted and the socket has not taken.
    #[inline]
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tcp(_) | Stream::Unix(_) | Stream::Memory(_) => Poll::Ready(Ok(())),
        }
    }

    /// Whether the socket has taken all encrypted bytes.
    #[inline]
    pub fn is_flushed(&self) -> bool {
        match self {
            Stream::Tls(stream) => !stream.get_ref().1.wants_write(),
            Stream::Tcp(_) | Stream::Unix(_) | Stream::Memory(_) => true,
        }
    }

    /// Sends the end of the stream, if the protocol has such a message.
    pub fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Memory(memory) => Pin::new(&mut memory.stream).poll_shutdown(cx),
            Stream::Tcp(_) | Stream::Unix(_) => Poll::Ready(Ok(())),
        }
    }

    /// Whether only the connection's task can send: TLS must encrypt bytes in order, and a stream in memory has no descriptor.
    pub fn is_sent_by_task(&self) -> bool {
        matches!(self, Stream::Tls(_) | Stream::Memory(_))
    }

    /// How other threads reach it.
    pub fn transport(&self) -> Transport {
        match self {
            Stream::Tcp(stream) => Transport::Socket(stream.as_raw_fd()),
            Stream::Tls(stream) => Transport::Socket(stream.get_ref().0.0.as_raw_fd()),
            Stream::Unix(stream) => Transport::Socket(stream.as_raw_fd()),
            Stream::Memory(memory) => Transport::Memory(Arc::clone(&memory.is_shut)),
        }
    }
}

/// One receive, for tokio's `try_io`. A read that does not fill the buffer has emptied the socket. Then the runtime gets
/// WouldBlock, so that it waits for more, and no second read finds nothing. The end of the input stays readable.
fn receive(socket: impl AsFd, buf: &mut [u8], received: &mut Option<usize>) -> io::Result<()> {
    let (count, _) = rustix::net::recv(socket, &mut *buf, RecvFlags::DONTWAIT)?;
    *received = Some(count);
    if 0 < count && count < buf.len() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
}

/// One send, for tokio's `try_io`.
fn transmit(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?)
}
