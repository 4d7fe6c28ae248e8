//! Owns what a handler receives and what it may return. Never knows threads, sockets or files.

use crate::block::Block;
use crate::session::Session;
pub use resp::Args;
use resp::reply::Out;
use resp::request::Span;
use std::borrow::Cow;
use store::{Cold, Key, Keyspace, NoEdit, NotHeld};
use value::list::Limit;

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

/// A reply of random elements longer than this is refused: a negative count could ask for any length.
pub const REPLY_BYTES_MAX: usize = 512 * 1024 * 1024;

/// A command's arguments, owned, so that they outlive the batch.
#[derive(Debug, Clone)]
pub struct OwnedArgs {
    bytes: Box<[u8]>,
    spans: Box<[Span]>,
}

impl OwnedArgs {
    pub fn new(args: Args<'_>) -> OwnedArgs {
        let mut bytes = Vec::with_capacity(args.from(0).map(<[u8]>::len).sum());
        let spans = args
            .from(0)
            .map(|arg| {
                let span = Span { start: bytes.len() as u32, len: arg.len() as u32 };
                bytes.extend_from_slice(arg);
                span
            })
            .collect();
        OwnedArgs { bytes: bytes.into(), spans }
    }

    pub fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }

    /// Memory that the arguments take when they are owned.
    pub fn mem_bytes_of(args: Args<'_>) -> usize {
        args.from(0).map(<[u8]>::len).sum::<usize>() + args.len() * size_of::<Span>()
    }
}

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
