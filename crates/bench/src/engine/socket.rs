//! Owns sockets: addresses, connecting without blocking, the bytes that open a connection. Never knows requests.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::config::{Config, Family, Protocol, Target};
use crate::template::{header, literal};

/// The time limit for the first connection if no other is given.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// A target with a resolved name that has answered once.
#[derive(Clone, Debug)]
pub enum Endpoint {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Endpoint {
    /// The first address of the target that accepts a connection.
    pub fn find(target: &Target, timeout: Duration) -> Result<Endpoint> {
        match target {
            Target::Unix(path) => {
                UnixStream::connect(path).with_context(|| format!("cannot connect to {}", path.display()))?;
                Ok(Endpoint::Unix(path.clone()))
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
                        Ok(_) => return Ok(Endpoint::Tcp(address)),
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

    /// Starts a connection. It is established when the socket becomes writable.
    pub fn connect(&self) -> std::io::Result<OwnedFd> {
        match self {
            Endpoint::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_nonblocking(true)?;
                Ok(stream.into())
            }
            Endpoint::Tcp(address) => {
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
