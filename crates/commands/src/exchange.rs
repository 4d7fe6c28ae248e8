//! Owns what a command has to say to another server before it can go on (MIGRATE), and what that has answered: plain
//! data. Never knows how bytes get there.
//!
//! A handler leaves an [`Exchange`] in its session and returns [`Stop::Exchange`](crate::Stop::Exchange). No stripe is
//! locked while the server carries it out; then the handler is run again and finds the outcome in the same place.

use std::fmt;
use std::time::Duration;
use store::Watches;

#[derive(Debug)]
pub struct Exchange {
    pub target: Target,
    /// A longer silence than this ends it.
    pub patience: Duration,
    /// The target's logical database, as SELECT takes it.
    pub db: i64,
    /// Encoded commands, one behind the other, which are answered with a line each.
    pub commands: Vec<u8>,
    pub count: usize,
    /// Keys of the command, by their place among them, each with a mark that tells whether somebody has changed it since:
    /// one for each of the commands, or none at all.
    pub keys: Vec<(usize, Watches)>,
    pub outcome: Option<Outcome>,
}

/// Another server, and as whom to speak to it.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    pub host: String,
    /// 0 where none was given that could be one: nobody listens there.
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
    /// To the commands, in their order, as far as there are any; an error is the target's, without its mark.
    pub replies: Vec<Result<(), String>>,
    /// The target refused the user or the database before it was told any command.
    pub refused: Option<String>,
    /// Why there are no more.
    pub failed: Option<Failure>,
}

/// What was going on when a connection failed, or fell silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    Connecting,
    Writing,
    Reading,
}
