//! Owns what a handler may return: that it is done, why it is not, or an error. Never knows who runs the handler.

use crate::block::Block;
use std::borrow::Cow;
use store::{Cold, NoEdit, NotHeld};

/// What a handler returns, and what the executor returns of it. `Ok`: the reply is complete in `out`.
pub type Run = Result<(), Stop>;

/// Why a handler did not complete. The executor removes what the handler wrote to `out`.
#[derive(Debug)]
pub enum Stop {
    /// A value that the handler needs is on flash. The keyspace has recorded which. The handler runs again from its
    /// start when the value is in RAM, so every read of a handler comes before its first write.
    Cold,
    /// The handler has worked long enough (KEYS over millions of keys). Run it again soon; its progress is in the
    /// keyspace's `resume`.
    Yield,
    /// The handler found nothing and waits for a key. It has written nothing to `out`. It has changed no key, except
    /// for a change that stands whether the command waits or not (a consumer that XREADGROUP created).
    Block(Box<Block>),
    /// Another server must answer first, or another thread has a job to do. The session's `exchange` or `job` says
    /// which, and holds the outcome when the handler runs again. The handler has written nothing. Not allowed where
    /// nothing may wait: see [`crate::Flag::NoMulti`] and [`store::Keyspace::runs_once`].
    Exchange,
    /// The handler needs more memory at once than a command may take without asking: the session's `claim` says how
    /// much. The handler runs again when the memory is granted. It has written nothing: see [`claim`].
    Memory,
    /// The stripes of the keys could not be locked, so the handler has not begun. Only the executor returns this.
    NotHeld(NotHeld),
    /// The reply is this error, with its code first: `ERR syntax error`. The handler has changed nothing, unless it
    /// said that its changes stand (`Keyspace::commit_despite_error`).
    Error(Cow<'static, str>),
}

impl From<Cold> for Stop {
    fn from(_: Cold) -> Stop {
        Stop::Cold
    }
}

impl From<NotHeld> for Stop {
    fn from(why: NotHeld) -> Stop {
        Stop::NotHeld(why)
    }
}

impl From<NoEdit> for Stop {
    fn from(why: NoEdit) -> Stop {
        match why {
            NoEdit::Cold => Stop::Cold,
            NoEdit::OtherKind => WRONG_TYPE,
        }
    }
}

impl From<Block> for Stop {
    fn from(block: Block) -> Stop {
        Stop::Block(Box::new(block))
    }
}

impl Stop {
    pub const fn error(text: &'static str) -> Stop {
        Stop::Error(Cow::Borrowed(text))
    }
}

/// For a wrong number of arguments that the arity in the row does not exclude (MSET's pairs).
pub fn wrong_arity(command: &str) -> Stop {
    Stop::Error(format!("ERR wrong number of arguments for '{command}' command").into())
}

pub fn invalid_expire(command: &str) -> Stop {
    Stop::Error(format!("ERR invalid expire time in '{command}' command").into())
}

pub const WRONG_TYPE: Stop = Stop::error("WRONGTYPE Operation against a key holding the wrong kind of value");
pub const SYNTAX: Stop = Stop::error("ERR syntax error");
pub const NOT_INTEGER: Stop = Stop::error("ERR value is not an integer or out of range");
pub const NOT_FLOAT: Stop = Stop::error("ERR value is not a valid float");
pub const OUT_OF_RANGE: Stop = Stop::error("ERR value is out of range");
pub const NO_SUCH_KEY: Stop = Stop::error("ERR no such key");
