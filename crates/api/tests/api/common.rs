//! Owns a node with a console, which is this test program itself, and a client that speaks HTTP.

pub use base::clock::wall_ms;
use config::ConfigStore;
use flintkv_tests::{Process, Program, words_of_node};
use serde_json::Value;
use std::any::Any;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub use flintkv_tests::{MANAGER, TIMEOUT, free_port};
pub use serde_json::json;

pub const PASSWORD: &str = "a word for tests";

/// A file in the node's folder that says how far the test's clock is ahead.
const CLOCK: &str = "test-clock";

struct ThisTest;

impl Program for ThisTest {
    const TEST: Option<&'static str> = Some("common::node_process");
    const USUAL: &'static [(&'static str, &'static str)] =
        &[("console-bind", "127.0.0.1"), ("console-password", PASSWORD)];
}

/// Not a test: [`Node::start`] runs this in a process of its own.
#[test]
fn node_process() {
    static AHEAD_MS: AtomicU64 = AtomicU64::new(0);
    // How far the console's clock is ahead. The test waits until the file has this value.
    let move_clock = |ahead_ms: String| {
        AHEAD_MS.store(ahead_ms.parse().unwrap(), Relaxed);
        std::fs::write(CLOCK, ahead_ms).unwrap();
    };
    let Some(words) = words_of_node(move_clock) else { return };
    let config = ConfigStore::from_args(&words).expect("the test's directives are right");
    let program = std::env::current_exe().unwrap().into_os_string();
    let scenario = [program.to_str().unwrap(), "common::scenario_process", "--exact", "--nocapture", "--"];
    let options = |agent: &Arc<agent::Agent>| api::Options {
        agent: Some(Arc::clone(agent)),
        now_ms: Arc::new(|| wall_ms() + AHEAD_MS.load(Relaxed)),
        scenario: scenario.iter().map(Into::into).collect(),
    };
    // As the program does it.
    let attach = |node: &Arc<node::Node>| {
        let agent = Arc::new(agent::Agent::start(node)?);
        let console = api::start_with(node, options(&agent))?;
        Ok(Box::new((console, agent)) as Box<dyn Any>)
    };
    node::run(Arc::new(config), attach).expect("the node starts");
}

/// Not a test: the node runs this as `flintkv scenario`.
#[test]
fn scenario_process() {
    let args: Vec<_> = std::env::args_os().skip_while(|arg| arg != "--").skip(1).collect();
    if !args.is_empty() {
        let code = bench::scenario::main(args.into_iter());
        std::process::exit(i32::from(format!("{code:?}") != format!("{:?}", ExitCode::SUCCESS)));
    }
}

pub struct Node {
    pub console: u16,
    process: Process<ThisTest>,
}

impl Node {
    pub fn start(directives: &[(&str, &str)]) -> Node {
        Node::start_in(Arc::new(tempfile::tempdir().unwrap()), directives)
    }

    pub fn start_in(folder: Arc<TempDir>, directives: &[(&str, &str)]) -> Node {
        let node = Node::launch(&folder, directives);
        until("the console is ready", || {
            node.client().try_send("GET", "/health/ready", None).filter(|reply| reply.status == 200)
        });
        node
    }

    /// The caller waits for the console.
    pub fn start_tls(folder: Arc<TempDir>, cert: &Path, key: &Path) -> Node {
        let files = [("console-tls-cert-file", cert), ("console-tls-key-file", key)];
        Node::launch(&folder, &files.map(|(name, path)| (name, path.to_str().unwrap())))
    }

    /// The caller waits for the console.
    pub fn launch(folder: &Arc<TempDir>, directives: &[(&str, &str)]) -> Node {
        let console = free_port();
        let port = console.to_string();
        let directives = [&[("io-threads", "1"), ("console-port", &port)], directives].concat();
        Node { console, process: Process::start_in(folder, None, &directives) }
    }

    pub fn port(&self) -> u16 {
        self.process.port
    }

    pub fn log(&self) -> String {
        self.process.log()
    }

    pub fn folder(&self) -> Arc<TempDir> {
        Arc::clone(&self.process.dir)
    }

    pub fn state_dir(&self) -> std::path::PathBuf {
        self.process.dir.path().join("flintkv-state")
    }

    pub fn client(&self) -> Client {
        Client { port: self.console, headers: Vec::new() }
    }

    /// A client that has logged in.
    pub fn admin(&self) -> Client {
        self.login("admin", PASSWORD)
    }

    pub fn login(&self, user: &str, password: &str) -> Client {
        let reply = self.client().post("/api/v1/session", json!({"user": user, "password": password}));
        assert_eq!(reply.status, 200, "{}", reply.text());
        let cookie = reply.header("set-cookie").unwrap();
        let mut client = self.client();
        client.headers.push(("Cookie".into(), cookie.split(';').next().unwrap().into()));
        client.headers.push(("X-CSRF-Token".into(), reply.json()["csrf"].as_str().unwrap().into()));
        client
    }

