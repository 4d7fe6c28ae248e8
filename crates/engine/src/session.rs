//! Owns a connection: its socket, its state, and the buffers that it holds while it has work. Never knows what a
//! command is; `worker` runs commands.

use crate::ahead::Ahead;
use crate::clients::{ClientInfo, Transport};
use crate::directory::CommandPlace;
use crate::fair_queue::Turn;
use crate::halt::End;
use crate::memory::{FREE_BYTES, Memory, Need, Request, TooMuch};
use crate::nested_poll;
use crate::task_slot::OwnTaskSlot;
use crate::thread::Worker;
use commands::Args;
use commands::host::Space;
use commands::session::{Reply, Session};
use resp::{Limits, Out, Parsed, Progress, ProtocolError, Skipped, Source, Span, parse, skip};
use rustix::net::{RecvFlags, SendFlags};
use std::borrow::Cow;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Waker, ready};
use store::{KeyHash, ReadError, Resume, Ticket};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

pub enum Stream {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TlsSocket>>),
    Unix(UnixStream),
    Memory(MemoryStream),
}

/// A client in this process, without a descriptor.
pub struct MemoryStream {
    pub stream: DuplexStream,
    /// What has arrived is still read, and then the end of the input.
    pub is_shut: Arc<AtomicBool>,
}

/// The socket under a TLS stream.
pub struct TlsSocket(pub TcpStream);

impl AsyncRead for TlsSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let socket = &mut self.get_mut().0;
        let polled = Pin::new(&mut *socket).poll_read(cx, buf);
        nested_poll::read(socket, buf, polled)
    }
}

impl AsyncWrite for TlsSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let socket = &mut self.get_mut().0;
        let polled = Pin::new(&mut *socket).poll_write(cx, bytes);
        nested_poll::write(socket, bytes, polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let socket = &mut self.get_mut().0;
        let polled = Pin::new(&mut *socket).poll_write_vectored(cx, parts);
        let first = parts.iter().find(|part| !part.is_empty()).map_or(&[][..], |part| part);
        nested_poll::write(socket, first, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(cx)
    }
}

impl Stream {
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // `try_io` without a read tells whether the runtime knows of bytes. It takes a third of the instructions of a poll, which is needed
        // only to wait.
        let polled = match self {
            Stream::Tcp(stream) if stream.try_io(Interest::READABLE, || Ok(())).is_ok() => Poll::Ready(Ok(())),
            Stream::Tcp(stream) => stream.poll_read_ready(cx),
            // Bytes that are already decrypted do not show at the socket, so only a read can tell.
            Stream::Tls(_) | Stream::Memory(_) => Poll::Ready(Ok(())),
            Stream::Unix(stream) if stream.try_io(Interest::READABLE, || Ok(())).is_ok() => Poll::Ready(Ok(())),
            Stream::Unix(stream) => stream.poll_read_ready(cx),
        };
        if polled.is_pending() && nested_poll::is_on() { Poll::Ready(Ok(())) } else { polled }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        if let Some(received) = self.try_read(buf) {
            return Poll::Ready(received);
        }
        let mut buf = ReadBuf::new(buf);
        ready!(match self {
            Stream::Tcp(stream) => {
                let polled = Pin::new(&mut *stream).poll_read(cx, &mut buf);
                nested_poll::read(stream, &mut buf, polled)
            }
            Stream::Tls(stream) => match ready!(Pin::new(stream).poll_read(cx, &mut buf)) {
                // Many clients close without the TLS close message.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
                read => Poll::Ready(read),
            },
            Stream::Unix(stream) => {
                let polled = Pin::new(&mut *stream).poll_read(cx, &mut buf);
                nested_poll::read(stream, &mut buf, polled)
            }
            Stream::Memory(MemoryStream { stream, is_shut }) => {
                let polled = Pin::new(stream).poll_read(cx, &mut buf);
                if polled.is_pending() && is_shut.load(Relaxed) { Poll::Ready(Ok(())) } else { polled }
            }
        })?;
        Poll::Ready(Ok(buf.filled().len()))
    }

    /// Receives what the socket holds, if the runtime knows that it holds something: the usual case, in half the
    /// instructions of AsyncRead.
    fn try_read(&self, buf: &mut [u8]) -> Option<io::Result<usize>> {
        let mut received = None;
        let tried = match self {
            Stream::Tcp(stream) => stream.try_io(Interest::READABLE, || receive(stream, buf, &mut received)),
            Stream::Unix(stream) => stream.try_io(Interest::READABLE, || receive(stream, buf, &mut received)),
            Stream::Tls(_) | Stream::Memory(_) => return None,
        };
        match (received, tried) {
            (Some(count), _) => Some(Ok(count)),
            (None, Err(error)) if error.kind() != io::ErrorKind::WouldBlock => Some(Err(error)),
            (None, _) => None,
        }
    }

    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Stream::Tcp(stream) => {
                let polled = Pin::new(&mut *stream).poll_write(cx, bytes);
                nested_poll::write(stream, bytes, polled)
            }
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Memory(memory) => Pin::new(&mut memory.stream).poll_write(cx, bytes),
            Stream::Unix(stream) => {
                let polled = Pin::new(&mut *stream).poll_write(cx, bytes);
                nested_poll::write(stream, bytes, polled)
            }
        }
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) if !nested_poll::is_on() => {
                stream.try_io(Interest::WRITABLE, || transmit(&*stream, bytes))
            }
            Stream::Unix(stream) if !nested_poll::is_on() => {
                stream.try_io(Interest::WRITABLE, || transmit(&*stream, bytes))
            }
            // No waker is needed: the caller asks again with `poll_write` or `poll_flush` for what is pending.
            stream => match stream.poll_write(&mut Context::from_waker(Waker::noop()), bytes) {
                Poll::Ready(written) => written,
                Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
            },
        }
    }

    /// Sends what TLS has encrypted and the socket has not taken.
    #[inline]
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tcp(_) | Stream::Unix(_) | Stream::Memory(_) => Poll::Ready(Ok(())),
        }
    }

    /// Whether the socket has taken all encrypted bytes.
    #[inline]
    fn is_flushed(&self) -> bool {
        match self {
            Stream::Tls(stream) => !stream.get_ref().1.wants_write(),
            Stream::Tcp(_) | Stream::Unix(_) | Stream::Memory(_) => true,
        }
    }

    /// Sends the end of the stream, if the protocol has such a message.
    pub fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Memory(memory) => Pin::new(&mut memory.stream).poll_shutdown(cx),
            Stream::Tcp(_) | Stream::Unix(_) => Poll::Ready(Ok(())),
        }
    }

    /// Whether only the connection's task can send: TLS must encrypt bytes in order, and a stream in memory has no descriptor.
    pub fn is_sent_by_task(&self) -> bool {
        matches!(self, Stream::Tls(_) | Stream::Memory(_))
    }

    /// How other threads reach it.
    pub fn transport(&self) -> Transport {
        match self {
            Stream::Tcp(stream) => Transport::Socket(stream.as_raw_fd()),
            Stream::Tls(stream) => Transport::Socket(stream.get_ref().0.0.as_raw_fd()),
            Stream::Unix(stream) => Transport::Socket(stream.as_raw_fd()),
            Stream::Memory(memory) => Transport::Memory(Arc::clone(&memory.is_shut)),
        }
    }
}

