//! Owns a connection that sends raw bytes and reads replies one by one. Never knows what a command means.

use crate::TIMEOUT;
use resp::client::{Value, encode_command, parse_value, skip};
use resp::{Limits, Parsed, Progress, Source};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

pub struct Client {
    pub stream: TcpStream,
    received: Vec<u8>,
    /// The bytes of `received` that were already returned.
    taken: usize,
}

impl Client {
    pub fn connect(port: u16) -> Client {
        Client::new(TcpStream::connect(("127.0.0.1", port)).expect("the server accepts connections"))
    }

    pub fn new(stream: TcpStream) -> Client {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        Client { stream, received: Vec::new(), taken: 0 }
    }

    /// The server may close the connection while this writes. Then the replies that it sent before count.
    pub fn send(&mut self, bytes: &[u8]) -> &mut Client {
        if let Err(error) = self.stream.write_all(bytes) {
            assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
        }
        self
    }

    /// The bytes of the next reply or push. `None`: the server has closed the connection.
    fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            let input = &self.received[self.taken..];
            if let Some(reply) = skip(input).unwrap_or_else(|error| panic!("{error}: {}", input.escape_ascii())) {
                let bytes = input[..reply.consumed].to_vec();
                self.taken += bytes.len();
                return Some(bytes);
            }
            self.received.drain(..self.taken);
            self.taken = 0;
            let mut chunk = [0; 64 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(count) => self.received.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                // The process was stopped and continued: then a read from a socket with a timeout is not restarted by
                // the kernel.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("no reply: {error}"),
            }
        }
    }

    /// The bytes of the next reply, for connections that receive no pushes.
    pub fn raw(&mut self) -> Option<Vec<u8>> {
        let bytes = self.next()?;
        assert_ne!(bytes[0], b'>', "nobody asked for a push");
        Some(bytes)
    }

    /// The next reply or push.
    pub fn reply(&mut self) -> Option<Value> {
        let bytes = self.next()?;
        let (value, _) = parse_value(&bytes).expect("well formed").expect("whole");
        Some(value)
    }

    pub fn raw_call(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_command(words, &mut bytes);
        self.send(&bytes).raw().expect("the connection stays open")
    }

    pub fn value(&mut self, words: &[&[u8]]) -> Option<Value> {
        let mut bytes = Vec::new();
        encode_command(words, &mut bytes);
        self.send(&bytes).reply()
    }

    pub fn call(&mut self, words: &[&[u8]]) -> Value {
        self.value(words).expect("the connection stays open")
    }

    /// The reply to a command as redis-cli shows it; `(closed)` at the end of the connection.
    pub fn words(&mut self, words: &[&[u8]]) -> String {
        self.value(words).map_or("(closed)".to_owned(), |value| shown(&value))
    }

    /// Runs a command as typed to redis-cli.
    pub fn run(&mut self, line: &str) -> String {
        let words = words(line);
        self.words(&words.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    /// Sets all values, in batches: a round trip for each value takes the processors three times as long.
    pub fn set_all<K: AsRef<[u8]>, V: AsRef<[u8]>>(&mut self, values: impl IntoIterator<Item = (K, V)>) {
        let mut values = values.into_iter().peekable();
        while values.peek().is_some() {
            let (mut batch, mut count) = (Vec::new(), 0);
            for (key, value) in values.by_ref().take(100) {
                encode_command(&[b"SET", key.as_ref(), value.as_ref()], &mut batch);
                count += 1;
            }
            self.send(&batch);
            (0..count).for_each(|_| assert_eq!(self.read(), "OK"));
        }
    }

    /// The next reply as redis-cli shows it; `(closed)` at the end of the connection.
    pub fn read(&mut self) -> String {
        self.reply().map_or("(closed)".to_owned(), |value| shown(&value))
    }

    /// Everything up to the end of the connection.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = self.received.split_off(self.taken);
        self.received.clear();
        self.taken = 0;
        // A reset is also an end.
        let _ = self.stream.read_to_end(&mut rest);
        rest
    }

    /// A field of INFO.
    pub fn info(&mut self, section: &str, field: &str) -> String {
        let text = match self.call(&[b"INFO", section.as_bytes()]) {
            Value::Bulk(text) => String::from_utf8(text).unwrap(),
            Value::Verbatim { text, .. } => String::from_utf8(text).unwrap(),
            other => panic!("INFO answered {other:?}"),
        };
        let prefix = format!("{field}:");
        let line = text.lines().find_map(|line| line.strip_prefix(&prefix));
        line.unwrap_or_else(|| panic!("no {field} in {text}")).to_owned()
    }

    pub fn info_number(&mut self, section: &str, field: &str) -> u64 {
        let text = self.info(section, field);
        text.parse().unwrap_or_else(|_| panic!("{field} is no number: {text}"))
    }

    /// A complete iteration: the elements of every page of `SCAN`, or of `HSCAN key`, with the given options.
    pub fn scan(&mut self, command: &[&[u8]], options: &[&[u8]]) -> Result<Vec<Vec<u8>>, String> {
        let mut cursor = b"0".to_vec();
        let mut all = Vec::new();
        loop {
            let mut words = command.to_vec();
            words.push(&cursor);
            words.extend(options);
            let Value::Array(parts) = self.call(&words) else { return Err(shown(&self.call(&words))) };
            let [Value::Bulk(next), Value::Array(elements)] = &parts[..] else {
                panic!("not a scan's reply: {parts:?}")
            };
            for element in elements {
                let Value::Bulk(element) = element else { panic!("not an element: {element:?}") };
                all.push(element.clone());
            }
            if next == b"0" {
                return Ok(all);
            }
            cursor = next.clone();
        }
    }
}

