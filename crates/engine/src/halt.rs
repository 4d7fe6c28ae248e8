//! Owns the reasons for which a command goes no further, and those for which a connection ends, as plain data. Never knows who
//! decides so, or what is done about it (`park`, `command_loop`).

use crate::memory::TooMuch;
use std::borrow::Cow;
use std::fmt;
use store::NotHeld;

/// Why a command has no reply from its handler. On the way back to `command_loop::run` it is in a box: so the usual
/// outcome, no halt, fits a register.
pub enum Halt {
    /// The reply comes later.
    Wait(Wait),
    /// The reply is this error.
    Error(Cow<'static, str>),
    /// The copy does not serve the key's shard now, and nothing has run.
    NotOwned,
    /// The connection ends.
    End(End),
}

impl From<NotHeld> for Halt {
    fn from(why: NotHeld) -> Halt {
        match why {
            NotHeld::Busy => Halt::Wait(Wait::Stripes),
            NotHeld::NotOwned => Halt::NotOwned,
        }
    }
}

/// Why a command cannot continue now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// The command's values are being read from flash.
    Flash,
    /// Writers wait until demotion has made room.
    Demotion,
    /// CLIENT PAUSE. `writes`: the command waits for a pause of writes too.
    Pause { writes: bool },
    /// Other connections run first.
    Turn,
    /// A script holds a stripe of the command's keys for a long time.
    Stripes,
    /// The client must read replies before more of them are made.
    Drain,
    /// The command claims memory, which others hold.
    Memory,
    /// The journal is behind: writers wait for room in it.
    Journal,
    /// The command waits for another server (MIGRATE) or for another thread (a job).
    Exchange,
    /// The owners of shards must reply to what a proxy has sent them.
    Replies,
    /// The command waits in the queues of its keys (BLPOP). Who makes a key ready runs it.
    Key,
}

/// Why a connection ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The client hung up, or the server ended all input.
    Eof,
    /// QUIT, a protocol error, or CLIENT KILL of itself: the replies are still sent.
    Asked,
    Killed,
    Io(String),
    QueryLimit,
    OutputLimit,
    /// What the client sends needs more memory than there is.
    Memory(TooMuch),
    /// The changes of the commands may be lost, because the journal has failed or another copy of the shard may serve. As this is not known,
    /// no reply is sent.
    Lost,
    /// A handler panicked.
    Panic,
    /// The connection has become a replica's: see `feed`.
    Follows,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Eof => f.write_str("the other side has closed the connection"),
            End::Asked => f.write_str("it was closed on request"),
            End::Killed => f.write_str("it was killed"),
            End::Io(error) => f.write_str(error),
            End::QueryLimit => f.write_str("it has sent more than client-query-buffer-limit at once"),
            End::OutputLimit => f.write_str("it has more unread replies than client-output-buffer-limit allows"),
            End::Memory(too_much) => f.write_str(&too_much.text()),
            End::Lost => f.write_str("what was done may be lost"),
            End::Panic => f.write_str("a command panicked"),
            End::Follows => f.write_str("it has become the connection of a replica"),
        }
    }
}
