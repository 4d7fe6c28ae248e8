//! Owns a server under test: one that it starts and stops, or an existing one that it leaves as it is. It also reads
//! the figures of the operating system about the server's process (resident size, processor time). Never knows the
//! load.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::net::{IpAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use super::info::{Info, Snapshot};
use super::wire::{Client, Endpoint};

/// Another process may take the free port before the server does.
const PORT_ATTEMPTS: usize = 5;
const READY_WITHIN: Duration = Duration::from_secs(15);
/// A server may write its dataset before it ends.
const STOPPED_WITHIN: Duration = Duration::from_secs(300);
/// The time limit of a restart, enough for a dataset of a hundred million keys.
const BACK_WITHIN: Duration = Duration::from_secs(600);
/// The precision with which a restart is measured.
const BACK_POLL: Duration = Duration::from_millis(2);
const LOG_TAIL_BYTES: usize = 2000;
/// The name of the log in a node's directory.
const LOG: &str = "server.log";
const FLASH: &str = "flash";

/// A program that becomes a server when it gets a port.
#[derive(Clone, Debug)]
pub struct Program {
    path: OsString,
    first: Vec<String>,
    directives: Vec<String>,
    /// Gets `--flash-path` in the scratch directory.
    flash: bool,
    password: Option<String>,
}

impl Program {
    /// This binary of FlintKV, run as a node. Without flash, all values stay in RAM, without a limit.
    pub fn flintkv(path: &Path) -> Program {
        let path = path.as_os_str().to_owned();
        // No console, because several nodes run side by side, and only the data path is measured.
        let first = ["server", "--console-port", "0"].map(String::from).to_vec();
        Program { path, first, directives: Vec::new(), flash: false, password: None }
    }

    /// redis-server from the PATH, without persistence, like FlintKV in [`Program::tiered`].
    pub fn redis() -> Program {
        let directives = ["--save", "", "--appendonly", "no"].map(String::from).to_vec();
        Program { path: OsString::from("redis-server"), first: Vec::new(), directives, flash: false, password: None }
    }

    /// Sets a directive, and replaces an earlier value.
    pub fn directive(mut self, name: &str, value: impl ToString) -> Program {
        let (name, value) = (format!("--{name}"), value.to_string());
        match self.directives.chunks_exact_mut(2).find(|pair| pair[0] == name) {
            Some(pair) => pair[1] = value,
            None => self.directives.extend([name, value]),
        }
        self
    }

    /// With flash, and without persistence, like the servers to which it is compared.
    pub fn tiered(mut self, memory_limit: u64, ram_limit: u64) -> Program {
        self.flash = true;
        self.directive("memory-limit", memory_limit).directive("ram-limit", ram_limit).directive("appendonly", "no")
    }

    pub fn password(mut self, password: &str) -> Program {
        self.password = Some(password.to_owned());
        self.directive("requirepass", password)
    }

    /// The command line for the report.
    pub fn shown(&self) -> String {
        let name = Path::new(&self.path).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut words = vec![name];
        words.extend(self.first.iter().cloned());
        words.extend(self.directives.iter().map(|word| if word.is_empty() { "\"\"".into() } else { word.clone() }));
        if self.flash {
            words.extend(["--flash-path".into(), "DIR".into()]);
        }
        let shown = words.join(" ");
        match &self.password {
            Some(password) => shown.replace(password, "***"),
            None => shown,
        }
    }

    /// Starts the program on a free loopback port, with a scratch directory under `base` for its log and flash.
    pub fn start(&self, base: &Path) -> Result<Node> {
        let scratch = tempfile::Builder::new().prefix("flintkv-").tempdir_in(base);
        let scratch = scratch.with_context(|| format!("no scratch directory in {}", base.display()))?;
        for _ in 0..PORT_ATTEMPTS {
            let port = free_port()?;
            let child = self.launch(scratch.path(), port)?;
            let endpoint = Endpoint { password: self.password.clone(), ..Endpoint::loopback(port) };
            let mut started = Started { child, scratch: None };
            if let Some(node) = started.ready(&endpoint)? {
                started.scratch = Some(scratch);
                return Ok(Node { started: Some(started), ..node });
            }
        }
        bail!("{} did not start:\n{}", self.shown(), log_tail(scratch.path()));
    }

    fn launch(&self, directory: &Path, port: u16) -> Result<Child> {
        let log = OpenOptions::new().create(true).append(true).open(directory.join(LOG))?;
        let mut command = Command::new(&self.path);
        command.args(&self.first).args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
        command.arg("--dir").arg(directory).args(&self.directives);
        if self.flash {
            command.arg("--flash-path").arg(directory.join(FLASH));
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        command.spawn().with_context(|| format!("cannot start {}", self.path.to_string_lossy()))
    }
}

/// The end of the log of the node in `directory`.
fn log_tail(directory: &Path) -> String {
    let log = fs::read(directory.join(LOG)).unwrap_or_default();
    String::from_utf8_lossy(&log[log.len().saturating_sub(LOG_TAIL_BYTES)..]).into_owned()
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0)).context("no free port")?.local_addr()?.port())
}

