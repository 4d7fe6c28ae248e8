//! Owns the counting of replies in a stream of bytes, RESP2 and RESP3. Never knows the requests, and never stores more
//! of a reply than an unfinished line: bulks of any size are skipped as they pass, so a connection costs a few bytes
//! whatever the server sends.
//!
//! No [`resp::Connection`]: the generator drives thousands of sockets from one thread without waiting for any, and what it spends on a
//! reply is taken from the server that it measures. It needs a reply's class and length, never its content.

use anyhow::{Result, bail, ensure};

/// The longest line (error text, number, header).
const LINE_BYTES_MAX: usize = 64 << 10;
const CURSOR_BYTES_MAX: u64 = 64;

/// The kind of a reply, as far as a load generator cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A status, a number, a boolean.
    Simple,
    Error,
    Value,
    Nil,
    /// An array, set or map with this many elements.
    Aggregate(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    pub class: Class,
    /// On the wire, headers included.
    pub bytes: u64,
    /// Nil elements inside an aggregate.
    pub nils: u64,
}

/// The reply reader of one connection.
#[derive(Default)]
pub struct Replies {
    /// An unfinished line.
    line: Vec<u8>,
    /// Values still missing from the current reply, including the reply itself; 0 between replies.
    values: u64,
    /// Remaining bytes of a bulk, with its line end.
    bulk: u64,
    push: bool,
    class: Option<Class>,
    bytes: u64,
    nils: u64,
    /// SCAN: keeps the first bulk of each reply.
    keep_cursor: bool,
    cursor: Vec<u8>,
    value_index: u64,
    in_cursor: bool,
}

impl Replies {
    pub fn new(keep_cursor: bool) -> Replies {
        Replies { keep_cursor, ..Replies::default() }
    }

    /// The first bulk of the last aggregate, if it was asked for.
    pub fn cursor(&self) -> &[u8] {
        &self.cursor
    }

    /// Calls `sink` for every reply that `input` completes, with the text of an error.
    #[inline]
    pub fn feed(&mut self, mut input: &[u8], mut sink: impl FnMut(Reply, &[u8])) -> Result<()> {
        loop {
            if self.values == 0 && self.line.is_empty() {
                input = fast(input, &mut sink);
            }
            if input.is_empty() {
                return Ok(());
            }
            input = self.step(input, &mut sink)?;
        }
    }

