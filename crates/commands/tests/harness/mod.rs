//! Commands typed as to redis-cli, run over a real store without flash, answered as redis-cli prints; and the same
//! against Debian's redis-server where it is installed.

#![allow(dead_code, reason = "each test file uses its part")]

mod host;

use commands::session::Session;
use commands::{Args, Cx, Row, Settings, Stop, table};
use resp::client::{Value, encode_command, parse_value};
use resp::{Limits, Out, Parsed, Progress, Source, Span};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use store::{Key, Resume, Store, StoreConfig};

/// The words of a line as redis-cli takes them, quotes resolved.
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

/// One connection to a store of its own.
pub struct Harness {
    pub store: Arc<Store>,
    pub session: Session,
    pub settings: Settings,
    pub now_ms: u64,
    /// Times the last command gave way to others before it was done.
    pub yields: usize,
}

impl Harness {
    pub fn new() -> Harness {
        Harness {
            store: Store::new(&StoreConfig::in_ram(1)),
            session: Session::new(1, true, true),
            settings: Settings {
                hash_max_listpack_entries: 128,
                hash_max_listpack_value: 64,
                proto_max_bulk_len: 512 * 1024 * 1024,
                databases: 16,
                lfu: false,
            },
            now_ms: 1_700_000_000_000,
            yields: 0,
        }
    }

    /// A command as typed, its reply as redis-cli prints it.
    pub fn run(&mut self, line: &str) -> String {
        let words = words(line);
        self.words(&words.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    pub fn words(&mut self, words: &[&[u8]]) -> String {
        let reply = self.reply(words);
        let (value, consumed) = parse_value(&reply).expect("a reply").expect("a whole reply");
        assert_eq!(consumed, reply.len(), "one reply, not more");
        shown(&value)
    }

    /// The reply's bytes.
    pub fn reply(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let mut reply = Vec::new();
        match self.execute(words, &mut reply) {
            Ok(()) => {}
            Err(error) => {
                reply.clear();
                Out::new(&mut reply, self.session.proto).error(&error);
            }
        }
        reply
    }

    fn execute(&mut self, words: &[&[u8]], reply: &mut Vec<u8>) -> Result<(), String> {
        let name = String::from_utf8_lossy(words[0]);
        let mut row = table::find(words[0]).ok_or(format!("ERR unknown command '{name}'"))?;
        let mut full_name = row.name.to_owned();
        if let Some(sub) = words.get(1).and_then(|word| table::find_subcommand(row, word)) {
            full_name = format!("{}|{}", row.name, sub.name);
            row = sub;
        }
        if !takes(row, words.len()) {
            return Err(format!("ERR wrong number of arguments for '{full_name}' command"));
        }
        let bytes = words.concat();
        let mut start = 0;
        let spans: Vec<Span> = words
            .iter()
            .map(|word| {
                let span = Span { start, len: word.len() as u32 };
                start += span.len;
                span
            })
            .collect();
        let args = Args::new(&bytes, &spans);
        let mut positions = Vec::new();
        row.keys.positions(&args, &mut positions);
        let keys: Vec<Key<'_>> = positions.iter().map(|&at| self.store.hasher().key(words[at])).collect();
        let mut resume = Resume::default();
        self.yields = 0;
        loop {
            reply.clear();
            let mut cx = Cx {
                args,
                keys: &keys,
                ks: self.store.lock(&keys, self.session.db, self.now_ms, true, &mut resume),
                out: Out::new(reply, self.session.proto),
                session: &mut self.session,
                settings: &self.settings,
                server: &host::NoServer,
            };
            match (row.run)(&mut cx) {
                Ok(()) => return Ok(()),
                Err(Stop::Error(text)) => return Err(text.into_owned()),
                Err(Stop::Yield) => self.yields += 1,
                Err(Stop::Cold) => panic!("nothing is cold without flash"),
            }
        }
    }
}

fn takes(row: &Row, count: usize) -> bool {
    let arity = i64::from(row.arity);
    if arity >= 0 { count as i64 == arity } else { count as i64 >= -arity }
}

/// A redis-server of this test's own, ended with it.
pub struct RealRedis {
    server: Child,
    stream: UnixStream,
    input: Vec<u8>,
    _directory: tempfile::TempDir,
}

impl RealRedis {
    /// `None`, said aloud, where redis-server is not installed.
    pub fn start() -> Option<RealRedis> {
        let directory = tempfile::tempdir().expect("a directory for a socket");
        let socket = directory.path().join("s");
        let server = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--unixsocket"])
            .arg(&socket)
            .arg("--dir")
            .arg(directory.path())
            .stdout(Stdio::null())
            .spawn();
        let Ok(server) = server else {
            eprintln!("redis-server is not installed: nothing was compared with it");
            return None;
        };
        for _ in 0..1000 {
            if let Ok(stream) = UnixStream::connect(&socket) {
                return Some(RealRedis { server, stream, input: Vec::new(), _directory: directory });
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("redis-server did not start");
    }

    pub fn run(&mut self, line: &str) -> String {
        let words = words(line);
        self.words(&words.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    pub fn words(&mut self, words: &[&[u8]]) -> String {
        shown(&self.value(words))
    }

    pub fn value(&mut self, words: &[&[u8]]) -> Value {
        let mut command = Vec::new();
        encode_command(words, &mut command);
        self.stream.write_all(&command).expect("redis-server reads");
        loop {
            if let Some((value, consumed)) = parse_value(&self.input).expect("RESP") {
                self.input.drain(..consumed);
                return value;
            }
            let mut bytes = [0; 65536];
            let count = self.stream.read(&mut bytes).expect("redis-server answers");
            assert!(count > 0, "redis-server closed the connection");
            self.input.extend_from_slice(&bytes[..count]);
        }
    }
}

impl Drop for RealRedis {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
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
