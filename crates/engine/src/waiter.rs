//! Owns a blocked client's command while it waits for a key: what running it again takes, and how far the wait is. Never knows
//! a worker, or who runs the command again (`blocked`).

use commands::host::Unblock;
use commands::{Args, Row};
use parking_lot::Mutex;
use resp::{Out, Proto, Span};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::Waker;

/// A command that waits, and all that running it again takes.
pub struct Blocked {
    pub row: &'static Row,
    pub bytes: Box<[u8]>,
    pub spans: Box<[Span]>,
    pub client: u64,
    pub user: Cow<'static, str>,
    pub db: usize,
    pub proto: Proto,
    pub touch: bool,
    /// Its client follows what it reads.
    pub follows: bool,
    /// It waits for the first so many of its keys, under this number.
    pub keys: usize,
    pub ticket: u64,
    pub until_ms: Option<u64>,
    pub at_timeout: fn(&mut Out<'_>),
    pub state: Mutex<State>,
}

pub struct State {
    pub phase: Phase,
    pub served: Option<Served>,
    /// Of the connection's task.
    pub waker: Option<Waker>,
    /// INFO's blocked_clients, once its connection waits.
    pub count: Option<Arc<AtomicUsize>>,
    /// It counts there: while it waits for its keys, not until its connection has heard that it does no more.
    pub counted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Waiting,
    /// Its own connection is to run it: it has met a cold value.
    Called,
    /// It has run, and has left the queues.
    Served,
    /// What it needs could not be read.
    Failed,
    Ended(Unblock),
}

/// What a run has answered.
pub struct Served {
    pub reply: Vec<u8>,
    /// The error that the reply is.
    pub error: Option<String>,
    pub nanos: u64,
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

    /// Ends the wait from outside. False: it was over already.
    pub fn unblock(&self, how: Unblock) -> bool {
        let mut state = self.state.lock();
        let waits = state.waits();
        if waits {
            state.turn(Phase::Ended(how));
        }
        waits
    }
}

impl State {
    pub fn waits(&self) -> bool {
        matches!(self.phase, Phase::Waiting | Phase::Called)
    }

    /// Counts it, or does not, by what it does now.
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

    pub fn answer(&mut self, phase: Phase, blocked: &Blocked, mut reply: Vec<u8>, error: Option<String>, nanos: u64) {
        if let Some(text) = &error {
            reply.clear();
            Out::new(&mut reply, blocked.proto).error(text);
        }
        self.served = Some(Served { reply, error, nanos });
        self.turn(phase);
    }
}
