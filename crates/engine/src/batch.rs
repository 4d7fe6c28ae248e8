//! Owns the bytes that a connection has received, and the commands found in them. Never knows what a command is, or from where the
//! bytes come.

use crate::ahead::Ahead;
use crate::directory::CommandPlace;
use commands::Args;
use resp::{Limits, Parsed, Progress, ProtocolError, Skipped, Source, Span, parse, skip};
use store::KeyHash;

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
    pub ahead: Ahead,
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
    /// At a proxy: the hash is the one in the owner's store. Elsewhere only the slot is the same.
    pub is_of_owner: bool,
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
pub const INPUT_BYTES: usize = 64 * 1024;
/// The same while memory is scarce.
pub const INPUT_BYTES_SMALL: usize = 16 * 1024;
/// A receive buffer that has grown beyond this is not kept.
pub const INPUT_KEPT_BYTES: usize = 256 * 1024;
/// The most bytes of one receive.
const RECEIVE_BYTES_MAX: usize = 1 << 20;
/// Spans of a new batch: enough for a usual pipeline without growing.
const SPANS_USUAL: usize = 256;
/// A list of spans that has grown beyond this (a command of a million arguments) is not kept.
const SPANS_KEPT: usize = 16 * 1024;
/// The most commands in one batch, so that other connections get their turn.
pub const BATCH_COMMANDS_MAX: usize = 1000;

impl Batch {
    pub fn new(input: Vec<u8>) -> Batch {
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

    pub fn is_done(&self) -> bool {
        !self.has_input() && self.next == self.commands.len() && !self.skips && self.ahead.is_empty()
    }

    #[inline]
    pub fn clear(&mut self) {
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
    pub fn shrink(&mut self) -> Option<Vec<u8>> {
        if self.filled > self.input.len() / 4 || self.input.len() < INPUT_BYTES_SMALL {
            return None;
        }
        let small = self.input[..self.filled].to_vec();
        Some(std::mem::replace(&mut self.input, small))
    }

    /// Whether it has given up its input buffer.
    pub fn lacks_buffer(&self) -> bool {
        self.input.len() < INPUT_BYTES_SMALL
    }

    /// Gives an empty batch an input buffer.
    pub fn equip(&mut self, input: Vec<u8>) {
        self.input = input;
    }

    /// Whether its input buffer is larger than a new one.
    pub fn has_grown(&self) -> bool {
        self.input.len() > INPUT_BYTES
    }

    /// Bytes of memory that it holds.
    pub fn mem_bytes(&self) -> usize {
        self.input.len()
            + self.ahead.mem_bytes()
            + self.spans.capacity() * size_of::<Span>()
            + self.progress.heap_bytes()
    }

    /// The size that the input buffer must get before more of an incomplete command can be received: between twice and four times the
    /// bytes received. The length that the client claims only chooses within this range. `None`: it has room.
    pub fn grows_to(&self) -> Option<usize> {
        let is_full = self.filled == self.input.len() && self.parsed == 0;
        is_full.then(|| self.need.clamp(self.filled * 2, self.filled * 4).max(INPUT_BYTES))
    }

    /// The bytes that the client has announced for an incomplete command.
    pub fn announced(&self) -> usize {
        if self.starved { self.need } else { 0 }
    }

    /// Makes room at the end of the input.
    #[inline]
    pub fn make_room(&mut self) {
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
    pub fn grow(&mut self, bytes: usize) {
        // The kernel gives the pages when the bytes arrive.
        let mut larger = vec![0; bytes];
        larger[..self.filled].copy_from_slice(&self.input[..self.filled]);
        self.input = larger;
    }

    /// Moves what was received ahead into the input, as far as there is room. Returns whether that was something.
    #[inline]
    pub fn take_ahead(&mut self) -> bool {
        if self.ahead.is_empty() {
            return false;
        }
        if self.input.len() < INPUT_BYTES {
            self.grow(INPUT_BYTES);
        }
        let taken = self.ahead.take(&mut self.input[self.filled..]);
        self.filled += taken;
        self.starved &= taken == 0;
        self.was_full |= taken > 0;
        taken > 0
    }

    /// Where the next bytes are received: bounded, because others wait meanwhile.
    pub fn room(&mut self) -> &mut [u8] {
        let end = self.input.len().min(self.filled + RECEIVE_BYTES_MAX);
        &mut self.input[self.filled..end]
    }

    /// So many bytes have arrived in [`Batch::room`].
    #[inline]
    pub fn received(&mut self, bytes: usize) {
        self.filled += bytes;
        self.starved = false;
        self.was_full = self.filled == self.input.len();
    }

    /// Whether bytes that come now, while commands of the batch have not run, need another piece of memory.
    pub fn lacks_room_ahead(&self) -> bool {
        !self.ahead.has_room() && (self.filled == self.input.len() || !self.ahead.is_empty())
    }

    /// Where bytes are received while commands of the batch have not run: the existing ones stay in place.
    pub fn room_ahead(&mut self) -> &mut [u8] {
        if self.ahead.is_empty() && self.filled < self.input.len() { self.room() } else { self.ahead.room() }
    }

    /// So many bytes have arrived in [`Batch::room_ahead`].
    pub fn received_ahead(&mut self, bytes: usize) {
        if self.ahead.is_empty() && self.filled < self.input.len() {
            self.received(bytes);
        } else {
            self.ahead.fill(bytes);
        }
    }

    /// The bytes that were received and have not run.
    pub fn received_bytes(&self) -> usize {
        self.filled - self.parsed + self.ahead.bytes()
    }

    /// Bytes of memory that can still receive.
    pub fn free_bytes(&self) -> usize {
        self.input.len() - self.filled + self.ahead.free_bytes()
    }

    /// Discards the incomplete command: its bytes are dropped as they arrive. False: the command is a line, which cannot be discarded.
    pub fn skip(&mut self) -> bool {
        self.skips = self.starved && self.progress.can_skip();
        self.starved = false;
        self.skips
    }

    /// Drops more bytes of the discarded command. Returns whether the command is over.
    #[cold]
    pub fn skip_more(&mut self, limits: &Limits) -> bool {
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
