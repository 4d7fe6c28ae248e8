//! Owns the console's thread, its sockets and connections. Never knows a route.
//!
//! One thread with its own runtime, so that workers never wait for a browser. Blocking work (a command, a file, a
//! password) runs on at most [`THREADS_MAX`] further threads.

use crate::app::{App, Options};
use crate::background;
use crate::console;
use crate::cx::{OpenConnection, Peer};
use crate::error::ApiError;
use crate::middleware;
use crate::relay::{self, Relayed};
use crate::route::{Method, Route};
use crate::routes;
use agent::ApiHello;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::Response;
use axum::routing::{MethodFilter, MethodRouter, on};
use config::{BindAddress, ConsoleSettings};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use node::Node;
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch as signal};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

const THREADS_MAX: usize = 16;
/// Requests that have a thread or wait for one.
const TURNS_MAX: usize = 64;
/// When as many are open, a new connection replaces the oldest one that has no request in progress.
const CONNECTIONS_MAX: usize = 512;
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The time limit for a request's headers, and between two requests.
const HEADERS: Duration = Duration::from_secs(30);
/// When the node stops, requests in progress get this much time.
const GRACE: Duration = Duration::from_secs(2);

/// The running console. Dropping it stops it.
pub struct Console {
    stop: signal::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Starts the console if the node's configuration asks for one.
pub fn start(node: &Arc<Node>, options: Options) -> io::Result<Option<Console>> {
    let config = node.config();
    let settings = config.snapshot().console.clone();
    if settings.port == 0 {
        return Ok(None);
    }
    let tls = tls(&settings)?;
    let listeners = match listen(&settings) {
        Ok(listeners) => listeners,
        Err(error) if !config.is_named("console-port") && error.kind() == io::ErrorKind::AddrInUse => {
            let port = settings.port;
            tracing::warn!("console-port {port} is taken by another process: this node runs without a console");
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let (app, made_up) = match App::open(Arc::clone(node), options, tls.is_some()) {
        Ok(opened) => opened,
        // The configuration does not name a console, so a missing requirement must not keep the node from serving data.
        Err(error) if !config.is_named("console-port") => {
            tracing::warn!("this node runs without a console: {error}");
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let app = Arc::new(app);
    let scheme = if tls.is_some() { "https" } else { "http" };
    for listener in &listeners {
        if let Ok(address) = listener.local_addr() {
            tracing::info!("console at {scheme}://{address}/");
            if tls.is_none() && !address.ip().to_canonical().is_loopback() {
                tracing::warn!(
                    "the console at {address} is open to other machines and has no TLS: passwords and tokens are sent unencrypted; set console-tls-cert-file and console-tls-key-file, or bind it to a loopback address"
                );
            }
        }
    }
    if let Some(password) = made_up {
        background::say_password(&password);
    }
    let (stop, stopped) = signal::channel(false);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(THREADS_MAX)
        .thread_name("flintkv-api-work")
        .build()?;
    let acceptor = tls.map(TlsAcceptor::from);
    let serving = Arc::clone(&app);
    let until = stopped.clone();
    let web = thread::Builder::new().name("flintkv-api".to_owned()).spawn(move || {
        runtime.block_on(serve(serving, listeners, acceptor, until));
        // Do not wait for a command that a database does not answer.
        runtime.shutdown_timeout(GRACE);
    })?;
    let (shared, until) = (Arc::clone(&app), stopped.clone());
    let sharing =
        thread::Builder::new().name("flintkv-share".to_owned()).spawn(move || background::share(&shared, &until))?;
    let (asking, until) = (Arc::clone(&app), stopped.clone());
    let asking = thread::Builder::new()
        .name("flintkv-shards".to_owned())
        .spawn(move || background::ask_shards(&asking, &until))?;
    let watching =
        thread::Builder::new().name("flintkv-watch".to_owned()).spawn(move || background::run(&app, &stopped))?;
    Ok(Some(Console { stop, threads: vec![web, watching, sharing, asking] }))
}

/// `console-bind`: addresses. An address with a minus in front may be missing on this machine.
fn listen(settings: &ConsoleSettings) -> io::Result<Vec<TcpListener>> {
    let port = settings.port;
    let mut listeners = Vec::new();
    for BindAddress { address: name, optional } in &settings.bind {
        let address: IpAddr = match name.as_str() {
            "*" => IpAddr::from([0, 0, 0, 0]),
            "::*" => IpAddr::from([0u16; 8]),
            name => name.parse().map_err(|_| {
                io::Error::new(io::ErrorKind::InvalidInput, format!("console-bind: '{name}' is not an address"))
            })?,
        };
        match bind(SocketAddr::new(address, port)) {
            Ok(listener) => listeners.push(listener),
            Err(error) if *optional && error.kind() != io::ErrorKind::AddrInUse => {}
            Err(error) => {
                let text = format!("console-port: cannot listen on {}: {error}", SocketAddr::new(address, port));
                return Err(io::Error::new(error.kind(), text));
            }
        }
    }
    if listeners.is_empty() {
        return Err(io::Error::other("console-bind: this machine has none of these addresses"));
    }
    Ok(listeners)
}

/// The IPv6 socket is set to accept no IPv4 connections, so that both addresses can be bound.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    bind(&socket, &address)?;
    listen(&socket, 128)?;
    Ok(socket.into())
}

fn tls(settings: &ConsoleSettings) -> io::Result<Option<Arc<ServerConfig>>> {
    let (cert, key) = match (&settings.cert_file, &settings.key_file) {
        (None, None) => return Ok(None),
        (Some(cert), Some(key)) => (cert, key),
        _ => return Err(io::Error::other("console-tls-cert-file and console-tls-key-file must be set together")),
    };
    let wrong = |file: &Path, error: &dyn std::fmt::Display| {
        io::Error::other(format!("the console's certificate, {}: {error}", file.display()))
    };
    let chain = CertificateDer::pem_file_iter(cert).map_err(|error| wrong(cert, &error))?;
    let chain: Vec<_> = chain.collect::<Result<_, _>>().map_err(|error| wrong(cert, &error))?;
    let key_of = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, &error))?;
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(cert, &error))?
        .with_no_client_auth()
        .with_single_cert(chain, key_of)
        .map_err(|error| wrong(cert, &error))?;
    Ok(Some(Arc::new(config)))
}

async fn serve(
    app: Arc<App>,
    listeners: Vec<TcpListener>,
    tls: Option<TlsAcceptor>,
    mut stopped: signal::Receiver<bool>,
) {
    let service = Service { router: router(&app), relays: Arc::new(Semaphore::new(relay::RELAYS_MAX)), app };
    let places = Places { room: Arc::new(Semaphore::new(CONNECTIONS_MAX)), open_connections: Arc::default() };
    if let Some(agent) = &service.app.agent {
        tokio::spawn(accept_nodes(agent.serve_api(), service.clone(), places.clone(), stopped.clone()));
    }
    for listener in listeners {
        let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { continue };
        tokio::spawn(accept(listener, service.clone(), tls.clone(), places.clone(), stopped.clone()));
    }
    let _ = stopped.wait_for(|stopped| *stopped).await;
    // The connections get the signal too. When all of them have ended, every permit is free.
    let _ = tokio::time::timeout(GRACE, places.room.acquire_many(CONNECTIONS_MAX as u32)).await;
}

/// What answers the requests of all connections.
#[derive(Clone)]
struct Service {
    app: Arc<App>,
    router: Router,
    relays: Arc<Semaphore>,
}

/// The places for connections.
#[derive(Clone)]
struct Places {
    room: Arc<Semaphore>,
    open_connections: Arc<OpenConnections>,
}

impl Places {
    /// Without a free place, that of the oldest connection that does nothing. `None`: the console stops.
    async fn take(&self) -> Option<(OwnedSemaphorePermit, Arc<OpenConnection>)> {
        let place = match Arc::clone(&self.room).try_acquire_owned() {
            Ok(place) => place,
            Err(_) => {
                self.open_connections.end_oldest();
                Arc::clone(&self.room).acquire_owned().await.ok()?
            }
        };
        Some((place, self.open_connections.take()))
    }
}

async fn accept(
    listener: tokio::net::TcpListener,
    service: Service,
    tls: Option<TlsAcceptor>,
    places: Places,
    mut stopped: signal::Receiver<bool>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.wait_for(|stopped| *stopped) => return,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Usually there are no file descriptors left. Data clients have priority, so this is only logged for
                // debugging.
                tracing::debug!("console: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some((place, connection)) = places.take().await else { return };
        let to_loopback = stream.local_addr().is_ok_and(|address| address.ip().to_canonical().is_loopback());
        let (service, tls, stopped) = (service.clone(), tls.clone(), stopped.clone());
        tokio::spawn(async move {
            let _place = place;
            let peer = Peer { address: from.ip().to_canonical(), is_local: to_loopback, is_tls: tls.is_some() };
            let from = Origin::Client(peer);
            let _ = stream.set_nodelay(true);
            match tls {
                None => converse(stream, service, from, connection, stopped).await,
                Some(tls) => {
                    let greeted = tokio::select! {
                        greeted = tokio::time::timeout(HANDSHAKE, tls.accept(stream)) => greeted,
                        () = connection.end.notified() => return,
                    };
                    if let Ok(Ok(stream)) = greeted {
                        converse(stream, service, from, connection, stopped).await;
                    }
                }
            }
        });
    }
}

/// Who is at the other end of a connection.
#[derive(Clone)]
enum Origin {
    Client(Peer),
    /// Another member of the cluster, by its name: each of its requests says who asks.
    Node(Arc<str>),
}

/// The connections of other members' APIs, which come through the port for nodes.
async fn accept_nodes(
    mut hellos: mpsc::Receiver<ApiHello>,
    service: Service,
    places: Places,
    mut stopped: signal::Receiver<bool>,
) {
    loop {
        let hello = tokio::select! {
            hello = hellos.recv() => hello,
            _ = stopped.wait_for(|stopped| *stopped) => return,
        };
        let (Some(hello), Some((place, connection))) = (hello, places.take().await) else { return };
        let (service, stopped) = (service.clone(), stopped.clone());
        tokio::spawn(async move {
            let _place = place;
            let greeted = tokio::select! {
                greeted = hello.accept() => greeted,
                () = connection.end.notified() => return,
            };
            match greeted {
                Ok((node, stream)) => {
                    let view = service.app.agent.as_ref().and_then(|agent| agent.view());
                    let name = view.map_or_else(|| node.to_string(), |view| view.node_name(node));
                    converse(stream, service, Origin::Node(name.into()), connection, stopped).await;
                }
                Err(error) => tracing::info!("the API of another node was not answered: {error}"),
            }
        });
    }
}

/// The connections, the oldest first. Closed ones are removed when a place is needed.
#[derive(Default)]
struct OpenConnections(Mutex<VecDeque<Weak<OpenConnection>>>);

impl OpenConnections {
    fn take(&self) -> Arc<OpenConnection> {
        let connection = Arc::new(OpenConnection::default());
        let mut open_connections = self.0.lock();
        if open_connections.len() >= 2 * CONNECTIONS_MAX {
            open_connections.retain(|connection| connection.strong_count() > 0);
        }
        open_connections.push_back(Arc::downgrade(&connection));
        connection
    }