/// One receive, for tokio's `try_io`. A read that does not fill the buffer has emptied the socket. Then the runtime gets
/// WouldBlock, so that it waits for more, and no second read finds nothing. The end of the input stays readable.
fn receive(socket: impl AsFd, buf: &mut [u8], received: &mut Option<usize>) -> io::Result<()> {
    let (count, _) = rustix::net::recv(socket, &mut *buf, RecvFlags::DONTWAIT)?;
    *received = Some(count);
    if 0 < count && count < buf.len() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
}

/// One send, for tokio's `try_io`.
fn transmit(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?)
}

pub struct Connection {
    pub worker: Rc<Worker>,
    pub stream: Stream,
    pub session: Session,
    pub client_info: Arc<ClientInfo>,
    /// None while the connection is idle: ten thousand idle connections hold no buffers.
    pub work: Option<Box<Work>>,
    /// The memory that the connection waits for.
    pub request: Request,
    /// The connection's place among those that have much to do.
    turn: Turn,
    /// When its last turn came, in clock ticks.
    turn_since: u64,
    /// The memory that was granted for the command that is being received.
    query_granted: usize,
    /// The client has sent all that it will send, and still gets replies.
    pub has_ended: bool,
    /// Open while the connection waits for its client and for nothing else.
    pub task_slot: OwnTaskSlot,
}

/// The buffers of a connection that has work. They come from the worker's pool and go back to it.
pub struct Work {
    pub batch: Batch,
    pub output: Vec<u8>,
    /// Bytes of `output` that were sent.
    sent: usize,
    /// The position of the journal up to which the output shows changes. The output is sent when this position is safe.
    seen: u64,
    /// The journal has grown while this connection's commands ran, so they may have written.
    may_have_written: bool,
    pub current: Current,
    /// Reads for later commands of the batch.
    pub prefetched: Vec<Ticket>,
    /// Scratch for [`commands::Keys::positions`].
    pub positions: Vec<usize>,
}

/// The state of the running command, kept across its attempts.
#[derive(Default)]
pub struct Current {
    pub resume: Resume,
    /// When the command was first tried, in clock ticks; `None`: not yet.
    pub begun: Option<u64>,
    /// The command has been tried before.
    pub again: bool,
    /// How often the command met a cold value.
    pub misses: u32,
    /// The command has waited for room, and may write now.
    pub has_room: bool,
    /// The script wants every stripe.
    pub whole: bool,
    /// Why the command cannot go on.
    pub failed: Option<Failed>,
    /// The reads that the command waits for.
    pub awaited: Vec<Ticket>,
}

