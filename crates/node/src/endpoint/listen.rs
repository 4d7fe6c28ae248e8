//! Owns the listening sockets: opened early, before slow steps that may fail, and used until the server stops. Never
//! reads from a connection: each accepted connection goes to the worker with the fewest connections.

use super::{Address, Endpoint};
use config::{BindAddress, Config};
use engine::{Peer, Socket, WorkerHandle};
use socket2::{Domain, SockRef, Socket as RawSocket, TcpKeepalive, Type};
use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

#[derive(Default)]
pub struct Listeners {
    pub tcp: Vec<TcpListener>,
    pub tls: Vec<TcpListener>,
    pub unix: Option<Unix>,
}

pub struct Unix {
    listener: UnixListener,
    path: PathBuf,
}

impl Drop for Unix {
    fn drop(&mut self) {
        // Best effort: an operator may have removed the path.
        let _ = fs::remove_file(&self.path);
    }
}

impl Listeners {
    /// The addresses of the listening sockets, in readable form.
    pub fn addresses(&self) -> Vec<Address> {
        let tcp = self.tcp.iter().map(|listener| ("tcp", listener));
        let tls = self.tls.iter().map(|listener| ("tls", listener));
        let addresses = tcp
            .chain(tls)
            .filter_map(|(kind, listener)| Some(Address { kind, address: listener.local_addr().ok()?.to_string() }));
        let unix = self.unix.iter().map(|unix| Address { kind: "unix", address: unix.path.display().to_string() });
        addresses.chain(unix).collect()
    }
}

/// Opens every address of the configuration. The error names the address that cannot be opened.
pub fn open(config: &Config) -> io::Result<Listeners> {
    let (tcp, tls) = (listen_on_port(config.port, config)?, listen_on_port(config.tls.port, config)?);
    let unix =
        match &config.unixsocket {
            Some(path) => Some(listen_unix(path, config).map_err(|error| {
                io::Error::new(error.kind(), format!("cannot listen on {}: {error}", path.display()))
            })?),
            None => None,
        };
    if tcp.is_empty() && tls.is_empty() && unix.is_none() {
        return Err(io::Error::other("no address to listen on: set port or tls-port, and bind, or unixsocket"));
    }
    Ok(Listeners { tcp, tls, unix })
}

/// Listens on all addresses of the configuration. Port 0 means none.
pub fn listen_on_port(port: u16, config: &Config) -> io::Result<Vec<TcpListener>> {
    let mut opened = Vec::new();
    if port == 0 {
        return Ok(opened);
    }
    let everywhere = [BindAddress { address: "*".to_owned(), optional: false }];
    let wanted = if config.bind.is_empty() { &everywhere[..] } else { &config.bind };
    for bind in wanted {
        match listen_tcp(bind, port, config) {
            Ok(mut listeners) => opened.append(&mut listeners),
            Err(error) if bind.optional && is_absent(&error) => {
                tracing::info!("not listening on {}: this machine does not have the address", bind.address);
            }
            Err(error) => {
                let text = format!("cannot listen on {} port {port}: {error}", bind.address);
                return Err(io::Error::new(error.kind(), text));
            }
        }
    }
    Ok(opened)
}

/// Whether the error means that the machine lacks the address or its protocol.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EADDRNOTAVAIL
                | libc::EAFNOSUPPORT
                | libc::EPROTONOSUPPORT
                | libc::ESOCKTNOSUPPORT
                | libc::EPFNOSUPPORT
        )
    )
}

fn listen_tcp(bind: &BindAddress, port: u16, config: &Config) -> io::Result<Vec<TcpListener>> {
    let ips: Vec<IpAddr> = match bind.address.as_str() {
        "*" => vec![Ipv4Addr::UNSPECIFIED.into()],
        "::*" | "::" => vec![Ipv6Addr::UNSPECIFIED.into()],
        address => match address.parse() {
            Ok(ip) => vec![ip],
            Err(_) => (address, port).to_socket_addrs()?.map(|found| found.ip()).collect(),
        },
    };
    ips.into_iter()
        .map(|ip| {
            let address = SocketAddr::new(ip, port);
            let socket = RawSocket::new(Domain::for_address(address), Type::STREAM, None)?;
            socket.set_reuse_address(true)?;
            if ip.is_ipv6() {
                // `*` and `::*` are separate addresses, and each may be given alone.
                socket.set_only_v6(true)?;
            }
            socket.bind(&address.into())?;
            socket.listen(config.tcp_backlog)?;
            socket.set_nonblocking(true)?;
            Ok(socket.into())
        })
        .collect()
}

