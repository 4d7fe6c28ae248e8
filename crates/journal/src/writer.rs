//! Owns the way from a record to durable bytes: which frame, which file, what to write and sync next, and the position
//! up to which the journal is durable. Never does I/O: [`Writer::ops`] returns the operations, and [`Writer::done`]
//! takes their results.
//!
//! A frame stays in RAM until it is durable. So after a failed write or sync all frames that are not durable can be written again, to
//! a fresh file, as a new term. The failed file is never used again by this writer.

use std::collections::VecDeque;
use std::{fmt, io};

use flash::DATA_OFFSET;
use flash::io::{Done, Op, OpKind, PAGE_BYTES, PageBuf};

use crate::Config;
use crate::frame::{self, Header, Packer};
use crate::record::{self, Piece, Record, stored_bytes};

/// Buffers that are kept for reuse: with the usual frames, as many as the usual ring fills. One large record needs
/// hundreds, and the next sync may come hours later.
const FREE_BUFFERS_MAX: usize = 32;

pub struct Writer {
    config: Config,
    files: Vec<File>,
    term: u32,
    /// The number of the file that was opened last.
    number: u32,
    /// A term is void unless its frames reach this position.
    copied_to: u64,
    /// Whether anything of this term is durable.
    proven: bool,
    /// Where the next frame goes, if it fits there.
    place: Option<(u16, u64)>,
    /// The CRC of the frame that was placed last.
    crc: u32,
    /// The frame that is being filled, and the bytes of records in it.
    open: Option<PageBuf>,
    open_bytes: usize,
    /// Buffers of frames that are durable, for reuse: new memory would have to be zeroed first.
    free: Vec<PageBuf>,
    replication_offset: u64,
    /// Frames that are formed and not durable, by position. Those that have a place come first.
    frames: VecDeque<Frame>,
    /// The position at which the last formed frame ends.
    formed: u64,
    durable: u64,
    /// The CRC of the last durable frame.
    durable_crc: u32,
    /// The number of `frames` that must be synced.
    wanted: usize,
    sync: Option<Sync>,
    next_token: u64,
    /// No record before this position is needed.
    needed_from: u64,
    /// Whether a write or sync has failed. When no operation is in flight any more, a new term begins.
    failing: bool,
    /// Whether the journal was given up after another failure: no record is accepted any more.
    failed: bool,
    packer: Packer,
    /// The number of pages of all frames that were placed.
    placed_pages: u64,
    needed: Needed,
}

/// How much the frames behind a position take on the device, with a precision of about [`STRIDE_BYTES`] of records.
#[derive(Default)]
pub(crate) struct Needed {
    pages: u64,
    /// The ends of some frames, in order, and the value of `pages` at each.
    marks: VecDeque<(u64, u64)>,
    /// The value of `pages` at the position.
    before: u64,
}

const STRIDE_BYTES: u64 = 4 << 20;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct File {
    /// 0: never used.
    pub number: u32,
    /// Where its last frame ends. `None`: the file contains nothing that is needed.
    pub end: Option<u64>,
    pub failed: bool,
}

pub(crate) struct Frame {
    pub position: u64,
    pub bytes: u32,
    /// Bytes that the records take in the frame. Known when it is decided whether they are compressed.
    pub stored: Option<u32>,
    pub replication_offset: u64,
    pub crc: u32,
    /// `None` while it is being written.
    pub buf: Option<PageBuf>,
    pub state: FrameState,
}

pub(crate) enum FrameState {
    Formed,
    Writing { file: u16, token: u64 },
    Written { file: u16 },
}

/// The sync of the first `frames` frames: one operation for each file.
struct Sync {
    frames: usize,
    in_flight: Vec<(u16, u64)>,
    failed: bool,
}

/// The state with which a writer continues after a recovery.
pub(crate) struct Start {
    pub term: u32,
    pub number: u32,
    pub files: Vec<File>,
    /// Frames that must be copied.
    pub frames: VecDeque<Frame>,
    pub durable: u64,
    pub durable_crc: u32,
    pub replication_offset: u64,
    pub needed_from: u64,
    /// The space of the frames that are not copied.
    pub needed: Needed,
}

/// Why a record is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Too many bytes are not durable yet. The next sync makes room.
    Full,
    /// See [`Failed`].
    Failed,
}

/// The journal cannot be written any more: a write or sync failed, and then another one in the fresh file, or there was no fresh file.
#[derive(Debug)]
pub struct Failed {
    pub file: u16,
    pub action: &'static str,
    pub source: io::Error,
}

