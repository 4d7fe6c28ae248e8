//! Owns the buffers that a connection holds while it has work: its batch, its output, and the state of its running command. Never knows
//! the connection, or the worker that pools them.

use crate::batch::{Batch, INPUT_BYTES, INPUT_BYTES_SMALL};
use crate::clients::ClientInfo;
use crate::memory::Memory;
use crate::replication::Seen;
use crate::stats::WorkerStats;
use commands::session::Session;
use std::borrow::Cow;
use std::sync::atomic::Ordering::Relaxed;
use store::{ReadError, Resume, Ticket};

/// The buffers of a connection that has work. They come from the worker's pool and go back to it.
pub struct Work {
    pub batch: Batch,
    pub output: Vec<u8>,
    /// Bytes of `output` that were sent.
    sent: usize,
    /// What the output shows. The output is sent when this is safe.
    pub seen: Seen,
    /// The journal has grown while this connection's commands ran, so they may have written.
    pub may_have_written: bool,
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

/// The most bytes of one send. With a client that reads as fast as it can, one send could take all of a large reply.
const SEND_BYTES_MAX: usize = 256 << 10;
/// Bytes of a new output buffer: enough for the replies to a usual pipeline without growing.
const OUTPUT_BYTES: usize = 16 * 1024;
/// An output buffer that has grown beyond this is not kept.
const OUTPUT_KEPT_BYTES: usize = 256 * 1024;

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

impl Work {
    pub fn new(buffers: Buffers) -> Work {
        Work {
            batch: Batch::new(buffers.input),
            output: buffers.output,
            sent: 0,
            seen: Seen::default(),
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
        self.batch.has_grown() || self.output.capacity() > 2 * OUTPUT_BYTES
    }

    /// For a cleared `Work`: whether it has lent its buffers.
    pub fn lacks_buffers(&self) -> bool {
        self.batch.lacks_buffer()
    }

    pub fn equip(&mut self, buffers: Buffers) {
        self.batch.equip(buffers.input);
        if self.output.capacity() < buffers.output.capacity() {
            self.output = buffers.output;
        }
    }

    /// If everything was sent, what comes next depends on nothing yet: no write of this moment, and no place of a journal that may have been
    /// replaced since.
    #[inline]
    pub fn begin_output(&mut self) {
        if !self.has_output() {
            self.seen = Seen::default();
        }
    }

    /// The commands of this output have run between these two.
    #[inline]
    pub fn has_seen(&mut self, from: Seen, to: Seen) {
        self.seen.add(from, to);
        self.may_have_written |= from.journal < to.journal;
    }

    /// Whether nothing in it belongs to a connection any more.
    pub fn is_idle(&self) -> bool {
        self.batch.is_done() && !self.has_output()
    }

    /// Resets it, and keeps memory up to the bounds above.
    #[inline]
    pub fn clear(&mut self) {
        self.batch.clear();
        self.clear_output();
    }

    pub fn clear_output(&mut self) {
        self.output.clear();
        self.sent = 0;
        self.may_have_written = false;
        if self.output.capacity() > OUTPUT_KEPT_BYTES {
            self.output = Vec::new();
        }
    }

    /// Sets the connection's charge to the memory that it really holds.
    pub fn update_charge(
        &self,
        memory: &Memory,
        client_info: &ClientInfo,
        session: &Session,
        query_granted: usize,
        beside: usize,
    ) {
        if query_granted == 0 && session.claim.room < client_info.room_bytes.load(Relaxed) {
            memory.keep_room(client_info, session.claim.room);
        }
        let batch_bytes = self.batch.mem_bytes().max(query_granted);
        let held = batch_bytes + self.output.capacity() + session.kept_bytes() + session.claim.granted + beside;
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
    pub fn next_to_send(&self) -> &[u8] {
        let unsent = self.unsent();
        &unsent[..unsent.len().min(SEND_BYTES_MAX)]
    }

    /// So many bytes of [`Work::next_to_send`] were sent.
    #[inline]
    pub fn was_sent(&mut self, bytes: usize) {
        self.sent += bytes;
    }

    /// Drops the sent bytes, but only when they are the larger part: then each byte moves at most once on average.
    pub fn drop_sent(&mut self) {
        if self.sent > self.output.len() / 2 {
            self.output.drain(..self.sent);
            self.sent = 0;
        }
    }
}

impl Current {
    /// Resets the state after a command that had to wait or retry, or that has no keys.
    pub fn end(&mut self, stats: &WorkerStats) {
        if self.misses > 0 {
            stats.flash_waits.add(1);
        }
        self.resume.clear();
        self.awaited.clear();
        self.again = false;
        self.misses = 0;
        self.has_room = false;
        self.whole = false;
        self.failed = None;
    }
}
