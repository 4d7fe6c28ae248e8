//! Owns the reasons for which a link ends, and how each is told to an operator. Never knows what is done then.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::frame::{Kind, MAGIC, MESSAGE_BYTES_MAX, VERSION};

/// Why a link has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// By [`crate::Link::close`], or because no handle and no session was left.
    Closed,
    /// The peer closed the connection.
    ClosedByPeer,
    /// The driver was dropped.
    Dropped,
    /// Nothing was received for so long.
    Silence(Duration),
    /// The peer's first bytes are not a link's.
    NotALink([u8; 6]),
    /// The peer has another version of the protocol.
    Version(u16),
    /// The peer broke the protocol.
    Violation(Violation),
    /// The peer makes this end answer and does not read the answers.
    Backlog,
    /// The connection failed.
    Stream { kind: io::ErrorKind, text: String },
}

/// What a peer did that the protocol forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    UnknownKind(u8),
    Length {
        kind: Kind,
        length: usize,
    },
    /// A session that is not open, or a number where none belongs.
    Session {
        kind: Kind,
        session: u32,
    },
    /// An OPEN of a number that is used or too large.
    Number(u32),
    /// An OPEN by the end that accepts, or a REFUSE by the end that opens.
    Role(Kind),
    /// More DATA than the credit.
    Data {
        session: u32,
        bytes: usize,
        credit: u32,
    },
    /// CREDIT of nothing, or above the window.
    Credit {
        session: u32,
        bytes: u32,
    },
    /// DATA or END after END, or REFUSE after DATA.
    Order {
        kind: Kind,
        session: u32,
    },
    MessageTooLarge,
}

impl From<Violation> for End {
    fn from(violation: Violation) -> End {
        End::Violation(violation)
    }
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> End {
        End::Stream { kind: error.kind(), text: error.to_string() }
    }
}

impl fmt::Display for End {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Closed => to.write_str("the link was closed"),
            End::ClosedByPeer => to.write_str("the peer closed the link"),
            End::Dropped => to.write_str("the link was dropped"),
            End::Silence(silence) => write!(to, "the peer sent nothing for {silence:?}"),
            End::NotALink(first) => write!(
                to,
                "the peer's first bytes are {:?}, a link's are {:?}: see that the address is one for nodes",
                first.escape_ascii().to_string(),
                MAGIC.escape_ascii().to_string()
            ),
            End::Version(theirs) => write!(
                to,
                "the peer's links have version {theirs}, this node's have {VERSION}: run the same release on both nodes"
            ),
            End::Violation(violation) => write!(to, "the peer broke the link's protocol: {violation}"),
            End::Backlog => to.write_str("the peer does not read what it makes this node answer"),
            End::Stream { text, .. } => write!(to, "the connection failed: {text}"),
        }
    }
}

impl std::error::Error for End {}

impl fmt::Display for Violation {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::UnknownKind(kind) => write!(to, "there is no frame of kind {kind}"),
            Violation::Length { kind, length } => write!(to, "a frame {kind:?} cannot have {length} bytes"),
            Violation::Session { kind, session } => {
                write!(to, "a frame {kind:?} for session {session}, which is not open")
            }
            Violation::Number(number) => write!(to, "session {number} was opened, a number that is used or too large"),
            Violation::Role(kind) => write!(to, "this end of a link sends no frame {kind:?}"),
            Violation::Data { session, bytes, credit } => {
                write!(to, "{bytes} bytes for session {session}, which has a credit of {credit}")
            }
            Violation::Credit { session, bytes } => {
                write!(to, "a credit of {bytes} bytes for session {session} is nothing or exceeds the window")
            }
            Violation::Order { kind, session } => {
                write!(to, "a frame {kind:?} for session {session} after one that excludes it")
            }
            Violation::MessageTooLarge => write!(to, "a message of more than {MESSAGE_BYTES_MAX} bytes"),
        }
    }
}
