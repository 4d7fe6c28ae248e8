//! Owns the error replies that several steps of a command give. Never knows who is refused, or why.

use std::borrow::Cow;
use store::ReadError;

/// The reply to a write while `min-replicas-to-write` is not met.
pub const TOO_FEW_REPLICAS: &str = "NOREPLICAS Not enough good replicas to write.";
pub const STALE: &str = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
/// The reply to a write of a replica's client.
pub const READ_ONLY: &str = "READONLY You can't write against a read only replica.";

/// The reply to a command that is not executed, because the database does not own its keys. Only a proxy sees it, and sends the command
/// to whoever owns them.
pub const NOT_OWNED: &str = "NOTOWNED this copy does not serve the key's shard now";

/// The reply if a value could not be read.
pub fn read_failed(error: &ReadError) -> Cow<'static, str> {
    format!("ERR {error}").into()
}