    /// A client with a token of that role.
    pub fn token(&self, role: &str) -> Client {
        let made = self.admin().post("/api/v1/tokens", json!({"name": format!("test {role}"), "role": role}));
        assert_eq!(made.status, 201, "{}", made.text());
        self.client().with("Authorization", &format!("Bearer {}", made.json()["token"].as_str().unwrap()))
    }

    pub fn set_clock_ahead(&mut self, ms: u64) {
        self.process.tell(&ms.to_string());
        let file = self.process.dir.path().join(CLOCK);
        until("the clock to move", || (std::fs::read_to_string(&file).ok()? == ms.to_string()).then_some(()));
    }

    /// Sends SIGTERM and waits for the end.
    pub fn stop(mut self) {
        self.process.terminate();
        self.process.ended();
    }

    /// Runs one command over a database's own port.
    pub fn command(&self, port: u16, args: &[&str]) -> resp::client::Value {
        let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
        flintkv_tests::Client::connect(port).call(&args)
    }
}

/// Asks until `ask` returns a value.
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} never happened");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[derive(Clone)]
pub struct Client {
    pub port: u16,
    pub headers: Vec<(String, String)>,
}

pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{}: {}", self.status, self.text()))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The error's code, and the first field that it names.
    #[track_caller]
    pub fn error(&self) -> (u16, String, String) {
        let error = &self.json()["error"];
        let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
        assert!(!text(&error["message"]).is_empty(), "{}", self.text());
        (self.status, text(&error["code"]), text(&error["fields"][0]["field"]))
    }

    #[track_caller]
    pub fn ok(self) -> Value {
        assert!((200..300).contains(&self.status), "{}: {}", self.status, self.text());
        if self.body.is_empty() { Value::Null } else { self.json() }
    }
}

pub fn error(status: u16, code: &str, field: &str) -> (u16, String, String) {
    (status, code.to_owned(), field.to_owned())
}

impl Client {
    #[must_use]
    pub fn with(&self, name: &str, value: &str) -> Client {
        let mut client = self.clone();
        client.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        client.headers.push((name.into(), value.into()));
        client
    }

    #[must_use]
    pub fn without(&self, name: &str) -> Client {
        let mut client = self.clone();
        client.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        client
    }

    pub fn get(&self, path: &str) -> Reply {
        self.send("GET", path, None)
    }

    pub fn post(&self, path: &str, body: Value) -> Reply {
        self.send("POST", path, Some(body))
    }

    pub fn put(&self, path: &str, body: Value) -> Reply {
        self.send("PUT", path, Some(body))
    }

    pub fn patch(&self, path: &str, body: Value) -> Reply {
        self.send("PATCH", path, Some(body))
    }

    pub fn delete(&self, path: &str) -> Reply {
        self.send("DELETE", path, None)
    }

    /// A null body means no body.
    pub fn send(&self, method: &str, path: &str, body: Option<Value>) -> Reply {
        let body = body.filter(|body| !body.is_null()).map(|body| serde_json::to_vec(&body).unwrap());
        self.try_send(method, path, body.as_deref()).expect("an answer")
    }

    pub fn try_send(&self, method: &str, path: &str, body: Option<&[u8]>) -> Option<Reply> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        self.exchange(stream, method, path, body)
    }

    pub fn exchange(
        &self,
        mut stream: impl Read + Write,
        method: &str,
        path: &str,
        body: Option<&[u8]>,
    ) -> Option<Reply> {
        let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            request.push_str(&format!("Host: 127.0.0.1:{}\r\n", self.port));
        }
        for (name, value) in &self.headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = body {
            if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
                request.push_str("Content-Type: application/json\r\n");
            }
            request.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        request.push_str("\r\n");
        // A server that refuses a request need not read all of it.
        let _ = stream.write_all(request.as_bytes()).and_then(|()| stream.write_all(body.unwrap_or_default()));
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        parse(&bytes)
    }
}

fn parse(bytes: &[u8]) -> Option<Reply> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8(bytes[..end].to_vec()).ok()?;
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers: Vec<(String, String)> =
        lines.filter_map(|line| line.split_once(": ")).map(|(name, value)| (name.into(), value.into())).collect();
    let mut body = bytes[end + 4..].to_vec();
    let chunked =
        headers.iter().any(|(name, value)| name.eq_ignore_ascii_case("transfer-encoding") && value == "chunked");
    assert!(!chunked, "replies have a length");
    let length = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    if let Some((_, length)) = length {
        body.truncate(length.parse().ok()?);
    }
    Some(Reply { status, headers, body })
}

/// All bytes of files below a folder, by name.
pub fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
