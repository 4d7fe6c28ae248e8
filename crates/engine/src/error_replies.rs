//! Owns the error replies that several steps of a command give. Never knows who is refused, or why.

use commands::session::Session;
use resp::Out;
use std::borrow::Cow;
use store::ReadError;

/// The reply to a write while `min-replicas-to-write` is not met.
pub const TOO_FEW_REPLICAS: &str = "NOREPLICAS Not enough good replicas to write.";
pub const STALE: &str = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
/// The reply to a write of a replica's client.
pub const READ_ONLY: &str = "READONLY You can't write against a read only replica.";

/// A command has not run, because the database does not own its keys.
pub const NOT_OWNED: &str = "NOTOWNED this copy does not serve the key's shard now";

/// The same, to a proxy, which sends the command to whoever owns them. One line that no command answers, since a null has no text: a script
/// can make every error, and a proxy that took one for a rejection would run the script again and again.
pub const REJECTION: &[u8] = b"_NOTOWNED\r\n";

/// Answers that the command has not run. All that follows in a proxy's session is rejected too.
#[cold]
pub fn reject(session: &mut Session, output: &mut Vec<u8>) {
    session.begin_rejecting();
    match session.rejects() {
        true => output.extend_from_slice(REJECTION),
        false => Out::new(output, session.proto).error(NOT_OWNED),
    }
}

/// The reply if a value could not be read.
pub fn read_failed(error: &ReadError) -> Cow<'static, str> {
    format!("ERR {error}").into()
}
