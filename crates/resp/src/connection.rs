//! Owns a client's connection: commands go out, whole replies come in, and each call blocks until the stream has done it.
//! Never knows addresses, time limits and TLS, which are the stream's, nor what a command means.
//!
//! The server may be broken or hostile: see [`crate::client`] for what bounds a reply, and [`Connection::limit_replies`].

use std::io::{self, ErrorKind, Read, Write};

use crate::client::{ProtocolError, SkipState, Value, encode_command, parse_value};

/// One read takes at most so much.
const READ_BYTES: usize = 64 << 10;
/// A long reply has made the buffer larger than this: it is given back when the reply is gone.
const KEPT_BYTES: usize = 4 * READ_BYTES;

/// ```
/// # use std::io::{Read, Write, Result};
/// # struct Server<'a>(&'a [u8], Vec<u8>);
/// # impl Read for Server<'_> { fn read(&mut self, into: &mut [u8]) -> Result<usize> { self.0.read(into) } }
/// # impl Write for Server<'_> {
/// #     fn write(&mut self, bytes: &[u8]) -> Result<usize> { self.1.write(bytes) }
/// #     fn flush(&mut self) -> Result<()> { Ok(()) }
/// # }
/// # let server = Server(b":2\r\n", Vec::new());
/// let mut connection = resp::Connection::new(server);
/// let value = connection.call(&[b"DBSIZE"]).unwrap();
/// assert_eq!(value, resp::client::Value::Int(2));
/// ```
pub struct Connection<S> {
    stream: S,
    input: Vec<u8>,
    /// The bytes of `input` that were returned already.
    used: usize,
    /// How far the reply after them was read.
    skipped: SkipState,
    reply_bytes_max: usize,
}

impl<S: Read + Write> Connection<S> {
    pub fn new(stream: S) -> Connection<S> {
        let skipped = SkipState::default();
        Connection { stream, input: Vec::new(), used: 0, skipped, reply_bytes_max: usize::MAX }
    }

    /// A longer reply is [`Error::TooLong`], from now on. At most one read more than this is held.
    pub fn limit_replies(&mut self, bytes_max: usize) {
        self.reply_bytes_max = bytes_max;
    }

    pub fn stream(&self) -> &S {
        &self.stream
    }

    pub fn stream_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// One command, and its reply. An error that the server answers is a value.
    pub fn call(&mut self, words: &[&[u8]]) -> Result<Value, Error> {
        self.send(words)?;
        self.receive()
    }

    /// Sends all commands at once, and returns their replies in order. Nothing is read before all is sent, so the replies must
    /// fit into what the stream holds on its way.
    pub fn pipeline<W: AsRef<[C]>, C: AsRef<[u8]>>(
        &mut self,
        commands: impl IntoIterator<Item = W>,
    ) -> Result<Vec<Value>, Error> {
        let (mut bytes, mut count) = (Vec::new(), 0);
        for words in commands {
            let words: Vec<&[u8]> = words.as_ref().iter().map(AsRef::as_ref).collect();
            encode_command(&words, &mut bytes);
            count += 1;
        }
        self.send_bytes(&bytes)?;
        (0..count).map(|_| self.receive()).collect()
    }

    pub fn send(&mut self, words: &[&[u8]]) -> Result<(), Error> {
        let mut bytes = Vec::new();
        encode_command(words, &mut bytes);
        self.send_bytes(&bytes)
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), Error> {
        Ok(self.stream.write_all(bytes).and_then(|()| self.stream.flush())?)
    }

    /// The next reply or push.
    pub fn receive(&mut self) -> Result<Value, Error> {
        parsed(self.receive_raw()?)
    }

    /// The bytes of the next reply or push.
    pub fn receive_raw(&mut self) -> Result<&[u8], Error> {
        let bytes = loop {
            if let Some(bytes) = self.skip()? {
                break bytes;
            }
            self.fill()?;
        };
        Ok(&self.input[self.used - bytes..self.used])
    }

    /// The next reply or push, if it has come and was read with one before or by [`Connection::fill`].
    pub fn received(&mut self) -> Result<Option<Value>, Error> {
        match self.skip()? {
            Some(bytes) => parsed(&self.input[self.used - bytes..self.used]).map(Some),
            None => Ok(None),
        }
    }

