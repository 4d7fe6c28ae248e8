//! Owns the writing of replies: each method appends one RESP element to the output buffer, in the connection's protocol
//! version. Never knows which command replies or when the buffer is sent.

use crate::line::{line_i64, line_u64};
use crate::number::{decimal_digits, format_double, format_i64};

/// The protocol version of a connection. HELLO changes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proto {
    #[default]
    Resp2,
    Resp3,
}

/// Appends replies to a buffer. Types that RESP2 lacks are written as Redis writes them: a map as an array of twice the
/// length, a double or verbatim string as a bulk string, a boolean as 1 or 0.
///
/// ```
/// use resp::{Out, Proto};
/// let mut buf = Vec::new();
/// let mut out = Out::new(&mut buf, Proto::Resp3);
/// out.map(1);
/// out.bulk(b"proto");
/// out.int(3);
/// assert_eq!(buf, b"%1\r\n$5\r\nproto\r\n:3\r\n");
/// ```
#[derive(Debug)]
pub struct Out<'a> {
    buf: &'a mut Vec<u8>,
    proto: Proto,
}

/// A length still to be written, from one of the `*_deferred` methods. Finish inner marks before outer ones.
#[derive(Debug)]
#[must_use = "a deferred length is a placeholder until Out::finish"]
pub struct Mark {
    /// Where the header starts.
    at: usize,
    /// RESP elements per counted item: 2 for a map in RESP2.
    elements_per_item: usize,
}

/// `*0\r\n`: the space reserved for a deferred header until its length is known.
const HEADER_BYTES: usize = 4;

impl<'a> Out<'a> {
    #[inline]
    pub fn new(buf: &'a mut Vec<u8>, proto: Proto) -> Out<'a> {
        Out { buf, proto }
    }

    #[inline]
    pub fn proto(&self) -> Proto {
        self.proto
    }

    /// For HELLO, whose own reply already uses the new version.
    #[inline]
    pub fn set_proto(&mut self, proto: Proto) {
        self.proto = proto;
    }

    /// Bytes in the buffer, for [`Out::truncate`].
    #[inline]
    pub fn len(&self) -> usize {
        self.buf.len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    /// Removes everything written after the buffer had `len` bytes.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.buf.truncate(len);
    }

    /// Makes room for exactly so many more bytes.
    pub fn reserve(&mut self, bytes: usize) {
        self.buf.reserve_exact(bytes);
    }

    /// A second writer on the same buffer, for a helper that takes it by value.
    #[inline]
    pub fn reborrow(&mut self) -> Out<'_> {
        Out { buf: self.buf, proto: self.proto }
    }

    #[inline]
    pub fn ok(&mut self) {
        self.buf.extend_from_slice(b"+OK\r\n");
    }

    /// A simple string. CR and LF would end it early, so they become spaces.
    #[inline]
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// An error: its code, a space, its text (`ERR syntax error`). CR and LF would end it early, so they become spaces.
    #[inline]
    pub fn error(&mut self, text: &str) {
        self.line(b'-', text.as_bytes());
    }

    /// Like [`Out::error`], for text that quotes the client's bytes.
    #[inline]
    pub fn error_bytes(&mut self, text: &[u8]) {
        self.line(b'-', text);
    }