/// A child process. Dropping it ends the process.
struct Started {
    child: Child,
    scratch: Option<TempDir>,
}

impl Started {
    /// `None`: the process ended instead of answering.
    fn ready(&mut self, endpoint: &Endpoint) -> Result<Option<Node>> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            if self.child.try_wait()?.is_some() {
                return Ok(None);
            }
            if let Ok(mut client) = Client::connect(endpoint)
                && let Ok(info) = client.info()
                // Another process could have taken the port.
                && info.number::<u32>("process_id") == Some(self.child.id())
            {
                return Node::from_info(endpoint.clone(), client, &info).map(Some);
            }
            if Instant::now() > deadline {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Started {
    fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks the process to end. Returns whether it has.
    fn end(&mut self) -> bool {
        // Check first whether it runs: the id of an ended process may be reused.
        if self.runs()
            && let Some(pid) = rustix::process::Pid::from_raw(self.child.id() as i32)
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let deadline = Instant::now() + STOPPED_WITHIN;
        while self.runs() {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }
}

impl Drop for Started {
    /// Kills the process. Its dataset is not needed; if it were asked to end, it might spend time on writing the
    /// dataset.
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server that answers.
pub struct Node {
    pub endpoint: Endpoint,
    pub name: String,
    pub facts: Facts,
    /// The server's process, if it runs on this machine.
    pub process: Option<Process>,
    client: Client,
    started: Option<Started>,
}

/// The server's settings when first asked.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub ram_limit: Option<u64>,
    pub memory_limit: Option<u64>,
    pub flash_driver: Option<String>,
    pub flash_compression: Option<String>,
    pub workers: Option<u32>,
    /// The database of a cluster: so many shards, whichever node is asked.
    pub shards: Option<u32>,
    /// It is on this machine.
    pub is_local: bool,
}

impl Node {
    /// An existing server. Nothing but its statistics is changed.
    pub fn connect(endpoint: Endpoint) -> Result<Node> {
        let mut client = Client::connect(&endpoint)?;
        let info = client.info()?;
        Node::from_info(endpoint, client, &info)
    }

    fn from_info(endpoint: Endpoint, client: Client, info: &Info) -> Result<Node> {
        let host = endpoint.host.as_str();
        let is_local = host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
        let shards = info.number("shards");
        // Its figures are not those of all nodes of a cluster.
        let pid = info.number::<u32>("process_id").filter(|_| is_local && shards.is_none());
        let process = pid.map(Process).filter(|process| process.resident().is_some());
        let snapshot = Snapshot::of(info);
        let known = |name: &str| info.text(name).filter(|&value| value != "none").map(str::to_owned);
        let facts = Facts {
            ram_limit: snapshot.ram_limit,
            memory_limit: info.number("memory_limit").filter(|&limit: &u64| limit > 0),
            flash_driver: known("flash_driver"),
            flash_compression: snapshot.tiering.is_some().then(|| known("flash_compression")).flatten(),
            workers: info.number("io_threads"),
            shards,
            is_local,
        };
        Ok(Node { endpoint, name: info.server_name(), facts, process, client, started: None })
    }

    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    pub fn snapshot(&mut self) -> Result<Snapshot> {
        Ok(Snapshot::of(&self.client.info()?))
    }

    pub fn is_ours(&self) -> bool {
        self.started.is_some()
    }

    /// Kills the process at once, as a failure of its machine would.
    pub fn kill(&mut self) -> Result<()> {
        let started = self.ours()?;
        started.child.kill()?;
        started.child.wait()?;
        Ok(())
    }

    /// Ends the process as an operator does.
    pub fn stop(&mut self) -> Result<()> {
        ensure!(self.ours()?.end(), "the server does not stop within {STOPPED_WITHIN:?}");
        Ok(())
    }

    /// Starts the program again in the directory of the ended process, on the same port. Returns the time from the start of
    /// the process to its first answer to PING that is not LOADING.
    pub fn restart(&mut self, program: &Program) -> Result<Duration> {
        let endpoint = self.endpoint.clone();
        let started = self.ours()?;
        ensure!(!started.runs(), "the server still runs");
        let directory = started.scratch.as_ref().context("the server has no directory")?.path().to_owned();
        let begun = Instant::now();
        started.child = program.launch(&directory, endpoint.port)?;
        loop {
            if !started.runs() {
                bail!("{} did not start again:\n{}", program.shown(), log_tail(&directory));
            }
            if let Ok(mut client) = Client::connect(&endpoint)
                && client.call(&["PING"]).is_ok()
            {
                let took = begun.elapsed();
                let info = client.info()?;
                let (pid, own) = (info.number::<u32>("process_id"), started.child.id());
                ensure!(pid == Some(own), "another server has taken port {}", endpoint.port);
                let started = self.started.take();
                *self = Node { started, ..Node::from_info(endpoint, client, &info)? };
                return Ok(took);
            }
            ensure!(begun.elapsed() < BACK_WITHIN, "{} does not come back:\n{}", program.shown(), log_tail(&directory));
            std::thread::sleep(BACK_POLL);
        }
    }

    /// The `dir` of a server that was started here.
    pub fn directory(&self) -> Result<&Path> {
        let scratch = self.started.as_ref().and_then(|started| started.scratch.as_ref());
        Ok(scratch.context("this server was not started here")?.path())
    }

    /// The file with the values of a server that was started here.
    pub fn flash_file(&self) -> Result<PathBuf> {
        let directory = self.directory()?.join(FLASH);
        let mut paths = fs::read_dir(directory).context("no flash")?.filter_map(|entry| Some(entry.ok()?.path()));
        paths.find(|path| path.extension().is_some_and(|end| end == "log")).context("no file on flash")
    }

    fn ours(&mut self) -> Result<&mut Started> {
        self.started.as_mut().context("this server was not started here")
    }
}

/// A process of this machine, read through /proc.
#[derive(Clone, Copy, Debug)]
pub struct Process(pub u32);

impl Process {
    /// Resident bytes.
    pub fn resident(self) -> Option<u64> {
        self.statm(1)
    }

    /// Resident bytes that do not belong to a file and are not shared.
    pub fn private(self) -> Option<u64> {
        Some(self.statm(1)?.saturating_sub(self.statm(2)?))
    }

    fn statm(self, field: usize) -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{}/statm", self.0)).ok()?;
        let pages: u64 = text.split_ascii_whitespace().nth(field)?.parse().ok()?;
        Some(pages * rustix::param::page_size() as u64)
    }

    /// User and system time of all its threads so far.
    pub fn processor_seconds(self) -> Option<f64> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.0)).ok()?;
        let ticks = cpu_ticks(&text)?;
        Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    }

    /// Bytes that the process caused to be written to devices. `None`: the kernel does not tell.
    pub fn device_write_bytes(self) -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{}/io", self.0)).ok()?;
        text.lines().find_map(|line| line.strip_prefix("write_bytes: "))?.trim().parse().ok()
    }
}

