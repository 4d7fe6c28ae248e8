//! Owns the messages to the service manager (systemd's sd_notify): the node is ready, it stops, it is alive. Never
//! knows what a node does.

use crate::ready::Loading;
use config::Supervised;
use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use std::{env, io, process};

/// The connection to the service manager. Without a manager, nothing is sent.
pub struct Supervisor {
    socket: Option<UnixDatagram>,
    /// How often the manager expects a sign of life.
    watchdog: Option<Watchdog>,
    /// When the manager was told last how far the loading is, and the steps by then.
    told: Option<(Instant, u64)>,
    /// When the manager was told last what the end waits for.
    told_end: Option<Instant>,
}

/// How often the manager hears of the loading.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// How long the manager waits for the next progress. A step may be the reading of one long piece of a slow file.
const START_TIMEOUT: Duration = Duration::from_secs(300);
/// How long the manager waits for the node's end after the last word of what it waits for.
const END_TIMEOUT: Duration = Duration::from_secs(60);

struct Watchdog {
    every: Duration,
    last: Option<Instant>,
}

/// Whether the manager gets messages. INFO of every database shows this.
static TOLD: AtomicBool = AtomicBool::new(false);

pub fn manager() -> &'static str {
    if TOLD.load(Relaxed) { "systemd" } else { "no" }
}

/// Whether this process was started by a manager that the configuration wants to notify.
pub fn is_supervised(wanted: Supervised) -> bool {
    matches!(wanted, Supervised::Systemd | Supervised::Auto)
        && env::var_os("NOTIFY_SOCKET").is_some_and(|address| !address.is_empty())
}

impl Supervisor {
    /// Connects as the `supervised` directive and the environment say. Logs what is missing.
    pub fn find(wanted: Supervised) -> Self {
        let silent = Supervisor { socket: None, watchdog: None, told: None, told_end: None };
        match wanted {
            _ if is_supervised(wanted) => {}
            Supervised::Systemd => {
                tracing::warn!(
                    "supervised systemd, but NOTIFY_SOCKET is not set: systemd will not be notified that the node is ready"
                );
                return silent;
            }
            Supervised::Upstart => {
                tracing::warn!("supervised upstart has no effect; use systemd or auto");
                return silent;
            }
            Supervised::Auto | Supervised::No => return silent,
        }
        let address = env::var_os("NOTIFY_SOCKET").unwrap_or_default();
        match Supervisor::connect(&address, watchdog_interval()) {
            Ok(supervisor) => {
                TOLD.store(true, Relaxed);
                supervisor
            }
            Err(error) => {
                tracing::warn!("cannot reach the service manager at {}: {error}", address.display());
                silent
            }
        }
    }

    pub(crate) fn connect(address: &OsStr, watchdog: Option<Duration>) -> io::Result<Self> {
        let address = match address.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(address)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        // A manager that does not read must not block the clock.
        socket.set_nonblocking(true)?;
        // Twice per interval, as sd_watchdog_enabled(3) recommends.
        Ok(Supervisor {
            socket: Some(socket),
            watchdog: watchdog.map(|interval| Watchdog { every: interval / 2, last: None }),
            told: None,
            told_end: None,
        })
    }

    /// Called from the clock until the node is ready. While the loading makes progress, the manager's time limit for the start
    /// (`TimeoutStartSec`) is extended.
    pub fn loading(&mut self, loading: &Loading, now: Instant) {
        let progress = match self.told {
            Some((at, _)) if now.duration_since(at) < TELL_EVERY => return,
            Some((_, steps)) => steps != loading.steps,
            None => true,
        };
        // Without progress, the last extension runs out.
        let extension = match progress {
            true => format!("EXTEND_TIMEOUT_USEC={}\n", START_TIMEOUT.as_micros()),
            false => String::new(),
        };
        self.told = Some((now, loading.steps));
        self.say(&format!("{extension}STATUS=Not ready: {loading}"));
    }

    /// Call this when every listener is open, the workers run and the datasets are loaded.
    pub fn ready(&self) {
        self.say("READY=1\nSTATUS=Ready to accept connections");
    }

    /// Called from the clock while the end of the node waits for something, which has its own limit of time: meanwhile the manager's
    /// (`TimeoutStopSec`) does not count.
    pub fn ending(&mut self, waits: &str, now: Instant) {
        if self.told_end.is_some_and(|at| now.duration_since(at) < TELL_EVERY) {
            return;
        }
        self.told_end = Some(now);
        self.say(&format!("EXTEND_TIMEOUT_USEC={}\nSTATUS=Stopping: {waits}", END_TIMEOUT.as_micros()));
    }

    pub fn stopping(&self) {
        self.say("STOPPING=1\nSTATUS=Stopping");
    }

    /// The process goes on with its program begun anew, which says when it is ready.
    pub fn beginning_anew(&self) {
        self.say("RELOADING=1\nSTATUS=Begins anew");
    }

