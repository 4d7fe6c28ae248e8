//! Owns a blocked client's command while it waits for a key: what another run of the command needs, and the state of
//! the wait. Never knows a worker, or who runs the command again (`blocked`).

use commands::host::Unblock;
use commands::{Args, Row, UntilReached};
use parking_lot::Mutex;
use resp::{Out, Proto, Span};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::Waker;

/// A waiting command, with everything that another run of it needs.
pub struct Blocked {
    pub row: &'static Row,
    pub bytes: Box<[u8]>,
    pub spans: Box<[Span]>,
    pub client: u64,
    pub user: Cow<'static, str>,
    pub db: usize,
    pub proto: Proto,
    pub touch: bool,
    /// The client tracks the keys that it reads.
    pub follows: bool,
    /// The command waits for its first `keys` keys. `ticket` is its number in their queues.
    pub keys: usize,
    pub ticket: u64,
    pub until_ms: Option<u64>,
    pub until_reached: Option<UntilReached>,
    pub at_timeout: fn(&mut Out<'_>),
    pub state: Mutex<WaiterState>,
}

pub struct WaiterState {
    pub phase: Phase,
    pub served: Option<Served>,
    /// The waker of the connection's task.
    pub waker: Option<Waker>,
    /// The counter of INFO's blocked_clients, set when the connection starts to wait.
    pub count: Option<Arc<AtomicUsize>>,
    /// Whether this command is counted in `count`. It is counted while it waits for its keys, and no longer, even if
    /// its connection does not know yet that the wait is over.
    pub counted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Waiting,
    /// The command met a cold value, so its own connection must run it.
    Called,
    /// The command has run and has left the queues.
    Served,
    /// A value that the command needs could not be read.
    Failed,
    Ended(Unblock),
}

/// The result of a run.
pub struct Served {
    pub reply: Vec<u8>,
    /// The error, if the reply is one.
    pub error: Option<String>,
    /// Nanoseconds that it took. `None`: it was refused, and has not run.
    pub nanos: Option<u64>,
}

impl fmt::Debug for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocked").field("client", &self.client).field("command", &self.row.name).finish_non_exhaustive()
    }
}

impl Blocked {
    pub fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }

    /// Ends the wait from outside. Returns false if the wait was already over.
    pub fn unblock(&self, how: Unblock) -> bool {
        let mut state = self.state.lock();
        let waits = state.waits();
        if waits {
            state.turn(Phase::Ended(how));
        }
        waits
    }
}

impl WaiterState {
    pub fn waits(&self) -> bool {
        matches!(self.phase, Phase::Waiting | Phase::Called)
    }

    /// Counts or uncounts the command, according to its phase.
    pub fn recount(&mut self) {
        let counts = self.phase == Phase::Waiting;
        let Some(count) = self.count.as_ref().filter(|_| counts != self.counted) else { return };
        if counts {
            count.fetch_add(1, Relaxed);
        } else {
            count.fetch_sub(1, Relaxed);
        }
        self.counted = counts;
    }

    pub fn turn(&mut self, phase: Phase) {
        self.phase = phase;
        self.recount();
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    pub fn answer(
        &mut self,
        phase: Phase,
        blocked: &Blocked,
        mut reply: Vec<u8>,
        error: Option<String>,
        nanos: Option<u64>,
    ) {
        if let Some(text) = &error {
            reply.clear();
            Out::new(&mut reply, blocked.proto).error(text);
        }
        self.served = Some(Served { reply, error, nanos });
        self.turn(phase);
    }
}