/// The words of a line by redis-cli's rules, with quotes resolved.
pub fn words(line: &str) -> Vec<Vec<u8>> {
    let (mut progress, mut spans) = (Progress::default(), Vec::new());
    let input = format!("{line}\r\n").into_bytes();
    let parsed = resp::parse(&input, &mut progress, &Limits::DEFAULT, &mut spans);
    let bytes = match parsed {
        Ok(Parsed::Complete { source: Source::Unquoted, .. }) => progress.unquoted(),
        Ok(Parsed::Complete { .. }) => &input[..],
        other => panic!("{line:?} is not a command: {other:?}"),
    };
    spans.iter().map(|span| span.of(bytes).to_vec()).collect()
}

/// A reply as `redis-cli --no-raw` prints it, without the last line end.
pub fn shown(value: &Value) -> String {
    let mut text = String::new();
    show(value, "", &mut text);
    text.truncate(text.trim_end_matches('\n').len());
    text
}

fn show(value: &Value, indent: &str, text: &mut String) {
    match value {
        Value::Simple(line) => *text += &format!("{}\n", String::from_utf8_lossy(line)),
        Value::Error(line) => *text += &format!("(error) {}\n", String::from_utf8_lossy(line)),
        Value::Int(number) => *text += &format!("(integer) {number}\n"),
        Value::Bulk(bytes) | Value::Verbatim { text: bytes, .. } => *text += &format!("{}\n", quoted(bytes)),
        Value::Null | Value::NullArray => *text += "(nil)\n",
        Value::Boolean(on) => *text += &format!("({on})\n"),
        Value::Double(number) => *text += &format!("(double) {number}\n"),
        Value::BigNumber(digits) => *text += &format!("(big number) {}\n", String::from_utf8_lossy(digits)),
        Value::Array(items) | Value::Push(items) => list(items, "array", ')', indent, text),
        Value::Set(items) => list(items, "set", '~', indent, text),
        Value::Map(pairs) if pairs.is_empty() => *text += "(empty hash)\n",
        Value::Map(pairs) => {
            let width = pairs.len().to_string().len();
            for (at, (key, value)) in pairs.iter().enumerate() {
                let before = if at == 0 { "" } else { indent };
                *text += &format!("{before}{:>width$}# ", at + 1);
                show(key, "", text);
                text.truncate(text.len() - 1);
                *text += " => ";
                show(value, &format!("{indent}{}", " ".repeat(width + 2)), text);
            }
        }
    }
}

fn list(items: &[Value], name: &str, mark: char, indent: &str, text: &mut String) {
    if items.is_empty() {
        *text += &format!("(empty {name})\n");
    }
    let width = items.len().to_string().len();
    for (at, item) in items.iter().enumerate() {
        let before = if at == 0 { "" } else { indent };
        *text += &format!("{before}{:>width$}{mark} ", at + 1);
        show(item, &format!("{indent}{}", " ".repeat(width + 2)), text);
    }
}

fn quoted(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for &byte in bytes {
        match byte {
            b'\\' | b'"' => text.extend(['\\', byte as char]),
            b'\n' => text += "\\n",
            b'\r' => text += "\\r",
            b'\t' => text += "\\t",
            0x07 => text += "\\a",
            0x08 => text += "\\b",
            b' '..=b'~' => text.push(byte as char),
            _ => text += &format!("\\x{byte:02x}"),
        }
    }
    text + "\""
}

/// A reply on one line.
pub fn one_line(value: &Value) -> String {
    let all = |values: &[Value]| values.iter().map(one_line).collect::<Vec<_>>().join(", ");
    match value {
        Value::Simple(text) => String::from_utf8_lossy(text).into_owned(),
        Value::Error(text) => format!("(error) {}", String::from_utf8_lossy(text)),
        Value::Int(value) => format!("(integer) {value}"),
        Value::Bulk(bytes) => format!("\"{}\"", bytes.escape_ascii()),
        Value::Null | Value::NullArray => "(nil)".to_owned(),
        Value::Boolean(value) => format!("({value})"),
        Value::Double(value) => format!("(double) {value}"),
        Value::BigNumber(digits) => format!("(big number) {}", digits.escape_ascii()),
        Value::Verbatim { text, .. } => String::from_utf8_lossy(text).into_owned(),
        Value::Array(values) => format!("[{}]", all(values)),
        Value::Set(values) => format!("~[{}]", all(values)),
        Value::Push(values) => format!(">[{}]", all(values)),
        Value::Map(pairs) => {
            let pairs = pairs.iter().map(|(key, value)| format!("{}: {}", one_line(key), one_line(value)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
    }
}
