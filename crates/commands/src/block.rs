//! Owns what a blocking command declares when it finds nothing: which keys it waits for, how long, and its reply at the
//! timeout. Never knows how the wait is done.
//!
//! A handler returns [`Stop::Block`](crate::Stop::Block) before it has written anything. The server then puts the
//! client into the queues of the keys while their stripes are still locked. When one of the keys has become what the
//! command wants, the server runs the handler again with the same arguments. That run happens on the worker that made
//! the key ready, with a session of its own: only the database and the protocol version are those of the connection.

use crate::cx::Stop;
use resp::LongDouble;
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

impl From<Block> for Stop {
    fn from(block: Block) -> Stop {
        Stop::Block(Box::new(block))
    }
}

const NEGATIVE: Stop = Stop::error("ERR timeout is negative");
const OUT_OF_RANGE: Stop = Stop::error("ERR timeout is out of range");

/// Reads a timeout in seconds, with a fraction, and returns its moment. 0: no timeout.
pub fn until_seconds(text: &[u8], now_ms: u64) -> Result<Option<u64>, Stop> {
    let seconds = LongDouble::parse(text).ok_or(Stop::error("ERR timeout is not a float or out of range"))?;
    let milliseconds = (seconds.to_f64() * 1000.0).ceil();
    // 2^63 is the smallest float that does not fit into an i64.
    if milliseconds >= 9_223_372_036_854_775_808.0 {
        return Err(OUT_OF_RANGE);
    }
    until(milliseconds as i64, now_ms)
}

/// Reads a timeout in milliseconds and returns its moment. 0: no timeout.
pub fn until_milliseconds(text: &[u8], now_ms: u64) -> Result<Option<u64>, Stop> {
    let milliseconds = crate::number::int(text);
    until(milliseconds.ok_or(Stop::error("ERR timeout is not an integer or out of range"))?, now_ms)
}

fn until(milliseconds: i64, now_ms: u64) -> Result<Option<u64>, Stop> {
    match u64::try_from(milliseconds) {
        Err(_) => Err(NEGATIVE),
        Ok(0) => Ok(None),
        Ok(milliseconds) if milliseconds > i64::MAX as u64 - now_ms => Err(OUT_OF_RANGE),
        Ok(milliseconds) => Ok(Some(now_ms + milliseconds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_as_redis_reads_them() {
        let text = |result: Result<Option<u64>, Stop>| match result {
            Ok(until) => format!("{until:?}"),
            Err(Stop::Error(text)) => text.into_owned(),
            Err(other) => panic!("{other:?}"),
        };
        for (timeout, meaning) in [
            ("0", "None"),
            ("-0", "None"),
            ("1", "Some(2000)"),
            ("0.001", "Some(1001)"),
            ("0.0001", "Some(1001)"),
            ("-0.0001", "None"),
            ("-1", "ERR timeout is negative"),
            ("-0.01", "ERR timeout is negative"),
            ("9223372036854775", "ERR timeout is out of range"),
            ("9223372036854776", "ERR timeout is out of range"),
            ("1e300", "ERR timeout is out of range"),
            ("inf", "ERR timeout is out of range"),
            ("-inf", "ERR timeout is negative"),
            ("x", "ERR timeout is not a float or out of range"),
            ("", "ERR timeout is not a float or out of range"),
            ("nan", "ERR timeout is not a float or out of range"),
        ] {
            assert_eq!(text(until_seconds(timeout.as_bytes(), 1000)), meaning, "{timeout}");
        }
        for (timeout, meaning) in [
            ("0", "None"),
            ("7", "Some(1007)"),
            ("-1", "ERR timeout is negative"),
            ("1.5", "ERR timeout is not an integer or out of range"),
            ("9223372036854775807", "ERR timeout is out of range"),
        ] {
            assert_eq!(text(until_milliseconds(timeout.as_bytes(), 1000)), meaning, "{timeout}");
        }
    }
}
