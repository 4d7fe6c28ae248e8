//! Owns what a connection carries from one command to the next: plain data. Never knows its socket,
//! its buffers or the worker that serves it.

use resp::reply::Proto;

/// A connection's own state. Handlers change it; the server reads it between commands.
#[derive(Debug)]
pub struct Session {
    pub id: u64,
    /// The logical database SELECT chose.
    pub db: usize,
    pub proto: Proto,
    pub authenticated: bool,
    pub reply: Reply,
    /// Close once the replies so far are sent (QUIT, CLIENT KILL of itself).
    pub close: bool,
    pub no_evict: bool,
    /// Reads do not count as use of the key.
    pub no_touch: bool,
    /// Loopback or the unix socket: what `local` in the configuration's guards means.
    pub local: bool,
    /// Set whenever something that CLIENT LIST shows of it has changed, so that the server publishes it.
    pub changed: bool,
    pub labels: Labels,
}

/// What a client says about itself. Printable ASCII without spaces, or empty.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Labels {
    pub name: Box<str>,
    pub lib_name: Box<str>,
    pub lib_version: Box<str>,
}

/// CLIENT REPLY's modes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    #[default]
    On,
    Off,
    /// SKIP was just given: neither it nor the next command answers.
    SkipNext,
    /// This command does not answer, the one after it does.
    Skip,
}

impl Session {
    pub fn new(id: u64, authenticated: bool, local: bool) -> Session {
        Session {
            id,
            db: 0,
            proto: Proto::Resp2,
            authenticated,
            reply: Reply::On,
            close: false,
            no_evict: false,
            no_touch: false,
            local,
            changed: false,
            labels: Labels::default(),
        }
    }

    /// RESET: as after connecting, but for the id and the library that speaks.
    pub fn reset(&mut self, authenticated: bool) {
        self.db = 0;
        self.proto = Proto::Resp2;
        self.authenticated = authenticated;
        self.reply = Reply::On;
        self.no_evict = false;
        self.no_touch = false;
        self.labels.name = Box::default();
        self.changed = true;
    }
}
