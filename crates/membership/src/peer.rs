//! Owns the port for other nodes: who may come in, and which of the protocols a connection speaks. Never knows what a link or an API carries.

use crate::api_stream::{self, ApiStream};
use crate::call::{self, NodeCalls};
use crate::issuer::Issuer;
use crate::link_stream::{LinkStream, link_protocol};
use crate::standing::Standing;
use pki::{
    API_PROTOCOL, CurrentCredential, JOIN_PROTOCOL, LINK_PROTOCOL, PLAIN_LINK_PROTOCOL, STANDING_PROTOCOL, Trust,
};
use rustls::ServerConfig;
use rustls::server::Acceptor;
use rustls::time_provider::DefaultTimeProvider;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::{LazyConfigAcceptor, StartHandshake};

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections of which it is not known yet whose they are, and calls. More of them wait in the kernel.
const STRANGERS_MAX: usize = 128;
/// After an error of accept, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// Who answers, which changes when etcd's endpoints do.
pub trait Answers: NodeCalls + 'static {
    fn issuer(&self) -> Arc<Issuer>;
    /// A link of a member, before its handshake: [`accept_link`] does that, in the runtime that serves the link.
    fn link(&self, hello: PeerHello);
    /// A connection of another member's API, before its handshake: [`accept_api`] does that, in the runtime of this node's API.
    fn api(&self, hello: PeerHello);
}

/// A connection that asks for a link, or for the API.
pub struct PeerHello {
    start: StartHandshake<TcpStream>,
    settings: Arc<ServerConfig>,
}

/// The settings for each kind of callers.
pub struct PeerTls {
    link: Arc<ServerConfig>,
    standing: Arc<ServerConfig>,
    join: Arc<ServerConfig>,
    trust: Arc<Trust>,
}

impl PeerTls {
    /// `enciphers`: what links carry (`peer-tls`).
    pub fn new(current: &Arc<CurrentCredential>, trust: &Arc<Trust>, enciphers: bool) -> PeerTls {
        let clock = Arc::new(DefaultTimeProvider);
        PeerTls {
            link: pki::link_server(current, trust, link_protocol(enciphers), clock.clone()),
            standing: pki::standing_server(current, trust, clock.clone()),
            join: pki::join_server(current, trust, clock),
            trust: Arc::clone(trust),
        }
    }
}

/// Serves the port until the task is dropped.
pub async fn serve(listener: TcpListener, tls: PeerTls, answers: Arc<dyn Answers>) {
    let tls = Arc::new(tls);
    let strangers = Arc::new(Semaphore::new(STRANGERS_MAX));
    loop {
        let permit = Arc::clone(&strangers).acquire_owned().await.expect("nobody closes the semaphore");
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!("a connection of another node was not accepted: {error}");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let (tls, answers) = (Arc::clone(&tls), Arc::clone(&answers));
        tokio::spawn(async move {
            let peer = stream.peer_addr().map_or_else(|_| "?".to_owned(), |address| address.to_string());
            if let Err(error) = attend(stream, &tls, &*answers).await {
                tracing::info!("the connection of {peer} to the port for nodes has ended: {error}");
            }
            drop(permit);
        });
    }
}

async fn attend(stream: TcpStream, tls: &PeerTls, answers: &dyn Answers) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let hello = timeout(HANDSHAKE_TIMEOUT, LazyConfigAcceptor::new(Acceptor::default(), stream));
    let start = hello.await.map_err(|_| io::ErrorKind::TimedOut)??;
    let asks_for =
        |protocol: &[u8]| start.client_hello().alpn().is_some_and(|mut asked| asked.any(|one| one == protocol));
    if asks_for(LINK_PROTOCOL) || asks_for(PLAIN_LINK_PROTOCOL) {
        answers.link(PeerHello { start, settings: Arc::clone(&tls.link) });
        return Ok(());
    }
    if asks_for(API_PROTOCOL) {
        answers.api(PeerHello { start, settings: Arc::clone(&tls.link) });
        return Ok(());
    }
    let (is_join, is_standing) = (asks_for(JOIN_PROTOCOL), asks_for(STANDING_PROTOCOL));
    let settings = match (is_join, is_standing) {
        (true, _) => &tls.join,
        (_, true) => &tls.standing,
        _ => &tls.link,
    };
    let settings = Arc::clone(settings);
    let mut stream =
        timeout(HANDSHAKE_TIMEOUT, start.into_stream(settings)).await.map_err(|_| io::ErrorKind::TimedOut)??;
    let question = call::read_question(&mut stream).await?;
    let issuer = answers.issuer();
    let answer = if is_join {
        issuer.answer_join(&question).await
    } else {
        let identity = pki::peer_identity(stream.get_ref().1).map_err(io::Error::other)?;
        match is_standing {
            true => pki::encode(&Standing::of(&identity, &tls.trust)),
            false => issuer.answer_call(&identity, &question, answers).await,
        }
    };
    call::write_answer(&mut stream, &answer).await
}

impl PeerHello {
    /// Takes the connection out of its runtime. [`accept_link`] and [`accept_api`] put it into another one.
    pub fn detach(self) -> io::Result<DetachedHello> {
        Ok(DetachedHello { accepted: self.start.accepted, stream: self.start.io.into_std()?, settings: self.settings })
    }
}

pub struct DetachedHello {
    accepted: rustls::server::Accepted,
    stream: std::net::TcpStream,
    settings: Arc<ServerConfig>,
}

impl DetachedHello {
    fn attach<S: AsyncRead + AsyncWrite + Unpin>(
        self,
        wrap: impl FnOnce(TcpStream) -> S,
    ) -> io::Result<(StartHandshake<S>, Arc<ServerConfig>)> {
        let stream = wrap(TcpStream::from_std(self.stream)?);
        Ok((StartHandshake::from_parts(self.accepted, stream), self.settings))
    }
}

/// Whose the link is, and its stream. `wrap` makes the socket that the link runs over.
pub async fn accept_link<S: AsyncRead + AsyncWrite + Unpin>(
    hello: DetachedHello,
    wrap: impl FnOnce(TcpStream) -> S,
) -> io::Result<(pki::PeerCertificate, LinkStream<S>)> {
    let (start, settings) = hello.attach(wrap)?;
    timeout(HANDSHAKE_TIMEOUT, LinkStream::accept(start, settings)).await.map_err(|_| io::ErrorKind::TimedOut)?
}

/// Whose API asks, and the stream of its request.
pub async fn accept_api(hello: DetachedHello) -> io::Result<(pki::Identity, ApiStream)> {
    let (start, settings) = hello.attach(|socket| socket)?;
    timeout(HANDSHAKE_TIMEOUT, api_stream::accept(start, settings)).await.map_err(|_| io::ErrorKind::TimedOut)?
}
