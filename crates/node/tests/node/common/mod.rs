//! A node in its own process, and a client that shows every byte.

#![allow(dead_code, reason = "each test file uses its part")]

#[path = "../../../../commands/tests/commands/harness/mod.rs"]
pub mod harness;

use config::ConfigStore;
pub use harness::{shown, words};
use resp::client::{Value, encode_command, parse_value};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Tells a test process to become a node: the node's directives, one word per line.
const DIRECTIVES: &str = "FLINTKV_TEST_DIRECTIVES";
/// Longer than any step of these tests takes on a busy machine. Reaching it is a failure.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Not a test: [`Node::start`] runs this in its own process.
#[test]
fn node_process() {
    let Ok(directives) = std::env::var(DIRECTIVES) else { return };
    let args: Vec<String> = directives.lines().map(str::to_owned).collect();
    let config = ConfigStore::from_args(&args).expect("the test's directives are right");
    node::run(Arc::new(config), crate::databases::attach).expect("the node starts");
}

pub struct Node {
    pub port: u16,
    child: Child,
}

impl Node {
    pub fn start(directives: &[(&str, &str)]) -> Node {
        // If another process takes the free port first, try the next one.
        (0..5).find_map(|_| Node::try_start(free_port(), directives).ok()).expect("a node starts")
    }

    /// Starts with a configuration file, whose directives may be overridden.
    pub fn start_with_file(file: &Path, directives: &[(&str, &str)]) -> Node {
        (0..5).find_map(|_| Node::launch(free_port(), Some(file), directives).ok()).expect("a node starts")
    }

    /// The error is the text that the node printed before it ended.
    pub fn try_start(port: u16, directives: &[(&str, &str)]) -> Result<Node, String> {
        Node::launch(port, None, directives)
    }

