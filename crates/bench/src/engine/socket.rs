//! Owns sockets: addresses, connecting without blocking, TLS, the bytes that open a connection. Never knows requests.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use crate::config::{Config, Family, Protocol, Target};
use crate::template::{header, literal};
use crate::tls::Tls;

/// The time limit for the first connection if no other is given.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// The most bytes of one TLS record.
const RECORD_BYTES: usize = 16 << 10;

/// A target with a resolved name that has answered once.
#[derive(Clone, Debug)]
pub struct Endpoint {
    address: Address,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

#[derive(Clone, Debug)]
enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Endpoint {
    /// The first address of the target that accepts a connection.
    pub fn find(target: &Target, tls: Option<&Tls>, timeout: Duration) -> Result<Endpoint> {
        let address = Address::find(target, timeout)?;
        let host = match target {
            Target::Tcp { host, .. } => host,
            Target::Unix(_) => "localhost",
        };
        let tls = tls.map(|tls| anyhow::Ok((tls.client()?, tls.server_name(host)?))).transpose()?;
        Ok(Endpoint { address, tls })
    }

    /// Starts a connection. It is established when the socket becomes writable.
    pub fn connect(&self) -> io::Result<Socket> {
        let tls = match &self.tls {
            None => None,
            Some((config, name)) => {
                let client = ClientConnection::new(Arc::clone(config), name.clone());
                Some(Box::new(client.map_err(io::Error::other)?))
            }
        };
        Ok(Socket { fd: self.address.connect()?, tls })
    }
}

impl Address {
    fn find(target: &Target, timeout: Duration) -> Result<Address> {
        match target {
            Target::Unix(path) => {
                UnixStream::connect(path).with_context(|| format!("cannot connect to {}", path.display()))?;
                Ok(Address::Unix(path.clone()))
            }
            Target::Tcp { host, port, family } => {
                let name = format!("{host}:{port}");
                let found = (host.as_str(), *port).to_socket_addrs();
                let addresses =
                    found.with_context(|| format!("cannot look up {name}"))?.filter(|address| match family {
                        Family::Any => true,
                        Family::V4 => address.is_ipv4(),
                        Family::V6 => address.is_ipv6(),
                    });
                let timeout = if timeout.is_zero() { PROBE_TIMEOUT } else { timeout };
                let mut last = None;
                for address in addresses {
                    match TcpStream::connect_timeout(&address, timeout) {
                        Ok(_) => return Ok(Address::Tcp(address)),
                        Err(error) => last = Some(error),
                    }
                }
                match last {
                    Some(error) => Err(error).with_context(|| format!("cannot connect to {name}")),
                    None => bail!("{name} has no address of the wanted family"),
                }
            }
        }
    }

    fn connect(&self) -> io::Result<OwnedFd> {
        match self {
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_nonblocking(true)?;
                Ok(stream.into())
            }
            Address::Tcp(address) => {
                let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
                let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
                let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
                sockopt::set_tcp_nodelay(&socket, true)?;
                match rustix::net::connect(&socket, address) {
                    Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }
}

/// One connection. No call waits: a call that cannot be completed now returns `WouldBlock`.
pub struct Socket {
    fd: OwnedFd,
    tls: Option<Box<ClientConnection>>,
}

impl Socket {
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Continues the TLS handshake, if the connection has one. True: requests may be sent.
    pub fn shake_hands(&mut self) -> io::Result<bool> {
        while self.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
            let step = self.push().and_then(|()| {
                let Some(tls) = self.tls.as_mut().filter(|tls| tls.is_handshaking()) else { return Ok(1) };
                receive(&self.fd, tls)
            });
            match step {
                Ok(0) => return Err(io::Error::other("connection closed by the server during the handshake")),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => {
                    // Tells the server the reason by a TLS alert.
                    let _ = self.push();
                    return Err(error);
                }
            }
        }
        Ok(true)
    }

    /// Bytes that were received; 0 if the server has closed the connection.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => Ok(rustix::io::read(&self.fd, into)?),
            Some(tls) => {
                if receive(&self.fd, tls)? == 0 {
                    return Ok(0);
                }
                let mut taken = 0;
                while taken < into.len() {
                    match tls.reader().read(&mut into[taken..]) {
                        Ok(0) => break,
                        Ok(bytes) => taken += bytes,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock && taken > 0 => break,
                        Err(error) => return Err(error),
                    }
                }
                Ok(taken)
            }
        }
    }

