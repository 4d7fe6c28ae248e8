//! Owns what clients have asked for when they want the node to end. Plain data. Never knows how it ends, or what it waits for.

use parking_lot::Mutex;

/// How a client wants the node to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Whether databases are saved. `None`: those that have `save` points.
    pub saves: Option<bool>,
    /// Replicas are not waited for.
    pub now: bool,
    /// Even if a database cannot be saved.
    pub force: bool,
}

/// How far something is that the node waits for before it ends.
pub enum Step {
    GoesOn,
    /// The node may end.
    Over,
    Aborted,
}

/// What clients have asked for. They wait in SHUTDOWN, unless they wanted it now.
#[derive(Default)]
pub struct Ending(Mutex<Asked>);

#[derive(Default)]
struct Asked {
    wanted: Option<Wanted>,
    is_aborted: bool,
    clients: Vec<u64>,
    /// When the wait for replicas or checkpoints ends at the latest, in milliseconds since 1970; 0: the node does not wait.
    until_ms: u64,
}

impl Ending {
    pub fn ask(&self, client: u64, wanted: Wanted) {
        let mut asked = self.0.lock();
        asked.clients.push(client);
        asked.wanted = Some(wanted);
    }

    /// SHUTDOWN ABORT. False: there is nothing to abort.
    pub fn abort(&self) -> bool {
        let mut asked = self.0.lock();
        asked.is_aborted = asked.until_ms > 0 || asked.wanted.is_some();
        asked.is_aborted
    }

    pub fn is_aborted(&self) -> bool {
        self.0.lock().is_aborted
    }

    /// What was asked for since the last call.
    pub fn take_wanted(&self) -> Option<Wanted> {
        self.0.lock().wanted.take()
    }

    /// The node waits until then at the longest.
    pub fn wait_until(&self, until_ms: u64) {
        self.0.lock().until_ms = until_ms;
    }

    /// How long the node still waits. `None`: it does not.
    pub fn left_ms(&self, now_ms: u64) -> Option<u64> {
        let until_ms = self.0.lock().until_ms;
        (until_ms > 0).then(|| until_ms.saturating_sub(now_ms))
    }

    /// The node goes on. Returns the clients that have asked.
    pub fn give_up(&self) -> Vec<u64> {
        std::mem::take(&mut *self.0.lock()).clients
    }
}