fn listen_unix(path: &Path, config: &Config) -> io::Result<Unix> {
    // If nothing answers, the socket was left behind by a process that has ended.
    if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        if UnixStream::connect(path).is_ok() {
            return Err(io::Error::from(io::ErrorKind::AddrInUse));
        }
        fs::remove_file(path)?;
    }
    let socket = RawSocket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&socket2::SockAddr::unix(path)?)?;
    if config.unixsocketperm != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(config.unixsocketperm))?;
    }
    socket.listen(config.tcp_backlog)?;
    socket.set_nonblocking(true)?;
    Ok(Unix { listener: socket.into(), path: path.to_owned() })
}

/// Accepts connections until dropped.
pub async fn accept_tcp(endpoint: Arc<Endpoint>, listener: TcpListener, with_tls: bool) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        match listener.accept().await {
            Ok((socket, from)) => {
                // On an error the client is already gone, so there is nothing to serve.
                if let Ok((socket, to)) = prepare(socket, &endpoint.hub.config.snapshot()) {
                    let socket = match with_tls {
                        false => Socket::Tcp(socket),
                        true => match endpoint.tls.get() {
                            Some(settings) => Socket::Tls(socket, settings),
                            // TLS has no settings any more, so the socket closes.
                            None => continue,
                        },
                    };
                    admit(&endpoint, socket, Peer::Tcp { from, to });
                }
            }
            Err(error) => refused(&error).await,
        }
    }
}

pub async fn accept_unix(endpoint: Arc<Endpoint>, unix: Unix) -> io::Result<()> {
    let path: Arc<str> = unix.path.to_string_lossy().into();
    let listener = tokio::net::UnixListener::from_std(unix.listener.try_clone()?)?;
    // Held until this task is dropped; dropping it removes the path.
    let _unix = unix;
    loop {
        match listener.accept().await {
            // Convert to std: the worker's runtime must watch the socket, not this one.
            Ok((socket, _)) => {
                if let Ok(socket) = socket.into_std() {
                    admit(&endpoint, Socket::Unix(socket), Peer::Unix(Arc::clone(&path)));
                }
            }
            Err(error) => refused(&error).await,
        }
    }
}

/// Descriptors or memory have run out. Wait, because other connections may end. The waiting connection is not lost.
async fn refused(error: &io::Error) {
    tracing::warn!("accepting a connection failed: {error}");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

fn prepare(socket: tokio::net::TcpStream, config: &Config) -> io::Result<(std::net::TcpStream, SocketAddr)> {
    // Convert to std: the worker's runtime must watch the socket, not this one. The socket stays non-blocking.
    let socket = socket.into_std()?;
    socket.set_nodelay(true)?;
    if config.tcp_keepalive_s > 0 {
        let idle = u64::from(config.tcp_keepalive_s);
        let keepalive = TcpKeepalive::new()
            .with_time(Duration::from_secs(idle))
            .with_interval(Duration::from_secs((idle / 3).max(1)))
            .with_retries(3);
        SockRef::from(&socket).set_tcp_keepalive(&keepalive)?;
    }
    let to = socket.local_addr()?;
    Ok((socket, to))
}

const PROTECTED: &[u8] = b"-DENIED Redis is running in protected mode because protected mode is enabled and no \
password is set for the default user. In this mode connections are only accepted from the loopback interface and the \
unix socket. To accept others, do one of these: 1) set a password with 'requirepass' in the configuration file or \
CONFIG SET requirepass from this machine; 2) if the network is trusted, switch the mode off with CONFIG SET \
protected-mode no from this machine, followed by CONFIG REWRITE to keep it; 3) start the server with \
--protected-mode no.\r\n";

/// Hands the connection to the worker with the fewest connections, preferring workers without a busy script. If the
/// connection is refused, tells the client why.
fn admit(endpoint: &Endpoint, socket: Socket, peer: Peer) {
    let config = endpoint.hub.config.snapshot();
    let refuse = |socket: Socket, text: &[u8]| {
        endpoint.rejected_connections.fetch_add(1, Relaxed);
        // One attempt is enough: the socket is new, so the line fits its buffer.
        let _ = match socket {
            Socket::Tcp(mut socket) => socket.write(text),
            // Nothing can be sent before the handshake.
            Socket::Tls(..) => Ok(0),
            Socket::Memory(..) => unreachable!("it comes by no listener"),
            Socket::Unix(mut socket) | Socket::Console(mut socket, _) => socket.write(text),
        };
    };
    let connections = |worker_handle: &WorkerHandle| worker_handle.connections.load(Relaxed);
    if endpoint.hub.worker_handles.iter().map(connections).sum::<usize>() >= endpoint.clients_max(&config) {
        return refuse(socket, b"-ERR max number of clients reached\r\n");
    }
    if config.protected_mode && endpoint.hub.users.default_user().nopass && !peer.is_local() {
        return refuse(socket, PROTECTED);
    }
    // A worker that has stopped takes no connection: the socket closes.
    let _ = endpoint.hub.hand_over(socket, peer);
}