/// Why a command cannot go on.
pub enum Failed {
    Read(ReadError),
    /// The memory that it claims cannot be had. The text is its reply.
    Memory(Cow<'static, str>),
}

/// The large buffers of a [`Work`].
pub struct Buffers {
    input: Vec<u8>,
    output: Vec<u8>,
}

/// Received bytes and the commands found in them.
pub struct Batch {
    /// Initialised over its whole length; the first `filled` bytes were received.
    input: Vec<u8>,
    filled: usize,
    /// Bytes of `input` whose commands are in the batch or done.
    parsed: usize,
    progress: Progress,
    /// The rest of the input is an incomplete command. It needs `need` more bytes, if the client's lengths are true.
    starved: bool,
    need: usize,
    /// The rest of the input belongs to a command that was refused before it had arrived.
    skips: bool,
    /// What was received while the input was full of commands that have not run. It comes behind the input.
    ahead: Ahead,
    /// The last read filled the buffer, so more bytes are probably waiting.
    pub was_full: bool,
    spans: Vec<Span>,
    pub commands: Vec<ArgumentSpan>,
    /// The index of the command that runs next.
    pub next: usize,
    /// Commands before this index were prefetched, or were too few for prefetching.
    pub prepared: usize,
    /// Commands before this index were probed, and the reads of their cold keys have started. 0 if no command was
    /// cold.
    pub probed: usize,
    /// How many more times the commands before `probed` may be rehearsed for the parts that they need.
    pub rehearsals: u32,
    /// What is already known of the commands from here to `prepared`. Empty if they were too few.
    pub prepared_from: usize,
    pub prepared_commands: Vec<Prepared>,
    pub broken: Option<ProtocolError>,
}

/// What is known of a command before its turn.
#[derive(Clone, Copy)]
pub struct Prepared {
    /// `None`: there is no such command.
    pub command: Option<CommandPlace>,
    /// The hash of its key, if it has one key at a fixed position.
    pub hash: Option<KeyHash>,
}

/// The position of one command's arguments in a batch.
#[derive(Clone, Copy)]
pub struct ArgumentSpan {
    /// The command's first byte in the input.
    base: u32,
    first_span: u32,
    spans: u32,
    source: Source,
}

/// Bytes of a new receive buffer: some hundred small commands, and small enough for the second-level cache.
const INPUT_BYTES: usize = 64 * 1024;
/// The same while memory is scarce.
const INPUT_BYTES_SMALL: usize = 16 * 1024;
/// A receive buffer that has grown beyond this is not kept.
const INPUT_KEPT_BYTES: usize = 256 * 1024;
/// The most bytes of one receive.
const RECEIVE_BYTES_MAX: usize = 1 << 20;
/// Sends of one turn, and the bytes of each: with a client that reads as fast as it can, one send could take all of a
/// large reply. The rest is sent after other connections had their turn.
const SENDS_MAX: usize = 4;
const SEND_BYTES_MAX: usize = 256 << 10;
/// Bytes of a new output buffer, and spans of a new batch: enough for a usual pipeline without growing.
const OUTPUT_BYTES: usize = 16 * 1024;
const SPANS_USUAL: usize = 256;
/// An output buffer that has grown beyond this is not kept.
const OUTPUT_KEPT_BYTES: usize = 256 * 1024;
/// The most commands in one batch, so that other connections get their turn.
pub const BATCH_COMMANDS_MAX: usize = 1000;
/// A list of spans that has grown beyond this (a command of a million arguments) is not kept.
const SPANS_KEPT: usize = 16 * 1024;

impl Buffers {
    /// For a connection that comes while memory is scarce.
    pub fn small() -> Buffers {
        Buffers { input: vec![0; INPUT_BYTES_SMALL], output: Vec::new() }
    }
}

impl Default for Buffers {
    fn default() -> Buffers {
        Buffers { input: vec![0; INPUT_BYTES], output: Vec::with_capacity(OUTPUT_BYTES) }
    }
}

impl Batch {
    fn new(input: Vec<u8>) -> Batch {
        Batch {
            input,
            filled: 0,
            parsed: 0,
            progress: Progress::default(),
            starved: false,
            need: 0,
            skips: false,
            ahead: Ahead::default(),
            was_full: false,
            spans: Vec::with_capacity(SPANS_USUAL),
            commands: Vec::with_capacity(SPANS_USUAL / 4),
            next: 0,
            prepared: 0,
            prepared_from: 0,
            probed: 0,
            rehearsals: 0,
            prepared_commands: Vec::new(),
            broken: None,
        }
    }

    /// Whether bytes were received that are not parsed.
    #[inline]
    pub fn has_input(&self) -> bool {
        self.parsed < self.filled
    }

    fn is_done(&self) -> bool {
        !self.has_input() && self.next == self.commands.len() && !self.skips && self.ahead.is_empty()
    }

    fn clear(&mut self) {
        self.filled = 0;
        self.parsed = 0;
        self.starved = false;
        self.commands.clear();
        self.next = 0;
        if self.input.len() > INPUT_KEPT_BYTES {
            self.input = vec![0; INPUT_BYTES];
        }
        if self.spans.capacity() > SPANS_KEPT {
            self.spans = Vec::new();
        }
    }

    /// While its commands wait, a batch keeps only as much input buffer as it needs, because thousands of connections
    /// may wait at once. Returns the buffer that it gives up.
    fn shrink(&mut self) -> Option<Vec<u8>> {
        if self.filled > self.input.len() / 4 || self.input.len() < INPUT_BYTES_SMALL {
            return None;
        }
        let small = self.input[..self.filled].to_vec();
        Some(std::mem::replace(&mut self.input, small))
    }

    /// Bytes of memory that it holds.
    fn mem_bytes(&self) -> usize {
        self.input.len()
            + self.ahead.mem_bytes()
            + self.spans.capacity() * size_of::<Span>()
            + self.progress.heap_bytes()
    }

    /// The size that the input buffer must get before more of an incomplete command can be received: between twice and four times the
    /// bytes received. The length that the client claims only chooses within this range. `None`: it has room.
    fn grows_to(&self) -> Option<usize> {
        let is_full = self.filled == self.input.len() && self.parsed == 0;
        is_full.then(|| self.need.clamp(self.filled * 2, self.filled * 4).max(INPUT_BYTES))
    }

