//! Owns the Redis serialization protocol, RESP2 and RESP3: bytes to borrowed arguments, replies to bytes, and the
//! client's side of both. Never knows a command, a key, a socket or a clock: bytes come in as slices, bytes go out
//! into a `Vec<u8>`. Nothing here waits, except a [`Connection`] on the stream that it was given.
//!
//! | module | who uses it | what it does |
//! | --- | --- | --- |
//! | [`request`] | server | commands out of a receive buffer, as spans into it |
//! | [`Args`] | server, command handlers | the arguments of one command, borrowed through its spans |
//! | [`reply`] | command handlers | replies appended to an output buffer, in the connection's protocol version |
//! | [`client`] | whoever asks a server | commands encoded, replies skipped or read into a tree |
//! | [`extent`] | proxies | the end of a reply that is passed on while it arrives |
//! | [`Connection`] | tools, the HTTP API, tests | a client's connection over any stream, blocking |
//! | [`long_double`] | command handlers | the decimal arithmetic of INCRBYFLOAT |
//! | [`number`] | all of them | integers and doubles as text, exactly as Redis prints and accepts them |
//!
//! Sources: <https://redis.io/docs/latest/develop/reference/protocol-spec/> and the RESP3 specification,
//! <https://github.com/redis/redis-specifications/blob/master/protocol/RESP3.md>.

#![forbid(unsafe_code)]

mod args;
pub mod client;
pub mod connection;
pub mod extent;
mod grisu;
mod inline;
mod line;
pub mod long_double;
pub mod number;
pub mod reply;
pub mod request;

pub use args::Args;
pub use connection::Connection;
pub use inline::words;
pub use long_double::LongDouble;
pub use number::format_double;
pub use reply::{Mark, Out, Proto};
pub use request::{Limits, Parsed, Progress, ProtocolError, Skipped, Source, Span, parse, skip};