/// utime + stime, fields 14 and 15. The name before them is in parentheses and may contain anything.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// A directory for flash: the given one, or the first on a device that accepts O_DIRECT, because flash behind the page cache is
/// RAM. A tmpfs is RAM too, and accepts O_DIRECT since Linux 6.6.
pub fn scratch_base(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(given) = given {
        fs::create_dir_all(given).with_context(|| format!("cannot make {}", given.display()))?;
        return Ok(given.to_owned());
    }
    let candidates = [std::env::temp_dir(), PathBuf::from("/var/tmp"), std::env::current_dir()?];
    if let Some(good) = candidates.iter().find(|directory| !is_ram(directory) && takes_direct_io(directory)) {
        return Ok(good.clone());
    }
    let [first, ..] = candidates;
    eprintln!(
        "warning: flash in {} is RAM or goes through the page cache: figures will differ (see --dir)",
        first.display()
    );
    Ok(first)
}

fn is_ram(directory: &Path) -> bool {
    const TMPFS: rustix::fs::FsWord = 0x0102_1994;
    rustix::fs::statfs(directory).is_ok_and(|found| found.f_type == TMPFS)
}

fn takes_direct_io(directory: &Path) -> bool {
    let Ok(probe) = tempfile::Builder::new().prefix("flintkv-probe-").tempdir_in(directory) else { return false };
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).custom_flags(libc::O_DIRECT);
    options.open(probe.path().join("probe")).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_behind_any_name() {
        let stat = "42 (a) name 7 7) S 1 42 42 0 -1 4194560 900 0 0 0 130 25 0 0 20 0 9 0 1000 0 0";
        assert_eq!(cpu_ticks(stat), Some(155));
        assert_eq!(cpu_ticks("42 (short) S 1"), None);
    }

    /// A tmpfs must be refused, because only RAM would be measured on it.
    #[test]
    fn a_tmpfs_is_no_place_for_flash() {
        assert!(!is_ram(Path::new("/proc")) && !is_ram(Path::new("/no/such")));
        // Every Linux with POSIX shared memory has this tmpfs.
        if Path::new("/dev/shm").exists() {
            assert!(is_ram(Path::new("/dev/shm")));
        }
    }

    #[test]
    fn this_process_has_a_size_and_a_time() {
        let me = Process(std::process::id());
        assert!(me.resident().expect("statm") > 100_000);
        assert!(me.private() > Some(10_000) && me.private() < me.resident());
        assert!(me.processor_seconds().expect("stat") >= 0.0);
        assert!(Process(u32::MAX).resident().is_none());
    }

    #[test]
    fn the_last_value_of_a_directive_counts() {
        let program = Program::redis().directive("appendonly", "yes").directive("appendfsync", "always");
        assert_eq!(program.shown(), "redis-server --save \"\" --appendonly yes --appendfsync always");
    }

    #[test]
    fn passwords_are_not_shown() {
        let program = Program::redis().password("geheim").directive("port", 1);
        assert_eq!(program.shown(), "redis-server --save \"\" --appendonly no --requirepass *** --port 1");
    }
}