impl Needed {
    /// Adds a frame that ends at this position.
    pub fn add(&mut self, end: u64, pages: u64) {
        self.pages += pages;
        // After a failure, frames are placed again, so the marks behind this position are outdated.
        while self.marks.pop_back_if(|mark| mark.0 >= end).is_some() {}
        let before_last = self.marks.iter().nth_back(1).map_or(0, |mark| mark.0);
        if self.marks.len() > 1 && end < before_last.saturating_add(STRIDE_BYTES) {
            self.marks.pop_back();
        }
        self.marks.push_back((end, self.pages));
    }

    fn from(&mut self, position: u64) {
        let passed = self.marks.partition_point(|mark| mark.0 <= position);
        if let Some((_, pages)) = self.marks.drain(..passed).next_back() {
            self.before = pages;
        }
    }
}

impl Writer {
    /// The writer of a new journal: its files are empty, or contain nothing of this journal.
    pub fn new(config: Config, files: u16) -> Writer {
        let start = Start {
            term: 1,
            number: 0,
            files: vec![File::default(); files.into()],
            frames: VecDeque::new(),
            durable: 0,
            durable_crc: 0,
            replication_offset: 0,
            needed_from: 0,
            needed: Needed::default(),
        };
        Writer::start(config, start)
    }

    pub(crate) fn start(config: Config, start: Start) -> Writer {
        assert!(config.frame_bytes.is_multiple_of(PAGE_BYTES));
        assert!(config.frame_bytes >= frame::HEADER_BYTES + record::HEADER_BYTES + record::PIECE_BYTES_MAX);
        assert!(config.file_bytes >= config.frame_bytes as u64);
        let Start { term, number, files, frames, durable, durable_crc, replication_offset, needed_from, needed } =
            start;
        let formed = frames.back().map_or(durable, Frame::end);
        Writer {
            config,
            files,
            term,
            number,
            copied_to: formed,
            proven: true,
            place: None,
            crc: durable_crc,
            open: None,
            open_bytes: 0,
            free: Vec::new(),
            replication_offset,
            wanted: frames.len(),
            frames,
            formed,
            durable,
            durable_crc,
            sync: None,
            next_token: 0,
            needed_from,
            failing: false,
            failed: false,
            packer: Packer::default(),
            placed_pages: 0,
            needed,
        }
    }

    /// Takes the next record. `replication_offset` is the offset after it. Returns the position after the record. The
    /// record is durable when [`Writer::durable`] has reached this position.
    pub fn append(&mut self, record: &Record, replication_offset: u64) -> Result<u64, Refused> {
        let bytes = stored_bytes(record.resp.len());
        let waiting = self.position() - self.durable;
        if self.failed {
            return Err(Refused::Failed);
        }
        // A record that is larger than the buffer is accepted if the buffer is empty.
        if waiting > 0 && waiting + bytes > self.config.buffer_bytes {
            return Err(Refused::Full);
        }
        for piece in record.pieces() {
            piece.write(self.room_for(piece.bytes()));
        }
        self.replication_offset = replication_offset;
        Ok(self.position())
    }

    /// Takes complete pieces of records, one after the other, whatever [`Config::buffer_bytes`] says.
    pub(crate) fn append_pieces(&mut self, mut pieces: &[u8]) {
        while !pieces.is_empty() {
            let piece = Piece::bytes_of(pieces).expect("whole pieces");
            self.append_piece(piece);
            pieces = &pieces[piece.len()..];
        }
    }

    /// See [`Writer::append_pieces`].
    #[inline]
    pub(crate) fn append_piece(&mut self, piece: &[u8]) {
        self.room_for(piece.len()).copy_from_slice(piece);
    }

    /// The memory for the next piece.
    #[inline]
    fn room_for(&mut self, piece_bytes: usize) -> &mut [u8] {
        if frame::HEADER_BYTES + self.open_bytes + piece_bytes > self.config.frame_bytes {
            self.form();
        }
        let pages = self.config.frame_bytes / PAGE_BYTES;
        let buf = self.open.get_or_insert_with(|| self.free.pop().unwrap_or_else(|| PageBuf::new(pages)));
        let at = frame::HEADER_BYTES + self.open_bytes;
        self.open_bytes += piece_bytes;
        &mut buf[at..at + piece_bytes]
    }

