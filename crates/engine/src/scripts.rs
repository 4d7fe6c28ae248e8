//! Owns what a database knows of scripts: their texts by SHA-1, and which worker runs one. Never runs a script.

use lua::{Libraries, Sha, sha1_hex};
use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// The most scripts kept that came with EVAL, not with SCRIPT LOAD; the oldest is dropped first. Clients that put
/// values into the script's text would fill memory otherwise.
pub const EVALED_MAX: usize = 10_000;

pub struct Scripts {
    texts: RwLock<Texts>,
    /// Counts SCRIPT FLUSH. When it has changed, workers drop their compiled scripts.
    pub flushes: AtomicU64,
    pub libraries: RwLock<Libraries>,
    /// Of functions that are kept for several shards: the revision of those here; -1: none have come yet. Changed while `libraries` is
    /// locked for writing.
    pub agreed: AtomicI64,
    /// Indexed by worker.
    pub running: Box<[Running]>,
    /// The number of scripts that have run longer than busy-reply-threshold.
    pub busy: AtomicUsize,
}

#[derive(Default)]
struct Texts {
    by_sha: HashMap<Sha, Text>,
    evaled: VecDeque<Sha>,
    bytes: usize,
}

struct Text {
    body: Arc<[u8]>,
    loaded: bool,
}

/// What a worker's interpreter is running.
#[derive(Default)]
pub struct Running {
    what: AtomicU8,
    /// The script has run longer than busy-reply-threshold: other clients get BUSY, and may end it.
    is_busy: AtomicBool,
    pub wrote: AtomicBool,
    pub killed: AtomicBool,
    /// Describes a busy script.
    pub about: Mutex<Option<About>>,
    memory_bytes: AtomicUsize,
}

pub struct About {
    pub name: String,
    pub command: Vec<Vec<u8>>,
    pub since: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum What {
    Nothing = 0,
    Script = 1,
    Function = 2,
}

impl Running {
    pub fn what(&self) -> What {
        match self.what.load(Relaxed) {
            0 => What::Nothing,
            1 => What::Script,
            _ => What::Function,
        }
    }

    pub fn begin(&self, what: What) {
        self.wrote.store(false, Relaxed);
        self.killed.store(false, Relaxed);
        self.what.store(what as u8, Relaxed);
    }

    pub fn becomes_busy(&self, about: About) {
        *self.about.lock() = Some(about);
        self.is_busy.store(true, Relaxed);
    }

    pub fn end(&self) {
        self.what.store(What::Nothing as u8, Relaxed);
        if self.is_busy.swap(false, Relaxed) {
            *self.about.lock() = None;
        }
    }

    pub fn note_memory(&self, bytes: usize) {
        self.memory_bytes.store(bytes, Relaxed);
    }
}

pub const NOT_BUSY: &str = "NOTBUSY No scripts in execution right now.";
pub const UNKILLABLE: &str = "UNKILLABLE Sorry the script already executed write commands against the dataset. You can \
                              either wait the script termination or kill the server in a hard way using the SHUTDOWN \
                              NOSAVE command.";
pub const BUSY_SCRIPT: &str = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
pub const BUSY_FUNCTION: &str =
    "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.";

impl Scripts {
    pub fn new(workers: usize) -> Scripts {
        Scripts {
            texts: RwLock::default(),
            flushes: AtomicU64::new(0),
            libraries: RwLock::default(),
            agreed: AtomicI64::new(-1),
            running: (0..workers).map(|_| Running::default()).collect(),
            busy: AtomicUsize::new(0),
        }
    }

    pub fn count(&self) -> usize {
        self.texts.read().by_sha.len()
    }

    /// Bytes of all texts.
    pub fn bytes(&self) -> usize {
        self.texts.read().bytes
    }

    pub fn add(&self, body: &[u8], loaded: bool) -> Sha {
        let sha = sha1_hex(body);
        let mut texts = self.texts.write();
        if let Some(known) = texts.by_sha.get_mut(&sha) {
            known.loaded |= loaded;
            return sha;
        }
        texts.bytes += body.len();
        texts.by_sha.insert(sha, Text { body: body.into(), loaded });
        if !loaded {
            texts.evaled.push_back(sha);
        }
        while texts.evaled.len() > EVALED_MAX {
            let Some(oldest) = texts.evaled.pop_front() else { break };
            if texts.by_sha.get(&oldest).is_some_and(|text| !text.loaded)
                && let Some(text) = texts.by_sha.remove(&oldest)
            {
                texts.bytes -= text.body.len();
            }
        }
        sha
    }

    /// How often all were flushed.
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Relaxed)
    }

    pub fn body(&self, sha: &Sha) -> Option<Arc<[u8]>> {
        self.texts.read().by_sha.get(sha).map(|text| Arc::clone(&text.body))
    }

    pub fn has(&self, sha: &[u8]) -> bool {
        as_sha(sha).is_some_and(|sha| self.texts.read().by_sha.contains_key(&sha))
    }

    pub fn flush(&self) {
        *self.texts.write() = Texts::default();
        self.flushes.fetch_add(1, Relaxed);
    }

    /// SCRIPT KILL and FUNCTION KILL: ends every busy script that may be ended.
    pub fn kill(&self, what: What) -> Result<(), &'static str> {
        let mut outcome = Err(NOT_BUSY);
        for running in self.running.iter().filter(|running| running.is_busy.load(Relaxed)) {
            match running.what() {
                What::Nothing => {}
                other if other != what => outcome = outcome.or(Err(busy_with(other))),
                _ if running.wrote.load(Relaxed) => outcome = outcome.or(Err(UNKILLABLE)),
                _ => {
                    running.killed.store(true, Relaxed);
                    outcome = Ok(());
                }
            }
        }
        outcome
    }

    /// The BUSY reply while a script runs too long; `None`: no script does.
    #[inline]
    pub fn busy(&self) -> Option<&'static str> {
        if self.busy.load(Relaxed) == 0 {
            return None;
        }
        let busy = |running: &&Running| running.is_busy.load(Relaxed);
        Some(busy_with(self.running.iter().find(busy).map_or(What::Script, Running::what)))
    }

    /// The reply of FUNCTION STATS while a script, not a function, runs too long.
    pub fn busy_with_script(&self) -> Option<&'static str> {
        self.busy().filter(|&text| text == BUSY_SCRIPT)
    }

    /// Whether a script blocks this worker.
    pub fn keeps(&self, worker: usize) -> bool {
        self.busy.load(Relaxed) > 0 && self.running[worker].is_busy.load(Relaxed)
    }

    /// The memory of all workers' interpreters.
    pub fn interpreter_bytes(&self) -> u64 {
        self.running.iter().map(|running| running.memory_bytes.load(Relaxed) as u64).sum()
    }
}

fn busy_with(what: What) -> &'static str {
    if what == What::Function { BUSY_FUNCTION } else { BUSY_SCRIPT }
}

/// Case is ignored.
pub fn as_sha(text: &[u8]) -> Option<Sha> {
    let sha: &Sha = text.try_into().ok()?;
    Some(sha.map(|digit| digit.to_ascii_lowercase()))
}
