//! Owns the process of a node, from start to end. Never knows the commands.

use crate::{Client, TIMEOUT, binary, eventually, free_port};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, Read, Write};
use std::marker::PhantomData;
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The program that runs as a node.
pub trait Program {
    /// The test of the running program that becomes a node with [`words_of_node`]. `None`: the real binary.
    const TEST: Option<&'static str>;
    /// The default directives of a node.
    const USUAL: &'static [(&'static str, &'static str)];
}

/// The real binary, with flash: 1 GB, of which only written blocks take space.
pub struct Binary;

impl Program for Binary {
    const TEST: Option<&'static str> = None;
    const USUAL: &'static [(&'static str, &'static str)] =
        &[("memory-limit", "1gb"), ("ram-limit", "512mb"), ("flash-path", "flash")];
}

pub type Node = Process<Binary>;

/// A node in a process and a folder of its own. Dropping it ends the process.
pub struct Process<P: Program> {
    pub port: u16,
    /// The process's working directory, and so its `dir`, unless the test sets another.
    pub dir: Arc<TempDir>,
    child: Child,
    stdin: Option<ChildStdin>,
    program: PhantomData<P>,
}

/// The environment variable that makes a test process run as a node: the words of its configuration, one per line.
const WORDS: &str = "FLINTKV_TEST_DIRECTIVES";
/// The file for everything that the process prints.
const LOG: &str = "node.log";
/// The socket of a test that acts as the node's service manager.
pub const MANAGER: &str = "notify";

/// For the test that [`Program::TEST`] names. In a process that is to run as a node, returns the words of its
/// configuration. The process ends when the test that started it ends, because its pipe closes. `told` gets the lines of
/// [`Process::tell`].
pub fn words_of_node(mut told: impl FnMut(String) + Send + 'static) -> Option<Vec<String>> {
    let words = std::env::var(WORDS).ok()?;
    std::thread::spawn(move || {
        std::io::stdin().lock().lines().map_while(Result::ok).for_each(&mut told);
        std::process::exit(0);
    });
    Some(words.lines().map(str::to_owned).collect())
}

fn folder() -> Arc<TempDir> {
    Arc::new(tempfile::Builder::new().prefix("flintkv-test-").tempdir().expect("a folder"))
}

impl<P: Program> Process<P> {
    pub fn start(directives: &[(&str, &str)]) -> Self {
        Self::start_in(&folder(), None, directives)
    }

    /// With a configuration file, whose directives may be overridden.
    pub fn start_with_file(file: &Path, directives: &[(&str, &str)]) -> Self {
        Self::start_in(&folder(), Some(file), directives)
    }

    /// Starts a node in an existing folder, for example that of a node that has ended.
    pub fn start_in(dir: &Arc<TempDir>, file: Option<&Path>, directives: &[(&str, &str)]) -> Self {
        // Another process may take the free port first. Then try the next one.
        let mut refused = String::new();
        for _ in 0..5 {
            match Self::spawn(free_port(), dir, file, directives).ready() {
                Ok(node) => return node,
                Err(said) => refused = said,
            }
        }
        panic!("the node does not start: {refused}");
    }

    /// The error is the text that the node printed before it ended.
    pub fn try_start(port: u16, directives: &[(&str, &str)]) -> Result<Self, String> {
        Self::spawn(port, &folder(), None, directives).ready()
    }

    /// Starts a node that is expected to refuse to start; its port may be in use. Returns what it printed, or its exit
    /// status.
    pub fn try_start_alone(port: u16, directives: &[(&str, &str)]) -> Result<ExitStatus, String> {
        let mut node = Self::spawn(port, &folder(), None, directives);
        let status = node.ended();
        if status.success() { Ok(status) } else { Err(node.log()) }
    }

    fn spawn(port: u16, dir: &Arc<TempDir>, file: Option<&Path>, directives: &[(&str, &str)]) -> Self {
        let port_text = port.to_string();
        let usual = [
            ("port", port_text.as_str()),
            ("bind", "127.0.0.1"),
            ("io-threads", "2"),
            // No console, because many nodes run at the same time.
            ("console-port", "0"),
            // Set explicitly, because with flash the default is yes.
            ("appendonly", "no"),
        ];
        let given = |name: &str| directives.iter().any(|&(given, _)| given == name);
        let usual = usual.iter().chain(P::USUAL).filter(|(name, _)| !given(name));
        let mut words: Vec<String> = file.iter().map(|file| file.display().to_string()).collect();
        words.extend(usual.chain(directives).flat_map(|(name, value)| [format!("--{name}"), (*value).to_owned()]));
        let mut command;
        if let Some(test) = P::TEST {
            command = Command::new(std::env::current_exe().expect("a path"));
            command.args([test, "--exact", "--nocapture"]).env(WORDS, words.join("\n") + "\n").stdin(Stdio::piped());
        } else {
            command = Command::new(binary());
            command.arg("server").args(words).stdin(Stdio::null());
        }
        // If the test listens on this socket, it acts as the node's service manager.
        let manager = dir.path().join(MANAGER);
        if manager.exists() {
            command.env("NOTIFY_SOCKET", manager);
        }
        // A file, because a pipe that is not read while the node runs would fill up and block it.
        let log = fs::File::options().create(true).append(true).open(dir.path().join(LOG)).expect("a file");
        command.current_dir(dir.path()).stdout(log.try_clone().expect("a file")).stderr(log);
        let mut child = command.spawn().expect("the program runs");
        let stdin = child.stdin.take();
        Process { port, dir: Arc::clone(dir), child, stdin, program: PhantomData }
    }

    fn ready(mut self) -> Result<Self, String> {
        let deadline = Instant::now() + TIMEOUT;
        let port = self.port;
        let is_there = || {
            let Ok(probe) = TcpStream::connect(("127.0.0.1", port)) else { return false };
            // Wait until the node has closed the connection, so that it no longer counts it as a client.
            let _ = probe.shutdown(Shutdown::Write);
            Client::new(probe).rest();
            true
        };
        // Checked twice: a node that is about to exit resets the first connection, and the second one is refused.
        while !(is_there() && is_there()) {
            if self.has_ended().is_some() {
                return Err(self.log());
            }
            assert!(Instant::now() < deadline, "the node does not start: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(self)
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.port)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn resident_bytes(&self) -> u64 {
        resident_bytes(self.pid())
    }

    /// Gives the node RAM for itself and `bytes` of objects, so that nearly everything else is cold.
    pub fn limit_objects(&self, bytes: u64) {
        let mut client = self.connect();
        let limit = self.resident_bytes() + bytes;
        assert_eq!(client.run(&format!("CONFIG SET ram-limit {limit}")), "OK");
    }

    /// What the node has printed so far: its log, without a `logfile`.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.dir.path().join(LOG)).unwrap_or_default()).into_owned()
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
        // Show what has arrived so far, even after an error.
        let _ = stream.read_to_end(&mut text);
        Some(String::from_utf8_lossy(&text).into_owned())
    }

    /// Sends a line to a node that is a test process.
    pub fn tell(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("a test process");
        writeln!(stdin, "{line}").expect("the node listens");
    }

    /// Sends a signal by its number.
    pub fn signal(&self, signal: i32) {
        let signal = Signal::from_named_raw(signal).expect("a signal");
        kill_process(Pid::from_child(&self.child), signal).expect("the node lives");
    }

    pub fn terminate(&self) {
        self.signal(Signal::TERM.as_raw());
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

impl<P: Program> Drop for Process<P> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the node's log:\n{}{}", self.log(), self.figures().unwrap_or_default());
        }
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn resident_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).expect("the process lives");
    let pages: u64 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}