    /// The number of bytes that were accepted. With TLS they may be buffered before the socket accepts them
    /// (`is_behind`).
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return Ok(rustix::io::write(&self.fd, bytes)?) };
        push(&self.fd, tls)?;
        let taken = tls.writer().write(bytes)?;
        match push(&self.fd, tls) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    /// Whether accepted bytes are still buffered.
    pub fn is_behind(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Sends the buffered bytes.
    pub fn push(&mut self) -> io::Result<()> {
        self.tls.as_mut().map_or(Ok(()), |tls| push(&self.fd, tls))
    }
}

/// Passes received bytes to TLS, at most a record. Returns 0 if the server has closed the connection.
fn receive(fd: &OwnedFd, tls: &mut ClientConnection) -> io::Result<usize> {
    let mut record = [0; RECORD_BYTES];
    let bytes = rustix::io::read(fd, &mut record)?;
    let mut rest = &record[..bytes];
    while !rest.is_empty() {
        tls.read_tls(&mut rest)?;
        tls.process_new_packets().map_err(io::Error::other)?;
    }
    Ok(bytes)
}

fn push(fd: &OwnedFd, tls: &mut ClientConnection) -> io::Result<()> {
    struct Raw<'a>(&'a OwnedFd);
    impl Write for Raw<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(rustix::io::retry_on_intr(|| rustix::io::write(self.0, bytes))?)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    while tls.wants_write() {
        tls.write_tls(&mut Raw(fd))?;
    }
    Ok(())
}

/// The bytes that a connection sends first, and the number of replies to them.
pub fn opening(config: &Config) -> (Vec<u8>, u32) {
    let mut commands: Vec<Vec<Vec<u8>>> = Vec::new();
    if let Some(auth) = &config.auth {
        let words = [Some("AUTH"), auth.user.as_deref(), Some(&auth.password)];
        commands.push(words.into_iter().flatten().map(|word| word.as_bytes().to_vec()).collect());
    }
    match config.protocol {
        Protocol::Redis => {}
        Protocol::Resp2 => commands.push(vec![b"HELLO".to_vec(), b"2".to_vec()]),
        Protocol::Resp3 => commands.push(vec![b"HELLO".to_vec(), b"3".to_vec()]),
    }
    if config.select_db != 0 {
        commands.push(vec![b"SELECT".to_vec(), config.select_db.to_string().into_bytes()]);
    }
    let mut bytes = Vec::new();
    for command in &commands {
        header(&mut bytes, b'*', command.len() as u64);
        command.iter().for_each(|word| literal(&mut bytes, word));
    }
    (bytes, commands.len() as u32)
}

/// Raises the limit of open files as far as the system allows. If that is too low, a connection fails later.
pub fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let _ = setrlimit(Resource::Nofile, wanted);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Auth;

    #[test]
    fn a_connection_opens_with_auth_hello_and_select_in_one_go() {
        let config = Config {
            auth: Some(Auth { user: Some(String::from("app")), password: String::from("s3cret") }),
            protocol: Protocol::Resp3,
            select_db: 4,
            ..Config::default()
        };
        let (bytes, replies) = opening(&config);
        let expected = "*3\r\n$4\r\nAUTH\r\n$3\r\napp\r\n$6\r\ns3cret\r\n*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n\
            *2\r\n$6\r\nSELECT\r\n$1\r\n4\r\n";
        assert_eq!((String::from_utf8_lossy(&bytes).as_ref(), replies), (expected, 3));
        assert_eq!(opening(&Config::default()), (vec![], 0));
    }
}
