//! Owns the connection that a scenario uses for queries: it sends commands and reads complete replies, blocking. Never
//! carries the load itself.

use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use resp::client::Value;
use resp::connection::{Connection, Error};

use super::info::Info;

/// Long enough for a server under load.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Where a node listens.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub host: String,
    pub port: u16,
    pub password: Option<String>,
}

impl Endpoint {
    pub fn loopback(port: u16) -> Endpoint {
        Endpoint { host: String::from("127.0.0.1"), port, password: None }
    }

    /// The options of `flintkv bench` for this endpoint, with the password as it is or masked.
    pub fn options(&self, password_shown: bool) -> Vec<String> {
        let mut options = vec![format!("--host={}", self.host), format!("--port={}", self.port)];
        if let Some(password) = &self.password {
            options.push(format!("--authenticate={}", if password_shown { password } else { "***" }));
        }
        options
    }
}

pub struct Client(Connection<TcpStream>);

impl Client {
    pub fn connect(endpoint: &Endpoint) -> Result<Client> {
        let name = format!("{}:{}", endpoint.host, endpoint.port);
        let mut addresses = (endpoint.host.as_str(), endpoint.port).to_socket_addrs().context(name.clone())?;
        let stream = addresses.find_map(|address| TcpStream::connect_timeout(&address, TIMEOUT).ok());
        let stream = stream.with_context(|| format!("no server answers at {name}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let mut client = Client(Connection::new(stream));
        if let Some(password) = &endpoint.password {
            // Credentials have the form of `flintkv bench --authenticate`: [USER:]PASSWORD.
            let words: Vec<&str> = match password.split_once(':') {
                Some((user, password)) if !user.is_empty() => vec!["AUTH", user, password],
                Some((_, password)) => vec!["AUTH", password],
                None => vec!["AUTH", password],
            };
            client.call(&words)?;
        }
        Ok(client)
    }

    /// Returns an error reply as an error.
    pub fn call(&mut self, words: &[&str]) -> Result<Value> {
        let args: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let value = self.0.call(&args).map_err(|error| match error {
            Error::Closed => anyhow!("the server closed the connection"),
            Error::Protocol(error) => anyhow!(error).context("not a RESP server"),
            error => anyhow!(error).context("no reply"),
        })?;
        match value {
            Value::Error(text) => bail!("{}: {}", words.first().unwrap_or(&""), String::from_utf8_lossy(&text)),
            value => Ok(value),
        }
    }

    pub fn text(&mut self, words: &[&str]) -> Result<String> {
        match self.call(words)? {
            Value::Bulk(bytes) | Value::Simple(bytes) | Value::Verbatim { text: bytes, .. } => {
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            other => bail!("{}: a string was expected, not {other:?}", words.join(" ")),
        }
    }

    pub fn info(&mut self) -> Result<Info> {
        Ok(Info::parse(&self.text(&["INFO"])?))
    }
}