    /// Allocates memory for the next frame, so that [`Writer::append_piece`] need not allocate.
    pub(crate) fn make_ready(&mut self) {
        if self.free.is_empty() {
            self.free.push(PageBuf::new(self.config.frame_bytes / PAGE_BYTES));
        }
    }

    /// The position after everything that was appended.
    pub fn position(&self) -> u64 {
        self.formed + self.open_bytes as u64
    }

    /// Everything before this position is durable. After a recovery, only what the files prove, until the rest is
    /// copied.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// The bytes on the device of all frames that were given a place.
    pub fn placed_bytes(&self) -> u64 {
        self.placed_pages * PAGE_BYTES as u64
    }

    /// The bytes on the device of the frames whose records are needed: see [`Writer::needed_from`].
    pub fn needed_bytes(&self) -> u64 {
        (self.needed.pages - self.needed.before) * PAGE_BYTES as u64
    }

    /// Forms a frame of what was appended, so that it is written. It need not become durable.
    pub fn write(&mut self) {
        if self.open_bytes > 0 {
            self.form();
        }
    }

    /// Asks for everything appended to become durable.
    pub fn sync(&mut self) {
        self.write();
        self.wanted = self.frames.len();
    }

    /// Appends an empty last frame, which tells the next recovery that everything is durable. So damage in the frame
    /// before it is not taken for a torn write. To be called when everything is durable, with [`Writer::durable`] at
    /// [`Writer::position`].
    pub fn close(&mut self) {
        assert!(self.is_idle());
        self.form();
        self.wanted = 1;
    }

    /// Whether nothing is left to write or sync.
    pub fn is_idle(&self) -> bool {
        self.open_bytes == 0 && self.frames.is_empty()
    }

    /// Whether frames wait because no file is free. A checkpoint frees some files, see [`Writer::needed_from`], and
    /// [`Writer::add_file`] adds one. After a failure only the latter is certain to help: `buffer_bytes` must fit into
    /// the files that are free.
    pub fn needs_file(&self) -> bool {
        self.frames.iter().any(|frame| matches!(frame.state, FrameState::Formed)) && self.free_file().is_none()
    }

    /// Adds an empty file, with the next path.
    pub fn add_file(&mut self) {
        self.files.push(File::default());
    }

    /// Number of files that are free now.
    pub fn free_files(&self) -> usize {
        self.files.iter().filter(|file| self.is_free(file)).count()
    }

    /// Forgets the last file, if it is free, so that it can be deleted.
    pub fn forget_last_file(&mut self) -> bool {
        let is_free = self.files.last().is_some_and(|file| self.is_free(file));
        if is_free {
            self.files.pop();
        }
        is_free
    }

    /// No record before `position` is needed any more, because a durable checkpoint contains their effects. Files with
    /// only such records are used again. `position` must be durable.
    pub fn needed_from(&mut self, position: u64) {
        assert!(position <= self.durable.max(self.needed_from));
        self.needed_from = self.needed_from.max(position);
        self.needed.from(position);
    }

    /// See [`Writer::needed_from`].
    pub fn needed(&self) -> u64 {
        self.needed_from
    }

    /// Returns the operations that can start now. Their paths are files of the journal. The writer chooses their
    /// tokens.
    pub fn ops(&mut self, ops: &mut Vec<Op>) {
        if self.failed || self.failing {
            return;
        }
        for at in 0..self.frames.len() {
            if !matches!(self.frames[at].state, FrameState::Formed) {
                continue;
            }
            self.pack(at);
            let Some((file, offset)) = self.place_for(self.frames[at].pages()) else { break };
            let op = self.write_op(at, file, offset);
            ops.push(op);
        }
        self.start_sync(ops);
    }

