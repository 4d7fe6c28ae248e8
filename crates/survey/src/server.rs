//! Owns a connection to a server that speaks RESP. Never knows the meaning of a command.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use base::size::human;
use bench::tls::Tls;
use resp::client::Value;
use resp::connection::{self, Connection};
use rustls::{ClientConnection, StreamOwned};

use crate::{Address, Error};

const TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit of the first answers, which a working server sends at once.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(10);
const STILL_RUNS: &str = "check that the server still runs, and try again";
/// How much of a server's error text is shown.
const ERROR_CHARS_MAX: usize = 200;

trait Wire: Read + Write + Send {}
impl<T: Read + Write + Send> Wire for T {}

pub struct Server {
    name: String,
    connection: Connection<Box<dyn Wire>>,
    /// Below the wire, for its time limits.
    socket: TcpStream,
    db: u32,
}

impl Server {
    /// Connects and logs in. `cacert`: certificates to trust, in PEM, instead of the system's.
    pub fn connect(address: &Address, cacert: Option<&Path>) -> Result<Server, Error> {
        let name = address.to_string();
        let about = |error: &dyn std::fmt::Display| Error::new(format!("{name}: {error}"));
        let reach = "check host and port, that the server runs, and that the server and the firewalls in between allow this machine";
        let places = (address.host.as_str(), address.port).to_socket_addrs();
        let places = places.map_err(|error| about(&error).hint("check the name of the host"))?;
        let mut tried = Err(io::Error::other("it has no address"));
        for place in places {
            if is_no_server(place.ip()) {
                return Err(about(&format!("{} cannot be the address of a server", place.ip())).hint(
                    "give an address that can be reached through the network, not a link-local or multicast address",
                ));
            }
            tried = TcpStream::connect_timeout(&place, CONNECT_TIMEOUT);
            if tried.is_ok() {
                break;
            }
        }
        let stream = tried.map_err(|error| about(&error).hint(reach))?;
        let set = stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(LOGIN_TIMEOUT)));
        set.and_then(|()| stream.set_write_timeout(Some(TIMEOUT))).map_err(|error| about(&error))?;
        let socket = stream.try_clone().map_err(|error| about(&error))?;
        let wire: Box<dyn Wire> = match address.has_tls {
            false => Box::new(stream),
            true => Box::new(encrypted(stream, &address.host, cacert).map_err(|why| about(&why))?),
        };
        let mut server = Server { name, connection: Connection::new(wire), socket, db: 0 };
        match (&address.user, &address.password) {
            (Some(user), Some(password)) => server.ask(&["AUTH", user, password]).map(drop)?,
            (None, Some(password)) => server.ask(&["AUTH", password]).map(drop)?,
            _ => {}
        }
        server.ask(&["PING"])?;
        server.socket.set_read_timeout(Some(TIMEOUT)).map_err(|error| server.about(&error))?;
        Ok(server)
    }

    /// One command. A reply that is an error is a failure.
    pub fn ask(&mut self, words: &[&str]) -> Result<Value, Error> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        match self.call(&words)? {
            Value::Error(text) => Err(self.refused(&String::from_utf8_lossy(words[0]), &text)),
            value => Ok(value),
        }
    }

    /// Converts the error reply to a command into an error with a hint.
    pub fn refused(&self, command: &str, text: &[u8]) -> Error {
        let text: String = String::from_utf8_lossy(text).chars().take(ERROR_CHARS_MAX).collect();
        let code = text.split(' ').next().unwrap_or_default();
        let hint = match code {
            "NOAUTH" | "WRONGPASS" => "give the right user and password",
            "NOPERM" => {
                "a user for it: ACL SETUSER NAME on >PASSWORD ~* +ping +info +select +scan +randomkey +memory|usage +dump, \
                 +client|no-touch since Redis 7.2, and +monitor to watch commands; or read a dump.rdb: flintkv plan --rdb FILE"
            }
            "LOADING" => "wait until the server has loaded its data",
            "MASTERDOWN" => "this replica has lost its primary and serves no data: use the primary's address, or wait",
            "BUSY" => "a script keeps the server busy: wait for its end",
            "DENIED" => {
                "the server accepts connections only from its own machine: run flintkv plan there, or set a password on the server"
            }
            _ if text.contains("unknown command") => {
                "the server does not have the command under this name: read a dump.rdb instead (flintkv plan --rdb FILE), and a file \
                 that MONITOR has written (--trace FILE)"
            }
            _ if text.contains("max number of clients") => {
                "close other connections to the server, or raise its maxclients"
            }
            _ => "",
        };
        Error::new(format!("{}: {command}: {text}", self.name)).hint(hint)
    }

    /// From now on, longer replies are errors.
    pub fn limit_replies(&mut self, bytes: usize) {
        self.connection.limit_replies(bytes);
    }

    pub fn call(&mut self, words: &[&[u8]]) -> Result<Value, Error> {
        self.connection.call(words).map_err(|error| self.broken(error))
    }

    /// Sends all commands before it reads the replies, which are returned in order.
    pub fn pipeline<'w>(&mut self, commands: impl IntoIterator<Item = Vec<&'w [u8]>>) -> Result<Vec<Value>, Error> {
        self.connection.pipeline(commands).map_err(|error| self.broken(error))
    }

    /// Sends a command whose reply arrives among messages.
    pub fn send(&mut self, words: &[&[u8]]) -> Result<(), Error> {
        self.connection.send(words).map_err(|error| self.broken(error))
    }

    /// Chooses the logical database.
    pub fn select(&mut self, db: u32) -> Result<(), Error> {
        if self.db != db {
            self.ask(&["SELECT", &db.to_string()])?;
            self.db = db;
        }
        Ok(())
    }

    /// The next reply or message.
    pub fn receive_next(&mut self) -> Result<Value, Error> {
        self.connection.receive().map_err(|error| self.broken(error))
    }

    /// The next message, if it comes within this time.
    pub fn next_within(&mut self, time: Duration) -> Result<Option<Value>, Error> {
        if let Some(value) = self.connection.received().map_err(|error| self.broken(error))? {
            return Ok(Some(value));
        }
        self.socket.set_read_timeout(Some(time)).map_err(|error| self.about(&error))?;
        match self.connection.fill().and_then(|()| self.connection.received()) {
            Err(error) if error.is_timeout() => Ok(None),
            next => next.map_err(|error| self.broken(error)),
        }
    }

    fn about(&self, error: &dyn std::fmt::Display) -> Error {
        Error::new(format!("{}: {error}", self.name))
    }

    fn broken(&self, error: connection::Error) -> Error {
        match error {
            _ if error.is_timeout() => self
                .about(&"it does not answer")
                .hint("check whether the server is stopped, or busy with a long command"),
            connection::Error::Protocol(error) => self
                .about(&format!("this is not a Redis server: {error}"))
                .hint("check host and port; with TLS the address begins with rediss://"),
            connection::Error::TooLong { bytes_max } => self
                .about(&format!("an answer is longer than {}", human(bytes_max as u64)))
                .hint("check that this is a Redis server; a dump.rdb can be read instead: flintkv plan --rdb FILE"),
            connection::Error::Closed => self.about(&"it has closed the connection").hint(STILL_RUNS),
            connection::Error::Io(error) => self.about(&error).hint(STILL_RUNS),
        }
    }

    /// The fields of a section of INFO.
    pub fn info(&mut self, section: &str) -> Result<BTreeMap<String, String>, Error> {
        let text = match self.ask(&["INFO", section])? {
            Value::Bulk(text) | Value::Verbatim { text, .. } => String::from_utf8_lossy(&text).into_owned(),
            _ => String::new(),
        };
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Ok(fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// How many keys each logical database has.
    pub fn keys(&mut self) -> Result<BTreeMap<u32, u64>, Error> {
        let fields = self.info("keyspace")?;
        let count = |text: &str| text.split(',').find_map(|field| field.strip_prefix("keys=")?.parse().ok());
        let of = |(name, text): (&String, &String)| Some((name.strip_prefix("db")?.parse().ok()?, count(text)?));
        Ok(fields.iter().filter_map(of).collect())
    }
}

/// Whether the address is link-local, where cloud providers serve a machine's secrets, or multicast.
fn is_no_server(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => address.is_link_local() || address.is_multicast() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local() || address.is_multicast(),
    }
}

fn encrypted(
    stream: TcpStream,
    host: &str,
    cacert: Option<&Path>,
) -> Result<StreamOwned<ClientConnection, TcpStream>, String> {
    let tls = Tls { cacert: cacert.map(Path::to_path_buf), ..Tls::default() };
    let config = tls.client().map_err(|error| format!("{error:#}"))?;
    let name = tls.server_name(host).map_err(|error| format!("{error:#}"))?;
    let client = ClientConnection::new(config, name).map_err(|error| error.to_string())?;
    Ok(StreamOwned::new(client, stream))
}

/// The bytes of a string reply.
pub fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::Bulk(bytes) | Value::Simple(bytes) | Value::Verbatim { text: bytes, .. } => Some(bytes),
        _ => None,
    }
}

pub fn list(value: Value) -> Vec<Value> {
    match value {
        Value::Array(values) | Value::Set(values) | Value::Push(values) => values,
        _ => Vec::new(),
    }
}
