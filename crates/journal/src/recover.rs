//! Owns reading a journal back: which frames are whole, which of them are the journal, and the records in them. Never changes a file.
//!
//! 1. **Scan.** Every page of every file is read, except of files that end before the wanted position. A frame is whole
//!    if both of its CRCs are right. [`recover`] skips the body of a frame if the next frame follows it (so this frame
//!    was written before), if some frame says that it is durable, and if no other frame has some of its positions. If
//!    such a frame is damaged, the journal is damaged, and reading its records finds that.
//! 2. **Chain.** From the frame that contains the wanted position on, each next frame begins where the one before ends,
//!    and repeats its CRC. Where a later term begins, the chain continues with the later term, unless that is void (see
//!    the crate).
//! 3. **Check.** The chain must reach every position that any frame calls durable. If it does not, a frame is damaged
//!    or a file is missing. What is behind that position is a torn tail, and does not count.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, sync_channel};
use std::{fmt, io, thread};

use flash::DATA_OFFSET;
use flash::io::{PAGE_BYTES, PageBuf, Reader};

use crate::Config;
use crate::frame::{self, Found, HEADER_BYTES, Header};
use crate::record::{Joiner, Piece, Record};
use crate::writer::{File, Frame, FrameState, Needed, Start, Writer};

/// The bytes of one read of the scan.
const READ_BYTES: usize = 1 << 20;
/// Maximum number of threads that read at the same time: with one read at a time, a device is much slower.
const READERS_MAX: usize = 4;
/// With fewer bytes for each thread, threads cost more time than they save.
const READER_BYTES_MIN: u64 = 1 << 20;
/// Behind a frame of at least this length, only the next header is read.
const LONG_BYTES: usize = 64 << 10;
/// Number of frames that each thread reads before their records are needed.
const FRAMES_AHEAD: usize = 2;

/// Why a journal cannot be read. `file` is a path of the reader.
#[derive(Debug)]
pub enum Error {
    Read {
        file: u16,
        offset: u64,
        source: io::Error,
    },
    /// The file begins with a frame of another journal.
    OtherLog {
        file: u16,
        log_id: [u8; 16],
    },
    /// A later release has written the frame.
    Newer {
        file: u16,
        offset: u64,
        version: u16,
    },
    /// A file of the journal is missing.
    Missing {
        position: u64,
    },
    /// The frame with this position, which was durable, is damaged.
    Damaged {
        file: u16,
        offset: u64,
        position: u64,
    },
    /// No record begins at the position from which the journal was to be read.
    NoRecord {
        position: u64,
    },
}

/// The frames of a file that are part of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub file: u16,
    pub frames: u64,
    /// The position of the first frame.
    pub start: u64,
    /// The position after the last frame.
    pub end: u64,
}

/// A journal as a crash or a stop has left it.
pub struct Recovered {
    config: Config,
    from: u64,
    chain: Vec<At>,
    /// The highest position that a frame calls durable.
    durable: u64,
    term: u32,
    number: u32,
    files: Vec<File>,
}

/// A whole frame, and its location.
#[derive(Debug, Clone, Copy)]
struct At {
    file: u16,
    offset: u64,
    header: Header,
    crc: u32,
}

/// Finds the records from `from` on, the position after a record or 0. It must be a position that was durable once. `reader` has
/// `files` paths. Damage of a record may not be found before the records are read.
pub fn recover(reader: &dyn Reader, config: Config, files: u16, from: u64) -> Result<Recovered, Error> {
    recover_extent(reader, config, files, from, Extent::HeadersFrom(from))
}

/// Like [`recover`], but reads every body, so that all damage is found.
pub(crate) fn recover_checked(reader: &dyn Reader, config: Config, files: u16, from: u64) -> Result<Recovered, Error> {
    recover_extent(reader, config, files, from, Extent::All)
}

