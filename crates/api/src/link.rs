//! Owns a blocking RESP connection to one database, with bounds on time and size. Never knows a route.

use crate::error::ApiError;
use crate::text::lossy;
use base::size;
use node::{Database, Role};
use resp::client::{SkipState, Value, encode_command, parse_value};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The longest reply that is accepted: a browser cannot show more.
const REPLY_BYTES_MAX: usize = 16 << 20;
const READ_BYTES: usize = 64 << 10;
/// A command that takes longer is abandoned: its connection is closed.
pub const TIMEOUT: Duration = Duration::from_secs(20);

pub struct Link {
    stream: UnixStream,
    received: Vec<u8>,
    /// The bytes before this offset were returned already.
    at: usize,
    until: Instant,
}

impl Link {
    /// A connection with the role's rights, in RESP3, in logical database `db`.
    pub fn open(database: &Database, role: Role, db: u32) -> Result<Link, ApiError> {
        let stream = database
            .connect(role)
            .map_err(|error| ApiError::failed(format!("cannot connect to '{}': {error}", database.name())))?;
        let mut link = Link { stream, received: Vec::new(), at: 0, until: Instant::now() + TIMEOUT };
        if db != 0 {
            let number = db.to_string();
            link.call(&[b"SELECT", number.as_bytes()]).map_err(|error| ApiError::field("db", error.message()))?;
        }
        Ok(link)
    }

    /// The next command has the full time limit again.
    pub fn renew(&mut self) {
        self.until = Instant::now() + TIMEOUT;
    }

    /// Returns an error reply as an error.
    pub fn call(&mut self, args: &[&[u8]]) -> Result<Value, ApiError> {
        refused(self.ask(args)?)
    }

    /// Returns an error reply as a reply.
    pub fn ask(&mut self, args: &[&[u8]]) -> Result<Value, ApiError> {
        let mut command = Vec::new();
        encode_command(args, &mut command);
        self.send(&command)?;
        self.receive()
    }

    /// Sends all commands at once, and returns all replies in order. Only for commands with small replies: nobody reads
    /// replies before all commands are sent.
    pub fn pipeline(&mut self, commands: &[Vec<&[u8]>]) -> Result<Vec<Value>, ApiError> {
        let mut bytes = Vec::new();
        commands.iter().for_each(|args| encode_command(args, &mut bytes));
        self.send(&bytes)?;
        commands.iter().map(|_| self.receive()).collect()
    }

    fn left(&self) -> Result<Duration, ApiError> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(too_late()) } else { Ok(left) }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), ApiError> {
        let left = self.left()?;
        let sent = self.stream.set_write_timeout(Some(left)).and_then(|()| self.stream.write_all(bytes));
        sent.map_err(|error| broken(&error))
    }

    fn receive(&mut self) -> Result<Value, ApiError> {
        let mut skipped = SkipState::default();
        loop {
            let rest = &self.received[self.at..];
            let whole = skipped.skip(rest).map_err(|error| ApiError::failed(error.to_string()))?;
            if let Some(reply) = whole {
                let parsed = parse_value(&rest[..reply.consumed]).map_err(|error| ApiError::failed(error.to_string()));
                self.at += reply.consumed;
                match parsed? {
                    // Not a reply: an invalidation or a message.
                    Some((Value::Push(_), _)) => continue,
                    Some((value, _)) => return Ok(value),
                    None => return Err(ApiError::failed("the database sent an invalid reply")),
                }
            }
            // The replies that were returned are removed together, not one by one.
            self.received.drain(..self.at);
            self.at = 0;
            if self.received.len() > REPLY_BYTES_MAX {
                return Err(ApiError::too_large(format!(
                    "the reply is larger than {}, the limit of the console",
                    size::human(REPLY_BYTES_MAX as u64)
                ))
                .hint("ask for less: a smaller count or range, or use redis-cli"));
            }
            let left = self.left()?;
            self.stream.set_read_timeout(Some(left)).map_err(|error| broken(&error))?;
            let start = self.received.len();
            self.received.resize(start + READ_BYTES, 0);
            let read = self.stream.read(&mut self.received[start..]);
            self.received.truncate(start + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Err(ApiError::failed("the database closed the connection")),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(&error)),
            }
        }
    }
}

fn too_late() -> ApiError {
    ApiError::timeout(format!("the database has not answered in {} s", TIMEOUT.as_secs()))
        .hint("its workers may be busy with a long command: see the slow log")
}

fn broken(error: &std::io::Error) -> ApiError {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => too_late(),
        _ => ApiError::failed(format!("the connection to the database failed: {error}")),
    }
}

/// Converts an error reply into an error of the API.
pub fn refused(value: Value) -> Result<Value, ApiError> {
    let Value::Error(text) = value else { return Ok(value) };
    let text = lossy(&text);
    Err(match text.split(' ').next() {
        Some("NOPERM") => ApiError::forbidden(text),
        Some("OOM") => ApiError::no_room(text),
        Some("BUSY" | "BUSYKEY" | "LOADING") => ApiError::busy(text),
        Some("WRONGTYPE") => ApiError::invalid(text).hint("read the key again: its type has changed"),
        _ => ApiError::invalid(text),
    })
}

/// The text of a reply; empty if it has none.
pub fn bytes(value: Value) -> Vec<u8> {
    match value {
        Value::Simple(text) | Value::Bulk(text) | Value::BigNumber(text) | Value::Verbatim { text, .. } => text,
        Value::Int(number) => number.to_string().into_bytes(),
        Value::Double(number) => number.to_string().into_bytes(),
        _ => Vec::new(),
    }
}

pub fn text(value: Value) -> String {
    lossy(&bytes(value))
}

/// `None` if it is not a number.
pub fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        Value::Bulk(text) | Value::Simple(text) => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

/// The elements of an array or a set; otherwise nothing.
pub fn items(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) | Value::Set(items) => items,
        _ => Vec::new(),
    }
}
