//! Owns what a blocking command declares when it finds nothing: which keys it waits for, how long, and its reply at the
//! timeout. Never knows how the wait is done.
//!
//! A handler returns [`Stop::Block`](crate::Stop::Block) before it has written anything. The server then puts the
//! client into the queues of the keys while their stripes are still locked. When one of the keys has become what the
//! command wants, the server runs the handler again with the same arguments. That run happens on the worker that made
//! the key ready, with a session of its own: only the database and the protocol version are those of the connection.

use resp::reply::Out;
use store::{Kind, Wants};

#[derive(Debug)]
pub struct Block {
    /// The command waits for this many of its keys, from the first.
    pub keys: usize,
    pub wants: Wants,
    /// The moment of the timeout, in milliseconds since 1970. `None`: no timeout.
    pub until_ms: Option<u64>,
    /// Arguments to replace for the next run, by position: XREAD's `$` becomes an identifier.
    pub rewritten: Vec<(usize, Vec<u8>)>,
    /// What the command waits for beside keys.
    pub until_reached: Option<UntilReached>,
    /// The reply at the timeout.
    pub at_timeout: fn(&mut Out<'_>),
    /// The reply where no command may wait: inside MULTI and scripts.
    pub at_once: fn(&mut Out<'_>),
}

/// What a command waits for besides keys: that writes are durable in this node's journal, or that replicas have them.
#[derive(Debug, Clone, Copy)]
pub struct UntilReached {
    /// The journal's position, and whether the command waits until the journal is durable up to it.
    pub position: u64,
    pub waits_here: bool,
    /// The stream's offset, and how many replicas must have the stream up to it.
    pub offset: u64,
    pub replicas: usize,
    /// Whether the replicas must have it on their devices.
    pub durably: bool,
    /// Writes the reply, when the condition holds or at the timeout.
    pub reply: fn(&mut Out<'_>, Reached),
    /// The error if the command waits for the journal, and the journal does not exist any more.
    pub without: &'static str,
}

/// Where the writes are for which a command waits.
#[derive(Debug, Clone, Copy)]
pub struct Reached {
    /// Whether they are durable in this node's journal.
    pub here: bool,
    /// The number of replicas that have them.
    pub replicas: usize,
}

impl Block {
    /// For a command whose empty reply is always a null array.
    pub fn new(keys: usize, kind: Kind, until_ms: Option<u64>) -> Block {
        let null = |out: &mut Out<'_>| out.null_array();
        let wants = Wants { kind, any_change: false };
        Block { keys, wants, until_ms, rewritten: Vec::new(), until_reached: None, at_timeout: null, at_once: null }
    }
}