    /// Called from the clock. If the clock stops, the manager gets no sign of life and ends the node.
    pub fn alive(&mut self, now: Instant) {
        let Some(watchdog) = &mut self.watchdog else { return };
        if watchdog.last.is_none_or(|last| now.duration_since(last) >= watchdog.every) {
            watchdog.last = Some(now);
            self.say("WATCHDOG=1");
        }
    }

    fn say(&self, state: &str) {
        if let Some(Err(error)) = self.socket.as_ref().map(|socket| socket.send(state.as_bytes())) {
            tracing::warn!("the service manager could not be notified of '{}': {error}", state.replace('\n', ", "));
        }
    }
}

/// `WatchdogSec` of the unit, if the watched process is this one.
fn watchdog_interval() -> Option<Duration> {
    let number = |name| env::var(name).ok()?.parse::<u64>().ok();
    if env::var_os("WATCHDOG_PID").is_some() && number("WATCHDOG_PID") != Some(process::id().into()) {
        return None;
    }
    number("WATCHDOG_USEC").filter(|&us| us > 0).map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(socket: &UnixDatagram) -> Option<String> {
        let mut bytes = [0; 200];
        let got = socket.recv(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..got]).into_owned())
    }

    #[test]
    fn the_manager_is_told_ready_alive_and_stopping() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("a socket");
        manager.set_nonblocking(true).expect("does not wait");
        let mut supervisor =
            Supervisor::connect(path.as_os_str(), Some(Duration::from_secs(10))).expect("the manager listens");
        supervisor.ready();
        assert_eq!(heard(&manager).as_deref(), Some("READY=1\nSTATUS=Ready to accept connections"));

        let start = Instant::now();
        for (after_ms, word) in [(0, Some("WATCHDOG=1")), (4_999, None), (5_000, Some("WATCHDOG=1")), (9_999, None)] {
            supervisor.alive(start + Duration::from_millis(after_ms));
            assert_eq!(heard(&manager).as_deref(), word, "{after_ms} ms after the start");
        }
        supervisor.stopping();
        assert_eq!(heard(&manager).as_deref(), Some("STOPPING=1\nSTATUS=Stopping"));
    }

    #[test]
    fn a_start_that_makes_progress_gets_more_time_and_one_that_does_not_gets_none() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("a socket");
        manager.set_nonblocking(true).expect("does not wait");
        let mut supervisor = Supervisor::connect(path.as_os_str(), None).expect("the manager listens");
        let start = Instant::now();
        let mut told = |after_ms, steps| {
            let loading = Loading { databases: vec!["orders".into()], done_bytes: steps, total_bytes: 100, steps };
            supervisor.loading(&loading, start + Duration::from_millis(after_ms));
            heard(&manager)
        };
        let more =
            |percent| Some(format!("EXTEND_TIMEOUT_USEC=300000000\nSTATUS=Not ready: loading orders: {percent} %"));
        assert_eq!(told(0, 0), more(0));
        assert_eq!(told(999, 10), None, "once a second is enough");
        assert_eq!(told(1_000, 12), more(12));
        assert_eq!(told(2_000, 12).as_deref(), Some("STATUS=Not ready: loading orders: 12 %"), "no progress");
        assert_eq!(told(3_000, 50), more(50));
    }

    #[test]
    fn an_end_that_waits_gets_more_time() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("a socket");
        manager.set_nonblocking(true).expect("does not wait");
        let mut supervisor = Supervisor::connect(path.as_os_str(), None).expect("the manager listens");
        let start = Instant::now();
        let mut told = |after_ms| {
            supervisor.ending("checkpoints are written", start + Duration::from_millis(after_ms));
            heard(&manager)
        };
        let more = Some("EXTEND_TIMEOUT_USEC=60000000\nSTATUS=Stopping: checkpoints are written".to_owned());
        assert_eq!(told(0), more);
        assert_eq!(told(999), None, "once a second is enough");
        assert_eq!(told(1_000), more);
    }

    #[test]
    fn an_abstract_socket_address_works() {
        let name = format!("flintkv-supervise-{}", process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a short name");
        let manager = UnixDatagram::bind_addr(&address).expect("a socket");
        manager.set_nonblocking(true).expect("does not wait");
        let mut supervisor = Supervisor::connect(OsStr::new(&format!("@{name}")), None).expect("the manager listens");
        supervisor.alive(Instant::now());
        assert_eq!(heard(&manager), None, "no watchdog was asked for");
        supervisor.ready();
        assert!(heard(&manager).is_some_and(|state| state.starts_with("READY=1\n")));
    }

    #[test]
    fn a_missing_manager_is_an_error() {
        assert!(Supervisor::connect(OsStr::new("/no/such/socket"), None).is_err());
    }
}
