//! Owns what a handler receives and what it may return. Never knows threads, sockets or files.

use crate::session::Session;
use crate::stop::{Run, Stop};
pub use resp::Args;
use resp::reply::Out;
use store::{Key, Keyspace};
use value::list::Limit;

/// A reply of random elements longer than this is refused: a negative count could ask for any length.
pub const REPLY_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Everything that a handler sees. The stripes of `keys` are locked while the handler runs.
pub struct Cx<'a> {
    pub args: Args<'a>,
    /// The keys at the row's key positions, in that order.
    pub keys: &'a [Key<'a>],
    pub ks: Keyspace<'a>,
    pub out: Out<'a>,
    /// The connection's own state: plain data.
    pub session: &'a mut Session,
    pub settings: &'a Settings,
    /// The interface to the server, for commands about the server itself.
    pub server: &'a dyn crate::host::Host,
}

/// Asks for the memory of something large that the command is about to make at once: a long reply, a longer string.
/// Call it before the handler's first write. The parts of the context are arguments, because a value may borrow the rest.
#[inline]
pub fn claim(settings: &Settings, session: &mut Session, bytes: usize) -> Run {
    if bytes <= settings.claim_free_bytes { Ok(()) } else { claim_much(session, bytes) }
}

#[cold]
fn claim_much(session: &mut Session, bytes: usize) -> Run {
    if bytes <= session.claim.granted {
        return Ok(());
    }
    session.claim.wanted = bytes;
    Err(Stop::Memory)
}

/// The length of a bulk string's header and end, for strings of up to 999 bytes.
pub const BULK_FRAME_BYTES: usize = 8;

/// The maximum length of a reply with this string.
#[inline]
pub fn bulk_bytes(value: Option<&[u8]>) -> usize {
    value.map_or(0, |value| value.len() + 2 * BULK_FRAME_BYTES)
}

/// Estimated bytes of `count` of `len` elements, if all `len` take `bytes` together.
pub fn share_of(bytes: usize, count: usize, len: usize) -> usize {
    bytes / len.max(1) * count.min(len)
}

/// Estimated bytes of this many draws, with repetition, from `len` elements that take `bytes` together. 0 for a longer
/// reply than is allowed: the command is refused then.
pub fn drawn_bytes(bytes: usize, draws: usize, len: usize) -> usize {
    let each = bytes / len.max(1) + BULK_FRAME_BYTES;
    if draws > REPLY_BYTES_MAX / 6 { 0 } else { draws.saturating_mul(each).min(REPLY_BYTES_MAX) }
}

/// Like [`claim`], for a reply of about this length. The output then grows once, and not by doubling.
#[inline]
pub fn claim_reply(settings: &Settings, session: &mut Session, out: &mut Out<'_>, bytes: usize) -> Run {
    if bytes <= settings.claim_free_bytes {
        return Ok(());
    }
    claim_much(session, bytes)?;
    out.reserve(bytes);
    Ok(())
}

impl Cx<'_> {
    /// States a command that repeats what this command has changed: see [`Keyspace::effect`].
    #[inline]
    pub fn effect(&mut self, words: &[&[u8]]) {
        self.ks.effect(words.iter().copied());
    }

    /// States the command itself as its effect. `name` is the original one, even if the command was renamed.
    #[inline(never)]
    pub fn repeat(&mut self, name: &str) {
        if self.args.is_called(name) && self.args.sent().is_some_and(|sent| self.ks.effect_sent(sent)) {
            return;
        }
        self.ks.effect(std::iter::once(name.as_bytes()).chain(self.args.from(1)));
    }
}

/// The configuration that handlers use.
#[derive(Clone, Debug)]
pub struct Settings {
    pub hash_max_listpack_entries: usize,
    pub hash_max_listpack_value: usize,
    pub list_limit: Limit,
    pub set_max_intset_entries: usize,
    pub set_max_listpack_entries: usize,
    pub set_max_listpack_value: usize,
    pub zset_max_listpack_entries: usize,
    pub zset_max_listpack_value: usize,
    pub hll_sparse_max_bytes: usize,
    pub stream_node_max_bytes: usize,
    pub stream_node_max_entries: usize,
    pub proto_max_bulk_len: usize,
    pub databases: usize,
    /// A command must ask before it makes more than this many bytes at once: see [`claim`].
    pub claim_free_bytes: usize,
    pub lfu: bool,
}
