//! Owns the processes that tests use, from start to end. Never knows the commands.

use crate::{Client, PATIENCE, eventually};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The binary under test. Cargo does not build another package's binary for a test, so this builds it once.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(named) = std::env::var_os("FLINTKV") {
            let named = PathBuf::from(named);
            assert!(named.is_file(), "FLINTKV names no binary: {}", named.display());
            return named;
        }
        // target/PROFILE/deps/this-test
        let test = std::env::current_exe().expect("a path");
        let profile_dir = test.parent().and_then(Path::parent).expect("cargo's layout");
        let target_dir = profile_dir.parent().expect("cargo's layout");
        let profile = match profile_dir.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(name) => name,
        };
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = Command::new(cargo)
            .args(["build", "--quiet", "-p", "flintkv", "--profile", profile, "--target-dir"])
            .arg(target_dir)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .stdin(Stdio::null())
            .status()
            .expect("cargo runs");
        assert!(built.success(), "cargo build -p flintkv failed: {built}");
        profile_dir.join("flintkv")
    })
}

/// A program of Debian's redis-server and redis-tools packages.
pub fn tool(name: &str) -> Command {
    let found =
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).any(|dir| dir.join(name).is_file());
    assert!(found, "{name} is missing: apt-get install redis-server redis-tools");
    let mut command = Command::new(name);
    command.stdin(Stdio::null());
    command
}

pub fn free_port() -> u16 {
    // Each port is used once: a port that was released may go to another test before its node listens. The ports are
    // below those that the system gives to clients.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let port = 10_000 + (std::process::id() * 97 + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        if TcpListener::bind(("127.0.0.1", port as u16)).is_ok() {
            return port as u16;
        }
    }
}

pub fn resident_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).expect("the process lives");
    let pages: u64 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

/// A FlintKV node with its own directory for flash and log. Dropping it ends the node.
pub struct Node {
    pub port: u16,
    pub dir: TempDir,
    child: Child,
}

impl Node {
    /// A node with flash: 1 GB, of which only written blocks take space, or as the directives say.
    pub fn start(directives: &[(&str, &str)]) -> Node {
        // Another process may take the free port first. Then try the next one.
        let mut refused = String::new();
        for _ in 0..5 {
            match Node::try_start(free_port(), directives) {
                Ok(node) => return node,
                Err(said) => refused = said,
            }
        }
        panic!("the node does not start: {refused}");
    }

    /// An error is what the node printed and logged before it ended.
    pub fn try_start(port: u16, directives: &[(&str, &str)]) -> Result<Node, String> {
        let dir = tempfile::Builder::new().prefix("flintkv-test-").tempdir().expect("a directory");
        let child = spawn(port, dir.path(), directives);
        let mut node = Node { port, dir, child };
        node.await_ready().map(|()| node)
    }

    /// Starts a node that is expected to refuse. Returns what it printed, or how it ended otherwise.
    pub fn try_start_alone(port: u16, directives: &[(&str, &str)]) -> Result<ExitStatus, String> {
        let dir = tempfile::Builder::new().prefix("flintkv-test-").tempdir().expect("a directory");
        let child = spawn(port, dir.path(), directives);
        let mut node = Node { port, dir, child };
        let status = node.ended();
        let mut said = String::new();
        let _ = node.child.stderr.take().unwrap().read_to_string(&mut said);
        if status.success() { Ok(status) } else { Err(said + &node.log()) }
    }

    fn await_ready(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            if self.child.try_wait().unwrap().is_some() {
                let mut said = String::new();
                let _ = self.child.stderr.take().unwrap().read_to_string(&mut said);
                return Err(said + &self.log());
            }
            assert!(Instant::now() < deadline, "the node does not start: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Gives the node RAM for itself and `bytes` of objects, so that nearly everything else is cold.
    pub fn limit_objects(&self, bytes: u64) {
        let mut client = self.client();
        let limit = self.resident_bytes() + bytes;
        assert_eq!(client.run(&format!("CONFIG SET ram-limit {limit}")), "OK");
    }

    pub fn client(&self) -> Client {
        Client::connect(self.port)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn resident_bytes(&self) -> u64 {
        resident_bytes(self.pid())
    }

    /// The node's log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("node.log")).unwrap_or_default()
    }

    /// The file of the cold values.
    pub fn flash_file(&self) -> PathBuf {
        self.dir.path().join("flash").join(format!("flintkv-{}.log", self.port))
    }

    /// INFO's tiering section, if the node still answers.
    fn figures(&self) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
        stream.write_all(b"INFO tiering\r\nQUIT\r\n").ok()?;
        let mut text = Vec::new();
        // What has arrived so far is worth showing.
        let _ = stream.read_to_end(&mut text);
        Some(String::from_utf8_lossy(&text).into_owned())
    }

    pub fn terminate(&self) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).expect("the node lives");
    }

    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for the process to end by itself.
    pub fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("the node ends", || {
            status = self.has_ended();
            status.is_some()
        });
        status.unwrap()
    }
}

fn spawn(port: u16, dir: &Path, directives: &[(&str, &str)]) -> Child {
    let port = port.to_string();
    let flash = dir.join("flash");
    let defaults = [
        ("port", port.as_str()),
        ("bind", "127.0.0.1"),
        ("io-threads", "2"),
        // Many nodes run at the same time.
        ("console-port", "0"),
        ("dir", dir.to_str().unwrap()),
        ("logfile", "node.log"),
        ("memory-limit", "1gb"),
        ("ram-limit", "512mb"),
        ("flash-path", flash.to_str().unwrap()),
    ];
    let mut command = Command::new(binary());
    command.arg("server");
    let given = |name: &str| directives.iter().any(|&(given, _)| given == name);
    for (name, value) in defaults.iter().filter(|(name, _)| !given(name)).chain(directives) {
        command.arg(format!("--{name}"));
        // Some directives take several words.
        command.args(if value.is_empty() { vec![""] } else { value.split(' ').collect() });
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().expect("the binary runs")
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the node's log:\n{}{}", self.log(), self.figures().unwrap_or_default());
        }
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A real Redis without persistence. Dropping it ends it.
pub struct Redis {
    pub port: u16,
    _dir: TempDir,
    child: Child,
}

impl Redis {
    pub fn start(directives: &[&str]) -> Redis {
        for _ in 0..5 {
            let port = free_port();
            let dir = tempfile::Builder::new().prefix("flintkv-test-").tempdir().expect("a directory");
            let child = tool("redis-server")
                .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"])
                .arg(dir.path())
                .args(directives)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("redis-server runs");
            let mut redis = Redis { port, _dir: dir, child };
            let deadline = Instant::now() + PATIENCE;
            while redis.child.try_wait().unwrap().is_none() {
                if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                    return redis;
                }
                assert!(Instant::now() < deadline, "redis-server does not start");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        panic!("redis-server does not start");
    }

    pub fn client(&self) -> Client {
        Client::connect(self.port)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