    /// Takes one line or a piece of a bulk from `input`, and returns the rest.
    fn step<'a>(&mut self, input: &'a [u8], sink: &mut impl FnMut(Reply, &[u8])) -> Result<&'a [u8]> {
        if self.bulk > 0 {
            let take = self.bulk.min(input.len() as u64);
            if self.in_cursor {
                // The last two bytes are the line end.
                let body = self.bulk.saturating_sub(2).min(take);
                self.cursor.extend_from_slice(&input[..body as usize]);
            }
            self.bulk -= take;
            self.bytes += take;
            if self.bulk == 0 {
                self.in_cursor = false;
                self.finish_value(b"", sink);
            }
            return Ok(&input[take as usize..]);
        }
        let Some(end) = input.iter().position(|&byte| byte == b'\n') else {
            ensure!(self.line.len() + input.len() <= LINE_BYTES_MAX, "a line of more than {LINE_BYTES_MAX} bytes");
            self.line.extend_from_slice(input);
            return Ok(&[]);
        };
        let (head, rest) = input.split_at(end + 1);
        if self.line.is_empty() {
            self.line_complete(head, sink)?;
        } else {
            let mut line = std::mem::take(&mut self.line);
            line.extend_from_slice(head);
            self.line_complete(&line, sink)?;
            line.clear();
            self.line = line;
        }
        Ok(rest)
    }

    fn line_complete(&mut self, line: &[u8], sink: &mut impl FnMut(Reply, &[u8])) -> Result<()> {
        let [kind, text @ .., b'\r', b'\n'] = line else { bail!("a line without CR LF: {}", shown(line)) };
        if self.values == 0 {
            self.values = 1;
            self.bytes = 0;
            self.nils = 0;
            self.class = None;
            self.push = *kind == b'>';
            self.value_index = 0;
        }
        self.bytes += line.len() as u64;
        // The outermost value decides the kind of the reply: the value after which none is missing, attributes aside.
        let outermost = self.values == 1;
        let class = match kind {
            b'+' | b':' | b',' | b'#' | b'(' => Class::Simple,
            b'-' => Class::Error,
            b'_' => Class::Nil,
            b'$' | b'=' | b'!' => match length(text)? {
                None => Class::Nil,
                Some(bytes) => {
                    ensure!(bytes <= 1 << 40, "a bulk of {bytes} bytes");
                    if outermost {
                        self.class.get_or_insert(if *kind == b'!' { Class::Error } else { Class::Value });
                    }
                    self.bulk = bytes + 2;
                    if self.keep_cursor && self.value_index == 1 && bytes <= CURSOR_BYTES_MAX {
                        self.cursor.clear();
                        self.in_cursor = true;
                    }
                    return Ok(());
                }
            },
            b'*' | b'~' | b'>' | b'%' | b'|' => match length(text)? {
                None => Class::Nil,
                Some(count) => {
                    ensure!(count <= 1 << 40, "an aggregate of {count} elements");
                    let values = if matches!(kind, b'%' | b'|') { count * 2 } else { count };
                    self.values = self.values.saturating_add(values);
                    if *kind == b'|' {
                        return Ok(()); // Attributes precede their value.
                    }
                    Class::Aggregate(count)
                }
            },
            _ => bail!("not a reply: {}", shown(line)),
        };
        if outermost {
            self.class.get_or_insert(class);
        }
        if class == Class::Nil {
            self.nils += 1;
        }
        self.finish_value(if class == Class::Error { text } else { b"" }, sink);
        Ok(())
    }

    fn finish_value(&mut self, text: &[u8], sink: &mut impl FnMut(Reply, &[u8])) {
        self.values -= 1;
        self.value_index += 1;
        if self.values == 0 && !self.push {
            let class = self.class.unwrap_or(Class::Simple);
            sink(Reply { class, bytes: self.bytes, nils: self.nils }, text);
        }
    }
}

/// Handles complete replies of the two common kinds, `+OK` and a complete bulk. Stops before anything else.
#[inline]
fn fast<'a>(mut input: &'a [u8], sink: &mut impl FnMut(Reply, &[u8])) -> &'a [u8] {
    loop {
        if let [b'+', b'O', b'K', b'\r', b'\n', rest @ ..] = input {
            sink(Reply { class: Class::Simple, bytes: 5, nils: 0 }, b"");
            input = rest;
        } else if let [b'$', first @ b'0'..=b'9', ..] = input {
            let mut size = usize::from(first - b'0');
            let mut at = 2;
            // At most eight digits; larger numbers take the slow path.
            while at < 9
                && let Some(digit @ b'0'..=b'9') = input.get(at)
            {
                size = size * 10 + usize::from(digit - b'0');
                at += 1;
            }
            let end = at + 2 + size + 2;
            if input.get(at..at + 2) != Some(b"\r\n") || input.len() < end {
                return input;
            }
            sink(Reply { class: Class::Value, bytes: end as u64, nils: 0 }, b"");
            input = &input[end..];
        } else {
            return input;
        }
    }
}

