//! Owns the bytes of messages between a node that wants a certificate and one that issues it: JSON, of bounded length,
//! with the version of the protocol. Never knows what a message means.

use crate::limits::MESSAGE_BYTES_MAX;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Every message has it. It grows when nodes of an older version would misunderstand.
pub const VERSION: u32 = 1;

/// Neither variant repeats bytes of the message, which may have a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageError {
    TooLong,
    OtherVersion {
        theirs: u32,
    },
    /// Not JSON, or not what was expected, at this place.
    Unreadable {
        line: usize,
        column: usize,
    },
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MessageError::TooLong => write!(f, "the message is longer than {MESSAGE_BYTES_MAX} bytes"),
            MessageError::OtherVersion { theirs } => {
                write!(f, "the peer speaks version {theirs} of the protocol for joining, this node version {VERSION}")
            }
            MessageError::Unreadable { line, column } => {
                write!(f, "the message cannot be read from line {line}, column {column} on")
            }
        }
    }
}

impl std::error::Error for MessageError {}

/// All that is read of a message before its version is known.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

#[derive(Serialize, Deserialize)]
struct Envelope<T> {
    version: u32,
    message: T,
}

pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    serde_json::to_vec(&Envelope { version: VERSION, message }).expect("the message is plain data")
}

/// Of a whole message: the sender ends its side of the connection after it.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, MessageError> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(MessageError::TooLong);
    }
    // Not serde's own message: it may quote a value.
    let unreadable = |error: serde_json::Error| MessageError::Unreadable { line: error.line(), column: error.column() };
    let Versioned { version } = serde_json::from_slice(bytes).map_err(unreadable)?;
    if version != VERSION {
        return Err(MessageError::OtherVersion { theirs: version });
    }
    Ok(serde_json::from_slice::<Envelope<T>>(bytes).map_err(unreadable)?.message)
}