    #[inline]
    pub fn int(&mut self, value: i64) {
        line_i64(b':', value, self.buf);
    }

    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.buf.reserve(bytes.len() + 16);
        line_u64(b'$', bytes.len() as u64, self.buf);
        self.buf.extend_from_slice(bytes);
        self.buf.extend_from_slice(b"\r\n");
    }

    /// A bulk string of two parts, written without joining them first.
    #[inline]
    pub fn bulk_parts(&mut self, head: &[u8], tail: &[u8]) {
        self.buf.reserve(head.len() + tail.len() + 16);
        line_u64(b'$', (head.len() + tail.len()) as u64, self.buf);
        self.buf.extend_from_slice(head);
        self.buf.extend_from_slice(tail);
        self.buf.extend_from_slice(b"\r\n");
    }

    /// An integer as a bulk string.
    #[inline]
    pub fn bulk_int(&mut self, value: i64) {
        let bytes = decimal_digits(value.unsigned_abs()) + usize::from(value < 0);
        line_u64(b'$', bytes as u64, self.buf);
        format_i64(value, self.buf);
        self.buf.extend_from_slice(b"\r\n");
    }

    /// A bulk string, or null when there is none.
    #[inline]
    pub fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    #[inline]
    pub fn null(&mut self) {
        match self.proto {
            Proto::Resp2 => self.buf.extend_from_slice(b"$-1\r\n"),
            Proto::Resp3 => self.buf.extend_from_slice(b"_\r\n"),
        }
    }

    #[inline]
    pub fn null_array(&mut self) {
        match self.proto {
            Proto::Resp2 => self.buf.extend_from_slice(b"*-1\r\n"),
            Proto::Resp3 => self.buf.extend_from_slice(b"_\r\n"),
        }
    }

    /// `count` elements follow.
    #[inline]
    pub fn array(&mut self, count: usize) {
        line_u64(b'*', count as u64, self.buf);
    }

    /// `count` pairs of elements follow.
    #[inline]
    pub fn map(&mut self, count: usize) {
        match self.proto {
            Proto::Resp2 => line_u64(b'*', 2 * count as u64, self.buf),
            Proto::Resp3 => line_u64(b'%', count as u64, self.buf),
        }
    }

    /// `count` distinct elements follow, in no order.
    #[inline]
    pub fn set(&mut self, count: usize) {
        match self.proto {
            Proto::Resp2 => line_u64(b'*', count as u64, self.buf),
            Proto::Resp3 => line_u64(b'~', count as u64, self.buf),
        }
    }

    /// A message that is not a reply to a command: `count` elements follow.
    #[inline]
    pub fn push(&mut self, count: usize) {
        match self.proto {
            Proto::Resp2 => line_u64(b'*', count as u64, self.buf),
            Proto::Resp3 => line_u64(b'>', count as u64, self.buf),
        }
    }

    /// `count` pairs of an attribute follow, and then the reply that they describe. RESP2 has no attributes: nothing may be
    /// written for the pairs.
    pub fn attribute(&mut self, count: usize) {
        if self.proto == Proto::Resp3 {
            line_u64(b'|', count as u64, self.buf);
        }
    }

    /// See [`format_double`] for the form.
    pub fn double(&mut self, value: f64) {
        match self.proto {
            Proto::Resp2 => self.short_bulk(|buf| format_double(value, buf)),
            Proto::Resp3 => {
                self.buf.push(b',');
                format_double(value, self.buf);
                self.buf.extend_from_slice(b"\r\n");
            }
        }
    }

    #[inline]
    pub fn boolean(&mut self, value: bool) {
        self.buf.extend_from_slice(match (self.proto, value) {
            (Proto::Resp2, true) => b":1\r\n",
            (Proto::Resp2, false) => b":0\r\n",
            (Proto::Resp3, true) => b"#t\r\n",
            (Proto::Resp3, false) => b"#f\r\n",
        });
    }

    /// Text for human readers. The name of its format has exactly three bytes (`txt`, `mkd`).
    pub fn verbatim(&mut self, format: &str, text: &[u8]) {
        assert_eq!(format.len(), 3, "RESP3 fixes the length of a verbatim string's format");
        match self.proto {
            Proto::Resp2 => self.bulk(text),
            Proto::Resp3 => {
                line_u64(b'=', text.len() as u64 + 4, self.buf);
                self.buf.extend_from_slice(format.as_bytes());
                self.buf.push(b':');
                self.buf.extend_from_slice(text);
                self.buf.extend_from_slice(b"\r\n");
            }
        }
    }

    /// An integer of any size, given as its digits.
    pub fn big_number(&mut self, digits: &str) {
        match self.proto {
            Proto::Resp2 => self.bulk(digits.as_bytes()),
            Proto::Resp3 => self.line(b'(', digits.as_bytes()),
        }
    }

    /// Bytes that are already RESP.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
    }

    /// An array whose length is known only after its elements are written.
    pub fn array_deferred(&mut self) -> Mark {
        self.deferred(b'*', 1)
    }

    /// A map whose number of pairs is known only after they are written.
    pub fn map_deferred(&mut self) -> Mark {
        match self.proto {
            Proto::Resp2 => self.deferred(b'*', 2),
            Proto::Resp3 => self.deferred(b'%', 1),
        }
    }

    /// A set whose length is known only after its elements are written.
    pub fn set_deferred(&mut self) -> Mark {
        match self.proto {
            Proto::Resp2 => self.deferred(b'*', 1),
            Proto::Resp3 => self.deferred(b'~', 1),
        }
    }

    fn deferred(&mut self, tag: u8, elements_per_item: usize) -> Mark {
        let at = self.buf.len();
        self.buf.extend_from_slice(&[tag, b'0', b'\r', b'\n']);
        Mark { at, elements_per_item }
    }

    /// Sets the length of a deferred header to `count` items (for a map, pairs). A length with several digits moves the
    /// bytes written since then by the extra digits.
    pub fn finish(&mut self, mark: Mark, count: usize) {
        let length = (count * mark.elements_per_item) as u64;
        let extra = decimal_digits(length) - 1;
        let body = mark.at + HEADER_BYTES;
        assert!(body <= self.buf.len(), "the reply was truncated past its mark");
        if extra > 0 {
            let end = self.buf.len();
            self.buf.resize(end + extra, 0);
            self.buf.copy_within(body..end, body + extra);
        }
        let mut header = Vec::with_capacity(HEADER_BYTES + extra);
        line_u64(self.buf[mark.at], length, &mut header);
        self.buf[mark.at..body + extra].copy_from_slice(&header);
    }

    /// A bulk string of a few bytes that is written before its length is known.
    fn short_bulk(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let at = self.buf.len();
        self.buf.extend_from_slice(b"$00\r\n");
        let body = self.buf.len();
        write(self.buf);
        let bytes = self.buf.len() - body;
        debug_assert!(bytes < 100);
        if bytes < 10 {
            self.buf.remove(at + 1);
            self.buf[at + 1] = b'0' + bytes as u8;
        } else {
            self.buf[at + 1] = b'0' + (bytes / 10) as u8;
            self.buf[at + 2] = b'0' + (bytes % 10) as u8;
        }
        self.buf.extend_from_slice(b"\r\n");
    }

    fn line(&mut self, tag: u8, text: &[u8]) {
        self.buf.reserve(text.len() + 3);
        self.buf.push(tag);
        let start = self.buf.len();
        self.buf.extend_from_slice(text);
        for byte in &mut self.buf[start..] {
            if *byte == b'\r' || *byte == b'\n' {
                *byte = b' ';
            }
        }
        self.buf.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests;