    fn launch(port: u16, file: Option<&Path>, directives: &[(&str, &str)]) -> Result<Node, String> {
        let port_text = port.to_string();
        let defaults =
            [("port", port_text.as_str()), ("io-threads", "2"), ("bind", "127.0.0.1"), ("console-port", "0")];
        let mut text = file.map_or(String::new(), |file| format!("{}\n", file.display()));
        for (name, value) in defaults.iter().chain(directives) {
            text.push_str(&format!("--{name}\n{value}\n"));
        }
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["common::node_process", "--exact", "--nocapture"])
            .env(DIRECTIVES, text)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut node = Node { port, child };
        let deadline = Instant::now() + PATIENCE;
        // Connect twice. A connection to a node that is about to give up is reset, and the second attempt then finds
        // no listener.
        let is_there = || {
            let Ok(probe) = TcpStream::connect(("127.0.0.1", port)) else { return false };
            // Wait until the node has closed the connection, so that it does not count as a client.
            let _ = probe.shutdown(Shutdown::Write);
            Client::new(probe).rest();
            true
        };
        while !(is_there() && is_there()) {
            if node.child.try_wait().unwrap().is_some() {
                let mut said = String::new();
                let _ = node.child.stdout.take().unwrap().read_to_string(&mut said);
                let _ = node.child.stderr.take().unwrap().read_to_string(&mut said);
                return Err(said);
            }
            assert!(Instant::now() < deadline, "the node does not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        // No test reads the node's log from here on, and a full pipe must not block the node.
        for pipe in [node.child.stdout.take().map(Pipe::Out), node.child.stderr.take().map(Pipe::Err)] {
            std::thread::spawn(move || drain(pipe));
        }
        Ok(node)
    }

    pub fn connect(&self) -> Client {
        Client::new(TcpStream::connect(("127.0.0.1", self.port)).unwrap())
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: sends a signal to a child that was not waited for yet, so the id still belongs to the child.
        assert_eq!(unsafe { libc::kill(self.pid(), signal) }, 0);
    }

    /// Waits until the process ends by itself.
    pub fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the node does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn resident_bytes(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/statm", self.pid())).unwrap();
        text.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * rustix::param::page_size() as u64
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A redis-server for this test alone, on a TCP port.
pub struct Redis {
    child: Child,
    pub port: u16,
    _directory: tempfile::TempDir,
}

impl Redis {
    pub fn start() -> Option<Redis> {
        Redis::start_with(&[])
    }

    pub fn start_with(options: &[&str]) -> Option<Redis> {
        let directory = tempfile::tempdir().unwrap();
        let port = free_port();
        let child = Command::new("redis-server")
            .args(["--save", "", "--port", &port.to_string(), "--dir"])
            .arg(directory.path())
            .args(options)
            .stdout(Stdio::null())
            .spawn()
            .inspect_err(|_| eprintln!("redis-server is not installed: nothing was compared with it"))
            .ok()?;
        eventually("redis-server starts", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Some(Redis { child, port, _directory: directory })
    }

    pub fn connect(&self) -> Client {
        Client::new(TcpStream::connect(("127.0.0.1", self.port)).unwrap())
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

enum Pipe {
    Out(std::process::ChildStdout),
    Err(std::process::ChildStderr),
}

fn drain(pipe: Option<Pipe>) {
    let mut text = Vec::new();
    let _ = match pipe {
        Some(Pipe::Out(mut out)) => out.read_to_end(&mut text),
        Some(Pipe::Err(mut err)) => err.read_to_end(&mut text),
        None => Ok(0),
    };
}

pub fn free_port() -> u16 {
    // Return each port only once: otherwise a port could be given to another test before its node listens. The range
    // is below the ports that the system gives to clients.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let port = 10_000 + (std::process::id() * 97 + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        if TcpListener::bind(("127.0.0.1", port as u16)).is_ok() {
            return port as u16;
        }
    }
}

/// A connection that sends raw bytes and reads replies one by one.
pub struct Client {
    pub stream: TcpStream,
    received: Vec<u8>,
}

impl Client {
    pub fn new(stream: TcpStream) -> Client {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { stream, received: Vec::new() }
    }

    pub fn send(&mut self, bytes: &[u8]) -> &mut Client {
        self.stream.write_all(bytes).unwrap();
        self
    }

    /// The next reply, or `None` if the node has closed the connection.
    pub fn reply(&mut self) -> Option<Value> {
        loop {
            if let Some((value, consumed)) = parse_value(&self.received).expect("a well-formed reply") {
                self.received.drain(..consumed);
                return Some(value);
            }
            let mut chunk = [0; 64 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(count) => self.received.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no reply: {error}"),
            }
        }
    }

    /// The next reply as redis-cli shows it; `(closed)` at the end of the connection.
    pub fn read(&mut self) -> String {
        self.reply().map_or("(closed)".to_owned(), |value| shown(&value))
    }

    pub fn value(&mut self, words: &[&[u8]]) -> Option<Value> {
        let mut bytes = Vec::new();
        encode_command(words, &mut bytes);
        // The node may close while we write. The reply that it sent before counts.
        let _ = self.stream.write_all(&bytes);
        self.reply()
    }

    /// Runs a command as typed to redis-cli.
    pub fn run(&mut self, line: &str) -> String {
        let words = words(line);
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        self.value(&words).map_or("(closed)".to_owned(), |value| shown(&value))
    }

    /// Everything up to the end of the connection.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.received);
        // A reset is an end too.
        let _ = self.stream.read_to_end(&mut rest);
        rest
    }

    /// A field of INFO.
    pub fn info(&mut self, section: &str, field: &str) -> String {
        let text = match self.value(&[b"INFO", section.as_bytes()]) {
            Some(Value::Bulk(text)) => String::from_utf8(text).unwrap(),
            other => panic!("INFO answered {other:?}"),
        };
        let prefix = format!("{field}:");
        let line = text.lines().find_map(|line| line.strip_prefix(&prefix));
        line.unwrap_or_else(|| panic!("no {field} in {text}")).to_owned()
    }
}

/// Retries until the condition holds, for changes that another thread makes a moment later.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