    /// Takes the result of an operation.
    pub fn done(&mut self, done: Done) -> Result<(), Failed> {
        let failed = match &mut self.sync {
            Some(sync) if sync.in_flight.iter().any(|&(_, token)| token == done.token) => {
                let at = sync.in_flight.iter().position(|&(_, token)| token == done.token).expect("it is there");
                let (file, _) = sync.in_flight.swap_remove(at);
                sync.failed |= done.result.is_err();
                if sync.in_flight.is_empty() {
                    self.end_sync();
                }
                done.result.err().map(|source| Failed { file, action: "sync", source })
            }
            _ => {
                let is_it = |frame: &&mut Frame| matches!(frame.state, FrameState::Writing { token, .. } if token == done.token);
                let frame = self.frames.iter_mut().find(is_it).expect("an operation of this writer");
                let FrameState::Writing { file, .. } = frame.state else { unreachable!("found by its state") };
                frame.buf = done.buf;
                frame.state = FrameState::Written { file };
                done.result.err().map(|source| Failed { file, action: "write", source })
            }
        };
        if let Some(failed) = failed {
            self.files[usize::from(failed.file)].failed = true;
            // Give up if the term began after a failure and nothing of it is durable yet, or if no file is free.
            if !(self.proven || self.failing) || self.free_file().is_none() {
                self.failed = true;
                return Err(failed);
            }
            self.failing = true;
        }
        if self.failing && self.in_flight() == 0 {
            self.next_term();
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        let writing = self.frames.iter().filter(|frame| matches!(frame.state, FrameState::Writing { .. })).count();
        writing + self.sync.as_ref().map_or(0, |sync| sync.in_flight.len())
    }

    fn form(&mut self) {
        let bytes = std::mem::take(&mut self.open_bytes);
        let pages = frame::pages(bytes);
        let mut buf = self.open.take().unwrap_or_else(|| PageBuf::new(pages));
        buf.set_pages(pages);
        buf[frame::HEADER_BYTES + bytes..].fill(0);
        self.frames.push_back(Frame {
            position: self.formed,
            bytes: bytes as u32,
            stored: None,
            replication_offset: self.replication_offset,
            crc: 0,
            buf: Some(buf),
            state: FrameState::Formed,
        });
        self.formed += bytes as u64;
    }

    /// Packing is not done when the frame is formed, because workers may be waiting then.
    fn pack(&mut self, at: usize) {
        let frame = &mut self.frames[at];
        if frame.stored.is_some() {
            return;
        }
        let buf = frame.buf.as_mut().expect("it is not being written");
        let is_long = frame.bytes as usize >= self.config.packed_from;
        let packed = if is_long { self.packer.pack(buf, frame.bytes) } else { None };
        if let Some(stored) = packed {
            // New memory is zero, as the padding must be. The large buffer is reused at once, while it is in the
            // processor's cache.
            let mut small = PageBuf::new(frame::pages(stored as usize));
            let end = frame::HEADER_BYTES + stored as usize;
            small[frame::HEADER_BYTES..end].copy_from_slice(&buf[frame::HEADER_BYTES..end]);
            let large = std::mem::replace(buf, small);
            frame.stored = packed;
            self.keep(large);
        } else {
            frame.stored = Some(frame.bytes);
        }
    }

    /// Keeps the buffer for reuse, if it has room for any frame.
    fn keep(&mut self, mut buf: PageBuf) {
        let pages = self.config.frame_bytes / PAGE_BYTES;
        if buf.capacity_pages() == pages && self.free.len() < FREE_BUFFERS_MAX {
            buf.set_pages(pages);
            self.free.push(buf);
        }
    }

    fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    /// The place behind the last frame, or the beginning of a free file.
    fn place_for(&mut self, pages: usize) -> Option<(u16, u64)> {
        let bytes = (pages * PAGE_BYTES) as u64;
        let fits = |&(_, offset): &(u16, u64)| offset + bytes <= DATA_OFFSET + self.config.file_bytes;
        if let Some(place) = self.place.filter(fits) {
            return Some(place);
        }
        let file = self.free_file()?;
        self.number += 1;
        self.files[usize::from(file)].number = self.number;
        Some((file, DATA_OFFSET))
    }

    /// Whether a file may be used again: its records are not needed, and a later frame in another file is durable. So
    /// there is always a durable frame that reaches the position from which the journal is needed.
    fn is_free(&self, file: &File) -> bool {
        !file.failed && file.end.is_none_or(|end| end <= self.needed_from && end < self.durable)
    }

    fn free_file(&self) -> Option<u16> {
        let free = (0..).zip(&self.files).filter(|(_, file)| self.is_free(file));
        free.min_by_key(|(_, file)| file.number).map(|(at, _)| at)
    }

    fn write_op(&mut self, at: usize, file: u16, offset: u64) -> Op {
        let token = self.token();
        let frame = &mut self.frames[at];
        let mut buf = frame.buf.take().expect("it is not being written");
        let header = Header {
            log_id: self.config.log_id,
            term: self.term,
            number: self.number,
            position: frame.position,
            copied_to: self.copied_to,
            durable: self.durable,
            replication_offset: frame.replication_offset,
            crc_before: self.crc,
            pages: buf.pages() as u32,
            bytes: frame.bytes,
            stored: frame.stored.expect("frames are packed before they get a place"),
        };
        self.placed_pages += u64::from(header.pages);
        self.needed.add(header.end(), u64::from(header.pages));
        frame.crc = header.seal(&mut buf);
        frame.state = FrameState::Writing { file, token };
        self.crc = frame.crc;
        self.place = Some((file, offset + buf.len() as u64));
        self.files[usize::from(file)].end = Some(header.end());
        Op { token, path: file, offset, kind: OpKind::Write(buf) }
    }

    /// Starts a sync when all writes that it is for are complete, because a sync covers no others.
    fn start_sync(&mut self, ops: &mut Vec<Op>) {
        let written = self.frames.iter().take_while(|frame| matches!(frame.state, FrameState::Written { .. })).count();
        let is_writing =
            self.frames.iter().take(self.wanted).any(|frame| matches!(frame.state, FrameState::Writing { .. }));
        // Until its copy is whole, the term is void, and nothing in it counts as durable.
        let is_void = written == 0 || self.frames[written - 1].end() < self.copied_to;
        if self.sync.is_some() || self.wanted == 0 || is_void || is_writing {
            return;
        }
        let mut in_flight: Vec<(u16, u64)> = Vec::new();
        for at in 0..written {
            let FrameState::Written { file } = self.frames[at].state else { unreachable!("counted above") };
            if in_flight.iter().all(|&(other, _)| other != file) {
                let token = self.token();
                in_flight.push((file, token));
                ops.push(Op { token, path: file, offset: 0, kind: OpKind::Sync });
            }
        }
        self.sync = Some(Sync { frames: written, in_flight, failed: false });
    }

    fn end_sync(&mut self) {
        let sync = self.sync.take().expect("its last operation is complete");
        if sync.failed {
            return;
        }
        for _ in 0..sync.frames {
            let frame = self.frames.pop_front().expect("the sync's frames");
            self.durable = frame.end();
            self.durable_crc = frame.crc;
            if let Some(buf) = frame.buf {
                self.keep(buf);
            }
        }
        // As many buffers as were used this time will be enough the next time.
        self.free.truncate(sync.frames);
        self.wanted = self.wanted.saturating_sub(sync.frames);
        self.proven = true;
    }

    /// Begins a new term: everything that is not durable is written again, to a fresh file.
    fn next_term(&mut self) {
        self.term += 1;
        self.copied_to = self.formed;
        self.crc = self.durable_crc;
        self.place = None;
        self.failing = false;
        self.proven = false;
        self.wanted = self.frames.len();
        self.frames.iter_mut().for_each(|frame| frame.state = FrameState::Formed);
    }
}

impl Frame {
    pub fn end(&self) -> u64 {
        self.position + u64::from(self.bytes)
    }