    /// The bytes that the client has announced for an incomplete command.
    pub fn announced(&self) -> usize {
        if self.starved { self.need } else { 0 }
    }

    /// Makes room at the end of the input.
    fn make_room(&mut self) {
        if self.parsed > 0 {
            self.input.copy_within(self.parsed..self.filled, 0);
            self.filled -= self.parsed;
            self.parsed = 0;
        }
        if self.filled == 0 && self.input.len() > INPUT_KEPT_BYTES {
            // Of a command that was refused.
            self.input = vec![0; INPUT_BYTES];
        }
    }

    /// Gives the input buffer this size.
    fn grow(&mut self, bytes: usize) {
        // The kernel gives the pages when the bytes arrive.
        let mut larger = vec![0; bytes];
        larger[..self.filled].copy_from_slice(&self.input[..self.filled]);
        self.input = larger;
    }

    /// Moves what was received ahead into the input, as far as there is room. Returns whether that was something.
    fn take_ahead(&mut self) -> bool {
        if !self.ahead.is_empty() && self.input.len() < INPUT_BYTES {
            self.grow(INPUT_BYTES);
        }
        let taken = self.ahead.take(&mut self.input[self.filled..]);
        self.filled += taken;
        self.starved &= taken == 0;
        self.was_full |= taken > 0;
        taken > 0
    }

    /// Where the next bytes are received: bounded, because others wait meanwhile.
    fn room(&mut self) -> &mut [u8] {
        let end = self.input.len().min(self.filled + RECEIVE_BYTES_MAX);
        &mut self.input[self.filled..end]
    }

    /// Whether bytes that come now, while commands of the batch have not run, need another piece of memory.
    fn lacks_room_ahead(&self) -> bool {
        !self.ahead.has_room() && (self.filled == self.input.len() || !self.ahead.is_empty())
    }

    /// Where bytes are received while commands of the batch have not run: the existing ones stay in place.
    fn room_ahead(&mut self) -> &mut [u8] {
        if self.ahead.is_empty() && self.filled < self.input.len() { self.room() } else { self.ahead.room() }
    }

    /// So many bytes have arrived in [`Batch::room_ahead`].
    fn received_ahead(&mut self, bytes: usize) {
        if self.ahead.is_empty() && self.filled < self.input.len() {
            self.filled += bytes;
            self.starved = false;
            self.was_full = self.filled == self.input.len();
        } else {
            self.ahead.fill(bytes);
        }
    }

    /// The bytes that were received and have not run.
    fn received_bytes(&self) -> usize {
        self.filled - self.parsed + self.ahead.bytes()
    }

    /// Discards the incomplete command: its bytes are dropped as they arrive. False: the command is a line, which cannot be discarded.
    fn skip(&mut self) -> bool {
        self.skips = self.starved && self.progress.can_skip();
        self.starved = false;
        self.skips
    }

    /// Drops more bytes of the discarded command. Returns whether the command is over.
    #[cold]
    fn skip_more(&mut self, limits: &Limits) -> bool {
        match skip(&self.input[self.parsed..self.filled], &mut self.progress, limits) {
            Ok(Skipped { consumed, is_complete }) => {
                self.parsed += consumed;
                self.skips = !is_complete;
            }
            Err(error) => self.broken = Some(error),
        }
        !self.skips
    }

    /// Whether it holds so much that its commands are run in a turn.
    pub fn is_large(&self) -> bool {
        self.filled > INPUT_KEPT_BYTES
    }

    /// Parses the complete commands of the input, at most `count_max`.
    pub fn parse(&mut self, limits: &Limits, count_max: usize) {
        self.commands.clear();
        self.next = 0;
        self.prepared = 0;
        self.probed = 0;
        self.rehearsals = 0;
        self.prepared_commands.clear();
        self.spans.clear();
        self.progress.clear_unquoted();
        if self.skips && !self.skip_more(limits) {
            return;
        }
        while self.parsed < self.filled && self.commands.len() < count_max && self.broken.is_none() && !self.starved {
            let first_span = self.spans.len();
            let input = &self.input[self.parsed..self.filled];
            match parse(input, &mut self.progress, limits, &mut self.spans) {
                Ok(Parsed::Complete { consumed, source }) => {
                    let spans = self.spans.len() - first_span;
                    if spans > 0 {
                        self.commands.push(ArgumentSpan {
                            base: self.parsed as u32,
                            first_span: first_span as u32,
                            spans: spans as u32,
                            source,
                        });
                    }
                    self.parsed += consumed;
                }
                Ok(Parsed::Incomplete { need }) => {
                    self.starved = true;
                    self.need = need;
                }
                Err(error) => self.broken = Some(error),
            }
        }
    }

    #[inline]
    pub fn args(&self, place: ArgumentSpan) -> Args<'_> {
        let bytes = match place.source {
            Source::Input => &self.input[place.base as usize..],
            Source::Unquoted => self.progress.unquoted(),
        };
        let first = place.first_span as usize;
        Args::new(bytes, &self.spans[first..first + place.spans as usize])
    }

    /// The bytes received from this command on.
    pub fn bytes_from(&self, place: ArgumentSpan) -> usize {
        self.filled - place.base as usize + self.ahead.bytes()
    }

