//! Owns the commands that a handler sends to another server before it can continue (MIGRATE), and the other server's
//! answers: plain data. Never knows how the bytes travel.
//!
//! A handler leaves an [`Exchange`] in its session and returns [`Stop::Exchange`](crate::Stop::Exchange). The server
//! carries it out with no stripe locked. Then the handler runs again and finds the outcome in the same place.

use std::fmt;
use std::time::Duration;
use store::Watches;

#[derive(Debug)]
pub struct Exchange {
    pub target: Target,
    /// The exchange fails if the other server is silent for longer than this.
    pub timeout: Duration,
    /// The target's logical database, as SELECT takes it.
    pub db: i64,
    /// Encoded commands, one after the other. Each is answered with one line.
    pub commands: Vec<u8>,
    pub count: usize,
    /// The positions of keys among the command's keys, each with a mark that tells whether the key has changed since.
    /// One entry for each command, or none at all.
    pub keys: Vec<(usize, Watches)>,
    pub outcome: Option<Outcome>,
}

/// Another server, and the user to log in as.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    pub host: String,
    /// 0 if the argument cannot be a port, because no server listens on port 0.
    pub port: u16,
    pub user: Option<Box<[u8]>>,
    pub password: Option<Box<[u8]>>,
}

impl fmt::Debug for Target {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[derive(Debug, Default)]
pub struct Outcome {
    /// Replies to the commands, in order, as many as arrived. An error is the target's text without its `-`.
    pub replies: Vec<Result<(), String>>,
    /// The target refused the user or the database. No command was sent.
    pub refused: Option<String>,
    /// Why there are no more replies.
    pub failed: Option<Failure>,
}

/// What the exchange was doing when the connection failed or fell silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    Connecting,
    Writing,
    Reading,
}