    /// Closes the oldest connection without a request in progress: clients that open connections and send nothing, or
    /// half a request, must not keep others waiting.
    fn end_oldest(&self) {
        let mut open_connections = self.0.lock();
        open_connections.retain(|connection| connection.strong_count() > 0);
        let idle = |connection: &Weak<OpenConnection>| {
            connection.upgrade().is_some_and(|connection| !connection.works.load(Relaxed))
        };
        if let Some(connection) = open_connections
            .iter()
            .position(idle)
            .and_then(|at| open_connections.remove(at))
            .and_then(|connection| connection.upgrade())
        {
            connection.end.notify_one();
        }
    }
}

/// All requests of one connection.
async fn converse<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    service: Service,
    from: Origin,
    own: Arc<OpenConnection>,
    mut stopped: signal::Receiver<bool>,
) {
    let of_request = Arc::clone(&own);
    // Whether a node has been shut out is seen when it connects, so each of its requests needs a connection of its own.
    let has_more = matches!(from, Origin::Client(_));
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        let (service, from, own) = (service.clone(), from.clone(), Arc::clone(&of_request));
        request.extensions_mut().insert(Arc::clone(&own));
        async move {
            let response = respond(service, from, request.map(Body::new)).await;
            own.works.store(false, Relaxed);
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_buf_size(64 << 10)
        .keep_alive(has_more)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        // The browser has closed the connection, or it has failed.
        _ = &mut connection => return,
        () = own.end.notified() => return,
        _ = stopped.wait_for(|stopped| *stopped) => connection.as_mut().graceful_shutdown(),
    }
    let _ = tokio::time::timeout(GRACE, connection).await;
}

