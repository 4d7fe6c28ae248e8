//! Owns the state that all requests share. Never knows a single request.

use crate::alerts::Alerts;
use crate::analysis::Analyses;
use crate::auth::sessions::Sessions;
use crate::auth::shared::{Records, Shared};
use crate::auth::sign_on::SignOn;
use crate::auth::tries::Tries;
use crate::auth::users::Users;
use crate::benchmarks::Benchmarks;
use crate::clock::Clock;
use crate::events::{Audited, Event, Events};
use crate::following::Following;
use crate::lines::Lines;
use crate::metrics::watch::Watch;
use crate::surveys::Surveys;
use crate::terminals::Terminals;
use agent::Agent;
use base::clock::wall_ms;
use config::Secret;
use node::Node;
use node::lock::{self, Refused};
use parking_lot::Mutex;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// The audit log is rotated once at this size.
const AUDIT_BYTES_MAX: u64 = 16 << 20;
/// This file exists while the node runs.
const RUNNING: &str = "running";
const EVENTS_BYTES_MAX: u64 = 4 << 20;

/// Settings for tests and embedders.
pub struct Options {
    pub now_ms: Clock,
    /// What the node does for its cluster; `None`: it cannot be a member of one.
    pub agent: Option<Arc<Agent>>,
    /// The program that runs `flintkv scenario`, and its first arguments.
    pub scenario: Vec<OsString>,
}

impl Default for Options {
    fn default() -> Options {
        let program = std::env::current_exe().map_or_else(|_| "flintkv".into(), PathBuf::into_os_string);
        Options { now_ms: Arc::new(wall_ms), agent: None, scenario: vec![program, "scenario".into()] }
    }
}

pub struct App {
    pub node: Arc<Node>,
    pub agent: Option<Arc<Agent>>,
    pub now_ms: Clock,
    pub users: Users,
    pub sign_on: SignOn,
    pub tries: Mutex<Tries>,
    /// Logins in progress.
    pub logins: AtomicUsize,
    pub audit: Mutex<Lines<Audited>>,
    pub events: Events,
    pub watch: Arc<Watch>,
    pub alerts: Alerts,
    pub following: Following,
    pub benchmarks: Benchmarks,
    pub analyses: Analyses,
    pub surveys: Surveys,
    pub terminals: Terminals,
    pub console_tls: bool,
    /// The last run of the node did not end in an orderly way.
    pub has_crashed: bool,
    /// /metrics needs no login.
    pub metrics_open: bool,
    /// While it is open, no other node writes into the folder.
    _lock: File,
}

impl App {
    /// Reads the files on disk. Also returns the first administrator's password if it was generated just now.
    pub fn open(node: Arc<Node>, options: Options, console_tls: bool) -> io::Result<(App, Option<String>)> {
        let folder = node.state_dir();
        let lock = own(folder)
            .map_err(|error| io::Error::new(error.kind(), format!("state-dir {}: {error}", folder.display())))?;
        let file = |name: &str| Some(folder.join(name));
        let mark = folder.join(RUNNING);
        let has_crashed = mark.exists();
        File::create(&mark)?;
        let settings = node.config().snapshot().console.clone();
        let now_ms = (options.now_ms)();
        // The configuration accepts only text as this value.
        let given = settings.password.as_ref().map(Secret::expose).and_then(|given| std::str::from_utf8(given).ok());
        let records = options.agent.clone().map(|agent| agent as Arc<dyn Records>);
        let shared = Arc::new(Shared::open(records, file("console-of-cluster.json")));
        let (users, made_up) = Users::open(file("users.json"), given, Arc::clone(&shared), now_ms)?;
        let events = Events::new(Lines::open(file("events.jsonl"), EVENTS_BYTES_MAX)?, Arc::clone(&options.now_ms));
        let watch = Arc::new(Watch::open(file("history"), &node, now_ms)?);
        let app = App {
            users,
            sign_on: SignOn::new(Sessions::open(folder.join("sessions.json"), now_ms)?, shared),
            tries: Mutex::default(),
            logins: AtomicUsize::new(0),
            audit: Mutex::new(Lines::open(file("audit.jsonl"), AUDIT_BYTES_MAX)?),
            events,
            alerts: Alerts::open(file("alerts.json"), &node, now_ms)?,
            following: Following::default(),
            benchmarks: Benchmarks::new(options.scenario),
            analyses: Analyses::new(Arc::clone(&node), Arc::clone(&watch), Arc::clone(&options.now_ms)),
            watch,
            surveys: Surveys::new(Arc::clone(&options.now_ms)),
            terminals: Terminals::default(),
            console_tls,
            has_crashed,
            metrics_open: settings.metrics_open,
            now_ms: options.now_ms,
            agent: options.agent,
            node,
            _lock: lock,
        };
        Ok((app, made_up))
    }

    /// Called when the node stops in an orderly way.
    pub fn ends(&self) {
        self.sign_on.keep();
        // Best effort: if this fails, the next start reports a crash.
        let _ = fs::remove_file(self.node.state_dir().join(RUNNING));
    }

    /// Writes to the audit log. A full disk must not stop an operator, but the log must report it.
    pub fn audit(&self, line: Audited) {
        if let Err(error) = self.audit.lock().push(line) {
            tracing::error!("the audit log cannot be written: {error}");
        }
    }

    pub fn event(&self, event: Event) {
        self.events.push(event);
    }
}

/// Creates the folder if needed, and locks it against other nodes.
fn own(folder: &Path) -> io::Result<File> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    match lock::exclusive(&folder.join("console.lock")) {
        Ok(locked) => Ok(locked.file),
        Err(Refused::InUse(holder)) => {
            Err(io::Error::other(format!("the console of another node uses this directory ({holder})")))
        }
        Err(Refused::Io { source, .. }) => Err(source),
    }
}