fn recover_extent(
    reader: &dyn Reader,
    config: Config,
    files: u16,
    from: u64,
    extent: Extent,
) -> Result<Recovered, Error> {
    let firsts: Result<Vec<_>, Error> = (0..files).map(|file| first_of(reader, &config, file)).collect();
    let firsts = firsts?;
    let past = |file: u16| firsts[usize::from(file)].filter(|first| is_past(first, &firsts, from));
    let wanted: Vec<u16> = (0..files).filter(|&file| past(file).is_none()).collect();
    let mut scan = Scan::of(reader, &config, files, &wanted, extent)?;
    (0..files).for_each(|file| past(file).iter().for_each(|first| scan.see(file, first)));
    let chain = scan.chain(from)?;
    let end = chain.last().map_or(from, |at| at.header.end());
    if end < scan.durable {
        return Err(scan.why_short(&chain, end));
    }
    // Keep each file with any frame from here on: the frames of the chain; complete copies, because it is not known
    // which of them the device has; and also torn frames and frames of void terms. If a file with these were
    // overwritten, a second crash could complete them with sectors of the new frames, and records would come back that
    // this recovery has not found.
    for file in &mut scan.files {
        file.end = file.end.filter(|&end| end >= from);
    }
    let Scan { durable, term, number, files, .. } = scan;
    Ok(Recovered { config, from, chain, durable, term, number, files })
}

/// The header at the start of the file. `None`: there is none, or it belongs to another journal.
fn first_of(reader: &dyn Reader, config: &Config, file: u16) -> Result<Option<Header>, Error> {
    let mut page = PageBuf::new(1);
    let read = reader.read(file, DATA_OFFSET, &mut page);
    read.map_err(|source| Error::Read { file, offset: DATA_OFFSET, source })?;
    match Header::read(&page) {
        Found::Header(header, ..) if header.log_id == config.log_id => Ok(Some(header)),
        _ => Ok(None),
    }
}

/// The number of threads that should read this many bytes in this many portions.
fn readers(bytes: u64, portions: usize) -> usize {
    let worth = (bytes / READER_BYTES_MIN).min(READERS_MAX as u64) as usize;
    worth.min(portions).max(1)
}