fn length(text: &[u8]) -> Result<Option<u64>> {
    if text == b"-1" {
        return Ok(None);
    }
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    match number {
        Some(length) => Ok(Some(length)),
        None => bail!("not a length: {}", shown(text)),
    }
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    type Seen = Vec<(Class, u64, u64, String)>;

    fn feed(replies: &mut Replies, input: &[u8], seen: &mut Seen) -> Result<()> {
        replies.feed(input, |reply, text| {
            seen.push((reply.class, reply.bytes, reply.nils, String::from_utf8_lossy(text).into_owned()));
        })
    }

    const STREAM: &[u8] = b"+OK\r\n$5\r\nhello\r\n$-1\r\n$0\r\n\r\n:17\r\n-ERR no\r\n*0\r\n*3\r\n$1\r\na\r\n$-1\r\n*1\r\n_\r\n\
        %1\r\n+k\r\n#t\r\n>2\r\n+msg\r\n+x\r\n|1\r\n+ttl\r\n:3\r\n$2\r\nok\r\n,1.5\r\n(99\r\n=7\r\ntxt:abc\r\n*-1\r\n!3\r\nERR\r\n";

    fn expected() -> Seen {
        let plain = |class, bytes| (class, bytes, 0, String::new());
        vec![
            plain(Class::Simple, 5),
            plain(Class::Value, 11),
            (Class::Nil, 5, 1, String::new()),
            plain(Class::Value, 6),
            plain(Class::Simple, 5),
            (Class::Error, 9, 0, String::from("ERR no")),
            plain(Class::Aggregate(0), 4),
            (Class::Aggregate(3), 23, 2, String::new()),
            plain(Class::Aggregate(1), 12),
            plain(Class::Value, 22),
            plain(Class::Simple, 6),
            plain(Class::Simple, 5),
            plain(Class::Value, 13),
            (Class::Nil, 5, 1, String::new()),
            plain(Class::Error, 9),
        ]
    }

    #[test]
    fn every_kind_of_reply_is_counted_once_and_pushes_are_not() {
        let mut seen = Vec::new();
        feed(&mut Replies::default(), STREAM, &mut seen).expect("good replies");
        assert_eq!(seen, expected());
    }

    #[test]
    fn the_result_does_not_depend_on_where_the_stream_is_cut() {
        for cut in 1..STREAM.len() {
            let (mut replies, mut seen) = (Replies::default(), Vec::new());
            feed(&mut replies, &STREAM[..cut], &mut seen).expect("good replies");
            feed(&mut replies, &STREAM[cut..], &mut seen).expect("good replies");
            assert_eq!(seen, expected(), "cut at {cut}");
        }
        let (mut replies, mut seen) = (Replies::default(), Vec::new());
        for byte in STREAM {
            feed(&mut replies, &[*byte], &mut seen).expect("good replies");
        }
        assert_eq!(seen, expected());
    }

    #[test]
    fn garbage_is_an_error() {
        for garbage in [&b"hello\r\n"[..], b"$x\r\n", b"*-2\r\n", b"+OK\n", b"$99999999999999999999\r\n"] {
            assert!(feed(&mut Replies::default(), garbage, &mut Vec::new()).is_err(), "{}", shown(garbage));
        }
        let endless = vec![b'+'; LINE_BYTES_MAX + 1];
        assert!(feed(&mut Replies::default(), &endless, &mut Vec::new()).is_err());
    }

    #[test]
    fn scan_keeps_its_cursor_wherever_the_stream_is_cut() {
        let stream = b"*2\r\n$4\r\n1234\r\n*2\r\n$1\r\na\r\n$2\r\nbb\r\n";
        for cut in 0..stream.len() {
            let mut replies = Replies::new(true);
            feed(&mut replies, &stream[..cut], &mut Vec::new()).expect("good");
            feed(&mut replies, &stream[cut..], &mut Vec::new()).expect("good");
            assert_eq!(replies.cursor(), b"1234", "cut at {cut}");
        }
    }

    /// The bulk itself is never stored.
    #[test]
    fn a_large_bulk_passes_through() {
        let mut replies = Replies::default();
        let mut seen = Vec::new();
        feed(&mut replies, b"$100000000\r\n", &mut seen).expect("good");
        let piece = vec![b'v'; 1 << 20];
        let mut left = 100_000_000;
        while left > 0 {
            let take = piece.len().min(left);
            feed(&mut replies, &piece[..take], &mut seen).expect("good");
            left -= take;
        }
        assert_eq!(seen, []);
        feed(&mut replies, b"\r\n+OK\r\n", &mut seen).expect("good");
        assert_eq!(seen.len(), 2);
        assert_eq!(seen[0].1, 100_000_014);
        assert!(replies.line.capacity() < 1024);
    }
}