    fn pages(&self) -> usize {
        self.buf.as_ref().expect("it is not being written").pages()
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Full => "the journal's buffer is full",
            Refused::Failed => "the journal cannot be written",
        })
    }
}

impl std::error::Error for Refused {}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} journal file {}: {}", self.action, self.file, self.source)
    }
}

impl std::error::Error for Failed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_to_the_end(writer: &mut Writer) {
        let mut ops = Vec::new();
        loop {
            writer.ops(&mut ops);
            if ops.is_empty() {
                return;
            }
            for op in ops.drain(..) {
                let buf = if let OpKind::Write(buf) = op.kind { Some(buf) } else { None };
                writer.done(Done { token: op.token, result: Ok(()), buf, nanos: 0 }).unwrap();
            }
        }
    }

    /// Once, all buffers that one large record needed were kept until the next sync, however late it came.
    #[test]
    fn the_buffers_of_a_large_record_are_not_kept() {
        const BYTES: usize = 20 << 20;
        let words = (1..=BYTES as u64 / 8).map(|number| number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let incompressible = Vec::from_iter(words.flat_map(u64::to_le_bytes));
        for resp in [vec![b'v'; BYTES], incompressible] {
            let mut writer = Writer::new(Config::new([7; 16]), 2);
            let record = Record { db: 0, time_ms: 7, resp: &resp };
            let end = writer.append(&record, 0).unwrap();
            writer.sync();
            assert!(writer.frames.len() > 2 * FREE_BUFFERS_MAX);
            run_to_the_end(&mut writer);
            assert_eq!(writer.durable(), end);
            assert_eq!(writer.free.len(), FREE_BUFFERS_MAX);
        }
    }
}