/// Calls `one` for each item and returns the results. Uses as many threads as reading this many bytes is worth.
fn at_once<T: Sync, R: Send>(bytes: u64, all: &[T], one: &(dyn Fn(&T) -> R + Sync)) -> Vec<R> {
    let readers = readers(bytes, all.len());
    let own = |nth| all.iter().enumerate().skip(nth).step_by(readers).map(|(at, it)| (at, one(it))).collect::<Vec<_>>();
    let mut done = thread::scope(|scope| {
        let others: Vec<_> = (1..readers).map(|nth| scope.spawn(move || own(nth))).collect();
        let mut done = own(0);
        others.into_iter().for_each(|other| done.extend(other.join().expect("reading does not panic")));
        done
    });
    done.sort_unstable_by_key(|&(at, _)| at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Whether all frames of the file that begins with `first` end before `from`. Then only `first` need be read.
///
/// A file has frames of one term, and behind them the remains of earlier uses. A later file of the same term begins at
/// the end of the last of these frames, or before. If that file begins before `from`, no frame of this file is in the
/// chain, and it has no torn frame that a writer must not overwrite. Its headers add nothing either: terms, numbers and
/// durable positions grow, and the later file's header has later ones.
///
/// This is valid only if `first` belongs to the file's last use. A crash may have lost the first page of a use of which
/// nothing was durable. A writer always takes the file with the lowest number next, so that file is read in any case.
fn is_past(first: &Header, firsts: &[Option<Header>], from: u64) -> bool {
    let others = || firsts.iter().flatten();
    let has_later =
        others().any(|later| later.term == first.term && later.number > first.number && later.position < from);
    has_later && others().any(|other| other.number < first.number)
}

/// Reads the frames from `from` to `until`, both of which are durable, even while a writer continues behind them.
pub(crate) fn check(reader: &dyn Reader, config: Config, files: u16, from: u64, until: u64) -> Result<(), Error> {
    let firsts: Result<Vec<_>, Error> = (0..files).map(|file| first_of(reader, &config, file)).collect();
    let firsts = firsts?;
    // If its first frame was never written, a file has nothing durable.
    let is_wanted = |first: &Header| first.position < until && !is_past(first, &firsts, from);
    let wanted: Vec<u16> =
        (0..files).filter(|&file| firsts[usize::from(file)].as_ref().is_some_and(is_wanted)).collect();
    let scan = Scan::of(reader, &config, files, &wanted, Extent::Until(until))?;
    let chain = match from == until {
        true => return Ok(()),
        false => scan.chain(from)?,
    };
    let end = chain.last().map_or(from, |at| at.header.end());
    if end < until { Err(scan.why_short(&chain, end)) } else { Ok(()) }
}

/// The readable part of a damaged journal, and what is lost.
pub struct Salvaged {
    pub before: Recovered,
    pub damage: Error,
    /// The number of records behind the damage that can be read but not replayed, and the time of the last one.
    pub lost_records: u64,
    pub lost_until_ms: u64,
}

/// Like [`recover`], for a damaged journal: finds the part before the damage. `None`: the journal is not damaged.
pub fn salvage(reader: &dyn Reader, config: Config, files: u16, from: u64) -> Result<Option<Salvaged>, Error> {
    let wanted: Vec<u16> = (0..files).collect();
    let scan = Scan::of(reader, &config, files, &wanted, Extent::All)?;
    let (chain, damage) = match scan.chain(from) {
        Ok(chain) => {
            let end = chain.last().map_or(from, |at| at.header.end());
            let damage = (end < scan.durable).then(|| scan.why_short(&chain, end));
            (chain, damage)
        }
        Err(damage) => (Vec::new(), Some(damage)),
    };
    let Some(damage) = damage else { return Ok(None) };
    let end = chain.last().map_or(from, |at| at.header.end());
    let (mut lost_records, mut lost_until_ms) = (0, 0);
    // A frame that was copied into a later term must count only once.
    let mut behind: Vec<&At> = scan.frames.iter().filter(|at| at.header.position >= end).collect();
    behind.sort_unstable_by_key(|at| at.header.position);
    let mut counted = end;
    for at in behind {
        if at.header.position < counted {
            continue;
        }
        counted = at.header.end();
        let frame = at.read(reader)?;
        let mut rest = frame[HEADER_BYTES..].get(..at.header.bytes as usize).unwrap_or_default();
        while let Some(piece) = Some(rest).filter(|rest| !rest.is_empty()).and_then(Piece::read) {
            lost_records += u64::from(!piece.continued);
            lost_until_ms = lost_until_ms.max(piece.record.time_ms);
            rest = &rest[piece.bytes()..];
        }
    }
    let Scan { durable, term, number, files, .. } = scan;
    let before = Recovered { config, from, chain, durable, term, number, files };
    Ok(Some(Salvaged { before, damage, lost_records, lost_until_ms }))
}

impl Recovered {
    /// The position up to which the journal was durable.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// The position after the last record.
    pub fn end(&self) -> u64 {
        self.chain.last().map_or(self.from, |at| at.header.end())
    }

    /// For each file with frames of the journal, in the order of their positions: its number, its number of frames, and
    /// the positions where they begin and end.
    pub(crate) fn held(&self) -> Vec<Held> {
        let mut held: Vec<Held> = Vec::new();
        for at in &self.chain {
            match held.last_mut().filter(|held| held.file == at.file) {
                Some(held) => {
                    held.frames += 1;
                    held.end = at.header.end();
                }
                None => held.push(Held { file: at.file, frames: 1, start: at.header.position, end: at.header.end() }),
            }
        }
        held
    }

    /// The replication offset after the last record. `None`: there is no frame.
    pub fn replication_offset(&self) -> Option<u64> {
        self.chain.last().map(|at| at.header.replication_offset)
    }

    /// Calls `each` with every record, in order, and the position after it.
    pub fn records(&self, reader: &dyn Reader, mut each: impl FnMut(u64, &Record)) -> Result<(), Error> {
        let mut each = |end, record: &Record| {
            each(end, record);
            ControlFlow::Continue(())
        };
        self.join(reader, self.from, &mut Joiner::default(), &mut each).map(|_| ())
    }

    /// Visits the records from `from` on, the position after a record, until `each` breaks. Threads read and check frames
    /// ahead. If the last record is incomplete, the joiner keeps its beginning.
    pub(crate) fn join(
        &self,
        reader: &dyn Reader,
        from: u64,
        joiner: &mut Joiner,
        each: &mut dyn FnMut(u64, &Record) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Error> {
        let chain = &self.chain[self.chain.partition_point(|at| at.header.end() <= from)..];
        thread::scope(|scope| {
            let pages: u64 = chain.iter().map(|at| u64::from(at.header.pages)).sum();
            let readers = readers(pages * PAGE_BYTES as u64, chain.len());
            let begin = |nth: usize| {
                let (sender, frames) = sync_channel(FRAMES_AHEAD);
                let mut own = chain.iter().skip(nth).step_by(readers);
                // The thread ends when its receiver is dropped.
                scope.spawn(move || own.try_for_each(|at| sender.send(at.read(reader))));
                frames
            };
            join_frames(chain, from, (0..readers).map(begin).collect(), joiner, each)
        })
    }

    /// The writer that continues behind the journal's end. Frames that are not known to be durable are read once more,
    /// so that the writer can copy them.
    pub fn writer(self, reader: &dyn Reader) -> Result<Writer, Error> {
        let copied_from = self.chain.iter().position(|at| at.header.end() > self.durable).unwrap_or(self.chain.len());
        let mut frames = VecDeque::new();
        for at in &self.chain[copied_from..] {
            frames.push_back(Frame {
                position: at.header.position,
                bytes: at.header.bytes,
                stored: None,
                replication_offset: at.header.replication_offset,
                crc: 0,
                buf: Some(at.read(reader)?),
                state: FrameState::Formed,
            });
        }
        let mut needed = Needed::default();
        let uncopied = self.chain[..copied_from].iter().map(|at| &at.header);
        uncopied.for_each(|header| needed.add(header.end(), header.pages.into()));
        let crc_before = self.chain.get(copied_from).map(|at| at.header.crc_before);
        let durable_crc = crc_before.or_else(|| self.chain.last().map(|at| at.crc)).unwrap_or(0);
        let start = Start {
            term: self.term + 1,
            number: self.number,
            durable: self.chain.get(copied_from).map_or_else(|| self.end(), |at| at.header.position),
            durable_crc,
            replication_offset: self.replication_offset().unwrap_or(0),
            needed_from: self.from,
            needed,
            files: self.files,
            frames,
        };
        Ok(Writer::start(self.config, start))
    }
}

/// The receivers give the frames of the chain in turns.
fn join_frames(
    chain: &[At],
    from: u64,
    readers: Vec<Receiver<Result<PageBuf, Error>>>,
    joiner: &mut Joiner,
    each: &mut dyn FnMut(u64, &Record) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, Error> {
    for (at, reader) in chain.iter().zip(readers.iter().cycle()) {
        let frame = reader.recv().expect("each reader reads all of its frames")?;
        let damaged = || at.damaged();
        let mut position = at.header.position.max(from);
        let skipped = (position - at.header.position) as usize;
        let mut rest = frame[HEADER_BYTES..].get(skipped..at.header.bytes as usize).unwrap_or_default();
        while !rest.is_empty() {
            let no_record = || Error::NoRecord { position: from };
            let is_first = position == from;
            // The frame was checked. But it is not known whether a record begins at the first position.
            let piece = if is_first { Piece::read(rest) } else { Piece::read_checked(rest) };
            let piece = piece.ok_or_else(|| if is_first { no_record() } else { damaged() })?;
            if is_first && piece.continued {
                return Err(no_record());
            }
            rest = &rest[piece.bytes()..];
            position += piece.bytes() as u64;
            if joiner.join(position, &piece, each).ok_or_else(damaged)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }
    Ok(ControlFlow::Continue(()))
}

impl At {
    fn end_offset(&self) -> u64 {
        self.offset + u64::from(self.header.pages) * PAGE_BYTES as u64
    }

    fn damaged(&self) -> Error {
        Error::Damaged { file: self.file, offset: self.offset, position: self.header.position }
    }

    /// Reads the frame again and decompresses its records. The frame must be unchanged.
    fn read(&self, reader: &dyn Reader) -> Result<PageBuf, Error> {
        let frame = self.read_whole(reader)?.ok_or_else(|| self.damaged())?;
        match self.header.is_packed() {
            true => frame::unpacked(&frame, &self.header).ok_or_else(|| self.damaged()),
            false => Ok(frame),
        }
    }

    /// Reads the frame as it is on the device. `None`: it is not whole.
    fn read_whole(&self, reader: &dyn Reader) -> Result<Option<PageBuf>, Error> {
        let mut frame = PageBuf::new(self.header.pages as usize);
        let read = reader.read(self.file, self.offset, &mut frame);
        read.map_err(|source| Error::Read { file: self.file, offset: self.offset, source })?;
        let is_whole = match Header::read(&frame) {
            Found::Header(header, crc, body) => crc == self.crc && Some(body) == frame::body_crc(&frame, &header),
            _ => false,
        };
        Ok(is_whole.then_some(frame))
    }

    /// Whether `next`, the header behind this frame, was written after it.
    fn is_followed_by(&self, next: &Header) -> bool {
        let header = &self.header;
        (next.log_id, next.number) == (header.log_id, header.number)
            && (next.position, next.crc_before) == (header.end(), self.crc)
    }
}

/// How much of the files is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// Everything that shows where the frames behind this position are, and the bodies of doubtful frames. Earlier
    /// frames are read completely: their file may be in use again, and a crash may have left parts of newer frames in
    /// the place of an old one.
    HeadersFrom(u64),
    All,
    /// In each file, up to the frame that ends at this position or behind it. Only one thread reads, because clients
    /// use the device at the same time.
    Until(u64),
}

/// What the files contain.
#[derive(Default)]
struct Scan {
    frames: Vec<At>,
    /// Frames whose bodies were not read.
    unread: Vec<At>,
    /// Frames of which only the header is whole.
    torn: Vec<At>,
    /// Indexes of `frames`, by position and the CRC of the frame before.
    after: HashMap<(u64, u32), Vec<usize>>,
    /// The highest value in any header, including those of torn frames.
    durable: u64,
    term: u32,
    number: u32,
    files: Vec<File>,
}

impl Scan {
    /// Scans the `wanted` files, of `files` in total.
    fn of(reader: &dyn Reader, config: &Config, files: u16, wanted: &[u16], extent: Extent) -> Result<Scan, Error> {
        let all = || Scan { files: vec![File::default(); files.into()], ..Scan::default() };
        let one = |file: &u16| {
            let mut scan = all();
            scan.file(config, &mut Pages::of(reader, config, *file), extent).map(|()| scan)
        };
        let bytes = if let Extent::Until(_) = extent { 0 } else { wanted.len() as u64 * config.file_bytes };
        let scans = at_once(bytes, wanted, &one);
        let mut scan = all();
        wanted.iter().zip(scans).try_for_each(|(&file, one)| one.map(|one| scan.add(file, one)))?;
        scan.read_unread(reader)?;
        for (nth, frame) in scan.frames.iter().enumerate() {
            scan.after.entry((frame.header.position, frame.header.crc_before)).or_default().push(nth);
        }
        Ok(scan)
    }

    /// Reads the bodies that were skipped of frames that may be torn unnoticed. These are frames that are not durable;
    /// and frames with the same positions as another frame, since the write of one of them may have failed, or its term
    /// may have been given up.
    fn read_unread(&mut self, reader: &dyn Reader) -> Result<(), Error> {
        let shared = self.shared_positions();
        let is_certain = |at: &At| at.header.end() <= self.durable && !shared.contains(&(at.file, at.offset));
        let (certain, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.unread).into_iter().partition(is_certain);
        self.frames.extend(certain);
        let bytes = others.iter().map(|at| u64::from(at.header.pages) * PAGE_BYTES as u64).sum();
        let whole = at_once(bytes, &others, &|at| at.read_whole(reader).map(|frame| frame.is_some()));
        for (at, is_whole) in others.into_iter().zip(whole) {
            if is_whole? { &mut self.frames } else { &mut self.torn }.push(at);
        }
        Ok(())
    }

    /// The places of all frames of which another frame has some position too.
    fn shared_positions(&self) -> HashSet<(u16, u64)> {
        let mut all: Vec<&At> = self.frames.iter().chain(&self.unread).chain(&self.torn).collect();
        all.sort_unstable_by_key(|at| at.header.position);
        let mut shared = HashSet::new();
        // Of the frames so far, the one that ends last.
        let mut longest: Option<&At> = None;
        for at in all {
            if let Some(before) = longest.filter(|before| before.header.end() > at.header.position) {
                shared.extend([(before.file, before.offset), (at.file, at.offset)]);
            }
            if longest.is_none_or(|before| before.header.end() <= at.header.end()) {
                longest = Some(at);
            }
        }
        shared
    }

    /// Adds what another scan has found in a file that this scan has not read.
    fn add(&mut self, file: u16, other: Scan) {
        self.frames.extend(other.frames);
        self.unread.extend(other.unread);
        self.torn.extend(other.torn);
        self.durable = self.durable.max(other.durable);
        self.term = self.term.max(other.term);
        self.number = self.number.max(other.number);
        self.files[usize::from(file)] = other.files[usize::from(file)];
    }

    /// Takes the numbers from a header, even if its frame is torn.
    fn see(&mut self, file: u16, header: &Header) {
        self.durable = self.durable.max(header.durable);
        self.term = self.term.max(header.term);
        self.number = self.number.max(header.number);
        let state = &mut self.files[usize::from(file)];
        state.number = state.number.max(header.number);
    }

    fn file(&mut self, config: &Config, pages: &mut Pages, extent: Extent) -> Result<(), Error> {
        let file = pages.file;
        let mut offset = DATA_OFFSET;
        while offset < pages.end {
            let (header, crc, body) = match Header::read(pages.at(offset, PAGE_BYTES, READ_BYTES)?) {
                Found::Header(header, ..) if header.log_id != config.log_id && offset == DATA_OFFSET => {
                    return Err(Error::OtherLog { file, log_id: header.log_id });
                }
                Found::Header(header, crc, body) if header.log_id == config.log_id => (header, crc, body),
                Found::Newer(version) if offset == DATA_OFFSET => return Err(Error::Newer { file, offset, version }),
                _ => {
                    offset += PAGE_BYTES as u64;
                    continue;
                }
            };
            self.see(file, &header);
            let state = &mut self.files[usize::from(file)];
            state.end = state.end.max(Some(header.end()));
            let at = At { file, offset, header, crc };
            let bytes = header.pages as usize * PAGE_BYTES;
            if matches!(extent, Extent::HeadersFrom(from) if header.end() > from) && pages.have_next_of(&at)? {
                self.unread.push(at);
                offset += bytes as u64;
                continue;
            }
            let fits = bytes as u64 <= pages.end - offset;
            let is_whole = fits && Some(body) == frame::body_crc(pages.at(offset, bytes, READ_BYTES)?, &header);
            if is_whole {
                self.frames.push(at);
            } else {
                self.torn.push(at);
            }
            if matches!(extent, Extent::Until(until) if is_whole && header.end() >= until) {
                break;
            }
            offset += if is_whole { bytes } else { PAGE_BYTES } as u64;
        }
        Ok(())
    }

    fn next_of(&self, at: &At) -> impl Iterator<Item = &At> {
        let next = self.after.get(&(at.header.end(), at.crc));
        next.into_iter().flatten().map(|&index| &self.frames[index])
    }

    /// Whether the copy with which the frame's term began is whole, from this frame on.
    fn is_complete(&self, at: &At) -> bool {
        let mut at = at;
        while at.header.end() < at.header.copied_to {
            match self.next_of(at).find(|next| next.header.term == at.header.term) {
                Some(next) => at = next,
                None => return false,
            }
        }
        true
    }

    /// The frames of the journal, from the one on that contains `from` or ends there.
    fn chain(&self, from: u64) -> Result<Vec<At>, Error> {
        let holds = |at: &&At| at.header.position <= from && from <= at.header.end() && self.is_complete(at);
        let first = self.frames.iter().filter(holds).max_by_key(|at| (at.header.term, at.header.position));
        let Some(mut at) = first else {
            // In a new journal, nothing was ever durable.
            return if from == 0 && self.durable == 0 { Ok(Vec::new()) } else { Err(self.why_none(from)) };
        };
        let mut chain = vec![*at];
        loop {
            let term = at.header.term;
            let goes_on = |next: &&At| next.header.term == term || next.header.term > term && self.is_complete(next);
            match self.next_of(at).filter(goes_on).max_by_key(|next| next.header.term) {
                Some(next) => at = next,
                None => return Ok(chain),
            }
            chain.push(*at);
        }
    }

    /// The reason why no frame contains `from`.
    fn why_none(&self, from: u64) -> Error {
        let next = self.frames.iter().filter(|at| at.header.position > from).min_by_key(|at| at.header.position);
        match next {
            // The damage is behind the last frame before `next` in this use of the file, if there is one.
            Some(next) if next.offset > DATA_OFFSET => {
                let is_before = |at: &&At| at.header.number == next.header.number && at.offset < next.offset;
                let before = self.frames.iter().filter(is_before).map(At::end_offset).max();
                Error::Damaged { file: next.file, offset: before.unwrap_or(DATA_OFFSET), position: from }
            }
            _ => Error::Missing { position: from },
        }
    }

    /// The reason why the chain does not reach the durable position.
    fn why_short(&self, chain: &[At], end: u64) -> Error {
        let Some(last) = chain.last() else { return Error::Missing { position: end } };
        let is_later = |at: &&At| at.header.position >= end && at.header.term >= last.header.term;
        let next = self
            .frames
            .iter()
            .chain(&self.torn)
            .filter(is_later)
            .min_by_key(|at| (at.header.number, at.header.position));
        let number = last.header.number;
        match next {
            // Later frames of the same file, or of the next one: the frame behind the last one is damaged.
            Some(next) if next.header.number <= number + 1 => {
                let is_first_of_next = next.header.number > number && next.offset > DATA_OFFSET;
                let (file, offset) =
                    if is_first_of_next { (next.file, DATA_OFFSET) } else { (last.file, last.end_offset()) };
                Error::Damaged { file, offset, position: end }
            }
            _ => Error::Missing { position: end },
        }
    }
}

/// The pages of a file, read in large pieces.
struct Pages<'r> {
    reader: &'r dyn Reader,
    file: u16,
    end: u64,
    buf: PageBuf,
    /// The offset of `buf` in the file. While nothing is read, the end of the file.
    start: u64,
}

impl<'r> Pages<'r> {
    fn of(reader: &'r dyn Reader, config: &Config, file: u16) -> Pages<'r> {
        let end = DATA_OFFSET + config.file_bytes;
        Pages { reader, file, end, buf: PageBuf::new(1), start: end }
    }

    /// Whether the next frame follows this one in the file.
    fn have_next_of(&mut self, at: &At) -> Result<bool, Error> {
        let end = at.end_offset();
        if end >= self.end {
            return Ok(false);
        }
        let is_long = end - at.offset >= LONG_BYTES as u64;
        let next = self.at(end, PAGE_BYTES, if is_long { PAGE_BYTES } else { READ_BYTES })?;
        Ok(matches!(Header::read(next), Found::Header(next, ..) if at.is_followed_by(&next)))
    }

    /// `bytes` bytes from `offset` on, which the file has. If they are not read yet, reads at least `ahead` bytes.
    fn at(&mut self, offset: u64, bytes: usize, ahead: usize) -> Result<&[u8], Error> {
        let is_there = self.start <= offset && offset + bytes as u64 <= self.start + self.buf.len() as u64;
        if !is_there {
            let wanted = bytes.max(ahead).min((self.end - offset) as usize);
            self.buf = PageBuf::new(wanted / PAGE_BYTES);
            let read = self.reader.read(self.file, offset, &mut self.buf);
            read.map_err(|source| Error::Read { file: self.file, offset, source })?;
            self.start = offset;
        }
        Ok(&self.buf[(offset - self.start) as usize..][..bytes])
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Read { file, offset, source } => {
                write!(f, "cannot read journal file {file} at offset {offset}: {source}")
            }
            Error::OtherLog { file, log_id } => {
                write!(f, "journal file {file} belongs to another journal, {:032x}", u128::from_be_bytes(*log_id))
            }
            Error::Newer { file, offset, version } => write!(
                f,
                "journal file {file} has a frame of format {version} at offset {offset}; this release reads formats up to {}",
                frame::VERSION
            ),
            Error::Missing { position } => {
                write!(
                    f,
                    "no journal file has position {position}, although it was durable: a file is missing, or damaged at its beginning"
                )
            }
            Error::Damaged { file, offset, position } => write!(
                f,
                "journal file {file} is damaged at offset {offset}: position {position} cannot be read, although it was durable"
            ),
            Error::NoRecord { position } => write!(f, "no record of the journal begins at position {position}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Read { source, .. } => Some(source),
            _ => None,
        }
    }
}
