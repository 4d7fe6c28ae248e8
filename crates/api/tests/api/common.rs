//! A node with a console in a process of its own, and a client that speaks HTTP.

use config::ConfigStore;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

pub use serde_json::json;

/// The environment variable that makes a test process a node: its directives, one word per line.
const DIRECTIVES: &str = "FLINTKV_TEST_DIRECTIVES";
/// Longer than any step takes on a busy machine. Reaching it is a failure.
pub const PATIENCE: Duration = Duration::from_secs(60);
pub const PASSWORD: &str = "a word for tests";

/// A file in the node's directory that says how far the test's clock is ahead.
const CLOCK: &str = "test-clock";

/// Not a test: [`Node::start`] runs this in a process of its own. It ends with the test, whose end of the pipe closes.
#[test]
fn node_process() {
    let Ok(directives) = std::env::var(DIRECTIVES) else { return };
    static AHEAD_MS: AtomicU64 = AtomicU64::new(0);
    let folder = directives.lines().skip_while(|word| *word != "--dir").nth(1).expect("every node has one").to_owned();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            // How far the console's clock is ahead. The test waits until the file has this value.
            let line = line.unwrap();
            AHEAD_MS.store(line.parse().unwrap(), Relaxed);
            std::fs::write(Path::new(&folder).join(CLOCK), line).unwrap();
        }
        std::process::exit(0);
    });
    let args: Vec<String> = directives.lines().map(str::to_owned).collect();
    let config = ConfigStore::from_args(&args).expect("the test's directives are right");
    let program = std::env::current_exe().unwrap().into_os_string();
    let scenario = [program.to_str().unwrap(), "common::scenario_process", "--exact", "--nocapture", "--"];
    let options = || api::Options {
        now_ms: Box::new(|| now_ms() + AHEAD_MS.load(Relaxed)),
        scenario: scenario.iter().map(Into::into).collect(),
    };
    node::run(Arc::new(config), |node| api::start_with(node, options())).expect("the node starts");
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

pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

pub fn free_port() -> u16 {
    /// Never the same port twice in a process, and far from the ports that the system gives to clients.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let port = 20_000 + (std::process::id() * 37 + NEXT.fetch_add(1, Relaxed) * 3) % 10_000;
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port as u16)) {
            return listener.local_addr().unwrap().port();
        }
    }
}

pub struct Node {
    pub port: u16,
    pub console: u16,
    child: Child,
    stdin: Option<ChildStdin>,
    folder: Arc<TempDir>,
}

impl Node {
    pub fn start(directives: &[(&str, &str)]) -> Node {
        Node::start_in(Arc::new(tempfile::tempdir().unwrap()), directives)
    }

    pub fn start_in(folder: Arc<TempDir>, directives: &[(&str, &str)]) -> Node {
        // Another process may take a free port first. Then try the next one.
        (0..5).find_map(|_| Node::launch(&folder, directives, true).ok()).expect("a node starts")
    }

    /// The caller waits for the console.
    pub fn start_tls(folder: Arc<TempDir>, cert: &Path, key: &Path) -> Node {
        let files = [("console-tls-cert-file", cert), ("console-tls-key-file", key)];
        let directives = files.map(|(name, path)| (name, path.to_str().unwrap()));
        Node::launch(&folder, &directives, false).unwrap()
    }

    fn launch(folder: &Arc<TempDir>, directives: &[(&str, &str)], waits: bool) -> Result<Node, String> {
        let (port, console) = (free_port(), free_port());
        let mut text = String::new();
        for (name, value) in [
            ("port", port.to_string().as_str()),
            ("bind", "127.0.0.1"),
            ("io-threads", "1"),
            ("dir", folder.path().to_str().unwrap()),
            ("console-port", &console.to_string()),
            ("console-bind", "127.0.0.1"),
            ("console-password", PASSWORD),
        ]
        .iter()
        .chain(directives)
        {
            text.push_str(&format!("--{name}\n{value}\n"));
        }
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["common::node_process", "--exact", "--nocapture"])
            .env(DIRECTIVES, text)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().unwrap();
        let mut node = Node { port, console, child, stdin, folder: Arc::clone(folder) };
        // Nobody reads the node's log, and a full pipe must not block the node.
        let said = std::thread::spawn(move || {
            let mut said = String::new();
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if said.len() < 100_000 {
                    said.push_str(&line);
                    said.push('\n');
                }
            }
            said
        });
        let deadline = Instant::now() + PATIENCE;
        while waits && node.client().try_send("GET", "/health/ready", None).is_none_or(|reply| reply.status != 200) {
            if node.child.try_wait().unwrap().is_some() {
                return Err(said.join().unwrap());
            }
            assert!(Instant::now() < deadline, "the node does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(node)
    }

    pub fn folder(&self) -> Arc<TempDir> {
        Arc::clone(&self.folder)
    }

    pub fn state_dir(&self) -> std::path::PathBuf {
        self.folder.path().join("flintkv-state")
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
        let stdin = self.stdin.as_mut().unwrap();
        writeln!(stdin, "{ms}").unwrap();
        stdin.flush().unwrap();
        let file = self.folder.path().join(CLOCK);
        until("the clock to move", || (std::fs::read_to_string(&file).ok()? == ms.to_string()).then_some(()));
    }

    /// Sends SIGTERM and waits for the end.
    pub fn stop(mut self) {
        // SAFETY: sends a signal to a child that was not waited for yet, so the id is still the child's.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) }, 0);
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "the node does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Runs one command over the database's own port.
    pub fn command(&self, port: u16, args: &[&str]) -> resp::client::Value {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
        let mut bytes = Vec::new();
        resp::client::encode_command(&args, &mut bytes);
        stream.write_all(&bytes).unwrap();
        let mut received = Vec::new();
        loop {
            if let Some((value, _)) = resp::client::parse_value(&received).unwrap() {
                return value;
            }
            let mut chunk = [0; 4096];
            let read = stream.read(&mut chunk).unwrap();
            assert!(read > 0, "the connection was closed");
            received.extend(&chunk[..read]);
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The node may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks until `ask` returns a value.
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
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
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
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