    /// What [`crate::prefetch::prepare`] found out about the running command, if it did.
    #[inline]
    pub fn known(&self) -> Option<&Prepared> {
        self.prepared_commands.get(self.next.wrapping_sub(self.prepared_from))
    }
}

impl Work {
    pub fn new(buffers: Buffers) -> Work {
        Work {
            batch: Batch::new(buffers.input),
            output: buffers.output,
            sent: 0,
            seen: 0,
            may_have_written: false,
            current: Current::default(),
            prefetched: Vec::new(),
            positions: Vec::new(),
        }
    }

    /// Gives up the large buffers, if the waiting commands need little of them.
    pub fn lend(&mut self) -> Option<Buffers> {
        let input = self.batch.shrink()?;
        let output = if self.output.is_empty() { std::mem::take(&mut self.output) } else { Vec::new() };
        Some(Buffers { input, output })
    }

    /// For a cleared `Work`: whether its buffers are larger than those of a new one.
    pub fn has_grown(&self) -> bool {
        self.batch.input.len() > INPUT_BYTES || self.output.capacity() > 2 * OUTPUT_BYTES
    }

    /// For a cleared `Work`: whether it has lent its buffers.
    pub fn lacks_buffers(&self) -> bool {
        self.batch.input.len() < INPUT_BYTES_SMALL
    }

    pub fn equip(&mut self, buffers: Buffers) {
        self.batch.input = buffers.input;
        if self.output.capacity() < buffers.output.capacity() {
            self.output = buffers.output;
        }
    }

    /// The commands of this output have run between these positions of the journal.
    #[inline]
    pub fn has_seen(&mut self, from: u64, to: u64) {
        self.seen = to;
        self.may_have_written |= from < to;
    }

    /// Whether nothing in it belongs to a connection any more.
    fn is_idle(&self) -> bool {
        self.batch.is_done() && !self.has_output()
    }

    /// Resets it, and keeps memory up to the bounds above.
    pub fn clear(&mut self) {
        self.batch.clear();
        self.clear_output();
    }

    fn clear_output(&mut self) {
        self.output.clear();
        self.sent = 0;
        self.may_have_written = false;
        if self.output.capacity() > OUTPUT_KEPT_BYTES {
            self.output = Vec::new();
        }
    }

    /// Sets the connection's charge to the memory that it really holds.
    fn update_charge(&self, memory: &Memory, client_info: &ClientInfo, session: &Session, query_granted: usize) {
        if query_granted == 0 && session.claim.room < client_info.room_bytes.load(Relaxed) {
            memory.keep_room(client_info, session.claim.room);
        }
        let batch_bytes = self.batch.mem_bytes().max(query_granted);
        let held = batch_bytes + self.output.capacity() + session.kept_bytes() + session.claim.granted;
        if held != client_info.held_bytes.load(Relaxed) {
            memory.hold(client_info, held);
        }
    }

    pub fn has_output(&self) -> bool {
        self.sent < self.output.len()
    }

    pub fn unsent(&self) -> &[u8] {
        &self.output[self.sent..]
    }

    /// The bytes of one send.
    fn next_to_send(&self) -> &[u8] {
        let unsent = self.unsent();
        &unsent[..unsent.len().min(SEND_BYTES_MAX)]
    }
}

impl Connection {
    pub fn new(
        worker: Rc<Worker>,
        stream: Stream,
        session: Session,
        client_info: Arc<ClientInfo>,
        task_slot: OwnTaskSlot,
    ) -> Connection {
        Connection {
            worker,
            stream,
            session,
            client_info,
            work: None,
            request: Request::default(),
            turn: Turn::default(),
            turn_since: 0,
            query_granted: 0,
            has_ended: false,
            task_slot,
        }
    }