async fn respond(service: Service, from: Origin, mut request: Request) -> Response<Body> {
    let voucher = relay::take(request.headers_mut());
    let checked = match &from {
        Origin::Client(peer) => middleware::check_host(request.headers(), peer.is_local).map(|()| {
            let through_a_proxy =
                request.headers().contains_key("x-forwarded-for") || request.headers().contains_key("forwarded");
            Peer { is_local: peer.is_local && !through_a_proxy, ..*peer }
        }),
        Origin::Node(name) => relay::believed(voucher.as_ref(), name).map(|(who, address)| {
            request.extensions_mut().insert(who);
            Peer { address, is_local: false, is_tls: true }
        }),
    };
    let mut response = match checked {
        Err(error) => middleware::refuse(error),
        Ok(peer) => {
            request.extensions_mut().insert(peer);
            match relay::relay(&service.app, &service.relays, peer, request).await {
                Relayed::Answered(response) => response,
                Relayed::Own(request) => match service.router.oneshot(request).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                },
            }
        }
    };
    let is_tls = match from {
        Origin::Client(peer) => peer.is_tls,
        Origin::Node(_) => true,
    };
    middleware::secure(&mut response, is_tls);
    response
}

pub fn router(app: &Arc<App>) -> Router {
    let turns = Arc::new(Semaphore::new(TURNS_MAX));
    let mut paths: Vec<(&str, String, MethodRouter)> = Vec::new();
    for route in routes::all() {
        match paths.iter_mut().find(|(path, ..)| *path == route.path) {
            Some((_, allowed, methods)) => {
                allowed.push_str(&format!(", {}", route.method.name()));
                *methods = std::mem::take(methods).merge(self::methods(app, &turns, route));
            }
            None => paths.push((route.path, route.method.name().to_owned(), self::methods(app, &turns, route))),
        }
    }
    let mut router = Router::new();
    for (path, allowed, methods) in paths {
        router = router.route(path, methods.fallback(move || async move { middleware::refuse_method(&allowed) }));
    }
    router.fallback(|request: Request| async move {
        match request.uri().path().starts_with("/api/") {
            true => middleware::refuse(
                ApiError::not_found("there is no such route").hint("GET /api/v1/openapi.json describes all routes"),
            ),
            false => console::serve(&request),
        }
    })
}

fn methods(app: &Arc<App>, turns: &Arc<Semaphore>, route: &'static Route) -> MethodRouter {
    let (app, turns) = (Arc::clone(app), Arc::clone(turns));
    on(filter(route.method), move |request: Request| middleware::serve(app, route, turns, request))
}

fn filter(method: Method) -> MethodFilter {
    match method {
        Method::Get => MethodFilter::GET,
        Method::Post => MethodFilter::POST,
        Method::Put => MethodFilter::PUT,
        Method::Patch => MethodFilter::PATCH,
        Method::Delete => MethodFilter::DELETE,
    }
}
