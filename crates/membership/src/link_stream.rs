//! Owns the stream of a link between two nodes: its handshake, and whether TLS is left after that. Never knows what a link carries.
//!
//! Every link begins with a mutual TLS handshake: by it each end knows whose the connection is. With `peer-tls no` both ends then leave
//! TLS and go on over the same connection. So no secret travels that another connection could show, and whoever has no certificate of a
//! member comes no further than the handshake. The handshake covers which of the two protocols was agreed on, so nobody on the way can
//! make two nodes leave TLS.
//!
//! ```text
//! opener                            acceptor
//!    <── handshake of TLS 1.3 ──>
//!    <────── READY, in TLS ───────             the acceptor believes the opener
//!    ─────── READY, in TLS ──────>             nothing more comes in TLS
//!    <────── READY, plain ────────             nothing more comes in TLS
//!    <────── frames, plain ──────>
//! ```
//! An end that waits for READY sends nothing. So no plain byte lies behind a record of TLS, where the other end's TLS would read it.

use pki::{LINK_PROTOCOL, PLAIN_LINK_PROTOCOL, PeerCertificate};
use rustls::{AlertDescription, ClientConfig, ServerConfig};
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio_rustls::{StartHandshake, TlsConnector, TlsStream};

const READY: u8 = b'R';

/// The protocol of the links of a node with this `peer-tls`.
pub fn link_protocol(enciphers: bool) -> &'static [u8] {
    if enciphers { LINK_PROTOCOL } else { PLAIN_LINK_PROTOCOL }
}

/// A connection of two members that know each other.
pub enum LinkStream<S> {
    Tls(Box<TlsStream<S>>),
    Plain(S),
}

impl<S: AsyncRead + AsyncWrite + Unpin> LinkStream<S> {
    /// The opener's end. `settings`: of [`pki::link_client`], with [`link_protocol`].
    pub async fn open(stream: S, settings: Arc<ClientConfig>) -> io::Result<(PeerCertificate, LinkStream<S>)> {
        let enciphers = has(&settings.alpn_protocols, LINK_PROTOCOL);
        let connected = TlsConnector::from(settings).connect(pki::server_name(), stream).await;
        let mut tls = connected.map_err(|error| explained(error, enciphers))?;
        let peer = pki::peer_certificate(tls.get_ref().1).map_err(io::Error::other)?;
        if tls.get_ref().1.alpn_protocol() != Some(link_protocol(enciphers)) {
            return Err(other_setting(enciphers));
        }
        if enciphers {
            return Ok((peer, LinkStream::Tls(Box::new(tls.into()))));
        }
        wait_for_ready(&mut tls).await?;
        say_ready(&mut tls).await?;
        let (mut plain, _) = tls.into_inner();
        wait_for_ready(&mut plain).await?;
        Ok((peer, LinkStream::Plain(plain)))
    }

    /// The acceptor's end. `settings`: of [`pki::link_server`], with [`link_protocol`].
    pub async fn accept(
        start: StartHandshake<S>,
        settings: Arc<ServerConfig>,
    ) -> io::Result<(PeerCertificate, LinkStream<S>)> {
        let enciphers = has(&settings.alpn_protocols, LINK_PROTOCOL);
        let mut tls = start.into_stream(settings).await.map_err(|error| explained(error, enciphers))?;
        let peer = pki::peer_certificate(tls.get_ref().1).map_err(io::Error::other)?;
        match tls.get_ref().1.alpn_protocol() {
            Some(LINK_PROTOCOL) => return Ok((peer, LinkStream::Tls(Box::new(tls.into())))),
            Some(PLAIN_LINK_PROTOCOL) => {}
            _ => return Err(io::Error::new(ErrorKind::InvalidData, "no protocol of links was agreed on")),
        }
        say_ready(&mut tls).await?;
        wait_for_ready(&mut tls).await?;
        let (mut plain, _) = tls.into_inner();
        say_ready(&mut plain).await?;
        Ok((peer, LinkStream::Plain(plain)))
    }
}

async fn say_ready(stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    stream.write_all(&[READY]).await?;
    stream.flush().await
}

async fn wait_for_ready(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    match stream.read_u8().await? {
        READY => Ok(()),
        _ => Err(io::Error::new(ErrorKind::InvalidData, "the other end of a link does not leave TLS as this one does")),
    }
}

fn has(protocols: &[Vec<u8>], protocol: &[u8]) -> bool {
    protocols.iter().any(|one| one == protocol)
}

/// The error of a handshake: the two ends may have asked for different protocols of links.
fn explained(error: io::Error, enciphers: bool) -> io::Error {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    match cause {
        Some(
            rustls::Error::NoApplicationProtocol
            | rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol),
        ) => other_setting(enciphers),
        _ => error,
    }
}

/// The kind is [`ErrorKind::Unsupported`]: only another setting at one of the nodes helps.
fn other_setting(enciphers: bool) -> io::Error {
    let (here, there) = if enciphers { ("yes", "no") } else { ("no", "yes") };
    let text = format!(
        "peer-tls is {here} at this node and {there} at the other one: it must be the same on all nodes of a cluster"
    );
    io::Error::new(ErrorKind::Unsupported, text)
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for LinkStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            LinkStream::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
            LinkStream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for LinkStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            LinkStream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
            LinkStream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            LinkStream::Tls(stream) => Pin::new(stream).poll_flush(cx),
            LinkStream::Plain(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            LinkStream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            LinkStream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
