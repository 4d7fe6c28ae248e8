//! Owns the window over the input: the bytes that were received and are not yet understood, their checksum, and the
//! errors of reading. Never knows what the bytes mean.
//!
//! The window grows only by bytes that have come, and only up to a limit. So a wrong length costs no more memory than the input has bytes,
//! nor more than the limit.

use std::fmt;
use std::io::{self, Read};
use value::Corrupt;
use value::rdb::{self, crc64_after};

/// The window asks the source for at least this many bytes.
const FILL_BYTES: usize = 256 << 10;

/// What must be there at once: a string, or a collection that is one string. No value has more, and a wrong length must not bring a whole
/// file into RAM.
const WINDOW_BYTES_MAX: usize = 4 << 30;

/// A piece of a collection ends when it has this many bytes or members.
pub(crate) const PIECE_BYTES: usize = 256 << 10;
pub(crate) const PIECE_MEMBERS: usize = 4096;

/// Why reading ended. Offsets are those of the file, in bytes.
#[derive(Debug)]
pub enum Error {
    Io(io::Error),
    /// The input ends in the middle of the record that begins or continues at this offset.
    Truncated {
        offset: u64,
    },
    Bad {
        offset: u64,
        what: String,
    },
    /// In the value of this key.
    InKey {
        name: Vec<u8>,
        error: Box<Error>,
    },
}

/// A key's name as it is shown to people.
pub fn show_key(name: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 100;
    format!("key '{}'", String::from_utf8_lossy(&name[..name.len().min(SHOWN_BYTES_MAX)]))
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(error) => write!(f, "{error}"),
            Error::Truncated { offset } => {
                write!(f, "the file ends too early: more data was expected after byte {offset}")
            }
            Error::Bad { offset, what } => write!(f, "byte {offset}: {what}"),
            Error::InKey { name, error } => write!(f, "{}: {error}", show_key(name)),
        }
    }
}

impl std::error::Error for Error {}

pub struct Window<R> {
    source: R,
    bytes: Vec<u8>,
    /// Bytes before this place are understood.
    start: usize,
    /// The file's offset of `bytes[start]`.
    offset: u64,
    /// The checksum of the file before `bytes[summed]`. Bytes are summed many at a time.
    sum: u64,
    summed: usize,
}

impl<R: Read> Window<R> {
    pub fn new(source: R) -> Window<R> {
        Window { source, bytes: Vec::new(), start: 0, offset: 0, sum: 0, summed: 0 }
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The checksum of all bytes before `offset`.
    pub fn sum(&mut self) -> u64 {
        self.sum = crc64_after(self.sum, &self.bytes[self.summed..self.start]);
        self.summed = self.start;
        self.sum
    }

    pub fn bad(&self, what: impl Into<String>) -> Error {
        Error::Bad { offset: self.offset, what: what.into() }
    }

    /// The result of `parse` for the next bytes. If `parse` needs more bytes than have been received, it is called
    /// again with more.
    pub fn read<T>(
        &mut self,
        what: &str,
        mut parse: impl FnMut(&mut rdb::Reader<'_>) -> Result<T, Corrupt>,
    ) -> Result<T, Error> {
        loop {
            let bytes = &self.bytes[self.start..];
            let mut reader = rdb::Reader::new(bytes);
            match parse(&mut reader) {
                Ok(value) => {
                    let used = bytes.len() - reader.left();
                    self.start += used;
                    self.offset += used as u64;
                    return Ok(value);
                }
                Err(Corrupt) if reader.missing() == 0 => return Err(self.bad(format!("{what} is damaged"))),
                Err(Corrupt) => {
                    let (there, missing) = (bytes.len(), reader.missing());
                    if missing > WINDOW_BYTES_MAX.saturating_sub(there) {
                        let bytes = there.saturating_add(missing);
                        return Err(self.bad(format!("{what} of {bytes} bytes is too long: its length is damaged")));
                    }
                    self.fill(missing)?;
                }
            }
        }
    }

    /// The next bytes, which are not part of the checksum.
    pub fn unsummed(&mut self, count: usize) -> Result<Vec<u8>, Error> {
        self.sum();
        let there = count.min(self.bytes.len() - self.start);
        let mut out = Vec::with_capacity(count);
        out.extend_from_slice(&self.bytes[self.start..self.start + there]);
        self.start += there;
        self.summed = self.start;
        self.offset += there as u64;
        let wanted = (count - there) as u64;
        let received = (&mut self.source).take(wanted).read_to_end(&mut out).map_err(Error::Io)? as u64;
        self.offset += received;
        if received < wanted { Err(Error::Truncated { offset: self.offset }) } else { Ok(out) }
    }

    /// Receives at least `missing` more bytes.
    fn fill(&mut self, missing: usize) -> Result<(), Error> {
        self.sum();
        self.bytes.drain(..self.start);
        (self.start, self.summed) = (0, 0);
        // Double the bytes at least, because parsing begins again at the start: so the total work stays proportional to
        // the bytes.
        let wanted = missing.max(FILL_BYTES).max(self.bytes.len());
        let received = (&mut self.source).take(wanted as u64).read_to_end(&mut self.bytes).map_err(Error::Io)?;
        if received < missing { Err(Error::Truncated { offset: self.offset }) } else { Ok(()) }
    }

    /// The bytes that were received and not understood, and the source of all that follow.
    pub fn into_rest(mut self) -> (Vec<u8>, R) {
        self.bytes.drain(..self.start);
        (self.bytes, self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rest of the file once went into RAM.
    #[test]
    fn a_length_beyond_all_values_is_damage() {
        for length in [WINDOW_BYTES_MAX as u64, u64::MAX >> 1] {
            let mut bytes = vec![0x81];
            bytes.extend_from_slice(&length.to_be_bytes());
            let mut window = Window::new(bytes.as_slice().chain(io::repeat(b'x').take(1 << 20)));
            let error = window.read("a member", |reader| reader.string().map(drop)).unwrap_err().to_string();
            assert!(error.starts_with("byte 0: a member of ") && error.ends_with("its length is damaged"), "{error}");
        }
    }
}