    /// Reads what has come, or waits for it.
    pub fn fill(&mut self) -> Result<(), Error> {
        self.input.drain(..self.used);
        self.used = 0;
        if self.input.is_empty() {
            self.input.shrink_to(KEPT_BYTES);
        }
        if self.input.len() > self.reply_bytes_max {
            return Err(Error::TooLong { bytes_max: self.reply_bytes_max });
        }
        let from = self.input.len();
        self.input.resize(from + READ_BYTES, 0);
        let read = loop {
            match self.stream.read(&mut self.input[from..]) {
                // A process that was stopped for a moment: a socket with a time limit does not go on by itself.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.input.truncate(from + *read.as_ref().unwrap_or(&0));
        match read? {
            0 => Err(Error::Closed),
            _ => Ok(()),
        }
    }

    /// What was read and not returned. The connection goes on with the bytes after it.
    pub fn take_input(&mut self) -> Vec<u8> {
        let rest = self.input.split_off(self.used);
        (self.input, self.used, self.skipped) = (Vec::new(), 0, SkipState::default());
        rest
    }

    /// Counts the next reply as returned, if it is whole. Returns its length.
    fn skip(&mut self) -> Result<Option<usize>, Error> {
        let whole = self.skipped.skip(&self.input[self.used..])?;
        let bytes = whole.map(|reply| reply.consumed);
        self.used += bytes.unwrap_or(0);
        Ok(bytes)
    }
}

fn parsed(reply: &[u8]) -> Result<Value, Error> {
    let (value, _) = parse_value(reply)?.expect("a whole reply");
    Ok(value)
}

/// After each of them the connection is of no use, except after a time limit: then the reply may come later.
#[derive(Debug)]
pub enum Error {
    /// The server has closed the connection.
    Closed,
    /// The stream's error; `WouldBlock` or `TimedOut` after its time limit.
    Io(io::Error),
    Protocol(ProtocolError),
    TooLong {
        bytes_max: usize,
    },
}

impl Error {
    pub fn is_timeout(&self) -> bool {
        matches!(self, Error::Io(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Io(error)
    }
}

impl From<ProtocolError> for Error {
    fn from(error: ProtocolError) -> Error {
        Error::Protocol(error)
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Closed => f.write_str("the server has closed the connection"),
            Error::Io(error) => write!(f, "{error}"),
            Error::Protocol(error) => write!(f, "{error}"),
            Error::TooLong { bytes_max } => write!(f, "a reply is longer than {bytes_max} bytes"),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its pieces one by one, and keeps what it gets.
    struct Pieces {
        pieces: Vec<&'static [u8]>,
        sent: Vec<u8>,
    }

    impl Read for Pieces {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            if self.pieces.is_empty() {
                return Ok(0);
            }
            match self.pieces.remove(0) {
                b"interrupted" => Err(ErrorKind::Interrupted.into()),
                b"late" => Err(ErrorKind::WouldBlock.into()),
                piece => {
                    into[..piece.len()].copy_from_slice(piece);
                    Ok(piece.len())
                }
            }
        }
    }

    impl Write for Pieces {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.sent.write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn connection(pieces: &[&'static [u8]]) -> Connection<Pieces> {
        Connection::new(Pieces { pieces: pieces.to_vec(), sent: Vec::new() })
    }

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.into())
    }

    #[test]
    fn replies_come_whole_however_they_are_cut() {
        let mut connection = connection(&[b"+OK\r\n$5\r\nhe", b"interrupted", b"llo\r\n*2\r\n:1", b"\r\n:2\r\n"]);
        let replies = connection.pipeline([&["PING"][..], &["GET", "k"], &["TIME"]]).unwrap();
        let list = Value::Array(vec![Value::Int(1), Value::Int(2)]);
        assert_eq!(replies, [Value::Simple(b"OK".to_vec()), bulk("hello"), list]);
        let sent = "*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$4\r\nTIME\r\n";
        assert_eq!(String::from_utf8_lossy(&connection.stream().sent), sent);
        assert!(matches!(connection.receive(), Err(Error::Closed)));
    }

    #[test]
    fn a_reply_that_was_late_comes_later() {
        let mut connection = connection(&[b"$2\r\na", b"late", b"b\r\n:7\r\n"]);
        assert!(connection.receive().unwrap_err().is_timeout());
        assert_eq!(connection.receive().unwrap(), bulk("ab"));
        assert_eq!(connection.received().unwrap(), Some(Value::Int(7)));
        assert_eq!(connection.received().unwrap(), None);
    }

    #[test]
    fn a_reply_that_is_too_long_is_not_held() {
        let mut connection = connection(&[b"$100\r\n0123456789", b"0123456789"]);
        connection.limit_replies(10);
        assert!(matches!(connection.receive(), Err(Error::TooLong { bytes_max: 10 })));
    }

    #[test]
    fn what_was_not_returned_can_be_taken() {
        let mut connection = connection(&[b"+OK\r\n+hal", b"+FULL\r\n"]);
        assert_eq!(connection.receive_raw().unwrap(), b"+OK\r\n");
        assert_eq!(connection.received().unwrap(), None);
        assert_eq!(connection.take_input(), b"+hal");
        assert_eq!(connection.receive_raw().unwrap(), b"+FULL\r\n");
    }

    #[test]
    fn what_is_no_reply_is_an_error() {
        assert!(matches!(connection(&[b"HTTP/1.1 400\r\n"]).receive(), Err(Error::Protocol(_))));
    }
}