    /// Waits for bytes. Meanwhile sends the output that the client has not taken.
    pub fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        if self.work.is_none() && self.client_info.outbox.wants_task() {
            self.work = Some(self.worker.take_work());
        }
        if let Some(work) = &self.work {
            if work.has_output() || self.client_info.outbox.is_held() || !self.stream.is_flushed() {
                // Read input even while the socket is full: a client may write a whole pipeline before it reads.
                let _ = self.poll_send(cx)?;
            }
            self.tidy();
        }
        if self.work.is_none() {
            ready!(self.stream.poll_read_ready(cx)).map_err(io_end)?;
        }
        if self.has_ended && self.work.as_ref().is_none_or(|work| work.batch.ahead.is_empty()) {
            return Poll::Ready(Err(End::Eof));
        }
        let work = self.work.get_or_insert_with(|| self.worker.take_work());
        work.current.resume.client = self.session.id;
        if self.request.is_open() && work.batch.grows_to().is_none() {
            self.withdraw();
        }
        let Some(work) = &mut self.work else { return Poll::Pending };
        if let Some(bytes) = work.batch.grows_to() {
            match ready!(self.poll_query_room(bytes, cx))? {
                Ok(bytes) => {
                    if bytes > INPUT_KEPT_BYTES {
                        // Making a larger buffer takes long, so it is done in the connection's turn.
                        ready!(self.poll_turn(cx));
                    }
                    let Some(work) = &mut self.work else { return Poll::Pending };
                    work.batch.grow(bytes);
                }
                Err(too_much) => {
                    self.refuse_query(too_much)?;
                    return Poll::Ready(Ok(()));
                }
            }
        }
        let Some(work) = &mut self.work else { return Poll::Pending };
        let batch = &mut work.batch;
        batch.make_room();
        batch.was_full = false;
        if batch.take_ahead() {
            // These commands count as if they arrived now: after the client was killed they do not run.
            if self.client_info.killed.load(Relaxed) {
                return Poll::Ready(Err(End::Killed));
            }
        } else {
            let received = match self.stream.poll_read(cx, batch.room()) {
                Poll::Ready(received) => received.map_err(io_end)?,
                Poll::Pending => {
                    self.tidy();
                    return Poll::Pending;
                }
            };
            let Some(Work { batch, .. }) = self.work.as_deref_mut() else { return Poll::Pending };
            batch.filled += received;
            batch.starved = false;
            batch.was_full = batch.filled == batch.input.len();
            self.received(received)?;
        }
        self.client_info.outbox.hold();
        Poll::Ready(Ok(()))
    }

    /// Waits for the memory of a larger input buffer, and returns its size. Asks for the whole command at once: connections that each
    /// hold a part of a command would wait for each other.
    #[cold]
    fn poll_query_room(&mut self, bytes: usize, cx: &mut Context<'_>) -> Poll<Result<Result<usize, TooMuch>, End>> {
        let (announced, ahead) =
            self.work.as_ref().map_or((0, 0), |work| (work.batch.announced(), work.batch.ahead.mem_bytes()));
        let memory = &self.worker.hub.dataset.memory;
        if let Err(too_much) = memory.check_query(announced) {
            return Poll::Ready(Ok(Err(too_much)));
        }
        // If memory is limited, the size that the client claims is charged to it, so its buffer may be as large as that.
        let bytes = if memory.bytes_max().is_some() { bytes.max(announced) } else { bytes };
        if bytes <= self.query_granted {
            return Poll::Ready(Ok(Ok(bytes)));
        }
        // Most of a long command becomes an object while the command is still held. What has arrived already is charged.
        let room = if announced > FREE_BYTES { announced } else { 0 };
        let need = Need {
            bytes: (bytes - self.query_granted).saturating_sub(ahead),
            room: room.saturating_sub(self.client_info.room_bytes.load(Relaxed)),
        };
        let polled = memory.poll_ask(&self.client_info, need, &mut self.request, cx);
        if matches!(polled, Poll::Ready(Ok(()))) {
            self.query_granted = bytes;
        }
        // Commands that arrive after a client was killed do not run.
        if polled.is_ready() && self.client_info.killed.load(Relaxed) {
            return Poll::Ready(Err(End::Killed));
        }
        polled.map(|granted| Ok(granted.map(|()| bytes)))
    }

    /// The client's command needs more memory than there is. The reply is an error, and the rest of the command is dropped as it arrives.
    #[cold]
    pub fn refuse_query(&mut self, too_much: TooMuch) -> Result<(), End> {
        let Connection { worker, session, client_info, work, .. } = self;
        let Some(work) = work else { return Ok(()) };
        // A command of a primary is never dropped.
        if session.repeats || !work.batch.skip() {
            return Err(End::Memory(too_much));
        }
        work.batch.skip_more(&worker.config_snapshot().limits);
        self.query_granted = 0;
        if let Some(multi) = &mut session.multi {
            multi.fail();
            client_info.publish(session);
        }
        let (reply_from, text) = (work.output.len(), too_much.text());
        Out::new(&mut work.output, session.proto).error(&text);
        worker.stats().error(&text);
        if session.reply != Reply::On {
            withhold(session, &mut work.output, reply_from);
        }
        Ok(())
    }

    /// Asks for memory no more: see [`Memory::withdraw`].
    pub fn withdraw(&mut self) {
        self.worker.hub.dataset.memory.withdraw(&mut self.request);
    }

    /// The commands received so far have run: what was granted for them is free, unless one is incomplete.
    #[inline]
    pub fn query_done(&mut self) {
        if self.query_granted > 0 && self.work.as_ref().is_none_or(|work| work.batch.announced() == 0) {
            self.query_granted = 0;
        }
    }

    /// Accounts for `received` new bytes.
    fn received(&mut self, received: usize) -> Result<(), End> {
        // Commands that arrive after a client was killed do not run.
        if self.client_info.killed.load(Relaxed) {
            return Err(End::Killed);
        }
        if received == 0 {
            return Err(End::Eof);
        }
        let Some(Work { batch, .. }) = self.work.as_deref_mut() else { return Ok(()) };
        self.worker.stats().net_in_bytes.add(received as u64);
        let waiting = batch.received_bytes();
        // The limit is at least a megabyte. What a primary has accepted, or a journal has, is not refused here.
        if waiting > INPUT_BYTES && waiting > self.worker.config_snapshot().query_bytes_max && !self.session.repeats {
            self.worker.stats().query_limit_closed.add(1);
            return Err(End::QueryLimit);
        }
        Ok(())
    }

    /// Another part will answer the running command. The batch continues with the next command, and releases the
    /// tickets that it holds for the current one.
    pub fn hand_over(&mut self) {
        let Some(work) = &mut self.work else { return };
        work.current.end(self.worker.stats());
        work.current.begun = None;
        work.batch.next += 1;
        let mut lane = self.worker.lane();
        work.prefetched.drain(..).for_each(|ticket| lane.release(ticket));
    }

    /// Receives while a command waits: appends new bytes to the input, and sends the output that the client has not
    /// taken. An error means that the connection is over.
    pub fn poll_listen(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        if self.work.is_none() && self.client_info.outbox.wants_task() {
            self.work = Some(self.worker.take_work());
        }
        loop {
            if let Poll::Ready(Err(end)) = self.poll_send(cx) {
                return Err(end);
            }
            self.tidy();
            if self.work.is_none() && self.stream.poll_read_ready(cx).map_err(io_end)?.is_pending() {
                return Ok(());
            }
            let work = self.work.get_or_insert_with(|| self.worker.take_work());
            if work.batch.lacks_room_ahead() {
                // Without memory the connection is not read from: the client waits until it is its turn.
                if self
                    .worker
                    .hub
                    .dataset
                    .memory
                    .poll_ahead(&self.client_info, Ahead::PIECE_BYTES, &mut self.request, cx)
                    .is_pending()
                {
                    return Ok(());
                }
                work.batch.ahead.grow();
            }
            let received = match self.stream.poll_read(cx, work.batch.room_ahead()) {
                Poll::Ready(received) => received.map_err(io_end)?,
                Poll::Pending => {
                    work.batch.ahead.trim();
                    self.tidy();
                    return Ok(());
                }
            };
            work.batch.received_ahead(received);
            self.received(received)?;
        }
    }

    /// Waits for the connection's turn among those that have much to do. A turn lasts for a bounded time.
    /// While a thread is blocked, its connections take no turns.
    pub fn poll_turn(&mut self, cx: &Context<'_>) -> Poll<()> {
        if nested_poll::is_on() {
            return Poll::Ready(());
        }
        let now = self.worker.ticks();
        if now.saturating_sub(self.turn_since) > self.worker.turn_ticks {
            ready!(self.worker.fair_queue.poll(&mut self.turn, cx));
            self.turn_since = now;
        }
        Poll::Ready(())
    }

    /// Whether its command runs in slices.
    pub fn is_in_slices(&self) -> bool {
        self.work.as_ref().is_some_and(|work| work.current.resume.is_in_slices())
    }

    /// The connection's turn is over, however short it was. A command in slices runs one slice a turn: others wait for it at most.
    pub fn end_turn(&mut self) {
        self.turn_since = 0;
    }

    /// Waits until all output is sent. Meanwhile receives: a client may write a whole pipeline before it reads. Each
    /// attempt is a turn.
    pub fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        ready!(self.poll_turn(cx));
        if self.client_info.killed.load(Relaxed) {
            return Poll::Ready(Err(End::Killed));
        }
        if self.has_ended {
            return self.poll_send(cx);
        }
        match self.poll_listen(cx) {
            Err(End::Eof) => self.has_ended = true,
            listened => listened?,
        }
        match &self.work {
            Some(work) if work.has_output() => Poll::Pending,
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Waits for the memory that the running command claims. Meanwhile sends the earlier replies.
    pub fn poll_claim(&mut self, cx: &mut Context<'_>) -> Poll<Result<Result<(), TooMuch>, End>> {
        if let Poll::Ready(Err(end)) = self.poll_send(cx) {
            return Poll::Ready(Err(end));
        }
        let (memory, claim) = (&self.worker.hub.dataset.memory, self.session.claim);
        if let Err(too_much) = memory.check(Need { bytes: claim.wanted, room: claim.room }) {
            return Poll::Ready(Ok(Err(too_much)));
        }
        let need = Need { bytes: claim.wanted - claim.granted, room: claim.room - claim.room_granted };
        memory.poll_ask(&self.client_info, need, &mut self.request, cx).map(Ok)
    }

    /// Sends until all output is sent (Ready), or the socket is full (Pending; the task is woken when the socket has
    /// room).
    pub fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        let mut sends = 0;
        loop {
            let Some(work) = &mut self.work else { return Poll::Ready(Ok(())) };
            while work.has_output() {
                if sends == SENDS_MAX {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                sends += 1;
                let journaling = &self.worker.hub.dataset.journaling;
                ready!(self.worker.commit_waiter.poll_safe(work.seen, cx));
                if work.may_have_written && journaling.has_lost(work.seen) {
                    return Poll::Ready(Err(End::Journal));
                }
                let sent = ready!(self.stream.poll_write(cx, work.next_to_send())).map_err(io_end)?;
                work.sent += sent;
                // A client that reads, however slowly, is not idle.
                self.client_info.active_ms.store(self.worker.now_ms(), Relaxed);
                self.worker.stats().net_out_bytes.add(sent as u64);
            }
            ready!(self.stream.poll_flush(cx)).map_err(io_end)?;
            if !self.sent_all() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// The one send of a batch. What the socket does not take is sent while the connection waits for more input.
    pub fn send(&mut self) -> Result<(), End> {
        for _ in 0..SENDS_MAX {
            let Some(work) = &mut self.work else { return Ok(()) };
            if !work.has_output() && !self.stream.is_flushed() {
                break;
            }
            if !work.has_output() && !self.sent_all() {
                return Ok(());
            }
            let Some(work) = &mut self.work else { return Ok(()) };
            let journaling = &self.worker.hub.dataset.journaling;
            if !journaling.is_safe(work.seen) {
                break;
            }
            if work.may_have_written && journaling.has_lost(work.seen) {
                return Err(End::Journal);
            }
            match self.stream.try_write(work.next_to_send()) {
                Ok(sent) => {
                    work.sent += sent;
                    self.worker.stats().net_out_bytes.add(sent as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(io_end(error)),
            }
        }
        self.held_back()
    }

    /// Called when all output is sent. Returns true if the outbox had messages, which are now the output.
    fn sent_all(&mut self) -> bool {
        let Some(work) = &mut self.work else { return false };
        work.clear_output();
        if self.client_info.output_bytes.load(Relaxed) != 0 {
            self.client_info.output_bytes.store(0, Relaxed);
            self.client_info.soft_since_ms.store(0, Relaxed);
        }
        let is_filled = self.client_info.outbox.refill(&mut work.output);
        if is_filled {
            work.seen = self.worker.hub.dataset.journaling.position();
        }
        is_filled
    }

    /// Waits until the journal lets the output leave.
    pub async fn clear(&self) {
        if let Some(work) = self.work.as_ref().filter(|work| work.has_output())
            && !self.worker.hub.dataset.journaling.is_safe(work.seen)
        {
            poll_fn(|cx| self.worker.commit_waiter.poll_safe(work.seen, cx)).await;
        }
    }

    /// The client does not read its replies as fast as it sends commands: limits the unsent output.
    #[cold]
    fn held_back(&mut self) -> Result<(), End> {
        let Some(work) = &mut self.work else { return Ok(()) };
        // Drop the sent bytes only when they are the larger part: then each byte moves at most once on average.
        if work.sent > work.output.len() / 2 {
            work.output.drain(..work.sent);
            work.sent = 0;
        }
        let unsent = work.unsent().len();
        let limit = &self.worker.config_snapshot().config.output_limit_normal;
        self.client_info.output_bytes.store(unsent, Relaxed);
        if limit.soft_bytes == 0 || (unsent as u64) < limit.soft_bytes {
            self.client_info.soft_since_ms.store(0, Relaxed);
        } else if self.client_info.soft_since_ms.load(Relaxed) == 0 {
            // The node ends connections that stay above the soft limit for too long.
            self.client_info.soft_since_ms.store(self.worker.now_ms(), Relaxed);
        }
        if limit.hard_bytes != 0 && unsent as u64 > limit.hard_bytes {
            self.worker.stats().output_limit_closed.add(1);
            return Err(End::OutputLimit);
        }
        self.update_charge();
        Ok(())
    }

    /// Charges the connection for what it holds.
    pub fn update_charge(&self) {
        if self.request.is_open() {
            return;
        }
        let (memory, client_info) = (&self.worker.hub.dataset.memory, &*self.client_info);
        match &self.work {
            Some(work) => work.update_charge(memory, client_info, &self.session, self.query_granted),
            None => {
                let bytes = self.session.kept_bytes();
                if client_info.room_bytes.load(Relaxed) > 0 {
                    memory.keep_room(client_info, 0);
                }
                if bytes != client_info.held_bytes.load(Relaxed) {
                    memory.hold(client_info, bytes);
                }
            }
        }
    }

    /// Gives the buffers back to the pool if they hold nothing of this connection.
    fn tidy(&mut self) {
        if self.stream.is_flushed() && self.work.as_ref().is_some_and(|work| work.is_idle()) {
            let work = self.work.take().expect("it is there");
            self.worker.give_work(work);
            self.show_buffers();
            self.update_charge();
        } else if self.work.is_some() {
            self.show_buffers();
            self.update_charge();
        }
    }

    /// Publishes the sizes of the buffers for CLIENT LIST.
    fn show_buffers(&self) {
        let (held, free) = match self.work.as_deref() {
            Some(Work { batch, .. }) => {
                (batch.received_bytes(), batch.input.len() - batch.filled + batch.ahead.free_bytes())
            }
            None => (0, 0),
        };
        self.client_info.query_bytes.store(held, Relaxed);
        self.client_info.query_free_bytes.store(free, Relaxed);
    }
}

/// Drops the reply for CLIENT REPLY OFF and SKIP, and one that is no error for who wants errors only.
#[cold]
pub fn withhold(session: &mut Session, output: &mut Vec<u8>, reply_from: usize) {
    if session.reply == Reply::Errors && output.get(reply_from) == Some(&b'-') {
        return;
    }
    output.truncate(reply_from);
    match session.reply {
        Reply::SkipNext => session.reply = Reply::Skip,
        Reply::Skip => session.reply = Reply::On,
        Reply::On | Reply::Off | Reply::Errors => {}
    }
}

fn io_end(error: io::Error) -> End {
    End::Io(error.to_string())
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(work) = &mut self.work {
            let mut lane = self.worker.lane();
            work.current.awaited.drain(..).for_each(|ticket| lane.release(ticket));
            work.prefetched.drain(..).for_each(|ticket| lane.release(ticket));
        }
        self.client_info.outbox.close();
        self.worker.hub.dataset.memory.leave(&self.client_info, &mut self.request);
        let hub = &self.worker.hub;
        for space in Space::ALL {
            for name in self.session.listened(space) {
                hub.pubsub.unsubscribe(space, &name, self.client_info.id);
            }
        }
        if self.session.tracking.is_some() {
            hub.tracking.stop(&hub.dataset.store, &self.client_info);
        }
        if self.session.monitors {
            hub.monitors.remove(self.client_info.id);
        }
        // Before the socket closes: every descriptor in the register is open.
        self.worker.hub.clients.remove(&self.client_info);
        self.worker.connection_ended();
    }
}
