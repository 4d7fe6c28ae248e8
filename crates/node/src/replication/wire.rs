//! Owns the connection of a replica to its primary: TCP, TLS or a socket pair, what was received and not used yet, and how long to wait. Never
//! knows what the bytes mean.
//!
//! No [`resp::Connection`]: after the handshake's lines the primary sends no replies but a dump and a stream of commands, which are taken
//! as bytes, however much of them has come; and a read waits for a moment only, so that the thread sees when it should end.

use resp::client::encode_command;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long one read waits.
const TICK: Duration = Duration::from_millis(100);
/// At most so much is received at once.
const READ_BYTES: usize = 256 << 10;
/// The buffer keeps so much when it is empty.
const INPUT_BYTES_KEPT: usize = 4 * READ_BYTES;
/// The longest line of a handshake.
const LINE_BYTES_MAX: usize = 64 << 10;

enum Transport {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
    /// Whose other end the cluster carries to the primary's node.
    Pair(UnixStream),
}

impl Transport {
    fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Transport::Plain(socket) => socket.set_read_timeout(Some(timeout)),
            Transport::Tls(tls) => tls.sock.set_read_timeout(Some(timeout)),
            Transport::Pair(socket) => socket.set_read_timeout(Some(timeout)),
        }
    }
}

pub struct Wire {
    stream: Transport,
    /// What was received, up to `end`. Before `at` it is used. What follows is there so that it is not cleared for each read.
    input: Vec<u8>,
    at: usize,
    end: usize,
    heard: Instant,
    /// Without a byte for so long, the connection is over.
    timeout: Duration,
}

impl Wire {
    /// Connects. `known` gets the socket, for who wants to end the connection.
    pub fn open(
        host: &str,
        port: u16,
        tls: Option<Arc<ClientConfig>>,
        timeout: Duration,
        known: impl FnOnce(TcpStream),
    ) -> io::Result<Wire> {
        let mut refused = io::Error::other("no address was found for this host name");
        for address in (host, port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(socket) => {
                    socket.set_nodelay(true)?;
                    socket.set_read_timeout(Some(timeout))?;
                    socket.set_write_timeout(Some(timeout))?;
                    known(socket.try_clone()?);
                    let stream = match tls {
                        None => Transport::Plain(socket),
                        Some(config) => {
                            let name = host.to_owned().try_into().unwrap_or(address.ip().into());
                            let mut client = ClientConnection::new(config, name).map_err(io::Error::other)?;
                            let mut socket = socket;
                            while client.is_handshaking() {
                                client.complete_io(&mut socket)?;
                            }
                            Transport::Tls(Box::new(StreamOwned::new(client, socket)))
                        }
                    };
                    stream.set_read_timeout(TICK)?;
                    return Ok(Wire::new(stream, timeout));
                }
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    /// A connection that is there.
    pub fn pair(socket: UnixStream, timeout: Duration, known: impl FnOnce(UnixStream)) -> io::Result<Wire> {
        socket.set_write_timeout(Some(timeout))?;
        known(socket.try_clone()?);
        let stream = Transport::Pair(socket);
        stream.set_read_timeout(TICK)?;
        Ok(Wire::new(stream, timeout))
    }

    fn new(stream: Transport, timeout: Duration) -> Wire {
        Wire { stream, input: Vec::new(), at: 0, end: 0, heard: Instant::now(), timeout }
    }

    /// What was received and not used yet.
    pub fn input(&self) -> &[u8] {
        &self.input[self.at..self.end]
    }

    /// These bytes come before the input.
    pub fn put_back(&mut self, mut bytes: Vec<u8>) {
        bytes.extend_from_slice(self.input());
        (self.at, self.end) = (0, bytes.len());
        self.input = bytes;
    }

    /// The bytes that have arrived and are not received yet; with TLS, those of its records.
    pub fn waiting_bytes(&self) -> usize {
        let socket = match &self.stream {
            Transport::Plain(socket) => socket.as_fd(),
            Transport::Tls(tls) => tls.sock.as_fd(),
            Transport::Pair(socket) => socket.as_fd(),
        };
        // A socket that cannot say it is gone.
        rustix::io::ioctl_fionread(socket).unwrap_or(0) as usize
    }

    /// So many bytes of the input are used.
    pub fn used(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// Receives more: false if nothing came within a moment.
    pub fn fill(&mut self) -> io::Result<bool> {
        self.input.copy_within(self.at..self.end, 0);
        (self.at, self.end) = (0, self.end - self.at);
        if self.end == 0 {
            self.input.truncate(INPUT_BYTES_KEPT);
            self.input.shrink_to(INPUT_BYTES_KEPT);
        }
        if self.input.len() < self.end + READ_BYTES {
            self.input.resize(self.end + READ_BYTES, 0);
        }
        let room = &mut self.input[self.end..];
        let read = match &mut self.stream {
            Transport::Plain(socket) => socket.read(room),
            Transport::Tls(tls) => tls.read(room),
            Transport::Pair(socket) => socket.read(room),
        };
        self.end += read.as_ref().copied().unwrap_or(0);
        match read {
            Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the primary has closed the connection")),
            Ok(_) => {
                self.heard = Instant::now();
                Ok(true)
            }
            Err(error) if is_moment(&error) && self.heard.elapsed() < self.timeout => Ok(false),
            Err(error) if is_moment(&error) => {
                let text = format!("the primary was silent for {} seconds", self.timeout.as_secs());
                Err(io::Error::new(io::ErrorKind::TimedOut, text))
            }
            Err(error) => Err(error),
        }
    }

    pub fn send(&mut self, words: &[&[u8]]) -> io::Result<()> {
        let mut bytes = Vec::new();
        encode_command(words, &mut bytes);
        self.send_bytes(&bytes)
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.stream {
            Transport::Plain(socket) => socket.write_all(bytes),
            Transport::Tls(tls) => tls.write_all(bytes).and_then(|()| tls.flush()),
            Transport::Pair(socket) => socket.write_all(bytes),
        }
    }

    /// The next line, without its end. Empty lines tell only that the primary lives. `goes_on`: whether to wait on.
    pub fn line(&mut self, goes_on: &dyn Fn() -> bool) -> io::Result<String> {
        loop {
            if let Some(line) = self.received_line()? {
                return Ok(line);
            }
            while !self.fill()? {
                if !goes_on() {
                    return Err(io::ErrorKind::Interrupted.into());
                }
            }
        }
    }

    /// As [`Wire::line`], of what has come. `None`: a line is not whole yet.
    pub fn received_line(&mut self) -> io::Result<Option<String>> {
        while let Some(end) = self.input().iter().position(|&byte| byte == b'\n') {
            let line = String::from_utf8_lossy(self.input()[..end].trim_ascii()).into_owned();
            self.used(end + 1);
            if !line.is_empty() {
                return Ok(Some(line));
            }
        }
        match self.input().len() {
            ..=LINE_BYTES_MAX => Ok(None),
            _ => Err(io::Error::other("the primary's answer is too long")),
        }
    }

    /// Sends a command, and returns the answer's line.
    pub fn ask(&mut self, words: &[&[u8]], goes_on: &dyn Fn() -> bool) -> io::Result<String> {
        self.send(words)?;
        self.line(goes_on)
    }
}

/// Nothing came in the time of one read.
fn is_moment(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}
